/*
 * epoll, one set, one thread: modes, errors, stages of a connection, waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

#define LEVEL_ALL (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI)
#define EDGE_ALL (LEVEL_ALL | EPOLLET)

/* ---- errors ---- */

static void epoll_ctl_errors(int s)
{
    int ep = ep_new(), p[2];
    must("pipe", pipe(p));
    say_result("create", epoll_create(0));
    say_result("create1", epoll_create1(1 << 30));
    say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say_result("twice", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLOUT, 2));
    say_result("mod_absent", ep_ctl(ep, EPOLL_CTL_MOD, p[0], EPOLLIN, 3));
    say_result("del_absent", ep_ctl(ep, EPOLL_CTL_DEL, p[0], 0, 0));
    say_result("bad_fd", ep_ctl(ep, EPOLL_CTL_ADD, -1, EPOLLIN, 1));
    say_result("bad_fd", ep_ctl(ep, EPOLL_CTL_DEL, 99999, EPOLLIN, 1));
    say_result("bad_set", ep_ctl(-1, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say_result("self", ep_ctl(ep, EPOLL_CTL_ADD, ep, EPOLLIN, 1));
    say_result("no_set", ep_ctl(p[0], EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say_result("op", ep_ctl(ep, 4, s, EPOLLIN, 1));
    say_result("op", ep_ctl(ep, 0, s, EPOLLIN, 1));
    say_result("null", epoll_ctl(ep, EPOLL_CTL_MOD, s, NULL));
    int file = (int)must("open", open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    say_result("file", ep_ctl(ep, EPOLL_CTL_ADD, file, EPOLLIN, 1));
    say_result("del", epoll_ctl(ep, EPOLL_CTL_DEL, s, NULL));
    say_result("del", epoll_ctl(ep, EPOLL_CTL_DEL, s, NULL));
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 1));
    ep_say("empty", ep, 10);
    one_octet(s);
}

static void epoll_wait_errors(int s)
{
    int ep = ep_new();
    struct epoll_event ev[2];
    struct timespec bad = { .tv_nsec = 1000000000 }, ts = { 0 };
    volatile int minus = -1, most = INT_MAX; /* (the compiler would see that these are wrong) */
    say_result("empty", epoll_wait(ep, ev, 2, 0));
    ep_add(ep, s, EPOLLOUT, 1);
    ep_say("out", ep, 10000);
    say_result("zero", epoll_wait(ep, ev, 0, 0));
    say_result("minus", epoll_wait(ep, ev, minus, 0));
    say_result("minus", epoll_pwait(ep, ev, minus, 0, NULL));
    say_result("most", epoll_wait(ep, ev, most, 0));
    say_result("no_set", epoll_wait(s, ev, 2, 0));
    say_result("bad_set", epoll_wait(-1, ev, 2, 0));
    say_result("bad_time", epoll_pwait2(ep, ev, 2, &bad, NULL));
    bad = (struct timespec){ .tv_sec = -1 };
    say_result("bad_time", epoll_pwait2(ep, ev, 2, &bad, NULL));
    say_result("good", epoll_pwait2(ep, ev, 2, &ts, NULL));
    close(ep);
    say_result("closed", epoll_wait(ep, ev, 2, 0));
    say_result("closed", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    one_octet(s);
}

static void epoll_exclusive_errors(int s)
{
    int ep = ep_new(), other = ep_new();
    int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    for (int i = 0; i < 2; i++) {
        int of = i == 0 ? s : fd;
        say_result("oneshot", ep_ctl(ep, EPOLL_CTL_ADD, of, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
        say_result("rdhup", ep_ctl(ep, EPOLL_CTL_ADD, of, EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 1));
        say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, of, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 1));
        say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, of, EPOLLIN, 1));
        say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, of, EPOLLIN | EPOLLEXCLUSIVE, 1));
        say_result("del", ep_ctl(ep, EPOLL_CTL_DEL, of, 0, 0));
        say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, of, EPOLLIN, 1));
        say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, of, EPOLLIN | EPOLLEXCLUSIVE, 1));
        say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, of, EPOLLIN | EPOLLONESHOT, 1));
    }
    say_result("set", ep_ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN | EPOLLEXCLUSIVE, 1));
    one_octet(s);
}

