/*
 * System calls without libc. The preload library interposes write(), close() and syscall() itself,
 * so what must not come back to us (log lines, the message of a failed check) enters the kernel
 * here.
 *
 * Every function returns what the kernel returns: a count or -errno. errno is not touched. All are
 * async-signal-safe and fork-safe; none is a cancellation point. x86-64 and aarch64.
 */
#ifndef SW_BASE_RAWSYS_H
#define SW_BASE_RAWSYS_H

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/types.h>

#if defined(__x86_64__) && !defined(__ILP32__)

/* System V AMD64 kernel convention: number in rax, rcx and r11 are lost. */
static inline long rawsys4(long nr, long a, long b, long c, long d)
{
    long ret;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return ret;
}

static inline long rawsys6(long nr, long a, long b, long c, long d, long e, long f)
{
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

#elif defined(__aarch64__)

static inline long rawsys4(long nr, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}

static inline long rawsys6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

#else
#error "core/base/rawsys.h: only x86-64 and aarch64 are supported"
#endif

static inline ssize_t rawsys_write(int fd, const void *buf, size_t len)
{
    return rawsys4(__NR_write, fd, (long)buf, (long)len, 0);
}

static inline ssize_t rawsys_read(int fd, void *buf, size_t len)
{
    return rawsys4(__NR_read, fd, (long)buf, (long)len, 0);
}

/* The absolute or cwd-relative path; flags and mode as open(2). */
static inline int rawsys_open(const char *path, int flags, int mode)
{
    return (int)rawsys4(__NR_openat, AT_FDCWD, (long)path, flags, mode);
}

static inline int rawsys_close(int fd)
{
    return (int)rawsys4(__NR_close, fd, 0, 0, 0);
}

/* Not cached, so it is right in a forked child. */
static inline pid_t rawsys_getpid(void)
{
    return (pid_t)rawsys4(__NR_getpid, 0, 0, 0, 0);
}

static inline pid_t rawsys_gettid(void)
{
    return (pid_t)rawsys4(__NR_gettid, 0, 0, 0, 0);
}

/* Of the calling thread. */
static inline uid_t rawsys_geteuid(void)
{
    return (uid_t)rawsys4(__NR_geteuid, 0, 0, 0, 0);
}

/*
 * Writes all of buf, as far as the kernel takes it: goes on after a short write or a signal, gives up at any other
 * error (a full non-blocking stderr loses the line, since the log must never delay the program).
 */
static inline void rawsys_write_all(int fd, const void *buf, size_t len)
{
    const char *p = buf;
    while (len > 0) {
        ssize_t n = rawsys_write(fd, p, len);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return;
        p += n;
        len -= (size_t)n;
    }
}

#endif
