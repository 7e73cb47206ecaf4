/*
 * The software endpoint: MPA framing, DDP and RDMAP composed into a queue pair over a byte pipe
 * that its caller owns (a TCP socket, a test's memory pipe). Sans-IO: octets come in by
 * in_space/in_fed and go out by out/out_sent.
 *
 *   in_fed -> mpa_fpdu_decode -> ddp_segment_decode -> rdmap rules -> placement or event -> poll()
 *   post_* -> rdmap, ddp headers -> mpa length, pad, CRC -> out()
 *
 * Two threads may use one endpoint at a time: one on the receive side (in_*, poll, release, eof),
 * one on the send side (post_*, out_*). What the receive side wants sent (Terminate, Read Response)
 * passes through a single-producer single-consumer queue; after poll the owner looks at
 * iwarp_ctrl_pending() and, if true, runs the send side.
 *
 * All memory is given by the caller and the structure holds no process-private resources, so it may
 * live in memory shared by fork (at one address in all processes).
 */
#ifndef SW_IWARP_IWARP_H
#define SW_IWARP_IWARP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/iov.h"
#include "core/base/must.h"
#include "core/ddp/segment.h"
#include "core/ddp/stag.h"
#include "core/endpoint.h"
#include "core/mpa/fpdu.h"
#include "core/rdmap/rdmap.h"
#include "core/rdmap/terminate.h"

#define IWARP_OUT_FRAMES 64u /* frames one batch holds */
#define IWARP_OUT_IOV 256u   /* iovecs one batch holds */
#define IWARP_HDR_MAX 48u    /* length field, DDP/RDMAP headers, ULP header of one frame */
#define IWARP_ULP_HDR_MAX 28u
#define IWARP_PIECES_MAX 64u   /* pieces of posted memory a message may have without being copied */
#define IWARP_IRD_MAX 16u      /* inbound Reads not yet answered */
#define IWARP_ORD_MAX 16u      /* our own Reads outstanding */
#define IWARP_RUN_MAX 32u      /* Writes of a run that are remembered */
#define IWARP_DIRECT_FRAMES 8u /* Writes received directly at a time */
#define IWARP_DIRECT_IOV (2u * IWARP_DIRECT_FRAMES)
#define IWARP_DIRECT_MIN 4096u /* shorter payloads go through staging */

struct iwarp_cfg {
    bool initiator;
    struct mpa_framing tx, rx;       /* with tx.markers payload is copied into out_buf when it is posted */
    uint8_t rtr;                     /* MPA_RTR_* the initiator sends first; 0: none, its ULP speaks first */
    uint16_t ird, ord;               /* clamped to IWARP_IRD_MAX, IWARP_ORD_MAX */
    size_t mulpdu;                   /* largest ULPDU to send, MPA_MULPDU_MIN..MPA_MULPDU_MAX */
    size_t send_max;                 /* largest Send message, both ways (header included) */
    bool ready;                      /* responder: the initiator is known to be in full operation (the frame of
                            MPA_DIALECT_RTR_FRAME came), an FPDU need not be waited for */
    const uint8_t *lead;             /* octets that go before the first FPDU, of the owner's protocol; borrowed until */
    size_t lead_len;                 /* they are sent. The owner sends them as one piece: iwarp_out_lead */
    bool aligned;                    /* iovecs end where frames do, as iwarp_out_segment wants them */
    uint8_t *in_buf;                 /* staging for received octets; in_cap at least MPA_FPDU_MAX, with
                            rx.markers MPA_FPDU_MARKED_MAX */
    size_t in_cap;                   /* with send_max more Sends of several segments are taken; without they are
                            refused with Terminate DDP untagged "no buffer" */
    uint8_t *out_buf;                /* rest of a message cut by a full pipe, gathering of many small pieces,
                            Read Responses */
    size_t out_cap;                  /* at least MPA_FPDU_MAX + 512; bounds write_max and send_max */
    bool immediate;                  /* both ends have agreed to use Immediate Data (RFC 7306); without, it is an
                            unexpected opcode */
    bool crc_twice;                  /* takes frames whose CRC counts the payload twice, as siw makes some */
    struct ddp_stream who;           /* which domain and stream this is, for `shared` */
    struct ddp_stags *shared;        /* regions of several endpoints' owner, besides those of its own;
                                 borrowed, may be NULL */
    uint32_t (*random32)(void *arg); /* unpredictable */
    void *random_arg;
};

