/*
 * Connections: their memory, the changes of their state, their end.
 */
#include "preload/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "core/base/sm.h"
#include "core/base/trace.h"
#include "preload/explain.h"
#include "preload/pending.h"
#include "preload/proc.h"
#include "preload/real.h"
#include "preload/sandbox.h"
#include "preload/segv.h"
#include "preload/startup.h"
#include "preload/stats.h"
#include "preload/tcpinfo.h"
#include "preload/transports.h"
#include "preload/verbs.h"

static const struct sm_state states[] = {
    [CONN_FREE] = { "free", SM_TO(CONN_CONNECTING) | SM_TO(CONN_NEGOTIATING) },
    [CONN_CONNECTING] = { "connecting",
                          SM_TO(CONN_NEGOTIATING) | SM_TO(CONN_PLAIN) | SM_TO(CONN_DEAD) },
    [CONN_NEGOTIATING] = { "negotiating", SM_TO(CONN_CONNECTING) | SM_TO(CONN_FULL) |
                                              SM_TO(CONN_PLAIN) | SM_TO(CONN_DEAD) },
    [CONN_FULL] = { "full", SM_TO(CONN_DEAD) | SM_TO(CONN_FREE) },
    [CONN_PLAIN] = { "plain", SM_TO(CONN_DEAD) | SM_TO(CONN_FREE) },
    [CONN_DEAD] = { "dead", SM_TO(CONN_FREE) },
};

static void move(struct conn *c, enum conn_state to)
{
    uint8_t st = atomic_load(&c->state);
    sm_move(states, "conn", c, &st, (uint8_t)to);
    atomic_store(&c->state, st);
}

struct conn *conn_new(bool responder, enum conn_state state, const struct policy_rule *rule)
{
    struct conn *c = conn_alloc();
    if (c == NULL)
        return NULL;
    c->responder = responder;
    c->require = rule->action == POLICY_REQUIRE;
    c->opts = rule->opts;
    c->lowat_now = 1;
    c->user_lowat = 1;
    c->peek_off = -1;
    conn_batch_init(c);
    c->born_ns = proc_now_ns();
    c->kernel_wants = responder ? POLLIN : POLLOUT;
    atomic_store(&c->state, CONN_FREE);
    move(c, state);
    return c;
}

/* A program on this host that has not accepted for so long is not waited for any longer: nothing is lost by going on plain. */
#define ACCEPT_NS 500000000u

/* RFC 5040 5.2.2/3: no more Reads are promised, or asked for, than the endpoint has places for. */
static uint16_t depth(uint16_t rule, uint16_t most)
{
    return rule == MPA_IRD_ORD_NONE || rule < most ? rule : most;
}

