/*
 * What a thread of storm does.
 */
#include "tests/storm/storm.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define STUCK_MS 20000

static size_t some_length(struct worker *w)
{
    static const uint32_t most[] = { 16, 300, 5000, 20000, 100000 };
    return 1 + rnd(w, most[rnd(w, 5)]);
}

/* buf in up to 8 parts. Returns how many. */
static int parts(struct worker *w, struct iovec *iov, uint8_t *buf, size_t len)
{
    int n = 0;
    for (size_t at = 0; at < len; n++) {
        size_t l = n == 7 ? len - at : rnd(w, 4) == 0 ? 0 : 1 + rnd(w, (uint32_t)(len - at));
        iov[n] = (struct iovec){ buf + at, l };
        at += l;
    }
    return n;
}

static void lock(struct worker *w, pthread_rwlock_t *l, bool got)
{
    w->locked = got ? l : NULL;
}

static void unlock(struct worker *w)
{
    pthread_rwlock_unlock(w->locked);
    w->locked = NULL;
}

/* ---- sending ---- */

/* Another name of fd for one call, or -1: whoever closes it wants no new numbers now. */
static int other_name(struct worker *w, int fd)
{
    if (pthread_rwlock_tryrdlock(&numbers) != 0)
        return -1;
    int r;
    switch (rnd(w, 3)) {
    case 0:
        r = dup(fd);
        break;
    case 1:
        r = fcntl(fd, F_DUPFD, (int)rnd(w, 200));
        break;
    default:
        r = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        break;
    }
    pthread_rwlock_unlock(&numbers);
    COUNT(dups, 1);
    return r;
}

static ssize_t by_splice(int fd, const uint8_t *buf, size_t len, unsigned flags)
{
    int p[2];
    if (with_cancel || pthread_rwlock_tryrdlock(&numbers) != 0) /* (the pipe would be left behind) */
        return send(fd, buf, len, MSG_NOSIGNAL);
    must(pipe2(p, O_CLOEXEC) == 0, "pipe");
    pthread_rwlock_unlock(&numbers);
    must(write(p[1], buf, len) == (ssize_t)len, "write to a pipe");
    ssize_t r = splice(p[0], NULL, fd, NULL, len, flags);
    int err = errno;
    close(p[0]);
    close(p[1]);
    errno = err;
    return r;
}

static ssize_t send_once(struct worker *w, struct slot *s, int fd, uint8_t *buf, size_t len, off_t place,
                         const char **name)
{
    int flags = MSG_NOSIGNAL | (rnd(w, 3) == 0 ? MSG_DONTWAIT : 0) | (rnd(w, 12) == 0 ? MSG_MORE : 0);
    struct iovec iov[8];
    struct mmsghdr mm[2];
    struct msghdr msg = { .msg_iov = iov };
    ssize_t r;
    bool exact = s->kind == CHUNKS; /* octets of calls of their own could be parted by another thread's */
    switch (rnd(w, exact ? 5 : 8)) {
    case 0:
        *name = "write";
        return write(fd, buf, len);
    case 1:
        *name = "writev";
        return writev(fd, iov, parts(w, iov, buf, len));
    case 2:
        *name = "sendmsg";
        msg.msg_iovlen = (size_t)parts(w, iov, buf, len);
        return sendmsg(fd, &msg, flags);
    case 3:
        *name = "sendto";
        return sendto(fd, buf, len, flags, NULL, 0);
    case 4:
        *name = "send";
        return send(fd, buf, len, flags);
    case 5:
        *name = "sendmmsg";
        memset(mm, 0, sizeof(mm));
        for (size_t i = 0; i < 2; i++) {
            iov[i] = (struct iovec){ buf + i * (len / 2), i == 0 ? len / 2 : len - len / 2 };
            mm[i].msg_hdr.msg_iov = &iov[i];
            mm[i].msg_hdr.msg_iovlen = 1;
        }
        r = sendmmsg(fd, mm, 2, flags);
        return r <= 0 ? r : (ssize_t)(mm[0].msg_len + (r == 2 ? mm[1].msg_len : 0));
    case 6:
        *name = "sendfile";
        return place < 0 ? write(fd, buf, len) : sendfile(fd, stream_file, &place, len);
    default:
        *name = "splice";
        return by_splice(fd, buf, len < 4096 ? len : 4096, rnd(w, 2) ? SPLICE_F_MORE : 0);
    }
}