struct iwarp_stats { /* each written by one side only; read from anywhere */
    uint64_t tx_fpdus, rx_fpdus;
    uint64_t tx_sends, tx_writes, tx_reads;
    uint64_t rx_sends, rx_writes, rx_reads;
    uint64_t tx_immediates, rx_immediates;
    uint64_t rx_empty;     /* messages without an octet of payload, but Terminates: what floods are made of */
    uint64_t rx_crc_twice; /* frames that cfg.crc_twice let in */
    uint64_t errors;       /* protocol errors found here or told by a Terminate; no lost connections */
};

enum iwarp_state {
    IWARP_WAIT_RTR,    /* responder: FPDUs are decoded, none may be sent yet */
    IWARP_FULL,        /* full operation */
    IWARP_TERMINATING, /* an error was found; the Terminate is queued; receive side is dead */
    IWARP_TERMINATED,  /* a Terminate came; both sides are dead */
};

/* What was cut off by iwarp_out_detach. */
struct iwarp_cut {
    unsigned frames; /* the last `frames` posted messages were dropped: post them again */
};

struct iwarp_ep; /* below; fields are private to iwarp/ */

/*
 * Ready to exchange FPDUs: the startup is over (mpa/startup.h). An initiator with cfg->rtr has its
 * RTR queued for out() at once: a zero-length Send, Write or Read (RFC 6581 section 9.2). Copies
 * cfg; the buffers stay borrowed. Regions are then added with ddp_stags_add(&ep->stags, ...).
 * -EINVAL for sizes outside what struct iwarp_cfg says, or an unknown RTR kind.
 */
int iwarp_init(struct iwarp_ep *ep, const struct iwarp_cfg *cfg) SW_MUST;

/* ---- receive side ---- */

/*
 * Where to put received octets: *p and how many fit (0: the ULP has to use up what is there first,
 * or hold it together: iwarp_pack). Staged octets may be moved to the buffer's start here, but never
 * while any event's data is unreleased.
 */
size_t iwarp_in_space(struct iwarp_ep *ep, uint8_t **p);
void iwarp_in_fed(struct iwarp_ep *ep, size_t n);
/*
 * Octets still missing from the frame under way: 0 on a frame boundary with nothing staged behind
 * it, and while a whole frame waits for poll. With one octet of the length field there: what the
 * shortest legal frame needs.
 */
size_t iwarp_in_need(const struct iwarp_ep *ep);
/*
 * End of the pipe. True if it ended on a message boundary (no frame or multi-segment message under
 * way).
 */
bool iwarp_in_eof(const struct iwarp_ep *ep);
/*
 * The pipe has ended, and all that came has been polled. On a message boundary (true) it is the peer's graceful
 * half-close; elsewhere a fatal error, 2/0/1, which iwarp_error then tells unless there was one before (RFC 5041
 * section 6.2.2). No Terminate is made of it: the peer may be gone, and a closed socket answers it by a reset. The send
 * side goes on in both cases.
 */
bool iwarp_in_end(struct iwarp_ep *ep);

