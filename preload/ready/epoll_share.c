/*
 * Epoll sets that processes share by fork: the table of their registrations.
 */
#include "preload/ready/epoll_share.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/turn.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"

#define SHARE_MAX 65536u   /* registrations of a set; only their own process knows more than these */
#define SHARE_LOG 1024u    /* changes that are looked at one by one */
#define UNKNOWN UINT32_MAX /* the kernel's events, after a process died while it changed them */

struct record {
    uint32_t gen; /* 0: free */
    int fd;
    uint64_t ino; /* the socket registered, if it is one and it was not known before the set was shared; or 0 */
    epoll_data_t data;
    uint32_t events, kevents;
    uint32_t mods; /* how often the program changed it */
    uint16_t turn;
    bool tokened, disarmed;
};

struct share {
    pthread_mutex_t lock;     /* robust; protects all other members that are not atomic */
    _Atomic bool tokened;     /* a process has called epset_take_over */
    _Atomic uint64_t version; /* changes, those under way among them */
    _Atomic uint32_t waiters; /* threads of all processes; those that were killed are counted for ever */
    uint32_t gen;
    uint32_t end;  /* one above the highest record ever used */
    uint32_t hint; /* where a free one may be */
    uint32_t at;   /* 1 + the record that is being changed, 0: none */
    bool full;
    uint32_t log[SHARE_LOG];         /* by version: the record changed */
    struct record record[SHARE_MAX]; /* pages that were never used cost nothing */
};

#define AT_LEN (SHARE_MAX * sizeof(struct watch *))

static struct record *record_of(const struct watch *w)
{
    return &w->set->share->record[w->record - 1];
}

/* The record is about to change: threads that ask from now on wait for the lock. */
static void touch(struct share *sh, uint32_t i)
{
    uint64_t v = atomic_load(&sh->version);
    sh->at = i + 1;
    sh->log[v % SHARE_LOG] = i;
    atomic_store(&sh->version, v + 1);
}

/* ---- this process's registrations ---- */

/* Notes a reference that is dropped when set is unlocked. */
static void drop_later(struct epset *set, struct watch *w, struct sock *s)
{
    w->sock = s;
    w->older = set->gone;
    set->gone = w;
}

static void forget_here(struct watch *w)
{
    struct epset *set = w->set;
    set->share_at[w->record - 1] = NULL;
    w->record = 0;
    struct sock *s = watch_detach(w);
    if (s != NULL)
        drop_later(set, w, s);
    else
        watch_free(w);
}

/* Is it a socket that this process has by the same number? */
static struct sock *sock_of(const struct record *r)
{
    return r->ino != 0 && !sandbox_on() && sock_ino(r->fd) == r->ino ? sock_get(r->fd) : NULL;
}

/* Enters a registration that another process has made. */
static void learn(struct epset *set, uint32_t i)
{
    const struct record *r = &set->share->record[i];
    struct watch *w = watch_new_by(set, r->fd, r->gen);
    if (w == NULL)
        return;
    w->sock = sock_of(r);
    w->foreign = w->sock == NULL;
    w->record = i + 1;
    w->mods = r->mods - 1; /* (something new) */
    set->share_at[i] = w;
    watch_link(w);
}

void share_load(struct watch *w)
{
    const struct record *r = record_of(w);
    if (r->gen != w->gen)
        return;
    w->data = r->data;
    w->events = r->events;
    w->kevents = r->kevents;
    w->turn = r->turn;
    w->tokened = r->tokened;
    w->disarmed = r->disarmed;
    if (r->mods != w->mods)
        w->out_told = false;
    w->mods = r->mods;
}

static void look_at(struct epset *set, uint32_t i)
{
    const struct record *r = &set->share->record[i];
    struct watch *w = set->share_at[i];
    if (w != NULL && w->gen != r->gen)
        forget_here(w);
    if (r->gen == 0)
        return;
    if (set->share_at[i] == NULL)
        learn(set, i);
    if ((w = set->share_at[i]) == NULL)
        return;
    struct sock *s = w->sock;
    bool changed = r->mods != w->mods;
    if (s != NULL)
        lock_take(&s->watch_lock);
    share_load(w);
    if (r->kevents == UNKNOWN)
        watch_refresh(w, true); /* what the dead one began */
    if (s != NULL)
        lock_give(&s->watch_lock);
    if (w->disarmed)
        watch_unqueue(w);
    else if (changed && s != NULL && atomic_load(&s->active) && conn_may_be_staged(s->conn))
        watch_queue(w);
}

static void catch_up(struct epset *set)
{
    const struct share *sh = set->share;
    uint64_t now = atomic_load(&sh->version), seen = set->share_seen;
    if (now - seen > SHARE_LOG) {
        for (uint32_t i = 0; i < sh->end; i++)
            look_at(set, i);
    } else {
        for (; seen < now; seen++)
            look_at(set, sh->log[seen % SHARE_LOG]);
    }
}

