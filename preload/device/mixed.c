/*
 * The software endpoint beside the program's TCP connection; see mixed.h.
 */
#include "preload/device/mixed.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "core/base/sm.h"
#include "core/base/trace.h"
#include "core/iwarp/startup_end.h"
#include "core/mpa/startup.h"
#include "core/transport/verbs_private.h"
#include "preload/conn/conn.h"
#include "preload/device/mapper.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/tcpinfo.h"

#define BACKLOG 4
#define EVENTS 16

static const struct sm_state states[] = {
    [VERBS_IDLE] = { "idle", SM_TO(VERBS_CONNECTING) | SM_TO(VERBS_EXPECTING) | SM_TO(VERBS_DOWN) },
    [VERBS_EXPECTING] = { "expecting", SM_TO(VERBS_ACCEPTING) | SM_TO(VERBS_DOWN) },
    [VERBS_CONNECTING] = { "connecting", SM_TO(VERBS_UP) | SM_TO(VERBS_DOWN) },
    [VERBS_ACCEPTING] = { "accepting", SM_TO(VERBS_UP) | SM_TO(VERBS_DOWN) },
    [VERBS_UP] = { "up", SM_TO(VERBS_DOWN) },
    [VERBS_DOWN] = { "down", 0 },
};

struct mixed {
    struct verbs_cfg cfg;
    bool crc;
    size_t fpdu_len;
    _Atomic uint8_t state; /* enum verbs_state; changes with the lock held */
    _Atomic(const char *) why;
    size_t mem_len; /* of this and what follows it */
    uint8_t *ring, *mem;
    struct verbs_side local, peer;
    uint64_t peer_base;

    /* the lock, until UP */
    struct mixed *next, **pprev;
    int listen_fd;
    bool connected, rev_1;
    struct mpa_startup mpa;
    struct sockaddr_storage to; /* initiator */
    socklen_t to_len;
    struct mapper mapper; /* initiator: before it dials */

    int fd, chan;        /* constant from UP on */
    _Atomic bool eof;    /* nothing more arrives; set with the receive side */
    _Atomic bool failed; /* nothing more is sent; set with either side */
    struct soft_ep ep;
};

/* The process's lock: protects the list, the set, and the members named above. Innermost. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mixed *all;
static int setup_fd = -1;
static bool setup_has_cm;

static size_t page_up(size_t n)
{
    return (n + 4095u) & ~(size_t)4095u;
}

static struct soft_side soft_side(struct verbs_side s, uint64_t base)
{
    return (struct soft_side){
        .base = base,
        .ring_stag = s.ring_stag,
        .ring_len = s.ring_len,
        .fence_stag = s.fence_stag,
        .msg_max = s.msg_max,
        .bufs = s.bufs,
    };
}

static struct soft_cfg soft_cfg(const struct mixed *m)
{
    return (struct soft_cfg){
        .local = soft_side(m->local, 0),
        .peer = soft_side(m->peer, m->peer_base),
        .write_max = m->cfg.write_max,
        .queue_len = m->cfg.tx_len,
        .ring = m->ring,
        .mem = m->mem,
        .random32 = proc_random32,
        .ird = SOFT_DEPTH,
        .ord = SOFT_DEPTH,
    };
}

struct mixed *mixed_new(const struct verbs_cfg *cfg, bool crc, size_t fpdu_len)
{
    struct verbs_side local = { .ring_len = cfg->ring_len, .msg_max = cfg->msg_max, .bufs = cfg->bufs };
    struct soft_cfg sc = { .local = soft_side(local, 0), .queue_len = cfg->tx_len };
    size_t own = page_up(sizeof(struct mixed)), ring = page_up(cfg->ring_len);
    size_t len = own + ring + page_up(soft_memory(&sc));
    void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return NULL;
    struct mixed *m = mem;
    m->cfg = *cfg;
    m->crc = crc;
    m->fpdu_len = fpdu_len;
    m->mem_len = len;
    m->ring = (uint8_t *)mem + own;
    m->mem = m->ring + ring;
    m->local = local;
    do { /* RFC 5041 8.3.1: hard to predict */
        m->local.ring_stag = proc_random32(NULL);
        m->local.fence_stag = proc_random32(NULL);
    } while (m->local.ring_stag == 0 || m->local.fence_stag == 0 || m->local.ring_stag == m->local.fence_stag);
    m->listen_fd = m->fd = m->chan = m->mapper.fd = m->mapper.timer = -1;
    atomic_store(&m->why, "");
    lock_take(&lock);
    m->next = all;
    m->pprev = &all;
    if (m->next != NULL)
        m->next->pprev = &m->next;
    all = m;
    lock_give(&lock);
    return m;
}

