/* A capture by dumpcap; see capture.h. */
#include "tools/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/usage.h"

#define MARKER_LEN 16u
#define WAIT_S 30
#define KERNEL_ROOM_MIB "64"

static pid_t running; /* dumpcap, which does not outlive us */

static void stop_running(void)
{
    if (running > 0)
        kill(running, SIGKILL);
}

static int check(int r, const char *what)
{
    if (r < 0)
        die("trace: %s: %s", what, strerror(errno));
    return r;
}

/* What dumpcap has said first: "dumpcap: WHAT". Behind that comes how to install it and where to read about it. */
static void die_of_dumpcap(const struct capture *c, int status)
{
    static const char name[] = "dumpcap: ";
    char line[512] = "", said[512] = "";
    FILE *f = fopen(c->log, "re");

    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NOT_FOUND)
        die("trace: dumpcap is not installed (Debian: tshark)");
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CANNOT_RUN)
        die("trace: dumpcap cannot capture: this user may not run it");
    while (f && said[0] == '\0' && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0)
            strcpy(said, line + strlen(name));
    if (f)
        fclose(f);
    said[strcspn(said, "\n")] = '\0';
    die("trace: dumpcap cannot capture: %s", said[0] ? said : "it ended");
}

static void start(struct capture *c, const char *filter)
{
    const char *const argv[] = {
        "dumpcap", "-q", "-i", "any", "-f", filter, "-B", KERNEL_ROOM_MIB, "-w", c->file, NULL
    };

    running = c->dumpcap = tool_start(c->log, true, argv);
    atexit(stop_running);
}

/* Sends the bytes over loopback, once. */
static void send_marker(const struct capture *c, const uint8_t marker[MARKER_LEN])
{
    struct sockaddr_in to;
    socklen_t len = sizeof(to);

    check(getsockname(c->listener, (struct sockaddr *)&to, &len), "getsockname");
    int fd = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    check(connect(fd, (struct sockaddr *)&to, len), "connect over loopback");
    int peer = check(accept4(c->listener, NULL, NULL, SOCK_CLOEXEC), "accept");
    check((int)send(fd, marker, MARKER_LEN, MSG_NOSIGNAL), "send");
    close(fd);
    close(peer);
}

/* Are the bytes in the file, from *at on? Leaves *at where the next look begins. (dumpcap removes the file if it fails.) */
static int has_marker(const struct capture *c, off_t *at, const uint8_t marker[MARKER_LEN])
{
    static uint8_t buf[1 << 20];
    int found = 0, fd = open(c->file, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    while (fd >= 0 && !found && (n = check((int)pread(fd, buf, sizeof(buf), *at), c->file)) >= (ssize_t)MARKER_LEN) {
        found = memmem(buf, (size_t)n, marker, MARKER_LEN) != NULL;
        *at += n - (ssize_t)MARKER_LEN + 1;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* Until all that has been sent so far is in the file. */
static void await(struct capture *c)
{
    uint64_t until_ns = now_ns() + WAIT_S * (uint64_t)1000000000;
    uint8_t marker[MARKER_LEN];
    char events[4096];
    struct stat st;
    int status;

    check((int)getrandom(marker, sizeof(marker), 0), "getrandom");
    off_t at = stat(c->file, &st) == 0 ? st.st_size : 0;
    for (unsigned round = 0; !has_marker(c, &at, marker); round++) {
        struct pollfd p = { .fd = c->changes, .events = POLLIN };
        if (waitpid(c->dumpcap, &status, WNOHANG) == c->dumpcap) {
            running = 0;
            die_of_dumpcap(c, status);
        }
        if (*c->stopped)
            exit(128 + *c->stopped);
        if (now_ns() >= until_ns)
            die("trace: dumpcap has seen no packet for %d s", WAIT_S);
        if (round % 16 == 0) /* (It may not have begun when the first was sent.) */
            send_marker(c, marker);
        if (poll(&p, 1, 100) > 0)
            check((int)read(c->changes, events, sizeof(events)), "inotify");
    }
}

void capture_begin(struct capture *c, const char *filter)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(to);

    c->listener = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    check(bind(c->listener, (struct sockaddr *)&to, len), "bind over loopback");
    check(listen(c->listener, 8), "listen");
    check(getsockname(c->listener, (struct sockaddr *)&to, &len), "getsockname");
    c->changes = check(inotify_init1(IN_CLOEXEC), "inotify");
    check(inotify_add_watch(c->changes, c->file, IN_MODIFY), c->file);
    char *whole = text_of("tcp port %u or (tcp and (%s))", ntohs(to.sin_port), filter);
    start(c, whole);
    free(whole);
    await(c);
}

unsigned long capture_end(struct capture *c)
{
    char line[512];
    unsigned long lost = 0;
    int status;

    await(c);
    kill(c->dumpcap, SIGINT);
    while (waitpid(c->dumpcap, &status, 0) < 0)
        check(errno == EINTR ? 0 : -1, "dumpcap");
    running = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die_of_dumpcap(c, status);
    close(c->listener);
    close(c->changes);
    FILE *f = fopen(c->log, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *slash = strncmp(line, "Packets received/dropped", 24) == 0 ? strchr(strchr(line, ':'), '/') : NULL;
        lost += slash ? strtoul(slash + 1, NULL, 10) : 0;
    }
    if (f)
        fclose(f);
    return lost;
}
