/*
 * Flags, addresses and control messages of the send and recv calls, alone and together.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void peek_trunc(int s)
{
    uint8_t buf[30];
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    memset(buf, 0xee, sizeof(buf));
    say_result("six", recv(s, buf, 6, MSG_PEEK | MSG_TRUNC));
    say(" untouched=%d", buf[0] == 0xee);
    say_result("thirty", recv(s, buf, 30, MSG_PEEK | MSG_TRUNC));
    say_result("peek", recv(s, buf, 30, MSG_PEEK));
    say(" rest=%zu", recv_next(s, 20));
    say_result("empty", recv(s, buf, 30, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT));
}

static void peek_at_end(int s)
{
    uint8_t buf[30];
    far_do(FAR_SEND, 3);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    await_octets(s, 3);
    say_result("peek", recv(s, buf, 30, MSG_PEEK));
    say_result("waitall", recv(s, buf, 30, MSG_PEEK | MSG_WAITALL));
    say_result("recv", recv(s, buf, 30, 0));
    say_result("peek_end", recv(s, buf, 30, MSG_PEEK));
    say_result("dontwait_end", recv(s, buf, 30, MSG_PEEK | MSG_DONTWAIT));
    say_result("end", recv(s, buf, 30, MSG_WAITALL));
}

static void peek_waitall_timed(int s)
{
    struct timeval tv = { .tv_usec = 80000 };
    uint8_t buf[10];
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    far_do(FAR_SEND, 5);
    await_octets(s, 5);
    uint64_t t = now_ms();
    say_result("peek", recv(s, buf, sizeof(buf), MSG_PEEK | MSG_WAITALL));
    say_time("after", (unsigned)(now_ms() - t), 75, LATE_MS);
    say(" recv=%zu", recv_next(s, 5));
    t = now_ms();
    say_result("peek", recv(s, buf, sizeof(buf), MSG_PEEK));
    say_time("after", (unsigned)(now_ms() - t), 75, LATE_MS);
}

static void trunc_waitall(int s)
{
    uint8_t buf[8];
    far_do(FAR_SEND, 10000);
    far_begin(FAR_SEND, 20000, 30);
    /* No octet is written anywhere, so there need not be room for them. */
    say_result("trunc", recv(s, NULL, 30000, MSG_TRUNC | MSG_WAITALL));
    far_end();
    sem_rx += 30000;
    far_do(FAR_SEND, 8);
    await_octets(s, 8);
    say_result("null", recv(s, NULL, 4, MSG_TRUNC));
    sem_rx += 4;
    ssize_t r = recv(s, buf, sizeof(buf), 0);
    say_result("recv", r);
    check(buf, r > 0 ? (size_t)r : 0);
    far_do(FAR_CLOSE, 0);
    say_result("end", recv(s, NULL, 4, MSG_TRUNC));
}

/* Flags that mean nothing to a receiver are ignored. */
static void recv_odd_flags(int s)
{
    static const int flags[] = { MSG_EOR,    MSG_CONFIRM, MSG_NOSIGNAL, MSG_MORE,         MSG_DONTROUTE,
                                 MSG_CTRUNC, MSG_RST,     MSG_PROXY,    MSG_CMSG_CLOEXEC, 0x01000000 };
    uint8_t buf[4];
    far_do(FAR_SEND, 4 * (int)(sizeof(flags) / sizeof(flags[0])));
    await_octets(s, 4 * (int)(sizeof(flags) / sizeof(flags[0])));
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        ssize_t r = recv(s, buf, sizeof(buf), flags[i]);
        say_result("recv", r);
        check(buf, r > 0 ? (size_t)r : 0);
    }
    say_result("empty", recv(s, buf, sizeof(buf), MSG_DONTWAIT | 0x01000000));
}

