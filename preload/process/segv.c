/*
 * SIGSEGV, SIGBUS, SIGILL and SIGFPE: a fault while the library looks at the program's memory (preload/process/usermem.c)
 * is the library's. Every other signal is the program's, as if our handler were not there; of one in our own code a block is
 * printed first (core/base/fault.h).
 *
 * The kernel holds our handler with the program's mask and flags; the disposition that the program set, and sees, is
 * kept here. To change it, this file puts the program's own in place, lets libc do its work, and covers the result
 * again. So this file need not know what each of the many calls that set dispositions means.
 *
 *   default    our handler makes it the default again and returns: the fault comes again, with the same address, and
 *              kills
 *   ignored    it is ignored in the kernel too, because exec hands that on; then any fault kills, also one of ours
 *   handler    it is called with what the kernel gave us, on the stack and with the mask that it asked for
 *
 * A handler that was set by a system call which we do not see, such as that of Go's runtime, hands our faults to the
 * handler it has found: ours. A fault in a thread that has the signal blocked kills, as always; here also one that would
 * be an EFAULT.
 */
#include "preload/process/segv.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/fault.h"
#include "core/base/foreign.h"
#include "core/base/rawsys.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/usermem.h"

typedef void handler_fn(int number, siginfo_t *info, void *context);

struct disposition {
    _Atomic uintptr_t handler; /* the program's handler, while the kernel holds ours; SIG_DFL, SIG_IGN */
    _Atomic int flags;
    struct sigaction action; /* all of it; the lock's */
};

static const int guarded[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
static struct disposition program[SW_ARRAY_LEN(guarded)];
static _Atomic int lock; /* Protects changes of the dispositions. Taken with all signals blocked. */
_Atomic int segv_guarded;

static struct disposition *disposition_of(int number)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(guarded); i++)
        if (guarded[i] == number)
            return &program[i];
    return NULL;
}

static uintptr_t handler_of(const struct sigaction *sa)
{
    return (uintptr_t)sa->sa_sigaction; /* in one union with sa_handler */
}

#define DEFAULT ((uintptr_t)SIG_DFL)
#define IGNORED ((uintptr_t)SIG_IGN)

static uintptr_t *context_pc(void *context)
{
    ucontext_t *uc = context;
#if defined(__x86_64__)
    return (uintptr_t *)&uc->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t *)&uc->uc_mcontext.pc;
#endif
}

static void end_by(int number, const siginfo_t *info)
{
    struct sigaction sa = { .sa_handler = SIG_DFL };
    REAL(sigaction)(number, &sa, NULL);
    if (info->si_code <= 0) /* A signal that was sent would not come again. */
        rawsys4(__NR_tgkill, rawsys4(__NR_getpid, 0, 0, 0, 0), rawsys4(__NR_gettid, 0, 0, 0, 0), number, 0);
}

static _Atomic uintptr_t refill_at;
static _Atomic size_t refill_len;

void segv_refill(void *at, size_t len)
{
    if (at != NULL)
        segv_guard();
    atomic_store(&refill_len, at != NULL ? len : 0);
    atomic_store(&refill_at, (uintptr_t)at);
}

static bool refill(int number, const siginfo_t *info)
{
    uintptr_t at = atomic_load(&refill_at), fault = (uintptr_t)info->si_addr;
    size_t len = atomic_load(&refill_len);
    if (number != SIGBUS || info->si_code <= 0 || fault < at || fault - at >= len)
        return false;
    long r =
        rawsys6(__NR_mmap, (long)at, (long)len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return r == (long)at;
}

/*
 * A fault in our own code. (Faults while the block is made that usermem.c expects must reach on_fault, so the two signals
 * are not blocked meanwhile.)
 */
static void report(int number, const siginfo_t *info, void *context)
{
    uint64_t open = UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGBUS - 1), before = 0;
    rawsys4(__NR_rt_sigprocmask, SIG_UNBLOCK, (long)&open, (long)&before, sizeof(open));
    foreign_enter(); /* libunwind reads from a pipe of its own, through our read() */
    fault_signal(number, info, context);
    foreign_leave();
    rawsys4(__NR_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof(before));
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (refill(number, info))
        return;
    uintptr_t *pc = context_pc(context), next = info->si_code > 0 ? usermem_fault(*pc) : 0;
    if (next != 0) {
        *pc = next;
        return;
    }
    if (SW_UNLIKELY(fault_is_ours(info, context)) && !sandbox_on())
        report(number, info, context);
    struct disposition *d = disposition_of(number);
    uintptr_t handler = atomic_load(&d->handler);
    if (atomic_load(&d->flags) & (int)SA_RESETHAND) {
        atomic_store(&d->handler, DEFAULT);
        d->action.sa_handler = SIG_DFL;
    }
    if (handler == DEFAULT) {
        int err = errno;
        end_by(number, info);
        errno = err;
    } else if (handler != IGNORED) {
        ((handler_fn *)handler)(number, info, context);
    }
}

