/*
 * Pointers to nowhere, into pages that may not be read or written, and over the end of good ones:
 * EFAULT or a part, never a signal, and no octet lost or sent twice.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

#define PAGE 4096u

/* (The compiler must not know them.) */
static void *volatile nowhere = (void *)16, *volatile kernels = (void *)-4096l;
static volatile int less = -1;

/* n good pages with a bad one before and behind. */
static uint8_t *pages(size_t n)
{
    uint8_t *p = mmap(NULL, (n + 2) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must("mmap", p == MAP_FAILED ? -1 : 0);
    must("mprotect", mprotect(p, PAGE, PROT_NONE));
    must("mprotect", mprotect(p + (n + 1) * PAGE, PAGE, PROT_NONE));
    return p + PAGE;
}

static uint8_t *constant(void)
{
    uint8_t *p = pages(1);
    must("mprotect", mprotect(p, PAGE, PROT_READ));
    return p;
}

/* A mapped file that ends before the page does. */
static uint8_t *beyond_file(void)
{
    int fd = (int)must("memfd", memfd_create("short", 0));
    uint8_t *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must("mmap", p == MAP_FAILED ? -1 : 0);
    return p;
}

static void arrived(int s, size_t len)
{
    far_do(FAR_SEND, (int64_t)len);
    await_octets(s, (int)len);
}

/* All is as it was: both directions go on. */
static void still_good(int s)
{
    send_next(s, 1000);
    far_say("far", far_do(FAR_RECV, 1000));
    arrived(s, 1000);
    say(" recv=%zu", recv_next(s, 1000));
}

static void efault_recv(int s)
{
    uint8_t *page = pages(1), *end = page + PAGE;
    set_nonblock(s, true);
    say_result("none_there", recv(s, nowhere, 10, 0));
    say_result("kernels", recv(s, kernels, 10, 0));
    set_nonblock(s, false);
    arrived(s, 100);
    say_result("nowhere", recv(s, nowhere, 10, 0));
    say_result("null", recv(s, NULL, 10, 0));
    say_result("kernels", recv(s, kernels, 10, 0));
    say_result("constant", recv(s, constant(), 10, 0));
    say_result("beyond_file", recv(s, beyond_file(), 10, 0));
    say_result("noncanonical", recv(s, (void *)0x1000000000000000, 10, 0));
    say_result("peek", recv(s, nowhere, 10, MSG_PEEK));
    say_result("trunc", recv(s, nowhere, 10, MSG_TRUNC));
    sem_rx += 10;
    say_result("no_octets", recv(s, nowhere, 0, 0));
    say_result("cut", recv(s, end - 50, 80, 0));
    say_result("read", read(s, end - 50, 80));
    say_result("waitall", recv(s, end - 50, 80, MSG_WAITALL));
    /* Room enough for what is there is enough. */
    say_result("enough", recv(s, end - 90, 1000, 0));
    check(end - 90, 90);
    still_good(s);
}

static void efault_readv(int s)
{
    uint8_t *page = pages(1), *end = page + PAGE, buf[100];
    struct iovec first_bad[] = { { nowhere, 10 }, { buf, 10 } }, second_bad[] = { { buf, 10 }, { nowhere, 10 } };
    struct iovec empty_bad[] = { { nowhere, 0 }, { buf, 10 } };
    struct iovec kernel_bad[] = { { buf, 10 }, { kernels, 10 } };
    struct iovec negative[] = { { buf, 10 }, { buf, (size_t)-1 } };
    struct iovec *half = (struct iovec *)(void *)(end - sizeof(struct iovec));
    *half = (struct iovec){ buf, 10 };
    arrived(s, 100);
    say_result("iov", readv(s, nowhere, 1));
    say_result("half", readv(s, half, 2));
    say_result("first", readv(s, first_bad, 2));
    say_result("second", readv(s, second_bad, 2));
    say_result("kernel", readv(s, kernel_bad, 2));
    say_result("negative", readv(s, negative, 2));
    say_result("none", readv(s, nowhere, 0));
    say_result("too_many", readv(s, nowhere, 1025));
    say_result("less", readv(s, nowhere, less));
    say_result("empty", readv(s, empty_bad, 2));
    check(buf, 10);
    say_result("good", readv(s, half, 1));
    check(buf, 10);
    say_result("rest", (ssize_t)recv_next(s, 80));
    still_good(s);
}

static void efault_recvmsg(int s)
{
    uint8_t buf[100];
    uint8_t *page = pages(1);
    struct iovec iov = { buf, 10 }, bad = { nowhere, 10 };
    struct msghdr *fixed = (struct msghdr *)(void *)page;
    *fixed = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1 };
    must("mprotect", mprotect(page, PAGE, PROT_READ));
    arrived(s, 100);
    say_result("msg", recvmsg(s, nowhere, 0));
    struct msghdr m = { .msg_iov = nowhere, .msg_iovlen = 1 };
    say_result("iov", recvmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = &bad, .msg_iovlen = 1 };
    say_result("base", recvmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1, .msg_name = nowhere, .msg_namelen = 16 };
    say_result("name", recvmsg(s, &m, 0));
    check(buf, 10);
    m = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1, .msg_control = nowhere, .msg_controllen = 100 };
    say_result("control", recvmsg(s, &m, 0));
    check(buf, 10);
    m = (struct msghdr){ .msg_iov = nowhere, .msg_iovlen = 2000 };
    say_result("too_many", recvmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1, .msg_name = buf, .msg_namelen = (socklen_t)-1 };
    say_result("namelen", recvmsg(s, &m, 0));
    /* What it has to say about the octets has no place: they are gone all the same. */
    say_result("fixed", recvmsg(s, fixed, 0));
    check(buf, 10);
    struct mmsghdr *vec = (struct mmsghdr *)(void *)(page + PAGE - sizeof(*vec));
    must("mprotect", mprotect(page, PAGE, PROT_READ | PROT_WRITE));
    memset(vec, 0, sizeof(*vec));
    vec->msg_hdr.msg_iov = &iov;
    vec->msg_hdr.msg_iovlen = 1;
    say_result("recvmmsg", recvmmsg(s, nowhere, 1, MSG_DONTWAIT, NULL));
    say_result("second", recvmmsg(s, vec, 2, MSG_DONTWAIT, NULL));
    check(buf, 10);
    say_result("timeout", recvmmsg(s, vec, 1, MSG_DONTWAIT, nowhere));
    struct sockaddr_storage from;
    say_result("from", recvfrom(s, buf, 10, 0, nowhere, &(socklen_t){ 16 }));
    check(buf, 10);
    say_result("from_len", recvfrom(s, buf, 10, 0, (struct sockaddr *)&from, nowhere));
    check(buf, 10);
    say_result("from_none", recvfrom(s, buf, 10, 0, (struct sockaddr *)&from, NULL));
    say_result("left", (ssize_t)recv(s, buf, sizeof(buf), MSG_PEEK));
}

