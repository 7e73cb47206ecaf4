/*
 * The ready lists of epoll sets: connections with events for the program that the kernel does not know, or has reported
 * already.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

#include "preload/conn/conn.h"
#include "preload/process/hidden.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"
#include "preload/sock/poller.h"

#define READ_BITS (uint32_t)(EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLERR | EPOLLHUP)

void epset_kick(struct epset *set)
{
    int fd = atomic_load(&set->kick_fd);
    if (set->share != NULL && fd >= 0 && !hidden_is(fd))
        return; /* a child has closed all descriptors that it found open */
    poller_kick(fd);
}

void epset_kick_make(struct epset *set)
{
    if (atomic_load(&set->kick_fd) >= 0)
        return;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return;
    fd = hidden_move(fd);
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = EPOLL_KICK_TOKEN };
    int none = -1;
    if (!atomic_compare_exchange_strong(&set->kick_fd, &none, fd))
        hidden_close(fd);
    else if (REAL(epoll_ctl)(atomic_load(&set->epfd), EPOLL_CTL_ADD, fd, &ev) < 0) {
        atomic_store(&set->kick_fd, -1);
        hidden_close(fd);
    } else {
        hidden_own(fd, &set->kick_fd);
    }
}

/* ready_lock is held. */
static void append(struct epset *set, struct watch *w)
{
    w->rnext = NULL;
    w->rpprev = set->ready_end;
    *set->ready_end = w;
    set->ready_end = &w->rnext;
}

static void take_out(struct epset *set, struct watch *w)
{
    *w->rpprev = w->rnext;
    if (w->rnext != NULL)
        w->rnext->rpprev = w->rpprev;
    else
        set->ready_end = w->rpprev;
}

/* Likewise; it was queued. */
static void leave_list(struct epset *set, struct watch *w)
{
    w->queued = false;
    take_out(set, w);
    if (atomic_fetch_sub(&set->ready_n, 1) == 1 && atomic_load(&set->nested))
        poller_kick_drain(atomic_load(&set->kick_fd));
}

void watch_queue(struct watch *w)
{
    struct epset *set = w->set;
    if (!epset_is_tokened(set))
        return; /* epset_take_over looks for present events */
    lock_take(&set->ready_lock);
    if (!w->queued) {
        w->queued = true;
        append(set, w);
        if (atomic_fetch_add(&set->ready_n, 1) == 0 && atomic_load(&set->nested))
            epset_kick(set);
    }
    lock_give(&set->ready_lock);
}

void watch_unqueue(struct watch *w)
{
    struct epset *set = w->set;
    lock_take(&set->ready_lock);
    if (w->queued)
        leave_list(set, w);
    lock_give(&set->ready_lock);
}

/* Does the kernel report all of its events, too? */
static bool is_read(const struct watch *w)
{
    const struct sock *s = w->sock;
    return s != NULL && !w->disarmed && !(w->events & ~READ_BITS) && atomic_load(&s->active) &&
           conn_state(s->conn) == CONN_UPGRADED && !conn_may_be_staged(s->conn) && !s->conn->rx.shut;
}

void epset_drop_read(struct epset *set)
{
    if (set->share != NULL)
        return;
    epset_lock(set);
    lock_take(&set->ready_lock);
    for (struct watch *w = set->ready_first, *next; w != NULL; w = next) {
        next = w->rnext;
        if (is_read(w))
            leave_list(set, w);
    }
    lock_give(&set->ready_lock);
    epset_unlock(set);
}

bool epset_rotate(struct epset *set, uint64_t *token)
{
    lock_take(&set->ready_lock);
    struct watch *w = set->ready_first;
    if (w != NULL) {
        *token = watch_token(w);
        take_out(set, w);
        append(set, w);
    }
    lock_give(&set->ready_lock);
    return w != NULL;
}

bool epset_list_hold(struct epset *set)
{
    lock_take(&set->ready_lock);
    bool held = atomic_load(&set->ready_n) > 0;
    if (held)
        atomic_fetch_add(&set->ready_n, 1);
    lock_give(&set->ready_lock);
    return held;
}

void epset_list_release(struct epset *set)
{
    lock_take(&set->ready_lock);
    if (atomic_fetch_sub(&set->ready_n, 1) == 1 && atomic_load(&set->nested))
        poller_kick_drain(atomic_load(&set->kick_fd));
    lock_give(&set->ready_lock);
}

void epset_keep(struct epset *set, const struct epoll_event *ev)
{
    uint32_t n = atomic_load(&set->kept_n);
    if (n == EPOLL_KEPT_MAX)
        return;
    set->kept[n] = *ev;
    atomic_store(&set->kept_n, n + 1);
    lock_take(&set->ready_lock);
    if (atomic_fetch_add(&set->ready_n, 1) == 0 && atomic_load(&set->nested))
        epset_kick(set);
    lock_give(&set->ready_lock);
}

bool epset_kept(struct epset *set, struct epoll_event *ev)
{
    epset_lock(set);
    uint32_t n = atomic_load(&set->kept_n);
    if (n > 0) {
        *ev = set->kept[0];
        memmove(set->kept, set->kept + 1, (n - 1) * sizeof(*ev));
        atomic_store(&set->kept_n, n - 1);
        epset_list_release(set);
    }
    epset_unlock(set);
    return n > 0;
}

void epoll_nest(int fd)
{
    struct epset *set = epset_hold(fd);
    if (set == NULL)
        return;
    epset_take_over(set);
    if (!atomic_load(&set->nested)) {
        epset_kick_make(set);
        lock_take(&set->ready_lock);
        atomic_store(&set->nested, true);
        if (atomic_load(&set->ready_n) > 0)
            epset_kick(set);
        else
            poller_kick_drain(atomic_load(&set->kick_fd));
        lock_give(&set->ready_lock);
        epset_lock(set);
        epset_expel_all(set); /* it would be readable for them */
        epset_unlock(set);
    }
    epset_put(set);
}
