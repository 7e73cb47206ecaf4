/*
 * The negotiation: two machines coupled through memory, octets cut anywhere, and each way out of
 * the picture in negotiate.h.
 */
#include "core/negotiate/negotiate.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/reason.h"
#include "core/mpa/fpdu.h"
#include "core/rdmap/terminate.h"

#include "tests/unit/negotiate_pair.h"

/* ---- together ---- */

Test(negotiate, two_of_a_kind_agree_however_the_octets_are_cut)
{
    static const uint8_t kinds[] = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };

    for (size_t k = 0; k < SW_ARRAY_LEN(kinds); k++)
        for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
            struct negotiate_cfg ca = config(false), cb = config(true);

            rng = 77 + c;
            cb.mpa.rtr = kinds[k];
            both(&ca, &cb);
            run(cuts[c]);
            EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
            EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
            cr_expect_eq(a.n.mpa.res.rtr, kinds[k]);
            cr_expect_eq(b.n.mpa.res.rtr, kinds[k]);
            cr_expect_eq(a.n.peer.ring_stag, 0xbbbbbbbbu);
            cr_expect_eq(b.n.peer.ring_stag, 0xaaaaaaaau);
            cr_expect_eq(a.n.prefix_len, 0u);
            cr_expect_eq(a.prog.n + b.prog.n + a.in.n + b.in.n + a.kernel.n + b.kernel.n, 0u);
        }
}

Test(negotiate, without_a_common_rtr_both_go_on_in_streaming_mode)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        struct negotiate_cfg ca = config(false), cb = config(true);

        rng = 5 + c;
        ca.mpa.rtr = MPA_RTR_SEND;
        cb.mpa.rtr = MPA_RTR_WRITE;
        both(&ca, &cb);
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_MPA_REJECTED);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_LIMIT);
    }
}

/* RFC 5044 7.1.2 rule 2/3,4 and RFC 5044 7.1.2 rule 6: a Reply that rejects; streaming mode goes on */
Test(negotiate, a_peer_whose_parameters_make_no_sense_is_rejected)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.params.ring_len = 100;
    both(&ca, &cb);
    run(0);
    EXPECT(a, NEGOTIATE_PLAIN, REASON_MPA_REJECTED);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_LIMIT);
    /* Whatever either says now is the other program's. */
    put(&a.wire, "server", 6);
    put(&b.wire, "client", 6);
    plain_rest(&a);
    plain_rest(&b);
    cr_expect_arr_eq(a.prog.p, "server", 6);
    cr_expect_arr_eq(b.prog.p, "client", 6);
}

/* One FPDU, and it is a Terminate with this code. */
static void check_terminate(uint8_t *buf, size_t len, uint8_t code)
{
    struct mpa_framing framing = { .crc = true };
    struct mpa_fpdu f;
    size_t need;

    cr_assert_eq(mpa_fpdu_decode(&framing, 0, buf, len, &f, &need), (ssize_t)len);
    cr_assert_eq(f.ulpdu_len, 22u);
    cr_assert_arr_eq(f.ulpdu,
                     "\x41\x47\0\0\0\0"
                     "\0\0\0\2"
                     "\0\0\0\1"
                     "\0\0\0\0",
                     18);
    cr_expect_eq(f.ulpdu[18], 0x20);
    cr_expect_eq(f.ulpdu[19], code);
}

/* RFC 6581 9.3/1: an error of one's own behind the Reply. */
Test(negotiate, a_reply_whose_parameters_make_no_sense_spoils_the_connection)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    cb.params.ring_len = 100;
    both(&ca, &cb);
    run(0);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_PEER_LIMIT);
    check_terminate(b.kernel.p, b.kernel.n, TERM_MPA_LOCAL);
}

Test(negotiate, a_peer_that_needs_credits_is_rejected_by_one_that_counts_on_the_llp)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.params.flags = 0;
    both(&ca, &cb);
    run(0);
    EXPECT(a, NEGOTIATE_PLAIN, REASON_MPA_REJECTED);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_LIMIT);
    cb.params.flags = 0;
    both(&ca, &cb);
    run(0);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
}

Test(negotiate, revision_1_agrees_without_rtr)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.mpa.rev = 1;
    both(&ca, &cb);
    run(3);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
    cr_expect_eq(a.n.mpa.res.rtr, 0);
}

/* ---- the immediate startup (RFC 5044 section 7.1.4, Figure 10) ---- */

Test(negotiate, the_immediate_startup_has_no_hello)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++)
        for (int dialect = 0; dialect <= 1; dialect++) {
            struct negotiate_cfg ca = config(false), cb = config(true);
            const uint8_t *p;

            rng = 11 + c;
            ca.immediate = cb.immediate = true;
            if (dialect) {
                ca.mpa.rev = 1;
                ca.mpa.dialect = cb.mpa.dialect = MPA_DIALECT_RTR_FRAME;
            }
            both(&ca, &cb);
            cr_assert_eq(a.n.state, NEGOTIATE_MPA);
            cr_assert_geq(negotiate_out(&a.n, &p), 20u);
            cr_assert_arr_eq(p, "MPA ID Req Frame", 16);
            run(cuts[c]);
            EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
            EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
            cr_expect_eq(a.n.peer.ring_stag, 0xbbbbbbbbu);
            cr_expect_eq(b.n.peer.ring_stag, 0xaaaaaaaau);
            cr_expect_eq(a.prog.n + b.prog.n + a.in.n + b.in.n + a.kernel.n + b.kernel.n, 0u);
        }
}

