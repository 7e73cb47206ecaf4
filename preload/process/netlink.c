/* Questions that the kernel answers by netlink. */
#include "preload/process/netlink.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "preload/process/kept.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"

#define END_MS 5

int netlink_open(int protocol)
{
    return REAL(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
}

const struct nlmsghdr *netlink_ask(int fd, const void *req, size_t len, void *buf, size_t cap)
{
    if (REAL(send)(fd, req, len, 0) != (ssize_t)len)
        return NULL;
    ssize_t n = REAL(recv)(fd, buf, cap, 0);
    const struct nlmsghdr *h = buf;
    return n >= (ssize_t)sizeof(*h) && NLMSG_OK(h, (size_t)n) ? h : NULL;
}

bool netlink_dump(int protocol, const void *req, size_t len, bool (*each)(const struct nlmsghdr *h, void *arg),
                  void *arg)
{
    int fd = netlink_open(protocol);
    bool whole = fd >= 0 && REAL(send)(fd, req, len, 0) == (ssize_t)len;
    for (bool end = false; whole && !end;) {
        _Alignas(struct nlmsghdr) uint8_t buf[4096]; /* (a thread's stack may be small) */
        ssize_t n = REAL(recv)(fd, buf, sizeof(buf), MSG_TRUNC);
        unsigned left = n <= 0 ? 0 : (size_t)n < sizeof(buf) ? (unsigned)n : sizeof(buf);
        for (const struct nlmsghdr *h = (const struct nlmsghdr *)buf; whole && !end && NLMSG_OK(h, left);
             h = NLMSG_NEXT(h, left)) {
            end = h->nlmsg_type == NLMSG_DONE;
            whole = end || each(h, arg);
        }
        whole = whole && n > 0 && (size_t)n <= sizeof(buf);
    }
    if (fd >= 0)
        REAL(close)(fd);
    return whole;
}

/* One end of a socket, in inet_diag's form. False: it is of another family. */
static bool put_end(const struct sockaddr_storage *ss, __be16 *port, __be32 addr[4])
{
    if (ss->ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, ss, sizeof(in));
        *port = in.sin_port;
        memcpy(addr, &in.sin_addr, sizeof(in.sin_addr));
        return true;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, ss, sizeof(in6));
    *port = in6.sin6_port;
    memcpy(addr, &in6.sin6_addr, sizeof(in6.sin6_addr));
    return ss->ss_family == AF_INET6;
}

/* The interface of a link-local address, without which the kernel does not find its socket; 0: any. */
static uint32_t scope_of(const struct sockaddr_storage *ss)
{
    struct sockaddr_in6 in6;
    memcpy(&in6, ss, sizeof(in6));
    return ss->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? in6.sin6_scope_id : 0;
}

/* A socket that is kept for questions about sockets. */
static _Atomic int diag_fd;
static struct kept diag = { .fd = &diag_fd, .n = 1 };

void netlink_leaves_network(void)
{
    kept_leave_network(&diag);
}

/* A descriptor to ask by, or -errno. *kept: it stays, and diag is taken. A process that asks but once keeps none. */
static int diag_begin(bool *kept)
{
    static pid_t asked; /* the process that has asked last */
    *kept = kept_begin(&diag);
    if (*kept && diag_fd != 0)
        return diag_fd;
    int fd = *kept && asked == diag.pid ? kept_put(&diag, 0, netlink_open(NETLINK_SOCK_DIAG)) : -1;
    if (fd >= 0)
        return fd;
    if (*kept) {
        asked = diag.pid;
        kept_end(&diag);
        *kept = false;
    }
    fd = netlink_open(NETLINK_SOCK_DIAG);
    return fd >= 0 ? fd : -errno;
}

static void diag_end(int fd, bool kept, bool answered)
{
    if (!kept) {
        REAL(close)(fd);
        return;
    }
    if (!answered) /* its answer may still come */
        kept_drop(&diag, 0);
    kept_end(&diag);
}

