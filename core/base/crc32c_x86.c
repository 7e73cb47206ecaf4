/*
 * CRC32C on x86-64: the SSE4.2 crc32 instruction for short buffers, carry-less multiplication for
 * long ones, with 128-bit (PCLMULQDQ) and 512-bit registers (VPCLMULQDQ). On a Zen 4 at 16 KiB:
 * vpclmul 58 GB/s, pclmul and sse4.2 26, table 2.
 *
 * Folding: a 16-octet lane standing D bits before another one may be added to it after
 * multiplication by x^D. Its first eight octets (the low half, the higher powers) are multiplied by
 * x^(D+32) mod P, the other eight by x^(D-32) mod P; the 32 are what a 64-bit half and a 32-bit
 * remainder differ by, and the constants e(n) << 1 (crc32c_impl.h) are shifted by one because the
 * product of two reflected 64-bit numbers comes out one bit short of 128. When one lane is left,
 * the crc32 instruction over its 16 octets reduces it.
 */
#include "core/base/crc32c_impl.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdbool.h>

/* x^(D+32) mod P, x^(D-32) mod P, reflected and shifted: e(D+32) << 1, e(D-32) << 1. */
#define FOLD_128 0x0f20c0dfell, 0x14cd00bd6ll
#define FOLD_256 0x1384aa63all, 0x0ba4fc28ell
#define FOLD_384 0x01c291d04ll, 0x1d82c63dall
#define FOLD_512 0x0740eef02ll, 0x09e4addf8ll
#define FOLD_2048 0x0dcb17aa4ll, 0x0b9e02b86ll

struct cpu {
    bool sse42, pclmul, vpclmul;
};

/* Asked of the CPU directly: __builtin_cpu_supports() depends on a constructor of its own. */
static struct cpu cpu_now(void)
{
    struct cpu c = { false, false, false };
    unsigned a, b, cx, d;
    if (!__get_cpuid(1, &a, &b, &cx, &d))
        return c;
    c.sse42 = (cx & bit_SSE4_2) != 0;
    c.pclmul = c.sse42 && (cx & bit_PCLMUL) != 0;
    if (!c.pclmul || !(cx & bit_OSXSAVE))
        return c;
    /* The kernel must save SSE, AVX, the mask registers and both parts of the zmm registers. */
    unsigned xcr0, xcr0_hi;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(xcr0_hi) : "c"(0));
    if ((xcr0 & 0xe6) != 0xe6 || !__get_cpuid_count(7, 0, &a, &b, &cx, &d))
        return c;
    c.vpclmul = (b & bit_AVX512F) != 0 && (cx & bit_VPCLMULQDQ) != 0;
    return c;
}

int crc32c_sse42_usable(void)
{
    return cpu_now().sse42;
}

int crc32c_pclmul_usable(void)
{
    return cpu_now().pclmul;
}

int crc32c_vpclmul_usable(void)
{
    return cpu_now().vpclmul;
}

__attribute__((target("sse4.2"))) static inline uint32_t step8(uint32_t state, uint64_t v)
{
    return (uint32_t)_mm_crc32_u64(state, v);
}

/* Eight octets a step, one after the other: best up to some hundred octets. */
__attribute__((target("sse4.2"))) static inline uint32_t serial(uint32_t state, const uint8_t *p,
                                                                size_t len)
{
    for (; len >= 8; p += 8, len -= 8)
        state = step8(state, crc32c_load64(p));
    if (len & 4) {
        uint32_t v;
        memcpy(&v, p, sizeof(v));
        state = _mm_crc32_u32(state, v);
        p += 4;
    }
    if (len & 2) {
        uint16_t v;
        memcpy(&v, p, sizeof(v));
        state = _mm_crc32_u16(state, v);
        p += 2;
    }
    if (len & 1)
        state = _mm_crc32_u8(state, *p);
    return state;
}

/* The instruction takes a new input each cycle but answers after three: three runs side by side. */
__attribute__((target("sse4.2"))) static inline uint32_t three_runs(uint32_t state,
                                                                    const uint8_t *p, size_t run,
                                                                    const uint32_t shift[4][256])
{
    uint32_t b = 0, c = 0;
    for (size_t i = 0; i < run; i += 8) {
        state = step8(state, crc32c_load64(p + i));
        b = step8(b, crc32c_load64(p + run + i));
        c = step8(c, crc32c_load64(p + 2 * run + i));
    }
    return crc32c_shift(shift, crc32c_shift(shift, state) ^ b) ^ c;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42_update(uint32_t state, const void *buf,
                                                               size_t len)
{
    const uint8_t *p = buf;
    for (; len >= 3 * CRC32C_RUN_LONG; p += 3 * CRC32C_RUN_LONG, len -= 3 * CRC32C_RUN_LONG)
        state = three_runs(state, p, CRC32C_RUN_LONG, crc32c_shift_long);
    for (; len >= 3 * CRC32C_RUN_SHORT; p += 3 * CRC32C_RUN_SHORT, len -= 3 * CRC32C_RUN_SHORT)
        state = three_runs(state, p, CRC32C_RUN_SHORT, crc32c_shift_short);
    return serial(state, p, len);
}

#define TARGET_PCLMUL __attribute__((target("sse4.2,pclmul")))

TARGET_PCLMUL static inline __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* k holds the pair FOLD_D, its first number in the low half. */
TARGET_PCLMUL static inline __m128i fold128(__m128i x, __m128i k, __m128i onto)
{
    __m128i lo = _mm_clmulepi64_si128(x, k, 0x00);
    __m128i hi = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(lo, hi), onto);
}

