/*
 * Sending an upgraded stream in software over the program's own TCP connection.
 *
 * The program's bytes are framed where they lie and leave with one sendmsg (a few are copied together for one send). If
 * the kernel takes only a part of a frame, the rest of that frame is copied (the tail) and sent without the program.
 * Frames that are not begun are dropped again and the program is told the smaller count, as with a full socket buffer.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_frame.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_soft.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/conn_zerocopy.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/usermem.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"

#define URGENT_IOV 4u /* an urgent byte's frame: headers, byte, trailer */

/* A call of the program's that may wait. */
struct caller {
    struct sock *s;
    const struct signals_mark *ran; /* from its begin: a handler that has run since ends its wait */
};

/*
 * The reason why sendmsg took only a part: the socket is full, or a call that may wait reached its time-out or met a
 * signal.
 */
static int cut_short(int fd, bool wait)
{
    return wait && wait_call_deadline(fd, SO_SNDTIMEO) == 0 ? -EINTR : -EAGAIN;
}

/*
 * Everything that was queued is sent. May queue a notify, or with credits the FIN message; under the LLP's flow control
 * TCP's own FIN on a message boundary says the same, and no byte of ours runs against the peer's data (a FIN message
 * that meets a closed socket would be answered by a reset, which destroys what the peer has still to read). True: there
 * is more to send.
 */
static bool flushed(struct conn *c)
{
    stream_flushed(&c->st);
    if (c->tx.fin_owed && !c->st.llp && !c->st.tx.fin && stream_fin(&c->st) < 0)
        return false; /* no credit: later */
    const struct iovec *iov;
    size_t len;
    return iwarp_out(&c->ep, &iov, &len) > 0;
}

/* The program's own send waits here. */
static __attribute__((noinline)) ssize_t send_waiting(int fd, const struct msghdr *msg, int flags)
{
    ssize_t n;
    CANCEL_POINT(n = sandbox_sendmsg(fd, msg, flags));
    return n;
}

/*
 * A send of one piece takes the kernel 0.2 us less than a sendmsg of three; copying this many bytes takes less than
 * that.
 */
#define FLAT_LEN 2048u

static ssize_t send_flat(int fd, const struct iovec *iov, size_t n, size_t len, int flags)
{
    uint8_t flat[FLAT_LEN];
    uint8_t *p = flat;
    for (size_t i = 0; i < n; i++)
        p = mempcpy(p, iov[i].iov_base, iov[i].iov_len);
    return REAL(send)(fd, flat, len, flags);
}

/*
 * Sends what precedes the first frame (negotiate_lead). 0: it is sent. When the kernel reports room it takes so few
 * bytes as a whole.
 */
static int out_lead(struct conn *c, int fd, int flags)
{
    const struct iovec *iov;
    size_t len, n = iwarp_out(&c->ep, &iov, &len);
    if (!conn_has_room(fd))
        return -EAGAIN;
    if (c->neg.deferred) { /* from here on urgent bytes are the stream's: startup_upgrade.c */
        int inlined = 1;
        sandbox_setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, sizeof(inlined));
    }
    struct iovec lead = iov[0];
    struct msghdr msg = { .msg_iov = &lead, .msg_iovlen = 1 };
    ssize_t sent = sandbox_sendmsg(fd, &msg, flags | MSG_DONTWAIT | (n > 1 ? MSG_MORE : 0));
    if (sent < 0)
        return -errno;
    c->tx.kernel_total += (uint64_t)sent;
    iwarp_out_sent(&c->ep, (size_t)sent);
    return iwarp_out_lead(&c->ep) == 0 ? 0 : -EAGAIN;
}

/* One call for the n pieces, len bytes in all; it sleeps if `who` is not NULL. Returns as sendmsg(2). */
static ssize_t send_batch(const struct caller *who, struct conn *c, int fd, const struct iovec *iov, size_t n,
                          size_t len, int flags)
{
    struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
    if (who == NULL && len <= FLAT_LEN && !c->tx.urgent && !sandbox_on())
        return send_flat(fd, iov, n, len, flags | MSG_DONTWAIT);
    if (who == NULL)
        return sandbox_sendmsg(fd, &msg, flags | MSG_DONTWAIT);
    ssize_t sent = -1;
    turn_sleep(&c->tx.turn);
    if (wait_was_interrupted(*who->ran, fd, SO_SNDTIMEO))
        errno = EINTR;
    else
        sent = send_waiting(fd, &msg, flags);
    turn_wake(&c->tx.turn);
    return sent;
}

