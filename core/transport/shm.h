/*
 * An endpoint between two processes of one host: each side has a region of memory, with its cursors and the ring of what it
 * sends. The other side reads it, and may move together what it has not yet used of the ring.
 *
 *   region   0 tail: octets of records in this ring · 64 head: octets of the other ring that are used up ·
 *            128 naps, end · 256 ring
 *   record   0 length of the payload · 4 kind · [8 STag · 12 tagged offset: a Write's] · payload, to a multiple of 8
 *
 * A record is never cut by the ring's end: a record SKIP fills what is left there.
 *
 * Sans-IO: the regions are handed in. The other side may be hostile, and write its region at any moment: each word of it is
 * loaded once and checked before it is used, and nothing that this side has written is read again. So it does no harm that
 * both sides can write both. (The payload is the program's, and is not trusted by anybody.)
 *
 * Flow control is the ring's: to the stream that is an LLP's (STREAM_FLAG_LLP). One thread may post, flush, and nap for room
 * while another polls, releases, and naps for octets.
 *
 * Naps. A side that is going to sleep says so by a number in its region that is odd, and looks once more; a side that has put
 * something there, or used it up, looks for such a number behind a fence, and rings, once for each number. How it rings is
 * its owner's.
 */
#ifndef SW_TRANSPORT_SHM_H
#define SW_TRANSPORT_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/must.h"
#include "core/endpoint.h"

#define SHM_HEAD_LEN 256u
#define SHM_RING_MIN 4096u
#define SHM_RING_MAX 0x40000000u
/* No record is longer, its header included. */
#define SHM_RECORD_MAX(ring_len) ((ring_len) / 4u)

/* What a side has said at its end, behind its last record. Other numbers count as RESET. */
enum shm_end { SHM_OPEN, SHM_CLOSED, SHM_RESET };

/* The beginning of a region. Zeroes are a fresh one. */
struct shm_region {
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint32_t nap_rx; /* odd: this side sleeps until there are octets, */
    _Atomic uint32_t nap_tx;              /* or room */
    _Atomic uint32_t end;                 /* enum shm_end */
    _Alignas(64) uint64_t unused;         /* a reader's look at the first octets fetches no cursor */
};
_Static_assert(sizeof(struct shm_region) == SHM_HEAD_LEN, "both sides' libraries have this layout");

/* A place in a ring: octets since its beginning, and where that is. */
struct shm_place {
    uint64_t at;
    uint32_t off;
};

struct shm_counts {
    uint64_t sends, writes, octets, rings;
};

/* No pointers but the regions: two processes that have them at the same addresses may use one endpoint in turns. */
struct shm_ep {
    struct endpoint base;
    uint32_t ring_len;
    uint32_t stag, window_len;       /* what the other side may write: tagged offsets 0 to window_len */
    struct shm_region *mine;         /* written only */
    const struct shm_region *theirs; /* read, a word at a time */
    struct {                         /* send side */
        struct shm_place tail;       /* behind what was posted */
        uint64_t head;               /* the other side's, as it was loaded last */
        uint32_t nap;
        uint32_t rung; /* the other side's nap that was ended last */
        bool dead;     /* the other side broke the rules, or this one has ended */
        struct shm_counts n;
    } tx;
    struct {                         /* receive side */
        struct shm_place head, next; /* behind what was released, and what was polled */
        uint64_t tail;               /* the other side's, as it was loaded last */
        uint64_t told;               /* the head that the other side can see */
        uint32_t nap;
        uint32_t rung;
        bool broken;
        struct shm_counts n;
    } rx;
};

struct shm_cfg {
    void *mine, *theirs; /* each SHM_HEAD_LEN + ring_len octets, aligned to 64, zeroes at the beginning; borrowed */
    uint32_t ring_len;   /* of both, a multiple of 64 between SHM_RING_MIN and SHM_RING_MAX */
    uint32_t stag, window_len;
};

extern const struct endpoint_ops shm_endpoint_ops;

/* 0; -EINVAL: the lengths are senseless. */
int shm_init(struct shm_ep *ep, const struct shm_cfg *cfg) SW_MUST;

/* ---- send side ---- */

/* Lets the other side see what was posted. True: it sleeps, ring. */
bool shm_flush(struct shm_ep *ep);
/* Is there room for a record of the greatest length? Looks at the other side's head if need be. */
bool shm_has_room(struct shm_ep *ep);
/* Sleeps from now on until there is room; false: there is already, do not sleep. shm_wake_tx ends it. */
bool shm_nap_tx(struct shm_ep *ep);
void shm_wake_tx(struct shm_ep *ep);
/* This side ends, behind what was posted: nothing can be posted from now on. True: ring. */
bool shm_end(struct shm_ep *ep, enum shm_end end);
/* Octets of records that the other side has not used up. */
uint64_t shm_unused(struct shm_ep *ep);

/* ---- receive side ---- */

/* Is there something to poll? A look, which costs no more than loading a word. */
static inline bool shm_come(const struct shm_ep *ep)
{
    return ep->rx.next.at != ep->rx.tail ||
           atomic_load_explicit(&ep->theirs->tail, memory_order_acquire) != ep->rx.next.at;
}
/* Lets the other side see what was released. True: it sleeps until there is room, and there is: ring. */
bool shm_tell(struct shm_ep *ep);
/* As shm_nap_tx: until there is something to poll, or the other side has ended. */
bool shm_nap_rx(struct shm_ep *ep);
void shm_wake_rx(struct shm_ep *ep);
/* What the other side has said. Only once all that it had put before was polled. */
enum shm_end shm_peer_end(const struct shm_ep *ep);

#endif