/* Octets of several messages, and a buffer that ends within the last of them. */
static void efault_recv_part(int s)
{
    uint8_t *page = pages(16), *end = page + 16 * PAGE;
    far_do(FAR_SEND, 200000);
    sleep_ms(50);
    say_result("all_bad", recv(s, nowhere, 200000, 0));
    ssize_t r = recv(s, end - 60000, 100000, 0);
    say(" good=%d", r > 0 ? r <= 60000 : r < 0 && errno == EFAULT);
    if (r > 0)
        check(end - 60000, (size_t)r);
    say(" rest=%d", recv_next(s, 200000 - sem_rx) + (size_t)(r > 0 ? r : 0) == 200000);
    still_good(s);
}

static void efault_send(int s)
{
    uint8_t *page = pages(1), *end = page + PAGE;
    say_result("nowhere", send(s, nowhere, 10, 0));
    say_result("null", send(s, NULL, 10, 0));
    say_result("kernels", send(s, kernels, 10, 0));
    say_result("noncanonical", send(s, (void *)0x1000000000000000, 10, 0));
    say_result("write", write(s, nowhere, 10));
    say_result("beyond_file", send(s, beyond_file(), 10, 0));
    say_result("no_octets", send(s, nowhere, 0, 0));
    say_result("write_none", write(s, nowhere, 0));
    say_result("cut", send(s, end - 50, 80, 0));
    say_result("dontwait", send(s, end - 50, 80, MSG_DONTWAIT));
    fill(end - 50, 50, sem_tx);
    say_result("good", send(s, end - 50, 50, 0));
    sem_tx += 50;
    must("mprotect", mprotect(page, PAGE, PROT_READ));
    far_say("far", far_do(FAR_RECV, 50));
    far_begin(FAR_ECHO, 50, 0);
    say_result("constant", send(s, end - 50, 50, 0));
    far_say("far", far_end());
    say_result("back", recv(s, (uint8_t[50]){ 0 }, 50, MSG_WAITALL));
    still_good(s);
    signal(SIGPIPE, SIG_IGN);
    shutdown(s, SHUT_WR);
    say_result("after", send(s, nowhere, 10, 0));
}

