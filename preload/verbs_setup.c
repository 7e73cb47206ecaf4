/*
 * From the Hello to a stream on a device: what the negotiation asks of its owner (core/negotiate/negotiate.h).
 */
#include "preload/verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "core/negotiate/hello.h"
#include "core/transport/verbs.h"
#include "preload/drive.h"
#include "preload/hidden.h"
#include "preload/proc.h"
#include "preload/real.h"
#include "preload/sandbox.h"
#include "preload/stats.h"

/*
 * Memory of a connection: the ring (ring=, at most this), receive buffers, and what is sent and not known to have left.
 * With its ring at the most 0.9 MB, which RLIMIT_MEMLOCK has to allow.
 */
#define RING_LEN_MAX (512u * 1024u)
#define EAGER_LEN 1008u
#define BUFS 128u /* so many messages but a few may wait unread, of any length */
#define TX_LEN (256u * 1024u)
#define WRITE_LEN (64u * 1024u)

/* Connections being set up. Protected by the lock, which is innermost. */
#define PENDING_MAX 256u
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sock *pending[PENDING_MAX];
static _Atomic unsigned pending_n;

static bool pending_add(struct sock *s)
{
    pthread_mutex_lock(&lock);
    bool room = pending_n < PENDING_MAX;
    if (room) {
        atomic_fetch_add(&s->refs, 1);
        pending[pending_n++] = s;
    }
    pthread_mutex_unlock(&lock);
    return room;
}

static void pending_remove(const struct conn *c)
{
    struct sock *s = NULL;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < pending_n && s == NULL; i++)
        if (pending[i]->conn == c) {
            s = pending[i];
            pending[i] = pending[pending_n - 1];
            atomic_fetch_sub(&pending_n, 1);
        }
    pthread_mutex_unlock(&lock);
    if (s != NULL)
        sock_put(s);
}

static void close_hidden(int fd)
{
    hidden_close(fd);
}

/* The libraries, at their first need. 0, or why not. */
static unsigned open_device(void)
{
    static struct verbs_env env = { .hide_fd = hidden_move, .reveal_fd = hidden_reveal, .close_fd = close_hidden };
    const char *why = "";
    env.device = proc.set.device;
    int r = verbs_setup(&env, &why);
    if (r < 0)
        trace_info("verbs: %s: errno %d", why, -r);
    return r == 0 ? REASON_NONE : r == -ENOTSUP ? REASON_DEVICE_FORKED : REASON_DEVICE_NONE;
}

uint8_t verbs_transport(struct conn *c)
{
    if (!(c->opts.transports & HELLO_TRANSPORT_VERBS))
        return 0;
    c->device_reason = sandbox_on() || !verbs_present(proc.set.device) ? REASON_DEVICE_NONE : REASON_DEVICE_PEER;
    /* (A listener's process does not load the libraries before somebody asks for a device.) */
    if (c->device_reason == REASON_DEVICE_PEER && !c->responder) {
        unsigned why = open_device();
        if (why != REASON_NONE)
            c->device_reason = (uint8_t)why;
    }
    return c->device_reason == REASON_DEVICE_PEER ? HELLO_TRANSPORT_VERBS : 0;
}

static struct verbs_ep *make_endpoint(struct conn *c, const uint8_t token[VERBS_TOKEN_LEN])
{
    uint32_t ring = c->opts.ring_len < RING_LEN_MAX ? c->opts.ring_len : RING_LEN_MAX;
    struct verbs_cfg cfg = {
        .ring_len = ring, .msg_max = STREAM_HDR_LEN + EAGER_LEN, .bufs = BUFS, .tx_len = TX_LEN, .write_max = WRITE_LEN,
    };
    memcpy(cfg.token, token, sizeof(cfg.token));
    c->vep = verbs_new(&cfg);
    c->vep_pid = proc.pid;
    return c->vep;
}

/* It will not be, for this reason; the stream goes by TCP. */
static void not_by_device(struct conn *c, unsigned reason)
{
    c->device_reason = (uint8_t)reason;
    verbs_drop(c);
}

/* An endpoint that waits for c's initiator, and where. False: there is none. */
static bool expect_peer(struct sock *s, struct conn *c, struct negotiate_offer *o)
{
    struct sockaddr_storage local, at;
    socklen_t len = sizeof(local);
    unsigned why = open_device();
    proc_random(o->token, sizeof(o->token));
    if (why == REASON_NONE && (REAL(getsockname)(atomic_load(&s->fd), (struct sockaddr *)&local, &len) < 0 ||
                               make_endpoint(c, o->token) == NULL || !pending_add(s)))
        why = REASON_NO_MEMORY;
    if (why == REASON_NONE && verbs_expect(c->vep, (struct sockaddr *)&local, &at) < 0)
        why = REASON_DEVICE_ADDRESS;
    if (why != REASON_NONE) {
        not_by_device(c, why);
        return false;
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

bool verbs_offer(struct sock *s, struct conn *c)
{
    struct negotiate_offer offer = { 0 };
    if (!negotiate_wants_offer(&c->neg))
        return false;
    negotiate_offer(&c->neg, expect_peer(s, c, &offer) ? &offer : NULL);
    return true;
}

/* The initiator: connects to what the HelloAck said. */
static bool connect_device(struct sock *s, struct conn *c)
{
    const struct negotiate_offer *o = &c->neg.offer;
    struct sockaddr_storage peer = { 0 };
    if (o->ipv6) {
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(o->port) };
        memcpy(&in6.sin6_addr, o->addr, 16);
        if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) && c->peer.ss_family == AF_INET6)
            in6.sin6_scope_id = ((const struct sockaddr_in6 *)&c->peer)->sin6_scope_id;
        memcpy(&peer, &in6, sizeof(in6));
    } else {
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(o->port) };
        memcpy(&in.sin_addr, o->addr, 4);
        memcpy(&peer, &in, sizeof(in));
    }
    if (make_endpoint(c, o->token) == NULL || !pending_add(s)) {
        not_by_device(c, REASON_NO_MEMORY);
        return false;
    }
    if (verbs_connect(c->vep, (struct sockaddr *)&peer, proc.set.hello_timeout_ms) < 0) {
        not_by_device(c, REASON_DEVICE_ADDRESS);
        return false;
    }
    return true;
}

