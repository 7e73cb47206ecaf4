/*
 * poll and ppoll: every stage of a connection's life, odd arguments, signals, several connections.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP)

/* What poll shows now, asked for everything. */
static void stage(const char *what, int s)
{
    say(" %s=%s", what, poll_names(poll_one(s, ALL, 0)));
}

/* Waits for the far end's FIN or RST first. */
static void stage_after(const char *what, int s, short first)
{
    poll_one(s, first, 10000);
    stage(what, s);
}

/* ---- arguments ---- */

static void poll_nval(int s)
{
    int gone = (int)must("dup", dup(s));
    close(gone);
    struct pollfd p[3] = {
        { .fd = gone, .events = POLLIN },
        { .fd = s, .events = POLLIN },
        { .fd = gone },
    };
    say_result("poll", poll(p, 3, 10000));
    say(" %s,%s,%s", poll_names(p[0].revents), poll_names(p[1].revents), poll_names(p[2].revents));
    p[1].events |= POLLOUT;
    say_result("poll", poll(p, 3, -1));
    say(" %s,%s,%s", poll_names(p[0].revents), poll_names(p[1].revents), poll_names(p[2].revents));
    struct pollfd far_away = { .fd = 100000, .events = POLLIN };
    say_result("high", poll(&far_away, 1, 0));
    say(" %s", poll_names(far_away.revents));
    one_octet(s);
}

static void poll_negative(int s)
{
    struct pollfd p[4] = {
        { .fd = -1, .events = POLLIN, .revents = POLLIN },
        { .fd = ~s, .events = POLLOUT, .revents = POLLOUT },
        { .fd = INT_MIN, .events = POLLOUT, .revents = POLLERR },
        { .fd = s, .events = POLLIN, .revents = POLLIN },
    };
    uint64_t t = now_ms();
    say_result("quiet", poll(p, 4, 30));
    say_time("after", (unsigned)(now_ms() - t), 28, LATE_MS);
    say(" %x,%x,%x,%x", (unsigned)p[0].revents, (unsigned)p[1].revents, (unsigned)p[2].revents, (unsigned)p[3].revents);
    far_do(FAR_SEND, 1);
    say_result("ready", poll(p, 4, 10000));
    say(" %x,%x,%x,%x", (unsigned)p[0].revents, (unsigned)p[1].revents, (unsigned)p[2].revents, (unsigned)p[3].revents);
    say_result("negative_only", poll(p, 3, 10));
}

static void poll_nothing(int s)
{
    say_result("now", poll(NULL, 0, 0));
    uint64_t t = now_ms();
    say_result("short", poll(NULL, 0, 30));
    say_time("after", (unsigned)(now_ms() - t), 28, LATE_MS);
    struct timespec ts = { .tv_nsec = 20000000 };
    t = now_ms();
    say_result("ppoll", ppoll(NULL, 0, &ts, NULL));
    say_time("after", (unsigned)(now_ms() - t), 18, LATE_MS);
    one_octet(s);
}

static void poll_same_twice(int s)
{
    struct pollfd p[4] = {
        { .fd = s, .events = POLLIN },
        { .fd = s, .events = POLLOUT },
        { .fd = (int)must("dup", dup(s)), .events = POLLIN | POLLOUT },
        { .fd = s },
    };
    say_result("out", poll(p, 4, 10000));
    say(" %s,%s,%s,%s", poll_names(p[0].revents), poll_names(p[1].revents), poll_names(p[2].revents),
        poll_names(p[3].revents));
    far_do(FAR_SEND, 9);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 4);
    say_result("both", poll(p, 4, 10000));
    say(" %s,%s,%s,%s", poll_names(p[0].revents), poll_names(p[1].revents), poll_names(p[2].revents),
        poll_names(p[3].revents));
    recv_next(p[2].fd, 5);
    say_result("drained", poll(p, 1, 10));
}

/* Errors and the end of both ways are told unasked, the rest is not. */
static void poll_unasked(int s)
{
    far_do(FAR_SEND, 5);
    say(" data=%s", poll_names(poll_one(s, 0, 20)));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" fin=%s", poll_names(poll_one(s, 0, 20)));
    say(" out=%s", poll_names(poll_one(s, POLLOUT, 20)));
    must("shutdown", shutdown(s, SHUT_WR));
    say(" both=%s", poll_names(poll_one(s, 0, 10000)));
    recv_next(s, 5);
    say(" read=%s", poll_names(poll_one(s, 0, 10000)));
}

