/*
 * Socket options, read back and refused; ioctl and fcntl.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

/* Says an int option's value. */
static void say_option(const char *what, int s, int level, int name)
{
    int v = -77;
    socklen_t len = sizeof(v);
    if (getsockopt(s, level, name, &v, &len) < 0)
        say_result(what, -1);
    else
        say(" %s=%d/%u", what, v, (unsigned)len);
}

static void set_option(const char *what, int s, int level, int name, int v)
{
    int r = setsockopt(s, level, name, &v, sizeof(v));
    if (r < 0)
        say_result(what, r);
    else
        say_option(what, s, level, name);
}

static void option_identity(int s)
{
    say_option("type", s, SOL_SOCKET, SO_TYPE);
    say_option("domain", s, SOL_SOCKET, SO_DOMAIN);
    say_option("protocol", s, SOL_SOCKET, SO_PROTOCOL);
    say_option("accepting", s, SOL_SOCKET, SO_ACCEPTCONN);
    say_option("listener", sem_listener, SOL_SOCKET, SO_ACCEPTCONN);
    say_option("error", s, SOL_SOCKET, SO_ERROR);
    say_option("lowat", s, SOL_SOCKET, SO_RCVLOWAT);
    say_option("sndlowat", s, SOL_SOCKET, SO_SNDLOWAT);
    say_option("nodelay", s, IPPROTO_TCP, TCP_NODELAY);
    say_option("cork", s, IPPROTO_TCP, TCP_CORK);
    say_option("linger2", s, IPPROTO_TCP, TCP_LINGER2);
    say_option("oobinline", s, SOL_SOCKET, SO_OOBINLINE);
    say_option("zerocopy", s, SOL_SOCKET, SO_ZEROCOPY);
    say_option("readonly", s, SOL_SOCKET, SO_PEERCRED);
    set_option("set_type", s, SOL_SOCKET, SO_TYPE, 1);
    set_option("set_error", s, SOL_SOCKET, SO_ERROR, 1);
}

static void option_buffers(int s)
{
    set_option("rcvbuf", s, SOL_SOCKET, SO_RCVBUF, 50000);
    set_option("sndbuf", s, SOL_SOCKET, SO_SNDBUF, 50000);
    set_option("least_rcv", s, SOL_SOCKET, SO_RCVBUF, 1);
    set_option("least_snd", s, SOL_SOCKET, SO_SNDBUF, 1);
    set_option("sndlowat", s, SOL_SOCKET, SO_SNDLOWAT, 5);
    /* And octets go through buffers as small as can be. */
    far_begin(FAR_ECHO, 20000, 0);
    for (int i = 0; i < 20; i++) {
        send_next(s, 1000);
        if (recv_next(s, 1000) != 1000)
            say(" short");
    }
    far_say("far", far_end());
}

static void option_times(int s)
{
    static const struct timeval times[] = {
        { 0, 1 }, { 0, 1500 }, { 3, 999999 }, { 0, 0 }, { 1000000, 0 }, { -1, 0 }, { 0, 1000000 }, { 0, -1 },
    };
    for (int which = 0; which < 2; which++) {
        int name = which ? SO_SNDTIMEO : SO_RCVTIMEO;
        for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
            struct timeval tv = times[i];
            int r = setsockopt(s, SOL_SOCKET, name, &tv, sizeof(tv));
            if (r < 0)
                say_result("set", r);
            socklen_t len = sizeof(tv);
            must("get", getsockopt(s, SOL_SOCKET, name, &tv, &len));
            say(" %lld.%06ld/%u", (long long)tv.tv_sec, tv.tv_usec, (unsigned)len);
        }
    }
    int v = 5;
    say_result("short", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &v, sizeof(v)));
}

static void option_linger(int s)
{
    static const struct linger values[] = { { 1, 5 }, { 0, 5 }, { 1, 0 }, { 7, 1 }, { 1, -1 } };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct linger lin = values[i];
        say_result("set", setsockopt(s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin)));
        socklen_t len = sizeof(lin);
        must("get", getsockopt(s, SOL_SOCKET, SO_LINGER, &lin, &len));
        say(" %d,%d", lin.l_onoff, lin.l_linger);
    }
    int v = 1;
    say_result("short", setsockopt(s, SOL_SOCKET, SO_LINGER, &v, sizeof(v)));
}

