/*
 * The 32 bits of RFC 6581 section 9, in network byte order.
 */
#include "core/mpa/enhanced.h"

#include "core/base/bytes.h"

#define WORD_A 0x80000000u
#define WORD_B 0x40000000u
#define WORD_IRD_SHIFT 16
#define WORD_C 0x00008000u
#define WORD_D 0x00004000u
#define WORD_DEPTH_MASK 0x3fffu

void mpa_enhanced_encode(const struct mpa_enhanced *e, uint8_t word[MPA_ENHANCED_LEN])
{
    /*
     * RFC 6581 9/1: "this field MUST be sent in network byte order, with the IRD and ORD encoded as
     * 14-bit unsigned integers".
     */
    uint32_t w = (uint32_t)(e->ird & WORD_DEPTH_MASK) << WORD_IRD_SHIFT | (e->ord & WORD_DEPTH_MASK);
    /* RFC 6581 9.2/11,13: "If Control Flag A is set to 0, then Control Flags B, C, and D MUST also be set
     * to 0." */
    if (e->p2p)
        w |= WORD_A | (e->rtr & MPA_RTR_SEND ? WORD_B : 0) | (e->rtr & MPA_RTR_WRITE ? WORD_C : 0) |
             (e->rtr & MPA_RTR_READ ? WORD_D : 0);
    put_be32(word, w);
}

struct mpa_enhanced mpa_enhanced_decode(const uint8_t word[MPA_ENHANCED_LEN])
{
    uint32_t w = get_be32(word);
    struct mpa_enhanced e = {
        .p2p = (w & WORD_A) != 0,
        .ird = (uint16_t)(w >> WORD_IRD_SHIFT & WORD_DEPTH_MASK),
        .ord = (uint16_t)(w & WORD_DEPTH_MASK),
    };
    /*
     * RFC 6581 9.2/14: "On reception, if Control Flag A is set to 0, then Control Flags B, C, and D
     * MUST be ignored."
     */
    if (e.p2p)
        e.rtr = (uint8_t)((w & WORD_B ? MPA_RTR_SEND : 0) | (w & WORD_C ? MPA_RTR_WRITE : 0) |
                          (w & WORD_D ? MPA_RTR_READ : 0));
    return e;
}
