/*
 * What property tests have in common: runs of random operations, each with a seed of its own, which a failure prints. SW_SEED=n
 * repeats one run; SW_SECONDS=n goes on from there that long.
 */
#ifndef SW_TESTS_UNIT_PROPERTY_H
#define SW_TESTS_UNIT_PROPERTY_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/prng.h"

static uint64_t rng, run_seed; /* of the run under way */

static inline uint32_t rnd(uint32_t n)
{
    return prng32(&rng) % n;
}

#define HOLD(cond, ...)                                                                       \
    do {                                                                                      \
        if (!(cond)) {                                                                        \
            char text[200];                                                                   \
            snprintf(text, sizeof(text), __VA_ARGS__);                                        \
            cr_assert(false, "seed %llu: %s: %s", (unsigned long long)run_seed, #cond, text); \
        }                                                                                     \
    } while (0)

struct property_runs {
    uint64_t first, n; /* the first seed; runs begun */
    bool one, longer;  /* SW_SEED, SW_SECONDS */
    time_t end;
};

static inline struct property_runs property_begin(void)
{
    const char *one = getenv("SW_SEED"), *longer = getenv("SW_SECONDS");
    return (struct property_runs){
        .first = one ? strtoull(one, NULL, 10) : 1,
        .one = one != NULL,
        .longer = longer != NULL,
        .end = time(NULL) + (longer ? strtol(longer, NULL, 10) : 0),
    };
}

/* Sets the next run's seed. */
static inline void property_next(struct property_runs *r)
{
    run_seed = r->first + r->n++;
    rng = run_seed * 0x9e3779b97f4a7c15u | 1;
}

/* enough: there were as many runs as each time, if nothing else is asked for. */
static inline bool property_goes_on(const struct property_runs *r, bool enough)
{
    return (!r->one && !enough) || (r->longer && time(NULL) < r->end);
}

/* The octet at a place of the stream of one of two directions. */
static inline uint8_t property_octet(bool second, uint64_t at)
{
    return (uint8_t)(((at + 1) * 0x9e3779b97f4a7c15u + second) >> 40);
}

#endif
