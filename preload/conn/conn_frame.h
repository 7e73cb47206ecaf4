/*
 * How long frames may be on the path of a connection.
 */
#ifndef SW_PRELOAD_CONN_FRAME_H
#define SW_PRELOAD_CONN_FRAME_H

#include "preload/conn/conn.h"

#define CONN_FRAME_LEAST 1408u /* fits a segment of Ethernet's; what is no longer is one frame on any path */

/* Looks how long frames may be on this path now. Software's own frames (not fpdu=emss). tx held. */
void conn_frame_fit(struct conn *c, int fd);
/* Before len bytes are framed. tx held. */
static inline void conn_frame_before(struct conn *c, int fd, size_t len)
{
    if (len <= CONN_FRAME_LEAST)
        return;
    uint32_t left = atomic_load_explicit(&c->tx.frame_left, memory_order_relaxed);
    if (len > left)
        conn_frame_fit(c, fd);
    else
        atomic_store_explicit(&c->tx.frame_left, left - (uint32_t)len, memory_order_relaxed);
}

#endif
