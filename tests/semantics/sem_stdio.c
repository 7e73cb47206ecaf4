/*
 * stdio: streams on the connection, made before and after it is one, and the standard streams.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "tests/semantics/sem.h"

static FILE *open_stream(int fd, const char *mode)
{
    FILE *f = fdopen(fd, mode);
    if (f == NULL)
        must("fdopen", -1);
    return f;
}

static void say_octets(const char *what, const char *text, size_t len)
{
    say(" %s=\"", what);
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\n')
            say("\\n");
        else if (text[i] > ' ' && text[i] < 0x7f)
            say("%c", text[i]);
        else
            say("\\%02x", (unsigned char)text[i]);
    say("\"");
}

/* The far end sends back the len octets that were written, and says whether there were more. */
static void echoed(int s, size_t len)
{
    char buf[512];
    size_t got = 0;
    far_begin(FAR_ECHO, (int64_t)len, 0);
    while (got < len) {
        ssize_t n = recv(s, buf + got, sizeof(buf) - got, 0);
        if (n <= 0) {
            say_result("recv", n);
            break;
        }
        got += (size_t)n;
    }
    say_octets("echo", buf, got);
    far_say("far", far_end());
}

/* From the far end: these letters, one line. */
static void far_sends_back(int s, const char *text)
{
    far_begin(FAR_ECHO, (int64_t)strlen(text), 0);
    must("send", send(s, text, strlen(text), 0));
    far_end();
    await_octets(s, (int)strlen(text));
}

static void say_flags(FILE *f)
{
    say(" eof=%d error=%d", feof(f) != 0, ferror(f) != 0);
    clearerr(f);
}

static void modes(int s)
{
    static const char *const good[] = { "r",   "w",  "a",  "r+", "w+",  "a+",    "rb",   "rb+",
                                        "r+b", "re", "wc", "rm", "rx+", "wbec+", "rabc+" };
    static const char *const bad[] = { "", "+", "x", "R", " r" };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int d = (int)must("dup", dup(s));
        FILE *f = fdopen(d, good[i]);
        say(" %s=%d%d%d", good[i], f != NULL && fileno(f) == d && fileno_unlocked(f) == d, f != NULL && __freadable(f),
            f != NULL && __fwritable(f));
        say(",%d", (fcntl(d, F_GETFL) & O_APPEND) != 0);
        say_result("fclose", f != NULL ? fclose(f) : -1);
        say_result("fd", fcntl(d, F_GETFD));
        must("F_SETFL", fcntl(s, F_SETFL, O_RDWR));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        errno = 0;
        say_result("bad", fdopen(s, bad[i]) != NULL ? 0 : -1);
    }
    say_result("bad_fd", fdopen(9999, "r") != NULL ? 0 : -1);
    say_result("bad_fd_mode", fdopen(9999, "q") != NULL ? 0 : -1);
    send_next(s, 5);
    far_say("far", far_do(FAR_RECV, 5));
}

/* How much stays in the buffer, and what goes around it. */
static void buffers(int s)
{
    static uint8_t buf[20000];
    FILE *f = open_stream(s, "r+");
    fill(buf, sizeof(buf), sem_tx);
    say_result("fwrite", (ssize_t)fwrite(buf, 1, 3000, f));
    say(" pending=%zu size=%zu", __fpending(f), __fbufsize(f));
    say_result("fwrite", (ssize_t)fwrite(buf + 3000, 1, 3000, f));
    say(" pending=%zu", __fpending(f));
    far_say("far", far_do(FAR_RECV, 4096));
    say_result("fwrite", (ssize_t)fwrite(buf + 6000, 1, 14000, f));
    say(" pending=%zu", __fpending(f));
    say_result("fflush", fflush(f));
    far_say("far", far_do(FAR_RECV, 20000 - 4096));
    sem_tx += 20000;
    say_result("fputc", fputc('a', f));
    __fpurge(f);
    say_result("fflush", fflush(f));
    far_do(FAR_SEND, 9000);
    await_octets(s, 9000);
    say_result("fgetc", fgetc(f) >= 0);
    sem_rx++;
    say(" left=%zd", f->_IO_read_end - f->_IO_read_ptr);
    say_result("fread", (ssize_t)fread(buf, 1, 8999, f));
    check(buf, 8999);
    say_result("fclose", fclose(f));
}

