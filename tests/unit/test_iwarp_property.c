/*
 * Random operations, cuts and detaches between two endpoints, held against a model: what was
 * accepted arrives, once, in order, unchanged, whatever the pipe does. Each run prints its seed on
 * failure; SW_SEED=n repeats one, SW_SECONDS=n runs longer.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "tests/unit/iwarp_pair.h"

#define RING_LEN (1u << 20)
#define MEM_LEN 16384u
#define WAITING_MAX 4096u
#define KEPT_MAX 128u

enum kind { SEND, RING_WRITE, MEM_WRITE, READ, EMPTY_WRITE };

struct op {
    enum kind kind;
    uint32_t len, off; /* off: ring offset; place in mem */
    uint32_t stamp;    /* its octets follow from it */
};

struct dir {
    struct side *from, *to;
    struct mem_pipe *pipe;
    uint32_t mem_stag, ring_stag, src_stag, dst_stag;
    uint8_t mem[MEM_LEN], model[MEM_LEN]; /* at `to`: where MEM_WRITEs go, and what must be there */
    uint8_t src[MEM_LEN];                 /* at `to`: what READs read; never changes */
    uint8_t dst[MEM_LEN], want[MEM_LEN]; /* at `from`: where READs put it, and what must be there */
    struct op batch[KEPT_MAX];            /* posted since the batch was empty */
    unsigned batch_n;
    uint8_t *posted;                      /* memory lent to the endpoint until sent or detached */
    size_t posted_used;
    struct op waiting[WAITING_MAX]; /* accepted, not yet arrived; without READs and EMPTY_WRITEs */
    uint32_t first, last;
    uint32_t got;                         /* octets of waiting[first] that came (ring writes) */
    uint64_t ring_at, reads, next_stamp;
    uint8_t *held_upto;
    uint64_t delivered;
};

#define POSTED_CAP (4u << 20)

static struct pair p;
static struct dir dirs[2];
static uint64_t rng, seed;

static uint32_t rnd(uint32_t n)
{
    return prng32(&rng) % n;
}

static uint8_t octet(uint32_t stamp, uint32_t i)
{
    return (uint8_t)(stamp * 2654435761u >> 24 ^ i * 7 ^ i >> 8);
}

