/*
 * Operations of RDMAP and DDP that the stream has no use for: Sends with Solicited Event and with Invalidate, fences, the
 * graceful end of the send side. Other ULPs need them, and other implementations of the protocols use them against ours.
 * All belong to the send side, and follow its rules (iwarp.h).
 */
#ifndef SW_IWARP_IWARP_OPS_H
#define SW_IWARP_IWARP_OPS_H

#include "core/iwarp/iwarp.h"

/*
 * post_send and post_write with what RDMAP knows besides: IWARP_SOLICITED and IWARP_INVALIDATE (of
 * the peer's inv_stag, not 0) for Sends; IWARP_FENCE for both: -EAGAIN until all our Reads have come
 * (RFC 5040 section 5.5: "by withholding the RDMA Write Message until all outstanding RDMA Read
 * Responses have been Delivered"). -EINVAL for any other flags.
 */
#define IWARP_SOLICITED 1u
#define IWARP_INVALIDATE 2u
#define IWARP_FENCE 4u
int iwarp_post_send_with(struct iwarp_ep *ep, unsigned flags, uint32_t inv_stag, const uint8_t *hdr, size_t hdr_len,
                         struct iov_iter *src, size_t len) SW_MUST;
int iwarp_post_write_with(struct iwarp_ep *ep, unsigned flags, uint32_t stag, uint64_t to, struct iov_iter *src,
                          size_t len) SW_MUST;
/* Our Reads outstanding. Send side. */
uint64_t iwarp_reads_under_way(const struct iwarp_ep *ep);
/*
 * Our half is going to be closed gracefully: what was posted goes out, and Read Responses do, but
 * posting anything more is -EPIPE (RFC 5041 section 6.2.1). Receiving goes on.
 */
void iwarp_end_sending(struct iwarp_ep *ep);

#endif
