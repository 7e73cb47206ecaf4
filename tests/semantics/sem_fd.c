/*
 * Descriptors: dup, fork, exec, threads, stdio, closing behind the library's back.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static void dup_close(int s)
{
    int d = (int)must("dup", dup(s));
    send_next(s, 10);
    say_result("close", close(s));
    send_next(d, 10);
    far_say("far", far_do(FAR_RECV, 20));
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(d, 10));
    far_begin(FAR_RECV, 1, 0);
    say_result("close", close(d));
    far_say("far", far_end());
}

static void dup2_over(int s)
{
    int p[2];
    must("pipe", pipe(p));
    say(" dup2=%d", dup2(s, p[0]) == p[0]);
    send_next(p[0], 10);
    far_do(FAR_SEND, 10);
    say(" recv=%zu", recv_next(p[0], 10));
    /* And the other way round: something else takes the connection's place. */
    int null = (int)must("open", open("/dev/null", O_RDWR));
    say(" dup2=%d", dup2(null, s) == s);
    say_result("write", write(s, "x", 1));
    int high = (int)must("F_DUPFD_CLOEXEC", fcntl(p[0], F_DUPFD_CLOEXEC, 100));
    say(" high=%d cloexec=%d", high >= 100, fcntl(high, F_GETFD) == FD_CLOEXEC);
    close(p[0]);
    send_next(high, 5);
    far_say("far", far_do(FAR_RECV, 15));
    say(" dup3=%d", dup3(high, s, O_CLOEXEC) == s);
    close(high);
    send_next(s, 5);
    far_say("far", far_do(FAR_RECV, 5));
    say_result("same", dup2(s, s) == s);
    say_result("dup3_same", dup3(s, s, 0));
    say_result("bad", dup2(9999, s));
}

static void dup_flags(int s)
{
    uint8_t c;
    int d = (int)must("dup", dup(s));
    set_nonblock(d, true);
    say_result("recv", recv(s, &c, 1, 0));
    set_nonblock(s, false);
    far_begin(FAR_SEND, 1, 30);
    say_result("recv", recv(d, &c, 1, 0));
    far_end();
    say(" flags=%d", fcntl(d, F_GETFL) == fcntl(s, F_GETFL));
}

/* In a child: sends, or receives, and ends; its status. */
static int in_child(void (*act)(int s), int s)
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        act(s);
        _exit(0);
    }
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    return status;
}

static void child_sends(int s)
{
    send_next(s, 1000);
}

static void child_sends_much(int s)
{
    send_next(s, 1000000);
}

static void child_receives(int s)
{
    uint8_t buf[400];
    if (recv_next(s, sizeof(buf)) != sizeof(buf))
        _exit(1);
}

static void child_nothing(int s)
{
    (void)s;
}

static void fork_sends(int s)
{
    send_next(s, 1000);
    say(" child=%d", in_child(child_sends, s));
    sem_tx += 1000;
    send_next(s, 1000);
    far_begin(FAR_RECV, 1003000, 0);
    say(" child=%d", in_child(child_sends_much, s));
    sem_tx += 1000000;
    far_say("far", far_end());
    far_begin(FAR_RECV, 1, 0);
    close(s);
    far_say("far", far_end());
}

static void fork_receives(int s)
{
    far_do(FAR_SEND, 1000);
    await_octets(s, 1000);
    say(" recv=%zu", recv_next(s, 300));
    say(" child=%d", in_child(child_receives, s));
    sem_rx += 400;
    say(" recv=%zu", recv_next(s, 300));
    far_do(FAR_CLOSE, 0);
    uint8_t c;
    say_result("end", recv(s, &c, 1, 0));
}

static void child_until_told(int s)
{
    /* The parent has closed by now; what comes is ours. */
    uint8_t buf[10];
    if (recv(s, buf, sizeof(buf), MSG_WAITALL) != 10)
        _exit(1);
    sem_tx = 0;
    send_next(s, 20);
    close(s);
}

