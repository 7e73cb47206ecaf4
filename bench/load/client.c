/* sockwarp-bench stream and pingpong: a thread and a connection for each stream, one set of results. */
#include "bench/load/load.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct stream {
    const struct bench_options *o;
    pthread_barrier_t *start;
    pthread_t thread;
    struct bench_request req;
    struct blocks blocks;
    struct bench_report report;
    struct histogram *rtt; /* PINGPONG only */
    char congestion[32];
    int fd;
    uint64_t bytes, begin_ns, end_ns;
    const char *failed; /* what failed, or NULL */
    int err;
};

static int failed(struct stream *s, const char *what)
{
    s->failed = what;
    s->err = errno;
    return -1;
}

/* Connection, request, and the answer that the server is ready. */
static int prepare(struct stream *s)
{
    uint8_t buf[BENCH_REQUEST_LEN];
    char ready;

    if (blocks_init(&s->blocks, &s->req) < 0)
        return failed(s, "buffers");
    s->fd = net_connect(s->o->host, s->o->port, s->o->congestion);
    if (s->fd < 0)
        return failed(s, "connect");
    if (s->req.nodelay && net_nodelay(s->fd) < 0)
        return failed(s, "TCP_NODELAY");
    net_congestion(s->fd, s->congestion, sizeof(s->congestion));
    bench_request_encode(&s->req, buf);
    if (net_send_all(s->fd, buf, sizeof(buf)) < 0)
        return failed(s, "sending the request");
    if (net_recv_all(s->fd, &ready, 1) < 0)
        return failed(s, "waiting for the server");
    if (ready != BENCH_READY) {
        errno = EPROTO;
        return failed(s, "the other end is not a sockwarp-bench server");
    }
    return 0;
}

static int take_report(struct stream *s, const uint8_t buf[BENCH_REPORT_LEN])
{
    if (bench_report_decode(buf, &s->report) == 0)
        return 0;
    errno = EPROTO;
    return failed(s, "the server's report");
}

static int recv_report(struct stream *s)
{
    uint8_t buf[BENCH_REPORT_LEN];
    if (net_recv_all(s->fd, buf, sizeof(buf)) < 0)
        return failed(s, "receiving the report");
    return take_report(s, buf);
}

static int run_stream(struct stream *s)
{
    uint64_t end = s->begin_ns + (uint64_t)s->o->time_ms * 1000000u;

    while (bench_now_ns() < end)
        if (blocks_send(&s->blocks, s->fd, false) < 0)
            return failed(s, "sending");
    if (blocks_send(&s->blocks, s->fd, true) < 0)
        return failed(s, "sending");
    if (recv_report(s) < 0)
        return -1;
    s->bytes = s->report.bytes;
    if (s->report.bytes != s->blocks.off) {
        errno = EPROTO;
        return failed(s, "the server received another number of octets than were sent");
    }
    return 0;
}

static int run_reverse(struct stream *s)
{
    uint8_t buf[BENCH_REPORT_LEN];
    const char go = BENCH_GO;

    if (net_send_all(s->fd, &go, 1) < 0)
        return failed(s, "sending");
    if (blocks_recv_all(&s->blocks, s->fd, buf, sizeof(buf)) < 0)
        return failed(s, "receiving");
    if (take_report(s, buf) < 0)
        return -1;
    s->bytes = s->blocks.off;
    if (s->report.bytes != s->blocks.off) {
        errno = EPROTO;
        return failed(s, "another number of octets came than the server sent");
    }
    return 0;
}

static int run_pingpong(struct stream *s)
{
    uint64_t now = s->begin_ns, end = s->begin_ns + (uint64_t)s->o->time_ms * 1000000u;
    struct blocks back = s->blocks; /* position in what comes back; the buffers are shared */
    bool last = false;

    while (!last) {
        last = now >= end;
        uint64_t sent_ns = now;
        if (blocks_send(&s->blocks, s->fd, last) < 0)
            return failed(s, "sending");
        int more = blocks_recv_one(&back, s->fd);
        if (more < 0)
            return failed(s, "receiving");
        if (more == (int)last) {
            errno = EPROTO;
            return failed(s, "an answer that is not the question");
        }
        now = bench_now_ns();
        histogram_add(s->rtt, now - sent_ns);
    }
    s->blocks.bad += back.bad;
    s->bytes = back.off;
    return recv_report(s);
}

static void *run(void *arg)
{
    struct stream *s = arg;
    int r = prepare(s);

    /* All meet here, also those that failed: else the others would wait for ever. */
    pthread_barrier_wait(s->start);
    s->begin_ns = bench_now_ns();
    if (r == 0 && s->req.mode == BENCH_STREAM)
        run_stream(s);
    else if (r == 0 && s->req.mode == BENCH_REVERSE)
        run_reverse(s);
    else if (r == 0)
        run_pingpong(s);
    s->end_ns = bench_now_ns();
    if (s->fd >= 0)
        close(s->fd);
    return NULL;
}

static const char *mode_name(enum bench_mode mode)
{
    return mode == BENCH_PINGPONG ? "pingpong" : mode == BENCH_REVERSE ? "reverse" : "stream";
}

struct result {
    double seconds, client_cpu_s, server_cpu_s;
    uint64_t bytes, bad;
    struct histogram rtt;
    char congestion[32], server_congestion[BENCH_CONGESTION_LEN];
};

