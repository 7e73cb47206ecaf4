/*
 * CRC32C on x86-64 for long buffers: carry-less multiplication with 128-bit (PCLMULQDQ), 256-bit and 512-bit registers
 * (VPCLMULQDQ), and the crc32 instruction beside it. Where the multiplier answers only every other cycle, the crc32
 * instruction has time for 128 octets while four registers are folded; so blocks of
 *
 *     | folded: 32 steps of four registers | four runs of 1024 octets |
 *
 * go through both at once. The registers step over the runs (GAP: the distance to the next block), the runs' joined
 * state is added to the next block's first octets, where it belongs: so nothing is reduced before the last block is
 * over. What is left after the blocks is folded alone. When one lane is left, the crc32 instruction over its 16 octets
 * reduces it.
 *
 * The three variants differ only in their registers; see crc32c_impl.h for the constants.
 */
#include "core/base/crc32c_impl.h"

#if defined(__x86_64__)

#include "core/base/crc32c_const.h"
#include "core/base/crc32c_x86.h"

#define RUN CRC32C_RUN_LONG
#define RUNS (4 * RUN)

/* The states of the four runs, and their positions. */
struct runs {
    uint32_t a, b, c, d;
    const uint8_t *p;
};

/* 32 octets of each run. */
CRC32C_SSE42 static inline void runs_32(struct runs *r)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++, r->p += 8) {
        r->a = crc32c_step8(r->a, crc32c_load64(r->p));
        r->b = crc32c_step8(r->b, crc32c_load64(r->p + RUN));
        r->c = crc32c_step8(r->c, crc32c_load64(r->p + 2 * RUN));
        r->d = crc32c_step8(r->d, crc32c_load64(r->p + 3 * RUN));
    }
}

static inline uint32_t runs_joined(const struct runs *r)
{
    uint32_t s = crc32c_shift(crc32c_shift_long, r->a) ^ r->b;
    s = crc32c_shift(crc32c_shift_long, s) ^ r->c;
    return crc32c_shift(crc32c_shift_long, s) ^ r->d;
}

/* ---- 128 bits ---- */

#define TARGET_128 __attribute__((target("sse4.2,pclmul")))

TARGET_128 static inline __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* k holds the pair CRC32C_FOLD_D, its first number in the low half. */
TARGET_128 static inline __m128i fold128(__m128i x, __m128i k, __m128i onto)
{
    __m128i lo = _mm_clmulepi64_si128(x, k, 0x00);
    __m128i hi = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(lo, hi), onto);
}

TARGET_128 static inline __m128i pair(long long lo, long long hi)
{
    return _mm_set_epi64x(hi, lo);
}

/* Lanes that follow each other: the state behind d. */
TARGET_128 static inline uint32_t reduce(__m128i a, __m128i b, __m128i c, __m128i d)
{
    d = fold128(a, pair(CRC32C_FOLD_384), d);
    d = fold128(b, pair(CRC32C_FOLD_256), d);
    d = fold128(c, pair(CRC32C_FOLD_128), d);
    uint32_t state = crc32c_step8(0, (uint64_t)_mm_cvtsi128_si64(d));
    return crc32c_step8(state, (uint64_t)_mm_extract_epi64(d, 1));
}

struct reg128 {
    __m128i a, b, c, d;
};

TARGET_128 static inline struct reg128 fold128x4(struct reg128 r, __m128i k, const uint8_t *p, uint32_t state)
{
    r.a = fold128(r.a, k, _mm_xor_si128(load128(p), _mm_cvtsi32_si128((int)state)));
    r.b = fold128(r.b, k, load128(p + 16));
    r.c = fold128(r.c, k, load128(p + 32));
    r.d = fold128(r.d, k, load128(p + 48));
    return r;
}

