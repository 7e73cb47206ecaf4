/*
 * How much of the program's octets is framed at a time.
 *
 * What is framed leaves with one sendmsg: several of them each let acknowledgements in and wake the receiver anew, which costs
 * more than octets that the cache no longer holds. A call that waits sees all it frames sent. One that does not wait frames in
 * vain what the socket has no room for: so it begins with less, goes by what the socket took last, and asks before it goes on.
 */
#include <poll.h>

#include "preload/conn.h"
#include "preload/real.h"
#include "preload/sandbox.h"

#define LEAST_LEN (64u * 1024u)
#define FIRST_LEN (256u * 1024u)

void conn_batch_init(struct conn *c)
{
    atomic_store(&c->batch_len, FIRST_LEN);
}

size_t conn_batch_len(const struct conn *c, bool waits)
{
    return waits ? CONN_BATCH_LEN : atomic_load_explicit(&c->batch_len, memory_order_relaxed);
}

void conn_batch_went(struct conn *c, size_t len, size_t went)
{
    size_t now = atomic_load_explicit(&c->batch_len, memory_order_relaxed);
    size_t next = now;
    if (went < len)
        next = went < LEAST_LEN ? LEAST_LEN : went;
    else if (len == now)
        next = now < CONN_BATCH_LEN / 2 ? 2 * now : CONN_BATCH_LEN;
    if (next != now)
        atomic_store_explicit(&c->batch_len, (uint32_t)next, memory_order_relaxed);
}

bool conn_has_room(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return sandbox_on() || REAL(poll)(&p, 1, 0) != 0; /* (an error is the next call's to tell) */
}
