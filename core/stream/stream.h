/*
 * A byte stream over RDMA messages (our own ULP): small writes as one Send, large ones as RDMA
 * Writes into the peer's ring followed by a Send that says how far the stream reaches.
 *
 * Receive path: transport -> mpa -> ddp -> rdmap -> [stream] -> recv().
 *
 * Sans-IO over an endpoint. Two threads may be in one stream: one reading (poll, read, peek, avail
 * …: the endpoint's receive side), one writing (write, fin …: the endpoint's send side). In credit
 * mode the two halves pass numbers through atomics.
 */
#ifndef SW_STREAM_STREAM_H
#define SW_STREAM_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/iov.h"
#include "core/base/must.h"
#include "core/endpoint.h"

#define STREAM_HDR_LEN 16u

enum stream_type { STREAM_DATA = 1, STREAM_CREDIT = 2, STREAM_FIN = 3, STREAM_RESET = 4 };

/* flags: this CREDIT only answers the peer's, and is not answered itself */
#define STREAM_HDR_ANSWER 1u
/* this DATA's last octet is urgent (RFC 9293 section 3.8.5); only to peers with STREAM_FLAG_URGENT */
#define STREAM_HDR_URGENT 2u

struct stream_hdr {
    uint8_t type;  /* enum stream_type */
    uint8_t flags; /* STREAM_HDR_* */
    uint16_t bufs; /* receive buffers of all but CREDITs returned so far, mod 2^16 */
    uint32_t off;  /* stream offset after this message's octets and all Writes before, mod 2^32 */
    uint32_t ring; /* ring octets consumed so far, mod 2^32 */
    uint32_t aux;  /* RESET: the reason; else CREDITs received so far, no answers, mod 2^32 */
};

void stream_hdr_encode(const struct stream_hdr *h, uint8_t buf[STREAM_HDR_LEN]);
/* -EMSGSIZE below 16 octets, -EPROTO for an unknown type. */
int stream_hdr_decode(const uint8_t *buf, size_t len, struct stream_hdr *out) SW_MUST;

/* MPA private data of ours: what each side offers. 16 octets. */
#define STREAM_PARAMS_LEN 16u
#define STREAM_FLAG_LLP 1u       /* flow control by the LLP */
#define STREAM_FLAG_IMMEDIATE 2u /* the notify may be Immediate Data (RFC 7306) */
#define STREAM_FLAG_URGENT 4u    /* takes STREAM_HDR_URGENT */
/*
 * The stream goes over a device's connection that was made beside this one, with what was agreed there, if both say so.
 */
#define STREAM_FLAG_DEVICE 8u
#define STREAM_RING_MIN 4096u
#define STREAM_RING_MAX 0x40000000u

struct stream_params {
    uint8_t version; /* 1 */
    uint8_t flags;   /* STREAM_FLAG_* */
    uint32_t ring_stag;
    uint32_t ring_len;
    uint16_t eager_max; /* largest payload of a Send, stream header not counted */
    uint16_t bufs;      /* receive buffers */
};

void stream_params_encode(const struct stream_params *p, uint8_t buf[STREAM_PARAMS_LEN]);
/* -EMSGSIZE, -EPROTO (no 'SW', unknown version, senseless sizes). */
int stream_params_decode(const uint8_t *buf, size_t len, struct stream_params *out) SW_MUST;

#define STREAM_SLICES 256u                       /* validated runs of octets waiting to be read; then polling pauses */
#define STREAM_SLICE_FIRST (STREAM_SLICES - 16u) /* the first one of a row */
#define STREAM_BATCH 64u                         /* messages posted between two flushes of the endpoint */
/*
 * Credits: receive buffers of the peer kept back for control messages: one for a CREDIT, of which
 * only one at a time may be unanswered, one for an answer. So there is always room for both,
 * whatever the program on the other side leaves unread, and what one side returns can always be
 * told.
 */
#define STREAM_BUFS_KEPT 2u

struct stream_slice {
    const uint8_t *p;
    const uint8_t *upto; /* to release when the slice is used up; NULL: nothing (ring memory) */
    uint32_t len;
    uint32_t bufs; /* credits: receive buffers that come back with it */
    bool in_place; /* as endpoint_event's */
};

