/* What the library may still do under a seccomp filter of the program's. */
#include "preload/process/sandbox.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "preload/process/real.h"

_Atomic bool sandbox_entered;

ssize_t sandbox_recv(int fd, void *buf, size_t len, int flags)
{
    if (!sandbox_on())
        return REAL(recv)(fd, buf, len, flags);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    if ((flags & MSG_DONTWAIT) && REAL(poll)(&p, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return REAL(read)(fd, buf, len);
}

/*
 * write, not writev: the filter of a program that only writes need not allow writev. The largest frame is one write,
 * because Nagle's rule would delay its end until an acknowledgement. This is a function of its own, apart from
 * sandbox_sendmsg: the compiler probes each page of so large a stack frame, and a sending thread may have less stack
 * than that.
 */
static __attribute__((noinline)) ssize_t write_all(int fd, const struct msghdr *msg)
{
    char buf[68 * 1024];
    size_t sent = 0, used = 0;
    for (size_t i = 0; i < msg->msg_iovlen; i++) {
        const char *p = msg->msg_iov[i].iov_base;
        for (size_t left = msg->msg_iov[i].iov_len; left > 0;) {
            size_t n = left < sizeof(buf) - used ? left : sizeof(buf) - used;
            memcpy(buf + used, p, n);
            p += n;
            left -= n;
            used += n;
            if (used < sizeof(buf) && (left > 0 || i + 1 < msg->msg_iovlen))
                continue;
            ssize_t r = REAL(write)(fd, buf, used);
            if (r > 0)
                sent += (size_t)r;
            if (r != (ssize_t)used)
                return sent > 0 ? (ssize_t)sent : r;
            used = 0;
        }
    }
    return (ssize_t)sent;
}

ssize_t sandbox_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    return sandbox_on() ? write_all(fd, msg) : REAL(sendmsg)(fd, msg, flags);
}

int sandbox_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
    if (!sandbox_on())
        return REAL(setsockopt)(fd, level, name, val, len);
    errno = EPERM;
    return -1;
}

int sandbox_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
    if (!sandbox_on())
        return REAL(getsockopt)(fd, level, name, val, len);
    errno = EPERM;
    return -1;
}
