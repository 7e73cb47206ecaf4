/*
 * The calls that move bytes: what they have in common. Descriptors that are not active go to the kernel after one table
 * look-up.
 *
 *     struct io io;
 *     enum io_who who = io_in_begin(&io, fd, flags);
 *     if (SW_LIKELY(who == IO_KERNEL))
 *         return REAL(recv)(fd, buf, len, flags);
 *     if (who == IO_OURS && io_in(&io, &v, 1))        true: it turned out plain
 *         io.r = REAL(recv)(io.fd, buf, len, flags);
 *     return io_end(&io);
 */
#ifndef SW_PRELOAD_IO_H
#define SW_PRELOAD_IO_H

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/must.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/cancel.h"
#include "preload/sock/sock.h"

#define IO_LEN_MAX 0x7ffff000u           /* what the kernel moves in one call */
#define IO_MSG_COMPAT ((int)0x80000000u) /* MSG_CIO_MSG_COMPAT: the kernel's own, refused by the calls with a msghdr */
#define io_beyond_memory(len) ((len) >> 47) /* no buffer is that long: EFAULT before anything is looked at */

enum io_who {
    IO_KERNEL, /* nothing of ours: the kernel's call is the program's */
    IO_OURS,   /* io.s */
    IO_DONE,   /* io.r */
};

/* One call, from its first look at the descriptor to its end. */
struct io {
    struct sock *s; /* with a reference; NULL */
    int fd;         /* another name of it, once another thread has closed the first */
    int flags;      /* recv's and send's */
    int err;        /* errno before: it stays what it was when a call succeeds, as the kernel leaves it */
    bool keeps;     /* cancel_keep: */
    unsigned kept;
    ssize_t r; /* as the call returns it, with errno */
};

/* n as recv(2) returns it, with errno. */
static inline ssize_t io_result(ssize_t n)
{
    if (n >= 0 || n == CONN_ASK_KERNEL)
        return n;
    errno = (int)-n;
    return -1;
}

/* -1: with errno. */
static inline enum io_who io_done(struct io *io, ssize_t r)
{
    io->r = r;
    return IO_DONE;
}

/* A call that reads begins on fd; one that sends does. */
enum io_who io_in_other(struct io *io) SW_MUST;
enum io_who io_out_other(struct io *io) SW_MUST;

SW_MUST static inline enum io_who io_begin(struct io *io, int fd, int flags)
{
    io->fd = fd;
    io->flags = flags;
    io->err = errno;
    io->keeps = false;
    io->s = sock_get_active(fd);
    return SW_LIKELY(io->s == NULL) ? IO_KERNEL : IO_OURS;
}

SW_MUST static inline enum io_who io_in_begin(struct io *io, int fd, int flags)
{
    cancel_enter();
    coalesce_before_read();
    return SW_LIKELY(io_begin(io, fd, flags) == IO_KERNEL) ? io_in_other(io) : IO_OURS;
}

SW_MUST static inline enum io_who io_out_begin(struct io *io, int fd, int flags)
{
    cancel_enter();
    return SW_LIKELY(io_begin(io, fd, flags) == IO_KERNEL) ? io_out_other(io) : IO_OURS;
}

/* As dispatch_recv and dispatch_send, for a vector of the program's. errno stays. */
ssize_t io_in_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags) SW_MUST;
ssize_t io_out_iov(struct sock *s, int fd, const struct iovec *iov, size_t n, int flags) SW_MUST;

/* It turned out plain. As io_in_went, io_out_went. */
bool io_in_is_kernels(struct io *io) SW_MUST;
bool io_out_is_kernels(struct io *io) SW_MUST;

/*
 * The call on an active descriptor. True: it turned out plain, and io.r is for the kernel's call on io.fd to say;
 * false: io.r is there. io_in_went, io_out_went: r is what io_in_iov and the like have returned.
 */
SW_MUST static inline bool io_in_went(struct io *io, ssize_t r)
{
    io->r = io_result(r);
    return SW_UNLIKELY(io->r == CONN_ASK_KERNEL) && io_in_is_kernels(io);
}

SW_MUST static inline bool io_out_went(struct io *io, ssize_t r)
{
    io->r = io_result(r);
    return SW_UNLIKELY(io->r == CONN_ASK_KERNEL) && io_out_is_kernels(io);
}

SW_MUST static inline bool io_in(struct io *io, const struct iovec *iov, size_t n)
{
    return io_in_went(io, io_in_iov(io->s, io->fd, iov, n, io->flags));
}

/* It was plain all the time, or is now: what the kernel would cut is sent in pieces. */
bool io_out_pieces(struct io *io, const struct iovec *iov, size_t n) SW_MUST;

SW_MUST static inline bool io_out(struct io *io, const struct iovec *iov, size_t n)
{
    return SW_UNLIKELY(io_out_went(io, io_out_iov(io->s, io->fd, iov, n, io->flags))) && !io_out_pieces(io, iov, n);
}

/* Its end: returns io.r. */
static inline ssize_t io_end(struct io *io)
{
    if (SW_UNLIKELY(io->keeps))
        cancel_kept(io->kept);
    if (io->s != NULL)
        sock_put(io->s);
    if (io->r >= 0)
        errno = io->err;
    return io->r;
}

/* The length of a vector as the kernel takes it: cut to what one call moves. -EINVAL, -EFAULT. */
ssize_t io_vector_len(const struct iovec *iov, size_t n) SW_MUST;
/*
 * Does the kernel refuse to look at the message? Of one with more vector elements than it takes nothing is looked at.
 */
int io_header_check(const struct msghdr *msg, int flags) SW_MUST;
/*
 * From now on fd's file is used without us as well: the process's later connections stay plain, and one that is upgraded
 * becomes a bridge's end. False: it cannot. errno stays.
 */
bool io_pass(int fd) SW_MUST;
bool io_is_active(int fd);
/* read(2) and write(2) do not cut such a length, they refuse it: true, with errno. */
bool io_refused(int fd, size_t len) SW_MUST;
/*
 * The kernel does the call on s; a thread that is cancelled in it gives the reference back at its end. For cancel_kept.
 */
unsigned io_by_kernel(struct sock *s) SW_MUST;

static inline size_t io_cut(size_t len)
{
    return len < IO_LEN_MAX ? len : IO_LEN_MAX;
}

static inline struct iovec io_one(const void *buf, size_t len)
{
    return (struct iovec){ .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
}

/*
 * A blocking read of something else: while negotiations are under way, it drives them first. Of a descriptor that can
 * be read already, or is not blocking, poll returns at once. flags: recv's. -1 with errno if the call's time went by or
 * a handler interrupted it meanwhile; else 0, and the call itself says what there is to say.
 */
int io_drive_before(int fd, int flags) SW_MUST;

/*
 * A blocking send, with a time-out, on a connection of ours that is plain, while a request of this thread's ring is
 * under way: the kernel would end the call with EINTR (conn_ring_busy). It is done by waiting in poll and pieces that
 * have room.
 */
bool io_ring_would_cut(int fd, int flags) SW_MUST;
/* Such a send: as send(2). */
ssize_t io_out_in_pieces(int fd, const struct iovec *iov, size_t n, int flags);

/* preadv2 and pwritev2: flags that this kernel may know, and we do not: as if it did not. True, with errno. */
bool io_unknown_flags(int fd, const struct iovec *iov, int n, off_t off, int flags) SW_MUST;
/* The kernel's own answer to these: they do not reach the connection. */
bool io_not_for_us(int n, off_t off, int flags);
/* Of the flags RWF_NOWAIT alone means something on a socket. */
int io_rwf_to_msg(int flags);

#endif
