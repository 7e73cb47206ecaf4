/*
 * Connections that an io_uring of the program's own sends and receives on, after they were made, and upgraded, without
 * it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem_uring.h"
#include "tests/semantics/sem_wait.h"

#define OP_SEND_ZC 47

/* A connection that was used before, and a ring. */
static struct ring ring_on(int s)
{
    one_octet(s);
    return ring_new(0);
}

static void ring_send(struct ring *r, int s, unsigned len)
{
    uint8_t buf[65536];
    fill(buf, len, sem_tx);
    say_res("send", ring_do(r, request(IORING_OP_SEND, s, buf, len)));
    sem_tx += len;
    far_say("far", far_do(FAR_RECV, len));
}

/* sqe receives into buf, and the far end sends while it waits. */
static void ring_recv(const char *what, struct ring *r, struct io_uring_sqe sqe, const uint8_t *buf)
{
    sqe.user_data = 7;
    ring_submit(r, &sqe);
    say(ring_has(r) ? " EARLY" : "");
    far_do(FAR_SEND, 10);
    say_res(what, ring_next(r, 7));
    check(buf, 10);
}

/* Every way to send and to receive; the latter before there is anything, and after. */
static void ring_kinds(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[16];
    struct iovec iov[2] = { { buf, 4 }, { buf + 4, 6 } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
    ring_recv("recv", &r, request(IORING_OP_RECV, s, buf, 10), buf);
    ring_recv("recvmsg", &r, request(IORING_OP_RECVMSG, s, &msg, 1), buf);
    ring_recv("readv", &r, request(IORING_OP_READV, s, iov, 2), buf);
    ring_recv("read", &r, request(IORING_OP_READ, s, buf, 16), buf);
    static const int ways[] = { IORING_OP_SEND, IORING_OP_SENDMSG, IORING_OP_WRITEV, IORING_OP_WRITE };
    for (unsigned i = 0; i < 4; i++) {
        bool vector = ways[i] == IORING_OP_WRITEV;
        fill(buf, 10, sem_tx);
        say_res("sent", ring_do(&r, ways[i] == IORING_OP_SENDMSG ? request(ways[i], s, &msg, 1)
                                    : vector                     ? request(ways[i], s, iov, 2)
                                                                 : request(ways[i], s, buf, 10)));
        sem_tx += 10;
        far_say("far", far_do(FAR_RECV, 10));
    }
    far_do(FAR_SEND, 10);
    say_res("there", ring_do(&r, request(IORING_OP_RECV, s, buf, 16)));
    check(buf, 10);
    far_do(FAR_SEND, 10);
    struct io_uring_sqe peek = request(IORING_OP_RECV, s, buf, 16);
    peek.msg_flags = MSG_PEEK;
    say_res("peek", ring_do(&r, peek));
    recv_next(s, 10);
    peek.msg_flags = MSG_DONTWAIT;
    say_res("none", ring_do(&r, peek));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static struct io_uring_sqe poll_for(int s, uint32_t events, uint32_t flags)
{
    return (struct io_uring_sqe){
        .opcode = IORING_OP_POLL_ADD, .fd = s, .poll32_events = events, .len = flags, .user_data = 3
    };
}

static void say_polled(const char *what, struct ring *r)
{
    struct io_uring_cqe cqe = ring_cqe(r);
    say(" %s=%s%s", what, cqe.res < 0 ? error_name(-cqe.res) : poll_names(cqe.res),
        cqe.flags & IORING_CQE_F_MORE ? "+" : "");
}

/* The ring waits, calls read: as those do that were written for epoll. */
static void ring_polls(int s)
{
    struct ring r = ring_on(s);
    struct io_uring_sqe sqe = poll_for(s, POLLIN, 0);
    ring_submit(&r, &sqe);
    far_do(FAR_SEND, 10);
    say_polled("in", &r);
    recv_next(s, 10);
    sqe = poll_for(s, POLLOUT, 0);
    ring_submit(&r, &sqe);
    say_polled("out", &r);
    sqe = poll_for(s, POLLIN, IORING_POLL_ADD_MULTI);
    ring_submit(&r, &sqe);
    for (int i = 0; i < 3; i++) {
        far_do(FAR_SEND, 10);
        say_polled("multi", &r);
        recv_next(s, 10);
    }
    struct io_uring_sqe remove = { .opcode = IORING_OP_POLL_REMOVE, .fd = -1, .addr = 3, .user_data = 4 };
    ring_submit(&r, &remove);
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        struct io_uring_cqe cqe = ring_cqe(&r);
        seen |= cqe.user_data == 3 && cqe.res == -ECANCELED ? 1 : cqe.user_data == 4 && cqe.res == 0 ? 2 : 4;
    }
    say(" removed=%d", seen);
    sqe = poll_for(s, POLLRDHUP, 0);
    ring_submit(&r, &sqe);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say_polled("rdhup", &r);
    ring_send(&r, s, 10);
}

#define BUFS 4
#define BUF_LEN 64u

/* One request that receives again and again, into buffers of the ring's. */
static void ring_multishot(int s)
{
    struct ring r = ring_on(s);
    uint8_t bufs[BUFS][BUF_LEN];
    struct io_uring_sqe provide = {
        .opcode = IORING_OP_PROVIDE_BUFFERS, .fd = BUFS, .addr = (uintptr_t)bufs, .len = BUF_LEN, .buf_group = 1
    };
    say_res("provide", ring_do(&r, provide));
    struct io_uring_sqe sqe = { .opcode = IORING_OP_RECV,
                                .fd = s,
                                .ioprio = IORING_RECV_MULTISHOT,
                                .flags = IOSQE_BUFFER_SELECT,
                                .buf_group = 1,
                                .user_data = 5 };
    ring_submit(&r, &sqe);
    int total = 0;
    for (int i = 0; i < 3; i++) {
        far_do(FAR_SEND, 10);
        for (int got = 0; got < 10;) {
            struct io_uring_cqe cqe = ring_cqe(&r);
            unsigned bid = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
            if (cqe.res <= 0 || bid >= BUFS || !(cqe.flags & IORING_CQE_F_MORE)) {
                say(" WRONG multi=%d", cqe.res);
                return;
            }
            check(bufs[bid], (size_t)cqe.res);
            got += cqe.res;
            total += cqe.res;
        }
    }
    say(" multi=%d", total);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    struct io_uring_cqe cqe = ring_cqe(&r);
    say_res("end", cqe.res);
    say(cqe.flags & IORING_CQE_F_MORE ? " more" : " last");
}

/* A send that a receive is linked to. */
static void ring_links(int s)
{
    struct ring r = ring_on(s);
    uint8_t out[10], in[10];
    for (int i = 0; i < 3; i++) {
        far_begin(FAR_ECHO, 10, 0);
        fill(out, 10, sem_tx);
        struct io_uring_sqe send = request(IORING_OP_SEND, s, out, 10), recv = request(IORING_OP_RECV, s, in, 10);
        send.flags = (uint8_t)(IOSQE_IO_LINK | (i == 1 ? IOSQE_CQE_SKIP_SUCCESS : 0));
        send.user_data = 1;
        recv.user_data = 2;
        ring_push(&r, &send);
        ring_push(&r, &recv);
        ring_enter(&r, 2);
        if (i != 1)
            say_res("send", ring_next(&r, 1));
        say_res("recv", ring_next(&r, 2));
        far_say("far", far_end());
        say(memcmp(in, out, 10) == 0 ? " right" : " WRONG");
    }
    struct __kernel_timespec moment = { .tv_nsec = 20000000 };
    struct io_uring_sqe recv = request(IORING_OP_RECV, s, in, 10),
                        limit = request(IORING_OP_LINK_TIMEOUT, -1, &moment, 1);
    recv.flags = IOSQE_IO_LINK;
    recv.user_data = 1;
    limit.user_data = 2;
    ring_push(&r, &recv);
    ring_push(&r, &limit);
    ring_enter(&r, 2);
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        struct io_uring_cqe cqe = ring_cqe(&r);
        seen |= cqe.user_data == 1 && cqe.res == -ECANCELED ? 1 : cqe.user_data == 2 && cqe.res == -ETIME ? 2 : 4;
    }
    say(" late=%d", seen);
    struct io_uring_sqe last = request(IORING_OP_SEND, s, out, 10),
                        shut = request(IORING_OP_SHUTDOWN, s, NULL, SHUT_WR);
    fill(out, 10, sem_tx);
    sem_tx += 10;
    last.flags = IOSQE_IO_LINK;
    last.user_data = 1;
    shut.user_data = 2;
    ring_push(&r, &last);
    ring_push(&r, &shut);
    ring_enter(&r, 2);
    say_res("send", ring_next(&r, 1));
    say_res("shutdown", ring_next(&r, 2));
    far_say("far", far_do(FAR_RECV, 11));
}

