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
#include <sys/resource.h>
#include <sys/select.h>

#include "preload/calls/ring.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/spin.h"
#include "preload/process/usermem.h"
#include "preload/ready/epoll.h"
#include "preload/ready/ready.h"
#include "preload/sock/pending.h"
#include "preload/sock/poller.h"
#include "preload/sock/wait.h"

#define STACK_FDS 64u
#define OTHERS_MAX 64u

struct entry {
    struct sock *sock; /* with a reference; NULL: the kernel's answer stands */
    struct poller *poller;
    nfds_t k;   /* its place among the kernel's */
    bool chan;  /* behind it stands its device's channel */
    bool moved; /* the number is another file's by now: likewise */
};

/*
 * One poll(2) of the program. fds and ents have n entries; kfds those with a descriptor, and two for a sock (kn), and
 * OTHERS_MAX + 1 more.
 */
struct polling {
    struct pollfd *fds;  /* the program's */
    struct pollfd *kfds; /* the kernel's */
    struct entry *ents;
    nfds_t n, kn;
    int kick_fd;
    struct signals_mark ran; /* before it */
};

/* The kernel's answer is the program's. */
static short look_plain(struct pollfd *fd, struct pollfd *k, short kernel)
{
    /* It may have been an answer to another question. */
    k->events = fd->events;
    kernel &= (short)(fd->events | POLLERR | POLLHUP | POLLNVAL);
    if ((kernel & (POLLIN | POLLRDNORM)) && epoll_tracks(fd->fd) && !epoll_settle(fd->fd, true))
        kernel &= (short)~(POLLIN | POLLRDNORM); /* its epoll_wait would report nothing */
    return kernel;
}

/* Another thread may have closed the number meanwhile, and it may be another connection's now. */
static bool is_still(struct entry *e, int fd)
{
    struct sock *s = sock_get(fd);
    if (s != NULL)
        sock_put(s);
    e->moved = e->moved || s != e->sock;
    return !e->moved;
}

/* Fills in revents of ours from the kernel's answer (or without one); returns how many entries have revents. */
static int look(struct polling *p, bool asked)
{
    int ready = 0;
    for (nfds_t i = 0; i < p->n; i++) {
        struct entry *e = &p->ents[i];
        struct pollfd *fd = &p->fds[i], *k = &p->kfds[e->k];
        short kernel = asked && fd->fd >= 0 ? k->revents : 0;
        if (fd->fd < 0) {
            fd->revents = 0;
        } else if (e->chan && e->sock != NULL && atomic_load(&e->sock->fd) < 0) {
            /*
             * Closed in the middle of the wait: poll(2) holds its file, and goes on. (Its channel has woken us.) See
             * closed.
             */
            k[0].fd = k[1].fd = -1;
            fd->revents = 0;
        } else if (e->sock == NULL || !is_still(e, fd->fd) || !atomic_load(&e->sock->active)) {
            fd->revents = look_plain(fd, k, kernel);
        } else {
            if (asked && e->chan && k[1].revents != 0)
                kernel |= POLLIN;
            fd->revents = ready_now(e->sock, fd->fd, fd->events, kernel, &k->events);
            ready_arrived(e->sock);
            if (e->chan)
                k[1].fd = conn_chan(e->sock->conn);
        }
        ready += fd->revents != 0;
    }
    return ready;
}

/* At the end of its wait poll(2) looks all numbers up once more. Returns how many are none now. */
static int closed(struct polling *p)
{
    int n = 0;
    for (nfds_t i = 0; i < p->n; i++)
        if (p->fds[i].fd >= 0 && p->ents[i].chan && p->kfds[p->ents[i].k].fd < 0 && p->fds[i].revents == 0) {
            p->fds[i].revents = POLLNVAL;
            n++;
        }
    return n;
}

static struct timespec left_until(uint64_t until)
{
    uint64_t now = proc_now_ns(), left = until > now ? until - now : 0;
    return (struct timespec){ .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u) };
}

static __thread struct spin spin; /* does this thread look before it sleeps? */

