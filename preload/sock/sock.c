/*
 * The descriptor table.
 *
 * Two levels of 1024; chunks are made on demand and stay. Readers take no lock: they load the pointer, count themselves
 * in, and look again; socks are never unmapped, so counting on a recycled one does no harm and is undone.
 */
#include "preload/sock/sock.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/process/cancel.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/shortage.h"
#include "preload/process/signals.h"
#include "preload/sock/hooks.h"
#include "preload/sock/pending.h"

#define CHUNK 1024
#define CHUNKS 1024

typedef _Atomic(struct sock *) fd_slot; /* an atomic pointer type needs a name to make arrays of */

/*
 * A mark beside the pointer, between sock_close_begin and sock_close_end. The closing thread has the reference then,
 * and not the slot.
 */
#define LEAVING ((uintptr_t)1)
#define REPLACED ((uintptr_t)2)
#define MARKS (LEAVING | REPLACED)

#define KEPT_UNDECIDED (-2) /* sock.kept: a close is about to look whether calls go on */

_Atomic unsigned sock_closing_n;
static __thread int my_leaving = -1; /* the number that this thread is about to replace */

static inline bool is_marked(const struct sock *s)
{
    return ((uintptr_t)s & MARKS) != 0;
}

static struct sock *marked(struct sock *s, uintptr_t mark)
{
    return (struct sock *)((uintptr_t)s | mark);
}

static struct sock *unmarked(struct sock *s)
{
    return (struct sock *)((uintptr_t)s & ~MARKS);
}

static _Atomic(fd_slot *) table[CHUNKS];
static _Atomic int fd_limit;

/* Protects: chunk creation, entry changes, the free list. Never held while calling out of this file. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sock *free_list;
static struct sock *blocks; /* of BLOCK_SOCKS each */
#define BLOCK_SOCKS 64u

static fd_slot *slot_of(int fd)
{
    if (fd < 0 || fd >= CHUNK * CHUNKS)
        return NULL;
    fd_slot *chunk = atomic_load_explicit(&table[fd / CHUNK], memory_order_acquire);
    return chunk ? &chunk[fd % CHUNK] : NULL;
}

struct sock *sock_get(int fd)
{
    fd_slot *slot = slot_of(fd);
    if (slot == NULL)
        return NULL;
    for (;;) {
        struct sock *s = atomic_load(slot);
        if (s == NULL || is_marked(s))
            return NULL;
        atomic_fetch_add(&s->refs, 1);
        if (atomic_load(slot) == s)
            return s;
        sock_put(s);
    }
}

struct sock *sock_peek(int fd)
{
    fd_slot *slot = slot_of(fd);
    struct sock *s = slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
    return is_marked(s) ? NULL : s;
}

struct sock *sock_get_active(int fd)
{
    fd_slot *slot = slot_of(fd);
    if (slot == NULL)
        return NULL;
    struct sock *s = atomic_load_explicit(slot, memory_order_acquire);
    if (s == NULL || is_marked(s) || !atomic_load_explicit(&s->active, memory_order_acquire))
        return NULL;
    return sock_get(fd);
}

struct sock *sock_get_polled(int fd)
{
    struct sock *s = sock_get_active(fd), *l = s == NULL ? sock_peek(fd) : NULL; /* (no listener is active) */
    if (l != NULL && l->kind == SOCK_LISTENER && !atomic_load_explicit(&l->polled, memory_order_relaxed))
        atomic_store(&l->polled, true);
    return s;
}

void sock_made_here(struct sock *s, const struct sock *listener)
{
    unsigned known = SOCK_NO_OPTION;
    if (listener != NULL)
        known = atomic_load(&listener->defaults) & ~(unsigned)atomic_load(&listener->unsure);
    atomic_store(&s->defaults, (uint8_t)known);
    atomic_store(&s->unsure, 0);
}

bool sock_has_default(const struct sock *s, enum sock_default which)
{
    return (atomic_load(&s->defaults) & ~(unsigned)atomic_load(&s->unsure) & which) != 0 && !proc_has_lent();
}

void sock_found_default(struct sock *s, enum sock_default which)
{
    atomic_fetch_or(&s->defaults, (uint8_t)which);
}

