/*
 * Bridges between upgraded connections and the program's rings: how one is built and how it ends. bridge_carry.c
 * carries the bytes.
 */
#include "preload/calls/bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "core/base/trace.h"
#include "preload/calls/bridge_carry.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/options.h"
#include "preload/process/cancel.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/ready/epoll.h"
#include "preload/ready/ready.h"
#include "preload/sock/poller.h"
#include "preload/sock/sock.h"

#define STACK_LEN (256u * 1024u)
#define PAIR_LEN (1 << 20) /* buffers of the pair: as much as the kernel allows */

/*
 * Protects the list, and the link from a program's end to its bridge. Outermost; recursive, for handlers. Only the
 * thread uses a bridge itself, and, when the thread has stopped, the process's exit.
 */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct bridge *bridges;
static int bell = -1;            /* wakes the thread */
static bool runs;                /* there is one */
static _Atomic uint32_t at_work; /* threads, the last one may just be ending: a futex */
static _Atomic bool stop;

/* ---- the thread ---- */

/* The program has no descriptor of its end any more. (Or it has closed it by a call that we did not see.) */
static bool is_left(const struct bridge *b)
{
    return atomic_load(&b->near->bridge_fd) != b->tcp || atomic_load(&b->near->names) == 0 ||
           sock_ino(atomic_load(&b->near->fd)) != b->near_ino;
}

/* Takes it off the list and closes its descriptors of the two sides (-1: none). */
static void dispose(struct bridge *b)
{
    if (b->tcp >= 0) {
        hidden_reveal(b->tcp);
        close(b->tcp);
    }
    if (b->far >= 0)
        hidden_close(b->far);
    bridge_free(b);
}

/* It was over, and now the program has closed its end: closes the connection. */
static void tear_down(struct bridge *b)
{
    lock_take(&lock);
    struct bridge **at = &bridges;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    int tcp = b->tcp;
    atomic_compare_exchange_strong(&b->near->bridge_fd, &tcp, -1);
    lock_give(&lock);
    dispose(b);
}

/* Carries what can be carried on bridges for which the kernel has reported events. Returns the number of bridges. */
static unsigned carry_all(const struct pollfd *fds, bool *again)
{
    unsigned n = 0;
    lock_take(&lock);
    struct bridge *b = bridges;
    lock_give(&lock);
    for (struct bridge *next; b != NULL; b = next) {
        next = b->next;
        if (b->far >= 0 && (fds == NULL || b->slot == 0 || fds[b->slot].revents != 0 || fds[b->slot + 1].revents != 0))
            bridge_carry(b);
        *again = *again || b->again;
        if (b->far >= 0 && bridge_is_over(b))
            bridge_part(b);
        if (b->far < 0 && is_left(b))
            tear_down(b);
        else
            n++;
    }
    return n;
}

/* Room for two of each and the bell; fds may move. NULL: no memory. */
static struct pollfd *ask(struct pollfd *fds, unsigned n, unsigned *n_fds)
{
    struct pollfd *p = realloc(fds, (2 * n + 1) * sizeof(*p));
    if (p == NULL)
        return NULL;
    p[0] = (struct pollfd){ .fd = bell, .events = POLLIN };
    unsigned at = 1;
    lock_take(&lock);
    for (struct bridge *b = bridges; b != NULL; b = b->next) {
        if (b->again || at + 1 > 2 * n) {
            b->slot = 0; /* (in the second case it came just now) */
            continue;
        }
        b->slot = at;
        /* (Of one that is over: nothing.) */
        p[at++] = (struct pollfd){ .fd = b->asks_far ? b->far : -1, .events = b->far_wants };
        p[at++] = (struct pollfd){ .fd = b->tcp_wants != 0 ? b->tcp : -1, .events = b->tcp_wants };
    }
    lock_give(&lock);
    *n_fds = at;
    return p;
}

/* No bridge is left: the thread may end. */
static bool goes(unsigned n)
{
    lock_take(&lock);
    bool yes = atomic_load(&stop) || (n == 0 && bridges == NULL);
    if (yes)
        runs = false;
    lock_give(&lock);
    return yes;
}

