/*
 * epoll sets in sets, several sets, several threads.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

/* ---- sets in sets ---- */

/* Three levels, each registered in the next one. */
static void epoll_nested_three(int s)
{
    int a = ep_new(), b = ep_new(), c = ep_new();
    ep_add(c, b, EPOLLIN, 3);
    ep_add(b, a, EPOLLIN, 2);
    ep_add(a, s, EPOLLIN, 1);
    ep_say("empty", c, 10);
    far_begin(FAR_SEND, 10, 20);
    ep_say("waits", c, 10000);
    far_end();
    ep_say("b", b, 10000);
    ep_say("a", a, 10000);
    recv_next(s, 4);
    ep_say("left", c, 10000);
    say(" poll=%s", poll_names(poll_one(c, POLLIN, 0)));
    ep_say("a", a, 10000);
    ep_say("again", c, 10000);
    recv_next(s, 6);
    ep_say("drained", c, 10);
    ep_say("a", a, 10);
}

/* The outer set has edges: one for each time the inner one gets something. */
static void epoll_nested_edge(int s)
{
    int inner = ep_new(), outer = ep_new();
    ep_add(inner, s, EPOLLIN, 1);
    ep_add(outer, inner, EPOLLIN | EPOLLET, 2);
    ep_say("empty", outer, 10);
    far_do(FAR_SEND, 10);
    ep_say("edge", outer, 10000);
    ep_say("once", outer, 10);
    ep_say("inner", inner, 10000);
    recv_next(s, 4);
    ep_say("left", inner, 10000);
    recv_next(s, 6);
    ep_say("inner", inner, 10);
    ep_say("drained", outer, 10);
    far_do(FAR_SEND, 10);
    ep_say("new", outer, 10000);
}

static void epoll_nested_inner_edge(int s)
{
    int inner = ep_new(), outer = ep_new();
    ep_add(inner, s, EPOLLIN | EPOLLET, 1);
    ep_add(outer, inner, EPOLLIN, 2);
    far_do(FAR_SEND, 10);
    ep_say("outer", outer, 10000);
    ep_say("level", outer, 10000);
    ep_say("inner", inner, 10000);
    ep_say("told", outer, 10);
    recv_next(s, 4);
    ep_say("left", outer, 10);
    far_do(FAR_SEND, 10);
    ep_say("outer", outer, 10000);
    ep_mod(inner, s, EPOLLIN | EPOLLET, 3);
    ep_say("mod", outer, 10000);
    ep_say("inner", inner, 10000);
    ep_say("told", outer, 10);
}

static void epoll_nested_oneshot(int s)
{
    int inner = ep_new(), outer = ep_new();
    ep_add(inner, s, EPOLLIN | EPOLLONESHOT, 1);
    ep_add(outer, inner, EPOLLIN | EPOLLONESHOT, 2);
    far_do(FAR_SEND, 10);
    ep_say("outer", outer, 10000);
    ep_say("off", outer, 10);
    ep_say("inner", inner, 10000);
    ep_mod(outer, inner, EPOLLIN | EPOLLONESHOT, 3);
    ep_say("inner_off", outer, 10);
    recv_next(s, 4);
    ep_mod(inner, s, EPOLLIN | EPOLLONESHOT, 4);
    ep_say("armed", outer, 10000);
    ep_say("inner", inner, 10000);
}

static void epoll_nested_errors(int s)
{
    int e[7];
    for (int i = 0; i < 7; i++)
        e[i] = ep_new();
    ep_add(e[0], s, EPOLLIN, 1);
    for (int i = 1; i < 7; i++)
        say_result("in", ep_ctl(e[i], EPOLL_CTL_ADD, e[i - 1], EPOLLIN, 1));
    say_result("loop", ep_ctl(e[0], EPOLL_CTL_ADD, e[1], EPOLLIN, 1));
    say_result("loop", ep_ctl(e[0], EPOLL_CTL_ADD, e[4], EPOLLIN, 1));
    say_result("self", ep_ctl(e[2], EPOLL_CTL_ADD, e[2], EPOLLIN, 1));
    say_result("twice", ep_ctl(e[1], EPOLL_CTL_ADD, e[0], EPOLLIN, 1));
    far_do(FAR_SEND, 10);
    ep_say("far_out", e[4], 10000);
}

