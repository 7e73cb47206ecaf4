/*
 * A program that allows itself no more than reading, writing and waiting once it is connected, as servers do that keep
 * what parses the network apart (sshd's unprivileged child is one). Run by filtered.test.
 *
 *   filtered connect PORT OCTETS | filtered accept PORT OCTETS     seccomp(2) by prctl
 *   filtered ... blocking                                          the socket blocks
 *   filtered ... syscall                                           seccomp(2) by syscall(2)
 *
 * Sends so many octets, and receives as many, both at once if it does not block; the other end echoes. Any other system
 * call ends it by SIGSYS.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void enter(bool by_syscall)
{
    struct sock_filter code[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        ALLOW(read),
        ALLOW(write),
        ALLOW(ppoll),
#ifdef SYS_poll
        ALLOW(poll),
#endif
        ALLOW(close),
        ALLOW(shutdown),
        ALLOW(futex),
        ALLOW(getpid),
        ALLOW(gettid),
        ALLOW(clock_gettime),
        ALLOW(brk),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(madvise),
        ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail("PR_SET_NO_NEW_PRIVS");
    if (by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0
                   : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        fail("seccomp");
}

static int connected(bool accepts, uint16_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0)
        fail("socket");
    if (!accepts) {
        if (connect(s, (struct sockaddr *)&to, sizeof(to)) < 0)
            fail("connect");
        return s;
    }
    int on = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(s, (struct sockaddr *)&to, sizeof(to)) < 0 || listen(s, 1) < 0)
        fail("listen");
    int conn = accept(s, NULL, NULL);
    if (conn < 0)
        fail("accept");
    close(s);
    return conn;
}

static uint8_t octet(size_t at)
{
    return (uint8_t)((at ^ (at >> 8) ^ (at >> 16)) * 31 + 7);
}

static uint8_t buf[100000];

static size_t put(int s, size_t at, size_t most)
{
    size_t n = most < sizeof(buf) ? most : sizeof(buf);
    for (size_t i = 0; i < n; i++)
        buf[i] = octet(at + i);
    ssize_t r = write(s, buf, n);
    if (r < 0 && errno != EAGAIN)
        fail("write");
    return r < 0 ? 0 : (size_t)r;
}

static size_t get(int s, size_t at, size_t most)
{
    ssize_t r = read(s, buf, most < sizeof(buf) ? most : sizeof(buf));
    if (r == 0 || (r < 0 && errno != EAGAIN)) {
        fprintf(stderr, "read: %zd after %zu octets: %s\n", r, at, strerror(r < 0 ? errno : 0));
        exit(2);
    }
    for (ssize_t i = 0; i < r; i++)
        if (buf[i] != octet(at + (size_t)i)) {
            fprintf(stderr, "a wrong octet at %zu\n", at + (size_t)i);
            exit(2);
        }
    return r < 0 ? 0 : (size_t)r;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 1;
    bool blocking = argc > 4 && strcmp(argv[4], "blocking") == 0;
    size_t len = (size_t)atol(argv[3]), sent = 0, got = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGPIPE, SIG_IGN);
    int s = connected(strcmp(argv[1], "accept") == 0, (uint16_t)atoi(argv[2]));
    /* Something goes over it before: there and back, so that the startup is over, and more that is under way. */
    for (size_t until = 100; until <= 200; until += 100) {
        for (; sent < until && sent < len; sent++)
            if (write(s, (uint8_t[]){ octet(sent) }, 1) != 1)
                fail("write");
        while (until == 100 && got < sent)
            got += get(s, got, sent - got);
    }
    if (!blocking)
        fcntl(s, F_SETFL, O_NONBLOCK);
    enter(argc > 4 && strcmp(argv[4], "syscall") == 0);
    while (got < len) {
        if (blocking) {
            size_t most = len - sent < 30000 ? len - sent : 30000;
            sent += most > 0 ? put(s, sent, most) : 0;
            while (got < sent)
                got += get(s, got, sent - got);
            continue;
        }
        struct pollfd p = { .fd = s, .events = (short)(POLLIN | (sent < len ? POLLOUT : 0)) };
        if (poll(&p, 1, 200000) <= 0) {
            fprintf(stderr, "nothing within 200 s: %zu sent, %zu received\n", sent, got);
            return 2;
        }
        if (p.revents & POLLOUT)
            sent += put(s, sent, len - sent);
        if (p.revents & POLLIN)
            got += get(s, got, len - got);
    }
    close(s);
    printf("right\n");
    return 0;
}
