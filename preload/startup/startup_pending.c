/*
 * Startups and tails that are pending, as pending.h's hooks see them.
 */
#include "preload/conn/conn.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_tx.h"
#include "preload/device/device.h"
#include "preload/process/proc.h"
#include "preload/sock/hooks.h"
#include "preload/sock/pending.h"
#include "preload/startup/beside.h"
#include "preload/startup/local.h"
#include "preload/startup/mark.h"
#include "preload/startup/startup.h"

/* An accepted connection on which nothing came for this long is looked at only when the program uses it. */
#define YOUNG_NS 3000000000ull

bool startup_is_silent(const struct sock *s)
{
    const struct conn *c = s->conn;
    return conn_unheard(c) && !conn_is_held(c) && atomic_load(&c->startup.shut_later) == 0;
}

/*
 * It was negotiating when this process was forked, and the parent still has it: a thread there sleeps for bytes that
 * this process would take. (Here only calls on it drive it.)
 */
bool startup_is_parents(const struct sock *s)
{
    return s->pending_inherited && atomic_load(&s->conn->holders.n) > 1;
}

/*
 * How long after accept() a connection is held that no child has. Then this process drives it though its program has
 * made no call on it: the call may come late, while the client's connect() waits, and a fork would have come sooner.
 */
#define HELD_NS 50000000u

/* Has another process's program got it, to look at it afresh? */
static bool is_handed(struct conn *c)
{
    pid_t by = atomic_load(&c->startup.handed_by);
    return SW_UNLIKELY(by != 0) && by != proc.pid && !holders_alone(&c->holders);
}

/*
 * Must not be driven here before a call is made on it: the device's endpoint belongs to another process, or may have
 * to; or the Hello does.
 */
static bool is_anothers(const struct sock *s)
{
    struct conn *c = s->conn;
    return startup_is_parents(s) || is_handed(c) ||
           ((device_is_anothers(c) || conn_is_held(c)) && atomic_load(&c->holders.n) > 1);
}

/* The time at which it is stepped even if nothing comes; 0: none. */
static uint64_t due_at(const struct sock *s)
{
    const struct conn *c = s->conn;
    return conn_is_held(c) ? c->record.born_ns + HELD_NS : conn_is_unasked(c) ? startup_asks_at(c) : c->neg.deadline_ns;
}

/*
 * A silent one that turns out not to be silent any more is left where it is: the thread that found this out is about to
 * move it.
 */
static bool needs_nobody(struct sock *s, uint64_t now)
{
    if (conn_state(s->conn) == CONN_UPGRADED)
        return !conn_tail_is_ours(s->conn);
    return s->pending_silent && startup_is_silent(s) &&
           (now - s->conn->record.born_ns > YOUNG_NS || sock_hooks.watched(s));
}

enum pending_look startup_look(struct sock *s, uint64_t now, struct pollfd *p)
{
    struct conn *c = s->conn;
    if (needs_nobody(s, now))
        return PENDING_DROP;
    bool held = conn_is_held(c); /* the thread that waits for it has not looked yet */
    if (is_anothers(s) || (!held && (atomic_load(&s->waiters) > 0 || sock_hooks.awaited(s))))
        return PENDING_SKIP;
    p->events = conn_state(c) == CONN_UPGRADED ? POLLOUT : (short)c->startup.kernel_wants;
    if (held) /* only its deadline is waited for, not its input */
        p->fd = -1;
    if (conn_has_chan(c)) {
        p->fd = conn_chan(c);
        p->events = POLLIN;
    }
    return PENDING_WAIT;
}

uint64_t startup_due(const struct sock *s)
{
    uint64_t at = due_at(s);
    return at != 0 && !is_anothers(s) ? at : 0;
}

uint64_t startup_deadline(const struct sock *s)
{
    enum conn_state st = conn_state(s->conn);
    return st == CONN_NEGOTIATING || st == CONN_CONNECTING ? s->conn->neg.deadline_ns : 0;
}

/* The tail of an upgraded connection that no ring sends. False: another thread is at it. */
static bool step_tail(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_ops(c)->before_tail != NULL)
        conn_ops(c)->before_tail(s, atomic_load(&s->fd));
    if (turn_try(&c->tx.turn) < 0)
        return false;
    if (conn_tail_is_ours(c)) {
        int r = conn_tx_rest(c, atomic_load(&s->fd));
        (void)r; /* whether there is more is asked below */
    }
    bool done = !conn_tail_is_ours(c);
    turn_give(&c->tx.turn);
    if (done)
        pending_remove(s);
    return true;
}

/*
 * Both turns held. Another process may have begun with it since it was looked up: what comes on the socket wakes all
 * that have it.
 */
static void step_as_other(struct sock *s)
{
    if (is_anothers(s))
        return;
    if (conn_is_held(s->conn) && due_at(s) <= proc_now_ns())
        conn_use(s->conn);
    if (conn_is_unasked(s->conn) && startup_asks_at(s->conn) != 0)
        startup_step_asking(s);
    else
        startup_step(s);
}

/*
 * Both turns held. A thread that waits for s drives it itself, and would miss the event that this one takes: it counts
 * itself in before it looks, and this one looks at the count with the turns held.
 */
static void step_unwaited(struct sock *s)
{
    if (!conn_is_held(s->conn) && (atomic_load(&s->waiters) > 0 || sock_hooks.awaited(s)))
        return;
    step_as_other(s);
    /* Something is reported, and yet the handshake goes on: an error for the program to fetch. */
    if (conn_state(s->conn) == CONN_CONNECTING)
        pending_remove(s);
}

bool startup_step_pending(struct sock *s)
{
    return conn_state(s->conn) == CONN_UPGRADED ? step_tail(s) : startup_in_turns(s, true, step_unwaited) == 0;
}

void startup_step_due(struct sock *s)
{
    if (startup_in_turns(s, true, step_as_other) < 0)
        pending_put_off(s); /* another thread works on it, and will see the event */
}

void startup_released(struct sock *s)
{
    if (s->conn != NULL && s->conn->startup.beside && holders_alone(&s->conn->holders))
        beside_end(s->conn);
    if (s->conn != NULL)
        conn_release(s->conn, s);
    local_names_close(s);
    mark_closed(s);
    s->conn = NULL;
}

void startup_step_devices(void)
{
    device_setup_dispatch(startup_go_on);
}
