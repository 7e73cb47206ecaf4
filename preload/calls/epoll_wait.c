/*
 * epoll_wait and its kin: the kernel's events, filtered, and those of the ready list.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/spin.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/transports.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"
#include "preload/ready/ready.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"

#define BATCH 256 /* the kernel's events that are taken at a time */
#define MAX_EVENTS (INT_MAX / (int)sizeof(struct epoll_event))
#define UNASKED (POLLERR | POLLHUP)
#define IN_BITS (uint32_t)(EPOLLIN | EPOLLRDNORM)
#define OUT_BITS (uint32_t)(EPOLLOUT | EPOLLWRNORM)

struct wait {
    struct epset *set;
    struct epoll_event *evs; /* NULL: no thread waits, only whether there is something to report is asked */
    int max, n;
    bool fault; /* no memory for the next event, which stays */
    bool later; /* an event was withheld because the kernel will report it again */
    uint64_t seq;
};

/* Adds to what epoll_wait returns. The set is locked by lock_for. kernel: the kernel reported it. */
static void tell(struct wait *wt, struct watch *w, uint32_t events, bool kernel)
{
    if (wt->evs == NULL) {
        wt->n++;
        if (!kernel || (w->events & (EPOLLET | EPOLLONESHOT)))
            watch_queue(w); /* the kernel reports it once, and has done so */
        if (kernel && (w->kevents & EPOLLONESHOT)) {
            w->kevents = EPOLLONESHOT;
            share_save(w, false);
        }
        return;
    }
    if (w->told_seq == wt->seq) {
        wt->evs[w->told_at].events |= events;
        return;
    }
    if (wt->n < wt->max && !usermem_writable(&wt->evs[wt->n], sizeof(*wt->evs))) {
        wt->fault = true;
        wt->max = wt->n;
    }
    if (wt->n == wt->max) { /* (from the list; the kernel is asked for no more events than there is room for) */
        watch_queue(w);
        return;
    }
    w->told_seq = wt->seq;
    w->told_at = wt->n;
    wt->evs[wt->n].events = events;
    wt->evs[wt->n].data = w->data;
    wt->n++;
    if (w->events & EPOLLONESHOT) {
        w->disarmed = true;
        watch_unqueue(w);
        share_save(w, false);
    }
    if (w->sock == NULL || !(w->events & (EPOLLONESHOT | EPOLLET)))
        return;
    lock_take(&w->sock->watch_lock);
    w->out_told = w->out_told || (events & OUT_BITS);
    if (kernel && (w->kevents & EPOLLONESHOT)) {
        w->kevents = EPOLLONESHOT; /* the kernel has disarmed it as well */
        share_save(w, false);
    }
    watch_refresh(w, false);
    lock_give(&w->sock->watch_lock);
}

/*
 * Locks set, and returns the registration. If processes share it, and the report changes it, no other process reports
 * it meanwhile. A registration that the program has deleted is not reported, though the kernel may still report it.
 */
static struct watch *lock_for(struct epset *set, uint64_t token)
{
    epset_lock(set);
    struct watch *w = watch_find(set, token);
    if (w != NULL && SW_UNLIKELY(w->parked)) {
        watch_expel(w, false);
        return NULL;
    }
    if (w == NULL || w->record == 0 || !(w->events & (EPOLLONESHOT | EPOLLET)))
        return w;
    share_lock(set);
    return watch_find(set, token);
}

/* Brings the kernel's registration in line if it is still s's. set->lock is held, s's watch_lock is not. */
static void refresh(struct epset *set, uint64_t token, struct sock *s, bool force)
{
    if (set->share != NULL)
        share_lock(set);
    struct watch *w = watch_find(set, token);
    if (w == NULL || w->sock != s)
        return;
    if (s != NULL)
        lock_take(&s->watch_lock);
    watch_refresh(w, force);
    if (s != NULL)
        lock_give(&s->watch_lock);
}

/* The kernel's events of fd now. */
static uint32_t ask(int fd, uint32_t want)
{
    struct pollfd p = { .fd = fd, .events = (short)(uint16_t)want };
    if (fd < 0 || REAL(poll)(&p, 1, 0) < 0 || (p.revents & POLLNVAL))
        return 0;
    return (uint16_t)p.revents;
}

