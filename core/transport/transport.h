/*
 * How octets reach the kernel's TCP socket: io_uring where it is allowed, plain system calls
 * otherwise.
 *
 * Sending and receiving what the program waits for is one system call either way, and
 * sendmsg/recvmsg are the faster one (docs/DECISIONS.md); both variants share them. What
 * io_uring adds are sends that complete without the program: the rest of a frame that did not fit
 * the socket buffer (send_start), also across close().
 */
#ifndef SW_TRANSPORT_TRANSPORT_H
#define SW_TRANSPORT_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/must.h"

/* What the transport needs of its surroundings; preload fills it in, tests their own. */
struct transport_env {
    /* Moves an internal descriptor out of the program's way; returns its new number. */
    int (*hide_fd)(int fd);
    int (*close_fd)(int fd); /* the real close */
    /* Between the two no signal handler of the program's runs in this thread. May be nested; NULL: there are none. */
    void (*hold)(void);
    void (*go_on)(void);
    /* How long a thread that ends waits for its THEN_CLOSE jobs; 0: TRANSPORT_THREAD_END_MS. */
    unsigned thread_end_ms;
};

#define TRANSPORT_THREAD_END_MS 5000u

/* What follows an asynchronous send. */
enum transport_then {
    TRANSPORT_THEN_NOTHING,
    TRANSPORT_THEN_SHUT_WR, /* once all is sent: shutdown(fd, SHUT_WR); not if that fails */
    TRANSPORT_THEN_CLOSE,   /* once all is sent, or sending failed: close(fd) */
};

/*
 * One asynchronous send. The owner fills fd, then, iov, iov_n; iovecs and octets stay untouched
 * until it is over. One job is used by one thread at a time (its owner's lock), not necessarily
 * always the same. It may lie in memory shared with other processes, but only the process that
 * started it can wait for it or stop it (see below).
 */
struct transport_job {
    int fd;
    enum transport_then then;
    struct iovec *iov; /* borrowed, unchanged by the transport */
    uint32_t iov_n;
    _Atomic bool over; /* fd is not used any more, and free to be closed */
    /* Octets sent, or -errno if none; valid when over. -ECONNABORTED: how many is not known. */
    ssize_t result;

    /* the transport's */
    struct msghdr msg;
    void *ring;
    pid_t pid;    /* whose ring it is */
    uint8_t left; /* completions still to come */
    ssize_t sent;
    struct transport_job *next, **pprev;
};

struct transport_ops {
    const char *name; /* "uring", "syscall" */
    /*
     * 0: it runs, and job->over is false until it is looked after. -ENOSYS: this variant cannot,
     * keep the octets and send them yourself; other errors likewise. The descriptor is closed only
     * after 0.
     */
    int (*send_start)(struct transport_job *job);
    /*
     * Is it over? With wait: waits for it. Any thread of the process that started it. In another
     * process: whether that one has seen its end; does not wait.
     */
    bool (*send_over)(struct transport_job *job, bool wait);
    /* Stops it: over afterwards, result = what went before. Does nothing in another process. */
    void (*send_cancel)(struct transport_job *job);
    /* Requests of this thread are under way, or just were: their end may interrupt a wait with EINTR. */
    bool (*thread_busy)(void);
    /* In the child of a fork: the parent's rings are not ours, nor are its jobs. */
    void (*after_fork)(void);
};

extern const struct transport_ops transport_syscall_ops;
extern const struct transport_ops transport_uring_ops;

/*
 * Chooses: want_uring -1 automatic (io_uring if the kernel allows it), 0 system calls, 1 io_uring.
 * why: text for the log. Automatic and forced io_uring fall back to system calls when
 * io_uring_setup fails.
 */
const struct transport_ops *transport_choose(int want_uring, const struct transport_env *env, const char **why);

#endif
