/*
 * The negotiation machine. See negotiate.h for the picture.
 */
#include "core/negotiate/negotiate.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/fault.h"
#include "core/base/reason.h"
#include "core/negotiate/negotiate_parts.h"

/* The stream is carried by a connection beside this one. */
#define BY_DEVICE (HELLO_TRANSPORT_VERBS | HELLO_TRANSPORT_MIXED)

/* This end has said, or may say, that it goes on in streaming mode and switches later. */
static bool switches(const struct hello *h)
{
    return (h->flags & HELLO_FLAG_SWITCH) != 0;
}

static size_t offer_encode(const struct negotiate_offer *o, uint8_t buf[4 + NEGOTIATE_OFFER_MAX])
{
    size_t addr_len = o->ipv6 ? 16 : 4;
    struct bytes_wr w = bytes_wr_init(buf, 4 + NEGOTIATE_OFFER_MAX);
    bytes_wr_be16(&w, HELLO_TLV_VERBS);
    bytes_wr_be16(&w, (uint16_t)(4 + addr_len + sizeof(o->token)));
    bytes_wr_u8(&w, o->ipv6 ? 6 : 4);
    bytes_wr_u8(&w, o->kind);
    bytes_wr_be16(&w, o->port);
    bytes_wr_copy(&w, o->addr, addr_len);
    bytes_wr_copy(&w, o->token, sizeof(o->token));
    return 8 + addr_len + sizeof(o->token);
}

/* False: there is none, or it is not valid. */
static bool offer_decode(const struct hello *h, struct negotiate_offer *o)
{
    size_t len = 0;
    const uint8_t *p = hello_tlv_find(h, HELLO_TLV_VERBS, &len);
    if (p == NULL || len < 4 || (p[0] != 4 && p[0] != 6))
        return false;
    size_t addr_len = p[0] == 6 ? 16 : 4;
    if (len != 4 + addr_len + sizeof(o->token))
        return false;
    memset(o, 0, sizeof(*o));
    o->ipv6 = p[0] == 6;
    o->kind = p[1] <= NEGOTIATE_KIND_SOFT ? p[1] : NEGOTIATE_KIND_ANY;
    o->port = get_be16(p + 2);
    memcpy(o->addr, p + 4, addr_len);
    memcpy(o->token, p + 4 + addr_len, sizeof(o->token));
    return o->port != 0;
}

#define FRAME_MAX (MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX)
_Static_assert(HELLO_LEN + 4 + FRAME_MAX <= HELLO_LEN_MAX, "a startup frame fits into a Hello");

/* The startup frame that is to be sent, as a TLV; 0: there is none. */
static size_t frame_encode(struct negotiate *n, uint8_t buf[4 + FRAME_MAX])
{
    const uint8_t *frame;
    size_t len = mpa_startup_output(&n->mpa, &frame);
    if (len == 0)
        return 0;
    struct bytes_wr w = bytes_wr_init(buf, 4 + FRAME_MAX);
    bytes_wr_be16(&w, HELLO_TLV_MPA);
    bytes_wr_be16(&w, (uint16_t)len);
    bytes_wr_copy(&w, frame, len);
    mpa_startup_sent(&n->mpa, len);
    return 4 + len;
}

/* Queues a Hello behind what is to be sent already; it ends in the startup frame that is ready, if any. */
static void add_hello(struct negotiate *n, enum hello_kind kind, uint32_t arg, const uint8_t *nonce, uint64_t streamed)
{
    struct hello h = { .kind = kind, .arg = arg, .streamed = streamed, .host = n->cfg.host };
    if (kind == HELLO_HELO && n->cfg.shim_known)
        h.flags = HELLO_FLAG_MAY_WITHDRAW | (n->cfg.may_switch ? HELLO_FLAG_SWITCH : 0);
    else if (kind == HELLO_HWDR && n->cfg.may_switch)
        h.flags = HELLO_FLAG_SWITCH;
    memcpy(h.nonce, nonce, HELLO_NONCE_LEN);
    uint8_t tlv[4 + (FRAME_MAX > NEGOTIATE_OFFER_MAX ? FRAME_MAX : NEGOTIATE_OFFER_MAX)];
    h.tlv = tlv;
    h.tlv_len = kind == HELLO_HACK && (arg & BY_DEVICE) ? offer_encode(&n->offer, tlv) : frame_encode(n, tlv);
    ssize_t len = hello_encode(&h, n->out + n->out_len, sizeof(n->out) - n->out_len);
    SW_CHECK(len > 0, "hello_encode %zd", len);
    n->out_len += (size_t)len;
}

