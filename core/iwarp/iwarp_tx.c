/*
 * The software endpoint's send side: messages become segments (RFC 5041 section 5.2) in FPDUs (RFC
 * 5044 section 4).
 *
 *   post_* -> [this file] -> iwarp_batch.c: frame, out -> (pipe) -> out_sent
 *
 * Payload is never copied here: the iovecs point to what was posted, and the CRC is run over it
 * where it lies. The exceptions use out_buf: messages in too many pieces, Read Responses (the peer
 * may write to the region between our CRC and the pipe's copy, so they go out from a copy), and all
 * payload when the peer wants markers.
 */
#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/iwarp/iwarp.h"
#include "core/iwarp/iwarp_impl.h"
#include "core/mpa/startup.h"

/* The longest payload that fits into out_buf. */
static size_t copy_max(const struct iwarp_ep *ep)
{
    if (!ep->cfg.tx.markers)
        return ep->cfg.out_cap;
    return ep->cfg.out_cap - (iwarp_marked_len(ep->cfg.out_cap, IWARP_POST_FRAMES) - ep->cfg.out_cap);
}

void iwarp_set_mulpdu(struct iwarp_ep *ep, size_t mulpdu)
{
    ep->cfg.mulpdu = mulpdu < MPA_MULPDU_MIN ? MPA_MULPDU_MIN : mulpdu > MPA_MULPDU_MAX ? MPA_MULPDU_MAX : mulpdu;
}

size_t iwarp_write_max(const struct endpoint *e)
{
    const struct iwarp_ep *ep = iwarp_of_const(e);
    size_t batch = IWARP_POST_FRAMES * (ep->cfg.mulpdu - DDP_TAGGED_HDR_LEN);

    return batch < copy_max(ep) ? batch : copy_max(ep);
}

size_t iwarp_send_max(const struct endpoint *e)
{
    const struct iwarp_ep *ep = iwarp_of_const(e);
    size_t batch = IWARP_POST_FRAMES * (ep->cfg.mulpdu - DDP_UNTAGGED_HDR_LEN);

    if (batch > copy_max(ep))
        batch = copy_max(ep);
    return batch < ep->cfg.send_max ? batch : ep->cfg.send_max;
}

/* ---- what the ULP posts ---- */

int iwarp_may_post(const struct iwarp_ep *ep)
{
    /* RFC 5041 6.2.1/2: after a graceful teardown further requests "MUST return an error". */
    if (SW_UNLIKELY(atomic_load_explicit(&ep->tx_ended, memory_order_relaxed)))
        return -EPIPE;
    switch (iwarp_state_load(ep)) {
    case IWARP_WAIT_RTR:
        return -EAGAIN;
    case IWARP_FULL:
        /*
         * RFC 5040 5.1/4, RFC 5040 5.2.1/8, RFC 5040 5.3/6, RFC 5040 5.5 rule 13: one send queue, in the ULP's order.
         * RFC 5041 5.3/2: "MUST transmit DDP Messages in the order they were submitted"; and the answer must not
         * wait for ever
         * behind new posts.
         */
        return iwarp_ctrl_pending(ep) ? -EAGAIN : 0;
    default:
        return -EPIPE;
    }
}

/* The same; if the answer to an RTR was left for this call, it comes first in the batch. */
static int begin_post(struct iwarp_ep *ep)
{
    int err = iwarp_may_post(ep);

    if (SW_LIKELY(err == 0) || !iwarp_answers_rtr(ep))
        return err;
    iwarp_tx_read_responses(ep);
    return iwarp_may_post(ep);
}

/*
 * The number of pieces in which the next len octets of src lie, at most IWARP_PIECES_MAX + 1; -EINVAL if there are
 * fewer octets.
 */
static int count_pieces(const struct iov_iter *src, size_t len)
{
    struct iov_iter it = *src;
    int pieces = 0;
    void *p;

    for (size_t n; len > 0; len -= n, pieces++) {
        if (pieces > (int)IWARP_PIECES_MAX)
            return iov_iter_left(&it) >= len ? pieces : -EINVAL;
        n = iov_iter_next(&it, len, &p);
        if (n == 0)
            return -EINVAL;
    }
    return pieces;
}