static void efault_writev(int s)
{
    uint8_t *page = pages(1), *end = page + PAGE, buf[100];
    struct iovec first_bad[] = { { nowhere, 10 }, { buf, 10 } }, second_bad[] = { { buf, 10 }, { nowhere, 10 } };
    struct iovec empty_bad[] = { { nowhere, 0 }, { buf, 10 } };
    struct iovec kernel_bad[] = { { buf, 10 }, { kernels, 10 } };
    struct iovec negative[] = { { buf, 10 }, { buf, (size_t)-1 } };
    struct iovec *half = (struct iovec *)(void *)(end - sizeof(struct iovec)), one = { buf, 10 };
    *half = one;
    fill(buf, 10, sem_tx);
    say_result("iov", writev(s, nowhere, 1));
    say_result("half", writev(s, half, 2));
    say_result("first", writev(s, first_bad, 2));
    say_result("kernel", writev(s, kernel_bad, 2));
    say_result("negative", writev(s, negative, 2));
    say_result("none", writev(s, nowhere, 0));
    say_result("too_many", writev(s, nowhere, 1025));
    say_result("empty", writev(s, empty_bad, 2));
    sem_tx += 10;
    far_say("far", far_do(FAR_RECV, 10));
    say_result("second", writev(s, second_bad, 2));
    struct msghdr m = { .msg_iov = nowhere, .msg_iovlen = 1 };
    say_result("sendmsg", sendmsg(s, nowhere, 0));
    say_result("msg_iov", sendmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = first_bad, .msg_iovlen = 2 };
    say_result("msg_base", sendmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = &one, .msg_iovlen = 1, .msg_name = nowhere, .msg_namelen = 16 };
    say_result("msg_name", sendmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = &one, .msg_iovlen = 1, .msg_control = nowhere, .msg_controllen = 100 };
    say_result("msg_control", sendmsg(s, &m, 0));
    m = (struct msghdr){ .msg_iov = nowhere, .msg_iovlen = 2000 };
    say_result("msg_too_many", sendmsg(s, &m, 0));
    say_result("sendmmsg", sendmmsg(s, nowhere, 1, 0));
    say_result("sendto", sendto(s, buf, 10, 0, nowhere, 16));
    say_result("sendto_len", sendto(s, buf, 10, 0, (struct sockaddr *)buf, 1000));
    say_result("sendfile", sendfile(s, (int)must("memfd", memfd_create("f", 0)), nowhere, 10));
    int p[2];
    must("pipe", pipe(p));
    say_result("splice", splice(p[0], nowhere, s, NULL, 10, SPLICE_F_NONBLOCK));
    still_good(s);
}

/* Much, and its end is bad: what was sent is what the peer gets. */
static void efault_send_part(int s)
{
    size_t len = 64 * PAGE;
    uint8_t *page = pages(64);
    fill(page, len, sem_tx);
    ssize_t r = send(s, page, len + 1, 0);
    say(" good=%d", r > 0 ? (size_t)r <= len : r < 0 && errno == EFAULT);
    if (r > 0)
        sem_tx += (size_t)r;
    struct far_result far = far_do(FAR_RECV, r > 0 ? r : 0);
    say(" far=%d bad=%d", far.r == (r > 0 ? r : 0), far.bad);
    still_good(s);
}

/* Of the first message only a part can be sent: nothing of the second may follow it. */
static void efault_sendmmsg_part(int s)
{
    size_t len = 64 * PAGE;
    uint8_t *page = pages(64), last[4] = "last";
    struct iovec iov[2] = { { page, len + 1 }, { last, sizeof(last) } };
    struct mmsghdr mm[2] = { { .msg_hdr = { .msg_iov = &iov[0], .msg_iovlen = 1 } },
                             { .msg_hdr = { .msg_iov = &iov[1], .msg_iovlen = 1 } } };
    fill(page, len, sem_tx);
    say_result("sendmmsg", sendmmsg(s, mm, 2, 0));
    size_t sent = mm[0].msg_len;
    say(" part=%d second=%u", sent > 0 && sent <= len, mm[1].msg_len);
    sem_tx += sent;
    struct far_result far = far_do(FAR_RECV, (int64_t)sent);
    say(" far=%d bad=%d", (size_t)far.r == sent, far.bad);
    still_good(s);
}

