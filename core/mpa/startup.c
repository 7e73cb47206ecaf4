/*
 * MPA startup frames, initiator and responder: RFC 5044 section 7.1, RFC 6581 sections 6 and 9.
 *
 * They come before the receive path: what this file consumes are the last octets of streaming mode; the next octet is
 * an FPDU's (mpa/fpdu.c).
 */
#include "core/mpa/startup.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/sm.h"

#define KEY_LEN 16u

enum { OFF_FLAGS = 16, OFF_REV = 17, OFF_PD_LEN = 18 };

/*
 * Octet 16. S exists from Rev 2 on (RFC 6581 section 6), and in the proposal of 2007; the rest "MUST
 * be set to zero when sending, and not checked".
 */
enum { FLAG_M = 0x80, FLAG_C = 0x40, FLAG_R = 0x20, FLAG_S = 0x10 };

#define RTR_ALL (MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ)

static const uint8_t key_request[KEY_LEN] = { 'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                                              'e', 'q', ' ', 'F', 'r', 'a', 'm', 'e' };
static const uint8_t key_reply[KEY_LEN] = { 'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                                            'e', 'p', ' ', 'F', 'r', 'a', 'm', 'e' };
/* The key that the proposal defines: 4D 50 41 20 49 44 20 52 74 52 20 46 72 61 6D 65. */
static const uint8_t key_rtr[KEY_LEN] = {
    'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 't', 'R', ' ', 'F', 'r', 'a', 'm', 'e'
};

static const struct sm_state states[] = {
    [MPA_ST_SEND_REQ] = { "send-request", SM_TO(MPA_ST_WAIT_REP) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_WAIT_REP] = { "wait-reply",
                          SM_TO(MPA_ST_SEND_RTR) | SM_TO(MPA_ST_DONE) | SM_TO(MPA_ST_REJECTED) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_WAIT_REQ] = { "wait-request", SM_TO(MPA_ST_DECIDE) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_DECIDE] = { "decide", SM_TO(MPA_ST_SEND_REP) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_SEND_REP] = { "send-reply",
                          SM_TO(MPA_ST_WAIT_RTR) | SM_TO(MPA_ST_DONE) | SM_TO(MPA_ST_REJECTED) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_SEND_RTR] = { "send-rtr", SM_TO(MPA_ST_DONE) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_WAIT_RTR] = { "wait-rtr", SM_TO(MPA_ST_DONE) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_DONE] = { "done", 0 },
    [MPA_ST_REJECTED] = { "rejected", 0 },
    [MPA_ST_FAILED] = { "failed", 0 },
};

static void move(struct mpa_startup *s, enum mpa_startup_state to)
{
    sm_move(states, "mpa-startup", s, &s->state, (uint8_t)to);
}

/* RFC 5044 8 code 4/1,2, RFC 5044 7.1.2 rule 2/2, RFC 5044 7.1.2 rule 3/2: the owner learns of it, and closes. */
static ssize_t fail(struct mpa_startup *s, enum mpa_startup_err err)
{
    s->err = (uint8_t)err;
    trace_info("mpa-startup %p: %s", (void *)s, mpa_startup_err_name(err));
    move(s, MPA_ST_FAILED);
    return -EPROTO;
}

static uint16_t min_u16(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}

/* ---- frames ---- */

/*
 * e is NULL for the unenhanced form. The caller has seen to it that the private data fit.
 * RFC 6581 6/1,3,5: S and the word before the private data, at Rev 2 only.
 * RFC 5044 7.1.1/1,3,13,14,17,19: key, flags with reserved bits of zero, Rev, PD_Length, up to 512 octets.
 */
static void put_frame(struct mpa_startup *s, const uint8_t key[KEY_LEN], uint8_t flags, uint8_t rev,
                      const struct mpa_enhanced *e, const void *priv, size_t priv_len)
{
    struct bytes_wr w = bytes_wr_init(s->out, sizeof(s->out));
    bytes_wr_copy(&w, key, KEY_LEN);
    bytes_wr_u8(&w, (uint8_t)(flags | (e ? FLAG_S : 0)));
    bytes_wr_u8(&w, rev);
    bytes_wr_be16(&w, (uint16_t)(priv_len + (e ? MPA_ENHANCED_LEN : 0)));
    if (e) {
        uint8_t word[MPA_ENHANCED_LEN];
        mpa_enhanced_encode(e, word);
        bytes_wr_copy(&w, word, sizeof(word));
    }
    bytes_wr_copy(&w, priv, priv_len);
    SW_CHECK(!w.bad, "a startup frame of %zu private octets", priv_len);
    s->out_len = bytes_wr_len(&w);
    s->out_off = 0;
}

/*
 * RFC 5044 7.1.1/5-7: M says what we need of what comes to us. RFC 5044 4.4/2,3, RFC 5044 1.2/2: C is set but by an
 * administrator.
 */
static uint8_t own_flags(const struct mpa_startup *s)
{
    return (uint8_t)((s->cfg.markers ? FLAG_M : 0) | (s->cfg.crc ? FLAG_C : 0));
}

/* ---- setup ---- */

/*
 * RFC 6581 6/3 and RFC 6581 10/3: "MUST NOT use the enhanced … formats … when no enhanced functionality is
 * desired".
 */
static bool wants_enhanced(const struct mpa_startup_cfg *cfg)
{
    return cfg->rev >= 2 && (cfg->peer_to_peer || cfg->ird != MPA_IRD_ORD_NONE || cfg->ord != MPA_IRD_ORD_NONE);
}

static size_t priv_max(bool enhanced)
{
    return MPA_PRIVATE_MAX - (enhanced ? MPA_ENHANCED_LEN : 0);
}

static bool cfg_ok(const struct mpa_startup_cfg *cfg)
{
    if (cfg->ird > MPA_IRD_ORD_NONE || cfg->ord > MPA_IRD_ORD_NONE || cfg->ord_min > cfg->ord ||
        (cfg->rtr & ~RTR_ALL) != 0 || cfg->dialect > MPA_DIALECT_RTR_FRAME)
        return false;
    for (size_t i = 0; i < SW_ARRAY_LEN(cfg->rtr_pref); i++)
        if ((cfg->rtr_pref[i] & ~RTR_ALL) != 0 || (cfg->rtr_pref[i] & (cfg->rtr_pref[i] - 1)) != 0)
            return false; /* not a single kind */
    /* RFC 6581 9.2/3: "The responder MUST support at least one RTR indication option". */
    if (cfg->responder)
        return cfg->rtr != 0;
    if (cfg->rev < 1 || cfg->rev > 2 || (cfg->dialect == MPA_DIALECT_RTR_FRAME && cfg->rev != 1))
        return false;
    if (cfg->rev == 2 && cfg->peer_to_peer && cfg->rtr == 0)
        return false;
    return cfg->priv_len <= priv_max(wants_enhanced(cfg));
}

int mpa_startup_init(struct mpa_startup *s, const struct mpa_startup_cfg *cfg)
{
    memset(s, 0, sizeof(*s));
    if (!cfg_ok(cfg))
        return -EINVAL;
    s->cfg = *cfg;
    s->cfg.priv = NULL;
    s->cfg.priv_len = 0;
    s->res.ird = cfg->ird;
    s->res.ord = cfg->ord;
    s->res.peer_ird = s->res.peer_ord = MPA_IRD_ORD_NONE;
    if (cfg->responder) {
        s->state = MPA_ST_WAIT_REQ;
        return 0;
    }
    s->state = MPA_ST_SEND_REQ; /* RFC 5044 7.1.2 rule 1 */
    /* RFC 6581 9.2/1,2: A, and the kinds that we can do. */
    struct mpa_enhanced e = { .p2p = cfg->peer_to_peer, .rtr = cfg->rtr, .ird = cfg->ird, .ord = cfg->ord };
    uint8_t flags = own_flags(s);
    if (cfg->dialect == MPA_DIALECT_RTR_FRAME)
        flags |= FLAG_S;
    put_frame(s, key_request, flags, cfg->rev, wants_enhanced(cfg) ? &e : NULL, cfg->priv, cfg->priv_len);
    return 0;
}

/* ---- RTR and IRD/ORD, RFC 6581 section 9 ---- */

/* The kind of the set that we prefer; 0 if the set is empty. */
static uint8_t rtr_choose(const struct mpa_startup_cfg *cfg, uint8_t set)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(cfg->rtr_pref) && cfg->rtr_pref[i] != 0; i++)
        if (set & cfg->rtr_pref[i])
            return set & cfg->rtr_pref[i];
    return set & (uint8_t)-set; /* the lowest bit of: send, write, read */
}

