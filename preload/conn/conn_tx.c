/*
 * Sending on an upgraded connection: the send turn, and which thread or process sends what is left. The carrier does
 * the sending itself (conn_ops.h).
 */
#include <errno.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_plain.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_switch.h"
#include "preload/conn/conn_tx.h"
#include "preload/process/proc.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"

int conn_tx_flush(struct conn *c, int fd)
{
    conn_tx_whole(c, fd);
    return c->broken ? -EPIPE : conn_ops(c)->flush(c, fd);
}

int conn_tx_rest(struct conn *c, int fd)
{
    int r = conn_tx_flush(c, fd);
    c->tx.rest = r != 0;
    if (r != -EAGAIN)
        c->tx.fin_owed = false;
    if (r < 0 && r != -EAGAIN && r != -EPIPE)
        atomic_store(&c->so_error, -r); /* the kernel reports it only once */
    return r;
}

int conn_tx_push(struct conn *c, int fd)
{
    int r = conn_tx_flush(c, fd);
    c->tx.rest = r != 0;
    if (r == -EAGAIN)
        conn_tx_later(c, fd);
    else if (r < 0 && r != -EINTR && r != -EPIPE)
        atomic_store(&c->so_error, -r); /* the kernel reports it only once */
    return r;
}

void conn_tx_moved(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    int now = atomic_load(&s->fd);
    if (!c->tx.job_runs || c->tx.job.fd != fd || now < 0)
        return;
    conn_tx_stop(c);
    if (!c->tx.job_runs) {
        int r = conn_tx_push(c, now);
        (void)r; /* what is left is sent as before */
    }
}

/* ---- the program's sends ---- */

/*
 * The call holds rx, and gives it back. ran: as conn_ops' send. 1: the RTR has come; 0: look again; -EAGAIN; -EPIPE; or
 * why the wait ended.
 */
static int take_rtr(struct sock *s, struct conn *c, int fd, const struct signals_mark *ran, uint64_t deadline)
{
    conn_rx_progress(c, fd, true);
    bool over = c->st.rx.end != STREAM_OPEN || atomic_load(&c->so_error) != 0;
    turn_give(&c->rx.turn);
    conn_rtr_told(s);
    if (conn_can_send(c))
        return 1;
    if (over)
        return -EPIPE;
    if (ran == NULL)
        return -EAGAIN;
    if (wait_was_interrupted(*ran, fd, SO_SNDTIMEO))
        return -EINTR;
    sock_sleep(s);
    int r = conn_ops(c)->await(s, c, sock_fd_now(s, fd), deadline);
    sock_wake(s);
    return r < 0 ? r : 0;
}

/* Waits until the responder may send: the RTR has to come first (RFC 6581 section 9.2). */
static int await_rtr(struct sock *s, struct conn *c, int fd, const struct signals_mark *ran, uint64_t deadline)
{
    while (!conn_can_send(c)) {
        uint32_t seen = turn_event_seen(&c->rx.left);
        int r;
        if (turn_try(&c->rx.turn) == 0) {
            r = take_rtr(s, c, sock_fd_now(s, fd), ran, deadline);
            if (r != 0)
                return r < 0 ? r : 0;
        } else if (ran != NULL) {
            r = turn_event_wait(&c->rx.left, seen, wait_left(deadline));
            if (r == -EINTR)
                return r;
        } else {
            return -EAGAIN;
        }
        if (deadline != 0 && proc_now_ns() >= deadline)
            return -EAGAIN;
    }
    return 0;
}

/* Takes tx when the program may send. 0, or why not. */
static int take_to_send(struct sock *s, struct conn *c, int fd, const struct signals_mark *ran)
{
    bool wait = ran != NULL;
    uint64_t deadline = 0;
    int r = turn_try(&c->tx.turn);
    bool may = conn_can_send(c);
    if (r < 0 || !may)
        deadline = wait ? wait_call_deadline(fd, SO_SNDTIMEO) : 0;
    if (r < 0) {
        sock_sleep(s);
        r = wait ? turn_take(&c->tx.turn, wait_left(deadline), true) : turn_take_brief(&c->tx.turn);
        sock_wake(s);
        if (r < 0)
            return r == -EINTR ? r : -EAGAIN;
        may = conn_can_send(c);
    }
    if (may)
        return 0;
    turn_give(&c->tx.turn); /* rx comes before tx */
    const struct conn *before = wait_watch(c);
    r = await_rtr(s, c, fd, ran, deadline);
    wait_unwatch(before);
    if (r < 0)
        return r;
    r = wait ? turn_take(&c->tx.turn, wait_left(deadline), true) : turn_take_brief(&c->tx.turn);
    return r < 0 && r != -EINTR ? -EAGAIN : r;
}

ssize_t conn_send_upgraded(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                           const struct signals_mark *ran)
{
    bool wait = sock_may_wait(s, flags);
    ran = wait ? ran : NULL;
    conn_apart_look(c, false);
    int r = take_to_send(s, c, fd, ran);
    if (r < 0)
        return r == -EPIPE ? conn_broken_pipe(flags) : r;
    if (wait)
        sock_sleep(s);
    fd = sock_fd_now(s, fd);
    conn_tx_whole(c, fd);
    ssize_t n = conn_ops(c)->send(s, c, fd, it, len, flags, ran);
    if (SW_UNLIKELY(n == -EPIPE || n == -ECONNRESET) && conn_switch_takes_first(c, sock_fd_now(s, fd)))
        n = (ssize_t)len;
    /* The program has shut it down meanwhile, and no other thread sends its end. */
    if (SW_UNLIKELY(c->tx.fin_owed) && !(c->tx.job_runs && c->tx.job.then == TRANSPORT_THEN_SHUT_WR)) {
        int r2 = conn_tx_push(c, sock_fd_now(s, fd));
        (void)r2; /* what is left goes on */
    }
    if (wait)
        sock_wake(s);
    bool owed = conn_tail_is_ours(c);
    conn_room_used(c, n < 0 ? 0 : (size_t)n, len);
    turn_give(&c->tx.turn);
    if (n < 0 ? n == -EAGAIN : (size_t)n < len)
        notify_blocked(s);
    if (owed) { /* only this process's next wait, whichever it is, sends the tail */
        pending_add(s);
        notify_changed(s);
    }
    return n == -EPIPE ? conn_broken_pipe(flags) : n;
}
