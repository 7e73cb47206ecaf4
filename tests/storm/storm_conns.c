/*
 * The connections of a process.
 *
 * A number must not be given to something else while a thread still uses it, as in any program. So users are counted;
 * and a thread that closes a descriptor which others use keeps all from making new ones until those calls have returned.
 */
#include "tests/storm/storm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct slot slots[SLOTS];
pthread_rwlock_t numbers;
int shared_epfd, null_fd;

/* The connecting end says it first, where its port does not tell. */
struct intro {
    uint64_t magic;
    uint32_t id;
    uint32_t not_id;
};
#define INTRO_MAGIC 0x6d726f7473207773u

void conns_init(void)
{
    pthread_rwlockattr_t a;
    pthread_rwlockattr_init(&a);
    pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&numbers, &a);
    for (unsigned i = 0; i < SLOTS; i++) {
        pthread_mutex_init(&slots[i].lock, NULL);
        pthread_cond_init(&slots[i].idle, NULL);
        pthread_rwlock_init(&slots[i].tx, NULL);
        pthread_rwlock_init(&slots[i].rx, NULL);
        slots[i].fd = -1;
    }
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    must(null_fd >= 0, "/dev/null");
}

uint32_t rnd(struct worker *w, uint32_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return below > 1 ? (uint32_t)(w->random >> 20) % below : 0;
}

void may_cancel(struct worker *w, bool yes)
{
    (void)w;
    if (with_cancel)
        pthread_setcancelstate(yes ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE, NULL);
}

/* ---- users ---- */

struct slot *slot_enter(struct worker *w)
{
    for (unsigned i = 0, at = rnd(w, SLOTS); i < SLOTS; i++) {
        struct slot *s = &slots[(at + i) % SLOTS];
        pthread_mutex_lock(&s->lock);
        bool open = s->state == OPEN;
        s->users += open;
        pthread_mutex_unlock(&s->lock);
        if (open) {
            w->slot = s;
            return s;
        }
    }
    return NULL;
}

void slot_leave(struct worker *w, struct slot *s)
{
    w->slot = NULL;
    pthread_mutex_lock(&s->lock);
    if (--s->users == 0)
        pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static void await_idle(struct slot *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->users > 0)
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* An empty slot to make a connection in, or NULL. */
static struct slot *slot_take(struct worker *w)
{
    for (unsigned i = 0, at = rnd(w, SLOTS); i < SLOTS; i++) {
        struct slot *s = &slots[(at + i) % SLOTS];
        pthread_mutex_lock(&s->lock);
        bool empty = s->state == EMPTY;
        if (empty)
            s->state = MAKING;
        pthread_mutex_unlock(&s->lock);
        if (empty) {
            s->c = NULL;
            w->slot = s;
            return s;
        }
    }
    return NULL;
}

void slot_set(struct worker *w, struct slot *s, enum slot_state state)
{
    pthread_mutex_lock(&s->lock);
    s->state = state;
    pthread_mutex_unlock(&s->lock);
    w->slot = NULL;
}

static void slot_open(struct worker *w, struct slot *s, int fd, uint32_t id, unsigned mine)
{
    s->fd = fd;
    s->id = id;
    s->c = &shared->conn[id];
    s->mine = mine;
    s->kind = (enum kind)atomic_load(&s->c->kind);
    atomic_store(&s->left, false);
    atomic_store(&s->tx_done, false);
    atomic_store(&s->rx_done, false);
    s->tx_at = s->rx_at = 0;
    s->chunk_len = 0;
    atomic_store(&s->strays, 0);
    memset(s->rx_seq, 0, sizeof(s->rx_seq));
    for (unsigned i = 0; i <= THREADS; i++)
        atomic_store(&s->tx_seq[i], 0);
    if (s->kind == WORDS)
        memset((void *)s->seen, 0, sizeof(s->seen));
    w->fd = -1;
    slot_set(w, s, OPEN);
}

/* ---- making ---- */

static void set_times(struct worker *w, int fd)
{
    struct timeval tv = { .tv_usec = (suseconds_t)(2000 + rnd(w, 20000)) };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

static void set_options(struct worker *w, int fd, enum kind kind)
{
    if (kind != CHUNKS && rnd(w, 5) == 0) {
        int n = 2000 << rnd(w, 5);
        setsockopt(fd, SOL_SOCKET, rnd(w, 2) ? SO_RCVBUF : SO_SNDBUF, &n, sizeof(n));
    }
    if (rnd(w, 3) == 0) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
}

static bool connect_slowly(int fd)
{
    uint64_t end = now_ms() + 20000;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        int r = poll(&p, 1, 20000);
        if (r > 0)
            break;
        if (now_ms() > end)
            fail("a connect that would take a moment takes 20 s");
    }
    int err = 0;
    socklen_t len = sizeof(err);
    must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0, "SO_ERROR");
    errno = err;
    return err == 0;
}

