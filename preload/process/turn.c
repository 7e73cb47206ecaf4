/*
 * Turns.
 */
#include "preload/process/turn.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <time.h>

#include "core/base/fault.h"
#include "core/base/foreign.h"
#include "core/base/rawsys.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/signals.h"

/*
 * A thread that waits briefly looks at least this often whether the holder was killed: the kernel wakes only threads
 * that wait in the mutex itself.
 */
#define BRIEF_NS 50000000

/* Shared between processes, so not FUTEX_PRIVATE. */
static long futex(void *word, int op, uint32_t val, const struct timespec *timeout)
{
    return rawsys4(__NR_futex, (long)word, op, val, (long)timeout);
}

/* The same, as a cancellation point. */
static __attribute__((noinline)) long futex_async(void *word, uint32_t val, const struct timespec *timeout)
{
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    long r = futex(word, FUTEX_WAIT, val, timeout);
    pthread_setcanceltype(type, NULL);
    return r;
}

static __attribute__((noinline)) long futex_cancellable(void *word, uint32_t val, const struct timespec *timeout)
{
    long r;
    CANCEL_POINT(r = futex_async(word, val, timeout));
    return r;
}

/*
 * The kernel writes the word of a robust mutex when its holder dies, so the kernel defines its form (futex(2)): thread
 * id, FUTEX_WAITERS, FUTEX_OWNER_DIED. Where the word lies in the mutex is in glibc's public headers.
 */
static _Atomic uint32_t *word_of(struct turn *t)
{
    return (_Atomic uint32_t *)(void *)&t->mutex.__data.__lock;
}

void turn_mutex_init(pthread_mutex_t *m)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(m, &a);
    pthread_mutexattr_destroy(&a);
}

void turn_init(struct turn *t)
{
    turn_mutex_init(&t->mutex);
    atomic_store(&t->asleep, 0);
    atomic_store(&t->brief, 0);
    atomic_store(&t->frame, 0);
    t->orphan = TURN_WHOLE;
    t->other_process = false;
    atomic_store(&t->apart, 0);
    t->apart_held = false;
}

static void nothing(struct turn *t)
{
    (void)t;
}

static void (*apart_enter)(struct turn *t) = nothing, (*apart_leave)(struct turn *t) = nothing;

void turn_on_apart(void (*enter)(struct turn *t), void (*leave)(struct turn *t))
{
    apart_enter = enter;
    apart_leave = leave;
}

static inline bool is_apart(const struct turn *t)
{
    return SW_UNLIKELY(atomic_load_explicit(&t->apart, memory_order_relaxed) != 0);
}

static void orphaned(struct turn *t)
{
    /* (A turn that was left at work stays so, however it is left later.) */
    if (t->orphan != TURN_LEFT_AT_WORK)
        t->orphan = atomic_load(&t->asleep) ? TURN_LEFT_ASLEEP : TURN_LEFT_AT_WORK;
    t->other_process |= t->pid != proc.pid;
    atomic_store(&t->asleep, 0);
}

static bool taken(struct turn *t, uintptr_t frame)
{
    signals_hold();
    int r = pthread_mutex_trylock(&t->mutex);
    if (r != 0 && r != EOWNERDEAD) {
        signals_go_on();
        return false;
    }
    if (SW_UNLIKELY(r == EOWNERDEAD)) {
        pthread_mutex_consistent(&t->mutex);
        orphaned(t);
    }
    atomic_store_explicit(&t->frame, frame, memory_order_relaxed);
    t->pid = proc.pid;
    if (is_apart(t))
        apart_enter(t);
    return true;
}

bool turn_is_mine(struct turn *t)
{
    return (atomic_load_explicit(word_of(t), memory_order_relaxed) & FUTEX_TID_MASK) == (uint32_t)proc_tid();
}

/* By a call of this thread, which has it again. (What left it at work has left its hold of the signals, too.) */
static void left(struct turn *t)
{
    if (atomic_load(&t->asleep))
        signals_hold();
    orphaned(t);
    if (is_apart(t))
        apart_enter(t);
}

/*
 * This thread has the turn already. Either a signal handler has interrupted the call that took it, or that call is gone
 * because a handler has jumped out of it. In the second case its frame is gone from the stack: this frame is above it,
 * or at least no signal handler is between the two. Then this call takes over the turn as it is.
 */
static int mine_already(struct turn *t, uintptr_t frame)
{
    uintptr_t held = atomic_load_explicit(&t->frame, memory_order_relaxed);
    if (held == 0) /* it is just being taken or given back: any handler here interrupts that */
        held = UINTPTR_MAX;
    if (proc_on_signal_stack())
        return -EDEADLK;
    if (frame < held) {
        foreign_enter(); /* libunwind reads from a pipe of its own, through our read() */
        int handler = fault_in_handler(held);
        foreign_leave();
        if (handler != 0)
            return -EDEADLK;
    }
    left(t);
    atomic_store_explicit(&t->frame, frame, memory_order_relaxed);
    return 0;
}

/*
 * Where the caller's own frame begins: a signal that comes between taking and giving back, in no call, finds the stack
 * here.
 */
#define FRAME ((uintptr_t)__builtin_dwarf_cfa())

int turn_try(struct turn *t)
{
    uintptr_t frame = FRAME;
    if (SW_LIKELY(taken(t, frame)))
        return 0;
    return turn_is_mine(t) && mine_already(t, frame) == 0 ? 0 : -EBUSY;
}

