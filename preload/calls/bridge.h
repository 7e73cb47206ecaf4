/*
 * Bridges: connections that a ring of the program's own is to work on, though their bytes go through this library.
 *
 * The kernel does what is submitted to a ring by itself, at any time, and it cannot call us. So the program's
 * descriptors of such a connection become one end of a local pair of stream sockets (AF_UNIX), and a thread carries
 * bytes, ends and resets between the other end and the connection. From then on requests of every kind (linked,
 * multishot, with provided buffers, cancelled …) and all calls that move bytes or wait are the kernel's; only the
 * socket's options and names are the connection's still.
 *
 * Only what was upgraded, or may be, before the program used its ring for sockets comes to this: later connections stay
 * plain.
 */
#ifndef SW_PRELOAD_BRIDGE_H
#define SW_PRELOAD_BRIDGE_H

#include <stdbool.h>

#include "core/base/must.h"

struct sock;

/* Builds a bridge for fd, which names s, which is active. 0, or -errno: there is none, and nothing has changed. */
int bridge_build(struct sock *s, int fd) SW_MUST;
/* As bridge_build, because fd is passed to another process (SCM_RIGHTS). */
int bridge_pass(struct sock *s, int fd) SW_MUST;
/*
 * fd is a program's end of a bridge: the connection's own descriptor, which stays what it is until bridge_release. -1:
 * fd is none, and there is nothing to release.
 */
int bridge_hold(int fd);
void bridge_release(void);
/* The program's options of the socket: which of them are the pair's? (level, name as setsockopt has them) */
bool bridge_is_pairs(int level, int name);
/* The program's last descriptor of an end is about to be closed, or was closed. */
void bridge_closed(void);
/* Has there been one? */
bool bridge_any(void);
/*
 * The process exits (ends), or executes another program: bytes that it has sent are carried on. bridge_go_on: the exec
 * has failed.
 */
void bridge_settle(bool ends);
void bridge_go_on(void);
/* In a forked child: it keeps its ends; the connections and the thread stay with the parent. */
void bridge_before_fork(void);
void bridge_after_fork(bool child);

/* ---- epoll_move.c ---- */

/*
 * fd's registrations of s are taken out of their sets, and made again for what fd is then; epoll_give takes what
 * epoll_take gave. No lock is held.
 */
struct epoll_moved;
struct epoll_moved *epoll_take(struct sock *s, int fd);
void epoll_give(struct epoll_moved *moved, int fd);

#endif