/* ---- the lock ---- */

/*
 * The lock's holder was killed. The records are whole, but its change may or may not have reached the kernel's set. The
 * kernel's list tells.
 */
static void recover(struct epset *set)
{
    struct share *sh = set->share;
    trace_debug("epoll set %d: another process was killed while it changed it", atomic_load(&set->epfd));
    char *list = sh->at != 0 ? watch_kernel_list(set) : NULL;
    if (list != NULL) {
        struct record *r = &sh->record[sh->at - 1];
        const char *at = list;
        uint64_t token;
        bool there = false;
        while (!there && watch_kernel_next(&at, &token))
            there = watch_token_is(token, r->fd, r->gen) || (!r->tokened && token == r->data.u64);
        free(list);
        if (there) {
            r->turn = r->tokened ? watch_token_turn(token) : r->turn;
            r->kevents = UNKNOWN;
        } else {
            r->gen = 0;
            sh->full = false;
        }
    }
    sh->at = 0;
    atomic_fetch_add(&sh->version, SHARE_LOG + 1); /* all is looked at */
}

bool share_changed(const struct epset *set)
{
    return atomic_load(&set->share->version) != set->share_seen;
}

void share_lock(struct epset *set)
{
    if (set->share_held)
        return;
    signals_hold();
    if (pthread_mutex_lock(&set->share->lock) == EOWNERDEAD) {
        recover(set);
        pthread_mutex_consistent(&set->share->lock);
    }
    set->share_held = true;
    if (share_changed(set))
        catch_up(set);
}

void share_unlock(struct epset *set)
{
    struct share *sh = set->share;
    sh->at = 0;
    set->share_seen = atomic_load(&sh->version); /* later ones are our own */
    set->share_held = false;
    lock_give(&sh->lock);
}

/* ---- changes ---- */

uint32_t share_gen(struct epset *set)
{
    struct share *sh = set->share;
    if (++sh->gen == 0)
        sh->gen = 1;
    return sh->gen;
}

uint32_t share_gen_last(const struct epset *set)
{
    const struct share *sh = atomic_load(&set->share);
    return sh != NULL ? sh->gen : set->gen;
}

void share_token(struct epset *set)
{
    if (set->share != NULL)
        atomic_store(&set->share->tokened, true);
}

bool share_is_tokened(const struct epset *set)
{
    const struct share *sh = atomic_load(&set->share);
    return sh != NULL && atomic_load(&sh->tokened);
}

/* No record is free. Are some of files that were closed without EPOLL_CTL_DEL? The kernel knows. */
static void sweep(struct epset *set)
{
    struct share *sh = set->share;
    char *list = watch_kernel_list(set);
    uint64_t token;
    if (list == NULL)
        return;
    uint64_t seq = ++set->seq; /* none that a call under way uses */
    for (const char *at = list; watch_kernel_next(&at, &token);) {
        struct watch *w = watch_find(set, token);
        if (w != NULL)
            w->told_seq = seq;
    }
    free(list);
    for (uint32_t i = 0; i < sh->end; i++) {
        struct watch *w = set->share_at[i];
        if (w == NULL || w->told_seq == seq || !w->tokened)
            continue;
        touch(sh, i);
        sh->record[i].gen = 0;
        sh->full = false;
        forget_here(w);
    }
}

static uint32_t find_free(const struct share *sh)
{
    for (uint32_t n = 0; n < SHARE_MAX; n++)
        if (sh->record[(sh->hint + n) % SHARE_MAX].gen == 0)
            return (sh->hint + n) % SHARE_MAX;
    return SHARE_MAX;
}

static void enter(struct watch *w, uint64_t ino)
{
    struct epset *set = w->set;
    struct share *sh = set->share;
    uint32_t i = sh->full ? SHARE_MAX : find_free(sh);
    if (i == SHARE_MAX && !sh->full) {
        sh->full = true;
        sweep(set);
        i = find_free(sh);
    }
    if (i == SHARE_MAX)
        return;
    touch(sh, i);
    sh->hint = i + 1;
    if (sh->end <= i)
        sh->end = i + 1;
    sh->record[i] = (struct record){ .fd = w->fd, .ino = ino };
    w->record = i + 1;
    set->share_at[i] = w;
    share_save(w, false);
    sh->record[i].gen = w->gen;
}

void share_enter(struct watch *w)
{
    enter(w, w->sock != NULL && !sandbox_on() ? sock_ino(w->fd) : 0);
}

void share_save(struct watch *w, bool changed)
{
    if (w->record == 0)
        return;
    struct record *r = record_of(w);
    touch(w->set->share, w->record - 1);
    r->data = w->data;
    r->events = w->events;
    r->kevents = w->kevents;
    r->turn = w->turn;
    r->tokened = w->tokened;
    r->disarmed = w->disarmed;
    w->mods += changed;
    r->mods = w->mods;
}