/*
 * One message of the ULP in as many segments as it takes: ulp_hdr, then the next len octets of src.
 * seg is the first one's header.
 * RFC 5041 5.2/1,4: all the data, "into a series of DDP Segments".
 * RFC 5041 4.2/2,4,5,7,9-11 and RFC 5041 4.3/2,4-7,11,12: in each the same RsvdULP, STag, QN and MSN, those the
 * ULP gave.
 */
static int post(struct iwarp_ep *ep, struct ddp_segment seg, const uint8_t *ulp_hdr, size_t ulp_hdr_len,
                struct iov_iter *src, size_t len)
{
    /*
     * RFC 5044 3/3, RFC 5044 4.5/3 and RFC 5041 5.2/2: a segment "MUST be no larger than the MULPDU value
     * Advertised by the LLP".
     */
    size_t room = ep->cfg.mulpdu - (seg.tagged ? DDP_TAGGED_HDR_LEN : DDP_UNTAGGED_HDR_LEN);
    size_t left = ulp_hdr_len + len;
    size_t frames = left ? (left + room - 1) / room : 1; /* RFC 5041 5.2/9: one if there is nothing */
    struct iov_iter it = *src, gathered, *from = &it;
    struct iovec copy;
    int err = begin_post(ep), pieces;
    bool gather, marked;

    if (err)
        return err;
    pieces = count_pieces(src, len);
    if (pieces < 0)
        return pieces;
    marked = ep->cfg.tx.markers;
    gather = pieces > (int)IWARP_PIECES_MAX && !marked;
    if (gather || marked)
        pieces = 1;
    if (ep->tx.frame_n + frames > IWARP_POST_FRAMES)
        return -EAGAIN;
    if (ep->tx.iov_n + (size_t)pieces + 3 * frames > IWARP_POST_IOV)
        return -EAGAIN;
    if (marked && iwarp_marked_len(len, frames) > ep->cfg.out_cap - ep->tx.out_used)
        return -EAGAIN;
    if (gather && ep->tx.out_used > 0)
        return -EAGAIN;

    if (gather) {
        copy = (struct iovec){ ep->cfg.out_buf, iov_iter_gather(&it, ep->cfg.out_buf, len) };
        gathered = iov_iter_init(&copy, 1);
        from = &gathered;
        ep->tx.out_used = len;
    }
    do {
        size_t n = left < room ? left : room;

        /* RFC 5041 4.1/3-6: L is set on the last segment, with the highest MO, and on no other. */
        seg.last = n == left;
        iwarp_frame(ep, rdmap_ctrl_opcode(seg.ulp_ctrl), &seg, ulp_hdr, ulp_hdr_len, from, n - ulp_hdr_len);
        /*
         * RFC 5041 5.2/6,8: MO and TO are the octet offsets of the segment's first octet;
         * RFC 5041 5.3/3: they go up; RFC 5041 4.3/13: MO begins with zero.
         */
        seg.to += n;
        seg.mo += (uint32_t)n;
        left -= n;
        ulp_hdr_len = 0;
    } while (left > 0);
    if (gather)
        ep->tx.out_end = ep->tx.queued;
    if (!seg.tagged)
        ep->tx.msn[seg.qn]++; /* RFC 5041 4.3/8: "increased by one (modulo 2^32)" */
    *src = it;
    return 0;
}

/*
 * RFC 5040 5.1/2,5: tagged, to one buffer.
 * RFC 5041 5.2/7: "MUST specify the STag and the initial TO".
 */
int iwarp_post_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    struct ddp_segment seg = {
        .tagged = true,
        .ulp_ctrl = rdmap_ctrl(RDMAP_WRITE),
        .stag = stag,
        .to = to,
    };

    if (len > iwarp_write_max(e))
        return -EMSGSIZE;
    return post(iwarp_of(e), seg, NULL, 0, src, len);
}

int iwarp_post_send_as(struct iwarp_ep *ep, uint8_t opcode, uint32_t inv_stag, const uint8_t *hdr, size_t hdr_len,
                       struct iov_iter *src, size_t len)
{
    /*
     * RFC 5040 5.3/2,3,7: untagged, an MSN each. RFC 5040 5.3/9 and RFC 5040 4.1/3: the STag behind the control
     * field.
     */
    struct ddp_segment seg = {
        .ulp_ctrl = rdmap_ctrl(opcode),
        .ulp_word = inv_stag,
        .qn = RDMAP_QN_SEND,
        .msn = ep->tx.msn[RDMAP_QN_SEND],
    };

