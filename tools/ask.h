/* sockwarp check ADDRESS:PORT --ask: a real question to a server, as a program under sockwarp would put it. */
#ifndef SW_TOOLS_ASK_H
#define SW_TOOLS_ASK_H

#include <stdint.h>
#include <sys/socket.h>

#include "core/base/must.h"

/*
 * Connects, sends a Hello that offers transports (HELLO_TRANSPORT_*), prints what comes back and after what time, and
 * closes. Each of the two waits timeout_ms at most. The server's program sees a connection that is closed at once; one
 * without sockwarp sees 64 bytes on it. Returns the reason that a connection would have (core/base/reason.h):
 * REASON_UPGRADED, REASON_NOT_CONNECTED and others.
 */
unsigned ask_print(const struct sockaddr *addr, socklen_t len, uint32_t transports, unsigned timeout_ms) SW_MUST;

#endif
