/* io_urings of the program's own: the known ones, and the calls by which the program makes and enters them. */
#include "preload/calls/ring.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/conn/coalesce.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/signals.h"
#include "preload/process/usermem.h"

#define RINGS 128
/* What liburing 2.3's header does not have. */
#define SETUP_NO_SQARRAY (1u << 16)
#define SETUP_HYBRID_IOPOLL (1u << 17)
#define SETUP_CQE_MIXED (1u << 18)
#define ENTER_REGISTERED_RING (1u << 4)
#define REGISTER_USE_REGISTERED_RING (1u << 31)
#define REGISTER_RESIZE_RINGS 33
/*
 * Set up so, entries are where we find them, and the kernel has them by an enter. (Not: SQPOLL, NO_MMAP,
 * REGISTERED_FD_ONLY.)
 */
#define SETUP_KNOWN                                                                                              \
    (IORING_SETUP_IOPOLL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_ATTACH_WQ |                   \
     IORING_SETUP_R_DISABLED | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | \
     IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |        \
     SETUP_NO_SQARRAY | SETUP_HYBRID_IOPOLL | SETUP_CQE_MIXED)

/*
 * A ring that was made by syscall() has our mapping of its submission queue; for one of liburing's, the library's place
 * is used.
 */
struct ring {
    pthread_mutex_t lock;                /* an entry is looked at by one thread; recursive, for handlers */
    const unsigned *head, *tail, *array; /* array NULL: entry by entry */
    char *sqes;                          /* NULL: liburing's */
    size_t stride, sqes_len, sq_len;
    void *sq;
    unsigned mask;
    _Atomic unsigned users; /* calls that use it, and one while it is in the table; 0: it is freed */
    _Atomic int fd;         /* -1: not in the table */
    _Atomic bool taken;     /* changed under table_lock, but for the last reference's end */
};

#define NO_RING                                                  \
    {                                                            \
        .fd = -1, .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP \
    }
static struct ring rings[RINGS] = { [0 ... RINGS - 1] = NO_RING };
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* the table; innermost */
static _Atomic int top;                                        /* one above the last entry of rings ever in use */
static _Atomic int fd_limit;                                   /* one above the highest fd */

/* ---- the table ---- */

static void put(struct ring *r)
{
    if (atomic_fetch_sub(&r->users, 1) != 1)
        return;
    if (r->sqes != NULL) {
        munmap(r->sq, r->sq_len);
        munmap(r->sqes, r->sqes_len);
        r->sqes = NULL;
    }
    atomic_store(&r->taken, false);
}

/* The ring behind fd with a reference, NULL: none that is known. Async-signal-safe. */
static struct ring *hold(int fd)
{
    for (int i = 0, n = atomic_load(&top); i < n && fd >= 0; i++) {
        struct ring *r = &rings[i];
        if (atomic_load(&r->fd) != fd)
            continue;
        unsigned users = atomic_load(&r->users);
        while (users > 0 && !atomic_compare_exchange_weak(&r->users, &users, users + 1))
            ;
        if (users > 0 && atomic_load(&r->fd) == fd)
            return r;
        if (users > 0)
            put(r);
    }
    return NULL;
}

static bool is_ring(int fd)
{
    int i = fd < 0 || fd >= ring_fd_limit() ? -1 : atomic_load(&top) - 1;
    while (i >= 0 && atomic_load(&rings[i].fd) != fd)
        i--;
    return i >= 0;
}

void ring_closed(int fd)
{
    struct ring *gone = NULL;
    if (!is_ring(fd))
        return;
    lock_take(&table_lock);
    for (int i = 0; i < atomic_load(&top) && gone == NULL; i++)
        if (atomic_load(&rings[i].fd) == fd) {
            gone = &rings[i];
            atomic_store(&gone->fd, -1);
            atomic_fetch_sub(&ring_live, 1);
        }
    lock_give(&table_lock);
    if (gone != NULL)
        put(gone);
}

int ring_fd_limit(void)
{
    return atomic_load(&fd_limit);
}

/* A free entry that no look-up finds yet. */
static struct ring *take(void)
{
    struct ring *r = NULL;
    lock_take(&table_lock);
    for (int i = 0; i < RINGS && r == NULL; i++)
        if (!atomic_load(&rings[i].taken)) {
            r = &rings[i];
            atomic_store(&r->taken, true);
            if (i >= atomic_load(&top))
                atomic_store(&top, i + 1);
        }
    lock_give(&table_lock);
    return r;
}

static void enter(struct ring *r, int fd)
{
    lock_take(&table_lock);
    atomic_store(&r->users, 1);
    atomic_store(&r->fd, fd);
    atomic_fetch_add(&ring_live, 1);
    if (fd >= atomic_load(&fd_limit))
        atomic_store(&fd_limit, fd + 1);
    lock_give(&table_lock);
}

/* The rings are the parent's, and our mappings of them are not there. */
void ring_after_fork_child(void)
{
    pthread_mutex_init(&table_lock, NULL);
    for (int i = 0; i < RINGS; i++)
        rings[i] = (struct ring)NO_RING;
    atomic_store(&top, 0);
    atomic_store(&fd_limit, 0);
    atomic_store(&ring_live, 0);
    atomic_store(&ring_files, false);
}

