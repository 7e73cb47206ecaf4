/*
 * The byte stream, receiving: Sends and Writes become an ordered queue of slices, which the
 * program's reads copy from.
 *
 * Receive path: transport -> mpa -> ddp -> rdmap -> [stream] -> recv().
 *
 * LLP flow control: Writes to our (deferred) ring arrive as events, in order and checked, and
 * become slices at once; the notify only confirms the count. Nothing more is read while the slices wait,
 * so TCP's window paces the sender. Credits: Writes land in the ring unseen; the notify makes
 * slices of ring memory.
 */
#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/fault.h"
#include "core/stream/stream.h"
#include "core/stream/stream_impl.h"

static int broken(struct stream *st)
{
    st->rx.end = STREAM_BROKEN;
    return -EPROTO;
}

static struct stream_slice *slice_last(struct stream *st)
{
    return &st->rx.slice[(st->rx.first + st->rx.n - 1) % STREAM_SLICES];
}

static void slice_add(struct stream *st, const uint8_t *p, size_t len, const uint8_t *upto, uint32_t bufs,
                      bool in_place)
{
    st->rx.n++;
    struct stream_slice *s = slice_last(st);
    s->p = p;
    s->len = (uint32_t)len;
    s->upto = upto;
    s->bufs = bufs;
    s->in_place = in_place;
    st->rx.avail += len;
}

static struct stream_slice *slice_at(struct stream *st, uint32_t i)
{
    return &st->rx.slice[(st->rx.first + i) % STREAM_SLICES];
}

/*
 * A program may not read, or wait for a number of octets, while a peer writes them one by one: neighbours become one
 * slice, over the headers that lay between them.
 */
static void join_slices(struct stream *st)
{
    uint32_t n = 1;
    for (uint32_t i = 1; i < st->rx.n; i++) {
        struct stream_slice *to = slice_at(st, n - 1), *s = slice_at(st, i);
        if (!to->in_place || !s->in_place) {
            *slice_at(st, n++) = *s;
            continue;
        }
        memmove((uint8_t *)(uintptr_t)(to->p + to->len), s->p, s->len);
        to->len += s->len;
        to->upto = s->upto;
        to->bufs += s->bufs;
    }
    st->rx.n = n;
}

bool stream_pack(struct stream *st)
{
    const struct endpoint_ops *ops = endpoint_ops(st->cfg.ep);
    struct stream_slice *s = slice_at(st, 0);

    if (st->rx.n == 0 || ops->pack == NULL)
        return false;
    join_slices(st);
    if (st->rx.n != 1 || !s->in_place || !ops->pack(st->cfg.ep, &s->p, s->len))
        return false;
    s->upto = s->p + s->len;
    return true;
}

/* An event without octets for the program: it is given back behind the events that wait before it. */
static void release_behind(struct stream *st, const struct endpoint_event *ev)
{
    const uint8_t *upto = ev->data + ev->len;
    if (endpoint_ops(st->cfg.ep)->each_alone)
        return; /* (it was returned at once: take_send) */
    for (uint32_t i = st->rx.n; i-- > 0;) {
        struct stream_slice *s = &st->rx.slice[(st->rx.first + i) % STREAM_SLICES];
        if (s->upto != NULL) {
            s->upto = upto;
            if (!ev->in_place)
                s->in_place = false; /* what follows lies behind this event, and not behind the slice */
            return;
        }
    }
    endpoint_ops(st->cfg.ep)->release(st->cfg.ep, upto);
}

static int take_write(struct stream *st, const struct endpoint_event *ev)
{
    /* Only the next octets of the ring make a stream. */
    if (!st->llp || st->rx.end != STREAM_OPEN || ev->to != st->rx.ring_to % st->cfg.local.ring_len)
        return broken(st);
    st->rx.ring_to += ev->len;
    st->rx.off += ev->len;
    if (ev->placed) {
        /* The owner asks for this only while nothing else waits to be read. */
        SW_CHECK(st->rx.n == 0, "%u slices before octets that were placed", st->rx.n);
        st->rx.placed += ev->len;
        st->rx.total += ev->len;
        return 0;
    }
    slice_add(st, ev->data, ev->len, ev->data + ev->len, 0, ev->in_place);
    return 0;
}

