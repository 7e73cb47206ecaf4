/*
 * The software endpoint's receive side: the staging buffer, and one segment after the other through
 * the rules of DDP (RFC 5041 section 7.1) and RDMAP (RFC 5040 section 7.2) to placement or an
 * event.
 *
 *   in_fed -> mpa_fpdu_decode -> ddp_segment_decode -> [this file] -> stream
 *
 * Nothing a peer says is believed before it is checked: every length is compared in 64 bits, every
 * region bound to the octet, and no octet is placed or handed up from a frame whose CRC or headers
 * are wrong.
 */
#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/fault.h"
#include "core/base/probe.h"
#include "core/iwarp/iwarp.h"
#include "core/iwarp/iwarp_impl.h"

enum rx_result {
    RX_DONE,   /* absorbed, placed or queued */
    RX_EVENT,  /* *ev is filled in */
    RX_FAILED, /* the error has been recorded */
};

/* ---- staging ---- */

#define ULPDU_MIN DDP_TAGGED_HDR_LEN
/* A partial frame is moved to the front when there is less room than this behind tail. */
#define IN_ROOM_WANTED 65536u

/* The octets of a Send of several segments that are joined already. */
static size_t part_len(const struct iwarp_ep *ep)
{
    return ep->rx.part_at > 0 ? (size_t)ep->rx.msg_len : 0;
}

/* All that was handed up has been given back. (A part of a message was not handed up.) */
static size_t nothing_held(const struct iwarp_ep *ep)
{
    return ep->rx.part_at > 0 ? ep->rx.part_at : ep->rx.head;
}

/*
 * Moves what is there to the front: octets handed up (they end at `used`), the part of a message, frames to decode.
 * (part_at is never 0: an FPDU's headers lie before its first octet, and leave room for them.)
 */
static void move_down(struct iwarp_ep *ep, size_t used)
{
    uint8_t *in = ep->cfg.in_buf;
    size_t part = part_len(ep), staged = ep->rx.tail - ep->rx.head;

    if (part > 0) {
        used += MPA_HDR_LEN;
        memmove(in + used, in + ep->rx.part_at, part);
        ep->rx.part_at = used;
        used += part;
    }
    memmove(in + used, in + ep->rx.head, staged);
    ep->rx.head = used;
    ep->rx.tail = used + staged;
}

size_t iwarp_in_space(struct iwarp_ep *ep, uint8_t **p)
{
    size_t cap = ep->cfg.in_cap, staged = ep->rx.tail - ep->rx.head, room = cap - ep->rx.tail;
    size_t part = part_len(ep);

    /* When nothing is handed up, what is staged may move; otherwise the ULP's pointers forbid it. */
    if (ep->rx.hold == nothing_held(ep) && ep->rx.head > part + MPA_HDR_LEN &&
        ((staged == 0 && part == 0) || room == 0 || (room < IN_ROOM_WANTED && staged + part <= ep->rx.head))) {
        move_down(ep, 0);
        ep->rx.last_end = 0;
        ep->rx.hold = nothing_held(ep);
    }
    *p = ep->cfg.in_buf + ep->rx.tail;
    return cap - ep->rx.tail;
}

bool iwarp_in_free(const struct iwarp_ep *ep)
{
    return ep->rx.hold == ep->rx.head && ep->rx.part_at == 0;
}

void iwarp_in_compact(struct iwarp_ep *ep)
{
    if (ep->rx.head == 0)
        return;
    move_down(ep, 0);
    ep->rx.last_end = 0;
    ep->rx.hold = ep->rx.head;
}

#define PACK_WORTH 4096u /* octets to be won */

bool iwarp_pack(struct endpoint *e, const uint8_t **p, size_t len)
{
    struct iwarp_ep *ep = iwarp_of(e);

    SW_CHECK(*p >= ep->cfg.in_buf && (size_t)(*p - ep->cfg.in_buf) + len <= ep->rx.head && len > 0, "pack of %zu", len);
    if (ep->rx.head < len + part_len(ep) + MPA_HDR_LEN + PACK_WORTH)
        return false;
    memmove(ep->cfg.in_buf, *p, len);
    *p = ep->cfg.in_buf;
    move_down(ep, len);
    ep->rx.hold = 0;
    ep->rx.last_end = len;
    return true;
}

