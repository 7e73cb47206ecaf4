/*
 * The byte stream, sending: program octets become Sends and Writes.
 *
 *   write of <= eager_limit octets     Send[hdr, octets]
 *   more                               Write, Write, … (each one whole message) then Send[hdr] = notify
 *
 * Each Write fits one segment and is a message of its own, so a batch can be cut between any two without
 * leaving a message unfinished (RFC 5041 section 5: segments of a message are not interleaved with others).
 */
#include <errno.h>

#include "core/stream/stream.h"

static uint32_t peer_bufs_free(const struct stream *st)
{
    uint16_t used = (uint16_t)((uint16_t)st->tx.sends - (uint16_t)atomic_load(&st->peer_bufs));
    return used >= st->cfg.peer.bufs ? 0 : (uint32_t)(st->cfg.peer.bufs - used);
}

static uint32_t peer_ring_free(const struct stream *st)
{
    uint32_t used = (uint32_t)st->tx.ring_to - atomic_load(&st->peer_ring);
    return used >= st->cfg.peer.ring_len ? 0 : st->cfg.peer.ring_len - used;
}

static bool may_send(const struct stream *st, uint32_t keep)
{
    return st->llp || peer_bufs_free(st) > keep;
}

static void batch_add(struct stream *st, uint8_t type, size_t len)
{
    st->tx.batch[st->tx.batch_n].type = type;
    st->tx.batch[st->tx.batch_n].len = (uint32_t)len;
    st->tx.batch_n++;
}

/* One Send of type with the next len octets of src. */
static int post(struct stream *st, enum stream_type type, struct iov_iter *src, size_t len, uint32_t aux)
{
    if (st->tx.batch_n == STREAM_BATCH)
        return -EAGAIN;
    uint8_t buf[STREAM_HDR_LEN];
    struct stream_hdr h = {
        .type = (uint8_t)type,
        .bufs = (uint16_t)atomic_load(&st->back_bufs),
        .off = (uint32_t)(st->tx.off + len),
        .ring = atomic_load(&st->back_ring),
        .aux = aux,
    };
    stream_hdr_encode(&h, buf);
    int r = st->cfg.ep->ops->post_send(st->cfg.ep, buf, sizeof(buf), src, len);
    if (r < 0)
        return r;
    batch_add(st, (uint8_t)type, len);
    st->tx.off += len;
    st->tx.sends++;
    st->tx.notify_owed = false;
    st->tx.told_bufs = h.bufs;
    st->tx.told_ring = h.ring;
    return 0;
}

static int post_empty(struct stream *st, enum stream_type type)
{
    struct iov_iter none = iov_iter_init(NULL, 0);
    return post(st, type, &none, 0, 0);
}

/* How long the next Write is when left octets are to go: even parts, so that no runt follows big ones. */
static size_t write_len(const struct stream *st, size_t left)
{
    size_t max = st->cfg.ep->ops->write_max(st->cfg.ep);
    size_t parts = (left + max - 1) / max;
    size_t len = (left + parts - 1) / parts;
    uint32_t ring_len = st->cfg.peer.ring_len;
    size_t to_end = ring_len - (size_t)(st->tx.ring_to % ring_len);
    if (len > to_end)
        len = to_end;
    if (!st->llp && len > peer_ring_free(st))
        len = peer_ring_free(st);
    return len;
}

ssize_t stream_write(struct stream *st, struct iov_iter *src, size_t len)
{
    if (st->tx.fin)
        return -EPIPE;
    size_t done = 0;
    int r = 0;
    /* The last place in the batch is for the notify. */
    while (done < len && st->tx.batch_n < STREAM_BATCH - 1) {
        size_t left = len - done, n;
        if (left <= st->cfg.eager_limit) {
            if (!may_send(st, STREAM_BUFS_KEPT))
                break;
            n = left;
            r = post(st, STREAM_DATA, src, n, 0);
        } else {
            /* With credits the octets are useless to the peer until a Send can follow them. */
            if (!may_send(st, STREAM_BUFS_KEPT))
                break;
            n = write_len(st, left);
            if (n == 0)
                break;
            uint64_t to = st->tx.ring_to % st->cfg.peer.ring_len;
            r = st->cfg.ep->ops->post_write(st->cfg.ep, st->cfg.peer.ring_stag, to, src, n);
            if (r == 0) {
                batch_add(st, 0, n);
                st->tx.ring_to += n;
                st->tx.off += n;
                st->tx.notify_owed = true;
            }
        }
        if (r < 0)
            break;
        done += n;
    }
    if (done == 0 && r == -EPIPE)
        return r;
    if (st->tx.notify_owed)
        r = post_empty(st, STREAM_DATA); /* no room: stream_flushed does it */
    st->tx.total += done;
    return (ssize_t)done;
}

void stream_flushed(struct stream *st)
{
    st->tx.batch_n = 0;
    if (st->tx.notify_owed && may_send(st, 0)) {
        int r = post_empty(st, STREAM_DATA);
        (void)r; /* an endpoint that was just emptied takes it, or is terminated */
    }
}

size_t stream_unpost(struct stream *st, unsigned frames)
{
    size_t back = 0;
    while (frames-- > 0 && st->tx.batch_n > 0) {
        uint32_t len = st->tx.batch[--st->tx.batch_n].len;
        uint8_t type = st->tx.batch[st->tx.batch_n].type;
        st->tx.off -= len;
        back += len;
        if (type == 0) {
            st->tx.ring_to -= len;
            continue;
        }
        st->tx.sends--;
        if (type == STREAM_FIN)
            st->tx.fin = false;
    }
    st->tx.total -= back;
    /* What stays may end in Writes that nobody announced. */
    st->tx.notify_owed = st->tx.batch_n > 0 && st->tx.batch[st->tx.batch_n - 1].type == 0;
    if (st->tx.notify_owed && may_send(st, 0)) {
        int r = post_empty(st, STREAM_DATA);
        (void)r; /* still owed: stream_flushed */
    }
    return back;
}

int stream_fin(struct stream *st)
{
    if (st->tx.fin)
        return 0;
    if (!may_send(st, 0))
        return -EAGAIN;
    int r = post_empty(st, STREAM_FIN);
    if (r == 0)
        st->tx.fin = true;
    return r;
}

int stream_credit(struct stream *st)
{
    if (st->llp)
        return 0;
    if (!may_send(st, 0))
        return -EAGAIN;
    return post_empty(st, STREAM_CREDIT);
}
