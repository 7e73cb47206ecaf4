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

/* Maps len bytes of zeroes on page boundaries, shared with children made from now on. NULL: no memory. */
void *shmem_map(size_t len) SW_MUST;
/* Unmaps them here; `all`: no other process uses them, and their memory is given back. */
void shmem_unmap(void *p, size_t len, bool all);

/* Gives back the memory of another process's pieces, which no process uses any more. */
void shmem_discard(void *p, size_t len);

/* Is p in the arena from which this process takes new pieces? */
bool shmem_is_own(const void *p);
/* The descriptor by which another program can map p's memory, or -1. It stays the arena's. */
int shmem_fd(const void *p);
/*
 * Maps [p, p + len) of another program's arena at the same place. fd becomes the arena's (it may be one that was given
 * before). -EINVAL: fd is no arena of a library like this one; -EEXIST: the place is taken; -ENOMEM.
 */
int shmem_attach(int fd, void *p, size_t len) SW_MUST;
/* Another program's arena will be mapped: our own, if there is none yet, will keep out of its range. */
void shmem_learn(int fd);

/*
 * Parting: a process that gives up rights keeps what it holds alone, and can reach nothing else afterwards. Its other
 * threads stand still, and no signal handler runs, from shmem_part_begin to shmem_part_end. Not async-signal-safe. shmem_is_shared:
 * may other processes have memory that is mapped here, or this one memory that others map?
 */
bool shmem_is_shared(void);
/* Begins, with a new file for each arena. -errno: it fails, and nothing has changed. */
int shmem_part_begin(void) SW_MUST;
/* Zeroed memory that will replace [p, p + len), which shmem_map or shmem_attach gave. NULL: no memory. */
void *shmem_part_anew(void *p, size_t len) SW_MUST;
/* Copies pages of len bytes that were ever touched. The target was given by shmem_part_anew. */
void shmem_part_copy(void *to, const void *from, size_t len);
/* The piece was replaced: gives the old memory back, which the other processes that have it need not keep. */
void shmem_part_drop(void *p, size_t len);
/* Ends the parting: unmaps and closes all of the arenas here, and puts the new memory in their place. */
void shmem_part_end(void);
/* Or gives the parting up: nothing has changed. */
void shmem_part_undo(void);

/* Around a fork: the arenas do not change while the process is copied. The second in the parent and in the child. */
void shmem_before_fork(void);
void shmem_after_fork(bool child);

#endif
