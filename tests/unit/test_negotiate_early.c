/*
 * The startup that takes one round trip, its Request and Reply parts of the Hellos; and the withdrawal of a Hello, with
 * and without it.
 */
#include <errno.h>

#include "core/base/bytes.h"
#include "tests/unit/negotiate_pair.h"

static const uint8_t rtr[] = { 0, 18, 'A', 'C', 0 }; /* what FPDUs may begin with */

static void both_early(uint8_t rtr_of_b)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.early = cb.early = true;
    cb.mpa.rtr = rtr_of_b;
    both(&ca, &cb);
}

/* The first FPDU. */
static void rtr_comes(size_t cut)
{
    put(&b.wire, rtr, sizeof(rtr));
    run(cut);
}

Test(negotiate_early, one_frame_each_way_and_the_first_fpdu_however_the_octets_are_cut)
{
    static const uint8_t kinds[] = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };

    for (size_t k = 0; k < SW_ARRAY_LEN(kinds); k++)
        for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
            rng = 31 + c;
            both_early(kinds[k]);
            run(cuts[c]);
            EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
            cr_expect_eq(b.n.state, NEGOTIATE_MPA, "nothing shows yet that the initiator goes on");
            cr_expect(negotiate_peer_known(&b.n));
            rtr_comes(cuts[c]);
            EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
            cr_expect_eq(a.n.mpa.res.rtr, kinds[k]);
            cr_expect_eq(b.n.mpa.res.rtr, kinds[k]);
            cr_expect_eq(a.n.peer.ring_stag, 0xbbbbbbbbu);
            cr_expect_eq(b.n.peer.ring_stag, 0xaaaaaaaau);
            cr_expect_eq(a.prog.n + b.prog.n + a.in.n + a.kernel.n, 0u);
            plain_rest(&b);
            cr_assert_eq(b.prog.n, sizeof(rtr), "all of it is left to the next state");
            cr_expect_arr_eq(b.prog.p, rtr, sizeof(rtr));
        }
}

Test(negotiate_early, a_whole_side_goes_out_at_once)
{
    both_early(MPA_RTR_SEND);
    cr_assert(step_out(&a, SIZE_MAX));
    cr_expect_not(step_out(&a, SIZE_MAX));
    cr_expect_eq(memcmp(a.peer->wire.p + a.peer->wire.n - 20 - 4 - STREAM_PARAMS_LEN, "MPA ID Req Frame", 16), 0,
                 "the Request is what the Hello ends with");
    arrive(&b, SIZE_MAX);
    step_in(&b);
    cr_assert(step_out(&b, SIZE_MAX));
    cr_expect_not(step_out(&b, SIZE_MAX));
    cr_expect_eq(memcmp(a.wire.p + a.wire.n - 20 - 4 - STREAM_PARAMS_LEN, "MPA ID Rep Frame", 16), 0);
}

/* Asked by a peer that does not know it: the frames follow by themselves. */
Test(negotiate_early, who_does_not_reply_early_is_asked_again)
{
    for (size_t c = 0; c < 2 * SW_ARRAY_LEN(cuts); c++) {
        struct negotiate_cfg ca = config(false), cb = config(true);

        rng = 41 + c;
        ca.early = true;
        if (c & 1) {
            cb.early = true;
            cb.mpa.dialect = MPA_DIALECT_RTR_FRAME;
        }
        both(&ca, &cb);
        run(cuts[c / 2]);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        cr_expect_eq(a.prog.n + b.prog.n + a.in.n + b.in.n + a.kernel.n + b.kernel.n, 0u);
    }
}

Test(negotiate_early, a_request_that_is_not_accepted_is_answered_as_one_that_comes_by_itself)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++)
        for (int what = 0; what < 2; what++) {
            struct negotiate_cfg ca = config(false), cb = config(true);

            rng = 51 + c;
            ca.early = cb.early = true;
            if (what == 0)
                ca.params.ring_len = 100; /* makes no sense */
            ca.mpa.rtr = MPA_RTR_SEND;
            if (what == 1)
                cb.mpa.rtr = MPA_RTR_WRITE; /* none in common */
            both(&ca, &cb);
            run(cuts[c]);
            EXPECT(a, NEGOTIATE_PLAIN, REASON_MPA_REJECTED);
            EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_LIMIT);
        }
}

