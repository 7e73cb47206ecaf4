/*
 * Ends: half-close, close with octets under way or unread, resets, SIGPIPE.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void close_with(int s, int linger_s)
{
    struct linger lin = { .l_onoff = 1, .l_linger = linger_s };
    must("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
    say_result("close", close(s));
}

static int so_error(int s)
{
    int err = -1;
    socklen_t len = sizeof(err);
    must("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
    return err;
}

/* RFC 5041 6.2.1/7: the other half goes on. */
static void half_close_near(int s)
{
    uint8_t c;
    send_next(s, 100);
    say_result("shutdown", shutdown(s, SHUT_WR));
    far_say("far", far_do(FAR_RECV, 200));
    far_do(FAR_SEND, 50000);
    say(" back=%zu", recv_next(s, 50000));
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
    far_do(FAR_CLOSE, 0);
    say_result("end", recv(s, &c, 1, 0));
    say_result("end", recv(s, &c, 1, 0));
}

/* RFC 5041 6.2.1/4-6: told as the end of the stream; the way out goes on until close() ends it as gracefully. */
static void half_close_far(int s)
{
    uint8_t c;
    far_do(FAR_SEND, 10);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" recv=%zu", recv_next(s, 20));
    say_result("end", recv(s, &c, 1, 0));
    far_begin(FAR_RECV, 300000, 0);
    send_next(s, 300000);
    far_say("far", far_end());
    say_result("end", recv(s, &c, 1, 0));
    say_result("close", close(s));
    far_say("far", far_do(FAR_RECV, 1));
}

static void half_close_both(int s)
{
    uint8_t c;
    send_next(s, 10);
    far_do(FAR_SEND, 10);
    say_result("shutdown", shutdown(s, SHUT_WR));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" recv=%zu", recv_next(s, 20));
    far_say("far", far_do(FAR_RECV, 20));
    say_result("end", recv(s, &c, 1, 0));
    say_result("shutdown", shutdown(s, SHUT_WR));
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 10000)));
}

static void shut_read(int s)
{
    uint8_t buf[10];
    say_result("shutdown", shutdown(s, SHUT_RD));
    say_result("end", recv(s, buf, sizeof(buf), 0));
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLRDHUP, 0)));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    /* Linux hands over what comes all the same. */
    far_do(FAR_SEND, 5);
    int n = 0;
    for (int i = 0; i < 10000 && n < 5; i++, sleep_ms(1))
        must("FIONREAD", ioctl(s, FIONREAD, &n));
    say_result("late", recv(s, buf, sizeof(buf), 0));
    say_result("end", recv(s, buf, sizeof(buf), 0));
}

static void shut_read_unread(int s)
{
    uint8_t buf[10];
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    recv_next(s, 4);
    say_result("shutdown", shutdown(s, SHUT_RD));
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say_result("end", recv(s, buf, sizeof(buf), 0));
}

static void shut_both(int s)
{
    uint8_t c;
    send_next(s, 100);
    say_result("shutdown", shutdown(s, SHUT_RDWR));
    say_result("recv", recv(s, &c, 1, 0));
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
    far_say("far", far_do(FAR_RECV, 200));
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 0)));
    far_do(FAR_CLOSE, 0);
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    for (int i = 0; i < 5000 && info.tcpi_state != TCP_CLOSE; i++, sleep_ms(1))
        must("TCP_INFO", syscall(SYS_getsockopt, s, IPPROTO_TCP, TCP_INFO, &info, &len));
    say_result("shutdown", shutdown(s, SHUT_RDWR));
}

static void shut_bad(int s)
{
    say_result("how3", shutdown(s, 3));
    send_next(s, 1);
    far_say("far", far_do(FAR_RECV, 1));
}

static void on_pipe(int number)
{
    (void)number;
    sem_signals++;
}

static void sigpipe(int s)
{
    uint8_t c = 0;
    struct sigaction sa = { .sa_handler = on_pipe };
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
    must("shutdown", shutdown(s, SHUT_WR));
    say_result("nosignal", send(s, &c, 1, MSG_NOSIGNAL));
    say(" signals=%d", sem_signals);
    say_result("send", send(s, &c, 1, 0));
    say(" signals=%d", sem_signals);
    say_result("write", write(s, &c, 1));
    say(" signals=%d", sem_signals);
    signal(SIGPIPE, SIG_IGN);
    say_result("ignored", write(s, &c, 1));
    say(" signals=%d", sem_signals);
    say_result("zero", send(s, &c, 0, MSG_NOSIGNAL));
}

static void reset_recv(int s)
{
    uint8_t c = 0;
    far_do(FAR_RESET, 0);
    say(" poll=%s", poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 10000)));
    say_result("recv", recv(s, &c, 1, 0));
    say_result("then", recv(s, &c, 1, 0));
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
}

static void reset_blocked(int s)
{
    uint8_t c = 0;
    far_begin(FAR_RESET, 0, 40);
    say_result("recv", recv(s, &c, 1, 0));
    far_end();
    say_result("then", recv(s, &c, 1, 0));
}

