/*
 * The initiator's question between hosts, before it is asked. A listener whose backlog is full knows a client by its
 * first segment alone, and resets it for a second one that comes first. So the question goes in front of the program's
 * first bytes; and alone only when the program waits, since a server may have to speak first.
 */
#include <errno.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_plain.h"
#include "preload/process/proc.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/pending.h"
#include "preload/startup/startup.h"

/* How long it waits for the first bytes of a program that looks again and again, and does not sleep. */
#define LOOKS 64u
#define LOOKS_NS 1000000u

void startup_put_off(struct conn *c)
{
    c->startup.unasked_ns = proc_now_ns();
    c->startup.unasked_by = proc_tid();
    atomic_store(&c->startup.unlooked, true); /* nothing can have come yet */
}

static bool ask_if_told(struct conn *c, int fd)
{
    if (!c->startup.asks)
        return false;
    negotiate_ask(&c->neg);
    conn_nodelay_lend(c, fd); /* the program's first bytes do not wait for its acknowledgement */
    return true;
}

/* Not if the server spoke first, nor if something was sent past us: then it would come in the middle of a stream. */
bool startup_step_unasked(struct conn *c, int fd)
{
    uint64_t rx, tx = 0;
    uint8_t first;
    c->startup.kernel_wants = POLLIN;
    if (atomic_exchange(&c->startup.unlooked, false))
        return ask_if_told(c, fd);
    ssize_t n = startup_peek_first(fd, &first);
    if (startup_would_wait(c, n, POLLIN)) {
        if (tcpinfo_totals(fd, &rx, &tx) && tx == 0)
            return ask_if_told(c, fd);
        negotiate_decline(&c->neg, REASON_SHARED_FD);
    } else if (n > 0) {
        (void)negotiate_in(&c->neg, &first, 1, proc_now_ns());
    } else {
        negotiate_eof(&c->neg);
    }
    return true;
}

void startup_step_asking(struct sock *s)
{
    struct conn *c = s->conn;
    if (conn_is_unasked(c)) {
        c->startup.asks = true;
        atomic_store(&c->startup.unlooked, false);
    }
    startup_step_called(s);
    c->startup.asks = false;
}

/* (A busy program may come to its first look late, and send next.) */
bool startup_asks_by_now(struct conn *c)
{
    return conn_is_unasked(c) && ++c->startup.unasked_looks >= LOOKS &&
           proc_now_ns() - c->startup.unasked_ns >= LOOKS_NS;
}

/* Another thread than the one that has connected may be about to send. */
uint64_t startup_asks_at(const struct conn *c)
{
    return c->startup.unasked_by == proc_tid() ? PENDING_AT_REST : 0;
}

ssize_t startup_send_asking(struct conn *c, int fd, struct iov_iter *it, size_t len, int flags)
{
    const uint8_t *lead;
    size_t lead_len = negotiate_lead(&c->neg, &lead);
    /* (Where the kernel keeps the program's pages it would keep ours, and they change.) */
    bool apart = (flags & MSG_ZEROCOPY) != 0;
    ssize_t n = conn_send_behind(fd, lead, lead_len, it, apart ? 0 : len, flags & ~MSG_ZEROCOPY);
    if (n <= 0)
        return n;
    size_t said = (size_t)n < lead_len ? (size_t)n : lead_len;
    negotiate_sent(&c->neg, said);
    c->startup.tx_total += said;
    c->tx.kernel_total += said;
    return n - (ssize_t)said;
}

void startup_stay_unasked(struct sock *s, unsigned reason)
{
    struct conn *c = s->conn;
    if (!conn_is_unasked(c) || turn_take_brief(&c->rx.turn) < 0)
        return;
    if (turn_take_brief(&c->tx.turn) == 0) {
        if (conn_is_unasked(c)) {
            negotiate_decline(&c->neg, reason);
            startup_step(s);
        }
        turn_give(&c->tx.turn);
    }
    turn_give(&c->rx.turn);
}