int netlink_find_tcp(int family, const struct inet_diag_sockid *id, struct inet_diag_msg *out)
{
    static _Atomic uint32_t questions;
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } req;
    memset(&req, 0, sizeof(req));
    memset(out, 0, sizeof(*out));
    req.h.nlmsg_len = sizeof(req);
    req.h.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    req.h.nlmsg_flags = NLM_F_REQUEST;
    req.r.sdiag_family = (uint8_t)family;
    req.r.sdiag_protocol = IPPROTO_TCP;
    req.r.idiag_states = ~0u;
    req.r.id = *id;
    req.r.id.idiag_cookie[0] = req.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    bool kept;
    int fd = diag_begin(&kept);
    if (fd < 0)
        return fd;
    req.h.nlmsg_seq = atomic_fetch_add(&questions, 1) + 1;
    _Alignas(struct nlmsghdr) uint8_t buf[NETLINK_ANSWER_LEN];
    const struct nlmsghdr *h = netlink_ask(fd, &req, sizeof(req), buf, sizeof(buf));
    bool answered = h != NULL && h->nlmsg_seq == req.h.nlmsg_seq;
    bool found = answered && h->nlmsg_type == SOCK_DIAG_BY_FAMILY && h->nlmsg_len >= NLMSG_LENGTH(sizeof(*out));
    if (found)
        memcpy(out, NLMSG_DATA(h), sizeof(*out));
    diag_end(fd, kept, answered);
    return found;
}

/*
 * What the kernel knows of the socket at the other end. False: that socket is not on this host, or the kernel cannot be
 * asked.
 */
static bool ask_peer_of(const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                        struct inet_diag_msg *out)
{
    struct inet_diag_sockid id;
    memset(&id, 0, sizeof(id));
    id.idiag_if = scope_of(peer);
    return !sandbox_on() && put_end(peer, &id.idiag_sport, id.idiag_src) &&
           put_end(local, &id.idiag_dport, id.idiag_dst) && netlink_find_tcp(local->ss_family, &id, out) > 0;
}

static bool ask_peer(int fd, struct inet_diag_msg *out)
{
    struct sockaddr_storage local, peer;
    socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
    return REAL(getsockname)(fd, (struct sockaddr *)&local, &local_len) == 0 &&
           REAL(getpeername)(fd, (struct sockaddr *)&peer, &peer_len) == 0 && ask_peer_of(&local, &peer, out);
}

bool netlink_peer_is_through(int fd)
{
    struct inet_diag_msg peer;
    int quick = 1;
    REAL(setsockopt)(fd, IPPROTO_TCP, TCP_QUICKACK, &quick, sizeof(quick)); /* what is owed is sent at once */
    return ask_peer(fd, &peer) && peer.idiag_wqueue == 0;
}

bool netlink_peer_is_held(int fd)
{
    struct inet_diag_msg peer;
    return ask_peer(fd, &peer) && peer.idiag_inode != 0;
}

int netlink_cookie(const struct sockaddr_storage *local, const struct sockaddr_storage *remote, uint64_t *cookie)
{
    struct inet_diag_sockid id;
    struct inet_diag_msg found;
    memset(&id, 0, sizeof(id));
    id.idiag_if = scope_of(local);
    if (sandbox_on() || !put_end(local, &id.idiag_sport, id.idiag_src) ||
        !put_end(remote, &id.idiag_dport, id.idiag_dst))
        return -EAFNOSUPPORT;
    int r = netlink_find_tcp(local->ss_family, &id, &found);
    *cookie = (uint64_t)found.id.idiag_cookie[1] << 32 | found.id.idiag_cookie[0];
    return r;
}

bool netlink_peer_is_unknown(int fd)
{
    struct inet_diag_msg peer;
    return ask_peer(fd, &peer) && peer.idiag_state == TCP_LISTEN;
}

/* The peer has ended its direction. Its FIN may still be under way: on one host that takes only processor time. */
static bool end_is_there(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    return tcpinfo_peer_closed(fd) || (REAL(poll)(&p, 1, END_MS) > 0 && tcpinfo_peer_closed(fd));
}

int netlink_peer_may_be_told(int fd, const struct sockaddr_storage *local, const struct sockaddr_storage *remote)
{
    struct inet_diag_msg peer;
    if (!ask_peer_of(local, remote, &peer))
        return -ENOENT;
    if (peer.idiag_inode == 0)
        return 0;
    return peer.idiag_state == TCP_ESTABLISHED || end_is_there(fd);
}
