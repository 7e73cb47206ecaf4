/*
 * SO_ZEROCOPY: what the error queue tells of sends with MSG_ZEROCOPY.
 */
#include <errno.h>
#include <time.h> /* before errqueue.h */

#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

/* What was sent is not written again: without sockwarp the kernel sends from here. */
static uint8_t octets[8 * 1024 * 1024];
static size_t used;

static void switch_on(int s)
{
    int on = 1;
    say_result("set", setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
}

/* One call that sends all. */
static void send_zerocopy(int s, size_t len, int flags)
{
    uint8_t *p = octets + used;
    used += len;
    fill(p, len, sem_tx);
    ssize_t r = send(s, p, len, MSG_ZEROCOPY | flags);
    say_result("send", r);
    sem_tx += r > 0 ? (size_t)r : 0;
}

/* Until the peer's kernel has it all: then all is told. */
static void all_acknowledged(int s)
{
    for (int left = 1;; sleep_ms(1)) {
        must("SIOCOUTQ", ioctl(s, SIOCOUTQ, &left));
        if (left == 0)
            break;
    }
}

static ssize_t take(int s, size_t room)
{
    union {
        char buf[256];
        struct cmsghdr align;
    } control;
    struct sock_extended_err ee;
    struct msghdr m = { .msg_control = control.buf, .msg_controllen = room };
    memset(&control, 0, sizeof(control));
    ssize_t r = recvmsg(s, &m, MSG_ERRQUEUE);
    say_result("told", r);
    if (r < 0)
        return r;
    say(" flags=%x controllen=%zu", (unsigned)m.msg_flags, m.msg_controllen);
    const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h != NULL && h->cmsg_len >= CMSG_LEN(sizeof(ee))) {
        memcpy(&ee, CMSG_DATA(h), sizeof(ee));
        say(" %d/%d/%zu errno=%u origin=%u type=%u code=%u %u-%u", h->cmsg_level, h->cmsg_type, (size_t)h->cmsg_len,
            ee.ee_errno, ee.ee_origin, ee.ee_type, ee.ee_code, ee.ee_info, ee.ee_data);
    }
    return r;
}

static void zerocopy_told(int s)
{
    switch_on(s);
    say(" before=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 0)));
    far_begin(FAR_RECV, 80000, 0);
    for (int i = 0; i < 10; i++)
        send_zerocopy(s, 8000, 0);
    far_say("far", far_end());
    all_acknowledged(s);
    say(" there=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 0)));
    say(" alone=%s", poll_names(poll_one(s, 0, 0)));
    take(s, 256);
    take(s, 256);
    say(" taken=%s", poll_names(poll_one(s, POLLIN | POLLOUT, 0)));
    /* The count goes on; what has no flag, or no octets, counts nothing. */
    far_begin(FAR_RECV, 3000, 0);
    send_zerocopy(s, 1000, 0);
    send_next(s, 1000);
    send_zerocopy(s, 0, 0);
    send_zerocopy(s, 1000, MSG_DONTWAIT);
    far_say("far", far_end());
    all_acknowledged(s);
    take(s, 256);
    far_do(FAR_SEND, 5);
    say(" recv=%zu", recv_next(s, 5));
    int error = -1;
    socklen_t len = sizeof(error);
    must("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len));
    say(" error=%d", error);
}

/* Of a long call as much as of a short one. */
static void zerocopy_long(int s)
{
    switch_on(s);
    far_begin(FAR_RECV, 4 * 1024 * 1024, 0);
    send_zerocopy(s, 4 * 1024 * 1024, 0);
    far_say("far", far_end());
    all_acknowledged(s);
    take(s, 256);
    take(s, 256);
}

/* Nobody takes it: the connection goes on. */
static void zerocopy_left(int s)
{
    switch_on(s);
    far_begin(FAR_RECV, 20000, 0);
    send_zerocopy(s, 10000, 0);
    all_acknowledged(s);
    send_zerocopy(s, 10000, 0);
    far_say("far", far_end());
    all_acknowledged(s);
    far_begin(FAR_SEND, 1000, 30);
    say(" recv=%zu", recv_next(s, 1000));
    far_end();
    far_begin(FAR_RECV, 2000000, 30);
    send_next(s, 2000000);
    far_say("far", far_end());
    far_begin(FAR_SEND, 1000, 30);
    say(" in=%s", poll_names(poll_one(s, POLLIN, 0)));
    far_end();
    say(" recv=%zu", recv_next(s, 1000));
    /* And what is sent at last arrives. */
    send_zerocopy(s, 200000, 0);
    close(s);
    far_say("far", far_do(FAR_RECV, 300000));
}

static void zerocopy_short_control(int s)
{
    static const size_t rooms[] = { 0, 8, 20, 48, 63, 64 };
    switch_on(s);
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        far_begin(FAR_RECV, 1000, 0);
        send_zerocopy(s, 1000, 0);
        far_end();
        all_acknowledged(s);
        take(s, rooms[i]);
    }
}

static void zerocopy_epoll(int s)
{
    int level = (int)must("epoll", epoll_create1(0)), edge = (int)must("epoll", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLIN };
    must("add", epoll_ctl(level, EPOLL_CTL_ADD, s, &ev));
    ev.events = EPOLLIN | EPOLLET;
    must("add", epoll_ctl(edge, EPOLL_CTL_ADD, s, &ev));
    switch_on(s);
    for (int i = 0; i < 2; i++) {
        far_begin(FAR_RECV, 1000, 0);
        send_zerocopy(s, 1000, 0);
        far_end();
        all_acknowledged(s);
        for (int j = 0; j < 2; j++) {
            int r = epoll_wait(level, &ev, 1, j == 0 ? LATE_MS : 0);
            say(" level=%d/%x", r, r > 0 ? ev.events : 0u);
        }
        int r = epoll_wait(edge, &ev, 1, LATE_MS);
        say(" edge=%d/%x", r, r > 0 ? ev.events : 0u);
        take(s, 256);
        say_result("level", epoll_wait(level, &ev, 1, 0));
    }
}

/* Values, and switched off again: calls with the flag are ordinary ones. */
static void zerocopy_values(int s)
{
    static const int values[] = { 1, 2, -1, 0 };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        int v = values[i];
        socklen_t len = sizeof(v);
        say_result("set", setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &v, sizeof(v)));
        must("get", getsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &v, &len));
        say(" get=%d", v);
    }
    far_begin(FAR_RECV, 1000, 0);
    send_zerocopy(s, 1000, 0);
    far_end();
    all_acknowledged(s);
    take(s, 256);
}

/* Set by the listener, used before the other end has said anything. */
static void zerocopy_listener(int s)
{
    (void)s;
    switch_on(sem_listener);
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = (int)must("accept", accept(sem_listener, NULL, NULL));
    must("connect", far_end().r);
    sem_tx = 0;
    far_do(FAR_USE, 1);
    far_begin(FAR_RECV, 300000, 0);
    send_zerocopy(c, 300000, 0);
    far_say("far", far_end());
    all_acknowledged(c);
    take(c, 256);
    take(c, 256);
    close(c);
}

const struct scenario sem_zerocopy[] = {
    { "zerocopy_told", zerocopy_told },         { "zerocopy_long", zerocopy_long },
    { "zerocopy_left", zerocopy_left },         { "zerocopy_short_control", zerocopy_short_control },
    { "zerocopy_epoll", zerocopy_epoll },       { "zerocopy_values", zerocopy_values },
    { "zerocopy_listener", zerocopy_listener }, { NULL, NULL },
};
