/* Waiting inside the program's calls: for the call's own events, and for what is pending beside it. */
#include "preload/sock/wait.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>

#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/hooks.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"

#define WAIT_MAX 128u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects waiting_list; innermost */

/*
 * A thread that waits here, from its first wait in a process with several to its end. In its own memory: a call that is
 * left by cancellation or siglongjmp leaves at most a wake-up too many.
 */
struct waiting {
    int kick_fd;
    _Atomic(const struct conn *) conn; /* changes of this connection end its wait */
    _Atomic bool holds;                /* its wait has pending entries' descriptors */
    bool kicked;
    bool extra;                    /* a pending entry without a socket was seen to go on, or not */
    struct waiting *next, **pprev; /* the list; its lock */
};

static struct waiting *waiting_list;
static __thread struct waiting me = { .kick_fd = -1 };

void wait_thread_begin(int kick_fd)
{
    lock_take(&lock);
    me.kick_fd = kick_fd;
    me.next = waiting_list;
    me.pprev = &waiting_list;
    if (me.next != NULL)
        me.next->pprev = &me.next;
    waiting_list = &me;
    lock_give(&lock);
}

void wait_thread_end(void)
{
    lock_take(&lock);
    *me.pprev = me.next;
    if (me.next != NULL)
        me.next->pprev = me.pprev;
    me.kick_fd = -1;
    lock_give(&lock);
}

/* In a child: the wake-up descriptors of its parent's threads, which may sleep for bytes that this process takes. */
#define PARENTS_MAX 64u
static int parents_kick[PARENTS_MAX];
static unsigned parents_n;

const struct conn *wait_watch(const struct conn *c)
{
    const struct conn *before = atomic_load(&me.conn);
    if (poller_kick_fd() >= 0)
        atomic_store(&me.conn, c);
    return before;
}

void wait_unwatch(const struct conn *before)
{
    atomic_store(&me.conn, before);
    if (before != NULL) /* the call that a signal handler has interrupted; its events may have been taken */
        poller_kick(me.kick_fd);
}

void wait_tell(const struct conn *c, bool shared)
{
    if (SW_UNLIKELY(parents_n > 0) && shared)
        for (unsigned i = 0; i < parents_n; i++)
            poller_kick(parents_kick[i]);
    lock_take(&lock);
    for (const struct waiting *w = waiting_list; w != NULL; w = w->next)
        if (w != &me && atomic_load(&w->conn) == c)
            poller_kick(w->kick_fd);
    lock_give(&lock);
}

void wait_holds(bool some)
{
    atomic_store(&me.holds, some);
}

void wait_kick_holders(void)
{
    lock_take(&lock);
    for (const struct waiting *w = waiting_list; w != NULL; w = w->next)
        if (w != &me && atomic_load(&w->holds))
            poller_kick(w->kick_fd);
    lock_give(&lock);
}

unsigned wait_fill(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self)
{
    unsigned n = 0;
    if (me.kick_fd < 0 && pending_any())
        poller_kick_fd(); /* a thread that closes one of them has to be able to wake this one: pending_leave */
    if (me.kick_fd >= 0 && (pending_any() || atomic_load(&me.conn) != NULL)) {
        fds[n] = (struct pollfd){ .fd = me.kick_fd, .events = POLLIN };
        socks[n++] = NULL;
    }
    int extra = sock_hooks.extra_fd();
    if (extra >= 0) {
        fds[n] = (struct pollfd){ .fd = extra, .events = POLLIN };
        socks[n++] = NULL;
    }
    return pending_any() ? n + pending_hold(fds + n, socks + n, max - n, self) : n;
}

/* Descriptors that are no socket's come first. */
static void let_go(struct sock **socks, unsigned n)
{
    for (; n > 0 && *socks == NULL; n--)
        socks++;
    if (n > 0)
        pending_let_go(socks, n);
}

struct handful {
    struct sock **socks;
    unsigned n;
};

