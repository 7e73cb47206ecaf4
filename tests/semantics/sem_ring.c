/*
 * io_urings of the program's own, by syscall() as libuv makes them: for files, for epoll_ctl, and for sockets.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem_uring.h"
#include "tests/semantics/sem_wait.h"

static void ring_ctl(const char *what, struct ring *r, int ep, int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = { .events = events, .data.u64 = data };
    say_res(what, ring_do(r, (struct io_uring_sqe){ .opcode = IORING_OP_EPOLL_CTL,
                                                    .fd = ep,
                                                    .addr = (uintptr_t)&ev,
                                                    .len = (unsigned)op,
                                                    .off = (uint64_t)fd }));
}

/* A registration by a ring is as one by epoll_ctl. */
static void ring_epoll(int s)
{
    struct ring r = ring_new(NO_SQARRAY);
    int ep = ep_new(), bell = eventfd(1, 0);
    ring_ctl("add", &r, ep, EPOLL_CTL_ADD, s, EPOLLIN, 1);
    ring_ctl("add", &r, ep, EPOLL_CTL_ADD, bell, EPOLLIN, 2);
    ring_ctl("twice", &r, ep, EPOLL_CTL_ADD, s, EPOLLIN, 3);
    ep_say("bell", ep, 2000);
    ring_ctl("del", &r, ep, EPOLL_CTL_DEL, bell, 0, 0);
    ring_ctl("del", &r, ep, EPOLL_CTL_DEL, bell, 0, 0);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 2000);
    recv_next(s, 4);
    ep_say("left", ep, 2000);
    ring_ctl("mod", &r, ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLET, 4);
    ep_say("mod", ep, 2000);
    ep_say("edge", ep, 10);
    recv_next(s, 6);
    ring_ctl("mod", &r, ep, EPOLL_CTL_MOD, s, EPOLLOUT, 5);
    ep_say("out", ep, 2000);
    ring_ctl("bad", &r, ep, EPOLL_CTL_MOD, 9999, EPOLLIN, 5);
    ring_ctl("del", &r, ep, EPOLL_CTL_DEL, s, 0, 0);
    ep_say("none", ep, 10);
}

/*
 * Another connection, made when the program waits for it: a listener beside a ring is found from then on
 * (preload/calls/ring.h).
 */
static int awaited(void)
{
    struct pollfd p = { .fd = sem_listener, .events = POLLIN };
    if (sem_accepting)
        must("poll", poll(&p, 1, 0));
    return more();
}

static void read_file(const char *what, struct ring *r, int flags)
{
    char buf[4] = "";
    int file = (int)must("open", open("/proc/self/exe", O_RDONLY));
    struct io_uring_sqe sqe = request(IORING_OP_READ, file, buf, sizeof(buf));
    if (flags & IOSQE_FIXED_FILE) {
        must("io_uring_register", syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_FILES, &file, 1));
        sqe.fd = 0;
    }
    sqe.flags = (uint8_t)flags;
    say_res(what, ring_do(r, sqe));
    say(memcmp(buf, "\177ELF", 4) == 0 ? " right" : " WRONG");
    say_res("close", ring_do(r, request(IORING_OP_CLOSE, file, NULL, 0)));
    say_result("closed", close(file));
}

/* Files: other connections are upgraded as ever. */
static void ring_used(int s, unsigned flags)
{
    struct ring r = ring_new(flags);
    char buf[4] = "";
    int pipes[2];
    must("pipe", pipe(pipes));
    read_file("read", &r, 0);
    read_file("fixed", &r, IOSQE_FIXED_FILE);
    say_res("write", ring_do(&r, request(IORING_OP_WRITE, pipes[1], buf, 4)));
    say_res("nop", ring_do(&r, request(IORING_OP_NOP, -1, NULL, 0)));
    int other = awaited();
    one_octet(other);
    far_use(0);
    one_octet(s);
    ring_free(&r);
}

static void ring_files(int s)
{
    ring_used(s, 0);
    ring_used(s, NO_SQARRAY); /* (it has the number of the one before) */
    ring_used(s, IORING_SETUP_SQE128);
}

/* A ring that was made and never used, and is gone. */
static void ring_gone(int s)
{
    struct ring r = ring_new(0);
    ring_free(&r);
    int other = awaited();
    one_octet(other);
    far_use(0);
    one_octet(s);
}

/* A child's requests to its parent's ring are its own. */
static void ring_forked(int s)
{
    struct ring r = ring_new(0);
    read_file("before", &r, 0);
    char buf[4];
    int status, file = (int)must("open", open("/proc/self/exe", O_RDONLY));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0)
        _exit(ring_do(&r, request(IORING_OP_READ, file, buf, sizeof(buf))));
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d", WEXITSTATUS(status));
    read_file("after", &r, 0);
    one_octet(s);
}

/* The end of a connection: what was written before arrives. */
static void ring_ends(int s)
{
    struct ring r = ring_new(0);
    send_next(s, 100000);
    say_res("shutdown", ring_do(&r, request(IORING_OP_SHUTDOWN, s, NULL, SHUT_WR)));
    far_say("far", far_do(FAR_RECV, 100001));
    far_do(FAR_SEND, 10);
    recv_next(s, 10);
    say_res("close", ring_do(&r, request(IORING_OP_CLOSE, s, NULL, 0)));
    say_result("closed", close(s));
}

/* Accepted and used by the ring: nothing of ours is in what the program reads. */
static void ring_accept(int s)
{
    (void)s;
    struct ring r = ring_new(0);
    uint8_t buf[10];
    struct io_uring_sqe sqe = request(IORING_OP_ACCEPT, sem_listener, NULL, 0);
    sqe.user_data = 1;
    ring_submit(&r, &sqe);
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = ring_next(&r, 1);
    say(" accepted=%d", c >= 0);
    must("connect", far_end().r);
    far_begin(FAR_SEND, 10, 20);
    say_res("recv", ring_do(&r, request(IORING_OP_RECV, c, buf, 10)));
    check(buf, 10);
    far_end();
    fill(buf, 10, sem_tx);
    say_res("send", ring_do(&r, request(IORING_OP_SEND, c, buf, 10)));
    sem_tx += 10;
    far_say("far", far_do(FAR_RECV, 10));
}

static void ring_connect(int s)
{
    (void)s;
    struct ring r = ring_new(0);
    uint8_t buf[10];
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_addr.s_addr = sem_address_of(sem_far_port),
                              .sin_port = htons(sem_far_port) };
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    struct io_uring_sqe sqe = request(IORING_OP_CONNECT, c, &in, 0);
    sqe.off = sizeof(in);
    far_begin(FAR_ACCEPT, 0, 0);
    say_res("connect", ring_do(&r, sqe));
    must("accept", far_end().r);
    fill(buf, 10, sem_tx);
    say_res("send", ring_do(&r, request(IORING_OP_SEND, c, buf, 10)));
    sem_tx += 10;
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    say_res("recv", ring_do(&r, request(IORING_OP_RECV, c, buf, 10)));
    check(buf, 10);
}

const struct scenario sem_ring[] = {
    { "ring_epoll", ring_epoll },     { "ring_files", ring_files },
    { "ring_gone", ring_gone },       { "ring_forked", ring_forked },
    { "ring_ends", ring_ends },       { "ring_accept", ring_accept },
    { "ring_connect", ring_connect }, { NULL, NULL },
};
