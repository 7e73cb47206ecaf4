/*
 * The Terminate, RFC 5040 section 4.8: octets sent, octets understood, Linux siw's included.
 */
#include "core/base/bytes.h"
#include "core/rdmap/terminate.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct terminate full(void)
{
    struct terminate t = {
        .code = { TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS },
        .has_len = true,
        .has_ddp_hdr = true,
        .has_read_hdr = true,
        .ddp_segment_len = 46,
        .ddp_hdr_len = 18,
    };

    for (int i = 0; i < 18; i++)
        t.ddp_hdr[i] = (uint8_t)(0x41 + i);
    for (int i = 0; i < 28; i++)
        t.read_hdr[i] = (uint8_t)(0x90 + i);
    return t;
}

Test(terminate, crc_error_goes_out_as_20_02_and_nothing_else)
{
    struct terminate t = { .code = { TERM_LAYER_LLP, 0, TERM_MPA_CRC } };
    uint8_t buf[TERM_MAX];
    static const uint8_t want[4] = { 0x20, 0x02, 0x00, 0x00 };

    cr_assert_eq(terminate_encode(&t, buf), 4);
    cr_expect_arr_eq(buf, want, 4);
}

/* RFC 5040 4.8/1,2,7,10,11: the format of the Terminate header */
Test(terminate, headers_follow_the_length_in_the_order_of_figure_7)
{
    struct terminate t = full();
    uint8_t buf[TERM_MAX];
    static const uint8_t start[6] = { 0x01, 0x02, 0xe0, 0x00, 0x00, 46 };

    cr_assert_eq(terminate_encode(&t, buf), 52);
    cr_expect_arr_eq(buf, start, sizeof(start));
    cr_expect_arr_eq(buf + 6, t.ddp_hdr, 18);
    cr_expect_arr_eq(buf + 24, t.read_hdr, 28);

    t.has_read_hdr = false;
    t.ddp_hdr_len = 14;
    t.ddp_hdr[0] = 0xc1;
    cr_assert_eq(terminate_encode(&t, buf), 20);
    cr_expect_eq(buf[2], 0xc0);

    t.has_ddp_hdr = false; /* the length alone */
    cr_assert_eq(terminate_encode(&t, buf), 6);
    cr_expect_eq(buf[2], 0x80);
    cr_expect_eq(get_be16(buf + 4), 46);
}

/* RFC 5040 4.8/8,9: DDP Segment Length "MUST be present when the D bit is set" */
Test(terminate, length_is_there_whenever_the_ddp_header_is)
{
    struct terminate t = full();
    uint8_t buf[TERM_MAX];

    t.has_len = false;
    cr_assert_eq(terminate_encode(&t, buf), 52);
    cr_expect_eq(buf[2], 0xe0);
}

static bool same(const struct terminate *a, const struct terminate *b)
{
    return a->code.layer == b->code.layer && a->code.etype == b->code.etype && a->code.code == b->code.code &&
           a->has_len == b->has_len && a->has_ddp_hdr == b->has_ddp_hdr && a->has_read_hdr == b->has_read_hdr &&
           a->ddp_segment_len == b->ddp_segment_len && a->ddp_hdr_len == b->ddp_hdr_len &&
           memcmp(a->ddp_hdr, b->ddp_hdr, a->ddp_hdr_len) == 0 &&
           (!a->has_read_hdr || memcmp(a->read_hdr, b->read_hdr, 28) == 0);
}

