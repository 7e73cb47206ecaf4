/*
 * fork and exec: what of our knowledge goes to children and to the next program.
 */
#ifndef SW_PRELOAD_EXEC_H
#define SW_PRELOAD_EXEC_H

#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"

struct conn;
struct sock;

/* ---- fork.c ---- */

/* Before a fork, and before the locks of sock.c and pending.c are taken for it: stops sends. */
void fork_before(void);
/* The same, when the locks are taken and no thread enters a descriptor: counts the child in. */
void fork_count_child(void);
/* In the child; they are still taken. */
void fork_am_child(void);
/* In the parent, once all locks are free: the child is there, or (-1) it is not. */
void fork_done(pid_t child);
/* An asynchronous send of this process' ring ends here; what it did not send waits in c. */
void fork_stop_job(struct conn *c);

/* ---- clone.c ---- */

/* clone, clone3, fork and vfork by syscall(2): its result, with errno. */
long clone_syscall(long number, const long a[6]);

/* ---- exec.c ---- */

/* At start, before the program changes its environment. */
void exec_save_env(void);

/* ---- names.c ---- */

#define NAMES_MAX 32u

/* Descriptors of names that the next program gets. */
struct names {
    int fd[NAMES_MAX];
    unsigned n;
};

/* Before an exec or spawn; can: the program will load this library; fa: posix_spawn's, or NULL. */
void names_leave(struct names *n, bool can, const posix_spawn_file_actions_t *fa);
/* It failed, or was a spawn. */
void names_stayed(struct names *n);
/*
 * fd goes over an AF_UNIX socket to another process, of which nothing is known. If it is one of ours, that one opens a
 * listener's names anew. A program that passes a connection passes more of them, and an upgraded one cannot go: from
 * then on this process has plain ones only. Clients of this host find no names here, others' Hellos are declined.
 */
void names_passed(int fd);
/* May a listener of this process have names? */
bool names_may_be(void);

/* ---- spawn_actions.c ---- */

/* Do these actions give fd to the child, whatever close-on-exec says? fa: NULL, or posix_spawn's; so below. */
bool spawn_gives(const posix_spawn_file_actions_t *fa, int fd);

struct inherit;
struct spawn_own {
    const posix_spawn_file_actions_t *use; /* what posix_spawn gets: the program's, or own */
    posix_spawn_file_actions_t fa;
    struct spawn_action *actions; /* of fa */
    int dead;                     /* a socket whose other end is closed, or -1 */
};

/*
 * Where fa gives the child upgraded connections that its program cannot take over (inherit_is_unread), own->use gives
 * it sockets in their place whose other end is closed. 0; or ENOMEM: the child must not be made.
 */
int spawn_own_begin(struct spawn_own *own, const posix_spawn_file_actions_t *fa, const struct inherit *in) SW_MUST;
void spawn_own_end(struct spawn_own *own);

/* ---- inherit.c ---- */

/* The environment variable that tells the next program where the upgraded connections it inherits are. */
#define INHERIT_VAR "SOCKWARP_INHERIT"
#define INHERIT_ENTRIES_MAX 1000u /* connections that it tells of at most: an environment variable may have 128 KiB */

/* What is handed on by one exec or posix_spawn. */
struct inherit {
    int32_t maker;                        /* of that child, among the connections' holders */
    bool spawn;                           /* for a child that is made by posix_spawn, or by vfork and exec */
    const posix_spawn_file_actions_t *fa; /* posix_spawn's, or NULL */
    char *text;                           /* "SOCKWARP_INHERIT=..."; NULL: nothing */
    int fd[8];                            /* arenas' descriptors that stay open across exec */
    unsigned fd_n;
    unsigned n; /* connections in text: those of handed[] */
    struct conn **handed;
    struct {
        int fd, was;
    } kept[16]; /* from the next program: what was this descriptor; -1: only closed for it */
    unsigned kept_n;
};

/*
 * Collects the upgraded connections that the next program will have; `can`: it will load this library. Others are
 * ended rather than misread, when no other process has them. Memory: malloc, given back by inherit_failed.
 */
void inherit_begin(struct inherit *in, bool can);
/*
 * Does this process know fd as a listener or as a connection that may be or is upgraded? By the inode in a vfork
 * child.
 */
bool inherit_is_ours(int fd);
/* Is fd an upgraded connection that the next program, for which this was begun, cannot take over? */
bool inherit_is_unread(const struct inherit *in, int fd);
/* A socket whose other end is closed, or -1. */
int inherit_dead_end(void);
/* posix_spawn is done: `child` is the process that has them now, 0: there is none. */
void inherit_spawned(struct inherit *in, pid_t child);
/* The exec failed: they go on here. */
void inherit_failed(struct inherit *in);
/* The child of vfork that began this has become another program: its memory is given back. */
void inherit_forget(struct inherit *in);

/* A startup that has begun comes to its end, so far as its peer is willing; the time is bounded. */
void inherit_decide(struct sock *s, struct conn *c, int fd);

/* ---- inherit_take.c ---- */

/* Calls `each` for the descriptors of this process, for some perhaps twice. */
void inherit_each_fd(void (*each)(int fd, void *arg), void *arg);

/*
 * At start: takes up what the former image handed on, and recognises afresh what else is there: listening sockets,
 * those that are not connected, and accepted connections of which nothing is read yet (inetd, socket activation).
 */
void inherit_start(void);

/*
 * A descriptor that came over an AF_UNIX socket: a listener, a socket that may become one, an accepted connection of
 * which nothing is read yet, are ours from now on.
 */
void inherit_passed(int fd);

#endif