struct stream_cfg {
    struct endpoint *ep;
    struct stream_params local, peer;
    uint8_t *ring;        /* credits: memory behind local.ring_stag; NULL when deferred (LLP mode) */
    uint32_t write_limit; /* longest RDMA Write, one segment's payload; 0: the endpoint's */
    uint32_t eager_limit; /* writes above this go as RDMA Writes; clamped to peer.eager_max */
};

/* An urgent octet: there is none; it was not read out of band; it was, and its place is still ahead. */
enum stream_urgent { STREAM_URGENT_NONE, STREAM_URGENT_VALID, STREAM_URGENT_READ };

enum stream_rx_end { STREAM_OPEN, STREAM_EOF, STREAM_RESET_BY_PEER, STREAM_BROKEN };

struct stream {
    struct { /* receive side */
        /*
         * First, not set up, and begun near its end: of a connection that is idle these pages are not touched. What is
         * in use otherwise lies together, with what a structure around this one has before it.
         */
        struct stream_slice slice[STREAM_SLICES];
        uint32_t first, n;      /* slices in use, from first */
        uint64_t off;           /* stream octets received (placed or sliced), LLP: of both kinds */
        uint64_t ring_to;       /* ring octets received (LLP) or announced by notify (credits) */
        uint64_t ring_used;     /* credits: ring octets the program consumed */
        uint64_t avail;         /* octets ready to be read */
        uint64_t total;         /* octets the program read */
        uint64_t placed;        /* of these, what the endpoint put where it belongs */
        uint32_t bufs_used;     /* credits: receive buffers that came to be used, but by CREDITs */
        uint32_t bufs_back;     /* credits: receive buffers returned (CREDITs' are not counted) */
        uint8_t end;            /* enum stream_rx_end, once the slices are used up */
        _Atomic uint8_t urgent; /* enum stream_urgent; read by any as a hint */
        uint8_t urgent_octet;
        _Atomic bool urgent_inline; /* the owner's: it is read in its place like any other */
        uint64_t urgent_at;         /* its place among the octets read (total) */
        uint64_t urgent_taken; /* the owner's: the place behind an urgent octet it has read before it was polled, 0 */
    } rx;

    struct stream_cfg cfg;
    bool llp;
    /*
     * Both say so, and no credits have to be told (8 octets have no room for them): the notify is
     * Immediate Data with Solicited Event, the stream's offset behind the Writes in 64 bits.
     */
    bool immediate;

    struct {              /* send side */
        uint64_t off;     /* stream octets posted */
        uint64_t ring_to; /* ring octets posted */
        uint64_t total;   /* octets accepted from the program */
        uint32_t sends;   /* credits: receive buffers used, but by CREDITs */
        bool fin;         /* FIN was posted */
        bool notify_owed; /* Writes were posted and no Send after them yet */
        bool owed_before; /* so it was when the batch was empty */
        /* messages posted since the endpoint was last flushed, for stream_unpost */
        struct {
            uint32_t len; /* octets of the program in it */
            uint8_t type; /* enum stream_type; 0: an RDMA Write */
            uint8_t flags;
            uint16_t told_bufs; /* what the peer had been told before this message */
            uint32_t told_ring, told_credits;
        } batch[STREAM_BATCH];
        uint32_t batch_n;
    } tx;

    /* credits: what the peer returned, stored by the receive side, read by the send side */
    _Atomic uint32_t peer_bufs, peer_ring, peer_credits;
    /* credits: what we returned, stored by the receive side, put into headers by the send side */
    _Atomic uint32_t back_bufs, back_ring, back_credits;
    /*
     * credits: the last of these put into a header; CREDITs posted that want an answer; stored by
     * the send side
     */
    _Atomic uint32_t told_bufs, told_ring, told_credits, sent_credits;
};

/*
 * -EINVAL if the two sides' parameters do not go together, or are outside what stream_params_decode
 * takes.
 */
int stream_init(struct stream *st, const struct stream_cfg *cfg) SW_MUST;

/* ---- receive side ---- */

/*
 * Takes what the endpoint has. Returns 1 if the readable state may have changed, 0 if nothing whole
 * is there, -EPROTO if the peer broke the protocol (rx.end is then STREAM_BROKEN; call iwarp_fail
 * or the like to tell the peer). After a Terminate of the peer, or an end that was not clean,
 * nothing more is taken.
 */