static void print_json(const struct bench_options *o, const struct result *r)
{
    printf("{\"mode\":\"%s\",\"len\":%u,\"streams\":%u,\"seconds\":%.6f,\"bytes\":%llu,"
           "\"bytes_per_s\":%.0f,\"blocks_per_s\":%.1f,\"client_cpu_s\":%.6f,\"server_cpu_s\":%.6f,"
           "\"congestion\":\"%s\",\"server_congestion\":\"%s\",\"nodelay\":%s,\"verify\":%s,\"bad_bytes\":%llu",
           mode_name(o->req.mode), o->req.len, o->streams, r->seconds, (unsigned long long)r->bytes,
           (double)r->bytes / r->seconds, (double)r->bytes / r->seconds / o->req.len, r->client_cpu_s, r->server_cpu_s,
           r->congestion, r->server_congestion, o->req.nodelay ? "true" : "false", o->req.verify ? "true" : "false",
           (unsigned long long)r->bad);
    if (o->req.mode == BENCH_PINGPONG) {
        putchar(',');
        histogram_print_json(&r->rtt, "rtt_us");
    }
    printf("}\n");
}

static void print_text(const struct bench_options *o, const struct result *r)
{
    printf("%s: %u octets a block, %u stream%s, %.3f s, congestion control %s%s\n", mode_name(o->req.mode), o->req.len,
           o->streams, o->streams == 1 ? "" : "s", r->seconds, r->congestion, o->req.nodelay ? ", TCP_NODELAY" : "");
    if (o->req.mode == BENCH_PINGPONG)
        printf("  round trip us: p50 %.1f, p99 %.1f, p99.9 %.1f, min %.1f, max %.1f; %.0f a second\n",
               (double)histogram_quantile(&r->rtt, 0.5) / 1e3, (double)histogram_quantile(&r->rtt, 0.99) / 1e3,
               (double)histogram_quantile(&r->rtt, 0.999) / 1e3, (double)r->rtt.min / 1e3, (double)r->rtt.max / 1e3,
               (double)r->rtt.count / r->seconds);
    else
        printf("  %.3f GB/s, %.0f blocks/s, %llu octets\n", (double)r->bytes / r->seconds / 1e9,
               (double)r->bytes / r->seconds / o->req.len, (unsigned long long)r->bytes);
    printf("  CPU s: client %.3f, server %.3f\n", r->client_cpu_s, r->server_cpu_s);
    if (o->req.verify)
        printf("  verified: %llu octets differ\n", (unsigned long long)r->bad);
}

/* Adds up the streams. -1 if one failed, which is said. */
static int sum_up(const struct stream *streams, unsigned n, struct result *r)
{
    uint64_t begin = UINT64_MAX, end = 0;
    int status = 0;

    for (unsigned i = 0; i < n; i++) {
        const struct stream *s = &streams[i];
        if (s->failed) {
            fprintf(stderr, "sockwarp-bench: stream %u: %s: %s\n", i + 1, s->failed, strerror(s->err));
            status = -1;
            continue;
        }
        begin = s->begin_ns < begin ? s->begin_ns : begin;
        end = s->end_ns > end ? s->end_ns : end;
        r->bytes += s->bytes;
        r->bad += s->report.bad + s->blocks.bad;
        r->server_cpu_s += (double)s->report.cpu_ns / 1e9;
        if (s->rtt)
            histogram_merge(&r->rtt, s->rtt);
    }
    r->seconds = (double)(end - begin) / 1e9;
    memcpy(r->congestion, streams[0].congestion, sizeof(r->congestion));
    memcpy(r->server_congestion, streams[0].report.congestion, sizeof(r->server_congestion));
    return status;
}

int bench_client(const struct bench_options *o)
{
    pthread_barrier_t start;
    int status = 1;
    unsigned begun = 0;

    struct stream *streams = calloc(o->streams, sizeof(*streams));
    struct result *r = calloc(1, sizeof(*r));
    if (!streams || !r || pthread_barrier_init(&start, NULL, o->streams) != 0) {
        fprintf(stderr, "sockwarp-bench: out of memory\n");
        free(streams);
        free(r);
        return 1;
    }
    for (unsigned i = 0; i < o->streams; i++) {
        streams[i].o = o;
        streams[i].start = &start;
        streams[i].req = o->req;
        streams[i].req.time_ms = o->time_ms;
        streams[i].req.seed = i + 1;
        streams[i].fd = -1;
        if (o->req.mode == BENCH_PINGPONG) {
            streams[i].rtt = calloc(1, sizeof(*streams[i].rtt));
            if (!streams[i].rtt) {
                fprintf(stderr, "sockwarp-bench: out of memory\n");
                goto out;
            }
        }
    }
    double cpu = bench_cpu_s();
    for (; begun < o->streams; begun++) {
        int e = pthread_create(&streams[begun].thread, NULL, run, &streams[begun]);
        if (e != 0) {
            /* The threads that run wait for this one; there is nothing to measure any more. */
            fprintf(stderr, "sockwarp-bench: pthread_create: %s\n", strerror(e));
            exit(1);
        }
    }
    for (unsigned i = 0; i < begun; i++)
        pthread_join(streams[i].thread, NULL);
    r->client_cpu_s = bench_cpu_s() - cpu;

    if (sum_up(streams, o->streams, r) == 0) {
        if (o->json)
            print_json(o, r);
        else
            print_text(o, r);
        status = r->bad ? 1 : 0;
        if (r->bad)
            fprintf(stderr, "sockwarp-bench: %llu octets differ from what was sent\n", (unsigned long long)r->bad);
    }
out:
    for (unsigned i = 0; i < o->streams; i++) {
        blocks_fini(&streams[i].blocks);
        free(streams[i].rtt);
    }
    pthread_barrier_destroy(&start);
    free(streams);
    free(r);
    return status;
}
