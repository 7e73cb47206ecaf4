/*
 * Markers: RFC 5044 sections 4.2, 4.3 and 8, sending and receiving, at any place of the stream and
 * with any cut of the input.
 */
#include "core/mpa/fpdu.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/must.h"

static const struct mpa_framing marked = { .crc = true, .markers = true };
static const struct mpa_framing marked_no_crc = { .crc = false, .markers = true };

/* Octet i of the ULPDU a test sends: no zeros, so that a marker left inside is seen. */
static uint8_t pattern(size_t i)
{
    return (uint8_t)(i % 251 + 1);
}

/* The ULPDU in pieces of at most `piece` octets, as headers and payload are. */
static size_t encode(const struct mpa_framing *f, uint64_t pos, uint8_t *buf, size_t ulpdu_len, size_t piece)
{
    static uint8_t ulpdu[MPA_ULPDU_MAX];
    struct mpa_marked m;
    for (size_t i = 0; i < ulpdu_len; i++)
        ulpdu[i] = pattern(i);
    size_t n = mpa_marked_begin(&m, f, pos, buf, ulpdu_len);
    for (size_t at = 0, l; at < ulpdu_len; at += l) {
        l = ulpdu_len - at < piece ? ulpdu_len - at : piece;
        size_t put = mpa_marked_put(&m, buf + n, ulpdu + at, l);
        cr_assert_leq(put, MPA_MARKED_MAX(l));
        n += put;
    }
    return n + mpa_marked_end(&m, buf + n);
}

/*
 * The same by the words of the standard, octet by octet and without the code under test: an FPDU
 * without markers, then a marker before each octet whose number is a multiple of 512.
 */
static size_t model(bool crc, uint64_t pos, uint8_t *buf, size_t ulpdu_len)
{
    static uint8_t plain[MPA_FPDU_MAX];
    size_t len = 0, n = 0, field = 0;
    plain[len++] = (uint8_t)(ulpdu_len >> 8);
    plain[len++] = (uint8_t)ulpdu_len;
    for (size_t i = 0; i < ulpdu_len; i++)
        plain[len++] = pattern(i);
    while (len % 4 != 0)
        plain[len++] = 0;
    for (size_t i = 0; i < len + 4; i++) {
        if ((pos + n) % 512 == 0) {
            size_t ptr = i == 0 ? 0 : n - field;
            buf[n++] = 0;
            buf[n++] = 0;
            buf[n++] = (uint8_t)(ptr >> 8);
            buf[n++] = (uint8_t)ptr;
        }
        if (i == 0)
            field = n;
        buf[n++] = i < len ? plain[i] : 0;
    }
    if (crc)
        put_le32(buf + n - 4, crc32c_final(crc32c_update(CRC32C_INIT, buf, n - 4)));
    return n;
}

static void check_ulpdu(const struct mpa_fpdu *f, size_t ulpdu_len)
{
    cr_assert_eq(f->ulpdu_len, ulpdu_len);
    for (size_t i = 0; i < ulpdu_len; i++)
        cr_assert_eq(f->ulpdu[i], pattern(i), "octet %zu of %zu", i, ulpdu_len);
}

static void set_crc(uint8_t *buf, size_t len)
{
    put_le32(buf + len - 4, crc32c_final(crc32c_update(CRC32C_INIT, buf, len - 4)));
}

/* ---- the standard's own octets ---- */

static const uint8_t figure_5[52] = {
    [0x05] = 0x2a, 0x41, 0x43, [0x13] = 0x01, [0x30] = 0x52, 0x23, 0x99, 0x83,
};
static const uint8_t figure_6[52] = {
    [0x01] = 0x2a, 0x41,          0x43, [0x0f] = 0x02, /* from 0x1ec on */
    [0x17] = 0x14, [0x30] = 0x84, 0x92, 0x58,          0x98,
};

