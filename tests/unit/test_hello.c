/*
 * Hello frames: what goes out comes in, what cannot be one is told at the first wrong octet, and an
 * answer is found behind streamed octets exactly where it says it stands.
 */
#include "core/negotiate/hello.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/base/must.h"

static const uint8_t nonce[HELLO_NONCE_LEN] = { 0xf5, 's', 'o', 'c', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
static const uint8_t tlvs[] = {
    0x00, 0x63, 0x00, 0x03, 'a',  'b',  'c',        /* 99, unknown */
    0x00, 0x62, 0x00, 0x00,                         /* 98, unknown, empty */
    0x00, 0x01, 0x00, 0x04, 0xde, 0xad, 0xbe, 0xef, /* verbs */
    0x00, 0x01, 0x00, 0x01, 0xff,                   /* verbs once more: the first one counts */
};

static struct hello sample(enum hello_kind kind)
{
    struct hello h = {
        .kind = kind,
        .arg = 0x01020304,
        .streamed = kind == HELLO_HELO ? 0 : 0x1122334455667788,
        .host = 0x99aabbccddeeff00,
        .tlv = tlvs,
        .tlv_len = sizeof(tlvs),
    };
    memcpy(h.nonce, nonce, sizeof(nonce));
    return h;
}

static size_t put(const struct hello *h, uint8_t *buf, size_t cap)
{
    ssize_t n = hello_encode(h, buf, cap);
    cr_assert_eq(n, (ssize_t)(HELLO_LEN + h->tlv_len));
    return (size_t)n;
}

/* An answer as a peer sends it after `streamed` octets. */
static size_t put_answer(enum hello_kind kind, uint64_t streamed, uint8_t *buf)
{
    struct hello h = sample(kind);
    h.streamed = streamed;
    h.tlv_len = 0;
    return put(&h, buf, HELLO_LEN);
}

static void check_equal(const struct hello *a, const struct hello *b)
{
    cr_assert_eq(a->kind, b->kind);
    cr_assert_eq(a->flags, b->flags);
    cr_assert_eq(a->arg, b->arg);
    cr_assert_arr_eq(a->nonce, b->nonce, HELLO_NONCE_LEN);
    cr_assert_eq(a->streamed, b->streamed);
    cr_assert_eq(a->host, b->host);
    cr_assert_eq(a->tlv_len, b->tlv_len);
    cr_assert_arr_eq(a->tlv, b->tlv, a->tlv_len);
}

Test(hello, each_kind_survives_with_its_tlvs)
{
    for (int kind = HELLO_HELO; kind <= HELLO_HNAK; kind++) {
        uint8_t buf[HELLO_LEN_MAX];
        struct hello h = sample(kind), got;
        size_t len = put(&h, buf, sizeof(buf));
        cr_assert_eq(hello_decode(buf, len, &got), (ssize_t)len);
        check_equal(&h, &got);
        /* What follows the frame is not the frame's. */
        memset(buf + len, 0xf5, 50);
        cr_assert_eq(hello_decode(buf, len + 50, &got), (ssize_t)len);
    }
}

/* The table in DESIGN section 3, octet by octet. */
Test(hello, octets_stand_where_the_format_says)
{
    static const uint8_t want[HELLO_LEN - 4] = {
        0xf5, 0x73, 0x6f, 0x63, 0x6b, 0x77, 0x61, 0x72, 0x70, 0x0d, 0x0a, 0x00, 'H', 'A', 'C', 'K',
        0x01, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x02,                                            /* version … arg */
        0xf5, 's',  'o',  'c',  1,    2,    3,    4,    5,    6,    7,    8,    9,   10,  11,  12, /* nonce */
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,                                            /* streamed */
        0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00,                                            /* host */
        0x00, 0x00, 0x00, 0x00,                                                                    /* reserved */
    };
    uint8_t buf[HELLO_LEN], zeroed[HELLO_LEN];
    struct hello h = sample(HELLO_HACK);
    h.arg = HELLO_TRANSPORT_VERBS;
    h.tlv_len = 0;
    cr_assert_eq(put(&h, buf, sizeof(buf)), HELLO_LEN);
    cr_assert_arr_eq(buf, want, sizeof(want));
    memcpy(zeroed, buf, HELLO_LEN);
    memset(zeroed + 60, 0, 4);
    cr_assert_eq(get_be32(buf + 60), crc32c_final(crc32c_update(CRC32C_INIT, zeroed, HELLO_LEN)));
}

Test(hello, a_helo_has_streamed_nothing)
{
    uint8_t buf[HELLO_LEN];
    struct hello h = sample(HELLO_HELO), got;
    h.streamed = 77;
    h.tlv_len = 0;
    put(&h, buf, sizeof(buf));
    cr_assert_eq(hello_decode(buf, HELLO_LEN, &got), HELLO_LEN);
    cr_assert_eq(got.streamed, 0u);
}

Test(hello, encode_keeps_within_the_buffer_and_the_limit)
{
    static uint8_t big[HELLO_LEN_MAX + 1];
    uint8_t *buf = malloc(HELLO_LEN_MAX + 1);
    struct hello h = sample(HELLO_HELO), got;
    h.tlv = big;
    h.tlv_len = HELLO_LEN_MAX - HELLO_LEN;
    cr_assert_eq(hello_encode(&h, buf, HELLO_LEN_MAX), HELLO_LEN_MAX);
    cr_assert_eq(hello_decode(buf, HELLO_LEN_MAX, &got), HELLO_LEN_MAX);
    cr_assert_eq(hello_encode(&h, buf, HELLO_LEN_MAX - 1), -EMSGSIZE);
    h.tlv_len++;
    cr_assert_eq(hello_encode(&h, buf, HELLO_LEN_MAX + 1), -EMSGSIZE);
    h.tlv_len = (size_t)-1;
    cr_assert_eq(hello_encode(&h, buf, HELLO_LEN_MAX + 1), -EMSGSIZE);
    h.tlv_len = 0;
    cr_assert_eq(hello_encode(&h, buf, HELLO_LEN - 1), -EMSGSIZE);
    cr_assert_eq(hello_encode(&h, buf, 0), -EMSGSIZE);
    cr_assert_eq(hello_encode(&h, buf, HELLO_LEN), HELLO_LEN);
    free(buf);
}

Test(hello, every_truncation_is_a_prefix)
{
    for (int kind = HELLO_HELO; kind <= HELLO_HNAK; kind++) {
        uint8_t buf[HELLO_LEN_MAX];
        struct hello h = sample(kind), got;
        size_t len = put(&h, buf, sizeof(buf));
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *part = malloc(cut ? cut : 1);
            memcpy(part, buf, cut);
            cr_assert_eq(hello_decode(part, cut, &got), -EAGAIN, "cut at %zu", cut);
            free(part);
        }
    }
}

