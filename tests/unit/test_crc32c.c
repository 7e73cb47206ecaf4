/*
 * CRC32C: published vectors, every implementation this CPU can run held against a reference that
 * goes bit by bit, and which one is chosen on CPUs that this one is not.
 */
#include "core/base/crc32c.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c_const.h"
#include "core/base/crc32c_impl.h"
#include "core/base/must.h"

/* Straight from the definition: reflected 0x82F63B78, one bit at a time. */
static uint32_t reference(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    for (; len > 0; p++, len--) {
        state ^= *p;
        for (int i = 0; i < 8; i++)
            state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0);
    }
    return state;
}

/* xorshift64*: the same sequence in each run, so a failure repeats. */
static uint64_t rnd_state = 0x9e3779b97f4a7c15u;

static uint64_t rnd(void)
{
    rnd_state ^= rnd_state >> 12;
    rnd_state ^= rnd_state << 25;
    rnd_state ^= rnd_state >> 27;
    return rnd_state * 0x2545f4914f6cdd1du;
}

static uint8_t *random_bytes(size_t len)
{
    uint8_t *p = malloc(len);
    cr_assert_not_null(p);
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)(rnd() >> 32);
    return p;
}

/* Those that run here: all that this CPU is enough for. (A cr_log_warn for the others would fail the program.) */
static bool runs(const struct crc32c_impl *i)
{
    return (i->needs & ~crc32c_features()) == 0;
}

static void check_each(const char *what, const void *buf, size_t len, uint32_t want)
{
    for (const struct crc32c_impl *i = crc32c_impls; i->name; i++) {
        if (!runs(i))
            continue;
        uint32_t got = crc32c_final(i->update(CRC32C_INIT, buf, len));
        cr_assert_eq(got, want, "%s, %s: %08x, want %08x", what, i->name, got, want);
    }
    uint32_t got = crc32c_final(crc32c_update(CRC32C_INIT, buf, len));
    cr_assert_eq(got, want, "%s, chosen: %08x, want %08x", what, got, want);
}

Test(crc32c, works_at_the_first_call_without_setup)
{
    cr_assert_eq(crc32c_final(crc32c_update(CRC32C_INIT, "123456789", 9)), 0xe3069283u);
}

Test(crc32c, check_value_of_the_catalogue)
{
    check_each("123456789", "123456789", 9, 0xe3069283u);
    check_each("empty", "", 0, 0);
}

/* RFC 3720 appendix B.4; the values there are in wire order, that is little-endian. */
Test(crc32c, rfc3720_examples)
{
    uint8_t b[48];
    memset(b, 0, 32);
    check_each("32 zeros", b, 32, 0x8a9136aau);
    memset(b, 0xff, 32);
    check_each("32 ones", b, 32, 0x62a8ab43u);
    for (unsigned i = 0; i < 32; i++)
        b[i] = (uint8_t)i;
    check_each("32 incrementing", b, 32, 0x46dd794eu);
    for (unsigned i = 0; i < 32; i++)
        b[i] = (uint8_t)(31 - i);
    check_each("32 decrementing", b, 32, 0x113fdb5cu);
    static const uint8_t read10[48] = {
        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
        0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    };
    check_each("an iSCSI SCSI Read (10) command", read10, 48, 0xd9963a56u);
}

/* e(n) of crc32c_impl.h, by its definition. */
static uint32_t power(unsigned n)
{
    uint32_t state = 0x80000000u;
    while (n-- > 0)
        state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0);
    return state;
}