/* The bad page comes to be good while the call is repeated, as collectors and just-in-time compilers have it. */
static uint8_t *handler_page;
static volatile int handler_faults;
static volatile uintptr_t handler_addr;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    handler_faults++;
    handler_addr = (uintptr_t)info->si_addr;
    if (handler_page == NULL || mprotect(handler_page, PAGE, PROT_READ | PROT_WRITE) < 0)
        _exit(9);
}

static void efault_handled(int s)
{
    uint8_t *page = pages(1);
    handler_page = page;
    must("mprotect", mprotect(page, PAGE, PROT_NONE));
    struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    must("sigaction", sigaction(SIGSEGV, &sa, NULL));
    arrived(s, 10);
    /* The kernel asks no handler. */
    say_result("recv", recv(s, page, 10, 0));
    say_result("send", send(s, page, 10, 0));
    say(" faults=%d", handler_faults);
    *(volatile uint8_t *)(page + 5) = 1;
    say(" faults=%d addr=%d", handler_faults, (int)(handler_addr - (uintptr_t)page));
    say_result("recv", recv(s, page, 10, 0));
    check(page, 10);
    must("mprotect", mprotect(page, PAGE, PROT_NONE));
    say_result("recv", recv(s, page, 10, MSG_DONTWAIT));
    say_result("send", send(s, page, 10, 0));
    say(" faults=%d", handler_faults);
    still_good(s);
}

/* ---- dispositions ---- */

static void say_action(const char *what, int number)
{
    struct sigaction sa;
    must("sigaction", sigaction(number, NULL, &sa));
    say(" %s=%s,%x,%d", what,
        sa.sa_handler == SIG_DFL   ? "default"
        : sa.sa_handler == SIG_IGN ? "ignored"
                                   : "handler",
        (unsigned)sa.sa_flags, sigismember(&sa.sa_mask, SIGUSR2));
}

static void on_plain(int number)
{
    (void)number;
    handler_faults++;
}

static void efault_actions(int s)
{
    (void)s;
    static const int numbers[] = { SIGSEGV, SIGBUS };
    for (int i = 0; i < 2; i++) {
        int n = numbers[i];
        struct sigaction sa = { .sa_handler = on_plain, .sa_flags = SA_ONSTACK | SA_RESTART | SA_NODEFER }, old;
        say_action("first", n);
        sigaddset(&sa.sa_mask, SIGUSR2);
        must("sigaction", sigaction(n, &sa, &old));
        say(" old=%d", old.sa_handler == SIG_DFL);
        say_action("set", n);
        raise(n);
        say(" handled=%d", handler_faults);
        say(" signal=%d", signal(n, SIG_IGN) == on_plain);
        say_action("ignored", n);
        raise(n);
        say(" signal=%d", signal(n, on_plain) == SIG_IGN);
        say_action("signal", n);
        raise(n);
        say(" handled=%d", handler_faults);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        siginterrupt(n, 1);
#pragma GCC diagnostic pop
        say_action("siginterrupt", n);
        sa.sa_flags = (int)SA_RESETHAND;
        must("sigaction", sigaction(n, &sa, NULL));
        raise(n);
        say_action("reset", n);
        say(" bad=%d", syscall(SYS_rt_sigaction, n, NULL, NULL, 1) < 0 ? errno : 0);
    }
    say_result("kill", sigaction(SIGKILL, &(struct sigaction){ .sa_handler = on_plain }, NULL));
}

/* How a child ends that does this. */
static void say_child(const char *what, int s, void (*act)(int s))
{
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        act(s);
        _exit(0);
    }
    int status = -1;
    must("waitpid", waitpid(pid, &status, 0));
    if (WIFSIGNALED(status))
        say(" %s=%s", what, sigabbrev_np(WTERMSIG(status)));
    else
        say(" %s=%d", what, WEXITSTATUS(status));
}

static void faults(int s)
{
    (void)s;
    *(volatile int *)nowhere = 1;
}

static void faults_beyond(int s)
{
    (void)s;
    *(volatile uint8_t *)beyond_file() = 1;
}

static void kills_itself(int s)
{
    (void)s;
    kill(getpid(), SIGSEGV);
    sleep_ms(1000);
}