/* The kernel's events of s, and, for a late registration, those that the kernel was not asked for. */
static uint32_t with_room(struct sock *s, int fd, uint32_t want, uint32_t kernel, bool late)
{
    struct conn *c = s->conn;
    bool unasked = late && (want & OUT_BITS) && !(kernel & OUT_BITS);
    bool likely = unasked && atomic_load(&s->nonblock) && conn_room_likely(c);
    if (unasked && !likely)
        kernel |= ask(fd, want & OUT_BITS) & OUT_BITS;
    if (kernel & OUT_BITS)
        conn_room_proved(c);
    return likely ? kernel | (want & OUT_BITS) : kernel;
}

/*
 * The kernel has reported an event with this token, and we have no such registration: it was deleted meanwhile, or made
 * by a call that we did not see. In the second case the event goes to the program as it is. The set is locked by
 * lock_for; this unlocks it.
 */
static void look_unseen(struct wait *wt, uint64_t token, uint32_t kernel)
{
    struct epset *set = wt->set;
    struct epoll_event ev = { .events = kernel, .data.u64 = token };
    bool ours = watch_token_is_ours(set, token);
    if (!ours)
        atomic_store(&set->unseen, true);
    if (!ours && wt->evs != NULL && wt->n < wt->max && usermem_writable(&wt->evs[wt->n], sizeof(ev))) {
        wt->evs[wt->n++] = ev;
    } else if (!ours) {
        epset_keep(set, &ev);
        if (wt->evs == NULL) {
            wt->n++;
        } else if (wt->n < wt->max) {
            wt->fault = true;
            wt->max = wt->n;
        }
    }
    epset_unlock(set);
}

static bool settle(int epfd, bool take, bool *later);

/*
 * An event of a file that is not ours, or not any more. The set is locked by lock_for; this unlocks it. kernel 0: from
 * the ready list.
 */
static void look_plain(struct wait *wt, struct watch *w, uint32_t kernel)
{
    struct epset *set = wt->set;
    uint32_t want = w->events & ~(uint32_t)EPOLL_MODE_BITS;
    int fd = w->foreign ? -1 : w->fd;
    bool by_kernel = kernel != 0;
    uint64_t token = watch_token(w);
    watch_unqueue(w);
    if (!by_kernel)
        kernel = ask(fd, want) & (want | UNASKED);
    else if (w->foreign) /* the process that has it may ask the kernel for more */
        kernel &= want | UNASKED;
    if (kernel != 0 && epoll_tracks(fd)) {
        /* A set: would its epoll_wait report an event? */
        bool once = w->events & EPOLLET;
        epset_unlock(set);
        bool ready = settle(fd, !once, &wt->later);
        w = lock_for(set, token);
        if (!ready)
            kernel = 0;
    }
    if (w != NULL && !w->disarmed && kernel != 0)
        tell(wt, w, kernel, by_kernel);
    else if (w != NULL && !w->disarmed && (w->kevents & EPOLLONESHOT))
        refresh(set, token, w->sock, true); /* swallowed: it has to be armed again */
    epset_unlock(set);
}

/* Locks as lock_for. The registration of the kernel's event may have another token by now, which *token becomes. */
static inline struct watch *lock_told(struct epset *set, uint64_t *token, bool by_kernel)
{
    struct watch *w = lock_for(set, *token);
    struct watch *stray = w == NULL && by_kernel ? watch_stray(set, *token) : NULL;
    if (SW_LIKELY(stray == NULL))
        return w;
    *token = watch_token(stray);
    epset_unlock(set);
    return lock_for(set, *token);
}

/* Does the kernel now have the program's own registration? */
static bool refresh_held(struct watch *w)
{
    lock_take(&w->sock->watch_lock);
    watch_refresh(w, false);
    bool as_asked = w->kevents == w->events;
    lock_give(&w->sock->watch_lock);
    return as_asked;
}

/* A registration that reports nothing any more: one-shot, and reported. */
static void quiet(struct watch *w)
{
    watch_unqueue(w);
    if (w->chan >= 0 && w->sock != NULL)
        refresh_held(w); /* its channel would be readable for ever */
}

/*
 * Is there nothing to report? Either this call has looked at the connection for another event of the kernel's (a
 * device's channel and its socket are two); or the event is of a former registration.
 */
