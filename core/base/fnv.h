/*
 * FNV-1a in 64 bits: for places in tables and for records that are half of one writer's and half of another's. No
 * protection against whoever chooses the octets.
 */
#ifndef SW_BASE_FNV_H
#define SW_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_BEGIN 0xcbf29ce484222325u

/* h: FNV_BEGIN, or what came of the octets before. */
static inline uint64_t fnv_add(uint64_t h, const void *octets, size_t len)
{
    const uint8_t *p = (const uint8_t *)octets;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