/*
 * Responder. `ours` is the depth we offer, `wanted` what the peer asks for. 0x3FFF from us: our ULP
 * sees to it. From the peer:
 * RFC 6581 9.1/9,11: "The responder MUST respond to an initiator ORD value of 0x3FFF by leaving its local
 * endpoint IRD value unchanged and setting the IRD to 0x3FFF in its reply message"; and so for IRD.
 */
static uint16_t depth_reply(uint16_t ours, uint16_t wanted)
{
    if (wanted == MPA_IRD_ORD_NONE || ours == MPA_IRD_ORD_NONE)
        return MPA_IRD_ORD_NONE;
    return min_u16(ours, wanted); /* RFC 6581 9.1/2,3: also the ORD */
}

static uint16_t depth_local(uint16_t ours, uint16_t replied)
{
    return replied == MPA_IRD_ORD_NONE ? ours : replied;
}

/* For the initiator, with the Reply's IRD, ORD and RTR kinds in res. */
static ssize_t initiator_enhanced(struct mpa_startup *s, bool asked_p2p)
{
    struct mpa_startup_result *res = &s->res;
    /* RFC 6581 9.2/9: the responder "MUST set Control Flag A to 1": else the models do not agree. */
    if (asked_p2p && !res->peer_p2p)
        return fail(s, MPA_SE_RTR);
    if (res->peer_p2p) {
        /*
         * RFC 6581 9.2/8,9: "Upon receiving the MPA Accept Frame with Control Flag A set to 1, the
         * initiator MUST generate one of the negotiated RTR indications." A Read only if nothing
         * else is left, should the responder have no room for one.
         */
        uint8_t common = res->peer_rtr & s->cfg.rtr;
        if (res->peer_ird == 0 && common != MPA_RTR_READ)
            common &= (uint8_t)~MPA_RTR_READ;
        res->rtr = rtr_choose(&s->cfg, common);
        if (res->rtr == 0)
            return fail(s, MPA_SE_RTR);
    }
    /* RFC 6581 9.1/5,10: "MUST set … its ORD at most to the responder IRD". */
    if (res->peer_ird != MPA_IRD_ORD_NONE && s->cfg.ord != MPA_IRD_ORD_NONE)
        res->ord = min_u16(s->cfg.ord, res->peer_ird);
    if (res->rtr == MPA_RTR_READ && res->ord == 0)
        res->ord = 1; /* the RTR itself; the responder chose the kind */
    /*
     * RFC 6581 9.1/5,6,12: "MUST set its IRD at least to the responder ORD … If the initiator does not have
     * sufficient resources for the required IRD, it MUST send a TERM message".
     */
    if (res->peer_ord != MPA_IRD_ORD_NONE && s->cfg.ird != MPA_IRD_ORD_NONE && res->peer_ord > s->cfg.ird)
        return fail(s, MPA_SE_IRD);
    return 0;
}