Test(hello, one_octet_at_a_time_is_decided_at_the_last)
{
    uint8_t buf[HELLO_LEN_MAX], in[HELLO_LEN_MAX];
    struct hello h = sample(HELLO_HELO), got;
    size_t len = put(&h, buf, sizeof(buf));
    for (size_t i = 0; i < len; i++) {
        in[i] = buf[i];
        ssize_t want = i + 1 < len ? -EAGAIN : (ssize_t)len;
        cr_assert_eq(hello_decode(in, i + 1, &got), want, "after %zu octets", i + 1);
    }
    check_equal(&h, &got);
}

/*
 * All 255 wrong values of each octet: never a frame. Only the length field may turn a whole frame
 * into the prefix of a longer one.
 */
Test(hello, each_octet_changed_is_noticed)
{
    uint8_t buf[HELLO_LEN_MAX];
    struct hello h = sample(HELLO_HELO), got;
    size_t len = put(&h, buf, sizeof(buf));
    for (size_t i = 0; i < len; i++)
        for (unsigned x = 1; x < 256; x++) {
            buf[i] ^= (uint8_t)x;
            size_t total = get_be16(buf + 18);
            ssize_t want = -EPROTO;
            if ((i == 18 || i == 19) && total > len && total <= HELLO_LEN_MAX)
                want = -EAGAIN;
            cr_assert_eq(hello_decode(buf, len, &got), want, "octet %zu ^ %02x", i, x);
            buf[i] ^= (uint8_t)x;
        }
    cr_assert_eq(hello_decode(buf, len, &got), (ssize_t)len);
}