/* Takes the last byte off an urgent byte's frame. Returns the number of pieces. */
static size_t urgent_begin(struct iovec first[URGENT_IOV], const struct iovec *iov, size_t n)
{
    memcpy(first, iov, n * sizeof(*iov));
    return --first[n - 1].iov_len == 0 ? n - 1 : n;
}

/*
 * One call for the frames queued, or for those of one segment; it sleeps if `who` is not NULL. 0: all of them are sent;
 * else -errno. *none: nothing is queued. An urgent byte's frame goes in two parts: the kernel's urgent pointer is for
 * the last byte of what it takes, which must be the frame's. RFC 5040 6.1/1: everything sent from the switch on comes
 * from the endpoint.
 */
static int out_frames(const struct caller *who, struct conn *c, int fd, int flags, bool *none)
{
    const struct iovec *iov;
    struct iovec first[URGENT_IOV];
    size_t len;
    int led = SW_UNLIKELY(iwarp_out_lead(&c->ep) > 0) ? out_lead(c, fd, flags) : 0;
    if (led < 0) {
        *none = false;
        return led;
    }
    size_t n = c->tx.segment ? iwarp_out_segment(&c->ep, c->tx.segment, &iov, &len) : iwarp_out(&c->ep, &iov, &len);
    *none = n == 0;
    if (n == 0) {
        c->tx.urgent = false;
        return 0;
    }
    if (SW_UNLIKELY(c->tx.zerocopy)) {
        int r = conn_zerocopy_first(c, fd, *(const uint8_t *)iov[0].iov_base, flags);
        return r < 0 ? r : out_frames(who, c, fd, flags, none);
    }
    /*
     * RFC 5044 5.1/3: "SHOULD also use whatever facilities the TCP stack presents to cause the TCP transmitter to
     * start TCP
     * segments at FPDU boundaries": nothing is put into a segment behind the end of a record.
     */
    int record = c->tx.segment ? MSG_EOR : 0;
    bool urgent = SW_UNLIKELY(c->tx.urgent) && n <= URGENT_IOV;
    if (urgent && len > 1) {
        n = urgent_begin(first, iov, n);
        iov = first;
        flags |= MSG_MORE;
        record = 0;
    } else if (urgent) {
        flags |= MSG_OOB;
    }
    flags = conn_send_flags(c, fd, flags);
    ssize_t sent = send_batch(who, c, fd, iov, n, len, flags | record);
    if (sent < 0)
        return -errno; /* RFC 5041 3 item 3: bytes that TCP cannot transfer are an error */
    c->tx.kernel_total += (uint64_t)sent;
    iwarp_out_sent(&c->ep, (size_t)sent);
    if (SW_UNLIKELY(c->tx.urgent)) {
        if (len > 1 && (size_t)sent == len - 1)
            return out_frames(who, c, fd, flags & ~MSG_MORE, none);
        c->tx.urgent = (size_t)sent < len;
    }
    return (size_t)sent == len ? 0 : -EINPROGRESS;
}

/* Sends what is queued. who: as out_frames. 0: all of it is sent; else -errno (some of it may have been sent). */
static int out_some(const struct caller *who, struct conn *c, int fd, int flags)
{
    bool none;
    int r;
    do
        r = out_frames(who, c, fd, flags, &none);
    while (r == 0 && !none && c->tx.segment);
    return r;
}

/*
 * Waits for room without a call on the socket. 0: look again; -EPIPE: the program has shut down its side meanwhile.
 * whole: nothing of the program's is queued.
 */