/* ppoll that may sleep: looks before it. */
static int look_and_sleep(struct pollfd *fds, nfds_t all, struct sock **socks, unsigned n, const struct timespec *ts,
                          const sigset_t *mask)
{
    struct spin_look k = { 0 };
    int r = 0;
    bool brief = ts != NULL && ts->tv_sec == 0 && (uint64_t)ts->tv_nsec <= proc.spin_ns;
    if (mask == NULL && !brief && spin_begin(&k, &spin)) {
        const struct timespec zero = { 0, 0 };
        do
            r = REAL(ppoll)(fds, all, &zero, NULL);
        while (r == 0 && spin_go_on(&k));
        spin_found(&k, &spin, r > 0);
    }
    if (r == 0) {
        r = wait_ppoll(fds, all, socks, n, ts, mask);
        int err = errno;
        spin_end(&k, &spin);
        errno = err;
    }
    return r;
}

/*
 * Asks the kernel for all entries, and drives what is pending meanwhile. now: without waiting; until 0: for ever. How
 * many it has reported, or -errno.
 */
static int ask_kernel(struct polling *p, bool now, uint64_t until, const sigset_t *mask)
{
    struct sock *others[OTHERS_MAX];
    nfds_t kn = p->kn;
    if (!now && signals_ran().all != p->ran.all)
        return -EINTR;
    if (p->kick_fd >= 0)
        p->kfds[kn++] = (struct pollfd){ .fd = p->kick_fd, .events = POLLIN };
    unsigned n_others = wait_fill(p->kfds + kn, others, OTHERS_MAX, NULL);
    struct timespec ts = now ? (struct timespec){ 0, 0 } : left_until(until);
    int r = now ? wait_ppoll(p->kfds, kn + n_others, others, n_others, &ts, mask)
                : look_and_sleep(p->kfds, kn + n_others, others, n_others, until != 0 ? &ts : NULL, mask);
    int err = errno;
    wait_filled(p->kfds + kn, others, n_others, r == 0 && !now);
    if (r < 0)
        return -err;
    if (p->kick_fd >= 0 && p->kfds[kn - 1].revents != 0)
        poller_kick_drain(p->kick_fd);
    return r;
}

static int rounds(struct polling *p, int64_t timeout_ns, const sigset_t *mask)
{
    uint64_t deadline = timeout_ns > 0 ? proc_now_ns() + (uint64_t)timeout_ns : 0;
    p->ran = signals_ran();
    int ready = look(p, false);
    for (;;) {
        /* Something is ready, or the program does not wait: one look at the rest, without waiting. */
        bool now = ready > 0 || timeout_ns == 0;
        uint64_t due = now ? 0 : pending_deadline();
        uint64_t until = deadline != 0 && (due == 0 || deadline < due) ? deadline : due;
        int r = ask_kernel(p, now, until, ready > 0 ? NULL : mask); /* (With something ready no signal is let in.) */
        r = signals_but_ours(r, p->ran);
        if (r < 0)
            return ready > 0 && r == -EINTR ? ready : r;
        if (due != 0)
            pending_step_due(r == 0);
        bool waited = !now;
        ready = look(p, true);
        if (ready > 0 || timeout_ns == 0 || (waited && deadline != 0 && proc_now_ns() >= deadline))
            return ready + closed(p);
    }
}

/* Is an active connection in the set, or a negotiation under way? */
static bool concerns(struct pollfd *fds, nfds_t n)
{
    if (!proc_on() || (sock_fd_limit() == 0 && epoll_fd_limit() == 0))
        return false;
    if (n > INT_MAX / 2 || !usermem_readable(fds, n * sizeof(*fds)))
        return false; /* the kernel says what there is to say */
    for (nfds_t i = 0; ring_any() && i < n; i++)
        ring_awaits(fds[i].fd);
    if (pending_others(NULL))
        return true;
    bool ours = false;
    for (nfds_t i = 0; i < n; i++) {
        struct sock *s = sock_get_polled(fds[i].fd);
        ours = ours || s != NULL || epoll_tracks(fds[i].fd);
        if (s != NULL)
            sock_put(s);
    }
    return ours;
}

/*
 * The kernel bounds the number of entries by RLIMIT_NOFILE. It would not notice if we left out those without a
 * descriptor.
 */
static bool too_many(nfds_t n)
{
    struct rlimit lim;
    return n > (nfds_t)INT_MAX / 2 || (getrlimit(RLIMIT_NOFILE, &lim) == 0 && n > lim.rlim_cur);
}

