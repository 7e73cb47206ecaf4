/*
 * Epoll sets and their registrations.
 */
#include "preload/ready/epoll_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "preload/conn/conn.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/ready/epoll.h"
#include "preload/ready/ready.h"

/*
 * Registrations of other files than sockets that one number may have before the kernel is asked which of them are left.
 */
#define STALE_MAX 8
/* The first gen. Pointers, descriptors and small numbers, which programs register, do not look like this. */
#define GEN_FIRST 0x9d3a0001u

typedef _Atomic(struct epset *) set_slot;
static _Atomic(set_slot *) sets[EPOLL_CHUNKS];
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER; /* protects making chunks, changing entries, free_sets */
static _Atomic unsigned sets_n;
static _Atomic int fd_limit;

/*
 * Sets are never freed while a thread may look at them: they are few, and an emptied one is reused.
 */
static struct epset *free_sets;

static set_slot *set_slot_of(int epfd)
{
    if (epfd < 0 || epfd >= EPOLL_FDS_CHUNK * EPOLL_CHUNKS)
        return NULL;
    set_slot *c = atomic_load(&sets[epfd / EPOLL_FDS_CHUNK]);
    return c ? &c[epfd % EPOLL_FDS_CHUNK] : NULL;
}

struct epset *epset_get(int epfd)
{
    if (atomic_load_explicit(&sets_n, memory_order_relaxed) == 0)
        return NULL;
    set_slot *slot = set_slot_of(epfd);
    return slot ? atomic_load(slot) : NULL;
}

struct epset *epset_hold(int epfd)
{
    struct epset *set = epset_get(epfd);
    if (set == NULL)
        return NULL;
    atomic_fetch_add(&set->refs, 1);
    if (epset_get(epfd) == set)
        return set;
    epset_put(set);
    return NULL;
}

bool epoll_tracks(int fd)
{
    return epset_get(fd) != NULL;
}

int epoll_fd_limit(void)
{
    return atomic_load(&fd_limit);
}

static void set_enter(int epfd, struct epset *set)
{
    lock_take(&sets_lock);
    set_slot *slot = set_slot_of(epfd);
    if (slot == NULL && epfd >= 0 && epfd < EPOLL_FDS_CHUNK * EPOLL_CHUNKS) {
        set_slot *c = calloc(EPOLL_FDS_CHUNK, sizeof(*c));
        if (c != NULL) {
            atomic_store(&sets[epfd / EPOLL_FDS_CHUNK], c);
            slot = &c[epfd % EPOLL_FDS_CHUNK];
        }
    }
    if (slot != NULL) {
        atomic_fetch_add(&set->refs, 1);
        atomic_store(slot, set);
        atomic_fetch_add(&sets_n, 1);
        if (epfd >= atomic_load(&fd_limit))
            atomic_store(&fd_limit, epfd + 1);
    }
    lock_give(&sets_lock);
}

static struct epset *set_make(int epfd)
{
    lock_take(&sets_lock);
    struct epset *set = free_sets;
    if (set != NULL)
        free_sets = set->next_free;
    lock_give(&sets_lock);
    if (set == NULL) {
        set = calloc(1, sizeof(*set));
        if (set == NULL)
            return NULL;
        pthread_mutex_init(&set->lock, NULL);
        pthread_mutex_init(&set->ready_lock, NULL);
        set->gen = GEN_FIRST - 1;
    }
    set->epfd = epfd;
    set->ready_first = NULL;
    set->ready_end = &set->ready_first;
    set->ready_n = 0;
    set->parked_n = 0;
    atomic_store(&set->late_n, 0);
    set->list_owed = false;
    set->kick_fd = -1;
    set->nested = false;
    set->tokened = false;
    set->taken = false;
    set->strays = false;
    set->kept_n = 0;
    set->unseen = false;
    return set;
}

int epoll_created(int epfd)
{
    if (epfd < 0 || !proc_on() || proc_is_borrowed())
        return epfd;
    sock_drop(epfd);
    epoll_closed(epfd);
    share_left_make();
    signals_guard();
    struct epset *set = set_make(epfd);
    if (set != NULL)
        set_enter(epfd, set);
    return epfd;
}

