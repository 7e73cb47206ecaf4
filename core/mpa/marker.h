/*
 * Where markers stand: RFC 5044 section 4.3. What receiving (fpdu.c) and sending (marker.c) share.
 */
#ifndef SW_MPA_MARKER_H
#define SW_MPA_MARKER_H

#include <stddef.h>
#include <stdint.h>

#include "core/mpa/fpdu.h"

/*
 * Octets from pos to the first marker at or behind it; 0: it stands at pos.
 *
 * RFC 5044 4.3/2,7: "Markers are inserted such that the first octet of the Marker is at octet sequence
 * number SeqNum if the remainder of (SeqNum - SeqStart) mod 512 is zero. Note that SeqNum can wrap."
 */
static inline size_t mpa_marker_first(uint64_t pos)
{
    return (size_t)(-pos % MPA_MARKER_EVERY);
}

#endif
