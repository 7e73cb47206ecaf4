/*
 * Small writes on one connection from several threads and from a signal handler that interrupts them, for gather.test.
 *
 *   gather PORT THREADS RECORDS HANDLER
 *
 * Each thread writes RECORDS records of 8 octets (source, number) to 127.0.0.1:PORT, one a write; with HANDLER 1 so
 * does a handler of SIGALRM, as source 255, whenever it comes (a record whose write fails there is not counted). At the
 * end: "SOURCE COUNT" for each source on standard output.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SOURCES 255u

static int conn;
static uint32_t records, counts[SOURCES + 1];

static ssize_t put(uint32_t source, uint32_t number)
{
    uint32_t r[2] = { htonl(source), htonl(number) };
    return write(conn, r, sizeof(r));
}

static void on_alarm(int sig)
{
    int err = errno;
    (void)sig;
    if (put(SOURCES, counts[SOURCES]) == 8)
        counts[SOURCES]++;
    errno = err;
}

static void *source(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;
    while (counts[me] < records) {
        ssize_t n = put(me, counts[me]);
        if (n == 8) {
            counts[me]++;
        } else if (n >= 0 || errno != EINTR) {
            fprintf(stderr, "source %u: write %zd: %s\n", me, n, strerror(errno));
            exit(1);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t id[SOURCES];
    if (argc != 5)
        return 2;
    unsigned n = (unsigned)atoi(argv[2]);
    records = (uint32_t)atoi(argv[3]);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(argv[1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    conn = socket(AF_INET, SOCK_STREAM, 0);
    if (n == 0 || n > SOURCES || conn < 0 || connect(conn, (struct sockaddr *)&to, sizeof(to)) < 0) {
        perror("connect");
        return 1;
    }
    struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    struct itimerval every = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &sa, NULL);
    /* The first source is this thread (with one there are no others), and the handler is its alone. */
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    for (unsigned i = 1; i < n; i++)
        if (pthread_create(&id[i], NULL, source, (void *)(uintptr_t)i) != 0)
            return 1;
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    if (argv[4][0] == '1')
        setitimer(ITIMER_REAL, &every, NULL);
    source(NULL);
    for (unsigned i = 1; i < n; i++)
        pthread_join(id[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    for (unsigned i = 0; i <= SOURCES; i++)
        if (counts[i] > 0)
            printf("%u %u\n", i, counts[i]);
    return 0;
}
