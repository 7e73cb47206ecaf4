/*
 * DDP Stream Session Control messages: RFC 5043 section 5.2.3, RFC 6581 section 7.
 */
#include "core/mpa/session.h"

#include <errno.h>

#include "core/base/bytes.h"

static size_t word_len(unsigned function)
{
    return mpa_session_is_enhanced(function) ? MPA_ENHANCED_LEN : 0;
}

/*
 * RFC 5043 5.2.3/2,3 and RFC 6581 7/4,5: "Private Data length MUST NOT exceed 512 bytes in any message, including
 * enhanced RDMA connection establishment data. Private Data MUST NOT be included in the DDP Stream Session TERM
 * message."
 */
static bool fits(unsigned function, size_t private_len)
{
    return private_len <= (function == MPA_SESSION_TERMINATE ? 0 : MPA_SESSION_PRIVATE_MAX);
}

static bool known(unsigned function)
{
    return function >= MPA_SESSION_INITIATE && function <= MPA_SESSION_ENHANCED_REJECT;
}

ssize_t mpa_session_encode(const struct mpa_session *s, uint8_t *buf, size_t cap)
{
    size_t word = word_len(s->function);
    if (!known(s->function) || s->priv_len > MPA_SESSION_PRIVATE_MAX || !fits(s->function, word + s->priv_len) ||
        s->enhanced.ird > MPA_IRD_ORD_NONE || s->enhanced.ord > MPA_IRD_ORD_NONE)
        return -EINVAL;
    struct bytes_wr w = bytes_wr_init(buf, cap);
    bytes_wr_be16(&w, s->ssn);
    bytes_wr_be16(&w, s->function);
    if (word) {
        uint8_t octets[MPA_ENHANCED_LEN];
        mpa_enhanced_encode(&s->enhanced, octets); /* RFC 5043 5.2.3/1, RFC 6581 7/3: private data follow it */
        bytes_wr_copy(&w, octets, sizeof(octets));
    }
    bytes_wr_copy(&w, s->priv, s->priv_len);
    return w.bad ? -EMSGSIZE : (ssize_t)bytes_wr_len(&w);
}

int mpa_session_decode(const uint8_t *buf, size_t len, struct mpa_session *out)
{
    struct bytes_rd r = bytes_rd_init(buf, len);
    struct mpa_session s = { .ssn = bytes_rd_be16(&r), .function = bytes_rd_be16(&r) };
    if (r.bad)
        return -EMSGSIZE;
    if (!known(s.function) || !fits(s.function, bytes_rd_left(&r)))
        return -EPROTO;
    if (mpa_session_is_enhanced(s.function)) {
        const uint8_t *word = bytes_rd_take(&r, MPA_ENHANCED_LEN);
        if (word == NULL)
            return -EMSGSIZE;
        s.enhanced = mpa_enhanced_decode(word);
    }
    s.priv = r.p; /* RFC 5043 5.2.3/5, RFC 6581 7/7: "MUST be available for the ULP to examine" */
    s.priv_len = bytes_rd_left(&r);
    *out = s;
    return 0;
}
