/*
 * FPDU framing, RFC 5044 sections 3 to 5: ULPDU_Length, ULPDU, pad to a multiple of four, CRC32C.
 *
 *      0         2                       2+len        +pad        +4
 *      | length  | ULPDU                 | 0..3 zeros | CRC32C LE |
 *
 * If the receiver wants them, a marker of four octets stands at every 512th octet of the stream,
 * counted from the first FPDU's first octet, wherever that falls between those above.
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
 * RFC 5044 3/4,5: "The range of MULPDU values MUST be between 128 octets and 64768 octets,
 * inclusive."
 */
#define MPA_MULPDU_MIN 128u
#define MPA_MULPDU_MAX 64768u
#define MPA_ULPDU_MAX 65535u /* what the length field can say: accepted on receive */
#define MPA_FPDU_MAX (MPA_HDR_LEN + MPA_ULPDU_MAX + MPA_TRAILER_MAX)

#define MPA_MARKER_LEN 4u
/* RFC 5044 4.3/2: "at every 512th octet of the TCP octet stream thereafter". */
#define MPA_MARKER_EVERY 512u
#define MPA_MARKER_GAP (MPA_MARKER_EVERY - MPA_MARKER_LEN) /* other octets between two of them */
/* The most that len octets grow to when markers are put between them, and one before them. */
#define MPA_MARKED_MAX(len) ((len) + MPA_MARKER_LEN * ((len) / MPA_MARKER_GAP + 1u))
#define MPA_FPDU_MARKED_MAX MPA_MARKED_MAX(MPA_FPDU_MAX)

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
 * The largest ULPDU whose FPDU fits one segment of emss octets: EMSS - (6 + EMSS mod 4), with
 * markers EMSS - (6 + 4 * Ceiling(EMSS / 512) + EMSS mod 4), kept within
 * MPA_MULPDU_MIN..MPA_MULPDU_MAX.
 */
size_t mpa_mulpdu(size_t emss, bool markers);

/* What the startup negotiated for one direction. */
struct mpa_framing {
    bool crc;     /* check (receive) or generate (send); the field is always present */
    bool markers; /* a marker every 512 octets */
};

struct mpa_fpdu {
    uint8_t *ulpdu; /* in the buffer given to mpa_fpdu_decode */
    size_t ulpdu_len;
};

/*
 * In what follows pos is where the FPDU starts in the direction's octets, those of the first FPDU
 * (and its leading marker) being 0, 1, …; it is not looked at without markers. Only its remainder
 * by 512 matters, so that it may wrap.
 */

/* Octets of the whole FPDU with its markers. One that stands before the next FPDU is that one's. */
size_t mpa_fpdu_wire_len(const struct mpa_framing *framing, uint64_t pos, size_t ulpdu_len);

/* How long the FPDU is that buf begins with; 0 if its length field is not there yet. */
size_t mpa_fpdu_expect(const struct mpa_framing *framing, uint64_t pos, const uint8_t *buf, size_t len);

/*
 * What is there of such an FPDU's ULPDU, before it is decoded, and unchecked: n octets of it from
 * offset `from` on, without markers, are copied to dst, but none behind its end or buf's. Returns
 * how many. *ulpdu_len is what its length field says, 0 if that is not there yet. buf is not changed.
 */
size_t mpa_fpdu_look(const struct mpa_framing *framing, uint64_t pos, const uint8_t *buf, size_t len, size_t from,
                     uint8_t *dst, size_t n, size_t *ulpdu_len);

/*
 * Finds one FPDU at the start of buf. The whole FPDU must be there before anything is passed up
 * (ULPDU_Length decides completeness; segmentation of the input never does, RFC 5044 section 6),
 * and its CRC is checked first when framing->crc (section 4.4: an FPDU that fails is invalid;
 * section 8, code 2: nothing more is delivered on this half connection, which is the caller's to
 * keep). Without framing->crc the CRC field "MUST be considered valid regardless of its contents"
 * (section 7.1.1). Pad octets are covered by the CRC and otherwise ignored. Each marker has to
 * point to the FPDU's length field (section 8, code 3).
 *
 * With markers the ULPDU's octets are moved together in buf, towards its start: an FPDU with
 * markers can be decoded once only. Otherwise buf is not changed.
 *
 * Returns octets used (> 0) with *out filled in; -EAGAIN if more octets are needed, *need then
 * being how many buf must hold in all before another call can make progress (at least len + 1,
 * never more than the FPDU's length); -EBADMSG for a bad CRC; -EILSEQ for a marker that does not
 * agree with the length fields. *out is written only on success, *need only with -EAGAIN, buf is
 * changed only on success. Takes no lock, keeps no state; any thread, signal handlers too.
 */
ssize_t mpa_fpdu_decode(const struct mpa_framing *framing, uint64_t pos, uint8_t *buf, size_t len, struct mpa_fpdu *out,
                        size_t *need) SW_MUST;

/* ---- sending without markers: the parts may lie anywhere ---- */

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
size_t mpa_fpdu_end(const struct mpa_framing *framing, uint8_t *trailer, size_t ulpdu_len, uint32_t crc_state);

/* ---- sending with markers: the parts are copied ---- */

/* An FPDU that is being put together. */
struct mpa_marked {
    bool crc_on;
    uint32_t crc;       /* state over all that was put out so far */
    uint32_t to_marker; /* octets until the next marker is due, 0: before the next octet */
    uint32_t since;     /* octets since the start of the length field, markers counted */
    uint32_t ulpdu_len;
};

/*
 * begin puts out the length field, put the ULPDU's octets (in all ulpdu_len of them), end the pad
 * and the CRC; each with the markers that are due before these octets. They return octets written,
 * for len octets at most MPA_MARKED_MAX(len), end at most MPA_TRAILER_MAX + MPA_MARKER_LEN, begin
 * at most MPA_HDR_LEN + MPA_MARKER_LEN. src and dst do not overlap.
 */
size_t mpa_marked_begin(struct mpa_marked *m, const struct mpa_framing *framing, uint64_t pos, uint8_t *dst,
                        size_t ulpdu_len);
size_t mpa_marked_put(struct mpa_marked *m, uint8_t *dst, const void *src, size_t len);
size_t mpa_marked_end(struct mpa_marked *m, uint8_t *dst);

#endif
