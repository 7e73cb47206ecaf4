/*
 * fork: a connection's state is shared memory, so the child only has to be counted in. Sends under way by the parent's
 * ring are stopped first: the ring is the parent's alone.
 */
#include <errno.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/calls/exec.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_mem.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"

static __thread int32_t maker; /* the thread that forks; the child's is a copy */

static bool stands_for(const struct sock *s, int fd)
{
    return s->conn != NULL && atomic_load(&s->fd) == fd;
}

void fork_stop_job(struct conn *c)
{
    if (conn_state(c) != CONN_UPGRADED || !c->tx.job_runs || turn_take_brief(&c->tx.turn) < 0)
        return;
    if (c->tx.job_runs) {
        conn_tx_stop(c);
        c->tx.rest = true;
    }
    turn_give(&c->tx.turn);
}

static bool has_begun(const struct conn *c)
{
    enum conn_state st = conn_state(c);
    return st != CONN_CONNECTING && st != CONN_NEGOTIATING;
}

/*
 * Either process may go on with a startup, and its memory must be in both: memory that one of them maps afterwards is
 * not in the other.
 */
static void prepare(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (!stands_for(s, fd))
        return;
    fork_stop_job(s->conn);
    if (!has_begun(s->conn)) {
        int r = conn_buffers(s->conn);
        (void)r; /* the child does without the connection: expect() */
    }
}

void fork_before(void)
{
    sock_each(prepare, NULL);
}

static void expect(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (atomic_load(&s->fd) != fd)
        return;
    atomic_store(&s->forked, true);
    sock_unsure(s, SOCK_NO_OPTION);
    s->child_counted = s->conn != NULL && (has_begun(s->conn) || s->conn->mem.base != NULL);
    if (s->child_counted) {
        holders_expect_child(&s->conn->holders, maker);
        conn_apart_before_fork(s->conn); /* (a record that it has stays from now on) */
    }
}

void fork_count_child(void)
{
    maker = HOLDERS_FORK + (int32_t)rawsys_gettid();
    sock_each_locked(expect, NULL);
}

static void failed(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (stands_for(s, fd))
        holders_no_child(&s->conn->holders, maker);
}

static void made(int fd, struct sock *s, void *arg)
{
    const pid_t *child = arg;
    if (stands_for(s, fd))
        holders_have_child(&s->conn->holders, maker, *child);
}

/*
 * A connection that another thread of the parent was just making, or releasing, is not counted here: this process does
 * not know it.
 */
static void am_child(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (s->conn != NULL && !s->child_counted)
        sock_forget_locked(fd);
    else if (stands_for(s, fd)) {
        holders_am_child(&s->conn->holders, maker);
        conn_apart_child(s->conn);
        s->pending_inherited = !has_begun(s->conn);
    }
}

void fork_am_child(void)
{
    sock_each_locked(am_child, NULL);
}

void fork_done(pid_t child)
{
    sock_each(child < 0 ? failed : made, &child);
}

/* The program's next call continues the sends that were stopped. */
pid_t fork(void)
{
    if (!proc_on() || proc_is_borrowed())
        return REAL(fork)();
    pid_t pid = REAL(fork)();
    int err = errno;
    if (pid != 0)
        fork_done(pid);
    errno = err;
    return pid;
}
