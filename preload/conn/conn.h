/*
 * A connection that is negotiating, accelerated, or was found to stay plain. It lives in memory shared by fork, so that
 * parent and child may both use it as they may a TCP socket.
 *
 *   CONNECTING --TCP is up--> NEGOTIATING --first FPDU possible--> FULL
 *        \                        |  \--Nak, reject, other octets--> PLAIN
 *         \--connect failed------>|---fallback: connected again----> PLAIN, or CONNECTING for MPA's Rev 1
 *                                  \--`require`, responder's failure--> DEAD
 *
 * Locks: the turn of the receive side (rx.turn, below "rx") and that of the send side (tx.turn, "tx"); rx before tx. State changes are made
 * with both. Each member says which of them it belongs to; what is any thread's is atomic, or constant after conn_new.
 */
#ifndef SW_PRELOAD_CONN_H
#define SW_PRELOAD_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "config.h"
#include "core/base/iov.h"
#include "core/base/must.h"
#include "core/base/spin.h"
#include "core/iwarp/iwarp.h"
#include "core/negotiate/negotiate.h"
#include "core/policy/policy.h"
#include "core/stream/stream.h"
#include "core/transport/transport.h"
#include "preload/conn/conn_ops.h"
#include "preload/process/holders.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/turn.h"
#include "preload/sock/sock.h"
#include "preload/sock/wait.h"

enum conn_state { CONN_FREE, CONN_CONNECTING, CONN_NEGOTIATING, CONN_UPGRADED, CONN_PLAIN, CONN_DEAD };

/*
 * What an upgraded connection receives. STREAMED, a responder's by a late switch: the initiator's program's octets as they are, up
 * to the HSWI. It changes once, in conn_switch.c.
 */
enum conn_rx_mode { CONN_RX_FPDUS, CONN_RX_STREAMED };

/* TCP_CORK: the kernel's affair, or known not to be in there, and maybe ours: conn_nagle.c. */
enum conn_cork { CORK_KERNELS, CORK_OUT, CORK_OURS };

#define CONN_IN_LEN (256u * 1024u)               /* staging for received octets */
#define CONN_OUT_LEN (MPA_FPDU_MAX + 1024u)      /* the tail of a cut frame */
#define CONN_PRE_LEN (256u * 1024u)              /* octets that come before the answer to the Hello, */
#define CONN_PRE_BIG_LEN (NEGOTIATE_STREAMED_MAX + 65536u) /* and a talkative server's */
#define CONN_EAGER_MAX 64512u                     /* largest payload of a Send we take */
#define CONN_EAGER_LIMIT 16384u                   /* larger writes of the program go as RDMA Writes */
#define CONN_BATCH_LEN (1024u * 1024u)           /* program octets framed at a time, at most: conn_batch.c */
#define CONN_UNPROVED_LEN 16384u                 /* sent without asking the kernel whether there is still room */

/* ---- the record, by what protects it ---- */

/* The startup: with both turns, but for what is said to be any thread's. */
struct conn_startup {
    size_t in_len;            /* octets collected for the negotiation: HELLO in mem.pre, else in mem.in */
    uint32_t kernel_wants;    /* POLLIN, POLLOUT: what the negotiation waits for */
    bool known_shim;          /* initiator: the listener on this host was seen to run sockwarp */
    bool marked;              /* initiator: the listener, on another host, has said in the handshake that it runs sockwarp */
    bool hurried;             /* initiator: connect() does not look whether that one's program accepts just now */
    bool rev_1;               /* initiator: the peer may know MPA's revision 1 only; this is the second attempt */
    bool client_asked;        /* responder: a client of this host has asked for the listener's name, and may be this one; any */
    bool inherited;           /* responder: accepted by a former program, which may have it still; this one has said nothing */
    _Atomic pid_t user_pid;   /* any: the process that made the last call on it while it was negotiating; 0: accept() only */
    _Atomic bool finish_on_use; /* any: accept() left it unfinished while the client waits; the first call completes it */
    bool no_device;           /* responder: one would be of no use, for it is being closed, or goes to another program in software */
    _Atomic uint8_t shut_later; /* any: 1 << SHUT_RD, SHUT_WR: the program's shutdown, carried out when the startup is over */
    bool in_backlog;          /* initiator: connect() has returned, though the listener's program has not accepted */
    bool peer_closed;         /* initiator: a peer that runs sockwarp closed during the negotiation: its program did,
                                 so the end is what the program sees, not another connection */
    bool peer_reset;          /* and by a reset of its own */
    uint64_t rx_total, tx_total; /* octets of Hello and startup frames on a connection that stays plain */
};

