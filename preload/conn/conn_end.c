/*
 * The end of what a connection sends: shutdown(2), and the bytes that the library has accepted from the program but not
 * yet given to the kernel when the program closes or exits.
 *
 * Where it can, the transport sends them after the program has gone on: it owns a duplicate of the descriptor then, and
 * closes it. Otherwise the close waits for them as long as it may.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/flusher.h"
#include "preload/process/cancel.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/transports.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"

/*
 * The job for a connection that other processes still have: they may use the connection's own job before this process
 * has looked at it.
 */
struct own_job {
    struct transport_job job;
    struct iovec piece;
};

/*
 * A connection that the program has closed and whose last bytes are under way: sock and memory stay until those are
 * sent.
 */
struct finishing {
    struct finishing *next;
    struct sock *s;
    struct own_job *own; /* NULL: the job is the connection's, */
    bool bare;           /* or the flusher's: */
    struct flusher_job job;
};
static pthread_mutex_t finishing_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the queue */
static struct finishing *finishing, **finishing_end = &finishing;

bool conn_tail_is_mine(const struct conn *c)
{
    bool mine = c->tx.tail_pid == proc.pid || c->tx.tail_pid == 0 || holders_is_dead(c->tx.tail_pid);
    return mine && (c->tx.rest || c->tx.fin_owed) && c->tx.sender_pid == 0;
}

#define ELSEWHERE_NS 2000000u

int conn_tx_settle(struct conn *c, int fd, uint32_t linger_ms)
{
    uint64_t end = proc_now_ns() + (uint64_t)linger_ms * 1000000u;
    int flushed;
    while ((flushed = conn_tx_flush(c, fd)) == -EAGAIN) {
        uint64_t now = proc_now_ns(), left = end - now;
        if (now >= end)
            break;
        /* (Another process's ring is sending it, and no event tells this process when that is done.) */
        bool elsewhere = c->tx.job_runs || c->tx.sender_pid != 0;
        if (elsewhere && left > ELSEWHERE_NS)
            left = ELSEWHERE_NS;
        struct timespec ts = { .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u) };
        struct pollfd p = { .fd = fd, .events = elsewhere ? 0 : POLLOUT };
        turn_rest(&c->tx.turn);
        int r = REAL(ppoll)(&p, 1, &ts, NULL);
        turn_wake(&c->tx.turn);
        if (r > 0 && ((p.revents & POLLHUP) || ((p.revents & POLLERR) && tcpinfo_state(fd) == TCP_CLOSE)))
            break;
        if (r > 0)
            (void)wait_pause(fd, p.revents);
    }
    return flushed;
}

/* Lets the transport send what is left. */
static bool start_ring(struct finishing *f, struct conn *c, int fd, bool shared)
{
    if (!shared)
        return conn_tx_start(c, fd, TRANSPORT_THEN_CLOSE);
    /* An end that is owed is the program's shutdown. The descriptor is not closed: other processes still have it. */
    f->own = calloc(1, sizeof(*f->own));
    if (f->own == NULL)
        return false;
    if (conn_tx_start_own(c, &f->own->job, &f->own->piece, fd,
                          c->tx.fin_owed ? TRANSPORT_THEN_SHUT_WR : TRANSPORT_THEN_CLOSE))
        return true;
    free(f->own);
    f->own = NULL;
    return false;
}

/* Lets the flusher send it where the transport cannot. */
static bool start_bare(struct finishing *f, struct conn *c, int fd, bool shared)
{
    f->job.conn = c;
    f->job.shared = shared;
    atomic_store(&f->job.fd, fd);
    f->bare = flusher_close(&f->job);
    return f->bare;
}

static void put_last(struct finishing *f)
{
    lock_take(&finishing_lock);
    *finishing_end = f;
    finishing_end = &f->next;
    lock_give(&finishing_lock);
}

/*
 * Hands what is left to the transport or to the flusher. True: that one owns the descriptor now. The caller holds tx.
 */
static bool start(struct sock *s, int fd, bool shared)
{
    struct finishing *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return false;
    f->s = s;
    if (!start_ring(f, s->conn, fd, shared) && !start_bare(f, s->conn, fd, shared)) {
        free(f->own);
        free(f);
        return false;
    }
    atomic_fetch_add(&s->refs, 1);
    put_last(f);
    return true;
}

