/*
 * stdio over descriptors of ours: streams whose reads and writes come to our read() and write().
 */
#ifndef SW_PRELOAD_STDIO_H
#define SW_PRELOAD_STDIO_H

#include <spawn.h>
#include <stdio.h>
#include <sys/types.h>

#include "core/base/must.h"

#define STDIO_STD_MAX 2 /* descriptors 0 to 2 have streams since before the program */

void stdio_std_now(int fd);

/* Descriptor fd names another file now. Not from a vfork child. */
static inline void stdio_changed(int fd)
{
    if (SW_UNLIKELY(fd >= 0 && fd <= STDIO_STD_MAX))
        stdio_std_now(fd);
}

/* At start, when connections of the program before were taken over: the standard streams on them. */
void stdio_start(void);
/* At exit, while connections still work: writes the bytes in the buffers of our streams. */
void stdio_finish(void);
/*
 * popen: a stream on fd, mode "r" or "w", NULL: no memory; whose end is waited for when it is
 * closed; and the children's file actions that close the streams of earlier ones, an error number.
 */
FILE *stdio_pipe(int fd, const char *mode);
void stdio_pipe_to(FILE *file, pid_t child);
int stdio_close_pipes(posix_spawn_file_actions_t *fa);

/* In the child of a fork. */
void stdio_after_fork(void);

#endif
