/*
 * Sending: sizes, vectors, files and pipes, a full peer.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

static void sizes(int s)
{
    static const size_t len[] = { 1, 2, 15, 1460, 16383, 16384, 16385, 65536, 64768, 1000000, 1 };
    static uint8_t buf[1000000];
    for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
        far_begin(FAR_RECV, (int64_t)len[i], 0);
        fill(buf, len[i], sem_tx);
        ssize_t r = send(s, buf, len[i], 0);
        sem_tx += len[i];
        say(" %d", r == (ssize_t)len[i]);
        struct far_result res = far_end();
        if (res.bad || res.r != (int64_t)len[i])
            far_say("far", res);
    }
}

static void nothing(int s)
{
    say_result("send0", send(s, "", 0, 0));
    say_result("write0", write(s, "", 0));
    say_result("writev0", writev(s, NULL, 0));
    send_next(s, 3);
    far_say("far", far_do(FAR_RECV, 3));
}

static void writev_shapes(int s)
{
    volatile int too_many = 1025, negative = -1; /* not the compiler's to judge */
    uint8_t buf[4000];
    fill(buf, sizeof(buf), 0);
    struct iovec iov[] = { { buf, 1 }, { NULL, 0 }, { buf + 1, 7 }, { buf + 8, 992 }, { buf + 1000, 3000 } };
    say_result("writev", writev(s, iov, 5));
    say_result("many", writev(s, iov, too_many));
    say_result("negative", writev(s, iov, negative));
    far_say("far", far_do(FAR_RECV, 4000));
}

static void writev_1000(int s)
{
    static uint8_t buf[100000];
    struct iovec iov[1000];
    size_t total = 0;
    fill(buf, sizeof(buf), 0);
    for (size_t i = 0; i < 1000; i++) {
        iov[i] = (struct iovec){ buf + total, i % 7 ? i % 91 : 0 };
        total += iov[i].iov_len;
    }
    far_begin(FAR_RECV, (int64_t)total, 0);
    say(" whole=%d", writev(s, iov, 1000) == (ssize_t)total);
    far_say("far", far_end());
}

static void writev_large(int s)
{
    static uint8_t buf[3][700000];
    struct iovec iov[3];
    for (size_t i = 0; i < 3; i++) {
        fill(buf[i], sizeof(buf[i]), i * sizeof(buf[i]));
        iov[i] = (struct iovec){ buf[i], sizeof(buf[i]) };
    }
    far_begin(FAR_RECV, 2100000, 0);
    say_result("writev", writev(s, iov, 3));
    far_say("far", far_end());
}

static void pwritev2_current(int s)
{
    uint8_t buf[100];
    fill(buf, sizeof(buf), 0);
    struct iovec iov = { buf, sizeof(buf) };
    say_result("pwritev2", pwritev2(s, &iov, 1, -1, 0));
    say_result("offset", pwritev2(s, &iov, 1, 0, 0));
    far_say("far", far_do(FAR_RECV, 100));
}

