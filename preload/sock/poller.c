/*
 * Threads that wait in poll, select or epoll_wait while others may use their descriptors.
 */
#include "preload/sock/poller.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>

#include "preload/process/cancel.h"
#include "preload/process/hidden.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/sock/wait.h"

static __thread int my_kick = -1;
static pthread_key_t kick_end;
static pthread_once_t kick_end_once = PTHREAD_ONCE_INIT;
static bool kick_end_made;

static void pollers_end(void);

static void kick_close(void *arg)
{
    int fd = (int)(intptr_t)arg - 1;
    cancel_left(NULL);
    pollers_end();
    wait_thread_end();
    hidden_close(fd);
    my_kick = -1;
}

static void kick_end_make(void)
{
    kick_end_made = pthread_key_create(&kick_end, kick_close) == 0;
}

bool poller_threads(void)
{
    return !__libc_single_threaded;
}

int poller_kick_fd(void)
{
    if (__libc_single_threaded)
        return -1;
    if (my_kick < 0) {
        pthread_once(&kick_end_once, kick_end_make);
        int fd = kick_end_made ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
        if (fd < 0)
            return -1;
        fd = hidden_move(fd);
        if (pthread_setspecific(kick_end, (void *)(intptr_t)(fd + 1)) != 0) {
            hidden_close(fd);
            return -1;
        }
        my_kick = fd;
        wait_thread_begin(fd);
    }
    return my_kick;
}

void poller_kick(int kick_fd)
{
    uint64_t one = 1;
    if (kick_fd >= 0 && REAL(write)(kick_fd, &one, sizeof(one)) < 0)
        return; /* full: it is awake anyway */
}

void poller_kick_drain(int kick_fd)
{
    uint64_t n;
    if (kick_fd >= 0 && REAL(read)(kick_fd, &n, sizeof(n)) < 0)
        return; /* another thread was faster */
}

void poller_after_fork(void)
{
    wait_after_fork_child();
    if (my_kick >= 0) {
        hidden_close(my_kick); /* shared with the parent otherwise */
        pthread_setspecific(kick_end, NULL);
    }
    my_kick = -1;
}

/* ---- this thread's pollers; a handler that waits finds the lists whole ---- */

#define POLLERS_OWN 16u

static __thread struct {
    struct poller own[POLLERS_OWN];
    unsigned own_used;
    struct poller *free, *used; /* by `mine`; used: the newest first */
} my;

static struct poller *poller_take(uintptr_t frame)
{
    struct poller *p = my.free;
    if (p != NULL) {
        my.free = p->mine;
    } else if (my.own_used < POLLERS_OWN) {
        p = &my.own[my.own_used++];
        p->spare = true;
    } else {
        p = calloc(1, sizeof(*p));
        if (p == NULL)
            return NULL;
    }
    p->frame = frame;
    p->kick_fd = -1;
    p->sock = NULL;
    p->pprev = NULL;
    p->mine = my.used;
    my.used = p;
    return p;
}

struct poller *poller_count(_Atomic uint32_t *waiters, uintptr_t frame)
{
    cancel_also(poller_thread_left);
    signals_hold();
    struct poller *p = poller_take(frame);
    if (p != NULL) {
        p->waiters = waiters;
        atomic_fetch_add(waiters, 1);
    }
    signals_go_on();
    return p;
}

static void enter(struct poller *p, struct sock *s)
{
    lock_take(&s->watch_lock);
    p->next = s->pollers;
    p->pprev = &s->pollers;
    if (p->next != NULL)
        p->next->pprev = &p->next;
    s->pollers = p;
    lock_give(&s->watch_lock);
}

struct poller *poller_begin(struct sock *s, int kick_fd, uintptr_t frame)
{
    signals_hold(); /* (a handler that leaves the call leaves all of it, or none) */
    struct poller *p = poller_count(&s->waiters, frame);
    if (p != NULL) {
        p->sock = s;
        p->kick_fd = kick_fd;
        if (kick_fd >= 0)
            enter(p, s);
    }
    signals_go_on();
    return p;
}

void poller_end(struct poller *p)
{
    if (p == NULL)
        return;
    signals_hold();
    struct sock *s = p->sock;
    atomic_fetch_sub(p->waiters, 1);
    if (p->pprev != NULL) {
        lock_take(&s->watch_lock);
        *p->pprev = p->next;
        if (p->next != NULL)
            p->next->pprev = p->pprev;
        lock_give(&s->watch_lock);
    }
    struct poller **at = &my.used;
    while (*at != NULL && *at != p) /* mostly among the newest */
        at = &(*at)->mine;
    if (*at == p)
        *at = p->mine;
    p->mine = my.free;
    my.free = p;
    signals_go_on();
    if (s != NULL)
        sock_put(s);
}

/*
 * A call that is still under way in this thread is further up the stack than a signal handler's; a call that is not
 * there was left.
 */
uintptr_t poller_call_begin(void)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    stack_t now;
    if (SW_LIKELY(my.used == NULL) || (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_ONSTACK)))
        return frame;
    while (my.used != NULL && my.used->frame <= frame)
        poller_end(my.used);
    return frame;
}

void poller_thread_left(void)
{
    while (my.used != NULL)
        poller_end(my.used);
}

/* The thread ends. */
static void pollers_end(void)
{
    poller_thread_left();
    for (struct poller *p = my.free, *next; p != NULL; p = next) {
        next = p->mine;
        if (!p->spare)
            free(p);
    }
    my.free = NULL;
}

void poller_wake(struct sock *s)
{
    if (atomic_load(&s->waiters) == 0)
        return;
    lock_take(&s->watch_lock);
    for (struct poller *p = s->pollers; p != NULL; p = p->next)
        if (p->kick_fd != my_kick)
            poller_kick(p->kick_fd);
    lock_give(&s->watch_lock);
}