Test(negotiate, a_responder_for_immediate_startups_answers_a_hello_too)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    cb.immediate = true;
    both(&ca, &cb);
    run(3);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
}

/* The Request is looked at only: a plain client's octets stay the program's. */
Test(negotiate, what_is_no_request_is_a_plain_clients)
{
    static const char *const texts[] = { "M", "MAIL FROM:<x>", "MPA ID Req Frome", "MPA ID Rep Frame", "GET /" };

    for (size_t t = 0; t < SW_ARRAY_LEN(texts); t++) {
        struct negotiate_cfg cb = config(true);
        size_t len = strlen(texts[t]);

        cb.immediate = true;
        now = 5000 * MS;
        end_init(&b, &cb, &a);
        for (size_t i = 1; i <= len; i++)
            cr_assert_eq(negotiate_in(&b.n, (const uint8_t *)texts[t], i, now), 0u);
        if (b.n.state == NEGOTIATE_PEEK) { /* a prefix: it may hold the client back a moment */
            cr_assert_eq(b.n.deadline_ns, now + NEGOTIATE_PREFIX_NS);
            negotiate_tick(&b.n, now + NEGOTIATE_PREFIX_NS);
        }
        EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
    }
}

Test(negotiate, without_the_rule_a_request_is_the_programs)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.immediate = true;
    both(&ca, &cb);
    run(0);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
    cr_expect_eq(a.n.state, NEGOTIATE_MPA);
    negotiate_tick(&a.n, now + TIMEOUT_NS);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_MPA_FAILED);
}

Test(negotiate, a_request_is_rejected_where_a_hello_would_be_declined)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.immediate = cb.immediate = true;
    both(&ca, &cb);
    negotiate_decline(&b.n, REASON_STD_FD);
    run(2);
    EXPECT(a, NEGOTIATE_PLAIN, REASON_MPA_REJECTED);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_STD_FD);
}

/* RFC 6581 10: the owner asks mpa_startup_retry_rev1. */
Test(negotiate, a_close_in_an_immediate_startup_is_worth_revision_1)
{
    struct negotiate_cfg ca = config(false);

    ca.immediate = true;
    now = 5000 * MS;
    end_init(&a, &ca, &b);
    cr_expect_not(negotiate_peer_known(&a.n), "whoever it is");
    while (step_out(&a, 7))
        ;
    negotiate_eof(&a.n);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_MPA_FAILED);
    cr_expect(mpa_startup_retry_rev1(&a.n.mpa));
}

Test(negotiate, an_immediate_startup_cannot_be_withdrawn)
{
    struct negotiate_cfg ca = config(false);

    ca.immediate = ca.shim_known = true;
    cr_expect_eq(negotiate_init(&a.n, &ca, now), -EINVAL);
}

/* ---- failures that are told by a Terminate ---- */

/* An initiator that has sent its Request on a connection whose peer answered the Hello. */
static void await_reply(const struct negotiate_cfg *cfg)
{
    struct hello h = { .kind = HELLO_HACK, .arg = HELLO_TRANSPORT_IWARP };
    uint8_t ack[HELLO_LEN_MAX];
    const uint8_t *p;

    now = 5000 * MS;
    end_init(&a, cfg, &b);
    negotiate_sent(&a.n, negotiate_out(&a.n, &p));
    memcpy(h.nonce, cfg->nonce, sizeof(h.nonce));
    ssize_t n = hello_encode(&h, ack, sizeof(ack));
    cr_assert_eq(negotiate_in(&a.n, ack, (size_t)n, now), (size_t)n);
    negotiate_sent(&a.n, negotiate_out(&a.n, &p));
    cr_assert_eq(a.n.mpa.state, MPA_ST_WAIT_REP);
}

/* The Reply of another implementation, with our private data. */
static size_t foreign_reply(uint8_t *buf, uint8_t flags, uint32_t word)
{
    struct stream_params params = config(true).params;

    memcpy(buf, "MPA ID Rep Frame", 16);
    buf[16] = flags | 0x10;
    buf[17] = 2;
    put_be16(buf + 18, 4 + STREAM_PARAMS_LEN);
    put_be32(buf + 20, word);
    stream_params_encode(&params, buf + 24);
    return 24 + STREAM_PARAMS_LEN;
}

/*
 * RFC 6581 9.1/6,7 and RFC 6581 9.2/9,10: "the TERM message MUST contain Layer 2, Error Type 0, Error Code 6", or
 * 7; "and
 * terminate the connection". It is the first FPDU, framed as agreed.
 */
