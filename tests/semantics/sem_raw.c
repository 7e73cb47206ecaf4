/*
 * Other ways to the same calls: syscall(2), and the variants that a fortified program calls.
 */
#ifdef __OPTIMIZE__
#define _FORTIFY_SOURCE 2 /* the other files are compiled without */
#endif
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void raw_octets(int s)
{
    uint8_t buf[20];
    struct iovec iov[2] = { { buf, 3 }, { buf + 3, 7 } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    struct mmsghdr mm = { .msg_hdr = m };
    fill(buf, 10, sem_tx);
    say_result("write", syscall(SYS_write, s, buf, 10L));
    fill(buf, 10, sem_tx += 10);
    say_result("writev", syscall(SYS_writev, s, iov, 2L));
    fill(buf, 10, sem_tx += 10);
    say_result("sendto", syscall(SYS_sendto, s, buf, 10L, 0L, NULL, 0L));
    fill(buf, 10, sem_tx += 10);
    say_result("sendmsg", syscall(SYS_sendmsg, s, &m, 0L));
    fill(buf, 10, sem_tx += 10);
    say_result("sendmmsg", syscall(SYS_sendmmsg, s, &mm, 1L, 0L));
    fill(buf, 10, sem_tx += 10);
    say_result("send", send(s, buf, 10, 0));
    far_say("far", far_do(FAR_RECV, 60));
    far_do(FAR_SEND, 60);
    await_octets(s, 60);
    say_result("read", syscall(SYS_read, s, buf, 10L));
    check(buf, 10);
    say_result("readv", syscall(SYS_readv, s, iov, 2L));
    check(buf, 10);
    say_result("peek", syscall(SYS_recvfrom, s, buf, 10L, (long)MSG_PEEK, NULL, NULL));
    say_result("recvfrom", syscall(SYS_recvfrom, s, buf, 10L, 0L, NULL, NULL));
    check(buf, 10);
    say_result("recvmsg", syscall(SYS_recvmsg, s, &m, 0L));
    check(buf, 10);
    say_result("recvmmsg", syscall(SYS_recvmmsg, s, &mm, 1L, 0L, NULL));
    check(buf, 10);
    say_result("recv", recv(s, buf, 10, 0));
    check(buf, 10);
    say_result("empty", syscall(SYS_recvfrom, s, buf, 10L, (long)MSG_DONTWAIT, NULL, NULL));
    say_result("bad_fd", syscall(SYS_read, 9999L, buf, 10L));
}

static void raw_positioned(int s)
{
    uint8_t buf[20];
    struct iovec iov = { buf, 10 };
    fill(buf, 10, 0);
    say_result("pwritev2", syscall(SYS_pwritev2, s, &iov, 1L, -1L, -1L, 0L));
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("preadv2", syscall(SYS_preadv2, s, &iov, 1L, -1L, -1L, 0L));
    check(buf, 10);
    say_result("pread64", syscall(SYS_pread64, s, buf, 10L, 0L));
}

static void raw_descriptors(int s)
{
    int d = (int)must("dup", syscall(SYS_dup, s));
    say(" dup3=%ld", syscall(SYS_dup3, s, 70L, (long)O_CLOEXEC));
    say(" cloexec=%ld", syscall(SYS_fcntl, 70L, (long)F_GETFD));
    say_result("close", syscall(SYS_close, s));
    send_next(d, 10);
    say_result("close_range", syscall(SYS_close_range, (long)d, (long)d, 0L));
    send_next(70, 10);
    far_say("far", far_do(FAR_RECV, 20));
    far_begin(FAR_RECV, 1, 0);
    say_result("shutdown", syscall(SYS_shutdown, 70L, (long)SHUT_WR));
    far_say("far", far_end());
    int v = -1;
    socklen_t len = sizeof(v);
    say_result("getsockopt", syscall(SYS_getsockopt, 70L, (long)SOL_SOCKET, (long)SO_TYPE, &v, &len));
    say(" type=%d", v);
    far_do(FAR_CLOSE, 0);
    struct pollfd p = { .fd = 70, .events = POLLIN };
    say_result("ppoll", syscall(SYS_ppoll, &p, 1L, NULL, NULL, 8L));
    say(" %s", poll_names(p.revents));
}

static void raw_waits(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN };
    struct epoll_event ev = { .events = EPOLLIN };
    int ep = (int)must("epoll_create1", syscall(SYS_epoll_create1, (long)EPOLL_CLOEXEC));
    say_result("add", syscall(SYS_epoll_ctl, (long)ep, (long)EPOLL_CTL_ADD, (long)s, &ev));
    struct timespec none = { 0 };
    say_result("ppoll", syscall(SYS_ppoll, &p, 1L, &none, NULL, 8L));
    far_do(FAR_SEND, 100);
    await_octets(s, 100);
    recv_next(s, 40);
    say_result("ppoll", syscall(SYS_ppoll, &p, 1L, NULL, NULL, 8L));
    say_result("epoll", syscall(SYS_epoll_pwait, (long)ep, &ev, 1L, 1000L, NULL, 8L));
    recv_next(s, 60);
    say_result("epoll", syscall(SYS_epoll_pwait, (long)ep, &ev, 1L, 20L, NULL, 8L));
}

