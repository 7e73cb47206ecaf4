/*
 * Fuzz target: MPA startup frames (RFC 5044 section 7.1, RFC 6581). Four octets make the
 * configuration, the rest comes from the peer. What must hold: the machine takes the octets of one
 * frame at most; cutting them into pieces changes nothing; what is agreed is within what either
 * side said; a Reply that we put out is one that an initiator of ours takes.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/mpa/startup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAME_MAX (MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX)

static void must(int cond)
{
    if (!cond)
        abort();
}

static uint16_t depth(unsigned bits)
{
    static const uint16_t depths[] = { 0, 1, 8, MPA_IRD_ORD_NONE };
    return depths[bits & 3];
}

static struct mpa_startup_cfg config(const uint8_t *d)
{
    struct mpa_startup_cfg cfg = {
        .responder = d[0] & 1,
        .dialect = d[0] & 16 ? MPA_DIALECT_RTR_FRAME : MPA_DIALECT_RFC,
        .rev = d[0] & 2 ? 2 : 1,
        .crc = d[0] & 4,
        .markers = d[0] & 8,
        .peer_to_peer = d[0] & 32,
        .rtr = d[1] & 7,
        .rtr_pref = { (uint8_t)(1 << d[1] / 8 % 3), (uint8_t)(d[1] & 128 ? 0 : MPA_RTR_READ) },
        .ird = depth(d[2]),
        .ord = depth(d[2] >> 2),
        .ord_min = d[2] & 128 ? 1 : 0,
        .priv = d,
        .priv_len = d[3] & 3,
    };
    return cfg;
}

static void check_result(const struct mpa_startup *s)
{
    const struct mpa_startup_result *r = &s->res;
    must(r->rev == 1 || r->rev == 2);
    must(!r->enhanced || r->rev == 2);
    must(r->peer_priv >= s->in + MPA_STARTUP_HDR_LEN);
    must(r->peer_priv + r->peer_priv_len == s->in + MPA_STARTUP_HDR_LEN + get_be16(s->in + 18));
    must(!r->rtr_frame || (r->rev == 1 && s->cfg.dialect == MPA_DIALECT_RTR_FRAME));
    must(r->peer_ird <= MPA_IRD_ORD_NONE && r->peer_ord <= MPA_IRD_ORD_NONE);
    must(r->peer_p2p || r->peer_rtr == 0);
    if (s->state != MPA_ST_DONE)
        return;
    must((r->rtr & (r->rtr - 1)) == 0 && (r->rtr & ~s->cfg.rtr) == 0 && (r->rtr & ~r->peer_rtr) == 0);
    must((r->rtr != 0) == r->peer_p2p);
    must(r->markers_rx == s->cfg.markers);
    must(r->crc || !s->cfg.crc);
    must(s->cfg.ird == MPA_IRD_ORD_NONE ? r->ird == s->cfg.ird : r->ird <= s->cfg.ird);
    must(s->cfg.ord == MPA_IRD_ORD_NONE ? r->ord == s->cfg.ord : r->ord <= s->cfg.ord || r->rtr == MPA_RTR_READ);
    if (!s->cfg.responder && r->peer_ord != MPA_IRD_ORD_NONE)
        must(r->ird >= r->peer_ord);
}

/* The Reply under way, given to an initiator that can do anything and asked in the same form. */
static void check_reply(struct mpa_startup *s)
{
    static struct mpa_startup ini;
    uint8_t buf[FRAME_MAX];
    const uint8_t *p;
    const struct mpa_startup_result *r = &s->res;
    struct mpa_startup_cfg cfg = {
        .rev = r->rev,
        .dialect = r->rtr_frame ? MPA_DIALECT_RTR_FRAME : MPA_DIALECT_RFC,
        .peer_to_peer = r->enhanced && r->peer_p2p,
        .rtr = r->peer_rtr | MPA_RTR_SEND,
        .ird = r->enhanced ? 0x3ffe : MPA_IRD_ORD_NONE,
        .ord = r->enhanced ? 0x3ffe : MPA_IRD_ORD_NONE,
    };
    bool reject = s->reject;
    must(mpa_startup_init(&ini, &cfg) == 0);
    mpa_startup_sent(&ini, mpa_startup_output(&ini, &p));
    size_t len = mpa_startup_output(s, &p);
    must(len >= MPA_STARTUP_HDR_LEN && len <= FRAME_MAX);
    must((p[16] & 0x0f) == 0 && p[17] == r->rev && ((p[16] & 0x10) != 0) == (r->enhanced || (r->rtr_frame && !reject)));
    memcpy(buf, p, len);
    mpa_startup_sent(s, len);
    must(s->state == (reject ? MPA_ST_REJECTED : r->rtr_frame ? MPA_ST_WAIT_RTR : MPA_ST_DONE));
    must(mpa_startup_input(&ini, buf, len) == (ssize_t)len);
    if (s->state == MPA_ST_WAIT_RTR) {
        must(ini.state == MPA_ST_SEND_RTR && mpa_startup_need(s) == MPA_STARTUP_HDR_LEN);
        len = mpa_startup_output(&ini, &p);
        must(mpa_startup_input(s, p, len) == (ssize_t)len);
        mpa_startup_sent(&ini, len);
    }
    must(ini.state == s->state);
    must(reject || ini.res.rtr == r->rtr);
}