void iwarp_in_fed(struct iwarp_ep *ep, size_t n)
{
    SW_CHECK(n <= ep->cfg.in_cap - ep->rx.tail, "fed %zu, room %zu", n, ep->cfg.in_cap - ep->rx.tail);
    ep->rx.tail += n;
}

size_t iwarp_in_need(const struct iwarp_ep *ep)
{
    size_t staged = ep->rx.tail - ep->rx.head, whole;

    if (staged == 0)
        return 0;
    whole = mpa_fpdu_expect(&ep->cfg.rx, ep->rx.pos, ep->cfg.in_buf + ep->rx.head, staged);
    if (whole == 0)
        whole = mpa_fpdu_wire_len(&ep->cfg.rx, ep->rx.pos, ULPDU_MIN);
    return whole > staged ? whole - staged : 0;
}

/*
 * RFC 5044 7.2/1, RFC 5041 3 item 9/1,2 (also of the connection: it has one stream): a graceful end is told from
 * another one.
 */
bool iwarp_in_eof(const struct iwarp_ep *ep)
{
    return ep->rx.tail == ep->rx.head && !ep->rx.in_message;
}

bool iwarp_in_end(struct iwarp_ep *ep)
{
    if (iwarp_in_eof(ep))
        return true;
    iwarp_fail_closed(ep);
    return false;
}

void iwarp_release(struct endpoint *e, const uint8_t *upto)
{
    struct iwarp_ep *ep = iwarp_of(e);
    size_t off = (size_t)(upto - ep->cfg.in_buf);

    SW_CHECK(upto >= ep->cfg.in_buf && off <= ep->rx.head, "release of %zu, head %zu", off, ep->rx.head);
    if (off > ep->rx.hold)
        ep->rx.hold = off;
    /* Behind the last event's data nothing needs to be kept: its pad and CRC, and frames absorbed since. */
    if (ep->rx.hold >= ep->rx.last_end)
        ep->rx.hold = nothing_held(ep);
}

/* ---- rules common to all messages ---- */

static enum rx_result fail(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t layer, uint8_t etype,
                           uint8_t code)
{
    iwarp_fail_segment(ep, s, layer, etype, code);
    return RX_FAILED;
}

static enum rx_result fail_tagged(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t code)
{
    return fail(ep, s, TERM_LAYER_DDP, TERM_DDP_TAGGED, code);
}

static enum rx_result fail_untagged(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t code)
{
    return fail(ep, s, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, code);
}

static enum rx_result fail_operation(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t code)
{
    return fail(ep, s, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, code);
}

/*
 * RFC 5041 4.2/9: "Each DDP Segment within a specific DDP Message MUST contain the same" STag, and the
 * TO advances by exactly the payload. A segment without payload that is not the last gets nowhere, and a peer
 * could send such for ever.
 */
static enum rx_result check_tagged(struct iwarp_ep *ep, const struct iwarp_segment *s)
{
    if (ep->rx.in_message) {
        if (s->ddp.stag != ep->rx.msg_stag)
            return fail_tagged(ep, s, DDP_TAGGED_INVALID_STAG);
        if (s->ddp.to != ep->rx.msg_to)
            return fail_tagged(ep, s, DDP_TAGGED_BOUNDS);
    }
    if (s->len == 0 && !s->ddp.last)
        return fail_tagged(ep, s, DDP_TAGGED_BOUNDS);
    /* RFC 5041 5.2/3: "The ULP Message Length MUST be less than 2^32." */
    if ((ep->rx.in_message ? ep->rx.msg_len : 0) + s->len > UINT32_MAX)
        return fail_tagged(ep, s, DDP_TAGGED_BOUNDS);
    return RX_DONE;
}

/*
 * RFC 5041 7.1 untagged 3 and 4: segments come without gap or overlap.
 * RFC 5041 7.1 untagged 5: the MSN is of an available buffer. The LLP delivers in order, so it is the
 * next one of its queue; how many there are is in each queue's own rule: for Sends as many as the LLP
 * lets in, for Reads IRD, for the Terminate one.
 */