static void send_odd_flags(int s)
{
    static const int flags[] = { MSG_EOR,    MSG_CONFIRM, MSG_NOSIGNAL, MSG_DONTROUTE,         MSG_PROXY,
                                 MSG_CTRUNC, MSG_RST,     MSG_SYN,      MSG_CMSG_CLOEXEC,      0x01000000,
                                 MSG_TRUNC,  MSG_WAITALL, MSG_PEEK,     MSG_DONTWAIT | MSG_EOR };
    uint8_t buf[4];
    size_t n = sizeof(flags) / sizeof(flags[0]);
    for (size_t i = 0; i < n; i++) {
        fill(buf, sizeof(buf), sem_tx);
        ssize_t r = send(s, buf, sizeof(buf), flags[i]);
        say_result("send", r);
        sem_tx += r > 0 ? (size_t)r : 0;
    }
    far_say("far", far_do(FAR_RECV, (int64_t)sem_tx));
}

/* The flag by which the kernel knows callers of another word size is not the program's. */
static void compat_flag(int s)
{
    const int compat = (int)0x80000000u;
    uint8_t buf[4];
    fill(buf, sizeof(buf), 0);
    struct iovec iov = { buf, sizeof(buf) };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct mmsghdr mm = { .msg_hdr = m };
    say_result("sendmsg", sendmsg(s, &m, compat));
    say_result("sendmmsg", sendmmsg(s, &mm, 1, compat));
    say_result("send", send(s, buf, sizeof(buf), compat));
    far_say("far", far_do(FAR_RECV, 4));
    far_do(FAR_SEND, 8);
    await_octets(s, 8);
    say_result("recvmsg", recvmsg(s, &m, compat));
    say_result("recvmmsg", recvmmsg(s, &mm, 1, compat, NULL));
    say_result("recv", recv(s, buf, sizeof(buf), compat));
    check(buf, sizeof(buf));
    say(" rest=%zu", recv_next(s, 4));
}

static void errqueue(int s)
{
    uint8_t buf[10], control[64];
    struct iovec iov = { buf, sizeof(buf) };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64 };
    say_result("empty", recv(s, buf, sizeof(buf), MSG_ERRQUEUE));
    far_do(FAR_SEND, 5);
    await_octets(s, 5);
    say_result("there", recv(s, buf, sizeof(buf), MSG_ERRQUEUE));
    say_result("recvmsg", recvmsg(s, &m, MSG_ERRQUEUE));
    say_result("waitall", recv(s, buf, sizeof(buf), MSG_ERRQUEUE | MSG_WAITALL));
    say(" rest=%zu", recv_next(s, 5));
}

static void oob_none(int s)
{
    uint8_t c;
    say_result("empty", recv(s, &c, 1, MSG_OOB));
    far_do(FAR_SEND, 2);
    await_octets(s, 2);
    say_result("there", recv(s, &c, 1, MSG_OOB));
    say_result("dontwait", recv(s, &c, 1, MSG_OOB | MSG_DONTWAIT));
    say_result("peek", recv(s, &c, 1, MSG_OOB | MSG_PEEK));
    say(" pri=%s", poll_names(poll_one(s, POLLPRI, 0)));
    say(" rest=%zu", recv_next(s, 2));
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLIN, 10000);
    say_result("end", recv(s, &c, 1, MSG_OOB));
}

/* Urgent data, both ways: what an upgraded connection does not have. */
static void oob_sent(int s)
{
    uint8_t c;
    fill(&c, 1, sem_tx);
    say_result("send", send(s, &c, 1, MSG_OOB));
    far_say("far", far_do(FAR_OOB, 0));
    say(" pri=%s", poll_names(poll_one(s, POLLPRI, 10000)));
    say_result("recv", recv(s, &c, 1, MSG_OOB));
    say_result("again", recv(s, &c, 1, MSG_OOB | MSG_DONTWAIT));
}

static void zerocopy_unset(int s)
{
    uint8_t buf[30000];
    fill(buf, sizeof(buf), 0);
    far_begin(FAR_RECV, 30000, 0);
    /* Without SO_ZEROCOPY the flag is ignored. */
    say_result("send", send(s, buf, sizeof(buf), MSG_ZEROCOPY));
    far_say("far", far_end());
    say_result("errqueue", recv(s, buf, sizeof(buf), MSG_ERRQUEUE));
}