/* Memory (preload/conn/shmem.h): constant from conn_buffers to conn_release, but for conn_grow_pre. */
struct conn_mem {
    uint8_t *_Atomic base;    /* any: once it is there the others are */
    uint8_t *in, *out, *pre;
    size_t pre_cap;
};

/* The receive side: with its turn, but for what is said to be any thread's. */
struct conn_rx {
    struct turn turn;
    struct turn_event left;   /* any: the RTR came, or a reader left without it */
    uint64_t kernel_total;    /* octets taken from the socket; see conn_orphan.c */
    size_t pre_off, pre_len;  /* octets of the streaming mode not yet read, in mem.pre */
    uint8_t mode;             /* enum conn_rx_mode */
    size_t held_len;          /* STREAMED: octets behind those in mem.pre that may be the HSWI's beginning */
    uint64_t streamed_total;  /* STREAMED: octets before them */
    _Atomic bool reset_unseen; /* any: a reset that is only ours was taken for the end: of what the initiator never read */
    uint32_t kernel_lowat;    /* SO_RCVLOWAT of the kernel socket */
    _Atomic uint32_t user_lowat; /* any: and as the program set it */
    _Atomic bool rtr_came;    /* any: the responder may send from now on, and who waits for that was not told */
    _Atomic bool arrived;     /* any: octets or the end came in since a waiter looked: an edge */
    bool empty;               /* the last receive left nothing in the kernel */
    bool owes;                /* FIONREAD told less than there may be: when that is read, the rest is an edge */
    uint64_t look;            /* the wait that found the kernel empty when it took in what had come: preload/sock/look.h */
    struct spin spin;         /* whether a recv that waits looks before it sleeps */
    bool shut;                /* shutdown(SHUT_RD) */
    struct tcpinfo_input input_before_shut; /* STREAMED: before it */
    bool urgent_told;         /* a handler has asked for the urgent octet while this side's holder waited */
    bool reset_told;          /* ECONNRESET was reported once: then end of file, as TCP */
    _Atomic bool tells_waiting; /* any: TCP_INQ: recvmsg tells how much is left */
    _Atomic int32_t peek_off; /* any: SO_PEEK_OFF, where it is not the kernel's: preload/conn/conn_peek.c */
    uint64_t plain_total;     /* octets of the streaming mode that were read */
};

/* The send side: with its turn, but for what is said to be any thread's, or read by any as a hint. */
struct conn_tx {
    struct turn turn;
    uint64_t kernel_total;    /* octets given to the socket; see conn_orphan.c */
    _Atomic uint32_t batch_len; /* framed at a time for a call that does not wait; a hint */
    _Atomic uint8_t asked;    /* any: has the program read since it last wrote? conn_batch.c */
    _Atomic uint32_t unproved; /* octets sent since the kernel had room for certain; a hint: conn_room_likely */
    _Atomic uint32_t frame_left; /* octets that may be framed before the path is looked at again: conn_frame.c; any may clear it */
    size_t segment;           /* fpdu=emss: each FPDU is kept inside a TCP segment, this long; else 0 */
    bool urgent;              /* what is queued ends in an urgent octet's frame */
    bool zerocopy;            /* what is queued begins a call with MSG_ZEROCOPY: see conn_zerocopy.c */
    bool nodelay_lent;        /* TCP_NODELAY is set, though not by the program: until its first octets are out */
    _Atomic uint8_t nodelay;  /* any: what is known of the kernel's: conn_nagle.c */
    _Atomic uint8_t nodelay_owed; /* any: the program has taken it back: the kernel is told with so many sends more */
    _Atomic uint8_t cork;     /* enum conn_cork; a hint */
    _Atomic bool more_told;   /* the last send said MSG_MORE; a hint */
    _Atomic bool shut;        /* the program shut down its side; without the turn while its holder sleeps: conn_shutdown */
    _Atomic bool fin_owed;    /* FIN waits for the tail before it; a hint */
    _Atomic bool rest;        /* something may be queued: flush before posting more; a hint */
    struct transport_job job; /* sends a frame's tail while the program does other things */
    _Atomic bool job_runs;    /* a hint */
    bool job_stopped;         /* by us: it may have sent a part */
    size_t job_len;           /* octets it was given */
    /* Where several processes have the connection: */
    int32_t tail_pid;         /* whose call left the tail: if it closes the connection before, it sees to it */
    int32_t sender_pid;       /* one that did: its ring sends the tail, and nobody else sends, */
    uint64_t sender_end;      /* until the kernel has so many octets */
    _Atomic uint64_t plain_total; /* octets sent in streaming mode */
};