/* timeout_ns < 0: for ever. Returns as poll, -errno. */
static __attribute__((noinline)) int poll_ns(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd few_k[2 * STACK_FDS + OTHERS_MAX + 1];
    struct entry few_e[STACK_FDS];
    struct polling p = { .fds = fds, .kfds = few_k, .ents = few_e, .n = n, .kick_fd = poller_kick_fd() };
    void *mem = NULL;
    if (!usermem_writable(fds, n * sizeof(*fds)) || !ready_mask(mask))
        return -EFAULT;
    if (n > STACK_FDS) {
        if (too_many(n))
            return -EINVAL;
        mem = malloc((2 * n + OTHERS_MAX + 1) * sizeof(*p.kfds) + n * sizeof(*p.ents));
        if (mem == NULL)
            return -ENOMEM;
        p.ents = mem;
        p.kfds = (struct pollfd *)(void *)(p.ents + n);
    }
    uintptr_t frame = poller_call_begin();
    int r = 0;
    for (nfds_t i = 0; i < n; i++) {
        p.ents[i] = (struct entry){ .sock = sock_get_polled(fds[i].fd) };
        if (fds[i].fd < 0)
            continue;
        p.ents[i].k = p.kn;
        p.kfds[p.kn++] = fds[i];
        if (p.ents[i].sock == NULL) {
            epoll_nest(fds[i].fd);
            continue;
        }
        /* (Only where there may be one: the kernel counts entries, too, and a program may allow itself one.) */
        p.ents[i].chan = p.ents[i].sock->conn->opts.transports & HELLO_TRANSPORT_VERBS;
        if (p.ents[i].chan)
            p.kfds[p.kn++] = (struct pollfd){ .fd = -1, .events = POLLIN };
        p.ents[i].poller = poller_begin(p.ents[i].sock, p.kick_fd, frame);
        if (p.ents[i].poller == NULL) {
            sock_put(p.ents[i].sock);
            p.ents[i].sock = NULL;
            r = -ENOMEM;
        }
    }
    struct cancel hold = cancel_hold(free, mem);
    uint64_t masked = signals_masked(mask);
    if (r == 0)
        r = rounds(&p, timeout_ns, mask);
    signals_masked_over(masked);
    cancel_restore(hold);
    for (nfds_t i = 0; i < n; i++)
        poller_end(p.ents[i].poller);
    free(mem);
    return r;
}

/* (errno is as it was before a call that succeeds.) */
static int result(int r, int before)
{
    errno = r < 0 ? -r : before;
    return r < 0 ? -1 : r;
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int err = errno;
    coalesce_before_poll();
    if (timeout_ms != 0)
        proc_waits();
    if (!concerns(fds, n))
        return REAL(poll)(fds, n, timeout_ms);
    return result(poll_ns(fds, n, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000, NULL), err);
}

/* ready_timeout, where there may be no memory: the kernel says so. */
static bool timeout_of(const struct timespec *timeout, int64_t *ns)
{
    return (timeout == NULL || usermem_readable(timeout, sizeof(*timeout))) && ready_timeout(timeout, ns);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
    int err = errno;
    int64_t ns;
    coalesce_before_poll();
    proc_waits();
    if (!concerns(fds, n) || !timeout_of(timeout, &ns))
        return REAL(ppoll)(fds, n, timeout, mask);
    return result(poll_ns(fds, n, ns, mask), err);
}

/* ---- select, over poll ---- */

#define SELECT_IN (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_OUT (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define SELECT_EX POLLPRI

/* The sets are words as the kernel has them: a program may have made some that are larger than fd_set. */
#define WORD_BITS ((int)(8 * sizeof(unsigned long)))

struct sets {
    int n;
    unsigned long *of[3]; /* NULL: not asked for */
};

static const short set_asks[3] = { POLLIN, POLLOUT, POLLPRI };
static const short set_takes[3] = { SELECT_IN, SELECT_OUT, SELECT_EX };

static struct sets sets_of(int n, fd_set *r, fd_set *w, fd_set *e)
{
    return (struct sets){ n, { (unsigned long *)(void *)r, (unsigned long *)(void *)w, (unsigned long *)(void *)e } };
}

static short sets_want(const struct sets *sets, int fd)
{
    short ev = 0;
    for (int i = 0; i < 3; i++)
        if (sets->of[i] != NULL && sets->of[i][fd / WORD_BITS] >> (fd % WORD_BITS) & 1)
            ev |= set_asks[i];
    return ev;
}

