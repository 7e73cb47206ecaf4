/*
 * Putting markers into the FPDUs that are sent: RFC 5044 section 4.3.
 *
 * A marker is due at fixed places of the octet stream, so it may fall before the length field,
 * inside the headers of the layers above, inside the payload, or between pad and CRC; it belongs to
 * the FPDU whose octets follow it.
 */
#include "core/mpa/marker.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"

static void put_marker(struct mpa_marked *m, uint8_t *dst)
{
    /*
     * RFC 5044 4.2/1,2: "The Reserved field MUST be set to zero on transmit"; RFC 5044 4.2/3: (all lengths before
     * a marker
     * are multiples of four;) RFC 5044 4.3/3,8-10: "FPDUPTR MUST contain
     * the number of octets in the TCP stream from the beginning of the ULPDU Length field to the
     * first octet of the Marker, unless the Marker falls between FPDUs", then it is zero.
     */
    put_be16(dst, 0);
    put_be16(dst + 2, (uint16_t)m->since);
    if (m->since > 0)
        m->since += MPA_MARKER_LEN;
    m->to_marker = MPA_MARKER_GAP;
}

static size_t put(struct mpa_marked *m, uint8_t *dst, const uint8_t *src, size_t len)
{
    uint8_t *to = dst;
    while (len > 0) {
        if (m->to_marker == 0) {
            put_marker(m, to);
            to += MPA_MARKER_LEN;
        }
        size_t n = len < m->to_marker ? len : m->to_marker;
        memcpy(to, src, n);
        m->to_marker -= (uint32_t)n;
        m->since += (uint32_t)n;
        to += n;
        src += n;
        len -= n;
    }
    return (size_t)(to - dst);
}

/* RFC 5044 4.3/5 and RFC 5044 4.4/10: "All MPA Markers are included in the containing FPDU CRC calculation". */
static void sum(struct mpa_marked *m, const uint8_t *dst, size_t len)
{
    if (m->crc_on)
        m->crc = crc32c_update(m->crc, dst, len);
}

/* RFC 5044 4.3/1: "All MPA senders MUST be able to generate Markers". */
size_t mpa_marked_begin(struct mpa_marked *m, const struct mpa_framing *framing, uint64_t pos, uint8_t *dst,
                        size_t ulpdu_len)
{
    /* (Markers point back by 16 bits.) */
    SW_CHECK(framing->markers && ulpdu_len <= MPA_MULPDU_MAX, "ULPDU of %zu octets", ulpdu_len);
    *m = (struct mpa_marked){
        .crc_on = framing->crc,
        .crc = CRC32C_INIT,
        .to_marker = (uint32_t)mpa_marker_first(pos),
        .ulpdu_len = (uint32_t)ulpdu_len,
    };
    uint8_t field[MPA_HDR_LEN];
    put_be16(field, (uint16_t)ulpdu_len);
    size_t n = put(m, dst, field, sizeof(field));
    sum(m, dst, n);
    return n;
}

size_t mpa_marked_put(struct mpa_marked *m, uint8_t *dst, const void *src, size_t len)
{
    size_t n = put(m, dst, src, len);
    sum(m, dst, n);
    return n;
}

size_t mpa_marked_end(struct mpa_marked *m, uint8_t *dst)
{
    static const uint8_t zeros[MPA_CRC_LEN];
    size_t n = put(m, dst, zeros, mpa_pad_len(m->ulpdu_len));
    /* RFC 5044 4.4/10: "If there is a Marker immediately following the PAD, the Marker is included". */
    size_t covered = n + (m->to_marker == 0 ? MPA_MARKER_LEN : 0);
    n += put(m, dst + n, zeros, MPA_CRC_LEN);
    sum(m, dst, covered);
    if (m->crc_on)
        put_le32(dst + covered, crc32c_final(m->crc));
    return n;
}
