/*
 * Same host, the client's side: does the listener run sockwarp? See local.h.
 */
#include "preload/startup/local.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/process/kept.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/sock/sock.h"
#include "preload/startup/local_key.h"
#include "preload/startup/meet.h"

/*
 * Results of late look-ups, for connections that follow each other closely: a look-up takes a tenth of the time of a
 * plain connection. A listener may be replaced within that time; then the connection stays plain, or its Hello falls
 * back as one to another host does.
 */
#define LATELY_NS 10000000u
#define LATELY_SLOTS 64u

struct lately {
    struct local_key k;
    uint64_t until_ns;
    enum { LATELY_REMOTE, LATELY_HERE, LATELY_ABSENT } found; /* HERE: the address is this host's; no more is known */
};

static struct lately lately[LATELY_SLOTS];
/* Protects lately; innermost. */
static pthread_mutex_t lately_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lately *lately_slot(const struct local_key *k)
{
    return &lately[(k->port ^ k->addr[k->addr_len - 1]) % LATELY_SLOTS];
}

static bool lately_get(const struct local_key *k, struct lately *out)
{
    lock_take(&lately_lock);
    *out = *lately_slot(k);
    lock_give(&lately_lock);
    return local_key_same(&out->k, k) && proc_now_ns() < out->until_ns;
}

static void lately_put(struct lately *found)
{
    found->until_ns = proc_now_ns() + LATELY_NS;
    lock_take(&lately_lock);
    *lately_slot(&found->k) = *found;
    lock_give(&lately_lock);
}

/* Does the kernel deliver packets to this address locally? */
static bool is_local(const struct local_key *k)
{
    if (k->family == AF_INET && k->addr[0] == 127)
        return true;
    struct {
        struct nlmsghdr h;
        struct rtmsg rt;
        struct rtattr dst;
        uint8_t addr[16];
    } req;
    memset(&req, 0, sizeof(req));
    req.h.nlmsg_len = (uint32_t)(offsetof(__typeof__(req), addr) + k->addr_len);
    req.h.nlmsg_type = RTM_GETROUTE;
    req.h.nlmsg_flags = NLM_F_REQUEST;
    req.rt.rtm_family = (uint8_t)k->family;
    req.rt.rtm_dst_len = (uint8_t)(k->addr_len * 8);
    req.dst.rta_type = RTA_DST;
    req.dst.rta_len = (uint16_t)RTA_LENGTH(k->addr_len);
    memcpy(req.addr, k->addr, k->addr_len);
    int fd = netlink_open(NETLINK_ROUTE);
    if (fd < 0)
        return false;
    _Alignas(struct nlmsghdr) uint8_t buf[NETLINK_ANSWER_LEN];
    const struct nlmsghdr *h = netlink_ask(fd, &req, req.h.nlmsg_len, buf, sizeof(buf));
    bool local =
        h != NULL && h->nlmsg_type == RTM_NEWROUTE && ((const struct rtmsg *)NLMSG_DATA(h))->rtm_type == RTN_LOCAL;
    REAL(close)(fd);
    return local;
}

/*
 * The TCP listener the kernel would give a connection to k, and its owner. 1; 0: there is none; -errno: the kernel
 * cannot be asked.
 */
static int find_listener(const struct local_key *k, struct inet_diag_msg *out)
{
    struct inet_diag_sockid id;
    memset(&id, 0, sizeof(id));
    id.idiag_sport = htons(k->port);
    memcpy(id.idiag_src, k->addr, k->addr_len);
    id.idiag_if = k->scope;
    return netlink_find_tcp(k->family, &id, out);
}

/* Is the listener bound to what the name says? A wildcard one of IPv6 serves IPv4 as well. */
static bool same_address(const struct local_key *k, const struct inet_diag_msg *diag)
{
    const uint8_t *src = (const uint8_t *)diag->id.idiag_src;
    size_t len = diag->idiag_family == AF_INET ? 4 : 16;
    bool any = true;
    for (size_t i = 0; i < len; i++)
        any = any && src[i] == 0;
    if (local_key_any(k) || any)
        return local_key_any(k) && any;
    if (len == 16 && k->addr_len == 4) /* bound to a mapped address */
        src += 12;
    return memcmp(src, k->addr, k->addr_len) == 0;
}