/* The names of old. */
static void poll_norm_band(int s)
{
    short events = POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND;
    say(" out=%x", (unsigned)poll_one(s, events, 10000));
    far_do(FAR_SEND, 6);
    say(" in=%x", (unsigned)poll_one(s, POLLRDNORM, 10000));
    say(" all=%x", (unsigned)poll_one(s, events | POLLIN | POLLOUT, 0));
    recv_next(s, 2);
    say(" left=%x", (unsigned)poll_one(s, events, 0));
    say(" band=%x", (unsigned)poll_one(s, POLLRDBAND | POLLWRBAND | POLLPRI, 10));
    recv_next(s, 4);
    say(" drained=%x", (unsigned)poll_one(s, events, 0));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" end=%x", (unsigned)poll_one(s, POLLRDNORM, 10000));
}

static void poll_timeouts(int s)
{
    uint64_t t = now_ms();
    say_result("now", poll_one(s, POLLIN, 0));
    say_time("after", (unsigned)(now_ms() - t), 0, LATE_MS);
    t = now_ms();
    say_result("short", poll_one(s, POLLIN, 25));
    say_time("after", (unsigned)(now_ms() - t), 23, LATE_MS);
    far_begin(FAR_SEND, 1, 20);
    say(" ever=%s", poll_names(poll_one(s, POLLIN, -1)));
    far_end();
    recv_next(s, 1);
    far_begin(FAR_SEND, 1, 20);
    say(" minus=%s", poll_names(poll_one(s, POLLIN, -77)));
    far_end();
    recv_next(s, 1);
    far_begin(FAR_SEND, 1, 20);
    say(" long=%s", poll_names(poll_one(s, POLLIN, INT_MAX)));
    far_end();
}

/* The limit on descriptors is also one on entries; what waits beside them does not count. */
static void poll_limit(int s)
{
    struct rlimit lim;
    must("getrlimit", getrlimit(RLIMIT_NOFILE, &lim));
    lim.rlim_cur = 100;
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &lim));
    struct pollfd p[101];
    for (int i = 0; i < 101; i++)
        p[i] = (struct pollfd){ .fd = i % 10 == 0 ? s : -1, .events = POLLIN };
    struct waiter w;
    wait_in_poll(&w, s, POLLIN, 60); /* in a process with threads */
    say_result("quiet", poll(p, 100, 20));
    say_result("beyond", poll(p, 101, 20));
    wait_end("other", &w);
    far_do(FAR_SEND, 3);
    say_result("ready", poll(p, 100, 10000));
    say_result("beyond", poll(p, 101, 20));
}

/* A program that lets itself have no more descriptors but the one it waits for (sshd, before its user is known). */
static void poll_one_allowed(int s)
{
    struct rlimit lim, before;
    must("getrlimit", getrlimit(RLIMIT_NOFILE, &before));
    lim = before;
    lim.rlim_cur = 1;
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &lim));
    say(" out=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 10000)));
    far_begin(FAR_SEND, 3, 20);
    say(" in=%s", poll_names(poll_one(s, POLLIN, 10000)));
    far_end();
    say(" recv=%zu", recv_next(s, 3));
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &before));
}

static void poll_many_entries(int s)
{
    struct pollfd p[200];
    for (int i = 0; i < 200; i++)
        p[i] = (struct pollfd){ .fd = i % 3 == 0 ? s : -1, .events = i % 2 ? POLLIN : POLLOUT };
    say_result("out", poll(p, 200, 10000));
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 5);
    say_result("left", poll(p, 200, 10000));
    say(" %s,%s,%s", poll_names(p[0].revents), poll_names(p[3].revents), poll_names(p[198].revents));
}

/* ---- the stages of a connection ---- */

