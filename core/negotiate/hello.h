/*
 * The Hello frames of the streaming-mode negotiation (delayed startup, RFC 5044 section 7.1.3).
 *
 *  0 key 12 + "HELO"|"HACK"|"HNAK"|"HWDR"|"HSWI" · 16 version · 17 flags · 18 total length · 20 arg ·
 *  24 nonce 16 · 40 streaming octets sent before · 48 host identity · 56 reserved · 60 CRC32C ·
 *  64 TLVs
 */
#ifndef SW_NEGOTIATE_HELLO_H
#define SW_NEGOTIATE_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

#define HELLO_VERSION 1u
#define HELLO_LEN 64u
#define HELLO_LEN_MAX 1024u
#define HELLO_KEY_LEN 16u
#define HELLO_NONCE_LEN 16u

/*
 * HWDR: the initiator waits no longer for the answer; what follows is its program's. HSWI: up to here it was, FPDUs
 * follow.
 */
enum hello_kind { HELLO_HELO, HELLO_HACK, HELLO_HNAK, HELLO_HWDR, HELLO_HSWI };

/* HELO: an HWDR may follow. */
#define HELLO_FLAG_MAY_WITHDRAW 1u
/* HELO: that one has this flag, too. HWDR: a HACK that has the Reply is still heeded, and an HSWI follows it. */
#define HELLO_FLAG_SWITCH 2u

/* Transports: bits in HELO, one of them in HACK. */
#define HELLO_TRANSPORT_IWARP 1u
#define HELLO_TRANSPORT_VERBS 2u
#define HELLO_TRANSPORT_SHM 4u
/*
 * HELO: one end may be a device and the other one software that speaks iWARP with it (mixed): an end that says VERBS
 * besides has an iWARP device, one that does not has none. HACK: that it is, or may be, so.
 */
#define HELLO_TRANSPORT_MIXED 8u

/*
 * Types from here on are critical: a receiver that does not know one declines the Hello. (Others are skipped.) None is
 * known yet.
 */
#define HELLO_TLV_CRITICAL 0x8000u

#define HELLO_TLV_VERBS 1u
/*
 * HELO: the MPA Request Frame, HACK: the Reply Frame that accepts it, each the last octets of its Hello. A receiver
 * that does not know them skips them, and the two frames follow by themselves.
 */
#define HELLO_TLV_MPA 2u

struct hello {
    enum hello_kind kind;
    uint8_t version; /* decode: HELLO_VERSION, or another one's HELO, HNAK or HWDR; encode: not looked at */
    uint8_t flags;   /* HELLO_FLAG_*; sent as given */
    uint32_t arg;    /* HELO: transports offered; HACK: chosen; HNAK: enum reason */
    uint8_t nonce[HELLO_NONCE_LEN];
    uint64_t streamed; /* octets its sender sent in streaming mode before it; HELO: 0 */
    uint64_t host;
    const uint8_t *tlv; /* decode: in the caller's buffer; encode: appended as it is */
    size_t tlv_len;
};

/* Octets written (HELLO_LEN + tlv_len), or -EMSGSIZE if it exceeds cap or HELLO_LEN_MAX. */
ssize_t hello_encode(const struct hello *h, uint8_t *buf, size_t cap) SW_MUST;

/*
 * Looks at the octets a stream begins with. Returns octets of the whole frame (64..1024) with *out;
 * -EAGAIN if they are a true prefix of some Hello frame (len 0 included); -EPROTO if they cannot
 * become one: wrong key, version, length, CRC. Says -EPROTO at the first octet that is wrong, so
 * that a plain client's octets are not held back. Flags and the reserved field are not checked (but
 * in the CRC); TLVs are not looked at.
 *
 * What asks and declines (HELO, HWDR, HNAK) is the same in all versions but for arg and TLVs: so a Hello of any version
 * can be declined and taken away. Of the others only our own version is known.
 */
ssize_t hello_decode(const uint8_t *buf, size_t len, struct hello *out) SW_MUST;

/*
 * Finds the answer to our Hello in what a peer streamed: the first HACK or HNAK with this nonce
 * whose `streamed` equals base + its position in buf (base: octets of the peer's stream before
 * buf). Returns the frame's position with *out and *frame_len, or -EAGAIN with *safe = octets at
 * the start that cannot belong to such a frame any more; they are the program's and may be dropped
 * from buf if base is advanced by as many.
 */
ssize_t hello_find(const uint8_t *buf, size_t len, uint64_t base, const uint8_t nonce[HELLO_NONCE_LEN],
                   struct hello *out, size_t *frame_len, size_t *safe) SW_MUST;

/* The same for the initiator's HSWI, which says how many octets of its program's were before it. */
ssize_t hello_find_switch(const uint8_t *buf, size_t len, uint64_t base, const uint8_t nonce[HELLO_NONCE_LEN],
                          struct hello *out, size_t *frame_len, size_t *safe) SW_MUST;

/* Can it be gone into? Of our version, and without a critical TLV that is not known. */
bool hello_is_understood(const struct hello *h);

/*
 * Walks TLVs: returns the value of the first one of that type and its length, or NULL. Ends at a
 * TLV that claims more than there is; what stands before it is still found.
 */
const uint8_t *hello_tlv_find(const struct hello *h, uint16_t type, size_t *len);

#endif