/* ---- the caller holds the lock from here on ---- */

static void move(struct mixed *m, enum verbs_state to, const char *why)
{
    uint8_t st = atomic_load(&m->state);
    sm_move(states, "mixed", m, &st, (uint8_t)to);
    atomic_store(&m->why, why);
    atomic_store(&m->state, st);
}

/* (A duplicate of the file may live on in a child, so it is removed from the set explicitly.) */
static void close_fd(int *fd)
{
    if (*fd < 0)
        return;
    if (setup_fd >= 0)
        REAL(epoll_ctl)(setup_fd, EPOLL_CTL_DEL, *fd, NULL);
    hidden_close(*fd);
    *fd = -1;
}

static void stop_asking(struct mixed *m)
{
    close_fd(&m->mapper.fd);
    close_fd(&m->mapper.timer);
}

static void down(struct mixed *m, const char *why)
{
    if (atomic_load(&m->state) == VERBS_DOWN)
        return;
    trace_info("mixed %p: %s", (void *)m, why);
    stop_asking(m);
    close_fd(&m->fd);
    close_fd(&m->listen_fd);
    move(m, VERBS_DOWN, why);
}

/* 0 or -errno. */
static int watch(struct mixed *m, int fd, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = m };
    if (setup_fd < 0) {
        int set = REAL(epoll_create1)(EPOLL_CLOEXEC);
        if (set < 0)
            return -errno;
        setup_fd = hidden_move(set);
    }
    int r = REAL(epoll_ctl)(setup_fd, EPOLL_CTL_ADD, fd, &ev);
    if (r < 0 && errno == EEXIST)
        r = REAL(epoll_ctl)(setup_fd, EPOLL_CTL_MOD, fd, &ev);
    return r < 0 ? -errno : 0;
}

