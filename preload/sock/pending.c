/*
 * What is under way in this process beside the program's calls: startups, and tails of upgraded connections.
 */
#include "preload/sock/pending.h"

#include <pthread.h>

#include "core/base/foreign.h"
#include "preload/process/proc.h"
#include "preload/process/signals.h"
#include "preload/sock/hooks.h"
#include "preload/sock/wait.h"

/*
 * Protects: the lists below and every sock's pending_next, pending_pprev, pending_silent, pending_over, pending_off_ns.
 * Innermost, except for wait.c's lock, and watch_lock in the hooks. A connection that was accepted, and on which
 * nothing has come, has no deadline and may stay so for ever. It is on a list of its own while it is young, unless an
 * epoll set of the program's watches it: then the set's wait reports its bytes. So no wait walks past silent
 * connections.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sock *list, *silent;       /* the newest first */
static _Atomic unsigned count, silent_n; /* of both; of those */
static _Atomic uint64_t looked;          /* entries that waits have looked at */

/* Longer than a step takes. */
#define PUT_OFF_NS 1000000u
/* The latest end of a moment; set before the sock's own, so that a wait which leaves one out finds it. */
static _Atomic uint64_t put_off_until;

/* Goes through both lists, the silent ones last. The lock is held. */
static struct sock *first_listed(void)
{
    return list != NULL ? list : silent;
}

static struct sock *next_listed(const struct sock *s)
{
    return s->pending_next != NULL || s->pending_silent ? s->pending_next : silent;
}

/* The lock is held, or it is a hint. */
static struct sock **pprev(const struct sock *s)
{
    return atomic_load_explicit(&s->pending_pprev, memory_order_relaxed);
}

static void set_pprev(struct sock *s, struct sock **to)
{
    atomic_store_explicit(&s->pending_pprev, to, memory_order_relaxed);
}

/* The lock is held, s is on a list. */
static void unlist(struct sock *s)
{
    *pprev(s) = s->pending_next;
    if (s->pending_next != NULL)
        set_pprev(s->pending_next, pprev(s));
    set_pprev(s, NULL);
    atomic_fetch_sub(&count, 1);
    if (s->pending_silent)
        atomic_fetch_sub(&silent_n, 1);
}

void pending_add(struct sock *s)
{
    bool mute = sock_hooks.silent(s);
    lock_take(&lock);
    if (pprev(s) != NULL && s->pending_silent != mute)
        unlist(s);
    if (pprev(s) == NULL && !s->pending_over) {
        struct sock **first = mute ? &silent : &list;
        s->pending_silent = mute;
        s->pending_next = *first;
        set_pprev(s, first);
        if (*first != NULL)
            set_pprev(*first, &s->pending_next);
        *first = s;
        atomic_fetch_add(&count, 1);
        atomic_fetch_add(&silent_n, mute);
    }
    lock_give(&lock);
}

void pending_watched(void)
{
    if (atomic_load(&silent_n) == 0)
        return;
    lock_take(&lock);
    while (silent != NULL && sock_hooks.watched(silent)) {
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        unlist(silent);
    }
    lock_give(&lock);
}

uint64_t pending_looked(void)
{
    return atomic_load(&looked);
}

void pending_remove(struct sock *s)
{
    lock_take(&lock);
    if (pprev(s) != NULL)
        unlist(s);
    lock_give(&lock);
}

void pending_leave(struct sock *s)
{
    lock_take(&lock);
    if (pprev(s) != NULL)
        unlist(s);
    /* The kernel ends a connection when the last wait for it has ended, not before. */
    if (s->pending_held > 0)
        wait_kick_holders();
    s->pending_over = true;
    lock_give(&lock);
}

bool pending_any(void)
{
    return atomic_load(&count) > 0;
}

bool pending_others(const struct sock *self)
{
    unsigned n = atomic_load(&count);
    return !foreign_call() && n > (self != NULL && pprev(self) != NULL ? 1u : 0u);
}

unsigned pending_hold(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self)
{
    unsigned n = 0, mute_n = 0;
    uint64_t now = proc_now_ns();
    lock_take(&lock);
    struct sock *next;
    for (struct sock *s = first_listed(); s != NULL && n < max && mute_n < max; s = next) {
        next = next_listed(s);
        mute_n += s->pending_silent;
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        fds[n] = (struct pollfd){ .fd = atomic_load(&s->fd) };
        bool skip = s == self || fds[n].fd < 0 || s->pending_off_ns > now;
        enum pending_look look = skip ? PENDING_SKIP : sock_hooks.look(s, now, &fds[n]);
        if (look == PENDING_DROP)
            unlist(s);
        if (look != PENDING_WAIT)
            continue;
        atomic_fetch_add(&s->refs, 1);
        s->pending_held++;
        socks[n++] = s;
    }
    if (n > 0)
        wait_holds(true);
    lock_give(&lock);
    return n;
}

void pending_let_go(struct sock **socks, unsigned n)
{
    lock_take(&lock);
    for (unsigned i = 0; i < n; i++)
        socks[i]->pending_held--;
    wait_holds(false);
    lock_give(&lock);
}

void pending_put_off(struct sock *s)
{
    uint64_t until = proc_now_ns() + PUT_OFF_NS;
    atomic_store(&put_off_until, until);
    lock_take(&lock);
    s->pending_off_ns = until;
    lock_give(&lock);
}

uint64_t pending_put_off_until(void)
{
    uint64_t until = atomic_load(&put_off_until);
    if (SW_LIKELY(until == 0) || proc_now_ns() < until)
        return until;
    atomic_compare_exchange_strong(&put_off_until, &until, 0);
    return until; /* its deadline may have passed since the wait was filled */
}

void pending_step_due(bool rest)
{
    struct sock *due[64];
    unsigned n = 0;
    uint64_t now = proc_now_ns();
    lock_take(&lock);
    for (struct sock *s = list; s != NULL && n < SW_ARRAY_LEN(due); s = s->pending_next) {
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        if (pending_is_due(sock_hooks.due(s), now, rest)) {
            atomic_fetch_add(&s->refs, 1);
            due[n++] = s;
        }
    }
    lock_give(&lock);
    for (unsigned i = 0; i < n; i++) {
        sock_hooks.step_due(due[i]);
        sock_put(due[i]);
    }
}

uint64_t pending_deadline(void)
{
    if (atomic_load(&count) == atomic_load(&silent_n))
        return 0;
    uint64_t min = 0;
    lock_take(&lock);
    for (struct sock *s = list; s != NULL; s = s->pending_next) {
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        uint64_t due = sock_hooks.due(s);
        if (due != 0 && due < s->pending_off_ns)
            due = s->pending_off_ns;
        if (due != 0 && (min == 0 || due < min))
            min = due;
    }
    lock_give(&lock);
    return min;
}

void pending_before_fork(void)
{
    lock_take(&lock);
}

void pending_after_fork(bool child)
{
    lock_give(&lock);
    for (struct sock *s = child ? first_listed() : NULL; s != NULL; s = next_listed(s)) {
        s->pending_held = 0;
        s->pending_inherited = true;
    }
}
