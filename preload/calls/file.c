/*
 * Bytes between an active connection and files and pipes: sendfile, splice. The kernel decides all that does not
 * concern the connection: which files can be sent from, how much a pipe takes, and which calls are refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/calls/io.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_orphan.h"
#include "preload/conn/conn_peek.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/usermem.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"
#include "preload/startup/dispatch.h"

/* Bytes taken at a time into the call's own memory; a thread's stack may be small. */
#define PIECE_LEN 65536u
#define SEND_MAX_LEN 0x7ffff000u /* the kernel's limit for one call */
#define SPLICE_FLAGS (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

static __attribute__((noinline)) ssize_t send_piece(struct sock *s, int fd, const void *buf, size_t len, int flags)
{
    struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
    struct iov_iter it = iov_iter_init(&v, 1);
    struct cancel allow = cancel_allow();
    ssize_t r = dispatch_send(s, fd, &it, len, flags);
    cancel_restore(allow);
    return r;
}

/* ---- sendfile ---- */

/*
 * The process' room for large pieces, which fewer calls send, for one thread at a time; the others have their own. (A
 * call that is left by siglongjmp leaves it taken, as does one that another thread is in at a fork, in the child.)
 */
static uint8_t big[CONN_BATCH_LEN];
static _Atomic bool big_taken;

/* What sendfile reads from. */
struct source {
    int fd;
    int copy;        /* a file of our own that the kernel sends it to, -1: pread does as well */
    bool own;        /* it is read at its own position, not at an offset of the program's */
    bool big;        /* has the room for large pieces, */
    uint8_t *mem;    /* or this; the call's */
    bool guessed;    /* the number was that of a file which pread reads as sendfile sends it; it may be another's now */
    off64_t at, end; /* end: as far as is known */
    size_t len;      /* asked for in all */
};

/*
 * A file with blocks can be sent from. Of devices, of files that are made up as they are read, and of where offsets
 * end, only the kernel knows.
 */
static bool reads_as_sent(struct source *src)
{
    struct stat st;
    bool good = src->at >= 0 && src->len <= (uint64_t)(INT64_MAX - src->at) && fstat(src->fd, &st) == 0 &&
                S_ISREG(st.st_mode) && st.st_blocks > 0;
    src->end = good ? st.st_size : 0;
    return good;
}

/*
 * The same, by the last call on this connection, for what one pread reads: servers send file after file by the same
 * number. If it is something else by now, pread mostly fails, and it is looked at again; a device that can be read so
 * gives what sendfile would.
 */
static bool read_as_sent_before(struct source *src, const struct sock *s)
{
    src->guessed = !src->own && src->at >= 0 && src->len <= PIECE_LEN && src->len <= (uint64_t)(INT64_MAX - src->at) &&
                   atomic_load_explicit(&s->sent_from, memory_order_relaxed) == src->fd + 1;
    return src->guessed;
}

static void source_fini(void *source)
{
    const struct source *src = source;
    if (src->copy >= 0)
        REAL(close)(src->copy);
    if (src->big)
        atomic_store(&big_taken, false);
    free(src->mem);
}

/* More is known to follow a piece of n bytes: the kernel need not send its last segment by itself. */
static int piece_flags(const struct source *src, size_t n)
{
    return src->copy < 0 && n < src->len && (off64_t)n < src->end - src->at ? MSG_MORE : 0;
}

/* From here on it is copied. 0 or -errno. */
static int source_copied(struct source *src)
{
    if (src->copy < 0)
        src->copy = memfd_create("sockwarp", MFD_CLOEXEC);
    if (src->copy < 0)
        return -ENOMEM;
    if (src->copy != src->fd)
        return 0;
    REAL(close)(src->copy); /* the number was free: there is no file */
    src->copy = -1;
    return -EBADF;
}

