/* Records between processes of different rights. */
#include "preload/process/apart.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <time.h>

#include "core/base/rawsys.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/spin.h"

/* Longer than any of our calls holds it; what a process that does not give it back costs the others, once. */
#define LOCK_NS 1000000000u
#define LOOK_NS 10000000 /* between two looks whether its holder has died */
#define LOOKS_AWAKE 200u
#define LOOKS_MAX 100000000u /* a clock may stand still */

#define UNSURE (-1) /* in place of a process number */

struct apart *apart_map(size_t len)
{
    struct apart *a =
        mmap(NULL, sizeof(*a) + len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return a == MAP_FAILED ? NULL : a;
}

void apart_unmap(struct apart *a, size_t len)
{
    munmap(a, sizeof(*a) + len);
}

/* ---- the lock ---- */

/* Numbers above all processes'. */
#define NO_PROCESS (UINT32_C(1) << 31)

static _Atomic uint64_t number; /* one of these, with the process that has drawn it */

static uint32_t my_number(void)
{
    uint64_t is = atomic_load(&number);
    if (is >> 32 != (uint32_t)proc.pid) {
        is = (uint64_t)proc.pid << 32 | NO_PROCESS | proc_random32(NULL);
        atomic_store(&number, is);
    }
    return (uint32_t)is;
}

static bool try(struct apart_side *s, uint32_t me)
{
    uint32_t nobody = 0;
    /* (This process has no other thread here: its turn sees to that.) */
    return atomic_compare_exchange_strong(&s->lock, &nobody, me) || nobody == me;
}

int apart_lock(struct apart_side *s, bool unsure)
{
    const uint32_t me = unsure ? my_number() : (uint32_t)proc.pid;
    static const struct timespec look = { .tv_nsec = LOOK_NS };
    if (try(s, me))
        return 0;
    uint64_t end = proc_now_ns() + LOCK_NS;
    for (unsigned n = 0;; n++) {
        uint32_t seen = atomic_load(&s->lock);
        if (try(s, me))
            return 0;
        if (n < LOOKS_AWAKE || sandbox_on()) { /* (a filter may not let us sleep) */
            spin_relax();
        } else {
            rawsys4(__NR_futex, (long)&s->lock, FUTEX_WAIT, seen, (long)&look);
            if (seen < NO_PROCESS && holders_is_dead((pid_t)seen) && atomic_load(&s->lock) == seen)
                return -EOWNERDEAD;
        }
        if (n == LOOKS_MAX || proc_now_ns() >= end)
            return -ETIMEDOUT;
    }
}

void apart_unlock(struct apart_side *s)
{
    uint32_t by_pid = (uint32_t)proc.pid, by_number = my_number(); /* (whether it is sure may have changed meanwhile) */
    bool mine =
        atomic_compare_exchange_strong(&s->lock, &by_pid, 0) || atomic_compare_exchange_strong(&s->lock, &by_number, 0);
    if (mine && !sandbox_on())
        rawsys4(__NR_futex, (long)&s->lock, FUTEX_WAKE, 1, 0);
}

/* ---- who uses it ---- */

static bool change(struct apart *a, int32_t from, int32_t to)
{
    for (unsigned i = 0; i < APART_PARTIES; i++) {
        int32_t is = from;
        if (atomic_compare_exchange_strong(&a->who[i], &is, to))
            return true;
    }
    return false;
}

void apart_join(struct apart *a, pid_t pid, bool unsure)
{
    for (unsigned i = 0; i < APART_PARTIES && !unsure; i++)
        if (atomic_load(&a->who[i]) == pid)
            return;
    if (!change(a, 0, unsure ? UNSURE : pid))
        atomic_store(&a->crowded, 1);
}

void apart_leave(struct apart *a, pid_t pid, bool unsure)
{
    change(a, unsure ? UNSURE : pid, 0);
}

bool apart_has_others(struct apart *a, struct holders *h)
{
    int err = errno;
    bool some = atomic_load(&a->crowded) != 0 || sandbox_on();
    for (unsigned i = 0; i < APART_PARTIES && !some; i++) {
        int32_t pid = atomic_load(&a->who[i]);
        if (pid == 0 || pid == proc.pid || (pid > 0 && holders_has(h, pid)))
            continue;
        if (pid < 0 || atomic_load(&h->mixed) || !holders_is_dead(pid))
            some = true;
        else
            atomic_compare_exchange_strong(&a->who[i], &pid, 0);
    }
    errno = err;
    return some;
}