/* Small writes that go together (preload/conn/coalesce.h): with the send turn. */
struct conn_coalesce {
    struct coalesce *slot;    /* where they are gathered, in process pid's own memory */
    pid_t pid;
    bool posted;              /* what is queued lies there */
    uint32_t row_n, row_min;  /* small writes in a row; and how many there have to be */
    unsigned row_waits;       /* coalesce_waits and the time of the last one; 0: it was not looked at */
    uint64_t row_ns;
    uint64_t writes;          /* that did not go by themselves */
};

/* The stream over a device (preload/device/device_io.h). */
struct conn_device {
    struct verbs_ep *ep;      /* with both turns: of process pid alone, in its own memory */
    struct mixed *mixed;      /* instead of ep: preload/device/mixed.h */
    pid_t pid;
    bool tx_takes_in;         /* tx: its holder takes in what comes, the RTR, and answers it itself */
    _Atomic bool first;       /* any: the initiator has spoken */
    _Atomic bool tx_wanted;   /* any: a sender found no room */
    _Atomic bool tcp_end;     /* any: of the TCP connection beside it; set with the receive turn or at close */
    uint8_t reason;           /* any: enum reason: why it is not on a device of ours, though the rule says so */
    uint8_t kind;             /* any: initiator: enum verbs_kind, the device that has its address */
    char name[16];            /* any: that of ours */
};

/* What its line of statistics says; any thread. */
struct conn_record {
    _Atomic bool written;
    _Atomic uint8_t reason;   /* enum reason */
    uint64_t born_ns;
    uint64_t ino;             /* the socket's, once FULL */
};

/*
 * The stream's arrays are at the beginning and the endpoint's at the end, what is in use all the time between them: an idle
 * connection has touched few pages.
 */
struct conn {
    struct stream st;         /* as ep */
    struct holders holders;   /* any: processes that have it; none: the slot is free */
    _Atomic uint8_t state;    /* enum conn_state; changed with both turns held, read by any */
    _Atomic uint8_t carrier;  /* enum conn_carrier; changed with both turns held before it is upgraded, read by any */
    bool responder;           /* any */
    bool require;             /* any: the rule says require */
    struct policy_opts opts;  /* any */
    _Atomic bool broken;      /* any: a turn's holder died in the middle of its work; the connection was reset */
    _Atomic bool reset;       /* any: it has ended by a reset that the socket does not show, or by what was sent to a peer that had closed */
    _Atomic int so_error;     /* any: pending error, told once */
    struct conn_record record;
    uint64_t board;           /* any: its slot, or 0; set while nobody else knows it: preload/conn/conn_board.h */
    struct negotiate neg;     /* with both turns */
    struct conn_startup startup;
    struct conn_mem mem;
    struct conn_rx rx;
    struct conn_tx tx;
    struct conn_coalesce coalesce;
    struct conn_device dev;
    struct sockaddr_storage local, peer; /* any, set at connect or accept */
    socklen_t peer_len;
    struct iwarp_ep ep;       /* receive side with rx.turn, send side with tx.turn */
};

/* ---- conn_mem.c ---- */

/* A slot held by this process, all but ep and st zeroed. NULL: no memory. */
struct conn *conn_alloc(void);
/*
 * This process holds it no longer. s: if it was the last that did, its statistics are written now, if they were not. True: nobody
 * does, and from now on somebody else may have it.
 */
bool conn_leave(struct conn *c, struct sock *s);
/* And its memory is not mapped here any more. */
void conn_release(struct conn *c, struct sock *s);
/* Maps its buffers (once), for this process and the children it will have. Any thread. -ENOMEM. */
int conn_buffers(struct conn *c) SW_MUST;
/* Makes room in `pre` for a server that says a lot before it answers. -ENOMEM, -ENOSPC (it is that large already). */
int conn_grow_pre(struct conn *c) SW_MUST;
/* Octets of address space kept for it: what it may use at most, whatever its peer does. */
size_t conn_memory(const struct conn *c);
/*
 * For a program that is executed: where c is, as the next program can say it to conn_take_up: the arena's descriptor, the
 * block's address and c's place in it. False: it cannot be mapped by another program.
 */
