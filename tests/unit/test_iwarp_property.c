/*
 * Millions of random operations, cuts, delays, detaches and failures between two endpoints, held against
 * a model: what was accepted arrives, once, in order, unchanged, whatever the pipe does; and when one
 * side breaks the protocol, its program gives up, or the pipe breaks, what came before has arrived,
 * nothing behind it does, one Terminate says why, and both sides end. Each run prints its seed on
 * failure (property.h).
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "core/iwarp/iwarp_ops.h"
#include "tests/unit/iwarp_pair.h"
#include "tests/unit/property.h"

#define RING_LEN (1u << 20)
#define MEM_LEN 16384u
#define WAITING_MAX 4096u
#define KEPT_MAX 128u

#define STEPS_MIN 4000000u

enum kind { SEND, RING_WRITE, MEM_WRITE, READ, EMPTY_WRITE, IMMEDIATE, KINDS, FAULT = KINDS };
/* What becomes of a run. */
enum fate { GOES_WELL, BREAKS_PROTOCOL, GIVES_UP, PIPE_BREAKS, FATES };

struct op {
    enum kind kind;
    uint32_t len, off;     /* off: ring offset; place in mem */
    uint32_t stamp;        /* its octets follow from it */
    unsigned flags;        /* SEND: IWARP_*; IMMEDIATE: solicited */
    uint32_t stag;         /* SEND: to invalidate; FAULT: of the peer */
    uint64_t to;           /* FAULT */
    bool read;             /* FAULT: a Read, else a Write */
    struct term_code code; /* FAULT: what the peer must find */
};

struct dir {
    struct side *from, *to;
    struct mem_pipe *pipe;
    uint32_t mem_stag, ring_stag, src_stag, dst_stag;
    uint8_t mem[MEM_LEN], model[MEM_LEN]; /* at `to`: where MEM_WRITEs go, and what must be there */
    uint8_t src[MEM_LEN];                 /* at `to`: what READs read; never changes */
    uint8_t dst[MEM_LEN], want[MEM_LEN];  /* at `from`: where READs put it, and what must be there */
    struct op batch[KEPT_MAX];            /* posted since the batch was empty */
    unsigned batch_n;
    uint8_t *posted; /* memory lent to the endpoint until sent or detached */
    size_t posted_used;
    struct op waiting[WAITING_MAX]; /* accepted, not yet arrived; without READs and EMPTY_WRITEs */
    uint32_t first, last;
    uint32_t got; /* octets of waiting[first] that came (ring writes) */
    uint64_t ring_at, reads, next_stamp;
    uint32_t inv_stag; /* of `to`: a Send that invalidates it is under way */
    bool terminated;   /* `to` has been told of a Terminate */
    uint8_t *held_upto;
    uint64_t delivered;
};

#define POSTED_CAP (4u << 20)

static struct pair p;
static struct dir dirs[2];
static bool fault_made;          /* one a run */
static const struct dir *failed; /* the receiver of this one has found a fault, or given up */

static uint8_t octet(uint32_t stamp, uint32_t i)
{
    return (uint8_t)(stamp * 2654435761u >> 24 ^ i * 7 ^ i >> 8);
}

