/*
 * A program that talks to an echo server at unusual times and under unusual circumstances. STARTUP_PORT says where it
 * is; the arguments say what is done before main's own exchange:
 *
 *   plain            nothing
 *   constructor      an exchange before main, in a constructor
 *   exiting          another one in atexit, and one in a destructor
 *   close-all        closes every descriptor from 3 on, one by one
 *   close-range      the same by close_range
 *   close-unseen     the same by system calls of its own
 *   no-std           closes 0 to 2
 *   few-fds          may open no more than 16
 *   no-files         may not make a file grow (RLIMIT_FSIZE 0)
 *   chroot           goes where there is no /proc
 *   threads          four threads exchange while main returns
 *
 * Ends with 0 if every octet came back right.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEN 100000u

static int wrong(const char *what)
{
    char text[200];
    int n = snprintf(text, sizeof(text), "startup: %s: %s\n", what, strerror(errno));
    if (write(2, text, (size_t)n) < 0)
        return 2;
    return 1;
}

/* 0: LEN octets went there and came back. */
static int exchange(void)
{
    const char *port = getenv("STARTUP_PORT");
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(port != NULL ? port : "0")),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof(to)) < 0)
        return wrong("connect");
    unsigned char out[1000], in[1000];
    for (size_t at = 0; at < LEN; at += sizeof(out)) {
        for (size_t i = 0; i < sizeof(out); i++)
            out[i] = (unsigned char)((at + i) * 7 % 251);
        if (send(s, out, sizeof(out), MSG_NOSIGNAL) != (ssize_t)sizeof(out))
            return wrong("send");
        if (recv(s, in, sizeof(in), MSG_WAITALL) != (ssize_t)sizeof(in) || memcmp(in, out, sizeof(in)) != 0)
            return wrong("recv");
    }
    close(s);
    return 0;
}

static int at_start = -1;

/* (argv is not known yet to a constructor.) */
__attribute__((constructor)) static void before_main(void)
{
    if (getenv("STARTUP_CONSTRUCTOR") != NULL)
        at_start = exchange();
}

__attribute__((destructor)) static void after_main(void)
{
    if (getenv("STARTUP_DESTRUCTOR") != NULL && exchange() != 0)
        _exit(4);
}

static void exiting(void)
{
    if (exchange() != 0)
        _exit(3);
}

static void close_unseen(int fd)
{
#if defined(__x86_64__)
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"((long)SYS_close), "D"((long)fd) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x0 __asm__("x0") = fd, x8 __asm__("x8") = SYS_close;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8) : "memory");
#else
    close(fd);
#endif
}

static void *in_thread(void *arg)
{
    (void)arg;
    if (exchange() != 0)
        _exit(5);
    return NULL;
}

static int prepare(const char *how)
{
    struct rlimit lim = { 16, 16 };
    pthread_t t;
    if (strcmp(how, "close-all") == 0) {
        for (int fd = 3; fd < 8192; fd++)
            close(fd);
    } else if (strcmp(how, "close-range") == 0) {
        return close_range(3, ~0u, 0) < 0 ? wrong("close_range") : 0;
    } else if (strcmp(how, "close-unseen") == 0) {
        for (int fd = 3; fd < 8192; fd++)
            close_unseen(fd);
    } else if (strcmp(how, "no-std") == 0) {
        for (int fd = 0; fd <= 2; fd++)
            close(fd);
        for (int fd = 0; fd <= 2; fd++) /* sockets do not become 0 to 2: those stay plain */
            if (open("/", O_PATH) != fd)
                return 1;
    } else if (strcmp(how, "few-fds") == 0) {
        return setrlimit(RLIMIT_NOFILE, &lim) < 0 ? wrong("RLIMIT_NOFILE") : 0;
    } else if (strcmp(how, "no-files") == 0) {
        lim.rlim_cur = lim.rlim_max = 0;
        return setrlimit(RLIMIT_FSIZE, &lim) < 0 ? wrong("RLIMIT_FSIZE") : 0;
    } else if (strcmp(how, "chroot") == 0) {
        return chroot("/var/empty") < 0 && chroot("/tmp") < 0 ? wrong("chroot") : chdir("/");
    } else if (strcmp(how, "exiting") == 0) {
        return atexit(exiting);
    } else if (strcmp(how, "threads") == 0) {
        for (int i = 0; i < 4; i++)
            if (pthread_create(&t, NULL, in_thread, NULL) != 0)
                return wrong("thread");
    } else if (strcmp(how, "plain") != 0 && strcmp(how, "constructor") != 0) {
        return wrong(how);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "plain";
    /* Once before, so that whatever the library opens is open already. */
    if (strncmp(how, "close-", 6) == 0 && exchange() != 0)
        return 6;
    if (prepare(how) != 0 || exchange() != 0)
        return 1;
    if (strcmp(how, "close-all") == 0 && (prepare(how) != 0 || exchange() != 0))
        return 7;
    return strcmp(how, "constructor") == 0 ? at_start : 0;
}
