/*
 * Signals: what a handler interrupts, and what goes on after it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"
#include "tests/semantics/sem_wait.h"

static void recv_interrupted(int s)
{
    uint8_t buf[10];
    signal_after(40, false);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say(" signals=%d", sem_signals);
    signal_after(40, false);
    struct iovec iov = { buf, sizeof(buf) };
    say_result("readv", readv(s, &iov, 1));
    /* What has come already counts. */
    far_do(FAR_SEND, 4);
    await_octets(s, 4);
    signal_after(40, false);
    say_result("waitall", recv(s, buf, sizeof(buf), MSG_WAITALL));
    say(" signals=%d", sem_signals);
}

/* The first call on the connection, which may wait for its startup: a signal ends that as it ends the rest of the call. */
static void recv_interrupted_soon(int s)
{
    uint8_t buf[10];
    signal_after(1, false);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say(" signals=%d", sem_signals);
}

static void poll_interrupted_soon(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN };
    signal_after(1, true);
    say_result("poll", poll(&p, 1, 10000));
    say(" signals=%d", sem_signals);
}

static void epoll_interrupted_soon(int s)
{
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLIN };
    must("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    signal_after(1, true);
    say_result("epoll", epoll_wait(ep, &ev, 1, 10000));
    say(" signals=%d", sem_signals);
}

static void recv_restarted(int s)
{
    uint8_t buf[10];
    signal_after(30, true);
    far_begin(FAR_SEND, 5, 90);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    far_end();
    say(" signals=%d", sem_signals);
    signal_after(30, true);
    far_begin(FAR_SEND, 10, 90);
    say_result("waitall", recv(s, buf, sizeof(buf), MSG_WAITALL));
    far_end();
    say(" signals=%d", sem_signals);
}

/* With a time-out nothing is restarted: signal(7). */
static void recv_timed(int s)
{
    struct timeval tv = { .tv_sec = 10 };
    uint8_t buf[10];
    must("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
    signal_after(40, true);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    say(" signals=%d", sem_signals);
}

static void send_interrupted(int s)
{
    uint8_t c = 0;
    fill_up(s);
    signals_begin(NULL, false);
    ssize_t r;
    do
        r = send(s, &c, 1, 0); /* the kernel may find room for some more */
    while (r == 1);
    say_result("send", r);
    say(" signals=%d", sem_signals > 0);
}

static void send_part(int s)
{
    static uint8_t buf[32 << 20];
    fill(buf, sizeof(buf), 0);
    signal_after(20, false);
    ssize_t r = send(s, buf, sizeof(buf), 0);
    say(" part=%d signals=%d", r > 0 && r < (ssize_t)sizeof(buf), sem_signals);
    struct far_result res = far_do(FAR_RECV, r);
    say(" all=%d bad=%d", res.r == r, res.bad);
}

/* The signal comes while the call is sending: it does not wait once there is no more room. */
static void send_interrupted_soon(int s)
{
    static uint8_t buf[32 << 20];
    fill(buf, sizeof(buf), 0);
    handle_signal(false);
    far_begin(FAR_RECV, 1, 0);
    far_begin(FAR_SIGNAL, 0, 0);
    ssize_t r = send(s, buf, sizeof(buf), 0);
    far_say("begun", far_end());
    say(" part=%d signals=%d", r > 0 && r < (ssize_t)sizeof(buf), sem_signals);
}

static void send_restarted(int s)
{
    uint8_t c;
    size_t total = fill_up(s);
    fill(&c, 1, sem_tx);
    signal_after(30, true);
    far_begin(FAR_RECV, (int64_t)total + 1, 90);
    say_result("send", send(s, &c, 1, 0));
    struct far_result res = far_end();
    say(" signals=%d all=%d bad=%d", sem_signals, res.r == (int64_t)total + 1, res.bad);
}

static void accept_interrupted(int s)
{
    (void)s;
    signal_after(40, false);
    say_result("accept", accept(sem_listener, NULL, NULL));
    say(" signals=%d", sem_signals);
    signal_after(30, true);
    far_begin(FAR_CONNECT, sem_port, 90);
    int conn = accept(sem_listener, NULL, NULL);
    say(" restarted=%d signals=%d", conn >= 0, sem_signals);
    far_end();
}

static struct sockaddr_in address(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(port),
        .sin_port = htons(port),
    };
}