static enum rx_result check_untagged(struct iwarp_ep *ep, const struct iwarp_segment *s)
{
    bool goes_on = ep->rx.in_message && s->ddp.qn == RDMAP_QN_SEND;

    if (s->ddp.msn != ep->rx.msn[s->ddp.qn])
        return fail_untagged(ep, s, TERM_DDP_U_MSN_RANGE);
    if (s->ddp.mo != (goes_on ? ep->rx.msg_len : 0))
        return fail_untagged(ep, s, TERM_DDP_U_INVALID_MO);
    if (s->len == 0 && !s->ddp.last)
        return fail_untagged(ep, s, TERM_DDP_U_INVALID_MO);
    return RX_DONE;
}

/*
 * After a segment was taken: where its message stands.
 * RFC 5041 5.3/4 and RFC 7306 6.3/4: no MSN counts twice, so that nothing is delivered more than once.
 */
static void message_goes_on(struct iwarp_ep *ep, const struct iwarp_segment *s)
{
    ep->rx.msg_len = (ep->rx.in_message ? ep->rx.msg_len : 0) + s->len;
    ep->rx.in_message = !s->ddp.last;
    ep->rx.msg_opcode = s->opcode;
    if (s->ddp.tagged) {
        ep->rx.msg_stag = s->ddp.stag;
        ep->rx.msg_to = s->ddp.to + s->len;
    } else if (s->ddp.last) {
        ep->rx.msn[s->ddp.qn]++; /* RFC 5041 4.3/10: "MUST wrap to 0 after a value of 0xFFFFFFFF" */
    }
}

/* Returns the region for [to, to+len) of a segment with payload, or NULL with the error recorded. */
static struct ddp_region *region_of(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t access)
{
    struct ddp_region *region;
    bool rights;
    enum ddp_tagged_err err = ddp_stags_check(iwarp_stags_of(ep, s->ddp.stag), &ep->cfg.who, s->ddp.stag, s->ddp.to,
                                              s->len, access, &region, &rights);

    if (err == DDP_TAGGED_OK)
        return region;
    /*
     * RFC 5041 7.1 tagged 2: a buffer that does not allow it. DDP has no number for rights: it is an
     * STag not valid for that, as Linux says, too. (RDMAP's "access rights violation" is for Reads:
     * RFC 5040 section 4.8, Figure 10.)
     */
    (void)fail_tagged(ep, s, (uint8_t)err);
    return NULL;
}

/* RFC 5041 8.3.1 item 3: no octet outside what the region's owner has opened. */
/* RFC 5041 5.2/5: "MUST Place the ULP Payload contained in all valid incoming DDP Segments". */
static void place(const struct ddp_region *region, const struct iwarp_segment *s)
{
    memcpy(region->base + (s->ddp.to - region->to), s->payload, s->len);
}

/* ---- by opcode ---- */

static enum rx_result rx_write(struct iwarp_ep *ep, const struct iwarp_segment *s, struct endpoint_event *ev)
{
    struct ddp_region *region = NULL;

    if (s->len == 0 && s->ddp.last && !ep->rx.in_message) {
        /*
         * RFC 5040 5.1/3: "MUST NOT be delivered": no Write makes an event.
         * RFC 5041 5.2/10,11: "The STag and TO fields MUST NOT be checked for a zero-length Tagged DDP
         * Message."
         */
        ep->stats.rx_writes++;
        ep->stats.rx_empty++;
        return RX_DONE;
    }
    if (check_tagged(ep, s) != RX_DONE)
        return RX_FAILED;
    if (s->len > 0) {
        region = region_of(ep, s, DDP_ACCESS_REMOTE_WRITE);
        if (!region)
            return RX_FAILED;
    }
    message_goes_on(ep, s);
    if (s->ddp.last)
        ep->stats.rx_writes++;
    if (!region)
        return RX_DONE;
    if (!region->deferred) {
        place(region, s);
        return RX_DONE;
    }
    *ev = (struct endpoint_event){
        .type = ENDPOINT_WRITE,
        .data = s->payload,
        .len = s->len,
        .to = s->ddp.to,
    };
    return RX_EVENT;
}

