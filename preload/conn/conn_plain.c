/* Sending to the kernel without frames, and receiving so. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_plain.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/wait.h"

ssize_t conn_broken_pipe(int flags)
{
    proc_let_end();
    if (!(flags & MSG_NOSIGNAL))
        raise(SIGPIPE); /* raised for this thread, as the kernel does */
    return -EPIPE;
}

#define PIECES 64u

/* Describes up to `most` of the next bytes of the program's memory, as the kernel takes them, behind n pieces. */
static struct msghdr next_of(const struct iov_iter *it, size_t most, struct iovec iov[PIECES], size_t n)
{
    struct iov_iter at = *it;
    void *p;
    for (size_t l; n < PIECES && (l = iov_iter_next(&at, most, &p)) > 0; most -= l)
        iov[n++] = (struct iovec){ p, l };
    return (struct msghdr){ .msg_iov = iov, .msg_iovlen = n };
}

/* Returns a number of bytes; 0: the end, or an urgent byte, before which a receive ends; -errno. */
static ssize_t recv_there(int fd, const struct iov_iter *it, size_t most, int flags)
{
    struct iovec iov[PIECES];
    struct msghdr msg = next_of(it, most, iov, 0);
    int err = errno, mark = 0;
    if (REAL(ioctl)(fd, SIOCATMARK, &mark) == 0 && mark)
        return 0;
    ssize_t got = REAL(recvmsg)(fd, &msg, (flags & ~MSG_WAITALL) | MSG_DONTWAIT);
    got = got < 0 ? -errno : got;
    errno = err;
    return got;
}

/*
 * Waits until the kernel has that many bytes, by its low-water mark (the program's own mark includes bytes that were
 * given already). Returns as wait_for.
 */
static int await_rest(struct sock *s, int fd, size_t there, uint64_t deadline_ns)
{
    struct conn *c = s->conn;
    int lowat = (int)atomic_load(&c->rx.user_lowat), least = there < INT_MAX ? (int)there : INT_MAX;
    if (least != lowat)
        REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least));
    turn_sleep(&c->rx.turn);
    int r = wait_for(fd, POLLIN, deadline_ns, s);
    turn_wake(&c->rx.turn);
    if (least != lowat)
        REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
    return r;
}

#define FOREVER_NS ((uint64_t)INT64_MAX) /* any signal ends a wait with a deadline, as it ends a recv that has bytes */

/* *got bytes were there before; n is the result of a receive. False: it is no use to wait for more. */
static bool count_rest(struct conn *c, struct iov_iter *at, size_t *got, ssize_t n, int flags)
{
    if (n < 0 && n != -EAGAIN)
        atomic_store(&c->so_error, (int)-n);
    if (n <= 0)
        return n == -EAGAIN;
    size_t before = *got;
    *got = (size_t)n;
    if (flags & MSG_PEEK)
        return *got != before; /* it waits for no more than a part of its buffer */
    *got += before;
    iov_iter_skip(at, (flags & MSG_TRUNC) ? 0 : (size_t)n);
    return true;
}

size_t conn_recv_rest_plain(struct sock *s, int fd, const struct iov_iter *it, size_t need, size_t most, int flags)
{
    struct iov_iter at = *it;
    size_t got = 0;
    bool peek = flags & MSG_PEEK;
    uint64_t deadline = need > 0 ? wait_call_deadline(fd, SO_RCVTIMEO) : 0;
    for (;;) {
        ssize_t n = recv_there(fd, &at, peek ? most : most - got, flags);
        if (!count_rest(s->conn, &at, &got, n, flags) || got >= need)
            return got;
        if (await_rest(s, fd, peek ? need : need - got, deadline != 0 ? deadline : FOREVER_NS) <= 0)
            return got;
        fd = sock_fd_now(s, fd);
    }
}

ssize_t conn_send_behind(int fd, const uint8_t *lead, size_t lead_len, struct iov_iter *it, size_t most, int flags)
{
    struct iovec iov[PIECES];
    iov[0] = (struct iovec){ (void *)(uintptr_t)lead, lead_len };
    struct msghdr msg = next_of(it, most, iov, lead_len > 0 ? 1 : 0);
    ssize_t sent = REAL(sendmsg)(fd, &msg, flags);
    if (sent < 0)
        return -errno;
    if ((size_t)sent > lead_len)
        iov_iter_skip(it, (size_t)sent - lead_len);
    return sent;
}

ssize_t conn_send_some(int fd, struct iov_iter *it, size_t most, int flags)
{
    return conn_send_behind(fd, NULL, 0, it, most, flags);
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
