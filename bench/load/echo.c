/*
 * sockwarp-bench echo: the server of crowd. One thread and one epoll set for all connections; every byte goes back to
 * where it came from. It is for small blocks of which each connection has one under way: an answer that does not fit
 * the socket's buffer at once ends the connection, which is said.
 */
#include "bench/load/load.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ECHO_EVENTS 256
#define ECHO_DESCRIPTORS 1024 /* the least that is of use; all that are allowed are taken */

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

static int add(int set, int fd)
{
    struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
}

static int accept_all(int set, int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            if (net_nodelay(fd) == 0 && add(set, fd) == 0)
                continue;
            perror("sockwarp-bench: a new connection");
            close(fd);
            return -1;
        }
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return 0;
        perror("sockwarp-bench: accept");
        return -1;
    }
}

static void give_back(int fd)
{
    static char buf[64u << 10];
    ssize_t n = recv(fd, buf, sizeof(buf), 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        ssize_t sent = send(fd, buf, (size_t)n, MSG_NOSIGNAL);
        if (sent == n)
            return;
        fprintf(stderr, "sockwarp-bench: echo: %zd of %zd octets sent: %s\n", sent, n,
                sent < 0 ? strerror(errno) : "the socket is full");
    }
    close(fd);
}

int bench_echo(const struct bench_options *o)
{
    struct sigaction sa = { .sa_handler = on_signal };
    struct epoll_event events[ECHO_EVENTS];
    sigset_t blocked, old;
    unsigned real_port;

    if (bench_raise_nofile(ECHO_DESCRIPTORS) < 0)
        return 1;
    int set = epoll_create1(EPOLL_CLOEXEC);
    int listener = net_listen(o->addr, o->port, o->congestion, &real_port);
    if (set < 0 || listener < 0 || net_nonblock(listener) < 0 || add(set, listener) < 0) {
        perror("sockwarp-bench: echo");
        return 1;
    }
    /* The signals come only while it waits. */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    net_say_listening(real_port);
    while (!stop) {
        int n = epoll_pwait(set, events, ECHO_EVENTS, -1, &old);
        if (n < 0 && errno != EINTR) {
            perror("sockwarp-bench: epoll_pwait");
            return 1;
        }
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener)
                give_back(events[i].data.fd);
            else if (accept_all(set, listener) < 0)
                return 1;
        }
    }
    return 0;
}
