/*
 * Driving negotiations: which of them are under way in this process, and who waits.
 */
#include "preload/drive.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>

#include "core/base/foreign.h"
#include "preload/cancel.h"
#include "preload/conn.h"
#include "preload/epoll.h"
#include "preload/gather.h"
#include "preload/poller.h"
#include "preload/proc.h"
#include "preload/real.h"
#include "preload/sandbox.h"
#include "preload/tcpinfo.h"
#include "preload/verbs.h"

#define WAIT_MAX 128u
/* An accepted connection on which nothing came for so long is looked at only when the program uses it. */
#define YOUNG_NS 3000000000ull

/*
 * Protects: the lists below and every sock's neg_next, neg_pprev, neg_silent, neg_over. Innermost.
 *
 * A connection that was accepted, and on which nothing has come, has no deadline and may stay so for ever. It stands on a list of its
 * own while it is young, unless an epoll set of the program's watches it: its wait sees what comes. So no wait walks past silent ones.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sock *list, *silent; /* the newest first */
static _Atomic unsigned count, silent_n; /* of both; of those */
static _Atomic uint64_t looked;          /* how many entries waits have looked at */

/*
 * A thread that waits here, from its first wait in a process with several to its end. In its own memory: a call that is
 * left by cancellation or siglongjmp leaves at most a wake-up too many.
 */
struct waiting {
    int kick_fd;
    _Atomic(const struct conn *) conn; /* it wants to know of changes of this one */
    _Atomic bool holds;                /* it waits with other threads' descriptors in its hand */
    bool kicked;
    bool device;                       /* a device's connection was seen to go on, or not */
    struct waiting *next, **pprev;     /* the list below; its lock */
};

static struct waiting *waiting_list;
static __thread struct waiting me = { .kick_fd = -1 };

void drive_thread_begin(int kick_fd)
{
    pthread_mutex_lock(&lock);
    me.kick_fd = kick_fd;
    me.next = waiting_list;
    me.pprev = &waiting_list;
    if (me.next != NULL)
        me.next->pprev = &me.next;
    waiting_list = &me;
    pthread_mutex_unlock(&lock);
}

void drive_thread_end(void)
{
    pthread_mutex_lock(&lock);
    *me.pprev = me.next;
    if (me.next != NULL)
        me.next->pprev = me.pprev;
    me.kick_fd = -1;
    pthread_mutex_unlock(&lock);
}

/* In a child: those of its parent's threads, which may sleep for what it takes. */
#define PARENTS_MAX 64u
static int parents_kick[PARENTS_MAX];
static unsigned parents_n;

static void kick(int fd)
{
    uint64_t one = 1;
    if (REAL(write)(fd, &one, sizeof(one)) < 0)
        return; /* full: it is awake anyway */
}

const struct conn *drive_watch(const struct conn *c)
{
    const struct conn *before = atomic_load(&me.conn);
    if (poller_kick_fd() >= 0)
        atomic_store(&me.conn, c);
    return before;
}

void drive_unwatch(const struct conn *before)
{
    atomic_store(&me.conn, before);
    if (before != NULL) /* the call that a signal handler has interrupted; what was for it may have been taken */
        kick(me.kick_fd);
}

void drive_tell(const struct conn *c)
{
    if (SW_UNLIKELY(parents_n > 0) && atomic_load(&c->holders.n) > 1)
        for (unsigned i = 0; i < parents_n; i++)
            kick(parents_kick[i]);
    pthread_mutex_lock(&lock);
    for (const struct waiting *w = waiting_list; w != NULL; w = w->next)
        if (w != &me && atomic_load(&w->conn) == c)
            kick(w->kick_fd);
    pthread_mutex_unlock(&lock);
}

/* Has nothing come on it, and does nobody count the time? */
static bool is_silent(const struct conn *c)
{
    return conn_unheard(c) && !drive_held(c) && atomic_load(&c->shut_later) == 0;
}

/* Through both lists, the silent ones behind the others. The lock is held. */
static struct sock *first_listed(void)
{
    return list != NULL ? list : silent;
}

static struct sock *next_listed(const struct sock *s)
{
    return s->neg_next != NULL || s->neg_silent ? s->neg_next : silent;
}

