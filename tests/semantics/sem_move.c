/*
 * Octets moved without the program: sendfile, splice, tee, vmsplice, copy_file_range.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

static volatile sig_atomic_t pipes;

static void on_pipe(int number)
{
    (void)number;
    pipes++;
}

static void count_pipes(void)
{
    struct sigaction sa = { .sa_handler = on_pipe };
    must("sigaction", sigaction(SIGPIPE, &sa, NULL));
}

/* A file of the next len octets, its position at the beginning. */
static int file_of(size_t len)
{
    FILE *f = tmpfile();
    if (f == NULL)
        must("tmpfile", -1);
    uint8_t *buf = malloc(len);
    fill(buf, len, sem_tx);
    if (fwrite(buf, 1, len, f) != len || fflush(f) != 0)
        must("write a file", -1);
    free(buf);
    int fd = (int)must("dup", dup(fileno(f)));
    fclose(f);
    must("lseek", lseek(fd, 0, SEEK_SET));
    return fd;
}

static void pipe_of(int p[2], size_t len)
{
    static uint8_t buf[65536];
    must("pipe", pipe(p));
    fill(buf, len, sem_tx);
    must("write", write(p[1], buf, len));
}

static void sendfile_edges(int s)
{
    int fd = file_of(1000);
    off_t off = 0;
    say_result("zero", sendfile(s, fd, &off, 0));
    say_result("zero_bad_fd", sendfile(s, 9999, &off, 0));
    off = 5000;
    say_result("beyond", sendfile(s, fd, &off, 10));
    say(" off=%lld", (long long)off);
    off = 990;
    say_result("last", sendfile(s, fd, &off, 100));
    say(" off=%lld position=%lld", (long long)off, (long long)lseek(fd, 0, SEEK_CUR));
    say_result("end", sendfile(s, fd, &off, 100));
    off = 0;
    volatile size_t whole = SIZE_MAX; /* not the compiler's to judge */
    say_result("huge", sendfile(s, fd, &off, whole));
    say(" off=%lld", (long long)off);
    must("lseek", lseek(fd, 998, SEEK_SET));
    say_result("position", sendfile(s, fd, NULL, 100));
    say(" position=%lld", (long long)lseek(fd, 0, SEEK_CUR));
    struct far_result res = far_do(FAR_RECV, 12);
    say(" far=%lld", (long long)res.r);
}

static void sendfile_bad(int s)
{
    int fd = file_of(100), p[2], q[2];
    must("pipe", pipe(p));
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, q));
    must("write", write(p[1], "abc", 3));
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    off_t off = 0;
    say_result("bad_in", sendfile(s, 9999, &off, 10));
    say_result("bad_out", sendfile(9999, fd, &off, 10));
    int wr = (int)must("open", open(path, O_WRONLY));
    say_result("write_only", sendfile(s, wr, &off, 10));
    int dir = (int)must("open", open("/", O_RDONLY));
    say_result("directory", sendfile(s, dir, &off, 10));
    int zero = (int)must("open", open("/dev/zero", O_RDONLY));
    off = 0;
    ssize_t r = sendfile(s, zero, NULL, 10);
    say_result("device", r);
    say_result("from_pipe", sendfile(s, p[0], NULL, 3));
    say_result("from_pipe_at", sendfile(s, p[0], &off, 3));
    say_result("from_socket", sendfile(s, q[0], NULL, 3));
    say_result("from_itself", sendfile(s, s, NULL, 3));
    say_result("to_file", sendfile(fd, s, NULL, 3));
    say_result("path", open(path, O_PATH) < 0 ? -1 : sendfile(s, open(path, O_PATH), &off, 3));
}

/* A file's number is another thing's at the next call. */
static void sendfile_number(int s)
{
    enum { N = 100 };
    int p[2], q[2], at = (int)must("dup", dup(s));
    must("pipe", pipe(p));
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, q));
    must("write", write(p[1], "abc", 3));
    must("write", write(q[1], "abc", 3));
    const struct {
        const char *what;
        int fd;
    } kind[] = {
        { "directory", open("/", O_RDONLY) },
        { "write_only", open("/dev/null", O_WRONLY) },
        { "path", open("/proc/self/limits", O_PATH) },
        { "pipe", p[0] },
        { "socket", q[0] },
        { "eventfd", eventfd(1, 0) },
        { "itself", s },
        { "closed", -1 },
    };
    for (size_t i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
        int fd = file_of(N);
        must("dup2", dup2(fd, at));
        close(fd);
        off_t off = 0;
        far_begin(FAR_RECV, N, 0);
        say_result("file", sendfile(s, at, &off, N));
        sem_tx += N;
        far_say("far", far_end());
        must("other", kind[i].fd >= 0 ? dup2(kind[i].fd, at) : close(at));
        off = 0;
        say_result(kind[i].what, sendfile(s, at, &off, 3));
        say(" off=%d", (int)off);
    }
    /* Files again, the second one shorter than asked for, and its end. */
    for (int len = N; len >= 10; len -= N - 10) {
        int fd = file_of((size_t)len);
        must("dup2", dup2(fd, at));
        close(fd);
        off_t off = 0;
        far_begin(FAR_RECV, len, 0);
        say_result("file", sendfile(s, at, &off, N));
        sem_tx += (uint64_t)len;
        far_say("far", far_end());
        say_result("end", sendfile(s, at, &off, N));
        say(" off=%d", (int)off);
    }
}

