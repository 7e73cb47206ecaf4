/*
 * The verbs endpoint's data path.
 *
 *   post_send, post_write -> staging, chain of work requests -> flush -> the device -> [send completions] -> staging is free
 *   the device -> receive buffer -> [receive completions] -> poll() -> stream -> release() -> posted again
 *
 * RDMA Writes of the peer land in the ring without any event: its stream announces them by a Send.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/base/foreign.h"
#include "core/base/trace.h"
#include "core/transport/verbs_impl.h"

static const struct verbs_lib *lib_now; /* set by the first endpoint that is prepared */

static struct verbs_ep *from(const struct endpoint *e)
{
    return (struct verbs_ep *)(uintptr_t)e;
}

/* ---- memory and queues ---- */

static uint32_t stride(const struct verbs_ep *ep)
{
    return (ep->cfg.msg_max + 63u) & ~63u;
}

static size_t page_up(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) & ~(page - 1);
}

/*
 * Shared, though with no other process: a fork then leaves the pages where the device knows them. It would copy private
 * pages when the parent writes to them.
 */
static void *map_shared(void *at, size_t len)
{
    return mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);
}

/*
 * Memory whose address the peer is told, because not every device (Linux siw) gives a region an offset of its own. It is
 * anywhere in a range as long as that in which the kernel places a process's mappings, so it says nothing of these.
 */
static uint8_t *map_anywhere(size_t len)
{
    size_t range = (size_t)1 << 40;
    uint8_t *begin = MAP_FAILED;
    uint64_t where;
    while (begin == MAP_FAILED && range > 2 * len) { /* (RLIMIT_AS may allow less) */
        begin = mmap(NULL, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        range = begin == MAP_FAILED ? range / 2 : range;
    }
    if (begin == MAP_FAILED || getrandom(&where, sizeof(where), 0) != (ssize_t)sizeof(where))
        return NULL;
    uint8_t *at = begin + where % ((range - len) / page_up(1)) * page_up(1), *end = at + len;
    void *mem = map_shared(at, len);
    munmap(begin, (size_t)(at - begin));
    munmap(end, (size_t)(begin + range - end));
    if (mem == MAP_FAILED)
        munmap(at, len);
    return mem == MAP_FAILED ? NULL : at;
}

static int map(struct verbs_ep *ep)
{
    size_t bufs = page_up((size_t)stride(ep) * ep->cfg.bufs);
    ep->mem_len = bufs + page_up(ep->cfg.tx_len);
    ep->ring_map_len = page_up(ep->cfg.ring_len + 2 * VERBS_FENCE_LEN);
    void *mem = map_shared(NULL, ep->mem_len);
    if (mem == MAP_FAILED)
        return -errno;
    ep->mem = ep->bufs = mem;
    ep->tx_mem = ep->bufs + bufs;
    ep->ring = map_anywhere(ep->ring_map_len);
    if (ep->ring == NULL)
        return -ENOMEM;
    ep->shown = ep->ring + ep->cfg.ring_len;
    ep->sink = ep->shown + VERBS_FENCE_LEN;
    return 0;
}

/* The peer may do with each region what it needs, and no more. iWARP writes a Read's octets to the sink as the peer's. */
static int register_memory(struct verbs_ep *ep, const struct verbs_lib *lib)
{
    ep->pd = lib->ibv_alloc_pd(ep->id->verbs);
    if (ep->pd == NULL)
        return -1;
    ep->ring_mr = lib->ibv_reg_mr(ep->pd, ep->ring, ep->cfg.ring_len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ep->shown_mr = lib->ibv_reg_mr(ep->pd, ep->shown, VERBS_FENCE_LEN, IBV_ACCESS_REMOTE_READ);
    ep->sink_mr = lib->ibv_reg_mr(ep->pd, ep->sink, VERBS_FENCE_LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ep->msg_mr = lib->ibv_reg_mr(ep->pd, ep->mem, ep->mem_len, IBV_ACCESS_LOCAL_WRITE);
    ep->no_memory = ep->ring_mr == NULL || ep->shown_mr == NULL || ep->sink_mr == NULL || ep->msg_mr == NULL;
    return ep->no_memory ? -1 : 0;
}

static int post_recv(struct verbs_ep *ep, uint32_t i)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)(ep->bufs + (size_t)i * stride(ep)),
        .length = ep->cfg.msg_max,
        .lkey = ep->msg_mr->lkey,
    };
    struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
    return ibv_post_recv(ep->qp, &wr, &bad);
}

