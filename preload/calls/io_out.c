/*
 * write, send and their kin.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "core/base/reason.h"
#include "preload/calls/bridge.h"
#include "preload/calls/connect.h"
#include "preload/calls/exec.h"
#include "preload/calls/io.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/startup/beside.h"
#include "preload/startup/startup.h"

/* Nothing of ours; one that the kernel would cut is done in pieces. */
static enum io_who out_begin(struct io *io, int fd, const struct iovec *iov, size_t n, int flags)
{
    enum io_who who = io_out_begin(io, fd, flags);
    return who == IO_KERNEL && io_out_pieces(io, iov, n) ? IO_DONE : who;
}

/* A small write that is gathered takes some 50 ns: what follows, with all its registers, is a function of its own. */
static __attribute__((noinline)) ssize_t write_now(int fd, const void *buf, size_t len)
{
    struct iovec v = io_one(buf, len);
    struct io io;
    if (io_refused(fd, len))
        return -1;
    enum io_who who = out_begin(&io, fd, &v, 1, 0);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(write)(fd, buf, len);
    if (who == IO_OURS && io_out(&io, &v, 1))
        io.r = REAL(write)(io.fd, buf, len);
    return io_end(&io);
}

ssize_t write(int fd, const void *buf, size_t len)
{
    return coalesce_put(fd, buf, len, 0) > 0 ? (ssize_t)len : write_now(fd, buf, len);
}

/* writev(2) of no bytes asks nothing of a socket; write(2) of none does. */
static bool asks_nothing(int fd, const struct iovec *iov, size_t n)
{
    return io_is_active(fd) && io_vector_len(iov, n) == 0;
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
    struct io io;
    if (n < 0 || n > IOV_MAX)
        return REAL(writev)(fd, iov, n);
    if (asks_nothing(fd, iov, (size_t)n))
        return 0;
    enum io_who who = out_begin(&io, fd, iov, (size_t)n, 0);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(writev)(fd, iov, n);
    if (who == IO_OURS && io_out(&io, iov, (size_t)n))
        io.r = REAL(writev)(io.fd, iov, n);
    return io_end(&io);
}

static __attribute__((noinline)) ssize_t send_now(int fd, const void *buf, size_t len, int flags)
{
    struct iovec v = io_one(buf, io_cut(len));
    struct io io;
    if (SW_UNLIKELY(flags & MSG_FASTOPEN))
        return sendto(fd, buf, len, flags, NULL, 0);
    enum io_who who = out_begin(&io, fd, &v, 1, flags);
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(send)(fd, buf, len, flags);
    if (who == IO_OURS && io_out(&io, &v, 1))
        io.r = REAL(send)(io.fd, buf, len, flags);
    return io_end(&io);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
    return coalesce_put(fd, buf, len, flags) > 0 ? (ssize_t)len : send_now(fd, buf, len, flags);
}