static void ignores(int s)
{
    signal(SIGSEGV, SIG_IGN);
    kill(getpid(), SIGSEGV);
    faults(s);
}

static void handles_and_returns(int s)
{
    struct sigaction sa = { .sa_handler = on_plain, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGSEGV, &sa, NULL);
    faults(s);
}

static void handles_and_exits(int s)
{
    struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &sa, NULL);
    handler_page = NULL;
    faults(s);
}

static void blocks(int s)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    faults(s);
}

static void overflows(int s)
{
    volatile char room[100000];
    room[0] = (char)s;
    if (less < 0)
        overflows(s);
    room[1] = room[0];
}

static stack_t other_stack(void)
{
    return (stack_t){ .ss_sp = pages(16), .ss_size = 16 * PAGE };
}

static void on_overflow(int number)
{
    _exit(number == SIGSEGV ? 7 : 8);
}

static void overflows_handled(int s)
{
    stack_t st = other_stack();
    sigaltstack(&st, NULL);
    struct sigaction sa = { .sa_handler = on_overflow, .sa_flags = SA_ONSTACK };
    sigaction(SIGSEGV, &sa, NULL);
    overflows(s);
}

static void execs(int s)
{
    (void)s;
    execl("/bin/sh", "sh", "-c", "kill -SEGV $$; exit 5", NULL);
}

static void execs_ignoring(int s)
{
    signal(SIGSEGV, SIG_IGN);
    execs(s);
}

static sigjmp_buf jump;

static void on_jump(int number)
{
    siglongjmp(jump, number);
}

static void jumps(int s)
{
    signal(SIGSEGV, on_jump);
    for (volatile int i = 0; i < 3; i++)
        if (sigsetjmp(jump, 1) == 0)
            faults(s);
    _exit(send(s, nowhere, 1, 0) < 0 && errno == EFAULT ? 6 : 5);
}

static void efault_children(int s)
{
    say_result("send", send(s, nowhere, 10, 0));
    say_child("fault", s, faults);
    say_child("beyond", s, faults_beyond);
    say_child("kill", s, kills_itself);
    say_child("ignores", s, ignores);
    say_child("returns", s, handles_and_returns);
    say_child("exits", s, handles_and_exits);
    say_child("blocks", s, blocks);
    say_child("overflow", s, overflows);
    say_child("overflow_handled", s, overflows_handled);
    say_child("exec", s, execs);
    say_child("exec_ignoring", s, execs_ignoring);
    say_child("jumps", s, jumps);
    still_good(s);
}

/* Several threads, of which some fault in earnest, and are helped by the handler. */
static int threads_s;

static void *thread_faults(void *arg)
{
    uint8_t *page = arg;
    for (int i = 0; i < 200; i++) {
        mprotect(page, PAGE, PROT_NONE);
        page[0] = (uint8_t)i;
    }
    return NULL;
}

static void on_any_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    if (mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) < 0)
        _exit(9);
}

static void *thread_efaults(void *arg)
{
    long wrong = 0;
    for (int i = 0; i < 200; i++)
        wrong += send(threads_s, arg, 10, 0) != -1 || errno != EFAULT;
    return (void *)wrong;
}

static void efault_threads(int s)
{
    struct sigaction sa = { .sa_sigaction = on_any_fault, .sa_flags = SA_SIGINFO };
    must("sigaction", sigaction(SIGSEGV, &sa, NULL));
    pthread_t t[4];
    threads_s = s;
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, i < 2 ? thread_faults : thread_efaults, i < 2 ? pages(1) : nowhere);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(t[i], &wrong);
        say(" wrong=%ld", (long)wrong);
    }
    still_good(s);
}

/* ---- other pointers ---- */

