/*
 * The way back to plain TCP.
 */
#ifndef SW_PRELOAD_FALLBACK_H
#define SW_PRELOAD_FALLBACK_H

#include <stdbool.h>
#include <sys/socket.h>

struct conn;
struct sock;

/* Remembers the peer of c, whose socket is fd, as plain (learned.h), unless it is known to run sockwarp. */
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

#endif
