/*
 * An io_uring by syscall().
 */
#include "tests/semantics/sem_uring.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/semantics/sem.h"

#define ENTRIES 8u
#define SQ_LEN(p) (4096 + (p).sq_entries * sizeof(unsigned)) /* what is before the array is short */

static unsigned *at(char *base, unsigned off)
{
    return (unsigned *)(void *)(base + off);
}

struct ring ring_new(unsigned flags)
{
    struct ring r = { .p.flags = flags };
    r.fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &r.p);
    if (r.fd < 0 && errno == EINVAL && flags != 0) /* an old kernel */
        return ring_new(0);
    must("io_uring_setup", r.fd);
    r.sq = mmap(NULL, SQ_LEN(r.p), PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, IORING_OFF_SQ_RING);
    r.cq = mmap(NULL, r.p.cq_off.cqes + r.p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
                MAP_SHARED, r.fd, IORING_OFF_CQ_RING);
    r.sqes = mmap(NULL, r.p.sq_entries * sizeof(*r.sqes), PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, IORING_OFF_SQES);
    return r;
}

void ring_free(struct ring *r)
{
    munmap(r->sq, SQ_LEN(r->p));
    munmap(r->cq, r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe));
    munmap(r->sqes, r->p.sq_entries * sizeof(*r->sqes));
    must("close", close(r->fd));
}

void ring_push(struct ring *r, const struct io_uring_sqe *sqe)
{
    unsigned *tail = at(r->sq, r->p.sq_off.tail), i = *tail & (r->p.sq_entries - 1);
    r->sqes[i] = *sqe;
    if (!(r->p.flags & NO_SQARRAY))
        at(r->sq, r->p.sq_off.array)[i] = i;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

void ring_enter(struct ring *r, unsigned n)
{
    must("io_uring_enter", syscall(SYS_io_uring_enter, r->fd, n, 0, 0, NULL, 0));
}

void ring_submit(struct ring *r, const struct io_uring_sqe *sqe)
{
    ring_push(r, sqe);
    ring_enter(r, 1);
}

int ring_has(const struct ring *r)
{
    return *at(r->cq, r->p.cq_off.head) != __atomic_load_n(at(r->cq, r->p.cq_off.tail), __ATOMIC_ACQUIRE);
}

struct io_uring_cqe ring_cqe(struct ring *r)
{
    unsigned *head = at(r->cq, r->p.cq_off.head);
    while (!ring_has(r))
        must("io_uring_enter", syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
    struct io_uring_cqe cqe =
        ((struct io_uring_cqe *)(void *)(r->cq + r->p.cq_off.cqes))[*head & (r->p.cq_entries - 1)];
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return cqe;
}

int ring_next(struct ring *r, uint64_t want)
{
    struct io_uring_cqe cqe = ring_cqe(r);
    if (cqe.user_data != want)
        say(" WRONG data=%llx", (unsigned long long)cqe.user_data);
    return cqe.res;
}

void say_res(const char *what, int res)
{
    if (res < 0)
        say(" %s=%s", what, error_name(-res));
    else
        say(" %s=%d", what, res);
}

int ring_do(struct ring *r, struct io_uring_sqe sqe)
{
    static uint64_t n = 0x1000;
    sqe.user_data = ++n;
    ring_submit(r, &sqe);
    return ring_next(r, n);
}

struct io_uring_sqe request(int opcode, int fd, void *buf, unsigned len)
{
    return (struct io_uring_sqe){ .opcode = (uint8_t)opcode, .fd = fd, .addr = (uintptr_t)buf, .len = len };
}
