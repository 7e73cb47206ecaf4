/*
 * Waiting inside the program's calls. A thread that waits for one thing sees to all that is pending in the process
 * (pending.h).
 */
#ifndef SW_PRELOAD_WAIT_H
#define SW_PRELOAD_WAIT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/base/must.h"
#include "preload/process/proc.h"
#include "preload/sock/sock.h"

/*
 * Waits like poll(2) for events on fd (-1, it was closed meanwhile: -EBADF) and drives the others meanwhile.
 * deadline_ns (CLOCK_MONOTONIC) 0: none. Returns revents (> 0), 0 at the deadline, or -EINTR after a signal handler:
 * with a deadline after any, without after one that does not restart. self's own negotiation deadline also ends the
 * wait (returns 0): the caller steps it then.
 */
int wait_for(int fd, short events, uint64_t deadline_ns, struct sock *self) SW_MUST;

/* The same, and for input on fd2; either may be -1. */
int wait_for_both(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self) SW_MUST;

/*
 * From before it looks at c until its call is over, a thread that may wait in wait_for for c says so: when another
 * thread changes it meanwhile (wait_tell), that wait returns 0. wait_unwatch gets what wait_watch returned.
 * Async-signal-safe.
 */
const struct conn *wait_watch(const struct conn *c) SW_MUST;
void wait_unwatch(const struct conn *before);
/* shared: another process may have it. */
void wait_tell(const struct conn *c, bool shared);

/* A thread's first wait in a process with several, and its end: others wake it by this eventfd. */
void wait_thread_begin(int kick_fd);
void wait_thread_end(void);

/* For poll and select: the descriptors of the others to wait for. Returns how many were put into fds (at most max). */
unsigned wait_fill(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self);
/*
 * ppoll on the program's descriptors and those n others at the end of fds, which are let go of if the thread is
 * cancelled meanwhile. Otherwise wait_filled is to be called next. It may be over sooner than the timeout, with 0.
 * errno.
 */
int wait_ppoll(struct pollfd *fds, nfds_t all, struct sock **socks, unsigned n, const struct timespec *timeout,
               const sigset_t *mask);
/* Steps those whose revents are set, or whose time has come, and lets go of them. */
void wait_filled(struct pollfd *fds, struct sock **socks, unsigned n);
/* The deadline of a call on fd with SO_RCVTIMEO or SO_SNDTIMEO (which), 0: none. */
uint64_t wait_call_deadline(int fd, int which);

/* What is left until then, as turn_take and turn_event_wait want it: 0 is for ever, and a moment that it is over. */
static inline uint64_t wait_left(uint64_t deadline_ns)
{
    uint64_t now = deadline_ns != 0 ? proc_now_ns() : 0;
    return deadline_ns == 0 || deadline_ns > now ? deadline_ns - now : 1;
}

/* After EINTR from a wait that the kernel never restarts: would a blocking socket call have been restarted? */
bool wait_restarts(void);

/*
 * Beside what a wait for fd has told. An error alone, of a connection that goes on, mostly is one of the error queue,
 * which stays there until the program reads it: so this sleeps for a moment, and the caller's loop does not keep a
 * processor busy. 0, -EINTR.
 */
int wait_pause(int fd, short revents);

/* For pending.c: this thread waits with others' descriptors in its hand, or no longer; wakes the threads that do. */
void wait_holds(bool some);
void wait_kick_holders(void);

void wait_before_fork(void);
void wait_after_fork(void);
void wait_after_fork_child(void);

#endif