static void sendfile_proc(int s)
{
    /* A file that does not know its length. */
    int fd = (int)must("open", open("/proc/self/limits", O_RDONLY));
    char here[4096], there[4096];
    ssize_t len = must("read", read(fd, here, sizeof(here)));
    must("lseek", lseek(fd, 0, SEEK_SET));
    far_begin(FAR_ECHO, len, 0);
    ssize_t done = 0, r = 1;
    while (r > 0 && done < len) {
        r = sendfile(s, fd, NULL, sizeof(here));
        done += r > 0 ? r : 0;
    }
    if (r < 0)
        say_result("sendfile", r);
    say(" all=%d", done == len);
    if (done < len)
        return;
    far_end();
    r = recv(s, there, (size_t)len, MSG_WAITALL);
    say(" same=%d", r == len && memcmp(here, there, (size_t)len) == 0);
}

static void sendfile_full(int s)
{
    int fd = file_of(1000);
    off_t off = 0;
    set_nonblock(s, true);
    fill_up(s);
    say_result("full", sendfile(s, fd, &off, 1000));
    say(" off=%lld", (long long)off);
    must("lseek", lseek(fd, 10, SEEK_SET));
    say_result("full", sendfile(s, fd, NULL, 900));
    say(" position=%lld", (long long)lseek(fd, 0, SEEK_CUR));
    set_nonblock(s, false);
    struct timeval tv = { .tv_usec = 60000 };
    must("SO_SNDTIMEO", setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
    say_result("timed", sendfile(s, fd, NULL, 900));
    say(" position=%lld", (long long)lseek(fd, 0, SEEK_CUR));
}

/* A file longer than the buffers, in parts as an event loop does it. */
static void sendfile_parts(int s)
{
    const size_t len = 6000000;
    int fd = file_of(len);
    off_t off = 0;
    bool moved = true;
    set_nonblock(s, true);
    far_begin(FAR_RECV, (int64_t)len, 40);
    while ((size_t)off < len) {
        off_t before = off;
        ssize_t r = sendfile(s, fd, &off, len - (size_t)off);
        if (r < 0 && errno == EAGAIN)
            poll_one(s, POLLOUT, 10000);
        else
            must("sendfile", r);
        moved = moved && off == before + (r > 0 ? r : 0);
    }
    say(" moved=%d position=%lld", moved, (long long)lseek(fd, 0, SEEK_CUR));
    far_say("far", far_end());
}

static void sendfile_blocking(int s)
{
    const size_t len = 6000000;
    int fd = file_of(len);
    far_begin(FAR_RECV, (int64_t)len, 40);
    say_result("sendfile", sendfile(s, fd, NULL, len));
    far_say("far", far_end());
}

static void sendfile_shut(int s)
{
    int fd = file_of(100);
    off_t off = 10;
    count_pipes();
    must("shutdown", shutdown(s, SHUT_WR));
    say_result("sendfile", sendfile(s, fd, &off, 50));
    say(" pipes=%d off=%lld", (int)pipes, (long long)off);
    say_result("zero", sendfile(s, fd, &off, 0));
    off = 100;
    say_result("end", sendfile(s, fd, &off, 50));
    say(" pipes=%d", (int)pipes);
}

static void splice_bad(int s)
{
    int p[2], fd = file_of(100), q[2];
    off64_t off = 0;
    pipe_of(p, 10);
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, q));
    say_result("no_pipe", splice(fd, NULL, s, NULL, 10, 0));
    say_result("two_sockets", splice(s, NULL, q[0], NULL, 10, SPLICE_F_NONBLOCK));
    say_result("itself", splice(s, NULL, s, NULL, 10, SPLICE_F_NONBLOCK));
    say_result("offset_of_pipe", splice(p[0], &off, s, NULL, 10, 0));
    say_result("offset_of_socket", splice(p[0], NULL, s, &off, 10, 0));
    say_result("offset_in", splice(s, &off, p[1], NULL, 10, SPLICE_F_NONBLOCK));
    say_result("flags", splice(p[0], NULL, s, NULL, 10, 0x100));
    say_result("zero", splice(p[0], NULL, s, NULL, 0, 0));
    say_result("zero_out", splice(s, NULL, p[1], NULL, 0, 0));
    say_result("bad_fd", splice(9999, NULL, s, NULL, 10, 0));
    say_result("wrong_end", splice(p[1], NULL, s, NULL, 10, 0));
    say_result("wrong_end_out", splice(s, NULL, p[0], NULL, 10, SPLICE_F_NONBLOCK));
    say_result("splice", splice(p[0], NULL, s, NULL, 10, SPLICE_F_MOVE | SPLICE_F_MORE));
    far_say("far", far_do(FAR_RECV, 10));
}

