/*
 * epoll and the life of descriptors: registered before there is a connection, dup'd, closed, their
 * numbers used again; many of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

/* ---- before the connection ---- */

static int fresh(void)
{
    return (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
}

static void epoll_early(int s)
{
    (void)s;
    int ep = ep_new(), fd = fresh();
    ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1);
    ep_say("fresh", ep, 10000);
    far_begin(FAR_ACCEPT, 0, 20);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    ep_say("up", ep, 10000);
    say_result("error", so_error(fd));
    must("accept", far_end().r);
    far_do(FAR_SEND, 10);
    poll_one(fd, POLLIN, 10000);
    ep_say("data", ep, 10000);
    recv_next(fd, 4);
    ep_say("left", ep, 10000);
    recv_next(fd, 6);
    ep_say("drained", ep, 10000);
    far_do(FAR_CLOSE, 0);
    poll_one(fd, POLLRDHUP, 10000);
    ep_say("end", ep, 10000);
}

static void epoll_early_edge(int s)
{
    (void)s;
    int ep = ep_new(), fd = fresh();
    ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    ep_say("fresh", ep, 10000);
    ep_say("once", ep, 10);
    far_begin(FAR_ACCEPT, 0, 20);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    ep_say("up", ep, 10000);
    must("accept", far_end().r);
    ep_say("once", ep, 20);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    ep_say("once", ep, 10);
    recv_next(fd, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
}

static void epoll_early_oneshot(int s)
{
    (void)s;
    int ep = ep_new(), fd = fresh();
    far_begin(FAR_ACCEPT, 0, 20);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    ep_add(ep, fd, EPOLLOUT | EPOLLONESHOT, 1);
    ep_say("up", ep, 10000);
    ep_say("off", ep, 10);
    must("accept", far_end().r);
    ep_mod(ep, fd, EPOLLIN | EPOLLONESHOT, 2);
    ep_say("armed", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(fd, 2);
    ep_mod(ep, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 3);
    ep_say("both", ep, 10000);
    ep_say("off", ep, 10);
}

static void epoll_early_in(int s)
{
    (void)s;
    int ep = ep_new(), fd = fresh();
    ep_add(ep, fd, EPOLLIN | EPOLLONESHOT, 1);
    ep_say("fresh", ep, 10000);
    ep_mod(ep, fd, EPOLLIN | EPOLLET, 2);
    ep_say("again", ep, 10000);
    far_begin(FAR_ACCEPT, 0, 10);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    must("accept", far_end().r);
    far_do(FAR_SEND, 10);
    poll_one(fd, POLLIN, 10000);
    ep_say("data", ep, 10000);
    ep_say("once", ep, 10);
}

/* A thread waits for the set, another one connects. */
static void epoll_early_thread(int s)
{
    (void)s;
    int ep = ep_new(), fd = fresh();
    struct waiter w;
    ep_add(ep, fd, EPOLLOUT | EPOLLET, 1);
    ep_say("fresh", ep, 10000);
    wait_in_epoll(&w, ep, 10000);
    far_begin(FAR_ACCEPT, 0, 10);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    wait_end("up", &w);
    must("accept", far_end().r);
    send_next(fd, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static void epoll_refused(int s)
{
    (void)s;
    int ep = ep_new(), edge = ep_new(), fd = fresh();
    ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1);
    ep_add(edge, fd, EPOLLOUT | EPOLLET, 2);
    ep_say("fresh", edge, 10000);
    say_result("connect", connect_begin_to(fd, dead_port()));
    poll_one(fd, POLLIN, 10000);
    ep_say("edge", edge, 10000);
    ep_say("level", ep, 10000);
    say_result("error", so_error(fd));
    ep_say("told", ep, 10000);
    ep_say("once", edge, 10);
}

static void epoll_listener(int s)
{
    (void)s;
    int ep = ep_new(), edge = ep_new(), got[3];
    ep_add(ep, sem_listener, EPOLLIN, 1);
    ep_add(edge, sem_listener, EPOLLIN | EPOLLET, 2);
    ep_say("none", ep, 10);
    for (int i = 0; i < 3; i++) {
        far_begin(FAR_CONNECT, sem_port, 0);
        ep_say("comes", edge, 10000);
        ep_say("level", ep, 10000);
        ep_say("once", edge, 10);
        got[i] = (int)must("accept", accept(sem_listener, NULL, NULL));
        must("connect", far_end().r);
        ep_add(ep, got[i], EPOLLIN | EPOLLET, (uint64_t)(10 + i));
    }
    ep_say("taken", ep, 10);
    for (int i = 0; i < 3; i++) {
        far_send_on(i + 1, 10);
        ep_say("data", ep, 10000);
    }
}

/* ---- duplicates ---- */

static void epoll_dup_data(int s)
{
    int ep = ep_new(), d = (int)must("dup", dup(s)), e = (int)must("dup", dup(s));
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(ep, d, EPOLLIN | EPOLLOUT, 2);
    ep_add(ep, e, EPOLLIN | EPOLLET, 3);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    ep_say("data", ep, 10000);
    recv_next(d, 4);
    ep_say("left", ep, 10000);
    ep_del(ep, s);
    ep_say("deleted", ep, 10000);
    recv_next(e, 6);
    ep_say("drained", ep, 10000);
    ep_mod(ep, d, EPOLLIN, 4);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    ep_say("data", ep, 10000);
}

/* A registration lives as long as its open file does, not the number it was made with. */
static void epoll_dup_closed(int s)
{
    int ep = ep_new(), d = (int)must("dup", dup(s));
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(ep, d, EPOLLIN | EPOLLRDHUP, 2);
    close(s);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    say_result("del", epoll_ctl(ep, EPOLL_CTL_DEL, s, NULL));
    recv_next(d, 4);
    ep_say("left", ep, 10000);
    recv_next(d, 6);
    ep_say("drained", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("new", ep, 10000);
    recv_next(d, 10);
    far_do(FAR_CLOSE, 0);
    ep_say("end", ep, 10000);
    close(d);
    ep_say("gone", ep, 10);
}

/*
 * The number comes back with another connection, while the first one is still registered under it.
 */
static void epoll_number_again(int s)
{
    int ep = ep_new(), d = (int)must("dup", dup(s));
    ep_add(ep, s, EPOLLIN, 1);
    int other = more();
    close(s);
    must("dup2", dup2(other, s));
    close(other);
    far_send_on(0, 10);
    ep_say("first", ep, 10000);
    far_send_on(1, 10);
    ep_say("not_in", ep, 10);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 3));
    say_result("del", epoll_ctl(ep, EPOLL_CTL_DEL, s, NULL));
    say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 2));
    ep_say("both", ep, 10000);
    say_result("recv", recv(d, (char[6]){ 0 }, 6, 0));
    say_result("recv", recv(s, (char[4]){ 0 }, 4, 0));
    ep_say("left", ep, 10000);
    say_result("recv", recv(d, (char[4]){ 0 }, 4, 0));
    ep_say("second", ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLOUT, 4);
    ep_say("mod", ep, 10000);
    ep_del(ep, s);
    far_send_on(0, 10);
    ep_say("first", ep, 10000);
    close(d);
    ep_say("gone", ep, 10);
}

