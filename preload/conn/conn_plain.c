/*
 * Sending to the kernel as it is, and receiving.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "preload/conn/conn.h"
#include "preload/process/real.h"
#include "preload/sock/wait.h"

ssize_t conn_broken_pipe(int flags)
{
    if (!(flags & MSG_NOSIGNAL))
        raise(SIGPIPE); /* directed at this thread, as the kernel's */
    return -EPIPE;
}

#define PIECES 64u

/* Up to most of the next octets of the program's memory, as the kernel takes it. */
static struct msghdr next_of(const struct iov_iter *it, size_t most, struct iovec iov[PIECES])
{
    struct iov_iter at = *it;
    size_t n = 0;
    void *p;
    for (size_t l; n < PIECES && (l = iov_iter_next(&at, most, &p)) > 0; most -= l)
        iov[n++] = (struct iovec){ p, l };
    return (struct msghdr){ .msg_iov = iov, .msg_iovlen = n };
}

size_t conn_recv_rest_plain(int fd, const struct iov_iter *it, size_t most, int flags)
{
    struct iovec iov[PIECES];
    struct msghdr msg = next_of(it, most, iov);
    int err = errno, mark = 0;
    if (REAL(ioctl)(fd, SIOCATMARK, &mark) == 0 && mark) /* a receive ends before the urgent octet */
        return 0;
    ssize_t got = REAL(recvmsg)(fd, &msg, flags | MSG_DONTWAIT);
    errno = err;
    return got > 0 ? (size_t)got : 0;
}

ssize_t conn_send_some(int fd, struct iov_iter *it, size_t most, int flags)
{
    struct iovec iov[PIECES];
    struct msghdr msg = next_of(it, most, iov);
    ssize_t sent = REAL(sendmsg)(fd, &msg, flags);
    if (sent < 0)
        return -errno;
    iov_iter_skip(it, (size_t)sent);
    return sent;
}

ssize_t conn_send_plain(int fd, struct iov_iter *it, size_t len, int flags, uint64_t deadline_ns)
{
    size_t done = 0;
    for (;;) {
        ssize_t n = conn_send_some(fd, it, len - done, flags | MSG_DONTWAIT);
        done += n > 0 ? (size_t)n : 0;
        if (done > 0)
            flags &= ~MSG_ZEROCOPY; /* the kernel counts calls */
        if (done == len || (n < 0 && n != -EAGAIN))
            return done > 0 ? (ssize_t)done : n;
        int r = wait_for(fd, POLLOUT, deadline_ns, NULL);
        if (r <= 0)
            return done > 0 ? (ssize_t)done : r < 0 ? r : -EAGAIN;
    }
}
