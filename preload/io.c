/*
 * The calls that move octets: read, write, recv, send and their kin. Descriptors that are not active go to the kernel
 * after one table look-up.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "core/base/reason.h"
#include "preload/conn.h"
#include "preload/drive.h"
#include "preload/proc.h"
#include "preload/real.h"

static inline ssize_t result(ssize_t n)
{
    if (n >= 0)
        return n;
    errno = (int)-n;
    return -1;
}

/* (errno stays what it was when a call succeeds, as the kernel leaves it.) */
static ssize_t in_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags)
{
    int err = errno;
    struct iov_iter it = iov_iter_init(iov, n);
    size_t len = iov_iter_left(&it);
    ssize_t r = len > SSIZE_MAX ? -EINVAL : conn_recv(s, fd, &it, len, flags);
    sock_put(s);
    errno = err;
    return r;
}

static ssize_t out_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags)
{
    int err = errno;
    struct iov_iter it = iov_iter_init(iov, n);
    size_t len = iov_iter_left(&it);
    ssize_t r = len > SSIZE_MAX ? -EINVAL : conn_send(s, fd, &it, len, flags);
    sock_put(s);
    errno = err;
    return r;
}

/*
 * A blocking read of something else: while negotiations are under way, it drives them first. Of a descriptor that can be
 * read already, or is not blocking, poll returns at once. -1 with errno if the call's time went by or a handler
 * interrupted it meanwhile; else 0, and the call itself says what there is to say.
 */
static int drive_before(int fd, int flags)
{
    if (SW_LIKELY(!drive_others(NULL)) || (flags & MSG_DONTWAIT) || proc_unwinding)
        return 0;
    int err = errno, fl = REAL(fcntl)(fd, F_GETFL);
    int r = 1;
    if (fl >= 0 && !(fl & O_NONBLOCK))
        r = drive_wait(fd, POLLIN, drive_call_deadline(fd, SO_RCVTIMEO), NULL);
    errno = r == 0 ? EAGAIN : r == -EINTR ? EINTR : err;
    return r == 0 || r == -EINTR ? -1 : 0;
}

/*
 * IN(fd, iov, n, flags, real call): the real call for descriptors that are not ours, and for those that turned out plain
 * during the call.
 */
#define IN(fd, iov, n, flags, call)                       \
    do {                                                  \
        struct sock *s_ = sock_get_active(fd);            \
        if (SW_LIKELY(s_ == NULL)) {                      \
            return drive_before(fd, flags) < 0 ? -1 : call; \
        }                                                 \
        ssize_t r_ = in_iov(s_, fd, iov, n, flags);       \
        return r_ == CONN_ASK_KERNEL ? call : result(r_); \
    } while (0)

static bool is_active(int fd)
{
    struct sock *s = sock_get_active(fd);
    if (s != NULL)
        sock_put(s);
    return s != NULL;
}

/* read(2) of no octets asks nothing of a socket; recv(2) of none waits for some. */
#define READ(fd, iov, n, flags, call)                                    \
    do {                                                                 \
        struct iov_iter none_ = iov_iter_init(iov, n);                   \
        void *p_;                                                        \
        if (iov_iter_next(&none_, 1, &p_) == 0 && is_active(fd)) \
            return 0;                                                    \
        IN(fd, iov, n, flags, call);                                     \
    } while (0)

#define OUT(fd, iov, n, flags, call)                      \
    do {                                                  \
        struct sock *s_ = sock_get_active(fd);            \
        if (SW_LIKELY(s_ == NULL))                        \
            return call;                                  \
        ssize_t r_ = out_iov(s_, fd, iov, n, flags);      \
        return r_ == CONN_ASK_KERNEL ? call : result(r_); \
    } while (0)

static inline struct iovec one(const void *buf, size_t len)
{
    return (struct iovec){ .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
}

ssize_t read(int fd, void *buf, size_t len)
{
    struct iovec v = one(buf, len);
    READ(fd, &v, 1, 0, REAL(read)(fd, buf, len));
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
    if (n < 0 || n > IOV_MAX)
        return REAL(readv)(fd, iov, n);
    READ(fd, iov, (size_t)n, 0, REAL(readv)(fd, iov, n));
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
    struct iovec v = one(buf, len);
    IN(fd, &v, 1, flags, REAL(recv)(fd, buf, len, flags));
}

ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    struct iovec v = one(buf, len);
    struct sock *s = sock_get_active(fd);
    if (s == NULL)
        return drive_before(fd, flags) < 0 ? -1 : REAL(recvfrom)(fd, buf, len, flags, from, from_len);
    ssize_t r = in_iov(s, fd, &v, 1, flags);
    if (r == CONN_ASK_KERNEL)
        return REAL(recvfrom)(fd, buf, len, flags, from, from_len);
    if (r >= 0 && from != NULL && from_len != NULL)
        *from_len = 0; /* as TCP */
    return result(r);
}

