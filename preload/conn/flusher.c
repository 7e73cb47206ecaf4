/*
 * The flusher: see flusher.h. Below `run` nothing may touch thread-local memory.
 */
#include "preload/conn/flusher.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"

#define STACK_LEN 65536u
/*
 * What stands where libc keeps a thread's own memory: compilers read a canary there. It is all zero except a pointer to
 * itself.
 */
#define TLS_BELOW 16384u
#define TLS_LEN 24576u

#define IDLE_NS 500000u      /* when nothing is gathered the flusher looks again after this, at most; */
#define AWAKE_NS 1000000u    /* it looks for this long, then it parks, */
#define PARKED_NS 200000000u /* and it ends when it has been parked this long */
#define ADDING_NS 2000000u   /* a buffer to which a thread is adding is left alone this long */
#define SLACK_NS 2000u       /* it is not woken for less */
#define REST_NS 200000u      /* the first pause before a full socket is tried again */
#define REST_MAX_NS 50000000u

enum { NONE, STARTING, AWAKE, PARKED };

static struct {
    _Atomic uint32_t state;
    _Atomic int alive; /* the thread's id, until the kernel is done with it */
    _Atomic bool stop;
    _Atomic bool cannot;                /* it could not be started, and is not tried again */
    _Atomic uint64_t wakes_ns;          /* when it looks next, while it is awake; 0: it is looking */
    _Atomic bool noted;                 /* something new was gathered */
    _Atomic(struct flusher_job *) jobs; /* to be taken by it: */
    struct flusher_job *mine;           /* the thread's own */
    _Atomic unsigned jobs_n;            /* of both */
    uint8_t *mem;
    uint64_t rest_ns;
    uint64_t idle_ns; /* anything gathered in the next moment is due after this */
} fl;

static long futex(_Atomic uint32_t *word, int op, uint32_t val, uint64_t timeout_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u), .tv_nsec = (long)(timeout_ns % 1000000000u) };
    return rawsys4(__NR_futex, (long)word, op | FUTEX_PRIVATE_FLAG, val, timeout_ns ? (long)&ts : 0);
}

/* ---- the flusher's own thread ---- */

static bool has_room(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    struct timespec now = { 0 };
    return rawsys6(__NR_ppoll, (long)&p, 1, (long)&now, 0, 0, 0) > 0;
}

/* Sends all that is queued, without waiting. 0, -EAGAIN, or what went wrong. The caller holds tx. */
static int out(struct conn *c, int fd)
{
    const struct iovec *iov;
    size_t len;
    for (size_t n; (n = iwarp_out(&c->ep, &iov, &len)) > 0;) {
        size_t lead = iwarp_out_lead(&c->ep);
        if (SW_UNLIKELY(lead > 0)) { /* as one piece: conn_soft_tx.c's out_lead */
            if (!has_room(fd))
                return -EAGAIN;
            n = 1;
            len = lead;
        }
        struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
        long sent = rawsys4(__NR_sendmsg, fd, (long)&msg, MSG_DONTWAIT | MSG_NOSIGNAL, 0);
        if (sent < 0)
            return (int)sent;
        c->tx.kernel_total += (uint64_t)sent;
        iwarp_out_sent(&c->ep, (size_t)sent);
        if ((size_t)sent < len)
            return -EAGAIN;
        if (lead == 0)
            stream_flushed(&c->st);
    }
    return 0;
}

/* The caller holds tx. True: something is left, and no other thread sends it. */
static bool send_on(struct conn *c, int fd)
{
    int r;
    if (c->tx.turn.orphan != TURN_WHOLE || c->broken || fd < 0 || c->tx.job_runs || c->tx.fin_owed ||
        c->tx.sender_pid != 0 || c->tx.urgent)
        return false;
    do {
        r = out(c, fd);
        coalesce_posted(c, r == 0);
    } while (r == 0 && (r = coalesce_post(c)) > 0);
    c->tx.rest = r != 0;
    if (r < 0 && r != -EAGAIN && r != -EINTR && r != -EPIPE)
        atomic_store(&c->so_error, -r); /* the kernel reports it only once */
    return r == -EAGAIN || r == -EINTR;
}