static void epoll_number_plain(int s)
{
    int ep = ep_new(), p[2];
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    must("pipe", pipe(p));
    int other = more();
    must("dup2", dup2(p[0], s)); /* a pipe now */
    ep_say("pipe", ep, 10);
    say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 2));
    must("write", write(p[1], "x", 1));
    ep_say("pipe", ep, 10000);
    must("dup2", dup2(other, s)); /* a connection again */
    say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 3));
    ep_say("pipe_left", ep, 10000);
    far_do(FAR_SEND, 10);
    poll_one(other, POLLIN, 10000);
    ep_say("both", ep, 10000);
}

static void epoll_closed(int s)
{
    int ep = ep_new(), other = more();
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(ep, other, EPOLLIN, 2);
    far_send_on(0, 10);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 5);
    close(s);
    ep_say("closed", ep, 10);
    say_result("del", epoll_ctl(ep, EPOLL_CTL_DEL, s, NULL));
    far_send_on(1, 10);
    ep_say("other", ep, 10000);
    int again = more();
    say(" same=%d", again == s);
    far_do(FAR_SEND, 10);
    poll_one(again, POLLIN, 10000);
    ep_say("not_in", ep, 10000);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, again, EPOLLIN, 3));
    ep_add(ep, again, EPOLLIN, 4);
    ep_say("in", ep, 10000);
}

/* ---- the set's own descriptor ---- */