/* A plain client's first octet that differs ends the wait: nothing after it is needed. */
Test(hello, a_wrong_octet_of_key_or_length_is_told_at_once)
{
    uint8_t buf[HELLO_LEN_MAX];
    struct hello h = sample(HELLO_HELO), got;
    put(&h, buf, sizeof(buf));
    for (size_t i = 0; i < HELLO_KEY_LEN; i++) {
        uint8_t was = buf[i];
        buf[i] = '#';
        cr_assert_eq(hello_decode(buf, i + 1, &got), -EPROTO, "octet %zu", i);
        buf[i] = was;
    }
    static const struct {
        size_t total;
        ssize_t at_19, at_20;
    } row[] = {
        { 0, -EAGAIN, -EPROTO },    { 63, -EAGAIN, -EPROTO },   { 64, -EAGAIN, -EAGAIN },    { 1024, -EAGAIN, -EAGAIN },
        { 1025, -EAGAIN, -EPROTO }, { 1280, -EPROTO, -EPROTO }, { 65535, -EPROTO, -EPROTO },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        put_be16(buf + 18, (uint16_t)row[i].total);
        cr_assert_eq(hello_decode(buf, 19, &got), row[i].at_19, "length %zu", row[i].total);
        cr_assert_eq(hello_decode(buf, 20, &got), row[i].at_20, "length %zu", row[i].total);
    }
}

Test(hello, what_other_protocols_begin_with_is_no_prefix)
{
    static const char *const first[] = {
        "GET / HTTP/1.1\r\n", "\x16\x03\x01", "SSH-2.0-", "\0", "\r\n", "*1\r\n", "\xf6", "s", "EHLO"
    };
    struct hello got;
    for (size_t i = 0; i < SW_ARRAY_LEN(first); i++)
        cr_assert_eq(hello_decode((const uint8_t *)first[i], 1, &got), -EPROTO, "%s", first[i]);
}

Test(hello, mixed_up_kinds_are_no_kind)
{
    static const char *const letters[] = { "HELK", "HACO", "HNCK", "HAAK", "HNLO", "helo", "HEAK" };
    uint8_t buf[HELLO_LEN];
    struct hello got;
    put_answer(HELLO_HACK, 0, buf);
    for (size_t i = 0; i < SW_ARRAY_LEN(letters); i++) {
        memcpy(buf + 12, letters[i], 4);
        cr_assert_eq(hello_decode(buf, 16, &got), -EPROTO, "%s", letters[i]);
    }
}

/* To decline, and to take a declined one away, is possible in any version. */
Test(hello, another_version_is_told_at_once_but_of_what_asks_or_declines)
{
    for (int kind = HELLO_HELO; kind <= HELLO_HSWI; kind++)
        for (unsigned version = 0; version < 256; version++) {
            bool any = kind == HELLO_HELO || kind == HELLO_HNAK || kind == HELLO_HWDR;
            uint8_t buf[HELLO_LEN];
            struct hello got;
            put_answer((enum hello_kind)kind, 0, buf);
            buf[16] = (uint8_t)version;
            memset(buf + 60, 0, 4);
            put_be32(buf + 60, crc32c_final(crc32c_update(CRC32C_INIT, buf, HELLO_LEN)));
            bool good = any || version == HELLO_VERSION;
            cr_assert_eq(hello_decode(buf, 17, &got), good ? -EAGAIN : -EPROTO, "%d, version %u", kind, version);
            cr_assert_eq(hello_decode(buf, HELLO_LEN, &got), good ? (ssize_t)HELLO_LEN : -EPROTO);
            cr_assert(!good || got.version == version);
            cr_assert(!good || hello_is_understood(&got) == (version == HELLO_VERSION));
        }
}

