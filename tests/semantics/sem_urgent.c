/*
 * Urgent data: MSG_OOB, SO_OOBINLINE, the mark, POLLPRI, SIGURG.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void say_octets(const char *what, const uint8_t *buf, ssize_t n)
{
    say_result(what, n);
    int urgent = 0;
    for (ssize_t i = 0; i < n; i++)
        urgent += buf[i] == '!';
    if (urgent)
        say("!");
}

/* One recv of at most 100 octets. */
static void say_recv(const char *what, int s, int flags)
{
    uint8_t buf[100];
    ssize_t n = recv(s, buf, sizeof(buf), flags);
    say_octets(what, buf, n);
}

static void say_state(int s)
{
    int there = -1;
    must("FIONREAD", ioctl(s, FIONREAD, &there));
    say(" [%s there=%d mark=%d]", poll_names(poll_one(s, POLLIN | POLLPRI, 0)), there, sockatmark(s));
}

/* Waits until the urgent octet is there. */
static void await_urgent(int s)
{
    say(" pri=%s", poll_names(poll_one(s, POLLPRI, 10000)));
}

static void urgent_alone(int s)
{
    say_state(s);
    far_do(FAR_OOB, 0);
    await_urgent(s);
    say_state(s);
    say_recv("peek", s, MSG_OOB | MSG_PEEK);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
    say_state(s);
    say_recv("again", s, MSG_OOB);
    say_recv("none", s, MSG_DONTWAIT);
    say_state(s);
    far_do(FAR_SEND, 5);
    say_recv("recv", s, 0);
    say_state(s);
}

static void urgent_between(int s)
{
    far_do(FAR_SEND, 10);
    far_do(FAR_OOB, 0);
    far_do(FAR_SEND, 10);
    await_urgent(s);
    say_state(s);
    say_recv("before", s, 0);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
    say_state(s);
    say_recv("after", s, 0);
    say_state(s);
    say_recv("none", s, MSG_OOB);
}

static void urgent_skipped(int s)
{
    far_do(FAR_SEND, 10);
    far_do(FAR_OOB, 0);
    far_do(FAR_SEND, 10);
    await_urgent(s);
    say_recv("before", s, MSG_WAITALL);
    say_recv("after", s, 0);
    say_recv("none", s, MSG_OOB);
    say_state(s);
    far_do(FAR_OOB, 0);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    await_urgent(s);
    say_recv("end", s, 0);
}

/* Of several octets the last is the urgent one. */
static void urgent_several(int s)
{
    far_do(FAR_OOB, 4);
    await_urgent(s);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
    say_recv("recv", s, 0);
    say_state(s);
    far_do(FAR_OOB, 8);
    await_urgent(s);
    say_recv("recv", s, 0);
    say_state(s);
    say_recv("none", s, MSG_DONTWAIT);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
}

/* The newer takes the older one's place. */
static void urgent_twice(int s)
{
    far_do(FAR_OOB, 0);
    await_urgent(s);
    far_do(FAR_OOB, 3);
    far_do(FAR_SEND, 10);
    while (sockatmark(s))
        sleep_ms(1);
    say_recv("recv", s, 0);
    say_recv("oob", s, MSG_OOB);
    say_recv("recv", s, 0);
    far_do(FAR_SEND, 10);
    far_do(FAR_OOB, 0);
    await_urgent(s);
    far_do(FAR_OOB, 2);
    for (int there = 0; there < 13; sleep_ms(1))
        must("FIONREAD", ioctl(s, FIONREAD, &there));
    say_recv("recv", s, 0);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
    say_state(s);
}

static void urgent_peek(int s)
{
    far_do(FAR_SEND, 10);
    far_do(FAR_OOB, 0);
    far_do(FAR_SEND, 10);
    await_urgent(s);
    say_recv("peek", s, MSG_PEEK);
    say_recv("before", s, 0);
    say_recv("peek", s, MSG_PEEK);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
    say_recv("peek", s, MSG_PEEK);
    say_recv("after", s, 0);
    say_state(s);
}

