/*
 * epoll registrations that are deleted and made again: what the kernel may be spared of that, the program does not see.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

static void again(int ep, int fd, uint32_t events, uint64_t data)
{
    ep_del(ep, fd);
    ep_add(ep, fd, events, data);
}

static void epoll_again(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    for (int i = 0; i < 3; i++) {
        ep_del(ep, s);
        say_result("del", ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0));
        ep_add(ep, s, EPOLLOUT, 10 + i);
        say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 2));
        ep_say("out", ep, 10000);
        ep_del(ep, s);
        say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 3));
        ep_add(ep, s, EPOLLIN, 20 + i);
        ep_say("quiet", ep, 10);
        far_do(FAR_SEND, 10);
        ep_say("in", ep, 10000);
        recv_next(s, 10);
    }
    ep_add(ep, sem_listener, EPOLLIN, 4);
    ep_del(ep, sem_listener);
    say_result("del", ep_ctl(ep, EPOLL_CTL_DEL, sem_listener, 0, 0));
}

/* What comes meanwhile, and what was left over. */
static void epoll_again_data(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    ep_del(ep, s);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    ep_say("deleted", ep, 20);
    say_result("del", ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0));
    ep_add(ep, s, EPOLLIN, 2);
    ep_say("data", ep, 10000);
    recv_next(s, 4);
    ep_del(ep, s);
    ep_say("deleted", ep, 10);
    ep_add(ep, s, EPOLLIN | EPOLLOUT, 3);
    ep_say("left", ep, 10000);
    ep_del(ep, s);
    recv_next(s, 6);
    ep_add(ep, s, EPOLLIN, 4);
    ep_say("drained", ep, 10);
    ep_del(ep, s);
    far_do(FAR_CLOSE, 0);
    poll_one(s, POLLRDHUP, 10000);
    ep_say("deleted", ep, 10);
    ep_add(ep, s, EPOLLIN | EPOLLRDHUP, 5);
    ep_say("end", ep, 10000);
}

static void epoll_again_modes(int s)
{
    int ep = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    again(ep, s, EPOLLIN | EPOLLET, 2);
    ep_say("edge", ep, 10000);
    ep_say("once", ep, 10);
    again(ep, s, EPOLLIN, 3);
    ep_say("level", ep, 10000);
    again(ep, s, EPOLLIN | EPOLLONESHOT, 4);
    ep_say("shot", ep, 10000);
    ep_say("once", ep, 10);
    again(ep, s, EPOLLIN, 5);
    ep_say("level", ep, 10000);
    ep_del(ep, s);
    say_result("exclusive", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLEXCLUSIVE, 6));
    say_result("exclusive", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLEXCLUSIVE, 7));
    ep_say("exclusive", ep, 10000);
    again(ep, s, EPOLLIN, 8);
    ep_say("level", ep, 10000);
}

/* Another name has the connection when the number goes; then the number is another connection's. */
static void epoll_again_number(int s)
{
    int ep = ep_new(), d = (int)must("dup", dup(s)), other = more();
    ep_add(ep, s, EPOLLIN, 1);
    ep_del(ep, s);
    ep_add(ep, d, EPOLLIN, 2);
    ep_del(ep, d);
    close(s);
    far_send_on(0, 10);
    ep_say("closed", ep, 20);
    ep_add(ep, d, EPOLLIN, 3);
    ep_say("dup", ep, 10000);
    ep_del(ep, d);
    must("dup2", dup2(other, s));
    ep_say("other", ep, 10);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 4));
    ep_add(ep, s, EPOLLIN, 5);
    ep_say("other", ep, 10);
    far_send_on(1, 10);
    ep_say("other", ep, 10000);
    ep_del(ep, s);
    must("dup2", dup2(d, s)); /* (other goes on as itself) */
    ep_say("back", ep, 10);
    ep_add(ep, s, EPOLLIN, 6);
    ep_say("back", ep, 10000);
    ep_del(ep, s);
    close(s);
    close(d);
    far_send_on(1, 10);
    ep_say("gone", ep, 20);
}

