/*
 * Readiness of a stream in software on the program's own TCP connection: what poll(2) would report of the program's
 * bytes. The kernel reports readiness of the frames.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_soft.h"
#include "preload/conn/conn_switch.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/process/real.h"

#define IN_BITS (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)
/* Events that the kernel knows best, and reports unasked. */
#define ALWAYS (POLLERR | POLLHUP | POLLNVAL)

/* The kernel cannot wait for a low-water mark beyond what staging holds. */
static bool staging_full(struct conn *c)
{
    uint8_t *p;
    if (c->rx.mode == CONN_RX_STREAMED)
        return conn_switch_space(c, &p) == 0;
    return conn_rx_avail(c) > 0 && (conn_rx_held(c) || iwarp_in_space(&c->ep, &p) == 0);
}

/* Is it readable now? Takes rx briefly. */
static bool readable(struct sock *s, struct conn *c, short kernel, short *ask)
{
    if (turn_take_brief(&c->rx.turn) < 0) {
        *ask |= POLLIN; /* another thread sleeps in recv: it gets the bytes first */
        return false;
    }
    int fd = atomic_load(&s->fd); /* with the turn held: see sock_drop */
    bool yes = conn_rx_progress(c, fd, (kernel & (IN_BITS | POLLRDHUP | ALWAYS)) != 0);
    if (yes && conn_state(c) == CONN_UPGRADED && c->st.rx.end == STREAM_OPEN && !c->rx.shut &&
        atomic_load(&c->so_error) == 0)
        yes = conn_rx_avail(c) >= conn_rx_target(c) || staging_full(c);
    if (!yes) {
        if (conn_state(c) == CONN_UPGRADED)
            conn_soft_lowat(c, fd);
        *ask |= POLLIN;
    }
    turn_give(&c->rx.turn);
    return yes;
}

/* Is there urgent data? The kernel reports it until we have read it; after that we do. */
static bool urgent(struct sock *s, struct conn *c, short kernel, short *ask)
{
    uint8_t *p;
    *ask |= POLLPRI;
    if (turn_take_brief(&c->rx.turn) < 0)
        return c->st.rx.urgent == STREAM_URGENT_VALID; /* another thread sleeps in recv: it gets the bytes first */
    int fd = atomic_load(&s->fd);
    if (kernel & POLLPRI)
        conn_rx_all(c, fd);
    else
        conn_rx_progress(c, fd, false);
    if (staging_full(c) && iwarp_in_space(&c->ep, &p) == 0)
        *ask &= ~POLLPRI; /* the kernel would report it again and again; earlier bytes have to be read first */
    turn_give(&c->rx.turn);
    return c->st.rx.urgent == STREAM_URGENT_VALID;
}

static bool writable(struct sock *s, struct conn *c, short kernel, short *ask)
{
    if (c->tx.shut && conn_tail_is_ours(c) && (kernel & OUT_BITS) && turn_take_brief(&c->tx.turn) == 0) {
        int r = conn_tx_push(c, atomic_load(&s->fd));
        (void)r; /* what is left goes on */
        turn_give(&c->tx.turn);
    }
    if (c->tx.shut) { /* a send would fail at once */
        *ask |= conn_tail_is_ours(c) ? POLLOUT : 0;
        return true;
    }
    if (!iwarp_can_send(&c->ep)) {
        if (c->st.rx.end != STREAM_OPEN)
            return true; /* the RTR will not come: a send fails at once */
        /* The RTR has to come first, and it comes as input. */
        *ask |= POLLIN;
        return false;
    }
    *ask |= POLLOUT;
    if (!(kernel & OUT_BITS))
        return false;
    if (turn_take_brief(&c->tx.turn) < 0)
        return false;
    bool yes = true;
    if (c->tx.job_runs || c->tx.rest || c->tx.fin_owed) {
        yes = conn_tx_push(c, atomic_load(&s->fd)) != -EAGAIN;
    }
    turn_give(&c->tx.turn);
    return yes;
}

static bool has_ended(const struct conn *c)
{
    return c->st.rx.end != STREAM_OPEN || atomic_load(&c->so_error) != 0;
}

/*
 * The end, or the error, arrived after the kernel was asked, or another call took it in: the kernel knows what goes
 * with it by now (TCP reports a reset and the hang-up together).
 */
static short end_as_a_whole(const struct sock *s, short want)
{
    struct pollfd now = { .fd = atomic_load(&s->fd), .events = want & POLLRDHUP };
    return now.fd >= 0 && REAL(poll)(&now, 1, 0) > 0 ? (short)(now.revents & ~POLLNVAL) : 0;
}

short conn_soft_ready(struct sock *s, int fd, short want, short kernel, short *ask)
{
    struct conn *c = s->conn;
    bool ended_before = has_ended(c);
    (void)fd; /* (looked up again each time round) */
    if (SW_UNLIKELY(c->rx.mode == CONN_RX_STREAMED) && (kernel & (POLLERR | POLLHUP)) &&
        turn_take_brief(&c->rx.turn) == 0) {
        conn_rx_all(c, atomic_load(&s->fd)); /* its error shows only behind all bytes: conn.rx.reset_unseen */
        turn_give(&c->rx.turn);
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
    if (SW_UNLIKELY(has_ended(c)) && (!ended_before || atomic_load(&c->so_error) != 0))
        got |= end_as_a_whole(s, want);
    if (SW_UNLIKELY(atomic_load(&c->rx.reset_unseen)))
        got &= ~(POLLERR | (c->tx.shut ? 0 : POLLHUP));
    if (atomic_load(&c->so_error) != 0)
        got |= (short)(POLLERR | (want & OUT_BITS)); /* a send would fail at once */
    return got;
}

uint32_t conn_soft_kernel_events(const struct conn *c, uint32_t events)
{
    if ((events & (EPOLLOUT | EPOLLWRNORM)) && !iwarp_can_send(&c->ep))
        return (events & ~(uint32_t)(EPOLLOUT | EPOLLWRNORM)) | EPOLLIN;
    return conn_tail_is_ours(c) ? events | EPOLLOUT : events;
}
