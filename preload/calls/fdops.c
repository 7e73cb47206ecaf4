/*
 * The life of descriptors: close, dup, fcntl, ioctl.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "preload/calls/bridge.h"
#include "preload/calls/fdops.h"
#include "preload/calls/ring.h"
#include "preload/calls/stdio.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/process/cancel.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/sock/notify.h"
#include "preload/startup/startup.h"

/* A vfork child's descriptors are its own, our tables its parent's. */
struct sock *fdops_close_begin(int fd, bool replaced)
{
    int err = errno;
    struct sock *s = sock_get(fd), *left = NULL;
    bool set = epoll_tracks(fd);
    if (ring_any() && !proc_is_borrowed())
        ring_closed(fd);
    if ((s != NULL || set) && !proc_is_borrowed()) {
        struct cancel hold = cancel_never();
        if (s != NULL)
            left = sock_close_begin(fd, replaced);
        if (set)
            epoll_closed(fd);
        cancel_restore(hold);
    }
    if (s != NULL)
        sock_put(s);
    errno = err; /* the call itself says what there is to say */
    return left;
}

void fdops_close_end(int fd, struct sock *s)
{
    if (s == NULL)
        return;
    int err = errno;
    struct cancel hold = cancel_never();
    sock_close_end(fd, s);
    cancel_restore(hold);
    errno = err;
}

int close(int fd)
{
    if (!proc_on())
        return REAL(close)(fd);
    if (SW_UNLIKELY(hidden_is(fd)))
        return 0; /* found in /proc/self/fd by a program that closes all descriptors */
    if (sock_is_closing(fd))
        return -1;
    cancel_enter();
    struct sock *s = fdops_close_begin(fd, false);
    if (s == NULL)
        return REAL(close)(fd);
    /* The close is completed: a thread that is cancelled now ends at its next call. */
    struct cancel hold = cancel_never();
    int r = REAL(close)(fd);
    cancel_restore(hold);
    fdops_close_end(fd, s);
    return r;
}

/* Does fd name the open file of s, which has a connection? */
static bool names(int fd, const struct sock *s)
{
    return s->conn == NULL || s->conn->record.ino == 0 || sock_ino(fd) == s->conn->record.ino;
}

/* fd2 is a new descriptor of s, which fd named before the call. False: another thread has closed s meanwhile. */
static bool follow(int fd, struct sock *s, int fd2)
{
    bool set = epoll_tracks(fd) || epoll_tracks(fd2), done = true;
    if (s != NULL && names(fd2, s))
        done = sock_dup(s, fd2);
    else
        sock_drop(fd2);
    if (set && done)
        epoll_duped(fd, fd2);
    return done;
}

/* The end of a call that makes fd2 a new descriptor of s, which fd named before the call. Takes the reference. */
static int duped(int fd, struct sock *s, int fd2)
{
    if (fd2 >= 0 && proc_on()) {
        int err = errno;
        if (!proc_is_borrowed() && !follow(fd, s, fd2)) {
            REAL(close)(fd2);
            err = EBADF;
            fd2 = -1;
        } else {
            stdio_changed(fd2);
        }
        errno = err;
    }
    if (s != NULL)
        sock_put(s);
    return fd2;
}

/* The sock of fd before the call. False: another thread is closing it. */
static bool to_dup(int fd, struct sock **s)
{
    *s = proc_on() ? sock_get(fd) : NULL;
    return *s != NULL || !sock_is_closing(fd);
}

int dup(int fd)
{
    struct sock *s;
    return to_dup(fd, &s) ? duped(fd, s, REAL(dup)(fd)) : -1;
}

static struct sock *replaced(int fd, int fd2)
{
    /* Only if the call will succeed: fd must be open. */
    return proc_on() && fd != fd2 && REAL(fcntl)(fd, F_GETFD) >= 0 ? fdops_close_begin(fd2, true) : NULL;
}

/*
 * fd2 is about to become another descriptor of fd's file: a hidden descriptor with that number moves away. False: it
 * cannot.
 */
