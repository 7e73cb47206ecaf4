/*
 * What stream_rx.c and stream_tx.c share: when the peer has to hear from us (flow control by
 * credits).
 */
#ifndef SW_STREAM_STREAM_IMPL_H
#define SW_STREAM_STREAM_IMPL_H

#include "core/stream/stream.h"

/* Half of what the peer may use is back: worth a message of its own. */
static inline bool stream_credit_due(const struct stream *st)
{
    uint32_t ring = atomic_load(&st->back_ring) - atomic_load(&st->told_ring);
    uint16_t bufs = (uint16_t)(atomic_load(&st->back_bufs) - atomic_load(&st->told_bufs));
    return ring >= st->cfg.local.ring_len / 2 || bufs >= (st->cfg.local.bufs - STREAM_BUFS_KEPT + 1) / 2;
}

/* The peer's CREDIT was not answered yet (any message does). */
static inline bool stream_answer_due(const struct stream *st)
{
    return atomic_load(&st->back_credits) != atomic_load(&st->told_credits);
}

/*
 * The peer has not answered our last CREDIT: it may still lie in its buffer, and the next one
 * waits.
 */
static inline bool stream_credit_unanswered(const struct stream *st)
{
    return atomic_load(&st->peer_credits) != atomic_load(&st->sent_credits);
}

#endif
