/*
 * Connections across exec.
 *
 * An upgraded connection's state is in the arena (preload/conn/shmem.h): the next program is told in
 * SOCKWARP_INHERIT where, and by which descriptor to map it, and finds its own descriptor for the connection by the
 * inode, whatever number it has by then. What was not decided yet needs no telling: bytes that are not read are still
 * in the kernel, and the next program looks at them as if it had accepted the connection.
 *
 *   SOCKWARP_INHERIT=inode:arena's descriptor:block's address:slot:shared:maker[;...]
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/calls/exec.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/shmem.h"
#include "preload/process/cancel.h"
#include "preload/process/hidden.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/startup.h"

#define ENTRY_LEN 96u /* the longest entry of the text */

/* ---- handing on ---- */

struct handing {
    struct inherit *in;
    bool can;
    size_t len, cap;
};

/* Has the connection state that the next program must know, beside the kernel's? */
static bool has_state(const struct conn *c)
{
    enum conn_state st = conn_state(c);
    return st == CONN_UPGRADED || (st == CONN_PLAIN && c->rx.pre_len > c->rx.pre_off) || conn_is_late(c);
}

/*
 * A connection that accept() has left to the process that uses it. As a standard stream the next program would decline
 * it, so it gets it upgraded in software. A program that does not load us would read the Hello, even one that has come
 * since accept(), so the Hello is declined.
 */
static void decide_held(struct sock *s, struct conn *c, int fd, bool can)
{
    if (!conn_undecided(c) ||
        (can && (!(c->opts.transports & HELLO_TRANSPORT_VERBS) || c->startup.inherited || fd > 2)))
        return;
    c->startup.no_device = true;
    if (!can)
        (void)conn_decline(c, REASON_EXEC);
    int r = startup_go_on(s, false);
    (void)r; /* the loop looks at its state next */
}

/* A startup that has begun comes to its end here: the answer to a Hello is a matter of one round trip. */
void inherit_decide(struct sock *s, struct conn *c, int fd)
{
    /* (What the parent is connecting is not meant for the next program.) */
    if (conn_state(c) == CONN_NEGOTIATING && !conn_undecided(c) && (c->responder || !startup_is_parents(s))) {
        uint64_t end = proc_now_ns() + (uint64_t)proc.set.hello_timeout_ms * 1000000u;
        do {
            int r = startup_go_on(s, false);
            if (r < 0 || conn_state(c) != CONN_NEGOTIATING || wait_for(fd, (short)c->startup.kernel_wants, end, s) < 0)
                return;
        } while (proc_now_ns() < end);
    }
}

#define STD_HELLO_NS 20000000u

/*
 * accept() has returned it before its Hello was there, and it is a standard stream: the next program would decline it
 * undecided. A client of this host that runs sockwarp will send its Hello within microseconds.
 */
static void decide_std(struct sock *s, struct conn *c, int fd)
{
    int r = startup_go_on(s, false);
    for (uint64_t end = proc_now_ns() + STD_HELLO_NS;
         r == 0 && c->startup.client_asked && conn_unheard(c) && proc_now_ns() < end;) {
        if (wait_for(fd, POLLIN, end, s) < 0)
            return;
        r = startup_go_on(s, false);
    }
}

/* The arena's descriptor for the next program: one that stays open across exec. */
static int shmem_for_next(struct inherit *in, int arena, int seen[8])
{
    for (unsigned i = 0; i < in->fd_n; i++)
        if (seen[i] == arena)
            return in->fd[i];
    int fd = in->fd_n < SW_ARRAY_LEN(in->fd) ? REAL(fcntl)(arena, F_DUPFD, arena) : -1;
    if (fd < 0 && errno == EINVAL) /* the limit is below it by now */
        fd = REAL(fcntl)(arena, F_DUPFD, 10);
    if (fd >= 0) {
        seen[in->fd_n] = arena;
        in->fd[in->fd_n++] = fd;
    }
    return fd;
}

static bool room_for_one(struct handing *h)
{
    struct inherit *in = h->in;
    if (in->n == INHERIT_ENTRIES_MAX)
        return false;
    if (h->len + ENTRY_LEN > h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 1024;
        char *text = realloc(in->text, cap);
        if (text == NULL)
            return false;
        in->text = text;
        h->cap = cap;
        struct conn **handed = realloc(in->handed, cap / 16 * sizeof(struct conn *));
        if (handed == NULL)
            return false;
        in->handed = handed;
        if (h->len == 0)
            h->len = (size_t)sprintf(text, INHERIT_VAR "=");
    }
    return true;
}