static void check_figure(const uint8_t *figure, uint64_t pos)
{
    uint8_t buf[52], ulpdu[42];
    struct mpa_fpdu f;
    struct mpa_marked m;
    size_t need;
    memcpy(buf, figure, sizeof(buf));
    cr_assert_eq(mpa_fpdu_decode(&marked, pos, buf, sizeof(buf), &f, &need), 52);
    cr_assert_eq(f.ulpdu_len, 42u);
    memcpy(ulpdu, f.ulpdu, 42);
    cr_assert_eq(ulpdu[0], 0x41);
    cr_assert_eq(ulpdu[1], 0x43);
    size_t n = mpa_marked_begin(&m, &marked, pos, buf, 42);
    n += mpa_marked_put(&m, buf + n, ulpdu, 18);
    n += mpa_marked_put(&m, buf + n, ulpdu + 18, 24);
    n += mpa_marked_end(&m, buf + n);
    cr_assert_eq(n, 52u);
    cr_assert_arr_eq(buf, figure, 52);
}

/*
 * RFC 5044 4.2/1 and RFC 5044 4.4/9: Figure 5, the first FPDU of a stream; Figure 6, one with a marker in its
 * middle.
 */
Test(mpa_marker, figures_5_and_6_decode_and_encode)
{
    check_figure(figure_5, 0);
    check_figure(figure_6, 0x1ec);
}

/* The 2002 draft: DV 0, and FPDUPTR counted from the FPDU's start; its CRC, checked as is. */
Test(mpa_marker, the_drafts_figure_5_has_the_drafts_crc)
{
    uint8_t buf[52];
    struct mpa_fpdu f;
    size_t need;
    memcpy(buf, figure_5, 48);
    buf[6] = 0x40;
    buf[7] = 0x03;
    put_le32(buf + 48, 0x84b3864c); /* 4C 86 B3 84 */
    cr_assert_eq(mpa_fpdu_decode(&marked, 0, buf, sizeof(buf), &f, &need), 52);
}

/* RFC 5044 4.3/3: Figure 4. */
Test(mpa_marker, figure_4_has_its_marker_after_12_octets)
{
    uint8_t buf[64];
    struct mpa_fpdu f;
    size_t need, len = encode(&marked, 512 - 12, buf, 16, 16);
    cr_assert_eq(len, 28u);
    cr_assert_eq(get_be16(buf), 0x0010);
    cr_assert_eq(get_be32(buf + 12), 0x0000000cu);
    cr_assert_eq(get_be16(buf + 22), 0, "the pad");
    cr_assert_eq(mpa_fpdu_decode(&marked, 512 - 12, buf, len, &f, &need), (ssize_t)len);
    check_ulpdu(&f, 16);
}

/* ---- both directions against the model ---- */

static void check_at(uint64_t pos, size_t ulpdu_len, size_t piece)
{
    static uint8_t got[MPA_FPDU_MARKED_MAX], want[MPA_FPDU_MARKED_MAX];
    struct mpa_fpdu f;
    size_t need;
    for (int crc = 0; crc <= 1; crc++) {
        const struct mpa_framing *fr = crc ? &marked : &marked_no_crc;
        size_t n = model(crc, pos, want, ulpdu_len);
        cr_assert_eq(encode(fr, pos, got, ulpdu_len, piece), n);
        cr_assert_arr_eq(got, want, n, "at %llu, %zu octets", (unsigned long long)pos, ulpdu_len);
        cr_assert_eq(mpa_fpdu_wire_len(fr, pos, ulpdu_len), n);
        cr_assert_eq(mpa_fpdu_decode(fr, pos, got, n, &f, &need), (ssize_t)n);
        check_ulpdu(&f, ulpdu_len);
    }
}

/*
 * RFC 5044 4.2/2,3 and RFC 5044 4.3/1,2,7,9,10: "inserted immediately preceding the first FPDU of Full Operation
 * Phase, and at every
 * 512th octet of the TCP octet stream thereafter": at every place an FPDU can start, with lengths
 * that put markers everywhere: before it, in headers, in the payload, before the CRC, behind it.
 */
