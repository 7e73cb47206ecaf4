/*
 * Hidden descriptors.
 */
#include "preload/process/hidden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/must.h"
#include "core/base/rawsys.h"
#include "preload/process/real.h"

#define BITS 64u
#define FDS_MAX 65536u /* descriptors above this are not passed over */

static _Atomic uint64_t hidden[FDS_MAX / BITS];
static uint64_t identity[FDS_MAX];            /* of the file, where it was moved to; mostly untouched pages */
static _Atomic(_Atomic int *) owner[FDS_MAX]; /* where its number is stored; NULL: in several places */
static _Atomic unsigned limit;                /* one above the highest that was ever hidden */

static uint64_t identity_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? (uint64_t)st.st_dev << 48 ^ st.st_ino : 0;
}

static void forget(unsigned n)
{
    if (n < FDS_MAX)
        atomic_fetch_and(&hidden[n / BITS], ~(UINT64_C(1) << n % BITS));
}

int hidden_dup(int fd)
{
    /* As high as the limit allows, but not so high that the kernel's table for a small program grows by megabytes. */
    struct rlimit lim;
    rlim_t top = getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < 4096 ? lim.rlim_cur : 4096;
    for (rlim_t from = top > 256 ? top - 256 : top / 2;; from /= 2) {
        int high = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, (int)from);
        if (high >= 0 || errno != EMFILE || from < 16)
            return high; /* (else those above are taken: many closes are under way) */
    }
}

static void hide(int fd, _Atomic int *where)
{
    unsigned n = (unsigned)fd;
    if (n >= FDS_MAX)
        return;
    identity[n] = identity_of(fd);
    atomic_store(&owner[n], where);
    atomic_fetch_or(&hidden[n / BITS], UINT64_C(1) << n % BITS);
    unsigned seen = atomic_load(&limit);
    while (seen <= n && !atomic_compare_exchange_weak(&limit, &seen, n + 1))
        ;
}

int hidden_move(int fd)
{
    int high = hidden_dup(fd);
    if (high < 0) {
        high = fd;
        REAL(fcntl)(fd, F_SETFD, FD_CLOEXEC);
    } else {
        rawsys_close(fd); /* no point of cancellation */
    }
    hide(high, NULL);
    return high;
}

void hidden_own(int fd, _Atomic int *where)
{
    if ((unsigned)fd < FDS_MAX)
        atomic_store(&owner[fd], where);
}

int hidden_yield(int fd)
{
    if (!hidden_is(fd))
        return 0;
    _Atomic int *where = atomic_load(&owner[fd]);
    int high = where != NULL ? hidden_dup(fd) : -1, old = fd;
    if (high < 0)
        return -EBUSY;
    hide(high, where);
    if (!atomic_compare_exchange_strong(where, &old, high))
        hidden_close(high); /* it had been given up */
    forget((unsigned)fd);
    return 0;
}

void hidden_reveal(int fd)
{
    forget((unsigned)fd);
}

void hidden_close(int fd)
{
    forget((unsigned)fd);
    rawsys_close(fd); /* no point of cancellation */
}

/* Its mark is set. */
static bool still_hidden(unsigned n)
{
    if (identity_of((int)n) == identity[n])
        return true;
    forget(n);
    return false;
}

bool hidden_is(int fd)
{
    unsigned n = (unsigned)fd;
    return n < atomic_load_explicit(&limit, memory_order_relaxed) &&
           (atomic_load_explicit(&hidden[n / BITS], memory_order_relaxed) >> n % BITS & 1) && still_hidden(n);
}

int hidden_next(unsigned first, unsigned last)
{
    unsigned end = atomic_load(&limit);
    for (unsigned n = first; n <= last && n < end; n++) {
        uint64_t word = atomic_load(&hidden[n / BITS]) >> n % BITS;
        if (word == 0)
            n |= BITS - 1;
        else if ((word & 1) && still_hidden(n))
            return (int)n;
    }
    return -1;
}
