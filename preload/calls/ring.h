/*
 * io_urings of the program's own. What it submits by libc's syscall() or by liburing's library is looked through before
 * the kernel has it (ring_look.c): requests for files pass; an epoll_ctl, a close and a shutdown are made by ours; one
 * for a socket makes later connections plain.
 */
#ifndef SW_PRELOAD_RING_H
#define SW_PRELOAD_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

struct io_uring_sqe;
struct sock;

extern _Atomic bool ring_ever;     /* the program has had a ring */
extern _Atomic unsigned ring_live; /* rings of the program's that are known and open */
extern _Atomic bool ring_sockets;  /* one is used for sockets, or may be without our seeing it */
extern _Atomic bool ring_files;    /* one is used for files, or for epoll_ctl */

/*
 * Has the program had a ring? Then a listener has its names only when a call of ours waits for it, or accepts
 * (ring_awaits, ring_accepts).
 */
static inline bool ring_any(void)
{
    return SW_UNLIKELY(atomic_load_explicit(&ring_ever, memory_order_relaxed));
}

/* Does the program drive sockets by a ring, or may it? (As long as nothing was submitted to its rings it may.) */
static inline bool ring_drives_sockets(void)
{
    return ring_any() && (atomic_load(&ring_sockets) || (atomic_load(&ring_live) > 0 && !atomic_load(&ring_files)));
}

/* The arguments of io_uring_setup, io_uring_enter, io_uring_register as syscall() has them; makes the call. */
long ring_setup(const long a[6]);
long ring_enter(const long a[6]);
long ring_register(const long a[6]);
/* fd, open still, goes away: a ring's, perhaps. */
void ring_closed(int fd);
/* One above the highest descriptor of a known ring ever. */
int ring_fd_limit(void);
void ring_after_fork_child(void);

/* fd is waited for by a call of ours: enum names_later. */
void ring_awaits(int fd);
/* s, which is fd, is accepted from by a call of ours: likewise. */
void ring_accepts(struct sock *s, int fd);

/* ---- ring_look.c ---- */

/* The program has made a ring: names of listeners go, until a call of ours waits for these. */
void ring_look_made(void);
/* The program uses sockets by rings, or may: later connections stay plain. */
void ring_look_sockets(const char *how);
/* An entry that is about to be submitted. *behind: the one before it is linked to it; set for the next one. */
void ring_look(struct io_uring_sqe *sqe, bool *behind);
/* n descriptors that requests may then name by their place. False: one is upgraded, and the call must fail. */
bool ring_look_register(const int *fds, size_t n) SW_MUST;

#endif