static ssize_t source_read(struct source *src, uint8_t *buf, size_t most)
{
    size_t want = src->len < most ? src->len : most;
    ssize_t n;
    if (src->copy < 0) {
        n = pread64(src->fd, buf, want, src->at);
        return n < 0 ? -errno : n;
    }
    if (src->at >= 0 && src->len > (uint64_t)(INT64_MAX - src->at))
        want = src->len; /* refused as a whole */
    off64_t at = src->at;
    lseek64(src->copy, 0, SEEK_SET);
    n = REAL(sendfile64)(src->copy, src->fd, src->own ? NULL : &at, want);
    if (n < 0)
        return -errno;
    n = pread64(src->copy, buf, (size_t)n < most ? (size_t)n : most, 0);
    return n < 0 ? -errno : n;
}

/* How it is read: what is no file that reads as it is sent is copied. 0 or -errno. */
static int source_choose(struct source *src, struct sock *s)
{
    if (read_as_sent_before(src, s))
        return 0;
    bool as_sent = reads_as_sent(src);
    atomic_store_explicit(&s->sent_from, as_sent ? src->fd + 1 : 0, memory_order_relaxed);
    if (as_sent)
        return 0;
    coalesce_before_wait(); /* (reading a file is not waiting) */
    return source_copied(src);
}

/*
 * pread gave an end or an error. Is that the answer, or was src no such file? True: it was not: from now on its bytes
 * are copied, and this read is repeated.
 */
static bool source_again(struct source *src, ssize_t n)
{
    if (src->copy >= 0 || n > 0 || (n < 0 && !src->guessed))
        return false;
    if (src->guessed)
        coalesce_before_wait();
    return source_copied(src) == 0;
}

/*
 * Sends src piece by piece. *done: bytes sent; returns what the last step said. position: as the kernel has left it.
 */
static ssize_t send_source(struct sock *s, int out, struct source *src, size_t *done, off64_t *position)
{
    size_t most = src->len < PIECE_LEN ? src->len : PIECE_LEN;
    src->big = src->len > PIECE_LEN && !atomic_exchange(&big_taken, true);
    src->mem = src->big ? NULL : malloc(most);
    uint8_t *buf = src->big ? big : src->mem;
    if (buf == NULL) {
        source_fini(src);
        return -ENOMEM;
    }
    bool waits = !atomic_load(&s->nonblock);
    ssize_t r = 0;
    unsigned kept = cancel_keep(source_fini, src);
    while (src->len > 0) {
        if (*done > 0 && !waits && !conn_has_room(out)) {
            conn_room_used(s->conn, 0, src->len);
            break;
        }
        ssize_t n = source_read(src, buf, src->big ? conn_batch_len(s->conn, waits) : most);
        if (*done == 0 && source_again(src, n))
            continue;
        r = n;
        if (n <= 0)
            break;
        if (src->copy >= 0)
            *position += n;
        r = send_piece(s, out, buf, (size_t)n, piece_flags(src, (size_t)n));
        if (r <= 0)
            break;
        *done += (size_t)r;
        src->at += r;
        src->len -= (size_t)r;
        if (r < n)
            break;
    }
    cancel_kept(kept);
    source_fini(src);
    return r;
}

/* The file's position, or the offset, is moved by what was sent, so that a short send loses nothing. */
static ssize_t file_to_conn(struct sock *s, int out, int in, off64_t *off, size_t len)
{
    if (off != NULL && !usermem_readable(off, sizeof(*off)))
        return -EFAULT;
    struct source src = { .fd = in, .copy = -1, .own = off == NULL, .len = len < SEND_MAX_LEN ? len : SEND_MAX_LEN };
    src.at = off != NULL ? *off : lseek64(in, 0, SEEK_CUR);
    off64_t position = src.at;
    int bad = source_choose(&src, s);
    if (bad != 0)
        return bad;
    size_t done = 0;
    ssize_t r = send_source(s, out, &src, &done, &position);
    if (src.own && src.at >= 0 && src.at != position && lseek64(in, src.at, SEEK_SET) < 0 && done == 0)
        return -errno;
    if (done == 0 && r == CONN_ASK_KERNEL)
        return r;
    if (off != NULL && !usermem_writable(off, sizeof(*off)))
        return -EFAULT;
    if (off != NULL)
        *off = src.at;
    return done > 0 ? (ssize_t)done : r;
}

/* ---- pipes ---- */

