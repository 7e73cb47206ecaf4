/*
 * DDP headers, RFC 5041 sections 4.1 to 4.3, against octets written out by hand.
 */
#include "core/ddp/segment.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* RDMA Write, not last: STag 0x11223344, TO 0x0102030405060708. */
static const uint8_t tagged[14] = {
    0x81, 0x40, 0x11, 0x22, 0x33, 0x44, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
};
/* Send, last: Invalidate STag 0, QN 0, MSN 1, MO 0x10203. */
static const uint8_t untagged[18] = {
    0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3,
};

/* RFC 5041 4.2/1: the format of tagged segments */
Test(ddp_segment, tagged_header_is_fourteen_octets)
{
    struct ddp_segment seg;
    uint8_t buf[DDP_UNTAGGED_HDR_LEN];

    cr_assert_eq(ddp_segment_decode(tagged, sizeof(tagged), &seg), 14);
    cr_expect(seg.tagged);
    cr_expect(!seg.last);
    cr_expect_eq(seg.version, 1);
    cr_expect_eq(seg.ulp_ctrl, 0x40);
    cr_expect_eq(seg.stag, 0x11223344u);
    cr_expect_eq(seg.to, 0x0102030405060708u);
    cr_assert_eq(ddp_segment_encode(&seg, buf), 14);
    cr_expect_arr_eq(buf, tagged, sizeof(tagged));
}

/* RFC 5041 4.3/1: the format of untagged segments */
Test(ddp_segment, untagged_header_is_eighteen_octets)
{
    struct ddp_segment seg;
    uint8_t buf[DDP_UNTAGGED_HDR_LEN];

    cr_assert_eq(ddp_segment_decode(untagged, sizeof(untagged), &seg), 18);
    cr_expect(!seg.tagged);
    cr_expect(seg.last);
    cr_expect_eq(seg.ulp_ctrl, 0x43);
    cr_expect_eq(seg.qn, 0);
    cr_expect_eq(seg.msn, 1);
    cr_expect_eq(seg.mo, 0x10203);
    cr_assert_eq(ddp_segment_encode(&seg, buf), 18);
    cr_expect_arr_eq(buf, untagged, sizeof(untagged));
}

/* RFC 5041 4.4/1: each segment has a DDP header */
Test(ddp_segment, header_cut_at_any_octet_is_refused)
{
    struct ddp_segment seg;

    for (size_t n = 0; n < sizeof(tagged); n++)
        cr_expect_eq(ddp_segment_decode(tagged, n, &seg), -EMSGSIZE, "tagged, %zu octets", n);
    for (size_t n = 0; n < sizeof(untagged); n++)
        cr_expect_eq(ddp_segment_decode(untagged, n, &seg), -EMSGSIZE, "untagged, %zu octets", n);
}

/* RFC 5041 4.1/8: Rsvd "not checked on receive" */
Test(ddp_segment, version_is_reported_and_reserved_bits_are_not_looked_at)
{
    uint8_t buf[sizeof(tagged)];
    struct ddp_segment seg;

    memcpy(buf, tagged, sizeof(buf));
    for (unsigned dv = 0; dv < 4; dv++) {
        buf[0] = (uint8_t)(0x80 | 0x3c | dv);
        cr_assert_eq(ddp_segment_decode(buf, sizeof(buf), &seg), 14);
        cr_expect_eq(seg.version, dv);
        cr_expect(seg.tagged && !seg.last);
    }
}

/* RFC 5041 4.1/8,9: DV "MUST be set to one", Rsvd to zero */
Test(ddp_segment, version_one_is_sent_whatever_was_received)
{
    struct ddp_segment seg = { .tagged = true, .last = true, .version = 3 };
    uint8_t buf[DDP_UNTAGGED_HDR_LEN];

    cr_assert_eq(ddp_segment_encode(&seg, buf), 14);
    cr_expect_eq(buf[0], 0xc1);
}
