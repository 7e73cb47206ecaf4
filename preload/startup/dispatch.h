/*
 * The program's calls on a connection, whatever has become of it: startup under way, upgraded, plain with bytes left
 * over, dead.
 */
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
/* The startup is over: the shutdown that came before. Both turns held. */
void dispatch_shut_now(struct sock *s, int fd);
/* The last descriptor of this process goes (fd is it, or -1 if it is already gone). */
void dispatch_last_close(struct sock *s, int fd);
/* At exit: what was accepted from the program is sent, within SOCKWARP_LINGER_MS. */
void dispatch_settle_all(void);

#endif