/* ---- events and data ---- */

static void epoll_data_kept(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLOUT, UINT64_MAX);
    ep_say("max", ep, 10000);
    ep_mod(ep, s, EPOLLOUT, 0);
    ep_say("zero", ep, 10000);
    ep_mod(ep, s, EPOLLOUT, 0x77); /* may be a descriptor's number */
    ep_say("number", ep, 10000);
    ep_mod(ep, s, EPOLLIN, 0x8000000000000001);
    far_do(FAR_SEND, 10);
    ep_say("in", ep, 10000);
    recv_next(s, 5);
    ep_mod(ep, s, EPOLLIN, 0xfffffffffffffffe);
    ep_say("left", ep, 10000);
}

static void epoll_unasked(int s)
{
    int ep = ep_new();
    ep_add(ep, s, 0, 1);
    far_do(FAR_SEND, 5);
    ep_say("data", ep, 20);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    ep_say("fin", ep, 20);
    must("shutdown", shutdown(s, SHUT_WR));
    ep_say("both", ep, 10000);
    ep_mod(ep, s, EPOLLIN, 2);
    ep_say("in", ep, 10000);
}

static void epoll_wakeup_flag(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLWAKEUP, 1);
    ep_say("empty", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(s, 5);
    ep_say("left", ep, 0);
    ep_mod(ep, s, EPOLLIN | EPOLLWAKEUP | EPOLLET, 2);
    ep_say("mod", ep, 10000);
    ep_say("again", ep, 10);
}

static void epoll_norm_band(int s)
{
    struct epoll_event ev;
    int ep = ep_new();
    ep_add(ep, s, EPOLLRDNORM | EPOLLWRNORM | EPOLLRDBAND | EPOLLWRBAND | EPOLLMSG, 1);
    say_result("out", epoll_wait(ep, &ev, 1, 10000));
    say(" %x", ev.events);
    far_do(FAR_SEND, 10);
    ep_mod(ep, s, EPOLLRDNORM, 1);
    say_result("in", epoll_wait(ep, &ev, 1, 10000));
    say(" %x", ev.events);
    recv_next(s, 4);
    ep_mod(ep, s, EPOLLRDNORM | EPOLLIN | EPOLLWRNORM, 1);
    say_result("left", epoll_wait(ep, &ev, 1, 10000));
    say(" %x", ev.events);
}

static void epoll_mods(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    ep_say("in", ep, 10);
    ep_mod(ep, s, EPOLLOUT, 2);
    ep_say("out", ep, 10000);
    far_do(FAR_SEND, 10);
    ep_say("still_out", ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLOUT, 3);
    ep_say("both", ep, 10000);
    recv_next(s, 4);
    ep_mod(ep, s, EPOLLIN, 4);
    ep_say("left", ep, 10000);
    ep_mod(ep, s, 0, 5);
    ep_say("nothing", ep, 10);
    ep_mod(ep, s, EPOLLRDHUP, 6);
    ep_say("hup", ep, 10);
    ep_mod(ep, s, EPOLLIN, 7);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
}

/* Level and edge see the same stages; by a edge each once. */
static void stages(int s, uint32_t mode)
{
    int ep = ep_new();
    ep_add(ep, s, LEVEL_ALL | mode, 1);
    ep_say("fresh", ep, 10000);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    ep_say("data", ep, 10000);
    ep_say("again", ep, 10);
    recv_next(s, 4);
    ep_say("part", ep, 10);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    poll_one(s, POLLRDHUP, 10000);
    ep_say("fin", ep, 10000);
    ep_say("again", ep, 10);
    recv_next(s, 1);
    ep_say("end", ep, 10);
    must("shutdown", shutdown(s, SHUT_WR));
    poll_one(s, 0, 10000);
    ep_say("both", ep, 10000);
    ep_say("again", ep, 10);
}

