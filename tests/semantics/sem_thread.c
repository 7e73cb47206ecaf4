/*
 * Threads on one connection: several readers, several writers, one that ends it while another waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

struct task {
    int fd;
    long n;
    long value;
    int err;
};

static pthread_t begin(void *(*act)(void *), struct task *t)
{
    pthread_t id;
    must("pthread_create", -pthread_create(&id, NULL, act, t));
    return id;
}

static void *reads_all(void *arg)
{
    struct task *t = arg;
    uint8_t buf[5000];
    for (ssize_t r; (r = recv(t->fd, buf, sizeof(buf), 0)) > 0; t->n += r)
        for (ssize_t i = 0; i < r; i++)
            t->value += buf[i];
    return NULL;
}

/* Between them they get every octet once. */
static void two_read(int s)
{
    enum { TOTAL = 2000000 };
    struct task t[2] = { { .fd = s }, { .fd = s } };
    pthread_t id[2] = { begin(reads_all, &t[0]), begin(reads_all, &t[1]) };
    far_do(FAR_SEND, TOTAL);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    for (int i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    static uint8_t all[TOTAL];
    fill(all, TOTAL, 0);
    long sum = 0;
    for (size_t i = 0; i < TOTAL; i++)
        sum += all[i];
    say(" total=%ld right=%d", t[0].n + t[1].n, t[0].value + t[1].value == sum);
}

enum { RECORD = 1000, RECORDS = 300 };

static void *writes_records(void *arg)
{
    struct task *t = arg;
    uint8_t buf[RECORD];
    for (int i = 0; i < RECORDS; i++) {
        memset(buf, (int)t->value, sizeof(buf));
        buf[0] = 0xff;
        t->n += write(t->fd, buf, sizeof(buf)) == (ssize_t)sizeof(buf);
    }
    return NULL;
}

/* Each write of some octets stays together; they come back by way of the far end. */
static void two_write(int s)
{
    struct task t[2] = { { .fd = s, .value = 1 }, { .fd = s, .value = 2 } };
    far_begin(FAR_ECHO, 2L * RECORD * RECORDS, 0);
    pthread_t id[2] = { begin(writes_records, &t[0]), begin(writes_records, &t[1]) };
    int whole = 0, of[3] = { 0 };
    for (int i = 0; i < 2 * RECORDS; i++) {
        uint8_t buf[RECORD];
        if (recv(s, buf, sizeof(buf), MSG_WAITALL) != (ssize_t)sizeof(buf))
            break;
        bool good = buf[0] == 0xff && (buf[1] == 1 || buf[1] == 2);
        for (size_t k = 2; k < sizeof(buf); k++)
            good = good && buf[k] == buf[1];
        whole += good;
        of[good ? buf[1] : 0]++;
    }
    for (int i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    far_end();
    say(" written=%ld,%ld whole=%d of=%d,%d", t[0].n, t[1].n, whole, of[1], of[2]);
}

static void *reads_once(void *arg)
{
    struct task *t = arg;
    uint8_t buf[10];
    t->n = recv(t->fd, buf, sizeof(buf), 0);
    t->err = t->n < 0 ? errno : 0;
    return NULL;
}

static void *sends_once(void *arg)
{
    struct task *t = arg;
    uint8_t c = 0;
    t->n = send(t->fd, &c, 1, MSG_NOSIGNAL);
    t->err = t->n < 0 ? errno : 0;
    return NULL;
}

static void *polls_once(void *arg)
{
    struct task *t = arg;
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    t->n = poll(&p, 1, 10000);
    t->err = p.revents;
    return NULL;
}

static void *accepts_once(void *arg)
{
    struct task *t = arg;
    t->n = accept(t->fd, NULL, NULL);
    t->err = t->n < 0 ? errno : 0;
    return NULL;
}

static void say_task(const char *what, const struct task *t)
{
    say(" %s=%ld%s%s", what, t->n, t->err ? ":" : "", t->err ? error_name(t->err) : "");
}

/* Something else takes the number while a thread waits: it waits on, for what it began with. */
static void dup2_while_receiving(int s)
{
    int p[2];
    must("pipe", pipe(p));
    struct task t = { .fd = s };
    pthread_t id = begin(reads_once, &t);
    others_sleep();
    say(" dup2=%d", dup2(p[0], s) == s);
    must("write", write(p[1], "abcdef", 6));
    far_do(FAR_SEND, 5);
    pthread_join(id, NULL);
    say_task("recv", &t);
    char buf[10];
    say_result("pipe", read(s, buf, sizeof(buf)));
    far_say("far", far_do(FAR_RECV, 1));
}

/* The number is another connection's by then. */
static void reused_while_receiving(int s)
{
    struct task t = { .fd = s };
    pthread_t id = begin(reads_once, &t);
    others_sleep();
    say_result("close", close(s));
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = sem_address() };
    socklen_t len = sizeof(in);
    int l = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(l, (struct sockaddr *)&in, len));
    must("listen", listen(l, 1));
    say(" reused=%d", l == s);
    far_do(FAR_SEND, 5);
    pthread_join(id, NULL);
    say_task("recv", &t);
    far_say("far", far_do(FAR_RECV, 1));
}

