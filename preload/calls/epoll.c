/*
 * epoll_create and epoll_ctl.
 */
#include "preload/ready/epoll.h"

#include <errno.h>
#include <sys/epoll.h>

#include "preload/calls/ring.h"
#include "preload/conn/conn.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll_set.h"

/* Events that are allowed together with EPOLLEXCLUSIVE. */
#define EXCLUSIVE_OK (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

int epoll_create(int size)
{
    return epoll_created(REAL(epoll_create)(size));
}

int epoll_create1(int flags)
{
    return epoll_created(REAL(epoll_create1)(flags));
}

/* set->lock is held. *drop: a reference that the caller drops after unlocking. */
static int ctl_add(struct epset *set, int fd, const struct epoll_event *ev, struct sock **drop)
{
    struct watch *w = watch_new(set, fd);
    if (w == NULL) {
        errno = ENOMEM;
        return -1;
    }
    w->data = ev->data;
    w->events = ev->events;
    w->sock = *drop = sock_get(fd);
    struct sock *s = w->sock;
    if (s != NULL)
        atomic_store(&s->polled, true);
    uint32_t events = watch_kernel_events(w);
    w->kevents = events;
    if (set->share != NULL)
        share_enter(w);
    if (ev->events & EPOLLEXCLUSIVE)
        events |= ev->events & ~(uint32_t)EXCLUSIVE_OK; /* the kernel refuses it */
    if (watch_put(w, EPOLL_CTL_ADD, events) < 0) {
        int err = errno;
        share_forget(w);
        watch_free(w);
        errno = err;
        return -1;
    }
    *drop = NULL;
    /* Deleted without us? */
    struct watch *old = s ? watch_current(set, fd, s) : NULL;
    if (old != NULL)
        *drop = watch_remove(old);
    watch_enter(w);
    if (s != NULL) {
        lock_take(&s->watch_lock);
        watch_refresh(w, false); /* it may have changed meanwhile */
        lock_give(&s->watch_lock);
        if (atomic_load(&s->active) && conn_may_be_staged(s->conn))
            watch_queue(w);
    }
    return 0;
}

/* The same for one of the simple kind, level-triggered before and after. */
static int ctl_mod_simple(struct watch *w, const struct epoll_event *ev)
{
    struct sock *s = w->sock;
    lock_take(&s->watch_lock);
    uint32_t old = w->events;
    w->events = ev->events;
    int r = watch_tell(w), err = errno;
    if (r == 0) {
        w->data = ev->data;
        w->out_told = false;
    } else {
        w->events = old;
    }
    lock_give(&s->watch_lock);
    if (r == 0 && (watch_is_owed(w) || (atomic_load(&s->active) && conn_may_be_staged(s->conn))))
        watch_queue(w);
    errno = err;
    return r;
}

/* set->lock is held. */
static int ctl_mod(struct epset *set, struct watch *w, const struct epoll_event *ev)
{
    if (!(ev->events & EPOLL_MODE_BITS) && watch_may_differ(w))
        return ctl_mod_simple(w, ev);
    struct sock *s = w->sock;
    struct epoll_event kev = *ev;                  /* (the real call takes no const) */
    if ((w->events | ev->events) & EPOLLEXCLUSIVE) /* an error */
        return REAL(epoll_ctl)(atomic_load(&set->epfd), EPOLL_CTL_MOD, w->fd, &kev);
    if (s != NULL)
        lock_take(&s->watch_lock);
    uint32_t old = w->events;
    bool was_disarmed = w->disarmed;
    w->events = ev->events;
    w->disarmed = false;
    w->out_told = false;
    epoll_data_t old_data = w->data;
    w->data = ev->data;
    uint32_t old_kevents = w->kevents;
    w->kevents = watch_kernel_events(w);
    share_save(w, true);
    int r = watch_put(w, EPOLL_CTL_MOD, w->kevents);
    int err = errno;
    if (r < 0) {
        w->events = old;
        w->disarmed = was_disarmed;
        w->kevents = old_kevents;
        w->data = old_data;
        share_save(w, false);
    } else {
        w->foreign = false;
        if (s != NULL && s->conn != NULL && conn_has_chan(s->conn))
            watch_refresh(w, false); /* its channel */
    }
    if (s != NULL)
        lock_give(&s->watch_lock);
    if (r == 0 && s != NULL && atomic_load(&s->active) && conn_may_be_staged(s->conn))
        watch_queue(w);
    errno = err;
    return r;
}

/*
 * set->lock is held. w, of s, is parked: for the program there is none. True: it is registered again, and the call is
 * done.
 */
static bool ctl_parked(struct watch *w, int op, const struct epoll_event *ev)
{
    if (op == EPOLL_CTL_ADD && watch_unpark(w, ev))
        return true;
    watch_expel(w, false);
    return false;
}

static int ctl(struct epset *set, int epfd, int op, int fd, struct epoll_event *ev)
{
    struct sock *drop = NULL, *s = NULL;
    struct watch *w = NULL;
    bool again = false;
    int r, err;
    if (epset_is_tokened(set))
        epoll_nest(fd);
    if (ring_any())
        ring_awaits(fd);
    epset_lock_whole(set);
    if (op != EPOLL_CTL_ADD || set->parked_n > 0) {
        s = sock_get(fd);
        w = watch_current(set, fd, s);
    }
    if (w != NULL && w->parked) {
        again = ctl_parked(w, op, ev);
        w = NULL;
    }
    if (again || (op == EPOLL_CTL_DEL && w != NULL && watch_park(w))) {
        r = 0;
    } else if (op == EPOLL_CTL_ADD) {
        r = ctl_add(set, fd, ev, &drop);
    } else if (op == EPOLL_CTL_MOD && w != NULL) {
        r = ctl_mod(set, w, ev);
    } else {
        if (w != NULL)
            share_save(w, false); /* (if this process dies here, the others ask the kernel) */
        r = REAL(epoll_ctl)(epfd, op, fd, ev);
        if (r == 0 && op == EPOLL_CTL_DEL && w != NULL)
            drop = watch_remove(w);
    }
    err = errno;
    bool awake = atomic_load(&set->ready_n) > 0 && share_awaited(set);
    epset_unlock(set);
    if (awake)
        epset_kick(set);
    if (drop != NULL)
        sock_put(drop);
    if (s != NULL)
        sock_put(s);
    errno = err;
    return r;
}

/* (The set is one, in the kernel and in memory, for a vfork child and its parent.) */
int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
    struct epset *set = fd < 0 || (op != EPOLL_CTL_DEL && !usermem_readable(ev, sizeof(*ev))) ? NULL : epset_hold(epfd);
    if (set == NULL)
        return REAL(epoll_ctl)(epfd, op, fd, ev);
    int r = ctl(set, epfd, op, fd, ev);
    int err = errno;
    epset_put(set);
    errno = err;
    return r;
}