static void option_tcp(int s)
{
    set_option("nodelay", s, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option("nodelay", s, IPPROTO_TCP, TCP_NODELAY, 7);
    set_option("nodelay", s, IPPROTO_TCP, TCP_NODELAY, 0);
    set_option("cork", s, IPPROTO_TCP, TCP_CORK, 1);
    set_option("cork", s, IPPROTO_TCP, TCP_CORK, 0);
    set_option("keepidle", s, IPPROTO_TCP, TCP_KEEPIDLE, 70);
    set_option("keepintvl", s, IPPROTO_TCP, TCP_KEEPINTVL, 7);
    set_option("keepcnt", s, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option("keepidle_bad", s, IPPROTO_TCP, TCP_KEEPIDLE, 0);
    set_option("user_timeout", s, IPPROTO_TCP, TCP_USER_TIMEOUT, 12345);
    set_option("defer_accept", s, IPPROTO_TCP, TCP_DEFER_ACCEPT, 3);
    set_option("syncnt", s, IPPROTO_TCP, TCP_SYNCNT, 4);
    set_option("linger2", s, IPPROTO_TCP, TCP_LINGER2, 9);
    set_option("window_clamp", s, IPPROTO_TCP, TCP_WINDOW_CLAMP, 60000);
    set_option("notsent_lowat", s, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 20000);
    set_option("fastopen", s, IPPROTO_TCP, TCP_FASTOPEN, 5);
    set_option("fastopen_listener", sem_listener, IPPROTO_TCP, TCP_FASTOPEN, 5);
    set_option("fastopen_connect", s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);
    set_option("maxseg_bad", s, IPPROTO_TCP, TCP_MAXSEG, 1);
    set_option("repair", s, IPPROTO_TCP, 9999, 1);
    int quick = 1;
    say_result("quickack", setsockopt(s, IPPROTO_TCP, TCP_QUICKACK, &quick, sizeof(quick)));
    char name[32] = "";
    socklen_t len = sizeof(name);
    say_result("congestion", getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &len));
    say_result("set_congestion", setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)));
    say_result("bad_congestion", setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "nosuch", 6));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static int tcp_state(int s)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    must("TCP_INFO", getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len));
    return info.tcpi_state;
}

/* The states of RFC 9293, as the kernel numbers them. */
static void option_tcp_info(int s)
{
    say(" up=%d listen=%d", tcp_state(s), tcp_state(sem_listener));
    must("shutdown", shutdown(s, SHUT_WR));
    far_do(FAR_RECV, 1); /* until the end: so the FIN was acknowledged, or soon is */
    for (int i = 0; i < 3000 && tcp_state(s) == 4; i++)
        sleep_ms(1);
    say(" half=%d", tcp_state(s));
    far_do(FAR_RESET, 0);
    poll_one(s, POLLIN, 10000);
    say(" reset=%d", tcp_state(s));
    struct tcp_info info;
    socklen_t len = 4;
    say_result("short", getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len));
    say(" len=%u", (unsigned)len);
    int n = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    say(" fresh=%d", tcp_state(n));
}

