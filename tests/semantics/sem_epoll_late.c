/*
 * epoll registrations that change between input and output and back: what the kernel may be spared of that, the program
 * does not see.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

/* A set in which s is registered for input, and has been told so. */
static int input_set(int s)
{
    int ep = ep_new();
    set_nonblock(s, true);
    ep_add(ep, s, EPOLLIN, 1);
    far_do(FAR_SEND, 10);
    ep_say("in", ep, 10000);
    recv_next(s, 10);
    return ep;
}

static void epoll_turns(int s)
{
    int ep = input_set(s);
    for (int i = 0; i < 5; i++) {
        ep_mod(ep, s, EPOLLOUT, 10 + i);
        ep_say("out", ep, 10000);
        ep_say("still", ep, 10000);
        send_next(s, 10);
        far_say("far", far_do(FAR_RECV, 10));
        ep_mod(ep, s, EPOLLIN | EPOLLOUT, 20 + i);
        ep_say("both", ep, 10000);
        ep_mod(ep, s, EPOLLIN, 30 + i);
        ep_mod(ep, s, EPOLLIN, 40 + i);
        ep_say("quiet", ep, 10);
        far_do(FAR_SEND, 10);
        ep_say("in", ep, 10000);
        recv_next(s, 10);
        ep_mod(ep, s, 0, 50 + i);
        ep_say("nothing", ep, 10);
    }
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 2));
    say_result("add", ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 3));
    ep_del(ep, s);
    say_result("mod", ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLOUT, 4));
}

/* What comes in while only output is asked for, or nothing. */
static void epoll_turns_data(int s)
{
    int ep = input_set(s);
    ep_mod(ep, s, EPOLLOUT, 2);
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    ep_say("out", ep, 10000);
    ep_mod(ep, s, 0, 3);
    unsigned cpu = cpu_ms();
    ep_say("nothing", ep, 200);
    say_idle(cpu, 200);
    ep_mod(ep, s, EPOLLOUT, 4);
    recv_next(s, 4);
    ep_say("out", ep, 10000);
    ep_mod(ep, s, EPOLLIN, 5);
    ep_say("left", ep, 10000);
    recv_next(s, 6);
    ep_mod(ep, s, EPOLLIN | EPOLLRDHUP, 6);
    ep_say("read", ep, 10);
    ep_mod(ep, s, EPOLLOUT, 7);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    poll_one(s, POLLRDHUP, 10000);
    ep_say("end", ep, 10000);
    ep_mod(ep, s, EPOLLIN | EPOLLRDHUP, 8);
    ep_say("end", ep, 10000);
}

/* No room: it is told when there is. */
static void epoll_turns_full(int s)
{
    int ep = input_set(s);
    ep_mod(ep, s, EPOLLOUT, 2);
    ep_say("out", ep, 10000);
    size_t sent = fill_up(s);
    unsigned cpu = cpu_ms();
    ep_say("full", ep, 200);
    ep_mod(ep, s, EPOLLIN, 3);
    ep_mod(ep, s, EPOLLOUT, 4);
    ep_say("full", ep, 200);
    ep_del(ep, s);
    ep_add(ep, s, EPOLLIN | EPOLLOUT, 5);
    ep_say("full", ep, 200);
    say_idle(cpu, 600);
    far_begin(FAR_RECV, (int64_t)sent, 50);
    ep_say("room", ep, 10000);
    struct far_result r = far_end();
    say(" far=%s", r.r == (int64_t)sent && !r.bad ? "all" : "WRONG");
    ep_mod(ep, s, EPOLLIN, 6);
    ep_mod(ep, s, EPOLLOUT, 7);
    ep_say("room", ep, 10000);
}

/* A socket whose sends wait is told to be writable only when they would not. */
static void epoll_turns_blocking(int s)
{
    int ep = input_set(s);
    ep_mod(ep, s, EPOLLOUT, 2);
    set_nonblock(s, false);
    ep_say("out", ep, 10000);
    set_nonblock(s, true);
    size_t sent = fill_up(s);
    set_nonblock(s, false);
    ep_mod(ep, s, EPOLLIN, 3);
    ep_mod(ep, s, EPOLLOUT, 4);
    ep_say("full", ep, 100);
    far_begin(FAR_RECV, (int64_t)sent, 20);
    ep_say("room", ep, 10000);
    struct far_result r = far_end();
    say(" far=%s", r.r == (int64_t)sent && !r.bad ? "all" : "WRONG");
}

/*
 * Blocks of which the socket takes a part, between turns of the registration: nothing is lost, and the CPU is left
 * alone.
 */
