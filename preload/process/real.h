/*
 * The calls as they would be without us: the next definition behind this library (libc, or another interposer).
 *
 * All are resolved at once, before the first of our wrappers does anything, so that no dlsym happens in a forked
 * child or a signal handler. A call made while resolving is under way (dlsym may allocate, and the allocator may be
 * an interposer that reads files) enters the kernel directly.
 */
#ifndef SW_PRELOAD_REAL_H
#define SW_PRELOAD_REAL_H

#include <dlfcn.h>
#include <linux/types.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct io_uring;
struct io_uring_params;
struct io_uring_cqe;
struct __kernel_timespec;

struct real_calls {
#define SW_CALL(ret, name, params, args) ret(*name) params;
#include "preload/process/calls.h"
#undef SW_CALL
};

extern struct real_calls real_calls;
extern bool real_is_ready;

/* Resolves all; idempotent, from any thread. A call libc does not have stays NULL (and is never called by us). */
void real_init(void);

static inline struct real_calls *real_get(void)
{
    if (__builtin_expect(!__atomic_load_n(&real_is_ready, __ATOMIC_ACQUIRE), 0))
        real_init();
    return &real_calls;
}

/* REAL(read)(fd, buf, len) */
#define REAL(name) (real_get()->name)

#endif
