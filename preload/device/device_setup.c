/* From the Hello to a stream on a device: the owner's part of the negotiation (core/negotiate/negotiate.h). */
#include "preload/conn/conn_zerocopy.h"
#include "preload/device/device.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "core/negotiate/hello.h"
#include "core/transport/verbs.h"
#include "preload/device/device_io.h"
#include "preload/device/rnic.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/stats.h"

/*
 * Memory of a connection: the ring (ring=, at most this), receive buffers, and what is sent but not known to have left.
 * With the largest ring it is 0.9 MB, which RLIMIT_MEMLOCK has to allow.
 */
#define RING_LEN_MAX (512u * 1024u)
#define EAGER_LEN 1008u
#define BUFS 128u /* about this many messages may wait unread, of any length */
#define TX_LEN (256u * 1024u)
#define WRITE_LEN (64u * 1024u)

/* Connections being set up. Protected by the lock, which is innermost. */
#define SETUPS_MAX 256u
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sock *setups[SETUPS_MAX];
static _Atomic unsigned setups_n;

static bool setups_add(struct sock *s)
{
    lock_take(&lock);
    bool room = setups_n < SETUPS_MAX;
    if (room) {
        atomic_fetch_add(&s->refs, 1);
        setups[setups_n++] = s;
    }
    lock_give(&lock);
    return room;
}

static void setups_remove(const struct conn *c)
{
    struct sock *s = NULL;
    lock_take(&lock);
    for (unsigned i = 0; i < setups_n && s == NULL; i++)
        if (setups[i]->conn == c) {
            s = setups[i];
            setups[i] = setups[setups_n - 1];
            atomic_fetch_sub(&setups_n, 1);
        }
    lock_give(&lock);
    if (s != NULL)
        sock_put(s);
}

static void close_hidden(int fd)
{
    hidden_close(fd);
}

/* Loads the libraries when they are first needed. 0, or why not. */
static unsigned open_device(void)
{
    static struct verbs_env env = {
        .hide_fd = hidden_move,
        .reveal_fd = hidden_reveal,
        .close_fd = close_hidden,
        .hold = signals_hold,
        .go_on = signals_go_on,
    };
    const char *why = "";
    env.device = proc.set.device;
    int r = verbs_setup(&env, &why);
    if (r < 0)
        trace_info("verbs: %s: errno %d", why, -r);
    return r == 0 ? REASON_NONE : r == -ENOTSUP ? REASON_DEVICE_FORKED : REASON_DEVICE_NONE;
}

/* For tests of the software part where there is no device: both ends are software, and one claims a device. */
static bool plays_device(void)
{
    return strcmp(proc.set.device, ":software") == 0;
}

/* The transports that this process has for c; notes the reason if a device is not among them. */
static uint8_t transport_now(struct conn *c)
{
    if (sandbox_on()) {
        c->dev.reason = REASON_DEVICE_NONE;
        return 0;
    }
    c->dev.reason = REASON_DEVICE_PEER;
    if (plays_device())
        return HELLO_TRANSPORT_VERBS | HELLO_TRANSPORT_MIXED;
    if (!verbs_present(proc.set.device))
        c->dev.reason = REASON_DEVICE_NONE;
    /* (A listener's process does not load the libraries before a client asks for a device.) */
    unsigned why = c->dev.reason == REASON_DEVICE_PEER && !c->responder ? open_device() : REASON_NONE;
    if (why != REASON_NONE)
        c->dev.reason = (uint8_t)why;
    if (c->dev.reason != REASON_DEVICE_PEER)
        return HELLO_TRANSPORT_MIXED;
    if (c->responder)
        return HELLO_TRANSPORT_VERBS | HELLO_TRANSPORT_MIXED;
    c->dev.kind = (uint8_t)verbs_kind_at((const struct sockaddr *)&c->local);
    if (c->dev.kind == VERBS_KIND_NONE)
        c->dev.reason = REASON_DEVICE_ADDRESS;
    return c->dev.kind == VERBS_KIND_IWARP ? HELLO_TRANSPORT_VERBS | HELLO_TRANSPORT_MIXED
           : c->dev.kind == VERBS_KIND_IB  ? HELLO_TRANSPORT_VERBS
                                           : HELLO_TRANSPORT_MIXED;
}

uint8_t device_transport(struct conn *c)
{
    return (c->opts.transports & HELLO_TRANSPORT_VERBS) ? transport_now(c) : 0;
}

