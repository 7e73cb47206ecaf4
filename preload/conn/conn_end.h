/*
 * The end of what a connection sends: shutdown(2), close(2), exit.
 */
#ifndef SW_PRELOAD_CONN_END_H
#define SW_PRELOAD_CONN_END_H

#include "preload/conn/conn.h"

/* What is left to send is for this process to send, though others have the connection: one of its calls left it. */
bool conn_tail_is_mine(const struct conn *c);
/* shutdown(2) of an upgraded connection. */
int conn_shutdown(struct sock *s, int fd, int how);
/* SO_LINGER in seconds, -1: off. s: fd's, NULL: the kernel has to be asked. */
int conn_linger_s(const struct sock *s, int fd);
/* The same as the time that a close waits: linger_s is above 0. */
static inline uint32_t conn_linger_ms(int linger_s)
{
    return linger_s < 1000000 ? (uint32_t)linger_s * 1000u : 1000000000u;
}
/* The close of fd will be a reset, so that the peer does not take what has come for everything. */
void conn_reset_at_close(int fd);
/*
 * tx is held. 0; -EAGAIN: what is queued goes on by itself, TCP's FIN follows it; or what the kernel's shutdown said.
 */
int conn_shut_wr(struct conn *c, int fd) SW_MUST;
/* Has the program shut down this direction (SHUT_RD, SHUT_WR), with the startup still going on? */
static inline bool conn_shuts_later(const struct conn *c, int how)
{
    return SW_UNLIKELY(atomic_load(&c->startup.shut_later) != 0) && (atomic_load(&c->startup.shut_later) >> how & 1);
}
/*
 * All that is to be sent is the answer to a Read that was the RTR. The peer's library does not wait for it, and a peer
 * that has closed, or has shut down both ways, would answer it by a reset, which destroys what it has still under way
 * to us: so it goes with the program's first bytes, if any.
 */
static inline bool conn_only_answers(const struct conn *c)
{
    return iwarp_answers_rtr(&c->ep);
}
/*
 * All that is to be sent is the HSWI. It goes with the program's first bytes, if any: a peer that has closed would
 * answer it by a reset, which destroys what is under way. (But before a reset of the program's, so that the peer takes
 * that for one.)
 */
static inline bool conn_only_leads(const struct conn *c)
{
    return iwarp_out_only_lead(&c->ep);
}
/*
 * An upgraded connection whose answer waits for the program's first bytes (neg.deferred): is it still to be said?
 * Without the turns a hint.
 */
static inline bool conn_is_unsaid(const struct conn *c)
{
    return c->neg.deferred && conn_state(c) == CONN_UPGRADED && conn_only_leads(c);
}
/* The program resets the connection. */
void conn_lead_out(struct conn *c, int fd);
/*
 * The program closes or exits: what is queued goes out without it, at once where the transport can (it then owns a
 * duplicate of fd), else within linger_ms. tx held.
 */
void conn_tx_finish(struct sock *s, int fd, uint32_t linger_ms);
/* Sends what is queued, and waits linger_ms at most. tx held. Returns as conn_tx_flush. */
int conn_tx_settle(struct conn *c, int fd, uint32_t linger_ms) SW_MUST;
/* Lets go of connections that were finished that way. wait_ms > 0: waits for them, for that long at most. */
void conn_tx_finished(uint32_t wait_ms);
/*
 * The same, and the program ends, or becomes another one: what is not sent by then never is. Its connections are reset
 * when they are closed, so that no peer takes what came for all.
 */
void conn_tx_give_up(uint32_t wait_ms);
/* In the child of a fork: its parent's other threads are not there to give their locks back. */
void conn_tx_after_fork(void);

#endif
