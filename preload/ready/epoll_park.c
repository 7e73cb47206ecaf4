/*
 * Registrations that the kernel has otherwise than the program.
 *
 * Many event loops delete a registration only to make it again for other events before they wait (redis, for each
 * request): to the kernel that is one change, or none. So a deletion is put off: the registration is parked. For the
 * program it is gone. If the same socket is registered again by the same number, it is taken up, and the kernel told
 * what differs. Else it is deleted in the kernel, too, when the kernel reports something by it, and before anything
 * that would leave the kernel's registration without us: the number is closed, the process forked, the set polled from
 * outside.
 *
 *     registered <--- ADD ---- parked ---- an event, close, fork, nesting ---> deleted
 *          '----- DEL ----------^
 *
 * And a registration that asks for writability is mostly answered at once, and then changed back. So while there is
 * likely room (conn_room_likely) the kernel is not told either: the registration is late. It stands on the ready list,
 * and the next wait tells the program; when there is no room, the kernel is told after all. If it reports what the
 * program has ceased to ask for, likewise.
 *
 * Only what is simple is parked or late: an upgraded connection, level-triggered, in a set that no other process
 * knows; late, one whose sends do not wait, since room that is only likely would let them.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "preload/conn/conn.h"
#include "preload/conn/conn_batch.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"

#define OUT_BITS (uint32_t)(EPOLLOUT | EPOLLWRNORM)
#define IN_BITS (uint32_t)(EPOLLIN | EPOLLRDNORM | EPOLLRDHUP)

static _Atomic bool forking; /* nothing is parked, nothing late */

bool watch_may_differ(const struct watch *w)
{
    const struct epset *set = w->set;
    const struct sock *s = w->sock;
    return s != NULL && set->share == NULL && w->tokened && !atomic_load(&set->nested) && !atomic_load(&forking) &&
           !w->foreign && !w->disarmed && ((w->events | w->kevents) & EPOLL_MODE_BITS) == 0 && w->chan < 0 &&
           atomic_load(&s->active) && conn_state(s->conn) == CONN_UPGRADED && conn_on_socket(s->conn);
}

/* May the kernel's registration stay as it is, if k is needed? */
static bool may_be_late(const struct watch *w, uint32_t k)
{
    uint32_t lacks = k & ~w->kevents, has = w->kevents & ~k;
    return (lacks & ~OUT_BITS) == 0 && (has & ~IN_BITS) == 0 && watch_may_differ(w) &&
           atomic_load(&w->sock->nonblock) && conn_room_likely(w->sock->conn);
}

int watch_tell(struct watch *w)
{
    uint32_t k = watch_kernel_events(w);
    if (k != w->kevents && may_be_late(w, k)) {
        if (!atomic_exchange(&w->late, true))
            atomic_fetch_add(&w->set->late_n, 1);
        return 0;
    }
    if (k != w->kevents && watch_put(w, EPOLL_CTL_MOD, k) < 0)
        return -1;
    watch_is_told(w);
    return 0;
}

bool watch_park(struct watch *w)
{
    struct epset *set = w->set;
    struct sock *s = w->sock;
    if (!watch_may_differ(w))
        return false;
    lock_take(&s->watch_lock);
    w->parked = true;
    w->events = 0;
    watch_is_told(w);
    lock_give(&s->watch_lock);
    watch_unqueue(w);
    set->parked_n++;
    return true;
}

bool watch_unpark(struct watch *w, const struct epoll_event *ev)
{
    struct sock *s = w->sock;
    if (ev->events & EPOLL_MODE_BITS)
        return false; /* a fresh registration: present events have to be reported */
    lock_take(&s->watch_lock);
    w->events = ev->events;
    w->parked = false;
    int r = watch_tell(w);
    if (r == 0) {
        w->data = ev->data;
        w->told_seq = 0;
        w->out_told = false;
        w->set->parked_n--;
    } else {
        w->parked = true;
        w->events = 0;
    }
    lock_give(&s->watch_lock);
    if (r == 0 && (watch_is_owed(w) || (atomic_load(&s->active) && conn_may_be_staged(s->conn))))
        watch_queue(w);
    return r == 0;
}

void watch_expel(struct watch *w, bool closing)
{
    struct epset *set = w->set;
    struct epoll_event none = { 0 };
    int err = errno;
    if (closing || watch_number_is_its(w))
        REAL(epoll_ctl)(atomic_load(&set->epfd), EPOLL_CTL_DEL, w->fd, &none);
    errno = err;
    watch_detach(w);
    w->older = set->gone;
    set->gone = w;
}

void epset_expel_all(struct epset *set)
{
    for (int c = 0; (set->parked_n > 0 || atomic_load(&set->late_n) > 0) && c < EPOLL_CHUNKS; c++)
        for (int i = 0; set->chunk[c] != NULL && i < EPOLL_FDS_CHUNK; i++)
            for (struct watch *w = set->chunk[c][i], *older; w != NULL; w = older) {
                older = w->older;
                if (w->parked) {
                    watch_expel(w, false);
                } else if (atomic_load(&w->late)) {
                    lock_take(&w->sock->watch_lock);
                    watch_refresh(w, false);
                    lock_give(&w->sock->watch_lock);
                }
            }
}

/* A parked registration of s by this number: its set and token, or NULL. */
static struct epset *parked_by(struct sock *s, int fd, uint64_t *token)
{
    struct epset *set = NULL;
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && set == NULL; w = w->next)
        if (w->parked && w->fd == fd) {
            set = w->set;
            *token = watch_token(w);
        }
    lock_give(&s->watch_lock);
    return set;
}

void epoll_expel(struct sock *s, int fd)
{
    uint64_t token = 0;
    for (struct epset *set; s->watches != NULL && (set = parked_by(s, fd, &token)) != NULL;) {
        epset_lock(set);
        struct watch *w = watch_find(set, token);
        if (w != NULL && w->sock == s && w->parked)
            watch_expel(w, true);
        epset_unlock(set);
    }
}

void epoll_park_stop(void)
{
    atomic_store(&forking, true);
    for (int fd = 0; fd < epoll_fd_limit(); fd++) {
        struct epset *set = epset_hold(fd);
        if (set == NULL)
            continue;
        if ((set->parked_n > 0 || atomic_load(&set->late_n) > 0) && epoll_lock_for_fork(&set->lock)) {
            epset_expel_all(set);
            epset_unlock(set);
        }
        epset_put(set);
    }
}

void epoll_park_go_on(void)
{
    atomic_store(&forking, false);
}
