/*
 * stdio over descriptors of ours: streams whose reads and writes come to our read() and write().
 */
#ifndef SW_PRELOAD_STDIO_H
#define SW_PRELOAD_STDIO_H

#include "core/base/must.h"

#define STDIO_STD_MAX 2 /* descriptors 0 to 2 have streams since before the program */

void stdio_std_now(int fd);

/* What descriptor fd names has changed. Not from a vfork child. */
static inline void stdio_changed(int fd)
{
    if (SW_UNLIKELY(fd >= 0 && fd <= STDIO_STD_MAX))
        stdio_std_now(fd);
}

/* At start, when connections of the program before were taken over: the standard streams on them. */
void stdio_start(void);
/* At exit, while connections still are what they were: octets in the buffers of our streams go out. */
void stdio_finish(void);
/* In the child of a fork. */
void stdio_after_fork(void);

#endif
