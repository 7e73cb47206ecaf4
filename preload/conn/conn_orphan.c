/*
 * A turn whose holder is gone: a process that shared the connection was killed while it held the turn, a thread was
 * cancelled, or a signal handler jumped out of the call.
 *
 * A cancelled thread repairs it before it ends; otherwise the next thread that takes the turn does.
 *
 * If the holder was asleep, the state is whole except for what the kernel did last: it may have taken or delivered
 * bytes that are not booked. The kernel's own count tells how many. If the holder was at work, or had sent half a frame
 * whose bytes were in a process that is gone, the connection cannot go on: it is reset, as TCP resets a connection that
 * it cannot continue, and no program reads a byte that was not sent.
 */
#include <errno.h>
#include <netinet/in.h>

#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_tx.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"

static void broken(struct conn *c, int fd, const char *what)
{
    trace_error("fd %d: whoever was %s is gone in the middle of it; the connection is reset", fd, what);
    tcpinfo_reset(fd);
    atomic_store(&c->so_error, ECONNRESET);
    atomic_store(&c->broken, true);
}

void conn_rx_orphaned(struct conn *c, int fd)
{
    bool asleep = c->rx.turn.orphan == TURN_LEFT_ASLEEP;
    c->rx.turn.orphan = TURN_WHOLE;
    c->rx.turn.other_process = false;
    /* (The steps of a negotiation are taken again from where they stood.) */
    if (conn_state(c) == CONN_UPGRADED && !(asleep && (conn_ops(c)->rx_mend == NULL || conn_ops(c)->rx_mend(c, fd))))
        broken(c, fd, "receiving");
}

void conn_tx_orphaned(struct conn *c, int fd)
{
    bool asleep = c->tx.turn.orphan == TURN_LEFT_ASLEEP, other_process = c->tx.turn.other_process;
    c->tx.turn.orphan = TURN_WHOLE;
    c->tx.turn.other_process = false;
    if (conn_state(c) == CONN_UPGRADED &&
        !(asleep && (conn_ops(c)->tx_mend == NULL || conn_ops(c)->tx_mend(c, fd, other_process))))
        broken(c, fd, "sending");
}

/* The caller has the tx turn. True: something waits to be sent. */
static bool send_on(struct conn *c, int fd)
{
    conn_tx_whole(c, fd);
    if (conn_state(c) != CONN_UPGRADED || c->broken || !conn_tail_is_ours(c))
        return false;
    return conn_tx_rest(c, fd) == -EAGAIN;
}

void conn_left(void *arg)
{
    struct sock *s = arg;
    struct conn *c = s->conn;
    if (c == NULL) {
        sock_wake(s);
        sock_put(s);
        return;
    }
    int fd = atomic_load(&s->fd); /* after the last close this thread has it until sock_wake */
    bool rx = turn_left(&c->rx.turn), tx = turn_left(&c->tx.turn), owed = false;
    if (tx) {
        owed = fd >= 0 && send_on(c, fd); /* (otherwise the close sends it) */
        turn_give(&c->tx.turn);
    }
    if (rx) {
        if (fd >= 0)
            conn_rx_whole(c, fd);
        turn_give(&c->rx.turn);
    }
    sock_wake(s);
    enum conn_state st = conn_state(c);
    /* A connect() goes on with whatever waits next, as the kernel's does. */
    if (owed || (!c->responder && (st == CONN_CONNECTING || st == CONN_NEGOTIATING))) {
        pending_add(s);
        notify_changed(s);
    }
    if (rx) { /* other threads may have found the turn taken, and gone to sleep */
        turn_event_signal(&c->rx.left);
        conn_tell(c);
        notify_readable(s);
    }
    sock_put(s);
}
