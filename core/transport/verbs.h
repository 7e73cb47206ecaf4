/*
 * An endpoint on an RDMA device: a queue pair of libibverbs, connected by librdmacm (DESIGN section 6).
 *
 * An initiator connects to an address of the peer's device, a responder expects one certain initiator, which shows a
 * one-time token. In the connection manager's private data each side tells where its ring is and how many receive
 * buffers it has; nothing else is agreed here.
 *
 *   initiator   RESOLVING --address--> ROUTING --route--> CONNECTING --established--> UP
 *   responder   EXPECTING --request with the token, accepted--> ACCEPTING --established--> UP
 *                    any --rejected, error, time, device removed--> DOWN
 *
 * All endpoints of a process share the connection manager's channel, and those of one device its context and protection
 * domain.
 *
 * The initiator speaks first, and not before the responder is UP, which its owner has to tell: siw's responder answers
 * before it looks at what comes, and would leave a first message lying until another one comes.
 *
 * There is no thread: a caller that waits for verbs_cm_fd() calls verbs_cm_dispatch(). A completion channel for each
 * endpoint (verbs_fd) wakes the caller that waits for its messages.
 *
 * Memory of an endpoint: its ring, receive buffers and send staging, mapped and registered when the device is known:
 * verbs_memory() says how much. Nothing is allocated later.
 *
 * Threads: one on the send side (post_*, flush, fence), one on the receive side (poll, release) at a time; the two
 * sides have each a completion queue of their own. Everything is the process' that made it: a child has to call
 * verbs_after_fork().
 */
#ifndef SW_TRANSPORT_VERBS_H
#define SW_TRANSPORT_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/must.h"
#include "core/endpoint.h"

#define VERBS_TOKEN_LEN 16u

/* What it needs of its surroundings; preload fills it in, tests their own. */
struct verbs_env {
    int (*hide_fd)(int fd);    /* moves a descriptor out of the program's way; returns its new number */
    void (*reveal_fd)(int fd); /* a library is about to close it */
    void (*close_fd)(int fd);  /* closes it */
    void (*hold)(void);        /* between the two no signal handler of the program's runs in this thread; or NULL */
    void (*go_on)(void);
    const char *device; /* only this one; NULL, "": any */
};

/*
 * Is there a device in /sys/class/infiniband (of that name, unless NULL or "")? Costs a look into a folder; loads
 * nothing.
 */
bool verbs_present(const char *device);

/*
 * Loads the libraries and opens the connection manager, once. env is kept. 0, or -errno with *why: what is missing.
 * -ENOTSUP: this process was forked from one that used a device, and the libraries do not follow that.
 */
int verbs_setup(const struct verbs_env *env, const char **why) SW_MUST;

/* iWARP devices reach each other and software that speaks it, those of InfiniBand and RoCE each other. */
enum verbs_kind { VERBS_KIND_NONE, VERBS_KIND_IWARP, VERBS_KIND_IB };

/*
 * The device that has this address (its port is left out), of those that are wanted. Loads nothing: after verbs_setup.
 */
enum verbs_kind verbs_kind_at(const struct sockaddr *local);

/*
 * The address alone of local, as a device has it: without port, and IPv4 in IPv6 clothes is IPv4. Its length; 0: it is
 * neither IPv4 nor IPv6.
 */
socklen_t verbs_address(const struct sockaddr *local, struct sockaddr_storage *out);

enum verbs_state {
    VERBS_IDLE,
    VERBS_EXPECTING,
    VERBS_RESOLVING,
    VERBS_ROUTING,
    VERBS_CONNECTING,
    VERBS_ACCEPTING,
    VERBS_UP,
    VERBS_DOWN, /* verbs_why says why */
};

struct verbs_cfg {
    uint32_t ring_len;  /* memory the peer writes to */
    uint32_t msg_max;   /* longest message received: the stream's header and payload */
    uint16_t bufs;      /* receive buffers, each msg_max */
    uint32_t tx_len;    /* send staging; at least 4 of write_max, and of msg_max */
    uint32_t write_max; /* longest RDMA Write */
    uint8_t token[VERBS_TOKEN_LEN];
};

#define VERBS_FENCE_LEN 8u

/* What a side told the other one. */
struct verbs_side {
    uint32_t ring_stag;
    uint32_t ring_len;
    uint32_t fence_stag; /* of the 8 octets behind the ring, which the other side may read, and nothing else */
    uint32_t msg_max;
    uint16_t bufs;
};

