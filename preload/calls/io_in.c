/*
 * read, recv and their kin.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "preload/calls/exec.h"
#include "preload/calls/io.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_zerocopy.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/sock/pending.h"

ssize_t read(int fd, void *buf, size_t len)
{
    struct iovec v = io_one(buf, len);
    struct io io;
    if (io_refused(fd, len))
        return -1;
    if (SW_UNLIKELY(len == 0))
        return io_is_active(fd) ? 0 : REAL(read)(fd, buf, len);
    enum io_who who = io_in_begin(&io, fd, 0);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(read)(fd, buf, len);
    if (who == IO_OURS && io_in(&io, &v, 1))
        io.r = REAL(read)(io.fd, buf, len);
    return io_end(&io);
}

/* read(2) of no bytes asks nothing of a socket, nor waits for anything else; recv(2) of none waits for some. */
static bool asks_nothing(int fd, const struct iovec *iov, size_t n, bool *active)
{
    *active = io_is_active(fd);
    return (*active || SW_UNLIKELY(pending_others(NULL))) && io_vector_len(iov, n) == 0;
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
    struct io io;
    bool active;
    if (n < 0 || n > IOV_MAX)
        return REAL(readv)(fd, iov, n);
    if (asks_nothing(fd, iov, (size_t)n, &active))
        return active ? 0 : REAL(readv)(fd, iov, n);
    enum io_who who = io_in_begin(&io, fd, 0);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(readv)(fd, iov, n);
    if (who == IO_OURS && io_in(&io, iov, (size_t)n))
        io.r = REAL(readv)(io.fd, iov, n);
    return io_end(&io);
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
    struct iovec v = io_one(buf, io_cut(len));
    struct io io;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) /* the kernel's, which never waits */
        return sock_is_closing(fd) ? -1 : REAL(recv)(fd, buf, len, flags);
    enum io_who who = io_in_begin(&io, fd, flags);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(recv)(fd, buf, len, flags);
    if (who == IO_OURS && io_in(&io, &v, 1))
        io.r = REAL(recv)(io.fd, buf, len, flags);
    return io_end(&io);
}

/* recvfrom(2) on TCP tells no address. The bytes are gone when it notices that it has nowhere to say so. */
static ssize_t no_address(ssize_t r, socklen_t *from_len)
{
    if (!usermem_writable(from_len, sizeof(*from_len)))
        return -EFAULT;
    if ((int)*from_len < 0)
        return -EINVAL;
    *from_len = 0;
    return r;
}

ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    struct iovec v = io_one(buf, io_cut(len));
    struct io io;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) /* the kernel's, which never waits */
        return sock_is_closing(fd) ? -1 : REAL(recvfrom)(fd, buf, len, flags, from, from_len);
    enum io_who who = io_in_begin(&io, fd, flags);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(recvfrom)(fd, buf, len, flags, from, from_len);
    if (who == IO_DONE)
        return io_end(&io);
    ssize_t r = io_in_iov(io.s, fd, &v, 1, flags);
    if (r >= 0 && from != NULL)
        r = no_address(r, from_len);
    if (io_in_went(&io, r))
        io.r = REAL(recvfrom)(io.fd, buf, len, flags, from, from_len);
    return io_end(&io);
}

/* TCP_INQ: how much is left to read, the end counting as one more. As the kernel's put_cmsg. */
static void tell_waiting(struct sock *s, int fd, struct msghdr *msg, size_t room)
{
    const struct conn *c = s->conn;
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr hdr;
    } m = { .hdr = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_TCP, .cmsg_type = TCP_CM_INQ } };
    if (conn_state(c) != CONN_UPGRADED)
        return;
    int n = conn_rx_waiting(s, sock_fd_now(s, fd));
    n += c->st.rx.end != STREAM_OPEN;
    memcpy(CMSG_DATA(&m.hdr), &n, sizeof(n));
    if (msg->msg_control == NULL || room < sizeof(m.hdr)) {
        msg->msg_flags |= MSG_CTRUNC;
        return;
    }
    if (room < m.hdr.cmsg_len) {
        msg->msg_flags |= MSG_CTRUNC;
        m.hdr.cmsg_len = room;
    }
    if (!usermem_writable(msg->msg_control, m.hdr.cmsg_len))
        return;
    memcpy(msg->msg_control, &m, m.hdr.cmsg_len);
    msg->msg_controllen = room < sizeof(m.buf) ? room : sizeof(m.buf);
}

static ssize_t in_msg(struct sock *s, int fd, struct msghdr *msg, int flags)
{
    ssize_t r = io_header_check(msg, flags);
    if (r < 0)
        return r;
    r = io_in_iov(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
    if (r >= 0 && !usermem_writable(msg, sizeof(*msg)))
        return -EFAULT; /* the bytes are gone */
    if (r >= 0) {
        if (msg->msg_name != NULL)
            msg->msg_namelen = 0; /* as TCP */
        size_t room = msg->msg_controllen;
        msg->msg_controllen = 0;
        msg->msg_flags = flags & (MSG_CMSG_CLOEXEC | MSG_OOB);
        if (SW_UNLIKELY(atomic_load_explicit(&s->conn->rx.tells_waiting, memory_order_relaxed)) && !(flags & MSG_OOB))
            tell_waiting(s, fd, msg, room);
        if ((flags & MSG_OOB) && r == 0)
            msg->msg_flags |= MSG_TRUNC;
    }
    return r;
}

/* Descriptors that came over AF_UNIX. */
static void passed(struct msghdr *msg)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h != NULL; h = CMSG_NXTHDR(msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
            inherit_passed(fd);
        }
    }
}

