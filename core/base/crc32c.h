/*
 * CRC32C (Castagnoli, reflected 0x82F63B78, initial value and final xor all ones), the check of
 * RFC 5044 section 4.4 and of our Hello frames.
 *
 * Use: state = CRC32C_INIT; state = crc32c_update(state, …) any number of times;
 * value = crc32c_final(state). In an FPDU the value is stored little-endian (put_le32).
 *
 * The fastest implementation the CPU has is chosen once, at the first call or by crc32c_setup();
 * the choice is a plain pointer store of a value that is the same in every thread, so a race is
 * harmless. Safe in signal handlers and after fork; takes no lock.
 */
#ifndef SW_BASE_CRC32C_H
#define SW_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#define CRC32C_INIT 0xffffffffu

struct crc32c_impl {
    const char *name; /* "vpclmul512", "vpclmul256", "pclmul", "sse4.2", "pmull", "armv8", "table" */
    int (*usable)(void); /* CPU and kernel allow it; the table always */
    uint32_t (*update)(uint32_t state, const void *buf, size_t len);
};

/* All implementations built in, fastest first, ended by name == NULL; for tests and benchmarks. */
extern const struct crc32c_impl crc32c_impls[];

/* Points at a function that chooses until the choice is made; use crc32c_update(). */
extern uint32_t (*crc32c_update_fn)(uint32_t state, const void *buf, size_t len);

void crc32c_setup(void);
const char *crc32c_name(void); /* the implementation in use */

static inline uint32_t crc32c_update(uint32_t state, const void *buf, size_t len)
{
    return __atomic_load_n(&crc32c_update_fn, __ATOMIC_RELAXED)(state, buf, len);
}

static inline uint32_t crc32c_final(uint32_t state)
{
    return state ^ 0xffffffffu;
}

#endif
