/*
 * The program ends a connection, or itself, before or after the startup is over.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_mem.h"
#include "preload/process/cancel.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/startup.h"

/* How long a shutdown waits for a peer that runs sockwarp, whose library may be about to answer. */
#define ANSWER_NS 20000000u

/*
 * Before a shutdown: completes a startup under way, or gives it up if it waits for a listener's program. 0;
 * -EINPROGRESS: it waits for a call of the other program's, or for the call that a signal handler has interrupted.
 */
static int decide(struct sock *s, struct conn *c, int fd)
{
    uint64_t end = 0;
    for (;;) {
        int r = startup_hurry(s);
        if (r == -EBUSY)
            r = startup_go_on(s, false);
        if (conn_state(c) != CONN_NEGOTIATING || conn_speaks_plain(c))
            return 0;
        if (end == 0 && negotiate_peer_known(&c->neg))
            end = proc_now_ns() + ANSWER_NS;
        if (r == -EDEADLK || (end != 0 && proc_now_ns() >= end))
            return -EINPROGRESS;
        r = wait_for(fd, (short)c->startup.kernel_wants, end, s);
        if (r < 0 && r != -EINTR)
            return r;
    }
}

/* Tells the program's waiters that nothing more comes in. */
static void tell_end(struct sock *s)
{
    atomic_store(&s->conn->rx.arrived, true);
    notify_readable(s);
    conn_tell(s->conn);
}

/*
 * A FIN now would go before the startup's own bytes, and an end of reading would come before those of the peer. So the
 * shutdown is remembered, and the program's call succeeds. True: the startup is over meanwhile, and no other thread has
 * noticed the request.
 */
static bool shut_later(struct sock *s, struct conn *c, int how)
{
    uint8_t ways = how == SHUT_RDWR ? 1 << SHUT_RD | 1 << SHUT_WR : (uint8_t)(1 << how);
    atomic_fetch_or(&c->startup.shut_later, ways);
    enum conn_state st = conn_state(c);
    if (st != CONN_NEGOTIATING && st != CONN_CONNECTING)
        return (atomic_fetch_and(&c->startup.shut_later, (uint8_t)~ways) & ways) != 0;
    pending_add(s); /* it may have been dropped for its age */
    if (how != SHUT_RD)
        notify_writable(s);
    if (how != SHUT_WR)
        tell_end(s);
    else
        conn_tell(c);
    return false;
}

/*
 * A program that has shut down both ways gets no answer: if it came with bytes of the other program's, those would meet
 * a reset, as with TCP.
 */
static bool ends_both(const struct conn *c, int how)
{
    return c->startup.marked && conn_is_late(c) &&
           (how == SHUT_RDWR || (how == SHUT_RD && c->neg.mute) || (how == SHUT_WR && conn_shuts_later(c, SHUT_RD)));
}

/*
 * A Hello that comes just now must not be answered: behind the end of our bytes there is no answer. False: one was
 * answered before.
 */
static bool shutdown_undecided(struct sock *s, struct conn *c, int fd, int how, int *result)
{
    int rx = turn_take_brief(&c->rx.turn), tx = rx == 0 ? turn_take_brief(&c->tx.turn) : -EBUSY;
    enum conn_state st = conn_state(c);
    bool still = st == CONN_CONNECTING || (st == CONN_NEGOTIATING && conn_speaks_plain(c));
    bool late = conn_is_late(c), both = ends_both(c, how), rd = late && !both && (how == SHUT_RD || how == SHUT_RDWR);
    how = both ? SHUT_RDWR : how;
    if (still && !(late && how == SHUT_RD))
        *result = REAL(shutdown)(fd, rd ? SHUT_WR : how) < 0 ? -errno : 0;
    else if (still)
        *result = 0;
    if (still && *result == 0 && how != SHUT_RD && (c->responder || late) && rx == 0)
        negotiate_mute(&c->neg);
    if (still && *result == 0 && rd) /* the answer may still come in */
        atomic_fetch_or(&c->startup.shut_later, 1 << SHUT_RD);
    if (tx == 0)
        turn_give(&c->tx.turn);
    if (rx == 0)
        turn_give(&c->rx.turn);
    if (still)
        notify_blocked(s); /* an edge: a send fails at once now */
    if (still && rd)
        tell_end(s);
    return still;
}

