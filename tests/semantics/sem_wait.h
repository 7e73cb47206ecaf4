/*
 * What the scenarios of readiness share: more connections, epoll sets, threads that wait.
 */
#ifndef SW_TESTS_PRELOAD_SEM_WAIT_H
#define SW_TESTS_PRELOAD_SEM_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "tests/semantics/sem.h"

/* ---- connections ---- */

/*
 * Another connection between the two ends, made as the first one; it is the far end's current one.
 */
int more(void);
/* The far end's i-th connection (0: the first) is the one meant from now on. */
void far_use(int i);
/* Sends len octets on the far end's i-th connection. */
void far_send_on(int i, int len);
/* A socket and the port it is bound to, on which no process listens. */
uint16_t dead_port(void);
/* A non-blocking connect() on fd. */
int connect_begin_to(int fd, uint16_t port);
/* An octet comes over s: what a scenario says nothing of comes to its end as well. */
void one_octet(int s);
int so_error(int s);
void set_lowat(int s, int octets);

/* ---- epoll ---- */

int ep_new(void);
/* Returns as epoll_ctl. */
int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data);
void ep_add(int ep, int fd, uint32_t events, uint64_t data);
void ep_mod(int ep, int fd, uint32_t events, uint64_t data);
void ep_del(int ep, int fd);
/*
 * Says " what=1:IN,2:IN|OUT", data and events, by data; or none; or how it failed. Returns the
 * count.
 */
int ep_say(const char *what, int ep, int timeout_ms);

/* ---- threads ---- */

struct waiter {
    pthread_t thread;
    volatile int tid;
    volatile bool over;
    int fd;       /* a socket, or an epoll descriptor */
    short events; /* of poll; 0: epoll_wait */
    int ms;
    int r, err;
    unsigned took_ms;
    uint32_t got;
    uint64_t data;
};

/* Both return when the thread sleeps (or is through). */
void wait_in_poll(struct waiter *w, int s, short events, int ms);
void wait_in_epoll(struct waiter *w, int ep, int ms);
/* Runs fn(arg) in a thread, and returns when it sleeps or is through. */
void in_thread(struct waiter *w, void *(*fn)(void *), void *arg);
/* Returns when the process, which has one thread, sleeps. */
void process_sleeps(pid_t pid);
/* Ends the wait; says what it gave. */
void wait_end(const char *what, struct waiter *w);

/* ---- signals ---- */

/* SIGUSR1 is blocked, has a handler that counts, and is pending. */
void signal_pending_now(void);
/* The CPU time of the process, in ms. */
unsigned cpu_ms(void);
/*
 * Says whether the CPU was left alone since then: a thread that spins would have used nearly all of
 * the time.
 */
void say_idle(unsigned since_cpu_ms, unsigned of_ms);

#endif
