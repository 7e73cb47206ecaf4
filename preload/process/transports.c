/*
 * The transport variant in use.
 */
#include "preload/process/transports.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/trace.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/signals.h"

static pthread_mutex_t choice_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the choice */
static _Atomic(const struct transport_ops *) transport;

static int close_hidden(int fd)
{
    hidden_close(fd);
    return 0;
}

const struct transport_ops *transport_if_any(void)
{
    return atomic_load_explicit(&transport, memory_order_acquire);
}

const struct transport_ops *transport_now(void)
{
    const struct transport_ops *t = transport_if_any();
    if (t != NULL)
        return t;
    static const struct transport_env env = {
        .hide_fd = hidden_move,
        .close_fd = close_hidden,
        .hold = signals_hold,
        .go_on = signals_go_on,
    };
    lock_take(&choice_lock);
    t = transport_if_any();
    if (t == NULL) {
        const char *why = "";
        int want = proc.set.io == SETTINGS_IO_URING ? 1 : proc.set.io == SETTINGS_IO_SYSCALL ? 0 : -1;
        proc_making_ring = true;
        t = transport_choose(want, &env, &why);
        proc_making_ring = false;
        trace_info("transport %s: %s", t->name, why);
        atomic_store(&transport, t);
    }
    lock_give(&choice_lock);
    return t;
}

void transports_after_fork(void)
{
    pthread_mutex_init(&choice_lock, NULL);
    const struct transport_ops *t = transport_if_any();
    if (t != NULL)
        t->after_fork();
}
