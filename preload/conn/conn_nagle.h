/*
 * TCP_CORK and TCP_NODELAY of an active connection.
 */
#ifndef SW_PRELOAD_CONN_NAGLE_H
#define SW_PRELOAD_CONN_NAGLE_H

#include "preload/conn/conn.h"

/* The program's setsockopt of TCP_CORK and TCP_NODELAY. 1: the kernel's to do; 0: done. Takes tx. */
int conn_set_cork(struct sock *s, int fd, bool on) SW_MUST;
int conn_set_nodelay(struct sock *s, int fd, bool on) SW_MUST;
/* The kernel's value has, or may have, changed. Any thread. */
void conn_nodelay_changed(struct conn *c);
/* The kernel has TCP_NODELAY set, though the program has cleared it. Any thread. */
static inline bool conn_nodelay_lent(const struct conn *c)
{
    return c->tx.nodelay_lent || atomic_load(&c->tx.nodelay_owed) > 0;
}
/* Do bytes leave at once: TCP_NODELAY and no TCP_CORK? tx held. */
bool conn_nodelay(struct conn *c, int fd);
/*
 * Sets TCP_NODELAY, unless it is set, until the program's first bytes are out. tx held, or no other thread knows c yet.
 */
void conn_nodelay_lend(struct conn *c, int fd);
/* Gives TCP_NODELAY the program's value again. tx held. */
void conn_nodelay_back(struct conn *c, int fd);
/* The flags for a send of queued bytes: MSG_MORE with TCP_CORK set. tx held. */
int conn_send_flags(struct conn *c, int fd, int flags);

#endif