/* The largest inline data of a few sizes that the device accepts. */
static int make_qp(struct verbs_ep *ep, const struct verbs_lib *lib)
{
    static const uint32_t inline_sizes[] = { 220, 64, 0 };
    int err = 0;
    for (unsigned i = 0; i < sizeof(inline_sizes) / sizeof(inline_sizes[0]); i++) {
        struct ibv_qp_init_attr attr = {
            .qp_type = IBV_QPT_RC,
            .send_cq = ep->scq,
            .recv_cq = ep->rcq,
            .cap = { .max_send_wr = VERBS_SQ,
                     .max_recv_wr = ep->cfg.bufs,
                     .max_send_sge = 1,
                     .max_recv_sge = 1,
                     .max_inline_data = inline_sizes[i] },
        };
        if (lib->rdma_create_qp(ep->id, ep->pd, &attr) == 0) {
            ep->qp = ep->id->qp;
            ep->inline_max = inline_sizes[i];
            return 0;
        }
        err = errno;
    }
    return -err;
}

static int fail(const char **why, const char *what)
{
    int err = errno;
    *why = what;
    trace_info("verbs: %s: errno %d", what, err);
    return err != 0 ? -err : -EIO;
}

int verbs_prepare(struct verbs_ep *ep, const struct verbs_lib *lib, const struct verbs_env *env, const char **why)
{
    lib_now = lib;
    if (map(ep) < 0)
        return fail(why, "memory");
    struct ibv_context *ctx = ep->id->verbs;
    ep->channel = lib->ibv_create_comp_channel(ctx);
    if (ep->channel == NULL)
        return fail(why, "completion channel");
    ep->channel->fd = env->hide_fd(ep->channel->fd);
    ep->hidden = true;
    if (fcntl(ep->channel->fd, F_SETFL, O_NONBLOCK) < 0)
        return fail(why, "completion channel");
    ep->rcq = lib->ibv_create_cq(ctx, ep->cfg.bufs + 8, NULL, ep->channel, 0);
    ep->scq = lib->ibv_create_cq(ctx, VERBS_SQ + 8, NULL, ep->channel, 0);
    if (ep->rcq == NULL || ep->scq == NULL)
        return fail(why, "completion queues");
    if (register_memory(ep, lib) < 0)
        return fail(why, ep->pd == NULL ? "protection domain" : "registered memory (RLIMIT_MEMLOCK)");
    int r = make_qp(ep, lib);
    if (r < 0) {
        *why = "queue pair";
        return r;
    }
    ep->local = (struct verbs_side){
        .ring_stag = ep->ring_mr->rkey,
        .ring_len = ep->cfg.ring_len,
        .fence_stag = ep->shown_mr->rkey,
        .msg_max = ep->cfg.msg_max,
        .bufs = ep->cfg.bufs,
    };
    for (uint32_t i = 0; i < ep->cfg.bufs; i++) {
        r = post_recv(ep, i);
        if (r != 0) {
            *why = "receive buffers";
            return -r;
        }
    }
    return 0;
}

void verbs_unmap(struct verbs_ep *ep)
{
    if (ep->mem != NULL)
        munmap(ep->mem, ep->mem_len);
    if (ep->ring != NULL)
        munmap(ep->ring, ep->ring_map_len);
    ep->mem = ep->ring = NULL;
}

