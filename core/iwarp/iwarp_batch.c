/*
 * The batch: frames as iovecs, on their way to a pipe that takes as much as it likes.
 *
 *   iwarp_tx.c: post_* -> [this file] frame, out -> (pipe) -> [this file] out_sent, out_detach
 *
 * Headers and trailers lie one behind the other in scratch, so that a trailer and the next header
 * are one iovec and a frame costs two. Positions count octets from the batch's start; an empty
 * batch starts over.
 */
#include <string.h>

#include "core/base/crc32c.h"
#include "core/base/fault.h"
#include "core/base/probe.h"
#include "core/iwarp/iwarp.h"
#include "core/iwarp/iwarp_impl.h"

/* The segments of a full message, its pieces split at their ends, and the runs of scratch must fit an empty batch. */
_Static_assert(IWARP_PIECES_MAX + 3 * IWARP_POST_FRAMES <= IWARP_POST_IOV, "one message fits a batch");
_Static_assert(MPA_HDR_LEN + DDP_UNTAGGED_HDR_LEN + IWARP_ULP_HDR_MAX <= IWARP_HDR_MAX &&
                   RDMAP_READ_HDR_LEN <= IWARP_ULP_HDR_MAX,
               "a frame's headers");
/* RFC 5040 5.4/5: "MUST guarantee placement of a single Terminate Message". */
_Static_assert(sizeof(((struct iwarp_ep *)0)->tx.scratch) >=
                   IWARP_POST_FRAMES * (IWARP_HDR_MAX + MPA_TRAILER_MAX + 2 * MPA_MARKER_LEN) +
                       (MPA_HDR_LEN + DDP_UNTAGGED_HDR_LEN + TERM_MAX + MPA_TRAILER_MAX + 2 * MPA_MARKER_LEN),
               "headers of a full batch and a Terminate");

/* ---- frames come in ---- */

static void batch_reset(struct iwarp_ep *ep)
{
    ep->tx.pos += ep->tx.sent;
    ep->tx.scratch_used = 0;
    ep->tx.iov_n = ep->tx.iov_first = ep->tx.frame_n = ep->tx.frame_first = 0;
    ep->tx.sent = ep->tx.queued = 0;
    ep->tx.out_used = 0;
    ep->tx.out_end = 0;
}

static bool within(const void *p, const void *base, size_t len)
{
    return (const uint8_t *)p >= (const uint8_t *)base && (const uint8_t *)p < (const uint8_t *)base + len;
}

/* Memory that stays as it is until it is sent: headers, trailers, the lead. */
static bool in_scratch(const struct iwarp_ep *ep, const void *p)
{
    return within(p, ep->tx.scratch, sizeof(ep->tx.scratch)) ||
           (ep->cfg.lead_len > 0 && within(p, ep->cfg.lead, ep->cfg.lead_len));
}

static bool is_ulps(const struct iwarp_out_frame *f)
{
    return f->kind != IWARP_KIND_CTRL && f->kind != IWARP_KIND_LEAD;
}

static void put_iov(struct iwarp_ep *ep, void *p, size_t len)
{
    ep->tx.iov[ep->tx.iov_n++] = (struct iovec){ .iov_base = p, .iov_len = len };
    ep->tx.queued += (uint32_t)len;
}

/*
 * Takes the next len octets of scratch. They join the iovec just before them if that is scratch too, and, where iovecs
 * end with frames, of the same frame.
 */
static void put_scratch(struct iwarp_ep *ep, size_t len)
{
    uint32_t frame = ep->tx.frame_n > 0 ? ep->tx.frame[ep->tx.frame_n - 1].end : 0;
    bool join = !ep->cfg.aligned || ep->tx.queued > frame;

    uint8_t *p = ep->tx.scratch + ep->tx.scratch_used;
    struct iovec *last = ep->tx.iov_n > ep->tx.iov_first ? &ep->tx.iov[ep->tx.iov_n - 1] : NULL;

    ep->tx.scratch_used += (uint32_t)len;
    if (last && join && in_scratch(ep, last->iov_base) && (uint8_t *)last->iov_base + last->iov_len == p) {
        last->iov_len += len;
        ep->tx.queued += (uint32_t)len;
    } else {
        put_iov(ep, p, len);
    }
}

