/*
 * A byte stream at rest, with the software endpoint below it: core/iwarp/iwarp_rest.h says what that is for. Only where
 * TCP does the flow control (stream.llp).
 */
#ifndef SW_STREAM_REST_H
#define SW_STREAM_REST_H

#include "core/iwarp/iwarp_rest.h"
#include "core/stream/stream.h"

struct rest_rx {
    struct iwarp_rest_rx ep;
    uint64_t off, ring_to, total, placed; /* as in struct stream */
    uint64_t urgent_at, urgent_taken;
    uint32_t ready; /* octets that the program may read; they come first */
    uint8_t end, urgent, urgent_octet, urgent_inline;
};
_Static_assert(sizeof(struct rest_rx) == sizeof(struct iwarp_rest_rx) + 6 * 8 + 8, "no gaps");

struct rest_tx {
    struct iwarp_rest_tx ep;
    uint64_t off, ring_to, total;
    uint8_t notify_owed, zero[7];
};
_Static_assert(sizeof(struct rest_tx) == sizeof(struct iwarp_rest_tx) + 3 * 8 + 8, "no gaps");

/* As in iwarp_rest.h. *len octets were copied. */
bool rest_rx_save(const struct stream *st, const struct iwarp_ep *ep, struct rest_rx *r, uint8_t *dst, size_t room,
                  size_t *len) SW_MUST;
bool rest_rx_load(struct stream *st, struct iwarp_ep *ep, const struct rest_rx *r, const uint8_t *octets,
                  size_t len) SW_MUST;
bool rest_tx_save(const struct stream *st, struct iwarp_ep *ep, struct rest_tx *r, uint8_t *dst, size_t room,
                  size_t *len) SW_MUST;
bool rest_tx_load(struct stream *st, struct iwarp_ep *ep, const struct rest_tx *r, const uint8_t *octets,
                  size_t len) SW_MUST;

#endif
