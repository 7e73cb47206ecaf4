/*
 * Between crc32c_x86.c and crc32c_x86_fold.c: the crc32 instruction, one number after the other.
 */
#ifndef SW_BASE_CRC32C_X86_H
#define SW_BASE_CRC32C_X86_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/crc32c_impl.h"

#define CRC32C_SSE42 __attribute__((target("sse4.2")))

CRC32C_SSE42 static inline uint32_t crc32c_step8(uint32_t state, uint64_t v)
{
    return (uint32_t)_mm_crc32_u64(state, v);
}

/* Eight octets a step, one after the other: best up to some hundred octets. */
CRC32C_SSE42 static inline uint32_t crc32c_serial(uint32_t state, const uint8_t *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8)
        state = crc32c_step8(state, crc32c_load64(p));
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

#endif