/* A request that waits is given up, by its name and by its descriptor. */
static void ring_cancels(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[10];
    for (int by_fd = 0; by_fd < 2; by_fd++) {
        struct io_uring_sqe recv = request(IORING_OP_RECV, s, buf, 10);
        struct io_uring_sqe cancel = {
            .opcode = IORING_OP_ASYNC_CANCEL, .fd = by_fd ? s : -1, .addr = by_fd ? 0 : 1, .user_data = 2
        };
        cancel.cancel_flags = by_fd ? IORING_ASYNC_CANCEL_FD : 0;
        recv.user_data = 1;
        ring_submit(&r, &recv);
        ring_submit(&r, &cancel);
        int seen = 0;
        for (int i = 0; i < 2; i++) {
            struct io_uring_cqe cqe = ring_cqe(&r);
            seen |= cqe.user_data == 1 && cqe.res == -ECANCELED ? 1 : cqe.user_data == 2 && cqe.res == 0 ? 2 : 4;
        }
        say(" cancelled=%d", seen);
    }
    ring_recv("recv", &r, request(IORING_OP_RECV, s, buf, 10), buf);
}

/* Closed while a request waits: that goes on, and the connection ends behind it. */
static void ring_close_pending(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[10];
    struct io_uring_sqe sqe = request(IORING_OP_RECV, s, buf, 10);
    sqe.user_data = 1;
    ring_submit(&r, &sqe);
    say_result("close", close(s));
    far_do(FAR_SEND, 10);
    say_res("recv", ring_next(&r, 1));
    check(buf, 10);
    far_say("far", far_do(FAR_RECV, 1));
}