static void fastopen_connected(int s)
{
    uint8_t buf[4];
    struct sockaddr_in in;
    socklen_t len = sizeof(in);
    fill(buf, sizeof(buf), 0);
    must("getpeername", getpeername(s, (struct sockaddr *)&in, &len));
    say_result("sendto", sendto(s, buf, sizeof(buf), MSG_FASTOPEN, (struct sockaddr *)&in, len));
    say_result("send", send(s, buf, sizeof(buf), MSG_FASTOPEN));
    say_result("plain", send(s, buf, sizeof(buf), 0));
    far_say("far", far_do(FAR_RECV, 4));
}

static void more_then_end(int s)
{
    uint8_t buf[20];
    fill(buf, sizeof(buf), 0);
    say_result("more", send(s, buf, 10, MSG_MORE));
    say_result("more", send(s, buf + 10, 10, MSG_MORE | MSG_DONTWAIT));
    say_result("shutdown", shutdown(s, SHUT_WR));
    far_say("far", far_do(FAR_RECV, 21));
}

static void more_then_close(int s)
{
    uint8_t buf[20];
    fill(buf, sizeof(buf), 0);
    far_begin(FAR_RECV, 21, 0);
    say_result("more", send(s, buf, 20, MSG_MORE));
    say_result("close", close(s));
    far_say("far", far_end());
}

static void more_and_cork(int s)
{
    static uint8_t buf[100000];
    int on = 1, off = 0;
    fill(buf, sizeof(buf), 0);
    far_begin(FAR_RECV, 100000, 0);
    must("TCP_CORK", setsockopt(s, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)));
    for (size_t i = 0; i < 10; i++)
        if (send(s, buf + i * 10000, 10000, i % 2 ? MSG_MORE : 0) != 10000)
            say(" short");
    must("TCP_CORK", setsockopt(s, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)));
    far_say("far", far_end());
}

/* TCP does not look at the address, but it has to be one. */
static void send_addresses(int s)
{
    uint8_t buf[20];
    fill(buf, sizeof(buf), 0);
    struct sockaddr_storage ss = { .ss_family = AF_INET6 };
    struct sockaddr *to = (struct sockaddr *)&ss;
    volatile socklen_t too_long = sizeof(ss) + 1, negative = (socklen_t)-1; /* not the compiler's to judge */
    say_result("family", sendto(s, buf, 5, 0, to, sizeof(struct sockaddr_in6)));
    say_result("short", sendto(s, buf + 5, 5, 0, to, 1));
    say_result("none", sendto(s, buf + 10, 5, 0, NULL, 16));
    say_result("long", sendto(s, buf, 5, 0, to, too_long));
    say_result("negative", sendto(s, buf, 5, 0, to, negative));
    struct iovec iov = { buf + 15, 5 };
    struct msghdr m = { .msg_name = to, .msg_namelen = (socklen_t)-1, .msg_iov = &iov, .msg_iovlen = 1 };
    say_result("sendmsg_negative", sendmsg(s, &m, 0));
    m.msg_namelen = 4000;
    say_result("sendmsg_long", sendmsg(s, &m, 0));
    far_say("far", far_do(FAR_RECV, 20));
}

static ssize_t send_control(int s, uint8_t *buf, int level, int type, size_t cmsg_len, int value)
{
    union {
        struct cmsghdr h;
        uint8_t room[64];
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec iov = { buf, 5 };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int))
    };
    control.h.cmsg_level = level;
    control.h.cmsg_type = type;
    control.h.cmsg_len = cmsg_len;
    memcpy(CMSG_DATA(&control.h), &value, sizeof(value));
    ssize_t r = sendmsg(s, &m, MSG_NOSIGNAL);
    if (r > 0) {
        sem_tx += (size_t)r;
        fill(buf, 5, sem_tx);
    }
    return r;
}

static void send_controls(int s)
{
    uint8_t buf[5];
    size_t len = CMSG_LEN(sizeof(int));
    fill(buf, 5, 0);
    say_result("unknown", send_control(s, buf, SOL_SOCKET, 0x7777, len, 0));
    say_result("other_level", send_control(s, buf, IPPROTO_IPV6, 1, len, 0));
    say_result("rights", send_control(s, buf, SOL_SOCKET, SCM_RIGHTS, len, STDIN_FILENO));
    say_result("short", send_control(s, buf, SOL_SOCKET, SCM_RIGHTS, 3, 0));
    say_result("long", send_control(s, buf, SOL_SOCKET, SCM_RIGHTS, 4000, 0));
    struct iovec iov = { buf, 5 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = NULL, .msg_controllen = 0 };
    say_result("none", sendmsg(s, &m, 0));
    sem_tx += 5;
    far_say("far", far_do(FAR_RECV, (int64_t)sem_tx));
}

