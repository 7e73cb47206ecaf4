/*
 * CRC32C with the crc32c instructions of ARMv8 (optional in 8.0, in every server CPU), and with polynomial
 * multiplication (PMULL, of the AES extension) beside them.
 *
 * The crc32c instruction takes eight octets but its result comes some cycles later, so independent runs are interleaved
 * and joined by multiplying by x^(8 * run length) (crc32c_shift). crc32c_x86_fold.c describes the blocks of folded
 * octets and four runs.
 */
#include "core/base/crc32c_impl.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "core/base/crc32c_const.h"

/*
 * In assembler, because compilers differ in how a single function is given an extension, and the
 * intrinsics exist only where the whole file has it.
 */
static inline uint32_t step8(uint32_t state, uint64_t v)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(v));
    return state;
}

static inline uint32_t step1(uint32_t state, uint8_t v)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)v));
    return state;
}

static inline uint32_t serial(uint32_t state, const uint8_t *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8)
        state = step8(state, crc32c_load64(p));
    for (; len > 0; p++, len--)
        state = step1(state, *p);
    return state;
}

static inline uint32_t three_runs(uint32_t state, const uint8_t *p, size_t run, const uint32_t shift[4][256])
{
    uint32_t b = 0, c = 0;
    for (size_t i = 0; i < run; i += 8) {
        state = step8(state, crc32c_load64(p + i));
        b = step8(b, crc32c_load64(p + run + i));
        c = step8(c, crc32c_load64(p + 2 * run + i));
    }
    return crc32c_shift(shift, crc32c_shift(shift, state) ^ b) ^ c;
}

uint32_t crc32c_armv8_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    for (; len >= 3 * CRC32C_RUN_LONG; p += 3 * CRC32C_RUN_LONG, len -= 3 * CRC32C_RUN_LONG)
        state = three_runs(state, p, CRC32C_RUN_LONG, crc32c_shift_long);
    for (; len >= 3 * CRC32C_RUN_SHORT; p += 3 * CRC32C_RUN_SHORT, len -= 3 * CRC32C_RUN_SHORT)
        state = three_runs(state, p, CRC32C_RUN_SHORT, crc32c_shift_short);
    return serial(state, p, len);
}

/* ---- PMULL ---- */

#define RUN CRC32C_RUN_LONG
#define RUNS (4 * RUN)

/* The states of the four runs, and their positions. */
struct runs {
    uint32_t a, b, c, d;
    const uint8_t *p;
};

/* 32 octets of each run. */
static inline void runs_32(struct runs *r)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++, r->p += 8) {
        r->a = step8(r->a, crc32c_load64(r->p));
        r->b = step8(r->b, crc32c_load64(r->p + RUN));
        r->c = step8(r->c, crc32c_load64(r->p + 2 * RUN));
        r->d = step8(r->d, crc32c_load64(r->p + 3 * RUN));
    }
}

static inline uint32_t runs_joined(const struct runs *r)
{
    uint32_t s = crc32c_shift(crc32c_shift_long, r->a) ^ r->b;
    s = crc32c_shift(crc32c_shift_long, s) ^ r->c;
    return crc32c_shift(crc32c_shift_long, s) ^ r->d;
}

static inline uint64x2_t pair(uint64_t lo, uint64_t hi)
{
    return vcombine_u64(vcreate_u64(lo), vcreate_u64(hi));
}

static inline uint64x2_t load(const uint8_t *p)
{
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

/* k holds the pair CRC32C_FOLD_D, its first number in the low half. */
static inline uint64x2_t fold(uint64x2_t x, uint64x2_t k, uint64x2_t onto)
{
    uint64x2_t lo, hi;
    __asm__(".arch_extension aes\n\t"
            "pmull %0.1q, %2.1d, %3.1d\n\t"
            "pmull2 %1.1q, %2.2d, %3.2d"
            : "=&w"(lo), "=w"(hi)
            : "w"(x), "w"(k));
    return veorq_u64(veorq_u64(lo, hi), onto);
}

struct regs {
    uint64x2_t a, b, c, d;
};

static inline struct regs fold_x4(struct regs r, uint64x2_t k, const uint8_t *p, uint32_t state)
{
    r.a = fold(r.a, k, veorq_u64(load(p), pair(state, 0)));
    r.b = fold(r.b, k, load(p + 16));
    r.c = fold(r.c, k, load(p + 32));
    r.d = fold(r.d, k, load(p + 48));
    return r;
}

/* len >= 64. *done: the number of octets taken, all but fewer than 64. */
static uint32_t blocks(uint32_t state, const uint8_t *p, size_t len, size_t *done)
{
    enum { STEP = 64, FOLDED = 32 * STEP };
    const uint64x2_t zero = pair(0, 0), k = pair(CRC32C_FOLD_512);
    struct regs r = { zero, zero, zero, zero };
    uint64x2_t from = k; /* (the distance of no octets may be anything) */
    size_t at = 0;

    for (; len - at >= FOLDED + RUNS + STEP; at += FOLDED + RUNS, from = pair(CRC32C_FOLD_GAP_64)) {
        struct runs runs = { 0, 0, 0, 0, p + at + FOLDED };
        r = fold_x4(r, from, p + at, state);
        runs_32(&runs);
        for (size_t i = STEP; i < FOLDED; i += STEP) {
            r = fold_x4(r, k, p + at + i, 0);
            runs_32(&runs);
        }
        state = runs_joined(&runs);
    }
    for (; len - at >= STEP; at += STEP, from = k, state = 0)
        r = fold_x4(r, from, p + at, state);
    *done = at;
    r.d = fold(r.a, pair(CRC32C_FOLD_384), r.d);
    r.d = fold(r.b, pair(CRC32C_FOLD_256), r.d);
    r.d = fold(r.c, pair(CRC32C_FOLD_128), r.d);
    return step8(step8(0, vgetq_lane_u64(r.d, 0)), vgetq_lane_u64(r.d, 1));
}

uint32_t crc32c_pmull_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    size_t done = 0;
    if (len >= 128)
        state = blocks(state, p, len, &done);
    return serial(state, p + done, len - done);
}

#endif
