/*
 * What a peer may do wrong, each as a hand-built frame: which Terminate answers it (RFC 5040
 * Figures 9 and 10, RFC 5041 section 7.2, RFC 5044 section 8), what poll says, and that no octet
 * outside a region ever changes.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

#define GUARD 64u
#define REGION 256u
#define BASE_TO 0x200000000u
#define SEND_MAX 1000u

/* One receiver, a responder in full operation, and the octets it was fed. */
static struct side rx;
static uint8_t memory[GUARD + REGION + GUARD]; /* remote write */
static uint8_t other[GUARD + REGION + GUARD];  /* remote read */
static uint8_t local[GUARD + REGION + GUARD];  /* local sink only */
static uint32_t stag_w, stag_r, stag_l, stag_ring;
static uint8_t payload[70000];
static uint32_t msn0; /* the Sends so far; the next one's MSN is msn0 + 1 */

static void feed(const uint8_t *frame, size_t n)
{
    uint8_t *to;
    size_t room = iwarp_in_space(&rx.ep, &to);

    cr_assert_geq(room, n);
    memcpy(to, frame, n);
    iwarp_in_fed(&rx.ep, n);
}

static int poll_one(void)
{
    struct endpoint_event ev = { 0 };
    int r = iwarp_poll(&rx.ep.base, &ev);

    if (r == 1 && ev.type != ENDPOINT_TERMINATED)
        iwarp_release(&rx.ep.base, ev.data + ev.len);
    return r == 1 ? (int)ev.type : r;
}

static void setup_with(void (*change)(struct iwarp_cfg *c))
{
    struct iwarp_cfg c;

    side_alloc(&rx, 5);
    c = side_cfg(&rx, true, 0);
    c.send_max = SEND_MAX;
    if (change)
        change(&c);
    cr_assert_eq(iwarp_init(&rx.ep, &c), 0);
    memset(memory, 0x11, sizeof(memory));
    memset(other, 0x22, sizeof(other));
    memset(local, 0x33, sizeof(local));
    memset(payload, 0x77, sizeof(payload));
    stag_w = side_region(&rx, memory + GUARD, BASE_TO, REGION, DDP_ACCESS_REMOTE_WRITE);
    stag_r = side_region(&rx, other + GUARD, BASE_TO, REGION, DDP_ACCESS_REMOTE_READ);
    stag_l = side_region(&rx, local + GUARD, BASE_TO, REGION, DDP_ACCESS_LOCAL_SINK);
    stag_ring = side_region(&rx, NULL, 0, 1 << 16, DDP_ACCESS_REMOTE_WRITE);
    cr_assert(stag_w && stag_r && stag_l && stag_ring);
    msn0 = 0;
}

static void setup(void)
{
    setup_with(NULL);
}

static bool all(const uint8_t *p, size_t n, uint8_t v)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != v)
            return false;
    return true;
}

static void untouched(const char *what)
{
    cr_expect(all(memory, sizeof(memory), 0x11), "%s: memory was written", what);
    cr_expect(all(other, sizeof(other), 0x22), "%s: read-only memory was written", what);
    cr_expect(all(local, sizeof(local), 0x33), "%s: local memory was written", what);
}

/* All there is to send. */
static size_t drain(uint8_t *buf, size_t cap)
{
    const struct iovec *iov;
    size_t n, len, at = 0;

    while ((n = iwarp_out(&rx.ep, &iov, &len)) > 0) {
        for (size_t i = 0; i < n; at += iov[i].iov_len, i++) {
            cr_assert_leq(at + iov[i].iov_len, cap);
            memcpy(buf + at, iov[i].iov_base, iov[i].iov_len);
        }
        iwarp_out_sent(&rx.ep, len);
    }
    return at;
}

/*
 * The receiver must now be in error with one Terminate of this code and nothing else to send. bad:
 * the frame at fault, whose DDP header comes back (NULL: none does); read: its Read Request header,
 * too.
 */
static void expect_terminate(const char *what, uint8_t layer, uint8_t etype, uint8_t code, const uint8_t *bad,
                             bool read)
{
    uint8_t out[512];
    size_t hdr = bad ? (bad[2] & 0x80 ? 14 : 18) : 0;
    size_t want = 4 + (bad ? 2 + hdr : 0) + (read ? 28 : 0), n;

    cr_expect_eq(iwarp_state_now(&rx.ep), IWARP_TERMINATING, "%s", what);
    cr_expect_eq(iwarp_error(&rx.ep).layer, layer, "%s", what);
    cr_expect_eq(iwarp_error(&rx.ep).etype, etype, "%s", what);
    cr_expect_eq(iwarp_error(&rx.ep).code, code, "%s: code %u", what, iwarp_error(&rx.ep).code);
    cr_expect(iwarp_ctrl_pending(&rx.ep), "%s", what);
    n = drain(out, sizeof(out));
    cr_assert_eq(fb_check(out, n), (long)(18 + want), "%s: %zu octets went out, ULPDU %ld", what, n, fb_check(out, n));
    cr_expect_eq(n, (2 + 18 + want + 3) / 4 * 4 + 4, "%s: one frame only", what);
    cr_expect(out[2] == 0x41 && out[3] == 0x47, "%s: %02x %02x", what, out[2], out[3]);
    cr_expect(fb_get(out + 8, 4) == 2 && fb_get(out + 12, 4) == 1 && fb_get(out + 16, 4) == 0, "%s: QN 2, MSN 1, MO 0",
              what);
    cr_expect_eq(out[20], layer << 4 | etype, "%s", what);
    cr_expect_eq(out[21], code, "%s", what);
    cr_expect_eq(out[22], (bad ? 0xc0 : 0) | (read ? 0x20 : 0), "%s: flags %02x", what, out[22]);
    cr_expect_eq(out[23], 0, "%s", what);
    if (bad) {
        cr_expect_eq(fb_get(out + 24, 2), fb_get(bad, 2), "%s: segment length", what);
        cr_expect_arr_eq(out + 26, bad + 2, hdr, "%s: header", what);
        if (read)
            cr_expect_arr_eq(out + 26 + hdr, bad + 2 + hdr, 28, "%s: Read header", what);
    }
    /* Nothing after it, whatever comes; and nothing is posted any more. */
    cr_expect_eq(iwarp_poll(&rx.ep.base, &(struct endpoint_event){ 0 }), -EPROTO, "%s", what);
    iwarp_fail(&rx.ep, (struct term_code){ 2, 0, 5 });
    cr_expect_eq(drain(out, sizeof(out)), 0, "%s: only one Terminate", what);
    cr_expect_eq(side_send(&rx, "x", 1, NULL, 0), -EPIPE, "%s", what);
    cr_expect_eq(side_write(&rx, 1, 0, "x", 1), -EPIPE, "%s", what);
    cr_expect_eq(iwarp_post_read(&rx.ep, &(struct rdmap_read){ 0 }), -EPIPE, "%s", what);
    cr_expect_eq(rx.ep.stats.errors, 1, "%s", what);
}

