/*
 * Startup with peers of before RFC 6581: the RtR frame of the 2007 proposal (MPA_DIALECT_RTR_FRAME),
 * and when a second attempt at Rev 1 makes sense.
 */
#include "tests/unit/startup_frames.h"

static const char rtr_key[] = "MPA ID RtR Frame";

static struct mpa_startup_cfg dialect(bool responder)
{
    struct mpa_startup_cfg cfg = config(responder);
    cfg.dialect = MPA_DIALECT_RTR_FRAME;
    cfg.rev = 1;
    return cfg;
}

/* A responder whose Reply is out. */
static void wait_rtr(struct mpa_startup *s, const struct mpa_startup_cfg *cfg)
{
    uint8_t buf[FRAME_MAX];
    init(s, cfg);
    feed(s, buf, frame(buf, request_key, C | S, 1, 3, "abc", 3));
    cr_assert(s->res.rtr_frame);
    cr_assert_eq(mpa_startup_accept(s, "welcome", 7), 0);
    take(s, buf);
    cr_assert_eq(s->state, MPA_ST_WAIT_RTR);
}

Test(mpa_startup_old, the_three_frames_octet_by_octet)
{
    struct mpa_startup ini, res;
    struct mpa_startup_cfg ic = dialect(false), rc = dialect(true);
    uint8_t got[FRAME_MAX], want[FRAME_MAX];
    static const uint8_t key[16] = { 0x4d, 0x50, 0x41, 0x20, 0x49, 0x44, 0x20, 0x52,
                                     0x74, 0x52, 0x20, 0x46, 0x72, 0x61, 0x6d, 0x65 };
    init(&ini, &ic);
    init(&res, &rc);
    size_t len = frame(want, request_key, C | S, 1, 5, "hello", 5);
    cr_assert_eq(take(&ini, got), len);
    cr_assert_arr_eq(got, want, len);
    feed(&res, got, len);
    cr_assert_eq(res.state, MPA_ST_DECIDE);
    cr_assert_not(res.res.enhanced);
    cr_assert_eq(res.res.peer_priv_len, 5u);
    cr_assert_eq(mpa_startup_accept(&res, "welcome", 7), 0);
    len = frame(want, reply_key, C | S, 1, 7, "welcome", 7);
    cr_assert_eq(take(&res, got), len);
    cr_assert_arr_eq(got, want, len);
    cr_assert_eq(res.state, MPA_ST_WAIT_RTR);
    feed(&ini, got, len);
    cr_assert_eq(ini.state, MPA_ST_SEND_RTR);
    cr_assert_eq(take(&ini, got), 20u);
    cr_assert_arr_eq(got, key, 16);
    cr_assert_arr_eq(got + 16, "\x40\x01\x00\x00", 4);
    cr_assert_eq(ini.state, MPA_ST_DONE);
    feed(&res, got, 20);
    cr_assert_eq(res.state, MPA_ST_DONE);
    cr_assert(ini.res.rtr_frame && res.res.rtr_frame);
    cr_assert(ini.res.rtr == 0 && res.res.rtr == 0);
    cr_assert_eq(res.res.peer_priv_len, 5u, "the Request's private data are still there");
    cr_assert_arr_eq(res.res.peer_priv, "hello", 5);
}

Test(mpa_startup_old, the_rtr_frame_octet_by_octet_and_cut_everywhere)
{
    struct mpa_startup_cfg cfg = dialect(true);
    for (size_t pd = 0; pd <= 9; pd += 9) {
        uint8_t buf[FRAME_MAX];
        size_t len = frame(buf, rtr_key, C, 1, pd, "no format", pd);
        for (size_t cut = 0; cut < len; cut++) {
            struct mpa_startup s;
            wait_rtr(&s, &cfg);
            cr_assert_eq(mpa_startup_need(&s), 20u);
            for (size_t i = 0; i < cut; i++)
                feed(&s, buf + i, 1);
            cr_assert_eq(s.state, MPA_ST_WAIT_RTR);
            cr_assert_eq(mpa_startup_need(&s), (cut < 20 ? 20 : len) - cut);
            struct mpa_startup closed = s;
            mpa_startup_eof(&closed);
            cr_assert_eq(closed.state, MPA_ST_FAILED);
            cr_assert_eq(closed.err, MPA_SE_CLOSED);
            feed(&s, buf + cut, len - cut);
            cr_assert_eq(s.state, MPA_ST_DONE);
            cr_assert_arr_eq(s.res.peer_priv, "abc", 3);
        }
    }
}

