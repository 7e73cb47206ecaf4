/*
 * A server that gives its connections to children, for forks.test and the virtual machine's verbs.test.
 *
 *   forks serve ADDRESS PORT PLAN          prints "port N"; accepts as many connections as PLAN has letters
 *   forks connect ADDRESS PORT PLAN SIZE   makes them, and sends SIZE octets and more on each, which have to come back
 *   forks echo                             what a child of "x" becomes
 *
 * Letters of PLAN: what becomes of that connection in the server.
 *
 *   c  a child echoes, the parent closes at once
 *   w  the same, but the parent keeps its descriptor until all children have ended
 *   x  a child makes it its standard input and output and becomes another program, which echoes
 *   i  the same, as descriptor 3
 *   s  as x, but the program is a static one: busybox' cat
 *   f  as c, but the child puts itself under a seccomp filter before
 *   k  a child echoes KILLED_AT octets and is killed
 *   p  the parent's own: it echoes the first block before it accepts the next one, and the rest beside its children
 *   u  the parent's, not used before all are accepted
 *
 * Blocks go to and fro on all connections in turn. Both exit 0 when everything was right.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 50000u
#define KILLED_AT (2 * BLOCK)
#define CONNS_MAX 32u

static const char *self;

static void die(const char *what)
{
    fprintf(stderr, "forks[%d]: %s: %s\n", (int)getpid(), what, strerror(errno));
    exit(1);
}

static void wrong(const char *what, size_t conn)
{
    fprintf(stderr, "forks[%d]: connection %zu: %s\n", (int)getpid(), conn, what);
    exit(1);
}

static struct sockaddr_in address(const char *ip, const char *port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    if (inet_pton(AF_INET, ip, &in.sin_addr) != 1)
        die(ip);
    return in;
}

/* ---- the server ---- */

static bool put(int fd, const uint8_t *buf, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t r = write(fd, buf + done, len - done);
        if (r < 0)
            return false;
        done += (size_t)r;
    }
    return true;
}

/* At most `most` octets, or until the end. Returns how many. */
static size_t echo(int in, int out, size_t most)
{
    static uint8_t buf[65536];
    size_t all = 0;
    while (all < most) {
        ssize_t r = read(in, buf, most - all < sizeof(buf) ? most - all : sizeof(buf));
        if (r < 0 || (r > 0 && !put(out, buf, (size_t)r)))
            die("echo");
        if (r == 0)
            break;
        all += (size_t)r;
    }
    return all;
}

/*
 * Until the client has said something, be it a Hello: a call on the connection that would tell of it makes this its
 * process.
 */
static void await_octets(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    while (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_bytes_received == 0)
        sched_yield();
}

/* A filter that allows everything, and of which only the kernel knows. */
static void filter_all(void)
{
    struct sock_filter allow = { .code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW };
    struct sock_fprog prog = { .len = 1, .filter = &allow };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        die("seccomp");
}

static _Noreturn void child(char kind, int fd)
{
    char *const argv[] = { (char *)(uintptr_t) "forks", (char *)(uintptr_t) "echo",
                           (char *)(uintptr_t)(kind == 'x' ? "0" : "3"), NULL };
    if (kind == 'k') {
        echo(fd, fd, KILLED_AT);
        raise(SIGKILL);
    }
    if (kind == 'x' || kind == 's' || kind == 'f')
        await_octets(fd);
    if (kind == 'f')
        filter_all();
    if ((kind == 'x' || kind == 's') && (dup2(fd, 0) < 0 || dup2(fd, 1) < 0))
        die("dup2");
    if (kind == 'i' && fd != 3 && dup2(fd, 3) < 0)
        die("dup2");
    if ((kind == 'x' || kind == 's' || (kind == 'i' && fd != 3)) && close(fd) < 0)
        die("close");
    if (kind == 'x' || kind == 'i') {
        execvp(self, argv);
        die("exec");
    }
    if (kind == 's') {
        execlp("busybox", "busybox", "cat", (char *)NULL);
        die("exec");
    }
    echo(fd, fd, SIZE_MAX);
    exit(0);
}

/* The parent's own connections, until all have ended. */
static void echo_all(struct pollfd *own, nfds_t n)
{
    for (nfds_t left = n; left > 0;) {
        if (poll(own, n, 20000) <= 0)
            die("poll");
        for (nfds_t i = 0; i < n; i++) {
            static uint8_t buf[65536];
            if (own[i].fd < 0 || own[i].revents == 0)
                continue;
            ssize_t r = read(own[i].fd, buf, sizeof(buf));
            if (r < 0 || (r > 0 && !put(own[i].fd, buf, (size_t)r)))
                die("the parent's");
            if (r > 0)
                continue;
            close(own[i].fd);
            own[i].fd = -1;
            left--;
        }
    }
}

