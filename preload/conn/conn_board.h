/* A connection's slot on the board: preload/process/board.h. */
#ifndef SW_PRELOAD_CONN_BOARD_H
#define SW_PRELOAD_CONN_BOARD_H

#include "preload/conn/conn.h"
#include "preload/process/stats.h"

/*
 * Its state has changed: with both turns held, or before any other thread knows c. Does nothing unless SOCKWARP_STAT is
 * set.
 */
void conn_board_moved(struct conn *c);
/* Its local address, from the kernel, if c does not know it (an initiator's). */
void conn_board_named(const struct conn *c, int fd);
/*
 * From a former program of this process, whose board is gone: it gets a slot here, unless other processes have it
 * still.
 */
void conn_board_taken_up(struct conn *c);
/* It is over, and this is its record. */
void conn_board_ended(struct conn *c, const struct stats_record *r);

/* Copies the counters. From the receive side's slow places, with rx held. */
void conn_board_copy(struct conn *c);
static inline void conn_board_count(struct conn *c)
{
    if (SW_UNLIKELY(c->board != 0))
        conn_board_copy(c);
}

#endif