Test(negotiate_early, one_that_declines_says_so_and_the_request_is_no_octet_of_the_program_s)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        rng = 61 + c;
        both_early(MPA_RTR_SEND);
        negotiate_decline(&b.n, REASON_POLICY);
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_POLICY);
        plain_rest(&a);
        plain_rest(&b);
        cr_expect_eq(a.prog.n + b.prog.n, 0u);
    }
}

Test(negotiate_early, a_server_that_speaks_first_is_heard_before)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        rng = 71 + c;
        both_early(MPA_RTR_SEND);
        speak("220 ready", 9);
        run(cuts[c]);
        rtr_comes(cuts[c]);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        cr_assert_eq(a.prog.n, 9u);
        cr_expect_arr_eq(a.prog.p, "220 ready", 9);
    }
}

/* A Hello of this kind for e, with a frame of so many octets of the text at its end. */
static void foreign(struct end *e, enum hello_kind kind, const void *text, size_t len)
{
    struct hello h = { .kind = kind, .arg = HELLO_TRANSPORT_IWARP };
    uint8_t tlv[512], frame[HELLO_LEN_MAX];

    put_be16(tlv, HELLO_TLV_MPA);
    put_be16(tlv + 2, (uint16_t)len);
    memcpy(tlv + 4, text, len);
    memcpy(h.nonce, a.n.cfg.nonce, sizeof(h.nonce));
    h.tlv = tlv;
    h.tlv_len = 4 + len;
    ssize_t n = hello_encode(&h, frame, sizeof(frame));
    cr_assert_gt(n, 0);
    put(&e->wire, frame, (size_t)n);
}

Test(negotiate_early, what_is_no_request_is_passed_over)
{
    static const char req[] = "MPA ID Req Frame\0\2\0\0";
    struct negotiate_cfg ca = config(false), cb = config(true);

    cb.early = true;

    for (size_t len = 0; len < sizeof(req) + 3; len++) {
        char text[sizeof(req) + 3] = { 0 };

        if (len == sizeof(req) - 1)
            continue; /* a whole one */
        memcpy(text, req, sizeof(req) - 1);
        both(&ca, &cb);
        foreign(&b, HELLO_HELO, text, len);
        arrive(&b, SIZE_MAX);
        step_in(&b);
        cr_assert_eq(b.n.state, NEGOTIATE_MPA);
        cr_expect_eq(b.n.mpa.state, MPA_ST_WAIT_REQ, "it has not replied");
        cr_expect_eq(b.n.mpa.in_len, 0u);
    }
}

Test(negotiate_early, what_is_no_reply_spoils_the_connection)
{
    static const char rep[] = "MPA ID Rep Frame\0\2\0\0";

    for (size_t len = 0; len < sizeof(rep) + 3; len++) {
        char text[sizeof(rep) + 3] = { 0 };

        memcpy(text, rep, sizeof(rep) - 1);
        both_early(MPA_RTR_SEND);
        while (step_out(&a, SIZE_MAX))
            ;
        foreign(&a, HELLO_HACK, text, len);
        arrive(&a, SIZE_MAX);
        step_in(&a);
        cr_expect_eq(a.n.state, NEGOTIATE_FALLBACK, "%zu octets: %u", len, a.n.state);
        cr_expect_eq(a.n.reason, REASON_MPA_FAILED);
    }
}

Test(negotiate_early, a_reply_that_was_not_asked_for_is_passed_over)
{
    setup();
    while (step_out(&a, SIZE_MAX))
        ;
    foreign(&a, HELLO_HACK, "MPA ID Rep Frame\0\2\0\0", 20);
    arrive(&a, SIZE_MAX);
    step_in(&a);
    cr_expect_eq(a.n.state, NEGOTIATE_MPA);
    cr_expect_eq(a.n.mpa.state, MPA_ST_SEND_REQ);
}

Test(negotiate_early, the_end_behind_the_reply_is_the_next_state_s)
{
    both_early(MPA_RTR_SEND);
    run(0);
    negotiate_eof(&b.n);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
}

Test(negotiate_early, the_end_before_the_answer_is_the_programs)
{
    both_early(MPA_RTR_SEND);
    while (step_out(&a, SIZE_MAX))
        ;
    negotiate_eof(&a.n);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_CLOSED);
}