/* ---- a ring is made ---- */

static void *map(int fd, size_t len, uint64_t what)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)what);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, len, MADV_DONTFORK);
    return p;
}

/* Makes a mapping of our own, because we do not know the program's. */
static bool map_ring(struct ring *r, int fd, const struct io_uring_params *p)
{
    size_t head_end = p->sq_off.head + sizeof(unsigned), tail_end = p->sq_off.tail + sizeof(unsigned);
    bool array = !(p->flags & SETUP_NO_SQARRAY);
    r->stride = sizeof(struct io_uring_sqe) << ((p->flags & IORING_SETUP_SQE128) != 0);
    r->sqes_len = p->sq_entries * r->stride;
    r->sq_len = array ? p->sq_off.array + p->sq_entries * sizeof(unsigned) : 0;
    r->sq_len = head_end > r->sq_len ? head_end : r->sq_len;
    r->sq_len = tail_end > r->sq_len ? tail_end : r->sq_len;
    char *sq = r->sq = map(fd, r->sq_len, IORING_OFF_SQ_RING);
    r->sqes = sq != NULL ? map(fd, r->sqes_len, IORING_OFF_SQES) : NULL;
    if (r->sqes == NULL) {
        if (sq != NULL)
            munmap(sq, r->sq_len);
        return false;
    }
    r->head = (unsigned *)(void *)(sq + p->sq_off.head);
    r->tail = (unsigned *)(void *)(sq + p->sq_off.tail);
    r->array = array ? (unsigned *)(void *)(sq + p->sq_off.array) : NULL;
    r->mask = p->sq_entries - 1;
    return true;
}

/* The program has made a ring. library: by liburing's. */
static void made(int fd, const struct io_uring_params *p, bool library)
{
    int err = errno;
    struct ring *r = (p->flags & ~SETUP_KNOWN) == 0 ? take() : NULL;
    atomic_store(&ring_ever, true);
    if (r != NULL && (library || map_ring(r, fd, p))) {
        ring_closed(fd); /* (one that was closed behind our back) */
        enter(r, fd);
        if (ring_drives_sockets())
            ring_look_made();
    } else {
        if (r != NULL)
            atomic_store(&r->taken, false);
        ring_look_sockets("a ring that cannot be followed");
    }
    errno = err;
}

long ring_setup(const long a[6])
{
    long fd = REAL(syscall)(SYS_io_uring_setup, a[0], a[1]);
    if (fd >= 0) {
        struct io_uring_params p = *(const struct io_uring_params *)a[1];
        made((int)fd, &p, false);
    }
    return fd;
}

/* ---- a ring is entered ---- */

/* The first n entries that the kernel has not had. */
static void look_through(struct ring *r, unsigned n)
{
    struct cancel hold = cancel_never();
    bool behind = false;
    pthread_mutex_lock(&r->lock);
    unsigned at = *(const volatile unsigned *)r->head, end = __atomic_load_n(r->tail, __ATOMIC_ACQUIRE);
    for (; n > 0 && at != end; n--, at++) {
        unsigned i = r->array != NULL ? *(const volatile unsigned *)&r->array[at & r->mask] : at & r->mask;
        if (i <= r->mask)
            ring_look((struct io_uring_sqe *)(void *)(r->sqes + i * r->stride), &behind);
    }
    pthread_mutex_unlock(&r->lock);
    cancel_restore(hold);
}