Test(mpa_marker, at_every_place_and_with_every_length_up_to_two_intervals)
{
    for (uint64_t pos = 0; pos < 512; pos += 4)
        for (size_t len = 0; len < 1100; len += pos % 64 == 0 || len > 460 ? 1 : 7)
            check_at(pos, len, len % 3 ? 14 : 97);
}

Test(mpa_marker, large_ones)
{
    static const size_t lens[] = { 1442, 8942, 32768, 64767, MPA_MULPDU_MAX };
    for (size_t i = 0; i < SW_ARRAY_LEN(lens); i++)
        for (uint64_t pos = 0; pos < 512; pos += 100)
            check_at(pos, lens[i], 1 << 15);
}

/* RFC 5044 4.3/4,7: "Note that SeqNum can wrap." */
Test(mpa_marker, beyond_2_to_the_32_and_where_the_count_wraps)
{
    static const uint64_t at[] = {
        0xfffffffcull,   0x100000000ull,        0x100000004ull,        0xfffffe00ull,
        0x7ffffffffcull, 0xfffffffffffffffcull, 0xfffffffffffffe04ull,
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(at); i++)
        for (size_t len = 0; len < 1100; len += 3)
            check_at(at[i], len, 18);
}

/* RFC 5044 4.3/8: "If an FPDU is large enough to contain multiple Markers, they MUST all point to the
 * same point in the TCP stream: the first octet of the ULPDU Length field for the FPDU." */
Test(mpa_marker, all_markers_of_an_fpdu_point_to_its_length_field)
{
    static uint8_t buf[MPA_FPDU_MARKED_MAX];
    size_t len = encode(&marked, 0, buf, 5000, 5000);
    cr_assert_eq(get_be32(buf), 0u, "the leading one is zero");
    for (size_t at = 512; at < len; at += 512) {
        cr_assert_eq(get_be32(buf + at), at - 4);
        cr_assert_eq(get_be32(buf + at) & 3u, 0u);
    }
    cr_assert_eq(get_be32(buf + 512), 508u);
    cr_assert_eq(get_be32(buf + 1024), 1020u);
}

/* RFC 5044 4.3/4: "this computation MUST take into account that the TCP sequence number could have
 * wrapped between the Marker and the header". */
Test(mpa_marker, a_marker_behind_the_wrap_points_before_it)
{
    uint8_t buf[128];
    size_t len = encode(&marked, 0xfffffff0u, buf, 60, 60);
    cr_assert_eq(get_be32(buf + 16), 16u);
    struct mpa_fpdu f;
    size_t need;
    cr_assert_eq(mpa_fpdu_decode(&marked, 0xfffffff0u, buf, len, &f, &need), (ssize_t)len);
    check_ulpdu(&f, 60);
}

/* One after the other: a marker on the boundary of two FPDUs belongs to the second. */
/* RFC 5044 4.3/11,12: ULPDU and length, no Markers */
Test(mpa_marker, a_stream_of_fpdus_octet_by_octet)
{
    enum { N = 400 };
    static uint8_t stream[N * 1200], in[4096];
    static size_t lens[N];
    size_t end = 0, have = 0, seen = 0;
    uint64_t base = 0xfffff000u, head; /* passes 2^32 */
    unsigned between = 0, before_crc = 0;
    for (size_t i = 0; i < N; i++) {
        lens[i] = i % 5 == 4 ? 486 : i * 37 % 700;
        if ((base + end) % 512 == 0 && end > 0)
            between++;
        end += encode(&marked, base + end, stream + end, lens[i], 14);
        if ((base + end - 8) % 512 == 0)
            before_crc++;
    }
    cr_assert_gt(between, 0u);
    cr_assert_gt(before_crc, 0u);
    head = base;
    for (size_t i = 0; i < end; i++) {
        struct mpa_fpdu f;
        size_t need = 0;
        in[have++] = stream[i];
        ssize_t n = mpa_fpdu_decode(&marked, head, in, have, &f, &need);
        if (n == -EAGAIN) {
            cr_assert_gt(need, have);
            cr_assert_leq(need, mpa_fpdu_wire_len(&marked, head, lens[seen]));
            size_t expect = mpa_fpdu_expect(&marked, head, in, have);
            cr_assert(expect == need || (expect == 0 && have < 6));
            continue;
        }
        cr_assert_eq(n, (ssize_t)have, "FPDU %zu: %zd", seen, n);
        check_ulpdu(&f, lens[seen++]);
        head += have;
        have = 0;
    }
    cr_assert_eq(seen, (size_t)N);
    cr_assert_eq(have, 0u);
}