static bool is_handed(const struct inherit *in, const struct conn *c)
{
    for (unsigned i = 0; i < in->n; i++)
        if (in->handed[i] == c)
            return true;
    return false;
}

/* There is room. */
static void note_handed(struct inherit *in, struct conn *c)
{
    in->handed[in->n++] = c;
    if (in->spawn)
        holders_expect_child(&c->holders, in->maker);
}

static bool hand_on(struct handing *h, struct conn *c, ino_t ino, int seen[8])
{
    struct inherit *in = h->in;
    struct conn_place at;
    if (is_handed(in, c))
        return true;
    if (!h->can || !conn_place(c, &at) || !room_for_one(h))
        return false;
    conn_apart_claim(c);
    int fd = shmem_for_next(in, at.shmem_fd, seen);
    if (fd < 0)
        return false;
    const char *between = in->text[h->len - 1] != '=' ? ";" : "";
    unsigned shared = in->spawn || !holders_alone(&c->holders);
    h->len += (size_t)snprintf(in->text + h->len, ENTRY_LEN, "%s%ju:%d:%" PRIxPTR ":%u:%u:%d", between, (uintmax_t)ino,
                               fd, at.block, at.slot, shared, (int)in->maker);
    note_handed(in, c);
    if (!proc_is_borrowed()) /* (else its thread is in the parent, and goes on) */
        fork_stop_job(c);
    return true;
}

/*
 * The next program looks at an undecided connection afresh, and answers its Hello. So a close here is not the last one,
 * and must not end it.
 */
static void share(struct handing *h, struct conn *c)
{
    struct inherit *in = h->in;
    if (!is_handed(in, c) && !proc_is_borrowed() && room_for_one(h))
        note_handed(in, c);
}

int inherit_dead_end(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    REAL(close)(pair[1]);
    return pair[0];
}

/* was: for dig_out; without room there is no way back if the exec fails. */
static void note_kept(struct inherit *in, int fd, int was)
{
    if (in->kept_n == SW_ARRAY_LEN(in->kept))
        return;
    in->kept[in->kept_n].fd = fd;
    in->kept[in->kept_n++].was = was;
}

/* The next program does not get it at all. */
static void close_at_exec(struct inherit *in, int fd)
{
    int flags = REAL(fcntl)(fd, F_GETFD);
    if (flags >= 0 && !(flags & FD_CLOEXEC) && REAL(fcntl)(fd, F_SETFD, FD_CLOEXEC) == 0)
        note_kept(in, fd, -1);
}

/*
 * Bytes that the kernel has received could be read even after shutdown(), so the next program gets a closed socket in
 * its place; or none, where there is no descriptor for that.
 */
static void bury(struct inherit *in, int fd)
{
    int dead = in->kept_n < SW_ARRAY_LEN(in->kept) ? inherit_dead_end() : -1, was = dead >= 0 ? hidden_dup(fd) : -1;
    if (was >= 0 && REAL(dup2)(dead, fd) == fd) {
        note_kept(in, fd, was);
    } else {
        if (was >= 0)
            REAL(close)(was);
        close_at_exec(in, fd);
    }
    if (dead >= 0)
        REAL(close)(dead);
}

/*
 * It would stay open in the next program, which would read frames instead of its bytes. (What a child of posix_spawn
 * would get by its file actions is replaced there: spawn_actions.c.)
 */
static void end_unread(struct inherit *in, struct sock *s, struct conn *c, int fd)
{
    trace_error("fd %d: the next program cannot take this upgraded connection over; it is ended", fd);
    if (in->spawn && !proc_is_borrowed()) {
        close_at_exec(in, fd);
        return;
    }
    if (!in->spawn && holders_alone(&c->holders)) {
        conn_record(s, c);
        REAL(shutdown)(fd, SHUT_RDWR);
    }
    bury(in, fd);
}

