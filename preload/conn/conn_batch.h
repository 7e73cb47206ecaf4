/*
 * How many of a write's bytes are framed at a time, and whether the kernel has room for more.
 */
#ifndef SW_PRELOAD_CONN_BATCH_H
#define SW_PRELOAD_CONN_BATCH_H

#include "preload/conn/conn.h"

#define CONN_UNPROVED_LEN 16384u       /* sent without asking the kernel whether there is still room */
#define CONN_BATCH_LEN (1024u * 1024u) /* program bytes framed at a time, at most */

void conn_batch_init(struct conn *c);
/* The most bytes of the program's that are framed at a time, for a call that waits or one that does not. */
size_t conn_batch_len(const struct conn *c, bool waits);
/* Of len bytes that were framed for a call that does not wait, `went` were sent. tx held. */
void conn_batch_went(struct conn *c, size_t len, size_t went);
/*
 * The length of the first piece with which a write of len bytes begins, and which goes by itself; 0: it is not split.
 * Once for each answer: the caller writes them. tx held.
 */
size_t conn_batch_lead(struct conn *c, int fd, size_t len, int flags);
/* The program has read bytes; wait: by a call that would have waited for them. Any thread. */
void conn_batch_asked(struct conn *c, bool wait);
/* A send for the program took `sent` of len bytes. Any thread, as it is a hint. */
static inline void conn_room_used(struct conn *c, size_t sent, size_t len)
{
    uint32_t n = atomic_load_explicit(&c->tx.unproved, memory_order_relaxed);
    n = sent < len || len > CONN_UNPROVED_LEN ? UINT32_MAX : n > CONN_UNPROVED_LEN ? n : n + (uint32_t)len;
    atomic_store_explicit(&c->tx.unproved, n, memory_order_relaxed);
}
/* The kernel has said that there is room. Any thread. */
static inline void conn_room_proved(struct conn *c)
{
    if (atomic_load_explicit(&c->tx.unproved, memory_order_relaxed) != 0)
        atomic_store_explicit(&c->tx.unproved, 0, memory_order_relaxed);
}
/* Is there room for another send, as far as can be told without asking? Any thread. */
static inline bool conn_room_likely(const struct conn *c)
{
    return atomic_load_explicit(&c->tx.unproved, memory_order_relaxed) <= CONN_UNPROVED_LEN && !conn_tail_is_ours(c);
}
/* Is it worth while to frame more for fd? If not, the kernel is to tell when it is (edges, too). A system call. */
bool conn_has_room(int fd);

#endif
