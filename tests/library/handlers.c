/*
 * A program, an echo server for it, and what traces the program. At each instruction
 * of a call of the program's the tracer lets a signal in, whose handler makes calls that signal-safety(7) allows.
 *
 *   handlers trace N COMMAND...    runs COMMAND, a `handlers` under whatever launcher, step by step; a signal at each N-th instruction
 *   handlers run PORT WHAT         the program; WHAT: what the handler does
 *   handlers serve                 the echo server; its first line is its port
 *
 * The program says by SIGSTOP, whose value says more, where a call begins and ends, and that the handler is over; the tracer takes these
 * away. Its last line is "N calls, N signals, N told". A handler that has not run within HANG_S is a hang: "hang in CALL".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <elf.h>
#include <sys/user.h>

enum mark { MARK_BEGIN = 1, MARK_END, MARK_HANDLED };

#define HANG_S 30

static void die(const char *what)
{
    fprintf(stderr, "handlers: %s: %s\n", what, strerror(errno));
    _exit(9);
}

/* ---- the tracer ---- */

static pid_t program;
static const char *call_now = "(none)";
static unsigned long every = 1, steps, calls, signals, told;

static void hangs(int number)
{
    (void)number;
    char line[200];
    int n = snprintf(line, sizeof(line), "hang in %s after %lu signals\n", call_now, signals);
    if (write(1, line, (size_t)n) < 0)
        _exit(8);
    _exit(7); /* PTRACE_O_EXITKILL ends the program */
}

/* Lets it go on, with this signal, and waits till it stops again. The signal that has stopped it; 0: it has ended. */
static int go_on(enum __ptrace_request how, int number, int *status)
{
    if (ptrace(how, program, NULL, (void *)(intptr_t)number) < 0)
        die("ptrace");
    alarm(HANG_S);
    if (waitpid(program, status, __WALL) != program)
        die("waitpid");
    alarm(0);
    return WIFSTOPPED(*status) ? WSTOPSIG(*status) : 0;
}

/* What the program says by the signal that has stopped it; 0: it is no mark. */
static enum mark mark_of(int number)
{
    siginfo_t info;
    if (number != SIGSTOP || ptrace(PTRACE_GETSIGINFO, program, NULL, &info) < 0 || info.si_code != SI_QUEUE)
        return 0;
    return (enum mark)info.si_value.sival_int;
}

static uintptr_t vdso_lo, vdso_hi;

static void find_vdso(void)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)program);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strstr(line, "[vdso]") != NULL && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &vdso_lo, &vdso_hi) != 2)
            die(line);
    if (f == NULL || vdso_hi == 0)
        die("no vdso");
    fclose(f);
}

/*
 * The kernel's code in the program's memory reads the clock again when that was set forward meanwhile, as it is at each
 * tick: signals there would keep it busy for ever.
 */
static bool is_in_vdso(void)
{
    struct user_regs_struct r;
    struct iovec v = { &r, sizeof(r) };
    if (ptrace(PTRACE_GETREGSET, program, (void *)NT_PRSTATUS, &v) < 0)
        die("PTRACE_GETREGSET");
#if defined(__x86_64__)
    uintptr_t pc = r.rip;
#else
    uintptr_t pc = r.pc;
#endif
    return pc >= vdso_lo && pc < vdso_hi;
}

/* The handler has run: back to the instruction that the signal has interrupted. False: the program has ended. */
static bool leave_handler(int *status)
{
    /* (The next system call is the return from it.) */
    return go_on(PTRACE_SYSCALL, 0, status) == SIGTRAP && go_on(PTRACE_SYSCALL, 0, status) == SIGTRAP;
}

/* One call of the program's, with a signal before each of its instructions. False: the program has ended. */
static bool through_call(int *status)
{
    calls++;
    int number = go_on(PTRACE_SINGLESTEP, 0, status);
    while (number != 0) {
        enum mark m = mark_of(number);
        if (m == MARK_END)
            return true;
        if (number != SIGTRAP) {
            number = go_on(PTRACE_SINGLESTEP, number == SIGSTOP ? 0 : number, status);
            continue;
        }
        if (++steps % every != 0 || is_in_vdso()) {
            number = go_on(PTRACE_SINGLESTEP, 0, status);
            continue;
        }
        signals++;
        number = go_on(PTRACE_CONT, SIGALRM, status);
        while (number == SIGCHLD || number == SIGALRM) /* (one that was put off comes again) */
            number = go_on(PTRACE_CONT, number, status);
        m = mark_of(number);
        if (m == MARK_HANDLED) {
            told++;
            if (!leave_handler(status))
                return false;
            number = go_on(PTRACE_SINGLESTEP, 0, status);
        } else if (m == MARK_END) {
            return true;
        }
    }
    return false;
}