/* Registered in the inner set when it is nested already, with octets left over already. */
static void epoll_nested_late(int s)
{
    int inner = ep_new(), outer = ep_new();
    ep_add(outer, inner, EPOLLIN, 2);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 4);
    ep_add(inner, s, EPOLLIN, 1);
    ep_say("left", outer, 10000);
    ep_del(inner, s);
    ep_say("deleted", outer, 10);
    ep_add(inner, s, EPOLLOUT, 3);
    ep_say("out", outer, 10000);
    ep_mod(inner, s, EPOLLIN, 4);
    ep_say("in", outer, 10000);
    int third = ep_new();
    ep_add(third, outer, EPOLLIN, 5); /* nested when all is left over */
    ep_say("third", third, 10000);
    close(inner);
    ep_say("closed", third, 10);
    ep_say("closed", outer, 10);
}

static void epoll_nested_end(int s)
{
    int inner = ep_new(), outer = ep_new();
    ep_add(inner, s, EPOLLIN | EPOLLRDHUP, 1);
    ep_add(outer, inner, EPOLLIN | EPOLLET, 2);
    far_do(FAR_SEND, 10);
    ep_say("data", outer, 10000);
    recv_next(s, 10);
    ep_say("inner", inner, 10);
    far_do(FAR_CLOSE, 0);
    ep_say("end", outer, 10000);
    ep_say("inner", inner, 10000);
    close(s);
    ep_say("closed", inner, 10);
    ep_say("closed", outer, 10);
}

static void epoll_nested_thread(int s)
{
    int inner = ep_new(), outer = ep_new();
    struct waiter w;
    ep_add(inner, s, EPOLLIN, 1);
    ep_add(outer, inner, EPOLLIN, 2);
    wait_in_epoll(&w, outer, 10000);
    far_do(FAR_SEND, 10);
    wait_end("data", &w);
    recv_next(s, 4);
    wait_in_epoll(&w, outer, 10000);
    wait_end("left", &w);
    recv_next(s, 6);
    wait_in_epoll(&w, outer, 50);
    wait_end("drained", &w);
    wait_in_poll(&w, outer, POLLIN, 10000);
    far_do(FAR_SEND, 10);
    wait_end("poll", &w);
}

/* ---- several sets ---- */

static void epoll_many_sets(int s)
{
    enum { SETS = 24 };
    int ep[SETS], n = 0;
    struct epoll_event ev;
    for (int i = 0; i < SETS; i++) {
        ep[i] = ep_new();
        ep_add(ep[i], s, EPOLLIN | (i % 3 == 2 ? EPOLLET : 0), (uint64_t)i);
    }
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    for (int i = 0; i < SETS; i++)
        n += epoll_wait(ep[i], &ev, 1, 10000) == 1 && ev.data.u64 == (uint64_t)i;
    say(" data=%d", n);
    recv_next(s, 4);
    n = 0;
    for (int i = 0; i < SETS; i++)
        n += epoll_wait(ep[i], &ev, 1, 0);
    say(" left=%d", n);
    far_do(FAR_SEND, 10);
    await_octets(s, 16);
    n = 0;
    for (int i = 0; i < SETS; i++)
        n += epoll_wait(ep[i], &ev, 1, 10000);
    say(" new=%d", n);
    recv_next(s, 16);
    n = 0;
    for (int i = 0; i < SETS; i++)
        n += epoll_wait(ep[i], &ev, 1, 0);
    say(" drained=%d", n);
}

static void epoll_sets_kinds(int s)
{
    int level = ep_new(), edge = ep_new(), shot = ep_new(), out = ep_new();
    ep_add(level, s, EPOLLIN, 1);
    ep_add(edge, s, EPOLLIN | EPOLLET, 2);
    ep_add(shot, s, EPOLLIN | EPOLLONESHOT, 3);
    ep_add(out, s, EPOLLOUT | EPOLLRDHUP | EPOLLET, 4);
    ep_say("out", out, 10000);
    for (int i = 0; i < 2; i++) {
        far_do(FAR_SEND, 10);
        ep_say("edge", edge, 10000);
        ep_say("level", level, 10000);
        ep_say("shot", shot, i == 0 ? 1000 : 10);
        recv_next(s, 5);
        ep_say("edge", edge, 10);
        ep_say("level", level, 10000);
        ep_say("shot", shot, 10);
    }
    ep_mod(shot, s, EPOLLIN | EPOLLONESHOT, 5);
    ep_say("shot", shot, 10000);
    recv_next(s, 10);
    ep_say("level", level, 10);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLRDHUP, 10000);
    ep_say("out", out, 10000);
    ep_say("edge", edge, 10000);
    ep_say("level", level, 10000);
}

