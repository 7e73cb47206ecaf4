/*
 * The messages of the iWARP port mapper. With its daemon (rdma-core's iwpmd) running, a device does not listen on the port that its
 * program has bound, which may be TCP's, but on one that the daemon keeps for it. Who wants to connect asks the daemon at the
 * accepting end by UDP, port 3935:
 *
 *      connecting end    REQUEST  (the port that the program has bound) ->
 *                     <- ACCEPT   (the port where the device listens), or REJECT: there is no such mapping
 *                        ACK ->
 *
 *      0                  1      2                4                6                8        16
 *      | version:2        | time | mapped port    | accepting port | connecting     | handle |
 *      | type:2, IP's: 4  |      | (REQUEST only) |                | port           |        |
 *      16                        32                       48                                64
 *      | connecting address      | accepting address      | mapped address (REQUEST only)   |
 *
 * Big-endian; an IPv4 address is the first four octets of its sixteen. There is no RFC: this is what iwpmd of rdma-core 44 says
 * and takes. The format and the rules of the connecting end only: nothing here sends.
 */
#ifndef SW_MPA_PORTMAP_H
#define SW_MPA_PORTMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

#define PORTMAP_PORT 3935u
#define PORTMAP_LEN 48u
#define PORTMAP_REQUEST_LEN 64u
#define PORTMAP_IP_LEN 16u

enum portmap_type { PORTMAP_REQUEST, PORTMAP_ACCEPT, PORTMAP_ACK, PORTMAP_REJECT };

struct portmap_addr {
    uint8_t ip[PORTMAP_IP_LEN]; /* IPv4: the first four, then zeros */
    uint16_t port;
};

struct portmap_msg {
    uint8_t type;    /* enum portmap_type */
    uint8_t ip;      /* version: 4 or 6 */
    uint8_t time;    /* 0 */
    uint64_t handle; /* the connecting end's, for this question */
    struct portmap_addr accepting;
    struct portmap_addr connecting;
    struct portmap_addr mapped; /* REQUEST: where the connecting end's own port is mapped to, or that port */
};

/* Octets written. -EINVAL: an unknown type or IP version; -EMSGSIZE: cap is too small. */
ssize_t portmap_encode(const struct portmap_msg *m, uint8_t *buf, size_t cap) SW_MUST;

/*
 * A datagram. 0 with *out; -EMSGSIZE: too short for its type; -EPROTO: another version of the protocol, or of IP. What is behind the
 * message is not looked at.
 */
int portmap_decode(const uint8_t *buf, size_t len, struct portmap_msg *out) SW_MUST;

/*
 * The connecting end has sent the question `request`, and a datagram has come from where that went. 1: an ACCEPT; *port is where the
 * device listens, and ack (PORTMAP_LEN octets) is to be sent back, each time, as the ACCEPT is repeated until it is acknowledged.
 * -ECONNREFUSED: a REJECT; the port is not mapped, and good as it is. 0: no answer to this question, to be ignored: another handle,
 * other addresses, an accepting address that was not asked for, port 0, or no valid message.
 */
int portmap_hear(const struct portmap_msg *request, const uint8_t *buf, size_t len, uint16_t *port,
                 uint8_t ack[PORTMAP_LEN]) SW_MUST;

#endif
