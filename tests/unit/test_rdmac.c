/*
 * RFC 5044 appendix C: who can work with the protocols' older form of the RDMA Consortium (Rev 0, the MPA draft of 2002). The endpoint
 * of core/ is the appendix' "Non-permissive IETF RNIC"; the other two kinds are rnic.c's. All of Figures 15, 16 and 17, with frames
 * that go both ways where a connection comes of it.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/must.h"

#include "tests/unit/iwarp_pair.h"
#include "tests/unit/rnic.h"

enum kind { RDMAC, OURS_0, OURS_1, PERMISSIVE_0, PERMISSIVE_1, KINDS };
static const char *const names[] = { "RDMAC", "ours, M=0", "ours, M=1", "permissive, M=0", "permissive, M=1" };

/* One end: ours, or an RNIC. */
struct end {
    enum kind kind;
    bool initiator;
    struct mpa_startup mpa;
    struct side side;
    struct rnic rnic;
};

static bool is_ours(const struct end *e)
{
    return e->kind == OURS_0 || e->kind == OURS_1;
}

static struct end *begin(enum kind kind, bool initiator)
{
    struct end *e = calloc(1, sizeof(*e));
    struct mpa_startup_cfg cfg = { .responder = !initiator,
                                   .rev = 1,
                                   .crc = true,
                                   .markers = kind == OURS_1,
                                   .rtr = MPA_RTR_SEND,
                                   .ird = MPA_IRD_ORD_NONE,
                                   .ord = MPA_IRD_ORD_NONE };

    cr_assert_not_null(e);
    e->kind = kind;
    e->initiator = initiator;
    e->rnic = rnic_new(kind >= PERMISSIVE_0, kind == PERMISSIVE_1);
    cr_assert_eq(mpa_startup_init(&e->mpa, &cfg), 0);
    return e;
}

static void end_free(struct end *e)
{
    side_free(&e->side);
    free(e);
}

static size_t say(struct end *e, uint8_t *buf)
{
    const uint8_t *p;
    size_t n = mpa_startup_output(&e->mpa, &p);

    memcpy(buf, p, n);
    mpa_startup_sent(&e->mpa, n);
    return n;
}

/* The Request, the answer to it (0 octets: it closes), and whether the initiator goes on. */
static size_t request(struct end *e, uint8_t *buf)
{
    if (is_ours(e))
        return say(e, buf);
    rnic_request(&e->rnic, buf);
    return RNIC_FRAME_LEN;
}

static size_t answer(struct end *e, const uint8_t *req, size_t len, uint8_t *buf)
{
    if (!is_ours(e))
        return rnic_hear_request(&e->rnic, req, len, buf) ? RNIC_FRAME_LEN : 0;
    if (mpa_startup_input(&e->mpa, req, len) < 0) {
        cr_expect_eq(e->mpa.err, MPA_SE_REV);
        cr_expect_eq(say(e, buf), 0u, "a Rev that cannot be served closes: no Reply");
        return 0;
    }
    cr_assert_eq(mpa_startup_accept(&e->mpa, "", 0), 0);
    return say(e, buf);
}

static bool goes_on(struct end *e, const uint8_t *rep, size_t len)
{
    uint8_t code;

    if (!is_ours(e))
        return rnic_hear_reply(&e->rnic, rep, len);
    if (mpa_startup_input(&e->mpa, rep, len) >= 0)
        return e->mpa.state == MPA_ST_DONE;
    cr_expect_eq(e->mpa.err, MPA_SE_REV);
    cr_expect_not(mpa_startup_terminates(&e->mpa, &code), "closed without an FPDU");
    return false;
}

static void go_full(struct end *e)
{
    if (!is_ours(e))
        return;
    side_alloc(&e->side, 3);
    struct iwarp_cfg c = side_cfg(&e->side, e->initiator, 0);
    c.mulpdu = 2000;
    cfg_markers(&c, e->mpa.res.markers_rx, e->mpa.res.markers_tx);
    cr_assert_eq(iwarp_init(&e->side.ep, &c), 0);
}