/* ---- several threads ---- */

/* Both wait in one set, and neither reads: both are told. */
static void epoll_threads_level(int s)
{
    int ep = ep_new();
    struct waiter a, b;
    ep_add(ep, s, EPOLLIN, 1);
    wait_in_epoll(&a, ep, 10000);
    wait_in_epoll(&b, ep, 10000);
    far_do(FAR_SEND, 10);
    wait_end("a", &a);
    wait_end("b", &b);
    recv_next(s, 4);
    wait_in_epoll(&a, ep, 10000);
    wait_in_epoll(&b, ep, 10000);
    wait_end("a_left", &a);
    wait_end("b_left", &b);
}

/* Of a one-shot registration, or one with edges, exactly one hears. */
static void one_hears(int s, uint32_t mode, int rounds)
{
    int ep = ep_new(), e = eventfd(0, EFD_CLOEXEC);
    struct waiter w[3];
    ep_add(ep, s, EPOLLIN | mode, 1);
    ep_add(ep, e, EPOLLIN, 2);
    for (int round = 0; round < rounds; round++) {
        int heard = 0, others = 0;
        uint64_t n = 1;
        for (int i = 0; i < 3; i++)
            wait_in_epoll(&w[i], ep, 10000);
        far_do(FAR_SEND, 10);
        while (!w[0].over && !w[1].over && !w[2].over)
            sleep_ms(1);
        sleep_ms(20);
        must("write", write(e, &n, sizeof(n))); /* the end for threads that were not told */
        for (int i = 0; i < 3; i++) {
            pthread_join(w[i].thread, NULL);
            heard += w[i].data == 1;
            others += w[i].data == 2;
        }
        must("read", read(e, &n, sizeof(n)));
        say(" heard=%d others=%d", heard, others);
        recv_next(s, 4);
        ep_say("after", ep, 10);
        if (mode & EPOLLONESHOT)
            ep_mod(ep, s, EPOLLIN | mode, 1);
        else
            recv_next(s, 6);
    }
    close(e);
    close(ep);
}

static void epoll_threads_oneshot(int s)
{
    one_hears(s, EPOLLONESHOT, 2);
}

static void epoll_threads_edge(int s)
{
    one_hears(s, EPOLLET, 2);
}

/* The first edges of many connections. */
static void epoll_threads_edges(int s)
{
    one_hears(s, EPOLLET, 1);
    for (int made = 1; made < 20; made++) {
        int another = sem_pair();
        far_do(FAR_USE, made);
        far_do(FAR_FRESH, 0);
        sem_rx = sem_tx = 0;
        one_hears(another, EPOLLET, 1);
        close(another);
    }
}

/* Threads with a set each. */
static void epoll_threads_sets(int s)
{
    int a = ep_new(), b = ep_new(), c = ep_new();
    struct waiter wa, wb, wc, wp;
    ep_add(a, s, EPOLLIN, 1);
    ep_add(b, s, EPOLLIN | EPOLLET, 2);
    ep_add(c, s, EPOLLIN | EPOLLONESHOT, 3);
    wait_in_epoll(&wa, a, 10000);
    wait_in_epoll(&wb, b, 10000);
    wait_in_epoll(&wc, c, 10000);
    wait_in_poll(&wp, s, POLLIN, 10000);
    far_do(FAR_SEND, 10);
    wait_end("level", &wa);
    wait_end("edge", &wb);
    wait_end("shot", &wc);
    wait_end("poll", &wp);
}

/* Another thread registers, changes, deletes while one waits. */
static void epoll_thread_add(int s)
{
    int ep = ep_new();
    struct waiter w;
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    wait_in_epoll(&w, ep, 10000);
    ep_add(ep, s, EPOLLIN, 1);
    wait_end("ready", &w);
    ep_del(ep, s);
    recv_next(s, 4);
    wait_in_epoll(&w, ep, 10000);
    ep_add(ep, s, EPOLLIN | EPOLLET, 2);
    wait_end("left", &w);
    recv_next(s, 6);
    wait_in_epoll(&w, ep, 10000);
    far_do(FAR_SEND, 10);
    wait_end("data", &w);
}

