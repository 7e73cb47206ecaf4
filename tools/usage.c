/* Messages and exit statuses of the launcher; see usage.h. */
#include "tools/usage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char *fmt, ...)
{
    va_list ap;

    fputs("sockwarp: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(EXIT_USAGE);
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

int finish_output(void)
{
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_USAGE;
}
