/* What a registration asks of the kernel, by the connection's present state: its events and its token. */
#include "preload/conn/conn.h"
#include "preload/process/real.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"

#define OUT_BITS (uint32_t)(EPOLLOUT | EPOLLWRNORM)

int watch_put(struct watch *w, int op, uint32_t events)
{
    bool tokened = epset_is_tokened(w->set);
    struct epoll_event ev = { .events = events, .data = w->data };
    if (tokened)
        ev.data.u64 = watch_token(w);
    int r = REAL(epoll_ctl)(atomic_load(&w->set->epfd), op, w->fd, &ev);
    if (r == 0) {
        w->kevents = events;
        w->tokened = tokened;
    }
    return r;
}

uint32_t watch_kernel_events(const struct watch *w)
{
    struct sock *s = w->sock;
    if (w->disarmed)
        return EPOLLONESHOT;
    if (!epset_is_tokened(w->set))
        return w->events;
    if (s == NULL || !atomic_load(&s->active))
        return w->events;
    struct conn *c = s->conn;
    uint32_t mode = w->events & EPOLL_MODE_BITS;
    switch (conn_state(c)) {
    case CONN_CONNECTING:
    case CONN_NEGOTIATING:
        /*
         * Ours alone: level-triggered, so that nothing is lost when the program's own mode takes
         * over. (Exclusive it must be from the beginning: the kernel changes that neither way.)
         */
        mode &= EPOLLEXCLUSIVE;
        if (conn_speaks_plain(c))
            return mode | EPOLLIN | (w->events & EPOLLPRI) | (w->out_told ? 0 : w->events & OUT_BITS);
        return mode | c->startup.kernel_wants;
    case CONN_UPGRADED:
        return mode | conn_ops(c)->kernel_events(c, w->events & ~(uint32_t)EPOLL_MODE_BITS);
    default:
        return w->events;
    }
}

bool watch_number_is_its(const struct watch *w)
{
    if (w->foreign)
        return false;
    struct sock *s = sock_get(w->fd);
    if (s != NULL)
        sock_put(s);
    return s == w->sock;
}

/*
 * The channel of a connection on a device is in the kernel's set beside its socket, with the same token. It is
 * registered by level, whatever the program's mode is: as long as it is readable, an event was not taken yet.
 */
static void chan_refresh(struct watch *w)
{
    struct sock *s = w->sock;
    bool on = s != NULL && !w->disarmed && atomic_load(&s->active) && conn_has_chan(s->conn);
    int chan = on ? conn_chan(s->conn) : -1, epfd = atomic_load(&w->set->epfd);
    uint64_t token = epset_is_tokened(w->set) ? watch_token(w) : w->data.u64;
    if (chan == w->chan && (chan < 0 || token == w->chan_token))
        return;
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = token };
    if (w->chan >= 0 && chan != w->chan)
        REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, w->chan, &ev);
    if (chan >= 0 && REAL(epoll_ctl)(epfd, chan == w->chan ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, chan, &ev) < 0)
        chan = -1;
    bool fresh = chan >= 0 && chan != w->chan;
    w->chan = chan;
    w->chan_token = token;
    if (!fresh)
        return;
    watch_queue(w); /* of what came before, the kernel knows nothing */
    if (atomic_load(&w->set->waiters) > 0)
        epset_kick(w->set);
}

static void refresh(struct watch *w, bool force)
{
    if (w->parked)
        return;
    if (w->record != 0)
        share_load(w);
    uint32_t k = watch_kernel_events(w);
    if (k == w->kevents)
        watch_is_told(w);
    if ((k == w->kevents && !force) || !watch_number_is_its(w))
        return;
    bool edge = k & ~w->kevents & EPOLLET;
    w->turn += edge;
    w->out_again = edge && w->out_told;
    share_save(w, false);
    struct epoll_event none = { 0 };
    int r = 0, op = EPOLL_CTL_MOD;
    if (k & EPOLLEXCLUSIVE) { /* cannot be changed, only made */
        r = REAL(epoll_ctl)(atomic_load(&w->set->epfd), EPOLL_CTL_DEL, w->fd, &none);
        op = EPOLL_CTL_ADD;
    }
    if (r == 0)
        r = watch_put(w, op, k);
    if (r == 0)
        watch_is_told(w);
    else
        w->turn -= edge;
    share_save(w, false);
}

void watch_refresh(struct watch *w, bool force)
{
    refresh(w, force);
    if (SW_UNLIKELY(w->chan >= 0 || (w->sock != NULL && w->sock->conn != NULL && conn_has_chan(w->sock->conn))))
        chan_refresh(w);
}