static uint8_t read_error(enum ddp_tagged_err err, bool rights)
{
    if (rights)
        return TERM_RDMAP_ACCESS;
    switch (err) {
    case DDP_TAGGED_BOUNDS:
        return TERM_RDMAP_BOUNDS;
    case DDP_TAGGED_NOT_ASSOCIATED:
        return TERM_RDMAP_NOT_ASSOCIATED;
    case DDP_TAGGED_TO_WRAP:
        return TERM_RDMAP_TO_WRAP;
    default:
        return TERM_RDMAP_INVALID_STAG;
    }
}

static enum rx_result rx_read_request(struct iwarp_ep *ep, const struct iwarp_segment *s,
                                      struct endpoint_event *ev SW_UNUSED)
{
    uint32_t head = atomic_load_explicit(&ep->ctrl.head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&ep->ctrl.tail, memory_order_acquire);
    uint32_t ird = ep->cfg.ird;
    struct iwarp_ctrl c = { .msn = s->ddp.msn };
    enum ddp_tagged_err err;
    bool rights;

    if (check_untagged(ep, s) != RX_DONE)
        return RX_FAILED;
    /* The untagged buffer of this queue is as long as one Read Request header. */
    if (s->len > RDMAP_READ_HDR_LEN || (!s->ddp.last && s->len == RDMAP_READ_HDR_LEN))
        return fail_untagged(ep, s, TERM_DDP_U_TOO_LONG);
    if (!s->ddp.last || rdmap_read_decode(s->payload, s->len, &c.read) < 0)
        return fail_operation(ep, s, TERM_RDMAP_UNSPECIFIED);
    /*
     * RFC 5040 5.2.2/3, RFC 5040 6.1/2,5 and RFC 5040 8.1.1 item 11: there are IRD buffers on this queue.
     * RFC 5041 7.1 untagged 2: one Request more has none. A Read as RTR is taken even with IRD 0.
     */
    if (ird == 0 && iwarp_state_load(ep) == IWARP_WAIT_RTR)
        ird = 1;
    if (head - tail >= ird) /* RFC 5042 6.4.3.3/2 */
        return fail_untagged(ep, s, TERM_DDP_U_NO_BUFFER);
    /* RFC 5040 5.2.1/13,14: size zero: "MUST NOT validate the Data Source STag". */
    if (c.read.len > 0) {
        /* RFC 5040 7.2 read 4/1-5: a to e. */
        err = ddp_stags_check(iwarp_stags_of(ep, c.read.src_stag), &ep->cfg.who, c.read.src_stag, c.read.src_to,
                              c.read.len, DDP_ACCESS_REMOTE_READ, &c.src, &rights);
        if (err == DDP_TAGGED_OK && c.src->deferred) {
            err = DDP_TAGGED_INVALID_STAG; /* nothing behind it to read */
            rights = true;
        }
        if (err != DDP_TAGGED_OK)
            return fail(ep, s, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, read_error(err, rights));
    }
    message_goes_on(ep, s);
    ep->stats.rx_reads++;
    ep->stats.rx_empty += c.read.len == 0;
    /*
     * RFC 5040 5.2.1/4,5,9 and RFC 5040 5.5 rule 12: processed here, in order, once it is whole; the ULP hears
     * nothing.
     */
    ep->ctrl.slot[head % IWARP_IRD_MAX] = c;
    atomic_store_explicit(&ep->ctrl.head, head + 1, memory_order_release);
    return RX_DONE;
}

static enum rx_result rx_read_response(struct iwarp_ep *ep, const struct iwarp_segment *s,
                                       struct endpoint_event *ev SW_UNUSED)
{
    uint64_t done = atomic_load_explicit(&ep->reads.done, memory_order_relaxed);
    const struct rdmap_read *rd = &ep->reads.slot[done % IWARP_ORD_MAX];
    uint64_t got = ep->rx.in_message ? ep->rx.msg_len : 0;
    struct ddp_region *region = NULL;

