/*
 * Asynchronous sends over real sockets: what the kernel finishes without us, what a cancel books,
 * what threads, forks and programs that close "all" descriptors do to it; and the choice between
 * the variants.
 */
#include "core/transport/transport.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TAIL_LEN (2u << 20) /* more than the socket buffers of these tests take */

static const struct transport_ops *t;
static uint8_t *octets;
static int hidden[64];
static _Atomic unsigned hidden_n, closed_n;

/* As proc_hide_fd. */
static int hide_fd(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 900);

    if (high < 0)
        return fd;
    close(fd);
    hidden[atomic_fetch_add(&hidden_n, 1) % 64] = high;
    return high;
}

static int close_fd(int fd)
{
    atomic_fetch_add(&closed_n, 1);
    return close(fd);
}

static struct transport_env env = { .hide_fd = hide_fd, .close_fd = close_fd };

static uint8_t octet(size_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

/* Skips, with the reason, where io_uring cannot be used. */
static void setup(void)
{
    const char *why;

    octets = malloc(TAIL_LEN);
    for (size_t i = 0; i < TAIL_LEN; i++)
        octets[i] = octet(i);
    t = transport_choose(-1, &env, &why);
    if (t != &transport_uring_ops)
        cr_skip_test("%s", why);
}

/* Two connected sockets with small buffers. */
static void pair(int *a, int *b, bool tcp)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    int l, small = 8192, fds[2];

    if (!tcp) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        *a = fds[0];
        *b = fds[1];
        return;
    }
    l = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    cr_assert_eq(bind(l, (struct sockaddr *)&in, sizeof(in)), 0);
    cr_assert_eq(listen(l, 1), 0);
    cr_assert_eq(getsockname(l, (struct sockaddr *)&in, &len), 0);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(setsockopt(*a, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    cr_assert_eq(connect(*a, (struct sockaddr *)&in, sizeof(in)), 0);
    *b = accept(l, NULL, NULL);
    cr_assert_geq(*b, 0);
    close(l);
}

/* A worker of the kernel's may let go of a request some time after its completion. */
static void idle_soon(void)
{
    while (t->thread_busy()) /* at most until the test's time is over */
        sched_yield();
}

static void start(struct transport_job *job, struct iovec *iov, int fd, enum transport_then then)
{
    *iov = (struct iovec){ octets, TAIL_LEN };
    *job = (struct transport_job){ .fd = fd, .then = then, .iov = iov, .iov_n = 1 };
    cr_assert_eq(t->send_start(job), 0);
}

/* Reads until the end of file or len octets; checks them. Returns octets read, or -errno. */
static ssize_t drain(int fd, size_t from, size_t len)
{
    static __thread uint8_t buf[65536];
    size_t done = 0;

    while (done < len) {
        ssize_t n = read(fd, buf, len - done < sizeof(buf) ? len - done : sizeof(buf));

        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            if (buf[i] != octet(from + done + (size_t)i))
                return -EBADMSG;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/*
 * A process that reads len octets of fd, and that there is an end behind them if eof; then *flag =
 * 1.
 */
static pid_t drainer(int fd, int other, size_t len, bool eof, _Atomic int *flag)
{
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0) {
        close(other);
        if (drain(fd, 0, len) != (ssize_t)len)
            _exit(1);
        if (eof && drain(fd, len, 1) != 0)
            _exit(2);
        atomic_store(flag, 1);
        _exit(0);
    }
    return pid;
}

static void *shared(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    cr_assert_neq(p, MAP_FAILED);
    return p;
}

static int status_of(pid_t pid)
{
    int status;

    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- the choice ---- */

Test(transport, system_calls_when_told_so)
{
    const char *why;
    struct transport_job job = { .fd = 0 };

    t = transport_choose(0, &env, &why);
    cr_assert_eq(t, &transport_syscall_ops);
    cr_expect_str_eq(t->name, "syscall");
    cr_expect_str_eq(why, "SOCKWARP_IO=syscall");
    cr_expect_eq(t->send_start(&job), -ENOSYS);
    cr_expect(t->send_over(&job, true));
    cr_expect(!t->thread_busy());
    t->send_cancel(&job);
    t->after_fork();
}

Test(transport, trying_leaves_no_descriptor, .init = setup)
{
    const char *why;
    int fd = dup(0);

    close(fd);
    cr_assert_eq(transport_choose(1, &env, &why), &transport_uring_ops);
    cr_expect_str_eq(t->name, "uring");
    cr_expect_str_eq(why, "io_uring works");
    cr_expect_eq(dup(0), fd);
    cr_expect_eq(fcntl(hidden[0], F_GETFD), -1);
}

/* In a child where io_uring_setup fails with this error. */
static void forbidden(int error, const char *want)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { .len = SW_ARRAY_LEN(code), .filter = code };
    pid_t pid = fork();

    if (pid == 0) {
        const char *why;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
            _exit(77);
        for (int want_uring = -1; want_uring <= 1; want_uring += 2)
            if (transport_choose(want_uring, &env, &why) != &transport_syscall_ops || strcmp(why, want) != 0)
                _exit(1);
        _exit(0);
    }
    int status = status_of(pid);
    if (status == 77)
        cr_skip_test("no seccomp filters here");
    cr_expect_eq(status, 0, "%s", want);
}

Test(transport, where_it_is_forbidden_system_calls_do_and_the_reason_is_told)
{
    forbidden(EPERM, "io_uring is not allowed here");
    forbidden(EACCES, "io_uring is not allowed here");
    forbidden(ENOSYS, "the kernel has no io_uring");
    forbidden(ENOMEM, "no memory may be locked for io_uring");
    forbidden(EMFILE, "io_uring_setup failed");
}

/* ---- without us ---- */

static void goes_without_us(bool tcp)
{
    _Atomic int *flag = shared(4096);
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, tcp);
    pid_t pid = drainer(b, a, TAIL_LEN, false, flag);
    close(b);
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    cr_expect(t->thread_busy());
    /* This thread computes and calls nothing; if the tail does not go, the test's time runs out. */
    for (volatile unsigned long x = 1; !atomic_load_explicit(flag, memory_order_relaxed);)
        x = x * 6364136223846793005ul + 1;
    cr_expect(t->send_over(&job, false));
    cr_expect_eq(job.result, (ssize_t)TAIL_LEN);
    idle_soon();
    cr_expect_eq(status_of(pid), 0);
}

Test(transport, a_tail_goes_while_the_thread_computes_over_tcp, .init = setup)
{
    goes_without_us(true);
}

Test(transport, a_tail_goes_while_the_thread_computes_over_a_socketpair, .init = setup)
{
    goes_without_us(false);
}

Test(transport, waiting_ends_with_the_job, .init = setup)
{
    _Atomic int *flag = shared(4096);
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    cr_expect(!t->send_over(&job, false), "nobody reads yet");
    pid_t pid = drainer(b, a, TAIL_LEN, false, flag);
    cr_expect(t->send_over(&job, true));
    cr_expect_eq(job.result, (ssize_t)TAIL_LEN);
    cr_expect_eq(status_of(pid), 0);
    cr_expect(t->send_over(&job, true), "and again");
}

Test(transport, many_pieces_go_in_order, .init = setup)
{
    _Atomic int *flag = shared(4096);
    struct transport_job job;
    static struct iovec iov[256];
    int a, b;

    pair(&a, &b, true);
    for (size_t i = 0; i < 256; i++)
        iov[i] = (struct iovec){ octets + i * (TAIL_LEN / 256), TAIL_LEN / 256 };
    job = (struct transport_job){ .fd = a, .iov = iov, .iov_n = 256 };
    cr_assert_eq(t->send_start(&job), 0);
    pid_t pid = drainer(b, a, TAIL_LEN, false, flag);
    cr_expect(t->send_over(&job, true));
    cr_expect_eq(job.result, (ssize_t)TAIL_LEN);
    cr_expect_eq(status_of(pid), 0);
}

Test(transport, a_peer_that_resets_is_an_error, .init = setup)
{
    struct linger now = { .l_onoff = 1 };
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, true);
    /* Full before: nothing of the job itself goes. */
    while (send(a, octets, 4096, MSG_DONTWAIT) > 0)
        continue;
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    cr_assert_eq(setsockopt(b, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close(b);
    cr_expect(t->send_over(&job, true));
    cr_expect(job.result == -ECONNRESET || job.result == -EPIPE, "%zd", job.result);
}

/* ---- stopped ---- */

Test(transport, a_cancel_books_what_was_sent_to_the_octet, .init = setup)
{
    for (int tcp = 0; tcp < 2; tcp++)
        for (size_t part = 0; part < 5; part++) {
            struct transport_job job;
            struct iovec iov;
            int a, b;
            size_t sent, taken = part * 60000;

            pair(&a, &b, tcp);
            start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
            cr_assert_eq(drain(b, 0, taken), (ssize_t)taken);
            t->send_cancel(&job);
            cr_assert(atomic_load(&job.over));
            cr_assert_gt(job.result, 0);
            sent = (size_t)job.result;
            cr_expect_geq(sent, taken);
            cr_expect_lt(sent, TAIL_LEN);
            cr_assert_eq(shutdown(a, SHUT_WR), 0);
            cr_expect_eq(drain(b, taken, TAIL_LEN), (ssize_t)(sent - taken), "part %zu", part);
            t->send_cancel(&job); /* of one that is over does nothing */
            cr_expect_eq((size_t)job.result, sent);
            close(a);
            close(b);
        }
}

Test(transport, a_cancel_before_the_first_octet_books_none, .init = setup)
{
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, true);
    while (send(a, octets, 4096, MSG_DONTWAIT) > 0)
        continue;
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    t->send_cancel(&job);
    cr_assert(atomic_load(&job.over));
    cr_expect_leq(job.result, 0, "%zd", job.result);
    cr_expect(job.result == 0 || job.result == -ECANCELED || job.result == -EINTR, "%zd", job.result);
}

/* ---- what follows ---- */

Test(transport, close_follows_the_last_octet, .init = setup)
{
    _Atomic int *flag = shared(4096);
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_CLOSE);
    cr_expect_neq(fcntl(a, F_GETFD), -1, "still open");
    pid_t pid = drainer(b, a, TAIL_LEN, true, flag);
    close(b);
    for (volatile unsigned long x = 1; !atomic_load_explicit(flag, memory_order_relaxed);)
        x = x * 6364136223846793005ul + 1;
    cr_expect(t->send_over(&job, true));
    cr_expect_eq(job.result, (ssize_t)TAIL_LEN);
    cr_expect_eq(status_of(pid), 0);
    cr_expect_eq(fcntl(a, F_GETFD), -1);
    cr_expect_eq(errno, EBADF);
}

