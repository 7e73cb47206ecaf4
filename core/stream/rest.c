/* A byte stream at rest. */
#include "core/stream/rest.h"

/* No place in the stream is behind this one, and no sum with a length runs over. */
#define TOTAL_MAX (UINT64_C(1) << 62)

/* ---- receiving ---- */

/* Copies what may be read, n octets. */
static void copy_ready(const struct stream *st, uint8_t *dst)
{
    for (uint32_t i = 0; i < st->rx.n; i++) {
        const struct stream_slice *s = &st->rx.slice[(st->rx.first + i) % STREAM_SLICES];
        dst = mempcpy(dst, s->p, s->len);
    }
}

bool rest_rx_save(const struct stream *st, const struct iwarp_ep *ep, struct rest_rx *r, uint8_t *dst, size_t room,
                  size_t *len)
{
    struct iwarp_rest_rx below;
    size_t ready = (size_t)st->rx.avail;
    if (!st->llp || ready > room || !iwarp_rest_rx_save(ep, &below, dst + ready, room - ready))
        return false;
    copy_ready(st, dst);
    *r = (struct rest_rx){
        .ep = below,
        .off = st->rx.off,
        .ring_to = st->rx.ring_to,
        .total = st->rx.total,
        .placed = st->rx.placed,
        .urgent_at = st->rx.urgent_at,
        .urgent_taken = st->rx.urgent_taken,
        .ready = (uint32_t)ready,
        .end = st->rx.end,
        .urgent = atomic_load(&st->rx.urgent),
        .urgent_octet = st->rx.urgent_octet,
        .urgent_inline = atomic_load(&st->rx.urgent_inline),
    };
    *len = ready + below.part + below.raw;
    return true;
}

bool rest_rx_load(struct stream *st, struct iwarp_ep *ep, const struct rest_rx *r, const uint8_t *octets, size_t len)
{
    if (!st->llp || r->end > STREAM_BROKEN || r->urgent > STREAM_URGENT_READ || r->total > TOTAL_MAX)
        return false;
    /* An urgent octet is one of those that are there. */
    if (r->urgent != STREAM_URGENT_NONE && (r->urgent_at < r->total || r->urgent_at - r->total >= r->ready))
        return false;
    if (!iwarp_rest_rx_load(ep, &r->ep, octets, len, r->ready))
        return false;
    st->rx.first = STREAM_SLICE_FIRST;
    st->rx.n = r->ready > 0;
    st->rx.slice[STREAM_SLICE_FIRST] = (struct stream_slice){
        .p = ep->cfg.in_buf,
        .upto = ep->cfg.in_buf + r->ready,
        .len = r->ready,
        .bufs = 1,
        .in_place = true,
    };
    st->rx.avail = r->ready;
    st->rx.off = r->off;
    st->rx.ring_to = r->ring_to;
    st->rx.total = r->total;
    st->rx.placed = r->placed;
    st->rx.end = r->end;
    atomic_store(&st->rx.urgent, r->urgent);
    st->rx.urgent_octet = r->urgent_octet;
    atomic_store(&st->rx.urgent_inline, r->urgent_inline != 0);
    st->rx.urgent_at = r->urgent_at;
    st->rx.urgent_taken = r->urgent_taken;
    return true;
}

/* ---- sending ---- */

bool rest_tx_save(const struct stream *st, struct iwarp_ep *ep, struct rest_tx *r, uint8_t *dst, size_t room,
                  size_t *len)
{
    struct iwarp_rest_tx below;
    if (!st->llp || st->tx.fin || !iwarp_rest_tx_save(ep, &below, dst, room))
        return false;
    *r = (struct rest_tx){
        .ep = below,
        .off = st->tx.off,
        .ring_to = st->tx.ring_to,
        .total = st->tx.total,
        .notify_owed = st->tx.notify_owed,
    };
    *len = below.queued;
    return true;
}

bool rest_tx_load(struct stream *st, struct iwarp_ep *ep, const struct rest_tx *r, const uint8_t *octets, size_t len)
{
    if (!st->llp || !iwarp_rest_tx_load(ep, &r->ep, octets, len))
        return false;
    st->tx.off = r->off;
    st->tx.ring_to = r->ring_to;
    st->tx.total = r->total;
    st->tx.notify_owed = st->tx.owed_before = r->notify_owed != 0;
    st->tx.batch_n = 0;
    return true;
}
