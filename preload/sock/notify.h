/*
 * Tells the waiters of a connection that it has changed: threads in poll and select, epoll sets, in this process and in
 * others that have it. Declared in this low room for all that change one; what it means for the waiters is in the room
 * above (notify.c).
 *
 * Turns may be held. Any thread.
 */
#ifndef SW_PRELOAD_NOTIFY_H
#define SW_PRELOAD_NOTIFY_H

struct sock;

/* s has something to read, or its end, that the kernel will not tell of (conn.rx.arrived: it is new, an edge). */
void notify_readable(struct sock *s);
/* It became writable for the program without the kernel's knowing. */
void notify_writable(struct sock *s);
/* A send on it found no room, or not enough: edge-triggered sets wait for the next edge. */
void notify_blocked(struct sock *s);
/* Its state has changed: what is to be waited for in the kernel may have changed, too. */
void notify_changed(struct sock *s);

#endif