static void dig_out(struct inherit *in)
{
    while (in->kept_n > 0) {
        int fd = in->kept[--in->kept_n].fd, was = in->kept[in->kept_n].was;
        if (was < 0) {
            REAL(fcntl)(fd, F_SETFD, 0);
            continue;
        }
        REAL(dup2)(was, fd);
        REAL(close)(was);
    }
}

struct walk {
    struct handing *h;
    int seen[8];
};

static void leave_one(int fd, struct sock *s, void *arg)
{
    struct walk *w = arg;
    struct inherit *in = w->h->in;
    struct conn *c = s->conn;
    ino_t ino = c != NULL ? sock_ino(fd) : 0;
    /* (It has several descriptors, and what the next program will find is settled: a Hello that comes now is for that.) */
    if (ino == 0 || is_handed(in, c))
        return;
    if ((REAL(fcntl)(fd, F_GETFD) & FD_CLOEXEC) && !spawn_gives(in->fa, fd))
        return;
    if (!w->h->can && !proc_is_borrowed()) {
        startup_hand_on_unsaid(s);
        startup_stay_unasked(s, REASON_EXEC);
    }
    if (!proc_is_borrowed())
        beside_decide(s);
    if (!in->spawn) {
        decide_held(s, c, fd, w->h->can);
        if (w->h->can && fd <= 2 && conn_undecided(c) && !c->startup.inherited)
            decide_std(s, c, fd);
        if (!w->h->can || !conn_is_late(c))
            inherit_decide(s, c, fd);
    }
    if (w->h->can && (conn_undecided(c) || (conn_state(c) == CONN_PLAIN && !has_state(c))))
        atomic_store(&c->record.handed, true);
    if (conn_undecided(c) && w->h->can)
        startup_hand_afresh(s, in->spawn);
    if (conn_undecided(c))
        share(w->h, c);
    if (has_state(c) && !(proc_is_borrowed() && ino != c->record.ino) && !hand_on(w->h, c, ino, w->seen) &&
        !conn_is_late(c))
        end_unread(in, s, c, fd);
}

/* A vfork child has moved its descriptors already, to numbers that no call of ours has noted. */
struct moved {
    struct walk *w;
    int fd;
    ino_t ino;
};

/* Of the descriptors of an upgraded connection it is the one that the parent's calls go by. */
static bool is_upgraded(const struct sock *s, int fd)
{
    return s->conn != NULL && conn_state(s->conn) == CONN_UPGRADED && atomic_load(&s->fd) == fd;
}

static void find_moved(int fd, struct sock *s, void *arg)
{
    const struct moved *m = arg;
    if (is_upgraded(s, fd) && s->conn->record.ino == m->ino && !hand_on(m->w->h, s->conn, m->ino, m->w->seen))
        end_unread(m->w->h->in, s, s->conn, m->fd);
}

static void find_upgraded(int fd, struct sock *s, void *arg)
{
    bool *some = arg;
    *some = *some || is_upgraded(s, fd);
}

static void look_at_moved(int fd, void *arg)
{
    int flags = REAL(fcntl)(fd, F_GETFD);
    struct moved m = { .w = arg, .fd = fd, .ino = flags >= 0 && !(flags & FD_CLOEXEC) ? sock_ino(fd) : 0 };
    if (m.ino != 0)
        sock_each(find_moved, &m);
}

struct finish {
    const struct inherit *in;
    uint64_t end; /* of what is waited for, with all of them */
};

/* If the peer never takes the rest, it must not believe that it has got everything. */
static void send_tail(struct conn *c, int fd, uint64_t end, bool alone)
{
    uint64_t now = proc_now_ns();
    if (conn_tx_settle(c, fd, now < end ? (uint32_t)((end - now) / 1000000u) : 0) == -EAGAIN && alone) {
        c->tx.linger_before_exec = conn_linger_s(NULL, fd);
        conn_reset_at_close(fd);
    }
}

static void finish_one(int fd, struct sock *s, void *arg)
{
    const struct finish *finish = arg;
    const struct inherit *in = finish->in;
    struct conn *c = s->conn;
    if (c == NULL || atomic_load(&s->fd) != fd)
        return;
    if (is_handed(in, c)) {
        holders_exec(&c->holders);
        return;
    }
    /* The exec will close it. (If the exec fails after all, the slot must still be ours.) */
    bool alone = holders_alone(&c->holders);
    fork_stop_job(c);
    if (conn_state(c) == CONN_UPGRADED && (alone || conn_tail_is_mine(c)) && turn_take_brief(&c->tx.turn) == 0) {
        send_tail(c, fd, finish->end, alone);
        turn_give(&c->tx.turn);
    }
    if (!alone) {
        conn_apart_exec(c, false);
        holders_leave(&c->holders);
        return;
    }
    conn_record_leaves(c);
    conn_record(s, c);
    holders_exec(&c->holders);
}

