/*
 * From a fresh TCP connection to FPDUs, or to plain TCP: the streaming-mode Hello (delayed startup,
 * RFC 5044 section 7.1.3) followed by the MPA startup frames (mpa/startup.h).
 *
 *   responder    PEEK --HELO--> MPA (HACK out) --Request, Reply out--> DONE
 *                     \--other octets, timeout--> PLAIN     \--R=1 sent--> PLAIN
 *                     \--HELO, declined (HNAK out)--> PLAIN, or NAKED if an HWDR may follow
 *                NAKED --HWDR (taken out), other octets--> PLAIN
 *                     \--Request, if cfg.immediate--> MPA
 *   initiator    HELLO (HELO out) --HACK--> MPA (Request out) --Reply--> DONE
 *                     \--HNAK--> PLAIN                  \--R=1--> PLAIN
 *                     \--timeout, garbage, close--> FALLBACK     \--malformed, timeout--> FALLBACK
 *                     \--timeout, shim known (HWDR out)--> WITHDRAWN --HACK, HNAK--> PLAIN
 *                     \--timeout, may switch (HWDR out)--> LATE --HACK (HSWI is next)--> DONE
 *                                                               \--HNAK, other octets, the end--> PLAIN
 *                UNASKED --the program's first octets (HELO, HWDR in front of them), negotiate_ask--> LATE
 *                     \--any octets, the end, declined--> PLAIN
 *
 * With cfg.early the Request is the end of the HELO, and the Reply that accepts it that of the HACK: one round trip. A
 * responder that does not know of that, or would not accept, answers with the HACK alone, and all is as above. Having
 * accepted it waits in MPA for the first octets, which are FPDUs, or an HWDR that has crossed its answer.
 *
 * The late switch (cfg.may_switch), each direction for itself: the initiator's program goes on in streaming mode behind
 * the HWDR, which says so, and the Request stands. The responder, once it finds the two (or, in MPA, the HWDR that has
 * crossed its HACK), answers by a HACK with the Reply and is DONE: it sends FPDUs behind that, while what it receives
 * is the program's up to the HSWI, or to the end. Where it cannot be known whether the initiator's program is still
 * there (negotiate_defer), that HACK goes before the responder's program's first octets, and no sooner. The initiator
 * that finds the HACK sends the HSWI (negotiate_lead), then FPDUs. A responder that has sent octets in streaming mode,
 * or whose peer's direction has ended, says nothing, and the connection stays plain: so the answer is the first that
 * comes, or there is none.
 *
 * A listener whose backlog is full answers by SYN cookies, and knows a client by its first segment alone. So an
 * initiator that goes on at once may begin in UNASKED (cfg.unasked): HELO and HWDR go in front of the program's first
 * octets, in one segment, and not at all if its program ends before.
 *
 * The immediate startup (RFC 5044 section 7.1.4, Figure 10) has no Hello: the initiator begins in MPA.
 *
 * A device's connection is made beside this one, between HelloAck and Request:
 *
 *   responder    a HELO that offers verbs: asks its owner for an endpoint (negotiate_wants_offer), whom the HACK tells.
 *                In MPA, a Request that says DEVICE: asks its owner whether it is up (negotiate_wants_device).
 *   initiator    HELLO --HACK with an endpoint--> DEVICE, until its owner says: up, or not --> MPA; the Request says which.
 *
 * If both frames say STREAM_FLAG_DEVICE the stream goes there, and no FPDU follows here; else it is as without a
 * device.
 *
 * A responder in MPA that finds an HWDR where the Request would be goes to PLAIN. WITHDRAWN: the owner may
 * send plain octets once the HWDR is out; of what comes in, the answer is still to be taken out.
 *
 * PLAIN: both sides go on in streaming mode on this connection. FALLBACK: this connection is spoilt
 * for the peer's program; connect again, plain. FAILED (responder only): the initiator broke the
 * MPA startup: close.
 *
 * Sans-IO: octets are given with negotiate_in, taken with negotiate_out; time comes in as now_ns
 * (CLOCK_MONOTONIC). One thread at a time.
 */
#ifndef SW_NEGOTIATE_NEGOTIATE_H
#define SW_NEGOTIATE_NEGOTIATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"
#include "core/mpa/startup.h"
#include "core/negotiate/hello.h"
#include "core/stream/stream.h"

enum negotiate_state {
    NEGOTIATE_PEEK,
    NEGOTIATE_UNASKED,
    NEGOTIATE_HELLO,
    NEGOTIATE_DEVICE,
    NEGOTIATE_MPA,
    NEGOTIATE_NAKED,
    NEGOTIATE_WITHDRAWN,
    NEGOTIATE_LATE,
    NEGOTIATE_DONE,
    NEGOTIATE_PLAIN,
    NEGOTIATE_FALLBACK,
    NEGOTIATE_FAILED,
};

/* An incomplete prefix of a Hello holds a plain client back at most this long. */
#define NEGOTIATE_PREFIX_NS 200000000ull
/* Streaming octets of a server that speaks first which the initiator keeps before it gives up. */
#define NEGOTIATE_STREAMED_MAX (4u << 20)
/*
 * How long the responder waits for each frame of the startup; a slow program is no reason to end a connection.
 */
