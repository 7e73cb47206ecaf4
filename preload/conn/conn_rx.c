/*
 * Receiving on an active connection: recv(2)'s semantics over the stream.
 *
 * Receive path: kernel -> staging -> [iwarp: mpa, ddp, rdmap] -> [stream] -> the program's buffer.
 *
 * The holder of the rx turn may sleep in the kernel's own recv, into the staging buffer: so timeouts, signals and
 * shutdown by another thread behave as the kernel's because they are the kernel's.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_ops.h"
#include "preload/conn/conn_switch.h"
#include "preload/process/cancel.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/spin.h"
#include "preload/process/usermem.h"
#include "preload/sock/look.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"

size_t conn_rx_avail(const struct conn *c)
{
    return (c->pre_len - c->pre_off) + (conn_state(c) == CONN_UPGRADED ? (size_t)stream_avail(&c->st) : 0);
}

/* What the receive side wants sent: a Terminate, a Read Response. If a sender is at work it takes them along. */
static void send_ctrl(struct conn *c, int fd)
{
    if (!iwarp_ctrl_pending(&c->ep) || conn_only_answers(c) || turn_try(&c->tx) < 0)
        return;
    int r = conn_tx_flush(c, fd);
    if (r == -EAGAIN)
        conn_tx_later(c, fd);
    else if (r == -ECONNRESET)
        atomic_store(&c->so_error, ECONNRESET); /* the kernel tells it but once */
    turn_give(&c->tx);
}

/*
 * The peer broke the protocol: after the Terminate the connection ends (RFC 5040 section 7.1).
 * RFC 5041 3 item 10, RFC 5040 7/3: with its one stream. RFC 5040 6.2.1/3: gracefully, so that the Terminate arrives.
 * RFC 5041 8.3.1/1: whoever reaches for memory that is not his is heard no more.
 */
static void break_off(struct conn *c, int fd)
{
    if (iwarp_state_now(&c->ep) == IWARP_FULL || iwarp_state_now(&c->ep) == IWARP_WAIT_RTR)
        iwarp_fail(&c->ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION,
                                               TERM_RDMAP_UNSPECIFIED });
    struct term_code t = iwarp_error(&c->ep);
    trace_info("fd %d: protocol error %u/%u/%#x: %s", fd, t.layer, t.etype, t.code, term_code_text(t));
    send_ctrl(c, fd);
    REAL(shutdown)(fd, SHUT_RDWR);
}

/* Decodes what is staged. */
static void decode(struct conn *c, int fd)
{
    if (conn_on_device(c)) {
        device_ops.rx(c, fd);
        return;
    }
    if (c->st.rx.end == STREAM_BROKEN || c->broken)
        return;
    bool could_send = iwarp_can_send(&c->ep);
    if (stream_poll(&c->st) < 0)
        break_off(c, fd);
    else
        send_ctrl(c, fd);
    if (could_send || !iwarp_can_send(&c->ep))
        return;
    turn_event_signal(&c->rx_left);
    conn_tell(c);
    atomic_store(&c->rtr_came, true);
}

void conn_rtr_told(struct sock *s)
{
    if (SW_LIKELY(!atomic_load_explicit(&s->conn->rtr_came, memory_order_relaxed)) ||
        !atomic_exchange(&s->conn->rtr_came, false))
        return;
    notify_changed(s);
}

/* The program's own recv waits here. */
static __attribute__((noinline)) ssize_t recv_waiting(int fd, void *buf, size_t len, int flags)
{
    ssize_t n;
    CANCEL_POINT(n = sandbox_recv(fd, buf, len, flags));
    return n;
}

