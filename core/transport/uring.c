/*
 * Sends that complete without the program, by io_uring: one small ring per thread, made at its first use.
 *
 * The rings are in default mode, on purpose: the kernel finishes a send in the submitting task's context by task work,
 * which interrupts even a program that computes (with DEFER_TASKRUN or COOP_TASKRUN it would wait for the next call).
 * The price: a wait of that thread may end with EINTR (thread_busy tells the waiter).
 *
 * A thread may look after a request that another thread has started. No thread sleeps with a ring's lock held: one
 * job's slow peer must not delay another job's. The thread that sleeps is the only one that takes completions meanwhile
 * (any completion wakes it), and it tells the others.
 *
 * The program may close a ring's descriptor without our seeing it (a daemon that closes "all"). The ring lives on in
 * its mappings: running requests go on and their completions appear there, but nothing can be submitted or waited for.
 * The thread then gets a new ring. We never close that number again: it may be another file's by now.
 */
#include "core/transport/uring.h"

#include <errno.h>
#include <liburing.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/rawsys.h"

#define RING_ENTRIES 16u
#define NOBODY 1u       /* user data of a request that was taken back */
#define BEHIND_BIT 2u   /* beside the job's address: the shutdown or close behind its send */
#define NAP_NS 1000000l /* a ring without descriptor cannot be waited for, only looked at */
#define LOST_CANCEL_NS 1000000000ll
/*
 * The kernel hands a request to a worker of its own when it has found too little room too often. That worker lets go of
 * the request only after the completion is visible, which interrupts the thread as well. The kernel does not report
 * when: it may take as long as the worker waits for a processor.
 */
#define LET_GO_NS 1000000000ull

struct ring {
    struct io_uring io;
    pthread_mutex_t lock;    /* protects all but used, running, next; never held across a wait */
    _Atomic uint32_t reaped; /* a futex: counts when completions were taken */
    struct transport_job *jobs;
    bool open;    /* io is set up */
    bool waiting; /* a thread waits in the kernel, and takes the completions */
    bool lost;    /* its descriptor was closed by the program */
    bool orphan;  /* lost, and its thread has another ring: it ends with its last job */
    _Atomic bool used;
    _Atomic int running;
    _Atomic uint64_t over_ns; /* when the last job was over; 0: long ago */
    /* All rings ever made; never freed, because a late thread may be about to look at one. */
    struct ring *next;
};

static struct transport_env env;
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all. Innermost. */
static struct ring *all;
static _Atomic pid_t my_pid;
static __thread struct ring *my_ring;

/* No handler of the program's runs in a thread that has a lock. */
static void lock(pthread_mutex_t *m)
{
    if (env.hold != NULL)
        env.hold();
    pthread_mutex_lock(m);
}