/* Is it a pipe, open for this (O_RDONLY, O_WRONLY)? *wait: it may be waited for. */
static bool is_pipe(int fd, int access, bool *wait)
{
    struct stat st;
    int fl = REAL(fcntl)(fd, F_GETFL);
    if (fl < 0 || (fl & O_PATH) || ((fl & O_ACCMODE) != access && (fl & O_ACCMODE) != O_RDWR))
        return false;
    *wait = *wait && !(fl & O_NONBLOCK);
    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* wait_for in a call on s. */
static __attribute__((noinline)) int await(int fd, short events, struct sock *self, struct sock *s)
{
    unsigned kept = cancel_keep(conn_left, s);
    int r = wait_for(fd, events, 0, self);
    cancel_kept(kept);
    return r;
}

static void close_both(const int fds[2])
{
    REAL(close)(fds[0]);
    REAL(close)(fds[1]);
}

/* There has to be room in the pipe, and a reader, before the connection is looked at. */
static int await_pipe(struct sock *s, int fd, bool wait)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int events = REAL(poll)(&p, 1, 0) < 0 ? -errno : p.revents;
    if (events == 0 && wait)
        events = await(fd, POLLOUT, NULL, s);
    if (events > 0 && (events & POLLERR)) {
        raise(SIGPIPE);
        return -EPIPE;
    }
    return events < 0 ? events : (events & POLLOUT) ? 0 : -EAGAIN;
}

/*
 * Moves as much as there is room for, without waiting, whatever the pipe's flags are: splice between two pipes can do
 * that.
 */
static ssize_t put(int fd, const uint8_t *buf, size_t len)
{
    int own[2];
    if (pipe2(own, O_CLOEXEC | O_NONBLOCK) < 0)
        return -ENOMEM;
    ssize_t n = REAL(write)(own[1], buf, len);
    if (n > 0)
        n = REAL(splice)(own[0], NULL, fd, NULL, (size_t)n, SPLICE_F_NONBLOCK);
    if (n < 0)
        n = -errno;
    close_both(own);
    return n;
}

/* Looks at the bytes, gives the pipe what it takes, and only then takes them off the stream. buf: room for len. */
static __attribute__((noinline)) ssize_t to_pipe(struct sock *s, int in, int out, uint8_t *buf, size_t len, bool wait)
{
    for (;;) {
        ssize_t n = await_pipe(s, out, wait);
        if (n < 0)
            return n;
        struct iovec v = { .iov_base = buf, .iov_len = len };
        struct iov_iter it = iov_iter_init(&v, 1);
        struct cancel allow = cancel_allow();
        n = dispatch_recv(s, in, &it, v.iov_len, MSG_PEEK | CONN_PEEK_FIRST);
        cancel_restore(allow);
        if (n <= 0)
            return n;
        n = put(out, buf, (size_t)n);
        if (n == -EAGAIN && wait)
            continue; /* another thread has filled it */
        if (n <= 0)
            return n;
        it = iov_iter_init(&v, 1);
        ssize_t r = dispatch_recv(s, in, &it, (size_t)n, MSG_TRUNC);
        return r < 0 ? r : n;
    }
}

static ssize_t conn_to_pipe(struct sock *s, int in, int out, size_t len, bool wait)
{
    size_t most = len < PIECE_LEN ? len : PIECE_LEN;
    uint8_t *buf = malloc(most);
    if (buf == NULL)
        return -ENOMEM;
    unsigned kept = cancel_keep(free, buf);
    ssize_t r = to_pipe(s, in, out, buf, most, wait);
    cancel_kept(kept);
    free(buf);
    return r;
}

static __attribute__((noinline)) ssize_t tee_waiting(struct sock *s, int in, int out, size_t len, unsigned flags)
{
    unsigned kept = cancel_keep(conn_left, s);
    ssize_t n;
    CANCEL_POINT(n = tee(in, out, len, flags));
    cancel_kept(kept);
    return n;
}

struct pipe_copy {
    int pipe[2];
    uint8_t *buf;
};

static void pipe_copy_fini(void *copied)
{
    const struct pipe_copy *copy = copied;
    close_both(copy->pipe);
    free(copy->buf);
}