static bool sets_concern(const struct sets *sets)
{
    int socks = sock_fd_limit(), epfds = epoll_fd_limit(), limit = socks > epfds ? socks : epfds;
    if (!proc_on() || limit == 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (sets->of[i] != NULL &&
            !usermem_writable(sets->of[i], (size_t)((sets->n + WORD_BITS - 1) / WORD_BITS) * sizeof(unsigned long)))
            return false; /* the kernel says what there is to say */
    for (int fd = 0; ring_any() && fd < socks && fd < sets->n; fd++)
        if (sets_want(sets, fd) != 0)
            ring_awaits(fd);
    if (pending_others(NULL))
        return true;
    for (int fd = 0; fd < limit && fd < sets->n; fd++) {
        if (sets_want(sets, fd) == 0)
            continue;
        struct sock *s = sock_get_polled(fd);
        if (s != NULL)
            sock_put(s);
        if (s != NULL || epoll_tracks(fd))
            return true;
    }
    return false;
}

/* Writes poll's result to the program's sets: all words that hold one of the n bits. */
static int sets_fill(const struct sets *sets, const struct pollfd *fds, nfds_t cnt)
{
    int bits = 0;
    for (int i = 0; i < 3; i++) {
        if (sets->of[i] == NULL)
            continue;
        memset(sets->of[i], 0, (size_t)((sets->n + WORD_BITS - 1) / WORD_BITS) * sizeof(unsigned long));
        for (nfds_t k = 0; k < cnt; k++)
            if ((fds[k].events & set_asks[i]) && (fds[k].revents & set_takes[i])) {
                sets->of[i][fds[k].fd / WORD_BITS] |= 1ul << (fds[k].fd % WORD_BITS);
                bits++;
            }
    }
    return bits;
}

/* As pselect, -errno. The sets are changed only on success. */
static int select_ns(const struct sets *sets, int64_t timeout_ns, const sigset_t *mask)
{
    struct pollfd few[STACK_FDS], *fds = few;
    nfds_t cnt = 0;
    for (int fd = 0; fd < sets->n; fd++)
        cnt += sets_want(sets, fd) != 0;
    if (cnt > STACK_FDS) {
        fds = malloc(cnt * sizeof(*fds));
        if (fds == NULL)
            return -ENOMEM;
    }
    cnt = 0;
    for (int fd = 0; fd < sets->n; fd++) {
        short ev = sets_want(sets, fd);
        if (ev != 0)
            fds[cnt++] = (struct pollfd){ .fd = fd, .events = ev };
    }
    unsigned kept = fds != few ? cancel_keep(free, fds) : 0;
    int got = poll_ns(fds, cnt, timeout_ns, mask);
    if (fds != few)
        cancel_kept(kept);
    for (nfds_t i = 0; got >= 0 && i < cnt; i++)
        if (fds[i].revents & POLLNVAL)
            got = -EBADF;
    if (got >= 0)
        got = sets_fill(sets, fds, cnt);
    if (fds != few)
        free(fds);
    return got;
}

/* (More than a second of microseconds is allowed.) */
static bool timeval_of(const struct timeval *timeout, int64_t *ns)
{
    *ns = -1;
    if (timeout == NULL)
        return true;
    if (!usermem_readable(timeout, sizeof(*timeout)))
        return false;
    struct timespec ts = { .tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec % 1000000 * 1000 };
    if (!ready_timeout(&ts, ns))
        return false;
    if (*ns >= 0)
        *ns += timeout->tv_usec / 1000000 * INT64_C(1000000000);
    return true;
}

int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
    struct sets sets = sets_of(n, r, w, e);
    int err = errno;
    int64_t ns;
    coalesce_before_poll();
    proc_waits();
    if (n < 0 || !sets_concern(&sets) || !timeval_of(timeout, &ns))
        return REAL(select)(n, r, w, e, timeout);
    uint64_t begin = proc_now_ns();
    int got = select_ns(&sets, ns, NULL);
    /* Linux writes the time that was left, if the memory can be written. */
    if (timeout != NULL && ns >= 0 && usermem_writable(timeout, sizeof(*timeout))) {
        uint64_t took = proc_now_ns() - begin, left = (uint64_t)ns > took ? (uint64_t)ns - took : 0;
        timeout->tv_sec = (time_t)(left / 1000000000u);
        timeout->tv_usec = (suseconds_t)(left % 1000000000u / 1000u);
    }
    return result(got, err);
}

int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout, const sigset_t *mask)
{
    struct sets sets = sets_of(n, r, w, e);
    int err = errno;
    int64_t ns;
    coalesce_before_poll();
    proc_waits();
    if (n < 0 || !sets_concern(&sets) || !timeout_of(timeout, &ns))
        return REAL(pselect)(n, r, w, e, timeout, mask);
    return result(select_ns(&sets, ns, mask), err);
}
