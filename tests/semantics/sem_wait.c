/*
 * What the scenarios of readiness share.
 */
#include "tests/semantics/sem_wait.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 16

/* ---- connections ---- */

int more(void)
{
    int s;
    if (sem_accepting) {
        far_begin(FAR_CONNECT, sem_port, 0);
        s = (int)must("accept", accept(sem_listener, NULL, NULL));
    } else {
        far_begin(FAR_ACCEPT, 0, 0);
        s = (int)must("connect", connect_to(sem_far_port));
    }
    must("make another connection", far_end().r);
    return s;
}

void far_use(int i)
{
    far_do(FAR_USE, i);
}

void far_send_on(int i, int len)
{
    far_use(i);
    must("send at the far end", far_do(FAR_SEND, len).r);
}

uint16_t dead_port(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = sem_address() };
    socklen_t len = sizeof(in);
    int fd = (int)must("make a socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(fd, (struct sockaddr *)&in, len));
    must("getsockname", getsockname(fd, (struct sockaddr *)&in, &len));
    return ntohs(in.sin_port);
}

int connect_begin_to(int fd, uint16_t port)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = sem_address_of(port),
        .sin_port = htons(port),
    };
    set_nonblock(fd, true);
    return connect(fd, (struct sockaddr *)&in, sizeof(in));
}

void one_octet(int s)
{
    far_do(FAR_SEND, 1);
    recv_next(s, 1);
}

int so_error(int s)
{
    int err = 0;
    socklen_t len = sizeof(err);
    must("SO_ERROR", getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
    return err;
}

void set_lowat(int s, int octets)
{
    must("SO_RCVLOWAT", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &octets, sizeof(octets)));
}

/* ---- epoll ---- */

int ep_new(void)
{
    return (int)must("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
}

int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = { .events = events, .data.u64 = data };
    return epoll_ctl(ep, op, fd, &ev);
}

void ep_add(int ep, int fd, uint32_t events, uint64_t data)
{
    must("EPOLL_CTL_ADD", ep_ctl(ep, EPOLL_CTL_ADD, fd, events, data));
}

void ep_mod(int ep, int fd, uint32_t events, uint64_t data)
{
    must("EPOLL_CTL_MOD", ep_ctl(ep, EPOLL_CTL_MOD, fd, events, data));
}

void ep_del(int ep, int fd)
{
    must("EPOLL_CTL_DEL", epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL));
}

int ep_say(const char *what, int ep, int timeout_ms)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(ep, ev, EVENTS, timeout_ms);
    if (n < 0) {
        say_result(what, n);
        return n;
    }
    say(" %s=%s", what, n == 0 ? "none" : "");
    for (int i = 0; i < n; i++) { /* the least that is left */
        int least = i;
        for (int k = i + 1; k < n; k++)
            if (ev[k].data.u64 < ev[least].data.u64)
                least = k;
        struct epoll_event e = ev[least];
        ev[least] = ev[i];
        say("%s%llx:%s", i > 0 ? "," : "", (unsigned long long)e.data.u64, poll_names((int)e.events));
    }
    return n;
}

/* ---- threads ---- */

static void *waiting(void *arg)
{
    struct waiter *w = arg;
    uint64_t t = now_ms();
    w->tid = gettid();
    if (w->events != 0) {
        struct pollfd p = { .fd = w->fd, .events = w->events };
        w->r = poll(&p, 1, w->ms);
        w->got = (uint32_t)p.revents;
    } else {
        struct epoll_event ev = { 0 };
        w->r = epoll_wait(w->fd, &ev, 1, w->ms);
        w->got = ev.events;
        w->data = ev.data.u64;
    }
    w->err = errno;
    w->took_ms = (unsigned)(now_ms() - t);
    w->over = true;
    return NULL;
}

/* Is the thread of that process asleep, or gone? */
static bool sleeps(pid_t pid, int tid)
{
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return true;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end == NULL || strchr("SZX", name_end[2]) != NULL;
}

/* Three times in a row, for it may sleep for a lock on the way. */
bool await_asleep(pid_t pid, int tid, unsigned ms)
{
    uint64_t end = now_ms() + ms;
    for (int seen = 0; seen < 3; sleep_ms(1)) {
        seen = sleeps(pid, tid) ? seen + 1 : 0;
        if (seen == 0 && now_ms() >= end)
            return false;
    }
    return true;
}

static bool others_sleep_now(void)
{
    bool all = true;
    DIR *dir = opendir("/proc/self/task");
    if (dir == NULL)
        must("list the threads", -1);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        int tid = atoi(e->d_name);
        all = all && (tid == 0 || tid == gettid() || sleeps(getpid(), tid));
    }
    closedir(dir);
    return all;
}

void others_sleep(void)
{
    for (int seen = 0; seen < 3; sleep_ms(1))
        seen = others_sleep_now() ? seen + 1 : 0;
}

static void await_sleep(const struct waiter *w)
{
    while (w->tid == 0)
        sleep_ms(1);
    await_asleep(getpid(), w->tid, UINT_MAX);
}

void process_sleeps(pid_t pid)
{
    await_asleep(pid, pid, UINT_MAX);
}

struct in_thread {
    struct waiter *w;
    void *(*fn)(void *);
    void *arg;
};

static void *announced(void *arg)
{
    struct in_thread t = *(struct in_thread *)arg;
    t.w->tid = gettid();
    return t.fn(t.arg);
}

void in_thread(struct waiter *w, void *(*fn)(void *), void *arg)
{
    struct in_thread t = { w, fn, arg };
    *w = (struct waiter){ 0 };
    must("pthread_create", -pthread_create(&w->thread, NULL, announced, &t));
    await_sleep(w);
}

void wait_in_poll(struct waiter *w, int s, short events, int ms)
{
    *w = (struct waiter){ .fd = s, .events = events, .ms = ms };
    must("pthread_create", -pthread_create(&w->thread, NULL, waiting, w));
    await_sleep(w);
}

void wait_in_epoll(struct waiter *w, int ep, int ms)
{
    wait_in_poll(w, ep, 0, ms);
}

void wait_end(const char *what, struct waiter *w)
{
    pthread_join(w->thread, NULL);
    errno = w->err;
    if (w->r < 0)
        say_result(what, w->r);
    else if (w->r == 0)
        say(" %s=none", what);
    else if (w->events != 0)
        say(" %s=%s", what, poll_names((int)w->got));
    else
        say(" %s=%llx:%s", what, (unsigned long long)w->data, poll_names((int)w->got));
}

/* ---- signals ---- */

void signal_pending_now(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    handle_signal(false);
    must("sigprocmask", sigprocmask(SIG_BLOCK, &set, NULL));
    must("raise", raise(SIGUSR1));
}

unsigned cpu_ms(void)
{
    struct rusage u;
    must("getrusage", getrusage(RUSAGE_SELF, &u));
    return (unsigned)((u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
                      (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000);
}

void say_idle(unsigned since_cpu_ms, unsigned of_ms)
{
    unsigned used = cpu_ms() - since_cpu_ms;
    if (used <= of_ms / 2)
        say(" idle");
    else
        say(" busy for %u of %u ms", used, of_ms);
}