/* The lock is held, s is on a list. */
static void unlist(struct sock *s)
{
    *s->neg_pprev = s->neg_next;
    if (s->neg_next != NULL)
        s->neg_next->neg_pprev = s->neg_pprev;
    s->neg_pprev = NULL;
    atomic_fetch_sub(&count, 1);
    if (s->neg_silent)
        atomic_fetch_sub(&silent_n, 1);
}

void drive_add(struct sock *s)
{
    bool mute = is_silent(s->conn);
    pthread_mutex_lock(&lock);
    if (s->neg_pprev != NULL && s->neg_silent != mute)
        unlist(s);
    if (s->neg_pprev == NULL && !s->neg_over) {
        struct sock **first = mute ? &silent : &list;
        s->neg_silent = mute;
        s->neg_next = *first;
        s->neg_pprev = first;
        if (*first != NULL)
            (*first)->neg_pprev = &s->neg_next;
        *first = s;
        atomic_fetch_add(&count, 1);
        atomic_fetch_add(&silent_n, mute);
    }
    pthread_mutex_unlock(&lock);
}

void drive_watched(void)
{
    if (atomic_load_explicit(&silent_n, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&lock);
    while (silent != NULL && epoll_watches(silent)) {
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        unlist(silent);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t drive_looked(void)
{
    return atomic_load(&looked);
}

void drive_remove(struct sock *s)
{
    pthread_mutex_lock(&lock);
    if (s->neg_pprev != NULL)
        unlist(s);
    pthread_mutex_unlock(&lock);
}

void drive_leave(struct sock *s)
{
    pthread_mutex_lock(&lock);
    if (s->neg_pprev != NULL)
        unlist(s);
    /* The kernel ends a connection when the last wait for it has ended, not before. */
    for (const struct waiting *w = s->neg_held > 0 ? waiting_list : NULL; w != NULL; w = w->next)
        if (w != &me && atomic_load(&w->holds))
            kick(w->kick_fd);
    s->neg_over = true;
    pthread_mutex_unlock(&lock);
}

bool drive_others(const struct sock *self)
{
    unsigned n = atomic_load_explicit(&count, memory_order_relaxed);
    return !foreign_call() && n > (self != NULL && self->neg_pprev != NULL ? 1u : 0u);
}

/* A step with both turns held. brief, result: as drive_sock. */
static int in_turns(struct sock *s, bool brief, void (*step)(struct sock *s))
{
    struct conn *c = s->conn;
    int r = brief ? turn_try(&c->rx) : turn_take_brief(&c->rx);
    if (r < 0)
        return r;
    r = brief ? turn_try(&c->tx) : turn_take_brief(&c->tx);
    if (r == 0) {
        step(s);
        turn_give(&c->tx);
    }
    turn_give(&c->rx);
    return r;
}

static void withdraw(struct sock *s)
{
    if (conn_state(s->conn) == CONN_NEGOTIATING)
        negotiate_withdraw(&s->conn->neg);
    drive_step(s);
}

int drive_hurry(struct sock *s)
{
    const struct conn *c = s->conn;
    int r = drive_sock(s, true);
    if (r < 0 || !c->in_backlog || conn_state(c) != CONN_NEGOTIATING || c->neg.state != NEGOTIATE_HELLO)
        return r;
    return in_turns(s, true, withdraw);
}

int drive_hand_on(struct sock *s)
{
    return conn_undecided(s->conn) ? in_turns(s, false, drive_step_last) : 0;
}

int drive_sock(struct sock *s, bool brief)
{
    drive_use(s->conn);
    return in_turns(s, brief, drive_step_called);
}

int drive_unused(struct sock *s)
{
    return in_turns(s, false, drive_step);
}

/*
 * It was negotiating when this process was forked, and the parent still has it: a thread there sleeps for what we would take.
 * (Here, only calls on it drive it.)
 */
bool drive_is_parents(struct sock *s)
{
    return s->neg_inherited && atomic_load(&s->conn->holders.n) > 1;
}

/*
 * So long after accept() a connection is held that no child has. Then this process drives it though the program made no call on it,
 * which may be long in coming while the client's connect() waits; a fork would have come sooner.
 */
#define HELD_NS 50000000u

/* Not to be driven here before a call is made on it: what a device's startup needs is, or may come to be, another process'. */
static bool is_anothers(struct sock *s)
{
    const struct conn *c = s->conn;
    return drive_is_parents(s) || ((verbs_is_anothers(c) || drive_held(c)) && atomic_load(&c->holders.n) > 1);
}

/* When it is to be stepped, whatever comes; 0: no such time. */
static uint64_t due_at(const struct sock *s)
{
    return drive_held(s->conn) ? s->conn->born_ns + HELD_NS : s->conn->neg.deadline_ns;
}

/* The lock is held. A silent one that is found no more so is left where it is: who has found that is about to move it. */
static bool needs_nobody(struct sock *s, uint64_t now)
{
    if (conn_state(s->conn) == CONN_FULL)
        return !conn_tail_is_ours(s->conn);
    return s->neg_silent && is_silent(s->conn) && (now - s->conn->born_ns > YOUNG_NS || epoll_watches(s));
}

unsigned drive_fill(struct pollfd *fds, struct sock **socks, unsigned max, const struct sock *self)
{
    unsigned n = 0, kick_n = 0;
    if (me.kick_fd < 0 && atomic_load_explicit(&count, memory_order_relaxed) > 0)
        poller_kick_fd(); /* who closes one of them has to be able to wake us: drive_leave */
    if (me.kick_fd >= 0 && (atomic_load_explicit(&count, memory_order_relaxed) > 0 || atomic_load(&me.conn) != NULL)) {
        fds[n] = (struct pollfd){ .fd = me.kick_fd, .events = POLLIN };
        socks[n++] = NULL;
        kick_n = n;
    }
    int device = verbs_setup_fd();
    if (device >= 0) {
        fds[n] = (struct pollfd){ .fd = device, .events = POLLIN };
        socks[n++] = NULL;
        kick_n = n;
    }
    if (atomic_load_explicit(&count, memory_order_relaxed) == 0)
        return n;
    uint64_t now = proc_now_ns();
    unsigned mute_n = 0;
    pthread_mutex_lock(&lock);
    struct sock *next;
    for (struct sock *s = first_listed(); s != NULL && n < max && mute_n < max; s = next) {
        next = next_listed(s);
        int fd = atomic_load(&s->fd);
        mute_n += s->neg_silent;
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        if (needs_nobody(s, now)) {
            unlist(s);
            continue;
        }
        bool held = drive_held(s->conn); /* whoever waits for it has not looked yet */
        if (s == self || fd < 0 || is_anothers(s) || (!held && (atomic_load(&s->waiters) > 0 || epoll_awaits(s))))
            continue;
        atomic_fetch_add(&s->refs, 1);
        s->neg_held++;
        socks[n] = s;
        fds[n].fd = fd;
        fds[n].events = conn_state(s->conn) == CONN_FULL ? POLLOUT : (short)s->conn->kernel_wants;
        if (held) /* what comes is not waited for, only its time */
            fds[n].fd = -1;
        if (conn_on_verbs(s->conn)) {
            fds[n].fd = verbs_chan(s->conn);
            fds[n].events = POLLIN;
        }
        fds[n].revents = 0;
        n++;
    }
    if (n > kick_n)
        atomic_store(&me.holds, true);
    pthread_mutex_unlock(&lock);
    return n;
}

/* The tail of an accelerated connection that no ring sends. */
static void drive_tail(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_on_verbs(c))
        verbs_tail(s, atomic_load(&s->fd));
    if (turn_try(&c->tx) < 0)
        return;
    if (conn_tail_is_ours(c)) {
        int r = conn_tx_rest(c, atomic_load(&s->fd));
        (void)r; /* it is asked below whether there is more */
    }
    bool done = !conn_tail_is_ours(c);
    turn_give(&c->tx);
    if (done)
        drive_remove(s);
}

/*
 * Both turns held. Another process may have begun with it since it was looked up: what comes on the socket wakes all that have it.
 */
static void step_as_other(struct sock *s)
{
    if (is_anothers(s))
        return;
    if (drive_held(s->conn) && due_at(s) <= proc_now_ns())
        drive_use(s->conn);
    drive_step(s);
}

/*
 * Both turns held. Somebody who waits for s himself drives it, and would miss the event that we take: he counts himself in before
 * he looks, we look at the count with the turns held.
 */
static void step_unwaited(struct sock *s)
{
    if (!drive_held(s->conn) && (atomic_load(&s->waiters) > 0 || epoll_awaits(s)))
        return;
    step_as_other(s);
    /* Something is reported, and yet the handshake goes on: an error for the program to fetch. */
    if (conn_state(s->conn) == CONN_CONNECTING)
        drive_remove(s);
}

/* (If another thread is at it, it sees what there is.) */
static void drive_other(struct sock *s)
{
    if (conn_state(s->conn) == CONN_FULL)
        drive_tail(s);
    else
        (void)in_turns(s, true, step_unwaited);
}

static void let_go(struct sock **socks, unsigned n)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n; i++)
        if (socks[i] != NULL)
            socks[i]->neg_held--;
    atomic_store(&me.holds, false);
    pthread_mutex_unlock(&lock);
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

int drive_ppoll(struct pollfd *fds, nfds_t all, struct sock **socks, unsigned n, const struct timespec *timeout,
                const sigset_t *mask)
{
    struct handful h = { socks, n };
    unsigned kept = n > 0 ? cancel_keep(drop, &h) : 0;
    int r;
    CANCEL_POINT(r = REAL(ppoll)(fds, all, timeout, mask));
    if (n > 0)
        cancel_kept(kept);
    return r;
}

void drive_filled(struct pollfd *fds, struct sock **socks, unsigned n)
{
    uint64_t now = n > 0 ? proc_now_ns() : 0;
    if (n > 0)
        let_go(socks, n);
    for (unsigned i = 0; i < n; i++) {
        if (socks[i] == NULL && fds[i].fd != me.kick_fd) {
            me.device = fds[i].revents != 0;
            if (me.device)
                verbs_setup_dispatch();
            continue;
        }
        if (socks[i] == NULL) {
            me.kicked = fds[i].revents != 0;
            if (me.kicked)
                poller_kick_drain(fds[i].fd);
            continue;
        }
        uint64_t due = due_at(socks[i]);
        if (fds[i].revents != 0 || (due != 0 && due <= now))
            drive_other(socks[i]);
        sock_put(socks[i]);
    }
}

void drive_due(void)
{
    struct sock *due[64];
    unsigned n = 0;
    uint64_t now = proc_now_ns();
    pthread_mutex_lock(&lock);
    for (struct sock *s = list; s != NULL && n < SW_ARRAY_LEN(due); s = s->neg_next) {
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        uint64_t at = due_at(s);
        if (at != 0 && at <= now && !is_anothers(s)) {
            atomic_fetch_add(&s->refs, 1);
            due[n++] = s;
        }
    }
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < n; i++) {
        (void)in_turns(due[i], true, step_as_other); /* (else somebody is at it) */
        sock_put(due[i]);
    }
}

