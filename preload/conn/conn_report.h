/* What the block of a fault says of connections: core/base/fault.h. */
#ifndef SW_PRELOAD_CONN_REPORT_H
#define SW_PRELOAD_CONN_REPORT_H

#include <stddef.h>

/* A line for each connection that this thread is at work on: it has one of the turns. Async-signal-safe; waits for nothing. */
void conn_report(void (*write)(const char *line, size_t len));

#endif
