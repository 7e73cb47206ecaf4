/*
 * Blocks: len bytes, the first of which is a mark ('D', or 'E' in the last block). With verify the others are a piece
 * of a pseudo-random pattern whose length is a prime, so that a byte lost, doubled or exchanged shows.
 */
#include "bench/load/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN_PERIOD 65521u

int blocks_init(struct blocks *b, const struct bench_request *req)
{
    size_t in_len = req->len > req->recv_len ? req->len : req->recv_len;

    memset(b, 0, sizeof(*b));
    b->req = req;
    b->buf = malloc(req->len);
    b->in = malloc(in_len);
    if (!b->buf || !b->in)
        return -1;
    /* Touched now, so that page faults are not measured. */
    memset(b->buf, 'x', req->len);
    memset(b->in, 0, in_len);
    if (!req->verify)
        return 0;

    /* Long enough that any block and any recv() can be compared in one piece. */
    size_t len = PATTERN_PERIOD + in_len;
    b->pattern = malloc(len);
    if (!b->pattern)
        return -1;
    uint32_t x = req->seed * 2654435761u + 1;
    for (size_t i = 0; i < PATTERN_PERIOD; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        b->pattern[i] = (uint8_t)(x >> 11);
    }
    for (size_t i = PATTERN_PERIOD; i < len; i++)
        b->pattern[i] = b->pattern[i - PATTERN_PERIOD];
    return 0;
}

void blocks_fini(struct blocks *b)
{
    free(b->buf);
    free(b->in);
    free(b->pattern);
}

int blocks_send(struct blocks *b, int fd, bool last)
{
    if (b->pattern)
        memcpy(b->buf, b->pattern + b->off % PATTERN_PERIOD, b->req->len);
    b->buf[0] = last ? BENCH_END : BENCH_DATA;
    b->off += b->req->len;
    return net_send_all(fd, b->buf, b->req->len);
}

/* Compares len received bytes that begin at b->off; the first byte of a block is its mark. */
static void check(struct blocks *b, const uint8_t *p, size_t len)
{
    const uint8_t *want = b->pattern + b->off % PATTERN_PERIOD;
    size_t pos = 0;

    while (pos < len) {
        size_t in_block = (size_t)((b->off + pos) % b->req->len);
        size_t n = b->req->len - in_block;
        if (n > len - pos)
            n = len - pos;
        size_t skip = in_block == 0 ? 1 : 0;
        if (memcmp(p + pos + skip, want + pos + skip, n - skip) != 0)
            for (size_t i = skip; i < n; i++)
                b->bad += p[pos + i] != want[pos + i];
        pos += n;
    }
}

int blocks_recv_one(struct blocks *b, int fd)
{
    size_t len = b->req->len;

    if (net_recv_all(fd, b->in, len) < 0)
        return -1;
    if (b->in[0] != BENCH_DATA && b->in[0] != BENCH_END) {
        errno = EPROTO;
        return -1;
    }
    if (b->pattern)
        check(b, b->in, len);
    b->off += len;
    return b->in[0] == BENCH_DATA;
}

/*
 * Looks at the marks of the blocks that begin within the len bytes at p. Returns how many of the bytes belong to
 * blocks: len, or less if the last block ends before; *last then is true. -1: a mark is neither.
 */
static ssize_t scan_marks(const struct blocks *b, const uint8_t *p, size_t len, uint64_t *end, bool *last)
{
    size_t block = b->req->len;
    size_t in_block = (size_t)(b->off % block);
    size_t pos = in_block == 0 ? 0 : block - in_block;

    for (; !*last && pos < len; pos += block) {
        if (p[pos] == BENCH_END) {
            *last = true;
            *end = b->off + pos + block;
        } else if (p[pos] != BENCH_DATA) {
            errno = EPROTO;
            return -1;
        }
    }
    if (*last && *end - b->off < len)
        return (ssize_t)(*end - b->off);
    return (ssize_t)len;
}

int blocks_recv_all(struct blocks *b, int fd, uint8_t *tail, size_t tail_len)
{
    bool last = false;
    uint64_t end = 0;
    size_t tail_got = 0;

    while (!last || b->off < end) {
        ssize_t n = recv(fd, b->in, b->req->recv_len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            return -1;
        ssize_t ours = scan_marks(b, b->in, (size_t)n, &end, &last);
        if (ours < 0)
            return -1;
        if (b->pattern)
            check(b, b->in, (size_t)ours);
        b->off += (uint64_t)ours;
        size_t rest = (size_t)(n - ours);
        if (rest > tail_len - tail_got) {
            errno = EPROTO;
            return -1;
        }
        if (rest) {
            memcpy(tail + tail_got, b->in + ours, rest);
            tail_got += rest;
        }
    }
    return tail_len > tail_got ? net_recv_all(fd, tail + tail_got, tail_len - tail_got) : 0;
}
