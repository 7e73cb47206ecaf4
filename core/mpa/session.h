/*
 * DDP Stream Session Control messages of the SCTP mapping: RFC 5043 section 5.2.3, with the enhanced
 * form of RFC 6581 section 7. The format only: there is no SCTP transport here.
 *
 *      0          2               4                 (8)
 *      | DDP-SSN  | function code | (enhanced word) | private data
 */
#ifndef SW_MPA_SESSION_H
#define SW_MPA_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "core/mpa/enhanced.h"

#define MPA_SESSION_HDR_LEN 4u
#define MPA_SESSION_PRIVATE_MAX 512u /* the enhanced word counts */
#define MPA_SESSION_MAX (MPA_SESSION_HDR_LEN + MPA_SESSION_PRIVATE_MAX)

enum mpa_session_function {
    MPA_SESSION_INITIATE = 1,
    MPA_SESSION_ACCEPT = 2,
    MPA_SESSION_REJECT = 3,
    MPA_SESSION_TERMINATE = 4,
    MPA_SESSION_ENHANCED_INITIATE = 5,
    MPA_SESSION_ENHANCED_ACCEPT = 6,
    MPA_SESSION_ENHANCED_REJECT = 7,
};

struct mpa_session {
    uint16_t ssn;
    uint16_t function;            /* enum mpa_session_function */
    struct mpa_enhanced enhanced; /* of the enhanced functions */
    const uint8_t *priv;          /* borrowed; may be NULL if priv_len is 0 */
    size_t priv_len;
};

/*
 * Octets written. -EINVAL: an unknown function, private data with TERMINATE, more than fits
 * (MPA_SESSION_PRIVATE_MAX, less the word), depths above MPA_IRD_ORD_NONE; -EMSGSIZE: cap is too
 * small.
 */
ssize_t mpa_session_encode(const struct mpa_session *s, uint8_t *buf, size_t cap) SW_MUST;

/*
 * A message is what SCTP delivers: buf holds it whole. 0 with *out (priv points into buf, not
 * NULL), or -EMSGSIZE if it is too short for what its function code says, -EPROTO for an unknown
 * function, private data with TERMINATE or more than 512 octets of them.
 */
int mpa_session_decode(const uint8_t *buf, size_t len, struct mpa_session *out) SW_MUST;

static inline bool mpa_session_is_enhanced(unsigned function)
{
    return function >= MPA_SESSION_ENHANCED_INITIATE && function <= MPA_SESSION_ENHANCED_REJECT;
}

#endif
