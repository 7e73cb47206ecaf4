/*
 * Same-host detection.
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
#include "preload/process/hidden.h"
#include "preload/process/netlink.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/sock.h"
#include "preload/startup/mark.h"

/* An address in the form names are made of: IPv4-mapped ones as IPv4. */
struct key {
    int family;
    uint8_t addr[16];
    size_t addr_len;
    uint16_t port;
    uint32_t scope; /* the interface of a link-local address: it is another address on each */
};

static bool key_of(const struct sockaddr *sa, struct key *k)
{
    memset(k, 0, sizeof(*k));
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof(in));
        k->family = AF_INET;
        k->addr_len = 4;
        memcpy(k->addr, &in.sin_addr, 4);
        k->port = ntohs(in.sin_port);
        return true;
    }
    if (sa->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 in6;
    memcpy(&in6, sa, sizeof(in6));
    k->port = ntohs(in6.sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
        k->family = AF_INET;
        k->addr_len = 4;
        memcpy(k->addr, in6.sin6_addr.s6_addr + 12, 4);
        return true;
    }
    k->family = AF_INET6;
    k->addr_len = 16;
    memcpy(k->addr, &in6.sin6_addr, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
        k->scope = in6.sin6_scope_id;
    return true;
}

static bool key_any(const struct key *k)
{
    for (size_t i = 0; i < k->addr_len; i++)
        if (k->addr[i] != 0)
            return false;
    return true;
}

static bool key_same(const struct key *a, const struct key *b)
{
    return a->family == b->family && a->port == b->port && a->scope == b->scope &&
           memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

/*
 * Results of late look-ups, for connections that follow each other closely: a look-up takes a tenth of the time of a
 * plain connection. A listener may be replaced within that time; then the connection stays plain, or its Hello falls
 * back as one to another host does.
 */
#define LATELY_NS 10000000u
#define LATELY_SLOTS 64u

struct lately {
    struct key k;
    uint64_t until_ns;
    enum { LATELY_REMOTE, LATELY_ABSENT, LATELY_HELD } found;
    struct ucred holder; /* HELD: the listener's owner */
    bool any;            /* ... by the name of the wildcard address */
};

static struct lately lately[LATELY_SLOTS];
/* Protects lately; innermost. Only tried, as connect(2) may be called in a handler that has interrupted its holder. */
static pthread_mutex_t lately_lock = PTHREAD_MUTEX_INITIALIZER;

static struct lately *lately_slot(const struct key *k)
{
    return &lately[(k->port ^ k->addr[k->addr_len - 1]) % LATELY_SLOTS];
}

static bool lately_get(const struct key *k, struct lately *out)
{
    if (pthread_mutex_trylock(&lately_lock) != 0)
        return false;
    *out = *lately_slot(k);
    pthread_mutex_unlock(&lately_lock);
    return key_same(&out->k, k) && proc_now_ns() < out->until_ns;
}

static void lately_put(struct lately *found)
{
    found->until_ns = proc_now_ns() + LATELY_NS;
    if (pthread_mutex_trylock(&lately_lock) != 0)
        return;
    *lately_slot(&found->k) = *found;
    pthread_mutex_unlock(&lately_lock);
}

static char *hex(char *p, uint32_t v, int digits)
{
    static const char digit[] = "0123456789abcdef";
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
        *p++ = digit[v >> shift & 15];
    return p;
}

/*
 * "\0sockwarp/2/4/7f000001/1451" in hexadecimal, with "%00000002" behind a link-local address; returns the length of
 * the AF_UNIX address.
 */
static socklen_t name_of(const struct key *k, struct sockaddr_un *un)
{
    static const char head[] = "sockwarp/2/";
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    char *p = un->sun_path + 1;
    memcpy(p, head, sizeof(head) - 1);
    p += sizeof(head) - 1;
    *p++ = k->family == AF_INET ? '4' : '6';
    *p++ = '/';
    for (size_t i = 0; i < k->addr_len; i++)
        p = hex(p, k->addr[i], 2);
    if (k->scope != 0) {
        *p++ = '%';
        p = hex(p, k->scope, 8);
    }
    *p++ = '/';
    p = hex(p, k->port, 4);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(p - un->sun_path));
}

/* "\0sockwarp/2/i/00012345": a listener that may be one of several at its address. */
static socklen_t name_of_ino(uint64_t ino, struct sockaddr_un *un)
{
    static const char head[] = "sockwarp/2/i/";
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, head, sizeof(head) - 1);
    const char *end = hex(un->sun_path + sizeof(head), (uint32_t)ino, 8); /* (sock_diag has 32 bits of it) */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(end - un->sun_path));
}

/* Does the kernel deliver packets to this address locally? */
static bool is_local(const struct key *k)
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
static int find_listener(const struct key *k, struct inet_diag_msg *out)
{
    struct inet_diag_sockid id;
    memset(&id, 0, sizeof(id));
    id.idiag_sport = htons(k->port);
    memcpy(id.idiag_src, k->addr, k->addr_len);
    id.idiag_if = k->scope;
    return netlink_find_tcp(k->family, &id, out);
}

