/* Our end: the software endpoint of core/iwarp over a TCP socket. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sysexits.h>
#include <unistd.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/iwarp/iwarp_ops.h"
#include "tests/interop/vm/ours.h"

#define NUDGE_MS 500
#define NUDGES 20u

static uint32_t random32(void *arg)
{
    uint32_t r;

    (void)arg;
    if (getrandom(&r, sizeof(r), 0) != sizeof(r))
        abort();
    return r;
}

/* ---- moving octets ---- */

/* Is this a reset or the like: the connection's end, not the test's failure? */
static int lost(struct ours *o, int err)
{
    if (err != ECONNRESET && err != EPIPE)
        return -err;
    o->in_ended = true;
    o->error = err;
    return 0;
}

static int push(struct ours *o, bool *moved, bool *full)
{
    const struct iovec *iov;
    size_t len, n;

    *full = false;
    while ((n = iwarp_out(&o->ep, &iov, &len)) > 0) {
        struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
        ssize_t sent = sendmsg(o->fd, &msg, MSG_NOSIGNAL);

        if (sent < 0 && errno == EAGAIN) {
            *full = true;
            return 0;
        }
        if (sent < 0)
            return lost(o, errno);
        iwarp_out_sent(&o->ep, (size_t)sent);
        *moved = true;
    }
    return 0;
}

/*
 * siw (Linux 6.1) takes a payload twice into the CRC where TCP had room for exactly the FPDU's header: the rest goes
 * with a second call, which starts at the payload and computes anew (siw_tx_hdt of siw_qp_tx.c). The octets are right,
 * the CRC is that of header, payload, payload.
 */
static bool counted_twice(const uint8_t *frame, size_t len)
{
    size_t hdr_len = MPA_HDR_LEN + (frame[2] & 0x80 ? DDP_TAGGED_HDR_LEN : DDP_UNTAGGED_HDR_LEN),
           covered = len - MPA_CRC_LEN;
    uint32_t crc;

    if (covered < hdr_len)
        return false;
    crc = crc32c_update(CRC32C_INIT, frame, covered);
    crc = crc32c_update(crc, frame + hdr_len, covered - hdr_len);
    return crc32c_final(crc) == get_le32(frame + covered);
}

/* A frame that failed its CRC: what every implementation makes of it now, and its ends. */
static void show_bad_crc(const struct ours *o)
{
    const uint8_t *frame = o->in + o->ep.rx.head;
    size_t len = mpa_fpdu_len(get_be16(frame));

    if (counted_twice(frame, len)) {
        fprintf(stderr,
                "ours: siw counted the payload of an FPDU twice in its CRC; this says nothing of ours: try again\n");
        exit(EX_TEMPFAIL);
    }
    fprintf(stderr, "ours: bad CRC %08x in a frame of %zu octets, %zu staged; computed anew:",
            get_le32(frame + len - MPA_CRC_LEN), len, o->ep.rx.tail - o->ep.rx.head);
    for (const struct crc32c_impl *c = crc32c_impls; c->name; c++)
        if (!(c->needs & ~crc32c_features()))
            fprintf(stderr, " %s %08x", c->name, crc32c_final(c->update(CRC32C_INIT, frame, len - MPA_CRC_LEN)));
    for (size_t i = 0; i < len; i++)
        fprintf(stderr, "%s%02x", i % 32 ? "" : "\n", frame[i]);
    fputc('\n', stderr);
}

static int take_events(struct ours *o)
{
    struct term_code code;
    struct endpoint_event ev;
    struct message *m;

    while (iwarp_poll(&o->ep.base, &ev) == 1) {
        if (ev.type != ENDPOINT_SEND)
            continue;
        m = malloc(sizeof(*m) + ev.len);
        if (!m)
            return -ENOMEM;
        m->next = NULL;
        m->len = ev.len;
        memcpy(m->data, ev.data, ev.len);
        *o->last = m;
        o->last = &m->next;
        iwarp_release(&o->ep.base, ev.data + ev.len);
    }
    if (iwarp_state_now(&o->ep) >= IWARP_TERMINATING)
        o->in_ended = true;
    code = iwarp_error(&o->ep);
    if (iwarp_state_now(&o->ep) == IWARP_TERMINATING && code.layer == TERM_LAYER_LLP && code.code == TERM_MPA_CRC)
        show_bad_crc(o);
    return 0;
}