static void unlock(pthread_mutex_t *m)
{
    pthread_mutex_unlock(m);
    if (env.go_on != NULL)
        env.go_on();
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Until then; 0: it is over, or there is no end (0). */
static uint64_t left_ns(uint64_t end_ns)
{
    uint64_t now = end_ns ? now_ns() : 0;
    return end_ns > now ? end_ns - now : 0;
}

static bool is_lost(int e)
{
    return e == -EBADF || e == -EOPNOTSUPP; /* nothing there, or something other than a ring */
}

/* ---- rings ---- */

static int ring_open(struct io_uring *io)
{
    struct io_uring_params p = { 0 };
    int r = io_uring_queue_init_params(RING_ENTRIES, io, &p);
    if (r < 0)
        return r;
    int fd = env.hide_fd(io->ring_fd);
    if (fd >= 0) {
        io->ring_fd = fd;
        io->enter_ring_fd = fd;
    }
    return 0;
}

static void io_close(struct io_uring *io, bool lost)
{
    int fd = io->ring_fd;
    if (!lost && !is_lost((int)rawsys4(__NR_io_uring_enter, fd, 0, 0, 0)))
        env.close_fd(fd);
    io->ring_fd = io->enter_ring_fd = -1;
    io_uring_queue_exit(io);
}

/* No jobs, and no thread waits. The caller holds the lock, or no other thread can know the ring. */
static void ring_shut(struct ring *r)
{
    io_close(&r->io, r->lost);
    r->open = r->lost = r->orphan = false;
    atomic_store(&r->used, false);
}

/* A ring's storage: one that is free, or a new one. */
static struct ring *ring_claim(void)
{
    struct ring *r;
    lock(&all_lock);
    for (r = all; r != NULL; r = r->next) {
        bool no = false;
        if (atomic_compare_exchange_strong(&r->used, &no, true))
            break;
    }
    if (r == NULL && (r = calloc(1, sizeof(*r))) != NULL) {
        pthread_mutex_init(&r->lock, NULL);
        atomic_store(&r->used, true);
        r->next = all;
        all = r;
    }
    unlock(&all_lock);
    return r;
}

/* ---- completions ---- */

static void job_over(struct ring *r, struct transport_job *job, ssize_t result)
{
    *job->pprev = job->next;
    if (job->next != NULL)
        job->next->pprev = job->pprev;
    job->result = result;
    atomic_store(&r->over_ns, now_ns());
    atomic_fetch_sub(&r->running, 1);
    atomic_store(&job->over, true); /* from here on the owner may use it again */
}

/*
 * A linked request looks its descriptor up by number when its turn comes, and interrupts its thread's waits as well: a
 * job is over only when that is done, too.
 */
static void completed(struct ring *r, struct transport_job *job, bool behind, int result)
{
    if (!behind)
        job->sent = result;
    if (--job->left == 0)
        job_over(r, job, job->sent);
}

/* The caller holds the lock, and no thread is waiting. */
static void reap(struct ring *r)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&r->io, &cqe) == 0 && cqe != NULL) {
        if (cqe->user_data != NOBODY)
            completed(r, (struct transport_job *)(uintptr_t)(cqe->user_data & ~(uint64_t)BEHIND_BIT),
                      cqe->user_data & BEHIND_BIT, cqe->res);
        io_uring_cqe_seen(&r->io, cqe);
    }
    if (r->orphan && r->jobs == NULL)
        ring_shut(r);
}

/* Another thread waits in the kernel: until it has taken completions, or end_ns (0: no end). As reap_wait. */
static void await_other(struct ring *r, uint64_t end_ns)
{
    uint32_t seen = atomic_load(&r->reaped);
    uint64_t left = left_ns(end_ns);
    struct timespec ts = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
    unlock(&r->lock);
    rawsys4(__NR_futex, (long)&r->reaped, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, end_ns ? (long)&ts : 0);
    lock(&r->lock);
}

/*
 * Waits until something is completed, at most until end_ns (0: no end). The caller holds the lock, which is free during
 * the wait.
 */
static void reap_wait(struct ring *r, uint64_t end_ns)
{
    struct io_uring_cqe *cqe;
    int e;
    if (r->waiting) {
        await_other(r, end_ns);
        return;
    }
    uint64_t left = left_ns(end_ns);
    struct __kernel_timespec ts = { (int64_t)(left / 1000000000u), (long long)(left % 1000000000u) };
    r->waiting = true;
    if (r->lost) {
        struct timespec nap = { 0, NAP_NS };
        unlock(&r->lock);
        nanosleep(&nap, NULL);
        e = 0;
    } else {
        unlock(&r->lock);
        e = end_ns ? io_uring_wait_cqe_timeout(&r->io, &cqe, &ts) : io_uring_wait_cqe(&r->io, &cqe);
    }
    lock(&r->lock);
    r->waiting = false;
    if (is_lost(e))
        r->lost = true;
    reap(r);
    atomic_fetch_add(&r->reaped, 1);
    rawsys4(__NR_futex, (long)&r->reaped, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, 0);
}

static bool listed(const struct ring *r, const struct transport_job *job)
{
    for (const struct transport_job *j = r->jobs; j != NULL; j = j->next)
        if (j == job)
            return true;
    return false;
}

/*
 * Without the descriptor requests cannot be stopped one by one, only with the ring: how much they sent is unknown then.
 * The caller holds the lock.
 */
static void give_up(struct ring *r)
{
    while (r->waiting)
        await_other(r, 0);
    while (r->jobs != NULL)
        job_over(r, r->jobs, -ECONNABORTED);
    /* No completion may appear any more: the kernel lets go of the requests when the mappings are gone. */
    if (r->orphan) {
        ring_shut(r);
    } else {
        io_close(&r->io, true);
        r->open = false; /* its thread notices */
    }
}

