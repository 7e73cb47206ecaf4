/*
 * What the enhanced word of the MPA startup frames settles: the connection model and the RTR kind
 * (RFC 6581 section 9.2), IRD and ORD (section 9.1).
 */
#include "tests/unit/startup_frames.h"

/* ---- RTR ---- */

static uint32_t kind_bits(unsigned rtr)
{
    return (rtr & MPA_RTR_SEND ? B_BIT : 0) | (rtr & MPA_RTR_WRITE ? C_BIT : 0) | (rtr & MPA_RTR_READ ? D_BIT : 0);
}

/* The order send, write, read cut down to the common ones. */
static unsigned first_of(unsigned set)
{
    return set & MPA_RTR_SEND ? MPA_RTR_SEND : set & MPA_RTR_WRITE ? MPA_RTR_WRITE : set;
}

Test(mpa_startup_rtr, rtr_all_pairs_of_sets)
{
    for (unsigned i = 1; i < 8; i++)
        for (unsigned r = 1; r < 8; r++) {
            struct mpa_startup ini, res;
            struct mpa_startup_cfg ic = config(false), rc = config(true);
            uint8_t buf[FRAME_MAX];
            ic.rtr = (uint8_t)i;
            rc.rtr = (uint8_t)r;
            init(&ini, &ic);
            init(&res, &rc);
            feed(&res, buf, take(&ini, buf));
            cr_assert_eq(res.res.peer_rtr, i);
            cr_assert(res.res.peer_p2p);
            if ((i & r) == 0) {
                cr_assert_eq(mpa_startup_accept(&res, NULL, 0), -EPROTO);
                cr_assert_eq(res.err, MPA_SE_RTR);
                cr_assert_eq(res.state, MPA_ST_DECIDE);
                continue;
            }
            cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
            size_t len = take(&res, buf);
            unsigned want = first_of(i & r);
            cr_assert_eq(get_be32(buf + 20) & (A_BIT | B_BIT | C_BIT | D_BIT), A_BIT | kind_bits(want),
                         "exactly one kind");
            cr_assert_eq(res.res.rtr, want);
            feed(&ini, buf, len);
            cr_assert_eq(ini.res.rtr, want);
        }
}

/* Replies of others may name several kinds, also such as were not asked for. */
Test(mpa_startup_rtr, rtr_initiator_takes_a_kind_it_can_send_or_fails)
{
    for (unsigned i = 1; i < 8; i++)
        for (unsigned r = 0; r < 8; r++) {
            struct mpa_startup s;
            struct mpa_startup_cfg cfg = config(false);
            uint8_t buf[FRAME_MAX];
            cfg.rtr = (uint8_t)i;
            size_t len = frame2(buf, reply_key, C, A_BIT | kind_bits(r) | DEPTHS(6, 1), "");
            if ((i & r) == 0) {
                check_reply_fails(&cfg, buf, len, MPA_SE_RTR);
                continue;
            }
            wait_reply(&s, &cfg);
            feed(&s, buf, len);
            cr_assert_eq(s.state, MPA_ST_DONE);
            cr_assert_eq(s.res.rtr, first_of(i & r));
            cr_assert_eq(s.res.peer_rtr, r);
        }
}

Test(mpa_startup_rtr, rtr_preference_decides_on_both_sides)
{
    static const struct {
        uint8_t pref[3], offered, want;
    } row[] = {
        { { 0 }, 7, MPA_RTR_SEND },
        { { MPA_RTR_READ }, 7, MPA_RTR_READ },
        { { MPA_RTR_READ }, 3, MPA_RTR_SEND },
        { { MPA_RTR_READ }, 2, MPA_RTR_WRITE },
        { { MPA_RTR_READ, MPA_RTR_WRITE, MPA_RTR_SEND }, 3, MPA_RTR_WRITE },
        { { MPA_RTR_WRITE, 0, MPA_RTR_READ }, 5, MPA_RTR_SEND }, /* 0 ends */
        { { MPA_RTR_WRITE, MPA_RTR_READ, MPA_RTR_SEND }, 5, MPA_RTR_READ },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        struct mpa_startup s;
        struct mpa_startup_cfg cfg = config(true);
        uint8_t buf[FRAME_MAX];
        uint32_t word = A_BIT | kind_bits(row[i].offered) | DEPTHS(4, 4);
        memcpy(cfg.rtr_pref, row[i].pref, 3);
        init(&s, &cfg);
        feed(&s, buf, frame2(buf, request_key, C, word, ""));
        cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
        cr_assert_eq(s.res.rtr, row[i].want, "row %zu", i);
        cfg = config(false);
        memcpy(cfg.rtr_pref, row[i].pref, 3);
        wait_reply(&s, &cfg);
        feed(&s, buf, frame2(buf, reply_key, C, word, ""));
        cr_assert_eq(s.res.rtr, row[i].want, "row %zu", i);
    }
}

