/*
 * Memory that a process shares with its children, and that a program they execute can map again: one memfd, kept open
 * under a high number, mapped at addresses that are likely to be free in every program. Pointers into it mean the same
 * in all processes.
 *
 * Where that cannot be had (no memfd, a limit on the size of files, the descriptor closed by the program), it is
 * anonymous memory shared by fork only.
 *
 * Any thread. Nothing here waits.
 */
#ifndef SW_PRELOAD_SHMEM_H
#define SW_PRELOAD_SHMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"

/* len bytes of zeroes on page boundaries, shared with children made from now on. NULL: none to be had. */
void *shmem_map(size_t len) SW_MUST;
/* This process is done with them; `all`: everybody is, and what they held is given back. */
void shmem_unmap(void *p, size_t len, bool all);

/* Gives back what another process's pieces hold: no process uses them any more. */
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
/*
 * Another program's arena, from which something will be mapped: our own, if there is none yet, keeps out of its range.
 */
void shmem_learn(int fd);

/*
 * ---- Parting ----
 *
 * A process that gives up rights keeps what it holds alone, and nothing else stays in its reach. It has one thread, and
 * no signal handler runs from shmem_part_begin to shmem_part_end. Not async-signal-safe.
 *
 * May others have what is mapped here, or this process what others map? False: there is nothing to part from.
 */
bool shmem_is_shared(void);
/* Begins with a file of its own for each arena. -errno: it cannot be, and all is as before. */
int shmem_part_begin(void) SW_MUST;
/* Zeroes that will take the place of [p, p + len), which shmem_map or shmem_attach gave. NULL: no memory. */
void *shmem_part_anew(void *p, size_t len) SW_MUST;
/* Copies pages of len bytes that were ever touched. The target was given by shmem_part_anew. */
void shmem_part_copy(void *to, const void *from, size_t len);
/* Its place was taken: the other processes, which have the old memory, need not keep what is there. */
void shmem_part_drop(void *p, size_t len);
/* Nothing of the arenas is mapped or open here any more, and what was given takes its place. */
void shmem_part_end(void);
/* Or it does not, and all is as before. */
void shmem_part_undo(void);

/* The arenas stand still while the process is copied; in the parent, and in the child, afterwards. */
void shmem_before_fork(void);
void shmem_after_fork(bool child);

#endif
