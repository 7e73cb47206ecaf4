/*
 * epoll_create, epoll_ctl, epoll_wait and their kin.
 */
#include "preload/epoll.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "preload/conn.h"
#include "preload/drive.h"
#include "preload/hidden.h"
#include "preload/proc.h"
#include "preload/ready.h"
#include "preload/real.h"
#include "preload/transports.h"

#define CHUNK 256
#define CHUNKS 4096
#define EVENTS_MAX 256
#define KICK_TOKEN UINT64_MAX
#define MODE_BITS (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)

struct epset;

/* One registration. */
struct watch {
    struct epset *set;
    struct sock *sock;    /* with a reference; NULL: not a TCP socket of ours */
    struct watch *next;   /* sock's list; its watch_lock */
    int fd;
    bool used;            /* set's lock */
    epoll_data_t data;    /* the program's; set's lock (read without while events are handed out, as the kernel does) */
    uint32_t events;      /* the program's */
    uint32_t kevents;     /* the kernel's; sock's watch_lock if there is a sock */
    bool disarmed;        /* EPOLLONESHOT has fired; set's lock */
    bool out_told;        /* undecided, not level-triggered: writability was told, wait for the next edge; watch_lock */
    bool queued;          /* on the ready list; set's lock */
    struct watch *rnext;  /* ready list */
    uint64_t told_seq;    /* the epoll_wait that has it among its events already, */
    int told_at;          /* and where; set's lock */
};

struct epset {
    int epfd;
    _Atomic uint32_t refs;
    pthread_mutex_t lock; /* protects: chunk, watches' fields as said above, ready list, seq */
    struct watch *chunk[CHUNKS];
    struct watch *ready_first, **ready_end;
    _Atomic uint32_t ready_n;
    _Atomic uint32_t waiters;
    _Atomic int kick_fd;  /* eventfd in the kernel's set, -1 until two threads meet or the set is nested */
    _Atomic bool nested;  /* somebody polls epfd: kick_fd is readable while the ready list is not empty */
    uint64_t seq;
};

typedef _Atomic(struct epset *) set_slot;
static _Atomic(set_slot *) sets[CHUNKS];
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER; /* protects making chunks and changing entries */
static _Atomic unsigned sets_n;

static set_slot *set_slot_of(int epfd)
{
    if (epfd < 0 || epfd >= CHUNK * CHUNKS)
        return NULL;
    set_slot *c = atomic_load(&sets[epfd / CHUNK]);
    return c ? &c[epfd % CHUNK] : NULL;
}

/* Sets are never freed while a thread may look at them: they are few, and an emptied one is reused. */
static struct epset *free_sets;

static struct epset *set_get(int epfd)
{
    if (atomic_load_explicit(&sets_n, memory_order_relaxed) == 0)
        return NULL;
    set_slot *slot = set_slot_of(epfd);
    return slot ? atomic_load(slot) : NULL;
}

bool epoll_tracks(int fd)
{
    return set_get(fd) != NULL;
}

static _Atomic int fd_limit;

int epoll_fd_limit(void)
{
    return atomic_load(&fd_limit);
}

static void set_enter(int epfd, struct epset *set)
{
    pthread_mutex_lock(&sets_lock);
    set_slot *slot = set_slot_of(epfd);
    if (slot == NULL && epfd >= 0 && epfd < CHUNK * CHUNKS) {
        set_slot *c = calloc(CHUNK, sizeof(*c));
        if (c != NULL) {
            atomic_store(&sets[epfd / CHUNK], c);
            slot = &c[epfd % CHUNK];
        }
    }
    if (slot != NULL) {
        atomic_fetch_add(&set->refs, 1);
        atomic_store(slot, set);
        atomic_fetch_add(&sets_n, 1);
        if (epfd >= atomic_load(&fd_limit))
            atomic_store(&fd_limit, epfd + 1);
    }
    pthread_mutex_unlock(&sets_lock);
}