static inline bool is_told(const struct wait *wt, struct watch *w, uint64_t token, bool by_kernel)
{
    const struct sock *s = w->sock;
    if (!by_kernel)
        return w->told_seq == wt->seq && wt->evs != NULL && s != NULL && s->conn != NULL && !conn_has_chan(s->conn);
    if (s != NULL && (w->events & EPOLLET) && !atomic_load(&s->active))
        refresh_held(w); /* another thread has just found it plain, and may not have changed the registration yet */
    return watch_is_stale(w, token);
}

/* The purpose of a look at a connection, and its result. */
struct glance {
    uint64_t token;
    uint32_t want;
    uint32_t kernel;     /* what the kernel says */
    uint32_t got;        /* the events for the program */
    bool by_kernel;      /* the kernel has told it */
    bool deferred;       /* the kernel was not asked for room */
    enum conn_state was; /* the connection's state before the look */
    bool took;           /* bytes have arrived that no thread was told of before */
};

/* Will the kernel report it to this very call? The connection was found plain, and is registered anew for that. */
static inline bool told_anew(struct watch *w, const struct glance *g)
{
    const struct conn *c = w->sock->conn;
    return (w->events & EPOLLET) && conn_state(c) == CONN_PLAIN && conn_rx_avail(c) == 0 &&
           !(g->was == CONN_PLAIN && g->by_kernel && conn_may_be_staged(c)) && refresh_held(w);
}

/*
 * Several threads have the kernel's event of a connection that was starting, and one of them has upgraded it and taken
 * bytes in: the first that has seen these reports them. (One that looked before they came leaves them to the others.)
 */
static inline bool takes(const struct glance *g, struct conn *c)
{
    bool starting = g->was == CONN_NEGOTIATING || g->was == CONN_CONNECTING;
    bool too_early = starting && (g->want & IN_BITS) && !(g->got & IN_BITS);
    return !too_early && atomic_exchange(&c->rx.arrived, false);
}

/* Has the kernel bytes that no look has taken in, behind some that the program has left? They are new. */
static bool has_untaken(const struct watch *w, const struct glance *g)
{
    return (g->kernel & g->want & IN_BITS) && tcpinfo_queued(atomic_load(&w->sock->fd)) > 0;
}

/*
 * Has another thread reported what this kernel's event is about? Each edge is reported once, though all threads may have
 * the event from before the upgrade, and one the fresh registration's. (What is new the kernel reports by that.)
 */
static inline bool told_elsewhere(struct watch *w, const struct glance *g)
{
    if (!g->by_kernel || !(w->events & EPOLLET) || conn_state(w->sock->conn) != CONN_UPGRADED)
        return false;
    bool stale = watch_is_stale(w, g->token);
    bool told = !g->took && (stale || (w->told_early != 0 && !(g->got & ~w->told_early) && !has_untaken(w, g)));
    if (stale && g->took)
        w->told_early = g->got;
    else if (!stale)
        w->told_early = 0;
    return told;
}

/* Reports the result, and makes the kernel and the list ready for what comes next. The set is locked by lock_for. */
static inline void conclude(struct wait *wt, struct watch *w, const struct glance *g)
{
    struct sock *s = w->sock;
    uint32_t got = g->got;
    /* The edge was of bytes that are not the program's. (It was writable before.) */
    if ((w->events & EPOLLET) && (g->kernel & g->want & IN_BITS) && !(got & IN_BITS) && w->out_told)
        got &= ~OUT_BITS;
    if (g->by_kernel && w->out_again && w->out_told && !(got & ~OUT_BITS))
        got = 0;
    if (g->by_kernel && (g->kernel & OUT_BITS)) /* (else this event is of the former registration) */
        w->out_again = false;
    if (told_anew(w, g) || told_elsewhere(w, g)) {
        wt->later = wt->later || got != 0;
        got = 0;
    }
    if (got != 0)
        tell(wt, w, got, g->by_kernel);
    if (g->deferred && (g->want & OUT_BITS) && !(got & OUT_BITS))
        refresh(wt->set, g->token, s, false); /* the kernel will report room */
    /* (The kernel does not report again what it does not know.) */
    if (!(w->events & (EPOLLET | EPOLLONESHOT)) &&
        ((got & (EPOLLIN | EPOLLRDNORM | EPOLLPRI | (~g->kernel & OUT_BITS))) || (g->deferred && (got & OUT_BITS))))
        watch_queue(w);
    if (got == 0 || !atomic_load(&s->active)) {
        /* Swallowed: a one-shot registration has to be armed again. */
        refresh(wt->set, g->token, s, got == 0 && g->by_kernel && (w->kevents & EPOLLONESHOT));
    }
}

