/*
 * One step of a negotiation (core/negotiate), without waiting: sends its frames, receives the peer's, carries out the
 * decision.
 */
#include "preload/startup/startup.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_peek.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/device/device.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/shortage.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/hooks.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "preload/startup/beside.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/fallback.h"
#include "preload/startup/learned.h"
#include "preload/startup/local.h"
#include "preload/startup/syn.h"

#define TRIES 100u

/* (A shortage that is taken for the end would leave a Hello for the program to read.) */
ssize_t startup_peek(int fd, uint8_t *buf, size_t len)
{
    return DESPITE_SHORTAGE(REAL(recv)(fd, buf, len, MSG_PEEK | MSG_DONTWAIT));
}

ssize_t startup_greeting(int fd)
{
    uint8_t buf[HELLO_LEN_MAX];
    struct hello h;
    ssize_t n = startup_peek(fd, buf, sizeof(buf));
    return n > 0 ? hello_decode(buf, (size_t)n, &h) : -EPROTO;
}

/*
 * The program's error, kept for its next call: looking at the socket took it from the kernel. EPIPE is a reset behind
 * the peer's end: it had closed when a frame of ours came, and the program, which has sent nothing, sees the end.
 */
static void note_error(struct conn *c, int err)
{
    atomic_store(&c->so_error, err);
    /*
     * Before the answer, the reset may be one that our Hello caused: it came when the server's program had closed, or
     * when its listener was gone with its backlog.
     */
    c->startup.peer_reset = err == ECONNRESET && (negotiate_peer_known(&c->neg) ||
                                                  (c->startup.known_shim && !c->startup.beside &&
                                                   (c->startup.marked || !local_listens((struct sockaddr *)&c->peer))));
}

/* Has the initiator's TCP handshake ended? True: go on with the Hello. */
static bool tcp_is_up(struct sock *s, struct conn *c, int fd)
{
    int state = c->startup.tcp_is_up ? TCP_ESTABLISHED : tcpinfo_state(fd);
    if (state == TCP_SYN_SENT || state == TCP_SYN_RECV) {
        c->startup.kernel_wants = POLLOUT;
        return false;
    }
    syn_over(s, fd, (const struct sockaddr *)&c->peer);
    if (state == TCP_CLOSE || state < 0) { /* (-1: the number is something else by now) */
        beside_end(c);
        conn_go_plain(s, c, REASON_NOT_CONNECTED);
        return false;
    }
    return startup_begin_initiator(s, c) == 0;
}

/*
 * Nothing can be sent any more. The frames count as sent, so that the peer's last bytes, and its end, are still read.
 * If there is nothing to read, not even an end, the negotiation ends.
 */
static void give_up_out(struct conn *c, int fd, size_t len)
{
    uint8_t octet;
    negotiate_sent(&c->neg, len);
    if (startup_peek(fd, &octet, 1) < 0 && errno == EAGAIN)
        negotiate_eof(&c->neg);
}

bool startup_would_wait(struct conn *c, ssize_t n, uint32_t events)
{
    if (n >= 0)
        return false;
    if (errno == EAGAIN || errno == EINTR) {
        c->startup.kernel_wants = events;
        return true;
    }
    note_error(c, errno);
    return false;
}

