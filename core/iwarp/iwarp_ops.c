/*
 * What RDMAP and DDP have on the send side and the stream does not use; see iwarp_ops.h. It is linked into the tests and
 * the programs that speak with other implementations, not into the library that is preloaded.
 */
#include "core/iwarp/iwarp_ops.h"

#include <errno.h>

#include "core/iwarp/iwarp_impl.h"

uint64_t iwarp_reads_under_way(const struct iwarp_ep *ep)
{
    return atomic_load_explicit(&ep->reads.posted, memory_order_relaxed) -
           atomic_load_explicit(&ep->reads.done, memory_order_acquire);
}

/* RFC 5041 6.2.1/1: what was posted still goes out. RFC 5041 6.2.1/7: the receive side does not look at it. */
void iwarp_end_sending(struct iwarp_ep *ep)
{
    atomic_store_explicit(&ep->tx_ended, true, memory_order_relaxed);
}

/*
 * RFC 5040 section 5.5: a fence holds back what comes after Reads until their responses are there. 0: nothing does;
 * -EAGAIN; -EPIPE: they will not come.
 */
static int fence(const struct iwarp_ep *ep, unsigned flags)
{
    if (!(flags & IWARP_FENCE) || iwarp_reads_under_way(ep) == 0)
        return 0;
    return iwarp_may_post(ep) == -EPIPE ? -EPIPE : -EAGAIN;
}

int iwarp_post_write_with(struct iwarp_ep *ep, unsigned flags, uint32_t stag, uint64_t to, struct iov_iter *src,
                          size_t len)
{
    if (flags & ~IWARP_FENCE)
        return -EINVAL;
    int err = fence(ep, flags);
    return err ? err : iwarp_post_write(&ep->base, stag, to, src, len);
}

int iwarp_post_send_with(struct iwarp_ep *ep, unsigned flags, uint32_t inv_stag, const uint8_t *hdr, size_t hdr_len,
                         struct iov_iter *src, size_t len)
{
    static const uint8_t opcodes[4] = {
        [0] = RDMAP_SEND,
        [IWARP_SOLICITED] = RDMAP_SEND_SE,
        [IWARP_INVALIDATE] = RDMAP_SEND_INV,
        [IWARP_SOLICITED | IWARP_INVALIDATE] = RDMAP_SEND_SE_INV,
    };

    /* RFC 5040 5.3/8: a Send with Invalidate "MUST reference an STag"; RFC 5040 4.1/10: no other does. */
    if ((flags & ~(IWARP_SOLICITED | IWARP_INVALIDATE | IWARP_FENCE)) ||
        ((flags & IWARP_INVALIDATE) != 0) != (inv_stag != 0))
        return -EINVAL;
    int err = fence(ep, flags);
    return err ? err : iwarp_post_send_as(ep, opcodes[flags & 3], inv_stag, hdr, hdr_len, src, len);
}
