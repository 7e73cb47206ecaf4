/*
 * A server that hands its connections to other programs as their standard streams, as inetd does:
 *
 *   inetd untouched|looked COMMAND [ARGUMENT...]
 *
 * Prints its port, then serves one connection after the other until its input ends, and prints the
 * status of each command. looked: it waits for the client's first octet before it starts the
 * command, which then finds a connection in use. untouched: only until the kernel has something.
 */
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static long must(const char *what, long r)
{
    if (r < 0) {
        perror(what);
        exit(1);
    }
    return r;
}

/* Until the client has said something, be it a Hello. (forks.c) */
static void await_octets(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    while (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_bytes_received == 0)
        sched_yield();
}

int main(int argc, char **argv)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    if (argc < 3) {
        fprintf(stderr, "usage: inetd untouched|looked COMMAND [ARGUMENT...]\n");
        return 2;
    }
    int listener = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must("bind", bind(listener, (struct sockaddr *)&in, len));
    must("listen", listen(listener, 8));
    must("getsockname", getsockname(listener, (struct sockaddr *)&in, &len));
    printf("%d\n", ntohs(in.sin_port));
    fflush(stdout);
    struct pollfd p[2] = { { .fd = 0, .events = POLLIN }, { .fd = listener, .events = POLLIN } };
    while (poll(p, 2, -1) > 0 && p[0].revents == 0) {
        int s = (int)must("accept", accept(listener, NULL, NULL)), status = 0;
        char c;
        if (strcmp(argv[1], "looked") == 0)
            must("recv", recv(s, &c, 1, MSG_PEEK));
        else
            await_octets(s);
        pid_t pid = (pid_t)must("fork", fork());
        if (pid == 0) {
            for (int i = 0; i < 3; i++)
                must("dup2", dup2(s, i));
            close(s);
            execvp(argv[2], argv + 2);
            _exit(127);
        }
        close(s);
        must("waitpid", waitpid(pid, &status, 0));
        printf("%d\n", status);
        fflush(stdout);
    }
    return 0;
}
