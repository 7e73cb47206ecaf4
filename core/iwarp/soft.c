/* The software endpoint with the properties of a device. */
#include "core/iwarp/soft.h"

#include <errno.h>
#include <string.h>

#include "core/base/fault.h"

#define FENCE_LEN 8u
#define TERMINATE_ROOM 128u /* the most that may come with a message */

enum { RING, SHOWN, SINK }; /* its regions */

static struct soft_ep *soft_of(struct endpoint *e)
{
    return (struct soft_ep *)e; /* base is the first member */
}

static const struct soft_ep *soft_of_const(const struct endpoint *e)
{
    return (const struct soft_ep *)e;
}

static size_t stride(const struct soft_cfg *cfg)
{
    return ((size_t)cfg->local.msg_max + 63u) & ~(size_t)63u;
}

size_t soft_memory(const struct soft_cfg *cfg)
{
    return stride(cfg) * cfg->local.bufs + cfg->queue_len + SOFT_IN_CAP(cfg->local.msg_max) + SOFT_OUT_CAP;
}

struct mpa_startup_cfg soft_startup_cfg(bool responder, uint8_t rev, bool crc)
{
    return (struct mpa_startup_cfg){
        .responder = responder,
        .rev = rev,
        .crc = crc,
        .peer_to_peer = false,
        .rtr = MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ,
        .rtr_pref = { MPA_RTR_WRITE, MPA_RTR_READ, MPA_RTR_SEND }, /* a Write needs neither a buffer nor an answer */
        .ird = SOFT_DEPTH,
        .ord = SOFT_DEPTH,
    };
}

int soft_init(struct soft_ep *ep, const struct soft_cfg *cfg)
{
    if (cfg->local.bufs == 0 || cfg->local.bufs > SOFT_BUFS_MAX || cfg->local.ring_len == 0 ||
        cfg->local.fence_stag == 0 || cfg->local.fence_stag == cfg->local.ring_stag ||
        cfg->queue_len / 4 < cfg->write_max || cfg->queue_len / 4 < cfg->local.msg_max)
        return -EINVAL;
    uint8_t *bufs = cfg->mem, *queue = bufs + stride(cfg) * cfg->local.bufs, *in = queue + cfg->queue_len;
    size_t in_cap = SOFT_IN_CAP(cfg->local.msg_max);
    struct iwarp_cfg ic = {
        .initiator = cfg->initiator,
        .tx = cfg->tx,
        .rx = cfg->rx,
        .rtr = cfg->rtr,
        .ird = cfg->ird,
        .ord = cfg->ord,
        .mulpdu = cfg->mulpdu,
        .send_max = cfg->local.msg_max,
        .in_buf = in,
        .in_cap = in_cap,
        .out_buf = in + in_cap,
        .out_cap = SOFT_OUT_CAP,
        .crc_twice = true,
        .random32 = cfg->random32,
    };
    memset(ep, 0, sizeof(*ep));
    int r = iwarp_init(&ep->iw, &ic);
    if (r < 0)
        return r;
    endpoint_init(&ep->base, &soft_endpoint_ops);
    ep->cfg = *cfg;
    ep->bufs = bufs;
    ep->queue = queue;
    for (unsigned i = cfg->local.bufs; i-- > 0;)
        ep->free[ep->free_n++] = (uint8_t)i;
    ep->dry = true;
    /* The peer learned these STags before this endpoint existed. It may do with each what it needs, and no more. */
    ep->iw.stags.region[RING] = (struct ddp_region){
        .stag = cfg->local.ring_stag,
        .access = DDP_ACCESS_REMOTE_WRITE,
        .to = cfg->local.base,
        .len = cfg->local.ring_len,
        .base = cfg->ring,
    };
    ep->iw.stags.region[SHOWN] = (struct ddp_region){
        .stag = cfg->local.fence_stag,
        .access = DDP_ACCESS_REMOTE_READ,
        .to = cfg->local.base + cfg->local.ring_len,
        .len = FENCE_LEN,
        .base = (uint8_t *)&ep->fence_shown,
    };
    struct ddp_region sink = { .access = DDP_ACCESS_LOCAL_SINK,
                               .len = FENCE_LEN,
                               .base = (uint8_t *)&ep->fence_octets };
    return ddp_stags_add(&ep->iw.stags, &sink, cfg->random32, NULL);
}

