/*
 * The life of descriptors, for calls that end or replace one inside libc.
 */
#ifndef SW_PRELOAD_FDOPS_H
#define SW_PRELOAD_FDOPS_H

#include <stdbool.h>

struct sock;

/*
 * fd is about to be closed or replaced: as close() does before the real call, and after it. What the first gives is for
 * the second (sock_close_end).
 */
struct sock *fdops_close_begin(int fd, bool replaced);
void fdops_close_end(int fd, struct sock *s);

#endif
