/*
 * The program's signal handlers. The kernel has a handler of ours in the place of each of them, for two reasons:
 * a handler must not run while its own thread has one of the library's locks, since it may make a call that waits for
 * that lock, or leave by siglongjmp with it; and a fault of the library's must not reach the program (segv.h). The program
 * sets and sees dispositions of its own.
 *
 * A handler whose signal comes between signals_hold and signals_go_on runs at the latter, with the mask and the siginfo_t
 * that it would have had. So nothing between the two may wait for another party. Costs no system call unless a signal
 * comes. Not put off: handlers that were set without libc (Go's), SIGSEGV and its like, handlers in a sandbox (sandbox.h).
 */
#ifndef SW_PRELOAD_SIGNALS_H
#define SW_PRELOAD_SIGNALS_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/must.h"

/*
 * Handlers of the program that have run in this thread, and those of them without SA_RESTART (they only count; but for
 * signals_masked); and signals of our own that came (others.h).
 */
struct signals_mark {
    unsigned all, ending, ours;
};

struct signals_held {
    unsigned n;      /* signals_hold without its signals_go_on */
    bool put_off;    /* a signal has come meanwhile: all are blocked, */
    uint64_t unmask; /* and these are not, outside */
    uint64_t masked; /* signals_masked */
    struct signals_mark ran;
};

extern __thread struct signals_held signals_held;

void signals_deliver(void);

/*
 * What a call that waits compares before it sleeps again: it was awake for what the program does not see (a frame of the
 * startup), and a handler that has run then ends it, as it would have ended the kernel's sleep.
 */
static inline struct signals_mark signals_ran(void)
{
    return signals_held.ran;
}

/* Has a signal of our own come since, and no handler of the program's run? Then the program's call goes on. */
static inline bool signals_only_ours(struct signals_mark since)
{
    return since.ours != signals_held.ran.ours && since.all == signals_held.ran.all;
}

/* r, the result of a call of the kernel's; or 0 if it is -EINTR for that reason. */
static inline int signals_but_ours(int r, struct signals_mark since)
{
    return SW_UNLIKELY(r == -EINTR) && signals_only_ours(since) ? 0 : r;
}

/*
 * The program waits with this mask of its own (ppoll), or with none (NULL): the kernel has it while it sleeps, but not
 * while the call is awake. The handler of a signal that it blocks may run then, and is not counted, as it would end the
 * call. Returns what signals_masked_over takes at the end.
 */
static inline uint64_t signals_masked(const sigset_t *mask)
{
    uint64_t before = signals_held.masked;
    signals_held.masked = 0;
    if (mask != NULL)
        memcpy(&signals_held.masked, mask, sizeof(signals_held.masked)); /* what the kernel reads of it */
    return before;
}

static inline void signals_masked_over(uint64_t before)
{
    signals_held.masked = before;
}

/* May be nested. Async-signal-safe. */
static inline void signals_hold(void)
{
    signals_held.n++;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void signals_go_on(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    signals_held.n--;
    atomic_signal_fence(memory_order_seq_cst);
    if (SW_UNLIKELY(signals_held.put_off) && signals_held.n == 0)
        signals_deliver();
}

/* A lock that is held for a few instructions; no handler of the program's runs in its thread meanwhile. */
static inline void lock_take(pthread_mutex_t *m)
{
    signals_hold();
    pthread_mutex_lock(m);
}

static inline bool lock_try(pthread_mutex_t *m)
{
    signals_hold();
    if (pthread_mutex_trylock(m) == 0)
        return true;
    signals_go_on();
    return false;
}

static inline void lock_give(pthread_mutex_t *m)
{
    pthread_mutex_unlock(m);
    signals_go_on();
}

/*
 * Called by a handler first. True: its thread holds signals off, so this one was queued again and comes when it goes on;
 * the handler returns.
 */
bool signals_put_off(int number, siginfo_t *info, void *context) SW_MUST;

extern _Atomic int signals_guarded;
void signals_guard_begin(void);

/* From the first call on it is so. (A program that uses none of our sockets keeps its own handlers in the kernel.) */
static inline void signals_guard(void)
{
    if (SW_UNLIKELY(!atomic_load_explicit(&signals_guarded, memory_order_relaxed)))
        signals_guard_begin();
}

/*
 * After EINTR from a wait that the kernel never restarts: would a blocking socket call have been restarted? It is not
 * known which signal it was. If all handlers agree the answer is exact. If not, EINTR is what every program has to
 * expect: false.
 */
bool signals_restart(void);

/* In the child of a fork. */
void signals_after_fork(void);

/* rt_sigaction by syscall(2). */
long signals_rt_sigaction(const long a[6]);

#endif
