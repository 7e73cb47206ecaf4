/*
 * The flusher: a thread that sends gathered bytes when their deadline is over and the program makes no call, and, where
 * no ring can, the rest of connections that the program has closed. It does nothing else. It is not libc's thread. So
 * the process stays single-threaded to libc: a program that ends its last thread ends, and malloc takes no locks. In
 * the flusher no function may be called that needs libc's idea of a thread, or sets errno. It blocks all signals, is
 * started when bytes are first gathered, sleeps on a futex while there are none, and ends when that lasts. At exit and
 * exec the kernel ends it; a forked child makes its own. A seccomp filter allows it only the calls that it makes,
 * because it would keep the rights of a program that later drops them.
 */
#ifndef SW_PRELOAD_FLUSHER_H
#define SW_PRELOAD_FLUSHER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/must.h"

struct conn;

/* Makes it, unless it is there. False: it cannot be made. Async-signal-safe. */
bool flusher_ready(void);
/* Gathered bytes have to go out at due_ns at the latest. */
void flusher_note(uint64_t due_ns);
/*
 * A connection that the program has closed: its queue is sent by fd, which is closed afterwards. The owner keeps both.
 * shared: other processes still have the connection, and may send, too.
 */
struct flusher_job {
    struct conn *conn;
    bool shared;
    _Atomic int fd; /* -1: it is over */
    struct flusher_job *next;
};
/* The flusher does it as soon as it gets the connection's tx. False: there cannot be a flusher. */
bool flusher_close(struct flusher_job *job) SW_MUST;
/* Has it any of these? */
bool flusher_has_jobs(void);
/* It is gone afterwards. */
void flusher_stop(void);
/* And may be started again. */
void flusher_again(void);
void flusher_after_fork(void);

#endif
