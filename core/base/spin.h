/*
 * Looking for a while before sleeping. It pays where the awaited event mostly comes sooner than a sleeper is woken, and
 * costs a processor elsewhere. So each place that waits learns whether to look:
 *
 *   waits that ended within SPIN_SLEPT windows, SPIN_NEED in a row -> the next ones look before they sleep (what a sleeper
 *     measures includes its own wake-up, and often that of a peer that would look, too)
 *   looked in vain -> as at the beginning, and twice as many are wanted the next time (at most SPIN_NEED << SPIN_LEVELS)
 *   SPIN_HITS successes -> half as many
 *   looked, and lost the processor to another while at it -> SPIN_NEED << SPIN_LEVELS at once: processors are scarce, and a
 *     thread that uses its share up by looking waits for the next one
 *
 * So a wait for a peer that has to share its processor, or computes for long, looks in vain once in a thousand times.
 * Sans-IO: the caller knows the time. Not synchronised: a torn value costs a wrong guess.
 */
#ifndef SW_BASE_SPIN_H
#define SW_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_NEED 4u
#define SPIN_SLEPT 2u
#define SPIN_LEVELS 8u
#define SPIN_HITS 64u

struct spin {       /* all zero at the beginning */
    uint16_t quick; /* waits in a row that ended within the window */
    uint8_t level;  /* SPIN_NEED << level waits are needed */
    uint8_t hits;   /* since level last changed */
};

/* Should the next wait begin with a look? */
static inline bool spin_worth(const struct spin *s)
{
    return s->quick >= SPIN_NEED << s->level;
}

/* A wait without a look took slept_ns. */
static inline void spin_slept(struct spin *s, uint64_t slept_ns, uint64_t window_ns)
{
    if (slept_ns > SPIN_SLEPT * window_ns)
        s->quick = 0;
    else if (s->quick < UINT16_MAX)
        s->quick++;
}

/* A look has found what was awaited, or not within the window. */
static inline void spin_looked(struct spin *s, bool found)
{
    if (!found) {
        s->quick = 0;
        s->hits = 0;
        s->level += s->level < SPIN_LEVELS;
    } else if (++s->hits == SPIN_HITS) {
        s->hits = 0;
        s->level -= s->level > 0;
    }
}

/* The thread lost the processor to another one during a look. */
static inline void spin_preempted(struct spin *s)
{
    s->quick = 0;
    s->hits = 0;
    s->level = SPIN_LEVELS;
}

#endif
