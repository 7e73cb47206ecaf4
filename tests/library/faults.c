/*
 * faults PORT CASE: an upgraded connection to PORT, on which a line goes and comes back; then, by case, a fault in the
 * library's code (the memory of its connections is taken away under it), a check of the library's that fails (the kernel
 * gives it no random octets), or a fault of the program's own.
 */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/rawsys.h"

static int sock;
static struct {
    void *at;
    size_t len;
} taken[64];
static int taken_n;
static sigjmp_buf out;
static volatile int *volatile nowhere = (int *)64;

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(9);
}

/* mode PROT_NONE: the library's shared memory cannot be touched; else it is given back. */
static void library_memory(int mode)
{
    char line[512];
    if (taken_n == 0) {
        FILE *f = fopen("/proc/self/maps", "re");
        while (f != NULL && fgets(line, sizeof(line), f) != NULL && taken_n < 64) {
            unsigned long lo, hi;
            if (strstr(line, "/memfd:sockwarp") != NULL && sscanf(line, "%lx-%lx rw", &lo, &hi) == 2) {
                taken[taken_n].at = (void *)lo; /* NOLINT */
                taken[taken_n++].len = hi - lo;
            }
        }
        if (f != NULL)
            fclose(f);
        if (taken_n == 0)
            say("nothing to take away\n");
    }
    for (int i = 0; i < taken_n; i++)
        mprotect(taken[i].at, taken[i].len, mode);
}

static void talk(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port) };
    char b[6];
    sock = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0 || write(sock, "hello\n", 6) != 6 ||
        recv(sock, b, 6, MSG_WAITALL) != 6)
        _exit(8);
}

static void fault_of_library(void)
{
    library_memory(PROT_NONE);
    ssize_t r = write(sock, "again\n", 6);
    library_memory(PROT_READ | PROT_WRITE);
    say(r == 6 ? "sent\n" : "not sent\n");
}

static void aborted(int n)
{
    (void)n;
    say("handler\n");
}

/* By a filter that the library does not learn of getrandom() succeeds with nothing; it has some octets left from before. */
static void fail_check(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port) };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getrandom, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, code };
    rawsys6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
    if (rawsys4(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0) != 0)
        say("no filter\n");
    for (int i = 0; i < 100; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
            say("no connection\n");
    }
}

static void heals(int n)
{
    (void)n;
    say("handler\n");
    library_memory(PROT_READ | PROT_WRITE);
}

static void heals_info(int n, siginfo_t *info, void *context)
{
    (void)context;
    say(n == SIGSEGV && info->si_addr != NULL && info->si_code == SEGV_ACCERR ? "told of it\n" : "told otherwise\n");
    library_memory(PROT_READ | PROT_WRITE);
}

static void jumps(int n)
{
    (void)n;
    siglongjmp(out, 1);
}

static void handle(void (*fn)(int), int flags)
{
    struct sigaction sa = { .sa_handler = fn, .sa_flags = flags };
    sigaction(SIGSEGV, &sa, NULL);
}

static void *in_thread(void *arg)
{
    fault_of_library();
    return arg;
}

static int compare(const void *a, const void *b)
{
    return *nowhere + *(const int *)a - *(const int *)b; /* in a callback of libc's */
}

static int overflow(int n)
{
    volatile char room[16]; /* less than the library takes: so it is the one that meets the end */
    room[0] = (char)n;
    ssize_t r = write(sock, "x", 1); /* the library's frames are the last ones */
    return r == 1 ? overflow(n + 1) + room[0] : 0;
}

static void on_urg(int n)
{
    (void)n;
    *nowhere = 1; /* a fault in a handler that has interrupted the library */
}

static void little_stack(void)
{
    static char small[8192];
    stack_t st = { .ss_sp = small, .ss_size = 6144 };
    sigaltstack(&st, NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    pthread_t t;
    int list[8] = { 3, 2, 1 };
    struct rlimit little = { 1 << 20, 1 << 20 };
    talk(atoi(argv[1]));
    if (strcmp(what, "default") == 0) {
        fault_of_library();
    } else if (strcmp(what, "signal") == 0) {
        signal(SIGSEGV, heals);
        fault_of_library();
    } else if (strcmp(what, "sigaction") == 0) {
        struct sigaction sa = { .sa_sigaction = heals_info, .sa_flags = SA_SIGINFO | SA_NODEFER };
        sigaction(SIGSEGV, &sa, NULL);
        fault_of_library();
    } else if (strcmp(what, "onstack") == 0) {
        little_stack();
        handle(heals, SA_ONSTACK);
        fault_of_library();
    } else if (strcmp(what, "jump") == 0) {
        handle(jumps, 0);
        if (sigsetjmp(out, 1) == 0)
            fault_of_library();
        library_memory(PROT_READ | PROT_WRITE);
        say("jumped\n");
    } else if (strcmp(what, "often") == 0) {
        handle(heals, 0);
        for (int i = 0; i < 6; i++)
            fault_of_library();
    } else if (strcmp(what, "thread") == 0) {
        handle(heals, 0);
        pthread_create(&t, NULL, in_thread, NULL);
        pthread_join(t, NULL);
    } else if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            fault_of_library();
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        say(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? "child killed\n" : "child lives\n");
    } else if (strcmp(what, "check") == 0) {
        fail_check(atoi(argv[1]));
    } else if (strcmp(what, "check-signal") == 0) {
        signal(SIGABRT, aborted);
        fail_check(atoi(argv[1]));
    } else if (strcmp(what, "own") == 0) {
        *nowhere = 1;
    } else if (strcmp(what, "own-abort") == 0) {
        abort();
    } else if (strcmp(what, "own-raise") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(what, "own-callback") == 0) {
        qsort(list, 8, sizeof(int), compare);
    } else if (strcmp(what, "own-handler") == 0) {
        char b[1];
        signal(SIGALRM, on_urg);
        alarm(1);
        if (read(sock, b, 1) < 0) /* the library waits when the handler comes */
            say("read\n");
    } else if (strcmp(what, "own-memory") == 0) {
        say(write(sock, (const void *)(uintptr_t)nowhere, 100) < 0 ? "refused\n" : "sent\n");
    } else if (strcmp(what, "own-stack") == 0) {
        setrlimit(RLIMIT_STACK, &little);
        static char large[65536]; /* so that a handler could run */
        stack_t st = { .ss_sp = large, .ss_size = sizeof(large) };
        sigaltstack(&st, NULL);
        overflow(0);
    } else if (strcmp(what, "own-divide") == 0) {
        volatile int zero = 0;
        list[0] /= zero;
    }
    say("over\n");
    return list[0] & 0;
}