/* ---- receive side ---- */

size_t soft_in_space(struct soft_ep *ep, uint8_t **p)
{
    return iwarp_in_space(&ep->iw, p);
}

void soft_in_fed(struct soft_ep *ep, size_t n)
{
    ep->dry = ep->dry && n == 0;
    iwarp_in_fed(&ep->iw, n);
}

static int ep_poll(struct endpoint *e, struct endpoint_event *ev)
{
    struct soft_ep *ep = soft_of(e);
    int r = iwarp_poll(&ep->iw.base, ev);
    if (r != 1 || ev->type != ENDPOINT_SEND) {
        ep->dry = r != 1;
        return r;
    }
    /* RFC 5041 7.1: "a buffer was not available"; a peer that keeps to its credits never causes this. */
    if (ep->free_n == 0 || ev->len > ep->cfg.local.msg_max) {
        iwarp_fail(&ep->iw, (struct term_code){ TERM_LAYER_DDP, TERM_DDP_UNTAGGED,
                                                ep->free_n == 0 ? TERM_DDP_U_NO_BUFFER : TERM_DDP_U_TOO_LONG });
        return -EPROTO;
    }
    uint8_t *buf = ep->bufs + stride(&ep->cfg) * ep->free[--ep->free_n];
    memcpy(buf, ev->data, ev->len);
    iwarp_release(&ep->iw.base, ev->data + ev->len);
    ev->data = buf;
    ev->in_place = false;
    return 1;
}

static void ep_release(struct endpoint *e, const uint8_t *upto)
{
    struct soft_ep *ep = soft_of(e);
    SW_CHECK(ep->free_n < ep->cfg.local.bufs, "%u buffers free of %u", ep->free_n, ep->cfg.local.bufs);
    ep->free[ep->free_n++] = (uint8_t)((size_t)(upto - 1 - ep->bufs) / stride(&ep->cfg));
}

/* ---- send side ---- */

/* The largest number of octets that a message of len octets can become. */
static size_t framed_max(const struct soft_ep *ep, size_t len)
{
    size_t mulpdu = ep->iw.cfg.mulpdu - DDP_UNTAGGED_HDR_LEN;
    size_t frames = len / mulpdu + 1;
    size_t all =
        len + TERMINATE_ROOM + frames * (MPA_HDR_LEN + DDP_UNTAGGED_HDR_LEN + RDMAP_READ_HDR_LEN + MPA_TRAILER_MAX);
    return ep->cfg.tx.markers ? MPA_MARKED_MAX(all) + frames * MPA_MARKER_LEN : all;
}

static void put(struct soft_ep *ep, const uint8_t *p, size_t len)
{
    while (len > 0) {
        size_t at = (size_t)(ep->head % ep->cfg.queue_len), n = ep->cfg.queue_len - at;
        n = n < len ? n : len;
        memcpy(ep->queue + at, p, n);
        ep->head += n;
        p += n;
        len -= n;
    }
}

/*
 * Moves what the endpoint has to send to the queue. False: there is no room for all of it. What was posted has room
 * already.
 */
static bool take_out(struct soft_ep *ep)
{
    const struct iovec *iov;
    size_t len, n;
    while ((n = iwarp_out(&ep->iw, &iov, &len)) > 0) {
        if (len > ep->cfg.queue_len - soft_unsent(ep))
            return false;
        for (size_t i = 0; i < n; i++)
            put(ep, iov[i].iov_base, iov[i].iov_len);
        iwarp_out_sent(&ep->iw, len);
    }
    return true;
}