/* Is the listener bound to what the name says? A wildcard one of IPv6 serves IPv4 as well. */
static bool same_address(const struct key *k, const struct inet_diag_msg *diag)
{
    const uint8_t *src = (const uint8_t *)diag->id.idiag_src;
    size_t len = diag->idiag_family == AF_INET ? 4 : 16;
    bool any = true;
    for (size_t i = 0; i < len; i++)
        any = any && src[i] == 0;
    if (key_any(k) || any)
        return key_any(k) && any;
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
    struct key k;
    struct inet_diag_msg diag;
    int r = key_of(addr, &k) ? find_listener(&k, &diag) : -EAFNOSUPPORT;
    return r < 0 || (r > 0 && diag.idiag_state == TCP_LISTEN);
}

/* The wildcard as destination means this host. */
static bool key_of_peer(const struct sockaddr *peer, struct key *k)
{
    if (!key_of(peer, k))
        return false;
    if (key_any(k) && k->family == AF_INET)
        memcpy(k->addr, "\x7f\0\0\1", 4);
    else if (key_any(k))
        k->addr[15] = 1;
    return true;
}

/* Finds the holder of the name of k, or of the wildcard address (*any). 0 or -errno. */
static int holder_of(const struct key *k, struct ucred *cred, bool *any)
{
    struct key wildcard = *k;
    memset(wildcard.addr, 0, sizeof(wildcard.addr));
    wildcard.scope = 0;
    struct sockaddr_un un;
    int fd = -1;
    socklen_t len = name_of(k, &un);
    int r = name_ask(&fd, &un, len, cred);
    *any = r == -ECONNREFUSED; /* (one that is there, and does not answer, hides the wildcard's) */
    if (*any) {
        len = name_of(&wildcard, &un);
        r = name_ask(&fd, &un, len, cred);
    }
    if (fd >= 0)
        REAL(close)(fd);
    return r;
}