struct conn_place {
    int shmem_fd;
    uintptr_t block;
    unsigned slot;
    int maker; /* of the child that takes it up; 0: an exec */
};
bool conn_place(const struct conn *c, struct conn_place *at) SW_MUST;
/* There: the connection, held by this process from now on, or NULL: it cannot be mapped here, or is over. */
struct conn *conn_take_up(const struct conn_place *at);
/*
 * This process is about to give up rights: what it holds alone moves to memory of its own, at the same addresses, and nothing that
 * others hold stays mapped or open here. Until until_ns it waits for others that are about to let go of what it holds, too. It has
 * one thread, whose signals are blocked. 0; -EBUSY: others hold what it holds, and -ENOMEM: all is as before.
 */
int conn_mem_part(uint64_t until_ns) SW_MUST;
/* Is there anything to part from? */
bool conn_mem_is_shared(void);
/* Their memory stands still while the process is copied; in the parent, and in the child, afterwards. */
void conn_mem_before_fork(void);
void conn_mem_after_fork(bool child);

/* ---- conn.c ---- */

/* A fresh conn in state `state`, held by this process, or NULL. */
struct conn *conn_new(bool responder, enum conn_state state, const struct policy_rule *rule);

/* Changes of state, each with both turns held, or before anybody else knows c. */
void conn_go_negotiating(struct conn *c);
void conn_go_upgraded(struct conn *c);
/* The initiator begins again, on a TCP connection that is being made. Both turns held. */
void conn_go_connecting(struct conn *c);
/* It stays plain for this reason. Both turns held, or nobody else can know it yet. */
void conn_go_plain(struct sock *s, struct conn *c, unsigned reason);
/* `require`, or a broken peer: calls fail with err from now on. */
void conn_go_dead(struct sock *s, struct conn *c, unsigned reason, int err);

/* For sock.c's hooks: fd goes, not as the last one; the kernel's name of the connection's file, 0: not known. */
void conn_let_out(struct sock *s, int fd);
uint64_t conn_ino(const struct sock *s);
/* Writes its statistics line unless somebody did. */
void conn_record(struct sock *s, struct conn *c);
static inline enum conn_state conn_state(const struct conn *c)
{
    return (enum conn_state)atomic_load_explicit(&c->state, memory_order_acquire);
}

/* Nobody has said anything but perhaps the program, in streaming mode; or a Hello was declined, which may be withdrawn still. */
static inline bool conn_undecided(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && c->responder &&
           (c->neg.state == NEGOTIATE_PEEK || (c->neg.state == NEGOTIATE_NAKED && c->neg.out_off == c->neg.out_len));
}

/* Nobody has said anything, and no time is counted. */
static inline bool conn_unheard(const struct conn *c)
{
    return conn_undecided(c) && c->neg.deadline_ns == 0;
}

/* ---- what carries the stream: conn_ops.h ---- */

/* Its table; CONN_CARRIER_SOFT's until it is upgraded. Any thread. */
static inline const struct conn_ops *conn_ops(const struct conn *c)
{
    return conn_carriers[atomic_load_explicit(&c->carrier, memory_order_relaxed)];
}
/* Do its octets go over the program's own socket? Any thread. */
static inline bool conn_on_socket(const struct conn *c)
{
    return conn_ops(c)->on_socket;
}
/* May the program's octets be sent? A responder's, once the initiator has spoken. Any thread. */
static inline bool conn_can_send(const struct conn *c)
{
    const struct conn_ops *ops = conn_ops(c);
    return SW_LIKELY(ops->can_send == NULL) ? iwarp_can_send(&c->ep) : ops->can_send(c);
}
/* May a call of this process on fd go on? 0 or -errno. Any thread. */
static inline int conn_usable(const struct conn *c, int fd)
{
    const struct conn_ops *ops = conn_ops(c);
    return SW_LIKELY(ops->usable == NULL) ? 0 : ops->usable(c, fd);
}
/* Does something beside the socket show that something has arrived? And its descriptor, or -1. Any thread. */
static inline bool conn_has_chan(const struct conn *c)
{
    return SW_UNLIKELY(conn_ops(c)->chan != NULL);
}
static inline int conn_chan(const struct conn *c)
{
    return conn_has_chan(c) ? conn_ops(c)->chan(c) : -1;
}

