/*
 * MSG_ZEROCOPY on an upgraded connection: all bytes are copied, and the program is told so.
 *
 * The kernel counts the calls and reports on the socket's error queue which of them are over. So the first byte of each
 * call is sent with the flag, from memory that never changes, and the others without it: count, queue and readiness are
 * the kernel's. The kernel ignores the flag where SO_ZEROCOPY is not set. The report of a send that was not copied is
 * corrected as the program takes it off the queue.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h> /* before errqueue.h */

#include <linux/errqueue.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_zerocopy.h"
#include "preload/process/cancel.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"

#define R4(n) (n), (n) + 1, (n) + 2, (n) + 3
#define R16(n) R4(n), R4((n) + 4), R4((n) + 8), R4((n) + 12)
#define R64(n) R16(n), R16((n) + 16), R16((n) + 32), R16((n) + 48)
static const uint8_t octets[256] = { R64(0), R64(64), R64(128), R64(192) };

int conn_zerocopy_first(struct conn *c, int fd, uint8_t octet, int flags)
{
    struct iovec one = { .iov_base = (void *)(uintptr_t)&octets[octet], .iov_len = 1 };
    struct msghdr msg = { .msg_iov = &one, .msg_iovlen = 1 };
    ssize_t sent = sandbox_sendmsg(fd, &msg, flags | MSG_ZEROCOPY | MSG_MORE | MSG_DONTWAIT);
    if (sent < 0)
        return -errno;
    c->tx.kernel_total += (uint64_t)sent;
    iwarp_out_sent(&c->ep, (size_t)sent);
    c->tx.zerocopy = false;
    return 0;
}

bool conn_zerocopy_on(int fd)
{
    int on = 0;
    socklen_t len = sizeof(on);
    return REAL(getsockopt)(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &len) == 0 && on != 0;
}

void conn_zerocopy_told(int fd, struct msghdr *msg)
{
    struct sock *s = sock_get_active(fd);
    if (s == NULL)
        return;
    bool full = conn_state(s->conn) == CONN_UPGRADED;
    sock_put(s);
    for (struct cmsghdr *h = full ? CMSG_FIRSTHDR(msg) : NULL; h != NULL; h = CMSG_NXTHDR(msg, h)) {
        struct sock_extended_err e;
        bool error = (h->cmsg_level == SOL_IP && h->cmsg_type == IP_RECVERR) ||
                     (h->cmsg_level == SOL_IPV6 && h->cmsg_type == IPV6_RECVERR);
        if (!error || h->cmsg_len < CMSG_LEN(sizeof(e)))
            continue;
        memcpy(&e, CMSG_DATA(h), sizeof(e));
        if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY)
            e.ee_code |= SO_EE_CODE_ZEROCOPY_COPIED;
        memcpy(CMSG_DATA(h), &e, sizeof(e));
    }
}