/* Feeds one frame that must be an error, with a good Send behind it that must not be delivered. */
static void bad_frame(const char *what, const uint8_t *frame, size_t n, uint8_t layer, uint8_t etype, uint8_t code,
                      bool hdr, bool read)
{
    uint8_t good[128];

    feed(frame, n);
    feed(good, fb_send(good, msn0 + 1, "good", 4));
    cr_expect_eq(poll_one(), -EPROTO, "%s", what);
    expect_terminate(what, layer, etype, code, hdr ? frame : NULL, read);
    side_free(&rx);
}

static uint8_t f[70000];

/* ---- framing ---- */

/* RFC 5040 6.2.1/1 and RFC 5040 7.1/1: a Terminate "SHOULD be invoked when ... an LLP error is surfaced" */
/* RFC 5041 3 item 6 and RFC 5041 7/1: the digest covers the segment; errors of the LLP are passed up */
/* RFC 5040 4.8/4,5: M and D are not set for the LLP's */
/* RFC 5044 8 code 2/1,2 and RFC 5044 8/1,2: told, nothing delivered behind it, one message still goes out */
Test(iwarp_errors, bad_crc_leaves_memory_untouched_and_says_2_0_2)
{
    size_t n;

    for (size_t bit = 0; bit < 8 * 40; bit += 7) {
        setup();
        n = fb_write(f, stag_w, BASE_TO, payload, 18);
        cr_assert_eq(n, 40);
        if (bit / 8 < 2) { /* the length field: another frame length altogether */
            side_free(&rx);
            continue;
        }
        f[bit / 8] ^= (uint8_t)(1u << bit % 8);
        feed(f, n);
        cr_expect_eq(poll_one(), -EPROTO, "bit %zu", bit);
        untouched("bad CRC");
        expect_terminate("bad CRC", TERM_LAYER_LLP, 0, TERM_MPA_CRC, NULL, false);
        side_free(&rx);
    }
}

Test(iwarp_errors, good_frames_before_a_bad_crc_are_delivered)
{
    size_t n;

    setup();
    feed(f, fb_send(f, 1, payload, 10));
    n = fb_send(f, 2, payload, 10);
    f[n - 1] ^= 1;
    feed(f, n);
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    cr_expect_eq(poll_one(), -EPROTO);
    expect_terminate("second frame", TERM_LAYER_LLP, 0, TERM_MPA_CRC, NULL, false);
    side_free(&rx);
}

static void responder(struct iwarp_cfg *c)
{
    c->initiator = false;
    c->rtr = MPA_RTR_SEND;
}

Test(iwarp_errors, responder_that_heard_no_valid_fpdu_stays_silent_on_a_bad_crc)
{
    const struct iovec *iov;
    size_t n, len;

    setup_with(responder);
    n = fb_send(f, 1, NULL, 0);
    f[n - 1] ^= 1;
    feed(f, n);
    cr_expect_eq(poll_one(), -EPROTO);
    cr_expect(!iwarp_ctrl_pending(&rx.ep));
    cr_expect_eq(iwarp_out(&rx.ep, &iov, &len), 0);
    cr_expect_eq(side_send(&rx, "x", 1, NULL, 0), -EPIPE);
    side_free(&rx);

    /* A valid FPDU with a bad segment in it may be answered. */
    setup_with(responder);
    n = fb_send(f, 7, NULL, 0);
    feed(f, n);
    cr_expect_eq(poll_one(), -EPROTO);
    expect_terminate("MSN 7 first", TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MSN_RANGE, f, false);
    side_free(&rx);
}

/* RFC 5041 4.4/1: each segment has a DDP header */
Test(iwarp_errors, ulpdu_shorter_than_its_header_is_an_error_at_any_length)
{
    uint8_t ulpdu[18] = { FB_TL, FB_RV };

    for (int tagged = 0; tagged < 2; tagged++) {
        for (size_t len = 0; len < (tagged ? 14u : 18u); len++) {
            uint8_t out[128];
            char what[40];
            size_t n;

            setup();
            snprintf(what, sizeof(what), "%s of %zu", tagged ? "tagged" : "untagged", len);
            ulpdu[0] = tagged ? FB_TL : FB_UL;
            feed(f, fb_fpdu(f, ulpdu, len));
            cr_expect_eq(poll_one(), -EPROTO, "%s", what);
            n = drain(out, sizeof(out));
            cr_expect_eq(fb_check(out, n), 18 + 6, "%s", what);
            cr_expect_eq(out[20], TERM_LAYER_RDMAP << 4 | TERM_RDMAP_OPERATION, "%s", what);
            cr_expect_eq(out[21], 0xff, "%s", what);
            cr_expect_eq(out[22], 0x80, "%s: length, no header", what);
            cr_expect_eq(fb_get(out + 24, 2), len, "%s", what);
            untouched(what);
            side_free(&rx);
        }
    }
}

/* ---- versions, opcodes, queues ---- */

/* RFC 5041 7.2/1, RFC 5044 C.1/1: 1/4 and 2/6, invalid DDP version; RFC 5041 4.1/9,10: DV is one in every segment */
/* RFC 5040 7.2 item 3, RFC 5040 7.2 read 3, RFC 7306 8.2/4: "The RDMA Version MUST be valid" */
Test(iwarp_errors, versions_other_than_one_are_refused_by_their_layer)
{
    for (unsigned v = 0; v < 4; v++) {
        if (v == 1)
            continue;
        setup();
        bad_frame("DV tagged", f, fb_tagged(f, (uint8_t)(0xc0 | v), FB_RV, stag_w, BASE_TO, payload, 4), TERM_LAYER_DDP,
                  TERM_DDP_TAGGED, DDP_TAGGED_VERSION, true, false);
        setup();
        bad_frame("DV untagged", f, fb_untagged(f, (uint8_t)(0x40 | v), FB_RV | 3, 0, 0, 1, 0, payload, 4),
                  TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_VERSION, true, false);
        setup();
        bad_frame("RV tagged", f, fb_tagged(f, FB_TL, (uint8_t)(v << 6), stag_w, BASE_TO, payload, 4), TERM_LAYER_RDMAP,
                  TERM_RDMAP_OPERATION, TERM_RDMAP_VERSION, true, false);
        setup();
        bad_frame("RV untagged", f, fb_untagged(f, FB_UL, (uint8_t)(v << 6 | 3), 0, 0, 1, 0, payload, 4),
                  TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_VERSION, true, false);
        untouched("version");
    }
}

/* RFC 5040 4.1/9,10: reserved bits, and an Invalidate STag in other Sends, are ignored */
/* RFC 5041 4.1/8: Rsvd "not checked on receive" */
Test(iwarp_errors, reserved_bits_are_ignored)
{
    setup();
    feed(f, fb_untagged(f, FB_UL | 0x3c, FB_RV | 0x30 | 3, 0x12345678, 0, 1, 0, payload, 4));
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    feed(f, fb_tagged(f, FB_TL | 0x3c, FB_RV | 0x30, stag_w, BASE_TO, payload, 4));
    cr_expect_eq(poll_one(), 0);
    cr_expect_eq(memory[GUARD], 0x77);
    side_free(&rx);
}