/* May a message of len octets be posted, so that the queue takes all of it? 0, -EAGAIN. */
static int room(struct soft_ep *ep, size_t len)
{
    return take_out(ep) && framed_max(ep, len) <= ep->cfg.queue_len - soft_unsent(ep) ? 0 : -EAGAIN;
}

static size_t ep_write_max(const struct endpoint *e)
{
    const struct soft_ep *ep = soft_of_const(e);
    size_t most = iwarp_write_max(&ep->iw.base);
    return most < ep->cfg.write_max ? most : ep->cfg.write_max;
}

static size_t ep_send_max(const struct endpoint *e)
{
    const struct soft_ep *ep = soft_of_const(e);
    size_t most = iwarp_send_max(&ep->iw.base);
    return most < ep->cfg.peer.msg_max ? most : ep->cfg.peer.msg_max;
}

/* Posts a Send; or, with hdr NULL, a Write. */
static int post(struct soft_ep *ep, uint32_t stag, uint64_t to, const uint8_t *hdr, size_t hdr_len,
                struct iov_iter *src, size_t len)
{
    int r = room(ep, hdr_len + len);
    if (r < 0)
        return r;
    if (hdr != NULL)
        r = iwarp_post_send(&ep->iw.base, hdr, hdr_len, src, len);
    else
        r = iwarp_post_write(&ep->iw.base, stag, ep->cfg.peer.base + to, src, len);
    take_out(ep); /* there is room for the message; a control frame behind it may have to wait */
    return r;
}

static int ep_post_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    return len > ep_write_max(e) ? -EMSGSIZE : post(soft_of(e), stag, to, NULL, 0, src, len);
}

static int ep_post_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    return hdr_len + len > ep_send_max(e) ? -EMSGSIZE : post(soft_of(e), 0, 0, hdr, hdr_len, src, len);
}

unsigned soft_out(struct soft_ep *ep, struct iovec iov[2])
{
    take_out(ep);
    size_t n = soft_unsent(ep), at = (size_t)(ep->tail % ep->cfg.queue_len), first = ep->cfg.queue_len - at;
    if (n == 0)
        return 0;
    iov[0] = (struct iovec){ ep->queue + at, n < first ? n : first };
    iov[1] = (struct iovec){ ep->queue, n < first ? 0 : n - first };
    return iov[1].iov_len > 0 ? 2 : 1;
}

void soft_out_sent(struct soft_ep *ep, size_t n)
{
    SW_CHECK(n <= soft_unsent(ep), "%zu of %zu octets sent", n, soft_unsent(ep));
    ep->tail += n;
}

int soft_fence(struct soft_ep *ep)
{
    if (ep->fenced)
        return 0;
    if (ep->iw.cfg.ord == 0)
        return -EPIPE;
    int r = room(ep, RDMAP_READ_HDR_LEN);
    if (r < 0)
        return r;
    struct rdmap_read rd = {
        .sink_stag = ep->iw.stags.region[SINK].stag,
        .len = FENCE_LEN,
        .src_stag = ep->cfg.peer.fence_stag,
        .src_to = ep->cfg.peer.base + ep->cfg.peer.ring_len,
    };
    r = iwarp_post_read(&ep->iw, &rd);
    ep->fenced = r == 0;
    take_out(ep);
    return r;
}

int soft_fence_done(const struct soft_ep *ep)
{
    if (ep->fenced && iwarp_reads_done(&ep->iw) > 0)
        return 1;
    enum iwarp_state st = iwarp_state_now(&ep->iw);
    return st == IWARP_TERMINATING || st == IWARP_TERMINATED ? -EPIPE : 0;
}

const struct endpoint_ops soft_endpoint_ops = {
    .name = "mixed",
    .write_max = ep_write_max,
    .send_max = ep_send_max,
    .post_write = ep_post_write,
    .post_send = ep_post_send,
    .poll = ep_poll,
    .release = ep_release,
    .each_alone = true,
};
