/*
 * The dispositions that the program sets, and when its handlers run.
 *
 *   default    the kernel has it so; but SIGSEGV and its like have our handler, which makes it the default again and
 *              returns: the fault comes again, with the same address, and kills
 *   ignored    it is ignored in the kernel too, because exec hands that on
 *   handler    the kernel has ours, with the program's mask and flags; it calls the program's with what the kernel gave us
 *
 * sigaction() is carried out by one call of the kernel. The other calls that set dispositions differ in what they mean:
 * for these, the program's own disposition is put in place, libc does its work, and the result is covered again.
 *
 * A signal that is put off goes back to the kernel, for this thread, which blocks all signals until it gives up its lock.
 */
#include "preload/process/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/fault.h"
#include "core/base/rawsys.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/segv.h"

typedef void handler_fn(int number, siginfo_t *info, void *context);

struct disposition {
    struct sigaction action;   /* what the program set; the lock's */
    _Atomic uintptr_t handler; /* of it, while the kernel holds ours; SIG_DFL, SIG_IGN */
    _Atomic int flags;         /* of it */
    bool known;                /* the three above are as the kernel has them; the lock's */
};

#define NUMBERS 65
#define BIT(number) (UINT64_C(1) << ((number)-1))
/* The kernel raises them for what a thread does itself; blocked, they kill. */
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE))
#define SYNCHRONOUS (FAULTS | BIT(SIGTRAP) | BIT(SIGSYS))

static struct disposition program[NUMBERS];
static _Atomic uint64_t touched; /* signals whose disposition was set before they were guarded */
static _Atomic int lock;         /* Protects changes of the dispositions. Taken with all signals blocked. */
static __thread bool disposing;  /* by this thread: a library behind us (a sanitizer's) does signal() by sigaction() */
_Atomic int signals_guarded;
__thread struct signals_held signals_held;

static bool is_fault(int number)
{
    return (BIT(number) & FAULTS) != 0;
}

static uintptr_t handler_of(const struct sigaction *sa)
{
    return (uintptr_t)sa->sa_sigaction; /* in one union with sa_handler */
}

#define DEFAULT ((uintptr_t)SIG_DFL)
#define IGNORED ((uintptr_t)SIG_IGN)

static bool is_handler(uintptr_t handler)
{
    return handler != DEFAULT && handler != IGNORED;
}

/* ---- a signal comes ---- */

static void block(uint64_t which)
{
    rawsys4(__NR_rt_sigprocmask, SIG_BLOCK, (long)&which, 0, sizeof(which));
}

#define HOLDS_MAX 1000u /* a signals_go_on too many makes it 2^32 - 1: no handler would ever run again */

bool signals_put_off(int number, siginfo_t *info, void *context)
{
    struct signals_held *h = &signals_held;
    if ((BIT(number) & SYNCHRONOUS) || SW_LIKELY(h->n == 0) || sandbox_on())
        return false;
    SW_CHECK(h->n < HOLDS_MAX, "%u holds", h->n);
    uint64_t now;
    block(~SYNCHRONOUS);
    if (rawsys4(__NR_rt_tgsigqueueinfo, rawsys4(__NR_getpid, 0, 0, 0, 0), rawsys_gettid(), number, (long)info) < 0)
        return false; /* (a real-time signal, and the queue is full) */
    uint64_t *outside = (uint64_t *)&((ucontext_t *)context)->uc_sigmask; /* the kernel goes back to it */
    memcpy(&now, outside, sizeof(now));
    /* Handlers of ours that the kernel has stacked come here one by one; the outermost one's is the program's. */
    h->unmask |= ~now;
    h->put_off = true;
    now |= ~SYNCHRONOUS;
    memcpy(outside, &now, sizeof(now));
    return true;
}

void signals_deliver(void)
{
    uint64_t mask = ~signals_held.unmask;
    signals_held.unmask = 0;
    signals_held.put_off = false;
    rawsys4(__NR_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask));
}