static void *run(void *unused)
{
    struct pollfd *fds = NULL;
    (void)unused;
    rawsys6(__NR_prctl, PR_SET_NAME, (long)"sockwarp-bridge", 0, 0, 0, 0);
    for (;;) {
        bool again = false;
        unsigned n = carry_all(fds, &again), n_fds = 0;
        if (goes(n))
            break;
        struct pollfd *p = ask(fds, n, &n_fds);
        if (p == NULL) {
            sched_yield(); /* (memory will come) */
            continue;
        }
        fds = p;
        if (poll(fds, n_fds, again ? 0 : -1) < 0) {
            for (unsigned i = 0; i < n_fds; i++)
                fds[i].revents = 1; /* look at all of them */
        }
        if (fds[0].revents != 0)
            poller_kick_drain(bell);
    }
    free(fds);
    atomic_fetch_sub(&at_work, 1);
    rawsys4(__NR_futex, (long)&at_work, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, 0);
    return NULL;
}

/* lock is held. The thread blocks all signals: the program's threads take them. */
static int start(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    if (runs)
        return 0;
    if (bell < 0) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            return -errno;
        bell = hidden_move(fd);
    }
    if (pthread_attr_init(&attr) != 0)
        return -ENOMEM;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_LEN);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_fetch_add(&at_work, 1);
    atomic_store(&stop, false);
    int r = pthread_create(&thread, &attr, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    runs = r == 0;
    if (!runs)
        atomic_fetch_sub(&at_work, 1);
    return -r;
}

/* ---- a bridge is built; lock is held ---- */

/*
 * Moves the program's settings to the pair. (The thread that carries reads the connection from the first byte, and
 * without waiting.)
 */
static void take_settings(int fd, int near)
{
    static const int times[] = { SO_RCVTIMEO, SO_SNDTIMEO };
    static const int one = 1, off = -1;
    for (unsigned i = 0; i < SW_ARRAY_LEN(times); i++) {
        struct timeval tv;
        socklen_t len = sizeof(tv);
        if (REAL(getsockopt)(fd, SOL_SOCKET, times[i], &tv, &len) == 0)
            REAL(setsockopt)(near, SOL_SOCKET, times[i], &tv, len);
    }
    int v = 1;
    socklen_t len = sizeof(v);
    if (atomic_load(&proc.lowat_used) && getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &v, &len) == 0 && v > 1) {
        REAL(setsockopt)(near, SOL_SOCKET, SO_RCVLOWAT, &v, len);
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
    }
    len = sizeof(v);
    if (atomic_load(&proc.peek_off_used) && getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &v, &len) == 0 && v >= 0) {
        REAL(setsockopt)(near, SOL_SOCKET, SO_PEEK_OFF, &v, len);
        setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off));
    }
    int flags = REAL(fcntl)(fd, F_GETFL);
    REAL(fcntl)(near, F_SETFL, flags & (O_NONBLOCK | O_ASYNC));
}

struct place {
    struct sock *s;
    int near;
};

