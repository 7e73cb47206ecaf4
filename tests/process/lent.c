/*
 * A server with one connection, which it goes on using after a child has closed it:
 *
 *   lent KIND
 *
 * KIND: how the child is made; all but "fork" and "unseen" share this process's memory. "unseen" is a fork by an instruction of
 * the program's own. Prints its port, echoes a line before and another one after the child, and ends.
 */
#include <arpa/inet.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int listener, conn;

static void must(const char *what, long r)
{
    if (r >= 0)
        return;
    perror(what);
    _exit(1);
}

/* The child's descriptors are its own; a table that it shares with its parent is not. */
static int use(void *unused)
{
    (void)unused;
    shutdown(listener, SHUT_RD);
    close(conn);
    close(listener);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    _exit(fd < 0);
}

extern pid_t __vfork(void); /* another name that libc has for it */

static long unseen_fork(void)
{
    long r;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_fork) : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = SIGCHLD;
    register long x1 __asm__("x1") = 0, x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    r = x0;
#endif
    return r;
}

static pid_t make(const char *kind)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    pid_t pid = -1;
    if (strcmp(kind, "vfork") == 0) {
        pid = vfork();
        if (pid == 0)
            use(NULL);
    } else if (strcmp(kind, "__vfork") == 0) {
        pid = __vfork();
        if (pid == 0)
            _exit(0); /* its end is not its parent's */
    } else if (strcmp(kind, "clone") == 0) {
        pid = clone(use, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    } else if (strcmp(kind, "beside") == 0) { /* the parent does not wait for it */
        pid = clone(use, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
    } else {
        pid = strcmp(kind, "fork") == 0 ? fork() : (pid_t)unseen_fork();
        if (pid == 0)
            use(NULL);
    }
    must(kind, pid);
    return pid;
}

static void echo(void)
{
    char buf[64];
    ssize_t n = recv(conn, buf, sizeof(buf), 0);
    must("recv", n > 0 ? n : -1);
    must("send", send(conn, buf, (size_t)n, 0));
}

int main(int argc, char **argv)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    int status;
    if (argc < 2)
        return 2;
    must("socket", listener = socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(listener, (struct sockaddr *)&a, len));
    must("listen", listen(listener, 8));
    must("getsockname", getsockname(listener, (struct sockaddr *)&a, &len));
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    must("accept", conn = accept(listener, NULL, NULL));
    echo();
    must("waitpid", waitpid(make(argv[1]), &status, 0));
    must("child", WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1);
    echo();
    return 0;
}