Test(iwarp_errors, nonzero_pad_under_a_good_crc_is_ignored)
{
    size_t n;
    uint32_t crc;

    setup();
    n = fb_send(f, 1, payload, 1); /* 2 + 19 octets, three of pad */
    f[21] = f[22] = f[23] = 0xaa;
    crc = crc32c_final(crc32c_update(CRC32C_INIT, f, n - 4));
    for (int i = 0; i < 4; i++)
        f[n - 4 + (size_t)i] = (uint8_t)(crc >> (8 * i));
    feed(f, n);
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    side_free(&rx);
}

/* RFC 5040 7.2 item 2, RFC 5040 7.2 read 2: "The RDMA OpCode MUST be valid" */
/* RFC 7306 8.2/3: likewise */
Test(iwarp_errors, opcodes_8_to_15_are_unexpected)
{
    for (uint8_t op = 8; op < 16; op++) {
        setup();
        bad_frame("untagged", f, fb_untagged(f, FB_UL, (uint8_t)(FB_RV | op), 0, op == 10 ? 1 : 0, 1, 0, payload, 8),
                  TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
        setup();
        bad_frame("tagged", f, fb_tagged(f, FB_TL, (uint8_t)(FB_RV | op), stag_w, BASE_TO, payload, 8),
                  TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
        untouched("opcode");
    }
}

/* RFC 5040 5.1/1: a Write "MUST reference a Tagged Buffer" */
/* RFC 5040 5.2.1/1, RFC 5040 5.3/1 and RFC 5040 5.4/1: a Send "MUST reference an Untagged Buffer" */
/* RFC 5041 4.1/1,2 and RFC 5041 4.2/3: T and RsvdULP go up together */
Test(iwarp_errors, t_bit_must_agree_with_the_opcode)
{
    for (uint8_t op = 0; op < 8; op++) {
        bool tagged = op == 0 || op == 2;

        setup();
        if (tagged)
            bad_frame("untagged Write or Response", f,
                      fb_untagged(f, FB_UL, (uint8_t)(FB_RV | op), 0, 0, 1, 0, payload, 28), TERM_LAYER_RDMAP,
                      TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
        else
            bad_frame("tagged Send and such", f,
                      fb_tagged(f, FB_TL, (uint8_t)(FB_RV | op), stag_w, BASE_TO, payload, 28), TERM_LAYER_RDMAP,
                      TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
        untouched("T bit");
    }
}

/* RFC 5041 7.1 untagged 1: the QN is valid */
/* RFC 5041 7.2/1: 2/1, invalid QN */
/*
 * RFC 5040 7.2 item 1, RFC 5040 7.2 read 1: all fields of the segment; RFC 5040 5.2.1/6: a Read Request on its
 * queue
 */
Test(iwarp_errors, queue_must_exist_and_be_the_opcodes)
{
    static const uint32_t qns[] = { 0, 1, 2, 3, 4, 0x80000000, UINT32_MAX };
    static const uint8_t ops[] = { 1, 3, 4, 5, 6, 7 };

    for (size_t o = 0; o < sizeof(ops); o++) {
        uint32_t own = ops[o] == 1 ? 1 : ops[o] == 7 ? 2 : 0;

        for (size_t q = 0; q < sizeof(qns) / sizeof(qns[0]); q++) {
            if (qns[q] == own)
                continue;
            setup();
            bad_frame("QN", f, fb_untagged(f, FB_UL, (uint8_t)(FB_RV | ops[o]), 0, qns[q], 1, 0, payload, 28),
                      TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_INVALID_QN, true, false);
        }
    }
}

/* ---- untagged: MSN, MO, length ---- */

/* RFC 5041 7.1 untagged 5: the MSN is in the legal range */
/* RFC 5041 7.2/1: 2/3, MSN range is not valid */
Test(iwarp_errors, messages_come_with_the_next_msn_only)
{
    static const uint32_t msns[] = { 0, 1, 2, 4, 5, UINT32_MAX };

    for (size_t i = 0; i < sizeof(msns) / sizeof(msns[0]); i++) {
        setup();
        for (msn0 = 0; msn0 < 2; msn0++) {
            feed(f, fb_send(f, msn0 + 1, payload, 4));
            cr_expect_eq(poll_one(), ENDPOINT_SEND);
        }
        bad_frame("MSN", f, fb_send(f, msns[i], payload, 4), TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_MSN_RANGE,
                  true, false);
    }
}

/* RFC 5041 4.3/8: MSN "increased by one ... with each DDP Message targeting the specific Queue Number" */
Test(iwarp_errors, each_queue_counts_for_itself)
{
    setup();
    for (uint32_t i = 1; i <= 5; i++) {
        feed(f, fb_read_request(f, i, 1, 1, 0, 1, 1));
        cr_expect_eq(poll_one(), 0);
    }
    feed(f, fb_send(f, 1, payload, 4));
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    /* siw once took the Terminate's MSN from another queue. */
    feed(f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 1, 0, "\x20\x02\0", 4));
    cr_expect_eq(poll_one(), ENDPOINT_TERMINATED);
    side_free(&rx);

    setup();
    feed(f, fb_read_request(f, 1, 1, 1, 0, 1, 1));
    cr_expect_eq(poll_one(), 0);
    bad_frame("Terminate with MSN 2", f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 2, 0, "\x20\x02\0", 4), TERM_LAYER_DDP,
              TERM_DDP_UNTAGGED, TERM_DDP_U_MSN_RANGE, true, false);
}

/* RFC 5041 4.3/13: the first octet's MO "MUST be set to zero" */
/* RFC 5041 7.2/1: 2/4, invalid MO */
/* RFC 5040 7.2 item 1, RFC 5040 7.2 read 1: all fields of the segment */
Test(iwarp_errors, first_segment_starts_at_mo_zero)
{
    static const uint32_t mos[] = { 1, 4, SEND_MAX, UINT32_MAX, UINT32_MAX - 3 };

    for (size_t i = 0; i < sizeof(mos) / sizeof(mos[0]); i++) {
        setup();
        bad_frame("MO", f, fb_untagged(f, FB_UL, FB_RV | 3, 0, 0, 1, mos[i], payload, 8), TERM_LAYER_DDP,
                  TERM_DDP_UNTAGGED, TERM_DDP_U_INVALID_MO, true, false);
        setup();
        bad_frame("MO of a Read Request", f, fb_untagged(f, FB_UL, FB_RV | 1, 0, 1, 1, mos[i], payload, 28),
                  TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_INVALID_MO, true, false);
    }
}

/* The second segment of a Send after one of 10 octets. */
static void second_segment(const char *what, uint8_t ctrl, uint8_t op, uint32_t msn, uint32_t mo, size_t len,
                           uint8_t layer, uint8_t etype, uint8_t code)
{
    setup();
    feed(f, fb_untagged(f, FB_UM, FB_RV | 3, 0, 0, 1, 0, payload, 10));
    cr_expect_eq(poll_one(), 0, "%s", what);
    bad_frame(what, f, fb_untagged(f, ctrl, (uint8_t)(FB_RV | op), 0, 0, msn, mo, payload, len), layer, etype, code,
              true, false);
}

/* RFC 5041 7.1 untagged 3: the MO is in the range of legal offsets */
Test(iwarp_errors, segments_of_a_send_follow_without_gap_overlap_or_mixture)
{
    const uint8_t ddp = TERM_LAYER_DDP, un = TERM_DDP_UNTAGGED;

    second_segment("gap", FB_UL, 3, 1, 11, 4, ddp, un, TERM_DDP_U_INVALID_MO);
    second_segment("overlap", FB_UL, 3, 1, 9, 4, ddp, un, TERM_DDP_U_INVALID_MO);
    second_segment("again from 0", FB_UL, 3, 1, 0, 4, ddp, un, TERM_DDP_U_INVALID_MO);
    second_segment("MO near 2^32", FB_UL, 3, 1, UINT32_MAX, 4, ddp, un, TERM_DDP_U_INVALID_MO);
    second_segment("next MSN", FB_UL, 3, 2, 10, 4, ddp, un, TERM_DDP_U_MSN_RANGE);
    second_segment("MSN before", FB_UL, 3, 0, 10, 4, ddp, un, TERM_DDP_U_MSN_RANGE);
    second_segment("empty and not last", FB_UM, 3, 1, 10, 0, ddp, un, TERM_DDP_U_INVALID_MO);
    second_segment("one octet too long", FB_UL, 3, 1, 10, SEND_MAX - 9, ddp, un, TERM_DDP_U_TOO_LONG);
    second_segment("too long, not last", FB_UM, 3, 1, 10, SEND_MAX - 9, ddp, un, TERM_DDP_U_TOO_LONG);
    second_segment("another opcode", FB_UL, 5, 1, 10, 4, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE);
}

Test(iwarp_errors, no_message_stands_between_the_segments_of_another)
{
    setup();
    feed(f, fb_untagged(f, FB_UM, FB_RV | 3, 0, 0, 1, 0, payload, 10));
    cr_expect_eq(poll_one(), 0);
    bad_frame("Write inside a Send", f, fb_write(f, stag_w, BASE_TO, payload, 4), TERM_LAYER_RDMAP,
              TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
    untouched("Write inside a Send");
    setup();
    feed(f, fb_untagged(f, FB_UM, FB_RV | 3, 0, 0, 1, 0, payload, 10));
    cr_expect_eq(poll_one(), 0);
    bad_frame("Read Request inside a Send", f, fb_read_request(f, 1, 1, 1, 0, 1, 1), TERM_LAYER_RDMAP,
              TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
    setup();
    feed(f, fb_tagged(f, FB_TM, FB_RV, stag_w, BASE_TO, payload, 4));
    cr_expect_eq(poll_one(), 0);
    bad_frame("Send inside a Write", f, fb_send(f, 1, payload, 4), TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION,
              TERM_RDMAP_OPCODE, true, false);
    /* A Terminate may come at any segment boundary. */
    setup();
    feed(f, fb_untagged(f, FB_UM, FB_RV | 3, 0, 0, 1, 0, payload, 10));
    feed(f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 1, 0, "\x02\x06\0", 4));
    cr_expect_eq(poll_one(), ENDPOINT_TERMINATED);
    side_free(&rx);
}

/* RFC 5041 7.1 untagged 4: MO plus length is in the range */
/* RFC 5041 7.2/1: 2/5, message too long */
/* RFC 5040 section 5.3: a Send larger than the buffer "is an error" */
Test(iwarp_errors, sends_longer_than_the_buffer_are_refused_to_the_octet)
{
    setup();
    feed(f, fb_send(f, 1, payload, SEND_MAX));
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    msn0 = 1;
    bad_frame("one more", f, fb_send(f, 2, payload, SEND_MAX + 1), TERM_LAYER_DDP, TERM_DDP_UNTAGGED,
              TERM_DDP_U_TOO_LONG, true, false);
    setup();
    bad_frame("64 KiB", f, fb_send(f, 1, payload, 40000), TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG, true,
              false);
}

static void small_in_buf(struct iwarp_cfg *c)
{
    c->in_cap = MPA_FPDU_MAX;
}

/* RFC 5041 7.1 untagged 2: QN and MSN have an associated buffer */
Test(iwarp_errors, without_room_to_join_them_there_is_no_buffer_for_several_segments)
{
    setup_with(small_in_buf);
    feed(f, fb_send(f, 1, payload, SEND_MAX));
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    msn0 = 1;
    bad_frame("first of two", f, fb_untagged(f, FB_UM, FB_RV | 3, 0, 0, 2, 0, payload, 10), TERM_LAYER_DDP,
              TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER, true, false);
}

/* RFC 5042 section 6.4: a peer cannot keep a message unfinished for ever at no cost */
Test(iwarp_errors, endless_empty_segments_are_refused_at_the_first)
{
    setup();
    bad_frame("untagged", f, fb_untagged(f, FB_UM, FB_RV | 3, 0, 0, 1, 0, NULL, 0), TERM_LAYER_DDP, TERM_DDP_UNTAGGED,
              TERM_DDP_U_INVALID_MO, true, false);
    setup();
    bad_frame("tagged", f, fb_tagged(f, FB_TM, FB_RV, stag_w, BASE_TO, NULL, 0), TERM_LAYER_DDP, TERM_DDP_TAGGED,
              DDP_TAGGED_BOUNDS, true, false);
    setup();
    feed(f, fb_tagged(f, FB_TM, FB_RV, stag_w, BASE_TO, payload, 1));
    cr_expect_eq(poll_one(), 0);
    memory[GUARD] = 0x11;
    bad_frame("tagged, later", f, fb_tagged(f, FB_TM, FB_RV, stag_w, BASE_TO + 1, NULL, 0), TERM_LAYER_DDP,
              TERM_DDP_TAGGED, DDP_TAGGED_BOUNDS, true, false);
    untouched("empty segments");
}

/* ---- Writes ---- */

/* RFC 5041 7.2/1: 1/0, 1/1, 1/3: invalid STag, base or bounds, TO wrap */
/*
 * RFC 5041 7.1/3-6: nothing is placed, the header goes up with the error, what follows is dropped, one message
 * still goes out
 */
/* RFC 5041 8.3 item 5 and RFC 5041 8.3.1/1: the ULP hears of it */
/* RFC 5041 8.3.1 item 3: no "memory outside the buffer" */
/* RFC 5040 8.1.1 item 3: no "memory outside of the buffer" */
/* RFC 5040 4.8/4,5,8-10 and RFC 5040 7.1 rule 2: length and DDP header, no Read Request's */
Test(iwarp_errors, writes_outside_a_region_touch_nothing)
{
    static const struct {
        const char *what;
        int which; /* 0 write, 1 read, 2 local, 3 ring, 4 unknown, 5 zero, 6 wrong key */
        uint64_t to;
        size_t len;
        uint8_t layer, etype, code;
    } rows[] = {
        { "one past the end", 0, BASE_TO, REGION + 1, 1, 1, DDP_TAGGED_BOUNDS },
        { "last octet and one", 0, BASE_TO + REGION - 1, 2, 1, 1, DDP_TAGGED_BOUNDS },
        { "behind the end", 0, BASE_TO + REGION, 1, 1, 1, DDP_TAGGED_BOUNDS },
        { "before the base", 0, BASE_TO - 1, 1, 1, 1, DDP_TAGGED_BOUNDS },
        { "across the base", 0, BASE_TO - 1, 8, 1, 1, DDP_TAGGED_BOUNDS },
        { "low half of the offset only", 0, 0, 8, 1, 1, DDP_TAGGED_BOUNDS },
        { "TO + len wraps", 0, UINT64_MAX - 3, 8, 1, 1, DDP_TAGGED_TO_WRAP },
        { "TO + len is 2^64", 0, UINT64_MAX - 7, 8, 1, 1, DDP_TAGGED_TO_WRAP },
        { "unknown STag", 4, BASE_TO, 8, 1, 1, DDP_TAGGED_INVALID_STAG },
        { "STag 0", 5, BASE_TO, 8, 1, 1, DDP_TAGGED_INVALID_STAG },
        { "wrong key octet", 6, BASE_TO, 8, 1, 1, DDP_TAGGED_INVALID_STAG },
        { "read-only", 1, BASE_TO, 8, 1, 1, DDP_TAGGED_INVALID_STAG },
        { "local only", 2, BASE_TO, 8, 1, 1, DDP_TAGGED_INVALID_STAG },
        { "ring, one past the end", 3, (1 << 16) - 1, 2, 1, 1, DDP_TAGGED_BOUNDS },
        { "ring, wrap", 3, UINT64_MAX, 2, 1, 1, DDP_TAGGED_TO_WRAP },
        { "read-only and out of bounds", 1, BASE_TO + REGION, 8, 1, 1, DDP_TAGGED_BOUNDS },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setup();
        const uint32_t stags[] = { stag_w, stag_r, stag_l, stag_ring, 0x0badf00d, 0, stag_w ^ 1 };

        bad_frame(rows[i].what, f, fb_write(f, stags[rows[i].which], rows[i].to, payload, rows[i].len), rows[i].layer,
                  rows[i].etype, rows[i].code, true, false);
        untouched(rows[i].what);
    }
}

Test(iwarp_errors, writes_inside_touch_the_region_and_not_its_neighbours)
{
    setup();
    feed(f, fb_write(f, stag_w, BASE_TO, payload, REGION));
    cr_expect_eq(poll_one(), 0);
    cr_expect(all(memory + GUARD, REGION, 0x77));
    cr_expect(all(memory, GUARD, 0x11) && all(memory + GUARD + REGION, GUARD, 0x11));
    /* Zero length: nothing is validated, also behind all regions. */
    feed(f, fb_write(f, 0, UINT64_MAX, payload, 0));
    feed(f, fb_write(f, stag_r, 0, payload, 0));
    cr_expect_eq(poll_one(), 0);
    cr_expect_eq(iwarp_state_now(&rx.ep), IWARP_FULL);
    side_free(&rx);
}

/* RFC 5041 4.2/9: each segment contains the same STag */
Test(iwarp_errors, segments_of_a_write_keep_the_stag_and_advance_exactly)
{
    static const struct {
        const char *what;
        bool other_stag;
        uint64_t to;
        uint8_t op, layer, etype, code;
    } rows[] = {
        { "another STag", true, BASE_TO + 4, 0, 1, 1, DDP_TAGGED_INVALID_STAG },
        { "gap", false, BASE_TO + 5, 0, 1, 1, DDP_TAGGED_BOUNDS },
        { "overlap", false, BASE_TO + 3, 0, 1, 1, DDP_TAGGED_BOUNDS },
        { "from the start", false, BASE_TO, 0, 1, 1, DDP_TAGGED_BOUNDS },
        { "a Read Response", false, BASE_TO + 4, 2, 0, 2, TERM_RDMAP_OPCODE },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setup();
        feed(f, fb_tagged(f, FB_TM, FB_RV, stag_w, BASE_TO, payload, 4));
        cr_expect_eq(poll_one(), 0);
        cr_expect(all(memory + GUARD, 4, 0x77));
        memset(memory + GUARD, 0x11, 4);
        bad_frame(rows[i].what, f,
                  fb_tagged(f, FB_TL, (uint8_t)(FB_RV | rows[i].op), rows[i].other_stag ? stag_ring : stag_w,
                            rows[i].to, payload, 4),
                  rows[i].layer, rows[i].etype, rows[i].code, true, false);
        untouched(rows[i].what);
    }
}

/* RFC 5040 8.1.1 item 6, RFC 5041 8.3.1 item 6: nothing is modified after rights were revoked */
/* RFC 5042 6.2.2/2 */
Test(iwarp_errors, stag_revoked_in_the_middle_of_a_message_is_invalid_from_then_on)
{
    setup();
    feed(f, fb_tagged(f, FB_TM, FB_RV, stag_w, BASE_TO, payload, 4));
    cr_expect_eq(poll_one(), 0);
    cr_expect_eq(ddp_stags_revoke(&rx.ep.stags, stag_w), 0);
    memset(memory + GUARD, 0x11, 4);
    bad_frame("revoked", f, fb_tagged(f, FB_TL, FB_RV, stag_w, BASE_TO + 4, payload, 4), TERM_LAYER_DDP,
              TERM_DDP_TAGGED, DDP_TAGGED_INVALID_STAG, true, false);
    untouched("revoked");
}

/* ---- Read Requests ---- */

/* RFC 5040 7.2 read 4/1-5 and RFC 5040 5.2.1/13: the Data Source STag, offset and size */
/* RFC 5040 4.8/6,11 and RFC 5040 7.1 rule 3: the Read Request header comes back */
Test(iwarp_errors, read_requests_are_validated_like_the_rest)
{
    static const struct {
        const char *what;
        int which; /* 0 read, 1 write-only, 2 ring, 3 unknown, 4 zero, 5 local */
        uint64_t to;
        uint32_t len;
        uint8_t code;
    } rows[] = {
        { "one past the end", 0, BASE_TO, REGION + 1, TERM_RDMAP_BOUNDS },
        { "before the base", 0, BASE_TO - 1, 1, TERM_RDMAP_BOUNDS },
        { "4 GiB", 0, BASE_TO, UINT32_MAX, TERM_RDMAP_BOUNDS },
        { "wrap", 0, UINT64_MAX, 1, TERM_RDMAP_TO_WRAP },
        { "up to 2^64 - 1", 0, UINT64_MAX - UINT32_MAX, UINT32_MAX, TERM_RDMAP_BOUNDS },
        { "up to 2^64", 0, UINT64_MAX - UINT32_MAX + 1, UINT32_MAX, TERM_RDMAP_TO_WRAP },
        { "write-only", 1, BASE_TO, 4, TERM_RDMAP_ACCESS },
        { "ring", 2, 0, 4, TERM_RDMAP_ACCESS },
        { "unknown", 3, BASE_TO, 4, TERM_RDMAP_INVALID_STAG },
        { "STag 0", 4, BASE_TO, 4, TERM_RDMAP_INVALID_STAG },
        { "local only", 5, BASE_TO, 4, TERM_RDMAP_ACCESS },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setup();
        const uint32_t stags[] = { stag_r, stag_w, stag_ring, 0x0badf00d, 0, stag_l };

        bad_frame(rows[i].what, f, fb_read_request(f, 1, 1, 0, rows[i].len, stags[rows[i].which], rows[i].to),
                  TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, rows[i].code, true, true);
    }
}

/* RFC 5040 4.2/1: a Read Request has its header and nothing else */
Test(iwarp_errors, read_request_header_must_be_whole_and_alone)
{
    uint8_t hdr[64] = { 0 };

    for (size_t len = 0; len < 64; len++) {
        char what[32];

        if (len == 28)
            continue;
        setup();
        snprintf(what, sizeof(what), "header of %zu", len);
        fb_read_hdr(hdr, 1, 0, 4, stag_r, BASE_TO);
        if (len > 28)
            bad_frame(what, f, fb_untagged(f, FB_UL, FB_RV | 1, 0, 1, 1, 0, hdr, len), TERM_LAYER_DDP,
                      TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG, true, false);
        else
            bad_frame(what, f, fb_untagged(f, FB_UL, FB_RV | 1, 0, 1, 1, 0, hdr, len), TERM_LAYER_RDMAP,
                      TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED, true, false);
    }
    setup();
    fb_read_hdr(hdr, 1, 0, 4, stag_r, BASE_TO);
    bad_frame("not last", f, fb_untagged(f, FB_UM, FB_RV | 1, 0, 1, 1, 0, hdr, 28), TERM_LAYER_DDP, TERM_DDP_UNTAGGED,
              TERM_DDP_U_TOO_LONG, true, false);
}

static void ird_3(struct iwarp_cfg *c)
{
    c->ird = 3;
}

static void ird_0(struct iwarp_cfg *c)
{
    c->ird = 0;
}

/*
 * RFC 5040 5.2.2/3, RFC 5040 6.1/2,5 and RFC 5040 8.1.1 item 11: inbound Reads "MUST NOT exceed the maximum
 * number"
 */
/* RFC 5041 7.2/1: 2/2, no buffer available */
Test(iwarp_errors, one_read_request_more_than_ird_finds_no_buffer)
{
    uint8_t out[1024];

    setup_with(ird_3);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 1; i <= 3; i++) {
            feed(f, fb_read_request(f, 3 * round + i, 1, 0, 4, stag_r, BASE_TO));
            cr_expect_eq(poll_one(), 0);
        }
        if (round < 3)
            cr_expect_eq(drain(out, sizeof(out)), 3 * mpa_fpdu_len(18));
    }
    feed(f, fb_read_request(f, 13, 1, 0, 4, stag_r, BASE_TO));
    cr_expect_eq(poll_one(), -EPROTO);
    expect_terminate("IRD + 1", TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER, f, false);
    side_free(&rx);

    setup_with(ird_0);
    bad_frame("IRD 0", f, fb_read_request(f, 1, 1, 0, 0, 0, 0), TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER,
              true, false);
}

/* RFC 5040 section 4.8: the Read header "is updated to reflect the current location" */
Test(iwarp_errors, a_source_revoked_before_the_answer_ends_the_stream_with_the_reads_place)
{
    uint8_t out[512];
    size_t n;

    setup();
    feed(f, fb_read_request(f, 1, 0xaabb, 77, 100, stag_r, BASE_TO + 1));
    cr_expect_eq(poll_one(), 0);
    cr_expect_eq(ddp_stags_revoke(&rx.ep.stags, stag_r), 0);
    n = drain(out, sizeof(out));
    cr_expect_eq(fb_check(out, n), 18 + 52);
    cr_expect(out[20] == 0x01 && out[21] == 0x00 && out[22] == 0xe0);
    cr_expect_arr_eq(out + 26, f + 2, 18 + 28, "nothing was answered yet, so the headers are the Request's");
    cr_expect_eq(poll_one(), -EPROTO);
    side_free(&rx);
}

/* ---- Read Responses ---- */

static void response_after_read(const char *what, uint32_t ask, uint8_t ctrl, int stag_off, int64_t to_off, size_t len,
                                uint8_t layer, uint8_t etype, uint8_t code)
{
    struct rdmap_read rd = { .sink_to = BASE_TO + 8, .len = ask };
    uint8_t out[256];

    setup();
    rd.sink_stag = stag_l;
    cr_assert_eq(iwarp_post_read(&rx.ep, &rd), 0);
    cr_assert_gt(drain(out, sizeof(out)), 0u);
    bad_frame(what, f,
              fb_tagged(f, ctrl, FB_RV | 2, stag_l + (uint32_t)stag_off, BASE_TO + 8 + (uint64_t)to_off, payload, len),
              layer, etype, code, true, false);
    cr_expect_eq(iwarp_reads_done(&rx.ep), 0, "%s", what);
    untouched(what);
}

/* RFC 5040 section 5.2.2: "MAY validate that the STag, Tagged Offset, and length" are those of the request */
Test(iwarp_errors, read_responses_must_be_what_was_asked_for)
{
    const uint8_t ddp = TERM_LAYER_DDP, tg = TERM_DDP_TAGGED;

    response_after_read("wrong STag", 16, FB_TL, 1, 0, 16, ddp, tg, DDP_TAGGED_INVALID_STAG);
    response_after_read("wrong TO", 16, FB_TL, 0, 1, 16, ddp, tg, DDP_TAGGED_BOUNDS);
    response_after_read("TO before", 16, FB_TL, 0, -1, 16, ddp, tg, DDP_TAGGED_BOUNDS);
    response_after_read("too long", 16, FB_TL, 0, 0, 17, ddp, tg, DDP_TAGGED_BOUNDS);
    response_after_read("far too long", 16, FB_TL, 0, 0, 60000, ddp, tg, DDP_TAGGED_BOUNDS);
    response_after_read("too long, not last", 16, FB_TM, 0, 0, 17, ddp, tg, DDP_TAGGED_BOUNDS);
    response_after_read("too short", 16, FB_TL, 0, 0, 15, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION,
                        TERM_RDMAP_UNSPECIFIED);
    response_after_read("empty", 16, FB_TL, 0, 0, 0, TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED);
    response_after_read("something for nothing", 0, FB_TL, 0, 0, 1, ddp, tg, DDP_TAGGED_BOUNDS);
}

/* RFC 5041 4.2/8: the STag is provided with what is delivered */
Test(iwarp_errors, read_response_into_another_sink_than_named_is_refused)
{
    struct rdmap_read rd = { .sink_to = BASE_TO, .len = 16 };
    static uint8_t second[REGION];
    uint8_t out[256];
    uint32_t stag;

    setup();
    stag = side_region(&rx, second, BASE_TO, REGION, DDP_ACCESS_LOCAL_SINK);
    rd.sink_stag = stag_l;
    cr_assert_eq(iwarp_post_read(&rx.ep, &rd), 0);
    cr_assert_gt(drain(out, sizeof(out)), 0u);
    bad_frame("another sink", f, fb_tagged(f, FB_TL, FB_RV | 2, stag, BASE_TO, payload, 16), TERM_LAYER_DDP,
              TERM_DDP_TAGGED, DDP_TAGGED_INVALID_STAG, true, false);
    cr_expect(all(second, sizeof(second), 0));
    untouched("another sink");
}

Test(iwarp_errors, nothing_can_be_read_from_a_region_without_memory)
{
    uint32_t stag;

    setup();
    stag = side_region(&rx, NULL, 0, 4096, DDP_ACCESS_REMOTE_WRITE | DDP_ACCESS_REMOTE_READ);
    bad_frame("deferred", f, fb_read_request(f, 1, 1, 0, 16, stag, 0), TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION,
              TERM_RDMAP_ACCESS, true, true);
}

/* RFC 5040 section 5.2.2: an invalid Read Response is an error */
Test(iwarp_errors, read_response_nobody_asked_for_is_unexpected)
{
    setup();
    bad_frame("unsolicited", f, fb_tagged(f, FB_TL, FB_RV | 2, stag_l, BASE_TO, payload, 4), TERM_LAYER_RDMAP,
              TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
    setup();
    bad_frame("unsolicited, empty", f, fb_tagged(f, FB_TL, FB_RV | 2, 0, 0, NULL, 0), TERM_LAYER_RDMAP,
              TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, true, false);
    untouched("unsolicited");
}

Test(iwarp_errors, read_response_in_segments_is_checked_to_its_end)
{
    static const struct {
        const char *what;
        uint8_t ctrl;
        uint64_t to;
        size_t len;
        uint8_t layer, etype, code;
    } rows[] = {
        { "gap", FB_TL, 11, 6, 1, 1, DDP_TAGGED_BOUNDS },
        { "ends short", FB_TL, 10, 5, 0, 2, TERM_RDMAP_UNSPECIFIED },
        { "ends short with nothing", FB_TL, 10, 0, 0, 2, TERM_RDMAP_UNSPECIFIED },
        { "too long", FB_TL, 10, 7, 1, 1, DDP_TAGGED_BOUNDS },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rdmap_read rd = { .sink_to = BASE_TO, .len = 16 };
        uint8_t out[256];

        setup();
        rd.sink_stag = stag_l;
        cr_assert_eq(iwarp_post_read(&rx.ep, &rd), 0);
        cr_assert_gt(drain(out, sizeof(out)), 0u);
        feed(f, fb_tagged(f, FB_TM, FB_RV | 2, stag_l, BASE_TO, payload, 10));
        cr_expect_eq(poll_one(), 0);
        cr_expect(all(local + GUARD, 10, 0x77) && all(local + GUARD + 10, REGION - 10, 0x33));
        memset(local + GUARD, 0x33, 10);
        bad_frame(rows[i].what, f,
                  fb_tagged(f, rows[i].ctrl, FB_RV | 2, stag_l, BASE_TO + rows[i].to, payload, rows[i].len),
                  rows[i].layer, rows[i].etype, rows[i].code, true, false);
        untouched(rows[i].what);
    }
}

Test(iwarp_errors, write_to_the_sink_of_a_read_is_no_way_in)
{
    setup();
    bad_frame("Write to a sink", f, fb_write(f, stag_l, BASE_TO, payload, 4), TERM_LAYER_DDP, TERM_DDP_TAGGED,
              DDP_TAGGED_INVALID_STAG, true, false);
    untouched("Write to a sink");
}

/* ---- Send with Invalidate ---- */

/* RFC 5040 5.3/10,11: "STag Cannot be Invalidated" if it is not associated with the stream */
/* RFC 5040 7.2 items 4 and 5: the Invalidate STag is valid, and of this stream */
Test(iwarp_errors, invalidate_takes_a_remote_stag_and_nothing_else)
{
    for (uint8_t op = 4; op <= 6; op += 2) {
        setup();
        feed(f, fb_untagged(f, FB_UL, (uint8_t)(FB_RV | op), stag_w, 0, 1, 0, payload, 4));
        cr_expect_eq(poll_one(), ENDPOINT_SEND);
        msn0 = 1;
        bad_frame("Write after it", f, fb_write(f, stag_w, BASE_TO, payload, 4), TERM_LAYER_DDP, TERM_DDP_TAGGED,
                  DDP_TAGGED_INVALID_STAG, true, false);
        untouched("invalidated");

        for (int i = 0; i < 4; i++) {
            setup();
            const uint32_t stags[] = { 0, stag_l, 0x0badf00d, stag_w ^ 0x80 };

            bad_frame("invalidate", f, fb_untagged(f, FB_UL, (uint8_t)(FB_RV | op), stags[i], 0, 1, 0, payload, 40),
                      TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_CANNOT_INVALIDATE, true, false);
            cr_expect_not_null(ddp_stags_find(&rx.ep.stags, stag_w));
        }
        setup();
        feed(f, fb_untagged(f, FB_UL, (uint8_t)(FB_RV | op), stag_r, 0, 1, 0, payload, 4));
        cr_expect_eq(poll_one(), ENDPOINT_SEND);
        msn0 = 1;
        bad_frame("twice", f, fb_untagged(f, FB_UL, (uint8_t)(FB_RV | op), stag_r, 0, 2, 0, payload, 4),
                  TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_CANNOT_INVALIDATE, true, false);
    }
}

/* RFC 5040 5.3/11: when the Send with Invalidate is delivered */
Test(iwarp_errors, invalidate_waits_for_the_last_segment)
{
    setup();
    feed(f, fb_untagged(f, FB_UM, FB_RV | 4, stag_w, 0, 1, 0, payload, 4));
    cr_expect_eq(poll_one(), 0);
    cr_expect_not_null(ddp_stags_find(&rx.ep.stags, stag_w));
    feed(f, fb_untagged(f, FB_UL, FB_RV | 4, stag_w, 0, 1, 4, payload, 4));
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    cr_expect_null(ddp_stags_find(&rx.ep.stags, stag_w));
    side_free(&rx);
}

Test(iwarp_errors, send_with_se_is_a_send)
{
    setup();
    feed(f, fb_untagged(f, FB_UL, FB_RV | 5, 0, 0, 1, 0, payload, 4));
    cr_expect_eq(poll_one(), ENDPOINT_SEND);
    side_free(&rx);
}

/* ---- Terminate received ---- */

/* RFC 5040 5.4/6,7 and RFC 5040 6.2.1/2: "The RDMAP layer MUST Deliver the Terminate Message to the ULP" */
Test(iwarp_errors, terminate_is_told_once_and_ends_both_directions)
{
    const struct iovec *iov;
    size_t len;
    uint8_t good[64];

    for (size_t n = 0; n <= 60; n++) {
        uint8_t term[64] = { 0x12, 0x03, 0xc0, 0, 0, 22, 0x41, 0x43 };

        setup();
        cr_assert_eq(side_send(&rx, "posted", 6, NULL, 0), 0);
        feed(f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 1, 0, term, n));
        feed(good, fb_send(good, 1, "x", 1));
        cr_expect_eq(poll_one(), ENDPOINT_TERMINATED, "%zu octets", n);
        cr_expect_eq(poll_one(), -EPROTO);
        cr_expect_eq(poll_one(), -EPROTO);
        cr_expect_eq(iwarp_state_now(&rx.ep), IWARP_TERMINATED);
        if (n >= 2)
            cr_expect(iwarp_error(&rx.ep).layer == 1 && iwarp_error(&rx.ep).etype == 2 && iwarp_error(&rx.ep).code == 3,
                      "%zu octets", n);
        else
            cr_expect_eq(iwarp_error(&rx.ep).code, 0xff, "%zu octets", n);
        cr_expect_eq(iwarp_out(&rx.ep, &iov, &len), 0, "a Terminate is not answered");
        cr_expect(!iwarp_ctrl_pending(&rx.ep));
        cr_expect_eq(side_send(&rx, "x", 1, NULL, 0), -EPIPE);
        iwarp_fail(&rx.ep, (struct term_code){ 2, 0, 5 });
        cr_expect_eq(iwarp_state_now(&rx.ep), IWARP_TERMINATED);
        cr_expect_eq(iwarp_out(&rx.ep, &iov, &len), 0);
        side_free(&rx);
    }
}

Test(iwarp_errors, terminate_received_drops_what_was_posted_and_no_count_of_it_remains)
{
    const struct iovec *iov;
    size_t len;

    setup();
    cr_assert_eq(side_send(&rx, "one", 3, payload, 10), 0);
    cr_assert_eq(side_send(&rx, "two", 3, payload, 10), 0);
    cr_assert_gt(iwarp_out(&rx.ep, &iov, &len), 0u);
    feed(f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 1, 0, "\x20\x02\0", 4));
    cr_expect_eq(poll_one(), ENDPOINT_TERMINATED);
    cr_expect_eq(iwarp_out(&rx.ep, &iov, &len), 0);
    iwarp_out_sent(&rx.ep, 20); /* a send that was under way says so only now */
    cr_expect_eq(iwarp_out_detach(&rx.ep).frames, 0, "out said that nothing is left");
    cr_expect_eq(iwarp_out(&rx.ep, &iov, &len), 0);
    side_free(&rx);
}

