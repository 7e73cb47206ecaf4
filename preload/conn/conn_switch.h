/*
 * The late switch, receiving: see conn_switch.c. The receive turn is held.
 */
#ifndef SW_PRELOAD_CONN_SWITCH_H
#define SW_PRELOAD_CONN_SWITCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;

/* The responder has answered: begins, with the bytes that were collected behind the HWDR. Both turns held. */
void conn_switch_begin(struct conn *c);
/* Where received bytes go, and the room there. */
size_t conn_switch_space(struct conn *c, uint8_t **p);
/* n bytes were put there. Some may be held back (rx.held_len), or it was the last of the streaming mode (rx.mode). */
void conn_switch_took(struct conn *c, size_t n);
/* Nothing comes behind the held bytes: they are the program's. */
void conn_switch_give_held(struct conn *c);
/*
 * The kernel reports a reset. True: only our answer may have caused it, because the initiator was killed before its
 * library had read it. The program is shown an ordinary end then. Any thread.
 */
bool conn_switch_reset_is_ours(const struct conn *c, int fd);
/*
 * The program's send met a reset. True, once: it is such a reset. TCP takes a first send to a peer that has closed, and
 * the next call gets the error. tx held.
 */
bool conn_switch_takes_first(struct conn *c, int fd);

#endif
