/* The other threads of this process; see others.h. */
#include "preload/process/others.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/process/proc.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"

#define NUMBER 32 /* SIGCANCEL */
#define THREADS_MAX 4096u
#define STOP_NS 5000000000u /* longer than any of our calls holds signals off */
#define AGAIN_NS 50000000u  /* libc may have put its own handler in the place of ours meanwhile */
#define WAKE_NS 20000000
#define LOOK_NS 1000000 /* a thread may have ended instead */

/* What rt_sigaction(2) takes. */
struct action {
    void (*handler)(int number, siginfo_t *info, void *context);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};
#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif

static _Atomic int lock;                      /* one thread stops the others at a time */
static _Atomic uint32_t stopping;             /* which time it is, 0: they run */
static _Atomic uint32_t times;                /* counts */
static _Atomic uint32_t stopped_n;            /* of these */
static _Atomic uint64_t stopped[THREADS_MAX]; /* the time, and the thread */
static _Atomic uint32_t woken;                /* counts */
static pid_t asked[THREADS_MAX];              /* the lock's */
static unsigned asked_n;
static struct action libcs; /* its handler, while ours is in its place; the lock's */

static long futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *timeout)
{
    return rawsys4(__NR_futex, (long)word, op | FUTEX_PRIVATE_FLAG, val, (long)timeout);
}

static uint64_t entry_of(uint32_t time, pid_t tid)
{
    return (uint64_t)time << 32 | (uint32_t)tid;
}

/* At this time, among the first n? (What is left of another time stands in the array, too.) */
static bool has_stopped(uint32_t time, pid_t tid, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < THREADS_MAX; i++)
        if (atomic_load(&stopped[i]) == entry_of(time, tid))
            return true;
    return false;
}

/* ---- in the other threads ---- */

static void on_stop(int number, siginfo_t *info, void *context)
{
    if (info->si_code != SI_QUEUE || info->si_value.sival_ptr != &stopping) {
        if (libcs.handler != NULL)
            libcs.handler(number, info, context);
        return;
    }
    uint32_t time = atomic_load(&stopping);
    pid_t me = rawsys_gettid();
    signals_held.ran.ours++;
    if (time == 0) {
        atomic_fetch_add(&woken, 1);
        futex(&woken, FUTEX_WAKE, 1, NULL);
        return;
    }
    if (signals_put_off(number, info, context) || has_stopped(time, me, atomic_load(&stopped_n)))
        return;
    uint32_t at = atomic_fetch_add(&stopped_n, 1);
    if (at < THREADS_MAX)
        atomic_store(&stopped[at], entry_of(time, me));
    futex(&stopped_n, FUTEX_WAKE, 1, NULL);
    while (atomic_load(&stopping) == time)
        futex(&stopping, FUTEX_WAIT, time, NULL);
}

/* ---- in the one that stops them ---- */

/*
 * Puts our handler in place; flags: SA_RESTART or 0. It stays there where libc had none: the signal may still come to a
 * thread.
 */
static int arm(unsigned long flags)
{
    struct action now = { 0 }, segv = { 0 };
    signals_guard(); /* by libc, which has what a handler returns by */
    if (rawsys4(__NR_rt_sigaction, SIGSEGV, 0, (long)&segv, sizeof(segv.mask)) < 0 ||
        rawsys4(__NR_rt_sigaction, NUMBER, 0, (long)&now, sizeof(now.mask)) < 0)
        return -ENOSYS;
    if (now.handler != on_stop) {
        libcs = now;
        if ((uintptr_t)now.handler == (uintptr_t)SIG_IGN)
            libcs.handler = NULL;
    }
    struct action ours = { .handler = on_stop,
                           .flags = flags | SA_SIGINFO | SA_ONSTACK | (segv.flags & SA_RESTORER),
                           .restorer = segv.restorer,
                           .mask = ~UINT64_C(0) };
    return (int)rawsys4(__NR_rt_sigaction, NUMBER, (long)&ours, 0, sizeof(ours.mask));
}

static void disarm(void)
{
    if (libcs.handler != NULL)
        rawsys4(__NR_rt_sigaction, NUMBER, (long)&libcs, 0, sizeof(libcs.mask));
}

/* PF_IO_WORKER, PF_USER_WORKER: a thread of the kernel's, that works on the program's io_uring or for its vhost */
#define WORKERS 0x4010u