static void put_hello(struct negotiate *n, enum hello_kind kind, uint32_t arg, const uint8_t *nonce, uint64_t streamed)
{
    n->out_len = n->out_off = 0;
    add_hello(n, kind, arg, nonce, streamed);
}

int negotiate_init(struct negotiate *n, const struct negotiate_cfg *cfg, uint64_t now_ns)
{
    memset(n, 0, sizeof(*n));
    if (cfg->timeout_ns == 0 || (cfg->transports & HELLO_TRANSPORT_IWARP) == 0 || (cfg->shim_known && cfg->immediate) ||
        (cfg->may_switch && (cfg->responder || !cfg->shim_known || !cfg->early)) ||
        (cfg->at_once && !cfg->may_switch) || (cfg->unasked && !cfg->at_once) ||
        (cfg->early && !cfg->responder &&
         (cfg->immediate || (cfg->transports & BY_DEVICE) || cfg->mpa.dialect != MPA_DIALECT_RFC)))
        return -EINVAL;
    n->cfg = *cfg;
    n->cfg.mpa.priv = NULL;
    n->cfg.mpa.priv_len = 0;
    /* A configuration that does not fit a startup frame must be found here, not in the middle of a connection. */
    if (negotiate_mpa_init(n) < 0)
        return -EINVAL;
    if (!cfg->responder && cfg->immediate) {
        n->state = NEGOTIATE_MPA;
        n->deadline_ns = now_ns + cfg->timeout_ns;
        return 0;
    }
    if (!cfg->early || cfg->responder)
        memset(&n->mpa, 0, sizeof(n->mpa));
    if (cfg->responder) {
        n->state = NEGOTIATE_PEEK;
        return 0;
    }
    put_hello(n, HELLO_HELO, cfg->transports, cfg->nonce, 0);
    n->hello_len = n->out_len;
    if (!cfg->at_once) {
        n->state = NEGOTIATE_HELLO;
        n->deadline_ns = now_ns + cfg->timeout_ns;
        return 0;
    }
    add_hello(n, HELLO_HWDR, 0, cfg->nonce, 0); /* the program goes on: it is sent with the HELO */
    n->state = NEGOTIATE_UNASKED;
    if (!cfg->unasked)
        negotiate_ask(n);
    return 0;
}

static void decline(struct negotiate *n, const struct hello *h, unsigned reason)
{
    if (!n->mute && !n->peer_ended && !n->defers && !(switches(h) && n->streamed > 0))
        put_hello(n, HELLO_HNAK, reason, h->nonce, n->streamed);
    negotiate_move(n, (h->flags & HELLO_FLAG_MAY_WITHDRAW) ? NEGOTIATE_NAKED : NEGOTIATE_PLAIN, reason);
}

/* No Hello came; if this end would have declined one, that is why the connection is plain. */
static void peer_is_plain(struct negotiate *n)
{
    negotiate_move(n, NEGOTIATE_PLAIN, n->reason != REASON_NONE ? n->reason : REASON_PEER_PLAIN);
}

/*
 * Do these octets begin with a whole Request? 0, -EAGAIN (they may still), -EPROTO.
 *
 * RFC 5044 section 7.1.4.2: "If the initial TCP data was not a properly formatted MPA Request Frame, MPA will close
 * or reset the TCP connection immediately." Here it is not known yet that MPA is wanted, and such data is a
 * plain client's; a rule that says `require` closes.
 */
static int find_request(const struct negotiate *n, const uint8_t *buf, size_t len)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = n->cfg.mpa;
    cfg.responder = true;
    if (!n->cfg.immediate || mpa_startup_init(&s, &cfg) < 0 || mpa_startup_input(&s, buf, len) < 0)
        return -EPROTO;
    return s.state == MPA_ST_DECIDE ? 0 : -EAGAIN;
}

/*
 * If the HELO ends in a Request that is accepted, the Reply is ready then. Any other Request is left to come by itself.
 */