/* Sends the negotiation's frames. False: would block. */
static bool step_out(struct conn *c, int fd)
{
    const uint8_t *p;
    for (size_t len; (len = negotiate_out(&c->neg, &p)) > 0;) {
        /* A closed socket would answer the Request by a reset, where the program is to see an end. */
        if (!c->responder && c->neg.state == NEGOTIATE_MPA && tcpinfo_peer_closed(fd)) {
            give_up_out(c, fd, len);
            continue;
        }
        ssize_t n = REAL(send)(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (startup_would_wait(c, n, POLLOUT))
            return false;
        if (n < 0) {
            give_up_out(c, fd, len);
            continue;
        }
        negotiate_sent(&c->neg, (size_t)n);
        c->tx.kernel_total += (uint64_t)n;
        c->startup.tx_total += (uint64_t)n;
    }
    return true;
}

/*
 * Was the Hello, just sent to a listener of this host, dropped because its backlog is full? One that answers by SYN
 * cookies knows a client only by its first segment, and resets it for a second one that comes first: the program's
 * bytes must not go behind this Hello.
 */
static bool hello_is_lost(const struct conn *c, int fd)
{
    int unacked = 0;
    return c->startup.known_shim && !c->startup.marked && !c->require && REAL(ioctl)(fd, SIOCOUTQ, &unacked) == 0 &&
           unacked > 0 && netlink_peer_is_unknown(fd);
}

/*
 * As step_out. False, too, when a hurried initiator has just sent its question: no answer can be there yet.
 */
static bool step_says(struct conn *c, int fd)
{
    bool first = c->startup.tx_total == 0 && !c->responder;
    bool asks = first && c->neg.state == NEGOTIATE_LATE;
    if (!step_out(c, fd))
        return false;
    if (first && c->startup.tx_total > 0 && hello_is_lost(c, fd)) {
        negotiate_unheard(&c->neg, REASON_BACKLOG_FULL);
        return true;
    }
    if (!asks || c->startup.tx_total == 0)
        return true;
    c->startup.kernel_wants = POLLIN;
    return false;
}

static void set_lowat(int fd, int octets)
{
    REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &octets, sizeof(octets));
}

/* The kernel's low-water mark is the program's again. */
static void lowat_back(struct conn *c, int fd, int octets)
{
    if (c->rx.kernel_lowat == 1)
        return;
    set_lowat(fd, octets);
    c->rx.kernel_lowat = 1;
}

/*
 * The responder looks for a Hello, or, after it has declined one, for its withdrawal; the initiator that has gone on in
 * streaming mode for the answer.
 */
static bool peeks(const struct conn *c)
{
    return c->neg.state == NEGOTIATE_PEEK || c->neg.state == NEGOTIATE_NAKED || c->neg.state == NEGOTIATE_LATE ||
           c->neg.state == NEGOTIATE_UNASKED;
}

/* The initiator looks for the answer among what the server says. */
static bool seeks_answer(const struct conn *c)
{
    return c->neg.state == NEGOTIATE_HELLO || c->neg.state == NEGOTIATE_WITHDRAWN;
}

/*
 * Has the initiator's program closed since its Hello, or sent urgent data? If it has closed, its kernel would meet our
 * answer with a reset, which destroys bytes under way. (A program that has only shut down its side waits for the
 * answer.) An urgent byte can be told apart only in streaming mode.
 */
static void look_at_late(struct conn *c, int fd)
{
    int state = tcpinfo_state(fd), may = netlink_peer_may_be_told(fd, &c->local, &c->peer);
    if (may < 0 && !local_same_host(&c->local, &c->peer))
        negotiate_defer(&c->neg);
    if (state == TCP_CLOSE || (may <= 0 && !c->neg.defers))
        negotiate_peer_ended(&c->neg);
    else if (conn_kernel_urgent(fd))
        negotiate_decline(&c->neg, REASON_URGENT);
}

void startup_count_streamed(struct conn *c, int fd)
{
    uint64_t rx, tx;
    if (!tcpinfo_totals(fd, &rx, &tx) || tx < c->startup.tx_total)
        return;
    if (c->neg.streamed != tx - c->startup.tx_total)
        trace_info("fd %d: %llu octets sent, %llu counted", fd, (unsigned long long)(tx - c->startup.tx_total),
                   (unsigned long long)c->neg.streamed);
    c->neg.streamed = tx - c->startup.tx_total;
    c->tx.kernel_total = tx;
    atomic_store(&c->tx.plain_total, c->neg.streamed);
}

/* errno stays. */
static bool is_at_mark(int fd)
{
    int mark = 0, err = errno;
    bool is = REAL(ioctl)(fd, SIOCATMARK, &mark) == 0 && mark != 0;
    errno = err;
    return is;
}

ssize_t startup_peek_first(int fd, uint8_t *first)
{
    *first = 0;
    ssize_t n = startup_peek(fd, first, 1);
    return n < 0 && errno == EAGAIN && is_at_mark(fd) ? 1 : n;
}

/*
 * Takes the frame that was looked at. It must not stay, for the program would read it: a call that fails is made again,
 * and where none succeeds the connection ends.
 */