static void option_socket(int s)
{
    set_option("keepalive", s, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option("reuseaddr", s, SOL_SOCKET, SO_REUSEADDR, 1);
    set_option("reuseport", s, SOL_SOCKET, SO_REUSEPORT, 1);
    set_option("dontroute", s, SOL_SOCKET, SO_DONTROUTE, 1);
    set_option("dontroute", s, SOL_SOCKET, SO_DONTROUTE, 0);
    set_option("priority", s, SOL_SOCKET, SO_PRIORITY, 3);
    set_option("broadcast", s, SOL_SOCKET, SO_BROADCAST, 1);
    set_option("lowat", s, SOL_SOCKET, SO_RCVLOWAT, 7);
    set_option("lowat0", s, SOL_SOCKET, SO_RCVLOWAT, 0);
    set_option("lowat_negative", s, SOL_SOCKET, SO_RCVLOWAT, -5);
    set_option("lowat", s, SOL_SOCKET, SO_RCVLOWAT, 1);
    set_option("tos", s, IPPROTO_IP, IP_TOS, 0x10);
    set_option("ttl", s, IPPROTO_IP, IP_TTL, 42);
    set_option("recverr", s, IPPROTO_IP, IP_RECVERR, 1);
    set_option("v6only", s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option("oobinline", s, SOL_SOCKET, SO_OOBINLINE, 1);
    set_option("oobinline", s, SOL_SOCKET, SO_OOBINLINE, 0);
    set_option("timestamp", s, SOL_SOCKET, SO_TIMESTAMP, 0);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static void option_bad(int s)
{
    int v = 1;
    uint8_t small[2] = { 0xee, 0xee };
    socklen_t len = sizeof(v);
    say_result("level", getsockopt(s, 9999, 1, &v, &len));
    say_result("name", getsockopt(s, SOL_SOCKET, 9999, &v, &len));
    say_result("set_level", setsockopt(s, 9999, 1, &v, sizeof(v)));
    say_result("set_name", setsockopt(s, SOL_SOCKET, 9999, &v, sizeof(v)));
    static const struct {
        int level, name;
    } each[] = { { SOL_SOCKET, SO_ERROR },
                 { SOL_SOCKET, SO_RCVLOWAT },
                 { SOL_SOCKET, SO_KEEPALIVE },
                 { IPPROTO_TCP, TCP_NODELAY },
                 { IPPROTO_TCP, TCP_KEEPIDLE } };
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        int level = each[i].level, name = each[i].name;
        len = 2;
        memset(small, 0xee, sizeof(small));
        say_result("two_octets", getsockopt(s, level, name, small, &len));
        say(" %u:%02x%02x", (unsigned)len, small[0], small[1]);
        len = 0;
        say_result("zero", getsockopt(s, level, name, &v, &len));
        say(" %u", (unsigned)len);
        len = (socklen_t)-1;
        say_result("negative", getsockopt(s, level, name, &v, &len));
        int64_t eight = -1;
        len = sizeof(eight);
        say_result("eight", getsockopt(s, level, name, &eight, &len));
        say(" %u", (unsigned)len);
        say_result("set_short", setsockopt(s, level, name, &v, 2));
        say_result("set_zero", setsockopt(s, level, name, &v, 0));
    }
}

static void option_null(int s)
{
    int *volatile none = NULL; /* not the compiler's to judge */
    socklen_t *volatile no_len = NULL;
    int v = 1;
    socklen_t len = sizeof(v);
    say_result("value", getsockopt(s, SOL_SOCKET, SO_TYPE, none, &len));
    say_result("length", getsockopt(s, SOL_SOCKET, SO_TYPE, &v, no_len));
    say_result("error", getsockopt(s, SOL_SOCKET, SO_ERROR, none, &len));
    say_result("error_length", getsockopt(s, SOL_SOCKET, SO_ERROR, &v, no_len));
    say_result("lowat", getsockopt(s, SOL_SOCKET, SO_RCVLOWAT, none, &len));
    say_result("nodelay", getsockopt(s, IPPROTO_TCP, TCP_NODELAY, none, &len));
    say_result("set", setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, none, sizeof(v)));
    say_result("set_lowat", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, none, sizeof(v)));
    say_result("set_nodelay", setsockopt(s, IPPROTO_TCP, TCP_NODELAY, none, sizeof(v)));
    say_result("set_zerocopy", setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, none, sizeof(v)));
    say_result("fionread", ioctl(s, FIONREAD, none));
    say_result("fionbio", ioctl(s, FIONBIO, none));
    say_result("outq", ioctl(s, SIOCOUTQ, none));
}

/* Options of a socket that others look after, once on both ends of its life. */
static void option_error_once(int s)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = sem_address() };
    socklen_t len = sizeof(in);
    (void)s;
    /* A port on which no process listens and that no other can take. */
    int taken = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(taken, (struct sockaddr *)&in, len));
    must("getsockname", getsockname(taken, (struct sockaddr *)&in, &len));
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int r = connect(c, (struct sockaddr *)&in, len);
    say_result("connect", r);
    say(" poll=%s", poll_names(poll_one(c, POLLOUT, 10000)));
    say_option("error", c, SOL_SOCKET, SO_ERROR);
    say_option("again", c, SOL_SOCKET, SO_ERROR);
}

static void ioctl_calls(int s)
{
    int n = -1, on = 1, off = 0;
    say_result("fionread", ioctl(s, FIONREAD, &n));
    say(" %d", n);
    say_result("siocinq", ioctl(s, SIOCINQ, &n));
    say(" %d", n);
    far_do(FAR_SEND, 100);
    await_octets(s, 100);
    say_result("siocinq", ioctl(s, SIOCINQ, &n));
    say(" %d", n);
    say_result("outq", ioctl(s, SIOCOUTQ, &n));
    say_result("listener", ioctl(sem_listener, FIONREAD, &n));
    say_result("listener_outq", ioctl(sem_listener, SIOCOUTQ, &n));
    say_result("atmark", ioctl(s, SIOCATMARK, &n));
    say(" %d", n);
    say_result("fionbio", ioctl(s, FIONBIO, &on));
    say(" flags=%d", (fcntl(s, F_GETFL) & O_NONBLOCK) != 0);
    say(" recv=%zu", recv_next(s, 100));
    say_result("empty", recv(s, &on, 1, 0));
    say_result("fionbio", ioctl(s, FIONBIO, &off));
    say_result("fioclex", ioctl(s, FIOCLEX));
    say(" fd=%d", fcntl(s, F_GETFD));
    say_result("fionclex", ioctl(s, FIONCLEX));
    say(" fd=%d", fcntl(s, F_GETFD));
    say_result("tty", ioctl(s, TIOCGWINSZ, &n));
    say_result("unknown", ioctl(s, 0x1234, &n));
    say_result("bad_fd", ioctl(9999, FIONREAD, &n));
}

