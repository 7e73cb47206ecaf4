/*
 * The process: settings read once from the environment, clock, random numbers, statistics lines.
 */
#ifndef SW_PRELOAD_PROC_H
#define SW_PRELOAD_PROC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "core/base/rawsys.h"
#include "core/policy/policy.h"
#include "core/policy/settings.h"
#include "preload/process/start.h"

struct proc {
    bool on;   /* a policy exists and is sound: sockets are looked at */
    pid_t pid; /* ours; differs from getpid() in a vfork child, which must not touch our tables */
    struct settings set;
    uint8_t transports;         /* HELLO_TRANSPORT_* built in */
    uint64_t spin_ns;           /* SOCKWARP_SPIN_US; 0 on one processor */
    char program[64];           /* its name, as it was called */
    _Atomic bool lowat_used;    /* the program has set SO_RCVLOWAT on some socket */
    _Atomic bool inq_used;      /* and TCP_INQ */
    _Atomic bool peek_off_used; /* and SO_PEEK_OFF, or has such a socket from a former program */
    _Atomic bool waited;        /* the program has waited for something by poll, select or epoll_wait of ours */
    _Atomic bool passes_conns;  /* a connection was to go over an AF_UNIX socket: names.c */
};

extern struct proc proc;
extern _Atomic int proc_ready; /* 2: initialised */

extern __thread pid_t proc_my_tid; /* 0: not asked for yet */

/* gettid(2), asked once. */
static inline pid_t proc_tid(void)
{
    if (SW_UNLIKELY(proc_my_tid == 0))
        proc_my_tid = rawsys_gettid();
    return proc_my_tid;
}

extern __thread bool proc_making_ring; /* this thread is inside our transport: an io_uring that is made is ours */

static inline bool proc_on(void)
{
    if (SW_UNLIKELY(proc_ready != 2))
        start_once();
    return proc.on;
}

static inline void proc_waits(void)
{
    if (SW_UNLIKELY(!atomic_load_explicit(&proc.waited, memory_order_relaxed)))
        atomic_store(&proc.waited, true);
}

/* Does this thread run on its alternate signal stack? Addresses there do not tell which call is inside which. */
bool proc_on_signal_stack(void);

/*
 * True in a vfork child: it shares our memory, so nothing may be changed on its behalf. Also in the child of a fork that
 * we did not see. No system call in a process that has made no child with CLONE_VM.
 */
bool proc_is_borrowed(void);
/* getpid(2); no system call where proc_is_borrowed needs none. */
pid_t proc_pid(void);
/* This process is about to make a child that shares its memory, or has its sockets. vfork.c writes the same. */
void proc_lend(void);
extern bool proc_lent;
/* Did it ever? */
static inline bool proc_has_lent(void)
{
    return __atomic_load_n(&proc_lent, __ATOMIC_RELAXED);
}
/* Sets proc.pid: at the start, and in the child of a fork. */
void proc_begin(void);

uint64_t proc_now_ns(void);
/* The time of the kernel's last tick, which comes each 1 to 10 ms. It takes a fifth of the time of proc_now_ns. */
uint64_t proc_tick_ns(void);
uint32_t proc_random32(void *unused);
void proc_random(void *buf, size_t len);

/* Appends one line to SOCKWARP_STATS. */
void proc_stats_write(const char *line, size_t len);

/*
 * The thread that ends the process (start_finish), 0: none does. Other threads may see what it does to connections,
 * where without the library they would have ended before. proc_let_end: such a thread waits for it, at most a second.
 */
extern _Atomic pid_t proc_ends;
void proc_let_end(void);

#endif
