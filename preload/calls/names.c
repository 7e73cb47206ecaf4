/*
 * Listeners' names (preload/startup/local.h) when a listener goes to another program: one that loads this library gets
 * them as well, so that it can end them in its turn; before one that does not, they end, for it would find a Hello
 * where its client's bytes should be.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "preload/calls/exec.h"
#include "preload/calls/ring.h"
#include "preload/conn/conn.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/sock.h"
#include "preload/startup/local.h"

/* Those that a vfork child has made since are unknown here. */
#define BEYOND 64

struct going {
    struct names *names; /* NULL: they end */
    int fd;
};

static void give(struct names *n, struct sock *s)
{
    for (int i = 0; i < SOCK_NAMES; i++) {
        int fd = s->name_fd[i] >= 0 && n->n < NAMES_MAX ? REAL(fcntl)(s->name_fd[i], F_DUPFD, s->name_fd[i]) : -1;
        if (fd >= 0)
            n->fd[n->n++] = fd;
    }
}

static void go(int fd, struct sock *s, void *arg)
{
    const struct going *g = arg;
    if (s->kind != SOCK_LISTENER || atomic_load(&s->fd) != fd ||
        (!local_names_are_of(s, g->fd) && (s->mark == 0 || sock_ino(fd) != sock_ino(g->fd))))
        return;
    if (g->names != NULL)
        give(g->names, s);
    else
        local_names_end(s);
}

static bool listens(int fd)
{
    int is = 0;
    socklen_t len = sizeof(is);
    return REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &len) == 0 && is;
}

void names_leave(struct names *n, bool can, const posix_spawn_file_actions_t *fa)
{
    n->n = 0;
    if (local_names() == 0)
        return;
    int err = errno, limit = sock_fd_limit() + BEYOND;
    for (int fd = 0; fd < limit; fd++) {
        struct going g = { .names = can ? n : NULL, .fd = fd };
        int flags = REAL(fcntl)(fd, F_GETFD);
        if (flags >= 0 && (!(flags & FD_CLOEXEC) || spawn_gives(fa, fd)) && listens(fd) && !hidden_is(fd))
            sock_each(go, &g);
    }
    errno = err;
}

void names_stayed(struct names *n)
{
    for (unsigned i = 0; i < n->n; i++)
        REAL(close)(n->fd[i]);
    n->n = 0;
}

bool names_may_be(void)
{
    return !atomic_load(&ring_sockets) && !atomic_load(&proc.passes_conns);
}

static void end(int fd, struct sock *s, void *arg)
{
    (void)fd;
    (void)arg;
    if (s->kind == SOCK_LISTENER)
        local_names_end(s);
}

void names_passed(int fd)
{
    struct sock *s = sock_get(fd);
    if (s == NULL)
        return;
    sock_unsure(s, SOCK_NO_OPTION);
    if (s->kind == SOCK_LISTENER) {
        local_names_end(s); /* for the processes that share them */
        local_names_close(s);
    } else if (s->kind == SOCK_CONN && s->conn != NULL && !atomic_exchange(&proc.passes_conns, true) &&
               local_names() > 0) {
        sock_each(end, NULL);
    }
    sock_put(s);
}