/*
 * endpoint_ops.poll, release, pack of this endpoint. Frames are decoded one by one as they are asked for;
 * zero-length Writes and the first FPDU as RTR are absorbed. Writes to ordinary regions are placed
 * (after the CRC) and make no event; Writes to a deferred region become ENDPOINT_WRITE; Read
 * Requests are queued for answer; Read Responses are placed and counted. An error queues one
 * Terminate (RFC 5040 section 7.1), moves to TERMINATING and makes poll return -EPROTO from then
 * on. (A responder that has not received one valid FPDU yet sends no Terminate: RFC 5044 section
 * 7.1.2 rule 4 lets it send no FPDU.) A Terminate from the peer is the event ENDPOINT_TERMINATED
 * once, then -EPROTO.
 *
 * A Send of several segments is put together where its first one lies: over the headers between
 * them.
 */
int iwarp_poll(struct endpoint *e, struct endpoint_event *ev) SW_MUST;
void iwarp_release(struct endpoint *e, const uint8_t *upto);
bool iwarp_pack(struct endpoint *e, const uint8_t **p, size_t len);

/*
 * Receiving directly (iwarp_direct.c): instead of in_space and in_fed.
 *
 * plan: iovecs for the pipe to fill, in order: payloads at dst, of which there are room octets, and
 * what is between them in staging. How many; 0: the frame under way is none that can go so (or its
 * header is not there yet). fed: n octets went there. Whole frames are then given by poll as
 * `placed` events, the first at dst and each behind the one before, and need no release; octets of
 * all others are in staging. So poll until it returns 0 before dst is used for anything else: what
 * is behind the events' octets there means nothing. The plan is good until the next call of another
 * function of the receive side.
 */
size_t iwarp_direct_plan(struct iwarp_ep *ep, uint8_t *dst, size_t room, struct iovec iov[IWARP_DIRECT_IOV]);
void iwarp_direct_fed(struct iwarp_ep *ep, size_t n);
/*
 * With room octets for payload: how much to stage at most, so that what is likely to come can be
 * received directly. SIZE_MAX: nothing of that kind is likely.
 */
size_t iwarp_direct_ahead(struct iwarp_ep *ep, size_t room);

/* The ULP found the peer at fault (say, a stream header that makes no sense): as poll's errors. */
void iwarp_fail(struct iwarp_ep *ep, struct term_code code);

/* ---- send side ---- */

/* Bounded so that a message fits one batch and its rest fits out_buf: see iwarp_out_detach. */
size_t iwarp_write_max(const struct endpoint *e);
size_t iwarp_send_max(const struct endpoint *e);
/*
 * As endpoint_ops; besides -EMSGSIZE above write_max or send_max, -EINVAL if src holds less than
 * len or hdr_len is above IWARP_ULP_HDR_MAX. -EAGAIN also while the responder waits for the RTR and
 * while a Read Response waits to be sent (it goes first). Writes longer than the MULPDU and Sends
 * likewise become several segments of one message. A message in more than IWARP_PIECES_MAX pieces
 * is gathered by copy into out_buf if that is free, else -EAGAIN.
 */
int iwarp_post_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len) SW_MUST;
int iwarp_post_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len) SW_MUST;
/* endpoint_ops.post_immediate; -ENOTSUP without cfg.immediate. */
int iwarp_post_immediate(struct endpoint *e, uint64_t data, bool solicited) SW_MUST;
/*
 * One RDMA Read of len octets from (src_stag, src_to) of the peer into our region, which needs
 * DDP_ACCESS_LOCAL_SINK (-EINVAL). -EAGAIN: ORD used up, or as above; -EPIPE.
 */
int iwarp_post_read(struct iwarp_ep *ep, const struct rdmap_read *rd) SW_MUST;
/* Reads completed so far, in order of posting. Receive-side value; atomic. */
uint64_t iwarp_reads_done(const struct iwarp_ep *ep);

/* Something from the receive side waits to be sent (Terminate, Read Response). Any thread. */
bool iwarp_ctrl_pending(const struct iwarp_ep *ep);

/*
 * Of all that is to be sent the first, and up to now the only, is the answer to a Read that was the RTR (RFC 6581
 * section 9.2). The peer's ULP does not wait for it: it may be left to go with the first message, in whose batch it
 * comes first. Any thread.
 */
