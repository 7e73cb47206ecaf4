/*
 * Calls that are left without returning: siglongjmp out of a signal handler, pthread_cancel, the death of a process
 * that shares the connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static sigjmp_buf out;

static void jump(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

/* A signal jumps out of the next call that waits. (Out of one at work a jump may cost the connection.) */
static void jump_soon(void)
{
    signal_after(10, false);
    struct sigaction sa = { .sa_handler = jump };
    must("sigaction", sigaction(SIGUSR1, &sa, NULL));
}

/* The same deeper on the stack than the call that was left. */
static __attribute__((noinline)) void deeper(int s, int depth)
{
    volatile uint8_t filler[512];
    filler[0] = (uint8_t)depth;
    if (depth > 0)
        deeper(s, depth - 1);
    else
        say(" got=%zu", recv_next(s, 10));
    filler[1] = filler[0];
}

static void jump_recv(int s)
{
    uint8_t buf[10];
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(out, 1) == 0) {
            jump_soon();
            say_result("recv", recv(s, buf, sizeof(buf), 0));
        }
        far_do(FAR_SEND, 10);
        if (i == 2)
            deeper(s, 20);
        else
            say(" got=%zu", recv_next(s, 10));
    }
    send_next(s, 1000);
    far_say("far", far_do(FAR_RECV, 1000));
}

/* Half a message is there when it is left. */
static void jump_waitall(int s)
{
    uint8_t buf[100];
    far_do(FAR_SEND, 10);
    if (sigsetjmp(out, 1) == 0) {
        jump_soon();
        say_result("peek", recv(s, buf, 20, MSG_PEEK | MSG_WAITALL));
    }
    say(" got=%zu", recv_next(s, 10));
}

static void jump_send(int s)
{
    static uint8_t buf[1 << 20];
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    /* How much the kernel took is not known; it is all of one value. */
    memset(buf, 'x', sizeof(buf));
    if (sigsetjmp(out, 1) == 0) {
        jump_soon();
        for (;;)
            if (send(s, buf, sizeof(buf), 0) < 0)
                say(" %s", strerror(errno));
    }
    far_begin(FAR_DRAIN, 'x', 0);
    say_result("end", send(s, "end", 3, 0));
    shutdown(s, SHUT_WR);
    far_say("other", far_end());
}

static void jump_poll(int s)
{
    for (volatile int i = 0; i < 4; i++) {
        if (sigsetjmp(out, 1) == 0) {
            jump_soon();
            if (i & 1) {
                fd_set r;
                FD_ZERO(&r);
                FD_SET(s, &r);
                say_result("select", select(s + 1, &r, NULL, NULL, NULL));
            } else {
                say(" %s", poll_names(poll_one(s, POLLIN, -1)));
            }
        }
        far_do(FAR_SEND, 3);
        say(" %s", poll_names(poll_one(s, POLLIN, -1)));
        say(" got=%zu", recv_next(s, 3));
    }
}

static void jump_epoll(int s)
{
    int ep = epoll_create1(0);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev);
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(out, 1) == 0) {
            jump_soon();
            say_result("wait", epoll_wait(ep, &ev, 1, -1));
        }
        far_do(FAR_SEND, 3);
        say_result("wait", epoll_wait(ep, &ev, 1, -1));
        say(" got=%zu", recv_next(s, 3));
    }
}

static void jump_connect(int s)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(sem_far_port),
        .sin_port = htons(sem_far_port),
    };
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    if (sigsetjmp(out, 1) == 0) {
        jump_soon();
        must("connect", connect(c, (struct sockaddr *)&in, sizeof(in)));
        for (;;) /* it need not have waited at all */
            pause();
    }
    far_do(FAR_ACCEPT, 0);
    send_next(c, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    say(" got=%zu", recv_next(c, 10));
    (void)s;
}

/* ---- threads that are cancelled ---- */

enum what { WAIT_RECV, WAIT_SEND, WAIT_POLL, WAIT_SELECT, WAIT_EPOLL, WAIT_ACCEPT };

struct waiter {
    enum what what;
    int s, ep;
};

