/*
 * The enhanced word (RFC 6581 section 9): every value of it on either side of a startup, and the
 * same 32 bits in SCTP's session control messages (section 7).
 */
#include "core/mpa/session.h"
#include "tests/unit/startup_frames.h"

/* ---- the word ---- */

/* RFC 6581 9/1: the figure, bit by bit. */
Test(mpa_enhanced, each_bit_of_the_word_is_where_the_figure_has_it)
{
    for (unsigned bit = 0; bit < 32; bit++) {
        uint8_t word[4] = { 0 };
        word[bit / 8] = (uint8_t)(0x80 >> bit % 8);
        word[0] |= 0x80; /* A, or B to D would be ignored */
        struct mpa_enhanced e = mpa_enhanced_decode(word);
        cr_assert(e.p2p);
        cr_assert_eq(e.rtr, bit == 1 ? MPA_RTR_SEND : bit == 16 ? MPA_RTR_WRITE : bit == 17 ? MPA_RTR_READ : 0);
        cr_assert_eq(e.ird, bit >= 2 && bit < 16 ? 1u << (15 - bit) : 0);
        cr_assert_eq(e.ord, bit >= 18 ? 1u << (31 - bit) : 0);
        uint8_t said[4];
        mpa_enhanced_encode(&e, said);
        cr_assert_arr_eq(said, word, 4);
    }
}

/* RFC 6581 9.2/13,14: "If Control Flag A is set to 0, then Control Flags B, C, and D MUST also be set to 0.
 * On reception, if Control Flag A is set to 0, then Control Flags B, C, and D MUST be ignored." */
Test(mpa_enhanced, without_a_no_kind_is_said_or_heard)
{
    for (unsigned rtr = 0; rtr < 8; rtr++) {
        uint8_t word[4];
        struct mpa_enhanced e = { .rtr = (uint8_t)rtr, .ird = 0x2aaa, .ord = 0x1555 };
        mpa_enhanced_encode(&e, word);
        cr_assert_eq(get_be32(word), DEPTHS(0x2aaa, 0x1555));
        put_be32(word, B_BIT | C_BIT | D_BIT | DEPTHS(1, 2));
        e = mpa_enhanced_decode(word);
        cr_assert(!e.p2p && e.rtr == 0 && e.ird == 1 && e.ord == 2);
    }
}

Test(mpa_enhanced, every_word_that_can_be_meant_comes_back)
{
    static const uint16_t depths[] = { 0, 1, 128, 0x3ffe, MPA_IRD_ORD_NONE };
    for (unsigned rtr = 0; rtr < 8; rtr++)
        for (size_t i = 0; i < SW_ARRAY_LEN(depths); i++)
            for (size_t o = 0; o < SW_ARRAY_LEN(depths); o++) {
                uint8_t word[4];
                struct mpa_enhanced e = { true, (uint8_t)rtr, depths[i], depths[o] }, back;
                mpa_enhanced_encode(&e, word);
                back = mpa_enhanced_decode(word);
                cr_assert(back.p2p && back.rtr == rtr && back.ird == e.ird && back.ord == e.ord);
            }
}

/* ---- A to D, all values on both sides ---- */

static uint32_t flags_of(unsigned abcd)
{
    return (abcd & 8 ? A_BIT : 0) | (abcd & 4 ? B_BIT : 0) | (abcd & 2 ? C_BIT : 0) | (abcd & 1 ? D_BIT : 0);
}

/* MPA_RTR_* of B, C, D. */
static unsigned kinds_of(unsigned abcd)
{
    return (abcd & 4 ? MPA_RTR_SEND : 0) | (abcd & 2 ? MPA_RTR_WRITE : 0) | (abcd & 1 ? MPA_RTR_READ : 0);
}

static bool one_kind(unsigned set)
{
    return set == MPA_RTR_SEND || set == MPA_RTR_WRITE || set == MPA_RTR_READ;
}

/*
 * All sixteen Requests, against responders of all sets of kinds. RFC 6581 9.2/4,6,7,12: "If Control Flag A is
 * 1 in the MPA Request message, then the responder MUST set Control Flag A to 1 in the MPA reply
 * message … MUST set Control Flag A to 0 if Control Flag A is 0 in the request … If the responder
 * does not support any of the initiator-specified RTR indication options, then the responder MUST
 * set at least one RTR indication type option it supports."
 */
