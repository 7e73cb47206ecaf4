/*
 * Socket options and shutdown.
 */
#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "preload/calls/bridge.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_peek.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_switch.h"
#include "preload/conn/options.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/usermem.h"
#include "preload/sock/notify.h"
#include "preload/startup/dispatch.h"
#include "preload/startup/local.h"
#include "preload/startup/mark.h"
#include "preload/startup/startup.h"
#include "preload/startup/syn.h"

static bool is_on(const void *val)
{
    int v;
    memcpy(&v, val, sizeof(v));
    return v != 0;
}

/*
 * Times that the kernel keeps by itself: of bytes sent before now. (It stamps frames: it does not know when a byte of
 * the program's arrived, and its numbers of sent bytes count the frames' bytes.)
 */
static bool is_stamps_of_sends(struct option o, const void *val)
{
    int flags;
    memcpy(&flags, val, sizeof(flags));
    return o.what == OPTION_SENDS_STAMPS && !(flags & (SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE));
}

/* Options that give the bytes to code which knows nothing of us. REASON_NONE: it is no such option. */
static unsigned rules_out(struct option o, const void *val, socklen_t len)
{
    if (val == NULL || (len < sizeof(int) && o.reason != REASON_ULP))
        return REASON_NONE; /* the kernel refuses it */
    return (o.marks & OPTION_IF_SET) && !is_on(val) ? REASON_NONE : o.reason;
}

/*
 * The low-water mark of an upgraded connection counts the program's bytes, the kernel's counts frames and is ours.
 * The kernel is asked all the same: it knows the limits, and makes its buffer large enough.
 */
static int set_lowat(struct sock *s, int fd, const void *val, socklen_t len)
{
    struct conn *c = s->conn;
    if (REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, val, len) < 0)
        return -errno;
    int v = 1;
    socklen_t v_len = sizeof(v);
    REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &v, &v_len);
    atomic_store(&c->rx.user_lowat, (uint32_t)v);
    if (conn_state(c) != CONN_UPGRADED)
        return 0;
    /* (The holder of the turn waits with 1, or will set its own.) */
    int mine = 1;
    bool held = turn_try(&c->rx.turn) == 0;
    if (held)
        mine = (int)c->rx.kernel_lowat;
    REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &mine, sizeof(mine));
    if (held)
        turn_give(&c->rx.turn);
    if (conn_may_be_staged(c)) { /* waiters look again, as on Linux */
        atomic_store(&c->rx.arrived, true);
        notify_readable(s);
    }
    return 0;
}

/* The kernel's own is on in any case: see conn_go_upgraded. */
static int set_oobinline(struct conn *c, int v)
{
    atomic_store(&c->st.rx.urgent_inline, v != 0);
    return 0;
}

/* What looks at every connection otherwise than if no program ever asked for it. */
static void note_use(struct option o)
{
    if (o.what == OPTION_RCVLOWAT)
        atomic_store(&proc.lowat_used, true);
    if (o.what == OPTION_INQ)
        atomic_store(&proc.inq_used, true);
    if (o.what == OPTION_PEEK_OFF)
        atomic_store(&proc.peek_off_used, true);
}

/* An option of a connection of ours. As set_option; 1 also if we do not handle it. */
static int set_ours(struct sock *s, int fd, struct option o, const void *val, socklen_t len)
{
    struct conn *c = s->conn;
    int v = 0;
    bool whole = val != NULL && len >= sizeof(v);
    if (whole)
        memcpy(&v, val, sizeof(v));
    switch (o.what) {
    case OPTION_RCVLOWAT:
        return set_lowat(s, fd, val, len);
    case OPTION_OOBINLINE:
        return whole && conn_state(c) == CONN_UPGRADED ? set_oobinline(c, v) : 1;
    case OPTION_PEEK_OFF:
        return whole ? conn_peek_set(s, fd, v) : 1;
    case OPTION_ZEROCOPY:
        return conn_on_socket(c) ? 1 : -EOPNOTSUPP; /* as a kernel that does not know it */
    case OPTION_INQ: /* (The kernel is told as well, and refuses what is no value of it.) */
        atomic_store(&c->rx.tells_waiting, v == 1);
        return 1;
    case OPTION_CORK:
        return whole ? conn_set_cork(s, fd, v != 0) : 1;
    case OPTION_NODELAY:
        return whole ? conn_set_nodelay(s, fd, v != 0) : 1;
    default:
        return 1;
    }
}

