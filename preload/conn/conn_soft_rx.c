/*
 * Receiving an upgraded stream in software from the program's own TCP connection.
 *
 * kernel -> staging -> [iwarp: mpa, ddp, rdmap] -> [stream]
 *
 * The holder of the rx turn may sleep in the kernel's own recv, into the staging buffer: so time-outs, signals and
 * shutdown by another thread behave as the kernel's, because they are the kernel's.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_board.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_soft.h"
#include "preload/conn/conn_switch.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/process/cancel.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/spin.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"

/*
 * Sends what the receive side has to send: a Terminate, a Read Response. A sender that sleeps takes them along; another
 * holder of the turn may not send at all, and gives it back soon.
 */
static void send_ctrl(struct conn *c, int fd)
{
    if (!iwarp_ctrl_pending(&c->ep) || conn_only_answers(c) || turn_take_brief(&c->tx.turn) < 0)
        return;
    int r = conn_tx_flush(c, fd);
    if (r == -EAGAIN)
        conn_tx_later(c, fd);
    else if (r == -ECONNRESET)
        atomic_store(&c->so_error, ECONNRESET); /* the kernel reports it only once */
    turn_give(&c->tx.turn);
}

/*
 * The peer broke the protocol: after the Terminate the connection ends (RFC 5040 section 7.1).
 * RFC 5041 3 item 10, RFC 5040 7/3: with its one stream. RFC 5040 6.2.1/3: gracefully, so that the Terminate arrives.
 * RFC 5041 8.3.1/1: a peer that reaches for memory that is not its own is heard no more.
 */
static void break_off(struct conn *c, int fd)
{
    if (iwarp_state_now(&c->ep) == IWARP_FULL || iwarp_state_now(&c->ep) == IWARP_WAIT_RTR)
        iwarp_fail(&c->ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED });
    struct term_code t = iwarp_error(&c->ep);
    trace_info("fd %d: protocol error %u/%u/%#x: %s", fd, t.layer, t.etype, t.code, term_code_text(t));
    send_ctrl(c, fd);
    REAL(shutdown)(fd, SHUT_RDWR);
}

/* Decodes what is staged. */
void conn_soft_decode(struct conn *c, int fd)
{
    if (c->st.rx.end == STREAM_BROKEN || c->broken)
        return;
    bool could_send = iwarp_can_send(&c->ep);
    if (stream_poll(&c->st) < 0)
        break_off(c, fd);
    else
        send_ctrl(c, fd);
    if (could_send || !iwarp_can_send(&c->ep))
        return;
    turn_event_signal(&c->rx.left);
    conn_tell(c);
    atomic_store(&c->rx.rtr_came, true);
}

/* The program's own recv waits here. */
static __attribute__((noinline)) ssize_t recv_waiting(int fd, void *buf, size_t len, int flags)
{
    ssize_t n;
    CANCEL_POINT(n = sandbox_recv(fd, buf, len, flags));
    return n;
}

/* The kernel reports a reset only once: was it to the request that sends the tail, so that this receive finds an end? */
static bool reset_went_to_job(struct conn *c)
{
    int err = ECONNRESET;
    conn_tx_reap_idle(c);
    return atomic_compare_exchange_strong(&c->so_error, &err, 0);
}

/* The kernel gave n bytes where there was room for `room`; 0 is the end, -1 an error in errno. */
static ssize_t received(struct conn *c, int fd, ssize_t n, size_t room)
{
    if (n == 0 && reset_went_to_job(c)) {
        n = -1;
        errno = ECONNRESET;
    }
    if (n < 0 && errno == EPIPE && c->st.tx.total == 0)
        n = 0; /* the peer had closed when a frame of ours came: the program, which sent nothing, sees the end */
    if (n < 0 && errno == ECONNRESET) {
        n = conn_switch_reset_is_ours(c, fd) ? 0 : n;
        errno = ECONNRESET;
        if (n == 0)
            atomic_store(&c->rx.reset_unseen, true);
    }
    c->rx.empty = n < 0 ? errno == EAGAIN : n > 0 && (size_t)n < room;
    if (n < 0)
        return -errno;
    c->rx.kernel_total += (uint64_t)n;
    if (n > 0) /* (the kernel keeps the end, and reports it to every caller) */
        atomic_store_explicit(&c->rx.arrived, true, memory_order_relaxed);
    if (n == 0 && c->rx.shut)
        return -ESHUTDOWN; /* the library's own doing: what still arrives is still delivered, as Linux does */
    if (n == 0) {
        /*
         * RFC 5041 6.2.1/4: to the program it is the end of the stream. So it is in the middle of a frame (which the
         * endpoint notes): the peer was killed, and a program over TCP sees an end then. A peer that gives up bytes
         * resets: conn_tx_give_up.
         */
        (void)iwarp_in_end(&c->ep);
        stream_eof(&c->st, true);
    }
    return n;
}

