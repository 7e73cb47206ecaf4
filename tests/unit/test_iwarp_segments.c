/*
 * The segments of one message as they go out, octet by octet (RFC 5041 sections 4 and 5), and how long a message
 * may be that
 * comes in.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "core/iwarp/iwarp_ops.h"
#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

#define MULPDU 1024u /* as side_cfg has it */

static struct side s;
static uint8_t data[2500], wire[8192];

static void setup(void)
{
    struct iwarp_cfg c;

    side_alloc(&s, 7);
    c = side_cfg(&s, true, 0);
    cr_assert_eq(iwarp_init(&s.ep, &c), 0);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
}

static void teardown(void)
{
    side_free(&s);
}

static size_t drain(void)
{
    const struct iovec *iov;
    size_t n, len, at = 0;

    while ((n = iwarp_out(&s.ep, &iov, &len)) > 0) {
        for (size_t i = 0; i < n; at += iov[i].iov_len, i++) {
            cr_assert_leq(at + iov[i].iov_len, sizeof(wire));
            memcpy(wire + at, iov[i].iov_base, iov[i].iov_len);
        }
        iwarp_out_sent(&s.ep, len);
    }
    return at;
}

/* The ULPDU of the FPDU at *at, which is passed over. */
static const uint8_t *next_ulpdu(size_t *at, size_t end, size_t *len)
{
    const uint8_t *p = wire + *at;
    long n = fb_check(p, end - *at);

    cr_assert_geq(n, 0, "no FPDU at %zu", *at);
    *at += (2 + (size_t)n + 3) / 4 * 4 + 4;
    *len = (size_t)n;
    return p + 2;
}

/*
 * RFC 5041 4.1/3-5: L on the last segment only, which comes last
 * RFC 5041 4.1/8-10: reserved bits zero, DV one, in all segments
 * RFC 5041 4.2/1,2,4,5,7,10,11: the tagged header; RsvdULP and STag are the same in all, and what was given
 * RFC 5041 5.2/1,2,4,7,8: segments up to the MULPDU with all the data, TO from the first one given
 * RFC 5041 5.3/3: in increasing order of TO
 */
/* RFC 5040 5.1/2,5: tagged, to one buffer */
/* RFC 5044 3/3 and RFC 5044 4.5/3: as large as possible, up to MULPDU */
Test(iwarp_segments, those_of_a_write_differ_in_last_bit_and_offset_only, .fini = teardown)
{
    const uint64_t to = 0xfffffffffull - 100;
    size_t end, at = 0, done = 0, len;
    unsigned segments = 0;

    setup();
    cr_assert_eq(side_write(&s, 0xa1b2c3d4, to, data, sizeof(data)), 0);
    end = drain();
    while (at < end) {
        const uint8_t *p = next_ulpdu(&at, end, &len);
        bool last = done + len - 14 == sizeof(data);

        cr_assert(len > 14 && len <= MULPDU, "%zu octets", len);
        cr_expect(last || len == MULPDU, "no shorter than it may be");
        cr_expect_eq(p[0], last ? FB_TL : FB_TM, "%02x at %zu", p[0], done);
        cr_expect_eq(p[1], FB_RV | 0);
        cr_expect_eq(fb_get(p + 2, 4), 0xa1b2c3d4);
        cr_expect_eq((uint64_t)fb_get(p + 6, 4) << 32 | fb_get(p + 10, 4), to + done);
        cr_assert_leq(done + len - 14, sizeof(data));
        cr_expect_arr_eq(p + 14, data + done, len - 14);
        done += len - 14;
        segments++;
    }
    cr_expect_eq(done, sizeof(data));
    cr_expect_eq(segments, 3);
}

/*
 * RFC 5041 4.1/6: the last one has the highest MO
 * RFC 5041 4.3/1,2,4-9,11-13: the untagged header; RsvdULP, QN and MSN are the same in all segments, MSN begins
 * with one and
 * grows with each message, MO begins with zero
 * RFC 5041 5.2/6: MO is the offset in the message
 * RFC 5041 5.2/9: a message without octets is one segment
 * RFC 5041 5.3/2: messages go out in the order of posting
 */