void verbs_unprepare(struct verbs_ep *ep, const struct verbs_lib *lib, const struct verbs_env *env)
{
    if (ep->qp != NULL)
        lib->rdma_destroy_qp(ep->id);
    struct ibv_mr **const regions[] = { &ep->ring_mr, &ep->shown_mr, &ep->sink_mr, &ep->msg_mr };
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++) {
        if (*regions[i] != NULL)
            lib->ibv_dereg_mr(*regions[i]);
        *regions[i] = NULL;
    }
    if (ep->pd != NULL)
        lib->ibv_dealloc_pd(ep->pd);
    if (ep->scq != NULL)
        lib->ibv_destroy_cq(ep->scq);
    if (ep->rcq != NULL)
        lib->ibv_destroy_cq(ep->rcq);
    if (ep->channel != NULL) {
        if (ep->hidden)
            env->reveal_fd(ep->channel->fd);
        lib->ibv_destroy_comp_channel(ep->channel);
    }
    verbs_unmap(ep);
    ep->qp = NULL;
    ep->pd = NULL;
    ep->scq = ep->rcq = NULL;
    ep->channel = NULL;
}

/* ---- sleeping ---- */

int verbs_fd(const struct verbs_ep *ep)
{
    return ep->channel != NULL ? ep->channel->fd : -1;
}

void verbs_arm(struct verbs_ep *ep, bool rx)
{
    if (!atomic_exchange(rx ? &ep->rx_armed : &ep->tx_armed, true) && ibv_req_notify_cq(rx ? ep->rcq : ep->scq, 0) != 0)
        atomic_store(rx ? &ep->rx_armed : &ep->tx_armed, false);
}

unsigned verbs_drain(struct verbs_ep *ep)
{
    struct ibv_cq *cq;
    void *context;
    unsigned told = 0;
    foreign_enter();
    while (lib_now->ibv_get_cq_event(ep->channel, &cq, &context) == 0) {
        bool rx = cq == ep->rcq;
        atomic_store(rx ? &ep->rx_armed : &ep->tx_armed, false);
        told |= rx ? VERBS_TOLD_RX : VERBS_TOLD_TX;
        lib_now->ibv_ack_cq_events(cq, 1);
    }
    foreign_leave();
    return told;
}

/* ---- receive side ---- */

bool verbs_ended(const struct verbs_ep *ep)
{
    return atomic_load(&ep->rx.ended) && ep->rx.at == ep->rx.n;
}

/* The next completion, or NULL. */
static const struct ibv_wc *next_wc(struct verbs_ep *ep)
{
    if (ep->rx.at == ep->rx.n) {
        ep->rx.at = 0;
        ep->rx.n = ibv_poll_cq(ep->rcq, VERBS_WC, ep->rx.wc);
        if (ep->rx.n < 0) {
            ep->rx.n = 0;
            ep->stats.errors++;
            atomic_store(&ep->rx.ended, true);
        }
    }
    return ep->rx.at < ep->rx.n ? &ep->rx.wc[ep->rx.at++] : NULL;
}

static int ep_poll(struct endpoint *e, struct endpoint_event *ev)
{
    struct verbs_ep *ep = from(e);
    const struct ibv_wc *wc;
    while ((wc = next_wc(ep)) != NULL) {
        /* A receive that failed, or was flushed because the connection is gone. */
        if (wc->status != IBV_WC_SUCCESS) {
            if (wc->status != IBV_WC_WR_FLUSH_ERR)
                ep->stats.errors++;
            atomic_store(&ep->rx.ended, true);
            continue;
        }
        ep->stats.rx_sends++;
        *ev = (struct endpoint_event){
            .type = ENDPOINT_SEND,
            .data = ep->bufs + wc->wr_id * stride(ep),
            .len = wc->byte_len,
        };
        return 1;
    }
    return 0;
}

static void ep_release(struct endpoint *e, const uint8_t *upto)
{
    struct verbs_ep *ep = from(e);
    if (post_recv(ep, (uint32_t)((size_t)(upto - 1 - ep->bufs) / stride(ep))) != 0)
        atomic_store(&ep->tx.failed, true); /* the queue pair is gone; completions report the rest */
}

/* ---- send side ---- */

