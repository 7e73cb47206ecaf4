/*
 * The software endpoint at rest: what of it changes while it is used, as plain numbers and octets without a pointer.
 * Two endpoints with the same configuration, on one connection of which one at a time is used, hand it to each other:
 * the state that one of them has saved the other loads. What is loaded is believed in nothing: whatever it says, the
 * endpoint is one that a peer could have brought about, or it is not loaded.
 *
 * Each side by itself, with that side's lock.
 */
#ifndef SW_IWARP_IWARP_REST_H
#define SW_IWARP_IWARP_REST_H

#include "core/iwarp/iwarp.h"

struct iwarp_rest_rx {
    uint64_t pos; /* as in struct iwarp_ep */
    uint64_t msg_to, msg_len;
    uint64_t reads_done;
    uint64_t fpdus, sends, writes, reads, immediates, empty; /* statistics */
    uint32_t msn[RDMAP_QN_MAX];
    uint32_t msg_stag;
    uint32_t part; /* octets of an unfinished Send that are joined */
    uint32_t raw;  /* octets behind them that are not decoded */
    uint8_t in_message, msg_opcode;
    uint8_t full;   /* the first FPDU has come */
    uint8_t failed; /* nothing more is taken or sent */
    uint8_t zero[4];
};

struct iwarp_rest_tx {
    uint64_t pos;
    uint64_t fpdus, sends, writes, reads, immediates; /* statistics */
    uint32_t msn[RDMAP_QN_MAX];
    uint32_t queued;      /* octets of frames that are on their way */
    uint8_t rtr_answered; /* the Read that was the RTR */
    uint8_t zero[7];
};

/* What lies between members, or behind them, would be other memory of the one who saves. */
_Static_assert(sizeof(struct iwarp_rest_rx) == 10 * 8 + 6 * 4 + 8 && sizeof(struct iwarp_rest_tx) == 6 * 8 + 4 * 4 + 8,
               "no gaps");

/* What would be read by the ULP is its own to save. Copies r->part and r->raw octets to dst. False: no room. */
bool iwarp_rest_rx_save(const struct iwarp_ep *ep, struct iwarp_rest_rx *r, uint8_t *dst, size_t room) SW_MUST;
/*
 * octets: `ready` of the ULP's, then those of r, `len` in all. They are staged anew, the ULP's at cfg.in_buf: as one
 * event's data that is not released. False: it cannot be, and nothing has changed. (r is the caller's own copy.)
 */
bool iwarp_rest_rx_load(struct iwarp_ep *ep, const struct iwarp_rest_rx *r, const uint8_t *octets, size_t len,
                        size_t ready) SW_MUST;

/*
 * Copies r->queued octets to dst. False: no room, posted memory among it, cfg.lead, or a Read Response of which a part
 * is sent.
 */
bool iwarp_rest_tx_save(struct iwarp_ep *ep, struct iwarp_rest_tx *r, uint8_t *dst, size_t room) SW_MUST;
/* They will be sent first, as they are. False: it cannot be, and nothing has changed. */
bool iwarp_rest_tx_load(struct iwarp_ep *ep, const struct iwarp_rest_tx *r, const uint8_t *octets, size_t len) SW_MUST;

#endif