static void splice_blocks(int s)
{
    int p[2];
    uint8_t buf[10];
    must("pipe", pipe(p));
    far_begin(FAR_SEND, 10, 30);
    ssize_t r = splice(s, NULL, p[1], NULL, 100, 0);
    far_end();
    say(" some=%d", r > 0);
    while (r < 10) {
        ssize_t more = splice(s, NULL, p[1], NULL, 100, 0);
        must("splice", more);
        r += more;
    }
    must("read", read(p[0], buf, 10));
    check(buf, 10);
    struct timeval tv = { .tv_usec = 60000 };
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    say_result("timed", splice(s, NULL, p[1], NULL, 100, 0));
    /* The flag is about the pipe. */
    far_begin(FAR_SEND, 10, 30);
    tv = (struct timeval){ 0 };
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    r = splice(s, NULL, p[1], NULL, 100, SPLICE_F_NONBLOCK);
    far_end();
    say(" flag=%d", r > 0);
    set_nonblock(s, true);
    recv_next(s, 10 - (size_t)(r > 0 ? r : 0));
    say_result("nonblock", splice(s, NULL, p[1], NULL, 100, 0));
}

/* A pipe that takes no more: the octets stay in the connection. */
static void splice_pipe_full(int s)
{
    int p[2];
    static uint8_t buf[70000];
    must("pipe", pipe(p));
    must("F_SETFL", fcntl(p[1], F_SETFL, O_NONBLOCK));
    while (write(p[1], buf, 4096) > 0)
        ;
    far_do(FAR_SEND, 5000);
    await_octets(s, 5000);
    say_result("full", splice(s, NULL, p[1], NULL, 5000, SPLICE_F_NONBLOCK));
    must("F_SETFL", fcntl(p[1], F_SETFL, 0));
    say_result("full_flag", splice(s, NULL, p[1], NULL, 5000, SPLICE_F_NONBLOCK));
    say(" flags=%d", fcntl(p[1], F_GETFL) & O_NONBLOCK);
    say(" rest=%zu", recv_next(s, 5000));
}

static void splice_pipe_closed(int s)
{
    int p[2];
    count_pipes();
    must("pipe", pipe(p));
    close(p[0]);
    far_do(FAR_SEND, 10);
    await_octets(s, 10);
    say_result("splice", splice(s, NULL, p[1], NULL, 10, 0));
    say(" pipes=%d", (int)pipes);
    say(" rest=%zu", recv_next(s, 10));
}

static void splice_shut(int s)
{
    int p[2];
    count_pipes();
    pipe_of(p, 10);
    must("shutdown", shutdown(s, SHUT_WR));
    say_result("splice", splice(p[0], NULL, s, NULL, 10, 0));
    say(" pipes=%d", (int)pipes);
}

static void splice_full(int s)
{
    int p[2];
    set_nonblock(s, true);
    fill_up(s);
    pipe_of(p, 10);
    say_result("full", splice(p[0], NULL, s, NULL, 10, 0));
    say_result("full_flag", splice(p[0], NULL, s, NULL, 10, SPLICE_F_NONBLOCK));
    uint8_t buf[10], want[10];
    fill(want, 10, sem_tx);
    say_result("left", read(p[0], buf, 10));
    say(" same=%d", memcmp(buf, want, 10) == 0);
}