static void recvmsg_untouched(int s)
{
    uint8_t buf[10], control[64];
    struct iovec iov = { buf, sizeof(buf) };
    struct msghdr m = { .msg_namelen = 77,
                        .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control,
                        .msg_controllen = sizeof(control),
                        .msg_flags = 0x5555 };
    say_result("empty", recvmsg(s, &m, MSG_DONTWAIT));
    say(" namelen=%u controllen=%zu flags=%#x", (unsigned)m.msg_namelen, (size_t)m.msg_controllen,
        (unsigned)m.msg_flags);
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    say_result("recvmsg", recvmsg(s, &m, 0));
    /* Without a place for a name its length is not the kernel's to change. */
    say(" namelen=%u controllen=%zu flags=%#x", (unsigned)m.msg_namelen, (size_t)m.msg_controllen,
        (unsigned)m.msg_flags);
    say_result("cloexec", recvmsg(s, &m, MSG_CMSG_CLOEXEC));
    say(" flags=%#x", (unsigned)m.msg_flags);
    say_result("null", recvmsg(s, NULL, MSG_DONTWAIT));
    say_result("null_send", sendmsg(s, NULL, MSG_DONTWAIT));
}

/* One recvmsg with room for so much control: its flags, and each control message. */
static void say_controls(int s, size_t room)
{
    uint8_t buf[10];
    char control[256] __attribute__((aligned(8))) = "";
    struct iovec iov = { buf, sizeof(buf) };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room > 0 ? control : NULL, .msg_controllen = room
    };
    say_result("recvmsg", recvmsg(s, &m, MSG_DONTWAIT));
    say("/%x/%zu", (unsigned)m.msg_flags, (size_t)m.msg_controllen);
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h != NULL; h = CMSG_NXTHDR(&m, h))
        say("+%d:%d:%zu", h->cmsg_level, h->cmsg_type, (size_t)h->cmsg_len);
}

/*
 * Options that make control messages, of some sockets at least: what each says when it is set and asked, and what comes,
 * with room for it, with too little, and with none. (Time stamps: tests/semantics/beside.test.)
 */
static void control_options(int s)
{
    static const struct {
        const char *what;
        int level, name;
    } all[] = {
        { "inq", IPPROTO_TCP, 36 },        { "rxq_ovfl", SOL_SOCKET, 40 },  { "mark", SOL_SOCKET, 36 },
        { "rcvmark", SOL_SOCKET, 75 },     { "priority", SOL_SOCKET, 12 },  { "rcvpriority", SOL_SOCKET, 82 },
        { "passcred", SOL_SOCKET, 16 },    { "passpidfd", SOL_SOCKET, 76 }, { "recverr", IPPROTO_IP, 11 },
        { "recverr_rfc", IPPROTO_IP, 26 }, { "pktinfo", IPPROTO_IP, 8 },    { "recvttl", IPPROTO_IP, 12 },
        { "recvtos", IPPROTO_IP, 13 },     { "napi_id", SOL_SOCKET, 56 },   { "busy_poll", SOL_SOCKET, 46 },
    };
    static const size_t rooms[] = {
        sizeof(struct cmsghdr) * 8, 0, 1, sizeof(struct cmsghdr), sizeof(struct cmsghdr) + 1, sizeof(struct cmsghdr) + 4
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int on = 1, is = -1;
        socklen_t len = sizeof(is);
        say_result(all[i].what, setsockopt(s, all[i].level, all[i].name, &on, sizeof(on)));
        int r = getsockopt(s, all[i].level, all[i].name, &is, &len);
        say_result("is", r < 0 || all[i].name == 56 ? r : is); /* (which queue it came by is not the program's) */
        for (size_t n = 0; n < sizeof(rooms) / sizeof(rooms[0]); n++) {
            far_do(FAR_SEND, 10);
            await_octets(s, 10);
            say_controls(s, rooms[n]);
        }
        say_controls(s, rooms[0]);
        say_result("queue", recv(s, &(char){ 0 }, 1, MSG_ERRQUEUE | MSG_DONTWAIT));
    }
}

