/*
 * Receiving: flags, vectors, thresholds, what is left over.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void peek(int s)
{
    uint8_t buf[20], again[20];
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("peek4", recv(s, buf, 4, MSG_PEEK));
    say_result("peek20", recv(s, again, 20, MSG_PEEK));
    say(" same=%d", memcmp(buf, again, 4) == 0);
    say_result("recv3", recv(s, buf, 3, 0));
    say(" peeked=%d", memcmp(buf, again, 3) == 0);
    check(buf, 3);
    say_result("peek", recv(s, buf, 20, MSG_PEEK));
    say(" next=%d", memcmp(buf, again + 3, 7) == 0);
    say(" rest=%zu", recv_next(s, 7));
    say_result("empty", recv(s, buf, 20, MSG_PEEK | MSG_DONTWAIT));
}

static void peek_waits(int s)
{
    uint8_t buf[20];
    far_begin(FAR_SEND, 6, 30);
    say_result("peek", recv(s, buf, 20, MSG_PEEK));
    far_end();
    say(" recv=%zu", recv_next(s, 6));
}

static void waitall(int s)
{
    uint8_t buf[40000];
    far_do(FAR_SEND, 5);
    far_begin(FAR_SEND, 39995, 30);
    ssize_t r = recv(s, buf, sizeof(buf), MSG_WAITALL);
    say_result("recv", r);
    check(buf, (size_t)r);
    far_end();
}

static void waitall_cut(int s)
{
    uint8_t buf[10];
    far_do(FAR_SEND, 5);
    far_begin(FAR_CLOSE, 0, 30);
    say_result("recv", recv(s, buf, sizeof(buf), MSG_WAITALL));
    say_result("then", recv(s, buf, sizeof(buf), MSG_WAITALL));
    far_end();
}

static void waitall_peek(int s)
{
    uint8_t buf[10];
    far_do(FAR_SEND, 5);
    far_begin(FAR_SEND, 5, 30);
    say_result("peek", recv(s, buf, sizeof(buf), MSG_WAITALL | MSG_PEEK));
    far_end();
    say(" recv=%zu", recv_next(s, 10));
}

static void waitall_dontwait(int s)
{
    uint8_t buf[10];
    far_do(FAR_SEND, 5);
    await_octets(s, 5);
    say_result("recv", recv(s, buf, sizeof(buf), MSG_WAITALL | MSG_DONTWAIT));
    say_result("then", recv(s, buf, sizeof(buf), MSG_WAITALL | MSG_DONTWAIT));
}

static void dontwait(int s)
{
    uint8_t buf[10];
    say_result("empty", recv(s, buf, sizeof(buf), MSG_DONTWAIT));
    far_do(FAR_SEND, 5);
    await_octets(s, 5);
    say_result("there", recv(s, buf, sizeof(buf), MSG_DONTWAIT));
    say_result("again", recv(s, buf, sizeof(buf), MSG_DONTWAIT));
}

static void nonblock(int s)
{
    uint8_t buf[10];
    set_nonblock(s, true);
    say_result("empty", read(s, buf, sizeof(buf)));
    far_do(FAR_SEND, 5);
    await_octets(s, 5);
    say_result("there", read(s, buf, sizeof(buf)));
    say_result("again", read(s, buf, sizeof(buf)));
    int on = 0;
    must("FIONBIO", ioctl(s, FIONBIO, &on));
    far_begin(FAR_SEND, 5, 30);
    say_result("blocking", read(s, buf, sizeof(buf)));
    far_end();
}

static void trunc_drops(int s)
{
    uint8_t buf[8];
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    memset(buf, 0xee, sizeof(buf));
    say_result("trunc", recv(s, buf, 6, MSG_TRUNC));
    say(" untouched=%d", buf[0] == 0xee && buf[5] == 0xee);
    sem_rx += 6;
    say(" recv=%zu", recv_next(s, 14));
}

static void zero_octets(int s)
{
    uint8_t buf[8];
    say_result("empty", recv(s, buf, 0, MSG_DONTWAIT));
    far_do(FAR_SEND, 5);
    await_octets(s, 5);
    say_result("recv0", recv(s, buf, 0, 0));
    say_result("read0", read(s, buf, 0));
    say(" rest=%zu", recv_next(s, 5));
}

static void fionread(int s)
{
    int n = -1;
    must("FIONREAD", ioctl(s, FIONREAD, &n));
    say(" empty=%d", n);
    far_do(FAR_SEND, 1000);
    await_octets(s, 1000);
    must("FIONREAD", ioctl(s, FIONREAD, &n));
    say(" there=%d", n);
    recv_next(s, 400);
    must("FIONREAD", ioctl(s, FIONREAD, &n));
    say(" left=%d", n);
    recv_next(s, 600);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    must("FIONREAD", ioctl(s, FIONREAD, &n));
    say(" end=%d", n);
}

static void fionread_large(int s)
{
    far_begin(FAR_SEND, 30000, 0);
    await_octets(s, 30000);
    far_end();
    int n = -1;
    must("FIONREAD", ioctl(s, FIONREAD, &n));
    say(" there=%d", n);
    recv_next(s, 12345);
    must("FIONREAD", ioctl(s, FIONREAD, &n));
    say(" left=%d rest=%zu", n, recv_next(s, 30000 - 12345));
}

static void readv_shapes(int s)
{
    volatile int too_many = 1025, negative = -1; /* not the compiler's to judge */
    uint8_t buf[4000];
    struct iovec iov[] = { { buf, 1 }, { buf + 1, 0 }, { buf + 1, 7 }, { buf + 8, 992 }, { buf + 1000, 3000 } };
    far_do(FAR_SEND, 2000);
    await_octets(s, 2000);
    ssize_t r = readv(s, iov, 5);
    say_result("readv", r);
    check(buf, (size_t)r);
    say_result("none", readv(s, iov, 0));
    say_result("many", readv(s, iov, too_many));
    say_result("negative", readv(s, iov, negative));
}