static void line_buffered(int s)
{
    char own[64];
    FILE *f = open_stream(s, "w");
    say_result("setvbuf", setvbuf(f, own, _IOLBF, sizeof(own)));
    fputs("one\ntw", f);
    say(" pending=%zu line=%d", __fpending(f), __flbf(f) != 0);
    echoed(s, 6);
    fputs("o\n", f);
    echoed(s, 2);
    FILE *g = open_stream((int)must("dup", dup(s)), "w");
    say_result("setvbuf", setvbuf(g, NULL, _IONBF, 0));
    fprintf(g, "%s %d", "three", 4);
    say(" pending=%zu", __fpending(g));
    echoed(s, 7);
    say_result("fclose", fclose(g));
    setlinebuf(f);
    fputs("x", f);
    say_result("fclose", fclose(f));
}

static void reading(int s)
{
    FILE *f = open_stream((int)must("dup", dup(s)), "r");
    char *line = NULL, word[20];
    size_t room = 0;
    int number = 0;
    far_sends_back(s, "first line\n12 word\nxyz");
    say_result("getline", getline(&line, &room, f));
    say_octets("line", line, strlen(line));
    say(" fscanf=%d", fscanf(f, "%d %19s", &number, word));
    say(" %d %s", number, word);
    say_result("fgetc", fgetc(f));
    int c = fgetc(f);
    say(" c=%c ungetc=%c", c, ungetc('q', f));
    say(" c=%d", fgetc(f));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say_result("getdelim", getdelim(&line, &room, 'z', f));
    say_flags(f);
    say_result("fgetc", fgetc(f));
    say_flags(f);
    say(" ungetc=%c", ungetc('u', f));
    say(" c=%d", fgetc(f));
    say_result("fputc", fputc('a', f));
    say_flags(f);
    free(line);
    say_result("fclose", fclose(f));
    send_next(s, 5);
    far_say("far", far_do(FAR_RECV, 5));
}

static void seeking(int s)
{
    FILE *f = open_stream(s, "r+");
    fpos_t pos;
    say_result("ftell", ftell(f));
    say_result("ftello", ftello(f));
    say_result("fseek", fseek(f, 1, SEEK_SET));
    say_result("fseek_cur", fseek(f, 0, SEEK_CUR));
    say_result("fgetpos", fgetpos(f, &pos));
    fputs("abc", f);
    say_result("ftell", ftell(f));
    say_result("fseek", fseek(f, 0, SEEK_CUR));
    say_result("fflush", fflush(f));
    echoed(s, 3);
    far_sends_back(s, "defghi");
    say(" c=%d", fgetc(f));
    /* Octets were read ahead, and a socket has no place to go back to. */
    errno = 0;
    say_result("fputs", fputs("xyz", f));
    say_result("fflush", fflush(f));
    say_flags(f);
    say(" c=%d", fgetc(f));
    errno = 0;
    rewind(f);
    say_result("rewind", errno ? -1 : 0);
    say_result("fclose", fclose(f));
}

