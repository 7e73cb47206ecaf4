/*
 * Two processes, each with eight threads that do anything with the same twenty connections, and every octet is looked
 * at. Run by storm.test.
 *
 *   storm SECONDS SEED [signals] [cancel] [fork]
 *
 * signals: a handler that comes every few milliseconds sends and receives on connections of its own. cancel: threads
 * are cancelled in their calls and replaced. fork: children do nothing, or one call. Prints what was done; exits 1 with
 * what was wrong.
 */
#include "tests/storm/storm.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STUCK_MS 60000
#define SIGNAL_US 3000

struct shared *shared;
unsigned side;
uint16_t peer_port[2];
int listener[2];
_Atomic bool stopping;
bool with_signals, with_cancel, with_fork, with_poll = true;

static struct worker workers[THREADS + 1];
static int other; /* the other process */
static pid_t other_pid;

uint64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

/* ---- what is wrong ---- */

static void say(const char *text, size_t len)
{
    if (write(STDOUT_FILENO, text, len) != (ssize_t)len)
        _exit(3);
}

static void say_file(const char *what, int tid, const char *file)
{
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, file);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    char line[400];
    int len = snprintf(line, sizeof(line), "  %s %d %s: %s\n", what, tid, file, text);
    say(line, (size_t)len);
}

static void say_threads(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        struct worker *w = &workers[i];
        int tid = atomic_load(&w->tid);
        const char *doing = atomic_load(&w->doing);
        if (tid == 0)
            continue;
        say_file(doing ? doing : "?", tid, "wchan");
        say_file(doing ? doing : "?", tid, "syscall");
    }
}

void fail(const char *format, ...)
{
    char text[600];
    int n = snprintf(text, sizeof(text), "side %u: ", side);
    va_list ap;
    va_start(ap, format);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n - 1, format, ap);
    va_end(ap);
    text[n++] = '\n';
    /* (What follows from the first is not of interest.) */
    if (!atomic_exchange(&shared->failed, true)) {
        say(text, (size_t)n);
        say_threads();
    }
    if (getenv("STORM_PAUSE") != NULL) /* for a debugger */
        pause();
    syscall(SYS_exit_group, 1);
    __builtin_unreachable();
}

void must(bool good, const char *what)
{
    if (!good)
        fail("%s: %s", what, strerrorname_np(errno));
}

/* ---- the handler's connections ---- */

static struct slot outgoing, incoming;
static struct worker handler_worker = { .n = THREADS };
static _Atomic bool handling;

static void on_alarm(int sig)
{
    (void)sig;
    if (atomic_exchange(&handling, true))
        return;
    int err = errno;
    struct worker *w = &handler_worker;
    uint64_t at = outgoing.tx_at;
    size_t len = 1 + rnd(w, 4000);
    ssize_t r = send(outgoing.fd, stream_octets(&outgoing, 0, at), len, MSG_DONTWAIT | MSG_NOSIGNAL);
    sent(w, &outgoing, "the handler's send", r, len);
    r = recv(incoming.fd, w->buf, IO_MAX / 8, MSG_DONTWAIT);
    if (!received(w, &incoming, "the handler's recv", r, false))
        fail("the handler's connection ended");
    COUNT(handled, 1);
    if (r > 0)
        COUNT(handled_octets, r);
    errno = err;
    atomic_store(&handling, false);
}

static void alarms(bool on)
{
    struct sigaction sa = { .sa_handler = on ? on_alarm : SIG_IGN };
    struct itimerval it = { .it_interval.tv_usec = on ? SIGNAL_US : 0, .it_value.tv_usec = on ? SIGNAL_US : 0 };
    if (on)
        sigaction(SIGALRM, &sa, NULL);
    setitimer(ITIMER_REAL, &it, NULL);
    if (!on) {
        sigaction(SIGALRM, &sa, NULL);
        while (atomic_load(&handling))
            usleep(100);
    }
}

/* ---- threads ---- */

/* A cancelled thread leaves a connection, and how far its call came is not known. */
static void left_behind(void *arg)
{
    struct worker *w = arg;
    struct slot *s = w->slot;
    bool making = false;
    if (s != NULL) {
        pthread_mutex_lock(&s->lock);
        making = s->state == MAKING;
        pthread_mutex_unlock(&s->lock);
    }
    if (s != NULL && s->c != NULL)
        atomic_store(&s->c->dir[s->mine].abrupt, true);
    if (s != NULL && !making)
        atomic_store(&s->left, true);
    if (w->locked != NULL)
        pthread_rwlock_unlock(w->locked);
    w->locked = NULL;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    if (making)
        slot_set(w, s, EMPTY);
    else if (s != NULL)
        slot_leave(w, s);
    atomic_store(&w->over, true);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    atomic_store(&w->tid, (int)syscall(SYS_gettid));
    may_cancel(w, false);
    pthread_cleanup_push(left_behind, w);
    while (!atomic_load(&stopping) && !atomic_load(&shared->failed))
        ops_one(w);
    pthread_cleanup_pop(0);
    atomic_store(&w->doing, "nothing");
    return NULL;
}

