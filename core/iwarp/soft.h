/*
 * A queue pair in software that faces a device's: the software endpoint with a device's manners, for flow control by
 * credits.
 *
 *   in_fed -> iwarp -> Writes: into the ring, without an event; Sends: copied to a receive buffer -> poll -> release
 *   post_* -> iwarp -> copied to the queue -> out
 *
 * What differs from the bare software endpoint, and agrees with a device's: the peer's Writes land in memory of its
 * own, each Send has a receive buffer, which is given back in any order; what is posted is copied at once, so nothing
 * is taken back; and the peer is asked by an RDMA Read whether all has arrived (fence). So the octets are framed here,
 * for a peer that takes no more than a segment's FPDU.
 *
 * Sans-IO; threads as iwarp.h. The memory is the caller's.
 */
#ifndef SW_IWARP_SOFT_H
#define SW_IWARP_SOFT_H

#include "core/iwarp/iwarp.h"
#include "core/mpa/startup.h"

#define SOFT_BUFS_MAX 256u
#define SOFT_IN_CAP(msg_max) (2u * MPA_FPDU_MARKED_MAX + (msg_max))
#define SOFT_OUT_CAP (MPA_FPDU_MARKED_MAX + 4096u)

/* What a side tells the other one. */
struct soft_side {
    uint64_t base; /* the ring's tagged offset; what the fence reads is behind the ring, by an STag of its own */
    uint32_t ring_stag, ring_len, fence_stag, msg_max;
    uint16_t bufs;
};

struct soft_cfg {
    bool initiator;
    struct mpa_framing tx, rx;
    uint8_t rtr;       /* as iwarp_cfg's */
    uint16_t ird, ord; /* with ord 0 there is no fence */
    size_t mulpdu;
    struct soft_side local, peer; /* local.base 0, bufs at most SOFT_BUFS_MAX */
    uint32_t write_max;           /* longest RDMA Write */
    uint32_t queue_len; /* of what is posted and not out: at least 4 of write_max, and of the longest message */
    uint8_t *ring;      /* local.ring_len */
    uint8_t *mem;       /* soft_memory() octets */
    uint32_t (*random32)(void *arg);
};

struct soft_ep {
    struct endpoint base; /* first */
    struct soft_cfg cfg;
    struct iwarp_ep iw;
    uint8_t *bufs, *queue;
    uint8_t free[SOFT_BUFS_MAX];        /* receive side: the buffers that are, */
    unsigned free_n;                    /* how many there are */
    bool dry;                           /* receive side: nothing whole is left of what came in */
    uint64_t head, tail;                /* send side: octets queued, and gone out; never wrap */
    bool fenced;                        /* send side */
    uint64_t fence_octets, fence_shown; /* what our fence reads into, and what the peer's reads */
};

/*
 * Of each side: the fence's Read, and one that is the RTR before it.
 */
#define SOFT_DEPTH 1u
/*
 * The startup that faces a device (mpa_startup_init's; the private data are the owner's): the client-server model of
 * RFC 6581. irdma refuses that at Rev 2, and takes Rev 1. rev: an initiator's, 2, or 1 when that was refused.
 */
struct mpa_startup_cfg soft_startup_cfg(bool responder, uint8_t rev, bool crc);

size_t soft_memory(const struct soft_cfg *cfg);
/* 0 or -EINVAL. As iwarp_init. */
int soft_init(struct soft_ep *ep, const struct soft_cfg *cfg) SW_MUST;

/* ---- receive side; messages come by the endpoint's poll ---- */

size_t soft_in_space(struct soft_ep *ep, uint8_t **p);
void soft_in_fed(struct soft_ep *ep, size_t n);
/* All whole messages of what came in have been polled. */
static inline bool soft_dry(const struct soft_ep *ep)
{
    return ep->dry;
}
/* The receive side wants something sent: run soft_out. Any thread. */
static inline bool soft_ctrl_pending(const struct soft_ep *ep)
{
    return iwarp_ctrl_pending(&ep->iw);
}

/* ---- send side ---- */

/* What is to go out: up to two iovecs, and how many. What is posted later comes behind. */
unsigned soft_out(struct soft_ep *ep, struct iovec iov[2]);
void soft_out_sent(struct soft_ep *ep, size_t n);
/* Octets queued: 0 when all that was posted is out. */
static inline size_t soft_unsent(const struct soft_ep *ep)
{
    return (size_t)(ep->head - ep->tail);
}
/*
 * Asks whether the peer has all that was posted before. 0; -EAGAIN: no room now; -EPIPE: it cannot be asked. Once:
 * later calls do nothing.
 */
int soft_fence(struct soft_ep *ep) SW_MUST;
/* 1: it has; 0: not known yet; -EPIPE: it never will be. */
int soft_fence_done(const struct soft_ep *ep);

extern const struct endpoint_ops soft_endpoint_ops; /* name "mixed" */

#endif