static ssize_t take_seen(int fd, uint8_t *buf, size_t len)
{
    ssize_t n = REAL(recv)(fd, buf, len, MSG_DONTWAIT);
    for (unsigned i = 0; n < 0 && errno != EAGAIN && i < TRIES; i++)
        n = REAL(recv)(fd, buf, len, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN)
        tcpinfo_reset(fd);
    return n;
}

/* It was looked at, and is taken. */
static void take_hello(struct conn *c, int fd, uint8_t *buf, size_t len)
{
    lowat_back(c, fd, 1); /* what comes next may be shorter than the prefix was */
    ssize_t n = take_seen(fd, buf, len);
    c->rx.kernel_total += n > 0 ? (uint64_t)n : 0;
    c->startup.rx_total += n > 0 ? (uint64_t)n : 0;
    if (n != (ssize_t)len) /* another reader took them behind our back */
        trace_error("fd %d: the Hello vanished (%zd of %zu octets)", fd, n, len);
}

/* A step that only looks: the program's bytes stay in the kernel. False: would block. */
static bool step_peek(struct sock *s, struct conn *c, int fd)
{
    uint8_t buf[HELLO_LEN_MAX];
    if (c->startup.beside)
        return beside_step(c, fd);
    if (c->neg.state == NEGOTIATE_UNASKED)
        return startup_step_unasked(c, fd);
    ssize_t n = startup_peek(fd, buf, sizeof(buf));
    if (n < 0 && errno == EAGAIN && c->neg.state != NEGOTIATE_NAKED && is_at_mark(fd)) {
        buf[0] = 0; /* an urgent byte comes first: no Hello, or no answer */
        n = 1;
    }
    if (startup_would_wait(c, n, POLLIN))
        return false;
    if (n <= 0) {
        negotiate_eof(&c->neg);
        return true;
    }
    if (c->neg.state == NEGOTIATE_PEEK && negotiate_is_late(buf, (size_t)n))
        look_at_late(c, fd);
    if (c->neg.state == NEGOTIATE_LATE)
        startup_count_streamed(c, fd);
    size_t used = negotiate_in(&c->neg, buf, (size_t)n, proc_now_ns());
    if (used == 0 && device_offer(s, c))
        used = negotiate_in(&c->neg, buf, (size_t)n, proc_now_ns());
    if (used == 0 && conn_is_held(c)) {
        lowat_back(c, fd, 1);
        c->startup.kernel_wants = POLLIN;
        return false;
    }
    if (used > 0)
        take_hello(c, fd, buf, used);
    if (!peeks(c))
        lowat_back(c, fd, 1);
    if (used == 0 && peeks(c)) {
        /* A prefix: no thread need wake before it grows. */
        set_lowat(fd, (int)n + 1);
        c->rx.kernel_lowat = (uint32_t)n + 1;
        c->startup.kernel_wants = POLLIN;
        return false;
    }
    return true;
}

/* Where the bytes for the negotiation are collected. */
static uint8_t *collected(const struct conn *c)
{
    return seeks_answer(c) ? c->mem.pre : c->mem.in;
}

/*
 * Shows the negotiation the collected bytes, or those in buf that are seen for the first time. True: it took some, has
 * a frame to send, or is over. Bytes that it leaves are collected.
 */
static bool look_at(struct conn *c, const uint8_t *buf)
{
    bool hello = seeks_answer(c);
    uint8_t *to = collected(c);
    size_t used = negotiate_in(&c->neg, buf, c->startup.in_len, proc_now_ns());
    size_t keep = used == 0 ? c->startup.in_len : hello ? c->neg.prefix_len : 0;
    if (buf != to)
        memcpy(to, buf, keep);
    if (used > 0) {
        /* Bytes before the answer are for the program; the rest is the startup's. */
        size_t rest = c->startup.in_len - used;
        if (hello)
            c->rx.pre_len = keep;
        if (rest > CONN_IN_LEN) { /* a peer that keeps to the rules says nothing before the Request */
            negotiate_fail(&c->neg, REASON_MPA_FAILED);
            rest = 0;
        }
        memmove(c->mem.in, buf + used, rest);
        c->startup.in_len = rest;
    } else if (hello && !seeks_answer(c)) {
        c->rx.pre_len = c->startup.in_len;
        c->startup.in_len = 0;
    }
    const uint8_t *p;
    return used > 0 || c->neg.state >= NEGOTIATE_DONE || negotiate_out(&c->neg, &p) > 0;
}

