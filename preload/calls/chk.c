/*
 * The fortified entry points: the check, then the call. Compiled without _FORTIFY_SOURCE.
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/process/real.h"

/* glibc declares these only to fortified programs. */
#define SW_CALL(ret, name, params, args) extern ret name params;
#include "preload/process/calls.h"
#undef SW_CALL

extern void __chk_fail(void) __attribute__((noreturn));

ssize_t __read_chk(int fd, void *buf, size_t len, size_t buf_len)
{
    if (len > buf_len)
        __chk_fail();
    return read(fd, buf, len);
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t buf_len, int flags)
{
    if (len > buf_len)
        __chk_fail();
    return recv(fd, buf, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t buf_len, int flags, struct sockaddr *from,
                       socklen_t *from_len)
{
    if (len > buf_len)
        __chk_fail();
    return recvfrom(fd, buf, len, flags, from, from_len);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t fds_len)
{
    if (fds_len / sizeof(*fds) < n)
        __chk_fail();
    return poll(fds, n, timeout_ms);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t fds_len)
{
    if (fds_len / sizeof(*fds) < n)
        __chk_fail();
    return ppoll(fds, n, timeout, mask);
}
