/*
 * A connection's memory, which processes share: slots, buffers, and their way into the next program.
 */
#ifndef SW_PRELOAD_CONN_MEM_H
#define SW_PRELOAD_CONN_MEM_H

#include "preload/conn/conn.h"

/* A new slot, held by this process; all but ep and st is zero. NULL: no memory. */
struct conn *conn_alloc(void);
/*
 * This process gives it up. If it was the last holder, writes the statistics with s, unless that was done. True: no
 * process holds it, and from now on the slot may be another connection's.
 */
bool conn_leave(struct conn *c, struct sock *s);
/* The same, and unmaps its memory here. */
void conn_release(struct conn *c, struct sock *s);
/* Maps its buffers (once), for this process and the children it will have. Any thread. -ENOMEM. */
int conn_buffers(struct conn *c) SW_MUST;
/*
 * Makes more room in `pre` for a server that sends much before it answers. -ENOMEM, -ENOSPC (it has the full size
 * already).
 */
int conn_grow_pre(struct conn *c) SW_MUST;
/* Bytes of address space reserved for it: the most that it can use, whatever its peer does. */
size_t conn_memory(const struct conn *c);
/*
 * For an exec: c's place, as the next program gives it to conn_take_up: the arena's descriptor, the block's address and
 * c's place in it. False: another program cannot map it.
 */
struct conn_place {
    int shmem_fd;
    uintptr_t block;
    unsigned slot;
    int maker; /* of the child that takes it up; 0: an exec */
};
bool conn_place(const struct conn *c, struct conn_place *at) SW_MUST;
/*
 * In the next program: the connection, held by this process from now on, or NULL: it cannot be mapped here, or is over.
 */
struct conn *conn_take_up(const struct conn_place *at);
/*
 * This process is about to give up rights: moves its connections to memory of its own, at the same addresses, and
 * unmaps and closes all that others hold. Those that others hold, too, it shares with them by records from then on
 * (conn_apart.h). The other threads stand still (others.h), and this one's
 * signals are blocked. 0; or -ENOMEM: nothing has changed.
 */
int conn_mem_part(void) SW_MUST;
/* Before that: waits, until then, for processes that are about to give up a connection that this one holds, too. */
void conn_mem_await(uint64_t until_ns);
/* Is there anything to part from? */
bool conn_mem_is_shared(void);
/*
 * Around a fork: their memory does not change while the process is copied. The second in the parent and in the child.
 */
void conn_mem_before_fork(void);
void conn_mem_after_fork(bool child);

#endif
