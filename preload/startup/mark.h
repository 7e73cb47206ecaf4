/*
 * Between hosts: a listener under sockwarp announces itself in its SYN-ACK, by a segment size that no TCP chooses by
 * itself (TCP_MAXSEG). The initiator reads it back when the handshake is done, before it has sent a byte. RFC 9293
 * section 3.7.1: any size may be announced. It is a hint: gateways may change it, and a plain server may have it by
 * accident. The kernel keeps the mark, as it keeps a listener's names (local.h). It lives as long: it is set before
 * listen(), and removed before the listener goes to a program without this library.
 */
#ifndef SW_PRELOAD_MARK_H
#define SW_PRELOAD_MARK_H

#include <stdbool.h>
#include <stdint.h>

struct sock;

/* The mark for links where TCP would announce segments of that many bytes; 0: there is none. */
unsigned mark_of(unsigned octets);
/*
 * Called by local_names_open for fd (s), which listens or is about to: marks it, unless the program has chosen a
 * segment size, a rule says mark=off, or its links carry very large segments. Some system calls; any thread, not in
 * handlers.
 */
void mark_open(struct sock *s, int fd);
/*
 * s has accepted a client; near: of this host. The first near client removes the mark, as long as no client of another
 * host has come. A listener that had no link to another host when it was opened is marked after the first client of
 * another host.
 */
void mark_client(struct sock *s, int fd, bool near);
/* Takes the mark away, for all processes that have the listener. */
void mark_end(struct sock *s);
/*
 * fd, which listens, came from another program that had marked it, and this one does not look for Hellos: takes it
 * away.
 */
void mark_take_back(int fd);
/* This process closes s, so it has one marked listener less. The kernel's setting stays. */
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
/* fd is connected: was the listener marked? */
bool mark_is_seen(int fd);

#endif