#define HOLD(cond, ...)                                                                  \
    do {                                                                                 \
        if (!(cond)) {                                                                   \
            char text[200];                                                              \
            snprintf(text, sizeof(text), __VA_ARGS__);                                   \
            cr_assert(false, "seed %llu: %s: %s", (unsigned long long)seed, #cond, text); \
        }                                                                                \
    } while (0)

static uint32_t random_len(size_t max)
{
    switch (rnd(4)) {
    case 0:
        return rnd(20);
    case 1:
        return rnd((uint32_t)max + 1);
    default:
        return rnd(max < 600 ? (uint32_t)max + 1 : 600);
    }
}

/* The op's octets in a fresh piece of posted memory, cut into pieces. */
static struct iov_iter lend(struct dir *d, const struct op *op, struct iovec *v, size_t vmax)
{
    uint8_t *at = d->posted + d->posted_used;
    size_t n = 0, left = op->len;
    uint32_t most = rnd(8) == 0 ? 5 : 4000;

    for (uint32_t i = 0; i < op->len; i++)
        at[i] = octet(op->stamp, i);
    d->posted_used += op->len;
    while (left > 0) {
        size_t l = 1 + rnd(most);

        if (l > left || n + 1 == vmax)
            l = left;
        v[n++] = (struct iovec){ at, l };
        at += l;
        left -= l;
    }
    return iov_iter_init(v, n);
}

static int post(struct dir *d, const struct op *op)
{
    static struct iovec v[512];
    struct endpoint *e = &d->from->ep.base;
    uint8_t hdr[8] = { (uint8_t)op->stamp, (uint8_t)(op->stamp >> 8), 3, 4, 5, 6, 7, 8 };
    size_t used = d->posted_used;
    struct iov_iter it;
    int err;

    if (op->kind == READ)
        return iwarp_post_read(&d->from->ep, &(struct rdmap_read){
                                                 .sink_stag = d->dst_stag,
                                                 .sink_to = op->off,
                                                 .len = op->len,
                                                 .src_stag = d->src_stag,
                                                 .src_to = op->off,
                                             });
    if (op->kind == EMPTY_WRITE) /* to nowhere */
        return side_write(d->from, op->stamp, op->off, NULL, 0);
    it = lend(d, op, v, 512);
    if (op->kind == SEND)
        err = iwarp_post_send(e, hdr, 8, &it, op->len);
    else
        err = iwarp_post_write(e, op->kind == RING_WRITE ? d->ring_stag : d->mem_stag, op->off, &it,
                               op->len);
    if (err)
        d->posted_used = used;
    return err;
}

/* Makes up an op. False if it has no place now. */
static bool make_op(struct dir *d, struct op *op)
{
    const struct endpoint *e = &d->from->ep.base;

    *op = (struct op){ .kind = (enum kind)rnd(5), .stamp = (uint32_t)d->next_stamp++ };
    switch (op->kind) {
    case SEND:
        op->len = random_len(iwarp_send_max(e) - 8);
        break;
    case RING_WRITE:
        op->len = 1 + random_len(iwarp_write_max(e) - 1);
        if (d->ring_at + op->len > RING_LEN)
            d->ring_at = 0;
        op->off = (uint32_t)d->ring_at;
        d->ring_at += op->len;
        break;
    case MEM_WRITE:
    case READ:
        op->len = 1 + random_len((iwarp_write_max(e) < MEM_LEN ? iwarp_write_max(e) : MEM_LEN) - 1);
        op->off = rnd(MEM_LEN - op->len + 1);
        break;
    case EMPTY_WRITE:
        op->off = rnd(1u << 30);
        break;
    }
    return d->posted_used + op->len <= POSTED_CAP && d->last - d->first < WAITING_MAX - KEPT_MAX &&
           d->batch_n < KEPT_MAX;
}

/* Posted and accepted: from here on it must arrive, unless a detach gives it back. */
static void accepted(struct dir *d, const struct op *op)
{
    d->batch[d->batch_n++] = *op;
    if (op->kind == READ)
        d->reads++;
    else if (op->kind != EMPTY_WRITE)
        d->waiting[d->last++ % WAITING_MAX] = *op;
}

static void taken_back(struct dir *d, const struct op *op)
{
    if (op->kind == READ)
        d->reads--;
    else if (op->kind != EMPTY_WRITE)
        d->last--;
}

static void try_post(struct dir *d)
{
    uint64_t ring_at = d->ring_at;
    struct op op;
    int err;

    if (!make_op(d, &op)) {
        d->ring_at = ring_at;
        return;
    }
    err = post(d, &op);
    if (err) {
        HOLD(err == -EAGAIN, "post: %d", err);
        d->ring_at = ring_at;
        return;
    }
    accepted(d, &op);
}

static void flushed(struct dir *d)
{
    /* The memory goes back to its owner, who does as he likes with it. */
    memset(d->posted, 0xdd, d->posted_used);
    d->posted_used = 0;
    d->batch_n = 0;
}

static void push(struct dir *d)
{
    const struct iovec *iov;
    size_t n, len;

    while ((n = iwarp_out(&d->from->ep, &iov, &len)) > 0) {
        size_t sum = 0, taken;

        for (size_t i = 0; i < n; i++)
            sum += iov[i].iov_len;
        HOLD(sum == len && n <= IWARP_OUT_IOV, "%zu of %zu in %zu", sum, len, n);
        taken = mem_pipe_write(d->pipe, iov, n);
        if (taken == 0)
            return;
        iwarp_out_sent(&d->from->ep, taken);
        if (rnd(3) == 0)
            return;
    }
    flushed(d);
}

/* The pipe is said to be full: detach, then post again what was dropped. */
static void detach(struct dir *d)
{
    unsigned n = iwarp_out_detach(&d->from->ep).frames, kept = d->batch_n - n;
    struct op again[KEPT_MAX];

    HOLD(n <= d->batch_n, "%u of %u", n, d->batch_n);
    memcpy(again, d->batch + kept, n * sizeof(again[0]));
    for (unsigned i = 0; i < n; i++)
        taken_back(d, &again[n - 1 - i]);
    flushed(d);
    for (unsigned i = 0; i < n; i++) {
        while (post(d, &again[i]) == -EAGAIN) {
            const struct iovec *iov;
            size_t len, iovs = iwarp_out(&d->from->ep, &iov, &len),
                        taken = mem_pipe_write(d->pipe, iov, iovs);

            if (taken == 0)
                return; /* the rest is never posted: its owner thought better of it */
            iwarp_out_sent(&d->from->ep, taken);
        }
        accepted(d, &again[i]);
    }
}

static void arrived(struct dir *d, const struct endpoint_event *ev)
{
    /* MEM_WRITEs make no event: those in front were placed. */
    while (d->first != d->last && d->waiting[d->first % WAITING_MAX].kind == MEM_WRITE) {
        const struct op *op = &d->waiting[d->first++ % WAITING_MAX];

        for (uint32_t i = 0; i < op->len; i++)
            d->model[op->off + i] = octet(op->stamp, i);
    }
    HOLD(d->first != d->last, "event %d that nobody sent", ev->type);
    const struct op *op = &d->waiting[d->first % WAITING_MAX];

    if (ev->type == ENDPOINT_SEND) {
        HOLD(op->kind == SEND && ev->len == op->len + 8u, "Send of %zu, want %u", ev->len, op->len);
        HOLD(ev->data[0] == (uint8_t)op->stamp && ev->data[1] == (uint8_t)(op->stamp >> 8),
             "stamp %u", op->stamp);
        for (uint32_t i = 0; i < op->len; i++)
            HOLD(ev->data[8 + i] == octet(op->stamp, i), "octet %u", i);
        d->first++;
    } else {
        HOLD(ev->type == ENDPOINT_WRITE && op->kind == RING_WRITE, "event %d", ev->type);
        HOLD(ev->to == op->off + d->got && ev->len > 0 && ev->len <= op->len - d->got, "at %u",
             d->got);
        for (uint32_t i = 0; i < ev->len; i++)
            HOLD(ev->data[i] == octet(op->stamp, d->got + i), "octet %u", d->got + i);
        d->got += (uint32_t)ev->len;
        if (d->got == op->len) {
            d->got = 0;
            d->first++;
        }
    }
    d->delivered++;
}

static void pull(struct dir *d, bool keep)
{
    struct endpoint_event ev;
    int r;

    if (rnd(4) || !keep)
        (void)side_pull(d->to, d->pipe);
    while ((r = iwarp_poll(&d->to->ep.base, &ev)) == 1) {
        arrived(d, &ev);
        d->held_upto = (uint8_t *)(uintptr_t)(ev.data + ev.len);
        if (keep && rnd(3) == 0)
            continue; /* hold on to it, and to what follows, for a while */
        iwarp_release(&d->to->ep.base, d->held_upto);
        d->held_upto = NULL;
    }
    HOLD(r == 0, "%s", term_code_text(iwarp_error(&d->to->ep)));
    if (d->held_upto && (!keep || rnd(2))) {
        iwarp_release(&d->to->ep.base, d->held_upto);
        d->held_upto = NULL;
    }
}

static void dir_init(struct dir *d, struct side *from, struct side *to, struct mem_pipe *pipe)
{
    uint8_t *posted = d->posted;

    memset(d, 0, sizeof(*d));
    d->posted = posted ? posted : malloc(POSTED_CAP);
    d->from = from;
    d->to = to;
    d->pipe = pipe;
    for (uint32_t i = 0; i < MEM_LEN; i++)
        d->src[i] = octet(77, i);
    d->mem_stag = side_region(to, d->mem, 0, MEM_LEN, DDP_ACCESS_REMOTE_WRITE);
    d->ring_stag = side_region(to, NULL, 0, RING_LEN, DDP_ACCESS_REMOTE_WRITE);
    d->src_stag = side_region(to, d->src, 0, MEM_LEN, DDP_ACCESS_REMOTE_READ);
    d->dst_stag = side_region(from, d->dst, 0, MEM_LEN, DDP_ACCESS_LOCAL_SINK);
    cr_assert(d->mem_stag && d->ring_stag && d->src_stag && d->dst_stag);
}

static uint64_t run(void)
{
    static const uint8_t kinds[] = { 0, MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };
    static const size_t cuts[] = { 0, 1, 3, 50, 700, 20000 };
    uint8_t rtr;
    struct iwarp_cfg c;

    rng = seed * 0x9e3779b97f4a7c15u + 1;
    rtr = kinds[rnd(4)];
    cr_assert_eq(pair_init(&p, rtr, 200 + rnd(60000)), 0);
    c = side_cfg(&p.a, true, rtr);
    c.mulpdu = MPA_MULPDU_MIN + rnd(rnd(2) ? 200 : MPA_MULPDU_MAX - MPA_MULPDU_MIN);
    c.ord = (uint16_t)(1 + rnd(IWARP_ORD_MAX));
    c.tx.crc = c.rx.crc = rnd(4) != 0;
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    bool crc = c.tx.crc;
    c = side_cfg(&p.b, false, rtr);
    c.mulpdu = MPA_MULPDU_MIN + rnd(3000);
    c.tx.crc = c.rx.crc = crc;
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
    mem_pipe_cut(&p.ab, cuts[rnd(6)], prng32, &rng);
    mem_pipe_cut(&p.ba, cuts[rnd(6)], prng32, &rng);
    dir_init(&dirs[0], &p.a, &p.b, &p.ab);
    dir_init(&dirs[1], &p.b, &p.a, &p.ba);

    for (int step = 0; step < 1500; step++) {
        struct dir *d = &dirs[rnd(2)];

        switch (rnd(12)) {
        case 0:
            detach(d);
            if (rnd(2))
                iwarp_out_join(&d->from->ep);
            break;
        case 1:
        case 2:
        case 3:
        case 4:
            try_post(d);
            break;
        case 5:
        case 6:
        case 7:
            push(d);
            break;
        default:
            pull(d, true);
        }
    }
    for (int idle = 0; idle < 50; idle++) {
        for (int i = 0; i < 2; i++) {
            uint64_t fpdus = dirs[i].to->ep.stats.rx_fpdus;

            push(&dirs[i]);
            pull(&dirs[i], false);
            if (dirs[i].to->ep.stats.rx_fpdus != fpdus || dirs[i].pipe->used > 0)
                idle = 0;
        }
    }
    for (int i = 0; i < 2; i++) {
        struct dir *d = &dirs[i];

        while (d->first != d->last) {
            const struct op *op = &d->waiting[d->first++ % WAITING_MAX];

            HOLD(op->kind == MEM_WRITE, "kind %d of %u octets never arrived", op->kind, op->len);
            for (uint32_t k = 0; k < op->len; k++)
                d->model[op->off + k] = octet(op->stamp, k);
        }
        HOLD(memcmp(d->mem, d->model, MEM_LEN) == 0, "written memory");
        HOLD(iwarp_reads_done(&d->from->ep) == d->reads, "%llu reads of %llu",
             (unsigned long long)iwarp_reads_done(&d->from->ep), (unsigned long long)d->reads);
        for (uint32_t k = 0; k < MEM_LEN; k++)
            HOLD(d->dst[k] == 0 || d->dst[k] == d->src[k], "read octet %u", k);
        HOLD(d->from->ep.stats.tx_fpdus == d->to->ep.stats.rx_fpdus, "FPDUs");
        HOLD(iwarp_in_eof(&d->to->ep) && iwarp_state_now(&d->to->ep) == IWARP_FULL, "end");
    }
    pair_fini(&p);
    return dirs[0].delivered + dirs[1].delivered;
}

Test(iwarp_property, whatever_the_pipe_does_messages_arrive_once_in_order_unchanged)
{
    const char *one = getenv("SW_SEED"), *longer = getenv("SW_SECONDS");
    time_t end = time(NULL) + (longer ? strtol(longer, NULL, 10) : 4);
    uint64_t events = 0;

    seed = one ? strtoull(one, NULL, 10) : 0;
    do {
        if (!one)
            seed++;
        events += run();
    } while (!one && (seed < 20 || time(NULL) < end));
    fprintf(stderr, "iwarp_property: seeds up to %llu, %llu events\n", (unsigned long long)seed,
            (unsigned long long)events);
    cr_expect_gt(events, 100u);
    free(dirs[0].posted);
    free(dirs[1].posted);
}