/* In a child, which shares the connection for that long. */
static ssize_t in_child(struct worker *w, ssize_t (*call)(int, void *, size_t, int), int fd, void *buf, size_t len,
                        int flags)
{
    int64_t *result = &shared->forked[side][w->n];
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ssize_t r = call(fd, buf, len, flags);
        *result = r < 0 ? -errno : r;
        _exit(0);
    }
    must(pid > 0, "fork");
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("a child that sends or receives ended with status %#x", (unsigned)status);
    COUNT(forked_io, 1);
    errno = *result < 0 ? (int)-*result : 0;
    return *result < 0 ? -1 : (ssize_t)*result;
}

static ssize_t call_send(int fd, void *buf, size_t len, int flags)
{
    return send(fd, buf, len, flags);
}

static ssize_t call_recv(int fd, void *buf, size_t len, int flags)
{
    return recv(fd, buf, len, flags);
}

/* What is next, of the slot's kind. 0: nothing may be sent now. */
static size_t next_octets(struct worker *w, struct slot *s, uint8_t **buf, off_t *place)
{
    *place = -1;
    *buf = w->buf;
    if (s->kind == WORDS)
        return make_words(w, s, w->buf, 6000);
    if (s->kind == CHUNKS)
        return make_chunk(w, s, w->buf);
    *place = stream_place(s, s->mine, s->tx_at);
    *buf = (uint8_t *)(uintptr_t)stream_octets(s, s->mine, s->tx_at);
    return some_length(w);
}

/* A chunk that was not sent at all did not exist. */
static void unmake(struct worker *w, struct slot *s, size_t len)
{
    if (s->kind != CHUNKS)
        return;
    s->tx_seq[w->n]--;
    atomic_fetch_sub(&s->c->dir[s->mine].claimed, len);
}

static void op_send(struct worker *w)
{
    struct slot *s = slot_enter(w);
    if (s == NULL)
        return;
    lock(w, &s->tx, (s->kind == CHUNKS ? pthread_rwlock_tryrdlock(&s->tx) : pthread_rwlock_trywrlock(&s->tx)) == 0);
    if (w->locked == NULL) {
        slot_leave(w, s);
        return;
    }
    uint8_t *buf;
    off_t place;
    size_t len = atomic_load(&s->tx_done) || atomic_load(&s->left) ? 0 : next_octets(w, s, &buf, &place);
    if (len > 0) {
        const char *name = "send in a child";
        ssize_t r;
        w->settled = is_settled(s);
        int name2 = rnd(w, 10) == 0 ? other_name(w, s->fd) : -1;
        if (with_fork && rnd(w, 300) == 0 && s->kind != CHUNKS) {
            r = in_child(w, call_send, s->fd, buf, len, MSG_NOSIGNAL);
        } else {
            w->fd = name2;
            may_cancel(w, true);
            r = send_once(w, s, name2 >= 0 ? name2 : s->fd, buf, len, place, &name);
            may_cancel(w, false);
        }
        if (r < 0) {
            int err = errno;
            unmake(w, s, len);
            errno = err;
        }
        if (!sent(w, s, name, r, len))
            atomic_store(&s->tx_done, true);
        w->fd = -1;
        if (name2 >= 0)
            close(name2);
    }
    unlock(w);
    slot_leave(w, s);
}

static void op_finish(struct worker *w)
{
    struct slot *s = slot_enter(w);
    if (s == NULL)
        return;
    lock(w, &s->tx, pthread_rwlock_trywrlock(&s->tx) == 0);
    if (w->locked != NULL) {
        if (!atomic_load(&s->tx_done) && !atomic_load(&s->left)) {
            atomic_store(&s->c->dir[s->mine].finished, true);
            if (shutdown(s->fd, SHUT_WR) < 0 && !may_break(s))
                fail("connection %u: shutdown: %s", s->id, strerrorname_np(errno));
            atomic_store(&s->tx_done, true);
        }
        unlock(w);
    }
    slot_leave(w, s);
}

