/*
 * Fuzz target: DDP headers. What must hold: no crash, nothing read behind the input; a header is as
 * long as its T bit says or too short; what was understood goes out as it came, but for the version and
 * the reserved bits.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/ddp/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact = calloc(1, size ? size : 1), out[DDP_UNTAGGED_HDR_LEN];
    struct ddp_segment seg;
    size_t want;
    ssize_t n;

    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    n = ddp_segment_decode(exact, size, &seg);
    want = size > 0 && (data[0] & 0x80) ? DDP_TAGGED_HDR_LEN : DDP_UNTAGGED_HDR_LEN;
    must(n == (size < want ? -EMSGSIZE : (ssize_t)want));
    if (n > 0) {
        must(seg.tagged == (data[0] >> 7) && seg.last == (data[0] >> 6 & 1));
        must(seg.version == (data[0] & 3));
        must(ddp_segment_encode(&seg, out) == want);
        must(out[0] == ((data[0] & 0xc0) | DDP_VERSION));
        must(memcmp(out + 1, data + 1, want - 1) == 0);
    }
    free(exact);
    return 0;
}