/* The program does what only a plain connection can go with: an undecided one is declined. False: it is none, or is being used. */
bool conn_decline(struct conn *c, unsigned reason);

/* An initiator whose peer has not accepted yet: it goes on in streaming mode, and switches when the answer comes. */
static inline bool conn_is_late(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && c->neg.state == NEGOTIATE_LATE;
}

/* What the program sends now goes out as it is, though not everything that comes in is the program's. */
static inline bool conn_speaks_plain(const struct conn *c)
{
    return conn_undecided(c) ||
           (conn_state(c) == CONN_NEGOTIATING && (c->neg.state == NEGOTIATE_WITHDRAWN || c->neg.state == NEGOTIATE_LATE) &&
            c->neg.out_off == c->neg.out_len);
}

/* Its startup goes on with what comes in, which it looks at and leaves in the kernel, and with nothing else. */
static inline bool conn_waits_for_input(const struct conn *c)
{
    return (conn_is_late(c) ? c->neg.out_off == c->neg.out_len : conn_unheard(c)) && c->neg.deadline_ns == 0 && c->startup.kernel_wants == POLLIN &&
           c->rx.kernel_lowat == 1 && atomic_load(&c->startup.shut_later) == 0;
}

/*
 * A tail waits for room in the kernel and nothing sends it without us (or no longer: its thread has ended): whoever waits
 * next does. Any thread.
 */
static inline bool conn_tail_is_ours(const struct conn *c)
{
    return (c->tx.rest || c->tx.fin_owed) && (!c->tx.job_runs || atomic_load(&c->tx.job.over));
}

/* May something be readable that the kernel does not know of? A look without the turn: only a hint. */
static inline bool conn_may_be_staged(const struct conn *c)
{
    return !conn_on_socket(c) || c->rx.pre_len > c->rx.pre_off || atomic_load(&c->so_error) != 0 || conn_state(c) == CONN_DEAD ||
           (conn_state(c) == CONN_UPGRADED &&
            (c->st.rx.avail > 0 || c->ep.rx.tail > c->ep.rx.head || c->st.rx.end != STREAM_OPEN));
}

/*
 * The program makes a call on c (startup_go_on says so, too): a device that its Hello asks for is this process' to offer. Else that is
 * held: the endpoint would be this process', and accept() may have been for a child. Without the turns a hint.
 */
void conn_use(struct conn *c);
bool conn_is_held(const struct conn *c);

/* Threads whose calls wait for c (wait_watch) look again. Any thread. */
static inline void conn_tell(const struct conn *c)
{
    wait_tell(c, atomic_load(&c->holders.n) > 1);
}

/* ---- conn_orphan.c ---- */

/*
 * Whoever held the turn left it without giving it back: mends what it protects, or resets the connection. The turn is
 * held; call these before anything else that depends on it.
 */
void conn_rx_orphaned(struct conn *c, int fd);
void conn_tx_orphaned(struct conn *c, int fd);

/*
 * The thread is cancelled in a call on arg, a sock, to which the call has a reference: gives it back, with the turns, and what
 * was begun goes on. (While the program's memory, from which a frame may be half sent, is still there.)
 */
void conn_left(void *arg);

static inline void conn_rx_whole(struct conn *c, int fd)
{
    if (SW_UNLIKELY(c->rx.turn.orphan != TURN_WHOLE))
        conn_rx_orphaned(c, fd);
}

static inline void conn_tx_whole(struct conn *c, int fd)
{
    if (SW_UNLIKELY(c->tx.turn.orphan != TURN_WHOLE))
        conn_tx_orphaned(c, fd);
}

/*
 * Whole frames are staged and wait until something before them has been read: there are no slices left. rx held, and
 * decoded.
 */
static inline bool conn_rx_held(const struct conn *c)
{
    return conn_state(c) == CONN_UPGRADED && c->ep.rx.tail > c->ep.rx.head && iwarp_in_need(&c->ep) == 0 &&
           c->st.rx.end == STREAM_OPEN;
}

/* ---- conn_rx.c ---- */

/* As recv(2), once it is decided what c is, -errno instead of errno; CONN_ASK_KERNEL as dispatch_recv. No turn held. */
#define CONN_ASK_KERNEL (-(ssize_t)0x10000)
ssize_t conn_recv_decided(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags, bool *waits);
/*
 * The call is about to wait. From then on it is in the kernel, as far as a close of the descriptor is concerned, to its end: also
 * while it looks at what came, and was no octet of the program's.
 */
