/*
 * Which processes hold a connection, in memory they share.
 *
 * A process may be killed without saying goodbye: the others notice it when they ask whether they are alone. A child of
 * fork or posix_spawn is entered by its parent before it exists and enters its own number when it runs.
 *
 * All functions may be called from any thread and are async-signal-safe.
 */
#ifndef SW_PRELOAD_HOLDERS_H
#define SW_PRELOAD_HOLDERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

#define HOLDERS_MAX 32u /* those above are counted, but their death is not noticed */

struct holders {
    _Atomic uint32_t n;
    _Atomic uint32_t pid_ns;          /* the PID namespace the numbers are of; 0: not known */
    _Atomic bool mixed;               /* of more than one: none is struck out */
    _Atomic int32_t who[HOLDERS_MAX]; /* 0: free; pid; pid | HOLDER_EXEC; -maker: a child that is being made */
};

/* No process holds it: this one does from now on. False: another was quicker, or holds it. */
bool holders_claim(struct holders *h) SW_MUST;
/* This process no longer, if others do. False: it is the only one, and still holds it. */
bool holders_leave_others(struct holders *h) SW_MUST;
/* This process no longer. Returns how many still do. */
uint32_t holders_leave(struct holders *h);
/* Is this process the only holder? Strikes out those that are dead. */
bool holders_alone(struct holders *h);
/* The same, and waits until then for those that are about to leave it. */
bool holders_await_alone(struct holders *h, uint64_t until_ns);
/* Is this process one of them, as far as is known? (Beyond HOLDERS_MAX none is.) */
bool holders_has_me(struct holders *h);
/* Has this process ended? */
bool holders_is_dead(pid_t pid);
/* Are all of them dead? Then no process holds it, and this is true. */
bool holders_all_dead(struct holders *h);

/*
 * Before a child is made; when it was not; in the parent after it was; in the child. maker: what makes the child:
 * HOLDERS_FORK + the thread, since several may fork, or spawn, at a time: then parent and child may both find an entry,
 * and it has to be the same.
 */
#define HOLDERS_FORK (1 << 28) /* beyond any process number */
void holders_expect_child(struct holders *h, int32_t maker);
void holders_no_child(struct holders *h, int32_t maker);
void holders_have_child(struct holders *h, int32_t maker, pid_t child);
void holders_am_child(struct holders *h, int32_t maker);

/* This process goes on as another program, which may or may not take it up. */
void holders_exec(struct holders *h);
/*
 * This program takes up what its former image, or its parent, handed on; or the exec has failed. maker: of the child
 * that this is, 0: of none. False: no process holds it any more.
 */
bool holders_take_up(struct holders *h, int32_t maker) SW_MUST;

#endif
