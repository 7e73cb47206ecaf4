/*
 * The Terminate message, RFC 5040 section 4.8: encode, lenient decode, and what the codes mean.
 * Receive path: transport -> mpa -> ddp -> [rdmap] -> stream.
 *
 *   | Layer 4 | EType 4 | Code 8 | M D R, 13 zero bits | if M or D: DDP segment length 16 |
 *   | if D: DDP header, 14 or 18 octets | if R: RDMA Read Request header, 28 octets |
 */
#include "core/rdmap/terminate.h"

#include <errno.h>

#include "core/base/bytes.h"
#include "core/ddp/segment.h"
#include "core/rdmap/rdmap.h"

#define FLAG_M 0x80u
#define FLAG_D 0x40u
#define FLAG_R 0x20u

_Static_assert(TERM_MAX == 4 + 2 + DDP_UNTAGGED_HDR_LEN + RDMAP_READ_HDR_LEN, "largest Terminate");

/*
 * RFC 5040 4.8/3: "Figure 9 ... defines the valid values that MUST be used". With those of RFC 5041
 * section 7.2, RFC 5044 section 8 and RFC 6581 section 8.
 */
static const struct {
    uint8_t layer, etype;
    int code; /* -1: any */
    const char *text;
} codes[] = {
    { TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, -1, "RDMAP: local catastrophic error" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0x00, "RDMAP protection: invalid STag" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0x01, "RDMAP protection: base or bounds violation" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0x02, "RDMAP protection: access rights violation" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0x03, "RDMAP protection: STag not of this stream" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0x04, "RDMAP protection: TO wrap" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0x09, "RDMAP protection: STag cannot be invalidated" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, 0xff, "RDMAP protection: unspecified" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 0x05, "RDMAP operation: invalid RDMAP version" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 0x06, "RDMAP operation: unexpected opcode" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 0x07, "RDMAP operation: catastrophic, this stream" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 0x08, "RDMAP operation: catastrophic, global" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 0x09, "RDMAP operation: STag cannot be invalidated" },
    { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 0xff, "RDMAP operation: unspecified" },
    { TERM_LAYER_DDP, TERM_DDP_CATASTROPHIC, -1, "DDP: local catastrophic error" },
    { TERM_LAYER_DDP, TERM_DDP_TAGGED, 0x00, "DDP tagged: invalid STag" },
    { TERM_LAYER_DDP, TERM_DDP_TAGGED, 0x01, "DDP tagged: base or bounds violation" },
    { TERM_LAYER_DDP, TERM_DDP_TAGGED, 0x02, "DDP tagged: STag not of this stream" },
    { TERM_LAYER_DDP, TERM_DDP_TAGGED, 0x03, "DDP tagged: TO wrap" },
    { TERM_LAYER_DDP, TERM_DDP_TAGGED, 0x04, "DDP tagged: invalid DDP version" },
    { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, 0x01, "DDP untagged: invalid QN" },
    { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, 0x02, "DDP untagged: no buffer for this MSN" },
    { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, 0x03, "DDP untagged: MSN out of range" },
    { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, 0x04, "DDP untagged: invalid MO" },
    { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, 0x05, "DDP untagged: message too long for the buffer" },
    { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, 0x06, "DDP untagged: invalid DDP version" },
    { TERM_LAYER_LLP, 0, 0x01, "MPA: TCP connection closed, terminated or lost" },
    { TERM_LAYER_LLP, 0, 0x02, "MPA: CRC error" },
    { TERM_LAYER_LLP, 0, 0x03, "MPA: marker and ULPDU_Length mismatch" },
    { TERM_LAYER_LLP, 0, 0x04, "MPA: invalid startup frame" },
    { TERM_LAYER_LLP, 0, 0x05, "MPA: local catastrophic error" },
    { TERM_LAYER_LLP, 0, 0x06, "MPA: insufficient IRD" },
    { TERM_LAYER_LLP, 0, 0x07, "MPA: no matching RTR option" },
};

static const char *find_text(struct term_code c)
{
    /* Deployed RNICs report MPA errors as EType 3, which RFC 5041 section 7.2 keeps for the LLP. */
    if (c.layer == TERM_LAYER_LLP && c.etype == 3)
        c.etype = 0;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].layer == c.layer && codes[i].etype == c.etype && (codes[i].code < 0 || codes[i].code == c.code))
            return codes[i].text;
    return NULL;
}

