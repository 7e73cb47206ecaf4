/*
 * Epoll sets that processes share by fork. The kernel's set is one; what each of them registers, changes, deletes and
 * consumes there, the others have to know. So from the first fork on a set has a table in memory that children share, a
 * record for each registration, and a count of its changes; each process' own registrations are a copy that is brought
 * up to date when the count has moved.
 *
 * A thread that changes a registration, in the kernel's set or in ours, holds the table's lock around both: for other
 * processes it is then as for other threads. A process that is killed meanwhile leaves the lock to the next.
 *
 * Sets that no fork has seen have none of this.
 */
#ifndef SW_PRELOAD_EPOLL_SHARE_H
#define SW_PRELOAD_EPOLL_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/base/must.h"

struct epset;
struct share;
struct sock;
struct watch;

/*
 * Before a fork: set has a table from now on. set->lock is held. Without memory for one it has none, and each process
 * knows only what it registered itself.
 */
void share_make(struct epset *set);
/*
 * This process is done with set, and knows nothing any more of what others do there. set->lock is held. Gives what is
 * ended when no registration is left through which another thread could find it; may be NULL.
 */
struct share *share_leave(struct epset *set) SW_MUST;
void share_end(struct share *sh);

/* ---- set->lock is held, and set has a table ---- */

/* Has there been, or is there under way, a change that this process did not look at? */
bool share_changed(const struct epset *set);
/* Takes the table's lock and brings our registrations up to date: a watch that was known before may be gone. */
void share_lock(struct epset *set);
void share_unlock(struct epset *set);
uint32_t share_gen(struct epset *set);
/* The last one given out. Without a table, too. */
uint32_t share_gen_last(const struct epset *set);

/* epset_take_over, for all processes; and is it so? */
void share_token(struct epset *set);
bool share_is_tokened(const struct epset *set);

/* ---- the table's lock is held as well ---- */

/* Before the kernel is told: w, which is fresh, gets a record. Without room for one it is known here alone. */
void share_enter(struct watch *w);
/* The same for what w is changed to; again, if the kernel refused. changed: by the program. */
void share_save(struct watch *w, bool changed);
/* w is as the record says. w->sock's watch_lock is held, if there is one. */
void share_load(struct watch *w);
/* It is registered no more. */
void share_forget(struct watch *w);

/* ---- threads that wait; with a reference to set, or the watch_lock of a sock that is registered there ---- */

void share_wait_begin(struct epset *set);
void share_wait_end(struct epset *set);
/* Does a thread wait in set, in this process or another one? */
bool share_awaited(const struct epset *set);
bool share_awaited_elsewhere(const struct epset *set);

/* Before this process' first set: what epoll_shared_left counts with. */
void share_left_make(void);
/* epoll_part: another count from now on. */
void share_left_part(void);

#endif
