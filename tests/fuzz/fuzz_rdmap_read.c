/*
 * Fuzz target: the RDMA Read Request header. What must hold: no crash, nothing read behind the input;
 * just 28 octets are one, and go out as they came.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/rdmap/rdmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact = calloc(1, size ? size : 1), out[RDMAP_READ_HDR_LEN];
    struct rdmap_read rd;
    int r;

    if (!exact)
        abort();
    if (size)
        memcpy(exact, data, size);
    r = rdmap_read_decode(exact, size, &rd);
    must(r == (size == RDMAP_READ_HDR_LEN ? 0 : -EMSGSIZE));
    if (r == 0) {
        rdmap_read_encode(&rd, out);
        must(memcmp(out, data, sizeof(out)) == 0);
    }
    free(exact);
    return 0;
}
