/*
 * The responder's beginning: socket, bind, listen, accept.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

#include "core/base/reason.h"
#include "preload/calls/bridge.h"
#include "preload/calls/connect.h"
#include "preload/calls/exec.h"
#include "preload/calls/info.h"
#include "preload/calls/ring.h"
#include "preload/calls/stdio.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/cancel.h"
#include "preload/process/imports.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/rules.h"
#include "preload/process/sandbox.h"
#include "preload/process/shortage.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/local.h"
#include "preload/startup/mark.h"
#include "preload/startup/startup.h"
#include "preload/startup/syn.h"

int socket(int domain, int type, int protocol)
{
    int fd = REAL(socket)(domain, type, protocol);
    if (fd < 0 || !proc_on() || proc_is_borrowed() || sandbox_on())
        return fd;
    int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK);
    if ((domain == AF_INET || domain == AF_INET6) && kind == SOCK_STREAM &&
        (protocol == 0 || protocol == IPPROTO_TCP)) {
        struct sock *s = sock_new(fd, domain);
        if (s != NULL) {
            atomic_store(&s->nonblock, (type & SOCK_NONBLOCK) != 0);
            s->hops_known = true;
            sock_made_here(s, NULL);
            info_take_rules(s);
            sock_put(s);
            stdio_changed(fd);
        }
    } else {
        sock_drop(fd); /* the number may have been a socket of ours that was closed by a call that we did not see */
    }
    return fd;
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    int r = REAL(bind)(fd, addr, len);
    struct sock *s = r == 0 && proc_on() ? sock_get(fd) : NULL;
    if (s != NULL) {
        s->port_known = true;
        sock_put(s);
    }
    return r;
}

int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    int tcp = proc_on() ? bridge_hold(fd) : -1;
    if (SW_UNLIKELY(tcp >= 0)) {
        int named = REAL(getsockname)(tcp, addr, len);
        bridge_release();
        return named;
    }
    int r = REAL(getsockname)(fd, addr, len);
    struct sock *s = r == 0 && proc_on() ? sock_get(fd) : NULL;
    if (s != NULL) {
        /* From now on the program may rely on the port it saw. */
        if (s->kind == SOCK_CONN)
            s->port_known = true;
        sock_put(s);
    }
    return r;
}

int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
    int tcp = proc_on() ? bridge_hold(fd) : -1;
    if (SW_UNLIKELY(tcp >= 0)) {
        int named = REAL(getpeername)(tcp, addr, len);
        bridge_release();
        return named;
    }
    struct sock *s = proc_on() ? sock_get_active(fd) : NULL;
    if (s != NULL) {
        int err = errno;
        /* Programs ask this to learn whether a non-blocking connect has succeeded. */
        enum conn_state st = conn_state(s->conn);
        if (!s->conn->responder && (st == CONN_NEGOTIATING || st == CONN_CONNECTING)) {
            int r = startup_go_on(s, true);
            (void)r;
            st = conn_state(s->conn);
        }
        bool pending = !s->conn->responder && st == CONN_NEGOTIATING && !connect_told(s->conn);
        sock_put(s);
        errno = pending ? ENOTCONN : err;
        if (pending)
            return -1;
    }
    return REAL(getpeername)(fd, addr, len);
}

/* (Clients must not ask a program that may accept by a ring, or in another way that we do not see. code: what listens.) */
static void listen_names(struct sock *s, int fd, const struct sockaddr_storage *ss, socklen_t len, const void *code)
{
    if (s->stay_plain || s->name_fd[0] >= 0 || !names_may_be() ||
        policy_match_listener(rules_of(s->rules), (const struct sockaddr *)ss, len) == NULL)
        return;
    if (!imports_accept(code))
        atomic_store(&s->names_later, NAMES_AT_ACCEPT);
    else if (ring_any())
        atomic_store(&s->names_later, NAMES_AT_WAIT);
    else
        local_names_open(s, fd);
}

/* Is fd's address its own already, so that no other socket can listen there? */
static bool has_own_address(int fd, const struct sockaddr_storage *ss)
{
    int shared = 0;
    socklen_t len = sizeof(shared);
    return local_port_of(ss) != 0 && REAL(getsockopt)(fd, SOL_SOCKET, SO_REUSEPORT, &shared, &len) == 0 && !shared;
}

/* A client that connects as soon as it listens has to find its name: so the name comes first, where it is known. */
static int listen_sock(struct sock *s, int fd, int backlog, const void *code)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    int err = errno;
    bool fresh = s->kind == SOCK_NEW && REAL(getsockname)(fd, (struct sockaddr *)&ss, &len) == 0;
    bool named = fresh && has_own_address(fd, &ss);
    if (named)
        listen_names(s, fd, &ss, len, code);
    int r = REAL(listen)(fd, backlog) < 0 ? -errno : 0;
    len = named ? len : (socklen_t)sizeof(ss);
    if (fresh && r < 0) {
        local_names_end(s);
        local_names_close(s);
        atomic_store(&s->names_later, NAMES_NOT_LATER);
    } else if (named || (fresh && REAL(getsockname)(fd, (struct sockaddr *)&ss, &len) == 0)) {
        s->kind = SOCK_LISTENER;
        listen_names(s, fd, &ss, len, code);
    }
    errno = r < 0 ? -r : err;
    return r < 0 ? -1 : 0;
}

