/*
 * What a program sees of its TCP connection, scenario by scenario; run by semantics.test with and
 * without sockwarp.
 *
 *   sem list                            prints the scenarios' names
 *   sem connect|accept SCENARIO [FD]    this end connects or accepts; prints what it saw, one line
 *   sem far FD                          the other end of a scenario that was given the other FD of a
 *                                       pair: so each end can be a program of its own kind
 *
 * Without FD the other end is a child made before there is any socket.
 */
#include "tests/semantics/sem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 40    /* a scenario that hangs is ended by SIGALRM */
#define FULL 1000     /* tries, 3 ms each */
#define WAITS_MS 3000 /* a thread that does not sleep by then is not about to */
#define FAR_MADE 16   /* connections of the far end that FAR_USE knows */

uint64_t sem_tx, sem_rx;
bool sem_accepting;
int sem_listener;
uint16_t sem_port, sem_far_port;
volatile int sem_signals;

static int far_fd; /* commands and results */
static int out_fd; /* standard output: scenarios put other things in its place */

/* ---- the outcome ---- */

/* Written at once: what hangs or is killed shows how far it came, and a child's words count, too. */
void say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int err = errno, n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    if (write(out_fd, text, len) != (ssize_t)len)
        _exit(3);
    errno = err;
}

const char *error_name(int err)
{
    const char *name = strerrorname_np(err);
    return name ? name : "?";
}

void say_result(const char *what, ssize_t r)
{
    if (r < 0)
        say(" %s=%s", what, error_name(errno));
    else
        say(" %s=%zd", what, r);
}

void say_time(const char *what, unsigned ms, unsigned lo, unsigned hi)
{
    if (ms >= lo && ms <= hi)
        say(" %s=in_time", what);
    else
        say(" %s=%u_ms", what, ms);
}

ssize_t must(const char *what, ssize_t r)
{
    if (r < 0) {
        say(" cannot %s: %s\n", what, error_name(errno));
        exit(1);
    }
    return r;
}

/* ---- octets ---- */

static uint8_t octet(uint64_t offset)
{
    return (uint8_t)((offset ^ (offset >> 7) ^ (offset >> 15)) * 29 + 5);
}

void fill(uint8_t *buf, size_t len, uint64_t offset)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = octet(offset + i);
}

static bool right(const uint8_t *buf, size_t len)
{
    bool good = true;
    for (size_t i = 0; i < len; i++)
        good = good && buf[i] == octet(sem_rx + i);
    sem_rx += len;
    return good;
}

void check(const uint8_t *buf, size_t len)
{
    if (!right(buf, len))
        say(" WRONG");
}

static ssize_t send_some(int s, size_t len)
{
    uint8_t buf[65536];
    size_t done = 0;
    while (done < len) {
        size_t n = len - done < sizeof(buf) ? len - done : sizeof(buf);
        fill(buf, n, sem_tx);
        ssize_t r = send(s, buf, n, MSG_NOSIGNAL);
        if (r < 0)
            return -1;
        sem_tx += (size_t)r;
        done += (size_t)r;
    }
    return (ssize_t)done;
}

/* FAR_PUT: what is not sent at once, for want of room in the peer's window, is waited for. */
static ssize_t put_all(int s, size_t len)
{
    struct tcp_info info = { .tcpi_notsent_bytes = 1 };
    socklen_t size = sizeof(info);
    int on = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ssize_t r = send_some(s, len);
    while (r >= 0 && info.tcpi_notsent_bytes > 0) {
        r = getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &size);
        if (info.tcpi_notsent_bytes > 0)
            sleep_ms(1);
    }
    return r < 0 ? r : (ssize_t)(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
}

void send_next(int s, size_t len)
{
    must("send", send_some(s, len));
}