/* Sends what g has gathered, which is due. */
static void look_at(struct coalesce *g, uint32_t me, uint64_t now)
{
    bool leaves = false;
    atomic_store(&g->busy, true);
    struct sock *s = atomic_load(&g->sock);
    if (s != NULL && turn_try_bare(&g->conn->tx.turn, me)) {
        struct conn *c = g->conn;
        uint32_t before = (uint32_t)atomic_load(&g->word);
        bool rest = send_on(c, atomic_load(&s->fd));
        atomic_store(&g->rest, rest);
        atomic_store(&g->by_itself, 0);
        c->coalesce.row_ns = now;
        /* The program has stopped writing, or is slow. */
        leaves = !rest && before > 0 && g->writes_last < 4 && !coalesce_holds(c);
        if (leaves) {
            c->coalesce.row_n = 0;
            coalesce_leave_busy(g);
        }
        turn_give_bare(&c->tx.turn);
    }
    atomic_store(&g->busy, false);
    if (leaves)
        atomic_store(&g->used, false);
}

/* True: everything is sent, or can never be sent. */
static bool sent_all(const struct flusher_job *j, int fd, uint32_t me)
{
    struct conn *c = j->conn;
    if (!turn_try_bare(&c->tx.turn, me))
        return false;
    uint64_t before = c->tx.kernel_total;
    int r = c->tx.turn.orphan != TURN_WHOLE || c->broken ? -EPIPE : out(c, fd);
    if (c->tx.kernel_total != before)
        fl.rest_ns = REST_NS; /* the peer reads */
    bool over = r != -EAGAIN && r != -EINTR;
    /* The end follows; of a connection that other processes have only if the program has shut it down. */
    if (over && (!j->shared || c->tx.fin_owed)) {
        c->tx.fin_owed = false;
        rawsys4(__NR_shutdown, fd, SHUT_WR, 0, 0);
    }
    if (over && j->shared)
        c->tx.rest = false;
    turn_give_bare(&c->tx.turn);
    return over;
}