const char *term_code_text(struct term_code c)
{
    const char *text = find_text(c);

    return text ? text : "unknown error code";
}

size_t terminate_encode(const struct terminate *t, uint8_t *buf)
{
    struct bytes_wr w = bytes_wr_init(buf, TERM_MAX);
    /*
     * RFC 5040 4.8/1,2: Figures 7 and 8. RFC 5040 4.8/8-10: DDP Segment Length "MUST be present when the D bit is
     * set".
     */
    bool has_len = t->has_len || t->has_ddp_hdr;

    bytes_wr_u8(&w, (uint8_t)(t->code.layer << 4 | (t->code.etype & 0x0f)));
    bytes_wr_u8(&w, t->code.code);
    bytes_wr_u8(&w, (uint8_t)((has_len ? FLAG_M : 0) | (t->has_ddp_hdr ? FLAG_D : 0) | (t->has_read_hdr ? FLAG_R : 0)));
    bytes_wr_u8(&w, 0); /* RFC 5040 4.8/7: Reserved: "MUST be set to zero on transmit" */
    if (has_len)
        bytes_wr_be16(&w, t->ddp_segment_len);
    if (t->has_ddp_hdr)
        bytes_wr_copy(&w, t->ddp_hdr, t->ddp_hdr_len);
    /* RFC 5040 4.8/11: the RDMA header "MUST be present if the R bit is set". */
    if (t->has_read_hdr)
        bytes_wr_copy(&w, t->read_hdr, sizeof(t->read_hdr));
    return bytes_wr_len(&w);
}

/*
 * Linux siw on little-endian machines lays bit-fields over the wire: nibbles swapped, flags in bits 0 to 2. The
 * reserved bits must be zero on transmit, so flags in the wrong place show such a sender; without any flag only the
 * code can.
 */
static bool looks_like_siw(uint8_t first, uint8_t code, uint8_t flags)
{
    struct term_code rfc = { .layer = first >> 4, .etype = first & 0x0f, .code = code };
    struct term_code siw = { .layer = first & 0x0f, .etype = first >> 4, .code = code };

    if (flags & (FLAG_M | FLAG_D | FLAG_R))
        return false;
    if (find_text(rfc) && !(flags & 0x07))
        return false;
    return find_text(siw) != NULL;
}

int terminate_decode(const uint8_t *buf, size_t len, struct terminate *out)
{
    struct bytes_rd r = bytes_rd_init(buf, len);
    uint8_t first = bytes_rd_u8(&r), code = bytes_rd_u8(&r);
    const uint8_t *p;
    uint8_t flags;

    memset(out, 0, sizeof(*out));
    if (r.bad)
        return -EMSGSIZE;
    /* What is missing from here on is taken as absent: a truncated Terminate still tells why. */
    flags = bytes_rd_u8(&r);
    (void)bytes_rd_u8(&r);
    out->code = (struct term_code){ .layer = first >> 4, .etype = first & 0x0f, .code = code };
    if (looks_like_siw(first, code, flags)) {
        out->code.layer = first & 0x0f;
        out->code.etype = first >> 4;
        flags = (uint8_t)((flags & 1 ? FLAG_M : 0) | (flags & 2 ? FLAG_D : 0) | (flags & 4 ? FLAG_R : 0));
    }
    if (flags & (FLAG_M | FLAG_D)) {
        out->ddp_segment_len = bytes_rd_be16(&r);
        out->has_len = !r.bad;
    }
    if ((flags & FLAG_D) && bytes_rd_left(&r) > 0) {
        out->ddp_hdr_len = *r.p & 0x80 ? DDP_TAGGED_HDR_LEN : DDP_UNTAGGED_HDR_LEN;
        p = bytes_rd_take(&r, out->ddp_hdr_len);
        if (p) {
            memcpy(out->ddp_hdr, p, out->ddp_hdr_len);
            out->has_ddp_hdr = true;
        } else {
            out->ddp_hdr_len = 0;
        }
    }
    if (flags & FLAG_R) {
        p = bytes_rd_take(&r, sizeof(out->read_hdr));
        if (p) {
            memcpy(out->read_hdr, p, sizeof(out->read_hdr));
            out->has_read_hdr = true;
        }
    }
    return 0;
}
