/*
 * Receiving on an active connection: recv(2)'s semantics over the stream, whatever carries the stream (conn_ops.h).
 *
 * Receive path: carrier -> [stream] -> the program's buffer.
 */
#include <errno.h>
#include <limits.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_peek.h"
#include "preload/conn/conn_plain.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/process/proc.h"
#include "preload/process/usermem.h"
#include "preload/sock/look.h"
#include "preload/sock/notify.h"
#include "preload/sock/wait.h"

size_t conn_rx_avail(const struct conn *c)
{
    return (c->rx.pre_len - c->rx.pre_off) + (conn_state(c) == CONN_UPGRADED ? (size_t)stream_avail(&c->st) : 0);
}

void conn_rtr_told(struct sock *s)
{
    if (SW_LIKELY(!atomic_load_explicit(&s->conn->rx.rtr_came, memory_order_relaxed)) ||
        !atomic_exchange(&s->conn->rx.rtr_came, false))
        return;
    notify_changed(s);
}

/*
 * A peer may send frames without end that bring the program nothing, faster than they are decoded (RFC 5042 section
 * 6.4). After RX_IDLE_MAX bytes of them a call that must not wait gives up, and returns to the program.
 */
#define RX_IDLE_MAX (4u * 1024u * 1024u)

/* n bytes came. True: for too long the calls have brought nothing that the program can read. */
static inline bool idle_too_long(const struct conn *c, size_t *idle, uint64_t *avail, ssize_t n)
{
    if (stream_avail(&c->st) != *avail)
        *idle = 0;
    *avail = stream_avail(&c->st);
    *idle += n > 0 ? (size_t)n : 0;
    return *idle > RX_IDLE_MAX;
}

/* Is it known that everything that has arrived is staged? */
static bool drained(const struct conn *c)
{
    return c->rx.empty && (conn_ops(c)->drained == NULL || conn_ops(c)->drained(c));
}

/* A wait, or a call like it, has taken in and decoded what had arrived. */
static void note_look(struct conn *c)
{
    c->rx.look = drained(c) ? look_found_empty() : 0;
}

int conn_rx_progress(struct conn *c, int fd, bool look)
{
    size_t idle = 0;
    uint64_t avail = stream_avail(&c->st);
    conn_rx_whole(c, fd);
    if ((c->rx.pre_len > c->rx.pre_off && c->rx.mode == CONN_RX_FPDUS) || atomic_load(&c->so_error) != 0)
        return 1;
    if (conn_state(c) != CONN_UPGRADED)
        return conn_state(c) == CONN_DEAD;
    conn_ops(c)->decode(c, fd);
    /* The program's low-water mark counts its bytes, the kernel's would count frames. */
    while (look && (conn_rx_avail(c) < conn_rx_target(c) && c->st.rx.end == STREAM_OPEN)) {
        ssize_t n = conn_ops(c)->fill(c, fd, MSG_DONTWAIT, SIZE_MAX);
        conn_ops(c)->decode(c, fd);
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
    return stream_readable(&c->st) || c->rx.pre_len > c->rx.pre_off;
}

/* A receive failed behind bytes that the program gets first: the program's next call reports the error. */
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
        conn_ops(c)->decode(c, fd);
        n = c->st.rx.end == STREAM_OPEN ? conn_ops(c)->fill(c, fd, MSG_DONTWAIT, SIZE_MAX) : 0;
    } while (n > 0 && !idle_too_long(c, &idle, &avail, n));
    if (n > 0)
        conn_ops(c)->decode(c, fd);
    later_error(c, n);
    note_look(c);
}

#define WAITING_ENOUGH (CONN_IN_LEN / 4)

/*
 * Takes in bytes that the kernel still has, as far as staging has room. Where many are staged already it does not, as
 * if the others had not arrived yet: a program that asks after each small read (wrk) would have a full staging buffer
 * moved down each time, to make room for few bytes.
 */
int conn_rx_waiting(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    if (turn_take_brief(&c->rx.turn) < 0)
        return 0;
    if (conn_rx_avail(c) < WAITING_ENOUGH)
        conn_rx_all(c, fd);
    else
        c->rx.empty = look_holds(c->rx.look);
    c->rx.owes = !drained(c);
    size_t n = conn_rx_count(c);
    turn_give(&c->rx.turn);
    notify_readable(s); /* the kernel will not report them again */
    return n > INT_MAX ? INT_MAX : (int)n;
}

