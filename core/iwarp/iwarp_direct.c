/*
 * Direct placement in software: the payload of RDMA Writes to a deferred region goes from the pipe to where the ULP
 * wants it, without staging.
 *
 *   staging:   | header | trailer, header | trailer, header | trailer, …
 *   the ULP's:      | payload      | payload         | payload
 *
 * The first header must have arrived. What follows it is expected to be what followed last time (a run of Writes, and
 * the frame behind it). That expectation replaces no check: each frame passes through iwarp_poll like any other, with
 * its CRC, before its payload is used. A frame that is not as expected, or not whole, is completed in staging, where
 * iwarp_in_fed would have put it.
 *
 *   iwarp_direct_plan -> (pipe) -> iwarp_direct_fed -> iwarp_poll -> endpoint_event.placed
 */
#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"
#include "core/iwarp/iwarp.h"
#include "core/iwarp/iwarp_impl.h"

#define HDR_LEN (MPA_HDR_LEN + DDP_TAGGED_HDR_LEN)
/* What may precede a payload: its header, or a small frame and a header; and a few octets more. */
#define AHEAD 64u
/* The longest frame behind a run that is expected again. */
#define BETWEEN_MAX 20480u

/* ---- what came last ---- */

void iwarp_run_write(struct iwarp_ep *ep, size_t len)
{
    struct iwarp_run *now = &ep->rx.now;

    if (now->n < IWARP_RUN_MAX)
        now->len[now->n] = (uint16_t)len;
    if (now->n <= IWARP_RUN_MAX)
        now->n++;
}

void iwarp_run_other(struct iwarp_ep *ep, size_t wire_len)
{
    if (ep->rx.now.n > 0 && ep->rx.now.n <= IWARP_RUN_MAX && wire_len <= BETWEEN_MAX) {
        ep->rx.before = ep->rx.now;
        ep->rx.between = (uint32_t)wire_len;
    } else if (wire_len > AHEAD) {
        ep->rx.before.n = 0; /* (smaller ones do not break a run) */
    }
    ep->rx.now.n = 0;
}

/* Is this run, so far, the same as the one before? */
static bool as_before(const struct iwarp_ep *ep)
{
    const struct iwarp_run *now = &ep->rx.now, *before = &ep->rx.before;

    return now->n <= before->n && memcmp(now->len, before->len, now->n * sizeof(now->len[0])) == 0;
}

/* ---- the plan: what should come next ---- */

/* Is hdr the header of a Write of one segment to a deferred region? Fills in *seg and *region. */
static bool is_direct(struct iwarp_ep *ep, const uint8_t *hdr, struct ddp_segment *seg, struct ddp_region **region)
{
    size_t len = get_be16(hdr);
    bool rights;

    if (len <= DDP_TAGGED_HDR_LEN || !(hdr[MPA_HDR_LEN] & 0x80) ||
        ddp_segment_decode(hdr + MPA_HDR_LEN, DDP_TAGGED_HDR_LEN, seg) < 0)
        return false;
    return seg->last && seg->version == DDP_VERSION && rdmap_ctrl_version(seg->ulp_ctrl) == RDMAP_VERSION &&
           rdmap_ctrl_opcode(seg->ulp_ctrl) == RDMAP_WRITE &&
           ddp_stags_check(iwarp_stags_of(ep, seg->stag), &ep->cfg.who, seg->stag, seg->to, len - DDP_TAGGED_HDR_LEN,
                           DDP_ACCESS_REMOTE_WRITE, region, &rights) == DDP_TAGGED_OK &&
           (*region)->deferred;
}

/* The frame under way may be placed directly: its header has arrived. */
static bool may_begin(struct iwarp_ep *ep, size_t room, struct ddp_segment *seg, struct ddp_region **region)
{
    const uint8_t *hdr = ep->cfg.in_buf + ep->rx.head;
    size_t staged = ep->rx.tail - ep->rx.head, len;

    if (staged < HDR_LEN || ep->cfg.rx.markers || ep->rx.in_message || iwarp_state_load(ep) != IWARP_FULL)
        return false;
    len = (size_t)get_be16(hdr) - DDP_TAGGED_HDR_LEN;
    return is_direct(ep, hdr, seg, region) && len >= IWARP_DIRECT_MIN && len <= room && staged < HDR_LEN + len;
}