static void worker_start(struct worker *w)
{
    w->fd = -1;
    atomic_store(&w->over, false);
    must(pthread_create(&w->thread, NULL, work, w) == 0, "pthread_create");
}

static void worker_replace(struct worker *w)
{
    pthread_cancel(w->thread);
    must(pthread_join(w->thread, NULL) == 0, "pthread_join");
    COUNT(cancels, 1);
    worker_start(w);
}

/* Until the time is over. Whoever does not come out of a call is told of. */
static void watch(uint64_t until)
{
    uint64_t seen[THREADS] = { 0 }, since[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        since[i] = now_ms();
    struct worker *chance = &handler_worker;
    while (now_ms() < until && !atomic_load(&shared->failed)) {
        struct timespec ts = { .tv_nsec = with_cancel ? 2000000 : 50000000 };
        nanosleep(&ts, NULL);
        if (with_cancel)
            worker_replace(&workers[rnd(chance, THREADS)]);
        for (unsigned i = 0; i < THREADS; i++) {
            uint64_t ops = atomic_load(&workers[i].ops);
            if (ops != seen[i])
                since[i] = now_ms();
            seen[i] = ops;
            if (now_ms() - since[i] > STUCK_MS)
                fail("thread %u does not return from %s", i, atomic_load(&workers[i].doing));
        }
    }
}

/* ---- start and end ---- */

static void tell(uint32_t what)
{
    must(write(other, &what, sizeof(what)) == sizeof(what), "tell the other process");
}

static uint32_t hear(void)
{
    uint32_t what = 0;
    struct pollfd p = { .fd = other, .events = POLLIN };
    int r;
    while ((r = poll(&p, 1, 2 * STUCK_MS)) < 0 && errno == EINTR)
        ;
    if (r == 0)
        fail("the other process says nothing");
    if (read(other, &what, sizeof(what)) != sizeof(what)) {
        atomic_store(&shared->failed, true);
        fail("the other process has ended");
    }
    return what;
}

static void make_listener(unsigned i)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    listener[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(listener[i] >= 0 && bind(listener[i], (struct sockaddr *)&in, len) == 0 && listen(listener[i], 1000) == 0 &&
             getsockname(listener[i], (struct sockaddr *)&in, &len) == 0,
         "listen");
    tell(ntohs(in.sin_port));
}

/* One connection each way, for the handler: the first connections of all. Side 0 connects first. */
static void handlers_connect(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(peer_port[0]) };
    outgoing = (struct slot){ .id = side, .mine = 0, .kind = OCTETS, .c = &shared->conn[side] };
    incoming = (struct slot){ .id = !side, .mine = 1, .kind = OCTETS, .c = &shared->conn[!side] };
    for (unsigned turn = 0; turn < 2; turn++) {
        if (turn == side) {
            outgoing.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            must(connect(outgoing.fd, (struct sockaddr *)&in, sizeof(in)) == 0, "connect");
            must(send(outgoing.fd, stream_octets(&outgoing, 0, 0), 1, 0) == 1, "send");
            outgoing.tx_at = 1;
            atomic_store(&outgoing.c->dir[0].sent, 1);
            hear();
        } else {
            struct pollfd p = { .fd = listener[0], .events = POLLIN };
            must(poll(&p, 1, STUCK_MS) == 1, "poll");
            incoming.fd = accept4(listener[0], NULL, NULL, SOCK_CLOEXEC);
            must(incoming.fd >= 0 && recv(incoming.fd, handler_worker.buf, 1, 0) == 1, "accept");
            received(&handler_worker, &incoming, "recv", 1, false);
            tell(0);
        }
    }
}

/* rings, wakers: what sockwarp may make for each thread, and closes when that ends. */
struct descriptors {
    unsigned sockets, rings, wakers, others;
};

static struct descriptors count_fds(bool print)
{
    DIR *d = opendir("/proc/self/fd");
    must(d != NULL, "/proc/self/fd");
    struct descriptors n = { 0 };
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char to[256] = "";
        if (e->d_name[0] == '.' || atoi(e->d_name) == dirfd(d) ||
            readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1) < 0)
            continue;
        if (strncmp(to, "socket:", 7) == 0)
            n.sockets++;
        else if (strcmp(to, "anon_inode:[io_uring]") == 0)
            n.rings++;
        else if (strcmp(to, "anon_inode:[eventfd]") == 0)
            n.wakers++;
        else
            n.others++;
        if (print) {
            char line[300];
            say(line, (size_t)snprintf(line, sizeof(line), "  descriptor %s: %s\n", e->d_name, to));
        }
    }
    closedir(d);
    return n;
}

static void sets_open(bool open)
{
    for (unsigned i = 0; i <= THREADS; i++) {
        int *epfd = i < THREADS ? &workers[i].epfd : &shared_epfd;
        if (open)
            *epfd = epoll_create1(EPOLL_CLOEXEC);
        must(open ? *epfd >= 0 : close(*epfd) == 0, "epoll descriptors");
    }
}

static void drain_listeners(void)
{
    for (unsigned i = 0; i < 2; i++)
        for (int fd; (fd = accept(listener[i], NULL, NULL)) >= 0 || errno == EINTR;)
            if (fd >= 0)
                close(fd);
}

