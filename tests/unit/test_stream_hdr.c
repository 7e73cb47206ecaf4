/*
 * Stream headers and parameters: octet by octet as DESIGN sections 3 and 4 give them, there and back, cut at every
 * octet, and with values that make no sense.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "core/mpa/startup.h"
#include "core/stream/stream.h"

Test(stream_hdr, fields_lie_where_the_design_says)
{
    static const uint8_t want[STREAM_HDR_LEN] = {
        0x02, 0x01, 0x11, 0x12, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44,
    };
    struct stream_hdr h = {
        .type = STREAM_CREDIT,
        .flags = STREAM_HDR_ANSWER,
        .bufs = 0x1112,
        .off = 0x21222324,
        .ring = 0x31323334,
        .aux = 0x41424344,
    };
    uint8_t buf[STREAM_HDR_LEN];

    stream_hdr_encode(&h, buf);
    cr_assert_arr_eq(buf, want, sizeof(want));
}

Test(stream_hdr, what_goes_in_comes_out)
{
    for (unsigned type = STREAM_DATA; type <= STREAM_RESET; type++) {
        struct stream_hdr h = {
            .type = (uint8_t)type,
            .flags = 0xfe,
            .bufs = 0xffff,
            .off = 0xfffffffe,
            .ring = 7,
            .aux = 0x80000000,
        };
        struct stream_hdr got;
        uint8_t buf[STREAM_HDR_LEN + 3];

        memset(&got, 0xaa, sizeof(got));
        stream_hdr_encode(&h, buf);
        /* What follows is the message's. */
        cr_assert_eq(stream_hdr_decode(buf, sizeof(buf), &got), 0);
        cr_expect_eq(got.type, h.type);
        cr_expect_eq(got.flags, h.flags);
        cr_expect_eq(got.bufs, h.bufs);
        cr_expect_eq(got.off, h.off);
        cr_expect_eq(got.ring, h.ring);
        cr_expect_eq(got.aux, h.aux);
    }
}

Test(stream_hdr, every_cut_is_too_short)
{
    uint8_t buf[STREAM_HDR_LEN] = { STREAM_DATA };
    struct stream_hdr h;

    for (size_t len = 0; len < sizeof(buf); len++)
        cr_expect_eq(stream_hdr_decode(buf, len, &h), -EMSGSIZE, "%zu octets", len);
    cr_expect_eq(stream_hdr_decode(buf, sizeof(buf), &h), 0);
}

Test(stream_hdr, all_but_four_types_are_refused)
{
    uint8_t buf[STREAM_HDR_LEN] = { 0 };
    struct stream_hdr h;

    for (unsigned type = 0; type < 256; type++) {
        buf[0] = (uint8_t)type;
        cr_expect_eq(stream_hdr_decode(buf, sizeof(buf), &h), type >= STREAM_DATA && type <= STREAM_RESET ? 0 : -EPROTO,
                     "%u", type);
    }
}

static struct stream_params sample(void)
{
    return (struct stream_params){
        .version = 1,
        .flags = STREAM_FLAG_LLP,
        .ring_stag = 0x01020304,
        .ring_len = 0x00112200,
        .eager_max = 0x8001,
        .bufs = 0x0203,
    };
}

Test(stream_params, fields_lie_where_the_design_says)
{
    static const uint8_t want[STREAM_PARAMS_LEN] = {
        'S', 'W', 1, 1, 0x01, 0x02, 0x03, 0x04, 0x00, 0x11, 0x22, 0x00, 0x80, 0x01, 0x02, 0x03,
    };
    struct stream_params p = sample(), got;
    uint8_t buf[STREAM_PARAMS_LEN];

    stream_params_encode(&p, buf);
    cr_assert_arr_eq(buf, want, sizeof(want));
    memset(&got, 0, sizeof(got));
    cr_assert_eq(stream_params_decode(buf, sizeof(buf), &got), 0);
    cr_expect_eq(got.version, p.version);
    cr_expect_eq(got.flags, p.flags);
    cr_expect_eq(got.ring_stag, p.ring_stag);
    cr_expect_eq(got.ring_len, p.ring_len);
    cr_expect_eq(got.eager_max, p.eager_max);
    cr_expect_eq(got.bufs, p.bufs);
}

/* Linux siw passes on no more than 251 octets, and the enhanced word stands before ours. */
Test(stream_params, they_fit_the_private_data_of_every_peer)
{
    cr_expect_leq(STREAM_PARAMS_LEN, 251u);
    cr_expect_leq(STREAM_PARAMS_LEN + MPA_ENHANCED_LEN, MPA_PRIVATE_MAX);
}

Test(stream_params, every_cut_is_too_short_and_more_is_passed_over)
{
    struct stream_params p = sample();
    uint8_t buf[STREAM_PARAMS_LEN + 8] = { 0 };

    stream_params_encode(&p, buf);
    for (size_t len = 0; len < STREAM_PARAMS_LEN; len++)
        cr_expect_eq(stream_params_decode(buf, len, &p), -EMSGSIZE, "%zu octets", len);
    for (size_t len = STREAM_PARAMS_LEN; len <= sizeof(buf); len++)
        cr_expect_eq(stream_params_decode(buf, len, &p), 0, "%zu octets", len);
}

Test(stream_params, values_without_sense_are_refused)
{
    static const struct {
        const char *what;
        size_t at;
        uint8_t octets[4];
        size_t n;
        int result;
    } rows[] = {
        { "no S", 0, { 'X' }, 1, -EPROTO },
        { "no W", 1, { 'w' }, 1, -EPROTO },
        { "version 0", 2, { 0 }, 1, -EPROTO },
        { "version 2", 2, { 2 }, 1, -EPROTO },
        { "unknown flags", 3, { 0xff }, 1, 0 },
        { "no ring", 8, { 0, 0, 0, 0 }, 4, -EPROTO },
        { "ring below the least", 8, { 0, 0, 0x0f, 0xff }, 4, -EPROTO },
        { "least ring", 8, { 0, 0, 0x10, 0 }, 4, 0 },
        { "largest ring", 8, { 0x40, 0, 0, 0 }, 4, 0 },
        { "ring above the largest", 8, { 0x40, 0, 0, 1 }, 4, -EPROTO },
        { "nothing eager", 12, { 0, 0 }, 2, -EPROTO },
        { "one eager octet", 12, { 0, 1 }, 2, 0 },
        { "buffers do not matter to the LLP", 14, { 0, 0 }, 2, 0 },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct stream_params p = sample();
        uint8_t buf[STREAM_PARAMS_LEN];

        stream_params_encode(&p, buf);
        memcpy(buf + rows[i].at, rows[i].octets, rows[i].n);
        cr_expect_eq(stream_params_decode(buf, sizeof(buf), &p), rows[i].result, "%s", rows[i].what);
    }
}

Test(stream_params, with_credits_there_must_be_more_buffers_than_are_kept_back)
{
    for (unsigned bufs = 0; bufs < 5; bufs++) {
        struct stream_params p = sample();
        uint8_t buf[STREAM_PARAMS_LEN];

        p.flags = 0;
        p.bufs = (uint16_t)bufs;
        stream_params_encode(&p, buf);
        cr_expect_eq(stream_params_decode(buf, sizeof(buf), &p), bufs > STREAM_BUFS_KEPT ? 0 : -EPROTO, "%u", bufs);
    }
}