/* .r: octets before the end. */
static struct far_result recv_some(int s, size_t len)
{
    uint8_t buf[65536];
    struct far_result res = { 0 };
    while ((size_t)res.r < len) {
        size_t left = len - (size_t)res.r;
        ssize_t r = recv(s, buf, left < sizeof(buf) ? left : sizeof(buf), 0);
        if (r < 0)
            res.err = errno;
        if (r <= 0)
            break;
        if (!right(buf, (size_t)r))
            res.bad = true;
        res.r += r;
    }
    return res;
}

size_t recv_next(int s, size_t len)
{
    struct far_result res = recv_some(s, len);
    if (res.err)
        say(" recv=%s", error_name(res.err));
    if (res.bad)
        say(" WRONG");
    return (size_t)res.r;
}

/* ---- the far end ---- */

struct far_command {
    int64_t a;
    int32_t op;
    uint32_t delay_ms;
    int32_t pid, tid; /* of the thread that gives it */
};

static uint32_t address_in(const char *name)
{
    const char *text = getenv(name);
    struct in_addr in = { .s_addr = htonl(INADDR_LOOPBACK) };
    if (text && inet_pton(AF_INET, text, &in) != 1) {
        fprintf(stderr, "sem: %s: '%s' is no address\n", name, text);
        exit(2);
    }
    return in.s_addr;
}

uint32_t sem_address(void)
{
    return address_in("SEM_ADDRESS");
}

static bool is_far;

uint32_t sem_address_of(uint16_t port)
{
    return getenv("SEM_PEER") != NULL && (is_far || port == sem_far_port) ? address_in("SEM_PEER") : sem_address();
}

static int new_listener(uint16_t *port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = sem_address() };
    socklen_t len = sizeof(in);
    int fd = (int)must("make a socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(fd, (struct sockaddr *)&in, len));
    must("listen", listen(fd, 8));
    must("getsockname", getsockname(fd, (struct sockaddr *)&in, &len));
    *port = ntohs(in.sin_port);
    return fd;
}

int connect_to(uint16_t port)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(port),
        .sin_port = htons(port),
    };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&in, sizeof(in)) < 0 ? -1 : fd;
}

static struct far_result far_echo(int s, size_t len)
{
    uint8_t buf[65536];
    struct far_result res = { 0 };
    while ((size_t)res.r < len) {
        ssize_t r = recv(s, buf, sizeof(buf), 0);
        if (r < 0)
            res.err = errno;
        if (r <= 0)
            break;
        for (ssize_t done = 0; done < r;) {
            ssize_t w = send(s, buf + done, (size_t)(r - done), MSG_NOSIGNAL);
            if (w < 0) {
                res.err = errno;
                return res;
            }
            done += w;
        }
        res.r += r;
    }
    return res;
}

/* To the end; returns how many octets after the first other one than `all` came. */
static struct far_result far_drain(int s, uint8_t all)
{
    static uint8_t buf[65536];
    struct far_result res = { 0 };
    for (;;) {
        ssize_t r = recv(s, buf, sizeof(buf), 0);
        if (r < 0)
            res.err = errno;
        if (r <= 0)
            return res;
        for (ssize_t i = 0; i < r; i++)
            res.r += res.r > 0 || buf[i] != all;
    }
}

/* Does something that has nothing to do with sockets, so that no library hears of it. */
static void busy_until_message(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    while (syscall(SYS_ppoll, &p, 1, NULL, NULL, 0) < 0 && errno == EINTR)
        ;
}

