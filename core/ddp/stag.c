/*
 * Steering tags: the checks of RFC 5041 section 7.1 for tagged segments, and the table they look
 * at. Receive path: transport -> mpa -> [ddp] -> rdmap -> stream.
 *
 * STags are stored and read atomically because a Send with Invalidate revokes one on the receive
 * side while the send side may be answering a Read from it.
 */
#include "core/ddp/stag.h"

#include <errno.h>
#include <string.h>

void ddp_stags_init(struct ddp_stags *t)
{
    memset(t, 0, sizeof(*t));
}

struct ddp_region *ddp_stags_find(struct ddp_stags *t, uint32_t stag)
{
    if (stag == 0)
        return NULL;
    for (unsigned i = 0; i < DDP_STAG_MAX; i++)
        if (__atomic_load_n(&t->region[i].stag, __ATOMIC_ACQUIRE) == stag)
            return &t->region[i];
    return NULL;
}

int ddp_stags_add(struct ddp_stags *t, struct ddp_region *region, uint32_t (*random32)(void *arg), void *arg)
{
    struct ddp_region *slot = NULL;
    uint32_t stag;

    if (region->len == 0 || region->to + region->len < region->to)
        return -EINVAL;
    if (!region->deferred && !region->base)
        return -EINVAL;
    for (unsigned i = 0; i < DDP_STAG_MAX && !slot; i++)
        if (t->region[i].stag == 0)
            slot = &t->region[i];
    if (!slot)
        return -ENOSPC;

    /*
     * RFC 5040 8.1.1 item 8/1,2: difficult to predict, sparse over the full range (so random32 is asked
     * for all 32 bits). 0 marks a free slot and is never given out.
     */
    do
        stag = random32(arg);
    while (stag == 0 || ddp_stags_find(t, stag));

    region->stag = 0;
    *slot = *region;
    region->stag = stag;
    __atomic_store_n(&slot->stag, stag, __ATOMIC_RELEASE);
    return 0;
}

int ddp_stags_revoke(struct ddp_stags *t, uint32_t stag)
{
    struct ddp_region *region = ddp_stags_find(t, stag);

    if (!region)
        return -ENOENT;
    /* RFC 5040 8.1.1 item 6, RFC 5041 8.3.1 item 6, RFC 5042 6.2.2/2: from here on no check finds it. */
    __atomic_store_n(&region->stag, 0, __ATOMIC_RELEASE);
    return 0;
}

enum ddp_tagged_err ddp_stags_check(struct ddp_stags *t, const struct ddp_stream *who, uint32_t stag, uint64_t to,
                                    uint64_t len, uint8_t access, struct ddp_region **out, bool *rights)
{
    struct ddp_region *region = ddp_stags_find(t, stag);

    *rights = false;
    *out = NULL;
    if (!region)
        return DDP_TAGGED_INVALID_STAG; /* RFC 5041 7.1 tagged 1: the STag is valid for this stream */
    /* RFC 5041 8.2/1,2, RFC 5042 6.1.1/1-3: another domain's, or another stream's: "the DDP Segment is not Placed". */
    /*
     * RFC 5040 8.1.1 items 1 and 2, RFC 5041 8.3.1 items 1 and 2, RFC 5041 4.2/6: nor is it reached in any other
     * way.
     */
    if (!ddp_region_is_of(region, who))
        return DDP_TAGGED_NOT_ASSOCIATED;
    /*
     * RFC 5041 7.1 tagged 5: a wrapped sum would pass the bounds check below, so it comes first.
     */
    if (to + len < to)
        return DDP_TAGGED_TO_WRAP;
    /*
     * RFC 5040 8.1.1 item 3, RFC 5041 7.1 tagged 3 and 4, RFC 5042 6.2.1/1: exact to the octet; written so that
     * nothing can wrap.
     */
    if (to < region->to || to - region->to > region->len || len > region->len - (to - region->to))
        return DDP_TAGGED_BOUNDS;
    /* RFC 5041 7.1 tagged 2: the buffer allows it. */
    if ((region->access & access) != access) {
        *rights = true;
        return DDP_TAGGED_INVALID_STAG;
    }
    *out = region;
    return DDP_TAGGED_OK;
}
