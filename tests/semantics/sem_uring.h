/*
 * An io_uring by syscall() as libuv makes them, for the scenarios of rings.
 */
#ifndef SW_TESTS_PRELOAD_SEM_URING_H
#define SW_TESTS_PRELOAD_SEM_URING_H

#include <linux/io_uring.h>
#include <stdint.h>

#define NO_SQARRAY (1u << 16) /* IORING_SETUP_, which is newer than some headers */

struct ring {
    int fd;
    char *sq, *cq;
    struct io_uring_sqe *sqes;
    struct io_uring_params p;
};

struct ring ring_new(unsigned flags);
void ring_free(struct ring *r);
/* Puts an entry into the queue, and submits n of those. */
void ring_push(struct ring *r, const struct io_uring_sqe *sqe);
void ring_enter(struct ring *r, unsigned n);
/* Both. */
void ring_submit(struct ring *r, const struct io_uring_sqe *sqe);
/* Is there a completion, without a system call? */
int ring_has(const struct ring *r);
/* The next completion; waits for it. */
struct io_uring_cqe ring_cqe(struct ring *r);
/* The next completion's result; its user data must be want. */
int ring_next(struct ring *r, uint64_t want);
/* Submits one entry and waits for its result. */
int ring_do(struct ring *r, struct io_uring_sqe sqe);
struct io_uring_sqe request(int opcode, int fd, void *buf, unsigned len);
/* " what=5", or " what=EAGAIN" for a negative one. */
void say_res(const char *what, int res);

#endif
