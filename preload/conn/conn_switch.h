/*
 * The late switch, receiving: see conn_switch.c. The receive turn is held.
 */
#ifndef SW_PRELOAD_CONN_SWITCH_H
#define SW_PRELOAD_CONN_SWITCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;

/* The responder has answered; what was collected behind the HWDR is the beginning. Both turns held. */
void conn_switch_begin(struct conn *c);
/* Where received bytes go, and how many have room. */
size_t conn_switch_space(struct conn *c, uint8_t **p);
/* n bytes were put there. Some may be held back (rx.held_len), or it was the last of the streaming mode (rx.mode). */
void conn_switch_took(struct conn *c, size_t n);
/* Nothing comes behind what is held back. */
void conn_switch_give_held(struct conn *c);
/*
 * The kernel tells of a reset. True: it may have nothing to do with the programs, of which ours sees an ordinary end:
 * the initiator was killed before its library had read our answer. Any thread.
 */
bool conn_switch_reset_is_ours(const struct conn *c, int fd);
/*
 * The program's send met a reset. True, once: such a one, and to a peer that has closed TCP takes a first send, for
 * which the next call answers. tx held.
 */
bool conn_switch_takes_first(struct conn *c, int fd);

#endif