void conn_begins_to_wait(struct sock *s, bool *waits);
/*
 * Takes in what the kernel has without waiting (if `fill`), and decodes. rx held. Returns 1: readable (octets, end or
 * error) or 0.
 */
int conn_rx_progress(struct conn *c, int fd, bool fill);
/* The same, until the kernel has nothing or staging is full. rx held. */
void conn_rx_all(struct conn *c, int fd);
/*
 * After either, without a turn: has the RTR come in it? Whoever waits to send (a set in which only writability is asked for, another
 * thread's poll) waits for input until he is told.
 */
void conn_rtr_told(struct sock *s);
/* What FIONREAD tells: octets a read would give, those in the kernel included. Takes rx. */
int conn_rx_waiting(struct sock *s, int fd);
/* Octets that are there, an urgent one among them; rx held. */
size_t conn_rx_avail(const struct conn *c);

/* ---- conn_urgent.c ---- */

/* As recv(2) with MSG_OOB on an accelerated connection. */
ssize_t conn_recv_urgent(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags);
/*
 * A read stops before the urgent octet, and if it begins there it passes over it, unless that is read in its place
 * (SO_OOBINLINE). done: octets read by this call; passed: what a look has passed over. Cuts *can to what may be given now;
 * false: nothing more. rx held, FULL.
 */
bool conn_rx_to_mark(struct conn *c, size_t done, size_t *passed, size_t *can, int flags);
/* Is the next octet the urgent one, read out of band or not? rx held. */
bool conn_rx_at_mark(const struct conn *c);
/* What FIONREAD tells: up to the mark. rx held. */
size_t conn_rx_count(const struct conn *c);
/* How many octets have to be there for it to be readable. rx held. */
size_t conn_rx_target(const struct conn *c);
/* A handler asked for the urgent octet meanwhile (urgent_told): does the call it has interrupted end by EINTR? */
bool conn_urgent_interrupts(struct conn *c, int fd);

/* ---- conn_peek.c ---- */

/* Without the program's SO_PEEK_OFF: from what is to be read next on. Beside MSG_PEEK, for conn_recv. */
#define CONN_PEEK_FIRST 0x00400000

/* A connection of a former program: has that set the option? */
void conn_peek_found(int fd);
/* Around what the library looks at and reads before it is decided: the kernel's offset is off; what it was. Both turns held. */
int conn_peek_suspend(int fd);
void conn_peek_resume(struct sock *s, int at);
/* It is plain, and what is left to read is in the kernel. rx held. */
void conn_peek_give_back(struct conn *c, int fd);
/* The program's setsockopt and getsockopt on an active connection. set: 0 or -errno. Take rx where they have to. */
int conn_peek_set(struct sock *s, int fd, int at) SW_MUST;
int conn_peek_get(struct sock *s, int fd);
/* n octets were received, with these flags. rx held. */
void conn_peek_moved(struct conn *c, size_t n, int flags);
/* So many octets a look with these flags passes over. */
static inline size_t conn_peek_at(const struct conn *c, int flags)
{
    int at = (flags & MSG_PEEK) && !(flags & CONN_PEEK_FIRST) ? atomic_load_explicit(&c->rx.peek_off, memory_order_relaxed) : 0;
    return at > 0 ? (size_t)at : 0;
}

/* ---- conn_frame.c ---- */

#define CONN_FRAME_LEAST 1408u /* fits a segment of Ethernet's; what is no longer is one frame on any path */

/* Looks how long frames may be on this path now. Software's own frames (not fpdu=emss). tx held. */
void conn_frame_fit(struct conn *c, int fd);
/* Does that depend on this option of the socket's? */
bool conn_frame_depends(int level, int name);
/* Before len octets are framed. tx held. */
static inline void conn_frame_before(struct conn *c, int fd, size_t len)
{
    if (len <= CONN_FRAME_LEAST)
        return;
    uint32_t left = atomic_load_explicit(&c->tx.frame_left, memory_order_relaxed);
    if (len > left)
        conn_frame_fit(c, fd);
    else
        atomic_store_explicit(&c->tx.frame_left, left - (uint32_t)len, memory_order_relaxed);
}

/* ---- conn_batch.c ---- */

