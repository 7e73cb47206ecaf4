/*
 * What carries an upgraded connection's stream, if not its own TCP connection in software: what conn_*.c asks of it. The table is
 * another room's, above this one (device_setup.c: RDMA devices).
 */
#ifndef SW_PRELOAD_CONN_OPS_H
#define SW_PRELOAD_CONN_OPS_H

#include "config.h"
#include "preload/conn/conn.h"

struct stats_record;

struct conn_ops {
    /* The transport in statistics. */
    const char *(*name)(const struct conn *c);
    /* Octets it has mapped for c. */
    size_t (*memory)(const struct conn *c);
    /* What it counted. */
    void (*record)(const struct conn *c, struct stats_record *r);
    /* It is not used, or the connection is over. Both turns held, or nobody has it any more. */
    void (*drop)(struct conn *c);

    /* Takes in what has arrived, rx held. 1: something, 0. */
    int (*rx)(struct conn *c, int fd);
    /* The same as a receive on the socket: > 0 something; 0 the end; -EAGAIN; -ESHUTDOWN after SHUT_RD. rx held. */
    ssize_t (*fill)(struct conn *c, int fd);
    /* Waits for more, as long as the program's recv would. 0: look again; -errno. rx held. */
    ssize_t (*wait_more)(struct sock *s, struct conn *c, int fd);
    /* Waits for something to arrive, no turn held. 0: look again; -errno. */
    int (*await)(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns);
    /* A recv is over: the peer is told what it may send, and what comes next shows in epoll sets. rx held. */
    void (*after_recv)(struct sock *s, struct conn *c, int fd);

    /* send(2) on it, tx held. */
    ssize_t (*send)(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, bool wait);
    /* As conn_tx_flush. tx held. */
    int (*flush)(struct conn *c);

    /* Both ends have ended: shutdown(2) says ENOTCONN. No turn held. */
    bool (*over)(struct conn *c, int fd);
    /* Takes in credits that an end waits for which is owed. True: it is still. No turn held. */
    bool (*goes_on)(struct sock *s, int fd);
};

#if HAVE_VERBS
extern const struct conn_ops device_ops;

/* Something of c's is a device's, be it still set up. */
static inline bool conn_has_device(const struct conn *c)
{
    return c->vep != NULL || c->mixed != NULL;
}
#else
static const struct conn_ops device_ops; /* (asked for nothing) */

static inline bool conn_has_device(const struct conn *c)
{
    (void)c;
    return false;
}
#endif

#endif
