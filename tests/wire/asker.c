/*
 * asker: a server that says its port, then takes one connection after the other and reads it to its end or its error,
 * while two threads ask for the socket's error the whole time.
 */
#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_bool ended;

static void *ask(void *arg)
{
    const int *fd = arg;
    while (!atomic_load(&ended)) {
        int error;
        socklen_t len = sizeof(error);
        if (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
            err(1, "getsockopt");
    }
    return NULL;
}

static void serve(int fd)
{
    pthread_t threads[2];
    atomic_store(&ended, false);
    for (size_t i = 0; i < 2; i++)
        if ((errno = pthread_create(&threads[i], NULL, ask, &fd)) != 0)
            err(1, "pthread_create");
    char buf[4096];
    while (recv(fd, buf, sizeof(buf), 0) > 0)
        ;
    atomic_store(&ended, true);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    close(fd);
}

int main(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0)
        err(1, "listen");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            err(1, "accept");
        serve(fd);
    }
}
