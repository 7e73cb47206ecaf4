/*
 * The process: small services.
 */
#include "preload/process/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "core/base/append.h"
#include "core/base/fault.h"
#include "core/base/rawsys.h"
#include "core/base/trace.h"

struct proc proc;

_Atomic int proc_ready;

__thread pid_t proc_my_tid;
__thread bool proc_making_ring;

static inline uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t proc_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t proc_tick_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

/* A page that every child of fork(2) finds empty, also one that we did not see being made. NULL: there is none. */
static struct own {
    _Atomic bool is; /* this process's */
    _Atomic bool taken;
    uint32_t left; /* of random */
    uint8_t random[512];
} * own_page;
/* Children with CLONE_VM were made: they have that page as their parent has. vfork.c writes it, too. */
__attribute__((visibility("hidden"), used)) bool proc_lent;

void proc_begin(void)
{
    proc.pid = rawsys_getpid();
    if (own_page == NULL) {
        long at = rawsys6(__NR_mmap, 0, sizeof(*own_page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at < 0 && at > -4096)
            return;
        if (rawsys4(__NR_madvise, at, sizeof(*own_page), MADV_WIPEONFORK, 0) != 0) {
            (void)rawsys4(__NR_munmap, at, sizeof(*own_page), 0, 0);
            return;
        }
        own_page = (struct own *)at;
    }
    atomic_store(&own_page->is, true);
}

void proc_lend(void)
{
    __atomic_store_n(&proc_lent, true, __ATOMIC_RELAXED);
}

/* Is the one that runs here surely the process that proc.pid names? */
static bool is_surely_own(void)
{
    return own_page != NULL && atomic_load_explicit(&own_page->is, memory_order_relaxed) && !proc_has_lent();
}

/* (A sandbox from before the program's start may not know getrandom(2).) */
static ssize_t random_some(void *buf, size_t len)
{
    ssize_t n = getrandom(buf, len, 0);
    if (n >= 0 || errno == EINTR)
        return n;
    int err = errno, fd = rawsys_open("/dev/urandom", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        errno = err;
        return -1;
    }
    n = rawsys_read(fd, buf, len);
    rawsys_close(fd);
    errno = n < 0 ? (int)-n : err;
    return n < 0 ? -1 : n;
}

static void random_from_kernel(void *buf, size_t len)
{
    uint8_t *p = buf;
    while (len > 0) {
        ssize_t n = random_some(p, len);
        SW_CHECK(n > 0 || errno == EINTR, "getrandom: errno %d", errno);
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
}

/* Takes octets that were asked for before, each once. False: it has to ask itself. */
static bool random_kept(uint8_t *buf, size_t len)
{
    struct own *o = own_page;
    if (len > sizeof(o->random) || !is_surely_own() || atomic_exchange_explicit(&o->taken, true, memory_order_acquire))
        return false;
    if (o->left < len) {
        random_from_kernel(o->random, sizeof(o->random));
        o->left = sizeof(o->random);
    }
    o->left -= (uint32_t)len;
    memcpy(buf, o->random + o->left, len);
    memset(o->random + o->left, 0, len);
    atomic_store_explicit(&o->taken, false, memory_order_release);
    return true;
}

void proc_random(void *buf, size_t len)
{
    if (!random_kept(buf, len))
        random_from_kernel(buf, len);
}

uint32_t proc_random32(void *unused)
{
    (void)unused;
    uint32_t v;
    proc_random(&v, sizeof(v));
    return v;
}

bool proc_on_signal_stack(void)
{
    stack_t now;
    return sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_ONSTACK);
}

bool proc_is_borrowed(void)
{
    return SW_UNLIKELY(!is_surely_own()) && proc_ready == 2 && rawsys_getpid() != proc.pid;
}

pid_t proc_pid(void)
{
    return SW_LIKELY(is_surely_own()) ? proc.pid : rawsys_getpid();
}

void proc_stats_write(const char *line, size_t len)
{
    int r = append_line(proc.set.stats_file, line, len);
    if (r < 0)
        trace_error("%s: a statistics line could not be written: errno %d", proc.set.stats_file, -r);
}

_Atomic pid_t proc_ends;

void proc_let_end(void)
{
    pid_t who = atomic_load(&proc_ends);
    if (SW_LIKELY(who == 0) || who == (pid_t)rawsys_gettid())
        return;
    struct timespec second = { .tv_sec = 1 };
    nanosleep(&second, NULL);
}