static void close_while_full(int s)
{
    fill_up(s);
    struct task t = { .fd = s };
    pthread_t id = begin(sends_once, &t);
    others_sleep();
    say_result("close", close(s));
    struct far_result res = far_do(FAR_RECV, (int64_t)sem_tx);
    say(" all=%d bad=%d", res.r == (int64_t)sem_tx, res.bad);
    pthread_join(id, NULL);
    say_task("send", &t);
    res = far_do(FAR_RECV, 2);
    say(" far=%lld", (long long)res.r);
}

/* A poll goes on with what it has, too. */
static void close_while_polling(int s)
{
    struct task t = { .fd = s };
    pthread_t id = begin(polls_once, &t);
    others_sleep();
    int d = dup(s);
    say_result("close", close(s));
    far_do(FAR_SEND, 5);
    pthread_join(id, NULL);
    say(" poll=%ld %s", t.n, poll_names(t.err));
    say(" recv=%zu", recv_next(d, 5));
}

static void close_while_accepting(int s)
{
    (void)s;
    struct task t = { .fd = sem_listener };
    pthread_t id = begin(accepts_once, &t);
    others_sleep();
    say_result("close", close(sem_listener));
    /* The socket lives as long as the call, and so does the port. */
    far_begin(FAR_CONNECT, sem_port, 0);
    pthread_join(id, NULL);
    say(" accepted=%d", t.n >= 0);
    far_end();
}

static void shutdown_wakes_poll(int s)
{
    struct task t = { .fd = s };
    pthread_t id = begin(polls_once, &t);
    others_sleep();
    say_result("shutdown", shutdown(s, SHUT_RDWR));
    pthread_join(id, NULL);
    say(" poll=%ld %s", t.n, poll_names(t.err));
}

static void shutdown_wakes_send(int s)
{
    fill_up(s);
    struct task t = { .fd = s };
    pthread_t id = begin(sends_once, &t);
    others_sleep();
    say_result("shutdown", shutdown(s, SHUT_RDWR));
    pthread_join(id, NULL);
    say_task("send", &t);
}

enum { MUCH = 30000000 };

static uint8_t much[MUCH];

/* Sends t->value octets at a time until it fails or t->n are out. */
static void *sends_until(void *arg)
{
    struct task *t = arg;
    size_t most = (size_t)t->n, each = (size_t)t->value, at = 0;
    t->n = 0;
    while (at < most) {
        size_t len = most - at < each ? most - at : each;
        ssize_t r = send(t->fd, much + at, len, MSG_NOSIGNAL);
        t->err = r < 0 ? errno : (size_t)r < len ? -1 : 0;
        if (r < 0)
            break;
        at += (size_t)r;
    }
    t->n = (long)at;
    return NULL;
}

