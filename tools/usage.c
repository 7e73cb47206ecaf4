/* Messages and exit statuses of the launcher; see usage.h. */
#include "tools/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void print_line(FILE *f, const char *start, const char *fmt, va_list ap)
{
    fputs(start, f);
    vfprintf(f, fmt, ap);
    fputc('\n', f);
}

void die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_line(stderr, "sockwarp: ", fmt, ap);
    va_end(ap);
    exit(EXIT_USAGE);
}

void say(const char *what, const char *fmt, ...)
{
    va_list ap;

    printf("%-12s ", what);
    va_start(ap, fmt);
    print_line(stdout, "", fmt, ap);
    va_end(ap);
}

char *text_of(const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        die("%s", strerror(ENOMEM));
    va_end(ap);
    return text;
}

uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int finish_output(void)
{
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_USAGE;
}