/* ---- receiving ---- */

static ssize_t recv_once(struct worker *w, int fd, size_t len, int flags, const char **name)
{
    struct iovec iov[8];
    struct msghdr msg = { .msg_iov = iov };
    switch (rnd(w, flags ? 3 : 6)) {
    case 0:
        *name = "recv";
        return recv(fd, w->buf, len, flags);
    case 1:
        *name = "recvfrom";
        return recvfrom(fd, w->buf, len, flags, NULL, NULL);
    case 2:
        *name = "recvmsg";
        msg.msg_iovlen = (size_t)parts(w, iov, w->buf, len);
        return recvmsg(fd, &msg, flags);
    case 3:
        *name = "readv";
        return readv(fd, iov, parts(w, iov, w->buf, len));
    default:
        *name = "read";
        return read(fd, w->buf, len);
    }
}

/* What the other end has sent and this one, alone at it, has not received must be there soon. */
static void must_be_readable(struct slot *s)
{
    struct direction *d = &s->c->dir[!s->mine];
    uint64_t end = now_ms() + STUCK_MS;
    while (atomic_load(&d->sent) > atomic_load(&d->got) && !may_break(s) && !atomic_load(&s->left)) {
        struct pollfd p = { .fd = s->fd, .events = POLLIN };
        int r = poll(&p, 1, STUCK_MS);
        if (r > 0 && p.revents & POLLNVAL)
            return; /* closed meanwhile */
        uint8_t octet;
        ssize_t n = r > 0 ? recv(s->fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT) : -1;
        if (n >= 0 || may_break(s))
            return;
        if (r > 0 && errno == EAGAIN)
            fail("connection %u kind %d: poll says %#x, recv says EAGAIN", s->id, s->kind, (unsigned)p.revents);
        if (now_ms() >= end)
            fail("connection %u kind %d: sent %llu, got %llu, and not readable for %d s", s->id, s->kind,
                 (unsigned long long)d->sent, (unsigned long long)d->got, STUCK_MS / 1000);
    }
}

static void op_recv(struct worker *w)
{
    struct slot *s = slot_enter(w);
    if (s == NULL)
        return;
    lock(w, &s->rx, (s->kind == WORDS ? pthread_rwlock_tryrdlock(&s->rx) : pthread_rwlock_trywrlock(&s->rx)) == 0);
    if (w->locked == NULL) {
        slot_leave(w, s);
        return;
    }
    if (!atomic_load(&s->rx_done)) {
        const char *name = "recv in a child";
        size_t len = some_length(w);
        int flags = rnd(w, 3) == 0 ? MSG_DONTWAIT : 0;
        bool peek = rnd(w, 12) == 0;
        flags |= (peek ? MSG_PEEK : 0);
        /* (Between two pieces of such a call another receiver may come.) */
        flags |= s->kind != WORDS && rnd(w, 12) == 0 ? MSG_WAITALL : 0;
        if (s->kind != WORDS && rnd(w, 4) == 0)
            must_be_readable(s);
        ssize_t r;
        bool forks = with_fork && rnd(w, 300) == 0 && s->kind == OCTETS;
        if (forks) {
            r = in_child(w, call_recv, s->fd, w->buf, len, MSG_DONTWAIT | MSG_PEEK);
            if (r > 0)
                r = recv(s->fd, w->buf, (size_t)r, 0);
            else if (r == 0)
                r = recv(s->fd, w->buf, 1, 0);
        } else {
            may_cancel(w, true);
            r = recv_once(w, s->fd, len, flags, &name);
            may_cancel(w, false);
        }
        bool given = peek && !forks && flags;
        if (!received(w, s, name, r, given && strcmp(name, "read") != 0 && strcmp(name, "readv") != 0))
            atomic_store(&s->rx_done, true);
    }
    unlock(w);
    slot_leave(w, s);
}

/* ---- waiting ---- */