static void failing(int s)
{
    static uint8_t buf[100];
    FILE *in = open_stream((int)must("dup", dup(s)), "r");
    FILE *out = open_stream((int)must("dup", dup(s)), "w");
    signal(SIGPIPE, SIG_IGN);
    set_nonblock(s, true);
    say_result("fgetc", fgetc(in));
    say_flags(in);
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("fread", (ssize_t)fread(buf, 1, 50, in));
    check(buf, 10);
    say_result("errno", -1);
    say_flags(in);
    set_nonblock(s, false);
    signal_after(40, false);
    say_result("fgetc", fgetc(in));
    say(" signals=%d", sem_signals);
    say_flags(in);
    signal_after(30, true);
    far_begin(FAR_SEND, 1, 90);
    say_result("fgetc", fgetc(in) >= 0);
    far_end();
    sem_rx++;
    struct timeval tv = { .tv_usec = 30000 };
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    say_result("fgetc", fgetc(in));
    say_flags(in);
    shutdown(s, SHUT_WR);
    say_result("fputs", fputs("abc", out));
    say_result("fflush", fflush(out));
    say_flags(out);
    say_result("fputs", fputs("abc", out));
    say_result("fclose", fclose(out));
    say_result("dprintf", dprintf(s, "abc"));
    int fd = fileno(in);
    close(fd);
    say_result("fgetc", fgetc(in));
    say_result("fclose", fclose(in));
}

/* A socket that does not block takes what it has room for. */
static void full(int s)
{
    static char buf[64000];
    FILE *f = open_stream((int)must("dup", dup(s)), "w");
    fill_up(s);
    set_nonblock(s, true);
    errno = 0;
    say_result("fputs", fputs("abc", f));
    say_result("fflush", fflush(f));
    say_flags(f);
    say(" pending=%zu", __fpending(f));
    say_result("fwrite", (ssize_t)fwrite(buf, 1, sizeof(buf), f));
    say_flags(f);
    say_result("dprintf", dprintf(s, "abc"));
}

static int print_list(int fd, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vdprintf(fd, format, ap);
    va_end(ap);
    return n;
}

static void printing(int s)
{
    say_result("dprintf", dprintf(s, "%s-%d-%c\n", "text", 42, 'c'));
    echoed(s, 10);
    say_result("vdprintf", print_list(s, "%5.2f|", 3.14159));
    echoed(s, 6);
    int n = 0;
    say_result("empty", dprintf(s, "%s", ""));
    far_begin(FAR_ECHO, 100000, 0);
    say_result("long", dprintf(s, "%0100000d%n", 1, &n));
    say(" n=%d", n);
    char *back = malloc(100000);
    say_result("recv", recv(s, back, 100000, MSG_WAITALL));
    size_t zeros = strspn(back, "0");
    say(" zeros=%zu last=%c", zeros, back[99999]);
    free(back);
    far_end();
    say_result("bad_fd", dprintf(9999, "abc"));
}

static void closing(int s)
{
    FILE *f = open_stream(s, "w");
    fputs("last", f);
    far_begin(FAR_RECV, 100, 0);
    say_result("fclose", fclose(f));
    struct far_result r = far_end();
    say(" far=%lld,%d", (long long)r.r, r.err);
    say_result("fd", fcntl(s, F_GETFD));
}

static void exits(int s)
{
    FILE *f = open_stream(s, "w");
    fputs("before", f);
    fflush(f);
    fputs("-at exit", f);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0)
        exit(3);
    int status = 0;
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d pending=%zu", WEXITSTATUS(status), __fpending(f));
    echoed(s, 14);
    pid = (pid_t)must("fork", fork());
    if (pid == 0)
        _exit(4);
    must("waitpid", waitpid(pid, &status, 0));
    say(" child=%d", WEXITSTATUS(status));
    say_result("fflush", fflush(NULL));
    echoed(s, 8);
}

/* The stream is older than the connection. */
static void made_early(int s)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(sem_far_port),
        .sin_port = htons(sem_far_port),
    };
    close(s);
    far_do(FAR_CLOSE, 0);
    s = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    FILE *f = open_stream(s, "w");
    say(" fileno=%d", fileno(f) == s);
    far_begin(FAR_ACCEPT, 0, 0);
    must("connect", connect(s, (struct sockaddr *)&in, sizeof(in)));
    must("accept", far_end().r);
    fputs("hello\n", f);
    say_result("fflush", fflush(f));
    echoed(s, 6);
    say_result("fclose", fclose(f));
}

