/*
 * Connections that this program finds: those that a former one has handed on (inherit.c), and descriptors passed to it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/addr.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/calls/exec.h"
#include "preload/calls/ring.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/conn_peek.h"
#include "preload/conn/shmem.h"
#include "preload/process/imports.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/shortage.h"
#include "preload/process/tcpinfo.h"
#include "preload/sock/pending.h"
#include "preload/startup/local.h"
#include "preload/startup/mark.h"
#include "preload/startup/startup.h"

struct given {
    ino_t ino;
    struct conn_place at;
    unsigned shared; /* others had it as well */
    int fd;          /* where it was found, -1 */
};

static unsigned parse(const char *text, struct given **out)
{
    unsigned n = 0, cap = 0;
    *out = NULL;
    for (const char *p = text; p != NULL && *p != '\0' && n < INHERIT_ENTRIES_MAX;) {
        uintmax_t ino;
        struct given g = { .fd = -1 };
        int used = 0;
        if (sscanf(p, "%ju:%d:%" SCNxPTR ":%u:%u:%d%n", &ino, &g.at.shmem_fd, &g.at.block, &g.at.slot, &g.shared,
                   &g.at.maker, &used) != 6 ||
            used == 0)
            break;
        if (n == cap) {
            cap = cap ? 2 * cap : 16;
            struct given *more = realloc(*out, cap * sizeof(*more));
            if (more == NULL)
                break;
            *out = more;
        }
        g.ino = (ino_t)ino;
        (*out)[n++] = g;
        p += used;
        p += *p == ';';
    }
    return n;
}

static void set_nonblock_as_is(struct sock *s, int fd)
{
    int fl = REAL(fcntl)(fd, F_GETFL);
    atomic_store(&s->nonblock, fl >= 0 && (fl & O_NONBLOCK));
}

static void take_up_given(int fd, int domain, struct given *g)
{
    struct conn *c = conn_take_up(&g->at);
    struct sock *s = c != NULL ? sock_new(fd, domain) : NULL;
    if (s == NULL) {
        trace_error("fd %d: an upgraded connection of the former program cannot be taken over", fd);
        if (!g->shared) /* what the others have goes on */
            tcpinfo_reset(fd);
        if (c != NULL)
            conn_release(c, NULL);
        return;
    }
    g->fd = fd;
    s->conn = c;
    s->kind = SOCK_CONN;
    set_nonblock_as_is(s, fd);
    atomic_store(&s->active, true);
    if ((conn_state(c) == CONN_UPGRADED && conn_tail_is_ours(c)) || conn_is_late(c))
        pending_add(s);
    sock_put(s);
}

/* sent: by a socket; names that come by an exec are looked at as they are adopted. */
static void take_up_listener(int fd, const struct sockaddr_storage *local, socklen_t len, bool sent)
{
    struct sock *s = sock_new(fd, local->ss_family);
    if (s == NULL)
        return;
    s->port_known = true;
    s->kind = SOCK_LISTENER;
    set_nonblock_as_is(s, fd);
    bool may = policy_match_listener(&proc.set.policy, (const struct sockaddr *)local, len) != NULL && names_may_be() &&
               !ring_drives_sockets();
    if (!may)
        mark_take_back(fd);
    else if (sent && !imports_accept(NULL))
        atomic_store(&s->names_later, NAMES_AT_ACCEPT);
    else
        local_names_open(s, fd);
    sock_put(s);
}

/* One that is to listen, or to be connected. */
static void take_up_new(int fd, int domain)
{
    struct sock *s = sock_new(fd, domain);
    if (s == NULL)
        return;
    s->port_known = true; /* the program that bound it may rely on that */
    set_nonblock_as_is(s, fd);
    sock_put(s);
}

/* Nothing was read from it: all that was received is still there. (The former program may have sent something.) */
static bool untouched(int fd, uint64_t *said)
{
    uint64_t taken;
    return tcpinfo_taken(fd, &taken, said) && taken == 0;
}

