/*
 * Driving negotiations. There is no helper thread: whoever waits in one of our calls also drives the process's other
 * connections that are still negotiating, so that two ends in one waiting thread or process come to an end.
 */
#ifndef SW_PRELOAD_DRIVE_H
#define SW_PRELOAD_DRIVE_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/base/must.h"
#include "preload/sock.h"

/* s is negotiating from now on / no longer. Any thread. */
void drive_add(struct sock *s);
void drive_remove(struct sock *s);
/* s's last descriptor goes: off the list for good, whatever a thread that still works on it finds. */
void drive_leave(struct sock *s);

/*
 * One non-blocking step of s's negotiation: sends, receives, decides, until it would wait. Both turns held.
 */
void drive_step(struct sock *s);
/* The same, for a call of the program's on s. */
void drive_step_called(struct sock *s);
void drive_step_last(struct sock *s); /* for drive_hand_on */
/*
 * The same, taking the turns: `brief` skips it if somebody else is at it, else only if he sleeps (a connect() of another
 * thread; or it is over, and he is in recv). 0, or -EBUSY / -EDEADLK if it was skipped.
 */
int drive_sock(struct sock *s, bool brief);
/* As drive_sock, not brief; but this is no call of the program's on s. */
int drive_unused(struct sock *s);
/*
 * The program makes a call on c (drive_sock says so, too): a device that its Hello asks for is this process' to offer. Else that is
 * held: the endpoint would be this process', and accept() may have been for a child. Without the turns a hint.
 */
void drive_use(struct conn *c);
bool drive_held(const struct conn *c);
/*
 * The program gives s to another process: a Hello that has come is declined, and after that this process looks for none. That is the
 * other's, if it runs sockwarp.
 */
int drive_hand_on(struct sock *s);
/*
 * drive_sock, brief, for a program that would send without waiting. On a connection that it was told is up though nobody has
 * accepted it yet, TCP would take its octets; so the Hello is withdrawn.
 */
int drive_hurry(struct sock *s);

/*
 * Beside what a wait for fd has told. An error alone, of a connection that goes on, mostly is one of the error queue, which stays
 * there until the program reads it: so this sleeps for a moment, and the caller's loop does not keep a processor busy. 0, -EINTR.
 */
int drive_pause(int fd, short revents);

/* Was s negotiating when this process was forked, and does the parent still have it? */
bool drive_is_parents(struct sock *s);

/* A set's wait begins: silent connections that a set watches are not for others to see to. Any thread. */
void drive_watched(void);
/* How many connections waits have looked at so far, for the log. */
uint64_t drive_looked(void);

/* Are there negotiating connections besides self (may be NULL)? */
bool drive_others(const struct sock *self);

/*
 * Waits like poll(2) for events on fd (-1, it was closed meanwhile: -EBADF) and drives the others meanwhile. deadline_ns (CLOCK_MONOTONIC) 0: none.
 * Returns revents (> 0), 0 at the deadline, or -EINTR after a signal handler: with a deadline after any, without after one
 * that does not restart.
 * self's own negotiation deadline also ends the wait (returns 0): the caller steps it then.
 */
int drive_wait(int fd, short events, uint64_t deadline_ns, struct sock *self) SW_MUST;

/* The same, and for input on fd2; either may be -1. */
int drive_wait_both(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self) SW_MUST;

/*
 * From before it looks at c until its call is over, a thread that may wait in drive_wait for c says so: when another thread
 * changes it meanwhile (drive_tell), that wait returns 0. drive_unwatch gets what drive_watch returned. Async-signal-safe.
 */
const struct conn *drive_watch(const struct conn *c) SW_MUST;
void drive_unwatch(const struct conn *before);
void drive_tell(const struct conn *c);

/* A thread's first wait in a process with several, and its end: others wake it by this eventfd. */
void drive_thread_begin(int kick_fd);
void drive_thread_end(void);

/* For poll and select: the descriptors of the others to wait for. Returns how many were put into fds (at most max). */
unsigned drive_fill(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self);
/*
 * ppoll on the program's descriptors and those n others at the end of fds, which are let go of if the thread is cancelled meanwhile.
 * Otherwise drive_filled is to be called next. errno.
 */
int drive_ppoll(struct pollfd *fds, nfds_t all, struct sock **socks, unsigned n, const struct timespec *timeout,
                const sigset_t *mask);
/* Steps those whose revents are set, or whose time has come, and lets go of them. */
void drive_filled(struct pollfd *fds, struct sock **socks, unsigned n);
/* Steps every negotiation whose time has come. */
void drive_due(void);
/* The earliest negotiation deadline of this process, or 0. */
uint64_t drive_deadline(void);

/* The deadline of a call on fd with SO_RCVTIMEO or SO_SNDTIMEO (which), 0: none. */
uint64_t drive_call_deadline(int fd, int which);

/* After EINTR from a wait that the kernel never restarts: would a blocking socket call have been restarted? */
bool drive_restarts(void);

void drive_before_fork(void);
void drive_after_fork(void);
void drive_after_fork_child(void);

#endif
