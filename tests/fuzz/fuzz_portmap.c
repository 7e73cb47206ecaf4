/*
 * Fuzz target: the iWARP port mapper's messages. What must hold: what is taken can be said again in the same octets, but for those
 * without a meaning, and an answer is taken for that question's only.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/mpa/portmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *buf = malloc(size ? size : 1), out[PORTMAP_REQUEST_LEN], twice[PORTMAP_REQUEST_LEN], ack[PORTMAP_LEN];
    struct portmap_msg m, again;
    uint16_t port = 0;

    must(buf != NULL);
    if (size > 0)
        memcpy(buf, data, size);
    int r = portmap_decode(buf, size, &m);
    must(r == 0 || r == -EMSGSIZE || r == -EPROTO);
    if (r == 0) {
        ssize_t n = portmap_encode(&m, out, sizeof(out));
        must(n == (m.type == PORTMAP_REQUEST ? 64 : 48) && (size_t)n <= size);
        must(out[0] == buf[0] && memcmp(out + 4, buf + 4, 16) == 0);
        must(portmap_decode(out, (size_t)n, &again) == 0 && portmap_encode(&again, twice, sizeof(twice)) == n);
        must(memcmp(twice, out, (size_t)n) == 0);
        struct portmap_msg ask = m;
        ask.type = PORTMAP_REQUEST;
        r = portmap_hear(&ask, buf, size, &port, ack);
        must(m.type == PORTMAP_ACCEPT   ? r == (m.accepting.port != 0)
             : m.type == PORTMAP_REJECT ? r == -ECONNREFUSED
                                        : r == 0);
        must(r != 1 || (port == m.accepting.port && ack[0] == (PORTMAP_ACK << 4 | m.ip)));
        ask.handle ^= 1;
        must(portmap_hear(&ask, buf, size, &port, ack) == 0);
    }
    free(buf);
    return 0;
}
