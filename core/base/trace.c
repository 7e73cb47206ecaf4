/*
 * Log lines; see trace.h. It is no part of the receive path: every layer may write a line, none depends on it.
 *
 *   sockwarp[1234]: connect 10.0.0.2:80: hello-timeout
 *   sockwarp[1234]: 5021.004711 fd 7: HELLO_SENT -> PLAIN   (debug lines carry CLOCK_MONOTONIC)
 */
#include "core/base/trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/rawsys.h"

#define TRACE_LINE_MAX 512

int trace_level_now = TRACE_OFF;

static void sink_stderr(void *arg, const char *line, size_t len)
{
    (void)arg;
    rawsys_write_all(2, line, len);
}

static void (*trace_sink)(void *arg, const char *line, size_t len) = sink_stderr;
static void *trace_arg;

void trace_setup(int level, void (*sink)(void *arg, const char *line, size_t len), void *arg)
{
    trace_sink = sink ? sink : sink_stderr;
    trace_arg = arg;
    trace_level_now = level;
}

int trace_level_parse(const char *name, size_t len)
{
    static const char *const names[] = { "off", "error", "info", "debug" };

    if (len == 1 && name[0] >= '0' && name[0] <= '3')
        return name[0] - '0';
    for (size_t i = 0; i < SW_ARRAY_LEN(names); i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return (int)i;
    return -EINVAL;
}

/* Turns printf's result into the number of octets that are in a buffer with cap octets. */
static size_t held(int n, size_t cap)
{
    if (n < 0)
        return 0;
    return (size_t)n < cap ? (size_t)n : cap - 1;
}

void trace_emit(int level, const char *fmt, ...)
{
    char line[TRACE_LINE_MAX];
    const size_t cap = sizeof(line) - 1; /* the last octet is kept for '\n' */
    int keep = errno;
    size_t len, head;
    va_list ap;
    int n;

    len = held(snprintf(line, cap, "sockwarp[%d]: ", (int)rawsys_getpid()), cap);
    if (level >= TRACE_DEBUG) {
        struct timespec ts = { 0, 0 };
        clock_gettime(CLOCK_MONOTONIC, &ts);
        len += held(snprintf(line + len, cap - len, "%lld.%06ld ", (long long)ts.tv_sec, ts.tv_nsec / 1000), cap - len);
    }

    /*
     * glibc's vsnprintf neither allocates nor locks for integers and strings, the only conversions
     * used.
     */
    errno = keep; /* for %m */
    head = len;
    va_start(ap, fmt);
    n = vsnprintf(line + len, cap - len, fmt, ap);
    va_end(ap);
    len += held(n, cap - len);
    if (n >= 0 && (size_t)n >= cap - head)
        memset(line + len - 3, '.', 3);

    /* One call writes one line: a string of the peer's or the program's must not be able to forge a second one. */
    for (size_t i = head; i < len; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[len++] = '\n';
    trace_sink(trace_arg, line, len);
    errno = keep;
}