static void readv_1000(int s)
{
    static uint8_t buf[1000][16];
    struct iovec iov[1000];
    size_t total = 0;
    for (size_t i = 0; i < 1000; i++) {
        iov[i] = (struct iovec){ buf[i], 1 + i % 13 };
        total += iov[i].iov_len;
    }
    far_do(FAR_SEND, (int64_t)total);
    await_octets(s, (int)total);
    ssize_t r = readv(s, iov, 1000);
    say(" whole=%d", r == (ssize_t)total);
    for (size_t i = 0; i < 1000; i++)
        check(iov[i].iov_base, iov[i].iov_len);
}

static void preadv2_current(int s)
{
    uint8_t buf[100];
    struct iovec iov = { buf, sizeof(buf) };
    far_do(FAR_SEND, 50);
    await_octets(s, 50);
    ssize_t r = preadv2(s, &iov, 1, -1, 0);
    say_result("preadv2", r);
    check(buf, r > 0 ? (size_t)r : 0);
    say_result("offset", preadv2(s, &iov, 1, 0, 0));
    say_result("nowait", preadv2(s, &iov, 1, -1, RWF_NOWAIT));
}

static void recvmsg_fields(int s)
{
    uint8_t buf[100], control[64];
    struct sockaddr_in from;
    struct iovec iov[2] = { { buf, 10 }, { buf + 10, 90 } };
    struct msghdr m = {
        .msg_name = &from,
        .msg_namelen = sizeof(from),
        .msg_iov = iov,
        .msg_iovlen = 2,
        .msg_control = control,
        .msg_controllen = sizeof(control),
        .msg_flags = -1,
    };
    far_do(FAR_SEND, 60);
    await_octets(s, 60);
    ssize_t r = recvmsg(s, &m, 0);
    say_result("recvmsg", r);
    check(buf, (size_t)r);
    say(" namelen=%u controllen=%zu flags=%#x", (unsigned)m.msg_namelen, (size_t)m.msg_controllen,
        (unsigned)m.msg_flags);
    socklen_t len = sizeof(from);
    far_do(FAR_SEND, 5);
    say_result("recvfrom", recvfrom(s, buf, 5, 0, (struct sockaddr *)&from, &len));
    say(" fromlen=%u", (unsigned)len);
}

