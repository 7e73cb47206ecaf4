/*
 * Urgent data (MSG_OOB, SO_OOBINLINE) on an upgraded connection.
 */
#ifndef SW_PRELOAD_CONN_URGENT_H
#define SW_PRELOAD_CONN_URGENT_H

#include "preload/conn/conn.h"

/* As recv(2) with MSG_OOB on an upgraded connection. */
ssize_t conn_recv_urgent(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags);
/*
 * A read stops before the urgent byte, and if it begins there it passes over it, unless that is read in its place
 * (SO_OOBINLINE). done: bytes read by this call; passed: what a look has passed over. Cuts *can to what may be given
 * now; false: nothing more. rx held, FULL.
 */
bool conn_rx_to_mark(struct conn *c, size_t done, size_t *passed, size_t *can, int flags);
/* Is the next byte the urgent one, read out of band or not? rx held. */
bool conn_rx_at_mark(const struct conn *c);
/* FIONREAD's value: the bytes up to the mark. rx held. */
size_t conn_rx_count(const struct conn *c);
/* The number of bytes from which it is readable. rx held. */
size_t conn_rx_target(const struct conn *c);
/* Does the kernel have an urgent byte of fd's that is not read yet? */
bool conn_kernel_urgent(int fd);
/* A handler asked for the urgent byte meanwhile (urgent_told): does the call it has interrupted end by EINTR? */
bool conn_urgent_interrupts(struct conn *c, int fd);

#endif
