/*
 * This thread is inside a library that we have called (libibverbs, librdmacm, libunwind): what that reads, writes or
 * waits for, by calls that we intercept, is its own business, and no occasion to go on with connections, whose turns
 * and locks this thread may hold.
 */
#ifndef SW_BASE_FOREIGN_H
#define SW_BASE_FOREIGN_H

#include <stdbool.h>

extern __thread unsigned foreign_depth;

static inline void foreign_enter(void)
{
    foreign_depth++;
}

static inline void foreign_leave(void)
{
    foreign_depth--;
}

static inline bool foreign_call(void)
{
    return foreign_depth > 0;
}

#endif
