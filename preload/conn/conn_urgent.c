/*
 * Urgent data on an upgraded connection, receiving: as Linux shows it on a TCP connection.
 *
 * The sender's kernel sets the urgent pointer to the last byte of the frame that holds the urgent byte, and the stream
 * header says which byte it is (STREAM_HDR_URGENT). So SIGURG and POLLPRI are the kernel's; our socket has SO_OOBINLINE
 * set, and nothing leaves the stream. Linux knows one urgent byte at a time, and so does the library.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_rx.h"
#include "preload/conn/conn_urgent.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/tcpinfo.h"
#include "preload/process/usermem.h"
#include "preload/sock/notify.h"
#include "preload/sock/wait.h"

bool conn_kernel_urgent(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLPRI };
    return REAL(poll)(&p, 1, 0) > 0 && (p.revents & POLLPRI);
}

bool conn_rx_at_mark(const struct conn *c)
{
    return conn_state(c) == CONN_UPGRADED && c->rx.pre_len == c->rx.pre_off && stream_mark(&c->st) == 0;
}

size_t conn_rx_count(const struct conn *c)
{
    uint64_t mark = conn_state(c) == CONN_UPGRADED && !c->st.rx.urgent_inline ? stream_mark(&c->st) : UINT64_MAX;
    size_t all = conn_rx_avail(c), pre = c->rx.pre_len - c->rx.pre_off;
    return SW_UNLIKELY(mark < all - pre) ? pre + (size_t)mark : all;
}

size_t conn_rx_target(const struct conn *c)
{
    size_t lowat = atomic_load(&c->rx.user_lowat);
    return SW_UNLIKELY(conn_rx_at_mark(c)) && !c->st.rx.urgent_inline ? lowat + 1 : lowat;
}

bool conn_rx_to_mark(struct conn *c, size_t done, size_t *passed, size_t *can, int flags)
{
    uint64_t mark = stream_mark(&c->st);
    if (mark == UINT64_MAX)
        return true;
    mark += c->rx.pre_len - c->rx.pre_off;
    if (flags & MSG_PEEK) {
        if (mark < *passed)
            return true;
        mark -= *passed;
    }
    if (mark == 0 && done > 0)
        return false;
    if (mark > 0) {
        if (mark < *can)
            *can = (size_t)mark;
    } else if (!c->st.rx.urgent_inline) {
        if (flags & MSG_PEEK)
            ++*passed;
        else
            stream_discard(&c->st, 1);
    }
    return true;
}

/*
 * Does buf begin with the frame of an urgent byte, and has that byte arrived? *off: the stream offset behind it, mod
 * 2^32.
 */
static bool urgent_in(const struct mpa_framing *framing, uint64_t pos, const uint8_t *buf, size_t len, uint8_t *octet,
                      uint32_t *off)
{
    uint8_t hdr[DDP_UNTAGGED_HDR_LEN + STREAM_HDR_LEN];
    struct ddp_segment seg;
    struct stream_hdr h;
    size_t ulpdu_len;
    if (mpa_fpdu_look(framing, pos, buf, len, 0, hdr, sizeof(hdr), &ulpdu_len) < sizeof(hdr) ||
        ulpdu_len == sizeof(hdr) || mpa_fpdu_look(framing, pos, buf, len, ulpdu_len - 1, octet, 1, &ulpdu_len) < 1)
        return false;
    ssize_t n = ddp_segment_decode(hdr, sizeof(hdr), &seg);
    if (n < 0 || seg.tagged || seg.qn != RDMAP_QN_SEND || seg.mo != 0 || !seg.last ||
        stream_hdr_decode(hdr + n, sizeof(hdr) - (size_t)n, &h) < 0 || h.type != STREAM_DATA ||
        !(h.flags & STREAM_HDR_URGENT))
        return false;
    *off = h.off;
    return true;
}

/*
 * A signal handler has interrupted this thread's own recv, which has the turn: what came is in the kernel, or in
 * staging and not booked yet. It is looked at and left as it is; when it is decoded, the byte counts as read
 * (urgent_taken). The last byte of the frame may be missing: the kernel gives what is before its mark, and only bytes
 * that do not matter follow. (If the interrupted call goes on, it writes the same bytes to the same place.)
 */
static bool find_unbooked(struct conn *c, int fd, uint8_t *octet, uint64_t *at)
{
    uint64_t taken, tx;
    uint8_t *in = c->ep.cfg.in_buf;
    size_t head = c->ep.rx.head, tail = c->ep.rx.tail;
    bool found = false;
    if (c->rx.mode != CONN_RX_FPDUS || !tcpinfo_taken(fd, &taken, &tx) || taken < c->rx.kernel_total ||
        taken - c->rx.kernel_total > c->ep.cfg.in_cap - tail)
        return false;
    tail += (size_t)(taken - c->rx.kernel_total);
    ssize_t n = REAL(recv)(fd, in + tail, c->ep.cfg.in_cap - tail, MSG_PEEK | MSG_DONTWAIT);
    tail += n > 0 ? (size_t)n : 0;
    const struct mpa_framing *framing = &c->ep.cfg.rx;
    uint64_t pos = c->ep.rx.pos;
    while (tail > head) {
        size_t whole = mpa_fpdu_expect(framing, pos, in + head, tail - head);
        uint8_t last;
        uint32_t off;
        if (whole == 0)
            break;
        if (urgent_in(framing, pos, in + head, tail - head, &last, &off)) {
            *octet = last;
            *at = c->st.rx.total + c->st.rx.avail + (uint32_t)(off - (uint32_t)c->st.rx.off) - 1;
            found = true;
        }
        head += whole;
        pos += whole;
    }
    return found;
}

ssize_t conn_recv_urgent(struct sock *s, int fd, struct iov_iter *it, size_t len, int flags)
{
    struct conn *c = s->conn;
    struct stream *st = &c->st;
    uint8_t octet = 0;
    uint64_t at;
    if (st->rx.urgent_inline)
        return -EINVAL;
    int turn = turn_take_brief(&c->rx.turn);
    if (turn == 0)
        conn_rx_all(c, sock_fd_now(s, fd));
    bool there = turn == 0 && st->rx.urgent == STREAM_URGENT_VALID;
    if (there)
        octet = st->rx.urgent_octet;
    if (there && !(flags & MSG_PEEK))
        st->rx.urgent = STREAM_URGENT_READ;
    if (turn == -EDEADLK) {
        there = find_unbooked(c, fd, &octet, &at) && st->rx.urgent_taken != at + 1;
        if (there && !(flags & MSG_PEEK))
            st->rx.urgent_taken = at + 1;
        c->rx.urgent_told = true;
    }
    bool more = turn == 0 && conn_may_be_staged(c);
    if (turn == 0)
        turn_give(&c->rx.turn);
    if (more)
        notify_readable(s); /* the kernel will not report them again */
    if (!there)
        return -EINVAL; /* "Yes this is right!", says Linux */
    if (len > 0 && !(flags & MSG_TRUNC) && (usermem_iter_write(it, 1) < 1 || iov_iter_scatter(it, &octet, 1) < 1))
        return -EFAULT;
    return len > 0;
}

bool conn_urgent_interrupts(struct conn *c, int fd)
{
    c->rx.urgent_told = false;
    return wait_call_deadline(fd, SO_RCVTIMEO) != 0 || !signals_restart();
}
