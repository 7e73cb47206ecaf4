/*
 * Connections whose stream goes over an RDMA device: the endpoint of core/transport/verbs.h beside the program's TCP socket.
 *
 * The TCP connection carries the startup and its own end, and no octet of the stream. What arrives shows at the endpoint's
 * completion channel, a hidden descriptor, which joins whatever the program waits in.
 *
 * An endpoint belongs to the process that made it. A forked child, or the next program after exec, cannot use the connection:
 * its calls there fail with EOPNOTSUPP.
 *
 * Without libibverbs' and librdmacm's headers none of this is built, and no connection is ever on a device.
 */
#ifndef SW_PRELOAD_VERBS_H
#define SW_PRELOAD_VERBS_H

#include <errno.h>

#include "config.h"
#include "preload/conn/conn.h"

#if HAVE_VERBS

/* ---- device_setup.c ---- */

/*
 * What c can do beside software on its own TCP connection: HELLO_TRANSPORT_VERBS if this process has a device, for all that is
 * known; HELLO_TRANSPORT_MIXED if it can face an end of the other kind. An initiator's address is in c->local.
 */
uint8_t device_transport(struct conn *c);
/*
 * The responder's negotiation wants an offer (negotiate_wants_offer): makes one, or says that there is none. False: it does not, or
 * that is left to the process that uses the connection (conn_is_held).
 */
bool device_offer(struct sock *s, struct conn *c);
/* A step of the negotiation by the device, both turns held. True: it went on. */
bool device_step(struct sock *s, struct conn *c);
/* The negotiation is over, and the device is not used, or the connection is. Both turns held, or nobody has it any more. */
void device_drop(struct conn *c);
/* Its endpoint, be it still set up, is another process' than this one's. */
bool device_is_anothers(const struct conn *c);
/* The negotiation has agreed on the device: the stream begins. 0 or -errno. Both turns held. */
int device_begin(struct conn *c) SW_MUST;
/* What has to be waited for while endpoints are set up: readable, then device_setup_dispatch. -1: none are. */
int device_setup_fd(void);
/* step: of each startup that has one; as startup_go_on. */
void device_setup_dispatch(int (*step)(struct sock *s, bool brief));
void device_forked(void);
/* The transport in statistics: "verbs", or "mixed" if this end is software. */
const char *device_name(const struct conn *c);
/* Octets its endpoint has mapped. */
size_t device_conn_memory(const struct conn *c);

struct stats_record;
/* What its endpoint counted. */
void device_record(const struct conn *c, struct stats_record *r);

/* ---- device_io.c ---- */

/* The endpoint is this process'. */
bool device_is_ours(const struct conn *c);
/*
 * 0; -EOPNOTSUPP: the endpoint is another process'; -ENOTSOCK: the number is another file's by now, which no call to the kernel
 * would tell, since there is none.
 */
int device_usable(const struct conn *c, int fd);
/* Both ends have ended: shutdown(2) says ENOTCONN. No turn held. */
bool device_over(struct conn *c, int fd);
/* Its channel, or -1. */
int device_chan(const struct conn *c);
/* Takes in what has arrived, rx held. 1: something, 0. */
int device_rx(struct conn *c, int fd);
/* The same as a receive on the socket: > 0 something; 0 the end; -EAGAIN; -ESHUTDOWN after SHUT_RD. rx held. */
ssize_t device_fill(struct conn *c, int fd);
/* Waits for more, as long as the program's recv would. 0: look again; -errno. rx held. */
ssize_t device_wait_more(struct sock *s, struct conn *c, int fd);
/* Waits for something to arrive, no turn held. 0: look again; -errno. */
int device_await(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns);
/* A recv is over: the peer is told what it may send, and what comes next shows in epoll sets. rx held. */
void device_after_recv(struct sock *s, struct conn *c, int fd);
/* send(2) on it, tx held. */
ssize_t device_send(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, bool wait);
/* As conn_tx_flush. tx held. */
int device_tx_flush(struct conn *c);
/* Takes in credits that a tail waits for. No turn held. */
void device_tail(struct sock *s, int fd);
/* The same for an end that is owed. True: it is still. */
bool device_goes_on(struct sock *s, int fd);
/* The kernel tells of an error: the connection was reset. */
void device_was_reset(struct conn *c, int fd);
/* The program has closed its last descriptor, or exits: what it sent gets to the peer, within linger_ms. */
void device_close(struct sock *s, struct conn *c, int fd, uint32_t linger_ms);

/* ---- device_ready.c ---- */

/* As ready_now. */
short device_ready(struct sock *s, int fd, short want, short kernel, short *ask);

#else

static inline uint8_t device_transport(struct conn *c)
{
    (void)c;
    return 0;
}
static inline bool device_offer(struct sock *s, struct conn *c)
{
    (void)s, (void)c;
    return false;
}
static inline bool device_step(struct sock *s, struct conn *c)
{
    (void)s, (void)c;
    return false;
}
static inline void device_drop(struct conn *c)
{
    (void)c;
}
static inline bool device_is_anothers(const struct conn *c)
{
    (void)c;
    return false;
}
static inline int device_setup_fd(void)
{
    return -1;
}
static inline void device_setup_dispatch(int (*step)(struct sock *s, bool brief))
{
    (void)step;
}
static inline void device_forked(void)
{
}
/* Behind conn_on_device: calls that are never made. */
static inline int device_begin(struct conn *c)
{
    (void)c;
    return -EOPNOTSUPP;
}
static inline const char *device_name(const struct conn *c)
{
    (void)c;
    return "verbs";
}
static inline int device_usable(const struct conn *c, int fd)
{
    (void)c, (void)fd;
    return -EOPNOTSUPP;
}
static inline int device_chan(const struct conn *c)
{
    (void)c;
    return -1;
}
static inline int device_await(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns)
{
    (void)s, (void)c, (void)fd, (void)deadline_ns;
    return -EOPNOTSUPP;
}
static inline int device_tx_flush(struct conn *c)
{
    (void)c;
    return -EOPNOTSUPP;
}
static inline void device_tail(struct sock *s, int fd)
{
    (void)s, (void)fd;
}
static inline void device_close(struct sock *s, struct conn *c, int fd, uint32_t linger_ms)
{
    (void)s, (void)c, (void)fd, (void)linger_ms;
}
static inline short device_ready(struct sock *s, int fd, short want, short kernel, short *ask)
{
    (void)s, (void)fd, (void)want, (void)kernel, (void)ask;
    return 0;
}

#endif

#endif
