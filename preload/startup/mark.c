/*
 * The mark in the handshake. See mark.h; DECISIONS.md, "The mark", has what was measured.
 */
#include "preload/startup/mark.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/base/trace.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/rules.h"
#include "preload/process/sandbox.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/sock.h"

#define STEP 32u
#define REST 17u
#define OCTETS_MIN 1000u  /* shorter segments are not made shorter still */
#define OCTETS_MAX 32767u /* TCP_MAXSEG takes no more */
#define HDR_4 40u         /* headers of IPv4 and TCP */
#define HDR_6 60u
#define DEFAULT_MAXSEG 536 /* Linux's value of a socket that is not connected and has no size of its own */

static _Atomic unsigned marks_n;

unsigned mark_of(unsigned octets)
{
    if (octets < OCTETS_MIN || octets > OCTETS_MAX)
        return 0;
    return octets - (octets - REST) % STEP;
}

static bool is_any(const struct sockaddr *sa)
{
    static const struct in6_addr any = IN6ADDR_ANY_INIT;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;
    if (sa->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr == INADDR_ANY;
    return memcmp(&in6->sin6_addr, &any, sizeof(any)) == 0;
}

/* Is it the address that the kernel tells of in a message? An IPv4-mapped one is IPv4's. */
static bool is_same(const struct sockaddr *listens, int family, const uint8_t *has)
{
    const struct in6_addr *l6 = &((const struct sockaddr_in6 *)(const void *)listens)->sin6_addr;
    const struct in_addr *l4 = &((const struct sockaddr_in *)(const void *)listens)->sin_addr;
    if (listens->sa_family == AF_INET)
        return family == AF_INET && memcmp(l4, has, sizeof(*l4)) == 0;
    if (family == AF_INET6)
        return memcmp(l6, has, sizeof(*l6)) == 0;
    return IN6_IS_ADDR_V4MAPPED(l6) && memcmp(l6->s6_addr + 12, has, sizeof(*l4)) == 0;
}

/* Looks at the links by which clients of other hosts reach the listener: the largest MTU, and whether by IPv6. */
struct links {
    int fd; /* a socket to ask by */
    bool any, v6only;
    const struct sockaddr *listens;
    unsigned mtu;
    bool ipv6;
};

/* The MTU of the link with this index; 0: it is down, or there are no other hosts. */
static unsigned mtu_of(int fd, int index)
{
    struct ifreq req = { .ifr_ifindex = index };
    if (REAL(ioctl)(fd, SIOCGIFNAME, &req) < 0 || REAL(ioctl)(fd, SIOCGIFFLAGS, &req) < 0 ||
        !(req.ifr_flags & IFF_UP) || (req.ifr_flags & IFF_LOOPBACK) || REAL(ioctl)(fd, SIOCGIFMTU, &req) < 0 ||
        req.ifr_mtu < 0)
        return 0;
    return (unsigned)req.ifr_mtu;
}

/* One address of the host's. */
static void add_address(struct links *l, const struct nlmsghdr *h)
{
    const struct ifaddrmsg *m = NLMSG_DATA(h);
    const uint8_t *local = NULL, *addr = NULL;
    unsigned left = (unsigned)IFA_PAYLOAD(h);
    for (const struct rtattr *a = IFA_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == IFA_LOCAL)
            local = RTA_DATA(a);
        else if (a->rta_type == IFA_ADDRESS)
            addr = RTA_DATA(a);
    }
    addr = local != NULL ? local : addr;
    bool served =
        m->ifa_family == AF_INET6 ? l->listens->sa_family == AF_INET6 : m->ifa_family == AF_INET && !l->v6only;
    if (addr == NULL || !served || (!l->any && !is_same(l->listens, m->ifa_family, addr)))
        return;
    unsigned mtu = mtu_of(l->fd, (int)m->ifa_index);
    l->ipv6 = l->ipv6 || (mtu > 0 && m->ifa_family == AF_INET6);
    if (mtu > l->mtu)
        l->mtu = mtu;
}

static bool add_message(const struct nlmsghdr *h, void *links)
{
    if (h->nlmsg_type != RTM_NEWADDR)
        return false;
    add_address(links, h);
    return true;
}