Test(negotiate, an_insufficient_ird_and_a_missing_rtr_are_told_by_a_terminate)
{
    static const struct {
        uint32_t word;
        uint8_t code;
    } row[] = {
        { 0xc0040005u, 6 }, /* A, B, ORD 5 above our IRD */
        { 0x80040004u, 7 }, /* A without a kind */
        { 0x00040004u, 7 }, /* another model */
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++)
        for (unsigned bits = 0; bits < 4; bits++) {
            struct negotiate_cfg cfg = config(false);
            struct mpa_framing framing = { .crc = bits & 1, .markers = bits & 2 };
            uint8_t buf[256], *ulpdu;
            const uint8_t *out;
            struct mpa_fpdu f;
            size_t need;

            cfg.mpa.crc = framing.crc;
            await_reply(&cfg);
            size_t len = foreign_reply(buf, framing.markers ? 0x80 : 0, row[i].word);
            (void)negotiate_in(&a.n, buf, len, now);
            cr_assert_eq(a.n.state, NEGOTIATE_FALLBACK);
            cr_assert_not(negotiate_over(&a.n), "it has to go out first");
            len = negotiate_out(&a.n, &out);
            memcpy(buf, out, len);
            cr_assert_eq(mpa_fpdu_decode(&framing, 0, buf, len, &f, &need), (ssize_t)len);
            ulpdu = f.ulpdu;
            cr_assert_eq(f.ulpdu_len, 22u);
            cr_assert_arr_eq(ulpdu,
                             "\x41\x47\0\0\0\0"
                             "\0\0\0\2"
                             "\0\0\0\1"
                             "\0\0\0\0",
                             18);
            cr_assert_eq(ulpdu[18], 0x20);
            cr_assert_eq(ulpdu[19], row[i].code);
            cr_assert(ulpdu[20] == 0 && ulpdu[21] == 0);
            negotiate_sent(&a.n, len);
            EXPECT(a, NEGOTIATE_FALLBACK, REASON_MPA_FAILED);
        }
}

/* RFC 5044 8 code 4/3: "In this case, the TCP connection MUST be immediately closed." */
Test(negotiate, a_malformed_reply_is_answered_by_nothing)
{
    struct negotiate_cfg cfg = config(false);
    uint8_t buf[256];
    const uint8_t *out;

    await_reply(&cfg);
    foreign_reply(buf, 0, 0xc0040004u);
    buf[17] = 3;
    (void)negotiate_in(&a.n, buf, 30, now);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_MPA_FAILED);
    cr_expect_eq(negotiate_out(&a.n, &out), 0u);
}

Test(negotiate, the_dialect_of_2007_ends_with_its_third_frame)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        struct negotiate_cfg ca = config(false), cb = config(true);

        rng = 9 + c;
        ca.mpa.rev = 1;
        ca.mpa.dialect = cb.mpa.dialect = MPA_DIALECT_RTR_FRAME;
        both(&ca, &cb);
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        cr_expect(a.n.mpa.res.rtr_frame && b.n.mpa.res.rtr_frame);
        cr_expect_eq(b.n.peer.ring_stag, 0xaaaaaaaau);
        cr_expect_eq(a.prog.n + b.prog.n + a.in.n + b.in.n + a.kernel.n + b.kernel.n, 0u);
    }
}

/* The private data count before the initiator says that it is ready. */
Test(negotiate, the_dialect_of_2007_sends_no_rtr_frame_to_a_peer_that_makes_no_sense)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    ca.mpa.rev = 1;
    ca.mpa.dialect = cb.mpa.dialect = MPA_DIALECT_RTR_FRAME;
    cb.params.ring_len = 100;
    both(&ca, &cb);
    run(0);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_PEER_LIMIT);
    cr_expect_eq(b.n.mpa.state, MPA_ST_WAIT_RTR);
}

Test(negotiate, what_cannot_be_negotiated_with_is_refused_at_once)
{
    struct negotiate_cfg c;
    struct negotiate n;

#define REFUSED(responder, change)                                 \
    do {                                                           \
        c = config(responder);                                     \
        change;                                                    \
        cr_expect_eq(negotiate_init(&n, &c, 1), -EINVAL, #change); \
    } while (0)
    REFUSED(false, c.timeout_ns = 0);
    REFUSED(false, c.transports = 0);
    REFUSED(true, c.transports = HELLO_TRANSPORT_VERBS);
    REFUSED(false, c.mpa.rev = 3);
    REFUSED(false, c.mpa.rtr = 0);
    REFUSED(true, c.mpa.rtr = 0);
    REFUSED(true, c.mpa.ird = 0x4000);
    c = config(false);
    c.mpa.priv = "not looked at";
    c.mpa.priv_len = 600;
    cr_expect_eq(negotiate_init(&n, &c, 1), 0);
}

/* ---- declined ---- */

Test(negotiate, a_responder_that_declines_says_why_and_both_stay_on_the_connection)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        rng = 99 + c;
        setup();
        negotiate_decline(&b.n, REASON_FASTOPEN);
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_FASTOPEN);
    }
}

Test(negotiate, no_common_transport_is_declined)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    struct hello h;

    ca.transports = HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_SHM;
    both(&ca, &cb);
    b.n.cfg.transports = HELLO_TRANSPORT_VERBS;
    step_out(&a, SIZE_MAX);
    arrive(&b, SIZE_MAX);
    step_in(&b);
    step_out(&b, SIZE_MAX);
    cr_assert_eq(hello_decode(a.wire.p, a.wire.n, &h), (ssize_t)HELLO_LEN);
    cr_expect_eq(h.kind, HELLO_HNAK);
    cr_expect_eq(h.arg, REASON_TRANSPORT);
    run(0);
    EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_TRANSPORT);
}

Test(negotiate, a_plain_client_of_a_responder_that_would_decline_keeps_that_reason)
{
    setup();
    negotiate_decline(&b.n, REASON_FASTOPEN);
    put(&b.kernel, "GET / HTTP/1.1\r\n", 16);
    step_in(&b);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_FASTOPEN);
    setup();
    negotiate_decline(&b.n, REASON_FASTOPEN);
    negotiate_eof(&b.n);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_FASTOPEN);
}

