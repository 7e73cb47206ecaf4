/*
 * Which processes hold a connection, in memory they share. A process may be killed: the others notice it when they ask
 * whether they are alone. A child of fork or posix_spawn is entered by its parent before it exists and enters its own
 * number when it runs. All functions may be called from any thread and are async-signal-safe.
 */
#ifndef SW_PRELOAD_HOLDERS_H
#define SW_PRELOAD_HOLDERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

#define HOLDERS_MAX 32u /* processes above are counted, but their death is not noticed */

struct holders {
    _Atomic uint32_t n;
    _Atomic uint32_t pid_ns;          /* the PID namespace the numbers are of; 0: not known */
    _Atomic bool mixed;               /* of more than one: none is struck out */
    _Atomic int32_t who[HOLDERS_MAX]; /* 0: free; pid; pid | HOLDER_EXEC; -maker: a child that is being made */
};

/* If no process holds it, this one does from now on. False: another process holds it. */
bool holders_claim(struct holders *h) SW_MUST;
/* This process gives it up if others hold it. False: it is the only holder, and still holds it. */
bool holders_leave_others(struct holders *h) SW_MUST;
/* This process gives it up. Returns the number of processes that still hold it. */
uint32_t holders_leave(struct holders *h);
/* Is this process the only holder? Strikes out those that are dead. */
bool holders_alone(struct holders *h);
/* The same; waits until the deadline for processes that are about to give it up. */
bool holders_await_alone(struct holders *h, uint64_t until_ns);
/* Is this process entered as a holder? (Beyond HOLDERS_MAX none is.) */
bool holders_has_me(struct holders *h);
/* Has this process ended? */
bool holders_is_dead(pid_t pid);
/* Are all its holders dead? If so, no process holds it from now on, and this is true. */
bool holders_all_dead(struct holders *h);

/*
 * Before a child is made; if that failed; in the parent afterwards; in the child. maker names the thread that makes the
 * child (HOLDERS_FORK + its number): several threads may fork or spawn at a time, and parent and child must find the
 * same entry.
 */
#define HOLDERS_FORK (1 << 28) /* beyond any process number */
void holders_expect_child(struct holders *h, int32_t maker);
void holders_no_child(struct holders *h, int32_t maker);
void holders_have_child(struct holders *h, int32_t maker, pid_t child);
void holders_am_child(struct holders *h, int32_t maker);

/*
 * Processes that have parted from this one (conn_apart.h) hold the connection by records of their own: they are one
 * holder here, which never dies. go: this process gives it up, and is one of them. come, gone: there are some, and no
 * longer; false: so it was before.
 */
void holders_go_apart(struct holders *h);
bool holders_apart_come(struct holders *h);
bool holders_apart_gone(struct holders *h);
bool holders_apart(struct holders *h);
/* Is the process entered as a holder? */
bool holders_has(struct holders *h, pid_t pid);
/* All entered processes' numbers but 0. Returns how many. */
unsigned holders_all(struct holders *h, pid_t who[HOLDERS_MAX]);
/* From now on only this process holds it, and those that it has parted from. */
void holders_begin_apart(struct holders *h);

/* This process executes another program, which may take the connection up or not. */
void holders_exec(struct holders *h);
/*
 * This program takes up the connection that its former image, or its parent, handed on; or the exec has failed. maker:
 * the one that made this child, 0: it is no child. False: no process holds the connection any more.
 */
bool holders_take_up(struct holders *h, int32_t maker) SW_MUST;

#endif