/* There is no memory for it: this program must not read the Hello that waits. */
static void refuse_greeted(int fd)
{
    ssize_t len = startup_greeting(fd);
    if (len > 0 || len == -EAGAIN)
        tcpinfo_reset(fd);
}

/*
 * It is not added to the pending connections: the parent may use it as well, and this process must touch it only if its
 * program does.
 */
static void take_up_fresh(int fd, const struct sockaddr_storage *local, socklen_t len,
                          const struct sockaddr_storage *peer)
{
    uint64_t said;
    const struct policy_rule *rule = policy_match(&proc.set.policy, POLICY_ACCEPT, (const struct sockaddr *)local, len);
    if (rule == NULL || !untouched(fd, &said))
        return;
    struct sock *s = sock_new(fd, local->ss_family);
    struct conn *c = s != NULL ? conn_new(true, CONN_NEGOTIATING, rule) : NULL;
    if (c != NULL && startup_begin(c) == 0) {
        c->local = *local;
        c->peer = *peer;
        c->startup.inherited = true;
        c->neg.streamed = said;
        c->tx.kernel_total = said;
        atomic_store(&c->tx.plain_total, said);
        unsigned reason = rule->action == POLICY_OFF ? REASON_POLICY : fd <= 2 ? REASON_STD_FD : REASON_NONE;
        if (reason != REASON_NONE)
            negotiate_decline(&c->neg, reason);
        set_nonblock_as_is(s, fd);
        conn_peek_found(fd);
        s->conn = c;
        s->kind = SOCK_CONN;
        atomic_store(&s->active, true);
    } else {
        if (c != NULL)
            conn_release(c, NULL);
        refuse_greeted(fd);
    }
    if (s != NULL)
        sock_put(s);
}

struct seen {
    ino_t ino;
    int fd;
};

struct taking {
    struct given *given;
    unsigned given_n;
    int name[NAMES_MAX]; /* listeners' names, for those that are taken up */
    unsigned name_n;
    struct seen seen[64]; /* other sockets taken up: inetd gives 0, 1 and 2 */
    unsigned seen_n;
};

#define LOW_FDS 64 /* looked at where /proc does not tell which there are */

/* A TCP socket's family, and whether it listens. */
static bool is_tcp(int fd, int *domain, int *listens)
{
    int protocol;
    socklen_t len = sizeof(int);
    return DESPITE_SHORTAGE(REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len)) == 0 &&
           protocol == IPPROTO_TCP &&
           DESPITE_SHORTAGE(REAL(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, domain, &len)) == 0 &&
           (*domain == AF_INET || *domain == AF_INET6) &&
           DESPITE_SHORTAGE(REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, listens, &len)) == 0;
}

/* A descriptor of which we know only what the kernel says. */
static void take_up_unknown(int fd, int domain, bool listens, bool sent)
{
    struct sockaddr_storage local, peer;
    socklen_t len = sizeof(local), peer_len = sizeof(peer);
    if (DESPITE_SHORTAGE(REAL(getsockname)(fd, (struct sockaddr *)&local, &len)) < 0)
        return;
    if (listens)
        take_up_listener(fd, &local, len, sent);
    else if (DESPITE_SHORTAGE(REAL(getpeername)(fd, (struct sockaddr *)&peer, &peer_len)) == 0)
        take_up_fresh(fd, &local, len, &peer);
    else if (tcpinfo_state(fd) == TCP_CLOSE)
        take_up_new(fd, domain);
}

struct same {
    ino_t ino;
    struct sockaddr_storage peer; /* of no family: there is none */
    struct sock *s;               /* with a reference */
};

/* Is it not worth a system call, since they have not the same peer? */
static bool another_peer(const struct sock *s, const struct sockaddr_storage *peer)
{
    if (s->kind != SOCK_CONN || s->conn == NULL || peer->ss_family == AF_UNSPEC)
        return (s->kind == SOCK_CONN) != (peer->ss_family != AF_UNSPEC);
    return addr_port(&s->conn->peer) != addr_port(peer);
}