static bool is_left(struct descriptors before, struct descriptors now)
{
    return now.sockets > before.sockets || now.rings > before.rings || now.wakers > before.wakers ||
           now.others > before.others;
}

/*
 * What goes on after a close is over soon. (The main thread, which is the only one left, has waited in poll meanwhile,
 * and closed connections with octets unsent: it may have a waker and a ring now. And the process keeps a connection to the
 * name of each of the other side's listeners, and a socket for questions.)
 */
static void nothing_left(struct descriptors before)
{
    uint64_t end = now_ms() + 10000;
    struct descriptors after;
    before.wakers++;
    before.rings++;
    before.sockets += 3;
    while (after = count_fds(false), is_left(before, after) && now_ms() < end) {
        int p[2];
        must(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0, "socketpair");
        close(p[0]);
        close(p[1]);
        drain_listeners();
        usleep(10000);
    }
    if (is_left(before, after)) {
        count_fds(true);
        fail("at the end %u sockets, %u rings, %u wakers and %u other descriptors; at the beginning %u, %u, %u and %u",
             after.sockets, after.rings, after.wakers, after.others, before.sockets, before.rings, before.wakers,
             before.others);
    }
    if (side == 1 && (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD))
        fail("a child is left");
}

static void run(unsigned seconds, uint64_t seed)
{
    signal(SIGPIPE, SIG_IGN);
    stream_init();
    conns_init();
    for (unsigned i = 0; i <= THREADS; i++) {
        struct worker *w = i < THREADS ? &workers[i] : &handler_worker;
        w->n = i;
        w->fd = -1;
        w->random = (seed * 2 + side) * 0x9e3779b97f4a7c15u + i + 1;
        for (unsigned k = 0; k < 10; k++)
            rnd(w, 2);
        w->buf = malloc(IO_MAX);
    }
    for (unsigned i = 0; i < 2; i++)
        make_listener(i);
    for (unsigned i = 0; i < 2; i++)
        peer_port[i] = (uint16_t)hear();
    handlers_connect();
    struct descriptors before = count_fds(false);
    sets_open(true);
    if (with_signals)
        alarms(true);
    for (unsigned i = 0; i < THREADS; i++)
        worker_start(&workers[i]);
    watch(now_ms() + seconds * 1000u);
    atomic_store(&stopping, true);
    for (unsigned i = 0; i < THREADS; i++) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += STUCK_MS / 1000;
        if (pthread_timedjoin_np(workers[i].thread, NULL, &end) != 0)
            fail("thread %u does not return from %s at the end", i, atomic_load(&workers[i].doing));
    }
    if (with_signals)
        alarms(false);
    conns_close_all(&handler_worker);
    tell(1);
    hear();
    drain_listeners();
    sets_open(false);
    nothing_left(before);
    tell(2);
    hear();
}

int main(int argc, char **argv)
{
    bool far = argc > 1 && strcmp(argv[1], "far") == 0;
    if (argc < (far ? 6 : 3)) {
        fprintf(stderr, "usage: storm SECONDS SEED [signals] [cancel]\n");
        return 2;
    }
    for (int i = 3; i < argc; i++) {
        with_signals |= strcmp(argv[i], "signals") == 0;
        with_cancel |= strcmp(argv[i], "cancel") == 0;
        with_fork |= strcmp(argv[i], "fork") == 0;
        with_poll &= strcmp(argv[i], "nopoll") != 0;
    }
    int memory = far ? atoi(argv[argc - 1]) : memfd_create("shared", 0), pair[2];
    if (memory < 0 || (!far && ftruncate(memory, sizeof(*shared)) < 0))
        return 2;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (shared == MAP_FAILED)
        return 2;
    if (far) {
        side = 1;
        other = atoi(argv[argc - 2]);
    } else {
        atomic_store(&shared->next_id, 2);
        must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
        other_pid = fork();
        must(other_pid >= 0, "fork");
        if (other_pid == 0) {
            char text[2][16];
            char *args[16] = { argv[0], (char *)"far" };
            int n = 2;
            for (int i = 1; i < argc && n < 12; i++)
                args[n++] = argv[i];
            snprintf(text[0], sizeof(text[0]), "%d", pair[1]);
            snprintf(text[1], sizeof(text[1]), "%d", memory);
            args[n++] = text[0];
            args[n++] = text[1];
            close(pair[0]);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            execv("/proc/self/exe", args);
            _exit(127);
        }
        close(pair[1]);
        other = pair[0];
    }
    char **rest = argv + (far ? 2 : 1);
    run((unsigned)atoi(rest[0]), strtoull(rest[1], NULL, 0));
    if (far)
        return 0;
    int status = -1;
    must(waitpid(other_pid, &status, 0) == other_pid && status == 0, "the other process's end");
    if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD)
        fail("a child is left");
#define X(name) printf("%s=%llu ", #name, (unsigned long long)atomic_load(&shared->tally.name));
    TALLIES(X)
#undef X
    printf("\n");
    return 0;
}