uint64_t drive_deadline(void)
{
    if (atomic_load_explicit(&count, memory_order_relaxed) == atomic_load_explicit(&silent_n, memory_order_relaxed))
        return 0;
    uint64_t min = 0;
    pthread_mutex_lock(&lock);
    for (struct sock *s = list; s != NULL; s = s->neg_next) {
        atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed);
        uint64_t due = due_at(s);
        if (due != 0 && (min == 0 || due < min) && !is_anothers(s))
            min = due;
    }
    pthread_mutex_unlock(&lock);
    return min;
}

uint64_t drive_call_deadline(int fd, int which)
{
    struct timeval tv;
    socklen_t len = sizeof(tv);
    if (sandbox_getsockopt(fd, SOL_SOCKET, which, &tv, &len) < 0 || (tv.tv_sec == 0 && tv.tv_usec == 0))
        return 0;
    return proc_now_ns() + (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
}

/*
 * Which signal it was is not known; if all handlers agree the answer is exact, if they do not, EINTR is the one that
 * every program has to expect.
 */
bool drive_restarts(void)
{
    bool any = false;
    for (int sig = 1; sig < 65; sig++) {
        struct sigaction sa;
        if (sigaction(sig, NULL, &sa) < 0 || sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN)
            continue;
        if (!(sa.sa_flags & SA_RESTART))
            return false;
        any = true;
    }
    return any;
}

static uint64_t own_deadline(const struct sock *s)
{
    enum conn_state st = s != NULL && s->conn != NULL ? conn_state(s->conn) : CONN_FREE;
    return st == CONN_NEGOTIATING || st == CONN_CONNECTING ? s->conn->neg.deadline_ns : 0;
}

#define ERRORS_NS 1000000

int drive_pause(int fd, short revents)
{
    const struct timespec ts = { .tv_nsec = ERRORS_NS };
    int state = revents == POLLERR ? tcpinfo_state(fd) : TCP_CLOSE;
    if (SW_LIKELY(state == TCP_CLOSE || state < 0))
        return 0;
    return REAL(ppoll)(NULL, 0, &ts, NULL) < 0 ? -errno : 0;
}

/* fd2: another descriptor whose input ends the wait, or -1. */
static int wait_for(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self)
{
    struct pollfd fds[WAIT_MAX + 2];
    struct sock *socks[WAIT_MAX];
    gather_before_sleep();
    for (;;) {
        unsigned n = drive_fill(fds + 2, socks, WAIT_MAX, self);
        uint64_t until = n > 0 ? drive_deadline() : 0, own = own_deadline(self);
        if (own != 0 && (until == 0 || own < until)) /* (in a child it is not among those of drive_deadline) */
            until = own;
        if (deadline_ns != 0 && (until == 0 || deadline_ns < until))
            until = deadline_ns;
        uint64_t now = until ? proc_now_ns() : 0;
        uint64_t left = until > now ? until - now : 0;
        struct timespec ts = { .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u) };
        fds[0] = (struct pollfd){ .fd = fd, .events = events };
        fds[1] = (struct pollfd){ .fd = fd2, .events = POLLIN };
        me.kicked = me.device = false;
        int r = drive_ppoll(fds, n + 2, socks, n, until ? &ts : NULL, NULL);
        int err = errno;
        drive_filled(fds + 2, socks, n);
        /* (A call with a time-out is never restarted: signal(7).) */
        if (r < 0 && (err != EINTR || deadline_ns != 0 || !drive_restarts()))
            return -err;
        short told = (short)(fds[0].revents | fds[1].revents);
        if (r > 0 && told != 0 && (drive_pause(fd, told) == 0 || (deadline_ns == 0 && drive_restarts())))
            return told;
        if (r > 0 && told != 0)
            return -EINTR;
        if (self != NULL && self->conn != NULL) {
            /* Its time has come, or another thread has changed it meanwhile. */
            uint64_t due = own_deadline(self);
            if (due != 0 && due <= proc_now_ns())
                return 0;
            if ((me.kicked && atomic_load(&me.conn) == self->conn) || me.device)
                return 0; /* (it may have been this one's device, and its startup is over) */
        }
        if (deadline_ns != 0 && proc_now_ns() >= deadline_ns)
            return 0;
    }
}

int drive_wait(int fd, short events, uint64_t deadline_ns, struct sock *self)
{
    return fd < 0 ? -EBADF : wait_for(fd, events, -1, deadline_ns, self);
}

int drive_wait_both(int fd, short events, int fd2, uint64_t deadline_ns, struct sock *self)
{
    return wait_for(fd, events, fd2, deadline_ns, self);
}

void drive_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void drive_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

void drive_after_fork_child(void)
{
    for (const struct waiting *w = waiting_list; w != NULL && parents_n < PARENTS_MAX; w = w->next)
        if (w != &me)
            parents_kick[parents_n++] = w->kick_fd;
    waiting_list = NULL; /* (its own kick fd is another one in the child: poller_after_fork) */
    me = (struct waiting){ .kick_fd = -1 };
    for (struct sock *s = first_listed(); s != NULL; s = next_listed(s)) {
        s->neg_held = 0;
        s->neg_inherited = true;
    }
}
