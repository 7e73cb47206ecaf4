/*
 * MPA startup frames: RFC 5044 section 7.1 and RFC 6581 sections 6 and 10, both roles, against
 * frames put together by hand and against each other.
 */
#include "tests/unit/startup_frames.h"

/* ---- the frames themselves ---- */

/*
 * RFC 5044 7.1.1/1,13,14,17 and RFC 5044 7.1.2 rule 1: the Request. RFC 6581 6/3: not enhanced at Rev 1, whatever is
 * wanted
 */
Test(mpa_startup, request_octets_rev_1)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    cfg.rev = 1;
    uint8_t want[FRAME_MAX], got[FRAME_MAX];
    init(&s, &cfg);
    size_t len = frame(want, request_key, C, 1, 5, "hello", 5);
    cr_assert_eq(take(&s, got), len);
    cr_assert_arr_eq(got, want, len);
}

/* RFC 6581 6/3,5 and RFC 6581 9.2/1,2: Rev 2, S, the word first, A and all kinds. RFC 5044 7.1.1/14,17 */
Test(mpa_startup, request_octets_rev_2)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    cfg.markers = true;
    cfg.rtr = MPA_RTR_SEND | MPA_RTR_READ;
    uint8_t got[FRAME_MAX];
    static const uint8_t want[] = {
        0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52, 0x65, 0x71, 0x20, 0x46, 0x72, 0x61, 0x6d,
        0x65, 0xd0, 0x02, 0x00, 0x09, 0xc0, 0x08, 0x40, 0x06, 'h',  'e',  'l',  'l',  'o',
    };
    init(&s, &cfg);
    cr_assert_eq(take(&s, got), sizeof(want));
    cr_assert_arr_eq(got, want, sizeof(want));
}

/*
 * RFC 6581 9.2/11,13: "If Control Flag A is set to 0, then Control Flags B, C, and D MUST also be
 * set to 0."
 */
Test(mpa_startup, request_without_peer_to_peer_names_no_kind)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    cfg.peer_to_peer = false;
    uint8_t got[FRAME_MAX];
    init(&s, &cfg);
    take(&s, got);
    cr_assert_eq(got[16], C | S);
    cr_assert_eq(get_be32(got + 20), DEPTHS(8, 6));
}

/* RFC 6581 10/3: no enhanced form when nothing of it is wanted. */
Test(mpa_startup, request_is_unenhanced_when_nothing_enhanced_is_wanted)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    cfg.peer_to_peer = false;
    cfg.ird = cfg.ord = MPA_IRD_ORD_NONE;
    uint8_t got[FRAME_MAX];
    init(&s, &cfg);
    cr_assert_eq(take(&s, got), 25u);
    cr_assert_eq(got[16], C);
    cr_assert_eq(get_be16(got + 18), 5u);
}

/* RFC 5044 7.1.1/3,13,14,17, RFC 5044 7.1.2 rule 2/1,5 and RFC 5044 3/8: the Reply, once the Request is there */
/* RFC 6581 6/4 and RFC 6581 10/2,4,6: an old Request is answered in the old form */
Test(mpa_startup, reply_octets_rev_1)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX], want[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame(buf, request_key, 0, 1, 3, "abc", 3));
    cr_assert_eq(s.state, MPA_ST_DECIDE);
    cr_assert_eq(s.res.peer_priv_len, 3u);
    cr_assert_arr_eq(s.res.peer_priv, "abc", 3);
    cr_assert_eq(mpa_startup_accept(&s, "welcome", 7), 0);
    size_t len = frame(want, reply_key, C, 1, 7, "welcome", 7);
    cr_assert_eq(take(&s, buf), len);
    cr_assert_arr_eq(buf, want, len);
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(s.res.rtr, 0);
    cr_assert_not(s.res.enhanced);
    cr_assert_eq(s.res.rev, 1);
}