Test(negotiate, too_late_to_decline_changes_nothing)
{
    setup();
    run(0);
    negotiate_decline(&b.n, REASON_FASTOPEN);
    negotiate_decline(&a.n, REASON_FASTOPEN);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
}

/* ---- the responder speaks first ---- */

/* Text with pieces of the key in it. */
static size_t banner(uint8_t *p, size_t n)
{
    static const uint8_t key[] = "\xf5sockwarp\r\n\0HACK\xf5\xf5sock";

    for (size_t i = 0; i < n; i++)
        p[i] = i % 97 < 21 ? key[i % 97] : (uint8_t)(i * 7);
    return n;
}

static void speaks_first(size_t len, size_t cut, bool declined)
{
    static uint8_t text[NEGOTIATE_STREAMED_MAX];
    size_t said = 0;

    banner(text, len);
    setup();
    if (declined)
        negotiate_decline(&b.n, REASON_FASTOPEN);
    /* Some of it before the Hello leaves, some in flight against it. */
    while (said < len || b.n.state == NEGOTIATE_PEEK) {
        size_t n = 1 + rnd(cut ? (uint32_t)cut * 4 : 70000);

        if (n > len - said)
            n = len - said;
        if (n > 0)
            speak(text + said, n);
        said += n;
        if (said == len || rnd(3) == 0) {
            if (said < len && b.kernel.n + b.wire.n + 40 > HELLO_LEN)
                continue; /* the Hello is nearly there, but the program is not done */
            step_out(&a, said < len ? 8 : SIZE_MAX);
            arrive(&a, cut ? 1 + rnd((uint32_t)cut) : SIZE_MAX);
            step_in(&a);
            arrive(&b, said < len ? 8 : SIZE_MAX);
            step_in(&b);
        }
    }
    run(cut);
    if (declined) {
        EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_FASTOPEN);
    } else {
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
    }
    cr_expect_eq(a.n.prefix_len, len);
    cr_assert_eq(a.prog.n, len);
    cr_expect(memcmp(a.prog.p, text, len) == 0, "%zu octets", len);
    cr_expect_eq(b.prog.n, 0u);
}

/* RFC 5044 7.1.5 item 1: streaming data end where the HelloAck is */
Test(negotiate, a_server_that_speaks_first_is_heard_to_the_octet)
{
    static const size_t lens[] = { 1, 15, 16, 63, 64, 200, 1024, 5000, 70000, NEGOTIATE_STREAMED_MAX };

    for (size_t i = 0; i < SW_ARRAY_LEN(lens); i++)
        for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
            /* The search starts over whenever octets come: long. */
            if ((lens[i] > 5000 && cuts[c] > 0 && cuts[c] < 100) || (lens[i] > 70000 && cuts[c] > 0))
                continue;
            rng = 1000 * i + c + 1;
            speaks_first(lens[i], cuts[c], false);
            speaks_first(lens[i], cuts[c], true);
        }
}

Test(negotiate, one_that_says_more_than_is_kept_spoils_the_connection_however_it_is_cut)
{
    static uint8_t text[NEGOTIATE_STREAMED_MAX + 1];

    /* With the answer behind it in one piece, and without. */
    for (int whole = 0; whole < 2; whole++) {
        setup();
        speak(text, banner(text, sizeof(text)));
        if (whole) {
            step_out(&a, SIZE_MAX);
            arrive(&b, SIZE_MAX);
            step_in(&b);
            step_out(&b, SIZE_MAX);
        }
        arrive(&a, SIZE_MAX);
        put(&a.wire, "more than a prefix of a frame........................", 53);
        arrive(&a, whole ? 0 : SIZE_MAX);
        step_in(&a);
        EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_GARBAGE);
    }
}

/* ---- plain clients ---- */

Test(negotiate, plain_first_octets_are_plain_and_stay_where_they_are)
{
    const uint8_t *key;
    uint8_t octets[20];

    setup();
    negotiate_out(&a.n, &key);
    memcpy(octets, key, 16);
    for (size_t shared = 0; shared <= 15; shared++) {
        uint8_t text[20];

        memcpy(text, octets, 16);
        text[shared] ^= 0x20;
        memset(text + shared + 1, 'x', sizeof(text) - shared - 1);
        setup();
        for (size_t n = 1; n <= shared; n++) {
            put(&b.kernel, text + n - 1, 1);
            cr_expect(!step_in(&b));
            cr_expect_eq(b.n.state, NEGOTIATE_PEEK, "%zu of %zu", n, shared);
        }
        put(&b.kernel, text + shared, 1);
        step_in(&b);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
        cr_expect_eq(b.kernel.n, shared + 1);
    }
}

Test(negotiate, a_prefix_that_stays_incomplete_holds_nobody_for_long)
{
    for (size_t n = 1; n < HELLO_LEN; n++) {
        const uint8_t *p;

        setup();
        cr_expect_eq(b.n.deadline_ns, 0u);
        negotiate_out(&a.n, &p);
        put(&b.kernel, p, n);
        step_in(&b);
        cr_expect_eq(b.n.deadline_ns, now + NEGOTIATE_PREFIX_NS);
        /* More of it does not begin the time anew. */
        negotiate_tick(&b.n, now + NEGOTIATE_PREFIX_NS - 1);
        now += 100 * MS;
        step_in(&b);
        cr_expect_eq(b.n.state, NEGOTIATE_PEEK);
        now += 100 * MS;
        negotiate_tick(&b.n, now);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
        cr_expect_eq(b.kernel.n, n);
    }
}