Test(mpa_startup_old, what_is_no_rtr_frame_fails)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = dialect(true);
    uint8_t buf[FRAME_MAX];
    wait_rtr(&s, &cfg);
    check_fails(&s, buf, frame(buf, request_key, C, 1, 0, NULL, 0), MPA_SE_KEY);
    check_fails(&s, buf, frame(buf, reply_key, C, 1, 0, NULL, 0), MPA_SE_KEY);
    check_fails(&s, (const uint8_t *)"\0\x12\x41\x43", 4, MPA_SE_KEY); /* an FPDU */
    check_fails(&s, (const uint8_t *)"MPA ID Rtr", 10, MPA_SE_KEY);    /* the text's spelling */
    for (size_t i = 0; i < 16; i++) {
        frame(buf, rtr_key, C, 1, 0, NULL, 0);
        buf[i] ^= 0x10;
        check_fails(&s, buf, i + 1, MPA_SE_KEY);
    }
    check_fails(&s, buf, (frame(buf, rtr_key, C, 0, 0, NULL, 0), 18), MPA_SE_REV);
    check_fails(&s, buf, (frame(buf, rtr_key, C, 3, 0, NULL, 0), 18), MPA_SE_REV);
    check_fails(&s, buf, (frame(buf, rtr_key, C, 1, 513, NULL, 0), 20), MPA_SE_PD_LEN);
}

/* "Unused by Rtr frame. That is set to 0 in Rtr frame and ignored by responder": its flags. */
Test(mpa_startup_old, flags_of_the_rtr_frame_are_ignored)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = dialect(true);
    uint8_t buf[FRAME_MAX];
    for (unsigned flags = 0; flags < 256; flags++) {
        wait_rtr(&s, &cfg);
        feed(&s, buf, frame(buf, rtr_key, flags, 1, 0, NULL, 0));
        cr_assert_eq(s.state, MPA_ST_DONE);
        cr_assert(s.res.crc && !s.res.markers_tx);
    }
}

/* "Rtr frame adhere to C bit as specified in Rep frame". */
Test(mpa_startup_old, the_rtr_frame_has_the_c_of_the_reply)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = dialect(false);
    uint8_t buf[FRAME_MAX];
    for (int crc = 0; crc <= 1; crc++) {
        cfg.crc = !crc;
        cfg.markers = crc;
        wait_reply(&s, &cfg);
        feed(&s, buf, frame(buf, reply_key, (crc ? C : 0) | S, 1, 0, NULL, 0));
        take(&s, buf);
        cr_assert_eq(buf[16], crc ? C | M : 0);
    }
}

Test(mpa_startup_old, fpdus_right_behind_the_rtr_frame_are_not_consumed)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = dialect(true);
    uint8_t buf[FRAME_MAX];
    size_t len = frame(buf, rtr_key, C, 1, 0, NULL, 0);
    memset(buf + len, 0x41, 64);
    wait_rtr(&s, &cfg);
    cr_assert_eq(mpa_startup_input(&s, buf, len + 64), (ssize_t)len);
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(mpa_startup_input(&s, buf + len, 64), 0);
}

/* "In Rep frame, 0 means that Responder cannot support Rtr frame": then the client speaks first. */
Test(mpa_startup_old, where_one_side_does_not_know_it_no_rtr_frame_is_sent)
{
    struct mpa_startup ini, res;
    struct mpa_startup_cfg ic = dialect(false), rc = config(true);
    uint8_t buf[FRAME_MAX];
    init(&ini, &ic);
    init(&res, &rc);
    feed(&res, buf, take(&ini, buf));
    cr_assert_not(res.res.rtr_frame);
    cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
    size_t len = take(&res, buf);
    cr_assert_eq(buf[16] & S, 0);
    cr_assert_eq(res.state, MPA_ST_DONE);
    feed(&ini, buf, len);
    cr_assert_eq(ini.state, MPA_ST_DONE);
    cr_assert_not(ini.res.rtr_frame);

    ic = config(false); /* and the other way round, at either revision */
    rc = dialect(true);
    for (unsigned rev = 1; rev <= 2; rev++) {
        ic.rev = (uint8_t)rev;
        init(&ini, &ic);
        init(&res, &rc);
        feed(&res, buf, take(&ini, buf));
        cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
        feed(&ini, buf, take(&res, buf));
        cr_assert_eq(ini.state, MPA_ST_DONE);
        cr_assert_eq(res.state, MPA_ST_DONE);
        cr_assert_not(ini.res.rtr_frame);
        cr_assert_not(res.res.rtr_frame);
        cr_assert_eq(ini.res.rtr != 0, rev == 2);
    }
}