static struct far_result far_act(int *s, int listener, int commands, const struct far_command *c)
{
    struct far_result res = { 0 };
    static int made[FAR_MADE];
    static int n;
    switch ((enum far_op)c->op) {
    case FAR_ACCEPT:
        res.r = *s = accept(listener, NULL, NULL);
        made[n++ % FAR_MADE] = *s;
        if (res.r >= 0 && c->a > 0)
            busy_until_message(commands);
        break;
    case FAR_CONNECT:
        res.r = *s = connect_to((uint16_t)c->a);
        made[n++ % FAR_MADE] = *s;
        break;
    case FAR_USE:
        *s = made[c->a % FAR_MADE];
        break;
    case FAR_FRESH:
        sem_rx = sem_tx = 0;
        break;
    case FAR_FILL:
        res.r = (int64_t)fill_up(*s);
        break;
    case FAR_SEND:
        res.r = send_some(*s, (size_t)c->a);
        break;
    case FAR_RECV:
        return recv_some(*s, (size_t)c->a);
    case FAR_SHUTDOWN:
        res.r = shutdown(*s, (int)c->a);
        break;
    case FAR_LINGER:
    case FAR_RESET: {
        struct linger lin = { .l_onoff = 1, .l_linger = c->op == FAR_LINGER ? (int)c->a : 0 };
        setsockopt(*s, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin));
        res.r = close(*s);
        break;
    }
    case FAR_CLOSE:
        res.r = close(*s);
        break;
    case FAR_ECHO:
        return far_echo(*s, (size_t)c->a);
    case FAR_DRAIN:
        return far_drain(*s, (uint8_t)c->a);
    case FAR_EXIT:
    case FAR_KILL:
    case FAR_CHILD:
    case FAR_SIGNAL:
        break;
    case FAR_POLL:
        res.r = poll_one(*s, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0);
        break;
    case FAR_PUT:
        res.r = put_all(*s, (size_t)c->a);
        break;
    case FAR_OOB:
        res.r = send(*s, &"++++++++!"[8 - c->a], (size_t)c -> a + 1, MSG_OOB | MSG_NOSIGNAL);
        break;
    }
    if (res.r < 0)
        res.err = errno;
    return res;
}

/*
 * Both ends wait as an event loop does: poll drives what is still being negotiated. (busy_server
 * does not.)
 */
static bool next_message(int fd, void *msg, size_t len)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t n;
    do {
        n = poll(&p, 1, -1) > 0 ? read(fd, msg, len) : -1;
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)len;
}

/* Returns in the child; in the parent when that is gone. */
static pid_t far_child(void)
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0)
        alarm(LIMIT_S + 2);
    else
        must("waitpid", waitpid(pid, NULL, 0));
    return getpid();
}

