/*
 * Carries bytes over a bridge. It uses the connection by the calls that programs make (recv, send, shutdown, poll), as
 * any program would.
 */
#include "preload/calls/bridge_carry.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/sock.h"

#define BUF_LEN (128u * 1024u)
#define TURNS 16u /* buffers in one go, so that other bridges get their turn */

struct bridge *bridge_new(void)
{
    struct bridge *b = calloc(1, sizeof(*b));
    void *p = b != NULL ? mmap(NULL, (size_t)2 * BUF_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                        : MAP_FAILED;
    if (p == MAP_FAILED) {
        free(b);
        return NULL;
    }
    b->in.buf = p;
    b->out.buf = b->in.buf + BUF_LEN;
    return b;
}

void bridge_free(struct bridge *b)
{
    munmap(b->in.buf, (size_t)2 * BUF_LEN);
    free(b);
}

static void came(struct bridge_way *w, ssize_t n)
{
    w->at = 0;
    w->n = (size_t)n;
}

static void went(struct bridge_way *w, ssize_t n)
{
    w->at += (size_t)n;
    w->n -= (size_t)n;
}

/* The next bytes for the program. False: there are none now. */
static bool take_in(struct bridge *b)
{
    ssize_t n;
    do
        n = recv(b->tcp, b->in.buf, BUF_LEN, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        came(&b->in, n);
    } else if (n < 0 && errno == EAGAIN) {
        b->tcp_wants |= POLLIN;
    } else {
        b->in.over = true;
        b->reset = b->reset || n < 0;
        if (!b->reset)
            REAL(shutdown)(b->far, SHUT_WR);
    }
    return n > 0;
}

static void carry_in(struct bridge *b)
{
    struct bridge_way *w = &b->in;
    for (unsigned turns = 0; turns < TURNS; turns++) {
        if (w->n == 0 && (w->over || !take_in(b)))
            return;
        ssize_t n = REAL(send)(b->far, w->buf + w->at, w->n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            b->far_wants |= POLLOUT;
            return;
        }
        if (n < 0) { /* it will never be read */
            b->unread = true;
            n = (ssize_t)w->n;
        }
        went(w, n);
    }
    b->again = true;
}

/* The next bytes for the peer. False: there are none now. */
static bool take_out(struct bridge *b)
{
    ssize_t n = REAL(recv)(b->far, b->out.buf, BUF_LEN, MSG_DONTWAIT);
    if (n > 0) {
        came(&b->out, n);
    } else if (n < 0 && errno == EAGAIN) {
        b->far_wants |= POLLIN;
    } else {
        b->out.over = true;
        b->unread = b->unread || n < 0; /* the program has closed without reading all */
        if (!b->cut && !b->unread)
            shutdown(b->tcp, SHUT_WR);
    }
    return n > 0;
}

static void carry_out(struct bridge *b)
{
    struct bridge_way *w = &b->out;
    for (unsigned turns = 0; turns < TURNS; turns++) {
        if (w->n == 0 && (w->over || !take_out(b)))
            return;
        ssize_t n = send(b->tcp, w->buf + w->at, w->n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            b->tcp_wants |= POLLOUT;
            return;
        }
        if (n < 0) {
            b->reset = b->reset || errno != EPIPE;
            b->cut = true;
            REAL(shutdown)(b->far, SHUT_RD);
            n = (ssize_t)w->n;
        }
        went(w, n);
    }
    b->again = true;
}

/* Is the program's end closed? (Or shut down both ways, which comes to the same.) */
static bool is_gone(const struct bridge *b)
{
    struct pollfd p = { .fd = b->far };
    return REAL(poll)(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

void bridge_carry(struct bridge *b)
{
    b->far_wants = b->tcp_wants = 0;
    b->again = false;
    carry_in(b);
    carry_out(b);
    /*
     * (Once the program has ended its side, the hang-up says that it has closed. Before that poll would report it again
     * and again.)
     */
    b->asks_far = b->far_wants != 0 || (b->out.over && b->out.n == 0);
}

bool bridge_is_over(const struct bridge *b)
{
    if (b->in.n > 0 || b->out.n > 0)
        return false;
    if (b->reset)
        return b->in.over;
    return b->out.over && (b->in.over || is_gone(b));
}

/*
 * The program is to see a reset: a local socket reports one when its peer is closed with bytes unread. The program's
 * number may be another file's by now.
 */
static void tell_reset(const struct bridge *b)
{
    int fd = REAL(fcntl)(atomic_load(&b->near->fd), F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sock_ino(fd) == b->near_ino)
        REAL(send)(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    rawsys_close(fd);
}

/* The program's SO_LINGER time was spent in its own close(); SO_LINGER 0 still means a reset. */
static void never_linger(int fd)
{
    struct linger lin = { 0 };
    socklen_t len = sizeof(lin);
    if (REAL(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &lin, &len) < 0 || !lin.l_onoff || lin.l_linger == 0)
        return;
    lin.l_onoff = 0;
    REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin));
}

static void reset_at_close(const struct bridge *b)
{
    static const struct linger none = { .l_onoff = 1, .l_linger = 0 };
    REAL(setsockopt)(b->tcp, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void bridge_part(struct bridge *b)
{
    if (b->reset)
        tell_reset(b);
    if (b->unread)
        reset_at_close(b);
    else
        never_linger(b->tcp);
    if (!b->in.over) /* bytes that come now are never read */
        shutdown(b->tcp, SHUT_RD);
    hidden_close(b->far);
    b->far = -1;
    b->asks_far = b->again = false;
    b->tcp_wants = 0;
}

void bridge_send_rest(struct bridge *b, uint64_t end, bool ends)
{
    int unread = 0;
    while (!b->reset && !b->cut) {
        b->far_wants = b->tcp_wants = 0;
        carry_out(b);
        uint64_t now = proc_now_ns();
        if (now >= end || (b->tcp_wants == 0 && b->far_wants != 0) || b->out.over)
            break;
        struct pollfd p = { .fd = b->tcp, .events = POLLOUT };
        if (b->tcp_wants != 0)
            poll(&p, 1, (int)((end - now) / 1000000u + 1));
    }
    if (!ends || b->passed || atomic_load(&b->near->forked)) /* another process may read it */
        return;
    if (b->unread || b->in.n > 0 || (REAL(ioctl)(b->far, SIOCOUTQ, &unread) == 0 && unread > 0))
        reset_at_close(b);
}