static void find_same(int fd, struct sock *s, void *arg)
{
    struct same *w = arg;
    if (w->s == NULL && !another_peer(s, &w->peer) && sock_ino(fd) == w->ino)
        w->s = sock_get(fd);
}

void inherit_passed(int fd)
{
    int err = errno, domain, listens = 0;
    struct same w = { .ino = sock_ino(fd) };
    socklen_t len = sizeof(w.peer);
    sock_drop(fd);
    if (w.ino != 0 && is_tcp(fd, &domain, &listens)) {
        if (listens || DESPITE_SHORTAGE(REAL(getpeername)(fd, (struct sockaddr *)&w.peer, &len)) < 0)
            w.peer.ss_family = AF_UNSPEC;
        sock_each(find_same, &w); /* it may have come from this very process */
        if (w.s != NULL) {
            sock_dup(w.s, fd);
            sock_put(w.s);
        } else {
            take_up_unknown(fd, domain, listens, true);
        }
    }
    errno = err;
}

static void take_up(int fd, void *arg)
{
    struct taking *t = arg;
    ino_t ino = sock_peek(fd) == NULL ? sock_ino(fd) : 0;
    int domain, listens;
    if (ino != 0 && t->name_n < SW_ARRAY_LEN(t->name) && local_name_is(fd))
        t->name[t->name_n++] = fd;
    if (ino == 0 || !is_tcp(fd, &domain, &listens))
        return;
    struct given *g = NULL;
    int other = -1;
    for (unsigned i = 0; i < t->given_n && g == NULL; i++)
        if (t->given[i].ino == ino) {
            g = &t->given[i];
            other = g->fd;
        }
    for (unsigned i = 0; i < t->seen_n && g == NULL && other < 0; i++)
        if (t->seen[i].ino == ino)
            other = t->seen[i].fd;
    struct sock *s = other >= 0 ? sock_get(other) : NULL;
    if (s != NULL) {
        sock_dup(s, fd);
        sock_put(s);
        return;
    }
    if (g != NULL) {
        take_up_given(fd, domain, g);
        return;
    }
    take_up_unknown(fd, domain, listens, false);
    if (t->seen_n < SW_ARRAY_LEN(t->seen)) {
        t->seen[t->seen_n].ino = ino;
        t->seen[t->seen_n++].fd = fd;
    }
}

void inherit_each_fd(void (*each)(int fd, void *arg), void *arg)
{
    DIR *dir = opendir("/proc/self/fd");
    int err = EMFILE;
    if (dir != NULL) {
        struct dirent *e;
        for (errno = 0; (e = readdir(dir)) != NULL; errno = 0) {
            int fd = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? atoi(e->d_name) : -1;
            if (fd >= 0 && fd != dirfd(dir))
                each(fd, arg);
        }
        err = errno;
        closedir(dir);
    }
    for (int fd = 0; err != 0 && fd < LOW_FDS; fd++)
        each(fd, arg);
}

/* Connections that posix_spawn's parent has counted this child for, and that it did not get. */
static void not_given(struct given *g, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct conn *c = g[i].fd < 0 ? conn_take_up(&g[i].at) : NULL;
        if (c != NULL)
            conn_release(c, NULL);
    }
}

void inherit_start(void)
{
    struct taking t = { 0 };
    const char *text = secure_getenv(INHERIT_VAR);
    t.given_n = parse(text, &t.given);
    for (unsigned i = 0; i < t.given_n; i++)
        shmem_learn(t.given[i].at.shmem_fd);
    inherit_each_fd(take_up, &t);
    for (unsigned i = 0; i < t.name_n; i++)
        local_name_adopt(t.name[i]);
    not_given(t.given, t.given_n);
    for (unsigned i = 0; i < t.given_n; i++) {
        bool first = true;
        for (unsigned j = 0; j < i; j++)
            first = first && t.given[j].at.shmem_fd != t.given[i].at.shmem_fd;
        if (first)
            REAL(close)(t.given[i].at.shmem_fd);
    }
    free(t.given);
    if (text != NULL)
        unsetenv(INHERIT_VAR);
}
