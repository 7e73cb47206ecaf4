/*
 * RDMAP, RFC 5040 section 4.1 (and the opcodes of RFC 7306 section 4): the control octet, the
 * opcodes and what each demands of its DDP segment.
 */
#ifndef SW_RDMAP_RDMAP_H
#define SW_RDMAP_RDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"

#define RDMAP_VERSION 1u

enum rdmap_opcode {
    RDMAP_WRITE = 0,
    RDMAP_READ_REQUEST = 1,
    RDMAP_READ_RESPONSE = 2,
    RDMAP_SEND = 3,
    RDMAP_SEND_INV = 4,
    RDMAP_SEND_SE = 5,
    RDMAP_SEND_SE_INV = 6,
    RDMAP_TERMINATE = 7,
    RDMAP_IMMEDIATE = 8,
    RDMAP_IMMEDIATE_SE = 9,
    RDMAP_ATOMIC_REQUEST = 10,
    RDMAP_ATOMIC_RESPONSE = 11,
};

enum { RDMAP_QN_SEND = 0, RDMAP_QN_READ_REQUEST = 1, RDMAP_QN_TERMINATE = 2, RDMAP_QN_MAX = 3 };

struct rdmap_opcode_rule {
    const char *name; /* NULL: unknown opcode */
    bool tagged;
    uint8_t qn; /* untagged: the queue it must use */
};

/* Indexed by the low four bits of the control octet. */
extern const struct rdmap_opcode_rule rdmap_opcode_rules[16];

/* RFC 5040 4.1/1,2,8,9: version, two bits of zero, opcode. */
static inline uint8_t rdmap_ctrl(uint8_t opcode)
{
    return (uint8_t)(RDMAP_VERSION << 6 | opcode);
}

static inline uint8_t rdmap_ctrl_version(uint8_t ctrl)
{
    return ctrl >> 6;
}

/* RFC 5040 4.1/9: the reserved bits are "ignored by the receiver". */
static inline uint8_t rdmap_ctrl_opcode(uint8_t ctrl)
{
    return ctrl & 0x0f;
}

/* RFC 7306 section 6.2: Immediate Data is 8 octets, no more and no fewer. */
#define RDMAP_IMMEDIATE_LEN 8u

/* RDMA Read Request header, RFC 5040 section 4.4: 28 octets after the untagged header. */
#define RDMAP_READ_HDR_LEN 28u

struct rdmap_read {
    uint32_t sink_stag;
    uint64_t sink_to;
    uint32_t len;
    uint32_t src_stag;
    uint64_t src_to;
};

/* -EMSGSIZE unless len is exactly RDMAP_READ_HDR_LEN. */
int rdmap_read_decode(const uint8_t *buf, size_t len, struct rdmap_read *out) SW_MUST;
void rdmap_read_encode(const struct rdmap_read *rd, uint8_t buf[RDMAP_READ_HDR_LEN]);

#endif
