/*
 * What a later version of the Hello may say: whoever does not know it declines, by an HNAK of its own version, and no
 * octet of it reaches a program.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/negotiate/negotiate.h"

#include "tests/unit/negotiate_pair.h"

static const uint8_t nonce[HELLO_NONCE_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
static const uint8_t critical[] = { 0x80, 0x07, 0x00, 0x03, 'n', 'e', 'w' };
static const uint8_t skipped[] = { 0x7f, 0xff, 0x00, 0x03, 'n', 'e', 'w' };

static size_t frame(uint8_t *buf, enum hello_kind kind, unsigned version, unsigned flags, const void *tlv,
                    size_t tlv_len)
{
    struct hello h = {
        .kind = kind, .flags = (uint8_t)flags, .arg = HELLO_TRANSPORT_IWARP, .tlv = tlv, .tlv_len = tlv_len
    };
    memcpy(h.nonce, nonce, sizeof(nonce));
    ssize_t n = hello_encode(&h, buf, HELLO_LEN_MAX);
    cr_assert_gt(n, 0);
    buf[16] = (uint8_t)version;
    memset(buf + 60, 0, 4);
    put_be32(buf + 60, crc32c_final(crc32c_update(CRC32C_INIT, buf, (size_t)n)));
    return (size_t)n;
}

/* The one frame that the responder put out. */
static void check_declined(void)
{
    struct hello h;

    cr_assert_eq(hello_decode(a.kernel.p, a.kernel.n, &h), (ssize_t)a.kernel.n);
    cr_expect_eq(h.kind, HELLO_HNAK);
    cr_expect_eq(h.version, HELLO_VERSION);
    cr_expect_eq(h.arg, (unsigned)REASON_VERSION);
    cr_expect_arr_eq(h.nonce, nonce, sizeof(nonce));
}

/* The initiator is by hand; what it says goes to b in pieces of at most cut octets. */
static void say(const uint8_t *buf, size_t len, size_t cut)
{
    put(&b.wire, buf, len);
    a.n.state = NEGOTIATE_DONE; /* (not asked) */
    a.n.out_len = a.n.out_off = 0;
    run(cut);
    arrive(&a, SIZE_MAX);
}

Test(negotiate_version, a_hello_of_another_version_is_declined_by_one_of_ours)
{
    static const unsigned versions[] = { 0, 2, 3, 255 };

    for (size_t i = 0; i < SW_ARRAY_LEN(versions); i++)
        for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
            uint8_t buf[HELLO_LEN_MAX];

            rng = 3 + c;
            setup();
            say(buf, frame(buf, HELLO_HELO, versions[i], 0, "future", 6), cuts[c]);
            EXPECT(b, NEGOTIATE_PLAIN, REASON_VERSION);
            check_declined();
            plain_rest(&b);
            cr_expect_eq(b.prog.n, 0u, "octets of a Hello in a program");
        }
}

Test(negotiate_version, and_so_is_its_withdrawal_taken_away)
{
    for (unsigned flags = HELLO_FLAG_MAY_WITHDRAW; flags <= (HELLO_FLAG_MAY_WITHDRAW | HELLO_FLAG_SWITCH); flags += 2)
        for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
            uint8_t buf[2 * HELLO_LEN_MAX];
            size_t n;

            rng = 3 + c;
            setup();
            n = frame(buf, HELLO_HELO, 2, flags, NULL, 0);
            n += frame(buf + n, HELLO_HWDR, 2, flags & HELLO_FLAG_SWITCH, skipped, sizeof(skipped));
            memcpy(buf + n, "plain", 5);
            say(buf, n + 5, cuts[c]);
            EXPECT(b, NEGOTIATE_PLAIN, REASON_VERSION);
            check_declined();
            plain_rest(&b);
            cr_expect_eq(b.prog.n, 5u);
            cr_expect_arr_eq(b.prog.p, "plain", 5);
        }
}

Test(negotiate_version, a_withdrawal_behind_a_late_hello_is_taken_away_as_a_whole)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    uint8_t buf[2 * HELLO_LEN_MAX];
    unsigned flags = HELLO_FLAG_MAY_WITHDRAW | HELLO_FLAG_SWITCH;
    size_t n;

    cb.early = true;
    both(&ca, &cb);
    n = frame(buf, HELLO_HELO, HELLO_VERSION, flags, NULL, 0); /* without a Request */
    n += frame(buf + n, HELLO_HWDR, HELLO_VERSION, HELLO_FLAG_SWITCH, skipped, sizeof(skipped));
    memcpy(buf + n, "plain", 5);
    say(buf, n + 5, 0);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_WITHDRAWN);
    plain_rest(&b);
    cr_expect_eq(b.prog.n, 5u);
    cr_expect_arr_eq(b.prog.p, "plain", 5);
}