static int trace(char **command)
{
    int status;
    signal(SIGALRM, hangs);
    program = fork();
    if (program == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execvp(command[0], command);
        die(command[0]);
    }
    if (waitpid(program, &status, __WALL) != program || !WIFSTOPPED(status))
        die("the program");
    if (ptrace(PTRACE_SETOPTIONS, program, NULL, (void *)(intptr_t)PTRACE_O_EXITKILL) < 0)
        die("PTRACE_SETOPTIONS");
    int number = go_on(PTRACE_CONT, 0, &status);
    while (number != 0) {
        static char name[32];
        enum mark m = mark_of(number);
        bool ours = m != 0 || number == SIGTRAP;
        if (m == MARK_BEGIN) {
            snprintf(name, sizeof(name), "call %lu", calls + 1);
            call_now = name;
            if (vdso_hi == 0)
                find_vdso();
            if (!through_call(&status))
                break;
        }
        number = go_on(PTRACE_CONT, ours ? 0 : number, &status);
    }
    printf("%lu calls, %lu signals, %lu told\n", calls, signals, told);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- the echo server ---- */

static _Noreturn void serve(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    struct pollfd fds[1024];
    nfds_t n = 1;
    fds[0] = (struct pollfd){ .fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN };
    if (bind(fds[0].fd, (struct sockaddr *)&at, len) < 0 || listen(fds[0].fd, 1024) < 0 ||
        getsockname(fds[0].fd, (struct sockaddr *)&at, &len) < 0)
        die("serve");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        if (poll(fds, n, -1) < 0)
            die("poll");
        for (nfds_t i = n; i-- > 1;) {
            char some[4096];
            ssize_t got = fds[i].revents != 0 ? recv(fds[i].fd, some, sizeof(some), MSG_DONTWAIT) : 1;
            if (fds[i].revents != 0 && got > 0 && send(fds[i].fd, some, (size_t)got, MSG_NOSIGNAL) != got)
                got = 0;
            if (got > 0 || (got < 0 && errno == EAGAIN))
                continue;
            close(fds[i].fd);
            fds[i] = fds[--n];
        }
        if (fds[0].revents != 0 && n < 1024)
            fds[n++] = (struct pollfd){ .fd = accept(fds[0].fd, NULL, NULL), .events = POLLIN };
    }
}

/* ---- the program ---- */

static struct sockaddr_in server;
static int conn, other, set, listener; /* a connection that its calls use, one that the handler uses */
static char handler_does;
static volatile sig_atomic_t handled, wrong_in_handler;

static void say(enum mark m)
{
    union sigval value = { .sival_int = m };
    if (pthread_sigqueue(pthread_self(), SIGSTOP, value) != 0)
        _exit(9);
}

static int connected(int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof(server)) < 0)
        die("connect");
    if (fcntl(fd, F_SETFL, flags) < 0)
        die("fcntl");
    return fd;
}

#define MUST(expr)                       \
    do {                                 \
        if (!(expr))                     \
            wrong_in_handler = __LINE__; \
    } while (0)

static void handler_sockets(void)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0);
    MUST(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
    MUST(listen(fd, 1) == 0);
    MUST(close(fd) == 0);
}

static void handler_waits(void)
{
    struct pollfd fds[2] = { { .fd = conn, .events = POLLIN }, { .fd = listener, .events = POLLIN } };
    struct epoll_event e = { .events = EPOLLIN };
    MUST(poll(fds, 2, 0) >= 0);
    MUST(epoll_wait(set, &e, 1, 0) >= 0);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, other, &e) == 0);
    MUST(epoll_ctl(set, EPOLL_CTL_DEL, other, NULL) == 0);
}

static void handler_connects(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    MUST(fd >= 0);
    int r = connect(fd, (struct sockaddr *)&server, sizeof(server));
    MUST(r == 0 || errno == EINPROGRESS);
    MUST(close(fd) == 0);
}

static void handler_talks(void)
{
    char c = 'x';
    MUST(send(other, &c, 1, 0) == 1);
    MUST(recv(other, &c, 1, 0) == 1 && c == 'x');
}

