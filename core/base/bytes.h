/*
 * Octets in wire order, read and written through bounded cursors.
 *
 * Everything that travels in a frame is taken apart and put together here, octet by octet: no
 * structure is ever laid over wire bytes, so neither padding, alignment nor the order of bit-fields
 * can leak into the protocol.
 *
 * A cursor that runs out sets `bad` and yields zeros; a caller reads a whole header and checks once.
 */
#ifndef SW_BASE_BYTES_H
#define SW_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t get_be16(const uint8_t *p)
{
    return (uint16_t)((uint16_t)p[0] << 8 | p[1]);
}

static inline uint32_t get_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t get_be64(const uint8_t *p)
{
    return (uint64_t)get_be32(p) << 32 | get_be32(p + 4);
}

static inline uint32_t get_le32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static inline void put_be16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void put_be32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static inline void put_be64(uint8_t *p, uint64_t v)
{
    put_be32(p, (uint32_t)(v >> 32));
    put_be32(p + 4, (uint32_t)v);
}

static inline void put_le32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

/* Reads forward over borrowed octets. */
struct bytes_rd {
    const uint8_t *p;
    const uint8_t *end;
    bool bad;
};

static inline struct bytes_rd bytes_rd_init(const void *buf, size_t len)
{
    return (struct bytes_rd){ .p = buf, .end = (const uint8_t *)buf + len, .bad = false };
}

static inline size_t bytes_rd_left(const struct bytes_rd *r)
{
    return (size_t)(r->end - r->p);
}

/* n octets, or NULL (and bad) if fewer are left. */
static inline const uint8_t *bytes_rd_take(struct bytes_rd *r, size_t n)
{
    const uint8_t *p = r->p;
    if (bytes_rd_left(r) < n) {
        r->bad = true;
        r->p = r->end;
        return NULL;
    }
    r->p += n;
    return p;
}

static inline uint8_t bytes_rd_u8(struct bytes_rd *r)
{
    const uint8_t *p = bytes_rd_take(r, 1);
    return p ? *p : 0;
}

static inline uint16_t bytes_rd_be16(struct bytes_rd *r)
{
    const uint8_t *p = bytes_rd_take(r, 2);
    return p ? get_be16(p) : 0;
}

static inline uint32_t bytes_rd_be32(struct bytes_rd *r)
{
    const uint8_t *p = bytes_rd_take(r, 4);
    return p ? get_be32(p) : 0;
}

static inline uint64_t bytes_rd_be64(struct bytes_rd *r)
{
    const uint8_t *p = bytes_rd_take(r, 8);
    return p ? get_be64(p) : 0;
}

/* Writes forward into borrowed octets. */
struct bytes_wr {
    uint8_t *start;
    uint8_t *p;
    uint8_t *end;
    bool bad;
};

static inline struct bytes_wr bytes_wr_init(void *buf, size_t cap)
{
    return (struct bytes_wr){ .start = buf, .p = buf, .end = (uint8_t *)buf + cap, .bad = false };
}

static inline size_t bytes_wr_len(const struct bytes_wr *w)
{
    return (size_t)(w->p - w->start);
}

static inline uint8_t *bytes_wr_take(struct bytes_wr *w, size_t n)
{
    uint8_t *p = w->p;
    if ((size_t)(w->end - w->p) < n) {
        w->bad = true;
        w->p = w->end;
        return NULL;
    }
    w->p += n;
    return p;
}

static inline void bytes_wr_u8(struct bytes_wr *w, uint8_t v)
{
    uint8_t *p = bytes_wr_take(w, 1);
    if (p)
        *p = v;
}

static inline void bytes_wr_be16(struct bytes_wr *w, uint16_t v)
{
    uint8_t *p = bytes_wr_take(w, 2);
    if (p)
        put_be16(p, v);
}

static inline void bytes_wr_be32(struct bytes_wr *w, uint32_t v)
{
    uint8_t *p = bytes_wr_take(w, 4);
    if (p)
        put_be32(p, v);
}

static inline void bytes_wr_be64(struct bytes_wr *w, uint64_t v)
{
    uint8_t *p = bytes_wr_take(w, 8);
    if (p)
        put_be64(p, v);
}

static inline void bytes_wr_copy(struct bytes_wr *w, const void *src, size_t n)
{
    uint8_t *p = bytes_wr_take(w, n);
    if (p && n)
        memcpy(p, src, n);
}

#endif