static int pull(struct ours *o, bool *moved)
{
    while (!o->in_ended) {
        uint8_t *space;
        size_t room = iwarp_in_space(&o->ep, &space);
        ssize_t n = recv(o->fd, space, room, 0);
        int err;

        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0)
            return lost(o, errno);
        *moved = true;
        if (n == 0) {
            o->in_ended = true;
            return 0;
        }
        iwarp_in_fed(&o->ep, (size_t)n);
        err = take_events(o);
        if (err)
            return err;
        if (iwarp_ctrl_pending(&o->ep))
            return 0; /* answers first */
    }
    return 0;
}

/*
 * siw as the responder overlooks octets that arrive after its Reply is sent and before its accept is through
 * (siw_accept in siw_cm.c); whatever arrives later makes it look. So the initiator sends a Write of no octets while it
 * has heard nothing.
 */
static int wait_or_nudge(struct ours *o, short events)
{
    bool may = o->ep.cfg.initiator && o->ep.stats.rx_fpdus == 0 && o->nudges < NUDGES && events == POLLIN;
    int n = ours_wait_until(o, events, may ? NUDGE_MS : -1);
    struct iov_iter nothing = iov_iter_init(NULL, 0);

    if (n != 0)
        return n < 0 ? n : 0;
    fprintf(stderr, "ours: nothing heard, a Write of no octets\n");
    o->nudges++;
    n = iwarp_post_write(&o->ep.base, 0, 0, &nothing, 0);
    return n == -EPIPE ? 0 : n;
}

/* Sends and receives what can be; waits until something could be if wait. -EPIPE: the connection has ended. */
static int progress(struct peer *p, bool wait)
{
    struct ours *o = ours(p);

    for (;;) {
        bool moved = false, full;
        int err = push(o, &moved, &full);

        if (!err)
            err = pull(o, &moved);
        if (err)
            return peer_fail(p, -err, "socket");
        if (iwarp_ctrl_pending(&o->ep) && !full)
            continue;
        if (moved || !wait)
            return 0;
        if (o->in_ended)
            return peer_fail(p, EPIPE, "the connection has ended");
        err = wait_or_nudge(o, (short)(POLLIN | (full ? POLLOUT : 0)));
        if (err)
            return peer_fail(p, -err, "waiting");
    }
}

/* Until all that was posted is in the kernel's hands. */
static int drain(struct peer *p)
{
    struct ours *o = ours(p);
    const struct iovec *iov;
    size_t len;
    int err;

    while (iwarp_out(&o->ep, &iov, &len) > 0) {
        err = progress(p, true);
        if (err)
            return err;
    }
    return 0;
}

/* ---- what is wrong on purpose ---- */

/* Changes a frame that is ready to go, and mends its CRC. */
static void change_frame(struct ours *o, uint8_t *ulpdu, size_t len)
{
    switch (o->fault) {
    case PEER_FAULT_DDP_VERSION:
        ulpdu[0] ^= 0x03;
        break;
    case PEER_FAULT_RDMAP_VERSION:
        ulpdu[1] ^= 0xc0;
        break;
    case PEER_FAULT_OPCODE:
        ulpdu[1] |= 0x0f;
        break;
    case PEER_FAULT_QN:
        put_be32(ulpdu + 6, 7);
        break;
    case PEER_FAULT_MSN:
        put_be32(ulpdu + 10, get_be32(ulpdu + 10) + 1000);
        break;
    case PEER_FAULT_NONE:
    case PEER_FAULT_CRC:
    case PEER_FAULT_HALF:
    case PEER_FAULT_RESET:
        break;
    }
    (void)mpa_fpdu_end(&o->ep.cfg.tx, ulpdu + len, len,
                       crc32c_update(mpa_fpdu_begin(ulpdu - MPA_HDR_LEN, len), ulpdu, len));
    if (o->fault == PEER_FAULT_CRC)
        ulpdu[len + mpa_pad_len(len)] ^= 0x01;
}

