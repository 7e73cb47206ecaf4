/*
 * Between hosts: a listener under sockwarp says so in its SYN-ACK, by a segment size that no TCP chooses by itself
 * (TCP_MAXSEG), and the initiator reads it back when the handshake is done, before it has sent a byte. RFC 9293
 * section 3.7.1: any size may be announced. It is a hint: gateways may change it, and a plain server may have it by
 * accident.
 *
 * The mark is the kernel's, as a listener's names are (local.h), and has the same life: it is there before listen(),
 * and goes before the listener goes to a program without this library.
 */
#ifndef SW_PRELOAD_MARK_H
#define SW_PRELOAD_MARK_H

#include <stdbool.h>
#include <stdint.h>

struct sock;

/* The mark for links where TCP would announce segments of that many bytes; 0: there is none. */
unsigned mark_of(unsigned octets);
/*
 * fd, which is s, listens, or is about to, and what is called by local_names_open: marks it, unless the program has
 * chosen a segment size, a rule says mark=off, or its links carry very large segments. Some system calls; any thread,
 * not in handlers.
 */
void mark_open(struct sock *s, int fd);
/*
 * s has accepted a client: near, of this host. As long as all are, it has no mark behind the first; and one that had no
 * link to another host when it was opened is marked behind the first of another.
 */
void mark_client(struct sock *s, int fd, bool near);
/* Takes the mark away, for all processes that have the listener. */
void mark_end(struct sock *s);
/*
 * fd, which listens, came from another program that had marked it, and this one does not look for Hellos: takes it
 * away.
 */
void mark_take_back(int fd);
/* s is closed here: one less of this process is marked. What the kernel has is let be. */
void mark_closed(struct sock *s);
/* How many listeners of this process are marked? */
unsigned mark_count(void);
/* The program chooses fd's segment size itself. */
void mark_is_overridden(struct sock *s);
/*
 * TCP_MAXSEG of s, a listener or what it has accepted, as the program would see it without the mark; the kernel says v.
 */
int mark_shown(const struct sock *s, int fd, int v);
/* s was accepted from this listener. */
void mark_inherit(struct sock *s, const struct sock *listener);
/* fd is connected: was the listener marked? *rtt_us: how long the handshake took, 0: not known. */
bool mark_is_seen(int fd, uint32_t *rtt_us);

#endif
