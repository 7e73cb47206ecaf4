/*
 * The tail of a stream in software, given to the transport (core/transport/transport.h): it is sent while the program
 * does something else.
 */
#include <errno.h>
#include <netinet/tcp.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_job.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/transports.h"

void conn_tx_reap(struct conn *c)
{
    if (!c->tx.job_runs || !transport_now()->send_over(&c->tx.job, false))
        return;
    bool natural = !c->tx.job_stopped;
    c->tx.job_runs = c->tx.job_stopped = false;
    if (c->tx.job.result > 0) {
        iwarp_out_sent(&c->ep, (size_t)c->tx.job.result);
        c->tx.kernel_total += (uint64_t)c->tx.job.result;
    }
    if (c->tx.job.result < 0 && c->tx.job.result != -EAGAIN && c->tx.job.result != -EINTR &&
        c->tx.job.result != -ECANCELED && c->tx.job.result != -EPIPE) /* (the kernel reports EPIPE to each send) */
        atomic_store(&c->so_error, (int)-c->tx.job.result);
    /*
     * A request ends early when its thread ends or a process is forked; or by an error, which the kernel reported to
     * the ring, and reports only once.
     */
    if (natural && c->tx.job.result > 0 && (size_t)c->tx.job.result < c->tx.job_len &&
        tcpinfo_state(c->tx.job.fd) == TCP_CLOSE)
        atomic_store(&c->so_error, ECONNRESET);
}

void conn_tx_reap_idle(struct conn *c)
{
    if (turn_try(&c->tx.turn) < 0)
        return;
    conn_tx_reap(c);
    turn_give(&c->tx.turn);
}

bool conn_ring_busy(void)
{
    const struct transport_ops *t = transport_if_any();
    return t != NULL && t->thread_busy();
}

void conn_tx_stop(struct conn *c)
{
    c->tx.job_stopped = true;
    transport_now()->send_cancel(&c->tx.job);
    conn_tx_reap(c);
}

/* The tail as one piece. 0: there is none, a request has it, or it is not for a request. */
static size_t joined(struct conn *c, const struct iovec **iov, size_t *len)
{
    bool other =
        c->tx.job_runs || c->tx.sender_pid != 0 || iwarp_out_lead(&c->ep) > 0; /* (the lead goes as one piece) */
    size_t n = other ? 0 : iwarp_out(&c->ep, iov, len);
    if (n > 1) {
        iwarp_out_join(&c->ep);
        n = iwarp_out(&c->ep, iov, len);
    }
    return n;
}

static bool start(struct transport_job *job, int fd, enum transport_then then, const struct iovec *iov, size_t n)
{
    job->fd = fd;
    job->then = then;
    job->iov = (struct iovec *)(uintptr_t)iov;
    job->iov_n = (uint32_t)n;
    const struct transport_ops *t = transport_now();
    proc_making_ring = true;
    int r = t->send_start(job);
    proc_making_ring = false;
    return r == 0;
}

bool conn_tx_start(struct conn *c, int fd, enum transport_then then)
{
    const struct iovec *iov;
    size_t len, n = joined(c, &iov, &len);
    if (n == 0)
        return false;
    c->tx.job_len = len;
    c->tx.job_runs = start(&c->tx.job, fd, then, iov, n);
    return c->tx.job_runs;
}

bool conn_tx_start_own(struct conn *c, struct transport_job *job, struct iovec *piece, int fd, enum transport_then then)
{
    const struct iovec *iov;
    size_t len, n = joined(c, &iov, &len);
    if (n != 1)
        return false;
    *piece = *iov;
    if (!start(job, fd, then, piece, n))
        return false;
    c->tx.sender_pid = proc.pid;
    c->tx.sender_end = c->tx.kernel_total + len;
    return true;
}

bool conn_tx_go_on_own(struct transport_job *job, struct iovec *piece)
{
    size_t sent = job->result > 0 ? (size_t)job->result : 0;
    if (job->result < 0 && job->result != -ECANCELED && job->result != -EINTR && job->result != -EAGAIN)
        return false;
    if (sent >= piece->iov_len) {
        REAL(shutdown)(job->fd, SHUT_WR); /* (it may have been stopped between the two) */
        return false;
    }
    piece->iov_base = (uint8_t *)piece->iov_base + sent;
    piece->iov_len -= sent;
    return start(job, job->fd, job->then, piece, 1);
}

void conn_tx_later(struct conn *c, int fd)
{
    c->tx.tail_pid = proc.pid;
    /*
     * A ring belongs to one process: when a forked child shares the connection, the other process cannot tell when the
     * ring is done.
     */
    if (atomic_load(&c->holders.n) != 1 || sandbox_on() || c->tx.urgent)
        return; /* (An urgent byte needs a call of its own: the next call that waits makes it.) */
    bool end = c->tx.fin_owed && (c->st.llp || c->st.tx.fin);
    bool sent = conn_tx_start(c, fd, end ? TRANSPORT_THEN_SHUT_WR : TRANSPORT_THEN_NOTHING);
    (void)sent; /* otherwise the next call that waits sends it */
}
