/*
 * The way back to plain TCP, and the peers that are known to be plain.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/probe.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "core/negotiate/verdict.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/startup/fallback.h"
#include "preload/startup/learned.h"
#include "preload/startup/meet.h"

static struct verdicts verdicts;
/*
 * Protects verdicts; innermost. Only tried, as connect(2) may be called in a handler that has interrupted its holder.
 */
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t fallback_ttl_ns(void)
{
    return (uint64_t)proc.set.verdict_ttl_s * 1000000000u;
}

bool fallback_known_plain(const struct sockaddr *peer, int fd)
{
    struct verdict_entry key;
    if (fallback_ttl_ns() == 0 || !verdict_key(&key, peer, 0) || pthread_mutex_trylock(&verdict_lock) != 0)
        return false;
    struct verdict_entry e = verdicts.slot[verdict_slot(&key)];
    pthread_mutex_unlock(&verdict_lock);
    uint64_t now_ns = proc_now_ns();
    if (!verdict_holds(&e, &key, now_ns, fallback_ttl_ns()))
        return false;
    key.netns = meet_netns(fd); /* (0: this kernel does not tell) */
    return verdict_holds(&e, &key, now_ns, fallback_ttl_ns());
}

void fallback_remember(const struct conn *c, int fd)
{
    struct verdict_entry key;
    const struct sockaddr *peer = (const struct sockaddr *)&c->peer;
    if ((c->startup.known_shim && !c->startup.marked) || fallback_ttl_ns() == 0)
        return;
    if (verdict_key(&key, peer, meet_netns(fd)) && pthread_mutex_trylock(&verdict_lock) == 0) {
        verdict_renew(&verdicts.slot[verdict_slot(&key)], &key, proc_now_ns(), fallback_ttl_ns());
        pthread_mutex_unlock(&verdict_lock);
    }
    learned_tell(peer, fd);
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

void fallback_after_fork(void)
{
    pthread_mutex_init(&verdict_lock, NULL);
}
