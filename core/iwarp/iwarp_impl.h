/*
 * What the files of iwarp/ share and no other file sees.
 */
#ifndef SW_IWARP_IWARP_IMPL_H
#define SW_IWARP_IWARP_IMPL_H

#include "core/iwarp/iwarp.h"

/* iwarp_ep.term_state: the one Terminate this side may send. */
enum { IWARP_TERM_NONE, IWARP_TERM_QUEUED, IWARP_TERM_IN_BATCH };

/* The table this STag is in, or the endpoint's own. */
static inline struct ddp_stags *iwarp_stags_of(struct iwarp_ep *ep, uint32_t stag)
{
    if (SW_UNLIKELY(ep->cfg.shared != NULL) && ddp_stags_find(ep->cfg.shared, stag))
        return ep->cfg.shared;
    return &ep->stags;
}

/* One received segment, taken apart. */
struct iwarp_segment {
    struct ddp_segment ddp;
    const uint8_t *ulpdu;
    size_t ulpdu_len;
    size_t hdr_len;
    const uint8_t *payload;
    size_t len;
    uint8_t opcode;
};

static inline struct iwarp_ep *iwarp_of(struct endpoint *e)
{
    return (struct iwarp_ep *)e; /* base is the first member */
}

static inline const struct iwarp_ep *iwarp_of_const(const struct endpoint *e)
{
    return (const struct iwarp_ep *)e;
}

static inline uint8_t iwarp_state_load(const struct iwarp_ep *ep)
{
    return atomic_load_explicit(&ep->state, memory_order_acquire);
}

/* iwarp_rx.c: nothing that was handed up, or is a part of a message, lies in staging. */
bool iwarp_in_free(const struct iwarp_ep *ep);
/* Then: what is staged goes to the front. */
void iwarp_in_compact(struct iwarp_ep *ep);

/* iwarp_direct.c: a Write to a deferred region came, or another frame. */
void iwarp_run_write(struct iwarp_ep *ep, size_t len);
void iwarp_run_other(struct iwarp_ep *ep, size_t wire_len);
/*
 * The next frame placed directly: as mpa_fpdu_decode, but its payload is at *payload, and what is
 * returned is what it takes of staging.
 */
ssize_t iwarp_direct_decode(struct iwarp_ep *ep, struct mpa_fpdu *out, const uint8_t **payload) SW_MUST;

/* An error on this received segment: Terminate with the headers RFC 5040 Figure 10 asks for. */
void iwarp_fail_segment(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t layer, uint8_t etype, uint8_t code);
/* A frame that is no valid FPDU: err is mpa_fpdu_decode's. */
void iwarp_fail_fpdu(struct iwarp_ep *ep, int err);
/* A ULPDU shorter than the DDP header it announces. */
void iwarp_fail_short(struct iwarp_ep *ep, size_t ulpdu_len);
/* A Read under way whose source was revoked; send side. off octets were answered. */
void iwarp_fail_read(struct iwarp_ep *ep, const struct iwarp_ctrl *c, uint32_t off);
/* The pipe ended in the middle: RFC 5044 section 8, code 1. Nothing is sent. */
void iwarp_fail_closed(struct iwarp_ep *ep);
/* A Terminate came. */
void iwarp_terminated(struct iwarp_ep *ep, const uint8_t *payload, size_t len);

/* One frame, one iovec of the batch are kept for a Terminate. */
#define IWARP_POST_FRAMES (IWARP_OUT_FRAMES - 1)
#define IWARP_POST_IOV (IWARP_OUT_IOV - 1)

static inline bool iwarp_batch_empty(const struct iwarp_ep *ep)
{
    return ep->tx.queued == ep->tx.sent;
}

/* Staging holds one FPDU at least. */
static inline size_t iwarp_in_min(const struct iwarp_cfg *cfg)
{
    return cfg->rx.markers ? MPA_FPDU_MARKED_MAX : MPA_FPDU_MAX;
}

/* Room that len octets of payload in n frames need in out_buf when markers are put in. */
static inline size_t iwarp_marked_len(size_t len, size_t n)
{
    return len + MPA_MARKER_LEN * (len / MPA_MARKER_GAP + n);
}

/*
 * One FPDU into the batch: headers, the ULP's header (copied), the next len octets of src (not
 * copied, but with markers), trailer. The caller has made sure of room.
 */
void iwarp_frame(struct iwarp_ep *ep, uint8_t kind, const struct ddp_segment *seg, const void *ulp_hdr,
                 size_t ulp_hdr_len, struct iov_iter *src, size_t len);

/* iwarp_tx.c: may the ULP post now? 0, -EAGAIN, -EPIPE. */
int iwarp_may_post(const struct iwarp_ep *ep) SW_MUST;
/* One Send of this opcode, which invalidates inv_stag (0: none). As endpoint_ops.post_send. */
int iwarp_post_send_as(struct iwarp_ep *ep, uint8_t opcode, uint32_t inv_stag, const uint8_t *hdr, size_t hdr_len,
                       struct iov_iter *src, size_t len) SW_MUST;

/* cfg.lead into the batch, which is empty. Positions count from behind it. */
void iwarp_lead(struct iwarp_ep *ep);

/*
 * Control frames into the batch: the initiator's RTR and Read Responses into an empty one, the
 * Terminate behind all.
 */
void iwarp_tx_rtr(struct iwarp_ep *ep);
void iwarp_tx_terminate(struct iwarp_ep *ep);
/* Segments of the Read Responses due, as many as the batch and out_buf take. */
void iwarp_tx_read_responses(struct iwarp_ep *ep);

#endif