static void sendmsg_named(int s)
{
    uint8_t buf[100];
    fill(buf, sizeof(buf), 0);
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    struct iovec iov[2] = { { buf, 30 }, { buf + 30, 20 } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    say_result("sendmsg", sendmsg(s, &m, 0));
    say_result("sendto", sendto(s, buf + 50, 50, 0, (struct sockaddr *)&to, sizeof(to)));
    far_say("far", far_do(FAR_RECV, 100));
}

static void sendmmsg_three(int s)
{
    uint8_t buf[60];
    fill(buf, sizeof(buf), 0);
    struct iovec iov[3] = { { buf, 10 }, { buf + 10, 20 }, { buf + 30, 30 } };
    struct mmsghdr m[3] = { 0 };
    for (size_t i = 0; i < 3; i++) {
        m[i].msg_hdr.msg_iov = &iov[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    say_result("sendmmsg", sendmmsg(s, m, 3, 0));
    say(" lengths=%u,%u,%u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
    far_say("far", far_do(FAR_RECV, 60));
}

/* A file of the next len octets. */
static int pattern_file(size_t len)
{
    FILE *f = tmpfile();
    if (f == NULL)
        must("tmpfile", -1);
    uint8_t *buf = malloc(len);
    fill(buf, len, sem_tx);
    if (fwrite(buf, 1, len, f) != len || fflush(f) != 0)
        must("write a file", -1);
    free(buf);
    int fd = (int)must("dup", dup(fileno(f)));
    fclose(f);
    must("lseek", lseek(fd, 0, SEEK_SET));
    return fd;
}

static void sendfile_both(int s)
{
    int fd = pattern_file(500000);
    off_t off = 100;
    far_begin(FAR_RECV, 500000, 0);
    say_result("position", sendfile(s, fd, NULL, 100));
    ssize_t done = 0, r = 1;
    while (done < 400000 && r > 0) {
        r = sendfile(s, fd, &off, (size_t)(400000 - done));
        done += r > 0 ? r : 0;
    }
    say(" offset=%zd,%lld", done, (long long)off);
    say(" position=%lld", (long long)lseek(fd, 0, SEEK_CUR));
    must("lseek", lseek(fd, off, SEEK_SET));
    for (r = 1; r > 0;)
        r = sendfile(s, fd, NULL, 1 << 20);
    say_result("end", r);
    far_say("far", far_end());
    off = -5;
    say_result("negative", sendfile(s, fd, &off, 10));
    say_result("from_socket", sendfile(fd, s, NULL, 10));
    close(fd);
}

static void splice_in(int s)
{
    int p[2];
    uint8_t buf[50000];
    must("pipe", pipe(p));
    fill(buf, sizeof(buf), 0);
    must("write", write(p[1], buf, sizeof(buf)));
    far_begin(FAR_RECV, sizeof(buf), 0);
    ssize_t done = 0, r = 1;
    while (done < (ssize_t)sizeof(buf) && r > 0) {
        r = splice(p[0], NULL, s, NULL, sizeof(buf) - (size_t)done, 0);
        done += r > 0 ? r : 0;
    }
    say(" spliced=%zd", done);
    say_result("empty", splice(p[0], NULL, s, NULL, 10, SPLICE_F_NONBLOCK));
    close(p[1]);
    say_result("end", splice(p[0], NULL, s, NULL, 10, 0));
    far_say("far", far_end());
}

static void splice_out(int s)
{
    int p[2];
    uint8_t buf[10000];
    must("pipe", pipe(p));
    far_do(FAR_SEND, 10000);
    ssize_t done = 0, r = 1;
    while (done < 10000 && r > 0) {
        r = splice(s, NULL, p[1], NULL, (size_t)(10000 - done), 0);
        done += r > 0 ? r : 0;
    }
    say(" spliced=%zd", done);
    must("read", read(p[0], buf, sizeof(buf)));
    check(buf, sizeof(buf));
    set_nonblock(s, true);
    say_result("empty", splice(s, NULL, p[1], NULL, 10, SPLICE_F_NONBLOCK));
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    say_result("end", splice(s, NULL, p[1], NULL, 10, 0));
}

static void nonblock_full(int s)
{
    set_nonblock(s, true);
    size_t total = fill_up(s);
    uint8_t c;
    say(" filled=%d", total > 0);
    ssize_t r;
    while (fill(&c, 1, sem_tx), (r = send(s, &c, 1, 0)) == 1) {
        sem_tx++; /* the kernel may find room for some more */
        total++;
    }
    say_result("full", r);
    say(" poll=%s", poll_names(poll_one(s, POLLOUT, 30)));
    far_begin(FAR_RECV, (int64_t)total, 0);
    say(" drained=%s", poll_names(poll_one(s, POLLOUT, 10000)));
    struct far_result res = far_end();
    say(" all=%d bad=%d", res.r == (int64_t)total, res.bad);
    say_result("more", send(s, &c, 1, 0));
    sem_tx++;
    far_say("far", far_do(FAR_RECV, 1));
}

/* Large writes that go in part, as an event loop does them. */
static void nonblock_loop(int s)
{
    static uint8_t buf[300000];
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLOUT | EPOLLET };
    must("epoll_ctl", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    set_nonblock(s, true);
    size_t done = 0;
    bool waited = false, bad = false;
    while (done < 20000000) {
        size_t n = 20000000 - done < sizeof(buf) ? 20000000 - done : sizeof(buf);
        fill(buf, n, sem_tx);
        ssize_t r = write(s, buf, n);
        if (r < 0 && errno == EAGAIN) {
            if (!waited)
                far_begin(FAR_RECV, 20000000, 0);
            waited = true;
            if (epoll_wait(ep, &ev, 1, 10000) != 1) {
                say(" no edge");
                return;
            }
            continue;
        }
        must("write", r);
        bad = bad || r == 0;
        sem_tx += (size_t)r;
        done += (size_t)r;
    }
    say(" waited=%d zero=%d", waited, bad);
    far_say("far", far_end());
}

static void msg_more(int s)
{
    uint8_t buf[3];
    fill(buf, 3, 0);
    far_begin(FAR_RECV, 2, 0);
    say_result("more", send(s, buf, 1, MSG_MORE));
    say_result("send", send(s, buf + 1, 1, 0));
    far_say("far", far_end());
    /* And without a second one it goes, later. */
    far_begin(FAR_RECV, 1, 0);
    say_result("more", send(s, buf + 2, 1, MSG_MORE));
    far_say("far", far_end());
}

static void cork(int s)
{
    int on = 1, off = 0, v = -1;
    socklen_t len = sizeof(v);
    must("TCP_CORK", setsockopt(s, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
    far_begin(FAR_RECV, 30, 0);
    send_next(s, 10);
    send_next(s, 10);
    must("TCP_CORK", getsockopt(s, IPPROTO_TCP, TCP_CORK, &v, &len));
    say(" cork=%d", v);
    send_next(s, 10);
    must("TCP_CORK", setsockopt(s, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
    far_say("far", far_end());
    must("TCP_NODELAY", setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
    must("TCP_NODELAY", getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, &len));
    say(" nodelay=%d", v);
    send_next(s, 1);
    far_say("far", far_do(FAR_RECV, 1));
}

static void many_small(int s)
{
    far_begin(FAR_RECV, 200000, 0);
    uint8_t buf[7];
    size_t done = 0;
    for (size_t i = 0; done < 200000; i++) {
        size_t n = 1 + i % 7;
        if (n > 200000 - done)
            n = 200000 - done;
        fill(buf, n, done);
        if (write(s, buf, n) != (ssize_t)n)
            break;
        done += n;
    }
    sem_tx = done;
    say(" sent=%zu", done);
    far_say("far", far_end());
}

/*
 * The last small write arrives although the program never calls again, and does not wait for a delayed acknowledgement.
 * (A busy machine may keep it waiting, too, but not on every new connection.)
 */
static void small_then_idle(int s)
{
    unsigned ms = 0;
    for (int i = 0; i < 20; i++) {
        far_begin(FAR_RECV, 3, 0);
        send_next(s, 1);
        send_next(s, 1);
        send_next(s, 1);
        uint64_t t = now_ms();
        struct far_result r = far_end();
        ms = (unsigned)(now_ms() - t);
        if (r.r != 3 || r.err != 0 || r.bad)
            far_say("far", r);
        if (ms <= 30)
            break;
        s = more();
    }
    say_time("arrived", ms, 0, 30);
}

static void sndtimeo(int s)
{
    struct timeval tv = { .tv_usec = 80000 };
    must("SO_SNDTIMEO", setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
    size_t len = 64 << 20;
    uint8_t *buf = malloc(len);
    fill(buf, len, 0);
    uint64_t t = now_ms();
    ssize_t r = send(s, buf, len, 0);
    say(" part=%d", r > 0 && r < (ssize_t)len);
    say_time("after", (unsigned)(now_ms() - t), 75, LATE_MS);
    fill_up(s);
    t = now_ms();
    say_result("full", send(s, buf, 1, 0));
    say_time("after", (unsigned)(now_ms() - t), 75, LATE_MS);
}

static void outq(int s)
{
    send_next(s, 5000);
    far_say("far", far_do(FAR_RECV, 5000));
    int n = -1;
    for (int i = 0; i < 200 && n != 0; i++) {
        must("SIOCOUTQ", ioctl(s, SIOCOUTQ, &n));
        sleep_ms(1);
    }
    say(" outq=%d", n);
}

const struct scenario sem_send[] = {
    { "sizes", sizes },
    { "nothing", nothing },
    { "writev_shapes", writev_shapes },
    { "writev_1000", writev_1000 },
    { "writev_large", writev_large },
    { "pwritev2", pwritev2_current },
    { "sendmsg", sendmsg_named },
    { "sendmmsg", sendmmsg_three },
    { "sendfile", sendfile_both },
    { "splice_in", splice_in },
    { "splice_out", splice_out },
    { "nonblock_full", nonblock_full },
    { "nonblock_loop", nonblock_loop },
    { "msg_more", msg_more },
    { "cork", cork },
    { "many_small", many_small },
    { "small_then_idle", small_then_idle },
    { "sndtimeo", sndtimeo },
    { "outq", outq },
    { NULL, NULL },
};
