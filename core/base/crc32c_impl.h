/*
 * Between crc32c.c and its implementations per architecture; no other file includes this.
 *
 * Everything rests on one sequence. A CRC state is a polynomial over GF(2) modulo the Castagnoli
 * polynomial, reflected: bit 31 is x^0, bit 0 is x^31. Let e(n) be the state of x^n:
 *
 *     e(0) = 0x80000000        e(n+1) = e(n) >> 1 ^ (e(n) & 1 ? 0x82f63b78 : 0)
 *
 * Running L zero octets through a state multiplies it by x^(8L), and that is linear: state bit i
 * becomes e(31 - i + 8L). So each 256-entry table below is given by eight consecutive e(n), the
 * lowest power for the table index's highest bit; the compiler makes the rest. All e(n) are in
 * crc32c_const.h, which scripts/crc32c-constants makes. tests/unit/test_crc32c.c steps through the
 * sequence bit by bit and holds each constant and each implementation against it.
 *
 * Folding: a 16-octet lane standing D bits before another one may be added to it after
 * multiplication by x^D. Its first eight octets (the low half, the higher powers) are multiplied by
 * x^(D+32) mod P, the other eight by x^(D-32) mod P; the 32 are what a 64-bit half and a 32-bit
 * remainder differ by, and the constants CRC32C_FOLD_D are e(n) << 1, shifted by one because the
 * product of two reflected 64-bit numbers comes out one bit short of 128.
 */
#ifndef SW_BASE_CRC32C_IMPL_H
#define SW_BASE_CRC32C_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/crc32c.h"

/* Octets of one of the three interleaved runs, long and short. */
#define CRC32C_RUN_LONG 1024u
#define CRC32C_RUN_SHORT 128u

/* [m][v]: the state after 1024 (128) zero octets if octet m of the state was v and the others 0. */
extern const uint32_t crc32c_shift_long[4][256];
extern const uint32_t crc32c_shift_short[4][256];

static inline uint32_t crc32c_shift(const uint32_t table[4][256], uint32_t state)
{
    return table[0][state & 0xff] ^ table[1][state >> 8 & 0xff] ^ table[2][state >> 16 & 0xff] ^ table[3][state >> 24];
}

/* Octets p[0..7] as the low to high octets of a number; any alignment. */
static inline uint64_t crc32c_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* CPUID's answers (0 where a leaf is missing or not to be asked), and the registers the kernel saves. */
struct crc32c_cpuid {
    unsigned leaf1_ecx, leaf7_ebx, leaf7_ecx, xcr0;
};

/* CRC32C_CAN_* from what the CPU says; on every architecture, for the tests. */
unsigned crc32c_features_x86(const struct crc32c_cpuid *c);
unsigned crc32c_features_arm(unsigned long hwcap, int little_endian);

uint32_t crc32c_table_update(uint32_t state, const void *buf, size_t len);

#if defined(__x86_64__)
uint32_t crc32c_sse42_update(uint32_t state, const void *buf, size_t len);
uint32_t crc32c_pclmul_update(uint32_t state, const void *buf, size_t len);
uint32_t crc32c_vpclmul256_update(uint32_t state, const void *buf, size_t len);
uint32_t crc32c_vpclmul512_update(uint32_t state, const void *buf, size_t len);
#elif defined(__aarch64__)
uint32_t crc32c_armv8_update(uint32_t state, const void *buf, size_t len);
uint32_t crc32c_pmull_update(uint32_t state, const void *buf, size_t len);
#endif

#endif