static void put_frame(struct iwarp_ep *ep, const struct ddp_segment *seg, const void *ulp_hdr, size_t ulp_hdr_len,
                      struct iov_iter *src, size_t len)
{
    uint8_t *hdr = ep->tx.scratch + ep->tx.scratch_used;
    size_t hdr_len = MPA_HDR_LEN + ddp_segment_encode(seg, hdr + MPA_HDR_LEN);
    size_t ulpdu_len;
    uint32_t crc;
    void *p;

    if (ulp_hdr_len)
        memcpy(hdr + hdr_len, ulp_hdr, ulp_hdr_len);
    hdr_len += ulp_hdr_len;
    ulpdu_len = hdr_len - MPA_HDR_LEN + len;
    crc = mpa_fpdu_begin(hdr, ulpdu_len);
    if (ep->cfg.tx.crc)
        crc = crc32c_update(crc, hdr + MPA_HDR_LEN, hdr_len - MPA_HDR_LEN);
    put_scratch(ep, hdr_len);
    for (size_t n; len > 0 && (n = iov_iter_next(src, len, &p)) > 0; len -= n) {
        if (ep->cfg.tx.crc)
            crc = crc32c_update(crc, p, n);
        put_iov(ep, p, n);
    }
    put_scratch(ep, mpa_fpdu_end(&ep->cfg.tx, ep->tx.scratch + ep->tx.scratch_used, ulpdu_len, crc));
}

/*
 * Markers may stand anywhere, also in headers, so with markers the payload is copied. The CRC is computed over the
 * copy.
 */
static void put_frame_marked(struct iwarp_ep *ep, const struct ddp_segment *seg, const void *ulp_hdr,
                             size_t ulp_hdr_len, struct iov_iter *src, size_t len)
{
    uint8_t hdr[DDP_UNTAGGED_HDR_LEN + TERM_MAX];
    size_t hdr_len = ddp_segment_encode(seg, hdr), n = 0;
    uint8_t *to = ep->tx.scratch + ep->tx.scratch_used;
    struct mpa_marked m;
    void *p;

    if (ulp_hdr_len)
        memcpy(hdr + hdr_len, ulp_hdr, ulp_hdr_len);
    hdr_len += ulp_hdr_len;
    n = mpa_marked_begin(&m, &ep->cfg.tx, ep->tx.pos + ep->tx.queued, to, hdr_len + len);
    put_scratch(ep, n + mpa_marked_put(&m, to + n, hdr, hdr_len));
    to = ep->cfg.out_buf + ep->tx.out_used;
    n = 0;
    for (size_t l; len > 0 && (l = iov_iter_next(src, len, &p)) > 0; len -= l)
        n += mpa_marked_put(&m, to + n, p, l);
    SW_CHECK(n <= ep->cfg.out_cap - ep->tx.out_used, "%zu octets, %zu used", n, ep->tx.out_used);
    if (n > 0) {
        put_iov(ep, to, n);
        ep->tx.out_used += n;
        ep->tx.out_end = ep->tx.queued;
    }
    put_scratch(ep, mpa_marked_end(&m, ep->tx.scratch + ep->tx.scratch_used));
}

void iwarp_frame(struct iwarp_ep *ep, uint8_t kind, const struct ddp_segment *seg, const void *ulp_hdr,
                 size_t ulp_hdr_len, struct iov_iter *src, size_t len)
{
    if (SW_UNLIKELY(ep->cfg.tx.markers))
        put_frame_marked(ep, seg, ulp_hdr, ulp_hdr_len, src, len);
    else
        put_frame(ep, seg, ulp_hdr, ulp_hdr_len, src, len);
    ep->tx.frame[ep->tx.frame_n++] = (struct iwarp_out_frame){
        .end = ep->tx.queued,
        .scratch_end = (uint16_t)ep->tx.scratch_used,
        .kind = kind,
        .msg_end = seg->last,
    };
}

void iwarp_lead(struct iwarp_ep *ep)
{
    ep->tx.pos -= ep->cfg.lead_len;
    put_iov(ep, (void *)(uintptr_t)ep->cfg.lead, ep->cfg.lead_len);
    ep->tx.frame[ep->tx.frame_n++] =
        (struct iwarp_out_frame){ .end = ep->tx.queued, .kind = IWARP_KIND_LEAD, .msg_end = true };
}

