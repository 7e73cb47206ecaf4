/*
 * Readiness of a connection on a device: what poll(2) would report on a TCP socket whose bytes came and went as the
 * stream's.
 *
 * The kernel knows the TCP connection, which says nothing but its end, and the completion channel, which a waiter has
 * beside it (poll.c, epoll_kernel.c); its event arrives here as POLLIN.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#include "preload/conn/conn_end.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/device/device_io.h"
#include "preload/device/rnic.h"
#include "preload/sock/notify.h"

#define IN_BITS (POLLIN | POLLRDNORM)
#define OUT_BITS (POLLOUT | POLLWRNORM)
#define ALWAYS (POLLERR | POLLHUP | POLLNVAL)

static bool is_readable(struct conn *c, int fd)
{
    if (!conn_rx_progress(c, fd, true))
        return false;
    return c->st.rx.end != STREAM_OPEN || c->rx.shut || atomic_load(&c->so_error) != 0 ||
           conn_rx_avail(c) >= conn_rx_target(c);
}

/* The caller holds rx. Armed unless it is readable; for edges always: the next arrival has to be reported. */
static bool readable(struct sock *s, struct conn *c, int fd)
{
    rnic_drain(c);
    bool yes = is_readable(c, fd);
    if (yes && !sock_watched(s))
        return true;
    rnic_arm(c, true);
    return is_readable(c, fd);
}

static bool has_room(struct conn *c)
{
    return conn_can_send(c) && stream_may_write(&c->st) && rnic_may_post(c);
}

/* tx held. */
static bool writable(struct conn *c)
{
    if (c->tx.shut || atomic_load(&c->dev.tcp_end))
        return true; /* a send would fail at once */
    if (has_room(c))
        return true;
    atomic_store(&c->dev.tx_wanted, true);
    rnic_arm(c, false);
    return has_room(c);
}

short device_ready(struct sock *s, int fd, short want, short kernel, short *ask)
{
    struct conn *c = s->conn;
    *ask = 0;
    if (!device_is_ours(c))
        return (short)((want & (IN_BITS | OUT_BITS)) | POLLERR);
    int err = errno; /* (asking is not the program's) */
    short got = kernel & ALWAYS;
    bool in = false;
    if (turn_take_brief(&c->rx.turn) == 0) { /* otherwise another thread sleeps in recv: it gets the bytes first */
        fd = atomic_load(&s->fd);
        in = readable(s, c, fd);
        turn_give(&c->rx.turn);
    }
    if (kernel & POLLERR)
        device_was_reset(c, fd);
    /* As the kernel: the peer's direction and ours have ended (tcp_poll). */
    bool reset = c->reset, ended = c->st.rx.end == STREAM_EOF || c->rx.shut || reset;
    if (ended)
        got |= want & POLLRDHUP;
    if (ended && (c->tx.shut || reset))
        got |= POLLHUP;
    if (in)
        got |= want & IN_BITS;
    if ((want & OUT_BITS) && turn_take_brief(&c->tx.turn) == 0) {
        if (writable(c))
            got |= want & OUT_BITS;
        else
            rnic_arm(c, true); /* credits come in */
        if (!(got & OUT_BITS) && writable(c))
            got |= want & OUT_BITS;
        turn_give(&c->tx.turn);
    }
    if (conn_tail_is_mine(c) && turn_take_brief(&c->tx.turn) == 0) {
        c->tx.rest = device_flush(c, fd) != 0;
        turn_give(&c->tx.turn);
    }
    /* It reports nothing more, but would be readable for ever. */
    if (atomic_load(&c->dev.tcp_end) && sock_watched(s))
        notify_changed(s);
    if (!atomic_load(&c->dev.tcp_end))
        *ask = POLLIN | POLLRDHUP;
    if (atomic_load(&c->so_error) != 0)
        got |= POLLERR;
    errno = err;
    return got;
}

uint32_t device_kernel_events(const struct conn *c, uint32_t events)
{
    return atomic_load(&c->dev.tcp_end) ? 0 : EPOLLIN | (events & EPOLLRDHUP);
}
