/* Where the two ends of a connection on one host meet; see meet.h. */
#include "preload/startup/meet.h"

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/fnv.h"
#include "core/base/rawsys.h"
#include "preload/process/folder.h"
#include "preload/process/kept.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/segv.h"
#include "preload/process/signals.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define FILE_NAME "meet.1" /* another layout has another name */
#define RECORDS 512u
#define LISTENERS 2048u
#define PROBES 16u
#define GIVE_UP_NS 1000000000u

enum meet_state { MEET_FREE, MEET_PUTTING, MEET_ASKED, MEET_ANSWERING, MEET_ANSWERED, MEET_LEFT };
#define STATE_BITS 3u

struct record {
    _Atomic uint64_t word; /* the cookie and enum meet_state; 0: free */
    uint64_t netns;
    _Atomic bool connected; /* local and peer are there */
    uint16_t ask_len, answer_len;
    struct sockaddr_in6 local, peer; /* (or an IPv4 one in its beginning) */
    uint8_t ask[MEET_ASK_MAX], answer[MEET_ANSWER_MAX];
};
_Static_assert(sizeof(struct record) == 512, "its layout is the file's");

/* A zero is what a fresh file has. */
struct table {
    _Atomic uint64_t listener[LISTENERS]; /* hashes of their names and networks; 0: free */
    struct record record[RECORDS];
};

static struct table *_Atomic mapped;
static _Atomic uint64_t own_netns; /* 0: not asked for */
static _Atomic int making;         /* 0: not tried, 1: a thread maps it, 2: done */

static uint64_t word_of(uint64_t cookie, enum meet_state st)
{
    return cookie << STATE_BITS | st;
}

/* ---- the file ---- */