/* An inetd-like server: the parent accepts, the child serves. */
static void fork_serves(int s)
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        child_until_told(s);
        _exit(0);
    }
    close(s);
    far_do(FAR_SEND, 10);
    far_say("far", far_do(FAR_RECV, 21));
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d", status);
}

static void fork_harmless(int s)
{
    far_do(FAR_SEND, 10);
    say(" child=%d", in_child(child_nothing, s));
    say(" recv=%zu", recv_next(s, 10));
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    say(" system=%d", system("exit 3") >> 8);
    FILE *f = popen("cat", "w");
    say(" popen=%d", f != NULL && fputs("", f) >= 0 && pclose(f) == 0);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_begin(FAR_RECV, 1, 0);
    close(s);
    far_say("far", far_end());
}

#define EACH_WAY 20000000

static void *write_thread(void *arg)
{
    send_next(*(int *)arg, EACH_WAY);
    return NULL;
}

static void threads_both_ways(int s)
{
    pthread_t t;
    far_begin(FAR_ECHO, EACH_WAY, 0);
    must("pthread_create", -pthread_create(&t, NULL, write_thread, &s));
    say(" recv=%zu", recv_next(s, EACH_WAY));
    pthread_join(t, NULL);
    far_say("far", far_end());
}

static void *recv_thread(void *arg)
{
    uint8_t buf[10];
    ssize_t r = recv(*(int *)arg, buf, sizeof(buf), 0);
    return (void *)(intptr_t)(r < 0 ? -errno : r);
}

/* Linux lets the call under way go on until something comes. */
static void close_while_receiving(int s)
{
    pthread_t t;
    void *r;
    int copy = s;
    must("pthread_create", -pthread_create(&t, NULL, recv_thread, &copy));
    others_sleep();
    say_result("close", close(s));
    far_do(FAR_SEND, 5);
    pthread_join(t, &r);
    say(" recv=%d", (int)(intptr_t)r);
    far_say("far", far_do(FAR_RECV, 1));
}

static void shutdown_while_receiving(int s)
{
    pthread_t t;
    void *r;
    must("pthread_create", -pthread_create(&t, NULL, recv_thread, &s));
    others_sleep();
    say_result("shutdown", shutdown(s, SHUT_RDWR));
    pthread_join(t, &r);
    say(" recv=%d", (int)(intptr_t)r);
    far_say("far", far_do(FAR_RECV, 1));
}

static void *accept_thread(void *arg)
{
    (void)arg;
    int r = accept(sem_listener, NULL, NULL);
    return (void *)(intptr_t)(r < 0 ? -errno : 0);
}

static void shutdown_while_accepting(int s)
{
    (void)s;
    pthread_t t;
    void *r;
    must("pthread_create", -pthread_create(&t, NULL, accept_thread, NULL));
    others_sleep();
    say_result("shutdown", shutdown(sem_listener, SHUT_RDWR));
    pthread_join(t, &r);
    say(" accept=%d", (int)(intptr_t)r);
}

static void stdio(int s)
{
    FILE *f = fdopen(s, "r+");
    if (f == NULL)
        must("fdopen", -1);
    uint8_t buf[5000];
    fill(buf, sizeof(buf), 0);
    say(" fwrite=%zu", fwrite(buf, 1, 1000, f));
    say(" fwrite=%zu", fwrite(buf + 1000, 1, 4000, f));
    say_result("fflush", fflush(f));
    far_say("far", far_do(FAR_RECV, 5000));
    far_do(FAR_SEND, 100);
    say(" fread=%zu", fread(buf, 1, 100, f));
    check(buf, 100);
    far_begin(FAR_RECV, 1, 0);
    say_result("fclose", fclose(f));
    far_say("far", far_end());
}