static int new_socket(int family, int *fd)
{
    int s = REAL(socket)(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (s < 0)
        return -errno;
    *fd = hidden_move(s);
    return 0;
}

/* RFC 5044 7.1.2: the Rev 1 form is answered, too. */
static int begin_mpa(struct mixed *m, bool responder)
{
    uint8_t priv[VERBS_PRIVATE_LEN];
    struct mpa_startup_cfg cfg = soft_startup_cfg(responder, m->rev_1 ? 1 : 2, m->crc);
    if (!responder) {
        verbs_private_put(&m->local, 0, m->cfg.token, priv);
        cfg.priv = priv;
        cfg.priv_len = sizeof(priv);
    }
    return mpa_startup_init(&m->mpa, &cfg);
}

/* The startup is over: FPDUs follow. 0 or -errno. */
static int begin_fpdus(struct mixed *m)
{
    const struct mpa_startup_result *res = &m->mpa.res;
    struct soft_cfg sc = soft_cfg(m);
    size_t mulpdu = mpa_mulpdu(tcpinfo_emss(m->fd), res->markers_tx);
    sc.initiator = !m->mpa.cfg.responder;
    sc.tx = (struct mpa_framing){ .crc = res->crc, .markers = res->markers_tx };
    sc.rx = (struct mpa_framing){ .crc = res->crc, .markers = res->markers_rx };
    sc.rtr = res->rtr;
    sc.ird = res->ird;
    sc.ord = res->ord;
    sc.mulpdu = m->fpdu_len != 0 && m->fpdu_len < mulpdu ? m->fpdu_len : mulpdu;
    int r = soft_init(&m->ep, &sc);
    if (r < 0)
        return r;
    int set = REAL(epoll_create1)(EPOLL_CLOEXEC), on = 1;
    if (set < 0)
        return -errno;
    m->chan = hidden_move(set);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = m };
    if (REAL(epoll_ctl)(m->chan, EPOLL_CTL_ADD, m->fd, &ev) < 0)
        return -errno;
    REAL(epoll_ctl)(setup_fd, EPOLL_CTL_DEL, m->fd, NULL);
    REAL(setsockopt)(m->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* frames to be sent are gathered here */
    close_fd(&m->listen_fd);
    r = mixed_flush(m); /* the RTR: only then does a device tell its program that the connection is up */
    if (r == 0)
        move(m, VERBS_UP, "up");
    return r;
}

/* Begins to connect m->fd to m->to. 0 or -errno. */
static int dial(struct mixed *m)
{
    if (REAL(connect)(m->fd, (struct sockaddr *)&m->to, m->to_len) < 0 && errno != EINPROGRESS)
        return -errno;
    return watch(m, m->fd, EPOLLOUT);
}

/* Dials when the mapper has answered, or does not. 0 or -errno. */
static int go_on_asking(struct mixed *m)
{
    if (mapper_step(&m->mapper, &m->to) == -EAGAIN)
        return 0;
    stop_asking(m);
    return dial(m);
}

/* Asks whether the peer's device listens at another port than it has told, and dials. 0 or -errno. */
static int ask(struct mixed *m)
{
    int r = mapper_ask(&m->mapper, &m->to, m->to_len, m->fd);
    if (r == 0)
        r = watch(m, m->mapper.fd, EPOLLIN);
    if (r == 0)
        r = watch(m, m->mapper.timer, EPOLLIN);
    if (r == 0)
        return go_on_asking(m);
    stop_asking(m);
    return dial(m);
}

/* Sends a frame of the startup. RNICs want it in one segment. False: it was not sent. */
static bool send_frame(struct mixed *m)
{
    const uint8_t *p;
    size_t len = mpa_startup_output(&m->mpa, &p);
    if (len > 0 && REAL(send)(m->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
        return false;
    mpa_startup_sent(&m->mpa, len);
    return true;
}

static bool token_is_right(const struct mixed *m)
{
    const struct mpa_startup_result *res = &m->mpa.res;
    const uint8_t *token = verbs_private_token(res->peer_priv, res->peer_priv_len);
    return token != NULL && memcmp(token, m->cfg.token, VERBS_TOKEN_LEN) == 0;
}

/* A whole Request has come. False: it is refused. */
static bool answer(struct mixed *m)
{
    const struct mpa_startup_result *res = &m->mpa.res;
    uint8_t priv[VERBS_PRIVATE_LEN];
    verbs_private_put(&m->local, 0, NULL, priv);
    if (!token_is_right(m) || !verbs_private_take(res->peer_priv, res->peer_priv_len, &m->peer, &m->peer_base) ||
        mpa_startup_accept(&m->mpa, priv, sizeof(priv)) < 0) {
        if (mpa_startup_reject(&m->mpa, NULL, 0) == 0)
            send_frame(m); /* (or it does not; then it is closed) */
        return false;
    }
    move(m, VERBS_ACCEPTING, "the Reply is under way");
    return send_frame(m);
}

/* Takes in what the startup needs, and no byte more. False: it has failed. */
static bool go_on(struct mixed *m)
{
    uint8_t buf[MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX];
    size_t need;
    while ((need = mpa_startup_need(&m->mpa)) > 0) {
        ssize_t n = REAL(recv)(m->fd, buf, need < sizeof(buf) ? need : sizeof(buf), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n <= 0) {
            mpa_startup_eof(&m->mpa);
            return false;
        }
        if (mpa_startup_input(&m->mpa, buf, (size_t)n) < 0)
            return false;
        if (m->mpa.state == MPA_ST_DECIDE && !answer(m))
            return false;
    }
    return m->mpa.state == MPA_ST_DONE &&
           (m->mpa.cfg.responder ||
            verbs_private_take(m->mpa.res.peer_priv, m->mpa.res.peer_priv_len, &m->peer, &m->peer_base)) &&
           begin_fpdus(m) == 0;
}

/* The peer's device, or a stranger. */
static void take_connection(struct mixed *m)
{
    int fd = REAL(accept4)(m->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    m->fd = hidden_move(fd);
    REAL(epoll_ctl)(setup_fd, EPOLL_CTL_DEL, m->listen_fd, NULL); /* one at a time */
    if (begin_mpa(m, true) < 0 || watch(m, m->fd, EPOLLIN) < 0)
        down(m, "no memory");
}

/* An initiator whose startup has failed behind the Reply. */
static void say_why(const struct mixed *m)
{
    struct mpa_framing tx = { .crc = m->mpa.res.crc, .markers = m->mpa.res.markers_tx };
    uint8_t code = TERM_MPA_LOCAL, buf[STARTUP_END_MAX];
    if (m->mpa.state != MPA_ST_DONE && !mpa_startup_terminates(&m->mpa, &code))
        return;
    size_t len = startup_end_put(&tx, code, buf);
    ssize_t n = REAL(send)(m->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    trace_info("mixed %p: Terminate 2/0/%u, %zd octets", (const void *)m, code, n);
}

/* A device that has closed without an answer may know only the older form (RFC 6581 section 10). */
static bool try_rev_1(struct mixed *m)
{
    if (m->rev_1 || !mpa_startup_retry_rev1(&m->mpa))
        return false;
    trace_info("mixed %p: once more, by Rev 1", (void *)m);
    close_fd(&m->fd);
    m->rev_1 = true;
    m->connected = false;
    return begin_mpa(m, false) == 0 && new_socket(m->to.ss_family, &m->fd) == 0 && dial(m) == 0;
}

static void step(struct mixed *m)
{
    bool initiator = atomic_load(&m->state) == VERBS_CONNECTING;
    int err = 0;
    socklen_t len = sizeof(err);
    if (m->mapper.fd >= 0) {
        if (go_on_asking(m) < 0)
            down(m, "the peer's device cannot be reached");
        return;
    }
    if (initiator && !m->connected) {
        if (REAL(getsockopt)(m->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err != 0) {
            down(m, "the peer's device cannot be reached");
            return;
        }
        m->connected = true;
        if (!send_frame(m) || watch(m, m->fd, EPOLLIN) < 0)
            down(m, "the Request could not be sent");
        return;
    }
    if (m->fd < 0) {
        take_connection(m);
        return;
    }
    if (go_on(m))
        return;
    if (initiator && try_rev_1(m))
        return;
    if (initiator)
        say_why(m);
    if (initiator || atomic_load(&m->state) != VERBS_EXPECTING) {
        down(m,
             m->mpa.state == MPA_ST_REJECTED ? "the peer's device rejected the connection" : "the MPA startup failed");
        return;
    }
    trace_info("mixed: a connection without a token of ours");
    close_fd(&m->fd);
    if (watch(m, m->listen_fd, EPOLLIN) < 0)
        down(m, "no memory");
}

/* ---- the caller does not hold the lock from here on ---- */

void mixed_free(struct mixed *m)
{
    if (m == NULL)
        return;
    lock_take(&lock);
    if (m->pprev != NULL)
        *m->pprev = m->next;
    if (m->next != NULL)
        m->next->pprev = m->pprev;
    stop_asking(m);
    close_fd(&m->chan);
    close_fd(&m->fd);
    close_fd(&m->listen_fd);
    lock_give(&lock);
    munmap(m, m->mem_len);
}

int mixed_connect(struct mixed *m, const struct sockaddr *peer, socklen_t len, bool device)
{
    lock_take(&lock);
    m->to_len = len < sizeof(m->to) ? len : sizeof(m->to);
    memcpy(&m->to, peer, m->to_len);
    int r = begin_mpa(m, false);
    if (r == 0)
        r = new_socket(m->to.ss_family, &m->fd);
    if (r == 0)
        r = device ? ask(m) : dial(m);
    if (r == 0)
        move(m, VERBS_CONNECTING, "the peer's device has not answered");
    else
        down(m, "the peer's device cannot be reached");
    lock_give(&lock);
    return r;
}

int mixed_expect(struct mixed *m, const struct sockaddr *local, struct sockaddr_storage *at)
{
    lock_take(&lock);
    socklen_t len = verbs_address(local, at); /* (the kernel chooses the port) */
    int r = len == 0 ? -EAFNOSUPPORT : new_socket(at->ss_family, &m->listen_fd);
    if (r == 0 && (REAL(bind)(m->listen_fd, (struct sockaddr *)at, len) < 0 || REAL(listen)(m->listen_fd, BACKLOG) < 0))
        r = -errno;
    socklen_t at_len = sizeof(*at);
    if (r == 0 && REAL(getsockname)(m->listen_fd, (struct sockaddr *)at, &at_len) < 0)
        r = -errno;
    if (r == 0)
        r = watch(m, m->listen_fd, EPOLLIN);
    if (r == 0)
        move(m, VERBS_EXPECTING, "the peer has not connected");
    else
        down(m, "no port to listen on");
    lock_give(&lock);
    return r;
}

int mixed_setup_fd(void)
{
    int cm = verbs_cm_fd();
    lock_take(&lock);
    int fd = setup_fd >= 0 ? setup_fd : cm;
    if (fd == setup_fd && cm >= 0 && !setup_has_cm)
        setup_has_cm = watch(NULL, cm, EPOLLIN) == 0;
    lock_give(&lock);
    return fd;
}

bool mixed_dispatch(void)
{
    struct epoll_event ev[EVENTS];
    bool some = false;
    lock_take(&lock);
    int n = setup_fd >= 0 ? REAL(epoll_wait)(setup_fd, ev, EVENTS, 0) : 0;
    for (int i = 0; i < n; i++) {
        if (ev[i].data.ptr == NULL)
            continue;
        step(ev[i].data.ptr);
        some = true;
    }
    lock_give(&lock);
    return some;
}

enum verbs_state mixed_state(const struct mixed *m)
{
    return (enum verbs_state)atomic_load(&m->state);
}

const char *mixed_why(const struct mixed *m)
{
    return atomic_load(&m->why);
}

struct verbs_side mixed_local(const struct mixed *m)
{
    return m->local;
}

struct verbs_side mixed_peer(const struct mixed *m)
{
    return m->peer;
}

uint8_t *mixed_ring(struct mixed *m)
{
    return m->ring;
}

size_t mixed_memory(const struct mixed *m)
{
    return m->mem_len;
}

bool mixed_crc(const struct mixed *m)
{
    return m->ep.cfg.tx.crc;
}

void mixed_depths(const struct mixed *m, unsigned *ird, unsigned *ord)
{
    *ird = m->ep.iw.cfg.ird;
    *ord = m->ep.iw.cfg.ord;
}

const struct iwarp_stats *mixed_stats(const struct mixed *m)
{
    return &m->ep.iw.stats;
}

struct endpoint *mixed_endpoint(struct mixed *m)
{
    return &m->ep.base;
}

/* ---- data ---- */

int mixed_fd(const struct mixed *m)
{
    return m->chan;
}

unsigned mixed_drain(struct mixed *m)
{
    struct epoll_event ev;
    if (REAL(epoll_wait)(m->chan, &ev, 1, 0) <= 0)
        return 0;
    return ((ev.events & ~(uint32_t)EPOLLOUT) != 0 ? VERBS_TOLD_RX : 0) |
           ((ev.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0 ? VERBS_TOLD_TX : 0);
}

/* True: something came, or the end. */
static bool receive(struct mixed *m)
{
    uint8_t *p;
    size_t space = soft_in_space(&m->ep, &p);
    if (space == 0 || atomic_load(&m->eof))
        return false;
    ssize_t n = sandbox_recv(m->fd, p, space, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        soft_in_fed(&m->ep, (size_t)n);
        return true;
    }
    if (n < 0)
        atomic_store(&m->failed, true);
    atomic_store(&m->eof, true);
    return true;
}

int mixed_poll(struct mixed *m, struct stream *st)
{
    int some = 0;
    for (;;) {
        int r = stream_poll(st);
        if (r < 0)
            return r;
        some |= r;
        if (stream_paused(st) || !receive(m))
            return some;
    }
}

bool mixed_ended(const struct mixed *m)
{
    return atomic_load(&m->eof) && soft_dry(&m->ep);
}

bool mixed_cut_off(const struct mixed *m)
{
    return mixed_ended(m) && !iwarp_in_eof(&m->ep.iw);
}

bool mixed_ctrl_pending(const struct mixed *m)
{
    return soft_ctrl_pending(&m->ep);
}

size_t mixed_unsent(const struct mixed *m)
{
    return soft_unsent(&m->ep);
}

int mixed_flush(struct mixed *m)
{
    struct iovec iov[2];
    unsigned n;
    while (!atomic_load(&m->failed) && (n = soft_out(&m->ep, iov)) > 0) {
        struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
        ssize_t went = sandbox_sendmsg(m->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (went >= 0)
            soft_out_sent(&m->ep, (size_t)went);
        else if (errno == EAGAIN)
            return 0;
        else if (errno != EINTR)
            atomic_store(&m->failed, true);
    }
    return atomic_load(&m->failed) ? -EPIPE : 0;
}

int mixed_fence(struct mixed *m)
{
    int r = soft_fence(&m->ep);
    return r < 0 ? r : mixed_flush(m);
}

int mixed_fence_done(const struct mixed *m)
{
    int r = soft_fence_done(&m->ep);
    return r == 0 && (atomic_load(&m->failed) || atomic_load(&m->eof)) ? -EPIPE : r;
}

void mixed_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    if (setup_fd >= 0)
        hidden_close(setup_fd);
    setup_fd = -1;
    setup_has_cm = false;
    for (struct mixed *m = all; m != NULL; m = m->next) {
        stop_asking(m);
        close_fd(&m->chan);
        close_fd(&m->fd);
        close_fd(&m->listen_fd);
        m->pprev = NULL;
    }
    all = NULL;
}
