/*
 * The act of giving up rights: set*id and their like, capset, chroot, namespaces, a filter, Landlock. By libc's
 * functions, and by syscall() (raw.c).
 */
#ifndef SW_PRELOAD_RIGHTS_H
#define SW_PRELOAD_RIGHTS_H

/*
 * Before it. What other processes hold is out of this one's reach afterwards, and a thread of ours that has the old
 * rights is gone. (Where a connection is held together with others they go on sharing all, as before: sockwarp(7),
 * SECURITY.)
 */
void rights_before(void);
/* What is out of reach afterwards, alone: for a caller that has seen to the thread. */
void rights_part(void);
/* The kernel has answered. errno stays. */
void rights_after(void);

/* One of these calls by syscall(). */
long rights_syscall(long number, const long a[6]);

#endif
