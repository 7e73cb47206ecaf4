/*
 * A server that serves its one connection in the child of a child, made without fork(2) as vsftpd and sandboxes do:
 *
 *   clones KIND
 *
 * Prints its port. The grandchild greets and echoes, then each of the others says its number and ends. Exit status 77:
 * the kernel does not allow this kind here.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *kind;
static int conn;

static long must(const char *what, long r)
{
    if (r >= 0)
        return r;
    int status = errno == EPERM || errno == ENOSYS || errno == ENOSPC ? 77 : 1;
    perror(what);
    _exit(status);
}

static bool is(const char *name)
{
    return strcmp(kind, name) == 0;
}

static _Noreturn void serve(int level);

static int begin(void *arg)
{
    serve((int)(intptr_t)arg);
}

static long by_clone3(uint64_t flags)
{
    int pidfd = -1;
    struct clone_args args = { .flags = flags, .exit_signal = SIGCHLD };
    if (flags & CLONE_PIDFD)
        args.pidfd = (uint64_t)(uintptr_t)&pidfd;
    return syscall(SYS_clone3, &args, sizeof(args));
}

static long make(int level)
{
    static char stack[2][256 * 1024] __attribute__((aligned(16)));
    static pid_t tid[2];
    void *top = stack[level] + sizeof(stack[level]), *arg = (void *)(intptr_t)(level + 1);
#ifdef SYS_fork
    if (is("fork"))
        return syscall(SYS_fork);
#endif
    if (is("_Fork"))
        return _Fork();
    if (is("clone"))
        return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (is("clone-fs-vfork"))
        return syscall(SYS_clone, CLONE_FS | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
    if (is("clone-tid"))
        return syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, 0, &tid[level], 0, 0);
    if (is("clone-namespaces"))
        return syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0);
    if (is("clone-user"))
        return syscall(SYS_clone, (level == 0 ? CLONE_NEWUSER : 0) | SIGCHLD, 0, 0, 0, 0); /* (no user is mapped there) */
    if (is("clone3"))
        return by_clone3(0);
    if (is("clone3-pidfd"))
        return by_clone3(CLONE_PIDFD);
    if (is("function"))
        return clone(begin, top, SIGCHLD, arg);
    if (is("function-namespaces"))
        return clone(begin, top, CLONE_NEWPID | CLONE_NEWNET | SIGCHLD, arg);
    fprintf(stderr, "clones: no kind '%s' here\n", kind);
    exit(2);
}

/* Under the numbers that vsftpd's session has its connection by. */
static void echo(void)
{
    char buf[8192];
    ssize_t n;
    must("dup2", dup2(conn, 0));
    must("dup2", dup2(conn, 1));
    must("close", close(conn));
    must("write", write(1, "220 hello\r\n", 11));
    while ((n = must("read", read(0, buf, sizeof(buf)))) > 0)
        for (ssize_t done = 0; done < n;)
            done += must("write", write(1, buf + done, (size_t)(n - done)));
}

static _Noreturn void serve(int level)
{
    int status = 1;
    for (; level < 2; level++) {
        long pid = must("make", make(level));
        if (pid == 0)
            continue;
        must("waitpid", waitpid((pid_t)pid, &status, 0));
        if (status == 0)
            must("write", write(conn, level == 0 ? "0" : "1", 1));
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (level > 0)
            _exit(status);
        exit(status); /* with the statistics */
    }
    echo();
    _exit(0);
}

int main(int argc, char **argv)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    if (argc != 2)
        return 2;
    kind = argv[1];
    int listener = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(listener, (struct sockaddr *)&in, len));
    must("listen", listen(listener, 8));
    must("getsockname", getsockname(listener, (struct sockaddr *)&in, &len));
    printf("%d\n", ntohs(in.sin_port));
    fflush(stdout);
    char go;
    must("read", read(STDIN_FILENO, &go, 1)); /* its client has connected */
    conn = (int)must("accept", accept(listener, NULL, NULL));
    must("close", close(listener));
    serve(0);
}