void dispatch_shut_now(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    uint8_t ways = atomic_exchange(&c->startup.shut_later, 0);
    bool rd = ways & 1 << SHUT_RD, wr = ways & 1 << SHUT_WR;
    if (conn_state(c) != CONN_UPGRADED) {
        int how = rd && wr ? SHUT_RDWR : rd ? SHUT_RD : SHUT_WR;
        if (ways != 0)
            REAL(shutdown)(fd, how);
        return;
    }
    if (wr && !c->tx.shut && conn_shut_wr(c, fd) == -EAGAIN && !c->tx.job_runs)
        pending_add(s);
    if (rd) {
        c->rx.input_before_shut = tcpinfo_input_of(fd);
        c->rx.shut = true;
        REAL(shutdown)(fd, SHUT_RD);
    }
}

int dispatch_shutdown(struct sock *s, int fd, int how)
{
    struct conn *c = s->conn;
    startup_stay_unasked(s, REASON_CLOSED);
    enum conn_state st = conn_state(c);
    while (st == CONN_NEGOTIATING || st == CONN_CONNECTING) {
        const struct conn *before = wait_watch(c);
        struct cancel hold = cancel_never();
        int r = decide(s, c, fd);
        cancel_restore(hold);
        wait_unwatch(before);
        if (r == -EINPROGRESS && how >= SHUT_RD && how <= SHUT_RDWR && !shut_later(s, c, how))
            return 0;
        if (r != 0 && r != -EINPROGRESS)
            return r;
        if (shutdown_undecided(s, c, fd, how, &r))
            return r;
        st = conn_state(c);
    }
    if (st != CONN_UPGRADED || how < SHUT_RD || how > SHUT_RDWR)
        return REAL(shutdown)(fd, how) < 0 ? -errno : 0;
    return conn_shutdown(s, fd, how);
}

/* ---- close, exit ---- */

#define LATE_HELLO_NS 200000000u
#define LATE_HELLO_LOOK_MS 5

/*
 * The program has sent first and closes, and nothing has come yet. A Hello that is unread at the close, or comes after
 * it, would make the kernel reset the connection and drop its unsent bytes, though the client's program has sent
 * nothing. So the close looks for a Hello as long as there are unsent bytes. (No event tells that all was sent.)
 */
static void last_words(struct sock *s, struct conn *c, int fd)
{
    uint64_t end = proc_now_ns() + LATE_HELLO_NS;
    while (conn_undecided(c) && atomic_load(&c->tx.plain_total) > 0 && !sandbox_on()) {
        int unsent = 0;
        if (startup_go_on(s, true) < 0 || !conn_undecided(c) || REAL(ioctl)(fd, SIOCOUTQ, &unsent) < 0 || unsent == 0 ||
            proc_now_ns() >= end)
            break;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        REAL(poll)(&p, 1, LATE_HELLO_LOOK_MS);
    }
    pending_remove(s);
}

/*
 * Has the server's process just accepted, and may its answer be under way? Its last look may have been before our end,
 * and some of our bytes are not there yet. Then the close waits a moment for the answer.
 */
#define ANSWER_MS 20
static bool answer_may_come(int fd)
{
    int unacked = 0;
    return REAL(ioctl)(fd, SIOCOUTQ, &unacked) == 0 && unacked > 1 && netlink_peer_is_held(fd); /* (one is the end's) */
}

/*
 * The initiator closes before it has had an answer. An answer that is unread at the close would make the kernel reset
 * the connection, though the other program must see all bytes and the end. So an answer that has come is taken now, and
 * a responder that has seen the end sends none. (With SO_LINGER 0 the program wants a reset.)
 */