    /* No Read was posted. */
    if (atomic_load_explicit(&ep->reads.posted, memory_order_acquire) == done)
        return fail_operation(ep, s, TERM_RDMAP_OPCODE);
    if (check_tagged(ep, s) != RX_DONE)
        return RX_FAILED;
    if (s->len > rd->len - got)
        return fail_tagged(ep, s, DDP_TAGGED_BOUNDS);
    if (s->len > 0) {
        /*
         * RFC 5040 section 5.2.2: "MAY validate that the STag, Tagged Offset, and length ... are
         * the same". We do.
         */
        /* RFC 5041 4.2/8: "MUST provide the STag field when the ULP Message is delivered". */
        if (s->ddp.stag != rd->sink_stag)
            return fail_tagged(ep, s, DDP_TAGGED_INVALID_STAG);
        if (s->ddp.to != rd->sink_to + got)
            return fail_tagged(ep, s, DDP_TAGGED_BOUNDS);
        region = region_of(ep, s, DDP_ACCESS_LOCAL_SINK);
        if (!region)
            return RX_FAILED;
        if (region->deferred)
            return fail_tagged(ep, s, DDP_TAGGED_INVALID_STAG);
    }
    if (s->ddp.last && got + s->len != rd->len)
        return fail_operation(ep, s, TERM_RDMAP_UNSPECIFIED); /* shorter than asked for */
    if (region)
        place(region, s);
    message_goes_on(ep, s);
    /*
     * RFC 5040 5.2.2/4, RFC 5040 5.5 rules 11 and 19, RFC 5040 5.5/1: the Read is complete with its delivered
     * response.
     */
    if (s->ddp.last)
        atomic_store_explicit(&ep->reads.done, done + 1, memory_order_release);
    return RX_DONE;
}

/*
 * RFC 5040 5.3/10,11 and RFC 5040 7.2 items 4 and 5: "Invalidate the STag if it is associated with the RDMAP
 * Stream", and the peer has
 * rights to it.
 */
static bool invalidate(struct iwarp_ep *ep, uint32_t stag)
{
    struct ddp_stags *table = iwarp_stags_of(ep, stag);
    struct ddp_region *region = ddp_stags_find(table, stag);

    if (!region || !ddp_region_is_of(region, &ep->cfg.who) ||
        !(region->access & (DDP_ACCESS_REMOTE_READ | DDP_ACCESS_REMOTE_WRITE)))
        return false;
    /*
     * RFC 5040 8.1.1 item 7 and RFC 5042 6.4.5/1: what several streams share, none of their peers can take from the
     * others.
     */
    if (table == ep->cfg.shared && region->of.id == 0)
        return false;
    return ddp_stags_revoke(table, stag) == 0;
}

static enum rx_result rx_send(struct iwarp_ep *ep, const struct iwarp_segment *s, struct endpoint_event *ev)
{
    bool inv = s->opcode == RDMAP_SEND_INV || s->opcode == RDMAP_SEND_SE_INV;
    bool whole = s->ddp.last && !ep->rx.in_message;
    const uint8_t *data = s->payload;

    if (check_untagged(ep, s) != RX_DONE)
        return RX_FAILED;
    if ((uint64_t)s->ddp.mo + s->len > ep->cfg.send_max)
        return fail_untagged(ep, s, TERM_DDP_U_TOO_LONG); /* RFC 5041 7.1 untagged 4 */
    if (!whole && ep->cfg.in_cap < iwarp_in_min(&ep->cfg) + MPA_HDR_LEN + ep->cfg.send_max)
        return fail_untagged(ep, s, TERM_DDP_U_NO_BUFFER);
    if (inv && s->ddp.last && !invalidate(ep, s->ddp.ulp_word))
        return fail(ep, s, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_CANNOT_INVALIDATE);

