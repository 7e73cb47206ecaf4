/*
 * Names and beginnings: getsockname and getpeername at every stage, listen, accept, connect.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static struct sockaddr_in local(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(port),
        .sin_port = htons(port),
    };
}

static int new_socket(int flags)
{
    return (int)must("socket", socket(AF_INET, SOCK_STREAM | flags, 0));
}

/* A socket that holds a port; listening with the backlog unless that is negative. */
static int holder(struct sockaddr_in *in, int backlog)
{
    int fd = new_socket(0);
    socklen_t len = sizeof(*in);
    *in = local(0);
    must("bind", bind(fd, (struct sockaddr *)in, len));
    if (backlog >= 0)
        must("listen", listen(fd, backlog));
    must("getsockname", getsockname(fd, (struct sockaddr *)in, &len));
    return fd;
}

static int to(int fd, const struct sockaddr_in *in)
{
    return connect(fd, (const struct sockaddr *)in, sizeof(*in));
}

static int error_of(int fd)
{
    int err = -1;
    socklen_t len = sizeof(err);
    must("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len));
    return err;
}

/* Says whose name it is: known ports are called by their owner. */
static void say_name(const char *what, int fd, int (*call)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in in = { 0 };
    socklen_t len = sizeof(in);
    int r = call(fd, (struct sockaddr *)&in, &len);
    if (r < 0) {
        say_result(what, r);
        return;
    }
    uint16_t port = ntohs(in.sin_port);
    say(" %s=%s:%s/%u", what, in.sin_addr.s_addr ? inet_ntoa(in.sin_addr) : "any",
        port == 0              ? "none"
        : port == sem_port     ? "near"
        : port == sem_far_port ? "far"
                               : "some",
        (unsigned)len);
}

static void names(const char *what, int fd)
{
    say(" %s", what);
    say_name("sock", fd, getsockname);
    say_name("peer", fd, getpeername);
}

static void names_by_stage(int s)
{
    int n = new_socket(0);
    names("fresh", n);
    struct sockaddr_in in = local(0);
    must("bind", bind(n, (struct sockaddr *)&in, sizeof(in)));
    names("bound", n);
    names("listener", sem_listener);
    names("connected", s);
    must("shutdown", shutdown(s, SHUT_WR));
    names("half", s);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLHUP, 10000);
    names("closed", s);
    say_name("bad_fd", 9999, getsockname);
    say_name("not_a_socket", STDIN_FILENO, getpeername);
}

static void names_after_reset(int s)
{
    far_do(FAR_RESET, 0);
    poll_one(s, POLLIN, 10000);
    names("reset", s);
    uint8_t c;
    say_result("recv", recv(s, &c, 1, 0));
    names("told", s);
}

/* Nothing was written behind the first len octets, nor behind an IPv4 address. */
static int untouched(const struct sockaddr_storage *ss, size_t len)
{
    const uint8_t *p = (const uint8_t *)ss;
    bool good = len < 2 || ss->ss_family == AF_INET;
    for (size_t i = len < 16 ? len : 16; i < sizeof(*ss); i++)
        good = good && p[i] == 0xee;
    return good;
}

static void names_cut(int s)
{
    struct sockaddr_storage ss;
    for (int i = 0; i < 2; i++) {
        int (*call)(int, struct sockaddr *, socklen_t *) = i ? getpeername : getsockname;
        static const socklen_t lens[] = { 0, 1, 4, 15, 16, 100 };
        for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
            memset(&ss, 0xee, sizeof(ss));
            socklen_t len = lens[k];
            say_result("r", call(s, (struct sockaddr *)&ss, &len));
            say(" %u:%d", (unsigned)len, untouched(&ss, lens[k]));
        }
        socklen_t negative = (socklen_t)-1;
        say_result("negative", call(s, (struct sockaddr *)&ss, &negative));
        struct sockaddr *volatile none = NULL; /* not the compiler's to judge */
        socklen_t *volatile no_len = NULL, len = 16;
        (void)len;
        socklen_t sixteen = 16;
        say_result("null", call(s, none, &sixteen));
        say_result("null_len", call(s, (struct sockaddr *)&ss, no_len));
    }
}

