/* send(2) on a connection in any state, also in streaming mode before the decision. */
#include <errno.h>
#include <poll.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_plain.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_tx.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/notify.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/startup.h"

#define UNDECIDED_LEN 65536u /* bytes sent plain at a time: between two pieces the call looks for the Hello */

/*
 * Sends one piece as it is. Bytes sent; 0: it must not be sent so any more; -EBUSY: another thread has the turn;
 * -errno.
 */
static ssize_t send_as_it_is(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                             bool wait)
{
    ssize_t n = wait ? turn_take(&c->tx.turn, 0, true) : turn_take_brief(&c->tx.turn);
    if (n < 0)
        return n == -EINTR ? n : -EBUSY;
    if (conn_speaks_plain(c)) {
        /* (An HSWI that follows begins a segment, and so arrives as a whole: conn_switch.c.) */
        size_t most = len < UNDECIDED_LEN ? len : UNDECIDED_LEN;
        flags |= MSG_DONTWAIT | (c->startup.marked ? MSG_EOR : 0);
        n = conn_is_unasked(c) ? startup_send_asking(c, fd, it, most, flags) : conn_send_some(fd, it, most, flags);
        if (n > 0) {
            if (SW_UNLIKELY(c->tx.nodelay_lent))
                conn_nodelay_back(c, fd);
            c->startup.inherited = false;
            c->neg.streamed += (uint64_t)n;
            c->tx.kernel_total += (uint64_t)n;
            atomic_fetch_add(&c->tx.plain_total, (uint64_t)n);
        }
    }
    turn_give(&c->tx.turn);
    if (n == -EAGAIN)
        notify_blocked(s);
    return n;
}

/* The call's result when no more can be sent now: 0 if some bytes were, else the error. */
static ssize_t said(size_t done, ssize_t err)
{
    return done > 0 ? 0 : err;
}

/* Is there nothing more to send as it is? *r is the call's result then. */
static bool undecided_is_over(struct conn *c, size_t len, size_t done, int flags, ssize_t *r)
{
    enum conn_state st = conn_state(c);
    *r = 0;
    if (st != CONN_NEGOTIATING && st != CONN_CONNECTING)
        return true;
    if (!conn_shuts_later(c, SHUT_WR))
        return done == len;
    *r = done > 0 ? 0 : conn_broken_pipe(flags);
    return true;
}

/* Waits for these events as long as the call may; *fd as sock_fd_now. As wait_for; *late: the time is over. */
static int await_decision(struct sock *s, int *fd, short events, uint64_t *deadline, bool *late)
{
    if (*deadline == 0)
        *deadline = wait_call_deadline(*fd, SO_SNDTIMEO);
    sock_sleep(s);
    *fd = sock_fd_now(s, *fd);
    int r = wait_for(*fd, events, *deadline, s);
    sock_wake(s);
    *fd = sock_fd_now(s, *fd);
    *late = r == 0 && *deadline != 0 && proc_now_ns() >= *deadline; /* another thread may have been in time */
    return r;
}

/* The next piece. 1: look again; 0: there is no room, which the call waits for; -errno: it ends. */
static ssize_t send_what_goes(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool wait,
                              size_t *done)
{
    int rest = *done > 0 ? flags & ~MSG_ZEROCOPY : flags; /* the kernel counts calls */
    ssize_t n = send_as_it_is(s, s->conn, fd, it, len - *done, rest, wait);
    if (n < 0)
        return n == -EAGAIN && wait ? 0 : n == -EBUSY ? -EAGAIN : n;
    *done += (size_t)n;
    return 1;
}

/* A step, where it may find out something: known to be without an answer, it would find nothing that concerns a send. */
static int step_for_send(struct sock *s, struct conn *c, bool wait)
{
    if (beside_is_idle(c))
        return 0;
    return wait ? startup_go_on(s, false) : startup_hurry(s);
}

/*
 * The responder's program speaks before any Hello came: plain bytes, counted (the HelloAck says how many). Initiators,
 * and responders whose Hello is there, wait until it is decided. Returns 0 with *done bytes sent in streaming mode; or
 * -errno if none were. No turn held.
 */
