/* The program closes a connection, or exits with one, whose stream goes in software over its own TCP connection. */
#include <errno.h>
#include <sys/socket.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_soft.h"
#include "preload/conn/conn_tx.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"

/*
 * TCP answers a close that leaves received bytes unread with a reset (RFC 1122 section 4.2.2.13). Bytes in our staging
 * count too. What is no byte of the program's, such as an RTR, is taken in first, because the kernel would count it.
 * True: the close will be a reset.
 */
static bool reset_if_unread(struct conn *c, int fd)
{
    /*
     * (Taking bytes in makes room, and the peer would learn of it before the reset: so nothing is taken in where the
     * reset comes anyhow.)
     */
    if (turn_take_brief(&c->rx.turn) < 0)
        return false;
    bool unread = (conn_rx_progress(c, fd, conn_rx_avail(c) == 0), conn_rx_avail(c) > 0);
    if (unread)
        conn_reset_at_close(fd);
    turn_give(&c->rx.turn);
    return unread;
}

/* Does a thread wait for it in poll or select? */
static bool is_polled(struct sock *s)
{
    lock_take(&s->watch_lock);
    bool yes = s->pollers != NULL;
    lock_give(&s->watch_lock);
    return yes;
}

/*
 * An HSWI that comes to a closed socket, or is unread at the close, would be answered by a reset too. So the end is
 * announced first, and then what has arrived is taken in: an initiator that knows of the end sends no HSWI. Returns as
 * reset_if_unread.
 */
static bool end_before_switch(struct sock *s, struct conn *c, int fd)
{
    /* (If threads poll it, the end, which would wake them, follows when they have left, as TCP's does.) */
    if (c->rx.mode != CONN_RX_STREAMED || c->st.rx.end != STREAM_OPEN || is_polled(s) || conn_is_unsaid(c) ||
        turn_take_brief(&c->tx.turn) < 0)
        return false;
    bool all = !c->tx.fin_owed && conn_tx_flush(c, fd) == 0;
    if (all)
        REAL(shutdown)(fd, SHUT_WR);
    turn_give(&c->tx.turn);
    return all && reset_if_unread(c, fd);
}

/* What comes before the last bytes. Returns SO_LINGER as it is then, in conn_linger_s's form. */
static int end_reading(struct sock *s, struct conn *c, int fd)
{
    int linger = conn_linger_s(s, fd);
    return linger == 0 || reset_if_unread(c, fd) || end_before_switch(s, c, fd) ? 0 : linger;
}

/*
 * What is queued is nothing that the program has said, so the close need not send it. (A reset of the program's follows
 * it.)
 */
static bool may_go_unsent(const struct conn *c, int linger)
{
    return conn_only_answers(c) || (conn_only_leads(c) && linger != 0);
}

/* What is left is sent now, or after the close. */
static void send_last(struct sock *s, struct conn *c, int fd, int linger)
{
    if (turn_take_brief(&c->tx.turn) < 0)
        return; /* another thread is sending, and sends the rest */
    if (!may_go_unsent(c, linger) && conn_tx_flush(c, fd) == -EAGAIN && linger != 0)
        conn_tx_finish(s, fd, proc.set.linger_ms);
    turn_give(&c->tx.turn);
}

/*
 * Another process still has it, but what is left to send is this one's: the other may never make a call on it.
 * (SO_LINGER matters only when the last process closes it.)
 */
static void settle_shared(struct sock *s, struct conn *c, int fd)
{
    if (conn_tail_is_mine(c))
        send_last(s, c, fd, -1);
}

/* Bytes accepted from the program but not yet given to the kernel are sent after the close. */
static void settle_close(struct sock *s, struct conn *c, int fd)
{
    /* The RTR has not come: the end is announced first, as when the startup is not over. */
    if (c->responder && !iwarp_can_send(&c->ep) && conn_linger_s(s, fd) != 0)
        REAL(shutdown)(fd, SHUT_WR);
    int linger = end_reading(s, c, fd);
    if (turn_take_brief(&c->tx.turn) < 0)
        return; /* another thread is sending, and sends the rest */
    int r = may_go_unsent(c, linger) ? 0 : conn_tx_flush(c, fd);
    if (r == -EAGAIN && linger > 0)
        r = conn_tx_settle(c, fd, conn_linger_ms(linger));
    if (r == -EAGAIN && linger != 0)
        conn_tx_finish(s, fd, proc.set.linger_ms);
    turn_give(&c->tx.turn);
}

/* The same at the exit, which does not wait for each connection: conn_tx_finished waits for all. */
static void settle_exit(struct sock *s, struct conn *c, int fd)
{
    send_last(s, c, fd, end_reading(s, c, fd));
}

void conn_soft_close(struct sock *s, struct conn *c, int fd, bool exits)
{
    if (!holders_alone(&c->holders))
        settle_shared(s, c, fd);
    else if (exits)
        settle_exit(s, c, fd);
    else
        settle_close(s, c, fd);
}
