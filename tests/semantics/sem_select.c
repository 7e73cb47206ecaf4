/*
 * select and pselect.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/semantics/sem_wait.h"

#define WORDS 32 /* of 64 bits: descriptors up to 2047 */
#define NUMBERS ((int)(WORDS * 8 * sizeof(unsigned long)))
#define WORD_BITS ((int)(8 * sizeof(unsigned long)))

/* A set that may be larger than fd_set. */
struct bits {
    unsigned long word[WORDS];
};

static void set_bit(struct bits *b, int fd)
{
    b->word[fd / WORD_BITS] |= 1ul << (fd % WORD_BITS);
}

static int has_bit(const struct bits *b, int fd)
{
    return b->word[fd / WORD_BITS] >> (fd % WORD_BITS) & 1;
}

static fd_set *as_set(struct bits *b)
{
    return (fd_set *)(void *)b;
}

/*
 * Says " what=2 101": the result, and which of s's bits are set afterwards. All three sets hold s
 * before.
 */
static void sel(const char *what, int s, int timeout_ms)
{
    struct bits r = { 0 }, w = { 0 }, e = { 0 };
    struct timeval tv = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
    set_bit(&r, s);
    set_bit(&w, s);
    set_bit(&e, s);
    say_result(what, select(s + 1, as_set(&r), as_set(&w), as_set(&e), timeout_ms < 0 ? NULL : &tv));
    say(" %d%d%d", has_bit(&r, s), has_bit(&w, s), has_bit(&e, s));
}

/* The same for reading alone. */
static int sel_in(const char *what, int s, int timeout_ms)
{
    struct bits r = { 0 };
    struct timeval tv = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
    set_bit(&r, s);
    int n = select(s + 1, as_set(&r), NULL, NULL, timeout_ms < 0 ? NULL : &tv);
    say_result(what, n);
    say(" %d", has_bit(&r, s));
    return n;
}

static void select_nothing(int s)
{
    struct timeval tv = { .tv_usec = 30000 };
    uint64_t t = now_ms();
    say_result("sleep", select(0, NULL, NULL, NULL, &tv));
    say_time("after", (unsigned)(now_ms() - t), 28, LATE_MS);
    say(" left=%ld", (long)(tv.tv_sec + tv.tv_usec));
    tv.tv_usec = 10000;
    say_result("null_sets", select(s + 1, NULL, NULL, NULL, &tv));
    struct bits none = { 0 };
    tv.tv_usec = 10000;
    say_result("empty", select(s + 1, as_set(&none), as_set(&none), NULL, &tv));
    say_result("negative", select(-1, NULL, NULL, NULL, &tv));
    struct timespec ts = { .tv_nsec = 10000000 };
    say_result("pselect", pselect(0, NULL, NULL, NULL, &ts, NULL));
    one_octet(s);
}

static void select_bad(int s)
{
    struct bits r = { 0 }, w = { 0 };
    int gone = (int)must("dup", dup(s));
    close(gone);
    set_bit(&r, s);
    set_bit(&w, s);
    set_bit(&r, gone);
    struct timeval tv = { .tv_sec = 10 };
    say_result("closed", select(gone + 1, as_set(&r), as_set(&w), NULL, &tv));
    say(" sets=%d%d%d", has_bit(&r, s), has_bit(&w, s), has_bit(&r, gone));
    say_result("below", select(gone, as_set(&r), NULL, NULL, &(struct timeval){ .tv_usec = 10000 }));
    tv = (struct timeval){ .tv_sec = -1 };
    say_result("time", select(s + 1, as_set(&r), NULL, NULL, &tv));
    tv = (struct timeval){ .tv_usec = -1 };
    say_result("time", select(s + 1, as_set(&r), NULL, NULL, &tv));
    struct timespec ts = { .tv_nsec = 1000000000 };
    say_result("ptime", pselect(s + 1, as_set(&r), NULL, NULL, &ts, NULL));
    ts = (struct timespec){ .tv_sec = -1 };
    say_result("ptime", pselect(s + 1, as_set(&r), NULL, NULL, &ts, NULL));
    one_octet(s);
}