static void epoll_thread_mod(int s)
{
    int ep = ep_new();
    struct waiter w;
    ep_add(ep, s, 0, 1);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    wait_in_epoll(&w, ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLONESHOT, 2);
    wait_end("ready", &w);
    recv_next(s, 4);
    wait_in_epoll(&w, ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 3);
    wait_end("left", &w);
    wait_in_epoll(&w, ep, 10000);
    ep_mod(ep, s, EPOLLOUT, 4);
    wait_end("out", &w);
    ep_mod(ep, s, EPOLLIN | EPOLLET, 5);
    recv_next(s, 6);
    ep_say("drained", ep, 10);
    wait_in_epoll(&w, ep, 60);
    ep_mod(ep, s, EPOLLIN | EPOLLRDHUP, 6);
    wait_end("nothing", &w);
}

static void epoll_thread_del(int s)
{
    int ep = ep_new();
    struct waiter w;
    ep_add(ep, s, EPOLLIN, 1);
    wait_in_epoll(&w, ep, 80);
    ep_del(ep, s);
    far_do(FAR_SEND, 10);
    wait_end("deleted", &w);
    ep_add(ep, s, EPOLLIN, 2);
    ep_say("added", ep, 10000);
}

static void epoll_thread_close(int s)
{
    int ep = ep_new(), other = more();
    struct waiter w;
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(ep, other, EPOLLIN, 2);
    wait_in_epoll(&w, ep, 10000);
    close(s);
    far_use(0);
    far_say("far", far_do(FAR_RECV, 1));
    far_send_on(1, 10);
    wait_end("other", &w);
}

static void epoll_thread_shutdown(int s)
{
    int ep = ep_new();
    struct waiter w;
    ep_add(ep, s, EPOLLIN | EPOLLRDHUP, 1);
    wait_in_epoll(&w, ep, 10000);
    must("shutdown", shutdown(s, SHUT_RD));
    wait_end("rd", &w);
    must("shutdown", shutdown(s, SHUT_WR));
    wait_in_epoll(&w, ep, 10000);
    wait_end("both", &w);
}

static void epoll_thread_full(int s)
{
    int ep = ep_new();
    struct waiter w;
    size_t total = fill_up(s);
    ep_add(ep, s, EPOLLOUT | EPOLLET, 1);
    wait_in_epoll(&w, ep, 10000);
    struct far_result r = far_do(FAR_RECV, (int64_t)total);
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
    wait_end("room", &w);
}

static void *recv_four(void *arg)
{
    return (void *)(intptr_t)recv(*(int *)arg, (char[4]){ 0 }, 4, 0);
}

/* One thread reads a part of what came, another one waits in epoll. */
static void epoll_thread_reads(int s)
{
    int ep = ep_new();
    struct waiter reader, w;
    void *r;
    ep_add(ep, s, EPOLLIN, 1);
    for (int i = 0; i < 3; i++) {
        in_thread(&reader, recv_four, &s);
        wait_in_epoll(&w, ep, 10000);
        far_do(FAR_SEND, 10);
        pthread_join(reader.thread, &r);
        wait_end("wait", &w);
        say(" recv=%d", (int)(intptr_t)r);
        ep_say("left", ep, 10000);
        recv(s, (char[6]){ 0 }, 6, MSG_WAITALL);
        ep_say("drained", ep, 10);
    }
}

/* Octets are left over by a peek of this thread while the other one waits for more. */
static void epoll_thread_lowat(int s)
{
    int ep = ep_new();
    struct waiter w, p;
    set_lowat(s, 100);
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 60);
    wait_in_epoll(&w, ep, 10000);
    wait_in_poll(&p, s, POLLIN, 10000);
    say_result("peek", recv(s, (char[60]){ 0 }, 60, MSG_PEEK | MSG_DONTWAIT));
    far_do(FAR_SEND, 60);
    wait_end("over", &w);
    wait_end("poll", &p);
    recv_next(s, 90);
    wait_in_epoll(&w, ep, 10000);
    set_lowat(s, 30);
    wait_end("lower", &w);
    say_time("after", w.took_ms, 0, 9000);
}