static int await_room(const struct caller *who, int fd, uint64_t deadline, bool whole)
{
    struct sock *s = who->s;
    struct conn *c = s->conn;
    const struct conn *before = wait_watch(c);
    whole ? turn_rest(&c->tx.turn) : turn_sleep(&c->tx.turn);
    int r = 0;
    if (wait_was_interrupted(*who->ran, fd, SO_SNDTIMEO))
        r = -EINTR;
    else if (!c->tx.shut)
        r = wait_for(fd, POLLOUT, deadline, s);
    turn_wake(&c->tx.turn);
    wait_unwatch(before);
    if (c->tx.shut)
        return -EPIPE;
    return r < 0 ? r : r == 0 && deadline != 0 && proc_now_ns() >= deadline ? -EAGAIN : 0;
}

/*
 * As out_some, and waits for room if `who` is not NULL. Only a sender that finds no room sleeps: otherwise other
 * threads would take one that has room for one with a full socket. Where other threads may shut down the connection meanwhile it does not sleep in
 * the kernel's send, which a shutdown would end in the middle of a frame.
 */
static int out_once(const struct caller *who, struct conn *c, int fd, int flags)
{
    int r = out_some(NULL, c, fd, flags);
    if (who == NULL || (r != -EAGAIN && r != -EINPROGRESS))
        return r;
    coalesce_before_sleep();
    if (!poller_threads() && !conn_ring_busy() && iwarp_out_lead(&c->ep) == 0 && !c->tx.zerocopy)
        return out_some(who, c, fd, flags);
    /* A finished request of the ring interrupts a send, which then takes a part, as with a signal; poll goes on. */
    uint64_t end = wait_call_deadline(fd, SO_SNDTIMEO);
    while (r == -EAGAIN || r == -EINPROGRESS) {
        r = await_room(who, fd, end, false);
        if (r < 0)
            return r;
        fd = sock_fd_now(who->s, fd);
        r = out_some(NULL, c, fd, flags);
    }
    return r;
}

/*
 * Another process has closed the connection, and its ring sends the tail. The kernel's count tells when that is over;
 * any process may send what a process left that has died meanwhile.
 */
static bool sender_is_done(struct conn *c, int fd)
{
    uint64_t rx, tx = 0;
    bool known = tcpinfo_totals(fd, &rx, &tx);
    if (known && tx < c->tx.sender_end) {
        if (!holders_is_dead(c->tx.sender_pid) && tcpinfo_state(fd) != TCP_CLOSE)
            return false;
        known = tcpinfo_totals(fd, &rx, &tx); /* what it sent last */
    }
    c->tx.sender_pid = 0;
    if (known && tx > c->tx.kernel_total && tx <= c->tx.sender_end) {
        iwarp_out_sent(&c->ep, (size_t)(tx - c->tx.kernel_total));
        c->tx.kernel_total = tx;
    }
    return true;
}

/* Makes sure that nothing else sends what is queued: neither a job, which is stopped, nor another process. */
static bool may_send(struct conn *c, int fd)
{
    if (c->tx.job_runs) {
        conn_tx_reap(c);
        if (c->tx.job_runs)
            conn_tx_stop(c);
        if (c->tx.job_runs)
            return false; /* another process's ring has it */
    }
    return SW_LIKELY(c->tx.sender_pid == 0) || sender_is_done(c, fd);
}

/* One attempt to send what is queued. Returns as out_once; -EINPROGRESS and -EAGAIN: see cut_short; 1: look again. */
static int send_queued(const struct caller *who, struct conn *c, int fd)
{
    if (!c->coalesce.posted)
        return out_once(who, c, fd, MSG_NOSIGNAL);
    /* No thread sleeps while it uses the buffer: what is not sent is copied, and becomes a tail. */
    int r = out_some(NULL, c, fd, MSG_NOSIGNAL);
    coalesce_posted(c, r == 0);
    return (r == -EAGAIN || r == -EINPROGRESS) && who != NULL ? 1 : r;
}

/* Everything is sent: sends the program's end, if that is owed. */
static int send_end(struct conn *c, int fd)
{
    if (!c->tx.fin_owed)
        return 0;
    if (!c->st.llp && !c->st.tx.fin)
        return -EAGAIN;
    c->tx.fin_owed = false;
    REAL(shutdown)(fd, SHUT_WR);
    return 0;
}