Test(negotiate, an_answer_is_no_hello)
{
    uint8_t buf[HELLO_LEN];
    struct hello h = { .kind = HELLO_HACK, .arg = HELLO_TRANSPORT_IWARP };

    setup();
    cr_assert_eq(hello_encode(&h, buf, sizeof(buf)), (ssize_t)HELLO_LEN);
    put(&b.kernel, buf, sizeof(buf));
    step_in(&b);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
    cr_expect_eq(b.kernel.n, HELLO_LEN);
}

Test(negotiate, a_client_that_says_nothing_is_waited_for)
{
    setup();
    negotiate_tick(&b.n, now + 1000000 * MS);
    cr_expect_eq(b.n.state, NEGOTIATE_PEEK);
    cr_expect_eq(negotiate_in(&b.n, NULL, 0, now), 0u);
    cr_expect_eq(b.n.deadline_ns, 0u);
    negotiate_eof(&b.n);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
}

/* ---- plain servers ---- */

Test(negotiate, an_echo_is_told_from_an_answer_as_soon_as_it_is_whole)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        const uint8_t *p;
        size_t n, came = 0;

        rng = c + 3;
        setup();
        n = negotiate_out(&a.n, &p);
        put(&a.wire, p, n);
        negotiate_sent(&a.n, n);
        while (came < n) {
            cr_expect_eq(a.n.state, NEGOTIATE_HELLO, "%zu of %zu", came, n);
            size_t left = a.wire.n;
            arrive(&a, cuts[c] ? 1 + rnd((uint32_t)cuts[c]) : SIZE_MAX);
            came += left - a.wire.n;
            step_in(&a);
        }
        EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_GARBAGE);
    }
}

Test(negotiate, silence_and_other_octets_end_at_the_deadline_with_different_reasons)
{
    for (int said = 0; said < 2; said++) {
        setup();
        step_out(&a, SIZE_MAX);
        if (said)
            put(&a.kernel, "220 mail.example ESMTP\r\n", 24);
        step_in(&a);
        negotiate_tick(&a.n, now + TIMEOUT_NS - 1);
        cr_expect_eq(a.n.state, NEGOTIATE_HELLO);
        negotiate_tick(&a.n, now + TIMEOUT_NS);
        EXPECT(a, NEGOTIATE_FALLBACK, said ? REASON_HELLO_GARBAGE : REASON_HELLO_TIMEOUT);
    }
}

static void answer(enum hello_kind kind, uint32_t arg, uint64_t streamed, uint8_t nonce0)
{
    uint8_t buf[HELLO_LEN];
    struct hello h = { .kind = kind, .arg = arg, .streamed = streamed };

    memcpy(h.nonce, a.n.cfg.nonce, sizeof(h.nonce));
    h.nonce[0] = nonce0;
    cr_assert_eq(hello_encode(&h, buf, sizeof(buf)), (ssize_t)HELLO_LEN);
    put(&a.kernel, buf, sizeof(buf));
    step_in(&a);
}

Test(negotiate, another_ones_answer_is_no_answer)
{
    setup();
    answer(HELLO_HACK, HELLO_TRANSPORT_IWARP, 0, 0xee);
    cr_expect_eq(a.n.state, NEGOTIATE_HELLO);
    answer(HELLO_HACK, HELLO_TRANSPORT_IWARP, 0, 1); /* it stands at 64 */
    cr_expect_eq(a.n.state, NEGOTIATE_HELLO);
    answer(HELLO_HACK, HELLO_TRANSPORT_IWARP, 128, 1);
    cr_expect_eq(a.n.state, NEGOTIATE_MPA);
    cr_expect_eq(a.n.prefix_len, 128u);
}

Test(negotiate, a_transport_that_was_not_offered_spoils_the_connection)
{
    static const uint32_t args[] = {
        0, HELLO_TRANSPORT_VERBS, HELLO_TRANSPORT_SHM, HELLO_TRANSPORT_MIXED, 3, 0xffffffff
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(args); i++) {
        setup();
        answer(HELLO_HACK, args[i], 0, 1);
        EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_GARBAGE);
    }
}

/* ---- silence, close, garbage in every state ---- */

Test(negotiate, closing_at_any_octet_ends_it)
{
    /* How many octets each side sends in all. */
    setup();
    run(0);
    for (size_t n = 0;; n++) {
        size_t sent = 0;

        setup();
        while (sent < n) {
            bool moved = false;

            for (int i = 0; i < 2; i++) {
                struct end *e = i ? &b : &a;

                if (sent < n && step_out(e, 1)) {
                    sent++;
                    moved = true;
                }
                arrive(e, SIZE_MAX);
                moved |= step_in(e);
            }
            if (!moved)
                break;
        }
        if (sent < n)
            break; /* it was over before */
        uint8_t sa = a.n.state, sb = b.n.state;

        negotiate_eof(&a.n);
        negotiate_eof(&b.n);
        if (sa == NEGOTIATE_HELLO)
            EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_CLOSED);
        else if (sa == NEGOTIATE_MPA)
            EXPECT(a, NEGOTIATE_FALLBACK, REASON_CLOSED);
        else
            cr_expect_eq(a.n.state, sa);
        if (sb == NEGOTIATE_PEEK)
            EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
        else if (sb == NEGOTIATE_MPA)
            EXPECT(b, NEGOTIATE_FAILED, REASON_CLOSED);
        else
            cr_expect_eq(b.n.state, sb);
        cr_expect_leq(n, 300u);
    }
}