static void fcntl_calls(int s)
{
    say(" flags=%#x", (unsigned)fcntl(s, F_GETFL));
    say_result("set", fcntl(s, F_SETFL, O_NONBLOCK | O_APPEND));
    say(" flags=%#x", (unsigned)fcntl(s, F_GETFL));
    say_result("clear", fcntl(s, F_SETFL, 0));
    say(" flags=%#x", (unsigned)fcntl(s, F_GETFL));
    say_result("direct", fcntl(s, F_SETFL, O_DIRECT));
    say_result("getfd", fcntl(s, F_GETFD));
    say_result("setfd", fcntl(s, F_SETFD, FD_CLOEXEC));
    say_result("getfd", fcntl(s, F_GETFD));
    int d = fcntl(s, F_DUPFD, 50), e = fcntl(s, F_DUPFD_CLOEXEC, 50);
    say(" dup=%d,%d cloexec=%d,%d", d >= 50, e > d, fcntl(d, F_GETFD), fcntl(e, F_GETFD));
    say_result("negative", fcntl(s, F_DUPFD, -1));
    say_result("beyond", fcntl(s, F_DUPFD, 1 << 30));
    say_result("owner", fcntl(s, F_GETOWN));
    say_result("set_owner", fcntl(s, F_SETOWN, getpid()));
    say(" owner=%d", fcntl(s, F_GETOWN) == getpid());
    say_result("sig", fcntl(s, F_GETSIG));
    say_result("lease", fcntl(s, F_GETLEASE));
    say_result("pipe_size", fcntl(s, F_GETPIPE_SZ));
    say_result("unknown", fcntl(s, 9999, 0));
    say_result("bad_fd", fcntl(9999, F_GETFL));
    struct flock lock = { .l_type = F_WRLCK };
    say_result("lock", fcntl(s, F_SETLK, &lock));
    send_next(e, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static volatile sig_atomic_t ios;

static void on_io(int number)
{
    (void)number;
    ios++;
}

/* Signal-driven input. (How many signals come is not said, only that one does.) */
static void sigio(int s)
{
    struct sigaction sa = { .sa_handler = on_io };
    must("sigaction", sigaction(SIGIO, &sa, NULL));
    must("F_SETOWN", fcntl(s, F_SETOWN, getpid()));
    must("O_ASYNC", fcntl(s, F_SETFL, O_ASYNC | O_NONBLOCK));
    say(" async=%d", (fcntl(s, F_GETFL) & O_ASYNC) != 0);
    ios = 0;
    far_do(FAR_SEND, 10);
    for (int i = 0; i < 3000 && ios == 0; i++)
        sleep_ms(1);
    say(" input=%d", ios > 0);
    await_octets(s, 10);
    say(" recv=%zu", recv_next(s, 10));
    ios = 0;
    far_do(FAR_SHUTDOWN, SHUT_WR);
    for (int i = 0; i < 3000 && ios == 0; i++)
        sleep_ms(1);
    say(" end=%d", ios > 0);
    int off = 0;
    must("FIOASYNC", ioctl(s, FIOASYNC, &off));
    say(" async=%d", (fcntl(s, F_GETFL) & O_ASYNC) != 0);
    uint8_t c;
    say_result("end", recv(s, &c, 1, 0));
}

const struct scenario sem_option[] = {
    { "option_identity", option_identity },
    { "option_buffers", option_buffers },
    { "option_times", option_times },
    { "option_linger", option_linger },
    { "option_tcp", option_tcp },
    { "option_tcp_info", option_tcp_info },
    { "option_socket", option_socket },
    { "option_bad", option_bad },
    { "option_null", option_null },
    { "option_error_once", option_error_once },
    { "ioctl_calls", ioctl_calls },
    { "fcntl_calls", fcntl_calls },
    { "sigio", sigio },
    { NULL, NULL },
};
