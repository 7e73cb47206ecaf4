/*
 * Processes that are made without fork(2): by _Fork(2) and clone(2), and clone, clone3, fork and vfork by syscall(2). A
 * child with a memory of its own has our state as one of fork's has; only libc does not know of it, so its record of the
 * thread is put right here.
 *
 * Threads, and children that run on the parent's memory on a stack of their own, are left to the kernel.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/calls/exec.h"
#include "preload/calls/rights.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/start.h"
#include "preload/process/usermem.h"

/* ---- libc's record of the thread ---- */

/* Where glibc keeps a thread's number, from which mutexes' words are made: glibc tells debuggers. NULL: not found. */
static pid_t *libc_tid(void)
{
    const uint32_t *desc = dlvsym(RTLD_DEFAULT, "_thread_db_pthread_tid", "GLIBC_PRIVATE"); /* bits, elements, offset */
    if (desc == NULL || desc[0] != 32)
        return NULL;
    pid_t *tid = (pid_t *)(void *)((char *)pthread_self() + desc[2]);
    return *tid == rawsys_gettid() ? tid : NULL;
}

/* Around the call that makes the child, on the parent's stack and in the child's copy of it. */
struct making {
    bool other_user; /* the child is in another user namespace: it has not the rights of this process */
    pid_t *tid;
    void *robust; /* the list of locks whose holder the kernel marks as dead; the child holds none */
    size_t robust_len;
};

static bool making_begin(struct making *m, uint64_t flags)
{
    *m = (struct making){ .other_user = (flags & CLONE_NEWUSER) != 0, .tid = libc_tid() };
    if (m->tid == NULL || rawsys4(__NR_get_robust_list, 0, (long)&m->robust, (long)&m->robust_len, 0) < 0)
        return false;
    start_before_fork();
    return true;
}

static void in_child(const struct making *m)
{
    *m->tid = rawsys_gettid();
    if (m->robust != NULL) {
        *(void **)m->robust = m->robust;
        rawsys4(__NR_set_robust_list, (long)m->robust, (long)m->robust_len, 0, 0);
    }
    start_after_fork_child();
    if (m->other_user) {
        rights_before();
        rights_after();
    }
}

static void in_parent(long r)
{
    start_after_fork_parent();
    fork_done(r > 0 ? (pid_t)r : -1);
}

/* ---- by syscall(2) ---- */

#define LIBCS_OWN ((uint64_t)(CLONE_THREAD | CLONE_SETTLS))

/*
 * The child returns from here on a copy of the stack, so a child that would share the parent's memory gets a copy, too.
 * Nor does the parent wait for the child's exec, as vfork does, because it holds locks that both need.
 */
static uint64_t as_fork(uint64_t flags)
{
    return flags & ~(uint64_t)(CLONE_VFORK | CLONE_VM | (flags & CLONE_VM ? CLONE_SIGHAND : 0));
}

/* The kernel's call as it is: for children that are none of ours to make. */
static long pass_on(long number, const long a[6])
{
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The child may share this process's memory, and is made by the program or libc in its own way. */
static void lend(uint64_t flags)
{
    if ((flags & CLONE_VM) && !(flags & CLONE_THREAD))
        proc_lend();
}

static long make(long number, const long a[6], long first, uint64_t flags)
{
    struct making m;
    if (!making_begin(&m, flags))
        return pass_on(number, a);
    long r = rawsys6(number, first, a[1], a[2], a[3], a[4], a[5]);
    if (r == 0)
        in_child(&m);
    else
        in_parent(r);
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

static long make_by_args(const long a[6])
{
    struct clone_args args;
    size_t len = (size_t)a[1];
    if (len < CLONE_ARGS_SIZE_VER0 || len > sizeof(args) || !usermem_readable((const void *)a[0], len))
        return pass_on(SYS_clone3, a);
    memcpy(&args, (const void *)a[0], len);
    if ((args.flags & LIBCS_OWN) || args.stack != 0) {
        lend(args.flags);
        return pass_on(SYS_clone3, a);
    }
    args.flags = as_fork(args.flags);
    return make(SYS_clone3, a, (long)&args, args.flags);
}

long clone_syscall(long number, const long a[6])
{
    if (proc_is_borrowed())
        return pass_on(number, a);
    switch (number) {
    case SYS_clone3:
        return make_by_args(a);
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork:
        return fork();
#endif
    default:
        break;
    }
    if (as_fork((uint64_t)a[0]) == SIGCHLD && a[1] == 0)
        return fork();
    if (((uint64_t)a[0] & LIBCS_OWN) || a[1] != 0) {
        lend((uint64_t)a[0]);
        return pass_on(number, a);
    }
    uint64_t flags = as_fork((uint64_t)a[0]);
    return make(number, a, (long)flags, flags);
}

/* ---- _Fork(2): fork(2) without the handlers of pthread_atfork, by which fork's children are counted in ---- */

pid_t _Fork(void)
{
    struct making m;
    if (!proc_on() || proc_is_borrowed() || !making_begin(&m, 0))
        return REAL(_Fork)();
    pid_t pid = REAL(_Fork)();
    int err = errno;
    if (pid == 0)
        in_child(&m);
    else
        in_parent(pid);
    errno = err;
    return pid;
}

/* ---- clone(2) ---- */

struct start {
    const struct making *making;
    int (*fn)(void *);
    void *arg;
};

static int start(void *arg)
{
    struct start s = *(struct start *)arg;
    in_child(s.making);
    return s.fn(s.arg);
}

int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
    va_list ap;
    va_start(ap, arg);
    pid_t *parent_tid = va_arg(ap, pid_t *);
    void *tls = va_arg(ap, void *);
    pid_t *child_tid = va_arg(ap, pid_t *);
    va_end(ap);
    struct making m;
    lend((uint64_t)(unsigned)flags);
    if (fn == NULL || stack == NULL || (flags & (CLONE_VM | CLONE_THREAD | CLONE_SETTLS)) || !proc_on() ||
        proc_is_borrowed() || !making_begin(&m, (uint64_t)(unsigned)flags))
        return REAL(clone)(fn, stack, flags, arg, parent_tid, tls, child_tid);
    struct start s = { .making = &m, .fn = fn, .arg = arg };
    int r = REAL(clone)(start, stack, flags & ~CLONE_VFORK, &s, parent_tid, tls, child_tid), err = errno;
    in_parent(r);
    errno = err;
    return r;
}
