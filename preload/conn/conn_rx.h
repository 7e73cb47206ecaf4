/*
 * Receiving on an active connection.
 */
#ifndef SW_PRELOAD_CONN_RX_H
#define SW_PRELOAD_CONN_RX_H

#include "preload/conn/conn.h"

/* As recv(2), once it is decided what c is, -errno instead of errno; CONN_ASK_KERNEL as dispatch_recv. No turn held. */
#define CONN_ASK_KERNEL (-(ssize_t)0x10000)
ssize_t conn_recv_decided(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool *waits);
/*
 * The call is about to wait. For a close of the descriptor it counts as being in the kernel from then to its end, also
 * while it looks at what came and finds no byte of the program's.
 */
void conn_begins_to_wait(struct sock *s, bool *waits);
/*
 * Takes in what the kernel has without waiting (if `fill`), and decodes. rx held. Returns 1: readable (bytes, end or
 * error) or 0.
 */
int conn_rx_progress(struct conn *c, int fd, bool fill);
/* The same, until the kernel has nothing or staging is full. rx held. */
void conn_rx_all(struct conn *c, int fd);
/*
 * After either, without a turn: if the RTR has come, tells the waiters. A set in which only writability is asked for,
 * and another thread's poll for output, wait for input until they are told.
 */
void conn_rtr_told(struct sock *s);
/* FIONREAD's value: the bytes that a read would give, those in the kernel included. Takes rx. */
int conn_rx_waiting(struct sock *s, int fd);
/* Bytes that are there, an urgent one among them; rx held. */
size_t conn_rx_avail(const struct conn *c);

#endif
