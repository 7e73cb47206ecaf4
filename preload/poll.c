/*
 * poll, ppoll, select, pselect: the kernel's poll over the program's descriptors, with ours filtered.
 *
 * Sets without an active connection, in a process without negotiations, go to the kernel untouched.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#include "preload/conn.h"
#include "preload/drive.h"
#include "preload/epoll.h"
#include "preload/proc.h"
#include "preload/ready.h"
#include "preload/real.h"

#define STACK_FDS 64u
#define OTHERS_MAX 64u

struct entry {
    struct sock *sock; /* with a reference; NULL: the kernel's answer stands */
    struct poller poller;
};

/* One poll(2) of the program. Arrays have n entries; kfds OTHERS_MAX + 1 more. */
struct polling {
    struct pollfd *fds;  /* the program's */
    struct pollfd *kfds; /* the kernel's */
    struct entry *ents;
    nfds_t n;
    int kick_fd;
};

/* Fills in revents of ours from the kernel's answer (or without one); returns how many entries have revents. */
static int look(struct polling *p, bool asked)
{
    int ready = 0;
    for (nfds_t i = 0; i < p->n; i++) {
        struct sock *s = p->ents[i].sock;
        short kernel = asked ? p->kfds[i].revents : 0;
        if (s == NULL || !atomic_load(&s->active)) {
            p->fds[i].revents = kernel;
            if (s != NULL) { /* it became plain meanwhile: what the kernel said was an answer to another question */
                p->kfds[i].events = p->fds[i].events;
                p->fds[i].revents &= (short)(p->fds[i].events | POLLERR | POLLHUP | POLLNVAL);
            }
        } else {
            p->fds[i].revents = ready_now(s, p->fds[i].fd, p->fds[i].events, kernel, &p->kfds[i].events);
            ready_arrived(s);
        }
        ready += p->fds[i].revents != 0;
    }
    return ready;
}

static struct timespec left_until(uint64_t until)
{
    uint64_t now = proc_now_ns(), left = until > now ? until - now : 0;
    return (struct timespec){ .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u) };
}

static int rounds(struct polling *p, int64_t timeout_ns, const sigset_t *mask)
{
    uint64_t deadline = timeout_ns > 0 ? proc_now_ns() + (uint64_t)timeout_ns : 0;
    int ready = look(p, false);
    for (;;) {
        /* Something is ready, or the program does not wait: one look at the rest, without waiting. */
        bool now = ready > 0 || timeout_ns == 0;
        uint64_t due = now ? 0 : drive_deadline();
        uint64_t until = deadline != 0 && (due == 0 || deadline < due) ? deadline : due;
        struct sock *others[OTHERS_MAX];
        nfds_t kn = p->n;
        if (p->kick_fd >= 0)
            p->kfds[kn++] = (struct pollfd){ .fd = p->kick_fd, .events = POLLIN };
        unsigned n_others = drive_fill(p->kfds + kn, others, OTHERS_MAX, NULL);
        struct timespec ts = now ? (struct timespec){ 0, 0 } : left_until(until);
        int r = REAL(ppoll)(p->kfds, kn + n_others, now || until != 0 ? &ts : NULL, mask);
        int err = errno;
        drive_filled(p->kfds + kn, others, n_others);
        if (r < 0)
            return ready > 0 && err == EINTR ? ready : -err;
        if (p->kick_fd >= 0 && p->kfds[kn - 1].revents != 0)
            ready_kick_drain(p->kick_fd);
        if (due != 0)
            drive_due();
        bool waited = !now;
        ready = look(p, true);
        if (ready > 0 || timeout_ns == 0 || (waited && deadline != 0 && proc_now_ns() >= deadline))
            return ready;
    }
}

/* Does anything in the set, or any negotiation, concern us? */
static bool concerns(struct pollfd *fds, nfds_t n)
{
    if (!proc_on())
        return false;
    if (drive_others(NULL))
        return true;
    bool ours = false;
    for (nfds_t i = 0; i < n; i++) {
        struct sock *s = sock_get_active(fds[i].fd);
        ours = ours || s != NULL;
        if (s != NULL)
            sock_put(s);
        else
            epoll_nest(fds[i].fd);
    }
    return ours;
}

