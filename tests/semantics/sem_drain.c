/*
 * A receive gives as much as TCP has, up to its length, in however many writes it came and whatever was read of it
 * before. Programs that wait by edges take a short read for "there is no more" and wait for an edge: nothing may be
 * left behind then.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/tcp.h>
#include <netinet/in.h>

#include "tests/semantics/sem.h"

#define MUCH (256 * 1024)
static uint8_t buf[MUCH];

/* The far end sends, and the kernel here has it. Nothing of it is looked at by the program. */
static void put(int s, int len)
{
    struct far_result r = far_do(FAR_PUT, len);
    struct tcp_info info = { 0 };
    socklen_t size = sizeof(info);
    if (r.r < 0)
        far_say("put", r);
    while (r.r >= 0 && info.tcpi_bytes_received < (uint64_t)r.r) {
        must("TCP_INFO", getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &size));
        usleep(100);
    }
}

static void say_got(const char *what, ssize_t r)
{
    say_result(what, r);
    if (r > 0)
        check(buf, (size_t)r);
}

static int watch(int s, uint32_t events)
{
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = events };
    must("EPOLL_CTL_ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    return ep;
}

static void say_told(int ep, int timeout_ms)
{
    struct epoll_event ev = { 0 };
    int n = (int)must("epoll_wait", epoll_wait(ep, &ev, 1, timeout_ms));
    say(" told=%s", n > 0 ? poll_names((int)ev.events) : "nothing");
}

/* What stalled: a part is read, more comes and is told, and the next read, which has room for all, gives less. */
static void drain_edge(int s)
{
    set_nonblock(s, true);
    int ep = watch(s, EPOLLIN | EPOLLRDHUP | EPOLLET);
    put(s, 100);
    say_told(ep, 5000);
    say_got("half", recv(s, buf, 50, 0));
    put(s, 100);
    say_told(ep, 5000);
    say_got("all", recv(s, buf, MUCH, 0));
    put(s, 30);
    say_told(ep, 5000);
    say_got("next", recv(s, buf, MUCH, 0));
    say_got("none", recv(s, buf, MUCH, 0));
}

/* The same by each call that reads. */
static void drain_calls(int s)
{
    struct iovec two[2] = { { buf, 70 }, { buf + 70, 1000 } };
    for (int i = 0; i < 8; i++) {
        put(s, 100);
        say_got("part", read(s, buf, 60));
        put(s, 100);
        struct msghdr m = { .msg_iov = two, .msg_iovlen = 2 };
        struct mmsghdr mm[2] = { { .msg_hdr = m }, { .msg_hdr = m } };
        ssize_t r = i == 0   ? read(s, buf, MUCH)
                    : i == 1 ? recv(s, buf, MUCH, 0)
                    : i == 2 ? recvfrom(s, buf, MUCH, 0, NULL, NULL)
                    : i == 3 ? readv(s, two, 2)
                    : i == 4 ? recvmsg(s, &m, 0)
                    : i == 5 ? recvmmsg(s, mm, 2, MSG_WAITFORONE, NULL)
                    : i == 6 ? recv(s, buf, MUCH, MSG_PEEK)
                             : recv(s, buf, MUCH, MSG_DONTWAIT);
        say(" %d=%zd", i, r);
        if (i == 5)
            r = (ssize_t)mm[0].msg_len;
        uint64_t before = sem_rx;
        check(buf, (size_t)r);
        if (i == 6) {
            sem_rx = before;
            say_got("peeked", recv(s, buf, MUCH, 0));
        }
    }
}

static void drain_stdio(int s)
{
    FILE *f = fdopen(dup(s), "r");
    for (int i = 0, n = 3000; i < 4; i++, n -= 900) {
        put(s, n);
        put(s, n);
        int c = getc(f);
        say(" there=%td", f->_IO_read_end - f->_IO_read_ptr + 1);
        for (ptrdiff_t left = f->_IO_read_end - f->_IO_read_ptr; c != EOF && left > 0; left--)
            c = getc(f);
    }
    fclose(f);
}

