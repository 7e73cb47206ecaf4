/*
 * Descriptors that the library keeps from one call to the next, because making them takes longer than using them: hidden,
 * this process's own (a child drops its parent's), and of its network namespace (none are kept once a thread has gone to
 * another one).
 */
#ifndef SW_PRELOAD_KEPT_H
#define SW_PRELOAD_KEPT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kept {
    _Atomic int *fd; /* n of them; 0: none */
    unsigned n;
    _Atomic int32_t lock; /* the process of the thread that has it, 0: free */
    pid_t pid;            /* whose the descriptors are */
};

/*
 * Takes k for the calls below. False: another thread has it, or this one, interrupted by a signal handler; or none are
 * kept any more. Never waits.
 */
bool kept_begin(struct kept *k);
void kept_end(struct kept *k);
/* Keeps fd (-1: nothing) in place i, instead of what was there. Returns its new number; -1: it could not be, and is closed. */
int kept_put(struct kept *k, unsigned i, int fd);
void kept_drop(struct kept *k, unsigned i);
/* A thread of this process goes to another network namespace: drops all. Any thread, not in a vfork child. */
void kept_leave_network(struct kept *k);
/* Did one ever? */
bool kept_has_left(void);

#endif