static void epoll_turns_stream(int s)
{
    static uint8_t buf[300000];
    int ep = input_set(s);
    enum { ALL = 12000000 };
    far_begin(FAR_RECV, ALL, 100);
    for (size_t sent = 0; sent < ALL;) {
        ep_mod(ep, s, EPOLLOUT, 2);
        struct epoll_event ev;
        if (epoll_wait(ep, &ev, 1, 10000) != 1 || ev.events != EPOLLOUT) {
            say(" WRONG");
            break;
        }
        size_t len = ALL - sent < sizeof(buf) ? ALL - sent : sizeof(buf);
        fill(buf, len, sem_tx);
        ssize_t n = send(s, buf, len, 0);
        if (n > 0) {
            sent += (size_t)n;
            sem_tx += (uint64_t)n;
        } else if (errno != EAGAIN) {
            say_result("send", n);
            break;
        }
        ep_mod(ep, s, EPOLLIN, 3);
    }
    struct far_result r = far_end();
    say(" far=%s", r.r == ALL && !r.bad ? "all" : "WRONG");
}

static void epoll_turns_reset(int s)
{
    int ep = input_set(s);
    ep_mod(ep, s, EPOLLOUT, 2);
    far_do(FAR_RESET, 0);
    poll_one(s, POLLIN, 10000);
    ep_say("reset", ep, 10000);
    ep_mod(ep, s, EPOLLIN, 3);
    ep_say("reset", ep, 10000);
}

/* Another descriptor, a child, a thread that polls the set itself and one that sleeps in it: all see the registration. */
static void epoll_turns_dup(int s)
{
    int ep = input_set(s), d = (int)must("dup", dup(s));
    ep_add(ep, d, EPOLLIN, 2);
    ep_mod(ep, s, EPOLLOUT, 3);
    ep_say("out", ep, 10000);
    ep_mod(ep, d, EPOLLOUT, 4);
    ep_say("out", ep, 10000);
    ep_mod(ep, s, EPOLLIN, 5);
    close(s);
    ep_say("closed", ep, 10000);
    ep_mod(ep, d, EPOLLIN, 6);
    ep_say("quiet", ep, 10);
}

static void epoll_turns_fork(int s)
{
    int ep = input_set(s);
    ep_mod(ep, s, EPOLLOUT, 2);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        struct epoll_event ev[4];
        int n = epoll_wait(ep, ev, 4, 10000);
        int bad = n != 1 || ev[0].data.u64 != 2 || ev[0].events != EPOLLOUT;
        bad |= ep_ctl(ep, EPOLL_CTL_MOD, s, EPOLLIN, 3) << 1;
        bad |= (epoll_wait(ep, ev, 4, 10) != 0) << 2;
        _exit(bad);
    }
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%#x", (unsigned)status);
    ep_say("by_child", ep, 10);
    ep_mod(ep, s, EPOLLOUT, 4);
    ep_say("out", ep, 10000);
}

static void epoll_turns_nested(int s)
{
    int ep = input_set(s), outer = ep_new();
    ep_mod(ep, s, EPOLLOUT, 2);
    say(" poll=%s", poll_names(poll_one(ep, POLLIN, 10000)));
    ep_add(outer, ep, EPOLLIN, 3);
    ep_say("outer", outer, 10000);
    ep_mod(ep, s, EPOLLIN, 4);
    ep_say("outer", outer, 20);
    ep_mod(ep, s, EPOLLOUT, 5);
    ep_say("outer", outer, 10000);
    ep_say("inner", ep, 10000);
}

static void epoll_turns_asleep(int s)
{
    struct waiter w;
    int ep = input_set(s);
    wait_in_epoll(&w, ep, 10000);
    ep_mod(ep, s, EPOLLOUT, 2);
    wait_end("out", &w);
    ep_mod(ep, s, EPOLLIN, 3);
    wait_in_epoll(&w, ep, 10000);
    far_do(FAR_SEND, 10);
    wait_end("in", &w);
}

static void *turn_and_turn(void *arg)
{
    const int *p = arg;
    for (int i = 0; i < 3000; i++)
        ep_ctl(p[0], EPOLL_CTL_MOD, p[1], i % 2 ? EPOLLIN : EPOLLOUT, (uint64_t)(i % 2));
    ep_ctl(p[0], EPOLL_CTL_MOD, p[1], EPOLLOUT, 2);
    return NULL;
}

static void epoll_turns_threads(int s)
{
    int ep = input_set(s), p[2] = { ep, s };
    pthread_t t;
    must("thread", -pthread_create(&t, NULL, turn_and_turn, p));
    for (int i = 0; i < 500; i++) {
        struct epoll_event ev;
        int n = epoll_wait(ep, &ev, 1, 1);
        if (n > 0 && ev.events != EPOLLOUT)
            say(" WRONG");
    }
    pthread_join(t, NULL);
    ep_say("out", ep, 10000);
}

const struct scenario sem_epoll_late[] = {
    { "epoll_turns", epoll_turns },
    { "epoll_turns_data", epoll_turns_data },
    { "epoll_turns_full", epoll_turns_full },
    { "epoll_turns_blocking", epoll_turns_blocking },
    { "epoll_turns_stream", epoll_turns_stream },
    { "epoll_turns_reset", epoll_turns_reset },
    { "epoll_turns_dup", epoll_turns_dup },
    { "epoll_turns_fork", epoll_turns_fork },
    { "epoll_turns_nested", epoll_turns_nested },
    { "epoll_turns_asleep", epoll_turns_asleep },
    { "epoll_turns_threads", epoll_turns_threads },
    { NULL, NULL },
};
