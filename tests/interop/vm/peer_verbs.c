/* A device's end: libibverbs and librdmacm, as programs use them. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "tests/interop/vm/peer.h"

#define RECVS (2 * PEER_WINDOW)
#define SENDS 16u
#define QUEUE 64u /* work requests of ours under way */
#define CQ_LEN (RECVS + QUEUE + 8)
#define RESOLVE_MS 3000

struct verbs {
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener, *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *completions;
    struct ibv_cq *cq;
    struct ibv_mr *send_mr, *recv_mr;
    bool ended;               /* the connection manager says so */
    enum ibv_wc_status error; /* the first that is none */
    enum ibv_wc_opcode error_op;
    unsigned under_way; /* work requests of ours */
    unsigned send_next;
    unsigned send_under_way;
    unsigned got[RECVS], got_len[RECVS], got_head, got_tail; /* slots with messages */
    size_t recv_max;
    int held; /* the slot that the caller looks at, -1: none */
    uint8_t sends[SENDS][PEER_MESSAGE_MAX], recvs[RECVS][PEER_MESSAGE_MAX];
};

enum { WR_RECV = 1, WR_SEND, WR_OTHER };

static struct verbs *verbs(struct peer *p)
{
    return p->impl;
}

/* ---- connection manager ---- */

/* Waits for the next event; *ev is to be acknowledged. */
static int next_event(struct peer *p, struct rdma_cm_event **ev)
{
    struct pollfd pfd = { .fd = verbs(p)->events->fd, .events = POLLIN };

    while (rdma_get_cm_event(verbs(p)->events, ev) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return peer_fail(p, errno, "rdma_get_cm_event");
        if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
            return peer_fail(p, errno, "poll");
    }
    return 0;
}

static void keep_private(struct peer *p, const struct rdma_conn_param *param)
{
    size_t len = param->private_data ? param->private_data_len : 0;

    p->met.priv_len = len < PEER_PRIVATE_MAX ? len : PEER_PRIVATE_MAX;
    if (len)
        memcpy(p->met.priv, param->private_data, p->met.priv_len);
    /* RFC 6581 9.1: the other end's, as the device reports them. */
    p->met.ird = param->responder_resources;
    p->met.ord = param->initiator_depth;
}

static int expect(struct peer *p, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *ev;
    int err = next_event(p, &ev);

    if (err)
        return err;
    if (ev->event == type) {
        if (type == RDMA_CM_EVENT_ESTABLISHED && !verbs(p)->listener)
            keep_private(p, &ev->param.conn);
    } else if (ev->event == RDMA_CM_EVENT_REJECTED) {
        p->met.refused = true;
        keep_private(p, &ev->param.conn);
        err = ev->status;
        err = peer_fail(p, ECONNREFUSED, "rejected, status %d", err);
    } else {
        err = peer_fail(p, EPROTO, "%s (status %d) where %s was due", rdma_event_str(ev->event), ev->status,
                        rdma_event_str(type));
    }
    rdma_ack_cm_event(ev);
    return err;
}

static int post_recv(struct verbs *v, unsigned slot)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)v->recvs[slot],
        .length = (uint32_t)v->recv_max,
        .lkey = v->recv_mr->lkey,
    };
    struct ibv_recv_wr wr = { .wr_id = (uint64_t)WR_RECV << 32 | slot, .sg_list = &sge, .num_sge = 1 }, *bad;

    return ibv_post_recv(v->id->qp, &wr, &bad);
}

static int make_qp(struct peer *p)
{
    struct verbs *v = verbs(p);
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = { .max_send_wr = QUEUE + 2, .max_recv_wr = RECVS + 2, .max_send_sge = 1, .max_recv_sge = 1 },
    };

    v->pd = ibv_alloc_pd(v->id->verbs);
    v->completions = ibv_create_comp_channel(v->id->verbs);
    if (!v->pd || !v->completions || fcntl(v->completions->fd, F_SETFL, O_NONBLOCK) < 0)
        return peer_fail(p, errno, "protection domain, completion channel");
    v->cq = ibv_create_cq(v->id->verbs, CQ_LEN, NULL, v->completions, 0);
    v->send_mr = ibv_reg_mr(v->pd, v->sends, sizeof(v->sends), 0);
    v->recv_mr = ibv_reg_mr(v->pd, v->recvs, sizeof(v->recvs), IBV_ACCESS_LOCAL_WRITE);
    if (!v->cq || !v->send_mr || !v->recv_mr)
        return peer_fail(p, errno, "completion queue, memory");
    attr.send_cq = attr.recv_cq = v->cq;
    if (rdma_create_qp(v->id, v->pd, &attr) < 0)
        return peer_fail(p, errno, "rdma_create_qp");
    for (unsigned slot = 0; slot < RECVS; slot++) {
        int err = post_recv(v, slot);
        if (err)
            return peer_fail(p, err, "ibv_post_recv");
    }
    return 0;
}

