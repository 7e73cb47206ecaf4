/*
 * A connection that is negotiating, upgraded, or was found to stay plain. It lives in memory shared by fork, so that
 * parent and child may both use it as they may a TCP socket.
 *
 *   CONNECTING --TCP is up--> NEGOTIATING --first FPDU possible--> FULL
 *        \                        |  \--Nak, reject, other bytes--> PLAIN
 *         \--connect failed------>|---fallback: connected again----> PLAIN, or CONNECTING for MPA's Rev 1
 *                                  \--`require`, responder's failure--> DEAD
 *
 * Locks: the turn of the receive side (rx.turn, below "rx") and that of the send side (tx.turn, "tx"); rx before tx.
 * State changes are made with both. Each member says which of them it belongs to; what is any thread's is atomic, or
 * constant after conn_new.
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
 * What an upgraded connection receives. STREAMED, a responder's by a late switch: the initiator's program's bytes as
 * they are, up to the HSWI. It changes once, in conn_switch.c.
 */
enum conn_rx_mode { CONN_RX_FPDUS, CONN_RX_STREAMED };

/* TCP_CORK: done by the kernel; or known not to be set there, and perhaps done by us: conn_nagle.c. */
enum conn_cork { CORK_KERNELS, CORK_OUT, CORK_OURS };

#define CONN_IN_LEN (256u * 1024u)                         /* staging for received bytes */
#define CONN_OUT_LEN (MPA_FPDU_MAX + 1024u)                /* the tail of a cut frame */
#define CONN_PRE_LEN (256u * 1024u)                        /* bytes that come before the answer to the Hello, */
#define CONN_PRE_BIG_LEN (NEGOTIATE_STREAMED_MAX + 65536u) /* and a talkative server's */
#define CONN_EAGER_MAX 64512u                              /* largest payload of a Send we take */
#define CONN_EAGER_LIMIT 16384u                            /* larger writes of the program go as RDMA Writes */

/* ---- the record, by what protects it ---- */

/* The startup: with both turns, except for members marked "any" (any thread). */
struct conn_startup {
    size_t in_len;         /* bytes collected for the negotiation: HELLO in mem.pre, else in mem.in */
    uint32_t kernel_wants; /* POLLIN, POLLOUT: what the negotiation waits for */
    bool tcp_is_up;        /* initiator: connect() has said so */
    bool known_shim;       /* initiator: the listener on this host was seen to run sockwarp */
    bool marked;       /* initiator: the listener, on another host, has said in the handshake that it runs sockwarp */
    bool hurried;      /* initiator: connect() does not look whether the server's program is accepting just now */
    bool looks;        /* the step is part of a look (startup_glance) */
    bool rev_1;        /* initiator: the peer may know MPA's revision 1 only; this is the second attempt */
    bool client_asked; /* responder: the client is of this host, and has said that its Hello follows; any */
    /* any: and that it goes on meanwhile; false once the Hello was waited for */
    _Atomic bool hello_comes;
    bool inherited; /* responder: accepted by a former program, which may still have it; this one has sent nothing */
    /* any: the process that made the last call on it while it was negotiating; 0: accept() only */
    _Atomic pid_t user_pid;
    /* any: accept() left it unfinished while the client waits; the first call completes it */
    _Atomic bool finish_on_use;
    /*
     * responder, any: a program that this process became, or started, looks at it afresh. So no other process takes its
     * Hello, unless its program calls for it. HANDED_BY_PARENT: or the process that became or started it. 0: none.
     */
    _Atomic pid_t handed_by;
#define HANDED_BY_PARENT (-1)
    bool no_device; /* responder: no device is offered: it is being closed, or goes to another program in software */
    /* any: 1 << SHUT_RD, SHUT_WR: the program's shutdown, carried out when the startup is over */
    _Atomic uint8_t shut_later;
    /*
     * The Hellos go beside the connection (preload/startup/beside.h): nothing of ours is on it before the decision. The
     * initiator's record there.
     */
    bool beside;
    bool leaves;           /* and this is the close: no thread that waits for it is told of the decision */
    _Atomic bool unlooked; /* any: what is on the connection need not be looked at in the next step */
    /* initiator, NEGOTIATE_UNASKED: since when, and the thread that made the connection */
    uint64_t unasked_ns;
    pid_t unasked_by;
    unsigned unasked_looks; /* how often the program has looked at it since then */
    bool asks;              /* and this step asks, unless something has come */
    uint32_t meet_at;
    uint64_t meet_cookie;
    bool in_backlog; /* initiator: connect() has returned, though the listener's program has not accepted */
    /*
     * initiator: a peer that runs sockwarp closed during the negotiation, because its program did: our program sees
     * that end, and no fallback is made
     */
    bool peer_closed;
    bool peer_reset;             /* and by a reset of that program */
    uint64_t rx_total, tx_total; /* bytes of Hello and startup frames on a connection that stays plain */
};