Test(mpa_enhanced, all_requests_meet_all_responders)
{
    for (unsigned abcd = 0; abcd < 16; abcd++)
        for (unsigned can = 1; can < 8; can++) {
            struct mpa_startup s;
            struct mpa_startup_cfg cfg = config(true);
            uint8_t buf[FRAME_MAX];
            bool p2p = abcd & 8;
            unsigned common = kinds_of(abcd) & can;
            cfg.rtr = (uint8_t)can;
            init(&s, &cfg);
            feed(&s, buf, frame2(buf, request_key, C, flags_of(abcd) | DEPTHS(4, 4), ""));
            int r = mpa_startup_accept(&s, NULL, 0);
            if (p2p && common == 0) {
                cr_assert_eq(r, -EPROTO);
                cr_assert_eq(s.err, MPA_SE_RTR);
                cr_assert_eq(mpa_startup_reject(&s, NULL, 0), 0);
            } else {
                cr_assert_eq(r, 0);
            }
            take(&s, buf);
            struct mpa_enhanced e = mpa_enhanced_decode(buf + 20);
            cr_assert_eq(buf[16] & S, S, "RFC 6581 10: in kind");
            cr_assert_eq(e.p2p, p2p);
            if (!p2p)
                cr_assert_eq(get_be32(buf + 20) & flags_of(15), 0u);
            else if (common == 0)
                cr_assert_eq(e.rtr, can, "a rejection names what could be");
            else
                cr_assert(one_kind(e.rtr) && (e.rtr & common) && s.res.rtr == e.rtr);
        }
}

/*
 * All sixteen Replies, to initiators of either model and all sets of kinds. RFC 6581 9.2/8-10: "If the
 * initiator is not able to generate any of the responder-supported RTR indications, then it MUST
 * send a TERM message … the TERM message MUST contain Layer 2, Error Type 0, Error Code 7."
 */
Test(mpa_enhanced, all_replies_meet_all_initiators)
{
    for (unsigned abcd = 0; abcd < 16; abcd++)
        for (unsigned can = 1; can < 8; can++)
            for (int p2p = 0; p2p <= 1; p2p++) {
                struct mpa_startup s;
                struct mpa_startup_cfg cfg = config(false);
                uint8_t buf[FRAME_MAX], code = 0;
                bool a = abcd & 8;
                unsigned common = kinds_of(abcd) & can;
                cfg.rtr = (uint8_t)can;
                cfg.peer_to_peer = p2p;
                size_t len = frame2(buf, reply_key, C, flags_of(abcd) | DEPTHS(6, 4), "");
                wait_reply(&s, &cfg);
                ssize_t r = mpa_startup_input(&s, buf, len);
                if ((p2p && !a) || (a && common == 0)) {
                    cr_assert_eq(r, -EPROTO);
                    cr_assert_eq(s.err, MPA_SE_RTR);
                    cr_assert(mpa_startup_terminates(&s, &code));
                    cr_assert_eq(code, 7);
                    continue;
                }
                cr_assert_eq(r, (ssize_t)len);
                cr_assert_eq(s.state, MPA_ST_DONE);
                cr_assert(a ? one_kind(s.res.rtr) && (s.res.rtr & common) : s.res.rtr == 0);
            }
}

/* ---- IRD and ORD: what section 9.1 says holds for all pairs of offers ---- */

/*
 * RFC 6581 9.1/1-3,5,8-12: "initiator ORD <= responder IRD, responder ORD <= initiator IRD"; "The responder and
 * initiator MUST pass the peer's provided IRD and ORD values to the ULP"; 0x3FFF leaves the local
 * values alone.
 */
Test(mpa_enhanced, all_pairs_of_depths_end_in_the_relations_of_the_standard)
{
    static const uint16_t depth[] = { 0, 1, 5, 8, 0x3ffe, MPA_IRD_ORD_NONE };
    enum { N = SW_ARRAY_LEN(depth) };
    for (size_t i = 0; i < N * N * N * N; i++) {
        struct mpa_startup ini, res;
        struct mpa_startup_cfg ic = config(false), rc = config(true);
        uint8_t buf[FRAME_MAX];
        ic.ird = depth[i % N];
        ic.ord = depth[i / N % N];
        rc.ird = depth[i / N / N % N];
        rc.ord = depth[i / N / N / N];
        ic.rtr = MPA_RTR_SEND;
        init(&ini, &ic);
        init(&res, &rc);
        feed(&res, buf, take(&ini, buf));
        cr_assert_eq(res.res.peer_ird, ic.ird);
        cr_assert_eq(res.res.peer_ord, ic.ord);
        cr_assert_eq(mpa_startup_accept(&res, NULL, 0), 0);
        size_t len = take(&res, buf);
        struct mpa_enhanced e = mpa_enhanced_decode(buf + 20);
        feed(&ini, buf, len);
        cr_assert_eq(ini.state, MPA_ST_DONE);
        cr_assert_eq(ini.res.peer_ird, e.ird);
        cr_assert_eq(ini.res.peer_ord, e.ord);
        if (ic.ord == MPA_IRD_ORD_NONE) {
            cr_assert_eq(e.ird, MPA_IRD_ORD_NONE);
            cr_assert_eq(res.res.ird, rc.ird);
        }
        if (ic.ird == MPA_IRD_ORD_NONE) {
            cr_assert_eq(e.ord, MPA_IRD_ORD_NONE);
            cr_assert_eq(res.res.ord, rc.ord);
        }
        if (e.ird == MPA_IRD_ORD_NONE)
            cr_assert_eq(ini.res.ord, ic.ord);
        else
            cr_assert_leq(ini.res.ord, res.res.ird);
        if (e.ord == MPA_IRD_ORD_NONE)
            cr_assert_eq(ini.res.ird, ic.ird);
        else
            cr_assert_leq(res.res.ord, ini.res.ird);
    }
}

