/*
 * pthread_cancel and our calls: the real calls behind us are points of cancellation, also those that the program's call
 * would not have made (a message to the peer, a look at an event), and some are made with a lock held. So cancellation is
 * put off inside, and takes effect only where the program's own call waits. A turn held there is robust: it is found
 * orphaned when the thread has ended.
 *
 *     struct cancel c = cancel_hold();
 *     ... struct cancel w = cancel_allow(); REAL(recv)(...); cancel_restore(w); ...
 *     cancel_restore(c);
 *
 * They nest. Nothing is done in a process with one thread. Async-signal-safe.
 */
#ifndef SW_PRELOAD_CANCEL_H
#define SW_PRELOAD_CANCEL_H

#include <pthread.h>
#include <sys/single_threaded.h>

struct cancel {
    int state;   /* to go back to; -1: nothing was changed */
    int program; /* cancel_program to go back to */
};

/* The program's own state while cancellation is put off in this thread; -1: it is not. */
extern __thread int cancel_program;

static inline struct cancel cancel_hold(void)
{
    struct cancel c = { -1, cancel_program };
    if (!__libc_single_threaded) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c.state);
        cancel_program = c.state;
    }
    return c;
}

static inline struct cancel cancel_allow(void)
{
    struct cancel c = { -1, cancel_program };
    if (cancel_program == PTHREAD_CANCEL_ENABLE)
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &c.state);
    return c;
}

static inline void cancel_restore(struct cancel c)
{
    if (c.state < 0)
        return;
    cancel_program = c.program;
    pthread_setcancelstate(c.state, NULL);
}

#endif
