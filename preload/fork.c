/*
 * fork: a connection's state is shared memory, so the child only has to be counted in. Sends under way by the parent's ring
 * are stopped first: the ring is the parent's alone.
 */
#include <errno.h>
#include <unistd.h>

#include "preload/conn.h"
#include "preload/exec.h"
#include "preload/proc.h"
#include "preload/real.h"

static bool stands_for(const struct sock *s, int fd)
{
    return s->conn != NULL && atomic_load(&s->fd) == fd;
}

void exec_stop_job(struct conn *c)
{
    if (conn_state(c) != CONN_FULL || !c->job_runs || turn_take_brief(&c->tx) < 0)
        return;
    if (c->job_runs) {
        conn_tx_stop(c);
        c->tx_rest = true;
    }
    turn_give(&c->tx);
}

static void expect(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (!stands_for(s, fd))
        return;
    exec_stop_job(s->conn);
    holders_expect_child(&s->conn->holders);
}

void exec_before_fork(void)
{
    sock_each(expect, NULL);
}

static void failed(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (stands_for(s, fd))
        holders_no_child(&s->conn->holders);
}

static void made(int fd, struct sock *s, void *arg)
{
    const pid_t *child = arg;
    if (stands_for(s, fd))
        holders_have_child(&s->conn->holders, *child);
}

static void am_child(int fd, struct sock *s, void *arg)
{
    const pid_t *parent = arg;
    if (stands_for(s, fd))
        holders_am_child(&s->conn->holders, *parent);
}

void exec_am_child(pid_t parent)
{
    sock_each(am_child, &parent);
}

/* What was stopped goes on with whatever the program does next. */
pid_t fork(void)
{
    if (!proc_on() || proc_is_borrowed())
        return REAL(fork)();
    pid_t pid = REAL(fork)();
    int err = errno;
    if (pid < 0)
        sock_each(failed, NULL);
    else if (pid > 0)
        sock_each(made, &pid);
    errno = err;
    return pid;
}
