/*
 * Transport by plain system calls: nothing is sent without the program, so the owner keeps a tail and sends it at the
 * program's next call. Also the choice between the variants.
 */
#include <errno.h>
#include <string.h>

#include "core/transport/transport.h"
#include "core/transport/uring.h"

static int send_start(struct transport_job *job)
{
    (void)job;
    return -ENOSYS;
}

static bool send_over(struct transport_job *job, bool wait)
{
    (void)job;
    (void)wait;
    return true;
}

static void send_cancel(struct transport_job *job)
{
    (void)job;
}

static bool thread_busy(void)
{
    return false;
}

static void after_fork(void)
{
}

const struct transport_ops transport_syscall_ops = {
    .name = "syscall",
    .send_start = send_start,
    .send_over = send_over,
    .send_cancel = send_cancel,
    .thread_busy = thread_busy,
    .after_fork = after_fork,
};

const struct transport_ops *transport_choose(int want_uring, const struct transport_env *env, const char **why)
{
    if (want_uring == 0) {
        *why = "SOCKWARP_IO=syscall";
        return &transport_syscall_ops;
    }
    int r = transport_uring_setup(env);
    if (r < 0) {
        /* Containers often forbid io_uring: seccomp answers EPERM or ENOSYS, the sysctl EPERM. */
        *why = r == -ENOSYS                  ? "the kernel has no io_uring"
               : r == -EOPNOTSUPP            ? "the kernel's io_uring cannot cancel in step (Linux 6.0 can)"
               : r == -EPERM || r == -EACCES ? "io_uring is not allowed here"
               : r == -ENOMEM                ? "no memory may be locked for io_uring"
                                             : "io_uring_setup failed";
        return &transport_syscall_ops;
    }
    *why = "io_uring works";
    return &transport_uring_ops;
}
