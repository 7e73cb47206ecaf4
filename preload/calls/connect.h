/*
 * The initiator's connect(2).
 */
#ifndef SW_PRELOAD_CONNECT_H
#define SW_PRELOAD_CONNECT_H

#include "preload/conn/conn.h"

/*
 * Has the program been told that its connect() succeeded, by the call's return or by writability, though the
 * negotiation goes on? Then everything answers as on a connected socket.
 */
static inline bool connect_told(const struct conn *c)
{
    return c->startup.in_backlog || c->neg.cfg.may_switch || atomic_load(&c->startup.shut_later) != 0 || c->neg.late ||
           conn_speaks_plain(c);
}

#endif