Test(transport, close_follows_a_failed_send_too, .init = setup)
{
    struct linger now = { .l_onoff = 1 };
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_CLOSE);
    cr_assert_eq(setsockopt(b, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    close(b);
    cr_expect(t->send_over(&job, true));
    cr_expect_lt(job.result, (ssize_t)TAIL_LEN);
    /* The close is linked behind the send: it may be a moment later. */
    uint64_t end = now_ms() + 5000;
    while (fcntl(a, F_GETFD) != -1 && now_ms() < end)
        sched_yield();
    cr_expect_eq(fcntl(a, F_GETFD), -1);
}

Test(transport, half_close_follows_the_last_octet_and_only_that, .init = setup)
{
    _Atomic int *flag = shared(4096);
    struct transport_job job;
    struct iovec iov;
    char c;
    int a, b;

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_SHUT_WR);
    pid_t pid = drainer(b, a, TAIL_LEN, true, flag);
    for (volatile unsigned long x = 1; !atomic_load_explicit(flag, memory_order_relaxed);)
        x = x * 6364136223846793005ul + 1;
    cr_expect_eq(status_of(pid), 0);
    cr_expect(t->send_over(&job, true));
    cr_expect_eq(write(b, "x", 1), 1);
    cr_expect_eq(read(a, &c, 1), 1, "the other half is open");
    close(a);
    close(b);

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_SHUT_WR);
    t->send_cancel(&job);
    cr_assert_gt(job.result, 0);
    cr_assert_eq(drain(b, 0, (size_t)job.result), job.result);
    struct pollfd p = { .fd = b, .events = POLLIN };
    cr_expect_eq(poll(&p, 1, 50), 0, "no end of file");
    cr_expect_eq(write(a, "x", 1), 1, "and more can be sent");
}