int conn_begin(struct conn *c)
{
    struct negotiate_cfg cfg = {
        .responder = c->responder,
        .shim_known = c->known_shim && !c->require,
        .immediate = c->opts.immediate,
        .transports = (uint8_t)(HELLO_TRANSPORT_IWARP | verbs_transport(c)),
        .mpa = {
            .dialect = c->opts.rtr_frame ? MPA_DIALECT_RTR_FRAME : MPA_DIALECT_RFC,
            .rev = c->opts.rtr_frame || c->rev_1 ? 1 : 2,
            .crc = c->opts.crc,
            .markers = c->opts.markers,
            .peer_to_peer = true,
            .rtr = c->opts.rtr,
            .ird = depth(c->opts.ird, IWARP_IRD_MAX),
            .ord = depth(c->opts.ord, IWARP_ORD_MAX),
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
    cfg.early = !c->opts.separate && (c->responder || (!c->opts.immediate && !c->opts.rtr_frame &&
                                                       cfg.transports == HELLO_TRANSPORT_IWARP));
    if (cfg.shim_known && cfg.timeout_ns > ACCEPT_NS)
        cfg.timeout_ns = ACCEPT_NS;
    memcpy(cfg.mpa.rtr_pref, c->opts.rtr_pref, sizeof(cfg.mpa.rtr_pref));
    proc_random(cfg.nonce, sizeof(cfg.nonce));
    do
        cfg.params.ring_stag = proc_random32(NULL);
    while (cfg.params.ring_stag == 0);
    int r = negotiate_init(&c->neg, &cfg, proc_now_ns());
    if (r < 0)
        return r;
    if (conn_state(c) != CONN_NEGOTIATING)
        move(c, CONN_NEGOTIATING);
    return 0;
}

/*
 * RFC 6581 9.3/1: "The initiator or responder MUST generate the TERM message that contains Layer 2, Error
 * Type 0, Error Code 5 when it encounters any error locally for which the special Error Code is not
 * defined in Section 8 before resetting the connection." (A responder may send no FPDU yet: RFC 5044
 * 7.1.2 rule 4.)
 */
static void say_local_error(struct conn *c, int fd)
{
    const struct iovec *iov;
    size_t len, n;
    iwarp_fail(&c->ep, (struct term_code){ TERM_LAYER_LLP, 0, TERM_MPA_LOCAL });
    while ((n = iwarp_out(&c->ep, &iov, &len)) > 0) {
        struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
        ssize_t sent = sandbox_sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            break;
        iwarp_out_sent(&c->ep, (size_t)sent);
    }
}

/*
 * RFC 5044 7.1/2 and RFC 5044 7.1.2 rule 2/6: a DDP endpoint takes over what comes. RFC 5044 4.4/5: the program
 * does not see it.
 */
static int begin_fpdus(struct conn *c, int fd)
{
    const struct mpa_startup_result *res = &c->neg.mpa.res;
    c->segment = c->opts.fpdu_len == 0 ? tcpinfo_emss(fd) : 0;
    struct iwarp_cfg ic = {
        .initiator = !c->responder,
        .tx = { .crc = res->crc, .markers = res->markers_tx },
        .rx = { .crc = res->crc, .markers = res->markers_rx },
        .rtr = res->rtr,
        .ird = res->ird,
        .ord = res->ord,
        .mulpdu = c->segment ? mpa_mulpdu(c->segment, res->markers_tx) : c->opts.fpdu_len,
        .ready = res->rtr_frame,
        .aligned = c->segment != 0,
        .send_max = STREAM_HDR_LEN + CONN_EAGER_MAX,
        .in_buf = c->in,
        .in_cap = CONN_IN_LEN,
        .out_buf = c->out,
        .out_cap = CONN_OUT_LEN,
        .immediate = (c->neg.cfg.params.flags & c->neg.peer.flags & STREAM_FLAG_IMMEDIATE) != 0,
        .random32 = proc_random32,
    };
    int r = iwarp_init(&c->ep, &ic);
    if (r < 0)
        return r;
    /* The ring's STag was offered in the private data, before this endpoint existed. */
    struct ddp_region ring = {
        .stag = c->neg.cfg.params.ring_stag,
        .access = DDP_ACCESS_REMOTE_WRITE,
        .deferred = true,
        .to = 0,
        .len = c->neg.cfg.params.ring_len,
    };
    c->ep.stags.region[0] = ring;
    struct stream_cfg sc = {
        .ep = &c->ep.base,
        .local = c->neg.cfg.params,
        .peer = c->neg.peer,
        .write_limit = (uint32_t)(ic.mulpdu - DDP_TAGGED_HDR_LEN),
        .eager_limit = CONN_EAGER_LIMIT,
    };
    r = stream_init(&c->st, &sc);
    if (r < 0) {
        say_local_error(c, fd);
        return r;
    }
    if (c->in_len > 0) { /* behind the startup frames: already where the endpoint wants it */
        iwarp_in_fed(&c->ep, c->in_len);
        c->in_len = 0;
    }
    return 0;
}

int conn_go_full(struct sock *s, struct conn *c)
{
    const struct mpa_startup_result *res = &c->neg.mpa.res;
    int fd = atomic_load(&s->fd);
    bool device = negotiate_by_device(&c->neg);
    int r = device ? verbs_begin(c) : begin_fpdus(c, fd);
    if (r < 0)
        return r;
    /* A low-water mark that the program set before counts its octets, the kernel's from now on frames. */
    int lowat = 1;
    socklen_t lowat_len = sizeof(lowat);
    if (proc.lowat_used &&
        REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &lowat_len) == 0 && lowat != 1) {
        atomic_store(&c->user_lowat, (uint32_t)lowat);
        lowat = 1;
        REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
    }
    int inq = 0;
    socklen_t inq_len = sizeof(inq);
    if (proc.inq_used && REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INQ, &inq, &inq_len) == 0)
        atomic_store(&c->tells_waiting, inq != 0);
    /*
     * Urgent data: the kernel's urgent pointer goes with a frame's last octet, so that SIGURG and POLLPRI come by themselves;
     * but no octet may leave the stream for it. What the program sees of it is done by the stream (conn_rx.c).
     */
    int inlined = 0;
    socklen_t inlined_len = sizeof(inlined);
    if (REAL(getsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, &inlined_len) == 0)
        atomic_store(&c->st.rx.urgent_inline, inlined != 0);
    inlined = 1;
    if (!device)
        REAL(setsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, sizeof(inlined));
    c->ino = sock_ino(fd);
    segv_guard();
    atomic_store(&c->reason, REASON_UPGRADED);
    move(c, CONN_FULL);
    if (device) {
        struct sockaddr_storage to = c->peer;
        r = c->responder ? 0 : stream_rtr(&c->st); /* the responder's may not send before */
        if (r == 0)
            r = verbs_tx_flush(c);
        explain_decision(s, c->responder ? "accept" : "connect", &to, verbs_name(c), REASON_UPGRADED);
        return r == -EAGAIN ? 0 : r;
    }
    /*
     * The initiator's RTR is a small segment that nobody answers: by Nagle's rule the program's first octets would wait
     * for its delayed acknowledgement.
     */
    int on = 0;
    socklen_t on_len = sizeof(on);
    if (!c->responder && REAL(getsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, &on_len) == 0 && !on) {
        on = 1;
        c->nodelay_lent = REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
    }
    /* No RTR of MPA's: the stream has its own, since the other program may speak first. */
    if (!c->responder && res->rtr == 0 && !res->rtr_frame) {
        r = stream_rtr(&c->st);
        SW_CHECK(r == 0, "the first message: %d", r);
    }
    /*
     * The initiator's RTR. A peer that has closed already needs none, and its kernel would answer by a reset: it goes with
     * the program's first octets, if any, which are answered so in any case.
     */
    r = !c->responder && tcpinfo_peer_closed(fd) ? 0 : conn_tx_flush(c, fd);
    if (r == -EAGAIN)
        conn_tx_later(c, fd);
    /*
     * The startup's exchange has put the kernel into its request-and-response mode, where acknowledgements wait for data to
     * go with. A fresh TCP connection is not in it: the program's first small writes would feel the difference.
     */
    int quick = 1;
    REAL(setsockopt)(fd, IPPROTO_TCP, TCP_QUICKACK, &quick, sizeof(quick));
    struct sockaddr_storage peer = c->peer;
    explain_decision(s, c->responder ? "accept" : "connect", &peer, "iwarp", REASON_UPGRADED);
    return 0;
}