/* The peer gets what was taken, and then the end. */
static void shut_while_sending(int s, long each, bool reads)
{
    struct task t = { .fd = s, .n = MUCH, .value = each };
    fill(much, MUCH, sem_tx);
    pthread_t id = begin(sends_until, &t);
    if (reads)
        say(" first=%lld", (long long)far_do(FAR_RECV, 300000).r);
    for (int full = 0; full < 10; sleep_ms(3)) /* the kernel finds more room for a while */
        full = poll_one(s, POLLOUT, 0) & POLLOUT ? 0 : full + 1;
    say_result("shutdown", shutdown(s, SHUT_WR));
    pthread_join(id, NULL);
    say(" some=%d then=%s", t.n > 0 && t.n < MUCH, error_name(t.err));
    struct far_result res = far_do(FAR_RECV, MUCH);
    say(" all=%d err=%d bad=%d", res.r == t.n - (reads ? 300000 : 0), res.err, res.bad);
    /* The other direction goes on. */
    far_do(FAR_SEND, 1000);
    say(" back=%zu", recv_next(s, 1000));
}

static void shutdown_cuts_send(int s)
{
    shut_while_sending(s, MUCH, false);
}

static void shutdown_cuts_send_read(int s)
{
    shut_while_sending(s, MUCH, true);
}

static void shutdown_ends_sends(int s)
{
    shut_while_sending(s, 3000, false);
}

static void shutdown_ends_large_sends(int s)
{
    shut_while_sending(s, 100000, true);
}

/* Two wait in recv; each gets its share. */
static void two_wait(int s)
{
    struct task t[2] = { { .fd = s }, { .fd = s } };
    pthread_t id[2] = { begin(reads_once, &t[0]), begin(reads_once, &t[1]) };
    others_sleep();
    uint8_t c;
    say_result("dontwait", recv(s, &c, 1, MSG_DONTWAIT));
    say(" poll=%s", poll_names(poll_one(s, POLLIN, 20)));
    far_do(FAR_SEND, 10);
    far_do(FAR_SEND, 10);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    for (int i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    long total = t[0].n + t[1].n;
    uint8_t buf[10];
    for (ssize_t r; (r = recv(s, buf, sizeof(buf), 0)) > 0;)
        total += r;
    say(" total=%ld", total);
}

/* One is stuck in send, the other goes on receiving. */
static void stuck_and_receiving(int s)
{
    size_t total = fill_up(s);
    struct task t = { .fd = s };
    pthread_t id = begin(sends_once, &t);
    others_sleep();
    for (int i = 0; i < 5; i++) {
        far_do(FAR_SEND, 1000);
        say(" %zu", recv_next(s, 1000));
    }
    struct far_result res = far_do(FAR_RECV, (int64_t)total);
    say(" all=%d bad=%d", res.r == (int64_t)total, res.bad);
    pthread_join(id, NULL);
    say_task("send", &t);
}

/* Waiting in recv does not keep another thread from sending. */
static void receiving_and_sending(int s)
{
    struct task t = { .fd = s };
    pthread_t id = begin(reads_once, &t);
    others_sleep();
    for (int i = 0; i < 5; i++) {
        send_next(s, 1000);
        far_say("far", far_do(FAR_RECV, 1000));
    }
    far_do(FAR_SEND, 10);
    pthread_join(id, NULL);
    say_task("recv", &t);
}

static _Atomic int accepted;

static void *accepts_many(void *arg)
{
    (void)arg;
    for (;;) {
        int c = accept(sem_listener, NULL, NULL);
        if (c < 0)
            return NULL;
        uint8_t o;
        if (recv(c, &o, 1, 0) == 1 && send(c, &o, 1, MSG_NOSIGNAL) == 1)
            atomic_fetch_add(&accepted, 1);
        if (recv(c, &o, 1, 0) != 0)
            atomic_fetch_add(&accepted, 1000);
        close(c);
    }
}

/* Several threads wait for connections on one socket: each connection goes to one of them. */
static void many_accept(int s)
{
    enum { THREADS = 4, CONNECTIONS = 20 };
    (void)s;
    struct task t[THREADS] = { { 0 } };
    pthread_t id[THREADS];
    for (int i = 0; i < THREADS; i++)
        id[i] = begin(accepts_many, &t[i]);
    int good = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        must("connect", far_do(FAR_CONNECT, sem_port).r);
        far_do(FAR_SEND, 1);
        struct far_result res = far_do(FAR_RECV, 1);
        good += res.r == 1 && res.err == 0;
        far_do(FAR_CLOSE, 0);
    }
    must("shutdown", shutdown(sem_listener, SHUT_RDWR));
    for (int i = 0; i < THREADS; i++)
        pthread_join(id[i], NULL);
    say(" good=%d accepted=%d", good, (int)accepted);
}

