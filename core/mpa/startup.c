/*
 * MPA startup frames, initiator and responder: RFC 5044 section 7.1, RFC 6581 sections 6 and 9.
 *
 * Stands before the receive path: what it consumes are the last octets of streaming mode; the next
 * one is an FPDU's (mpa/fpdu.c).
 */
#include "core/mpa/startup.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/sm.h"

#define KEY_LEN 16u

enum { OFF_FLAGS = 16, OFF_REV = 17, OFF_PD_LEN = 18 };

/*
 * Octet 16. S exists from Rev 2 on (RFC 6581 section 6); the rest "MUST be set to zero when
 * sending, and not checked".
 */
enum { FLAG_M = 0x80, FLAG_C = 0x40, FLAG_R = 0x20, FLAG_S = 0x10 };

/* The enhanced word, RFC 6581 section 9. */
#define WORD_A 0x80000000u
#define WORD_B 0x40000000u
#define WORD_IRD_SHIFT 16
#define WORD_C 0x00008000u
#define WORD_D 0x00004000u
#define WORD_DEPTH_MASK 0x3fffu

#define RTR_ALL (MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ)

static const uint8_t key_request[KEY_LEN] = { 'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                                              'e', 'q', ' ', 'F', 'r', 'a', 'm', 'e' };
static const uint8_t key_reply[KEY_LEN] = { 'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R',
                                            'e', 'p', ' ', 'F', 'r', 'a', 'm', 'e' };

static const struct sm_state states[] = {
    [MPA_ST_SEND_REQ] = { "send-request", SM_TO(MPA_ST_WAIT_REP) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_WAIT_REP] = { "wait-reply",
                          SM_TO(MPA_ST_DONE) | SM_TO(MPA_ST_REJECTED) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_WAIT_REQ] = { "wait-request", SM_TO(MPA_ST_DECIDE) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_DECIDE] = { "decide", SM_TO(MPA_ST_SEND_REP) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_SEND_REP] = { "send-reply",
                          SM_TO(MPA_ST_DONE) | SM_TO(MPA_ST_REJECTED) | SM_TO(MPA_ST_FAILED) },
    [MPA_ST_DONE] = { "done", 0 },
    [MPA_ST_REJECTED] = { "rejected", 0 },
    [MPA_ST_FAILED] = { "failed", 0 },
};

static void move(struct mpa_startup *s, enum mpa_startup_state to)
{
    sm_move(states, "mpa-startup", s, &s->state, (uint8_t)to);
}

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

struct enhanced {
    bool p2p;
    uint8_t rtr;
    uint16_t ird, ord;
};

static uint32_t enhanced_encode(const struct enhanced *e)
{
    uint32_t word = (uint32_t)e->ird << WORD_IRD_SHIFT | e->ord;
    /* "If Control Flag A is set to 0, then Control Flags B, C, and D MUST also be set to 0." */
    if (e->p2p)
        word |= WORD_A | (e->rtr & MPA_RTR_SEND ? WORD_B : 0) |
                (e->rtr & MPA_RTR_WRITE ? WORD_C : 0) | (e->rtr & MPA_RTR_READ ? WORD_D : 0);
    return word;
}

static struct enhanced enhanced_decode(uint32_t word)
{
    struct enhanced e = {
        .p2p = (word & WORD_A) != 0,
        .ird = (uint16_t)(word >> WORD_IRD_SHIFT & WORD_DEPTH_MASK),
        .ord = (uint16_t)(word & WORD_DEPTH_MASK),
    };
    /*
     * "On reception, if Control Flag A is set to 0, then Control Flags B, C, and D MUST be
     * ignored."
     */
    if (e.p2p)
        e.rtr = (uint8_t)((word & WORD_B ? MPA_RTR_SEND : 0) | (word & WORD_C ? MPA_RTR_WRITE : 0) |
                          (word & WORD_D ? MPA_RTR_READ : 0));
    return e;
}

/* e is NULL for the unenhanced form. The caller has seen to it that the private data fit. */
static void put_frame(struct mpa_startup *s, const uint8_t key[KEY_LEN], uint8_t flags, uint8_t rev,
                      const struct enhanced *e, const void *priv, size_t priv_len)
{
    struct bytes_wr w = bytes_wr_init(s->out, sizeof(s->out));
    bytes_wr_copy(&w, key, KEY_LEN);
    bytes_wr_u8(&w, (uint8_t)(flags | (e ? FLAG_S : 0)));
    bytes_wr_u8(&w, rev);
    bytes_wr_be16(&w, (uint16_t)(priv_len + (e ? MPA_ENHANCED_LEN : 0)));
    if (e)
        bytes_wr_be32(&w, enhanced_encode(e));
    bytes_wr_copy(&w, priv, priv_len);
    SW_CHECK(!w.bad, "a startup frame of %zu private octets", priv_len);
    s->out_len = bytes_wr_len(&w);
    s->out_off = 0;
}

static uint8_t own_flags(const struct mpa_startup *s)
{
    return (uint8_t)((s->cfg.markers ? FLAG_M : 0) | (s->cfg.crc ? FLAG_C : 0));
}

/* ---- setup ---- */

/* RFC 6581 section 10: no enhanced form "when no enhanced functionality is desired". */
static bool wants_enhanced(const struct mpa_startup_cfg *cfg)
{
    return cfg->rev >= 2 &&
           (cfg->peer_to_peer || cfg->ird != MPA_IRD_ORD_NONE || cfg->ord != MPA_IRD_ORD_NONE);
}

static size_t priv_max(bool enhanced)
{
    return MPA_PRIVATE_MAX - (enhanced ? MPA_ENHANCED_LEN : 0);
}

static bool cfg_ok(const struct mpa_startup_cfg *cfg)
{
    if (cfg->ird > MPA_IRD_ORD_NONE || cfg->ord > MPA_IRD_ORD_NONE || (cfg->rtr & ~RTR_ALL) != 0)
        return false;
    for (size_t i = 0; i < SW_ARRAY_LEN(cfg->rtr_pref); i++)
        if ((cfg->rtr_pref[i] & ~RTR_ALL) != 0 || (cfg->rtr_pref[i] & (cfg->rtr_pref[i] - 1)) != 0)
            return false; /* not a single kind */
    /* "The responder MUST support at least one RTR indication option" (RFC 6581 section 9.2). */
    if (cfg->responder)
        return cfg->rtr != 0;
    if (cfg->rev < 1 || cfg->rev > 2)
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
    s->state = MPA_ST_SEND_REQ;
    struct enhanced e = {
        .p2p = cfg->peer_to_peer, .rtr = cfg->rtr, .ird = cfg->ird, .ord = cfg->ord
    };
    put_frame(s, key_request, own_flags(s), cfg->rev, wants_enhanced(cfg) ? &e : NULL, cfg->priv,
              cfg->priv_len);
    return 0;
}

/* ---- RTR and IRD/ORD, RFC 6581 section 9 ---- */

/* The kind of the set that we like best; 0 if the set is empty. */
static uint8_t rtr_choose(const struct mpa_startup_cfg *cfg, uint8_t set)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(cfg->rtr_pref) && cfg->rtr_pref[i] != 0; i++)
        if (set & cfg->rtr_pref[i])
            return set & cfg->rtr_pref[i];
    return set & (uint8_t)-set; /* lowest bit: send, write, read */
}

