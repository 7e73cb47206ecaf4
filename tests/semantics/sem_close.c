/*
 * Ends, continued: shutdown by halves, close with time, resets under way, SIGPIPE by every call.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void shutdown_calls(int s)
{
    int n = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    say_result("fresh", shutdown(n, SHUT_RDWR));
    say_result("how", shutdown(s, -1));
    say_result("how", shutdown(s, 17));
    say_result("bad_fd", shutdown(9999, SHUT_WR));
    say_result("not_a_socket", shutdown(STDIN_FILENO, SHUT_WR));
    say_result("write", shutdown(s, SHUT_WR));
    say_result("write", shutdown(s, SHUT_WR));
    say_result("read", shutdown(s, SHUT_RD));
    say_result("read", shutdown(s, SHUT_RD));
    say_result("both", shutdown(s, SHUT_RDWR));
    far_say("far", far_do(FAR_RECV, 1));
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLHUP, 10000);
    say_result("after", shutdown(s, SHUT_RDWR));
}

/* One side ends, and a lot goes the other way. */
static void half_then_much(int s)
{
    send_next(s, 1000);
    must("shutdown", shutdown(s, SHUT_WR));
    far_say("far", far_do(FAR_RECV, 2000));
    far_begin(FAR_SEND, 5000000, 0);
    say(" recv=%zu", recv_next(s, 5000000));
    far_say("far", far_end());
    far_do(FAR_SHUTDOWN, SHUT_WR);
    uint8_t c;
    say_result("end", recv(s, &c, 1, 0));
    say_result("close", close(s));
}

static void far_half_then_much(int s)
{
    far_do(FAR_SEND, 1000);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    far_begin(FAR_RECV, 5000001, 0);
    send_next(s, 5000000);
    say(" recv=%zu", recv_next(s, 2000));
    say_result("close", close(s));
    far_say("far", far_end());
}

/* The peer ends its direction while this end writes. (The kernels hold all of it: none is read meanwhile.) */
static void end_while_writing(int s)
{
    far_begin(FAR_SHUTDOWN, SHUT_WR, 20);
    for (int i = 0; i < 40; i++) {
        send_next(s, 1000);
        sleep_ms(1);
    }
    far_end();
    far_say("far", far_do(FAR_RECV, 40000));
    uint8_t c;
    say_result("end", recv(s, &c, 1, 0));
}

static void reset_in_waitall(int s)
{
    uint8_t buf[100];
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    far_begin(FAR_RESET, 0, 40);
    say_result("waitall", recv(s, buf, sizeof(buf), MSG_WAITALL));
    far_end();
    say_result("then", recv(s, buf, sizeof(buf), 0));
    say_result("then", recv(s, buf, sizeof(buf), 0));
}

static void reset_while_full(int s)
{
    uint8_t c = 0;
    /* (What is under way of a startup makes room when the other end takes it.) */
    far_do(FAR_SEND, 1);
    recv_next(s, 1);
    fill_up(s);
    far_begin(FAR_RESET, 0, 40);
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
    far_end();
    say_result("again", send(s, &c, 1, MSG_NOSIGNAL));
    say_result("recv", recv(s, &c, 1, 0));
}

static void reset_polled(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP };
    signal(SIGPIPE, SIG_IGN);
    far_do(FAR_RESET, 0);
    poll_one(s, POLLRDHUP, 10000);
    say_result("poll", poll(&p, 1, 0));
    say(" %s", poll_names(p.revents));
    say(" none=%s", poll_names(poll_one(s, 0, 0)));
    uint8_t c = 0;
    say_result("write", send(s, &c, 1, MSG_NOSIGNAL));
    say(" then=%s", poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 0)));
    say_result("shutdown", shutdown(s, SHUT_RDWR));
    say_result("read0", read(s, &c, 0));
    say_result("write0", write(s, &c, 0));
}