/* The kernel gave n octets, where there was room for so many; or the end, or -1 with errno. */
static ssize_t received(struct conn *c, ssize_t n, size_t room)
{
    if (n < 0 && errno == EPIPE && c->st.tx.total == 0)
        n = 0; /* the peer had closed when a frame of ours came: the program, which sent nothing, sees the end */
    /*
     * The initiator was killed, and with it went our answer, which nobody had read: to the program, which has sent nothing, that is
     * an ordinary end.
     */
    if (n < 0 && errno == ECONNRESET && c->rx_mode == CONN_RX_STREAMED && c->st.tx.total == 0) {
        atomic_store(&c->reset_unseen, true);
        n = 0;
    }
    c->rx_empty = n < 0 ? errno == EAGAIN : n > 0 && (size_t)n < room;
    if (n < 0)
        return -errno;
    c->kernel_rx += (uint64_t)n;
    if (n > 0) /* (the end is not taken from the kernel: it tells everybody itself) */
        atomic_store_explicit(&c->rx_arrived, true, memory_order_relaxed);
    if (n == 0 && c->rx_shut)
        return -ESHUTDOWN; /* our own doing: what still arrives is still delivered, as Linux does */
    if (n == 0)
        stream_eof(&c->st, iwarp_in_end(&c->ep)); /* RFC 5041 6.2.1/4: to the program it is the end of the stream */
    return n;
}

/* As recv(2) into our memory. */
static ssize_t take(struct conn *c, int fd, void *p, size_t room, int flags)
{
    ssize_t n;
    if (flags & MSG_DONTWAIT)
        return sandbox_recv(fd, p, room, flags);
    turn_sleep(&c->rx);
    n = recv_waiting(fd, p, room, flags);
    turn_wake(&c->rx);
    return n;
}

#define HELD_NS 200000000u /* what nobody can say anything about is not held back longer */
#define HELD_LOOK_MS 1

/* As fill, before the switch. Nothing is held back when it is over. */
static ssize_t fill_streamed(struct conn *c, int fd, int flags)
{
    for (uint64_t end = 0;;) {
        uint8_t *p;
        size_t room = conn_switch_space(c, &p);
        if (room == 0) {
            c->rx_empty = false;
            return -ENOBUFS;
        }
        bool all = c->held_len > 0 && netlink_peer_is_through(fd);
        ssize_t n = received(c, take(c, fd, p, room, flags), room);
        if (n > 0)
            conn_switch_took(c, (size_t)n);
        bool held = c->held_len > 0;
        if (held && (n == 0 || all || (end != 0 && proc_now_ns() >= end)) && n <= 0) {
            n = n == -EAGAIN ? (ssize_t)c->held_len : n;
            conn_switch_give_held(c);
            return n;
        }
        if (!held || (n < 0 && n != -EAGAIN && n != -EINTR))
            return n;
        flags |= MSG_DONTWAIT;
        if (end == 0)
            end = proc_now_ns() + HELD_NS;
        else if (n < 0)
            REAL(poll)(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, HELD_LOOK_MS);
    }
}

/*
 * One recv into staging, of at most `most` octets. Returns what recv returned, -errno, or -ENOBUFS if staging is full. -EAGAIN
 * with flags MSG_DONTWAIT: nothing there.
 */
static ssize_t fill(struct conn *c, int fd, int flags, size_t most)
{
    uint8_t *p;
    if (conn_on_device(c)) {
        ssize_t r = device_ops.fill(c, fd);
        c->rx_empty = r == -EAGAIN;
        return r;
    }
    if (SW_UNLIKELY(c->rx_mode == CONN_RX_STREAMED))
        return fill_streamed(c, fd, flags);
    size_t room = conn_rx_held(c) ? 0 : iwarp_in_space(&c->ep, &p);
    if (room == 0 && !conn_rx_held(c) && stream_pack(&c->st))
        room = iwarp_in_space(&c->ep, &p);
    if (room == 0) {
        c->rx_empty = false;
        return -ENOBUFS;
    }
    if (room > most)
        room = most;
    ssize_t n = received(c, take(c, fd, p, room, flags), room);
    if (n > 0)
        iwarp_in_fed(&c->ep, (size_t)n);
    return n;
}