static void reply_early(struct negotiate *n, const struct hello *h)
{
    size_t len;
    const uint8_t *request = hello_tlv_find(h, HELLO_TLV_MPA, &len);
    if (request == NULL || (mpa_startup_input(&n->mpa, request, len) == (ssize_t)len && n->mpa.state == MPA_ST_DECIDE &&
                            negotiate_mpa_accept(n) == 0))
        return;
    negotiate_mpa_restart(n);
}

bool negotiate_is_late(const uint8_t *buf, size_t len)
{
    struct hello helo, hwdr;
    ssize_t r = hello_decode(buf, len, &helo);
    return r > 0 && helo.kind == HELLO_HELO && hello_decode(buf + r, len - (size_t)r, &hwdr) > 0 &&
           hwdr.kind == HELLO_HWDR && switches(&hwdr) && memcmp(helo.nonce, hwdr.nonce, HELLO_NONCE_LEN) == 0;
}

void negotiate_peer_ended(struct negotiate *n)
{
    n->peer_ended = true;
}

void negotiate_defer(struct negotiate *n)
{
    n->defers = true;
}

/* The HACK; it ends in the Reply, if the HELO ends in a Request that is accepted. */
static void put_acceptance(struct negotiate *n, const struct hello *h, uint32_t by, uint64_t now_ns)
{
    negotiate_mpa_begin(n, now_ns);
    if (by == HELLO_TRANSPORT_IWARP && n->cfg.early && n->cfg.mpa.dialect == MPA_DIALECT_RFC)
        reply_early(n, h);
    put_hello(n, HELLO_HACK, by, h->nonce, n->streamed);
}