static void reopened(int s)
{
    char name[] = "/tmp/sockwarp-sem.XXXXXX", buf[100] = "";
    int file = (int)must("mkstemp", mkstemp(name));
    unlink(name);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
    FILE *f = open_stream(s, "w");
    fputs("to the peer", f);
    far_begin(FAR_RECV, 100, 0);
    say(" same=%d", freopen(name, "w", f) == f);
    say(" fileno=%d", fileno(f) == s);
    struct far_result r = far_end();
    say(" far=%lld,%d", (long long)r.r, r.err);
    fputs("to the file", f);
    say_result("ftell", ftell(f));
    say_result("fflush", fflush(f));
    say_result("pread", pread(file, buf, sizeof(buf), 0));
    say_octets("file", buf, strlen(buf));
    say_result("write", write(s, "!", 1));
    say_result("fseek", fseek(f, 3, SEEK_SET));
    say_result("fclose", fclose(f));
    say_result("fd", fcntl(s, F_GETFD));
}

static void reopened_badly(int s)
{
    int d = (int)must("dup", dup(s));
    FILE *f = open_stream(d, "w");
    say(" none=%d", freopen("/nonexistent/file", "w", f) == NULL);
    say_result("errno", -1);
    say_result("fd", fcntl(d, F_GETFD));
    d = (int)must("dup", dup(s));
    f = open_stream(d, "w");
    say(" mode=%d", freopen(NULL, "r", f) == NULL);
    say_result("errno", -1);
    say_result("fd", fcntl(d, F_GETFD));
    send_next(s, 5);
    far_say("far", far_do(FAR_RECV, 5));
}

/* ---- the standard streams ---- */

static int kept[3];

static void std_to(int s, int fd)
{
    kept[fd] = (int)must("dup", dup(fd));
    must("dup2", dup2(s, fd));
}

static void std_back(int fd)
{
    must("dup2", dup2(kept[fd], fd));
    close(kept[fd]);
}

static void std_out(int s)
{
    std_to(s, 1);
    int n = printf("hello %d\n", 1);
    puts("puts");
    putchar('c');
    size_t pending = __fpending(stdout);
    int flushed = fflush(stdout);
    int fd = fileno(stdout);
    std_back(1);
    say(" printf=%d pending=%zu fflush=%d fileno=%d", n, pending, flushed, fd);
    echoed(s, 14);
}

/* What the buffer holds goes to where the descriptor leads when it is flushed. */
static void std_out_pending(int s)
{
    int null = (int)must("open", open("/dev/null", O_WRONLY));
    std_to(null, 1);
    setvbuf(stdout, NULL, _IOFBF, 1000);
    fputs("before, ", stdout);
    must("dup2", dup2(s, 1));
    fputs("after", stdout);
    size_t pending = __fpending(stdout);
    fflush(stdout);
    fputs("and back", stdout);
    must("dup2", dup2(null, 1));
    fflush(stdout);
    std_back(1);
    say(" pending=%zu", pending);
    echoed(s, 13);
}

static void std_out_lines(int s)
{
    setlinebuf(stdout);
    std_to(s, 1);
    printf("line\nrest");
    size_t pending = __fpending(stdout);
    int lines = __flbf(stdout) != 0;
    __fpurge(stdout);
    std_back(1);
    say(" pending=%zu line=%d", pending, lines);
    echoed(s, 5);
}

static void std_err(int s)
{
    std_to(s, 2);
    int n = fprintf(stderr, "error %d", 5);
    errno = ENOENT;
    perror("what");
    fputc('.', stderr);
    int fd = fileno(stderr), w = fwide(stderr, 0);
    std_back(2);
    say(" fprintf=%d fileno=%d fwide=%d", n, fd, w);
    echoed(s, 40);
}

/* perror writes past a stream that has no orientation yet. */
static void std_err_first(int s)
{
    std_to(s, 2);
    errno = EPERM;
    perror("first");
    errno = EPERM;
    perror("");
    errno = EPERM;
    perror(NULL);
    std_back(2);
    echoed(s, 31 + 2 * 24);
}

