/* CRC32C on x86-64 with the SSE4.2 crc32 instruction alone. crc32c_x86_fold.c uses carry-less multiplication too. */
#include "core/base/crc32c_impl.h"

#if defined(__x86_64__)

#include "core/base/crc32c_x86.h"

/* The instruction takes an input each cycle but answers after three: three runs are interleaved. */
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
