/*
 * FPDU framing without markers: RFC 5044 sections 3, 4 and 8. (With markers: test_mpa_marker.c.)
 */
#include "core/mpa/fpdu.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/must.h"

static const struct mpa_framing crc_on = { .crc = true, .markers = false };
static const struct mpa_framing crc_off = { .crc = false, .markers = false };

/* Octet i of the ULPDU a test sends. */
static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 7 + (i >> 8) + 1);
}

/* As a sender does it: the parts need not be contiguous. Returns the FPDU's length. */
static size_t encode(const struct mpa_framing *f, uint8_t *buf, size_t ulpdu_len)
{
    uint32_t state = mpa_fpdu_begin(buf, ulpdu_len);
    for (size_t i = 0; i < ulpdu_len; i++)
        buf[MPA_HDR_LEN + i] = pattern(i);
    state = crc32c_update(state, buf + MPA_HDR_LEN, ulpdu_len);
    uint8_t trailer[MPA_TRAILER_MAX];
    size_t trailer_len = mpa_fpdu_end(f, trailer, ulpdu_len, state);
    memcpy(buf + MPA_HDR_LEN + ulpdu_len, trailer, trailer_len);
    return MPA_HDR_LEN + ulpdu_len + trailer_len;
}

static void set_crc(uint8_t *buf, size_t fpdu_len)
{
    put_le32(buf + fpdu_len - 4, crc32c_final(crc32c_update(CRC32C_INIT, buf, fpdu_len - 4)));
}

static void check_ulpdu(const struct mpa_fpdu *f, const uint8_t *buf, size_t ulpdu_len)
{
    cr_assert_eq(f->ulpdu, buf + MPA_HDR_LEN);
    cr_assert_eq(f->ulpdu_len, ulpdu_len);
    for (size_t i = 0; i < ulpdu_len; i++)
        cr_assert_eq(f->ulpdu[i], pattern(i), "octet %zu of %zu", i, ulpdu_len);
}

/*
 * The segments of RFC 5044 Figures 5 and 6 with their markers left out. The CRCs were computed
 * apart from this program, bit by bit in Python; with the markers put back the same computation
 * gives the figures' values.
 */
static const struct vector {
    const char *name;
    uint8_t octets[48]; /* 2 + 42 + 0 + 4 */
} vectors[] = {
    { "Figure 5 without its marker",
      { [0x01] = 0x2a, [0x02] = 0x41, [0x03] = 0x43, [0x0f] = 0x01, [0x2c] = 0xb7, 0x24, 0x3e, 0xc3 } },
    { "Figure 6 without its marker",
      { [0x01] = 0x2a, [0x02] = 0x41, [0x03] = 0x43, [0x0f] = 0x02, [0x2c] = 0x29, 0x0f, 0xbe, 0xde } },
};

Test(mpa_fpdu, figures_5_and_6_without_markers_decode)
{
    for (size_t v = 0; v < SW_ARRAY_LEN(vectors); v++) {
        uint8_t buf[48];
        struct mpa_fpdu f;
        size_t need;
        memcpy(buf, vectors[v].octets, sizeof(buf));
        cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, sizeof(buf), &f, &need), 48, "%s", vectors[v].name);
        cr_assert_eq(f.ulpdu_len, 42u);
        cr_assert_eq(f.ulpdu[0], 0x41);
    }
}

/* RFC 5044 3/1, RFC 5044 4.1/1 and RFC 5044 4.4/1,8,9: the format, with its CRC */
Test(mpa_fpdu, figures_5_and_6_without_markers_encode)
{
    for (size_t v = 0; v < SW_ARRAY_LEN(vectors); v++) {
        const uint8_t *want = vectors[v].octets;
        uint8_t hdr[2], trailer[MPA_TRAILER_MAX];
        uint32_t state = crc32c_update(mpa_fpdu_begin(hdr, 42), want + 2, 42);
        cr_assert_eq(mpa_fpdu_end(&crc_on, trailer, 42, state), 4u);
        cr_assert_arr_eq(hdr, want, 2);
        cr_assert_arr_eq(trailer, want + 44, 4, "%s", vectors[v].name);
    }
}