/* What was sent before the close arrives, and then the end. */
static void ring_close(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[30000];
    fill(buf, sizeof(buf), sem_tx);
    say_res("send", ring_do(&r, request(IORING_OP_SEND, s, buf, sizeof(buf))));
    say_res("close", ring_do(&r, request(IORING_OP_CLOSE, s, NULL, 0)));
    say_result("closed", close(s));
    far_say("far", far_do(FAR_RECV, sizeof(buf) + 1));
}

#define BIG (8u << 20)
#define PIECE 100000u

/* More than all buffers hold comes back as it was sent. */
static void ring_big(int s)
{
    struct ring r = ring_on(s);
    static uint8_t out[PIECE], in[PIECE];
    unsigned sent = 0, got = 0;
    struct io_uring_sqe send = { 0 }, recv = request(IORING_OP_RECV, s, in, PIECE);
    bool bad = false;
    far_begin(FAR_ECHO, BIG, 0);
    for (unsigned under_way = 0; got < BIG;) { /* bit 0: a send, bit 1: a receive */
        if (!(under_way & 1) && sent < BIG) {
            unsigned n = BIG - sent < PIECE ? BIG - sent : PIECE;
            fill(out, n, sem_tx + sent);
            send = request(IORING_OP_SEND, s, out, n);
            send.msg_flags = MSG_WAITALL;
            send.user_data = n;
            ring_submit(&r, &send);
            under_way |= 1;
        }
        if (!(under_way & 2))
            ring_submit(&r, &recv);
        under_way |= 2;
        struct io_uring_cqe cqe = ring_cqe(&r);
        if (cqe.res <= 0) {
            say_res("WRONG", cqe.res);
            break;
        }
        if (cqe.user_data != 0) {
            bad = bad || (unsigned)cqe.res != cqe.user_data;
            sent += (unsigned)cqe.res;
            under_way &= ~1u;
            continue;
        }
        static uint8_t want[PIECE];
        fill(want, (size_t)cqe.res, sem_tx + got);
        bad = bad || memcmp(want, in, (size_t)cqe.res) != 0;
        got += (unsigned)cqe.res;
        under_way &= ~2u;
    }
    far_say("far", far_end());
    say(" got=%u%s", got, bad ? " WRONG" : " right");
    ring_send(&r, s, 10);
}