void sock_unsure(struct sock *s, enum sock_default which)
{
    atomic_fetch_or(&s->unsure, (uint8_t)which);
}

uint64_t sock_ino(int fd)
{
    struct stat st;
    return DESPITE_SHORTAGE(fstat(fd, &st)) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

/* Is it still the sock that is being closed, and not the number's next one? */
static bool is_still(int fd, const struct sock *s)
{
    return (s->kind == SOCK_LISTENER || (s->conn != NULL && atomic_load(&s->active))) && s->closing_ino != 0 &&
           sock_ino(fd) == s->closing_ino;
}

bool sock_look_closing(int fd)
{
    fd_slot *slot = slot_of(fd);
    for (unsigned turns = 0; slot != NULL; turns++) {
        struct sock *m = atomic_load(slot);
        if (m == NULL || !is_marked(m))
            return false;
        struct sock *s = unmarked(m);
        atomic_fetch_add(&s->refs, 1);
        bool still = atomic_load(slot) == m && is_still(fd, s);
        sock_put(s);
        if (still)
            return true;
        /* A signal handler that interrupts this call finds the new sock, or none. */
        if (!((uintptr_t)m & REPLACED) || my_leaving == fd)
            return false;
        static const struct timespec moment = { .tv_nsec = 20000 };
        if (turns < 100)
            sched_yield();
        else
            nanosleep(&moment, NULL); /* its thread may have a lower priority */
    }
    return false;
}

static void sock_free(struct sock *s)
{
    sock_hooks.release(s);
    lock_take(&lock);
    /* A reader that lost the race may have counted itself in and out meanwhile: refs is 0 or will be again, and only
     * the thread that brings it from 1 to 0 with `freeing` unset comes here. */
    s->next_free = free_list;
    free_list = s;
    lock_give(&lock);
}

/* The count's top bit marks a sock on the free list, so that a late reader's put does not free it again. */
#define FREE_BIT 0x80000000u

static void last_put(struct sock *s)
{
    /*
     * A call that ended after the close may have left it there. (The thread that finds it first holds it: then it is
     * not free.)
     */
    pending_remove(s);
    int kept = atomic_load(&s->inflight_fd) >= 0 ? atomic_exchange(&s->inflight_fd, -1) : -1;
    if (kept >= 0) {
        /* The last of the calls that went on after the close has ended. */
        atomic_fetch_add(&s->refs, 1);
        if (s->conn != NULL)
            sock_hooks.last_close(s, kept);
        REAL(close)(kept);
        sock_put(s);
        return;
    }
    uint32_t zero = 0;
    if (atomic_compare_exchange_strong(&s->refs, &zero, FREE_BIT))
        sock_free(s);
}

void sock_put(struct sock *s)
{
    if (SW_LIKELY(atomic_fetch_sub(&s->refs, 1) != 1))
        return;
    /* The program's call is over: where it was one of poll's or recv's, no close of ours may cancel it. */
    struct cancel hold = cancel_never();
    last_put(s);
    cancel_restore(hold);
}

static struct sock *sock_alloc(void)
{
    struct sock *s = free_list;
    if (s != NULL) {
        free_list = s->next_free;
        return s;
    }
    size_t n = BLOCK_SOCKS;
    struct sock *block = mmap(NULL, n * sizeof(*block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_init(&block[i].watch_lock, NULL);
        atomic_store(&block[i].refs, FREE_BIT);
        if (i > 0) {
            block[i].next_free = free_list;
            free_list = &block[i];
        }
    }
    block[0].next_block = blocks;
    blocks = block;
    return &block[0];
}

static fd_slot *slot_make(int fd)
{
    fd_slot *slot = slot_of(fd);
    if (slot != NULL || fd < 0 || fd >= CHUNK * CHUNKS)
        return slot;
    fd_slot *chunk = mmap(NULL, CHUNK * sizeof(fd_slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED)
        return NULL;
    atomic_store(&table[fd / CHUNK], chunk);
    return &chunk[fd % CHUNK];
}

static void note_limit(int fd)
{
    if (fd >= atomic_load(&fd_limit))
        atomic_store(&fd_limit, fd + 1);
}

struct sock *sock_new(int fd, int domain)
{
    signals_guard();
    sock_drop(fd);
    lock_take(&lock);
    fd_slot *slot = slot_make(fd);
    struct sock *s = slot ? sock_alloc() : NULL;
    if (s != NULL) {
        s->active = false;
        s->kind = SOCK_NEW;
        s->nonblock = false;
        s->fd = fd;
        s->names = 1;
        for (int i = 0; i < SOCK_SLEEPERS; i++)
            s->sleepers[i] = 0;
        s->inflight_fd = -1;
        s->domain = domain;
        s->closed_unseen = false;
        s->stay_plain = false;
        s->plain_reason = 0;
        s->rules = 0;
        s->port_known = false;
        s->conn = NULL;
        s->coalesce = NULL;
        s->names_later = NAMES_NOT_LATER;
        s->polled = false;
        s->mark_later = s->mark_own = s->mark_far = false;
        s->mark = s->mark_mtu = 0;
        atomic_store(&s->mark_counts, false);
        atomic_store(&s->accept_waits, false);
        s->acks_late = s->hops_known = s->hops_said = s->saves_syn = s->syn_own = false;
        s->defaults = 0;
        s->unsure = SOCK_NO_OPTION;
        s->undrained = 0;
        s->drained_ns = 0;
        s->bridge_fd = -1;
        s->sent_from = 0;
        s->watches = NULL;
        s->pollers = NULL;
        s->waiters = 0;
        atomic_store_explicit(&s->pending_pprev, NULL, memory_order_relaxed);
        s->pending_held = 0;
        s->forked = false;
        s->child_counted = false;
        s->pending_inherited = false;
        s->pending_off_ns = 0;
        s->pending_over = false;
        for (int i = 0; i < SOCK_NAMES; i++)
            s->name_fd[i] = -1;
        /* Late readers may have counted themselves in, so this adds, and removes the mark. */
        atomic_fetch_add(&s->refs, 2u - FREE_BIT);
        atomic_store(slot, s);
        note_limit(fd);
    }
    lock_give(&lock);
    return s;
}

bool sock_dup(struct sock *s, int fd2)
{
    sock_drop(fd2);
    lock_take(&lock);
    bool open = s->names > 0;
    fd_slot *slot = open ? slot_make(fd2) : NULL;
    if (slot != NULL) {
        atomic_fetch_add(&s->refs, 1);
        s->names++;
        atomic_store(slot, s);
        note_limit(fd2);
    }
    lock_give(&lock);
    return open;
}

/* Another descriptor of s in this process, or -1. The lock is held. */
static int other_fd(const struct sock *s)
{
    int limit = atomic_load(&fd_limit);
    for (int fd = 0; fd < limit; fd++) {
        fd_slot *slot = slot_of(fd);
        if (slot == NULL)
            fd |= CHUNK - 1;
        else if (atomic_load(slot) == s)
            return fd;
    }
    return -1;
}

void sock_sleep(struct sock *s)
{
    for (int i = 0; i < SOCK_SLEEPERS; i++) {
        int32_t none = 0;
        if (atomic_compare_exchange_strong(&s->sleepers[i], &none, proc_tid()))
            return;
    }
}

void sock_wake(struct sock *s)
{
    for (int i = 0; i < SOCK_SLEEPERS; i++) {
        int32_t mine = proc_tid();
        if (atomic_compare_exchange_strong(&s->sleepers[i], &mine, 0))
            return;
    }
}

static bool others_sleep(struct sock *s)
{
    for (int i = 0; i < SOCK_SLEEPERS; i++) {
        int32_t t = atomic_load(&s->sleepers[i]);
        if (t != 0 && t != proc_tid() && rawsys4(__NR_tgkill, getpid(), t, 0, 0) == 0)
            return true;
    }
    return false;
}

int sock_fd_now(struct sock *s, int fd)
{
    fd_slot *slot = slot_of(fd);
    if ((slot != NULL && atomic_load(slot) == s) || atomic_load(&s->closed_unseen))
        return fd;
    /* (A close that has seen no sleeper keeps no descriptor: a thread that is about to sleep notices the close.) */
    int kept;
    while ((kept = atomic_load(&s->inflight_fd)) == KEPT_UNDECIDED)
        sched_yield();
    return kept >= 0 ? kept : atomic_load(&s->names) > 0 ? atomic_load(&s->fd) : -1;
}

/* The last descriptor is closed while calls wait: makes a descriptor that only they know. */
static bool keep(struct sock *s, int fd)
{
    int own = others_sleep(s) ? hidden_dup(fd) : -1;
    if (own >= 0)
        atomic_store(&s->fd, own);
    atomic_store(&s->inflight_fd, own >= 0 ? own : -1);
    return own >= 0;
}

/* Takes fd out of the table and leaves mark there (0: none). NULL: it was not in the table. */
static struct sock *take_out(int fd, uintptr_t mark, bool *last)
{
    fd_slot *slot = slot_of(fd);
    struct sock *s = slot != NULL ? atomic_load(slot) : NULL;
    if (s == NULL)
        return NULL;
    lock_take(&lock);
    s = atomic_load(slot);
    if (s != NULL && is_marked(s)) {
        /* Another thread's close has freed the number, and this is its next sock. (It keeps the reference.) */
        if (mark == 0)
            atomic_store(slot, NULL);
        s = NULL;
    }
    if (s != NULL) {
        *last = --s->names == 0;
        if (*last && mark != 0)
            atomic_store(&s->inflight_fd, KEPT_UNDECIDED); /* until keep() has seen whether a thread waits */
        atomic_store(slot, mark != 0 ? marked(s, mark) : NULL);
        /*
         * (The last one stays known until its close is done: to the threads that hold a turn, for which the close
         * waits.)
         */
        if (atomic_load(&s->fd) == fd && !(*last && mark != 0))
            atomic_store(&s->fd, *last ? -1 : other_fd(s));
    }
    lock_give(&lock);
    return s;
}

/* The inode of fd's file, while fd is open. */
static void note_ino(int fd)
{
    struct sock *s = sock_get(fd);
    if (s == NULL)
        return;
    s->closing_ino = s->conn != NULL ? sock_hooks.ino(s) : 0;
    if (s->closing_ino == 0 && (s->kind == SOCK_LISTENER || atomic_load(&s->active)))
        s->closing_ino = sock_ino(fd);
    sock_put(s);
}

/*
 * The last descriptor of s in this process is closed; fd: it is still open, -1: not any more. kept: calls that wait
 * keep s.
 */
static void last_leaves(struct sock *s, int fd, bool kept)
{
    pending_leave(s);
    sock_hooks.unname(s);
    if (!kept && s->conn != NULL)
        sock_hooks.last_close(s, fd);
    else if (!kept) /* (else sock_put sees to the rest) */
        atomic_store(&s->fd, -1);
    if (SW_UNLIKELY(s->kind == SOCK_BRIDGED))
        sock_hooks.last_bridged();
}

static struct sock *leave(int fd, uintptr_t mark)
{
    bool last = false;
    if (mark != 0)
        atomic_fetch_add(&sock_closing_n, 1);
    int before = my_leaving;
    if (mark == REPLACED)
        my_leaving = fd;
    if (mark != 0)
        note_ino(fd);
    struct sock *s = take_out(fd, mark, &last);
    if (s == NULL) { /* another thread was quicker */
        my_leaving = before;
        if (mark != 0)
            atomic_fetch_sub(&sock_closing_n, 1);
        return NULL;
    }
    bool kept = last && mark != 0 && keep(s, fd);
    if (mark != 0)
        sock_hooks.expel(s, fd);
    sock_hooks.forget(s, fd, last);
    if (last)
        last_leaves(s, mark != 0 ? fd : -1, kept);
    if (s->conn != NULL && atomic_load(&s->active))
        sock_hooks.let_out(s, fd);
    return s;
}

void sock_drop(int fd)
{
    struct sock *s = leave(fd, 0);
    if (s != NULL)
        sock_put(s);
}

struct sock *sock_close_begin(int fd, bool replaced)
{
    return leave(fd, replaced ? REPLACED : LEAVING);
}

void sock_close_end(int fd, struct sock *s)
{
    fd_slot *slot = slot_of(fd);
    struct sock *there = atomic_load(slot);
    /* (If the mark is gone, the number has been given out again.) */
    if (is_marked(there) && unmarked(there) == s)
        atomic_compare_exchange_strong(slot, &there, NULL);
    my_leaving = -1;
    atomic_fetch_sub(&sock_closing_n, 1);
    sock_put(s);
}

void sock_each(void (*fn)(int fd, struct sock *s, void *arg), void *arg)
{
    int limit = atomic_load(&fd_limit);
    for (int fd = 0; fd < limit; fd++) {
        struct sock *s = sock_get(fd);
        if (s == NULL) {
            if (slot_of(fd) == NULL)
                fd |= CHUNK - 1;
            continue;
        }
        fn(fd, s, arg);
        sock_put(s);
    }
}

void sock_each_locked(void (*fn)(int fd, struct sock *s, void *arg), void *arg)
{
    int limit = atomic_load(&fd_limit);
    for (int fd = 0; fd < limit; fd++) {
        fd_slot *slot = slot_of(fd);
        struct sock *s = slot ? atomic_load(slot) : NULL;
        if (slot == NULL)
            fd |= CHUNK - 1;
        else if (s != NULL && !is_marked(s))
            fn(fd, s, arg);
    }
}

void sock_forget_locked(int fd)
{
    atomic_store(slot_of(fd), NULL);
}

int sock_fd_limit(void)
{
    return atomic_load(&fd_limit);
}

void sock_before_fork(void)
{
    lock_take(&lock);
}

void sock_after_fork(bool child)
{
    if (child)
        atomic_store(&sock_closing_n, 0);
    lock_give(&lock);
    int limit = child ? atomic_load(&fd_limit) : 0;
    for (int fd = 0; fd < limit; fd++) {
        fd_slot *slot = slot_of(fd);
        struct sock *s = slot ? atomic_load(slot) : NULL;
        if (slot == NULL)
            fd |= CHUNK - 1;
        else if (s != NULL && is_marked(s))
            atomic_store(slot, NULL); /* the thread that closes it is not in this process */
        else if (s != NULL)
            pthread_mutex_init(&s->watch_lock, NULL); /* nor is one that may have held it */
    }
}

static void count_name(int fd, struct sock *s, void *arg)
{
    (void)fd;
    (void)arg;
    atomic_fetch_add(&s->refs, 1);
    atomic_fetch_add(&s->names, 1);
}

void sock_count_begin(void)
{
    for (struct sock *block = blocks; block != NULL; block = block->next_block)
        for (unsigned i = 0; i < BLOCK_SOCKS; i++) {
            struct sock *s = &block[i];
            atomic_store(&s->refs, 0);
            atomic_store(&s->names, 0);
            atomic_store(&s->waiters, 0);
            for (int t = 0; t < SOCK_SLEEPERS; t++)
                atomic_store(&s->sleepers[t], 0);
            s->watches = NULL;
            s->pollers = NULL;
            pthread_mutex_init(&s->watch_lock, NULL);
        }
    sock_each_locked(count_name, NULL); /* (no other thread runs) */
}

bool sock_counted(struct sock *s)
{
    if (atomic_load(&s->names) == 0)
        return false;
    atomic_fetch_add(&s->refs, 1);
    return true;
}

/*
 * A sock that another thread was closing, or releasing, is not open here. (Nor did the fork count the child as a holder
 * of its connection.)
 */
void sock_count_end(void)
{
    free_list = NULL;
    for (struct sock *block = blocks; block != NULL; block = block->next_block)
        for (unsigned i = 0; i < BLOCK_SOCKS; i++) {
            struct sock *s = &block[i];
            if (atomic_load(&s->names) > 0)
                continue;
            pending_remove(s);
            atomic_store(&s->active, false);
            atomic_store(&s->inflight_fd, -1);
            s->conn = NULL;
            atomic_store(&s->refs, FREE_BIT);
            s->next_free = free_list;
            free_list = s;
        }
}