/* An event of a connection of ours. The set is locked by lock_for; this unlocks it. kernel 0: from the ready list. */
static inline void look_conn(struct wait *wt, struct watch *w, uint64_t token, uint32_t kernel)
{
    struct epset *set = wt->set;
    struct sock *s = w->sock;
    struct glance g = {
        .token = token,
        .want = w->events & ~(uint32_t)EPOLL_MODE_BITS,
        .kernel = kernel,
        .by_kernel = kernel != 0,
        .deferred = atomic_load(&w->late),
    };
    /* Is this the only look at it in this call? Then it must find everything. */
    bool whole = wt->evs != NULL && ((w->events & (EPOLLET | EPOLLONESHOT)) || wt->n + 1 >= wt->max);
    atomic_fetch_add(&s->refs, 1);
    /* It leaves the list before the look: a thread that queues it meanwhile has newer news. */
    watch_unqueue(w);
    epset_unlock(set);

    /* Turns come before the set's lock. The number it was registered by may be closed or another file's. */
    short asked;
    int fd = atomic_load(&s->fd);
    if (!g.by_kernel && whole)
        g.kernel = ask(fd, g.want);
    uint32_t now = with_room(s, fd, g.want, g.kernel, g.deferred);
    g.was = conn_state(s->conn);
    g.got = (uint16_t)ready_now(s, fd, (short)(uint16_t)g.want, (short)(uint16_t)now, &asked);
    w = lock_for(set, token);
    g.took = takes(&g, s->conn);
    if (w != NULL && w->sock == s && !w->disarmed)
        conclude(wt, w, &g);
    epset_unlock(set);
    /* What is reported here was taken from the kernel, which does not report it to the other sets any more. */
    if (g.took) {
        epoll_left_over_but(s, true, w);
        ready_told(s);
    }
    sock_put(s);
}

/* One event of the kernel, or (kernel 0) one connection of the ready list. */
static void look(struct wait *wt, uint64_t token, uint32_t kernel)
{
    struct epset *set = wt->set;
    struct watch *w = lock_told(set, &token, kernel != 0);
    if (w == NULL && kernel != 0) {
        look_unseen(wt, token, kernel);
        return;
    }
    if (w != NULL && w->disarmed)
        quiet(w);
    if (w == NULL || w->disarmed || is_told(wt, w, token, kernel != 0)) {
        epset_unlock(set);
        return;
    }
    if (w->sock == NULL || !atomic_load(&w->sock->active))
        look_plain(wt, w, kernel);
    else
        look_conn(wt, w, token, kernel);
}

static void tell_kept(struct wait *wt)
{
    if (wt->evs == NULL)
        wt->n++;
    while (wt->evs != NULL && wt->n < wt->max && usermem_writable(&wt->evs[wt->n], sizeof(*wt->evs)) &&
           epset_kept(wt->set, &wt->evs[wt->n]))
        wt->n++;
}

/* The ready list: no more entries than are on it now, so that none is looked at twice. */
static void look_ready(struct wait *wt)
{
    uint64_t token;
    if (SW_UNLIKELY(atomic_load(&wt->set->kept_n) > 0))
        tell_kept(wt);
    for (unsigned n = atomic_load(&wt->set->ready_n); n > 0 && wt->n < wt->max; n--) {
        if (!epset_rotate(wt->set, &token))
            break;
        look(wt, token, 0);
    }
}

/* May the kernel report bytes that are the startup's and not the program's? */
static bool is_starting(const struct watch *w)
{
    if (w->sock == NULL || w->disarmed || !atomic_load(&w->sock->active))
        return false;
    const struct conn *c = w->sock->conn;
    if (conn_state(c) != CONN_UPGRADED)
        return conn_state(c) == CONN_CONNECTING || conn_state(c) == CONN_NEGOTIATING;
    return conn_on_socket(c) && (!iwarp_can_send(&c->ep) || c->rx.mode == CONN_RX_STREAMED);
}

