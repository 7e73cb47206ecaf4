/*
 * Stream headers and the stream parameters in the MPA private data: encode and decode.
 */
#include <errno.h>

#include "core/base/bytes.h"
#include "core/stream/stream.h"

void stream_hdr_encode(const struct stream_hdr *h, uint8_t buf[STREAM_HDR_LEN])
{
    struct bytes_wr w = bytes_wr_init(buf, STREAM_HDR_LEN);
    bytes_wr_u8(&w, h->type);
    bytes_wr_u8(&w, h->flags);
    bytes_wr_be16(&w, h->bufs);
    bytes_wr_be32(&w, h->off);
    bytes_wr_be32(&w, h->ring);
    bytes_wr_be32(&w, h->aux);
}

int stream_hdr_decode(const uint8_t *buf, size_t len, struct stream_hdr *out)
{
    struct bytes_rd r = bytes_rd_init(buf, len);
    out->type = bytes_rd_u8(&r);
    out->flags = bytes_rd_u8(&r);
    out->bufs = bytes_rd_be16(&r);
    out->off = bytes_rd_be32(&r);
    out->ring = bytes_rd_be32(&r);
    out->aux = bytes_rd_be32(&r);
    /* In memory that is shared the peer may write to buf at any moment: what was read is what counts. */
    atomic_signal_fence(memory_order_seq_cst);
    if (r.bad)
        return -EMSGSIZE;
    if (out->type < STREAM_DATA || out->type > STREAM_RESET)
        return -EPROTO;
    return 0;
}

void stream_params_encode(const struct stream_params *p, uint8_t buf[STREAM_PARAMS_LEN])
{
    struct bytes_wr w = bytes_wr_init(buf, STREAM_PARAMS_LEN);
    bytes_wr_u8(&w, 'S');
    bytes_wr_u8(&w, 'W');
    bytes_wr_u8(&w, p->version);
    bytes_wr_u8(&w, p->flags);
    bytes_wr_be32(&w, p->ring_stag);
    bytes_wr_be32(&w, p->ring_len);
    bytes_wr_be16(&w, p->eager_max);
    bytes_wr_be16(&w, p->bufs);
}

int stream_params_decode(const uint8_t *buf, size_t len, struct stream_params *out)
{
    struct bytes_rd r = bytes_rd_init(buf, len);
    uint8_t s = bytes_rd_u8(&r), w = bytes_rd_u8(&r);
    out->version = bytes_rd_u8(&r);
    out->flags = bytes_rd_u8(&r);
    out->ring_stag = bytes_rd_be32(&r);
    out->ring_len = bytes_rd_be32(&r);
    out->eager_max = bytes_rd_be16(&r);
    out->bufs = bytes_rd_be16(&r);
    if (r.bad)
        return -EMSGSIZE;
    if (s != 'S' || w != 'W' || out->version != 1 || out->ring_len < STREAM_RING_MIN ||
        out->ring_len > STREAM_RING_MAX || out->eager_max == 0)
        return -EPROTO;
    /* With credits a sender keeps some buffers in reserve: it must have more than those. */
    if (!(out->flags & STREAM_FLAG_LLP) && out->bufs <= STREAM_BUFS_KEPT)
        return -EPROTO;
    return 0;
}
