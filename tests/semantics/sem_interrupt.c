/*
 * Every call that waits, interrupted: with and without SA_RESTART, with a time-out; handlers that use connections
 * themselves, and handlers that jump out.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static uint8_t octets[16];
static struct iovec one = { octets, 1 };
static int a_pipe[2], a_file;

enum call {
    READ,
    READV,
    RECV,
    PEEK,
    WAITALL,
    RECVFROM,
    RECVMSG,
    RECVMMSG,
    PREADV2,
    SPLICE_FROM,
    RECVS,
    WRITE = RECVS,
    WRITEV,
    SEND,
    SENDMSG,
    SENDMMSG,
    PWRITEV2,
    SENDFILE,
    SPLICE_TO,
    CALLS
};

static const char *const call_name[CALLS] = {
    "read",        "readv", "recv",   "peek", "waitall", "recvfrom", "recvmsg",  "recvmmsg", "preadv2",
    "splice_from", "write", "writev", "send", "sendmsg", "sendmmsg", "pwritev2", "sendfile", "splice_to",
};

/* One octet by each of them. */
static ssize_t do_call(enum call call, int s)
{
    struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1 };
    struct mmsghdr mm = { .msg_hdr = m };
    switch (call) {
    case READ:
        return read(s, octets, 1);
    case READV:
        return readv(s, &one, 1);
    case RECV:
        return recv(s, octets, 1, 0);
    case PEEK:
        return recv(s, octets, 1, MSG_PEEK);
    case WAITALL:
        return recv(s, octets, 1, MSG_WAITALL);
    case RECVFROM:
        return recvfrom(s, octets, 1, 0, NULL, NULL);
    case RECVMSG:
        return recvmsg(s, &m, 0);
    case RECVMMSG:
        return recvmmsg(s, &mm, 1, 0, NULL);
    case PREADV2:
        return preadv2(s, &one, 1, -1, 0);
    case SPLICE_FROM:
        return splice(s, NULL, a_pipe[1], NULL, 1, 0);
    case WRITE:
        return write(s, octets, 1);
    case WRITEV:
        return writev(s, &one, 1);
    case SEND:
        return send(s, octets, 1, 0);
    case SENDMSG:
        return sendmsg(s, &m, 0);
    case SENDMMSG:
        return sendmmsg(s, &mm, 1, 0);
    case PWRITEV2:
        return pwritev2(s, &one, 1, -1, 0);
    case SENDFILE: {
        off_t off = 0;
        return sendfile(s, a_file, &off, 1);
    }
    case SPLICE_TO: {
        ssize_t r = splice(a_pipe[0], NULL, s, NULL, 1, 0);
        if (r == 1)
            must("write", write(a_pipe[1], octets, 1));
        return r;
    }
    default:
        return -1;
    }
}

static void setup(void)
{
    FILE *f = tmpfile();
    static const uint8_t zeros[1000];
    must("pipe", pipe(a_pipe));
    if (f == NULL || fwrite(zeros, 1, sizeof(zeros), f) != sizeof(zeros) || fflush(f) != 0)
        must("tmpfile", -1);
    a_file = fileno(f);
    must("write", write(a_pipe[1], zeros, sizeof(zeros)));
}

static void receives_interrupted(int s)
{
    setup();
    signals_begin(NULL, false);
    for (enum call c = 0; c < RECVS; c++)
        say_result(call_name[c], do_call(c, s));
}

static void receives_restarted(int s)
{
    setup();
    signals_begin(NULL, true);
    for (enum call c = 0; c < RECVS; c++) {
        far_begin(FAR_SEND, 1, 40);
        say_result(call_name[c], do_call(c, s));
        far_end();
        if (c == PEEK)
            say_result("peeked", recv(s, octets, 1, 0));
    }
}

/* signal(7): with a time-out they are not restarted. */
static void receives_timed(int s)
{
    struct timeval tv = { .tv_sec = 10 };
    setup();
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    signals_begin(NULL, true);
    for (enum call c = 0; c < SPLICE_FROM; c++)
        say_result(call_name[c], do_call(c, s));
}

/* (The kernel may find room for more octets now and then.) */
static void sends(enum call from, enum call to, int s)
{
    for (enum call c = from; c < to; c++) {
        ssize_t r = 1;
        for (int i = 0; i < 2000000 && r == 1; i++)
            r = do_call(c, s);
        say_result(call_name[c], r);
    }
}