/* FIONREAD, and the mark below which nothing is readable. */
static void drain_marks(int s)
{
    int there, mark = 150;
    put(s, 100);
    say_got("part", recv(s, buf, 60, 0));
    put(s, 100);
    must("FIONREAD", ioctl(s, FIONREAD, &there));
    say(" there=%d", there);
    must("SO_RCVLOWAT", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)));
    say(" poll=%s", poll_names(poll_one(s, POLLIN, 0)));
    put(s, 10);
    say(" poll=%s", poll_names(poll_one(s, POLLIN, 0)));
    say_got("some", recv(s, buf, 120, 0));
    put(s, 125);
    say_got("all", recv(s, buf, MUCH, 0));
}

/* nginx asks by FIONREAD how much is there, reads that, and waits for an edge. */
static void drain_asked(int s)
{
    int size = 1 << 20, there = 0, rest = 109000;
    must("SO_RCVBUF", setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
    set_nonblock(s, true);
    int ep = watch(s, EPOLLIN | EPOLLRDHUP | EPOLLET);
    put(s, 40000);
    put(s, 40000);
    say_told(ep, 5000);
    say_got("some", recv(s, buf, 1000, 0));
    put(s, 30000);
    say_told(ep, 5000);
    for (struct epoll_event ev; rest > 0;) {
        must("FIONREAD", ioctl(s, FIONREAD, &there));
        for (ssize_t r; there > 0; there -= (int)r, rest -= (int)r)
            check(buf, (size_t)(r = must("recv", recv(s, buf, there < 5000 ? (size_t)there : 5000, 0))));
        if (rest > 0 && must("epoll_wait", epoll_wait(ep, &ev, 1, 2000)) == 0)
            break;
    }
    say(" rest=%d", rest);
}

/* What recvmsg says is left, with TCP_INQ; the end counts as one more. */
static void say_left(int s, size_t len, size_t room)
{
    union {
        char buf[CMSG_SPACE(sizeof(int)) + 8];
        struct cmsghdr hdr;
    } ctl;
    struct iovec v = { buf, len };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = room };
    ssize_t r = recvmsg(s, &m, MSG_DONTWAIT);
    say_got("recvmsg", r);
    if (r < 0)
        return;
    say(",%zu%s", m.msg_controllen, m.msg_flags & MSG_CTRUNC ? ",cut" : "");
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    int left = -1;
    if (h != NULL && h->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&left, CMSG_DATA(h), sizeof(left));
    say(",%d", left);
}

static void drain_inq(int s)
{
    int on = 1, two = 2;
    say_result("bad", setsockopt(s, IPPROTO_TCP, TCP_INQ, &two, sizeof(two)));
    put(s, 100);
    say_left(s, 10, 32);
    say_result("set", setsockopt(s, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)));
    say_left(s, 10, 32);
    put(s, 100);
    say_left(s, 30, 32);
    say_left(s, 100, CMSG_LEN(sizeof(int)));
    put(s, 100);
    say_left(s, MUCH, 18);
    say_left(s, 10, 8);
    put(s, 50);
    say_left(s, 20, 0);
    say_left(s, 20, 32);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    for (int ended = 0; !(ended & POLLRDHUP);)
        ended = poll_one(s, POLLRDHUP, 5000);
    say_left(s, 5, 32);
    say_left(s, 10, 32);
    say_left(s, 10, 32);
}

/* ---- at random ---- */

static uint32_t rnd_state;

static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 1664525u + 1013904223u;
    return (rnd_state >> 8) % n;
}

static int some(void)
{
    static const int most[] = { 3, 200, 200, 3000, 20000 };
    return 1 + (int)rnd((uint32_t)most[rnd(5)]);
}