/* False: no memory. */
static bool make_endpoint(struct conn *c, const uint8_t token[VERBS_TOKEN_LEN], bool software)
{
    uint32_t ring = c->opts.ring_len < RING_LEN_MAX ? c->opts.ring_len : RING_LEN_MAX;
    struct verbs_cfg cfg = {
        .ring_len = ring,
        .msg_max = STREAM_HDR_LEN + EAGER_LEN,
        .bufs = BUFS,
        .tx_len = TX_LEN,
        .write_max = WRITE_LEN,
    };
    memcpy(cfg.token, token, sizeof(cfg.token));
    c->dev.pid = proc.pid;
    c->dev.ep = software ? NULL : verbs_new(&cfg);
    c->dev.mixed = software ? mixed_new(&cfg, c->opts.crc, c->opts.fpdu_len) : NULL;
    return rnic_there(c);
}

/* No device, for this reason; the stream goes by TCP. */
static void not_by_device(struct conn *c, unsigned reason)
{
    c->dev.reason = (uint8_t)reason;
    device_drop(c);
}

/* The address at which the initiator reaches our device: REASON_NONE with *at and *kind, or why there is none. */
static unsigned expect_by_device(struct sock *s, struct conn *c, const struct sockaddr *local,
                                 struct negotiate_offer *o, struct sockaddr_storage *at)
{
    enum verbs_kind kind = VERBS_KIND_NONE;
    unsigned why = c->dev.reason == REASON_DEVICE_PEER && !plays_device() ? open_device() : c->dev.reason;
    if (why != REASON_NONE)
        return why;
    if (!make_endpoint(c, o->token, false) || !setups_add(s))
        return REASON_NO_MEMORY;
    if (verbs_expect(c->dev.ep, local, at, &kind) < 0)
        return REASON_DEVICE_ADDRESS;
    o->kind = kind == VERBS_KIND_IWARP ? NEGOTIATE_KIND_IWARP : NEGOTIATE_KIND_IB;
    /* Software speaks iWARP only. */
    return (c->neg.asked & HELLO_TRANSPORT_VERBS) || kind == VERBS_KIND_IWARP ? REASON_NONE : REASON_DEVICE_KIND;
}

/* Or to us without one. */
static bool expect_in_software(struct sock *s, struct conn *c, const struct sockaddr *local, struct negotiate_offer *o,
                               struct sockaddr_storage *at)
{
    o->kind = NEGOTIATE_KIND_SOFT;
    return make_endpoint(c, o->token, true) && setups_add(s) && mixed_expect(c->dev.mixed, local, at) == 0;
}

/* Makes an endpoint that waits for c's initiator, and its address. False: there is none. */
static bool expect_peer(struct sock *s, struct conn *c, struct negotiate_offer *o)
{
    struct sockaddr_storage local, at;
    socklen_t len = sizeof(local);
    proc_random(o->token, sizeof(o->token));
    if (REAL(getsockname)(atomic_load(&s->fd), (struct sockaddr *)&local, &len) < 0)
        return false;
    unsigned why = expect_by_device(s, c, (struct sockaddr *)&local, o, &at);
    if (why != REASON_NONE) {
        not_by_device(c, why);
        /* The initiator's device, if it has one: does it work with our software endpoint? */
        if ((~c->neg.asked & (HELLO_TRANSPORT_VERBS | HELLO_TRANSPORT_MIXED)) != 0)
            return false;
        if (!expect_in_software(s, c, (struct sockaddr *)&local, o, &at)) {
            not_by_device(c, why);
            return false;
        }
    }
    const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at;
    o->ipv6 = at.ss_family == AF_INET6;
    o->port = ntohs(in->sin_port);
    if (o->ipv6)
        memcpy(o->addr, &in6->sin6_addr, 16);
    else
        memcpy(o->addr, &in->sin_addr, 4);
    return true;
}

bool device_offer(struct sock *s, struct conn *c)
{
    struct negotiate_offer offer = { 0 };
    if (!negotiate_wants_offer(&c->neg) || (conn_is_held(c) && !c->startup.no_device))
        return false;
    bool may = !c->startup.no_device && !conn_zerocopy_on(atomic_load(&s->fd)); /* (the kernel would report nothing) */
    negotiate_offer(&c->neg, may && expect_peer(s, c, &offer) ? &offer : NULL);
    return true;
}

/* Writes the address for the HelloAck. Returns its length. */
static socklen_t offered(const struct conn *c, struct sockaddr_storage *peer)
{
    const struct negotiate_offer *o = &c->neg.offer;
    memset(peer, 0, sizeof(*peer));
    if (o->ipv6) {
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(o->port) };
        memcpy(&in6.sin6_addr, o->addr, 16);
        if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) && c->peer.ss_family == AF_INET6)
            in6.sin6_scope_id = ((const struct sockaddr_in6 *)&c->peer)->sin6_scope_id;
        memcpy(peer, &in6, sizeof(in6));
        return sizeof(in6);
    }
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(o->port) };
    memcpy(&in.sin_addr, o->addr, 4);
    memcpy(peer, &in, sizeof(in));
    return sizeof(in);
}