static void handler_forks(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(close(other) == 0 ? 5 : 6);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

static void on_signal(int number)
{
    (void)number;
    int err = errno;
    handled++;
    switch (handler_does) {
    case 's':
        handler_sockets();
        break;
    case 'w':
        handler_waits();
        break;
    case 'c':
        handler_connects();
        break;
    case 't':
        handler_talks();
        break;
    case 'f':
        handler_forks();
        break;
    default:
        break;
    }
    errno = err;
    say(MARK_HANDLED);
}

/* `call` with signals at each instruction; its result has to be `want`. */
#define CALL(want, call)                                                                    \
    do {                                                                                    \
        say(MARK_BEGIN);                                                                    \
        long r_ = (long)(call);                                                             \
        int err_ = errno;                                                                   \
        say(MARK_END);                                                                      \
        if (r_ != (long)(want)) {                                                           \
            printf("%s gave %ld (%s), not %ld\n", #call, r_, strerror(err_), (long)(want)); \
            bad = 1;                                                                        \
        }                                                                                   \
    } while (0)

static void await_input(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
}

static int run(void)
{
    int bad = 0;
    struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    conn = connected(0);
    other = connected(0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    set = epoll_create1(0);
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t own_len = sizeof(own);
    struct epoll_event e = { .events = EPOLLIN };
    if (bind(listener, (struct sockaddr *)&own, sizeof(own)) < 0 || listen(listener, 64) < 0 ||
        getsockname(listener, (struct sockaddr *)&own, &own_len) < 0 || epoll_ctl(set, EPOLL_CTL_ADD, conn, &e) < 0)
        die("run");
    handler_talks(); /* (both are upgraded when their first octets have come back) */
    char buf[100], all[100];
    memset(all, 'a', sizeof(all));
    if (send(conn, all, 1, 0) != 1 || recv(conn, buf, 1, 0) != 1 || sigaction(SIGALRM, &sa, NULL) < 0)
        die("run");

    int fd, fd2;
    CALL(1, (fd = socket(AF_INET, SOCK_STREAM, 0)) > 2);
    CALL(0, close(fd));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CALL(0, connect(fd, (struct sockaddr *)&server, sizeof(server)));
    CALL(1, send(fd, all, 1, 0));
    CALL(1, recv(fd, buf, sizeof(buf), 0));
    CALL(1, (fd2 = dup(fd)) > 2);
    CALL(0, close(fd2));
    CALL(0, shutdown(fd, SHUT_WR));
    CALL(0, recv(fd, buf, sizeof(buf), 0));
    CALL(0, close(fd));

    for (int i = 0; i < 3; i++) {
        CALL(100, send(conn, all, 100, 0));
        await_input(conn);
        struct pollfd p = { .fd = conn, .events = POLLIN | POLLOUT };
        fd_set r;
        FD_ZERO(&r);
        FD_SET(conn, &r);
        CALL(1, poll(&p, 1, -1));
        CALL(1, select(conn + 1, &r, NULL, NULL, NULL));
        if (handler_does != 'w') /* (whose look takes nothing away, but is the same set's) */
            CALL(1, epoll_wait(set, &e, 1, -1));
        CALL(50, recv(conn, buf, 50, MSG_PEEK));
        CALL(50, recv(conn, buf, 50, 0));
        CALL(0, poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, 0));
        CALL(50, read(conn, buf, 50));
        CALL(0, epoll_wait(set, &e, 1, 0));
        e.events = EPOLLIN | EPOLLOUT;
        CALL(0, epoll_ctl(set, EPOLL_CTL_MOD, conn, &e));
        CALL(0, epoll_ctl(set, EPOLL_CTL_DEL, conn, NULL));
        e.events = EPOLLIN;
        CALL(0, epoll_ctl(set, EPOLL_CTL_ADD, conn, &e));
    }
    int one = 1;
    CALL(0, setsockopt(conn, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
    CALL(0, fcntl(conn, F_SETFL, O_NONBLOCK));
    CALL(-1, recv(conn, buf, 1, 0));
    CALL(0, fcntl(conn, F_SETFL, 0));

    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CALL(-1, connect(fd, (struct sockaddr *)&own, sizeof(own)));
    CALL(1, poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1));
    CALL(1, (fd2 = accept(listener, NULL, NULL)) > 2);
    CALL(100, send(fd, all, 100, 0));
    CALL(100, recv(fd2, buf, 100, MSG_WAITALL));
    CALL(fd2, dup2(fd, fd2));
    CALL(0, close(fd2));
    CALL(0, close(fd));
    CALL(1, (fd = epoll_create1(0)) > 2);
    CALL(0, close(fd));

    signal(SIGALRM, SIG_IGN);
    if (send(conn, all, 100, 0) != 100 || recv(conn, buf, 100, MSG_WAITALL) != 100 || memcmp(buf, all, 100) != 0) {
        printf("the connection is not whole at the end\n");
        bad = 1;
    }
    handler_talks();
    if (wrong_in_handler != 0) {
        printf("a call of the handler went wrong: line %d\n", (int)wrong_in_handler);
        bad = 1;
    }
    printf("handled %d\n", (int)handled);
    fflush(stdout);
    return bad;
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "trace") == 0) {
        every = strtoul(argv[2], NULL, 10);
        return every > 0 ? trace(argv + 3) : 2;
    }
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        serve();
    if (argc < 4 || strcmp(argv[1], "run") != 0)
        return 2;
    server = (struct sockaddr_in){ .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)atoi(argv[2])) };
    handler_does = argv[3][0];
    return run();
}