#define STARTING_MAX 64u

/* Connections of the set that are starting, with references. */
static unsigned find_starting(struct epset *set, struct sock *found[STARTING_MAX])
{
    unsigned n = 0;
    epset_lock(set);
    for (int i = 0; i < EPOLL_CHUNKS * EPOLL_FDS_CHUNK && n < STARTING_MAX; i++) {
        if (set->chunk[i / EPOLL_FDS_CHUNK] == NULL) {
            i += EPOLL_FDS_CHUNK - 1;
            continue;
        }
        struct watch *w = set->chunk[i / EPOLL_FDS_CHUNK][i % EPOLL_FDS_CHUNK];
        for (; w != NULL && n < STARTING_MAX; w = w->older)
            if (is_starting(w)) {
                atomic_fetch_add(&w->sock->refs, 1);
                found[n++] = w->sock;
            }
    }
    epset_unlock(set);
    return n;
}

/*
 * Takes the startups' bytes from the kernel, so that its answer about the set is about the program's. (Taking the set's
 * events instead would bring other connections' bytes into staging, and that would be a new edge.)
 */
static void settle_starting(struct epset *set)
{
    struct sock *found[STARTING_MAX];
    unsigned n = find_starting(set, found);
    for (unsigned i = 0; i < n; i++) {
        short asked;
        int fd = atomic_load(&found[i]->fd);
        if (ready_now(found[i], fd, POLLIN, (short)ask(fd, POLLIN), &asked) != 0)
            ready_arrived(found[i]);
        sock_put(found[i]);
    }
}

/*
 * As epoll_settle. *later: bytes behind a startup's were taken in with it; the ready list that they are on makes the
 * kernel report the set, so it is reported once.
 */
static bool settle(int epfd, bool take, bool *later)
{
    struct epset *set = epset_hold(epfd);
    if (set == NULL)
        return true;
    struct wait wt = { .set = set, .max = 1 };
    if (epset_list_hold(set)) {
        look_ready(&wt);
        epset_list_release(set);
    }
    struct epoll_event kev[64];
    for (int r = 64; wt.n == 0 && take && !atomic_load(&set->unseen) && (r == 64 || wt.later);) {
        wt.later = false;
        r = REAL(epoll_wait)(epfd, kev, 64, 0);
        for (int i = 0; i < r; i++)
            if (kev[i].data.u64 != EPOLL_KICK_TOKEN)
                look(&wt, kev[i].data.u64, kev[i].events);
    }
    if (wt.n == 0 && (!take || atomic_load(&set->unseen)) && ask(epfd, POLLIN) != 0) {
        settle_starting(set);
        bool listed = atomic_load(&set->ready_n) > 0;
        *later = *later || listed;
        wt.n = !listed && ask(epfd, POLLIN) != 0;
    }
    epset_put(set);
    return wt.n > 0;
}