/* Control messages, addresses of a Fast Open: the kernel checks them even without bytes. 0: it accepts them. */
static int kernel_objects(int fd, const struct msghdr *msg, int flags)
{
    struct msghdr empty = *msg;
    empty.msg_iov = NULL;
    empty.msg_iovlen = 0;
    return REAL(sendmsg)(fd, &empty, flags | MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* sendto(2)'s address on an active connection is checked, though it is not used. 0; -errno. */
static int address_check(int fd, const struct sockaddr *to, socklen_t to_len, int flags)
{
    struct msghdr m = { .msg_name = (void *)(uintptr_t)to, .msg_namelen = to != NULL ? to_len : 0 };
    if (m.msg_namelen > sizeof(struct sockaddr_storage))
        return -EINVAL;
    if (!usermem_readable(to, m.msg_namelen))
        return -EFAULT;
    return flags & MSG_FASTOPEN ? kernel_objects(fd, &m, flags) : 0;
}

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    struct iovec v = io_one(buf, io_cut(len));
    struct io io;
    if (SW_UNLIKELY(to != NULL || (flags & MSG_FASTOPEN)) && io_is_active(fd)) {
        int r = address_check(fd, to, to_len, flags);
        if (r < 0)
            return io_result(r);
    }
    enum io_who who = out_begin(&io, fd, &v, 1, flags);
    if (who == IO_KERNEL && SW_UNLIKELY(flags & MSG_FASTOPEN) && to != NULL &&
        to_len <= sizeof(struct sockaddr_storage)) {
        struct msghdr msg = {
            .msg_name = (void *)(uintptr_t)to, .msg_namelen = to_len, .msg_iov = &v, .msg_iovlen = 1
        };
        return connect_fast(fd, &msg, flags);
    }
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(sendto)(fd, buf, len, flags, to, to_len);
    if (who == IO_OURS && io_out(&io, &v, 1))
        io.r = REAL(sendto)(io.fd, buf, len, flags, to, to_len);
    return io_end(&io);
}

/*
 * A connection is passed, and the receiver may be any program. An undecided one goes as it is: a Hello that is there is
 * declined, and one that may still come is for the receiver to look for. For one that is upgraded, or will be, or has
 * bytes in our memory, the receiver gets a bridge's end.
 */
static bool pass(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    int r = startup_hand_on(s);
    (void)r; /* nothing more can be done */
    startup_hand_on_unsaid(s);
    startup_stay_unasked(s, REASON_SHARED_FD);
    beside_decide(s);
    if (conn_state(c) == CONN_CONNECTING)
        startup_decline(s);
    if (!conn_is_late(c)) /* (The server may accept only when the receiving process has written to it.) */
        inherit_decide(s, c, fd);
    enum conn_state st = conn_state(c);
    if (st == CONN_UPGRADED || conn_is_late(c) || conn_rx_avail(c) > 0)
        return bridge_pass(s, fd) == 0;
    return st != CONN_CONNECTING && (st != CONN_NEGOTIATING || conn_undecided(c));
}

bool io_pass(int fd)
{
    int err = errno;
    names_passed(fd);
    struct sock *s = sock_get_active(fd);
    bool may = s == NULL || pass(s, fd);
    if (s != NULL)
        sock_put(s);
    errno = err;
    return may;
}

/* Descriptors are passed over AF_UNIX. 0, or -EOPNOTSUPP: the receiver of one of them would read frames. errno stays. */
static int passing(const struct msghdr *msg)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h != NULL; h = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS || h->cmsg_len < CMSG_LEN(0) ||
            h->cmsg_len > (size_t)((const char *)msg->msg_control + msg->msg_controllen - (const char *)h))
            continue; /* the kernel refuses what is no message */
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
            if (!io_pass(fd))
                return -EOPNOTSUPP;
        }
    }
    return 0;
}

static bool passes_any(const struct msghdr *msg)
{
    return proc_on() && sock_fd_limit() > 0 && usermem_readable(msg, sizeof(*msg)) && msg->msg_controllen > 0 &&
           usermem_readable(msg->msg_control, msg->msg_controllen);
}

/*
 * Does this message on an upgraded connection ask for a time stamp? It is refused as by a kernel that does not know the
 * option.
 */
static bool stamps(const struct sock *s, const struct msghdr *msg)
{
    if (conn_state(s->conn) != CONN_UPGRADED || !passes_any(msg))
        return false;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h != NULL; h = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, h))
        if (h->cmsg_level == SOL_SOCKET && (h->cmsg_type == SO_TIMESTAMPING_OLD || h->cmsg_type == SO_TIMESTAMPING_NEW))
            return true;
    return false;
}