static int open_initiator(struct peer *p, struct addrinfo *ai, struct rdma_conn_param *param)
{
    struct verbs *v = verbs(p);
    int err;

    if (rdma_create_id(v->events, &v->id, NULL, RDMA_PS_TCP) < 0 ||
        rdma_resolve_addr(v->id, NULL, ai->ai_addr, RESOLVE_MS) < 0)
        return peer_fail(p, errno, "rdma_resolve_addr");
    err = expect(p, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (err)
        return err;
    if (rdma_resolve_route(v->id, RESOLVE_MS) < 0)
        return peer_fail(p, errno, "rdma_resolve_route");
    err = expect(p, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (!err)
        err = make_qp(p);
    if (err)
        return err;
    if (rdma_connect(v->id, param) < 0)
        return peer_fail(p, errno, "rdma_connect");
    err = expect(p, RDMA_CM_EVENT_ESTABLISHED);
    return p->met.refused ? 0 : err;
}

static int open_responder(struct peer *p, const struct peer_cfg *cfg, struct addrinfo *ai,
                          struct rdma_conn_param *param)
{
    struct verbs *v = verbs(p);
    struct rdma_cm_event *ev;
    int err;

    if (rdma_create_id(v->events, &v->listener, NULL, RDMA_PS_TCP) < 0 ||
        rdma_bind_addr(v->listener, ai->ai_addr) < 0 || rdma_listen(v->listener, 1) < 0)
        return peer_fail(p, errno, "rdma_listen");
    peer_tell_ready(cfg);
    err = next_event(p, &ev);
    if (err)
        return err;
    if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        v->id = ev->id;
        keep_private(p, &ev->param.conn);
    } else {
        err = peer_fail(p, EPROTO, "%s where a request was due", rdma_event_str(ev->event));
    }
    rdma_ack_cm_event(ev);
    if (err)
        return err;
    if (cfg->refuse) {
        p->met.refused = true;
        if (rdma_reject(v->id, param->private_data, param->private_data_len) < 0)
            return peer_fail(p, errno, "rdma_reject");
        return 0;
    }
    err = make_qp(p);
    if (err)
        return err;
    if (rdma_accept(v->id, param) < 0)
        return peer_fail(p, errno, "rdma_accept");
    return expect(p, RDMA_CM_EVENT_ESTABLISHED);
}

static int verbs_open(struct peer *p, const struct peer_cfg *cfg)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *ai;
    struct rdma_conn_param param = {
        .private_data = cfg->priv,
        .private_data_len = cfg->priv ? (uint8_t)strlen(cfg->priv) : 0,
        .responder_resources = (uint8_t)cfg->ird,
        .initiator_depth = (uint8_t)cfg->ord,
        .rnr_retry_count = 7,
    };
    struct verbs *v = calloc(1, sizeof(*v));
    int err;

    p->impl = v;
    if (!v)
        return peer_fail(p, ENOMEM, "memory");
    v->held = -1;
    v->recv_max = cfg->message_max;
    v->events = rdma_create_event_channel();
    if (!v->events || fcntl(v->events->fd, F_SETFL, O_NONBLOCK) < 0)
        return peer_fail(p, errno, "rdma_create_event_channel");
    err = getaddrinfo(cfg->address, cfg->port, &hints, &ai);
    if (err)
        return peer_fail(p, EINVAL, "%s port %s: %s", cfg->address, cfg->port, gai_strerror(err));
    err = cfg->responder ? open_responder(p, cfg, ai, &param) : open_initiator(p, ai, &param);
    freeaddrinfo(ai);
    return err;
}

/* ---- completions ---- */

static void completed(struct verbs *v, const struct ibv_wc *wc)
{
    unsigned kind = (unsigned)(wc->wr_id >> 32);

    if (kind != WR_RECV) {
        v->under_way--;
        v->send_under_way -= kind == WR_SEND;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        if (v->error == IBV_WC_SUCCESS || v->error == IBV_WC_WR_FLUSH_ERR) {
            v->error = wc->status;
            v->error_op = wc->opcode;
        }
    } else if (kind == WR_RECV) {
        v->got[v->got_head % RECVS] = (unsigned)wc->wr_id;
        v->got_len[v->got_head++ % RECVS] = wc->byte_len;
    }
}