/* Nothing that is there stands before what comes, and it may be put into the program's memory. */
static bool takes_directly(const struct conn *c)
{
    return conn_state(c) == CONN_UPGRADED && !conn_on_device(c) && !c->broken && c->rx_mode == CONN_RX_FPDUS && c->pre_len == c->pre_off && c->st.rx.n == 0 &&
           c->st.rx.end == STREAM_OPEN && c->st.rx.urgent == STREAM_URGENT_NONE && !sandbox_on();
}

/*
 * One recvmsg of what is there, payload of large frames straight into the program's memory, of which there are len octets. It
 * does not wait, and puts together in staging what is not whole: so whenever the thread sleeps, or is gone, all octets that are not
 * the program's are in the connection's own memory. *placed octets were given to the program; what is behind them in its memory
 * has no meaning.
 *
 * As fill; -EOPNOTSUPP: what comes next is nothing for this. Then, and with -EAGAIN, *ahead says how much to stage. *may: false
 * if it is not to be tried; becomes so if the memory cannot be written (`takes` sees to that).
 */
static ssize_t fill_directly(struct conn *c, int fd, struct iov_iter *it, size_t len, size_t *ahead, size_t *placed, bool *may)
{
    struct iovec iov[IWARP_DIRECT_IOV];
    struct iov_iter at = *it;
    size_t room = 0;
    void *p = NULL;
    *placed = 0;
    *ahead = SIZE_MAX;
    if (!*may || !takes_directly(c))
        return -EOPNOTSUPP;
    size_t run = iov_iter_next(&at, len, &p);
    *ahead = iwarp_direct_ahead(&c->ep, run);
    size_t n_iov = iwarp_direct_plan(&c->ep, p, run, iov);
    if (n_iov == 0)
        return -EOPNOTSUPP;
    for (size_t i = 0; i < n_iov; i++)
        room += iov[i].iov_len;
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n_iov };
    ssize_t n = received(c, REAL(recvmsg)(fd, &msg, MSG_DONTWAIT), room);
    if (n == -EFAULT) {
        *may = false;
        *ahead = SIZE_MAX;
        return -EOPNOTSUPP;
    }
    if (n <= 0)
        return n;
    uint64_t before = c->st.rx.placed;
    iwarp_direct_fed(&c->ep, (size_t)n);
    decode(c, fd);
    *placed = (size_t)(c->st.rx.placed - before);
    iov_iter_skip(it, *placed);
    return n;
}

/*
 * A peer may send frames without end that bring the program nothing, faster than they are decoded (RFC 5042 section 6.4).
 * After so many octets of them a call that must not wait gives up, and the program has the processor again.
 */
#define RX_IDLE_MAX (4u * 1024u * 1024u)

/* n octets came. True: the calls brought nothing else for too long. */
static bool idle_too_long(const struct conn *c, size_t *idle, uint64_t *avail, ssize_t n)
{
    if (stream_avail(&c->st) != *avail)
        *idle = 0;
    *avail = stream_avail(&c->st);
    *idle += n > 0 ? (size_t)n : 0;
    return *idle > RX_IDLE_MAX;
}

/* Is the kernel known to have nothing? (At an urgent mark, which is at a frame's last octet, it gives less than there is.) */
static bool drained(const struct conn *c)
{
    return c->rx_empty && (conn_on_device(c) || iwarp_in_need(&c->ep) != 1);
}

/* A wait, or its like, has taken in what had come, and decoded it. */
static void note_look(struct conn *c)
{
    c->rx_look = drained(c) ? look_found_empty() : 0;
}