/* RFC 6581 9.1/8: "The responder MAY reject the connection request if the initiator IRD is not sufficient
 * for the ULP-required ORD and specify the required ORD in the MPA Reject Frame responder ORD"; "The
 * initiator MUST pass the responder provided IRD and ORD to the ULP for both MPA Accept and Reject
 * messages." */
Test(mpa_enhanced, a_responder_that_needs_more_reads_says_how_many)
{
    for (unsigned need = 0; need <= 6; need++)
        for (unsigned ird = 0; ird <= 8; ird++) {
            struct mpa_startup ini, res;
            struct mpa_startup_cfg ic = config(false), rc = config(true);
            uint8_t buf[FRAME_MAX];
            ic.ird = (uint16_t)(ird == 8 ? MPA_IRD_ORD_NONE : ird);
            rc.ord_min = (uint16_t)need;
            init(&ini, &ic);
            init(&res, &rc);
            feed(&res, buf, take(&ini, buf));
            int r = mpa_startup_accept(&res, NULL, 0);
            if (ird >= need) {
                cr_assert_eq(r, 0);
                continue;
            }
            cr_assert_eq(r, -EPROTO);
            cr_assert_eq(res.err, MPA_SE_IRD);
            cr_assert_eq(mpa_startup_reject(&res, NULL, 0), 0);
            feed(&ini, buf, take(&res, buf));
            cr_assert_eq(ini.state, MPA_ST_REJECTED);
            cr_assert_eq(ini.res.peer_ord, need);
            cr_assert_eq(ini.res.peer_ird, 8);
        }
}

/* RFC 6581 9.1/6,7: "If the initiator does not have sufficient resources for the required IRD, it MUST send a
 * TERM message … Layer 2, Error Type 0, Error Code 6." */
Test(mpa_enhanced, an_insufficient_ird_is_code_6_and_other_failures_are_none)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t buf[FRAME_MAX], code = 0;
    wait_reply(&s, &cfg);
    size_t len = frame2(buf, reply_key, C | M, A_BIT | B_BIT | DEPTHS(6, 9), "");
    cr_assert_eq(mpa_startup_input(&s, buf, len), -EPROTO);
    cr_assert(mpa_startup_terminates(&s, &code));
    cr_assert_eq(code, 6);
    cr_assert(s.res.crc && s.res.markers_tx, "how the Terminate is to be framed");
    /* RFC 5044 8: code 4: "the TCP connection MUST be immediately closed". */
    wait_reply(&s, &cfg);
    cr_assert_eq(mpa_startup_input(&s, (const uint8_t *)"HTTP", 4), -EPROTO);
    cr_assert_not(mpa_startup_terminates(&s, &code));
    wait_reply(&s, &cfg);
    cr_assert_not(mpa_startup_terminates(&s, &code));
    cfg = config(true);
    init(&s, &cfg);
    feed(&s, buf, frame2(buf, request_key, C, A_BIT | DEPTHS(1, 1), ""));
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EPROTO);
    cr_assert_not(mpa_startup_terminates(&s, &code));
}

/* ---- SCTP session control messages ---- */

static struct mpa_session session(unsigned function, const char *text)
{
    return (struct mpa_session){
        .ssn = 0x1234,
        .function = (uint16_t)function,
        .enhanced = { true, MPA_RTR_SEND | MPA_RTR_READ, 8, 6 },
        .priv = (const uint8_t *)text,
        .priv_len = strlen(text),
    };
}

/*
 * RFC 5043 5.2.3/1 and RFC 6581 7/3: the word, then private data. "Enhanced DDP Stream Session Initiate: 0x005, …
 * Accept: 0x006, … Reject: 0x007".
 */