/* (Of a host with very many addresses the first ones will do.) */
static void find_links(struct links *l)
{
    struct {
        struct nlmsghdr h;
        struct ifaddrmsg m;
    } req = { .h = { .nlmsg_len = sizeof(req), .nlmsg_type = RTM_GETADDR, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
    (void)netlink_dump(NETLINK_ROUTE, &req, sizeof(req), add_message, l);
}

static int maxseg(int fd)
{
    int v = 0;
    socklen_t len = sizeof(v);
    return REAL(getsockopt)(fd, IPPROTO_TCP, TCP_MAXSEG, &v, &len) == 0 ? v : -1;
}

static bool set_maxseg(int fd, int v)
{
    return REAL(setsockopt)(fd, IPPROTO_TCP, TCP_MAXSEG, &v, sizeof(v)) == 0;
}

static void open_on(struct sock *s, int fd, const struct sockaddr *listens)
{
    int v6only = 0, now = maxseg(fd);
    socklen_t len = sizeof(v6only);
    if (listens->sa_family == AF_INET6)
        REAL(getsockopt)(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &len);
    struct links links = { .fd = fd, .any = is_any(listens), .v6only = v6only != 0, .listens = listens };
    find_links(&links);
    s->mark_later = links.mtu == 0;
    unsigned hdr = links.ipv6 ? HDR_6 : HDR_4, mark = links.mtu > hdr ? mark_of(links.mtu - hdr) : 0;
    bool was = mark != 0 && now == (int)mark; /* a former program has set it, and left it with the listener */
    if (mark == 0 || (now != DEFAULT_MAXSEG && !was) || (!was && !set_maxseg(fd, (int)mark)))
        return;
    s->mark_mtu = (uint16_t)links.mtu;
    s->mark = (uint16_t)mark;
    if (!atomic_exchange(&s->mark_counts, true))
        atomic_fetch_add(&marks_n, 1);
    trace_debug("fd %d: marked, segments of %u octets", fd, mark);
}

void mark_open(struct sock *s, int fd)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    if (s->mark != 0 || s->mark_own || sandbox_on() || REAL(getsockname)(fd, (struct sockaddr *)&ss, &len) < 0 ||
        (ss.ss_family != AF_INET && ss.ss_family != AF_INET6))
        return;
    const struct policy_rule *rule = policy_match_listener(rules_of(s->rules), (const struct sockaddr *)&ss, len);
    int err = errno;
    if (rule != NULL && rule->opts.mark)
        open_on(s, fd, (const struct sockaddr *)&ss);
    errno = err;
}

void mark_closed(struct sock *s)
{
    if (atomic_load(&s->mark_counts) && atomic_exchange(&s->mark_counts, false))
        atomic_fetch_sub(&marks_n, 1);
}

/* The segment size is the program's from now on, or the kernel's own. */
static void forget(struct sock *s)
{
    mark_closed(s);
    s->mark = s->mark_mtu = 0;
}

void mark_end(struct sock *s)
{
    int fd = atomic_load(&s->fd), err = errno;
    if (s->kind != SOCK_CONN && s->mark != 0 && fd >= 0 && maxseg(fd) == s->mark)
        set_maxseg(fd, 0);
    if (s->kind != SOCK_CONN)
        forget(s);
    s->mark_later = false;
    errno = err;
}

/*
 * Segments of the mark's size make bulk transfers on loopback dearer, so a listener that had clients of this host only
 * has no mark, until the first one of another. (One that other processes have is theirs, too, and is let be.)
 */
void mark_client(struct sock *s, int fd, bool near)
{
    if (!near) {
        s->mark_far = true;
        if (s->mark_later && s->name_fd[0] >= 0) {
            mark_open(s, fd);
            s->mark_later = false; /* (a link that it has not even now is not looked for with each client) */
        }
    } else if (s->mark != 0 && !s->mark_far && !atomic_load(&s->forked)) {
        mark_end(s);
        s->mark_later = true;
    }
}

void mark_take_back(int fd)
{
    int v = maxseg(fd), err = errno;
    if (v > 0 && v != DEFAULT_MAXSEG && mark_of((unsigned)v) == (unsigned)v)
        set_maxseg(fd, 0);
    errno = err;
}

unsigned mark_count(void)
{
    return atomic_load(&marks_n);
}

void mark_is_overridden(struct sock *s)
{
    if (s->kind != SOCK_CONN)
        forget(s);
    s->mark_own = true;
    s->mark_later = false;
}

void mark_inherit(struct sock *s, const struct sock *listener)
{
    s->mark = listener->mark;
    s->mark_mtu = listener->mark_mtu;
}

int mark_shown(const struct sock *s, int fd, int v)
{
    struct tcpinfo_segment seg;
    if (s->mark == 0)
        return v;
    if (s->kind != SOCK_CONN)
        return v == s->mark ? DEFAULT_MAXSEG : v;
    /* (The size that the client would have taken without the mark is not known.) */
    if (!tcpinfo_segment(fd, &seg) || v + (int)seg.options_len != s->mark)
        return v;
    struct sockaddr_in6 peer;
    socklen_t len = sizeof(peer);
    bool ipv6 = REAL(getpeername)(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin6_family == AF_INET6 &&
                !IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr);
    unsigned mtu = seg.path_mtu < s->mark_mtu ? seg.path_mtu : s->mark_mtu, hdr = ipv6 ? HDR_6 : HDR_4;
    return mtu > hdr + seg.options_len + (unsigned)v ? (int)(mtu - hdr - seg.options_len) : v;
}

/*
 * Only the marks that go with the initiator's own path, or with links of Ethernet, are believed; and none that its own
 * path would have made of a longer one.
 */
bool mark_is_seen(int fd)
{
    struct tcpinfo_segment seg;
    if (!tcpinfo_segment(fd, &seg))
        return false;
    unsigned octets = seg.octets + seg.options_len;
    if (octets < OCTETS_MIN || mark_of(octets) != octets || octets + HDR_4 == seg.path_mtu ||
        octets + HDR_6 == seg.path_mtu)
        return false;
    const unsigned mtus[] = { seg.path_mtu, 1500, 9000 };
    for (unsigned i = 0; i < sizeof(mtus) / sizeof(mtus[0]); i++)
        if (mtus[i] > HDR_6 && (mark_of(mtus[i] - HDR_4) == octets || mark_of(mtus[i] - HDR_6) == octets))
            return true;
    return false;
}