static void epoll_set_dup(int s)
{
    int ep = ep_new(), d = (int)must("dup", dup(ep));
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    ep_say("dup", d, 10000);
    ep_mod(d, s, EPOLLIN | EPOLLET, 2);
    ep_say("ep", ep, 10000);
    ep_say("dup", d, 10);
    say_result("twice", ep_ctl(d, EPOLL_CTL_ADD, s, EPOLLIN, 3));
    close(ep);
    recv_next(s, 4);
    ep_mod(d, s, EPOLLIN, 4);
    ep_say("dup", d, 10000);
    ep_del(d, s);
    ep_say("dup", d, 10);
}

static void epoll_set_again(int s)
{
    int ep = ep_new(), number = ep;
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 10000);
    recv_next(s, 4);
    close(ep);
    ep = ep_new();
    say(" same=%d", ep == number);
    ep_say("empty", ep, 10);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 2));
    ep_add(ep, s, EPOLLIN | EPOLLET, 3);
    ep_say("left", ep, 10000);
    int other = ep_new();
    must("dup2", dup2(other, ep));
    ep_say("replaced", ep, 10);
    ep_add(ep, s, EPOLLIN, 4);
    ep_say("other", other, 10000);
}

static void epoll_set_polled(int s)
{
    int ep = ep_new();
    struct pollfd p[2] = { { .fd = ep, .events = POLLIN | POLLOUT }, { .fd = s, .events = POLLIN } };
    ep_add(ep, s, EPOLLIN, 1);
    say_result("empty", poll(p, 2, 10));
    far_begin(FAR_SEND, 10, 20);
    say(" waits=%s", poll_names(poll_one(ep, POLLIN, 10000)));
    far_end();
    say_result("both", poll(p, 2, 10000));
    say(" %s,%s", poll_names(p[0].revents), poll_names(p[1].revents));
    recv_next(s, 4);
    say_result("left", poll(p, 2, 10000));
    say(" %s,%s", poll_names(p[0].revents), poll_names(p[1].revents));
    ep_say("set", ep, 10000);
    say(" still=%s", poll_names(poll_one(ep, POLLIN, 0)));
    recv_next(s, 6);
    say_result("drained", poll(p, 2, 10));
    ep_mod(ep, s, EPOLLIN | EPOLLET, 2);
    far_do(FAR_SEND, 10);
    say(" edge=%s", poll_names(poll_one(ep, POLLIN, 10000)));
    ep_say("set", ep, 10000);
    say(" told=%s", poll_names(poll_one(ep, POLLIN, 10)));
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 3);
    say(" armed=%s", poll_names(poll_one(ep, POLLIN, 10000)));
    ep_say("set", ep, 10000);
    say(" off=%s", poll_names(poll_one(ep, POLLIN, 10)));
}

/* ---- many ---- */

/*
 * An octet on the i-th connection: between hosts one whose server speaks first may stay plain, or not, and two kinds take turns as two
 * lists do.
 */
static void client_speaks(int fd, int i)
{
    char octet = 0;
    if (sem_accepting) {
        far_send_on(i, 1);
        must("receive", recv(fd, &octet, 1, 0));
    } else {
        must("send", send(fd, &octet, 1, 0));
        far_use(i);
        far_do(FAR_RECV, 1);
    }
}

static void epoll_max_events(int s)
{
    int ep = ep_new(), fd[6] = { s }, seen[6] = { 0 };
    for (int i = 1; i < 6; i++)
        fd[i] = more();
    for (int i = 0; i < 6; i++) {
        client_speaks(fd[i], i);
        ep_add(ep, fd[i], EPOLLIN, (uint64_t)i);
        far_send_on(i, 10);
        poll_one(fd[i], POLLIN, 10000);
    }
    for (int round = 0; round < 3; round++) { /* two of the six at a time: everybody has had its turn */
        struct epoll_event ev[2];
        say_result("n", epoll_wait(ep, ev, 2, 10000));
        for (int i = 0; i < 2; i++)
            seen[ev[i].data.u64]++;
    }
    for (int i = 0; i < 6; i++)
        say("%s%d", i ? "," : " seen=", seen[i]);
    /* Half of them with octets left over: still everybody, one at a time. */
    for (int i = 0; i < 6; i++) {
        seen[i] = 0;
        if (i % 2)
            say_result("recv", recv(fd[i], (char[3]){ 0 }, 3, 0));
    }
    int most = 0;
    for (int round = 0; round < 18; round++) {
        struct epoll_event ev;
        must("epoll_wait", epoll_wait(ep, &ev, 1, 10000));
        seen[ev.data.u64]++;
    }
    for (int i = 0; i < 6; i++)
        most += seen[i] > 0;
    say(" all=%d", most);
    ep_say("every", ep, 10000);
}