/* RFC 5040 4.8/3: the values of Figure 9 */
/* RFC 5041 7.2/1: the error numbers */
Test(terminate, what_is_encoded_is_decoded_for_every_known_code)
{
    static const struct term_code codes[] = {
        { 0, 0, 0 }, { 0, 1, 0 }, { 0, 1, 1 }, { 0, 1, 2 }, { 0, 1, 3 }, { 0, 1, 4 },    { 0, 1, 9 }, { 0, 1, 0xff },
        { 0, 2, 5 }, { 0, 2, 6 }, { 0, 2, 7 }, { 0, 2, 8 }, { 0, 2, 9 }, { 0, 2, 0xff }, { 1, 1, 0 }, { 1, 1, 1 },
        { 1, 1, 2 }, { 1, 1, 3 }, { 1, 1, 4 }, { 1, 2, 1 }, { 1, 2, 2 }, { 1, 2, 3 },    { 1, 2, 4 }, { 1, 2, 5 },
        { 1, 2, 6 }, { 2, 0, 1 }, { 2, 0, 2 }, { 2, 0, 3 }, { 2, 0, 4 }, { 2, 0, 5 },    { 2, 0, 6 }, { 2, 0, 7 },
    };
    uint8_t buf[TERM_MAX];

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        struct terminate t = full(), bare = { .code = codes[i] }, got;

        t.code = codes[i];
        cr_assert_eq(terminate_decode(buf, terminate_encode(&t, buf), &got), 0);
        cr_expect(same(&t, &got), "row %zu with headers", i);
        cr_assert_eq(terminate_decode(buf, terminate_encode(&bare, buf), &got), 0);
        cr_expect(same(&bare, &got), "row %zu bare", i);
        cr_expect_str_neq(term_code_text(codes[i]), "unknown error code", "row %zu", i);
    }
}

Test(terminate, linux_siw_with_swapped_nibbles_is_understood)
{
    static const uint8_t crc[4] = { 0x02, 0x02, 0x00, 0x00 };
    /* layer 1 (DDP), etype 2, code 3, M and D in the low bits, an untagged header. */
    uint8_t untagged[4 + 2 + 18] = { 0x21, 0x03, 0x03, 0x00, 0x00, 0x12, 0x41, 0x43 };
    struct terminate t;

    cr_assert_eq(terminate_decode(crc, sizeof(crc), &t), 0);
    cr_expect_eq(t.code.layer, TERM_LAYER_LLP);
    cr_expect_eq(t.code.etype, 0);
    cr_expect_eq(t.code.code, TERM_MPA_CRC);

    cr_assert_eq(terminate_decode(untagged, sizeof(untagged), &t), 0);
    cr_expect_eq(t.code.layer, TERM_LAYER_DDP);
    cr_expect_eq(t.code.etype, TERM_DDP_UNTAGGED);
    cr_expect_eq(t.code.code, TERM_DDP_U_MSN_RANGE);
    cr_expect(t.has_len && t.has_ddp_hdr && !t.has_read_hdr);
    cr_expect_eq(t.ddp_segment_len, 18);
    cr_expect_eq(t.ddp_hdr_len, 18);
}

Test(terminate, etype_3_of_deployed_rnics_counts_as_mpa)
{
    static const uint8_t crc[4] = { 0x23, 0x02, 0x00, 0x00 };
    struct terminate t;

    cr_assert_eq(terminate_decode(crc, sizeof(crc), &t), 0);
    cr_expect_eq(t.code.layer, TERM_LAYER_LLP);
    cr_expect_str_eq(term_code_text(t.code), "MPA: CRC error");
}

Test(terminate, cut_anywhere_it_still_says_why_and_never_reads_further)
{
    struct terminate t = full(), got;
    uint8_t buf[TERM_MAX];

    cr_assert_eq(terminate_encode(&t, buf), TERM_MAX);
    for (size_t n = 0; n < TERM_MAX; n++) {
        int err = terminate_decode(buf, n, &got);

        if (n < 2) {
            cr_expect_eq(err, -EMSGSIZE, "%zu octets", n);
            continue;
        }
        cr_expect_eq(err, 0, "%zu octets", n);
        cr_expect(got.code.layer == 0 && got.code.etype == 1 && got.code.code == 2, "%zu octets", n);
        cr_expect_eq(got.has_len, n >= 6, "%zu octets", n);
        cr_expect_eq(got.has_ddp_hdr, n >= 24, "%zu octets", n);
        cr_expect(!got.has_read_hdr, "%zu octets", n);
    }
}

Test(terminate, unknown_codes_have_a_text_too)
{
    cr_expect_str_eq(term_code_text((struct term_code){ 9, 9, 9 }), "unknown error code");
    cr_expect_str_eq(term_code_text((struct term_code){ 0, 1, 0x55 }), "unknown error code");
}
