/*
 * connect(2): asks the peer whether it runs sockwarp, and goes back to plain TCP on the same socket if it does not.
 *
 * The program's connect completes when the negotiation has. Blocking: inside the call, with both turns held, so that
 * nobody else takes what it waits for. Non-blocking: EINPROGRESS, and writability is held back until then.
 */
#include "preload/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

#include "core/base/fault.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "core/negotiate/verdict.h"
#include "preload/cancel.h"
#include "preload/epoll.h"
#include "preload/explain.h"
#include "preload/gather.h"
#include "preload/local.h"
#include "preload/pending.h"
#include "preload/probe.h"
#include "preload/proc.h"
#include "preload/real.h"
#include "preload/ring.h"
#include "preload/spin.h"
#include "preload/startup.h"
#include "preload/tcpinfo.h"
#include "preload/verbs.h"
#include "preload/wait.h"

/*
 * A listener on this host that runs sockwarp answers when its program accepts. To a blocking connect() that has waited so long
 * it is as good as TCP's backlog: it returns, and the startup goes on with the program's next calls.
 */
#define BACKLOG_NS 40000000u

static struct verdicts verdicts;
/* Protects verdicts; innermost. Only tried, as connect(2) may be called in a handler that has interrupted its holder. */
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

static bool known_plain(const struct sockaddr *peer)
{
    if (pthread_mutex_trylock(&verdict_lock) != 0)
        return false;
    bool plain = verdict_plain(&verdicts, peer, proc_now_ns());
    pthread_mutex_unlock(&verdict_lock);
    return plain;
}

static void remember_plain(const struct conn *c)
{
    if (c->known_shim || proc.set.verdict_ttl_s == 0 || pthread_mutex_trylock(&verdict_lock) != 0)
        return;
    verdict_add(&verdicts, (const struct sockaddr *)&c->peer,
                proc_now_ns() + (uint64_t)proc.set.verdict_ttl_s * 1000000000u);
    pthread_mutex_unlock(&verdict_lock);
}

int connect_begin(struct sock *s, struct conn *c)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    if (REAL(getpeername)(atomic_load(&s->fd), (struct sockaddr *)&peer, &len) == 0) {
        c->peer = peer; /* a connect to the wildcard address went somewhere */
        c->peer_len = len;
    }
    int r = conn_buffers(c);
    if (c->opts.transports & HELLO_TRANSPORT_VERBS) { /* which device it can be is asked by it */
        len = sizeof(c->local);
        if (REAL(getsockname)(atomic_load(&s->fd), (struct sockaddr *)&c->local, &len) < 0)
            c->local.ss_family = AF_UNSPEC;
        if (conn_zerocopy_on(atomic_load(&s->fd)))
            c->opts.transports &= (uint8_t)~HELLO_TRANSPORT_VERBS; /* the kernel would tell of nothing */
    }
    if (r == 0)
        r = conn_begin(c);
    if (r < 0)
        conn_go_plain(s, c, REASON_NO_MEMORY);
    return r;
}

/* Ends the TCP connection by a reset; the descriptor stays, unconnected. */
static int disconnect(int fd)
{
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    if (REAL(connect)(fd, &none, sizeof(none)) < 0)
        return errno;
    /* The kernel notes the reset as an error of the socket's, and would tell the program. */
    int err;
    socklen_t len = sizeof(err);
    REAL(getsockopt)(fd, SOL_SOCKET, SO_ERROR, &err, &len);
    return 0;
}

void connect_refuse(struct sock *s, struct conn *c, int fd, unsigned reason)
{
    if (c->responder) {
        disconnect(fd);
        conn_go_dead(s, c, reason, ECONNRESET);
        return;
    }
    disconnect(fd);
    conn_go_dead(s, c, reason, ECONNREFUSED);
}

void connect_again(struct sock *s, struct conn *c, int fd)
{
    unsigned reason = c->neg.reason;
    bool rev_1 = c->opts.immediate && !c->rev_1 && mpa_startup_retry_rev1(&c->neg.mpa);
    if (reason == REASON_HELLO_TIMEOUT || reason == REASON_HELLO_GARBAGE || reason == REASON_HELLO_CLOSED ||
        (c->opts.immediate && !rev_1))
        remember_plain(c);
    if (c->require && !rev_1) {
        connect_refuse(s, c, fd, reason);
        return;
    }
    struct sockaddr_storage local;
    socklen_t local_len = sizeof(local);
    bool rebind = s->port_known && REAL(getsockname)(fd, (struct sockaddr *)&local, &local_len) == 0;
    int err = disconnect(fd);
    /* The kernel keeps a port that the program bound; one that it only saw has to be taken again. */
    if (err == 0 && rebind && REAL(bind)(fd, (struct sockaddr *)&local, local_len) < 0 && errno != EINVAL)
        trace_info("fd %d: the local port could not be kept: errno %d", fd, errno);
    c->in_len = c->pre_len = c->pre_off = 0;
    c->startup_rx = c->startup_tx = 0;
    if (err == 0 && REAL(connect)(fd, (struct sockaddr *)&c->peer, c->peer_len) < 0 &&
        errno != EINPROGRESS)
        err = errno;
    if (rev_1 && err == 0) {
        /* Without a Hello the peer may be of before RFC 6581: its section 10 allows a second attempt. */
        c->rev_1 = true;
        c->peer_reset = c->peer_closed = false;
        atomic_store(&c->so_error, 0);
        conn_go_connecting(c);
        return;
    }
    atomic_store(&c->so_error, err);
    conn_go_plain(s, c, reason);
}