/* RFC 6581 6/5 and RFC 6581 10/1,5: in kind. RFC 5044 3/8 */
Test(mpa_startup, reply_octets_rev_2)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX], want[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, 0, A_BIT | C_BIT | D_BIT | DEPTHS(3, 4), "abc"));
    cr_assert_eq(s.state, MPA_ST_DECIDE);
    cr_assert_eq(s.res.rev, 2);
    cr_assert_eq(s.res.peer_priv_len, 3u);
    cr_assert_arr_eq(s.res.peer_priv, "abc", 3);
    cr_assert_eq(mpa_startup_accept(&s, "ok", 2), 0);
    size_t len = frame2(want, reply_key, C, A_BIT | C_BIT | DEPTHS(4, 3), "ok");
    cr_assert_eq(take(&s, buf), len);
    cr_assert_arr_eq(buf, want, len);
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(s.res.rtr, MPA_RTR_WRITE);
}

/* Answered in kind: an unenhanced Request of Rev 2 gets an unenhanced Reply of Rev 2. */
/* RFC 6581 10/2,6: "MUST respond with an unenhanced MPA message" */
Test(mpa_startup, reply_to_rev_2_without_s)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX], want[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame(buf, request_key, C, 2, 0, NULL, 0));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    size_t len = frame(want, reply_key, C, 2, 0, NULL, 0);
    cr_assert_eq(take(&s, buf), len);
    cr_assert_arr_eq(buf, want, len);
}

/* RFC 5044 7.1.1/19 and RFC 5044 7.1.2 rule 9/2,3: 0 to 512 octets */
Test(mpa_startup, private_data_up_to_the_limit_in_both_forms)
{
    static uint8_t priv[MPA_PRIVATE_MAX + 1];
    for (size_t i = 0; i < sizeof(priv); i++)
        priv[i] = (uint8_t)(i * 3);
    for (unsigned rev = 1; rev <= 2; rev++) {
        size_t max = rev == 1 ? 512 : 508;
        struct mpa_startup ini, res;
        struct mpa_startup_cfg ic = config(false), rc = config(true);
        uint8_t buf[FRAME_MAX];
        ic.rev = (uint8_t)rev;
        ic.priv = priv;
        ic.priv_len = max + 1;
        cr_assert_eq(mpa_startup_init(&ini, &ic), -EINVAL);
        ic.priv_len = max;
        init(&ini, &ic);
        init(&res, &rc);
        size_t len = take(&ini, buf);
        cr_assert_eq(len, FRAME_MAX);
        feed(&res, buf, len);
        cr_assert_eq(res.res.peer_priv_len, max);
        cr_assert_arr_eq(res.res.peer_priv, priv, max);
        cr_assert_eq(mpa_startup_accept(&res, priv, max + 1), -EINVAL);
        cr_assert_eq(mpa_startup_reject(&res, priv, max + 1), -EINVAL);
        cr_assert_eq(res.state, MPA_ST_DECIDE);
        cr_assert_eq(mpa_startup_accept(&res, priv, max), 0);
        feed(&ini, buf, take(&res, buf));
        cr_assert_eq(ini.state, MPA_ST_DONE);
        cr_assert_eq(ini.res.peer_priv_len, max);
        cr_assert_arr_eq(ini.res.peer_priv, priv, max);
    }
}

Test(mpa_startup, no_private_data_is_a_length_of_zero_not_a_null)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C, A_BIT | B_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(s.res.peer_priv_len, 0u);
    cr_assert_not_null(s.res.peer_priv);
}

