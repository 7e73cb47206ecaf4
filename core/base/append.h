/*
 * Lines that are appended to a file the user has named: statistics and the log. No allocation; errno is not touched.
 * Async-signal-safe.
 *
 * The program must not wait for a line, and no other user that may write to the folder may redirect it: no symbolic
 * link is followed except the standard streams' (/dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N), and what a pipe
 * or a terminal does not take at once is lost.
 */
#ifndef SW_BASE_APPEND_H
#define SW_BASE_APPEND_H

#include <stddef.h>

#include "core/base/must.h"

/*
 * The whole line to a regular file, a FIFO with a reader or a character device: 0, or -errno. An empty one says whether
 * lines could be appended.
 */
int append_line(const char *path, const char *line, size_t len) SW_MUST;

#endif