/* The two up to where the responder has sent its HACK and the initiator its Request. */
static void up_to_request(void)
{
    setup();
    step_out(&a, SIZE_MAX);
    arrive(&b, SIZE_MAX);
    step_in(&b);
    step_out(&b, SIZE_MAX);
    arrive(&a, SIZE_MAX);
    step_in(&a);
    step_out(&a, SIZE_MAX);
    cr_assert_eq(a.n.state, NEGOTIATE_MPA);
    cr_assert_eq(b.n.state, NEGOTIATE_MPA);
}

/* RFC 5044 7.1.2 rule 8/2 and RFC 5044 7.1.2 rule 10/1: a time-out for the Request */
Test(negotiate, a_responder_ends_it_when_the_request_does_not_come)
{
    up_to_request();
    b.wire.n = 0;
    cr_expect_eq(b.n.deadline_ns, now + NEGOTIATE_MPA_NS);
    negotiate_tick(&b.n, now + NEGOTIATE_MPA_NS - 1);
    cr_expect_eq(b.n.state, NEGOTIATE_MPA);
    negotiate_tick(&b.n, now + NEGOTIATE_MPA_NS);
    EXPECT(b, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}

/* What the owner lacks is no word of the peer's. */
Test(negotiate, an_owner_that_cannot_go_on_says_why)
{
    setup();
    negotiate_fail(&a.n, REASON_NO_MEMORY);
    negotiate_fail(&b.n, REASON_NO_MEMORY);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_NO_MEMORY);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_PEER_PLAIN);
    up_to_request();
    negotiate_fail(&a.n, REASON_NO_MEMORY);
    negotiate_fail(&b.n, REASON_NO_MEMORY);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_NO_MEMORY);
    EXPECT(b, NEGOTIATE_FAILED, REASON_NO_MEMORY);
}

Test(negotiate, an_initiator_whose_reply_is_late_says_so_and_waits_on)
{
    up_to_request();
    now += TIMEOUT_NS - 1;
    negotiate_tick(&a.n, now);
    cr_expect(!a.n.late);
    now += 1;
    negotiate_tick(&a.n, now);
    cr_expect(a.n.late);
    cr_expect_eq(a.n.state, NEGOTIATE_MPA);
    cr_expect_eq(a.n.deadline_ns, 0u);
    run(0);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
}

Test(negotiate, the_mpa_startup_has_a_time_of_its_own)
{
    setup();
    step_out(&a, SIZE_MAX);
    arrive(&b, SIZE_MAX);
    step_in(&b);
    step_out(&b, SIZE_MAX);
    now += TIMEOUT_NS - 1;
    arrive(&a, SIZE_MAX);
    step_in(&a);
    now += TIMEOUT_NS - 1;
    negotiate_tick(&a.n, now);
    cr_expect_eq(a.n.state, NEGOTIATE_MPA);
    cr_expect_eq(a.n.deadline_ns, now + 1);
}

Test(negotiate, garbage_in_the_mpa_startup_ends_it)
{
    up_to_request();
    put(&a.kernel, "HTTP/1.1 400 Bad Request", 24);
    step_in(&a);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_MPA_FAILED);
    b.wire.n = 0;
    put(&b.kernel, "MPA ID Req Frame\x10\x03", 18);
    step_in(&b);
    EXPECT(b, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}

/* ---- octets that come early ---- */

Test(negotiate, octets_behind_the_hello_wait_for_the_answer)
{
    const uint8_t *p;

    /* A client that does not wait: its Request lies behind the Hello. */
    up_to_request();
    struct queue *request = &b.wire;
    uint8_t early[64 + 64];
    size_t n = request->n;

    cr_assert_leq(n, 64u);
    memcpy(early + 64, request->p, n);
    setup();
    cr_assert_eq(negotiate_out(&a.n, &p), 64u);
    memcpy(early, p, 64);
    put(&b.kernel, early, 64 + n);
    step_in(&b);
    cr_expect_eq(b.n.state, NEGOTIATE_MPA);
    cr_expect_eq(b.kernel.n, n, "only the Hello is taken");
    step_in(&b);
    cr_expect_eq(b.in.n, n, "the HACK is not out");
    step_out(&b, 63);
    step_in(&b);
    cr_expect_eq(b.in.n, n, "all of it has to be");
    step_out(&b, 1);
    step_in(&b);
    cr_expect_eq(b.in.n, 0u);
    step_out(&b, SIZE_MAX);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
}

Test(negotiate, octets_behind_a_declined_hello_are_the_programs)
{
    const uint8_t *p;

    setup();
    negotiate_decline(&b.n, REASON_ULP);
    cr_assert_eq(negotiate_out(&a.n, &p), 64u);
    put(&b.kernel, p, 64);
    put(&b.kernel, "early", 5);
    step_in(&b);
    cr_expect_eq(b.kernel.n, 5u);
    step_out(&b, SIZE_MAX);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_ULP);
}