/* RFC 5044 4.1/1,2: pad to a multiple of four */
Test(mpa_fpdu, lengths_and_pads_are_those_of_section_4_1)
{
    static const struct {
        size_t ulpdu, pad, fpdu;
    } row[] = {
        { 0, 2, 8 },   { 1, 1, 8 },   { 2, 0, 8 },         { 3, 3, 12 },
        { 14, 0, 20 }, { 42, 0, 48 }, { 64768, 2, 64776 }, { 65535, 3, 65544 },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        uint8_t trailer[MPA_TRAILER_MAX];
        memset(trailer, 0xee, sizeof(trailer));
        cr_assert_eq(mpa_pad_len(row[i].ulpdu), row[i].pad);
        cr_assert_eq(mpa_fpdu_len(row[i].ulpdu), row[i].fpdu);
        cr_assert_eq(mpa_fpdu_end(&crc_off, trailer, row[i].ulpdu, 0), row[i].pad + MPA_CRC_LEN);
        for (size_t at = 0; at < row[i].pad; at++)
            cr_assert_eq(trailer[at], 0, "pad that is not zero");
    }
    for (size_t n = 0; n <= MPA_ULPDU_MAX; n++) {
        cr_assert_eq((MPA_HDR_LEN + n + mpa_pad_len(n)) % 4, 0u);
        cr_assert_leq(mpa_fpdu_len(n), MPA_FPDU_MAX);
        cr_assert_geq(mpa_fpdu_len(n), MPA_FPDU_MIN);
    }
}

static void roundtrip(uint8_t *buf, size_t ulpdu_len)
{
    struct mpa_fpdu f;
    size_t need;
    for (int crc = 0; crc <= 1; crc++) {
        const struct mpa_framing *fr = crc ? &crc_on : &crc_off;
        memset(buf, 0xee, MPA_FPDU_MAX);
        size_t len = encode(fr, buf, ulpdu_len);
        cr_assert_eq(len, mpa_fpdu_len(ulpdu_len));
        for (size_t i = 0; i < mpa_pad_len(ulpdu_len); i++)
            cr_assert_eq(buf[MPA_HDR_LEN + ulpdu_len + i], 0, "the pad must be zero");
        if (!crc)
            cr_assert_eq(get_le32(buf + len - 4), 0u);
        cr_assert_eq(mpa_fpdu_decode(fr, 0, buf, len, &f, &need), (ssize_t)len);
        check_ulpdu(&f, buf, ulpdu_len);
    }
}

/* RFC 5044 4.4/8,10: whatever the pad is, it is in the CRC that is checked behind it */
Test(mpa_fpdu, every_small_and_the_largest_ulpdus_survive)
{
    uint8_t *buf = malloc(MPA_FPDU_MAX);
    for (size_t n = 0; n <= 200; n++)
        roundtrip(buf, n);
    roundtrip(buf, MPA_MULPDU_MAX);
    roundtrip(buf, MPA_ULPDU_MAX - 1);
    roundtrip(buf, MPA_ULPDU_MAX);
    free(buf);
}

