/* Events in a sock's life, in the epoll sets that it is registered in. */
#include "preload/process/signals.h"
#include "preload/ready/epoll.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "preload/conn/conn.h"
#include "preload/ready/epoll_set.h"

#define OUT_BITS (uint32_t)(EPOLLOUT | EPOLLWRNORM)

/* The n-th registration of s that has a record: its set and token; NULL: there are fewer. */
static struct epset *nth_shared(struct sock *s, unsigned n, uint64_t *token)
{
    struct epset *set = NULL;
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && set == NULL; w = w->next)
        if (w->record != 0 && n-- == 0) {
            set = w->set;
            *token = watch_token(w);
        }
    lock_give(&s->watch_lock);
    return set;
}

/* Registrations in shared sets need the set's lock, which comes first. */
static void refresh_shared(struct sock *s)
{
    uint64_t token = 0;
    struct epset *set;
    for (unsigned n = 0; (set = nth_shared(s, n, &token)) != NULL; n++) {
        epset_lock_whole(set);
        struct watch *w = watch_find(set, token);
        if (w != NULL && w->sock == s) {
            lock_take(&s->watch_lock);
            watch_refresh(w, false);
            lock_give(&s->watch_lock);
        }
        epset_unlock(set);
    }
}

static void refresh_all(struct sock *s, bool out_blocked)
{
    bool shared = false;
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL; w = w->next) {
        if (out_blocked)
            w->out_told = false;
        if (w->record != 0)
            shared = true;
        else
            watch_refresh(w, false);
    }
    lock_give(&s->watch_lock);
    if (SW_UNLIKELY(shared))
        refresh_shared(s);
}

void epoll_conn_changed(struct sock *s)
{
    refresh_all(s, false);
}

void epoll_left_over_but(struct sock *s, bool arrived, const struct watch *but)
{
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL; w = w->next)
        if (w != but && !w->disarmed && (arrived || !(w->events & EPOLLET)) &&
            (w->events & (EPOLLIN | EPOLLRDNORM | EPOLLPRI))) {
            watch_queue(w);
            if (share_awaited_elsewhere(w->set))
                epoll_shared_left(); /* before its threads are woken */
            if (share_awaited(w->set))
                epset_kick(w->set);
        }
    lock_give(&s->watch_lock);
}

void epoll_left_over(struct sock *s, bool arrived)
{
    epoll_left_over_but(s, arrived, NULL);
}

void epoll_out_ready(struct sock *s)
{
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL; w = w->next)
        if (w->events & OUT_BITS) {
            watch_queue(w);
            if (atomic_load(&w->set->waiters) > 0)
                epset_kick(w->set);
        }
    lock_give(&s->watch_lock);
}

void epoll_out_blocked(struct sock *s)
{
    refresh_all(s, true);
}

/*
 * Another process has the connection: the kernel goes on reporting this one's registration, as epoll(7) says. Its
 * events are the program's from now on.
 */
static struct sock *left_to_kernel(struct watch *w)
{
    struct sock *s = watch_leave_sock(w);
    w->sock = NULL;
    w->foreign = true;
    return s;
}

void epoll_forget_fd(struct sock *s, int fd, bool last)
{
    (void)fd; /* while other descriptors are open the registration lives on */
    /* (Of a file that is no connection of ours we do not know whether another process has closed it.) */
    bool forked = atomic_load(&s->forked);
    bool shared = s->conn != NULL ? !holders_alone(&s->conn->holders) : forked;
    while (last && s->watches != NULL) {
        struct epset *set = NULL;
        uint64_t token = 0;
        lock_take(&s->watch_lock);
        if (s->watches != NULL) {
            set = s->watches->set;
            token = watch_token(s->watches);
        }
        lock_give(&s->watch_lock);
        if (set == NULL)
            break;
        epset_lock_whole(set);
        struct watch *w = watch_find(set, token);
        struct sock *ref = w == NULL || w->sock != s ? NULL : shared ? left_to_kernel(w) : watch_remove(w);
        epset_unlock(set);
        if (ref != NULL)
            sock_put(ref);
    }
}

bool epoll_watches(struct sock *s)
{
    bool yes = false;
    if (!sock_watched(s))
        return false;
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && !yes; w = w->next)
        yes = !w->parked && !w->disarmed && (w->kevents & EPOLLIN);
    lock_give(&s->watch_lock);
    return yes;
}

bool epoll_awaits(struct sock *s)
{
    bool yes = false;
    if (!sock_watched(s))
        return false;
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && !yes; w = w->next)
        yes = !w->parked && atomic_load(&w->set->waiters) > 0;
    lock_give(&s->watch_lock);
    return yes;
}
