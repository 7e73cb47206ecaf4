/*
 * SO_PEEK_OFF: where the program's next MSG_PEEK begins.
 *
 * The kernel moves the offset with each byte that is peeked or read, by the program or by the library. So it is off
 * while a step of the startup peeks and reads, and is set to the program's value again afterwards. Once the connection
 * is upgraded, the kernel holds frames: the library keeps the offset, and the kernel's stays off.
 */
#include <errno.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_peek.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"

static const int off = -1;

static int kernels(int fd)
{
    int at = -1;
    socklen_t len = sizeof(at);
    return REAL(getsockopt)(fd, SOL_SOCKET, SO_PEEK_OFF, &at, &len) == 0 ? at : -1;
}

static void set_kernels(int fd, int at)
{
    REAL(setsockopt)(fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at));
}

void conn_peek_found(int fd)
{
    if (kernels(fd) >= 0)
        atomic_store(&proc.peek_off_used, true);
}

int conn_peek_suspend(int fd)
{
    if (SW_LIKELY(!atomic_load_explicit(&proc.peek_off_used, memory_order_relaxed)))
        return -1;
    int at = kernels(fd);
    if (at >= 0)
        set_kernels(fd, off);
    return at;
}

/*
 * Does the library keep the offset? It also does for a plain connection with bytes that came with the server's answer
 * to the Hello: the kernel does not have those either.
 */
static bool is_ours(const struct sock *s)
{
    enum conn_state st = conn_state(s->conn);
    return st == CONN_UPGRADED || (st == CONN_PLAIN && atomic_load(&s->active));
}

void conn_peek_resume(struct sock *s, int at)
{
    if (SW_LIKELY(at < 0))
        return;
    if (is_ours(s))
        atomic_store(&s->conn->rx.peek_off, at);
    else
        set_kernels(atomic_load(&s->fd), at);
}

void conn_peek_give_back(struct conn *c, int fd)
{
    int at = atomic_exchange(&c->rx.peek_off, -1);
    if (SW_UNLIKELY(at >= 0))
        set_kernels(fd, at);
}

int conn_peek_set(struct sock *s, int fd, int at)
{
    struct conn *c = s->conn;
    int turn = is_ours(s) ? -EBUSY : turn_take_brief(&c->rx.turn); /* (a step of the startup has the kernel's off) */
    bool ours = is_ours(s);
    int r = REAL(setsockopt)(fd, SOL_SOCKET, SO_PEEK_OFF, ours ? &off : &at, sizeof(at)) < 0 ? -errno : 0;
    if (r == 0 && ours)
        atomic_store(&c->rx.peek_off, at);
    if (turn == 0)
        turn_give(&c->rx.turn);
    return r;
}

int conn_peek_get(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    int turn = is_ours(s) ? -EBUSY : turn_take_brief(&c->rx.turn);
    int at = is_ours(s) ? atomic_load(&c->rx.peek_off) : kernels(fd);
    if (turn == 0)
        turn_give(&c->rx.turn);
    return at;
}

void conn_peek_moved(struct conn *c, size_t n, int flags)
{
    int at = atomic_load(&c->rx.peek_off), to;
    do {
        if (at < 0 || (flags & CONN_PEEK_FIRST))
            return;
        to = (flags & MSG_PEEK) ? at + (int)n : (size_t)at > n ? at - (int)n : 0;
    } while (!atomic_compare_exchange_weak(&c->rx.peek_off, &at, to));
}
