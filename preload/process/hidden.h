/*
 * Descriptors of ours, which the program does not know: rings, eventfds, names, the arena. They have high numbers, are
 * closed on exec, and what the program does to "all" descriptors (a daemon that closes everything, a child before its
 * exec) passes over them and succeeds. One whose number the program takes by dup2 moves to another.
 *
 * Any thread; async-signal-safe.
 */
#ifndef SW_PRELOAD_HIDDEN_H
#define SW_PRELOAD_HIDDEN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/must.h"

/*
 * A duplicate with a high number that is not hidden, because the kernel will close it without a call of ours. -1 with
 * errno.
 */
int hidden_dup(int fd);
/* Moves fd out of the program's way and hides it. Returns its new number; fd itself if that cannot be. */
int hidden_move(int fd);
/* The only copy of its number is in *where: hidden_yield may change it until hidden_close. */
void hidden_own(int fd, _Atomic int *where);
/* The program takes this number. 0: it may; -EBUSY: a descriptor that cannot move has it. */
int hidden_yield(int fd) SW_MUST;
/* Makes it visible again: a library will close it, by a call that would pass over hidden descriptors. */
void hidden_reveal(int fd);
/* Closes one that was moved. */
void hidden_close(int fd);

/* Is it hidden? (Not if it was closed by a call that we did not see, and is another file by now.) */
bool hidden_is(int fd);
/* The first hidden one in first..last, or -1. */
int hidden_next(unsigned first, unsigned last);

#endif