size_t iwarp_direct_ahead(struct iwarp_ep *ep, size_t room)
{
    const struct iwarp_run *now = &ep->rx.now, *before = &ep->rx.before;
    size_t staged = ep->rx.tail - ep->rx.head, len;
    struct ddp_region *region;
    struct ddp_segment seg;

    if (now->n + before->n == 0 || ep->cfg.rx.markers)
        return SIZE_MAX;
    /* A frame that is not placed directly has to be staged as a whole. */
    if (staged >= HDR_LEN)
        return may_begin(ep, room, &seg, &region) ? AHEAD : iwarp_in_need(ep) + AHEAD;
    if (before->n > 0 && now->n == before->n && as_before(ep))
        return ep->rx.between + AHEAD - staged;
    len = before->n > now->n ? before->len[now->n] : now->n > 0 && now->n <= IWARP_RUN_MAX ? now->len[now->n - 1] : 0;
    if (len < IWARP_DIRECT_MIN)
        return SIZE_MAX;
    return len <= room ? AHEAD - staged : len + HDR_LEN + AHEAD;
}

static size_t trailer_len(size_t payload)
{
    return mpa_fpdu_len(DDP_TAGGED_HDR_LEN + payload) - HDR_LEN - payload;
}

size_t iwarp_direct_plan(struct iwarp_ep *ep, uint8_t *dst, size_t room, struct iovec iov[IWARP_DIRECT_IOV])
{
    struct iwarp_direct_frame *plan = ep->direct.plan;
    struct ddp_region *region;
    struct ddp_segment seg;
    size_t n = 0, used = 0, left;
    uint64_t to_end;
    uint8_t *gap;
    bool known;

    ep->direct.n = 0;
    if (ep->direct.placed_n != ep->direct.placed_at || !iwarp_in_free(ep) || !may_begin(ep, room, &seg, &region))
        return 0;
    iwarp_in_compact(ep);
    gap = ep->cfg.in_buf + ep->rx.tail;
    left = ep->cfg.in_cap - ep->rx.tail;        /* there must be room for all of it in staging */
    to_end = region->to + region->len - seg.to; /* a Write ends there, whatever the previous run was like */
    plan[0].len = get_be16(ep->cfg.in_buf + ep->rx.head) - DDP_TAGGED_HDR_LEN;
    plan[0].staged = (uint32_t)(ep->rx.tail - ep->rx.head - HDR_LEN);
    known = ep->rx.before.n > ep->rx.now.n && as_before(ep) && ep->rx.before.len[ep->rx.now.n] == plan[0].len;
    if (left < plan[0].len + MPA_TRAILER_MAX)
        return 0;
    for (;;) {
        struct iwarp_direct_frame *f = &plan[n];
        size_t next = 0, behind = trailer_len(f->len);
        unsigned k = ep->rx.now.n + (unsigned)n + 1;

        f->payload = dst + used;
        used += f->len;
        left -= f->len - f->staged;
        to_end -= f->len;
        iov[2 * n] = (struct iovec){ f->payload + f->staged, f->len - f->staged };
        if (known && k < ep->rx.before.n && n + 1 < IWARP_DIRECT_FRAMES)
            next = ep->rx.before.len[k];
        if (next < IWARP_DIRECT_MIN || next > room - used || next > to_end ||
            behind + HDR_LEN + next + MPA_TRAILER_MAX > left) {
            behind += known && k == ep->rx.before.n ? ep->rx.between + HDR_LEN : AHEAD;
            next = 0;
        } else {
            behind += HDR_LEN;
        }
        f->gap = (uint32_t)(behind < left ? behind : left);
        iov[2 * n + 1] = (struct iovec){ gap, f->gap };
        gap += f->gap;
        left -= f->gap;
        n++;
        if (next == 0)
            break;
        plan[n].len = (uint32_t)next;
        plan[n].staged = 0;
    }
    ep->direct.n = (uint8_t)n;
    return 2 * n;
}