Test(mpa_startup_rtr, rtr_a_set_without_a_kind_cannot_be_met)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C, A_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EPROTO);
    cr_assert_eq(s.err, MPA_SE_RTR);
}

/* Client-server model: kinds ignored on receipt, and none sent. */
Test(mpa_startup_rtr, rtr_kinds_without_a_are_ignored)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C, B_BIT | C_BIT | D_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(s.res.peer_rtr, 0);
    cr_assert_not(s.res.peer_p2p);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    take(&s, buf);
    cr_assert_eq(get_be32(buf + 20) & (A_BIT | B_BIT | C_BIT | D_BIT), 0u);
    cr_assert_eq(s.res.rtr, 0);

    cfg = config(false);
    cfg.peer_to_peer = false;
    wait_reply(&s, &cfg);
    feed(&s, buf, frame2(buf, reply_key, C, B_BIT | C_BIT | D_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(s.res.rtr, 0);
}

Test(mpa_startup_rtr, rtr_a_has_to_be_echoed)
{
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    size_t len = frame2(buf, reply_key, C, B_BIT | DEPTHS(1, 1), "");
    check_reply_fails(&cfg, buf, len, MPA_SE_RTR);
}

/*
 * "Upon receiving the MPA Accept Frame with Control Flag A set to 1, the initiator MUST generate
 * one of the negotiated RTR indications": also if it did not ask.
 */
Test(mpa_startup_rtr, rtr_an_unasked_a_is_served_if_it_can_be)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    cfg.peer_to_peer = false;
    size_t len = frame2(buf, reply_key, C, A_BIT | C_BIT | DEPTHS(1, 1), "");
    wait_reply(&s, &cfg);
    feed(&s, buf, len);
    cr_assert_eq(s.res.rtr, MPA_RTR_WRITE);
    cfg.rtr = 0;
    check_reply_fails(&cfg, buf, len, MPA_SE_RTR);
}

/* ---- IRD and ORD ---- */

enum { NONE = MPA_IRD_ORD_NONE };

/* RFC 6581 9.1/2,3,9,11: at most what the initiator can, 0x3FFF for 0x3FFF */
Test(mpa_startup_rtr, depths_as_the_responder_settles_them)
{
    static const struct {
        uint16_t ird, ord, peer_ird, peer_ord; /* ours; the Request's */
        uint16_t reply_ird, reply_ord;         /* the Reply's */
        uint16_t got_ird, got_ord;             /* ours after it */
    } row[] = {
        { 8, 6, 3, 4, 4, 3, 4, 3 },
        { 8, 6, 100, 100, 8, 6, 8, 6 },
        { 8, 6, 6, 8, 8, 6, 8, 6 },
        { 8, 6, 0, 0, 0, 0, 0, 0 },
        { 0, 0, 5, 5, 0, 0, 0, 0 },
        { 8, 6, 0x3ffe, 0x3ffe, 8, 6, 8, 6 },
        { 0x3ffe, 0x3ffe, 0x3ffe, 0x3ffe, 0x3ffe, 0x3ffe, 0x3ffe, 0x3ffe },
        { 8, 6, NONE, NONE, NONE, NONE, 8, 6 }, /* left unchanged, 0x3FFF replied */
        { 8, 6, NONE, 2, 2, NONE, 2, 6 },
        { 8, 6, 2, NONE, NONE, 2, 8, 2 },
        { NONE, NONE, 2, 3, NONE, NONE, NONE, NONE },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        struct mpa_startup s;
        struct mpa_startup_cfg cfg = config(true);
        uint8_t buf[FRAME_MAX];
        cfg.ird = row[i].ird;
        cfg.ord = row[i].ord;
        init(&s, &cfg);
        uint32_t word = A_BIT | B_BIT | DEPTHS(row[i].peer_ird, row[i].peer_ord);
        feed(&s, buf, frame2(buf, request_key, C, word, ""));
        cr_assert_eq(s.res.peer_ird, row[i].peer_ird);
        cr_assert_eq(s.res.peer_ord, row[i].peer_ord);
        cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
        take(&s, buf);
        cr_assert_eq(get_be32(buf + 20), A_BIT | B_BIT | DEPTHS(row[i].reply_ird, row[i].reply_ord), "row %zu: %08x", i,
                     get_be32(buf + 20));
        cr_assert_eq(s.res.ird, row[i].got_ird, "row %zu", i);
        cr_assert_eq(s.res.ord, row[i].got_ord, "row %zu", i);
    }
}