Test(crc32c, constants_are_the_powers_they_are_named_for)
{
#define POWERS(n)        \
    {                    \
        n,               \
        {                \
            CRC32C_E_##n \
        }                \
    }
    static const struct {
        unsigned n;
        uint32_t e[8];
    } powers[] = {
        POWERS(32),   POWERS(40),   POWERS(48),   POWERS(56),   POWERS(64),   POWERS(72),   POWERS(80),   POWERS(88),
        POWERS(1024), POWERS(1032), POWERS(1040), POWERS(1048), POWERS(8192), POWERS(8200), POWERS(8208), POWERS(8216),
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(powers); i++)
        for (unsigned k = 0; k < 8; k++)
            cr_assert_eq(powers[i].e[k], power(powers[i].n + k), "CRC32C_E_%u, %u", powers[i].n, k);

    enum { RUNS = 4 * CRC32C_RUN_LONG };
    static const struct {
        unsigned bits;
        uint64_t k[2];
    } folds[] = {
        { 128, { CRC32C_FOLD_128 } },
        { 256, { CRC32C_FOLD_256 } },
        { 384, { CRC32C_FOLD_384 } },
        { 512, { CRC32C_FOLD_512 } },
        { 1024, { CRC32C_FOLD_1024 } },
        { 2048, { CRC32C_FOLD_2048 } },
        { 8 * (64 + RUNS), { CRC32C_FOLD_GAP_64 } },
        { 8 * (128 + RUNS), { CRC32C_FOLD_GAP_128 } },
        { 8 * (256 + RUNS), { CRC32C_FOLD_GAP_256 } },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(folds); i++) {
        cr_assert_eq(folds[i].k[0], (uint64_t)power(folds[i].bits + 32) << 1, "over %u bits", folds[i].bits);
        cr_assert_eq(folds[i].k[1], (uint64_t)power(folds[i].bits - 32) << 1, "over %u bits", folds[i].bits);
    }
}

/* A whole FPDU with its markers as the figure prints it: the last four octets are the CRC. */
static void check_figure(const char *what, const uint8_t *fpdu, size_t len)
{
    check_each(what, fpdu, len - 4, get_le32(fpdu + len - 4));
}

Test(crc32c, rfc5044_figures_5_and_6)
{
    static const uint8_t fig5[0x34] = {
        /* leading marker, then the FPDU */
        [0x05] = 0x2a, [0x06] = 0x41, [0x07] = 0x43, [0x13] = 0x01,
        [0x30] = 0x52, [0x31] = 0x23, [0x32] = 0x99, [0x33] = 0x83,
    };
    static const uint8_t fig6[0x34] = {
        /* from stream octet 01ec; a marker at 0200 */
        [0x01] = 0x2a, [0x02] = 0x41, [0x03] = 0x43, [0x0f] = 0x02, [0x17] = 0x14,
        [0x30] = 0x84, [0x31] = 0x92, [0x32] = 0x58, [0x33] = 0x98,
    };
    check_figure("RFC 5044 Figure 5", fig5, sizeof(fig5));
    check_figure("RFC 5044 Figure 6", fig6, sizeof(fig6));
}

/* The 2002 draft has other control octets (40 03) and points its marker elsewhere; same CRC. */
Test(crc32c, draft_2002_figures_5_and_6)
{
    static const uint8_t fig5[0x34] = {
        [0x05] = 0x2a, [0x06] = 0x40, [0x07] = 0x03, [0x13] = 0x01,
        [0x30] = 0x4c, [0x31] = 0x86, [0x32] = 0xb3, [0x33] = 0x84,
    };
    static const uint8_t fig6[0x34] = {
        [0x01] = 0x2a, [0x02] = 0x40, [0x03] = 0x03, [0x0f] = 0x02, [0x17] = 0x14,
        [0x30] = 0xa1, [0x31] = 0x9c, [0x32] = 0xd1, [0x33] = 0x03,
    };
    check_figure("draft Figure 5", fig5, sizeof(fig5));
    check_figure("draft Figure 6", fig6, sizeof(fig6));
}

Test(crc32c, table_equals_the_definition_at_every_single_octet_and_state_bit)
{
    const struct crc32c_impl *table = crc32c_impls;
    while (strcmp(table->name, "table") != 0)
        table++;
    for (unsigned v = 0; v < 256; v++)
        for (size_t zeros = 0; zeros < 9; zeros++) {
            uint8_t b[9] = { (uint8_t)v };
            cr_assert_eq(table->update(0, b, 1 + zeros), reference(0, b, 1 + zeros));
        }
    for (unsigned bit = 0; bit < 32; bit++)
        for (size_t len = 0; len < 32; len++) {
            static const uint8_t zero[32];
            cr_assert_eq(table->update(1u << bit, zero, len), reference(1u << bit, zero, len));
        }
}

Test(crc32c, every_implementation_at_every_length_and_alignment)
{
    enum { MAX = 1100, SLACK = 64 };
    uint8_t *b = random_bytes(MAX + SLACK);
    for (size_t len = 0; len <= MAX; len++)
        for (size_t off = 0; off < SLACK; off += len < 80 ? 1 : 13) {
            uint32_t init = (uint32_t)rnd();
            uint32_t want = reference(init, b + off, len);
            for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
                if (runs(i))
                    cr_assert_eq(i->update(init, b + off, len), want, "%s, %zu octets at +%zu", i->name, len, off);
        }
    free(b);
}

