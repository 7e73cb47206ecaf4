/*
 * A program that puts itself under a seccomp filter lists the calls that it makes, not ours; a call that is not on the
 * list may end the process. From then on
 * - the bytes of its upgraded connections move by read and write, which any program that uses connections allows;
 * - what only makes a connection better, such as a low-water mark, is left out, and no statistics file is opened;
 * - new connections are plain.
 *
 * A filter that was there before the program started is not noticed: one that is set for other programs allows what
 * programs need.
 */
#ifndef SW_PRELOAD_SANDBOX_H
#define SW_PRELOAD_SANDBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

extern _Atomic bool sandbox_entered;

static inline bool sandbox_on(void)
{
    return atomic_load_explicit(&sandbox_entered, memory_order_relaxed);
}

/*
 * As the real calls, for what the library does by itself. In the sandbox recv and sendmsg know no other flags than
 * MSG_DONTWAIT, recv of a socket that blocks; and the options' calls fail with EPERM.
 */
ssize_t sandbox_recv(int fd, void *buf, size_t len, int flags);
ssize_t sandbox_sendmsg(int fd, const struct msghdr *msg, int flags);
int sandbox_setsockopt(int fd, int level, int name, const void *val, socklen_t len);
int sandbox_getsockopt(int fd, int level, int name, void *val, socklen_t *len);

#endif