/* As recv(2), into our memory. */
static ssize_t take(struct conn *c, int fd, void *p, size_t room, int flags)
{
    ssize_t n;
    if (flags & MSG_DONTWAIT)
        return sandbox_recv(fd, p, room, flags);
    turn_sleep(&c->rx.turn);
    n = recv_waiting(fd, p, room, flags);
    turn_wake(&c->rx.turn);
    return n;
}

/* An HSWI answers the HACK: none of its bytes can arrive before the HACK is acknowledged. */
static bool is_before_answer(const struct conn *c, int fd)
{
    return c->neg.deferred && (conn_only_leads(c) || tcpinfo_lacks(fd, c->neg.out_len));
}

/*
 * Urgent data before the answer is sent: no read may pass the kernel's mark, so the connection becomes plain at the
 * next call.
 */
static bool is_at_urgent(const struct conn *c, int fd)
{
    return conn_is_unsaid(c) && conn_kernel_urgent(fd);
}

#define HELD_NS 200000000u /* bytes that cannot be told apart are not kept back longer */
#define HELD_LOOK_MS 1

/* One receive before the switch. *all: nothing comes behind what was kept back before it. */
static ssize_t take_streamed(struct conn *c, int fd, int flags, bool *all)
{
    uint8_t *p;
    size_t room = conn_switch_space(c, &p);
    if (room == 0) {
        c->rx.empty = false;
        return -ENOBUFS;
    }
    *all = c->rx.held_len > 0 && netlink_peer_is_through(fd);
    ssize_t n = received(c, fd, take(c, fd, p, room, flags), room);
    if (n > 0)
        conn_switch_took(c, (size_t)n);
    if (c->rx.held_len > 0 && is_before_answer(c, fd))
        conn_switch_give_held(c);
    return n;
}

