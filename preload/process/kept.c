/*
 * Descriptors that are kept. See kept.h.
 */
#include "preload/process/kept.h"

#include <stdatomic.h>

#include "preload/process/hidden.h"
#include "preload/process/proc.h"

static _Atomic bool never;

void kept_drop(struct kept *k, unsigned i)
{
    int fd = atomic_exchange(&k->fd[i], 0);
    if (fd != 0)
        hidden_close(fd);
}

static void drop_all(struct kept *k)
{
    for (unsigned i = 0; i < k->n; i++)
        kept_drop(k, i);
}

/* In a child the lock may be a parent's thread's, which is not here. */
static bool take(struct kept *k, pid_t pid)
{
    int32_t holder = 0;
    return atomic_compare_exchange_strong(&k->lock, &holder, pid) ||
           (holder != pid && atomic_compare_exchange_strong(&k->lock, &holder, pid));
}

bool kept_begin(struct kept *k)
{
    pid_t pid = proc_pid();
    if (atomic_load(&never) || !take(k, pid))
        return false;
    if (k->pid != pid)
        drop_all(k);
    k->pid = pid;
    return true;
}

void kept_end(struct kept *k)
{
    atomic_store(&k->lock, 0);
    if (atomic_load(&never)) /* which another thread has set meanwhile */
        kept_leave_network(k);
}

int kept_put(struct kept *k, unsigned i, int fd)
{
    kept_drop(k, i);
    fd = fd >= 0 ? hidden_move(fd) : -1;
    if (fd >= 0 && !hidden_is(fd)) {
        hidden_close(fd);
        fd = -1;
    }
    if (fd >= 0) {
        atomic_store(&k->fd[i], fd);
        hidden_own(fd, &k->fd[i]);
    }
    return fd;
}

bool kept_has_left(void)
{
    return atomic_load(&never);
}

void kept_leave_network(struct kept *k)
{
    atomic_store(&never, true);
    if (!take(k, proc_pid()))
        return; /* its holder does it */
    drop_all(k);
    atomic_store(&k->lock, 0);
}