static struct epset *set_make(int epfd)
{
    pthread_mutex_lock(&sets_lock);
    struct epset *set = free_sets;
    if (set != NULL)
        free_sets = (struct epset *)(void *)set->ready_first;
    pthread_mutex_unlock(&sets_lock);
    if (set == NULL) {
        set = calloc(1, sizeof(*set));
        if (set == NULL)
            return NULL;
        pthread_mutex_init(&set->lock, NULL);
    }
    set->epfd = epfd;
    set->ready_first = NULL;
    set->ready_end = &set->ready_first;
    set->ready_n = 0;
    set->kick_fd = -1;
    set->nested = false;
    set->refs = 0;
    return set;
}

static void watch_unlink(struct watch *w)
{
    struct sock *s = w->sock;
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->watch_lock);
    for (struct watch **p = &s->watches; *p != NULL; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    pthread_mutex_unlock(&s->watch_lock);
}

static void kick(struct epset *set)
{
    int fd = atomic_load(&set->kick_fd);
    uint64_t one = 1;
    if (fd >= 0 && REAL(write)(fd, &one, sizeof(one)) < 0)
        return; /* full: it is awake anyway */
}

/* set->lock is held. */
static void unqueue(struct epset *set, struct watch *w)
{
    if (!w->queued)
        return;
    for (struct watch **p = &set->ready_first; *p != NULL; p = &(*p)->rnext)
        if (*p == w) {
            *p = w->rnext;
            break;
        }
    set->ready_end = &set->ready_first;
    while (*set->ready_end != NULL)
        set->ready_end = &(*set->ready_end)->rnext;
    w->queued = false;
    if (atomic_fetch_sub(&set->ready_n, 1) == 1 && atomic_load(&set->nested))
        ready_kick_drain(atomic_load(&set->kick_fd));
}

/* set->lock is held. */
static void queue(struct epset *set, struct watch *w)
{
    if (w->queued || !w->used || w->disarmed)
        return;
    w->queued = true;
    w->rnext = NULL;
    *set->ready_end = w;
    set->ready_end = &w->rnext;
    if (atomic_fetch_add(&set->ready_n, 1) == 0 && atomic_load(&set->nested))
        kick(set);
}

/* set->lock is held; returns the sock whose reference the caller drops after unlocking. */
static struct sock *watch_remove(struct epset *set, struct watch *w)
{
    struct sock *s = w->sock;
    unqueue(set, w);
    watch_unlink(w);
    w->used = false;
    w->sock = NULL;
    return s;
}

static struct watch *watch_of(struct epset *set, int fd, bool make)
{
    if (fd < 0 || fd >= CHUNK * CHUNKS)
        return NULL;
    if (set->chunk[fd / CHUNK] == NULL) {
        if (!make)
            return NULL;
        struct watch *c = calloc(CHUNK, sizeof(*c));
        if (c == NULL)
            return NULL;
        set->chunk[fd / CHUNK] = c;
    }
    return &set->chunk[fd / CHUNK][fd % CHUNK];
}

void epoll_closed(int epfd)
{
    if (set_get(epfd) == NULL)
        return;
    pthread_mutex_lock(&sets_lock);
    set_slot *slot = set_slot_of(epfd);
    struct epset *set = slot ? atomic_exchange(slot, NULL) : NULL;
    bool last = false;
    if (set != NULL) {
        atomic_fetch_sub(&sets_n, 1);
        last = atomic_fetch_sub(&set->refs, 1) == 1;
    }
    pthread_mutex_unlock(&sets_lock);
    if (!last)
        return;
    for (int c = 0; c < CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < CHUNK; i++) {
            struct watch *w = &set->chunk[c][i];
            pthread_mutex_lock(&set->lock);
            struct sock *s = w->used ? watch_remove(set, w) : NULL;
            pthread_mutex_unlock(&set->lock);
            if (s != NULL)
                sock_put(s);
        }
    int kick = atomic_exchange(&set->kick_fd, -1);
    if (kick >= 0)
        hidden_close(kick);
    pthread_mutex_lock(&sets_lock);
    set->ready_first = (struct watch *)(void *)free_sets;
    free_sets = set;
    pthread_mutex_unlock(&sets_lock);
}

