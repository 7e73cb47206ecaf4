/*
 * Looking before sleeping (core/base/spin.h), with this process' clock and settings: SOCKWARP_SPIN_US.
 *
 *   struct spin_look k;
 *   if (spin_begin(&k, &spin))
 *       do found = ...; while (!found && spin_go_on(&k));
 *   spin_found(&k, &spin, found);
 *   if (!found) {
 *       sleep;
 *       spin_end(&k, &spin);
 *   }
 */
#ifndef SW_PRELOAD_SPIN_H
#define SW_PRELOAD_SPIN_H

#include <poll.h>

#include "core/base/spin.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"

#define SPIN_LOOKS_MAX 20000u /* a clock may stand still (libfaketime) */
#define SPIN_STARTUP 4u /* windows of looking for a startup's answer: mostly the peer has to wake up in accept() */
#define SPIN_PREEMPTED_NS 50000u /* two looks this far apart: another thread had the processor */

struct spin_look {
    uint64_t begin_ns, window_ns; /* window 0: off */
    uint64_t last_ns;             /* the last look */
    unsigned looks;
    bool preempted;
};

/* windows: how many times the usual one. */
static inline bool spin_begin_long(struct spin_look *k, const struct spin *s, unsigned windows)
{
    k->window_ns = windows * proc.spin_ns;
    k->looks = 0;
    if (k->window_ns == 0)
        return false;
    k->begin_ns = k->last_ns = proc_now_ns();
    k->preempted = false;
    k->looks = spin_worth(s);
    return k->looks > 0;
}

static inline bool spin_begin(struct spin_look *k, const struct spin *s)
{
    return spin_begin_long(k, s, 1);
}

static inline void spin_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Time for another look? */
static inline bool spin_go_on(struct spin_look *k)
{
    spin_relax();
    uint64_t now = proc_now_ns();
    k->preempted = k->preempted || now - k->last_ns > SPIN_PREEMPTED_NS;
    k->last_ns = now;
    return ++k->looks < SPIN_LOOKS_MAX && now - k->begin_ns < k->window_ns;
}

/* The result of a look: to be called after a spin_begin that was true. */
static inline void spin_found(struct spin_look *k, struct spin *s, bool found)
{
    if (k->preempted || proc_now_ns() - k->last_ns > SPIN_PREEMPTED_NS)
        spin_preempted(s);
    else
        spin_looked(s, found);
}

/* Looks for that long whether the kernel reports any of the events. */
static inline bool spin_for(struct spin_look *k, struct spin *s, unsigned windows, int fd, short events)
{
    struct pollfd p = { .fd = fd, .events = events };
    bool found = false;
    if (!spin_begin_long(k, s, windows))
        return false;
    do
        found = REAL(poll)(&p, 1, 0) > 0;
    while (!found && spin_go_on(k));
    spin_found(k, s, found);
    return found;
}

/* The thread has slept without a look before. */
static inline void spin_end(const struct spin_look *k, struct spin *s)
{
    if (k->window_ns != 0 && k->looks == 0)
        spin_slept(s, proc_now_ns() - k->begin_ns, k->window_ns);
}

#endif