static void stdio_lines(int s)
{
    /* A stream for each direction, as many servers do it; the last fclose ends the connection. */
    FILE *in = fdopen((int)must("dup", dup(s)), "r"), *out = fdopen(s, "w");
    if (in == NULL || out == NULL)
        must("fdopen", -1);
    far_begin(FAR_ECHO, 23, 0);
    say(" printed=%d", fprintf(out, "line %d\nand line %d\n", 1, 2));
    fprintf(out, "%s", "rest\n");
    say_result("fflush", fflush(out));
    char line[100];
    say(" got=%s", fgets(line, sizeof(line), in) && strcmp(line, "line 1\n") == 0 ? "one" : "WRONG");
    say(" got=%s", fgets(line, sizeof(line), in) && strcmp(line, "and line 2\n") == 0 ? "two" : "WRONG");
    say(" got=%s", fgets(line, sizeof(line), in) && strcmp(line, "rest\n") == 0 ? "rest" : "WRONG");
    say_result("fclose", fclose(out));
    far_end();
    far_do(FAR_CLOSE, 0);
    say(" eof=%d", fgets(line, sizeof(line), in) == NULL && feof(in));
    say_result("fclose", fclose(in));
}

/* A connection was closed by a call the library does not see: its number is something else then. */
static void number_reused(int s)
{
    far_begin(FAR_RECV, 1, 0);
    must("close", syscall(SYS_close, s));
    far_say("far", far_end());
    int p[2];
    must("pipe", pipe(p));
    say(" reused=%d", p[0] == s || p[1] == s);
    say_result("write", write(p[1], "abc", 3));
    char buf[3];
    say_result("read", read(p[0], buf, 3));
    say_result("recv", recv(p[0], buf, 3, 0));
}

static void close_from(int s)
{
    far_begin(FAR_RECV, 1, 0);
    say_result("close_range", close_range((unsigned)s, (unsigned)s, 0));
    far_say("far", far_end());
    say_result("recv", recv(s, &(char){ 0 }, 1, 0));
}

static void what_it_is(int s)
{
    struct stat st;
    int v = -1;
    socklen_t len = sizeof(v);
    struct sockaddr_in a, b;
    must("fstat", fstat(s, &st));
    say(" socket=%d", S_ISSOCK(st.st_mode));
    say_result("lseek", lseek(s, 0, SEEK_CUR));
    must("SO_TYPE", getsockopt(s, SOL_SOCKET, SO_TYPE, &v, &len));
    say(" type=%d", v);
    must("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &v, &len));
    say(" error=%d", v);
    len = sizeof(a);
    must("getpeername", getpeername(s, (struct sockaddr *)&a, &len));
    len = sizeof(b);
    must("getsockname", getsockname(s, (struct sockaddr *)&b, &len));
    say(" port=%d", sem_accepting ? ntohs(b.sin_port) == sem_port : ntohs(a.sin_port) == sem_far_port);
    say_result("connect", connect(s, (struct sockaddr *)&a, sizeof(a)));
    say_result("bind", bind(s, (struct sockaddr *)&a, sizeof(a)));
    say_result("listen", listen(s, 1));
    say_result("accept", accept(s, NULL, NULL));
    say_result("pread", pread(s, &v, 1, 0));
    say_result("unknown_option", setsockopt(s, IPPROTO_TCP, 9999, &v, sizeof(v)));
    say_result("bad_fd", send(9999, &v, 1, 0));
    say_result("not_a_socket", send(open("/dev/null", O_RDWR), &v, 1, 0));
    send_next(s, 1);
    far_say("far", far_do(FAR_RECV, 1));
}

static void accept_flags(int s)
{
    (void)s;
    far_begin(FAR_CONNECT, sem_port, 0);
    struct sockaddr_in in;
    socklen_t len = sizeof(in);
    int c = accept4(sem_listener, (struct sockaddr *)&in, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    far_end();
    say(" nonblock=%d cloexec=%d", (fcntl(c, F_GETFL) & O_NONBLOCK) != 0, fcntl(c, F_GETFD) == FD_CLOEXEC);
    say(" len=%u family=%d", (unsigned)len, in.sin_family == AF_INET);
    uint8_t buf[5];
    say_result("recv", recv(c, buf, sizeof(buf), 0));
    say_result("bad_flags", accept4(sem_listener, NULL, NULL, 1));
}

/* Data may be sent before the server has accepted. */
static void before_accept(int s)
{
    close(s);
    far_begin(FAR_CONNECT, sem_port, 0);
    say(" waiting=%s", poll_names(poll_one(sem_listener, POLLIN, 10000)));
    set_nonblock(sem_listener, true);
    int c = accept(sem_listener, NULL, NULL);
    set_nonblock(sem_listener, false);
    say(" accepted=%d", c >= 0);
    far_end();
    far_do(FAR_SEND, 5);
    say(" recv=%zu", recv_next(c, 5));
}

/* The same for an event loop: writable although the server has not accepted yet. */
static void before_accept_polled(int s)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(sem_far_port),
        .sin_port = htons(sem_far_port),
    };
    close(s);
    far_do(FAR_CLOSE, 0);
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (connect(c, (struct sockaddr *)&in, sizeof(in)) < 0 && errno != EINPROGRESS)
        must("connect", -1);
    say(" poll=%s", poll_names(poll_one(c, POLLOUT, 10000)));
    send_next(c, 5);
    far_begin(FAR_ACCEPT, 0, 0);
    must("accept", far_end().r);
    far_say("far", far_do(FAR_RECV, 5));
    far_do(FAR_SEND, 5);
    set_nonblock(c, false);
    say(" recv=%zu", recv_next(c, 5));
}

