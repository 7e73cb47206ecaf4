/*
 * The calls that move octets: read, write, recv, send and their kin. Descriptors that are not active go to the kernel
 * after one table look-up.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>

#include "core/base/foreign.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/calls/exec.h"
#include "preload/calls/io.h"
#include "preload/conn/conn.h"
#include "preload/conn/gather.h"
#include "preload/process/cancel.h"
#include "preload/process/probe.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/startup.h"

static inline ssize_t result(ssize_t n)
{
    if (n >= 0 || n == CONN_ASK_KERNEL)
        return n;
    errno = (int)-n;
    return -1;
}

/* (errno stays what it was when a call succeeds, as the kernel leaves it.) */
static inline ssize_t keep_errno(ssize_t r, int before)
{
    if (r >= 0)
        errno = before;
    return r;
}

#define CALL_MAX_LEN 0x7ffff000u         /* what the kernel moves in one call */
#define MSG_COMPAT ((int)0x80000000u)    /* MSG_CMSG_COMPAT: the kernel's own, refused by the calls with a msghdr */
#define beyond_memory(len) ((len) >> 47) /* no buffer is so long: EFAULT before anything is looked at */

/* The length of a vector as the kernel takes it: cut to what one call moves. -EINVAL, -EFAULT. */
static ssize_t vector_len(const struct iovec *iov, size_t n)
{
    size_t sum = 0;
    if (!probe_can_read(iov, n * sizeof(*iov)))
        return -EFAULT;
    for (size_t i = 0; i < n; i++) {
        size_t len = iov[i].iov_len;
        if (len > SSIZE_MAX)
            return -EINVAL;
        if ((n > 1 && beyond_memory(len)) || (intptr_t)iov[i].iov_base < 0) /* the kernel's half */
            return -EFAULT;
        sum += len < CALL_MAX_LEN - sum ? len : CALL_MAX_LEN - sum;
    }
    return (ssize_t)sum;
}

/*
 * The program has closed fd where we cannot see it, by a system call of its own, and the number is something else by now, or
 * nothing: what we know of it ends here.
 */
static bool reused(struct sock *s, int fd)
{
    struct sock *now = sock_get(fd);
    if (now != NULL)
        sock_put(now);
    if (now != s || (s->conn->ino != 0 && sock_ino(fd) == s->conn->ino))
        return false;
    trace_info("fd %d was closed behind our back", fd);
    atomic_store(&s->unseen, true);
    sock_drop(fd);
    return true;
}

static ssize_t checked(struct sock *s, int fd, ssize_t r)
{
    return SW_UNLIKELY(r == -ENOTSOCK || r == -EBADF) && reused(s, fd) ? CONN_ASK_KERNEL : r;
}

static ssize_t in_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags)
{
    int err = errno;
    struct iov_iter it = iov_iter_init(iov, n);
    ssize_t len = vector_len(iov, n);
    ssize_t r = len < 0 ? len : checked(s, fd, dispatch_recv(s, fd, &it, (size_t)len, flags & ~MSG_COMPAT));
    errno = err;
    return r;
}

static ssize_t out_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags)
{
    int err = errno;
    struct iov_iter it = iov_iter_init(iov, n);
    ssize_t len = vector_len(iov, n);
    ssize_t r = len < 0 ? len : checked(s, fd, dispatch_send(s, fd, &it, (size_t)len, flags & ~MSG_COMPAT));
    errno = err;
    return r;
}

