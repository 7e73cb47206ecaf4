/*
 * What sockets and waits ask of the rooms above them: one table, which start.c fills.
 */
#ifndef SW_PRELOAD_HOOKS_H
#define SW_PRELOAD_HOOKS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

struct sock;

/* What a wait does about one that is pending. */
enum pending_look { PENDING_DROP, PENDING_SKIP, PENDING_WAIT };

struct sock_hooks {
    /* ---- a descriptor goes (sock.c) ---- */

    /* The kernel's name of a connection's file, as far as it is known; 0. */
    uint64_t (*ino)(const struct sock *s);
    /* The last descriptor of this process goes (fd is it, or -1 if it is already gone). */
    void (*last_close)(struct sock *s, int fd);
    /* The same of an end of a bridge (calls/bridge.h). */
    void (*last_bridged)(void);
    /* Nothing here has s any more: its connection, its names on this host. */
    void (*release)(struct sock *s);
    void (*unname)(struct sock *s);
    /*
     * Other threads look after a connection on their own account (poll, epoll, a startup), by s->fd as they find it
     * with a turn in their hands. Those that found the descriptor that goes are waited for: its number may be another
     * file's soon.
     */
    void (*let_out)(struct sock *s, int fd);
    /* fd, which is open still, is about to name s no more: in epoll sets, too. */
    void (*expel)(struct sock *s, int fd);
    /* It has gone; last: it was the last descriptor of s in this process. */
    void (*forget)(struct sock *s, int fd, bool last);

    /* ---- what is pending (pending.c) ---- */

    /* Has nothing come on it, and is no time being counted? */
    bool (*silent)(const struct sock *s);
    /* Does an epoll set's wait see what comes on it? */
    bool (*watched)(struct sock *s);
    /* Is a thread waiting on a set that holds it? */
    bool (*awaited)(struct sock *s);
    /* Does the program go on with s as if it was told to, by a call that we did not see? */
    bool (*waits_unseen)(struct sock *s);
    /* What is to be waited for, into p (fd, events); or not. A lock is held that is innermost but for watch_lock. */
    enum pending_look (*look)(struct sock *s, uint64_t now_ns, struct pollfd *p);
    /* When it is to be stepped, whatever comes; 0: no such time, or that is another process' affair. */
    uint64_t (*due)(const struct sock *s);
    /* What was waited for has come, or its time. No turn held. False: another thread is at it. */
    bool (*step)(struct sock *s);
    /* Its time has come, while no call waits. No turn held. */
    void (*step_due)(struct sock *s);

    /* ---- waits (wait.c) ---- */

    /* A thread is about to sleep inside a call of ours, which may hold a turn. */
    void (*before_sleep)(void);
    /* The time of s's own startup, for the call that waits for it; 0: none. */
    uint64_t (*deadline)(const struct sock *s);
    /* A descriptor beside the sockets whose input all waits see to, -1: none; and that. */
    int (*extra_fd)(void);
    void (*extra_step)(void);
};

extern const struct sock_hooks sock_hooks;

#endif
