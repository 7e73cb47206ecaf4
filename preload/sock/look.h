/*
 * What a thread's last wait has seen of the kernel.
 *
 * A wait (epoll_wait, poll, select) takes what has come into staging, mostly until the kernel has nothing more. The
 * read that follows need not ask the kernel again: a program that has waited for nothing and read nothing else in
 * between cannot know that more has come, and the kernel will tell of it. Any other call of the thread that waits or
 * reads ends that, and so does time.
 */
#ifndef SW_PRELOAD_LOOK_H
#define SW_PRELOAD_LOOK_H

#include <stdbool.h>
#include <stdint.h>

struct look {
    uint64_t id;      /* of all waits of all processes; 0: none */
    uint64_t tick_ns; /* it holds until the next tick at most */
};
extern __thread struct look look_now;

/* This thread may have learned of more than its last wait saw. */
static inline void look_over(void)
{
    look_now.id = 0;
}

/* For conn.rx.look: this thread has just found the kernel empty. */
uint64_t look_found_empty(void);
/* Is that still so as far as this thread's program can know? */
bool look_holds(uint64_t id);

#endif