    if (ep->rx.in_message) {
        memmove(ep->cfg.in_buf + ep->rx.part_at + ep->rx.msg_len, s->payload, s->len);
        data = ep->cfg.in_buf + ep->rx.part_at;
    }
    message_goes_on(ep, s);
    ep->rx.part_at = s->ddp.last ? 0 : (size_t)(data - ep->cfg.in_buf);
    /* RFC 5040 5.3/4 and RFC 5040 5.5 rules 10 and 16: delivered after and as DDP has done. */
    /* RFC 5041 4.1/7: delivered with the last segment; what came before it is placed already. */
    if (!s->ddp.last)
        return RX_DONE;
    /*
     * The first FPDU, when an RTR was agreed: it uses up an MSN and is not the ULP's (RFC 6581
     * section 9.2).
     */
    if (s->len == 0 && whole && iwarp_state_load(ep) == IWARP_WAIT_RTR && ep->cfg.rtr)
        return RX_DONE;
    ep->stats.rx_sends++;
    ep->stats.rx_empty += ep->rx.msg_len == 0;
    /* RFC 5041 5.4/2: with the message's length; RFC 5041 4.3/3 and RFC 5041 5.4/3: with what RsvdULP says. */
    *ev = (struct endpoint_event){
        .type = ENDPOINT_SEND,
        .solicited = s->opcode == RDMAP_SEND_SE || s->opcode == RDMAP_SEND_SE_INV,
        .invalidated = inv ? s->ddp.ulp_word : 0, /* RFC 5040 4.1/10: in other Sends it is ignored */
        .data = data,
        .len = (size_t)ep->rx.msg_len,
    };
    return RX_EVENT;
}

static enum rx_result rx_immediate(struct iwarp_ep *ep, const struct iwarp_segment *s, struct endpoint_event *ev)
{
    if (!ep->cfg.immediate)
        return fail_operation(ep, s, TERM_RDMAP_OPCODE); /* RFC 7306 8.2/1,3: we have not offered it */
    if (check_untagged(ep, s) != RX_DONE)                /* RFC 7306 6.3/3 and RFC 7306 8.2/2 */
        return RX_FAILED;
    /* RFC 7306 6.3/8 and RFC 7306 8.1/1: "MUST check that ... Messages include exactly 8 bytes of data". */
    if (!s->ddp.last || s->len != RDMAP_IMMEDIATE_LEN)
        return fail_operation(ep, s, TERM_RDMAP_UNSPECIFIED);
    message_goes_on(ep, s);
    ep->stats.rx_immediates++;
    *ev = (struct endpoint_event){
        .type = ENDPOINT_IMMEDIATE,
        .data = s->payload,
        .len = s->len,
        .solicited = s->opcode == RDMAP_IMMEDIATE_SE,
    };
    return RX_EVENT;
}

static enum rx_result rx_terminate(struct iwarp_ep *ep, const struct iwarp_segment *s, struct endpoint_event *ev)
{
    if (check_untagged(ep, s) != RX_DONE)
        return RX_FAILED;
    if (!s->ddp.last)
        return fail_untagged(ep, s, TERM_DDP_U_TOO_LONG);
    iwarp_terminated(ep, s->payload, s->len);
    /* RFC 5040 5.4/4,7: the one buffer there is; delivered to the ULP. */
    *ev = (struct endpoint_event){ .type = ENDPOINT_TERMINATED };
    return RX_EVENT;
}

/*
 * What is not here is an unexpected opcode: among it Atomics (RFC 7306 section 5), which we do not
 * do. (A response to one comes on a queue that is not there either.)
 */
static const struct {
    enum rx_result (*handle)(struct iwarp_ep *ep, const struct iwarp_segment *s, struct endpoint_event *ev);
    bool between; /* may come between the segments of another message */
} rx_opcode[16] = {
    [RDMAP_WRITE] = { rx_write, false },
    [RDMAP_READ_REQUEST] = { rx_read_request, false },
    [RDMAP_READ_RESPONSE] = { rx_read_response, false },
    [RDMAP_SEND] = { rx_send, false },
    [RDMAP_SEND_INV] = { rx_send, false },
    [RDMAP_SEND_SE] = { rx_send, false },
    [RDMAP_SEND_SE_INV] = { rx_send, false },
    [RDMAP_TERMINATE] = { rx_terminate, true },
    [RDMAP_IMMEDIATE] = { rx_immediate, false },
    [RDMAP_IMMEDIATE_SE] = { rx_immediate, false },
};

