/*
 * CRC32C: the table implementation that works everywhere (eight octets a step), and the choice of
 * the fastest one. RFC 5044 section 4.4. See crc32c_impl.h for where the constants come from.
 */
#include "core/base/crc32c.h"

#include "core/base/crc32c_impl.h"

/* One entry: the sum of the powers whose bits are set in the index v. */
#define ENTRY(v, p0, p1, p2, p3, p4, p5, p6, p7)                                         \
    (((v) & 0x80 ? p0 : 0) ^ ((v) & 0x40 ? p1 : 0) ^ ((v) & 0x20 ? p2 : 0) ^             \
     ((v) & 0x10 ? p3 : 0) ^ ((v) & 0x08 ? p4 : 0) ^ ((v) & 0x04 ? p5 : 0) ^             \
     ((v) & 0x02 ? p6 : 0) ^ ((v) & 0x01 ? p7 : 0))
#define ROW4(v, ...) \
    ENTRY((v), __VA_ARGS__), ENTRY((v) + 1, __VA_ARGS__), ENTRY((v) + 2, __VA_ARGS__), \
        ENTRY((v) + 3, __VA_ARGS__)
#define ROW16(v, ...)                                                       \
    ROW4((v), __VA_ARGS__), ROW4((v) + 4, __VA_ARGS__), ROW4((v) + 8, __VA_ARGS__), \
        ROW4((v) + 12, __VA_ARGS__)
#define ROW64(v, ...)                                                            \
    ROW16((v), __VA_ARGS__), ROW16((v) + 16, __VA_ARGS__), ROW16((v) + 32, __VA_ARGS__), \
        ROW16((v) + 48, __VA_ARGS__)
#define TABLE(...)                                                             \
    {                                                                          \
        ROW64(0, __VA_ARGS__), ROW64(64, __VA_ARGS__), ROW64(128, __VA_ARGS__), \
            ROW64(192, __VA_ARGS__)                                            \
    }

/* [k][v]: the state after octet v and then k zero octets, from state 0. e(32) … e(95). */
static const uint32_t slice[8][256] = {
    TABLE(0x82f63b78u, 0x417b1dbcu, 0x20bd8edeu, 0x105ec76fu, 0x8ad958cfu, 0xc79a971fu, 0xe13b70f7u,
          0xf26b8303u),
    TABLE(0xfbc3faf9u, 0xff17c604u, 0x7f8be302u, 0x3fc5f181u, 0x9d14c3b8u, 0x4e8a61dcu, 0x274530eeu,
          0x13a29877u),
    TABLE(0x8b277743u, 0xc76580d9u, 0xe144fb14u, 0x70a27d8au, 0x38513ec5u, 0x9edea41au, 0x4f6f520du,
          0xa541927eu),
    TABLE(0x52a0c93fu, 0xaba65fe7u, 0xd725148bu, 0xe964b13du, 0xf64463e6u, 0x7b2231f3u, 0xbf672381u,
          0xdd45aab8u),
    TABLE(0x6ea2d55cu, 0x37516aaeu, 0x1ba8b557u, 0x8f2261d3u, 0xc5670b91u, 0xe045beb0u, 0x7022df58u,
          0x38116facu),
    TABLE(0x1c08b7d6u, 0x0e045bebu, 0x85f4168du, 0xc00c303eu, 0x6006181fu, 0xb2f53777u, 0xdb8ca0c3u,
          0xef306b19u),
    TABLE(0xf56e0ef4u, 0x7ab7077au, 0x3d5b83bdu, 0x9c5bfaa6u, 0x4e2dfd53u, 0xa5e0c5d1u, 0xd0065990u,
          0x68032cc8u),
    TABLE(0x34019664u, 0x1a00cb32u, 0x0d006599u, 0x847609b4u, 0x423b04dau, 0x211d826du, 0x9278fa4eu,
          0x493c7d27u),
};

