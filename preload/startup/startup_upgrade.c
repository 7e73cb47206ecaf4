/*
 * A startup has come to its end in agreement: FPDUs from now on.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "core/base/fault.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_board.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_job.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_switch.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/device/device.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/signals.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/notify.h"
#include "preload/startup/startup.h"

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
    c->tx.segment = c->opts.fpdu_len == 0 ? tcpinfo_emss(fd) : 0;
    struct iwarp_cfg ic = {
        .initiator = !c->responder,
        .tx = { .crc = res->crc, .markers = res->markers_tx },
        .rx = { .crc = res->crc, .markers = res->markers_rx },
        .rtr = c->neg.switched ? 0 : res->rtr, /* (the HSWI takes its place, or none is needed) */
        .ird = res->ird,
        .ord = res->ord,
        .mulpdu = c->tx.segment ? mpa_mulpdu(c->tx.segment, res->markers_tx) : c->opts.fpdu_len,
        .ready = res->rtr_frame || c->neg.switched,
        .aligned = c->tx.segment != 0,
        .send_max = STREAM_HDR_LEN + CONN_EAGER_MAX,
        .in_buf = c->mem.in,
        .in_cap = CONN_IN_LEN,
        .out_buf = c->mem.out,
        .out_cap = CONN_OUT_LEN,
        .immediate = (c->neg.cfg.params.flags & c->neg.peer.flags & STREAM_FLAG_IMMEDIATE) != 0,
        .random32 = proc_random32,
    };
    ic.lead_len = negotiate_lead(&c->neg, &ic.lead);
    int r = iwarp_init(&c->ep, &ic);
    if (r < 0)
        return r;
    /*
     * The ring's STag was offered in the private data, before this endpoint existed. RFC 5042 6.3.5/1: for Writes only.
     */
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
    if (c->neg.switched && c->responder) {
        conn_switch_begin(c);
    } else if (c->startup.in_len > 0) { /* behind the startup frames: already where the endpoint wants it */
        iwarp_in_fed(&c->ep, c->startup.in_len);
        c->startup.in_len = 0;
    }
    return 0;
}

/* Options that the program has set count its own bytes; the kernel's count frames from now on. */
static void take_over_options(const struct sock *s, struct conn *c, int fd, bool device)
{
    int lowat = 1;
    socklen_t lowat_len = sizeof(lowat);
    if (proc.lowat_used && REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &lowat_len) == 0 && lowat != 1) {
        atomic_store(&c->rx.user_lowat, (uint32_t)lowat);
        lowat = 1;
        REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
    }
    int inq = 0;
    socklen_t inq_len = sizeof(inq);
    if (proc.inq_used && REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INQ, &inq, &inq_len) == 0)
        atomic_store(&c->rx.tells_waiting, inq != 0);
    /*
     * Urgent data: the kernel's urgent pointer goes with a frame's last byte, so that SIGURG and POLLPRI come by
     * themselves; but no byte may leave the stream for it. What the program sees of it is done by the stream
     * (conn_rx.c).
     */
    int inlined = 0;
    socklen_t inlined_len = sizeof(inlined);
    if (!sock_has_default(s, SOCK_NO_OOBINLINE) &&
        REAL(getsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, &inlined_len) == 0)
        atomic_store(&c->st.rx.urgent_inline, inlined != 0);
    inlined = 1;
    if (!device && !c->neg.deferred) /* (a deferred answer carries the change: conn_soft_tx.c) */
        REAL(setsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, sizeof(inlined));
}

/* On a device the stream has its own RTR, which is the initiator's to send. 0 or -errno. */
static int send_first_by_device(struct conn *c, int fd)
{
    int r = c->responder ? 0 : stream_rtr(&c->st); /* the responder's may not send before */
    if (r == 0)
        r = conn_tx_flush(c, fd);
    return r == -EAGAIN ? 0 : r;
}

