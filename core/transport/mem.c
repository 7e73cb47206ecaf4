/*
 * A pipe in memory: where the receive path begins in tests. [transport] -> mpa -> ddp -> rdmap ->
 * stream.
 */
#include "core/transport/mem.h"

#include <string.h>

void mem_pipe_init(struct mem_pipe *p, void *buf, size_t cap)
{
    *p = (struct mem_pipe){ .buf = buf, .cap = cap, .limit = UINT64_MAX };
}

void mem_pipe_cut(struct mem_pipe *p, size_t max, uint32_t (*random32)(void *arg), void *arg)
{
    p->cut_max = max;
    p->random32 = random32;
    p->arg = arg;
}

static size_t cut(struct mem_pipe *p)
{
    return p->cut_max ? 1 + p->random32(p->arg) % p->cut_max : SIZE_MAX;
}

/* Puts octets into the ring, as far as there is room. */
static size_t put(struct mem_pipe *p, const uint8_t *src, size_t len)
{
    size_t done = 0;

    if (len > p->cap - p->used)
        len = p->cap - p->used;
    while (done < len) {
        size_t at = (p->first + p->used) % p->cap;
        size_t n = len - done < p->cap - at ? len - done : p->cap - at;

        memcpy(p->buf + at, src + done, n);
        p->used += n;
        done += n;
    }
    return done;
}

size_t mem_pipe_write(struct mem_pipe *p, const struct iovec *iov, size_t n)
{
    size_t most = cut(p), taken = 0;

    for (size_t i = 0; i < n && taken < most; i++) {
        size_t len = iov[i].iov_len < most - taken ? iov[i].iov_len : most - taken, in = len, done;

        if (in > p->limit)
            in = (size_t)p->limit;
        done = put(p, iov[i].iov_base, in);
        p->limit -= done;
        if (p->limit == 0) {
            p->ended = true;
            done = len; /* the rest is lost on the way */
        }
        taken += done;
        if (done < len)
            break;
    }
    if (!p->delayed)
        p->arrived = p->used;
    return taken;
}

size_t mem_pipe_read(struct mem_pipe *p, void *buf, size_t len)
{
    size_t most = cut(p), done = 0;

    if (len > most)
        len = most;
    if (len > p->arrived)
        len = p->arrived;
    while (done < len) {
        size_t n = len - done < p->cap - p->first ? len - done : p->cap - p->first;

        memcpy((uint8_t *)buf + done, p->buf + p->first, n);
        p->first = (p->first + n) % p->cap;
        done += n;
    }
    p->used -= len;
    p->arrived -= len;
    return len;
}

void mem_pipe_deliver(struct mem_pipe *p, size_t n)
{
    p->arrived = n < p->used - p->arrived ? p->arrived + n : p->used;
}

void mem_pipe_end_after(struct mem_pipe *p, uint64_t n)
{
    p->limit = n;
    if (n == 0)
        p->ended = true;
}

bool mem_pipe_eof(const struct mem_pipe *p)
{
    return p->ended && p->used == 0;
}