static void epoll_stages(int s)
{
    stages(s, 0);
}

static void epoll_stages_edge(int s)
{
    stages(s, EPOLLET);
}

static void epoll_own_shutdown(int s)
{
    int ep = ep_new(), edge = ep_new();
    ep_add(ep, s, LEVEL_ALL, 1);
    ep_add(edge, s, EDGE_ALL, 2);
    ep_say("edge", edge, 10000);
    must("shutdown", shutdown(s, SHUT_WR));
    ep_say("wr", ep, 10000);
    ep_say("edge", edge, 10);
    must("shutdown", shutdown(s, SHUT_RD));
    ep_say("rd", ep, 10000);
    ep_say("edge", edge, 10000);
}

static void epoll_reset(int s)
{
    int ep = ep_new(), edge = ep_new();
    ep_add(ep, s, LEVEL_ALL, 1);
    ep_add(edge, s, EDGE_ALL, 2);
    ep_say("edge", edge, 10000);
    far_do(FAR_RESET, 0);
    ep_say("reset", edge, 10000);
    ep_say("level", ep, 10000);
    ep_say("again", edge, 10);
    say_result("error", so_error(s));
    ep_say("level", ep, 10000);
    recv_next(s, 1);
    ep_say("level", ep, 10000);
    ep_say("again", edge, 10);
}

static void epoll_sent_to_closed(int s)
{
    int ep = ep_new(), edge = ep_new();
    ep_add(ep, s, LEVEL_ALL, 1);
    ep_add(edge, s, EPOLLIN | EPOLLRDHUP | EPOLLET, 2);
    far_do(FAR_CLOSE, 0);
    ep_say("closed", edge, 10000);
    ep_say("level", ep, 10000);
    send_next(s, 5);
    poll_one(s, 0, 10000);
    ep_say("level", ep, 10000);
    ep_say("edge", edge, 10000);
    say_result("error", so_error(s));
    ep_say("level", ep, 10000);
}

/* ---- edges ---- */

static void epoll_edge_partial(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLET, 1);
    for (int i = 0; i < 3; i++) {
        far_do(FAR_SEND, 10);
        ep_say("new", ep, 10000);
        recv_next(s, 3);
        ep_say("part", ep, 10);
    }
    recv_next(s, 21);
    ep_say("drained", ep, 10);
    far_do(FAR_SEND, 1);
    ep_say("new", ep, 10000);
}

static void epoll_edge_mod(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLET, 1);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 2);
    ep_say("nothing", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("new", ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 3);
    ep_say("mod", ep, 10000);
    ep_say("once", ep, 10);
    recv_next(s, 3);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 4);
    ep_say("left", ep, 10000);
    ep_say("once", ep, 10);
    ep_mod(ep, s, EPOLLIN | EPOLLOUT | EPOLLET, 5);
    ep_say("both", ep, 10000);
    ep_say("once", ep, 10);
    recv_next(s, 7);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 6);
    ep_say("drained", ep, 10);
    ep_mod(ep, s, EPOLLOUT | EPOLLET, 7);
    ep_say("out", ep, 10000);
    ep_say("once", ep, 10);
}

