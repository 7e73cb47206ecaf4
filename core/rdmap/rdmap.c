/*
 * RDMAP opcodes (RFC 5040 section 4.1, Figure 4; RFC 7306 section 4) and the RDMA Read Request
 * header (RFC 5040 section 4.4). Receive path: transport -> mpa -> ddp -> [rdmap] -> stream.
 */
#include "core/rdmap/rdmap.h"

#include <errno.h>

#include "core/base/bytes.h"

/*
 * RFC 5040 4.1/4-7: Figure 4.
 * RFC 5040 5.1/1: a Write "MUST reference a Tagged Buffer"; so does a Read Response.
 * RFC 5040 5.2.1/1,6,7: a Read Request is untagged, on queue 1.
 * RFC 5040 5.3/1,5: Sends are untagged, on queue 0; RFC 5040 5.4/1,3: the Terminate is, on queue 2.
 * RFC 7306 6.3/1,2,5: Immediate Data is untagged, on queue 0.
 */
const struct rdmap_opcode_rule rdmap_opcode_rules[16] = {
    [RDMAP_WRITE] = { "RDMA Write", true, 0 },
    [RDMAP_READ_REQUEST] = { "RDMA Read Request", false, RDMAP_QN_READ_REQUEST },
    [RDMAP_READ_RESPONSE] = { "RDMA Read Response", true, 0 },
    [RDMAP_SEND] = { "Send", false, RDMAP_QN_SEND },
    [RDMAP_SEND_INV] = { "Send with Invalidate", false, RDMAP_QN_SEND },
    [RDMAP_SEND_SE] = { "Send with SE", false, RDMAP_QN_SEND },
    [RDMAP_SEND_SE_INV] = { "Send with SE and Invalidate", false, RDMAP_QN_SEND },
    [RDMAP_TERMINATE] = { "Terminate", false, RDMAP_QN_TERMINATE },
    [RDMAP_IMMEDIATE] = { "Immediate Data", false, RDMAP_QN_SEND },
    [RDMAP_IMMEDIATE_SE] = { "Immediate Data with SE", false, RDMAP_QN_SEND },
    [RDMAP_ATOMIC_REQUEST] = { "Atomic Request", false, RDMAP_QN_READ_REQUEST },
    [RDMAP_ATOMIC_RESPONSE] = { "Atomic Response", false, 3 },
};

/* RFC 5040 4.4/1 and RFC 5040 4.2/1: the header of a Read Request, of no other length. */
int rdmap_read_decode(const uint8_t *buf, size_t len, struct rdmap_read *out)
{
    struct bytes_rd r = bytes_rd_init(buf, len);

    if (len != RDMAP_READ_HDR_LEN)
        return -EMSGSIZE;
    out->sink_stag = bytes_rd_be32(&r);
    out->sink_to = bytes_rd_be64(&r);
    out->len = bytes_rd_be32(&r);
    out->src_stag = bytes_rd_be32(&r);
    out->src_to = bytes_rd_be64(&r);
    return 0;
}

void rdmap_read_encode(const struct rdmap_read *rd, uint8_t buf[RDMAP_READ_HDR_LEN])
{
    struct bytes_wr w = bytes_wr_init(buf, RDMAP_READ_HDR_LEN);

    bytes_wr_be32(&w, rd->sink_stag);
    bytes_wr_be64(&w, rd->sink_to);
    bytes_wr_be32(&w, rd->len);
    bytes_wr_be32(&w, rd->src_stag);
    bytes_wr_be64(&w, rd->src_to);
}