/* The peer's end: a request that waits sees it, and the other direction goes on. */
static void ring_eof(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[10];
    struct io_uring_sqe sqe = request(IORING_OP_RECV, s, buf, 10);
    sqe.user_data = 1;
    ring_submit(&r, &sqe);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say_res("recv", ring_next(&r, 1));
    say_res("again", ring_do(&r, request(IORING_OP_RECV, s, buf, 10)));
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 0)));
    ring_send(&r, s, 10000);
    say_result("shutdown", shutdown(s, SHUT_WR));
    far_say("far", far_do(FAR_RECV, 1));
}

static void ring_reset(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[10] = "";
    struct io_uring_sqe sqe = request(IORING_OP_RECV, s, buf, 10);
    sqe.user_data = 1;
    ring_submit(&r, &sqe);
    far_do(FAR_RESET, 0);
    say_res("recv", ring_next(&r, 1));
    say_res("again", ring_do(&r, request(IORING_OP_RECV, s, buf, 10)));
    struct io_uring_sqe send = request(IORING_OP_SEND, s, buf, 10);
    send.msg_flags = MSG_NOSIGNAL;
    say_res("send", ring_do(&r, send));
    say(" error=%d poll=%s", so_error(s), poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 0)));
}

/* This end resets: bytes that it has not read are lost. */
static void ring_unread(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[4];
    far_do(FAR_SEND, 10);
    say_res("recv", ring_do(&r, request(IORING_OP_RECV, s, buf, 4)));
    check(buf, 4);
    say_res("close", ring_do(&r, request(IORING_OP_CLOSE, s, NULL, 0)));
    far_say("far", far_do(FAR_RECV, 1));
}

/* The program's calls beside the ring's, and what it has asked of the socket before. */
static void ring_beside(int s)
{
    int ep = ep_new(), v = 0, waiting = 0;
    socklen_t len = sizeof(v);
    struct tcp_info info = { 0 };
    struct sockaddr_in in;
    uint8_t buf[10];
    one_octet(s);
    ep_add(ep, s, EPOLLIN, 1);
    int edges = ep_new();
    ep_add(edges, s, EPOLLIN | EPOLLOUT | EPOLLET, 2);
    far_do(FAR_SEND, 10);
    recv_next(s, 4);
    struct ring r = ring_new(0);
    say_res("recv", ring_do(&r, request(IORING_OP_RECV, s, buf, 4)));
    check(buf, 4);
    ep_say("left", ep, 2000);
    recv_next(s, 2);
    ep_say("none", ep, 10);
    far_do(FAR_SEND, 10);
    ep_say("data", ep, 2000);
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 2000)));
    await_octets(s, 10);
    must("FIONREAD", ioctl(s, FIONREAD, &waiting));
    say(" waiting=%d", waiting);
    ep_mod(ep, s, EPOLLOUT, 3);
    ep_say("out", ep, 2000);
    ep_del(ep, s);
    recv_next(s, 10);
    v = 1;
    say_result("nodelay", setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, sizeof(v)));
    v = 0;
    must("TCP_NODELAY", getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, &len));
    say(" nodelay=%d", v != 0);
    static const int names[] = { SO_DOMAIN, SO_PROTOCOL, SO_TYPE, SO_ERROR };
    for (unsigned i = 0; i < 4; i++) {
        must("getsockopt", getsockopt(s, SOL_SOCKET, names[i], &v, &len));
        say(" %d", v);
    }
    len = sizeof(info);
    must("TCP_INFO", getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len));
    say(" state=%d", info.tcpi_state);
    len = sizeof(in);
    say_result("peer", getpeername(s, (struct sockaddr *)&in, &len));
    say(" family=%d%s", in.sin_family, in.sin_addr.s_addr == sem_address() ? "" : " WRONG");
    len = sizeof(in);
    say_result("name", getsockname(s, (struct sockaddr *)&in, &len));
    say(" family=%d", in.sin_family);
    ring_send(&r, s, 10);
}