/* The end of the stream as recv shows it: -ECONNRESET once, then end of file. */
static ssize_t end_result(struct conn *c)
{
    int err = atomic_exchange(&c->so_error, 0);
    if (err != 0) {
        c->rx.reset_told = true;
        return -err;
    }
    if (conn_state(c) == CONN_UPGRADED && (c->st.rx.end == STREAM_RESET_BY_PEER || c->st.rx.end == STREAM_BROKEN) &&
        !c->rx.reset_told) {
        c->rx.reset_told = true;
        /*
         * A peer that never sent a byte of the stream did not reset it: it never spoke the protocol (DESIGN section 4).
         */
        return c->st.rx.end == STREAM_BROKEN && c->st.rx.total == 0 ? -EPROTO : -ECONNRESET;
    }
    return 0;
}

static bool ended(const struct conn *c)
{
    return atomic_load(&c->so_error) != 0 || conn_state(c) == CONN_DEAD ||
           (conn_state(c) == CONN_UPGRADED && (c->st.rx.end != STREAM_OPEN || c->broken));
}

/* Gives the program what is ready. `done` bytes were given before; with MSG_PEEK they are skipped. */
static size_t give(struct conn *c, struct iov_iter *it, size_t len, size_t done, int flags)
{
    size_t got = 0, skip = (flags & MSG_PEEK) ? done : 0;
    size_t pre = c->rx.pre_len - c->rx.pre_off;
    if (pre > skip && len > 0) {
        size_t n = pre - skip < len ? pre - skip : len;
        const uint8_t *p = c->mem.pre + c->rx.pre_off + skip;
        got = (flags & MSG_TRUNC) ? n : iov_iter_scatter(it, p, n);
        skip = 0;
        if (!(flags & MSG_PEEK)) {
            c->rx.pre_off += got;
            c->rx.plain_total += got;
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

void conn_begins_to_wait(struct sock *s, bool *waits)
{
    if (!*waits)
        sock_sleep(s);
    *waits = true;
}

/*
 * How much of the available bytes the program's memory can take. The kernel takes segments off its queue whole or not
 * at all: likewise a slice with a byte that cannot be stored stays whole.
 */
static size_t takes(const struct conn *c, const struct iov_iter *it, size_t len, size_t done, int flags)
{
    size_t pre = c->rx.pre_len - c->rx.pre_off, skip = (flags & MSG_PEEK) ? done : 0, there = conn_rx_avail(c);
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

/* A recv of the program's under way. */
struct receiving {
    struct sock *s;
    struct conn *c;
    const struct conn_ops *ops;
    int fd;
    struct iov_iter *it;
    size_t len, target; /* bytes that the call takes, and bytes that it waits for */
    int flags;
    bool wait;
    bool *waits;   /* as conn_begins_to_wait */
    bool directly; /* the carrier may receive straight into the program's memory */
    size_t done;   /* bytes given */
    size_t passed; /* bytes looked at, from where MSG_PEEK begins */
    size_t idle;   /* see idle_too_long */
    uint64_t avail;
    struct signals_mark ran; /* before it */
    ssize_t result;
};

/* How it goes on. */
enum receiving_next { RECV_RETURN, RECV_AGAIN, RECV_MORE };

static inline enum receiving_next recv_returns(struct receiving *r, ssize_t result)
{
    r->result = result;
    return RECV_RETURN;
}

/* Returns the number of bytes given, or `result` if none were. */
static inline enum receiving_next recv_returns_done_or(struct receiving *r, ssize_t result)
{
    return recv_returns(r, r->done > 0 ? (ssize_t)r->done : result);
}

/* Returns as the carrier's fill_directly. */
static inline ssize_t receive_directly(struct receiving *r, size_t *ahead)
{
    size_t placed = 0;
    bool may = r->directly; /* (no address inside r is passed on, so that r stays in registers) */
    *ahead = SIZE_MAX;
    if (!may || r->ops->fill_directly == NULL)
        return -EOPNOTSUPP;
    ssize_t n = r->ops->fill_directly(r->c, r->fd, r->it, r->len - r->done, ahead, &placed, &may);
    r->directly = may;
    r->done += placed;
    r->idle = placed > 0 ? 0 : r->idle;
    return n;
}

/* Decodes and gives what is staged. RECV_MORE: staging has no more. */
static inline enum receiving_next recv_staged(struct receiving *r)
{
    struct conn *c = r->c;
    if (conn_state(c) == CONN_UPGRADED)
        r->ops->decode(c, r->fd);
    bool held = conn_rx_held(c);
    size_t left = r->len - r->done, most = left, passed = r->passed;
    if (SW_UNLIKELY(conn_state(c) == CONN_UPGRADED && c->st.rx.urgent != STREAM_URGENT_NONE) &&
        !conn_rx_to_mark(c, r->done, &passed, &most, r->flags))
        return recv_returns(r, (ssize_t)r->done);
    size_t can = takes(c, r->it, most, passed, r->flags);
    size_t got = give(c, r->it, can, passed, r->flags);
    r->done += got;
    r->passed = passed + got;
    r->idle = got > 0 ? 0 : r->idle;
    if (can < most)
        return recv_returns_done_or(r, -EFAULT);
    if (most < left && got > 0)
        return recv_returns(r, (ssize_t)r->done); /* it ends at the mark */
    if (r->done == r->len && (r->len > 0 || conn_rx_avail(c) > 0))
        return recv_returns(r, (ssize_t)r->done);
    if (held && got > 0 && !(r->flags & MSG_PEEK))
        return RECV_AGAIN; /* the bytes just given had kept back frames that are staged */
    return RECV_MORE;
}

/*
 * The program has as much as it waits for. A short read tells a program with edge-triggered epoll that there is no more
 * (epoll(7)): so the kernel must not hold bytes whose edge was reported already.
 */
static inline enum receiving_next recv_rest(struct receiving *r)
{
    struct conn *c = r->c;
    if (conn_state(c) != CONN_UPGRADED || c->st.rx.end != STREAM_OPEN || drained(c))
        return recv_returns(r, (ssize_t)r->done);
    size_t ahead;
    ssize_t n = receive_directly(r, &ahead);
    if (n == -EOPNOTSUPP)
        n = r->ops->fill(c, r->fd, MSG_DONTWAIT, ahead);
    if (n > 0)
        return RECV_AGAIN;
    later_error(c, n);
    return recv_returns(r, (ssize_t)r->done);
}

/* A receive that should have brought more has failed. */
static enum receiving_next recv_failed(struct receiving *r, ssize_t err)
{
    if (err == -ESHUTDOWN)
        return recv_returns(r, (ssize_t)r->done);
    if (err == -ENOBUFS) /* it peeks at more than staging holds */
        return recv_returns_done_or(r, -EAGAIN);
    if (r->done > 0)
        later_error(r->c, err);
    return recv_returns_done_or(r, err);
}

/* The program waits for more, or asks for more. */
static inline enum receiving_next recv_more(struct receiving *r)
{
    struct conn *c = r->c;
    if (ended(c))
        return r->done > 0 ? recv_returns(r, (ssize_t)r->done) : recv_returns(r, end_result(c));
    if (conn_state(c) != CONN_UPGRADED) /* plain from here on: the caller asks the kernel, which may have more */
        return recv_returns_done_or(r, conn_rx_avail(c) == 0 ? 0 : -EAGAIN);
    size_t ahead, before = r->done;
    ssize_t n = receive_directly(r, &ahead);
    if (r->wait && (n == -EOPNOTSUPP || n == -EAGAIN))
        n = wait_was_interrupted(r->ran, r->fd, SO_RCVTIMEO) ? -EINTR
                                                             : r->ops->wait_more(r->s, c, r->fd, ahead, r->waits);
    else if (n == -EOPNOTSUPP)
        n = r->ops->fill(c, r->fd, MSG_DONTWAIT, ahead);
    r->fd = sock_fd_now(r->s, r->fd);
    if (SW_UNLIKELY(c->rx.urgent_told) && conn_urgent_interrupts(c, r->fd) && n >= 0 && r->done == 0)
        return recv_returns(r, -EINTR);
    if (n > 0 && r->done == before && idle_too_long(c, &r->idle, &r->avail, n))
        n = -EAGAIN;
    return n >= 0 ? RECV_AGAIN : recv_failed(r, n);
}

/* How many of len bytes a receive waits for. */
static size_t target_of(const struct conn *c, size_t len, int flags)
{
    size_t lowat = atomic_load(&c->rx.user_lowat);
    return (flags & MSG_WAITALL) || lowat >= len ? len : lowat;
}

static ssize_t recv_full(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                         bool *waits)
{
    struct receiving r = {
        .s = s,
        .c = c,
        .ops = conn_ops(c),
        .fd = fd,
        .it = it,
        .len = len,
        .target = target_of(c, len, flags),
        .flags = flags,
        .wait = sock_may_wait(s, flags),
        .waits = waits,
        .directly = !(flags & (MSG_PEEK | MSG_TRUNC)),
        .passed = conn_peek_at(c, flags),
        .ran = signals_ran(),
    };
    enum receiving_next next;
    conn_rx_whole(c, fd);
    c->rx.empty = look_holds(c->rx.look);
    do {
        next = recv_staged(&r);
        if (next == RECV_MORE)
            next = r.done >= r.target && r.done > 0 ? recv_rest(&r) : recv_more(&r);
    } while (next != RECV_RETURN);
    return r.result;
}

/* The program has read what FIONREAD reported, and may wait for an edge next (nginx does). */
static void pay_owed(struct conn *c, int fd)
{
    c->rx.owes = false;
    if (!drained(c))
        conn_rx_all(c, fd);
}

/* n of the len bytes came from what was kept from the startup. */
static size_t rest_behind_kept(struct sock *s, int fd, const struct iov_iter *it, size_t len, size_t n, int flags,
                               bool *waits)
{
    struct conn *c = s->conn;
    bool wait = sock_may_wait(s, flags);
    size_t target = wait ? target_of(c, len, flags) : 0;
    if (target > n)
        conn_begins_to_wait(s, waits);
    return conn_recv_rest_plain(s, sock_fd_now(s, fd), it, target > n ? target - n : 0, len - n, flags);
}

/* Takes the turn, and waits for it as long as the call may; *fd as sock_fd_now. Returns 0, or the call's error. */
static int take_rx(struct sock *s, struct conn *c, int *fd, bool wait, bool *waits)
{
    int r = turn_try(&c->rx.turn);
    if (SW_LIKELY(r == 0))
        return 0;
    uint64_t deadline = wait ? wait_call_deadline(*fd, SO_RCVTIMEO) : 0;
    conn_begins_to_wait(s, waits);
    r = wait ? turn_take(&c->rx.turn, wait_left(deadline), true) : turn_take_brief(&c->rx.turn);
    *fd = sock_fd_now(s, *fd);
    return r == 0 || r == -EINTR ? r : -EAGAIN;
}

/*
 * More may have arrived than was kept from the startup: a short read says that there is no more, as on an upgraded
 * connection. Returns how many more bytes were received.
 */
static size_t recv_behind_kept(struct sock *s, int fd, struct iov_iter *it, ssize_t n, size_t len, int flags,
                               bool *waits)
{
    const struct conn *c = s->conn;
    if (SW_LIKELY(n <= 0 || (size_t)n >= len || conn_state(c) != CONN_PLAIN || atomic_load(&c->so_error) != 0))
        return 0;
    bool all = (flags & MSG_PEEK) ? conn_peek_at(c, flags) == 0 : conn_rx_avail(c) == 0;
    return all ? rest_behind_kept(s, fd, it, len, (size_t)n, flags, waits) : 0;
}

/*
 * The call is over: gives the turn back, and reports what others may wait for. True: the connection is plain now, and
 * nothing of it is kept here.
 */
static bool give_rx(struct sock *s, struct conn *c, int fd)
{
    bool more = conn_may_be_staged(c);
    bool plain = conn_state(c) == CONN_PLAIN && conn_rx_avail(c) == 0 && atomic_load(&c->so_error) == 0;
    bool full = conn_state(c) == CONN_UPGRADED;
    /*
     * A program that waits for edges may wait next without a look of ours first: the low-water mark was for a frame
     * that is whole now.
     */
    if (c->rx.kernel_lowat > 1 && full && conn_ops(c)->lowat != NULL)
        conn_ops(c)->lowat(c, fd);
    if (plain)
        conn_peek_give_back(c, sock_fd_now(s, fd));
    turn_give(&c->rx.turn);
    if (full && !conn_can_send(c))
        turn_event_signal(&c->rx.left);
    conn_rtr_told(s);
    if (plain)
        atomic_store(&s->active, false);
    else if (more || ended(c))
        notify_readable(s);
    return plain;
}

ssize_t conn_recv_decided(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool *waits)
{
    struct conn *c = s->conn;
    bool wait = sock_may_wait(s, flags);
    conn_apart_look(c, false);
    int r = take_rx(s, c, &fd, wait, waits);
    if (r < 0)
        return r;
    ssize_t n = recv_full(s, c, fd, it, len, flags, waits);
    if (SW_UNLIKELY(conn_ops(c)->after_recv != NULL))
        conn_ops(c)->after_recv(s, c, sock_fd_now(s, fd));
    n += (ssize_t)recv_behind_kept(s, fd, it, n, len, flags, waits);
    if (n > 0) {
        conn_batch_asked(c, wait);
        conn_peek_moved(c, (size_t)n, flags);
    }
    if (SW_UNLIKELY(c->rx.owes) && (drained(c) || conn_rx_avail(c) == 0))
        pay_owed(c, fd);
    bool plain = give_rx(s, c, fd);
    return n == 0 && plain ? CONN_ASK_KERNEL : n;
}
