/*
 * The startup that faces a device (soft_startup_cfg), against the rules of the drivers of devices: as initiator and as
 * responder with each of them, up to the first FPDU; and that the rules catch what they are there for.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/iwarp/soft.h"
#include "core/iwarp/startup_end.h"
#include "core/mpa/fpdu.h"

#include "tests/unit/fake_device.h"
#include "tests/unit/iwarp_pair.h"

enum { M = 0x80, C = 0x40, R = 0x20, S = 0x10 };
static const char priv[46] = "SWV2";

static uint64_t rng = 5;

static uint32_t rnd(void *unused)
{
    (void)unused;
    return prng32(&rng);
}

struct our_end {
    struct mpa_startup mpa;
    struct soft_ep ep;
    uint8_t ring[4096];
    uint8_t *mem;
};

static void end_free(struct our_end *e)
{
    free(e->mem);
    free(e);
}

/* The endpoint that the startup ends in, as preload/device/mixed.c makes it. */
static void go_full(struct our_end *e)
{
    const struct mpa_startup_result *res = &e->mpa.res;
    struct soft_side side = {
        .ring_stag = 0x11223344, .ring_len = sizeof(e->ring), .fence_stag = 0x11223355, .msg_max = 1024, .bufs = 8
    };
    struct soft_cfg sc = {
        .initiator = !e->mpa.cfg.responder,
        .tx = { .crc = res->crc, .markers = res->markers_tx },
        .rx = { .crc = res->crc, .markers = res->markers_rx },
        .rtr = res->rtr,
        .ird = res->ird,
        .ord = res->ord,
        .mulpdu = 1024,
        .local = side,
        .peer = side,
        .write_max = 4096,
        .queue_len = 4 * 4096,
        .ring = e->ring,
        .random32 = rnd,
    };
    cr_assert_eq(e->mpa.state, MPA_ST_DONE);
    e->mem = malloc(soft_memory(&sc));
    sc.mem = e->mem;
    cr_assert_eq(soft_init(&e->ep, &sc), 0);
}

static struct our_end *begin(bool responder, unsigned rev)
{
    struct our_end *e = calloc(1, sizeof(*e));
    struct mpa_startup_cfg cfg = soft_startup_cfg(responder, (uint8_t)rev, true);

    if (!responder) {
        cfg.priv = priv;
        cfg.priv_len = sizeof(priv);
    }
    cr_assert_eq(mpa_startup_init(&e->mpa, &cfg), 0);
    return e;
}

static size_t say(struct our_end *e, uint8_t *buf)
{
    const uint8_t *p;
    size_t n = mpa_startup_output(&e->mpa, &p);

    cr_assert(n > 0 && n <= FAKE_FRAME_MAX);
    memcpy(buf, p, n);
    mpa_startup_sent(&e->mpa, n);
    return n;
}

/* The kind of RTR that its first octets are; 0: there are none. */
static uint8_t first_fpdu(struct our_end *e)
{
    struct mpa_framing framing = e->ep.cfg.tx;
    struct iovec iov[2];
    struct mpa_fpdu f;
    size_t need;

    if (soft_out(&e->ep, iov) == 0)
        return 0;
    cr_assert_eq(mpa_fpdu_decode(&framing, 0, iov[0].iov_base, iov[0].iov_len, &f, &need), (ssize_t)iov[0].iov_len,
                 "one FPDU and no more");
    switch (f.ulpdu[1] & 15) {
    case RDMAP_SEND:
        return MPA_RTR_SEND;
    case RDMAP_WRITE:
        return MPA_RTR_WRITE;
    case RDMAP_READ_REQUEST:
        return MPA_RTR_READ;
    default:
        return 0xff;
    }
}