/* Works on connections that are closed. True: some are left. */
static bool finish(uint32_t me)
{
    for (struct flusher_job *j = atomic_exchange(&fl.jobs, NULL), *next; j != NULL; j = next) {
        next = j->next;
        j->next = fl.mine;
        fl.mine = j;
    }
    for (struct flusher_job **at = &fl.mine; *at != NULL;) {
        struct flusher_job *j = *at;
        int fd = atomic_load(&j->fd);
        if (!sent_all(j, fd, me)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        atomic_store(&j->fd, -1); /* (it is its owner's again) */
        atomic_fetch_sub(&fl.jobs_n, 1);
        rawsys4(__NR_close, fd, 0, 0, 0);
    }
    return fl.mine != NULL;
}

/* Sends what g holds if that is due. Returns when it is due next; 0: g holds nothing. */
static uint64_t send_if_due(struct coalesce *g, uint32_t me, uint64_t now)
{
    bool holds = (uint32_t)atomic_load(&g->word) != 0;
    if (!holds && !atomic_load(&g->rest))
        return 0;
    uint64_t due = atomic_load(&g->rest) ? now : coalesce_due(g);
    if (due <= now) {
        /* The thread that is adding to it may not be running because this one is. */
        uint32_t who = (uint32_t)(atomic_load(&g->word) >> 32);
        if (who == 0 || who == COALESCE_CLOSED || now - due > ADDING_NS)
            look_at(g, me, now);
        due = now + REST_NS / 10; /* (another thread has the turn) */
        holds = (uint32_t)atomic_load(&g->word) != 0;
    }
    return holds ? due : 0;
}

/* Sends what is due. Returns when to look again; 0: nothing is there. */
static uint64_t look(uint32_t me)
{
    uint64_t next = 0, now = proc_now_ns();
    bool rest = finish(me);
    unsigned n = atomic_load(&coalesce_slots_n);
    fl.idle_ns = IDLE_NS;
    for (unsigned i = 0; i < n; i++) {
        struct coalesce *g = &coalesce_slots[i];
        if (!atomic_load(&g->used))
            continue;
        uint64_t patience = coalesce_patience(g);
        fl.idle_ns = patience < fl.idle_ns ? patience : fl.idle_ns;
        uint64_t due = send_if_due(g, me, now);
        rest = rest || atomic_load(&g->rest);
        if (due != 0 && (next == 0 || due < next))
            next = due;
    }
    fl.rest_ns = !rest ? REST_NS : 2 * fl.rest_ns < REST_MAX_NS ? 2 * fl.rest_ns : REST_MAX_NS;
    if (rest && (next == 0 || now + fl.rest_ns < next))
        next = now + fl.rest_ns;
    return next;
}

/* Frees buffers in which nothing is gathered any more. */
static void let_go(uint32_t me)
{
    unsigned n = atomic_load(&coalesce_slots_n);
    for (unsigned i = 0; i < n; i++) {
        struct coalesce *g = &coalesce_slots[i];
        bool leaves = false;
        if (!atomic_load(&g->used) || (uint32_t)atomic_load(&g->word) != 0)
            continue;
        atomic_store(&g->busy, true);
        if (atomic_load(&g->sock) != NULL && turn_try_bare(&g->conn->tx.turn, me)) {
            struct conn *c = g->conn;
            leaves = !coalesce_holds(c) && !atomic_load(&g->rest);
            if (leaves)
                coalesce_leave_busy(g);
            turn_give_bare(&c->tx.turn);
        }
        atomic_store(&g->busy, false);
        if (leaves)
            atomic_store(&g->used, false);
    }
}

static bool anything(void)
{
    if (flusher_has_jobs())
        return true;
    unsigned n = atomic_load(&coalesce_slots_n);
    for (unsigned i = 0; i < n; i++)
        if (atomic_load(&coalesce_slots[i].used) && (uint32_t)atomic_load(&coalesce_slots[i].word) != 0)
            return true;
    return false;
}

/* Nothing is gathered. True: something is, or may be, again; false: the thread ends. */
static bool park(void)
{
    uint32_t parked = PARKED;
    atomic_store(&fl.state, PARKED);
    if (!anything() && !atomic_load(&fl.stop))
        futex(&fl.state, FUTEX_WAIT, PARKED, PARKED_NS);
    if (atomic_load(&fl.state) == AWAKE)
        return true;
    /* Its time is over, or no thread needed to wake it. */
    bool go_on = anything() && !atomic_load(&fl.stop);
    if (atomic_compare_exchange_strong(&fl.state, &parked, go_on ? AWAKE : NONE))
        return go_on;
    return true; /* woken this moment */
}

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* A filter that allows only what this thread does. */
static bool confine(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(__NR_sendmsg),
        ALLOW(__NR_ppoll),
        ALLOW(__NR_shutdown),
        ALLOW(__NR_close),
        ALLOW(__NR_futex),
        ALLOW(__NR_clock_gettime),
        ALLOW(__NR_restart_syscall),
        ALLOW(__NR_exit),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog prog = { .len = sizeof(f) / sizeof(f[0]), .filter = f };
    return rawsys6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) == 0 &&
           rawsys6(__NR_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&prog, 0, 0, 0) == 0;
}

static int run(void *unused)
{
    (void)unused;
    uint32_t me = (uint32_t)rawsys_gettid();
    uint64_t idle_since = 0;
    rawsys6(__NR_prctl, PR_SET_TIMERSLACK, 1, 0, 0, 0, 0);
    rawsys6(__NR_prctl, PR_SET_NAME, (long)"sockwarp-flush", 0, 0, 0, 0);
    if (!confine() && rawsys_geteuid() == 0)
        atomic_store(&fl.cannot, true); /* the thread ends when what is there is sent */
    fl.rest_ns = REST_NS;
    for (;;) {
        uint64_t next = look(me), now = proc_now_ns();
        bool ends = atomic_load(&fl.stop) || atomic_load(&fl.cannot);
        if (next != 0) {
            idle_since = 0;
        } else if (ends || (idle_since != 0 && now - idle_since >= AWAKE_NS)) {
            let_go(me);
            if (!park())
                return 0;
            idle_since = 0;
            continue;
        } else {
            idle_since = idle_since != 0 ? idle_since : now;
            next = now + fl.idle_ns;
        }
        atomic_store(&fl.wakes_ns, next);
        if (!atomic_exchange(&fl.noted, false) && next > now)
            futex(&fl.state, FUTEX_WAIT, AWAKE, next - now);
        atomic_store(&fl.wakes_ns, 0);
    }
}