int conn_rx_progress(struct conn *c, int fd, bool look)
{
    size_t idle = 0;
    uint64_t avail = stream_avail(&c->st);
    conn_rx_whole(c, fd);
    if ((c->pre_len > c->pre_off && c->rx_mode == CONN_RX_FPDUS) || atomic_load(&c->so_error) != 0)
        return 1;
    if (conn_state(c) != CONN_UPGRADED)
        return conn_state(c) == CONN_DEAD;
    decode(c, fd);
    /* The program's low-water mark counts its octets, the kernel's would count frames. */
    while (look && (conn_rx_avail(c) < conn_rx_target(c) && c->st.rx.end == STREAM_OPEN)) {
        ssize_t n = fill(c, fd, MSG_DONTWAIT, SIZE_MAX);
        decode(c, fd);
        note_look(c);
        if (n < 0) {
            if (n == -ESHUTDOWN)
                return 1;
            if (n != -EAGAIN && n != -EINTR && n != -ENOBUFS) {
                atomic_store(&c->so_error, (int)-n);
                return 1;
            }
            break;
        }
        if (idle_too_long(c, &idle, &avail, n))
            break;
    }
    return stream_readable(&c->st) || c->pre_len > c->pre_off;
}

/* A receive failed behind octets that are the program's first: the next call tells it. */
static void later_error(struct conn *c, ssize_t r)
{
    if (r < 0 && r != -EAGAIN && r != -EINTR && r != -ENOBUFS && r != -ESHUTDOWN)
        atomic_store(&c->so_error, (int)-r);
}

void conn_rx_all(struct conn *c, int fd)
{
    size_t idle = 0;
    uint64_t avail = 0;
    ssize_t n;
    conn_rx_whole(c, fd);
    if (conn_state(c) != CONN_UPGRADED)
        return;
    do {
        decode(c, fd);
        n = c->st.rx.end == STREAM_OPEN ? fill(c, fd, MSG_DONTWAIT, SIZE_MAX) : 0;
    } while (n > 0 && !idle_too_long(c, &idle, &avail, n));
    if (n > 0)
        decode(c, fd);
    later_error(c, n);
    note_look(c);
}

#define WAITING_ENOUGH (CONN_IN_LEN / 4)

/*
 * Octets still in the kernel are taken in first, as far as staging goes. Where many are staged already it is left at that, as if
 * the others had not come yet: a program that asks after each small read (wrk) would have a full staging moved down each time, to
 * make room for as little.
 */
int conn_rx_waiting(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    if (turn_take_brief(&c->rx) < 0)
        return 0;
    if (conn_rx_avail(c) < WAITING_ENOUGH)
        conn_rx_all(c, fd);
    else
        c->rx_empty = look_holds(c->rx_look);
    c->rx_owes = !drained(c);
    size_t n = conn_rx_count(c);
    turn_give(&c->rx);
    notify_readable(s); /* the kernel will not report them again */
    return n > INT_MAX ? INT_MAX : (int)n;
}

void conn_rx_lowat(struct conn *c, int fd)
{
    if (conn_state(c) != CONN_UPGRADED || conn_on_device(c))
        return;
    /* Beyond half the receive buffer the kernel would never wake us; a frame's rest is asked for in parts then. */
    size_t need = iwarp_in_need(&c->ep);
    uint32_t want = need <= 1 ? 1 : need < 65536 ? (uint32_t)need : 65536;
    if (want == c->lowat_now)
        return;
    int v = (int)want;
    if (sandbox_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, sizeof(v)) == 0)
        c->lowat_now = want;
}

/* The end of the stream as recv shows it: -ECONNRESET once, then end of file. */
static ssize_t end_result(struct conn *c)
{
    int err = atomic_exchange(&c->so_error, 0);
    if (err != 0) {
        c->reset_told = true;
        return -err;
    }
    if (conn_state(c) == CONN_UPGRADED &&
        (c->st.rx.end == STREAM_RESET_BY_PEER || c->st.rx.end == STREAM_BROKEN) && !c->reset_told) {
        c->reset_told = true;
        /* A peer that never sent an octet of the stream did not reset it, it never spoke it (DESIGN section 4). */
        return c->st.rx.end == STREAM_BROKEN && c->st.rx.total == 0 ? -EPROTO : -ECONNRESET;
    }
    return 0;
}