/* From a connection to a file and back, as a copying server does it. */
static void splice_through(int s)
{
    const int total = 200000;
    int p[2], fd = file_of(1);
    must("pipe", pipe(p));
    must("ftruncate", ftruncate(fd, 0));
    far_begin(FAR_SEND, total, 0);
    off64_t at = 0;
    while (at < total) {
        ssize_t n = must("splice", splice(s, NULL, p[1], NULL, 65536, SPLICE_F_MOVE | SPLICE_F_MORE));
        if (n == 0)
            break;
        while (n > 0)
            n -= must("splice", splice(p[0], NULL, fd, &at, (size_t)n, SPLICE_F_MOVE));
    }
    far_end();
    say(" in=%lld", (long long)at);
    far_begin(FAR_RECV, total, 0);
    at = 0;
    while (at < total) {
        ssize_t n = must("splice", splice(fd, &at, p[1], NULL, 65536, 0));
        if (n == 0)
            break;
        while (n > 0)
            n -= must("splice", splice(p[0], NULL, s, NULL, (size_t)n, SPLICE_F_MORE));
    }
    say(" out=%lld", (long long)at);
    far_say("far", far_end());
}

static void tee_and_vmsplice(int s)
{
    int p[2], q[2];
    static uint8_t buf[3000];
    must("pipe", pipe(p));
    must("pipe", pipe(q));
    fill(buf, sizeof(buf), 0);
    struct iovec iov[2] = { { buf, 1000 }, { buf + 1000, 2000 } };
    say_result("vmsplice", vmsplice(p[1], iov, 2, 0));
    say_result("tee", tee(p[0], q[1], 3000, 0));
    say_result("tee_socket", tee(p[0], s, 10, 0));
    say_result("vmsplice_socket", vmsplice(s, iov, 1, 0));
    ssize_t n = 0;
    while (n < 3000)
        n += must("splice", splice(p[0], NULL, s, NULL, 3000, 0));
    far_say("far", far_do(FAR_RECV, 3000));
    uint8_t copy[3000];
    say_result("copy", read(q[0], copy, 3000));
    say(" same=%d", memcmp(copy, buf, 3000) == 0);
}

static void copy_range(int s)
{
    int fd = file_of(100);
    off64_t off = 0;
    say_result("to", copy_file_range(fd, &off, s, NULL, 10, 0));
    say_result("from", copy_file_range(s, NULL, fd, &off, 10, 0));
    say_result("itself", copy_file_range(s, NULL, s, NULL, 10, 0));
    send_next(s, 1);
    far_say("far", far_do(FAR_RECV, 1));
}

/* To a pipe it takes from what cannot be sought in, too. */
static void sendfile_to_pipe(int s)
{
    int p[2], fd = file_of(10);
    uint8_t buf[20];
    off_t off = 0;
    must("pipe", pipe(p));
    say_result("file", sendfile(p[1], fd, NULL, 10));
    must("read", read(p[0], buf, sizeof(buf)));
    far_do(FAR_SEND, 20);
    await_octets(s, 20);
    say_result("offset", sendfile(p[1], s, &off, 10));
    say_result("wrong_end", sendfile(p[0], s, NULL, 10));
    ssize_t r = sendfile(p[1], s, NULL, 20);
    say_result("connection", r);
    if (r > 0)
        check(buf, (size_t)must("read", read(p[0], buf, sizeof(buf))));
    set_nonblock(s, true);
    say_result("none", sendfile(p[1], s, NULL, 20));
}

/* The offset is read before, and written when all is done. */
static void sendfile_offset_fault(int s)
{
    int fd = file_of(100);
    off_t *off = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *off = 10;
    must("mprotect", mprotect(off, 4096, PROT_READ));
    say_result("read_only", sendfile(s, fd, off, 50));
    say_result("read_only_bad_fd", sendfile(s, 9999, off, 50));
    must("mprotect", mprotect(off, 4096, PROT_NONE));
    say_result("none", sendfile(s, fd, off, 50));
    say_result("none_bad_fd", sendfile(s, 9999, off, 50));
    must("mprotect", mprotect(off, 4096, PROT_READ | PROT_WRITE));
    say(" off=%lld", (long long)*off);
    *off = -1;
    say_result("negative", sendfile(s, fd, off, 50));
    *off = INT64_MAX - 10;
    say_result("beyond_all", sendfile(s, fd, off, 50));
    say_result("at_the_limit", sendfile(s, fd, off, 5));
    must("shutdown", shutdown(s, SHUT_WR));
    far_say("far", far_do(FAR_DRAIN, 0xfb));
}