/* RFC 5044 6/4: the length field says whether all is there */
Test(mpa_fpdu, every_truncation_asks_for_more_and_says_how_much)
{
    static const size_t lens[] = { 0, 1, 2, 3, 13, 17, 18, 45, 200 };
    for (size_t l = 0; l < SW_ARRAY_LEN(lens); l++) {
        uint8_t whole[256];
        size_t total = encode(&crc_on, whole, lens[l]);
        for (size_t cut = 0; cut < total; cut++) {
            /* Exactly as long as what is there, so that a sanitizer sees a read beyond it. */
            uint8_t *part = malloc(cut ? cut : 1);
            memcpy(part, whole, cut);
            struct mpa_fpdu f = { .ulpdu = whole, .ulpdu_len = 77 };
            size_t need = 0;
            cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, part, cut, &f, &need), -EAGAIN);
            cr_assert_eq(need, cut < MPA_HDR_LEN ? MPA_FPDU_MIN : total, "cut %zu of %zu", cut, total);
            cr_assert(need > cut && need <= total);
            cr_assert(f.ulpdu == whole && f.ulpdu_len == 77, "written without a whole FPDU");
            free(part);
        }
    }
}

/*
 * RFC 5044 5.1/4, RFC 5044 A.4/1, RFC 5044 5.2/1 and RFC 5044 6/2,3: boundaries by the length fields, however the
 * octets come
 */
Test(mpa_fpdu, one_octet_at_a_time_yields_the_fpdus_one_by_one)
{
    uint8_t stream[1024], in[1024];
    size_t end = 0;
    static const size_t lens[] = { 18, 0, 1, 45, 200, 14, 3 };
    for (size_t l = 0; l < SW_ARRAY_LEN(lens); l++)
        end += encode(&crc_on, stream + end, lens[l]);
    size_t have = 0, seen = 0;
    for (size_t i = 0; i < end; i++) {
        in[have++] = stream[i];
        struct mpa_fpdu f;
        size_t need;
        ssize_t n = mpa_fpdu_decode(&crc_on, 0, in, have, &f, &need);
        if (n == -EAGAIN)
            continue;
        cr_assert_eq(n, (ssize_t)have, "an FPDU ended before the octet that completes it");
        cr_assert_lt(seen, SW_ARRAY_LEN(lens));
        check_ulpdu(&f, in, lens[seen++]);
        have = 0;
    }
    cr_assert_eq(seen, SW_ARRAY_LEN(lens));
    cr_assert_eq(have, 0u);
}

/* RFC 5044 3/6 and RFC 5044 4.3/11: each ULPDU with its length */
Test(mpa_fpdu, several_fpdus_in_one_buffer_are_told_apart)
{
    uint8_t stream[1024];
    size_t end = 0, at = 0;
    for (size_t n = 0; n < 20; n++)
        end += encode(&crc_on, stream + end, n);
    for (size_t n = 0; n < 20; n++) {
        struct mpa_fpdu f;
        size_t need;
        ssize_t used = mpa_fpdu_decode(&crc_on, 0, stream + at, end - at, &f, &need);
        cr_assert_eq(used, (ssize_t)mpa_fpdu_len(n));
        check_ulpdu(&f, stream + at, n);
        at += (size_t)used;
    }
    cr_assert_eq(at, end);
}

Test(mpa_fpdu, any_flipped_bit_is_a_bad_crc_or_another_length)
{
    enum { ULPDU = 45 };
    uint8_t buf[MPA_HDR_LEN + ULPDU + MPA_TRAILER_MAX];
    struct mpa_fpdu f;
    size_t need;
    size_t len = encode(&crc_on, buf, ULPDU);
    for (size_t bit = 0; bit < len * 8; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ssize_t n = mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need);
        if (bit < 16 && mpa_fpdu_len(get_be16(buf)) > len)
            cr_assert_eq(n, -EAGAIN, "a longer FPDU is not complete yet");
        else
            cr_assert_eq(n, -EBADMSG, "bit %zu", bit);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need), (ssize_t)len);
}

/* RFC 5044 4.4/11,12 and RFC 5044 6/1,2: verified before anything is passed up */
Test(mpa_fpdu, a_bad_crc_leaves_the_result_alone)
{
    uint8_t buf[64];
    size_t len = encode(&crc_on, buf, 20), need = 5;
    struct mpa_fpdu f = { .ulpdu = NULL, .ulpdu_len = 3 };
    buf[len - 1] ^= 0x80;
    cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need), -EBADMSG);
    cr_assert(f.ulpdu == NULL && f.ulpdu_len == 3 && need == 5);
}

