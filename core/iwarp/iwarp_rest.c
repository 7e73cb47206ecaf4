/* The software endpoint at rest. */
#include "core/iwarp/iwarp_rest.h"

#include <string.h>

#include "core/iwarp/iwarp_impl.h"
#include "core/mpa/startup.h"

/* ---- the receive side ---- */

bool iwarp_rest_rx_save(const struct iwarp_ep *ep, struct iwarp_rest_rx *r, uint8_t *dst, size_t room)
{
    size_t part = ep->rx.part_at > 0 ? (size_t)ep->rx.msg_len : 0, raw = ep->rx.tail - ep->rx.head;
    uint8_t state = iwarp_state_load(ep);

    if (part + raw > room)
        return false;
    *r = (struct iwarp_rest_rx){
        .pos = ep->rx.pos,
        .msg_to = ep->rx.msg_to,
        .msg_len = ep->rx.in_message ? ep->rx.msg_len : 0,
        .reads_done = atomic_load_explicit(&ep->reads.done, memory_order_relaxed),
        .fpdus = ep->stats.rx_fpdus,
        .sends = ep->stats.rx_sends,
        .writes = ep->stats.rx_writes,
        .reads = ep->stats.rx_reads,
        .immediates = ep->stats.rx_immediates,
        .empty = ep->stats.rx_empty,
        .msg_stag = ep->rx.msg_stag,
        .part = (uint32_t)part,
        .raw = (uint32_t)raw,
        .in_message = ep->rx.in_message,
        .msg_opcode = ep->rx.msg_opcode,
        .full = state != IWARP_WAIT_RTR,
        .failed = state == IWARP_TERMINATING || state == IWARP_TERMINATED,
    };
    memcpy(r->msn, ep->rx.msn, sizeof(r->msn));
    memcpy(dst, ep->cfg.in_buf + ep->rx.part_at, part);
    memcpy(dst + part, ep->cfg.in_buf + ep->rx.head, raw);
    return true;
}

/* Could the message under way be what it says? Only Writes and Sends have several segments that bring anything. */
static bool message_ok(const struct iwarp_ep *ep, const struct iwarp_rest_rx *r)
{
    if (!r->in_message)
        return r->part == 0;
    if (r->msg_opcode == RDMAP_WRITE)
        return r->part == 0 && r->msg_len <= UINT32_MAX;
    if (r->msg_opcode != RDMAP_SEND && r->msg_opcode != RDMAP_SEND_INV && r->msg_opcode != RDMAP_SEND_SE &&
        r->msg_opcode != RDMAP_SEND_SE_INV)
        return false;
    return r->part > 0 && r->part == r->msg_len && r->part <= ep->cfg.send_max &&
           ep->cfg.in_cap >= iwarp_in_min(&ep->cfg) + MPA_HDR_LEN + ep->cfg.send_max;
}

static void stage(struct iwarp_ep *ep, const struct iwarp_rest_rx *r, const uint8_t *octets, size_t ready)
{
    uint8_t *in = ep->cfg.in_buf;
    size_t at = ready;

    memcpy(in, octets, ready);
    ep->rx.part_at = 0;
    if (r->part > 0) { /* (it is never at 0, where an FPDU's headers would have been) */
        ep->rx.part_at = at + MPA_HDR_LEN;
        memcpy(in + ep->rx.part_at, octets + ready, r->part);
        at = ep->rx.part_at + r->part;
    }
    memcpy(in + at, octets + ready + r->part, r->raw);
    ep->rx.head = at;
    ep->rx.tail = at + r->raw;
    ep->rx.last_end = ready;
    ep->rx.hold = ready > 0 ? 0 : ep->rx.part_at > 0 ? ep->rx.part_at : ep->rx.head;
}

