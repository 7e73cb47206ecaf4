/*
 * An upgraded connection on a device: what device_*.c share, and what their table for conn_ops.h consists of. Where
 * that has an operation of the same name, it says what the function does.
 */
#ifndef SW_PRELOAD_DEVICE_IO_H
#define SW_PRELOAD_DEVICE_IO_H

#include "preload/conn/conn.h"

/* ---- device_io.c ---- */

/* The endpoint belongs to this process. */
bool device_is_ours(const struct conn *c);
/*
 * -EOPNOTSUPP: the endpoint belongs to another process; -ENOTSOCK: the number is another file's by now. No call to the
 * kernel would report that, since none is made.
 */
int device_usable(const struct conn *c, int fd);
void device_decode(struct conn *c, int fd);
/* A receive: > 0: something came; 0: the end; -EAGAIN; -ESHUTDOWN after SHUT_RD. The caller holds rx. */
ssize_t device_fill(struct conn *c, int fd);
ssize_t device_wait_more(struct sock *s, struct conn *c, int fd, size_t most, bool *waits);
int device_await(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns);
/* Tells the peer how much it may send, and makes epoll sets report what arrives next. The caller holds rx. */
void device_after_recv(struct sock *s, struct conn *c, int fd);
ssize_t device_send(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                    const struct signals_mark *ran);
int device_flush(struct conn *c, int fd);
/* Takes in credits for which a tail waits. The caller holds no turn. */
void device_before_tail(struct sock *s, int fd);
bool device_end_owed(struct sock *s, int fd);
bool device_over(struct conn *c, int fd);
/* The kernel reports an error: the connection was reset. */
void device_was_reset(struct conn *c, int fd);
/*
 * Makes sure that the peer gets what was sent, within SOCKWARP_LINGER_MS. It asks the peer's device, because no kernel
 * holds bytes of ours that it would send without us.
 */
void device_close(struct sock *s, struct conn *c, int fd, bool exits);
int device_chan(const struct conn *c);

/* ---- device_ready.c ---- */

short device_ready(struct sock *s, int fd, short want, short kernel, short *ask);
/* The end of the TCP connection; the channel reports the stream's events. */
uint32_t device_kernel_events(const struct conn *c, uint32_t events);

#endif