/* e(8 * 1024 + 24 - 8m) … for octet m of the state. */
const uint32_t crc32c_shift_long[4][256] = {
    TABLE(0xb3ffa0deu, 0x59ffd06fu, 0xae09d34fu, 0xd5f2d2dfu, 0xe80f5217u, 0xf6f19273u, 0xf98ef241u,
          0xfe314258u),
    TABLE(0xef3e6141u, 0xf5690bd8u, 0x7ab485ecu, 0x3d5a42f6u, 0x1ead217bu, 0x8da0abc5u, 0xc4266e9au,
          0x6213374du),
    TABLE(0x361b37acu, 0x1b0d9bd6u, 0x0d86cdebu, 0x84355d8du, 0xc0ec95beu, 0x60764adfu, 0xb2cd1e17u,
          0xdb90b473u),
    TABLE(0xe4172b16u, 0x720b958bu, 0xbbf3f1bdu, 0xdf0fc3a6u, 0x6f87e1d3u, 0xb535cb91u, 0xd86cdeb0u,
          0x6c366f58u),
};

/* e(8 * 128 + 24 - 8m) … for octet m of the state. */
const uint32_t crc32c_shift_short[4][256] = {
    TABLE(0x3d9f3bf4u, 0x1ecf9dfau, 0x0f67cefdu, 0x8545dc06u, 0x42a2ee03u, 0xa3a74c79u, 0xd3259d44u,
          0x6992cea2u),
    TABLE(0x414c5f8du, 0xa25014beu, 0x51280a5fu, 0xaa623e57u, 0xd7c72453u, 0xe915a951u, 0xf67cefd0u,
          0x7b3e77e8u),
    TABLE(0x37423140u, 0x1ba118a0u, 0x0dd08c50u, 0x06e84628u, 0x03742314u, 0x01ba118au, 0x00dd08c5u,
          0x8298bf1au),
    TABLE(0xb8fdb1e7u, 0xde88e38bu, 0xedb24abdu, 0xf42f1e26u, 0x7a178f13u, 0xbffdfcf1u, 0xdd08c500u,
          0x6e846280u),
};

static int table_usable(void)
{
    return 1;
}

uint32_t crc32c_table_update(uint32_t state, const void *buf, size_t len)
{
    const uint8_t *p = buf;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t v = crc32c_load64(p) ^ state;
        state = slice[7][v & 0xff] ^ slice[6][v >> 8 & 0xff] ^ slice[5][v >> 16 & 0xff] ^
                slice[4][v >> 24 & 0xff] ^ slice[3][v >> 32 & 0xff] ^ slice[2][v >> 40 & 0xff] ^
                slice[1][v >> 48 & 0xff] ^ slice[0][v >> 56];
    }
    for (; len > 0; p++, len--)
        state = state >> 8 ^ slice[0][(state ^ *p) & 0xff];
    return state;
}

const struct crc32c_impl crc32c_impls[] = {
#if defined(__x86_64__)
    { "vpclmul", crc32c_vpclmul_usable, crc32c_vpclmul_update },
    { "pclmul", crc32c_pclmul_usable, crc32c_pclmul_update },
    { "sse4.2", crc32c_sse42_usable, crc32c_sse42_update },
#elif defined(__aarch64__)
    { "armv8", crc32c_armv8_usable, crc32c_armv8_update },
#endif
    { "table", table_usable, crc32c_table_update },
    { NULL, NULL, NULL },
};

/*
 * What the pointer holds until the first call, so that calls before our constructor (a program's
 * own constructor may open connections) need no other preparation.
 */
static uint32_t first_update(uint32_t state, const void *buf, size_t len)
{
    crc32c_setup();
    return crc32c_update(state, buf, len);
}

uint32_t (*crc32c_update_fn)(uint32_t state, const void *buf, size_t len) = first_update;

static const struct crc32c_impl *fastest(void)
{
    const struct crc32c_impl *i = crc32c_impls;
    while (!i->usable()) /* ends: the table is always usable */
        i++;
    return i;
}

void crc32c_setup(void)
{
    __atomic_store_n(&crc32c_update_fn, fastest()->update, __ATOMIC_RELAXED);
}

const char *crc32c_name(void)
{
    return fastest()->name;
}