/* The wait also takes in what the far end answers to another connection. The signal comes while it does. */
static void accept_interrupted_beside(int s)
{
    int interrupted = 0;
    (void)s;
    for (int i = 0; i < 20; i++) {
        int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
        (void)connect_begin_to(fd, sem_far_port);
        handle_signal(false);
        far_begin(FAR_ACCEPT, 0, 1);
        far_begin(FAR_SIGNAL, 0, 0);
        interrupted += accept(sem_listener, NULL, NULL) < 0 && errno == EINTR;
        must("accept", far_end().r);
        close(fd);
    }
    say(" interrupted=%d signals=%d", interrupted, sem_signals);
}

/* A signal that the call's mask blocks comes, and then what the far end answers to another connection. */
static void waits_masked_beside(int s)
{
    sigset_t all;
    sigfillset(&all);
    const struct timespec ts = { .tv_nsec = 40000000 };
    struct pollfd p = { .fd = s, .events = POLLIN };
    int ep = (int)must("epoll_create1", epoll_create1(0)), over = 0;
    struct epoll_event ev = { .events = EPOLLIN };
    must("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    for (int i = 0; i < 10; i++) {
        int fd = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
        (void)connect_begin_to(fd, sem_far_port);
        signal_after(1, false);
        far_begin(FAR_ACCEPT, 0, 0);
        over += (i % 2 ? epoll_pwait(ep, &ev, 1, 40, &all) : ppoll(&p, 1, &ts, &all)) == 0;
        must("accept", far_end().r);
        await_signals(i + 1);
        close(fd);
    }
    say(" over=%d signals=%d", over, sem_signals);
}

/* A listener whose queue is full leaves connect waiting. */
static void connect_interrupted(int s)
{
    (void)s;
    struct sockaddr_in in = address(0);
    socklen_t len = sizeof(in);
    int l = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(l, (struct sockaddr *)&in, len));
    must("listen", listen(l, 0));
    must("getsockname", getsockname(l, (struct sockaddr *)&in, &len));
    for (int i = 0; i < 3; i++) {
        int c = (int)must("socket", socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        if (connect(c, (struct sockaddr *)&in, len) < 0 && errno != EINPROGRESS)
            must("connect", -1);
    }
    int c = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    signal_after(60, false);
    say_result("connect", connect(c, (struct sockaddr *)&in, len));
    say(" signals=%d", sem_signals);
}

static void waits_interrupted(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN };
    signal_after(30, true);
    say_result("poll", poll(&p, 1, 10000));
    struct timespec ts = { .tv_sec = 10 };
    signal_after(30, true);
    say_result("ppoll", ppoll(&p, 1, &ts, NULL));
    fd_set r;
    FD_ZERO(&r);
    FD_SET(s, &r);
    struct timeval tv = { .tv_sec = 10 };
    signal_after(30, true);
    say_result("select", select(s + 1, &r, NULL, NULL, &tv));
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLIN };
    must("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    signal_after(30, true);
    say_result("epoll", epoll_wait(ep, &ev, 1, 10000));
    say(" signals=%d", sem_signals);
}

/* Until SIGUSR1, which is blocked, has come. */
static void await_pending(void)
{
    sigset_t set;
    do {
        sleep_ms(1);
        must("sigpending", sigpending(&set));
    } while (!sigismember(&set, SIGUSR1));
}

