/*
 * A connection's memory, which processes share: slots, buffers, and their way into the next program.
 */
#ifndef SW_PRELOAD_CONN_MEM_H
#define SW_PRELOAD_CONN_MEM_H

#include "preload/conn/conn.h"

/* A slot held by this process, all but ep and st zeroed. NULL: no memory. */
struct conn *conn_alloc(void);
/*
 * This process holds it no longer. s: if it was the last that did, its statistics are written now, if they were not.
 * True: no process holds it, and from now on the slot may be another connection's.
 */
bool conn_leave(struct conn *c, struct sock *s);
/* And its memory is not mapped here any more. */
void conn_release(struct conn *c, struct sock *s);
/* Maps its buffers (once), for this process and the children it will have. Any thread. -ENOMEM. */
int conn_buffers(struct conn *c) SW_MUST;
/* Makes room in `pre` for a server that says a lot before it answers. -ENOMEM, -ENOSPC (it is that large already). */
int conn_grow_pre(struct conn *c) SW_MUST;
/* Bytes of address space kept for it: what it may use at most, whatever its peer does. */
size_t conn_memory(const struct conn *c);
/*
 * For a program that is executed: where c is, as the next program can say it to conn_take_up: the arena's descriptor,
 * the block's address and c's place in it. False: it cannot be mapped by another program.
 */
struct conn_place {
    int shmem_fd;
    uintptr_t block;
    unsigned slot;
    int maker; /* of the child that takes it up; 0: an exec */
};
bool conn_place(const struct conn *c, struct conn_place *at) SW_MUST;
/* There: the connection, held by this process from now on, or NULL: it cannot be mapped here, or is over. */
struct conn *conn_take_up(const struct conn_place *at);
/*
 * This process is about to give up rights: what it holds alone moves to memory of its own, at the same addresses, and
 * nothing that others hold stays mapped or open here. Until until_ns it waits for others that are about to let go of
 * what it holds, too. It has one thread, whose signals are blocked. 0; -EBUSY: others hold what it holds, and -ENOMEM:
 * all is as before.
 */
int conn_mem_part(uint64_t until_ns) SW_MUST;
/* Is there anything to part from? */
bool conn_mem_is_shared(void);
/* Their memory stands still while the process is copied; in the parent, and in the child, afterwards. */
void conn_mem_before_fork(void);
void conn_mem_after_fork(bool child);

#endif