int listen(int fd, int backlog)
{
    struct sock *s = proc_on() && !proc_is_borrowed() ? sock_get(fd) : NULL;
    if (s == NULL)
        return REAL(listen)(fd, backlog);
    int r = listen_sock(s, fd, backlog, __builtin_return_address(0));
    sock_put(s);
    return r;
}

/* Is a Hello all that ever came: no byte of the program's, and no HWDR? */
static bool has_hello_only(const struct conn *c)
{
    bool hello = conn_state(c) == CONN_UPGRADED
                     ? conn_on_socket(c) && !c->neg.switched && c->ep.stats.rx_fpdus == 0
                     : conn_state(c) == CONN_PLAIN && c->startup.rx_total > 0 && !c->neg.withdrawn;
    return hello && conn_rx_avail(c) == 0;
}

/*
 * A Hello whose sender has given up: the program need not see the connection. An initiator that gives up resets. An end
 * is its program's, which has sent all it wants to send, or nothing.
 */
static bool abandoned(struct conn *c, int fd)
{
    /* (An upgraded one may have been closed again, with its bytes waiting to be read.) */
    unsigned reason = atomic_load(&c->record.reason);
    if (conn_state(c) == CONN_DEAD && (reason == REASON_CLOSED || reason == REASON_MPA_FAILED))
        return true;
    bool starting = conn_state(c) == CONN_NEGOTIATING, held = conn_is_held(c);
    if ((starting ? conn_undecided(c) && !held : !has_hello_only(c)) || tcpinfo_state(fd) != TCP_CLOSE)
        return false;
    int queued = tcpinfo_queued(fd); /* it has answered us, or gone on plain: not all of it was read */
    return queued == 0 || (held && startup_greeting(fd) == queued); /* (it stays in the kernel for now) */
}

/*
 * May accept() on this listener go on with the next connection? A program that saw the listener readable, and uses a
 * blocking accept(), must not wait: the kernel would return a connection that is gone, too.
 */
static bool another_waits(struct sock *listener, int listener_fd)
{
    struct pollfd p = { .fd = listener_fd, .events = POLLIN };
    return atomic_load(&listener->nonblock) || !atomic_load(&listener->polled) || REAL(poll)(&p, 1, 0) > 0;
}

/*
 * Makes the sock of a connection that was just accepted; peer: its address. 0: *out is NULL if it is not ours, and not in the table.
 * -errno: there is no memory for it; its client may send a Hello, which the program must not read.
 */
static int make_accepted(struct sock *listener, int fd, const struct sockaddr_storage *peer, bool nonblock,
                         struct sock **out)
{
    struct sockaddr_storage local;
    socklen_t len = sizeof(local);
    const struct policy_rule *rule = NULL;
    *out = NULL;
    if (REAL(getsockname)(fd, (struct sockaddr *)&local, &len) == 0)
        rule = policy_match(rules_of(listener->rules), POLICY_ACCEPT, (struct sockaddr *)&local, len);
    else if (is_shortage(errno))
        return -errno;
    if (rule == NULL) {
        sock_drop(fd);
        return 0;
    }
    struct sock *s = sock_new(fd, listener->domain);
    struct conn *c = s != NULL ? conn_new(true, CONN_NEGOTIATING, rule) : NULL;
    if (c == NULL || startup_begin(c) < 0) {
        if (c != NULL)
            conn_release(c, NULL);
        if (s != NULL)
            sock_put(s);
        return -ENOMEM;
    }
    atomic_store(&s->nonblock, nonblock);
    c->local = local;
    c->peer = *peer;
    s->conn = c;
    s->kind = SOCK_CONN;
    mark_inherit(s, listener);
    sock_made_here(s, listener);
    unsigned reason = connect_ruled_out(listener, fd, rule);
    if (reason == REASON_NONE && epoll_waits_unseen(listener))
        reason = REASON_EPOLL_KIND;
    if (reason != REASON_NONE)
        negotiate_decline(&c->neg, reason);
    *out = s;
    return 0;
}

/* Carries its startup on as far as it can now; if its client waits for that, to its end. */
static void start_accepted(struct sock *listener, int listener_fd, struct sock *s, int fd)
{
    struct conn *c = s->conn;
    bool near = local_same_host(&c->local, &c->peer);
    enum syn_says says = near ? syn_heard(listener, fd) : SYN_NOTHING;
    local_names_drain_some(listener);
    mark_client(listener, listener_fd, near);
    c->startup.client_asked = says > SYN_UNKNOWN;
    atomic_store(&c->startup.hello_comes, says == SYN_GOES_ON);
    c->startup.beside = says == SYN_MEETS || (says == SYN_UNKNOWN && beside_is_asked(c));
    if (says == SYN_WAITS && !startup_is_hasty()) {
        startup_await(s, c, fd);
    } else {
        int r = startup_go_on_unused(s);
        (void)r; /* no other thread knows it yet */
    }
}

