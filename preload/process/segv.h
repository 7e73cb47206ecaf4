/*
 * The handler of SIGSEGV and SIGBUS that makes faults of usermem.c harmless, unseen by the program; and, of SIGILL and
 * SIGFPE as well, that tells of faults in our own code.
 */
#ifndef SW_PRELOAD_SEGV_H
#define SW_PRELOAD_SEGV_H

#include <stdatomic.h>
#include <stddef.h>

#include "core/base/must.h"

extern _Atomic int segv_guarded;
void segv_guard_begin(void);

/* From the first call on the handler is there. (A program that uses none of our sockets keeps its own.) */
static inline void segv_guard(void)
{
    if (SW_UNLIKELY(!atomic_load_explicit(&segv_guarded, memory_order_relaxed)))
        segv_guard_begin();
}

/*
 * This memory is of a file that another process of the user may cut short: a SIGBUS in it gives this process zeros there
 * from then on. One such place at a time; NULL: none. Any thread.
 */
void segv_refill(void *at, size_t len);

/* In the child of a fork. */
void segv_after_fork(void);

/* rt_sigaction by syscall(2). */
long segv_rt_sigaction(const long a[6]);

#endif