    if (hdr_len > IWARP_ULP_HDR_MAX)
        return -EINVAL;
    if (len > SIZE_MAX - hdr_len || hdr_len + len > iwarp_send_max(&ep->base))
        return -EMSGSIZE;
    return post(ep, seg, hdr, hdr_len, src, len);
}

int iwarp_post_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    return iwarp_post_send_as(iwarp_of(e), RDMAP_SEND, 0, hdr, hdr_len, src, len);
}

int iwarp_post_immediate(struct endpoint *e, uint64_t data, bool solicited)
{
    struct iov_iter none = iov_iter_init(NULL, 0);
    struct iwarp_ep *ep = iwarp_of(e);
    uint8_t octets[RDMAP_IMMEDIATE_LEN];

    if (!ep->cfg.immediate)
        return -ENOTSUP;
    /* RFC 7306 6.3/6,7 and RFC 7306 4.1/1: untagged, queue 0, exactly 8 octets. */
    put_be64(octets, data);
    return iwarp_post_send_as(ep, solicited ? RDMAP_IMMEDIATE_SE : RDMAP_IMMEDIATE, 0, octets, sizeof(octets), &none,
                              0);
}

/*
 * The slot is written before posted is: the receive side looks at it only after that.
 * RFC 5040 5.2.1/2,3,10,11: one untagged message, one MSN, from one buffer. RFC 5040 5.2/1: one response is
 * waited for.
 */
static void post_read(struct iwarp_ep *ep, uint8_t kind, const struct rdmap_read *rd)
{
    uint64_t posted = atomic_load_explicit(&ep->reads.posted, memory_order_relaxed);
    struct ddp_segment seg = {
        .last = true,
        .ulp_ctrl = rdmap_ctrl(RDMAP_READ_REQUEST),
        .qn = RDMAP_QN_READ_REQUEST,
        .msn = ep->tx.msn[RDMAP_QN_READ_REQUEST]++,
    };
    uint8_t hdr[RDMAP_READ_HDR_LEN];

    rdmap_read_encode(rd, hdr);
    ep->reads.slot[posted % IWARP_ORD_MAX] = *rd;
    atomic_store_explicit(&ep->reads.posted, posted + 1, memory_order_release);
    iwarp_frame(ep, kind, &seg, hdr, sizeof(hdr), NULL, 0);
}

int iwarp_post_read(struct iwarp_ep *ep, const struct rdmap_read *rd)
{
    uint64_t posted = atomic_load_explicit(&ep->reads.posted, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&ep->reads.done, memory_order_acquire);
    struct ddp_region *region;
    bool rights;
    int err = begin_post(ep);

    if (err)
        return err;
    if (rd->len > 0 && (ddp_stags_check(iwarp_stags_of(ep, rd->sink_stag), &ep->cfg.who, rd->sink_stag, rd->sink_to,
                                        rd->len, DDP_ACCESS_LOCAL_SINK, &region, &rights) != DDP_TAGGED_OK ||
                        region->deferred))
        return -EINVAL;
    /* RFC 5040 6.1/3,4: outbound Reads "MUST NOT exceed the maximum number" negotiated. */
    if (posted - done >= ep->cfg.ord || ep->tx.frame_n >= IWARP_POST_FRAMES || ep->tx.iov_n + 2 > IWARP_POST_IOV)
        return -EAGAIN;
    post_read(ep, RDMAP_READ_REQUEST, rd);
    return 0;
}

/* ---- control frames ---- */

