/*
 * Looks at the program's submissions, entry by entry. The program may change an entry's memory meanwhile, so it is read
 * once.
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
#include "preload/calls/bridge.h"
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
#define CMD_GETSOCKOPT 2 /* SOCKET_URING_OP_ */
#define CMD_SETSOCKOPT 3

/* ---- one request ---- */

/* It fails, with EBADF: a clear end. */
static void spoil(struct io_uring_sqe *sqe)
{
    sqe->flags &= (uint8_t)~IOSQE_FIXED_FILE;
    sqe->fd = -1;
}

/* Our function has made the call without an error. (The kernel will find an error by itself.) */
static void make_nop(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    struct io_uring_sqe nop = { .opcode = IORING_OP_NOP, .flags = q->flags, .fd = -1, .user_data = q->user_data };
    nop.flags &= (uint8_t)~IOSQE_FIXED_FILE;
    *sqe = nop;
}

/* s was upgraded or may be: does the kernel alone have it by now? */
static bool left_plain(struct sock *s)
{
    struct conn *c = s->conn;
    startup_decline(s);
    return !atomic_load(&s->active) || (conn_state(c) == CONN_PLAIN && !conn_may_be_staged(c));
}

/* Can the kernel serve fd from now on, because it is plain or by a bridge? */
static bool leave_to_kernel(int fd)
{
    struct sock *s = sock_get_active(fd);
    bool good = s == NULL || left_plain(s) || bridge_build(s, fd) == 0;
    if (s != NULL)
        sock_put(s);
    return good;
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

/*
 * Sends without a copy, which a local socket does not know: with one, and there is no notification (nor is any
 * announced).
 */
static void copy_it(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    sqe->opcode = q->opcode == IORING_OP_SEND_ZC ? IORING_OP_SEND : IORING_OP_SENDMSG;
    sqe->ioprio = q->ioprio & IORING_RECVSEND_POLL_FIRST;
    sqe->buf_index = 0;
    if (q->opcode == IORING_OP_SEND_ZC)
        sqe->addr2 = sqe->addr_len = 0;
}

static bool is_zerocopy(const struct io_uring_sqe *q)
{
    return q->opcode == IORING_OP_SEND_ZC || q->opcode == OP_SENDMSG_ZC;
}

/* fd may be behind a bridge. */
static void look_bridged(struct io_uring_sqe *sqe, const struct io_uring_sqe *q, int fd)
{
    bool option = q->opcode == IORING_OP_URING_CMD && (q->cmd_op == CMD_GETSOCKOPT || q->cmd_op == CMD_SETSOCKOPT) &&
                  !bridge_is_pairs((int)(uint32_t)q->addr, (int)(q->addr >> 32));
    int tcp = option || is_zerocopy(q) ? bridge_hold(fd) : -1;
    if (tcp < 0)
        return;
    if (option)
        sqe->fd = tcp;
    else
        copy_it(sqe, q);
    bridge_release();
}

/* A request on a file: it shows what the program uses its rings for. */
static void look_file(int fd)
{
    struct stat st;
    if (!atomic_load_explicit(&ring_files, memory_order_relaxed) && fstat(fd, &st) == 0 &&
        (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        atomic_store(&ring_files, true);
}

/*
 * A request that reads or writes fd, or does something else to it. chained: it waits for another one, or another one
 * for it.
 */
static void look_fd(struct io_uring_sqe *sqe, const struct io_uring_sqe *q, int fd, bool chained)
{
    if (sock_peek(fd) == NULL) {
        look_file(fd);
        return;
    }
    ring_look_sockets("a request on a socket");
    struct sock *s = sock_get_active(fd);
    bool upgraded = s != NULL && !left_plain(s);
    if (upgraded && q->opcode == IORING_OP_SHUTDOWN && !chained && shutdown(fd, (int)q->len) == 0)
        make_nop(sqe, q);
    else if (upgraded && bridge_build(s, fd) < 0)
        spoil(sqe);
    else if (bridge_any())
        look_bridged(sqe, q, fd);
    if (s != NULL)
        sock_put(s);
}

static void look_two(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    if (!(q->splice_flags & SPLICE_F_FD_IN_FIXED))
        look_fd(sqe, q, q->splice_fd_in, true);
    if (!(q->flags & IOSQE_FIXED_FILE))
        look_fd(sqe, q, q->fd, true);
}

/* Done here, even behind linked entries: a registration that we do not see would miss bytes in staging. */
static void look_epoll_ctl(struct io_uring_sqe *sqe, const struct io_uring_sqe *q)
{
    atomic_store(&ring_files, true);
    if (epoll_tracks(q->fd) &&
        epoll_ctl(q->fd, (int)q->len, (int)q->off, (struct epoll_event *)(uintptr_t)q->addr) == 0)
        make_nop(sqe, q);
}

/*
 * We must know of a close. One that is linked behind another request is found out later, like a close by a system call
 * of the program's own.
 */
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
        if (q.opcode == IORING_OP_SOCKET || (q.flags & IOSQE_FIXED_FILE)) {
            if (is_zerocopy(&q) && bridge_any()) /* its place may be a bridge's end */
                copy_it(sqe, &q);
            break;
        }
        look_fd(sqe, &q, q.fd, chained);
        break;
    default:
        if (takes_fd(q.opcode) && !(q.flags & IOSQE_FIXED_FILE)) /* (those were looked at when they were registered) */
            look_fd(sqe, &q, q.fd, chained);
        break;
    }
}
