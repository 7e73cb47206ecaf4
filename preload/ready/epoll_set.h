/*
 * What the epoll_* files of this room share: sets, registrations, the ready list.
 */
#ifndef SW_PRELOAD_EPOLL_SET_H
#define SW_PRELOAD_EPOLL_SET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "preload/ready/epoll_share.h"
#include "preload/sock/sock.h"

#define EPOLL_FDS_CHUNK 256
#define EPOLL_CHUNKS 4096
#define EPOLL_KICK_TOKEN UINT64_MAX
#define EPOLL_KEPT_MAX 64
#define EPOLL_MODE_BITS (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP)

struct epset;

/*
 * One registration of an open file, made under a number. The number may be closed and given to another file while the
 * first one, open under another number, is still registered. So one number may have several registrations.
 */
struct watch {
    struct epset *set;
    struct sock *sock;   /* with a reference; NULL: not a TCP socket of ours */
    struct watch *next;  /* sock's list; its watch_lock */
    struct watch *older; /* others made under this number, or the next free one; set's lock */
    int fd;
    uint32_t gen; /* tells them apart */
    /* Counts up when it becomes edge-triggered: events from before are reported again. */
    _Atomic uint16_t turn;
    epoll_data_t data; /* the program's; set's lock */
    uint32_t events;   /* the program's; set's lock and sock's watch_lock */
    uint32_t kevents;  /* the kernel's; sock's watch_lock if there is a sock */
    int chan;          /* its device's channel in the kernel's set, -1; as kevents, and the next */
    uint64_t chan_token;
    bool disarmed; /* EPOLLONESHOT has fired; set's lock */
    bool tokened;  /* the kernel has watch_token as its data, and not the program's; as kevents */
    bool parked;   /* deleted by the program, not in the kernel (epoll_park.c); protected as events, which is 0 then */
    _Atomic bool
        late; /* the kernel has the former registration (epoll_park.c); sock's watch_lock, others read it as a hint */
    /* Not level-triggered: writability was reported, and every send since found room; watch_lock. */
    bool out_told;
    bool out_again;      /* and the kernel, registered anew for the upgrade, will report it once more; watch_lock */
    uint32_t told_early; /* what a thread reported by an event from before that; the kernel may once more; set's lock */
    bool queued;         /* on the ready list; ready_lock, as the next two */
    struct watch *rnext, **rpprev;
    uint32_t record;   /* 1 + that of set->share, 0: none; set's lock and sock's watch_lock */
    uint32_t mods;     /* the record's; set's lock, as the next one */
    bool foreign;      /* in this process its number is another file, or none */
    uint64_t told_seq; /* the epoll_wait that already has it among its events, */
    int told_at;       /* and where; set's lock */
};

struct epset {
    _Atomic int epfd;      /* one of its descriptors */
    _Atomic uint32_t refs; /* descriptors, and waits under way */
    pthread_mutex_t lock;  /* protects: chunk, watches' fields as said above, seq, gen, free_watches, parked_n */
    struct watch **chunk[EPOLL_CHUNKS];
    struct watch *free_watches;
    uint32_t gen;
    _Atomic uint32_t parked_n; /* registrations; read by any as a hint */
    _Atomic uint32_t late_n;   /* likewise; any */
    uint64_t seq;
    pthread_mutex_t ready_lock; /* protects the ready list; innermost */
    struct watch *ready_first, **ready_end;
    _Atomic uint32_t ready_n;
    _Atomic bool list_owed; /* the kernel's events took all the room last time */
    _Atomic uint32_t waiters;
    _Atomic int kick_fd;  /* eventfd in the kernel's set, -1 until two threads meet or the set is nested */
    _Atomic bool nested;  /* epfd itself is polled: kick_fd is readable while the ready list is not empty */
    _Atomic bool tokened; /* see epset_take_over; share has it for all processes */
    _Atomic bool strays;  /* some still have the program's data, because their numbers were closed (watch_stray) */
    _Atomic bool taken;   /* epset_take_over is done with this process's registrations */
    bool fork_locked;     /* lock is held for a fork; sets_lock */
    uint64_t left_seen;   /* the count of epoll_shared_left at the last look; lock */
    _Atomic(struct share *) share; /* NULL: no fork has seen the set; changed with lock */
    struct watch **share_at;       /* by record: ours; lock, as the next ones */
    uint64_t share_seen;           /* the table's count of changes */
    bool share_held;               /* lock's holder has the table's lock as well */
    struct watch *gone;            /* detached; their socks' references are dropped when lock is given back */
    /*
     * Events of registrations that we did not see, taken from the kernel and not reported yet; lock. Each counts in
     * ready_n.
     */
    struct epoll_event kept[EPOLL_KEPT_MAX];
    _Atomic uint32_t kept_n;
    _Atomic bool
        unseen; /* there was such an event: from now on only a call that reports at once takes events from the kernel; lock */
    struct epset *next_free;
};