/* A device's first FPDU: with an STag and offset of its own, of which no region of ours is. */
static size_t device_fpdu(uint8_t rtr, bool crc, uint8_t *buf)
{
    struct mpa_framing framing = { .crc = crc };
    struct rdmap_read read = { .sink_stag = 0x5a5a5a5a, .sink_to = 8, .src_stag = 0xa5a5a5a5, .src_to = 16 };
    struct ddp_segment seg = { .last = true, .msn = 1 };
    uint8_t *ulpdu = buf + MPA_HDR_LEN;

    seg.tagged = rtr == MPA_RTR_WRITE;
    seg.stag = 1;
    seg.qn = rtr == MPA_RTR_READ ? RDMAP_QN_READ_REQUEST : RDMAP_QN_SEND;
    seg.ulp_ctrl = rdmap_ctrl(rtr == MPA_RTR_WRITE  ? RDMAP_WRITE
                              : rtr == MPA_RTR_READ ? RDMAP_READ_REQUEST
                                                    : RDMAP_SEND);
    size_t len = ddp_segment_encode(&seg, ulpdu);
    if (rtr == MPA_RTR_READ) {
        rdmap_read_encode(&read, ulpdu + len);
        len += RDMAP_READ_HDR_LEN;
    }
    uint32_t crc_state = crc32c_update(mpa_fpdu_begin(buf, len), ulpdu, len);
    return MPA_HDR_LEN + len + mpa_fpdu_end(&framing, ulpdu + len, len, crc_state);
}

/* ---- our Request ---- */

/* Asks d at this revision; NULL: it has reset the connection. */
static struct our_end *ask(const struct fake_device *d, unsigned rev, struct fake_result *r)
{
    struct our_end *e = begin(false, rev);
    uint8_t buf[FAKE_FRAME_MAX];

    *r = d->hear_request(d, buf, say(e, buf));
    if (r->answer == FAKE_ACCEPT) {
        cr_assert_eq(mpa_startup_input(&e->mpa, r->reply, r->reply_len), (ssize_t)r->reply_len, "%s: %s", d->name,
                     mpa_startup_err_name(e->mpa.err));
        return e;
    }
    cr_expect_eq(r->answer, FAKE_RESET, "%s: %s", d->name, r->rule);
    mpa_startup_eof(&e->mpa);
    cr_expect_eq(mpa_startup_retry_rev1(&e->mpa), rev == 2);
    end_free(e);
    return NULL;
}

Test(fake_devices, each_takes_our_request_or_the_older_form_of_it)
{
    for (size_t i = 0; i < fake_devices_n; i++) {
        const struct fake_device *d = &fake_devices[i];
        struct fake_result r;
        struct our_end *e = ask(d, 2, &r);

        /* irdma takes the client-server model at Rev 1 only, cxgb4 with mpa_rev=1 nothing else. */
        bool refuses = d->hear_request == fake_device("irdma")->hear_request ||
                       (d->hear_request == fake_device("cxgb4")->hear_request && d->rev == 1);
        cr_expect_eq(e == NULL, refuses, "%s: %s", d->name, r.rule);
        if (e == NULL)
            e = ask(d, 1, &r);
        cr_assert_not_null(e, "%s refuses Rev 1, too: %s", d->name, r.rule);
        go_full(e);
        uint8_t rtr = first_fpdu(e);
        cr_expect_eq(rtr, 0, "%s: the ULP's first message comes first", d->name);
        cr_expect_eq(e->mpa.res.rtr, 0);
        cr_expect(e->ep.iw.cfg.tx.crc == e->ep.iw.cfg.rx.crc);
        end_free(e);
    }
}

/* ---- our Reply ---- */

