/*
 * Fuzz target: the stream's header and its parameters in the MPA private data. What must hold: no crash,
 * nothing read behind the input; what is taken has sizes that make sense, and goes out as it came.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/stream/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

static void header(const uint8_t *p, size_t len, const uint8_t *data)
{
    uint8_t out[STREAM_HDR_LEN];
    struct stream_hdr h;
    int r = stream_hdr_decode(p, len, &h);

    if (len < STREAM_HDR_LEN) {
        must(r == -EMSGSIZE);
        return;
    }
    must(r == (data[0] >= STREAM_DATA && data[0] <= STREAM_RESET ? 0 : -EPROTO));
    if (r < 0)
        return;
    stream_hdr_encode(&h, out);
    must(memcmp(out, data, sizeof(out)) == 0);
}

static void params(const uint8_t *p, size_t len, const uint8_t *data)
{
    uint8_t out[STREAM_PARAMS_LEN];
    struct stream_params sp;
    int r = stream_params_decode(p, len, &sp);

    must((r == -EMSGSIZE) == (len < STREAM_PARAMS_LEN));
    must(r == 0 || r == -EMSGSIZE || r == -EPROTO);
    if (r < 0)
        return;
    must(sp.version == 1 && sp.eager_max > 0);
    must(sp.ring_len >= STREAM_RING_MIN && sp.ring_len <= STREAM_RING_MAX);
    must((sp.flags & STREAM_FLAG_LLP) || sp.bufs > STREAM_BUFS_KEPT);
    stream_params_encode(&sp, out);
    must(memcmp(out, data, sizeof(out)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact = calloc(1, size ? size : 1);

    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    header(exact, size, data);
    params(exact, size, data);
    free(exact);
    return 0;
}
