/*
 * A connection's startup, from a fresh TCP connection to the upgraded stream or to plain: its steps, and the threads
 * that take them.
 */
#ifndef SW_PRELOAD_STARTUP_H
#define SW_PRELOAD_STARTUP_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "preload/sock/hooks.h"
#include "preload/sock/sock.h"

struct conn;
struct iov_iter;

/*
 * Looks at what the socket fd has received and leaves it there, without waiting; a call that fails by shortage is made
 * again. As recv(2): the octets seen, 0 at the peer's end, -1 with errno.
 */
ssize_t startup_peek(int fd, uint8_t *buf, size_t len);
/* The same for the first octet. An urgent one counts, and is not shown: *first is 0. */
ssize_t startup_peek_first(int fd, uint8_t *first);
/*
 * The length of the Hello that the bytes at fd begin with; -EAGAIN: they may become one; -EPROTO: they are none, or there
 * are none. They stay there.
 */
ssize_t startup_greeting(int fd) SW_MUST;
/*
 * One non-blocking step of s's negotiation: sends, receives, decides, until it would wait. Both turns held.
 */
void startup_step(struct sock *s);
/* The same, for a call of the program's on s. */
void startup_step_called(struct sock *s);
void startup_step_last(struct sock *s);   /* for startup_hand_on */
void startup_step_unmade(struct sock *s); /* for startup_decline */
/*
 * The same, taking the turns: `brief` skips it if another thread holds them, else only if that one sleeps (in its
 * connect(); or the startup is over and it is in recv). 0, or -EBUSY / -EDEADLK if it was skipped.
 */
int startup_go_on(struct sock *s, bool brief);
/* As startup_go_on, not brief, where the program has not made a call on s. */
int startup_go_on_unused(struct sock *s);
/*
 * The program gives s to another process: a Hello that has come is declined, and from then on this process looks for
 * none. Later ones are for the other process, if it runs sockwarp.
 */
int startup_hand_on(struct sock *s);
/*
 * This process executes a program (to_child: its child does) that gets s, and looks at it afresh if it is undecided: no
 * other process takes a Hello from it by itself. No turn held.
 */
void startup_hand_afresh(struct sock *s, bool to_child);
/* A ring of the program's uses s: declines it if it is undecided; if it is not connected yet, it stays plain. */
void startup_decline(struct sock *s);
/* A step for a program that does not wait for connect(). Both turns held. */
void startup_step_hurried(struct sock *s);
/*
 * startup_go_on, brief, for a program that would send without waiting. On a connection that the program was told is up,
 * though the server has not accepted it yet, TCP would take its bytes; so the Hello is withdrawn, or the connection
 * goes on in streaming mode for now.
 */
int startup_hurry(struct sock *s);

/*
 * As startup_hurry (hurry) or startup_go_on, as part of a look at whether s is ready. Bytes that the step takes in only
 * set rx.arrived: the caller tells the waiters of them (ready_arrived, epoll_left_over_but).
 */
int startup_glance(struct sock *s, bool hurry, bool brief);

/* step, with both turns held. brief, result: as startup_go_on. */
int startup_in_turns(struct sock *s, bool brief, void (*step)(struct sock *s)) SW_MUST;

/*
 * Takes note of a call's result: n, or -1 with errno. True: it would have waited, for `events`; any other error is
 * noted for the program. Both turns held.
 */
bool startup_would_wait(struct conn *c, ssize_t n, uint32_t events);
/*
 * Counts the bytes sent in streaming mode behind the HWDR, by the kernel's own count: a program that has the descriptor
 * without the library may have sent as well. Both turns held.
 */
void startup_count_streamed(struct conn *c, int fd);

/* Was s negotiating when this process was forked, and does the parent still have it? */
bool startup_is_parents(const struct sock *s);

/* ---- startup_unasked.c: the question waits for the program's first bytes (negotiate.h, UNASKED) ---- */

/* The question waits from now on. No other thread knows c yet, or both turns held. */
void startup_put_off(struct conn *c);
/* A step before the question, or which asks it (startup.asks). Both turns held. False: would block. */
bool startup_step_unasked(struct conn *c, int fd);
/* A step that asks, if the peer was not asked yet: the program waits without having said anything. Both turns held. */
void startup_step_asking(struct sock *s);
/* The program looks once more, and does not sleep: has it done so for long? Both turns held. */
bool startup_asks_by_now(struct conn *c);
/* When the question goes by itself, for a thread that is about to sleep: PENDING_AT_REST, or 0: never. */
uint64_t startup_asks_at(const struct conn *c);
/* Sends the question in front of the program's first bytes. As send_as_it_is (dispatch_send.c); tx held. */
ssize_t startup_send_asking(struct conn *c, int fd, struct iov_iter *it, size_t len, int flags);
/* The peer of s, if it was not asked yet, never is, and s stays plain. No turn held. */
void startup_stay_unasked(struct sock *s, unsigned reason);

/* ---- startup_begin.c, startup_upgrade.c ---- */

/* Sets up the negotiation. No other thread knows c yet. -EINVAL. */
int startup_prepare(struct conn *c) SW_MUST;
/* The same: NEGOTIATING from now on. Both turns held, or no other thread knows c yet. -EINVAL. */
int startup_begin(struct conn *c) SW_MUST;
/* TCP is up: the Hello is next. Both turns held. 0 or -errno (then it has become plain). */
int startup_begin_initiator(struct sock *s, struct conn *c) SW_MUST;
/* The negotiation is done: FPDUs from now on. Both turns held. */
int startup_upgrade(struct sock *s, struct conn *c) SW_MUST;

/*
 * The program is about to send (by MSG_OOB, if urgent), or to look at what is received. Urgent data of either program's
 * go in streaming mode alone: an answer that is unsaid (conn_is_unsaid) then never is, and the connection is plain. No
 * turn held.
 */
void startup_before_call(struct sock *s, struct conn *c, int fd, bool urgent);
/* Another program gets s, which may know nothing of us: an answer that is unsaid never is. No turn held. */
void startup_hand_on_unsaid(struct sock *s);

/* ---- startup_await.c ---- */

/* accept() carries s's startup on, for a bounded time: its client waits for that. */
void startup_await(struct sock *s, struct conn *c, int fd);
/* accept() does not wait now, because it has lately waited in vain. */
bool startup_is_hasty(void);
/*
 * The program sends first on a connection whose client goes on by itself: waits for the Hello (conn.startup.hello_comes),
 * as accept() would. No turn held.
 */
void startup_await_hello(struct sock *s, struct conn *c);
/* Will this initiator go on in streaming mode until the answer is there (negotiate.h, LATE), if its listener is known? */
bool startup_may_switch(const struct conn *c);
/*
 * The program makes its first call on a connection whose startup accept() has left (conn_is_held). The process of this
 * call carries the startup on, as accept() would have. No turn held.
 */
void startup_finish_on_use(struct sock *s);

/* ---- startup_pending.c: the hooks of what is pending ---- */

bool startup_is_silent(const struct sock *s);
enum pending_look startup_look(struct sock *s, uint64_t now, struct pollfd *p);
uint64_t startup_due(const struct sock *s);
uint64_t startup_deadline(const struct sock *s);
bool startup_step_pending(struct sock *s);
void startup_step_due(struct sock *s);
void startup_step_devices(void);
/* Nothing in this process has s any more. */
void startup_released(struct sock *s);

#endif
