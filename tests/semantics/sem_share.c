/*
 * Descriptors that several names, processes or programs share: dup, fork, vfork, spawn, SCM_RIGHTS.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

extern char **environ;

static void dup_errors(int s)
{
    volatile int negative = -1; /* not the compiler's to judge */
    say_result("dup", dup(negative));
    say_result("dup2_from", dup2(9999, s));
    say_result("dup2_to", dup2(s, negative));
    say_result("dup2_high", dup2(s, 1 << 30));
    say_result("dup3_same", dup3(s, s, O_CLOEXEC));
    say_result("dup3_flags", dup3(s, s + 50, O_NONBLOCK));
    say(" dup2_same=%d", dup2(s, s) == s);
    say(" dup3=%d", dup3(s, 60, O_CLOEXEC));
    say(" cloexec=%d,%d", fcntl(s, F_GETFD), fcntl(60, F_GETFD));
    say(" dup2=%d", dup2(60, 61));
    say(" cloexec=%d", fcntl(61, F_GETFD));
    send_next(61, 10);
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(60, 10));
    far_say("far", far_do(FAR_RECV, 10));
}

static int another(int s)
{
    (void)s;
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = (int)must("accept", accept(sem_listener, NULL, NULL));
    must("connect", far_end().r);
    return c;
}

/* The connection whose number is taken ends, the other one is not disturbed. */
static void dup2_closes(int s)
{
    far_begin(FAR_RECV, 1, 0);
    int null = (int)must("open", open("/dev/null", O_RDWR));
    say(" dup2=%d", dup2(null, s) == s);
    far_say("far", far_end());
    say_result("write", write(s, "x", 1));
    int c = another(s);
    say(" dup2=%d", dup2(c, s) == s);
    close(c);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static void dup2_swaps(int s)
{
    int c = another(s), keep = dup(s);
    /* The far end's is now c's. */
    say(" dup2=%d", dup2(c, s) == s);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    await_octets(c, 10);
    say(" recv=%zu", recv_next(s, 4));
    say(" recv=%zu", recv_next(c, 6));
    uint8_t o;
    say_result("first", recv(keep, &o, 1, MSG_DONTWAIT));
    say(" dup2=%d", dup2(keep, c) == c);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* Parent and child read the same stream until its end: together they get every octet once. */
static void fork_both_read(int s)
{
    enum { TOTAL = 300000 };
    int p[2];
    uint8_t buf[3000];
    must("pipe", pipe(p));
    far_begin(FAR_SEND, TOTAL, 0);
    pid_t pid = (pid_t)must("fork", fork());
    long mine[2] = { 0, 0 }, theirs[2] = { 0, 0 }, sum = 0;
    if (pid > 0)
        must("send", (far_end(), far_do(FAR_SHUTDOWN, SHUT_WR)).r);
    for (ssize_t r; (r = recv(s, buf, sizeof(buf), 0)) > 0; mine[0] += r)
        for (ssize_t i = 0; i < r; i++)
            mine[1] += buf[i];
    if (pid == 0)
        _exit(write(p[1], mine, sizeof(mine)) == (ssize_t)sizeof(mine) ? 0 : 1);
    must("read", read(p[0], theirs, sizeof(theirs)));
    static uint8_t all[TOTAL];
    fill(all, TOTAL, 0);
    for (size_t i = 0; i < TOTAL; i++)
        sum += all[i];
    say(" total=%ld right=%d", mine[0] + theirs[0], mine[1] + theirs[1] == sum);
}

static void child_echoes(int s)
{
    uint8_t buf[1000];
    for (ssize_t r; (r = recv(s, buf, sizeof(buf), 0)) > 0;)
        if (send(s, buf, (size_t)r, MSG_NOSIGNAL) != r)
            _exit(1);
}

/* A send that may wait takes all, also where a child has the connection as well. */
static void fork_blocking_send(int s)
{
    enum { TOTAL = 3000000 };
    static uint8_t all[TOTAL];
    int p[2], small = 4096;
    must("pipe", pipe(p));
    must("SO_SNDBUF", setsockopt(s, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        close(p[1]);
        _exit(read(p[0], all, 1) == 0 ? 0 : 1);
    }
    fill(all, TOTAL, 0);
    far_begin(FAR_RECV, TOTAL, 20);
    say_result("send", send(s, all, TOTAL, 0));
    shutdown(s, SHUT_WR);
    far_say("far", far_end());
    close(p[1]);
    must("waitpid", waitpid(pid, NULL, 0));
}

static int status_of(pid_t pid)
{
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    return status;
}

/* The child writes, the parent reads what comes back. */
static void fork_divides(int s)
{
    enum { TOTAL = 1000000 };
    far_begin(FAR_ECHO, TOTAL, 0);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        send_next(s, TOTAL);
        _exit(0);
    }
    say(" recv=%zu", recv_next(s, TOTAL));
    say(" child=%d", status_of(pid));
    sem_tx += TOTAL;
    far_say("far", far_end());
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* The parent has closed; the child serves until the client ends. */
static void fork_goes_on(int s)
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        child_echoes(s);
        _exit(0);
    }
    close(s);
    far_do(FAR_SEND, 5000);
    far_say("far", far_do(FAR_RECV, 0));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    struct far_result res = far_do(FAR_RECV, 6000);
    say(" back=%lld", (long long)res.r);
    say(" child=%d", status_of(pid));
}

static void grandchild(int s)
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        send_next(s, 100);
        pid = fork();
        if (pid == 0) {
            send_next(s, 100);
            _exit(0);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        sem_tx += 100;
        send_next(s, 100);
        _exit(status);
    }
    say(" child=%d", status_of(pid));
    sem_tx += 300;
    send_next(s, 100);
    far_say("far", far_do(FAR_RECV, 400));
}

