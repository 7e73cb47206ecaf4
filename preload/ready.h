/*
 * Readiness of one descriptor as poll(2) would show it: the kernel's view of the TCP socket, filtered by ours.
 */
#ifndef SW_PRELOAD_READY_H
#define SW_PRELOAD_READY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdint.h>
#include <time.h>

#include "preload/sock.h"

/*
 * A thread that sleeps in poll, select or epoll_wait while others may use its descriptors. Belongs to the thread and not to
 * its call, which may be left by siglongjmp or pthread_cancel: the thread's next call, or its end, takes it back then.
 */
struct poller {
    int kick_fd; /* eventfd that wakes it, -1 */
    struct sock *sock;          /* with a reference; NULL: it waits on a set */
    _Atomic uint32_t *waiters;  /* where it is counted */
    uintptr_t frame;            /* the stack of its call */
    bool spare;                 /* of the thread's own few */
    struct poller *mine;        /* the thread's, in use or free */
    struct poller *next, **pprev; /* the sock's */
};

/*
 * What poll would report on s for `want` (POLLIN, POLLOUT …), given what the kernel reports now (`kernel`, 0 if not asked
 * yet). *ask: the events to wait for in the kernel if the answer is 0. Takes turns briefly; does not wait.
 */
short ready_now(struct sock *s, int fd, short want, short kernel, short *ask);

/* A read left something behind, or the end was seen: those who wait for s in poll, select or epoll must look again. */
void ready_left_over(struct sock *s);

/*
 * After ready_now outside epoll: what came in by it the kernel has told this thread alone. Epoll sets and other threads in
 * poll look again.
 */
void ready_arrived(struct sock *s);
/* The same from epoll, which has seen to the sets itself. */
void ready_told(struct sock *s);

/*
 * A program's timeout in ns, -1: for ever (also NULL, and what no clock will reach). False: it is
 * none, the kernel says so.
 */
bool ready_timeout(const struct timespec *ts, int64_t *ns);
/* Can its signal mask be read? (NULL is no mask.) */
bool ready_mask(const sigset_t *mask);

/*
 * Registers this thread with s, whose reference goes over; kick_fd -1 (single thread) only counts. NULL: no memory, the
 * reference is still the caller's.
 */
struct poller *ready_wait_begin(struct sock *s, int kick_fd);
/* Counts it in *waiters, of what is never unmapped. NULL: no memory. */
struct poller *ready_count_begin(_Atomic uint32_t *waiters);
/* Drops the reference. p may be NULL. */
void ready_wait_end(struct poller *p);
/* At the beginning of a call that waits: takes back what calls that were left have registered. */
void ready_call_begin(void);
/* This thread's eventfd, made at first use; -1 in a single-threaded process or on failure. */
int ready_kick_fd(void);
/* Does this process have more than one thread? */
bool ready_threads(void);
void ready_kick_drain(int kick_fd);
void ready_after_fork(void);
/* The thread ends, or is cancelled: what it has registered is taken back. */
void ready_thread_left(void);

#endif