bool iwarp_answers_rtr(const struct iwarp_ep *ep);

/* Octets of cfg->lead that have not been sent; while there are some, out() begins with them. Send side. */
size_t iwarp_out_lead(const struct iwarp_ep *ep);
/* And nothing waits behind it. */
bool iwarp_out_only_lead(const struct iwarp_ep *ep);
/*
 * The batch to send now; the iovecs refer to the posted memory and to the endpoint's own, and stay
 * valid until out_sent, out_detach or the next post. Returns how many iovecs; 0: nothing to send.
 * *len is their sum. Control frames come on a message boundary: a Terminate behind what is posted,
 * Read Responses when the batch before is out; so call it until it returns 0. In TERMINATED the
 * batch is dropped: 0.
 */
size_t iwarp_out(struct iwarp_ep *ep, const struct iovec **iov, size_t *len);
/*
 * The same, but of the frames that are there only as many whole ones as seg octets hold (at least
 * one): what is to go into one TCP segment. Needs cfg.aligned. What iwarp_out_join has joined comes
 * as a whole.
 */
size_t iwarp_out_segment(struct iwarp_ep *ep, size_t seg, const struct iovec **iov, size_t *len);
/*
 * The TCP segments' size has changed: the largest ULPDU of messages posted from now on, kept within
 * its range. RFC 5041 3 item 2: what is posted stays as it is.
 */
void iwarp_set_mulpdu(struct iwarp_ep *ep, size_t mulpdu);
/* n octets went out. Statistics count here. */
void iwarp_out_sent(struct iwarp_ep *ep, size_t n);
/*
 * The pipe is full and posted memory has to go back to its owner: the rest of the message under way
 * (of which some octet was sent) is copied to out_buf, messages of which nothing was sent are
 * dropped (their MSNs taken back). Control frames stay. Afterwards out() refers to the endpoint's
 * memory only.
 */
struct iwarp_cut iwarp_out_detach(struct iwarp_ep *ep);

/*
 * The same where posted memory does not go back but is given up: all of it is copied to out_buf, nothing is dropped.
 * True: so it was; false: there is too much of it, or something else is in out_buf, and nothing has changed.
 */
bool iwarp_out_keep(struct iwarp_ep *ep);

/*
 * Makes one iovec of what is queued, by copying it to out_buf, if that has room. For a batch without posted memory,
 * such as out_detach leaves; another one is not touched.
 */
void iwarp_out_join(struct iwarp_ep *ep);

/*
 * How many octets of posted memory iwarp_out_detach would copy: 0 if the batch can be cut without looking at it.
 */
size_t iwarp_out_borrowed(const struct iwarp_ep *ep);

/* False only while the responder waits for the RTR. Any thread. */
bool iwarp_can_send(const struct iwarp_ep *ep);
enum iwarp_state iwarp_state_now(const struct iwarp_ep *ep);
/*
 * Valid in TERMINATING and TERMINATED, and after iwarp_in_end said false: what went wrong, found here
 * or told by the peer.
 */
struct term_code iwarp_error(const struct iwarp_ep *ep);

extern const struct endpoint_ops iwarp_endpoint_ops; /* name "iwarp" */

struct iwarp_out_frame {
    uint32_t end;         /* octets of the batch up to this frame's end */
    uint16_t scratch_end; /* octets of scratch up to this frame's end */
    uint8_t kind;         /* RDMAP opcode, or not the ULP's: IWARP_KIND_CTRL, IWARP_KIND_LEAD (cfg.lead) */
    bool msg_end;         /* last segment of its message */
};

#define IWARP_KIND_CTRL 0xffu
#define IWARP_KIND_LEAD 0xfeu

/* A Read Request to answer. */
struct iwarp_ctrl {
    struct rdmap_read read;
    struct ddp_region *src; /* validated on receipt; its STag may be revoked since */
    uint32_t msn;
};