static ssize_t out_msg(struct sock *s, int fd, const struct msghdr *msg, int flags)
{
    int bad = io_header_check(msg, flags);
    if (bad < 0)
        return bad;
    socklen_t most = sizeof(struct sockaddr_storage); /* a longer name is cut */
    if (msg->msg_name != NULL && !usermem_readable(msg->msg_name, msg->msg_namelen < most ? msg->msg_namelen : most))
        return -EFAULT;
    if (SW_UNLIKELY(msg->msg_controllen > 0 || (flags & MSG_FASTOPEN))) {
        int r = stamps(s, msg) ? -EINVAL : kernel_objects(fd, msg, flags);
        if (r < 0)
            return r;
    }
    return io_out_iov(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
}

/* On what is not upgraded. */
static ssize_t send_message(int fd, const struct msghdr *msg, int flags)
{
    if (SW_UNLIKELY(flags & MSG_FASTOPEN) && msg != NULL && usermem_readable(msg, sizeof(*msg)) &&
        msg->msg_name != NULL)
        return connect_fast(fd, msg, flags);
    if (SW_UNLIKELY(io_ring_would_cut(fd, flags)) && msg != NULL && io_header_check(msg, flags) == 0 &&
        msg->msg_controllen == 0 && msg->msg_name == NULL)
        return io_out_in_pieces(fd, msg->msg_iov, msg->msg_iovlen, flags);
    return REAL(sendmsg)(fd, msg, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct io io;
    enum io_who who = io_out_begin(&io, fd, flags);
    if (who == IO_KERNEL && passes_any(msg) && passing(msg) < 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (SW_LIKELY(who == IO_KERNEL))
        return send_message(fd, msg, flags);
    if (who == IO_OURS && (msg == NULL || io_out_went(&io, out_msg(io.s, fd, msg, flags))))
        io.r = send_message(io.fd, msg, flags);
    return io_end(&io);
}

/* Only a part of this message went: the messages behind it must not overtake its rest. */
static bool is_part(const struct msghdr *msg, ssize_t sent)
{
    struct iov_iter whole = iov_iter_init(msg->msg_iov, msg->msg_iovlen);
    return (size_t)sent < io_cut(iov_iter_left(&whole));
}

/* On what is not upgraded. */
static int send_messages(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
    unsigned done = 0;
    if (SW_LIKELY(!io_ring_would_cut(fd, flags)) || (flags & IO_MSG_COMPAT) || n == 0 || n > IOV_MAX ||
        !usermem_writable(vec, n * sizeof(*vec)))
        return REAL(sendmmsg)(fd, vec, n, flags);
    while (done < n) {
        ssize_t r = send_message(fd, &vec[done].msg_hdr, flags);
        if (r < 0)
            return done > 0 ? (int)done : -1;
        vec[done].msg_len = (unsigned)r;
        if (is_part(&vec[done++].msg_hdr, r))
            break;
    }
    return (int)done;
}

static ssize_t out_msgs(struct sock *s, int fd, struct mmsghdr *vec, unsigned n, int flags)
{
    unsigned done = 0;
    ssize_t r = 0;
    if (n > IOV_MAX)
        n = IOV_MAX;
    while (done < n) {
        r = out_msg(s, fd, &vec[done].msg_hdr, flags);
        if (r == CONN_ASK_KERNEL) {
            unsigned kept = io_by_kernel(s);
            int more = send_messages(sock_fd_now(s, fd), vec + done, n - done, flags);
            cancel_kept(kept);
            return more > 0 ? (ssize_t)done + more : done > 0 ? (ssize_t)done : -errno;
        }
        if (r >= 0 && !usermem_writable(&vec[done].msg_len, sizeof(vec[done].msg_len)))
            r = -EFAULT;
        if (r < 0)
            break;
        vec[done].msg_len = (unsigned)r;
        if (is_part(&vec[done++].msg_hdr, r))
            break;
    }
    return done > 0 ? (ssize_t)done : r;
}

int sendmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
    struct io io;
    enum io_who who = io_out_begin(&io, fd, flags);
    for (unsigned i = 0; who == IO_KERNEL && i < n && i < IOV_MAX && usermem_readable(&vec[i], sizeof(vec[i])); i++) {
        if (passes_any(&vec[i].msg_hdr) && passing(&vec[i].msg_hdr) < 0) {
            n = i; /* those before it go */
            if (n == 0)
                return io_result(-EOPNOTSUPP);
        }
    }
    if (SW_LIKELY(who == IO_KERNEL))
        return send_messages(fd, vec, n, flags);
    if (who == IO_OURS)
        io.r = io_result(flags & IO_MSG_COMPAT ? -EINVAL : out_msgs(io.s, fd, vec, n, flags));
    return (int)io_end(&io);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    struct io io;
    if (io_unknown_flags(fd, iov, n, off, flags))
        return -1;
    if (io_not_for_us(n, off, flags))
        return REAL(pwritev2)(fd, iov, n, off, flags);
    if (asks_nothing(fd, iov, (size_t)n))
        return 0;
    enum io_who who = out_begin(&io, fd, iov, (size_t)n, io_rwf_to_msg(flags));
    if (SW_LIKELY(who == IO_KERNEL))
        return REAL(pwritev2)(fd, iov, n, off, flags);
    if (who == IO_OURS && io_out(&io, iov, (size_t)n))
        io.r = REAL(pwritev2)(io.fd, iov, n, off, flags);
    return io_end(&io);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
    return pwritev2(fd, iov, n, off, flags);
}