static void *wait_in(void *arg)
{
    const struct waiter *w = arg;
    static uint8_t buf[1 << 20];
    struct epoll_event ev;
    fd_set r;
    switch (w->what) {
    case WAIT_RECV:
        recv(w->s, buf, 10, 0);
        break;
    case WAIT_SEND:
        memset(buf, 'x', sizeof(buf));
        for (;;)
            send(w->s, buf, sizeof(buf), 0);
    case WAIT_POLL:
        poll_one(w->s, POLLIN, -1);
        break;
    case WAIT_SELECT:
        FD_ZERO(&r);
        FD_SET(w->s, &r);
        select(w->s + 1, &r, NULL, NULL, NULL);
        break;
    case WAIT_EPOLL:
        epoll_wait(w->ep, &ev, 1, -1);
        break;
    case WAIT_ACCEPT:
        accept(sem_listener, NULL, NULL);
        break;
    }
    return NULL;
}

static void cancelled(const char *name, const struct waiter *w)
{
    pthread_t t;
    void *result;
    must("thread", pthread_create(&t, NULL, wait_in, (void *)(uintptr_t)w));
    others_sleep();
    pthread_cancel(t);
    pthread_join(t, &result);
    say(" %s=%s", name, result == PTHREAD_CANCELED ? "cancelled" : "returned");
}

static void cancel_recv(int s)
{
    struct waiter w = { .what = WAIT_RECV, .s = s };
    for (int i = 0; i < 3; i++) {
        cancelled("recv", &w);
        far_do(FAR_SEND, 10);
        say(" got=%zu", recv_next(s, 10));
    }
}