static void poll_far_closes_first(int s)
{
    stage_after("fresh", s, POLLOUT);
    far_do(FAR_SEND, 8);
    poll_one(s, POLLIN, 10000);
    stage("data", s);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    stage_after("fin", s, POLLRDHUP);
    recv_next(s, 3);
    stage("part", s);
    recv_next(s, 5);
    stage("read", s);
    recv_next(s, 1);
    stage("end", s);
    stage("again", s);
    send_next(s, 4);
    stage("sent", s);
    shutdown(s, SHUT_WR);
    stage_after("both", s, 0);
    say_result("error", so_error(s));
}

static void poll_near_closes_first(int s)
{
    must("shutdown", shutdown(s, SHUT_WR));
    stage("shut", s);
    far_do(FAR_SEND, 8);
    poll_one(s, POLLIN, 10000);
    stage("data", s);
    recv_next(s, 8);
    stage("read", s);
    far_do(FAR_CLOSE, 0);
    stage_after("both", s, 0);
    recv_next(s, 1);
    stage("end", s);
}

static void poll_shut_rd(int s)
{
    must("shutdown", shutdown(s, SHUT_RD));
    stage("shut", s);
    far_do(FAR_SEND, 8);
    stage("data", s);
    must("shutdown", shutdown(s, SHUT_WR));
    stage_after("both", s, 0);
}

static void poll_shut_both(int s)
{
    far_do(FAR_SEND, 8);
    poll_one(s, POLLIN, 10000);
    must("shutdown", shutdown(s, SHUT_RDWR));
    stage("shut", s);
    recv_next(s, 8);
    stage("read", s);
    far_do(FAR_CLOSE, 0);
    recv_next(s, 1);
    stage("end", s);
}

static void poll_reset(int s)
{
    far_do(FAR_RESET, 0);
    stage_after("reset", s, 0);
    stage("again", s);
    say_result("error", so_error(s));
    stage("told", s);
    recv_next(s, 1);
    stage("end", s);
}

static void poll_reset_recv(int s)
{
    far_do(FAR_SEND, 7);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 2);
    far_do(FAR_RESET, 0);
    stage_after("reset", s, POLLRDHUP);
    recv_next(s, 5);
    stage("read", s);
    recv_next(s, 1);
    stage("told", s);
    recv_next(s, 1);
    stage("end", s);
}

static void poll_reset_half_closed(int s)
{
    far_do(FAR_SHUTDOWN, SHUT_WR);
    stage_after("fin", s, POLLRDHUP);
    far_do(FAR_RESET, 0);
    stage_after("reset", s, 0);
    say_result("error", so_error(s));
    stage("told", s);
}

static void poll_reset_shut(int s)
{
    must("shutdown", shutdown(s, SHUT_WR));
    stage("shut", s);
    far_do(FAR_RESET, 0);
    stage_after("reset", s, 0);
    say_result("error", so_error(s));
    stage("told", s);
}

/* What is sent to a peer that closed is answered by a reset. */
static void poll_sent_to_closed(int s)
{
    far_do(FAR_CLOSE, 0);
    stage_after("closed", s, POLLRDHUP);
    send_next(s, 10);
    stage_after("answered", s, 0);
    say_result("error", so_error(s));
    stage("told", s);
    say_result("send", send(s, "x", 1, MSG_NOSIGNAL));
    stage("epipe", s);
}

/* The far end closes with octets of ours unread: a reset. */
static void poll_closed_unread(int s)
{
    send_next(s, 100);
    far_do(FAR_SEND, 20);
    poll_one(s, POLLIN, 10000);
    far_do(FAR_CLOSE, 0);
    stage_after("reset", s, POLLRDHUP);
    say_result("error", so_error(s));
    stage("told", s);
}