void conn_go_connecting(struct conn *c)
{
    move(c, CONN_CONNECTING);
    c->kernel_wants = POLLOUT;
}

bool conn_decline(struct conn *c, unsigned reason)
{
    if (!conn_undecided(c) || turn_take(&c->rx, 0, false) < 0)
        return false;
    negotiate_decline(&c->neg, reason);
    turn_give(&c->rx);
    return true;
}

void conn_use(struct conn *c)
{
    if (SW_UNLIKELY(atomic_load_explicit(&c->user, memory_order_relaxed) != proc.pid))
        atomic_store(&c->user, proc.pid);
}

bool conn_is_held(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && negotiate_wants_offer(&c->neg) && atomic_load(&c->user) != proc.pid;
}

void conn_go_plain(struct sock *s, struct conn *c, unsigned reason)
{
    atomic_store(&c->reason, (uint8_t)reason);
    if (conn_state(c) != CONN_PLAIN)
        move(c, CONN_PLAIN);
    if (c->pre_len == c->pre_off && atomic_load(&c->so_error) == 0)
        atomic_store(&s->active, false);
    struct sockaddr_storage peer = c->peer;
    explain_decision(s, c->responder ? "accept" : "connect", &peer, "plain", reason);
}

void conn_go_dead(struct sock *s, struct conn *c, unsigned reason, int err)
{
    atomic_store(&c->so_error, err);
    atomic_store(&c->reason, (uint8_t)reason);
    move(c, CONN_DEAD);
    struct sockaddr_storage peer = c->peer;
    explain_decision(s, c->responder ? "accept" : "connect", &peer, "refused", reason);
}