/* More arrives between the wait and the read. */
static void epoll_edge_between(int s)
{
    int ep = ep_new();
    uint8_t buf[64];
    set_nonblock(s, true);
    ep_add(ep, s, EPOLLIN | EPOLLET, 1);
    far_do(FAR_SEND, 10);
    ep_say("new", ep, 10000);
    far_do(FAR_SEND, 10);
    await_octets(s, 20);
    recv_next(s, 20);
    say_result("drained", recv(s, buf, sizeof(buf), 0));
    ep_say("nothing", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("new", ep, 10000);
    recv_next(s, 10);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    say_result("peek", recv(s, buf, sizeof(buf), MSG_PEEK));
    ep_say("peeked", ep, 10000);
    recv_next(s, 4);
    far_do(FAR_SEND, 10);
    ep_say("and_left", ep, 10000);
    ep_say("once", ep, 10);
}

static void epoll_edge_peek(int s)
{
    int ep = ep_new(), level = ep_new();
    uint8_t buf[64];
    ep_add(ep, s, EPOLLIN | EPOLLET, 1);
    ep_add(level, s, EPOLLIN, 2);
    far_do(FAR_SEND, 10);
    ep_say("new", ep, 10000);
    say_result("peek", recv(s, buf, sizeof(buf), MSG_PEEK));
    ep_say("once", ep, 10);
    ep_say("level", level, 10000);
    say_result("peek", recv(s, buf, 3, MSG_PEEK));
    ep_say("level", level, 10000);
    recv_next(s, 10);
    ep_say("level", level, 10);
    ep_say("once", ep, 10);
}

static void epoll_edge_out(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLOUT | EPOLLET, 1);
    ep_say("out", ep, 10000);
    send_next(s, 100);
    far_do(FAR_RECV, 100);
    ep_say("small", ep, 20);
    size_t total = fill_up(s);
    ep_say("full", ep, 20);
    struct far_result r = far_do(FAR_RECV, (int64_t)total);
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
    ep_say("room", ep, 10000);
    send_next(s, 10);
    ep_say("once", ep, 20);
    far_say("far", far_do(FAR_RECV, 10));
}

static void epoll_full(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLOUT, 1);
    size_t total = fill_up(s);
    ep_say("full", ep, 20);
    far_do(FAR_SEND, 10);
    ep_say("in", ep, 10000);
    recv_next(s, 5);
    ep_say("left", ep, 10000);
    recv_next(s, 5);
    far_begin(FAR_RECV, (int64_t)total, 10);
    ep_say("room", ep, 10000);
    say(" all=%d", far_end().r == (int64_t)total);
    ep_say("still", ep, 10000);
}

static void epoll_full_oneshot(int s)
{
    int ep = ep_new();
    size_t total = fill_up(s);
    ep_add(ep, s, EPOLLOUT | EPOLLONESHOT, 1);
    ep_say("full", ep, 20);
    far_begin(FAR_RECV, (int64_t)total, 10);
    ep_say("room", ep, 10000);
    say(" all=%d", far_end().r == (int64_t)total);
    ep_say("once", ep, 10);
    ep_mod(ep, s, EPOLLOUT | EPOLLONESHOT, 2);
    ep_say("again", ep, 10000);
}

/* ---- one shot ---- */

static void epoll_oneshot_left(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLONESHOT, 1);
    far_do(FAR_SEND, 10);
    ep_say("shot", ep, 10000);
    ep_say("off", ep, 10);
    say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 9));
    recv_next(s, 2);
    ep_say("off", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("off", ep, 10);
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 2);
    ep_say("armed", ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 3);
    ep_say("both", ep, 10000);
    recv_next(s, 18);
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT | EPOLLET, 4);
    ep_say("drained", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("edge", ep, 10000);
    recv_next(s, 5);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 5);
    ep_say("armed", ep, 10000);
    ep_say("once", ep, 10);
}

/* Off means off: neither the end nor an error is told. */
static void epoll_oneshot_end(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, 1);
    far_do(FAR_SEND, 10);
    ep_say("shot", ep, 10000);
    far_do(FAR_RESET, 0);
    poll_one(s, 0, 10000);
    ep_say("off", ep, 20);
    ep_mod(ep, s, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, 2);
    ep_say("armed", ep, 10000);
    ep_del(ep, s);
    ep_add(ep, s, EPOLLIN | EPOLLONESHOT, 3);
    ep_say("added", ep, 10000);
    ep_say("off", ep, 10);
}

