/*
 * epoll, with registrations or waits that the C library does not see: system calls of the program's own, as Zig's and
 * Rust's libraries make them, and rings.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "tests/semantics/sem_wait.h"

#define POINTER 0x00007f12345678a0u /* data of this form are frequent */

/* epoll_ctl by the instruction itself. */
static void bare_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = { .events = events, .data.u64 = data };
    long r = rawsys4(SYS_epoll_ctl, ep, op, fd, (long)&ev);
    errno = r < 0 ? (int)-r : 0;
    must("epoll_ctl", r < 0 ? -1 : 0);
}

static void bare_add(int ep, int fd, uint32_t events, uint64_t data)
{
    bare_ctl(ep, EPOLL_CTL_ADD, fd, events, data);
}

static void ring(int fd)
{
    uint64_t one = 1;
    must("write", write(fd, &one, sizeof(one)));
}

static void unring(int fd)
{
    uint64_t n;
    must("read", read(fd, &n, sizeof(n)));
}

/* A socket, another one registered the usual way, and something that is no socket. */
static void beside_added(int s)
{
    int other = more(), bell = eventfd(0, 0), ep = ep_new();
    bare_add(ep, s, EPOLLIN, 17);
    ep_add(ep, other, EPOLLIN, 1000);
    bare_add(ep, bell, EPOLLIN, POINTER);
    ep_say("none", ep, 10);
    ring(bell);
    ep_say("bell", ep, 2000);
    unring(bell);
    far_send_on(0, 10);
    ep_say("socket", ep, 2000);
    recv_next(s, 10);
    ep_say("none", ep, 10);
    far_send_on(1, 10);
    ep_say("other", ep, 2000);
    bare_ctl(ep, EPOLL_CTL_DEL, s, 0, 0);
    far_send_on(0, 10);
    poll_one(s, POLLIN, 2000);
    ep_say("deleted", ep, 2000);
}

/* What was registered the usual way is changed, and deleted. */
static void beside_changed(int s)
{
    int bell = eventfd(0, 0), ep = ep_new();
    ep_add(ep, bell, EPOLLIN, 1);
    ep_add(ep, s, EPOLLIN, 2);
    ring(bell);
    ep_say("before", ep, 2000);
    bare_ctl(ep, EPOLL_CTL_MOD, bell, EPOLLIN, POINTER);
    ep_say("changed", ep, 2000);
    bare_ctl(ep, EPOLL_CTL_DEL, bell, 0, 0);
    ep_say("deleted", ep, 10);
    bare_add(ep, bell, EPOLLIN, UINT64_MAX - 1);
    ep_say("again", ep, 2000);
}

static void beside_modes(int s)
{
    int once = eventfd(0, 0), edge = eventfd(0, 0), ep = ep_new();
    bare_add(ep, once, EPOLLIN | EPOLLONESHOT, 1);
    bare_add(ep, edge, EPOLLIN | EPOLLET, 2);
    bare_add(ep, s, EPOLLIN | EPOLLET, 3);
    ring(once);
    ring(edge);
    ep_say("told", ep, 2000);
    ep_say("once", ep, 10);
    ring(edge);
    ep_say("edge", ep, 2000);
    bare_ctl(ep, EPOLL_CTL_MOD, once, EPOLLIN | EPOLLONESHOT, 4);
    ep_say("armed", ep, 2000);
    far_do(FAR_SEND, 10);
    ep_say("socket", ep, 2000);
    ep_say("once", ep, 10);
}

/* In a set that is polled, and registered in another one: a poll of the set takes nothing away. */
static void beside_nested(int s)
{
    int bell = eventfd(0, 0), inner = ep_new(), outer = ep_new();
    ep_add(outer, inner, EPOLLIN, 1);
    ep_add(inner, s, EPOLLIN, 2);
    bare_add(inner, bell, EPOLLIN | EPOLLET, 3);
    ring(bell);
    say(" poll=%s", poll_names(poll_one(inner, POLLIN, 2000)));
    ep_say("outer", outer, 2000);
    say(" poll=%s", poll_names(poll_one(inner, POLLIN, 0)));
    ep_say("inner", inner, 2000);
    say(" poll=%s", poll_names(poll_one(inner, POLLIN, 0)));
    ep_say("outer", outer, 10);
    ring(bell);
    ep_say("outer", outer, 2000);
    ep_say("inner", inner, 2000);
}

