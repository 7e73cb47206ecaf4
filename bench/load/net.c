/* Sockets and clocks of sockwarp-bench. */
#include "bench/load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int set_congestion(int fd, const char *name)
{
    return name ? setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) : 0;
}

/* Calls use for each address until it gives a socket. -1 with errno: the last one's. */
static int first_of(const struct addrinfo *list, const char *congestion, int (*use)(int fd, const struct addrinfo *ai))
{
    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
        if (fd < 0)
            continue;
        if (set_congestion(fd, congestion) == 0 && use(fd, ai) == 0)
            return fd;
        int err = errno;
        close(fd);
        errno = err;
    }
    return -1;
}

/* The same for each address of host. What failed last goes to stderr. */
static int each_address(const char *host, const char *port, int flags, const char *congestion, const char *verb,
                        int (*use)(int fd, const struct addrinfo *ai))
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };
    struct addrinfo *list;

    int r = getaddrinfo(host, port, &hints, &list);
    if (r != 0) {
        fprintf(stderr, "sockwarp-bench: %s port %s: %s\n", host ? host : "*", port, gai_strerror(r));
        errno = EINVAL;
        return -1;
    }
    int fd = first_of(list, congestion, use);
    int err = errno;
    freeaddrinfo(list);
    if (fd < 0)
        fprintf(stderr, "sockwarp-bench: %s %s port %s: %s\n", verb, host ? host : "*", port, strerror(err));
    errno = err;
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

int net_listen(const char *addr, const char *port, const char *congestion, unsigned *real_port)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at = { .in6 = { 0 } };
    socklen_t len = sizeof(at);

    int fd = each_address(addr, port, AI_PASSIVE, congestion, "listen on", use_listen);
    if (fd < 0)
        return -1;
    if (getsockname(fd, &at.sa, &len) < 0) {
        perror("sockwarp-bench: getsockname");
        close(fd);
        return -1;
    }
    *real_port = ntohs(at.sa.sa_family == AF_INET6 ? at.in6.sin6_port : at.in.sin_port);
    return fd;
}

void net_say_listening(unsigned port)
{
    printf("listening on port %u\n", port);
    fflush(stdout);
}

int net_connect_to(const struct addrinfo *list, const char *congestion)
{
    return first_of(list, congestion, use_connect);
}

int net_connect(const char *host, const char *port, const char *congestion)
{
    return each_address(host, port, 0, congestion, "connect to", use_connect);
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

int net_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
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

double bench_cpu_s(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

int bench_raise_nofile(unsigned want)
{
    struct rlimit rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) < 0) {
        perror("sockwarp-bench: getrlimit");
        return -1;
    }
    rl.rlim_cur = rl.rlim_max;
    if (rl.rlim_max < want || setrlimit(RLIMIT_NOFILE, &rl) < 0) {
        fprintf(stderr, "sockwarp-bench: %u descriptors are needed, the limit is %llu (ulimit -Hn)\n", want,
                (unsigned long long)rl.rlim_max);
        return -1;
    }
    return 0;
}
