/*
 * Connections: their memory, the changes of their state, their end.
 */
#include "preload/conn/conn.h"

#include <poll.h>
#include <string.h>

#include "core/base/probe.h"
#include "core/base/reason.h"
#include "core/base/sm.h"
#include "core/base/trace.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_board.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/explain.h"
#include "preload/process/board.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/stats.h"
#include "preload/process/tcpinfo.h"

static const struct sm_state states[] = {
    [CONN_FREE] = { "free", SM_TO(CONN_CONNECTING) | SM_TO(CONN_NEGOTIATING) },
    [CONN_CONNECTING] = { "connecting", SM_TO(CONN_NEGOTIATING) | SM_TO(CONN_PLAIN) | SM_TO(CONN_DEAD) },
    [CONN_NEGOTIATING] = { "negotiating",
                           SM_TO(CONN_CONNECTING) | SM_TO(CONN_UPGRADED) | SM_TO(CONN_PLAIN) | SM_TO(CONN_DEAD) },
    [CONN_UPGRADED] = { "full",
                        SM_TO(CONN_DEAD) | SM_TO(CONN_FREE) | SM_TO(CONN_PLAIN) }, /* (to PLAIN: startup_unanswered) */
    [CONN_PLAIN] = { "plain", SM_TO(CONN_DEAD) | SM_TO(CONN_FREE) },
    [CONN_DEAD] = { "dead", SM_TO(CONN_FREE) },
};

static void move(struct conn *c, enum conn_state to)
{
    uint8_t st = atomic_load(&c->state);
    sm_move(states, "conn", c, &st, (uint8_t)to);
    atomic_store(&c->state, st);
    conn_board_moved(c);
}

struct conn *conn_new(bool responder, enum conn_state state, const struct policy_rule *rule)
{
    struct conn *c = conn_alloc();
    if (c == NULL)
        return NULL;
    c->responder = responder;
    c->require = rule->action == POLICY_REQUIRE;
    c->opts = rule->opts;
    c->rx.kernel_lowat = 1;
    c->rx.user_lowat = 1;
    c->rx.peek_off = -1;
    conn_batch_init(c);
    c->record.born_ns = proc_now_ns();
    c->startup.kernel_wants = responder ? POLLIN : POLLOUT;
    atomic_store(&c->state, CONN_FREE);
    move(c, state);
    return c;
}

void conn_go_negotiating(struct conn *c)
{
    if (conn_state(c) != CONN_NEGOTIATING)
        move(c, CONN_NEGOTIATING);
}

void conn_go_upgraded(struct conn *c)
{
    atomic_store(&c->record.reason, REASON_UPGRADED);
    move(c, CONN_UPGRADED);
    PROBE3(upgraded, c, conn_ops(c)->name(c), mpa_rtr_name(c->neg.mpa.res.rtr));
}

void conn_go_connecting(struct conn *c)
{
    move(c, CONN_CONNECTING);
    c->startup.kernel_wants = POLLOUT;
}

bool conn_decline(struct conn *c, unsigned reason)
{
    if (!conn_undecided(c) || turn_take(&c->rx.turn, 0, false) < 0)
        return false;
    negotiate_decline(&c->neg, reason);
    turn_give(&c->rx.turn);
    return true;
}

void conn_use(struct conn *c)
{
    if (SW_UNLIKELY(atomic_load_explicit(&c->startup.user_pid, memory_order_relaxed) != proc.pid))
        atomic_store(&c->startup.user_pid, proc.pid);
}

bool conn_is_held(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && negotiate_wants_offer(&c->neg) &&
           atomic_load(&c->startup.user_pid) != proc.pid;
}

static void probe_plain(const struct sock *s, const struct conn *c, unsigned reason)
{
    (void)s;
    (void)c;
    (void)reason;
    PROBE4(plain, c, atomic_load(&s->fd), reason, reason_name(reason));
}

static void probe_refused(const struct sock *s, const struct conn *c, unsigned reason)
{
    (void)s;
    (void)c;
    (void)reason;
    PROBE4(refused, c, atomic_load(&s->fd), reason, reason_name(reason));
}

static void explain(const struct conn *c, int fd, const char *decision, unsigned reason)
{
    struct sockaddr_storage peer = c->peer;
    explain_decision(fd, c->responder ? "accept" : "connect", &peer, decision, reason);
}

void conn_explain_upgraded(const struct conn *c, int fd)
{
    explain(c, fd, conn_ops(c)->name(c), REASON_UPGRADED);
}

void conn_go_plain(struct sock *s, struct conn *c, unsigned reason)
{
    atomic_store(&c->record.reason, (uint8_t)reason);
    if (conn_state(c) != CONN_PLAIN)
        move(c, CONN_PLAIN);
    probe_plain(s, c, reason);
    conn_board_named(c, atomic_load(&s->fd));
    if (c->rx.pre_len == c->rx.pre_off && atomic_load(&c->so_error) == 0)
        atomic_store(&s->active, false);
    explain(c, atomic_load(&s->fd), "plain", reason);
}

void conn_go_dead(struct sock *s, struct conn *c, unsigned reason, int err)
{
    atomic_store(&c->so_error, err);
    atomic_store(&c->record.reason, (uint8_t)reason);
    move(c, CONN_DEAD);
    probe_refused(s, c, reason);
    explain(c, atomic_load(&s->fd), "refused", reason);
}

