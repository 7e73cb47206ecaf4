/*
 * FPDU framing, RFC 5044 sections 3 to 5: ULPDU_Length, ULPDU, pad to a multiple of four, CRC32C.
 *
 *      0         2                       2+len        +pad        +4
 *      | length  | ULPDU                 | 0..3 zeros | CRC32C LE |
 *
 * Receive path: transport -> [mpa] -> ddp -> rdmap -> stream.
 */
#ifndef SW_MPA_FPDU_H
#define SW_MPA_FPDU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

#define MPA_HDR_LEN 2u /* the ULPDU_Length field */
#define MPA_CRC_LEN 4u
#define MPA_TRAILER_MAX 7u /* pad and CRC */
#define MPA_FPDU_MIN 8u    /* an empty ULPDU: length field, pad, CRC */
/*
 * RFC 5044 section 3: "The range of MULPDU values MUST be between 128 octets and 64768 octets,
 * inclusive."
 */
#define MPA_MULPDU_MIN 128u
#define MPA_MULPDU_MAX 64768u
#define MPA_ULPDU_MAX 65535u /* what the length field can say: accepted on receive */
#define MPA_FPDU_MAX (MPA_HDR_LEN + MPA_ULPDU_MAX + MPA_TRAILER_MAX)

static inline size_t mpa_pad_len(size_t ulpdu_len)
{
    return (4u - ((MPA_HDR_LEN + ulpdu_len) & 3u)) & 3u;
}

/* Octets of the whole FPDU without markers. */
static inline size_t mpa_fpdu_len(size_t ulpdu_len)
{
    return MPA_HDR_LEN + ulpdu_len + mpa_pad_len(ulpdu_len) + MPA_CRC_LEN;
}

/*
 * The largest ULPDU whose FPDU fits one segment of emss octets, without markers: RFC 5044 section
 * 4.5, EMSS - (6 + EMSS mod 4), kept within MPA_MULPDU_MIN..MPA_MULPDU_MAX.
 */
size_t mpa_mulpdu(size_t emss);

/* What the startup negotiated for one direction. */
struct mpa_framing {
    bool crc;     /* check (receive) or generate (send); the field is always present */
    bool markers; /* a marker every 512 octets; not implemented: must be false */
};

struct mpa_fpdu {
    uint8_t *ulpdu; /* in the buffer given to mpa_fpdu_decode */
    size_t ulpdu_len;
};

/*
 * Finds one FPDU at the start of buf. The whole FPDU must be there before anything is passed up
 * (ULPDU_Length decides completeness; segmentation of the input never does, RFC 5044 section 6),
 * and its CRC is checked first when framing->crc (section 4.4: an FPDU that fails is invalid;
 * section 8, code 2: nothing more is delivered on this half connection, which is the caller's to
 * keep). Without framing->crc the CRC field "MUST be considered valid regardless of its contents"
 * (section 7.1.1). Pad octets are covered by the CRC and otherwise ignored.
 *
 * buf is not changed; it is mutable so that the ULPDU may be, and so that markers could be taken
 * out in place.
 *
 * Returns octets used (> 0) with *out filled in; -EAGAIN if more octets are needed, *need then
 * being how many buf must hold in all before another call can make progress (at least len + 1,
 * never more than the FPDU's length); -EBADMSG for a bad CRC; -ENOTSUP if framing->markers. *out is
 * written only on success, *need only with -EAGAIN. Takes no lock, keeps no state; any thread,
 * signal handlers too.
 */
ssize_t mpa_fpdu_decode(const struct mpa_framing *framing, uint8_t *buf, size_t len,
                        struct mpa_fpdu *out, size_t *need) SW_MUST;

/*
 * Writes ULPDU_Length (ulpdu_len <= MPA_ULPDU_MAX) at hdr (2 octets) and returns the CRC state over
 * it.
 */
uint32_t mpa_fpdu_begin(uint8_t *hdr, size_t ulpdu_len);

/*
 * Writes pad and CRC at trailer (room for MPA_TRAILER_MAX) for a ULPDU of ulpdu_len octets. With
 * framing->crc all of them have been run through crc32c_update on the state of mpa_fpdu_begin.
 * Without, crc_state is not looked at and the field, always present (RFC 5044 section 4.4), is
 * zero. Returns the trailer's length, 4..7.
 */
size_t mpa_fpdu_end(const struct mpa_framing *framing, uint8_t *trailer, size_t ulpdu_len,
                    uint32_t crc_state);

#endif
