/* A startup begins: this end's Hello and parameters. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_zerocopy.h"
#include "preload/device/device.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/startup/beside.h"
#include "preload/startup/learned.h"
#include "preload/startup/mark.h"
#include "preload/startup/startup.h"

/* The initiator waits no longer for a program on this host that has not accepted: nothing is lost by going on plain. */
#define ACCEPT_NS 500000000u

/*
 * How long a blocking connect() on this host looks whether the server's program is accepting just now, where it could not
 * say in its SYN that the program goes on meanwhile.
 */
#define LOOK_NS 600000u

/* RFC 5040 5.2.2/3: no more Reads are promised, or asked for, than the endpoint has places for. */
static uint16_t depth(uint16_t rule, uint16_t most)
{
    return rule == MPA_IRD_ORD_NONE || rule < most ? rule : most;
}

/* Does the Request go as the end of this initiator's Hello? */
static bool is_one_trip(const struct conn *c, uint8_t transports)
{
    return !c->opts.separate && !c->opts.immediate && !c->opts.rtr_frame && transports == HELLO_TRANSPORT_IWARP;
}

bool startup_may_switch(const struct conn *c)
{
    return !c->require && is_one_trip(c, c->opts.transports & (HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS));
}

int startup_prepare(struct conn *c)
{
    struct negotiate_cfg cfg = {
        .responder = c->responder,
        .shim_known = c->startup.known_shim && !c->require,
        .immediate = c->opts.immediate,
        .transports = (uint8_t)(HELLO_TRANSPORT_IWARP | device_transport(c)),
        .mpa = {
            .dialect = c->opts.rtr_frame ? MPA_DIALECT_RTR_FRAME : MPA_DIALECT_RFC,
            .rev = c->opts.rtr_frame || c->startup.rev_1 ? 1 : 2,
            .crc = c->opts.crc,
            .markers = c->opts.markers,
            .peer_to_peer = !c->opts.client_server,
            .rtr = c->opts.rtr,
            .ird = depth(c->opts.ird, IWARP_IRD_MAX),
            .ord = depth(c->opts.ord > c->opts.ord_min ? c->opts.ord : c->opts.ord_min, IWARP_ORD_MAX),
            .ord_min = c->opts.ord_min,
        },
        .params = {
            .version = 1,
            .flags = STREAM_FLAG_LLP | STREAM_FLAG_URGENT | (c->opts.notify_immediate ? STREAM_FLAG_IMMEDIATE : 0),
            .ring_len = c->opts.ring_len,
            .eager_max = CONN_EAGER_MAX,
            .bufs = 64,
        },
        .timeout_ns = (uint64_t)proc.set.hello_timeout_ms * 1000000u,
    };
    cfg.early = !c->opts.separate && (c->responder || is_one_trip(c, cfg.transports));
    cfg.may_switch = cfg.shim_known && cfg.early && !c->responder;
    cfg.unasked = cfg.may_switch && c->startup.marked;
    cfg.at_once = cfg.unasked || (cfg.may_switch && c->startup.hurried);
    uint64_t most = cfg.may_switch ? LOOK_NS : ACCEPT_NS;
    if (cfg.shim_known && cfg.timeout_ns > most)
        cfg.timeout_ns = most;
    memcpy(cfg.mpa.rtr_pref, c->opts.rtr_pref, sizeof(cfg.mpa.rtr_pref));
    struct {
        uint8_t nonce[HELLO_NONCE_LEN];
        uint32_t ring_stag;
    } secret;
    do
        proc_random(&secret, sizeof(secret));
    while (secret.ring_stag == 0);
    memcpy(cfg.nonce, secret.nonce, sizeof(cfg.nonce));
    cfg.params.ring_stag = secret.ring_stag;
    return negotiate_init(&c->neg, &cfg, proc_now_ns());
}

int startup_begin(struct conn *c)
{
    int r = c->startup.beside ? 0 : startup_prepare(c); /* (an initiator that asks beside it has asked) */
    if (r == 0)
        conn_go_negotiating(c);
    return r;
}

/*
 * Why is the peer not to be asked? REASON_NONE: it is. Nothing was sent yet. A marked listener runs sockwarp, and its
 * program accepts when it likes.
 */
static unsigned why_not_asked(struct conn *c, int fd)
{
    if (c->startup.known_shim)
        return REASON_NONE;
    if (!c->opts.hello_always && !c->opts.immediate)
        c->startup.marked = mark_is_seen(fd);
    if (!c->startup.marked && !c->require && !c->opts.ask_always && !c->opts.hello_always && !c->opts.immediate)
        return REASON_UNMARKED;
    const struct sockaddr *peer = (const struct sockaddr *)&c->peer;
    bool known = c->startup.marked && learned_has_answered(peer);
    if (!c->require && !known && learned_by_user(peer, fd))
        return REASON_CACHED_PLAIN;
    if (c->startup.marked)
        c->startup.known_shim = true;
    return REASON_NONE;
}

/*
 * Does the kernel know better where the connection goes? A connect to the wildcard address goes somewhere; and of IPv6
 * its form counts, mapped and scoped.
 */
static bool may_be_elsewhere(const struct sockaddr_storage *ss)
{
    struct sockaddr_in in;
    memcpy(&in, ss, sizeof(in));
    return in.sin_family != AF_INET || in.sin_addr.s_addr == htonl(INADDR_ANY);
}

int startup_begin_initiator(struct sock *s, struct conn *c)
{
    unsigned reason = why_not_asked(c, atomic_load(&s->fd));
    if (reason != REASON_NONE) {
        conn_go_plain(s, c, reason);
        return -ENOENT;
    }
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    if (may_be_elsewhere(&c->peer) && REAL(getpeername)(atomic_load(&s->fd), (struct sockaddr *)&peer, &len) == 0) {
        c->peer = peer;
        c->peer_len = len;
    }
    int r = conn_buffers(c);
    if (c->opts.transports & HELLO_TRANSPORT_VERBS) { /* by which the device is looked up */
        len = sizeof(c->local);
        if (REAL(getsockname)(atomic_load(&s->fd), (struct sockaddr *)&c->local, &len) < 0)
            c->local.ss_family = AF_UNSPEC;
        if (conn_zerocopy_on(atomic_load(&s->fd)))
            c->opts.transports &= (uint8_t)~HELLO_TRANSPORT_VERBS; /* a device has no completions on the error queue */
    }
    if (r == 0)
        r = startup_begin(c);
    if (r == 0 && c->startup.beside)
        beside_connected(c, atomic_load(&s->fd));
    if (r == 0 && conn_is_unasked(c))
        startup_put_off(c);
    if (r < 0)
        conn_go_plain(s, c, REASON_NO_MEMORY);
    return r;
}