int io_drive_before(int fd, int flags)
{
    look_over(); /* (what is the kernel's to read is read now) */
    if (SW_LIKELY(!pending_others(NULL) && !conn_ring_busy()) || (flags & (MSG_DONTWAIT | MSG_OOB)) ||
        foreign_call())
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

/* The kernel does the call on s; a thread that is cancelled in it gives the reference back at its end. For cancel_kept. */
static unsigned by_kernel_still(struct sock *s)
{
    poller_kick_fd(); /* for the end to be noticed */
    return cancel_keep(conn_left, s);
}

/* The same; the reference is kept only for a descriptor that nobody else knows of, else *s is NULL afterwards. */
static unsigned by_kernel(struct sock **s, int *fd)
{
    int now = sock_fd_now(*s, *fd);
    if (now != *fd) {
        *fd = now;
        return by_kernel_still(*s);
    }
    sock_put(*s);
    *s = NULL;
    return cancel_keep(NULL, NULL);
}

/*
 * IN(fd, iov, n, flags, real call): the real call for descriptors that are not ours, and for those that turned out plain
 * during the call (when `fd` may be another name of it: another thread may have closed the first).
 */
#define IN(fd, iov, n, flags, call)                                 \
    do {                                                            \
        int err_ = errno;                                           \
        cancel_enter();                                             \
        gather_before_read();                                       \
        struct sock *s_ = sock_get_active(fd);                      \
        if (SW_LIKELY(s_ == NULL))                                  \
            return sock_is_leaving(fd) || io_drive_before(fd, flags) < 0 ? -1 : call; \
        ssize_t r_ = result(in_iov(s_, fd, iov, n, flags));         \
        if (r_ == CONN_ASK_KERNEL) {                                \
            unsigned kept_ = by_kernel(&s_, &fd);                   \
            r_ = io_drive_before(fd, flags) < 0 ? -1 : call;        \
            cancel_kept(kept_);                                     \
        }                                                           \
        if (s_ != NULL)                                             \
            sock_put(s_);                                           \
        return keep_errno(r_, err_);                                \
    } while (0)

static bool is_active(int fd)
{
    struct sock *s = sock_get_active(fd);
    if (s != NULL)
        sock_put(s);
    return s != NULL;
}

/* read(2) of no octets asks nothing of a socket, nor waits for anything else; recv(2) of none waits for some. */
#define READV(fd, iov, n, flags, call)                                                   \
    do {                                                                                 \
        bool active_ = is_active(fd);                                                    \
        if ((active_ || SW_UNLIKELY(pending_others(NULL))) && vector_len(iov, n) == 0)     \
            return active_ ? 0 : call;                                                   \
        IN(fd, iov, n, flags, call);                                                     \
    } while (0)

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

static ssize_t out_in_pieces(int fd, const struct iovec *iov, size_t n, int flags)
{
    struct iov_iter it = iov_iter_init(iov, n);
    ssize_t len = vector_len(iov, n);
    if (len < 0)
        return result(len);
    struct cancel hold = cancel_hold(NULL, NULL);
    ssize_t r = conn_send_plain(fd, &it, (size_t)len, flags, wait_call_deadline(fd, SO_SNDTIMEO));
    cancel_restore(hold);
    return result(r);
}

#define OUT(fd, iov, n, flags, call)                                \
    do {                                                            \
        int err_ = errno;                                           \
        cancel_enter();                                             \
        struct sock *s_ = sock_get_active(fd);                      \
        if (SW_LIKELY(s_ == NULL))                                  \
            return sock_is_leaving(fd) ? -1                         \
                   : io_ring_would_cut(fd, flags)                   \
                       ? out_in_pieces(fd, iov, n, flags) : call;   \
        ssize_t r_ = result(out_iov(s_, fd, iov, n, flags));        \
        if (r_ == CONN_ASK_KERNEL) {                                \
            unsigned kept_ = by_kernel(&s_, &fd);                   \
            r_ = io_ring_would_cut(fd, flags)                       \
                     ? out_in_pieces(fd, iov, n, flags) : call;     \
            cancel_kept(kept_);                                     \
        }                                                           \
        if (s_ != NULL)                                             \
            sock_put(s_);                                           \
        return keep_errno(r_, err_);                                \
    } while (0)

static inline size_t cut(size_t len)
{
    return len < CALL_MAX_LEN ? len : CALL_MAX_LEN;
}

/* And writev(2) of no octets does not ask either; write(2) of none does. */
#define WRITEV(fd, iov, n, flags, call)                 \
    do {                                                \
        if (is_active(fd) && vector_len(iov, n) == 0)   \
            return 0;                                   \
        OUT(fd, iov, n, flags, call);                   \
    } while (0)

/* read(2) and write(2) do not cut such a length, they refuse it. */
static inline bool refused(int fd, size_t len)
{
    if (SW_LIKELY(!beyond_memory(len)) || !is_active(fd))
        return false;
    errno = EFAULT;
    return true;
}

static inline struct iovec one(const void *buf, size_t len)
{
    return (struct iovec){ .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
}

ssize_t read(int fd, void *buf, size_t len)
{
    struct iovec v = one(buf, len);
    if (refused(fd, len))
        return -1;
    if (SW_UNLIKELY(len == 0))
        return is_active(fd) ? 0 : REAL(read)(fd, buf, len);
    IN(fd, &v, 1, 0, REAL(read)(fd, buf, len));
}

ssize_t readv(int fd, const struct iovec *iov, int n)
{
    if (n < 0 || n > IOV_MAX)
        return REAL(readv)(fd, iov, n);
    READV(fd, iov, (size_t)n, 0, REAL(readv)(fd, iov, n));
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) /* the kernel's, which never waits */
        return sock_is_leaving(fd) ? -1 : REAL(recv)(fd, buf, len, flags);
    struct iovec v = one(buf, cut(len));
    IN(fd, &v, 1, flags, REAL(recv)(fd, buf, len, flags));
}

/* recvfrom(2) on TCP tells no address. The octets are gone when it notices that it has nowhere to say so. */
static ssize_t no_address(ssize_t r, socklen_t *from_len)
{
    if (!probe_can_write(from_len, sizeof(*from_len)))
        return -EFAULT;
    if ((int)*from_len < 0)
        return -EINVAL;
    *from_len = 0;
    return r;
}

ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    int err = errno;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) /* the kernel's, which never waits */
        return sock_is_leaving(fd) ? -1 : REAL(recvfrom)(fd, buf, len, flags, from, from_len);
    struct iovec v = one(buf, cut(len));
    cancel_enter();
    gather_before_read();
    struct sock *s = sock_get_active(fd);
    if (s == NULL)
        return sock_is_leaving(fd) || io_drive_before(fd, flags) < 0
                   ? -1 : REAL(recvfrom)(fd, buf, len, flags, from, from_len);
    ssize_t r = in_iov(s, fd, &v, 1, flags);
    if (r >= 0 && from != NULL)
        r = no_address(r, from_len);
    r = result(r);
    if (r == CONN_ASK_KERNEL) {
        unsigned kept = by_kernel(&s, &fd);
        r = io_drive_before(fd, flags) < 0 ? -1 : REAL(recvfrom)(fd, buf, len, flags, from, from_len);
        cancel_kept(kept);
    }
    if (s != NULL)
        sock_put(s);
    return keep_errno(r, err);
}