Test(negotiate_early, an_initiator_that_says_nothing_more_is_not_waited_for_for_ever)
{
    both_early(MPA_RTR_SEND);
    run(0);
    now += NEGOTIATE_MPA_NS;
    negotiate_tick(&b.n, now);
    EXPECT(b, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}

Test(negotiate_early, not_with_a_device_nor_without_a_hello_nor_in_the_old_dialect)
{
    for (int i = 0; i < 4; i++) {
        struct negotiate_cfg ca = config(false);

        ca.early = true;
        if (i == 1)
            ca.transports |= HELLO_TRANSPORT_VERBS;
        if (i == 2)
            ca.immediate = true;
        if (i == 3) {
            ca.mpa.rev = 1;
            ca.mpa.dialect = MPA_DIALECT_RTR_FRAME;
        }
        cr_expect_eq(negotiate_init(&a.n, &ca, now), i == 0 ? 0 : -EINVAL);
    }
}

/* ---- withdrawal ---- */

/* An initiator that knows that the listener runs sockwarp, whose program has not accepted yet. */
static void up_to_withdrawal(bool early)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.shim_known = true;
    ca.early = cb.early = early;
    both(&ca, &cb);
    step_out(&a, SIZE_MAX);
    now += TIMEOUT_NS - 1;
    negotiate_tick(&a.n, now);
    cr_assert_eq(a.n.state, NEGOTIATE_HELLO);
    now += 1;
    negotiate_tick(&a.n, now);
    cr_assert_eq(a.n.state, NEGOTIATE_WITHDRAWN);
}

/* Its program speaks behind the HWDR. */
static void speak_plainly(const char *text)
{
    while (step_out(&a, SIZE_MAX))
        ;
    put(&b.wire, text, strlen(text));
}

static void expect_programs(const char *of_a, const char *of_b)
{
    plain_rest(&a);
    plain_rest(&b);
    cr_expect_eq(a.prog.n, strlen(of_a));
    cr_expect_eq(memcmp(a.prog.p, of_a, strlen(of_a)), 0);
    cr_expect_eq(b.prog.n, strlen(of_b));
    cr_expect_eq(memcmp(b.prog.p, of_b, strlen(of_b)), 0);
}

Test(negotiate_early, a_withdrawal_before_accept_leaves_each_program_its_octets)
{
    for (size_t c = 0; c < 2 * SW_ARRAY_LEN(cuts); c++) {
        rng = 7 + c;
        up_to_withdrawal(c & 1);
        speak_plainly("request");
        run(cuts[c / 2]);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        expect_programs("", "request");
    }
}

Test(negotiate_early, a_hello_that_cannot_be_answered_is_taken_away_and_what_follows_is_the_program_s)
{
    for (size_t c = 0; c < 2 * SW_ARRAY_LEN(cuts); c++) {
        rng = 17 + c;
        up_to_withdrawal(c & 1);
        negotiate_mute(&b.n);
        speak_plainly("request");
        run(cuts[c / 2]);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_CLOSED);
        cr_expect_eq(a.wire.n, 0, "nothing is said");
        expect_programs("", "request");
    }
}

Test(negotiate_early, a_withdrawal_that_crosses_the_answer_is_understood)
{
    for (size_t c = 0; c < 2 * SW_ARRAY_LEN(cuts); c++) {
        rng = 70 + c;
        up_to_withdrawal(c & 1);
        arrive(&b, SIZE_MAX);
        step_in(&b);
        step_out(&b, SIZE_MAX); /* HACK is on its way */
        speak_plainly("request");
        run(cuts[c / 2]);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        put(&a.wire, "reply", 5);
        expect_programs("reply", "request");
    }
}

Test(negotiate_early, a_withdrawal_that_crosses_a_declining_answer_is_taken_out_as_well)
{
    for (size_t c = 0; c < 2 * SW_ARRAY_LEN(cuts); c++) {
        rng = 700 + c;
        up_to_withdrawal(c & 1);
        negotiate_decline(&b.n, REASON_STD_FD);
        arrive(&b, SIZE_MAX);
        step_in(&b);
        cr_expect_eq(b.n.state, NEGOTIATE_NAKED);
        step_out(&b, SIZE_MAX);
        put(&a.wire, "banner", 6);
        speak_plainly("request");
        run(cuts[c / 2]);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_STD_FD);
        expect_programs("banner", "request");
    }
}

