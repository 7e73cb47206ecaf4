/*
 * What a client of this host says in its SYN: that its Hello follows. The listener's library learns it when it accepts,
 * before the Hello is there, and lets neither the program nor accept() pass it. It is said by an unusual hop limit, which
 * nothing changes between two ends of one host, and which is the program's own again once the connection is made: a
 * listener whose backlog is full drops SYNs, and the kernel sends them again. A hint: any process may say it.
 */
#ifndef SW_PRELOAD_SYN_H
#define SW_PRELOAD_SYN_H

#include <stdbool.h>
#include <sys/socket.h>

struct sock;

enum syn_says {
    SYN_NOTHING,
    SYN_UNKNOWN, /* the kernel has not saved it: it answered by a SYN cookie */
    SYN_WAITS,   /* a Hello follows, and the client waits for its answer */
    SYN_GOES_ON, /* a Hello follows, and the client goes on in streaming mode until the answer is there */
    SYN_MEETS,   /* the same, but its Hello is there already, beside the connection (beside.h) */
};

/*
 * Before connect() and behind it, r: its result. Not on a socket whose hop limit may be the program's. One system call
 * each.
 */
void syn_say(const struct sock *s, int fd, const struct sockaddr *peer, enum syn_says what);
void syn_said(struct sock *s, int fd, const struct sockaddr *peer, enum syn_says what, int r);
/* The handshake is over, or the program asks for its hop limit: no SYN of fd's (s) says anything from now on. */
void syn_over(struct sock *s, int fd, const struct sockaddr *peer);
/* fd (s) listens, or is about to: the kernel is to save the SYNs, unless the program has decided on that. */
void syn_save(struct sock *s, int fd);
/* The opposite, for all processes that have the listener. */
void syn_save_end(struct sock *s, int fd);
/* fd was accepted from this listener. One system call. */
enum syn_says syn_heard(const struct sock *listener, int fd);

#endif
