/*
 * The calls that move bytes: what those that read and those that send have in common.
 */
#include "preload/calls/io.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>

#include "core/base/foreign.h"
#include "core/base/trace.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_plain.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"
#include "preload/startup/dispatch.h"

/* ---- what the program gives ---- */

ssize_t io_vector_len(const struct iovec *iov, size_t n)
{
    size_t sum = 0;
    if (!usermem_readable(iov, n * sizeof(*iov)))
        return -EFAULT;
    for (size_t i = 0; i < n; i++) {
        size_t len = iov[i].iov_len;
        if (len > SSIZE_MAX)
            return -EINVAL;
        if ((n > 1 && io_beyond_memory(len)) || (intptr_t)iov[i].iov_base < 0) /* the kernel's half */
            return -EFAULT;
        sum += len < IO_LEN_MAX - sum ? len : IO_LEN_MAX - sum;
    }
    return (ssize_t)sum;
}

int io_header_check(const struct msghdr *msg, int flags)
{
    if (flags & IO_MSG_COMPAT)
        return -EINVAL;
    if (msg == NULL || !usermem_readable(msg, sizeof(*msg)))
        return -EFAULT;
    if (msg->msg_name != NULL && (int)msg->msg_namelen < 0)
        return -EINVAL;
    return msg->msg_iovlen > IOV_MAX ? -EMSGSIZE : 0;
}

bool io_refused(int fd, size_t len)
{
    if (SW_LIKELY(!io_beyond_memory(len)) || !io_is_active(fd))
        return false;
    errno = EFAULT;
    return true;
}

/* Flags that the kernel knows; it refuses others. */
#define RWF_NOWAIT_BIT 0x8
#define RWF_KNOWN 0x1f

int io_rwf_to_msg(int flags)
{
    return (flags & RWF_NOWAIT_BIT) ? MSG_DONTWAIT : 0;
}

bool io_not_for_us(int n, off_t off, int flags)
{
    return off != -1 || n < 0 || n > IOV_MAX || (flags & ~RWF_KNOWN) != 0;
}

bool io_unknown_flags(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    if (off != -1 || n <= 0 || n > IOV_MAX || (flags & ~RWF_KNOWN) == 0 || !io_is_active(fd) ||
        io_vector_len(iov, (size_t)n) <= 0)
        return false;
    errno = EOPNOTSUPP;
    return true;
}

/* ---- one call ---- */

bool io_is_active(int fd)
{
    struct sock *s = sock_get_active(fd);
    if (s != NULL)
        sock_put(s);
    return s != NULL;
}

/*
 * The program has closed fd by a call that we did not see, and the number is another file by now, or none: forgets the
 * connection.
 */
static bool reused(struct sock *s, int fd)
{
    struct sock *now = sock_get(fd);
    if (now == NULL)
        return false;
    sock_put(now);
    if (now != s || (s->conn->record.ino != 0 && sock_ino(fd) == s->conn->record.ino))
        return false;
    trace_info("fd %d was closed behind our back", fd);
    atomic_store(&s->closed_unseen, true);
    sock_drop(fd);
    return true;
}

static ssize_t checked(struct sock *s, int fd, ssize_t r)
{
    return SW_UNLIKELY(r == -ENOTSOCK || r == -EBADF) && reused(s, fd) ? CONN_ASK_KERNEL : r;
}

ssize_t io_in_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags)
{
    int err = errno;
    struct iov_iter it = iov_iter_init(iov, n);
    ssize_t len = io_vector_len(iov, n);
    ssize_t r = len < 0 ? len : checked(s, fd, dispatch_recv(s, fd, &it, (size_t)len, flags & ~IO_MSG_COMPAT));
    errno = err;
    return r;
}

ssize_t io_out_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags)
{
    int err = errno;
    struct iov_iter it = iov_iter_init(iov, n);
    ssize_t len = io_vector_len(iov, n);
    ssize_t r = len < 0 ? len : checked(s, fd, dispatch_send(s, fd, &it, (size_t)len, flags & ~IO_MSG_COMPAT));
    errno = err;
    return r;
}

int io_drive_before(int fd, int flags)
{
    look_over(); /* (what is the kernel's to read is read now) */
    if (SW_LIKELY(!pending_others(NULL) && !conn_ring_busy()) || (flags & (MSG_DONTWAIT | MSG_OOB)) || foreign_call())
        return 0;
    struct sock *s = sock_get(fd);
    bool listener = s != NULL && s->kind == SOCK_LISTENER; /* readable means something else there */
    if (s != NULL)
        sock_put(s);
    if (listener)
        return 0;
    int err = errno, fl = REAL(fcntl)(fd, F_GETFL);
    int r = 1;
    if (fl >= 0 && !(fl & O_NONBLOCK)) {
        struct cancel hold = cancel_hold(NULL, NULL);
        r = wait_for(fd, POLLIN, wait_call_deadline(fd, SO_RCVTIMEO), NULL);
        cancel_restore(hold);
    }
    errno = r == 0 ? EAGAIN : r == -EINTR ? EINTR : err;
    return r == 0 || r == -EINTR ? -1 : 0;
}

unsigned io_by_kernel(struct sock *s)
{
    poller_kick_fd(); /* for the end to be noticed */
    return cancel_keep(conn_left, s);
}

enum io_who io_in_other(struct io *io)
{
    return sock_is_closing(io->fd) || io_drive_before(io->fd, io->flags) < 0 ? io_done(io, -1) : IO_KERNEL;
}

enum io_who io_out_other(struct io *io)
{
    return sock_is_closing(io->fd) ? io_done(io, -1) : IO_KERNEL;
}

/* The kernel does the call. The reference is kept only if no other thread knows the descriptor. */
static void leave_to_kernel(struct io *io)
{
    int now = sock_fd_now(io->s, io->fd);
    bool other = now != io->fd;
    io->fd = now;
    if (!other)
        sock_put(io->s);
    io->kept = other ? io_by_kernel(io->s) : cancel_keep(NULL, NULL);
    io->keeps = true;
    io->s = other ? io->s : NULL;
}

bool io_in_is_kernels(struct io *io)
{
    leave_to_kernel(io);
    io->r = -1;
    return io_drive_before(io->fd, io->flags) == 0;
}

bool io_out_is_kernels(struct io *io)
{
    leave_to_kernel(io);
    return true;
}

bool io_out_pieces(struct io *io, const struct iovec *iov, size_t n)
{
    bool cut = io_ring_would_cut(io->fd, io->flags);
    if (cut)
        io->r = io_out_in_pieces(io->fd, iov, n, io->flags);
    return cut;
}

bool io_ring_would_cut(int fd, int flags)
{
    if (SW_LIKELY(!conn_ring_busy()))
        return false;
    struct sock *s = (flags & (MSG_DONTWAIT | MSG_OOB)) ? NULL : sock_get(fd);
    bool blocking = s != NULL && s->kind == SOCK_CONN && !atomic_load(&s->nonblock);
    if (s != NULL)
        sock_put(s);
    return blocking && wait_call_deadline(fd, SO_SNDTIMEO) != 0;
}

ssize_t io_out_in_pieces(int fd, const struct iovec *iov, size_t n, int flags)
{
    struct iov_iter it = iov_iter_init(iov, n);
    ssize_t len = io_vector_len(iov, n);
    if (len < 0)
        return io_result(len);
    struct cancel hold = cancel_hold(NULL, NULL);
    ssize_t r = conn_send_plain(fd, &it, (size_t)len, flags, wait_call_deadline(fd, SO_SNDTIMEO));
    cancel_restore(hold);
    return io_result(r);
}