TARGET_PCLMUL static inline __m128i pair(long long lo, long long hi)
{
    return _mm_set_epi64x(hi, lo);
}

TARGET_PCLMUL static inline uint32_t reduce128(__m128i x)
{
    uint32_t state = step8(0, (uint64_t)_mm_cvtsi128_si64(x));
    return step8(state, (uint64_t)_mm_extract_epi64(x, 1));
}

/*
 * len >= 64: runs the whole 64-octet blocks of it; *done says how many octets. Four lanes go side
 * by side because a multiplication takes some cycles to answer.
 */
TARGET_PCLMUL static uint32_t fold_blocks(uint32_t state, const uint8_t *p, size_t len,
                                          size_t *done)
{
    const __m128i k = pair(FOLD_512);
    __m128i a = _mm_xor_si128(load128(p), _mm_cvtsi32_si128((int)state));
    __m128i b = load128(p + 16), c = load128(p + 32), d = load128(p + 48);
    size_t at = 64;
    for (; len - at >= 64; at += 64) {
        a = fold128(a, k, load128(p + at));
        b = fold128(b, k, load128(p + at + 16));
        c = fold128(c, k, load128(p + at + 32));
        d = fold128(d, k, load128(p + at + 48));
    }
    *done = at;
    d = fold128(a, pair(FOLD_384), d);
    d = fold128(b, pair(FOLD_256), d);
    return reduce128(fold128(c, pair(FOLD_128), d));
}

/*
 * Three runs of the crc32 instruction take eight octets a cycle, which 128-bit multiplication
 * reaches at best (and on AMD by half: 26 against 15 GB/s), but only in big steps; folding serves
 * what is left.
 */
TARGET_PCLMUL uint32_t crc32c_pclmul_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    size_t done = 0;
    for (; len >= 3 * CRC32C_RUN_LONG; p += 3 * CRC32C_RUN_LONG, len -= 3 * CRC32C_RUN_LONG)
        state = three_runs(state, p, CRC32C_RUN_LONG, crc32c_shift_long);
    if (len >= 128)
        state = fold_blocks(state, p, len, &done);
    return serial(state, p + done, len - done);
}

#define TARGET_VPCLMUL __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

TARGET_VPCLMUL static inline __m512i load512(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

TARGET_VPCLMUL static inline __m512i fold512(__m512i x, __m512i k, __m512i onto)
{
    __m512i lo = _mm512_clmulepi64_epi128(x, k, 0x00);
    __m512i hi = _mm512_clmulepi64_epi128(x, k, 0x11);
    return _mm512_ternarylogic_epi64(lo, hi, onto, 0x96); /* exclusive or of the three */
}

/* As fold_blocks; four times 64 octets a step as long as they last. */
TARGET_VPCLMUL static uint32_t fold_blocks512(uint32_t state, const uint8_t *p, size_t len,
                                              size_t *done)
{
    const __m512i k = _mm512_broadcast_i32x4(pair(FOLD_512));
    __m512i a = _mm512_xor_si512(load512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    size_t at = 64;
    if (len >= 512) {
        const __m512i k4 = _mm512_broadcast_i32x4(pair(FOLD_2048));
        __m512i b = load512(p + 64), c = load512(p + 128), d = load512(p + 192);
        for (at = 256; len - at >= 256; at += 256) {
            a = fold512(a, k4, load512(p + at));
            b = fold512(b, k4, load512(p + at + 64));
            c = fold512(c, k4, load512(p + at + 128));
            d = fold512(d, k4, load512(p + at + 192));
        }
        b = fold512(a, k, b);
        c = fold512(b, k, c);
        a = fold512(c, k, d);
    }
    for (; len - at >= 64; at += 64)
        a = fold512(a, k, load512(p + at));
    *done = at;
    __m128i x = _mm512_extracti32x4_epi32(a, 3);
    x = fold128(_mm512_castsi512_si128(a), pair(FOLD_384), x);
    x = fold128(_mm512_extracti32x4_epi32(a, 1), pair(FOLD_256), x);
    return reduce128(fold128(_mm512_extracti32x4_epi32(a, 2), pair(FOLD_128), x));
}

TARGET_VPCLMUL uint32_t crc32c_vpclmul_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    size_t done = 0;
    if (len >= 128)
        state = fold_blocks512(state, p, len, &done);
    return serial(state, p + done, len - done);
}

#endif