void conn_batch_init(struct conn *c);
/* So many octets of the program's are framed at a time, at most, for a call that waits or does not. */
size_t conn_batch_len(const struct conn *c, bool waits);
/* Of len octets that were framed for a call that does not wait so many went. tx held. */
void conn_batch_went(struct conn *c, size_t len, size_t went);
/*
 * A write of so many octets begins with a first piece of so many, which goes by itself; 0: it does not. Once for each answer: the
 * caller writes them. tx held.
 */
size_t conn_batch_lead(struct conn *c, int fd, size_t len, int flags);
/* The program has read octets; wait: by a call that would have waited for them. Any thread. */
void conn_batch_asked(struct conn *c, bool wait);
/* A send for the program took `sent` of len octets. Any thread, as it is a hint. */
static inline void conn_room_used(struct conn *c, size_t sent, size_t len)
{
    uint32_t n = atomic_load_explicit(&c->tx.unproved, memory_order_relaxed);
    n = sent < len || len > CONN_UNPROVED_LEN ? UINT32_MAX : n > CONN_UNPROVED_LEN ? n : n + (uint32_t)len;
    atomic_store_explicit(&c->tx.unproved, n, memory_order_relaxed);
}
/* The kernel has said that there is room. Any thread. */
static inline void conn_room_proved(struct conn *c)
{
    if (atomic_load_explicit(&c->tx.unproved, memory_order_relaxed) != 0)
        atomic_store_explicit(&c->tx.unproved, 0, memory_order_relaxed);
}
/* Is there room for another send, as far as can be told without asking? Any thread. */
static inline bool conn_room_likely(const struct conn *c)
{
    return atomic_load_explicit(&c->tx.unproved, memory_order_relaxed) <= CONN_UNPROVED_LEN && !conn_tail_is_ours(c);
}
/* Is it worth while to frame more for fd? If not, the kernel is to tell when it is (edges, too). A system call. */
bool conn_has_room(int fd);

/* ---- conn_nagle.c ---- */

/* The program's setsockopt of TCP_CORK and TCP_NODELAY. 1: the kernel's to do; 0: done. Takes tx. */
int conn_set_cork(struct sock *s, int fd, bool on) SW_MUST;
int conn_set_nodelay(struct sock *s, int fd, bool on) SW_MUST;
/* The kernel has, or may have, another value now. Any thread. */
void conn_nodelay_changed(struct conn *c);
/* The kernel's TCP_NODELAY is set, though by now not by the program. Any thread. */
static inline bool conn_nodelay_lent(const struct conn *c)
{
    return c->tx.nodelay_lent || atomic_load(&c->tx.nodelay_owed) > 0;
}
/* Do octets leave at once: is it set, and no cork in? tx held. */
bool conn_nodelay(struct conn *c, int fd);
/* TCP_NODELAY is the program's again. tx held. */
void conn_nodelay_back(struct conn *c, int fd);
/* The flags for a send of what is queued: MSG_MORE with the cork in. tx held. */
int conn_send_flags(struct conn *c, int fd, int flags);

/* ---- conn_zerocopy.c ---- */

/* The first octet of what is queued for a call with MSG_ZEROCOPY. tx held. */
int conn_zerocopy_first(struct conn *c, int fd, uint8_t octet, int flags) SW_MUST;
/* Has the program set SO_ZEROCOPY? */
bool conn_zerocopy_on(int fd);
/* It has taken this off the error queue. */
void conn_zerocopy_told(int fd, struct msghdr *msg);

/* ---- conn_plain.c ---- */

/*
 * What follows octets that were kept from the startup: up to most that the kernel has by now, but need at least, for which it waits as
 * the program's recv would. rx is held; cancellation is off. How many; an error is kept for the next call (conn.so_error).
 */
size_t conn_recv_rest_plain(struct sock *s, int fd, const struct iov_iter *it, size_t need, size_t most, int flags);
/* Up to most of the next octets to the kernel as they are. Octets sent, -errno. */
ssize_t conn_send_some(int fd, struct iov_iter *it, size_t most, int flags);
/* As conn_send on a plain connection, by waiting in poll: see conn_ring_busy. deadline_ns: of the call. */
ssize_t conn_send_plain(int fd, struct iov_iter *it, size_t len, int flags, uint64_t deadline_ns);
/* -EPIPE, with the signal if flags do not forbid it. */
ssize_t conn_broken_pipe(int flags);

/* ---- conn_tx.c ---- */