/* Memory (preload/conn/shmem.h): constant from conn_buffers to conn_release, but for conn_grow_pre. */
struct conn_mem {
    uint8_t *_Atomic base; /* any: once it is there the others are */
    uint8_t *in, *out, *pre;
    size_t pre_cap;
};

/* The receive side: with its turn, except for members marked "any" (any thread). */
struct conn_rx {
    struct turn turn;
    struct turn_event left;  /* any: counts up when the RTR has come, or a reader has left without it */
    uint64_t kernel_total;   /* bytes taken from the socket; see conn_orphan.c */
    size_t pre_off, pre_len; /* bytes of the streaming mode not yet read, in mem.pre */
    uint8_t mode;            /* enum conn_rx_mode */
    size_t held_len;         /* STREAMED: bytes behind those in mem.pre that may be the HSWI's beginning */
    uint64_t streamed_total; /* STREAMED: bytes before them */
    /* any: a reset was shown as the end, because it answered only bytes of ours that the initiator never read */
    _Atomic bool reset_unseen;
    uint32_t kernel_lowat;       /* SO_RCVLOWAT of the kernel socket */
    _Atomic uint32_t user_lowat; /* any: the program's value */
    _Atomic bool
        rtr_came; /* any: the responder may send from now on, and threads that wait for that were not told yet */
    _Atomic bool arrived; /* any: bytes or the end came in since a waiter looked: an edge */
    bool empty;           /* the last receive left nothing in the kernel */
    bool owes;            /* FIONREAD gave less than there may be: when that is read, the rest is an edge */
    uint64_t look;        /* the wait that found the kernel empty when it took in what had come: preload/sock/look.h */
    struct spin spin;     /* does a recv that waits look before it sleeps? */
    bool shut;            /* shutdown(SHUT_RD) */
    struct tcpinfo_input input_before_shut; /* STREAMED: before it */
    bool urgent_told;           /* a handler has asked for the urgent byte while this side's holder waited */
    bool reset_told;            /* ECONNRESET was reported once: then end of file, as TCP */
    _Atomic bool tells_waiting; /* any: TCP_INQ: recvmsg tells how much is left */
    _Atomic int32_t peek_off;   /* any: SO_PEEK_OFF, where it is not the kernel's: preload/conn/conn_peek.c */
    uint64_t plain_total;       /* bytes of the streaming mode that were read */
};

