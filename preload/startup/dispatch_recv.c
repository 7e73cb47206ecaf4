/* recv(2) on a connection in any state. */
#include <errno.h>
#include <sys/socket.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/startup.h"

/*
 * Waits for a client's first byte, or its end, as the program's own recv would: for this socket, even if the number
 * becomes another file's. 1, or -errno.
 */
static __attribute__((noinline)) int await_first(int fd)
{
    uint8_t first;
    ssize_t n;
    CANCEL_POINT(n = REAL(recv)(fd, &first, sizeof(first), MSG_PEEK));
    return n < 0 ? -errno : 1;
}

/*
 * Waits for the first byte in the kernel's own call, if no other connection needs this thread. -EAGAIN: it cannot wait
 * so. Other threads' waits leave out a connection that counts a waiter; and a step of theirs that is under way, and may
 * take the byte, has ended when ours has.
 */
static int await_unheard(struct sock *s, struct conn *c, int fd)
{
    if (!conn_unheard(c) || pending_others(s) || conn_ring_busy() ||
        atomic_load(&proc.peek_off_used)) /* (a look would use it up) */
        return -EAGAIN;
    if (!poller_threads())
        return await_first(fd);
    struct poller *count = poller_count(&s->waiters, poller_call_begin());
    int r = count != NULL && startup_go_on(s, false) == 0 ? 0 : -EAGAIN;
    if (r == 0 && conn_unheard(c))
        r = await_first(fd);
    poller_end(count);
    return r;
}

/*
 * While the negotiation runs there is nothing to read: drives it. 0: it is over; -ESHUTDOWN: the program sees the end.
 */
static ssize_t recv_negotiating(struct sock *s, struct conn *c, int fd, int flags, struct signals_mark ran, bool *waits)
{
    bool wait = sock_may_wait(s, flags);
    uint64_t deadline = wait ? wait_call_deadline(fd, SO_RCVTIMEO) : 0;
    bool late = false;
    if (wait)
        beside_waits_next(c);
    if (conn_is_unasked(c)) {
        int r = startup_in_turns(s, !wait, startup_step_asking);
        (void)r; /* (another thread is sending, or asks) */
    }
    for (;;) {
        int r = startup_go_on(s, !wait);
        atomic_store(&c->startup.unlooked, false); /* (it may have been skipped) */
        enum conn_state st = conn_state(c);
        if (st != CONN_NEGOTIATING && st != CONN_CONNECTING)
            return 0;
        if (conn_shuts_later(c, SHUT_RD))
            return -ESHUTDOWN;
        if (!wait || late || r == -EDEADLK)
            return -EAGAIN;
        conn_begins_to_wait(s, waits);
        fd = sock_fd_now(s, fd);
        if (wait_was_interrupted(ran, fd, SO_RCVTIMEO))
            return -EINTR;
        r = await_unheard(s, c, fd);
        if (r == -EAGAIN)
            r = wait_for(fd, (short)c->startup.kernel_wants, deadline, s);
        fd = sock_fd_now(s, fd);
        if (r < 0)
            return r;
        late = r == 0 && deadline != 0 && proc_now_ns() >= deadline; /* another thread may have been in time */
    }
}

/* A handler has run while the startup went on in the program's call: that takes what is there, or is interrupted. */
static ssize_t recv_there(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool *waits)
{
    ssize_t n = conn_recv_decided(s, fd, it, len, flags | MSG_DONTWAIT, waits);
    return n == -EAGAIN || (n == CONN_ASK_KERNEL && tcpinfo_queued(fd) == 0) ? -EINTR : n;
}

/* *waits: see conn_begins_to_wait. */
static ssize_t recv_active(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool *waits)
{
    struct conn *c = s->conn;
    if (SW_UNLIKELY(c->neg.deferred))
        startup_before_call(s, c, fd, false);
    enum conn_state st = conn_state(c);
    int gone = conn_usable(c, fd);
    if (SW_UNLIKELY(gone < 0))
        return gone;
    if (flags & MSG_OOB) {
        if (conn_is_late(c)) { /* an answer that has come tells whose the urgent byte is */
            int r = startup_go_on(s, false);
            (void)r; /* a thread that has its turns is taking it in */
            st = conn_state(c);
        }
        if (st != CONN_UPGRADED && st != CONN_DEAD)
            return CONN_ASK_KERNEL;
        return st == CONN_DEAD ? -EINVAL : conn_recv_urgent(s, fd, it, len, flags);
    }
    if (st == CONN_NEGOTIATING || st == CONN_CONNECTING) {
        bool wait = sock_may_wait(s, flags);
        struct signals_mark ran = signals_ran();
        startup_finish_on_use(s);
        const struct conn *before = wait_watch(c);
        ssize_t r = recv_negotiating(s, c, fd, flags, ran, waits);
        wait_unwatch(before);
        if (r < 0)
            return r == -ESHUTDOWN ? 0 : r;
        fd = sock_fd_now(s, fd);
        if (wait && wait_was_interrupted(ran, fd, SO_RCVTIMEO))
            return recv_there(s, fd, it, len, flags, waits);
    }
    return conn_recv_decided(s, fd, it, len, flags, waits);
}

ssize_t dispatch_recv(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags)
{
    struct cancel hold = cancel_hold(conn_left, s);
    bool waits = false;
    ssize_t n = recv_active(s, fd, it, len, flags, &waits);
    if (waits)
        sock_wake(s);
    cancel_restore(hold);
    return n;
}