static ssize_t send_undecided(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                              struct signals_mark ran, size_t *done)
{
    bool wait = sock_may_wait(s, flags);
    bool late = false;
    uint64_t deadline = 0;
    startup_await_hello(s, c);
    for (;;) {
        int r = step_for_send(s, c, wait);
        ssize_t n;
        if (undecided_is_over(c, len, *done, flags, &n))
            return n;
        short events = (short)c->startup.kernel_wants;
        if (conn_speaks_plain(c) && !late) { /* (the time is over: room that is found now comes too late) */
            n = send_what_goes(s, fd, it, len, flags, wait, done);
            if (n < 0)
                return said(*done, n);
            if (*done == len)
                return 0;
            if (n > 0)
                continue;
            events = POLLIN | POLLOUT;
        }
        if (!wait || late || r == -EDEADLK)
            return said(*done, -EAGAIN);
        r = wait_was_interrupted(ran, fd, SO_SNDTIMEO) ? -EINTR : await_decision(s, &fd, events, &deadline, &late);
        if (r < 0)
            return said(*done, r);
    }
}

/* It became plain in the middle of a send: sends the rest, as long as the program's call would go on. */
static ssize_t send_rest_plain(int fd, struct iov_iter *it, size_t len, size_t done, int flags)
{
    while (done < len) {
        ssize_t n = conn_send_some(fd, it, len - done, flags);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Has a handler run while the startup went on in the program's call, which therefore waits no more? */
static bool was_interrupted(const struct sock *s, int fd, int flags, const struct signals_mark *ran)
{
    return sock_may_wait(s, flags) && wait_was_interrupted(*ran, fd, SO_SNDTIMEO);
}

/* What there is room for. */
static ssize_t send_there(int fd, struct iov_iter *it, size_t len, int flags)
{
    ssize_t n = conn_send_some(fd, it, len, flags | MSG_DONTWAIT);
    return n == -EAGAIN ? -EINTR : n;
}

/* The send after the decision; `done` of len bytes went before. ran: from the call's begin. */
static ssize_t send_decided(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, size_t done,
                            int flags, const struct signals_mark *ran)
{
    enum conn_state st = conn_state(c);
    if (done > 0)
        flags &= ~MSG_ZEROCOPY; /* the kernel has counted this call */
    if (st == CONN_PLAIN && done > 0)
        return send_rest_plain(fd, it, len, done, was_interrupted(s, fd, flags, ran) ? flags | MSG_DONTWAIT : flags);
    int err = atomic_exchange(&c->so_error, 0);
    if (err != 0)
        return err == EPIPE ? conn_broken_pipe(flags) : -err;
    if (st == CONN_PLAIN)
        return was_interrupted(s, fd, flags, ran) ? send_there(fd, it, len, flags) : CONN_ASK_KERNEL;
    if (st == CONN_DEAD)
        return conn_broken_pipe(flags);
    if ((flags & MSG_OOB) && (!c->st.llp || !(c->st.cfg.peer.flags & STREAM_FLAG_URGENT)))
        return -EOPNOTSUPP;
    if (len == 0)
        return c->tx.shut || c->reset ? conn_broken_pipe(flags) : 0;
    ssize_t n = conn_send_upgraded(s, c, fd, it, len - done, flags, ran);
    return n >= 0 ? (ssize_t)done + n : done > 0 ? (ssize_t)done : n;
}

static ssize_t send_active(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags)
{
    struct conn *c = s->conn;
    struct signals_mark ran = signals_ran();
    if (SW_UNLIKELY(c->neg.deferred))
        startup_before_call(s, c, fd, (flags & MSG_OOB) != 0);
    if (SW_UNLIKELY(flags & MSG_OOB)) {
        startup_stay_unasked(s, REASON_URGENT);
        beside_decide(s); /* (a server that accepts later must not answer: it would not see that the byte is urgent) */
        (void)conn_decline(c, REASON_URGENT);
    }
    enum conn_state st = conn_state(c);
    size_t done = 0;
    if (st == CONN_NEGOTIATING || st == CONN_CONNECTING) {
        startup_finish_on_use(s);
        const struct conn *before = wait_watch(c);
        ssize_t r = send_undecided(s, c, fd, it, len, flags, ran, &done);
        wait_unwatch(before);
        if (r < 0)
            return r;
        /* May it send at all? (The kernel does not get the rest of the call.) */
        if (len == 0 && conn_speaks_plain(c))
            return REAL(send)(sock_fd_now(s, fd), NULL, 0, flags) < 0 ? -errno : 0;
        if (conn_state(c) == CONN_NEGOTIATING || (done > 0 && done == len))
            return (ssize_t)done;
    }
    bool answers = SW_UNLIKELY(c->neg.deferred) && conn_is_unsaid(c);
    ssize_t n = send_decided(s, c, fd, it, len, done, flags, &ran);
    if (answers && n > 0)
        conn_explain_upgraded(c, fd);
    return n;
}

ssize_t dispatch_send(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags)
{
    struct cancel hold = cancel_hold(conn_left, s);
    ssize_t n = send_active(s, fd, it, len, flags);
    cancel_restore(hold);
    return n;
}
