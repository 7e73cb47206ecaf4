/*
 * The enhanced RDMA connection establishment data: RFC 6581 section 9. 32 bits at the beginning of
 * the private data, the same in MPA's startup frames (startup.c) and in SCTP's DDP Stream Session
 * Control messages (session.c).
 *
 *      0 1 2           15 16 17 18         31
 *      |A|B|    IRD     | C | D |    ORD    |
 */
#ifndef SW_MPA_ENHANCED_H
#define SW_MPA_ENHANCED_H

#include <stdbool.h>
#include <stdint.h>

#define MPA_ENHANCED_LEN 4u
#define MPA_IRD_ORD_NONE 0x3fffu /* RFC 6581 section 9.1: automatic negotiation not wanted */

/*
 * RTR kinds; the bits of a set. RFC 6581 flags: B = Send (FULPDU), C = RDMA Write, D = RDMA Read.
 */
#define MPA_RTR_SEND 1u
#define MPA_RTR_WRITE 2u
#define MPA_RTR_READ 4u

struct mpa_enhanced {
    bool p2p;          /* A: peer-to-peer model */
    uint8_t rtr;       /* MPA_RTR_*; none unless p2p */
    uint16_t ird, ord; /* 0..MPA_IRD_ORD_NONE */
};

/* Kinds without p2p are not put in; higher bits of ird and ord are cut off. */
void mpa_enhanced_encode(const struct mpa_enhanced *e, uint8_t word[MPA_ENHANCED_LEN]);
/* Every word says something. */
struct mpa_enhanced mpa_enhanced_decode(const uint8_t word[MPA_ENHANCED_LEN]);

#endif