void epoll_duped(int epfd, int epfd2)
{
    struct epset *set = set_get(epfd);
    epoll_closed(epfd2);
    if (set != NULL)
        set_enter(epfd2, set);
}

/* ---- what is asked of the kernel ---- */

/* sock's watch_lock is held if there is one. */
static uint32_t kernel_events(const struct watch *w)
{
    struct sock *s = w->sock;
    if (w->disarmed)
        return EPOLLONESHOT;
    if (s == NULL || !atomic_load(&s->active))
        return w->events;
    struct conn *c = s->conn;
    uint32_t mode = w->events & MODE_BITS;
    switch (conn_state(c)) {
    case CONN_CONNECTING:
    case CONN_NEGOTIATING:
        /* Ours alone: level-triggered, so that nothing is lost when the program's own mode takes over. */
        if (conn_speaks_plain(c))
            return EPOLLIN | (w->out_told ? 0 : w->events & EPOLLOUT);
        return c->kernel_wants;
    case CONN_FULL:
        if ((w->events & EPOLLOUT) && !iwarp_can_send(&c->ep))
            return mode | ((w->events & ~(uint32_t)(MODE_BITS | EPOLLOUT)) | EPOLLIN);
        if (conn_tail_is_ours(c))
            return w->events | EPOLLOUT;
        return w->events;
    default:
        return w->events;
    }
}

/* Brings the kernel's registration in line. sock's watch_lock is held. */
static void refresh(struct watch *w, bool force)
{
    uint32_t k = kernel_events(w);
    if (k == w->kevents && !force)
        return;
    struct epoll_event ev = { .events = k, .data.u64 = (uint64_t)w->fd };
    if (REAL(epoll_ctl)(w->set->epfd, EPOLL_CTL_MOD, w->fd, &ev) == 0)
        w->kevents = k;
}

void epoll_conn_changed(struct sock *s)
{
    pthread_mutex_lock(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL; w = w->next)
        refresh(w, false);
    pthread_mutex_unlock(&s->watch_lock);
}

static void left_over(struct sock *s, bool arrived, const struct watch *but)
{
    struct epset *later[16];
    int fds[16];
    unsigned n = 0;
    pthread_mutex_lock(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && n < SW_ARRAY_LEN(later); w = w->next)
        if (w != but && (arrived || !(w->events & EPOLLET)) && (w->events & (EPOLLIN | EPOLLRDNORM))) {
            later[n] = w->set;
            fds[n++] = w->fd;
        }
    pthread_mutex_unlock(&s->watch_lock);
    for (unsigned i = 0; i < n; i++) {
        pthread_mutex_lock(&later[i]->lock);
        struct watch *w = watch_of(later[i], fds[i], false);
        if (w != NULL && w->used && w->sock == s)
            queue(later[i], w);
        pthread_mutex_unlock(&later[i]->lock);
        if (atomic_load(&later[i]->waiters) > 0)
            kick(later[i]);
    }
}

void epoll_left_over(struct sock *s, bool arrived)
{
    left_over(s, arrived, NULL);
}

void epoll_out_blocked(struct sock *s)
{
    pthread_mutex_lock(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL; w = w->next) {
        w->out_told = false;
        refresh(w, false);
    }
    pthread_mutex_unlock(&s->watch_lock);
}

void epoll_forget_fd(struct sock *s, int fd, bool last)
{
    if (s->watches == NULL)
        return;
    struct epset *of[64];
    unsigned n = 0;
    pthread_mutex_lock(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && n < SW_ARRAY_LEN(of); w = w->next)
        if (w->fd == fd || last)
            of[n++] = w->set;
    pthread_mutex_unlock(&s->watch_lock);
    for (unsigned i = 0; last && i < n; i++) {
        struct watch *gone = NULL;
        pthread_mutex_lock(&s->watch_lock);
        for (struct watch *w = s->watches; w != NULL; w = w->next)
            if (w->set == of[i])
                gone = w;
        pthread_mutex_unlock(&s->watch_lock);
        if (gone == NULL)
            continue;
        pthread_mutex_lock(&of[i]->lock);
        struct sock *ref = gone->used && gone->sock == s ? watch_remove(of[i], gone) : NULL;
        pthread_mutex_unlock(&of[i]->lock);
        if (ref != NULL)
            sock_put(ref);
    }
}

