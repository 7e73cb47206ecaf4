/*
 * The late switch, receiving (DESIGN.md section 3): this side's program accepted late, and the initiator's has gone on
 * in streaming mode meanwhile. Its bytes are the program's as they are, and lie in `pre`; FPDUs begin behind the HSWI.
 *
 * The initiator's kernel took the HSWI as a whole. So bytes that may be its beginning are kept back until it is certain
 * that nothing is under way behind them; then they are the program's, and no time has to pass for that.
 */
#include <errno.h>
#include <string.h>

#include "core/base/fault.h"
#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_switch.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"

/* TCP offers half of SO_RCVBUF as window at least. Linux enlarges it as the program reads; this is its first size. */
#define ROOM_FIRST 65536
#define ROOM_PART 4

void conn_switch_begin(struct conn *c)
{
    size_t n = c->startup.in_len;
    c->rx.mode = CONN_RX_STREAMED;
    memcpy(c->mem.pre, c->mem.in, n); /* (CONN_PRE_LEN: there is room) */
    c->startup.in_len = 0;
    conn_switch_took(c, n);
}

size_t conn_switch_space(struct conn *c, uint8_t **p)
{
    if (c->rx.pre_off == c->rx.pre_len || c->mem.pre_cap - c->rx.pre_len - c->rx.held_len < c->mem.pre_cap / 2) {
        memmove(c->mem.pre, c->mem.pre + c->rx.pre_off, c->rx.pre_len - c->rx.pre_off + c->rx.held_len);
        c->rx.pre_len -= c->rx.pre_off;
        c->rx.pre_off = 0;
    }
    *p = c->mem.pre + c->rx.pre_len + c->rx.held_len;
    return c->mem.pre_cap - c->rx.pre_len - c->rx.held_len;
}

/* n of the held bytes are the program's. */
static void give(struct conn *c, size_t n)
{
    c->rx.pre_len += n;
    c->rx.held_len -= n;
    c->rx.streamed_total += n;
}

/* The HSWI was found, frame_len long: FPDUs begin behind it. */
static void go_over(struct conn *c, size_t frame_len)
{
    uint8_t *p, *from = c->mem.pre + c->rx.pre_len + frame_len;
    size_t n = c->rx.held_len - frame_len, room = iwarp_in_space(&c->ep, &p);
    SW_CHECK(n <= room, "%zu octets of FPDUs, room for %zu", n, room);
    memcpy(p, from, n);
    if (n > 0)
        iwarp_in_fed(&c->ep, n);
    c->rx.held_len = 0;
    c->rx.mode = CONN_RX_FPDUS;
    trace_info("conn %p: switched late, behind %llu octets", (void *)c, (unsigned long long)c->rx.streamed_total);
}

void conn_switch_took(struct conn *c, size_t n)
{
    struct hello h;
    size_t frame_len = 0, safe = 0;
    c->rx.held_len += n;
    ssize_t at = hello_find_switch(c->mem.pre + c->rx.pre_len, c->rx.held_len, c->rx.streamed_total, c->neg.cfg.nonce,
                                   &h, &frame_len, &safe);
    give(c, at >= 0 ? (size_t)at : safe);
    if (at >= 0)
        go_over(c, frame_len);
}

void conn_switch_give_held(struct conn *c)
{
    give(c, c->rx.held_len);
}

/*
 * A reset of the initiator's program comes behind the HSWI. Where our program has shut down both directions the kernel
 * at the other end refuses the HSWI, or what the program has sent, and resets by itself: a segment came, of which
 * nothing was taken. Where so much came that there may have been no room for more, something may be lost: then the
 * program is not shown an end, which it would take for the end of all bytes.
 */
bool conn_switch_reset_is_ours(const struct conn *c, int fd)
{
    int room = 0;
    socklen_t len = sizeof(room);
    if (c->rx.mode != CONN_RX_STREAMED || c->st.tx.total != 0 || c->neg.deferred ||
        sandbox_getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &len) < 0)
        return false;
    struct tcpinfo_input now = tcpinfo_input_of(fd);
    if (now.octets > (uint64_t)(room < ROOM_FIRST ? room : ROOM_FIRST) / ROOM_PART)
        return false;
    return !c->rx.shut || now.segments == c->rx.input_before_shut.segments ||
           now.octets != c->rx.input_before_shut.octets;
}

bool conn_switch_takes_first(struct conn *c, int fd)
{
    if (c->rx.mode != CONN_RX_STREAMED || c->tx.shut || c->tx.first_lost ||
        !(atomic_load(&c->rx.reset_unseen) || conn_switch_reset_is_ours(c, fd)))
        return false;
    c->tx.first_lost = true;
    atomic_store(&c->rx.reset_unseen, false);
    atomic_store(&c->so_error, EPIPE);
    return true;
}