/* One waits behind the other, and is cancelled; the first one gets the octets. */
static void cancel_second(int s)
{
    struct waiter w = { .what = WAIT_RECV, .s = s };
    pthread_t first;
    void *result;
    must("thread", pthread_create(&first, NULL, wait_in, &w));
    others_sleep();
    cancelled("second", &w);
    far_do(FAR_SEND, 10);
    pthread_join(first, &result);
    say(" first=%s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
    sem_rx += 10;
    far_do(FAR_SEND, 10);
    say(" got=%zu", recv_next(s, 10));
}

/* And the first one: the second is next. */
static void cancel_first(int s)
{
    struct waiter w = { .what = WAIT_RECV, .s = s };
    pthread_t first, second;
    void *result;
    must("thread", pthread_create(&first, NULL, wait_in, &w));
    others_sleep();
    must("thread", pthread_create(&second, NULL, wait_in, &w));
    others_sleep();
    pthread_cancel(first);
    pthread_join(first, &result);
    say(" first=%s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
    far_do(FAR_SEND, 10);
    pthread_join(second, &result);
    say(" second=%s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
}

static void cancel_send(int s)
{
    struct waiter w = { .what = WAIT_SEND, .s = s };
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    cancelled("send", &w);
    far_begin(FAR_DRAIN, 'x', 0);
    say_result("end", send(s, "end", 3, 0));
    shutdown(s, SHUT_WR);
    far_say("other", far_end());
}

static void cancel_waits(int s)
{
    struct waiter w = { .s = s, .ep = epoll_create1(0) };
    struct epoll_event ev = { .events = EPOLLIN };
    epoll_ctl(w.ep, EPOLL_CTL_ADD, s, &ev);
    for (int i = 0; i < 2; i++) {
        w.what = WAIT_POLL;
        cancelled("poll", &w);
        w.what = WAIT_SELECT;
        cancelled("select", &w);
        w.what = WAIT_EPOLL;
        cancelled("epoll", &w);
        w.what = WAIT_ACCEPT;
        cancelled("accept", &w);
        far_do(FAR_SEND, 10);
        say(" %s", poll_names(poll_one(s, POLLIN, -1)));
        say_result("wait", epoll_wait(w.ep, &ev, 1, -1));
        say(" got=%zu", recv_next(s, 10));
        say(" %s", poll_names(poll_one(s, POLLIN, 0)));
    }
}

/* A thread whose cancellation is off is not. */
static void *with_cancel_off(void *arg)
{
    int s = *(int *)arg, old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    say(" got=%zu", recv_next(s, 10));
    pthread_setcancelstate(old, NULL);
    pthread_testcancel();
    return NULL;
}

static void cancel_disabled(int s)
{
    pthread_t t;
    void *result;
    must("thread", pthread_create(&t, NULL, with_cancel_off, &s));
    others_sleep();
    pthread_cancel(t);
    far_do(FAR_SEND, 10);
    pthread_join(t, &result);
    say(" %s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
}

enum pending { PENDING_RECV, PENDING_READ, PENDING_SEND, PENDING_POLL, PENDING_SHUTDOWN, PENDING_CLOSE };

struct pending_call {
    enum pending what;
    int s;
};

/* It is cancelled before its call, which has no need to wait. */
static void *calls_pending(void *arg)
{
    const struct pending_call *p = arg;
    char buf[10] = "0123456789";
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    switch (p->what) {
    case PENDING_RECV:
        recv(p->s, buf, sizeof(buf), MSG_DONTWAIT);
        break;
    case PENDING_READ:
        return read(p->s, buf, sizeof(buf)) == sizeof(buf) ? NULL : arg;
    case PENDING_SEND:
        send(p->s, buf, sizeof(buf), 0);
        break;
    case PENDING_POLL:
        poll_one(p->s, POLLIN, 0);
        break;
    case PENDING_SHUTDOWN:
        shutdown(p->s, SHUT_WR);
        break;
    case PENDING_CLOSE:
        close(p->s);
        break;
    }
    return NULL;
}

static void pending(const char *name, int s, enum pending what)
{
    struct pending_call p = { what, s };
    pthread_t t;
    void *result;
    must("thread", pthread_create(&t, NULL, calls_pending, &p));
    pthread_join(t, &result);
    say(" %s=%s", name, result == PTHREAD_CANCELED ? "cancelled" : "returned");
}

/* A cancelled thread's call is not done at all, though it would not have waited. */
static void cancel_pending(int s)
{
    far_do(FAR_SEND, 20);
    recv_next(s, 10);
    pending("recv", s, PENDING_RECV);
    pending("read", s, PENDING_READ);
    pending("poll", s, PENDING_POLL);
    say(" got=%zu", recv_next(s, 10));
    pending("send", s, PENDING_SEND);
    pending("close", s, PENDING_CLOSE);
    send_next(s, 10);
    pending("shutdown", s, PENDING_SHUTDOWN);
    far_say("far", far_do(FAR_RECV, 11));
    say(" close=%d", close(s));
}

/* The last descriptor is closed while a thread waits: when that thread is cancelled, no process has the connection. */
static void cancel_closed(int s)
{
    struct waiter w = { .what = WAIT_RECV, .s = s };
    pthread_t t;
    void *result;
    must("thread", pthread_create(&t, NULL, wait_in, &w));
    others_sleep();
    say(" close=%d", close(s));
    pthread_cancel(t);
    pthread_join(t, &result);
    say(" %s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
    far_say("far", far_do(FAR_RECV, 1));
}

/* A thread is cancelled in epoll_wait; all that it waited for can be closed. */
static void cancel_closed_epoll(int s)
{
    struct waiter w = { .what = WAIT_EPOLL, .s = s, .ep = epoll_create1(0) };
    struct epoll_event ev = { .events = EPOLLIN };
    epoll_ctl(w.ep, EPOLL_CTL_ADD, s, &ev);
    cancelled("epoll", &w);
    say(" close=%d,%d", close(w.ep), close(s));
    far_say("far", far_do(FAR_RECV, 1));
}

static void *sends_own(void *arg)
{
    uint8_t own[1 << 19];
    memset(own, 'x', sizeof(own));
    while (send(*(int *)arg, own, sizeof(own), 0) > 0)
        continue;
    return NULL;
}

/* What a cancelled thread was sending lay in its own memory, which others write on: none of this goes out. */
static void cancel_own_memory(int s)
{
    pthread_t t;
    void *result;
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    must("thread", pthread_create(&t, NULL, sends_own, &s));
    others_sleep();
    pthread_cancel(t);
    pthread_join(t, &result);
    say(" %s", result == PTHREAD_CANCELED ? "cancelled" : "returned");
    far_begin(FAR_DRAIN, 'x', 0);
    say_result("end", send(s, "end", 3, 0));
    shutdown(s, SHUT_WR);
    far_say("other", far_end());
}

const struct scenario sem_left[] = {
    { "jump_recv", jump_recv },
    { "jump_waitall", jump_waitall },
    { "jump_send", jump_send },
    { "jump_poll", jump_poll },
    { "jump_epoll", jump_epoll },
    { "jump_connect", jump_connect },
    { "cancel_recv", cancel_recv },
    { "cancel_second", cancel_second },
    { "cancel_first", cancel_first },
    { "cancel_send", cancel_send },
    { "cancel_waits", cancel_waits },
    { "cancel_disabled", cancel_disabled },
    { "cancel_pending", cancel_pending },
    { "cancel_closed", cancel_closed },
    { "cancel_closed_epoll", cancel_closed_epoll },
    { "cancel_own_memory", cancel_own_memory },
    { 0 },
};