/* Of a message with more vector elements than the kernel takes nothing is looked at. */
static int header_check(const struct msghdr *msg, int flags)
{
    if (flags & MSG_COMPAT)
        return -EINVAL;
    if (msg == NULL || !probe_can_read(msg, sizeof(*msg)))
        return -EFAULT;
    if (msg->msg_name != NULL && (int)msg->msg_namelen < 0)
        return -EINVAL;
    return msg->msg_iovlen > IOV_MAX ? -EMSGSIZE : 0;
}

/* TCP_INQ: how much is left to read, the end counting as one more. As the kernel's put_cmsg. */
static void tell_waiting(struct sock *s, int fd, struct msghdr *msg, size_t room)
{
    const struct conn *c = s->conn;
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr hdr;
    } m = { .hdr = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_TCP, .cmsg_type = TCP_CM_INQ } };
    if (conn_state(c) != CONN_FULL)
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
    if (!probe_can_write(msg->msg_control, m.hdr.cmsg_len))
        return;
    memcpy(msg->msg_control, &m, m.hdr.cmsg_len);
    msg->msg_controllen = room < sizeof(m.buf) ? room : sizeof(m.buf);
}

static ssize_t in_msg(struct sock *s, int fd, struct msghdr *msg, int flags)
{
    ssize_t r = header_check(msg, flags);
    if (r < 0)
        return r;
    r = in_iov(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
    if (r >= 0 && !probe_can_write(msg, sizeof(*msg)))
        return -EFAULT; /* the octets are gone */
    if (r >= 0) {
        if (msg->msg_name != NULL)
            msg->msg_namelen = 0; /* as TCP */
        size_t room = msg->msg_controllen;
        msg->msg_controllen = 0;
        msg->msg_flags = flags & (MSG_CMSG_CLOEXEC | MSG_OOB);
        if (SW_UNLIKELY(atomic_load_explicit(&s->conn->tells_waiting, memory_order_relaxed)) && !(flags & MSG_OOB))
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

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    int err = errno;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) { /* the kernel's, which never waits */
        ssize_t r = sock_is_leaving(fd) ? -1 : REAL(recvmsg)(fd, msg, flags);
        if (r >= 0)
            conn_zerocopy_told(fd, msg);
        return r;
    }
    cancel_enter();
    gather_before_read();
    struct sock *s = sock_get_active(fd);
    if (s == NULL || msg == NULL) {
        if (s != NULL)
            sock_put(s);
        else if (sock_is_leaving(fd) || io_drive_before(fd, flags) < 0)
            return -1;
        ssize_t r = REAL(recvmsg)(fd, msg, flags);
        if (r >= 0 && msg != NULL && msg->msg_controllen > 0 && proc_on())
            passed(msg);
        return r;
    }
    ssize_t r = result(in_msg(s, fd, msg, flags));
    if (r == CONN_ASK_KERNEL) {
        unsigned kept = by_kernel(&s, &fd);
        r = io_drive_before(fd, flags) < 0 ? -1 : REAL(recvmsg)(fd, msg, flags);
        cancel_kept(kept);
    }
    if (s != NULL)
        sock_put(s);
    return keep_errno(r, err);
}

/* What is left until `end`, or false if that is over. */
static bool time_left(uint64_t end, struct timespec *left)
{
    uint64_t now = proc_now_ns(), ns = end > now ? end - now : 0;
    left->tv_sec = (time_t)(ns / 1000000000u);
    left->tv_nsec = (long)(ns % 1000000000u);
    return ns > 0;
}

/* recvmmsg(2): the time is looked at after each message only; the end of the stream is a message without octets. */
static ssize_t in_msgs(struct sock *s, int fd, struct mmsghdr *vec, unsigned n, int flags, struct timespec *timeout)
{
    uint64_t end = 0;
    if (timeout != NULL) {
        if (!probe_can_write(timeout, sizeof(*timeout)))
            return -EFAULT;
        if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)
            return -EINVAL;
        end = proc_now_ns() + (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec;
    }
    int err = atomic_exchange(&s->conn->so_error, 0);
    if (err != 0)
        return -err;
    unsigned got = 0;
    ssize_t r = 0;
    int each = flags & ~MSG_WAITFORONE;
    while (got < n) {
        r = in_msg(s, fd, &vec[got].msg_hdr, each);
        if (r == CONN_ASK_KERNEL) {
            unsigned kept = by_kernel_still(s);
            int now = sock_fd_now(s, fd), each_now = flags | (each & MSG_DONTWAIT);
            int more = io_drive_before(now, each_now) < 0 ? -1 : REAL(recvmmsg)(now, vec + got, n - got, each_now, timeout);
            cancel_kept(kept);
            return more > 0 ? (ssize_t)got + more : got > 0 ? (ssize_t)got : -errno;
        }
        if (r >= 0 && !probe_can_write(&vec[got].msg_len, sizeof(vec[got].msg_len)))
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
    int err = errno;
    if (SW_UNLIKELY(flags & MSG_ERRQUEUE)) { /* the kernel's, which never waits */
        int r = sock_is_leaving(fd) ? -1 : REAL(recvmmsg)(fd, vec, n, flags, timeout);
        for (int i = 0; i < r; i++)
            conn_zerocopy_told(fd, &vec[i].msg_hdr);
        return r;
    }
    cancel_enter();
    gather_before_read();
    struct sock *s = sock_get_active(fd);
    if (s == NULL) {
        int r = sock_is_leaving(fd) || io_drive_before(fd, flags) < 0 ? -1 : REAL(recvmmsg)(fd, vec, n, flags, timeout);
        for (int i = 0; i < r && proc_on(); i++)
            passed(&vec[i].msg_hdr);
        return r;
    }
    ssize_t r = flags & MSG_COMPAT ? -EINVAL : in_msgs(s, fd, vec, n, flags, timeout);
    sock_put(s);
    return (int)keep_errno(result(r), err);
}

ssize_t write(int fd, const void *buf, size_t len)
{
    if (gather_put(fd, buf, len, 0) > 0)
        return (ssize_t)len;
    struct iovec v = one(buf, len);
    if (refused(fd, len))
        return -1;
    OUT(fd, &v, 1, 0, REAL(write)(fd, buf, len));
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
    if (n < 0 || n > IOV_MAX)
        return REAL(writev)(fd, iov, n);
    WRITEV(fd, iov, (size_t)n, 0, REAL(writev)(fd, iov, n));
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
    if (gather_put(fd, buf, len, flags) > 0)
        return (ssize_t)len;
    if (SW_UNLIKELY(flags & MSG_FASTOPEN))
        return sendto(fd, buf, len, flags, NULL, 0);
    struct iovec v = one(buf, cut(len));
    OUT(fd, &v, 1, flags, REAL(send)(fd, buf, len, flags));
}

/*
 * Control messages, addresses of a Fast Open: the kernel looks at them when it is given no octets as well. 0: it has
 * nothing against them.
 */
static int kernel_objects(int fd, const struct msghdr *msg, int flags)
{
    struct msghdr empty = *msg;
    empty.msg_iov = NULL;
    empty.msg_iovlen = 0;
    return REAL(sendmsg)(fd, &empty, flags | MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
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
    if (SW_UNLIKELY(to != NULL || (flags & MSG_FASTOPEN)) && is_active(fd)) {
        struct msghdr m = { .msg_name = (void *)(uintptr_t)to, .msg_namelen = to != NULL ? to_len : 0 };
        int r = m.msg_namelen > sizeof(struct sockaddr_storage) ? -EINVAL
                : !probe_can_read(to, m.msg_namelen)             ? -EFAULT
                : flags & MSG_FASTOPEN                           ? kernel_objects(fd, &m, flags)
                                                                 : 0;
        if (r < 0)
            return result(r);
    }
    struct iovec v = one(buf, cut(len));
    OUT(fd, &v, 1, flags, REAL(sendto)(fd, buf, len, flags, to, to_len));
}

/*
 * Descriptors passed over AF_UNIX leave our sight. 0: nothing against it; -EOPNOTSUPP: one of them is accelerated, and
 * whoever got it would read frames. One whose Hello may still come is the receiver's.
 */
static int passing(const struct msghdr *msg)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h != NULL;
         h = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS || h->cmsg_len < CMSG_LEN(0) ||
            h->cmsg_len > (size_t)((const char *)msg->msg_control + msg->msg_controllen - (const char *)h))
            continue; /* the kernel refuses what is no message */
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
            names_passed(fd);
            struct sock *s = sock_get_active(fd);
            if (s == NULL)
                continue;
            struct conn *c = s->conn;
            int r = startup_hand_on(s);
            (void)r; /* nothing more can be done */
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

static bool passes_any(const struct msghdr *msg)
{
    return proc_on() && sock_fd_limit() > 0 && probe_can_read(msg, sizeof(*msg)) && msg->msg_controllen > 0 &&
           probe_can_read(msg->msg_control, msg->msg_controllen);
}

static ssize_t out_msg(struct sock *s, int fd, const struct msghdr *msg, int flags)
{
    int bad = header_check(msg, flags);
    if (bad < 0)
        return bad;
    socklen_t most = sizeof(struct sockaddr_storage); /* a longer name is cut */
    if (msg->msg_name != NULL && !probe_can_read(msg->msg_name, msg->msg_namelen < most ? msg->msg_namelen : most))
        return -EFAULT;
    if (SW_UNLIKELY(msg->msg_controllen > 0 || (flags & MSG_FASTOPEN))) {
        int r = kernel_objects(fd, msg, flags);
        if (r < 0)
            return r;
    }
    return out_iov(s, fd, msg->msg_iov, msg->msg_iovlen, flags);
}

/* On what is not accelerated. */
static ssize_t send_message(int fd, const struct msghdr *msg, int flags)
{
    if (SW_UNLIKELY(io_ring_would_cut(fd, flags)) && msg != NULL && header_check(msg, flags) == 0 && msg->msg_controllen == 0 &&
        msg->msg_name == NULL)
        return out_in_pieces(fd, msg->msg_iov, msg->msg_iovlen, flags);
    return REAL(sendmsg)(fd, msg, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    int err = errno;
    cancel_enter();
    struct sock *s = sock_get_active(fd);
    if (s == NULL && sock_is_leaving(fd))
        return -1;
    if (s == NULL && passes_any(msg) && passing(msg) < 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (s == NULL || msg == NULL) {
        if (s != NULL)
            sock_put(s);
        return send_message(fd, msg, flags);
    }
    ssize_t r = result(out_msg(s, fd, msg, flags));
    if (r == CONN_ASK_KERNEL) {
        unsigned kept = by_kernel(&s, &fd);
        r = send_message(fd, msg, flags);
        cancel_kept(kept);
    }
    if (s != NULL)
        sock_put(s);
    return keep_errno(r, err);
}

/* Of this message a part only: what is behind it may not come before its rest. */
static bool is_part(const struct msghdr *msg, ssize_t sent)
{
    struct iov_iter whole = iov_iter_init(msg->msg_iov, msg->msg_iovlen);
    return (size_t)sent < cut(iov_iter_left(&whole));
}

/* On what is not accelerated. */
static int send_messages(int fd, struct mmsghdr *vec, unsigned n, int flags)
{
    unsigned done = 0;
    if (SW_LIKELY(!io_ring_would_cut(fd, flags)) || (flags & MSG_COMPAT) || n == 0 || n > IOV_MAX ||
        !probe_can_write(vec, n * sizeof(*vec)))
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
            unsigned kept = by_kernel_still(s);
            int more = send_messages(sock_fd_now(s, fd), vec + done, n - done, flags);
            cancel_kept(kept);
            return more > 0 ? (ssize_t)done + more : done > 0 ? (ssize_t)done : -errno;
        }
        if (r >= 0 && !probe_can_write(&vec[done].msg_len, sizeof(vec[done].msg_len)))
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
    int err = errno;
    cancel_enter();
    struct sock *s = sock_get_active(fd);
    if (s == NULL)
        return sock_is_leaving(fd) ? -1 : send_messages(fd, vec, n, flags);
    ssize_t r = flags & MSG_COMPAT ? -EINVAL : out_msgs(s, fd, vec, n, flags);
    sock_put(s);
    return (int)keep_errno(result(r), err);
}

/* Of the flags RWF_NOWAIT alone means something on a socket; the kernel knows these, and refuses others. */
#define RWF_NOWAIT_BIT 0x8
#define RWF_KNOWN 0x1f

static int rwf_to_msg(int flags)
{
    return (flags & RWF_NOWAIT_BIT) ? MSG_DONTWAIT : 0;
}

/* The kernel's own answer to these: they do not reach the connection. */
static bool not_for_us(int n, off_t off, int flags)
{
    return off != -1 || n < 0 || n > IOV_MAX || (flags & ~RWF_KNOWN) != 0;
}

/* Flags that this kernel may know, and we do not: as if it did not. */
static bool unknown_flags(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    if (off != -1 || n <= 0 || n > IOV_MAX || (flags & ~RWF_KNOWN) == 0 || !is_active(fd) ||
        vector_len(iov, (size_t)n) <= 0)
        return false;
    errno = EOPNOTSUPP;
    return true;
}

ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    if (unknown_flags(fd, iov, n, off, flags))
        return -1;
    if (not_for_us(n, off, flags))
        return REAL(preadv2)(fd, iov, n, off, flags);
    READV(fd, iov, (size_t)n, rwf_to_msg(flags), REAL(preadv2)(fd, iov, n, off, flags));
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
    if (unknown_flags(fd, iov, n, off, flags))
        return -1;
    if (not_for_us(n, off, flags))
        return REAL(pwritev2)(fd, iov, n, off, flags);
    WRITEV(fd, iov, (size_t)n, rwf_to_msg(flags), REAL(pwritev2)(fd, iov, n, off, flags));
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
    return preadv2(fd, iov, n, off, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t off, int flags)
{
    return pwritev2(fd, iov, n, off, flags);
}
