/*
 * Same host: does the listener at an address run sockwarp? Asked before a single byte is sent, so that a plain local
 * server never sees one of ours.
 *
 * A listener under sockwarp also holds an abstract AF_UNIX listening socket named after its TCP address and port.
 * Abstract names are per network namespace and vanish with their process; the holder of one is believed only if its
 * user owns the TCP listener (sock_diag).
 */
#ifndef SW_PRELOAD_LOCAL_H
#define SW_PRELOAD_LOCAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct sock;

enum local_answer {
    LOCAL_REMOTE,  /* the address is not on this host (or that cannot be found out) */
    LOCAL_ABSENT,  /* it is, and the listener does not run sockwarp (or there is none) */
    LOCAL_PRESENT, /* it is, and it does */
    LOCAL_SELF,    /* it is this process */
};

/* Is there a listener there on this host? (Where that cannot be found out: yes.) */
bool local_listens(const struct sockaddr *addr);
/*
 * Is there still a listener there on this host, without a name? (Where that is not certain: no.) A listener that had
 * one has gone to a program that does not load the library. Some system calls, never blocks.
 */
bool local_lost_name(const struct sockaddr *peer);

/*
 * self_ok: LOCAL_PRESENT instead of LOCAL_SELF; *owner, with LOCAL_PRESENT: the listener's. Some system calls, no byte to the peer, never blocks. Part of what it
 * finds is believed for 10 ms. A connection to a name that was found is kept, by a hidden descriptor: it ends with the
 * name, so the next connection need not ask again. Any thread, handlers.
 */
enum local_answer local_ask(const struct sockaddr *peer, bool self_ok, uid_t *owner);
/* Does the kernel deliver packets to this address on this host? (Where it cannot be asked: no.) Any thread, handlers. */
bool local_is_own(const struct sockaddr *addr);
/*
 * Does the listener, which is LOCAL_PRESENT, look for this process's Hellos beside the connection (meet.h)? netns: meet_netns.
 */
bool local_meets(uint64_t netns, const struct sockaddr *peer);
/*
 * A listener that was LOCAL_ABSENT has taken a connection: for 10 ms local_ask will say LOCAL_ABSENT of it without
 * asking.
 */
void local_absent(const struct sockaddr *peer);
/* A thread of this process goes to another network namespace: what was found in the former one is forgotten. */
void local_leaves_network(void);
/* In the child of a fork. */
void local_after_fork(void);

/*
 * fd listens, or is about to: marks it (mark.h), and takes the names. A name that is taken already (SO_REUSEPORT
 * groups) is left to its holder.
 */
void local_names_open(struct sock *s, int fd);
/*
 * Does fd, which is s, listen with TCP_DEFER_ACCEPT or a filter (SO_ATTACH_FILTER), or is it about to? A Hello would be
 * what its program waits for, or be dropped: it has no names from now on, and stays plain.
 */
bool local_stays_plain(struct sock *s, int fd);
/* The port of an address of IPv4 or IPv6, 0: it has none yet, or is of another family. */
unsigned local_port_of(const struct sockaddr_storage *ss);
void local_names_close(struct sock *s);
/* s listens, and this process, which may accept its connections, can no longer look in the file (meet.h). */
void local_meets_no_more(const struct sock *s);
/*
 * From now on no client finds the listener by its names or its mark, whichever process holds the names: a program
 * without this library may accept its connections.
 */
void local_names_end(struct sock *s);
/* How many names are open, and listeners marked? */
unsigned local_names(void);
/* Do these names belong to fd, which listens? (By its address.) */
bool local_names_are_of(const struct sock *s, int fd);
/* Is it a name that came by exec? If so, gives it to its listener, which this process has taken up, or closes it. */
bool local_name_is(int fd);
void local_name_adopt(int fd);
/* s has accepted a client. Empties the names' backlogs now and then, so that they do not fill. */
void local_names_drain_some(struct sock *s);
/* Do the two addresses seem to belong to one host? (Only a hint.) */
bool local_same_host(const struct sockaddr_storage *local, const struct sockaddr_storage *peer);

#endif
