/*
 * Receiving and sending over a device, and the end of both.
 *
 * Receive path: device -> receive buffer, ring -> [verbs endpoint] -> [stream] -> the program's buffer.
 *
 * The holder of rx takes in what has arrived, and with it the peer's credits, for which a sender may wait: it tells the
 * sender. Likewise a sender that waits for credits and takes in bytes tells the reader.
 */
#include "preload/device/device_io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "core/base/trace.h"
#include "preload/conn/conn_board.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_rx.h"
#include "preload/device/rnic.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/spin.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/usermem.h"
#include "preload/sock/notify.h"
#include "preload/sock/wait.h"

/* How long one of the peer's two ends, TCP's and the device's, is waited for once the other has come. */
#define OTHER_END_NS 200000000u

bool device_is_ours(const struct conn *c)
{
    return rnic_there(c) && c->dev.pid == proc.pid;
}

int device_usable(const struct conn *c, int fd)
{
    return !device_is_ours(c) ? -EOPNOTSUPP : sock_ino(fd) != c->record.ino ? -ENOTSOCK : 0;
}

bool device_over(struct conn *c, int fd)
{
    if (!c->tx.shut || !device_is_ours(c) || turn_take_brief(&c->rx.turn) < 0)
        return c->reset;
    ssize_t r = c->st.rx.end == STREAM_OPEN ? device_fill(c, fd) : 0;
    bool over = r >= 0 && c->st.rx.end != STREAM_OPEN;
    turn_give(&c->rx.turn);
    return over || c->reset;
}

int device_chan(const struct conn *c)
{
    return device_is_ours(c) ? rnic_fd(c) : -1;
}

/* ---- the other direction ---- */

/* There may be room for a sender that found none. */
static void tell_sender(struct conn *c)
{
    if (!atomic_load(&c->dev.tx_wanted) || !atomic_exchange(&c->dev.tx_wanted, false))
        return;
    turn_event_signal(&c->rx.left);
    conn_tell(c);
    atomic_store(&c->rx.arrived, true); /* a waiter in epoll or poll looks at all of it */
}

/* Hands posted messages to the device. */
static int put_out(struct conn *c)
{
    int r = rnic_flush(c);
    stream_flushed(&c->st);
    return r < 0 ? r : rnic_flush(c);
}

/* Sends credits and other control messages. The caller holds tx. */
static void answer(struct conn *c, int fd)
{
    bool credit = stream_wants_credit(&c->st);
    /* An end that has closed sends nothing more: a frame that comes to its port would be answered by a reset. */
    if (credit && c->dev.mixed != NULL && tcpinfo_peer_closed(fd))
        credit = false;
    if (!credit && !rnic_ctrl_pending(c))
        return;
    int r = credit ? stream_credit(&c->st) : 0;
    if (r == 0)
        r = put_out(c);
    (void)r; /* no room, or the device has failed: the next flush or the end sees to it */
}

static void after_read(struct conn *c, int fd)
{
    if (!device_is_ours(c) || !(stream_wants_credit(&c->st) || rnic_ctrl_pending(c)))
        return;
    if (c->dev.tx_takes_in && turn_is_mine(&c->tx.turn)) {
        answer(c, fd);
        return;
    }
    /*
     * A holder at work gives the turn back soon, and may not send at all. A sender that waits may be waiting for the
     * peer, which waits for our credits: it is woken, and sends them.
     */
    if (turn_take_brief(&c->tx.turn) < 0) {
        turn_event_signal(&c->rx.left);
        conn_tell(c);
        return;
    }
    answer(c, fd);
    turn_give(&c->tx.turn);
}

/* ---- receiving ---- */

/* The caller holds rx; tx: it also holds tx. */
static int take_in(struct conn *c, int fd, bool tx)
{
    if (!device_is_ours(c) || c->st.rx.end == STREAM_BROKEN || c->broken)
        return 0;
    uint64_t before = stream_avail(&c->st);
    uint8_t end = c->st.rx.end;
    int r = rnic_poll(c);
    if (r < 0) {
        trace_info("fd %d: the peer's messages make no stream", fd);
        if (!tx)
            after_read(c, fd); /* (a Terminate) */
        REAL(shutdown)(fd, SHUT_RDWR);
        return 1;
    }
    if (!tx && (r > 0 || rnic_ctrl_pending(c)))
        after_read(c, fd);
    if (r == 0)
        return 0;
    if (!atomic_load(&c->dev.first)) {
        atomic_store(&c->dev.first, true);
        atomic_store(&c->dev.tx_wanted, true);
    }
    if (stream_avail(&c->st) != before || c->st.rx.end != end)
        atomic_store(&c->rx.arrived, true);
    conn_board_count(c);
    tell_sender(c);
    return 1;
}

