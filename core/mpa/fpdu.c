/*
 * FPDU framing, RFC 5044 sections 4 and 5: both directions of one format.
 *
 * Receive path: transport -> [mpa] -> ddp -> rdmap -> stream. This is the first place where
 * received octets are looked at; what leaves it is one ULPDU (a DDP segment) whose CRC was good,
 * without markers. Putting markers in is done in marker.c.
 */
#include "core/mpa/fpdu.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"
#include "core/mpa/marker.h"

/* RFC 5044 3/2 and RFC 5041 3 item 1: "LLPs MUST expose MULPDU". */
size_t mpa_mulpdu(size_t emss, bool markers)
{
    /*
     * RFC 5044 4.5/1,2 and RFC 5044 5.1/1: "MUST be computed as: MULPDU = EMSS - (6 + 4 * Ceiling(EMSS / 512) +
     * EMSS mod
     * 4)", without markers "EMSS - (6 + EMSS mod 4)".
     */
    size_t overhead = MPA_HDR_LEN + MPA_CRC_LEN + emss % 4;
    if (markers)
        overhead += MPA_MARKER_LEN * (emss / MPA_MARKER_EVERY + (emss % MPA_MARKER_EVERY != 0));
    /* RFC 5044 3/4 and RFC 5044 4.5/4: "MUST NOT shrink the MULPDU below 128 octets". */
    if (emss < MPA_MULPDU_MIN + overhead)
        return MPA_MULPDU_MIN;
    return emss - overhead > MPA_MULPDU_MAX ? MPA_MULPDU_MAX : emss - overhead;
}

size_t mpa_fpdu_wire_len(const struct mpa_framing *framing, uint64_t pos, size_t ulpdu_len)
{
    size_t len = mpa_fpdu_len(ulpdu_len);
    size_t first = mpa_marker_first(pos);
    if (!framing->markers || first >= len)
        return len;
    return len + MPA_MARKER_LEN * (1 + (len - first - 1) / MPA_MARKER_GAP);
}

/* Octets before the length field: a marker's, or none. */
static size_t leading(const struct mpa_framing *framing, uint64_t pos)
{
    return framing->markers && mpa_marker_first(pos) == 0 ? MPA_MARKER_LEN : 0;
}

size_t mpa_fpdu_expect(const struct mpa_framing *framing, uint64_t pos, const uint8_t *buf, size_t len)
{
    /* (All that precedes a marker has a length that is a multiple of 4: none falls into the field.) */
    size_t lead = leading(framing, pos);
    if (len < lead + MPA_HDR_LEN)
        return 0;
    return mpa_fpdu_wire_len(framing, pos, get_be16(buf + lead));
}

size_t mpa_fpdu_look(const struct mpa_framing *framing, uint64_t pos, const uint8_t *buf, size_t len, size_t from,
                     uint8_t *dst, size_t n, size_t *ulpdu_len)
{
    size_t lead = leading(framing, pos), start = lead + MPA_HDR_LEN, done = 0;
    /* The number of octets of the ULPDU before its first marker. */
    size_t before = (lead ? MPA_MARKER_EVERY : mpa_marker_first(pos)) - start;
    *ulpdu_len = len < start ? 0 : get_be16(buf + lead);
    for (; done < n && from + done < *ulpdu_len; done++) {
        size_t i = from + done, at = start + i;
        if (framing->markers && i >= before)
            at += MPA_MARKER_LEN * (1 + (i - before) / MPA_MARKER_GAP);
        if (at >= len)
            break;
        dst[done] = buf[at];
    }
    return done;
}

/*
 * RFC 5044 8 code 3/1,3 and RFC 5044 4.3/4,8-10: "received MPA Marker (if enabled) and ULPDU Length fields do not
 * agree on the
 * start of an FPDU". All of them are looked at.
 */
static bool markers_agree(const uint8_t *buf, size_t total, size_t first, size_t lead)
{
    for (size_t at = first; at < total; at += MPA_MARKER_EVERY) {
        /*
         * RFC 5044 4.2/4 and RFC 5044 4.3/6: the lower two bits: "receivers MUST always treat these as zero";
         * RFC 5044 4.2/2: Reserved
         * is "ignored on receive (except for CRC calculation)". (An FPDU above the MULPDU's range
         * may be longer than the pointer can say.)
         */
        uint16_t ptr = get_be16(buf + at + 2) & 0xfffcu;
        if (ptr != (uint16_t)(at < lead ? 0 : at - lead))
            return false;
    }
    return true;
}

