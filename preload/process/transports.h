/*
 * The transport variant in use: chosen at the first need, by SOCKWARP_IO and by what the kernel allows.
 */
#ifndef SW_PRELOAD_TRANSPORTS_H
#define SW_PRELOAD_TRANSPORTS_H

#include "core/transport/transport.h"

const struct transport_ops *transport_now(void);
/* The one in use, or NULL if none was needed yet. */
const struct transport_ops *transport_if_any(void);
/* In the child of a fork: the parent's requests are not its own. */
void transports_after_fork(void);

#endif
