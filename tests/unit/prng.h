/* Numbers that look random, and are the same on every machine for one seed. */
#ifndef SW_TESTS_UNIT_PRNG_H
#define SW_TESTS_UNIT_PRNG_H

#include <stdint.h>

/* xorshift. arg: a uint64_t that is not 0, the seed. */
static inline uint32_t prng32(void *arg)
{
    uint64_t *x = arg;

    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return (uint32_t)(*x >> 16);
}

#endif