int stream_poll(struct stream *st) SW_MUST;
/*
 * Polling pauses because too much waits to be read: the endpoint may still have whole messages.
 * Read, then poll again before waiting for the pipe, or asking whether it ended on a message
 * boundary.
 */
static inline bool stream_paused(const struct stream *st)
{
    return st->rx.n + 3 > STREAM_SLICES; /* what one message may make: see stream_poll */
}
/*
 * The endpoint has no room for more because of what waits to be read: joins that and makes room. False: it cannot.
 */
bool stream_pack(struct stream *st);
/* Octets that stream_read would give now. */
static inline uint64_t stream_avail(const struct stream *st)
{
    return st->rx.avail;
}
/* Moves up to len octets into dst; with peek they stay, skip octets are passed over first. */
size_t stream_read(struct stream *st, struct iov_iter *dst, size_t len);
size_t stream_peek(struct stream *st, struct iov_iter *dst, size_t len, size_t skip);
/* As read, but drops the octets (MSG_TRUNC). */
size_t stream_discard(struct stream *st, size_t len);
/*
 * Where the urgent octet is from the next one to be read: 0 at the mark; UINT64_MAX: there is none, or it was passed.
 */
static inline uint64_t stream_mark(const struct stream *st)
{
    return st->rx.urgent == STREAM_URGENT_NONE ? UINT64_MAX : st->rx.urgent_at - st->rx.total;
}
/*
 * The pipe below ended; clean: on a message boundary. All of it has been polled (not
 * stream_paused).
 */
void stream_eof(struct stream *st, bool clean);
static inline bool stream_readable(const struct stream *st)
{
    return st->rx.avail > 0 || st->rx.end != STREAM_OPEN;
}
/*
 * Credits: the peer should be told what was returned (call stream_credit on the send side). Any
 * thread.
 */
bool stream_wants_credit(const struct stream *st);

/* ---- send side ---- */

/*
 * Posts as much of the next len octets of src as one batch of the endpoint and the peer's credits
 * take. Returns octets posted; 0 with len > 0: no credit or queue full; -EPIPE: the endpoint is
 * terminated, or FIN was sent; -EINVAL: src holds less than len.
 */
ssize_t stream_write(struct stream *st, struct iov_iter *src, size_t len) SW_MUST;
/*
 * Posts the next len octets of src as one Send, whatever eager_limit says: len up to stream_send_max. For octets of
 * many writes that were gathered. 0; -EAGAIN: no credit or queue full; -EPIPE; -EMSGSIZE; -EINVAL: src holds less than
 * len.
 */
int stream_write_send(struct stream *st, struct iov_iter *src, size_t len) SW_MUST;
/* The most octets that one Send may carry: what the peer takes. */
size_t stream_send_max(const struct stream *st);
/*
 * Posts the next octet of src as an urgent one, in a message of its own. 1; 0: queue full; -EPIPE; -EINVAL as
 * stream_write; -EOPNOTSUPP: the peer takes none.
 */
ssize_t stream_write_urgent(struct stream *st, struct iov_iter *src) SW_MUST;
/* Has the peer room for more than a little? (With credits; those of the LLP are not known here.) */
bool stream_may_write(const struct stream *st);
/*
 * Everything posted has gone out. May post a notify that had no room before: look at the endpoint
 * again.
 */
void stream_flushed(struct stream *st);
/*
 * The endpoint dropped the last `frames` messages of the batch: takes them back. If the stream's
 * end was moved by Writes whose notify was dropped, posts a fresh notify. Returns octets of the
 * program taken back. A FIN among them is posted again by stream_fin.
 */
size_t stream_unpost(struct stream *st, unsigned frames);
/*
 * The initiator's first message where the startup agreed on no RTR (MPA Rev 1, or the client-server
 * model of RFC 6581): posts an empty DATA, so that the other side may speak first. 0, -EAGAIN,
 * -EPIPE.
 */
int stream_rtr(struct stream *st) SW_MUST;
/* Posts FIN. 0, -EAGAIN, -EPIPE. */
int stream_fin(struct stream *st) SW_MUST;
/*
 * Posts a CREDIT. 0, -EPIPE, -EAGAIN: queue full, or the former one is unanswered and the peer
 * wants no answer.
 */
int stream_credit(struct stream *st) SW_MUST;

#endif