void epset_put(struct epset *set)
{
    if (atomic_fetch_sub(&set->refs, 1) != 1)
        return;
    /* (If other processes have the set, its registrations go on.) */
    lock_take(&set->lock);
    struct share *share = share_leave(set);
    lock_give(&set->lock);
    for (int c = 0; c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (;;) {
                lock_take(&set->lock);
                struct watch *w = set->chunk[c][i];
                struct sock *s = NULL;
                if (w != NULL) {
                    s = watch_detach(w);
                    watch_free(w);
                }
                lock_give(&set->lock);
                if (w == NULL)
                    break;
                if (s != NULL)
                    sock_put(s);
            }
    share_end(share);
    int kick = atomic_exchange(&set->kick_fd, -1);
    if (kick >= 0)
        hidden_close(kick);
    lock_take(&sets_lock);
    set->next_free = free_sets;
    free_sets = set;
    lock_give(&sets_lock);
}

void epoll_closed(int epfd)
{
    if (epset_get(epfd) == NULL)
        return;
    lock_take(&sets_lock);
    set_slot *slot = set_slot_of(epfd);
    struct epset *set = slot ? atomic_exchange(slot, NULL) : NULL;
    if (set != NULL) {
        atomic_fetch_sub(&sets_n, 1);
        /* It may have another descriptor. */
        for (int fd = 0; atomic_load(&set->epfd) == epfd && fd < atomic_load(&fd_limit); fd++)
            if (epset_get(fd) == set)
                atomic_store(&set->epfd, fd);
        /* Or none: a thread that waits in the set goes on waiting. */
        int gone = epfd;
        atomic_compare_exchange_strong(&set->epfd, &gone, -1);
    }
    lock_give(&sets_lock);
    if (set != NULL)
        epset_put(set);
}

void epoll_duped(int epfd, int epfd2)
{
    struct epset *set = epset_hold(epfd);
    epoll_closed(epfd2);
    if (set != NULL) {
        set_enter(epfd2, set);
        epset_put(set);
    }
}

/* ---- locks ---- */

void epset_lock(struct epset *set)
{
    lock_take(&set->lock);
    if (SW_UNLIKELY(atomic_load_explicit(&set->share, memory_order_relaxed) != NULL) && share_changed(set)) {
        share_lock(set);
        share_unlock(set);
    }
}

void epset_lock_whole(struct epset *set)
{
    lock_take(&set->lock);
    if (SW_UNLIKELY(atomic_load_explicit(&set->share, memory_order_relaxed) != NULL))
        share_lock(set);
}

/* Drops the references of registrations that other processes have deleted. */
static void drop_gone(struct epset *set)
{
    struct watch *gone = set->gone, *w;
    set->gone = NULL;
    lock_give(&set->lock);
    for (w = gone; w != NULL; w = w->older)
        sock_put(w->sock);
    lock_take(&set->lock);
    while ((w = gone) != NULL) {
        gone = w->older;
        watch_free(w);
    }
    lock_give(&set->lock);
}

void epset_unlock(struct epset *set)
{
    if (SW_UNLIKELY(set->share_held))
        share_unlock(set);
    if (SW_UNLIKELY(set->gone != NULL))
        drop_gone(set);
    else
        lock_give(&set->lock);
}

/* ---- registrations ---- */

/* From the top: gen, turn, fd. */
#define TOKEN_FD_BITS 20
#define TOKEN_FD_MASK ((1u << TOKEN_FD_BITS) - 1)
#define TOKEN_TURN_MASK 0xfffu
_Static_assert(EPOLL_FDS_CHUNK *EPOLL_CHUNKS == 1 << TOKEN_FD_BITS, "a descriptor fits the token");

uint64_t watch_token(const struct watch *w)
{
    return (uint64_t)w->gen << 32 | (w->turn & TOKEN_TURN_MASK) << TOKEN_FD_BITS | (uint32_t)w->fd;
}

bool watch_token_is_ours(const struct epset *set, uint64_t token)
{
    return (uint32_t)(token >> 32) - GEN_FIRST < share_gen_last(set) + 1 - GEN_FIRST;
}

bool watch_token_is(uint64_t token, int fd, uint32_t gen)
{
    return (uint32_t)(token >> 32) == gen && ((uint32_t)token & TOKEN_FD_MASK) == (uint32_t)fd;
}

uint16_t watch_token_turn(uint64_t token)
{
    return (uint32_t)token >> TOKEN_FD_BITS;
}

bool watch_is_stale(const struct watch *w, uint64_t token)
{
    return (((uint32_t)token >> TOKEN_FD_BITS ^ w->turn) & TOKEN_TURN_MASK) != 0;
}

static struct watch **slot_of(struct epset *set, int fd, bool make)
{
    if (fd < 0 || fd >= EPOLL_FDS_CHUNK * EPOLL_CHUNKS)
        return NULL;
    struct watch ***c = &set->chunk[fd / EPOLL_FDS_CHUNK];
    if (*c == NULL && make)
        *c = calloc(EPOLL_FDS_CHUNK, sizeof(struct watch *));
    return *c ? &(*c)[fd % EPOLL_FDS_CHUNK] : NULL;
}

struct watch *watch_find(struct epset *set, uint64_t token)
{
    struct watch **slot = slot_of(set, (int)((uint32_t)token & TOKEN_FD_MASK), false);
    struct watch *w = slot ? *slot : NULL;
    while (w != NULL && w->gen != (uint32_t)(token >> 32))
        w = w->older;
    return w;
}

struct watch *watch_current(struct epset *set, int fd, const struct sock *s)
{
    struct watch **slot = slot_of(set, fd, false);
    struct watch *w = slot ? *slot : NULL, *foreign = NULL;
    for (; w != NULL && (w->sock != s || w->foreign); w = w->older)
        if (w->sock == s && foreign == NULL)
            foreign = w; /* it may be the file that we have by the number, or another */
    return w != NULL ? w : foreign;
}

struct watch *watch_new(struct epset *set, int fd)
{
    uint32_t gen = set->share != NULL ? share_gen(set) : ++set->gen;
    return watch_new_by(set, fd, gen);
}

struct watch *watch_new_by(struct epset *set, int fd, uint32_t gen)
{
    if (slot_of(set, fd, true) == NULL)
        return NULL;
    struct watch *w = set->free_watches;
    if (w != NULL)
        set->free_watches = w->older;
    else if ((w = malloc(sizeof(*w))) == NULL)
        return NULL;
    *w = (struct watch){ .set = set, .fd = fd, .gen = gen, .chan = -1 };
    return w;
}

void watch_free(struct watch *w)
{
    w->older = w->set->free_watches;
    w->set->free_watches = w;
}

char *watch_kernel_list(struct epset *set)
{
    char path[48], *info = NULL;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", atomic_load(&set->epfd));
    int in = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0, room = 0;
    for (ssize_t got = 1; in >= 0 && got > 0; len += got > 0 ? (size_t)got : 0) {
        if (len + 4096 > room) {
            char *more = realloc(info, room = 2 * room + 8192);
            if (more == NULL) {
                free(info);
                info = NULL;
                break;
            }
            info = more;
        }
        got = REAL(read)(in, info + len, room - len - 1);
    }
    if (in >= 0)
        REAL(close)(in);
    if (info != NULL)
        info[len] = '\0';
    return info;
}

bool watch_kernel_next(const char **at, uint64_t *token)
{
    const char *data = strstr(*at, "data: ");
    if (data == NULL)
        return false;
    char *end;
    *token = strtoull(data + 6, &end, 16);
    *at = end;
    return true;
}

static bool still_there(const char *list, const struct watch *w)
{
    uint64_t token;
    while (watch_kernel_next(&list, &token))
        if (watch_token_is(token, w->fd, w->gen))
            return true;
    return false;
}

/*
 * Numbers that were closed and used again without EPOLL_CTL_DEL leave registrations behind. We do not know whether a
 * file that is not ours is still open elsewhere. The kernel knows.
 */
static void forget_stale(struct epset *set, int fd)
{
    struct watch *w = *slot_of(set, fd, false), *older;
    unsigned n = 0;
    for (older = w; older != NULL; older = older->older)
        n += older->sock == NULL;
    char *list = n < STALE_MAX ? NULL : watch_kernel_list(set);
    /* (Events of registrations with the program's data are reported as they are, known or not.) */
    for (; w != NULL; w = older) {
        older = w->older;
        if (w->sock == NULL && (!w->tokened || (list != NULL && !still_there(list, w))))
            watch_remove(w); /* (without a sock there is no reference to drop) */
    }
    free(list);
}

void watch_link(struct watch *w)
{
    struct watch **slot = slot_of(w->set, w->fd, false);
    w->older = *slot;
    *slot = w;
    if (w->sock == NULL)
        return;
    lock_take(&w->sock->watch_lock);
    w->next = w->sock->watches;
    __atomic_store_n(&w->sock->watches, w, __ATOMIC_SEQ_CST); /* (sock_watched) */
    lock_give(&w->sock->watch_lock);
}

void watch_enter(struct watch *w)
{
    forget_stale(w->set, w->fd);
    watch_link(w);
}

struct sock *watch_leave_sock(struct watch *w)
{
    struct sock *s = w->sock;
    if (s != NULL) {
        lock_take(&s->watch_lock);
        struct watch **p = &s->watches;
        while (*p != w)
            p = &(*p)->next;
        *p = w->next;
        if (w->chan >= 0) {
            struct epoll_event none = { 0 };
            REAL(epoll_ctl)(atomic_load(&w->set->epfd), EPOLL_CTL_DEL, w->chan, &none);
        }
        watch_is_told(w);
        lock_give(&s->watch_lock);
    }
    watch_unqueue(w); /* no thread can find it by s any more */
    return s;
}

struct sock *watch_detach(struct watch *w)
{
    struct sock *s = watch_leave_sock(w);
    struct watch **p = slot_of(w->set, w->fd, false);
    if (SW_UNLIKELY(w->parked)) /* (its number was closed, or the whole set) */
        w->set->parked_n--;
    while (*p != w)
        p = &(*p)->older;
    *p = w->older;
    return s;
}

struct sock *watch_remove(struct watch *w)
{
    struct sock *s = watch_detach(w);
    share_forget(w);
    watch_free(w);
    return s;
}

/* ---- from the program's data to tokens ---- */

static void take_over(struct watch *w)
{
    struct sock *s = w->sock;
    if (!w->tokened) {
        if (s != NULL)
            lock_take(&s->watch_lock);
        watch_refresh(w, true);
        if (s != NULL)
            lock_give(&s->watch_lock);
        if (s != NULL && !w->tokened)
            atomic_store(&w->set->strays, true);
    }
    if (s != NULL && atomic_load(&s->active)) /* events that the kernel does not know were not noted so far */
        watch_queue(w);
}

struct watch *watch_stray(struct epset *set, uint64_t data)
{
    for (int c = 0; atomic_load(&set->strays) && c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (struct watch *w = set->chunk[c][i]; w != NULL; w = w->older)
                if (!w->tokened && w->sock != NULL && w->data.u64 == data)
                    return w;
    return NULL;
}

static bool has_set(struct epset *set, int fd)
{
    epset_lock(set);
    bool has = watch_current(set, fd, NULL) != NULL;
    epset_unlock(set);
    return has;
}

void epset_take_over(struct epset *set)
{
    if (SW_LIKELY(atomic_load_explicit(&set->taken, memory_order_acquire)))
        return;
    epset_lock_whole(set);
    share_token(set);
    atomic_store(&set->tokened, true);
    for (int c = 0; c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (struct watch *w = set->chunk[c][i]; w != NULL; w = w->older)
                take_over(w);
    atomic_store(&set->taken, true);
    epset_unlock(set);
    /* Sets in it are treated as if they were registered now. */
    for (int fd = 0; fd < epoll_fd_limit(); fd++)
        if (epoll_tracks(fd) && has_set(set, fd))
            epoll_nest(fd);
}

bool epoll_waits_unseen(struct sock *s)
{
    if (atomic_load(&s->accept_waits))
        return false;
    if (!sock_watched(s))
        return atomic_load(&s->nonblock) && atomic_load(&s->waiters) == 0 && !atomic_load(&proc.waited);
    lock_take(&s->watch_lock);
    bool unseen = s->watches != NULL && atomic_load(&s->waiters) == 0;
    for (struct watch *w = s->watches; w != NULL && unseen; w = w->next)
        unseen = !epset_is_tokened(w->set);
    lock_give(&s->watch_lock);
    return unseen;
}

/* ---- fork ---- */

/* A handler that forks may interrupt code that holds it: not all handlers are put off (signals.h). */
#define FORK_WAIT_NS 1000000000

bool epoll_lock_for_fork(pthread_mutex_t *m)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += FORK_WAIT_NS / 1000000000;
    signals_hold();
    if (pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &end) == 0)
        return true;
    signals_go_on();
    return false;
}

static bool fork_locked; /* sets_lock is held for a fork; its */

/* Each set once: by the descriptor that stands for it. */
static struct epset *set_at(int fd)
{
    struct epset *set = epset_get(fd);
    return set != NULL && atomic_load(&set->epfd) == fd ? set : NULL;
}

void epoll_part(void)
{
    for (int fd = 0; fd < atomic_load(&fd_limit); fd++) {
        struct epset *set = set_at(fd);
        if (set == NULL)
            continue;
        lock_take(&set->lock);
        struct share *share = share_leave(set);
        lock_give(&set->lock);
        share_end(share);
    }
    share_left_part();
}

void epoll_before_fork(void)
{
    epoll_park_stop();
    if (atomic_load(&sets_n) == 0)
        return;
    bool locked = epoll_lock_for_fork(&sets_lock);
    for (int fd = 0; locked && fd < atomic_load(&fd_limit); fd++) {
        struct epset *set = set_at(fd);
        if (set == NULL)
            continue;
        set->fork_locked = epoll_lock_for_fork(&set->lock);
        if (set->fork_locked)
            share_make(set);
    }
    fork_locked = locked;
}

void epoll_after_fork(bool child)
{
    for (int fd = 0; (child || fork_locked) && fd < atomic_load(&fd_limit); fd++) {
        struct epset *set = set_at(fd);
        if (set == NULL)
            continue;
        if (child) {
            pthread_mutex_init(&set->lock, NULL);
            pthread_mutex_init(&set->ready_lock, NULL);
            atomic_store(&set->waiters, 0);
            set->share_held = false;
        } else if (set->fork_locked) {
            set->fork_locked = false;
            lock_give(&set->lock);
        }
    }
    if (child) {
        pthread_mutex_init(&sets_lock, NULL);
    } else if (fork_locked) {
        fork_locked = false;
        lock_give(&sets_lock);
    }
    epoll_park_go_on();
}

/* The registrations are whole; all links to them are made anew. */
static void count_watches(struct epset *set)
{
    set->ready_first = NULL;
    set->ready_end = &set->ready_first;
    atomic_store(&set->ready_n, set->kept_n);
    for (int c = 0; c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (struct watch *w = set->chunk[c][i]; w != NULL; w = w->older) {
                bool queued = w->queued;
                w->queued = false;
                if (w->sock != NULL && !sock_counted(w->sock)) {
                    w->sock = NULL;
                    w->foreign = true;
                }
                if (w->sock != NULL) {
                    w->next = w->sock->watches;
                    w->sock->watches = w;
                }
                if (queued)
                    watch_queue(w);
            }
}

void epoll_count(void)
{
    int limit = atomic_load(&fd_limit);
    for (int fd = 0; fd < limit; fd++) {
        struct epset *set = epset_get(fd);
        if (set != NULL)
            atomic_store(&set->refs, 0);
    }
    for (int fd = 0; fd < limit; fd++) {
        struct epset *set = epset_get(fd);
        if (set != NULL && atomic_fetch_add(&set->refs, 1) == 0)
            count_watches(set);
    }
}
