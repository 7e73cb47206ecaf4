/*
 * CRC32C (Castagnoli, reflected 0x82F63B78, initial value and final xor all ones), the check of
 * RFC 5044 section 4.4 and of our Hello frames.
 *
 * Use: state = CRC32C_INIT; state = crc32c_update(state, …) any number of times;
 * value = crc32c_final(state). In an FPDU the value is stored little-endian (put_le32).
 *
 * The fastest implementation that the CPU has and crc32c_setup() allows is chosen once, there or
 * at the first call before it; the choice is a plain pointer store, and all choices give the same
 * values, so a race is harmless. Safe in signal handlers and after fork; takes no lock.
 */
#ifndef SW_BASE_CRC32C_H
#define SW_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#define CRC32C_INIT 0xffffffffu

/* What the CPU can and the kernel allows. */
enum {
    CRC32C_CAN_SSE42 = 1 << 0,
    CRC32C_CAN_PCLMUL = 1 << 1,
    CRC32C_CAN_VPCLMUL256 = 1 << 2,
    CRC32C_CAN_VPCLMUL512 = 1 << 3,
    CRC32C_CAN_ARMV8 = 1 << 4,
    CRC32C_CAN_PMULL = 1 << 5,
};
#define CRC32C_ANY (~0u)

struct crc32c_impl {
    const char *name;
    unsigned needs; /* features, with those of the slower ones of the same CPU; the table: none */
    uint32_t (*update)(uint32_t state, const void *buf, size_t len); /* NULL: another architecture's */
};

/* All implementations, fastest first, ended by name == NULL. */
extern const struct crc32c_impl crc32c_impls[];

/* Points at a function that chooses until the choice is made; use crc32c_update(). */
extern uint32_t (*crc32c_update_fn)(uint32_t state, const void *buf, size_t len);

unsigned crc32c_features(void);                             /* of this CPU */
const struct crc32c_impl *crc32c_choose(unsigned features); /* the fastest that these are enough for */
const struct crc32c_impl *crc32c_named(const char *name);   /* NULL: this architecture has none of that name */
void crc32c_setup(unsigned allowed);                        /* features that may be used; CRC32C_ANY */
const char *crc32c_name(void);                              /* the one in use, after crc32c_setup() */

static inline uint32_t crc32c_update(uint32_t state, const void *buf, size_t len)
{
    return __atomic_load_n(&crc32c_update_fn, __ATOMIC_RELAXED)(state, buf, len);
}

static inline uint32_t crc32c_final(uint32_t state)
{
    return state ^ 0xffffffffu;
}

#endif
