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
 * A duplicate that is only out of the way: not hidden, since the kernel closes it without our seeing it. -1 with errno.
 */
int hidden_dup(int fd);
/* Moves fd out of the program's way and hides it. Returns its new number; fd itself if that cannot be. */
int hidden_move(int fd);
/* Its number stands in *where and nowhere else: it may change until hidden_close. */
void hidden_own(int fd, _Atomic int *where);
/* The program takes this number. 0: it is free to; -EBUSY: it is that of one which cannot move. */
int hidden_yield(int fd) SW_MUST;
/* A library will close it, by a call that passes over hidden ones. */
void hidden_reveal(int fd);
/* Closes one that was moved. */
void hidden_close(int fd);

/* Is it one of these? (A number that was closed behind our back and is something else by now is not.) */
bool hidden_is(int fd);
/* The first hidden one in first..last, or -1. */
int hidden_next(unsigned first, unsigned last);

#endif
