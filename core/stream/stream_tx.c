/*
 * The byte stream, sending: program octets become Sends and Writes.
 *
 *   write of <= eager_limit octets     Send[hdr, octets]
 *   more                               Write, Write, … (each one whole message) then Send[hdr] = notify,
 *                                      or Immediate Data[offset]
 *
 * Each Write fits one segment and is a message of its own, so a batch can be cut between any two
 * without leaving a message unfinished (RFC 5041 section 5: segments of a message are not
 * interleaved with others).
 */
#include <errno.h>

#include "core/stream/stream.h"
#include "core/stream/stream_impl.h"

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

/* The least for all but CREDITs: see STREAM_BUFS_KEPT. */
static bool may_send(const struct stream *st)
{
    return st->llp || peer_bufs_free(st) > STREAM_BUFS_KEPT;
}

bool stream_may_write(const struct stream *st)
{
    return may_send(st) && (st->llp || peer_ring_free(st) >= st->cfg.peer.ring_len / 4);
}

static void batch_add(struct stream *st, uint8_t type, uint8_t flags, size_t len)
{
    uint32_t i = st->tx.batch_n++;
    st->tx.batch[i].type = type;
    st->tx.batch[i].flags = flags;
    st->tx.batch[i].len = (uint32_t)len;
    st->tx.batch[i].told_bufs = (uint16_t)atomic_load(&st->told_bufs);
    st->tx.batch[i].told_ring = atomic_load(&st->told_ring);
    st->tx.batch[i].told_credits = atomic_load(&st->told_credits);
}

/* A CREDIT that is to be answered is counted on its own, a CREDIT that answers is not counted. */
static void count_send(struct stream *st, uint8_t type, uint8_t flags, int by)
{
    if (type != STREAM_CREDIT)
        st->tx.sends += (uint32_t)by;
    else if (!(flags & STREAM_HDR_ANSWER))
        atomic_fetch_add(&st->sent_credits, (uint32_t)by);
}

/* Posts one Send of `type` with the next len octets of src. */
static int post(struct stream *st, enum stream_type type, uint8_t flags, struct iov_iter *src, size_t len)
{
    if (st->tx.batch_n == STREAM_BATCH)
        return -EAGAIN;
    uint8_t buf[STREAM_HDR_LEN];
    struct stream_hdr h = {
        .type = (uint8_t)type,
        .flags = flags,
        .bufs = (uint16_t)atomic_load(&st->back_bufs),
        .off = (uint32_t)(st->tx.off + len),
        .ring = atomic_load(&st->back_ring),
        .aux = atomic_load(&st->back_credits),
    };
    stream_hdr_encode(&h, buf);
    int r = endpoint_ops(st->cfg.ep)->post_send(st->cfg.ep, buf, sizeof(buf), src, len);
    if (r < 0)
        return r;
    batch_add(st, h.type, flags, len);
    count_send(st, h.type, flags, 1);
    st->tx.off += len;
    st->tx.notify_owed = false;
    atomic_store(&st->told_bufs, h.bufs);
    atomic_store(&st->told_ring, h.ring);
    atomic_store(&st->told_credits, h.aux);
    return 0;
}

static int post_empty(struct stream *st, enum stream_type type, uint8_t flags)
{
    struct iov_iter none = iov_iter_init(NULL, 0);
    return post(st, type, flags, &none, 0);
}

static int post_immediate(struct stream *st)
{
    if (st->tx.batch_n == STREAM_BATCH)
        return -EAGAIN;
    /* Solicited: the receiver that waits for the Writes must be woken now. */
    int r = endpoint_ops(st->cfg.ep)->post_immediate(st->cfg.ep, st->tx.off, true);
    if (r < 0)
        return r;
    batch_add(st, STREAM_DATA, 0, 0);
    st->tx.notify_owed = false;
    return 0;
}

/* The peer has to be told up to which octet the Writes reach. */
static void post_notify(struct stream *st)
{
    if (!st->tx.notify_owed || !may_send(st))
        return;
    int r = st->immediate ? post_immediate(st) : post_empty(st, STREAM_DATA, 0);
    (void)r; /* no room: it is still owed, and stream_flushed sends it; or the endpoint is terminated */
}

#define WRITE_STEP 64u

/*
 * The length of the next Write when `left` octets remain. Long ones are a whole number of cache lines, because the
 * octets that follow are copied from there and to there. A short rest is left to go as a Send, which then is the notify
 * too.
 */