/* ---- exclusive ---- */

static void epoll_exclusive(int s)
{
    int ep = ep_new(), edge = ep_new();
    ep_add(ep, s, EPOLLIN | EPOLLEXCLUSIVE, 1);
    ep_say("empty", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(s, 4);
    ep_say("left", ep, 10000);
    ep_add(edge, s, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLEXCLUSIVE, 2);
    ep_say("edge", edge, 10000);
    ep_say("once", edge, 10);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
    ep_del(ep, s);
    far_do(FAR_SEND, 10);
    ep_say("edge", edge, 10000);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLRDHUP, 10000);
    ep_say("end", edge, 10000);
}

/* Registered before the connection is there. */
static void epoll_exclusive_early(int s)
{
    (void)s;
    int ep = ep_new(), fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    far_begin(FAR_ACCEPT, 0, 10);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE, 1);
    ep_say("up", ep, 10000);
    must("accept", far_end().r);
    far_do(FAR_SEND, 10);
    poll_one(fd, POLLIN, 10000);
    ep_say("data", ep, 10000);
    recv_next(fd, 10);
    ep_say("drained", ep, 10000);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, fd, EPOLLIN, 1));
    size_t total = fill_up(fd);
    ep_say("full", ep, 10);
    far_begin(FAR_RECV, (int64_t)total, 10);
    ep_say("room", ep, 10000);
    say(" all=%d", far_end().r == (int64_t)total);
}

static void epoll_exclusive_two(int s)
{
    int a = ep_new(), b = ep_new();
    ep_add(a, s, EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE, 1);
    ep_add(b, s, EPOLLIN | EPOLLEXCLUSIVE, 2);
    ep_say("a", a, 10000);
    ep_say("b", b, 10);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 4);
    ep_say("a", a, 10000);
    recv_next(s, 6);
    ep_say("a", a, 10000);
    ep_say("b", b, 10);
}

/* ---- marks ---- */

static void epoll_lowat(int s)
{
    int ep = ep_new(), edge = ep_new();
    set_lowat(s, 20);
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(edge, s, EPOLLIN | EPOLLET, 2);
    far_do(FAR_SEND, 15);
    ep_say("half", ep, 20);
    ep_say("edge", edge, 10);
    far_do(FAR_SEND, 15);
    ep_say("full", ep, 10000);
    ep_say("edge", edge, 10000);
    ep_say("once", edge, 10);
    recv_next(s, 15);
    ep_say("under", ep, 10);
    far_do(FAR_SEND, 15);
    ep_say("over", ep, 10000);
    ep_say("edge", edge, 10000);
    recv_next(s, 15);
    set_lowat(s, 10);
    ep_say("lower", ep, 10000);
    ep_say("edge", edge, 10000);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    set_lowat(s, 500);
    ep_say("fin", ep, 10000);
}

static void epoll_idle(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    set_lowat(s, 1000);
    far_do(FAR_SEND, 50);
    unsigned cpu = cpu_ms();
    ep_say("quiet", ep, 80);
    say_idle(cpu, 80);
    set_lowat(s, 1);
    recv_next(s, 10);
    set_lowat(s, 41);
    cpu = cpu_ms();
    ep_say("left", ep, 80);
    say_idle(cpu, 80);
    fill_up(s);
    ep_mod(ep, s, EPOLLIN | EPOLLOUT, 2);
    cpu = cpu_ms();
    ep_say("full", ep, 80);
    say_idle(cpu, 80);
    int outer = ep_new();
    ep_add(outer, ep, EPOLLIN, 3);
    cpu = cpu_ms();
    ep_say("nested", outer, 80);
    say_idle(cpu, 80);
    far_do(FAR_RESET, 0); /* it will not be read */
}