bool epoll_awaits(struct sock *s)
{
    bool yes = false;
    if (s->watches == NULL)
        return false;
    pthread_mutex_lock(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && !yes; w = w->next)
        yes = atomic_load(&w->set->waiters) > 0;
    pthread_mutex_unlock(&s->watch_lock);
    return yes;
}

/* ---- calls ---- */

static int created(int epfd)
{
    if (epfd < 0 || !proc_on() || proc_is_borrowed())
        return epfd;
    sock_drop(epfd, false);
    epoll_closed(epfd);
    struct epset *set = set_make(epfd);
    if (set != NULL)
        set_enter(epfd, set);
    return epfd;
}

int epoll_create(int size)
{
    return created(REAL(epoll_create)(size));
}

int epoll_create1(int flags)
{
    return created(REAL(epoll_create1)(flags));
}

/* set->lock is held. */
static int ctl_add(struct epset *set, int fd, const struct epoll_event *ev, struct sock **drop)
{
    struct watch *w = watch_of(set, fd, true);
    if (w == NULL) {
        errno = ENOMEM;
        return -1;
    }
    struct sock *s = sock_get(fd);
    struct watch fresh = {
        .set = set, .sock = s, .fd = fd, .data = ev->data, .events = ev->events,
    };
    struct epoll_event kev = { .events = kernel_events(&fresh), .data.u64 = (uint64_t)fd };
    if (REAL(epoll_ctl)(set->epfd, EPOLL_CTL_ADD, fd, &kev) < 0) {
        int err = errno;
        *drop = s;
        errno = err;
        return -1;
    }
    /* What stood here is gone for the kernel as well: the number was closed and reused. */
    if (w->used)
        *drop = watch_remove(set, w);
    fresh.kevents = kev.events;
    fresh.used = true;
    *w = fresh;
    if (s != NULL) {
        pthread_mutex_lock(&s->watch_lock);
        w->next = s->watches;
        s->watches = w;
        refresh(w, false); /* it may have changed meanwhile */
        pthread_mutex_unlock(&s->watch_lock);
        if (atomic_load(&s->active) && conn_may_be_staged(s->conn))
            queue(set, w);
    }
    return 0;
}

/* set->lock is held. */
static int ctl_mod(struct epset *set, struct watch *w, const struct epoll_event *ev)
{
    struct sock *s = w->sock;
    if (s != NULL)
        pthread_mutex_lock(&s->watch_lock);
    uint32_t old = w->events;
    bool was_disarmed = w->disarmed;
    w->events = ev->events;
    w->disarmed = false;
    w->out_told = false;
    struct epoll_event kev = { .events = kernel_events(w), .data.u64 = (uint64_t)w->fd };
    int r = REAL(epoll_ctl)(set->epfd, EPOLL_CTL_MOD, w->fd, &kev);
    int err = errno;
    if (r < 0) {
        w->events = old;
        w->disarmed = was_disarmed;
    } else {
        w->kevents = kev.events;
        w->data = ev->data;
    }
    if (s != NULL)
        pthread_mutex_unlock(&s->watch_lock);
    if (r == 0 && s != NULL && atomic_load(&s->active) && conn_may_be_staged(s->conn))
        queue(set, w);
    errno = err;
    return r;
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
    struct epset *set = set_get(epfd);
    if (set == NULL || proc_is_borrowed() || (ev == NULL && op != EPOLL_CTL_DEL))
        return REAL(epoll_ctl)(epfd, op, fd, ev);
    struct sock *drop = NULL;
    int r, err;
    bool awake = false;
    epoll_nest(fd);
    pthread_mutex_lock(&set->lock);
    struct watch *w = watch_of(set, fd, false);
    if (op == EPOLL_CTL_ADD) {
        r = ctl_add(set, fd, ev, &drop);
        err = errno;
    } else if (op == EPOLL_CTL_MOD && w != NULL && w->used) {
        r = ctl_mod(set, w, ev);
        err = errno;
    } else {
        r = REAL(epoll_ctl)(epfd, op, fd, ev);
        err = errno;
        if (r == 0 && op == EPOLL_CTL_DEL && w != NULL && w->used)
            drop = watch_remove(set, w);
    }
    awake = atomic_load(&set->ready_n) > 0 && atomic_load(&set->waiters) > 0;
    pthread_mutex_unlock(&set->lock);
    if (awake)
        kick(set);
    if (drop != NULL)
        sock_put(drop);
    errno = err;
    return r;
}