Test(mpa_marker, every_truncation_asks_for_more_and_changes_nothing)
{
    static const uint64_t at[] = { 0, 4, 500, 508 };
    for (size_t a = 0; a < SW_ARRAY_LEN(at); a++) {
        uint8_t whole[1300];
        size_t total = encode(&marked, at[a], whole, 1100, 1100);
        for (size_t cut = 0; cut < total; cut++) {
            uint8_t *part = malloc(cut ? cut : 1); /* so that a sanitizer sees a read beyond it */
            memcpy(part, whole, cut);
            struct mpa_fpdu f = { .ulpdu = whole, .ulpdu_len = 77 };
            size_t need = 0;
            cr_assert_eq(mpa_fpdu_decode(&marked, at[a], part, cut, &f, &need), -EAGAIN);
            cr_assert(need > cut && need <= total);
            cr_assert(f.ulpdu == whole && f.ulpdu_len == 77);
            cr_assert_arr_eq(part, whole, cut);
            free(part);
        }
    }
}

/* ---- what a receiver must and must not mind ---- */

/* RFC 5044 8 code 3/1,3: "received MPA Marker (if enabled) and ULPDU Length fields do not agree". */
Test(mpa_marker, each_wrong_marker_is_found_and_leaves_the_buffer_alone)
{
    static const uint64_t at[] = { 0, 200 };
    for (size_t a = 0; a < SW_ARRAY_LEN(at); a++) {
        uint8_t buf[2200], before[2200];
        size_t len = encode(&marked, at[a], buf, 2000, 2000);
        for (size_t mark = (size_t)(-at[a] % 512); mark < len; mark += 512)
            for (unsigned bit = 2; bit < 16; bit++) {
                struct mpa_fpdu f = { .ulpdu = NULL, .ulpdu_len = 3 };
                size_t need = 5;
                uint16_t right = get_be16(buf + mark + 2);
                put_be16(buf + mark + 2, (uint16_t)(right ^ 1u << bit));
                cr_assert_eq(mpa_fpdu_decode(&marked, at[a], buf, len, &f, &need), -EBADMSG,
                             "a damaged one is the CRC's");
                set_crc(buf, len);
                memcpy(before, buf, len);
                cr_assert_eq(mpa_fpdu_decode(&marked, at[a], buf, len, &f, &need), -EILSEQ);
                cr_assert_eq(mpa_fpdu_decode(&marked_no_crc, at[a], buf, len, &f, &need), -EILSEQ);
                cr_assert(f.ulpdu == NULL && f.ulpdu_len == 3 && need == 5);
                cr_assert_arr_eq(buf, before, len);
                put_be16(buf + mark + 2, right);
                set_crc(buf, len);
            }
    }
}

/* A sender whose count is off by 4 puts the marker where we expect payload. */
Test(mpa_marker, a_marker_that_stands_4_octets_off_is_found)
{
    for (int by = -4; by <= 4; by += 8) {
        uint8_t buf[1300];
        struct mpa_fpdu f;
        size_t need;
        uint64_t pos = 100;
        size_t len = encode(&marked, pos + (uint64_t)by, buf, 1000, 1000);
        cr_assert_eq(mpa_fpdu_decode(&marked, pos, buf, len, &f, &need), -EILSEQ);
    }
}

/*
 * RFC 5044 4.2/2,4 and RFC 5044 4.3/6: "Reserved field MUST be set to zero on transmit and ignored on receive
 * (except for
 * CRC calculation)"; the pointer's low two bits: "receivers MUST always treat these as zero".
 */
