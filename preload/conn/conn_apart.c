/* Connections that processes of different rights use: linking, turns, the end. What they hand on is in conn_rest.c. */
#include "preload/conn/conn_apart.h"

#include <errno.h>
#include <stddef.h>

#include "core/base/must.h"
#include "core/base/trace.h"
#include "preload/conn/conn_rest.h"
#include "preload/process/apart.h"
#include "preload/process/proc.h"
#include "preload/process/signals.h"

#define REST_VERSION 1u /* of what conn_rest.c hands on */

enum { RX, TX };

#define RECORD_LEN (CONN_REST_RX_MAX + CONN_REST_TX_MAX)

/* ---- the records that are mapped here ---- */

/*
 * By connection, without a lock for those who look: a signal handler may take a turn. An entry is never used for
 * another connection.
 */
#define RECORDS 1024u /* a power of two; more connections in one process are not handed on */
#define RECORDS_USED (RECORDS / 4 * 3)

static struct record {
    _Atomic(struct conn *) c;
    _Atomic uint32_t id;
    struct apart *_Atomic a; /* NULL: none now */
} records[RECORDS];
static unsigned records_n;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for changes; innermost */

/* c's entry, or the free one where it would be. */
static struct record *entry(const struct conn *c)
{
    for (unsigned i = (unsigned)((uintptr_t)c / sizeof(*c) * 2654435761u);; i++) {
        struct record *r = &records[i % RECORDS];
        const struct conn *is = atomic_load(&r->c);
        if (is == c || is == NULL)
            return r;
    }
}

/* The record by which c is handed on, if it is mapped here. */
static struct apart *record_of(const struct conn *c)
{
    const struct record *r = entry(c);
    return atomic_load(&r->c) == c && atomic_load(&r->id) == atomic_load(&c->apart.id) ? atomic_load(&r->a) : NULL;
}

/* The lock is held. */
static void unmap(struct record *r)
{
    struct apart *a = atomic_exchange(&r->a, NULL);
    if (a != NULL)
        apart_unmap(a, RECORD_LEN);
}

static void forget(const struct conn *c)
{
    lock_take(&lock);
    if (atomic_load(&entry(c)->c) == c)
        unmap(entry(c));
    lock_give(&lock);
}

static void make(struct conn *c)
{
    lock_take(&lock);
    struct record *r = entry(c);
    bool known = atomic_load(&r->c) == c;
    if ((known || records_n < RECORDS_USED) && record_of(c) == NULL) {
        uint32_t id = proc_random32(NULL) | 1u;
        unmap(r);
        struct apart *a = apart_map(RECORD_LEN);
        atomic_store(&r->id, id);
        atomic_store(&r->a, a);
        atomic_store(&r->c, c);
        records_n += !known;
        if (a != NULL)
            atomic_store(&c->apart.id, id);
    }
    lock_give(&lock);
}

void conn_apart_before_fork(struct conn *c)
{
    enum conn_state st = conn_state(c);
    /* (Used with others already, and by a record that a former program had: that one stays.) */
    if (st == CONN_FREE || st == CONN_DEAD || conn_is_apart(c) || record_of(c) != NULL ||
        (st == CONN_PLAIN && c->rx.pre_len == c->rx.pre_off))
        return;
    make(c);
}

void conn_apart_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}

void conn_apart_sweep(bool (*holds)(struct conn *c))
{
    lock_take(&lock);
    for (unsigned i = 0; i < RECORDS; i++) {
        struct conn *c = atomic_load(&records[i].c);
        if (c != NULL && !holds(c))
            unmap(&records[i]);
    }
    lock_give(&lock);
}

/* ---- turns ---- */

static int side_of(const struct turn *t)
{
    return atomic_load(&t->apart) - 1;
}

static struct conn *conn_of(struct turn *t)
{
    size_t off = side_of(t) == RX ? offsetof(struct conn, rx.turn) : offsetof(struct conn, tx.turn);
    return (struct conn *)(void *)((uint8_t *)t - off);
}

/* Do our process numbers mean nothing to others? */
static bool is_unsure(const struct conn *c)
{
    return atomic_load(&c->holders.mixed);
}

static uint8_t *octets_of(struct apart *a, int side)
{
    return side == RX ? a->octets : a->octets + CONN_REST_RX_MAX;
}

/* The side's lock is held. */
static bool save(struct conn *c, struct apart *a, int side)
{
    struct apart_side *s = &a->side[side];
    s->version = 0;
    bool ok = side == RX ? conn_rest_rx_save(c, s->numbers, octets_of(a, side))
                         : conn_rest_tx_save(c, s->numbers, octets_of(a, side));
    s->version = ok ? REST_VERSION : 0;
    uint32_t epoch = atomic_load(&s->epoch) + 1;
    c->apart.epoch[side] = epoch != 0 ? epoch : 1;
    atomic_store(&s->epoch, c->apart.epoch[side]);
    return ok;
}