static void select_stages(int s)
{
    sel("fresh", s, -1);
    far_do(FAR_SEND, 10);
    sel_in("data", s, 10000);
    sel("data", s, -1);
    recv_next(s, 4);
    sel("left", s, 0);
    recv_next(s, 6);
    sel("drained", s, 0);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    sel_in("fin", s, 10000);
    sel("end", s, -1);
    must("shutdown", shutdown(s, SHUT_WR));
    sel("both", s, -1);
}

static void select_reset(int s)
{
    far_do(FAR_RESET, 0);
    sel_in("reset", s, 10000);
    sel("all", s, -1);
    say_result("error", so_error(s));
    sel("told", s, -1);
}

static void select_full(int s)
{
    size_t total = fill_up(s);
    sel("full", s, 0);
    far_do(FAR_SEND, 1);
    sel_in("in", s, 10000);
    sel("in", s, -1);
    recv_next(s, 1);
    far_begin(FAR_RECV, (int64_t)total, 10);
    sel("drained", s, -1);
    say(" all=%d", far_end().r == (int64_t)total);
}

/* Numbers of every size: bits above the first word, and above what an fd_set holds. */
static void select_high(int s)
{
    struct rlimit lim;
    must("getrlimit", getrlimit(RLIMIT_NOFILE, &lim));
    lim.rlim_cur = NUMBERS < lim.rlim_max ? NUMBERS : lim.rlim_max;
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &lim));
    static const int number[] = { 64, 300, 1023, 1024, 1500, NUMBERS - 1 };
    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++) {
        if ((rlim_t)number[i] >= lim.rlim_cur) {
            say(" limit=%d", (int)lim.rlim_cur);
            break;
        }
        int fd = (int)must("dup2", dup2(s, number[i]));
        sel("fresh", fd, -1);
        far_do(FAR_SEND, 10);
        sel_in("data", fd, 10000);
        recv_next(fd, 5);
        sel("left", fd, 10000);
        recv_next(fd, 5);
        sel_in("drained", fd, 10);
        close(fd);
    }
}

/* Bits from nfds to the end of its word are the kernel's, those behind are left alone. */
static void select_beyond(int s)
{
    struct bits r = { 0 };
    int d = (int)must("dup2", dup2(s, 70));
    set_bit(&r, s);
    set_bit(&r, s + 3);
    set_bit(&r, d);
    struct timeval tv = { .tv_usec = 10000 };
    say_result("quiet", select(s + 1, as_set(&r), NULL, NULL, &tv));
    say(" %d%d%d", has_bit(&r, s), has_bit(&r, s + 3), has_bit(&r, d));
    far_do(FAR_SEND, 5);
    poll_one(s, POLLIN, 10000);
    set_bit(&r, s);
    set_bit(&r, s + 3);
    say_result("ready", select(s + 1, as_set(&r), NULL, NULL, NULL));
    say(" %d%d%d", has_bit(&r, s), has_bit(&r, s + 3), has_bit(&r, d));
    memset(&r, 0, sizeof(r));
    set_bit(&r, d);
    set_bit(&r, 100);
    tv.tv_usec = 10000;
    say_result("not_asked", select(s + 1, as_set(&r), NULL, NULL, &tv));
    say(" %d%d", has_bit(&r, d), has_bit(&r, 100));
    say_result("asked", select(d + 1, as_set(&r), NULL, NULL, NULL));
    say(" %d%d", has_bit(&r, d), has_bit(&r, 100));
}

/* More descriptors than fit one machine word. */
static void select_many(int s)
{
    struct bits r = { 0 }, w = { 0 };
    for (int fd = 100; fd < 200; fd++) {
        must("dup2", dup2(s, fd));
        set_bit(&r, fd);
        if (fd % 2)
            set_bit(&w, fd);
    }
    say_result("out", select(200, as_set(&r), as_set(&w), NULL, NULL));
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    recv_next(s, 3);
    for (int fd = 100; fd < 200; fd++)
        set_bit(&r, fd);
    say_result("both", select(200, as_set(&r), as_set(&w), NULL, NULL));
    int n = 0;
    for (int fd = 0; fd < 200; fd++)
        n += has_bit(&r, fd) + 1000 * has_bit(&w, fd);
    say(" bits=%d", n);
}

