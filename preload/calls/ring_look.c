/*
 * What the program submits to its rings, entry by entry. An entry is memory that the program may change meanwhile: it is read once.
 */
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/calls/exec.h"
#include "preload/calls/ring.h"
#include "preload/conn/conn.h"
#include "preload/process/hidden.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/sock/sock.h"
#include "preload/startup/local.h"
#include "preload/startup/startup.h"

/* What liburing 2.3's header does not have. */
#define OP_SENDMSG_ZC 48
#define OP_READ_MULTISHOT 49
#define OP_FTRUNCATE 55
#define OP_BIND 56
#define OP_EPOLL_WAIT 59

/* ---- listeners' names ---- */

static void names_go(int fd, struct sock *s, void *arg)
{
    const bool *later = arg;
    (void)fd;
    if (s->kind != SOCK_LISTENER)
        return;
    if (s->name_fd[0] >= 0) {
        local_names_end(s); /* for those who share them */
        local_names_close(s);
        atomic_store(&s->names_later, true);
    }
    if (!*later)
        atomic_store(&s->names_later, false);
}

void ring_look_made(void)
{
    bool later = true;
    if (local_names() > 0)
        sock_each(names_go, &later);
}

void ring_look_sockets(const char *how)
{
    atomic_store(&ring_ever, true);
    if (atomic_exchange(&ring_sockets, true))
        return;
    bool later = false;
    trace_info("the program drives sockets through its own io_uring: %s", how);
    sock_each(names_go, &later);
}

void ring_awaits(int fd)
{
    struct sock *s = ring_drives_sockets() ? NULL : sock_get(fd);
    if (s == NULL)
        return;
    if (s->kind == SOCK_LISTENER && atomic_load(&s->names_later) && atomic_exchange(&s->names_later, false) && names_may_be())
        local_names_open(s, fd);
    sock_put(s);
}

/* ---- one request ---- */

/* It fails, with EBADF: a clear end. */
static void spoil(struct io_uring_sqe *sqe)
{
    sqe->flags &= (uint8_t)~IOSQE_FIXED_FILE;
    sqe->fd = -1;
}

/* It was made by ours, without an error. (One the kernel finds again by itself.) */
static void make_nop(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    struct io_uring_sqe nop = { .opcode = IORING_OP_NOP, .flags = q->flags, .fd = -1, .user_data = q->user_data };
    nop.flags &= (uint8_t)~IOSQE_FIXED_FILE;
    *sqe = nop;
}

/* s was or may become ours: is it the kernel's by now? */
static bool left_plain(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_decline(c, REASON_OWN_URING)) {
        int r = startup_go_on(s, false);
        (void)r; /* nothing more can be done */
    }
    return !atomic_load(&s->active) || (conn_state(c) == CONN_PLAIN && !conn_may_be_staged(c));
}

/* Is fd the kernel's alone, once it is left to it? */
static bool leave_to_kernel(int fd)
{
    struct sock *s = sock_get_active(fd);
    bool plain = s == NULL || left_plain(s);
    if (s != NULL)
        sock_put(s);
    return plain;
}

bool ring_look_register(const int *fds, size_t n)
{
    bool good = true;
    if (n > 1u << 20 || !usermem_readable(fds, n * sizeof(*fds)))
        return true; /* the kernel says what there is to say */
    for (size_t i = 0; i < n; i++) {
        if (sock_peek(fds[i]) == NULL)
            continue;
        ring_look_sockets("a registered socket");
        good = leave_to_kernel(fds[i]) && good;
    }
    return good;
}

