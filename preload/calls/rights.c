/*
 * Rights that the program gives up: see rights.h.
 */
#include "preload/calls/rights.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/calls/io.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/flusher.h"
#include "preload/process/hidden.h"
#include "preload/process/others.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/ready/epoll.h"
#include "preload/startup/beside.h"
#include "preload/startup/local.h"
#include "preload/startup/mark.h"
#include "preload/startup/meet.h"
#include "preload/startup/startup.h"

/* A parent that has just forked is about to close the connections that its child goes on with. */
#define AWAIT_NS 20000000u

/* Threads that stand still in the wrong place go on, and are stopped again. */
#define TRIES 400u
#define PAUSE_NS 2000000

/* The kernel tells by the number of links. (An io_uring's workers count.) */
static bool has_threads(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) < 0 || st.st_nlink > 3;
}

static void leave_meeting(int fd, struct sock *s, void *arg)
{
    (void)fd;
    (void)arg;
    beside_decide(s);
    if (s->kind == SOCK_LISTENER)
        local_meets_no_more(s);
}

/*
 * A connection that others have, too, is handed on to them and back from now on, which can be done with one that is
 * upgraded or plain. An answer that waits for the program's first bytes goes out now.
 */
static void decide_shared(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    if (c == NULL || holders_alone(&c->holders))
        return;
    if (conn_state(c) == CONN_UPGRADED) {
        if (conn_only_leads(c))
            conn_lead_out(c, fd);
        return;
    }
    (void)conn_decline(c, REASON_SHARED_FD);
    if (conn_state(c) == CONN_NEGOTIATING || conn_state(c) == CONN_CONNECTING) {
        int r = startup_go_on(s, true);
        (void)r; /* what is not decided stays with the others */
    }
}

/* What other threads are at that a parting breaks. */
struct begun {
    bool some;
    unsigned n;
    pid_t receivers[64]; /* which go on waiting in another way when they are woken */
};

static void look_for_begun(int fd, struct sock *s, void *arg)
{
    struct begun *b = arg;
    struct conn *c = s->conn;
    (void)fd;
    if (c == NULL)
        return;
    b->some |= c->startup.beside && conn_is_late(c);
    if (conn_state(c) != CONN_UPGRADED || !conn_on_socket(c) || holders_alone(&c->holders))
        return;
    pid_t receiver = turn_sleeper(&c->rx.turn);
    b->some |= receiver != 0 || turn_sleeper(&c->tx.turn) != 0;
    if (receiver != 0 && b->n < SW_ARRAY_LEN(b->receivers))
        b->receivers[b->n++] = receiver;
}

/*
 * The other threads stand still where the process can be parted; or, after TRIES, where a connection may suffer. 0 or
 * -errno.
 */
static int stop_others(void)
{
    static const struct timespec pause = { .tv_nsec = PAUSE_NS };
    int r = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        struct begun begun = { 0 };
        if (meet_is_used())
            sock_each(leave_meeting, NULL);
        if (conn_mem_is_shared())
            sock_each(decide_shared, NULL);
        r = others_stop();
        if (r < 0)
            break;
        sock_each(look_for_begun, &begun);
        if (!begun.some || i + 1 == TRIES)
            break;
        others_go_on();
        while (begun.n > 0)
            others_wake(begun.receivers[--begun.n]);
        rawsys4(__NR_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&pause, 0);
    }
    return r;
}