static void leave_late(struct sock *s, struct conn *c, int fd)
{
    /* An answer comes with bytes of the server's program, and these would meet a closed socket with TCP, too. */
    if (c->startup.marked) {
        pending_remove(s);
        return;
    }
    if (c->startup.beside) { /* an answer is in no socket's way; and a close wakes no thread that polls it */
        c->startup.leaves = true;
        beside_decide(s);
        pending_remove(s);
        return;
    }
    int r = startup_go_on(s, false);
    if (r < 0 || !conn_is_late(c) || conn_linger_s(s, fd) == 0)
        return;
    if (shutdown_undecided(s, c, fd, SHUT_WR, &r))
        r = startup_go_on(s, false);
    if (conn_is_late(c) && answer_may_come(fd)) {
        REAL(poll)(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, ANSWER_MS);
        r = startup_go_on(s, false);
    }
    pending_remove(s);
}

/*
 * Takes away what lies there now. What comes meanwhile stays: a peer that sends without end must not keep a close busy.
 */
static void throw_away(int fd)
{
    int left = tcpinfo_queued(fd);
    while (left > 0) {
        ssize_t n = REAL(recv)(fd, NULL, (size_t)left, MSG_TRUNC | MSG_DONTWAIT);
        if (n <= 0)
            return;
        left -= (int)n;
    }
}

/*
 * The responder closes before the startup is over. What the initiator's library has sent and will send is none of the
 * program's bytes, yet unread, or after the close, it would make the kernel reset: the end is announced first (an
 * initiator that knows of it sends no more), then what has come is taken away.
 *
 * One that this program has found, and not used, may be another's: it ran `date`, and closes nothing on exec. Nothing
 * tells which process has it, so it is left as it is. (If none has, the kernel answers a Hello that waits by a reset,
 * which the initiator takes for the end.)
 */
static void leave_startup(struct sock *s, struct conn *c, int fd)
{
    if (conn_is_late(c))
        leave_late(s, c, fd);
    if (conn_state(c) != CONN_NEGOTIATING || !c->responder || (c->startup.inherited && conn_undecided(c)))
        return;
    c->startup.no_device = true;
    if (conn_undecided(c))
        last_words(s, c, fd);
    int r = startup_go_on(s, false); /* takes a Hello that waits; another thread may be doing so */
    if (r < 0 || conn_state(c) != CONN_NEGOTIATING || conn_undecided(c) || conn_linger_s(s, fd) == 0)
        return;
    REAL(shutdown)(fd, SHUT_WR);
    throw_away(fd);
}

void dispatch_last_close(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    if (fd >= 0)
        atomic_store(&s->fd, fd); /* for the record: still open */
    conn_tx_finished(0);
    conn_record_leaves(c);
    conn_apart_look(c, true);
    if (fd >= 0 && holders_alone(&c->holders))
        leave_startup(s, c, fd);
    if (conn_state(c) == CONN_UPGRADED && fd >= 0)
        conn_ops(c)->close(s, c, fd, false);
    /* The last process that holds it writes the record. */
    if (holders_alone(&c->holders))
        conn_record(s, c);
    atomic_store(&s->fd, -1);
}

static void settle_one(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    if (c == NULL || atomic_load(&s->fd) != fd)
        return;
    conn_apart_look(c, true);
    bool alone = holders_alone(&c->holders);
    conn_record_leaves(c);
    if (alone)
        leave_startup(s, c, fd);
    if (conn_state(c) == CONN_UPGRADED)
        conn_ops(c)->close(s, c, fd, true);
    /* The last process that holds it writes the record. */
    if (alone)
        conn_record(s, c);
}

/* Only when no ring of ours works on it any more. */
static void leave_one(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (s->conn != NULL && atomic_load(&s->fd) == fd)
        conn_leave(s->conn, s);
}

void dispatch_settle_all(void)
{
    sock_each(settle_one, NULL);
    conn_tx_give_up(proc.set.linger_ms);
    sock_each(leave_one, NULL);
}