bool epoll_settle(int epfd, bool take)
{
    bool later = false;
    return settle(epfd, take, &later);
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

static __thread struct spin spin; /* does this thread look before it sleeps? */

/*
 * The kernel's part, while something else is waited for as well. poll(2) is restarted if a finished io_uring request,
 * and no signal handler, interrupted it; epoll_wait would return EINTR.
 */
static int poll_wait(int epfd, struct epoll_event *kev, int max, const struct timespec *ts, const sigset_t *mask)
{
    struct pollfd fds[65];
    struct sock *socks[64];
    unsigned n = wait_fill(fds + 1, socks, 64, NULL);
    fds[0] = (struct pollfd){ .fd = epfd, .events = POLLIN };
    int r = wait_ppoll(fds, n + 1, socks, n, ts, mask);
    int err = errno;
    wait_filled(fds + 1, socks, n, r == 0);
    if (r < 0) {
        errno = err;
        return r;
    }
    return (fds[0].revents & POLLIN) && r > 0 ? REAL(epoll_wait)(epfd, kev, max, 0) : 0;
}

static int pwait_cancellable(int epfd, struct epoll_event *kev, int max, int ms, const sigset_t *mask)
{
    int r;
    CANCEL_POINT(r = REAL(epoll_pwait)(epfd, kev, max, ms, mask));
    return r;
}

/*
 * The kernel's part: waits until until_ns (0: for ever). A set that another thread has closed meanwhile gives nothing.
 */
static int kernel_wait(struct epset *set, struct epoll_event *kev, int max, uint64_t until_ns, const sigset_t *mask)
{
    int epfd = atomic_load(&set->epfd);
    uint64_t now = until_ns ? proc_now_ns() : 0;
    uint64_t left = until_ns > now ? until_ns - now : 0;
    const struct transport_ops *t = transport_if_any();
    if (epfd < 0 || pending_others(NULL) || (t != NULL && t->thread_busy())) {
        struct timespec ts = to_timespec(left);
        return poll_wait(epfd, kev, max, until_ns ? &ts : NULL, mask);
    }
    /* Milliseconds are exact enough: epoll_pwait2 is not everywhere. */
    left = (left + 999999u) / 1000000u;
    int r = 0, ms = until_ns == 0 ? -1 : left < INT_MAX ? (int)left : INT_MAX;
    struct spin_look k = { 0 };
    if (mask == NULL && (until_ns == 0 || ms > 0) && spin_begin(&k, &spin)) {
        do
            r = REAL(epoll_wait)(epfd, kev, max, 0);
        while (r == 0 && spin_go_on(&k));
        spin_found(&k, &spin, r > 0);
    }
    if (r == 0) {
        r = pwait_cancellable(epfd, kev, max, ms, mask);
        spin_end(&k, &spin);
    }
    return r;
}

/* Looks at the kernel's events. */
static void look_at(struct wait *wt, const struct epoll_event *kev, int n)
{
    struct epset *set = wt->set;
    for (int i = 0; i < n; i++) {
        if (kev[i].data.u64 != EPOLL_KICK_TOKEN)
            look(wt, kev[i].data.u64, kev[i].events);
        else if (!atomic_load(&set->nested))
            poller_kick_drain(atomic_load(&set->kick_fd));
    }
}

/* Takes the kernel's events as far as there is room for them, without waiting. */
static int take_all(struct wait *wt, struct epoll_event *kev)
{
    int r, before;
    do {
        before = wt->n;
        int room = wt->max - wt->n < BATCH ? wt->max - wt->n : BATCH;
        r = REAL(epoll_wait)(atomic_load(&wt->set->epfd), kev, room, 0);
        if (r < 0)
            return -errno;
        look_at(wt, kev, r);
    } while (r == BATCH && wt->n > before && wt->n < wt->max);
    return 0;
}

/* One round. Returns 0 or -errno. */
static int round_of(struct wait *wt, uint64_t until_ns, bool sleep, const sigset_t *mask)
{
    struct epset *set = wt->set;
    struct epoll_event kev[BATCH];
    int r = 0;
    bool list_first = false;
    epset_lock(set);
    wt->seq = ++set->seq;
    epset_unlock(set);
    wt->n = 0;
    wt->later = false;
    epset_shared_look(set);
    if (sleep && atomic_load(&set->ready_n) > 0)
        epset_drop_read(set);
    if (sleep && atomic_load(&set->ready_n) == 0) {
        r = kernel_wait(set, kev, wt->max < BATCH ? wt->max : BATCH, until_ns, mask);
        if (r < 0)
            return -errno;
        look_at(wt, kev, r);
        if (r == BATCH && wt->n < wt->max)
            r = take_all(wt, kev);
    } else {
        /* The kernel's events come first, but not each time. */
        list_first = atomic_exchange(&set->list_owed, false);
        if (list_first)
            look_ready(wt);
        if (wt->n < wt->max)
            r = take_all(wt, kev);
    }
    if (wt->later && wt->n > 0 && wt->n < wt->max)
        r = take_all(wt, kev);
    if (atomic_load(&set->ready_n) > 0 && wt->n < wt->max)
        look_ready(wt);
    else if (atomic_load(&set->ready_n) > 0 && !list_first)
        atomic_store(&set->list_owed, true);
    return r < 0 && wt->n == 0 ? r : 0;
}

/* Until there is something, or the time is over. As epoll_wait, -errno. */
static int rounds(struct epset *set, struct epoll_event *evs, int max, int64_t timeout_ns, const sigset_t *mask)
{
    uint64_t deadline = timeout_ns > 0 ? proc_now_ns() + (uint64_t)timeout_ns : 0;
    struct wait wt = { .set = set, .evs = evs, .max = max };
    struct signals_mark ran = signals_ran();
    for (;;) {
        uint64_t until = deadline, due = timeout_ns == 0 ? 0 : pending_deadline();
        if (due != 0 && (until == 0 || due < until))
            until = due;
        int r = round_of(&wt, until, timeout_ns != 0, mask);
        if (wt.fault)
            return wt.n > 0 ? wt.n : -EFAULT;
        r = signals_but_ours(r, ran);
        if (r < 0)
            return r;
        if (due != 0)
            pending_step_due(wt.n == 0);
        if (wt.n > 0 || (timeout_ns == 0 && !wt.later) || (deadline != 0 && proc_now_ns() >= deadline))
            return wt.n;
        if (timeout_ns != 0 && signals_ran().all != ran.all)
            return -EINTR;
    }
}

static int wait_on(struct epset *set, struct epoll_event *evs, int max, int64_t timeout_ns, const sigset_t *mask)
{
    uintptr_t frame = poller_call_begin();
    epset_take_over(set);
    proc_waits();
    share_wait_begin(set);
    struct poller *me = poller_count(&set->waiters, frame);
    if (me == NULL) {
        share_wait_end(set);
        return -ENOMEM;
    }
    pending_watched();
    if (poller_threads()) {
        poller_kick_fd(); /* if this call is cancelled, the thread's end takes `me` back */
        epset_kick_make(set);
    }
    uint64_t masked = signals_masked(mask);
    int r = rounds(set, evs, max, timeout_ns, mask);
    signals_masked_over(masked);
    /* A level-triggered event is for all waiters: the kernel, whose buffer is empty, wakes no other. */
    poller_end(me);
    share_wait_end(set);
    if (atomic_load(&set->ready_n) > 0 && share_awaited(set)) {
        if (share_awaited_elsewhere(set))
            epoll_shared_left();
        epset_kick(set);
    }
    return r;
}

static void put_set(void *set)
{
    share_wait_end(set);
    epset_put(set);
}

/* (errno is as it was before a call that succeeds.) */
static int waited(struct epset *set, struct epoll_event *evs, int max, int64_t timeout_ns, const sigset_t *mask)
{
    int before = errno;
    struct cancel hold = cancel_hold(put_set, set);
    int r = ready_mask(mask) ? wait_on(set, evs, max, timeout_ns, mask) : -EFAULT;
    cancel_restore(hold);
    epset_put(set);
    errno = r < 0 ? -r : before;
    return r < 0 ? -1 : r;
}

/* At the beginning of a wait: the set with a reference, or NULL: the kernel does the call. */
static struct epset *set_to_wait(int epfd, const struct epoll_event *evs, int max)
{
    coalesce_before_poll();
    return evs == NULL || max <= 0 || max > MAX_EVENTS ? NULL : epset_hold(epfd);
}

int epoll_pwait(int epfd, struct epoll_event *evs, int max, int timeout_ms, const sigset_t *mask)
{
    struct epset *set = set_to_wait(epfd, evs, max);
    if (set == NULL)
        return REAL(epoll_pwait)(epfd, evs, max, timeout_ms, mask);
    return waited(set, evs, max, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000, mask);
}

int epoll_wait(int epfd, struct epoll_event *evs, int max, int timeout_ms)
{
    struct epset *set = set_to_wait(epfd, evs, max);
    if (set == NULL)
        return REAL(epoll_wait)(epfd, evs, max, timeout_ms);
    return waited(set, evs, max, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000, NULL);
}

int epoll_pwait2(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout, const sigset_t *mask)
{
    int64_t ns;
    bool good = timeout == NULL || usermem_readable(timeout, sizeof(*timeout));
    struct epset *set = good && ready_timeout(timeout, &ns) ? set_to_wait(epfd, evs, max) : NULL;
    if (set == NULL)
        return REAL(epoll_pwait2)(epfd, evs, max, timeout, mask);
    return waited(set, evs, max, ns, mask);
}
