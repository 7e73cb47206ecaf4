/*
 * What an address and port answered lately: peers that turned out to be plain are not asked again
 * until the verdict is too old. A fixed table (collisions drop the older entry), no allocation; the
 * owner locks.
 */
#ifndef SW_NEGOTIATE_VERDICT_H
#define SW_NEGOTIATE_VERDICT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define VERDICT_SLOTS 1024u
#define VERDICT_TTL_MAX_NS 3600000000000u /* no verdict grows beyond this */

struct verdict_entry {
    uint8_t addr[16];
    uint32_t scope;
    uint16_t port;
    uint8_t family; /* 0: free */
    uint64_t until_ns, ttl_ns;
};

struct verdicts {
    struct verdict_entry slot[VERDICT_SLOTS];
};

/* Is this peer known to be plain at now_ns? AF_INET and AF_INET6; false for others. */
bool verdict_plain(const struct verdicts *v, const struct sockaddr *peer, uint64_t now_ns);
/*
 * It was found to be plain at now_ns: remembers that for ttl_ns. A peer that is found to be plain again soon, no later
 * behind the end of its last verdict than that was long, is remembered for twice as long as then, up to
 * VERDICT_TTL_MAX_NS (or ttl_ns, if that is more). While a verdict holds it is not lengthened.
 */
void verdict_add(struct verdicts *v, const struct sockaddr *peer, uint64_t now_ns, uint64_t ttl_ns);

#endif
