/*
 * What a queue pair offers the stream: the one interface the software endpoint (iwarp/), a device
 * (transport/verbs), shared memory and tests implement.
 *
 * An endpoint is sans-IO for its user: posting queues frames or work requests, polling yields events
 * of what has already arrived. Its owner moves octets between it and the kernel.
 * Used under the owner's locks: one for everything posted (tx), one for poll and release (rx); an
 * implementation must allow one thread in each at the same time.
 */
#ifndef SW_ENDPOINT_H
#define SW_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/iov.h"
#include "core/base/must.h"

struct endpoint;

enum endpoint_event_type {
    ENDPOINT_SEND = 1,   /* a whole Send message: data, len. Software may hand it over in its buffer. */
    ENDPOINT_WRITE,      /* deferred ring only: octets of an RDMA Write, valid and in order: to, data, len */
    ENDPOINT_TERMINATED, /* the peer sent a Terminate, or a device error: nothing more will come */
    ENDPOINT_IMMEDIATE,  /* RFC 7306 Immediate Data: data, always 8 octets; counts as a Send in the order */
};

struct endpoint_event {
    enum endpoint_event_type type;
    const uint8_t *data; /* borrowed until endpoint_ops.release passes it */
    size_t len;
    uint64_t to; /* ENDPOINT_WRITE: tagged offset of data[0] */
    /*
     * data lies behind that of the event before, if that is not yet released, and nothing between the two is needed: the
     * holder may move it down. Else, what comes from this event on is not moved to what came before it.
     */
    bool in_place;
    bool placed;          /* WRITE: data is where the ULP had asked for it, its own; nothing to release */
    bool solicited;       /* SEND, IMMEDIATE: the peer wants an event for it (RFC 5040 section 5.3) */
    uint32_t invalidated; /* SEND: the STag that it has invalidated; 0: none */
};

struct endpoint_ops {
    const char *name; /* "iwarp", "verbs", "shm", "mem": the transport in statistics */

    /* Most octets one post_write, one post_send (header included) takes. */
    size_t (*write_max)(const struct endpoint *ep);
    size_t (*send_max)(const struct endpoint *ep);

    /*
     * Posts one RDMA Write message of the next len octets of src to (stag, to), or one Send of hdr
     * followed by the next len octets of src. src is advanced only on success. The octets of src must
     * stay unchanged until the owner has flushed the endpoint (software) or the call copies (device).
     * 0; -EAGAIN: queue full, flush first; -EPIPE: the endpoint is terminated.
     */
    int (*post_write)(struct endpoint *ep, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len);
    int (*post_send)(struct endpoint *ep, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len);

    /*
     * Posts 8 octets of Immediate Data (RFC 7306 section 6), with or without Solicited Event. As
     * post_send. May be NULL: there is no such thing.
     */
    int (*post_immediate)(struct endpoint *ep, uint64_t data, bool solicited);

    /* 1 with *ev, 0 if nothing whole has arrived, -EPROTO after a protocol error of the peer. */
    int (*poll)(struct endpoint *ep, struct endpoint_event *ev);

    /* All event data up to and including the octet before `upto` has been used. */
    void (*release)(struct endpoint *ep, const uint8_t *upto);
    /*
     * Each event's data lies in a buffer of its own: release gives back that one alone, in any order, and before the
     * peer is told that it may use it again.
     */
    bool each_alone;

    /*
     * All event data not released was in_place, and its holder has moved it together: the len octets (> 0) at *p. To
     * make room for more it is moved to *p. False: not worth it, nothing has changed. NULL: it does no such thing.
     */
    bool (*pack)(struct endpoint *ep, const uint8_t **p, size_t len);
};

/*
 * The operations are named by their distance from an object of the library, not by their address: an
 * endpoint may lie in memory that programs share which have the library at different places.
 */
struct endpoint {
    ptrdiff_t ops_off;
};

extern const char endpoint_anchor;

static inline const struct endpoint_ops *endpoint_ops(const struct endpoint *ep)
{
    return (const struct endpoint_ops *)((uintptr_t)&endpoint_anchor + (uintptr_t)ep->ops_off);
}

static inline void endpoint_init(struct endpoint *ep, const struct endpoint_ops *ops)
{
    ep->ops_off = (ptrdiff_t)((uintptr_t)ops - (uintptr_t)&endpoint_anchor);
}

#endif