/* RFC 6581 9.1/5,6,10,12: ORD at most, IRD at least what the responder says, 0x3FFF changes nothing */
Test(mpa_startup_rtr, depths_as_the_initiator_settles_them)
{
    static const struct {
        uint16_t ird, ord, peer_ird, peer_ord; /* ours; the Reply's */
        bool ok;
        uint16_t got_ird, got_ord;
    } row[] = {
        { 8, 6, 6, 8, true, 8, 6 },       { 8, 6, 2, 1, true, 8, 2 },  /* ORD at most the responder's IRD */
        { 8, 6, 100, 0, true, 8, 6 },     { 8, 6, 6, 9, false, 0, 0 }, /* IRD at least the responder's ORD */
        { 8, 6, 6, 0x3ffe, false, 0, 0 }, { 0, 0, 0, 0, true, 0, 0 },     { 0, 0, 0, 1, false, 0, 0 },
        { 8, 6, NONE, NONE, true, 8, 6 }, /* left unchanged */
        { 8, 6, 0, NONE, true, 8, 0 },    { 8, 6, NONE, 9, false, 0, 0 }, { NONE, NONE, 5, 5, true, NONE, NONE },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        struct mpa_startup s;
        struct mpa_startup_cfg cfg = config(false);
        uint8_t buf[FRAME_MAX];
        cfg.ird = row[i].ird;
        cfg.ord = row[i].ord;
        size_t len = frame2(buf, reply_key, C, A_BIT | B_BIT | DEPTHS(row[i].peer_ird, row[i].peer_ord), "");
        if (!row[i].ok) {
            check_reply_fails(&cfg, buf, len, MPA_SE_IRD);
            continue;
        }
        wait_reply(&s, &cfg);
        feed(&s, buf, len);
        cr_assert_eq(s.state, MPA_ST_DONE);
        cr_assert_eq(s.res.ird, row[i].got_ird, "row %zu: %u", i, s.res.ird);
        cr_assert_eq(s.res.ord, row[i].got_ord, "row %zu: %u", i, s.res.ord);
        cr_assert_eq(s.res.peer_ird, row[i].peer_ird);
        cr_assert_eq(s.res.peer_ord, row[i].peer_ord);
    }
}

/*
 * Section 9.1: for a Read as RTR the responder's IRD can be set to 1 though the initiator's ORD is
 * 0.
 */
Test(mpa_startup_rtr, a_read_as_rtr_gets_a_place_in_the_queue)
{
    struct mpa_startup ini, res;
    struct mpa_startup_cfg ic = config(false), rc = config(true);
    uint8_t buf[FRAME_MAX];
    ic.rtr = MPA_RTR_READ;
    ic.ord = 0;
    init(&ini, &ic);
    init(&res, &rc);
    feed(&res, buf, take(&ini, buf));
    cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
    cr_assert_eq(res.res.ird, 1);
    feed(&ini, buf, take(&res, buf));
    cr_assert_eq(ini.res.rtr, MPA_RTR_READ);
    cr_assert_eq(ini.res.peer_ird, 1);
    cr_assert_eq(ini.res.ord, 1);

    /* Without any room a responder offers the other kinds, or none. */
    rc.ird = 0;
    init(&res, &rc);
    feed(&res, buf, frame2(buf, request_key, C, A_BIT | C_BIT | D_BIT | DEPTHS(1, 1), ""));
    rc.rtr_pref[0] = MPA_RTR_READ;
    cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
    cr_assert_eq(res.res.rtr, MPA_RTR_WRITE);
    init(&res, &rc);
    feed(&res, buf, frame2(buf, request_key, C, A_BIT | D_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(mpa_startup_accept(&res, NULL, 0), -EPROTO);
    cr_assert_eq(res.err, MPA_SE_RTR);

    /*
     * An initiator whose responder has no room prefers another kind, and a Read if that is all
     * there is.
     */
    ic = config(false);
    ic.rtr_pref[0] = MPA_RTR_READ;
    wait_reply(&ini, &ic);
    feed(&ini, buf, frame2(buf, reply_key, C, A_BIT | B_BIT | D_BIT | DEPTHS(0, 0), ""));
    cr_assert_eq(ini.res.rtr, MPA_RTR_SEND);
    wait_reply(&ini, &ic);
    feed(&ini, buf, frame2(buf, reply_key, C, A_BIT | D_BIT | DEPTHS(0, 0), ""));
    cr_assert_eq(ini.res.rtr, MPA_RTR_READ);
}

/* ---- interworking with what is deployed (DESIGN section 15) ---- */

Test(mpa_startup_rtr, a_linux_siw_request_is_served)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    cfg.crc = false;
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, 0, DEPTHS(128, 128), "cm"));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    take(&s, buf);
    cr_assert_eq(buf[16], S);
    cr_assert_eq(buf[17], 2);
    cr_assert_eq(get_be32(buf + 20), DEPTHS(8, 6));
    cr_assert_not(s.res.crc);
    cr_assert_eq(s.res.rtr, 0);
}

Test(mpa_startup_rtr, a_device_that_wants_a_read_alone_gets_it_alone)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C, A_BIT | D_BIT | DEPTHS(16, 16), ""));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    take(&s, buf);
    cr_assert_eq(get_be32(buf + 20) & (A_BIT | B_BIT | C_BIT | D_BIT), A_BIT | D_BIT);
}
