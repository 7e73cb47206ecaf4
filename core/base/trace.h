/*
 * Log lines. One branch when off; the line is built in a stack buffer and written with one call of
 * the sink, so that lines of several threads and processes do not mix. No stdio, no malloc; errno is
 * kept. Safe in signal handlers if the sink is (the default sink is the real write(2)).
 *
 * The level and sink are process-wide and set once at start by preload/ or a tool.
 */
#ifndef SW_BASE_TRACE_H
#define SW_BASE_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

enum trace_level { TRACE_OFF, TRACE_ERROR, TRACE_INFO, TRACE_DEBUG };

extern int trace_level_now; /* enum trace_level; read without synchronisation */

/* line ends in '\n'. Must keep errno and may be called from any thread or signal handler. */
void trace_setup(int level, void (*sink)(void *arg, const char *line, size_t len), void *arg);

/* "off", "error", "info", "debug" or 0..3; -EINVAL otherwise. len is the name's length. */
int trace_level_parse(const char *name, size_t len) SW_MUST;

void trace_emit(int level, const char *fmt, ...) SW_PRINTF(2, 3);

#define trace_on(level) SW_UNLIKELY(trace_level_now >= (level))
#define TRACE(level, ...)                     \
    do {                                      \
        if (trace_on(level))                  \
            trace_emit((level), __VA_ARGS__); \
    } while (0)
#define trace_error(...) TRACE(TRACE_ERROR, __VA_ARGS__)
#define trace_info(...) TRACE(TRACE_INFO, __VA_ARGS__)
#define trace_debug(...) TRACE(TRACE_DEBUG, __VA_ARGS__)

#endif