/* Blocks of 6, 8 and 12 KiB, and what is left behind them: the lengths at which one more is begun. */
Test(crc32c, every_implementation_around_its_blocks)
{
    enum { MAX = 3 * 12288 + 600 };
    uint8_t *b = random_bytes(MAX + 64);
    for (size_t len = 3000; len <= MAX; len += len % 2048 > 1700 || len % 2048 < 348 ? 7 : 83) {
        size_t off = len % 64;
        uint32_t init = (uint32_t)rnd();
        uint32_t want = reference(init, b + off, len);
        for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
            if (runs(i))
                cr_assert_eq(i->update(init, b + off, len), want, "%s, %zu octets at +%zu", i->name, len, off);
    }
    for (size_t len = 6144; len <= 12288; len += 2048)
        for (size_t blocks = 1; blocks <= 3; blocks++)
            for (size_t more = 0; more < 300; more++) {
                size_t n = blocks * len + more;
                uint32_t want = reference(1, b, n);
                for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
                    if (runs(i))
                        cr_assert_eq(i->update(1, b, n), want, "%s, %zu octets", i->name, n);
            }
    free(b);
}

Test(crc32c, every_implementation_at_big_lengths)
{
    enum { MAX = 200000 };
    uint8_t *b = random_bytes(MAX);
    for (int round = 0; round < 60; round++) {
        size_t off = rnd() % 100, len = rnd() % (MAX - 100);
        uint32_t init = (uint32_t)rnd();
        uint32_t want = reference(init, b + off, len);
        for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
            if (runs(i))
                cr_assert_eq(i->update(init, b + off, len), want, "%s, %zu octets at +%zu", i->name, len, off);
    }
    free(b);
}

/*
 * Sparse input finds a wrong constant that dense input might hide: one bit set in a long run of
 * zeros.
 */
Test(crc32c, every_implementation_with_a_single_bit_anywhere)
{
    static uint8_t b[16384];
    for (size_t bit = 0; bit < sizeof(b) * 8; bit += 173) {
        b[bit / 8] = (uint8_t)(1u << bit % 8);
        uint32_t want = reference(0, b, sizeof(b));
        for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
            if (runs(i))
                cr_assert_eq(i->update(0, b, sizeof(b)), want, "%s, bit %zu", i->name, bit);
        b[bit / 8] = 0;
    }
}

Test(crc32c, every_split_gives_the_same)
{
    static const size_t lens[] = { 1, 9, 63, 64, 65, 127, 128, 400, 511, 512, 1100, 4200 };
    uint8_t *b = random_bytes(4200);
    for (size_t l = 0; l < SW_ARRAY_LEN(lens); l++) {
        uint32_t want = reference(CRC32C_INIT, b, lens[l]);
        for (const struct crc32c_impl *i = crc32c_impls; i->name; i++) {
            if (!runs(i))
                continue;
            for (size_t cut = 0; cut <= lens[l]; cut++) {
                uint32_t s = i->update(CRC32C_INIT, b, cut);
                s = i->update(s, b + cut, lens[l] - cut);
                cr_assert_eq(s, want, "%s, %zu octets cut at %zu", i->name, lens[l], cut);
            }
        }
    }
    free(b);
}

/* Reads outside the buffer would be seen by a sanitizer; here the neighbours must not matter. */
Test(crc32c, neighbouring_octets_do_not_matter)
{
    uint8_t b[700];
    for (size_t len = 0; len <= 600; len += 7) {
        memset(b, 0x5a, sizeof(b));
        uint32_t want = reference(CRC32C_INIT, b + 50, len);
        memset(b, 0xa5, 50);
        memset(b + 50 + len, 0xa5, sizeof(b) - 50 - len);
        for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
            if (runs(i))
                cr_assert_eq(i->update(CRC32C_INIT, b + 50, len), want, "%s, %zu", i->name, len);
    }
}

/* ---- the choice ---- */

/* What a CPU says of itself, in full; the tests below take bits away. */
#define SSE42 (1u << 20)
#define PCLMUL (1u << 1)
#define OSXSAVE (1u << 27)
#define AVX (1u << 28)
#define AVX2 (1u << 5)
#define AVX512F (1u << 16)
#define VPCLMUL (1u << 10)
#define ALL1 SSE42 | PCLMUL | OSXSAVE | AVX
#define ALL7 AVX2 | AVX512F
#define HWCAP_PMULL_BIT (1ul << 4)
#define HWCAP_CRC32_BIT (1ul << 7)

