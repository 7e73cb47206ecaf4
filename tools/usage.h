/* What all commands of the launcher share: exit statuses, messages, and small helpers. */
#ifndef SW_TOOLS_USAGE_H
#define SW_TOOLS_USAGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "core/base/must.h"

/* As env(1), but 2 for mistakes of usage and settings. 1: a command that was understood and refuses. */
enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

/* Writes a line of text like vprintf's behind `start`. */
void print_line(FILE *f, const char *start, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* Prints a line to standard output: its subject, and text like printf's in a column of its own. */
void say(const char *what, const char *fmt, ...) SW_PRINTF(2, 3);

/* Prints "sockwarp: TEXT" and exits with EXIT_USAGE. */
void die(const char *fmt, ...) SW_PRINTF(1, 2) __attribute__((noreturn));

/* Text like printf's, to be freed by the caller; exits when memory is out. */
char *text_of(const char *fmt, ...) SW_PRINTF(1, 2) SW_MUST;

/* Becomes the program. Returns only if that fails: the exit status, and the reason is printed. */
int become(char *const argv[]) SW_MUST;

/*
 * Starts a tool whose standard error goes to a file, which exists. apart: its standard output, too, and what the terminal
 * interrupts is not it. Its status is EXIT_NOT_FOUND or EXIT_CANNOT_RUN if that is so. Exits with a message if there can
 * be no process.
 */
pid_t tool_start(const char *log, bool apart, const char *const *argv) SW_MUST;

/* By CLOCK_MONOTONIC. */
uint64_t now_ns(void) SW_MUST;

/* The status for main: were all lines of a command written to standard output? */
int finish_output(void) SW_MUST;

#endif
