/*
 * Fuzz target: the Terminate's payload. What must hold: no crash; a header is said to be there only
 * with a legal length; what was understood goes out in the RFC's form and is understood the same
 * again.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/rdmap/terminate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int cond)
{
    if (!cond)
        abort();
}

/*
 * A reading of siw's form may have a code that reads differently in the RFC's without flags: then
 * it is not compared.
 */
static int known(struct term_code c)
{
    return strcmp(term_code_text(c), "unknown error code") != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct terminate t, again;
    uint8_t buf[TERM_MAX];
    size_t n;

    if (terminate_decode(data, size, &t) < 0) {
        must(size < 2);
        return 0;
    }
    must(size >= 2);
    must(t.code.layer < 16 && t.code.etype < 16);
    must(term_code_text(t.code)[0] != '\0');
    must(t.has_ddp_hdr ? t.ddp_hdr_len == 14 || t.ddp_hdr_len == 18 : t.ddp_hdr_len == 0);
    must(t.has_len || !t.has_ddp_hdr);
    n = terminate_encode(&t, buf);
    must(n >= 4 && n <= TERM_MAX);
    must(n == 4u + (t.has_len ? 2u : 0) + t.ddp_hdr_len + (t.has_read_hdr ? 28u : 0));
    must(terminate_decode(buf, n, &again) == 0);
    if (!known(t.code))
        return 0;
    must(again.code.layer == t.code.layer && again.code.etype == t.code.etype && again.code.code == t.code.code);
    must(again.has_len == t.has_len && again.has_ddp_hdr == t.has_ddp_hdr && again.has_read_hdr == t.has_read_hdr);
    must(again.ddp_segment_len == t.ddp_segment_len && again.ddp_hdr_len == t.ddp_hdr_len);
    must(memcmp(again.ddp_hdr, t.ddp_hdr, sizeof(t.ddp_hdr)) == 0);
    must(memcmp(again.read_hdr, t.read_hdr, sizeof(t.read_hdr)) == 0);
    return 0;
}