/* A process forked by a thread while another waits. */
static void fork_while_receiving(int s)
{
    struct task t = { .fd = s };
    pthread_t id = begin(reads_once, &t);
    others_sleep();
    say(" system=%d", system("exit 0"));
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        send_next(s, 10);
        _exit(0);
    }
    far_say("far", far_do(FAR_RECV, 10));
    sem_tx += 10;
    far_do(FAR_SEND, 10);
    pthread_join(id, NULL);
    say_task("recv", &t);
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
}

static void exchange(int s)
{
    send_next(s, 10);
    far_say("far", far_do(FAR_RECV, 10));
    far_do(FAR_SEND, 10);
    recv_next(s, 10);
}

/* From then on its descriptors are its own: it closes that one, and has another file by that number. */
static void *unshares(void *arg)
{
    struct task *t = arg;
    int pipes[2];
    char c = 0;
    t->n = t->value ? close_range((unsigned)t->fd, (unsigned)t->fd, CLOSE_RANGE_UNSHARE) : unshare(CLONE_FILES);
    t->err = t->n < 0 ? errno : 0;
    if (t->n == 0 && !t->value)
        t->n = close(t->fd);
    must("pipe", pipe(pipes));
    must("dup2", pipes[0] == t->fd ? 0 : dup2(pipes[0], t->fd));
    must("write", write(pipes[1], "x", 1));
    t->value = read(t->fd, &c, 1) == 1 ? c : 0;
    return NULL;
}

static void unshared(int s, bool range)
{
    exchange(s);
    struct task t = { .fd = s, .value = range };
    pthread_join(begin(unshares, &t), NULL);
    say_task("unshare", &t);
    say(" read=%c", (int)t.value);
    exchange(s);
    far_do(FAR_SEND, 100000);
    recv_next(s, 100000);
    far_do(FAR_SHUTDOWN, SHUT_WR);
    say_result("end", recv(s, &t, 1, 0));
}

static void unshared_close(int s)
{
    unshared(s, false);
}

static void unshared_range(int s)
{
    unshared(s, true);
}

const struct scenario sem_thread[] = {
    { "unshared_close", unshared_close },
    { "unshared_range", unshared_range },
    { "two_read", two_read },
    { "two_write", two_write },
    { "dup2_while_receiving", dup2_while_receiving },
    { "reused_while_receiving", reused_while_receiving },
    { "close_while_full", close_while_full },
    { "close_while_polling", close_while_polling },
    { "close_while_accepting", close_while_accepting },
    { "shutdown_wakes_poll", shutdown_wakes_poll },
    { "shutdown_wakes_send", shutdown_wakes_send },
    { "shutdown_cuts_send", shutdown_cuts_send },
    { "shutdown_cuts_send_read", shutdown_cuts_send_read },
    { "shutdown_ends_sends", shutdown_ends_sends },
    { "shutdown_ends_large_sends", shutdown_ends_large_sends },
    { "two_wait", two_wait },
    { "stuck_and_receiving", stuck_and_receiving },
    { "receiving_and_sending", receiving_and_sending },
    { "many_accept", many_accept },
    { "fork_while_receiving", fork_while_receiving },
    { NULL, NULL },
};