static void std_in(int s)
{
    char line[40];
    std_to(s, 0);
    far_sends_back(s, "first\nsecond 22\nx");
    say(" fileno=%d", fileno(stdin));
    say_octets("line", line, fgets(line, sizeof(line), stdin) ? strlen(line) : 0);
    int number = 0;
    say(" scanf=%d", scanf("%39s %d", line, &number));
    say(" %s,%d", line, number);
    say(" c=%d", getchar());
    say(" c=%d", getchar_unlocked());
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say(" c=%d", getchar());
    say_flags(stdin);
    std_back(0);
}

/* Octets that were read ahead of the descriptor that was there before. */
static void std_in_pending(int s)
{
    int p[2];
    must("pipe", pipe(p));
    std_to(p[0], 0);
    must("write", write(p[1], "abcdef", 6));
    say(" c=%c", getchar());
    say(" ungetc=%c", ungetc('Z', stdin));
    far_sends_back(s, "123456");
    must("dup2", dup2(s, 0));
    for (int i = 0; i < 12; i++)
        say(" %c", getchar());
    std_back(0);
}

static void std_closed_first(int s)
{
    kept[1] = (int)must("dup", dup(1));
    close(1);
    int d = dup(s);
    printf("one ");
    fflush(stdout);
    close(1);
    int f = fcntl(s, F_DUPFD, 1);
    printf("two");
    fflush(stdout);
    std_back(1);
    say(" dup=%d F_DUPFD=%d", d, f);
    echoed(s, 7);
}

static void std_reopened(int s)
{
    std_to(s, 1);
    printf("peer");
    bool same = freopen("/dev/null", "w", stdout) == stdout;
    printf("null");
    fflush(stdout);
    int fd = fileno(stdout);
    must("dup2", dup2(s, 1));
    printf("again");
    fflush(stdout);
    std_back(1);
    say(" same=%d fileno=%d", same, fd);
    echoed(s, 9);
}

static void std_fclosed(int s)
{
    std_to(s, 1);
    printf("last");
    int r = fclose(stdout), fd = fcntl(1, F_GETFD);
    std_back(1);
    say(" fclose=%d fd=%d", r, fd);
    echoed(s, 4);
}

/* A call that succeeds leaves errno alone. (Programs look at it where a return value cannot say enough.) */
static void errno_kept(int s)
{
    uint8_t buf[100];
    struct pollfd p = { .fd = s, .events = POLLIN | POLLOUT };
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT };
    fd_set set;
    int there, file = (int)must("memfd", memfd_create("file", 0)), ep = (int)must("epoll", epoll_create1(0));
    must("ftruncate", ftruncate(file, 10));
    far_do(FAR_SEND, 100);
    await_octets(s, 100);