/* ---- receiving ---- */

/*
 * The frame under way. An RtR frame is put where the Reply was, which has been sent by then: the Request's private data
 * are still the ULP's.
 */
static const uint8_t *frame_in(const struct mpa_startup *s)
{
    return s->state == MPA_ST_WAIT_RTR ? s->out : s->in;
}

static size_t pd_len(const struct mpa_startup *s)
{
    return get_be16(frame_in(s) + OFF_PD_LEN);
}

/*
 * RFC 6581 6/5: the private data begin with the word. RFC 6581 6/2: at Rev 1 the bit is one of RFC 5044's Res, which
 * "MUST be set to zero when sending, and not checked on reception" (section 7.1.1), or the
 * proposal's.
 */
static bool is_enhanced(const uint8_t *frame)
{
    return frame[OFF_REV] >= 2 && (frame[OFF_FLAGS] & FLAG_S) != 0;
}

/* The proposal's S. */
static bool says_rtr_frame(const struct mpa_startup *s, const uint8_t *frame)
{
    return s->cfg.dialect == MPA_DIALECT_RTR_FRAME && frame[OFF_REV] == 1 && (frame[OFF_FLAGS] & FLAG_S) != 0;
}

static bool is_prefix(const struct mpa_startup *s, const uint8_t key[KEY_LEN])
{
    return memcmp(frame_in(s), key, s->in_len < KEY_LEN ? s->in_len : KEY_LEN) == 0;
}

