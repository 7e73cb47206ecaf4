/*
 * A tail that is given to the transport: it goes while the program does something else.
 */
#ifndef SW_PRELOAD_CONN_JOB_H
#define SW_PRELOAD_CONN_JOB_H

#include "preload/conn/conn.h"

/*
 * A request of this thread's ring is under way. When it ends, it interrupts calls that the kernel never restarts, as if
 * a handler had run: those on sockets with a time-out. They have to wait in poll instead.
 */
bool conn_ring_busy(void);
/*
 * Gives what is queued to the transport, as one piece where that can be made of it. False: nothing is queued, it
 * cannot, or it has something already: a ring, perhaps another process', sends from the very memory. tx held.
 */
bool conn_tx_start(struct conn *c, int fd, enum transport_then then);
/*
 * The same by a job of the caller's, with room for its one piece, which stay until it is over: for a connection that
 * this process closes and others have. They send nothing before the kernel has it all.
 */
bool conn_tx_start_own(struct conn *c, struct transport_job *job, struct iovec *piece, int fd,
                       enum transport_then then);
/*
 * Such a job with TRANSPORT_THEN_SHUT_WR is over. Has it been stopped, and goes on? It ends the direction once all is
 * sent. Any thread.
 */
bool conn_tx_go_on_own(struct transport_job *job, struct iovec *piece);
/* As conn_tx_start with the connection going on, where that is of use: so that it goes without us. tx held. */
void conn_tx_later(struct conn *c, int fd);
/* The asynchronous send is over or is stopped; what it sent is booked. tx held. */
void conn_tx_reap(struct conn *c);
/* The same where no call has tx, for one that asks whether the connection is broken. (One that has it asks itself.) */
void conn_tx_reap_idle(struct conn *c);
/* Stops it, and books what it sent. tx held. */
void conn_tx_stop(struct conn *c);

#endif