/*
 * Startup frames are short, and mostly come alone: so the pages of the connection's buffers are not touched for them.
 */
#define FIRST_LEN 2048u

/* False: would block. */
static bool step_in(struct conn *c, int fd)
{
    uint8_t first[FIRST_LEN];
    if (conn_buffers(c) < 0) {
        negotiate_fail(&c->neg, REASON_NO_MEMORY);
        return true;
    }
    for (const uint8_t *seen = collected(c);;) {
        if (c->startup.in_len > 0 && look_at(c, seen))
            return true;
        bool hello = seeks_answer(c);
        if (hello && c->startup.in_len == c->mem.pre_cap && conn_grow_pre(c) < 0) {
            negotiate_fail(&c->neg, REASON_NO_MEMORY);
            return true;
        }
        bool fresh = c->startup.in_len == 0;
        uint8_t *buf = fresh ? first : collected(c) + c->startup.in_len;
        size_t room = fresh ? sizeof(first) : (hello ? c->mem.pre_cap : CONN_IN_LEN) - c->startup.in_len;
        ssize_t n = REAL(recv)(fd, buf, room, MSG_DONTWAIT);
        if (startup_would_wait(c, n, POLLIN))
            return false;
        if (n <= 0) {
            /* A peer that has answered by HelloAck runs sockwarp, as does a listener that was asked on this host. */
            c->startup.peer_closed = c->startup.known_shim || negotiate_peer_known(&c->neg);
            negotiate_eof(&c->neg);
            if (hello) {
                c->rx.pre_len = c->startup.in_len;
                c->startup.in_len = 0;
            }
            return true;
        }
        c->startup.in_len += (size_t)n;
        c->rx.kernel_total += (uint64_t)n;
        seen = fresh ? first : collected(c);
    }
}

/*
 * The events to wait for have changed. A thread in poll may have looked during this step, found the turns taken, and
 * gone to sleep for an event that this step has consumed: makes it look again.
 */
static void changed(struct sock *s)
{
    if (s->conn->startup.leaves)
        return;
    notify_changed(s);
    conn_tell(s->conn);
}

/*
 * Bytes that came beside the negotiation are the program's: at a responder all bytes behind a withdrawal, at an
 * initiator those that it read into pre.
 */
_Static_assert(CONN_PRE_LEN >= CONN_IN_LEN, "what was staged has room as octets of before");
static void keep_octets(struct conn *c)
{
    if (c->startup.in_len > 0) {
        size_t n =
            c->startup.in_len < c->mem.pre_cap - c->rx.pre_len ? c->startup.in_len : c->mem.pre_cap - c->rx.pre_len;
        memcpy(c->mem.pre + c->rx.pre_len, c->mem.in, n);
        c->rx.pre_len += n;
        c->startup.in_len = 0;
    }
    if (!c->responder)
        c->startup.rx_total = c->rx.kernel_total - c->rx.pre_len;
}

static void stay_plain(struct sock *s, struct conn *c)
{
    keep_octets(c);
    conn_go_plain(s, c, c->neg.reason);
}

/*
 * The peer's program has closed. The program gets its bytes, then the end. We report the end, because a reset that
 * answers a frame of ours may still come, and the kernel would report that (recvmmsg, SO_ERROR, POLLERR).
 */
static void peer_ended(struct sock *s, struct conn *c)
{
    keep_octets(c);
    conn_go_dead(s, c, c->neg.reason, 0);
}

/*
 * Has only the peer's direction ended, before it answered the Hello (negotiate_mute)? A closed socket would have
 * answered the Hello by a reset.
 */
static bool half_closed(const struct conn *c, int fd)
{
    int unacked = 1;
    return c->neg.reason == REASON_HELLO_CLOSED && atomic_load(&c->so_error) == 0 &&
           tcpinfo_state(fd) == TCP_CLOSE_WAIT && REAL(ioctl)(fd, SIOCOUTQ, &unacked) == 0 && unacked == 0;
}