/* Reserved octets may come to mean something: under a good CRC any value passes. */
Test(hello, flags_and_reserved_field_are_not_checked)
{
    uint8_t buf[HELLO_LEN];
    struct hello got;
    put_answer(HELLO_HNAK, 0, buf);
    buf[17] = 0xff;
    memset(buf + 56, 0xff, 4);
    memset(buf + 60, 0, 4);
    put_be32(buf + 60, crc32c_final(crc32c_update(CRC32C_INIT, buf, HELLO_LEN)));
    cr_assert_eq(hello_decode(buf, HELLO_LEN, &got), HELLO_LEN);
    cr_assert_eq(got.flags, 0xff);
}

Test(hello, tlvs_unknown_ones_are_skipped_and_the_first_counts)
{
    uint8_t buf[HELLO_LEN_MAX];
    struct hello h = sample(HELLO_HACK), got;
    ssize_t len = hello_encode(&h, buf, sizeof(buf));
    cr_assert_eq(hello_decode(buf, (size_t)len, &got), len);
    size_t l = 0;
    const uint8_t *v = hello_tlv_find(&got, HELLO_TLV_VERBS, &l);
    cr_assert_not_null(v);
    cr_assert_eq(l, 4u);
    cr_assert_eq(get_be32(v), 0xdeadbeefu);
    v = hello_tlv_find(&got, 98, &l);
    cr_assert_not_null(v, "an empty one is there nevertheless");
    cr_assert_eq(l, 0u);
    cr_assert_null(hello_tlv_find(&got, 97, &l));
}

Test(hello, malformed_tlvs_end_the_walk_inside_the_frame)
{
    static const struct {
        uint8_t octets[8];
        size_t len;
    } row[] = {
        { { 0 }, 0 },
        { { 0x00 }, 1 },
        { { 0x00, 0x01 }, 2 },
        { { 0x00, 0x01, 0x00 }, 3 },
        { { 0x00, 0x01, 0x00, 0x01 }, 4 },             /* value missing */
        { { 0x00, 0x01, 0x00, 0x05, 1, 2, 3, 4 }, 8 }, /* one octet short */
        { { 0x00, 0x01, 0xff, 0xff, 1, 2, 3, 4 }, 8 },
        { { 0x00, 0x02, 0x00, 0x01, 9, 0x00, 0x01, 0x00 }, 8 },    /* good, then half a head */
        { { 0x00, 0x02, 0xff, 0xff, 0x00, 0x01, 0x00, 0x00 }, 8 }, /* swallows the rest */
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        uint8_t *copy = malloc(row[i].len ? row[i].len : 1);
        memcpy(copy, row[i].octets, row[i].len);
        struct hello h = { .tlv = copy, .tlv_len = row[i].len };
        size_t l = 0;
        cr_assert_null(hello_tlv_find(&h, HELLO_TLV_VERBS, &l), "row %zu", i);
        free(copy);
    }
    const struct hello before_damage = { .tlv = row[7].octets, .tlv_len = 8 };
    size_t l = 0;
    cr_assert_not_null(hello_tlv_find(&before_damage, 2, &l));
    cr_assert_eq(l, 1u);
}

Test(hello, find_at_each_streamed_position_one_octet_at_a_time)
{
    for (size_t streamed = 0; streamed <= 70; streamed++)
        for (int kind = HELLO_HACK; kind <= HELLO_HNAK; kind++) {
            uint8_t stream[256];
            struct hello got;
            size_t frame_len = 0, safe;
            /* The program's octets are the key's first ones over and over: each is a candidate. */
            for (size_t i = 0; i < streamed; i++)
                stream[i] = i % 3 == 0 ? 0xf5 : (uint8_t) "sockwarp"[i % 3 - 1];
            put_answer(kind, streamed, stream + streamed);
            for (size_t len = 0; len < streamed + HELLO_LEN; len++) {
                safe = 999;
                cr_assert_eq(hello_find(stream, len, 0, nonce, &got, &frame_len, &safe), -EAGAIN);
                cr_assert_leq(safe, streamed, "octets of the answer given away");
                cr_assert_leq(safe, len);
                cr_assert(len < streamed + 1 || safe == streamed, "program's octets held back");
            }
            cr_assert_eq(hello_find(stream, streamed + HELLO_LEN + 9, 0, nonce, &got, &frame_len, &safe),
                         (ssize_t)streamed);
            cr_assert_eq(frame_len, HELLO_LEN);
            cr_assert_eq((int)got.kind, kind);
            cr_assert_eq(got.streamed, streamed);
        }
}