/*
 * The kernel took a part of what an earlier call has left, because a signal came. The program's call has sent nothing
 * yet, so the kernel would begin it again after a handler with SA_RESTART.
 */
static bool goes_on(const struct caller *who, int fd)
{
    return who != NULL && signals_ran().ending == who->ran->ending && wait_call_deadline(fd, SO_SNDTIMEO) == 0;
}

/* who: the call that waits; NULL: none. */
static int flush_whole(const struct caller *who, struct conn *c, int fd)
{
    if (!may_send(c, fd))
        return -EAGAIN;
    for (int r = 1; r > 0;) {
        r = send_queued(who, c, fd);
        if (r == -EINPROGRESS && goes_on(who, fd))
            r = 1;
        if (who != NULL)
            fd = sock_fd_now(who->s, fd); /* while the call waited, another thread may have closed it */
        if (r > 0)
            continue;
        if (r < 0)
            return r == -EINPROGRESS ? cut_short(fd, who != NULL) : r;
        r = flushed(c) ? 1 : coalesce_post(c);
        if (r < 0)
            return r;
    }
    return send_end(c, fd);
}

int conn_soft_flush(struct conn *c, int fd)
{
    return flush_whole(NULL, c, fd);
}

/* In a send of the program's, where the receive side may break the connection. */
static int flush(const struct caller *who, struct conn *c, int fd)
{
    conn_tx_whole(c, fd);
    return c->broken ? -EPIPE : flush_whole(who, c, fd);
}

/* Gives the program back what was posted but not begun. Returns the number of bytes. */
static size_t take_back(struct conn *c, int fd, bool urgent)
{
    struct iwarp_cut cut = iwarp_out_detach(&c->ep);
    size_t back = stream_unpost(&c->st, cut.frames);
    c->tx.urgent = urgent && back == 0;
    conn_tx_later(c, fd);
    return back;
}

#define COPY_LEN 32768u /* Linux fills pages of this many bytes */

/*
 * RFC 5044 3/2 and RFC 5044 section 4.5: "If the TCP implementation needs to adjust EMSS to support MTU changes or
 * changing TCP options, the MULPDU value is changed accordingly."
 */
static void follow_emss(struct conn *c, int fd)
{
    size_t emss = tcpinfo_emss(fd);
    if (emss == c->tx.segment)
        return;
    c->tx.segment = emss;
    iwarp_set_mulpdu(&c->ep, mpa_mulpdu(emss, c->neg.mpa.res.markers_tx));
    c->st.cfg.write_limit = (uint32_t)(c->ep.cfg.mulpdu - DDP_TAGGED_HDR_LEN);
    size_t most = iwarp_send_max(&c->ep.base) - STREAM_HDR_LEN;
    if (c->st.cfg.eager_limit > most)
        c->st.cfg.eager_limit = (uint32_t)most;
}

/*
 * Small writes shortly after each other. 1: this one is gathered. 0: it is not; those gathered before are sent, or
 * begun. Or an error, which this call returns.
 */
static int coalesce(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags)
{
    bool corked = SW_UNLIKELY(atomic_load_explicit(&c->tx.cork, memory_order_relaxed) == CORK_OURS);
    if (c->coalesce.slot == NULL && c->coalesce.row_waits != coalesce_waits && !corked) {
        /* The first one since the program waited: a program that asks and answers needs no look at the clock. */
        c->coalesce.row_waits = coalesce_waits;
        c->coalesce.row_n = coalesce_is_small(len, flags);
        c->coalesce.row_ns = 0;
        return 0;
    }
    bool small = (corked ? coalesce_is_piece(len, flags) : coalesce_is_small(len, flags)) && proc.set.coalesce_us > 0 &&
                 usermem_iter_read(it, len) == len;
    uint64_t now = small ? proc_now_ns() : 0;
    if (small && coalesce_add(c, it, len, now))
        return 1;
    if (coalesce_holds(c)) {
        int r = flush(NULL, c, fd);
        c->tx.rest = r != 0;
        if (r < 0 && r != -EAGAIN)
            return r;
    }
    if (!small) {
        c->coalesce.row_n = 0;
        return 0;
    }
    if (c->tx.rest || c->tx.job_runs)
        return 0;
    return corked ? coalesce_hold(s, c, it, len, now) : coalesce_begin(s, c, it, len, now);
}