static void raw_connection(int s)
{
    (void)s;
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_addr.s_addr = sem_address_of(sem_far_port),
                              .sin_port = htons(sem_far_port) };
    int c = (int)must("socket", syscall(SYS_socket, (long)AF_INET, (long)SOCK_STREAM, 0L));
    far_begin(FAR_ACCEPT, 0, 0);
    say_result("connect", syscall(SYS_connect, c, &in, (long)sizeof(in)));
    must("accept", far_end().r);
    send_next(c, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_begin(FAR_CONNECT, sem_port, 0);
    c = (int)must("accept", syscall(SYS_accept4, sem_listener, NULL, NULL, (long)SOCK_CLOEXEC));
    must("connect", far_end().r);
    send_next(c, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* With lengths the compiler cannot know, these are the checking variants. */
static fd_set *only(int fd)
{
    static fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return &set;
}

/* Where the kernel says EFAULT, and where it writes nothing and says nothing. (libc would look for itself.) */
static void raw_pointers(int s)
{
    static void *volatile nowhere = (void *)16;
    char *none[] = { NULL }, *bad[] = { nowhere, NULL };
    long page = sysconf(_SC_PAGESIZE);
    void *constant = mmap(NULL, (size_t)page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must("mmap", constant == MAP_FAILED ? -1 : 0);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT };
    int ep = (int)must("epoll_create1", epoll_create1(0));
    must("epoll_ctl", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    struct pollfd p = { .fd = s, .events = POLLIN };
    struct {
        void *set;
        size_t len;
    } mask = { nowhere, 8 };
#ifdef SYS_select
    say_result("select_time", syscall(SYS_select, (long)s + 1, only(s), NULL, NULL, nowhere));
    say_result("select_const", syscall(SYS_select, (long)s + 1, only(s), NULL, NULL, constant));
    say_result("select_set", syscall(SYS_select, (long)s + 1, NULL, nowhere, NULL, constant));
    say_result("select_none", syscall(SYS_select, 0L, NULL, NULL, NULL, nowhere));
#endif
    say_result("pselect_time", syscall(SYS_pselect6, (long)s + 1, only(s), NULL, NULL, nowhere, NULL));
    say_result("pselect_const", syscall(SYS_pselect6, (long)s + 1, only(s), NULL, NULL, constant, NULL));
    say_result("pselect_six", syscall(SYS_pselect6, (long)s + 1, only(s), NULL, NULL, constant, nowhere));
    say_result("pselect_mask", syscall(SYS_pselect6, (long)s + 1, only(s), NULL, NULL, constant, &mask));
    say_result("ppoll_time", syscall(SYS_ppoll, &p, 1L, nowhere, NULL, 8L));
    say_result("ppoll_const", syscall(SYS_ppoll, &p, 1L, constant, NULL, 8L));
    say_result("ppoll_mask", syscall(SYS_ppoll, &p, 1L, constant, nowhere, 8L));
    say_result("pwait2_time", syscall(SYS_epoll_pwait2, ep, &ev, 1L, nowhere, NULL, 8L));
    say_result("pwait2_const", syscall(SYS_epoll_pwait2, ep, &ev, 1L, constant, NULL, 8L));
    struct mmsghdr mm = { .msg_hdr = { .msg_iov = nowhere } };
    say_result("recvmmsg_const", syscall(SYS_recvmmsg, s, &mm, 1L, (long)MSG_DONTWAIT, constant));
    say_result("exec_path", execve(nowhere, none, none));
    say_result("exec_args", execve("/bin/true", nowhere, none));
    say_result("exec_env", execve("/bin/true", none, nowhere));
    say_result("exec_string", execve("/bin/true", none, bad));
    say(" recv=%zu", recv_next(s, 10));
}

static void fortified(int s)
{
    uint8_t buf[20];
    volatile size_t ten = 10;
    far_do(FAR_SEND, 40);
    await_octets(s, 40);
    say_result("read", read(s, buf, ten));
    check(buf, 10);
    say_result("peek", recv(s, buf, ten, MSG_PEEK));
    say_result("recv", recv(s, buf, ten, 0));
    check(buf, 10);
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    say_result("recvfrom", recvfrom(s, buf, ten, 0, (struct sockaddr *)&from, &len));
    check(buf, 10);
    struct pollfd p[2] = { { .fd = s, .events = POLLIN }, { .fd = s, .events = POLLOUT } };
    volatile nfds_t two = 2;
    say_result("poll", poll(p, two, 0));
    struct timespec ts = { 0 };
    say_result("ppoll", ppoll(p, two, &ts, NULL));
    say(" %s,%s", poll_names(p[0].revents), poll_names(p[1].revents));
    say_result("read", read(s, buf, ten));
    check(buf, 10);
    say_result("nonblock", (set_nonblock(s, true), read(s, buf, ten)));
}

/* And they end a program that would write beyond its buffer. */
static void fortified_ends(int s)
{
#ifndef __OPTIMIZE__
    say(" not fortified without optimization");
    (void)s;
#else
    far_do(FAR_SEND, 40);
    await_octets(s, 40);
    for (int i = 0; i < 3; i++) {
        pid_t pid = (pid_t)must("fork", fork());
        if (pid == 0) {
            uint8_t buf[20];
            volatile size_t more = sizeof(buf) + 1;
            signal(SIGABRT, SIG_DFL);
            ssize_t r = i == 0   ? read(s, buf, more)
                        : i == 1 ? recv(s, buf, more, 0)
                                 : recvfrom(s, buf, more, 0, NULL, NULL);
            _exit(r > 0 ? 1 : 2);
        }
        int status = 0;
        must("waitpid", waitpid(pid, &status, 0));
        say(" signal=%d", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
    }
    say(" rest=%zu", recv_next(s, 40));
#endif
}

const struct scenario sem_raw[] = {
    { "raw_octets", raw_octets },         { "raw_positioned", raw_positioned }, { "raw_descriptors", raw_descriptors },
    { "raw_waits", raw_waits },           { "raw_connection", raw_connection }, { "fortified", fortified },
    { "fortified_ends", fortified_ends }, { "raw_pointers", raw_pointers },     { NULL, NULL },
};