/* A connection that stayed plain did its reading and writing without us: the kernel counted. */
static void plain_totals(const struct conn *c, int fd, struct stats_record *r)
{
    uint64_t rx, tx;
    if (!tcpinfo_totals(fd, &rx, &tx))
        return;
    r->rx_bytes = rx > c->startup_rx ? rx - c->startup_rx : 0;
    r->tx_bytes = tx > c->startup_tx ? tx - c->startup_tx : 0;
}

static void fill_record(struct sock *s, struct conn *c, struct stats_record *r)
{
    enum conn_state st = conn_state(c);
    memset(r, 0, sizeof(*r));
    r->pid = proc.pid;
    r->program = proc.program;
    r->role = c->responder ? "accept" : "connect";
    r->local = c->local;
    r->peer = c->peer;
    int fd = atomic_load(&s->fd);
    if (r->local.ss_family == 0 && fd >= 0) {
        socklen_t len = sizeof(r->local);
        if (REAL(getsockname)(fd, (struct sockaddr *)&r->local, &len) < 0)
            r->local.ss_family = 0;
    }
    r->transport = "plain";
    r->reason = atomic_load(&c->reason);
    r->rtr = "none";
    if (r->reason == REASON_NONE)
        r->reason = atomic_load(&c->plain_tx) > 0 ? REASON_SPOKE_FIRST : REASON_CLOSED;
    r->memory = conn_memory(c);
    if (c->opts.transports & HELLO_TRANSPORT_VERBS)
        r->device = c->device[0] != '\0' ? c->device : reason_name(c->device_reason);
    if (st != CONN_FULL) {
        plain_totals(c, fd, r);
        return;
    }
    r->transport = conn_on_verbs(c) ? verbs_name(c) : endpoint_ops(&c->ep.base)->name;
    r->rtr = mpa_rtr_name(c->neg.mpa.res.rtr);
    r->crc = c->neg.mpa.res.crc;
    r->tx_bytes = c->st.tx.total + atomic_load(&c->plain_tx);
    r->rx_bytes = c->st.rx.total + c->plain_rx;
    if (conn_on_verbs(c)) {
        verbs_record(c, r);
        return;
    }
    r->tx_fpdus = c->ep.stats.tx_fpdus;
    r->rx_fpdus = c->ep.stats.rx_fpdus;
    r->sends = c->ep.stats.tx_sends;
    r->writes = c->ep.stats.tx_writes;
    r->immediates = c->ep.stats.tx_immediates;
    r->coalesced = c->coalesced;
    r->empty = c->ep.stats.rx_empty;
    r->direct = c->st.rx.placed;
    r->errors = c->ep.stats.errors;
}