/* RFC 5040 5.4/4: one Terminate consumes one untagged buffer */
Test(iwarp_errors, terminate_must_be_its_only_segment)
{
    setup();
    bad_frame("L = 0", f, fb_untagged(f, FB_UM, FB_RV | 7, 0, 2, 1, 0, "\x20\x02\0", 4), TERM_LAYER_DDP,
              TERM_DDP_UNTAGGED, TERM_DDP_U_TOO_LONG, true, false);
    setup();
    bad_frame("MO 4", f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 1, 4, "\x20\x02\0", 4), TERM_LAYER_DDP,
              TERM_DDP_UNTAGGED, TERM_DDP_U_INVALID_MO, true, false);
}

Test(iwarp_errors, terminate_as_the_first_fpdu_reaches_a_waiting_responder)
{
    const struct iovec *iov;
    size_t len;

    setup_with(responder);
    feed(f, fb_untagged(f, FB_UL, FB_RV | 7, 0, 2, 1, 0, "\x20\x07\0", 4));
    cr_expect_eq(poll_one(), ENDPOINT_TERMINATED);
    cr_expect_eq(iwarp_error(&rx.ep).code, TERM_MPA_RTR);
    cr_expect_eq(iwarp_out(&rx.ep, &iov, &len), 0);
    side_free(&rx);
}