/* Does the thread never run the program's code, or not any more? */
static bool never_runs(int dir, const char *tid)
{
    char path[32], text[512], state;
    unsigned flags;
    stpcpy(stpcpy(path, tid), "/stat"); /* (proc_pid_stat(5)) */
    int fd = (int)rawsys4(__NR_openat, dir, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return true;
    long n = rawsys4(__NR_read, fd, (long)text, sizeof(text) - 1, 0);
    rawsys_close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *name_end = strrchr(text, ')'); /* it may have brackets in it */
    if (name_end == NULL || sscanf(name_end, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
        return n <= 0; /* it has ended just now */
    return state == 'Z' || state == 'X' || (flags & WORKERS) != 0;
}

static int ask(pid_t tid)
{
    siginfo_t info = { .si_signo = NUMBER, .si_code = SI_QUEUE };
    info.si_value.sival_ptr = &stopping;
    info.si_pid = proc.pid;
    info.si_uid = getuid();
    for (unsigned i = 0; i < asked_n; i++)
        if (asked[i] == tid)
            return 0;
    if (asked_n == THREADS_MAX)
        return -EAGAIN;
    /* (Where the queue is full the next look asks again.) */
    if (rawsys4(__NR_rt_tgsigqueueinfo, proc.pid, tid, NUMBER, (long)&info) == 0)
        asked[asked_n++] = tid;
    return 0;
}

/* What getdents64(2) gives. */
struct entry {
    uint64_t ino, off;
    uint16_t len;
    uint8_t type;
    char name[];
};

/*
 * Asks those of the threads in dir that nobody has asked. 0: all stand still, and have made no other one; 1: not yet;
 * -errno.
 */
static int ask_all(int dir)
{
    _Alignas(struct entry) char list[4096] = { 0 };
    uint32_t n = atomic_load(&stopped_n);
    bool met = false; /* this thread: else these are numbers of another namespace */
    int r = 0;
    long len;
    if (rawsys4(__NR_lseek, dir, 0, SEEK_SET, 0) < 0)
        return -ENOSYS;
    while ((len = rawsys4(__NR_getdents64, dir, (long)list, sizeof(list), 0)) > 0) {
        const struct entry *e;
        for (long at = 0; at < len && r >= 0; at += e->len) {
            e = (const struct entry *)(const void *)&list[at];
            pid_t tid = (pid_t)strtol(e->name, NULL, 10);
            met |= tid == rawsys_gettid();
            if (tid <= 0 || tid == rawsys_gettid() || has_stopped(atomic_load(&stopping), tid, n) ||
                never_runs(dir, e->name))
                continue;
            int asks = ask(tid);
            r = asks < 0 ? asks : 1;
        }
    }
    return len < 0 || !met ? -ENOSYS : r;
}

static int await_all(int dir)
{
    static const struct timespec look = { .tv_nsec = LOOK_NS };
    uint64_t until = proc_now_ns() + STOP_NS, again = proc_now_ns() + AGAIN_NS;
    for (;;) {
        uint32_t n = atomic_load(&stopped_n);
        int r = ask_all(dir);
        uint64_t now = proc_now_ns();
        if (r <= 0)
            return r;
        if (now >= until)
            return -ETIMEDOUT;
        if (now >= again) {
            asked_n = 0;
            again = now + AGAIN_NS;
            if ((r = arm(SA_RESTART)) < 0)
                return r;
        }
        futex(&stopped_n, FUTEX_WAIT, n, &look);
    }
}

static void begin(void)
{
    for (int none = 0; !atomic_compare_exchange_weak(&lock, &none, 1); none = 0)
        rawsys4(__NR_sched_yield, 0, 0, 0, 0);
    asked_n = 0;
}

int others_stop(void)
{
    if (sandbox_on())
        return -EPERM;
    int dir = (int)rawsys4(__NR_openat, AT_FDCWD, (long)"/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (dir < 0)
        return -ENOSYS;
    begin();
    atomic_store(&stopped_n, 0);
    uint32_t time = atomic_fetch_add(&times, 1) + 1;
    atomic_store(&stopping, time != 0 ? time : 1);
    int r = arm(SA_RESTART);
    if (r == 0)
        r = await_all(dir);
    rawsys_close(dir);
    if (r < 0)
        others_go_on();
    return r;
}

void others_go_on(void)
{
    atomic_store(&stopping, 0);
    futex(&stopping, FUTEX_WAKE, INT32_MAX, NULL);
    disarm();
    atomic_store(&lock, 0);
}

void others_wake(pid_t tid)
{
    static const struct timespec most = { .tv_nsec = WAKE_NS };
    begin();
    uint32_t seen = atomic_load(&woken);
    if (arm(0) == 0 && ask(tid) == 0 && asked_n == 1)
        futex(&woken, FUTEX_WAIT, seen, &most);
    int r = arm(SA_RESTART);
    (void)r;
    disarm();
    atomic_store(&lock, 0);
}

void others_after_fork(void)
{
    atomic_store(&stopping, 0); /* by a thread that the child does not have */
    atomic_store(&lock, 0);
}