Test(fake_devices, each_takes_our_reply_and_its_first_fpdu_is_taken)
{
    for (size_t i = 0; i < fake_devices_n; i++) {
        const struct fake_device *d = &fake_devices[i];
        struct our_end *e = begin(true, 2);
        uint8_t buf[FAKE_FRAME_MAX], *p;
        struct endpoint_event ev;

        size_t n = d->request(d, buf);
        cr_assert_eq(mpa_startup_input(&e->mpa, buf, n), (ssize_t)n, "%s: %s", d->name,
                     mpa_startup_err_name(e->mpa.err));
        cr_assert_eq(mpa_startup_accept(&e->mpa, priv, sizeof(priv)), 0, "%s", d->name);
        n = say(e, buf);
        struct fake_result r = d->hear_reply(d, buf, n);
        cr_assert_eq(r.answer, FAKE_ACCEPT, "%s: %s", d->name, r.rule);
        cr_expect_eq(r.rtr, e->mpa.res.rev == 2 ? e->mpa.res.rtr : r.rtr, "%s", d->name);
        cr_expect(e->mpa.res.rev == 1 || !d->p2p || r.rtr == (d == fake_device("cxgb4") ? MPA_RTR_READ : MPA_RTR_WRITE),
                  "%s: %s", d->name, mpa_rtr_name(r.rtr));
        go_full(e);
        cr_expect_not(iwarp_can_send(&e->ep.iw), "%s: RFC 5044 7.1.2 rule 4", d->name);
        n = device_fpdu(r.rtr == 0 ? MPA_RTR_SEND : r.rtr, e->mpa.res.crc, buf);
        cr_assert_geq(soft_in_space(&e->ep, &p), n);
        memcpy(p, buf, n);
        soft_in_fed(&e->ep, n);
        /* Where no RTR was agreed on it is the ULP's. */
        cr_expect_eq(endpoint_ops(&e->ep.base)->poll(&e->ep.base, &ev), r.rtr == 0, "%s", d->name);
        cr_expect(iwarp_can_send(&e->ep.iw), "%s", d->name);
        cr_expect_eq(iwarp_ctrl_pending(&e->ep.iw), r.rtr == MPA_RTR_READ, "%s: a Read is answered", d->name);
        end_free(e);
    }
}

/* ---- the rules catch what they are there for ---- */

static enum fake_answer asked(const char *name, struct mpa_startup_cfg cfg, size_t extra)
{
    const struct fake_device *d = fake_device(name);
    uint8_t buf[FAKE_FRAME_MAX] = { 0 };
    struct mpa_startup s;
    const uint8_t *p;

    cfg.responder = false;
    cr_assert_eq(mpa_startup_init(&s, &cfg), 0);
    size_t n = mpa_startup_output(&s, &p);
    memcpy(buf, p, n);
    return d->hear_request(d, buf, n + extra).answer;
}

Test(fake_devices, a_request_that_they_refuse)
{
    struct mpa_startup_cfg cfg = soft_startup_cfg(false, 2, true);
    char much[300] = { 0 };

    cfg.peer_to_peer = true;
    cr_expect_eq(asked("irdma", cfg, 0), FAKE_ACCEPT);
    cfg.peer_to_peer = false;
    cr_expect_eq(asked("irdma", cfg, 0), FAKE_RESET, "the client-server model");
    cr_expect_eq(asked("cxgb4", cfg, 0), FAKE_ACCEPT);
    cfg = soft_startup_cfg(false, 2, true);
    cfg.peer_to_peer = true;
    cfg.rtr = MPA_RTR_SEND;
    cr_expect_eq(asked("irdma", cfg, 0), FAKE_RESET, "no kind that it has");
    cfg = soft_startup_cfg(false, 2, true);
    cfg.markers = true;
    cr_expect_eq(asked("siw", cfg, 0), FAKE_REJECT, "markers");
    cfg = soft_startup_cfg(false, 2, true);
    cfg.priv = much;
    cfg.priv_len = sizeof(much);
    cr_expect_eq(asked("siw", cfg, 0), FAKE_RESET, "private data");
    cr_expect_eq(asked("cxgb4", cfg, 0), FAKE_RESET, "private data");
    cfg = soft_startup_cfg(false, 2, true);
    cr_expect_eq(asked("siw", cfg, 4), FAKE_RESET, "octets behind it");
    cr_expect_eq(asked("cxgb4", cfg, 4), FAKE_RESET, "octets behind it");
}

static struct fake_result replied(const char *name, unsigned flags, uint32_t word)
{
    const struct fake_device *d = fake_device(name);
    uint8_t buf[FAKE_FRAME_MAX] = "MPA ID Rep Frame";

    buf[16] = (uint8_t)(flags | S);
    buf[17] = 2;
    put_be16(buf + 18, 4);
    put_be32(buf + 20, word);
    return d->hear_reply(d, buf, 24);
}