/* One call that reads up to len octets; it does not wait. Returns what it has taken. */
static ssize_t read_somehow(int s, size_t len)
{
    struct iovec part[3] = { { buf, len / 3 }, { buf + len / 3, len / 2 - len / 3 }, { buf + len / 2, len - len / 2 } };
    struct msghdr m = { .msg_iov = part, .msg_iovlen = 3 };
    struct mmsghdr mm[2] = { { .msg_hdr = { .msg_iov = part, .msg_iovlen = 2 } },
                             { .msg_hdr = { .msg_iov = part + 2, .msg_iovlen = 1 } } };
    uint32_t how = rnd(8);
    uint64_t before = sem_rx;
    int there = 0;
    ssize_t r;
    switch (how) {
    case 0:
        r = readv(s, part, 3);
        break;
    case 1:
        r = recvmsg(s, &m, 0);
        break;
    case 2:
        r = recvmmsg(s, mm, 2, 0, NULL);
        say(" m%zd", r);
        for (ssize_t i = 0, n = r; i < n; i++) {
            r = (ssize_t)mm[i].msg_len;
            say(",%zd", r);
            check(mm[i].msg_hdr.msg_iov->iov_base, (size_t)r);
        }
        return r < 0 ? r : (ssize_t)(sem_rx - before);
    case 3:
        r = recv(s, buf, len, MSG_PEEK);
        say(" p%zd", r);
        check(buf, r > 0 ? (size_t)r : 0);
        sem_rx = before;
        return 0;
    case 4:
        must("FIONREAD", ioctl(s, FIONREAD, &there));
        say(" f%d", there);
        return 0;
    case 5:
        r = read(s, buf, len);
        break;
    default:
        r = recv(s, buf, len, 0);
        break;
    }
    say(" r%u:%zu=%zd", how, len, r);
    check(buf, r > 0 ? (size_t)r : 0);
    return r;
}

/* Is it readable? Of an edge only that it is told is compared: one more does no harm. */
static void wait_somehow(int s, int ep, bool edges, bool fresh)
{
    struct epoll_event ev = { 0 };
    fd_set in;
    struct timeval none = { 0 };
    switch (rnd(edges ? 1 : 3)) {
    case 0: {
        int n = epoll_wait(ep, &ev, 1, 0);
        if (!edges || fresh)
            say(" e%d", n);
        ev = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT };
        if (!edges && n > 0 && rnd(4) == 0)
            must("EPOLL_CTL_MOD", epoll_ctl(ep, EPOLL_CTL_MOD, s, &ev));
        break;
    }
    case 1:
        say(" w%s", poll_names(poll_one(s, POLLIN, 0)));
        break;
    default:
        FD_ZERO(&in);
        FD_SET(s, &in);
        say(" s%d", select(s + 1, &in, NULL, NULL, &none));
    }
}

static void at_random(int s, uint32_t seed)
{
    bool edges = seed & 1, fresh = false;
    int there = 0, mark = 700;
    rnd_state = seed;
    set_nonblock(s, true);
    int ep = watch(s, EPOLLIN | (edges ? EPOLLET : 0));
    if (!edges && (seed & 2))
        must("SO_RCVLOWAT", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)));
    for (int i = 0; i < 90; i++) {
        uint32_t what = rnd(8);
        if (what < 3 && there < 30000) {
            int n = some();
            put(s, n);
            there += n;
            fresh = true;
        } else if (what < 6) {
            size_t len = rnd(3) == 0 ? MUCH : rnd(2) == 0 ? (size_t)there + 1 : (size_t)some();
            ssize_t r = read_somehow(s, len);
            there -= r > 0 ? (int)r : 0;
            fresh = fresh && there > 0;
        } else {
            wait_somehow(s, ep, edges, fresh);
            fresh = false;
        }
        if (rnd(6) == 0)
            send_next(s, 1 + rnd(300)); /* the other direction goes on meanwhile */
    }
    say(" rest=%zu", recv_next(s, (size_t)there));
    far_say("far", far_do(FAR_RECV, (int64_t)sem_tx));
}

#define AT_RANDOM(n)                    \
    static void drain_random_##n(int s) \
    {                                   \
        at_random(s, n);                \
    }
AT_RANDOM(1)
AT_RANDOM(2)
AT_RANDOM(3)
AT_RANDOM(4)
AT_RANDOM(5)
AT_RANDOM(6)
AT_RANDOM(7)
AT_RANDOM(8)

const struct scenario sem_drain[] = {
    { "drain_edge", drain_edge },         { "drain_calls", drain_calls },       { "drain_stdio", drain_stdio },
    { "drain_marks", drain_marks },       { "drain_inq", drain_inq },           { "drain_asked", drain_asked },
    { "drain_random_1", drain_random_1 }, { "drain_random_2", drain_random_2 }, { "drain_random_3", drain_random_3 },
    { "drain_random_4", drain_random_4 }, { "drain_random_5", drain_random_5 }, { "drain_random_6", drain_random_6 },
    { "drain_random_7", drain_random_7 }, { "drain_random_8", drain_random_8 }, { NULL, NULL },
};
