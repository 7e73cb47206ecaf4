/*
 * A turn whose holder is gone.
 */
#ifndef SW_PRELOAD_CONN_ORPHAN_H
#define SW_PRELOAD_CONN_ORPHAN_H

#include "preload/conn/conn.h"

/*
 * The former holder left the turn without giving it back: mends what it protects, or resets the connection. The turn is
 * held; call these before anything else that depends on it.
 */
void conn_rx_orphaned(struct conn *c, int fd);
void conn_tx_orphaned(struct conn *c, int fd);

/*
 * The thread is cancelled in a call on arg, a sock, to which the call has a reference: gives back the reference and the
 * turns, and completes what the call had begun. (The program's memory, from which a frame may be half sent, is still
 * there.)
 */
void conn_left(void *arg);

static inline void conn_rx_whole(struct conn *c, int fd)
{
    if (SW_UNLIKELY(c->rx.turn.orphan != TURN_WHOLE))
        conn_rx_orphaned(c, fd);
}

static inline void conn_tx_whole(struct conn *c, int fd)
{
    if (SW_UNLIKELY(c->tx.turn.orphan != TURN_WHOLE))
        conn_tx_orphaned(c, fd);
}

/*
 * Do whole frames wait in staging until bytes before them have been read? There are no slices left then. rx held, and
 * decoded.
 */
static inline bool conn_rx_held(const struct conn *c)
{
    return conn_state(c) == CONN_UPGRADED && c->ep.rx.tail > c->ep.rx.head && iwarp_in_need(&c->ep) == 0 &&
           c->st.rx.end == STREAM_OPEN;
}

#endif
