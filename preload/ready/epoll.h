/*
 * epoll sets. Each tracked set is a kernel epoll instance plus what the program registered: its
 * events and data. In the kernel's set our own token (the fd) stands in for the program's data, and
 * for active connections other events may be asked for than the program's.
 *
 * A level-triggered connection that still has bytes in our staging is kept on its set's ready
 * list: the kernel, whose buffer is empty, would not report it again.
 */
#ifndef SW_PRELOAD_EPOLL_H
#define SW_PRELOAD_EPOLL_H

#include <stdbool.h>

#include "preload/sock/sock.h"

/*
 * The state of s's connection changed: what its sets ask the kernel for may change too. Turns may
 * be held.
 */
void epoll_conn_changed(struct sock *s);
/*
 * s has something to report that the kernel will not: puts it on the ready lists of level-triggered
 * sets, and if it has `arrived` since they looked, of edge-triggered ones; wakes waiting threads.
 */
void epoll_left_over(struct sock *s, bool arrived);
/*
 * The same for the sets of other processes that have the connection: they see it when they begin to
 * wait, or are woken in a set that they share.
 */
void epoll_shared_left(void);
/* s became writable for the program, and the kernel does not know it. */
void epoll_out_ready(struct sock *s);
/*
 * fd, an epoll descriptor, is polled or added to another set. From now on its eventfd tells the kernel whether its
 * ready list is empty.
 */
void epoll_nest(int fd);
/*
 * The kernel says that epfd is readable: would an epoll_wait on it return an event? take: takes the kernel's events to
 * find out, and keeps them. Without it the kernel's word counts, except for events that a startup may have caused.
 */
bool epoll_settle(int epfd, bool take);
/* A send on s found no room, or not enough: edge-triggered sets wait for the next edge. */
void epoll_out_blocked(struct sock *s);
/*
 * fd is closed. last: it was the last descriptor of s in this process, so the kernel forgets its registrations as well.
 */
void epoll_forget_fd(struct sock *s, int fd, bool last);
/* fd, which is still open, is about to leave s: its parked registrations are deleted. */
void epoll_expel(struct sock *s, int fd);
/* Does the kernel report input on s to a set? s->watch_lock is not held. */
bool epoll_watches(struct sock *s);
/* Is a thread waiting on a set that holds s? s->watch_lock is not held. */
bool epoll_awaits(struct sock *s);

/*
 * The program goes on with s, a listener or a connection to be made, though no call of ours has reported it. Does it
 * wait by calls that we do not see? It does if s is registered only in sets in which no thread has ever waited by our
 * calls; or if s is in no set and non-blocking, and the process has never waited by our calls. It does not if it has
 * waited in accept().
 */
bool epoll_waits_unseen(struct sock *s);

/* Is fd a tracked epoll descriptor? */
bool epoll_tracks(int fd);
/* One above the highest tracked epoll descriptor ever. */
int epoll_fd_limit(void);
/*
 * This process gives up rights, and has one thread: it keeps what it knows of its sets and shares it with no other
 * process any more.
 */
void epoll_part(void);
/* Around a fork: no set changes while the process is copied. The second is called in the parent and in the child. */
void epoll_before_fork(void);
void epoll_after_fork(bool child);
/* In the child: between sock_count_begin and sock_count_end. */
void epoll_count(void);
/* An epoll descriptor is closed or duplicated. */
void epoll_closed(int epfd);
void epoll_duped(int epfd, int epfd2);

#endif