#define NEGOTIATE_MPA_NS 60000000000ull

/* The value of the TLV HELLO_TLV_VERBS: family (4, 6), kind, port, address, one-time token. */
#define NEGOTIATE_OFFER_MAX 36u

/* What listens there. Numbers that are not known mean ANY. */
enum negotiate_kind {
    NEGOTIATE_KIND_ANY,   /* a device, it was not said of what kind */
    NEGOTIATE_KIND_IWARP, /* a device; the port is TCP's, and MPA is spoken there */
    NEGOTIATE_KIND_IB,    /* a device: RoCE or InfiniBand */
    NEGOTIATE_KIND_SOFT,  /* no device: a TCP port where software speaks iWARP. Only to initiators that said MIXED */
};

struct negotiate_offer {
    bool ipv6;
    uint8_t kind; /* enum negotiate_kind */
    uint16_t port;
    uint8_t addr[16];
    uint8_t token[16];
};

struct negotiate_cfg {
    bool responder;
    /*
     * Initiator: the listener surely runs sockwarp, its program has only to accept. When the time is
     * up, withdraw instead of falling back.
     */
    bool shim_known;
    /* And then goes on in streaming mode until the answer is there. With shim_known and early. */
    bool may_switch;
    /* And at once: the HWDR goes with the HELO. With may_switch. */
    bool at_once;
    /* And in front of the program's first octets. With at_once. */
    bool unasked;
    /*
     * Initiator: no Hello, the Request is the first frame; excludes shim_known. Responder: a Request may
     * be what comes first.
     */
    bool immediate;
    /*
     * The Request goes with the Hello, and the Reply to one that does with its answer. Initiator: not with a device, of
     * which the Request says whether it is up, nor MPA_DIALECT_RTR_FRAME.
     */
    bool early;
    uint8_t transports;             /* HELLO_TRANSPORT_* */
    uint8_t nonce[HELLO_NONCE_LEN]; /* initiator: random; responder: the Hello's, once it came */
    uint64_t host;
    struct mpa_startup_cfg mpa; /* priv is filled in here */
    struct stream_params params;
    uint64_t timeout_ns; /* for the answer to the Hello, and again for the MPA startup */
};

enum negotiate_device_state {
    NEGOTIATE_DEVICE_NONE,    /* not spoken of, or not any more */
    NEGOTIATE_DEVICE_WANTED,  /* responder: the owner is to make an offer */
    NEGOTIATE_DEVICE_OFFERED, /* responder: it did */
    NEGOTIATE_DEVICE_ASKED,   /* responder: the Request says that it is up */
    NEGOTIATE_DEVICE_TRYING,  /* initiator: the owner connects */
    NEGOTIATE_DEVICE_UP,
};

struct negotiate {
    uint8_t state;  /* enum negotiate_state */
    uint8_t reason; /* enum reason, once PLAIN, FALLBACK or FAILED */
    struct negotiate_cfg cfg;
    uint64_t deadline_ns; /* 0: none */
    uint64_t streamed;    /* octets the owner sent in streaming mode so far; the initiator: behind the HWDR */
    size_t hello_len;     /* initiator: the HELO's, for as long as it stands in out */
    bool answered;        /* initiator: octets came that are no answer */
    bool answer_begun;    /* initiator that may switch, HELLO: a part of the answer came */
    uint8_t declined;     /* responder: enum reason, why the Request will be rejected */
    bool mute;            /* its direction has ended, no Hello can be answered */
    bool peer_ended;      /* responder: so has the initiator's: a late Hello is not answered */
    bool withdrawn;       /* responder: an HWDR came, the initiator's program has gone on */
    bool defers;          /* responder: negotiate_defer */
    bool deferred;        /* responder, DONE: the HACK waits for the program's first octets: negotiate_lead */
    bool switched; /* DONE: by a late switch; the initiator's direction goes on in streaming mode up to its HSWI */
    /*
     * Initiator: the HelloAck came, the Reply not in time. The peer runs sockwarp, so nothing is
     * lost by waiting on; but connect() need not.
     */
    bool late;
    size_t prefix_len; /* initiator: streamed octets found before the answer */
    uint8_t out[HELLO_LEN_MAX];
    size_t out_len, out_off;
    uint8_t device;               /* enum negotiate_device_state */
    bool offer_made;              /* responder: or there is none to make */
    uint8_t asked;                /* responder: HELLO_TRANSPORT_* that the HELO offered */
    struct negotiate_offer offer; /* DEVICE: where to connect; responder: what was offered */
    struct mpa_startup mpa;       /* from MPA on */
    struct stream_params peer;    /* DONE */
};

/* 0 or -EINVAL. An initiator has its HELO to send at once and starts its clock. */
int negotiate_init(struct negotiate *n, const struct negotiate_cfg *cfg, uint64_t now_ns) SW_MUST;