/* Credits: `len` octets of the ring became part of the stream. */
static int take_ring(struct stream *st, uint32_t len)
{
    uint32_t ring_len = st->cfg.local.ring_len;
    if (len > ring_len - (st->rx.ring_to - st->rx.ring_used))
        return broken(st);
    while (len > 0) {
        uint32_t at = (uint32_t)(st->rx.ring_to % ring_len);
        uint32_t n = len < ring_len - at ? len : ring_len - at;
        struct stream_slice *last = st->rx.n > 0 ? slice_last(st) : NULL;
        if (last != NULL && last->upto == NULL && last->p + last->len == st->cfg.ring + at) {
            last->len += n;
            st->rx.avail += n;
        } else {
            slice_add(st, st->cfg.ring + at, n, NULL, 0, false);
        }
        st->rx.ring_to += n;
        st->rx.off += n;
        len -= n;
    }
    return 0;
}

/*
 * Takes what the header says about the other direction. A buffer without octets for the program counts as returned at
 * once, and before the send side can use what the peer says: so whatever it posts then reports it.
 */
static void take_credit(struct stream *st, const struct stream_hdr *h, size_t payload)
{
    if (h->type == STREAM_CREDIT) {
        if (!(h->flags & STREAM_HDR_ANSWER))
            atomic_fetch_add(&st->back_credits, 1);
    } else if (payload == 0) {
        st->rx.bufs_back++;
        atomic_store(&st->back_bufs, st->rx.bufs_back);
    }
    if (h->type != STREAM_RESET)
        atomic_store(&st->peer_credits, h->aux);
    atomic_store(&st->peer_bufs, h->bufs);
    atomic_store(&st->peer_ring, h->ring);
}

/*
 * The last octet that came is urgent. As in Linux, the stream knows one at a time: from now on an older one is an
 * ordinary octet, unless everything before it was read; then it is gone.
 */
static void take_urgent(struct stream *st, uint8_t octet)
{
    if (stream_mark(st) == 0 && !st->rx.urgent_inline)
        stream_discard(st, 1);
    st->rx.urgent_at = st->rx.total + st->rx.avail - 1;
    st->rx.urgent_octet = octet;
    st->rx.urgent = st->rx.urgent_taken == st->rx.urgent_at + 1 ? STREAM_URGENT_READ : STREAM_URGENT_VALID;
}

static int take_send(struct stream *st, const struct endpoint_event *ev)
{
    struct stream_hdr h;
    if (stream_hdr_decode(ev->data, ev->len, &h) < 0)
        return broken(st);
    size_t payload = ev->len - STREAM_HDR_LEN;
    const uint8_t *upto = ev->data + ev->len;
    if ((h.type != STREAM_DATA && payload > 0) || payload > st->cfg.local.eager_max)
        return broken(st);

    uint32_t more = h.off - (uint32_t)st->rx.off; /* octets since the last message */
    /* Nothing may follow the end except what the other direction needs, or a reset. */
    if (st->rx.end != STREAM_OPEN && (more > 0 || !(h.type == STREAM_RESET || (h.type == STREAM_CREDIT && !st->llp))))
        return broken(st);
    /*
     * Where buffers are the device's, one that is reported free has to exist: also a CREDIT's, while the program does
     * not read.
     */
    if (payload == 0 && endpoint_ops(st->cfg.ep)->each_alone)
        endpoint_ops(st->cfg.ep)->release(st->cfg.ep, upto);
    /*
     * The peer knows how many buffers there are: RFC 5042 section 6.4.1. RFC 5041 7.1/1,2: a peer that sends without
     * one is at fault.
     */
    if (!st->llp && h.type != STREAM_CREDIT && ++st->rx.bufs_used - st->rx.bufs_back > st->cfg.local.bufs)
        return broken(st);
    if (!st->llp)
        take_credit(st, &h, payload);
    if (st->llp ? more != payload : more < payload || take_ring(st, more - (uint32_t)payload) < 0)
        return broken(st);

    if (payload > 0) {
        slice_add(st, ev->data + STREAM_HDR_LEN, payload, upto, 1, ev->in_place);
        st->rx.off += payload;
        if (SW_UNLIKELY(h.flags & STREAM_HDR_URGENT) && st->llp)
            take_urgent(st, ev->data[ev->len - 1]);
    } else {
        release_behind(st, ev);
    }
    if (h.type == STREAM_FIN)
        st->rx.end = STREAM_EOF;
    else if (h.type == STREAM_RESET)
        st->rx.end = STREAM_RESET_BY_PEER;
    return 0;
}