static void urgent_inline(int s)
{
    int on = 1, v = -1;
    socklen_t len = sizeof(v);
    must("SO_OOBINLINE", setsockopt(s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
    must("SO_OOBINLINE", getsockopt(s, SOL_SOCKET, SO_OOBINLINE, &v, &len));
    say(" inline=%d", v);
    far_do(FAR_SEND, 10);
    far_do(FAR_OOB, 0);
    await_urgent(s);
    say_state(s);
    say_recv("oob", s, MSG_OOB);
    say_recv("before", s, 0);
    say_state(s);
    say_recv("peek", s, MSG_PEEK);
    say_recv("after", s, 0);
    say_state(s);
    far_do(FAR_OOB, 0);
    await_urgent(s);
    on = 0;
    must("SO_OOBINLINE", setsockopt(s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)));
    say_state(s);
    say_recv("oob", s, MSG_OOB);
}

static void urgent_msg(int s)
{
    uint8_t buf[10];
    struct iovec v = { buf, sizeof(buf) };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    far_do(FAR_OOB, 2);
    await_urgent(s);
    say_result("trunc", recv(s, NULL, 10, MSG_OOB | MSG_PEEK | MSG_TRUNC));
    m.msg_iovlen = 0;
    say_result("none", recvmsg(s, &m, MSG_OOB | MSG_PEEK));
    say(" flags=%#x", (unsigned)m.msg_flags);
    m.msg_iovlen = 1;
    say_result("recvmsg", recvmsg(s, &m, MSG_OOB));
    say(" flags=%#x", (unsigned)m.msg_flags);
    say_result("recvmsg", recvmsg(s, &m, 0));
    say(" flags=%#x", (unsigned)m.msg_flags);
}

static void urgent_select(int s)
{
    fd_set e, r;
    struct timeval tv = { .tv_sec = 10 };
    FD_ZERO(&e);
    FD_SET(s, &e);
    far_begin(FAR_OOB, 0, 20);
    say_result("select", select(s + 1, NULL, NULL, &e, &tv));
    far_end();
    say(" set=%d", FD_ISSET(s, &e) != 0);
    FD_ZERO(&r);
    FD_SET(s, &r);
    FD_SET(s, &e);
    tv = (struct timeval){ 0 };
    say_result("both", select(s + 1, &r, NULL, &e, &tv));
    say_recv("oob", s, MSG_OOB);
    say_result("none", select(s + 1, &r, NULL, &e, &tv));
}

static void say_events(int ep, int timeout_ms)
{
    struct epoll_event ev[4];
    int n = (int)must("epoll_wait", epoll_wait(ep, ev, 4, timeout_ms));
    say(" %s", n == 0 ? "none" : poll_names((int)ev[0].events));
}

static void urgent_epoll(int s)
{
    static const uint32_t modes[] = { 0, EPOLLET, EPOLLONESHOT };
    for (int i = 0; i < 3; i++) {
        int ep = (int)must("epoll_create1", epoll_create1(0));
        struct epoll_event ev = { .events = EPOLLPRI | modes[i] };
        must("epoll_ctl", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
        say(" |");
        say_events(ep, 0);
        far_begin(FAR_OOB, i, 10);
        say_events(ep, 10000);
        far_end();
        if (modes[i] != EPOLLET) /* (the pointer and the octet may be an edge each) */
            say_events(ep, 0);
        say_recv("oob", s, MSG_OOB);
        say_events(ep, 0);
        close(ep);
        while (i > 0 && poll_one(s, POLLIN, 0))
            say_recv("rest", s, 0);
    }
    far_do(FAR_SEND, 1);
    say_recv("recv", s, 0);
}

/* An edge is told once for each urgent octet. */
static void urgent_epoll_edges(int s)
{
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLIN | EPOLLPRI | EPOLLET };
    must("epoll_ctl", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    for (int i = 0; i < 3; i++) {
        far_do(FAR_OOB, 2); /* (before its octets are there, the pointer alone may be told) */
        while (poll_one(s, POLLIN | POLLPRI, 10000) != (POLLIN | POLLPRI))
            sleep_ms(1);
        say_events(ep, 10000);
        say_recv("oob", s, MSG_OOB);
        say_recv("recv", s, MSG_DONTWAIT);
        say_recv("none", s, MSG_DONTWAIT);
    }
}

static int the_socket;
static volatile sig_atomic_t urgents, got;
static volatile int got_errno;

static void on_urgent(int number)
{
    (void)number;
    uint8_t c = 0;
    int err = errno;
    ssize_t r = recv(the_socket, &c, 1, MSG_OOB);
    got_errno = r < 0 ? errno : 0;
    got += r == 1 && c == '!';
    urgents++;
    errno = err;
}

static void handle_urgent(int s, bool restart)
{
    struct sigaction sa = { .sa_handler = on_urgent, .sa_flags = restart ? SA_RESTART : 0 };
    the_socket = s;
    must("sigaction", sigaction(SIGURG, &sa, NULL));
    must("F_SETOWN", fcntl(s, F_SETOWN, getpid()));
}

static void say_urgents(void)
{
    while (urgents == 0)
        sleep_ms(1);
    say(" urgents=%d got=%d%s", (int)urgents, (int)got, got_errno ? error_name(got_errno) : "");
    urgents = got = 0;
}

/* The signal's handler reads it, whatever the program is doing. */
static void urgent_signal(int s)
{
    handle_urgent(s, true);
    far_do(FAR_OOB, 0);
    say_urgents();
    say_state(s);
    far_begin(FAR_OOB, 3, 10);
    /* (The kernel sends the signal before it lets the octets be seen: whoever is quick is told EINTR.) */
    struct pollfd p = { .fd = s, .events = POLLIN };
    while (poll(&p, 1, 10000) < 0 && errno == EINTR)
        ;
    say(" poll=%s", poll_names(p.revents));
    far_end();
    say_urgents();
    say_recv("recv", s, 0);
    say_state(s);
}

static void urgent_signal_in_recv(int s)
{
    handle_urgent(s, true);
    far_begin(FAR_OOB, 0, 20);
    far_end();
    say_urgents();
    far_do(FAR_SEND, 5);
    say_recv("recv", s, 0);
    /* A handler while recv waits for more. */
    far_begin(FAR_OOB, 0, 30);
    uint8_t buf[10];
    struct timeval tv = { .tv_sec = 10 };
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    ssize_t r = recv(s, buf, sizeof(buf), 0);
    say_octets("waiting", buf, r);
    far_end();
    say_urgents();
    far_do(FAR_SEND, 5);
    say_recv("recv", s, 0);
}

static void urgent_sent(int s)
{
    send_next(s, 10);
    say_result("send", send(s, "!", 1, MSG_OOB));
    send_next(s, 20000);
    say_result("some", send(s, "", 0, MSG_OOB));
    far_say("far", far_do(FAR_RECV, 20010));
    uint8_t buf[30001];
    fill(buf, 30000, sem_tx);
    sem_tx += 30000;
    buf[30000] = '!';
    say_result("much", send(s, buf, sizeof(buf), MSG_OOB));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 30010));
    shutdown(s, SHUT_WR);
    say_result("shut", send(s, "!", 1, MSG_OOB | MSG_NOSIGNAL));
}

