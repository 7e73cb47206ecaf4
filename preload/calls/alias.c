/*
 * Second names by which libc exports some of the calls. Old programs and some libraries use them. And what the address
 * sanitizer asks for.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/process/real.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* no header has them */

ssize_t __read(int fd, void *buf, size_t len)
{
    return read(fd, buf, len);
}

ssize_t __write(int fd, const void *buf, size_t len)
{
    return write(fd, buf, len);
}

ssize_t __send(int fd, const void *buf, size_t len, int flags)
{
    return send(fd, buf, len, flags);
}

int __connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return connect(fd, addr, len);
}

int __close(int fd)
{
    return close(fd);
}

int __dup2(int fd, int fd2)
{
    return dup2(fd, fd2);
}

int __fcntl(int fd, int cmd, ...)
{
    va_list ap;
    va_start(ap, cmd);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return fcntl(fd, cmd, arg);
}

int __poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return poll(fds, n, timeout_ms);
}

int __select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
    return select(n, r, w, e, timeout);
}

pid_t __fork(void)
{
    return fork();
}

/*
 * The sanitizer's runtime demands to be the first library, so that its functions are found before libc's. Behind us it
 * works as well, because we call the next definition. It asks while it starts, before any code of ours runs.
 */
const char *__asan_default_options(void)
{
    return "verify_asan_link_order=0";
}