/* The notify in 8 octets: the Writes before it reach exactly to this count. */
static int take_immediate(struct stream *st, const struct endpoint_event *ev)
{
    if (!st->immediate || st->rx.end != STREAM_OPEN || ev->len != sizeof(uint64_t) || get_be64(ev->data) != st->rx.off)
        return broken(st);
    release_behind(st, ev);
    return 0;
}

static int take(struct stream *st, const struct endpoint_event *ev)
{
    switch (ev->type) {
    case ENDPOINT_WRITE:
        return take_write(st, ev);
    case ENDPOINT_IMMEDIATE:
        return take_immediate(st, ev);
    default:
        return take_send(st, ev);
    }
}

int stream_poll(struct stream *st)
{
    bool changed = false;
    if (st->rx.end == STREAM_BROKEN)
        return -EPROTO;
    if (stream_paused(st))
        join_slices(st);
    /* One message makes at most three slices: two of the ring, one of its own octets. */
    while (!stream_paused(st) && st->rx.end != STREAM_RESET_BY_PEER) {
        struct endpoint_event ev;
        int r = endpoint_ops(st->cfg.ep)->poll(st->cfg.ep, &ev);
        if (r == 0)
            break;
        if (r < 0)
            return broken(st);
        if (ev.type == ENDPOINT_TERMINATED) {
            st->rx.end = STREAM_RESET_BY_PEER;
            return 1;
        }
        r = take(st, &ev);
        if (r < 0)
            return r;
        changed = true;
        if (stream_paused(st))
            join_slices(st);
    }
    return changed;
}

/* The program has read len octets of the first slice. */
static void slice_used(struct stream *st, size_t len)
{
    struct stream_slice *s = &st->rx.slice[st->rx.first];
    bool ring = s->upto == NULL;
    s->p += len;
    s->len -= (uint32_t)len;
    st->rx.avail -= len;
    st->rx.total += len;
    if (SW_UNLIKELY(st->rx.urgent != STREAM_URGENT_NONE) && st->rx.total > st->rx.urgent_at)
        st->rx.urgent = STREAM_URGENT_NONE;
    if (ring) {
        st->rx.ring_used += len;
        atomic_store(&st->back_ring, (uint32_t)st->rx.ring_used);
    }
    if (s->len > 0)
        return;
    if (!ring)
        endpoint_ops(st->cfg.ep)->release(st->cfg.ep, s->upto);
    if (s->bufs > 0) {
        st->rx.bufs_back += s->bufs;
        atomic_store(&st->back_bufs, st->rx.bufs_back);
    }
    st->rx.n--;
    st->rx.first = st->rx.n > 0 ? (st->rx.first + 1) % STREAM_SLICES : STREAM_SLICE_FIRST;
}

size_t stream_read(struct stream *st, struct iov_iter *dst, size_t len)
{
    size_t done = 0;
    while (done < len && st->rx.n > 0) {
        struct stream_slice *s = &st->rx.slice[st->rx.first];
        size_t n = s->len < len - done ? s->len : len - done;
        n = iov_iter_scatter(dst, s->p, n);
        if (n == 0)
            break;
        slice_used(st, n);
        done += n;
    }
    return done;
}

size_t stream_peek(struct stream *st, struct iov_iter *dst, size_t len, size_t skip)
{
    size_t done = 0;
    for (uint32_t i = 0; i < st->rx.n && done < len; i++) {
        struct stream_slice *s = &st->rx.slice[(st->rx.first + i) % STREAM_SLICES];
        if (skip >= s->len) {
            skip -= s->len;
            continue;
        }
        size_t n = s->len - skip < len - done ? s->len - skip : len - done;
        size_t got = iov_iter_scatter(dst, s->p + skip, n);
        done += got;
        skip = 0;
        if (got < n)
            break;
    }
    return done;
}

size_t stream_discard(struct stream *st, size_t len)
{
    size_t done = 0;
    while (done < len && st->rx.n > 0) {
        struct stream_slice *s = &st->rx.slice[st->rx.first];
        size_t n = s->len < len - done ? s->len : len - done;
        slice_used(st, n);
        done += n;
    }
    return done;
}

void stream_eof(struct stream *st, bool clean)
{
    if (st->rx.end == STREAM_OPEN)
        st->rx.end = clean ? STREAM_EOF : STREAM_RESET_BY_PEER;
}

bool stream_wants_credit(const struct stream *st)
{
    if (st->llp)
        return false;
    return stream_answer_due(st) || (stream_credit_due(st) && !stream_credit_unanswered(st));
}
