/*
 * Readiness of one descriptor.
 */
#include "preload/ready/ready.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_switch.h"
#include "preload/device/device.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/sock/poller.h"
#include "preload/startup/startup.h"

#define IN_BITS (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)
/* What the kernel knows best and reports unasked. */
#define ALWAYS (POLLERR | POLLHUP | POLLNVAL)

static short negotiating(struct sock *s, struct conn *c, short want, short kernel, short *ask)
{
    /* A new waiter looks once for itself: what it would wait for may have been taken before it came. */
    int r = (want & OUT_BITS) ? startup_hurry(s) : startup_go_on(s, true);
    if (r < 0 && kernel != 0)
        r = startup_go_on(s, false); /* what was reported may be the other's doing: it has to be seen as a whole */
    (void)r; /* somebody else is at it and will be done soon, or it is a connect() of another thread */
    enum conn_state st = conn_state(c);
    if (st != CONN_NEGOTIATING && st != CONN_CONNECTING)
        return -1;
    if (conn_speaks_plain(c)) {
        /* A server may always speak first. */
        *ask = (short)(POLLIN | (want & (OUT_BITS | POLLRDHUP | POLLPRI)));
        short rd = conn_shuts_later(c, SHUT_RD) ? (short)(want & (IN_BITS | POLLRDHUP)) : 0;
        if (rd != 0 && c->neg.mute)
            rd |= POLLHUP;
        return (short)((kernel & ((want & OUT_BITS) | ALWAYS)) | rd);
    }
    *ask = (short)c->kernel_wants;
    if (SW_UNLIKELY(atomic_load(&c->shut_later) != 0)) {
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

/* A low-water mark beyond what staging holds cannot be waited for. */
static bool staging_full(struct conn *c)
{
    uint8_t *p;
    if (c->rx_mode == CONN_RX_STREAMED)
        return conn_switch_space(c, &p) == 0;
    return conn_rx_avail(c) > 0 && (conn_rx_held(c) || iwarp_in_space(&c->ep, &p) == 0);
}

/* Readable now? rx is taken briefly. */
static bool readable(struct sock *s, struct conn *c, short kernel, short *ask)
{
    if (turn_take_brief(&c->rx) < 0) {
        *ask |= POLLIN; /* another thread sleeps in recv: it is first in line */
        return false;
    }
    int fd = atomic_load(&s->fd); /* with the turn: see sock_drop */
    bool yes = conn_rx_progress(c, fd, (kernel & (IN_BITS | POLLRDHUP | ALWAYS)) != 0);
    if (yes && conn_state(c) == CONN_UPGRADED && c->st.rx.end == STREAM_OPEN && !c->rx_shut &&
        atomic_load(&c->so_error) == 0)
        yes = conn_rx_avail(c) >= conn_rx_target(c) || staging_full(c);
    if (!yes) {
        conn_rx_lowat(c, fd);
        *ask |= POLLIN;
    }
    turn_give(&c->rx);
    return yes;
}

/* Is there urgent data? The kernel reports it until we have read it; then we know, and it does not. */
static bool urgent(struct sock *s, struct conn *c, short kernel, short *ask)
{
    uint8_t *p;
    *ask |= POLLPRI;
    if (turn_take_brief(&c->rx) < 0)
        return c->st.rx.urgent == STREAM_URGENT_VALID; /* another thread sleeps in recv: it is first in line */
    int fd = atomic_load(&s->fd);
    if (kernel & POLLPRI)
        conn_rx_all(c, fd);
    else
        conn_rx_progress(c, fd, false);
    if (staging_full(c) && iwarp_in_space(&c->ep, &p) == 0)
        *ask &= ~POLLPRI; /* it would be told again and again; first others have to be read */
    turn_give(&c->rx);
    return c->st.rx.urgent == STREAM_URGENT_VALID;
}

static bool writable(struct sock *s, struct conn *c, short kernel, short *ask)
{
    if (c->tx_shut && conn_tail_is_ours(c) && (kernel & OUT_BITS) && turn_take_brief(&c->tx) == 0) {
        int r = conn_tx_push(c, atomic_load(&s->fd));
        (void)r; /* what is left goes on */
        turn_give(&c->tx);
    }
    if (c->tx_shut) { /* a send would fail at once */
        *ask |= conn_tail_is_ours(c) ? POLLOUT : 0;
        return true;
    }
    if (!iwarp_can_send(&c->ep)) {
        if (c->st.rx.end != STREAM_OPEN)
            return true; /* the RTR will not come: a send fails at once */
        /* The RTR comes first, and it comes in. */
        *ask |= POLLIN;
        return false;
    }
    *ask |= POLLOUT;
    if (!(kernel & OUT_BITS))
        return false;
    if (turn_take_brief(&c->tx) < 0)
        return false;
    bool yes = true;
    if (c->job_runs || c->tx_rest || c->fin_owed) {
        yes = conn_tx_push(c, atomic_load(&s->fd)) != -EAGAIN;
    }
    turn_give(&c->tx);
    return yes;
}

/* A connection that stays plain: the kernel's answer, and what was read of it already. */
static short ready_plain(const struct conn *c, short want, short kernel)
{
    short got = kernel & (short)(want | ALWAYS);
    if (c->pre_len > c->pre_off || atomic_load(&c->so_error) != 0)
        got |= want & IN_BITS;
    if (atomic_load(&c->so_error) != 0)
        got |= (short)((want & OUT_BITS) | POLLERR);
    return got;
}

static short ready_dead(const struct conn *c, short want, short kernel)
{
    if (c->peer_closed && !c->peer_reset) {
        /* The peer's end, and a reset of which the program need not know (unless it waits for nothing else). */
        short ended = want & (IN_BITS | OUT_BITS | POLLRDHUP);
        return ended != 0 ? ended : kernel & ALWAYS;
    }
    return (short)((want & (IN_BITS | OUT_BITS)) | POLLHUP | (atomic_load(&c->so_error) != 0 ? POLLERR : 0));
}

/* In software, on its own TCP connection. */
static inline short ready_upgraded(struct sock *s, struct conn *c, short want, short kernel, short *ask)
{
    if (SW_UNLIKELY(c->rx_mode == CONN_RX_STREAMED) && (kernel & (POLLERR | POLLHUP)) && turn_take_brief(&c->rx) == 0) {
        conn_rx_all(c, atomic_load(&s->fd)); /* whose error it is shows behind all octets: conn.reset_unseen */
        turn_give(&c->rx);
    }
    *ask = want & POLLRDHUP;
    short got = kernel & (short)((want & POLLRDHUP) | ALWAYS);
    if ((want & POLLPRI) && urgent(s, c, kernel, ask))
        got |= POLLPRI;
    bool could_send = iwarp_can_send(&c->ep);
    if ((want & IN_BITS) || !could_send) {
        short in_ask = 0;
        bool in = readable(s, c, kernel, &in_ask);
        if (in)
            got |= want & IN_BITS;
        else
            *ask |= in_ask;
        conn_rtr_told(s);
    }
    if ((want & OUT_BITS) || conn_tail_is_ours(c)) {
        if (writable(s, c, kernel, ask))
            got |= want & OUT_BITS;
        if (!(want & OUT_BITS) && !conn_tail_is_ours(c))
            *ask &= ~POLLOUT; /* it went */
    }
    if (SW_UNLIKELY(atomic_load(&c->reset_unseen)))
        got &= ~(POLLERR | POLLHUP);
    if (atomic_load(&c->so_error) != 0)
        got |= (short)(POLLERR | (want & OUT_BITS)); /* a send would fail at once */
    return got;
}

short ready_now(struct sock *s, int fd, short want, short kernel, short *ask)
{
    struct conn *c = s->conn;
    enum conn_state st = conn_state(c);
    if (kernel & POLLNVAL) { /* another thread has closed fd: the connection may live by another name */
        *ask = want;
        return POLLNVAL;
    }
    *ask = 0;
    if (st == CONN_NEGOTIATING || st == CONN_CONNECTING) {
        startup_finish_on_use(s);
        short r = negotiating(s, c, want, kernel, ask);
        if (r >= 0)
            return r;
        /* What the kernel said was of the time before. */
        struct pollfd now = { .fd = fd, .events = want };
        kernel = REAL(poll)(&now, 1, 0) > 0 ? now.revents : 0;
        st = conn_state(c);
    }
    switch (st) {
    case CONN_PLAIN:
        *ask = want;
        return ready_plain(c, want, kernel);
    case CONN_DEAD:
        return ready_dead(c, want, kernel);
    default:
        return conn_on_device(c) ? device_ready(s, fd, want, kernel, ask) : ready_upgraded(s, c, want, kernel, ask);
    }
}

bool ready_mask(const sigset_t *mask)
{
    return mask == NULL || usermem_readable(mask, sizeof(uint64_t)); /* the kernel's is so long */
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
    if (!atomic_load_explicit(&s->conn->rx_arrived, memory_order_relaxed) ||
        !atomic_exchange(&s->conn->rx_arrived, false))
        return;
    if (s->watches != NULL)
        epoll_left_over(s, true);
    ready_told(s);
}
