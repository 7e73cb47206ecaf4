/*
 * The thread that sends what is gathered when its time is over and the program makes no call, and what is left of
 * connections that the program has closed, where no ring does: the only thread of ours, and it does nothing else.
 *
 * It is none of libc's: the process stays single-threaded to libc (a program that ends its last thread ends, malloc
 * takes no locks), and so no function that needs libc's idea of a thread may be called in it, nor anything with errno.
 * It has no signals, is started when something is first gathered, parked by futex when nothing is, and ends when that
 * lasts. It leaves the process by the kernel's hand at exit and exec; a child of fork makes its own. It allows itself
 * nothing but what it does (seccomp), for it would keep the rights of a program that later drops them.
 */
#ifndef SW_PRELOAD_FLUSHER_H
#define SW_PRELOAD_FLUSHER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"

struct conn;

/* There is one; false: there cannot be. Async-signal-safe. */
bool flusher_ready(void);
/* Something is gathered that has to go out at due_ns at the latest. */
void flusher_note(uint64_t due_ns);
/*
 * A connection that the program has closed: what is queued is sent by fd, which is closed behind it. The owner keeps
 * both. shared: other processes have it still, and may send, too.
 */
struct flusher_job {
    struct conn *conn;
    bool shared;
    _Atomic int fd; /* -1: it is over */
    struct flusher_job *next;
};
/* The thread does it, as soon as it gets the connection's tx. False: there cannot be one. */
bool flusher_close(struct flusher_job *job) SW_MUST;
/* Has it any of these? */
bool flusher_has_jobs(void);
/* It is gone afterwards. */
void flusher_stop(void);
/* And may be started again. */
void flusher_again(void);
void flusher_after_fork(void);

#endif