/* The thread is cancelled. */
static void drop(void *arg)
{
    const struct handful *h = arg;
    let_go(h->socks, h->n);
    for (unsigned i = 0; i < h->n; i++)
        if (h->socks[i] != NULL)
            sock_put(h->socks[i]);
}

static int ppoll_cancellable(struct pollfd *fds, nfds_t all, const struct timespec *timeout, const sigset_t *mask)
{
    int r;
    CANCEL_POINT(r = REAL(ppoll)(fds, all, timeout, mask));
    return r;
}

/* The timeout, or less if a connection was left out that has to be looked at again. */
static const struct timespec *sooner(const struct timespec *timeout, struct timespec *own)
{
    uint64_t until = pending_put_off_until();
    if (SW_LIKELY(until == 0) || (timeout != NULL && timeout->tv_sec == 0 && timeout->tv_nsec == 0))
        return timeout;
    uint64_t now = proc_now_ns(), left = until > now ? until - now : 0;
    if (timeout != NULL && (timeout->tv_sec == 0 && (uint64_t)timeout->tv_nsec <= left))
        return timeout;
    *own = (struct timespec){ .tv_nsec = (long)left };
    return own;
}

__attribute__((noinline)) int wait_ppoll(struct pollfd *fds, nfds_t all, struct sock **socks, unsigned n,
                                         const struct timespec *timeout, const sigset_t *mask)
{
    struct handful h = { socks, n };
    struct timespec own;
    timeout = sooner(timeout, &own);
    unsigned kept = n > 0 ? cancel_keep(drop, &h) : 0;
    int r = ppoll_cancellable(fds, all, timeout, mask);
    if (n > 0)
        cancel_kept(kept);
    return r;
}

void wait_filled(struct pollfd *fds, struct sock **socks, unsigned n, bool rest)
{
    uint64_t now = n > 0 ? proc_now_ns() : 0;
    let_go(socks, n);
    for (unsigned i = 0; i < n; i++) {
        if (socks[i] == NULL && fds[i].fd != me.kick_fd) {
            me.extra = fds[i].revents != 0;
            if (me.extra)
                sock_hooks.extra_step();
            continue;
        }
        if (socks[i] == NULL) {
            me.kicked = fds[i].revents != 0;
            if (me.kicked)
                poller_kick_drain(fds[i].fd);
            continue;
        }
        if ((fds[i].revents != 0 || pending_is_due(sock_hooks.due(socks[i]), now, rest)) && !sock_hooks.step(socks[i]))
            pending_put_off(socks[i]);
        sock_put(socks[i]);
    }
}

