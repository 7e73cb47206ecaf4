/*
 * Powers of x for crc32c.c and its implementations: see crc32c_impl.h. Made by
 * scripts/crc32c-constants; tests/unit/test_crc32c.c looks at each of them.
 */
#ifndef SW_BASE_CRC32C_CONST_H
#define SW_BASE_CRC32C_CONST_H

/* A table's: e(n), e(n + 1), ... e(n + 7). */
#define CRC32C_E_32 \
    0x82f63b78u, 0x417b1dbcu, 0x20bd8edeu, 0x105ec76fu, 0x8ad958cfu, 0xc79a971fu, 0xe13b70f7u, 0xf26b8303u
#define CRC32C_E_40 \
    0xfbc3faf9u, 0xff17c604u, 0x7f8be302u, 0x3fc5f181u, 0x9d14c3b8u, 0x4e8a61dcu, 0x274530eeu, 0x13a29877u
#define CRC32C_E_48 \
    0x8b277743u, 0xc76580d9u, 0xe144fb14u, 0x70a27d8au, 0x38513ec5u, 0x9edea41au, 0x4f6f520du, 0xa541927eu
#define CRC32C_E_56 \
    0x52a0c93fu, 0xaba65fe7u, 0xd725148bu, 0xe964b13du, 0xf64463e6u, 0x7b2231f3u, 0xbf672381u, 0xdd45aab8u
#define CRC32C_E_64 \
    0x6ea2d55cu, 0x37516aaeu, 0x1ba8b557u, 0x8f2261d3u, 0xc5670b91u, 0xe045beb0u, 0x7022df58u, 0x38116facu
#define CRC32C_E_72 \
    0x1c08b7d6u, 0x0e045bebu, 0x85f4168du, 0xc00c303eu, 0x6006181fu, 0xb2f53777u, 0xdb8ca0c3u, 0xef306b19u
#define CRC32C_E_80 \
    0xf56e0ef4u, 0x7ab7077au, 0x3d5b83bdu, 0x9c5bfaa6u, 0x4e2dfd53u, 0xa5e0c5d1u, 0xd0065990u, 0x68032cc8u
#define CRC32C_E_88 \
    0x34019664u, 0x1a00cb32u, 0x0d006599u, 0x847609b4u, 0x423b04dau, 0x211d826du, 0x9278fa4eu, 0x493c7d27u
#define CRC32C_E_1024 \
    0xb8fdb1e7u, 0xde88e38bu, 0xedb24abdu, 0xf42f1e26u, 0x7a178f13u, 0xbffdfcf1u, 0xdd08c500u, 0x6e846280u
#define CRC32C_E_1032 \
    0x37423140u, 0x1ba118a0u, 0x0dd08c50u, 0x06e84628u, 0x03742314u, 0x01ba118au, 0x00dd08c5u, 0x8298bf1au
#define CRC32C_E_1040 \
    0x414c5f8du, 0xa25014beu, 0x51280a5fu, 0xaa623e57u, 0xd7c72453u, 0xe915a951u, 0xf67cefd0u, 0x7b3e77e8u
#define CRC32C_E_1048 \
    0x3d9f3bf4u, 0x1ecf9dfau, 0x0f67cefdu, 0x8545dc06u, 0x42a2ee03u, 0xa3a74c79u, 0xd3259d44u, 0x6992cea2u
#define CRC32C_E_8192 \
    0xe4172b16u, 0x720b958bu, 0xbbf3f1bdu, 0xdf0fc3a6u, 0x6f87e1d3u, 0xb535cb91u, 0xd86cdeb0u, 0x6c366f58u
#define CRC32C_E_8200 \
    0x361b37acu, 0x1b0d9bd6u, 0x0d86cdebu, 0x84355d8du, 0xc0ec95beu, 0x60764adfu, 0xb2cd1e17u, 0xdb90b473u
#define CRC32C_E_8208 \
    0xef3e6141u, 0xf5690bd8u, 0x7ab485ecu, 0x3d5a42f6u, 0x1ead217bu, 0x8da0abc5u, 0xc4266e9au, 0x6213374du
#define CRC32C_E_8216 \
    0xb3ffa0deu, 0x59ffd06fu, 0xae09d34fu, 0xd5f2d2dfu, 0xe80f5217u, 0xf6f19273u, 0xf98ef241u, 0xfe314258u

/* Folding over D bits: x^(D+32), x^(D-32), shifted. */
#define CRC32C_FOLD_128 0x0f20c0dfell, 0x14cd00bd6ll
#define CRC32C_FOLD_256 0x1384aa63all, 0x0ba4fc28ell
#define CRC32C_FOLD_384 0x01c291d04ll, 0x1d82c63dall
#define CRC32C_FOLD_512 0x0740eef02ll, 0x09e4addf8ll
#define CRC32C_FOLD_1024 0x06992cea2ll, 0x00d3b6092ll
#define CRC32C_FOLD_2048 0x0dcb17aa4ll, 0x0b9e02b86ll
/* The same over four runs, for steps of that many octets. */
#define CRC32C_FOLD_GAP_64 0x12c6b6524ll, 0x0c4cedd32ll
#define CRC32C_FOLD_GAP_128 0x00e08d72all, 0x11cb7bedcll
#define CRC32C_FOLD_GAP_256 0x1adb31ab0ll, 0x1ca038242ll

#endif
