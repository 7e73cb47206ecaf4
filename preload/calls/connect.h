/*
 * The initiator's connect(2), and what its connections have in common with those that a listener accepts.
 */
#ifndef SW_PRELOAD_CONNECT_H
#define SW_PRELOAD_CONNECT_H

#include <sys/socket.h>
#include <sys/types.h>

#include "preload/conn/conn.h"

/*
 * Why a new connection stays plain whatever the peer says, or REASON_NONE. s: the socket, or the listener that has
 * accepted it; fd: the connection's. Any thread.
 */
unsigned connect_ruled_out(const struct sock *s, int fd, const struct policy_rule *rule) SW_MUST;

/*
 * sendmsg(2) with MSG_FASTOPEN and an address, on a socket that is not upgraded: the kernel connects it, and it stays plain
 * (REASON_FASTOPEN). -1 with errno ECONNREFUSED where a rule requires more. Any thread.
 */
ssize_t connect_fast(int fd, const struct msghdr *msg, int flags) SW_MUST;

/*
 * Has the program been told that its connect() succeeded, by the call's return or by writability, though the
 * negotiation goes on? Then everything answers as on a connected socket.
 */
static inline bool connect_told(const struct conn *c)
{
    return c->startup.in_backlog || c->neg.cfg.may_switch || atomic_load(&c->startup.shut_later) != 0 || c->neg.late ||
           conn_speaks_plain(c);
}

#endif
