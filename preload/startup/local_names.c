/*
 * Same host, the listener's side: its names. See local.h.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "core/base/reason.h"
#include "preload/process/hidden.h"
#include "preload/process/imports.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/sock.h"
#include "preload/startup/local.h"
#include "preload/startup/local_key.h"
#include "preload/startup/mark.h"
#include "preload/startup/meet.h"
#include "preload/startup/syn.h"

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
    struct local_key k;
    int option = 0;
    memset(len, 0, SOCK_NAMES * sizeof(*len));
    if (REAL(getsockname)(fd, (struct sockaddr *)&ss, &ss_len) < 0 || !local_key_of((struct sockaddr *)&ss, &k))
        return false;
    len[0] = local_name_of(&k, &un[0]);
    if (k.family == AF_INET6 && local_key_any(&k) &&
        REAL(getsockopt)(fd, IPPROTO_IPV6, IPV6_V6ONLY, &option, &opt_len) == 0 && !option) {
        k.family = AF_INET;
        k.addr_len = 4;
        len[1] = local_name_of(&k, &un[1]);
    }
    opt_len = sizeof(option);
    if (REAL(getsockopt)(fd, SOL_SOCKET, SO_REUSEPORT, &option, &opt_len) == 0 && option)
        len[2] = local_name_of_ino(sock_ino(fd), &un[2]);
    return true;
}

unsigned local_port_of(const struct sockaddr_storage *ss)
{
    struct local_key k;
    return local_key_of((const struct sockaddr *)ss, &k) ? k.port : 0;
}

static bool defers(int fd)
{
    int seconds = 0;
    socklen_t len = sizeof(seconds);
    return REAL(getsockopt)(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, &len) == 0 && seconds > 0;
}

/* (The kernel tells how long a filter is, and that one of eBPF is not to be shown.) */
static bool filters(int fd)
{
    socklen_t len = 0;
    return REAL(getsockopt)(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &len) < 0 ? errno == EACCES : len > 0;
}

bool local_stays_plain(struct sock *s, int fd)
{
    int err = errno;
    unsigned reason = defers(fd) ? REASON_DEFER_ACCEPT : filters(fd) ? REASON_FILTER : REASON_NONE;
    errno = err;
    if (reason == REASON_NONE)
        return false;
    s->stay_plain = true;
    s->plain_reason = (uint8_t)reason;
    local_names_end(s); /* for the processes that share them */
    local_names_close(s);
    return true;
}

/* One that does not look may follow one that did and was killed. */
static void meet_or_not(const struct sock *s, uint64_t netns, const struct sockaddr_un *un, socklen_t len)
{
    if (s->saves_syn)
        meet_listens(netns, un, len);
    else if (meet_is_known(netns, un, len))
        meet_listens_no_more(netns, un, len);
}

void local_names_open(struct sock *s, int fd)
{
    struct sockaddr_un un[SOCK_NAMES];
    socklen_t len[SOCK_NAMES];
    if (local_stays_plain(s, fd) || s->name_fd[0] >= 0)
        return;
    mark_open(s, fd);
    syn_save(s, fd);
    if (!names_of(fd, un, len))
        return;
    for (int i = 0; i < SOCK_ADDRESS_NAMES; i++)
        if (len[i] > 0)
            meet_or_not(s, meet_netns(fd), &un[i], len[i]);
    for (int i = 0; i < SOCK_NAMES; i++)
        if (len[i] > 0)
            name_listen(&un[i], len[i], &s->name_fd[i]);
}

void local_meets_no_more(const struct sock *s)
{
    struct sockaddr_un un[SOCK_NAMES];
    socklen_t len[SOCK_NAMES];
    int fd = atomic_load(&s->fd);
    if (fd < 0 || s->name_fd[0] < 0 || !names_of(fd, un, len))
        return;
    for (int i = 0; i < SOCK_ADDRESS_NAMES; i++)
        if (len[i] > 0)
            meet_listens_no_more(meet_netns(fd), &un[i], len[i]);
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

/*
 * Ends the connections of clients that keep them (struct acquaintance), too: they ask again. No more than a backlog holds:
 * any process may connect, and fill it again meanwhile.
 */
static void drain(const struct sock *s)
{
    for (int i = 0; i < SOCK_NAMES; i++) {
        int fd = s->name_fd[i], c;
        for (unsigned n = 0; fd >= 0 && n <= SOMAXCONN && (c = REAL(accept4)(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0; n++)
            REAL(close)(c);
    }
}

void local_names_end(struct sock *s)
{
    mark_end(s);
    syn_save_end(s, atomic_load(&s->fd));
    for (int i = 0; i < SOCK_NAMES; i++)
        if (s->name_fd[i] >= 0)
            REAL(shutdown)(s->name_fd[i], SHUT_RDWR);
    drain(s); /* which a shutdown does not end */
    /* Behind the names: who has read that it does not meet, and then finds its name, sends it a Hello. */
    local_meets_no_more(s);
}

struct adopting {
    int fd; /* -1: it has found its listener */
    socklen_t len;
    struct sockaddr_un un;
};

/* Did this very process open the name, before its exec? */
static bool is_of_this_process(int name_fd)
{
    struct ucred c;
    socklen_t len = sizeof(c);
    return REAL(getsockopt)(name_fd, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 && c.pid == getpid();
}

/*
 * The program has put itself in the place of the one that listened: where it may accept unseen, the names end. (A child
 * that a server has started, and that takes no connections, must not end its parent's.)
 */
static void look_who_accepts(struct sock *s, int name_fd)
{
    if (!is_of_this_process(name_fd) || imports_accept(NULL))
        return;
    local_names_end(s);
    local_names_close(s);
    atomic_store(&s->names_later, NAMES_AT_ACCEPT);
}

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
            syn_save(s, fd);
            look_who_accepts(s, s->name_fd[i]);
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

/* A client asks once a connection at most, and the kernel takes many more (SOMAXCONN). */
#define DRAIN_EVERY 256u
#define DRAIN_NS UINT64_C(1000000000) /* (others, too, may ask, and never connect) */

void local_names_drain_some(struct sock *s)
{
    uint64_t now = proc_now_ns();
    if (atomic_fetch_add(&s->undrained, 1) < DRAIN_EVERY && now - atomic_load(&s->drained_ns) < DRAIN_NS)
        return;
    atomic_store(&s->undrained, 0);
    atomic_store(&s->drained_ns, now);
    drain(s);
}