/* ---- sets ---- */

/* The tracked set of epfd, without a reference, or NULL. */
struct epset *epset_get(int epfd);
/* A program's call made epfd. Returns it. */
int epoll_created(int epfd);
/* The same with a reference, which keeps it from being reused. */
struct epset *epset_hold(int epfd);
void epset_put(struct epset *set);

/*
 * Until a thread waits in set by a call of ours, the kernel has the program's data and events. So programs that
 * register by the C library and wait by system calls of their own (Bun) get what they put there. From then on the
 * kernel has our tokens, and the events that the connections' states need. A call that waits, or takes the kernel's
 * events, calls this first; no lock held.
 */
void epset_take_over(struct epset *set);
/* Do registrations that are made from now on get tokens? */
static inline bool epset_is_tokened(const struct epset *set)
{
    return SW_LIKELY(atomic_load_explicit(&set->tokened, memory_order_seq_cst)) ||
           (SW_UNLIKELY(atomic_load(&set->share) != NULL) && share_is_tokened(set));
}

/*
 * Takes set->lock and brings our registrations up to date. epset_lock_whole: also keeps threads of other processes from
 * changing any until epset_unlock.
 */
void epset_lock(struct epset *set);
void epset_lock_whole(struct epset *set);
void epset_unlock(struct epset *set);

/* ---- registrations; set->lock is held, and whole where one is changed ---- */

/* EPOLL_CTL_ADD or MOD of w in the kernel, for events. Returns as epoll_ctl; sets w->tokened and w->kevents. */
int watch_put(struct watch *w, int op, uint32_t events) SW_MUST;
/* The token of w, and the registration of a token, or NULL. */
uint64_t watch_token(const struct watch *w);
/*
 * Did this set give out the token, for a registration that may be gone? (Registrations that the program makes by a ring
 * or by a system call of its own have the program's data, which is no number of this kind.)
 */
bool watch_token_is_ours(const struct epset *set, uint64_t token);
/* Was the token given out before the registration became edge-triggered? */
bool watch_is_stale(const struct watch *w, uint64_t token);
struct watch *watch_find(struct epset *set, uint64_t token);
/* The registration with this data of the program's that epset_take_over could not change, or NULL. */
struct watch *watch_stray(struct epset *set, uint64_t data);
/* The registration of the file that fd is now: s, or, with NULL, a file that is not ours. */
struct watch *watch_current(struct epset *set, int fd, const struct sock *s);
/* Does w's number still refer to its sock? If not, the kernel would change another registration, or none. */
bool watch_number_is_its(const struct watch *w);
/* A new registration that is in no list yet, or NULL. */
struct watch *watch_new(struct epset *set, int fd);
/* The same, with the number that another process gave it. */
struct watch *watch_new_by(struct epset *set, int fd, uint32_t gen);
void watch_free(struct watch *w);
/* Enters w, which is registered. */
void watch_enter(struct watch *w);
/*
 * The part of watch_enter that concerns this process alone, and its reverse, which returns the sock as watch_remove
 * does.
 */
void watch_link(struct watch *w);
struct sock *watch_detach(struct watch *w);
/* Takes it off its sock's list, if it has one, and off the ready list. Returns the sock. */
struct sock *watch_leave_sock(struct watch *w);
/*
 * The reverse; returns the sock whose reference the caller drops after unlocking, or NULL. Frees w.
 */
struct sock *watch_remove(struct watch *w);