size_t iwarp_out_lead(const struct iwarp_ep *ep)
{
    if (SW_LIKELY(ep->cfg.lead_len == 0) || iwarp_batch_empty(ep) || ep->tx.frame_first > 0 ||
        ep->tx.frame[0].kind != IWARP_KIND_LEAD)
        return 0;
    return ep->tx.frame[0].end - ep->tx.sent;
}

bool iwarp_out_only_lead(const struct iwarp_ep *ep)
{
    return SW_UNLIKELY(ep->cfg.lead_len > 0) && iwarp_out_lead(ep) > 0 && ep->tx.frame_n == 1 &&
           !iwarp_ctrl_pending(ep);
}

/* ---- sending the batch ---- */

size_t iwarp_out(struct iwarp_ep *ep, const struct iovec **iov, size_t *len)
{
    *len = 0;
    *iov = ep->tx.iov;
    if (iwarp_state_load(ep) == IWARP_FULL && iwarp_batch_empty(ep) && iwarp_ctrl_pending(ep))
        iwarp_tx_read_responses(ep);
    /* RFC 5040 5.4/8: the Terminate, and nothing behind it. */
    if (iwarp_state_load(ep) == IWARP_TERMINATING && iwarp_ctrl_pending(ep))
        iwarp_tx_terminate(ep);
    /*
     * RFC 5040 6.2.1/2: after a Terminate from the peer nothing more needs to be sent. What was posted is dropped here:
     * "nothing to send" tells its owner that the memory may be used again.
     */
    if (iwarp_state_load(ep) == IWARP_TERMINATED)
        batch_reset(ep);
    if (iwarp_batch_empty(ep))
        return 0;
    *iov = ep->tx.iov + ep->tx.iov_first;
    *len = ep->tx.queued - ep->tx.sent;
    return ep->tx.iov_n - ep->tx.iov_first;
}

size_t iwarp_out_segment(struct iwarp_ep *ep, size_t seg, const struct iovec **iov, size_t *len)
{
    size_t n = iwarp_out(ep, iov, len), sum = 0, i;
    uint32_t k = ep->tx.frame_first;

    SW_CHECK(ep->cfg.aligned, "not set up for this");
    if (n == 0 || *len <= seg)
        return n;
    while (k + 1 < ep->tx.frame_n && ep->tx.frame[k + 1].end - ep->tx.sent <= seg)
        k++;
    *len = ep->tx.frame[k].end - ep->tx.sent;
    for (i = 0; sum < *len; i++)
        sum += (*iov)[i].iov_len;
    *len = sum; /* (more than that if iwarp_out_join has made one piece of the frames) */
    return i;
}

static void count_frame(struct iwarp_ep *ep, const struct iwarp_out_frame *f)
{
    if (f->kind == IWARP_KIND_LEAD)
        return;
    ep->stats.tx_fpdus++;
    PROBE2(fpdu_out, ep, f->kind);
    if (!f->msg_end)
        return;
    switch (f->kind) {
    case RDMAP_SEND:
    case RDMAP_SEND_INV:
    case RDMAP_SEND_SE:
    case RDMAP_SEND_SE_INV:
        ep->stats.tx_sends++;
        break;
    case RDMAP_WRITE:
        ep->stats.tx_writes++;
        break;
    case RDMAP_READ_REQUEST:
        ep->stats.tx_reads++;
        break;
    case RDMAP_IMMEDIATE:
    case RDMAP_IMMEDIATE_SE:
        ep->stats.tx_immediates++;
        break;
    }
}

/* RFC 5040 5.5 rule 14: what was posted is the LLP's now, and its memory free. */
void iwarp_out_sent(struct iwarp_ep *ep, size_t n)
{
    if (iwarp_batch_empty(ep) && iwarp_state_load(ep) == IWARP_TERMINATED)
        return; /* they were being sent when the batch was dropped */
    SW_CHECK(n <= ep->tx.queued - ep->tx.sent, "sent %zu of %u", n, ep->tx.queued - ep->tx.sent);
    ep->tx.sent += (uint32_t)n;
    while (ep->tx.frame_first < ep->tx.frame_n) {
        const struct iwarp_out_frame *f = &ep->tx.frame[ep->tx.frame_first];

        if (f->end > ep->tx.sent)
            break;
        count_frame(ep, f);
        ep->tx.mid_message = !f->msg_end;
        ep->tx.frame_first++;
    }
    if (iwarp_batch_empty(ep)) {
        batch_reset(ep);
        return;
    }
    while (n > 0) {
        struct iovec *v = &ep->tx.iov[ep->tx.iov_first];
        size_t l = n < v->iov_len ? n : v->iov_len;

        v->iov_base = (uint8_t *)v->iov_base + l;
        v->iov_len -= l;
        n -= l;
        if (v->iov_len == 0)
            ep->tx.iov_first++;
    }
    if (ep->tx.sent >= ep->tx.out_end) {
        ep->tx.out_used = 0;
        ep->tx.out_end = 0;
    }
}

