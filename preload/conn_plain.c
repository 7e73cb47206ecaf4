/*
 * Sending in streaming mode: before it is decided whether the connection is accelerated, and of what it then was not.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "preload/conn.h"
#include "preload/epoll.h"
#include "preload/proc.h"
#include "preload/real.h"
#include "preload/startup.h"
#include "preload/wait.h"

ssize_t conn_broken_pipe(int flags)
{
    if (!(flags & MSG_NOSIGNAL))
        raise(SIGPIPE); /* directed at this thread, as the kernel's */
    return -EPIPE;
}

#define UNDECIDED_LEN 65536u /* sent plain at a time: between two pieces the Hello is looked for */

/* Up to most of the next octets to the kernel as they are. Octets sent, -errno. */
static ssize_t send_plain(int fd, struct iov_iter *it, size_t most, int flags)
{
    struct iovec iov[64];
    struct iov_iter at = *it;
    size_t n = 0, left = most;
    void *p;
    for (size_t l; n < SW_ARRAY_LEN(iov) && (l = iov_iter_next(&at, left, &p)) > 0; left -= l)
        iov[n++] = (struct iovec){ p, l };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
    ssize_t sent = REAL(sendmsg)(fd, &msg, flags);
    if (sent < 0)
        return -errno;
    iov_iter_skip(it, (size_t)sent);
    return sent;
}

ssize_t conn_send_undecided(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                              size_t *done)
{
    bool wait = !atomic_load(&s->nonblock) && !(flags & MSG_DONTWAIT);
    bool late = false;
    uint64_t deadline = 0;
    for (;;) {
        int r = wait ? startup_go_on(s, false) : startup_hurry(s);
        enum conn_state st = conn_state(c);
        if (st != CONN_NEGOTIATING && st != CONN_CONNECTING)
            return 0;
        if (conn_shuts_later(c, SHUT_WR))
            return *done > 0 ? 0 : conn_broken_pipe(flags);
        if (*done == len)
            return 0;
        short events = (short)c->kernel_wants;
        if (conn_speaks_plain(c) && !late) { /* (the time is over: room that is found now comes too late) */
            ssize_t n = wait ? turn_take(&c->tx, 0, true) : turn_take_brief(&c->tx);
            if (n < 0)
                return *done > 0 ? 0 : n == -EINTR ? n : -EAGAIN;
            size_t part = len - *done < UNDECIDED_LEN ? len - *done : UNDECIDED_LEN;
            if (conn_speaks_plain(c)) {
                if (*done > 0)
                    flags &= ~MSG_ZEROCOPY; /* the kernel counts calls */
                n = send_plain(fd, it, part, flags | MSG_DONTWAIT);
                if (n > 0) {
                    c->found = false;
                    c->neg.streamed += (uint64_t)n;
                    c->kernel_tx += (uint64_t)n;
                    atomic_fetch_add(&c->plain_tx, (uint64_t)n);
                    *done += (size_t)n;
                }
            }
            turn_give(&c->tx);
            if (n >= 0)
                continue;
            if (n == -EAGAIN && s->watches != NULL)
                epoll_out_blocked(s);
            if (n != -EAGAIN || !wait)
                return *done > 0 ? 0 : n;
            events = POLLIN | POLLOUT;
        }
        if (!wait || late || r == -EDEADLK)
            return *done > 0 ? 0 : -EAGAIN;
        if (deadline == 0)
            deadline = wait_call_deadline(fd, SO_SNDTIMEO);
        sock_sleep(s);
        fd = sock_fd_now(s, fd);
        r = wait_for(fd, events, deadline, s);
        sock_wake(s);
        fd = sock_fd_now(s, fd);
        if (r < 0)
            return *done > 0 ? 0 : r;
        late = r == 0 && deadline != 0 && proc_now_ns() >= deadline; /* another thread may have been in time */
    }
}

ssize_t conn_send_plain(int fd, struct iov_iter *it, size_t len, int flags, uint64_t deadline_ns)
{
    size_t done = 0;
    for (;;) {
        ssize_t n = send_plain(fd, it, len - done, flags | MSG_DONTWAIT);
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

ssize_t conn_send_rest_plain(int fd, struct iov_iter *it, size_t len, size_t done, int flags)
{
    while (done < len) {
        ssize_t n = send_plain(fd, it, len - done, flags);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}