/* Before it looks at the connection it wants room in the pipe, and a reader. */
static void splice_pipe_first(int s)
{
    int p[2];
    static uint8_t buf[70000];
    count_pipes();
    must("pipe", pipe(p));
    must("F_SETFL", fcntl(p[1], F_SETFL, O_NONBLOCK));
    while (write(p[1], buf, 4096) > 0)
        ;
    say_result("full", splice(s, NULL, p[1], NULL, 10, 0));
    must("F_SETFL", fcntl(p[1], F_SETFL, 0));
    say_result("full_flag", splice(s, NULL, p[1], NULL, 10, SPLICE_F_NONBLOCK));
    close(p[0]);
    say_result("closed", splice(s, NULL, p[1], NULL, 10, 0));
    say(" pipes=%d", (int)pipes);
}

/* Of much it takes what there is room for, and does not wait until the pipe is read. */
static void splice_some_room(int s)
{
    int p[2];
    static uint8_t buf[70000];
    must("pipe", pipe(p));
    must("F_SETFL", fcntl(p[1], F_SETFL, O_NONBLOCK));
    while (write(p[1], buf, 4096) > 0)
        ;
    must("F_SETFL", fcntl(p[1], F_SETFL, 0));
    int before = 0, after = 0;
    must("read", read(p[0], buf, 8192));
    must("FIONREAD", ioctl(p[0], FIONREAD, &before));
    far_do(FAR_SEND, 100000);
    await_octets(s, 60000);
    ssize_t r = splice(s, NULL, p[1], NULL, 60000, 0);
    must("FIONREAD", ioctl(p[0], FIONREAD, &after));
    say(" some=%d counted=%d", r > 0, after - before == r);
    if (r <= 0)
        return;
    for (ssize_t n; before > 0; before -= (int)n)
        n = must("read", read(p[0], buf, (size_t)before < sizeof(buf) ? (size_t)before : sizeof(buf)));
    for (ssize_t n; r > 0; r -= n) {
        n = must("read", read(p[0], buf, sizeof(buf)));
        check(buf, (size_t)n);
    }
    recv_next(s, 100000 - (size_t)sem_rx);
    say(" all=%lld", (long long)sem_rx);
}

/* A pipe that keeps what was written in one call together loses nothing of it. */
static void splice_packets(int s)
{
    int p[2];
    uint8_t buf[300];
    must("pipe", pipe2(p, O_DIRECT));
    fill(buf, 300, sem_tx);
    must("write", write(p[1], buf, 100));
    must("write", write(p[1], buf + 100, 200));
    far_begin(FAR_RECV, 300, 0);
    ssize_t done = 0;
    while (done < 300)
        done += must("splice", splice(p[0], NULL, s, NULL, 60, 0));
    far_say("far", far_end());
}

/* Of a pipe's octets it takes all that are there, be it less than was asked for. */
static void splice_all_there(int s)
{
    int p[2];
    uint8_t buf[10];
    pipe_of(p, 10);
    must("F_SETFL", fcntl(p[0], F_SETFL, O_NONBLOCK));
    say_result("some", splice(p[0], NULL, s, NULL, 100, 0));
    say_result("empty", splice(p[0], NULL, s, NULL, 100, 0));
    must("F_SETFL", fcntl(p[0], F_SETFL, 0));
    say_result("empty_flag", splice(p[0], NULL, s, NULL, 100, SPLICE_F_NONBLOCK));
    fill(buf, 10, sem_tx + 10);
    must("write", write(p[1], buf, 10));
    say_result("again", splice(p[0], NULL, s, NULL, 100, 0));
    close(p[1]);
    say_result("end", splice(p[0], NULL, s, NULL, 100, 0));
    far_say("far", far_do(FAR_RECV, 20));
}

const struct scenario sem_move[] = {
    { "sendfile_edges", sendfile_edges },
    { "sendfile_bad", sendfile_bad },
    { "sendfile_number", sendfile_number },
    { "sendfile_proc", sendfile_proc },
    { "sendfile_full", sendfile_full },
    { "sendfile_parts", sendfile_parts },
    { "sendfile_blocking", sendfile_blocking },
    { "sendfile_shut", sendfile_shut },
    { "sendfile_to_pipe", sendfile_to_pipe },
    { "sendfile_offset_fault", sendfile_offset_fault },
    { "splice_bad", splice_bad },
    { "splice_blocks", splice_blocks },
    { "splice_pipe_full", splice_pipe_full },
    { "splice_pipe_closed", splice_pipe_closed },
    { "splice_shut", splice_shut },
    { "splice_full", splice_full },
    { "splice_pipe_first", splice_pipe_first },
    { "splice_some_room", splice_some_room },
    { "splice_packets", splice_packets },
    { "splice_all_there", splice_all_there },
    { "splice_through", splice_through },
    { "tee_and_vmsplice", tee_and_vmsplice },
    { "copy_range", copy_range },
    { NULL, NULL },
};
