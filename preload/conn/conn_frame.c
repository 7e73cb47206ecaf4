/*
 * How long a frame is.
 *
 * A frame reaches the peer's program as a whole, since its CRC stands at its end: one that takes seconds on a slow link
 * shows nothing for seconds, where TCP shows each segment. The library also keeps the part of a begun frame that the
 * kernel has no room for, so a program that bounds what is queued (SO_SNDBUF, TCP_NOTSENT_LOWAT) would have up to one
 * frame more. So a frame is as long as what the path carries in a few milliseconds, and at most a part of what the
 * socket holds. On fast paths that is more than the longest frame.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_board.h"
#include "preload/conn/conn_frame.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"

#define FRAMES_PER_S 250u
#define FRAMES_PER_SNDBUF 4u
#define FRAMES_PER_LOWAT 2u
#define LOOK_FRAMES 16u /* between two looks at the path */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The value of an option that is a number of bytes. SIZE_MAX: the option sets no bound. */
static size_t bound(int fd, int level, int name)
{
    int v = 0;
    socklen_t len = sizeof(v);
    return sandbox_getsockopt(fd, level, name, &v, &len) == 0 && v > 0 ? (size_t)v : SIZE_MAX;
}

void conn_frame_fit(struct conn *c, int fd)
{
    size_t most = c->ep.cfg.mulpdu - DDP_TAGGED_HDR_LEN;
    size_t len = least(most, bound(fd, SOL_SOCKET, SO_SNDBUF) / FRAMES_PER_SNDBUF);
    len = least(len, bound(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) / FRAMES_PER_LOWAT);
    len = least(len, (size_t)(tcpinfo_rate(fd) / FRAMES_PER_S));
    if (len < CONN_FRAME_LEAST)
        len = least(most, CONN_FRAME_LEAST);
    c->st.cfg.write_limit = (uint32_t)len;
    c->st.cfg.eager_limit = (uint32_t)least(len, CONN_EAGER_LIMIT);
    conn_board_count(c);
    atomic_store_explicit(&c->tx.frame_left, (uint32_t)(LOOK_FRAMES * len), memory_order_relaxed);
}