/*
 * A peer cannot send us to a third host, or to another address of this host: we connect to the address that this
 * connection has.
 */
static bool is_peers_own(const struct conn *c, const struct sockaddr_storage *at)
{
    struct sockaddr_storage ours, theirs;
    return verbs_address((const struct sockaddr *)&c->peer, &ours) != 0 &&
           verbs_address((const struct sockaddr *)at, &theirs) != 0 && memcmp(&ours, &theirs, sizeof(ours)) == 0;
}

/* The initiator connects to the address in the HelloAck, by its device or in software. False: it cannot. */
static bool connect_offered(struct sock *s, struct conn *c)
{
    struct sockaddr_storage peer;
    socklen_t len = offered(c, &peer);
    if (!is_peers_own(c, &peer)) {
        trace_info("fd %d: the peer offers a device at an address that is not its own", atomic_load(&s->fd));
        c->dev.reason = REASON_DEVICE_ADDRESS;
        return false;
    }
    uint8_t kind = c->neg.offer.kind;
    bool device = c->dev.kind != VERBS_KIND_NONE;
    bool goes = !device ? kind == NEGOTIATE_KIND_IWARP || kind == NEGOTIATE_KIND_SOFT
                        : kind == NEGOTIATE_KIND_ANY || (kind == NEGOTIATE_KIND_IB) == (c->dev.kind == VERBS_KIND_IB);
    if (!goes) {
        c->dev.reason = device ? REASON_DEVICE_KIND : c->dev.reason;
        return false;
    }
    if (!make_endpoint(c, c->neg.offer.token, !device) || !setups_add(s)) {
        not_by_device(c, REASON_NO_MEMORY);
        return false;
    }
    int r = device ? verbs_connect(c->dev.ep, (struct sockaddr *)&peer, len, proc.set.hello_timeout_ms)
                   : mixed_connect(c->dev.mixed, (struct sockaddr *)&peer, len, kind == NEGOTIATE_KIND_IWARP);
    if (r < 0)
        not_by_device(c, device ? REASON_DEVICE_ADDRESS : REASON_DEVICE_FAILED);
    return r == 0;
}

bool device_step(struct sock *s, struct conn *c)
{
    if (!rnic_there(c) && !negotiate_wants_device(&c->neg))
        return false;
    if (rnic_there(c) && c->dev.pid == proc.pid && c->neg.device == NEGOTIATE_DEVICE_NONE) {
        /* The initiator says that it cannot; or the negotiation has stopped waiting. */
        bool told = c->responder && (c->neg.peer.flags & STREAM_FLAG_DEVICE) == 0;
        not_by_device(c, told ? REASON_DEVICE_FAILED : REASON_DEVICE_TIMEOUT);
        return true;
    }
    if (!negotiate_wants_device(&c->neg))
        return false;
    if (rnic_there(c) && c->dev.pid != proc.pid) { /* the process that this one was forked from has begun it */
        c->dev.reason = REASON_DEVICE_FORKED;
        negotiate_device(&c->neg, false, proc_now_ns());
        return true;
    }
    bool there = rnic_there(c) || (!c->responder && connect_offered(s, c));
    enum verbs_state st = there ? rnic_state(c) : VERBS_DOWN;
    if (st != VERBS_UP && st != VERBS_DOWN)
        return false;
    if (st == VERBS_DOWN && there) {
        trace_info("fd %d: not by a device: %s", atomic_load(&s->fd), rnic_why(c));
        not_by_device(c, rnic_no_memory(c) ? REASON_DEVICE_MEMORY : REASON_DEVICE_FAILED);
    }
    negotiate_device(&c->neg, st == VERBS_UP, proc_now_ns());
    return true;
}

void device_drop(struct conn *c)
{
    if (!rnic_there(c) || c->dev.pid != proc.pid)
        return;
    struct verbs_ep *ep = c->dev.ep;
    struct mixed *m = c->dev.mixed;
    c->dev.ep = NULL;
    c->dev.mixed = NULL;
    setups_remove(c);
    verbs_free(ep);
    mixed_free(m);
}

static struct stream_params params_of(struct verbs_side side)
{
    return (struct stream_params){
        .version = 1,
        .ring_stag = side.ring_stag,
        .ring_len = side.ring_len,
        .eager_max =
            (uint16_t)(side.msg_max - STREAM_HDR_LEN < UINT16_MAX ? side.msg_max - STREAM_HDR_LEN : UINT16_MAX),
        .bufs = side.bufs,
    };
}