uint64_t wait_call_deadline(int fd, int which)
{
    struct timeval tv;
    socklen_t len = sizeof(tv);
    struct sock *s = sock_peek(fd);
    enum sock_default none = which == SO_RCVTIMEO ? SOCK_NO_RCVTIMEO : SOCK_NO_SNDTIMEO;
    if (s != NULL && sock_has_default(s, none))
        return 0;
    if (sandbox_getsockopt(fd, SOL_SOCKET, which, &tv, &len) < 0)
        return 0;
    if (tv.tv_sec == 0 && tv.tv_usec == 0) {
        if (s != NULL)
            sock_found_default(s, none);
        return 0;
    }
    return proc_now_ns() + (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

bool wait_was_interrupted(struct signals_mark since, int fd, int which)
{
    struct signals_mark now = signals_ran();
    return SW_UNLIKELY(now.all != since.all) && (now.ending != since.ending || wait_call_deadline(fd, which) != 0);
}

static uint64_t own_deadline(const struct sock *s)
{
    return s != NULL && s->conn != NULL ? sock_hooks.deadline(s) : 0;
}

#define ERRORS_NS 1000000

int wait_pause(int fd, short revents)
{
    const struct timespec ts = { .tv_nsec = ERRORS_NS };
    int state = revents == POLLERR ? tcpinfo_state(fd) : TCP_CLOSE;
    if (SW_LIKELY(state == TCP_CLOSE || state < 0))
        return 0;
    return REAL(ppoll)(NULL, 0, &ts, NULL) < 0 ? -errno : 0;
}

/* The time at which a wait ends without an event; 0: never. pending: it drives pending entries, too. */
static uint64_t wait_until(const struct sock *self, bool pending, uint64_t deadline_ns)
{
    uint64_t until = pending ? pending_deadline() : 0, own = own_deadline(self);
    if (own != 0 && (until == 0 || own < until)) /* (in a child it is not among those of pending_deadline) */
        until = own;
    return deadline_ns != 0 && (until == 0 || deadline_ns < until) ? deadline_ns : until;
}

/* Its deadline has passed, or another thread has changed it meanwhile. */
static bool may_have_changed(const struct sock *self)
{
    if (self == NULL || self->conn == NULL)
        return false;
    uint64_t due = own_deadline(self);
    if (due != 0 && due <= proc_now_ns())
        return true;
    return (me.kicked && atomic_load(&me.conn) == self->conn) ||
           me.extra; /* (it may have been this one's device, and its startup is over) */
}

/* Has a handler that ends the wait run since? eintr: the kernel says so. (It knows of handlers that we do not: Go's.) */
static bool is_interrupted(struct signals_mark since, uint64_t deadline_ns, bool eintr)
{
    struct signals_mark now = signals_ran();
    /* (A call with a time-out is never restarted: signal(7).) */
    if (SW_LIKELY(now.all == since.all))
        return eintr && !signals_only_ours(since) && (deadline_ns != 0 || !signals_restart());
    return deadline_ns != 0 || now.ending != since.ending;
}

/* fd2: another descriptor whose input ends the wait, or -1. */
static int wait_any(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self)
{
    struct pollfd fds[WAIT_MAX + 2];
    struct sock *socks[WAIT_MAX];
    struct signals_mark ran = signals_ran();
    sock_hooks.before_sleep();
    for (;;) {
        unsigned n = wait_fill(fds + 2, socks, WAIT_MAX, self);
        uint64_t until = wait_until(self, n > 0, deadline_ns);
        uint64_t now = until ? proc_now_ns() : 0;
        uint64_t left = until > now ? until - now : 0;
        struct timespec ts = { .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u) };
        fds[0] = (struct pollfd){ .fd = fd, .events = events };
        fds[1] = (struct pollfd){ .fd = fd2, .events = POLLIN };
        me.kicked = me.extra = false;
        int r = wait_ppoll(fds, n + 2, socks, n, until ? &ts : NULL, NULL);
        int err = errno;
        wait_filled(fds + 2, socks, n, r == 0);
        if (r < 0 && err != EINTR)
            return -err;
        short told = (short)(fds[0].revents | fds[1].revents);
        if (r > 0 && told != 0)
            return wait_pause(fd, told) == 0 || !is_interrupted(ran, deadline_ns, true) ? told : -EINTR;
        if (is_interrupted(ran, deadline_ns, r < 0)) /* while it slept, or took in what came to other connections */
            return -EINTR;
        if (may_have_changed(self) || (deadline_ns != 0 && proc_now_ns() >= deadline_ns))
            return 0;
    }
}

int wait_for(int fd, short events, uint64_t deadline_ns, struct sock *self)
{
    return fd < 0 ? -EBADF : wait_any(fd, events, -1, deadline_ns, self);
}

int wait_for_both(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self)
{
    return wait_any(fd, events, fd2, deadline_ns, self);
}

void wait_before_fork(void)
{
    lock_take(&lock);
}

void wait_after_fork(void)
{
    lock_give(&lock);
}

void wait_after_fork_child(void)
{
    for (const struct waiting *w = waiting_list; w != NULL && parents_n < PARENTS_MAX; w = w->next)
        if (w != &me)
            parents_kick[parents_n++] = w->kick_fd;
    waiting_list = NULL; /* (its own kick fd is another one in the child: poller_after_fork) */
    me = (struct waiting){ .kick_fd = -1 };
}