static unsigned enter_some(struct worker *w, struct slot **s, unsigned most)
{
    unsigned n = 0;
    for (unsigned i = 1 + rnd(w, most); i > 0; i--) {
        s[n] = slot_enter(w);
        n += s[n] != NULL;
    }
    return n;
}

static void check_valid(struct slot *s, short revents, const char *call)
{
    if (!(revents & POLLNVAL))
        return;
    pthread_mutex_lock(&s->lock);
    bool open = s->state == OPEN;
    pthread_mutex_unlock(&s->lock);
    if (open)
        fail("connection %u: %s says that descriptor %d is none", s->id, call, s->fd);
}

static void op_poll(struct worker *w)
{
    struct slot *s[8];
    struct pollfd p[8];
    unsigned n = enter_some(w, s, 8);
    int ms = (int)rnd(w, 4);
    struct timespec ts = { .tv_nsec = ms * 1000000L };
    for (unsigned i = 0; i < n; i++)
        p[i] = (struct pollfd){ .fd = s[i]->fd, .events = (short)(POLLIN | (rnd(w, 4) == 0 ? POLLOUT : 0)) };
    int r = rnd(w, 2) ? poll(p, n, ms) : ppoll(p, n, &ts, NULL);
    if (r < 0 && !(with_signals && errno == EINTR))
        fail("poll: %s", strerrorname_np(errno));
    for (unsigned i = 0; i < n; i++) {
        if (r > 0)
            check_valid(s[i], p[i].revents, "poll");
        slot_leave(w, s[i]);
    }
    COUNT(polls, 1);
}

static void op_select(struct worker *w)
{
    struct slot *s[4];
    unsigned n = enter_some(w, s, 4);
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    int max = -1;
    for (unsigned i = 0; i < n; i++) {
        FD_SET(s[i]->fd, &in);
        if (rnd(w, 4) == 0)
            FD_SET(s[i]->fd, &out);
        max = s[i]->fd > max ? s[i]->fd : max;
    }
    struct timeval tv = { .tv_usec = (suseconds_t)rnd(w, 4000) };
    if (select(max + 1, &in, &out, NULL, &tv) < 0 && errno != EBADF && !(with_signals && errno == EINTR))
        fail("select: %s", strerrorname_np(errno));
    for (unsigned i = 0; i < n; i++)
        slot_leave(w, s[i]);
    COUNT(polls, 1);
}

static void op_epoll(struct worker *w)
{
    int epfd = rnd(w, 2) ? shared_epfd : w->epfd;
    struct slot *s = slot_enter(w);
    if (s != NULL) {
        static const uint32_t kinds[] = { EPOLLIN,
                                          EPOLLIN | EPOLLET,
                                          EPOLLIN | EPOLLONESHOT,
                                          EPOLLIN | EPOLLOUT | EPOLLET,
                                          EPOLLIN | EPOLLRDHUP,
                                          EPOLLIN | EPOLLEXCLUSIVE,
                                          EPOLLOUT,
                                          EPOLLIN | EPOLLOUT,
                                          0 };
        struct epoll_event ev = { .events = kinds[rnd(w, 9)], .data.u64 = s->id };
        int op = rnd(w, 3) == 0 ? EPOLL_CTL_DEL : rnd(w, 2) ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        /* (A number that was closed meanwhile: EBADF, or the null device's EPERM.) */
        if (epoll_ctl(epfd, op, s->fd, &ev) < 0 && errno != EEXIST && errno != ENOENT && errno != EBADF &&
            errno != EPERM && errno != EINVAL)
            fail("epoll_ctl: %s", strerrorname_np(errno));
        slot_leave(w, s);
    }
    struct epoll_event got[8];
    int r = epoll_wait(epfd, got, 8, (int)rnd(w, 3));
    if (r < 0 && !(with_signals && errno == EINTR))
        fail("epoll_wait: %s", strerrorname_np(errno));
    COUNT(epolls, 1);
}

/* ---- this and that ---- */

