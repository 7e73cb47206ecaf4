/*
 * The negotiation's states, and MPA's startup frames in it (RFC 5044 section 7.1, RFC 6581).
 */
#include <errno.h>

#include "core/base/reason.h"
#include "core/base/sm.h"
#include "core/iwarp/startup_end.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/negotiate_parts.h"

static const struct sm_state states[] = {
    [NEGOTIATE_PEEK] = { "peek", SM_TO(NEGOTIATE_MPA) | SM_TO(NEGOTIATE_NAKED) | SM_TO(NEGOTIATE_PLAIN) },
    [NEGOTIATE_UNASKED] = { "unasked", SM_TO(NEGOTIATE_LATE) | SM_TO(NEGOTIATE_PLAIN) },
    /* (An initiator with cfg.immediate starts in mpa.) */
    [NEGOTIATE_HELLO] = { "hello", SM_TO(NEGOTIATE_MPA) | SM_TO(NEGOTIATE_PLAIN) | SM_TO(NEGOTIATE_FALLBACK) |
                                       SM_TO(NEGOTIATE_WITHDRAWN) | SM_TO(NEGOTIATE_DEVICE) | SM_TO(NEGOTIATE_LATE) },
    [NEGOTIATE_DEVICE] = { "device", SM_TO(NEGOTIATE_MPA) | SM_TO(NEGOTIATE_FALLBACK) },
    [NEGOTIATE_MPA] = { "mpa", SM_TO(NEGOTIATE_DONE) | SM_TO(NEGOTIATE_PLAIN) | SM_TO(NEGOTIATE_FALLBACK) |
                                   SM_TO(NEGOTIATE_FAILED) },
    [NEGOTIATE_NAKED] = { "naked", SM_TO(NEGOTIATE_PLAIN) },
    [NEGOTIATE_WITHDRAWN] = { "withdrawn", SM_TO(NEGOTIATE_PLAIN) },
    [NEGOTIATE_LATE] = { "late", SM_TO(NEGOTIATE_DONE) | SM_TO(NEGOTIATE_PLAIN) | SM_TO(NEGOTIATE_FAILED) |
                                     SM_TO(NEGOTIATE_FALLBACK) },
    /* (A responder whose answer was not taken.) */
    [NEGOTIATE_DONE] = { "done", SM_TO(NEGOTIATE_PLAIN) },
    [NEGOTIATE_PLAIN] = { "plain", 0 },
    [NEGOTIATE_FALLBACK] = { "fallback", 0 },
    [NEGOTIATE_FAILED] = { "failed", 0 },
};

void negotiate_move(struct negotiate *n, enum negotiate_state to, unsigned reason)
{
    sm_move(states, "negotiate", n, &n->state, (uint8_t)to);
    n->reason = (uint8_t)reason;
    if (to != NEGOTIATE_MPA)
        n->deadline_ns = 0;
}

/* The connection cannot go on as it is: the initiator connects again, the responder closes. */
/* RFC 5044 8 code 4/3: "the TCP connection MUST be immediately closed". */
void negotiate_spoil(struct negotiate *n, unsigned reason)
{
    n->out_len = n->out_off = 0;
    negotiate_move(n, n->cfg.responder ? NEGOTIATE_FAILED : NEGOTIATE_FALLBACK, reason);
}

/* As initiator behind the Reply: why the connection ends (RFC 6581 9.1/6, RFC 6581 9.2/9 and RFC 6581 9.3/1). */
static void put_terminate(struct negotiate *n, uint8_t code)
{
    struct mpa_framing framing = { .crc = n->mpa.res.crc, .markers = n->mpa.res.markers_tx };
    n->out_off = 0;
    n->out_len = startup_end_put(&framing, code, n->out);
}

/* The MPA startup failed. */
void negotiate_spoil_mpa(struct negotiate *n)
{
    uint8_t code;
    negotiate_spoil(n, REASON_MPA_FAILED);
    if (mpa_startup_terminates(&n->mpa, &code))
        put_terminate(n, code);
}

/* The Reply accepts, but on terms that this end cannot go on with: for MPA that is an error of this end's. */
static void spoil_params(struct negotiate *n)
{
    negotiate_spoil(n, REASON_PEER_LIMIT);
    put_terminate(n, TERM_MPA_LOCAL);
}

int negotiate_mpa_init(struct negotiate *n)
{
    uint8_t priv[STREAM_PARAMS_LEN];
    stream_params_encode(&n->cfg.params, priv);
    struct mpa_startup_cfg mpa = n->cfg.mpa;
    mpa.responder = n->cfg.responder;
    if (!mpa.responder) {
        mpa.priv = priv;
        mpa.priv_len = sizeof(priv);
    }
    return mpa_startup_init(&n->mpa, &mpa);
}

/* (negotiate_init has checked that this cannot fail.) */
void negotiate_mpa_restart(struct negotiate *n)
{
    int r = negotiate_mpa_init(n);
    SW_CHECK(r == 0, "mpa_startup_init %d", r);
}

/* The frames that follow the answer to the Hello. */
void negotiate_mpa_begin(struct negotiate *n, uint64_t now_ns)
{
    negotiate_mpa_restart(n);
    n->deadline_ns = now_ns + (n->cfg.responder ? NEGOTIATE_MPA_NS : n->cfg.timeout_ns);
    negotiate_move(n, NEGOTIATE_MPA, REASON_NONE);
}