/* ---- accept ---- */

static void accept_wrong(int s)
{
    int n = new_socket(0), pair[2];
    struct sockaddr_in in;
    socklen_t len = sizeof(in);
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    say_result("fresh", accept(n, NULL, NULL));
    say_result("connected", accept(s, NULL, NULL));
    say_result("not_listening", accept(pair[0], NULL, NULL));
    say_result("not_a_socket", accept(STDIN_FILENO, NULL, NULL));
    say_result("bad_fd", accept(9999, NULL, NULL));
    set_nonblock(sem_listener, true);
    say_result("empty", accept(sem_listener, (struct sockaddr *)&in, &len));
    say(" len=%u", (unsigned)len);
    say_result("flags", accept4(sem_listener, NULL, NULL, SOCK_NONBLOCK | 1));
    say_result("all_flags", accept4(sem_listener, NULL, NULL, -1));
    set_nonblock(sem_listener, false);
    struct timeval tv = { .tv_usec = 60000 };
    must("SO_RCVTIMEO", setsockopt(sem_listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    uint64_t t = now_ms();
    say_result("timed", accept(sem_listener, NULL, NULL));
    say_time("after", (unsigned)(now_ms() - t), 55, LATE_MS);
}

/* Where the peer's address goes, and how much of it. */
static void accept_addresses(int s)
{
    (void)s;
    struct sockaddr_storage ss;
    static const socklen_t lens[] = { 0, 4, 16, 100 };
    for (size_t i = 0; i < 4; i++) {
        far_begin(FAR_CONNECT, sem_port, 0);
        memset(&ss, 0xee, sizeof(ss));
        socklen_t len = lens[i];
        int c = accept(sem_listener, (struct sockaddr *)&ss, &len);
        must("connect", far_end().r);
        say(" accepted=%d len=%u", c >= 0, (unsigned)len);
        say(" untouched=%d", untouched(&ss, lens[i]));
        close(c);
    }
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = accept(sem_listener, NULL, NULL);
    must("connect", far_end().r);
    say(" without=%d", c >= 0);
    send_next(c, 10);
    far_say("far", far_do(FAR_RECV, 10));
    /* O_NONBLOCK of the listener is not the connection's. */
    set_nonblock(sem_listener, true);
    far_begin(FAR_CONNECT, sem_port, 0);
    poll_one(sem_listener, POLLIN, 10000);
    c = accept(sem_listener, NULL, NULL);
    must("connect", far_end().r);
    say(" nonblock=%d cloexec=%d", (fcntl(c, F_GETFL) & O_NONBLOCK) != 0, fcntl(c, F_GETFD));
}

/* The client has gone by the time the server looks. */
static void accept_gone(int s)
{
    struct sockaddr_in in;
    int l = holder(&in, 5), c = new_socket(SOCK_NONBLOCK);
    uint8_t o;
    (void)s;
    if (to(c, &in) < 0 && errno != EINPROGRESS)
        must("connect", -1);
    poll_one(c, POLLOUT, 10000);
    struct linger lin = { .l_onoff = 1, .l_linger = 0 };
    must("SO_LINGER", setsockopt(c, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
    close(c);
    int a = accept(l, NULL, NULL);
    say(" accepted=%d", a >= 0);
    say_result("recv", recv(a, &o, 1, 0));
    say_result("then", recv(a, &o, 1, 0));
}

/* A process with both ends of a connection. */
static void both_ends_here(int s)
{
    struct sockaddr_in in;
    int l = holder(&in, 5), c = new_socket(0);
    uint8_t o = 7;
    (void)s;
    say_result("connect", to(c, &in));
    int a = accept(l, NULL, NULL);
    say(" accepted=%d", a >= 0);
    say_result("send", send(c, &o, 1, 0));
    say_result("recv", recv(a, &o, 1, 0));
    close(c);
    say_result("end", recv(a, &o, 1, 0));
}

static void listen_calls(int s)
{
    struct sockaddr_in in;
    int l = holder(&in, 1), n = new_socket(0), u = (int)must("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    say_result("twice", listen(l, 7));
    say_result("unbound", listen(n, 1));
    say_result("negative", listen(n, -1));
    say_result("connected", listen(s, 1));
    say_result("unix", listen(u, 1));
    say_result("bad_fd", listen(9999, 1));
    say_result("not_a_socket", listen(STDIN_FILENO, 1));
    say_result("connect", to(l, &in));
    say_result("bind", bind(l, (struct sockaddr *)&in, sizeof(in)));
    int again = new_socket(0);
    say_result("taken", bind(again, (struct sockaddr *)&in, sizeof(in)));
    say_result("shutdown", shutdown(l, SHUT_RD));
    say_result("accept", accept(l, NULL, NULL));
    say_result("again", listen(l, 1));
    socklen_t len = sizeof(in);
    must("getsockname", getsockname(l, (struct sockaddr *)&in, &len)); /* it may be another port */
    int c = new_socket(0);
    say_result("connect", to(c, &in));
    say(" accepted=%d", accept(l, NULL, NULL) >= 0);
}

/* Two sockets listen on one port; a connection comes to one of them. */
static void listen_shared(int s)
{
    (void)s;
    int l[2], on = 1;
    struct sockaddr_in in = local(0);
    socklen_t len = sizeof(in);
    for (int i = 0; i < 2; i++) {
        l[i] = new_socket(SOCK_NONBLOCK);
        must("SO_REUSEPORT", setsockopt(l[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
        must("bind", bind(l[i], (struct sockaddr *)&in, sizeof(in)));
        must("getsockname", getsockname(l[i], (struct sockaddr *)&in, &len));
        must("listen", listen(l[i], 5));
    }
    int accepted = 0;
    far_begin(FAR_CONNECT, ntohs(in.sin_port), 0);
    for (int i = 0; i < 3000 && accepted == 0; i++) {
        struct pollfd p[2] = { { .fd = l[0], .events = POLLIN }, { .fd = l[1], .events = POLLIN } };
        must("poll", poll(p, 2, 10));
        for (int k = 0; k < 2; k++) {
            int c = accept(l[k], NULL, NULL);
            if (c < 0)
                continue;
            accepted++;
            set_nonblock(c, false);
            must("connect", far_end().r);
            send_next(c, 10);
            far_say("far", far_do(FAR_RECV, 10));
        }
    }
    say(" accepted=%d", accepted);
}

/* An IPv6 socket that takes IPv4 clients as well. */
static void listen_dual(int s)
{
    (void)s;
    struct sockaddr_in6 in = { .sin6_family = AF_INET6 }, peer;
    socklen_t len = sizeof(in);
    int off = 0, l = socket(AF_INET6, SOCK_STREAM, 0);
    if (l < 0) {
        say(" no IPv6");
        return;
    }
    must("IPV6_V6ONLY", setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)));
    must("bind", bind(l, (struct sockaddr *)&in, len));
    must("listen", listen(l, 5));
    must("getsockname", getsockname(l, (struct sockaddr *)&in, &len));
    far_begin(FAR_CONNECT, ntohs(in.sin6_port), 0);
    len = sizeof(peer);
    int c = accept(l, (struct sockaddr *)&peer, &len);
    must("connect", far_end().r);
    say(" len=%u family=%d mapped=%d", (unsigned)len, peer.sin6_family == AF_INET6,
        IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr));
    send_next(c, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(c, 10));
}

/* ---- connect ---- */

static void connect_wrong(int s)
{
    struct sockaddr_in in = local(sem_far_port);
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int n = new_socket(0);
    say_result("connected", to(s, &in));
    say_result("again", to(s, &in));
    say_result("short", connect(n, (struct sockaddr *)&in, 4));
    say_result("shorter", connect(n, (struct sockaddr *)&in, 1));
    say_result("zero", connect(n, (struct sockaddr *)&in, 0));
    say_result("family", connect(n, (struct sockaddr *)&un, sizeof(un)));
    volatile socklen_t negative = (socklen_t)-1, long_one = 4096; /* not the compiler's to judge */
    say_result("negative", connect(n, (struct sockaddr *)&in, negative));
    say_result("long", connect(n, (struct sockaddr *)&in, long_one));
    struct sockaddr *volatile none = NULL;
    say_result("null", connect(n, none, sizeof(in)));
    say_result("bad_fd", to(9999, &in));
    say_result("not_a_socket", to(STDIN_FILENO, &in));
    say_result("listener", to(sem_listener, &in));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static void connect_refused(int s)
{
    struct sockaddr_in closed;
    (void)s;
    holder(&closed, -1);
    int n = new_socket(0);
    say_result("blocking", to(n, &closed));
    say_result("again", to(n, &closed));
    say(" error=%d", error_of(n));
    names("after", n);
    uint8_t c = 0;
    say_result("send", send(n, &c, 1, MSG_NOSIGNAL));
    say_result("recv", recv(n, &c, 1, 0));
    /* The socket may be used for a better try. */
    far_begin(FAR_ACCEPT, 0, 0);
    struct sockaddr_in in = local(sem_far_port);
    say_result("better", to(n, &in));
    must("accept", far_end().r);
    send_next(n, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static void connect_refused_nonblock(int s)
{
    struct sockaddr_in closed;
    (void)s;
    holder(&closed, -1);
    int n = new_socket(SOCK_NONBLOCK);
    say_result("connect", to(n, &closed));
    say(" poll=%s", poll_names(poll_one(n, POLLIN | POLLOUT, 10000)));
    /* The error is told by the next connect. */
    say_result("told", to(n, &closed));
    poll_one(n, POLLOUT, 10000);
    say(" poll=%s", poll_names(poll_one(n, POLLIN | POLLOUT, 10000)));
    say_result("again", to(n, &closed));
}

static void connect_nonblock(int s)
{
    (void)s;
    struct sockaddr_in in = local(sem_far_port);
    int n = new_socket(SOCK_NONBLOCK);
    far_begin(FAR_ACCEPT, 0, 0);
    int r = to(n, &in);
    say(" begun=%d", r == 0 || errno == EINPROGRESS);
    say(" poll=%s", poll_names(poll_one(n, POLLOUT, 10000)));
    say(" error=%d", error_of(n));
    say_name("peer", n, getpeername);
    r = to(n, &in);
    say(" second=%s", r == 0 ? "0" : error_name(errno));
    say_result("third", to(n, &in));
    must("accept", far_end().r);
    uint8_t c;
    say_result("empty", recv(n, &c, 1, 0));
    send_next(n, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* A listener whose queue is full. */
static void connect_pending(int s)
{
    (void)s;
    struct sockaddr_in in;
    holder(&in, 0);
    for (int i = 0; i < 3; i++) {
        int first = new_socket(SOCK_NONBLOCK);
        if (to(first, &in) < 0 && errno != EINPROGRESS)
            must("connect", -1);
        if (i == 0)
            poll_one(first, POLLOUT, 10000);
    }
    sleep_ms(20);
    int n = new_socket(SOCK_NONBLOCK);
    say_result("begun", to(n, &in));
    say_result("already", to(n, &in));
    say(" poll=%s", poll_names(poll_one(n, POLLIN | POLLOUT, 30)));
    uint8_t c = 0;
    say_result("send", send(n, &c, 1, MSG_NOSIGNAL));
    say_result("recv", recv(n, &c, 1, 0));
    say_result("shutdown", shutdown(n, SHUT_WR));
    say(" error=%d", error_of(n));
    say_name("peer", n, getpeername);
    int b = new_socket(0);
    struct timeval tv = { .tv_usec = 60000 };
    must("SO_SNDTIMEO", setsockopt(b, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
    uint64_t t = now_ms();
    say_result("timed", to(b, &in));
    say_time("after", (unsigned)(now_ms() - t), 55, LATE_MS);
    say_result("already", to(b, &in));
}

/* AF_UNSPEC: the connection is ended by a reset, and the socket may be used again. */
static void connect_unspec(int s)
{
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    uint8_t c = 0;
    far_begin(FAR_RECV, 1, 0);
    say_result("unspec", connect(s, &none, sizeof(none)));
    far_say("far", far_end());
    say_name("peer", s, getpeername);
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
    say_result("recv", recv(s, &c, 1, 0));
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 0)));
    say_result("again", connect(s, &none, sizeof(none)));
    struct sockaddr_in in = local(sem_far_port);
    far_begin(FAR_ACCEPT, 0, 0);
    int r = to(s, &in);
    say_result("connect", r);
    if (r < 0)
        return;
    must("accept", far_end().r);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(s, 10));
}

static void connect_bound(int s)
{
    (void)s;
    struct sockaddr_in in = local(0), far = local(sem_far_port), now;
    socklen_t len = sizeof(in);
    int n = new_socket(0);
    must("bind", bind(n, (struct sockaddr *)&in, len));
    must("getsockname", getsockname(n, (struct sockaddr *)&in, &len));
    far_begin(FAR_ACCEPT, 0, 0);
    say_result("connect", to(n, &far));
    must("accept", far_end().r);
    must("getsockname", getsockname(n, (struct sockaddr *)&now, &len));
    say(" kept=%d", now.sin_port == in.sin_port);
    send_next(n, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* A socket connected to itself. */
static void connect_self(int s)
{
    (void)s;
    struct sockaddr_in in;
    int n = holder(&in, -1);
    say_result("connect", to(n, &in));
    send_next(n, 10);
    say(" recv=%zu", recv_next(n, 10));
    uint8_t c;
    say_result("empty", recv(n, &c, 1, MSG_DONTWAIT));
    say_result("shutdown", shutdown(n, SHUT_WR));
    say_result("end", recv(n, &c, 1, 0));
}

/* After EINTR the connection goes on; poll tells when it is up. */
static void connect_interrupted_then(int s)
{
    (void)s;
    struct sockaddr_in in;
    int l = holder(&in, 0), waiting[3];
    for (int i = 0; i < 3; i++) {
        waiting[i] = new_socket(SOCK_NONBLOCK);
        if (to(waiting[i], &in) < 0 && errno != EINPROGRESS)
            must("connect", -1);
        if (i == 0)
            poll_one(waiting[i], POLLOUT, 10000);
    }
    sleep_ms(20);
    int n = new_socket(0);
    signal_after(40, false);
    say_result("connect", to(n, &in));
    say_result("already", (set_nonblock(n, true), to(n, &in)));
    /* Room is made: the repeated handshake succeeds. */
    for (int i = 0; i < 3; i++)
        close(waiting[i]);
    int up = 0;
    set_nonblock(l, true);
    for (int i = 0; i < 100 && !up; i++) {
        int c = accept(l, NULL, NULL);
        if (c >= 0)
            close(c);
        up = poll_one(n, POLLOUT, 100) & POLLOUT;
    }
    say(" up=%d error=%d", up != 0, error_of(n));
}

const struct scenario sem_name[] = {
    { "names_by_stage", names_by_stage },
    { "names_after_reset", names_after_reset },
    { "names_cut", names_cut },
    { "accept_wrong", accept_wrong },
    { "accept_addresses", accept_addresses },
    { "accept_gone", accept_gone },
    { "both_ends_here", both_ends_here },
    { "listen_calls", listen_calls },
    { "listen_shared", listen_shared },
    { "listen_dual", listen_dual },
    { "connect_wrong", connect_wrong },
    { "connect_refused", connect_refused },
    { "connect_refused_nonblock", connect_refused_nonblock },
    { "connect_nonblock", connect_nonblock },
    { "connect_pending", connect_pending },
    { "connect_unspec", connect_unspec },
    { "connect_bound", connect_bound },
    { "connect_self", connect_self },
    { "connect_interrupted_then", connect_interrupted_then },
    { NULL, NULL },
};