/* The kernel's list of the set's registrations (proc(5), /proc/PID/fdinfo), to be freed, or NULL. */
char *watch_kernel_list(struct epset *set);
/* The next token of the list; false: there are no more. */
bool watch_kernel_next(const char **at, uint64_t *token);
/* Is it the token of this registration, whatever its turn? */
bool watch_token_is(uint64_t token, int fd, uint32_t gen);
uint16_t watch_token_turn(uint64_t token);

/*
 * Changes the kernel's registration to what the connection's state needs. sock's watch_lock is held if there is one; if
 * w has a record, the set's lock is held, and whole.
 */
void watch_refresh(struct watch *w, bool force);
uint32_t watch_kernel_events(const struct watch *w);

/* ---- registrations that differ from the kernel's (epoll_park.c); set->lock is held ---- */

/* Parks w instead of deleting it in the kernel. False: it must not be parked. */
bool watch_park(struct watch *w) SW_MUST;
/* The program registers it again, for ev. False: it has to be expelled, and made anew. */
bool watch_unpark(struct watch *w, const struct epoll_event *ev) SW_MUST;
/*
 * The program's events of w have changed: tells the kernel if it must know. 0, or -1 with errno. sock's watch_lock is
 * held. If w is owed then (watch_is_owed), the caller puts it on the ready list, without that lock.
 */
int watch_tell(struct watch *w) SW_MUST;
/* Does it wait for writability without the kernel's knowledge? Then it belongs on the ready list. */
static inline bool watch_is_owed(const struct watch *w)
{
    return SW_UNLIKELY(atomic_load_explicit(&w->late, memory_order_relaxed)) && (w->events & (EPOLLOUT | EPOLLWRNORM));
}
/* Is it the simple kind that may be parked or late? */
bool watch_may_differ(const struct watch *w);
/* The kernel's registration is as the program's again. sock's watch_lock is held. */
static inline void watch_is_told(struct watch *w)
{
    if (SW_UNLIKELY(atomic_load_explicit(&w->late, memory_order_relaxed)) && atomic_exchange(&w->late, false))
        atomic_fetch_sub(&w->set->late_n, 1);
}
/*
 * Deletes it in the kernel as well. closing: its number is still open, though no longer in our table. epset_unlock
 * drops its reference to the sock.
 */
void watch_expel(struct watch *w, bool closing);
/* Expels all parked registrations of set, and tells the kernel of all that are late. */
void epset_expel_all(struct epset *set);
/* Around a fork: from the first to the second call no registration of any set is parked or late. No lock is held. */
void epoll_park_stop(void);
void epoll_park_go_on(void);

/* ---- the ready list ---- */

/* w's set is locked, or w->sock's watch_lock is held. */
void watch_queue(struct watch *w);
void watch_unqueue(struct watch *w);
/*
 * Before a wait: takes registrations off the list of which only the kernel can have news. These are level-triggered
 * ones for input that were reported, and whose bytes the program has taken since. A call that receives more than the
 * program asked for puts them on the list again. No lock held.
 */
void epset_drop_read(struct epset *set);
/*
 * The token of the first registration, which moves to the end, so that each is reported in turn. False: the list is
 * empty.
 */
bool epset_rotate(struct epset *set, uint64_t *token);
/*
 * Between the two calls the eventfd does not change, although registrations leave the list and come back: waiters of
 * the set itself would see an edge. False: the list is empty.
 */
bool epset_list_hold(struct epset *set);
void epset_list_release(struct epset *set);
/* An event of an unseen registration, for the next wait. set->lock is held. */
void epset_keep(struct epset *set, const struct epoll_event *ev);
/* Gives the oldest kept event; false: there is none. No lock held. */
bool epset_kept(struct epset *set, struct epoll_event *ev);

/* As epoll_left_over, for all registrations but one. */
void epoll_left_over_but(struct sock *s, bool arrived, const struct watch *but);

/* Wakes a thread that waits in set. */
void epset_kick(struct epset *set);
/* Makes the eventfd for it, if there is none. */
void epset_kick_make(struct epset *set);

/* ---- processes that share a connection ---- */

/* Puts connections in which other processes have left bytes on the ready list. */
void epset_shared_look(struct epset *set);
/* False: m may be held by the code that was interrupted by a signal handler, which now forks. */
bool epoll_lock_for_fork(pthread_mutex_t *m);

#endif
