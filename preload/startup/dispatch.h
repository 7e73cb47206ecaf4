/* The program's calls on a connection in any state: startup under way, upgraded, plain with bytes left over, dead. */
#ifndef SW_PRELOAD_DISPATCH_H
#define SW_PRELOAD_DISPATCH_H

#include "preload/conn/conn.h"

/*
 * As recv(2) on an active sock, -errno instead of errno. CONN_ASK_KERNEL: it turned out plain, nothing was read: the
 * caller makes the real call.
 */
ssize_t dispatch_recv(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags);
/* As send(2) on an active sock; CONN_ASK_KERNEL likewise. */
ssize_t dispatch_send(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags);
/* shutdown(2) on an active sock: 0 or -errno. */
int dispatch_shutdown(struct sock *s, int fd, int how) SW_MUST;
/* The startup is over: carries out the shutdown that was put off. Both turns held. */
void dispatch_shut_now(struct sock *s, int fd);
/* The last descriptor of this process is about to be closed (fd; -1: it is already closed). */
void dispatch_last_close(struct sock *s, int fd);
/* At exit: sends all bytes that the program has written, within SOCKWARP_LINGER_MS. */
void dispatch_settle_all(void);

#endif
