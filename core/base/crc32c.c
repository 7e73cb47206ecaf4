/*
 * CRC32C: the table implementation that works everywhere (eight octets a step), and the choice of
 * the fastest one that the CPU (crc32c_cpu.c) and SOCKWARP_CRC allow. RFC 5044 section 4.4. See
 * crc32c_impl.h for where the constants come from.
 */
#include "core/base/crc32c.h"

#include "core/base/crc32c_const.h"
#include "core/base/crc32c_impl.h"

/* One entry: the sum of the powers whose bits are set in the index v. */
#define ENTRY(v, p0, p1, p2, p3, p4, p5, p6, p7)                                                                   \
    (((v)&0x80 ? p0 : 0) ^ ((v)&0x40 ? p1 : 0) ^ ((v)&0x20 ? p2 : 0) ^ ((v)&0x10 ? p3 : 0) ^ ((v)&0x08 ? p4 : 0) ^ \
     ((v)&0x04 ? p5 : 0) ^ ((v)&0x02 ? p6 : 0) ^ ((v)&0x01 ? p7 : 0))
#define ROW4(v, ...) \
    ENTRY((v), __VA_ARGS__), ENTRY((v) + 1, __VA_ARGS__), ENTRY((v) + 2, __VA_ARGS__), ENTRY((v) + 3, __VA_ARGS__)
#define ROW16(v, ...) \
    ROW4((v), __VA_ARGS__), ROW4((v) + 4, __VA_ARGS__), ROW4((v) + 8, __VA_ARGS__), ROW4((v) + 12, __VA_ARGS__)
#define ROW64(v, ...) \
    ROW16((v), __VA_ARGS__), ROW16((v) + 16, __VA_ARGS__), ROW16((v) + 32, __VA_ARGS__), ROW16((v) + 48, __VA_ARGS__)
/* The eight powers are one argument that becomes eight when ROW64 looks at it. */
#define TABLE(...)                                                                                      \
    {                                                                                                   \
        ROW64(0, __VA_ARGS__), ROW64(64, __VA_ARGS__), ROW64(128, __VA_ARGS__), ROW64(192, __VA_ARGS__) \
    }

/* [k][v]: the state after octet v and then k zero octets, from state 0. e(32) … e(95). */
static const uint32_t slice[8][256] = {
    TABLE(CRC32C_E_32), TABLE(CRC32C_E_40), TABLE(CRC32C_E_48), TABLE(CRC32C_E_56),
    TABLE(CRC32C_E_64), TABLE(CRC32C_E_72), TABLE(CRC32C_E_80), TABLE(CRC32C_E_88),
};

/* e(8 * 1024 + 24 - 8m) … for octet m of the state. */
const uint32_t crc32c_shift_long[4][256] = {
    TABLE(CRC32C_E_8216),
    TABLE(CRC32C_E_8208),
    TABLE(CRC32C_E_8200),
    TABLE(CRC32C_E_8192),
};

/* e(8 * 128 + 24 - 8m) … for octet m of the state. */
const uint32_t crc32c_shift_short[4][256] = {
    TABLE(CRC32C_E_1048),
    TABLE(CRC32C_E_1040),
    TABLE(CRC32C_E_1032),
    TABLE(CRC32C_E_1024),
};

uint32_t crc32c_table_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t v = crc32c_load64(p) ^ state;
        state = slice[7][v & 0xff] ^ slice[6][v >> 8 & 0xff] ^ slice[5][v >> 16 & 0xff] ^ slice[4][v >> 24 & 0xff] ^
                slice[3][v >> 32 & 0xff] ^ slice[2][v >> 40 & 0xff] ^ slice[1][v >> 48 & 0xff] ^ slice[0][v >> 56];
    }
    for (; len > 0; p++, len--)
        state = state >> 8 ^ slice[0][(state ^ *p) & 0xff];
    return state;
}

#if defined(__x86_64__)
#define X86(update) update
#else
#define X86(update) NULL
#endif
#if defined(__aarch64__)
#define ARM(update) update
#else
#define ARM(update) NULL
#endif

#define NEEDS_PCLMUL (CRC32C_CAN_SSE42 | CRC32C_CAN_PCLMUL)

const struct crc32c_impl crc32c_impls[] = {
    { "vpclmul512", NEEDS_PCLMUL | CRC32C_CAN_VPCLMUL256 | CRC32C_CAN_VPCLMUL512, X86(crc32c_vpclmul512_update) },
    { "vpclmul256", NEEDS_PCLMUL | CRC32C_CAN_VPCLMUL256, X86(crc32c_vpclmul256_update) },
    { "pclmul", NEEDS_PCLMUL, X86(crc32c_pclmul_update) },
    { "sse4.2", CRC32C_CAN_SSE42, X86(crc32c_sse42_update) },
    { "pmull", CRC32C_CAN_ARMV8 | CRC32C_CAN_PMULL, ARM(crc32c_pmull_update) },
    { "armv8", CRC32C_CAN_ARMV8, ARM(crc32c_armv8_update) },
    { "table", 0, crc32c_table_update },
    { NULL, 0, NULL },
};

/*
 * What the pointer holds until the first call, so that calls before the library's constructor (a program's own
 * constructor may open connections) need no other preparation.
 */
static uint32_t first_update(uint32_t state, const void *buf, size_t len)
{
    crc32c_setup(CRC32C_ANY);
    return crc32c_update(state, buf, len);
}

uint32_t (*crc32c_update_fn)(uint32_t state, const void *buf, size_t len) = first_update;

const struct crc32c_impl *crc32c_choose(unsigned features)
{
    const struct crc32c_impl *i = crc32c_impls;
    while (i->needs & ~features) /* end of the search: the table needs nothing of the CPU */
        i++;
    return i;
}

const struct crc32c_impl *crc32c_named(const char *name)
{
    for (const struct crc32c_impl *i = crc32c_impls; i->name; i++)
        if (i->update && strcmp(i->name, name) == 0)
            return i;
    return NULL;
}

void crc32c_setup(unsigned allowed)
{
    __atomic_store_n(&crc32c_update_fn, crc32c_choose(crc32c_features() & allowed)->update, __ATOMIC_RELAXED);
}

const char *crc32c_name(void)
{
    const struct crc32c_impl *i = crc32c_impls;
    while (i->name && i->update != __atomic_load_n(&crc32c_update_fn, __ATOMIC_RELAXED))
        i++;
    return i->name ? i->name : "undecided";
}