Test(crc32c, the_choice_on_other_x86_cpus)
{
    static const struct {
        const char *what;
        struct crc32c_cpuid cpu;
        const char *want;
    } rows[] = {
        { "everything", { ALL1, ALL7, VPCLMUL, 0xe7 }, "vpclmul512" },
        { "no AVX-512", { ALL1, AVX2, VPCLMUL, 0xe7 }, "vpclmul256" },
        { "AVX-512, but the kernel does not save it", { ALL1, ALL7, VPCLMUL, 7 }, "vpclmul256" },
        { "AVX-512, its masks alone saved", { ALL1, ALL7, VPCLMUL, 0x27 }, "vpclmul256" },
        { "no VPCLMULQDQ", { ALL1, ALL7, 0, 0xe7 }, "pclmul" },
        { "no AVX2", { ALL1, AVX512F, VPCLMUL, 0xe7 }, "pclmul" },
        { "no AVX", { SSE42 | PCLMUL | OSXSAVE, ALL7, VPCLMUL, 0xe7 }, "pclmul" },
        { "the kernel saves no AVX", { ALL1, ALL7, VPCLMUL, 3 }, "pclmul" },
        { "no OSXSAVE", { SSE42 | PCLMUL | AVX, ALL7, VPCLMUL, 0xe7 }, "pclmul" },
        { "no leaf 7", { ALL1, 0, 0, 7 }, "pclmul" },
        { "no PCLMULQDQ", { SSE42 | OSXSAVE | AVX, ALL7, VPCLMUL, 0xe7 }, "sse4.2" },
        { "SSE4.2 only", { SSE42, 0, 0, 0 }, "sse4.2" },
        { "no SSE4.2", { PCLMUL | OSXSAVE | AVX, ALL7, VPCLMUL, 0xe7 }, "table" },
        { "nothing", { 0, 0, 0, 0 }, "table" },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++)
        cr_expect_str_eq(crc32c_choose(crc32c_features_x86(&rows[i].cpu))->name, rows[i].want, "%s", rows[i].what);
}

Test(crc32c, the_choice_on_other_arm_cpus)
{
    static const struct {
        unsigned long hwcap;
        int little_endian;
        const char *want;
    } rows[] = {
        { HWCAP_CRC32_BIT | HWCAP_PMULL_BIT, 1, "pmull" },
        { HWCAP_CRC32_BIT | HWCAP_PMULL_BIT, 0, "armv8" },
        { HWCAP_CRC32_BIT, 1, "armv8" },
        { HWCAP_PMULL_BIT, 1, "table" },
        { ~(HWCAP_CRC32_BIT | HWCAP_PMULL_BIT), 1, "table" },
        { 0, 1, "table" },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++)
        cr_expect_str_eq(crc32c_choose(crc32c_features_arm(rows[i].hwcap, rows[i].little_endian))->name, rows[i].want,
                         "%lx, %d", rows[i].hwcap, rows[i].little_endian);
}

Test(crc32c, what_this_cpu_can_is_built_in)
{
    for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
        cr_expect(!runs(i) || i->update, "%s", i->name);
    cr_expect_not_null(crc32c_choose(0)->update);
}

/* As SOCKWARP_CRC does it: each name, on this CPU, gives that one or the next slower one that runs here. */
Test(crc32c, setup_takes_the_fastest_that_is_allowed)
{
    for (const struct crc32c_impl *i = crc32c_impls; i->name; i++) {
        cr_expect(crc32c_named(i->name) == (i->update ? i : NULL), "%s", i->name);
        if (!i->update)
            continue;
        const struct crc32c_impl *want = i;
        while (!runs(want))
            want++;
        crc32c_setup(i->needs);
        cr_expect_str_eq(crc32c_name(), want->name);
        cr_expect(crc32c_update_fn == want->update, "%s", i->name);
        cr_expect_eq(crc32c_final(crc32c_update(CRC32C_INIT, "123456789", 9)), 0xe3069283u, "%s", i->name);
    }
    cr_expect_null(crc32c_named("none"));
    crc32c_setup(CRC32C_ANY);
    cr_expect_str_eq(crc32c_name(), crc32c_choose(crc32c_features())->name);
    cr_log_info("in use: %s", crc32c_name());
}
