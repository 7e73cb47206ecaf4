/*
 * A ring by liburing's library, on a connection that was upgraded before.
 */
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/semantics/sem_wait.h"

/* Under the name of the call that is refused where io_uring is forbidden. (liburing gives the error as a result.) */
static void make_ring(struct io_uring *io)
{
    int r = io_uring_queue_init(8, io, 0);
    errno = -r;
    must("io_uring_setup", r < 0 ? -1 : r);
}

/* The next completion's result. */
static int next(struct io_uring *io)
{
    struct io_uring_cqe *cqe;
    int r = io_uring_wait_cqe(io, &cqe);
    if (r < 0)
        return r;
    r = cqe->res;
    io_uring_cqe_seen(io, cqe);
    return r;
}

static void say_res(const char *what, int res)
{
    if (res < 0)
        say(" %s=%s", what, error_name(-res));
    else
        say(" %s=%d", what, res);
}

static void recv_by(struct io_uring *io, int s, int (*submit)(struct io_uring *io))
{
    uint8_t buf[10];
    io_uring_prep_recv(io_uring_get_sqe(io), s, buf, sizeof(buf), 0);
    say_res("submit", submit(io));
    far_do(FAR_SEND, 10);
    say_res("recv", next(io));
    check(buf, 10);
}

static void send_by(struct io_uring *io, int s)
{
    uint8_t buf[10];
    fill(buf, sizeof(buf), sem_tx);
    sem_tx += sizeof(buf);
    io_uring_prep_send(io_uring_get_sqe(io), s, buf, sizeof(buf), 0);
    say_res("submit", io_uring_submit_and_wait(io, 1));
    say_res("send", next(io));
    far_say("far", far_do(FAR_RECV, 10));
}

static void ring_library(int s)
{
    struct io_uring io;
    one_octet(s);
    make_ring(&io);
    recv_by(&io, s, io_uring_submit);
    recv_by(&io, s, io_uring_submit_and_get_events);
    send_by(&io, s);
    far_do(FAR_SEND, 10);
    recv_next(s, 10);
    say_res("register", io_uring_register_files(&io, &s, 1));
    io_uring_queue_exit(&io);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* A socket is registered before anything else is asked of the ring. */
static void ring_library_fixed(int s)
{
    struct io_uring io;
    uint8_t buf[10];
    one_octet(s);
    make_ring(&io);
    say_res("register", io_uring_register_files(&io, &s, 1));
    struct io_uring_sqe *sqe = io_uring_get_sqe(&io);
    io_uring_prep_recv(sqe, 0, buf, sizeof(buf), 0);
    sqe->flags |= IOSQE_FIXED_FILE;
    say_res("submit", io_uring_submit(&io));
    far_do(FAR_SEND, 10);
    say_res("recv", next(&io));
    check(buf, 10);
    send_by(&io, s);
    io_uring_queue_exit(&io);
}

const struct scenario sem_ring_lib[] = {
    { "ring_library", ring_library },
    { "ring_library_fixed", ring_library_fixed },
    { NULL, NULL },
};