/* RFC 6581 9.2/3: a responder without any RTR */
Test(mpa_startup, configurations_that_cannot_be_said_are_refused)
{
    struct mpa_startup s;
    struct mpa_startup_cfg good = config(false), cfg;
#define REFUSED(change)                                             \
    do {                                                            \
        cfg = good;                                                 \
        change;                                                     \
        cr_assert_eq(mpa_startup_init(&s, &cfg), -EINVAL, #change); \
    } while (0)
    REFUSED(cfg.rev = 0);
    REFUSED(cfg.rev = 3);
    REFUSED(cfg.ird = 0x4000);
    REFUSED(cfg.ord = 0xffff);
    REFUSED(cfg.rtr = 8);
    REFUSED(cfg.rtr = 0);
    REFUSED(cfg.rtr_pref[1] = MPA_RTR_SEND | MPA_RTR_WRITE);
    REFUSED(cfg.rtr_pref[0] = 8);
    REFUSED(cfg.priv_len = 509);
    REFUSED(cfg.ord_min = 7);
    REFUSED(cfg.dialect = MPA_DIALECT_RTR_FRAME); /* is Rev 1's */
    REFUSED(cfg.dialect = MPA_DIALECT_RTR_FRAME + 1);
    good = config(true);
    REFUSED(cfg.rtr = 0);
#undef REFUSED
    good = config(false);
    good.rev = 1; /* a retry at Rev 1 with all else as it was */
    init(&s, &good);
}

/* ---- octet-exactness ---- */

Test(mpa_startup, every_cut_waits_for_the_rest_and_a_close_there_fails)
{
    static const char *const texts[] = { "", "private data" };
    for (int responder = 0; responder <= 1; responder++)
        for (size_t t = 0; t < SW_ARRAY_LEN(texts); t++) {
            uint8_t buf[FRAME_MAX];
            struct mpa_startup from, s;
            struct mpa_startup_cfg cfg = config(responder);
            size_t len = frame2(buf, responder ? request_key : reply_key, C, A_BIT | B_BIT | DEPTHS(1, 1), texts[t]);
            if (responder)
                init(&from, &cfg);
            else
                wait_reply(&from, &cfg);
            for (size_t cut = 0; cut < len; cut++) {
                s = from;
                feed(&s, buf, cut);
                cr_assert_eq(s.state, from.state);
                cr_assert_eq(mpa_startup_need(&s), (cut < 20 ? 20 : len) - cut);
                mpa_startup_eof(&s);
                cr_assert_eq(s.state, MPA_ST_FAILED);
                cr_assert_eq(s.err, MPA_SE_CLOSED);
                s = from;
                feed(&s, buf, cut);
                feed(&s, buf + cut, len - cut);
                cr_assert_eq(s.state, responder ? MPA_ST_DECIDE : MPA_ST_DONE);
                cr_assert_eq(s.res.peer_priv_len, strlen(texts[t]));
                cr_assert_arr_eq(s.res.peer_priv, texts[t], strlen(texts[t]));
            }
        }
}

Test(mpa_startup, both_sides_one_octet_at_a_time)
{
    struct mpa_startup ini, res;
    struct mpa_startup_cfg ic = config(false), rc = config(true);
    init(&ini, &ic);
    init(&res, &rc);
    const uint8_t *p;
    while (mpa_startup_output(&ini, &p) > 0) {
        uint8_t octet = *p;
        cr_assert_eq(res.state, MPA_ST_WAIT_REQ);
        cr_assert_gt(mpa_startup_need(&res), 0u);
        mpa_startup_sent(&ini, 1);
        feed(&res, &octet, 1);
    }
    cr_assert_eq(ini.state, MPA_ST_WAIT_REP);
    cr_assert_eq(res.state, MPA_ST_DECIDE);
    cr_assert_eq(mpa_startup_need(&res), 0u);
    cr_assert_eq(mpa_startup_accept(&res, "x", 1), 0);
    while (mpa_startup_output(&res, &p) > 0) {
        uint8_t octet = *p;
        cr_assert_eq(ini.state, MPA_ST_WAIT_REP);
        cr_assert_eq(res.state, MPA_ST_SEND_REP);
        mpa_startup_sent(&res, 1);
        feed(&ini, &octet, 1);
    }
    cr_assert_eq(ini.state, MPA_ST_DONE);
    cr_assert_eq(res.state, MPA_ST_DONE);
    cr_assert_eq(ini.res.rtr, res.res.rtr);
}

/* RFC 5044 7.1/1: the switch is at one octet */
Test(mpa_startup, fpdu_right_behind_the_reply_is_not_consumed)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX + 64];
    size_t len = frame2(buf, reply_key, C, A_BIT | B_BIT | DEPTHS(1, 1), "data");
    memset(buf + len, 0x41, 64);
    for (size_t extra = 1; extra <= 64; extra++) {
        wait_reply(&s, &cfg);
        cr_assert_eq(mpa_startup_input(&s, buf, len + extra), (ssize_t)len);
        cr_assert_eq(s.state, MPA_ST_DONE);
        cr_assert_eq(mpa_startup_input(&s, buf + len, extra), 0);
        cr_assert_eq(s.state, MPA_ST_DONE);
    }
}