struct holder {
    pid_t pid;
    int end; /* closed, it lets the child end */
};

/* A child that has what this process has, and makes no call. */
static struct holder hold(void)
{
    int p[2];
    must("pipe", pipe(p));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        char octet;
        close(p[1]);
        _exit(read(p[0], &octet, 1) == 0 ? 0 : 1);
    }
    close(p[0]);
    return (struct holder){ pid, p[1] };
}

static void hold_no_more(struct holder h)
{
    int status = -1;
    close(h.end);
    must("waitpid", waitpid(h.pid, &status, 0));
    say(" status=%d", status);
}

/* What was accepted before the close arrives, though a child that makes no call has the connection still. */
static void closed_by_the_sender(int s)
{
    size_t n = fill_up(s);
    struct holder h = hold();
    close(s);
    struct far_result r = far_do(FAR_RECV, (int64_t)n);
    say(" all=%d wrong=%d", r.r == (int64_t)n, r.bad);
    hold_no_more(h);
    far_say("end", far_do(FAR_RECV, 1));
}

/* A child that dies in the middle of nothing. */
static void child_killed_idle(int s)
{
    int p[2];
    must("pipe", pipe(p));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        if (write(p[1], "x", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    char c;
    must("read", read(p[0], &c, 1));
    must("kill", kill(pid, SIGKILL));
    say(" child=%d", status_of(pid));
    send_next(s, 1000);
    far_do(FAR_SEND, 1000);
    say(" recv=%zu", recv_next(s, 1000));
    far_say("far", far_do(FAR_RECV, 1000));
}

static void vfork_exec(int s)
{
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say(" recv=%zu", recv_next(s, 4));
    pid_t pid = vfork();
    if (pid == 0) {
        close(s); /* the child's only */
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    say(" child=%d", status_of(pid));
    say(" recv=%zu", recv_next(s, 6));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    pid = vfork();
    if (pid == 0)
        _exit(3);
    say(" child=%d", WEXITSTATUS(status_of(pid)));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

/* A child with its own standard output, in the manner of a shell. */
static void spawn_actions(int s)
{
    posix_spawn_file_actions_t fa;
    int p[2];
    pid_t pid;
    char *argv[] = { (char *)"sh", (char *)"-c", (char *)"echo hello; exit 3", NULL };
    must("fcntl", fcntl(s, F_SETFD, FD_CLOEXEC));
    must("pipe", pipe(p));
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, p[1], 1);
    posix_spawn_file_actions_addclose(&fa, p[0]);
    posix_spawn_file_actions_addclose(&fa, s);
    say_result("spawn", -posix_spawn(&pid, "/bin/sh", &fa, NULL, argv, environ));
    char line[20] = "";
    say_result("read", read(p[0], line, sizeof(line) - 1));
    say(" said=%d child=%d", strcmp(line, "hello\n") == 0, WEXITSTATUS(status_of(pid)));
    errno = posix_spawnp(&pid, "no-such-program-here", NULL, NULL, argv, environ);
    say(" missing=%s", error_name(errno));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    posix_spawn_file_actions_destroy(&fa);
}

static void shell_commands(int s)
{
    send_next(s, 10);
    say(" system=%d", WEXITSTATUS(system("exit 5")));
    FILE *f = popen("echo one; echo two", "r");
    char line[20];
    int lines = 0;
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        lines++;
    say(" lines=%d pclose=%d", lines, f ? pclose(f) : -1);
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(s, 10));
    say(" system=%d", system(NULL) != 0);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 20));
}