/* "V:Mi/Mr" as the figures have it, or "close". */
static const char *settle(const struct end *i, const struct end *r)
{
    static char text[16];
    bool mi = is_ours(i) ? i->mpa.res.markers_rx : i->rnic.rx_markers;
    bool mr = is_ours(r) ? r->mpa.res.markers_rx : r->rnic.rx_markers;
    uint8_t vi = is_ours(i) ? 1 : i->rnic.version, vr = is_ours(r) ? 1 : r->rnic.version;

    cr_expect_eq(mi, is_ours(r) ? r->mpa.res.markers_tx : r->rnic.tx_markers);
    cr_expect_eq(mr, is_ours(i) ? i->mpa.res.markers_tx : i->rnic.tx_markers);
    cr_expect_eq(vi, vr, "\"MUST be identical in the two directions\"");
    snprintf(text, sizeof(text), "%u:%d/%d", vi, mi, mr);
    return text;
}

static size_t put_out(struct end *e, const uint8_t *data, size_t len, uint8_t *buf)
{
    const struct iovec *iov;
    size_t n, total = 0, sum;

    if (!is_ours(e))
        return rnic_send(&e->rnic, data, len, buf);
    cr_assert_eq(side_send(&e->side, NULL, 0, data, len), 0);
    while ((n = iwarp_out(&e->side.ep, &iov, &sum)) > 0) {
        for (size_t i = 0; i < n; i++) {
            memcpy(buf + total, iov[i].iov_base, iov[i].iov_len);
            total += iov[i].iov_len;
        }
        iwarp_out_sent(&e->side.ep, sum);
    }
    return total;
}

static void feed(struct end *e, const uint8_t *buf, size_t len)
{
    uint8_t *at;

    cr_assert_geq(iwarp_in_space(&e->side.ep, &at), len);
    memcpy(at, buf, len);
    iwarp_in_fed(&e->side.ep, len);
}

static ssize_t take_in(struct end *e, const uint8_t *buf, size_t len, uint8_t *data)
{
    struct endpoint_event ev;

    if (!is_ours(e))
        return rnic_recv(&e->rnic, buf, len, data);
    feed(e, buf, len);
    if (iwarp_poll(&e->side.ep.base, &ev) != 1 || ev.type != ENDPOINT_SEND)
        return -1;
    memcpy(data, ev.data, ev.len);
    iwarp_release(&e->side.ep.base, ev.data + ev.len);
    return (ssize_t)ev.len;
}

/* Messages that put Markers before, in and behind frames. */
static void talk(struct end *from, struct end *to)
{
    static const size_t lens[] = { 24, 466, 24, 1200, 1, 460, 507, 0, 999, 484 };
    uint8_t data[1500], got[4096], buf[4096];

    for (size_t i = 0; i < SW_ARRAY_LEN(lens); i++) {
        for (size_t j = 0; j < lens[i]; j++)
            data[j] = (uint8_t)(i * 7 + j);
        size_t n = put_out(from, data, lens[i], buf);
        cr_assert_eq(take_in(to, buf, n, got), (ssize_t)lens[i], "%s to %s, message %zu", names[from->kind],
                     names[to->kind], i);
        cr_assert_arr_eq(got, data, lens[i]);
    }
}

/* RFC 5044 7.1.1/15,16, by the figures of appendix C. */
Test(rdmac, figures_15_16_and_17)
{
    /* Rows: initiators, columns: responders, both in the order of enum kind. */
    static const char *const figures[KINDS][KINDS] = {
        { "0:1/1", "close", "close", "0:1/1", "0:1/1" }, /* (M=0 is never in a permissive one's Reply to Rev 0) */
        { "close", "1:0/0", "1:0/1", "1:0/0", "1:0/1" }, { "close", "1:1/0", "1:1/1", "1:1/0", "1:1/1" },
        { "0:1/1", "1:0/0", "1:0/1", "1:0/0", "1:0/1" }, { "0:1/1", "1:1/0", "1:1/1", "1:1/0", "1:1/1" },
    };
    for (enum kind k = 0; k < KINDS; k++)
        for (enum kind l = 0; l < KINDS; l++) {
            struct end *i = begin(k, true), *r = begin(l, false);
            uint8_t req[600], rep[600];
            size_t n = request(i, req), m = answer(r, req, n, rep);
            bool on = m > 0 && goes_on(i, rep, m);

            cr_expect_str_eq(on ? settle(i, r) : "close", figures[k][l], "%s to %s", names[k], names[l]);
            if (on) {
                go_full(i);
                go_full(r);
                talk(i, r);
                talk(r, i);
                talk(i, r);
            }
            end_free(i);
            end_free(r);
        }
}

