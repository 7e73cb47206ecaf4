/*
 * Steering tags, RFC 5041 sections 7.1 and 8.2, RFC 5042: which memory a peer may reach, how, on
 * which stream.
 *
 * RFC 5041 8.2/3,4 and RFC 5041 8.3 item 3: "DDP MUST support Protection Domain association and DDP Stream
 * association": a region
 * names the domain whose streams may use it, and one stream of it or all. An endpoint has a table of
 * its own, so that what is in there is out of other streams' reach by construction; endpoints of one
 * owner may share another table. A caller that changes a table (add, revoke) has its lock; endpoints look
 * without it. STags are random 32-bit numbers, never 0. Bounds are exact to the octet.
 */
#ifndef SW_DDP_STAG_H
#define SW_DDP_STAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"

#define DDP_STAG_MAX 8u /* per table: bounded by design */

#define DDP_ACCESS_REMOTE_WRITE 1u
#define DDP_ACCESS_REMOTE_READ 2u
#define DDP_ACCESS_LOCAL_SINK 4u /* may be named as sink of our own outstanding Read */

/*
 * The stream that asks for a region, known only here: no peer can name it (RFC 5041 8.2). id is not 0 if any table
 * is shared.
 */
struct ddp_stream {
    uint32_t pd; /* Protection Domain */
    uint32_t id; /* DDP Stream */
};

struct ddp_region {
    uint32_t stag;        /* 0 = free slot */
    struct ddp_stream of; /* only streams of this domain; id 0: all of them, else this one alone */
    uint8_t access;       /* DDP_ACCESS_* */
    bool deferred;        /* nothing is placed: valid segments are handed up in order (a ring) */
    uint64_t to;          /* tagged offset of the first octet */
    uint64_t len;
    uint8_t *base; /* borrowed until revoked; NULL if deferred */
};

struct ddp_stags {
    struct ddp_region region[DDP_STAG_MAX];
};

/*
 * RFC 5041 7.2/1: the error numbers that "MUST be used"; here those for tagged buffers, DDP_TAGGED_ERR_*: the code in
 * Terminate 1/1/x.
 */
enum ddp_tagged_err {
    DDP_TAGGED_OK = -1,
    DDP_TAGGED_INVALID_STAG = 0,
    DDP_TAGGED_BOUNDS = 1,
    DDP_TAGGED_NOT_ASSOCIATED = 2,
    DDP_TAGGED_TO_WRAP = 3,
    DDP_TAGGED_VERSION = 4,
};

void ddp_stags_init(struct ddp_stags *t);

/*
 * RFC 5041 8.3 item 1: "a mechanism for the ULP to establish ... the TO range".
 * RFC 5040 8.1.1 items 4 and 5, RFC 5041 8.3.1 items 4 and 5: of buffer, range and rights to an STag.
 * Adds a region under a fresh random STag (from random32(arg), which must be unpredictable), stored
 * in region->stag. Returns 0, -ENOSPC, -EINVAL (no length, to + len wraps, or no base and not
 * deferred).
 */
int ddp_stags_add(struct ddp_stags *t, struct ddp_region *region, uint32_t (*random32)(void *arg), void *arg) SW_MUST;

/*
 * RFC 5041 8.3 item 2: "a mechanism for the ULP to establish and revoke STag validity".
 * From now on the STag is invalid. Returns 0 or -ENOENT. Safe against a concurrent find or check.
 */
int ddp_stags_revoke(struct ddp_stags *t, uint32_t stag);

struct ddp_region *ddp_stags_find(struct ddp_stags *t, uint32_t stag);

/* Does the region belong to this stream? */
static inline bool ddp_region_is_of(const struct ddp_region *region, const struct ddp_stream *who)
{
    return region->of.pd == who->pd && (region->of.id == 0 || region->of.id == who->id);
}

/*
 * May `access` of this stream reach [to, to+len) of stag? Returns DDP_TAGGED_OK with *out, or the
 * error (RFC 5041 section 7.1, tagged items 1 to 5); *rights is set if the only thing wrong is the
 * access right, and the error is then DDP_TAGGED_INVALID_STAG: DDP has no number for it, RDMAP has
 * one for Reads (RFC 5040 section 4.8, Figure 9: Terminate 0/1/2). A zero length is not passed here:
 * RFC 5041 5.2/11: "The STag and TO fields MUST NOT be checked".
 */
enum ddp_tagged_err ddp_stags_check(struct ddp_stags *t, const struct ddp_stream *who, uint32_t stag, uint64_t to,
                                    uint64_t len, uint8_t access, struct ddp_region **out, bool *rights) SW_MUST;

#endif
