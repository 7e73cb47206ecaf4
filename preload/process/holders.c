/*
 * Holders.
 */
#include "preload/process/holders.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"

#define HOLDER_EXEC (1 << 29)  /* beyond any process number */
#define HOLDER_APART (1 << 30) /* holders_apart */

static bool change(struct holders *h, int32_t from, int32_t to)
{
    for (unsigned i = 0; i < HOLDERS_MAX; i++) {
        int32_t is = from;
        if (atomic_load(&h->who[i]) == from && atomic_compare_exchange_strong(&h->who[i], &is, to))
            return true;
    }
    return false;
}

static bool has(struct holders *h, int32_t who)
{
    for (unsigned i = 0; i < HOLDERS_MAX; i++)
        if (atomic_load(&h->who[i]) == who)
            return true;
    return false;
}

static uint32_t my_pid_ns(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint32_t)st.st_ino : 0;
}

static void note_pid_ns(struct holders *h)
{
    if (my_pid_ns() != atomic_load(&h->pid_ns))
        atomic_store(&h->mixed, true);
}

bool holders_is_dead(pid_t pid)
{
    long fd = rawsys4(__NR_pidfd_open, pid, 0, 0, 0);
    if (fd < 0)
        return fd == -ESRCH || (fd != -EMFILE && fd != -ENFILE && kill(pid, 0) < 0 && errno == ESRCH);
    struct pollfd p = { .fd = (int)fd, .events = POLLIN }; /* readable once the process has ended, reaped or not */
    bool dead = REAL(poll)(&p, 1, 0) > 0;
    rawsys_close((int)fd);
    return dead;
}

bool holders_claim(struct holders *h)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&h->n, &none, 1))
        return false;
    for (unsigned i = 0; i < HOLDERS_MAX; i++)
        atomic_store(&h->who[i], i == 0 ? proc.pid : 0);
    atomic_store(&h->pid_ns, 0);
    atomic_store(&h->mixed, false);
    return true;
}

uint32_t holders_leave(struct holders *h)
{
    change(h, proc.pid, 0);
    return atomic_fetch_sub(&h->n, 1) - 1;
}

bool holders_leave_others(struct holders *h)
{
    change(h, proc.pid, 0);
    uint32_t n = atomic_load(&h->n);
    while (n > 1)
        if (atomic_compare_exchange_weak(&h->n, &n, n - 1)) {
            rawsys4(__NR_futex, (long)&h->n, FUTEX_WAKE, 1, 0); /* holders_await_alone */
            return true;
        }
    return false;
}

static void strike_dead(struct holders *h)
{
    if (atomic_load(&h->mixed) || sandbox_on())
        return;
    int err = errno;
    for (unsigned i = 0; i < HOLDERS_MAX; i++) {
        int32_t who = atomic_load(&h->who[i]);
        pid_t pid = who < 0 ? -who & ~HOLDERS_FORK : who & ~HOLDER_EXEC;
        if (pid != 0 && pid != proc.pid && who != HOLDER_APART && holders_is_dead(pid) &&
            atomic_compare_exchange_strong(&h->who[i], &who, 0))
            atomic_fetch_sub(&h->n, 1);
    }
    errno = err;
}

bool holders_alone(struct holders *h)
{
    if (atomic_load(&h->n) == 1)
        return true;
    strike_dead(h);
    return atomic_load(&h->n) == 1;
}

bool holders_await_alone(struct holders *h, uint64_t until_ns)
{
    for (uint32_t n; !holders_alone(h) && (n = atomic_load(&h->n)) > 1;) {
        uint64_t now = proc_now_ns();
        if (now >= until_ns)
            return false;
        struct timespec ts = { .tv_sec = (time_t)((until_ns - now) / 1000000000u),
                               .tv_nsec = (long)((until_ns - now) % 1000000000u) };
        rawsys4(__NR_futex, (long)&h->n, FUTEX_WAIT, n, (long)&ts);
    }
    return true;
}

bool holders_has_me(struct holders *h)
{
    return has(h, proc.pid);
}

bool holders_all_dead(struct holders *h)
{
    strike_dead(h);
    if (atomic_load(&h->n) == 1) /* nobody here will use it any more */
        holders_apart_gone(h);
    return atomic_load(&h->n) == 0;
}

bool holders_has(struct holders *h, pid_t pid)
{
    return has(h, pid) || has(h, pid | HOLDER_EXEC);
}

unsigned holders_all(struct holders *h, pid_t who[HOLDERS_MAX])
{
    unsigned n = 0;
    for (unsigned i = 0; i < HOLDERS_MAX; i++) {
        int32_t is = atomic_load(&h->who[i]);
        if (is > 0 && is != HOLDER_APART)
            who[n++] = is & ~HOLDER_EXEC;
    }
    return n;
}

bool holders_apart(struct holders *h)
{
    return has(h, HOLDER_APART);
}

bool holders_apart_come(struct holders *h)
{
    if (has(h, HOLDER_APART) || !change(h, 0, HOLDER_APART))
        return false;
    atomic_fetch_add(&h->n, 1);
    return true;
}

bool holders_apart_gone(struct holders *h)
{
    if (!change(h, HOLDER_APART, 0))
        return false;
    atomic_fetch_sub(&h->n, 1);
    return true;
}

void holders_go_apart(struct holders *h)
{
    holders_apart_come(h);
    holders_leave(h);
}

void holders_begin_apart(struct holders *h)
{
    for (unsigned i = 0; i < HOLDERS_MAX; i++)
        atomic_store(&h->who[i], i == 0 ? proc.pid : 0);
    atomic_store(&h->n, 1);
    holders_apart_come(h);
}

void holders_expect_child(struct holders *h, int32_t maker)
{
    if (atomic_load(&h->pid_ns) == 0)
        atomic_store(&h->pid_ns, my_pid_ns());
    atomic_fetch_add(&h->n, 1);
    change(h, 0, -maker);
}

void holders_no_child(struct holders *h, int32_t maker)
{
    if (change(h, -maker, 0)) /* (not a process that came after the count) */
        atomic_fetch_sub(&h->n, 1);
}

void holders_have_child(struct holders *h, int32_t maker, pid_t child)
{
    if (!has(h, child))
        change(h, -maker, child);
}

void holders_am_child(struct holders *h, int32_t maker)
{
    note_pid_ns(h);
    if (!has(h, proc.pid))
        change(h, -maker, proc.pid);
}

void holders_exec(struct holders *h)
{
    change(h, proc.pid, proc.pid | HOLDER_EXEC);
}

bool holders_take_up(struct holders *h, int32_t maker)
{
    if (atomic_load(&h->pid_ns) != 0)
        note_pid_ns(h);
    if (has(h, proc.pid) || change(h, proc.pid | HOLDER_EXEC, proc.pid) || (maker != 0 && change(h, -maker, proc.pid)))
        return true;
    uint32_t n = atomic_load(&h->n);
    do {
        if (n == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&h->n, &n, n + 1));
    change(h, 0, proc.pid);
    return true;
}
