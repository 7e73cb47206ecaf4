/*
 * One end of a conversation, which checks every octet. faults.test fails the system calls below it.
 *
 *   scene server WAY     says its port on stdout, serves ROUNDS connections and ends
 *   scene client WAY PORT
 *
 * WAY: plain, fork, exec, pass, epoll: how the server comes to the connection (epoll: both ends, without blocking).
 * In each round the client sends FORTH octets, some by small writes, and ends its direction; the server answers with BACK octets and
 * closes. Status: 0, all was right; 3, a call failed, or the stream ended early, as TCP's may; 4, a wrong octet or more octets than were
 * sent; 5, a descriptor is left over. What happened is one line on stderr. No memory is allocated: the calls are the library's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 2
#define FORTH 150000u
#define BACK 100000u
#define SMALL_UNTIL 2000u /* so far by small writes */
#define ENDED 3
#define WRONG 4
#define LEFT 5

static uint8_t buf[65536];
static bool polls;
static int set = -1; /* epoll */
static char **arguments;

static void quit(int status, const char *what)
{
    dprintf(2, "scene %s %s: %s: %s\n", arguments[1], arguments[2], what, status == ENDED ? strerror(errno) : "status");
    _exit(status);
}

static uint8_t octet(bool forth, uint32_t at)
{
    return (uint8_t)((at * 2654435761u >> 13) ^ (forth ? 0x5a : 0));
}

/* A call that waits may be interrupted; a TCP program has to expect it. */
static bool again(int fd, uint32_t events)
{
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN || !polls)
        return false;
    struct epoll_event e = { .events = events, .data.fd = fd };
    if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &e) < 0 && (errno != ENOENT || epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) < 0))
        return false;
    return epoll_wait(set, &e, 1, -1) >= 0 || errno == EINTR;
}

static void put(int fd, bool forth, uint32_t len)
{
    for (uint32_t at = 0; at < len;) {
        uint32_t n = at < SMALL_UNTIL ? 40 : sizeof(buf);
        n = n < len - at ? n : len - at;
        for (uint32_t i = 0; i < n; i++)
            buf[i] = octet(forth, at + i);
        ssize_t r = send(fd, buf, n, MSG_NOSIGNAL);
        if (r < 0 && again(fd, EPOLLOUT))
            continue;
        if (r < 0)
            quit(ENDED, "send");
        at += (uint32_t)r;
    }
}

static void take(int fd, bool forth, uint32_t len)
{
    for (uint32_t at = 0;;) {
        ssize_t r = recv(fd, buf, sizeof(buf), 0);
        if (r < 0 && again(fd, EPOLLIN))
            continue;
        if (r < 0)
            quit(ENDED, "recv");
        if (r == 0 && at < len) {
            errno = 0;
            quit(ENDED, "an early end");
        }
        if (r == 0)
            return;
        for (ssize_t i = 0; i < r; i++, at++)
            if (at >= len || buf[i] != octet(forth, at))
                quit(WRONG, "a wrong octet");
    }
}