/* A connection that is left alone: remembered only where somebody wants to read about it. */
static void note_plain(struct sock *s, const struct sockaddr *peer, socklen_t len,
                       const struct policy_rule *rule, unsigned reason)
{
    if (proc.set.stats_file[0] == '\0' && !proc.set.explain)
        return;
    struct conn *c = conn_new(false, CONN_CONNECTING, rule);
    if (c == NULL)
        return;
    memcpy(&c->peer, peer, len);
    s->conn = c;
    s->kind = SOCK_CONN;
    conn_go_plain(s, c, reason);
}

/* REASON_NONE: ask the peer. */
static unsigned plain_because(struct sock *s, int fd, const struct sockaddr *peer, const struct policy_rule *rule,
                              bool *known_shim)
{
    *known_shim = false;
    if (rule->action == POLICY_OFF)
        return REASON_POLICY;
    if (s->stay_plain)
        return s->plain_reason;
    if (fd <= 2)
        return REASON_STD_FD;
    if (ring_drives_sockets())
        return REASON_OWN_URING;
    if (atomic_load(&proc.passes_conns))
        return REASON_SHARED_FD;
    if ((rule->opts.transports & (HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS)) == 0)
        return REASON_TRANSPORT;
    /* Before the look-up: no listener of this host known to run sockwarp is ever remembered as plain. */
    if (known_plain(peer))
        return REASON_CACHED_PLAIN;
    if (!rule->opts.hello_always) {
        switch (local_ask(peer, rule->opts.self)) {
        case LOCAL_PRESENT:
            *known_shim = true;
            return REASON_NONE;
        case LOCAL_ABSENT:
            return REASON_NO_LOCAL_SHIM;
        case LOCAL_SELF:
            return REASON_SELF;
        case LOCAL_REMOTE:
            break;
        }
    }
    return REASON_NONE;
}

/* The kernel's connect was up: a peer that reset it since is told by the next call. 0 or -errno. */
static int told_by_connect(struct conn *c)
{
    return c->peer_closed || atomic_load(&c->so_error) == ECONNRESET ? 0 : -atomic_exchange(&c->so_error, 0);
}

static struct spin startup_spin; /* do the answers to startups come soon? */

/* Blocking: until it is decided. Both turns held. */
static int finish_blocking(struct sock *s, struct conn *c, int fd)
{
    startup_step(s);
    uint64_t patience = c->known_shim ? proc_now_ns() + BACKLOG_NS : 0;
    while ((conn_state(c) == CONN_NEGOTIATING && !c->neg.late) || conn_state(c) == CONN_CONNECTING) {
        bool in_backlog = patience != 0 && conn_state(c) == CONN_NEGOTIATING && c->neg.state == NEGOTIATE_HELLO;
        if (in_backlog && proc_now_ns() >= patience) {
            c->in_backlog = true;
            break;
        }
        struct spin_look k;
        if (spin_for(&k, &startup_spin, SPIN_STARTUP, fd, (short)c->kernel_wants)) {
            startup_step(s);
            continue;
        }
        /* A signal handler may run meanwhile; the connection is up, so there is nothing to report. */
        bool device = c->vep != NULL || c->mixed != NULL;
        const struct conn *before = device ? wait_watch(c) : NULL; /* another thread may see its device's events */
        int r = wait_for(fd, (short)c->kernel_wants, in_backlog ? patience : 0, s);
        if (device)
            wait_unwatch(before);
        spin_end(&k, &startup_spin);
        if (r < 0 && r != -EINTR)
            return r;
        startup_step(s);
    }
    return told_by_connect(c);
}

/* The kernel's connect as the program's. 0 or -errno. */
static __attribute__((noinline)) int connect_waiting(int fd, const struct sockaddr *peer, socklen_t len)
{
    int r;
    CANCEL_POINT(r = REAL(connect)(fd, peer, len));
    return r < 0 ? -errno : 0;
}

