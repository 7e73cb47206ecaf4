/* Which peers were found to be plain; see learned.h. */
#include "preload/startup/learned.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/rawsys.h"
#include "core/negotiate/verdict.h"
#include "preload/process/folder.h"
#include "preload/process/proc.h"
#include "preload/process/signals.h"
#include "preload/startup/meet.h"

static struct verdicts verdicts;
/* Protects verdicts; innermost. */
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

/* 0: nothing is remembered. */
static uint64_t ttl_ns(void)
{
    return (uint64_t)proc.set.verdict_ttl_s * 1000000000u;
}

bool learned_here(const struct sockaddr *peer, int fd)
{
    struct verdict_entry key;
    if (ttl_ns() == 0 || !verdict_key(&key, peer, 0))
        return false;
    lock_take(&verdict_lock);
    struct verdict_entry e = verdicts.slot[verdict_slot(&key)];
    lock_give(&verdict_lock);
    uint64_t now_ns = proc_now_ns();
    if (!verdict_holds(&e, &key, now_ns, ttl_ns()))
        return false;
    key.netns = meet_netns(fd); /* (0: this kernel does not tell) */
    return verdict_holds(&e, &key, now_ns, ttl_ns());
}

/* ---- the file: not where the kernel does not tell networks apart ---- */

static int file_open(const struct verdict_entry *key, bool make)
{
    return key->netns != 0 ? folder_file(LEARNED_FILE, sizeof(struct verdicts), make) : -1;
}

static bool read_at(int file, uint32_t slot, struct verdict_entry *e)
{
    return rawsys4(__NR_pread64, file, (long)e, sizeof(*e), (long)slot * (long)sizeof(*e)) == sizeof(*e);
}

bool learned_by_user(const struct sockaddr *peer, int fd)
{
    struct verdict_entry key, e;
    int file = ttl_ns() != 0 && verdict_key(&key, peer, meet_netns(fd)) ? file_open(&key, false) : -1;
    if (file < 0)
        return false;
    bool plain = read_at(file, verdict_slot(&key), &e) && verdict_holds(&e, &key, proc_now_ns(), ttl_ns());
    rawsys_close(file);
    return plain;
}

static void tell(const struct verdict_entry *key)
{
    struct verdict_entry e;
    int file = file_open(key, true);
    if (file < 0)
        return;
    /* (Two processes that write at the same time know the same; what is half of each has a wrong check.) */
    uint32_t slot = verdict_slot(key);
    if (read_at(file, slot, &e) && verdict_renew(&e, key, proc_now_ns(), ttl_ns()))
        (void)rawsys4(__NR_pwrite64, file, (long)&e, sizeof(e), (long)slot * (long)sizeof(e));
    rawsys_close(file);
}

void learned_add(const struct sockaddr *peer, int fd)
{
    struct verdict_entry key;
    if (ttl_ns() == 0 || !verdict_key(&key, peer, meet_netns(fd)))
        return;
    lock_take(&verdict_lock);
    verdict_renew(&verdicts.slot[verdict_slot(&key)], &key, proc_now_ns(), ttl_ns());
    lock_give(&verdict_lock);
    tell(&key);
}

/* ---- who has answered: by slot, so a peer may be taken for one that did; then it is only not remembered as plain ---- */

static _Atomic bool answered[VERDICT_SLOTS];

void learned_answers(const struct sockaddr *peer)
{
    struct verdict_entry key;
    if (verdict_key(&key, peer, 0))
        atomic_store_explicit(&answered[verdict_slot(&key)], true, memory_order_relaxed);
}

bool learned_has_answered(const struct sockaddr *peer)
{
    struct verdict_entry key;
    return verdict_key(&key, peer, 0) && atomic_load_explicit(&answered[verdict_slot(&key)], memory_order_relaxed);
}

void learned_after_fork(void)
{
    pthread_mutex_init(&verdict_lock, NULL);
}