static void epoll_many(int s)
{
    enum { MANY = 400 };
    static struct epoll_event ev[MANY + 10];
    struct rlimit lim;
    must("getrlimit", getrlimit(RLIMIT_NOFILE, &lim));
    lim.rlim_cur = lim.rlim_max < 1024 ? lim.rlim_max : 1024;
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &lim));
    int ep = ep_new(), times[MANY] = { 0 };
    for (int i = 0; i < MANY; i++)
        ep_add(ep, (int)must("dup", dup(s)), EPOLLIN, (uint64_t)i);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    for (int round = 0; round < 2; round++) {
        int n = epoll_wait(ep, ev, MANY + 10, 10000), each = 0;
        say_result("n", n);
        for (int i = 0; i < n; i++)
            times[ev[i].data.u64]++;
        for (int i = 0; i < MANY; i++)
            each += times[i] == round + 1;
        say(" each_once=%d", each);
        recv_next(s, 4); /* the second time with octets left over */
    }
    recv_next(s, 2);
    say_result("drained", epoll_wait(ep, ev, MANY, 10));
}

/* In the order in which they became ready. */
static void epoll_order(int s)
{
    static const int order[] = { 2, 0, 3, 1 };
    int ep = ep_new(), fd[4] = { s };
    for (int i = 0; i < 4; i++) {
        fd[i] = i == 0 ? s : more();
        client_speaks(fd[i], i);
        ep_add(ep, fd[i], EPOLLIN | EPOLLET, (uint64_t)i);
    }
    struct epoll_event ev[4];
    while (epoll_wait(ep, ev, 4, 0) > 0) {
    } /* (nothing is there) */
    for (int i = 0; i < 4; i++) {
        far_send_on(order[i], 10);
        poll_one(fd[order[i]], POLLIN, 10000);
    }
    int n = epoll_wait(ep, ev, 4, 10000);
    say_result("n", n);
    for (int i = 0; i < n; i++)
        say("%s%d", i ? "," : " ", (int)ev[i].data.u64);
}

static void epoll_mixed(int s)
{
    int ep = ep_new(), p[2], e = eventfd(0, EFD_CLOEXEC);
    must("pipe", pipe(p));
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(ep, p[0], EPOLLIN | EPOLLET, 2);
    ep_add(ep, p[1], EPOLLIN, 3);
    ep_add(ep, e, EPOLLIN | EPOLLONESHOT, 4);
    ep_say("none", ep, 10);
    must("write", write(p[1], "abc", 3));
    must("write", write(e, &(uint64_t){ 1 }, 8));
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    ep_say("all", ep, 10000);
    recv_next(s, 4);
    ep_say("left", ep, 10000);
    ep_mod(ep, e, EPOLLIN | EPOLLONESHOT, 5);
    must("write", write(p[1], "abc", 3));
    ep_say("again", ep, 10000);
    close(p[1]);
    ep_say("hup", ep, 10000);
}

const struct scenario sem_epoll_life[] = {
    { "epoll_early", epoll_early },
    { "epoll_early_edge", epoll_early_edge },
    { "epoll_early_oneshot", epoll_early_oneshot },
    { "epoll_early_in", epoll_early_in },
    { "epoll_early_thread", epoll_early_thread },
    { "epoll_refused", epoll_refused },
    { "epoll_listener", epoll_listener },
    { "epoll_dup_data", epoll_dup_data },
    { "epoll_dup_closed", epoll_dup_closed },
    { "epoll_number_again", epoll_number_again },
    { "epoll_number_plain", epoll_number_plain },
    { "epoll_closed", epoll_closed },
    { "epoll_set_dup", epoll_set_dup },
    { "epoll_set_again", epoll_set_again },
    { "epoll_set_polled", epoll_set_polled },
    { "epoll_max_events", epoll_max_events },
    { "epoll_many", epoll_many },
    { "epoll_order", epoll_order },
    { "epoll_mixed", epoll_mixed },
    { NULL, NULL },
};
