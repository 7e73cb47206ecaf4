/*
 * The initiator's side of a connection's beginning and its way back to plain TCP.
 */
#ifndef SW_PRELOAD_CONNECT_H
#define SW_PRELOAD_CONNECT_H

#include "core/base/must.h"
#include "preload/conn.h"

/* TCP is up: the Hello is next. Both turns held. 0 or -errno (then it has become plain). */
int connect_begin(struct sock *s, struct conn *c) SW_MUST;
/*
 * Fallback: leaves the connection that a Hello went over and connects the same socket again, plain. Blocks if the socket
 * does. The outcome for a blocking connect() is in c->so_error (0: connected).
 */
void connect_again(struct sock *s, struct conn *c, int fd);
/* The rule says require and it did not come to pass: ECONNREFUSED for the initiator, a reset for the responder. */
void connect_refuse(struct sock *s, struct conn *c, int fd, unsigned reason);
/*
 * Has the program been told that its connect() succeeded, by the call's return or by writability, though the negotiation
 * goes on? Then everything answers as on a connected socket.
 */
static inline bool connect_told(const struct conn *c)
{
    return c->in_backlog || atomic_load(&c->shut_later) != 0 || c->neg.late || conn_speaks_plain(c);
}
/*
 * listen.c: the program makes a call on a connection that accept() has left unused. What accept() would have seen through is seen
 * through now, by the process that uses it. No turn held.
 */
void listen_see_through(struct sock *s);
/* In the child of a fork. */
void connect_after_fork(void);

#endif