/*
 * A send of the program's under way. Where several processes have the connection (shared), the part of a frame that the
 * socket does not take at once is copied to memory that all of them see before the call sleeps. If this process is
 * killed then, the others finish the frame.
 */
struct sending {
    struct caller who;
    const struct caller *sleeper; /* who: it waits in the kernel's send, or as that would; NULL: it does not */
    struct conn *c;
    int fd;
    struct iov_iter *it;
    size_t len, done;  /* the call's bytes, and how many of them are framed */
    size_t lead;       /* conn_batch_lead */
    int flags, kflags; /* the call's flags, and those for the kernel */
    bool wait, shared;
    bool zerocopy; /* a call with MSG_ZEROCOPY of which no byte is sent yet */
    uint64_t deadline;
};

/* What is left from before is sent first. 0: it is sent; 1: some of it is, look again; -errno. */
static int send_left(struct sending *x)
{
    struct conn *c = x->c;
    if (SW_LIKELY(!c->tx.job_runs && !c->tx.rest))
        return 0;
    if (x->wait) {
        /* If a handler jumps out of this, the next call that waits sends the tail. */
        c->tx.rest = true;
        pending_add(x->who.s);
    }
    int r = flush(x->sleeper, c, x->fd);
    x->fd = sock_fd_now(x->who.s, x->fd);
    c->tx.rest = r != 0;
    if (r != -EAGAIN || !x->shared)
        return r;
    r = await_room(&x->who, x->fd, x->deadline, true);
    return r == 0 ? 1 : r;
}

/* The length of the next part, as far as the program's memory can be read. > 0, or -errno. */
static ssize_t next_part(struct sending *x)
{
    struct conn *c = x->c;
    size_t part = x->len - x->done, most = conn_batch_len(c, x->sleeper != NULL);
    if ((x->flags & MSG_OOB) && part > 1)
        part--; /* the last byte is urgent, and goes alone */
    if (part > most)
        part = most;
    if (x->lead > 0 && x->done == 0)
        part = x->lead;
    if (!x->wait && x->done > x->lead && !conn_has_room(x->fd))
        return -EAGAIN;
    if (c->tx.segment == 0)
        conn_frame_before(c, x->fd, part);
    /* The kernel copies in pieces too, and sends those before the one that it cannot read. */
    size_t good = usermem_iter_read(x->it, part);
    if (SW_UNLIKELY(good < part) && (part = good - good % COPY_LEN) == 0)
        return -EFAULT;
    return (ssize_t)part;
}

/*
 * The kernel has not taken all of the n bytes that were framed last and that begin at `before`: bytes of frames that
 * were not begun are the program's again. 0: they are framed again, behind the tail; or the call is over, with -errno.
 */
static int send_cut(struct sending *x, const struct iov_iter *before, size_t n, bool urgent, int r)
{
    struct conn *c = x->c;
    x->fd = sock_fd_now(x->who.s, x->fd);
    if (r == -EINPROGRESS)
        r = cut_short(x->fd, x->sleeper != NULL);
    size_t back = take_back(c, x->fd, urgent);
    x->done -= back;
    conn_batch_went(c, n, n - back);
    c->tx.rest = true;
    if (r != -EAGAIN || !x->shared)
        return r;
    *x->it = *before;
    iov_iter_skip(x->it, n - back);
    return 0;
}

/* Frames and sends the next part. 0; or -errno, and *cut: some of it may have been sent. */
static int send_part(struct sending *x, bool *cut)
{
    struct conn *c = x->c;
    ssize_t part = next_part(x);
    if (part < 0)
        return (int)part;
    bool urgent = (x->flags & MSG_OOB) && x->len - x->done == 1;
    struct iov_iter before = *x->it;
    ssize_t n = urgent ? stream_write_urgent(&c->st, x->it) : stream_write(&c->st, x->it, (size_t)part);
    c->tx.urgent = urgent && n > 0;
    if (n <= 0)
        return n < 0 ? (int)n : -EAGAIN;
    x->done += (size_t)n;
    c->tx.zerocopy = x->zerocopy;
    int r = out_once(x->sleeper, c, x->fd, x->kflags | (x->done < x->len && x->done != x->lead ? MSG_MORE : 0));
    x->zerocopy = c->tx.zerocopy;
    c->tx.zerocopy = false;
    if (r == 0) {
        conn_batch_went(c, (size_t)n, (size_t)n);
        if (flushed(c))
            c->tx.rest = true;
        return 0;
    }
    r = send_cut(x, &before, (size_t)n, urgent, r);
    *cut = r < 0;
    return r;
}

