/*
 * DDP segment headers, RFC 5041 sections 4.1 to 4.3: tagged (14 octets here, with the ULP's control
 * octet) and untagged (18 octets, with the ULP's five reserved octets). Encode and decode, nothing
 * else.
 */
#ifndef SW_DDP_SEGMENT_H
#define SW_DDP_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

#define DDP_TAGGED_HDR_LEN 14u
#define DDP_UNTAGGED_HDR_LEN 18u
#define DDP_VERSION 1u

struct ddp_segment {
    bool tagged;
    bool last;
    uint8_t version;      /* DV as received; sent as 1 */
    uint8_t ulp_ctrl;     /* the octet RDMAP puts its control field in */
    uint32_t ulp_word;    /* untagged: the 32 reserved bits after it (Invalidate STag) */
    uint32_t stag;        /* tagged */
    uint64_t to;          /* tagged */
    uint32_t qn, msn, mo; /* untagged */
};

/*
 * Reads the header at the start of a ULPDU. Returns its length (14 or 18), or -EMSGSIZE if the
 * ULPDU is shorter than the header its T bit announces. Does not judge the version or any value.
 */
ssize_t ddp_segment_decode(const uint8_t *ulpdu, size_t len, struct ddp_segment *out) SW_MUST;

/* Writes the header; returns its length. buf must have room for DDP_UNTAGGED_HDR_LEN. */
size_t ddp_segment_encode(const struct ddp_segment *seg, uint8_t *buf);

#endif
