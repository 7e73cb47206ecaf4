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

struct verdict_entry {
    uint8_t addr[16];
    uint32_t scope;
    uint16_t port;
    uint8_t family; /* 0: free */
    uint64_t until_ns;
};

struct verdicts {
    struct verdict_entry slot[VERDICT_SLOTS];
};

/* Is this peer known to be plain at now_ns? AF_INET and AF_INET6; false for others. */
bool verdict_plain(const struct verdicts *v, const struct sockaddr *peer, uint64_t now_ns);
/* Remembers that it is, until until_ns. */
void verdict_add(struct verdicts *v, const struct sockaddr *peer, uint64_t until_ns);

#endif