static void poll_full(int s)
{
    size_t total = fill_up(s);
    stage("full", s);
    say(" waits=%s", poll_names(poll_one(s, POLLOUT, 20)));
    far_do(FAR_SEND, 5);
    say(" in=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 10000)));
    recv_next(s, 2);
    say(" left=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 10000)));
    recv_next(s, 3);
    far_begin(FAR_RECV, (int64_t)total, 10);
    say(" out=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 10000)));
    struct far_result r = far_end();
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
    stage("drained", s);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* A shut direction is "writable" at once, however much is still on its way. */
static void poll_full_shut(int s)
{
    set_nonblock(s, true);
    size_t total = fill_up(s);
    stage("full", s);
    must("shutdown", shutdown(s, SHUT_WR));
    stage("shut", s);
    struct far_result r = far_do(FAR_RECV, (int64_t)total + 1);
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
    stage("gone", s);
}

/* The same on a blocking socket: shutdown does not wait. */
static void poll_full_shut_blocking(int s)
{
    size_t total = fill_up(s);
    must("shutdown", shutdown(s, SHUT_WR));
    stage("shut", s);
    struct far_result r = far_do(FAR_RECV, (int64_t)total + 1);
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
}

static void poll_full_reset(int s)
{
    fill_up(s);
    struct waiter w;
    wait_in_poll(&w, s, POLLOUT, 10000);
    far_do(FAR_RESET, 0);
    wait_end("woken", &w);
    say_result("error", so_error(s));
    stage("told", s);
}

/* ---- leftovers, peeks, marks ---- */

static void poll_left_overs(int s)
{
    uint8_t buf[64];
    far_do(FAR_SEND, 30);
    poll_one(s, POLLIN, 10000);
    say_result("peek", recv(s, buf, 10, MSG_PEEK));
    stage("peeked", s);
    say_result("peek_all", recv(s, buf, sizeof(buf), MSG_PEEK));
    stage("peeked", s);
    recv_next(s, 29);
    stage("one", s);
    far_do(FAR_SEND, 30);
    recv_next(s, 1);
    stage("next", s);
    recv_next(s, 30);
    stage("drained", s);
    say_result("none", recv(s, buf, 1, MSG_DONTWAIT));
    stage("still", s);
}

static void poll_lowat(int s)
{
    set_lowat(s, 100);
    far_do(FAR_SEND, 50);
    say(" half=%s", poll_names(poll_one(s, POLLIN, 30)));
    far_begin(FAR_SEND, 50, 20);
    say(" full=%s", poll_names(poll_one(s, POLLIN, 10000)));
    far_end();
    recv_next(s, 10);
    say(" under=%s", poll_names(poll_one(s, POLLIN, 20)));
    set_lowat(s, 90);
    say(" lower=%s", poll_names(poll_one(s, POLLIN, 0)));
    set_lowat(s, 91);
    say(" higher=%s", poll_names(poll_one(s, POLLIN, 20)));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" fin=%s", poll_names(poll_one(s, POLLIN, 10000)));
    recv_next(s, 90);
    stage("end", s);
}

/* Set after the octets came, and after part of them was read. */
static void poll_lowat_late(int s)
{
    far_do(FAR_SEND, 60);
    say(" first=%s", poll_names(poll_one(s, POLLIN, 10000)));
    recv_next(s, 10);
    set_lowat(s, 51);
    say(" raised=%s", poll_names(poll_one(s, POLLIN, 20)));
    far_do(FAR_SEND, 1);
    say(" reached=%s", poll_names(poll_one(s, POLLIN, 10000)));
    set_lowat(s, 1000);
    far_do(FAR_SEND, 500);
    say(" raised=%s", poll_names(poll_one(s, POLLIN, 20)));
    far_do(FAR_RESET, 0);
    say(" reset=%s", poll_names(poll_one(s, POLLIN, 10000)));
}

/* Lowering the mark wakes a thread that waits. */
static void poll_lowat_wakes(int s)
{
    set_lowat(s, 100);
    far_do(FAR_SEND, 50);
    struct waiter w;
    wait_in_poll(&w, s, POLLIN, 10000);
    set_lowat(s, 20);
    wait_end("woken", &w);
    say_time("after", w.took_ms, 0, 9000);
}

/* Half of what is waited for has come: the wait costs no time. */
static void poll_idle(int s)
{
    set_lowat(s, 1000);
    far_do(FAR_SEND, 50);
    unsigned cpu = cpu_ms();
    say(" quiet=%s", poll_names(poll_one(s, POLLIN, 80)));
    say_idle(cpu, 80);
    set_lowat(s, 1);
    recv_next(s, 10);
    set_lowat(s, 41);
    cpu = cpu_ms();
    say(" left=%s", poll_names(poll_one(s, POLLIN, 60)));
    say_idle(cpu, 60);
    fill_up(s);
    cpu = cpu_ms();
    say(" full=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 60)));
    say_idle(cpu, 60);
    far_do(FAR_RESET, 0); /* it will not be read */
}

/*
 * A message larger than the receive buffer: whoever is woken can read, and the wait costs nothing.
 */
static void poll_pieces(int s)
{
    static uint8_t buf[3000];
    int small = 32768, nothing = 0;
    size_t total = 0, all = 500000;
    must("SO_RCVBUF", setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)));
    set_nonblock(s, true);
    far_begin(FAR_SEND, (int64_t)all, 0);
    while (total < all && poll_one(s, POLLIN, 10000) != 0) {
        ssize_t r = recv(s, buf, sizeof(buf), 0);
        if (r < 0 && errno == EAGAIN) {
            nothing++;
            continue;
        }
        must("recv", r);
        check(buf, (size_t)r);
        total += (size_t)r;
    }
    far_end();
    say(" total=%zu for_nothing=%d", total, nothing);
}

/* ---- signals ---- */

static void ppoll_pending(int s)
{
    sigset_t none;
    sigemptyset(&none);
    struct timespec ts = { .tv_sec = 10 };
    struct pollfd p = { .fd = s, .events = POLLIN, .revents = 0x7f };
    signal_pending_now();
    say_result("pending", ppoll(&p, 1, &ts, &none));
    say(" signals=%d revents=%x", sem_signals, (unsigned)p.revents);
    must("raise", raise(SIGUSR1));
    say(" signals=%d", sem_signals);
    far_do(FAR_SEND, 10);
    say(" wait=%s", poll_names(poll_one(s, POLLIN, 10000)));
    say_result("ready", ppoll(&p, 1, &ts, &none));
    say(" signals=%d revents=%s", sem_signals, poll_names(p.revents));
    recv_next(s, 4);
    say_result("left", ppoll(&p, 1, &ts, &none));
    say(" signals=%d revents=%s", sem_signals, poll_names(p.revents));
    recv_next(s, 6);
    ts.tv_sec = 0;
    say_result("now", ppoll(&p, 1, &ts, &none));
    say(" signals=%d", sem_signals);
}

static void ppoll_blocks(int s)
{
    sigset_t all;
    sigfillset(&all);
    struct timespec ts = { .tv_nsec = 60000000 };
    struct pollfd p = { .fd = s, .events = POLLIN };
    signal_after(15, false);
    uint64_t t = now_ms();
    say_result("blocked", ppoll(&p, 1, &ts, &all));
    say_time("after", (unsigned)(now_ms() - t), 58, LATE_MS);
    await_signals(1);
    say(" signals=%d", sem_signals);
    signal_after(15, true);
    far_begin(FAR_SEND, 1, 50);
    ts.tv_sec = 10;
    say_result("data", ppoll(&p, 1, &ts, &all));
    far_end();
    say(" signals=%d", sem_signals);
}

static void poll_interrupted(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN, .revents = 0x7f };
    for (int restart = 0; restart < 2; restart++) {
        signal_after(40, restart);
        uint64_t t = now_ms();
        say_result("poll", poll(&p, 1, 10000));
        say_time("after", (unsigned)(now_ms() - t), 30, 9000);
        say(" signals=%d revents=%x", sem_signals, (unsigned)p.revents);
    }
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 3);
    recv_next(s, 7);
    signal_after(40, true);
    say_result("ever", poll(&p, 1, -1));
    say(" signals=%d", sem_signals);
}

