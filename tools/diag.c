/* One question for one connection; see diag.h. */
#include "tools/diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static int channel(void)
{
    static int fd = -2; /* for as long as the program runs */

    if (fd == -2)
        fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    return fd;
}

static bool take_info(const struct nlmsghdr *h, struct tcp_info *info)
{
    const struct inet_diag_msg *msg = NLMSG_DATA(h);
    int left = (int)h->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*msg));

    for (const struct rtattr *a = (const struct rtattr *)(msg + 1); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == INET_DIAG_INFO) {
            size_t len = RTA_PAYLOAD(a);
            memcpy(info, RTA_DATA(a), len < sizeof(*info) ? len : sizeof(*info));
            return true;
        }
    return false;
}

bool diag_retrans(const struct board_addr *local, const struct board_addr *peer, uint64_t *retrans)
{
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } q = {
        .h = { .nlmsg_len = sizeof(q), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
        .r = { .sdiag_family = local->family == 4 ? AF_INET : AF_INET6,
               .sdiag_protocol = IPPROTO_TCP,
               .idiag_ext = 1u << (INET_DIAG_INFO - 1),
               .idiag_states = UINT32_MAX,
               .id = { .idiag_sport = htons(local->port),
                       .idiag_dport = htons(peer->port),
                       .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } },
    };
    _Alignas(struct nlmsghdr) char buf[8192];
    const struct nlmsghdr *h = (const struct nlmsghdr *)buf;
    struct tcp_info info = { 0 };
    ssize_t n;

    if (local->family == 0 || local->family != peer->family || channel() < 0)
        return false;
    memcpy(q.r.id.idiag_src, local->ip, local->family == 4 ? 4 : 16);
    memcpy(q.r.id.idiag_dst, peer->ip, local->family == 4 ? 4 : 16);
    if (send(channel(), &q, sizeof(q), 0) != (ssize_t)sizeof(q))
        return false;
    n = recv(channel(), buf, sizeof(buf), 0);
    if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)) || !NLMSG_OK(h, (size_t)n) ||
        h->nlmsg_type != SOCK_DIAG_BY_FAMILY || !take_info(h, &info))
        return false;
    *retrans = info.tcpi_total_retrans;
    return true;
}