/* ---- cutting the batch ---- */

/* The number of frames that must stay: control frames in front, or the rest of a message partly sent. */
static uint32_t frames_to_keep(const struct iwarp_ep *ep)
{
    uint32_t k = ep->tx.frame_first;
    uint32_t start = k > 0 ? ep->tx.frame[k - 1].end : 0;
    bool under_way = ep->tx.mid_message || ep->tx.sent > start;

    /* (The batch may hold only a part of a Read Response; it holds the ULP's messages whole.) */
    if (under_way && is_ulps(&ep->tx.frame[k]))
        while (!ep->tx.frame[k++].msg_end)
            SW_CHECK(k < ep->tx.frame_n, "frame %u of %u", k, ep->tx.frame_n);
    while (k < ep->tx.frame_n && !is_ulps(&ep->tx.frame[k]))
        k++;
    return k;
}

/* Drops frames from k on, none of which is sent. Returns how many of the ULP's messages they held. */
static unsigned drop_frames(struct iwarp_ep *ep, uint32_t k)
{
    uint32_t keep = k > 0 ? ep->tx.frame[k - 1].end : 0;
    size_t left = keep - ep->tx.sent;
    unsigned messages = 0;
    uint32_t i;

    for (i = k; i < ep->tx.frame_n; i++) {
        const struct iwarp_out_frame *f = &ep->tx.frame[i];

        if (f->kind == IWARP_KIND_CTRL) {
            /* Read Responses come only in front, so this is the Terminate. It is made again. */
            atomic_store_explicit(&ep->term_state, IWARP_TERM_QUEUED, memory_order_relaxed);
            continue;
        }
        if (!f->msg_end)
            continue;
        messages++;
        if (!rdmap_opcode_rules[f->kind].tagged)
            ep->tx.msn[rdmap_opcode_rules[f->kind].qn]--;
        if (f->kind == RDMAP_READ_REQUEST)
            atomic_fetch_sub_explicit(&ep->reads.posted, 1, memory_order_relaxed);
    }
    ep->tx.frame_n = k;
    ep->tx.queued = keep;
    ep->tx.scratch_used = k > 0 ? ep->tx.frame[k - 1].scratch_end : 0;
    for (i = ep->tx.iov_first; left > 0; i++) {
        struct iovec *v = &ep->tx.iov[i];

        if (v->iov_len > left)
            v->iov_len = left;
        left -= v->iov_len;
    }
    ep->tx.iov_n = i;
    return messages;
}

static bool borrowed(const struct iwarp_ep *ep, const struct iovec *v)
{
    return !in_scratch(ep, v->iov_base) && !within(v->iov_base, ep->cfg.out_buf, ep->cfg.out_cap);
}

size_t iwarp_out_borrowed(const struct iwarp_ep *ep)
{
    uint32_t k = iwarp_batch_empty(ep) ? 0 : frames_to_keep(ep);
    size_t left = k > 0 ? ep->tx.frame[k - 1].end - ep->tx.sent : 0;
    size_t sum = 0;

    for (uint32_t i = ep->tx.iov_first; left > 0; i++) {
        const struct iovec *v = &ep->tx.iov[i];
        size_t len = v->iov_len < left ? v->iov_len : left;

        if (borrowed(ep, v))
            sum += len;
        left -= len;
    }
    return sum;
}

struct iwarp_cut iwarp_out_detach(struct iwarp_ep *ep)
{
    struct iwarp_cut cut = { 0 };
    bool out_buf_kept = false;