Test(negotiate_early, a_server_that_spoke_before_the_hello_is_heard_by_one_that_withdrew)
{
    for (int c = 0; c < 2; c++) {
        up_to_withdrawal(c & 1);
        speak("220 ready", 9);
        speak_plainly("EHLO");
        run(3);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
        expect_programs("220 ready", "EHLO");
    }
}

/* Whoever declined and might be told of a withdrawal finds other octets instead, or the end, or nothing. */
Test(negotiate_early, one_that_declined_takes_other_octets_for_its_programs)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    for (int i = 0; i < 3; i++) {
        ca.shim_known = true;
        both(&ca, &cb);
        negotiate_decline(&b.n, REASON_POLICY);
        run(0);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
        cr_expect_eq(b.n.state, NEGOTIATE_NAKED);
        if (i == 0) {
            put(&b.wire, "GET", 3);
            run(1);
        } else if (i == 1) {
            negotiate_eof(&b.n);
        } else {
            put(&b.wire, "\365sock", 5);
            run(0);
            cr_expect_eq(b.n.state, NEGOTIATE_NAKED);
            now += NEGOTIATE_PREFIX_NS;
            negotiate_tick(&b.n, now);
        }
        EXPECT(b, NEGOTIATE_PLAIN, REASON_POLICY);
        expect_programs("", i == 0 ? "GET" : i == 1 ? "" : "\365sock");
    }
}

Test(negotiate_early, another_ones_withdrawal_is_no_withdrawal)
{
    struct hello h = { .kind = HELLO_HWDR, .nonce = { 9 } };
    uint8_t frame[HELLO_LEN];

    setup();
    step_out(&a, SIZE_MAX);
    arrive(&b, SIZE_MAX);
    step_in(&b);
    step_out(&b, SIZE_MAX);
    cr_assert_eq(hello_encode(&h, frame, sizeof(frame)), HELLO_LEN);
    put(&b.wire, frame, sizeof(frame));
    arrive(&b, SIZE_MAX);
    step_in(&b);
    EXPECT(b, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}

Test(negotiate_early, the_end_after_a_withdrawal_ends_the_wait_for_the_answer)
{
    for (int c = 0; c < 2; c++) {
        up_to_withdrawal(c & 1);
        while (step_out(&a, SIZE_MAX))
            ;
        cr_expect(!negotiate_over(&a.n));
        negotiate_eof(&a.n);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
    }
}

Test(negotiate_early, nothing_is_withdrawn_that_was_not_said)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    const uint8_t *p;

    ca.shim_known = true;
    both(&ca, &cb);
    now += TIMEOUT_NS;
    negotiate_tick(&a.n, now);
    EXPECT(a, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
    cr_expect_eq(negotiate_out(&a.n, &p), 0u);
}

/* ---- the late switch ---- */

/* As up_to_withdrawal, of one that goes on in streaming mode and sends this. */
static void up_to_late(const char *text)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.shim_known = ca.may_switch = true;
    ca.early = cb.early = true;
    both(&ca, &cb);
    step_out(&a, SIZE_MAX);
    now += TIMEOUT_NS;
    negotiate_tick(&a.n, now);
    cr_assert_eq(a.n.state, NEGOTIATE_LATE);
    speak_plainly(text);
    a.n.streamed += strlen(text);
}

Test(negotiate_early, a_late_switch_is_each_direction_s_own)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        const uint8_t *p;
        struct hello h;

        rng = 5 + c;
        up_to_late("request");
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        cr_expect(a.n.switched && b.n.switched);
        cr_expect_eq(a.n.peer.ring_stag, 0xbbbbbbbb);
        cr_expect_eq(b.n.peer.ring_stag, 0xaaaaaaaa);
        cr_expect_eq(negotiate_lead(&b.n, &p), 0u);
        cr_assert_eq(negotiate_lead(&a.n, &p), HELLO_LEN);
        cr_assert_eq(hello_decode(p, HELLO_LEN, &h), HELLO_LEN);
        cr_expect_eq(h.kind, HELLO_HSWI);
        cr_expect_eq(h.streamed, 7u);
        cr_expect_eq(memcmp(h.nonce, config(false).nonce, HELLO_NONCE_LEN), 0);
        expect_programs("", "request");
    }
}

