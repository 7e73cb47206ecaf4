/*
 * The software endpoint: its set-up, its state, and the operations it offers (core/endpoint.h). The receive side is in
 * iwarp_rx.c, the send side in iwarp_tx.c, errors in iwarp_error.c.
 */
#include "core/iwarp/iwarp.h"

#include <errno.h>
#include <string.h>

#include "core/iwarp/iwarp_impl.h"
#include "core/mpa/startup.h"

const struct endpoint_ops iwarp_endpoint_ops = {
    .name = "iwarp",
    .write_max = iwarp_write_max,
    .send_max = iwarp_send_max,
    .post_write = iwarp_post_write,
    .post_send = iwarp_post_send,
    .post_immediate = iwarp_post_immediate,
    .poll = iwarp_poll,
    .release = iwarp_release,
    .pack = iwarp_pack,
};

int iwarp_init(struct iwarp_ep *ep, const struct iwarp_cfg *cfg)
{
    /* RFC 5044 3/4,5: 128 to 64768. */
    if (cfg->mulpdu < MPA_MULPDU_MIN || cfg->mulpdu > MPA_MULPDU_MAX)
        return -EINVAL;
    if (cfg->in_cap < iwarp_in_min(cfg) || cfg->out_cap < MPA_FPDU_MAX + 512 || cfg->send_max == 0 ||
        cfg->send_max > UINT32_MAX)
        return -EINVAL;
    if (cfg->rtr != 0 && cfg->rtr != MPA_RTR_SEND && cfg->rtr != MPA_RTR_WRITE && cfg->rtr != MPA_RTR_READ)
        return -EINVAL;

    memset(ep, 0, offsetof(struct iwarp_ep, tx.frame));
    endpoint_init(&ep->base, &iwarp_endpoint_ops);
    ep->cfg = *cfg;
    if (ep->cfg.ird > IWARP_IRD_MAX)
        ep->cfg.ird = IWARP_IRD_MAX;
    if (ep->cfg.ord > IWARP_ORD_MAX)
        ep->cfg.ord = IWARP_ORD_MAX;
    ddp_stags_init(&ep->stags);
    /* RFC 5041 4.3/9: "The initial value for MSN MUST be one." */
    for (unsigned qn = 0; qn < RDMAP_QN_MAX; qn++)
        ep->rx.msn[qn] = ep->tx.msn[qn] = 1;
    /*
     * RFC 5044 7.1.2 rule 4: "MPA Responder mode implementations MUST receive and validate at least
     * one FPDU before sending any FPDUs or Markers". The initiator may send at once; RFC 6581
     * section 9.2 makes its first one an RTR when that was agreed.
     */
    atomic_store_explicit(&ep->state, cfg->initiator || cfg->ready ? IWARP_FULL : IWARP_WAIT_RTR, memory_order_release);
    if (cfg->lead_len > 0)
        iwarp_lead(ep);
    if (cfg->initiator && cfg->rtr)
        iwarp_tx_rtr(ep);
    return 0;
}

bool iwarp_can_send(const struct iwarp_ep *ep)
{
    return iwarp_state_load(ep) != IWARP_WAIT_RTR;
}

enum iwarp_state iwarp_state_now(const struct iwarp_ep *ep)
{
    return (enum iwarp_state)iwarp_state_load(ep);
}

struct term_code iwarp_error(const struct iwarp_ep *ep)
{
    return ep->error;
}

uint64_t iwarp_reads_done(const struct iwarp_ep *ep)
{
    uint64_t done = atomic_load_explicit(&ep->reads.done, memory_order_acquire);

    return done >= ep->reads.rtr ? done - ep->reads.rtr : 0;
}

bool iwarp_answers_rtr(const struct iwarp_ep *ep)
{
    return iwarp_state_load(ep) == IWARP_FULL && !ep->cfg.initiator && ep->cfg.rtr == MPA_RTR_READ &&
           atomic_load_explicit(&ep->ctrl.tail, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&ep->ctrl.head, memory_order_acquire) == 1;
}

bool iwarp_ctrl_pending(const struct iwarp_ep *ep)
{
    switch (iwarp_state_load(ep)) {
    case IWARP_FULL:
        return atomic_load_explicit(&ep->ctrl.head, memory_order_acquire) !=
               atomic_load_explicit(&ep->ctrl.tail, memory_order_relaxed);
    case IWARP_TERMINATING:
        return atomic_load_explicit(&ep->term_state, memory_order_acquire) == IWARP_TERM_QUEUED;
    default:
        return false;
    }
}
