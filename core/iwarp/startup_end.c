/*
 * RFC 6581 9.1/6 and RFC 6581 9.2/9: "it MUST send a TERM message to the responder … and terminate the connection"; RFC
 * 6581
 * 9.3/1: so for errors of its own.
 */
#include "core/iwarp/startup_end.h"

#include <string.h>

#include "core/base/crc32c.h"
#include "core/rdmap/rdmap.h"

size_t startup_end_put(const struct mpa_framing *tx, uint8_t code, uint8_t *buf)
{
    struct terminate term = { .code = { .layer = TERM_LAYER_LLP, .code = code } };
    struct ddp_segment seg = {
        .last = true,
        .ulp_ctrl = rdmap_ctrl(RDMAP_TERMINATE),
        .qn = RDMAP_QN_TERMINATE,
        .msn = 1,
    };
    uint8_t ulpdu[DDP_UNTAGGED_HDR_LEN + TERM_MAX];
    size_t len = ddp_segment_encode(&seg, ulpdu);
    len += terminate_encode(&term, ulpdu + len);
    if (tx->markers) {
        struct mpa_marked m;
        size_t n = mpa_marked_begin(&m, tx, 0, buf, len);
        n += mpa_marked_put(&m, buf + n, ulpdu, len);
        return n + mpa_marked_end(&m, buf + n);
    }
    uint32_t crc = crc32c_update(mpa_fpdu_begin(buf, len), ulpdu, len);
    memcpy(buf + MPA_HDR_LEN, ulpdu, len);
    return MPA_HDR_LEN + len + mpa_fpdu_end(tx, buf + MPA_HDR_LEN + len, len, crc);
}