/* ---- threads ---- */

struct thread_arg {
    struct transport_job job;
    struct iovec iov;
    int fd;
    enum transport_then then;
};

static void *start_and_end(void *p)
{
    struct thread_arg *arg = p;

    start(&arg->job, &arg->iov, arg->fd, arg->then);
    return NULL;
}

Test(transport, a_thread_that_ends_leaves_its_jobs_booked, .init = setup)
{
    for (int i = 0; i < 20; i++) {
        struct thread_arg arg = { .then = TRANSPORT_THEN_NOTHING };
        pthread_t thread;
        int b;

        pair(&arg.fd, &b, true);
        cr_assert_eq(pthread_create(&thread, NULL, start_and_end, &arg), 0);
        pthread_join(thread, NULL);
        cr_assert(t->send_over(&arg.job, false));
        cr_assert_gt(arg.job.result, 0);
        shutdown(arg.fd, SHUT_WR);
        cr_expect_eq(drain(b, 0, TAIL_LEN), arg.job.result);
        close(arg.fd);
        close(b);
    }
    /* Each thread's ring was closed. */
    for (unsigned i = 0; i < hidden_n; i++)
        cr_expect_eq(fcntl(hidden[i], F_GETFD), -1, "ring %u", i);
    cr_expect_eq(closed_n, hidden_n);
}