static void all_of(int fd, const void *buf, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t r = send(fd, (const char *)buf + done, len - done, MSG_NOSIGNAL);
        if (r > 0)
            done += (size_t)r;
        else if (errno != EAGAIN && errno != EINTR)
            return; /* the accepting end says so, if it should not have been */
    }
}

void op_connect(struct worker *w)
{
    struct slot *s = slot_take(w);
    if (s == NULL)
        return;
    uint32_t id = atomic_fetch_add(&shared->next_id, 1);
    if (id >= IDS) {
        slot_set(w, s, EMPTY);
        return;
    }
    bool by_port = rnd(w, 2), nonblock = rnd(w, 2);
    atomic_store(&shared->conn[id].kind, (uint8_t)rnd(w, KINDS));
    pthread_rwlock_rdlock(&numbers);
    int fd = socket(AF_INET, SOCK_STREAM | (rnd(w, 2) ? SOCK_CLOEXEC : 0) | (nonblock ? SOCK_NONBLOCK : 0), 0);
    pthread_rwlock_unlock(&numbers);
    must(fd >= 0, "socket");
    w->fd = fd;
    s->c = &shared->conn[id];
    s->mine = 0;
    set_options(w, fd, (enum kind)atomic_load(&s->c->kind));
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    if (by_port) {
        must(bind(fd, (struct sockaddr *)&in, len) == 0 && getsockname(fd, (struct sockaddr *)&in, &len) == 0, "bind");
        atomic_store(&shared->port_id[!side][ntohs(in.sin_port)], id);
    }
    in.sin_port = htons(peer_port[by_port]);
    may_cancel(w, true);
    bool up = connect(fd, (struct sockaddr *)&in, sizeof(in)) == 0;
    may_cancel(w, false);
    if (!up && ((nonblock && errno == EINPROGRESS) || (with_signals && errno == EINTR)))
        up = connect_slowly(fd);
    if (!up && errno == ECONNRESET && atomic_load(&s->c->dir[1].abrupt)) {
        /* Accepted, and gone with a reset before this thread looked. */
        close(fd);
        w->fd = -1;
        slot_set(w, s, EMPTY);
        return;
    }
    must(up, "connect");
    struct intro intro = { INTRO_MAGIC, id, ~id };
    if (!by_port)
        all_of(fd, &intro, sizeof(intro));
    set_times(w, fd);
    s->by_port = by_port;
    slot_open(w, s, fd, id, 0);
    COUNT(connects, 1);
}

/* 0: the connecting end has gone before it sent its number. */
static uint32_t hear_intro(int fd)
{
    struct intro in;
    uint64_t end = now_ms() + 20000;
    for (size_t done = 0; done < sizeof(in);) {
        ssize_t r = recv(fd, (char *)&in + done, sizeof(in) - done, 0);
        if (r > 0)
            done += (size_t)r;
        else if (r == 0 || (errno != EAGAIN && errno != EINTR))
            return 0;
        else if (now_ms() > end)
            fail("an accepted connection does not say who it is for 20 s");
    }
    if (in.magic != INTRO_MAGIC || in.id != ~in.not_id)
        fail("an accepted connection begins with wrong octets");
    return in.id;
}