static bool ended(const struct conn *c)
{
    return atomic_load(&c->so_error) != 0 || conn_state(c) == CONN_DEAD ||
           (conn_state(c) == CONN_UPGRADED && (c->st.rx.end != STREAM_OPEN || c->broken));
}

/* Gives out what is ready. `done` octets were given before; with MSG_PEEK they are passed over. */
static size_t give(struct conn *c, struct iov_iter *it, size_t len, size_t done, int flags)
{
    size_t got = 0, skip = (flags & MSG_PEEK) ? done : 0;
    size_t pre = c->pre_len - c->pre_off;
    if (pre > skip && len > 0) {
        size_t n = pre - skip < len ? pre - skip : len;
        const uint8_t *p = c->pre + c->pre_off + skip;
        got = (flags & MSG_TRUNC) ? n : iov_iter_scatter(it, p, n);
        skip = 0;
        if (!(flags & MSG_PEEK)) {
            c->pre_off += got;
            c->plain_rx += got;
        }
    } else {
        skip -= pre < skip ? pre : skip;
    }
    if (conn_state(c) != CONN_UPGRADED || got == len)
        return got;
    if (flags & MSG_PEEK) {
        size_t n = stream_avail(&c->st) > skip ? (size_t)stream_avail(&c->st) - skip : 0;
        if (flags & MSG_TRUNC)
            return got + (n < len - got ? n : len - got);
        return got + stream_peek(&c->st, it, len - got, skip);
    }
    if (flags & MSG_TRUNC)
        return got + stream_discard(&c->st, len - got);
    return got + stream_read(&c->st, it, len - got);
}

/* Looks whether more comes soon. As fill. */
static ssize_t look_for_more(struct conn *c, int fd, struct spin_look *k, size_t most)
{
    ssize_t r = -EAGAIN;
    if (!spin_begin(k, &c->rx_spin))
        return r;
    do
        r = fill(c, fd, MSG_DONTWAIT, most);
    while (r == -EAGAIN && spin_go_on(k));
    spin_found(k, &c->rx_spin, r != -EAGAIN);
    return r;
}

void conn_begins_to_wait(struct sock *s, bool *waits)
{
    if (!*waits)
        sock_sleep(s);
    *waits = true;
}

/* Waits in the kernel for more, as long as the program's own recv would, and stages `most` of it. 0: look again. */
static ssize_t wait_more(struct sock *s, struct conn *c, int fd, size_t most, bool *waits)
{
    if (conn_on_device(c))
        return device_ops.wait_more(s, c, fd);
    if (c->lowat_now != 1) {
        int one = 1;
        sandbox_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
        c->lowat_now = 1;
    }
    ssize_t r;
    short events = POLLIN;
    if (conn_tail_is_ours(c) && turn_try(&c->tx) == 0) {
        r = conn_tx_flush(c, fd);
        c->tx_rest = r != 0;
        if (r == -EAGAIN)
            events |= POLLOUT; /* the peer may wait for it before it answers */
        else if (r < 0 && r != -EPIPE)
            atomic_store(&c->so_error, (int)-r); /* the kernel tells it but once */
        turn_give(&c->tx);
    }
    conn_begins_to_wait(s, waits);
    fd = sock_fd_now(s, fd);
    if (events != POLLIN || pending_others(s) || conn_ring_busy()) {
        uint64_t deadline = wait_call_deadline(fd, SO_RCVTIMEO);
        turn_sleep(&c->rx);
        r = wait_for(fd, events, deadline, s);
        turn_wake(&c->rx);
        r = r > 0 ? fill(c, sock_fd_now(s, fd), MSG_DONTWAIT, most) : r == 0 && deadline != 0 ? -EAGAIN : r;
        if (r == -EAGAIN && (deadline == 0 || proc_now_ns() < deadline))
            r = 0;
    } else {
        struct spin_look k;
        r = look_for_more(c, fd, &k, most);
        if (r == -EAGAIN) {
            r = fill(c, sock_fd_now(s, fd), 0, most);
            spin_end(&k, &c->rx_spin);
        }
    }
    return r < 0 ? r : 0;
}