/* ---- waiting ---- */

struct wait {
    struct epset *set;
    struct epoll_event *evs;
    int max, n;
    uint64_t seq;
};

/* Adds to what epoll_wait returns. set->lock is held. kernel: the kernel reported it. */
static void tell(struct wait *wt, struct watch *w, uint32_t events, bool kernel)
{
    if (w->told_seq == wt->seq) {
        wt->evs[w->told_at].events |= events;
        return;
    }
    w->told_seq = wt->seq;
    w->told_at = wt->n;
    wt->evs[wt->n].events = events;
    wt->evs[wt->n].data = w->data;
    wt->n++;
    if (w->events & EPOLLONESHOT) {
        w->disarmed = true;
        unqueue(wt->set, w);
    }
    if (w->sock == NULL || !(w->events & (EPOLLONESHOT | EPOLLET)))
        return;
    pthread_mutex_lock(&w->sock->watch_lock);
    w->out_told = w->out_told || (events & EPOLLOUT);
    if (kernel && (w->kevents & EPOLLONESHOT))
        w->kevents = EPOLLONESHOT; /* the kernel has disarmed it as well */
    refresh(w, false);
    pthread_mutex_unlock(&w->sock->watch_lock);
}

/* One event of the kernel, or (kernel 0) one connection of the ready list. */
static void look(struct wait *wt, int fd, uint32_t kernel)
{
    struct epset *set = wt->set;
    pthread_mutex_lock(&set->lock);
    struct watch *w = watch_of(set, fd, false);
    if (w == NULL || !w->used || w->disarmed) {
        pthread_mutex_unlock(&set->lock);
        return;
    }
    struct sock *s = w->sock;
    if (s == NULL || !atomic_load(&s->active)) {
        if (kernel != 0)
            tell(wt, w, kernel, true);
        unqueue(set, w);
        pthread_mutex_unlock(&set->lock);
        return;
    }
    uint32_t want = w->events & ~(uint32_t)MODE_BITS;
    atomic_fetch_add(&s->refs, 1);
    /* Off the list before the look: whoever queues it meanwhile knows something newer. */
    unqueue(set, w);
    pthread_mutex_unlock(&set->lock);

    /* Turns come before the set's lock. */
    short ask;
    uint32_t got = (uint16_t)ready_now(s, fd, (short)(uint16_t)want, (short)(uint16_t)kernel, &ask);
    /* What came in by this look is told below; the other sets have lost the kernel's event for it. */
    if (atomic_exchange(&s->conn->rx_arrived, false)) {
        left_over(s, true, w);
        ready_told(s);
    }

    pthread_mutex_lock(&set->lock);
    w = watch_of(set, fd, false);
    if (w != NULL && w->used && w->sock == s && !w->disarmed) {
        if (got != 0)
            tell(wt, w, got, kernel != 0);
        if ((got & (EPOLLIN | EPOLLRDNORM)) && !(w->events & EPOLLET))
            queue(set, w);
        if (got == 0 || !atomic_load(&s->active)) {
            /* Swallowed: a one-shot registration has to be armed again. */
            pthread_mutex_lock(&s->watch_lock);
            refresh(w, got == 0 && kernel != 0 && (w->kevents & EPOLLONESHOT));
            pthread_mutex_unlock(&s->watch_lock);
        }
    }
    pthread_mutex_unlock(&set->lock);
    sock_put(s);
}

