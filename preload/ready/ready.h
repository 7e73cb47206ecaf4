/*
 * Readiness of one descriptor as poll(2) would show it: the kernel's view of the TCP socket, filtered by ours.
 */
#ifndef SW_PRELOAD_READY_H
#define SW_PRELOAD_READY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "preload/sock/sock.h"

/*
 * What poll would report on s for `want` (POLLIN, POLLOUT …), given what the kernel reports now (`kernel`, 0 if not
 * asked yet). *ask: the events to wait for in the kernel if the answer is 0. Takes turns briefly; does not wait.
 */
short ready_now(struct sock *s, int fd, short want, short kernel, short *ask);

/*
 * After ready_now outside epoll: what came in by it the kernel has told this thread alone. Epoll sets and other threads
 * in poll look again.
 */
void ready_arrived(struct sock *s);
/* The same from epoll, which has seen to the sets itself. */
void ready_told(struct sock *s);

/*
 * A program's timeout in ns, -1: for ever (also NULL, and what no clock will reach). False: it is
 * none, the kernel says so.
 */
bool ready_timeout(const struct timespec *ts, int64_t *ns);
/* Can its signal mask be read? (NULL is no mask.) */
bool ready_mask(const sigset_t *mask);

#endif
