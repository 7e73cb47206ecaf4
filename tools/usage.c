/* Messages and exit statuses of the launcher; see usage.h. */
#include "tools/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static int status_of(int err)
{
    return err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

int become(char *const argv[])
{
    execvp(argv[0], argv);
    int err = errno;
    fprintf(stderr, "sockwarp: '%s': %s\n", argv[0], strerror(err));
    return status_of(err);
}

pid_t tool_start(const char *log, bool apart, const char *const *argv)
{
    fflush(stdout);
    pid_t child = fork();

    if (child < 0)
        die("%s: fork: %s", argv[0], strerror(errno));
    if (child > 0)
        return child;
    int fd = open(log, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || (apart && (dup2(fd, STDOUT_FILENO) < 0 || setpgid(0, 0) < 0)))
        _exit(EXIT_CANNOT_RUN);
    execvp(argv[0], (char *const *)argv);
    _exit(status_of(errno));
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
