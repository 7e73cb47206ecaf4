/*
 * A server that hands its connections to other programs as their standard streams, as inetd does:
 *
 *   inetd untouched|looked COMMAND [ARGUMENT...]
 *
 * Prints its port, then serves one connection after the other until its input ends, and prints the
 * status of each command. looked: it waits for the client's first octet before it starts the
 * command, which then finds a connection in use. untouched: only until the kernel has something, and before accept(),
 * so that what accept() finds does not depend on which end is faster.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

/* Has a client of this port that is not accepted yet sent something, be it a Hello? */
static int has_spoken(unsigned port)
{
    FILE *table = fopen("/proc/net/tcp", "re");
    char line[256];
    int found = 0;
    while (table != NULL && !found && fgets(line, sizeof(line), table) != NULL) {
        unsigned local, state, unread;
        unsigned long inode;
        found = sscanf(line, "%*d: %*x:%x %*x:%*x %x %*x:%x %*x:%*x %*x %*u %*u %lu", &local, &state, &unread,
                       &inode) == 4 &&
                local == port && state != TCP_LISTEN && unread > 0 && inode == 0;
    }
    if (table != NULL)
        fclose(table);
    return found;
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
        while (strcmp(argv[1], "looked") != 0 && !has_spoken(ntohs(in.sin_port)))
            sched_yield();
        int s = (int)must("accept", accept(listener, NULL, NULL)), status = 0;
        char c;
        if (strcmp(argv[1], "looked") == 0)
            must("recv", recv(s, &c, 1, MSG_PEEK));
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
