/*
 * Fuzz target: two endpoints coupled through memory; the input is a program of operations, one of
 * which spoils an octet on the way. What must hold: with the CRC in use what is delivered is what
 * was sent, once and in order, until an error is found; memory outside the region is never touched;
 * both sides come to rest.
 *
 *   octet 0: low two bits RTR kind, 4 small segments, 8 markers in what a sends, 16 in what b sends
 *   then operations of two octets: low three bits what, 8 which side, 16 long; its argument; of a
 *   Send: 32 solicited, 64 fenced, 128 Immediate Data instead
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/iwarp/iwarp_ops.h"
#include "tests/unit/iwarp_pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GUARD 32u
#define REGION 4096u
#define POSTED 65536u
#define OPS_MAX 2000u

struct dir {
    struct side *from, *to;
    struct mem_pipe *pipe;
    uint32_t ring, region, src, dst;
    uint8_t memory[GUARD + REGION + GUARD], source[REGION], sink[GUARD + REGION + GUARD];
    uint8_t posted[POSTED];
    size_t used;
    uint32_t batch[64]; /* lengths of the messages posted since the batch was empty; 0: no Send */
    unsigned batch_n;
    uint32_t sent, got; /* Sends */
    bool broken;
};

static struct pair p;
static struct dir dirs[2];

static void must(int cond)
{
    if (!cond)
        abort();
}

static uint8_t octet(uint32_t n, size_t i)
{
    return (uint8_t)(n * 37 + i * 11 + (i >> 8) + 1);
}

static void flushed(struct dir *d)
{
    memset(d->posted, 0xdd, d->used);
    d->used = 0;
    d->batch_n = 0;
}

static int post_send(struct dir *d, unsigned op, const uint8_t *hdr, uint8_t *at, size_t len)
{
    struct iovec v = { at, len };
    struct iov_iter it = iov_iter_init(&v, 1);
    unsigned flags = (op & 32 ? IWARP_SOLICITED : 0) | (op & 64 ? IWARP_FENCE : 0);

    if (op & 128) /* its number, and what follows from it */
        return iwarp_post_immediate(&d->from->ep.base,
                                    (uint64_t)(d->sent & 0xff) << 56 | (uint64_t)(d->sent >> 8 & 0xff) << 48 |
                                        (uint64_t)octet(d->sent, 0) << 24,
                                    op & 32);
    return iwarp_post_send_with(&d->from->ep, flags, 0, hdr, 4, &it, len);
}

static void post(struct dir *d, unsigned op, size_t len)
{
    unsigned how = op;

    op &= 7;
    uint8_t *at = d->posted + d->used;
    uint8_t hdr[4] = { (uint8_t)d->sent, (uint8_t)(d->sent >> 8), (uint8_t)(d->sent >> 16), 0 };
    int err;

    if (len > POSTED - d->used || d->batch_n == 64)
        return;
    for (size_t i = 0; i < len; i++)
        at[i] = octet(d->sent, i);
    if (op == 0)
        err = post_send(d, how, hdr, at, len);
    else if (op == 1)
        err = side_write(d->from, d->region, len % 7, at, len < REGION - 7 ? len : 0);
    else
        err = iwarp_post_read(&d->from->ep,
                              &(struct rdmap_read){ .sink_stag = d->dst, .len = (uint32_t)len, .src_stag = d->src });
    must(err == 0 || err == -EAGAIN || (err == -EPIPE && iwarp_state_now(&d->from->ep) >= IWARP_TERMINATING));
    if (err)
        return;
    d->used += len;
    d->batch[d->batch_n++] = op == 0;
    d->sent += op == 0;
}

static void push(struct dir *d, size_t most)
{
    const struct iovec *iov;
    size_t n, len;

    while ((n = iwarp_out(&d->from->ep, &iov, &len)) > 0) {
        struct iovec one = *iov;
        size_t taken;

        if (one.iov_len > most)
            one.iov_len = most;
        taken = one.iov_len ? mem_pipe_write(d->pipe, &one, 1) : 0;
        if (taken == 0)
            return;
        iwarp_out_sent(&d->from->ep, taken);
        most -= taken;
    }
    flushed(d);
}

static void detach(struct dir *d)
{
    unsigned n = iwarp_out_detach(&d->from->ep).frames;

    must(n <= d->batch_n);
    for (unsigned i = 0; i < n; i++)
        d->sent -= d->batch[d->batch_n - 1 - i];
    flushed(d);
}

