/*
 * CRC32C with the crc32c instructions of ARMv8 (optional in 8.0, in every server CPU).
 *
 * The instruction takes eight octets but its result comes some cycles later, so three independent
 * runs are interleaved and joined by multiplying by x^(8 * run length) (crc32c_shift).
 */
#include "core/base/crc32c_impl.h"

#if defined(__aarch64__)

#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1UL << 7)
#endif

/*
 * In assembler, because compilers differ in how a single function is given the extension, and the
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

int crc32c_armv8_usable(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

static inline uint32_t three_runs(uint32_t state, const uint8_t *p, size_t run,
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

uint32_t crc32c_armv8_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    for (; len >= 3 * CRC32C_RUN_LONG; p += 3 * CRC32C_RUN_LONG, len -= 3 * CRC32C_RUN_LONG)
        state = three_runs(state, p, CRC32C_RUN_LONG, crc32c_shift_long);
    for (; len >= 3 * CRC32C_RUN_SHORT; p += 3 * CRC32C_RUN_SHORT, len -= 3 * CRC32C_RUN_SHORT)
        state = three_runs(state, p, CRC32C_RUN_SHORT, crc32c_shift_short);
    for (; len >= 8; p += 8, len -= 8)
        state = step8(state, crc32c_load64(p));
    for (; len > 0; p++, len--)
        state = step1(state, *p);
    return state;
}

#endif