static void ppoll_timeouts(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN };
    struct timespec bad[] = { { 0, 1000000000 }, { 0, -1 }, { -1, 0 } };
    for (size_t i = 0; i < 3; i++)
        say_result("bad", ppoll(&p, 1, &bad[i], NULL));
    struct timespec ts = { .tv_nsec = 25000000 };
    uint64_t t = now_ms();
    say_result("short", ppoll(&p, 1, &ts, NULL));
    say_time("after", (unsigned)(now_ms() - t), 24, LATE_MS);
    say(" unchanged=%d", ts.tv_sec == 0 && ts.tv_nsec == 25000000);
    ts.tv_nsec = 1;
    say_result("tiny", ppoll(&p, 1, &ts, NULL));
    static const time_t huge[] = { 10000000000, INT64_MAX / 1000000000 + 1, INT64_MAX };
    for (size_t i = 0; i < 3; i++) {
        ts = (struct timespec){ .tv_sec = huge[i], .tv_nsec = 999999999 };
        far_begin(FAR_SEND, 1, 20);
        say_result("huge", ppoll(&p, 1, &ts, NULL));
        far_end();
        recv_next(s, 1);
    }
    far_begin(FAR_SEND, 1, 20);
    say_result("ever", ppoll(&p, 1, NULL, NULL));
    far_end();
}