Test(mpa_marker, reserved_bits_of_a_marker_are_ignored_but_covered_by_the_crc)
{
    static const uint8_t mark[4] = { 0xff, 0xff, 0, 3 };
    uint8_t buf[1300], want[1300];
    struct mpa_fpdu f;
    size_t need, len = encode(&marked, 0, buf, 1000, 1000);
    memcpy(want, buf, len);
    for (size_t at = 0; at < len; at += 512)
        for (size_t i = 0; i < 4; i++) {
            memcpy(buf, want, len);
            buf[at + i] |= mark[i];
            if (mark[i] == 0)
                continue;
            cr_assert_eq(mpa_fpdu_decode(&marked, 0, buf, len, &f, &need), -EBADMSG);
            set_crc(buf, len);
            cr_assert_eq(mpa_fpdu_decode(&marked, 0, buf, len, &f, &need), (ssize_t)len);
            check_ulpdu(&f, 1000);
        }
}

/*
 * RFC 5044 4.3/5 and RFC 5044 4.4/10: the marker between PAD and CRC is covered by the CRC, and so is the leading
 * one.
 */
Test(mpa_marker, a_marker_between_pad_and_crc_is_taken_out_and_covered)
{
    /* 2 + 17 + 1 octets, the marker, the CRC. */
    uint64_t pos = 512 - 20;
    uint8_t buf[64];
    struct mpa_fpdu f;
    size_t need, len = encode(&marked, pos, buf, 17, 17);
    cr_assert_eq(len, 28u);
    cr_assert_eq(get_be32(buf + 20), 20u);
    buf[20] ^= 1;
    cr_assert_eq(mpa_fpdu_decode(&marked, pos, buf, len, &f, &need), -EBADMSG);
    buf[20] ^= 1;
    cr_assert_eq(mpa_fpdu_decode(&marked, pos, buf, len, &f, &need), (ssize_t)len);
    check_ulpdu(&f, 17);
}

Test(mpa_marker, any_flipped_bit_is_found)
{
    uint8_t buf[700], whole[700];
    struct mpa_fpdu f;
    size_t need, len = encode(&marked, 404, whole, 500, 500);
    for (size_t bit = 16; bit < len * 8; bit++) {
        memcpy(buf, whole, len);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(mpa_fpdu_decode(&marked, 404, buf, len, &f, &need), -EBADMSG, "bit %zu", bit);
    }
}

/* What the length field can say beyond the MULPDU's range: pointers are then cut to 16 bits. */
Test(mpa_marker, the_longest_ulpdu_that_can_be_said_is_received)
{
    static uint8_t buf[MPA_FPDU_MARKED_MAX];
    for (uint64_t pos = 0; pos < 512; pos += 36) {
        struct mpa_fpdu f;
        size_t need, n = model(true, pos, buf, MPA_ULPDU_MAX);
        cr_assert_leq(n, MPA_FPDU_MARKED_MAX);
        cr_assert_eq(mpa_fpdu_decode(&marked, pos, buf, n, &f, &need), (ssize_t)n);
        check_ulpdu(&f, MPA_ULPDU_MAX);
    }
}

/* RFC 5044 section 7.1.2 rule 7: "If Markers are not enabled, the first octets sent are the start of the FPDU". */
Test(mpa_marker, without_markers_the_place_does_not_matter)
{
    const struct mpa_framing plain = { .crc = true };
    static uint8_t want[64], buf[64];
    struct mpa_fpdu f;
    size_t need;
    uint32_t crc = mpa_fpdu_begin(want, 20);
    memset(want + 2, 7, 20);
    crc = crc32c_update(crc, want + 2, 20);
    size_t len = 22 + mpa_fpdu_end(&plain, want + 22, 20, crc);
    for (uint64_t pos = 0; pos < 1024; pos++) {
        memcpy(buf, want, len);
        cr_assert_eq(mpa_fpdu_wire_len(&plain, pos, 20), len);
        cr_assert_eq(mpa_fpdu_decode(&plain, pos, buf, len, &f, &need), (ssize_t)len);
        cr_assert_arr_eq(buf, want, len);
    }
}

/* ---- sizes ---- */