/* The send side: with its turn, except for members marked "any" (any thread), and hints, which any thread reads. */
struct conn_tx {
    struct turn turn;
    uint64_t kernel_total;      /* bytes given to the socket; see conn_orphan.c */
    _Atomic uint32_t batch_len; /* bytes framed at a time for a call that does not wait; a hint */
    _Atomic uint8_t asked;      /* any: has the program read since it last wrote? conn_batch.c */
    _Atomic uint32_t unproved;  /* bytes sent since the kernel had room for certain; a hint: conn_room_likely */
    /* bytes that may be framed before the path is measured again: conn_frame.c; any may clear it */
    _Atomic uint32_t frame_left;
    size_t segment;          /* fpdu=emss: each FPDU is kept inside a TCP segment, this long; else 0 */
    bool urgent;             /* what is queued ends in an urgent byte's frame */
    bool zerocopy;           /* what is queued begins a call with MSG_ZEROCOPY: see conn_zerocopy.c */
    bool nodelay_lent;       /* we have set TCP_NODELAY, until the program's first bytes are out */
    _Atomic uint8_t nodelay; /* any: what we know of the kernel's TCP_CORK: conn_nagle.c */
    _Atomic uint8_t
        nodelay_owed;     /* any: the program has cleared TCP_NODELAY; the kernel is told after this number of sends */
    _Atomic uint8_t cork; /* enum conn_cork; a hint */
    _Atomic bool more_told; /* the last send said MSG_MORE; a hint */
    bool first_lost;        /* a send succeeded though it met a reset that we have caused: conn_switch.c */
    _Atomic bool shut;     /* the program shut down its side; without the turn while its holder sleeps: conn_shutdown */
    _Atomic bool fin_owed; /* FIN waits for the tail before it; a hint */
    _Atomic bool rest;     /* something may be queued: flush before posting more; a hint */
    struct transport_job job; /* sends a frame's tail while the program does other things */
    _Atomic bool job_runs;    /* a hint */
    bool job_stopped;         /* stopped by us: it may have sent a part */
    size_t job_len;           /* bytes it was given */
    int linger_before_exec;   /* SO_LINGER, as conn_linger_s, of a connection that an exec will reset; 0: it will not */
    /* Where several processes have the connection: */
    int32_t tail_pid;   /* the process whose call left the tail: if it closes the connection first, it sends the tail */
    int32_t sender_pid; /* a process that closed so: its ring sends the tail, and no other process sends */
    uint64_t sender_end;          /* until the kernel has this many bytes */
    _Atomic uint64_t plain_total; /* bytes sent in streaming mode */
};

/* Small writes that go together (preload/conn/coalesce.h): with the send turn. */
struct conn_coalesce {
    struct coalesce *slot; /* the buffer, in process pid's own memory */
    pid_t pid;
    bool posted;             /* the queue's bytes are in the buffer */
    uint32_t row_n, row_min; /* small writes in a row; and the number from which they are gathered */
    unsigned row_waits;      /* coalesce_waits and the time of the last small write; 0: not known */
    uint64_t row_ns;
    uint64_t writes; /* writes that went with others */
};

/* The stream over a device (preload/device/device_io.h). */
struct conn_device {
    struct verbs_ep *ep; /* with both turns: of process pid alone, in its own memory */
    struct mixed *mixed; /* instead of ep: preload/device/mixed.h */
    pid_t pid;
    bool tx_takes_in;       /* tx: its holder takes in what comes, the RTR, and answers it itself */
    _Atomic bool first;     /* any: the initiator has spoken */
    _Atomic bool tx_wanted; /* any: a sender found no room and waits for the channel */
    _Atomic bool tcp_end;   /* any: of the TCP connection beside it; set with the receive turn or at close */
    uint8_t reason;         /* any: enum reason: why it is not on a device of ours, though the rule says so */
    uint8_t kind;           /* any: initiator: enum verbs_kind, the device that has its address */
    char name[16];          /* any: that of ours */
};

/* Used together with processes that have other rights (preload/conn/conn_apart.h). */
struct conn_apart {
    _Atomic uint32_t id;    /* any: its record's, 0: there is none */
    uint32_t epoch[2];      /* of the state that is here; a side's, with its turn. 0: none that the record has seen */
    _Atomic bool gone;      /* any: it is another process's; nothing may be done to the socket. conn.broken, too */
    _Atomic uint32_t calls; /* any: until the next look whether other processes still use it */
};

/* What its line of statistics says; any thread. */
struct conn_record {
    _Atomic bool written;
    _Atomic bool handed; /* streaming mode: a program that the library is in was started with it, and makes a record */
    bool unused;         /* it goes here, and nothing had been decided: this program has neither read nor sent */
    _Atomic uint8_t reason; /* enum reason */
    uint64_t born_ns;
    uint64_t ino; /* the socket's, once FULL */
};

