/*
 * epoll, with registrations or waits that the C library does not see: system calls of the program's own, as Zig's and Rust's
 * libraries make them, and rings.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "tests/preload/sem_wait.h"

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

/* In a set that is polled, and registered in another one: who only asks takes nothing away. */
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

const struct scenario sem_epoll_beside[] = {
    { "epoll_beside_added", beside_added }, { "epoll_beside_changed", beside_changed },
    { "epoll_beside_modes", beside_modes }, { "epoll_beside_nested", beside_nested },
    { "epoll_beside_many", beside_many },   { NULL, NULL },
};