/* Sends descriptor fd over an AF_UNIX pair and gives what arrives. */
static int passed(int fd)
{
    int pair[2];
    union {
        struct cmsghdr h;
        uint8_t room[CMSG_SPACE(sizeof(int))];
    } control;
    uint8_t o = 1;
    struct iovec iov = { &o, 1 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
    memset(&control, 0, sizeof(control));
    control.h.cmsg_level = SOL_SOCKET;
    control.h.cmsg_type = SCM_RIGHTS;
    control.h.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.h), &fd, sizeof(fd));
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    ssize_t r = sendmsg(pair[0], &m, 0);
    say_result("pass", r);
    if (r < 0)
        return -1;
    must("recvmsg", recvmsg(pair[1], &m, MSG_CMSG_CLOEXEC));
    int got = -1;
    memcpy(&got, CMSG_DATA(&control.h), sizeof(got));
    close(pair[0]);
    close(pair[1]);
    say(" cloexec=%d", fcntl(got, F_GETFD));
    return got;
}

/* An upgraded connection cannot be passed; a plain one can, in use or not. */
static void pass_connection(int s)
{
    send_next(s, 10);
    int got = passed(s);
    if (got < 0)
        return;
    send_next(got, 10);
    close(s);
    far_say("far", far_do(FAR_RECV, 20));
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(got, 10));
}

static void pass_others(int s)
{
    int p[2];
    must("pipe", pipe(p));
    int got = passed(p[1]);
    say_result("write", write(got, "abc", 3));
    char buf[4];
    say_result("read", read(p[0], buf, 4));
    got = passed(sem_listener);
    far_begin(FAR_CONNECT, sem_port, 0);
    int c = accept(got, NULL, NULL);
    say(" accepted=%d", c >= 0);
    must("connect", far_end().r);
    send_next(c, 10);
    far_say("far", far_do(FAR_RECV, 10));
    (void)s;
}

static void *end_and_close(void *s)
{
    say_result("shutdown", shutdown((int)(intptr_t)s, SHUT_WR));
    say_result("close", close((int)(intptr_t)s));
    return NULL;
}

/* What is left to send when one of two processes has closed is sent, though the thread that did so is gone. */
static void close_and_end(int s)
{
    pthread_t t;
    size_t total = fill_up(s);
    struct holder h = hold();
    must("thread", pthread_create(&t, NULL, end_and_close, (void *)(intptr_t)s));
    pthread_join(t, NULL);
    pid_t child = (pid_t)must("fork", fork());
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    struct far_result r = far_do(FAR_RECV, (int64_t)total + 1);
    say(" all=%d bad=%d", r.r == (int64_t)total, r.bad);
    hold_no_more(h);
}

const struct scenario sem_share[] = {
    { "dup_errors", dup_errors },
    { "dup2_closes", dup2_closes },
    { "dup2_swaps", dup2_swaps },
    { "fork_both_read", fork_both_read },
    { "fork_divides", fork_divides },
    { "fork_goes_on", fork_goes_on },
    { "fork_blocking_send", fork_blocking_send },
    { "grandchild", grandchild },
    { "child_killed_idle", child_killed_idle },
    { "closed_by_the_sender", closed_by_the_sender },
    { "vfork_exec", vfork_exec },
    { "spawn_actions", spawn_actions },
    { "shell_commands", shell_commands },
    { "pass_connection", pass_connection },
    { "pass_others", pass_others },
    { "close_and_end", close_and_end },
    { NULL, NULL },
};