void device_decode(struct conn *c, int fd)
{
    take_in(c, fd, false);
}

void device_after_recv(struct sock *s, struct conn *c, int fd)
{
    after_read(c, fd);
    /* The channel reports edges. The ready list reports what arrived before the channel was armed. */
    if (sock_watched(s) && device_is_ours(c)) {
        rnic_arm(c, true);
        take_in(c, fd, false);
    }
}

/* The TCP connection's state. 0: nothing; 1: its end; or -errno. */
static int tcp_end(struct conn *c, int fd)
{
    uint8_t octet;
    if (atomic_load(&c->dev.tcp_end))
        return 1;
    ssize_t n = REAL(recv)(fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    int err = n < 0 ? errno : n > 0 ? EPROTO : 0; /* no byte of the stream arrives there */
    atomic_store(&c->dev.tcp_end, true);
    return err != 0 ? -err : 1;
}

void device_was_reset(struct conn *c, int fd)
{
    int r = c->reset || !device_is_ours(c) ? 0 : tcp_end(c, fd);
    if (r < 0) {
        atomic_store(&c->so_error, -r);
        c->reset = true;
    }
}

/* Both ends come, in any order: waits a little for the other one. */
static void await_other_end(struct conn *c, int fd, bool tx)
{
    uint64_t end = proc_now_ns() + OTHER_END_NS, now;
    while ((now = proc_now_ns()) < end) {
        bool tcp = atomic_load(&c->dev.tcp_end);
        struct pollfd p = { .fd = tcp ? rnic_fd(c) : fd, .events = POLLIN };
        struct timespec ts = { .tv_nsec = (long)(end - now) };
        if (tcp) {
            rnic_arm(c, true);
            if (take_in(c, fd, tx) > 0 || rnic_ended(c))
                return;
        }
        if (REAL(ppoll)(&p, 1, &ts, NULL) > 0 && !tcp)
            return;
        rnic_drain(c);
    }
}

static ssize_t fill(struct conn *c, int fd, bool tx)
{
    if (!device_is_ours(c))
        return -EOPNOTSUPP;
    if (take_in(c, fd, tx) > 0)
        return 1;
    if (c->rx.shut)
        return -ESHUTDOWN;
    int r = tcp_end(c, fd);
    if (r == 0 && !rnic_ended(c))
        return -EAGAIN;
    if (take_in(c, fd, tx) > 0)
        return 1; /* the peer's bytes came before the end */
    /* The software stream shows the end of its own connection only behind all bytes that arrived there. */
    if (c->dev.mixed != NULL && r == 1 && !rnic_ended(c))
        return -EAGAIN;
    if (r >= 0 && !(r == 1 && rnic_ended(c))) {
        /* A peer that closes knows that its bytes have arrived; a peer that is killed does not. */
        await_other_end(c, fd, tx);
        if (take_in(c, fd, tx) > 0)
            return 1;
        if (r == 0)
            r = tcp_end(c, fd);
    }
    if (r < 0) {
        atomic_store(&c->so_error, -r);
        c->reset = true;
    }
    stream_eof(&c->st, r < 0 || (r == 1 && !rnic_cut_off(c))); /* (so_error reports a reset, once) */
    atomic_store(&c->rx.arrived, true);
    tell_sender(c);
    return 0;
}

ssize_t device_fill(struct conn *c, int fd)
{
    return fill(c, fd, false);
}

/*
 * Sleeps until the device, or the TCP connection, has something for a side that was armed. 0: look again; -errno. What
 * the channel reports for the other side is passed on. reader: the caller holds rx.
 */
static int sleep_on(struct sock *s, struct conn *c, int fd, uint64_t deadline, bool reader)
{
    int tcp = atomic_load(&c->dev.tcp_end) ? -1 : fd;
    int r = wait_for_both(tcp, POLLIN, rnic_fd(c), deadline, s);
    if (r < 0)
        return r;
    unsigned told = rnic_drain(c);
    if (told & VERBS_TOLD_TX)
        tell_sender(c);
    if ((told & VERBS_TOLD_RX) && !reader)
        conn_tell(c); /* a reader that has come since sleeps on the channel too */
    return r == 0 && deadline != 0 && proc_now_ns() >= deadline ? -EAGAIN : 0;
}

int device_await(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns)
{
    if (!device_is_ours(c))
        return -EOPNOTSUPP;
    if (turn_try(&c->rx.turn) < 0)
        return sleep_on(s, c, fd, deadline_ns, false); /* (its holder tells) */
    rnic_arm(c, true);
    ssize_t r = device_fill(c, fd);
    turn_give(&c->rx.turn);
    return r >= 0 ? 0 : sleep_on(s, c, fd, deadline_ns, false);
}

ssize_t device_wait_more(struct sock *s, struct conn *c, int fd, size_t most, bool *waits)
{
    (void)most, (void)waits; /* a device stages nothing, and counts its own waits */
    if (!device_is_ours(c))
        return -EOPNOTSUPP;
    if (conn_tail_is_mine(c) && turn_take_brief(&c->tx.turn) == 0) {
        c->tx.rest = device_flush(c, fd) != 0;
        turn_give(&c->tx.turn);
    }
    struct spin_look k;
    if (spin_begin(&k, &c->rx.spin)) {
        bool come;
        do
            come = take_in(c, fd, false) > 0;
        while (!come && spin_go_on(&k));
        spin_found(&k, &c->rx.spin, come);
        if (come)
            return 0;
    }
    rnic_arm(c, true);
    ssize_t r = device_fill(c, fd);
    if (r != -EAGAIN)
        return r < 0 ? r : 0;
    uint64_t deadline = wait_call_deadline(fd, SO_RCVTIMEO);
    const struct conn *before = wait_watch(c);
    sock_sleep(s);
    turn_sleep(&c->rx.turn);
    r = sleep_on(s, c, sock_fd_now(s, fd), deadline, true);
    turn_wake(&c->rx.turn);
    sock_wake(s);
    wait_unwatch(before);
    spin_end(&k, &c->rx.spin);
    return r;
}

/* ---- sending ---- */

/* Takes in credits, unless another thread does. The caller holds tx. True: something came. */
static bool take_credits(struct sock *s, struct conn *c, int fd)
{
    if (turn_try(&c->rx.turn) < 0)
        return false;
    bool some = fill(c, fd, true) >= 0;
    turn_give(&c->rx.turn);
    answer(c, fd);
    if (some)
        notify_readable(s);
    return some;
}

int device_flush(struct conn *c, int fd)
{
    (void)fd;
    if (!device_is_ours(c))
        return -EPIPE;
    int r = put_out(c);
    if (r == 0 && c->tx.fin_owed && !c->st.tx.fin && conn_can_send(c)) {
        r = stream_fin(&c->st);
        if (r == 0)
            r = put_out(c);
    }
    if (r == 0 && c->tx.fin_owed && !c->st.tx.fin)
        r = -EAGAIN;
    if (r != -EAGAIN)
        c->tx.fin_owed = false;
    return r == 0 && (c->st.tx.notify_owed || rnic_unsent(c) > 0) ? -EAGAIN : r;
}

void device_before_tail(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    if (!device_is_ours(c) || turn_try(&c->rx.turn) < 0)
        return;
    rnic_drain(c);
    rnic_arm(c, true);
    ssize_t r = device_fill(c, fd);
    turn_give(&c->rx.turn);
    if (r >= 0)
        notify_readable(s);
}

bool device_end_owed(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    device_before_tail(s, fd); /* a responder may send once it has taken in the initiator's first message */
    if (turn_take_brief(&c->tx.turn) < 0)
        return true;
    bool owed = device_flush(c, fd) == -EAGAIN;
    turn_give(&c->tx.turn);
    return owed;
}

/* A blocking send of the program's. */
struct sending {
    struct sock *s;
    struct conn *c;
    int fd;
    const struct signals_mark *ran; /* conn_ops' send */
    uint64_t deadline;              /* 0: it is not known yet, or there is none */
};

/*
 * The caller holds tx; seen: from before anything was looked at. So nothing that conn_tell or rx.left signals is
 * missed.
 */
static int await_room_seen(const struct sending *x, uint32_t seen)
{
    struct sock *s = x->s;
    struct conn *c = x->c;
    int fd = x->fd;
    atomic_store(&c->dev.tx_wanted, true);
    answer(c, fd);
    rnic_arm(c, false);
    bool reader = turn_try(&c->rx.turn) < 0;
    if (!reader) {
        rnic_arm(c, true);
        ssize_t r = fill(c, fd, true);
        turn_give(&c->rx.turn);
        answer(c, fd);
        if (r >= 0) {
            notify_readable(s);
            return 0;
        }
    }
    if (rnic_may_post(c) && stream_may_write(&c->st))
        return 0;
    int r;
    turn_sleep(&c->tx.turn);
    if (wait_was_interrupted(*x->ran, fd, SO_SNDTIMEO)) {
        r = -EINTR;
    } else if (reader) { /* the reader takes in what comes, and tells */
        r = turn_event_wait(&c->rx.left, seen, wait_left(x->deadline));
        r = r == -ETIMEDOUT ? -EAGAIN : r;
    } else {
        r = sleep_on(s, c, fd, x->deadline, false);
    }
    turn_wake(&c->tx.turn);
    return c->tx.shut ? -EPIPE : r;
}

#define PART_LEN (1024u * 1024u) /* looked at before it is sent: see usermem.h */
#define COPY_LEN 32768u          /* as conn_soft_tx.c */

/*
 * Bytes sent to a peer that has closed are lost. TCP learns that from the answer, and the next call fails. The device
 * knows it at once. True: TCP would have lost this call's bytes too.
 */
static bool lost(struct sock *s, struct conn *c, int fd)
{
    if (c->reset || c->tx.shut || c->broken || atomic_load(&c->dev.tcp_end))
        return false;
    /* (rdma_rxe does not report that the peer's queue pair is gone. TCP's end is that of the last close.) */
    if (!rnic_ended(c) && !(c->st.rx.end == STREAM_EOF && tcpinfo_peer_closed(fd)))
        return false;
    atomic_store(&c->so_error, c->st.rx.end == STREAM_EOF ? EPIPE : ECONNRESET);
    c->reset = true;
    atomic_store(&c->dev.tcp_end, true);
    conn_tell(c);
    notify_writable(s);
    notify_readable(s);
    return true;
}

/* Posts the next part, and sends it. Returns a number of bytes, which may be 0; or -errno. */
static ssize_t send_part(struct conn *c, struct iov_iter *it, size_t len)
{
    if (c->tx.shut || c->broken || atomic_load(&c->dev.tcp_end))
        return -EPIPE;
    size_t part = len < PART_LEN ? len : PART_LEN;
    size_t good = usermem_iter_read(it, part);
    if (SW_UNLIKELY(good < part) && (part = good - good % COPY_LEN) == 0)
        return -EFAULT;
    ssize_t n = stream_write(&c->st, it, part);
    return put_out(c) < 0 ? -EPIPE : n;
}

/*
 * Is there room after all? If not, its waiters are told from now on: a waiter for an edge does not look again before
 * one comes.
 */
static bool found_room(struct sock *s, struct conn *c, int fd)
{
    atomic_store(&c->dev.tx_wanted, true);
    rnic_arm(c, false);
    rnic_arm(c, true);
    return take_credits(s, c, fd) || (rnic_may_post(c) && stream_may_write(&c->st));
}

/* Waits until there may be room. 0: the caller tries again; -errno. The caller holds tx. */
static int wait_for_room(struct sending *x)
{
    if (x->deadline == 0)
        x->deadline = wait_call_deadline(x->fd, SO_SNDTIMEO);
    uint32_t seen = turn_event_seen(&x->c->rx.left);
    const struct conn *before = wait_watch(x->c);
    int r = await_room_seen(x, seen);
    wait_unwatch(before);
    x->fd = sock_fd_now(x->s, x->fd);
    return r;
}

/* In a blocking send: the program may then make no call for long, so the kernel must get everything. 0 or -errno. */
static int send_out(struct sending *x)
{
    int r = 0;
    while (r == 0 && rnic_unsent(x->c) > 0) {
        r = wait_for_room(x);
        if (put_out(x->c) < 0)
            r = -EPIPE;
    }
    return r;
}

ssize_t device_send(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                    const struct signals_mark *ran)
{
    (void)flags;
    int r = device_usable(c, fd);
    size_t done = 0;
    bool wait = ran != NULL;
    struct sending x = { .s = s, .c = c, .fd = fd, .ran = ran };
    if (SW_UNLIKELY(r < 0))
        return r;
    if (SW_UNLIKELY(lost(s, c, fd)))
        return (ssize_t)usermem_iter_read(it, len);
    while (done < len) {
        ssize_t n = send_part(c, it, len - done);
        r = n < 0 ? (int)n : 0;
        if (r < 0)
            break;
        done += (size_t)n;
        if (n > 0 && (wait || rnic_unsent(c) == 0))
            continue;
        r = wait ? wait_for_room(&x) : found_room(s, c, fd) ? 0 : -EAGAIN;
        if (r < 0)
            break;
    }
    if (wait && r == 0)
        r = send_out(&x);
    answer(c, x.fd);
    if (c->st.tx.notify_owed || rnic_unsent(c) > 0)
        c->tx.rest = true;
    if (done > 0)
        return (ssize_t)done;
    int err = r == -EPIPE ? atomic_exchange(&c->so_error, 0) : 0;
    return err != 0 ? -err : r;
}

/* ---- the end ---- */

/*
 * Asks the peer's device whether everything has arrived, which it answers without the peer's program: no kernel holds
 * bytes of ours that it would send without us.
 */
static void drain(struct sock *s, struct conn *c, int fd, uint32_t linger_ms)
{
    uint64_t end = proc_now_ns() + (uint64_t)linger_ms * 1000000u, now;
    bool asked = false;
    c->tx.fin_owed = !c->st.tx.fin;
    while ((now = proc_now_ns()) < end && tcp_end(c, fd) == 0) {
        int r = device_flush(c, fd);
        if (r < 0 && r != -EAGAIN)
            return;
        /* (Without credit for the FIN: TCP's end, which comes last, says the same.) */
        if (!asked && !c->st.tx.notify_owed) {
            r = rnic_fence(c);
            if (r < 0 && r != -EAGAIN)
                return;
            asked = r == 0;
        }
        if (asked && rnic_fence_done(c) != 0)
            return;
        rnic_arm(c, false);
        rnic_arm(c, true);
        if (take_credits(s, c, fd) || (asked && rnic_fence_done(c) != 0))
            continue;
        struct pollfd p[2] = { { .fd = rnic_fd(c), .events = POLLIN }, { .fd = fd, .events = POLLIN } };
        struct timespec ts = { .tv_sec = (time_t)((end - now) / 1000000000u),
                               .tv_nsec = (long)((end - now) % 1000000000u) };
        REAL(ppoll)(p, 2, &ts, NULL);
        rnic_drain(c);
    }
}

void device_close(struct sock *s, struct conn *c, int fd, bool exits)
{
    (void)exits;
    uint32_t linger_ms = proc.set.linger_ms;
    if (!device_is_ours(c))
        return;
    bool unread = false;
    if (turn_take_brief(&c->rx.turn) == 0) {
        unread = !c->rx.shut && (conn_rx_progress(c, fd, true), conn_rx_avail(c) > 0);
        turn_give(&c->rx.turn);
    }
    /* As with TCP, a close that leaves bytes unread is a reset. */
    if (unread)
        conn_reset_at_close(fd);
    int linger = unread ? 0 : conn_linger_s(s, fd);
    if (linger != 0 && turn_take_brief(&c->tx.turn) == 0) {
        drain(s, c, fd, linger > 0 ? conn_linger_ms(linger) : linger_ms);
        turn_give(&c->tx.turn);
    }
    conn_record(s, c);
    /* A child that was forked since then has the socket, and cannot use it: the peer sees the end now. */
    if (!holders_alone(&c->holders))
        REAL(shutdown)(fd, SHUT_RDWR);
}
