/*
 * Readiness: poll, select, epoll in its kinds, with octets left over from partial reads.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static int ep_new(int s, uint32_t events)
{
    int ep = (int)must("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event ev = { .events = events, .data.u64 = 0x1122334455667788 };
    must("EPOLL_CTL_ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    return ep;
}

/* Says what an epoll_wait gives; the data must be what was registered. */
static void ep_say(const char *what, int ep, int timeout_ms)
{
    struct epoll_event ev[4];
    int n = epoll_wait(ep, ev, 4, timeout_ms);
    if (n < 0)
        say_result(what, n);
    else
        say(" %s=%s", what, n == 0 ? "none" : poll_names((int)ev[0].events));
    if (n > 1 || (n == 1 && ev[0].data.u64 != 0x1122334455667788))
        say(" n=%d data=%llx", n, (unsigned long long)ev[0].data.u64);
}

static int ep_mod(int ep, int op, int s, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.u64 = 0x1122334455667788 };
    return epoll_ctl(ep, op, s, &ev);
}

static void poll_levels(int s)
{
    say(" first=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 0)));
    uint64_t t = now_ms();
    say(" empty=%s", poll_names(poll_one(s, POLLIN, 60)));
    say_time("after", (unsigned)(now_ms() - t), 55, LATE_MS);
    far_begin(FAR_SEND, 100, 30);
    say(" waits=%s", poll_names(poll_one(s, POLLIN, 10000)));
    far_end();
    await_octets(s, 100);
    recv_next(s, 40);
    say(" left=%s", poll_names(poll_one(s, POLLIN, 0)));
    recv_next(s, 60);
    say(" drained=%s", poll_names(poll_one(s, POLLIN, 0)));
}

static void poll_several(int s)
{
    int p[2];
    must("pipe", pipe(p));
    struct pollfd fds[4] = {
        { .fd = p[0], .events = POLLIN },
        { .fd = s, .events = POLLIN },
        { .fd = -1, .events = POLLIN },
        { .fd = p[1], .events = POLLIN },
    };
    say_result("none", poll(fds, 4, 20));
    must("write", write(p[1], "x", 1));
    say_result("pipe", poll(fds, 4, 10000));
    say(" %s,%s", poll_names(fds[0].revents), poll_names(fds[1].revents));
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("both", poll(fds, 4, 10000));
    say(" %s,%s,%s", poll_names(fds[0].revents), poll_names(fds[1].revents), poll_names(fds[2].revents));
    int gone = (int)must("dup", dup(s));
    close(gone);
    fds[2].fd = gone;
    say_result("closed", poll(fds, 4, 10000));
    say(" %s", poll_names(fds[2].revents));
}

static void select_levels(int s)
{
    fd_set r, w;
    struct timeval tv = { .tv_usec = 50000 };
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(s, &r);
    FD_SET(s, &w);
    say_result("write", select(s + 1, &r, &w, NULL, NULL));
    say(" %d%d", FD_ISSET(s, &r) != 0, FD_ISSET(s, &w) != 0);
    FD_SET(s, &r);
    say_result("empty", select(s + 1, &r, NULL, NULL, &tv));
    say(" left=%d", tv.tv_sec == 0 && tv.tv_usec == 0);
    far_begin(FAR_SEND, 100, 30);
    FD_SET(s, &r);
    tv.tv_sec = 10;
    say_result("waits", select(s + 1, &r, NULL, NULL, &tv));
    far_end();
    await_octets(s, 100);
    recv_next(s, 40);
    FD_SET(s, &r);
    say_result("left", select(s + 1, &r, NULL, NULL, NULL));
    recv_next(s, 60);
    FD_SET(s, &r);
    struct timespec ts = { 0 };
    sigset_t mask;
    sigfillset(&mask);
    say_result("drained", pselect(s + 1, &r, NULL, NULL, &ts, &mask));
}

static void epoll_level(int s)
{
    int ep = ep_new(s, EPOLLIN);
    ep_say("empty", ep, 20);
    far_begin(FAR_SEND, 100, 30);
    ep_say("waits", ep, 10000);
    far_end();
    ep_say("again", ep, 0);
    await_octets(s, 100);
    recv_next(s, 40);
    ep_say("left", ep, 0);
    recv_next(s, 60);
    ep_say("drained", ep, 20);
    must("MOD", ep_mod(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLOUT | EPOLLRDHUP));
    ep_say("out", ep, 0);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    ep_say("end", ep, 0);
}

static void epoll_edge(int s)
{
    int ep = ep_new(s, EPOLLIN | EPOLLET);
    ep_say("empty", ep, 20);
    far_do(FAR_SEND, 100);
    await_octets(s, 100);
    ep_say("edge", ep, 10000);
    ep_say("again", ep, 20);
    recv_next(s, 40);
    ep_say("left", ep, 20);
    far_do(FAR_SEND, 10);
    await_octets(s, 70);
    ep_say("new", ep, 10000);
    recv_next(s, 70);
    ep_say("drained", ep, 20);
    far_do(FAR_CLOSE, 0);
    ep_say("end", ep, 10000);
}

/* Waits for so many octets by events, each time reading all there are; again: to arm it with. */
static void recv_by_events(int ep, int s, uint32_t again, size_t len)
{
    uint8_t buf[32768];
    struct epoll_event ev;
    for (size_t total = 0; total < len;) {
        if (epoll_wait(ep, &ev, 1, 4000) != 1) {
            say(" no_event_after=%zu", total);
            return;
        }
        ssize_t r;
        while ((r = recv(s, buf, sizeof(buf), 0)) > 0) {
            check(buf, (size_t)r);
            total += (size_t)r;
        }
        if (again)
            must("MOD", ep_mod(ep, EPOLL_CTL_MOD, s, again));
    }
    say(" got=%zu", len);
}

/* Having waited for the rest of something large must not hold back something small. */
static void large_then_small(int s, uint32_t mode)
{
    enum { LARGE = 300000 };
    uint32_t again = (mode & EPOLLONESHOT) ? EPOLLIN | mode : 0;
    int ep = ep_new(s, EPOLLIN | mode);
    int window = 30000; /* it comes in parts */
    must("TCP_WINDOW_CLAMP", setsockopt(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window)));
    set_nonblock(s, true);
    for (int i = 0; i < 5; i++) {
        far_begin(FAR_SEND, LARGE, 0);
        recv_by_events(ep, s, again, LARGE);
        far_end();
        far_begin(FAR_SEND, 10, 20);
        recv_by_events(ep, s, again, 10);
        far_end();
    }
}