/* ---- what came ---- */

/* Is this header as expected: like the first, but for length and TO? */
static bool as_foreseen(const struct iwarp_ep *ep, const uint8_t *hdr, size_t payload)
{
    const uint8_t *first = ep->cfg.in_buf + ep->rx.head;

    return get_be16(hdr) == DDP_TAGGED_HDR_LEN + payload && memcmp(hdr + MPA_HDR_LEN, first + MPA_HDR_LEN, 6) == 0;
}

/*
 * Gathers the n octets that were placed in frame i's payload, and everything planned behind it, in staging at `at`,
 * where frame i's gap begins. It moves from the last piece to the first: each moves up.
 */
static void gather(struct iwarp_ep *ep, unsigned i, uint8_t *at, size_t n)
{
    const struct iwarp_direct_frame *plan = ep->direct.plan;
    struct iovec piece[IWARP_DIRECT_IOV];
    uint8_t *gap = at, *to = at + n;
    unsigned k = 0;

    for (; n > 0; i++) {
        size_t len = plan[i].len - plan[i].staged;

        SW_CHECK(i < ep->direct.n, "%zu octets more than planned", n);
        len = len < n ? len : n;
        piece[k++] = (struct iovec){ plan[i].payload + plan[i].staged, len };
        n -= len;
        len = plan[i].gap < n ? plan[i].gap : n;
        piece[k++] = (struct iovec){ gap, len };
        gap += plan[i].gap;
        n -= len;
    }
    while (k-- > 0) {
        to -= piece[k].iov_len;
        memmove(to, piece[k].iov_base, piece[k].iov_len);
    }
}

void iwarp_direct_fed(struct iwarp_ep *ep, size_t n)
{
    const struct iwarp_direct_frame *plan = ep->direct.plan;
    uint8_t *at = ep->cfg.in_buf + ep->rx.tail;
    unsigned i;

    ep->direct.placed_at = 0;
    for (i = 0; i < ep->direct.n; i++) {
        size_t len = plan[i].len - plan[i].staged, gap;

        if (n < len + trailer_len(plan[i].len) || (i > 0 && !as_foreseen(ep, at - HDR_LEN, plan[i].len)))
            break;
        gap = n - len < plan[i].gap ? n - len : plan[i].gap;
        n -= len + gap;
        at += gap;
    }
    ep->direct.placed_n = (uint8_t)i;
    gather(ep, i, at, n);
    ep->rx.tail = (size_t)(at - ep->cfg.in_buf) + n;
    ep->direct.n = 0;
}

ssize_t iwarp_direct_decode(struct iwarp_ep *ep, struct mpa_fpdu *out, const uint8_t **payload)
{
    const struct iwarp_direct_frame *f = &ep->direct.plan[ep->direct.placed_at];
    uint8_t *hdr = ep->cfg.in_buf + ep->rx.head;
    const uint8_t *trailer = hdr + HDR_LEN + f->staged;
    size_t pad = trailer_len(f->len) - MPA_CRC_LEN;

    /* RFC 5044 6/1,2 and RFC 5044 4.4/11,12: as mpa_fpdu_decode; no octet is delivered before. */
    if (ep->cfg.rx.crc) {
        uint32_t crc = crc32c_update(CRC32C_INIT, hdr, HDR_LEN + f->staged);

        crc = crc32c_update(crc, f->payload + f->staged, f->len - f->staged);
        if (crc32c_final(crc32c_update(crc, trailer, pad)) != get_le32(trailer + pad))
            return -EBADMSG;
    }
    memcpy(f->payload, hdr + HDR_LEN, f->staged);
    ep->direct.placed_at++;
    out->ulpdu = hdr + MPA_HDR_LEN;
    out->ulpdu_len = DDP_TAGGED_HDR_LEN + f->len;
    *payload = f->payload;
    return (ssize_t)(HDR_LEN + f->staged + pad + MPA_CRC_LEN);
}