/* The server accepts and then does something that has nothing to do with sockets. */
static void busy_server(int s)
{
    close(s);
    far_do(FAR_CLOSE, 0);
    far_begin(FAR_ACCEPT, 1, 0);
    int c = connect_to(sem_far_port);
    say(" connected=%d", c >= 0);
    send_next(c, 5);
    sleep_ms(700); /* longer than anybody waits for its answer */
    far_begin(FAR_RECV, 5, 0);
    must("accept", far_end().r);
    far_say("far", far_end());
    far_do(FAR_SEND, 5);
    say(" recv=%zu", recv_next(c, 5));
}

/* close(2) where no library sees it. */
static void close_unseen(int fd)
{
#if defined(__x86_64__)
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(3L), "D"((long)fd) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x0 __asm__("x0") = fd, x8 __asm__("x8") = 57;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8) : "memory");
#else
    close(fd);
#endif
}

/* The number is a file's, or a pipe's, next. */
static void number_reused_unseen(int s)
{
    char buf[16];
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    close_unseen(s);
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    if (file < 0)
        file = (int)must("memfd", memfd_create("file", 0));
    say(" same=%d", file == s);
    say_result("write", write(file, "text", 4));
    say_result("pread", pread(file, buf, sizeof(buf), 0));
    say_result("lseek", lseek(file, 1, SEEK_SET));
    say_result("read", read(file, buf, sizeof(buf)));
    close_unseen(file);
    int ends[2];
    must("pipe", pipe(ends));
    say_result("pipe", write(ends[1], "octets", 6));
    say_result("read", read(ends[0], buf, sizeof(buf)));
    close(ends[0]);
    say_result("closed", read(ends[0], buf, sizeof(buf)));
}

const struct scenario sem_fd[] = {
    { "dup_close", dup_close },
    { "dup2_over", dup2_over },
    { "dup_flags", dup_flags },
    { "fork_sends", fork_sends },
    { "fork_receives", fork_receives },
    { "fork_serves", fork_serves },
    { "fork_harmless", fork_harmless },
    { "threads_both_ways", threads_both_ways },
    { "close_while_receiving", close_while_receiving },
    { "shutdown_while_receiving", shutdown_while_receiving },
    { "shutdown_while_accepting", shutdown_while_accepting },
    { "stdio", stdio },
    { "stdio_lines", stdio_lines },
    { "number_reused", number_reused },
    { "close_from", close_from },
    { "what_it_is", what_it_is },
    { "accept_flags", accept_flags },
    { "before_accept", before_accept },
    { "before_accept_polled", before_accept_polled },
    { "busy_server", busy_server },
    { "number_reused_unseen", number_reused_unseen },
    { NULL, NULL },
};