/* RFC 5041 3 item 3: what TCP cannot transfer is the call's error. */
static void reset_send(int s)
{
    uint8_t c = 0;
    far_do(FAR_RESET, 0);
    poll_one(s, POLLIN, 10000);
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
    say_result("send", send(s, &c, 1, MSG_NOSIGNAL));
    say_result("recv", recv(s, &c, 1, 0));
}

static void reset_so_error(int s)
{
    uint8_t c = 0;
    far_do(FAR_RESET, 0);
    poll_one(s, POLLIN, 10000);
    say(" error=%d", so_error(s) == ECONNRESET);
    say(" again=%d", so_error(s));
    say_result("recv", recv(s, &c, 1, 0));
}

/* Octets that wait are lost when a reset comes, as far as the program has not read them. */
static void reset_unread(int s)
{
    uint8_t buf[10];
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    far_do(FAR_RESET, 0);
    poll_one(s, POLLRDHUP, 10000);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say_result("then", recv(s, buf, sizeof(buf), 0));
}

static void close_unread(int s)
{
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    far_begin(FAR_RECV, 1, 0);
    say_result("close", close(s));
    far_say("far", far_end());
}

static void close_half_read(int s)
{
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    recv_next(s, 4);
    far_begin(FAR_RECV, 1, 0);
    say_result("close", close(s));
    far_say("far", far_end());
}

static void close_reset(int s)
{
    send_next(s, 3);
    far_say("far", far_do(FAR_RECV, 3));
    far_begin(FAR_RECV, 1, 0);
    close_with(s, 0);
    far_say("far", far_end());
}

static void close_linger(int s)
{
    far_begin(FAR_RECV, 300001, 0);
    send_next(s, 300000);
    close_with(s, 3);
    far_say("far", far_end());
}

static void close_under_way(int s)
{
    far_begin(FAR_RECV, 2000001, 30);
    send_next(s, 2000000);
    say_result("close", close(s));
    far_say("far", far_end());
}

/* A non-blocking program that leaves right after its last write. */
static void close_nonblock(int s)
{
    set_nonblock(s, true);
    size_t total = fill_up(s);
    say_result("close", close(s));
    struct far_result res = far_do(FAR_RECV, (int64_t)total + 1);
    say(" all=%d err=%d bad=%d", res.r == (int64_t)total, res.err, res.bad);
}

static void close_then_reads(int s)
{
    uint8_t c = 0;
    send_next(s, 10);
    say_result("close", close(s));
    say_result("recv", recv(s, &c, 1, 0));
    say_result("send", send(s, &c, 1, 0));
    say_result("close", close(s));
    far_say("far", far_do(FAR_RECV, 20));
}

static void far_closes_sending(int s)
{
    uint8_t c = 0;
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    say_result("first", send(s, &c, 1, MSG_NOSIGNAL));
    say(" poll=%s", poll_names(poll_one(s, POLLHUP, 10000)));
    say_result("second", send(s, &c, 1, MSG_NOSIGNAL));
    say_result("recv", recv(s, &c, 1, 0));
}

static void far_closes_unread(int s)
{
    uint8_t c = 0;
    send_next(s, 10);
    far_do(FAR_RECV, 3);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLHUP, 10000);
    say_result("recv", recv(s, &c, 1, 0));
    say_result("then", recv(s, &c, 1, 0));
}

static void far_exits(int s)
{
    far_begin(FAR_SEND, 300000, 0);
    say(" recv=%zu", recv_next(s, 200000));
    far_end();
    far_begin(FAR_EXIT, 0, 0);
    say(" rest=%zu", recv_next(s, 200000));
}

static void end_poll(int s)
{
    uint8_t c;
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" in=%s", poll_names(poll_one(s, POLLIN, 10000)));
    say(" rdhup=%s", poll_names(poll_one(s, POLLIN | POLLRDHUP, 10000)));
    say(" none=%s", poll_names(poll_one(s, 0, 0)));
    say_result("end", recv(s, &c, 1, 0));
    say(" still=%s", poll_names(poll_one(s, POLLIN | POLLRDHUP, 0)));
    shutdown(s, SHUT_WR);
    say(" both=%s", poll_names(poll_one(s, POLLIN | POLLOUT | POLLRDHUP, 0)));
}

const struct scenario sem_end[] = {
    { "half_close_near", half_close_near },
    { "half_close_far", half_close_far },
    { "half_close_both", half_close_both },
    { "shut_read", shut_read },
    { "shut_read_unread", shut_read_unread },
    { "shut_both", shut_both },
    { "shut_bad", shut_bad },
    { "sigpipe", sigpipe },
    { "reset_recv", reset_recv },
    { "reset_blocked", reset_blocked },
    { "reset_send", reset_send },
    { "reset_so_error", reset_so_error },
    { "reset_unread", reset_unread },
    { "close_unread", close_unread },
    { "close_half_read", close_half_read },
    { "close_reset", close_reset },
    { "close_linger", close_linger },
    { "close_under_way", close_under_way },
    { "close_nonblock", close_nonblock },
    { "close_then_reads", close_then_reads },
    { "far_closes_sending", far_closes_sending },
    { "far_closes_unread", far_closes_unread },
    { "far_exits", far_exits },
    { "end_poll", end_poll },
    { NULL, NULL },
};