/* Moves the ULPDU's octets together. at: where it starts, mark: the position of the next marker. */
static void take_markers_out(uint8_t *buf, size_t at, size_t mark, size_t ulpdu_len)
{
    size_t to = at;
    while (ulpdu_len > 0) {
        size_t n = mark - at < ulpdu_len ? mark - at : ulpdu_len;
        if (to != at)
            memmove(buf + to, buf + at, n);
        to += n;
        at += n + MPA_MARKER_LEN;
        mark += MPA_MARKER_EVERY;
        ulpdu_len -= n;
    }
}

ssize_t mpa_fpdu_decode(const struct mpa_framing *framing, uint64_t pos, uint8_t *buf, size_t len, struct mpa_fpdu *out,
                        size_t *need)
{
    /*
     * RFC 5044 5.1/4, RFC 5044 A.4/1, RFC 5044 5.2/1, RFC 5044 6/2-4: "The ULPDU Length field (see Section 4) MUST be
     * used to determine if the entire FPDU is present before forwarding the ULPDU to DDP."
     */
    size_t lead = leading(framing, pos);
    size_t total = mpa_fpdu_expect(framing, pos, buf, len);
    if (total == 0 || len < total) {
        *need = total ? total : mpa_fpdu_wire_len(framing, pos, 0);
        return -EAGAIN;
    }
    /* RFC 5041 3 item 6: "a strong digest". */
    /* RFC 5044 6/1,2 and RFC 5044 4.4/11,12: "If not, the receiver MUST treat the FPDU as an invalid FPDU." */
    /* RFC 5044 4.1/3, RFC 5044 4.4/7 and RFC 5044 7.1.1/10,12: "MUST NOT be checked" where CRCs are not in use. */
    if (framing->crc) {
        uint32_t crc = crc32c_final(crc32c_update(CRC32C_INIT, buf, total - MPA_CRC_LEN));
        if (crc != get_le32(buf + total - MPA_CRC_LEN))
            return -EBADMSG;
    }
    size_t ulpdu_len = get_be16(buf + lead);
    if (SW_UNLIKELY(framing->markers)) {
        size_t first = mpa_marker_first(pos);
        if (!markers_agree(buf, total, first, lead))
            return -EILSEQ;
        /* RFC 5044 4.3/12: "MUST pass the ULPDU data and the ULPDU Length to DDP and not the Markers". */
        take_markers_out(buf, lead + MPA_HDR_LEN, lead ? MPA_MARKER_EVERY : first, ulpdu_len);
    }
    /* RFC 5044 3/6, RFC 5044 4.3/11 and RFC 5041 3 items 4 and 7: one segment, and its length. */
    out->ulpdu = buf + lead + MPA_HDR_LEN;
    out->ulpdu_len = ulpdu_len;
    return (ssize_t)total;
}

/* RFC 5044 3/1 and RFC 5044 4.1/1: Figure 2, one ULPDU. */
uint32_t mpa_fpdu_begin(uint8_t *hdr, size_t ulpdu_len)
{
    SW_CHECK(ulpdu_len <= MPA_ULPDU_MAX, "ULPDU of %zu octets", ulpdu_len);
    put_be16(hdr, (uint16_t)ulpdu_len);
    return crc32c_update(CRC32C_INIT, hdr, MPA_HDR_LEN);
}

size_t mpa_fpdu_end(const struct mpa_framing *framing, uint8_t *trailer, size_t ulpdu_len, uint32_t crc_state)
{
    SW_CHECK(!framing->markers, "an FPDU with markers is put together by mpa_marked_*");
    size_t pad = mpa_pad_len(ulpdu_len);
    /* RFC 5044 4.1/2: "pad data MUST be set to zero". RFC 5044 4.4/8: "MUST include a CRC field". */
    memset(trailer, 0, pad + MPA_CRC_LEN);
    /* RFC 5044 4.4/1,9,10: over all before it. */
    if (framing->crc)
        put_le32(trailer + pad, crc32c_final(crc32c_update(crc_state, trailer, pad)));
    return pad + MPA_CRC_LEN;
}