static ssize_t in_msg(struct sock *s, int fd, struct msghdr *msg, int flags)
{
    ssize_t r = in_iov(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
    if (r >= 0) {
        msg->msg_namelen = 0;
        msg->msg_controllen = 0;
        msg->msg_flags = 0;
    }
    return r;
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct sock *s = sock_get_active(fd);
    if (s == NULL || msg == NULL || msg->msg_iovlen > IOV_MAX) {
        if (s != NULL)
            sock_put(s);
        else if (drive_before(fd, flags) < 0)
            return -1;
        return REAL(recvmsg)(fd, msg, flags);
    }
    ssize_t r = in_msg(s, fd, msg, flags);
    return r == CONN_ASK_KERNEL ? REAL(recvmsg)(fd, msg, flags) : result(r);
}

int recvmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
    struct sock *s = sock_get_active(fd);
    if (s == NULL)
        return REAL(recvmmsg)(fd, vec, n, flags, timeout);
    uint64_t end = timeout ? proc_now_ns() + (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec
                           : 0;
    unsigned got = 0;
    ssize_t r = 0;
    int each = flags & ~MSG_WAITFORONE;
    while (got < n) {
        atomic_fetch_add(&s->refs, 1); /* in_msg drops one */
        r = in_msg(s, fd, &vec[got].msg_hdr, each);
        if (r == CONN_ASK_KERNEL) {
            sock_put(s);
            return got > 0 ? (int)got : REAL(recvmmsg)(fd, vec, n, flags, timeout);
        }
        if (r < 0)
            break;
        vec[got++].msg_len = (unsigned)r;
        if (flags & MSG_WAITFORONE)
            each |= MSG_DONTWAIT;
        if (r == 0 || (timeout != NULL && proc_now_ns() >= end)) /* checked after each message, as the kernel */
            break;
    }
    sock_put(s);
    return got > 0 ? (int)got : (int)result(r);
}

ssize_t write(int fd, const void *buf, size_t len)
{
    struct iovec v = one(buf, len);
    OUT(fd, &v, 1, 0, REAL(write)(fd, buf, len));
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
    if (n < 0 || n > IOV_MAX)
        return REAL(writev)(fd, iov, n);
    OUT(fd, iov, (size_t)n, 0, REAL(writev)(fd, iov, n));
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
    struct iovec v = one(buf, len);
    OUT(fd, &v, 1, flags, REAL(send)(fd, buf, len, flags));
}

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    if ((flags & MSG_FASTOPEN) && proc_on()) {
        struct sock *s = sock_get(fd);
        if (s != NULL && s->kind == SOCK_NEW) {
            s->stay_plain = true;
            s->plain_reason = REASON_FASTOPEN;
        }
        if (s != NULL)
            sock_put(s);
    }
    struct iovec v = one(buf, len);
    OUT(fd, &v, 1, flags, REAL(sendto)(fd, buf, len, flags, to, to_len));
}

/*
 * Descriptors passed over AF_UNIX leave our sight. 0: nothing against it; -EOPNOTSUPP: one of them is accelerated, and
 * whoever got it would read frames. One whose Hello may still come is told to stay plain as far as it can be.
 */
static int passing(const struct msghdr *msg)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h != NULL;
         h = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
            struct sock *s = sock_get_active(fd);
            if (s == NULL)
                continue;
            struct conn *c = s->conn;
            if (conn_undecided(c) && turn_take(&c->rx, 0, false) == 0) {
                negotiate_decline(&c->neg, REASON_SHARED_FD);
                turn_give(&c->rx);
                int r = drive_sock(s, false);
                (void)r; /* nothing more can be done */
            }
            enum conn_state st = conn_state(c);
            bool refuse = st == CONN_FULL || st == CONN_CONNECTING ||
                          (st == CONN_NEGOTIATING && !conn_undecided(c)) || conn_rx_avail(c) > 0;
            sock_put(s);
            if (refuse)
                return -EOPNOTSUPP;
        }
    }
    return 0;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct sock *s = sock_get_active(fd);
    if (s == NULL && msg != NULL && msg->msg_controllen > 0 && proc_on() && passing(msg) < 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (s == NULL || msg == NULL || msg->msg_iovlen > IOV_MAX) {
        if (s != NULL)
            sock_put(s);
        return REAL(sendmsg)(fd, msg, flags);
    }
    ssize_t r = out_iov(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
    return r == CONN_ASK_KERNEL ? REAL(sendmsg)(fd, msg, flags) : result(r);
}

int sendmmsg(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
    struct sock *s = sock_get_active(fd);
    if (s == NULL)
        return REAL(sendmmsg)(fd, vec, n, flags);
    unsigned done = 0;
    ssize_t r = 0;
    if (n > IOV_MAX)
        n = IOV_MAX;
    while (done < n) {
        const struct msghdr *m = &vec[done].msg_hdr;
        atomic_fetch_add(&s->refs, 1); /* out_iov drops one */
        r = out_iov(s, fd, m->msg_iov, m->msg_iovlen, flags);
        if (r == CONN_ASK_KERNEL) {
            sock_put(s);
            return done > 0 ? (int)done : REAL(sendmmsg)(fd, vec, n, flags);
        }
        if (r < 0)
            break;
        vec[done++].msg_len = (unsigned)r;
    }
    sock_put(s);
    return done > 0 ? (int)done : (int)result(r);
}

/* RWF_NOWAIT is all of the flags that means something on a socket. */
#define RWF_NOWAIT_BIT 0x8

static int rwf_to_msg(int flags)
{
    return (flags & RWF_NOWAIT_BIT) ? MSG_DONTWAIT : 0;
}

ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    if (off != -1 || n < 0 || n > IOV_MAX)
        return REAL(preadv2)(fd, iov, n, off, flags);
    READ(fd, iov, (size_t)n, rwf_to_msg(flags), REAL(preadv2)(fd, iov, n, off, flags));
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    if (off != -1 || n < 0 || n > IOV_MAX)
        return REAL(pwritev2)(fd, iov, n, off, flags);
    OUT(fd, iov, (size_t)n, rwf_to_msg(flags), REAL(pwritev2)(fd, iov, n, off, flags));
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
    return preadv2(fd, iov, n, off, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
    return pwritev2(fd, iov, n, off, flags);
}