static void op_switch(struct worker *w)
{
    struct slot *s = slot_enter(w);
    if (s == NULL)
        return;
    int n, err = 0;
    socklen_t len = sizeof(err);
    struct timeval tv = { .tv_usec = (suseconds_t)(1000 + rnd(w, 15000)) };
    switch (rnd(w, 9)) {
    case 0:
        n = fcntl(s->fd, F_GETFL);
        if (n >= 0)
            fcntl(s->fd, F_SETFL, rnd(w, 2) ? n | O_NONBLOCK : n & ~O_NONBLOCK);
        break;
    case 1:
        n = (int)rnd(w, 2);
        ioctl(s->fd, FIONBIO, &n);
        break;
    case 2:
        setsockopt(s->fd, SOL_SOCKET, rnd(w, 2) ? SO_RCVTIMEO : SO_SNDTIMEO, &tv, sizeof(tv));
        break;
    case 3:
        n = 0;
        if (ioctl(s->fd, FIONREAD, &n) == 0 && n < 0)
            fail("connection %u: FIONREAD says %d", s->id, n);
        break;
    case 4:
        if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err != 0 && !may_break(s))
            fail("connection %u: SO_ERROR says %s", s->id, strerrorname_np(err));
        break;
    case 5:
        n = (int)rnd(w, 2);
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &n, sizeof(n));
        break;
    case 6:
    case 7:
        n = (int)rnd(w, 2);
        setsockopt(s->fd, IPPROTO_TCP, TCP_CORK, &n, sizeof(n));
        break;
    default:
        n = fcntl(s->fd, F_GETFD);
        if (n >= 0)
            fcntl(s->fd, F_SETFD, n ^ FD_CLOEXEC);
        break;
    }
    slot_leave(w, s);
}

/* The connection goes on under another number. */
static void op_rename(struct worker *w)
{
    struct slot *s = slot_enter(w);
    if (s == NULL)
        return;
    int old = -1;
    pthread_mutex_lock(&s->lock);
    if (s->users == 1 && s->state == OPEN && pthread_rwlock_tryrdlock(&numbers) == 0) {
        int fd = rnd(w, 2) ? dup(s->fd) : fcntl(s->fd, F_DUPFD_CLOEXEC, (int)rnd(w, 100));
        must(fd >= 0, "dup");
        old = s->fd;
        s->fd = fd;
        pthread_rwlock_unlock(&numbers);
        COUNT(dups, 1);
    }
    pthread_mutex_unlock(&s->lock);
    if (old >= 0)
        must(close(old) == 0, "close");
    slot_leave(w, s);
}

static void op_fork(struct worker *w)
{
    bool exec = rnd(w, 4) == 0, closes = rnd(w, 2);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (closes)
            close_range(3, ~0u, 0);
        if (exec)
            execl("/bin/true", "true", (char *)NULL);
        _exit(exec ? 1 : 0);
    }
    must(pid > 0, "fork");
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("a child that does nothing ended with status %#x", (unsigned)status);
    COUNT(forks, 1);
    COUNT(execs, exec);
}

static const struct {
    const char *name;
    void (*run)(struct worker *w);
    unsigned weight;
    bool waits; /* in poll and the like */
} ops[] = {
    { "send", op_send, 400, false },    { "recv", op_recv, 500, false },    { "poll", op_poll, 60, true },
    { "select", op_select, 30, true },  { "epoll", op_epoll, 80, true },    { "connect", op_connect, 40, false },
    { "accept", op_accept, 60, false }, { "close", op_close, 40, false },   { "finish", op_finish, 10, false },
    { "switch", op_switch, 40, false }, { "rename", op_rename, 10, false }, { "fork", op_fork, 2, false },
};

void ops_one(struct worker *w)
{
    unsigned all = 0;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        all += ops[i].weight;
    unsigned at = rnd(w, all);
    size_t i = 0;
    for (; at >= ops[i].weight; i++)
        at -= ops[i].weight;
    if ((ops[i].waits && !with_poll) || (ops[i].run == op_fork && !with_fork))
        return;
    atomic_store(&w->doing, ops[i].name);
    ops[i].run(w);
    atomic_fetch_add(&w->ops, 1);
}
