/*
 * MPA connection startup: RFC 5044 section 7.1 with the enhanced form of RFC 6581, initiator and
 * responder, as one sans-IO machine.
 *
 *   initiator   SEND_REQ --output taken--> WAIT_REP --Reply--> DONE (then RTR, see iwarp)
 *                                                   \--R=1--> REJECTED
 *   responder   WAIT_REQ --Request--> DECIDE --accept/reject--> SEND_REP --output taken-->
 *               DONE | REJECTED
 *   any         --malformed, wrong key, wrong Rev, peer closed--> FAILED (err says why)
 *
 * Before RFC 6581 there was a proposal (2007) of a third frame, by which the initiator says that it
 * is ready: MPA_DIALECT_RTR_FRAME. Where both sides do that,
 *
 *   initiator   WAIT_REP --Reply, S=1--> SEND_RTR --output taken--> DONE
 *   responder   SEND_REP --output taken--> WAIT_RTR --RtR frame--> DONE
 *
 * FAILED: TCP has to be closed (RFC 5044 section 7.1.2), after a Terminate if
 * mpa_startup_terminates says so. REJECTED: MPA exits, "leaving the TCP connection open"
 * (RFC 5044 section 7.1.2, rules 2, 3).
 *
 * It consumes exactly the startup frame's octets and never one more: the switch to FPDUs is
 * octet-exact. RFC 5044 7.1/1: "at the same location in the octet stream". Timeouts (rules 8, 10) are the
 * owner's. One thread at a time; no lock, no
 * allocation; may live in memory shared by fork if that is at one address everywhere (peer_priv
 * points inside).
 */
#ifndef SW_MPA_STARTUP_H
#define SW_MPA_STARTUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "core/mpa/enhanced.h"

#define MPA_STARTUP_HDR_LEN 20u
#define MPA_PRIVATE_MAX 512u /* PD_Length's limit; includes the enhanced word */

enum mpa_startup_state {
    MPA_ST_SEND_REQ,
    MPA_ST_WAIT_REP,
    MPA_ST_WAIT_REQ,
    MPA_ST_DECIDE,
    MPA_ST_SEND_REP,
    MPA_ST_SEND_RTR,
    MPA_ST_WAIT_RTR,
    MPA_ST_DONE,
    MPA_ST_REJECTED,
    MPA_ST_FAILED,
};

enum mpa_startup_err {
    MPA_SE_NONE,
    MPA_SE_KEY,       /* not the expected key */
    MPA_SE_CROSSING,  /* a Request where a Reply was due (both are initiators) */
    MPA_SE_REV,       /* revision not supported: 0, or above 2 */
    MPA_SE_PD_LEN,    /* PD_Length > 512 */
    MPA_SE_ENHANCED,  /* S without room for the word, or not answered in kind */
    MPA_SE_PIPELINED, /* octets behind the Request before the Reply was sent */
    MPA_SE_IRD,       /* insufficient IRD: Terminate 2/0/6 (RFC 6581 section 9.1). Responder:
                         the initiator's is below ord_min */
    MPA_SE_RTR,       /* no common RTR or model: Terminate 2/0/7 (RFC 6581 section 9.2) */
    MPA_SE_CLOSED,    /* the peer closed first */
};

enum mpa_dialect {
    MPA_DIALECT_RFC,       /* RFC 5044, RFC 6581 */
    MPA_DIALECT_RTR_FRAME, /* the 2007 proposal: at Rev 1, S=1 says that an RtR frame will follow
                              the Reply (Request), or is waited for (Reply). A responder does it
                              with an initiator that asks, and serves others by the RFCs */
};

struct mpa_startup_cfg {
    bool responder;
    uint8_t dialect;     /* enum mpa_dialect */
    uint8_t rev;         /* initiator: 1 or 2. The responder takes both, answers in kind */
    bool crc;            /* C in our frame; in use if either side says so */
    bool markers;        /* M in our frame: we want to receive markers. (We always insert them if
                             the peer wants them: RFC 5044 section 4.3) */
    bool peer_to_peer;   /* initiator: A, the RTR model is wanted (dropped at Rev 1) */
    uint8_t rtr;         /* MPA_RTR_* we can send (initiator) or accept (responder: not 0) */
    uint8_t rtr_pref[3]; /* our order of preference, MPA_RTR_*; 0 ends; then send, write, read */
    uint16_t ird, ord;   /* 0..0x3ffe or MPA_IRD_ORD_NONE */
    uint16_t ord_min;    /* responder: the least that the ULP needs (0: any number will do);
                             at most ord */
    const void *priv;    /* initiator: what follows the word, borrowed until init returns */
    size_t priv_len;     /* <= 512, less 4 if the Request is enhanced */
};

/*
 * What the two frames agreed; valid in DONE (and, rev, enhanced and peer_*, in DECIDE and
 * REJECTED).
 */