static void efault_waits(int s)
{
    struct pollfd p = { .fd = s, .events = POLLIN | POLLOUT };
    fd_set set;
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT };
    struct timespec ts = { 0 };
    int ep = (int)must("epoll_create1", epoll_create1(0));
    FD_ZERO(&set);
    FD_SET(s, &set);
    arrived(s, 10);
    say_result("poll", poll(nowhere, 1, 0));
    say_result("poll_none", poll(nowhere, 0, 0));
    say_result("ppoll", ppoll(nowhere, 1, &ts, NULL));
    say_result("ppoll_mask", ppoll(&p, 1, &ts, nowhere));
    say_result("poll_const", poll(memcpy(pages(1), &p, sizeof(p)), 1, 0));
    say_result("select", select(s + 1, nowhere, NULL, NULL, NULL));
    say_result("select_w", select(s + 1, &set, nowhere, NULL, NULL));
    say_result("select_none", select(0, nowhere, NULL, NULL, &(struct timeval){ 0 }));
    say(" set=%d", FD_ISSET(s, &set) != 0);
    say_result("pselect", pselect(s + 1, nowhere, NULL, NULL, &ts, NULL));
    say_result("pselect_mask", pselect(s + 1, &set, NULL, NULL, &ts, nowhere));
    say_result("ADD_null", epoll_ctl(ep, EPOLL_CTL_ADD, s, NULL));
    say_result("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, nowhere));
    say_result("ADD", epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev));
    say_result("MOD", epoll_ctl(ep, EPOLL_CTL_MOD, s, nowhere));
    say_result("wait", epoll_wait(ep, nowhere, 1, 0));
    say_result("wait_kernels", epoll_wait(ep, kernels, 1, 0));
    say_result("wait_const", epoll_wait(ep, (void *)constant(), 1, 0));
    say_result("pwait_mask", epoll_pwait(ep, &ev, 1, 0, nowhere));
    say_result("pwait2_time", epoll_pwait2(ep, &ev, 1, nowhere, NULL));
    say_result("wait", epoll_wait(ep, &ev, 1, 0));
    say_result("DEL", epoll_ctl(ep, EPOLL_CTL_DEL, s, nowhere));
    say(" recv=%zu", recv_next(s, 10));
}

static void efault_options(int s)
{
    int v = 1;
    socklen_t len = sizeof(v);
    say_result("FIONREAD", ioctl(s, FIONREAD, nowhere));
    say_result("FIONBIO", ioctl(s, FIONBIO, nowhere));
    say_result("get", getsockopt(s, SOL_SOCKET, SO_ERROR, nowhere, &len));
    say_result("get_len", getsockopt(s, SOL_SOCKET, SO_ERROR, &v, nowhere));
    say_result("get_lowat", getsockopt(s, SOL_SOCKET, SO_RCVLOWAT, nowhere, &len));
    say_result("set", setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, nowhere, sizeof(v)));
    say_result("set_zerocopy", setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, nowhere, sizeof(v)));
    say_result("set_oobinline", setsockopt(s, SOL_SOCKET, SO_OOBINLINE, nowhere, sizeof(v)));
    say_result("set_nodelay", setsockopt(s, IPPROTO_TCP, 1, nowhere, sizeof(v)));
    say_result("name", getsockname(s, nowhere, &len));
    say_result("peer", getpeername(s, nowhere, &len));
    say_result("peer_len", getpeername(s, (struct sockaddr *)&v, nowhere));
    say_result("connect", connect(s, nowhere, 16));
    int fresh = (int)must("socket", socket(AF_INET, SOCK_STREAM, 0));
    say_result("connect", connect(fresh, nowhere, 16));
    say_result("bind", bind(fresh, nowhere, 16));
    still_good(s);
}

/* The connection is lost, but its descriptor is not left behind. */
static void efault_accept(int s)
{
    int next = (int)must("dup", dup(s));
    close(next);
    far_begin(FAR_CONNECT, sem_port, 0);
    say_result("accept", accept(sem_listener, nowhere, &(socklen_t){ 16 }));
    far_end();
    far_say("far", far_do(FAR_RECV, 1));
    far_begin(FAR_CONNECT, sem_port, 0);
    say_result("accept_len", accept(sem_listener, (struct sockaddr *)&(struct sockaddr_in){ 0 }, nowhere));
    far_end();
    far_say("far", far_do(FAR_RECV, 1));
    int d = (int)must("dup", dup(s));
    say(" left=%d", d != next);
}

const struct scenario sem_efault[] = {
    { "efault_recv", efault_recv },           { "efault_readv", efault_readv },
    { "efault_recvmsg", efault_recvmsg },     { "efault_recv_part", efault_recv_part },
    { "efault_send", efault_send },           { "efault_writev", efault_writev },
    { "efault_send_part", efault_send_part }, { "efault_sendmmsg_part", efault_sendmmsg_part },
    { "efault_handled", efault_handled },     { "efault_actions", efault_actions },
    { "efault_children", efault_children },   { "efault_threads", efault_threads },
    { "efault_waits", efault_waits },         { "efault_options", efault_options },
    { "efault_accept", efault_accept },       { NULL, NULL },
};