/*
 * An option that an upgraded connection cannot have (refused: its error); an undecided connection stays plain. As
 * set_option.
 */
static int rule_out(struct conn *c, unsigned reason, int refused)
{
    if (turn_take(&c->rx.turn, 0, false) < 0)
        return 1;
    int r = 1;
    if (conn_undecided(c))
        negotiate_decline(&c->neg, reason);
    else if (conn_state(c) == CONN_UPGRADED)
        r = refused;
    turn_give(&c->rx.turn);
    return r;
}

/* 1: make the real call; 0: done; -errno. */
static int set_option(struct sock *s, int fd, struct option o, const void *val, socklen_t len)
{
    unsigned reason = rules_out(o, val, len);
    note_use(o);
    if (s->conn == NULL) {
        if (o.what == OPTION_QUICKACK && val != NULL && len >= sizeof(int))
            s->acks_late = !is_on(val);
        if (reason != REASON_NONE) {
            s->stay_plain = true;
            s->plain_reason = (uint8_t)reason;
        }
        return 1;
    }
    if (!atomic_load(&s->active))
        return 1;
    int r = set_ours(s, fd, o, val, len);
    if (r != 1 || reason == REASON_NONE || reason == REASON_FASTOPEN)
        return r;
    startup_await_hello(s, s->conn); /* what is asked before or behind it must not depend on which thread is faster */
    int refused = o.refused == 0 || is_stamps_of_sends(o, val) ? 1 : -o.refused;
    return rule_out(s->conn, reason, refused); /* programs do without */
}

/* fd's connection, for an option of the socket's, where that is behind a bridge; -1: as it is. As bridge_hold. */
static int behind_bridge(int fd, int level, int name)
{
    return proc_on() && !bridge_is_pairs(level, name) ? bridge_hold(fd) : -1;
}

/* Which options' kernel values are known no more. Before they are set. */
static enum sock_default unsure_of(struct option o)
{
    switch (o.what) {
    case OPTION_LINGER:
        return SOCK_NO_LINGER;
    case OPTION_OOBINLINE:
        return SOCK_NO_OOBINLINE;
    case OPTION_RCVTIMEO:
        return SOCK_NO_RCVTIMEO;
    case OPTION_SNDTIMEO:
        return SOCK_NO_SNDTIMEO;
    default:
        return 0;
    }
}

/* The program asks for its hop limit, and would see what its SYNs say. */
static void hops_asked(int fd)
{
    struct sock *s = proc_on() ? sock_get_active(fd) : NULL;
    if (s != NULL) {
        syn_over(s, fd, (const struct sockaddr *)&s->conn->peer);
        sock_put(s);
    }
}

/* An option is set that the library sets itself, and is the program's from now on; or one that matters to a listener. */
static void note_set(struct sock *s, int fd, struct option o)
{
    if (o.what == OPTION_MAXSEG)
        mark_is_overridden(s);
    if (s->kind == SOCK_LISTENER && (o.what == OPTION_DEFER_ACCEPT || o.reason == REASON_FILTER))
        (void)local_stays_plain(s, fd);
    if (o.what == OPTION_HOPS)
        s->hops_known = false;
    if (o.what == OPTION_SAVE_SYN) {
        s->syn_own = true;
        s->saves_syn = false;
    }
}

int setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
    int tcp = behind_bridge(fd, level, name);
    if (SW_UNLIKELY(tcp >= 0)) {
        int done = setsockopt(tcp, level, name, val, len);
        bridge_release();
        return done;
    }
    struct sock *s = proc_on() ? sock_get(fd) : NULL;
    struct option o = option_of(level, name);
    int r = 1, err = errno;
    if (o.what != OPTION_NODELAY && o.what != OPTION_CORK) /* (which see to it themselves) */
        coalesce_send_fd(fd);                              /* its new value is for later bytes */
    if (s != NULL) {
        sock_unsure(s, unsure_of(o));
        if (len < sizeof(int) || usermem_readable(val, sizeof(int))) /* (else the kernel says so) */
            r = set_option(s, fd, o, val, len);
    }
    bool kernels = r > 0;
    if (kernels)
        r = REAL(setsockopt)(fd, level, name, val, len) < 0 ? -errno : 0;
    if (s != NULL) {
        if (s->conn != NULL && kernels && o.what == OPTION_NODELAY)
            conn_nodelay_changed(s->conn);
        if (s->conn != NULL && kernels && (o.marks & OPTION_FRAME))
            atomic_store_explicit(&s->conn->tx.frame_left, 0, memory_order_relaxed);
        if (r == 0)
            note_set(s, fd, o);
        sock_put(s);
    }
    errno = r < 0 ? -r : err;
    return r < 0 ? -1 : 0;
}

/* The pending error; 0: ask the kernel. */
static int pending_error(struct sock *s)
{
    struct conn *c = s->conn;
    enum conn_state st = conn_state(c);
    if (!c->responder && (st == CONN_NEGOTIATING || st == CONN_CONNECTING) &&
        !conn_is_late(c)) { /* (else the kernel tells) */
        int r = startup_go_on(s, true);
        (void)r; /* another thread holds the turns */
    }
    if (st == CONN_UPGRADED)
        conn_tx_reap_idle(c); /* its error is not the kernel's any more */
    int err = atomic_exchange(&c->so_error, 0);
    if (err == 0 && conn_state(c) == CONN_UPGRADED && !c->rx.reset_told &&
        (c->st.rx.end == STREAM_RESET_BY_PEER || c->st.rx.end == STREAM_BROKEN) && conn_rx_avail(c) == 0) {
        c->rx.reset_told = true;
        err = ECONNRESET;
    }
    return err;
}

/*
 * TCP_ZEROCOPY_RECEIVE: the kernel would map pages of frames. As it does with less than a page: nothing is mapped, and
 * the program is told how much it has to receive by other calls. 1: make the real call; 0; -errno.
 */
static int zerocopy_receive(struct sock *s, int fd, void *val, socklen_t *len)
{
    struct {
        uint64_t address;
        uint32_t length, recv_skip_hint, inq;
    } z = { 0 };
    int n = 0;
    if (!usermem_writable(len, sizeof(*len)))
        return -EFAULT;
    size_t size = *len < sizeof(z) ? *len : sizeof(z);
    if (size < offsetof(typeof(z), recv_skip_hint))
        return -EINVAL;
    if (!usermem_writable(val, size))
        return -EFAULT;
    memcpy(&z, val, size);
    if (z.address % (uint64_t)sysconf(_SC_PAGESIZE) != 0)
        return -EINVAL;
    if (ioctl(fd, FIONREAD, &n) < 0 || conn_state(s->conn) != CONN_UPGRADED)
        return 1;
    if (n == 0 && s->conn->st.rx.end != STREAM_OPEN)
        return -EIO;
    z.length = 0;
    z.recv_skip_hint = z.inq = (uint32_t)n;
    memcpy(val, &z, size);
    return 0;
}

/* A frame of ours met a closed socket: the program, which sent nothing, sees the end and not EPIPE. */
static bool is_own_epipe(const struct conn *c, int fd)
{
    return conn_state(c) == CONN_DEAD || (conn_state(c) == CONN_UPGRADED && c->st.tx.total == 0 &&
                                          (c->st.rx.end == STREAM_OPEN || !tcpinfo_acked_all(fd)));
}

