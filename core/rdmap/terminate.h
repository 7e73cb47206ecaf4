/*
 * The Terminate message, RFC 5040 section 4.8; error numbers of its Figure 9, of RFC 5041 section
 * 7.2, RFC 5044 section 8 and RFC 6581 section 8.
 */
#ifndef SW_RDMAP_TERMINATE_H
#define SW_RDMAP_TERMINATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"

enum { TERM_LAYER_RDMAP = 0, TERM_LAYER_DDP = 1, TERM_LAYER_LLP = 2 };
enum { TERM_RDMAP_CATASTROPHIC = 0, TERM_RDMAP_PROTECTION = 1, TERM_RDMAP_OPERATION = 2 };
enum { TERM_DDP_CATASTROPHIC = 0, TERM_DDP_TAGGED = 1, TERM_DDP_UNTAGGED = 2 };
enum {
    TERM_RDMAP_INVALID_STAG = 0,
    TERM_RDMAP_BOUNDS = 1,
    TERM_RDMAP_ACCESS = 2,
    TERM_RDMAP_NOT_ASSOCIATED = 3,
    TERM_RDMAP_TO_WRAP = 4,
    TERM_RDMAP_VERSION = 5,
    TERM_RDMAP_OPCODE = 6,
    TERM_RDMAP_STREAM = 7,
    TERM_RDMAP_GLOBAL = 8,
    TERM_RDMAP_CANNOT_INVALIDATE = 9,
    TERM_RDMAP_UNSPECIFIED = 0xff,
};
enum {
    TERM_DDP_U_INVALID_QN = 1,
    TERM_DDP_U_NO_BUFFER = 2,
    TERM_DDP_U_MSN_RANGE = 3,
    TERM_DDP_U_INVALID_MO = 4,
    TERM_DDP_U_TOO_LONG = 5,
    TERM_DDP_U_VERSION = 6,
};
enum {
    TERM_MPA_CLOSED = 1,
    TERM_MPA_CRC = 2,
    TERM_MPA_MARKER = 3,
    TERM_MPA_STARTUP = 4,
    TERM_MPA_LOCAL = 5,
    TERM_MPA_IRD = 6,
    TERM_MPA_RTR = 7,
};

/* layer/type/code, carried by every protocol failure in this program. */
struct term_code {
    uint8_t layer, etype, code;
};

#define TERM_MAX (4u + 2u + 18u + 28u) /* control, length, untagged header, Read header */

struct terminate {
    struct term_code code;
    bool has_len;      /* M: the DDP segment length is there */
    bool has_ddp_hdr;  /* D */
    bool has_read_hdr; /* R */
    uint16_t ddp_segment_len;
    uint8_t ddp_hdr[18];
    uint8_t ddp_hdr_len; /* 14 or 18 */
    uint8_t read_hdr[28];
};

/* Octets written, at most TERM_MAX. */
size_t terminate_encode(const struct terminate *t, uint8_t *buf);

/*
 * Lenient (deployed stacks differ): takes anything from 2 octets on; the RFC's octets are tried
 * first, and Linux siw's (nibbles swapped, flags in the low bits) if those make no sense. -EMSGSIZE
 * below 2 octets.
 */
int terminate_decode(const uint8_t *buf, size_t len, struct terminate *out) SW_MUST;

/* "DDP tagged: base or bounds violation" and the like, for logs. */
const char *term_code_text(struct term_code c);

#endif