Test(mpa_startup, fpdu_pipelined_behind_the_request_is_an_error_and_not_consumed_before)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX + 20];
    size_t len = frame2(buf, request_key, C, A_BIT | B_BIT | DEPTHS(1, 1), "data");
    memset(buf + len, 0, 20);
    init(&s, &cfg);
    cr_assert_eq(mpa_startup_input(&s, buf, len + 20), (ssize_t)len);
    cr_assert_eq(s.state, MPA_ST_DECIDE);
    cr_assert_eq(mpa_startup_input(&s, buf + len, 0), 0);
    cr_assert_eq(s.state, MPA_ST_DECIDE);
    struct mpa_startup decide = s;
    check_fails(&decide, buf + len, 20, MPA_SE_PIPELINED);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    mpa_startup_sent(&s, 1);
    check_fails(&s, buf + len, 1, MPA_SE_PIPELINED);
    /* After the Reply it is the FPDU decoder's. */
    take(&s, buf);
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(mpa_startup_input(&s, buf, 20), 0);
    cr_assert_eq(s.state, MPA_ST_DONE);
}

Test(mpa_startup, the_initiator_leaves_octets_alone_until_its_request_is_out)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    cr_assert_eq(mpa_startup_input(&s, (const uint8_t *)"M", 1), 0);
    take(&s, buf);
    feed(&s, (const uint8_t *)"M", 1);
}

/* ---- keys and revisions ---- */

/*
 * RFC 5044 7.1.1/2,4, RFC 5044 7.1.2 rule 2/2, RFC 5044 7.1.2 rule 3/2, RFC 5044 7.1.2 rule 5,
 * RFC 5044 8 code 4/1,2: told as a wrong key
 */
Test(mpa_startup, each_octet_of_the_key_is_checked_when_it_is_there)
{
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    for (size_t i = 0; i < 16; i++)
        for (unsigned x = 1; x < 256; x++) {
            frame2(buf, request_key, C, A_BIT | B_BIT, "");
            buf[i] ^= (uint8_t)x;
            check_request_fails(buf, i + 1, MPA_SE_KEY);
            frame2(buf, reply_key, C, A_BIT | B_BIT, "");
            buf[i] ^= (uint8_t)x;
            if (memcmp(buf, request_key, i + 1) != 0)
                check_reply_fails(&cfg, buf, i + 1, MPA_SE_KEY);
        }
}

/* RFC 5044 7.1.2 rule 8/1: "MUST use the difference" */
Test(mpa_startup, two_initiators_notice_each_other)
{
    struct mpa_startup a, b;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t from_a[FRAME_MAX], from_b[FRAME_MAX];
    init(&a, &cfg);
    init(&b, &cfg);
    size_t a_len = take(&a, from_a), b_len = take(&b, from_b);
    check_fails(&a, from_b, b_len, MPA_SE_CROSSING);
    check_fails(&b, from_a, a_len, MPA_SE_CROSSING);
}

Test(mpa_startup, a_half_request_and_then_something_else_is_a_wrong_key)
{
    struct mpa_startup_cfg cfg = config(false);
    check_reply_fails(&cfg, (const uint8_t *)"MPA ID Req Fromage", 18, MPA_SE_KEY);
}

Test(mpa_startup, a_responder_takes_no_reply)
{
    uint8_t buf[FRAME_MAX];
    check_request_fails(buf, frame(buf, reply_key, C, 1, 0, NULL, 0), MPA_SE_KEY);
}

/* RFC 5044 7.1.1/15,16: "MUST check this field" */
Test(mpa_startup, revisions_other_than_1_and_2_fail)
{
    struct mpa_startup_cfg cfg = config(false);
    cfg.rev = 1;
    for (unsigned rev = 0; rev < 256; rev++) {
        uint8_t buf[FRAME_MAX];
        if (rev == 1 || rev == 2)
            continue;
        size_t len = frame(buf, request_key, C, rev, 0, NULL, 0);
        check_request_fails(buf, len, MPA_SE_REV);
        check_request_fails(buf, 18, MPA_SE_REV);
        len = frame(buf, reply_key, C, rev, 0, NULL, 0);
        check_reply_fails(&cfg, buf, len, MPA_SE_REV);
        buf[16] |= R;
        check_reply_fails(&cfg, buf, len, MPA_SE_REV);
    }
}