/* ---- the Terminate on its way out ---- */

/* RFC 5040 5.4/8: after a Terminate the local peer "MUST NOT send any more Messages" */
/* RFC 5041 7.1/6: "one additional DDP Message before terminating the DDP Stream" */
/* RFC 5040 5.4/2,3: untagged, queue two */
Test(iwarp_errors, terminate_follows_what_was_posted_and_nothing_follows_it)
{
    uint8_t out[4096];
    size_t n, first;

    setup();
    cr_assert_eq(side_send(&rx, "posted", 6, payload, 100), 0);
    feed(f, fb_send(f, 9, NULL, 0));
    cr_expect_eq(poll_one(), -EPROTO);
    n = drain(out, sizeof(out));
    cr_expect_eq(fb_check(out, n), 18 + 106);
    first = mpa_fpdu_len(18 + 106);
    cr_expect_eq(fb_check(out + first, n - first), 42);
    cr_expect_eq(out[first + 3], 0x47);
    cr_expect_eq(n, first + mpa_fpdu_len(42));
    side_free(&rx);
}

/* RFC 5040 5.4/5: "MUST guarantee placement of a single Terminate Message" */
Test(iwarp_errors, terminate_fits_behind_a_full_batch)
{
    static uint8_t out[1 << 20];
    size_t n, at = 0, frames = 0;

    setup();
    while (side_send(&rx, "0123456789012345678901234567", 28, payload, 3) == 0)
        frames++;
    cr_expect_eq(frames, 63);
    n = fb_read_request(f, 1, 1, 0, REGION + 1, stag_r, BASE_TO);
    feed(f, n);
    cr_expect_eq(poll_one(), -EPROTO);
    n = drain(out, sizeof(out));
    for (size_t i = 0; i < frames; i++, at += mpa_fpdu_len(18 + 31))
        cr_assert_eq(fb_check(out + at, n - at), 18 + 31, "frame %zu", i);
    cr_expect_eq(fb_check(out + at, n - at), 18 + 52);
    cr_expect_eq(n, at + mpa_fpdu_len(70));
    side_free(&rx);
}