/* One message is posted and nothing of it sent: sends it changed. */
static int send_changed(struct peer *p)
{
    struct ours *o = ours(p);
    const struct iovec *iov;
    size_t len, n = iwarp_out(&o->ep, &iov, &len);
    struct iov_iter it = iov_iter_init(iov, n);
    int err;

    if (len > sizeof(o->flat) || iov_iter_gather(&it, o->flat, len) != len)
        return peer_fail(p, EMSGSIZE, "a message of %zu octets to be changed", len);
    for (size_t at = 0; at < len;) {
        size_t ulpdu_len = get_be16(o->flat + at);

        change_frame(o, o->flat + at + MPA_HDR_LEN, ulpdu_len);
        at += mpa_fpdu_len(ulpdu_len);
    }
    if (o->fault == PEER_FAULT_RESET &&
        setsockopt(o->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger)) < 0)
        return peer_fail(p, errno, "SO_LINGER");
    err = ours_write_all(o, o->flat, o->fault == PEER_FAULT_HALF || o->fault == PEER_FAULT_RESET ? len / 2 : len);
    iwarp_out_sent(&o->ep, len);
    if (o->fault == PEER_FAULT_RESET) {
        close(o->fd);
        o->fd = -1;
    }
    o->fault = PEER_FAULT_NONE;
    return err ? peer_fail(p, -err, "send") : 0;
}

static int ours_fault(struct peer *p, enum peer_fault fault)
{
    ours(p)->fault = fault;
    return 0;
}

/* ---- operations ---- */

static int ours_open(struct peer *p, const struct peer_cfg *cfg)
{
    struct ours *o = calloc(1, sizeof(*o));
    socklen_t size = sizeof(int);
    int err, mss;

    p->impl = o;
    if (!o)
        return peer_fail(p, ENOMEM, "memory");
    o->fd = -1;
    o->last = &o->first;
    err = ours_open_socket(p, cfg);
    if (!err)
        err = ours_run_startup(p, cfg);
    if (err || p->met.refused)
        return err;
    if (getsockopt(o->fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &size) < 0)
        return peer_fail(p, errno, "TCP_MAXSEG");
    struct iwarp_cfg ic = {
        .initiator = !cfg->responder,
        .tx = { .crc = p->met.crc, .markers = p->met.markers_tx },
        .rx = { .crc = p->met.crc, .markers = p->met.markers_rx },
        .rtr = p->met.rtr,
        .ird = p->met.ird == MPA_IRD_ORD_NONE ? cfg->ird : p->met.ird,
        .ord = p->met.ord == MPA_IRD_ORD_NONE ? cfg->ord : p->met.ord,
        .mulpdu = mpa_mulpdu((size_t)mss, p->met.markers_tx),
        .send_max = cfg->message_max,
        .in_buf = o->in,
        .in_cap = sizeof(o->in),
        .out_buf = o->out,
        .out_cap = sizeof(o->out),
        .random32 = random32,
    };
    err = iwarp_init(&o->ep, &ic);
    if (err)
        return peer_fail(p, -err, "the endpoint's settings");
    o->ready = true;
    return drain(p); /* the RTR */
}

static int ours_reg(struct peer *p, struct peer_region *r)
{
    struct ddp_region region = {
        .access = (uint8_t)(DDP_ACCESS_LOCAL_SINK | (r->access & PEER_REMOTE_WRITE ? DDP_ACCESS_REMOTE_WRITE : 0u) |
                            (r->access & PEER_REMOTE_READ ? DDP_ACCESS_REMOTE_READ : 0u)),
        .to = 0x7fff12345678, /* anything: not the address, and above 32 bits */
        .len = r->len,
        .base = r->mem,
    };
    int err = ddp_stags_add(&ours(p)->ep.stags, &region, random32, NULL);

    if (err)
        return peer_fail(p, -err, "region");
    r->key = region.stag;
    r->addr = region.to;
    return 0;
}

static bool ours_unreg(struct peer *p, struct peer_region *r)
{
    return ddp_stags_revoke(&ours(p)->ep.stags, r->key) == 0;
}

/* err of a post: waits where that helps. 0: post again. */
static int again(struct peer *p, int err)
{
    if (err == -EAGAIN)
        return progress(p, true);
    return peer_fail(p, -err, err == -EPIPE ? "the connection has ended" : "post");
}

