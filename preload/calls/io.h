/*
 * Calls on what is not accelerated, where they would be in the way of what is.
 */
#ifndef SW_PRELOAD_IO_H
#define SW_PRELOAD_IO_H

#include <stdbool.h>

#include "core/base/must.h"

/*
 * A blocking read of something else: while negotiations are under way, it drives them first. Of a descriptor that can be
 * read already, or is not blocking, poll returns at once. flags: recv's. -1 with errno if the call's time went by or a
 * handler interrupted it meanwhile; else 0, and the call itself says what there is to say.
 */
int io_drive_before(int fd, int flags) SW_MUST;

/*
 * A blocking send, with a time-out, on a connection of ours that is plain, while a request of this thread's ring is under way:
 * the kernel would end the call with EINTR (conn_ring_busy). It is to be done by waiting in poll and pieces that have room.
 */
bool io_ring_would_cut(int fd, int flags) SW_MUST;

#endif
