/*
 * A connection that processes of different rights use.
 *
 * Processes that fork shares a connection with have its state in one memory, with pointers. One that gives up rights
 * leaves that memory (conn_mem_part) and keeps a copy; from then on the two sides of this parting hand the state to
 * each other by a record (preload/process/apart.h): whoever takes one of the connection's turns locks that direction's
 * side of the record and takes over what another process has left there; whoever gives the turn back, or falls asleep
 * with it, leaves the state there. What is constant since the upgrade is in each one's own memory. What does not check
 * resets the connection.
 *
 *   turn_take -> [enter: lock, load if it has changed] -> the call -> [leave: save, unlock] -> turn_give
 *
 * When no process of another side uses it any more, the connection is an ordinary one again.
 */
#ifndef SW_PRELOAD_CONN_APART_H
#define SW_PRELOAD_CONN_APART_H

#include <stdbool.h>

#include "preload/conn/conn.h"

/* Once in each process. */
void conn_apart_start(void);

/* Before a fork: maps the record that the child, or this process, will need when it parts. */
void conn_apart_before_fork(struct conn *c);
/* In the child. */
void conn_apart_child(struct conn *c);
/* In the child, before any of these. */
void conn_apart_after_fork(void);

/*
 * This process parts from c, which others hold too. `to` is the copy that will be in c's place. Its other threads stand
 * still (others.h). If c cannot be handed on (conn_apart.c), it is the others' alone: here its calls fail. If a thread
 * sleeps in the middle of a call on it, the connection is reset.
 */
void conn_apart_part(struct conn *c, struct conn *to);
/* Afterwards: unmaps the records of connections that this process does not hold. `holds` says which it does. */
void conn_apart_sweep(bool (*holds)(struct conn *c));

/* The program's call is about to use c: are the others still there? No turn held. */
void conn_apart_look_again(struct conn *c, bool now);
static inline void conn_apart_look(struct conn *c, bool now)
{
    if (conn_is_apart(c))
        conn_apart_look_again(c, now);
}

/* The next program goes on with c, and nobody else: its memory has no record. No turn held. */
void conn_apart_claim(struct conn *c);
/* The program executes another one, without c; or that has failed. */
void conn_apart_exec(struct conn *c, bool failed);

/*
 * This process gives c up, before it does so among c's holders. False: it is not the last one, or another one says so of
 * itself: that one writes c's line of statistics.
 */
bool conn_apart_leave(struct conn *c);

#endif