/* ---- listeners and connecting ---- */

static void poll_listener(int s)
{
    (void)s;
    stage("none", sem_listener);
    struct waiter w;
    wait_in_poll(&w, sem_listener, POLLIN | POLLOUT, 10000);
    far_begin(FAR_CONNECT, sem_port, 0);
    wait_end("comes", &w);
    int a = (int)must("accept", accept(sem_listener, NULL, NULL));
    far_end();
    stage("taken", sem_listener);
    far_do(FAR_SEND, 3);
    say(" data=%s", poll_names(poll_one(a, POLLIN, 10000)));
    must("shutdown", shutdown(sem_listener, SHUT_RD));
    stage("shut", sem_listener);
}

static void poll_unconnected(int s)
{
    int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    stage("fresh", fd);
    struct pollfd p[2] = { { .fd = fd, .events = ALL }, { .fd = s, .events = POLLIN } };
    say_result("with", poll(p, 2, 100));
    say(" %s,%s", poll_names(p[0].revents), poll_names(p[1].revents));
    one_octet(s);
}

static void poll_connecting(int s)
{
    (void)s;
    int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    far_begin(FAR_ACCEPT, 0, 30);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    say(" poll=%s", poll_names(poll_one(fd, POLLOUT | POLLIN, 10000)));
    say_result("error", so_error(fd));
    say(" poll=%s", poll_names(poll_one(fd, POLLOUT | POLLIN, 0)));
    must("accept", far_end().r);
    far_do(FAR_SEND, 20);
    say(" data=%s", poll_names(poll_one(fd, POLLIN, 10000)));
    recv_next(fd, 5);
    stage("left", fd);
    recv_next(fd, 15);
}

static void poll_refused(int s)
{
    (void)s;
    int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    say_result("connect", connect_begin_to(fd, dead_port()));
    say(" poll=%s", poll_names(poll_one(fd, POLLOUT | POLLIN | POLLRDHUP, 10000)));
    say_result("error", so_error(fd));
    stage("told", fd);
}

/* ---- several connections, several threads ---- */

static void poll_eight(int s)
{
    struct pollfd p[9] = { { .fd = s, .events = POLLIN } };
    for (int i = 1; i < 8; i++)
        p[i] = (struct pollfd){ .fd = more(), .events = POLLIN };
    p[8] = (struct pollfd){ .fd = eventfd(1, 0), .events = POLLOUT };
    say_result("quiet", poll(p, 8, 20));
    for (int round = 0; round < 3; round++) {
        int i = (round * 3 + 1) % 8, k = (round * 3 + 5) % 8;
        far_send_on(i, 20);
        far_send_on(k, 20);
        poll_one(p[i].fd, POLLIN, 10000);
        poll_one(p[k].fd, POLLIN, 10000);
        recv(p[i].fd, (char[10]){ 0 }, 10, 0);
        say_result("ready", poll(p, 9, 10000));
        for (int n = 0; n < 9; n++)
            say("%s%s", n ? "," : " ", poll_names(p[n].revents));
        recv(p[i].fd, (char[10]){ 0 }, 10, 0);
        recv(p[k].fd, (char[20]){ 0 }, 20, 0);
    }
    far_use(4);
    far_begin(FAR_SEND, 1, 20);
    say_result("waits", poll(p, 8, 10000));
    far_end();
    say(" %s", poll_names(p[4].revents));
}

static void *recv_four(void *arg)
{
    char buf[4];
    return (void *)(intptr_t)recv(*(int *)arg, buf, sizeof(buf), 0);
}

