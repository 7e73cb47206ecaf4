/*
 * The one FPDU of a connection whose startup an initiator has to end behind the Reply: a Terminate of the MPA layer
 * (RFC 6581 section 8). No state, no lock; any thread.
 */
#ifndef SW_IWARP_STARTUP_END_H
#define SW_IWARP_STARTUP_END_H

#include <stddef.h>
#include <stdint.h>

#include "core/ddp/segment.h"
#include "core/mpa/fpdu.h"
#include "core/rdmap/terminate.h"

#define STARTUP_END_MAX (MPA_MARKED_MAX(MPA_HDR_LEN + DDP_UNTAGGED_HDR_LEN + TERM_MAX + MPA_TRAILER_MAX))

/* code: TERM_MPA_LOCAL, TERM_MPA_IRD or TERM_MPA_RTR; buf has STARTUP_END_MAX octets. Returns how many it takes. */
size_t startup_end_put(const struct mpa_framing *tx, uint8_t code, uint8_t *buf);

#endif