/* ---- from the program's threads ---- */

static bool start(void)
{
    uint64_t all = ~UINT64_C(0), before;
    if (fl.mem == NULL) {
        uint8_t *p = mmap(NULL, STACK_LEN + TLS_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return false;
        fl.mem = p;
    }
    uint8_t *tls = fl.mem + STACK_LEN + TLS_BELOW;
    uintptr_t *tcb = (uintptr_t *)(void *)tls;
    tcb[0] = tcb[2] = (uintptr_t)tls; /* x86-64: the thread control block points to itself, twice */
    rawsys4(__NR_rt_sigprocmask, 2 /* SIG_SETMASK, also for libc's own */, (long)&all, (long)&before, sizeof(all));
    atomic_store(&fl.alive, 1);
    int r = clone(run, fl.mem + STACK_LEN,
                  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                      CLONE_CHILD_CLEARTID,
                  NULL, NULL, tls, &fl.alive);
    if (r < 0)
        atomic_store(&fl.alive, 0);
    rawsys4(__NR_rt_sigprocmask, 2, (long)&before, 0, sizeof(all));
    return r >= 0;
}

bool flusher_ready(void)
{
    uint32_t none = NONE;
    if (SW_UNLIKELY(atomic_load(&fl.cannot)))
        return false;
    if (SW_LIKELY(atomic_load(&fl.state) >= AWAKE))
        return true;
    if (atomic_load(&fl.stop) || proc_is_borrowed() || atomic_load(&fl.alive) != 0) /* (the former thread is ending) */
        return false;
    if (!atomic_compare_exchange_strong(&fl.state, &none, STARTING))
        return atomic_load(&fl.state) >= AWAKE;
    int err = errno;
    atomic_store(&fl.state, AWAKE);
    bool ok = start();
    if (!ok) {
        atomic_store(&fl.cannot, true);
        atomic_store(&fl.state, NONE);
    }
    errno = err;
    return ok;
}

void flusher_note(uint64_t due_ns)
{
    uint32_t parked = PARKED;
    if (atomic_load(&fl.state) == AWAKE) {
        atomic_store(&fl.noted, true);
        uint64_t wakes = atomic_load(&fl.wakes_ns);
        if (wakes > due_ns + SLACK_NS)
            futex(&fl.state, FUTEX_WAKE, 1, 0);
        return;
    }
    if (atomic_compare_exchange_strong(&fl.state, &parked, AWAKE))
        futex(&fl.state, FUTEX_WAKE, 1, 0);
    else
        flusher_ready();
}

/* As flusher_ready; waits for a former thread that is ending. */
static bool ready_surely(void)
{
    while (!flusher_ready()) {
        if (atomic_load(&fl.cannot) || atomic_load(&fl.stop) || proc_is_borrowed())
            return false;
        rawsys4(__NR_sched_yield, 0, 0, 0, 0);
    }
    return true;
}

bool flusher_close(struct flusher_job *job)
{
    if (!ready_surely())
        return false;
    atomic_fetch_add(&fl.jobs_n, 1);
    job->next = atomic_load(&fl.jobs);
    while (!atomic_compare_exchange_weak(&fl.jobs, &job->next, job))
        ;
    flusher_note(0);
    ready_surely();
    return true;
}

bool flusher_has_jobs(void)
{
    return atomic_load(&fl.jobs_n) > 0;
}

void flusher_stop(void)
{
    atomic_store(&fl.stop, true);
    for (int is; (is = atomic_load(&fl.alive)) != 0;) {
        static const struct timespec moment = { .tv_nsec = 10000000 };
        futex(&fl.state, FUTEX_WAKE, 1, 0);
        rawsys4(__NR_futex, (long)&fl.alive, FUTEX_WAIT, is, (long)&moment);
    }
}

void flusher_again(void)
{
    atomic_store(&fl.stop, false);
}

void flusher_after_fork(void)
{
    atomic_store(&fl.jobs, NULL);
    fl.mine = NULL;
    atomic_store(&fl.jobs_n, 0);
    atomic_store(&fl.state, NONE);
    atomic_store(&fl.alive, 0);
    atomic_store(&fl.stop, false);
}