/* placed: the address of its payload if that is not behind its header. */
static enum rx_result rx_segment(struct iwarp_ep *ep, const struct mpa_fpdu *f, const uint8_t *placed,
                                 struct endpoint_event *ev)
{
    const struct rdmap_opcode_rule *rule;
    struct iwarp_segment s = { .ulpdu = f->ulpdu, .ulpdu_len = f->ulpdu_len };
    ssize_t n = ddp_segment_decode(f->ulpdu, f->ulpdu_len, &s.ddp);

    if (n < 0) {
        iwarp_fail_short(ep, f->ulpdu_len);
        return RX_FAILED;
    }
    s.hdr_len = (size_t)n;
    s.payload = placed != NULL ? placed : f->ulpdu + n;
    s.len = f->ulpdu_len - (size_t)n;
    s.opcode = rdmap_ctrl_opcode(s.ddp.ulp_ctrl);
    rule = &rdmap_opcode_rules[s.opcode];

    /*
     * RFC 5040 7.2 item 1, RFC 5040 7.2 read 1 and RFC 5040 3.1/1: "The DDP layer MUST validate all DDP Segment
     * fields": from the lower layer up. Until the versions are known to be ours (RFC 5044 C.1/1) no other field means
     * anything.
     */
    if (s.ddp.version != DDP_VERSION)
        return s.ddp.tagged ? fail_tagged(ep, &s, DDP_TAGGED_VERSION) : fail_untagged(ep, &s, TERM_DDP_U_VERSION);
    /* RFC 5041 7.1 untagged 1: the QN is valid. */
    if (!s.ddp.tagged && s.ddp.qn >= RDMAP_QN_MAX)
        return fail_untagged(ep, &s, TERM_DDP_U_INVALID_QN);
    /* RFC 5040 7.2 item 3, RFC 5040 7.2 read 3, RFC 7306 8.2/4: "The RDMA Version MUST be valid." */
    if (rdmap_ctrl_version(s.ddp.ulp_ctrl) != RDMAP_VERSION)
        return fail_operation(ep, &s, TERM_RDMAP_VERSION);
    /*
     * RFC 5040 7.2 item 2, RFC 5040 7.2 read 2: "The RDMA OpCode MUST be valid."
     * RFC 5041 4.1/1,2: T says which kind of buffer it is. RFC 5041 4.2/3: RsvdULP goes up with the segment.
     */
    if (!rx_opcode[s.opcode].handle || s.ddp.tagged != rule->tagged)
        return fail_operation(ep, &s, TERM_RDMAP_OPCODE);
    if (!s.ddp.tagged && s.ddp.qn != rule->qn)
        return fail_untagged(ep, &s, TERM_DDP_U_INVALID_QN);
    if (ep->rx.in_message && s.opcode != ep->rx.msg_opcode && !rx_opcode[s.opcode].between)
        return fail_operation(ep, &s, TERM_RDMAP_OPCODE);
    return rx_opcode[s.opcode].handle(ep, &s, ev);
}

/*
 * siw (Linux 6.1) at times sends an FPDU whose octets are right and whose CRC is that of header, payload, payload. That
 * is as sure a sign of right octets as the CRC that RFC 5044 section 4.4 asks for, and ending the stream for it would
 * end one transfer in some. Only without markers, which siw does not know. The frame's length, or -EBADMSG.
 */
static ssize_t take_counted_twice(struct iwarp_ep *ep, struct mpa_fpdu *f)
{
    const struct mpa_framing unchecked = { .crc = false };
    uint8_t *frame = ep->cfg.in_buf + ep->rx.head;
    size_t need, hdr_len = MPA_HDR_LEN + (frame[MPA_HDR_LEN] & 0x80 ? DDP_TAGGED_HDR_LEN : DDP_UNTAGGED_HDR_LEN);
    ssize_t n =
        ep->cfg.rx.markers ? -EBADMSG : mpa_fpdu_decode(&unchecked, 0, frame, ep->rx.tail - ep->rx.head, f, &need);
    if (n < 0 || (size_t)n < hdr_len + MPA_CRC_LEN)
        return -EBADMSG;
    size_t covered = (size_t)n - MPA_CRC_LEN;
    uint32_t crc = crc32c_update(CRC32C_INIT, frame, covered);
    crc = crc32c_update(crc, frame + hdr_len, covered - hdr_len);
    if (crc32c_final(crc) != get_le32(frame + covered))
        return -EBADMSG;
    ep->stats.rx_crc_twice++;
    return n;
}