static bool makes_way(int fd, int fd2)
{
    if (!proc_on() || SW_LIKELY(!hidden_is(fd2)) || fd == fd2 || proc_is_borrowed() || REAL(fcntl)(fd, F_GETFD) < 0 ||
        hidden_yield(fd2) == 0)
        return true;
    errno = EBUSY;
    return false;
}

int dup2(int fd, int fd2)
{
    struct sock *s;
    if (!makes_way(fd, fd2) || !to_dup(fd, &s))
        return -1;
    struct sock *old = replaced(fd, fd2);
    int r = REAL(dup2)(fd, fd2);
    if (fd != fd2)
        r = duped(fd, s, r);
    else if (s != NULL)
        sock_put(s);
    fdops_close_end(fd2, old);
    return r;
}

int dup3(int fd, int fd2, int flags)
{
    struct sock *s, *old = NULL;
    if (((flags & ~O_CLOEXEC) == 0 && !makes_way(fd, fd2)) || !to_dup(fd, &s))
        return -1;
    if ((flags & ~O_CLOEXEC) == 0)
        old = replaced(fd, fd2);
    int r = duped(fd, s, REAL(dup3)(fd, fd2, flags));
    fdops_close_end(fd2, old);
    return r;
}

static int fcntl_arg(int fd, int cmd, void *arg)
{
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) {
        struct sock *s;
        return to_dup(fd, &s) ? duped(fd, s, REAL(fcntl)(fd, cmd, arg)) : -1;
    }
    int r = REAL(fcntl)(fd, cmd, arg);
    if (r < 0 || !proc_on())
        return r;
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

/* Is the urgent mark the stream's, and not the kernel's? */
static bool marks_itself(struct sock *s, int fd)
{
    if (s->conn->neg.deferred)
        startup_before_call(s, s->conn, fd, false);
    return conn_state(s->conn) == CONN_UPGRADED && !conn_is_unsaid(s->conn);
}

/* Is the urgent byte the next one? */
static int at_mark(struct conn *c, int fd)
{
    if (turn_take_brief(&c->rx.turn) < 0)
        return 0;
    conn_rx_all(c, fd);
    bool yes = conn_rx_at_mark(c);
    turn_give(&c->rx.turn);
    return yes;
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
    int r, err = errno, tcp = request == SIOCOUTQ ? bridge_hold(fd) : -1, under_way = 0;
    if (SW_UNLIKELY(tcp >= 0)) {
        REAL(ioctl)(tcp, SIOCOUTQ, &under_way);
        bridge_release();
    }
    coalesce_send_fd(fd); /* SIOCOUTQ counts it */
    if (request == FIONREAD && atomic_load(&s->active) && usermem_writable(arg, sizeof(int)) &&
        conn_state(s->conn) != CONN_CONNECTING) {
        if (conn_state(s->conn) == CONN_NEGOTIATING) {
            int e = startup_go_on(s, true);
            (void)e;
        }
        if (conn_state(s->conn) == CONN_NEGOTIATING)
            *(int *)arg = 0;
        else if (conn_state(s->conn) == CONN_PLAIN) {
            int kernel = 0;
            REAL(ioctl)(fd, request, &kernel);
            *(int *)arg = kernel + (int)conn_rx_avail(s->conn);
        } else {
            *(int *)arg = conn_rx_waiting(s, fd);
        }
        r = 0;
        errno = err;
    } else if (request == SIOCATMARK && atomic_load(&s->active) && marks_itself(s, fd) &&
               usermem_writable(arg, sizeof(int))) {
        *(int *)arg = at_mark(s->conn, fd);
        notify_readable(s);
        r = 0;
        errno = err;
    } else {
        r = REAL(ioctl)(fd, request, arg);
        if (r == 0 && request == FIONBIO)
            atomic_store(&s->nonblock, *(int *)arg != 0);
        if (r == 0 && under_way > 0)
            *(int *)arg += under_way;
    }
    sock_put(s);
    return r;
}

/* (libc's calls an ioctl of its own.) */
int sockatmark(int fd)
{
    int mark;
    return ioctl(fd, SIOCATMARK, &mark) < 0 ? -1 : mark;
}
