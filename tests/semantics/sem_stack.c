/*
 * Threads with little stack: what the library needs of it besides the program.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

/* (The least that glibc takes is 16 KiB, on aarch64 128 KiB, with the threads' own variables of all libraries in it.) */
#define STACK_LEN (20 * 1024)

enum { LEN = 100000 };
static uint8_t octets[LEN];

static void in_little(void *(*act)(void *), int s)
{
    pthread_attr_t a;
    pthread_t id;
    must("pthread_attr_init", -pthread_attr_init(&a));
    if (pthread_attr_setstacksize(&a, STACK_LEN) != 0)
        must("pthread_attr_setstacksize", -pthread_attr_setstacksize(&a, (size_t)sysconf(_SC_THREAD_STACK_MIN)));
    must("pthread_create", -pthread_create(&id, &a, act, &s));
    must("pthread_join", -pthread_join(id, NULL));
}

static void *sends(void *arg)
{
    const int *s = arg;
    struct iovec v[2] = { { octets, 1000 }, { octets, LEN - 1000 } };
    struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
    say_result("send", send(*s, octets, 100, 0));
    say_result("sendmsg", sendmsg(*s, &m, 0));
    return NULL;
}

static void *receives(void *arg)
{
    const int *s = arg;
    struct pollfd p = { .fd = *s, .events = POLLIN };
    say_result("poll", poll(&p, 1, LATE_MS));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(*s, &in);
    say_result("select", select(*s + 1, &in, NULL, NULL, NULL));
    int set = (int)must("epoll_create1", epoll_create1(0));
    struct epoll_event e = { .events = EPOLLIN };
    must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, *s, &e));
    say_result("epoll_wait", epoll_wait(set, &e, 1, LATE_MS));
    close(set);
    say_result("recv", recv(*s, octets, LEN, MSG_WAITALL));
    return NULL;
}

static void small_stack_send(int s)
{
    far_begin(FAR_RECV, LEN + 100, 0);
    in_little(sends, s);
    say(" far=%ld", (long)far_end().r);
}

static void small_stack_recv(int s)
{
    far_begin(FAR_SEND, LEN, 0);
    in_little(receives, s);
    far_say("far", far_end());
}

static void *sends_file(void *arg)
{
    const int *s = arg;
    int fd = (int)must("memfd", memfd_create("f", 0));
    must("write", write(fd, octets, LEN));
    off_t at = 0;
    say_result("sendfile", sendfile(*s, fd, &at, LEN));
    int p[2];
    must("pipe", pipe(p));
    must("write", write(p[1], octets, 5000));
    say_result("to", splice(p[0], NULL, *s, NULL, 5000, 0));
    return NULL;
}

static void small_stack_sendfile(int s)
{
    far_begin(FAR_RECV, LEN + 5000, 0);
    in_little(sends_file, s);
    say(" far=%ld", (long)far_end().r);
}

static void *takes_by_pipe(void *arg)
{
    const int *s = arg;
    int p[2];
    must("pipe", pipe(p));
    say_result("from", splice(*s, NULL, p[1], NULL, 5000, 0));
    return NULL;
}

static void small_stack_splice(int s)
{
    far_do(FAR_SEND, 5000);
    await_octets(s, 5000);
    in_little(takes_by_pipe, s);
}

static void *connects(void *arg)
{
    (void)arg;
    int s = (int)must("connect", connect_to(sem_far_port));
    must("accept", far_do(FAR_ACCEPT, 0).r);
    say_result("send", send(s, octets, 100, 0));
    say(" far=%ld", (long)far_do(FAR_RECV, 100).r);
    far_do(FAR_SEND, 100);
    say_result("recv", recv(s, octets, 100, MSG_WAITALL));
    say_result("close", close(s));
    return NULL;
}

static void *accepts(void *arg)
{
    (void)arg;
    int s = (int)must("accept", accept(sem_listener, NULL, NULL));
    say_result("recv", recv(s, octets, 100, MSG_WAITALL));
    say_result("send", send(s, octets, 100, 0));
    say_result("shutdown", shutdown(s, SHUT_RDWR));
    say_result("close", close(s));
    return NULL;
}

static void small_stack_startup(int s)
{
    in_little(connects, s);
    must("connect", far_do(FAR_CONNECT, sem_port).r);
    far_begin(FAR_SEND, 100, 0);
    in_little(accepts, s);
    far_end();
}

const struct scenario sem_stack[] = {
    { "small_stack_send", small_stack_send },         { "small_stack_recv", small_stack_recv },
    { "small_stack_sendfile", small_stack_sendfile }, { "small_stack_splice", small_stack_splice },
    { "small_stack_startup", small_stack_startup },   { NULL, NULL },
};
