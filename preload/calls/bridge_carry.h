/*
 * One bridge: what is carried over it (preload/calls/bridge.h).
 */
#ifndef SW_PRELOAD_BRIDGE_CARRY_H
#define SW_PRELOAD_BRIDGE_CARRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sock;

/* A direction: bytes that have left one side and not reached the other. */
struct bridge_way {
    uint8_t *buf;
    size_t at, n;
    bool over; /* its source has ended */
};

struct bridge {
    struct bridge *next;
    int tcp, far;      /* the connection; the pair's other end, -1 when it is over; both hidden */
    struct sock *near; /* the program's end: without a reference, by near_ino */
    uint64_t near_ino;
    struct bridge_way in, out; /* to the program, to the peer */
    bool reset;                /* by the peer: the program is told behind what came before */
    bool cut;                  /* the peer takes no more */
    bool passed;               /* another process may have the program's end: bridge_pass */
    bool unread;               /* something that came is never read: the peer sees a reset */
    bool again;                /* there is more to carry at once */
    bool asks_far;             /* wait for far_wants, or its hang-up */
    short far_wants, tcp_wants;
    unsigned slot; /* among what the thread waits for; 0: nowhere */
};

struct bridge *bridge_new(void);
void bridge_free(struct bridge *b);
/* Carries what can be carried without waiting; afterwards asks_far and the wants say what to wait for. */
void bridge_carry(struct bridge *b);
/* Neither side has anything left to say. */
bool bridge_is_over(const struct bridge *b);
/* It is over: the pair's other end is closed, as the connection has ended. */
void bridge_part(struct bridge *b);
/*
 * What the program has sent goes to the connection, waiting until `end`. ends: and this process will read nothing more.
 */
void bridge_send_rest(struct bridge *b, uint64_t end, bool ends);

#endif