/* Queues a Hello with the HWDR behind it. For the initiator a HACK without the Reply ends the negotiation, too. */
static void accept_late(struct negotiate *n, const struct hello *h, uint64_t now_ns)
{
    put_acceptance(n, h, HELLO_TRANSPORT_IWARP, now_ns);
    n->switched = negotiate_replied_early(n);
    n->deferred = n->switched && n->defers;
    if (!n->switched && n->defers)
        n->out_len = 0; /* octets of the program's have the same meaning */
    if (n->switched)
        negotiate_move(n, NEGOTIATE_DONE, REASON_UPGRADED);
    else
        negotiate_move(n, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
}

/* common: the kinds of devices that both ends have. */
static void accept_now(struct negotiate *n, const struct hello *h, uint32_t common, uint64_t now_ns)
{
    uint32_t by = n->device != NEGOTIATE_DEVICE_OFFERED   ? HELLO_TRANSPORT_IWARP
                  : (common & HELLO_TRANSPORT_VERBS) != 0 ? HELLO_TRANSPORT_VERBS
                                                          : HELLO_TRANSPORT_MIXED;
    put_acceptance(n, h, by, now_ns);
}

/* REASON_NONE: it is not. */
static unsigned why_declined(const struct negotiate *n, const struct hello *h, bool late)
{
    if (n->reason != REASON_NONE) /* negotiate_decline */
        return n->reason;
    if (n->mute)
        return REASON_CLOSED;
    if (late && n->peer_ended)
        return REASON_WITHDRAWN;
    if ((h->arg & n->cfg.transports & HELLO_TRANSPORT_IWARP) == 0)
        return REASON_TRANSPORT;
    return switches(h) && n->streamed > 0 ? REASON_SPOKE_FIRST : REASON_NONE;
}

static size_t in_peek(struct negotiate *n, const uint8_t *buf, size_t len, uint64_t now_ns)
{
    struct hello h;
    ssize_t r = hello_decode(buf, len, &h);
    int request = r == -EAGAIN ? -EAGAIN : find_request(n, buf, len);
    if (request == -EAGAIN) {
        if (len > 0 && n->deadline_ns == 0)
            n->deadline_ns = now_ns + NEGOTIATE_PREFIX_NS;
        return 0;
    }
    if (request == 0) { /* it is not consumed: the next state takes it */
        n->declined = n->reason;
        negotiate_mpa_begin(n, now_ns);
        return 0;
    }
    if (r < 0 || h.kind != HELLO_HELO) {
        peer_is_plain(n);
        return 0;
    }
    memcpy(n->cfg.nonce, h.nonce, sizeof(n->cfg.nonce));
    if (n->reason == REASON_NONE && !hello_is_understood(&h))
        negotiate_decline(n, REASON_VERSION);
    bool late;
    ssize_t hwdr_len = negotiate_find_withdrawal(n, buf + r, len - (size_t)r, &late);
    /* At least one end has a device, and both say what the other end needs. */
    uint32_t common = h.arg & n->cfg.transports & BY_DEVICE;
    bool device = common != 0 && ((h.arg | n->cfg.transports) & HELLO_TRANSPORT_VERBS) != 0;
    n->asked = (uint8_t)h.arg;
    if (n->reason == REASON_NONE && device && !n->offer_made) {
        n->device = NEGOTIATE_DEVICE_WANTED; /* it is not consumed until the owner has answered */
        n->deadline_ns = 0;                  /* (it is whole, though it may have arrived in pieces) */
        return 0;
    }
    unsigned reason = why_declined(n, &h, late);
    if (reason != REASON_NONE) {
        decline(n, &h, reason);
    } else if (late) {
        accept_late(n, &h, now_ns);
        n->withdrawn = true;
        r += hwdr_len;
    } else {
        accept_now(n, &h, common, now_ns);
    }
    return (size_t)r;
}

/* Is this our initiator's HWDR? As hello_decode. */
ssize_t negotiate_find_withdrawal(const struct negotiate *n, const uint8_t *buf, size_t len, bool *switches_later)
{
    struct hello h;
    ssize_t r = hello_decode(buf, len, &h);
    bool is = r > 0 && h.kind == HELLO_HWDR && memcmp(h.nonce, n->cfg.nonce, sizeof(h.nonce)) == 0;
    *switches_later = is && switches(&h);
    return r > 0 && !is ? -EPROTO : r;
}

static size_t in_naked(struct negotiate *n, const uint8_t *buf, size_t len, uint64_t now_ns)
{
    bool later;
    ssize_t r = negotiate_find_withdrawal(n, buf, len, &later);
    if (r == -EAGAIN) {
        if (len > 0 && n->deadline_ns == 0)
            n->deadline_ns = now_ns + NEGOTIATE_PREFIX_NS;
        return 0;
    }
    negotiate_move(n, NEGOTIATE_PLAIN, n->reason);
    n->withdrawn = r > 0;
    return r > 0 ? (size_t)r : 0;
}

void negotiate_withdraw(struct negotiate *n)
{
    /* (The rest of an answer is on its way. In LATE the owner would look for a whole one behind the part that it has.) */
    if (n->state != NEGOTIATE_HELLO || !n->cfg.shim_known || n->answer_begun)
        return;
    if (n->out_off < n->out_len) { /* not even the Hello was sent: nothing has happened yet */
        bool none = n->out_off == 0;
        n->out_len = n->out_off = 0;
        negotiate_move(n, none ? NEGOTIATE_PLAIN : NEGOTIATE_FALLBACK, REASON_WITHDRAWN);
        return;
    }
    put_hello(n, HELLO_HWDR, 0, n->cfg.nonce, 0);
    negotiate_move(n, n->cfg.may_switch ? NEGOTIATE_LATE : NEGOTIATE_WITHDRAWN, REASON_WITHDRAWN);
}

void negotiate_ask(struct negotiate *n)
{
    if (n->state == NEGOTIATE_UNASKED)
        negotiate_move(n, NEGOTIATE_LATE, REASON_WITHDRAWN);
}

/* UNASKED: the peer never is. */
static void stay_unasked(struct negotiate *n, unsigned reason)
{
    n->out_len = n->out_off = 0;
    negotiate_move(n, NEGOTIATE_PLAIN, reason);
}

size_t negotiate_lead(const struct negotiate *n, const uint8_t **p)
{
    bool leads = n->state == NEGOTIATE_UNASKED ||
                 (n->state == NEGOTIATE_DONE && n->switched && (!n->cfg.responder || n->deferred));
    *p = n->out + n->out_off;
    return leads ? n->out_len - n->out_off : 0;
}

/* The server's first octets are the answer, or there is none. */
static size_t in_late(struct negotiate *n, const uint8_t *buf, size_t len)
{
    struct hello h;
    size_t frame_len = 0, safe = 0, reply_len = 0;
    if (n->out_off < n->out_len) /* the HWDR goes first, whole */
        return 0;
    ssize_t at = hello_find(buf, len, 0, n->cfg.nonce, &h, &frame_len, &safe);
    if (at < 0 && safe == 0)
        return 0;
    if (at != 0) {
        n->answered = true;
        negotiate_move(n, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        return 0;
    }
    const uint8_t *reply = h.kind == HELLO_HACK ? hello_tlv_find(&h, HELLO_TLV_MPA, &reply_len) : NULL;
    if (h.kind == HELLO_HACK && !hello_is_understood(&h)) {
        negotiate_move(n, NEGOTIATE_FAILED, REASON_MPA_FAILED);
        return frame_len;
    }
    if (reply == NULL || h.arg != HELLO_TRANSPORT_IWARP) {
        negotiate_move(n, NEGOTIATE_PLAIN, h.kind == HELLO_HACK ? REASON_WITHDRAWN : REASON_HELLO_NAK);
        return frame_len;
    }
    /* (From here on the server sends FPDUs.) */
    if (mpa_startup_input(&n->mpa, reply, reply_len) != (ssize_t)reply_len || n->mpa.state != MPA_ST_DONE ||
        !negotiate_params_ok(n)) {
        negotiate_move(n, NEGOTIATE_FAILED, REASON_MPA_FAILED);
        return frame_len;
    }
    n->switched = true;
    if (!n->mute)
        put_hello(n, HELLO_HSWI, 0, n->cfg.nonce, n->streamed);
    negotiate_move(n, NEGOTIATE_DONE, REASON_UPGRADED);
    return frame_len;
}

/* As in_hello; but whatever the answer is, it changes nothing any more. */
static size_t in_withdrawn(struct negotiate *n, const uint8_t *buf, size_t len)
{
    struct hello h;
    size_t frame_len = 0, safe = 0;
    ssize_t at = hello_find(buf, len, 0, n->cfg.nonce, &h, &frame_len, &safe);
    if (at < 0) {
        if (safe > NEGOTIATE_STREAMED_MAX)
            negotiate_move(n, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        return 0;
    }
    n->prefix_len = (size_t)at;
    negotiate_move(n, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
    return (size_t)at + frame_len;
}

/* The owner connects by its device, in the time that the Hello has; without the device the startup goes on here. */
static void device_begin(struct negotiate *n, const struct hello *h, uint64_t now_ns)
{
    if (!offer_decode(h, &n->offer)) {
        negotiate_mpa_begin(n, now_ns);
        return;
    }
    n->device = NEGOTIATE_DEVICE_TRYING;
    negotiate_move(n, NEGOTIATE_DEVICE, REASON_NONE);
    n->deadline_ns = now_ns + n->cfg.timeout_ns;
}

void negotiate_offer(struct negotiate *n, const struct negotiate_offer *offer)
{
    if (n->device != NEGOTIATE_DEVICE_WANTED)
        return;
    n->offer_made = true;
    n->device = offer != NULL ? NEGOTIATE_DEVICE_OFFERED : NEGOTIATE_DEVICE_NONE;
    if (offer != NULL)
        n->offer = *offer;
}

void negotiate_device(struct negotiate *n, bool up, uint64_t now_ns)
{
    if (!negotiate_wants_device(n))
        return;
    n->device = up ? NEGOTIATE_DEVICE_UP : NEGOTIATE_DEVICE_NONE;
    if (up)
        n->cfg.params.flags |= STREAM_FLAG_DEVICE;
    if (!n->cfg.responder) {
        negotiate_mpa_begin(n, now_ns);
        return;
    }
    n->deadline_ns = now_ns + NEGOTIATE_MPA_NS;
    negotiate_mpa_decide(n);
}

/* Does the HACK end in the Reply? */
static bool in_reply(struct negotiate *n, const struct hello *h)
{
    size_t len;
    const uint8_t *reply = hello_tlv_find(h, HELLO_TLV_MPA, &len);
    if (reply == NULL)
        return false;
    negotiate_move(n, NEGOTIATE_MPA, REASON_NONE);
    if (mpa_startup_input(&n->mpa, reply, len) == (ssize_t)len && n->mpa.state > MPA_ST_WAIT_REP) {
        negotiate_mpa_settle(n);
    } else {
        negotiate_spoil_mpa(n);
    }
    return true;
}

/* Does the answer name a device's transport that this end offered? */
static bool is_our_device(const struct negotiate *n, const struct hello *h)
{
    return (h->arg == HELLO_TRANSPORT_VERBS || h->arg == HELLO_TRANSPORT_MIXED) && (n->cfg.transports & h->arg);
}

static size_t in_hello(struct negotiate *n, const uint8_t *buf, size_t len, uint64_t now_ns)
{
    struct hello h;
    size_t frame_len = 0, safe = 0;
    ssize_t at = hello_find(buf, len, 0, n->cfg.nonce, &h, &frame_len, &safe);
    if (n->cfg.may_switch && (at < 0 ? safe > 0 : at > 0)) {  /* the server spoke first, and sends nothing else */
        bool cut = n->out_off > 0 && n->out_off < n->out_len; /* its program would read half a Hello */
        n->out_len = n->out_off = 0;
        negotiate_move(n, cut ? NEGOTIATE_FALLBACK : NEGOTIATE_PLAIN, REASON_SPOKE_FIRST);
        return 0;
    }
    if (at < 0) {
        n->answer_begun = n->cfg.may_switch && len > 0;
        n->answered = n->answered || len > 0;
        /* An echo server sends our own HELO back: there is no need to wait for the deadline. */
        bool echo = len >= n->hello_len && memcmp(buf, n->out, n->hello_len) == 0;
        if (safe > NEGOTIATE_STREAMED_MAX || echo)
            negotiate_spoil(n, REASON_HELLO_GARBAGE);
        return 0;
    }
    /* The limit is the same however the octets were cut: the owner has no more room. */
    if ((size_t)at > NEGOTIATE_STREAMED_MAX) {
        negotiate_spoil(n, REASON_HELLO_GARBAGE);
        return 0;
    }
    n->prefix_len = (size_t)at;
    n->out_len = n->out_off = 0;
    if (h.kind == HELLO_HNAK)
        negotiate_move(n, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
    else if (!hello_is_understood(&h) || (h.arg != HELLO_TRANSPORT_IWARP && !is_our_device(n, &h)))
        negotiate_spoil(n, REASON_HELLO_GARBAGE);
    else if (h.arg != HELLO_TRANSPORT_IWARP)
        device_begin(n, &h, now_ns);
    else if (!n->cfg.early || !in_reply(n, &h))
        negotiate_mpa_begin(n, now_ns);
    return (size_t)at + frame_len;
}

size_t negotiate_in(struct negotiate *n, const uint8_t *buf, size_t len, uint64_t now_ns)
{
    switch (n->state) {
    case NEGOTIATE_PEEK:
        return in_peek(n, buf, len, now_ns);
    case NEGOTIATE_HELLO:
        return in_hello(n, buf, len, now_ns);
    case NEGOTIATE_MPA: {
        size_t used = negotiate_mpa_in(n, buf, len);
        if (n->device == NEGOTIATE_DEVICE_ASKED) /* the owner will know that soon */
            n->deadline_ns = now_ns + n->cfg.timeout_ns;
        return used;
    }
    case NEGOTIATE_NAKED:
        return in_naked(n, buf, len, now_ns);
    case NEGOTIATE_WITHDRAWN:
        return in_withdrawn(n, buf, len);
    case NEGOTIATE_LATE:
        return in_late(n, buf, len);
    case NEGOTIATE_UNASKED:
        if (len > 0)
            stay_unasked(n, REASON_SPOKE_FIRST);
        return 0;
    default:
        return 0;
    }
}

void negotiate_eof(struct negotiate *n)
{
    switch (n->state) {
    case NEGOTIATE_PEEK:
        /* Whatever has come, the program sees it as it is. */
        peer_is_plain(n);
        break;
    case NEGOTIATE_UNASKED:
        stay_unasked(n, REASON_CLOSED);
        break;
    case NEGOTIATE_HELLO:
        negotiate_spoil(n, REASON_HELLO_CLOSED);
        break;
    case NEGOTIATE_DEVICE:
        negotiate_spoil(n, REASON_CLOSED);
        break;
    case NEGOTIATE_MPA:
        if (negotiate_replied_early(n)) { /* what is still to be sent belongs to the FPDUs */
            negotiate_mpa_settle(n);
            break;
        }
        mpa_startup_eof(&n->mpa);
        /*
         * A peer that runs sockwarp closed because its program did; another peer perhaps because it did not understand
         * something.
         */
        negotiate_spoil(n, negotiate_peer_known(n) ? REASON_CLOSED : REASON_MPA_FAILED);
        break;
    case NEGOTIATE_NAKED:
    case NEGOTIATE_WITHDRAWN:
    case NEGOTIATE_LATE:
        negotiate_move(n, NEGOTIATE_PLAIN, n->reason);
        break;
    default:
        break;
    }
}

void negotiate_fail(struct negotiate *n, unsigned reason)
{
    if (n->state == NEGOTIATE_HELLO || n->state == NEGOTIATE_DEVICE || n->state == NEGOTIATE_MPA)
        negotiate_spoil(n, reason);
    else
        negotiate_eof(n);
}

void negotiate_unheard(struct negotiate *n, unsigned reason)
{
    negotiate_spoil(n, reason);
}

void negotiate_lost(struct negotiate *n)
{
    negotiate_move(n, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}

void negotiate_unanswered(struct negotiate *n)
{
    n->out_len = n->out_off = 0;
    n->switched = n->deferred = false;
    if (n->state == NEGOTIATE_DONE)
        negotiate_move(n, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
}

void negotiate_tick(struct negotiate *n, uint64_t now_ns)
{
    if (n->deadline_ns == 0 || now_ns < n->deadline_ns)
        return;
    switch (n->state) {
    case NEGOTIATE_PEEK:
        peer_is_plain(n);
        break;
    case NEGOTIATE_NAKED:
        negotiate_move(n, NEGOTIATE_PLAIN, n->reason);
        break;
    case NEGOTIATE_HELLO:
        if (n->cfg.shim_known && !n->answer_begun)
            negotiate_withdraw(n);
        else
            negotiate_spoil(n, n->answered ? REASON_HELLO_GARBAGE : REASON_HELLO_TIMEOUT);
        break;
    case NEGOTIATE_DEVICE:
        negotiate_device(n, false, now_ns);
        break;
    case NEGOTIATE_MPA:
        if (n->device == NEGOTIATE_DEVICE_ASKED) {
            negotiate_device(n, false, now_ns);
            break;
        }
        /*
         * RFC 5044 7.1.2 rule 10/1: "SHOULD implement a reasonable timeout while waiting for the entire set of startup
         * frames"; RFC 5044 7.1.2 rule 8/2: so for the Request, "to detect incorrect "Responder/Responder" startups".
         * An initiator whose peer has answered the Hello knows that the Reply will come, as soon as the peer's program
         * lets it, which takes as long as it takes: it waits as TCP does.
         */
        if (n->cfg.responder || n->cfg.immediate) {
            negotiate_spoil(n, REASON_MPA_FAILED);
        } else {
            n->late = true;
            n->deadline_ns = 0;
        }
        break;
    default:
        break;
    }
}

void negotiate_decline(struct negotiate *n, unsigned reason)
{
    if (n->state == NEGOTIATE_PEEK)
        n->reason = (uint8_t)reason;
    else if (n->state == NEGOTIATE_UNASKED)
        stay_unasked(n, reason);
}

void negotiate_mute(struct negotiate *n)
{
    n->mute = true;
}

size_t negotiate_out(const struct negotiate *n, const uint8_t **p)
{
    if (negotiate_lead(n, p) > 0)
        return 0;
    if (n->out_off < n->out_len) {
        *p = n->out + n->out_off;
        return n->out_len - n->out_off;
    }
    if (n->state == NEGOTIATE_MPA)
        return mpa_startup_output(&n->mpa, p);
    return 0;
}

void negotiate_sent(struct negotiate *n, size_t len)
{
    if (n->out_off < n->out_len) {
        SW_CHECK(len <= n->out_len - n->out_off, "%zu of %zu octets sent", len, n->out_len - n->out_off);
        n->out_off += len;
        if (len > 0)
            negotiate_ask(n);
        return;
    }
    if (n->state == NEGOTIATE_MPA) {
        mpa_startup_sent(&n->mpa, len);
        negotiate_mpa_settle(n);
    }
}

bool negotiate_over(const struct negotiate *n)
{
    const uint8_t *p;
    return n->state >= NEGOTIATE_DONE && (n->out_off == n->out_len || negotiate_lead(n, &p) > 0);
}