static uint32_t random_len(size_t max)
{
    switch (rnd(16)) {
    case 0:
        return rnd((uint32_t)max + 1);
    case 1:
    case 2:
    case 3:
        return rnd(max < 600 ? (uint32_t)max + 1 : 600);
    default:
        return rnd(40);
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

    if (op->kind == FAULT && op->read)
        return iwarp_post_read(&d->from->ep, &(struct rdmap_read){
                                                 .sink_stag = d->dst_stag,
                                                 .len = op->len,
                                                 .src_stag = op->stag,
                                                 .src_to = op->to,
                                             });
    if (op->kind == IMMEDIATE)
        return iwarp_post_immediate(e, (uint64_t)op->stamp << 32 | ~op->stamp, op->flags != 0);
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
    if (op->kind == FAULT)
        err = iwarp_post_write(e, op->stag, op->to, &it, op->len);
    else if (op->kind == SEND)
        err = iwarp_post_send_with(&d->from->ep, op->flags, op->stag, hdr, 8, &it, op->len);
    else
        err = iwarp_post_write(e, op->kind == RING_WRITE ? d->ring_stag : d->mem_stag, op->off, &it, op->len);
    if (err)
        d->posted_used = used;
    return err;
}

/* Something the peer must not accept, and how it must say so: RFC 5041 section 7.2, RFC 5040 Figure 9. */
static void make_fault(struct dir *d, struct op *op)
{
    static const struct {
        bool read;
        int region; /* 0: none; 1: mem (write), 2: src (read) */
        uint64_t to;
        uint8_t write_code, read_code;
    } rows[] = {
        { false, 0, 0, DDP_TAGGED_INVALID_STAG, 0 },
        { false, 1, MEM_LEN, DDP_TAGGED_BOUNDS, 0 },
        { false, 1, MEM_LEN - 9, DDP_TAGGED_BOUNDS, 0 },
        { false, 1, UINT64_MAX - 4, DDP_TAGGED_TO_WRAP, 0 },
        { false, 2, 0, DDP_TAGGED_INVALID_STAG, 0 },
        { true, 0, 0, 0, TERM_RDMAP_INVALID_STAG },
        { true, 2, MEM_LEN - 9, 0, TERM_RDMAP_BOUNDS },
        { true, 2, UINT64_MAX - 4, 0, TERM_RDMAP_TO_WRAP },
        { true, 1, 0, 0, TERM_RDMAP_ACCESS },
    };
    uint32_t i = rnd(SW_ARRAY_LEN(rows));

    op->kind = FAULT;
    op->len = 10;
    op->read = rows[i].read;
    op->to = rows[i].to;
    op->stag = rows[i].region == 0 ? 0xdead0000 : rows[i].region == 1 ? d->mem_stag : d->src_stag;
    op->code = rows[i].read ? (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, rows[i].read_code }
                            : (struct term_code){ TERM_LAYER_DDP, TERM_DDP_TAGGED, rows[i].write_code };
}

/* An STag that the Send is to invalidate, or 0. */
static uint32_t make_inv(struct dir *d)
{
    static uint8_t nothing[16];

    if (d->inv_stag != 0 || rnd(4))
        return 0;
    return d->inv_stag = side_region(d->to, nothing, 0, sizeof(nothing), DDP_ACCESS_REMOTE_WRITE);
}

/* Makes up an op. False if it has no place now. */
static bool make_op(struct dir *d, struct op *op)
{
    const struct endpoint *e = &d->from->ep.base;

    *op = (struct op){ .kind = (enum kind)rnd(KINDS), .stamp = (uint32_t)d->next_stamp++ };
    switch (op->kind) {
    case SEND:
        op->len = random_len(iwarp_send_max(e) - 8);
        op->flags = (rnd(4) ? 0 : IWARP_SOLICITED) | (rnd(8) ? 0 : IWARP_FENCE);
        op->stag = make_inv(d);
        op->flags |= op->stag ? IWARP_INVALIDATE : 0;
        break;
    case IMMEDIATE:
        op->flags = rnd(2);
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
    default:
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

static bool over(const struct side *s)
{
    return iwarp_state_now(&s->ep) >= IWARP_TERMINATING;
}

static void try_post(struct dir *d, bool fault)
{
    uint64_t ring_at = d->ring_at, reads = iwarp_reads_under_way(&d->from->ep);
    uint32_t inv = d->inv_stag;
    struct op op;
    int err = -EAGAIN;

    if (make_op(d, &op)) {
        if (fault)
            make_fault(d, &op);
        err = post(d, &op);
        HOLD(err == 0 || (over(d->from) ? err == -EPIPE : err == -EAGAIN), "post: %d", err);
    }
    if (err || fault) {
        d->ring_at = ring_at;
        if (inv == 0 && d->inv_stag != 0) {
            (void)ddp_stags_revoke(&d->to->ep.stags, d->inv_stag);
            d->inv_stag = 0;
        }
    }
    if (err)
        return;
    HOLD(!(op.flags & IWARP_FENCE) || op.kind != SEND || reads == 0, "a fence with %llu Reads",
         (unsigned long long)reads);
    fault_made |= fault;
    accepted(d, &op);
}

static void flushed(struct dir *d)
{
    /* The memory goes back to its owner, which may overwrite it. */
    memset(d->posted, 0xdd, d->posted_used);
    d->posted_used = 0;
    d->batch_n = 0;
}

static void push(struct dir *d)
{
    const struct iovec *iov;
    size_t n, len;

    while ((n = d->from->ep.cfg.aligned && rnd(2) ? iwarp_out_segment(&d->from->ep, 128 + rnd(4000), &iov, &len)
                                                  : iwarp_out(&d->from->ep, &iov, &len)) > 0) {
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
        int err;

        while ((err = post(d, &again[i])) == -EAGAIN) {
            const struct iovec *iov;
            size_t len, iovs = iwarp_out(&d->from->ep, &iov, &len), taken = mem_pipe_write(d->pipe, iov, iovs);

            iwarp_out_sent(&d->from->ep, taken);
            if (taken == 0 || (again[i].flags & IWARP_FENCE))
                return; /* the rest is never posted: its owner thought better of it */
        }
        HOLD(err == 0 || (err == -EPIPE && over(d->from)), "posted again: %d", err);
        if (err)
            return;
        accepted(d, &again[i]);
    }
}

/* MEM_WRITEs make no event: those in front were placed. */
static void placed(struct dir *d)
{
    while (d->first != d->last && d->waiting[d->first % WAITING_MAX].kind == MEM_WRITE) {
        const struct op *op = &d->waiting[d->first++ % WAITING_MAX];

        for (uint32_t i = 0; i < op->len; i++)
            d->model[op->off + i] = octet(op->stamp, i);
    }
}

static void arrived(struct dir *d, const struct endpoint_event *ev)
{
    placed(d);
    HOLD(d->first != d->last, "event %d that nobody sent", ev->type);
    const struct op *op = &d->waiting[d->first % WAITING_MAX];

    if (ev->type == ENDPOINT_SEND) {
        HOLD(op->kind == SEND && ev->len == op->len + 8u, "Send of %zu, want %u", ev->len, op->len);
        HOLD(ev->data[0] == (uint8_t)op->stamp && ev->data[1] == (uint8_t)(op->stamp >> 8), "stamp %u", op->stamp);
        for (uint32_t i = 0; i < op->len; i++)
            HOLD(ev->data[8 + i] == octet(op->stamp, i), "octet %u", i);
        HOLD(ev->solicited == ((op->flags & IWARP_SOLICITED) != 0), "flags %u", op->flags);
        HOLD(ev->invalidated == op->stag, "%x", ev->invalidated);
        if (op->stag) {
            HOLD(!ddp_stags_find(&d->to->ep.stags, op->stag), "%x is still valid", op->stag);
            d->inv_stag = 0;
        }
        d->first++;
    } else if (ev->type == ENDPOINT_IMMEDIATE) {
        uint32_t hi =
            (uint32_t)ev->data[0] << 24 | (uint32_t)ev->data[1] << 16 | (uint32_t)ev->data[2] << 8 | ev->data[3];

        HOLD(op->kind == IMMEDIATE && ev->len == 8 && hi == op->stamp, "%x, want %x", hi, op->stamp);
        HOLD(ev->data[4] == (uint8_t)(~op->stamp >> 24) && ev->data[7] == (uint8_t)~op->stamp, "%x", hi);
        HOLD(ev->solicited == (op->flags != 0), "flags %u", op->flags);
        d->first++;
    } else {
        HOLD(ev->type == ENDPOINT_WRITE && op->kind == RING_WRITE, "event %d", ev->type);
        HOLD(ev->to == op->off + d->got && ev->len > 0 && ev->len <= op->len - d->got, "at %u", d->got);
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

static bool same_code(struct term_code a, struct term_code b)
{
    return a.layer == b.layer && a.etype == b.etype && a.code == b.code;
}

/* `to` has found its peer at fault: the one in front, after all that was before it. */
static void found_fault(struct dir *d)
{
    struct term_code code = iwarp_error(&d->to->ep);

    placed(d);
    HOLD(d->first != d->last && !failed, "%s", term_code_text(code));
    const struct op *op = &d->waiting[d->first % WAITING_MAX];

    HOLD(op->kind == FAULT && same_code(code, op->code), "%u/%u/%u, want %u/%u/%u", code.layer, code.etype, code.code,
         op->code.layer, op->code.etype, op->code.code);
    HOLD(iwarp_ctrl_pending(&d->to->ep), "nothing to say");
    failed = d;
}

/* A Terminate came to `to`: its peer found the fault, and says the same. */
static void told_of_end(struct dir *d)
{
    placed(d);
    HOLD(failed && failed != d && !d->terminated, "a Terminate for nothing");
    HOLD(same_code(iwarp_error(&d->to->ep), iwarp_error(&failed->to->ep)), "another code");
    HOLD(d->first == d->last, "%u messages before it are missing", d->last - d->first);
    d->terminated = true;
}

static void pull(struct dir *d, bool keep)
{
    struct endpoint_event ev;
    int r;

    if (over(d->to)) {
        HOLD(iwarp_poll(&d->to->ep.base, &ev) == -EPROTO, "an event behind the end");
        return;
    }
    if (rnd(4) || !keep)
        (void)side_pull(d->to, d->pipe);
    while ((r = iwarp_poll(&d->to->ep.base, &ev)) == 1) {
        if (ev.type == ENDPOINT_TERMINATED) {
            told_of_end(d);
            return;
        }
        arrived(d, &ev);
        d->held_upto = (uint8_t *)(uintptr_t)(ev.data + ev.len);
        if (keep && rnd(3) == 0)
            continue; /* hold on to it, and to what follows, for a while */
        iwarp_release(&d->to->ep.base, d->held_upto);
        d->held_upto = NULL;
    }
    if (r < 0) {
        found_fault(d);
        return;
    }
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

static void give_up(struct dir *d)
{
    if (iwarp_state_now(&d->to->ep) != IWARP_FULL)
        return; /* a responder that has heard nothing could not say so */
    iwarp_fail(&d->to->ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_STREAM });
    failed = d;
    fault_made = true;
}

/* Written memory, where it is not known which of the last Writes have been placed. */
static void check_mem_candidates(struct dir *d)
{
    static bool good[MEM_LEN];

    for (uint32_t k = 0; k < MEM_LEN; k++)
        good[k] = d->mem[k] == d->model[k];
    for (uint32_t n = d->first; n != d->last; n++) {
        const struct op *op = &d->waiting[n % WAITING_MAX];

        for (uint32_t k = 0; op->kind == MEM_WRITE && k < op->len; k++)
            good[op->off + k] |= d->mem[op->off + k] == octet(op->stamp, k);
    }
    for (uint32_t k = 0; k < MEM_LEN; k++)
        HOLD(good[k], "written octet %u", k);
}

/* All that can arrive has arrived: is it what had to? */
static void check_end(struct dir *d, enum fate fate)
{
    struct dir *back = d == &dirs[0] ? &dirs[1] : &dirs[0];
    bool lost = fate == PIPE_BREAKS || (fate == GIVES_UP && failed == d);

    for (uint32_t k = 0; k < MEM_LEN; k++)
        HOLD(d->dst[k] == 0 || d->dst[k] == d->src[k], "read octet %u", k);
    if (lost) {
        check_mem_candidates(d);
        return;
    }
    placed(d);
    HOLD(memcmp(d->mem, d->model, MEM_LEN) == 0, "written memory");
    if (failed) {
        /* One Terminate, told once; what was sent behind the fault is nowhere. */
        HOLD(failed == d ? !d->terminated && back->terminated : d->terminated, "the end is not told");
        HOLD(iwarp_state_now(&d->to->ep) == (failed == d ? IWARP_TERMINATING : IWARP_TERMINATED), "state %d",
             iwarp_state_now(&d->to->ep));
        HOLD(d->to->ep.stats.errors == 1, "%llu errors", (unsigned long long)d->to->ep.stats.errors);
        return;
    }
    HOLD(d->first == d->last, "kind %d of %u octets never arrived", d->waiting[d->first % WAITING_MAX].kind,
         d->waiting[d->first % WAITING_MAX].len);
    HOLD(iwarp_reads_done(&d->from->ep) == d->reads, "%llu reads of %llu",
         (unsigned long long)iwarp_reads_done(&d->from->ep), (unsigned long long)d->reads);
    HOLD(d->from->ep.stats.tx_fpdus == d->to->ep.stats.rx_fpdus, "FPDUs");
    HOLD(iwarp_in_end(&d->to->ep) && iwarp_state_now(&d->to->ep) == IWARP_FULL, "end");
}

static uint64_t steps;

static uint64_t run(void)
{
    static const uint8_t kinds[] = { 0, MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };
    static const size_t cuts[] = { 0, 1, 3, 50, 700, 20000 };
    uint8_t rtr;
    struct iwarp_cfg c;
    enum fate fate;
    uint32_t when;

    fault_made = false;
    failed = NULL;
    rtr = kinds[rnd(4)];
    cr_assert_eq(pair_init(&p, rtr, 200 + rnd(60000)), 0);
    c = side_cfg(&p.a, true, rtr);
    c.mulpdu = MPA_MULPDU_MIN + rnd(rnd(2) ? 200 : MPA_MULPDU_MAX - MPA_MULPDU_MIN);
    c.ord = (uint16_t)(1 + rnd(IWARP_ORD_MAX));
    c.tx.crc = c.rx.crc = rnd(4) != 0;
    c.immediate = true;
    bool crc = c.tx.crc;
    bool ab_markers = rnd(3) == 0, ba_markers = rnd(3) == 0;
    cfg_markers(&c, ba_markers, ab_markers);
    c.aligned = rnd(2);
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    c = side_cfg(&p.b, false, rtr);
    cfg_markers(&c, ab_markers, ba_markers);
    c.aligned = rnd(2);
    c.mulpdu = MPA_MULPDU_MIN + rnd(3000);
    c.tx.crc = c.rx.crc = crc;
    c.immediate = true;
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
    if (rtr == 0) { /* nothing has been framed yet: some run past 2^32 octets */
        p.a.ep.tx.pos = p.b.ep.rx.pos = 0x100000000ull - 512 * rnd(64);
        p.b.ep.tx.pos = p.a.ep.rx.pos = 0x100000000ull - 512 * rnd(64);
    }
    mem_pipe_cut(&p.ab, cuts[rnd(6)], prng32, &rng);
    mem_pipe_cut(&p.ba, cuts[rnd(6)], prng32, &rng);
    dir_init(&dirs[0], &p.a, &p.b, &p.ab);
    dir_init(&dirs[1], &p.b, &p.a, &p.ba);

    fate = rnd(2) ? GOES_WELL : (enum fate)rnd(FATES);
    when = rnd(4000);
    p.ab.delayed = p.ba.delayed = rnd(3) == 0;
    for (uint32_t step = 0; step < 4000; step++, steps++) {
        struct dir *d = &dirs[rnd(2)];

        if (fate == PIPE_BREAKS && step == when) {
            mem_pipe_end_after(&p.ab, rnd(3000));
            mem_pipe_end_after(&p.ba, rnd(3000));
        }
        if (fate == GIVES_UP && step >= when && !fault_made)
            give_up(d);
        if (fate == BREAKS_PROTOCOL && step >= when && !fault_made)
            try_post(d, true);
        if (d->pipe->delayed && rnd(3) == 0)
            mem_pipe_deliver(d->pipe, rnd(4) ? rnd(500) : SIZE_MAX);
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
            try_post(d, false);
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
    for (int i = 0; i < 2; i++) {
        dirs[i].pipe->delayed = false;
        mem_pipe_deliver(dirs[i].pipe, SIZE_MAX);
        dirs[i].pipe->cut_max = 0;
    }
    for (int idle = 0; idle < 50; idle++) {
        for (int i = 0; i < 2; i++) {
            uint64_t fpdus = dirs[i].to->ep.stats.rx_fpdus;
            size_t staged = dirs[i].to->ep.rx.tail - dirs[i].to->ep.rx.head;

            push(&dirs[i]);
            pull(&dirs[i], false);
            /* (Nobody reads on behind the end.) */
            if (dirs[i].to->ep.stats.rx_fpdus != fpdus || dirs[i].to->ep.rx.tail - dirs[i].to->ep.rx.head != staged ||
                (dirs[i].pipe->used > 0 && !over(dirs[i].to)))
                idle = 0;
        }
    }
    for (int i = 0; i < 2; i++)
        check_end(&dirs[i], fate);
    pair_fini(&p);
    return dirs[0].delivered + dirs[1].delivered;
}

/* RFC 5041 3 item 11 and RFC 5041 5.3/1,4,5: delivered at most once, in the order sent */
/* RFC 5041 5.4/1: delivered if and only if whole, and all before it were */
/* RFC 5040 3.1/1 and RFC 5040 6.1/1: nothing but RDMA messages in DDP segments */
/* RFC 5040 5.5 rules 10 and 13: Sends behind Writes */
/* RFC 5041 7.1/5: after an error "silently drop any subsequent incoming DDP Segments" */
Test(iwarp_property, whatever_happens_messages_arrive_once_in_order_unchanged_up_to_the_end)
{
    struct property_runs r = property_begin();
    uint64_t events = 0, ended = 0;

    do {
        property_next(&r);
        events += run();
        ended += failed != NULL;
    } while (property_goes_on(&r, steps >= STEPS_MIN));
    fprintf(stderr, "iwarp_property: %llu runs from seed %llu, %llu steps, %llu events, %llu ended by a Terminate\n",
            (unsigned long long)r.n, (unsigned long long)r.first, (unsigned long long)steps, (unsigned long long)events,
            (unsigned long long)ended);
    cr_expect_gt(events, r.one ? 0u : 100000u);
    cr_expect(r.one || ended > r.n / 10, "%llu of %llu", (unsigned long long)ended, (unsigned long long)r.n);
    free(dirs[0].posted);
    free(dirs[1].posted);
}
