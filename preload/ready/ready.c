/*
 * Readiness of one descriptor.
 */
#include "preload/ready/ready.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/sock/poller.h"
#include "preload/startup/startup.h"

#define IN_BITS (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)
/* Events that the kernel reports without being asked. */
#define ALWAYS (POLLERR | POLLHUP | POLLNVAL)

/* To be asked once the state is known: a hang-up may be from before the connect(), which another thread makes. */
static short kernel_now(int fd, short want)
{
    struct pollfd now = { .fd = fd, .events = want };
    return REAL(poll)(&now, 1, 0) > 0 ? now.revents : 0;
}

static short negotiating(struct sock *s, struct conn *c, int fd, short want, short kernel, short *ask)
{
    /*
     * A new waiter looks once for itself: its bytes may have been taken from the kernel before it came. (It need not if
     * input is only looked at, and stays in the kernel: then the kernel reports it.)
     */
    int r = kernel == 0 && conn_waits_for_input(c) ? 0 : startup_glance(s, (want & OUT_BITS) != 0, true);
    /* The kernel's report may be of another thread's step under way: its result is waited for. */
    if (r < 0 && kernel != 0)
        r = startup_glance(s, false, false);
    (void)r; /* another thread holds the turns and will be done soon, or is in its connect() */
    enum conn_state st = conn_state(c);
    if (st != CONN_NEGOTIATING && st != CONN_CONNECTING)
        return -1;
    if (conn_speaks_plain(c)) {
        if (SW_UNLIKELY(kernel & POLLHUP))
            kernel = kernel_now(fd, want);
        /* A server may always speak first. */
        *ask = (short)(POLLIN | (want & (OUT_BITS | POLLRDHUP | POLLPRI)));
        short rd = conn_shuts_later(c, SHUT_RD) ? (short)(want & (IN_BITS | POLLRDHUP)) : 0;
        if (rd != 0 && c->neg.mute)
            rd |= POLLHUP;
        return (short)((kernel & ((want & OUT_BITS) | ALWAYS)) | rd);
    }
    *ask = (short)c->startup.kernel_wants;
    if (SW_UNLIKELY(atomic_load(&c->startup.shut_later) != 0)) {
        bool rd = conn_shuts_later(c, SHUT_RD), wr = conn_shuts_later(c, SHUT_WR);
        return (short)((want & ((rd ? IN_BITS | POLLRDHUP : 0) | (wr ? OUT_BITS : 0))) | (rd && wr ? POLLHUP : 0));
    }
    /*
     * The kernel may report an error of the handshake and go on trying (a host that was unreachable
     * for now). The hang-up of a socket that is not connected is from before the connect(), which
     * another thread is just making.
     */
    return st == CONN_CONNECTING ? (short)(kernel & (POLLERR | POLLNVAL)) : 0;
}

/* A connection that stays plain: the kernel's answer, and bytes that were read already. */
static short ready_plain(const struct conn *c, short want, short kernel)
{
    short got = kernel & (short)(want | ALWAYS);
    if (c->rx.pre_len > c->rx.pre_off || atomic_load(&c->so_error) != 0)
        got |= want & IN_BITS;
    if (atomic_load(&c->so_error) != 0)
        got |= (short)((want & OUT_BITS) | POLLERR);
    return got;
}

static short ready_dead(const struct conn *c, short want, short kernel)
{
    if (c->startup.peer_closed && !c->startup.peer_reset) {
        /* The peer's end, and a reset of which the program need not know (unless it waits for nothing else). */
        short ended = want & (IN_BITS | OUT_BITS | POLLRDHUP);
        return ended != 0 ? ended : kernel & ALWAYS;
    }
    return (short)((want & (IN_BITS | OUT_BITS)) | POLLHUP | (atomic_load(&c->so_error) != 0 ? POLLERR : 0));
}

short ready_now(struct sock *s, int fd, short want, short kernel, short *ask)
{
    struct conn *c = s->conn;
    if (SW_UNLIKELY(c->neg.deferred) && (kernel & POLLPRI))
        startup_before_call(s, c, fd, false);
    enum conn_state st = conn_state(c);
    if (kernel & POLLNVAL) { /* another thread has closed fd: the connection may live by another name */
        *ask = want;
        return POLLNVAL;
    }
    *ask = 0;
    if (st == CONN_NEGOTIATING || st == CONN_CONNECTING) {
        startup_finish_on_use(s);
        short r = negotiating(s, c, fd, want, kernel, ask);
        if (r >= 0)
            return r;
        /* The kernel's answer was from before. */
        kernel = kernel_now(fd, want);
        st = conn_state(c);
    } else if (SW_UNLIKELY(kernel & POLLHUP)) {
        kernel = kernel_now(fd, want);
    }
    switch (st) {
    case CONN_PLAIN:
        *ask = want;
        return ready_plain(c, want, kernel);
    case CONN_DEAD:
        return ready_dead(c, want, kernel);
    default:
        return conn_ops(c)->ready(s, fd, want, kernel, ask);
    }
}

bool ready_mask(const sigset_t *mask)
{
    return mask == NULL || usermem_readable(mask, sizeof(uint64_t)); /* the kernel's mask is this long */
}

bool ready_timeout(const struct timespec *ts, int64_t *ns)
{
    *ns = -1;
    if (ts == NULL)
        return true;
    if (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec > 999999999)
        return false;
    if (ts->tv_sec < INT64_MAX / 1000000000 / 2) /* room for the time of day */
        *ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
    return true;
}

void ready_told(struct sock *s)
{
    if (s->conn != NULL && atomic_load(&s->conn->holders.n) != 1) /* (one that connects anew has none) */
        epoll_shared_left();
    poller_wake(s);
}

void ready_arrived(struct sock *s)
{
    if (!atomic_load_explicit(&s->conn->rx.arrived, memory_order_relaxed) ||
        !atomic_exchange(&s->conn->rx.arrived, false))
        return;
    if (sock_watched(s))
        epoll_left_over(s, true);
    ready_told(s);
}