/*
 * The same for an initiator in streaming mode whose program has sent nothing: only frames of ours met the end or reset.
 * (A peer that has ended only its own direction has acknowledged them.)
 */
static bool ended_unanswered(const struct conn *c, int fd)
{
    int err = atomic_load(&c->so_error), state, unacked = 0;
    if (c->responder || c->startup.beside || !c->neg.cfg.may_switch || c->neg.reason != REASON_WITHDRAWN ||
        c->neg.streamed > 0 || c->neg.answered || c->neg.mute || c->startup.peer_reset ||
        (err != 0 && err != ECONNRESET && err != EPIPE))
        return false;
    state = tcpinfo_state(fd);
    return err != 0 || state == TCP_CLOSE ||
           (state == TCP_CLOSE_WAIT && REAL(ioctl)(fd, SIOCOUTQ, &unacked) == 0 && unacked > 0);
}

/*
 * The same, and the other program has sent something. If its listener has no name any more, the connection went to a
 * program without the library, which has read our Hello: a master starts its workers with a clean environment when a
 * client comes. Our program has sent nothing yet, so the connection is made once more, without a Hello.
 */
static bool met_plain_worker(const struct conn *c)
{
    return !c->responder && !c->startup.beside && c->startup.known_shim && c->neg.cfg.may_switch &&
           c->neg.reason == REASON_WITHDRAWN && c->neg.streamed == 0 && c->neg.answered && !c->neg.mute &&
           atomic_load(&c->so_error) == 0 && local_lost_name((const struct sockaddr *)&c->peer);
}

static void settle_upgraded(struct sock *s, struct conn *c, int fd)
{
    if (c->startup.marked)
        learned_answers((const struct sockaddr *)&c->peer);
    if (startup_upgrade(s, c) < 0) {
        conn_go_dead(s, c, REASON_NO_MEMORY, ECONNRESET);
    } else if (conn_may_be_staged(c)) { /* the RTR came with the last look: the program may send */
        c->dev.tx_takes_in = true;
        conn_rx_progress(c, fd, false);
        c->dev.tx_takes_in = false;
    }
}

static void settle_plain(struct sock *s, struct conn *c, int fd)
{
    if (c->startup.marked && c->neg.answered)
        fallback_remember(c, fd);
    if (c->require) {
        fallback_refuse(s, c, fd, c->neg.reason);
    } else if (met_plain_worker(c)) {
        fallback_plain(s, c, fd);
    } else if (ended_unanswered(c, fd)) {
        c->startup.peer_closed = true;
        conn_go_dead(s, c, REASON_CLOSED, 0);
    } else {
        stay_plain(s, c);
    }
}

static void settle_by_fallback(struct sock *s, struct conn *c, int fd)
{
    /* (The reset that an unread Hello caused would have been an ordinary end without it.) */
    if (!c->startup.peer_reset)
        atomic_store(&c->so_error, 0);
    if (!c->startup.peer_closed || c->require)
        fallback_plain(s, c, fd);
    else if (c->startup.peer_reset || half_closed(c, fd))
        stay_plain(s, c);
    else
        peer_ended(s, c);
}

/* The negotiation is over, one way or the other. */
static void settle(struct sock *s, struct conn *c, int fd)
{
    lowat_back(c, fd, (int)atomic_load(&c->rx.user_lowat));
    if (c->neg.state != NEGOTIATE_DONE || !negotiate_by_device(&c->neg))
        device_drop(c);
    switch (c->neg.state) {
    case NEGOTIATE_DONE:
        settle_upgraded(s, c, fd);
        break;
    case NEGOTIATE_PLAIN:
        settle_plain(s, c, fd);
        break;
    case NEGOTIATE_FALLBACK:
        settle_by_fallback(s, c, fd);
        break;
    default:
        conn_go_dead(s, c, c->neg.reason, ECONNRESET);
        break;
    }
    if (c->tx.nodelay_lent && conn_state(c) == CONN_PLAIN)
        conn_nodelay_back(c, fd);
    if (conn_state(c) != CONN_CONNECTING) /* or it begins again */
        pending_remove(s);
    if (SW_UNLIKELY(atomic_load(&c->startup.shut_later) != 0) && conn_state(c) != CONN_CONNECTING)
        dispatch_shut_now(s, fd);
    changed(s);
    /*
     * The other program's bytes beside the startup were taken from the kernel, perhaps by a thread that waits for
     * something else.
     */
    if (conn_state(c) != CONN_CONNECTING && conn_may_be_staged(c)) {
        atomic_store(&c->rx.arrived, true);
        if (!c->startup.looks)
            notify_readable(s);
    }
}