/*
 * The octets at hand. PEEK: what MSG_PEEK shows, from the stream's start; HELLO: everything
 * received since the connection began, so that it can be looked at again with more; MPA: octets not
 * yet used. Returns how many of them the negotiation takes: in PEEK 0 or the Hello's length (take
 * them out of the kernel); in HELLO 0 or up to the end of the answer (the first prefix_len of those
 * are the program's); in MPA any number. What is left belongs to the next state.
 */
size_t negotiate_in(struct negotiate *n, const uint8_t *buf, size_t len, uint64_t now_ns);

/* The peer closed (clean or by reset). */
void negotiate_eof(struct negotiate *n);

/* The owner cannot go on with it, and the peer has not closed. */
void negotiate_fail(struct negotiate *n, unsigned reason);

/*
 * Initiator in HELLO or LATE: the Hello did not reach the peer's program, nor will it, and nothing of the program's went
 * behind it: it connects again, plain, for this reason.
 */
void negotiate_unheard(struct negotiate *n, unsigned reason);

/* LATE: the answer is lost: the connection ends. */
void negotiate_lost(struct negotiate *n);
/*
 * Responder that has just answered by a late switch, or declined: the answer did not go, as the initiator wants none any
 * more.
 */
void negotiate_unanswered(struct negotiate *n);

/* The deadline may have passed. */
void negotiate_tick(struct negotiate *n, uint64_t now_ns);

/*
 * Initiator with shim_known that waits for the answer: its program waits no longer, as if the time were up. Nothing happens while a part of
 * the answer has come.
 */
void negotiate_withdraw(struct negotiate *n);

/* Initiator in UNASKED: its program says nothing for now, so HELO and HWDR go by themselves. */
void negotiate_ask(struct negotiate *n);

/*
 * Responder in PEEK: this connection shall stay plain; a Hello that comes is answered by HNAK with
 * this reason. Initiator in UNASKED: it is plain, and the peer is not asked.
 */
void negotiate_decline(struct negotiate *n, unsigned reason);

/* Has the other side shown that it runs sockwarp? */
static inline bool negotiate_peer_known(const struct negotiate *n)
{
    return n->state == NEGOTIATE_DEVICE || (n->state == NEGOTIATE_MPA && (n->cfg.responder || !n->cfg.immediate));
}

/*
 * Responder in PEEK: its program has ended its direction of the stream. A Hello that comes is taken away, and the
 * connection is plain; its initiator sees the end before any answer. Initiator in LATE: likewise; the other direction
 * may still be switched.
 */
void negotiate_mute(struct negotiate *n);
/*
 * Responder in PEEK: do these octets begin with a Hello whose initiator has gone on in streaming mode, to switch late?
 */
bool negotiate_is_late(const uint8_t *buf, size_t len);
/* Then: the initiator's direction has ended already. */
void negotiate_peer_ended(struct negotiate *n);
/*
 * Or: it is not known whether its program is still there. What is sent to one that has gone is answered by a reset,
 * which destroys what it has under way. So nothing is said before the program says something, which would meet the
 * same.
 */
void negotiate_defer(struct negotiate *n);

/*
 * DONE by a late switch: what goes before the first FPDU, the initiator's HSWI or a deferred HACK, and stays where it
 * is; 0: nothing. The kernel is to get it as a whole: the other side may take a part of an HSWI, with nothing behind,
 * for the program's. UNASKED: HELO and HWDR, which go before the program's first octets.
 */
size_t negotiate_lead(const struct negotiate *n, const uint8_t **p);

/*
 * Responder: the two sides' transports, with asked, make a device possible at one end at least; the owner calls
 * negotiate_offer, then negotiate_in again. It may take its time: there is no deadline.
 */
static inline bool negotiate_wants_offer(const struct negotiate *n)
{
    return n->device == NEGOTIATE_DEVICE_WANTED;
}
/* NULL: there is none to make. */
void negotiate_offer(struct negotiate *n, const struct negotiate_offer *offer);

/* The owner is to connect to n->offer (initiator), or to say whether the peer has (responder). */
static inline bool negotiate_wants_device(const struct negotiate *n)
{
    return n->device == NEGOTIATE_DEVICE_TRYING || n->device == NEGOTIATE_DEVICE_ASKED;
}
/* The device's connection is up, or will not be. */
void negotiate_device(struct negotiate *n, bool up, uint64_t now_ns);
/* DONE: the stream goes by the device. */
static inline bool negotiate_by_device(const struct negotiate *n)
{
    return n->device == NEGOTIATE_DEVICE_UP && (n->cfg.params.flags & n->peer.flags & STREAM_FLAG_DEVICE) != 0;
}

/*
 * What to send now, and that n octets of it went. Frames are to go out in one send() where
 * possible.
 */
size_t negotiate_out(const struct negotiate *n, const uint8_t **p);
void negotiate_sent(struct negotiate *n, size_t len);

/* Nothing more to read or write here: DONE, PLAIN, FALLBACK or FAILED, and all output taken. */
bool negotiate_over(const struct negotiate *n);

#endif