/* len >= 64. *done: the number of octets taken, all but fewer than 64. */
TARGET_128 static uint32_t blocks128(uint32_t state, const uint8_t *p, size_t len, size_t *done)
{
    enum { STEP = 64, FOLDED = 32 * STEP };
    const __m128i zero = _mm_setzero_si128(), k = pair(CRC32C_FOLD_512);
    struct reg128 r = { zero, zero, zero, zero };
    __m128i from = k; /* (the distance of no octets may be anything) */
    size_t at = 0;

    for (; len - at >= FOLDED + RUNS + STEP; at += FOLDED + RUNS, from = pair(CRC32C_FOLD_GAP_64)) {
        struct runs runs = { 0, 0, 0, 0, p + at + FOLDED };
        r = fold128x4(r, from, p + at, state);
        runs_32(&runs);
        for (size_t i = STEP; i < FOLDED; i += STEP) {
            r = fold128x4(r, k, p + at + i, 0);
            runs_32(&runs);
        }
        state = runs_joined(&runs);
    }
    for (; len - at >= STEP; at += STEP, from = k, state = 0)
        r = fold128x4(r, from, p + at, state);
    *done = at;
    return reduce(r.a, r.b, r.c, r.d);
}

TARGET_128 uint32_t crc32c_pclmul_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    size_t done = 0;
    if (len >= 128)
        state = blocks128(state, p, len, &done);
    return crc32c_serial(state, p + done, len - done);
}

/* ---- 256 bits ---- */

#define TARGET_256 __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))

TARGET_256 static inline __m256i load256(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

TARGET_256 static inline __m256i fold256(__m256i x, __m256i k, __m256i onto)
{
    __m256i lo = _mm256_clmulepi64_epi128(x, k, 0x00);
    __m256i hi = _mm256_clmulepi64_epi128(x, k, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(lo, hi), onto);
}

TARGET_256 static inline __m256i pairs256(long long lo, long long hi)
{
    return _mm256_set_epi64x(hi, lo, hi, lo);
}

TARGET_256 static inline __m256i first256(const uint8_t *p, uint32_t state)
{
    return _mm256_xor_si256(load256(p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)state)));
}

struct reg256 {
    __m256i a, b, c, d;
};

TARGET_256 static inline struct reg256 fold256x4(struct reg256 r, __m256i k, const uint8_t *p, uint32_t state)
{
    r.a = fold256(r.a, k, first256(p, state));
    r.b = fold256(r.b, k, load256(p + 32));
    r.c = fold256(r.c, k, load256(p + 64));
    r.d = fold256(r.d, k, load256(p + 96));
    return r;
}

/* len >= 128. *done: the number of octets taken, all but fewer than 64. */
TARGET_256 static uint32_t blocks256(uint32_t state, const uint8_t *p, size_t len, size_t *done)
{
    enum { STEP = 128, FOLDED = 32 * STEP };
    const __m256i zero = _mm256_setzero_si256(), k = pairs256(CRC32C_FOLD_1024);
    struct reg256 r = { zero, zero, zero, zero };
    __m256i from = k;
    size_t at = 0;

    for (; len - at >= FOLDED + RUNS + STEP; at += FOLDED + RUNS, from = pairs256(CRC32C_FOLD_GAP_128)) {
        struct runs runs = { 0, 0, 0, 0, p + at + FOLDED };
        r = fold256x4(r, from, p + at, state);
        runs_32(&runs);
        for (size_t i = STEP; i < FOLDED; i += STEP) {
            r = fold256x4(r, k, p + at + i, 0);
            runs_32(&runs);
        }
        state = runs_joined(&runs);
    }
    for (; len - at >= STEP; at += STEP, from = k, state = 0)
        r = fold256x4(r, from, p + at, state);
    /* Two registers are four lanes. */
    const __m256i k2 = pairs256(CRC32C_FOLD_512);
    r.c = fold256(r.a, k2, r.c);
    r.d = fold256(r.b, k2, r.d);
    if (len - at >= 64) {
        r.c = fold256(r.c, k2, load256(p + at));
        r.d = fold256(r.d, k2, load256(p + at + 32));
        at += 64;
    }
    *done = at;
    return reduce(_mm256_castsi256_si128(r.c), _mm256_extracti128_si256(r.c, 1), _mm256_castsi256_si128(r.d),
                  _mm256_extracti128_si256(r.d, 1));
}