static void urgent_full(int s)
{
    set_nonblock(s, true);
    fill_up(s);
    ssize_t r;
    do
        r = send(s, "!", 1, MSG_OOB); /* the kernel may find room for some more */
    while (r == 1);
    say_result("full", r);
}

/* To and fro, among much else. */
static void urgent_many(int s)
{
    int seen = 0;
    for (int i = 0; i < 200; i++) {
        far_do(FAR_SEND, 1 + i * 37 % 500);
        far_do(FAR_OOB, 0);
        int there = 1 + i * 37 % 500;
        must("poll", poll_one(s, POLLPRI, 10000));
        if (i % 3 == 0) {
            uint8_t c;
            seen += recv(s, &c, 1, MSG_OOB) == 1 && c == '!';
        }
        recv_next(s, (size_t)there);
        if (!sockatmark(s))
            say(" not at the mark: %d", i);
    }
    say(" seen=%d", seen);
}

const struct scenario sem_urgent[] = {
    { "urgent_alone", urgent_alone },
    { "urgent_between", urgent_between },
    { "urgent_skipped", urgent_skipped },
    { "urgent_several", urgent_several },
    { "urgent_twice", urgent_twice },
    { "urgent_peek", urgent_peek },
    { "urgent_inline", urgent_inline },
    { "urgent_msg", urgent_msg },
    { "urgent_select", urgent_select },
    { "urgent_epoll", urgent_epoll },
    { "urgent_epoll_edges", urgent_epoll_edges },
    { "urgent_signal", urgent_signal },
    { "urgent_signal_in_recv", urgent_signal_in_recv },
    { "urgent_sent", urgent_sent },
    { "urgent_full", urgent_full },
    { "urgent_many", urgent_many },
    { NULL, NULL },
};