/* timeout_ns < 0: for ever. Returns as poll, -errno. */
static int poll_ns(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd few_k[STACK_FDS + OTHERS_MAX + 1];
    struct entry few_e[STACK_FDS];
    struct polling p = { .fds = fds, .kfds = few_k, .ents = few_e, .n = n, .kick_fd = ready_kick_fd() };
    void *mem = NULL;
    if (n > STACK_FDS) {
        if (n > (nfds_t)INT_MAX / 2)
            return -EINVAL;
        mem = malloc((n + OTHERS_MAX + 1) * sizeof(*p.kfds) + n * sizeof(*p.ents));
        if (mem == NULL)
            return -ENOMEM;
        p.ents = mem;
        p.kfds = (struct pollfd *)(void *)(p.ents + n);
    }
    for (nfds_t i = 0; i < n; i++) {
        p.kfds[i] = fds[i];
        p.ents[i].sock = sock_get_active(fds[i].fd);
        if (p.ents[i].sock != NULL)
            ready_wait_begin(p.ents[i].sock, &p.ents[i].poller, p.kick_fd);
    }
    int r = rounds(&p, timeout_ns, mask);
    for (nfds_t i = 0; i < n; i++)
        if (p.ents[i].sock != NULL) {
            ready_wait_end(p.ents[i].sock, &p.ents[i].poller);
            sock_put(p.ents[i].sock);
        }
    free(mem);
    return r;
}

static int result(int r)
{
    if (r >= 0)
        return r;
    errno = -r;
    return -1;
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    if (!concerns(fds, n))
        return REAL(poll)(fds, n, timeout_ms);
    return result(poll_ns(fds, n, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000, NULL));
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
    if (!concerns(fds, n) ||
        (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
        return REAL(ppoll)(fds, n, timeout, mask);
    return result(poll_ns(fds, n, timeout ? timeout->tv_sec * 1000000000 + timeout->tv_nsec : -1, mask));
}

/* ---- select, over poll ---- */

#define SELECT_IN (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_OUT (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define SELECT_EX POLLPRI

static bool select_concerns(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
    if (!proc_on() || n > FD_SETSIZE) /* larger sets are the kernel's business alone */
        return false;
    if (drive_others(NULL))
        return true;
    int limit = sock_fd_limit() < n ? sock_fd_limit() : n;
    for (int fd = 0; fd < limit; fd++) {
        if (!((r && FD_ISSET(fd, r)) || (w && FD_ISSET(fd, w)) || (e && FD_ISSET(fd, e))))
            continue;
        struct sock *s = sock_get_active(fd);
        if (s != NULL) {
            sock_put(s);
            return true;
        }
    }
    return false;
}

/* As pselect, -errno. The sets are changed only on success. */
static int select_ns(int n, fd_set *r, fd_set *w, fd_set *e, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd fds[FD_SETSIZE];
    nfds_t cnt = 0;
    for (int fd = 0; fd < n; fd++) {
        short ev = (short)((r && FD_ISSET(fd, r) ? POLLIN : 0) | (w && FD_ISSET(fd, w) ? POLLOUT : 0) |
                           (e && FD_ISSET(fd, e) ? POLLPRI : 0));
        if (ev != 0)
            fds[cnt++] = (struct pollfd){ .fd = fd, .events = ev };
    }
    int got = poll_ns(fds, cnt, timeout_ns, mask);
    if (got < 0)
        return got;
    for (nfds_t i = 0; i < cnt; i++)
        if (fds[i].revents & POLLNVAL)
            return -EBADF;
    int bits = 0;
    for (nfds_t i = 0; i < cnt; i++) {
        int fd = fds[i].fd;
        bool in = (fds[i].events & POLLIN) && (fds[i].revents & SELECT_IN);
        bool out = (fds[i].events & POLLOUT) && (fds[i].revents & SELECT_OUT);
        bool ex = (fds[i].events & POLLPRI) && (fds[i].revents & SELECT_EX);
        if (r && FD_ISSET(fd, r) && !in)
            FD_CLR(fd, r);
        if (w && FD_ISSET(fd, w) && !out)
            FD_CLR(fd, w);
        if (e && FD_ISSET(fd, e) && !ex)
            FD_CLR(fd, e);
        bits += in + out + ex;
    }
    return bits;
}

int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
    if (n < 0 || !select_concerns(n, r, w, e) || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
        return REAL(select)(n, r, w, e, timeout);
    int64_t ns = timeout ? timeout->tv_sec * 1000000000 + timeout->tv_usec * 1000 : -1;
    uint64_t end = timeout ? proc_now_ns() + (uint64_t)ns : 0;
    int got = select_ns(n, r, w, e, ns, NULL);
    if (timeout != NULL) { /* Linux tells what was left */
        uint64_t now = proc_now_ns(), left = end > now ? end - now : 0;
        timeout->tv_sec = (time_t)(left / 1000000000u);
        timeout->tv_usec = (suseconds_t)(left % 1000000000u / 1000u);
    }
    return result(got);
}

int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout, const sigset_t *mask)
{
    if (n < 0 || !select_concerns(n, r, w, e) ||
        (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
        return REAL(pselect)(n, r, w, e, timeout, mask);
    return result(select_ns(n, r, w, e, timeout ? timeout->tv_sec * 1000000000 + timeout->tv_nsec : -1, mask));
}