struct verbs_stats { /* each written by one side only; read from anywhere */
    uint64_t tx_sends, tx_writes, tx_wrs;
    uint64_t rx_sends, rx_empty;
    uint64_t doorbells; /* calls of the device's post_send */
    uint64_t errors;
};

struct verbs_ep;

/* NULL: no memory. cfg is copied. */
struct verbs_ep *verbs_new(const struct verbs_cfg *cfg);
/* Takes it down and frees it, whatever state it is in. NULL is allowed. */
void verbs_free(struct verbs_ep *ep);

/*
 * Initiator: begins to connect to peer, an address and port of len octets that its verbs_expect told; the route chooses
 * the device. A local port that turns out to be taken is replaced by another one. 0, or -errno.
 */
int verbs_connect(struct verbs_ep *ep, const struct sockaddr *peer, socklen_t len, unsigned timeout_ms) SW_MUST;
/*
 * Responder: an initiator that shows cfg.token may connect to *at from now on: the device that has the address local,
 * of this kind, and a port of ours there. 0; -ENODEV: no device has that address; other -errno.
 */
int verbs_expect(struct verbs_ep *ep, const struct sockaddr *local, struct sockaddr_storage *at,
                 enum verbs_kind *kind) SW_MUST;

/* Readable when the connection manager has something to tell; -1: nothing was set up. */
int verbs_cm_fd(void);
/* Takes all it has to tell, does not wait. True: some endpoint's state has changed. Any thread. */
bool verbs_cm_dispatch(void);

/* Any thread. */
enum verbs_state verbs_state(const struct verbs_ep *ep);
/* A word on why it is DOWN, or what is under way. */
const char *verbs_why(const struct verbs_ep *ep);
/* DOWN, since its memory could not be registered? */
bool verbs_no_memory(const struct verbs_ep *ep);
/* UP: the device's name; else "". */
const char *verbs_device(const struct verbs_ep *ep);
/* UP: what the two sides told each other, and our ring. */
struct verbs_side verbs_local(const struct verbs_ep *ep);
struct verbs_side verbs_peer(const struct verbs_ep *ep);
uint8_t *verbs_ring(struct verbs_ep *ep);
/* Octets mapped for it: what it uses, whatever its peer does. */
size_t verbs_memory(const struct verbs_ep *ep);
const struct verbs_stats *verbs_stats(const struct verbs_ep *ep);
struct endpoint *verbs_endpoint(struct verbs_ep *ep);

/* ---- UP: sleeping ---- */

/* The completion channel's descriptor: readable when a side that was armed has something. -1 before UP. */
int verbs_fd(const struct verbs_ep *ep);
/*
 * From now on verbs_fd tells of the next thing that arrives (rx: messages, the end; !rx: room for more posts). What has
 * arrived before it does not: so poll, or try to post, once more behind it.
 */
void verbs_arm(struct verbs_ep *ep, bool rx);
#define VERBS_TOLD_RX 1u
#define VERBS_TOLD_TX 2u
/* Takes what verbs_fd has told, without waiting: VERBS_TOLD_*. Those sides are not armed any more. Any thread. */
unsigned verbs_drain(struct verbs_ep *ep);

/* ---- UP: receive side; messages come by verbs_endpoint's poll, whose data may be released in any order ---- */

/* Nothing will come any more: the peer has gone, or the device failed; all that came before has been polled. */
bool verbs_ended(const struct verbs_ep *ep);

/* ---- UP: send side ---- */

/* Is there room for more than a little? */
bool verbs_may_post(struct verbs_ep *ep);
/* Hands what was posted to the device: posting alone only queues. 0 or -EPIPE. */
int verbs_flush(struct verbs_ep *ep) SW_MUST;
/*
 * Asks the peer's device whether all that was flushed has arrived in its memory, by an RDMA Read behind it, which is
 * answered without the peer's program. (A completed Send or Write says less on iWARP: that TCP has it.) 0; -EAGAIN: no
 * room in the queue yet; -EPIPE. Once: later calls do nothing.
 */
int verbs_fence(struct verbs_ep *ep) SW_MUST;
/* 1: it has; 0: not yet; -EPIPE: it never will. */
int verbs_fence_done(struct verbs_ep *ep);

/* ---- ---- */

/*
 * In the child of a fork: all endpoints are the parent's, their descriptors are closed here. verbs_free does nothing
 * for them.
 */
void verbs_after_fork(void);

extern const struct endpoint_ops verbs_endpoint_ops; /* name "verbs" */

#endif
