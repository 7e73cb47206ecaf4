/*
 * A turn: a lock for one direction of a connection, whose holder may sleep in the kernel (a blocking recv holds the
 * receive turn, as the kernel's own socket would keep a second reader waiting).
 *
 * It is a futex word in memory that forked processes share. Unlike a mutex, waiting for it can be interrupted: a
 * futex wait without timeout is restarted after SA_RESTART handlers and fails with EINTR after others, with timeout it
 * always fails with EINTR: exactly what a blocking recv without or with SO_RCVTIMEO does.
 *
 * Not recursive: a signal handler that interrupts its own thread's turn gets -EDEADLK.
 */
#ifndef SW_PRELOAD_TURN_H
#define SW_PRELOAD_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"

struct turn {
    _Atomic uint32_t word; /* 0: free; else TURN_* of turn.c */
    _Atomic int32_t owner; /* thread id */
};

/* 0 or -EBUSY. */
int turn_try(struct turn *t) SW_MUST;
/*
 * Waits for it: timeout_ns 0 = for ever. interruptible: -EINTR as above, else signals do not matter.
 * 0, -EINTR, -ETIMEDOUT, -EDEADLK.
 */
int turn_take(struct turn *t, uint64_t timeout_ns, bool interruptible) SW_MUST;
/*
 * For a caller that must not wait for the peer: waits while the holder is at work, -EBUSY once it sleeps.
 */
int turn_take_brief(struct turn *t) SW_MUST;
void turn_give(struct turn *t);
/* The holder goes to wait in the kernel for the peer, and is back. */
void turn_sleep(struct turn *t);
void turn_wake(struct turn *t);
/* A counter to wait on: somebody else's progress. */
struct turn_event {
    _Atomic uint32_t seq;
};

static inline uint32_t turn_event_seen(struct turn_event *e)
{
    return atomic_load(&e->seq);
}

/* Waits until the count is no longer `seen`. 0, -EINTR, -ETIMEDOUT as turn_take. */
int turn_event_wait(struct turn_event *e, uint32_t seen, uint64_t timeout_ns) SW_MUST;
void turn_event_signal(struct turn_event *e);

/* In the child of a fork. */
void turn_after_fork(void);

#endif