struct mpa_startup_result {
    uint8_t rev;   /* of the peer's frame */
    bool enhanced; /* S in the peer's frame */
    bool crc;
    bool markers_tx, markers_rx;
    uint8_t rtr;                 /* the one kind the initiator sends; 0: none (client must speak first) */
    bool rtr_frame;              /* an RtR frame goes before the first FPDU: either side may speak first */
    uint16_t ird, ord;           /* ours after negotiation; MPA_IRD_ORD_NONE only where cfg says so */
    uint16_t peer_ird, peer_ord; /* as the peer said; MPA_IRD_ORD_NONE if it did not */
    bool peer_p2p;               /* A in the peer's frame */
    uint8_t peer_rtr;            /* B, C, D in the peer's frame; ignored, 0, if A is not set */
    const uint8_t *peer_priv;    /* inside struct mpa_startup, behind the word; not NULL */
    size_t peer_priv_len;
};

struct mpa_startup {
    uint8_t state;              /* enum mpa_startup_state */
    uint8_t err;                /* enum mpa_startup_err */
    bool reject;                /* the Reply under way has R set */
    struct mpa_startup_cfg cfg; /* priv is NULL: not kept */
    struct mpa_startup_result res;
    uint8_t in[MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX]; /* RFC 5044 7.1.2 rule 9/2,3 */
    size_t in_len;
    uint8_t out[MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX];
    size_t out_len, out_off;
};

/*
 * -EINVAL for a configuration that cannot be put into a frame: rev (initiator; 1 with
 * MPA_DIALECT_RTR_FRAME), IRD or ORD above 0x3fff, ord_min above ord, unknown RTR kinds, more than one kind in an
 * element of rtr_pref, a responder without any, an initiator with peer_to_peer (Rev 2) but no kind, too much private
 * data.
 *
 * The enhanced form is used at Rev 2 if any of it is wanted: peer_to_peer, IRD or ORD (RFC 6581
 * section 10).
 */
int mpa_startup_init(struct mpa_startup *s, const struct mpa_startup_cfg *cfg) SW_MUST;

/*
 * Feeds received octets. Returns octets used (0..len): never more than the frame under way needs.
 * -EPROTO: state is FAILED, s->err says why. In WAIT_REP, WAIT_REQ and WAIT_RTR only; in DECIDE and
 * SEND_REP any octet is an error (MPA_SE_PIPELINED); in other states returns 0. A frame that cannot become valid
 * fails at the first octet that shows it.
 */
ssize_t mpa_startup_input(struct mpa_startup *s, const uint8_t *buf, size_t len) SW_MUST;

/* How many octets the frame under way still needs at least; 0 when it waits for none. */
size_t mpa_startup_need(const struct mpa_startup *s);

/* The peer closed. Moves to FAILED (MPA_SE_CLOSED) unless finished. */
void mpa_startup_eof(struct mpa_startup *s);

/*
 * Responder in DECIDE: res holds what the peer asked. priv is our private data, copied; at most 512
 * octets, less 4 if the Request is enhanced: -EINVAL, also in any other state.
 *
 * accept: -EPROTO if it cannot be: the peer wants the RTR model with no kind that we can do
 * (MPA_SE_RTR), or its IRD is below ord_min (MPA_SE_IRD). Nothing is put out then, the state is still
 * DECIDE, and the caller may reject; that Reply names the kinds we have. Otherwise the Reply names
 * exactly one: the first of our preference among the common ones (a zero-length Read only if an IRD
 * of 1 can be granted).
 */
int mpa_startup_accept(struct mpa_startup *s, const void *priv, size_t priv_len) SW_MUST;
int mpa_startup_reject(struct mpa_startup *s, const void *priv, size_t priv_len) SW_MUST;

/* The frame to send; to go out with one send() if it can. Take n octets off with _sent. */
size_t mpa_startup_output(const struct mpa_startup *s, const uint8_t **p);
void mpa_startup_sent(struct mpa_startup *s, size_t n);

/*
 * FAILED: has a Terminate to go out before TCP is closed? If so *code is the MPA error code of it
 * (RFC 6581 section 8: layer 2, type 0), and res says how it is framed. It is then the first FPDU
 * of the initiator; no RTR goes before it.
 */
bool mpa_startup_terminates(const struct mpa_startup *s, uint8_t *code) SW_MUST;

/*
 * FAILED: the peer may be one that knows Rev 1 only: it closed without an octet of an answer to the
 * enhanced Request. RFC 6581 section 10: "the initiator MAY attempt to establish an RDMA connection
 * using the unenhanced MPA protocol as defined in [RFC5044]", on a new TCP connection.
 */
bool mpa_startup_retry_rev1(const struct mpa_startup *s);

const char *mpa_startup_err_name(unsigned err); /* never NULL; "unknown" */
const char *mpa_rtr_name(unsigned rtr);         /* "send", "write", "read", "none" for 0, "several" */

#endif
