/*
 * What an address and port answered lately: peers that turned out to be plain are not asked again for a while. Plain
 * records in a fixed table (collisions drop the older one), no allocation; the owner locks. A record may come from
 * other processes, so it is checked whenever it is taken, and says no more than that a peer is not to be asked; how
 * long is the taker's setting.
 */
#ifndef SW_NEGOTIATE_VERDICT_H
#define SW_NEGOTIATE_VERDICT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define VERDICT_SLOTS 1024u
#define VERDICT_TTL_MAX_NS 3600000000000u /* no verdict grows beyond this */

struct verdict_entry {
    uint64_t netns;    /* the network that the address is of, by a number of the owner's */
    uint64_t found_ns; /* when the peer was found to be plain */
    uint8_t addr[16];
    uint32_t scope;
    uint16_t port;
    uint8_t family; /* 0: free */
    uint8_t again;  /* how often it was found so again, soon after a verdict had ended */
    uint64_t check; /* of all of the above */
};
_Static_assert(sizeof(struct verdict_entry) == 48, "a file has these");

struct verdicts {
    struct verdict_entry slot[VERDICT_SLOTS];
};

/* The record's key, all else zero. False: peer is neither AF_INET nor AF_INET6. */
bool verdict_key(struct verdict_entry *key, const struct sockaddr *peer, uint64_t netns);
/* Where in a table a record with this key is, whatever its netns: 0 to VERDICT_SLOTS - 1. */
uint32_t verdict_slot(const struct verdict_entry *key);
/*
 * Does e, which any process may have written, say of key's peer that it is plain at now_ns? ttl_ns: how long the first
 * verdict holds. With key->netns 0 it may be of any network.
 */
bool verdict_holds(const struct verdict_entry *e, const struct verdict_entry *key, uint64_t now_ns, uint64_t ttl_ns);
/*
 * key's peer was found to be plain at now_ns: makes e say so. A peer that is found to be plain again soon, no later
 * behind the end of its last verdict than that was long, is remembered for twice as long as then, up to
 * VERDICT_TTL_MAX_NS (or ttl_ns, if that is more). While a verdict holds it is not lengthened: false, e is as it was.
 */
bool verdict_renew(struct verdict_entry *e, const struct verdict_entry *key, uint64_t now_ns, uint64_t ttl_ns);

#endif