/*
 * RFC 5044 4.5/1 and RFC 5044 5.1/1: "MUST be computed as: MULPDU = EMSS - (6 + 4 * Ceiling(EMSS / 512) + EMSS
 * mod 4)".
 */
Test(mpa_marker, mulpdu_with_markers_follows_the_formula_and_fits_the_segment_anywhere)
{
    static const struct {
        size_t emss, mulpdu;
    } row[] = {
        { 1460, 1442 }, { 1448, 1430 },   { 1461, 1442 },   { 1463, 1442 },        { 1536, 1518 },
        { 536, 522 },   { 8948, 8870 },   { 0, 128 },       { 139, 128 },          { 512, 502 },
        { 513, 498 },   { 65483, 64768 }, { 65000, 64486 }, { (size_t)-1, 64768 },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++)
        cr_assert_eq(mpa_mulpdu(row[i].emss, true), row[i].mulpdu, "EMSS %zu: %zu", row[i].emss,
                     mpa_mulpdu(row[i].emss, true));
    for (size_t emss = 144; emss < 66000; emss += emss < 3000 ? 1 : 111)
        for (uint64_t pos = 0; pos < 512; pos += 4)
            cr_assert_leq(mpa_fpdu_wire_len(&marked, pos, mpa_mulpdu(emss, true)), emss, "EMSS %zu at %llu", emss,
                          (unsigned long long)pos);
}

Test(mpa_marker, no_fpdu_is_longer_than_the_maximum)
{
    for (uint64_t pos = 0; pos < 512; pos += 4)
        cr_assert_leq(mpa_fpdu_wire_len(&marked, pos, MPA_ULPDU_MAX), MPA_FPDU_MARKED_MAX);
}

/* Where octet i of the ULPDU stands in an FPDU at pos: octet by octet. */
static size_t place(bool markers, uint64_t pos, size_t i)
{
    size_t n = 0;
    for (size_t k = 0; k < MPA_HDR_LEN + i + 1; k++, n++)
        if (markers && (pos + n) % 512 == 0)
            n += 4;
    return n - 1;
}

/* RFC 5044 4.3: Markers are not part of the ULPDU. */
Test(mpa_marker, a_look_before_decoding_finds_what_is_there_and_changes_nothing)
{
    static const size_t lens[] = { 0, 1, 35, 700, 1100 };
    static uint8_t buf[2048], copy[2048], got[1100];
    for (int markers = 0; markers < 2; markers++)
        for (uint64_t pos = 0; pos < 512; pos += 4)
            for (size_t k = 0; k < SW_ARRAY_LEN(lens); k++) {
                const struct mpa_framing f = { .markers = markers };
                size_t n = model(false, pos, buf, lens[k]), there = 0, said;
                if (!markers) { /* (the model has them) */
                    n = mpa_fpdu_len(lens[k]);
                    put_be16(buf, (uint16_t)lens[k]);
                    for (size_t i = 0; i < lens[k]; i++)
                        buf[2 + i] = pattern(i);
                }
                size_t field = markers && pos == 0 ? 6 : 2;
                memcpy(copy, buf, n);
                for (size_t cut = 0; cut <= n; cut++) {
                    while (there < lens[k] && place(markers, pos, there) < cut)
                        there++;
                    cr_assert_eq(mpa_fpdu_look(&f, pos, buf, cut, 0, got, sizeof(got), &said), there,
                                 "pos %d cut %zu of %zu", (int)pos, cut, n);
                    cr_assert_eq(said, cut < field ? 0 : lens[k]);
                    if (there > 0)
                        cr_assert(got[there - 1] == pattern(there - 1) && got[0] == pattern(0));
                }
                for (size_t i = 0; i < lens[k]; i++)
                    cr_assert(mpa_fpdu_look(&f, pos, buf, n, i, got, 1, &said) == 1 && got[0] == pattern(i),
                              "octet %zu", i);
                cr_assert_eq(mpa_fpdu_look(&f, pos, buf, n, lens[k], got, 1, &said), 0);
                cr_assert_arr_eq(buf, copy, n);
            }
}