/*
 * The program goes on with a connection that no call of ours has reported: it waits by system calls of its own, which
 * would not report bytes that we hold. Nothing has been sent to the peer yet.
 */
static void leave_unseen(struct sock *s, struct conn *c)
{
    int state = tcpinfo_state(atomic_load(&s->fd));
    if (state == TCP_SYN_SENT || state == TCP_SYN_RECV)
        return;
    syn_over(s, atomic_load(&s->fd), (const struct sockaddr *)&c->peer);
    if (!beside_give_up(c)) {
        startup_step(s);
        return;
    }
    conn_go_plain(s, c, state == TCP_CLOSE || state < 0 ? REASON_NOT_CONNECTED : REASON_EPOLL_KIND);
    pending_remove(s);
    changed(s);
}

void startup_step_last(struct sock *s)
{
    struct conn *c = s->conn;
    if (!conn_undecided(c))
        return;
    negotiate_decline(&c->neg, REASON_SHARED_FD);
    startup_step(s);
    if (conn_state(c) != CONN_NEGOTIATING || c->neg.state != NEGOTIATE_PEEK)
        return;
    lowat_back(c, atomic_load(&s->fd), (int)atomic_load(&c->rx.user_lowat));
    conn_go_plain(s, c, REASON_SHARED_FD);
    pending_remove(s);
    changed(s);
}

/* (Nothing has been said to the peer yet.) */
void startup_step_unmade(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_state(c) != CONN_CONNECTING || c->require || c->startup.rev_1)
        return;
    if (!beside_give_up(c)) {
        startup_step(s);
        return;
    }
    syn_over(s, atomic_load(&s->fd), (const struct sockaddr *)&c->peer);
    conn_go_plain(s, c, atomic_load(&proc.passes_conns) ? REASON_SHARED_FD : REASON_OWN_URING);
    pending_remove(s);
    changed(s);
}

void startup_step_called(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_state(c) == CONN_CONNECTING && !c->require && sock_hooks.waits_unseen(s))
        leave_unseen(s, c);
    else
        startup_step(s);
}

/* It may have been dropped, or is on the list of silent connections. */
static void list_again(struct sock *s, const struct conn *c)
{
    if (conn_is_held(c) || !conn_unheard(c))
        pending_add(s);
}

static void step(struct sock *s, struct conn *c, int fd)
{
    bool made = conn_state(c) == CONN_CONNECTING;
    if (made && !tcp_is_up(s, c, fd)) {
        if (conn_state(c) != CONN_CONNECTING) {
            pending_remove(s);
            changed(s);
        }
        return;
    }
    if (conn_state(c) != CONN_NEGOTIATING)
        return;
    uint32_t wanted = c->startup.kernel_wants;
    uint8_t first = c->neg.state;
    for (;;) {
        while (device_step(s, c))
            ;
        bool blocked = !step_says(c, fd);
        if (!blocked && negotiate_over(&c->neg)) {
            settle(s, c, fd);
            return;
        }
        bool peek = peeks(c);
        if (!blocked)
            blocked = !(peek ? step_peek(s, c, fd) : step_in(c, fd));
        if (peek)
            list_again(s, c);
        if (!blocked)
            continue;
        /* The deadline counts only after a look at what has come: the program may have made no call for long. */
        uint8_t before = c->neg.state;
        negotiate_tick(&c->neg, proc_now_ns());
        if (c->neg.state == before)
            break;
    }
    if (made || c->startup.kernel_wants != wanted || c->neg.state != first)
        changed(s);
}

void startup_step(struct sock *s)
{
    int fd = atomic_load(&s->fd), kept = sock_fd_now(s, fd);
    if (kept >= 0) /* (else this is the close itself, and the number is still valid) */
        fd = kept;
    if (fd < 0)
        return;
    int at = conn_peek_suspend(fd);
    step(s, s->conn, fd);
    conn_peek_resume(s, at);
}