/* More than is told in one call, and no memory for the first. */
static void beside_many(int s)
{
    enum { BELLS = 20 };
    int ep = ep_new(), told = 0;
    struct epoll_event ev[3];
    void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ep_add(ep, s, EPOLLIN, 1);
    for (int i = 0; i < BELLS; i++) {
        int bell = eventfd(1, 0);
        bare_add(ep, bell, EPOLLIN | EPOLLET, (uint64_t)(100 + i));
    }
    say_result("fault", epoll_wait(ep, none, 1, 1000));
    for (int n = 3; n > 0; told += n)
        must("epoll_wait", n = epoll_wait(ep, ev, 3, 10));
    say(" told=%d", told);
}

/* ---- registered by the C library, waited for by system calls of the program's own ---- */

/* As ep_say, for one event. Returns its data, 0: none. */
static uint64_t bare_wait(const char *what, int ep, int ms)
{
    struct epoll_event ev = { 0 };
    long r = rawsys6(SYS_epoll_pwait, ep, (long)&ev, 1, ms, 0, 0);
    if (r == 1)
        say(" %s=%llx:%s", what, (unsigned long long)ev.data.u64, poll_names((int)ev.events));
    else
        say(" %s=%ld", what, r);
    return r == 1 ? ev.data.u64 : 0;
}

/* Its data are the program's, whatever is registered. */
static void unseen_wait_data(int s)
{
    int bell = eventfd(1, 0), ep = ep_new(), inner = ep_new();
    ep_add(ep, bell, EPOLLIN, POINTER);
    bare_wait("bell", ep, 2000);
    ep_mod(ep, bell, EPOLLIN | EPOLLONESHOT, 5);
    bare_wait("changed", ep, 2000);
    bare_wait("once", ep, 10);
    ep_add(ep, s, EPOLLIN, UINT64_MAX);
    far_do(FAR_SEND, 10);
    bare_wait("socket", ep, 2000);
    recv_next(s, 10);
    bare_wait("read", ep, 10);
    ep_del(ep, s);
    ep_add(ep, inner, EPOLLIN, 7);
    unring(bell);
    ep_add(inner, bell, EPOLLIN | EPOLLET, 8);
    ring(bell);
    bare_wait("set", ep, 2000);
    bare_wait("inner", inner, 2000);
    bare_wait("told", ep, 10);
}

/* First by the program's own system calls, then by the C library, and again. */
static void unseen_wait_mixed(int s)
{
    int bell = eventfd(1, 0), other = more(), ep = ep_new();
    ep_add(ep, bell, EPOLLIN, 1);
    ep_add(ep, s, EPOLLIN | EPOLLET, 2);
    bare_wait("bare", ep, 2000);
    far_send_on(0, 10);
    ep_say("both", ep, 2000);
    ep_say("bell", ep, 2000);
    ep_add(ep, other, EPOLLIN, 3);
    far_send_on(1, 10);
    unring(bell);
    ep_say("other", ep, 2000);
    recv_next(s, 10);
    far_send_on(0, 10);
    ep_say("edge", ep, 2000);
}

#define ANSWER 300000

/* The answer goes out as the set tells. */
static void bare_send(int c, int ep)
{
    static uint8_t answer[ANSWER];
    struct epoll_event ev;
    size_t sent = 0;
    fill(answer, ANSWER, sem_tx);
    ep_mod(ep, c, EPOLLOUT, 3);
    while (sent < ANSWER) {
        if (rawsys6(SYS_epoll_pwait, ep, (long)&ev, 1, 3000, 0, 0) != 1) {
            say(" stuck");
            return;
        }
        ssize_t r = send(c, answer + sent, ANSWER - sent, MSG_NOSIGNAL);
        sent += r > 0 ? (size_t)r : 0;
    }
    sem_tx += ANSWER;
    ep_mod(ep, c, EPOLLIN, 4);
}