/* Closing the set does not wake a thread that waits in it. */
static void epoll_thread_set_closed(int s)
{
    struct waiter w;
    int ep, ms = 80;
    /* (Closed before that time is over, in any case.) */
    for (uint64_t t = now_ms();; t = now_ms(), ms *= 2) {
        ep = ep_new();
        ep_add(ep, s, EPOLLIN, 1);
        wait_in_epoll(&w, ep, ms);
        close(ep);
        if (now_ms() < t + (uint64_t)ms)
            break;
        pthread_join(w.thread, NULL);
    }
    wait_end("closed", &w);
    say_time("after", w.took_ms, (unsigned)ms - 2, LATE_MS);
    say_result("wait", epoll_wait(ep, &(struct epoll_event){ 0 }, 1, 0));
}

/* A worker for each event, of eight connections. */
static void *work(void *arg)
{
    int *at = arg, n = 0;
    struct epoll_event ev;
    while (epoll_wait(at[8], &ev, 1, 10000) == 1 && ev.data.u64 < 8) {
        char buf[7];
        ssize_t r = recv(at[ev.data.u64], buf, sizeof(buf), MSG_DONTWAIT);
        n += r > 0 ? (int)r : 0;
        ep_ctl(at[8], EPOLL_CTL_MOD, at[ev.data.u64], EPOLLIN | EPOLLONESHOT, ev.data.u64);
    }
    return (void *)(intptr_t)n;
}

static void epoll_workers(int s)
{
    int at[9] = { s }, p[2], total = 0;
    must("pipe", pipe(p));
    at[8] = ep_new();
    for (int i = 1; i < 8; i++)
        at[i] = more();
    for (int i = 0; i < 8; i++)
        ep_add(at[8], at[i], EPOLLIN | EPOLLONESHOT, (uint64_t)i);
    struct waiter w[3];
    for (int i = 0; i < 3; i++)
        in_thread(&w[i], work, at);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 8; i++)
            far_send_on(i, 100);
    /* When no thread is told of more, all of it has been read. */
    for (int i = 0; i < 8; i++) {
        while (poll_one(at[i], POLLIN, 0) != 0)
            sleep_ms(1);
    }
    ep_add(at[8], p[0], EPOLLIN, 8);
    must("write", write(p[1], "x", 1));
    for (int i = 0; i < 3; i++) {
        void *n;
        pthread_join(w[i].thread, &n);
        total += (int)(intptr_t)n;
    }
    say(" total=%d", total);
}

const struct scenario sem_epoll_sets[] = {
    { "epoll_nested_three", epoll_nested_three },
    { "epoll_nested_edge", epoll_nested_edge },
    { "epoll_nested_inner_edge", epoll_nested_inner_edge },
    { "epoll_nested_oneshot", epoll_nested_oneshot },
    { "epoll_nested_errors", epoll_nested_errors },
    { "epoll_nested_late", epoll_nested_late },
    { "epoll_nested_end", epoll_nested_end },
    { "epoll_nested_thread", epoll_nested_thread },
    { "epoll_many_sets", epoll_many_sets },
    { "epoll_sets_kinds", epoll_sets_kinds },
    { "epoll_threads_level", epoll_threads_level },
    { "epoll_threads_oneshot", epoll_threads_oneshot },
    { "epoll_threads_edge", epoll_threads_edge },
    { "epoll_threads_edges", epoll_threads_edges },
    { "epoll_threads_sets", epoll_threads_sets },
    { "epoll_thread_add", epoll_thread_add },
    { "epoll_thread_mod", epoll_thread_mod },
    { "epoll_thread_del", epoll_thread_del },
    { "epoll_thread_close", epoll_thread_close },
    { "epoll_thread_shutdown", epoll_thread_shutdown },
    { "epoll_thread_full", epoll_thread_full },
    { "epoll_thread_reads", epoll_thread_reads },
    { "epoll_thread_lowat", epoll_thread_lowat },
    { "epoll_thread_set_closed", epoll_thread_set_closed },
    { "epoll_workers", epoll_workers },
    { NULL, NULL },
};