/* Waits until job is not on r's list. The caller holds the lock. It reads job only while that is on the list. */
static void cancel(struct ring *r, struct transport_job *job)
{
    uint64_t lost_end = 0;
    while (listed(r, job)) {
        struct io_uring_sync_cancel_reg reg = {
            .addr = (uint64_t)(uintptr_t)job,
            .timeout = { -1, -1 },
        };
        if (!r->lost) {
            /* The request cannot vanish meanwhile: its completion is taken only with the lock held. */
            unlock(&r->lock);
            int e = io_uring_register_sync_cancel(&r->io, &reg);
            lock(&r->lock);
            if (is_lost(e) && listed(r, job))
                r->lost = true;
            if (!r->waiting && r->open)
                reap(r);
            if (e == -EINTR || !listed(r, job))
                continue;
        }
        if (r->lost && lost_end == 0)
            lost_end = now_ns() + LOST_CANCEL_NS;
        if (r->lost && now_ns() >= lost_end)
            give_up(r);
        else
            reap_wait(r, 0); /* stopped, or done before: its completion follows */
    }
}

/* ---- a thread's ring ---- */

/*
 * A thread that ends takes its requests with it: what they have sent so far is booked, the rest stays with their
 * owners. But a request with a close behind it has no owner any more, so the thread stays until those are done, within
 * limits.
 */
static void ring_free(void *arg)
{
    struct ring *r = arg;
    unsigned ms = env.thread_end_ms ? env.thread_end_ms : TRANSPORT_THREAD_END_MS;
    uint64_t end = now_ns() + ms * 1000000ull;
    my_ring = NULL;
    lock(&r->lock);
    while (r->jobs != NULL) {
        struct transport_job *job = r->jobs;
        while (job != NULL && job->then == TRANSPORT_THEN_CLOSE)
            job = job->next;
        if (job == NULL && !r->lost && now_ns() < end)
            reap_wait(r, end);
        else
            cancel(r, job != NULL ? job : r->jobs);
    }
    while (r->waiting)
        await_other(r, 0);
    if (r->open)
        io_close(&r->io, r->lost);
    r->open = r->lost = false;
    atomic_store(&r->used, false);
    unlock(&r->lock);
}

static void thread_end_make(void)
{
    int e = pthread_key_create(&thread_end, ring_free);
    (void)e; /* without it a thread's ring stays until the exit */
}

static struct ring *ring_get(void)
{
    struct ring *r = my_ring;
    if (r != NULL) {
        lock(&r->lock);
        bool lost = r->lost;
        if (lost && r->open) {
            r->orphan = true;
            if (!r->waiting)
                reap(r);
        } else if (lost) {
            r->lost = false;
            atomic_store(&r->used, false);
        }
        unlock(&r->lock);
        if (!lost)
            return r;
        my_ring = NULL;
    }
    r = ring_claim();
    if (r == NULL)
        return NULL;
    if (ring_open(&r->io) < 0) {
        atomic_store(&r->used, false);
        return NULL;
    }
    r->open = true;
    atomic_store(&r->over_ns, 0);
    pthread_once(&thread_end_once, thread_end_make);
    pthread_setspecific(thread_end, r);
    my_ring = r;
    return r;
}

/* ---- the operations ---- */

/* What was put into the submission queue must not be sent later. */
static void take_back(struct io_uring_sqe *sqe)
{
    io_uring_prep_nop(sqe);
    sqe->user_data = NOBODY;
}

/* The lock is held. */
static int submit(struct ring *r, struct transport_job *job)
{
    struct io_uring_sqe *send, *behind = NULL;
    if (!r->waiting)
        reap(r);
    if (io_uring_sq_space_left(&r->io) < 2)
        return -EAGAIN;
    send = io_uring_get_sqe(&r->io);
    /*
     * A request that has found too little room too often is given to a worker, which is to sleep in the socket's send.
     * With sendmsg on a socket that does not block it would not sleep, but give up.
     */
    if (job->iov_n == 1)
        io_uring_prep_send(send, job->fd, job->iov->iov_base, job->iov->iov_len, MSG_NOSIGNAL | MSG_WAITALL);
    else
        io_uring_prep_sendmsg(send, job->fd, &job->msg, MSG_NOSIGNAL | MSG_WAITALL);
    send->user_data = (uint64_t)(uintptr_t)job;
    job->left = 1;
    if (job->then == TRANSPORT_THEN_CLOSE) {
        send->flags |= IOSQE_IO_HARDLINK; /* also when sending fails */
        behind = io_uring_get_sqe(&r->io);
        io_uring_prep_close(behind, job->fd);
    } else if (job->then == TRANSPORT_THEN_SHUT_WR) {
        send->flags |= IOSQE_IO_LINK; /* a send that is cancelled or short cancels it too */
        behind = io_uring_get_sqe(&r->io);
        io_uring_prep_shutdown(behind, job->fd, SHUT_WR);
    }
    if (behind != NULL) {
        behind->user_data = (uint64_t)(uintptr_t)job | BEHIND_BIT;
        job->left = 2;
    }
    int e = io_uring_submit(&r->io);
    if (e <= 0) {
        take_back(send);
        if (behind != NULL)
            take_back(behind);
        if (is_lost(e))
            r->lost = true;
        return e < 0 ? e : -EAGAIN;
    }
    job->next = r->jobs;
    job->pprev = &r->jobs;
    if (r->jobs != NULL)
        r->jobs->pprev = &job->next;
    r->jobs = job;
    atomic_fetch_add(&r->running, 1);
    return 0;
}

