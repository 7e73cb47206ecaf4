/*
 * Two streams over two software endpoints coupled through memory, and an owner for each that does
 * what preload does with it: posts, sends what the pipe takes, takes in what came.
 */
#ifndef SW_TESTS_UNIT_STREAM_PAIR_H
#define SW_TESTS_UNIT_STREAM_PAIR_H

#include <criterion/criterion.h>
#include <errno.h>

#include "core/stream/stream.h"
#include "tests/unit/iwarp_pair.h"

struct stream_end {
    struct side side;
    struct stream st;
    uint8_t *ring; /* credits only */
    struct mem_pipe *out, *in;
};

struct stream_pair {
    struct stream_end a, b; /* a: initiator */
    struct mem_pipe ab, ba;
    uint8_t *ab_buf, *ba_buf;
};

struct stream_pair_cfg {
    bool llp;
    uint32_t ring_len;
    uint16_t eager_max, bufs;
    uint32_t eager_limit;
    size_t mulpdu;
    size_t pipe_cap;
    bool immediate; /* the notify is Immediate Data */
    bool no_crc;
};

static inline struct stream_pair_cfg stream_pair_llp(void)
{
    return (struct stream_pair_cfg){
        .llp = true,
        .ring_len = STREAM_RING_MIN,
        .eager_max = 2048,
        .bufs = 64,
        .eager_limit = 512,
        .mulpdu = 1024,
        .pipe_cap = 1u << 20,
    };
}

static inline struct stream_pair_cfg stream_pair_credits(void)
{
    struct stream_pair_cfg c = stream_pair_llp();

    c.llp = false;
    c.bufs = 4;
    return c;
}

static inline struct stream_params stream_end_params(const struct stream_pair_cfg *c, uint32_t stag)
{
    return (struct stream_params){
        .version = 1,
        .flags = (c->llp ? STREAM_FLAG_LLP | STREAM_FLAG_URGENT : 0) | (c->immediate ? STREAM_FLAG_IMMEDIATE : 0),
        .ring_stag = stag,
        .ring_len = c->ring_len,
        .eager_max = c->eager_max,
        .bufs = c->bufs,
    };
}

static inline void stream_end_init(struct stream_end *e, const struct stream_pair_cfg *c, bool initiator, uint32_t stag,
                                   uint32_t peer_stag)
{
    struct iwarp_cfg ic;
    struct stream_cfg sc;

    side_alloc(&e->side, stag);
    ic = side_cfg(&e->side, initiator, MPA_RTR_WRITE);
    ic.mulpdu = c->mulpdu;
    ic.immediate = c->immediate;
    ic.tx.crc = ic.rx.crc = !c->no_crc;
    cr_assert_eq(iwarp_init(&e->side.ep, &ic), 0);
    e->ring = c->llp ? NULL : malloc(c->ring_len);
    /* As conn_go_full does: the STag was told in the private data before the endpoint existed. */
    e->side.ep.stags.region[0] = (struct ddp_region){
        .stag = stag,
        .access = DDP_ACCESS_REMOTE_WRITE,
        .deferred = c->llp,
        .len = c->ring_len,
        .base = e->ring,
    };
    sc = (struct stream_cfg){
        .ep = &e->side.ep.base,
        .local = stream_end_params(c, stag),
        .peer = stream_end_params(c, peer_stag),
        .ring = e->ring,
        .eager_limit = c->eager_limit,
    };
    cr_assert_eq(stream_init(&e->st, &sc), 0);
}

static inline void stream_pair_init(struct stream_pair *p, const struct stream_pair_cfg *c)
{
    memset(p, 0, sizeof(*p));
    p->ab_buf = malloc(c->pipe_cap);
    p->ba_buf = malloc(c->pipe_cap);
    mem_pipe_init(&p->ab, p->ab_buf, c->pipe_cap);
    mem_pipe_init(&p->ba, p->ba_buf, c->pipe_cap);
    p->a.out = p->b.in = &p->ab;
    p->b.out = p->a.in = &p->ba;
    stream_end_init(&p->a, c, true, 0xa0a1a2a3, 0xb0b1b2b3);
    stream_end_init(&p->b, c, false, 0xb0b1b2b3, 0xa0a1a2a3);
}

static inline void stream_pair_fini(struct stream_pair *p)
{
    side_free(&p->a.side);
    side_free(&p->b.side);
    free(p->a.ring);
    free(p->b.ring);
    free(p->ab_buf);
    free(p->ba_buf);
}

/* Sends what is queued, and what the stream queues when that is out. True: all of it went. */
static inline bool stream_end_push(struct stream_end *e)
{
    const struct iovec *iov;
    size_t len;

    do {
        if (!side_push(&e->side, e->out))
            return false;
        stream_flushed(&e->st);
    } while (iwarp_out(&e->side.ep, &iov, &len) > 0);
    return true;
}

/* Takes in what came; gives credit back where it is due. Returns stream_poll's last answer. */
static inline int stream_end_pull(struct stream_end *e)
{
    int r;

    do
        r = stream_poll(&e->st);
    while (r >= 0 && side_pull(&e->side, e->in) > 0);
    if (r >= 0 && stream_wants_credit(&e->st)) {
        int c = stream_credit(&e->st);

        cr_assert(c == 0 || c == -EAGAIN, "stream_credit: %d", c);
    }
    return r;
}

/* Both ways until nothing moves. */
static inline void stream_pair_settle(struct stream_pair *p)
{
    uint64_t before, after = 0;

    do {
        before = after;
        stream_end_push(&p->a);
        stream_end_push(&p->b);
        cr_assert_geq(stream_end_pull(&p->a), 0);
        cr_assert_geq(stream_end_pull(&p->b), 0);
        after = p->a.side.ep.stats.rx_fpdus + p->b.side.ep.stats.rx_fpdus + 1;
        cr_assert_lt(after, 1000000u, "the two sides never stop talking");
    } while (after != before || p->ab.used > 0 || p->ba.used > 0);
}

/* The responder may speak after this. */
static inline void stream_pair_start(struct stream_pair *p)
{
    stream_pair_settle(p);
    cr_assert(iwarp_can_send(&p->b.side.ep));
}

static inline ssize_t stream_end_write(struct stream_end *e, const void *data, size_t len)
{
    struct iovec v = { (void *)(uintptr_t)data, len };
    struct iov_iter it = iov_iter_init(&v, 1);

    return stream_write(&e->st, &it, len);
}

static inline size_t stream_end_read(struct stream_end *e, void *data, size_t len)
{
    struct iovec v = { data, len };
    struct iov_iter it = iov_iter_init(&v, 1);

    return stream_read(&e->st, &it, len);
}

static inline size_t stream_end_peek(struct stream_end *e, void *data, size_t len, size_t skip)
{
    struct iovec v = { data, len };
    struct iov_iter it = iov_iter_init(&v, 1);

    return stream_peek(&e->st, &it, len, skip);
}

/* A Send as a peer at fault might make it. */
static inline void stream_end_raw(struct stream_end *e, struct stream_hdr h, const void *data, size_t len)
{
    uint8_t hdr[STREAM_HDR_LEN];

    stream_hdr_encode(&h, hdr);
    cr_assert_eq(side_send(&e->side, hdr, sizeof(hdr), data, len), 0);
}

#endif
