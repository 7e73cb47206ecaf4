/*
 * MSG_ZEROCOPY on an upgraded connection.
 */
#ifndef SW_PRELOAD_CONN_ZEROCOPY_H
#define SW_PRELOAD_CONN_ZEROCOPY_H

#include "preload/conn/conn.h"

/* The first byte of what is queued for a call with MSG_ZEROCOPY. It does not wait: -EAGAIN. tx held. */
int conn_zerocopy_first(struct conn *c, int fd, uint8_t octet, int flags) SW_MUST;
/* Has the program set SO_ZEROCOPY? */
bool conn_zerocopy_on(int fd);
/* The program has taken this off the error queue. */
void conn_zerocopy_told(int fd, struct msghdr *msg);

#endif
