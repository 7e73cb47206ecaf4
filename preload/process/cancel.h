/*
 * pthread_cancel and our calls: the real calls behind us are points of cancellation, also those that the program's call
 * would not have made (a message to the peer, a look at an event), and some are made with a lock held. So cancellation
 * is put off inside, and takes effect only where the program's own call waits. What the call has of its own (a
 * reference, a turn) is given back then, before the program's cleanup handlers run and while its memory is still there.
 *
 *     struct cancel c = cancel_hold(give_back, what);
 *     ... CANCEL_POINT(r = REAL(recv)(...)); ...
 *     cancel_restore(c);
 *
 * A call inside another's hold is not cancelled: it may be a signal handler's, with the outer one in the middle of its
 * work. Nothing is done in a process with one thread. Async-signal-safe.
 */
#ifndef SW_PRELOAD_CANCEL_H
#define SW_PRELOAD_CANCEL_H

#include <pthread.h>
#include <sys/single_threaded.h>

struct cancel {
    int state;     /* to go back to; -1: nothing was changed */
    int program;   /* cancel_program to go back to */
    unsigned kept; /* cancel_keep's */
};

/* The program's own state while cancellation is put off in this thread; -1: it is not. */
extern __thread int cancel_program;

/*
 * If the thread is cancelled before cancel_kept(), give_back(what) is called, the newest first. `what` may be on the
 * stack. give_back NULL: nothing is called. Returns the value that cancel_kept() takes. Once a frame: a call that was left
 * is told from one under way by its frame, so what keeps something inside another that does is not inlined into it.
 */
unsigned cancel_keep(void (*give_back)(void *), void *what);
void cancel_kept(unsigned before);
/* The thread is cancelled, or ends: gives back all that its calls have. */
void cancel_left(void *unused);
/* From now on it calls fn() at its end. */
void cancel_also(void (*fn)(void));

/* Puts off cancellation; and cancel_keep. */
static inline struct cancel cancel_hold(void (*give_back)(void *), void *what)
{
    struct cancel c = { -1, cancel_program, 0 };
    if (!__libc_single_threaded) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c.state);
        c.kept = cancel_keep(give_back, what);
        cancel_program = c.state;
    }
    return c;
}

/* Inside a hold: makes another call of ours, with a hold of its own, behave as if the program made it. */
static inline struct cancel cancel_allow(void)
{
    struct cancel c = { -1, cancel_program, 0 };
    if (cancel_program == PTHREAD_CANCEL_ENABLE) {
        c.kept = cancel_keep(NULL, NULL);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &c.state);
    }
    return c;
}

/* As cancel_hold, for a call that is no point of cancellation: its waits are none either. */
static inline struct cancel cancel_never(void)
{
    struct cancel c = cancel_hold(NULL, NULL);
    if (c.state >= 0)
        cancel_program = PTHREAD_CANCEL_DISABLE;
    return c;
}

static inline void cancel_restore(struct cancel c)
{
    if (c.state < 0)
        return;
    cancel_program = c.program;
    cancel_kept(c.kept);
    pthread_setcancelstate(c.state, NULL);
}

/*
 * At the beginning of a call that is a point of cancellation, before it has anything to give back: a thread that was
 * cancelled earlier ends here, even if the call would not wait.
 */
static inline void cancel_enter(void)
{
    if (!__libc_single_threaded)
        pthread_testcancel();
}

/*
 * Does `call`, in which the thread may be cancelled if the program's state says so; errno is the call's. (Best in a
 * function of its own: it calls setjmp.)
 */
#define CANCEL_POINT(call)                                        \
    do {                                                          \
        if (cancel_program == PTHREAD_CANCEL_ENABLE) {            \
            pthread_cleanup_push(cancel_left, NULL);              \
            pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);  \
            call;                                                 \
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); \
            pthread_cleanup_pop(0);                               \
        } else {                                                  \
            call;                                                 \
        }                                                         \
    } while (0)

#endif
