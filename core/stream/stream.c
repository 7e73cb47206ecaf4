/* The byte stream's set-up: which of the two flow controls is used, and what the two sides offered each other. */
#include "core/stream/stream.h"

#include <errno.h>

static bool params_ok(const struct stream_params *p, bool llp)
{
    return p->ring_len >= STREAM_RING_MIN && p->ring_len <= STREAM_RING_MAX && p->eager_max > 0 &&
           (llp || p->bufs > STREAM_BUFS_KEPT);
}

int stream_init(struct stream *st, const struct stream_cfg *cfg)
{
    size_t slices_len = sizeof(st->rx.slice);
    memset((uint8_t *)st + slices_len, 0, sizeof(*st) - slices_len);
    st->rx.first = STREAM_SLICE_FIRST;
    st->cfg = *cfg;
    /* RFC 7306 1.1/1. If one side needs credits both use them: the other can always count. */
    st->llp = (cfg->local.flags & cfg->peer.flags & STREAM_FLAG_LLP) != 0;
    if (!st->llp && cfg->ring == NULL)
        return -EINVAL;
    st->immediate = st->llp && (cfg->local.flags & cfg->peer.flags & STREAM_FLAG_IMMEDIATE) &&
                    endpoint_ops(cfg->ep)->post_immediate != NULL;
    /* A peer that offers flow control by the LLP need not have said how many buffers it has. */
    if (!params_ok(&cfg->local, st->llp) || !params_ok(&cfg->peer, st->llp))
        return -EINVAL;
    size_t send_max = endpoint_ops(cfg->ep)->send_max(cfg->ep);
    if (send_max <= STREAM_HDR_LEN || endpoint_ops(cfg->ep)->write_max(cfg->ep) == 0)
        return -EINVAL;
    size_t write_max = endpoint_ops(cfg->ep)->write_max(cfg->ep);
    if (st->cfg.write_limit == 0 || st->cfg.write_limit > write_max)
        st->cfg.write_limit = write_max < UINT32_MAX ? (uint32_t)write_max : UINT32_MAX;
    if (st->cfg.eager_limit == 0 || st->cfg.eager_limit > cfg->peer.eager_max)
        st->cfg.eager_limit = cfg->peer.eager_max;
    if (st->cfg.eager_limit > send_max - STREAM_HDR_LEN)
        st->cfg.eager_limit = (uint32_t)(send_max - STREAM_HDR_LEN);
    return 0;
}