/* The default action, once our handler has returned. */
static void end_by(int number, const siginfo_t *info)
{
    struct sigaction sa = { .sa_handler = SIG_DFL };
    REAL(sigaction)(number, &sa, NULL);
    if (info->si_code <= 0 || !is_fault(number)) /* one that was sent would not come again */
        rawsys4(__NR_tgkill, rawsys4(__NR_getpid, 0, 0, 0, 0), rawsys_gettid(), number, 0);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    if ((is_fault(number) && segv_take(number, info, context)) || signals_put_off(number, info, context))
        return;
    struct disposition *d = &program[number];
    uintptr_t handler = atomic_load(&d->handler);
    int flags = atomic_load(&d->flags);
    if (flags & (int)SA_RESETHAND) {
        atomic_store(&d->handler, DEFAULT);
        d->action.sa_handler = SIG_DFL;
    }
    if (handler == DEFAULT) {
        int err = errno;
        end_by(number, info);
        errno = err;
    } else if (handler != IGNORED) {
        bool ends = !(BIT(number) & signals_held.masked);
        signals_held.ran.all += ends;
        signals_held.ran.ending += ends && !(flags & SA_RESTART);
        ((handler_fn *)handler)(number, info, context);
    }
}

/* ---- dispositions ---- */

#define OURS_FLAGS (SA_SIGINFO | (int)SA_RESETHAND | SA_ONSTACK)

