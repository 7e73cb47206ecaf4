/*
 * What this process knows of its descriptors: fd -> sock, one sock per open file description, and for connections that
 * are or may become upgraded a conn in memory that forked processes share.
 */
#ifndef SW_PRELOAD_SOCK_H
#define SW_PRELOAD_SOCK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/must.h"
#include "core/policy/policy.h"

struct conn;
struct coalesce;
struct watch;
struct poller;

enum sock_kind { SOCK_NEW, SOCK_LISTENER, SOCK_CONN, SOCK_BRIDGED };

/*
 * The names a listener is found by on this host (preload/startup/local.h): its address, IPv4's for a dual-stack
 * wildcard, its inode.
 */
#define SOCK_NAMES 3
#define SOCK_ADDRESS_NAMES 2 /* the first of them */

/* Threads that wait for one connection and are known to its close: a reader, a writer, and some more. */
#define SOCK_SLEEPERS 6

/* Options that most programs never set: the kernel need not be asked for them where nobody can have set them. */
enum sock_default {
    SOCK_NO_LINGER = 1,
    SOCK_NO_RCVTIMEO = 2,
    SOCK_NO_SNDTIMEO = 4,
    SOCK_NO_OOBINLINE = 8,
    SOCK_NO_OPTION = SOCK_NO_LINGER | SOCK_NO_RCVTIMEO | SOCK_NO_SNDTIMEO | SOCK_NO_OOBINLINE,
};

/* When a listener gets its names: as it listens, unless the program may accept in a way that is not seen. */
enum names_later {
    NAMES_NOT_LATER,
    NAMES_AT_WAIT,   /* it has a ring: with the first call of ours that waits for the listener, or accepts */
    NAMES_AT_ACCEPT, /* it does not import accept(): with the first that accepts */
};

/* Never unmapped once made: a stale pointer still points to a sock, so a look-up takes no lock. */
struct sock {
    _Atomic uint32_t refs; /* fd table entries and calls under way; 0: free */
    _Atomic bool active;   /* data calls must come to us: negotiating, upgraded, or bytes left over */
    uint8_t kind;          /* enum sock_kind */
    _Atomic bool nonblock; /* O_NONBLOCK of the description */
    _Atomic int fd;        /* a descriptor that refers to it, -1: none any more in this process */
    int domain;
    _Atomic int names;                       /* descriptors in the table; changed with sock.c's lock */
    _Atomic int32_t sleepers[SOCK_SLEEPERS]; /* threads whose calls wait in the kernel for it, 0: none */
    _Atomic int inflight_fd;    /* the descriptor that they go on with after the last one was closed, -1: none */
    _Atomic bool closed_unseen; /* closed by a call that we did not see: a thread that still uses it means the number */
    uint64_t closing_ino;       /* the kernel's name of the file, while it is closed by a number */
    bool stay_plain;            /* some earlier call ruled an upgrade out: plain_reason */
    uint8_t plain_reason;       /* enum reason: of that, or of a connect() that left it plain */
    _Atomic bool accept_waits;  /* a listener: the program has waited for a client in accept() */
    bool acks_late;             /* the program has switched TCP_QUICKACK off before connect() */
    bool hops_known;            /* made here, and the program has not chosen its hop limit */
    bool hops_said;             /* it is connecting, and its SYNs say that a Hello follows: preload/startup/syn.h */
    _Atomic uint8_t defaults;   /* enum sock_default: what the kernel was seen to have, */
    _Atomic uint8_t unsure;     /* and what may be changed unseen, or was chosen */
    uint8_t rules;              /* that it follows: preload/process/rules.h */
    bool port_known;            /* bound explicitly, or getsockname told the program its port */
    struct conn *conn;          /* SOCK_CONN */
    _Atomic(struct coalesce *) coalesce; /* its small writes are gathered there: preload/conn/coalesce.h */
    _Atomic int sent_from; /* 1 + the number of a file that sendfile has read as it is; a hint: preload/calls/file.c */

    /* SOCK_LISTENER */
    _Atomic int name_fd[SOCK_NAMES]; /* AF_UNIX listeners, -1 */
    _Atomic uint8_t names_later;     /* enum names_later */
    _Atomic bool polled; /* the program waits for it in poll, select or epoll: an accept() that follows may not wait */
    bool mark_later;     /* marked as soon as a client of another host comes: preload/startup/mark.h */
    bool mark_far;       /* a client of another host has come */
    bool mark_own;       /* the program has chosen its segments' size */
    uint16_t mark;       /* the segment size that marks it, 0: none; on an accepted connection, its listener's */
    uint16_t mark_mtu;   /* for links of this MTU */
    _Atomic bool mark_counts;    /* it is among those of mark_count() */
    bool saves_syn;              /* the kernel saves the clients' SYNs for us: preload/startup/syn.h */
    bool syn_own;                /* the program has decided whether it does */
    _Atomic unsigned undrained;  /* connections accepted since the names' backlogs were emptied, */
    _Atomic uint64_t drained_ns; /* and when that was */

    /* SOCK_BRIDGED: preload/calls/bridge.h */
    _Atomic int bridge_fd; /* its connection's descriptor, -1: there is none any more */
    uint64_t bridge_ino;   /* the kernel's name of this end */

    pthread_mutex_t watch_lock; /* protects watches, pollers */
    struct watch *watches;      /* epoll registrations, preload/calls/epoll.c */
    struct poller *pollers;     /* threads in poll or select, preload/ready/ready.h */
    _Atomic uint32_t waiters;   /* pollers, and threads in epoll_wait on a set that holds it */

