/*
 * Waiting inside the program's calls. A thread that waits also drives all that is pending in the process (pending.h).
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
#include "preload/process/signals.h"
#include "preload/sock/sock.h"

/*
 * Waits like poll(2) for events on fd, and drives the pending entries meanwhile. deadline_ns: CLOCK_MONOTONIC, 0: none.
 * Returns revents (> 0), 0 at the deadline, -EBADF if fd is -1 (it was closed meanwhile), or -EINTR after a signal
 * handler: with a deadline after any handler, without one after a handler that does not restart. self's own negotiation
 * deadline also ends the wait (returns 0): the caller steps it then.
 */
int wait_for(int fd, short events, uint64_t deadline_ns, struct sock *self) SW_MUST;

/* The same, and for input on fd2; either may be -1. */
int wait_for_both(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self) SW_MUST;

/*
 * A thread that may wait in wait_for for c calls wait_watch before it looks at c, and wait_unwatch at the end of its
 * call, with the value that wait_watch returned. If another thread changes c in between (wait_tell), the wait returns
 * 0. Async-signal-safe.
 */
const struct conn *wait_watch(const struct conn *c) SW_MUST;
void wait_unwatch(const struct conn *before);
/* shared: another process may have it. */
void wait_tell(const struct conn *c, bool shared);

/* At a thread's first wait in a process with several threads, and at its end: other threads wake it by this eventfd. */
void wait_thread_begin(int kick_fd);
void wait_thread_end(void);

/*
 * For poll and select: writes the descriptors of pending entries, without self, to fds. Returns their number (at most
 * max).
 */
unsigned wait_fill(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self);
/*
 * ppoll on the program's descriptors and the n pending ones at the end of fds. If the thread is cancelled meanwhile, it
 * releases those; otherwise the caller calls wait_filled next. May return 0 before the timeout. Sets errno.
 */
int wait_ppoll(struct pollfd *fds, nfds_t all, struct sock **socks, unsigned n, const struct timespec *timeout,
               const sigset_t *mask);
/* Steps the entries that have revents, or whose deadline has passed (rest: pending.h), and releases them all. */
void wait_filled(struct pollfd *fds, struct sock **socks, unsigned n, bool rest);
/* The deadline of a call on fd with SO_RCVTIMEO or SO_SNDTIMEO (which), 0: none. */
uint64_t wait_call_deadline(int fd, int which);

/* The time left, as turn_take and turn_event_wait want it: 0 is for ever, so a deadline that has passed gives 1 ns. */
static inline uint64_t wait_left(uint64_t deadline_ns)
{
    uint64_t now = deadline_ns != 0 ? proc_now_ns() : 0;
    return deadline_ns == 0 || deadline_ns > now ? deadline_ns - now : 1;
}

/* Has a handler run since, in a call on fd that waits, of those that end it? which: SO_RCVTIMEO, SO_SNDTIMEO: with one all do. */
bool wait_was_interrupted(struct signals_mark since, int fd, int which);

/*
 * To be called after a wait for fd that returned revents. If there is only an error, and the connection goes on, the
 * error queue mostly holds an entry, which stays until the program reads it. Then this sleeps for a moment, so that the
 * caller's loop does not keep a processor busy. 0, -EINTR.
 */
int wait_pause(int fd, short revents);

/*
 * For pending.c. wait_holds: this thread's wait has pending entries' descriptors, or no longer. The second wakes all
 * threads whose wait has some.
 */
void wait_holds(bool some);
void wait_kick_holders(void);

void wait_before_fork(void);
void wait_after_fork(void);
void wait_after_fork_child(void);

#endif