Test(transport, a_thread_that_ends_sees_its_closes_through, .init = setup)
{
    _Atomic int *flag = shared(4096);
    struct thread_arg arg = { .then = TRANSPORT_THEN_CLOSE };
    pthread_t thread;
    int b;

    pair(&arg.fd, &b, true);
    pid_t pid = drainer(b, arg.fd, TAIL_LEN, true, flag);
    close(b);
    cr_assert_eq(pthread_create(&thread, NULL, start_and_end, &arg), 0);
    pthread_join(thread, NULL);
    cr_expect(t->send_over(&arg.job, false));
    cr_expect_eq(arg.job.result, (ssize_t)TAIL_LEN);
    cr_expect_eq(status_of(pid), 0);
}

Test(transport, but_not_for_ever, .init = setup)
{
    struct thread_arg arg = { .then = TRANSPORT_THEN_CLOSE };
    const char *why;
    pthread_t thread;
    int b;

    env.thread_end_ms = 100;
    cr_assert_eq(transport_choose(1, &env, &why), t);
    pair(&arg.fd, &b, true);
    uint64_t begin = now_ms();
    cr_assert_eq(pthread_create(&thread, NULL, start_and_end, &arg), 0);
    pthread_join(thread, NULL);
    cr_expect_geq(now_ms() - begin, 90u);
    cr_expect(t->send_over(&arg.job, false));
    cr_expect_lt(arg.job.result, (ssize_t)TAIL_LEN);
}

static void *wait_for(void *p)
{
    t->send_over(p, true);
    return NULL;
}

static void *cancel_it(void *p)
{
    t->send_cancel(p);
    return NULL;
}

