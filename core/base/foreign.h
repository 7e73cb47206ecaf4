/*
 * Marks that this thread is inside a library that sockwarp has called (libibverbs, librdmacm, libunwind). What that
 * library reads, writes or waits for by intercepted calls is its own: such a call does not go on with connections,
 * whose turns and locks this thread may hold.
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