static bool load(struct conn *c, struct apart *a, int side, uint32_t epoch)
{
    const struct apart_side *s = &a->side[side];
    bool ok = s->version == REST_VERSION && (side == RX ? conn_rest_rx_load(c, s->numbers, octets_of(a, side))
                                                        : conn_rest_tx_load(c, s->numbers, octets_of(a, side)));
    c->apart.epoch[side] = epoch;
    return ok;
}

/* It is another process's. */
static void is_gone(struct conn *c, int side)
{
    if (!atomic_exchange(&c->apart.gone, true))
        atomic_store(&c->so_error, ECONNRESET);
    atomic_store(&c->broken, true);
    if (side == RX && c->st.rx.end == STREAM_OPEN)
        c->st.rx.end = STREAM_RESET_BY_PEER;
    if (side == TX)
        c->tx.rest = c->tx.fin_owed = false;
}

/* Whoever looks at the turn finds it so, and resets the connection. */
static void spoiled(struct turn *t)
{
    t->orphan = TURN_LEFT_AT_WORK;
}

static void enter(struct turn *t)
{
    struct conn *c = conn_of(t);
    int side = side_of(t);
    if (t->apart_held || (c->broken && !c->apart.gone) || t->orphan == TURN_LEFT_AT_WORK)
        return;
    struct apart *a = c->apart.gone ? NULL : record_of(c);
    if (a == NULL || atomic_load(&a->claimed) != 0) {
        is_gone(c, side);
        return;
    }
    int r = apart_lock(&a->side[side], is_unsure(c));
    if (r < 0) {
        trace_info("conn %p: a process with other rights keeps it locked: %d", (void *)c, r);
        spoiled(t);
        return;
    }
    uint32_t epoch = atomic_load(&a->side[side].epoch);
    t->apart_held = epoch == c->apart.epoch[side] || load(c, a, side, epoch);
    if (!t->apart_held) {
        apart_unlock(&a->side[side]);
        trace_info("conn %p: what a process with other rights left there makes no sense", (void *)c);
        spoiled(t);
    }
}

static void leave(struct turn *t)
{
    struct conn *c = conn_of(t);
    int side = side_of(t);
    struct apart *a = record_of(c);
    if (!t->apart_held || a == NULL)
        return;
    t->apart_held = false;
    if (!c->broken && t->orphan != TURN_LEFT_AT_WORK) {
        if (!save(c, a, side))
            trace_info("conn %p: what is under way cannot be handed on", (void *)c);
    } else { /* the others do not go on from what was before */
        a->side[side].version = 0;
        atomic_fetch_add(&a->side[side].epoch, 1);
    }
    apart_unlock(&a->side[side]);
}

void conn_apart_start(void)
{
    turn_on_apart(enter, leave);
}

/* ---- parting ---- */

static void join(struct apart *a, struct holders *h, pid_t pid)
{
    apart_join(a, pid, atomic_load(&h->mixed));
}

static void join_all(struct conn *c, struct apart *a)
{
    pid_t who[HOLDERS_MAX];
    unsigned n = holders_all(&c->holders, who);
    for (unsigned i = 0; i < n; i++)
        join(a, &c->holders, who[i]);
}

/* The state goes into the record for the first time. The turn is this thread's, or its holder rests. */
static bool save_first(struct conn *c, struct apart *a, int side, struct turn *t)
{
    if (apart_lock(&a->side[side], is_unsure(c)) < 0)
        return false;
    /* From now on a holder that wakes up waits for that lock. */
    t->apart_held = false;
    atomic_store(&t->apart, (uint8_t)(side + 1));
    uint32_t asleep = atomic_load(&t->asleep);
    bool still = asleep == TURN_RESTS || turn_is_mine(t), ok = still && save(c, a, side);
    if (!ok && (still || asleep != TURN_AWAKE))
        atomic_store(&t->apart, 0);
    apart_unlock(&a->side[side]);
    return ok;
}

/*
 * False: it cannot be. (A holder that sleeps in the kernel with our memory, or the program's, does so from before the
 * fork.)
 */
static bool link_side(struct conn *c, struct apart *a, int side)
{
    struct turn *t = side == RX ? &c->rx.turn : &c->tx.turn;
    for (unsigned tries = 0; tries < 4; tries++) {
        if (turn_take_brief(t) == 0) {
            /* (Apart already: a holder that was just waking up has found it so, and this thread keeps the lock.) */
            bool ok = t->orphan == TURN_WHOLE && (t->apart_held || save_first(c, a, side, t));
            turn_give(t);
            return ok && a->side[side].version == REST_VERSION;
        }
        if (atomic_load(&t->asleep) == TURN_SLEEPS)
            return false;
        if (save_first(c, a, side, t))
            return true;
    }
    return false;
}

/* Can it be handed on? Both are used from now on by the record. */
static bool link_up(struct conn *c)
{
    struct apart *a = record_of(c);
    if (a == NULL || c->broken || atomic_load(&a->claimed) != 0 || !conn_rest_can(c))
        return false;
    if (conn_is_apart(c))
        return true;
    join_all(c, a);
    if (!link_side(c, a, RX))
        return false;
    if (link_side(c, a, TX))
        return true;
    atomic_store(&c->rx.turn.apart, 0);
    return false;
}