/* The payloads' lengths of Writes to a deferred region that came one behind the other. */
struct iwarp_run {
    uint16_t len[IWARP_RUN_MAX];
    uint8_t n; /* above IWARP_RUN_MAX: too many */
};

struct iwarp_direct_frame {
    uint8_t *payload; /* where it goes */
    uint32_t len;
    uint32_t staged; /* of it, what is in staging already, behind the header */
    uint32_t gap;    /* octets behind it that go to staging */
};

struct iwarp_ep {
    struct endpoint base; /* first: an endpoint pointer is an iwarp_ep pointer */
    struct iwarp_cfg cfg;
    struct iwarp_stats stats;
    struct ddp_stags stags; /* set up before use, changed under both sides' locks */

    _Atomic uint8_t state;      /* enum iwarp_state */
    _Atomic bool failed;        /* the thread that sets it writes error and term, then state */
    _Atomic uint8_t term_state; /* IWARP_TERM_* */
    _Atomic bool tx_ended;      /* iwarp_end_sending */
    struct term_code error;
    struct terminate term; /* to send */

    struct {             /* receive side; offsets into in_buf */
        size_t head;     /* the frame to decode next */
        size_t tail;     /* first free octet */
        size_t hold;     /* octets below are released; hold < head: some event's data is not */
        size_t last_end; /* end of the last event's data: released up to here means up to head */
        uint64_t pos;    /* where head is in the octets of this direction: for the markers */
        bool in_message; /* a message of several segments is unfinished: */
        size_t part_at;  /* untagged: where its octets are so far, joined; 0: nowhere */
        uint8_t msg_opcode;
        uint32_t msg_stag;          /* tagged */
        uint64_t msg_to;            /* tagged: what the next segment must have */
        uint64_t msg_len;           /* octets of it so far; untagged: the next segment's MO */
        uint32_t msn[RDMAP_QN_MAX]; /* next expected, per queue */
        struct iwarp_run now;       /* the run under way */
        struct iwarp_run before;    /* the last one; empty: it is no use to foresee anything */
        uint32_t between;           /* length of the frame behind that */
    } rx;

    struct { /* receive side, from iwarp_direct_plan to the last of its events */
        struct iwarp_direct_frame plan[IWARP_DIRECT_FRAMES];
        uint8_t n;                   /* frames of it; 0: there is none */
        uint8_t placed_n, placed_at; /* whole ones that poll has still to look at */
    } direct;

    struct { /* receive side to send side */
        struct iwarp_ctrl slot[IWARP_IRD_MAX];
        _Atomic uint32_t head, tail; /* produced, consumed */
    } ctrl;

    struct { /* our Reads outstanding: posted by the send side, completed by the receive side */
        struct rdmap_read slot[IWARP_ORD_MAX];
        _Atomic uint64_t posted, done;
        uint64_t rtr; /* 1: the first is the RTR */
    } reads;

    struct { /* send side */
        uint32_t scratch_used;
        uint32_t iov_n, iov_first, frame_n, frame_first;
        uint32_t sent, queued;      /* octets of the batch */
        uint64_t pos;               /* where the batch starts in the octets of this direction */
        uint32_t msn[RDMAP_QN_MAX]; /* next to use, per queue */
        size_t out_used;            /* octets of out_buf in use, ... */
        uint32_t out_end;           /* ... by frames up to this octet of the batch */
        bool mid_message;           /* frame_first continues a message whose start has been sent */
        uint32_t read_off;          /* progress in the Read Response under way */
        /* The batch. Last, and not set up: of a connection that is idle these pages are not touched. */
        struct iwarp_out_frame frame[IWARP_OUT_FRAMES];
        /* Headers and trailers in a row, so that a trailer and the next header are one iovec. */
        uint8_t scratch[IWARP_OUT_FRAMES * (IWARP_HDR_MAX + 16) + 32];
        struct iovec iov[IWARP_OUT_IOV];
    } tx;
};

#endif
