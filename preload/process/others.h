/*
 * The other threads of this process stand still while something changes that none of them may see half done: memory that
 * is replaced where it lies (conn_mem_part).
 *
 * Each of them gets a signal and stops in our handler, outside of what signals_hold protects. It is the signal by which
 * libc cancels threads, which no program can block by libc's functions. A call that a thread sleeps in ends or goes on as
 * when libc tells all threads of a setuid().
 */
#ifndef SW_PRELOAD_OTHERS_H
#define SW_PRELOAD_OTHERS_H

#include <sys/types.h>

#include "core/base/must.h"

/*
 * Stops them; the io_uring's own do not count. The caller holds no lock and has all signals blocked. Until
 * others_go_on it must not take a lock that another thread may have without signals_hold, such as malloc's. 0, and there
 * may be none; -ENOSYS: they cannot be listed; -EPERM: in a sandbox; -EAGAIN: too many; -ETIMEDOUT: one does not stop
 * (it waits for a vfork child, or blocks the signal by a system call of its own). Then they go on. Not in handlers.
 */
int others_stop(void) SW_MUST;
void others_go_on(void);

/*
 * If the thread sleeps in a call of the kernel's that would be restarted, that call ends by EINTR (signals_only_ours). The others run. Waits until the signal has come, WAKE_NS at most.
 */
void others_wake(pid_t tid);

/* In the child of a fork. */
void others_after_fork(void);

#endif