Test(negotiate, octets_behind_the_request_are_an_error_however_they_are_cut)
{
    for (int cut = 0; cut < 3; cut++) {
        up_to_request();
        size_t n = b.wire.n;

        put(&b.wire, "x", 1);
        if (cut == 0)
            arrive(&b, SIZE_MAX); /* all at once */
        else
            arrive(&b, cut == 1 ? n : n - 1);
        step_in(&b);
        arrive(&b, SIZE_MAX);
        step_in(&b);
        EXPECT(b, NEGOTIATE_FAILED, REASON_MPA_FAILED);
    }
}

/* RFC 5044 7.1/2 and RFC 5044 7.1.2 rule 2/6: what follows is the endpoint's */
Test(negotiate, a_frame_right_behind_the_reply_is_left_for_the_endpoint)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        rng = c + 8;
        up_to_request();
        arrive(&b, SIZE_MAX);
        step_in(&b);
        step_out(&b, SIZE_MAX);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        put(&a.wire, "an FPDU, or what looks like one", 31);
        while (arrive(&a, cuts[c] ? 1 + rnd((uint32_t)cuts[c]) : SIZE_MAX))
            step_in(&a);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        put(&a.in, a.kernel.p, a.kernel.n);
        cr_expect_eq(a.in.n, 31u);
        cr_expect(memcmp(a.in.p, "an FPDU", 7) == 0);
        cr_expect_eq(negotiate_in(&a.n, a.in.p, a.in.n, now), 0u);
    }
}

Test(negotiate, nothing_is_put_out_after_the_end)
{
    const uint8_t *p;

    setup();
    run(0);
    cr_expect_eq(negotiate_out(&a.n, &p), 0u);
    cr_expect_eq(negotiate_out(&b.n, &p), 0u);
    setup();
    negotiate_eof(&a.n); /* its Hello was never sent */
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_CLOSED);
    cr_expect_eq(negotiate_out(&a.n, &p), 0u);
}

/* ---- a device's connection beside this one ---- */

static const struct negotiate_offer v4 = { .port = 4711, .addr = { 10, 9, 0, 1 }, .token = "0123456789abcde" };
static const struct negotiate_offer v6 = {
    .ipv6 = true, .port = 4712, .addr = { 0xfd, 1, 2, 3, [15] = 4 }, .token = "x"
};

static void with_device(const struct negotiate_offer *offer, size_t cut)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    ca.transports = cb.transports = HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS;
    both(&ca, &cb);
    run(cut);
    cr_assert(negotiate_wants_offer(&b.n));
    negotiate_offer(&b.n, offer);
    run(cut);
}

static bool same_offer(const struct negotiate_offer *x, const struct negotiate_offer *y)
{
    return x->ipv6 == y->ipv6 && x->port == y->port && memcmp(x->addr, y->addr, sizeof(x->addr)) == 0 &&
           memcmp(x->token, y->token, sizeof(x->token)) == 0;
}

Test(negotiate, a_device_that_is_up_at_both_ends_takes_the_stream)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        const struct negotiate_offer *offer = c & 1 ? &v6 : &v4;
        rng = 13 + c;
        with_device(offer, cuts[c]);
        cr_assert_eq(a.n.state, NEGOTIATE_DEVICE);
        cr_expect(same_offer(&a.n.offer, offer));
        cr_expect(negotiate_wants_device(&a.n));
        cr_expect(negotiate_peer_known(&a.n));
        negotiate_device(&a.n, true, now);
        run(cuts[c]);
        cr_assert_eq(b.n.state, NEGOTIATE_MPA);
        cr_assert(negotiate_wants_device(&b.n), "the Reply waits for the device");
        negotiate_device(&b.n, true, now);
        run(cuts[c]);
        EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
        EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
        cr_expect(negotiate_by_device(&a.n));
        cr_expect(negotiate_by_device(&b.n));
    }
}

/* The owner leaves it to a process that is still to be forked, say. Whether the HELO came whole does not matter. */
Test(negotiate, an_offer_may_be_long_in_coming)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        struct negotiate_cfg ca = config(false), cb = config(true);
        ca.transports = cb.transports = HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS;
        both(&ca, &cb);
        run(cuts[c]);
        cr_assert(negotiate_wants_offer(&b.n));
        cr_expect_eq(b.n.deadline_ns, 0u);
        negotiate_tick(&b.n, now + 100 * NEGOTIATE_PREFIX_NS);
        cr_assert_eq(b.n.state, NEGOTIATE_PEEK);
        negotiate_offer(&b.n, &v4);
        run(cuts[c]);
        cr_assert_eq(a.n.state, NEGOTIATE_DEVICE);
        cr_expect(same_offer(&a.n.offer, &v4));
    }
}

/* Without a device at either end, for whatever reason, the stream goes on here. */
static void expect_here(void)
{
    run(0);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    EXPECT(b, NEGOTIATE_DONE, REASON_UPGRADED);
    cr_expect(!negotiate_by_device(&a.n));
    cr_expect(!negotiate_by_device(&b.n));
}

Test(negotiate, a_device_that_the_initiator_cannot_reach_is_done_without)
{
    with_device(&v4, 0);
    negotiate_device(&a.n, false, now);
    run(0);
    cr_expect(!negotiate_wants_device(&b.n));
    expect_here();
}

Test(negotiate, a_device_that_takes_too_long_is_done_without)
{
    with_device(&v4, 0);
    cr_expect_neq(a.n.deadline_ns, 0u);
    now = a.n.deadline_ns;
    negotiate_tick(&a.n, now);
    cr_expect(!negotiate_wants_device(&a.n));
    expect_here();
}