static int ours_send(struct peer *p, const void *data, size_t len, uint32_t invalidate, bool solicited)
{
    struct ours *o = ours(p);
    struct iovec iov = { (void *)(uintptr_t)data, len };
    struct iov_iter it = iov_iter_init(&iov, 1);
    unsigned flags = (invalidate ? IWARP_INVALIDATE : 0) | (solicited ? IWARP_SOLICITED : 0);
    int err = drain(p);

    while (!err && (err = iwarp_post_send_with(&o->ep, flags, invalidate, NULL, 0, &it, len)) < 0)
        err = again(p, err);
    if (err)
        return err;
    return o->fault ? send_changed(p) : drain(p);
}

static int ours_recv(struct peer *p, const uint8_t **data, size_t *len)
{
    struct ours *o = ours(p);
    int err;

    while (!o->first) {
        err = progress(p, true);
        if (err)
            return err;
    }
    free(o->current);
    o->current = o->first;
    o->first = o->current->next;
    if (!o->first)
        o->last = &o->first;
    *data = o->current->data;
    *len = o->current->len;
    return 0;
}

static int ours_write(struct peer *p, struct peer_region *r, size_t off, size_t len, struct peer_remote to)
{
    struct ours *o = ours(p);
    struct iovec iov = { r->mem + off, len };
    struct iov_iter it = iov_iter_init(&iov, 1);
    size_t most = iwarp_write_max(&o->ep.base);

    do {
        size_t n = len < most ? len : most;
        int err = drain(p);

        while (!err && (err = iwarp_post_write(&o->ep.base, to.key, to.addr, &it, n)) < 0)
            err = again(p, err);
        if (!err)
            err = o->fault ? send_changed(p) : drain(p);
        if (err)
            return err;
        to.addr += n;
        len -= n;
    } while (len > 0);
    return 0;
}

static int ours_read(struct peer *p, struct peer_region *r, size_t off, size_t len, struct peer_remote from)
{
    struct ours *o = ours(p);
    struct rdmap_read rd = {
        .sink_stag = r->key,
        .sink_to = r->addr + off,
        .len = (uint32_t)len,
        .src_stag = from.key,
        .src_to = from.addr,
    };
    int err = 0;

    while (!err && (err = iwarp_post_read(&o->ep, &rd)) < 0)
        err = again(p, err);
    if (err)
        return err;
    o->reads_posted++;
    return drain(p);
}

static int ours_flush(struct peer *p)
{
    struct ours *o = ours(p);
    int err = drain(p);

    while (!err && iwarp_reads_done(&o->ep) < o->reads_posted)
        err = progress(p, true);
    return err;
}

/* Reads and drops until the other end is gone. */
static void drop_rest(struct ours *o)
{
    uint8_t buf[65536];
    ssize_t n;

    do {
        n = recv(o->fd, buf, sizeof(buf), 0);
        if (n < 0 && errno == EAGAIN)
            n = ours_wait_for(o, POLLIN) == 0;
    } while (n > 0);
}

static int ours_wait_end(struct peer *p, struct peer_end *end)
{
    struct ours *o = ours(p);
    enum iwarp_state state;

    while (!o->in_ended && progress(p, true) == 0)
        ;
    (void)drain(p); /* a Terminate */
    state = iwarp_state_now(&o->ep);
    if (state == IWARP_FULL && !o->in_ended)
        return -EIO; /* p->why says */
    *end = (struct peer_end){
        .orderly = state < IWARP_TERMINATING && !o->error && iwarp_in_eof(&o->ep),
        .terminated = state == IWARP_TERMINATED,
        .found = state == IWARP_TERMINATING,
    };
    if (state >= IWARP_TERMINATING)
        end->code = iwarp_error(&o->ep);
    return 0;
}

static void ours_close(struct peer *p)
{
    struct ours *o = ours(p);

    if (!o)
        return;
    if (o->fd >= 0) {
        if (o->ready)
            (void)drain(p);
        /* RFC 5041 6.2.1: a graceful teardown; what is still under way to us is not wanted. */
        if (shutdown(o->fd, SHUT_WR) == 0)
            drop_rest(o);
        close(o->fd);
    }
    for (struct message *m = o->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    free(o->current);
    free(o);
    p->impl = NULL;
}

const struct peer_ops peer_ours = {
    .name = "ours",
    .open = ours_open,
    .reg = ours_reg,
    .unreg = ours_unreg,
    .send = ours_send,
    .recv = ours_recv,
    .write = ours_write,
    .read = ours_read,
    .flush = ours_flush,
    .fault = ours_fault,
    .wait_end = ours_wait_end,
    .close = ours_close,
};