bool iwarp_rest_rx_load(struct iwarp_ep *ep, const struct iwarp_rest_rx *r, const uint8_t *octets, size_t len,
                        size_t ready)
{
    uint8_t wait_rtr = IWARP_WAIT_RTR;

    if (ready > len || len - ready != (uint64_t)r->part + r->raw ||
        len + (r->part > 0 ? MPA_HDR_LEN : 0) > ep->cfg.in_cap)
        return false;
    if (!message_ok(ep, r) || r->reads_done > atomic_load_explicit(&ep->reads.posted, memory_order_acquire))
        return false;
    stage(ep, r, octets, ready);
    ep->rx.pos = r->pos;
    ep->rx.in_message = r->in_message;
    ep->rx.msg_opcode = r->msg_opcode;
    ep->rx.msg_stag = r->msg_stag;
    ep->rx.msg_to = r->msg_to;
    ep->rx.msg_len = r->msg_len;
    memcpy(ep->rx.msn, r->msn, sizeof(ep->rx.msn));
    ep->rx.now.n = ep->rx.before.n = 0;
    ep->rx.between = 0;
    ep->direct.n = ep->direct.placed_n = ep->direct.placed_at = 0;
    ep->stats.rx_fpdus = r->fpdus;
    ep->stats.rx_sends = r->sends;
    ep->stats.rx_writes = r->writes;
    ep->stats.rx_reads = r->reads;
    ep->stats.rx_immediates = r->immediates;
    ep->stats.rx_empty = r->empty;
    atomic_store_explicit(&ep->reads.done, r->reads_done, memory_order_release);
    if (r->failed && !atomic_exchange_explicit(&ep->failed, true, memory_order_acq_rel))
        atomic_store_explicit(&ep->state, IWARP_TERMINATED, memory_order_release);
    else if (r->full)
        atomic_compare_exchange_strong(&ep->state, &wait_rtr, IWARP_FULL);
    return true;
}

/* ---- the send side ---- */

/* The answer to the Read that was the RTR is the first one. */
static bool has_rtr_read(const struct iwarp_ep *ep)
{
    return !ep->cfg.initiator && ep->cfg.rtr == MPA_RTR_READ;
}

bool iwarp_rest_tx_save(struct iwarp_ep *ep, struct iwarp_rest_tx *r, uint8_t *dst, size_t room)
{
    size_t len = ep->tx.queued - ep->tx.sent;

    if (len > room || iwarp_out_borrowed(ep) > 0 || iwarp_out_lead(ep) > 0 || ep->tx.read_off > 0)
        return false;
    *r = (struct iwarp_rest_tx){
        .pos = ep->tx.pos + ep->tx.sent,
        .fpdus = ep->stats.tx_fpdus,
        .sends = ep->stats.tx_sends,
        .writes = ep->stats.tx_writes,
        .reads = ep->stats.tx_reads,
        .immediates = ep->stats.tx_immediates,
        .queued = (uint32_t)len,
        .rtr_answered = has_rtr_read(ep) && atomic_load_explicit(&ep->ctrl.tail, memory_order_relaxed) > 0,
    };
    memcpy(r->msn, ep->tx.msn, sizeof(r->msn));
    for (uint32_t i = ep->tx.iov_first; len > 0; i++) {
        const struct iovec *v = &ep->tx.iov[i];

        memcpy(dst, v->iov_base, v->iov_len);
        dst += v->iov_len;
        len -= v->iov_len;
    }
    return true;
}

/* One frame that is nobody's: it is neither dropped nor counted as a message. */
static void queue(struct iwarp_ep *ep, const uint8_t *octets, uint32_t len)
{
    uint32_t n = len > 0;

    ep->tx.scratch_used = 0;
    ep->tx.iov_first = ep->tx.frame_first = 0;
    ep->tx.iov_n = ep->tx.frame_n = n;
    ep->tx.sent = 0;
    ep->tx.queued = ep->tx.out_end = len;
    ep->tx.out_used = len;
    ep->tx.mid_message = false;
    ep->tx.read_off = 0;
    if (n == 0)
        return;
    memcpy(ep->cfg.out_buf, octets, len);
    ep->tx.iov[0] = (struct iovec){ ep->cfg.out_buf, len };
    ep->tx.frame[0] = (struct iwarp_out_frame){ .end = len, .kind = IWARP_KIND_CTRL, .msg_end = true };
}

bool iwarp_rest_tx_load(struct iwarp_ep *ep, const struct iwarp_rest_tx *r, const uint8_t *octets, size_t len)
{
    uint8_t in_batch = IWARP_TERM_IN_BATCH;

    if (len != r->queued || len > ep->cfg.out_cap)
        return false;
    queue(ep, octets, (uint32_t)len);
    ep->tx.pos = r->pos;
    memcpy(ep->tx.msn, r->msn, sizeof(ep->tx.msn));
    ep->stats.tx_fpdus = r->fpdus;
    ep->stats.tx_sends = r->sends;
    ep->stats.tx_writes = r->writes;
    ep->stats.tx_reads = r->reads;
    ep->stats.tx_immediates = r->immediates;
    /* A Terminate of this endpoint's that was queued is made again. */
    atomic_compare_exchange_strong(&ep->term_state, &in_batch, IWARP_TERM_QUEUED);
    if (r->rtr_answered && has_rtr_read(ep) && atomic_load_explicit(&ep->ctrl.tail, memory_order_relaxed) == 0 &&
        atomic_load_explicit(&ep->ctrl.head, memory_order_acquire) > 0)
        atomic_store_explicit(&ep->ctrl.tail, 1, memory_order_release);
    return true;
}
