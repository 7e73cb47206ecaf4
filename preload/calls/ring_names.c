/*
 * The names of listeners (startup/local.h) in a program that may accept by rings of its own.
 */
#include <stdatomic.h>

#include "core/base/trace.h"
#include "preload/calls/exec.h"
#include "preload/calls/ring.h"
#include "preload/sock/sock.h"
#include "preload/startup/local.h"

static void names_go(int fd, struct sock *s, void *arg)
{
    const bool *later = arg;
    (void)fd;
    if (s->kind != SOCK_LISTENER)
        return;
    if (s->name_fd[0] >= 0 || s->mark != 0) {
        local_names_end(s); /* for the processes that share them */
        local_names_close(s);
        atomic_store(&s->names_later, NAMES_AT_WAIT);
    }
    if (!*later)
        atomic_store(&s->names_later, NAMES_NOT_LATER);
}

void ring_look_made(void)
{
    bool later = true;
    if (local_names() > 0)
        sock_each(names_go, &later);
}

void ring_look_sockets(const char *how)
{
    atomic_store(&ring_ever, true);
    if (atomic_exchange(&ring_sockets, true))
        return;
    bool later = false;
    trace_info("the program drives sockets through its own io_uring: %s", how);
    sock_each(names_go, &later);
}

static void due(struct sock *s, int fd, uint8_t when)
{
    if (s->kind == SOCK_LISTENER && !ring_drives_sockets() &&
        atomic_compare_exchange_strong(&s->names_later, &when, NAMES_NOT_LATER) && names_may_be())
        local_names_open(s, fd);
}

void ring_awaits(int fd)
{
    struct sock *s = ring_drives_sockets() ? NULL : sock_get(fd);
    if (s == NULL)
        return;
    due(s, fd, NAMES_AT_WAIT);
    sock_put(s);
}

void ring_accepts(struct sock *s, int fd)
{
    due(s, fd, NAMES_AT_WAIT);
    due(s, fd, NAMES_AT_ACCEPT);
}