/* What the kernel gets where the program wants `sa`. */
static struct sigaction covered(int number, const struct sigaction *sa)
{
    struct sigaction c = *sa;
    if (!is_handler(handler_of(sa)) && (!is_fault(number) || handler_of(sa) == IGNORED))
        return c;
    c.sa_sigaction = on_signal;
    c.sa_flags = (c.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
    if (handler_of(sa) == DEFAULT)
        c.sa_flags |= SA_ONSTACK;
    return c;
}

static void note(struct disposition *d, const struct sigaction *sa)
{
    d->action = *sa;
    d->known = true;
    atomic_store(&d->flags, sa->sa_flags);
    atomic_store(&d->handler, handler_of(sa));
}

/* Puts our handler over the one that the kernel has. The caller holds the lock. */
static void cover(int number)
{
    struct sigaction now;
    if (REAL(sigaction)(number, NULL, &now) < 0)
        return;
    note(&program[number], &now);
    struct sigaction c = covered(number, &now);
    if (c.sa_sigaction == on_signal)
        REAL(sigaction)(number, &c, NULL);
}

static void uncover(int number)
{
    if (program[number].known)
        REAL(sigaction)(number, &program[number].action, NULL);
}

/* As sigaction(2) with `act`; what the kernel makes of its flags and mask is noted. */
static int change(int number, const struct sigaction *act)
{
    struct disposition *d = &program[number];
    uintptr_t before = atomic_load(&d->handler);
    struct sigaction c = covered(number, act), now;
    bool runs = c.sa_sigaction == on_signal;
    if (runs) /* before the kernel calls ours for it */
        atomic_store(&d->handler, handler_of(act));
    int r = REAL(sigaction)(number, &c, NULL);
    if (r < 0 || REAL(sigaction)(number, NULL, &now) < 0) {
        atomic_store(&d->handler, before);
        return r;
    }
    if (runs) {
        now.sa_sigaction = act->sa_sigaction;
        now.sa_flags = (now.sa_flags & ~OURS_FLAGS) | (act->sa_flags & OURS_FLAGS);
    }
    note(d, &now);
    return 0;
}

/*
 * A signal's handler may change dispositions too, so signals are blocked. `but`: a signal that stays as it is, or 0.
 * *blocked: for dispose_end.
 */
static void dispose_begin(uint64_t *blocked, int but)
{
    *blocked = 0;
    uint64_t want = ~(but > 0 ? BIT(but) : 0), before = 0;
    if (!sandbox_on() && rawsys4(__NR_rt_sigprocmask, SIG_BLOCK, (long)&want, (long)&before, sizeof(want)) == 0)
        *blocked = want & ~before;
    for (int none = 0; !atomic_compare_exchange_weak(&lock, &none, 1); none = 0)
        rawsys4(__NR_sched_yield, 0, 0, 0, 0);
    disposing = true;
}

static void dispose_end(const uint64_t *blocked)
{
    disposing = false;
    atomic_store(&lock, 0);
    if (*blocked != 0)
        rawsys4(__NR_rt_sigprocmask, SIG_UNBLOCK, (long)blocked, 0, sizeof(*blocked));
}

void signals_after_fork(void)
{
    /* The lock's holder was a thread that this process does not have. What it changed has an old or a new value. */
    atomic_store(&lock, 0);
    /* (Locks that the fork had are made anew, not given back.) */
    signals_held.n = 0;
    signals_held.put_off = false;
    signals_held.unmask = 0;
}

void signals_guard_begin(void)
{
    uint64_t blocked;
    if (sandbox_on() || proc_is_borrowed()) /* the dispositions are the child's, the memory is its parent's */
        return;
    int err = errno;
    dispose_begin(&blocked, 0);
    if (!atomic_load(&signals_guarded)) {
        atomic_store(&signals_guarded, 1); /* (who sets one from here on waits for the lock) */
        uint64_t these = FAULTS | atomic_load(&touched);
        for (int number = 1; number < NUMBERS; number++)
            if (these & BIT(number))
                cover(number);
    }
    dispose_end(&blocked);
    errno = err;
}

/* Is the disposition of this signal kept here? A vfork child sets its own, with the kernel alone. */
static bool is_kept(int number, bool set)
{
    if (number <= 0 || number >= NUMBERS || disposing || proc_is_borrowed())
        return false;
    if (SW_UNLIKELY(set && !atomic_load(&signals_guarded)))
        atomic_fetch_or(&touched, BIT(number));
    return atomic_load(&signals_guarded);
}

/* in a vfork child, which starts with our handler */
static void show_program(int number, struct sigaction *sa)
{
    if (number > 0 && number < NUMBERS && sa->sa_sigaction == on_signal)
        *sa = program[number].action;
}

bool signals_restart(void)
{
    bool any = false;
    for (int number = 1; number < NUMBERS; number++) {
        struct sigaction sa;
        if (REAL(sigaction)(number, NULL, &sa) < 0)
            continue;
        /* (Ours has the program's SA_RESTART.) */
        bool ours = sa.sa_sigaction == on_signal;
        if (!is_handler(ours ? atomic_load(&program[number].handler) : handler_of(&sa)))
            continue;
        if (!(sa.sa_flags & SA_RESTART))
            return false;
        any = true;
    }
    return any;
}

int sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
    struct sigaction was, now;
    if (!is_kept(number, act != NULL)) {
        int r = REAL(sigaction)(number, act, old);
        if (r == 0 && old != NULL)
            show_program(number, old);
        return r;
    }
    if (act != NULL)
        now = *act; /* before the lock is taken: both pointers may be invalid */
    uint64_t blocked;
    dispose_begin(&blocked, 0);
    if (!program[number].known)
        cover(number);
    int r = program[number].known ? 0 : REAL(sigaction)(number, NULL, &was); /* (one that libc keeps for itself) */
    was = program[number].action;
    if (r == 0 && act != NULL)
        r = change(number, &now);
    dispose_end(&blocked);
    if (r == 0 && old != NULL)
        *old = was;
    return r;
}

/* Makes the real call, and keeps what it did to number's disposition. `but` as for dispose_begin. */
#define DISPOSE(number, but, type, call) \
    do {                                 \
        if (!is_kept(number, true))      \
            return call;                 \
        uint64_t blocked_;               \
        dispose_begin(&blocked_, but);   \
        uncover(number);                 \
        type r_ = call;                  \
        int err_ = errno;                \
        cover(number);                   \
        dispose_end(&blocked_);          \
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

long signals_rt_sigaction(const long a[6])
{
    DISPOSE((int)a[0], 0, long, REAL(syscall)(SYS_rt_sigaction, a[0], a[1], a[2], a[3], a[4], a[5]));
}