static struct table *make(void)
{
    int fd = folder_file(FILE_NAME, sizeof(struct table), true);
    if (fd < 0)
        return NULL;
    long at = rawsys6(__NR_mmap, 0, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    rawsys_close(fd);
    return at > -4096 && at < 0 ? NULL : (struct table *)at;
}

static struct table *table(void)
{
    int expected = 0;
    if (SW_UNLIKELY(atomic_load(&making) == 0) && !proc_is_borrowed() &&
        atomic_compare_exchange_strong(&making, &expected, 1)) {
        struct table *t = make();
        signals_guard();
        segv_refill(t, sizeof(*t)); /* a process of this user can cut the file short */
        atomic_store(&mapped, t);
        atomic_store(&making, 2);
    }
    return atomic_load(&mapped);
}

bool meet_is_used(void)
{
    return atomic_load(&mapped) != NULL;
}

void meet_part(void)
{
    struct table *t = atomic_exchange(&mapped, NULL);
    segv_refill(NULL, 0);
    /* A thread in the middle of it finds it empty. */
    if (t != NULL && rawsys6(__NR_mmap, (long)t, sizeof(*t), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != (long)t)
        (void)rawsys4(__NR_munmap, (long)t, sizeof(*t), 0, 0);
    atomic_store(&making, 0);
}

void meet_after_fork(void)
{
    atomic_store(&own_netns, 0); /* (a child that is made in another one) */
    int expected = 1;
    atomic_compare_exchange_strong(&making, &expected, 0);
}

/* ---- listeners ---- */

static uint64_t socket_number(int fd, int option)
{
    uint64_t n = 0;
    socklen_t len = sizeof(n);
    int err = errno;
    bool told = REAL(getsockopt)(fd, SOL_SOCKET, option, &n, &len) == 0 && len == sizeof(n);
    errno = err;
    return told ? n : 0;
}

uint64_t meet_netns(int fd)
{
    return socket_number(fd, SO_NETNS_COOKIE);
}

uint64_t meet_own_netns(int fd)
{
    uint64_t n = kept_has_left() ? 0 : atomic_load(&own_netns);
    if (n == 0)
        atomic_store(&own_netns, n = meet_netns(fd));
    return n;
}

/* Of the name and its network; 0: that is not known. */
static uint64_t hash_of(uint64_t netns, const struct sockaddr_un *name, socklen_t len)
{
    return netns == 0 ? 0 : fnv_add(FNV_BEGIN ^ netns, name, len) | 1;
}

static _Atomic uint64_t *listener_at(struct table *t, uint64_t hash, unsigned probe)
{
    return &t->listener[((hash >> 32) + probe) % LISTENERS];
}

static _Atomic uint64_t *listener_find(struct table *t, uint64_t hash)
{
    for (unsigned i = 0; i < PROBES; i++)
        if (atomic_load(listener_at(t, hash, i)) == hash)
            return listener_at(t, hash, i);
    return NULL;
}

void meet_listens(uint64_t netns, const struct sockaddr_un *name, socklen_t len)
{
    struct table *t = table();
    uint64_t hash = t != NULL ? hash_of(netns, name, len) : 0;
    if (hash == 0 || listener_find(t, hash) != NULL)
        return;
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t expected = 0;
        if (atomic_compare_exchange_strong(listener_at(t, hash, i), &expected, hash))
            return;
    }
    /* Most of these were killed: one that lives loses its place, and its clients ask on the connection. */
    atomic_store(listener_at(t, hash, proc_random32(NULL) % PROBES), hash);
}

void meet_listens_no_more(uint64_t netns, const struct sockaddr_un *name, socklen_t len)
{
    struct table *t = atomic_load(&mapped);
    uint64_t hash = t != NULL ? hash_of(netns, name, len) : 0;
    _Atomic uint64_t *at = hash != 0 ? listener_find(t, hash) : NULL;
    if (at != NULL)
        atomic_compare_exchange_strong(at, &hash, 0);
}

bool meet_is_known(uint64_t netns, const struct sockaddr_un *name, socklen_t len)
{
    struct table *t = table();
    uint64_t hash = t != NULL ? hash_of(netns, name, len) : 0;
    return hash != 0 && listener_find(t, hash) != NULL;
}

/* ---- records ---- */

static struct record *record_at(struct table *t, uint64_t cookie, unsigned probe)
{
    return &t->record[(cookie + probe) % RECORDS];
}

static struct record *record_of(const struct meet *m)
{
    struct table *t = atomic_load(&mapped);
    return t != NULL && m->at - 1 < RECORDS ? &t->record[m->at - 1] : NULL;
}

static bool move(struct record *r, uint64_t cookie, enum meet_state from, enum meet_state to)
{
    uint64_t expected = word_of(cookie, from);
    return atomic_compare_exchange_strong(&r->word, &expected, to == MEET_FREE ? 0 : word_of(cookie, to));
}

/*
 * Frees a record whose socket is gone: its process was killed, or left it. (One that is of another network cannot be
 * looked for, and stays.)
 */
static bool reclaim(struct record *r, uint64_t netns)
{
    uint64_t word = atomic_load(&r->word), cookie = 0;
    if ((word & ((1u << STATE_BITS) - 1)) == MEET_PUTTING || r->netns != netns || !atomic_load(&r->connected))
        return false;
    struct sockaddr_storage local = { 0 }, peer = { 0 };
    memcpy(&local, &r->local, sizeof(r->local));
    memcpy(&peer, &r->peer, sizeof(r->peer));
    int found = netlink_cookie(&local, &peer, &cookie);
    return found >= 0 && !(found > 0 && cookie == word >> STATE_BITS) &&
           atomic_compare_exchange_strong(&r->word, &word, 0);
}

static struct record *claim(struct table *t, uint64_t cookie, unsigned *at)
{
    for (unsigned i = 0; i < PROBES; i++) {
        struct record *r = record_at(t, cookie, i);
        uint64_t expected = 0;
        if (atomic_load(&r->word) != 0 ||
            !atomic_compare_exchange_strong(&r->word, &expected, word_of(cookie, MEET_PUTTING)))
            continue;
        *at = (unsigned)(r - t->record) + 1;
        return r;
    }
    return NULL;
}

bool meet_ask(struct meet *m, int fd, uint64_t netns, const uint8_t *hellos, size_t len)
{
    struct table *t = table();
    uint64_t cookie = t != NULL ? socket_number(fd, SO_COOKIE) : 0;
    if (cookie == 0 || cookie >> (64 - STATE_BITS) != 0 || netns == 0 || len > MEET_ASK_MAX)
        return false;
    struct record *r = claim(t, cookie, &m->at);
    if (r == NULL) {
        bool freed = false;
        for (unsigned i = 0; i < PROBES && !freed; i++)
            freed = reclaim(record_at(t, cookie, i), netns);
        r = freed ? claim(t, cookie, &m->at) : NULL;
    }
    if (r == NULL)
        return false;
    m->cookie = cookie;
    r->netns = netns;
    atomic_store(&r->connected, false);
    r->ask_len = (uint16_t)len;
    memcpy(r->ask, hellos, len);
    return move(r, cookie, MEET_PUTTING, MEET_ASKED);
}

void meet_connected(const struct meet *m, const struct sockaddr_storage *local, const struct sockaddr_storage *peer)
{
    struct record *r = record_of(m);
    if (r == NULL || atomic_load(&r->word) >> STATE_BITS != m->cookie)
        return;
    memcpy(&r->local, local, sizeof(r->local));
    memcpy(&r->peer, peer, sizeof(r->peer));
    atomic_store(&r->connected, true);
}

ssize_t meet_look(const struct meet *m, uint8_t answer[MEET_ANSWER_MAX])
{
    struct record *r = record_of(m);
    uint64_t word = r != NULL ? atomic_load(&r->word) : 0;
    if (word == word_of(m->cookie, MEET_ASKED) || word == word_of(m->cookie, MEET_ANSWERING))
        return 0;
    if (word != word_of(m->cookie, MEET_ANSWERED))
        return -ENOENT;
    size_t len = r->answer_len;
    if (len == 0 || len > MEET_ANSWER_MAX)
        return -ENOENT;
    memcpy(answer, r->answer, len);
    return (ssize_t)len;
}

bool meet_give_up(struct meet *m)
{
    struct record *r = record_of(m);
    if (r == NULL)
        return false;
    uint64_t until_ns = 0;
    while (!move(r, m->cookie, MEET_ASKED, MEET_FREE)) {
        uint64_t now_ns = proc_now_ns();
        until_ns = until_ns != 0 ? until_ns : now_ns + GIVE_UP_NS;
        if (atomic_load(&r->word) != word_of(m->cookie, MEET_ANSWERING))
            return false;
        if (now_ns >= until_ns && move(r, m->cookie, MEET_ANSWERING, MEET_LEFT))
            break;
        sched_yield();
    }
    m->at = 0;
    return true;
}

void meet_give(struct meet *m)
{
    struct record *r = record_of(m);
    if (r != NULL && !move(r, m->cookie, MEET_ANSWERED, MEET_FREE) && !move(r, m->cookie, MEET_ASKED, MEET_FREE) &&
        !move(r, m->cookie, MEET_ANSWERING, MEET_LEFT))
        (void)move(r, m->cookie, MEET_ANSWERED, MEET_FREE); /* it was answered meanwhile */
    m->at = 0;
}

size_t meet_find(struct meet *m, const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                 uint8_t hellos[MEET_ASK_MAX])
{
    struct table *t = table();
    if (t == NULL || netlink_cookie(peer, local, &m->cookie) <= 0)
        return 0;
    for (unsigned i = 0; i < PROBES; i++) {
        struct record *r = record_at(t, m->cookie, i);
        if (atomic_load(&r->word) != word_of(m->cookie, MEET_ASKED))
            continue;
        size_t len = r->ask_len;
        if (len > MEET_ASK_MAX)
            return 0;
        memcpy(hellos, r->ask, len);
        m->at = (uint32_t)(r - t->record) + 1;
        return len;
    }
    return 0;
}

bool meet_answer(const struct meet *m, const uint8_t *answer, size_t len)
{
    struct record *r = record_of(m);
    if (r == NULL || len == 0 || len > MEET_ANSWER_MAX || !move(r, m->cookie, MEET_ASKED, MEET_ANSWERING))
        return false;
    memcpy(r->answer, answer, len);
    r->answer_len = (uint16_t)len;
    if (move(r, m->cookie, MEET_ANSWERING, MEET_ANSWERED))
        return true;
    (void)move(r, m->cookie, MEET_LEFT, MEET_FREE);
    return false;
}