/* As fill, before the switch. When it returns, nothing is kept back. */
static ssize_t fill_streamed(struct conn *c, int fd, int flags)
{
    if ((flags & MSG_DONTWAIT) && is_at_urgent(c, fd))
        return -EAGAIN;
    for (uint64_t end = 0;;) {
        bool all = false;
        ssize_t n = take_streamed(c, fd, flags, &all);
        if (n == -ENOBUFS)
            return n;
        bool held = c->rx.held_len > 0;
        if (held && (n == 0 || all || (end != 0 && proc_now_ns() >= end)) && n <= 0) {
            n = n == -EAGAIN ? (ssize_t)c->rx.held_len : n;
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

#define APART_LEN 16384u /* what is staged is copied after each call */

/*
 * One recv into staging, of at most `most` bytes. Returns what recv returned, -errno, or -ENOBUFS if staging is full.
 * -EAGAIN with flags MSG_DONTWAIT: nothing there.
 */
ssize_t conn_soft_fill(struct conn *c, int fd, int flags, size_t most)
{
    uint8_t *p;
    if (SW_UNLIKELY(c->rx.mode == CONN_RX_STREAMED))
        return fill_streamed(c, fd, flags);
    size_t room = conn_rx_held(c) ? 0 : iwarp_in_space(&c->ep, &p);
    if (room == 0 && !conn_rx_held(c) && stream_pack(&c->st))
        room = iwarp_in_space(&c->ep, &p);
    if (room == 0) {
        c->rx.empty = false;
        return -ENOBUFS;
    }
    if (room > most)
        room = most;
    if (conn_is_apart(c) && room > APART_LEN + iwarp_in_need(&c->ep))
        room = APART_LEN + iwarp_in_need(&c->ep);
    ssize_t n = received(c, fd, take(c, fd, p, room, flags), room);
    if (n > 0)
        iwarp_in_fed(&c->ep, (size_t)n);
    conn_board_count(c);
    return n;
}

/* Nothing that is there stands before the bytes that come next, and these may go into the program's memory. */
static bool takes_directly(const struct conn *c)
{
    return conn_state(c) == CONN_UPGRADED && !c->broken && c->rx.mode == CONN_RX_FPDUS &&
           c->rx.pre_len == c->rx.pre_off && c->st.rx.n == 0 && c->st.rx.end == STREAM_OPEN &&
           c->st.rx.urgent == STREAM_URGENT_NONE && !sandbox_on();
}

/*
 * One recvmsg of what is there, with the payload of large frames straight into the program's memory, which has len
 * bytes. It does not wait, and completes what is not whole in staging: so whenever the thread sleeps, or is gone, all
 * bytes that are not the program's yet are in the connection's own memory. *placed bytes were given to the program;
 * what lies behind them in its memory has no meaning.
 *
 * Returns as fill; -EOPNOTSUPP: what comes next cannot be received this way. Then, and with -EAGAIN, *ahead says how
 * much to stage. *may: false if this way is not to be tried; becomes false if the memory cannot be written (`takes`
 * reports that).
 */
ssize_t conn_soft_fill_directly(struct conn *c, int fd, struct iov_iter *it, size_t len, size_t *ahead, size_t *placed,
                                bool *may)
{
    struct iovec iov[IWARP_DIRECT_IOV];
    struct iov_iter at = *it;
    size_t room = 0;
    void *p = NULL;
    if (!takes_directly(c))
        return -EOPNOTSUPP;
    size_t run = iov_iter_next(&at, len, &p);
    *ahead = iwarp_direct_ahead(&c->ep, run);
    size_t n_iov = iwarp_direct_plan(&c->ep, p, run, iov);
    if (n_iov == 0)
        return -EOPNOTSUPP;
    for (size_t i = 0; i < n_iov; i++)
        room += iov[i].iov_len;
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n_iov };
    ssize_t n = received(c, fd, REAL(recvmsg)(fd, &msg, MSG_DONTWAIT), room);
    if (n == -EFAULT) {
        *may = false;
        *ahead = SIZE_MAX;
        return -EOPNOTSUPP;
    }
    if (n <= 0)
        return n;
    uint64_t before = c->st.rx.placed;
    iwarp_direct_fed(&c->ep, (size_t)n);
    conn_soft_decode(c, fd);
    *placed = (size_t)(c->st.rx.placed - before);
    iov_iter_skip(it, *placed);
    return n;
}

void conn_soft_lowat(struct conn *c, int fd)
{
    /*
     * The kernel would never wake us for more than half the receive buffer; then a frame's rest is asked for in parts.
     */
    size_t need = iwarp_in_need(&c->ep);
    uint32_t want = need <= 1 ? 1 : need < 65536 ? (uint32_t)need : 65536;
    if (want == c->rx.kernel_lowat)
        return;
    int v = (int)want;
    if (sandbox_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, sizeof(v)) == 0)
        c->rx.kernel_lowat = want;
}

/* Looks whether more comes soon. Returns as fill. */
static ssize_t look_for_more(struct conn *c, int fd, struct spin_look *k, size_t most)
{
    ssize_t r = -EAGAIN;
    if (!spin_begin(k, &c->rx.spin))
        return r;
    do
        r = conn_soft_fill(c, fd, MSG_DONTWAIT, most);
    while (r == -EAGAIN && spin_go_on(k));
    spin_found(k, &c->rx.spin, r != -EAGAIN);
    return r;
}

/* Waits in the kernel's recv, without taking anything. 1, or -errno. */
static __attribute__((noinline)) int peek_waiting(int fd)
{
    uint8_t first;
    ssize_t n;
    CANCEL_POINT(n = REAL(recv)(fd, &first, sizeof(first), MSG_PEEK));
    return n < 0 ? -errno : 1;
}

/* No event tells that a process of other rights has taken bytes in and left them for this one. */
#define APART_LOOK_NS 50000000u

/*
 * Nothing of what the turn protects is used while it waits. in_kernel: in the socket's own recv, if that can be. As
 * conn_soft_wait_more.
 */
static ssize_t wait_beside(struct sock *s, struct conn *c, int fd, short events, size_t most, bool in_kernel)
{
    uint64_t deadline = wait_call_deadline(fd, SO_RCVTIMEO), until = deadline;
    if (conn_is_apart(c)) {
        uint64_t look = proc_now_ns() + APART_LOOK_NS;
        until = deadline != 0 && deadline < look ? deadline : look;
    }
    in_kernel = in_kernel && !sandbox_on() && !atomic_load(&proc.peek_off_used); /* (a look would use it up) */
    turn_rest(&c->rx.turn);
    ssize_t r = in_kernel && !conn_is_apart(c) ? peek_waiting(fd) : wait_for(fd, events, until, s);
    if (r == -EINVAL && in_kernel) /* a program in a jail may have no file more: RLIMIT_NOFILE */
        r = peek_waiting(fd);
    turn_wake(&c->rx.turn);
    conn_rx_whole(c, fd);
    if (c->broken)
        return 0;
    if (r > 0)
        r = conn_soft_fill(c, sock_fd_now(s, fd), MSG_DONTWAIT, most);
    else if (r == 0 && deadline != 0)
        r = -EAGAIN;
    return r == -EAGAIN && (deadline == 0 || proc_now_ns() < deadline) ? 0 : r;
}

/* Waits in the kernel for more, as long as the program's own recv would, and stages `most` of it. 0: look again. */
ssize_t conn_soft_wait_more(struct sock *s, struct conn *c, int fd, size_t most, bool *waits)
{
    if (c->rx.kernel_lowat != 1) {
        int one = 1;
        sandbox_setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
        c->rx.kernel_lowat = 1;
    }
    ssize_t r;
    short events = POLLIN;
    struct signals_mark ran = signals_ran();
    bool tail = conn_tail_is_ours(c) || (conn_is_apart(c) && !conn_only_answers(c)); /* (one left by another process) */
    if (tail && turn_take_brief(&c->tx.turn) == 0) {
        r = conn_tx_flush(c, fd);
        c->tx.rest = r != 0;
        if (r == -EAGAIN)
            events |= POLLOUT; /* the peer may wait for it before it answers */
        else if (r < 0 && r != -EPIPE)
            atomic_store(&c->so_error, (int)-r); /* the kernel reports it only once */
        turn_give(&c->tx.turn);
    }
    conn_begins_to_wait(s, waits);
    fd = sock_fd_now(s, fd);
    bool must_poll = events != POLLIN || pending_others(s) || conn_ring_busy();
    if (must_poll || atomic_load(&c->holders.n) > 1) { /* (another process may part from this one meanwhile) */
        r = wait_beside(s, c, fd, events, most, !must_poll);
    } else {
        struct spin_look k;
        r = look_for_more(c, fd, &k, most);
        if (r == -EAGAIN) {
            r = conn_soft_fill(c, sock_fd_now(s, fd), 0, most);
            spin_end(&k, &c->rx.spin);
        }
    }
    return r < 0 ? signals_but_ours((int)r, ran) : 0; /* (the connection may be shared by now) */
}

/* (At an urgent mark, which is at a frame's last byte, the kernel gives less than there is.) */
bool conn_soft_drained(const struct conn *c)
{
    return iwarp_in_need(&c->ep) != 1;
}

/* True: what the kernel delivered to the thread that is gone is booked. */
bool conn_soft_rx_mend(struct conn *c, int fd)
{
    uint64_t taken, tx;
    if (!tcpinfo_taken(fd, &taken, &tx))
        return false;
    if (taken == c->rx.kernel_total ||
        taken + 1 == c->rx.kernel_total) /* (a reset: tcpinfo_totals has counted it as a FIN) */
        return true;
    uint8_t *p;
    bool streamed = c->rx.mode == CONN_RX_STREAMED;
    size_t room = streamed ? conn_switch_space(c, &p)
                           : iwarp_in_space(&c->ep, &p); /* where that thread put them: nothing was staged since */
    if (taken < c->rx.kernel_total || taken - c->rx.kernel_total > room)
        return false;
    if (streamed)
        conn_switch_took(c, (size_t)(taken - c->rx.kernel_total));
    else
        iwarp_in_fed(&c->ep, (size_t)(taken - c->rx.kernel_total));
    c->rx.kernel_total = taken;
    return true;
}