void conn_record(struct sock *s, struct conn *c)
{
    if (proc.set.stats_file[0] == '\0' || sandbox_on() || atomic_exchange(&c->recorded, true))
        return;
    struct stats_record r;
    fill_record(s, c, &r);
    char line[1536];
    size_t len = stats_format(&r, line, sizeof(line));
    proc_stats_write(line, len);
}

/* SO_LINGER in seconds, -1: off. */
static int linger_s(int fd)
{
    struct linger lin;
    socklen_t len = sizeof(lin);
    return sandbox_getsockopt(fd, SOL_SOCKET, SO_LINGER, &lin, &len) == 0 && lin.l_onoff ? lin.l_linger : -1;
}

/*
 * TCP answers a close that leaves received octets unread with a reset (RFC 1122 section 4.2.2.13). Those in our staging
 * count as well; what is no octet of the program's, an RTR say, is taken in first, because the kernel would count it.
 */
static void reset_if_unread(struct conn *c, int fd)
{
    if (turn_take_brief(&c->rx) < 0)
        return;
    if (conn_rx_progress(c, fd, true), conn_rx_avail(c) > 0) {
        struct linger lin = { .l_onoff = 1, .l_linger = 0 };
        sandbox_setsockopt(fd, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin));
    }
    turn_give(&c->rx);
}

/* What is left goes out now, or after the close. */
static void send_last(struct sock *s, struct conn *c, int fd)
{
    if (turn_take_brief(&c->tx) < 0)
        return; /* another thread is sending: it sees to it */
    if (!conn_only_answers(c) && conn_tx_flush(c, fd) == -EAGAIN)
        conn_tx_finish(s, fd, proc.set.linger_ms);
    turn_give(&c->tx);
}

/*
 * Another process has it still, but what is left to send is this one's: nobody knows whether the other will ever make a call on
 * it.
 */
static void settle_shared(struct sock *s, struct conn *c, int fd)
{
    if (conn_tail_is_mine(c))
        send_last(s, c, fd);
}

/* Octets accepted from the program but not yet in the kernel's hands go on after close. */
static void settle_close(struct sock *s, struct conn *c, int fd)
{
    if (!holders_alone(&c->holders)) {
        settle_shared(s, c, fd);
        return;
    }
    if (c->responder && !iwarp_can_send(&c->ep) && linger_s(fd) != 0)
        REAL(shutdown)(fd, SHUT_WR); /* the RTR has not come: as in leave_startup */
    reset_if_unread(c, fd);
    if (turn_take_brief(&c->tx) < 0)
        return; /* another thread is sending: it sees to it */
    int linger = linger_s(fd), r = conn_only_answers(c) ? 0 : conn_tx_flush(c, fd);
    if (r == -EAGAIN && linger > 0) {
        conn_tx_settle(c, fd, linger < 1000000 ? (uint32_t)linger * 1000u : 1000000000u);
        r = conn_tx_flush(c, fd);
    }
    if (r == -EAGAIN && linger != 0)
        conn_tx_finish(s, fd, proc.set.linger_ms);
    turn_give(&c->tx);
}

#define LATE_HELLO_NS 200000000u
#define LATE_HELLO_LOOK_MS 5

/*
 * The program spoke first and closes, and nothing has come yet. A Hello that is unread at the close, or comes after it, would
 * make the kernel reset the connection and drop what it still has to send, where the program's client says nothing. So it is
 * looked for as long as there is something to lose. (No event tells that all was sent.)
 */
static void last_words(struct sock *s, struct conn *c, int fd)
{
    uint64_t end = proc_now_ns() + LATE_HELLO_NS;
    while (conn_undecided(c) && atomic_load(&c->plain_tx) > 0 && !sandbox_on()) {
        int unsent = 0;
        if (startup_go_on(s, true) < 0 || !conn_undecided(c) || REAL(ioctl)(fd, SIOCOUTQ, &unsent) < 0 || unsent == 0 ||
            proc_now_ns() >= end)
            break;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        REAL(poll)(&p, 1, LATE_HELLO_LOOK_MS);
    }
    pending_remove(s);
}