static void linger_close(int s, bool nonblock, int seconds, size_t len)
{
    struct linger lin = { .l_onoff = 1, .l_linger = seconds };
    must("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
    far_begin(FAR_RECV, (int64_t)len + 1, 30);
    send_next(s, len);
    set_nonblock(s, nonblock);
    say_result("close", close(s));
    far_say("far", far_end());
}

static void linger_blocking(int s)
{
    linger_close(s, false, 15, 100000);
}

static void linger_nonblock(int s)
{
    linger_close(s, true, 15, 100000);
}

/* Time is over before the peer has read anything. */
static void linger_short(int s)
{
    struct linger lin = { .l_onoff = 1, .l_linger = 1 };
    must("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
    fill_up(s);
    uint64_t t = now_ms();
    say_result("close", close(s));
    say_time("after", (unsigned)(now_ms() - t), 900, LATE_MS);
}

static void linger_nothing(int s)
{
    struct linger lin = { .l_onoff = 1, .l_linger = 15 };
    must("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_begin(FAR_RECV, 1, 0);
    uint64_t t = now_ms();
    say_result("close", close(s));
    say_time("after", (unsigned)(now_ms() - t), 0, 12000);
    far_say("far", far_end());
}

static volatile sig_atomic_t pipes, pipe_thread;

static void on_pipe(int number)
{
    (void)number;
    pipes++;
    pipe_thread = (sig_atomic_t)gettid();
}

/* A write of each kind to a connection that its own program has shut. */
static void sigpipe_calls(int s)
{
    struct sigaction sa = { .sa_handler = on_pipe };
    uint8_t c[2] = { 0 };
    struct iovec iov[2] = { { c, 1 }, { c + 1, 1 } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    struct mmsghdr mm[2] = { { .msg_hdr = m }, { .msg_hdr = m } };
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
    must("shutdown", shutdown(s, SHUT_WR));
#define EACH(name, call)        \
    do {                        \
        pipes = 0;              \
        say_result(name, call); \
        say(":%d", (int)pipes); \
    } while (0)
    EACH("write", write(s, c, 1));
    EACH("writev", writev(s, iov, 2));
    EACH("pwritev2", pwritev2(s, iov, 2, -1, 0));
    EACH("send", send(s, c, 1, 0));
    EACH("dontwait", send(s, c, 1, MSG_DONTWAIT));
    EACH("sendto", sendto(s, c, 1, 0, NULL, 0));
    EACH("sendmsg", sendmsg(s, &m, 0));
    EACH("sendmmsg", sendmmsg(s, mm, 2, 0));
    EACH("nosignal", sendmsg(s, &m, MSG_NOSIGNAL));
    EACH("mm_nosignal", sendmmsg(s, mm, 2, MSG_NOSIGNAL));
    EACH("send0", send(s, c, 0, 0));
    EACH("write0", write(s, c, 0));
    EACH("writev0", writev(s, iov, 0));
}

/* The peer has gone: an error first, the signal afterwards. */
static void sigpipe_peer(int s)
{
    struct sigaction sa = { .sa_handler = on_pipe };
    uint8_t c = 0;
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
    far_do(FAR_RESET, 0);
    poll_one(s, POLLIN, 10000);
    EACH("first", write(s, &c, 1));
    EACH("second", write(s, &c, 1));
    EACH("third", send(s, &c, 1, MSG_NOSIGNAL));
    EACH("recv", recv(s, &c, 1, 0));
}

static void sigpipe_closed(int s)
{
    struct sigaction sa = { .sa_handler = on_pipe };
    uint8_t c = 0;
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    EACH("first", write(s, &c, 1));
    poll_one(s, POLLHUP, 10000);
    EACH("second", write(s, &c, 1));
    EACH("third", write(s, &c, 1));
}

static void sigpipe_blocked(int s)
{
    sigset_t set, pending;
    uint8_t c = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    must("sigprocmask", sigprocmask(SIG_BLOCK, &set, NULL));
    must("shutdown", shutdown(s, SHUT_WR));
    say_result("nosignal", send(s, &c, 1, MSG_NOSIGNAL));
    sigpending(&pending);
    say(" pending=%d", sigismember(&pending, SIGPIPE));
    say_result("write", write(s, &c, 1));
    sigpending(&pending);
    say(" pending=%d", sigismember(&pending, SIGPIPE));
    struct timespec ts = { 0 };
    siginfo_t info;
    say(" taken=%d", sigtimedwait(&set, &info, &ts) == SIGPIPE);
    sigpending(&pending);
    say(" pending=%d", sigismember(&pending, SIGPIPE));
}

static void *pipe_writer(void *arg)
{
    uint8_t c = 0;
    ssize_t r = write(*(int *)arg, &c, 1);
    return (void *)(intptr_t)(r < 0 && errno == EPIPE && pipe_thread == gettid());
}

/* It is the writing thread's signal. */
static void sigpipe_thread(int s)
{
    struct sigaction sa = { .sa_handler = on_pipe };
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
    must("shutdown", shutdown(s, SHUT_WR));
    pthread_t t;
    void *own;
    must("pthread_create", -pthread_create(&t, NULL, pipe_writer, &s));
    pthread_join(t, &own);
    say(" own=%d pipes=%d", own != NULL, (int)pipes);
}

/* And without a handler it ends the process. */
static void sigpipe_ends(int s)
{
    must("shutdown", shutdown(s, SHUT_WR));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        uint8_t c = 0;
        signal(SIGPIPE, SIG_DFL);
        ssize_t r = write(s, &c, 1);
        _exit(r < 0 ? 7 : 8);
    }
    int status = 0;
    must("waitpid", waitpid(pid, &status, 0));
    say(" signal=%d", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
}

static void close_twice(int s)
{
    say_result("close", close(s));
    say_result("close", close(s));
    uint8_t c;
    say_result("read", read(s, &c, 1));
    say_result("write", write(s, &c, 1));
    say_result("getpeername", getpeername(s, NULL, NULL));
    say_result("shutdown", shutdown(s, SHUT_WR));
    say_result("dup", dup(s));
    say(" poll=%s", poll_names(poll_one(s, POLLIN, 0)));
    far_say("far", far_do(FAR_RECV, 1));
}

static void close_ranges(int s)
{
    int low = fcntl(s, F_DUPFD, 300), high = fcntl(s, F_DUPFD, 400);
    say_result("cloexec", close_range(300, 350, CLOSE_RANGE_CLOEXEC));
    say(" flags=%d,%d", fcntl(low, F_GETFD), fcntl(high, F_GETFD));
    send_next(low, 10);
    say_result("reversed", close_range(5, 4, 0));
    say_result("flags", close_range(300, 350, 0x100));
    say_result("unshare", close_range(390, 450, CLOSE_RANGE_UNSHARE));
    say_result("high", write(high, "x", 1));
    far_say("far", far_do(FAR_RECV, 10));
    say_result("low", close_range(300, 350, 0));
    say_result("low", write(low, "x", 1));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    int again = fcntl(s, F_DUPFD, 500);
    closefrom(500);
    say_result("again", write(again, "x", 1));
    far_begin(FAR_RECV, 1, 0);
    say_result("close", close(s));
    far_say("far", far_end());
}

const struct scenario sem_close[] = {
    { "shutdown_calls", shutdown_calls },
    { "half_then_much", half_then_much },
    { "far_half_then_much", far_half_then_much },
    { "end_while_writing", end_while_writing },
    { "reset_in_waitall", reset_in_waitall },
    { "reset_while_full", reset_while_full },
    { "reset_polled", reset_polled },
    { "linger_blocking", linger_blocking },
    { "linger_nonblock", linger_nonblock },
    { "linger_short", linger_short },
    { "linger_nothing", linger_nothing },
    { "sigpipe_calls", sigpipe_calls },
    { "sigpipe_peer", sigpipe_peer },
    { "sigpipe_closed", sigpipe_closed },
    { "sigpipe_blocked", sigpipe_blocked },
    { "sigpipe_thread", sigpipe_thread },
    { "sigpipe_ends", sigpipe_ends },
    { "close_twice", close_twice },
    { "close_ranges", close_ranges },
    { NULL, NULL },
};