/*
 * A pipe cannot be looked into; tee(2) copies without taking, and waits as splice would. What was sent is then moved,
 * not read: of bytes that were written together a read drops the rest.
 */
static ssize_t pipe_piece(struct sock *s, int in, int out, size_t len, unsigned flags, bool *all)
{
    size_t most = len < PIECE_LEN ? len : PIECE_LEN;
    struct pipe_copy copied = { .buf = malloc(most) };
    const int *copy = copied.pipe;
    uint8_t *buf = copied.buf;
    if (buf == NULL || pipe2(copied.pipe, O_CLOEXEC) < 0) {
        free(buf);
        return -ENOMEM;
    }
    unsigned kept = cancel_keep(pipe_copy_fini, &copied);
    ssize_t n = tee_waiting(s, in, copy[1], most, flags & SPLICE_F_NONBLOCK);
    if (n < 0)
        n = -errno;
    for (ssize_t got = 0, r; got < n; got += r) {
        r = REAL(read)(copy[0], buf + got, (size_t)(n - got));
        if (r <= 0)
            n = got;
    }
    ssize_t sent = n <= 0 ? n : send_piece(s, out, buf, (size_t)n, (flags & SPLICE_F_MORE) ? MSG_MORE : 0);
    for (ssize_t left = sent, r; left > 0; left -= r) {
        r = REAL(splice)(in, NULL, copy[1], NULL, (size_t)left, SPLICE_F_NONBLOCK);
        if (r <= 0)
            break;
    }
    cancel_kept(kept);
    pipe_copy_fini(&copied);
    *all = sent > 0 && sent == n;
    return sent;
}

/* All that is there, up to len; waits only for the first bytes. */
static ssize_t pipe_to_conn(struct sock *s, int in, int out, size_t len, unsigned flags)
{
    size_t done = 0;
    ssize_t r = 0;
    bool all = true;
    if (!(flags & SPLICE_F_NONBLOCK) && pending_others(s) && (r = await(in, POLLIN, s, s)) < 0)
        return r;
    while (done < len && all) {
        r = pipe_piece(s, in, out, len - done, done > 0 ? flags | SPLICE_F_NONBLOCK : flags, &all);
        done += r > 0 ? (size_t)r : 0;
    }
    return done > 0 ? (ssize_t)done : r;
}

/* ---- the calls ---- */

/* err: errno as the call found it; one that succeeds leaves that. */
static ssize_t result(ssize_t r, int err)
{
    errno = r < 0 ? (int)-r : err;
    return r < 0 ? -1 : r;
}

static ssize_t or_errno(ssize_t r)
{
    return r < 0 ? -errno : r;
}

#define WITH_ROOM_LEN 1024u /* where poll says that there is room, there is this much */

/* A call that the kernel does. */
struct plain {
    ssize_t (*call)(const struct plain *p, size_t len, bool first); /* len bytes of it; as the real call */
    int in, out;
    off64_t *off;
    unsigned flags;
};