/*
 * Connects to a name: 0 with the holder's credentials, or -errno. A socket whose connect was refused is as it was: *fd
 * is made for the first name (-1) and asks for the others, too.
 */
static int name_ask(int *fd, const struct sockaddr_un *un, socklen_t len, struct ucred *cred)
{
    if (*fd < 0)
        *fd = REAL(socket)(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return -errno;
    socklen_t cred_len = sizeof(*cred);
    if (REAL(connect)(*fd, (const struct sockaddr *)un, len) < 0 ||
        REAL(getsockopt)(*fd, SOL_SOCKET, SO_PEERCRED, cred, &cred_len) < 0)
        return -errno;
    return 0;
}

bool local_listens(const struct sockaddr *addr)
{
    struct local_key k;
    struct inet_diag_msg diag;
    int r = local_key_of(addr, &k) ? find_listener(&k, &diag) : -EAFNOSUPPORT;
    return r < 0 || (r > 0 && diag.idiag_state == TCP_LISTEN);
}

/* The wildcard as destination means this host. */
static bool key_of_peer(const struct sockaddr *peer, struct local_key *k)
{
    if (!local_key_of(peer, k))
        return false;
    if (local_key_any(k) && k->family == AF_INET)
        memcpy(k->addr, "\x7f\0\0\1", 4);
    else if (local_key_any(k))
        k->addr[15] = 1;
    return true;
}

/* Finds the holder of the name of k, or of the wildcard address (*any). A descriptor of the connection to it, or -errno. */
static int holder_of(const struct local_key *k, struct ucred *cred, bool *any)
{
    struct local_key wildcard = *k;
    memset(wildcard.addr, 0, sizeof(wildcard.addr));
    wildcard.scope = 0;
    struct sockaddr_un un;
    int fd = -1;
    socklen_t len = local_name_of(k, &un);
    int r = name_ask(&fd, &un, len, cred);
    *any = r == -ECONNREFUSED; /* (one that is there, and does not answer, hides the wildcard's) */
    if (*any) {
        len = local_name_of(&wildcard, &un);
        r = name_ask(&fd, &un, len, cred);
    }
    if (r < 0 && fd >= 0)
        REAL(close)(fd);
    return r < 0 ? r : fd;
}

bool local_lost_name(const struct sockaddr *peer)
{
    struct local_key k;
    struct inet_diag_msg diag;
    struct ucred cred;
    bool any;
    int r = key_of_peer(peer, &k) ? holder_of(&k, &cred, &any) : -EAFNOSUPPORT;
    if (r >= 0)
        REAL(close)(r);
    return r == -ECONNREFUSED && find_listener(&k, &diag) > 0 && diag.idiag_state == TCP_LISTEN;
}

/* The numbers of a short file of /proc's. Returns how many. */
static size_t proc_numbers(const char *path, uint64_t *out, size_t max)
{
    char text[512], *p = text, *end;
    int fd = rawsys_open(path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t len = fd >= 0 ? rawsys_read(fd, text, sizeof(text) - 1) : 0;
    size_t n = 0;
    if (fd >= 0)
        rawsys_close(fd);
    text[len > 0 ? len : 0] = '\0';
    for (; n < max && (out[n] = strtoull(p, &end, 10), end != p); n++)
        p = end;
    return n;
}

/*
 * Does this number name one user? The kernel shows all users that this user namespace does not know as one number
 * (65534). It is a user's own only if no user is unknown.
 */
static bool is_one_user(uid_t uid)
{
    uint64_t overflow = 0, map[3] = { 0 };
    if (proc_numbers("/proc/sys/kernel/overflowuid", &overflow, 1) != 1)
        overflow = 65534;
    return uid != overflow || (proc_numbers("/proc/self/uid_map", map, 3) == 3 && map[2] == UINT32_MAX);
}

static bool has_ino_name(uint32_t ino, uid_t uid)
{
    struct sockaddr_un un;
    struct ucred cred = { 0 };
    int fd = -1;
    socklen_t len = local_name_of_ino(ino, &un);
    bool has = name_ask(&fd, &un, len, &cred) == 0 && cred.uid == uid;
    if (fd >= 0)
        REAL(close)(fd);
    return has;
}

struct group {
    const struct inet_diag_msg *like; /* a listener of it */
    unsigned members;
    uint32_t first; /* the first one's inode */
};

/* One message of the dump. False: its listener is of the group, and has no name of its own. */
static bool is_named(const struct nlmsghdr *h, void *group)
{
    struct group *g = group;
    const struct inet_diag_msg *m = NLMSG_DATA(h), *like = g->like;
    if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
        return false;
    if (m->idiag_family != like->idiag_family || m->id.idiag_sport != like->id.idiag_sport ||
        m->id.idiag_if != like->id.idiag_if ||
        memcmp(m->id.idiag_src, like->id.idiag_src, sizeof(m->id.idiag_src)) != 0)
        return true;
    if (g->members++ == 0) {
        g->first = m->idiag_inode;
        return true;
    }
    return (g->members > 2 || has_ino_name(g->first, like->idiag_uid)) && has_ino_name(m->idiag_inode, like->idiag_uid);
}

/*
 * Of several listeners at one address (SO_REUSEPORT) the kernel takes any, so all have to be under sockwarp: then each
 * has a name by its inode.
 */
static bool whole_group(const struct inet_diag_msg *like)
{
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } req;
    memset(&req, 0, sizeof(req));
    req.h.nlmsg_len = sizeof(req);
    req.h.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    req.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    req.r.sdiag_family = like->idiag_family;
    req.r.sdiag_protocol = IPPROTO_TCP;
    req.r.idiag_states = 1u << TCP_LISTEN;
    req.r.id.idiag_sport = like->id.idiag_sport;
    struct group g = { .like = like };
    return netlink_dump(NETLINK_SOCK_DIAG, &req, sizeof(req), is_named, &g) && g.members > 0;
}

/* Does the name's holder own the listener that would answer? */
static bool owns_listener(const struct local_key *k, const struct ucred *holder, bool any)
{
    struct local_key named = *k;
    if (any)
        memset(named.addr, 0, sizeof(named.addr));
    struct inet_diag_msg diag;
    int r = find_listener(k, &diag);
    if (r > 0 && !same_address(&named, &diag))
        return false; /* the name is of another listener on this port, less specific than the one that answers */
    if (r > 0 && diag.idiag_uid == holder->uid && is_one_user(holder->uid))
        return whole_group(&diag);
    trace_info("a name for port %u is held by uid %u, which does not own the listener", k->port, (unsigned)holder->uid);
    return false;
}

/* ---- names that were found ---- */

/*
 * A connection to a name, which its holder does not accept, is kept: it ends when the name does, or when the holder
 * empties its backlog. While it is there, so is the name.
 */
struct acquaintance {
    struct local_key k;
    struct ucred holder;
    bool any;
    uint64_t until_ns; /* until then it owns the listener */
};

#define ACQUAINTANCES 8u
static struct acquaintance known[ACQUAINTANCES]; /* with the lock of known_fds, the descriptors */
static _Atomic int known_fd[ACQUAINTANCES];
static struct kept known_fds = { .fd = known_fd, .n = ACQUAINTANCES };

void local_leaves_network(void)
{
    netlink_leaves_network();
    kept_leave_network(&known_fds);
}

/* Keeps fd, or closes it. */
static void known_put(const struct local_key *k, int fd, const struct ucred *holder, bool any)
{
    static unsigned next;
    if (!kept_begin(&known_fds)) {
        REAL(close)(fd);
        return;
    }
    unsigned at = next++ % ACQUAINTANCES;
    for (unsigned i = 0; i < ACQUAINTANCES; i++)
        if (local_key_same(&known[i].k, k))
            at = i;
    known[at] = (struct acquaintance){ .k = *k, .holder = *holder, .any = any, .until_ns = proc_now_ns() + LATELY_NS };
    kept_put(&known_fds, at, fd);
    kept_end(&known_fds);
}

static bool is_connected(int fd)
{
    char octet;
    return REAL(recv)(fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Does the holder own the listener, by what was found lately, or by what is found now? */
static bool still_owns(struct acquaintance *a)
{
    if (proc_now_ns() < a->until_ns)
        return true;
    a->until_ns = proc_now_ns() + LATELY_NS;
    return owns_listener(&a->k, &a->holder, a->any);
}

/* The process that holds the name and owns the listener; pid 0: it has to be asked for. */
static struct ucred known_holder(const struct local_key *k)
{
    struct ucred holder = { 0 };
    if (!kept_begin(&known_fds))
        return holder;
    for (unsigned i = 0; i < ACQUAINTANCES && holder.pid == 0; i++) {
        if (known_fd[i] == 0 || !local_key_same(&known[i].k, k))
            continue;
        if (is_connected(known_fd[i]) && still_owns(&known[i]))
            holder = known[i].holder;
        else
            kept_drop(&known_fds, i);
    }
    kept_end(&known_fds);
    return holder;
}

/* Asks by the name. LOCAL_PRESENT with *holder, or LOCAL_ABSENT. */
static enum local_answer ask_name(const struct local_key *k, struct ucred *holder)
{
    struct ucred cred = { 0 };
    bool any = false;
    int fd = holder_of(k, &cred, &any);
    if (fd < 0)
        return LOCAL_ABSENT; /* a name whose backlog is full counts as absent, too */
    bool owns = owns_listener(k, &cred, any);
    if (owns && cred.pid != 0 && cred.pid != proc.pid)
        known_put(k, fd, &cred, any);
    else
        REAL(close)(fd);
    *holder = cred;
    return owns ? LOCAL_PRESENT : LOCAL_ABSENT;
}

/* What was found lately, or is found now. */
static int found_of(const struct local_key *k)
{
    struct lately l = { 0 };
    if (lately_get(k, &l))
        return l.found;
    l = (struct lately){ .k = *k, .found = is_local(k) ? LATELY_HERE : LATELY_REMOTE };
    lately_put(&l);
    return l.found;
}

enum local_answer local_ask(const struct sockaddr *peer, bool self_ok, uid_t *owner)
{
    struct local_key k;
    if (!key_of_peer(peer, &k))
        return LOCAL_REMOTE;
    struct ucred holder = known_holder(&k);
    int found = holder.pid == 0 ? found_of(&k) : LATELY_HERE;
    if (found != LATELY_HERE)
        return found == LATELY_ABSENT ? LOCAL_ABSENT : LOCAL_REMOTE;
    if (holder.pid == 0 && ask_name(&k, &holder) == LOCAL_ABSENT)
        return LOCAL_ABSENT;
    *owner = holder.uid;
    return holder.pid == proc.pid && !self_ok ? LOCAL_SELF : LOCAL_PRESENT;
}

bool local_meets(uint64_t netns, const struct sockaddr *peer)
{
    struct local_key k;
    struct sockaddr_un un;
    if (!key_of_peer(peer, &k))
        return false;
    socklen_t len = local_name_of(&k, &un);
    if (meet_is_known(netns, &un, len))
        return true;
    memset(k.addr, 0, sizeof(k.addr));
    k.scope = 0;
    len = local_name_of(&k, &un);
    return meet_is_known(netns, &un, len);
}

bool local_is_own(const struct sockaddr *addr)
{
    struct local_key k;
    int err = errno;
    bool own = key_of_peer(addr, &k) && found_of(&k) != LATELY_REMOTE;
    errno = err;
    return own;
}

void local_absent(const struct sockaddr *peer)
{
    struct lately l = { .found = LATELY_ABSENT };
    if (key_of_peer(peer, &l.k))
        lately_put(&l);
}

void local_after_fork(void)
{
    pthread_mutex_init(&lately_lock, NULL);
}

bool local_same_host(const struct sockaddr_storage *local, const struct sockaddr_storage *peer)
{
    struct local_key l, p;
    if (!local_key_of((const struct sockaddr *)local, &l) || !local_key_of((const struct sockaddr *)peer, &p) ||
        l.family != p.family)
        return false;
    return memcmp(l.addr, p.addr, l.addr_len) == 0 || (l.family == AF_INET && l.addr[0] == 127 && p.addr[0] == 127);
}
