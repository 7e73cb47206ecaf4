/* What a call under way has to give back when its thread is cancelled. */
#include "preload/process/cancel.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "preload/process/proc.h"

__thread int cancel_program = -1;

/* Calls in signal handlers that interrupt calls, so deep at most; what is deeper is not given back. */
#define KEPT_MAX 16u

/*
 * The entries lie in the thread's own memory, not in the calls' frames: a call that is left by siglongjmp cannot take
 * its entry away. Entries behind kept_n have no give_back, so that a handler which interrupts cancel_keep finds nothing
 * half made.
 */
static __thread struct {
    void (*give_back)(void *);
    void *what;
    uintptr_t frame; /* the call's stack */
} kept[KEPT_MAX];
static __thread unsigned kept_n;

static _Atomic(void (*)(void)) at_end;

void cancel_also(void (*fn)(void))
{
    if (atomic_load_explicit(&at_end, memory_order_relaxed) != fn)
        atomic_store_explicit(&at_end, fn, memory_order_relaxed);
}

/* Entries of calls that were left by siglongjmp: their frames are gone from the stack, and end at `end` or below it. */
static void drop_dead(uintptr_t end)
{
    if (kept_n > KEPT_MAX || kept[kept_n - 1].frame > end || proc_on_signal_stack())
        return;
    while (kept_n > 0 && kept[kept_n - 1].frame <= end)
        cancel_kept(kept_n - 1);
}

/* (Inlined, its frame would be its caller's.) */
__attribute__((noinline)) unsigned cancel_keep(void (*give_back)(void *), void *what)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    /* (What has nothing to give back may be put off in the frame of a call that has: accept4.) */
    if (kept_n > 0)
        drop_dead(give_back != NULL ? frame : frame - 1);
    unsigned before = kept_n;
    if (give_back == NULL)
        return before;
    kept_n = before + 1;
    if (before >= KEPT_MAX)
        return before;
    atomic_signal_fence(memory_order_seq_cst);
    kept[before].what = what;
    kept[before].frame = frame;
    atomic_signal_fence(memory_order_seq_cst);
    kept[before].give_back = give_back;
    return before;
}

void cancel_kept(unsigned before)
{
    while (kept_n > before) {
        if (kept_n <= KEPT_MAX)
            kept[kept_n - 1].give_back = NULL;
        atomic_signal_fence(memory_order_seq_cst);
        kept_n--;
    }
}

void cancel_left(void *unused)
{
    (void)unused;
    while (kept_n > 0) {
        unsigned last = kept_n - 1;
        void (*give_back)(void *) = last < KEPT_MAX ? kept[last].give_back : NULL;
        void *what = last < KEPT_MAX ? kept[last].what : NULL;
        cancel_kept(last);
        if (give_back != NULL)
            give_back(what);
    }
    cancel_program = -1;
    void (*also)(void) = atomic_load_explicit(&at_end, memory_order_relaxed);
    if (also != NULL)
        also();
}