static void sends_interrupted(int s)
{
    setup();
    fill_up(s);
    signals_begin(NULL, false);
    sends(WRITE, CALLS, s);
}

static void sends_timed(int s)
{
    struct timeval tv = { .tv_sec = 10 };
    setup();
    fill_up(s);
    must("SO_SNDTIMEO", setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
    signals_begin(NULL, true);
    sends(WRITE, SENDFILE, s);
}

static void sends_restarted(int s)
{
    setup();
    size_t total = fill_up(s);
    uint8_t c;
    fill(&c, 1, sem_tx);
    struct iovec iov = { &c, 1 };
    signals_begin(NULL, true);
    far_begin(FAR_RECV, (int64_t)total + 1, 60);
    say_result("writev", writev(s, &iov, 1));
    sem_tx++;
    struct far_result res = far_end();
    say(" all=%d bad=%d", res.r == (int64_t)total + 1, res.bad);
}

/* Something else is read while a connection may still have to be decided. */
static void pipe_interrupted(int s)
{
    uint8_t c;
    (void)s;
    must("pipe", pipe(a_pipe));
    int pair[2];
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct timeval tv = { .tv_usec = 60000 };
    must("SO_RCVTIMEO", setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    uint64_t t = now_ms();
    say_result("timed", recv(pair[0], &c, 1, 0));
    say_time("after", (unsigned)(now_ms() - t), 55, LATE_MS);
    tv.tv_sec = 10;
    must("SO_RCVTIMEO", setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    signals_begin(NULL, false);
    say_result("read", read(a_pipe[0], &c, 1));
    say_result("recv", recv(pair[0], &c, 1, 0));
    say_result("recvmsg", recvmsg(pair[0], &(struct msghdr){ .msg_iov = &one, .msg_iovlen = 1 }, 0));
}

static void accept_timed(int s)
{
    (void)s;
    struct timeval tv = { .tv_sec = 10 };
    must("SO_RCVTIMEO", setsockopt(sem_listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    signals_begin(NULL, true);
    say_result("accept", accept(sem_listener, NULL, NULL));
    say_result("accept4", accept4(sem_listener, NULL, NULL, SOCK_CLOEXEC));
}

static void waits_interrupted_too(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN };
    struct timespec ts = { .tv_sec = 10 };
    fd_set r;
    FD_ZERO(&r);
    FD_SET(s, &r);
    signals_begin(NULL, true);
    say_result("poll", poll(&p, 1, -1));
    say_result("ppoll", ppoll(&p, 1, NULL, NULL));
    say_result("select", select(s + 1, &r, NULL, NULL, NULL));
    say_result("pselect", pselect(s + 1, &r, NULL, NULL, &ts, NULL));
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLIN };
    must("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    say_result("epoll_wait", epoll_wait(ep, &ev, 1, -1));
    say_result("epoll_pwait", epoll_pwait(ep, &ev, 1, -1, NULL));
    say_result("epoll_pwait2", epoll_pwait2(ep, &ev, 1, &ts, NULL));
    signal(SIGUSR1, SIG_IGN);
    /* And what comes next is as ever. */
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("poll", poll(&p, 1, 10000));
    say(" recv=%zu", recv_next(s, 10));
}

/* ---- handlers that use connections ---- */

static int same, other;
static volatile ssize_t got_same, got_other, sent_other;
static volatile int err_same;

static void using_handler(int number)
{
    (void)number;
    int err = errno;
    uint8_t c[4];
    if (sem_signals++ > 0)
        return;
    got_same = recv(same, c, sizeof(c), MSG_DONTWAIT);
    err_same = got_same < 0 ? errno : 0;
    got_other = recv(other, c, sizeof(c), MSG_DONTWAIT);
    fill(c, 1, 0);
    sent_other = send(other, c, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    errno = err;
}

/* A second connection of this end; it has the far end's attention from now on. */
static int another_connection(void)
{
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = (int)must("accept", accept(sem_listener, NULL, NULL));
    must("connect", far_end().r);
    return c;
}

static void handler_uses_another(int s)
{
    uint8_t buf[10];
    same = s;
    other = another_connection();
    far_do(FAR_SEND, 4);
    await_octets(other, 4);
    signals_begin(using_handler, false);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say(" same=%zd again=%d other=%zd sent=%zd", got_same, err_same == EAGAIN, got_other, sent_other);
    far_say("far", far_do(FAR_RECV, 1));
}

static void handler_in_poll(int s)
{
    same = s;
    other = another_connection();
    far_do(FAR_SEND, 4);
    await_octets(other, 4);
    signals_begin(using_handler, true);
    struct pollfd p = { .fd = s, .events = POLLIN };
    say_result("poll", poll(&p, 1, 10000));
    say(" same=%zd again=%d other=%zd sent=%zd", got_same, err_same == EAGAIN, got_other, sent_other);
    far_say("far", far_do(FAR_RECV, 1));
}

static void handler_while_full(int s)
{
    uint8_t c = 0;
    same = s;
    other = another_connection();
    fill_up(s);
    signals_begin(using_handler, false);
    say_result("send", send(s, &c, 1, 0));
    say(" same=%zd again=%d sent=%zd", got_same, err_same == EAGAIN, sent_other);
    far_say("far", far_do(FAR_RECV, 1));
}

static sigjmp_buf back;

static void jump(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static void jump_soon(void)
{
    signal_after(20, false);
    struct sigaction sa = { .sa_handler = jump };
    must("sigaction", sigaction(SIGUSR1, &sa, NULL));
}

/* Out of a waiting call, and on with the connection. */
static void jump_out(int s)
{
    uint8_t buf[10];
    struct pollfd p = { .fd = s, .events = POLLIN };
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) {
            jump_soon();
            ssize_t r = i == 0   ? recv(s, buf, sizeof(buf), 0)
                        : i == 1 ? recv(s, buf, sizeof(buf), MSG_WAITALL)
                                 : poll(&p, 1, -1);
            say_result("unexpected", r);
        } else {
            say(" jumped");
        }
        far_do(FAR_SEND, 10);
        say(" recv=%zu", recv_next(s, 10));
        send_next(s, 10);
        far_say("far", far_do(FAR_RECV, 10));
    }
    far_begin(FAR_RECV, 1, 0);
    say_result("close", close(s));
    far_say("far", far_end());
}

static void jump_out_of_send(int s)
{
    uint8_t c;
    fill_up(s);
    if (sigsetjmp(back, 1) == 0) {
        jump_soon();
        for (;; sem_tx++) {
            fill(&c, 1, sem_tx);
            must("send", send(s, &c, 1, 0));
        }
    }
    say(" jumped");
    struct far_result res = far_do(FAR_RECV, (int64_t)sem_tx);
    say(" all=%d bad=%d", res.r == (int64_t)sem_tx, res.bad);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(s, 10));
}

static void *cancelled_reader(void *arg)
{
    uint8_t buf[10];
    ssize_t r = recv(*(int *)arg, buf, sizeof(buf), 0);
    say_result("unexpected", r);
    return NULL;
}

/* A thread that is cancelled in recv leaves the connection to the others. */
static void cancel_reader(int s)
{
    for (int i = 0; i < 2; i++) {
        pthread_t t;
        void *end;
        must("pthread_create", -pthread_create(&t, NULL, cancelled_reader, &s));
        others_sleep();
        say_result("cancel", -pthread_cancel(t));
        pthread_join(t, &end);
        say(" cancelled=%d", end == PTHREAD_CANCELED);
        far_do(FAR_SEND, 10);
        say(" recv=%zu", recv_next(s, 10));
    }
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_begin(FAR_RECV, 1, 0);
    say_result("close", close(s));
    far_say("far", far_end());
}

const struct scenario sem_interrupt[] = {
    { "receives_interrupted", receives_interrupted },
    { "receives_restarted", receives_restarted },
    { "receives_timed", receives_timed },
    { "sends_interrupted", sends_interrupted },
    { "sends_timed", sends_timed },
    { "sends_restarted", sends_restarted },
    { "pipe_interrupted", pipe_interrupted },
    { "accept_timed", accept_timed },
    { "waits_interrupted_too", waits_interrupted_too },
    { "handler_uses_another", handler_uses_another },
    { "handler_in_poll", handler_in_poll },
    { "handler_while_full", handler_while_full },
    { "jump_out", jump_out },
    { "jump_out_of_send", jump_out_of_send },
    { "cancel_reader", cancel_reader },
    { NULL, NULL },
};