static const uint8_t *key_expected(const struct mpa_startup *s)
{
    return s->state == MPA_ST_WAIT_REQ ? key_request : s->state == MPA_ST_WAIT_RTR ? key_rtr : key_reply;
}

/*
 * Judges those octets of the frame's fixed part that have come. The result does not depend on how the octets were cut
 * into pieces: a Request in place of a Reply is one only when its whole key has come.
 */
static enum mpa_startup_err check_header(const struct mpa_startup *s)
{
    const uint8_t *frame = frame_in(s);
    if (!is_prefix(s, key_expected(s))) {
        /*
         * RFC 5044 7.1.1/2,4, RFC 5044 7.1.2 rule 5: "If a received "Key" does not match the expected value … the
         * TCP/DDP connection MUST be closed". RFC 5044 7.1.2 rule 8/1: "MUST use the difference between the MPA
         * Request Frame and the MPA Reply Frame to check for incorrect "Initiator/Initiator"
         * startups."
         */
        if (s->cfg.responder || !is_prefix(s, key_request))
            return MPA_SE_KEY;
        return s->in_len < KEY_LEN ? MPA_SE_NONE : MPA_SE_CROSSING;
    }
    if (s->in_len > OFF_REV) {
        /*
         * RFC 5044 7.1.1/15,16: "If the MPA receiver cannot interoperate with the received version, then
         * it MUST close the connection". RFC 6581 6/4 and RFC 6581 10/4: "A host accepting MPA connections MUST
         * continue
         * to accept MPA Requests with version one, even if it supports version two."
         */
        if (frame[OFF_REV] < 1 || frame[OFF_REV] > 2)
            return MPA_SE_REV;
        /*
         * RFC 6581 10/5: "If the responder receives an enhanced MPA message, it MUST respond with an
         * enhanced MPA message." A plain rejection is understood all the same.
         */
        if (s->state == MPA_ST_WAIT_REP && is_enhanced(frame) != is_enhanced(s->out) &&
            (is_enhanced(frame) || !(frame[OFF_FLAGS] & FLAG_R)))
            return MPA_SE_ENHANCED;
    }
    if (s->in_len >= MPA_STARTUP_HDR_LEN) {
        /* RFC 5044 7.1.1/18, RFC 5044 7.1.2 rule 9/1,4: "MPA implementations MUST validate the PD_Length field." */
        if (pd_len(s) > MPA_PRIVATE_MAX)
            return MPA_SE_PD_LEN;
        if (is_enhanced(frame) && pd_len(s) < MPA_ENHANCED_LEN)
            return MPA_SE_ENHANCED;
    }
    return MPA_SE_NONE;
}

