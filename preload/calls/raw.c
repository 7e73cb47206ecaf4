/*
 * syscall(2) for the calls we intercept, and the ways out of the process that run no destructors.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/calls/exec.h"
#include "preload/calls/rights.h"
#include "preload/calls/ring.h"
#include "preload/calls/seccomp.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/start.h"
#include "preload/process/usermem.h"

void _exit(int status)
{
    start_finish();
    REAL(_exit)(status);
    __builtin_unreachable();
}

void _Exit(int status)
{
    start_finish();
    REAL(_Exit)(status);
    __builtin_unreachable();
}

#define P(i) ((void *)a[i])
#define I(i) ((int)a[i])
#define U(i) ((unsigned)a[i])
#define Z(i) ((size_t)a[i])
/* (libc reads time-outs by itself, where the kernel says EFAULT.) */
#define GOOD(i, type) (P(i) == NULL || usermem_readable(P(i), sizeof(type)))

/* Numbers we do not know pass; so does everything while nothing is upgraded. */
long syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (proc_ready != 2 || !proc.on)
        return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    switch (number) {
    case SYS_read:
        return read(I(0), P(1), Z(2));
    case SYS_write:
        return write(I(0), P(1), Z(2));
    case SYS_readv:
        return readv(I(0), P(1), I(2));
    case SYS_writev:
        return writev(I(0), P(1), I(2));
    case SYS_preadv2: /* (the offset is in two words, the second one empty here) */
        return preadv2(I(0), P(1), I(2), (off_t)a[3], I(5));
    case SYS_pwritev2:
        return pwritev2(I(0), P(1), I(2), (off_t)a[3], I(5));
    case SYS_close:
        return close(I(0));
    case SYS_close_range:
        return close_range(U(0), U(1), I(2));
    case SYS_socket:
        return socket(I(0), I(1), I(2));
    case SYS_bind:
        return bind(I(0), P(1), (socklen_t)a[2]);
    case SYS_listen:
        return listen(I(0), I(1));
    case SYS_accept:
        return accept(I(0), P(1), P(2));
    case SYS_accept4:
        return accept4(I(0), P(1), P(2), I(3));
    case SYS_connect:
        return connect(I(0), P(1), (socklen_t)a[2]);
    case SYS_shutdown:
        return shutdown(I(0), I(1));
    case SYS_getsockname:
        return getsockname(I(0), P(1), P(2));
    case SYS_getpeername:
        return getpeername(I(0), P(1), P(2));
    case SYS_getsockopt:
        return getsockopt(I(0), I(1), I(2), P(3), P(4));
    case SYS_setsockopt:
        return setsockopt(I(0), I(1), I(2), P(3), (socklen_t)a[4]);
    case SYS_sendto:
        return sendto(I(0), P(1), Z(2), I(3), P(4), (socklen_t)a[5]);
    case SYS_recvfrom:
        return recvfrom(I(0), P(1), Z(2), I(3), P(4), P(5));
    case SYS_sendmsg:
        return sendmsg(I(0), P(1), I(2));
    case SYS_recvmsg:
        return recvmsg(I(0), P(1), I(2));
    case SYS_sendmmsg:
        return sendmmsg(I(0), P(1), U(2), I(3));
    case SYS_recvmmsg:
        return recvmmsg(I(0), P(1), U(2), I(3), P(4));
    case SYS_sendfile:
        return sendfile(I(0), I(1), P(2), Z(3));
    case SYS_splice:
        return splice(I(0), P(1), I(2), P(3), Z(4), U(5));
    case SYS_dup:
        return dup(I(0));
    case SYS_dup3:
        return dup3(I(0), I(1), I(2));
    case SYS_fcntl:
        return fcntl(I(0), I(1), P(2));
    case SYS_ioctl:
        return ioctl(I(0), (unsigned long)a[1], P(2));
    case SYS_epoll_create1:
        return epoll_create1(I(0));
    case SYS_epoll_ctl:
        return epoll_ctl(I(0), I(1), I(2), P(3));
#ifdef SYS_dup2
    case SYS_dup2:
        return dup2(I(0), I(1));
    case SYS_poll:
        return poll(P(0), (nfds_t)a[1], I(2));
    case SYS_select: {
        struct timeval fixed, *timeout = P(4);
        if (!GOOD(4, struct timeval))
            break;
        if (timeout != NULL && !usermem_writable(timeout, sizeof(*timeout))) { /* libc would write there, too */
            fixed = *timeout;
            timeout = &fixed;
        }
        return select(I(0), P(1), P(2), P(3), timeout);
    }
    case SYS_epoll_create:
        return epoll_create(I(0));
    case SYS_epoll_wait:
        return epoll_wait(I(0), P(1), I(2), I(3));
#endif
    case SYS_epoll_pwait:
        return epoll_pwait(I(0), P(1), I(2), I(3), P(4));
    case SYS_epoll_pwait2:
        return epoll_pwait2(I(0), P(1), I(2), P(3), P(4));
    case SYS_pselect6: {
        const struct {
            const sigset_t *set;
            size_t len;
        } *mask = P(5);
        if (!GOOD(4, struct timespec) || !GOOD(5, *mask))
            break;
        return pselect(I(0), P(1), P(2), P(3), P(4), mask != NULL ? mask->set : NULL);
    }
    case SYS_clone:
    case SYS_clone3:
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork:
#endif
        return clone_syscall(number, a);
    case SYS_execve:
        return execve(P(0), P(1), P(2));
    case SYS_execveat:
        return execveat(I(0), P(1), P(2), P(3), I(4));
    case SYS_ppoll:
        if (!GOOD(2, struct timespec))
            break;
        return ppoll(P(0), (nfds_t)a[1], P(2), P(3));
    case SYS_rt_sigaction:
        return signals_rt_sigaction(a);
    case SYS_io_uring_setup:
        return ring_setup(a);
    case SYS_io_uring_enter:
        return ring_enter(a);
    case SYS_io_uring_register:
        return ring_register(a);
    case SYS_prctl:
        return prctl(I(0), a[1], a[2], a[3], a[4]);
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setfsuid:
    case SYS_setfsgid:
    case SYS_setgroups:
    case SYS_capset:
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_unshare:
    case SYS_setns:
    case SYS_landlock_restrict_self:
        return rights_syscall(number, a);
    case SYS_seccomp:
        return seccomp_call(U(0), U(1), P(2));
    case SYS_exit_group:
        start_finish();
        break;
    default:
        break;
    }
    return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