/* An enhanced Request, which the appendix does not know: the second attempt at Rev 1 is taken. */
Test(rdmac, an_enhanced_request_is_tried_again_at_rev_1)
{
    for (enum kind l = PERMISSIVE_0; l < KINDS; l++) {
        struct end *i = begin(OURS_0, true), *r = begin(l, false);
        struct mpa_startup_cfg cfg = {
            .rev = 2, .crc = true, .peer_to_peer = true, .rtr = MPA_RTR_SEND, .ird = 1, .ord = 1
        };
        uint8_t req[600], rep[600];

        cr_assert_eq(mpa_startup_init(&i->mpa, &cfg), 0);
        cr_expect_eq(answer(r, req, say(i, req), rep), 0u);
        mpa_startup_eof(&i->mpa);
        cr_assert(mpa_startup_retry_rev1(&i->mpa));
        cfg.rev = 1;
        cr_assert_eq(mpa_startup_init(&i->mpa, &cfg), 0);
        size_t m = answer(r, req, say(i, req), rep);
        cr_expect(m > 0 && goes_on(i, rep, m));
        end_free(i);
        end_free(r);
    }
}

/* The draft's own figures, octet by octet: the first FPDU of a stream, and one behind 492 octets. */
Test(rdmac, the_drafts_figures_5_and_6)
{
    static const uint8_t zeros[512] = { 0 };
    struct rnic r = rnic_new(false, true);
    uint8_t buf[1024], want[52] = { 0, 0, 0, 0, 0x00, 0x2a, 0x40, 0x03 };

    r.tx_markers = true;
    want[19] = 1;
    memcpy(want + 48, "\x4c\x86\xb3\x84", 4);
    cr_expect_eq(rnic_send(&r, zeros, 24, buf), 52u);
    cr_expect_arr_eq(buf, want, 52);

    r = rnic_new(false, true);
    r.tx_markers = true;
    cr_assert_eq(rnic_send(&r, zeros, 492 - 4 - 2 - 18 - 4, buf), 492u);
    cr_expect_eq(rnic_send(&r, zeros, 24, buf), 52u);
    cr_expect_arr_eq(buf, "\x00\x2a\x40\x03", 4);
    cr_expect_eq(get_be32(buf + 20), 0x14u, "the Marker");
    cr_expect_arr_eq(buf + 48, "\xa1\x9c\xd1\x03", 4);
}

/* Where the two forms point: 512 and 508, for a frame that a Marker begins. */
Test(rdmac, the_older_form_counts_from_the_marker_in_front)
{
    static const uint8_t data[700] = { 0 };
    uint8_t buf[1024];

    for (uint8_t version = 0; version < 2; version++) {
        struct rnic r = rnic_new(true, true);
        r.version = version;
        r.tx_markers = true;
        rnic_send(&r, data, sizeof(data), buf);
        cr_expect_eq(get_be32(buf), 0u);
        cr_expect_eq(get_be32(buf + 512), version == 0 ? 512u : 508u);
    }
}

/* Without startup frames: "no reason to believe an IETF RNIC will interoperate with an RDMAC RNIC". Each layer's own words. */
Test(rdmac, frames_of_the_older_form_are_refused)
{
    static const struct {
        size_t len;
        bool markers;
        struct term_code code;
    } rows[] = {
        { 24, false, { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_VERSION } },
        { 24, true, { TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_VERSION } },
        { 700, true, { TERM_LAYER_LLP, 0, TERM_MPA_MARKER } }, /* (its second Marker) */
    };
    static const uint8_t data[700] = { 0 };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct end *e = begin(OURS_1, false);
        struct rnic r = rnic_new(false, true);
        struct endpoint_event ev;
        uint8_t buf[1024];

        e->mpa.res.markers_rx = r.tx_markers = rows[i].markers;
        go_full(e);
        feed(e, buf, rnic_send(&r, data, rows[i].len, buf));
        cr_expect_eq(iwarp_poll(&e->side.ep.base, &ev), -EPROTO);
        struct term_code code = iwarp_error(&e->side.ep);
        cr_expect_eq(memcmp(&code, &rows[i].code, sizeof(code)), 0, "row %zu: %u/%u/%u", i, code.layer, code.etype,
                     code.code);
        end_free(e);
    }
}
