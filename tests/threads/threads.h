/*
 * Programs of several threads over one primitive of preload/: exit 0, or a line that says what was wrong and exit 1.
 * Plain programs, since Criterion does not work with ThreadSanitizer (make check-tsan).
 */
#ifndef SW_TESTS_THREADS_H
#define SW_TESTS_THREADS_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/preload_world.h"

#define CHECK(cond, ...)                    \
    do {                                    \
        if (!(cond)) {                      \
            fprintf(stderr, "%s: ", #cond); \
            fprintf(stderr, __VA_ARGS__);   \
            fputc('\n', stderr);            \
            _Exit(1);                       \
        }                                   \
    } while (0)

#define THREADS_MAX 8u

/* Runs fn(seed) in n threads, each with a seed of its own, and waits for all. */
static inline void together(unsigned n, void *(*fn)(void *seed))
{
    static uint64_t seeds[THREADS_MAX];
    pthread_t t[THREADS_MAX];
    for (unsigned i = 0; i < n; i++) {
        seeds[i] = 1000 + i;
        CHECK(pthread_create(&t[i], NULL, fn, &seeds[i]) == 0, "no thread");
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(t[i], NULL);
}

#endif