static _Noreturn void far_main(int commands)
{
    is_far = true;
    uint16_t port;
    int s = -1, listener = new_listener(&port);
    alarm(LIMIT_S + 2);
    if (write(commands, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    struct far_command c;
    while (next_message(commands, &c, sizeof(c))) {
        /*
         * A delay is for what comes when the thread that gave the command waits in its next call: its length does not
         * say so.
         */
        if (c.delay_ms > 0) {
            sleep_ms(c.delay_ms);
            await_asleep(c.pid, c.tid, WAITS_MS);
        }
        if (c.op == FAR_SIGNAL) {
            tgkill(c.pid, c.tid, SIGUSR1);
            continue;
        }
        struct far_result res = { 0 };
        if (c.op == FAR_EXIT)
            _exit(0);
        if (c.op == FAR_KILL)
            raise(SIGKILL);
        if (c.op == FAR_CHILD)
            res.r = far_child(); /* (The parent answers when it has ended.) */
        else
            res = far_act(&s, listener, commands, &c);
        if (write(commands, &res, sizeof(res)) != sizeof(res))
            break;
    }
    exit(0);
}

void far_begin(enum far_op op, int64_t a, unsigned delay_ms)
{
    struct far_command c = { .a = a, .op = (int32_t)op, .delay_ms = delay_ms, .pid = getpid(), .tid = gettid() };
    must("command the far end", write(far_fd, &c, sizeof(c)));
}

struct far_result far_end(void)
{
    struct far_result res;
    if (!next_message(far_fd, &res, sizeof(res))) {
        say(" the far end is gone\n");
        exit(1);
    }
    return res;
}

struct far_result far_do(enum far_op op, int64_t a)
{
    far_begin(op, a, 0);
    return far_end();
}

void far_say(const char *what, struct far_result r)
{
    say(" %s=", what);
    if (r.r >= 0)
        say("%lld", (long long)r.r);
    if (r.err)
        say("%s%s", r.r >= 0 ? "," : "", error_name(r.err));
    if (r.bad)
        say(",WRONG");
}

/* ---- this and that ---- */

uint64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void sleep_ms(unsigned ms)
{
    struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        ;
}

void await_octets(int s, int count)
{
    for (int there = 0; there < count; sleep_ms(1))
        must("FIONREAD", ioctl(s, FIONREAD, &there));
}

int poll_one(int s, short events, int timeout_ms)
{
    struct pollfd p = { .fd = s, .events = events };
    must("poll", poll(&p, 1, timeout_ms));
    return p.revents;
}

const char *poll_names(int revents)
{
    static const struct {
        int bit;
        const char *name;
    } names[] = {
        { POLLIN, "IN" },   { POLLOUT, "OUT" },     { POLLPRI, "PRI" },   { POLLERR, "ERR" },
        { POLLHUP, "HUP" }, { POLLRDHUP, "RDHUP" }, { POLLNVAL, "NVAL" },
    };
    static char buf[4][64];
    static unsigned next;
    char *out = buf[next++ % 4];
    out[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (revents & names[i].bit) {
            strcat(out, *out ? "|" : "");
            strcat(out, names[i].name);
        }
    }
    return *out ? out : "none";
}

void set_nonblock(int s, bool on)
{
    int flags = (int)must("F_GETFL", fcntl(s, F_GETFL));
    must("F_SETFL", fcntl(s, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

static void on_signal(int number)
{
    (void)number;
    sem_signals++;
}

void handle_signal(bool restart)
{
    struct sigaction sa = { .sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0 };
    must("sigaction", sigaction(SIGUSR1, &sa, NULL));
}

void signal_after(unsigned ms, bool restart)
{
    handle_signal(restart);
    far_begin(FAR_SIGNAL, 0, ms);
}

void await_signals(int count)
{
    while (sem_signals < count)
        sleep_ms(1);
}

void signals_begin(void (*handler)(int), bool restart)
{
    struct sigaction sa = { .sa_handler = handler != NULL ? handler : on_signal, .sa_flags = restart ? SA_RESTART : 0 };
    must("sigaction", sigaction(SIGUSR1, &sa, NULL));
    struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
    ev._sigev_un._tid = gettid();
    timer_t timer;
    must("timer_create", timer_create(CLOCK_MONOTONIC, &ev, &timer));
    struct itimerspec it = { .it_value.tv_nsec = 10000000, .it_interval.tv_nsec = 10000000 };
    must("timer_settime", timer_settime(timer, 0, &it, NULL));
}

/*
 * Has the peer acknowledged all that the kernel sent, and wants no more? Then there is no more room by itself. (A
 * window smaller than a segment is filled when a timer says so.)
 */
static bool at_rest(int s)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    must("TCP_INFO", syscall(SYS_getsockopt, s, IPPROTO_TCP, TCP_INFO, &info, &len));
    return info.tcpi_unacked == 0 && info.tcpi_snd_wnd == 0;
}

size_t fill_up(int s)
{
    static uint8_t buf[65536];
    size_t total = 0;
    int full = 0;
    /*
     * The kernel finds more room for a while: full is what stays so, for a single octet, too. (What was dropped is sent
     * again.)
     */
    while (full < FULL) {
        size_t len = full ? 1 : sizeof(buf);
        fill(buf, len, sem_tx);
        ssize_t r = send(s, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r < 0 && errno == EAGAIN) {
            full += at_rest(s) ? FULL / 25 : 1;
            sleep_ms(3);
            continue;
        }
        must("send", r);
        full = 0;
        sem_tx += (size_t)r;
        total += (size_t)r;
    }
    return total;
}

/* ---- one scenario ---- */

static const struct scenario *const all[] = {
    sem_recv,       sem_send,       sem_end,        sem_ready,        sem_signal,    sem_fd,        sem_close,
    sem_epoll,      sem_epoll_life, sem_epoll_sets, sem_flags,        sem_interrupt, sem_left,      sem_move,
    sem_name,       sem_option,     sem_poll,       sem_raw,          sem_select,    sem_share,     sem_stdio,
    sem_thread,     sem_vector,     sem_efault,     sem_backlog,      sem_waiting,   sem_urgent,    sem_drain,
    sem_epoll_fork, sem_epoll_late, sem_epoll_park, sem_epoll_beside, sem_ring,      sem_ring_data, sem_ring_lib,
    sem_peek,       sem_zerocopy,   sem_ends,       sem_stack,
};

/* NULL if there is none of that name. */
static const struct scenario *find(const char *name)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (const struct scenario *sc = all[i]; sc->name != NULL; sc++)
            if (strcmp(sc->name, name) == 0)
                return sc;
    return NULL;
}

/* A second one of the same name would never run: find() stops at the first. */
static int list_names(void)
{
    int status = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (const struct scenario *sc = all[i]; sc->name != NULL; sc++) {
            if (find(sc->name) != sc) {
                fprintf(stderr, "sem: two scenarios are called %s\n", sc->name);
                status = 2;
            }
            puts(sc->name);
        }
    }
    return status;
}

/* SEM_LATE: no end accepts before the other end's connect() is done. */
static int make_late_pair(void)
{
    if (sem_accepting) {
        must("connect", far_do(FAR_CONNECT, sem_port).r);
        return (int)must("accept", accept(sem_listener, NULL, NULL));
    }
    int s = (int)must("connect", connect_to(sem_far_port));
    must("accept", far_do(FAR_ACCEPT, 0).r);
    return s;
}

static int make_pair(void)
{
    if (sem_accepting) {
        far_begin(FAR_CONNECT, sem_port, 0);
        int s = (int)must("accept", accept(sem_listener, NULL, NULL));
        must("connect", far_end().r);
        return s;
    }
    far_begin(FAR_ACCEPT, 0, 0);
    int s = (int)must("connect", connect_to(sem_far_port));
    must("accept", far_end().r);
    return s;
}

/*
 * SEM_SETTLED: both calls have returned, so the Hello is there. The accepting end looks at the connection, which answers
 * it: what follows at the other end finds the answer.
 */
static void settle(int s)
{
    if (sem_accepting)
        poll_one(s, POLLIN, 0);
    else
        must("poll", far_do(FAR_POLL, 0).r);
}

int sem_pair(void)
{
    int s = getenv("SEM_LATE") != NULL ? make_late_pair() : make_pair();
    if (getenv("SEM_SETTLED") != NULL)
        settle(s);
    return s;
}

/* The far end as a child of our own. */
static int fork_far(void)
{
    int pair[2];
    must("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        close(pair[0]);
        far_main(pair[1]);
    }
    close(pair[1]);
    return pair[0];
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return list_names();
    out_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 200);
    if (argc == 3 && strcmp(argv[1], "far") == 0)
        far_main(atoi(argv[2]));
    const struct scenario *sc = argc == 3 || argc == 4 ? find(argv[2]) : NULL;
    if (sc == NULL) {
        fprintf(stderr, "usage: sem list | connect SCENARIO [FD] | accept SCENARIO [FD] | far FD\n");
        return 2;
    }
    sem_accepting = strcmp(argv[1], "accept") == 0;
    far_fd = argc == 4 ? atoi(argv[3]) : fork_far();
    alarm(LIMIT_S);
    if (!next_message(far_fd, &sem_far_port, sizeof(sem_far_port)))
        must("hear from the far end", -1);
    sem_listener = new_listener(&sem_port);
    int s = sem_pair();
    sc->run(s);
    say("\n");
    return 0;
}