static void epoll_edge_sizes(int s)
{
    large_then_small(s, EPOLLET);
}

static void epoll_oneshot_sizes(int s)
{
    large_then_small(s, EPOLLONESHOT);
}

static void epoll_edge_out(int s)
{
    int ep = ep_new(s, EPOLLIN | EPOLLOUT | EPOLLET);
    ep_say("out", ep, 10000);
    ep_say("again", ep, 20);
    far_do(FAR_SEND, 5);
    ep_say("in", ep, 10000);
    recv_next(s, 5);
    ep_say("drained", ep, 20);
}

static void epoll_oneshot(int s)
{
    int ep = ep_new(s, EPOLLIN | EPOLLONESHOT);
    far_do(FAR_SEND, 100);
    ep_say("shot", ep, 10000);
    await_octets(s, 100);
    ep_say("again", ep, 20);
    recv_next(s, 40);
    must("MOD", ep_mod(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT));
    ep_say("left", ep, 10000);
    recv_next(s, 60);
    must("MOD", ep_mod(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT));
    ep_say("drained", ep, 20);
    far_do(FAR_SEND, 1);
    ep_say("new", ep, 10000);
}

static void epoll_nested(int s)
{
    int inner = ep_new(s, EPOLLIN);
    int outer = ep_new(inner, EPOLLIN);
    ep_say("empty", outer, 20);
    far_begin(FAR_SEND, 10, 30);
    ep_say("outer", outer, 10000);
    far_end();
    say(" poll=%s", poll_names(poll_one(inner, POLLIN, 0)));
    ep_say("inner", inner, 0);
    await_octets(s, 10);
    recv_next(s, 4);
    ep_say("left", outer, 0);
    recv_next(s, 6);
    ep_say("inner_drained", inner, 0);
    ep_say("drained", outer, 20);
}

static void epoll_errors(int s)
{
    int ep = ep_new(s, EPOLLIN);
    struct epoll_event ev;
    say_result("add", ep_mod(ep, EPOLL_CTL_ADD, s, EPOLLIN));
    say_result("op", ep_mod(ep, 99, s, EPOLLIN));
    say_result("self", ep_mod(ep, EPOLL_CTL_ADD, ep, EPOLLIN));
    say_result("notepoll", ep_mod(s, EPOLL_CTL_ADD, ep, EPOLLIN));
    say_result("badfd", ep_mod(ep, EPOLL_CTL_ADD, 9999, EPOLLIN));
    say_result("exclusive", ep_mod(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE));
    say_result("del", ep_mod(ep, EPOLL_CTL_DEL, s, 0));
    say_result("mod", ep_mod(ep, EPOLL_CTL_MOD, s, EPOLLIN));
    say_result("del", ep_mod(ep, EPOLL_CTL_DEL, s, 0));
    say_result("wait0", epoll_wait(ep, &ev, 0, 0));
    say_result("wait_bad", epoll_wait(s, &ev, 1, 0));
    far_do(FAR_SEND, 3);
    ep_say("deleted", ep, 20);
    say_result("add", ep_mod(ep, EPOLL_CTL_ADD, s, EPOLLIN));
    ep_say("added", ep, 10000);
}