static void decide(struct mpa_startup *s, const uint8_t *d)
{
    int r = d[3] & 4 ? -EPROTO : mpa_startup_accept(s, d, d[3] & 3);
    must(r == 0 || r == -EPROTO);
    if (r < 0) {
        must(s->state == MPA_ST_DECIDE);
        must(mpa_startup_reject(s, d, d[3] & 3) == 0);
    }
    must(s->state == MPA_ST_SEND_REP);
    check_reply(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mpa_startup whole, pieces;
    const uint8_t *p;
    if (size < 4)
        return 0;
    struct mpa_startup_cfg cfg = config(data);
    if (mpa_startup_init(&whole, &cfg) < 0)
        return 0;
    mpa_startup_sent(&whole, mpa_startup_output(&whole, &p));
    pieces = whole;
    const uint8_t *in = data + 4;
    size_t len = size - 4, step = data[3] / 8 + 1u, used = 0;

    ssize_t r = mpa_startup_input(&whole, in, len);
    must(r == -EPROTO || (r >= 0 && (size_t)r <= len && (size_t)r <= FRAME_MAX));
    while (used < len && mpa_startup_need(&pieces) > 0) {
        size_t n = len - used < step ? len - used : step;
        size_t need = mpa_startup_need(&pieces);
        ssize_t q = mpa_startup_input(&pieces, in + used, n);
        if (q < 0)
            break;
        must((size_t)q <= n && ((size_t)q == n || mpa_startup_need(&pieces) == 0));
        must((size_t)q < need || mpa_startup_need(&pieces) == 0 || pieces.in_len == MPA_STARTUP_HDR_LEN ||
             need <= MPA_STARTUP_HDR_LEN);
        used += (size_t)q;
    }
    must(whole.state == pieces.state && whole.err == pieces.err);
    if (r >= 0)
        must((size_t)r == used);

    switch (whole.state) {
    case MPA_ST_DONE:
    case MPA_ST_REJECTED:
        check_result(&whole);
        must(mpa_startup_input(&whole, in, len) == 0);
        break;
    case MPA_ST_DECIDE:
        check_result(&whole);
        decide(&whole, data);
        check_result(&whole);
        break;
    case MPA_ST_SEND_RTR:
        check_result(&whole);
        must(whole.res.rtr_frame && mpa_startup_output(&whole, &p) == MPA_STARTUP_HDR_LEN);
        mpa_startup_sent(&whole, MPA_STARTUP_HDR_LEN);
        must(whole.state == MPA_ST_DONE);
        check_result(&whole);
        break;
    case MPA_ST_FAILED: {
        uint8_t code;
        must(r == -EPROTO && whole.err != MPA_SE_NONE);
        must(!mpa_startup_terminates(&whole, &code) || (!cfg.responder && code >= 6));
        must(!mpa_startup_retry_rev1(&whole));
        break;
    }
    default:
        must((size_t)r == len && mpa_startup_need(&whole) > 0);
        mpa_startup_eof(&whole);
        must(whole.state == MPA_ST_FAILED && whole.err == MPA_SE_CLOSED);
        break;
    }
    return 0;
}
