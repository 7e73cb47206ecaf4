/*
 * What the files of storm share.
 *
 *   storm.c         start, the two processes' rendezvous, threads, watchdog, what must be left at the end
 *   storm_stream.c  a connection's bytes, and what each call may tell of its end
 *   storm_conns.c   the table of connections: connect, accept, close in all ways
 *   storm_ops.c     what a thread does with them
 */
#ifndef SW_TESTS_PRELOAD_STORM_H
#define SW_TESTS_PRELOAD_STORM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define THREADS 8u
#define SLOTS 20u         /* connections of a process at a time */
#define IDS (1u << 18)    /* connections of a run */
#define IO_MAX 131072u    /* octets of a call */
#define CHUNK_MAX 1000u   /* of a chunk, its head included */
#define UNREAD_MAX 16384u /* of chunks, and of words: what every socket holds */
#define WORDS_MAX (1u << 16)

/* What goes over a connection, and which of its ends may be used by several threads at a time. */
enum kind {
    OCTETS, /* each depends on its offset; one sender and one receiver at a time */
    WORDS,  /* of eight octets that say their place; several receivers */
    CHUNKS, /* with a head that says whose they are and the how-manieth; several senders */
    KINDS,
};

/* ---- shared by the two processes ---- */

/* Direction 0 is the connecting end's. Written by its sender, unless said otherwise. */
struct direction {
    _Atomic uint64_t sent;
    _Atomic uint64_t got;     /* by the receiver */
    _Atomic uint64_t claimed; /* chunks and words: sent, or about to be */
    _Atomic bool finished;    /* all is sent, a FIN follows */
    _Atomic bool abrupt;      /* this end goes, or has gone, without having read and said all */
};

struct shared_conn {
    struct direction dir[2];
    _Atomic uint8_t kind;
    _Atomic bool accepted;
};

/* (It does not agree with itself on this.) */
/* clang-format off */
#define TALLIES(X) \
    X(connects) X(accepts) X(finished) X(resets) X(closes) X(busy_closes) X(replaced) X(dups) X(forks) \
    X(forked_io) X(execs) X(sends) X(recvs) X(polls) X(epolls) X(handled) X(handled_octets) X(cancels) X(octets)
/* clang-format on */

struct tally {
#define X(name) _Atomic uint64_t name;
    TALLIES(X)
#undef X
};

struct shared {
    _Atomic uint32_t next_id;
    _Atomic bool failed;
    _Atomic uint32_t port_id[2][65536]; /* by listening process and the connecting end's port */
    struct tally tally;
    int64_t forked[2][THREADS]; /* what a forked child's call gave */
    struct shared_conn conn[IDS];
};

extern struct shared *shared;
extern unsigned side;         /* 0, 1: which of the two processes */
extern uint16_t peer_port[2]; /* the other process's listeners */
extern int listener[2];       /* where the connecting end says its id first; where its port tells it */
extern _Atomic bool stopping;
extern bool with_signals, with_cancel, with_fork, with_poll;

#define COUNT(name, n) atomic_fetch_add_explicit(&shared->tally.name, (uint64_t)(n), memory_order_relaxed)

/* Something is wrong: says what, and ends both processes. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void must(bool good, const char *what);
uint64_t now_ms(void);

/* ---- storm_conns.c ---- */

enum slot_state { EMPTY, MAKING, OPEN, CLOSING };

struct slot {
    pthread_mutex_t lock; /* protects: state, users, fd */
    pthread_cond_t idle;
    enum slot_state state;
    unsigned users;
    int fd;
    uint32_t id;
    unsigned mine; /* direction this end sends in */
    enum kind kind;
    struct shared_conn *c;
    _Atomic bool left; /* by a cancelled thread: how far its call came is not known */

    pthread_rwlock_t tx, rx; /* taken for writing by those that must be alone in a direction */
    _Atomic bool tx_done, rx_done;
    bool by_port;                         /* the accepting end knows it by our port */
    uint64_t tx_at, rx_at;                /* octets so far: under tx, rx */
    _Atomic uint32_t tx_seq[THREADS + 1]; /* chunks, by sending thread */
    uint32_t rx_seq[THREADS + 1];
    uint8_t chunk[CHUNK_MAX]; /* the one that is being received */
    size_t chunk_len;
    _Atomic uint64_t strays;         /* octets received in pieces too short to say their place */
    _Atomic uint8_t seen[WORDS_MAX]; /* words: octet by octet, which were received */
};

struct worker {
    unsigned n;
    pthread_t thread;
    _Atomic bool over;
    uint64_t random;
    int epfd;
    uint8_t *buf;
    _Atomic uint64_t ops;
    _Atomic(const char *) doing;
    _Atomic int tid;
    /* what is to be given back if the thread is cancelled */
    struct slot *slot;
    pthread_rwlock_t *locked;
    int fd;
    bool creating;
    bool settled; /* before its call on a connection: see is_settled */
};

/* Creators of descriptors take it for reading: only the thread that writes may rely on a number being free. */
extern pthread_rwlock_t numbers;
extern int shared_epfd, null_fd;

void conns_init(void);
uint32_t rnd(struct worker *w, uint32_t below);
/* A random open connection to use, or NULL; with slot_leave. */
struct slot *slot_enter(struct worker *w);
void slot_leave(struct worker *w, struct slot *s);
/* Its maker is done with it. */
void slot_set(struct worker *w, struct slot *s, enum slot_state state);
void op_connect(struct worker *w);
void op_accept(struct worker *w);
/* Closes in one of many ways; the caller has left it. */
void slot_close(struct worker *w, struct slot *s);
void op_close(struct worker *w);
void conns_close_all(struct worker *w);
/* Where cancellation may strike. */
void may_cancel(struct worker *w, bool yes);

/* ---- storm_stream.c ---- */

void stream_init(void);
/* The octets at this offset of a stream, as many as IO_MAX of them. */
const uint8_t *stream_octets(const struct slot *s, unsigned dir, uint64_t at);
extern int stream_file; /* the same, for sendfile: at this place */
off_t stream_place(const struct slot *s, unsigned dir, uint64_t at);

/* May a call on it fail, or its end come early? Somebody said so before. */
bool may_break(const struct slot *s);
/* The startup is over at both ends: until then the first octets may have to wait. */
bool is_settled(const struct slot *s);
/* r is what a sending call gave for octets; true if more may be sent. */
bool sent(struct worker *w, struct slot *s, const char *call, ssize_t r, size_t asked);
/* The same of a receiving call: octets are in the iovec's parts one after the other in w->buf. peek: they stay. */
bool received(struct worker *w, struct slot *s, const char *call, ssize_t r, bool peek);
/* Words and chunks to be sent; 0: not now. */
size_t make_words(struct worker *w, struct slot *s, uint8_t *buf, size_t max);
size_t make_chunk(struct worker *w, struct slot *s, uint8_t *buf);
/* Nobody uses it any more, both ends have finished: was all of it received? */
void stream_whole(struct slot *s);

/* ---- storm_ops.c ---- */

void ops_one(struct worker *w);

#endif