/*
 * The ready list: at most as many as stand on it now, so that nobody is looked at twice, and no more than half of what the
 * program takes (of one place every other), so that the kernel's events have theirs.
 */
static void look_ready(struct wait *wt)
{
    struct epset *set = wt->set;
    unsigned n = atomic_load(&set->ready_n);
    int most = wt->max > 1 ? wt->max / 2 : (int)(wt->seq & 1);
    while (n-- > 0 && wt->n < most) {
        pthread_mutex_lock(&set->lock);
        struct watch *w = set->ready_first;
        int fd = w ? w->fd : -1;
        if (w != NULL && w->rnext != NULL) { /* to the end: everybody has its turn */
            set->ready_first = w->rnext;
            w->rnext = NULL;
            *set->ready_end = w;
            set->ready_end = &w->rnext;
        }
        pthread_mutex_unlock(&set->lock);
        if (fd < 0)
            break;
        look(wt, fd, 0);
    }
}

/* Two threads of one process need a way to tell each other what the kernel does not know. */
static void kick_make(struct epset *set)
{
    if (atomic_load(&set->kick_fd) >= 0)
        return;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return;
    fd = hidden_move(fd);
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = KICK_TOKEN };
    int none = -1;
    if (!atomic_compare_exchange_strong(&set->kick_fd, &none, fd))
        hidden_close(fd);
    else if (REAL(epoll_ctl)(set->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        atomic_store(&set->kick_fd, -1);
        hidden_close(fd);
    }
}