Test(negotiate_early, a_late_switch_that_crosses_the_answer)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.shim_known = ca.may_switch = true;
    ca.early = cb.early = true;
    both(&ca, &cb);
    step_out(&a, SIZE_MAX);
    arrive(&b, SIZE_MAX);
    step_in(&b);
    cr_assert_eq(b.n.state, NEGOTIATE_MPA);
    step_out(&b, SIZE_MAX);
    negotiate_withdraw(&a.n);
    cr_assert_eq(a.n.state, NEGOTIATE_LATE);
    speak_plainly("request");
    a.n.streamed += 7;
    run(0);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
    cr_expect(a.n.switched && b.n.switched);
    expect_programs("", "request");
}

Test(negotiate_early, what_is_no_late_switch_stays_plain)
{
    enum { DECLINED, SEPARATE, ENDED, MUTE, SPOKE, CASES };

    for (int i = 0; i < CASES; i++) {
        up_to_late("request");
        if (i == DECLINED)
            negotiate_decline(&b.n, REASON_STD_FD);
        if (i == SEPARATE)
            b.n.cfg.early = false;
        if (i == ENDED)
            negotiate_peer_ended(&b.n);
        if (i == MUTE)
            negotiate_mute(&b.n);
        if (i == SPOKE)
            speak("greeting", 8);
        run(0);
        cr_expect_eq(b.n.state, NEGOTIATE_PLAIN);
        if (i == ENDED || i == MUTE) { /* not answered: the first of the program's octets says so, or the end */
            cr_expect_eq(a.n.state, NEGOTIATE_LATE);
            put(&a.wire, "answer", 6);
            run(0);
        }
        cr_expect_eq(a.n.state, NEGOTIATE_PLAIN, "case %d: %u", i, a.n.state);
        cr_expect(negotiate_over(&a.n) && negotiate_over(&b.n));
        expect_programs(i == SPOKE ? "greeting" : i == ENDED || i == MUTE ? "answer" : "", "request");
    }
}

/*
 * As up_to_late, with the HWDR in the HELO's company, and a responder that cannot know whether the initiator is still
 * there.
 */
static void up_to_deferred(const char *text)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.shim_known = ca.may_switch = ca.at_once = true;
    ca.early = cb.early = true;
    both(&ca, &cb);
    cr_assert_eq(a.n.state, NEGOTIATE_LATE);
    step_out(&a, SIZE_MAX);
    speak_plainly(text);
    a.n.streamed += strlen(text);
    negotiate_defer(&b.n);
}

Test(negotiate_early, a_deferred_answer_waits_for_the_program)
{
    const uint8_t *p;
    size_t len;

    up_to_deferred("request");
    run(0);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
    cr_assert_eq(a.n.state, NEGOTIATE_LATE);
    cr_expect(negotiate_over(&b.n));
    cr_expect_eq(negotiate_out(&b.n, &p), 0u, "nothing goes by itself");
    len = negotiate_lead(&b.n, &p);
    cr_assert_gt(len, HELLO_LEN);
    put(&a.wire, p, len);
    run(0);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    cr_expect_eq(negotiate_lead(&a.n, &p), HELLO_LEN);
    expect_programs("", "request");
}

Test(negotiate_early, what_cannot_be_answered_is_not_declined_either)
{
    enum { DECLINED, SEPARATE, CASES };

    for (int i = 0; i < CASES; i++) {
        up_to_deferred("request");
        if (i == DECLINED)
            negotiate_decline(&b.n, REASON_STD_FD);
        else
            b.n.cfg.early = false;
        run(0);
        cr_expect_eq(b.n.state, NEGOTIATE_PLAIN);
        cr_expect_eq(a.n.state, NEGOTIATE_LATE, "nothing was said");
        put(&a.wire, "answer", 6);
        run(0);
        cr_expect_eq(a.n.state, NEGOTIATE_PLAIN);
        expect_programs("answer", "request");
    }
}

/* ---- a question that waits for the program's first octets ---- */

static void up_to_unasked(void)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    const uint8_t *p;

    ca.shim_known = ca.may_switch = ca.at_once = ca.unasked = true;
    ca.early = cb.early = true;
    both(&ca, &cb);
    cr_assert_eq(a.n.state, NEGOTIATE_UNASKED);
    cr_expect_eq(negotiate_out(&a.n, &p), 0u, "nothing goes by itself");
    cr_expect_eq(a.n.deadline_ns, 0u);
}