/* RFC 5044 7.1.1/18 and RFC 5044 7.1.2 rule 9/1,4: "MUST validate the PD_Length field" */
Test(mpa_startup, private_data_over_512_octets_fail_with_the_header)
{
    static const size_t lens[] = { 513, 514, 1024, 65535 };
    struct mpa_startup_cfg cfg = config(false);
    for (size_t i = 0; i < SW_ARRAY_LEN(lens); i++) {
        uint8_t buf[FRAME_MAX];
        frame(buf, request_key, C, 1, lens[i], NULL, 0);
        check_request_fails(buf, 20, MPA_SE_PD_LEN);
        frame(buf, reply_key, C | S, 2, lens[i], NULL, 0);
        check_reply_fails(&cfg, buf, 20, MPA_SE_PD_LEN);
    }
}

Test(mpa_startup, s_without_room_for_the_word_fails)
{
    struct mpa_startup_cfg cfg = config(false);
    for (size_t pd = 0; pd < 4; pd++) {
        uint8_t buf[FRAME_MAX];
        frame(buf, request_key, C | S, 2, pd, "\0\0\0", pd);
        check_request_fails(buf, 20, MPA_SE_ENHANCED);
        frame(buf, reply_key, C | S, 2, pd, "\0\0\0", pd);
        check_reply_fails(&cfg, buf, 20, MPA_SE_ENHANCED);
        frame(buf, reply_key, C | S | R, 2, pd, "\0\0\0", pd);
        check_reply_fails(&cfg, buf, 20, MPA_SE_ENHANCED);
    }
}

/*
 * RFC 6581 6/2, RFC 5044 7.1.1/13: the bit is one of Res at Rev 1, and Res is "not checked on reception". (So the
 * 2007 proposal's initiators are served by responders that do not know it.)
 */
Test(mpa_startup, s_at_rev_1_is_a_reserved_bit)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    for (size_t pd = 0; pd <= 6; pd++) {
        init(&s, &cfg);
        feed(&s, buf, frame(buf, request_key, S, 1, pd, "\xff\xff\xff\xff##", pd));
        cr_assert_not(s.res.enhanced);
        cr_assert_not(s.res.peer_p2p);
        cr_assert_eq(s.res.peer_priv_len, pd);
        cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
        cr_assert_eq(take(&s, buf), 20u);
        cr_assert_eq(buf[16], C);
        cr_assert_eq(s.state, MPA_ST_DONE);
        cr_assert_not(s.res.rtr_frame);
    }
    cfg = config(false);
    cfg.rev = 1;
    wait_reply(&s, &cfg);
    feed(&s, buf, frame(buf, reply_key, C | S, 1, 2, "ok", 2));
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_not(s.res.enhanced);
    cr_assert_eq(s.res.peer_priv_len, 2u);
    /* A Rev 1 answer to an enhanced Request is not one in kind, whatever the bit says. */
    cfg.rev = 2;
    check_reply_fails(&cfg, buf, frame(buf, reply_key, C | S, 1, 4, "\0\0\0\0", 4), MPA_SE_ENHANCED);
}

/* RFC 6581 10/5 */
Test(mpa_startup, s_has_to_be_answered_in_kind)
{
    struct mpa_startup_cfg cfg = config(false);
    struct mpa_startup s;
    uint8_t buf[FRAME_MAX];
    size_t len = frame(buf, reply_key, C, 2, 0, NULL, 0);
    check_reply_fails(&cfg, buf, len, MPA_SE_ENHANCED);
    len = frame(buf, reply_key, C, 1, 0, NULL, 0);
    check_reply_fails(&cfg, buf, len, MPA_SE_ENHANCED);
    /* A rejection in the old form is understood. */
    len = frame(buf, reply_key, C | R, 1, 0, NULL, 0);
    wait_reply(&s, &cfg);
    feed(&s, buf, len);
    cr_assert_eq(s.state, MPA_ST_REJECTED);
    cr_assert_eq(s.res.peer_ird, MPA_IRD_ORD_NONE);
    /* And the other way round. */
    cfg.rev = 1;
    len = frame2(buf, reply_key, C, A_BIT | B_BIT, "");
    check_reply_fails(&cfg, buf, len, MPA_SE_ENHANCED);
}