/*
 * Responder. `ours` is the depth we offer, `wanted` what the peer asks for. 0x3FFF from the peer:
 * "leaving its local endpoint … value unchanged, and setting [it] to 0x3FFF in its reply"; from us:
 * our ULP sees to it.
 */
static uint16_t depth_reply(uint16_t ours, uint16_t wanted)
{
    if (wanted == MPA_IRD_ORD_NONE || ours == MPA_IRD_ORD_NONE)
        return MPA_IRD_ORD_NONE;
    return min_u16(ours, wanted);
}

static uint16_t depth_local(uint16_t ours, uint16_t replied)
{
    return replied == MPA_IRD_ORD_NONE ? ours : replied;
}

/* Initiator, with the Reply's IRD, ORD and RTR kinds in res. */
static ssize_t initiator_enhanced(struct mpa_startup *s, bool asked_p2p)
{
    struct mpa_startup_result *res = &s->res;
    /* "the responder MUST set Control Flag A to 1": without it the models do not agree. */
    if (asked_p2p && !res->peer_p2p)
        return fail(s, MPA_SE_RTR);
    if (res->peer_p2p) {
        /*
         * "Upon receiving the MPA Accept Frame with Control Flag A set to 1, the initiator MUST
         * generate one of the negotiated RTR indications." A Read only if nothing else is left,
         * should the responder have no room for one.
         */
        uint8_t common = res->peer_rtr & s->cfg.rtr;
        if (res->peer_ird == 0 && common != MPA_RTR_READ)
            common &= (uint8_t)~MPA_RTR_READ;
        res->rtr = rtr_choose(&s->cfg, common);
        if (res->rtr == 0)
            return fail(s, MPA_SE_RTR);
    }
    /* "its ORD at most to the responder IRD" */
    if (res->peer_ird != MPA_IRD_ORD_NONE && s->cfg.ord != MPA_IRD_ORD_NONE)
        res->ord = min_u16(s->cfg.ord, res->peer_ird);
    if (res->rtr == MPA_RTR_READ && res->ord == 0)
        res->ord = 1; /* the RTR itself; the responder chose the kind */
    /*
     * "MUST set its IRD at least to the responder ORD … If the initiator does not have sufficient
     * resources for the required IRD, it MUST send a TERM message".
     */
    if (res->peer_ord != MPA_IRD_ORD_NONE && s->cfg.ird != MPA_IRD_ORD_NONE &&
        res->peer_ord > s->cfg.ird)
        return fail(s, MPA_SE_IRD);
    return 0;
}

