/*
 * RDMAP control octet, opcode rules (RFC 5040 Figure 4) and the Read Request header (section 4.4).
 */
#include "core/rdmap/rdmap.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* RFC 5040 4.1/1,2,8,9: the control field */
Test(rdmap, control_octet_holds_version_one_and_the_opcode)
{
    cr_expect_eq(rdmap_ctrl(RDMAP_WRITE), 0x40);
    cr_expect_eq(rdmap_ctrl(RDMAP_SEND), 0x43);
    cr_expect_eq(rdmap_ctrl(RDMAP_TERMINATE), 0x47);
    for (unsigned rv = 0; rv < 4; rv++) {
        /* Bits 26 and 27 are reserved and ignored. */
        cr_expect_eq(rdmap_ctrl_version((uint8_t)(rv << 6 | 0x35)), rv);
        cr_expect_eq(rdmap_ctrl_opcode((uint8_t)(rv << 6 | 0x35)), 5);
    }
}

/* RFC 5040 4.1/4,5,7: Figure 4 */
/* RFC 5040 5.2.1/7: queue 1 for Read Requests */
/* RFC 5040 5.3/5: queue 0 for Sends */
/* RFC 5040 5.4/3: queue 2 for the Terminate */
/* RFC 7306 6.3/1,2,5: untagged, queue 0 for Immediate Data */
Test(rdmap, opcode_rules_follow_figure_4_of_rfc_5040_and_rfc_7306)
{
    static const struct {
        bool tagged;
        int qn;
    } want[12] = {
        { true, -1 }, { false, 1 }, { true, -1 }, { false, 0 }, { false, 0 }, { false, 0 },
        { false, 0 }, { false, 2 }, { false, 0 }, { false, 0 }, { false, 1 }, { false, 3 },
    };

    for (int op = 0; op < 16; op++) {
        const struct rdmap_opcode_rule *r = &rdmap_opcode_rules[op];

        if (op >= 12) {
            cr_expect_null(r->name, "opcode %d", op);
            continue;
        }
        cr_expect_not_null(r->name, "opcode %d", op);
        cr_expect_eq(r->tagged, want[op].tagged, "opcode %d", op);
        if (!r->tagged)
            cr_expect_eq(r->qn, want[op].qn, "opcode %d", op);
    }
}

static const uint8_t read_hdr[28] = {
    0xa1, 0xa2, 0xa3, 0xa4, 1,    2,    3, 4,  5,  6,  7,  8,  0xff, 0xff,
    0xff, 0xff, 0xb1, 0xb2, 0xb3, 0xb4, 9, 10, 11, 12, 13, 14, 15,   16,
};

/* RFC 5040 4.4/1: the RDMA Read Request header */
Test(rdmap, read_header_is_twenty_eight_octets_in_network_order)
{
    struct rdmap_read rd;
    uint8_t buf[RDMAP_READ_HDR_LEN];

    cr_assert_eq(rdmap_read_decode(read_hdr, sizeof(read_hdr), &rd), 0);
    cr_expect_eq(rd.sink_stag, 0xa1a2a3a4u);
    cr_expect_eq(rd.sink_to, 0x0102030405060708u);
    cr_expect_eq(rd.len, UINT32_MAX);
    cr_expect_eq(rd.src_stag, 0xb1b2b3b4u);
    cr_expect_eq(rd.src_to, 0x090a0b0c0d0e0f10u);
    rdmap_read_encode(&rd, buf);
    cr_expect_arr_eq(buf, read_hdr, sizeof(buf));
}

/* RFC 5040 4.2/1 and RFC 5040 4.4/1: neither shorter nor longer */
Test(rdmap, read_header_of_any_other_length_is_refused)
{
    uint8_t buf[64] = { 0 };
    struct rdmap_read rd;

    for (size_t n = 0; n <= sizeof(buf); n++)
        cr_expect_eq(rdmap_read_decode(buf, n, &rd), n == 28 ? 0 : -EMSGSIZE, "%zu octets", n);
}