/* The peer's private data must be sockwarp's, with valid values. */
bool negotiate_params_ok(struct negotiate *n)
{
    const struct mpa_startup_result *res = &n->mpa.res;
    if (stream_params_decode(res->peer_priv, res->peer_priv_len, &n->peer) < 0)
        return false;
    /* An end that counts on the LLP's flow control has no ring memory for a peer that needs credits. */
    return !(n->cfg.params.flags & STREAM_FLAG_LLP) || (n->peer.flags & STREAM_FLAG_LLP);
}

/* The Request has arrived. 0: the Reply that accepts it is ready; otherwise it is to be rejected. */
int negotiate_mpa_accept(struct negotiate *n)
{
    uint8_t priv[STREAM_PARAMS_LEN];
    stream_params_encode(&n->cfg.params, priv);
    return negotiate_params_ok(n) ? mpa_startup_accept(&n->mpa, priv, sizeof(priv)) : -EPROTO;
}

void negotiate_mpa_decide(struct negotiate *n)
{
    /* The peer has connected by its device: is the connection up at this end, too? */
    if (n->device == NEGOTIATE_DEVICE_ASKED)
        return;
    if (n->device == NEGOTIATE_DEVICE_OFFERED) {
        bool asked = negotiate_params_ok(n) && (n->peer.flags & STREAM_FLAG_DEVICE) != 0;
        n->device = asked ? NEGOTIATE_DEVICE_ASKED : NEGOTIATE_DEVICE_NONE;
        if (asked)
            return;
    }
    int r = n->declined == REASON_NONE ? negotiate_mpa_accept(n) : -EPROTO;
    if (r < 0)
        r = mpa_startup_reject(&n->mpa, NULL, 0);
    if (r < 0)
        negotiate_spoil(n, REASON_MPA_FAILED);
}

void negotiate_mpa_settle(struct negotiate *n)
{
    switch (n->mpa.state) {
    case MPA_ST_DECIDE:
        negotiate_mpa_decide(n);
        break;
    case MPA_ST_SEND_RTR:
        if (!negotiate_params_ok(n)) /* (the peer waits for the RtR frame: no FPDU before it) */
            negotiate_spoil(n, REASON_PEER_LIMIT);
        break;
    case MPA_ST_DONE:
        if (!n->cfg.responder && !negotiate_params_ok(n))
            spoil_params(n);
        else
            negotiate_move(n, NEGOTIATE_DONE, REASON_UPGRADED);
        break;
    case MPA_ST_REJECTED:
        /* RFC 5044 7.1.2 rule 2/4 and RFC 5044 7.1.2 rule 3/3: MPA exits, the connection stays in streaming mode. */
        negotiate_move(n, NEGOTIATE_PLAIN,
                       !n->cfg.responder            ? REASON_MPA_REJECTED
                       : n->declined != REASON_NONE ? n->declined
                                                    : REASON_PEER_LIMIT);
        break;
    case MPA_ST_FAILED:
        negotiate_spoil(n, REASON_MPA_FAILED);
        break;
    default:
        break;
    }
}

/*
 * The Reply was part of the HACK, and nothing has come since. (Where the Reply is sent by itself, the MPA startup is
 * over when it is sent, and with it this state.)
 */
bool negotiate_replied_early(const struct negotiate *n)
{
    return n->mpa.state == MPA_ST_DONE;
}

size_t negotiate_mpa_in(struct negotiate *n, const uint8_t *buf, size_t len)
{
    /*
     * The responder's HACK has to be out before anything can answer it; what comes early waits.
     * RFC 5044 7.1.5 item 1: from there on no streaming data are expected.
     */
    if (n->out_off < n->out_len)
        return 0;
    ssize_t r;
    bool later;
    if ((negotiate_replied_early(n) || (n->mpa.state == MPA_ST_WAIT_REQ && n->mpa.in_len == 0)) &&
        (r = negotiate_find_withdrawal(n, buf, len, &later)) != -EPROTO) {
        n->switched = later && negotiate_replied_early(n);
        n->withdrawn = r > 0;
        if (n->switched)
            negotiate_move(n, NEGOTIATE_DONE, REASON_UPGRADED);
        else if (r > 0)
            negotiate_move(n, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        return r > 0 ? (size_t)r : 0;
    }
    if (negotiate_replied_early(
            n)) { /* FPDUs: not even their first two octets can be a Hello's, as no RTR is so long */
        negotiate_mpa_settle(n);
        return 0;
    }
    r = mpa_startup_input(&n->mpa, buf, len);
    if (r < 0) {
        negotiate_spoil_mpa(n);
        return 0;
    }
    negotiate_mpa_settle(n);
    /*
     * Octets behind the Request. RFC 5044 section 7.1.2, note to rule 2: what can be received "is
     * unknown until the Request and Reply Frames have been received, sending FPDUs before this
     * occurs is not possible". Told at once, so that it does not depend on how the octets were cut.
     */
    if (n->cfg.responder && n->mpa.state == MPA_ST_SEND_REP && (size_t)r < len) {
        ssize_t more = mpa_startup_input(&n->mpa, buf + r, len - (size_t)r);
        SW_CHECK(more < 0, "%zd octets behind a Request", more);
        negotiate_spoil(n, REASON_MPA_FAILED);
    }
    return (size_t)r;
}