/* "Rtr frame will be sent if responder sends Rep frame with accept bit set." */
Test(mpa_startup_old, a_rejection_is_followed_by_no_rtr_frame)
{
    struct mpa_startup ini, res;
    struct mpa_startup_cfg ic = dialect(false), rc = dialect(true);
    uint8_t buf[FRAME_MAX];
    const uint8_t *p;
    init(&ini, &ic);
    init(&res, &rc);
    feed(&res, buf, take(&ini, buf));
    cr_assert_eq(mpa_startup_reject(&res, NULL, 0), 0);
    size_t len = take(&res, buf);
    cr_assert_eq(buf[16], C | R);
    cr_assert_eq(res.state, MPA_ST_REJECTED);
    buf[16] |= S;
    feed(&ini, buf, len);
    cr_assert_eq(ini.state, MPA_ST_REJECTED);
    cr_assert_eq(mpa_startup_output(&ini, &p), 0u);
}

Test(mpa_startup_old, nothing_may_be_pipelined_behind_the_request_here_either)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = dialect(true);
    uint8_t buf[FRAME_MAX];
    init(&s, &cfg);
    feed(&s, buf, frame(buf, request_key, C | S, 1, 0, NULL, 0));
    check_fails(&s, buf, frame(buf, rtr_key, C, 1, 0, NULL, 0), MPA_SE_PIPELINED);
}

/* ---- Rev 1 ---- */

/* RFC 6581 10: "an unenhanced responder treats the enhanced request as incorrectly formatted and closes
 * the TCP connection … the initiator MAY attempt to establish an RDMA connection using the unenhanced
 * MPA protocol". */
Test(mpa_startup_old, a_close_without_an_answer_is_worth_a_second_attempt_at_rev_1)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    wait_reply(&s, &cfg);
    cr_assert_not(mpa_startup_retry_rev1(&s), "nothing has failed yet");
    mpa_startup_eof(&s);
    cr_assert(mpa_startup_retry_rev1(&s));
    cfg.rev = 1; /* as it is, but for the revision */
    wait_reply(&s, &cfg);
    struct mpa_startup again = s;
    mpa_startup_eof(&again);
    cr_assert_not(mpa_startup_retry_rev1(&again), "once");
    feed(&s, buf, frame(buf, reply_key, C, 1, 3, "old", 3));
    cr_assert_eq(s.state, MPA_ST_DONE);
    cr_assert_eq(s.res.rtr, 0);
    cr_assert_eq(s.res.rev, 1);
}

Test(mpa_startup_old, no_second_attempt_after_other_failures)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX];
    wait_reply(&s, &cfg); /* it had begun to answer: it knows the form */
    feed(&s, (const uint8_t *)"M", 1);
    mpa_startup_eof(&s);
    cr_assert_not(mpa_startup_retry_rev1(&s));
    wait_reply(&s, &cfg); /* it answered something else */
    cr_assert_eq(mpa_startup_input(&s, (const uint8_t *)"HTTP", 4), -EPROTO);
    cr_assert_not(mpa_startup_retry_rev1(&s));
    wait_reply(&s, &cfg); /* it said no */
    feed(&s, buf, frame2(buf, reply_key, C | R, A_BIT | B_BIT, ""));
    cr_assert_not(mpa_startup_retry_rev1(&s));
    init(&s, &cfg); /* it has not even got the Request */
    mpa_startup_eof(&s);
    cr_assert_not(mpa_startup_retry_rev1(&s));
    cfg.peer_to_peer = false; /* Rev 2, but not enhanced */
    cfg.ird = cfg.ord = MPA_IRD_ORD_NONE;
    wait_reply(&s, &cfg);
    mpa_startup_eof(&s);
    cr_assert_not(mpa_startup_retry_rev1(&s));
    cfg = config(true);
    init(&s, &cfg);
    mpa_startup_eof(&s);
    cr_assert_not(mpa_startup_retry_rev1(&s));
}