/*
 * The responder closes before the startup is over. What the initiator's library has sent and will send is none of the program's
 * octets, yet unread, or after the close, it would make the kernel reset: the end is announced first (an initiator that
 * knows of it sends no more), then what has come is taken away.
 *
 * One that this program has found, and not used, may be another's: it ran `date`, and closes nothing on exec. Nobody tells who
 * has it, so it is left as it is. (If nobody has, a Hello that waits is answered by a reset, which its initiator takes for the end.)
 */
static void leave_startup(struct sock *s, struct conn *c, int fd)
{
    if (conn_state(c) != CONN_NEGOTIATING || !c->responder || (c->found && conn_undecided(c)))
        return;
    c->no_device = true;
    if (conn_undecided(c))
        last_words(s, c, fd);
    int r = startup_go_on(s, false); /* a Hello that waits; another thread may just be at it */
    if (r < 0 || conn_state(c) != CONN_NEGOTIATING || conn_undecided(c) || linger_s(fd) == 0)
        return;
    REAL(shutdown)(fd, SHUT_WR);
    while (REAL(recv)(fd, NULL, CONN_IN_LEN, MSG_TRUNC | MSG_DONTWAIT) > 0)
        ;
}

void conn_last_close(struct sock *s, int fd)
{
    struct conn *c = s->conn;
    if (fd >= 0)
        atomic_store(&s->fd, fd); /* for the record: still open */
    conn_tx_finished(0);
    if (fd >= 0 && holders_alone(&c->holders))
        leave_startup(s, c, fd);
    if (conn_state(c) == CONN_FULL && fd >= 0 && conn_on_verbs(c))
        verbs_close(s, c, fd, proc.set.linger_ms);
    else if (conn_state(c) == CONN_FULL && fd >= 0)
        settle_close(s, c, fd);
    /* Whoever holds it last writes the record. */
    if (holders_alone(&c->holders))
        conn_record(s, c);
    atomic_store(&s->fd, -1);
}

static void settle_one(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    if (c == NULL || atomic_load(&s->fd) != fd)
        return;
    if (conn_state(c) == CONN_FULL && conn_on_verbs(c)) {
        verbs_close(s, c, fd, proc.set.linger_ms);
        return;
    }
    bool alone = holders_alone(&c->holders);
    if (alone)
        leave_startup(s, c, fd);
    if (conn_state(c) == CONN_FULL && alone) {
        reset_if_unread(c, fd);
        send_last(s, c, fd);
    } else if (conn_state(c) == CONN_FULL) {
        settle_shared(s, c, fd);
    }
    /* Whoever holds it last writes the record. */
    if (alone)
        conn_record(s, c);
}

/* Only when no ring of ours works on it any more. */
static void leave_one(int fd, struct sock *s, void *arg)
{
    (void)arg;
    if (s->conn != NULL && atomic_load(&s->fd) == fd)
        conn_leave(s->conn, s);
}

void conn_settle_all(void)
{
    sock_each(settle_one, NULL);
    conn_tx_finished(proc.set.linger_ms);
    sock_each(leave_one, NULL);
}

/*
 * (Who sleeps with a turn is a call of the program's on this descriptor. A sender may just be about to wait in poll, by number: it is
 * told to look again.)
 */
void conn_let_out(struct sock *s, int fd)
{
    if (turn_take_brief(&s->conn->rx) == 0)
        turn_give(&s->conn->rx);
    if (turn_take_brief(&s->conn->tx) == 0) {
        conn_tx_moved(s, fd);
        turn_give(&s->conn->tx);
    } else {
        conn_tell(s->conn);
    }
}

uint64_t conn_ino(const struct sock *s)
{
    return s->conn->ino;
}