/* RFC 6581 5/1 and RFC 6581 9.2/8: before anything is posted. */
void iwarp_tx_rtr(struct iwarp_ep *ep)
{
    /*
     * The STags and offsets of zero-length messages are not validated (RFC 5041 section 5.2, RFC
     * 5040 section 5.2.1); these are the values Linux siw uses.
     */
    struct ddp_segment seg = { .last = true };
    struct rdmap_read rd = { .src_stag = 1 };

    switch (ep->cfg.rtr) {
    case MPA_RTR_SEND:
        seg.ulp_ctrl = rdmap_ctrl(RDMAP_SEND);
        seg.qn = RDMAP_QN_SEND;
        seg.msn = ep->tx.msn[RDMAP_QN_SEND]++;
        iwarp_frame(ep, IWARP_KIND_CTRL, &seg, NULL, 0, NULL, 0);
        break;
    case MPA_RTR_WRITE:
        seg.tagged = true;
        seg.ulp_ctrl = rdmap_ctrl(RDMAP_WRITE);
        seg.stag = 1;
        iwarp_frame(ep, IWARP_KIND_CTRL, &seg, NULL, 0, NULL, 0);
        break;
    case MPA_RTR_READ:
        ep->reads.rtr = 1;
        post_read(ep, IWARP_KIND_CTRL, &rd);
        break;
    }
}

/* RFC 5040 5.4/2: untagged. */
void iwarp_tx_terminate(struct iwarp_ep *ep)
{
    struct ddp_segment seg = {
        .last = true, /* one segment */
        .ulp_ctrl = rdmap_ctrl(RDMAP_TERMINATE),
        .qn = RDMAP_QN_TERMINATE,
        .msn = 1,
    };
    uint8_t payload[TERM_MAX];

    /* The longest of all headers; scratch and the last frame are reserved for it. */
    iwarp_frame(ep, IWARP_KIND_CTRL, &seg, payload, terminate_encode(&ep->term, payload), NULL, 0);
    atomic_store_explicit(&ep->term_state, IWARP_TERM_IN_BATCH, memory_order_relaxed);
}

void iwarp_tx_read_responses(struct iwarp_ep *ep)
{
    size_t room = ep->cfg.mulpdu - DDP_TAGGED_HDR_LEN;
    bool marked = ep->cfg.tx.markers;
    uint32_t tail = atomic_load_explicit(&ep->ctrl.tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&ep->ctrl.head, memory_order_acquire);

    /*
     * RFC 5040 5.2.1/12,15: every request has its response, also one of size zero; RFC 5040 5.2.2/2,6: tagged, to
     * one buffer.
     * RFC 5040 5.2.2/5 and RFC 5040 5.5 rule 20: in the order of the requests; RFC 5040 5.5 rule 17: after their
     * delivery.
     */
    while (tail != head && ep->tx.frame_n < IWARP_POST_FRAMES && ep->tx.iov_n + 3 <= IWARP_POST_IOV) {
        const struct iwarp_ctrl *c = &ep->ctrl.slot[tail % IWARP_IRD_MAX];
        uint32_t off = ep->tx.read_off;
        size_t n = c->read.len - off < room ? c->read.len - off : room;
        /* RFC 5040 5.2.2/1: "MUST reference a Tagged Buffer". */
        struct ddp_segment seg = {
            .tagged = true, /* the reader's sink */
            .last = off + n == c->read.len,
            .ulp_ctrl = rdmap_ctrl(RDMAP_READ_RESPONSE),
            /* RFC 5040 4.4/2: "copied, without interpretation", also for size 0. */
            .stag = c->read.sink_stag,
            .to = c->read.sink_to + off,
        };
        uint8_t *copy = ep->cfg.out_buf + ep->tx.out_used;
        struct iovec iov = { copy, n };
        struct iov_iter it = iov_iter_init(&iov, 1);

        if ((marked ? iwarp_marked_len(n, 1) : n) > ep->cfg.out_cap - ep->tx.out_used)
            break;
        if (n > 0) {
            if (__atomic_load_n(&c->src->stag, __ATOMIC_ACQUIRE) != c->read.src_stag) {
                iwarp_fail_read(ep, c, off);
                return;
            }
            iov.iov_base = c->src->base + (c->read.src_to - c->src->to) + off;
            if (!marked) /* otherwise the frame is made by a copy */
                iov.iov_base = memcpy(copy, iov.iov_base, n);
        }
        iwarp_frame(ep, IWARP_KIND_CTRL, &seg, NULL, 0, &it, n);
        if (!marked) {
            ep->tx.out_used += n;
            ep->tx.out_end = ep->tx.queued;
        }
        if (seg.last) {
            ep->tx.read_off = 0;
            atomic_store_explicit(&ep->ctrl.tail, ++tail, memory_order_release);
        } else {
            ep->tx.read_off = off + (uint32_t)n;
        }
    }
}