/*
 * The next frame, whole and checked: returns its length; 0: it has not arrived; -EPROTO: the stream has failed. placed:
 * as of a direct one.
 */
static inline ssize_t next_fpdu(struct iwarp_ep *ep, struct mpa_fpdu *f, const uint8_t **placed)
{
    size_t need;
    ssize_t n;

    if (ep->direct.placed_at < ep->direct.placed_n)
        n = iwarp_direct_decode(ep, f, placed);
    else
        n = mpa_fpdu_decode(&ep->cfg.rx, ep->rx.pos, ep->cfg.in_buf + ep->rx.head, ep->rx.tail - ep->rx.head, f, &need);
    if (n == -EAGAIN)
        return 0;
    if (SW_UNLIKELY(n == -EBADMSG) && ep->cfg.crc_twice)
        n = take_counted_twice(ep, f);
    if (SW_UNLIKELY(n < 0)) {
        iwarp_fail_fpdu(ep, (int)n);
        return -EPROTO;
    }
    return n;
}

/* Sets where ev's octets lie, and what in_buf holds from now on. none: it held nothing before this frame. */
static inline void note_place(struct iwarp_ep *ep, struct endpoint_event *ev, enum rx_result r, bool placed, bool none)
{
    if (placed) {
        ev->placed = true;
        ep->rx.hold = nothing_held(ep);
    } else if (r == RX_EVENT && ev->type != ENDPOINT_TERMINATED) {
        ep->rx.last_end = (size_t)(ev->data - ep->cfg.in_buf) + ev->len;
        ev->in_place = true;
    } else if (none) {
        ep->rx.hold = nothing_held(ep);
    }
}

static void probe_in(const struct iwarp_ep *ep, ssize_t n)
{
    (void)ep;
    (void)n;
    PROBE2(fpdu_in, ep, n);
}

/*
 * RFC 5041 5.3/1,5 and RFC 5041 5.4/1: one segment after the other in the LLP's order: what is delivered is whole, and
 * all before it were. RFC 5041 3 item 11: each octet of the LLP is looked at once.
 */
int iwarp_poll(struct endpoint *e, struct endpoint_event *ev)
{
    struct iwarp_ep *ep = iwarp_of(e);

    for (;;) {
        struct mpa_fpdu f;
        uint8_t state = iwarp_state_load(ep);
        bool none = ep->rx.hold == nothing_held(ep);
        const uint8_t *placed = NULL;
        enum rx_result r;
        ssize_t n;

        /* RFC 5044 8/1: "MUST NOT pass or deliver any additional FPDUs". */
        /* RFC 5041 7.1/3,5: "DDP MUST silently drop any subsequent incoming DDP Segments." */
        if (SW_UNLIKELY(state >= IWARP_TERMINATING))
            return -EPROTO;
        n = next_fpdu(ep, &f, &placed);
        if (n <= 0)
            return (int)n;
        r = rx_segment(ep, &f, placed, ev);
        if (r == RX_FAILED)
            return -EPROTO;

        ep->rx.head += (size_t)n;
        ep->rx.pos += (uint64_t)n; /* (not looked at where frames are placed directly: those have no markers) */
        ep->stats.rx_fpdus++;
        probe_in(ep, n);
        if (SW_UNLIKELY(state == IWARP_WAIT_RTR && iwarp_state_load(ep) == IWARP_WAIT_RTR))
            atomic_store_explicit(&ep->state, IWARP_FULL, memory_order_release);

        if (r == RX_EVENT && ev->type == ENDPOINT_WRITE)
            iwarp_run_write(ep, ev->len);
        else
            iwarp_run_other(ep, (size_t)n);
        note_place(ep, ev, r, placed != NULL, none);
        if (r == RX_EVENT)
            return 1;
    }
}
