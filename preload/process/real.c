/* Finds the functions that come behind ours. */
#include "preload/process/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "core/base/rawsys.h"
#include "preload/process/libc.h"

/* What an allocator may need while dlsym runs. */
static long raw_result(long r)
{
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

static ssize_t raw_read(int fd, void *buf, size_t len)
{
    return raw_result(rawsys4(__NR_read, fd, (long)buf, (long)len, 0));
}

static ssize_t raw_write(int fd, const void *buf, size_t len)
{
    return raw_result(rawsys4(__NR_write, fd, (long)buf, (long)len, 0));
}

static int raw_close(int fd)
{
    return (int)raw_result(rawsys4(__NR_close, fd, 0, 0, 0));
}

struct real_calls real_calls = { .read = raw_read, .write = raw_write, .close = raw_close };
bool real_is_ready;

static __thread bool resolving;

/*
 * dlsym returns a data pointer, which POSIX lets us use as a function's. dlsym is not asked for a name that no object
 * has: it would allocate its message, and this may run in the allocator's own start, which holds a lock.
 */
static void *behind_us(const char *name)
{
    return libc_is_behind_us(name) ? dlsym(RTLD_NEXT, name) : NULL;
}

/* Two threads may do this at once, before the constructor has run: both store the same values. */
void real_init(void)
{
    if (resolving)
        return;
    resolving = true;
    libc_init();
    struct real_calls r;
    memset(&r, 0, sizeof(r));
#define SW_CALL(ret, name, params, args) *(void **)&r.name = behind_us(#name);
#include "preload/process/calls.h"
#undef SW_CALL
    real_calls = r;
    __atomic_store_n(&real_is_ready, true, __ATOMIC_RELEASE);
    resolving = false;
}