/* `to`: in this process's place of c. */
static void begin_apart(struct conn *c, struct conn *to, bool linked)
{
    enum turn_sleeps rx = turn_part(&to->rx.turn, &c->rx.turn), tx = turn_part(&to->tx.turn, &c->tx.turn);
    holders_begin_apart(&to->holders);
    to->apart.epoch[RX] = to->apart.epoch[TX] = 0;
    bool plain = conn_state(to) == CONN_PLAIN && to->rx.pre_len == to->rx.pre_off;
    if (rx != TURN_SLEEPS && tx != TURN_SLEEPS) /* (else a thread goes on with it in the middle of a call) */
        conn_rest_none(to);
    if (linked) {
        atomic_store(&to->rx.turn.apart, RX + 1);
        atomic_store(&to->tx.turn.apart, TX + 1);
        return;
    }
    enum conn_state st = conn_state(to);
    atomic_store(&to->apart.id, 0);
    /* (One that was declined before any Hello came is plain for both by the client's first octets, in the kernel.) */
    if (plain || conn_undecided(to))
        return;
    is_gone(to, RX);
    is_gone(to, TX);
    if (st != CONN_UPGRADED)
        atomic_store(&to->state, CONN_DEAD);
}

void conn_apart_part(struct conn *c, struct conn *to)
{
    bool device = !conn_on_socket(c), linked = !device && link_up(c);
    if (!linked && conn_state(c) == CONN_UPGRADED)
        trace_info("conn %p: it cannot be handed on, and stays with the processes that keep their rights", (void *)c);
    if (linked) {
        holders_go_apart(&c->holders);
    } else {
        holders_leave(&c->holders);
        forget(c);
    }
    if (device) /* it is its maker's, who has all of it: conn_ops.usable */
        holders_begin_apart(&to->holders);
    else
        begin_apart(c, to, linked);
}

void conn_apart_child(struct conn *c)
{
    struct apart *a = conn_is_apart(c) ? record_of(c) : NULL;
    if (a != NULL)
        join(a, &c->holders, proc.pid);
}

/* ---- alone again ---- */

#define LOOK_EVERY 64u /* calls */

/* Both turns are held, and the record's locks with them. */
static void be_alone(struct conn *c, struct apart *a)
{
    atomic_store(&a->claimed, 1); /* (for a process that was not seen) */
    apart_unlock(&a->side[TX]);
    apart_unlock(&a->side[RX]);
    c->rx.turn.apart_held = c->tx.turn.apart_held = false;
    atomic_store(&c->tx.turn.apart, 0);
    atomic_store(&c->rx.turn.apart, 0);
    atomic_store(&c->apart.id, 0);
    holders_apart_gone(&c->holders);
    forget(c);
}

/* Do processes with this memory have c, too? They have its record from before, and no other: they may part yet. */
static bool is_inherited(struct conn *c)
{
    return !holders_alone(&c->holders) && atomic_load(&c->holders.n) > (holders_apart(&c->holders) ? 2 : 1);
}

static void take_alone(struct conn *c, bool anyhow)
{
    if (record_of(c) == NULL || (!anyhow && is_inherited(c)) || turn_take_brief(&c->rx.turn) < 0)
        return;
    if (turn_take_brief(&c->tx.turn) == 0) {
        struct apart *a = record_of(c);
        if (a != NULL && c->rx.turn.apart_held && c->tx.turn.apart_held &&
            (anyhow || !apart_has_others(a, &c->holders)))
            be_alone(c, a);
        turn_give(&c->tx.turn);
    }
    turn_give(&c->rx.turn);
}

void conn_apart_look_again(struct conn *c, bool now)
{
    if ((now || atomic_fetch_add(&c->apart.calls, 1) % LOOK_EVERY == 0) && !c->broken)
        take_alone(c, false);
}

void conn_apart_claim(struct conn *c)
{
    if (conn_is_apart(c) && !c->broken)
        take_alone(c, true);
}

void conn_apart_exec(struct conn *c, bool failed)
{
    if (!lock_try(&lock)) /* (another thread may find that nobody else uses it) */
        return;
    struct apart *a = conn_is_apart(c) ? record_of(c) : NULL;
    if (a != NULL && failed)
        join(a, &c->holders, proc.pid);
    else if (a != NULL)
        apart_leave(a, proc.pid, is_unsure(c));
    lock_give(&lock);
}

bool conn_apart_leave(struct conn *c)
{
    bool all = true;
    struct apart *a = record_of(c);
    if (a != NULL)
        apart_leave(a, proc.pid, is_unsure(c));
    if (SW_UNLIKELY(holders_apart(&c->holders)) && atomic_load(&c->holders.n) == 2) { /* the last one on this side */
        all = a != NULL && !c->apart.gone && !apart_has_others(a, &c->holders) && atomic_exchange(&a->written, 1) == 0;
        holders_apart_gone(&c->holders);
    }
    if (a != NULL)
        forget(c);
    return all;
}