/* 0: it is the program's; -EAGAIN: an abandoned Hello, closed; else -errno: there is no memory for it, it is reset. */
static int adopt(struct sock *listener, int listener_fd, int fd, const struct sockaddr_storage *peer, bool nonblock)
{
    struct sock *s;
    int r = make_accepted(listener, fd, peer, nonblock, &s);
    if (r < 0) {
        tcpinfo_reset(fd);
        close(fd);
    }
    if (s == NULL)
        return r;
    struct conn *c = s->conn;
    atomic_store(&s->active, true);
    stdio_changed(fd);
    pending_add(s);
    start_accepted(listener, listener_fd, s, fd);
    /* A program that saw the listener readable must not be kept waiting for the next one. */
    bool closes = abandoned(c, fd) && another_waits(listener, listener_fd);
    if (closes) {
        atomic_store(&c->record.written, true); /* the program never had it */
        close(fd);
    }
    sock_put(s);
    return closes ? -EAGAIN : 0;
}

/* As the kernel: the connection is gone if there is no place for its address. */
static int tell_address(struct sockaddr *addr, socklen_t *len, const struct sockaddr_storage *peer, socklen_t peer_len)
{
    if (!usermem_writable(len, sizeof(*len)))
        return -EFAULT;
    if ((int)*len < 0)
        return -EINVAL;
    socklen_t n = *len < peer_len ? *len : peer_len;
    if (!usermem_writable(addr, n))
        return -EFAULT;
    memcpy(addr, peer, n);
    *len = peer_len;
    return 0;
}

static __attribute__((noinline)) int accept_waiting(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    int r;
    CANCEL_POINT(r = REAL(accept4)(fd, addr, len, flags));
    return r;
}

/*
 * Is the program about to wait for a client here? Then it does not wait for it by calls that we do not see, though the
 * listener is in a set in which it never waits (Apache's prefork).
 */
static void note_waits(struct sock *listener, int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int err = errno;
    if (!atomic_load(&listener->nonblock) && !atomic_load(&listener->accept_waits) && REAL(poll)(&p, 1, 0) == 0)
        atomic_store(&listener->accept_waits, true);
    errno = err;
}

/* A handler has run since the call began, and no client is there: a call that waits is interrupted. */
static bool is_interrupted(const struct sock *listener, struct signals_mark ran, int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return wait_was_interrupted(ran, fd, SO_RCVTIMEO) && !atomic_load(&listener->nonblock) && REAL(poll)(&p, 1, 0) == 0;
}

static int accept_sock(struct sock *listener, int fd, struct sockaddr *addr, socklen_t *addr_len, int flags,
                       struct signals_mark ran)
{
    for (;;) {
        if (SW_UNLIKELY(is_interrupted(listener, ran, fd))) {
            errno = EINTR;
            return -1;
        }
        if (!atomic_load(&listener->nonblock) && pending_others(NULL)) {
            uint64_t deadline = wait_call_deadline(fd, SO_RCVTIMEO);
            sock_sleep(listener);
            int r = wait_for(fd, POLLIN, deadline, NULL);
            sock_wake(listener);
            fd = sock_fd_now(listener, fd);
            if (r <= 0) {
                errno = r == 0 ? EAGAIN : -r;
                return -1;
            }
        }
        struct sockaddr_storage peer;
        socklen_t peer_len = sizeof(peer);
        memset(&peer, 0, sizeof(peer));
        int conn = accept_waiting(fd, (struct sockaddr *)&peer, &peer_len, flags);
        if (conn < 0)
            return conn;
        struct cancel hold = cancel_never();
        int bad = adopt(listener, fd, conn, &peer, (flags & SOCK_NONBLOCK) != 0);
        cancel_restore(hold);
        if (bad == -EAGAIN)
            continue;
        bool taken = bad == 0;
        if (taken && addr != NULL)
            bad = tell_address(addr, addr_len, &peer, peer_len);
        if (bad == 0)
            return conn;
        if (taken)
            close(conn);
        errno = -bad;
        return -1;
    }
}

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    int err = errno;
    struct signals_mark ran = signals_ran();
    coalesce_before_wait();
    struct sock *s = proc_on() && !proc_is_borrowed() ? sock_get(fd) : NULL;
    if (s == NULL || s->kind != SOCK_LISTENER || (addr != NULL && len == NULL) ||
        (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != 0) {
        if (s != NULL)
            sock_put(s);
        else if (sock_is_closing(fd))
            return -1;
        int conn = REAL(accept4)(fd, addr, len, flags);
        if (conn >= 0 && proc_on())
            sock_drop(conn);
        return conn;
    }
    if (SW_UNLIKELY(atomic_load(&s->names_later) != NAMES_NOT_LATER))
        ring_accepts(s, fd);
    if (SW_UNLIKELY(sock_watched(s)))
        note_waits(s, fd);
    struct cancel hold = cancel_hold(conn_left, s);
    int conn = accept_sock(s, fd, addr, len, flags, ran);
    cancel_restore(hold);
    sock_put(s);
    if (conn >= 0)
        errno = err;
    return conn;
}

int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
    return accept4(fd, addr, len, 0);
}