static void check(struct dir *d)
{
    for (size_t i = 0; i < GUARD; i++) {
        must(d->memory[i] == 0x5a && d->memory[GUARD + REGION + i] == 0x5a);
        must(d->sink[i] == 0x5a && d->sink[GUARD + REGION + i] == 0x5a);
    }
}

static void pull(struct dir *d)
{
    struct endpoint_event ev;
    int r;

    (void)side_pull(d->to, d->pipe);
    while ((r = iwarp_poll(&d->to->ep.base, &ev)) == 1) {
        if (ev.type == ENDPOINT_TERMINATED)
            continue;
        must(ev.type == ENDPOINT_SEND || (ev.type == ENDPOINT_IMMEDIATE && ev.len == 8));
        must(ev.len >= 4 && d->got < d->sent);
        must(ev.data[0] == (uint8_t)d->got && ev.data[1] == (uint8_t)(d->got >> 8));
        if (ev.type == ENDPOINT_IMMEDIATE)
            must(ev.data[4] == octet(d->got, 0));
        for (size_t i = 4; i < ev.len && ev.type == ENDPOINT_SEND; i++)
            must(ev.data[i] == octet(d->got, i - 4));
        d->got++;
        iwarp_release(&d->to->ep.base, ev.data + ev.len);
    }
    must(r == 0 || iwarp_state_now(&d->to->ep) >= IWARP_TERMINATING);
    /* Without spoilt octets in either direction neither end may report an error. */
    must(r == 0 || dirs[0].broken || dirs[1].broken);
    check(d);
}

static void spoil(struct dir *d, uint8_t arg)
{
    struct mem_pipe *pipe = d->pipe;

    if (pipe->used == 0)
        return;
    pipe->buf[(pipe->first + arg * 37u % pipe->used) % pipe->cap] ^= (uint8_t)(arg | 1);
    d->broken = true;
}

static void dir_init(struct dir *d, struct side *from, struct side *to, struct mem_pipe *pipe)
{
    memset(d, 0, sizeof(*d));
    memset(d->memory, 0x5a, sizeof(d->memory));
    memset(d->sink, 0x5a, sizeof(d->sink));
    d->from = from;
    d->to = to;
    d->pipe = pipe;
    d->region = side_region(to, d->memory + GUARD, 0, REGION, DDP_ACCESS_REMOTE_WRITE);
    d->src = side_region(to, d->source, 0, REGION, DDP_ACCESS_REMOTE_READ);
    d->dst = side_region(from, d->sink + GUARD, 0, REGION, DDP_ACCESS_LOCAL_SINK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t kinds[] = { 0, MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };
    struct iwarp_cfg c;
    bool ab_markers, ba_markers;

    if (size < 1)
        return 0;
    ab_markers = data[0] & 8;
    ba_markers = data[0] & 16;
    must(pair_init(&p, kinds[data[0] & 3], 20000) == 0);
    c = side_cfg(&p.a, true, kinds[data[0] & 3]);
    c.immediate = true;
    cfg_markers(&c, ba_markers, ab_markers);
    if (data[0] & 4)
        c.mulpdu = MPA_MULPDU_MIN;
    must(iwarp_init(&p.a.ep, &c) == 0);
    c = side_cfg(&p.b, false, kinds[data[0] & 3]);
    c.immediate = true;
    cfg_markers(&c, ab_markers, ba_markers);
    must(iwarp_init(&p.b.ep, &c) == 0);
    dir_init(&dirs[0], &p.a, &p.b, &p.ab);
    dir_init(&dirs[1], &p.b, &p.a, &p.ba);
    for (size_t i = 1; i + 1 < size && i < OPS_MAX; i += 2) {
        struct dir *d = &dirs[data[i] >> 3 & 1];
        uint8_t arg = data[i + 1];

        switch (data[i] & 7) {
        case 0:
        case 1:
        case 2:
            post(d, data[i], data[i] & 16 ? arg * 15u : arg);
            break;
        case 3:
            push(d, arg);
            break;
        case 4:
            push(d, SIZE_MAX);
            break;
        case 5:
            pull(d);
            break;
        case 6:
            detach(d);
            break;
        default:
            spoil(d, arg);
        }
    }
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 2; i++) {
            push(&dirs[i], SIZE_MAX);
            pull(&dirs[i]);
        }
    }
    if (!dirs[0].broken && !dirs[1].broken) {
        must(dirs[0].got == dirs[0].sent && dirs[1].got == dirs[1].sent);
        must(p.ab.used == 0 && p.ba.used == 0);
    }
    pair_fini(&p);
    return 0;
}
