/*
 * FPDU framing without markers, RFC 5044 sections 4.1, 4.4 and 4.5: both directions of one format.
 *
 * Receive path: transport -> [mpa] -> ddp -> rdmap -> stream. This is the first place where
 * received octets are looked at; what leaves it is one ULPDU (a DDP segment) whose CRC was good.
 */
#include "core/mpa/fpdu.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"

size_t mpa_mulpdu(size_t emss)
{
    size_t overhead = MPA_HDR_LEN + MPA_CRC_LEN + emss % 4;
    if (emss < MPA_MULPDU_MIN + overhead)
        return MPA_MULPDU_MIN;
    return emss - overhead > MPA_MULPDU_MAX ? MPA_MULPDU_MAX : emss - overhead;
}

ssize_t mpa_fpdu_decode(const struct mpa_framing *framing, uint8_t *buf, size_t len,
                        struct mpa_fpdu *out, size_t *need)
{
    if (framing->markers)
        return -ENOTSUP;
    if (len < MPA_HDR_LEN) {
        *need = MPA_FPDU_MIN;
        return -EAGAIN;
    }
    size_t ulpdu_len = get_be16(buf);
    size_t total = mpa_fpdu_len(ulpdu_len);
    if (len < total) {
        *need = total;
        return -EAGAIN;
    }
    if (framing->crc) {
        uint32_t crc = crc32c_final(crc32c_update(CRC32C_INIT, buf, total - MPA_CRC_LEN));
        if (crc != get_le32(buf + total - MPA_CRC_LEN))
            return -EBADMSG;
    }
    out->ulpdu = buf + MPA_HDR_LEN;
    out->ulpdu_len = ulpdu_len;
    return (ssize_t)total;
}

uint32_t mpa_fpdu_begin(uint8_t *hdr, size_t ulpdu_len)
{
    SW_CHECK(ulpdu_len <= MPA_ULPDU_MAX, "ULPDU of %zu octets", ulpdu_len);
    put_be16(hdr, (uint16_t)ulpdu_len);
    return crc32c_update(CRC32C_INIT, hdr, MPA_HDR_LEN);
}

size_t mpa_fpdu_end(const struct mpa_framing *framing, uint8_t *trailer, size_t ulpdu_len,
                    uint32_t crc_state)
{
    SW_CHECK(!framing->markers, "markers are not implemented");
    size_t pad = mpa_pad_len(ulpdu_len);
    memset(trailer, 0, pad + MPA_CRC_LEN);
    if (framing->crc)
        put_le32(trailer + pad, crc32c_final(crc32c_update(crc_state, trailer, pad)));
    return pad + MPA_CRC_LEN;
}