/* A descriptor of the connection becomes one of the pair's, in the program's epoll sets, too. */
static void replace(int fd, struct sock *s, void *arg)
{
    const struct place *p = arg;
    if (s != p->s || hidden_is(fd))
        return;
    int flags = REAL(fcntl)(fd, F_GETFD);
    struct epoll_moved *moved = epoll_take(s, fd);
    if (dup3(p->near, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
        trace_info("fd %d does not become a bridge's", fd);
    epoll_give(moved, fd);
}

static int connection_gets(struct sock *s, int fd)
{
    int own = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return -errno;
    own = hidden_move(own);
    if (sock_dup(s, own))
        return own;
    hidden_close(own);
    return -EBADF;
}

static void enter(struct bridge *b, struct sock *s, int near_fd)
{
    const struct conn *c = s->conn;
    struct place p = { s, near_fd };
    take_settings(b->tcp, near_fd);
    if (c->tx.shut || conn_shuts_later(c, SHUT_WR))
        REAL(shutdown)(near_fd, SHUT_WR);
    b->near->kind = SOCK_BRIDGED;
    b->near->bridge_ino = b->near_ino = sock_ino(near_fd);
    atomic_store(&b->near->bridge_fd, b->tcp);
    sock_each(replace, &p);
    close(near_fd);
    b->again = true; /* until the first look it is not known what to wait for */
    b->next = bridges;
    bridges = b;
    poller_kick(bell);
    ready_told(s); /* threads that wait for it look the number up again */
}

static int build(struct sock *s, int fd)
{
    int pair[2], size = PAIR_LEN, r = start();
    if (r < 0)
        return r;
    struct bridge *b = bridge_new();
    if (b == NULL)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        r = -errno;
        bridge_free(b);
        return r;
    }
    for (int i = 0; i < 2; i++)
        REAL(setsockopt)(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    b->far = hidden_move(pair[1]);
    b->tcp = connection_gets(s, fd);
    b->near = b->tcp >= 0 ? sock_new(pair[0], s->domain) : NULL;
    if (b->near == NULL) {
        r = b->tcp < 0 ? b->tcp : -ENOMEM;
        REAL(close)(pair[0]);
        dispose(b);
        return r;
    }
    struct sock *near = b->near;
    enter(b, s, pair[0]);
    sock_put(near);
    trace_info("fd %d: a ring of the program's works on it: by a bridge", fd);
    return 0;
}

int bridge_build(struct sock *s, int fd)
{
    if (sandbox_on() || proc_is_borrowed()) /* the thread would be under the program's filter, or its parent's */
        return -EOPNOTSUPP;
    struct cancel hold = cancel_never();
    lock_take(&lock);
    int r = sock_peek(fd) == s ? build(s, fd) : 0; /* (another thread was quicker) */
    lock_give(&lock);
    cancel_restore(hold);
    return r;
}

int bridge_pass(struct sock *s, int fd)
{
    int r = bridge_build(s, fd);
    lock_take(&lock);
    uint64_t ino = r == 0 ? sock_ino(fd) : 0;
    for (struct bridge *b = bridges; b != NULL && ino != 0; b = b->next)
        if (b->near_ino == ino)
            b->passed = true;
    lock_give(&lock);
    return r;
}

/* ---- the program's calls on its end ---- */

int bridge_hold(int fd)
{
    struct sock *s = sock_peek(fd);
    if (SW_LIKELY(s == NULL || s->kind != SOCK_BRIDGED))
        return -1;
    lock_take(&lock);
    s = sock_peek(fd);
    if (s != NULL && s->kind == SOCK_BRIDGED && sock_ino(fd) == s->bridge_ino) {
        int tcp = atomic_load(&s->bridge_fd);
        if (tcp >= 0)
            return tcp;
    } else if (s != NULL && s->kind == SOCK_BRIDGED) {
        sock_drop(fd); /* it was closed by a call that we did not see */
    }
    lock_give(&lock);
    return -1;
}

void bridge_release(void)
{
    lock_give(&lock);
}

void bridge_closed(void)
{
    poller_kick(bell);
}

bool bridge_any(void)
{
    return bell >= 0;
}

bool bridge_is_pairs(int level, int name)
{
    return option_of(level, name).marks & OPTION_PAIRS;
}

/* ---- the process ends, or is copied ---- */

/* The thread stops. False: it does not in time. */
static bool stopped(uint64_t end)
{
    atomic_store(&stop, true);
    poller_kick(bell);
    for (uint32_t n; (n = atomic_load(&at_work)) != 0;) {
        uint64_t now = proc_now_ns();
        if (now >= end)
            return false;
        struct timespec ts = { .tv_sec = (time_t)((end - now) / 1000000000u),
                               .tv_nsec = (long)((end - now) % 1000000000u) };
        rawsys4(__NR_futex, (long)&at_work, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, n, (long)&ts);
    }
    return true;
}

void bridge_settle(bool ends)
{
    if (bell < 0)
        return;
    uint64_t end = proc_now_ns() + (uint64_t)proc.set.linger_ms * 1000000u;
    if (!stopped(end))
        return;
    pthread_mutex_lock(&lock); /* (handlers run: it waits for the peer) */
    for (struct bridge *b = bridges; b != NULL; b = b->next)
        if (b->far >= 0)
            bridge_send_rest(b, end, ends);
    pthread_mutex_unlock(&lock);
}

void bridge_go_on(void)
{
    if (bell < 0)
        return;
    lock_take(&lock);
    for (struct bridge *b = bridges; b != NULL; b = b->next)
        b->slot = 0; /* look at it */
    int r = bridges != NULL ? start() : 0;
    lock_give(&lock);
    if (r < 0)
        trace_info("the bridges' thread does not start again: %d", -r);
}

void bridge_before_fork(void)
{
    lock_take(&lock);
}

void bridge_after_fork(bool child)
{
    if (!child) {
        lock_give(&lock);
        return;
    }
    lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    runs = false;
    atomic_store(&at_work, 0);
    for (struct bridge *b = bridges, *next; b != NULL; b = next) {
        next = b->next;
        int tcp = b->tcp;
        atomic_compare_exchange_strong(&b->near->bridge_fd, &tcp, -1);
        dispose(b);
    }
    bridges = NULL;
    if (bell >= 0)
        hidden_close(bell);
    bell = -1;
}
