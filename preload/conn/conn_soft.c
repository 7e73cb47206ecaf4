/* The stream in software on the program's own TCP connection, as conn_ops.h describes it. */
#include "preload/conn/conn_soft.h"

#include <netinet/tcp.h>
#include <poll.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/process/stats.h"
#include "preload/process/tcpinfo.h"

static const char *name(const struct conn *c)
{
    return endpoint_ops(&c->ep.base)->name;
}

static void record(const struct conn *c, struct stats_record *r)
{
    r->ird = c->ep.cfg.ird;
    r->ord = c->ep.cfg.ord;
    r->tx_fpdus = c->ep.stats.tx_fpdus;
    r->rx_fpdus = c->ep.stats.rx_fpdus;
    r->sends = c->ep.stats.tx_sends;
    r->writes = c->ep.stats.tx_writes;
    r->immediates = c->ep.stats.tx_immediates;
    r->coalesced = c->coalesce.writes;
    r->empty = c->ep.stats.rx_empty;
    r->direct = c->st.rx.placed;
    r->errors = c->ep.stats.errors;
}

/*
 * Nothing was sent, or the RTR has not come: a TCP FIN says as much as a FIN message (end of file on a message
 * boundary). Or the connection is gone, and the kernel says so.
 */
static bool ends_by_fin(const struct conn *c, int fd)
{
    return !iwarp_can_send(&c->ep) || conn_only_answers(c) || conn_only_leads(c) || tcpinfo_state(fd) == TCP_CLOSE;
}

static int await(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns)
{
    (void)c;
    return wait_for(fd, POLLIN, deadline_ns, s);
}

const struct conn_ops conn_soft = {
    .on_socket = true,
    .name = name,
    .record = record,
    .decode = conn_soft_decode,
    .fill = conn_soft_fill,
    .fill_directly = conn_soft_fill_directly,
    .drained = conn_soft_drained,
    .lowat = conn_soft_lowat,
    .wait_more = conn_soft_wait_more,
    .rx_mend = conn_soft_rx_mend,
    .send = conn_soft_send,
    .flush = conn_soft_flush,
    .ends_by_fin = ends_by_fin,
    .tx_mend = conn_soft_tx_mend,
    .await = await,
    .close = conn_soft_close,
    .ready = conn_soft_ready,
    .kernel_events = conn_soft_kernel_events,
};