static void recvmmsg_three(int s)
{
    uint8_t buf[4][10];
    struct iovec iov[4];
    struct mmsghdr m[4] = { 0 };
    for (size_t i = 0; i < 4; i++) {
        iov[i] = (struct iovec){ buf[i], 10 };
        m[i].msg_hdr.msg_iov = &iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    far_do(FAR_SEND, 25);
    await_octets(s, 25);
    say_result("recvmmsg", recvmmsg(s, m, 4, MSG_DONTWAIT, NULL));
    say(" lengths=%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
    say_result("empty", recvmmsg(s, m, 4, MSG_DONTWAIT, NULL));
    far_do(FAR_SEND, 5);
    say_result("waitforone", recvmmsg(s, m, 4, MSG_WAITFORONE, NULL));
}

static void rcvlowat(int s)
{
    int n = 100;
    socklen_t len = sizeof(n);
    must("SO_RCVLOWAT", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &n, len));
    n = 0;
    must("SO_RCVLOWAT", getsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &n, &len));
    say(" lowat=%d", n);
    far_do(FAR_SEND, 60);
    await_octets(s, 60);
    say(" poll60=%s", poll_names(poll_one(s, POLLIN, 50)));
    far_begin(FAR_SEND, 40, 30);
    say(" wait=%s", poll_names(poll_one(s, POLLIN, 10000)));
    far_end();
    uint8_t buf[300];
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    far_do(FAR_SEND, 100);
    say(" poll100=%s", poll_names(poll_one(s, POLLIN, 10000)));
    say_result("dontwait", recv(s, buf, 30, MSG_DONTWAIT));
    say(" poll70=%s", poll_names(poll_one(s, POLLIN, 20)));
    far_do(FAR_CLOSE, 0);
    say(" end=%s", poll_names(poll_one(s, POLLIN, 10000)));
}

static void rcvtimeo(int s)
{
    struct timeval tv = { .tv_usec = 80000 };
    uint8_t buf[10];
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    uint64_t t = now_ms();
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say_time("after", (unsigned)(now_ms() - t), 75, LATE_MS);
    struct timeval ample = { .tv_sec = 10 };
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &ample, sizeof(ample)));
    far_begin(FAR_SEND, 5, 30);
    say_result("there", recv(s, buf, sizeof(buf), 0));
    far_end();
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    /* WAITALL gives what there is when time is over. */
    far_do(FAR_SEND, 3);
    await_octets(s, 3);
    t = now_ms();
    say_result("waitall", recv(s, buf, sizeof(buf), MSG_WAITALL));
    say_time("after", (unsigned)(now_ms() - t), 75, LATE_MS);
}

static void octet_by_octet(int s)
{
    far_do(FAR_SEND, 3000);
    uint8_t c;
    size_t n = 0;
    for (; n < 3000 && read(s, &c, 1) == 1; n++)
        check(&c, 1);
    say(" read=%zu", n);
}

static void odd_pieces(int s)
{
    far_begin(FAR_SEND, 3000000, 0);
    size_t total = 0;
    for (size_t piece = 1; total < 3000000; piece = piece * 7 % 65521 + 1) {
        size_t want = piece < 3000000 - total ? piece : 3000000 - total;
        size_t got = recv_next(s, want);
        total += got;
        if (got < want)
            break;
    }
    say(" total=%zu", total);
    far_say("far", far_end());
}

/* A range that is not mapped. */
static void efault(int s)
{
    uint8_t buf[10];
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("recv", recv(s, (void *)16, 10, 0));
    say_result("send", send(s, (void *)16, 10, 0));
    struct iovec iov = { (void *)16, 10 };
    say_result("readv", readv(s, &iov, 1));
    say_result("still", recv(s, buf, 10, MSG_DONTWAIT));
}

const struct scenario sem_recv[] = {
    { "peek", peek },
    { "peek_waits", peek_waits },
    { "waitall", waitall },
    { "waitall_cut", waitall_cut },
    { "waitall_peek", waitall_peek },
    { "waitall_dontwait", waitall_dontwait },
    { "dontwait", dontwait },
    { "nonblock", nonblock },
    { "trunc", trunc_drops },
    { "zero_octets", zero_octets },
    { "fionread", fionread },
    { "fionread_large", fionread_large },
    { "readv_shapes", readv_shapes },
    { "readv_1000", readv_1000 },
    { "preadv2", preadv2_current },
    { "recvmsg", recvmsg_fields },
    { "recvmmsg", recvmmsg_three },
    { "rcvlowat", rcvlowat },
    { "rcvtimeo", rcvtimeo },
    { "octet_by_octet", octet_by_octet },
    { "odd_pieces", odd_pieces },
    { "efault", efault },
    { NULL, NULL },
};
