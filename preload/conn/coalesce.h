/*
 * Small writes in quick succession are gathered: their bytes are copied to a buffer, and go as one Send when that is
 * full, when the thread that wrote them is about to wait, or after SOCKWARP_COALESCE_US at the latest, which the
 * flusher (flusher.c) ensures.
 *
 * A connection has a buffer only while its program shows the pattern: some small writes in a row, shortly after each
 * other, with no call that waits between them. Those go at once, as all others do. So programs that ask and answer
 * never come here.
 *
 * Buffers belong to the process, and a child of fork finds them empty: what is gathered is sent before a fork, an exec,
 * a close and the exit, and a connection that several processes have gets none. With the bytes in the buffer nothing
 * else of the connection is queued; what the kernel does not take of them when they are sent becomes its tail, like
 * that of any frame.
 *
 * Locks: a connection's buffer belongs to its tx turn, but for one thing: coalesce_put adds bytes without it. `word`
 * tells how many there are, and which thread is adding some. The holder of the turn closes the word, so that no thread
 * can add; a writer caught in between (interrupted by a signal handler, or in another thread) fails its final
 * compare-exchange, discards its copy and takes the ordinary send path.
 */
#ifndef SW_PRELOAD_COALESCE_H
#define SW_PRELOAD_COALESCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/iov.h"
#include "core/base/must.h"
#include "preload/sock/look.h"

struct conn;
struct sock;

#define COALESCE_LEN 65536u  /* memory of a buffer, of which is used what one Send may carry */
#define COALESCE_SMALL 4096u /* longer writes are not gathered, */
#define COALESCE_PIECE \
    32768u                  /* with TCP_CORK longer ones than this: copying them costs less than a call of their own */
#define COALESCE_SLOTS 256u /* connections that may have a buffer at a time */

#define COALESCE_CLOSED 0xffffffffu

struct coalesce {
    _Atomic uint64_t word; /* low: bytes gathered; high: the thread that adds, 0: none, COALESCE_CLOSED: none may */
    _Atomic(struct sock *) sock; /* the owner; NULL: the buffer is free */
    struct conn *conn;           /* the same; tx */
    uint8_t *buf;
    uint32_t cap;
    /* the adding thread, or tx: the number of writes; approximate where one took over from the other */
    _Atomic uint32_t writes;
    uint32_t writes_last;         /* tx: and those that were sent last */
    _Atomic uint32_t tid;         /* the thread that added last */
    _Atomic uint64_t since_ns;    /* when the first byte came */
    _Atomic uint64_t deadline_ns; /* how long it may stay */
    _Atomic uint32_t by_itself;   /* times in a row that the program's own calls have sent it in time */
    _Atomic bool used;
    _Atomic bool busy;    /* the flusher uses it: sock and conn stay */
    _Atomic bool rest;    /* the flusher found no room, and tries again */
    bool taken_over;      /* tx: while a thread was adding: */
    _Atomic bool noticed; /* that thread has noticed it */
};

/*
 * Waking the flusher costs a few microseconds each time, a large part of what gathering gains when TCP_NODELAY makes it
 * look every 20 us. A stream that has gone on for a while sends in time by itself: there the flusher looks only as
 * often as without TCP_NODELAY.
 */
#define COALESCE_STEADY 16u

extern struct coalesce *coalesce_slots;   /* COALESCE_SLOTS, once there are any */
extern _Atomic unsigned coalesce_slots_n; /* none behind these was ever used */

/*
 * Calls of this thread that may have waited, and those of them that were poll or its like; whether the thread has
 * gathered anything since the last one.
 */
extern __thread unsigned coalesce_waits;
extern __thread unsigned coalesce_polls;
extern __thread bool coalesce_mine;

/*
 * write(2) and send(2) come here first: adds the bytes to those that are gathered for fd. Returns len, or 0: the call
 * has to take the ordinary path. errno stays. Async-signal-safe, and no point of cancellation, because it never waits.
 */
size_t coalesce_put(int fd, const void *buf, size_t len, int flags);

void coalesce_send_mine(bool nested);

/* The program reads from a descriptor, and may have to wait: sends what this thread has gathered first. */
static inline void coalesce_before_read(void)
{
    coalesce_waits++;
    if (SW_UNLIKELY(coalesce_mine))
        coalesce_send_mine(false);
}

/* The same before any other call that may wait. */
static inline void coalesce_before_wait(void)
{
    look_over();
    coalesce_before_read();
}

/* The same before a call that may wait for several descriptors. */
static inline void coalesce_before_poll(void)
{
    coalesce_polls++;
    coalesce_before_wait();
}

/* The same inside a call of ours, which may hold a turn. */
static inline void coalesce_before_sleep(void)
{
    look_over();
    if (SW_UNLIKELY(coalesce_mine))
        coalesce_send_mine(true);
}

/* A call asks about fd's bytes, or changes how they are sent: sends what is gathered for fd first. */
void coalesce_send_fd(int fd);
/*
 * Before a fork, an exec, a seccomp filter: sends what is gathered for any connection. Nothing is gathered until
 * coalesce_go_on.
 */
void coalesce_stop(void);
void coalesce_go_on(void);
void coalesce_after_fork(void);

/* ---- with the connection's tx turn ---- */

/* Is anything gathered? */
bool coalesce_holds(const struct conn *c);
/*
 * A small write on the ordinary path. The caller has checked that its memory can be read. True: it was added to the
 * gathered bytes; false: the caller sends those first, if there are any.
 */
bool coalesce_add(struct conn *c, struct iov_iter *it, size_t len, uint64_t now) SW_MUST;
/* Likewise, when nothing is gathered or queued. True: the write is the first to be gathered. */
bool coalesce_begin(struct sock *s, struct conn *c, struct iov_iter *it, size_t len, uint64_t now) SW_MUST;
/* Likewise with TCP_CORK set: gathering then needs no row of small writes, and the deadline is the kernel's. */
bool coalesce_hold(struct sock *s, struct conn *c, struct iov_iter *it, size_t len, uint64_t now) SW_MUST;
/* May anything be gathered for c? */
bool coalesce_suits(const struct conn *c);
/* TCP_CORK was cleared: gathered bytes, and later ones, get the shortest deadline. Without the turn. */
void coalesce_hasten(struct conn *c);
/*
 * Posts what is gathered as a Send, from the buffer: 1, and conn.coalesce.posted is set; 0: nothing was there; -EAGAIN.
 */
int coalesce_post(struct conn *c) SW_MUST;
/* The Send that was posted has left the queue, or (not `all`) its rest was copied: the buffer is free again. */
void coalesce_posted(struct conn *c, bool all);
/* Takes the connection's buffer away, with any bytes gathered in it. The last owner may call it without the turn. */
void coalesce_leave(struct conn *c);
/* For the flusher, whose `busy` keeps it: the same. */
void coalesce_leave_busy(struct coalesce *g);

/* The time that the flusher leaves bytes in the buffer, and when they have to go out. Any thread. */
uint64_t coalesce_patience(const struct coalesce *g);
uint64_t coalesce_due(const struct coalesce *g);

/* Are writes of this length gathered at all? And with TCP_CORK? */
bool coalesce_is_small(size_t len, int flags);
bool coalesce_is_piece(size_t len, int flags);

#endif