static void take_result(struct mpa_startup *s)
{
    struct mpa_startup_result *res = &s->res;
    uint8_t flags = s->in[OFF_FLAGS];
    res->rev = s->in[OFF_REV]; /* RFC 5044 3/8 */
    res->enhanced = is_enhanced(s->in);
    res->rtr_frame = says_rtr_frame(s, s->in);
    /*
     * RFC 5044 4.4/6,7, RFC 5044 C.1/2 and RFC 5044 7.1.1/10,11: "When this bit is '1' in either the MPA Request Frame
     * or MPA Reply Frame, CRCs MUST be generated and checked by both endpoints."
     */
    res->crc = s->cfg.crc || (flags & FLAG_C) != 0;
    /* RFC 5044 7.1.1/8,9: Markers in what we send as the peer's M says. */
    res->markers_tx = (flags & FLAG_M) != 0;
    res->markers_rx = s->cfg.markers;
    res->peer_priv = s->in + MPA_STARTUP_HDR_LEN;
    res->peer_priv_len = pd_len(s);
    if (res->enhanced) {
        struct mpa_enhanced e = mpa_enhanced_decode(res->peer_priv);
        res->peer_priv += MPA_ENHANCED_LEN;
        res->peer_priv_len -= MPA_ENHANCED_LEN;
        res->peer_p2p = e.p2p;
        res->peer_rtr = e.rtr;
        /* RFC 6581 9.1/1,8: "MUST pass the peer's provided IRD and ORD values to the ULP". */
        res->peer_ird = e.ird;
        res->peer_ord = e.ord;
    }
}

/*
 * The initiator is ready. Flags: the Request's M; C, by the proposal, as in the Reply; the rest is 0. No private data
 * are defined.
 */
static void put_rtr_frame(struct mpa_startup *s)
{
    uint8_t flags = (uint8_t)((s->cfg.markers ? FLAG_M : 0) | (s->in[OFF_FLAGS] & FLAG_C));
    put_frame(s, key_rtr, flags, 1, NULL, NULL, 0);
    move(s, MPA_ST_SEND_RTR);
}

/* The whole frame has come. R is looked at in a Reply only (RFC 5044 section 7.1.1). */
static ssize_t frame_complete(struct mpa_startup *s)
{
    if (s->state == MPA_ST_WAIT_RTR) {
        move(s, MPA_ST_DONE); /* nothing in it matters */
        return 0;
    }
    take_result(s);
    /* RFC 5044 7.1.2 rule 2/1 and RFC 5044 7.1.2 rule 3/1: a whole and valid frame has come. */
    if (s->cfg.responder) {
        move(s, MPA_ST_DECIDE);
        return 0;
    }
    /* RFC 5044 7.1.2 rule 3/3: "MUST exit MPA, leaving the TCP connection open". */
    if (s->in[OFF_FLAGS] & FLAG_R) {
        move(s, MPA_ST_REJECTED);
        return 0;
    }
    if (s->res.enhanced) {
        ssize_t r = initiator_enhanced(s, s->cfg.peer_to_peer);
        if (r < 0)
            return r;
    }
    if (s->res.rtr_frame)
        put_rtr_frame(s);
    else
        move(s, MPA_ST_DONE); /* RFC 5044 7.1.2 rule 3/4 */
    return 0;
}

ssize_t mpa_startup_input(struct mpa_startup *s, const uint8_t *buf, size_t len)
{
    if (s->state == MPA_ST_DECIDE || s->state == MPA_ST_SEND_REP)
        return len > 0 ? fail(s, MPA_SE_PIPELINED) : 0;
    size_t used = 0, need;
    while (used < len && (need = mpa_startup_need(s)) > 0) {
        size_t n = len - used < need ? len - used : need;
        memcpy((s->state == MPA_ST_WAIT_RTR ? s->out : s->in) + s->in_len, buf + used, n);
        s->in_len += n;
        used += n;
        enum mpa_startup_err err = check_header(s);
        if (err != MPA_SE_NONE)
            return fail(s, err);
        if (mpa_startup_need(s) == 0 && frame_complete(s) < 0)
            return -EPROTO;
    }
    return (ssize_t)used;
}

