/*
 * Appending lines to files.
 */
#include "core/base/append.h"

#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/base/rawsys.h"

/* Links that root and the kernel have made, to files that the program has open. */
static bool is_stream(const char *path)
{
    static const char *const streams[] = { "/dev/stdout", "/dev/stderr" };
    static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/" };
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        if (strcmp(path, streams[i]) == 0 ||
            (strncmp(path, folders[i], n) == 0 && path[n] != '\0' && path[n + strspn(path + n, "0123456789")] == '\0'))
            return true;
    }
    return false;
}

/* Would appending that much exceed the limit of file sizes? (The kernel would answer by SIGXFSZ.) */
static bool beyond_limit(const struct stat *st, size_t len)
{
    struct rlimit lim;
    return S_ISREG(st->st_mode) && getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY &&
           (rlim_t)st->st_size + len > lim.rlim_cur;
}

/* A descriptor that neither blocks nor survives exec, or -errno. Regular files, FIFOs with a reader, character devices. */
static int open_as(const char *path, struct stat *st)
{
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (is_stream(path) ? 0 : O_NOFOLLOW);
    int fd = rawsys_open(path, flags, 0666);
    if (fd < 0)
        return fd;
    int keep = errno;
    int r = fstat(fd, st) < 0 ? -errno : 0;
    if (r == 0 && !S_ISREG(st->st_mode) && !S_ISFIFO(st->st_mode) && !S_ISCHR(st->st_mode))
        r = -EINVAL;
    errno = keep;
    if (r == 0)
        return fd;
    rawsys_close(fd);
    return r;
}

int append_line(const char *path, const char *line, size_t len)
{
    struct stat st;
    int keep = errno;
    int fd = open_as(path, &st);
    if (fd < 0)
        return fd;
    ssize_t n = beyond_limit(&st, len) ? -EFBIG : rawsys_write(fd, line, len);
    rawsys_close(fd);
    errno = keep;
    return n < 0 ? (int)n : (size_t)n == len ? 0 : -EIO;
}