/*
 * The stream's arrays are at the beginning and the endpoint's at the end, what is in use all the time between them: an
 * idle connection has touched few pages.
 */
struct conn {
    struct stream st;        /* as ep */
    struct holders holders;  /* any: processes that have it; 0: the slot is free */
    _Atomic uint8_t state;   /* enum conn_state; changed with both turns held, read by any */
    _Atomic uint8_t carrier; /* enum conn_carrier; changed with both turns held before it is upgraded, read by any */
    bool responder;          /* any */
    bool require;            /* any: the rule says require */
    struct policy_opts opts; /* any */
    _Atomic bool broken;     /* any: a turn's holder died in the middle of its work; the connection was reset */
    _Atomic bool reset; /* any: it ended by a reset that the socket does not show, or by bytes that met a closed peer */
    _Atomic int so_error; /* any: pending error, reported once */
    struct conn_record record;
    uint64_t board;       /* any: its slot, or 0; set while no other thread knows it: preload/conn/conn_board.h */
    struct negotiate neg; /* with both turns */
    struct conn_startup startup;
    struct conn_mem mem;
    struct conn_rx rx;
    struct conn_tx tx;
    struct conn_coalesce coalesce;
    struct conn_device dev;
    struct conn_apart apart;
    struct sockaddr_storage local, peer; /* any, set at connect or accept */
    socklen_t peer_len;
    struct iwarp_ep ep; /* receive side with rx.turn, send side with tx.turn */
};

/* ---- conn.c ---- */

/* A fresh conn in state `state`, held by this process, or NULL. */
struct conn *conn_new(bool responder, enum conn_state state, const struct policy_rule *rule);

/* Changes of state, each with both turns held, or before any other thread knows c. */
void conn_go_negotiating(struct conn *c);
void conn_go_upgraded(struct conn *c);
/* For --explain: it is upgraded, and the peer knows it, or will. errno stays. Any thread. */
void conn_explain_upgraded(const struct conn *c, int fd);
/* The initiator begins again, on a TCP connection that is being made. Both turns held. */
void conn_go_connecting(struct conn *c);
/* It stays plain for this reason. Both turns held, or no other thread knows it yet. */
void conn_go_plain(struct sock *s, struct conn *c, unsigned reason);
/* `require`, or a broken peer: calls fail with err from now on. */
void conn_go_dead(struct sock *s, struct conn *c, unsigned reason, int err);

/*
 * For sock.c's hooks. fd is closed, and is not the last one; the second: the inode of the connection's socket, 0: not
 * known.
 */
void conn_let_out(struct sock *s, int fd);
uint64_t conn_ino(const struct sock *s);
/* Adds an upgraded connection's figures of its stream and its carrier. A turn held; both for exact figures. */
void conn_upgraded_record(const struct conn *c, struct stats_record *r);
/*
 * Its figures, as they are now; the reason may be that of an end. turn: the receive turn is held (without it a device's
 * are left out, since its endpoint may go). Any thread; waits for nobody.
 */
void conn_figures(struct sock *s, struct conn *c, bool turn, struct stats_record *r);
/* Writes its statistics line, once. */
void conn_record(struct sock *s, struct conn *c);
/* Before it is closed, or its program ends: does another program, if it has the connection, write the line? */
void conn_record_leaves(struct conn *c);
static inline enum conn_state conn_state(const struct conn *c)
{
    return (enum conn_state)atomic_load_explicit(&c->state, memory_order_acquire);
}

/*
 * Neither end's library has sent anything (the program may have, in streaming mode); or a Hello was declined, and may
 * still be withdrawn.
 */
static inline bool conn_undecided(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && c->responder &&
           (c->neg.state == NEGOTIATE_PEEK || (c->neg.state == NEGOTIATE_NAKED && c->neg.out_off == c->neg.out_len));
}

