/*
 * Threads that wait in poll, select or epoll_wait while others may use their descriptors.
 */
#ifndef SW_PRELOAD_POLLER_H
#define SW_PRELOAD_POLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/sock/sock.h"

/*
 * A thread that sleeps in poll, select or epoll_wait while others may use its descriptors. Its memory belongs to the
 * thread and not to the call, which may be left by siglongjmp or pthread_cancel: then the thread's next call, or its
 * end, takes it back.
 */
struct poller {
    int kick_fd;                  /* eventfd that wakes it, -1 */
    struct sock *sock;            /* with a reference; NULL: it waits on a set */
    _Atomic uint32_t *waiters;    /* where it is counted */
    uintptr_t frame;              /* the stack of its call */
    bool spare;                   /* of the thread's own few */
    struct poller *mine;          /* the thread's, in use or free */
    struct poller *next, **pprev; /* the sock's */
};

/*
 * Registers this thread's call, whose frame poller_call_begin has told, with s and takes over the caller's reference.
 * kick_fd -1 (single thread): only counts it. NULL: no memory, and the caller keeps its reference.
 */
struct poller *poller_begin(struct sock *s, int kick_fd, uintptr_t frame);
/* Counts this thread in *waiters, which is never unmapped. NULL: no memory. */
struct poller *poller_count(_Atomic uint32_t *waiters, uintptr_t frame);
/* Drops the reference. p may be NULL. */
void poller_end(struct poller *p);
/* At the beginning of a call that waits: takes back the registrations of calls that were left. Returns its frame. */
uintptr_t poller_call_begin(void);
/* This thread's eventfd, made at first use; -1 in a single-threaded process or on failure. */
int poller_kick_fd(void);
/* Does this process have more than one thread? */
bool poller_threads(void);
/* Wakes the thread whose eventfd this is (-1: there is none). The second empties it. Async-signal-safe. */
void poller_kick(int kick_fd);
void poller_kick_drain(int kick_fd);
void poller_after_fork(void);
/* The thread ends, or is cancelled: takes back its registrations. */
void poller_thread_left(void);
/* Threads that wait for s in poll or select look again. No lock held. */
void poller_wake(struct sock *s);

#endif
