/*
 * Turns.
 */
#include "preload/turn.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#include "core/base/rawsys.h"

enum {
    TURN_FREE,
    TURN_TAKEN,
    TURN_AWAITED, /* taken, and somebody may wait for it */
    TURN_ASLEEP,  /* taken, its holder waits for the peer, and somebody may wait for it */
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

static bool swap(struct turn *t, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&t->word, &from, to);
}

static bool taken(struct turn *t, uint32_t as)
{
    if (!swap(t, TURN_FREE, as))
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

/* brief: gives up when the holder sleeps. */
static int take(struct turn *t, const struct timespec *timeout, bool interruptible, bool brief)
{
    if (taken(t, TURN_TAKEN))
        return 0;
    if (mine(t))
        return -EDEADLK;
    /* Whoever waited once cannot know whether others do: it takes the turn as AWAITED. */
    while (!taken(t, TURN_AWAITED)) {
        uint32_t seen = atomic_load(&t->word);
        if (seen == TURN_ASLEEP && brief)
            return -EBUSY;
        if (seen == TURN_FREE || (seen == TURN_TAKEN && !swap(t, TURN_TAKEN, TURN_AWAITED)))
            continue;
        if (seen == TURN_TAKEN)
            seen = TURN_AWAITED;
        long r = futex(&t->word, FUTEX_WAIT, seen, timeout);
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
    if (atomic_exchange(&t->word, TURN_FREE) >= TURN_AWAITED)
        futex(&t->word, FUTEX_WAKE, 1, NULL);
}

void turn_sleep(struct turn *t)
{
    if (atomic_exchange(&t->word, TURN_ASLEEP) == TURN_AWAITED)
        futex(&t->word, FUTEX_WAKE, INT_MAX, NULL); /* the brief ones leave, the others wait on */
}

void turn_wake(struct turn *t)
{
    atomic_store(&t->word, TURN_AWAITED);
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