/* The mask of ppoll and epoll_pwait lets a signal in that is blocked otherwise. */
static void waits_masked(int s)
{
    sigset_t block, open;
    sigemptyset(&open);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    must("sigprocmask", sigprocmask(SIG_BLOCK, &block, NULL));
    struct pollfd p = { .fd = s, .events = POLLIN };
    struct timespec ts = { .tv_sec = 10 };
    signal_after(20, false);
    say_result("blocked", poll(&p, 1, 80));
    await_pending();
    say(" signals=%d", sem_signals);
    say_result("ppoll", ppoll(&p, 1, &ts, &open));
    say(" signals=%d", sem_signals);
    int ep = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event ev = { .events = EPOLLIN };
    must("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    signal_after(20, false);
    say_result("blocked", epoll_wait(ep, &ev, 1, 80));
    await_pending();
    say_result("epoll_pwait", epoll_pwait(ep, &ev, 1, 10000, &open));
    say(" signals=%d", sem_signals);
    fd_set r;
    FD_ZERO(&r);
    FD_SET(s, &r);
    signal_after(20, false);
    ts = (struct timespec){ .tv_sec = 10 };
    say_result("pselect", pselect(s + 1, &r, NULL, NULL, &ts, &open));
    say(" signals=%d", sem_signals);
}

static int handler_fd;
static volatile ssize_t handler_got, handler_sent;
static volatile int handler_errno;

static void io_handler(int number)
{
    (void)number;
    int err = errno;
    uint8_t c = 0;
    handler_got = recv(handler_fd, &c, 1, MSG_DONTWAIT);
    handler_errno = handler_got < 0 ? errno : 0;
    fill(&c, 1, 0);
    handler_sent = send(handler_fd, &c, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    errno = err;
}

/* A handler that uses the connection on which its thread waits. */
static void handler_uses_it(int s)
{
    uint8_t buf[10];
    struct sigaction sa = { .sa_handler = io_handler, .sa_flags = SA_RESTART };
    handler_fd = s;
    signal_after(30, true);
    must("sigaction", sigaction(SIGUSR1, &sa, NULL));
    far_begin(FAR_SEND, 5, 90);
    say_result("recv", recv(s, buf, sizeof(buf), 0));
    far_end();
    say(" handler_got=%zd again=%d handler_sent=%zd", handler_got, handler_errno == EAGAIN, handler_sent);
    far_say("far", far_do(FAR_RECV, 1));
}

/* Many signals while octets run both ways. */
static void storm(int s)
{
    struct sigaction sa = { .sa_handler = SIG_IGN };
    handle_signal(true);
    struct itimerval it = { .it_interval.tv_usec = 500, .it_value.tv_usec = 500 };
    must("sigaction", sigaction(SIGALRM, NULL, &sa));
    struct sigaction usr;
    must("sigaction", sigaction(SIGUSR1, NULL, &usr));
    must("sigaction", sigaction(SIGPROF, &usr, NULL));
    must("setitimer", setitimer(ITIMER_PROF, &it, NULL));
    far_begin(FAR_ECHO, 20000000, 0);
    bool bad = false;
    for (int i = 0; i < 200; i++) {
        send_next(s, 100000);
        bad = bad || recv_next(s, 100000) != 100000;
    }
    it = (struct itimerval){ 0 };
    must("setitimer", setitimer(ITIMER_PROF, &it, NULL));
    say(" bad=%d", bad);
    far_say("far", far_end());
}

static atomic_bool forks_over;

static void *signal_often(void *thread)
{
    while (!atomic_load(&forks_over)) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        sleep_ms(1);
    }
    return NULL;
}

static int handler_s;

/* What a handler may do: all of it is async-signal-safe. */
static void on_signal(int number)
{
    int err = errno, fd = socket(AF_INET, SOCK_STREAM, 0);
    uint8_t octet = 0;
    (void)number;
    send(handler_s, &octet, 1, MSG_DONTWAIT);
    close(fd);
    errno = err;
}

/* A handler that uses connections interrupts fork() at any place. */
static void fork_signalled(int s)
{
    struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    pthread_t self = pthread_self(), t;
    int made = 0;
    handler_s = s;
    must("sigaction", sigaction(SIGUSR1, &sa, NULL));
    must("thread", pthread_create(&t, NULL, signal_often, &self));
    for (int i = 0; i < 300; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            _exit(3);
        made += child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3;
    }
    atomic_store(&forks_over, true);
    pthread_join(t, NULL);
    say(" children=%d", made);
}

const struct scenario sem_signal[] = {
    { "recv_interrupted", recv_interrupted },
    { "recv_interrupted_soon", recv_interrupted_soon },
    { "poll_interrupted_soon", poll_interrupted_soon },
    { "epoll_interrupted_soon", epoll_interrupted_soon },
    { "recv_restarted", recv_restarted },
    { "recv_timed", recv_timed },
    { "send_interrupted", send_interrupted },
    { "send_part", send_part },
    { "send_interrupted_soon", send_interrupted_soon },
    { "send_restarted", send_restarted },
    { "accept_interrupted", accept_interrupted },
    { "accept_interrupted_beside", accept_interrupted_beside },
    { "connect_interrupted", connect_interrupted },
    { "waits_interrupted", waits_interrupted },
    { "waits_masked", waits_masked },
    { "waits_masked_beside", waits_masked_beside },
    { "handler_uses_it", handler_uses_it },
    { "storm", storm },
    { "fork_signalled", fork_signalled },
    { NULL, NULL },
};