TARGET_256 uint32_t crc32c_vpclmul256_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    size_t done = 0;
    if (len >= 256)
        state = blocks256(state, p, len, &done);
    else if (len >= 128)
        state = blocks128(state, p, len, &done);
    return crc32c_serial(state, p + done, len - done);
}

/* ---- 512 bits ---- */

#define TARGET_512 __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

TARGET_512 static inline __m512i load512(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

TARGET_512 static inline __m512i fold512(__m512i x, __m512i k, __m512i onto)
{
    __m512i lo = _mm512_clmulepi64_epi128(x, k, 0x00);
    __m512i hi = _mm512_clmulepi64_epi128(x, k, 0x11);
    return _mm512_ternarylogic_epi64(lo, hi, onto, 0x96); /* exclusive or of the three */
}

TARGET_512 static inline __m512i first512(const uint8_t *p, uint32_t state)
{
    return _mm512_xor_si512(load512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
}

struct reg512 {
    __m512i a, b, c, d;
};

TARGET_512 static inline struct reg512 fold512x4(struct reg512 r, __m512i k, const uint8_t *p, uint32_t state)
{
    r.a = fold512(r.a, k, first512(p, state));
    r.b = fold512(r.b, k, load512(p + 64));
    r.c = fold512(r.c, k, load512(p + 128));
    r.d = fold512(r.d, k, load512(p + 192));
    return r;
}

/* len >= 256: takes all but fewer than 256 octets. The registers become one. */
TARGET_512 static inline __m512i blocks512(uint32_t state, const uint8_t *p, size_t len, size_t *done)
{
    enum { STEP = 256, FOLDED = 32 * STEP };
    const __m512i zero = _mm512_setzero_si512(), k = _mm512_broadcast_i32x4(pair(CRC32C_FOLD_2048));
    struct reg512 r = { zero, zero, zero, zero };
    __m512i from = k;
    size_t at = 0;

    for (; len - at >= FOLDED + RUNS + STEP; at += FOLDED + RUNS) {
        struct runs runs = { 0, 0, 0, 0, p + at + FOLDED };
        r = fold512x4(r, from, p + at, state);
        runs_32(&runs);
        for (size_t i = STEP; i < FOLDED; i += STEP) {
            r = fold512x4(r, k, p + at + i, 0);
            runs_32(&runs);
        }
        state = runs_joined(&runs);
        from = _mm512_broadcast_i32x4(pair(CRC32C_FOLD_GAP_256));
    }
    for (; len - at >= STEP; at += STEP, from = k, state = 0)
        r = fold512x4(r, from, p + at, state);
    *done = at;
    const __m512i k1 = _mm512_broadcast_i32x4(pair(CRC32C_FOLD_512));
    return fold512(fold512(fold512(r.a, k1, r.b), k1, r.c), k1, r.d);
}

TARGET_512 uint32_t crc32c_vpclmul512_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    size_t at = 64;
    __m512i r;

    if (len < 128)
        return crc32c_serial(state, p, len);
    if (len >= 512)
        r = blocks512(state, p, len, &at);
    else
        r = first512(p, state);
    for (const __m512i k = _mm512_broadcast_i32x4(pair(CRC32C_FOLD_512)); len - at >= 64; at += 64)
        r = fold512(r, k, load512(p + at));
    state = reduce(_mm512_castsi512_si128(r), _mm512_extracti32x4_epi32(r, 1), _mm512_extracti32x4_epi32(r, 2),
                   _mm512_extracti32x4_epi32(r, 3));
    return crc32c_serial(state, p + at, len - at);
}

#endif
