/*
 * Two negotiations coupled through memory, and an owner for each that does what preload/ does.
 */
#ifndef SW_TESTS_UNIT_NEGOTIATE_PAIR_H
#define SW_TESTS_UNIT_NEGOTIATE_PAIR_H

#include <criterion/criterion.h>
#include <string.h>

#include "core/base/reason.h"
#include "core/negotiate/negotiate.h"

#define MS 1000000ull
#define TIMEOUT_NS (1000 * MS)
#define QUEUE_MAX (NEGOTIATE_STREAMED_MAX + 65536u)

struct queue {
    uint8_t p[QUEUE_MAX];
    size_t n;
};

/* One side and its owner: on the way to it, in its kernel, collected, and the program's. */
struct end {
    struct negotiate n;
    struct queue wire, kernel, in, prog;
    struct end *peer;
    uint64_t spoke; /* octets its program sent in streaming mode */
};

static struct end a, b; /* a: initiator */
static uint64_t now;
static uint64_t rng;

static inline uint32_t rnd(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 16) % n;
}

static inline void put(struct queue *q, const void *p, size_t n)
{
    cr_assert_leq(n, sizeof(q->p) - q->n);
    memcpy(q->p + q->n, p, n);
    q->n += n;
}

static inline void drop(struct queue *q, size_t n)
{
    cr_assert_leq(n, q->n);
    memmove(q->p, q->p + n, q->n - n);
    q->n -= n;
}

static inline struct negotiate_cfg config(bool responder)
{
    return (struct negotiate_cfg){
        .responder = responder,
        .transports = HELLO_TRANSPORT_IWARP,
        .nonce = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 },
        .host = responder ? 22 : 11,
        .mpa = {
            .rev = 2,
            .crc = true,
            .peer_to_peer = true,
            .rtr = MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ,
            .ird = 4,
            .ord = 4,
        },
        .params = {
            .version = 1,
            .flags = STREAM_FLAG_LLP,
            .ring_stag = responder ? 0xbbbbbbbb : 0xaaaaaaaa,
            .ring_len = 65536,
            .eager_max = 4096,
            .bufs = 16,
        },
        .timeout_ns = TIMEOUT_NS,
    };
}

static inline void end_init(struct end *e, const struct negotiate_cfg *cfg, struct end *peer)
{
    cr_assert_eq(negotiate_init(&e->n, cfg, now), 0);
    e->wire.n = e->kernel.n = e->in.n = e->prog.n = 0;
    e->spoke = 0;
    e->peer = peer;
}

static inline void both(const struct negotiate_cfg *ca, const struct negotiate_cfg *cb)
{
    now = 5000 * MS;
    end_init(&a, ca, &b);
    end_init(&b, cb, &a);
}

static inline void setup(void)
{
    struct negotiate_cfg ca = config(false), cb = config(true);

    both(&ca, &cb);
}

/* At most max octets of what the negotiation wants sent. */
static inline bool step_out(struct end *e, size_t max)
{
    const uint8_t *p;
    size_t n = negotiate_out(&e->n, &p);

    if (n == 0)
        return false;
    if (n > max)
        n = max;
    put(&e->peer->wire, p, n);
    negotiate_sent(&e->n, n);
    return true;
}

static inline bool arrive(struct end *e, size_t max)
{
    size_t n = e->wire.n < max ? e->wire.n : max;

    put(&e->kernel, e->wire.p, n);
    drop(&e->wire, n);
    return n > 0;
}

/* As preload/startup/startup.c does it. */
static inline bool step_in(struct end *e)
{
    uint8_t state = e->n.state;
    size_t used;

    if (state >= NEGOTIATE_DONE)
        return false;
    if (state == NEGOTIATE_PEEK || state == NEGOTIATE_NAKED || state == NEGOTIATE_LATE || state == NEGOTIATE_UNASKED) {
        used = negotiate_in(&e->n, e->kernel.p, e->kernel.n, now);
        cr_assert_leq(used, e->kernel.n);
        drop(&e->kernel, used);
        return used > 0 || e->n.state != state;
    }
    put(&e->in, e->kernel.p, e->kernel.n);
    drop(&e->kernel, e->kernel.n);
    if (e->in.n == 0)
        return false;
    used = negotiate_in(&e->n, e->in.p, e->in.n, now);
    cr_assert_leq(used, e->in.n);
    if ((state == NEGOTIATE_HELLO || state == NEGOTIATE_WITHDRAWN) && used > 0) {
        cr_assert_leq(e->n.prefix_len, used);
        cr_assert_leq(e->n.prefix_len, NEGOTIATE_STREAMED_MAX);
        put(&e->prog, e->in.p, e->n.prefix_len);
    }
    drop(&e->in, used);
    return used > 0 || e->n.state != state;
}

/* Until nothing moves; every transfer is 1..cut octets (0: whole). */
static inline void run(size_t cut)
{
    bool moved;

    do {
        moved = false;
        for (int i = 0; i < 2; i++) {
            struct end *e = i ? &b : &a;

            moved |= step_out(e, cut ? 1 + rnd((uint32_t)cut) : SIZE_MAX);
            moved |= arrive(e, cut ? 1 + rnd((uint32_t)cut) : SIZE_MAX);
            moved |= step_in(e);
        }
    } while (moved);
}

/* Streaming mode from here on: all there is belongs to the program. */
static inline void plain_rest(struct end *e)
{
    arrive(e, SIZE_MAX);
    put(&e->prog, e->in.p, e->in.n);
    put(&e->prog, e->kernel.p, e->kernel.n);
    e->in.n = e->kernel.n = 0;
}

/* The responder's program speaks before the Hello is there. */
static inline void speak(const void *p, size_t n)
{
    cr_assert_eq(b.n.state, NEGOTIATE_PEEK);
    put(&a.wire, p, n);
    b.n.streamed += n;
    b.spoke += n;
}

#define EXPECT(e, st, why)                                                                \
    do {                                                                                  \
        cr_expect_eq((e).n.state, (st), "state %u", (e).n.state);                         \
        cr_expect_eq((e).n.reason, (why), "%s, not %s", reason_name((e).n.reason), #why); \
        cr_expect(negotiate_over(&(e).n));                                                \
        cr_expect_eq((e).n.deadline_ns, 0u);                                              \
    } while (0)

static const size_t cuts[] = { 0, 1, 2, 7, 100 };

#endif
