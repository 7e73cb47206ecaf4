/*
 * The way back to plain TCP, and the peers that are known to be plain.
 */
#ifndef SW_PRELOAD_FALLBACK_H
#define SW_PRELOAD_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct conn;
struct sock;

/* How long a plain peer is remembered at first; 0: not at all. */
uint64_t fallback_ttl_ns(void);
/* Did this process find the peer plain lately, on the network that the socket fd is on? Any thread, handlers. */
bool fallback_known_plain(const struct sockaddr *peer, int fd);
/* Remembers the peer of c, whose socket is fd, as plain, for all processes of this user. Likewise. */
void fallback_remember(const struct conn *c, int fd);
/*
 * Ends the connection on which a Hello was sent and connects the same socket again, plain. Blocks if the socket does.
 * The result of a blocking connect() is in c->so_error (0: connected). Both turns held.
 */
void fallback_plain(struct sock *s, struct conn *c, int fd);
/*
 * The rule says `require` and the connection was not upgraded: ECONNREFUSED for the initiator, a reset for the
 * responder. Likewise.
 */
void fallback_refuse(struct sock *s, struct conn *c, int fd, unsigned reason);
/* In the child of a fork. */
void fallback_after_fork(void);

#endif