Test(transport, one_jobs_slow_peer_does_not_hold_up_another, .init = setup)
{
    struct transport_job slow, other, third;
    struct iovec iov[3];
    pthread_t waiter, canceller;
    int a[3], b[3];

    for (int i = 0; i < 3; i++)
        pair(&a[i], &b[i], true);
    start(&slow, &iov[0], a[0], TRANSPORT_THEN_NOTHING);
    start(&other, &iov[1], a[1], TRANSPORT_THEN_NOTHING);
    start(&third, &iov[2], a[2], TRANSPORT_THEN_NOTHING);
    cr_assert_eq(pthread_create(&waiter, NULL, wait_for, &slow), 0);
    /* All three are of this thread's ring; one is waited for there, one stopped by a stranger. */
    cr_assert_eq(pthread_create(&canceller, NULL, cancel_it, &other), 0);
    pthread_join(canceller, NULL);
    cr_expect(atomic_load(&other.over));
    cr_expect_eq(drain(b[2], 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    cr_expect(t->send_over(&third, true));
    cr_expect(!atomic_load(&slow.over));
    cr_expect_eq(drain(b[0], 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    pthread_join(waiter, NULL);
    cr_expect_eq(slow.result, (ssize_t)TAIL_LEN);
}

Test(transport, starts_and_cancels_from_many_threads_lose_nothing, .init = setup)
{
    enum { THREADS = 8 };
    struct thread_arg arg[THREADS];
    pthread_t thread[THREADS];
    int b[THREADS];

    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < THREADS; i++) {
            arg[i] = (struct thread_arg){ .then = TRANSPORT_THEN_NOTHING };
            pair(&arg[i].fd, &b[i], i & 1);
            arg[i].job.ring = NULL;
            atomic_store(&arg[i].job.over, false);
            cr_assert_eq(pthread_create(&thread[i], NULL, start_and_end, &arg[i]), 0);
        }
        /* While its thread ends, another thread stops the job. */
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
            t->send_cancel(&arg[i].job);
            cr_assert(t->send_over(&arg[i].job, false));
            cr_assert_gt(arg[i].job.result, 0);
            shutdown(arg[i].fd, SHUT_WR);
            cr_assert_eq(drain(b[i], 0, TAIL_LEN), arg[i].job.result);
            close(arg[i].fd);
            close(b[i]);
        }
    }
}

/* ---- forks ---- */

Test(transport, a_forked_child_makes_a_ring_of_its_own, .init = setup)
{
    struct transport_job *jobs = shared(65536), *parents = &jobs[0], *childs = &jobs[1];
    struct iovec iov, iov2;
    int a, b, a2, b2;

    pair(&a, &b, true);
    pair(&a2, &b2, true);
    start(parents, &iov, a, TRANSPORT_THEN_NOTHING);
    pid_t pid = fork();
    if (pid == 0) {
        t->after_fork();
        if (t->thread_busy())
            _exit(1);
        if (fcntl(hidden[(hidden_n - 1) % 64], F_GETFD) != -1)
            _exit(2);                    /* the parent's ring is still open here */
        if (t->send_over(parents, true)) /* does not wait */
            _exit(3);
        t->send_cancel(parents);
        if (atomic_load(&parents->over))
            _exit(4);
        start(childs, &iov2, a2, TRANSPORT_THEN_NOTHING);
        if (drain(b2, 0, TAIL_LEN) != (ssize_t)TAIL_LEN)
            _exit(5);
        if (!t->send_over(childs, true) || childs->result != (ssize_t)TAIL_LEN)
            _exit(6);
        _exit(0);
    }
    cr_expect_eq(status_of(pid), 0);
    cr_expect(!t->send_over(parents, false));
    cr_expect_eq(drain(b, 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    cr_expect(t->send_over(parents, true), "the parent's goes on");
    cr_expect_eq(parents->result, (ssize_t)TAIL_LEN);
    cr_expect(atomic_load(&childs->over));
}

/* ---- a ring's descriptor is lost ---- */

static int ring_fd(void)
{
    return hidden[(hidden_n - 1) % 64];
}

Test(transport, a_ring_closed_behind_our_back_is_replaced, .init = setup)
{
    struct transport_job before, after;
    struct iovec iov, iov2;
    int a, b, a2, b2;

    pair(&a, &b, true);
    pair(&a2, &b2, true);
    start(&before, &iov, a, TRANSPORT_THEN_NOTHING);
    int lost = ring_fd();
    close(lost);
    start(&after, &iov2, a2, TRANSPORT_THEN_NOTHING);
    cr_expect_eq(drain(b2, 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    cr_expect(t->send_over(&after, true));
    /* The one under way goes on, too. */
    cr_expect_eq(drain(b, 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    cr_expect(t->send_over(&before, true));
    cr_expect_eq(before.result, (ssize_t)TAIL_LEN);
}

Test(transport, a_lost_number_that_is_somebody_elses_is_left_alone, .init = setup)
{
    struct transport_job job;
    struct iovec iov;
    int a, b, null = open("/dev/null", O_RDWR);
    pid_t pid;

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    t->send_cancel(&job);
    int lost = ring_fd();
    cr_assert_eq(dup2(null, lost), lost);
    pid = fork();
    if (pid == 0) {
        t->after_fork();
        _exit(fcntl(lost, F_GETFD) == -1);
    }
    cr_expect_eq(status_of(pid), 0, "the child closed it");
    close(b);
    close(a);
    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    cr_expect_neq(ring_fd(), lost);
    cr_expect_eq(drain(b, 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    cr_expect(t->send_over(&job, true));
    cr_expect_neq(fcntl(lost, F_GETFD), -1);
}

Test(transport, a_cancel_on_a_lost_ring_ends, .init = setup)
{
    struct transport_job job;
    struct iovec iov;
    int a, b;

    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    close(ring_fd());
    t->send_cancel(&job);
    cr_assert(atomic_load(&job.over));
    cr_expect_eq(job.result, -ECONNABORTED, "%zd", job.result);
    idle_soon();
    /* And the thread goes on with another. */
    close(a);
    close(b);
    pair(&a, &b, true);
    start(&job, &iov, a, TRANSPORT_THEN_NOTHING);
    cr_expect_eq(drain(b, 0, TAIL_LEN), (ssize_t)TAIL_LEN);
    cr_expect(t->send_over(&job, true));
}

Test(transport, without_descriptors_there_is_no_ring_and_the_caller_keeps_the_octets, .init = setup)
{
    struct transport_job job;
    struct iovec iov = { octets, 10 };
    struct rlimit lim = { 3, 3 }, was;
    int a, b;

    pair(&a, &b, true);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    lim.rlim_max = was.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &lim), 0);
    job = (struct transport_job){ .fd = a, .then = TRANSPORT_THEN_CLOSE, .iov = &iov, .iov_n = 1 };
    cr_expect_eq(t->send_start(&job), -ENOSYS);
    cr_expect(t->send_over(&job, true));
    setrlimit(RLIMIT_NOFILE, &was);
    cr_expect_neq(fcntl(a, F_GETFD), -1, "it is closed only after 0");
    cr_assert_eq(t->send_start(&job), 0);
    cr_expect(t->send_over(&job, true));
    cr_expect_eq(job.result, 10);
}
