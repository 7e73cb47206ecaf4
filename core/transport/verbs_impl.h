/*
 * What the files of the verbs endpoint share: the structure, and the steps of its life that the connection manager's
 * part asks of the data path's.
 */
#ifndef SW_TRANSPORT_VERBS_IMPL_H
#define SW_TRANSPORT_VERBS_IMPL_H

#include <stdatomic.h>

#include "core/transport/verbs.h"
#include "core/transport/verbs_lib.h"

#define VERBS_CHAIN 64u /* work requests posted between two flushes */
#define VERBS_SQ 120u   /* of the send queue; one is kept for the fence */
#define VERBS_WC 16u    /* completions taken at a time */
/*
 * A completion is asked for with every VERBS_UNSIGNALLED-th Send at the latest, and with every Write of a page or more:
 * siw, which gives pages without a completion to TCP as they are, may still read from them when a later request has
 * completed.
 */
#define VERBS_UNSIGNALLED 16u
#define VERBS_UNSIGNALLED_WRITE 4096u

struct verbs_ep {
    struct endpoint base; /* first */
    struct verbs_cfg cfg;
    struct verbs_stats stats;
    struct verbs_side local, peer;
    uint64_t peer_base;    /* of its ring, in its addresses */
    _Atomic uint8_t state; /* enum verbs_state; changed with the host's lock */
    _Atomic(const char *) why;
    bool foreign; /* made by a process that this one was forked from */

    /* the host's lock, until UP */
    struct verbs_ep *next, **pprev;
    struct rdma_cm_id *id;
    unsigned timeout_ms;
    unsigned ports;             /* found taken */
    struct sockaddr_storage to; /* initiator: the peer's */

    /* constant from before UP */
    uint8_t *ring, *shown, *sink; /* what the peer writes to, what its fence reads, and where ours reads to */
    size_t ring_map_len;
    uint8_t *mem, *bufs, *tx_mem;
    size_t mem_len;
    struct ibv_pd *pd;
    struct ibv_mr *ring_mr, *shown_mr, *sink_mr, *msg_mr;
    struct ibv_comp_channel *channel;
    struct ibv_cq *rcq, *scq;
    struct ibv_qp *qp;
    uint32_t inline_max;
    bool hidden; /* channel->fd was moved */
    bool no_memory;

    _Atomic bool rx_armed, tx_armed;

    struct { /* receive side */
        struct ibv_wc wc[VERBS_WC];
        int n, at;
        _Atomic bool ended;
    } rx;

    struct { /* send side */
        struct ibv_send_wr wr[VERBS_CHAIN];
        struct ibv_sge sge[VERBS_CHAIN];
        uint32_t chain;         /* queued, not yet given to the device */
        uint64_t posted, done;  /* work requests queued, and known to have completed */
        uint64_t head, tail;    /* staging, in octets that never wrap */
        uint64_t end[VERBS_SQ]; /* staging's tail once the request is done */
        uint32_t unsignalled, unsignalled_len;
        uint64_t fence; /* 1 + the Read's number; 0: none yet */
        _Atomic bool failed;
    } tx;
};

/* ---- verbs_ep.c ---- */

/* The device is known: memory, queues, receive buffers posted. 0 or -errno, *why. The host's lock is held. */
int verbs_prepare(struct verbs_ep *ep, const struct verbs_lib *lib, const struct verbs_env *env,
                  const char **why) SW_MUST;
/* Its memory alone: all that a process forked from the one that made it has of it. */
void verbs_unmap(struct verbs_ep *ep);
/* The reverse of verbs_prepare, as far as it was done. */
void verbs_unprepare(struct verbs_ep *ep, const struct verbs_lib *lib, const struct verbs_env *env);

#endif