bool local_lost_name(const struct sockaddr *peer)
{
    struct key k;
    struct inet_diag_msg diag;
    struct ucred cred;
    bool any;
    return key_of_peer(peer, &k) && holder_of(&k, &cred, &any) == -ECONNREFUSED && find_listener(&k, &diag) > 0 &&
           diag.idiag_state == TCP_LISTEN;
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
    socklen_t len = name_of_ino(ino, &un);
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
static bool owns_listener(const struct key *k, const struct ucred *holder, bool any)
{
    struct key named = *k;
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

enum local_answer local_ask(const struct sockaddr *peer, bool self_ok)
{
    struct lately l = { 0 };
    struct key k;
    if (!key_of_peer(peer, &k))
        return LOCAL_REMOTE;
    bool known = lately_get(&k, &l);
    if (known && l.found == LATELY_ABSENT)
        return LOCAL_ABSENT;
    if (known ? l.found == LATELY_REMOTE : !is_local(&k)) {
        if (!known)
            lately_put(&(struct lately){ .k = k, .found = LATELY_REMOTE });
        return LOCAL_REMOTE;
    }
    struct ucred holder = { 0 };
    bool any = false;
    if (holder_of(&k, &holder, &any) < 0)
        return LOCAL_ABSENT; /* a name whose backlog is full counts as absent, too */
    if (!known || holder.pid == 0 || holder.pid != l.holder.pid || holder.uid != l.holder.uid || any != l.any) {
        if (!owns_listener(&k, &holder, any))
            return LOCAL_ABSENT;
        lately_put(&(struct lately){ .k = k, .found = LATELY_HELD, .holder = holder, .any = any });
    }
    return holder.pid == proc.pid && !self_ok ? LOCAL_SELF : LOCAL_PRESENT;
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

static _Atomic unsigned names_n;

static void name_take(int fd, _Atomic int *where)
{
    atomic_store(where, hidden_move(fd));
    hidden_own(*where, where);
    atomic_fetch_add(&names_n, 1);
}

static void name_listen(const struct sockaddr_un *un, socklen_t len, _Atomic int *where)
{
    int fd = REAL(socket)(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (REAL(bind)(fd, (const struct sockaddr *)un, len) < 0 || REAL(listen)(fd, SOMAXCONN) < 0) {
        REAL(close)(fd);
        return;
    }
    name_take(fd, where);
}

/* The names of the listener fd, at most SOCK_NAMES: the length of each, 0: none. False: it is none. */
static bool names_of(int fd, struct sockaddr_un un[SOCK_NAMES], socklen_t len[SOCK_NAMES])
{
    struct sockaddr_storage ss;
    socklen_t ss_len = sizeof(ss), opt_len = sizeof(int);
    struct key k;
    int option = 0;
    memset(len, 0, SOCK_NAMES * sizeof(*len));
    if (REAL(getsockname)(fd, (struct sockaddr *)&ss, &ss_len) < 0 || !key_of((struct sockaddr *)&ss, &k))
        return false;
    len[0] = name_of(&k, &un[0]);
    if (k.family == AF_INET6 && key_any(&k) &&
        REAL(getsockopt)(fd, IPPROTO_IPV6, IPV6_V6ONLY, &option, &opt_len) == 0 && !option) {
        k.family = AF_INET;
        k.addr_len = 4;
        len[1] = name_of(&k, &un[1]);
    }
    opt_len = sizeof(option);
    if (REAL(getsockopt)(fd, SOL_SOCKET, SO_REUSEPORT, &option, &opt_len) == 0 && option)
        len[2] = name_of_ino(sock_ino(fd), &un[2]);
    return true;
}

unsigned local_port_of(const struct sockaddr_storage *ss)
{
    struct key k;
    return key_of((const struct sockaddr *)ss, &k) ? k.port : 0;
}

bool local_defers(struct sock *s, int fd)
{
    int seconds = 0;
    socklen_t len = sizeof(seconds);
    if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, &len) < 0 || seconds <= 0)
        return false;
    s->stay_plain = true;
    s->plain_reason = REASON_DEFER_ACCEPT;
    local_names_end(s); /* for the processes that share them */
    local_names_close(s);
    return true;
}

void local_names_open(struct sock *s, int fd)
{
    struct sockaddr_un un[SOCK_NAMES];
    socklen_t len[SOCK_NAMES];
    if (local_defers(s, fd) || s->name_fd[0] >= 0)
        return;
    mark_open(s, fd);
    if (!names_of(fd, un, len))
        return;
    for (int i = 0; i < SOCK_NAMES; i++)
        if (len[i] > 0)
            name_listen(&un[i], len[i], &s->name_fd[i]);
}

/* The length of a socket's name; 0: it is no name of ours. */
static socklen_t called(int fd, struct sockaddr_un *un)
{
    static const char head[] = "\0sockwarp/2/";
    socklen_t len = sizeof(*un);
    memset(un, 0, sizeof(*un));
    bool is = REAL(getsockname)(fd, (struct sockaddr *)un, &len) == 0 && un->sun_family == AF_UNIX &&
              len <= sizeof(*un) && memcmp(un->sun_path, head, sizeof(head) - 1) == 0;
    return is ? len : 0;
}

bool local_name_is(int fd)
{
    struct sockaddr_un un;
    return called(fd, &un) > 0;
}

unsigned local_names(void)
{
    return atomic_load(&names_n) + mark_count();
}

bool local_names_are_of(const struct sock *s, int fd)
{
    struct sockaddr_un un[SOCK_NAMES], is;
    socklen_t len[SOCK_NAMES];
    for (int i = 0; i < SOCK_NAMES && s->kind == SOCK_LISTENER; i++)
        if (s->name_fd[i] >= 0)
            return names_of(fd, un, len) && len[i] > 0 && called(s->name_fd[i], &is) == len[i] &&
                   memcmp(&is, &un[i], sizeof(is)) == 0;
    return false;
}

void local_names_end(struct sock *s)
{
    mark_end(s);
    for (int i = 0; i < SOCK_NAMES; i++)
        if (s->name_fd[i] >= 0)
            REAL(shutdown)(s->name_fd[i], SHUT_RDWR);
}

struct adopting {
    int fd; /* -1: it has found its listener */
    socklen_t len;
    struct sockaddr_un un;
};

static void adopt(int fd, struct sock *s, void *arg)
{
    struct adopting *a = arg;
    struct sockaddr_un un[SOCK_NAMES];
    socklen_t len[SOCK_NAMES];
    if (a->fd < 0 || s->kind != SOCK_LISTENER || !names_of(fd, un, len))
        return;
    for (int i = 0; i < SOCK_NAMES && a->fd >= 0; i++)
        if (len[i] == a->len && s->name_fd[i] < 0 && memcmp(&un[i], &a->un, sizeof(a->un)) == 0) {
            name_take(a->fd, &s->name_fd[i]);
            a->fd = -1;
        }
}

void local_name_adopt(int fd)
{
    struct adopting a = { .fd = fd };
    a.len = called(fd, &a.un);
    sock_each(adopt, &a);
    if (a.fd >= 0)
        REAL(close)(fd);
}

void local_names_close(struct sock *s)
{
    for (int i = 0; i < SOCK_NAMES; i++) {
        if (s->name_fd[i] < 0)
            continue;
        hidden_close(s->name_fd[i]);
        s->name_fd[i] = -1;
        atomic_fetch_sub(&names_n, 1);
    }
}

unsigned local_names_drain(struct sock *s)
{
    unsigned n = 0;
    for (int i = 0; i < SOCK_NAMES; i++) {
        int fd = s->name_fd[i];
        for (int c; fd >= 0 && (c = REAL(accept4)(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0;
             n += i < 2) /* (its inode comes second) */
            REAL(close)(c);
    }
    return n;
}

bool local_same_host(const struct sockaddr_storage *local, const struct sockaddr_storage *peer)
{
    struct key l, p;
    if (!key_of((const struct sockaddr *)local, &l) || !key_of((const struct sockaddr *)peer, &p) ||
        l.family != p.family)
        return false;
    return memcmp(l.addr, p.addr, l.addr_len) == 0 || (l.family == AF_INET && l.addr[0] == 127 && p.addr[0] == 127);
}
