/*
 * The life of descriptors: close, dup, fcntl, ioctl.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "preload/cancel.h"
#include "preload/conn.h"
#include "preload/drive.h"
#include "preload/epoll.h"
#include "preload/fdops.h"
#include "preload/hidden.h"
#include "preload/probe.h"
#include "preload/proc.h"
#include "preload/ready.h"
#include "preload/real.h"
#include "preload/stdio.h"

/* fd is about to go (closed or replaced). A vfork child's descriptors are its own, our tables its parent's. */
void fdops_leaves(int fd)
{
    int err = errno;
    struct sock *s = sock_get(fd);
    bool set = epoll_tracks(fd);
    if ((s != NULL || set) && !proc_is_borrowed()) {
        struct cancel hold = cancel_hold();
        if (s != NULL)
            sock_drop(fd, true);
        if (set)
            epoll_closed(fd);
        cancel_restore(hold);
    }
    if (s != NULL)
        sock_put(s);
    errno = err; /* the call itself says what there is to say */
}

int close(int fd)
{
    if (proc_on()) {
        if (SW_UNLIKELY(hidden_is(fd))) {
            errno = EBADF; /* as far as the program knows, it is not open */
            return -1;
        }
        fdops_leaves(fd);
    }
    return REAL(close)(fd);
}

static void leave_range(unsigned first, unsigned last)
{
    unsigned socks = (unsigned)sock_fd_limit(), sets = (unsigned)epoll_fd_limit();
    for (unsigned fd = first; fd <= last && (fd < socks || fd < sets); fd++)
        fdops_leaves((int)fd);
}

int close_range(unsigned first, unsigned last, int flags)
{
    if (proc_on() && first <= last && !(flags & (int)CLOSE_RANGE_CLOEXEC) && !proc_is_borrowed())
        leave_range(first, last);
    if (first > last || !proc_on())
        return REAL(close_range)(first, last, flags);
    int r = 0;
    for (int ours; r == 0 && (ours = hidden_next(first, last)) >= 0; first = (unsigned)ours + 1)
        if ((unsigned)ours > first)
            r = REAL(close_range)(first, (unsigned)ours - 1, flags);
    return r < 0 || first > last ? r : REAL(close_range)(first, last, flags);
}

void closefrom(int lowfd)
{
    if (close_range(lowfd < 0 ? 0 : (unsigned)lowfd, UINT_MAX, 0) < 0)
        REAL(closefrom)(lowfd); /* a kernel before 5.9 */
}

static void follow(int fd, int fd2)
{
    struct sock *s = sock_get(fd), *old = sock_get(fd2);
    bool set = epoll_tracks(fd) || epoll_tracks(fd2);
    if (old != NULL)
        sock_put(old);
    if ((s == NULL && old == NULL && !set) || proc_is_borrowed()) {
        if (s != NULL)
            sock_put(s);
        return;
    }
    if (s != NULL) {
        sock_dup(s, fd2);
        sock_put(s);
    } else {
        sock_drop(fd2, false);
    }
    if (set)
        epoll_duped(fd, fd2);
}

/* fd2 is a new name for what fd names. */
static int duped(int fd, int fd2)
{
    if (fd2 >= 0 && proc_on()) {
        follow(fd, fd2);
        stdio_changed(fd2);
    }
    return fd2;
}

int dup(int fd)
{
    return duped(fd, REAL(dup)(fd));
}

static void replaced(int fd, int fd2)
{
    /* Only if the call will succeed: fd must be open. */
    if (proc_on() && fd != fd2 && REAL(fcntl)(fd, F_GETFD) >= 0)
        fdops_leaves(fd2);
}

int dup2(int fd, int fd2)
{
    replaced(fd, fd2);
    int r = REAL(dup2)(fd, fd2);
    return fd == fd2 ? r : duped(fd, r);
}

int dup3(int fd, int fd2, int flags)
{
    if ((flags & ~O_CLOEXEC) == 0)
        replaced(fd, fd2);
    return duped(fd, REAL(dup3)(fd, fd2, flags));
}

static int fcntl_arg(int fd, int cmd, void *arg)
{
    int r = REAL(fcntl)(fd, cmd, arg);
    if (r < 0 || !proc_on())
        return r;
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
        return duped(fd, r);
    if (cmd == F_SETFL) {
        struct sock *s = sock_get(fd);
        if (s != NULL) {
            atomic_store(&s->nonblock, ((intptr_t)arg & O_NONBLOCK) != 0);
            sock_put(s);
        }
    }
    return r;
}

int fcntl(int fd, int cmd, ...)
{
    va_list ap;
    va_start(ap, cmd);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return fcntl_arg(fd, cmd, arg);
}

int fcntl64(int fd, int cmd, ...)
{
    va_list ap;
    va_start(ap, cmd);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return fcntl_arg(fd, cmd, arg);
}

/* Octets a read would give; those still in the kernel are taken in first, as far as staging goes. */
static int readable_octets(struct conn *c, int fd)
{
    if (turn_take_brief(&c->rx) < 0)
        return 0;
    conn_rx_all(c, fd);
    size_t n = conn_rx_avail(c);
    turn_give(&c->rx);
    return n > INT_MAX ? INT_MAX : (int)n;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    struct sock *s = proc_on() ? sock_get(fd) : NULL;
    if (s == NULL)
        return REAL(ioctl)(fd, request, arg);
    int r, err = errno;
    if (request == FIONREAD && atomic_load(&s->active) && probe_can_write(arg, sizeof(int)) &&
        conn_state(s->conn) != CONN_CONNECTING) {
        if (conn_state(s->conn) == CONN_NEGOTIATING) {
            int e = drive_sock(s, true);
            (void)e;
        }
        if (conn_state(s->conn) == CONN_NEGOTIATING)
            *(int *)arg = 0;
        else if (conn_state(s->conn) == CONN_PLAIN) {
            int kernel = 0;
            REAL(ioctl)(fd, request, &kernel);
            *(int *)arg = kernel + (int)conn_rx_avail(s->conn);
        } else {
            *(int *)arg = readable_octets(s->conn, fd);
            ready_left_over(s); /* the kernel will not report them again */
        }
        r = 0;
        errno = err;
    } else {
        r = REAL(ioctl)(fd, request, arg);
        if (r == 0 && request == FIONBIO)
            atomic_store(&s->nonblock, *(int *)arg != 0);
    }
    sock_put(s);
    return r;
}
