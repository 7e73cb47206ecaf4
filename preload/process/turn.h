/*
 * A turn: a lock for one direction of a connection, whose holder may sleep in the kernel (a blocking recv holds the
 * receive turn, as the kernel's own socket would keep a second reader waiting).
 *
 * It is a robust mutex in memory that forked processes share, waited for by futex directly: such a wait can be
 * interrupted, and, without timeout, is restarted after SA_RESTART handlers and fails with EINTR after others; with
 * timeout it always fails with EINTR: exactly what a blocking recv without or with SO_RCVTIMEO does.
 *
 * A holder can leave without giving it back: it was killed (in another process), or a signal handler jumped out of the
 * call (siglongjmp). The next thread that takes it finds `orphan` set, and has to see whether what it protects is
 * whole.
 *
 * While its holder is at work, handlers of the program's are put off in its thread (signals.h). Not recursive: one that
 * interrupts its thread's sleep with the turn gets -EDEADLK.
 */
#ifndef SW_PRELOAD_TURN_H
#define SW_PRELOAD_TURN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"

enum turn_sleeps {
    TURN_AWAKE,
    TURN_SLEEPS,
    TURN_RESTS, /* and what the turn protects is whole, and will be looked at afresh when it is awake */
};

enum turn_orphan {
    TURN_WHOLE,
    TURN_LEFT_ASLEEP,  /* the former holder left it while it waited in the kernel */
    TURN_LEFT_AT_WORK, /* or somewhere in the middle of its work */
};

struct turn {
    pthread_mutex_t mutex;   /* robust, shared between processes */
    _Atomic uint32_t asleep; /* enum turn_sleeps: the holder waits for the peer */
    _Atomic uint32_t brief;  /* threads that wait on `change`, which */
    _Atomic uint32_t change; /* counts when the holder falls asleep or gives it back */
    _Atomic uintptr_t frame; /* the holder's stack */
    int32_t pid;             /* its process */
    uint8_t orphan;          /* enum turn_orphan; the holder's */
    bool other_process;      /* it was a killed process that left it; the holder's */
    /* What it protects is used by processes without this turn, too: turn_on_apart. The owner's number for it, 0: no. */
    _Atomic uint8_t apart;
    bool apart_held; /* the holder keeps them out; the holder's, also while it is asleep */
};

/*
 * For turns that are apart: enter is called when a thread has taken the turn, or is awake again, leave before it gives
 * it back or falls asleep. Both may run in a signal handler.
 */
void turn_on_apart(void (*enter)(struct turn *t), void (*leave)(struct turn *t));

/* A mutex for memory that processes share, which tells that its holder has died. */
void turn_mutex_init(pthread_mutex_t *m);

/* Free and whole. */
void turn_init(struct turn *t);

/*
 * The process gives up the memory that `theirs` lies in, where other processes go on with it; t is its copy. The other
 * threads of the process stand still (others.h). If one of them holds it asleep, it holds the copy from now on, theirs is
 * free, and how it sleeps is returned; theirs is an orphan then unless it rests. Else t is free and whole: TURN_AWAKE.
 */
enum turn_sleeps turn_part(struct turn *t, struct turn *theirs);
/*
 * The thread of this process that sleeps with it, while what it protects is not whole; 0: none does. For a process whose
 * threads stand still.
 */
pid_t turn_sleeper(struct turn *t);

/* 0 or -EBUSY. */
int turn_try(struct turn *t) SW_MUST;
/*
 * Waits for it: timeout_ns 0 = for ever. interruptible: -EINTR as above, else signals do not matter; it is then also a
 * point where pthread_cancel takes effect, if cancellation is enabled.
 * 0, -EINTR, -ETIMEDOUT, -EDEADLK.
 */
int turn_take(struct turn *t, uint64_t timeout_ns, bool interruptible) SW_MUST;
/*
 * For a caller that must not wait for the peer: waits while the holder is at work, -EBUSY once it sleeps.
 */
int turn_take_brief(struct turn *t) SW_MUST;
void turn_give(struct turn *t);
/*
 * This thread's calls were left. Did one of them hold the turn? If so it is an orphan now: the caller checks the state
 * and gives the turn back.
 */
bool turn_left(struct turn *t) SW_MUST;
/* The holder is about to wait in the kernel for the peer, and is back. */
void turn_sleep(struct turn *t);
void turn_rest(struct turn *t); /* (TURN_RESTS) */
void turn_wake(struct turn *t);

/* A counter to wait on: another thread's progress. */
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

/*
 * For a thread that is not libc's and so cannot take a robust mutex: the same, but no thread notices if it ends with
 * the turn. For connections of one process.
 */
bool turn_try_bare(struct turn *t, uint32_t tid) SW_MUST;
void turn_give_bare(struct turn *t);

/* Does this thread hold it, in a call under way or in one that was left? */
bool turn_is_mine(struct turn *t);

#endif
