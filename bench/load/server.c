/* sockwarp-bench server: a thread for each connection, until SIGINT or SIGTERM. */
#include "bench/load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int stop_pipe[2];

static void on_signal(int sig)
{
    int keep = errno;
    (void)sig;
    if (write(stop_pipe[1], "", 1) < 0) {
        /* the pipe is full: a stop is already asked for */
    }
    errno = keep;
}

static int serve_stream(struct blocks *b, int fd)
{
    return blocks_recv_all(b, fd, NULL, 0);
}

static int serve_reverse(struct blocks *b, int fd)
{
    char go;

    if (net_recv_all(fd, &go, 1) < 0)
        return -1;
    uint64_t end = bench_now_ns() + (uint64_t)b->req->time_ms * 1000000u;
    while (bench_now_ns() < end)
        if (blocks_send(b, fd, false) < 0)
            return -1;
    return blocks_send(b, fd, true);
}

static int serve_pingpong(struct blocks *b, int fd)
{
    for (;;) {
        int more = blocks_recv_one(b, fd);
        if (more < 0)
            return -1;
        if (net_send_all(fd, b->in, b->req->len) < 0)
            return -1;
        if (!more)
            return 0;
    }
}

/* One connection, from the request to the report. */
static int serve(int fd)
{
    uint8_t buf[BENCH_REQUEST_LEN], report_buf[BENCH_REPORT_LEN];
    const char ready = BENCH_READY;
    struct bench_request req;
    struct blocks b;

    if (net_recv_all(fd, buf, sizeof(buf)) < 0)
        return -1;
    if (bench_request_decode(buf, &req) < 0) {
        errno = EPROTO;
        return -1;
    }
    if (req.nodelay && net_nodelay(fd) < 0)
        return -1;

    int r = blocks_init(&b, &req);
    if (r == 0)
        r = net_send_all(fd, &ready, 1);
    uint64_t cpu_ns = bench_thread_cpu_ns();
    if (r == 0)
        r = req.mode == BENCH_STREAM    ? serve_stream(&b, fd)
            : req.mode == BENCH_REVERSE ? serve_reverse(&b, fd)
                                        : serve_pingpong(&b, fd);
    if (r == 0) {
        struct bench_report report = {
            .bytes = b.off,
            .bad = b.bad,
            .cpu_ns = bench_thread_cpu_ns() - cpu_ns,
        };
        net_congestion(fd, report.congestion, sizeof(report.congestion));
        bench_report_encode(&report, report_buf);
        r = net_send_all(fd, report_buf, sizeof(report_buf));
    }
    int err = errno;
    blocks_fini(&b);
    errno = err;
    return r;
}

static void *serve_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;

    if (serve(fd) < 0)
        fprintf(stderr, "sockwarp-bench: a client's run failed: %s\n", strerror(errno));
    close(fd);
    return NULL;
}

/* Threads start with both signals blocked: only main() is to be interrupted. */
static int start_thread(int fd)
{
    sigset_t set, old;
    pthread_attr_t attr;
    pthread_t thread;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attr, serve_thread, (void *)(intptr_t)fd);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r;
}

static int accept_one(int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED)
            return 0;
        perror("sockwarp-bench: accept");
        return -1;
    }
    int r = start_thread(fd);
    if (r != 0) {
        fprintf(stderr, "sockwarp-bench: pthread_create: %s\n", strerror(r));
        close(fd);
    }
    return 0;
}

int bench_server(const struct bench_options *o)
{
    struct sigaction sa = { .sa_handler = on_signal };
    unsigned real_port;

    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        perror("sockwarp-bench: pipe2");
        return 1;
    }
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);

    int fd = net_listen(o->addr, o->port, o->congestion, &real_port);
    if (fd < 0)
        return 1;
    /* A connection may be gone again between poll() and accept(). */
    net_nonblock(fd);
    net_say_listening(real_port);

    struct pollfd fds[2] = { { .fd = fd, .events = POLLIN }, { .fd = stop_pipe[0], .events = POLLIN } };
    int status = 0;
    for (;;) {
        if (poll(fds, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            perror("sockwarp-bench: poll");
            status = 1;
            break;
        }
        if (fds[1].revents)
            break;
        if (fds[0].revents && accept_one(fd) < 0) {
            status = 1;
            break;
        }
    }
    close(fd);
    return status;
}
