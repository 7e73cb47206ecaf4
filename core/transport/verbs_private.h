/*
 * What the two sides of a device's connection tell each other in the private data of the connection manager, or of the
 * MPA startup: where a side's ring is and how many receive buffers it has.
 *
 * Network byte order, in the request and in the acceptance (librdmacm gives 56 octets on InfiniBand):
 *
 *  0 "SWV2" · 4 token 16 (acceptance: 0) · 20 the ring's tagged offset · 28 its STag · 32 its length ·
 * 36 STag of the 8 octets behind the ring, for the fence · 40 longest message · 44 receive buffers (2)
 */
#ifndef SW_TRANSPORT_VERBS_PRIVATE_H
#define SW_TRANSPORT_VERBS_PRIVATE_H

#include "core/transport/verbs.h"

#define VERBS_PRIVATE_LEN 46u

/* VERBS_PRIVATE_LEN octets. token NULL: none. */
void verbs_private_put(const struct verbs_side *side, uint64_t base, const uint8_t *token, uint8_t *buf);
/* Their token, inside buf; NULL: they are not ours. */
const uint8_t *verbs_private_token(const void *buf, size_t len);
/* False: they are not ours, or what they say cannot be. */
bool verbs_private_take(const void *buf, size_t len, struct verbs_side *side, uint64_t *base) SW_MUST;

#endif
