/* Sockets and clocks of sockwarp-bench. */
#include "bench/bench.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Calls use for each address of host until it gives a socket. What failed last goes to stderr. */
static int each_address(const char *host, const char *port, int flags, const char *verb,
                        int (*use)(int fd, const struct addrinfo *ai))
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };
    struct addrinfo *list;
    int fd = -1, err = 0;

    int r = getaddrinfo(host, port, &hints, &list);
    if (r != 0) {
        fprintf(stderr, "sockwarp-bench: %s port %s: %s\n", host ? host : "*", port, gai_strerror(r));
        errno = EINVAL;
        return -1;
    }
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
        if (fd >= 0 && use(fd, ai) == 0)
            break;
        err = errno;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0) {
        fprintf(stderr, "sockwarp-bench: %s %s port %s: %s\n", verb, host ? host : "*", port, strerror(err));
        errno = err;
    }
    return fd;
}

static int use_listen(int fd, const struct addrinfo *ai)
{
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return -1;
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0)
        return -1;
    return listen(fd, SOMAXCONN);
}

static int use_connect(int fd, const struct addrinfo *ai)
{
    return connect(fd, ai->ai_addr, ai->ai_addrlen);
}

int net_listen(const char *addr, const char *port, unsigned *real_port)
{
    struct sockaddr_storage ss = { 0 };
    socklen_t len = sizeof(ss);

    int fd = each_address(addr, port, AI_PASSIVE, "listen on", use_listen);
    if (fd < 0)
        return -1;
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0) {
        perror("sockwarp-bench: getsockname");
        close(fd);
        return -1;
    }
    *real_port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                                : ((struct sockaddr_in *)&ss)->sin_port);
    return fd;
}

int net_connect(const char *host, const char *port)
{
    return each_address(host, port, 0, "connect to", use_connect);
}

int net_send_all(int fd, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int net_recv_all(int fd, void *buf, size_t len)
{
    uint8_t *p = buf;
    while (len > 0) {
        ssize_t n = recv(fd, p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int net_nodelay(int fd)
{
    int on = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void net_congestion(int fd, char *buf, size_t cap)
{
    socklen_t len = (socklen_t)cap - 1;
    memset(buf, 0, cap);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, buf, &len) < 0 || buf[0] == '\0')
        snprintf(buf, cap, "?");
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t bench_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t bench_thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