/* Linux writes back how much of the time is left. */
static void select_time_left(int s)
{
    struct bits r = { 0 };
    struct timeval tv = { .tv_sec = 15 };
    set_bit(&r, s);
    far_begin(FAR_SEND, 10, 30);
    say_result("waits", select(s + 1, as_set(&r), NULL, NULL, &tv));
    far_end();
    say_time("left", (unsigned)(tv.tv_sec * 1000 + tv.tv_usec / 1000), 500, 14980);
    recv_next(s, 5);
    tv = (struct timeval){ .tv_sec = 15 };
    say_result("at_once", select(s + 1, as_set(&r), NULL, NULL, &tv));
    say_time("left", (unsigned)(tv.tv_sec * 1000 + tv.tv_usec / 1000), 500, 15000);
    recv_next(s, 5);
    tv = (struct timeval){ .tv_usec = 20000 };
    say_result("none", select(s + 1, as_set(&r), NULL, NULL, &tv));
    say(" left=%ld", (long)(tv.tv_sec + tv.tv_usec));
    set_bit(&r, s);
    signal_after(40, true);
    tv = (struct timeval){ .tv_sec = 15 };
    say_result("signal", select(s + 1, as_set(&r), NULL, NULL, &tv));
    say(" bit=%d signals=%d", has_bit(&r, s), sem_signals);
    say_time("left", (unsigned)(tv.tv_sec * 1000 + tv.tv_usec / 1000), 500, 14990);
}

static void select_odd_times(int s)
{
    struct bits r = { 0 };
    set_bit(&r, s);
    struct timeval tv = { .tv_sec = 9, .tv_usec = 1000001 };
    far_begin(FAR_SEND, 1, 20);
    say_result("more_than_a_second", select(s + 1, as_set(&r), NULL, NULL, &tv));
    far_end();
    say_time("left", (unsigned)(tv.tv_sec * 1000 + tv.tv_usec / 1000), 0, 9990);
    recv_next(s, 1);
    static const time_t huge[] = { 10000000000, INT64_MAX / 1000000000 + 1, INT64_MAX };
    for (size_t i = 0; i < 3; i++) {
        tv = (struct timeval){ .tv_sec = huge[i] };
        far_begin(FAR_SEND, 1, 20);
        say_result("huge", select(s + 1, as_set(&r), NULL, NULL, &tv));
        far_end();
        recv_next(s, 1);
        struct timespec ts = { .tv_sec = huge[i] };
        far_begin(FAR_SEND, 1, 20);
        say_result("huge", pselect(s + 1, as_set(&r), NULL, NULL, &ts, NULL));
        far_end();
        recv_next(s, 1);
    }
}

static void pselect_pending(int s)
{
    sigset_t none;
    sigemptyset(&none);
    struct timespec ts = { .tv_sec = 10 };
    struct bits r = { 0 };
    set_bit(&r, s);
    signal_pending_now();
    say_result("pending", pselect(s + 1, as_set(&r), NULL, NULL, &ts, &none));
    say(" signals=%d bit=%d", sem_signals, has_bit(&r, s));
    must("raise", raise(SIGUSR1));
    far_do(FAR_SEND, 10);
    poll_one(s, POLLIN, 10000);
    say_result("ready", pselect(s + 1, as_set(&r), NULL, NULL, &ts, &none));
    say(" signals=%d", sem_signals);
    recv_next(s, 5);
    say_result("left", pselect(s + 1, as_set(&r), NULL, NULL, &ts, &none));
    say(" signals=%d time=%ld", sem_signals, (long)ts.tv_sec);
    recv_next(s, 5);
    ts.tv_sec = 0;
    say_result("now", pselect(s + 1, as_set(&r), NULL, NULL, &ts, &none));
    say(" signals=%d", sem_signals);
}

static void pselect_blocks(int s)
{
    sigset_t all;
    sigfillset(&all);
    struct timespec ts = { .tv_nsec = 50000000 };
    struct bits r = { 0 };
    set_bit(&r, s);
    signal_after(15, false);
    uint64_t t = now_ms();
    say_result("blocked", pselect(s + 1, as_set(&r), NULL, NULL, &ts, &all));
    say_time("after", (unsigned)(now_ms() - t), 48, LATE_MS);
    await_signals(1);
    say(" signals=%d bit=%d", sem_signals, has_bit(&r, s));
}