long ring_enter(const long a[6])
{
    int fd = (int)a[0], err = errno;
    unsigned n = (unsigned)a[1], flags = (unsigned)a[3];
    if (n > 0) {
        struct ring *r = flags & ENTER_REGISTERED_RING ? NULL : hold(fd);
        if (r != NULL && r->sqes != NULL)
            look_through(r, n);
        else
            ring_look_sockets("a ring that is not known");
        if (r != NULL)
            put(r);
    }
    if (a[2] > 0)
        coalesce_before_poll();
    errno = err;
    return REAL(syscall)(SYS_io_uring_enter, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- registered descriptors, which requests then name by their place ---- */

#define WORDS(type, arg) (usermem_readable(arg, sizeof(type)) ? (const type *)(arg) : NULL)

static bool may_register(unsigned op, const void *arg, unsigned n)
{
    const struct io_uring_rsrc_register *all;
    const struct io_uring_files_update *some;
    const struct io_uring_rsrc_update2 *tagged;
    switch (op & ~REGISTER_USE_REGISTERED_RING) {
    case IORING_REGISTER_FILES:
        return ring_look_register(arg, n);
    case IORING_REGISTER_FILES2:
        all = WORDS(struct io_uring_rsrc_register, arg);
        return all == NULL || ring_look_register((const int *)(uintptr_t)all->data, all->nr);
    case IORING_REGISTER_FILES_UPDATE:
        some = WORDS(struct io_uring_files_update, arg);
        return some == NULL || ring_look_register((const int *)(uintptr_t)some->fds, n);
    case IORING_REGISTER_FILES_UPDATE2:
        tagged = WORDS(struct io_uring_rsrc_update2, arg);
        return tagged == NULL || ring_look_register((const int *)(uintptr_t)tagged->data, tagged->nr);
    case REGISTER_RESIZE_RINGS:
        ring_look_sockets("a ring whose size changes");
        return true;
    default:
        return true;
    }
}

long ring_register(const long a[6])
{
    int err = errno;
    if (!may_register((unsigned)a[1], (const void *)a[2], (unsigned)a[3])) {
        errno = EOPNOTSUPP;
        return -1;
    }
    errno = err;
    return REAL(syscall)(SYS_io_uring_register, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- liburing: its library makes its system calls by itself ---- */

/* As it says errors. */
static int kernel_result(long r, int err)
{
    if (r >= 0)
        return (int)r;
    int e = -errno;
    errno = err;
    return e;
}

int io_uring_setup(unsigned entries, struct io_uring_params *params)
{
    int err = errno;
    return kernel_result(ring_setup((const long[6]){ (long)entries, (long)params }), err);
}

int io_uring_enter2(unsigned fd, unsigned submit, unsigned wait, unsigned flags, sigset_t *arg, size_t size)
{
    int err = errno;
    return kernel_result(
        ring_enter((const long[6]){ (long)fd, (long)submit, (long)wait, (long)flags, (long)arg, (long)size }), err);
}

int io_uring_enter(unsigned fd, unsigned submit, unsigned wait, unsigned flags, sigset_t *mask)
{
    return io_uring_enter2(fd, submit, wait, flags, mask, _NSIG / 8);
}

int io_uring_register(unsigned fd, unsigned op, const void *arg, unsigned n)
{
    int err = errno;
    return kernel_result(ring_register((const long[6]){ (long)fd, (long)op, (long)arg, (long)n }), err);
}

int io_uring_register_files(struct io_uring *io, const int *fds, unsigned n)
{
    return ring_look_register(fds, n) ? REAL(io_uring_register_files)(io, fds, n) : -EOPNOTSUPP;
}

int io_uring_register_files_tags(struct io_uring *io, const int *fds, const unsigned long long *tags, unsigned n)
{
    return ring_look_register(fds, n) ? REAL(io_uring_register_files_tags)(io, fds, tags, n) : -EOPNOTSUPP;
}

int io_uring_register_files_update(struct io_uring *io, unsigned off, const int *fds, unsigned n)
{
    return ring_look_register(fds, n) ? REAL(io_uring_register_files_update)(io, off, fds, n) : -EOPNOTSUPP;
}

int io_uring_register_files_update_tag(struct io_uring *io, unsigned off, const int *fds,
                                       const unsigned long long *tags, unsigned n)
{
    return ring_look_register(fds, n) ? REAL(io_uring_register_files_update_tag)(io, off, fds, tags, n) : -EOPNOTSUPP;
}

static int library_made(int r, const struct io_uring *io)
{
    if (r >= 0 && !proc_making_ring)
        made(io->ring_fd, &(struct io_uring_params){ .flags = io->flags }, true);
    return r;
}

int io_uring_queue_init(unsigned entries, struct io_uring *io, unsigned flags)
{
    return library_made(REAL(io_uring_queue_init)(entries, io, flags), io);
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *io, struct io_uring_params *params)
{
    return library_made(REAL(io_uring_queue_init_params)(entries, io, params), io);
}

void io_uring_queue_exit(struct io_uring *io)
{
    ring_closed(io->ring_fd);
    REAL(io_uring_queue_exit)(io);
}

/* What is to be submitted by io; however that was made. */
static void look_library(const struct io_uring *io)
{
    if (proc_making_ring) /* ours */
        return;
    int err = errno;
    struct cancel hold = cancel_never();
    unsigned shift = (io->flags & IORING_SETUP_SQE128) != 0, mask = *io->sq.kring_entries - 1;
    bool behind = false;
    if ((io->flags & ~SETUP_KNOWN) != 0)
        ring_look_sockets("a ring that cannot be followed");
    for (unsigned at = io->sq.sqe_head; at != io->sq.sqe_tail; at++)
        ring_look(&io->sq.sqes[(at & mask) << shift], &behind);
    cancel_restore(hold);
    errno = err;
}

int io_uring_submit(struct io_uring *io)
{
    look_library(io);
    return REAL(io_uring_submit)(io);
}

int io_uring_submit_and_wait(struct io_uring *io, unsigned n)
{
    look_library(io);
    return REAL(io_uring_submit_and_wait)(io, n);
}

int io_uring_submit_and_wait_timeout(struct io_uring *io, struct io_uring_cqe **cqe, unsigned n,
                                     struct __kernel_timespec *ts, sigset_t *mask)
{
    look_library(io);
    return REAL(io_uring_submit_and_wait_timeout)(io, cqe, n, ts, mask);
}

int io_uring_submit_and_get_events(struct io_uring *io)
{
    look_library(io);
    return REAL(io_uring_submit_and_get_events)(io);
}
