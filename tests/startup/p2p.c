/*
 * One end of a conversation for p2p.test: which end speaks first, and how it waits, is told on the
 * command line.
 *
 *   p2p accept  first=accept|connect|both wait=block|poll    prints "port N", serves one connection
 *   p2p connect first=... wait=... PORT
 *
 * Rounds of growing messages. In each the first speaker sends, the other checks and answers; with
 * both, both send and then read. Prints "done OCTETS" once everything was right, else what was not,
 * and exits 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const size_t sizes[] = { 1, 2, 100, 4000, 16384, 16385, 65536, 300000, 1, 1000000 };
/* Both at once: no more than plain TCP holds while neither end reads. */
#define BOTH_MAX 65536u

static bool polling;
static uint64_t total;

static void die(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void wait_for(int fd, short events)
{
    struct pollfd p = { .fd = fd, .events = events };
    int r = poll(&p, 1, 200000);
    if (r == 0)
        errno = ETIMEDOUT;
    if (r <= 0)
        die("poll");
}

/* What octet i of a message of round n in this direction is. */
static uint8_t pattern(size_t n, size_t i, bool from_accept)
{
    return (uint8_t)((i ^ (i >> 8)) * 7 + n * 31 + (from_accept ? 128 : 0));
}

static void speak(int fd, size_t n, size_t len, bool from_accept)
{
    uint8_t *buf = malloc(len);
    for (size_t i = 0; i < len; i++)
        buf[i] = pattern(n, i, from_accept);
    for (size_t done = 0; done < len;) {
        ssize_t r = send(fd, buf + done, len - done, MSG_NOSIGNAL);
        if (r < 0 && polling && errno == EAGAIN)
            wait_for(fd, POLLOUT);
        else if (r < 0)
            die("send");
        else
            done += (size_t)r;
    }
    total += len;
    free(buf);
}

static void hear(int fd, size_t n, size_t len, bool from_accept)
{
    uint8_t buf[65536];
    for (size_t done = 0; done < len;) {
        size_t want = len - done < sizeof(buf) ? len - done : sizeof(buf);
        ssize_t r = recv(fd, buf, want, 0);
        if (r < 0 && polling && errno == EAGAIN) {
            wait_for(fd, POLLIN);
            continue;
        }
        if (r < 0)
            die("recv");
        if (r == 0) {
            printf("round %zu: end of file at %zu of %zu\n", n, done, len);
            exit(1);
        }
        for (size_t i = 0; i < (size_t)r; i++) {
            if (buf[i] != pattern(n, done + i, from_accept)) {
                printf("round %zu: octet %zu is wrong\n", n, done + i);
                exit(1);
            }
        }
        done += (size_t)r;
    }
    total += len;
}

static void set_nonblock(int fd)
{
    if (polling && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        die("fcntl");
}

static int open_accept(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&in, len) < 0 || listen(fd, 5) < 0 ||
        getsockname(fd, (struct sockaddr *)&in, &len) < 0)
        die("listen");
    printf("port %d\n", ntohs(in.sin_port));
    fflush(stdout);
    set_nonblock(fd);
    if (polling)
        wait_for(fd, POLLIN);
    int conn = accept(fd, NULL, NULL);
    while (conn < 0 && polling && errno == EAGAIN) {
        wait_for(fd, POLLIN);
        conn = accept(fd, NULL, NULL);
    }
    if (conn < 0)
        die("accept");
    close(fd);
    set_nonblock(conn);
    return conn;
}

static int open_connect(int port)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)port),
    };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        die("socket");
    set_nonblock(fd);
    if (connect(fd, (struct sockaddr *)&in, sizeof(in)) < 0) {
        if (errno != EINPROGRESS)
            die("connect");
        wait_for(fd, POLLOUT);
        int err = 0;
        socklen_t len = sizeof(err);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || (errno = err) != 0)
            die("connect");
    }
    return fd;
}

int main(int argc, char **argv)
{
    if (argc < 4 || (strcmp(argv[1], "connect") == 0) != (argc == 5)) {
        fprintf(stderr, "usage: p2p accept|connect first=accept|connect|both wait=block|poll [PORT]\n");
        return 2;
    }
    bool accepting = strcmp(argv[1], "accept") == 0;
    bool both = strcmp(argv[2], "first=both") == 0;
    bool accept_first = strcmp(argv[2], "first=accept") == 0;
    polling = strcmp(argv[3], "wait=poll") == 0;

    int fd = accepting ? open_accept() : open_connect(atoi(argv[4]));
    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        size_t len = sizes[n];
        if (both && len > BOTH_MAX)
            len = BOTH_MAX;
        if (both || accept_first == accepting) {
            speak(fd, n, len, accepting);
            hear(fd, n, len, !accepting);
        } else {
            hear(fd, n, len, !accepting);
            speak(fd, n, len, accepting);
        }
    }
    /* Each end closes its half and sees the other's. */
    char c;
    if (shutdown(fd, SHUT_WR) < 0)
        die("shutdown");
    if (polling)
        wait_for(fd, POLLIN);
    if (recv(fd, &c, 1, 0) != 0) {
        printf("no end of file\n");
        return 1;
    }
    close(fd);
    printf("done %llu\n", (unsigned long long)total);
    return 0;
}
