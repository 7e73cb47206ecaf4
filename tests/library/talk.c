/*
 * Both ends of a connection, and what else makes the library work: calls while the startup is under way, small writes,
 * polls, streams, children. Says "talked 0". Tests build it by themselves, with what they put before the calls. With an
 * argument the other end accepts late, when the startup may be given up.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(e)                              \
    do {                                     \
        if (!(e)) {                          \
            dprintf(2, "%s: " #e "\n", who); \
            _exit(9);                        \
        }                                    \
    } while (0)
static const char *who = "near";
static char big[1 << 20];

static void all_in(int s, size_t len)
{
    static char b[1 << 20];
    for (ssize_t n; len > 0; len -= (size_t)n)
        MUST((n = recv(s, b, len, 0)) > 0);
}

static void *in_thread(void *arg)
{
    struct pollfd p = { *(int *)arg, POLLIN, 0 };
    MUST(poll(&p, 1, 20000) == 1);
    return NULL;
}

static void both(int s)
{
    struct epoll_event ev = { .events = EPOLLIN };
    fd_set set;
    pthread_t t;
    int ep = epoll_create1(0);
    for (int i = 0; i < 1000; i++)
        MUST(write(s, big, 64) == 64);
    MUST(epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev) == 0 && epoll_wait(ep, &ev, 1, 20000) == 1);
    FD_ZERO(&set);
    FD_SET(s, &set);
    MUST(select(s + 1, &set, NULL, NULL, NULL) == 1);
    MUST(pthread_create(&t, NULL, in_thread, &s) == 0 && pthread_join(t, NULL) == 0);
    all_in(s, 64000);
    close(ep);
    int child = fork();
    if (child == 0) {
        MUST(send(s, big, sizeof(big), 0) == sizeof(big));
        _exit(0);
    }
    all_in(s, sizeof(big));
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(system("exit 3") == 3 << 8);
    FILE *f = fdopen(dup(s), "r+"), *pipe = popen("echo", "r");
    MUST(fgetc(pipe) == '\n' && pclose(pipe) == 0);
    fputs("line\n", f);
    fflush(f);
    char line[10];
    MUST(fgets(line, sizeof(line), f) != NULL && line[0] == 'l');
    fclose(f);
    shutdown(s, SHUT_WR);
    MUST(recv(s, line, 1, 0) == 0);
    close(s);
}

/* Nothing is decided yet: the other end has not accepted. */
static void early(int s)
{
    for (int i = 0; i < 20; i++) {
        struct pollfd p = { s, POLLIN | POLLOUT, 0 };
        struct sockaddr_in in;
        socklen_t len = sizeof(in), n = sizeof(int);
        int v;
        char c;
        poll(&p, 1, 0);
        getsockopt(s, SOL_SOCKET, SO_ERROR, &v, &n);
        getpeername(s, (struct sockaddr *)&in, &len);
        recv(s, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    }
}

static int connected(const struct sockaddr_in *in, int fd)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), v = 1;
    MUST(s >= 0);
    MUST(connect(s, (const struct sockaddr *)in, sizeof(*in)) == 0 || errno == EINPROGRESS);
    early(s);
    MUST(write(fd, "x", 1) == 1);
    struct pollfd p = { s, POLLOUT, 0 };
    MUST(poll(&p, 1, 20000) == 1);
    MUST(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, sizeof(v)) == 0 && fcntl(s, F_SETFL, 0) == 0);
    return s;
}

static void on_usr1(int number)
{
    (void)number;
}

int main(int argc, char **argv)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    int l = socket(AF_INET, SOCK_STREAM, 0), s, ends[2];
    char c;
    MUST(bind(l, (struct sockaddr *)&in, len) == 0 && listen(l, 1) == 0 &&
         getsockname(l, (struct sockaddr *)&in, &len) == 0);
    /* A program that defines accept() does not import it: its listener has a name from its first call on. */
    MUST(fcntl(l, F_SETFL, O_NONBLOCK) == 0 && accept(l, NULL, NULL) < 0 && errno == EAGAIN &&
         fcntl(l, F_SETFL, 0) == 0);
    MUST(pipe(ends) == 0);
    signal(SIGUSR1, on_usr1);
    sigaction(SIGSEGV, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    int child = fork();
    if (child == 0) {
        who = "far";
        both(connected(&in, ends[1]));
        exit(0);
    }
    (void)argv;
    if (argc > 1)
        MUST(read(ends[0], &c, 1) == 1);
    MUST((s = accept(l, NULL, NULL)) >= 0);
    early(s);
    both(s);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("talked %d\n", status);
    return 0;
}