Test(negotiate_version, another_reason_to_decline_comes_first)
{
    uint8_t buf[HELLO_LEN_MAX];

    setup();
    negotiate_decline(&b.n, REASON_POLICY);
    say(buf, frame(buf, HELLO_HELO, 2, 0, NULL, 0), 0);
    EXPECT(b, NEGOTIATE_PLAIN, REASON_POLICY);
}

Test(negotiate_version, what_its_transports_would_be_is_not_asked)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    uint8_t buf[HELLO_LEN_MAX];
    struct hello h = { .kind = HELLO_HELO, .arg = UINT32_MAX };

    cb.transports |= HELLO_TRANSPORT_VERBS | HELLO_TRANSPORT_MIXED;
    both(&ca, &cb);
    memcpy(h.nonce, nonce, sizeof(nonce));
    cr_assert_eq(hello_encode(&h, buf, sizeof(buf)), HELLO_LEN);
    buf[16] = 2;
    memset(buf + 60, 0, 4);
    put_be32(buf + 60, crc32c_final(crc32c_update(CRC32C_INIT, buf, HELLO_LEN)));
    say(buf, HELLO_LEN, 0);
    cr_expect_not(negotiate_wants_offer(&b.n));
    EXPECT(b, NEGOTIATE_PLAIN, REASON_VERSION);
}

Test(negotiate_version, a_critical_tlv_that_is_not_known_is_declined_and_others_are_skipped)
{
    for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
        uint8_t buf[HELLO_LEN_MAX], tlvs[sizeof(skipped) + sizeof(critical)];

        rng = 3 + c;
        memcpy(tlvs, skipped, sizeof(skipped));
        memcpy(tlvs + sizeof(skipped), critical, sizeof(critical));
        setup();
        say(buf, frame(buf, HELLO_HELO, HELLO_VERSION, 0, tlvs, sizeof(tlvs)), cuts[c]);
        EXPECT(b, NEGOTIATE_PLAIN, REASON_VERSION);
        check_declined();
        setup();
        say(buf, frame(buf, HELLO_HELO, HELLO_VERSION, 0, skipped, sizeof(skipped)), cuts[c]);
        cr_expect_eq(b.n.state, NEGOTIATE_MPA);
    }
}

/* ---- what an initiator hears ---- */

static void answer(const uint8_t *buf, size_t len, size_t cut)
{
    setup();
    step_out(&a, SIZE_MAX);
    b.n.state = NEGOTIATE_DONE; /* the responder is by hand */
    b.n.out_len = b.n.out_off = 0;
    put(&a.wire, buf, len);
    run(cut);
}

Test(negotiate_version, an_answer_that_declines_may_be_of_any_version)
{
    for (unsigned version = 0; version < 4; version++)
        for (size_t c = 0; c < SW_ARRAY_LEN(cuts); c++) {
            uint8_t buf[HELLO_LEN_MAX];

            rng = 3 + c;
            answer(buf, frame(buf, HELLO_HNAK, version, 0, critical, sizeof(critical)), cuts[c]);
            EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
            cr_expect_eq(a.prog.n + a.in.n + a.kernel.n, 0u);
        }
}

Test(negotiate_version, one_that_accepts_in_terms_that_are_not_known_spoils_the_connection)
{
    uint8_t buf[HELLO_LEN_MAX];

    answer(buf, frame(buf, HELLO_HACK, HELLO_VERSION, 0, critical, sizeof(critical)), 0);
    EXPECT(a, NEGOTIATE_FALLBACK, REASON_HELLO_GARBAGE);
    answer(buf, frame(buf, HELLO_HACK, 2, 0, NULL, 0), 0);
    cr_expect_eq(a.n.state, NEGOTIATE_HELLO, "it is no answer, and the time will be up");
    answer(buf, frame(buf, HELLO_HACK, HELLO_VERSION, 0, skipped, sizeof(skipped)), 0);
    cr_expect_eq(a.n.state, NEGOTIATE_MPA);
}

Test(negotiate_version, a_late_switch_in_terms_that_are_not_known_ends_it)
{
    struct negotiate_cfg ca = config(false), cb = config(true);
    uint8_t buf[HELLO_LEN_MAX];

    ca.shim_known = ca.may_switch = ca.early = cb.early = true;
    both(&ca, &cb);
    step_out(&a, SIZE_MAX);
    negotiate_withdraw(&a.n);
    step_out(&a, SIZE_MAX);
    cr_assert_eq(a.n.state, NEGOTIATE_LATE);
    b.n.state = NEGOTIATE_DONE;
    put(&a.wire, buf, frame(buf, HELLO_HACK, HELLO_VERSION, 0, critical, sizeof(critical)));
    run(0);
    EXPECT(a, NEGOTIATE_FAILED, REASON_MPA_FAILED);
}
