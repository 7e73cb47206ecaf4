/*
 * What the files of the negotiation share. See negotiate.h.
 */
#ifndef SW_NEGOTIATE_PARTS_H
#define SW_NEGOTIATE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "core/negotiate/negotiate.h"

/* ---- negotiate_mpa.c ---- */

/* Goes to this state for this reason; only MPA's keeps a deadline. */
void negotiate_move(struct negotiate *n, enum negotiate_state to, unsigned reason);
/* The connection cannot go on as it is: the initiator connects again, the responder closes. */
void negotiate_spoil(struct negotiate *n, unsigned reason);
/* The same for an error of MPA's startup, of which the peer is told where that may be. */
void negotiate_spoil_mpa(struct negotiate *n);
/* 0, or why MPA refuses the settings: -errno. */
int negotiate_mpa_init(struct negotiate *n) SW_MUST;
/* From the beginning. */
void negotiate_mpa_restart(struct negotiate *n);
/* The frames that follow the answer to the Hello. */
void negotiate_mpa_begin(struct negotiate *n, uint64_t now_ns);
/* The peer's private data is ours, with values that make sense. They are in n->peer then. */
bool negotiate_params_ok(struct negotiate *n);
/* The Request is there. 0: the Reply that accepts it is ready; else it is to be rejected. */
int negotiate_mpa_accept(struct negotiate *n) SW_MUST;
/* The same or the rejection, unless a device has to come up first. */
void negotiate_mpa_decide(struct negotiate *n);
/* Follows what MPA's startup has come to. */
void negotiate_mpa_settle(struct negotiate *n);
/* The Reply was part of the HACK, and nothing has come since. */
bool negotiate_replied_early(const struct negotiate *n);
/* As negotiate_in, in NEGOTIATE_MPA. */
size_t negotiate_mpa_in(struct negotiate *n, const uint8_t *buf, size_t len);

/* ---- negotiate.c ---- */

/* Is this our initiator's HWDR? As hello_decode. */
ssize_t negotiate_find_withdrawal(const struct negotiate *n, const uint8_t *buf, size_t len, bool *switches_later);

#endif
