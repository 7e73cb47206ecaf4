/*
 * Fuzz target: DDP Stream Session Control messages (RFC 5043 section 5.2.3, RFC 6581 section 7). What
 * must hold: what is taken lies inside the message and can be said again in the same octets, but for
 * kinds without the peer-to-peer flag, which mean nothing.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/mpa/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *buf = malloc(size ? size : 1), out[MPA_SESSION_MAX];
    struct mpa_session s, again;
    must(buf != NULL);
    if (size > 0)
        memcpy(buf, data, size);
    int r = mpa_session_decode(buf, size, &s);
    must(r == 0 || r == -EMSGSIZE || r == -EPROTO);
    if (r == 0) {
        must(s.priv >= buf + MPA_SESSION_HDR_LEN && s.priv + s.priv_len == buf + size);
        must(s.enhanced.p2p || s.enhanced.rtr == 0);
        must(mpa_session_encode(&s, out, sizeof(out)) == (ssize_t)size);
        bool word = mpa_session_is_enhanced(s.function);
        must(memcmp(out, buf, 4) == 0);
        must(!word || s.enhanced.p2p ? memcmp(out, buf, size) == 0 : memcmp(out + 8, buf + 8, size - 8) == 0);
        must(mpa_session_decode(out, size, &again) == 0);
        must(memcmp(&again.enhanced, &s.enhanced, sizeof(s.enhanced)) == 0);
    }
    free(buf);
    return 0;
}