Test(negotiate, a_device_that_only_the_initiator_sees_up_is_done_without)
{
    for (int late = 0; late <= 1; late++) {
        with_device(&v4, 0);
        negotiate_device(&a.n, true, now);
        run(0);
        cr_assert(negotiate_wants_device(&b.n));
        if (late) {
            now = b.n.deadline_ns;
            negotiate_tick(&b.n, now);
        } else {
            negotiate_device(&b.n, false, now);
        }
        expect_here();
    }
}

Test(negotiate, a_responder_without_an_offer_answers_as_without_a_device)
{
    with_device(NULL, 0);
    expect_here();
}

Test(negotiate, a_device_is_not_spoken_of_unless_both_sides_want_one)
{
    for (int who = 0; who <= 1; who++) {
        struct negotiate_cfg ca = config(false), cb = config(true);
        (who ? &ca : &cb)->transports = HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS;
        both(&ca, &cb);
        run(0);
        cr_expect(!negotiate_wants_offer(&b.n));
        expect_here();
    }
}

/*
 * Which end has a device (V), and which speaks iWARP with another kind of end (M); an initiator of before MIXED says V alone,
 * and has to get an answer that it knows.
 */
Test(negotiate, an_offer_is_made_where_one_end_has_a_device_and_the_other_goes_with_it)
{
    enum { V = HELLO_TRANSPORT_VERBS, M = HELLO_TRANSPORT_MIXED, I = HELLO_TRANSPORT_IWARP };
    static const struct {
        uint8_t initiator, responder;
        uint8_t chosen; /* by the HACK, if the owner makes an offer; I: no offer is wanted */
    } rows[] = {
        { I, I, I },
        { I | V, I, I },
        { I, I | V, I },
        { I | M, I, I },
        { I, I | V | M, I },
        { I | M, I | M, I },
        { I | V, I | M, I },
        { I | M, I | V, I },
        { I | V, I | V, V },
        { I | V, I | V | M, V },
        { I | V | M, I | V, V },
        { I | V | M, I | V | M, V },
        { I | M, I | V | M, M },
        { I | V | M, I | M, M },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct negotiate_cfg ca = config(false), cb = config(true);
        ca.transports = rows[i].initiator;
        cb.transports = rows[i].responder;
        both(&ca, &cb);
        run(0);
        cr_expect_eq(negotiate_wants_offer(&b.n), rows[i].chosen != I, "row %zu", i);
        if (rows[i].chosen != I) {
            struct negotiate_offer offer = v4;
            struct hello hack;
            const uint8_t *p;
            offer.kind = NEGOTIATE_KIND_SOFT;
            cr_expect_eq(b.n.asked, rows[i].initiator);
            negotiate_offer(&b.n, &offer);
            while (negotiate_out(&b.n, &p) == 0 && step_in(&b))
                ;
            cr_assert_gt(hello_decode(p, negotiate_out(&b.n, &p), &hack), 0);
            cr_expect_eq(hack.arg, (uint32_t)rows[i].chosen, "row %zu", i);
            run(0);
            cr_assert_eq(a.n.state, NEGOTIATE_DEVICE, "row %zu", i);
            cr_expect(same_offer(&a.n.offer, &offer));
            cr_expect_eq(a.n.offer.kind, NEGOTIATE_KIND_SOFT);
            negotiate_device(&a.n, true, now);
            run(0);
            negotiate_device(&b.n, true, now);
            run(0);
            EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
            cr_expect(negotiate_by_device(&a.n));
            cr_expect(negotiate_by_device(&b.n));
        } else {
            expect_here();
        }
    }
}

Test(negotiate, a_kind_of_device_that_is_not_known_is_any)
{
    struct negotiate_offer offer = v4;
    offer.kind = 200;
    with_device(&offer, 0);
    cr_assert_eq(a.n.state, NEGOTIATE_DEVICE);
    cr_expect_eq(a.n.offer.kind, NEGOTIATE_KIND_ANY);
}

Test(negotiate, an_offer_that_makes_no_sense_is_none)
{
    for (int i = 0; i < 3; i++) {
        with_device(NULL, 0); /* (the nonces and all that) */
        struct negotiate_cfg ca = config(false);
        ca.transports = HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS;
        end_init(&a, &ca, &b);
        uint8_t tlv[28] = { 0, HELLO_TLV_VERBS, 0, 24, 4, 0, 0x12, 0x34, 10, 9, 0, 1 };
        size_t len = sizeof(tlv);
        if (i == 0)
            tlv[4] = 5; /* family */
        else if (i == 1)
            tlv[3] = 20, len = 24; /* cut */
        else
            tlv[6] = tlv[7] = 0; /* port */
        struct hello h = { .kind = HELLO_HACK, .arg = HELLO_TRANSPORT_VERBS, .tlv = tlv, .tlv_len = len };
        memcpy(h.nonce, ca.nonce, sizeof(h.nonce));
        uint8_t buf[HELLO_LEN_MAX];
        ssize_t n = hello_encode(&h, buf, sizeof(buf));
        cr_assert_gt(n, 0);
        cr_expect_eq(negotiate_in(&a.n, buf, (size_t)n, now), (size_t)n);
        cr_expect_eq(a.n.state, NEGOTIATE_MPA, "offer %d", i);
    }
}

Test(negotiate, a_close_while_the_device_connects_is_a_fallback)
{
    with_device(&v4, 0);
    negotiate_eof(&a.n);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_CLOSED);
}