/* As send(2) on an upgraded connection, len > 0. No turn held. */
ssize_t conn_send_upgraded(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags);
/* Sends what is queued without waiting: tail, control frames, FIN. tx held. 0: nothing is left; -EAGAIN: some is; or an error. */
int conn_tx_flush(struct conn *c, int fd);
/* The same for a tail that nobody's call waits for: what became of it is kept for the program's next call. tx held. */
int conn_tx_rest(struct conn *c, int fd);
/* Flushes without waiting; what does not go is handed to the transport. As conn_tx_flush. tx held. */
int conn_tx_push(struct conn *c, int fd);
/* fd goes, not as the last one: what the transport still sends by this number goes on by another. tx held. */
void conn_tx_moved(struct sock *s, int fd);
/* ---- conn_job.c ---- */

/*
 * A request of this thread's ring is under way. When it ends, it interrupts calls that the kernel never restarts, as if a
 * handler had run: those on sockets with a time-out. They have to wait in poll instead.
 */
bool conn_ring_busy(void);
/*
 * Gives what is queued to the transport, as one piece where that can be made of it. False: nothing is queued, it cannot, or it
 * has something already: a ring, perhaps another process', sends from the very memory. tx held.
 */
bool conn_tx_start(struct conn *c, int fd, enum transport_then then);
/*
 * The same by a job of the caller's, with room for its one piece, which stay until it is over: for a connection that this process
 * closes and others have. They send nothing before the kernel has it all.
 */
bool conn_tx_start_own(struct conn *c, struct transport_job *job, struct iovec *piece, int fd, enum transport_then then);
/* As conn_tx_start with the connection going on, where that is of use: so that it goes without us. tx held. */
void conn_tx_later(struct conn *c, int fd);
/* The asynchronous send is over or is stopped; what it sent is booked. tx held. */
void conn_tx_reap(struct conn *c);
/* Stops it, and books what it sent. tx held. */
void conn_tx_stop(struct conn *c);

/* ---- conn_end.c ---- */

/* What is left to send is this process' to see to, though others have the connection: a call of its own left it. */
bool conn_tail_is_mine(const struct conn *c);
/* shutdown(2) of an upgraded connection. */
int conn_shutdown(struct sock *s, int fd, int how);
/* SO_LINGER in seconds, -1: off. */
int conn_linger_s(int fd);
/* tx is held. 0; -EAGAIN: what is queued goes on by itself, TCP's FIN follows it; or what the kernel's shutdown said. */
int conn_shut_wr(struct conn *c, int fd) SW_MUST;
/* Has the program shut down this direction (SHUT_RD, SHUT_WR), with the startup still going on? */
static inline bool conn_shuts_later(const struct conn *c, int how)
{
    return SW_UNLIKELY(atomic_load(&c->startup.shut_later) != 0) && (atomic_load(&c->startup.shut_later) >> how & 1);
}
/*
 * All that is to be sent is the answer to a Read that was the RTR. The peer's library does not wait for it, and a peer that has
 * closed, or has shut down both ways, would answer it by a reset, which destroys what it has still under way to us: so it goes
 * with the program's first octets, if any.
 */
static inline bool conn_only_answers(const struct conn *c)
{
    return iwarp_answers_rtr(&c->ep);
}
/*
 * All that is to be sent is the HSWI. It goes with the program's first octets, if any: a peer that has closed would answer it by a
 * reset, which destroys what is under way. (But before a reset of the program's, so that the peer takes that for one.)
 */
static inline bool conn_only_leads(const struct conn *c)
{
    return iwarp_out_only_lead(&c->ep);
}
/* The program resets the connection. */
void conn_lead_out(struct conn *c, int fd);
/*
 * The program closes or exits: what is queued goes out without it, at once where the transport can (it then owns a
 * duplicate of fd), else within linger_ms. tx held.
 */
void conn_tx_finish(struct sock *s, int fd, uint32_t linger_ms);
/* Sends what is queued, waiting at most so long. tx held. */
void conn_tx_settle(struct conn *c, int fd, uint32_t linger_ms);
/* Lets go of connections that were finished that way; wait_ms > 0: waits for them, at most so long. */
void conn_tx_finished(uint32_t wait_ms);
/*
 * The same, and the program ends, or becomes another one: what is not sent by then never is. Its connections are reset when they are
 * closed, so that no peer takes what came for all.
 */
void conn_tx_give_up(uint32_t wait_ms);
/* In the child of a fork, whose other threads' locks nobody gives back. */
void conn_tx_after_fork(void);

#endif