/* This end's first frame in software: the initiator's RTR, if any. */
static void send_first(struct conn *c, int fd)
{
    const struct mpa_startup_result *res = &c->neg.mpa.res;
    /*
     * The RTR is a small segment that is not answered: by Nagle's rule the program's first bytes would wait for its
     * delayed acknowledgement. (The HSWI goes with them.)
     */
    if (!c->responder && !c->neg.switched)
        conn_nodelay_lend(c, fd);
    /* No RTR of MPA's: the stream has its own, since the other program may speak first. */
    if (!c->responder && res->rtr == 0 && !res->rtr_frame && !c->neg.switched) {
        int r = stream_rtr(&c->st);
        SW_CHECK(r == 0, "the first message: %d", r);
    }
    /*
     * The initiator's RTR. A peer that has closed needs none, and its kernel would answer by a reset. So it goes with
     * the program's first bytes, if any, which are answered so in any case.
     */
    int r = conn_only_leads(c) || (!c->responder && tcpinfo_peer_closed(fd)) ? 0 : conn_tx_flush(c, fd);
    if (r == -EAGAIN)
        conn_tx_later(c, fd);
    if (c->neg.switched && !c->responder && c->neg.mute)
        c->tx.shut = true;
    if (c->neg.switched)
        trace_info("fd %d: switched late, %s", fd,
                   c->responder ? "what comes is plain for now" : "behind what was sent plain");
    /*
     * The startup's exchange has put the kernel into its request-and-response mode, where acknowledgements wait for
     * data to go with. A fresh TCP connection is not in it: the program's first small writes would feel the difference.
     * (Beside the connection there was no such exchange: what the kernel makes of it is the program's doing.)
     */
    int quick = 1;
    if (!c->startup.beside)
        REAL(setsockopt)(fd, IPPROTO_TCP, TCP_QUICKACK, &quick, sizeof(quick));
}

int startup_upgrade(struct sock *s, struct conn *c)
{
    int fd = atomic_load(&s->fd);
    bool device = negotiate_by_device(&c->neg);
    int r = conn_buffers(c);
    if (r < 0)
        return r;
    r = device ? device_begin(c) : begin_fpdus(c, fd);
    if (r < 0)
        return r;
    take_over_options(s, c, fd, device);
    c->record.ino = sock_ino(fd);
    signals_guard();
    conn_go_upgraded(c);
    conn_board_named(c, fd);
    if (device)
        r = send_first_by_device(c, fd);
    else
        send_first(c, fd);
    if (!c->neg.deferred) /* (else with the program's first bytes, which may never come) */
        conn_explain_upgraded(c, fd);
    return r;
}

/* ---- an answer that waits for the program's first bytes ---- */

/* The answer will never be sent: staged bytes are the program's, and the kernel has the rest. Both turns held. */
static void stay_unsaid(struct sock *s, unsigned reason)
{
    struct conn *c = s->conn;
    int fd = sock_fd_now(s, atomic_load(&s->fd)), lowat = (int)atomic_load(&c->rx.user_lowat);
    int inlined = atomic_load(&c->st.rx.urgent_inline);
    if (!conn_is_unsaid(c))
        return;
    REAL(setsockopt)(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, sizeof(inlined));
    if (lowat != (int)c->rx.kernel_lowat)
        REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat));
    c->rx.kernel_lowat = (uint32_t)lowat;
    conn_go_plain(s, c, reason);
    notify_changed(s);
    conn_tell(c);
}

static void stay_for_urgent(struct sock *s)
{
    stay_unsaid(s, REASON_URGENT);
}

static void stay_for_another(struct sock *s)
{
    stay_unsaid(s, REASON_SHARED_FD);
}

void startup_before_call(struct sock *s, struct conn *c, int fd, bool urgent)
{
    if (!conn_is_unsaid(c) || (!urgent && !conn_kernel_urgent(fd)))
        return;
    int r = startup_in_turns(s, false, stay_for_urgent);
    (void)r; /* another thread holds the turns, and will send it */
}

void startup_hand_on_unsaid(struct sock *s)
{
    int r = conn_is_unsaid(s->conn) ? startup_in_turns(s, false, stay_for_another) : 0;
    (void)r; /* (then it is upgraded) */
}
