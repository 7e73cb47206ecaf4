/*
 * Steps of a startup for callers that do not hold its turns.
 */
#include <errno.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"
#include "preload/startup/startup.h"

int startup_in_turns(struct sock *s, bool brief, void (*step)(struct sock *s))
{
    struct conn *c = s->conn;
    int r = brief ? turn_try(&c->rx.turn) : turn_take_brief(&c->rx.turn);
    if (r < 0)
        return r;
    r = brief ? turn_try(&c->tx.turn) : turn_take_brief(&c->tx.turn);
    if (r == 0) {
        step(s);
        turn_give(&c->tx.turn);
    }
    turn_give(&c->rx.turn);
    return r;
}

static bool is_withdrawn_at_once(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && c->neg.state == NEGOTIATE_HELLO &&
           (c->startup.in_backlog || c->neg.cfg.may_switch);
}

static void withdraw(struct sock *s)
{
    if (is_withdrawn_at_once(s->conn))
        negotiate_withdraw(&s->conn->neg);
    startup_step(s);
}

void startup_step_hurried(struct sock *s)
{
    startup_step(s);
    if (is_withdrawn_at_once(s->conn))
        withdraw(s);
}

int startup_hurry(struct sock *s)
{
    const struct conn *c = s->conn;
    int r = startup_go_on(s, true);
    return r == 0 && is_withdrawn_at_once(c) ? startup_in_turns(s, true, withdraw) : r;
}

static void look(struct sock *s, void (*step)(struct sock *s))
{
    s->conn->startup.looks = true;
    step(s);
    s->conn->startup.looks = false;
}

static void step_glancing(struct sock *s)
{
    look(s, startup_asks_by_now(s->conn) ? startup_step_asking : startup_step_called);
}

static void withdraw_looking(struct sock *s)
{
    look(s, withdraw);
}

int startup_glance(struct sock *s, bool hurry, bool brief)
{
    conn_use(s->conn);
    int r = startup_in_turns(s, hurry || brief, step_glancing);
    return r == 0 && hurry && is_withdrawn_at_once(s->conn) ? startup_in_turns(s, true, withdraw_looking) : r;
}

int startup_hand_on(struct sock *s)
{
    return conn_undecided(s->conn) ? startup_in_turns(s, false, startup_step_last) : 0;
}

static void hand_afresh(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_undecided(c))
        atomic_store(&c->startup.handed_by, proc.pid);
}

static void hand_afresh_to_child(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_undecided(c))
        atomic_store(&c->startup.handed_by, HANDED_BY_PARENT);
}

void startup_hand_afresh(struct sock *s, bool to_child)
{
    int r = conn_undecided(s->conn) ? startup_in_turns(s, false, to_child ? hand_afresh_to_child : hand_afresh) : 0;
    (void)r; /* another thread has its turns: it is decided soon */
}

void startup_decline(struct sock *s)
{
    int r = 0;
    startup_stay_unasked(s, REASON_OWN_URING);
    if (conn_decline(s->conn, REASON_OWN_URING))
        r = startup_go_on(s, false);
    else if (conn_state(s->conn) == CONN_CONNECTING)
        r = startup_in_turns(s, false, startup_step_unmade);
    (void)r; /* nothing more can be done */
}

int startup_go_on(struct sock *s, bool brief)
{
    conn_use(s->conn);
    return startup_in_turns(s, brief, startup_step_called);
}

int startup_go_on_unused(struct sock *s)
{
    return startup_in_turns(s, false, startup_step);
}
