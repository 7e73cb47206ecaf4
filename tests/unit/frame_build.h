/*
 * FPDUs put together by hand, field by field, legal or not: nothing of the code under test is used
 * but the CRC.
 */
#ifndef SW_TESTS_UNIT_FRAME_BUILD_H
#define SW_TESTS_UNIT_FRAME_BUILD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/crc32c.h"

/*
 * First two octets of a segment: DDP control (T 0x80, L 0x40, DV 1), RDMAP control (RV 1 is 0x40,
 * opcode).
 */
enum { FB_T = 0x80, FB_L = 0x40, FB_DV = 0x01, FB_RV = 0x40 };
enum {
    FB_TL = FB_T | FB_L | FB_DV, /* tagged, last */
    FB_TM = FB_T | FB_DV,        /* tagged, more to come */
    FB_UL = FB_L | FB_DV,        /* untagged, last */
    FB_UM = FB_DV,
};

static inline size_t fb_be(uint8_t *p, uint64_t v, size_t octets)
{
    for (size_t i = 0; i < octets; i++)
        p[i] = (uint8_t)(v >> (8 * (octets - 1 - i)));
    return octets;
}

/* Length, ULPDU, pad, CRC. Returns the FPDU's length. */
static inline size_t fb_fpdu(uint8_t *out, const uint8_t *ulpdu, size_t len)
{
    size_t n = 2 + len;
    uint32_t crc;

    fb_be(out, len, 2);
    if (len)
        memmove(out + 2, ulpdu, len);
    while (n % 4)
        out[n++] = 0;
    crc = crc32c_final(crc32c_update(CRC32C_INIT, out, n));
    for (int i = 0; i < 4; i++)
        out[n++] = (uint8_t)(crc >> (8 * i));
    return n;
}

static inline size_t fb_tagged(uint8_t *out, uint8_t ddp, uint8_t rdmap, uint32_t stag, uint64_t to,
                               const void *payload, size_t len)
{
    uint8_t *p = out + 2;

    *p++ = ddp;
    *p++ = rdmap;
    p += fb_be(p, stag, 4);
    p += fb_be(p, to, 8);
    if (len)
        memcpy(p, payload, len);
    return fb_fpdu(out, out + 2, 14 + len);
}

static inline size_t fb_untagged(uint8_t *out, uint8_t ddp, uint8_t rdmap, uint32_t word, uint32_t qn, uint32_t msn,
                                 uint32_t mo, const void *payload, size_t len)
{
    uint8_t *p = out + 2;

    *p++ = ddp;
    *p++ = rdmap;
    p += fb_be(p, word, 4);
    p += fb_be(p, qn, 4);
    p += fb_be(p, msn, 4);
    p += fb_be(p, mo, 4);
    if (len)
        memcpy(p, payload, len);
    return fb_fpdu(out, out + 2, 18 + len);
}

/* The 28 octets of a Read Request header. */
static inline size_t fb_read_hdr(uint8_t *p, uint32_t sink, uint64_t sink_to, uint32_t len, uint32_t src,
                                 uint64_t src_to)
{
    fb_be(p, sink, 4);
    fb_be(p + 4, sink_to, 8);
    fb_be(p + 12, len, 4);
    fb_be(p + 16, src, 4);
    fb_be(p + 20, src_to, 8);
    return 28;
}

static inline size_t fb_read_request(uint8_t *out, uint32_t msn, uint32_t sink, uint64_t sink_to, uint32_t len,
                                     uint32_t src, uint64_t src_to)
{
    uint8_t hdr[28];

    fb_read_hdr(hdr, sink, sink_to, len, src, src_to);
    return fb_untagged(out, FB_UL, FB_RV | 1, 0, 1, msn, 0, hdr, sizeof(hdr));
}

/* A Send, whole in one segment. */
static inline size_t fb_send(uint8_t *out, uint32_t msn, const void *payload, size_t len)
{
    return fb_untagged(out, FB_UL, FB_RV | 3, 0, 0, msn, 0, payload, len);
}

static inline size_t fb_write(uint8_t *out, uint32_t stag, uint64_t to, const void *payload, size_t len)
{
    return fb_tagged(out, FB_TL, FB_RV | 0, stag, to, payload, len);
}

static inline uint32_t fb_get(const uint8_t *p, size_t octets)
{
    uint32_t v = 0;

    for (size_t i = 0; i < octets; i++)
        v = v << 8 | p[i];
    return v;
}

/* Is this a whole FPDU with a good CRC? Its ULPDU's length, or -1. */
static inline long fb_check(const uint8_t *p, size_t len)
{
    size_t ulpdu, n;
    uint32_t crc;

    if (len < 6)
        return -1;
    ulpdu = fb_get(p, 2);
    n = (2 + ulpdu + 3) / 4 * 4;
    if (len < n + 4)
        return -1;
    for (size_t i = 2 + ulpdu; i < n; i++)
        if (p[i] != 0)
            return -1;
    crc = crc32c_final(crc32c_update(CRC32C_INIT, p, n));
    for (int i = 0; i < 4; i++)
        if (p[n + (size_t)i] != (uint8_t)(crc >> (8 * i)))
            return -1;
    return (long)ulpdu;
}

#endif