/* A request on a file, which tells what the program has its rings for. */
static void look_file(int fd)
{
    struct stat st;
    if (!atomic_load_explicit(&ring_files, memory_order_relaxed) && fstat(fd, &st) == 0 &&
        (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        atomic_store(&ring_files, true);
}

/* A request that reads or writes fd, or does something else to it. chained: it waits for another one, or another one for it. */
static void look_fd(struct io_uring_sqe *sqe, const struct io_uring_sqe *q, int fd, bool chained)
{
    if (sock_peek(fd) == NULL) {
        look_file(fd);
        return;
    }
    ring_look_sockets("a request on a socket");
    if (leave_to_kernel(fd))
        return;
    if (q->opcode == IORING_OP_SHUTDOWN && !chained && shutdown(fd, (int)q->len) == 0)
        make_nop(sqe, q);
    else
        spoil(sqe);
}

static void look_two(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    if (!(q->splice_flags & SPLICE_F_FD_IN_FIXED))
        look_fd(sqe, q, q->splice_fd_in, true);
    if (!(q->flags & IOSQE_FIXED_FILE))
        look_fd(sqe, q, q->fd, true);
}

/* Made here, also where it stands behind others: a registration that we do not see would miss what lies in staging. */
static void look_epoll_ctl(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    atomic_store(&ring_files, true);
    if (epoll_tracks(q->fd) &&
        epoll_ctl(q->fd, (int)q->len, (int)q->off, (struct epoll_event *)(uintptr_t)q->addr) == 0)
        make_nop(sqe, q);
}

/* Closing is for us to know. One that waits for something else is found out later, as one by a system call of the program's own. */
static void look_close(struct io_uring_sqe *sqe, const struct io_uring_sqe *q, bool chained)
{
    if (q->file_index != 0)
        return;
    if (hidden_is(q->fd) || (!chained && (sock_peek(q->fd) != NULL || epoll_tracks(q->fd)))) {
        if (close(q->fd) == 0)
            make_nop(sqe, q);
    } else {
        ring_closed(q->fd);
    }
}

/* A ring that waits for descriptors is a loop of events. */
static void look_poll(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    ring_look_sockets("a ring that waits for descriptors");
    if (q->flags & IOSQE_FIXED_FILE)
        return;
    if (epoll_tracks(q->fd))
        epoll_nest(q->fd);
    if (sock_peek(q->fd) != NULL)
        look_fd(sqe, q, q->fd, true);
}

/* May it read or write a socket? (Newer ones are taken to.) */
static bool takes_fd(unsigned op)
{
    switch (op) {
    case IORING_OP_READ:
    case IORING_OP_WRITE:
    case IORING_OP_READV:
    case IORING_OP_WRITEV:
    case IORING_OP_READ_FIXED:
    case IORING_OP_WRITE_FIXED:
    case IORING_OP_URING_CMD:
    case OP_READ_MULTISHOT:
        return true;
    default:
        return op > OP_FTRUNCATE;
    }
}

void ring_look(struct io_uring_sqe *sqe, bool *behind)
{
    struct io_uring_sqe q = *(const volatile struct io_uring_sqe *)sqe;
    bool links = q.flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK);
    bool chained = *behind || links || (q.flags & IOSQE_IO_DRAIN);
    *behind = links;
    switch (q.opcode) {
    case IORING_OP_EPOLL_CTL:
        look_epoll_ctl(sqe, &q);
        break;
    case IORING_OP_CLOSE:
        look_close(sqe, &q, chained);
        break;
    case IORING_OP_POLL_ADD:
        look_poll(sqe, &q);
        break;
    case IORING_OP_SPLICE:
    case IORING_OP_TEE:
        look_two(sqe, &q);
        break;
    case OP_EPOLL_WAIT: /* a set of ours has no events that the program would understand */
        if (epoll_tracks(q.fd))
            spoil(sqe);
        break;
    case IORING_OP_FILES_UPDATE:
        if (!ring_look_register((const int *)(uintptr_t)q.addr, q.len))
            sqe->len = 0; /* EINVAL */
        break;
    case IORING_OP_ACCEPT:
    case IORING_OP_CONNECT:
    case IORING_OP_SEND:
    case IORING_OP_RECV:
    case IORING_OP_SENDMSG:
    case IORING_OP_RECVMSG:
    case IORING_OP_SHUTDOWN:
    case IORING_OP_SOCKET:
    case IORING_OP_SEND_ZC:
    case OP_SENDMSG_ZC:
    case OP_BIND:
    case OP_BIND + 1: /* LISTEN */
        ring_look_sockets("a request for a socket");
        if (q.opcode == IORING_OP_SOCKET || (q.flags & IOSQE_FIXED_FILE))
            break;
        look_fd(sqe, &q, q.fd, chained);
        break;
    default:
        if (takes_fd(q.opcode) && !(q.flags & IOSQE_FIXED_FILE)) /* (those were looked at when they were registered) */
            look_fd(sqe, &q, q.fd, chained);
        break;
    }
}