/* By other names, by its place among the ring's files. */
static void ring_names(int s)
{
    struct ring r = ring_on(s);
    int other = (int)must("dup", dup(s));
    uint8_t buf[10];
    ring_recv("recv", &r, request(IORING_OP_RECV, other, buf, 10), buf);
    far_do(FAR_SEND, 10);
    recv_next(s, 10);
    say_result("register", syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_FILES, &s, 1));
    say_result("close", close(s));
    struct io_uring_sqe fixed = request(IORING_OP_RECV, 0, buf, 10);
    fixed.flags = IOSQE_FIXED_FILE;
    ring_recv("fixed", &r, fixed, buf);
    send_next(other, 10);
    far_say("far", far_do(FAR_RECV, 10));
    say_result("close", close(other));
    far_begin(FAR_SEND, 10, 0);
    far_end();
    say_res("last", ring_do(&r, fixed));
    check(buf, 10);
    ring_free(&r);
    far_say("far", far_do(FAR_RECV, 1));
}

/* Registered before anything else is asked of the ring. */
static void ring_fixed(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[10];
    say_result("register", syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_FILES, &s, 1));
    struct io_uring_sqe fixed = request(IORING_OP_RECV, 0, buf, 10);
    fixed.flags = IOSQE_FIXED_FILE;
    ring_recv("fixed", &r, fixed, buf);
    far_do(FAR_SEND, 10);
    recv_next(s, 10);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* Without a copy, or with one: the octets are right, and the notification comes if it is announced. */
static void ring_zerocopy(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[4096];
    fill(buf, sizeof(buf), sem_tx);
    struct io_uring_sqe sqe = request(OP_SEND_ZC, s, buf, sizeof(buf));
    sqe.user_data = 1;
    ring_submit(&r, &sqe);
    struct io_uring_cqe cqe = ring_cqe(&r);
    say_res("send", cqe.res);
    far_say("far", far_do(FAR_RECV, sizeof(buf)));
    if (cqe.flags & IORING_CQE_F_MORE)
        ring_next(&r, 1);
    sem_tx += sizeof(buf);
    ring_send(&r, s, 10);
}

/* Threads that wait for the connection when the ring is first used on it. */
static void ring_waited(int s)
{
    struct waiter in_poll, in_epoll;
    int ep = ep_new();
    one_octet(s);
    ep_add(ep, s, EPOLLIN, 1);
    wait_in_poll(&in_poll, s, POLLIN, LATE_MS);
    wait_in_epoll(&in_epoll, ep, LATE_MS);
    struct ring r = ring_new(0);
    ring_send(&r, s, 10);
    far_do(FAR_SEND, 10);
    wait_end("poll", &in_poll);
    wait_end("epoll", &in_epoll);
    recv_next(s, 10);
}

