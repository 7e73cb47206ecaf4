/*
 * Two software endpoints coupled through memory: the fixture of the iwarp tests.
 */
#ifndef SW_TESTS_UNIT_IWARP_PAIR_H
#define SW_TESTS_UNIT_IWARP_PAIR_H

#include <stdlib.h>
#include <string.h>

#include "core/iwarp/iwarp.h"
#include "core/mpa/startup.h"
#include "core/transport/mem.h"
#include "tests/unit/prng.h"

#define SIDE_OUT_CAP (MPA_FPDU_MAX + 512u)
#define SIDE_SEND_MAX 8192u
#define SIDE_IN_CAP (MPA_FPDU_MARKED_MAX + MPA_HDR_LEN + SIDE_SEND_MAX)

struct side {
    struct iwarp_ep ep;
    uint8_t *in_buf, *out_buf;
    uint64_t prng;
};

struct pair {
    struct side a, b; /* a: initiator */
    struct mem_pipe ab, ba;
    uint8_t *ab_buf, *ba_buf;
};

static inline struct iwarp_cfg side_cfg(struct side *s, bool initiator, uint8_t rtr)
{
    return (struct iwarp_cfg){
        .initiator = initiator,
        .tx = { .crc = true },
        .rx = { .crc = true },
        .rtr = rtr,
        .ird = IWARP_IRD_MAX,
        .ord = IWARP_ORD_MAX,
        .mulpdu = 1024,
        .send_max = SIDE_SEND_MAX,
        .in_buf = s->in_buf,
        .in_cap = SIDE_IN_CAP,
        .out_buf = s->out_buf,
        .out_cap = SIDE_OUT_CAP,
        .random32 = prng32,
        .random_arg = &s->prng,
    };
}

/* With markers in what it receives, or sends. */
static inline void cfg_markers(struct iwarp_cfg *c, bool rx, bool tx)
{
    c->rx.markers = rx;
    c->tx.markers = tx;
}

static inline void side_alloc(struct side *s, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    s->in_buf = malloc(SIDE_IN_CAP);
    s->out_buf = malloc(SIDE_OUT_CAP);
    s->prng = seed * 2654435761u + 88172645463325252u;
}

static inline void side_free(struct side *s)
{
    free(s->in_buf);
    free(s->out_buf);
}

/* Both ends with the defaults of side_cfg and this RTR. */
static inline int pair_init(struct pair *p, uint8_t rtr, size_t pipe_cap)
{
    struct iwarp_cfg ca, cb;

    side_alloc(&p->a, 1);
    side_alloc(&p->b, 2);
    p->ab_buf = malloc(pipe_cap);
    p->ba_buf = malloc(pipe_cap);
    mem_pipe_init(&p->ab, p->ab_buf, pipe_cap);
    mem_pipe_init(&p->ba, p->ba_buf, pipe_cap);
    ca = side_cfg(&p->a, true, rtr);
    cb = side_cfg(&p->b, false, rtr);
    if (iwarp_init(&p->a.ep, &ca) < 0)
        return -1;
    return iwarp_init(&p->b.ep, &cb);
}

static inline void pair_fini(struct pair *p)
{
    side_free(&p->a);
    side_free(&p->b);
    free(p->ab_buf);
    free(p->ba_buf);
}

/* As much as the pipe takes. Returns true if nothing is left to send. */
static inline bool side_push(struct side *s, struct mem_pipe *to)
{
    const struct iovec *iov;
    size_t n, len;

    while ((n = iwarp_out(&s->ep, &iov, &len)) > 0) {
        size_t taken = mem_pipe_write(to, iov, n);

        if (taken == 0)
            return false;
        iwarp_out_sent(&s->ep, taken);
    }
    return true;
}

/* One read's worth. Returns octets. */
static inline size_t side_pull(struct side *s, struct mem_pipe *from)
{
    uint8_t *p;
    size_t room = iwarp_in_space(&s->ep, &p);
    size_t n = room ? mem_pipe_read(from, p, room) : 0;

    iwarp_in_fed(&s->ep, n);
    return n;
}

/* post_send of one contiguous piece. */
static inline int side_send(struct side *s, const void *hdr, size_t hdr_len, const void *data, size_t len)
{
    struct iovec v = { (void *)(uintptr_t)data, len };
    struct iov_iter it = iov_iter_init(&v, 1);

    return iwarp_post_send(&s->ep.base, hdr, hdr_len, &it, len);
}

static inline int side_write(struct side *s, uint32_t stag, uint64_t to, const void *data, size_t len)
{
    struct iovec v = { (void *)(uintptr_t)data, len };
    struct iov_iter it = iov_iter_init(&v, 1);

    return iwarp_post_write(&s->ep.base, stag, to, &it, len);
}

/* A region of this side; returns its STag, 0 if the table is full. */
static inline uint32_t side_region(struct side *s, void *base, uint64_t to, uint64_t len, uint8_t access)
{
    struct ddp_region r = {
        .access = access,
        .deferred = base == NULL,
        .to = to,
        .len = len,
        .base = base,
    };

    return ddp_stags_add(&s->ep.stags, &r, prng32, &s->prng) == 0 ? r.stag : 0;
}

#endif