/* A connection that stayed plain was read and written without us: the kernel has counted. */
static void plain_totals(const struct conn *c, int fd, struct stats_record *r)
{
    uint64_t rx, tx;
    if (!tcpinfo_totals(fd, &rx, &tx))
        return;
    r->rx_bytes = rx > c->startup.rx_total ? rx - c->startup.rx_total : 0;
    r->tx_bytes = tx > c->startup.tx_total ? tx - c->startup.tx_total : 0;
}

void conn_upgraded_record(const struct conn *c, struct stats_record *r)
{
    r->transport = conn_ops(c)->name(c);
    r->rtr = mpa_rtr_name(c->neg.mpa.res.rtr);
    r->crc = c->neg.mpa.res.crc;
    r->tx_bytes = c->st.tx.total + atomic_load(&c->tx.plain_total);
    r->rx_bytes = c->st.rx.total + c->rx.plain_total;
    conn_ops(c)->record(c, r);
}

static void fill_record(struct sock *s, struct conn *c, struct stats_record *r)
{
    enum conn_state st = conn_state(c);
    memset(r, 0, sizeof(*r));
    r->pid = proc.pid;
    r->program = proc.program;
    r->role = c->responder ? "accept" : "connect";
    r->local = c->local;
    r->peer = c->peer;
    int fd = atomic_load(&s->fd);
    if (r->local.ss_family == 0 && fd >= 0) {
        socklen_t len = sizeof(r->local);
        if (REAL(getsockname)(fd, (struct sockaddr *)&r->local, &len) < 0)
            r->local.ss_family = 0;
    }
    r->transport = "plain";
    r->reason = atomic_load(&c->record.reason);
    r->rtr = "none";
    if (r->reason == REASON_NONE)
        r->reason = atomic_load(&c->tx.plain_total) == 0 ? REASON_CLOSED
                    : conn_is_late(c)                    ? REASON_WITHDRAWN
                                                         : REASON_SPOKE_FIRST;
    r->memory = conn_memory(c);
    if (c->opts.transports & HELLO_TRANSPORT_VERBS)
        r->device = c->dev.name[0] != '\0' ? c->dev.name : reason_name(c->dev.reason);
    bool unsaid = conn_is_unsaid(c); /* neither the program nor the library has sent anything */
    if (unsaid)
        r->reason = REASON_WITHDRAWN;
    if (st != CONN_UPGRADED || unsaid) {
        plain_totals(c, fd, r);
        return;
    }
    conn_upgraded_record(c, r);
}

void conn_figures(struct sock *s, struct conn *c, bool turn, struct stats_record *r)
{
    memset(r, 0, sizeof(*r));
    r->transport = "plain";
    r->rtr = "none";
    if (conn_state(c) != CONN_UPGRADED) {
        if (!sandbox_on())
            plain_totals(c, atomic_load(&s->fd), r);
    } else if (turn || conn_on_socket(c)) {
        conn_upgraded_record(c, r);
    } else {
        r->transport = conn_ops(c)->name(c);
    }
}

void conn_record_leaves(struct conn *c)
{
    c->record.unused = conn_undecided(c);
}

/*
 * Several programs have it, by exec, and each knows of its own use only: that one writes the line which has read or
 * sent. (What was decided by bytes that wait here is known by the kernel alone.)
 */
static bool is_anothers(const struct conn *c, int fd)
{
    uint64_t taken, said;
    bool handed = atomic_load(&c->record.handed);
    if ((!handed && !c->startup.inherited) || conn_state(c) == CONN_UPGRADED || !tcpinfo_taken(fd, &taken, &said))
        return false;
    bool touched = taken > c->startup.rx_total || said > c->startup.tx_total + c->neg.streamed;
    return touched ? c->record.unused : handed;
}

void conn_record(struct sock *s, struct conn *c)
{
    bool line_wanted = proc.set.stats_file[0] != '\0';
    if ((!line_wanted && !board_wanted()) || sandbox_on())
        return;
    bool anothers = is_anothers(c, atomic_load(&s->fd));
    if (atomic_exchange(&c->record.written, true) || anothers)
        return;
    struct stats_record r;
    fill_record(s, c, &r);
    if (board_wanted())
        conn_board_ended(c, &r);
    if (!line_wanted)
        return;
    char line[1536];
    size_t len = stats_format(&r, line, sizeof(line));
    proc_stats_write(line, len);
}

/*
 * (A thread that sleeps with a turn sleeps in a call of the program's on this descriptor. A sender may be about to wait
 * in poll, by number: conn_tell makes it look again.)
 */
void conn_let_out(struct sock *s, int fd)
{
    if (turn_take_brief(&s->conn->rx.turn) == 0)
        turn_give(&s->conn->rx.turn);
    if (turn_take_brief(&s->conn->tx.turn) == 0) {
        conn_tx_moved(s, fd);
        turn_give(&s->conn->tx.turn);
    } else {
        conn_tell(s->conn);
    }
    if (conn_is_late(s->conn)) /* a call that waits for the answer does so in poll, by descriptor number */
        conn_tell(s->conn);
}

uint64_t conn_ino(const struct sock *s)
{
    return s->conn->record.ino;
}