Test(mpa_session, octets_of_the_messages)
{
    static const uint8_t want[] = {
        0x12, 0x34, 0x00, 0x05, 0xc0, 0x08, 0x40, 0x06, 'u', 'l', 'p',
    };
    uint8_t buf[MPA_SESSION_MAX];
    struct mpa_session s = session(MPA_SESSION_ENHANCED_INITIATE, "ulp");
    cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), (ssize_t)sizeof(want));
    cr_assert_arr_eq(buf, want, sizeof(want));
    s = session(MPA_SESSION_ACCEPT, "ulp");
    cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), 7);
    cr_assert_arr_eq(buf, "\x12\x34\x00\x02ulp", 7);
    s = session(MPA_SESSION_TERMINATE, "");
    cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), 4);
    cr_assert_arr_eq(buf, "\x12\x34\x00\x04", 4);
}

/* The word is MPA's: what a Request carries, a session's Initiate does. */
Test(mpa_session, the_word_is_the_one_of_the_mpa_frames)
{
    struct mpa_startup ini;
    struct mpa_startup_cfg cfg = config(false);
    uint8_t request[FRAME_MAX], buf[MPA_SESSION_MAX];
    init(&ini, &cfg);
    size_t len = take(&ini, request);
    struct mpa_session s = {
        .function = MPA_SESSION_ENHANCED_INITIATE,
        .enhanced = mpa_enhanced_decode(request + 20),
        .priv = request + 24,
        .priv_len = len - 24,
    };
    cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), (ssize_t)(len - 16));
    cr_assert_arr_eq(buf + 4, request + 20, len - 20);
}

/* RFC 5043 5.2.3/5 and RFC 6581 7/7: private data "MUST be available for the ULP to examine" */
Test(mpa_session, every_function_comes_back_and_every_truncation_is_refused)
{
    for (unsigned f = MPA_SESSION_INITIATE; f <= MPA_SESSION_ENHANCED_REJECT; f++) {
        struct mpa_session s = session(f, f == MPA_SESSION_TERMINATE ? "" : "private"), out;
        uint8_t buf[MPA_SESSION_MAX];
        ssize_t n = mpa_session_encode(&s, buf, sizeof(buf));
        size_t least = mpa_session_is_enhanced(f) ? 8 : 4;
        cr_assert_geq(n, (ssize_t)least);
        cr_assert_eq(mpa_session_decode(buf, (size_t)n, &out), 0);
        cr_assert(out.ssn == 0x1234 && out.function == f && out.priv_len == s.priv_len);
        cr_assert_arr_eq(out.priv, s.priv, s.priv_len);
        cr_assert_eq(out.enhanced.p2p, least == 8);
        cr_assert_eq(out.enhanced.ird, least == 8 ? 8 : 0);
        for (size_t cut = 0; cut < (size_t)n; cut++) {
            uint8_t *part = malloc(cut ? cut : 1);
            memcpy(part, buf, cut);
            cr_assert_eq(mpa_session_decode(part, cut, &out), cut < least ? -EMSGSIZE : 0);
            free(part);
        }
        for (size_t cap = 0; cap < (size_t)n; cap++)
            cr_assert_eq(mpa_session_encode(&s, buf, cap), -EMSGSIZE);
    }
}

/* RFC 5043 5.2.3/2,3 and RFC 6581 7/4,5: no more than 512 octets, in TERM none */
Test(mpa_session, unknown_functions_and_too_much_private_data_are_refused)
{
    static uint8_t buf[MPA_SESSION_MAX + 2], priv[MPA_SESSION_PRIVATE_MAX + 1];
    struct mpa_session s, out;
    for (unsigned f = 0; f < 65536; f += f < 300 ? 1 : 251) {
        if (f >= 1 && f <= 7)
            continue;
        s = session(f, "");
        cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), -EINVAL);
        put_be32(buf, 0x12340000u | f);
        cr_assert_eq(mpa_session_decode(buf, 8, &out), -EPROTO);
    }
    for (unsigned f = 1; f <= 7; f++) {
        size_t most = f == MPA_SESSION_TERMINATE ? 0 : mpa_session_is_enhanced(f) ? 508 : 512;
        s = session(f, "");
        s.priv = priv;
        s.priv_len = most;
        ssize_t n = mpa_session_encode(&s, buf, sizeof(buf));
        cr_assert_eq(n, f == MPA_SESSION_TERMINATE ? 4 : 516);
        cr_assert_eq(mpa_session_decode(buf, (size_t)n, &out), 0);
        cr_assert_eq(mpa_session_decode(buf, (size_t)n + 1, &out), -EPROTO);
        s.priv_len = most + 1;
        cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), -EINVAL);
    }
    s = session(MPA_SESSION_ENHANCED_REJECT, "");
    s.enhanced.ird = 0x4000;
    cr_assert_eq(mpa_session_encode(&s, buf, sizeof(buf)), -EINVAL);
}