static size_t write_len(const struct stream *st, size_t left)
{
    size_t max = st->cfg.write_limit;
    size_t len = left <= max ? left : max < 64 * WRITE_STEP ? max : max - max % WRITE_STEP;
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
    /* The last place in the batch is reserved for the notify. */
    while (done < len && st->tx.batch_n < STREAM_BATCH - 1) {
        size_t left = len - done, n;
        /* With credits this holds for Writes too: the peer cannot use their octets before a Send can follow them. */
        if (!may_send(st))
            break;
        if (left <= st->cfg.eager_limit) {
            n = left;
            r = post(st, STREAM_DATA, 0, src, n);
        } else {
            n = write_len(st, left);
            if (n == 0)
                break;
            uint64_t to = st->tx.ring_to % st->cfg.peer.ring_len;
            r = endpoint_ops(st->cfg.ep)->post_write(st->cfg.ep, st->cfg.peer.ring_stag, to, src, n);
            if (r == 0) {
                batch_add(st, 0, 0, n);
                st->tx.ring_to += n;
                st->tx.off += n;
                st->tx.notify_owed = true;
            }
        }
        if (r < 0)
            break;
        done += n;
    }
    if (done == 0 && r < 0 && r != -EAGAIN)
        return r;
    post_notify(st);
    st->tx.total += done;
    return (ssize_t)done;
}

size_t stream_send_max(const struct stream *st)
{
    size_t most = endpoint_ops(st->cfg.ep)->send_max(st->cfg.ep) - STREAM_HDR_LEN;

    return most < st->cfg.peer.eager_max ? most : st->cfg.peer.eager_max;
}

int stream_write_send(struct stream *st, struct iov_iter *src, size_t len)
{
    if (st->tx.fin)
        return -EPIPE;
    if (len > stream_send_max(st))
        return -EMSGSIZE;
    if (!may_send(st))
        return -EAGAIN;
    int r = post(st, STREAM_DATA, 0, src, len);
    if (r == 0)
        st->tx.total += len;
    return r;
}

ssize_t stream_write_urgent(struct stream *st, struct iov_iter *src)
{
    if (st->tx.fin)
        return -EPIPE;
    if (!st->llp || !(st->cfg.peer.flags & STREAM_FLAG_URGENT))
        return -EOPNOTSUPP;
    int r = post(st, STREAM_DATA, STREAM_HDR_URGENT, src, 1);
    if (r < 0)
        return r == -EAGAIN ? 0 : r;
    st->tx.total++;
    return 1;
}

void stream_flushed(struct stream *st)
{
    st->tx.batch_n = 0;
    st->tx.owed_before = st->tx.notify_owed;
    post_notify(st);
}

size_t stream_unpost(struct stream *st, unsigned frames)
{
    size_t back = 0;
    while (frames-- > 0 && st->tx.batch_n > 0) {
        uint32_t len = st->tx.batch[--st->tx.batch_n].len;
        uint8_t type = st->tx.batch[st->tx.batch_n].type;
        atomic_store(&st->told_bufs, st->tx.batch[st->tx.batch_n].told_bufs);
        atomic_store(&st->told_ring, st->tx.batch[st->tx.batch_n].told_ring);
        atomic_store(&st->told_credits, st->tx.batch[st->tx.batch_n].told_credits);
        st->tx.off -= len;
        back += len;
        if (type == 0) {
            st->tx.ring_to -= len;
            continue;
        }
        count_send(st, type, st->tx.batch[st->tx.batch_n].flags, -1);
        if (type == STREAM_FIN)
            st->tx.fin = false;
    }
    st->tx.total -= back;
    /* What stays, or was sent before, may end in Writes that are not announced. */
    st->tx.notify_owed = st->tx.batch_n > 0 ? st->tx.batch[st->tx.batch_n - 1].type == 0 : st->tx.owed_before;
    post_notify(st);
    return back;
}

int stream_rtr(struct stream *st)
{
    return may_send(st) ? post_empty(st, STREAM_DATA, 0) : -EAGAIN;
}

int stream_fin(struct stream *st)
{
    if (st->tx.fin)
        return 0;
    if (!may_send(st))
        return -EAGAIN;
    int r = post_empty(st, STREAM_FIN, 0);
    if (r == 0)
        st->tx.fin = true;
    return r;
}

int stream_credit(struct stream *st)
{
    if (st->llp)
        return 0;
    /* An answer must not ask for an answer, or the two sides would never stop. */
    bool answer = stream_answer_due(st) && (stream_credit_unanswered(st) || !stream_credit_due(st));
    if (!answer && stream_credit_unanswered(st))
        return -EAGAIN;
    return post_empty(st, STREAM_CREDIT, answer ? STREAM_HDR_ANSWER : 0);
}