Test(hello, find_with_a_base_counts_from_there)
{
    uint8_t stream[10 + HELLO_LEN];
    struct hello got;
    size_t frame_len, safe;
    static const uint64_t bases[] = { 1, 4096, 0xffffffffu, 0x123456789abcdef0u };
    memset(stream, 'x', 10);
    for (size_t i = 0; i < SW_ARRAY_LEN(bases); i++) {
        put_answer(HELLO_HACK, bases[i] + 10, stream + 10);
        cr_assert_eq(hello_find(stream, sizeof(stream), bases[i], nonce, &got, &frame_len, &safe), 10);
        cr_assert_eq(hello_find(stream, sizeof(stream), bases[i] - 1, nonce, &got, &frame_len, &safe), -EAGAIN);
        cr_assert_eq(safe, sizeof(stream));
    }
}

Test(hello, octets_declared_safe_may_be_dropped)
{
    uint8_t stream[2000];
    size_t streamed = 1500, start = 0;
    for (size_t i = 0; i < streamed; i++)
        stream[i] = (uint8_t)(i * i);
    size_t total = streamed + put_answer(HELLO_HACK, streamed, stream + streamed);
    for (size_t end = 1; end <= total; end++) {
        struct hello got;
        size_t frame_len = 0, safe = 0;
        ssize_t at = hello_find(stream + start, end - start, start, nonce, &got, &frame_len, &safe);
        if (end < total) {
            cr_assert_eq(at, -EAGAIN);
            start += safe;
            continue;
        }
        cr_assert_eq(at, 0);
        cr_assert_eq(start, streamed);
        cr_assert_eq(frame_len, HELLO_LEN);
    }
}

Test(hello, an_echoed_helo_is_no_answer)
{
    uint8_t buf[HELLO_LEN_MAX];
    struct hello h = sample(HELLO_HELO), got;
    size_t frame_len, safe;
    size_t len = put(&h, buf, sizeof(buf));
    for (size_t cut = 16; cut <= len; cut++) {
        cr_assert_eq(hello_find(buf, cut, 0, nonce, &got, &frame_len, &safe), -EAGAIN);
        /*
         * From its kind on it is the program's, but for a nonce that looks like a key at the very
         * end.
         */
        cr_assert_geq(safe, cut < 29 ? (cut < 24 ? cut : 24) : cut, "cut %zu: %zu", cut, safe);
    }
}

