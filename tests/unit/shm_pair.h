/*
 * Two endpoints in shared memory, face to face in one process. Behind each region are octets that must not change. Its
 * user may be hostile: the regions are his to write.
 */
#ifndef SW_TESTS_SHM_PAIR_H
#define SW_TESTS_SHM_PAIR_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/stream/stream.h"
#include "core/transport/shm.h"

#define SHM_GUARD 8192u
#define SHM_STAG 0x51515151u
#define SHM_ALIGNED(len) (((size_t)(len) + 7) & ~(size_t)7)

struct shm_pair {
    uint8_t *mem[2];
    struct shm_ep a, b;
    struct stream sa, sb;
    uint32_t ring_len;
};

static inline void shm_pair_init(struct shm_pair *p, uint32_t ring_len, uint32_t window_len)
{
    memset(p, 0, sizeof(*p));
    p->ring_len = ring_len;
    for (int i = 0; i < 2; i++) {
        p->mem[i] = aligned_alloc(64, SHM_HEAD_LEN + ring_len + SHM_GUARD);
        memset(p->mem[i], 0, SHM_HEAD_LEN + ring_len);
        memset(p->mem[i] + SHM_HEAD_LEN + ring_len, 0xc3, SHM_GUARD);
    }
    struct shm_cfg a = { p->mem[0], p->mem[1], ring_len, SHM_STAG, window_len };
    struct shm_cfg b = { p->mem[1], p->mem[0], ring_len, SHM_STAG, window_len };
    cr_assert_eq(shm_init(&p->a, &a), 0);
    cr_assert_eq(shm_init(&p->b, &b), 0);
}

/* Nothing behind a region was written. */
static inline void shm_pair_check(const struct shm_pair *p)
{
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < SHM_GUARD; k++)
            cr_assert_eq(p->mem[i][SHM_HEAD_LEN + p->ring_len + k], 0xc3, "octet %zu behind region %d", k, i);
}

static inline void shm_pair_fini(struct shm_pair *p)
{
    shm_pair_check(p);
    free(p->mem[0]);
    free(p->mem[1]);
}

static inline uint8_t *shm_ring(const struct shm_pair *p, int side)
{
    return p->mem[side] + SHM_HEAD_LEN;
}

static inline struct shm_region *shm_region_of(const struct shm_pair *p, int side)
{
    return (struct shm_region *)(void *)p->mem[side];
}

/* Streams over the two, with the flow control that is the ring's. */
static inline void shm_pair_streams(struct shm_pair *p, uint16_t eager_max, uint32_t eager_limit)
{
    struct stream_params params = {
        .version = 1,
        .flags = STREAM_FLAG_LLP | STREAM_FLAG_URGENT,
        .ring_stag = SHM_STAG,
        .ring_len = p->a.window_len,
        .eager_max = eager_max,
    };
    struct stream_cfg cfg = { .local = params, .peer = params, .eager_limit = eager_limit };
    cfg.ep = &p->a.base;
    cr_assert_eq(stream_init(&p->sa, &cfg), 0);
    cfg.ep = &p->b.base;
    cr_assert_eq(stream_init(&p->sb, &cfg), 0);
}

static inline int shm_send(struct shm_ep *ep, const void *hdr, size_t hdr_len, const void *data, size_t len)
{
    struct iovec v = { (void *)(uintptr_t)data, len };
    struct iov_iter it = iov_iter_init(&v, 1);
    return shm_endpoint_ops.post_send(&ep->base, hdr, hdr_len, &it, len);
}

static inline int shm_write(struct shm_ep *ep, uint64_t to, const void *data, size_t len)
{
    struct iovec v = { (void *)(uintptr_t)data, len };
    struct iov_iter it = iov_iter_init(&v, 1);
    return shm_endpoint_ops.post_write(&ep->base, SHM_STAG, to, &it, len);
}

static inline int shm_next(struct shm_ep *ep, struct endpoint_event *ev)
{
    return shm_endpoint_ops.poll(&ep->base, ev);
}

static inline void shm_done(struct shm_ep *ep, const struct endpoint_event *ev)
{
    shm_endpoint_ops.release(&ep->base, ev->data + ev->len);
}

#endif