/*
 * Ends a call in which nothing was cut: sends what else is queued. r: the error that the call ends with. Returns the
 * call's result.
 */
static ssize_t send_ends(struct sending *x, int r)
{
    struct conn *c = x->c;
    if (c->tx.nodelay_lent && x->done > 0)
        conn_nodelay_back(c, x->fd);
    if (c->tx.rest && !c->tx.job_runs) {
        /* A notify that found no room in the batch, or the tail whose asynchronous send was stopped. */
        int f = conn_tx_push(c, x->fd);
        (void)f; /* what is left is sent later, and the next call reports what went wrong */
    }
    if (x->done > 0)
        return (ssize_t)x->done;
    /* The ring met the error before this call did. */
    int err = r < 0 && r != -EFAULT ? atomic_exchange(&c->so_error, 0) : 0;
    return err != 0 ? -err : r;
}

ssize_t conn_soft_send(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                       const struct signals_mark *ran)
{
    bool wait = ran != NULL, shared = wait && atomic_load(&c->holders.n) > 1, cut = false;
    struct sending x = {
        .who = { s, ran },
        .sleeper = wait && !shared ? &x.who : NULL,
        .c = c,
        .fd = fd,
        .it = it,
        .len = len,
        .flags = flags,
        /* (The library raises the signal: when a part was sent before the error, there is none.) */
        .kflags = (flags & (MSG_MORE | MSG_DONTROUTE | MSG_CONFIRM)) | MSG_NOSIGNAL,
        .wait = wait,
        .shared = shared,
        .zerocopy = flags & MSG_ZEROCOPY,
        .deadline = shared ? wait_call_deadline(fd, SO_SNDTIMEO) : 0,
    };
    if (c->tx.shut || c->broken)
        return -EPIPE;
    if (SW_UNLIKELY(c->tx.segment != 0))
        follow_emss(c, fd);
    x.lead = conn_batch_lead(c, fd, len, flags);
    int r = coalesce(s, c, fd, it, len, flags);
    if (r > 0)
        return (ssize_t)len;
    while (x.done < len && r >= 0 && !cut) {
        if (x.done > 0 || r > 0) /* it may have waited */
            x.fd = sock_fd_now(s, x.fd);
        r = SW_UNLIKELY(c->tx.shut) ? -EPIPE : send_left(&x);
        if (r == 0)
            r = send_part(&x, &cut);
    }
    if (!cut)
        return send_ends(&x, r);
    if (x.done > 0 && r != -EAGAIN && r != -EINTR && r != -EPIPE)
        atomic_store(&c->so_error, -r); /* told at the next call */
    return x.done > 0 ? (ssize_t)x.done : r;
}

bool conn_soft_tx_mend(struct conn *c, int fd, bool other_process)
{
    const struct iovec *iov;
    size_t len;
    uint64_t rx, tx;
    if (iwarp_out(&c->ep, &iov, &len) == 0 || c->tx.sender_pid != 0)
        return true;
    if (!tcpinfo_totals(fd, &rx, &tx) || tx < c->tx.kernel_total || tx - c->tx.kernel_total > len)
        return false;
    iwarp_out_sent(&c->ep, (size_t)(tx - c->tx.kernel_total));
    c->tx.kernel_total = tx;
    if (other_process && iwarp_out_borrowed(&c->ep) > 0)
        return false;
    struct iwarp_cut cut = iwarp_out_detach(&c->ep);
    stream_unpost(&c->st, cut.frames);
    c->tx.rest = true;
    return true;
}