static void recvfrom_lengths(int s)
{
    uint8_t buf[5];
    struct sockaddr_in from;
    socklen_t len = 0;
    far_do(FAR_SEND, 25);
    await_octets(s, 25);
    memset(&from, 0xee, sizeof(from));
    say_result("zero", recvfrom(s, buf, 5, 0, (struct sockaddr *)&from, &len));
    say(" len=%u untouched=%d", (unsigned)len, from.sin_family == 0xeeee);
    len = 12345;
    say_result("no_address", recvfrom(s, buf, 5, 0, NULL, &len));
    say(" len=%u", (unsigned)len);
    len = sizeof(from);
    say_result("address", recvfrom(s, buf, 5, 0, (struct sockaddr *)&from, &len));
    say(" len=%u untouched=%d", (unsigned)len, from.sin_family == 0xeeee);
    len = sizeof(from);
    say_result("empty", recvfrom(s, buf, 0, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
    say(" len=%u", (unsigned)len);
    len = (socklen_t)-1;
    say_result("negative", recvfrom(s, buf, 5, 0, (struct sockaddr *)&from, &len));
    say_result("left", recv(s, buf, 5, MSG_DONTWAIT));
}

static int pipes;

static void on_pipe(int number)
{
    (void)number;
    pipes++;
}

/* Sockets that are not connected, with and without the flag. */
static void unconnected(int s)
{
    (void)s;
    uint8_t c = 0;
    struct sigaction sa = { .sa_handler = on_pipe };
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
    int n = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = sem_address(), .sin_port = htons(9) };
    for (int i = 0; i < 2; i++) {
        int fd = i == 0 ? n : sem_listener;
        say_result("send", send(fd, &c, 1, 0));
        say(" pipes=%d", pipes);
        say_result("nosignal", send(fd, &c, 1, MSG_NOSIGNAL));
        say(" pipes=%d", pipes);
        say_result("sendto", sendto(fd, &c, 1, MSG_NOSIGNAL, (struct sockaddr *)&in, sizeof(in)));
        say_result("zero", send(fd, &c, 0, MSG_NOSIGNAL));
        say_result("oob", send(fd, &c, 1, MSG_OOB | MSG_NOSIGNAL));
        say_result("recv", recv(fd, &c, 1, 0));
        say_result("recv0", recv(fd, &c, 0, 0));
        say_result("read0", read(fd, &c, 0));
        say_result("peek", recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT));
        say_result("recv_oob", recv(fd, &c, 1, MSG_OOB));
        say_result("errqueue", recv(fd, &c, 1, MSG_ERRQUEUE));
        say_result("shutdown", i == 0 ? shutdown(fd, SHUT_WR) : 0);
        say(" poll=%s", poll_names(poll_one(fd, POLLIN | POLLOUT | POLLRDHUP, 0)));
    }
}

const struct scenario sem_flags[] = {
    { "peek_trunc", peek_trunc },
    { "peek_at_end", peek_at_end },
    { "peek_waitall_timed", peek_waitall_timed },
    { "trunc_waitall", trunc_waitall },
    { "recv_odd_flags", recv_odd_flags },
    { "send_odd_flags", send_odd_flags },
    { "compat_flag", compat_flag },
    { "errqueue", errqueue },
    { "oob_none", oob_none },
    { "oob_sent", oob_sent },
    { "zerocopy_unset", zerocopy_unset },
    { "fastopen_connected", fastopen_connected },
    { "more_then_end", more_then_end },
    { "more_then_close", more_then_close },
    { "more_and_cork", more_and_cork },
    { "send_addresses", send_addresses },
    { "send_controls", send_controls },
    { "recvmsg_untouched", recvmsg_untouched },
    { "control_options", control_options },
    { "recvfrom_lengths", recvfrom_lengths },
    { "unconnected", unconnected },
    { NULL, NULL },
};
