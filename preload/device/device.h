/*
 * Connections whose stream goes over an RDMA device: the endpoint of core/transport/verbs.h beside the program's TCP
 * socket. This header is for their startup; an upgraded one is used through the table of conn_ops.h.
 *
 * The TCP connection carries the startup and its own end, and no byte of the stream. What arrives shows at the
 * endpoint's completion channel, a hidden descriptor, which joins whatever the program waits in.
 *
 * An endpoint belongs to the process that made it. A forked child, or the next program after exec, cannot use the
 * connection: its calls there fail with EOPNOTSUPP.
 *
 * Without libibverbs' and librdmacm's headers none of this is built, and no connection is ever on a device.
 */
#ifndef SW_PRELOAD_DEVICE_H
#define SW_PRELOAD_DEVICE_H

#include <errno.h>

#include "config.h"
#include "preload/conn/conn.h"

#if HAVE_VERBS

/*
 * The transports that c can use besides software on its own TCP connection: HELLO_TRANSPORT_VERBS if this process has a
 * device, as far as is known; HELLO_TRANSPORT_MIXED if it can work with an end of the other kind. An initiator's
 * address is in c->local.
 */
uint8_t device_transport(struct conn *c);
/*
 * The responder's negotiation wants an offer (negotiate_wants_offer): makes one, or says that there is none. False: the
 * negotiation wants none, or the process that uses the connection has to make it (conn_is_held).
 */
bool device_offer(struct sock *s, struct conn *c);
/* A step of the negotiation through the device. The caller holds both turns. True: the negotiation went on. */
bool device_step(struct sock *s, struct conn *c);
/*
 * The negotiation is over and the device is not used, or the connection is over. The caller holds both turns, or no
 * process has the connection any more.
 */
void device_drop(struct conn *c);
/* Does the endpoint, even one still being set up, belong to a process other than this one? */
bool device_is_anothers(const struct conn *c);
/* The negotiation has agreed on the device: the stream begins. The caller holds both turns. 0 or -errno. */
int device_begin(struct conn *c) SW_MUST;
/*
 * The descriptor to wait for while endpoints are set up: when it is readable, call device_setup_dispatch. -1: none are.
 */
int device_setup_fd(void);
/* step: called for each startup that has an endpoint; as startup_go_on. */
void device_setup_dispatch(int (*step)(struct sock *s, bool brief));
void device_forked(void);
/* Does c have anything of a device's, even an endpoint still being set up? */
bool device_has(const struct conn *c);

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
static inline bool device_has(const struct conn *c)
{
    (void)c;
    return false;
}
/* Never called. */
static inline int device_begin(struct conn *c)
{
    (void)c;
    return -EOPNOTSUPP;
}

#endif

#endif