size_t mpa_startup_need(const struct mpa_startup *s)
{
    if (s->state != MPA_ST_WAIT_REP && s->state != MPA_ST_WAIT_REQ && s->state != MPA_ST_WAIT_RTR)
        return 0;
    if (s->in_len < MPA_STARTUP_HDR_LEN)
        return MPA_STARTUP_HDR_LEN - s->in_len;
    return MPA_STARTUP_HDR_LEN + pd_len(s) - s->in_len;
}

void mpa_startup_eof(struct mpa_startup *s)
{
    if (s->state < MPA_ST_DONE)
        (void)fail(s, MPA_SE_CLOSED);
}

/* ---- the responder's answer ---- */

/* RFC 6581 10/1,2,5,6: enhanced or not, as the Request was. */
static int reply(struct mpa_startup *s, uint8_t flags, const struct mpa_enhanced *e, const void *priv, size_t priv_len)
{
    put_frame(s, key_reply, flags, s->res.rev, s->res.enhanced ? e : NULL, priv, priv_len);
    move(s, MPA_ST_SEND_REP);
    return 0;
}

static bool may_reply(const struct mpa_startup *s, size_t priv_len)
{
    return s->state == MPA_ST_DECIDE && priv_len <= priv_max(s->res.enhanced);
}

/* RFC 5044 7.1.2 rule 2/5: "Rejected Connection bit set to '0'". */
int mpa_startup_accept(struct mpa_startup *s, const void *priv, size_t priv_len)
{
    struct mpa_startup_result *res = &s->res;
    if (!may_reply(s, priv_len))
        return -EINVAL;
    /*
     * RFC 6581 section 9.1: "The responder MAY reject the connection request if the initiator IRD is not
     * sufficient for the ULP-required ORD".
     */
    if (res->peer_ird != MPA_IRD_ORD_NONE && res->peer_ird < s->cfg.ord_min) {
        s->err = MPA_SE_IRD;
        return -EPROTO;
    }
    uint8_t rtr = 0;
    if (res->peer_p2p) {
        uint8_t common = res->peer_rtr & s->cfg.rtr;
        if (s->cfg.ird == 0)
            common &= (uint8_t)~MPA_RTR_READ;
        rtr = rtr_choose(&s->cfg, common);
        if (rtr == 0) {
            s->err = MPA_SE_RTR;
            return -EPROTO;
        }
    }
    /*
     * RFC 6581 section 9.1: "if the initiator ORD is 0 … and the responder supports use of a zero-length RDMA
     * Read RTR
     * indication, then the responder IRD can be set to 1"
     */
    uint16_t wanted = rtr == MPA_RTR_READ && res->peer_ord == 0 ? 1 : res->peer_ord;
    /* RFC 6581 9.2/4,6,12: A as the Request has it, and one kind of those it has. */
    struct mpa_enhanced e = {
        .p2p = res->peer_p2p,
        .rtr = rtr,
        .ird = depth_reply(s->cfg.ird, wanted),
        .ord = depth_reply(s->cfg.ord, res->peer_ird),
    };
    res->rtr = rtr;
    res->ird = depth_local(s->cfg.ird, e.ird);
    res->ord = depth_local(s->cfg.ord, e.ord);
    /*
     * C is also set if only the Request has it: the outcome is the same, and some initiators look at the Reply alone.
     */
    return reply(s, (uint8_t)(own_flags(s) | (res->crc ? FLAG_C : 0) | (res->rtr_frame ? FLAG_S : 0)), &e, priv,
                 priv_len);
}

/* RFC 5044 7.1.2 rule 2/3,4 and RFC 5044 7.1.2 rule 6: "set to '1'"; then MPA exits. */
int mpa_startup_reject(struct mpa_startup *s, const void *priv, size_t priv_len)
{
    if (!may_reply(s, priv_len))
        return -EINVAL;
    /*
     * What we would do. RFC 6581 9.2/7: "then the responder MUST set at least one RTR indication type option it
     * supports".
     */
    struct mpa_enhanced e = {
        .p2p = s->res.peer_p2p,
        .rtr = s->cfg.rtr,
        .ird = s->res.peer_ord == MPA_IRD_ORD_NONE ? MPA_IRD_ORD_NONE : s->cfg.ird,
        /* RFC 6581 section 9.1: "and specify the required ORD in the MPA Reject Frame responder ORD". */
        .ord = s->res.peer_ird == MPA_IRD_ORD_NONE ? MPA_IRD_ORD_NONE
               : s->err == MPA_SE_IRD              ? s->cfg.ord_min
                                                   : s->cfg.ord,
    };
    s->reject = true;
    return reply(s, own_flags(s) | FLAG_R, &e, priv, priv_len);
}