/*
 * Section 7.1.1: "the CRC field MUST be considered valid for FPDU checking regardless of its
 * contents".
 */
/* RFC 5044 4.1/3, RFC 5044 4.4/7 and RFC 5044 7.1.1/10,12: "MUST NOT be checked" */
Test(mpa_fpdu, without_crc_any_crc_field_is_good)
{
    uint8_t buf[64];
    struct mpa_fpdu f;
    size_t need;
    size_t len = encode(&crc_off, buf, 21);
    static const uint32_t garbage[] = { 0, 1, 0xffffffff, 0xdeadbeef };
    for (size_t i = 0; i < SW_ARRAY_LEN(garbage); i++) {
        put_le32(buf + len - 4, garbage[i]);
        cr_assert_eq(mpa_fpdu_decode(&crc_off, 0, buf, len, &f, &need), (ssize_t)len);
        check_ulpdu(&f, buf, 21);
    }
    put_le32(buf + len - 4, 0);
    cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need), -EBADMSG,
                 "a zero field is not good for a receiver that checks");
}

/* Section 4.1: the pad is "ignored by the receiver (except for CRC checking)". */
/* RFC 5044 4.1/2: pad is "ignored by the receiver (except for CRC checking)" */
Test(mpa_fpdu, a_nonzero_pad_with_a_good_crc_is_accepted)
{
    for (size_t n = 0; n < 4; n++) {
        uint8_t buf[64];
        struct mpa_fpdu f;
        size_t need, ulpdu = 40 + n;
        size_t len = encode(&crc_on, buf, ulpdu);
        memset(buf + MPA_HDR_LEN + ulpdu, 0xa5, mpa_pad_len(ulpdu));
        if (mpa_pad_len(ulpdu) > 0)
            cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need), -EBADMSG);
        set_crc(buf, len);
        cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need), (ssize_t)len);
        check_ulpdu(&f, buf, ulpdu);
    }
}

Test(mpa_fpdu, the_buffer_is_not_changed)
{
    uint8_t buf[300], before[300];
    size_t len = encode(&crc_on, buf, 222), need;
    struct mpa_fpdu f;
    memcpy(before, buf, len);
    cr_assert_eq(mpa_fpdu_decode(&crc_on, 0, buf, len, &f, &need), (ssize_t)len);
    cr_assert_arr_eq(buf, before, len);
}

/* Section 4.5: MULPDU = EMSS - (6 + EMSS mod 4); section 3: 128 to 64768. */
/* RFC 5044 3/2,4, RFC 5044 4.5/2,4 and RFC 5044 5.1/1: EMSS - (6 + EMSS mod 4), from 128 to 64768 */
Test(mpa_fpdu, mulpdu_follows_the_formula_within_its_range)
{
    static const struct {
        size_t emss, mulpdu;
    } row[] = {
        { 1460, 1454 },   { 1448, 1442 },   { 1461, 1454 },   { 1463, 1454 },   { 536, 530 },          { 8948, 8942 },
        { 0, 128 },       { 88, 128 },      { 134, 128 },     { 137, 130 },     { 139, 130 },          { 140, 134 },
        { 65483, 64768 }, { 64774, 64766 }, { 64776, 64768 }, { 64772, 64766 }, { (size_t)-1, 64768 },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++)
        cr_assert_eq(mpa_mulpdu(row[i].emss, false), row[i].mulpdu, "EMSS %zu: %zu", row[i].emss,
                     mpa_mulpdu(row[i].emss, false));
    for (size_t emss = 140; emss < 66000; emss++)
        cr_assert_leq(mpa_fpdu_len(mpa_mulpdu(emss, false)), emss, "EMSS %zu", emss);
}
