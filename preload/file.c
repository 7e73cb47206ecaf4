/*
 * Octets between an active connection and files and pipes: sendfile, splice.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "preload/conn.h"
#include "preload/probe.h"
#include "preload/proc.h"
#include "preload/real.h"

#define PIECE_LEN 65536u
#define SEND_MAX_LEN 0x7ffff000u /* the kernel's limit for one call */

static ssize_t send_piece(struct sock *s, int fd, const void *buf, size_t len, int flags)
{
    struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
    struct iov_iter it = iov_iter_init(&v, 1);
    return conn_send(s, fd, &it, len, flags);
}

/*
 * The file is read at its offset and the offset moved by what was sent, so that a short send loses nothing. The last piece
 * is not known to be the last: only pieces that are followed by more of the asked-for length say MSG_MORE.
 */
static ssize_t file_to_conn(struct sock *s, int out, int in, off64_t *off, size_t len)
{
    uint8_t buf[PIECE_LEN];
    if (off != NULL && !probe_can_write(off, sizeof(*off)))
        return -EFAULT;
    off64_t at = off != NULL ? *off : lseek64(in, 0, SEEK_CUR);
    if (at < 0)
        return off != NULL || errno == ESPIPE ? -EINVAL : -errno;
    if (len > SEND_MAX_LEN)
        len = SEND_MAX_LEN;
    size_t done = 0;
    ssize_t r = 0;
    while (done < len) {
        size_t want = len - done < sizeof(buf) ? len - done : sizeof(buf);
        r = pread64(in, buf, want, at);
        if (r < 0)
            r = errno == ESPIPE ? -EINVAL : -errno;
        if (r <= 0)
            break;
        size_t got = (size_t)r;
        r = send_piece(s, out, buf, got, 0);
        if (r <= 0)
            break;
        done += (size_t)r;
        at += r;
        if ((size_t)r < got)
            break;
    }
    if (done == 0)
        return r;
    if (off != NULL)
        *off = at;
    else if (lseek64(in, at, SEEK_SET) < 0)
        return -errno;
    return (ssize_t)done;
}

ssize_t sendfile64(int out, int in, off64_t *off, size_t len)
{
    struct sock *s = sock_get_active(out);
    if (s == NULL && sock_is_leaving(out)) {
        errno = EBADF;
        return -1;
    }
    if (s == NULL)
        return REAL(sendfile64)(out, in, off, len);
    ssize_t r = file_to_conn(s, out, in, off, len);
    sock_put(s);
    if (r == CONN_ASK_KERNEL)
        return REAL(sendfile64)(out, in, off, len);
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

ssize_t sendfile(int out, int in, off_t *off, size_t len)
{
    _Static_assert(sizeof(off_t) == sizeof(off64_t), "64-bit only");
    return sendfile64(out, in, off, len);
}

/* Looks at the octets, gives the pipe what it takes, and only then takes them off the stream. */
static ssize_t conn_to_pipe(struct sock *s, int in, int out, size_t len, unsigned flags)
{
    uint8_t buf[PIECE_LEN];
    struct iovec v = { .iov_base = buf, .iov_len = len < sizeof(buf) ? len : sizeof(buf) };
    struct iov_iter it = iov_iter_init(&v, 1);
    ssize_t n = conn_recv(s, in, &it, v.iov_len, MSG_PEEK | ((flags & SPLICE_F_NONBLOCK) ? MSG_DONTWAIT : 0));
    if (n <= 0)
        return n;
    ssize_t put;
    if (flags & SPLICE_F_NONBLOCK) {
        /* The flag is about the pipe; its descriptor may be a blocking one. */
        v.iov_len = (size_t)n;
        struct iovec piece = v;
        int fl = REAL(fcntl)(out, F_GETFL);
        bool set = fl >= 0 && !(fl & O_NONBLOCK) && REAL(fcntl)(out, F_SETFL, fl | O_NONBLOCK) == 0;
        put = REAL(writev)(out, &piece, 1);
        int err = errno;
        if (set)
            REAL(fcntl)(out, F_SETFL, fl);
        errno = err;
    } else {
        put = REAL(write)(out, buf, (size_t)n);
    }
    if (put < 0)
        return -errno;
    it = iov_iter_init(&v, 1);
    n = conn_recv(s, in, &it, (size_t)put, MSG_TRUNC);
    return n < 0 ? n : put;
}

/* A pipe cannot be looked into; tee(2) copies without taking. */
static ssize_t pipe_to_conn(struct sock *s, int in, int out, size_t len, unsigned flags)
{
    uint8_t buf[PIECE_LEN];
    int copy[2];
    if (pipe2(copy, O_CLOEXEC) < 0)
        return -errno;
    size_t want = len < sizeof(buf) ? len : sizeof(buf);
    ssize_t n = tee(in, copy[1], want, flags & SPLICE_F_NONBLOCK);
    if (n < 0)
        n = -errno;
    if (n > 0)
        n = REAL(read)(copy[0], buf, (size_t)n);
    REAL(close)(copy[0]);
    REAL(close)(copy[1]);
    if (n <= 0)
        return n;
    n = send_piece(s, out, buf, (size_t)n,
                   ((flags & SPLICE_F_NONBLOCK) ? MSG_DONTWAIT : 0) | ((flags & SPLICE_F_MORE) ? MSG_MORE : 0));
    for (size_t left = n > 0 ? (size_t)n : 0; left > 0;) {
        ssize_t r = REAL(read)(in, buf, left);
        if (r <= 0)
            break;
        left -= (size_t)r;
    }
    return n;
}

ssize_t splice(int in, off64_t *in_off, int out, off64_t *out_off, size_t len, unsigned flags)
{
    struct sock *from = sock_get_active(in), *to = sock_get_active(out);
    ssize_t r = CONN_ASK_KERNEL;
    if ((from == NULL && sock_is_leaving(in)) || (to == NULL && sock_is_leaving(out)))
        r = -EBADF;
    else if (from != NULL && to == NULL && in_off == NULL)
        r = conn_to_pipe(from, in, out, len, flags);
    else if (to != NULL && from == NULL && out_off == NULL && in_off == NULL)
        r = pipe_to_conn(to, in, out, len, flags);
    if (from != NULL)
        sock_put(from);
    if (to != NULL)
        sock_put(to);
    if (r == CONN_ASK_KERNEL)
        return REAL(splice)(in, in_off, out, out_off, len, flags);
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}
