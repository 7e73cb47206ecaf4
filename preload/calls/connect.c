/*
 * connect(2): asks the peer whether it runs sockwarp, and goes back to plain TCP on the same socket if it does not.
 *
 * The program's connect completes when the negotiation has. Blocking: inside the call, with both turns held, so that no
 * other thread takes what it waits for. Non-blocking: EINPROGRESS, and writability is held back until then.
 */
#include "preload/calls/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

#include "core/base/fault.h"
#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "preload/calls/ring.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/explain.h"
#include "preload/device/device.h"
#include "preload/process/board.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/rules.h"
#include "preload/process/spin.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/usermem.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/learned.h"
#include "preload/startup/local.h"
#include "preload/startup/startup.h"
#include "preload/startup/syn.h"

/*
 * A listener on this host that runs sockwarp answers when its program accepts. A blocking connect() that has waited
 * this long returns, as it would with the connection in TCP's backlog, and the startup goes on with the program's next
 * calls.
 */
#define BACKLOG_NS 40000000u

/* A connection that stays plain from its beginning: remembered only if statistics are wanted. */
static void note_plain(struct sock *s, const struct sockaddr *peer, socklen_t len, const struct policy_rule *rule,
                       unsigned reason)
{
    if (proc.set.stats_file[0] == '\0' && !proc.set.explain && !board_wanted())
        return;
    struct conn *c = conn_new(false, CONN_CONNECTING, rule);
    if (c == NULL)
        return;
    memcpy(&c->peer, peer, len);
    s->conn = c;
    s->kind = SOCK_CONN;
    conn_go_plain(s, c, reason);
}

unsigned connect_ruled_out(const struct sock *s, int fd, const struct policy_rule *rule)
{
    if (rule->action == POLICY_OFF)
        return REASON_POLICY;
    if (s->stay_plain)
        return s->plain_reason;
    if (fd <= 2)
        return REASON_STD_FD;
    if (ring_drives_sockets())
        return REASON_OWN_URING;
    return atomic_load(&proc.passes_conns) ? REASON_SHARED_FD : REASON_NONE;
}

/* A listener of this host that was found. */
struct found {
    bool shim;         /* it runs sockwarp */
    uint64_t meets_on; /* beside_meets */
};

