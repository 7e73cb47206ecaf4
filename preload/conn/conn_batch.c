/*
 * How much of the program's bytes is framed at a time.
 *
 * What is framed leaves with one sendmsg. Several calls would each let acknowledgements in and wake the receiver anew,
 * which costs more than reading bytes that have left the cache. A call that may wait sends all that it frames. A call
 * that may not wait would frame in vain what the socket has no room for: it begins with less, goes by what the socket
 * took last, and asks the socket before it goes on.
 *
 * A long answer begins with a short piece: its receiver takes a while to wake up, and meanwhile the rest is framed and
 * copied.
 */
#include <poll.h>

#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_batch.h"
#include "preload/conn/conn_nagle.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"

#define LEAST_LEN (64u * 1024u)
#define FIRST_LEN (256u * 1024u)
#define LEAD_LEN 8192u  /* an answer's first piece, */
#define LONG_LEN 16384u /* only of an answer at least this long */

enum { ASKED_NO, ASKED, ASKED_WAITING }; /* ASKED_WAITING: a call that would have waited has read the question */

void conn_batch_init(struct conn *c)
{
    atomic_store(&c->tx.batch_len, FIRST_LEN);
}

size_t conn_batch_len(const struct conn *c, bool waits)
{
    return waits ? CONN_BATCH_LEN : atomic_load_explicit(&c->tx.batch_len, memory_order_relaxed);
}

void conn_batch_went(struct conn *c, size_t len, size_t went)
{
    size_t now = atomic_load_explicit(&c->tx.batch_len, memory_order_relaxed);
    size_t next = now;
    if (went < len)
        next = went < LEAST_LEN ? LEAST_LEN : went;
    else if (len == now)
        next = now < CONN_BATCH_LEN / 2 ? 2 * now : CONN_BATCH_LEN;
    if (next != now)
        atomic_store_explicit(&c->tx.batch_len, (uint32_t)next, memory_order_relaxed);
}

bool conn_has_room(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return sandbox_on() || REAL(poll)(&p, 1, 0) != 0; /* (the next call tells the program of an error) */
}

void conn_batch_asked(struct conn *c, bool wait)
{
    uint8_t how = wait ? ASKED_WAITING : ASKED;
    if (atomic_load_explicit(&c->tx.asked, memory_order_relaxed) != how)
        atomic_store_explicit(&c->tx.asked, how, memory_order_relaxed);
}

/*
 * No lead where Nagle's rule would keep the rest until the first piece is acknowledged. None either where the thread
 * writes to several connections between two waits: it is busy, and so are its receivers, so one more call would cost
 * time and gain nothing.
 */
size_t conn_batch_lead(struct conn *c, int fd, size_t len, int flags)
{
    static __thread unsigned polls;
    uint8_t asked = atomic_load_explicit(&c->tx.asked, memory_order_relaxed);
    if (asked == ASKED_NO)
        return 0;
    atomic_store_explicit(&c->tx.asked, ASKED_NO, memory_order_relaxed);
    bool first = polls != coalesce_polls || asked == ASKED_WAITING;
    polls = coalesce_polls;
    return first && len >= LONG_LEN && !(flags & MSG_MORE) && conn_nodelay(c, fd) ? LEAD_LEN : 0;
}
