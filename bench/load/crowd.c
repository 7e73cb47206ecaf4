/*
 * sockwarp-bench crowd: many idle connections and some busy ones to an echo server, in one thread with one epoll set.
 *
 * With --steps it stops at each of these points, and goes on when a line comes on standard input, so that whoever
 * started it can look at the memory of both ends:
 *
 *   ready    nothing is connected
 *   open     all connections are there; the last one has had an answer, so the server has accepted them all
 *
 * Then each of the active connections sends a block and waits for it, again and again. The idle ones never carry an
 * byte.
 */
#include "bench/load/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CROWD_EVENTS 256
#define CROWD_DESCRIPTORS 64 /* besides the connections */

struct member {
    int fd;
    uint32_t got; /* bytes of the block that have come back */
    uint64_t sent_ns;
};

struct crowd {
    const struct bench_options *o;
    struct member *all; /* the idle ones, then the active ones */
    unsigned count;     /* that are connected */
    int set;
    char *block;
    struct histogram rtt;
    uint64_t open_ns, active_ns;
    char congestion[32];
};

static int fail(const char *what)
{
    fprintf(stderr, "sockwarp-bench: crowd: %s: %s\n", what, strerror(errno));
    return -1;
}

static int step(const struct crowd *c, const char *where)
{
    int got;

    if (!c->o->steps)
        return 0;
    printf("%s\n", where);
    fflush(stdout);
    while ((got = getchar()) != '\n')
        if (got == EOF) {
            errno = ECANCELED;
            return fail("no line on standard input");
        }
    return 0;
}

static int open_all(struct crowd *c)
{
    unsigned want = c->o->idle + c->o->active;
    uint64_t begin = bench_now_ns();

    for (; c->count < want; c->count++) {
        struct member *m = &c->all[c->count];
        m->fd = net_connect(c->o->host, c->o->port, c->o->congestion);
        if (m->fd < 0) {
            fprintf(stderr, "sockwarp-bench: crowd: %u of %u are connected\n", c->count, want);
            return -1;
        }
        struct epoll_event e = { .events = EPOLLIN, .data.u32 = c->count };
        if (net_nodelay(m->fd) < 0 || epoll_ctl(c->set, EPOLL_CTL_ADD, m->fd, &e) < 0)
            return fail("setting up a connection");
    }
    /* Connections are accepted in the order in which they come. */
    int last = c->all[want - 1].fd;
    if (net_send_all(last, c->block, c->o->req.len) < 0 || net_recv_all(last, c->block, c->o->req.len) < 0)
        return fail("the first answer");
    c->open_ns = bench_now_ns() - begin;
    net_congestion(last, c->congestion, sizeof(c->congestion));
    return 0;
}

static int ask(struct crowd *c, struct member *m, uint64_t now)
{
    m->sent_ns = now;
    m->got = 0;
    return net_send_all(m->fd, c->block, c->o->req.len) < 0 ? fail("sending") : 0;
}

/* 1: the block is back; 0: not yet; -1 */
static int take(struct crowd *c, struct member *m)
{
    if (m < c->all + c->o->idle) {
        errno = EPROTO;
        return fail("an idle connection has something to read");
    }
    ssize_t n = recv(m->fd, c->block, c->o->req.len - m->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        errno = ECONNRESET;
    if (n <= 0)
        return fail("receiving");
    m->got += (uint32_t)n;
    return m->got == c->o->req.len;
}

static int be_busy(struct crowd *c)
{
    struct epoll_event events[CROWD_EVENTS];
    uint64_t begin = bench_now_ns(), now = begin, end = begin + (uint64_t)c->o->time_ms * 1000000u;
    unsigned under_way = 0;

    for (; under_way < c->o->active; under_way++)
        if (ask(c, &c->all[c->o->idle + under_way], bench_now_ns()) < 0)
            return -1;
    while (under_way > 0) {
        int n = epoll_wait(c->set, events, CROWD_EVENTS, -1);
        if (n < 0 && errno != EINTR)
            return fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct member *m = &c->all[events[i].data.u32];
            int whole = take(c, m);
            if (whole < 0)
                return -1;
            if (!whole)
                continue;
            now = bench_now_ns();
            histogram_add(&c->rtt, now - m->sent_ns);
            if (now >= end)
                under_way--;
            else if (ask(c, m, now) < 0)
                return -1;
        }
    }
    c->active_ns = now - begin;
    return 0;
}

static void print(const struct crowd *c, double cpu_s)
{
    double open_s = (double)c->open_ns / 1e9, seconds = (double)c->active_ns / 1e9;

    if (!c->o->json) {
        printf("crowd: %u idle and %u active connections, opened in %.3f s; congestion control %s\n"
               "  %.0f blocks of %u octets a second there and back, us: p50 %.1f, p99 %.1f, p99.9 %.1f\n",
               c->o->idle, c->o->active, open_s, c->congestion, (double)c->rtt.count / seconds, c->o->req.len,
               (double)histogram_quantile(&c->rtt, 0.5) / 1e3, (double)histogram_quantile(&c->rtt, 0.99) / 1e3,
               (double)histogram_quantile(&c->rtt, 0.999) / 1e3);
        return;
    }
    printf("{\"mode\":\"crowd\",\"idle\":%u,\"active\":%u,\"len\":%u,\"open_s\":%.6f,\"opened_per_s\":%.1f,"
           "\"seconds\":%.6f,\"blocks_per_s\":%.1f,\"client_cpu_s\":%.6f,\"congestion\":\"%s\",",
           c->o->idle, c->o->active, c->o->req.len, open_s, (c->o->idle + c->o->active) / open_s, seconds,
           (double)c->rtt.count / seconds, cpu_s, c->congestion);
    histogram_print_json(&c->rtt, "rtt_us");
    printf("}\n");
}

static int run(struct crowd *c)
{
    unsigned want = c->o->idle + c->o->active;
    double cpu = bench_cpu_s();

    if (bench_raise_nofile(want + CROWD_DESCRIPTORS) < 0)
        return -1;
    c->set = epoll_create1(EPOLL_CLOEXEC);
    c->all = calloc(want, sizeof(*c->all));
    c->block = calloc(1, c->o->req.len);
    if (c->set < 0 || !c->all || !c->block)
        return fail("the beginning");
    if (step(c, "ready") < 0 || open_all(c) < 0 || step(c, "open") < 0 || be_busy(c) < 0)
        return -1;
    print(c, bench_cpu_s() - cpu);
    return 0;
}

int bench_crowd(const struct bench_options *o)
{
    struct crowd *c = calloc(1, sizeof(*c));
    if (!c) {
        fprintf(stderr, "sockwarp-bench: out of memory\n");
        return 1;
    }
    c->o = o;
    c->set = -1;
    int r = run(c);
    for (unsigned i = 0; i < c->count; i++)
        close(c->all[i].fd);
    if (c->set >= 0)
        close(c->set);
    free(c->all);
    free(c->block);
    free(c);
    return r < 0;
}
