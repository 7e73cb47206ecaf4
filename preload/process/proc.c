/*
 * The process: small services.
 */
#include "preload/process/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

void proc_random(void *buf, size_t len)
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
    return proc_ready == 2 && rawsys4(__NR_getpid, 0, 0, 0, 0) != proc.pid;
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
