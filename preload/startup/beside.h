/*
 * A startup whose Hellos go beside the connection, by the file in which the two ends of one host meet (meet.h). The
 * frames are the same as on the connection (negotiate.h, LATE); the initiator asks before it connects and goes on in
 * streaming mode, and the responder answers within accept(), or never.
 */
#ifndef SW_PRELOAD_BESIDE_H
#define SW_PRELOAD_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"

struct conn;
struct sock;
struct sockaddr;

/*
 * The network on which the listener at peer looks for Hellos beside the connection, 0: it does not. To be read before its
 * name is asked for (local_ask): a listener that goes to another program ends its names first, so that none who finds the
 * name has read too late that it does not meet. s is fd.
 */
uint64_t beside_meets(const struct sock *s, int fd, const struct sockaddr *peer) SW_MUST;
/*
 * fd is about to be connected to a listener of this host that runs sockwarp; netns: beside_meets, not 0. Asks it. False:
 * it cannot be asked so. c is new, with its peer's address.
 */
bool beside_ask(struct conn *c, int fd, uint64_t netns) SW_MUST;
/* Has the client of c, which was accepted just now, asked beside it? Some system calls. */
bool beside_is_asked(const struct conn *c) SW_MUST;
/* It is connected. */
void beside_connected(struct conn *c, int fd);
/*
 * The call that goes on with the startup now waits in the kernel if nothing is decided: so its first step need not look
 * at the connection. Any thread.
 */
void beside_waits_next(struct conn *c);
/* One step, in PEEK or LATE. Both turns held. False: it would wait, for input. */
bool beside_step(struct conn *c, int fd);
/* An initiator that waits for the answer: is there none yet? Without the turns a hint. */
bool beside_is_idle(const struct conn *c) SW_MUST;
/* The initiator goes on plain, whatever the reason. True: it may; false: it was answered, a step upgrades it. Both turns held. */
bool beside_give_up(struct conn *c) SW_MUST;
/* c is over in this process, and no other has it. */
void beside_end(struct conn *c);
/*
 * The initiator's process leaves, or gives up rights, or the connection goes to another program: it is decided now. No
 * turn held.
 */
void beside_decide(struct sock *s);

#endif