/* A message larger than the buffers: no thread is woken in vain, in any mode. */
static void pieces(int s, uint32_t mode)
{
    static uint8_t buf[5000];
    int small = 32768, nothing = 0, ep = ep_new();
    size_t total = 0, all = 500000;
    must("SO_RCVBUF", setsockopt(s, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)));
    set_nonblock(s, true);
    ep_add(ep, s, EPOLLIN | mode, 1);
    far_begin(FAR_SEND, (int64_t)all, 0);
    while (total < all) {
        struct epoll_event ev;
        size_t before = total;
        if (epoll_wait(ep, &ev, 1, 10000) != 1)
            break;
        ssize_t r = 1;
        while (r > 0) { /* once for a level, for an edge until there is nothing */
            r = recv(s, buf, sizeof(buf), 0);
            if (r < 0 && errno == EAGAIN)
                break;
            must("recv", r);
            check(buf, (size_t)r);
            total += (size_t)r;
            if (!(mode & EPOLLET))
                break;
        }
        /* (An edge may come for what the last round has taken.) */
        nothing += total == before && !(mode & EPOLLET);
        if (mode & EPOLLONESHOT)
            ep_mod(ep, s, EPOLLIN | mode, 1);
    }
    far_end();
    say(" total=%zu for_nothing=%d", total, nothing);
}

static void epoll_pieces(int s)
{
    pieces(s, 0);
}

static void epoll_pieces_edge(int s)
{
    pieces(s, EPOLLET);
}

static void epoll_pieces_oneshot(int s)
{
    pieces(s, EPOLLONESHOT);
}

/* ---- signals and times ---- */

static void epoll_pwait_pending(int s)
{
    int ep = ep_new();
    struct epoll_event ev;
    sigset_t none;
    sigemptyset(&none);
    ep_add(ep, s, EPOLLIN, 1);
    signal_pending_now();
    say_result("pending", epoll_pwait(ep, &ev, 1, 10000, &none));
    say(" signals=%d", sem_signals);
    must("raise", raise(SIGUSR1));
    say_result("blocked", epoll_pwait(ep, &ev, 1, 10, NULL));
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    say_result("ready", epoll_pwait(ep, &ev, 1, 10000, &none));
    say(" signals=%d", sem_signals);
    recv_next(s, 5);
    say_result("left", epoll_pwait(ep, &ev, 1, 10000, &none));
    say(" signals=%d", sem_signals);
    recv_next(s, 5);
    say_result("now", epoll_pwait(ep, &ev, 1, 0, &none));
    say(" signals=%d", sem_signals);
    struct timespec ts = { .tv_sec = 10 };
    say_result("pwait2", epoll_pwait2(ep, &ev, 1, &ts, &none));
    say(" signals=%d", sem_signals);
}

static void epoll_pwait_blocks(int s)
{
    int ep = ep_new();
    struct epoll_event ev;
    sigset_t all;
    sigfillset(&all);
    ep_add(ep, s, EPOLLIN, 1);
    signal_after(15, false);
    uint64_t t = now_ms();
    say_result("blocked", epoll_pwait(ep, &ev, 1, 50, &all));
    say_time("after", (unsigned)(now_ms() - t), 48, LATE_MS);
    await_signals(1);
    signal_after(15, false);
    struct timespec ts = { .tv_nsec = 50000000 };
    say_result("pwait2", epoll_pwait2(ep, &ev, 1, &ts, &all));
    await_signals(2);
    say(" signals=%d", sem_signals);
}

static void epoll_interrupted(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    for (int restart = 0; restart < 2; restart++) {
        signal_after(40, restart);
        uint64_t t = now_ms();
        ep_say("wait", ep, restart ? -1 : 10000);
        say_time("after", (unsigned)(now_ms() - t), 15, 9000);
        say(" signals=%d", sem_signals);
    }
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(s, 3);
    ep_say("left", ep, -1);
    recv_next(s, 7);
    signal_after(40, true);
    ep_say("wait", ep, 10000);
    say(" signals=%d", sem_signals);
}