/* REASON_NONE: ask the peer. */
static unsigned plain_because(const struct sock *s, int fd, const struct sockaddr *peer, const struct policy_rule *rule,
                              struct found *found)
{
    *found = (struct found){ 0 };
    unsigned reason = connect_ruled_out(s, fd, rule);
    if (reason != REASON_NONE)
        return reason;
    if (s->acks_late) /* a Hello would be the acknowledgement that the program delays */
        return REASON_DELAYED_ACK;
    if ((rule->opts.transports & (HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS)) == 0)
        return REASON_TRANSPORT;
    /* Before the look-up: no listener of this host known to run sockwarp is ever remembered as plain. */
    if (learned_here(peer, fd))
        return REASON_CACHED_PLAIN;
    if (!rule->opts.hello_always) {
        uint64_t meets_on = rule->opts.meet ? beside_meets(s, fd, peer) : 0;
        uid_t owner = 0;
        switch (local_ask(peer, rule->opts.self, &owner)) {
        case LOCAL_PRESENT:
            /* (A listener of this user's that was there before may have been killed, and another's come in its place.) */
            if (meets_on != 0 && owner != rawsys_geteuid())
                meets_on = 0;
            *found = (struct found){ .shim = true, .meets_on = meets_on };
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

/*
 * The result of connect(): 0 or -errno. The kernel's connection was up, so a later reset is reported by the next call.
 */
static int told_by_connect(struct conn *c)
{
    return c->startup.peer_closed || atomic_load(&c->so_error) == ECONNRESET ? 0 : -atomic_exchange(&c->so_error, 0);
}

static struct spin startup_spin; /* are startups answered soon? */

/* Blocking: until it is decided. Both turns held. */
static int finish_blocking(struct sock *s, struct conn *c, int fd)
{
    startup_step(s);
    /* (Where it may switch late, the negotiation's own deadline ends the look.) */
    uint64_t patience = c->startup.known_shim && !c->neg.cfg.may_switch ? proc_now_ns() + BACKLOG_NS : 0;
    while ((conn_state(c) == CONN_NEGOTIATING && !c->neg.late && !conn_is_late(c)) ||
           conn_state(c) == CONN_CONNECTING) {
        bool in_backlog = patience != 0 && conn_state(c) == CONN_NEGOTIATING && c->neg.state == NEGOTIATE_HELLO;
        if (in_backlog && proc_now_ns() >= patience) {
            c->startup.in_backlog = true;
            break;
        }
        struct spin_look k;
        if (spin_for(&k, &startup_spin, SPIN_STARTUP, fd, (short)c->startup.kernel_wants)) {
            startup_step(s);
            continue;
        }
        /* A signal handler may run meanwhile; the connection is up, so there is nothing to report. */
        bool device = device_has(c);
        const struct conn *before = device ? wait_watch(c) : NULL; /* another thread may see its device's events */
        int r = wait_for(fd, (short)c->startup.kernel_wants, in_backlog ? patience : 0, s);
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

static enum syn_says says_in_syn(const struct sock *s, const struct conn *c)
{
    if (!c->startup.known_shim || !s->hops_known)
        return SYN_NOTHING;
    return startup_may_switch(c) ? SYN_GOES_ON : SYN_WAITS;
}

static int connect_saying(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len, enum syn_says what)
{
    syn_say(s, fd, peer, what);
    int r = connect_waiting(fd, peer, len);
    syn_said(s, fd, peer, what, r);
    return r;
}

static int connect_asking(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len,
                          const struct policy_rule *rule, const struct found *found)
{
    struct conn *c = conn_new(false, CONN_CONNECTING, rule);
    if (c == NULL)
        return connect_waiting(fd, peer, len);
    memcpy(&c->peer, peer, len);
    c->peer_len = len;
    /* (Without a Hello there is nothing to withdraw: as with a peer elsewhere, time runs out, and TCP is plain.) */
    c->startup.known_shim = found->shim && !rule->opts.immediate;
    enum syn_says says = says_in_syn(s, c);
    c->startup.hurried = says == SYN_GOES_ON || atomic_load(&s->nonblock);
    if (says == SYN_GOES_ON && found->meets_on != 0 && beside_ask(c, fd, found->meets_on))
        says = SYN_MEETS;
    int r = turn_take(&c->rx.turn, 0, false);
    SW_CHECK(r == 0, "fresh turn: %d", r);
    r = turn_take(&c->tx.turn, 0, false);
    SW_CHECK(r == 0, "fresh turn: %d", r);
    turn_sleep(&c->rx.turn);
    turn_sleep(&c->tx.turn);
    s->conn = c;
    s->kind = SOCK_CONN;
    atomic_store(&s->active, true);
    notify_blocked(s); /* that it was writable, unconnected, was said of no connection */

    r = connect_saying(s, fd, peer, len, says);
    bool nonblock = atomic_load(&s->nonblock);
    c->startup.tcp_is_up = r == 0;
    if (r == 0 && !nonblock) {
        r = finish_blocking(s, c, fd);
        if (conn_state(c) == CONN_NEGOTIATING)
            pending_add(s); /* late: it goes on while the program waits for something */
        notify_changed(s);
    } else if (r == 0) {
        pending_add(s);
        startup_step_hurried(s);
        r = conn_state(c) == CONN_NEGOTIATING && !conn_is_late(c) ? -EINPROGRESS : told_by_connect(c);
    } else if (r == -EINPROGRESS || r == -EINTR) {
        pending_add(s);
        if (r == -EINPROGRESS && c->startup.known_shim) /* on one host the handshake is over by now */
            startup_step_hurried(s);
    } else {
        beside_end(c);
        conn_go_plain(s, c, REASON_NOT_CONNECTED);
        notify_changed(s);
    }
    turn_wake(&c->tx.turn);
    turn_give(&c->tx.turn);
    turn_wake(&c->rx.turn);
    turn_give(&c->rx.turn);
    conn_tell(c);
    return r;
}

/* The socket is used for another connection, or for none: forgets the former one. */
static void forget_conn(struct sock *s)
{
    struct conn *c = s->conn;
    pending_remove(s);
    syn_over(s, atomic_load(&s->fd), (const struct sockaddr *)&c->peer);
    atomic_store(&s->active, false);
    conn_record(s, c);
    s->conn = NULL;
    s->kind = SOCK_NEW;
    beside_end(c);
    conn_release(c, NULL);
    notify_changed(s);
}

/* AF_UNSPEC: the program ends the connection. */
static int disconnect(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len)
{
    struct conn *c = s->conn;
    int r = conn_is_late(c) ? startup_go_on(s, false) : 0;
    (void)r; /* the step takes in an answer that has come, before the program's reset */
    conn_lead_out(c, fd);
    conn_record(s, c); /* the kernel forgets what it has counted */
    r = connect_waiting(fd, peer, len);
    if (r == 0)
        forget_conn(s);
    return r;
}

/* The socket has a connection of ours. */
static int connect_again(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len)
{
    struct conn *c = s->conn;
    enum conn_state st = conn_state(c);
    if (peer != NULL && len >= sizeof(sa_family_t) && peer->sa_family == AF_UNSPEC)
        return disconnect(s, fd, peer, len);
    if (!c->responder && (st == CONN_CONNECTING || st == CONN_NEGOTIATING)) {
        int r = startup_go_on(s, true);
        (void)r;
        st = conn_state(c);
        if (st == CONN_CONNECTING || (st == CONN_NEGOTIATING && !connect_told(c)))
            return -EALREADY;
    }
    int err = atomic_exchange(&c->so_error, 0);
    return err != 0 ? -err : connect_waiting(fd, peer, len);
}

/* A rule requires more than a plain connection. */
static int refuse(int fd, const struct sockaddr *peer, socklen_t len, unsigned reason)
{
    struct sockaddr_storage ss = { 0 };
    memcpy(&ss, peer, len);
    explain_decision(fd, "connect", &ss, "refused", reason);
    return -ECONNREFUSED;
}

/* It stays plain, for this reason; where the rule says require it is refused. */
static int connect_plain(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len,
                         const struct policy_rule *rule, unsigned reason)
{
    if (rule->action == POLICY_REQUIRE)
        return refuse(fd, peer, len, reason);
    int r = connect_waiting(fd, peer, len);
    if (reason == REASON_NO_LOCAL_SHIM && (r == 0 || (r == -EINPROGRESS && tcpinfo_state(fd) == TCP_ESTABLISHED)))
        local_absent(peer);
    if (!s->stay_plain)
        s->plain_reason = (uint8_t)reason;
    if (r == 0 || r == -EINPROGRESS || r == -EINTR)
        note_plain(s, peer, len, rule, reason);
    return r;
}

static bool is_inet(const struct sockaddr *peer, socklen_t len)
{
    return peer != NULL && len <= sizeof(struct sockaddr_storage) &&
           ((len >= sizeof(struct sockaddr_in) && peer->sa_family == AF_INET) ||
            (len >= sizeof(struct sockaddr_in6) && peer->sa_family == AF_INET6));
}

static int connect_sock(struct sock *s, int fd, const struct sockaddr *peer, socklen_t len)
{
    if (s->kind == SOCK_CONN)
        return connect_again(s, fd, peer, len);
    const struct policy_rule *rule = NULL;
    if (s->kind == SOCK_NEW && is_inet(peer, len))
        rule = policy_match(rules_of(s->rules), POLICY_CONNECT, peer, len);
    if (rule == NULL)
        return connect_waiting(fd, peer, len);
    struct found found;
    unsigned reason = plain_because(s, fd, peer, rule, &found);
    if (reason == REASON_NONE)
        return connect_asking(s, fd, peer, len, rule, &found);
    return connect_plain(s, fd, peer, len, rule, reason);
}

/* 0, -errno, or what was sent. */
static ssize_t connect_sending(struct sock *s, int fd, const struct msghdr *msg, int flags)
{
    const struct sockaddr *peer = msg->msg_name;
    const struct policy_rule *rule = policy_match(rules_of(s->rules), POLICY_CONNECT, peer, msg->msg_namelen);
    s->stay_plain = true;
    s->plain_reason = REASON_FASTOPEN;
    if (rule != NULL && rule->action == POLICY_REQUIRE)
        return refuse(fd, peer, msg->msg_namelen, REASON_FASTOPEN);
    ssize_t r = REAL(sendmsg)(fd, msg, flags);
    if (r < 0)
        r = -errno;
    if (rule != NULL && (r >= 0 || r == -EINPROGRESS || r == -EINTR))
        note_plain(s, peer, msg->msg_namelen, rule, connect_ruled_out(s, fd, rule));
    return r;
}

ssize_t connect_fast(int fd, const struct msghdr *msg, int flags)
{
    struct sock *s = proc_on() && !proc_is_borrowed() ? sock_get(fd) : NULL;
    if (s == NULL || s->kind != SOCK_NEW || !usermem_readable(msg->msg_name, msg->msg_namelen) ||
        !is_inet(msg->msg_name, msg->msg_namelen)) {
        if (s != NULL)
            sock_put(s);
        return REAL(sendmsg)(fd, msg, flags);
    }
    int err = errno;
    struct cancel hold = cancel_hold(conn_left, s);
    ssize_t r = connect_sending(s, fd, msg, flags);
    cancel_restore(hold);
    sock_put(s);
    errno = r >= 0 ? err : (int)-r;
    return r >= 0 ? r : -1;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    coalesce_before_wait();
    coalesce_send_fd(fd);
    struct sock *s = proc_on() && !proc_is_borrowed() ? sock_get(fd) : NULL;
    if (s == NULL)
        return REAL(connect)(fd, addr, len);
    /* (An address that the kernel cannot read it refuses itself.) */
    bool good = len <= sizeof(struct sockaddr_storage) && usermem_readable(addr, len);
    int err = errno;
    struct cancel hold = cancel_hold(conn_left, s);
    int r = good ? connect_sock(s, fd, addr, len) : connect_waiting(fd, addr, len);
    cancel_restore(hold);
    sock_put(s);
    errno = r == 0 ? err : -r;
    return r == 0 ? 0 : -1;
}
