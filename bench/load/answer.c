/*
 * sockwarp-bench answer, the server of connect (connect.c has the picture): it accepts in the ways that servers do.
 *
 * It closes first: ports in TIME_WAIT are then its own, and the client does not run out of them.
 */
#include "bench/load/load.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define EVENTS 64

static volatile sig_atomic_t stop;
static int listener = -1;

/* Also ends an accept() that is about to begin: on a listening socket that is shut down it fails with EINVAL. */
static void on_signal(int sig)
{
    int keep = errno;
    (void)sig;
    stop = 1;
    shutdown(listener, SHUT_RD);
    errno = keep;
}

/* The next connection; -1: there is none just now; -2: it is over, said on stderr if that is a mistake. */
static int next(void)
{
    while (!stop) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            return fd;
        if (errno == EAGAIN)
            return -1;
        if (errno == EINVAL) /* another process of ours has shut it down */
            break;
        if (errno != EINTR && errno != ECONNABORTED) {
            perror("sockwarp-bench: accept");
            break;
        }
    }
    return -2;
}

/* A client that goes without a word is its own affair. */
static void serve_one(int fd)
{
    char octet;
    if (net_recv_all(fd, &octet, 1) == 0)
        net_send_all(fd, &octet, 1);
    close(fd);
}

static int in_turn(void)
{
    for (int fd; (fd = next()) >= 0;)
        serve_one(fd);
    return stop ? 0 : 1;
}

/* Children that all accept. They end when the listener, which the parent's signal shuts down, accepts no more. */
static int by_children(void)
{
    pid_t children[CHILDREN];
    int result = 0;
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(in_turn() && errno != EINVAL);
        if (children[i] < 0) {
            perror("sockwarp-bench: fork");
            result = 1;
        }
    }
    if (result != 0)
        shutdown(listener, SHUT_RD);
    for (int i = 0; i < CHILDREN; i++) {
        int status = 0;
        while (children[i] > 0 && waitpid(children[i], &status, 0) < 0 && errno == EINTR)
            continue;
        if (status != 0)
            result = 1;
    }
    return result;
}

static void *run(void *arg)
{
    serve_one((int)(intptr_t)arg);
    return NULL;
}

static int by_threads(void)
{
    for (int fd; (fd = next()) >= 0;) {
        pthread_t thread;
        int r = pthread_create(&thread, NULL, run, (void *)(intptr_t)fd);
        if (r != 0) {
            fprintf(stderr, "sockwarp-bench: pthread_create: %s\n", strerror(r));
            return 1;
        }
        pthread_detach(thread);
    }
    return stop ? 0 : 1;
}

/* One thread and a set, as nginx and redis: level-triggered, nothing blocks. */
static int by_set(void)
{
    struct epoll_event events[EVENTS], e = { .events = EPOLLIN, .data.fd = listener };
    int set = epoll_create1(EPOLL_CLOEXEC), fd;
    if (set < 0 || net_nonblock(listener) < 0 || epoll_ctl(set, EPOLL_CTL_ADD, listener, &e) < 0) {
        perror("sockwarp-bench: epoll");
        return 1;
    }
    while (!stop) {
        int n = epoll_wait(set, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                serve_one(events[i].data.fd);
                continue;
            }
            while ((fd = next()) >= 0) {
                e.data.fd = fd;
                if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) < 0)
                    close(fd);
            }
        }
    }
    close(set);
    return 0;
}

static const struct way {
    const char *name;
    int (*serve)(void);
} ways[] = { { "turn", in_turn }, { "prefork", by_children }, { "threads", by_threads }, { "epoll", by_set } };

static const struct way *find_way(const char *name)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(name, ways[i].name) == 0)
            return &ways[i];
    return NULL;
}

bool bench_answers_by(const char *way)
{
    return find_way(way) != NULL;
}

int bench_answer(const struct bench_options *o)
{
    struct sigaction sa = { .sa_handler = on_signal };
    unsigned real_port;

    listener = net_listen(o->addr, o->port, o->congestion, &real_port);
    if (listener < 0)
        return 1;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    net_say_listening(real_port);
    int result = find_way(o->by)->serve();
    close(listener);
    return result;
}
