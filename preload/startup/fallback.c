/*
 * The way back to plain TCP.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/probe.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/startup/fallback.h"
#include "preload/startup/learned.h"

void fallback_remember(const struct conn *c, int fd)
{
    const struct sockaddr *peer = (const struct sockaddr *)&c->peer;
    /* (The mark of one that has answered was no accident: its program has spoken while the question was on its way.) */
    if (!c->startup.known_shim || (c->startup.marked && !learned_has_answered(peer)))
        learned_add(peer, fd);
}

/* Resets the TCP connection; the descriptor stays, unconnected. */
static int disconnect(int fd)
{
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    if (REAL(connect)(fd, &none, sizeof(none)) < 0)
        return errno;
    /* The kernel notes the reset as the socket's error, which the program must not get. */
    int err;
    socklen_t len = sizeof(err);
    REAL(getsockopt)(fd, SOL_SOCKET, SO_ERROR, &err, &len);
    return 0;
}

void fallback_refuse(struct sock *s, struct conn *c, int fd, unsigned reason)
{
    if (c->responder) {
        disconnect(fd);
        conn_go_dead(s, c, reason, ECONNRESET);
        return;
    }
    disconnect(fd);
    conn_go_dead(s, c, reason, ECONNREFUSED);
}

static void probe_fallback(const struct conn *c, int fd, unsigned reason)
{
    (void)c;
    (void)fd;
    (void)reason;
    PROBE4(fallback, c, fd, reason, reason_name(reason));
}

void fallback_plain(struct sock *s, struct conn *c, int fd)
{
    unsigned reason = c->neg.reason;
    bool rev_1 = c->opts.immediate && !c->startup.rev_1 && mpa_startup_retry_rev1(&c->neg.mpa);
    if (reason == REASON_HELLO_TIMEOUT || reason == REASON_HELLO_GARBAGE || reason == REASON_HELLO_CLOSED ||
        (c->opts.immediate && !rev_1))
        fallback_remember(c, fd);
    if (c->require && !rev_1) {
        fallback_refuse(s, c, fd, reason);
        return;
    }
    probe_fallback(c, fd, reason);
    struct sockaddr_storage local;
    socklen_t local_len = sizeof(local);
    bool rebind = s->port_known && REAL(getsockname)(fd, (struct sockaddr *)&local, &local_len) == 0;
    int err = disconnect(fd);
    /* The kernel keeps a port that the program bound; one that it only saw has to be taken again. */
    if (err == 0 && rebind && REAL(bind)(fd, (struct sockaddr *)&local, local_len) < 0 && errno != EINVAL)
        trace_info("fd %d: the local port could not be kept: errno %d", fd, errno);
    c->startup.in_len = c->rx.pre_len = c->rx.pre_off = 0;
    c->startup.rx_total = c->startup.tx_total = 0;
    c->startup.tcp_is_up = false;
    if (err == 0 && REAL(connect)(fd, (struct sockaddr *)&c->peer, c->peer_len) < 0 && errno != EINPROGRESS)
        err = errno;
    if (rev_1 && err == 0) {
        /* Without a Hello the peer may be older than RFC 6581, whose section 10 allows a second attempt. */
        c->startup.rev_1 = true;
        c->startup.peer_reset = c->startup.peer_closed = false;
        atomic_store(&c->so_error, 0);
        conn_go_connecting(c);
        return;
    }
    atomic_store(&c->so_error, err);
    conn_go_plain(s, c, reason);
}
