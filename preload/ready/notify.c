/* Tells the waiters of a connection that it has changed. */
#include "preload/sock/notify.h"
#include "preload/conn/conn_rx.h"

#include "preload/conn/conn.h"
#include "preload/ready/epoll.h"
#include "preload/ready/ready.h"

void notify_readable(struct sock *s)
{
    conn_rtr_told(s);
    if (sock_watched(s))
        epoll_left_over(s, atomic_exchange(&s->conn->rx.arrived, false));
    ready_told(s);
}

void notify_writable(struct sock *s)
{
    epoll_out_ready(s);
    ready_told(s);
}

void notify_blocked(struct sock *s)
{
    if (sock_watched(s))
        epoll_out_blocked(s);
}

void notify_changed(struct sock *s)
{
    epoll_conn_changed(s);
    ready_told(s);
}