void share_forget(struct watch *w)
{
    if (w->record == 0)
        return;
    struct share *sh = w->set->share;
    touch(sh, w->record - 1);
    record_of(w)->gen = 0;
    sh->full = false;
    w->set->share_at[w->record - 1] = NULL;
    w->record = 0;
}

/* ---- a set's beginning and end ---- */

static struct share *share_new(void)
{
    struct share *sh =
        mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sh == MAP_FAILED)
        return NULL;
    turn_mutex_init(&sh->lock);
    return sh;
}

/* False: a thread is changing it that cannot go on now, because its signal handler forks. */
static bool enter_known(struct watch *w)
{
    struct sock *s = w->sock;
    if (s != NULL && !epoll_lock_for_fork(&s->watch_lock))
        return false;
    enter(w, 0); /* every process that will share the set has it from this one */
    if (s != NULL)
        lock_give(&s->watch_lock);
    return true;
}

void share_make(struct epset *set)
{
    if (set->share != NULL || sandbox_on())
        return;
    struct share *sh = share_new();
    struct watch **at = mmap(NULL, AT_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sh == NULL || at == MAP_FAILED) {
        if (sh != NULL)
            munmap(sh, sizeof(*sh));
        if (at != MAP_FAILED)
            munmap(at, AT_LEN);
        return;
    }
    sh->gen = set->gen;
    atomic_store(&sh->tokened, atomic_load(&set->tokened));
    set->share_at = at;
    atomic_store(&sh->waiters, atomic_load(&set->waiters));
    atomic_store(&set->share, sh);
    epset_kick_make(set); /* while it is one for all */
    bool all = true;
    for (int c = 0; c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (struct watch *w = set->chunk[c][i]; w != NULL && all; w = w->older)
                all = sh->end < SHARE_MAX && enter_known(w);
    sh->at = 0;
    set->share_seen = atomic_load(&sh->version);
}

struct share *share_leave(struct epset *set)
{
    struct share *sh = atomic_exchange(&set->share, NULL);
    if (sh == NULL)
        return NULL;
    for (uint32_t i = 0; i < sh->end; i++) {
        struct watch *w = set->share_at[i];
        struct sock *s = w != NULL ? w->sock : NULL;
        if (s != NULL)
            lock_take(&s->watch_lock);
        if (w != NULL)
            w->record = 0;
        if (s != NULL)
            lock_give(&s->watch_lock);
    }
    set->gen = sh->gen;
    munmap(set->share_at, AT_LEN);
    set->share_at = NULL;
    set->share_seen = 0;
    return sh;
}

void share_end(struct share *sh)
{
    if (sh != NULL)
        munmap(sh, sizeof(*sh));
}

/* ---- waiting, and being woken ---- */

void share_wait_begin(struct epset *set)
{
    if (atomic_load(&set->share) != NULL)
        atomic_fetch_add(&set->share->waiters, 1);
}

void share_wait_end(struct epset *set)
{
    if (atomic_load(&set->share) != NULL)
        atomic_fetch_sub(&set->share->waiters, 1);
}

bool share_awaited(const struct epset *set)
{
    if (atomic_load(&set->waiters) > 0)
        return true;
    const struct share *sh = atomic_load(&set->share);
    return sh != NULL && atomic_load(&sh->waiters) > 0;
}

bool share_awaited_elsewhere(const struct epset *set)
{
    const struct share *sh = atomic_load(&set->share);
    return sh != NULL && atomic_load(&sh->waiters) > atomic_load(&set->waiters);
}

/* Counts, for all processes that were forked since, the times that bytes were left in a shared connection. */
static _Atomic uint64_t *left;
static pthread_once_t left_once = PTHREAD_ONCE_INIT;

static void left_map(void)
{
    void *p = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    left = p == MAP_FAILED ? NULL : p;
}

void share_left_make(void)
{
    pthread_once(&left_once, left_map);
}

void share_left_part(void)
{
    if (left != NULL &&
        mmap(left, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        left = NULL;
}

void epoll_shared_left(void)
{
    if (left != NULL)
        atomic_fetch_add(left, 1);
}

void epset_shared_look(struct epset *set)
{
    if (left == NULL || atomic_load(left) == set->left_seen)
        return;
    epset_lock(set);
    set->left_seen = atomic_load(left);
    for (int c = 0; c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (struct watch *w = set->chunk[c][i]; w != NULL; w = w->older)
                if (w->sock != NULL && atomic_load(&w->sock->active) && !(w->events & EPOLLET) && !w->disarmed &&
                    conn_may_be_staged(w->sock->conn))
                    watch_queue(w);
    epset_unlock(set);
}