    struct sock *next_free;
    struct sock *next_block;   /* of a block's first: the block made before; sock.c's lock */
    _Atomic bool forked;       /* a fork has seen it: another process may have it */
    bool child_counted;        /* fork.c: its conn counts the child of the last fork */
    bool pending_inherited;    /* it was negotiating, or on a list of pending.c, when this process was forked */
    uint32_t pending_held;     /* pending.c: threads whose wait has its descriptor among others' */
    struct sock *pending_next; /* pending.c: the list it is on */
    _Atomic(struct sock **) pending_pprev; /* the same, NULL: none; read without the lock as a hint */
    bool pending_silent;                   /* pending.c: on the list of those that have said nothing */
    uint64_t pending_off_ns;               /* pending.c: waits leave it out until then */
    bool pending_over;                     /* pending.c: its last descriptor goes: it is not put on the list again */
};

/*
 * The sock behind fd with a reference taken (sock_put), or NULL if fd is not one of ours. No lock. Async-signal-safe.
 */
struct sock *sock_get(int fd);
/* The same, but only if data calls on it need us: one table look-up for everything else. */
struct sock *sock_get_active(int fd);
/* The same for a descriptor that the program polls. */
struct sock *sock_get_polled(int fd);
/* Without a reference: it may become another description's at any moment, but stays a sock. */
struct sock *sock_peek(int fd);
void sock_put(struct sock *s);
/*
 * Is it in an epoll set? Without the lock: who registers it looks at the connection afterwards, and who has changed the connection
 * asks here. One of the two must see the other, so neither's load may overtake its store, which only x86 sees to by itself.
 */
static inline bool sock_watched(const struct sock *s)
{
    return __atomic_load_n(&s->watches, __ATOMIC_SEQ_CST) != NULL;
}

/* May a call with these flags wait? */
static inline bool sock_may_wait(const struct sock *s, int flags)
{
    return !atomic_load(&s->nonblock) && !(flags & MSG_DONTWAIT);
}

/* Enters a new sock at fd (refs 2: the table's and the caller's) and drops the former one. NULL: no memory. */
struct sock *sock_new(int fd, int domain);
/* fd2 becomes another descriptor of s. False: s was closed meanwhile. */
bool sock_dup(struct sock *s, int fd2);
/* fd was reused without a call that we saw, or is not ours any more: takes it out of the table. */
void sock_drop(int fd);

/*
 * A close takes two steps. sock_close_begin, before the real call: as sock_drop, and if this was the last descriptor of
 * this process, sends or hands over the connection's unsent rest. From then on the number is marked until
 * sock_close_end, after the real call: another thread that uses it in between would reach the kernel's socket, and get
 * frames. `replaced`: by dup2, so that the number is never free. The caller gives the result of sock_close_begin to
 * sock_close_end.
 */
struct sock *sock_close_begin(int fd, bool replaced);
void sock_close_end(int fd, struct sock *s);

/*
 * The inode of the socket behind fd, 0: fd is no socket. Unlike the number, it is not reused while the socket is open.
 */
uint64_t sock_ino(int fd);

/* The number of closes that are between the two steps. */
extern _Atomic unsigned sock_closing_n;
bool sock_look_closing(int fd);

/*
 * sock_get has found nothing for fd. Is another thread just closing the connection or listener of that number? The
 * kernel's socket is still open then, and the program must not reach it. True: errno is EBADF, which the call returns.
 * Waits while a descriptor is being replaced.
 */
static inline bool sock_is_closing(int fd)
{
    if (SW_LIKELY(atomic_load_explicit(&sock_closing_n, memory_order_acquire) == 0) || !sock_look_closing(fd))
        return false;
    errno = EBADF;
    return true;
}

/*
 * To be called before and after a call that began on fd waits. As in the kernel, a close of the last descriptor
 * meanwhile takes effect when such calls have ended. They go on with sock_fd_now(), because the number fd may be
 * another file's by then. (A thread that left its call by cancellation or siglongjmp stays counted until it ends or
 * closes the descriptor itself.)
 */
void sock_sleep(struct sock *s);
void sock_wake(struct sock *s);
int sock_fd_now(struct sock *s, int fd);

/* s was made by this process just now, by accept(2) from `listener`, or by socket(2): NULL. No other process has it. */
void sock_made_here(struct sock *s, const struct sock *listener);
/* Is the option surely as TCP has it at first? No system call. */
bool sock_has_default(const struct sock *s, enum sock_default which);
/* The kernel has just said that it is. */
void sock_found_default(struct sock *s, enum sock_default which);
/* The program sets the option, or these are another process's as well from now on. Before that happens. */
void sock_unsure(struct sock *s, enum sock_default which);

/* Calls fn(fd, sock) for every descriptor in the table; for fork, exec and exit. */
void sock_each(void (*fn)(int fd, struct sock *s, void *arg), void *arg);
/* The same, to be called between sock_before_fork and sock_after_fork. */
void sock_each_locked(void (*fn)(int fd, struct sock *s, void *arg), void *arg);
/* In the child, between those two: removes fd from the table. */
void sock_forget_locked(int fd);
/* One above the highest descriptor ever entered. */
int sock_fd_limit(void);

/* Locks of this file around fork (lock order: DESIGN section 12). */
void sock_before_fork(void);
void sock_after_fork(bool child);

/*
 * In the child of a process with several threads, once all locks are free. fork does not copy memory at one moment:
 * state that other threads changed without a lock is in the child as of different times, and their references belong to
 * no thread. So the child counts all references again, from the tables that were locked: sock_count_begin, sock_counted
 * for each reference from elsewhere (false: the sock is not open here and takes none), sock_count_end.
 */
void sock_count_begin(void);
bool sock_counted(struct sock *s) SW_MUST;
void sock_count_end(void);

#endif
