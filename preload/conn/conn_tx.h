/*
 * Sending on an upgraded connection.
 */
#ifndef SW_PRELOAD_CONN_TX_H
#define SW_PRELOAD_CONN_TX_H

#include "preload/conn/conn.h"

/* As send(2) on an upgraded connection, len > 0. No turn held. */
/* ran: from the call's begin. */
ssize_t conn_send_upgraded(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                           const struct signals_mark *ran);
/*
 * Sends what is queued without waiting: tail, control frames, FIN. tx held. 0: nothing is left; -EAGAIN: some is; or an
 * error.
 */
int conn_tx_flush(struct conn *c, int fd);
/* The same for a tail that no call waits for: an error is kept for the program's next call. tx held. */
int conn_tx_rest(struct conn *c, int fd);
/* Flushes without waiting, and gives the rest to the transport. As conn_tx_flush. tx held. */
int conn_tx_push(struct conn *c, int fd);
/* fd is closed, and is not the last one: a send of the transport's by this number goes on by another. tx held. */
void conn_tx_moved(struct sock *s, int fd);

#endif