/* ---- receiving ---- */

static size_t pd_len(const struct mpa_startup *s)
{
    return get_be16(s->in + OFF_PD_LEN);
}

/* S in the Request that we sent. */
static bool sent_enhanced(const struct mpa_startup *s)
{
    return (s->out[OFF_FLAGS] & FLAG_S) != 0;
}

static bool is_prefix(const struct mpa_startup *s, const uint8_t key[KEY_LEN])
{
    return memcmp(s->in, key, s->in_len < KEY_LEN ? s->in_len : KEY_LEN) == 0;
}

/*
 * Judges the octets of the frame's fixed part that are there. What it says does not depend on how
 * the octets were cut into pieces: a Request where a Reply is due is one only when its whole key is
 * there.
 */
static enum mpa_startup_err check_header(const struct mpa_startup *s)
{
    if (!is_prefix(s, s->cfg.responder ? key_request : key_reply)) {
        if (s->cfg.responder || !is_prefix(s, key_request))
            return MPA_SE_KEY;
        return s->in_len < KEY_LEN ? MPA_SE_NONE : MPA_SE_CROSSING;
    }
    if (s->in_len > OFF_REV) {
        uint8_t flags = s->in[OFF_FLAGS], rev = s->in[OFF_REV];
        if (rev < 1 || rev > 2)
            return MPA_SE_REV;
        /*
         * RFC 6581 section 6: "To use any enhanced connection establishment feature, this MUST be
         * set to two or higher."
         */
        if ((flags & FLAG_S) && rev < 2)
            return MPA_SE_ENHANCED;
        if (!s->cfg.responder) {
            /* Section 10: answered in kind. A plain rejection is understood all the same. */
            if ((flags & FLAG_S) && !sent_enhanced(s))
                return MPA_SE_ENHANCED;
            if (!(flags & FLAG_S) && sent_enhanced(s) && !(flags & FLAG_R))
                return MPA_SE_ENHANCED;
        }
    }
    if (s->in_len >= MPA_STARTUP_HDR_LEN) {
        if (pd_len(s) > MPA_PRIVATE_MAX)
            return MPA_SE_PD_LEN;
        if ((s->in[OFF_FLAGS] & FLAG_S) && pd_len(s) < MPA_ENHANCED_LEN)
            return MPA_SE_ENHANCED;
    }
    return MPA_SE_NONE;
}

static void take_result(struct mpa_startup *s)
{
    struct mpa_startup_result *res = &s->res;
    uint8_t flags = s->in[OFF_FLAGS];
    res->rev = s->in[OFF_REV];
    res->enhanced = (flags & FLAG_S) != 0;
    /*
     * "When this bit is '1' in either the MPA Request Frame or MPA Reply Frame, CRCs MUST be
     * generated and checked by both endpoints."
     */
    res->crc = s->cfg.crc || (flags & FLAG_C) != 0;
    res->markers_tx = (flags & FLAG_M) != 0;
    res->markers_rx = s->cfg.markers;
    res->peer_priv = s->in + MPA_STARTUP_HDR_LEN;
    res->peer_priv_len = pd_len(s);
    if (res->enhanced) {
        struct enhanced e = enhanced_decode(get_be32(res->peer_priv));
        res->peer_priv += MPA_ENHANCED_LEN;
        res->peer_priv_len -= MPA_ENHANCED_LEN;
        res->peer_p2p = e.p2p;
        res->peer_rtr = e.rtr;
        res->peer_ird = e.ird;
        res->peer_ord = e.ord;
    }
}

