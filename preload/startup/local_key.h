/*
 * The names of listeners on this host: abstract AF_UNIX addresses made of a TCP address and port. See local.h.
 */
#ifndef SW_PRELOAD_LOCAL_KEY_H
#define SW_PRELOAD_LOCAL_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* An address in the form names are made of: IPv4-mapped ones as IPv4. */
struct local_key {
    int family;
    uint8_t addr[16];
    size_t addr_len;
    uint16_t port;
    uint32_t scope; /* the interface of a link-local address: it is another address on each */
};

/* False: sa is of another family. */
bool local_key_of(const struct sockaddr *sa, struct local_key *k);
/* Is it the wildcard address? */
bool local_key_any(const struct local_key *k);
bool local_key_same(const struct local_key *a, const struct local_key *b);
/*
 * "\0sockwarp/2/4/7f000001/1451" in hexadecimal, with "%00000002" behind a link-local address; returns the length of
 * the AF_UNIX address.
 */
socklen_t local_name_of(const struct local_key *k, struct sockaddr_un *un);
/* "\0sockwarp/2/i/00012345": a listener that may be one of several at its address. */
socklen_t local_name_of_ino(uint64_t ino, struct sockaddr_un *un);

#endif