/* What the processes with these rights share by memory, and where their ends meet, is not for one without them. */
void rights_part(void)
{
    bool shared = conn_mem_is_shared();
    if (!shared && !meet_is_used())
        return;
    sigset_t before, all;
    sigfillset(&all);
    if (shared)
        conn_mem_await(proc_now_ns() + AWAIT_NS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = stop_others();
    if (r == 0) {
        if (meet_is_used())
            meet_part();
        r = shared ? conn_mem_part() : 0;
        others_go_on();
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0 && shared)
        epoll_part();
    else if (r < 0)
        trace_error("the program gives up rights, and goes on sharing memory with other processes: %s",
                    r == -ENOMEM ? "there is no memory" : "its other threads cannot be stopped");
}

/* (A vfork child's memory is its parent's.) */
static bool concerns_us(void)
{
    return proc_on() && !proc_is_borrowed() && !sandbox_on();
}

void rights_before(void)
{
    if (!concerns_us())
        return;
    int err = errno;
    coalesce_stop();
    flusher_stop(); /* it would keep the rights */
    rights_part();
    errno = err;
}

static void before_network(void)
{
    if (concerns_us())
        local_leaves_network();
    rights_before();
}

void rights_after(void)
{
    if (!concerns_us())
        return;
    int err = errno;
    flusher_again();
    coalesce_go_on();
    if (flusher_has_jobs())
        flusher_note(0);
    errno = err;
}

/*
 * What is upgraded becomes a bridge's end, which is a file like others in either table; what is not stays plain. No
 * thread of ours runs but bridges'.
 */
static void own_files(void)
{
    if (!concerns_us() || !has_threads())
        return;
    int err = errno;
    atomic_store(&proc.passes_conns, true);
    for (int fd = 0; fd < sock_fd_limit(); fd++) {
        struct sock *s = hidden_is(fd) ? NULL : sock_get(fd); /* (a bridge has its connection by such a number) */
        if (s == NULL)
            continue;
        if (s->kind == SOCK_LISTENER)
            mark_end(s);
        if (s->kind == SOCK_CONN && s->conn != NULL)
            (void)conn_decline(s->conn, REASON_SHARED_FD);
        sock_put(s);
        if (!io_pass(fd))
            trace_error("fd %d: a thread's close of it will end it for the other threads, too", fd);
    }
    errno = err;
}

static void before_unshare(int flags)
{
    before_network();
    if (flags & CLONE_FILES)
        own_files();
}

void rights_before_own_files(void)
{
    if (!concerns_us())
        return;
    int err = errno;
    coalesce_stop();
    flusher_stop(); /* it would keep the former table */
    own_files();
    errno = err;
}

/* ---- the calls ---- */

#define CALL_BEHIND(before, name, params, args) \
    int name params                             \
    {                                           \
        before;                                 \
        int r = REAL(name) args;                \
        rights_after();                         \
        return r;                               \
    }
#define RIGHTS_CALL(name, params, args) CALL_BEHIND(rights_before(), name, params, args)

RIGHTS_CALL(setuid, (uid_t uid), (uid))
RIGHTS_CALL(setgid, (gid_t gid), (gid))
RIGHTS_CALL(seteuid, (uid_t uid), (uid))
RIGHTS_CALL(setegid, (gid_t gid), (gid))
RIGHTS_CALL(setreuid, (uid_t real, uid_t effective), (real, effective))
RIGHTS_CALL(setregid, (gid_t real, gid_t effective), (real, effective))
RIGHTS_CALL(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))
RIGHTS_CALL(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))
RIGHTS_CALL(setfsuid, (uid_t uid), (uid))
RIGHTS_CALL(setfsgid, (gid_t gid), (gid))
RIGHTS_CALL(setgroups, (size_t n, const gid_t *list), (n, list))
RIGHTS_CALL(initgroups, (const char *user, gid_t group), (user, group))
int capset(void *header, const void *data); /* (sys/capability.h is libcap's) */
RIGHTS_CALL(capset, (void *header, const void *data), (header, data))
RIGHTS_CALL(chroot, (const char *path), (path))
CALL_BEHIND(before_unshare(flags), unshare, (int flags), (flags))
CALL_BEHIND(before_network(), setns, (int fd, int type), (fd, type))

long rights_syscall(long number, const long a[6])
{
    if (number == SYS_unshare)
        before_unshare((int)a[0]);
    else if (number == SYS_setns)
        before_network();
    else
        rights_before();
    long r = REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    rights_after();
    return r;
}