/*
 * How much of what is there the program's memory can take. The kernel takes segments off its queue whole or not at all: an
 * octet of ours that cannot be stored keeps the whole slice.
 */
static size_t takes(const struct conn *c, const struct iov_iter *it, size_t len, size_t done, int flags)
{
    size_t pre = c->pre_len - c->pre_off, skip = (flags & MSG_PEEK) ? done : 0, there = conn_rx_avail(c);
    size_t want = there - (skip < there ? skip : there);
    if (want > len)
        want = len;
    size_t good = (flags & MSG_TRUNC) ? want : usermem_iter_write(it, want);
    if (SW_LIKELY(good == want))
        return len;
    size_t whole = pre > 0 && pre <= good ? pre : 0;
    for (uint32_t i = 0; i < c->st.rx.n && (pre == 0 || whole > 0) && conn_state(c) == CONN_UPGRADED; i++) {
        size_t next = c->st.rx.slice[(c->st.rx.first + i) % STREAM_SLICES].len;
        if (whole + next > good)
            break;
        whole += next;
    }
    return skip > 0 ? 0 : whole;
}

static ssize_t recv_full(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags, bool *waits)
{
    bool wait = !atomic_load(&s->nonblock) && !(flags & MSG_DONTWAIT);
    size_t lowat = atomic_load(&c->user_lowat);
    size_t target = (flags & MSG_WAITALL) ? len : lowat < len ? lowat : len;
    size_t done = 0, passed = conn_peek_at(c, flags), idle = 0;
    uint64_t avail = 0;
    bool directly = !(flags & (MSG_PEEK | MSG_TRUNC));
    conn_rx_whole(c, fd);
    c->rx_empty = look_holds(c->rx_look);
    for (;;) {
        if (conn_state(c) == CONN_UPGRADED)
            decode(c, fd);
        bool held = conn_rx_held(c);
        size_t most = len - done;
        if (SW_UNLIKELY(conn_state(c) == CONN_UPGRADED && c->st.rx.urgent != STREAM_URGENT_NONE) &&
            !conn_rx_to_mark(c, done, &passed, &most, flags))
            return (ssize_t)done;
        size_t can = takes(c, it, most, passed, flags);
        size_t got = give(c, it, can, passed, flags);
        done += got;
        passed += got;
        idle = got > 0 ? 0 : idle;
        if (can < most)
            return done > 0 ? (ssize_t)done : -EFAULT;
        if (most < len - (done - got) && got > 0)
            return (ssize_t)done; /* it ends at the mark */
        if (done == len && (len > 0 || conn_rx_avail(c) > 0))
            return (ssize_t)done;
        if (held && got > 0 && !(flags & MSG_PEEK))
            continue; /* what has been given out had held back frames that are staged still */
        if (done >= target && done > 0) {
            /*
             * A short read tells the users of edge-triggered epoll that there is no more (epoll(7)): then the kernel must
             * not hold octets whose edge was told already.
             */
            if (conn_state(c) != CONN_UPGRADED || c->st.rx.end != STREAM_OPEN || drained(c))
                return (ssize_t)done;
            size_t ahead, placed;
            ssize_t n = fill_directly(c, fd, it, len - done, &ahead, &placed, &directly);
            done += placed;
            if (n == -EOPNOTSUPP)
                n = fill(c, fd, MSG_DONTWAIT, ahead);
            if (n <= 0) {
                later_error(c, n);
                return (ssize_t)done;
            }
            continue;
        }
        if (ended(c))
            return done > 0 ? (ssize_t)done : end_result(c);
        if (conn_state(c) != CONN_UPGRADED) /* plain from here on: the caller asks the kernel, if it has what is next */
            return done > 0 || conn_rx_avail(c) == 0 ? (ssize_t)done : -EAGAIN;
        size_t ahead, placed;
        ssize_t r = fill_directly(c, fd, it, len - done, &ahead, &placed, &directly);
        done += placed;
        if (r == -EOPNOTSUPP || (r == -EAGAIN && wait))
            r = wait ? wait_more(s, c, fd, ahead, waits) : fill(c, fd, MSG_DONTWAIT, ahead);
        fd = sock_fd_now(s, fd);
        if (SW_UNLIKELY(c->urgent_told) && conn_urgent_interrupts(c, fd) && r >= 0 && done == 0)
            return -EINTR;
        if (placed > 0)
            idle = 0;
        else if (r > 0 && idle_too_long(c, &idle, &avail, r))
            r = -EAGAIN;
        if (r >= 0)
            continue;
        if (r == -ESHUTDOWN)
            return (ssize_t)done;
        if (r == -ENOBUFS) /* peeking at more than staging holds */
            return done > 0 ? (ssize_t)done : -EAGAIN;
        if (done == 0)
            return r;
        later_error(c, r);
        return (ssize_t)done;
    }
}

