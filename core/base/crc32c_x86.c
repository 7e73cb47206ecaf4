/*
 * CRC32C on x86-64: which instructions this CPU has, and the SSE4.2 crc32 instruction alone. With
 * carry-less multiplication besides: crc32c_x86_fold.c.
 */
#include "core/base/crc32c_impl.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdbool.h>

#include "core/base/crc32c_x86.h"

struct cpu {
    bool sse42, pclmul, vpclmul256, vpclmul512;
};

/* Asked of the CPU directly: __builtin_cpu_supports() depends on a constructor of its own. */
static struct cpu cpu_now(void)
{
    struct cpu c = { false, false, false, false };
    unsigned a, b, cx, d;
    if (!__get_cpuid(1, &a, &b, &cx, &d))
        return c;
    c.sse42 = (cx & bit_SSE4_2) != 0;
    c.pclmul = c.sse42 && (cx & bit_PCLMUL) != 0;
    if (!c.pclmul || !(cx & bit_OSXSAVE))
        return c;
    bool avx = (cx & bit_AVX) != 0;
    unsigned xcr0, xcr0_hi;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(xcr0_hi) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &cx, &d) || !(cx & bit_VPCLMULQDQ))
        return c;
    /* The kernel must save the registers: SSE and AVX; besides the masks and both parts of the zmm. */
    c.vpclmul256 = avx && (b & bit_AVX2) != 0 && (xcr0 & 0x06) == 0x06;
    c.vpclmul512 = c.vpclmul256 && (b & bit_AVX512F) != 0 && (xcr0 & 0xe6) == 0xe6;
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

int crc32c_vpclmul256_usable(void)
{
    return cpu_now().vpclmul256;
}

int crc32c_vpclmul512_usable(void)
{
    return cpu_now().vpclmul512;
}

/* The instruction takes a new input each cycle but answers after three: three runs side by side. */
CRC32C_SSE42 static inline uint32_t three_runs(uint32_t state, const uint8_t *p, size_t run,
                                               const uint32_t shift[4][256])
{
    uint32_t b = 0, c = 0;
    for (size_t i = 0; i < run; i += 8) {
        state = crc32c_step8(state, crc32c_load64(p + i));
        b = crc32c_step8(b, crc32c_load64(p + run + i));
        c = crc32c_step8(c, crc32c_load64(p + 2 * run + i));
    }
    return crc32c_shift(shift, crc32c_shift(shift, state) ^ b) ^ c;
}

CRC32C_SSE42 uint32_t crc32c_sse42_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    for (; len >= 3 * CRC32C_RUN_LONG; p += 3 * CRC32C_RUN_LONG, len -= 3 * CRC32C_RUN_LONG)
        state = three_runs(state, p, CRC32C_RUN_LONG, crc32c_shift_long);
    for (; len >= 3 * CRC32C_RUN_SHORT; p += 3 * CRC32C_RUN_SHORT, len -= 3 * CRC32C_RUN_SHORT)
        state = three_runs(state, p, CRC32C_RUN_SHORT, crc32c_shift_short);
    return crc32c_serial(state, p, len);
}

#endif