Test(iwarp_errors, terminate_cuts_in_at_the_segment_boundary_of_a_read_response)
{
    static uint8_t big[200000], out[400000];
    struct ddp_region r = { .access = DDP_ACCESS_REMOTE_READ, .len = sizeof(big), .base = big };
    const struct iovec *iov;
    size_t n, len, at = 0, sent = 0;

    setup();
    cr_assert_eq(ddp_stags_add(&rx.ep.stags, &r, prng32, &rx.prng), 0);
    feed(f, fb_read_request(f, 1, 1, 0, sizeof(big), r.stag, 0));
    cr_expect_eq(poll_one(), 0);
    n = iwarp_out(&rx.ep, &iov, &len);
    for (size_t i = 0; i < n; sent += iov[i].iov_len, i++)
        memcpy(out + sent, iov[i].iov_base, iov[i].iov_len);
    iwarp_out_sent(&rx.ep, len);
    cr_expect_lt(sent, sizeof(big));
    cr_expect(iwarp_ctrl_pending(&rx.ep));
    feed(f, fb_send(f, 9, NULL, 0));
    cr_expect_eq(poll_one(), -EPROTO);
    sent += drain(out + sent, sizeof(out) - sent);
    for (; out[at + 3] == 0x42; at += mpa_fpdu_len(fb_get(out + at, 2)))
        cr_assert_geq(fb_check(out + at, sent - at), 14);
    cr_expect_eq(out[at + 3], 0x47);
    cr_expect_eq(sent, at + mpa_fpdu_len(42));
    side_free(&rx);
}

/* RFC 5040 7.1 rule 4: the first "MUST be captured by the Terminate Message" */
Test(iwarp_errors, only_the_first_of_two_errors_is_told)
{
    setup();
    feed(f, fb_untagged(f, FB_UL, FB_RV | 9, 0, 0, 1, 0, payload, 8));
    cr_expect_eq(poll_one(), -EPROTO);
    iwarp_fail(&rx.ep, (struct term_code){ TERM_LAYER_LLP, 0, TERM_MPA_LOCAL });
    expect_terminate("first", TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, f, false);
    side_free(&rx);
}

/* RFC 5040 7.1 rule 1: no headers for what no message was the cause of */
Test(iwarp_errors, the_ulps_own_complaint_goes_out_without_headers)
{
    setup();
    iwarp_fail(&rx.ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED });
    expect_terminate("ULP", TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED, NULL, false);
    side_free(&rx);
}