/* Likewise a reset: conn.rx.reset_unseen. */
static bool is_own_reset(const struct conn *c, int fd)
{
    return conn_state(c) == CONN_UPGRADED && conn_switch_reset_is_ours(c, fd);
}

/* The value that the program has set, or is to see, if the kernel's is v. */
static int shown_value(struct sock *s, int fd, struct option o, int v)
{
    struct conn *c = s->conn;
    switch (o.what) {
    case OPTION_MAXSEG:
        return mark_shown(s, fd, v);
    case OPTION_SAVE_SYN:
        return s->saves_syn ? 0 : v;
    case OPTION_CORK:
        return v || atomic_load(&c->tx.cork) == CORK_OURS;
    case OPTION_NODELAY:
        return v && !conn_nodelay_lent(c);
    case OPTION_PEEK_OFF:
        return conn_peek_get(s, fd);
    case OPTION_RCVLOWAT:
        return (int)atomic_load(&c->rx.user_lowat);
    case OPTION_OOBINLINE:
        return conn_state(c) == CONN_UPGRADED ? atomic_load(&c->st.rx.urgent_inline) : v;
    default: /* OPTION_ERROR */
        if (v == 0)
            return pending_error(s);
        return (v == EPIPE && is_own_epipe(c, fd)) || (v == ECONNRESET && is_own_reset(c, fd)) ? 0 : v;
    }
}

int getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
    int tcp = behind_bridge(fd, level, name);
    if (SW_UNLIKELY(tcp >= 0)) {
        int done = getsockopt(tcp, level, name, val, len);
        bridge_release();
        return done;
    }
    struct option o = option_of(level, name);
    if (SW_UNLIKELY(o.what == OPTION_HOPS))
        hops_asked(fd);
    bool ours = o.marks & OPTION_SHOWN, maps = o.what == OPTION_ZC_RECEIVE;
    coalesce_send_fd(fd); /* (TCP_INFO, SO_ERROR …) */
    struct sock *s = !(ours || maps) || !proc_on() ? NULL
                     : (o.marks & OPTION_LISTENS)  ? sock_get(fd)
                                                   : sock_get_active(fd);
    if (s == NULL)
        return REAL(getsockopt)(fd, level, name, val, len);
    int err = errno, r;
    if (maps && (r = zerocopy_receive(s, fd, val, len)) <= 0) {
        sock_put(s);
        errno = r < 0 ? -r : err;
        return r < 0 ? -1 : 0;
    }
    r = REAL(getsockopt)(fd, level, name, val, len);
    if (r == 0 && ours) {
        /* A shorter value is cut by the kernel, too. */
        int v = 0;
        size_t n = *len < sizeof(v) ? *len : sizeof(v);
        memcpy(&v, val, n);
        v = shown_value(s, fd, o, v);
        memcpy(val, &v, n);
    }
    sock_put(s);
    if (r == 0)
        errno = err;
    return r;
}

int shutdown(int fd, int how)
{
    struct sock *s = proc_on() ? sock_get(fd) : NULL;
    if (s == NULL && sock_is_closing(fd))
        return -1;
    if (s == NULL || !atomic_load(&s->active)) {
        int r = REAL(shutdown)(fd, how);
        if (s != NULL && s->kind == SOCK_LISTENER && r == 0 && how != SHUT_WR && !proc_is_borrowed()) {
            /* It listens no longer; if it does again, its port may be another one. */
            mark_end(s);
            local_names_close(s);
            s->kind = SOCK_NEW;
        }
        if (s != NULL)
            sock_put(s);
        return r;
    }
    int err = errno, r = dispatch_shutdown(s, fd, how);
    sock_put(s);
    errno = r < 0 ? -r : err;
    return r < 0 ? -1 : 0;
}