/* Several, at the same time and one after the other. */
static void ring_several(int s)
{
    uint8_t buf[10];
    int conns[3] = { s };
    one_octet(s);
    for (int i = 1; i < 3; i++) {
        conns[i] = more();
        one_octet(conns[i]);
    }
    struct ring r = ring_new(0);
    for (int i = 2; i >= 0; i--) {
        far_use(i);
        ring_recv("recv", &r, request(IORING_OP_RECV, conns[i], buf, 10), buf);
        ring_send(&r, conns[i], 10000);
        if (i != 1) { /* that one is beside the first, and this one gone before either */
            say_result("close", close(conns[i]));
            far_say("end", far_do(FAR_RECV, 1));
        }
    }
    far_use(1);
    ring_send(&r, conns[1], 10);
}

/* What a process has sent by its ring before it exits, or becomes another program, arrives. */
static void ends(int s, bool execs)
{
    int status;
    one_octet(s);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        struct ring r = ring_new(0);
        static uint8_t buf[100000];
        fill(buf, sizeof(buf), sem_tx);
        struct io_uring_sqe sqe = request(IORING_OP_SEND, s, buf, sizeof(buf));
        sqe.msg_flags = MSG_WAITALL;
        int sent = ring_do(&r, sqe);
        if (execs && sent == (int)sizeof(buf))
            execl("/bin/true", "true", NULL);
        _exit(sent == (int)sizeof(buf) ? 0 : 1);
    }
    close(s);
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d", WEXITSTATUS(status));
    far_say("far", far_do(FAR_RECV, 100001));
}

static void ring_exits(int s)
{
    ends(s, false);
}

static void ring_execs(int s)
{
    must("FD_CLOEXEC", fcntl(s, F_SETFD, FD_CLOEXEC));
    ends(s, true);
}

/* The ring, which was used for something else before, waits for a connection to be made. */
static void ring_connecting(int s)
{
    struct ring r = ring_on(s);
    uint8_t buf[10];
    say_res("file", ring_do(&r, request(IORING_OP_READ, (int)must("open", open("/proc/self/exe", O_RDONLY)), buf, 4)));
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    far_begin(FAR_ACCEPT, 0, 0);
    connect_begin_to(c, sem_far_port);
    struct io_uring_sqe sqe = poll_for(c, POLLOUT, 0);
    ring_submit(&r, &sqe);
    say_polled("out", &r);
    say(" error=%d", so_error(c));
    must("accept", far_end().r);
    far_use(1);
    ring_send(&r, c, 10);
    ring_recv("recv", &r, request(IORING_OP_RECV, c, buf, 10), buf);
}

/* A child uses what its parent's ring does. */
static void ring_shared(int s)
{
    struct ring r = ring_on(s);
    int status;
    ring_send(&r, s, 10);
    far_do(FAR_SEND, 10);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        uint8_t buf[10];
        ssize_t n = recv(s, buf, 10, MSG_WAITALL);
        _exit(n == 10 && send(s, buf, 10, 0) == 10 ? 0 : 1);
    }
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d", WEXITSTATUS(status));
    sem_rx += 10;
    int came = 0;
    far_begin(FAR_RECV, 10, 0);
    struct far_result res = far_end();
    came = (int)res.r;
    say(" came=%d", came);
    say_result("close", close(s));
    far_say("far", far_do(FAR_RECV, 1));
}

const struct scenario sem_ring_data[] = {
    { "ring_kinds", ring_kinds },
    { "ring_polls", ring_polls },
    { "ring_multishot", ring_multishot },
    { "ring_links", ring_links },
    { "ring_cancels", ring_cancels },
    { "ring_close_pending", ring_close_pending },
    { "ring_close", ring_close },
    { "ring_big", ring_big },
    { "ring_eof", ring_eof },
    { "ring_reset", ring_reset },
    { "ring_unread", ring_unread },
    { "ring_beside", ring_beside },
    { "ring_names", ring_names },
    { "ring_fixed", ring_fixed },
    { "ring_zerocopy", ring_zerocopy },
    { "ring_waited", ring_waited },
    { "ring_several", ring_several },
    { "ring_exits", ring_exits },
    { "ring_execs", ring_execs },
    { "ring_connecting", ring_connecting },
    { "ring_shared", ring_shared },
    { NULL, NULL },
};
