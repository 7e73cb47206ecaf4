/*
 * A fault while the library looks at the program's memory (preload/process/usermem.c) is the library's. Every other one is
 * the program's; of one in our own code a block is printed first (core/base/fault.h).
 *
 * A handler that was set by a system call which we do not see, such as that of Go's runtime, hands our faults to the
 * handler it has found: ours (signals.c). A fault in a thread that has the signal blocked kills, as always; here also one
 * that would be an EFAULT, and one for a program that ignores the signal.
 */
#include "preload/process/segv.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/fault.h"
#include "core/base/foreign.h"
#include "core/base/rawsys.h"
#include "preload/process/sandbox.h"
#include "preload/process/usermem.h"

static uintptr_t *context_pc(void *context)
{
    ucontext_t *uc = context;
#if defined(__x86_64__)
    return (uintptr_t *)&uc->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t *)&uc->uc_mcontext.pc;
#endif
}

static _Atomic uintptr_t refill_at;
static _Atomic size_t refill_len;

void segv_refill(void *at, size_t len)
{
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
 * A fault in our own code. (Faults while the block is made that usermem.c expects must reach segv_take, so the two signals
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

bool segv_take(int number, siginfo_t *info, void *context)
{
    if (refill(number, info))
        return true;
    uintptr_t *pc = context_pc(context), next = info->si_code > 0 ? usermem_fault(*pc) : 0;
    if (next != 0) {
        *pc = next;
        return true;
    }
    if (SW_UNLIKELY(fault_is_ours(info, context)) && !sandbox_on())
        report(number, info, context);
    return false;
}
