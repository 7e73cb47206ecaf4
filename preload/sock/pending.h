/*
 * What is under way in this process beside the program's calls: startups, and tails of upgraded connections. There is
 * no helper thread: a thread that waits in one of our calls also drives these (wait.h), so that both ends of a
 * connection finish even if one thread has both. The hooks (hooks.h) know what an entry waits for and what its step is.
 */
#ifndef SW_PRELOAD_PENDING_H
#define SW_PRELOAD_PENDING_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "preload/sock/sock.h"

/* s is pending from now on / no longer. Any thread. */
void pending_add(struct sock *s);
void pending_remove(struct sock *s);
/*
 * s's last descriptor is closed: it leaves the list for good, even if a thread that still works on it would add it
 * again.
 */
void pending_leave(struct sock *s);
/* A wait in a set begins: from now on other waits leave out silent connections that a set watches. Any thread. */
void pending_watched(void);

/* Is there an entry? The second: one besides self (may be NULL), and the call is the program's, not a library's. */
bool pending_any(void);
bool pending_others(const struct sock *self);
/* How many connections waits have looked at so far, for the log. */
uint64_t pending_looked(void);

/* For wait.c: writes at most max entries, without self, to fds and socks, with references. Returns their number. */
unsigned pending_hold(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self);
/* The wait for them is over; their references stay. */
void pending_let_go(struct sock **socks, unsigned n);
/*
 * Another thread works on s and will take the bytes that have come: waits leave s out for a moment. They would find it
 * ready again and again, on the processor that the other thread needs. Any thread; takes the list's lock.
 */
void pending_put_off(struct sock *s);
/*
 * The end of that moment (CLOCK_MONOTONIC, ns): a wait that has left an entry out sleeps no longer. 0: none is put off.
 */
uint64_t pending_put_off_until(void);

/* A deadline: passed as soon as a thread that looked has found nothing and is about to sleep. */
#define PENDING_AT_REST 2u

/* Steps all entries whose deadline has passed. rest: nothing was found, and this thread is about to sleep. */
void pending_step_due(bool rest);
/* Has this deadline, 0: none, passed? now: CLOCK_MONOTONIC, ns. */
static inline bool pending_is_due(uint64_t at_ns, uint64_t now_ns, bool rest)
{
    return at_ns != 0 && at_ns <= now_ns && (rest || at_ns != PENDING_AT_REST);
}
/* The earliest deadline of an entry, or 0. */
uint64_t pending_deadline(void);

void pending_before_fork(void);
void pending_after_fork(bool child);

#endif
