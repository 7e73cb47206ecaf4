/*
 * What stands in for the rest of the library where a test links one file of preload/ by itself: libc's calls behind us,
 * a process without settings, clock and random numbers.
 */
#ifndef SW_TESTS_PRELOAD_WORLD_H
#define SW_TESTS_PRELOAD_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* Does the thread run on the stack that was given for signal handlers? */
extern bool world_on_signal_stack;

/* First of all, and again in a child of fork. */
void world_init(void);

/* Memory of zeroes that children of fork share. */
void *world_shared(unsigned len);

/* Numbers that follow from *state, which is not 0. */
static inline uint32_t world_random(uint64_t *state, uint32_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32) % below;
}

#endif