void inherit_begin(struct inherit *in, bool can)
{
    struct handing h = { .in = in, .can = can };
    struct walk w = { .h = &h };
    bool some = false;
    in->text = NULL;
    in->handed = NULL;
    in->n = in->fd_n = in->kept_n = 0;
    in->maker = in->spawn ? HOLDERS_FORK + (int32_t)rawsys_gettid() : 0;
    struct cancel hold = cancel_never(); /* exec is no point of cancellation, but the waits here would be */
    if (proc_is_borrowed())
        sock_each(find_upgraded, &some);
    if (some)
        inherit_each_fd(look_at_moved, &w);
    sock_each(leave_one, &w);
    if (!in->spawn) {
        struct finish finish = { .in = in, .end = proc_now_ns() + (uint64_t)proc.set.linger_ms * 1000000u };
        sock_each(finish_one, &finish);
        conn_tx_give_up(proc.set.linger_ms); /* those that were closed before: the ring ends with this program */
    }
    cancel_restore(hold);
}

struct search {
    ino_t ino;
    bool found;
};

static void compare_ino(int fd, struct sock *s, void *arg)
{
    struct search *search = arg;
    search->found = search->found || (is_upgraded(s, fd) && s->conn->record.ino == search->ino);
}

bool inherit_is_ours(int fd)
{
    struct sock *s = sock_get(fd);
    bool is = s != NULL && !proc_is_borrowed() &&
              (s->kind == SOCK_LISTENER || (s->conn != NULL && (has_state(s->conn) || conn_undecided(s->conn))));
    if (s != NULL)
        sock_put(s);
    struct search search = { .ino = is ? 0 : sock_ino(fd) };
    if (search.ino != 0)
        sock_each(compare_ino, &search);
    return is || search.found;
}

bool inherit_is_unread(const struct inherit *in, int fd)
{
    struct sock *s = sock_get(fd);
    const struct conn *c = s != NULL ? s->conn : NULL;
    bool is = c != NULL && has_state(c) && !is_handed(in, c) && !conn_is_late(c);
    if (s != NULL)
        sock_put(s);
    return is;
}

static void give_back(struct inherit *in)
{
    dig_out(in);
    for (unsigned i = 0; i < in->fd_n; i++)
        REAL(close)(in->fd[i]);
    free(in->text);
    free(in->handed);
    in->text = NULL;
    in->handed = NULL;
    in->n = in->fd_n = 0;
}

void inherit_forget(struct inherit *in)
{
    in->fd_n = in->kept_n = 0; /* the child's */
    give_back(in);
}

void inherit_spawned(struct inherit *in, pid_t child)
{
    for (unsigned i = 0; i < in->n; i++) {
        if (child > 0)
            holders_have_child(&in->handed[i]->holders, in->maker, child);
        else
            holders_no_child(&in->handed[i]->holders, in->maker);
    }
    give_back(in);
}

static void come_back(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    if (c == NULL || atomic_load(&s->fd) != fd)
        return;
    if (!holders_take_up(&c->holders, 0)) /* the processes that shared it have ended meanwhile */
        trace_error("fd %d: lost by an exec that failed", fd);
    conn_apart_exec(c, true);
    if (c->tx.linger_before_exec != 0) {
        const struct linger was = { .l_onoff = c->tx.linger_before_exec > 0, .l_linger = c->tx.linger_before_exec };
        REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &was, sizeof(was));
        c->tx.linger_before_exec = 0;
    }
    if (atomic_exchange(&c->record.handed, false))
        atomic_store(&c->record.written, false);
    if (conn_state(c) == CONN_UPGRADED && c->tx.rest)
        pending_add(s);
}

void inherit_failed(struct inherit *in)
{
    if (in->spawn) {
        inherit_spawned(in, 0);
        return;
    }
    dig_out(in);
    sock_each(come_back, NULL);
    give_back(in);
}
