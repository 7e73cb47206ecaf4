/*
 * DDP segment headers, RFC 5041 sections 4.1 (control), 4.2 (tagged) and 4.3 (untagged).
 * Receive path: transport -> mpa -> [ddp] -> rdmap -> stream.
 *
 *   tagged     | T L rsvd DV | RsvdULP 8 | STag 32 | TO 64 |                        14 octets
 *   untagged   | T L rsvd DV | RsvdULP 8, 32       | QN 32 | MSN 32 | MO 32 |       18 octets
 */
#include "core/ddp/segment.h"

#include <errno.h>
#include <sys/types.h>

#include "core/base/bytes.h"

#define CTRL_TAGGED 0x80u
#define CTRL_LAST 0x40u
/* RFC 5041 4.1/8: Rsvd "MUST be set to zero on transmit, and not checked on receive". */
#define CTRL_VERSION 0x03u

ssize_t ddp_segment_decode(const uint8_t *ulpdu, size_t len, struct ddp_segment *out)
{
    struct bytes_rd r = bytes_rd_init(ulpdu, len);
    uint8_t ctrl = bytes_rd_u8(&r);

    *out = (struct ddp_segment){
        .tagged = (ctrl & CTRL_TAGGED) != 0,
        .last = (ctrl & CTRL_LAST) != 0,
        .version = ctrl & CTRL_VERSION,
        .ulp_ctrl = bytes_rd_u8(&r),
    };
    /* RFC 5041 4.2/1 and RFC 5041 4.3/1: the two formats that "MUST be used"; RFC 5041 4.4/1: no segment without. */
    if (out->tagged) {
        out->stag = bytes_rd_be32(&r);
        out->to = bytes_rd_be64(&r);
    } else {
        out->ulp_word = bytes_rd_be32(&r);
        out->qn = bytes_rd_be32(&r);
        out->msn = bytes_rd_be32(&r);
        out->mo = bytes_rd_be32(&r);
    }
    if (r.bad)
        return -EMSGSIZE;
    return r.p - ulpdu;
}

size_t ddp_segment_encode(const struct ddp_segment *seg, uint8_t *buf)
{
    struct bytes_wr w = bytes_wr_init(buf, DDP_UNTAGGED_HDR_LEN);

    /* RFC 5041 4.1/9: DV "MUST be set to one", RFC 5041 4.1/10: in all segments. */
    bytes_wr_u8(&w, (uint8_t)((seg->tagged ? CTRL_TAGGED : 0) | (seg->last ? CTRL_LAST : 0) | DDP_VERSION));
    bytes_wr_u8(&w, seg->ulp_ctrl);
    if (seg->tagged) {
        bytes_wr_be32(&w, seg->stag);
        bytes_wr_be64(&w, seg->to);
    } else {
        bytes_wr_be32(&w, seg->ulp_word);
        bytes_wr_be32(&w, seg->qn);
        bytes_wr_be32(&w, seg->msn);
        bytes_wr_be32(&w, seg->mo);
    }
    return bytes_wr_len(&w);
}