int device_begin(struct conn *c)
{
    struct stream_cfg sc = {
        .ep = rnic_endpoint(c),
        .local = params_of(rnic_local(c)),
        .peer = params_of(rnic_peer(c)),
        .ring = rnic_ring(c),
        .write_limit = WRITE_LEN,
        .eager_limit = EAGER_LEN,
    };
    setups_remove(c);
    memset(&c->ep, 0, sizeof(c->ep));
    int r = stream_init(&c->st, &sc);
    if (r < 0)
        return r;
    if (c->dev.mixed == NULL) { /* (otherwise the reason remains why there is no device here) */
        strncpy(c->dev.name, verbs_device(c->dev.ep), sizeof(c->dev.name) - 1);
        c->dev.reason = REASON_NONE;
    }
    atomic_store(&c->dev.first, !c->responder);
    atomic_store(&c->carrier, CONN_CARRIER_DEVICE);
    return 0;
}

int device_setup_fd(void)
{
    return atomic_load_explicit(&setups_n, memory_order_relaxed) > 0 ? mixed_setup_fd() : -1;
}

/* Steps all connections: only their endpoints know which of them an event was for. */
void device_setup_dispatch(int (*step)(struct sock *s, bool brief))
{
    struct sock *now[SETUPS_MAX];
    unsigned n = 0;
    bool some = verbs_cm_dispatch();
    if (!mixed_dispatch() && !some)
        return;
    lock_take(&lock);
    for (; n < setups_n; n++) {
        now[n] = setups[n];
        atomic_fetch_add(&now[n]->refs, 1);
    }
    lock_give(&lock);
    for (unsigned i = 0; i < n; i++) {
        struct conn *c = now[i]->conn;
        /* (A connection that this thread is connecting, with the turns, is stepped by it when its wait has ended.) */
        if (c != NULL && !turn_is_mine(&c->rx.turn) && step(now[i], true) < 0)
            conn_tell(c); /* the thread that holds the turn looks again */
        sock_put(now[i]);
    }
}

bool device_has(const struct conn *c)
{
    return rnic_there(c);
}

bool device_is_anothers(const struct conn *c)
{
    return rnic_there(c) && c->dev.pid != proc.pid;
}

/* In the child of a fork: connections that were being set up are the parent's. */
void device_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    setups_n = 0; /* (with the references that a thread of the parent had) */
    verbs_after_fork();
    mixed_after_fork();
}

static const char *name(const struct conn *c)
{
    return c->dev.mixed != NULL ? "mixed" : "verbs";
}

static void record(const struct conn *c, struct stats_record *r)
{
    if (!device_is_ours(c))
        return;
    if (c->dev.mixed != NULL) {
        const struct iwarp_stats *is = mixed_stats(c->dev.mixed);
        r->crc = mixed_crc(c->dev.mixed);
        mixed_depths(c->dev.mixed, &r->ird, &r->ord);
        r->tx_fpdus = is->tx_fpdus;
        r->rx_fpdus = is->rx_fpdus;
        r->sends = is->tx_sends;
        r->writes = is->tx_writes;
        r->empty = is->rx_empty;
        r->errors = is->errors;
        return;
    }
    const struct verbs_stats *vs = verbs_stats(c->dev.ep);
    r->crc = false; /* the device's own matter */
    r->sends = vs->tx_sends;
    r->writes = vs->tx_writes;
    r->errors = vs->errors;
}

static size_t memory(const struct conn *c)
{
    return device_is_ours(c) ? rnic_memory(c) : 0;
}

static bool can_send(const struct conn *c)
{
    return atomic_load(&c->dev.first);
}

static ssize_t fill(struct conn *c, int fd, int flags, size_t most)
{
    (void)flags, (void)most; /* it never waits, and what arrives has a place already */
    ssize_t r = device_fill(c, fd);
    c->rx.empty = r == -EAGAIN;
    return r;
}

const struct conn_ops device_ops = {
    .name = name,
    .record = record,
    .memory = memory,
    .drop = device_drop,
    .usable = device_usable,
    .decode = device_decode,
    .fill = fill,
    .wait_more = device_wait_more,
    .after_recv = device_after_recv,
    .send = device_send,
    .flush = device_flush,
    .can_send = can_send,
    .await = device_await,
    .before_tail = device_before_tail,
    .end_owed = device_end_owed,
    .over = device_over,
    .close = device_close,
    .chan = device_chan,
    .ready = device_ready,
    .kernel_events = device_kernel_events,
};
