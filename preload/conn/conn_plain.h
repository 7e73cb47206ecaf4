/* The program's bytes on a connection in streaming mode, as the kernel's calls would move them. */
#ifndef SW_PRELOAD_CONN_PLAIN_H
#define SW_PRELOAD_CONN_PLAIN_H

#include "preload/conn/conn.h"

/*
 * What follows bytes that were kept from the startup: up to most that the kernel has by now, but need at least, for
 * which it waits as the program's recv would. rx held; cancellation is off. How many; an error is kept for the next
 * call (conn.so_error).
 */
size_t conn_recv_rest_plain(struct sock *s, int fd, const struct iov_iter *it, size_t need, size_t most, int flags);
/* Gives at most `most` of the next bytes to the kernel as they are. Returns the number sent, or -errno. */
ssize_t conn_send_some(int fd, struct iov_iter *it, size_t most, int flags);
/* The same, behind these octets; they count. */
ssize_t conn_send_behind(int fd, const uint8_t *lead, size_t lead_len, struct iov_iter *it, size_t most, int flags);
/* As conn_send on a plain connection, by waiting in poll: see conn_ring_busy. deadline_ns: of the call. */
ssize_t conn_send_plain(int fd, struct iov_iter *it, size_t len, int flags, uint64_t deadline_ns);
/* -EPIPE, with the signal if flags do not forbid it. */
ssize_t conn_broken_pipe(int flags);

#endif