static int reap(struct peer *p, bool *some)
{
    struct ibv_wc wc[16];
    int n;

    while ((n = ibv_poll_cq(verbs(p)->cq, 16, wc)) > 0) {
        *some = true;
        for (int i = 0; i < n; i++)
            completed(verbs(p), &wc[i]);
    }
    return n < 0 ? peer_fail(p, EIO, "ibv_poll_cq") : 0;
}

/* The connection manager's events while connected. */
static int look_at_events(struct peer *p)
{
    struct rdma_cm_event *ev;

    while (rdma_get_cm_event(verbs(p)->events, &ev) == 0) {
        if (ev->event == RDMA_CM_EVENT_DISCONNECTED)
            verbs(p)->ended = true;
        rdma_ack_cm_event(ev);
    }
    return errno == EAGAIN || errno == EINTR ? 0 : peer_fail(p, errno, "rdma_get_cm_event");
}

/* Waits for completions or for the end. -EPIPE: ended, and nothing came. */
static int progress(struct peer *p)
{
    struct verbs *v = verbs(p);
    bool some = false;
    int err = reap(p, &some);

    while (!err && !some) {
        struct pollfd pfd[2] = {
            { .fd = v->completions->fd, .events = POLLIN },
            { .fd = v->events->fd, .events = POLLIN },
        };
        struct ibv_cq *cq;
        void *context;

        if (v->ended)
            return peer_fail(p, EPIPE, "disconnected; the first failed work: %s", ibv_wc_status_str(v->error));
        if (ibv_req_notify_cq(v->cq, 0))
            return peer_fail(p, EIO, "ibv_req_notify_cq");
        err = reap(p, &some);
        if (err || some)
            break;
        if (poll(pfd, 2, -1) < 0 && errno != EINTR)
            return peer_fail(p, errno, "poll");
        if (ibv_get_cq_event(v->completions, &cq, &context) == 0)
            ibv_ack_cq_events(cq, 1);
        err = look_at_events(p);
        if (!err)
            err = reap(p, &some);
    }
    return err;
}

/* Room for one more work request. */
static int room(struct peer *p, unsigned *under_way, unsigned most)
{
    int err = 0;

    while (!err && *under_way >= most)
        err = progress(p);
    if (!err && verbs(p)->error != IBV_WC_SUCCESS)
        err = peer_fail(p, EPIPE, "failed work: %s", ibv_wc_status_str(verbs(p)->error));
    return err;
}

static int post(struct peer *p, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    int err = ibv_post_send(verbs(p)->id->qp, wr, &bad);

    if (err)
        return peer_fail(p, err, "ibv_post_send");
    verbs(p)->under_way++;
    return 0;
}

/* ---- operations ---- */