void epoll_nest(int fd)
{
    struct epset *set = set_get(fd);
    if (set == NULL || atomic_load(&set->nested))
        return;
    kick_make(set);
    pthread_mutex_lock(&set->lock);
    atomic_store(&set->nested, true);
    if (atomic_load(&set->ready_n) > 0)
        kick(set);
    pthread_mutex_unlock(&set->lock);
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

/* The kernel's part: waits until until_ns (0: for ever; now or before: does not wait). */
static int kernel_wait(struct epset *set, struct epoll_event *kev, int max, uint64_t until_ns, bool forever,
                       const sigset_t *mask)
{
    uint64_t now = forever ? 0 : proc_now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    bool others = drive_others(NULL);
    const struct transport_ops *t = transport_if_any();
    if (others || (t != NULL && t->thread_busy())) {
        /*
         * poll(2) restarts when a finished io_uring request, and not a signal handler, interrupted it; epoll_wait would
         * return EINTR.
         */
        struct pollfd fds[65];
        struct sock *socks[64];
        unsigned n = drive_fill(fds + 1, socks, 64, NULL);
        fds[0] = (struct pollfd){ .fd = set->epfd, .events = POLLIN };
        struct timespec ts = to_timespec(left);
        int r = REAL(ppoll)(fds, n + 1, forever ? NULL : &ts, mask);
        int err = errno;
        drive_filled(fds + 1, socks, n);
        if (r < 0) {
            errno = err;
            return r;
        }
        return REAL(epoll_wait)(set->epfd, kev, max, 0);
    }
    if (forever)
        return REAL(epoll_pwait)(set->epfd, kev, max, -1, mask);
    if (left == 0)
        return REAL(epoll_pwait)(set->epfd, kev, max, 0, mask);
    /* Milliseconds where they are exact enough: epoll_pwait2 is not everywhere. */
    return REAL(epoll_pwait)(set->epfd, kev, max, (int)((left + 999999u) / 1000000u), mask);
}

static int wait_on(struct epset *set, struct epoll_event *evs, int max, int64_t timeout_ns, const sigset_t *mask)
{
    struct epoll_event kev[EVENTS_MAX];
    uint64_t deadline = timeout_ns > 0 ? proc_now_ns() + (uint64_t)timeout_ns : 0;
    struct wait wt = { .set = set, .evs = evs, .max = max < EVENTS_MAX ? max : EVENTS_MAX };
    atomic_fetch_add(&set->waiters, 1);
    if (ready_threads())
        kick_make(set);
    int r;
    for (;;) {
        pthread_mutex_lock(&set->lock);
        wt.seq = ++set->seq;
        pthread_mutex_unlock(&set->lock);
        wt.n = 0;
        if (atomic_load(&set->ready_n) > 0)
            look_ready(&wt);
        bool skipped = wt.max == 1 && wt.n == 0 && atomic_load(&set->ready_n) > 0;
        bool now = wt.n > 0 || timeout_ns == 0 || skipped;
        uint64_t until = deadline, due = now ? 0 : drive_deadline();
        if (due != 0 && (until == 0 || due < until))
            until = due;
        if (wt.n == wt.max) {
            r = wt.n;
            break;
        }
        r = kernel_wait(set, kev, wt.max - wt.n, now ? 0 : until, !now && until == 0,
                        mask);
        if (r < 0) {
            r = wt.n > 0 ? wt.n : -errno;
            break;
        }
        for (int i = 0; i < r; i++) {
            if (kev[i].data.u64 == KICK_TOKEN) {
                if (!atomic_load(&set->nested))
                    ready_kick_drain(atomic_load(&set->kick_fd));
                continue;
            }
            if (wt.n < wt.max)
                look(&wt, (int)kev[i].data.u64, kev[i].events);
        }
        if (due != 0)
            drive_due();
        if (wt.n == 0 && skipped) { /* the kernel had nothing: now it is the ready list's place */
            wt.seq |= 1;
            look_ready(&wt);
        }
        r = wt.n;
        if (r > 0 || timeout_ns == 0 || (deadline != 0 && proc_now_ns() >= deadline))
            break;
    }
    atomic_fetch_sub(&set->waiters, 1);
    return r;
}

static int waited(struct epset *set, struct epoll_event *evs, int max, int64_t timeout_ns, const sigset_t *mask)
{
    int r = wait_on(set, evs, max, timeout_ns, mask);
    if (r >= 0)
        return r;
    errno = -r;
    return -1;
}

int epoll_pwait(int epfd, struct epoll_event *evs, int max, int timeout_ms, const sigset_t *mask)
{
    struct epset *set = set_get(epfd);
    if (set == NULL || evs == NULL || max <= 0)
        return REAL(epoll_pwait)(epfd, evs, max, timeout_ms, mask);
    return waited(set, evs, max, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000, mask);
}

int epoll_wait(int epfd, struct epoll_event *evs, int max, int timeout_ms)
{
    struct epset *set = set_get(epfd);
    if (set == NULL || evs == NULL || max <= 0)
        return REAL(epoll_wait)(epfd, evs, max, timeout_ms);
    return waited(set, evs, max, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000, NULL);
}

int epoll_pwait2(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout, const sigset_t *mask)
{
    struct epset *set = set_get(epfd);
    if (set == NULL || evs == NULL || max <= 0 ||
        (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
        return REAL(epoll_pwait2)(epfd, evs, max, timeout, mask);
    int64_t ns = timeout ? timeout->tv_sec * 1000000000 + timeout->tv_nsec : -1;
    return waited(set, evs, max, ns, mask);
}

/* The child has a copy of everything; threads that are not in it may have held the locks. */
void epoll_after_fork(void)
{
    pthread_mutex_init(&sets_lock, NULL);
    int limit = atomic_load(&fd_limit);
    for (int fd = 0; fd < limit; fd++) {
        struct epset *set = set_get(fd);
        if (set == NULL)
            continue;
        pthread_mutex_init(&set->lock, NULL);
        atomic_store(&set->waiters, 0);
    }
}