/* On what is not upgraded. */
static ssize_t receive_message(int fd, struct msghdr *msg, int flags)
{
    ssize_t r = REAL(recvmsg)(fd, msg, flags);
    if (r >= 0 && msg != NULL && msg->msg_controllen > 0 && proc_on())
        passed(msg);
    return r;
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct io io;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) { /* the kernel's, which never waits */
        ssize_t r = sock_is_closing(fd) ? -1 : REAL(recvmsg)(fd, msg, flags);
        if (r >= 0)
            conn_zerocopy_told(fd, msg);
        return r;
    }
    enum io_who who = io_in_begin(&io, fd, flags);
    if (SW_LIKELY(who == IO_KERNEL))
        return receive_message(fd, msg, flags);
    if (who == IO_OURS && (msg == NULL || io_in_went(&io, in_msg(io.s, fd, msg, flags))))
        io.r = REAL(recvmsg)(io.fd, msg, flags);
    return io_end(&io);
}

/* What is left until `end`, or false if that is over. */
static bool time_left(uint64_t end, struct timespec *left)
{
    uint64_t now = proc_now_ns(), ns = end > now ? end - now : 0;
    left->tv_sec = (time_t)(ns / 1000000000u);
    left->tv_nsec = (long)(ns % 1000000000u);
    return ns > 0;
}

/* recvmmsg(2)'s time-out: until when, 0: for ever. -EFAULT, -EINVAL. */
static int until(const struct timespec *timeout, uint64_t *end)
{
    *end = 0;
    if (timeout == NULL)
        return 0;
    if (!usermem_writable((void *)(uintptr_t)timeout, sizeof(*timeout)))
        return -EFAULT;
    if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)
        return -EINVAL;
    *end = proc_now_ns() + (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec;
    return 0;
}

/* It turned out plain: the kernel receives the rest. As recvmmsg, with -errno. */
static int rest_by_kernel(struct sock *s, int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
    unsigned kept = io_by_kernel(s);
    int now = sock_fd_now(s, fd);
    int more = io_drive_before(now, flags) < 0 ? -1 : REAL(recvmmsg)(now, vec, n, flags, timeout);
    cancel_kept(kept);
    return more < 0 ? -errno : more;
}

/* recvmmsg(2): the time is looked at after each message only; the end of the stream is a message without bytes. */
static ssize_t in_msgs(struct sock *s, int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
    uint64_t end;
    int bad = until(timeout, &end);
    if (bad == 0)
        bad = -atomic_exchange(&s->conn->so_error, 0);
    if (bad != 0)
        return bad;
    unsigned got = 0;
    ssize_t r = 0;
    int each = flags & ~MSG_WAITFORONE;
    while (got < n) {
        r = in_msg(s, fd, &vec[got].msg_hdr, each);
        if (r == CONN_ASK_KERNEL) {
            int more = rest_by_kernel(s, fd, vec + got, n - got, flags | (each & MSG_DONTWAIT), timeout);
            return more > 0 ? (ssize_t)got + more : got > 0 ? (ssize_t)got : more;
        }
        if (r >= 0 && !usermem_writable(&vec[got].msg_len, sizeof(vec[got].msg_len)))
            r = -EFAULT;
        if (r < 0)
            break;
        vec[got++].msg_len = (unsigned)r;
        if (flags & MSG_WAITFORONE)
            each |= MSG_DONTWAIT;
        if (timeout != NULL && !time_left(end, timeout))
            break;
    }
    if (r < 0 && got > 0 && r != -EAGAIN && r != -EINTR && r != -EFAULT)
        atomic_store(&s->conn->so_error, (int)-r); /* told by the next call */
    return got > 0 ? (ssize_t)got : r;
}

int recvmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
    struct io io;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) { /* the kernel's, which never waits */
        int r = sock_is_closing(fd) ? -1 : REAL(recvmmsg)(fd, vec, n, flags, timeout);
        for (int i = 0; i < r; i++)
            conn_zerocopy_told(fd, &vec[i].msg_hdr);
        return r;
    }
    enum io_who who = io_in_begin(&io, fd, flags);
    if (SW_LIKELY(who == IO_KERNEL)) {
        int r = REAL(recvmmsg)(fd, vec, n, flags, timeout);
        for (int i = 0; i < r && proc_on(); i++)
            passed(&vec[i].msg_hdr);
        return r;
    }
    if (who == IO_OURS)
        io.r = io_result(flags & IO_MSG_COMPAT ? -EINVAL : in_msgs(io.s, fd, vec, n, flags, timeout));
    return (int)io_end(&io);
}

ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    struct io io;
    bool active;
    if (io_unknown_flags(fd, iov, n, off, flags))
        return -1;
    if (io_not_for_us(n, off, flags))
        return REAL(preadv2)(fd, iov, n, off, flags);
    if (asks_nothing(fd, iov, (size_t)n, &active))
        return active ? 0 : REAL(preadv2)(fd, iov, n, off, flags);
    enum io_who who = io_in_begin(&io, fd, io_rwf_to_msg(flags));
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(preadv2)(fd, iov, n, off, flags);
    if (who == IO_OURS && io_in(&io, iov, (size_t)n))
        io.r = REAL(preadv2)(io.fd, iov, n, off, flags);
    return io_end(&io);
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
    return preadv2(fd, iov, n, off, flags);
}