static void begin(int fd)
{
    if (polls && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        quit(ENDED, "fcntl");
}

/* The lowest descriptor that is free. */
static int lowest(void)
{
    int fd = -1;
    for (int i = 0; fd < 0 && i < 2; i++) /* (the call may be the one that fails) */
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        quit(ENDED, "open");
    close(fd);
    return fd;
}

static void serve(int fd)
{
    begin(fd);
    take(fd, true, FORTH);
    put(fd, false, BACK);
    if (close(fd) < 0 && errno != EINTR)
        quit(ENDED, "close");
}

static void ended_well(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            quit(ENDED, "waitpid");
    if (!WIFEXITED(status))
        quit(6, "a child was killed");
    if (WEXITSTATUS(status) != 0)
        _exit(WEXITSTATUS(status));
}

static pid_t forked(void)
{
    pid_t pid = fork();
    if (pid < 0)
        quit(ENDED, "fork");
    return pid;
}

static void pass(int through, int fd)
{
    char space[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec v = { "x", 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    *h = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
    memcpy(CMSG_DATA(h), &fd, sizeof(fd));
    while (sendmsg(through, &m, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            quit(ENDED, "sendmsg");
}

static int passed(int through)
{
    char space[CMSG_SPACE(sizeof(int))], x;
    struct iovec v = { &x, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
    ssize_t n;
    while ((n = recvmsg(through, &m, 0)) < 0)
        if (errno != EINTR)
            quit(ENDED, "recvmsg");
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    int fd;
    if (n == 0 || h == NULL) {
        errno = 0;
        quit(ENDED, "no descriptor");
    }
    memcpy(&fd, CMSG_DATA(h), sizeof(fd));
    return fd;
}

static void serve_passed(int through[2])
{
    close(through[1]);
    for (int i = 0; i < ROUNDS; i++)
        serve(passed(through[0]));
    _exit(0);
}

static void serve_by_program(int l, int fd)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", fd);
    close(l);
    execl("/proc/self/exe", arguments[0], "served", arguments[2], number, NULL);
    quit(ENDED, "execl");
}

static int accepted(int l)
{
    int fd;
    while ((fd = accept(l, NULL, NULL)) < 0)
        if (!again(l, EPOLLIN))
            quit(ENDED, "accept");
    return fd;
}

static void server(const char *way)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    int through[2] = { -1, -1 };
    pid_t other = 0;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    if (l < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 16) < 0 ||
        getsockname(l, (struct sockaddr *)&a, &len) < 0)
        quit(ENDED, "listen");
    begin(l);
    if (strcmp(way, "pass") == 0) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, through) < 0)
            quit(ENDED, "socketpair");
        other = forked();
        if (other == 0)
            serve_passed(through);
        close(through[0]);
    }
    if (dprintf(1, "%d\n", ntohs(a.sin_port)) < 0)
        quit(ENDED, "write");
    int free_fd = lowest();
    for (int i = 0; i < ROUNDS; i++) {
        int fd = accepted(l);
        if (strcmp(way, "fork") == 0 || strcmp(way, "exec") == 0) {
            pid_t pid = forked();
            if (pid == 0 && strcmp(way, "exec") == 0)
                serve_by_program(l, fd);
            if (pid == 0) {
                close(l);
                serve(fd);
                _exit(0);
            }
            close(fd);
            ended_well(pid);
        } else if (other != 0) {
            pass(through[1], fd);
            close(fd);
        } else {
            serve(fd);
        }
    }
    if (other != 0)
        ended_well(other);
    if (lowest() > free_fd)
        quit(LEFT, "a descriptor is left");
}

static void client(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port) };
    int free_fd = lowest();
    for (int i = 0; i < ROUNDS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0)
            quit(ENDED, "socket");
        begin(fd);
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno != EINPROGRESS)
            quit(ENDED, "connect");
        put(fd, true, FORTH);
        if (shutdown(fd, SHUT_WR) < 0)
            quit(ENDED, "shutdown");
        take(fd, false, BACK);
        if (close(fd) < 0 && errno != EINTR)
            quit(ENDED, "close");
    }
    if (lowest() > free_fd)
        quit(LEFT, "a descriptor is left");
}

int main(int argc, char **argv)
{
    arguments = argv;
    if (argc < 3)
        return 2;
    polls = strcmp(argv[2], "epoll") == 0;
    if (polls && (set = epoll_create1(EPOLL_CLOEXEC)) < 0)
        quit(ENDED, "epoll_create1");
    if (strcmp(argv[1], "server") == 0)
        server(argv[2]);
    else if (strcmp(argv[1], "served") == 0 && argc > 3)
        serve(atoi(argv[3]));
    else if (argc > 3)
        client(atoi(argv[3]));
    return 0;
}