/* Takes the send completions. */
static void reap(struct verbs_ep *ep)
{
    struct ibv_wc wc[VERBS_WC];
    int n;
    do {
        n = ibv_poll_cq(ep->scq, VERBS_WC, wc);
        for (int i = 0; i < n; i++) {
            if (wc[i].status != IBV_WC_SUCCESS) {
                if (wc[i].status != IBV_WC_WR_FLUSH_ERR)
                    ep->stats.errors++;
                atomic_store(&ep->tx.failed, true);
                continue;
            }
            if (wc[i].wr_id >= ep->tx.done) {
                ep->tx.done = wc[i].wr_id + 1;
                ep->tx.tail = ep->tx.end[wc[i].wr_id % VERBS_SQ];
            }
        }
    } while (n == (int)VERBS_WC);
    if (n < 0)
        atomic_store(&ep->tx.failed, true);
}

/* Where len octets may be staged; they are once tx.head is *upto. NULL: there is no room. */
static uint8_t *stage(struct verbs_ep *ep, size_t len, uint64_t *upto)
{
    uint64_t at = ep->tx.head, off = at % ep->cfg.tx_len;
    if (off + len > ep->cfg.tx_len)
        at += ep->cfg.tx_len - off;
    *upto = at + len;
    return *upto - ep->tx.tail <= ep->cfg.tx_len ? ep->tx_mem + at % ep->cfg.tx_len : NULL;
}

/* Finds room for one more request and len octets. *p: where they go, *upto: see stage. 0, -EAGAIN, -EPIPE. */
static int room(struct verbs_ep *ep, size_t len, uint8_t **p, uint64_t *upto)
{
    if (atomic_load_explicit(&ep->tx.failed, memory_order_relaxed))
        return -EPIPE;
    if (ep->tx.chain == VERBS_CHAIN)
        return -EAGAIN;
    for (unsigned tries = 0; tries < 2; tries++) {
        *p = stage(ep, len, upto);
        if (*p != NULL && ep->tx.posted - ep->tx.done < VERBS_SQ - 1)
            return 0;
        if (tries == 0)
            reap(ep);
    }
    return atomic_load(&ep->tx.failed) ? -EPIPE : -EAGAIN;
}

static bool much_room(const struct verbs_ep *ep)
{
    return ep->tx.posted - ep->tx.done < VERBS_SQ / 2 && ep->tx.head - ep->tx.tail <= ep->cfg.tx_len / 2;
}

bool verbs_may_post(struct verbs_ep *ep)
{
    if (!much_room(ep))
        reap(ep);
    return much_room(ep) || atomic_load(&ep->tx.failed); /* (then a post fails at once) */
}

/* Queues a request for the len octets that were staged. */
static struct ibv_send_wr *queue(struct verbs_ep *ep, enum ibv_wr_opcode opcode, const uint8_t *p, size_t len,
                                 uint64_t upto, bool signalled)
{
    uint32_t i = ep->tx.chain++;
    struct ibv_send_wr *wr = &ep->tx.wr[i];
    ep->tx.sge[i] = (struct ibv_sge){ .addr = (uintptr_t)p, .length = (uint32_t)len, .lkey = ep->msg_mr->lkey };
    ep->tx.unsignalled++;
    ep->tx.unsignalled_len += (uint32_t)(upto - ep->tx.head);
    if (ep->tx.unsignalled >= VERBS_UNSIGNALLED || ep->tx.unsignalled_len >= ep->cfg.tx_len / 4)
        signalled = true;
    if (signalled)
        ep->tx.unsignalled = ep->tx.unsignalled_len = 0;
    *wr = (struct ibv_send_wr){
        .wr_id = ep->tx.posted,
        .sg_list = &ep->tx.sge[i],
        .num_sge = 1,
        .opcode = opcode,
        .send_flags = (signalled ? IBV_SEND_SIGNALED : 0u) | (len <= ep->inline_max ? IBV_SEND_INLINE : 0u),
    };
    ep->tx.head = upto;
    ep->tx.end[ep->tx.posted++ % VERBS_SQ] = upto;
    return wr;
}

static size_t ep_write_max(const struct endpoint *e)
{
    return from(e)->cfg.write_max;
}

