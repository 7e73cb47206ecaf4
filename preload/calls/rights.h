/*
 * The act of giving up rights: set*id and their like, capset, chroot, namespaces, a filter, Landlock. By libc's
 * functions, and by syscall() (raw.c).
 */
#ifndef SW_PRELOAD_RIGHTS_H
#define SW_PRELOAD_RIGHTS_H

/*
 * Before the act. Afterwards this process cannot reach what other processes hold, and no thread of ours has the old
 * rights. Its other threads stand still for a moment. (sockwarp(7), SECURITY, has what is left.)
 */
void rights_before(void);
/* Only the memory's part of it, for a caller that has stopped the thread. */
void rights_part(void);
/* The kernel has answered. errno stays. */
void rights_after(void);

/*
 * A thread is about to have descriptors of its own (CLONE_FILES of unshare, CLOSE_RANGE_UNSHARE). There is one table of
 * ours, by number: from then on it must not matter what the thread's numbers are. rights_after follows.
 */
void rights_before_own_files(void);

/* One of these calls by syscall(). */
long rights_syscall(long number, const long a[6]);

#endif