static int verbs_reg(struct peer *p, struct peer_region *r)
{
    struct ibv_mr *mr =
        ibv_reg_mr(verbs(p)->pd, r->mem, r->len,
                   IBV_ACCESS_LOCAL_WRITE | (r->access & PEER_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
                       (r->access & PEER_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0));

    if (!mr)
        return peer_fail(p, errno, "ibv_reg_mr");
    r->handle = mr;
    r->key = mr->rkey;
    r->addr = (uintptr_t)r->mem;
    return 0;
}

/* (Whether the other end has invalidated it cannot be seen: assumed.) */
static bool verbs_unreg(struct peer *p, struct peer_region *r)
{
    (void)p;
    (void)ibv_dereg_mr(r->handle);
    r->handle = NULL;
    return false;
}

static int verbs_send(struct peer *p, const void *data, size_t len, uint32_t invalidate, bool solicited)
{
    struct verbs *v = verbs(p);
    struct ibv_sge sge = { .length = (uint32_t)len, .lkey = v->send_mr->lkey };
    struct ibv_send_wr wr = {
        .wr_id = (uint64_t)WR_SEND << 32,
        .sg_list = &sge,
        .num_sge = len > 0,
        .opcode = IBV_WR_SEND,
        .send_flags = solicited ? IBV_SEND_SOLICITED : 0,
    };
    int err = room(p, &v->send_under_way, SENDS); /* completions come in order: the slot is free */

    if (!err)
        err = room(p, &v->under_way, QUEUE);
    if (err)
        return err;
    sge.addr = (uintptr_t)v->sends[v->send_next % SENDS];
    memcpy(v->sends[v->send_next++ % SENDS], data, len);
    if (invalidate) {
        wr.opcode = IBV_WR_SEND_WITH_INV;
        wr.invalidate_rkey = invalidate;
        wr.wr.rdma.rkey = invalidate; /* where siw's provider looks for it */
    }
    err = post(p, &wr);
    v->send_under_way += !err;
    return err;
}

static int verbs_recv(struct peer *p, const uint8_t **data, size_t *len)
{
    struct verbs *v = verbs(p);
    int err;

    if (v->held >= 0 && !v->ended) {
        err = post_recv(v, (unsigned)v->held);
        if (err)
            return peer_fail(p, err, "ibv_post_recv");
    }
    v->held = -1;
    while (v->got_head == v->got_tail) {
        err = progress(p);
        if (err)
            return err;
    }
    v->held = (int)v->got[v->got_tail % RECVS];
    *data = v->recvs[v->held];
    *len = v->got_len[v->got_tail++ % RECVS];
    return 0;
}

static int tagged(struct peer *p, enum ibv_wr_opcode opcode, struct peer_region *r, size_t off, size_t len,
                  struct peer_remote remote)
{
    struct ibv_mr *mr = r->handle;
    struct ibv_sge sge = { .addr = (uintptr_t)(r->mem + off), .length = (uint32_t)len, .lkey = mr->lkey };
    struct ibv_send_wr wr = {
        .wr_id = (uint64_t)WR_OTHER << 32,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = opcode,
        .wr.rdma = { .remote_addr = remote.addr, .rkey = remote.key },
    };
    int err = room(p, &verbs(p)->under_way, QUEUE);

    return err ? err : post(p, &wr);
}

static int verbs_write(struct peer *p, struct peer_region *r, size_t off, size_t len, struct peer_remote to)
{
    return tagged(p, IBV_WR_RDMA_WRITE, r, off, len, to);
}

static int verbs_read(struct peer *p, struct peer_region *r, size_t off, size_t len, struct peer_remote from)
{
    return tagged(p, IBV_WR_RDMA_READ, r, off, len, from);
}

static int verbs_flush(struct peer *p)
{
    return room(p, &verbs(p)->under_way, 1);
}

static int verbs_fault(struct peer *p, enum peer_fault fault)
{
    return fault ? peer_fail(p, ENOTSUP, "a device does nothing wrong on the wire") : 0;
}

static int verbs_wait_end(struct peer *p, struct peer_end *end)
{
    struct verbs *v = verbs(p);
    bool left = false;

    *end = (struct peer_end){ 0 };
    while (progress(p) == 0) {
        /* As programs do on a failed completion: siw leaves the connection standing after a refused Invalidate. */
        if (v->error != IBV_WC_SUCCESS && v->error != IBV_WC_WR_FLUSH_ERR && !left) {
            left = true;
            (void)rdma_disconnect(v->id);
        }
    }
    return v->ended ? 0 : -EIO;
}

static void verbs_close(struct peer *p)
{
    struct verbs *v = verbs(p);

    if (!v)
        return;
    if (v->id && v->id->qp) {
        (void)room(p, &v->under_way, 1);
        if (!v->ended)
            (void)rdma_disconnect(v->id);
        rdma_destroy_qp(v->id);
    }
    if (v->send_mr)
        (void)ibv_dereg_mr(v->send_mr);
    if (v->recv_mr)
        (void)ibv_dereg_mr(v->recv_mr);
    if (v->cq)
        (void)ibv_destroy_cq(v->cq);
    if (v->completions)
        (void)ibv_destroy_comp_channel(v->completions);
    if (v->pd)
        (void)ibv_dealloc_pd(v->pd);
    if (v->id)
        (void)rdma_destroy_id(v->id);
    if (v->listener)
        (void)rdma_destroy_id(v->listener);
    if (v->events)
        rdma_destroy_event_channel(v->events);
    free(v);
    p->impl = NULL;
}

const struct peer_ops peer_verbs = {
    .name = "verbs",
    .open = verbs_open,
    .reg = verbs_reg,
    .unreg = verbs_unreg,
    .send = verbs_send,
    .recv = verbs_recv,
    .write = verbs_write,
    .read = verbs_read,
    .flush = verbs_flush,
    .fault = verbs_fault,
    .wait_end = verbs_wait_end,
    .close = verbs_close,
};