void conn_reset_at_close(int fd)
{
    const struct linger now = { .l_onoff = 1, .l_linger = 0 };
    sandbox_setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* Lets the transport or the flusher send what is left, with a duplicate of fd. The caller holds tx. */
static bool start_on_copy(struct sock *s, int fd, bool shared)
{
    int own = sandbox_on() ? -1 : hidden_dup(fd);
    if (own < 0)
        return false;
    /*
     * A request that has found too little room too often is given to a worker, which sleeps in the socket's own send.
     * The program's time-out would end that send, and the close would follow.
     */
    const struct timeval never = { 0 };
    if (!shared)
        REAL(setsockopt)(own, SOL_SOCKET, SO_SNDTIMEO, &never, sizeof(never));
    if (start(s, own, shared))
        return true;
    REAL(close)(own);
    return false;
}

void conn_tx_finish(struct sock *s, int fd, uint32_t linger_ms)
{
    struct conn *c = s->conn;
    bool shared = !holders_alone(&c->holders);
    if (shared && !conn_tail_is_mine(c))
        return; /* the process that has to send the tail still has the connection */
    if (!conn_is_apart(c) && start_on_copy(s, fd, shared)) /* (a sender beside the turn is not seen by the others) */
        return;
    if (conn_tx_settle(c, fd, linger_ms) == -EAGAIN && !shared)
        conn_reset_at_close(fd);
}

static bool is_over(const struct finishing *f)
{
    if (f->bare)
        return atomic_load(&f->job.fd) < 0;
    if (f->own != NULL)
        return transport_now()->send_over(&f->own->job, false);
    conn_tx_reap(f->s->conn);
    return !f->s->conn->tx.job_runs;
}

/*
 * A thread that ends stops its requests, but for one that closes the descriptor (core/transport/uring.c, ring_free). One
 * that ends the program's direction when all is sent is continued here, as nobody else does.
 */
static bool goes_on(struct finishing *f)
{
    return f->own != NULL && f->own->job.then == TRANSPORT_THEN_SHUT_WR &&
           conn_tx_go_on_own(&f->own->job, &f->own->piece);
}

#define AWAIT_MS 20 /* no event tells that everything is sent */

/* The descriptor: it belongs to the sender, but is still open. */
static int fd_of(const struct finishing *f)
{
    return f->bare ? atomic_load(&f->job.fd) : f->own != NULL ? f->own->job.fd : f->s->conn->tx.job.fd;
}

static bool await_over(const struct finishing *f, uint64_t end)
{
    bool over;
    while (!(over = is_over(f)) && proc_now_ns() < end) {
        struct pollfd p = { .fd = fd_of(f), .events = POLLOUT }; /* room or an error */
        if (REAL(poll)(&p, 1, f->bare ? AWAIT_MS : (int)((end - proc_now_ns()) / 1000000u + 1)) > 0)
            (void)wait_pause(p.fd, p.revents);
        sched_yield();
    }
    return over;
}

#define LOOKS 32u /* the number of other connections that a close looks at, in turn */

static struct finishing *first_off(void)
{
    lock_take(&finishing_lock);
    struct finishing *f = finishing;
    if (f != NULL) {
        finishing = f->next;
        if (finishing == NULL)
            finishing_end = &finishing;
        f->next = NULL;
    }
    lock_give(&finishing_lock);
    return f;
}

/* Takes a connection whose bytes are sent off the queue, or returns NULL. It looks at *looks of them at most. */
static struct finishing *take_over(unsigned *looks, uint64_t end)
{
    for (; *looks > 0; --*looks) {
        struct finishing *f = first_off();
        if (f == NULL || ((end != 0 ? await_over(f, end) : is_over(f)) && !goes_on(f)))
            return f;
        put_last(f);
    }
    return NULL;
}

void conn_tx_finished(uint32_t wait_ms)
{
    if (finishing == NULL)
        return;
    uint64_t end = wait_ms ? proc_now_ns() + (uint64_t)wait_ms * 1000000u : 0;
    unsigned looks = LOOKS;
    if (end != 0) {
        lock_take(&finishing_lock);
        looks = 1;
        for (const struct finishing *f = finishing; f != NULL; f = f->next)
            looks++;
        lock_give(&finishing_lock);
    }
    for (struct finishing *f; (f = take_over(&looks, end)) != NULL;) {
        if (f->own != NULL && f->own->job.then != TRANSPORT_THEN_CLOSE)
            REAL(close)(f->own->job.fd);
        sock_put(f->s);
        free(f->own);
        free(f);
    }
}

int conn_linger_s(const struct sock *s, int fd)
{
    struct linger lin;
    socklen_t len = sizeof(lin);
    if (s != NULL && sock_has_default(s, SOCK_NO_LINGER))
        return -1;
    return sandbox_getsockopt(fd, SOL_SOCKET, SO_LINGER, &lin, &len) == 0 && lin.l_onoff ? lin.l_linger : -1;
}

void conn_tx_give_up(uint32_t wait_ms)
{
    conn_tx_finished(wait_ms);
    lock_take(&finishing_lock);
    for (const struct finishing *f = finishing; f != NULL; f = f->next)
        if (f->own == NULL && !(f->bare && f->job.shared) && !is_over(f))
            conn_reset_at_close(fd_of(f));
    lock_give(&finishing_lock);
}

#define LEAVES_NS 1000000000u /* a call that was left by siglongjmp never gives the turn back */

int conn_shut_wr(struct conn *c, int fd)
{
    const struct conn_ops *ops = conn_ops(c);
    c->tx.shut = true;
    if (ops->ends_by_fin != NULL && ops->ends_by_fin(c, fd)) {
        c->tx.fin_owed = false;
        return REAL(shutdown)(fd, SHUT_WR) < 0 ? -errno : 0;
    }
    c->tx.fin_owed = true;
    return conn_tx_push(c, fd) == -EAGAIN ? -EAGAIN : 0;
}

void conn_lead_out(struct conn *c, int fd)
{
    if (conn_state(c) != CONN_UPGRADED || turn_take_brief(&c->tx.turn) < 0)
        return;
    int r = conn_only_leads(c) ? conn_tx_flush(c, fd) : 0;
    (void)r; /* nothing more can be done */
    turn_give(&c->tx.turn);
}

/*
 * Another thread waits for room (or a signal handler has interrupted the call that does). That call ends with EPIPE or
 * a smaller count, its frame goes out, and TCP's FIN follows. A thread of this process is told and gives the turn back
 * at once; the rest is better done by this thread, whose call did not fail. busy: why the turn could not be taken.
 * Returns as turn_take.
 */
static int end_others_send(struct conn *c, int busy)
{
    bool ours = busy == -EBUSY && c->tx.turn.pid == proc.pid;
    c->tx.fin_owed = true;
    c->tx.shut = true;
    conn_tell(c);
    turn_event_signal(&c->rx.left); /* (where that call waits for a reader) */
    return ours ? turn_take(&c->tx.turn, LEAVES_NS, false) : turn_take_brief(&c->tx.turn);
}

/* SHUT_WR. *ended: the program's end is sent, or under way. */
static int shutdown_tx(struct sock *s, struct conn *c, int fd, bool *ended)
{
    int result = 0;
    bool owed = false;
    int t = turn_take_brief(&c->tx.turn);
    bool first = !c->tx.shut;
    if (t < 0 && first)
        t = end_others_send(c, t);
    if (t == 0 && first) {
        result = conn_shut_wr(c, fd); /* (It never waits.) */
        owed = result == -EAGAIN;
        result = owed ? 0 : result;
        *ended = result == 0;
    } else if (!first && !c->tx.fin_owed && conn_on_socket(c)) {
        /* the kernel says ENOTCONN and the like */
        result = REAL(shutdown)(fd, SHUT_WR) < 0 ? -errno : 0;
    }
    if (t == 0)
        turn_give(&c->tx.turn);
    if (!conn_on_socket(c))
        notify_writable(s); /* an edge, as the kernel reports for its own sockets */
    if (owed && conn_ops(c)->end_owed != NULL)
        owed = conn_ops(c)->end_owed(s, fd);
    if (owed) {
        if (!c->tx.job_runs)
            pending_add(s);
        notify_changed(s);
        notify_writable(s);
    }
    return result;
}

/*
 * SHUT_RD. The kernel's comes first: it wakes a reader that sleeps with the turn. ended: this call has ended the other
 * direction. Where the peer had ended before, that was the last of the connection, and a SHUT_RD behind it finds none;
 * the kernel, asked for both at once, reports no error.
 */
static int shutdown_rx(struct conn *c, int fd, bool ended)
{
    struct tcpinfo_input before = c->rx.mode == CONN_RX_STREAMED ? tcpinfo_input_of(fd) : (struct tcpinfo_input){ 0 };
    int result = REAL(shutdown)(fd, SHUT_RD) < 0 && !(ended && errno == ENOTCONN) ? -errno : 0;
    if (turn_take(&c->rx.turn, 0, false) == 0) {
        if (!c->rx.shut)
            c->rx.input_before_shut = before;
        c->rx.shut = true;
        turn_give(&c->rx.turn);
    }
    return result;
}

/* RFC 5041 6.2.1/5,6: the program's graceful end is TCP's FIN, behind everything it has sent. */
int conn_shutdown(struct sock *s, int fd, int how)
{
    struct conn *c = s->conn;
    if (conn_ops(c)->over != NULL && conn_ops(c)->over(c, fd))
        return -ENOTCONN;
    bool ended = false;
    int tx = how == SHUT_WR || how == SHUT_RDWR ? shutdown_tx(s, c, fd, &ended) : 0;
    int rx = how == SHUT_RD || how == SHUT_RDWR ? shutdown_rx(c, fd, ended) : 0;
    return rx < 0 ? rx : tx;
}

void conn_tx_after_fork(void)
{
    pthread_mutex_init(&finishing_lock, NULL);
    for (struct finishing *f = finishing; f != NULL; f = f->next) {
        int fd = f->bare ? atomic_exchange(&f->job.fd, -1) : -1;
        if (fd >= 0)
            REAL(close)(fd);
    }
    finishing = NULL; /* the parent sends them */
    finishing_end = &finishing;
}