/* Waits until the turn is ours, or until its holder sleeps: -EBUSY. */
static int await_brief(struct turn *t, uintptr_t frame)
{
    static const struct timespec look = { .tv_nsec = BRIEF_NS };
    int r = 0;
    atomic_fetch_add(&t->brief, 1);
    for (;;) {
        uint32_t seen = atomic_load(&t->change);
        if (taken(t, frame))
            break;
        if (atomic_load(&t->asleep)) {
            r = -EBUSY;
            break;
        }
        futex(&t->change, FUTEX_WAIT, seen, &look);
    }
    atomic_fetch_sub(&t->brief, 1);
    return r;
}

int turn_take(struct turn *t, uint64_t timeout_ns, bool interruptible)
{
    uintptr_t frame = FRAME;
    if (taken(t, frame))
        return 0;
    if (turn_is_mine(t))
        return mine_already(t, frame);
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u), .tv_nsec = (long)(timeout_ns % 1000000000u) };
    _Atomic uint32_t *word = word_of(t);
    do {
        uint32_t seen = atomic_load(word);
        if (seen == 0 || (seen & FUTEX_OWNER_DIED))
            continue;
        if (!(seen & FUTEX_WAITERS) && !atomic_compare_exchange_strong(word, &seen, seen | FUTEX_WAITERS))
            continue;
        const struct timespec *timeout = timeout_ns ? &ts : NULL;
        long r = interruptible ? futex_cancellable(word, seen | FUTEX_WAITERS, timeout)
                               : futex(word, FUTEX_WAIT, seen | FUTEX_WAITERS, timeout);
        if (r != -ETIMEDOUT && (r != -EINTR || !interruptible))
            continue;
        /* A holder at work is like the kernel's lock of a socket: neither time-outs nor signals end a wait for it. */
        if (await_brief(t, frame) < 0)
            return (int)r;
        break;
    } while (!taken(t, frame));
    /* A thread that has waited cannot know whether other threads still wait. */
    atomic_fetch_or(word, FUTEX_WAITERS);
    return 0;
}

int turn_take_brief(struct turn *t)
{
    uintptr_t frame = FRAME;
    if (taken(t, frame))
        return 0;
    return turn_is_mine(t) ? mine_already(t, frame) : await_brief(t, frame);
}

bool turn_left(struct turn *t)
{
    if (!turn_is_mine(t)) {
        /* This thread may have been woken to take the turn: it wakes the next one instead. */
        futex(word_of(t), FUTEX_WAKE, 1, NULL);
        return false;
    }
    left(t);
    return true;
}

/* The threads that wait briefly look again. */
static void changed(struct turn *t)
{
    if (atomic_load(&t->brief) == 0)
        return;
    atomic_fetch_add(&t->change, 1);
    futex(&t->change, FUTEX_WAKE, INT_MAX, NULL);
}

void turn_give(struct turn *t)
{
    if (is_apart(t))
        apart_leave(t);
    /* The next holder, in a signal handler, must not take this frame for its own before it has noted its own. */
    atomic_store_explicit(&t->frame, 0, memory_order_relaxed);
    pthread_mutex_unlock(&t->mutex);
    changed(t);
    signals_go_on();
}

static pid_t thread_of(struct turn *t)
{
    return t->pid == proc.pid ? (pid_t)(atomic_load(word_of(t)) & FUTEX_TID_MASK) : 0;
}

pid_t turn_sleeper(struct turn *t)
{
    return atomic_load(&t->asleep) == TURN_SLEEPS ? thread_of(t) : 0;
}

enum turn_sleeps turn_part(struct turn *t, struct turn *theirs)
{
    enum turn_sleeps asleep = (enum turn_sleeps)atomic_load(&theirs->asleep);
    bool ours = thread_of(theirs) != 0;
    if (asleep == TURN_AWAKE || !ours) {
        turn_init(t);
        return TURN_AWAKE;
    }
    atomic_store(&t->apart, 0);
    t->apart_held = false;
    if (asleep != TURN_RESTS)
        theirs->orphan = TURN_LEFT_AT_WORK;
    atomic_store(&theirs->asleep, TURN_AWAKE);
    atomic_store(&theirs->frame, 0);
    turn_give_bare(theirs);
    return asleep;
}

bool turn_try_bare(struct turn *t, uint32_t tid)
{
    uint32_t nobody = 0;
    if (is_apart(t) || !atomic_compare_exchange_strong(word_of(t), &nobody, tid))
        return false;
    t->pid = proc.pid;
    return true;
}

void turn_give_bare(struct turn *t)
{
    _Atomic uint32_t *word = word_of(t);
    if (atomic_exchange(word, 0) & FUTEX_WAITERS)
        futex(word, FUTEX_WAKE, 1, NULL);
    changed(t);
}

static void sleeps(struct turn *t, enum turn_sleeps how)
{
    if (is_apart(t))
        apart_leave(t);
    atomic_store(&t->asleep, how);
    changed(t);
    signals_go_on();
}

void turn_sleep(struct turn *t)
{
    sleeps(t, TURN_SLEEPS);
}

void turn_rest(struct turn *t)
{
    sleeps(t, TURN_RESTS);
}

void turn_wake(struct turn *t)
{
    signals_hold();
    atomic_store(&t->asleep, TURN_AWAKE);
    /* (In one order with the store: who makes it apart looks whether the holder is asleep after that.) */
    if (SW_UNLIKELY(atomic_load(&t->apart) != 0))
        apart_enter(t);
}

int turn_event_wait(struct turn_event *e, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u), .tv_nsec = (long)(timeout_ns % 1000000000u) };
    long r = futex_cancellable(&e->seq, seen, timeout_ns ? &ts : NULL);
    return r == -EINTR || r == -ETIMEDOUT ? (int)r : 0;
}

void turn_event_signal(struct turn_event *e)
{
    atomic_fetch_add(&e->seq, 1);
    futex(&e->seq, FUTEX_WAKE, INT_MAX, NULL);
}
