/* The command; see trace.h. */
#include "tools/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/capture.h"
#include "tools/library.h"
#include "tools/usage.h"

#define CONNECTIONS_MAX 1000u /* the filter that names them is one argument */
#define SCRIPT "sockwarp.lua"

static const struct trace *to_remove;
static volatile sig_atomic_t program, stopped; /* its pid; a signal that came when it did not run */

static void remove_files(void)
{
    unlink(to_remove->stats);
    unlink(to_remove->packets);
    unlink(to_remove->log);
    rmdir(to_remove->folder);
}

/* mode: processes of the program that have given up root write their statistics, too. */
static char *new_file(const struct trace *t, const char *name, mode_t mode)
{
    char *path = text_of("%s/%s", t->folder, name);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0 || fchmod(fd, mode) < 0)
        die("trace: %s: %s", path, strerror(errno));
    close(fd);
    return path;
}

void trace_open(struct trace *t)
{
    const char *where = getenv("TMPDIR");

    t->folder = text_of("%s/sockwarp-trace.XXXXXX", where && where[0] ? where : "/tmp");
    if (!mkdtemp(t->folder) || chmod(t->folder, 0711) < 0)
        die("trace: %s: %s", t->folder, strerror(errno));
    t->stats = new_file(t, "stats", 0666);
    t->packets = new_file(t, "packets", 0600);
    t->log = new_file(t, "log", 0600);
    to_remove = t;
    atexit(remove_files);
}

/* ---- the program ---- */

/* (What the terminal sends it sends to both.) */
static void on_signal(int number)
{
    if (program == 0)
        stopped = number;
    else if (number != SIGINT && number != SIGQUIT)
        kill(program, number);
}

/* Signals that are ignored stay so, for the program, too; the others it finds as they were. */
static void catch_signals(void)
{
    static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
    struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, old;

    for (size_t i = 0; i < SW_ARRAY_LEN(numbers); i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
}

/* Runs it to its end; its status as waitpid(2) has it. */
static int run(char **argv)
{
    sigset_t all, before;
    int status = 0;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t child = fork();
    if (child < 0)
        die("trace: fork: %s", strerror(errno));
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        _exit(become(argv));
    }
    program = child;
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    program = 0;
    return status;
}

/* ---- its connections ---- */

/* The text behind "KEY":", to its quotation mark. False: there is none, or it is longer than cap. */
static bool field(const char *line, const char *key, char *to, size_t cap)
{
    char *begin = text_of("\"%s\":\"", key);
    const char *at = strstr(line, begin);
    size_t skip = strlen(begin), len = at ? strcspn(at + skip, "\"") : cap;

    free(begin);
    if (len >= cap)
        return false;
    memcpy(to, at + skip, len);
    to[len] = '\0';
    return true;
}

/* Adds an end, as "[::1]:80", to a display filter of tshark's. */
static void put_end(FILE *f, const char *end)
{
    bool v6 = end[0] == '[';
    const char *port = strrchr(end, ':');
    size_t len = port ? (size_t)(port - end) : 0;

    fprintf(f, "%s==%.*s && tcp.port==%s", v6 ? "ipv6.addr" : "ip.addr", (int)(v6 ? strcspn(end + 1, "%]") : len),
            end + v6, port ? port + 1 : "0");
}

/* A display filter that shows the connections of the statistics; NULL: there are none. The caller frees it. */
static char *display_filter(const struct trace *t, unsigned *n)
{
    char line[2048], local[128], peer[128], *text = NULL;
    size_t len = 0;
    FILE *from = fopen(t->stats, "re"), *f = open_memstream(&text, &len);

    if (!from || !f)
        die("trace: %s", strerror(errno));
    for (*n = 0; fgets(line, sizeof(line), from);) {
        if (!field(line, "local", local, sizeof(local)) || !field(line, "peer", peer, sizeof(peer)) ||
            ++*n > CONNECTIONS_MAX)
            continue;
        fputs(*n > 1 ? " || (" : "(", f);
        put_end(f, local);
        fputs(" && ", f);
        put_end(f, peer);
        fputc(')', f);
    }
    fclose(from);
    if (fclose(f) != 0)
        die("trace: %s", strerror(errno));
    if (*n > 0)
        return text;
    free(text);
    return NULL;
}

/* ---- tshark ---- */

/* "" if it is not there. */
static void find_script(char path[PATH_MAX])
{
    if (!library_source("tools/wireshark/" SCRIPT, path) && !realpath(SW_PKGDATADIR "/" SCRIPT, path))
        path[0] = '\0';
}

static bool tshark(const struct trace *t, const char *shown)
{
    char script[PATH_MAX + 16] = "lua_script:";
    const char *argv[17] = { "tshark", "-n", "-r", t->packets, "-Y", shown, "--disable-protocol=rpcordma" };
    size_t n = 7;
    int status;

    argv[n++] = "-otcp.desegment_tcp_streams:TRUE";
    argv[n++] = "-otcp.check_checksum:FALSE";
    find_script(script + strlen(script));
    if (script[strlen("lua_script:")] != '\0') {
        argv[n++] = "-X";
        argv[n++] = script;
    }
    if (t->pcap) {
        argv[n++] = "-w";
        argv[n++] = t->pcap;
    }
    if (waitpid(tool_start(t->log, false, argv), &status, 0) < 0)
        die("trace: tshark: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NOT_FOUND) {
        fputs("sockwarp: trace: tshark is not installed\n", stderr);
        return false;
    }
    char line[512];
    FILE *f = fopen(t->log, "re");
    while (f && fgets(line, sizeof(line), f))
        fprintf(stderr, "sockwarp: trace: tshark: %s", line);
    if (f)
        fclose(f);
    return false;
}

int trace_run(struct trace *t, char **argv)
{
    struct capture c = { .file = t->packets, .log = t->log, .stopped = &stopped };
    unsigned n;

    catch_signals();
    capture_begin(&c, t->filter ? t->filter : "tcp");
    int status = run(argv);
    unsigned long lost = capture_end(&c);
    if (lost > 0)
        fprintf(stderr, "sockwarp: trace: %lu packets were lost (--filter captures less)\n", lost);
    char *shown = display_filter(t, &n);
    if (n > CONNECTIONS_MAX)
        fprintf(stderr, "sockwarp: trace: only the first %u of %u connections are shown\n", CONNECTIONS_MAX, n);
    if (!shown)
        fputs("sockwarp: trace: the program has made no TCP connection that the rules match\n", stderr);
    bool good = !shown || tshark(t, shown);
    free(shown);
    int rc = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return rc != 0 || good ? rc : EXIT_REFUSED;
}
