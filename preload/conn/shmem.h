/*
 * Memory that a process shares with its children, and that a program they execute can map again: one memfd, kept open under
 * a high number, mapped at addresses that are likely to be free in every program. Pointers into it mean the same in all
 * processes.
 *
 * Where that cannot be had (no memfd, a limit on the size of files, the descriptor closed by the program), it is
 * anonymous memory shared by fork only.
 *
 * Any thread. Nothing here waits.
 */
#ifndef SW_PRELOAD_ARENA_H
#define SW_PRELOAD_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"

/* len octets of zeroes on page boundaries, shared with children made from now on. NULL: none to be had. */
void *shmem_map(size_t len) SW_MUST;
/* This process is done with them; `all`: everybody is, and what they held is given back. */
void shmem_unmap(void *p, size_t len, bool all);

/* Gives back what another process's pieces hold: nobody uses them any more. */
void shmem_discard(void *p, size_t len);

/* Is it from where this process takes its new pieces? */
bool shmem_is_own(const void *p);
/* The descriptor by which p's memory can be mapped by another program, or -1. It stays the arena's. */
int shmem_fd(const void *p);
/*
 * Maps [p, p + len) of another program's arena at the same place. fd becomes the arena's (it may be one that was given
 * before). -EINVAL: fd is no arena of a library like this one; -EEXIST: the place is taken; -ENOMEM.
 */
int shmem_attach(int fd, void *p, size_t len) SW_MUST;
/* Another program's arena, from which something will be mapped: our own, if there is none yet, keeps out of its range. */
void shmem_learn(int fd);

/* The arenas stand still while the process is copied; in the parent, and in the child, afterwards. */
void shmem_before_fork(void);
void shmem_after_fork(bool child);

#endif
