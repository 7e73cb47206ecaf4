/*
 * What has become of a connection? Connects to a server, sends it a line, waits for an answer, and says how the bytes went.
 *
 *     cc sockwarp_info.c $(pkg-config --cflags --libs sockwarp) -o sockwarp_info
 *     sockwarp ./sockwarp_info 127.0.0.1 7 "any * auto"
 *
 * The rules, if there are any, are for this one socket.
 */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sockwarp.h>

static int dial(const char *host, const char *port)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *list;
    if (getaddrinfo(host, port, &want, &list) != 0)
        return -1;
    int fd = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
    if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) < 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

static void report(int fd)
{
    static const char *const states[] = { "not connected", "starting", "upgraded", "plain", "failed" };
    struct sockwarp_info info;
    if (sockwarp_info(fd, &info, sizeof(info)) < 0) {
        puts(errno == ENOSYS ? "TCP: this program does not run under sockwarp" : strerror(errno));
        return;
    }
    printf("%s (%s) by %s, CRC %s, %" PRIu64 " bytes sent, %" PRIu64 " received\n", states[info.state],
           info.reason_name, info.transport, info.crc ? "on" : "off", info.tx_bytes, info.rx_bytes);
}

int main(int argc, char **argv)
{
    char answer[256];
    if (argc < 3) {
        fputs("usage: sockwarp_info HOST PORT [RULES]\n", stderr);
        return 2;
    }
    if (argc > 3 && sockwarp_policy_once(argv[3]) < 0)
        perror("rules");
    int fd = dial(argv[1], argv[2]);
    if (fd < 0 || write(fd, "hello\n", 6) != 6 || read(fd, answer, sizeof(answer)) <= 0) {
        perror(argv[1]);
        return 1;
    }
    report(fd);
    close(fd);
    return 0;
}