/* By waiting in poll and pieces that have room: see io_ring_would_cut. */
static ssize_t in_pieces(const struct plain *p, size_t len)
{
    uint64_t deadline = wait_call_deadline(p->out, SO_SNDTIMEO);
    size_t done = 0;
    while (done < len) {
        struct cancel hold = cancel_hold(NULL, NULL); /* the wait has pending entries' descriptors meanwhile */
        int ready = wait_for(p->out, POLLOUT, deadline, NULL);
        cancel_restore(hold);
        if (ready <= 0)
            return done > 0 ? (ssize_t)done : ready < 0 ? ready : -EAGAIN;
        ssize_t n = p->call(p, len - done < WITH_ROOM_LEN ? len - done : WITH_ROOM_LEN, done == 0);
        if (n <= 0)
            return done > 0 ? (ssize_t)done : or_errno(n);
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static ssize_t sendfile_piece(const struct plain *p, size_t len, bool first)
{
    (void)first;
    return REAL(sendfile64)(p->out, p->in, p->off, len);
}

/* (It waits for the pipe's first bytes only.) */
static ssize_t splice_piece(const struct plain *p, size_t len, bool first)
{
    return REAL(splice)(p->in, NULL, p->out, NULL, len, first ? p->flags : p->flags | SPLICE_F_NONBLOCK);
}

static ssize_t plain_sendfile(int out, int in, off64_t *off, size_t len)
{
    if (len == 0 || SW_LIKELY(!io_ring_would_cut(out, 0)))
        return or_errno(REAL(sendfile64)(out, in, off, len));
    return in_pieces(&(struct plain){ sendfile_piece, in, out, off, 0 }, len);
}

static ssize_t plain_splice(int in, off64_t *in_off, int out, off64_t *out_off, size_t len, unsigned flags)
{
    bool wait = !(flags & SPLICE_F_NONBLOCK),
         asked = len == 0 || in_off != NULL || out_off != NULL || (flags & ~SPLICE_FLAGS);
    if (!asked && wait && is_pipe(out, O_WRONLY, &wait) && wait && io_drive_before(in, 0) < 0)
        return -errno;
    if (asked || SW_LIKELY(!io_ring_would_cut(out, 0)))
        return or_errno(REAL(splice)(in, in_off, out, out_off, len, flags));
    return in_pieces(&(struct plain){ splice_piece, in, out, NULL, flags }, len);
}

ssize_t sendfile64(int out, int in, off64_t *off, size_t len)
{
    int err = errno;
    struct sock *s = sock_get_active(out), *from = s == NULL ? sock_get_active(in) : NULL;
    if (s == NULL)
        coalesce_before_wait();
    ssize_t r = CONN_ASK_KERNEL;
    bool wait = true;
    struct cancel hold = cancel_hold(NULL, NULL);
    if (s == NULL && (sock_is_closing(out) || (from == NULL && sock_is_closing(in))))
        r = -EBADF;
    else if (len > 0 && len <= SSIZE_MAX) { /* (else the kernel refuses the call, or sends nothing) */
        if (s != NULL)
            r = file_to_conn(s, out, in, off, len);
        else if (from != NULL && off == NULL && is_pipe(out, O_WRONLY, &wait))
            r = conn_to_pipe(from, in, out, len, wait);
    }
    cancel_restore(hold);
    if (s != NULL)
        sock_put(s);
    if (from != NULL)
        sock_put(from);
    return result(r == CONN_ASK_KERNEL ? plain_sendfile(out, in, off, len) : r, err);
}

ssize_t sendfile(int out, int in, off_t *off, size_t len)
{
    _Static_assert(sizeof(off_t) == sizeof(off64_t), "64-bit only");
    return sendfile64(out, in, off, len);
}

/* (The kernel refuses calls that are neither from a pipe to a connection nor the other way.) */
ssize_t splice(int in, off64_t *in_off, int out, off64_t *out_off, size_t len, unsigned flags)
{
    int err = errno;
    coalesce_before_wait();
    struct sock *from = sock_get_active(in), *to = sock_get_active(out);
    ssize_t r = CONN_ASK_KERNEL;
    bool wait = !(flags & SPLICE_F_NONBLOCK);
    struct cancel hold = cancel_hold(NULL, NULL);
    if ((from == NULL && sock_is_closing(in)) || (to == NULL && sock_is_closing(out)))
        r = -EBADF;
    else if ((from == NULL) != (to == NULL) && in_off == NULL && out_off == NULL && len > 0 && len <= SSIZE_MAX &&
             !(flags & ~SPLICE_FLAGS)) {
        if (from != NULL && is_pipe(out, O_WRONLY, &wait))
            r = conn_to_pipe(from, in, out, len, wait);
        else if (to != NULL && is_pipe(in, O_RDONLY, &wait))
            r = pipe_to_conn(to, in, out, len, wait ? flags : flags | SPLICE_F_NONBLOCK);
    }
    cancel_restore(hold);
    if (from != NULL)
        sock_put(from);
    if (to != NULL)
        sock_put(to);
    return result(r == CONN_ASK_KERNEL ? plain_splice(in, in_off, out, out_off, len, flags) : r, err);
}
