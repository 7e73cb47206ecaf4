/*
 * What is under way in this process beside the program's calls: startups, and tails of upgraded connections. There is
 * no helper thread: a thread that waits in one of our calls also drives these (wait.h), so that two ends in one waiting
 * thread or process both finish. What an entry waits for, and what its step is, the hooks say.
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
/* s's last descriptor goes: off the list for good, whatever a thread that still works on it finds. */
void pending_leave(struct sock *s);
/* A set's wait begins: silent connections that a set watches are not for others to see to. Any thread. */
void pending_watched(void);

/* Is any there? Besides self (may be NULL), and unless this call is a library's own? */
bool pending_any(void);
bool pending_others(const struct sock *self);
/* How many connections waits have looked at so far, for the log. */
uint64_t pending_looked(void);

/*
 * For wait.c: what is to be waited for, into fds and socks, at most max, with references; self is left out. Returns how
 * many.
 */
unsigned pending_hold(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self);
/* Those are not waited for any more; their references stay. */
void pending_let_go(struct sock **socks, unsigned n);
/*
 * Another thread is at s, and what has come on it is that one's to take: waits leave s out for a moment (they would
 * find it ready again and again, on the processor that the other thread needs). Any thread; takes the list's lock.
 */
void pending_put_off(struct sock *s);
/*
 * The end of that moment, to which a wait that was filled before sleeps at most; 0: nothing is put off.
 * CLOCK_MONOTONIC, ns.
 */
uint64_t pending_put_off_until(void);

/* Steps all whose time has come. */
void pending_step_due(void);
/* The earliest time of one, or 0. */
uint64_t pending_deadline(void);

void pending_before_fork(void);
void pending_after_fork(bool child);

#endif