/* RFC 6581 6/1,2, RFC 5044 7.1.1/13: "not checked on reception"; the same for R in a Request. */
Test(mpa_startup, reserved_bits_are_ignored_and_not_echoed)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C | R | 0x0f, A_BIT | B_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    take(&s, buf);
    cr_assert_eq(buf[16], C | S);
    init(&s, &cfg);
    feed(&s, buf, frame(buf, request_key, R | 0x0f, 1, 0, NULL, 0));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    take(&s, buf);
    cr_assert_eq(buf[16], C);
    cfg = config(false);
    wait_reply(&s, &cfg);
    feed(&s, buf, frame2(buf, reply_key, C | 0x0f, A_BIT | B_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(s.state, MPA_ST_DONE);
}

/* ---- C, M, R ---- */

/* All values of C and M on both sides, accepted or not. */
/* RFC 5044 4.4/2,6,7 and RFC 5044 7.1.1/5-11: CRCs if either wants them, Markers each as the other wants */
/* RFC 5044 7.1.2 rule 2/3-5, RFC 5044 7.1.2 rule 3/1,3,4: accepted or rejected */
Test(mpa_startup, c_m_and_r_in_all_combinations)
{
    for (unsigned bits = 0; bits < 32; bits++) {
        struct mpa_startup ini, res;
        struct mpa_startup_cfg ic = config(false), rc = config(true);
        uint8_t buf[FRAME_MAX];
        ic.crc = bits & 1;
        rc.crc = bits & 2;
        ic.markers = bits & 4;
        rc.markers = bits & 8;
        bool reject = bits & 16;
        init(&ini, &ic);
        init(&res, &rc);
        size_t len = take(&ini, buf);
        cr_assert_eq(buf[16], (ic.markers ? M : 0) | (ic.crc ? C : 0) | S);
        feed(&res, buf, len);
        if (reject)
            cr_assert_eq(mpa_startup_reject(&res, "no", 2), 0);
        else
            cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
        len = take(&res, buf);
        cr_assert_eq((buf[16] & R) != 0, reject);
        cr_assert_eq((buf[16] & M) != 0, rc.markers);
        if (reject) {
            cr_assert_eq(res.state, MPA_ST_REJECTED);
            feed(&ini, buf, len);
            cr_assert_eq(ini.state, MPA_ST_REJECTED);
            cr_assert_eq(ini.res.peer_priv_len, 2u);
            cr_assert_arr_eq(ini.res.peer_priv, "no", 2);
            continue;
        }
        cr_assert_eq(res.state, MPA_ST_DONE);
        cr_assert_eq((buf[16] & C) != 0, ic.crc || rc.crc);
        cr_assert_eq(res.res.crc, ic.crc || rc.crc);
        cr_assert_eq(res.res.markers_tx, ic.markers);
        cr_assert_eq(res.res.markers_rx, rc.markers);
        feed(&ini, buf, len);
        cr_assert_eq(ini.state, MPA_ST_DONE);
        cr_assert_eq(ini.res.crc, ic.crc || rc.crc);
        cr_assert_eq(ini.res.markers_tx, rc.markers);
        cr_assert_eq(ini.res.markers_rx, ic.markers);
    }
}

/* A peer whose Reply has C=0 although the Request had 1: the Request counts. RFC 5044 C.1/2 */
Test(mpa_startup, crc_is_on_if_only_the_request_said_so)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    wait_reply(&s, &cfg);
    feed(&s, buf, frame2(buf, reply_key, 0, A_BIT | B_BIT | DEPTHS(1, 1), ""));
    cr_assert(s.res.crc);
}