static void select_lowat(int s)
{
    set_lowat(s, 20);
    far_do(FAR_SEND, 10);
    sel_in("half", s, 20);
    far_do(FAR_SEND, 10);
    sel_in("full", s, 10000);
    recv_next(s, 1);
    sel_in("under", s, 20);
    unsigned cpu = cpu_ms();
    sel_in("waits", s, 100);
    say_idle(cpu, 100);
}

static void select_listener(int s)
{
    (void)s;
    sel("none", sem_listener, 10);
    far_begin(FAR_CONNECT, sem_port, 0);
    sel("comes", sem_listener, 10000);
    int a = (int)must("accept", accept(sem_listener, NULL, NULL));
    far_end();
    sel("taken", sem_listener, 10);
    sel("accepted", a, 10000);
}

static void select_connecting(int s)
{
    (void)s;
    int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    far_begin(FAR_ACCEPT, 0, 20);
    say_result("connect", connect_begin_to(fd, sem_far_port));
    sel("up", fd, 10000);
    say_result("error", so_error(fd));
    must("accept", far_end().r);
}

static void select_refused(int s)
{
    (void)s;
    int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    say_result("connect", connect_begin_to(fd, dead_port()));
    sel("down", fd, 10000);
    say_result("error", so_error(fd));
    sel("told", fd, 0);
}

static void *select_thread(void *arg)
{
    struct bits r = { 0 };
    int fd = *(int *)arg;
    set_bit(&r, fd);
    struct timeval tv = { .tv_sec = 10 };
    return (void *)(intptr_t)(10 * select(fd + 1, as_set(&r), NULL, NULL, &tv) + has_bit(&r, fd));
}

static void select_two_threads(int s)
{
    struct waiter a, b;
    void *got[2];
    in_thread(&a, select_thread, &s);
    in_thread(&b, select_thread, &s);
    far_do(FAR_SEND, 5);
    pthread_join(a.thread, &got[0]);
    pthread_join(b.thread, &got[1]);
    say(" a=%d b=%d", (int)(intptr_t)got[0], (int)(intptr_t)got[1]);
    recv_next(s, 2);
    in_thread(&a, select_thread, &s);
    pthread_join(a.thread, &got[0]);
    say(" left=%d", (int)(intptr_t)got[0]);
}

static void select_six(int s)
{
    int fd[6] = { s }, top = s;
    struct bits all = { 0 };
    set_bit(&all, s);
    for (int i = 1; i < 6; i++) {
        fd[i] = more();
        top = fd[i] > top ? fd[i] : top;
        set_bit(&all, fd[i]);
    }
    for (int i = 0; i < 6; i += 2) {
        struct bits r = all;
        far_use(i);
        far_begin(FAR_SEND, 10, 10);
        say_result("one", select(top + 1, as_set(&r), NULL, NULL, NULL));
        far_end();
        for (int k = 0; k < 6; k++)
            say("%s%d", k ? "" : " ", has_bit(&r, fd[k]));
        recv(fd[i], (char[4]){ 0 }, 4, 0);
    }
    struct bits r = all;
    say_result("left", select(top + 1, as_set(&r), NULL, NULL, NULL));
    for (int k = 0; k < 6; k++)
        say("%s%d", k ? "" : " ", has_bit(&r, fd[k]));
}

const struct scenario sem_select[] = {
    { "select_nothing", select_nothing },
    { "select_bad", select_bad },
    { "select_stages", select_stages },
    { "select_reset", select_reset },
    { "select_full", select_full },
    { "select_high", select_high },
    { "select_beyond", select_beyond },
    { "select_many", select_many },
    { "select_time_left", select_time_left },
    { "select_odd_times", select_odd_times },
    { "pselect_pending", pselect_pending },
    { "pselect_blocks", pselect_blocks },
    { "select_lowat", select_lowat },
    { "select_listener", select_listener },
    { "select_connecting", select_connecting },
    { "select_refused", select_refused },
    { "select_two_threads", select_two_threads },
    { "select_six", select_six },
    { NULL, NULL },
};