    if (iwarp_batch_empty(ep))
        return cut;
    cut.frames = drop_frames(ep, frames_to_keep(ep));
    if (iwarp_batch_empty(ep)) {
        batch_reset(ep);
        return cut;
    }
    for (uint32_t i = ep->tx.iov_first; i < ep->tx.iov_n; i++)
        if (within(ep->tx.iov[i].iov_base, ep->cfg.out_buf, ep->cfg.out_cap))
            out_buf_kept = true;
    if (!out_buf_kept)
        ep->tx.out_used = 0;
    /*
     * Posted memory in the kept frames belongs to one message, which is partly sent. So nothing is left before it or
     * behind it, out_buf is free, and write_max and send_max make sure that the payload fits.
     */
    for (uint32_t i = ep->tx.iov_first; i < ep->tx.iov_n; i++) {
        struct iovec *v = &ep->tx.iov[i];

        if (!borrowed(ep, v))
            continue;
        SW_CHECK(!out_buf_kept && v->iov_len <= ep->cfg.out_cap - ep->tx.out_used, "%zu octets, %zu used", v->iov_len,
                 ep->tx.out_used);
        memcpy(ep->cfg.out_buf + ep->tx.out_used, v->iov_base, v->iov_len);
        v->iov_base = ep->cfg.out_buf + ep->tx.out_used;
        ep->tx.out_used += v->iov_len;
    }
    ep->tx.out_end = ep->tx.out_used > 0 ? ep->tx.queued : 0;
    return cut;
}

bool iwarp_out_keep(struct iwarp_ep *ep)
{
    size_t sum = 0;

    for (uint32_t i = ep->tx.iov_first; i < ep->tx.iov_n; i++) {
        if (within(ep->tx.iov[i].iov_base, ep->cfg.out_buf, ep->cfg.out_cap))
            return false;
        if (borrowed(ep, &ep->tx.iov[i]))
            sum += ep->tx.iov[i].iov_len;
    }
    if (iwarp_batch_empty(ep) || sum > ep->cfg.out_cap)
        return false;
    ep->tx.out_used = 0;
    for (uint32_t i = ep->tx.iov_first; i < ep->tx.iov_n; i++) {
        struct iovec *v = &ep->tx.iov[i];

        if (borrowed(ep, v))
            v->iov_base = memcpy(ep->cfg.out_buf + ep->tx.out_used, v->iov_base, v->iov_len);
        if (!in_scratch(ep, v->iov_base))
            ep->tx.out_used += v->iov_len;
    }
    ep->tx.out_end = ep->tx.out_used > 0 ? ep->tx.queued : 0;
    return true;
}

/* Can the queue be joined? Its pieces in out_buf have to follow each other there. */
static bool joinable(const struct iwarp_ep *ep)
{
    const uint8_t *end = ep->cfg.out_buf;

    if (iwarp_batch_empty(ep) || ep->tx.iov_n - ep->tx.iov_first < 2 || ep->tx.queued - ep->tx.sent > ep->cfg.out_cap)
        return false;
    for (uint32_t i = ep->tx.iov_first; i < ep->tx.iov_n; i++) {
        const struct iovec *v = &ep->tx.iov[i];

        if (borrowed(ep, v))
            return false;
        if (in_scratch(ep, v->iov_base))
            continue;
        if ((const uint8_t *)v->iov_base < end)
            return false;
        end = (const uint8_t *)v->iov_base + v->iov_len;
    }
    return true;
}

void iwarp_out_join(struct iwarp_ep *ep)
{
    uint8_t *to = ep->cfg.out_buf;

    if (!joinable(ep))
        return;
    /*
     * Moves what is there to the front, then everything, from its end on, to the back: neither move overwrites what is
     * still to be moved.
     */
    for (uint32_t i = ep->tx.iov_first; i < ep->tx.iov_n; i++) {
        struct iovec *v = &ep->tx.iov[i];

        if (in_scratch(ep, v->iov_base))
            continue;
        memmove(to, v->iov_base, v->iov_len);
        v->iov_base = to;
        to += v->iov_len;
    }
    to = ep->cfg.out_buf + ep->cfg.out_cap;
    for (uint32_t i = ep->tx.iov_n; i-- > ep->tx.iov_first;) {
        struct iovec *v = &ep->tx.iov[i];

        to -= v->iov_len;
        memmove(to, v->iov_base, v->iov_len);
    }
    ep->tx.iov[ep->tx.iov_first] = (struct iovec){ .iov_base = to, .iov_len = ep->tx.queued - ep->tx.sent };
    ep->tx.iov_n = ep->tx.iov_first + 1;
    ep->tx.out_used = ep->cfg.out_cap;
    ep->tx.out_end = ep->tx.queued;
}
