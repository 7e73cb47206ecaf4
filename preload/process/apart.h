/*
 * A record by which processes of different rights hand a connection to each other: memory that all of them can write,
 * with numbers and octets in it, and nothing that any of them follows. It has a side for each direction, with a lock and
 * a count of changes.
 *
 * It is memory of its own, without a descriptor: nobody can cut it short, and who has it has no other one. It is mapped
 * before a fork, because processes that part can give each other nothing any more.
 *
 * What stands in it may be anything, at any time, also while its lock is held. So every length is the caller's own, and
 * every wait has an end. Any thread; signal handlers too.
 */
#ifndef SW_PRELOAD_APART_H
#define SW_PRELOAD_APART_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "preload/process/holders.h"

#define APART_PARTIES 32u
#define APART_NUMBERS 1024u /* octets of a side's numbers */

struct apart_side {
    _Atomic uint32_t lock;  /* who holds it, 0: nobody */
    _Atomic uint32_t epoch; /* counts changes */
    uint32_t version;       /* of what follows; 0: it is no use */
    _Alignas(8) uint8_t numbers[APART_NUMBERS];
};

struct apart {
    _Atomic uint32_t claimed; /* one of them goes on alone */
    _Atomic uint32_t written; /* its line of statistics */
    _Atomic uint32_t crowded; /* more than APART_PARTIES processes */
    _Atomic int32_t who[APART_PARTIES];
    struct apart_side side[2];
    _Alignas(4096) uint8_t octets[]; /* the sides' octets, as the caller divides them */
};

/* Zeroed, with room for len octets. NULL: no memory. */
struct apart *apart_map(size_t len) SW_MUST;
void apart_unmap(struct apart *a, size_t len);

/*
 * The lock of a side. unsure: as below. 0; -EOWNERDEAD: its holder has died, and it is nobody's for ever; -ETIMEDOUT: it
 * was not given back in time, or is not honestly held.
 */
int apart_lock(struct apart_side *s, bool unsure) SW_MUST;
void apart_unlock(struct apart_side *s);

/* The process uses it, or does no longer. unsure: its number means nothing to others (another PID namespace). */
void apart_join(struct apart *a, pid_t pid, bool unsure);
void apart_leave(struct apart *a, pid_t pid, bool unsure);
/* Does a process use it that is none of h? Strikes out those that have ended. */
bool apart_has_others(struct apart *a, struct holders *h);

#endif
