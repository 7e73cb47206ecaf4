/* The command; see stat.h. */
#include "tools/stat.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/board.h"
#include "tools/stat_text.h"
#include "tools/usage.h"

#define WATCH_S 1

static int print_help(void)
{
    fputs("Usage: sockwarp stat [OPTION]... [PID|PROGRAM]\n"
          "Shows the connections of processes that were started with SOCKWARP_STAT=1: this\n"
          "user's, and to root everybody's.\n"
          "\n"
          "  -w, --watch               once a second, until it is interrupted\n"
          "      --totals              added up by program, port and reason\n"
          "      --json                connections and totals as a JSON object\n"
          "      --openmetrics         text for node_exporter's textfile collector\n"
          "      --forget              removes what killed processes have left\n"
          "  -h, --help                this text\n",
          stdout);
    return finish_output();
}

/* Somebody who looks for the first time sees nothing else. */
static void say_none(const char *only)
{
    if (only)
        fprintf(stderr, "sockwarp: stat: no process '%s' that was started with SOCKWARP_STAT=1\n", only);
    else
        fputs("sockwarp: stat: no process that was started with SOCKWARP_STAT=1\n", stderr);
}

static int show(int (*write)(const struct boards *b), const char *only, bool forget, bool speak)
{
    struct boards b;
    int rc = boards_read(&b, only, forget);

    if (rc == 0) {
        rc = write(&b);
        if (speak && b.count == 0 && (write == stat_table || write == stat_totals))
            say_none(only);
        boards_free(&b);
    }
    return rc;
}

int stat_main(int argc, char **argv)
{
    static const struct option longs[] = {
        { "watch", no_argument, NULL, 'w' },
        { "totals", no_argument, NULL, 't' },
        { "json", no_argument, NULL, 'j' },
        { "openmetrics", no_argument, NULL, 'o' },
        { "forget", no_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    bool watch = false, forget = false;
    int (*write)(const struct boards *b) = stat_table;
    static char self[] = "sockwarp: stat"; /* getopt's messages begin with it */
    int c, rc;

    argv[0] = self;
    while ((c = getopt_long(argc, argv, "wh", longs, NULL)) != -1) {
        if (c == 'h')
            return print_help();
        if (c == '?') {
            fputs("Try 'sockwarp stat --help'.\n", stderr);
            return EXIT_USAGE;
        }
        watch |= c == 'w';
        forget |= c == 'f';
        if (c == 't')
            write = stat_totals;
        else if (c == 'j')
            write = stat_json;
        else if (c == 'o')
            write = stat_openmetrics;
    }
    if (argc - optind > 1)
        die("stat: one process or program at a time, not '%s' too", argv[optind + 1]);
    for (;;) {
        if (watch && isatty(STDOUT_FILENO))
            fputs("\033[H\033[2J", stdout);
        rc = show(write, argv[optind], forget, !watch);
        if (rc < 0)
            die("stat: %s", strerror(ENOMEM));
        if (!watch || fflush(stdout) != 0)
            return finish_output();
        sleep(WATCH_S);
    }
}
