/*
 * What goes wrong, told once: which Terminate goes out (RFC 5040 sections 4.8 and 7.1) and what
 * stops.
 * RFC 5040 7.1/1: "the RDMAP layer MUST attempt to inform the local ULP that the error has occurred":
 * poll says so, and iwarp_error what it was.
 * RFC 5041 6.2.2/1,4 and RFC 5041 6.2/1: fatal errors are told to the ULP; whether and when the stream ends is
 * its decision.
 * RFC 5041 7.1/6: one more message, the Terminate, still goes out.
 * RFC 5040 7.1 rule 4: the first error is the one the Terminate tells.
 *
 * Only the first error counts (section 7.1 item 4), from whichever side; "failed" decides who was
 * first.
 */
#include <errno.h>
#include <string.h>

#include "core/base/trace.h"
#include "core/iwarp/iwarp.h"
#include "core/iwarp/iwarp_impl.h"

static void fail(struct iwarp_ep *ep, const struct terminate *t, bool may_send)
{
    if (atomic_exchange_explicit(&ep->failed, true, memory_order_acq_rel))
        return;
    ep->error = t->code;
    ep->term = *t;
    ep->stats.errors++;
    atomic_store_explicit(&ep->term_state, may_send ? IWARP_TERM_QUEUED : IWARP_TERM_NONE, memory_order_relaxed);
    atomic_store_explicit(&ep->state, IWARP_TERMINATING, memory_order_release);
    trace_info("iwarp %p: %s (%u/%u/%u)", (void *)ep, term_code_text(t->code), t->code.layer, t->code.etype,
               t->code.code);
}

/*
 * RFC 5044 section 7.1.2 rule 4: the responder sends no FPDU before it has received a valid one, so
 * until then an error stays unsaid.
 */
static bool heard_valid_fpdu(const struct iwarp_ep *ep)
{
    return iwarp_state_load(ep) != IWARP_WAIT_RTR;
}

/* RFC 5040 7.1 rule 1: "not directly associated with an incoming Message": no headers. */
void iwarp_fail(struct iwarp_ep *ep, struct term_code code)
{
    struct terminate t = { .code = code };

    fail(ep, &t, heard_valid_fpdu(ep));
}

void iwarp_fail_fpdu(struct iwarp_ep *ep, int err)
{
    /*
     * RFC 5044 8 code 2/1,2, RFC 5044 8 code 3/2. RFC 5044 8/2: the Terminate still goes out, nothing is closed
     * here.
     */
    iwarp_fail(ep, (struct term_code){ TERM_LAYER_LLP, 0, err == -EILSEQ ? TERM_MPA_MARKER : TERM_MPA_CRC });
}

void iwarp_fail_short(struct iwarp_ep *ep, size_t ulpdu_len)
{
    /* No RFC has a number for it; there is no header to send back, only the length. */
    struct terminate t = {
        .code = { TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED },
        .has_len = true,
        .ddp_segment_len = (uint16_t)ulpdu_len,
    };

    fail(ep, &t, true);
}

/* RFC 5041 7.1/4: "SHOULD include in the error report the DDP Header, the type of error, and the length". */
/* RFC 5041 8.3 item 5: an invalid access is passed up like all errors. */
void iwarp_fail_segment(struct iwarp_ep *ep, const struct iwarp_segment *s, uint8_t layer, uint8_t etype, uint8_t code)
{
    struct terminate t = { .code = { layer, etype, code } };

    /*
     * RFC 5040 4.8/4-6 and RFC 5040 7.1 rule 2: Figure 10: length and DDP header except for local catastrophic
     * and LLP errors;
     * the Read Request header for remote protection errors.
     */
    if (layer != TERM_LAYER_LLP && etype != TERM_RDMAP_CATASTROPHIC) {
        t.has_len = t.has_ddp_hdr = true;
        t.ddp_segment_len = (uint16_t)s->ulpdu_len;
        t.ddp_hdr_len = (uint8_t)s->hdr_len;
        memcpy(t.ddp_hdr, s->ulpdu, s->hdr_len);
    }
    /* RFC 5040 7.1 rule 3: a Read Request's header, and no other message's. */
    if (layer == TERM_LAYER_RDMAP && etype == TERM_RDMAP_PROTECTION && s->opcode == RDMAP_READ_REQUEST &&
        s->len >= RDMAP_READ_HDR_LEN) {
        t.has_read_hdr = true;
        memcpy(t.read_hdr, s->payload, RDMAP_READ_HDR_LEN);
    }
    fail(ep, &t, true);
}

void iwarp_fail_closed(struct iwarp_ep *ep)
{
    if (atomic_exchange_explicit(&ep->failed, true, memory_order_acq_rel))
        return;
    /*
     * RFC 5044 8 code 1/1,2, RFC 5041 6.2.2/2 and RFC 5041 7/1: "errors reported to DDP SHOULD be passed up to
     * the ULP".
     * The other half may be intact: RFC 5041 6.2.2/3: "DDP SHOULD continue to allow the ULP to transfer
     * additional DDP Messages on the outgoing half connection".
     */
    ep->error = (struct term_code){ TERM_LAYER_LLP, 0, TERM_MPA_CLOSED };
    trace_info("iwarp %p: %s", (void *)ep, term_code_text(ep->error));
}

void iwarp_fail_read(struct iwarp_ep *ep, const struct iwarp_ctrl *c, uint32_t off)
{
    struct ddp_segment seg = {
        .last = true,
        .ulp_ctrl = rdmap_ctrl(RDMAP_READ_REQUEST),
        .qn = RDMAP_QN_READ_REQUEST,
        .msn = c->msn,
    };
    /* RFC 5040 section 4.8: "updated to reflect the current location of the RDMA Read operation". */
    struct rdmap_read rd = {
        .sink_stag = c->read.sink_stag,
        .sink_to = c->read.sink_to + off,
        .len = c->read.len - off,
        .src_stag = c->read.src_stag,
        .src_to = c->read.src_to + off,
    };
    struct terminate t = {
        .code = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_INVALID_STAG },
        .has_len = true,
        .has_ddp_hdr = true,
        .has_read_hdr = true,
        .ddp_segment_len = DDP_UNTAGGED_HDR_LEN + RDMAP_READ_HDR_LEN,
        .ddp_hdr_len = DDP_UNTAGGED_HDR_LEN,
    };

    (void)ddp_segment_encode(&seg, t.ddp_hdr);
    rdmap_read_encode(&rd, t.read_hdr);
    fail(ep, &t, true);
}

void iwarp_terminated(struct iwarp_ep *ep, const uint8_t *payload, size_t len)
{
    struct terminate t;

    if (atomic_exchange_explicit(&ep->failed, true, memory_order_acq_rel))
        return;
    /*
     * RFC 5040 5.4/6: delivered. RFC 5040 6.2.1/2: what is under way ends in error: after a Terminate "the Remote
     * Peer MAY stop sending".
     * One too short to say anything is a Terminate all the same, and is not answered with another.
     */
    if (terminate_decode(payload, len, &t) < 0)
        t.code = (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED };
    ep->error = t.code;
    ep->stats.errors++;
    atomic_store_explicit(&ep->state, IWARP_TERMINATED, memory_order_release);
    trace_info("iwarp %p: the peer terminates: %s (%u/%u/%u)", (void *)ep, term_code_text(t.code), t.code.layer,
               t.code.etype, t.code.code);
}