Test(iwarp_segments, those_of_sends_have_the_messages_msn_and_their_own_mo, .fini = teardown)
{
    static const size_t sizes[] = { 2500, 0, 1 };
    struct iov_iter none = iov_iter_init(NULL, 0);
    size_t end, at = 0, len;

    setup();
    for (size_t i = 0; i < 3; i++) {
        struct iovec v = { data, sizes[i] };
        struct iov_iter it = iov_iter_init(&v, 1);

        cr_assert_eq(iwarp_post_send_with(&s.ep, IWARP_INVALIDATE, 0x1234567 + (uint32_t)i, NULL, 0,
                                          sizes[i] ? &it : &none, sizes[i]),
                     0);
    }
    end = drain();
    for (size_t i = 0; i < 3; i++) {
        size_t done = 0;
        bool last;

        do {
            const uint8_t *p = next_ulpdu(&at, end, &len);

            cr_assert(len >= 18 && len <= MULPDU, "%zu octets", len);
            last = done + len - 18 == sizes[i];
            cr_expect_eq(p[0], last ? FB_UL : FB_UM, "%02x at %zu", p[0], done);
            cr_expect_eq(p[1], FB_RV | RDMAP_SEND_INV);
            cr_expect_eq(fb_get(p + 2, 4), 0x1234567 + i);
            cr_expect_eq(fb_get(p + 6, 4), 0, "QN");
            cr_expect_eq(fb_get(p + 10, 4), i + 1, "MSN");
            cr_expect_eq(fb_get(p + 14, 4), done, "MO");
            cr_assert_leq(done + len - 18, sizes[i]);
            if (len > 18)
                cr_expect_arr_eq(p + 18, data + done, len - 18);
            done += len - 18;
        } while (!last);
    }
    cr_expect_eq(at, end, "nothing else");
}

/*
 * RFC 5040 4.1/7,10: queue number; no Invalidate STag
 * RFC 5040 4.2/1, RFC 5040 4.4/1: the Read Request header behind it
 * RFC 5040 5.2.1/1-3,6-8,10,11: untagged, queue one, an MSN each, in the order of posting, one buffer each
 */
Test(iwarp_segments, read_requests_are_one_segment_each_on_queue_one, .fini = teardown)
{
    struct rdmap_read rd[3];
    size_t end, at = 0, len;
    uint32_t sink;

    setup();
    sink = side_region(&s, data, 1u << 16, sizeof(data), DDP_ACCESS_LOCAL_SINK);
    for (uint32_t i = 0; i < 3; i++) {
        rd[i] = (struct rdmap_read){
            .sink_stag = sink,
            .sink_to = (1u << 16) + i,
            .len = i,
            .src_stag = 0x51525300 + i,
            .src_to = UINT64_MAX - 8 + i,
        };
        cr_assert_eq(iwarp_post_read(&s.ep, &rd[i]), 0);
    }
    end = drain();
    for (uint32_t i = 0; i < 3; i++) {
        const uint8_t *p = next_ulpdu(&at, end, &len);
        uint8_t hdr[RDMAP_READ_HDR_LEN];

        cr_assert_eq(len, 18 + sizeof(hdr));
        cr_expect(p[0] == FB_UL && p[1] == (FB_RV | 1), "%02x %02x", p[0], p[1]);
        cr_expect_eq(fb_get(p + 2, 4), 0, "Invalidate STag");
        cr_expect_eq(fb_get(p + 6, 4), 1, "QN");
        cr_expect_eq(fb_get(p + 10, 4), i + 1, "MSN");
        cr_expect_eq(fb_get(p + 14, 4), 0, "MO");
        rdmap_read_encode(&rd[i], hdr);
        cr_expect_arr_eq(p + 18, hdr, sizeof(hdr));
    }
    cr_expect_eq(at, end, "nothing else");
}

/* RFC 5041 5.2/3: "The ULP Message Length MUST be less than 2^32" */
Test(iwarp_segments, a_write_is_shorter_than_two_to_the_32, .fini = teardown)
{
    uint32_t stag;

    for (unsigned more = 0; more < 2; more++) {
        struct endpoint_event ev;
        uint8_t *to;

        setup();
        stag = side_region(&s, NULL, 0, 1ull << 33, DDP_ACCESS_REMOTE_WRITE);
        cr_assert_geq(iwarp_in_space(&s.ep, &to), 256);
        iwarp_in_fed(&s.ep, fb_tagged(to, FB_TM, FB_RV, stag, 0, data, 8));
        cr_assert_eq(iwarp_poll(&s.ep.base, &ev), 1);
        iwarp_release(&s.ep.base, ev.data + ev.len);
        /* As if four gigabytes less twelve octets had come. */
        s.ep.rx.msg_len = UINT32_MAX - 11;
        s.ep.rx.msg_to = UINT32_MAX - 11;
        cr_assert_geq(iwarp_in_space(&s.ep, &to), 256);
        iwarp_in_fed(&s.ep, fb_tagged(to, FB_TL, FB_RV, stag, UINT32_MAX - 11, data, 11 + more));
        cr_expect_eq(iwarp_poll(&s.ep.base, &ev), more ? -EPROTO : 1, "%u more", more);
        if (more) {
            cr_expect_eq(iwarp_error(&s.ep).code, DDP_TAGGED_BOUNDS);
            break;
        }
        side_free(&s);
    }
}