/* The program has read what FIONREAD told it, and may wait for an edge (nginx does). */
static void pay_owed(struct conn *c, int fd)
{
    c->rx_owes = false;
    if (!drained(c))
        conn_rx_all(c, fd);
}

ssize_t conn_recv_decided(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool *waits)
{
    struct conn *c = s->conn;
    bool wait = !atomic_load(&s->nonblock) && !(flags & MSG_DONTWAIT);
    uint64_t deadline = 0;
    int r = turn_try(&c->rx);
    if (r < 0) {
        deadline = wait ? wait_call_deadline(fd, SO_RCVTIMEO) : 0;
        uint64_t now = deadline ? proc_now_ns() : 0;
        conn_begins_to_wait(s, waits);
        r = wait ? turn_take(&c->rx, deadline > now ? deadline - now : 0, true) : turn_take_brief(&c->rx);
        fd = sock_fd_now(s, fd);
        if (r < 0)
            return r == -EINTR ? r : -EAGAIN;
    }
    ssize_t n = recv_full(s, c, sock_fd_now(s, fd), it, len, flags, waits);
    if (conn_on_device(c))
        device_ops.after_recv(s, c, sock_fd_now(s, fd));
    /* What was kept from the startup is not all: as of an upgraded one, a short read says that there is no more. */
    if (SW_UNLIKELY(n > 0 && (size_t)n < len && conn_state(c) == CONN_PLAIN && atomic_load(&c->so_error) == 0) &&
        ((flags & MSG_PEEK) ? conn_peek_at(c, flags) == 0 : conn_rx_avail(c) == 0))
        n += (ssize_t)conn_recv_rest_plain(sock_fd_now(s, fd), it, len - (size_t)n, flags);
    if (n > 0) {
        conn_batch_asked(c, wait);
        conn_peek_moved(c, (size_t)n, flags);
    }
    if (SW_UNLIKELY(c->rx_owes) && (drained(c) || conn_rx_avail(c) == 0))
        pay_owed(c, fd);
    bool more = conn_may_be_staged(c);
    bool plain = conn_state(c) == CONN_PLAIN && conn_rx_avail(c) == 0 && atomic_load(&c->so_error) == 0;
    bool full = conn_state(c) == CONN_UPGRADED;
    /* A program that waits by edges may wait next without a look of ours: the mark was for a frame that is whole now. */
    if (c->lowat_now > 1)
        conn_rx_lowat(c, fd);
    if (plain)
        conn_peek_give_back(c, sock_fd_now(s, fd));
    turn_give(&c->rx);
    if (full && !conn_can_send(c))
        turn_event_signal(&c->rx_left);
    conn_rtr_told(s);
    if (plain)
        atomic_store(&s->active, false);
    else if (more || ended(c))
        notify_readable(s);
    if (n == 0 && plain)
        return CONN_ASK_KERNEL;
    return n;
}
