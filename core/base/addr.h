/* The port of an internet address, which lies at the same place in both families' addresses. */
#ifndef SW_BASE_ADDR_H
#define SW_BASE_ADDR_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "the same place");

/* Ports in the order of the network. */
static inline in_port_t addr_port(const struct sockaddr_storage *ss)
{
    in_port_t be_port;
    memcpy(&be_port, (const uint8_t *)ss + offsetof(struct sockaddr_in, sin_port), sizeof(be_port));
    return be_port;
}

static inline void addr_set_port(struct sockaddr_storage *ss, in_port_t be_port)
{
    memcpy((uint8_t *)ss + offsetof(struct sockaddr_in, sin_port), &be_port, sizeof(be_port));
}

#endif