/* A child has the set, and what was deleted is deleted there, too. */
static void epoll_again_fork(int s)
{
    int ep = ep_new(), other = more();
    ep_add(ep, s, EPOLLIN, 1);
    ep_add(ep, other, EPOLLIN, 2);
    ep_del(ep, s);
    far_send_on(0, 10);
    far_send_on(1, 10);
    poll_one(s, POLLIN, 10000);
    poll_one(other, POLLIN, 10000);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        struct epoll_event ev[4];
        int n = epoll_wait(ep, ev, 4, 10000);
        int bad = n != 1 || ev[0].data.u64 != 2;
        bad |= (ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0) == 0 || errno != ENOENT) << 1;
        bad |= ep_ctl(ep, EPOLL_CTL_DEL, other, 0, 0) << 2;
        bad |= ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 3) << 3;
        _exit(bad);
    }
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%#x", (unsigned)status);
    ep_say("by_child", ep, 10000);
    say_result("del", ep_ctl(ep, EPOLL_CTL_DEL, other, 0, 0));
    ep_del(ep, s);
    ep_say("deleted", ep, 10);
    ep_add(ep, s, EPOLLIN, 4);
    ep_say("again", ep, 10000);
}

/* Who asks the set itself sees nothing of what was deleted. */
static void epoll_again_nested(int s)
{
    int ep = ep_new(), outer = ep_new();
    ep_add(ep, s, EPOLLIN, 1);
    ep_del(ep, s);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    say(" poll=%s", poll_names(poll_one(ep, POLLIN, 20)));
    ep_add(outer, ep, EPOLLIN, 2);
    ep_say("outer", outer, 20);
    ep_add(ep, s, EPOLLIN, 3);
    ep_say("outer", outer, 10000);
    ep_del(ep, s);
    ep_say("outer", outer, 20);
    say(" poll=%s", poll_names(poll_one(ep, POLLIN, 20)));
    ep_say("deleted", ep, 10);
}

static void *delete_and_add(void *arg)
{
    const int *p = arg;
    for (int i = 0; i < 3000; i++) {
        ep_ctl(p[0], EPOLL_CTL_DEL, p[1], 0, 0);
        ep_ctl(p[0], EPOLL_CTL_ADD, p[1], i % 3 ? EPOLLIN : EPOLLOUT, 1);
    }
    ep_ctl(p[0], EPOLL_CTL_DEL, p[1], 0, 0);
    return NULL;
}

/* Another thread deletes and adds while this one waits; in the end it is deleted. */
static void epoll_again_threads(int s)
{
    int ep = ep_new(), p[2] = { ep, s };
    pthread_t t;
    far_do(FAR_SEND, 10);
    ep_add(ep, s, EPOLLIN, 1);
    must("thread", -pthread_create(&t, NULL, delete_and_add, p));
    for (int i = 0; i < 500; i++) {
        struct epoll_event ev;
        int n = epoll_wait(ep, &ev, 1, 1);
        if (n > 0 && (ev.data.u64 != 1 || (ev.events & ~(uint32_t)(EPOLLIN | EPOLLOUT)) != 0))
            say(" WRONG");
    }
    pthread_join(t, NULL);
    ep_say("deleted", ep, 20);
    say_result("del", ep_ctl(ep, EPOLL_CTL_DEL, s, 0, 0));
    ep_add(ep, s, EPOLLIN, 2);
    ep_say("again", ep, 10000);
}

const struct scenario sem_epoll_park[] = {
    { "epoll_again", epoll_again },
    { "epoll_again_data", epoll_again_data },
    { "epoll_again_modes", epoll_again_modes },
    { "epoll_again_number", epoll_again_number },
    { "epoll_again_fork", epoll_again_fork },
    { "epoll_again_nested", epoll_again_nested },
    { "epoll_again_threads", epoll_again_threads },
    { NULL, NULL },
};