static void epoll_times(int s)
{
    int ep = ep_new();
    struct epoll_event ev;
    ep_add(ep, s, EPOLLIN, 1);
    uint64_t t = now_ms();
    ep_say("short", ep, 25);
    say_time("after", (unsigned)(now_ms() - t), 23, LATE_MS);
    static const struct timespec ts[] = { { 0, 0 }, { 0, 1 }, { 0, 999999 }, { 0, 15000000 } };
    t = now_ms();
    for (size_t i = 0; i < sizeof(ts) / sizeof(ts[0]); i++)
        say_result("pwait2", epoll_pwait2(ep, &ev, 1, &ts[i], NULL));
    say_time("after", (unsigned)(now_ms() - t), 15, LATE_MS);
    static const time_t huge[] = { 10000000000, INT64_MAX / 1000000000 + 1, INT64_MAX };
    for (size_t i = 0; i < 3; i++) {
        struct timespec h = { .tv_sec = huge[i] };
        far_begin(FAR_SEND, 1, 15);
        say_result("huge", epoll_pwait2(ep, &ev, 1, &h, NULL));
        far_end();
        recv_next(s, 1);
    }
    far_begin(FAR_SEND, 1, 15);
    say_result("null", epoll_pwait2(ep, &ev, 1, NULL, NULL));
    far_end();
    recv_next(s, 1);
    far_begin(FAR_SEND, 1, 15);
    ep_say("minus", ep, -5);
    far_end();
    recv_next(s, 1);
    far_begin(FAR_SEND, 1, 15);
    ep_say("longest", ep, INT_MAX);
    far_end();
}

const struct scenario sem_epoll[] = {
    { "epoll_ctl_errors", epoll_ctl_errors },
    { "epoll_wait_errors", epoll_wait_errors },
    { "epoll_exclusive_errors", epoll_exclusive_errors },
    { "epoll_data_kept", epoll_data_kept },
    { "epoll_unasked", epoll_unasked },
    { "epoll_wakeup_flag", epoll_wakeup_flag },
    { "epoll_norm_band", epoll_norm_band },
    { "epoll_mods", epoll_mods },
    { "epoll_stages", epoll_stages },
    { "epoll_stages_edge", epoll_stages_edge },
    { "epoll_own_shutdown", epoll_own_shutdown },
    { "epoll_reset", epoll_reset },
    { "epoll_sent_to_closed", epoll_sent_to_closed },
    { "epoll_edge_partial", epoll_edge_partial },
    { "epoll_edge_mod", epoll_edge_mod },
    { "epoll_edge_between", epoll_edge_between },
    { "epoll_edge_peek", epoll_edge_peek },
    { "epoll_edge_room", epoll_edge_out },
    { "epoll_full", epoll_full },
    { "epoll_full_oneshot", epoll_full_oneshot },
    { "epoll_oneshot_left", epoll_oneshot_left },
    { "epoll_oneshot_end", epoll_oneshot_end },
    { "epoll_exclusive", epoll_exclusive },
    { "epoll_exclusive_early", epoll_exclusive_early },
    { "epoll_exclusive_two", epoll_exclusive_two },
    { "epoll_lowat", epoll_lowat },
    { "epoll_idle", epoll_idle },
    { "epoll_pieces", epoll_pieces },
    { "epoll_pieces_edge", epoll_pieces_edge },
    { "epoll_pieces_oneshot", epoll_pieces_oneshot },
    { "epoll_pwait_pending", epoll_pwait_pending },
    { "epoll_pwait_blocks", epoll_pwait_blocks },
    { "epoll_interrupted", epoll_interrupted },
    { "epoll_times", epoll_times },
    { NULL, NULL },
};
