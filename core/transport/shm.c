/*
 * An endpoint in memory that two processes share; see shm.h.
 *
 *   post_send, post_write -> this side's ring -> flush: its tail -> [the other side] poll -> stream -> release -> tell: its head
 */
#include "core/transport/shm.h"

#include <errno.h>
#include <string.h>

#include "core/base/fault.h"

enum shm_kind { SHM_SEND = 1, SHM_WRITE, SHM_SKIP };

#define ALIGN 8u
#define SEND_HDR 8u
#define WRITE_HDR 16u

/* A record's header. A Write's has all of it. */
struct record {
    uint32_t len, kind, stag, to;
};
_Static_assert(sizeof(struct record) == WRITE_HDR, "as it is in the ring");

static struct shm_ep *from(const struct endpoint *e)
{
    return (struct shm_ep *)(uintptr_t)e;
}

static uint8_t *ring_mine(const struct shm_ep *ep)
{
    return (uint8_t *)ep->mine + SHM_HEAD_LEN;
}

static const uint8_t *ring_theirs(const struct shm_ep *ep)
{
    return (const uint8_t *)ep->theirs + SHM_HEAD_LEN;
}

static uint64_t aligned(uint64_t len)
{
    return (len + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

static void advance(const struct shm_ep *ep, struct shm_place *p, uint64_t len)
{
    p->at += len;
    p->off += (uint32_t)len;
    if (p->off >= ep->ring_len)
        p->off -= ep->ring_len;
}

int shm_init(struct shm_ep *ep, const struct shm_cfg *cfg)
{
    if (cfg->ring_len < SHM_RING_MIN || cfg->ring_len > SHM_RING_MAX || cfg->ring_len % 64 != 0 || cfg->window_len == 0)
        return -EINVAL;
    memset(ep, 0, sizeof(*ep));
    endpoint_init(&ep->base, &shm_endpoint_ops);
    ep->ring_len = cfg->ring_len;
    ep->stag = cfg->stag;
    ep->window_len = cfg->window_len;
    ep->mine = cfg->mine;
    ep->theirs = cfg->theirs;
    return 0;
}

/* ---- naps ---- */

/* Behind what this side has stored: does the other side sleep, by a number that was not rung for? */
static bool sleeps(const _Atomic uint32_t *nap, uint32_t *rung)
{
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t now = atomic_load_explicit(nap, memory_order_relaxed);
    if (SW_LIKELY((now & 1) == 0) || now == *rung)
        return false;
    *rung = now;
    return true;
}

static void nap(_Atomic uint32_t *shown, uint32_t *now)
{
    *now = (*now | 1) + 2;
    atomic_store_explicit(shown, *now, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

static void wake(_Atomic uint32_t *shown, uint32_t *now)
{
    if ((*now & 1) == 0)
        return;
    *now += 1;
    atomic_store_explicit(shown, *now, memory_order_relaxed);
}

/* ---- sending ---- */

static size_t record_payload_max(const struct endpoint *e, size_t hdr)
{
    return SHM_RECORD_MAX(from(e)->ring_len) - hdr;
}

static size_t shm_write_max(const struct endpoint *e)
{
    return record_payload_max(e, WRITE_HDR);
}

static size_t shm_send_max(const struct endpoint *e)
{
    return record_payload_max(e, SEND_HDR);
}

/* Octets of this side's ring that are free, with `want` of them if the other side has used enough up. */
static uint64_t room(struct shm_ep *ep, uint64_t want)
{
    uint64_t in_use = ep->tx.tail.at - ep->tx.head;
    if (SW_LIKELY(ep->ring_len - in_use >= want))
        return ep->ring_len - in_use;
    uint64_t head = atomic_load_explicit(&ep->theirs->head, memory_order_acquire);
    if (head - ep->tx.head > in_use) { /* more than there was, or less than before */
        ep->tx.dead = true;
        return 0;
    }
    ep->tx.head = head;
    return ep->ring_len - (ep->tx.tail.at - head);
}

/* The place for a record of len octets, behind a SKIP where it has to be. NULL: no room. */
static uint8_t *place(struct shm_ep *ep, uint64_t len)
{
    uint32_t to_end = ep->ring_len - ep->tx.tail.off;
    uint64_t need = len <= to_end ? len : to_end + len;
    if (room(ep, need) < need)
        return NULL;
    if (SW_UNLIKELY(len > to_end)) {
        struct record skip = { .len = to_end - SEND_HDR, .kind = SHM_SKIP };
        memcpy(ring_mine(ep) + ep->tx.tail.off, &skip, SEND_HDR);
        advance(ep, &ep->tx.tail, to_end);
    }
    return ring_mine(ep) + ep->tx.tail.off;
}

/* Posts a record: its header, hdr_len octets before the payload, and the next len octets of src. */
static int post(struct shm_ep *ep, const struct record *r, size_t record_hdr, const uint8_t *hdr, size_t hdr_len,
                struct iov_iter *src, size_t len)
{
    if (SW_UNLIKELY(ep->tx.dead))
        return -EPIPE;
    size_t max = SHM_RECORD_MAX(ep->ring_len) - record_hdr;
    if (SW_UNLIKELY(hdr_len > max || len > max - hdr_len))
        return -EMSGSIZE;
    struct iov_iter at = *src;
    uint64_t all = aligned(record_hdr + hdr_len + len);
    uint8_t *p = place(ep, all);
    if (p == NULL)
        return ep->tx.dead ? -EPIPE : -EAGAIN;
    memcpy(p, r, record_hdr);
    if (hdr_len > 0)
        memcpy(p + record_hdr, hdr, hdr_len);
    if (iov_iter_gather(&at, p + record_hdr + hdr_len, len) != len)
        return -EINVAL;
    *src = at;
    advance(ep, &ep->tx.tail, all);
    ep->tx.n.octets += hdr_len + len;
    return 0;
}

static int shm_post_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    struct shm_ep *ep = from(e);
    if (to > UINT32_MAX)
        return -EINVAL;
    const struct record r = { .len = (uint32_t)len, .kind = SHM_WRITE, .stag = stag, .to = (uint32_t)to };
    int err = post(ep, &r, WRITE_HDR, NULL, 0, src, len);
    ep->tx.n.writes += err == 0;
    return err;
}

static int shm_post_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    struct shm_ep *ep = from(e);
    const struct record r = { .len = (uint32_t)(hdr_len + len), .kind = SHM_SEND };
    int err = post(ep, &r, SEND_HDR, hdr, hdr_len, src, len);
    ep->tx.n.sends += err == 0;
    return err;
}

static void show_tail(struct shm_ep *ep)
{
    atomic_store_explicit(&ep->mine->tail, ep->tx.tail.at, memory_order_release);
}

static bool reader_sleeps(struct shm_ep *ep)
{
    bool ring = sleeps(&ep->theirs->nap_rx, &ep->tx.rung);
    ep->tx.n.rings += ring;
    return ring;
}

bool shm_flush(struct shm_ep *ep)
{
    show_tail(ep);
    return reader_sleeps(ep);
}

bool shm_has_room(struct shm_ep *ep)
{
    /* A record, and what a SKIP before it may take. */
    uint64_t want = 2 * (uint64_t)SHM_RECORD_MAX(ep->ring_len);
    return room(ep, want) >= want || ep->tx.dead; /* (then a post fails at once) */
}

bool shm_nap_tx(struct shm_ep *ep)
{
    nap(&ep->mine->nap_tx, &ep->tx.nap);
    if (!shm_has_room(ep))
        return true;
    shm_wake_tx(ep);
    return false;
}

void shm_wake_tx(struct shm_ep *ep)
{
    wake(&ep->mine->nap_tx, &ep->tx.nap);
}

bool shm_end(struct shm_ep *ep, enum shm_end end)
{
    show_tail(ep);
    atomic_store_explicit(&ep->mine->end, (uint32_t)end, memory_order_release);
    ep->tx.dead = true;
    return reader_sleeps(ep);
}

uint64_t shm_unused(struct shm_ep *ep)
{
    (void)room(ep, UINT64_MAX);
    return ep->tx.tail.at - ep->tx.head;
}

/* ---- receiving ---- */

static int broken(struct shm_ep *ep)
{
    ep->rx.broken = true;
    return -EPROTO;
}

/* Loads the other side's tail. 1: there is something behind what was polled. */
static int look(struct shm_ep *ep)
{
    if (ep->rx.next.at != ep->rx.tail)
        return 1;
    uint64_t tail = atomic_load_explicit(&ep->theirs->tail, memory_order_acquire);
    if (tail == ep->rx.tail)
        return 0;
    if (tail - ep->rx.head.at > ep->ring_len || tail - ep->rx.tail > ep->ring_len || tail % ALIGN != 0)
        return broken(ep);
    ep->rx.tail = tail;
    return 1;
}

/* Copies the header of the record at rx.next. Its length in the ring; 0: it is none. */
static uint64_t record_at(const struct shm_ep *ep, struct record *r, size_t *hdr)
{
    const uint8_t *p = ring_theirs(ep) + ep->rx.next.off;
    uint64_t left = ep->rx.tail - ep->rx.next.at, to_end = ep->ring_len - ep->rx.next.off;
    uint64_t most = left < to_end ? left : to_end;
    memcpy(r, p, SEND_HDR);
    atomic_signal_fence(memory_order_seq_cst); /* this copy is what is checked and used */
    *hdr = r->kind == SHM_WRITE ? WRITE_HDR : SEND_HDR;
    uint64_t all = aligned(*hdr + (uint64_t)r->len);
    if (all > most)
        return 0;
    if (r->kind == SHM_WRITE) {
        memcpy(&r->stag, p + SEND_HDR, WRITE_HDR - SEND_HDR);
        atomic_signal_fence(memory_order_seq_cst);
    }
    return all;
}

static void skipped(struct shm_ep *ep, uint64_t all)
{
    bool nothing_waits = ep->rx.head.at == ep->rx.next.at;
    advance(ep, &ep->rx.next, all);
    if (nothing_waits)
        ep->rx.head = ep->rx.next;
}

static bool is_good(const struct shm_ep *ep, const struct record *r, size_t hdr)
{
    if (r->len > SHM_RECORD_MAX(ep->ring_len) - hdr)
        return false;
    if (r->kind == SHM_SEND)
        return true;
    /* RFC 5040 5.2, RFC 5041 7.1: a Write is for a buffer that this side has named, and lies within. */
    return r->kind == SHM_WRITE && r->len > 0 && r->stag == ep->stag && r->to <= ep->window_len &&
           r->len <= ep->window_len - r->to;
}

static int shm_poll(struct endpoint *e, struct endpoint_event *ev)
{
    struct shm_ep *ep = from(e);
    if (SW_UNLIKELY(ep->rx.broken))
        return -EPROTO;
    for (int r; (r = look(ep)) != 0;) {
        struct record rec;
        size_t hdr;
        if (r < 0)
            return r;
        uint64_t all = record_at(ep, &rec, &hdr);
        if (all == 0)
            return broken(ep);
        if (SW_UNLIKELY(rec.kind == SHM_SKIP)) {
            /* Shorter than the record that it makes room for: so no peer has SKIPs alone polled, round and round. */
            if (all != ep->ring_len - ep->rx.next.off || all >= SHM_RECORD_MAX(ep->ring_len))
                return broken(ep);
            skipped(ep, all);
            continue;
        }
        if (!is_good(ep, &rec, hdr))
            return broken(ep);
        *ev = (struct endpoint_event){
            .type = rec.kind == SHM_SEND ? ENDPOINT_SEND : ENDPOINT_WRITE,
            .data = ring_theirs(ep) + ep->rx.next.off + hdr,
            .len = rec.len,
            .to = rec.kind == SHM_WRITE ? rec.to : 0,
            .in_place = ep->rx.next.off != 0, /* the record before the ring's beginning lies at its end */
        };
        ep->rx.n.sends += rec.kind == SHM_SEND;
        ep->rx.n.writes += rec.kind == SHM_WRITE;
        ep->rx.n.octets += rec.len;
        advance(ep, &ep->rx.next, all);
        return 1;
    }
    return 0;
}

static void show_head(struct shm_ep *ep)
{
    ep->rx.told = ep->rx.head.at;
    atomic_store_explicit(&ep->mine->head, ep->rx.told, memory_order_release);
}

static void shm_release(struct endpoint *e, const uint8_t *upto)
{
    struct shm_ep *ep = from(e);
    uint64_t off = aligned((uint64_t)(upto - ring_theirs(ep)));
    uint64_t len = off > ep->rx.head.off ? off - ep->rx.head.off : off + ep->ring_len - ep->rx.head.off;
    SW_CHECK(len <= ep->rx.next.at - ep->rx.head.at, "%llu octets released, %llu polled", (unsigned long long)len,
             (unsigned long long)(ep->rx.next.at - ep->rx.head.at));
    advance(ep, &ep->rx.head, len);
    /* A sender that looks need not wait until the reader's call is over. */
    if (ep->rx.head.at - ep->rx.told >= ep->ring_len / 8)
        show_head(ep);
}

bool shm_tell(struct shm_ep *ep)
{
    if (ep->rx.told != ep->rx.head.at)
        show_head(ep);
    /* Half of the ring is worth waking for, and more than what it waits for at most. */
    if (ep->rx.tail - ep->rx.head.at > ep->ring_len / 2)
        return false;
    bool ring = sleeps(&ep->theirs->nap_tx, &ep->rx.rung);
    ep->rx.n.rings += ring;
    return ring;
}

bool shm_nap_rx(struct shm_ep *ep)
{
    nap(&ep->mine->nap_rx, &ep->rx.nap);
    if (!shm_come(ep) && atomic_load_explicit(&ep->theirs->end, memory_order_acquire) == SHM_OPEN)
        return true;
    shm_wake_rx(ep);
    return false;
}

void shm_wake_rx(struct shm_ep *ep)
{
    wake(&ep->mine->nap_rx, &ep->rx.nap);
}

enum shm_end shm_peer_end(const struct shm_ep *ep)
{
    uint32_t end = atomic_load_explicit(&ep->theirs->end, memory_order_acquire);
    if (end == SHM_OPEN || shm_come(ep))
        return SHM_OPEN;
    return end == SHM_CLOSED ? SHM_CLOSED : SHM_RESET;
}

const struct endpoint_ops shm_endpoint_ops = {
    .name = "shm",
    .write_max = shm_write_max,
    .send_max = shm_send_max,
    .post_write = shm_post_write,
    .post_send = shm_post_send,
    .poll = shm_poll,
    .release = shm_release,
};