/* The whole frame is there. R is looked at in a Reply only (RFC 5044 section 7.1.1). */
static ssize_t frame_complete(struct mpa_startup *s)
{
    take_result(s);
    if (s->cfg.responder) {
        move(s, MPA_ST_DECIDE);
        return 0;
    }
    if (s->in[OFF_FLAGS] & FLAG_R) {
        move(s, MPA_ST_REJECTED);
        return 0;
    }
    if (s->res.markers_tx && !s->cfg.markers_send_ok)
        return fail(s, MPA_SE_MARKERS);
    if (s->res.enhanced) {
        ssize_t r = initiator_enhanced(s, s->cfg.peer_to_peer);
        if (r < 0)
            return r;
    }
    move(s, MPA_ST_DONE);
    return 0;
}

ssize_t mpa_startup_input(struct mpa_startup *s, const uint8_t *buf, size_t len)
{
    if (s->state == MPA_ST_DECIDE || s->state == MPA_ST_SEND_REP)
        return len > 0 ? fail(s, MPA_SE_PIPELINED) : 0;
    size_t used = 0, need;
    while (used < len && (need = mpa_startup_need(s)) > 0) {
        size_t n = len - used < need ? len - used : need;
        memcpy(s->in + s->in_len, buf + used, n);
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
    if (s->state != MPA_ST_WAIT_REP && s->state != MPA_ST_WAIT_REQ)
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

static int reply(struct mpa_startup *s, uint8_t flags, const struct enhanced *e, const void *priv,
                 size_t priv_len)
{
    put_frame(s, key_reply, flags, s->res.rev, s->res.enhanced ? e : NULL, priv, priv_len);
    move(s, MPA_ST_SEND_REP);
    return 0;
}

static bool may_reply(const struct mpa_startup *s, size_t priv_len)
{
    return s->state == MPA_ST_DECIDE && priv_len <= priv_max(s->res.enhanced);
}

int mpa_startup_accept(struct mpa_startup *s, const void *priv, size_t priv_len)
{
    struct mpa_startup_result *res = &s->res;
    if (!may_reply(s, priv_len))
        return -EINVAL;
    if (res->markers_tx && !s->cfg.markers_send_ok) {
        s->err = MPA_SE_MARKERS;
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
     * "if the initiator ORD is 0 … and the responder supports use of a zero-length RDMA Read RTR
     * indication, then the responder IRD can be set to 1"
     */
    uint16_t wanted = rtr == MPA_RTR_READ && res->peer_ord == 0 ? 1 : res->peer_ord;
    struct enhanced e = {
        .p2p = res->peer_p2p,
        .rtr = rtr,
        .ird = depth_reply(s->cfg.ird, wanted),
        .ord = depth_reply(s->cfg.ord, res->peer_ird),
    };
    res->rtr = rtr;
    res->ird = depth_local(s->cfg.ird, e.ird);
    res->ord = depth_local(s->cfg.ord, e.ord);
    /*
     * C also if only the Request has it: the outcome is the same, and some initiators heed the
     * Reply alone.
     */
    return reply(s, (uint8_t)(own_flags(s) | (res->crc ? FLAG_C : 0)), &e, priv, priv_len);
}

int mpa_startup_reject(struct mpa_startup *s, const void *priv, size_t priv_len)
{
    if (!may_reply(s, priv_len))
        return -EINVAL;
    /*
     * What we would do: "then the responder MUST set at least one RTR indication type option it
     * supports".
     */
    struct enhanced e = {
        .p2p = s->res.peer_p2p,
        .rtr = s->cfg.rtr,
        .ird = s->res.peer_ord == MPA_IRD_ORD_NONE ? MPA_IRD_ORD_NONE : s->cfg.ird,
        .ord = s->res.peer_ird == MPA_IRD_ORD_NONE ? MPA_IRD_ORD_NONE : s->cfg.ord,
    };
    s->reject = true;
    return reply(s, own_flags(s) | FLAG_R, &e, priv, priv_len);
}

/* ---- sending ---- */

static bool has_output(const struct mpa_startup *s)
{
    return s->state == MPA_ST_SEND_REQ || s->state == MPA_ST_SEND_REP;
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
    if (s->state == MPA_ST_SEND_REQ)
        move(s, MPA_ST_WAIT_REP);
    else
        move(s, s->reject ? MPA_ST_REJECTED : MPA_ST_DONE);
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
        [MPA_SE_MARKERS] = "peer demands markers",
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