/* A thread reads a part of what came, another one waits in poll. */
static void poll_beside_reader(int s)
{
    struct waiter reader, w;
    in_thread(&reader, recv_four, &s);
    wait_in_poll(&w, s, POLLIN, 10000);
    far_do(FAR_SEND, 10);
    void *r;
    pthread_join(reader.thread, &r);
    wait_end("poll", &w);
    say(" recv=%d", (int)(intptr_t)r);
    say_time("after", w.took_ms, 0, 9000);
    say(" left=%s", poll_names(poll_one(s, POLLIN, 0)));
}

/* Closing does not wake a thread that waits; when its time is over it finds the descriptor gone. */
static void poll_closed_by_other(int s)
{
    struct waiter w;
    int ms = 200;
    /* (Closed before that time is over, in any case.) */
    for (uint64_t t = now_ms();; t = now_ms(), s = more(), ms *= 2) {
        wait_in_poll(&w, s, POLLIN, ms);
        close(s);
        if (now_ms() < t + (uint64_t)ms)
            break;
        pthread_join(w.thread, NULL);
    }
    wait_end("poll", &w);
    say_time("after", w.took_ms, (unsigned)ms - 2, LATE_MS);
    far_say("far", far_do(FAR_RECV, 1));
}

static void poll_shut_by_other(int s)
{
    static const int how[] = { SHUT_WR, SHUT_RD };
    struct waiter w;
    for (int i = 0; i < 2; i++) {
        wait_in_poll(&w, s, POLLIN | POLLRDHUP, i == 0 ? 50 : 10000);
        must("shutdown", shutdown(s, how[i]));
        wait_end("woken", &w);
    }
}

static void poll_out_woken(int s)
{
    size_t total = fill_up(s);
    struct waiter w[2];
    wait_in_poll(&w[0], s, POLLOUT, 10000);
    wait_in_poll(&w[1], s, POLLOUT | POLLIN, 10000);
    struct far_result r = far_do(FAR_RECV, (int64_t)total);
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
    wait_end("a", &w[0]);
    wait_end("b", &w[1]);
    say_time("after", w[0].took_ms > w[1].took_ms ? w[0].took_ms : w[1].took_ms, 0, 9000);
}

const struct scenario sem_poll[] = {
    { "poll_nval", poll_nval },
    { "poll_negative", poll_negative },
    { "poll_nothing", poll_nothing },
    { "poll_same_twice", poll_same_twice },
    { "poll_unasked", poll_unasked },
    { "poll_norm_band", poll_norm_band },
    { "poll_timeouts", poll_timeouts },
    { "poll_limit", poll_limit },
    { "poll_one_allowed", poll_one_allowed },
    { "poll_many_entries", poll_many_entries },
    { "poll_far_closes_first", poll_far_closes_first },
    { "poll_near_closes_first", poll_near_closes_first },
    { "poll_shut_rd", poll_shut_rd },
    { "poll_shut_both", poll_shut_both },
    { "poll_reset", poll_reset },
    { "poll_reset_recv", poll_reset_recv },
    { "poll_reset_half_closed", poll_reset_half_closed },
    { "poll_reset_shut", poll_reset_shut },
    { "poll_sent_to_closed", poll_sent_to_closed },
    { "poll_closed_unread", poll_closed_unread },
    { "poll_full", poll_full },
    { "poll_full_shut", poll_full_shut },
    { "poll_full_shut_blocking", poll_full_shut_blocking },
    { "poll_full_reset", poll_full_reset },
    { "poll_left_overs", poll_left_overs },
    { "poll_lowat", poll_lowat },
    { "poll_lowat_late", poll_lowat_late },
    { "poll_lowat_wakes", poll_lowat_wakes },
    { "poll_idle", poll_idle },
    { "poll_pieces", poll_pieces },
    { "ppoll_pending", ppoll_pending },
    { "ppoll_blocks", ppoll_blocks },
    { "poll_interrupted", poll_interrupted },
    { "ppoll_timeouts", ppoll_timeouts },
    { "poll_listener", poll_listener },
    { "poll_unconnected", poll_unconnected },
    { "poll_connecting", poll_connecting },
    { "poll_refused", poll_refused },
    { "poll_eight", poll_eight },
    { "poll_beside_reader", poll_beside_reader },
    { "poll_closed_by_other", poll_closed_by_other },
    { "poll_shut_by_other", poll_shut_by_other },
    { "poll_out_woken", poll_out_woken },
    { NULL, NULL },
};