Test(hello, find_passes_over_a_wrong_position_nonce_or_crc)
{
    uint8_t buf[4 * HELLO_LEN];
    struct hello got;
    size_t frame_len, safe;
    put_answer(HELLO_HACK, 1, buf); /* stands at 0 */
    cr_assert_eq(hello_find(buf, HELLO_LEN, 0, nonce, &got, &frame_len, &safe), -EAGAIN);
    cr_assert_eq(safe, HELLO_LEN);

    uint8_t other[HELLO_NONCE_LEN];
    for (size_t i = 0; i < HELLO_NONCE_LEN; i++) {
        put_answer(HELLO_HACK, 0, buf);
        memcpy(other, nonce, sizeof(nonce));
        other[i] ^= 1;
        cr_assert_eq(hello_find(buf, HELLO_LEN, 0, other, &got, &frame_len, &safe), -EAGAIN);
        cr_assert_eq(safe, HELLO_LEN);
        /* Known before the frame is whole. */
        cr_assert_eq(hello_find(buf, 24 + i + 1, 0, other, &got, &frame_len, &safe), -EAGAIN);
        cr_assert_geq(safe, 24u);
    }
    put_answer(HELLO_HACK, 0, buf);
    buf[60] ^= 1;
    cr_assert_eq(hello_find(buf, HELLO_LEN, 0, nonce, &got, &frame_len, &safe), -EAGAIN);
    cr_assert_eq(safe, HELLO_LEN);

    /* All three, then the right one. */
    put_answer(HELLO_HACK, HELLO_LEN, buf + HELLO_LEN);
    buf[HELLO_LEN + 30] ^= 1;
    put_answer(HELLO_HACK, HELLO_LEN, buf + 2 * HELLO_LEN);
    put_answer(HELLO_HNAK, 3 * HELLO_LEN, buf + 3 * HELLO_LEN);
    cr_assert_eq(hello_find(buf, 4 * HELLO_LEN, 0, nonce, &got, &frame_len, &safe), 3 * HELLO_LEN);
    cr_assert_eq(got.kind, HELLO_HNAK);
}

Test(hello, find_sees_the_answer_inside_what_looked_like_one)
{
    for (size_t n = 1; n < 20; n++) {
        uint8_t buf[2 * HELLO_LEN + 8];
        struct hello got;
        size_t frame_len, safe;
        put_answer(HELLO_HACK, 0, buf); /* its first n octets only */
        put_answer(HELLO_HACK, n, buf + n);
        cr_assert_eq(hello_find(buf, n + HELLO_LEN, 0, nonce, &got, &frame_len, &safe), (ssize_t)n);
    }
}

Test(hello, find_takes_the_first_of_two)
{
    uint8_t buf[2 * HELLO_LEN];
    struct hello got;
    size_t frame_len, safe;
    put_answer(HELLO_HNAK, 0, buf);
    put_answer(HELLO_HACK, HELLO_LEN, buf + HELLO_LEN);
    cr_assert_eq(hello_find(buf, sizeof(buf), 0, nonce, &got, &frame_len, &safe), 0);
    cr_assert_eq(got.kind, HELLO_HNAK);
}

Test(hello, a_switch_is_found_by_nonce_and_place_however_it_is_cut)
{
    struct hello h = { .kind = HELLO_HSWI, .nonce = { 9, 8, 7 }, .streamed = 103 }, out;
    uint8_t buf[3 + HELLO_LEN + 5];
    size_t frame_len, safe;

    memcpy(buf, "\xf5so", 3);
    memset(buf + sizeof(buf) - 5, 1, 5);
    cr_assert_eq(hello_encode(&h, buf + 3, HELLO_LEN), HELLO_LEN);
    for (size_t n = 0; n < 3 + HELLO_LEN; n++) {
        cr_expect_eq(hello_find_switch(buf, n, 100, h.nonce, &out, &frame_len, &safe), -EAGAIN);
        cr_expect_eq(safe, n <= 3 ? 0u : 3u, "%zu of %zu", safe, n);
    }
    cr_expect_eq(hello_find_switch(buf, sizeof(buf), 100, h.nonce, &out, &frame_len, &safe), 3);
    cr_expect_eq(frame_len, HELLO_LEN);
    cr_expect_eq(out.streamed, 103u);
    for (size_t i = 0; i < HELLO_LEN; i++) { /* each octet counts */
        buf[3 + i] ^= 0x20;
        cr_expect_eq(hello_find_switch(buf, sizeof(buf), 100, h.nonce, &out, &frame_len, &safe), -EAGAIN);
        cr_expect_eq(safe, sizeof(buf), "octet %zu", i);
        buf[3 + i] ^= 0x20;
    }
    cr_expect_eq(hello_find_switch(buf, sizeof(buf), 101, h.nonce, &out, &frame_len, &safe), -EAGAIN);
    h.nonce[0]++;
    cr_expect_eq(hello_find_switch(buf, sizeof(buf), 100, h.nonce, &out, &frame_len, &safe), -EAGAIN);
}
