/*
 * SO_PEEK_OFF on an active connection.
 */
#ifndef SW_PRELOAD_CONN_PEEK_H
#define SW_PRELOAD_CONN_PEEK_H

#include "preload/conn/conn.h"

/* Without the program's SO_PEEK_OFF: from what is to be read next on. Beside MSG_PEEK, for conn_recv. */
#define CONN_PEEK_FIRST 0x00400000

/* A connection of a former program: finds out whether that has set the option. */
void conn_peek_found(int fd);
/*
 * Before the library looks and reads while nothing is decided: turns the kernel's offset off, and returns what it was.
 * Both turns held.
 */
int conn_peek_suspend(int fd);
void conn_peek_resume(struct sock *s, int at);
/* It is plain, and what is left to read is in the kernel. rx held. */
void conn_peek_give_back(struct conn *c, int fd);
/* The program's setsockopt and getsockopt on an active connection. set: 0 or -errno. Take rx where they have to. */
int conn_peek_set(struct sock *s, int fd, int at) SW_MUST;
int conn_peek_get(struct sock *s, int fd);
/* n bytes were received, with these flags. rx held. */
void conn_peek_moved(struct conn *c, size_t n, int flags);
/* How many bytes a look with these flags passes over. */
static inline size_t conn_peek_at(const struct conn *c, int flags)
{
    int at = (flags & MSG_PEEK) && !(flags & CONN_PEEK_FIRST)
                 ? atomic_load_explicit(&c->rx.peek_off, memory_order_relaxed)
                 : 0;
    return at > 0 ? (size_t)at : 0;
}

#endif