Test(mpa_startup, a_rejection_carries_what_could_have_been)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX], want[FRAME_MAX];
    cfg.rtr = MPA_RTR_WRITE | MPA_RTR_SEND;
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C, A_BIT | D_BIT | DEPTHS(1, 2), ""));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EPROTO);
    cr_assert_eq(s.err, MPA_SE_RTR);
    cr_assert_eq(mpa_startup_reject(&s, "why", 3), 0);
    size_t len = frame2(want, reply_key, C | R, A_BIT | B_BIT | C_BIT | DEPTHS(8, 6), "why");
    cr_assert_eq(take(&s, buf), len);
    cr_assert_arr_eq(buf, want, len);
    cr_assert_eq(s.state, MPA_ST_REJECTED);

    cfg = config(false);
    wait_reply(&s, &cfg);
    feed(&s, want, len);
    cr_assert_eq(s.state, MPA_ST_REJECTED);
    cr_assert_eq(s.res.peer_ird, 8);
    cr_assert_eq(s.res.peer_ord, 6);
    cr_assert_eq(s.res.peer_rtr, MPA_RTR_SEND | MPA_RTR_WRITE);
}

Test(mpa_startup, a_rejection_of_an_old_request_is_of_the_old_form)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX], want[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame(buf, request_key, C, 1, 0, NULL, 0));
    cr_assert_eq(mpa_startup_reject(&s, NULL, 0), 0);
    size_t len = frame(want, reply_key, C | R, 1, 0, NULL, 0);
    cr_assert_eq(take(&s, buf), len);
    cr_assert_arr_eq(buf, want, len);
}

/* Behind a rejection streaming mode goes on: its octets are not MPA's. */
Test(mpa_startup, octets_behind_a_rejection_are_not_consumed)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    size_t len = frame2(buf, reply_key, C | R, A_BIT | B_BIT, "");
    memcpy(buf + len, "220 hello", 9);
    wait_reply(&s, &cfg);
    cr_assert_eq(mpa_startup_input(&s, buf, len + 9), (ssize_t)len);
    cr_assert_eq(s.state, MPA_ST_REJECTED);
    cr_assert_eq(mpa_startup_input(&s, buf + len, 9), 0);
    mpa_startup_eof(&s);
    cr_assert_eq(s.state, MPA_ST_REJECTED);
}

/* ---- closing and misuse ---- */

Test(mpa_startup, a_close_counts_until_the_startup_is_over)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame(buf, request_key, C, 1, 0, NULL, 0));
    struct mpa_startup decide = s;
    mpa_startup_eof(&decide);
    cr_assert_eq(decide.err, MPA_SE_CLOSED);
    cr_assert_eq(mpa_startup_accept(&decide, NULL, 0), -EINVAL);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    struct mpa_startup sending = s;
    mpa_startup_eof(&sending);
    cr_assert_eq(sending.state, MPA_ST_FAILED);
    take(&s, buf);
    mpa_startup_eof(&s);
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(s.err, MPA_SE_NONE);
}

Test(mpa_startup, accept_and_reject_belong_to_decide)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EINVAL);
    cr_assert_eq(mpa_startup_reject(&s, NULL, 0), -EINVAL);
    feed(&s, buf, frame(buf, request_key, C, 1, 0, NULL, 0));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), 0);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EINVAL);
    cr_assert_eq(mpa_startup_reject(&s, NULL, 0), -EINVAL);
    cfg = config(false);
    init(&s, &cfg);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EINVAL);
}

Test(mpa_startup, names)
{
    for (unsigned e = MPA_SE_NONE; e <= MPA_SE_CLOSED; e++)
        cr_assert_str_neq(mpa_startup_err_name(e), "unknown");
    cr_assert_str_eq(mpa_startup_err_name(MPA_SE_CLOSED + 1), "unknown");
    cr_assert_str_eq(mpa_rtr_name(0), "none");
    cr_assert_str_eq(mpa_rtr_name(MPA_RTR_SEND), "send");
    cr_assert_str_eq(mpa_rtr_name(MPA_RTR_WRITE), "write");
    cr_assert_str_eq(mpa_rtr_name(MPA_RTR_READ), "read");
    cr_assert_str_eq(mpa_rtr_name(3), "several");
}