/* Neither end's library has sent anything, and no time limit runs. */
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
/* Do its bytes go over the program's own socket? Any thread. */
static inline bool conn_on_socket(const struct conn *c)
{
    return conn_ops(c)->on_socket;
}
/* May the program's bytes be sent? A responder's, once the initiator has spoken. Any thread. */
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
/* Does a descriptor beside the socket show that something has arrived? And that descriptor, or -1. Any thread. */
static inline bool conn_has_chan(const struct conn *c)
{
    return SW_UNLIKELY(conn_ops(c)->chan != NULL);
}
static inline int conn_chan(const struct conn *c)
{
    return conn_has_chan(c) ? conn_ops(c)->chan(c) : -1;
}

/*
 * The program makes a call that only a plain connection can serve: declines c if it is undecided. False: it is not, or
 * a thread is using it.
 */
bool conn_decline(struct conn *c, unsigned reason);

/*
 * An initiator whose peer has not accepted yet: the program goes on in streaming mode, and c switches when the answer
 * comes.
 */
static inline bool conn_is_late(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && (c->neg.state == NEGOTIATE_LATE || c->neg.state == NEGOTIATE_UNASKED);
}

/* And the peer was not even asked: the question goes with the program's first bytes. */
static inline bool conn_is_unasked(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && c->neg.state == NEGOTIATE_UNASKED;
}

/* The program's bytes now go out as they are, though what comes in may be a startup's. */
static inline bool conn_speaks_plain(const struct conn *c)
{
    return conn_undecided(c) || conn_is_unasked(c) ||
           (conn_state(c) == CONN_NEGOTIATING &&
            (c->neg.state == NEGOTIATE_WITHDRAWN || c->neg.state == NEGOTIATE_LATE) &&
            c->neg.out_off == c->neg.out_len);
}

/* Its startup waits only for input, which it looks at and leaves in the kernel. */
static inline bool conn_waits_for_input(const struct conn *c)
{
    return (conn_is_late(c) ? c->neg.out_off == c->neg.out_len : conn_unheard(c)) && c->neg.deadline_ns == 0 &&
           c->startup.kernel_wants == POLLIN && c->rx.kernel_lowat == 1 && atomic_load(&c->startup.shut_later) == 0;
}

/*
 * A tail waits for room in the kernel, and only the library's calls will send it (its sender's thread may have ended):
 * the next call that waits does. Any thread.
 */
static inline bool conn_tail_is_ours(const struct conn *c)
{
    return (c->tx.rest || c->tx.fin_owed) && (!c->tx.job_runs || atomic_load(&c->tx.job.over));
}

/* Do processes with other rights use it too? A hint without a turn. */
static inline bool conn_is_apart(const struct conn *c)
{
    return SW_UNLIKELY(atomic_load_explicit(&c->rx.turn.apart, memory_order_relaxed) != 0);
}

/* May something be readable that the kernel does not know of? A look without the turn: only a hint. */
static inline bool conn_may_be_staged(const struct conn *c)
{
    return !conn_on_socket(c) || conn_is_apart(c) || c->rx.pre_len > c->rx.pre_off || atomic_load(&c->so_error) != 0 ||
           conn_state(c) == CONN_DEAD ||
           (conn_state(c) == CONN_UPGRADED &&
            (c->st.rx.avail > 0 || c->ep.rx.tail > c->ep.rx.head || c->st.rx.end != STREAM_OPEN));
}

/*
 * The program makes a call on c (startup_go_on calls this, too): from now on this process may offer the device that c's
 * Hello asks for. Until then the Hello is held (conn_is_held): the endpoint would be this process's, and accept() may
 * have been for a child. Without the turns a hint.
 */
void conn_use(struct conn *c);
bool conn_is_held(const struct conn *c);

/* Threads whose calls wait for c (wait_watch) look again. Any thread. */
static inline void conn_tell(const struct conn *c)
{
    wait_tell(c, atomic_load(&c->holders.n) > 1);
}

#endif
