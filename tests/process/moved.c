/*
 * moved NUMBER with|without PROGRAM [ARGUMENT...]: a server that says its port, takes one connection and sends back the
 * first octet. When a line comes, a child by vfork() gives the connection this number and executes the program, with
 * its environment or with none.
 */
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(at);
    char line[8], *none[] = { NULL };
    if (argc < 4)
        errx(2, "usage: moved NUMBER with|without PROGRAM [ARGUMENT...]");
    int number = atoi(argv[1]), listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0)
        err(1, "listen");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || read(fd, line, 1) != 1 || write(fd, line, 1) != 1 || fgets(line, sizeof(line), stdin) == NULL)
        err(1, "the connection");
    char **env = strcmp(argv[2], "with") == 0 ? environ : none;
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(fd, number);
        execve(argv[3], argv + 3, env);
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        err(1, "vfork");
    return status != 0;
}