/* What comes next, once the set says so; EAGAIN if it was nothing. */
static ssize_t bare_next(int ep, int c, uint8_t *buf, size_t len)
{
    struct epoll_event ev = { 0 };
    if (rawsys6(SYS_epoll_pwait, ep, (long)&ev, 1, 3000, 0, 0) != 1 || ev.data.u64 != 2)
        say(" stuck=%llx", (unsigned long long)ev.data.u64);
    return recv(c, buf, len, 0);
}

static void bare_serve(int c, int ep)
{
    uint8_t buf[10];
    ssize_t r;
    far_begin(FAR_SEND, 10, 0);
    do /* (the Hello wakes as well, and may come first) */
        r = bare_next(ep, c, buf, sizeof(buf));
    while (r < 0 && errno == EAGAIN);
    say_result("recv", r);
    far_end();
    check(buf, 10);
    far_begin(FAR_RECV, ANSWER, 0);
    bare_send(c, ep);
    far_say("far", far_end());
    far_do(FAR_CLOSE, 0);
    bare_wait("end", ep, 2000);
    say_result("recv", recv(c, buf, sizeof(buf), 0));
}

static void serve_unseen(bool registered)
{
    int ep = ep_new();
    set_nonblock(sem_listener, true);
    if (registered)
        ep_add(ep, sem_listener, EPOLLIN, 1);
    else
        bare_add(ep, sem_listener, EPOLLIN, 1);
    far_begin(FAR_CONNECT, sem_port, 0);
    bare_wait("listener", ep, 2000);
    int c = (int)must("accept", accept4(sem_listener, NULL, NULL, SOCK_NONBLOCK));
    must("connect", far_end().r);
    ep_add(ep, c, EPOLLIN, 2);
    bare_serve(c, ep);
}

static void unseen_wait_accept(int s)
{
    (void)s;
    serve_unseen(true);
}

static void unseen_listener(int s)
{
    (void)s;
    serve_unseen(false);
}

/* It is in a set in which nobody waits: the program waits in accept(). */
static void listener_waits_in_accept(int s)
{
    (void)s;
    int ep = ep_new();
    ep_add(ep, sem_listener, EPOLLIN, 1);
    for (int made = 1; made < 3; made++) {
        far_begin(FAR_CONNECT, sem_port, 20);
        int c = (int)must("accept", accept(sem_listener, NULL, NULL));
        must("connect", far_end().r);
        far_do(FAR_USE, made);
        far_do(FAR_FRESH, 0);
        sem_rx = sem_tx = 0;
        far_do(FAR_SEND, 10);
        recv_next(c, 10);
        send_next(c, ANSWER);
        far_say("far", far_do(FAR_RECV, ANSWER));
        close(c);
    }
}

static void unseen_wait_connect(int s)
{
    (void)s;
    int ep = ep_new(), c = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    far_begin(FAR_ACCEPT, 0, 0);
    connect_begin_to(c, sem_far_port);
    ep_add(ep, c, EPOLLOUT, 2);
    bare_wait("up", ep, 2000);
    say(" error=%s", error_name(so_error(c)));
    must("accept", far_end().r);
    ep_mod(ep, c, EPOLLIN, 2);
    bare_serve(c, ep);
}

const struct scenario sem_epoll_beside[] = {
    { "epoll_beside_added", beside_added },
    { "epoll_beside_changed", beside_changed },
    { "epoll_beside_modes", beside_modes },
    { "epoll_beside_nested", beside_nested },
    { "epoll_beside_many", beside_many },
    { "epoll_unseen_data", unseen_wait_data },
    { "epoll_unseen_mixed", unseen_wait_mixed },
    { "epoll_unseen_accept", unseen_wait_accept },
    { "epoll_unseen_listener", unseen_listener },
    { "epoll_waits_in_accept", listener_waits_in_accept },
    { "epoll_unseen_connect", unseen_wait_connect },
    { NULL, NULL },
};