Test(negotiate_early, a_question_goes_before_the_first_octets)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        const uint8_t *p;
        struct hello h;

        rng = 9 + c;
        up_to_unasked();
        size_t len = negotiate_lead(&a.n, &p);
        ssize_t helo = hello_decode(p, len, &h);
        cr_assert_gt(helo, 0);
        cr_expect_eq(h.kind, HELLO_HELO);
        cr_expect_eq(hello_decode(p + helo, len - (size_t)helo, &h), (ssize_t)len - helo);
        cr_expect_eq(h.kind, HELLO_HWDR);
        size_t first = c == 0 ? len : 1 + rnd((uint32_t)len); /* (a kernel without room takes a part) */
        put(&b.wire, p, first);
        negotiate_sent(&a.n, first);
        cr_assert_eq(a.n.state, NEGOTIATE_LATE);
        while (step_out(&a, SIZE_MAX))
            ;
        speak_plainly("request");
        a.n.streamed += 7;
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        expect_programs("", "request");
    }
}

Test(negotiate_early, a_question_without_octets_goes_when_it_is_told_to)
{
    const uint8_t *p;

    up_to_unasked();
    size_t len = negotiate_lead(&a.n, &p);
    negotiate_ask(&a.n);
    cr_assert_eq(a.n.state, NEGOTIATE_LATE);
    cr_expect_eq(negotiate_lead(&a.n, &p), 0u);
    cr_expect_eq(negotiate_out(&a.n, &p), len);
    run(0);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    negotiate_ask(&a.n); /* (it has been) */
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
}

Test(negotiate_early, a_question_that_is_not_asked_leaves_no_octet)
{
    enum { ENDED, SPOKE, DECLINED, FAILED, CASES };
    static const unsigned reasons[CASES] = { REASON_CLOSED, REASON_SPOKE_FIRST, REASON_URGENT, REASON_CLOSED };

    for (int i = 0; i < CASES; i++) {
        const uint8_t *p;

        up_to_unasked();
        negotiate_tick(&a.n, now + 1000 * TIMEOUT_NS);
        negotiate_withdraw(&a.n);
        cr_assert_eq(a.n.state, NEGOTIATE_UNASKED, "no time runs, and there is nothing to withdraw");
        cr_expect_eq(negotiate_in(&a.n, (const uint8_t *)"", 0, now), 0u);
        cr_assert_eq(a.n.state, NEGOTIATE_UNASKED);
        if (i == ENDED)
            negotiate_eof(&a.n);
        if (i == SPOKE)
            cr_expect_eq(negotiate_in(&a.n, (const uint8_t *)"\xf5", 1, now), 0u);
        if (i == DECLINED)
            negotiate_decline(&a.n, REASON_URGENT);
        if (i == FAILED)
            negotiate_fail(&a.n, REASON_NO_MEMORY);
        EXPECT(a, NEGOTIATE_PLAIN, reasons[i]);
        cr_expect_eq(negotiate_out(&a.n, &p) + negotiate_lead(&a.n, &p), 0u);
        cr_expect(negotiate_over(&a.n));
        cr_expect(!a.n.answered, "its address is not remembered as plain");
    }
}

Test(negotiate_early, an_answer_that_makes_no_sense_ends_a_late_switch)
{
    up_to_late("request");
    arrive(&b, SIZE_MAX);
    step_in(&b);
    cr_assert_eq(b.n.state, NEGOTIATE_DONE);
    step_out(&b, SIZE_MAX);
    a.n.cfg.params.flags = STREAM_FLAG_LLP;
    arrive(&a, SIZE_MAX);
    struct hello h;
    cr_assert_gt(hello_decode(a.kernel.p, a.kernel.n, &h), 0);
    uint8_t tlv[256], frame[HELLO_LEN_MAX];
    memcpy(tlv, h.tlv, h.tlv_len);
    tlv[6] ^= 1; /* the Reply's key */
    h.tlv = tlv;
    ssize_t n = hello_encode(&h, frame, sizeof(frame));
    cr_assert_gt(n, 0);
    a.kernel.n = 0;
    put(&a.kernel, frame, (size_t)n);
    step_in(&a);
    EXPECT(a, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}