static void epoll_two_sets(int s)
{
    int a = ep_new(s, EPOLLIN), b = ep_new(s, EPOLLIN | EPOLLET);
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    ep_say("a", a, 10000);
    ep_say("b", b, 10000);
    recv_next(s, 4);
    ep_say("a", a, 0);
    ep_say("b", b, 20);
    recv_next(s, 6);
    ep_say("a", a, 0);
    far_do(FAR_SEND, 1);
    ep_say("b", b, 10000);
    ep_say("a", a, 10000);
}

/* Octets that were fetched with an earlier read and not used yet make it readable at once. */
static void epoll_added_late(int s)
{
    far_do(FAR_SEND, 5000);
    await_octets(s, 5000);
    recv_next(s, 1000);
    int ep = ep_new(s, EPOLLIN | EPOLLET);
    ep_say("edge", ep, 10000);
    ep_say("again", ep, 20);
    int other = ep_new(s, EPOLLIN);
    ep_say("level", other, 0);
    must("MOD", ep_mod(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLET));
    ep_say("mod", ep, 0);
    recv_next(s, 4000);
    ep_say("drained", other, 20);
}

static void epoll_dup(int s)
{
    int ep = (int)must("epoll_create1", epoll_create1(0));
    int d = (int)must("dup", dup(s));
    must("ADD", ep_mod(ep, EPOLL_CTL_ADD, d, EPOLLIN));
    close(d);
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    ep_say("closed_dup", ep, 10000);
    recv_next(s, 4);
    ep_say("left", ep, 0);
    recv_next(s, 6);
    ep_say("drained", ep, 20);
    close(s);
    ep_say("gone", ep, 20);
}

static void *wait_thread(void *arg)
{
    struct epoll_event ev;
    return (void *)(intptr_t)epoll_wait(*(int *)arg, &ev, 1, 10000);
}

/* Registered while another thread waits. */
static void epoll_thread(int s)
{
    int ep = (int)must("epoll_create1", epoll_create1(0));
    pthread_t t;
    must("pthread_create", -pthread_create(&t, NULL, wait_thread, &ep));
    others_sleep();
    must("ADD", ep_mod(ep, EPOLL_CTL_ADD, s, EPOLLIN));
    others_sleep();
    far_do(FAR_SEND, 5);
    void *r;
    pthread_join(t, &r);
    say(" woken=%d recv=%zu", (int)(intptr_t)r, recv_next(s, 5));
}

static void *poll_thread(void *arg)
{
    struct pollfd p = { .fd = *(int *)arg, .events = POLLIN };
    return (void *)(intptr_t)poll(&p, 1, 10000);
}

/* Two threads wait for the same connection; both wake. */
static void two_pollers(int s)
{
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        must("pthread_create", -pthread_create(&t[i], NULL, poll_thread, &s));
    others_sleep();
    far_do(FAR_SEND, 5);
    uint64_t t0 = now_ms();
    void *r[2];
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], &r[i]);
    say(" woken=%d,%d", (int)(intptr_t)r[0], (int)(intptr_t)r[1]);
    say_time("after", (unsigned)(now_ms() - t0), 0, 8000);
}

/* A large message in many pieces: whoever is woken can read. */
static void wakes_with_octets(int s)
{
    int ep = ep_new(s, EPOLLIN);
    set_nonblock(s, true);
    far_begin(FAR_SEND, 4000000, 0);
    size_t total = 0;
    int empty = 0;
    static uint8_t buf[300000];
    while (total < 4000000) {
        struct epoll_event ev;
        if (epoll_wait(ep, &ev, 1, 10000) != 1)
            break;
        ssize_t r = read(s, buf, sizeof(buf));
        if (r < 0 && errno == EAGAIN) {
            empty++;
            continue;
        }
        must("read", r);
        check(buf, (size_t)r);
        total += (size_t)r;
    }
    far_end();
    say(" total=%zu woken_for_nothing=%d", total, empty);
}

const struct scenario sem_ready[] = {
    { "poll_levels", poll_levels },
    { "poll_several", poll_several },
    { "select_levels", select_levels },
    { "epoll_level", epoll_level },
    { "epoll_edge", epoll_edge },
    { "epoll_edge_sizes", epoll_edge_sizes },
    { "epoll_edge_out", epoll_edge_out },
    { "epoll_oneshot", epoll_oneshot },
    { "epoll_oneshot_sizes", epoll_oneshot_sizes },
    { "epoll_nested", epoll_nested },
    { "epoll_errors", epoll_errors },
    { "epoll_two_sets", epoll_two_sets },
    { "epoll_added_late", epoll_added_late },
    { "epoll_dup", epoll_dup },
    { "epoll_thread", epoll_thread },
    { "two_pollers", two_pollers },
    { "wakes_with_octets", wakes_with_octets },
    { NULL, NULL },
};