static int reap(pid_t pid, char kind)
{
    int status = -1;
    if (waitpid(pid, &status, 0) != pid)
        die("waitpid");
    bool good = kind == 'k' ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    if (!good)
        fprintf(stderr, "forks: the child of '%c' has ended with %#x\n", kind, (unsigned)status);
    return good ? 0 : 1;
}

static int serve(const char *ip, const char *port, const char *plan)
{
    struct sockaddr_in in = address(ip, port);
    socklen_t len = sizeof(in);
    struct pollfd own[CONNS_MAX];
    pid_t pid[CONNS_MAX];
    int kept[CONNS_MAX], on = 1, bad = 0;
    nfds_t own_n = 0;
    size_t n = strlen(plan);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (n > CONNS_MAX || bind(l, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(l, 32) < 0 ||
        getsockname(l, (struct sockaddr *)&in, &len) < 0)
        die("listen");
    printf("port %d\n", ntohs(in.sin_port));
    fflush(stdout);
    for (size_t i = 0; i < n; i++) {
        int fd = accept(l, NULL, NULL);
        if (fd < 0)
            die("accept");
        bool mine = plan[i] == 'p' || plan[i] == 'u';
        pid[i] = mine ? 0 : fork();
        if (pid[i] < 0)
            die("fork");
        if (!mine && pid[i] == 0) {
            close(l);
            child(plan[i], fd);
        }
        kept[i] = plan[i] == 'w' ? fd : -1;
        if (mine)
            own[own_n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
        else if (kept[i] < 0)
            close(fd);
        if (plan[i] == 'p' && echo(fd, fd, BLOCK) != BLOCK)
            wrong("the first block", i);
    }
    echo_all(own, own_n);
    for (size_t i = 0; i < n; i++)
        if (pid[i] > 0)
            bad += reap(pid[i], plan[i]);
    for (size_t i = 0; i < n; i++)
        if (kept[i] >= 0)
            close(kept[i]);
    return bad;
}

/* ---- the client ---- */

static uint8_t octet(size_t conn, size_t at)
{
    return (uint8_t)((at ^ at >> 8) * 7 + conn * 31);
}

/* A block there and back. False: the connection has ended, or was reset. */
static bool exchange(int fd, size_t conn, size_t at)
{
    uint8_t buf[BLOCK];
    for (size_t i = 0; i < BLOCK; i++)
        buf[i] = octet(conn, at + i);
    for (size_t done = 0; done < BLOCK;) {
        ssize_t r = send(fd, buf + done, BLOCK - done, MSG_NOSIGNAL);
        if (r < 0)
            return false;
        done += (size_t)r;
    }
    for (size_t done = 0; done < BLOCK;) {
        ssize_t r = recv(fd, buf, BLOCK - done, 0);
        if (r <= 0)
            return false;
        for (ssize_t i = 0; i < r; i++)
            if (buf[i] != octet(conn, at + done + (size_t)i))
                wrong("a wrong octet", conn);
        done += (size_t)r;
    }
    return true;
}

static int converse(const char *ip, const char *port, const char *plan, size_t size)
{
    struct sockaddr_in in = address(ip, port);
    int fd[CONNS_MAX];
    size_t n = strlen(plan);
    uint8_t o;
    for (size_t i = 0; i < n; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd[i], (struct sockaddr *)&in, sizeof(in)) < 0)
            die("connect");
        /* (The server goes on to the next one when it has this.) */
        if (plan[i] == 'p' && !exchange(fd[i], i, 0))
            wrong("ended in its first block", i);
    }
    for (size_t at = 0; at < size; at += BLOCK)
        for (size_t i = 0; i < n; i++) {
            if ((plan[i] == 'p' && at == 0) || fd[i] < 0)
                continue;
            bool good = exchange(fd[i], i, at);
            if (good != !(plan[i] == 'k' && at >= KILLED_AT))
                wrong(good ? "goes on though the child was to be killed" : "has ended", i);
            if (!good) {
                close(fd[i]);
                fd[i] = -1;
            }
        }
    for (size_t i = 0; i < n; i++) {
        if (fd[i] < 0)
            continue;
        if (shutdown(fd[i], SHUT_WR) < 0)
            die("shutdown");
        /* (A child's end is the connection's when the parent has it no more.) */
        if (plan[i] != 'w' && recv(fd[i], &o, 1, 0) != 0)
            wrong("no end after the last octet", i);
    }
    return 0;
}

int main(int argc, char **argv)
{
    self = argv[0];
    alarm(300);
    if (argc == 3 && strcmp(argv[1], "echo") == 0)
        return echo(atoi(argv[2]), argv[2][0] == '0' ? 1 : atoi(argv[2]), SIZE_MAX) == 0;
    if (argc == 5 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], argv[3], argv[4]);
    if (argc == 6 && strcmp(argv[1], "connect") == 0)
        return converse(argv[2], argv[3], argv[4], strtoul(argv[5], NULL, 10));
    fprintf(stderr, "usage: forks serve ADDRESS PORT PLAN | forks connect ADDRESS PORT PLAN SIZE\n");
    return 2;
}