Test(fake_devices, a_reply_that_they_refuse)
{
    const uint32_t a = 0x80000000u, c = 0x8000u, d = 0x4000u, depths = 1u << 16 | 1u;

    cr_expect_eq(replied("cxgb4", C, a | d | depths).answer, FAKE_ACCEPT);
    cr_expect_eq(replied("cxgb4", C, a | c | d | depths).code, 7, "given a choice");
    cr_expect_eq(replied("cxgb4", C, a | c | depths).code, 7);
    cr_expect_eq(replied("cxgb4", C, a | d | 1u << 16 | 33u).code, 6);
    cr_expect_eq(replied("irdma", C, d | depths).answer, FAKE_RESET, "without A");
    cr_expect_eq(replied("irdma", C, a | d | 1u).answer, FAKE_RESET, "a Read, and no room for one");
    cr_expect_eq(replied("irdma", C, a | d | 1u << 16 | 33u).answer, FAKE_RESET);
    cr_expect_eq(replied("qed", C, a | d | 1u << 16 | 33u).code, 6);
    cr_expect_eq(replied("qed", C, depths).code, 7);
    cr_expect_eq(replied("siw", M, depths).answer, FAKE_RESET);
    cr_expect_eq(replied("siw with mpa_crc_required", 0, depths).answer, FAKE_RESET);
    cr_expect_eq(replied("siw with peer_to_peer", 0, a | depths).code, 7);
    cr_expect_eq(replied("siw", R, depths).answer, FAKE_REJECT);
}

/* ---- Terminates ---- */

/* RFC 6581 9.1/7, RFC 6581 9.2/10 and RFC 6581 9.3/1: 6, 7 and 5; each the first FPDU, framed as was agreed. */
Test(fake_devices, the_last_fpdu_says_why)
{
    for (uint8_t code = TERM_MPA_LOCAL; code <= TERM_MPA_RTR; code++)
        for (unsigned bits = 0; bits < 4; bits++) {
            struct mpa_framing framing = { .crc = bits & 1, .markers = bits & 2 };
            uint8_t buf[STARTUP_END_MAX];
            struct terminate t;
            struct mpa_fpdu f;
            size_t need, n = startup_end_put(&framing, code, buf);

            cr_assert_leq(n, sizeof(buf));
            cr_assert_eq(mpa_fpdu_decode(&framing, 0, buf, n, &f, &need), (ssize_t)n);
            cr_assert_arr_eq(f.ulpdu,
                             "\x41\x47\0\0\0\0"
                             "\0\0\0\2"
                             "\0\0\0\1"
                             "\0\0\0\0",
                             18);
            cr_assert_eq(terminate_decode(f.ulpdu + 18, f.ulpdu_len - 18, &t), 0);
            cr_expect(t.code.layer == 2 && t.code.etype == 0 && t.code.code == code);
        }
}

/*
 * As devices send them: of type 3 (cxgb4: LAYER_MPA | DDP_LLP), or with the nibbles the other way round (siw), which cannot be told
 * from RDMAP's errors of type 2. The stream ends by either.
 */
Test(fake_devices, their_terminates_are_understood)
{
    static const struct {
        const char *from;
        uint8_t octets[4], layer, etype, code;
    } rows[] = {
        { "cxgb4, RTR mismatch", { 0x23, 7, 0, 0 }, 2, 3, 7 },
        { "cxgb4, insufficient IRD", { 0x23, 6, 0, 0 }, 2, 3, 6 },
        { "siw, no matching RTR", { 0x02, 7, 0, 0 }, 0, 2, 7 },
        { "siw, insufficient IRD", { 0x02, 6, 0, 0 }, 0, 2, 6 },
        { "the RFC", { 0x20, 5, 0, 0 }, 2, 0, 5 },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct terminate t;
        cr_assert_eq(terminate_decode(rows[i].octets, 4, &t), 0);
        cr_expect_eq(t.code.layer, rows[i].layer, "%s: layer %u", rows[i].from, t.code.layer);
        cr_expect_eq(t.code.etype, rows[i].etype, "%s: type %u", rows[i].from, t.code.etype);
        cr_expect_eq(t.code.code, rows[i].code, "%s: code %u", rows[i].from, t.code.code);
    }
}