bool verbs_step(struct sock *s, struct conn *c)
{
    if (c->vep == NULL && !negotiate_wants_device(&c->neg))
        return false;
    if (c->vep != NULL && c->vep_pid == proc.pid && c->neg.device == NEGOTIATE_DEVICE_NONE) {
        not_by_device(c, REASON_DEVICE_TIMEOUT); /* the negotiation did not wait any longer */
        return true;
    }
    if (!negotiate_wants_device(&c->neg))
        return false;
    if (c->vep != NULL && c->vep_pid != proc.pid) { /* it was begun by the process that this one was forked from */
        c->device_reason = REASON_DEVICE_FORKED;
        negotiate_device(&c->neg, false, proc_now_ns());
        return true;
    }
    bool there = c->vep != NULL || (!c->responder && connect_device(s, c));
    enum verbs_state st = there ? verbs_state(c->vep) : VERBS_DOWN;
    if (st != VERBS_UP && st != VERBS_DOWN)
        return false;
    if (st == VERBS_DOWN && there) {
        trace_info("fd %d: not by a device: %s", atomic_load(&s->fd), verbs_why(c->vep));
        not_by_device(c, verbs_no_memory(c->vep) ? REASON_DEVICE_MEMORY : REASON_DEVICE_FAILED);
    }
    negotiate_device(&c->neg, st == VERBS_UP, proc_now_ns());
    return true;
}

void verbs_drop(struct conn *c)
{
    struct verbs_ep *ep = c->vep_pid == proc.pid ? c->vep : NULL;
    if (ep == NULL)
        return;
    c->vep = NULL;
    pending_remove(c);
    verbs_free(ep);
}

static struct stream_params params_of(struct verbs_side side)
{
    return (struct stream_params){
        .version = 1, .ring_stag = side.ring_stag, .ring_len = side.ring_len,
        .eager_max = (uint16_t)(side.msg_max - STREAM_HDR_LEN < UINT16_MAX ? side.msg_max - STREAM_HDR_LEN : UINT16_MAX),
        .bufs = side.bufs,
    };
}

int verbs_begin(struct conn *c)
{
    struct stream_cfg sc = {
        .ep = verbs_endpoint(c->vep),
        .local = params_of(verbs_local(c->vep)),
        .peer = params_of(verbs_peer(c->vep)),
        .ring = verbs_ring(c->vep),
        .write_limit = WRITE_LEN,
        .eager_limit = EAGER_LEN,
    };
    pending_remove(c);
    memset(&c->ep, 0, sizeof(c->ep));
    int r = stream_init(&c->st, &sc);
    if (r < 0)
        return r;
    strncpy(c->device, verbs_device(c->vep), sizeof(c->device) - 1);
    c->device_reason = REASON_NONE;
    atomic_store(&c->verbs_first, !c->responder);
    atomic_store(&c->on_verbs, true);
    return 0;
}

int verbs_setup_fd(void)
{
    return atomic_load_explicit(&pending_n, memory_order_relaxed) > 0 ? verbs_cm_fd() : -1;
}

/* Steps all: which of them an event was for only their endpoints know. */
void verbs_setup_dispatch(void)
{
    struct sock *now[PENDING_MAX];
    unsigned n = 0;
    if (!verbs_cm_dispatch())
        return;
    pthread_mutex_lock(&lock);
    for (; n < pending_n; n++) {
        now[n] = pending[n];
        atomic_fetch_add(&now[n]->refs, 1);
    }
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < n; i++) {
        if (now[i]->conn != NULL && drive_sock(now[i], true) < 0)
            drive_tell(now[i]->conn); /* whoever is at it looks again */
        sock_put(now[i]);
    }
}

/* In the child of a fork: what was being set up is the parent's. */
void verbs_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    pending_n = 0; /* (with the references that a parent's thread had) */
    verbs_after_fork();
}

void verbs_record(const struct conn *c, struct stats_record *r)
{
    if (c->vep == NULL || c->vep_pid != proc.pid)
        return;
    const struct verbs_stats *vs = verbs_stats(c->vep);
    r->crc = false; /* the device's own matter */
    r->sends = vs->tx_sends;
    r->writes = vs->tx_writes;
    r->errors = vs->errors;
}

size_t verbs_conn_memory(const struct conn *c)
{
    return c->vep != NULL && c->vep_pid == proc.pid ? verbs_memory(c->vep) : 0;
}
