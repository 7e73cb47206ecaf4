/*
 * sockwarp-bench connect: how many connections a second. One connection is
 *
 *   connect  ------------------->  accept
 *   1 byte  ------------------->
 *            <-------------------  the same byte
 *            <-------------------  close
 *   close
 *
 * Plain blocking calls and nothing else, a thread for each stream.
 */
#include "bench/load/load.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct caller {
    const struct bench_options *o;
    const struct addrinfo *ai;
    pthread_barrier_t *start;
    pthread_t thread;
    struct histogram times;
    char congestion[32];
    uint64_t begin_ns, end_ns;
    const char *failed; /* what failed, or NULL */
    int err;
};

/* One connection from its beginning to its end; NULL, or what failed. */
static const char *call_once(struct caller *c)
{
    char octet = 'x', more;
    const char *failed = NULL;

    int fd = net_connect_to(c->ai, c->o->congestion);
    if (fd < 0)
        return "connect";
    if (c->congestion[0] == '\0')
        net_congestion(fd, c->congestion, sizeof(c->congestion));
    if (net_send_all(fd, &octet, 1) < 0)
        failed = "sending";
    else if (net_recv_all(fd, &octet, 1) < 0)
        failed = "waiting for the answer";
    else if (recv(fd, &more, 1, 0) != 0)
        failed = "waiting for the end";
    int err = errno;
    close(fd);
    errno = err;
    return failed;
}

static void *run(void *arg)
{
    struct caller *c = arg;
    uint64_t end, now;

    pthread_barrier_wait(c->start);
    now = c->begin_ns = bench_now_ns();
    end = now + (uint64_t)c->o->time_ms * 1000000u;
    while (now < end && !c->failed) {
        uint64_t began = now;
        c->failed = call_once(c);
        if (c->failed)
            c->err = errno;
        now = bench_now_ns();
        if (!c->failed)
            histogram_add(&c->times, now - began);
    }
    c->end_ns = now;
    return NULL;
}

static int sum_up(const struct bench_options *o, const struct caller *callers, double cpu_s)
{
    static struct histogram all;
    uint64_t begin = UINT64_MAX, end = 0;

    for (unsigned i = 0; i < o->streams; i++) {
        const struct caller *c = &callers[i];
        if (c->failed) {
            fprintf(stderr, "sockwarp-bench: stream %u: %s: %s\n", i + 1, c->failed, strerror(c->err));
            return 1;
        }
        begin = c->begin_ns < begin ? c->begin_ns : begin;
        end = c->end_ns > end ? c->end_ns : end;
        histogram_merge(&all, &c->times);
    }
    double seconds = (double)(end - begin) / 1e9;
    if (o->json) {
        printf("{\"mode\":\"connect\",\"streams\":%u,\"seconds\":%.6f,\"connections\":%llu,\"connections_per_s\":%.1f,"
               "\"client_cpu_s\":%.6f,\"congestion\":\"%s\",",
               o->streams, seconds, (unsigned long long)all.count, (double)all.count / seconds, cpu_s,
               callers[0].congestion);
        histogram_print_json(&all, "connection_us");
        printf("}\n");
    } else {
        printf("connect: %u stream%s, %.3f s, congestion control %s\n  %.0f connections/s, us: p50 %.1f, p99 %.1f\n",
               o->streams, o->streams == 1 ? "" : "s", seconds, callers[0].congestion, (double)all.count / seconds,
               (double)histogram_quantile(&all, 0.5) / 1e3, (double)histogram_quantile(&all, 0.99) / 1e3);
    }
    return 0;
}

int bench_connect(const struct bench_options *o)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *ai;
    pthread_barrier_t start;

    /* Looked up once: what is measured is the connections. */
    int r = getaddrinfo(o->host, o->port, &hints, &ai);
    if (r != 0) {
        fprintf(stderr, "sockwarp-bench: %s port %s: %s\n", o->host, o->port, gai_strerror(r));
        return 1;
    }
    struct caller *callers = calloc(o->streams, sizeof(*callers));
    if (!callers || pthread_barrier_init(&start, NULL, o->streams) != 0) {
        fprintf(stderr, "sockwarp-bench: out of memory\n");
        free(callers);
        freeaddrinfo(ai);
        return 1;
    }
    double cpu = bench_cpu_s();
    for (unsigned i = 0; i < o->streams; i++) {
        callers[i] = (struct caller){ .o = o, .ai = ai, .start = &start };
        r = pthread_create(&callers[i].thread, NULL, run, &callers[i]);
        if (r != 0) {
            fprintf(stderr, "sockwarp-bench: pthread_create: %s\n", strerror(r));
            exit(1); /* the others wait at the barrier for ever */
        }
    }
    for (unsigned i = 0; i < o->streams; i++)
        pthread_join(callers[i].thread, NULL);
    int status = sum_up(o, callers, bench_cpu_s() - cpu);
    pthread_barrier_destroy(&start);
    free(callers);
    freeaddrinfo(ai);
    return status;
}
