/* Moves a descriptor's registrations to the file that it is about to become. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "preload/calls/bridge.h"
#include "preload/process/signals.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"
#include "preload/sock/sock.h"

struct epoll_moved {
    struct epoll_moved *next;
    int epfd;
    struct epoll_event ev;
};

/* Copies the next registration of s by fd to m. False: there is none. */
static bool registered(struct sock *s, int fd, struct epoll_moved *m)
{
    struct epset *set = NULL;
    uint64_t token = 0;
    lock_take(&s->watch_lock);
    for (struct watch *w = s->watches; w != NULL && set == NULL; w = w->next)
        if (w->fd == fd && !w->parked) {
            set = w->set;
            token = watch_token(w);
        }
    lock_give(&s->watch_lock);
    if (set == NULL)
        return false;
    epset_lock(set);
    const struct watch *w = watch_find(set, token);
    if (w != NULL) {
        m->epfd = atomic_load(&set->epfd);
        m->ev.data = w->data;
        m->ev.events = w->disarmed ? w->events & EPOLL_MODE_BITS : w->events;
    }
    epset_unlock(set);
    return w != NULL;
}

struct epoll_moved *epoll_take(struct sock *s, int fd)
{
    struct epoll_moved *all = NULL, *m;
    while (s->watches != NULL && (m = calloc(1, sizeof(*m))) != NULL) {
        if (!registered(s, fd, m) || epoll_ctl(m->epfd, EPOLL_CTL_DEL, fd, &m->ev) < 0) {
            free(m);
            break;
        }
        m->next = all;
        all = m;
    }
    return all;
}

void epoll_give(struct epoll_moved *moved, int fd)
{
    for (struct epoll_moved *m = moved, *next; m != NULL; m = next) {
        next = m->next;
        epoll_ctl(m->epfd, EPOLL_CTL_ADD, fd, &m->ev);
        free(m);
    }
}