void op_accept(struct worker *w)
{
    struct slot *s = slot_take(w);
    if (s == NULL)
        return;
    unsigned by_port = rnd(w, 2);
    int lfd = listener[by_port];
    struct pollfd p = { .fd = lfd, .events = POLLIN };
    if (rnd(w, 2) && poll(&p, 1, 1) == 0) {
        slot_set(w, s, EMPTY);
        return;
    }
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    pthread_rwlock_rdlock(&numbers);
    int fd = rnd(w, 2) ? accept(lfd, (struct sockaddr *)&from, &len)
                       : accept4(lfd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
    pthread_rwlock_unlock(&numbers);
    if (fd < 0) {
        if (errno != EAGAIN && !(with_signals && errno == EINTR))
            must(false, "accept");
        slot_set(w, s, EMPTY);
        return;
    }
    w->fd = fd;
    set_times(w, fd);
    uint32_t id = by_port ? atomic_load(&shared->port_id[side][ntohs(from.sin_port)]) : hear_intro(fd);
    if (id == 0) {
        w->fd = -1;
        close(fd);
        slot_set(w, s, EMPTY);
        return;
    }
    s->by_port = false;
    atomic_store(&shared->conn[id].accepted, true);
    slot_open(w, s, fd, id, 1);
    COUNT(accepts, 1);
}

/* ---- closing ---- */

/* While others use it: its number must not be given to a new connection before they have returned. */
static void close_busy(struct slot *s)
{
    pthread_rwlock_wrlock(&numbers);
    close(s->fd);
    await_idle(s);
    pthread_rwlock_unlock(&numbers);
    COUNT(busy_closes, 1);
}

static void close_abrupt(struct worker *w, struct slot *s)
{
    struct linger lin = { .l_onoff = 1, .l_linger = 0 };
    switch (rnd(w, 6)) {
    case 0:
        close_busy(s);
        return;
    case 1:
        must(dup2(null_fd, s->fd) == s->fd, "dup2");
        COUNT(replaced, 1);
        break;
    case 2:
        must(dup3(null_fd, s->fd, O_CLOEXEC) == s->fd, "dup3");
        COUNT(replaced, 1);
        break;
    case 3:
        shutdown(s->fd, SHUT_RDWR);
        break;
    case 4:
        setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin));
        COUNT(resets, 1);
        break;
    default:
        break;
    }
    await_idle(s);
    must((rnd(w, 2) ? close(s->fd) : close_range((unsigned)s->fd, (unsigned)s->fd, 0)) == 0, "close");
}

void slot_close(struct worker *w, struct slot *s)
{
    pthread_mutex_lock(&s->lock);
    /* (Its port would tell the accepting end about the next one from there.) */
    bool mine = s->state == OPEN && (!s->by_port || atomic_load(&s->c->accepted) || atomic_load(&stopping));
    if (mine)
        s->state = CLOSING;
    pthread_mutex_unlock(&s->lock);
    if (!mine)
        return;
    bool whole = atomic_load(&s->tx_done) && atomic_load(&s->rx_done) && !may_break(s) && !atomic_load(&s->left);
    if (whole) {
        await_idle(s);
        must(close(s->fd) == 0, "close");
        stream_whole(s);
        COUNT(finished, 1);
    } else {
        atomic_store(&s->c->dir[s->mine].abrupt, true);
        close_abrupt(w, s);
    }
    COUNT(closes, 1);
    s->fd = -1;
    slot_set(w, s, EMPTY);
}

void op_close(struct worker *w)
{
    bool abrupt = rnd(w, 12) == 0;
    for (unsigned i = 0, at = rnd(w, SLOTS); i < SLOTS; i++) {
        struct slot *s = &slots[(at + i) % SLOTS];
        pthread_mutex_lock(&s->lock);
        bool over =
            s->state == OPEN && ((atomic_load(&s->tx_done) && atomic_load(&s->rx_done)) || atomic_load(&s->left));
        bool open = s->state == OPEN;
        pthread_mutex_unlock(&s->lock);
        if (over || (abrupt && open)) {
            slot_close(w, s);
            return;
        }
    }
}

void conns_close_all(struct worker *w)
{
    for (unsigned i = 0; i < SLOTS; i++)
        slot_close(w, &slots[i]);
}