#define KEPT(what, call)                        \
    do {                                        \
        errno = EXFULL;                         \
        int r_ = (int)(call);                   \
        say(" %s=%d", what, r_);                \
        if (errno != EXFULL)                    \
            say(",%s", strerrorname_np(errno)); \
    } while (0)
    KEPT("recv", recv(s, buf, 10, 0));
    KEPT("peek", recv(s, buf, 10, MSG_PEEK));
    KEPT("read", read(s, buf, 10));
    KEPT("send", send(s, buf, 10, 0));
    KEPT("poll", poll(&p, 1, 100));
    FD_ZERO(&set);
    FD_SET(s, &set);
    KEPT("select", select(s + 1, &set, NULL, NULL, NULL));
    KEPT("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    KEPT("epoll_wait", epoll_wait(ep, &ev, 1, 100));
    KEPT("FIONREAD", ioctl(s, FIONREAD, &there));
    KEPT("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &there, &(socklen_t){ sizeof(there) }));
    KEPT("SO_RCVLOWAT", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &(int){ 1 }, sizeof(int)));
    KEPT("F_GETFL", fcntl(s, F_GETFL) & O_ACCMODE);
    int d = -1;
    KEPT("dup", (d = dup(s)) > 0);
    KEPT("dup2", dup2(s, d) == d);
    KEPT("close", close(d));
    KEPT("sendfile", sendfile(s, file, &(off_t){ 0 }, 10));
    KEPT("rest", recv(s, buf, 80, MSG_WAITALL));
    far_do(FAR_SHUTDOWN, SHUT_WR);
    KEPT("poll", poll(&p, 1, 10000));
    KEPT("end", recv(s, buf, 10, 0));
    KEPT("none", recv(s, buf, 0, 0));
    far_begin(FAR_CONNECT, sem_port, 0);
    KEPT("accept", (d = accept(sem_listener, NULL, NULL)) > 0);
    far_end();
    KEPT("close", close(d));
    KEPT("shutdown", shutdown(s, SHUT_WR));
    KEPT("close", close(s));
    far_begin(FAR_ACCEPT, 0, 0);
    KEPT("connect", (d = connect_to(sem_far_port)) > 0);
    must("accept", far_end().r);
    pid_t pid;
    KEPT("fork", (pid = fork()) >= 0);
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
}

/* Commands that libc starts. */
static void std_commands(int s)
{
    char line[40] = "";
    fflush(stdout);
    std_to(s, 1);
    int status = system("echo of system; exit 5"), shell = system(NULL);
    FILE *f = popen("cat; exit 3", "w");
    fputs("to a pipe\n", f);
    int fd = fileno(f) > 2, writer = pclose(f);
    f = popen("echo of a pipe; kill -TERM $$", "re");
    int cloexec = fcntl(fileno(f), F_GETFD);
    bool got = fgets(line, sizeof(line), f) != NULL;
    int reader = pclose(f), bad = popen("true", "q") == NULL ? errno : 0;
    int first = system("exec 2>/dev/null; /nonexistent/program");
    std_back(1);
    say(" system=%x shell=%d fd=%d writer=%x got=%d cloexec=%d reader=%x bad=%d none=%x", status, shell != 0, fd,
        writer, got, cloexec, reader, bad, first);
    say_octets("line", line, strlen(line));
    echoed(s, 20);
}

/* A child's streams, as a forking server has them: its input is what the far end sends back. */
static void std_child(int s)
{
    far_begin(FAR_ECHO, 4, 0);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        char line[100];
        for (int i = 0; i < 3; i++)
            dup2(s, i);
        close(s);
        puts("one");
        fflush(stdout);
        if (fgets(line, sizeof(line), stdin) == NULL || strcmp(line, "one\n") != 0)
            exit(1);
        fprintf(stderr, "(standard error)");
        printf("and the rest\n");
        exit(0); /* flushes */
    }
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    far_say("far", far_end());
    say(" child=%d", status);
    echoed(s, 29);
}

const struct scenario sem_stdio[] = {
    { "stdio_modes", modes },
    { "stdio_buffers", buffers },
    { "stdio_line_buffered", line_buffered },
    { "stdio_reading", reading },
    { "stdio_seeking", seeking },
    { "stdio_failing", failing },
    { "stdio_full", full },
    { "stdio_printing", printing },
    { "stdio_closing", closing },
    { "stdio_exits", exits },
    { "stdio_made_early", made_early },
    { "stdio_reopened", reopened },
    { "stdio_reopened_badly", reopened_badly },
    { "std_out", std_out },
    { "std_out_pending", std_out_pending },
    { "std_out_lines", std_out_lines },
    { "std_err", std_err },
    { "std_err_first", std_err_first },
    { "std_in", std_in },
    { "std_in_pending", std_in_pending },
    { "std_closed_first", std_closed_first },
    { "std_reopened", std_reopened },
    { "std_fclosed", std_fclosed },
    { "std_commands", std_commands },
    { "std_child", std_child },
    { "errno_kept", errno_kept },
    { NULL, NULL },
};