static int send_start(struct transport_job *job)
{
    memset(&job->msg, 0, sizeof(job->msg));
    job->msg.msg_iov = job->iov;
    job->msg.msg_iovlen = job->iov_n;
    job->result = 0;
    atomic_store(&job->over, false);
    int e = -ENOSYS;
    for (int tries = 0; tries < 2; tries++) {
        struct ring *r = ring_get();
        if (r == NULL) {
            e = -ENOSYS;
            break;
        }
        job->ring = r;
        job->pid = atomic_load(&my_pid);
        lock(&r->lock);
        e = submit(r, job);
        unlock(&r->lock);
        if (!is_lost(e))
            break;
    }
    if (e < 0)
        atomic_store(&job->over, true);
    return e;
}

static bool is_ours(const struct transport_job *job)
{
    return job->ring != NULL && job->pid == atomic_load(&my_pid);
}

static bool send_over(struct transport_job *job, bool wait)
{
    struct ring *r = job->ring;
    if (atomic_load(&job->over) || !is_ours(job))
        return atomic_load(&job->over);
    lock(&r->lock);
    if (!r->waiting && r->open)
        reap(r);
    while (wait && !atomic_load(&job->over))
        reap_wait(r, 0);
    unlock(&r->lock);
    return atomic_load(&job->over);
}

static void send_cancel(struct transport_job *job)
{
    struct ring *r = job->ring;
    if (atomic_load(&job->over) || !is_ours(job))
        return;
    lock(&r->lock);
    cancel(r, job);
    unlock(&r->lock);
}

static bool thread_busy(void)
{
    struct ring *r = my_ring;
    if (r == NULL)
        return false;
    if (atomic_load(&r->running) > 0)
        return true;
    uint64_t over = atomic_load(&r->over_ns);
    if (over == 0)
        return false;
    if (now_ns() < over + LET_GO_NS)
        return true;
    atomic_compare_exchange_strong(&r->over_ns, &over, 0);
    return false;
}

/* Only the mappings and the descriptors are this process's; the requests are the parent's. */
static void after_fork(void)
{
    atomic_store(&my_pid, rawsys_getpid());
    pthread_mutex_init(&all_lock, NULL);
    for (struct ring *r = all; r != NULL; r = r->next) {
        pthread_mutex_init(&r->lock, NULL);
        r->jobs = NULL;
        r->waiting = false;
        atomic_store(&r->running, 0);
        if (r->open)
            ring_shut(r);
        else
            atomic_store(&r->used, false);
    }
    if (my_ring != NULL)
        pthread_setspecific(thread_end, NULL);
    my_ring = NULL;
}

const struct transport_ops transport_uring_ops = {
    .name = "uring",
    .send_start = send_start,
    .send_over = send_over,
    .send_cancel = send_cancel,
    .thread_busy = thread_busy,
    .after_fork = after_fork,
};

int transport_uring_setup(const struct transport_env *e)
{
    env = *e;
    atomic_store(&my_pid, rawsys_getpid());
    struct io_uring io;
    int r = ring_open(&io);
    if (r < 0)
        return r;
    /*
     * Without it (before Linux 6.0) the number of bytes that a stopped send has sent is not reported; nor does
     * MSG_WAITALL continue there.
     */
    struct io_uring_sync_cancel_reg reg = { .addr = NOBODY, .timeout = { -1, -1 } };
    r = io_uring_register_sync_cancel(&io, &reg);
    io_close(&io, false);
    return r == -EINVAL ? -EOPNOTSUPP : 0;
}