/* Puts our handler over the one that the kernel has. The caller holds the lock. */
static void cover(int number)
{
    struct disposition *d = disposition_of(number);
    struct sigaction sa;
    if (REAL(sigaction)(number, NULL, &d->action) < 0)
        return;
    sa = d->action;
    atomic_store(&d->flags, sa.sa_flags);
    atomic_store(&d->handler, handler_of(&sa));
    if (handler_of(&sa) == IGNORED)
        return;
    sa.sa_sigaction = on_fault;
    sa.sa_flags = (sa.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
    if (handler_of(&d->action) == DEFAULT)
        sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    REAL(sigaction)(number, &sa, NULL);
}

static void uncover(int number)
{
    REAL(sigaction)(number, &disposition_of(number)->action, NULL);
}

/*
 * A signal's handler may change dispositions too, so signals are blocked. `but`: a signal that stays as it is, or 0.
 * *blocked: for lock_give.
 */
static void lock_take(uint64_t *blocked, int but)
{
    *blocked = 0;
    uint64_t want = ~(but > 0 ? UINT64_C(1) << (but - 1) : 0), before = 0;
    if (!sandbox_on() && rawsys4(__NR_rt_sigprocmask, SIG_BLOCK, (long)&want, (long)&before, sizeof(want)) == 0)
        *blocked = want & ~before;
    for (int none = 0; !atomic_compare_exchange_weak(&lock, &none, 1); none = 0)
        rawsys4(__NR_sched_yield, 0, 0, 0, 0);
}

static void lock_give(const uint64_t *blocked)
{
    atomic_store(&lock, 0);
    if (*blocked != 0)
        rawsys4(__NR_rt_sigprocmask, SIG_UNBLOCK, (long)blocked, 0, sizeof(*blocked));
}

void segv_after_fork(void)
{
    /* The lock's holder was a thread that this process does not have. What it changed has an old or a new value. */
    atomic_store(&lock, 0);
}

void segv_guard_begin(void)
{
    uint64_t blocked;
    if (sandbox_on() || proc_is_borrowed()) /* the dispositions are the child's, the memory is its parent's */
        return;
    int err = errno;
    lock_take(&blocked, 0);
    if (!atomic_load(&segv_guarded)) {
        for (size_t i = 0; i < SW_ARRAY_LEN(guarded); i++)
            cover(guarded[i]);
        atomic_store(&segv_guarded, 1);
    }
    lock_give(&blocked);
    errno = err;
}

/* Is the disposition of this signal kept here? A vfork child sets its own, with the kernel alone. */
static bool is_kept(int number)
{
    return disposition_of(number) != NULL && atomic_load(&segv_guarded) && !proc_is_borrowed();
}

/* in a vfork child, which starts with our handler */
static void show_program(int number, struct sigaction *sa)
{
    const struct disposition *d = disposition_of(number);
    if (d != NULL && sa->sa_sigaction == on_fault)
        *sa = d->action;
}

int sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
    struct sigaction was, now;
    if (!is_kept(number)) {
        int r = REAL(sigaction)(number, act, old);
        if (r == 0 && old != NULL)
            show_program(number, old);
        return r;
    }
    if (act != NULL)
        now = *act; /* before the lock is taken: both pointers may be invalid */
    uint64_t blocked;
    lock_take(&blocked, 0);
    was = disposition_of(number)->action;
    int r = 0;
    if (act != NULL) {
        uncover(number);
        r = REAL(sigaction)(number, &now, NULL);
        cover(number);
    }
    lock_give(&blocked);
    if (r == 0 && old != NULL)
        *old = was;
    return r;
}

/* Makes the real call, and keeps what it did to number's disposition. `but` as for lock_take. */
#define DISPOSE(number, but, type, call) \
    do {                                 \
        if (!is_kept(number))            \
            return call;                 \
        uint64_t blocked_;               \
        lock_take(&blocked_, but);       \
        uncover(number);                 \
        type r_ = call;                  \
        int err_ = errno;                \
        cover(number);                   \
        lock_give(&blocked_);            \
        errno = err_;                    \
        return r_;                       \
    } while (0)

/* glibc exports these functions under several names. */
extern int __sigaction(int number, const struct sigaction *act, struct sigaction *old);
int __sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
    return sigaction(number, act, old);
}

sighandler_t signal(int number, sighandler_t handler)
{
    DISPOSE(number, 0, sighandler_t, REAL(signal)(number, handler));
}

sighandler_t ssignal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

extern sighandler_t bsd_signal(int number, sighandler_t handler);
sighandler_t bsd_signal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

sighandler_t sysv_signal(int number, sighandler_t handler)
{
    DISPOSE(number, 0, sighandler_t, REAL(sysv_signal)(number, handler));
}

extern sighandler_t __sysv_signal(int number, sighandler_t handler);
sighandler_t __sysv_signal(int number, sighandler_t handler)
{
    return sysv_signal(number, handler);
}

/* (This call sees and changes whether this signal is blocked.) */
sighandler_t sigset(int number, sighandler_t handler)
{
    DISPOSE(number, number, sighandler_t, REAL(sigset)(number, handler));
}

int sigignore(int number)
{
    DISPOSE(number, 0, int, REAL(sigignore)(number));
}

int siginterrupt(int number, int interrupts)
{
    DISPOSE(number, 0, int, REAL(siginterrupt)(number, interrupts));
}

long segv_rt_sigaction(const long a[6])
{
    DISPOSE((int)a[0], 0, long, REAL(syscall)(SYS_rt_sigaction, a[0], a[1], a[2], a[3], a[4], a[5]));
}