static int connect_asking(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len,
                          const struct policy_rule *rule, bool known_shim)
{
    struct conn *c = conn_new(false, CONN_CONNECTING, rule);
    if (c == NULL)
        return connect_waiting(fd, peer, len);
    memcpy(&c->peer, peer, len);
    c->peer_len = len;
    /* (Without a Hello there is nothing to withdraw: as with a peer elsewhere, time runs out, and TCP is plain.) */
    c->known_shim = known_shim && !rule->opts.immediate;
    int r = turn_take(&c->rx, 0, false);
    SW_CHECK(r == 0, "fresh turn: %d", r);
    r = turn_take(&c->tx, 0, false);
    SW_CHECK(r == 0, "fresh turn: %d", r);
    turn_sleep(&c->rx);
    turn_sleep(&c->tx);
    s->conn = c;
    s->kind = SOCK_CONN;
    atomic_store(&s->active, true);
    epoll_conn_changed(s);

    r = connect_waiting(fd, peer, len);
    bool nonblock = atomic_load(&s->nonblock);
    if (r == 0 && !nonblock) {
        r = finish_blocking(s, c, fd);
        if (conn_state(c) == CONN_NEGOTIATING)
            pending_add(s); /* late: it goes on while the program waits for something */
        epoll_conn_changed(s);
    } else if (r == 0) {
        pending_add(s);
        startup_step(s);
        r = conn_state(c) == CONN_NEGOTIATING ? -EINPROGRESS : told_by_connect(c);
    } else if (r == -EINPROGRESS || r == -EINTR) {
        pending_add(s);
    } else {
        conn_go_plain(s, c, REASON_NOT_CONNECTED);
        epoll_conn_changed(s);
    }
    turn_wake(&c->tx);
    turn_give(&c->tx);
    turn_wake(&c->rx);
    turn_give(&c->rx);
    conn_tell(c);
    return r;
}

/* The socket is used for another connection, or for none: what we knew of the last one ends here. */
static void forget_conn(struct sock *s)
{
    struct conn *c = s->conn;
    pending_remove(s);
    atomic_store(&s->active, false);
    conn_record(s, c);
    s->conn = NULL;
    s->kind = SOCK_NEW;
    conn_release(c, NULL);
    epoll_conn_changed(s);
}

static int connect_sock(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len)
{
    if (s->kind == SOCK_CONN) {
        struct conn *c = s->conn;
        enum conn_state st = conn_state(c);
        if (peer != NULL && len >= sizeof(sa_family_t) && peer->sa_family == AF_UNSPEC) {
            int r = connect_waiting(fd, peer, len);
            if (r == 0)
                forget_conn(s);
            return r;
        }
        if (!c->responder && (st == CONN_CONNECTING || st == CONN_NEGOTIATING)) {
            int r = startup_go_on(s, true);
            (void)r;
            st = conn_state(c);
            if (st == CONN_CONNECTING || (st == CONN_NEGOTIATING && !connect_told(c)))
                return -EALREADY;
        }
        int err = atomic_exchange(&c->so_error, 0);
        if (err != 0)
            return -err;
        return connect_waiting(fd, peer, len);
    }
    if (s->kind != SOCK_NEW || peer == NULL ||
        !((peer->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) ||
          (peer->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6))) ||
        len > sizeof(struct sockaddr_storage))
        return connect_waiting(fd, peer, len);
    const struct policy_rule *rule = policy_match(&proc.set.policy, POLICY_CONNECT, peer, len);
    if (rule == NULL)
        return connect_waiting(fd, peer, len);
    bool known_shim;
    unsigned reason = plain_because(s, fd, peer, rule, &known_shim);
    if (reason == REASON_NONE)
        return connect_asking(s, fd, peer, len, rule, known_shim);
    if (rule->action == POLICY_REQUIRE) {
        struct sockaddr_storage ss = { 0 };
        memcpy(&ss, peer, len);
        explain_decision(s, "connect", &ss, "refused", reason);
        return -ECONNREFUSED;
    }
    int r = connect_waiting(fd, peer, len);
    if (reason == REASON_NO_LOCAL_SHIM && (r == 0 || (r == -EINPROGRESS && tcpinfo_state(fd) == TCP_ESTABLISHED)))
        local_absent(peer);
    if (r == 0 || r == -EINPROGRESS || r == -EINTR)
        note_plain(s, peer, len, rule, reason);
    return r;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    gather_before_wait();
    gather_send_fd(fd);
    struct sock *s = proc_on() && !proc_is_borrowed() ? sock_get(fd) : NULL;
    if (s == NULL)
        return REAL(connect)(fd, addr, len);
    /* (What the kernel would not read it refuses itself.) */
    bool good = len <= sizeof(struct sockaddr_storage) && probe_can_read(addr, len);
    int err = errno;
    struct cancel hold = cancel_hold(conn_left, s);
    int r = good ? connect_sock(s, fd, addr, len) : connect_waiting(fd, addr, len);
    cancel_restore(hold);
    sock_put(s);
    errno = r == 0 ? err : -r;
    return r == 0 ? 0 : -1;
}

void connect_after_fork(void)
{
    pthread_mutex_init(&verdict_lock, NULL);
    local_after_fork();
}