static size_t ep_send_max(const struct endpoint *e)
{
    const struct verbs_ep *ep = from(e);
    size_t most = ep->cfg.tx_len / 4;
    return ep->peer.msg_max < most ? ep->peer.msg_max : most;
}

static int ep_post_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    struct verbs_ep *ep = from(e);
    uint8_t *p;
    uint64_t upto;
    if (len > ep->cfg.write_max)
        return -EMSGSIZE;
    int r = room(ep, len, &p, &upto);
    if (r < 0)
        return r;
    struct iov_iter at = *src;
    if (iov_iter_gather(&at, p, len) != len)
        return -EINVAL;
    *src = at;
    struct ibv_send_wr *wr = queue(ep, IBV_WR_RDMA_WRITE, p, len, upto, len >= VERBS_UNSIGNALLED_WRITE);
    wr->wr.rdma.remote_addr = ep->peer_base + to;
    wr->wr.rdma.rkey = stag;
    ep->stats.tx_writes++;
    return 0;
}

static int ep_post_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    struct verbs_ep *ep = from(e);
    uint8_t *p;
    uint64_t upto;
    if (hdr_len + len > ep_send_max(e))
        return -EMSGSIZE;
    int r = room(ep, hdr_len + len, &p, &upto);
    if (r < 0)
        return r;
    struct iov_iter at = *src;
    memcpy(p, hdr, hdr_len);
    if (iov_iter_gather(&at, p + hdr_len, len) != len)
        return -EINVAL;
    *src = at;
    queue(ep, IBV_WR_SEND, p, hdr_len + len, upto, hdr_len + len >= VERBS_UNSIGNALLED_WRITE);
    ep->stats.tx_sends++;
    return 0;
}

int verbs_flush(struct verbs_ep *ep)
{
    uint32_t n = ep->tx.chain;
    struct ibv_send_wr *bad;
    ep->tx.chain = 0;
    if (atomic_load_explicit(&ep->tx.failed, memory_order_relaxed))
        return -EPIPE;
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        ep->tx.wr[i].next = &ep->tx.wr[i + 1];
    ep->stats.doorbells++;
    ep->stats.tx_wrs += n;
    if (ibv_post_send(ep->qp, ep->tx.wr, &bad) == 0)
        return 0;
    atomic_store(&ep->tx.failed, true);
    return -EPIPE;
}

int verbs_fence(struct verbs_ep *ep)
{
    if (ep->tx.fence != 0)
        return 0;
    if (atomic_load(&ep->tx.failed))
        return -EPIPE;
    if (ep->tx.posted - ep->tx.done >= VERBS_SQ) {
        reap(ep);
        if (ep->tx.posted - ep->tx.done >= VERBS_SQ)
            return -EAGAIN;
    }
    struct ibv_sge sge = {
        .addr = (uintptr_t)ep->sink,
        .length = VERBS_FENCE_LEN,
        .lkey = ep->sink_mr->lkey,
    };
    struct ibv_send_wr wr = {
        .wr_id = ep->tx.posted,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { .remote_addr = ep->peer_base + ep->peer.ring_len, .rkey = ep->peer.fence_stag },
    };
    struct ibv_send_wr *bad;
    int r = verbs_flush(ep);
    if (r < 0)
        return r;
    ep->tx.end[ep->tx.posted % VERBS_SQ] = ep->tx.head;
    ep->tx.fence = ++ep->tx.posted;
    if (ibv_post_send(ep->qp, &wr, &bad) == 0)
        return 0;
    atomic_store(&ep->tx.failed, true);
    return -EPIPE;
}

int verbs_fence_done(struct verbs_ep *ep)
{
    reap(ep);
    if (ep->tx.fence != 0 && ep->tx.done >= ep->tx.fence)
        return 1;
    return atomic_load(&ep->tx.failed) ? -EPIPE : 0;
}

const struct endpoint_ops verbs_endpoint_ops = {
    .name = "verbs",
    .write_max = ep_write_max,
    .send_max = ep_send_max,
    .post_write = ep_post_write,
    .post_send = ep_post_send,
    .poll = ep_poll,
    .release = ep_release,
    .each_alone = true,
};
