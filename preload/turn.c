/*
 * Turns.
 */
#include "preload/turn.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#include "core/base/rawsys.h"

/* Bits of the word; 0: free. */
enum {
    TURN_TAKEN = 1,
    TURN_ASLEEP = 2,  /* the holder waits for the peer */
    TURN_AWAITED = 4, /* somebody may wait for it: giving it costs a system call */
};

static __thread int32_t my_tid;

static int32_t tid(void)
{
    if (SW_UNLIKELY(my_tid == 0))
        my_tid = (int32_t)rawsys4(__NR_gettid, 0, 0, 0, 0);
    return my_tid;
}

void turn_after_fork(void)
{
    my_tid = 0;
}

/* Shared between processes, so not FUTEX_PRIVATE. */
static long futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *timeout)
{
    return rawsys4(__NR_futex, (long)word, op, val, (long)timeout);
}

static bool taken(struct turn *t, uint32_t as)
{
    uint32_t free = 0;
    if (!atomic_compare_exchange_strong(&t->word, &free, as))
        return false;
    atomic_store_explicit(&t->owner, tid(), memory_order_relaxed);
    return true;
}

static bool mine(struct turn *t)
{
    return atomic_load_explicit(&t->owner, memory_order_relaxed) == tid();
}

int turn_try(struct turn *t)
{
    return taken(t, TURN_TAKEN) ? 0 : -EBUSY;
}

/* We may have been the one who was woken for a turn that we do not want any more: the next one has to be. */
static void pass_on(struct turn *t)
{
    uint32_t seen = atomic_load(&t->word);
    while (seen != 0)
        if (atomic_compare_exchange_weak(&t->word, &seen, seen | TURN_AWAITED))
            return;
    futex(&t->word, FUTEX_WAKE, 1, NULL);
}

/* brief: gives up when the holder sleeps. */
static int take(struct turn *t, const struct timespec *timeout, bool interruptible, bool brief)
{
    if (taken(t, TURN_TAKEN))
        return 0;
    if (mine(t))
        return -EDEADLK;
    bool waited = false;
    /* Whoever waited once cannot know whether others still do. */
    while (!taken(t, TURN_TAKEN | TURN_AWAITED)) {
        uint32_t seen = atomic_load(&t->word);
        if (seen == 0)
            continue;
        if ((seen & TURN_ASLEEP) && brief) {
            if (waited)
                pass_on(t);
            return -EBUSY;
        }
        if (!(seen & TURN_AWAITED) &&
            !atomic_compare_exchange_strong(&t->word, &seen, seen | TURN_AWAITED))
            continue;
        waited = true;
        long r = futex(&t->word, FUTEX_WAIT, seen | TURN_AWAITED, timeout);
        if (r == -ETIMEDOUT || (r == -EINTR && interruptible))
            return (int)r;
    }
    return 0;
}

int turn_take(struct turn *t, uint64_t timeout_ns, bool interruptible)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
                           .tv_nsec = (long)(timeout_ns % 1000000000u) };
    return take(t, timeout_ns ? &ts : NULL, interruptible, false);
}

int turn_take_brief(struct turn *t)
{
    return take(t, NULL, false, true);
}

void turn_give(struct turn *t)
{
    atomic_store_explicit(&t->owner, 0, memory_order_relaxed);
    if (atomic_exchange(&t->word, 0) & TURN_AWAITED)
        futex(&t->word, FUTEX_WAKE, 1, NULL);
}

void turn_sleep(struct turn *t)
{
    if (atomic_fetch_or(&t->word, TURN_ASLEEP) & TURN_AWAITED)
        futex(&t->word, FUTEX_WAKE, INT_MAX, NULL); /* the brief ones leave, the others wait on */
}

void turn_wake(struct turn *t)
{
    atomic_fetch_and(&t->word, ~(uint32_t)TURN_ASLEEP);
}

int turn_event_wait(struct turn_event *e, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
                           .tv_nsec = (long)(timeout_ns % 1000000000u) };
    long r = futex(&e->seq, FUTEX_WAIT, seen, timeout_ns ? &ts : NULL);
    return r == -EINTR || r == -ETIMEDOUT ? (int)r : 0;
}

void turn_event_signal(struct turn_event *e)
{
    atomic_fetch_add(&e->seq, 1);
    futex(&e->seq, FUTEX_WAKE, INT_MAX, NULL);
}