/* ---- sending ---- */

static bool has_output(const struct mpa_startup *s)
{
    return s->state == MPA_ST_SEND_REQ || s->state == MPA_ST_SEND_REP || s->state == MPA_ST_SEND_RTR;
}

size_t mpa_startup_output(const struct mpa_startup *s, const uint8_t **p)
{
    if (!has_output(s))
        return 0;
    *p = s->out + s->out_off;
    return s->out_len - s->out_off;
}

void mpa_startup_sent(struct mpa_startup *s, size_t n)
{
    if (!has_output(s)) {
        SW_CHECK(n == 0, "%zu octets sent in state %s", n, states[s->state].name);
        return;
    }
    SW_CHECK(n <= s->out_len - s->out_off, "%zu of %zu octets sent", n, s->out_len - s->out_off);
    s->out_off += n;
    if (s->out_off < s->out_len)
        return;
    if (s->state == MPA_ST_SEND_REQ) {
        move(s, MPA_ST_WAIT_REP);
    } else if (s->state == MPA_ST_SEND_REP && s->res.rtr_frame && !s->reject) {
        s->in_len = 0;
        move(s, MPA_ST_WAIT_RTR);
    } else {
        move(s, s->reject ? MPA_ST_REJECTED : MPA_ST_DONE);
    }
}

/* ---- failures ---- */

bool mpa_startup_terminates(const struct mpa_startup *s, uint8_t *code)
{
    /*
     * RFC 6581 9.1/7: "the TERM message MUST contain Layer 2, Error Type 0, Error Code 6"; RFC 6581 9.2/10: "Error
     * Code 7". Other failures here are improperly formatted frames, after which RFC 5044 7.1.2 rules
     * 2 and 3 want TCP closed; a responder has rejected, or may send no FPDU yet (rule 4).
     */
    if (s->state != MPA_ST_FAILED || s->cfg.responder || (s->err != MPA_SE_IRD && s->err != MPA_SE_RTR))
        return false;
    *code = s->err == MPA_SE_IRD ? 6 : 7;
    return true;
}

bool mpa_startup_retry_rev1(const struct mpa_startup *s)
{
    return s->state == MPA_ST_FAILED && s->err == MPA_SE_CLOSED && !s->cfg.responder && s->in_len == 0 &&
           s->out_off == s->out_len && is_enhanced(s->out);
}

/* ---- names ---- */

const char *mpa_startup_err_name(unsigned err)
{
    static const char *const names[] = {
        [MPA_SE_NONE] = "none",
        [MPA_SE_KEY] = "wrong key",
        [MPA_SE_CROSSING] = "Request where a Reply was due",
        [MPA_SE_REV] = "revision not supported",
        [MPA_SE_PD_LEN] = "private data too long",
        [MPA_SE_ENHANCED] = "enhanced form misused",
        [MPA_SE_PIPELINED] = "octets behind the Request",
        [MPA_SE_IRD] = "insufficient IRD",
        [MPA_SE_RTR] = "no common RTR",
        [MPA_SE_CLOSED] = "peer closed",
    };
    return err < SW_ARRAY_LEN(names) ? names[err] : "unknown";
}

const char *mpa_rtr_name(unsigned rtr)
{
    switch (rtr) {
    case 0:
        return "none";
    case MPA_RTR_SEND:
        return "send";
    case MPA_RTR_WRITE:
        return "write";
    case MPA_RTR_READ:
        return "read";
    default:
        return "several";
    }
}
