/*
 * Random writes, reads, peeks, cuts and detaches between two streams, both ways at once, held
 * against a model: what was accepted arrives, once, in order, unchanged; with credits neither side uses
 * more than the other side has; and in the end everything arrives and both fall silent. A failure
 * prints its seed (property.h).
 */
#include "tests/unit/property.h"
#include "tests/unit/stream_pair.h"

#include "core/stream/rest.h"

#define LENT_MAX 65536u

struct dir {
    struct stream_end *from, *to;
    struct mem_pipe *pipe;
    uint8_t *lent; /* the program's memory, the endpoint's until sent or detached */
    size_t lent_used;
    uint64_t written; /* accepted */
    uint64_t read;
    bool fin; /* the program wants no more */
    bool fin_posted;
};

static struct stream_pair p;
static struct stream_pair_cfg cfg;
static struct dir dirs[2];
static uint8_t buf[LENT_MAX];

/* The octet at a place of a direction's stream. */
static uint8_t octet(const struct dir *d, uint64_t at)
{
    return property_octet(d == &dirs[1], at);
}

static void check(const struct dir *d, uint64_t at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        HOLD(buf[i] == octet(d, at + i), "octet %llu", (unsigned long long)(at + i));
}

static size_t random_len(void)
{
    switch (rnd(5)) {
    case 0:
        return 1 + rnd(3);
    case 1:
        return cfg.eager_limit - 1 + rnd(3);
    case 2:
        return 1 + rnd(20000);
    default:
        return 1 + rnd(700);
    }
}

/* With credits: no more in flight than the other side has, at any time. */
static void check_credit(const struct dir *d)
{
    const struct stream *f = &d->from->st, *t = &d->to->st;
    uint32_t bufs = f->tx.sends - t->rx.bufs_back, credits = f->sent_credits - t->back_credits;
    uint64_t ring = f->tx.ring_to - t->rx.ring_used;

    if (cfg.llp)
        return;
    HOLD(bufs <= cfg.bufs - STREAM_BUFS_KEPT, "%u buffers of %u", bufs, cfg.bufs);
    HOLD(ring <= cfg.ring_len, "%llu of the ring", (unsigned long long)ring);
    HOLD(credits <= 1, "%u CREDITs unanswered", credits);
}

static void flushed(struct dir *d)
{
    const struct iovec *iov;
    size_t len;

    if (iwarp_out(&d->from->side.ep, &iov, &len) > 0)
        return;
    memset(d->lent, 0xdd, d->lent_used); /* the program's again, which may overwrite it */
    d->lent_used = 0;
    stream_flushed(&d->from->st);
}

static void write_some(struct dir *d)
{
    struct iovec v[200]; /* more than a message may have without being copied */
    size_t len = random_len(), n = 0, left;
    uint32_t piece = rnd(4) ? 4000 : rnd(2) ? 30 : 300;
    uint8_t *at;

    flushed(d);
    if (d->fin || len > LENT_MAX - d->lent_used || !iwarp_can_send(&d->from->side.ep))
        return;
    at = d->lent + d->lent_used;
    for (size_t i = 0; i < len; i++)
        at[i] = octet(d, d->written + i);
    for (left = len; left > 0;) {
        size_t l = 1 + rnd(piece);

        if (l > left || n + 1 == SW_ARRAY_LEN(v))
            l = left;
        v[n++] = (struct iovec){ at + len - left, l };
        left -= l;
    }
    struct iov_iter it = iov_iter_init(v, n);
    ssize_t r = stream_write(&d->from->st, &it, len);

    HOLD(r >= 0 && (size_t)r <= len, "write of %zu: %zd", len, r);
    HOLD(iov_iter_left(&it) == len - (size_t)r, "%zu left of %zu - %zd", iov_iter_left(&it), len, r);
    d->written += (uint64_t)r;
    d->lent_used += len;
    check_credit(d);
}

static void push(struct dir *d)
{
    const struct iovec *iov;
    size_t n, len;

    while ((n = iwarp_out(&d->from->side.ep, &iov, &len)) > 0) {
        size_t taken = mem_pipe_write(d->pipe, iov, n);

        if (taken == 0)
            return;
        iwarp_out_sent(&d->from->side.ep, taken);
        if (rnd(3) == 0)
            return;
    }
    flushed(d);
}

/* The pipe is said to be full: the program gets back what was not begun. */
static void detach(struct dir *d)
{
    unsigned n = iwarp_out_detach(&d->from->side.ep).frames;
    size_t back = stream_unpost(&d->from->st, n);

    HOLD(back <= d->written, "%zu back", back);
    d->written -= back;
    if (!d->from->st.tx.fin)
        d->fin_posted = false;
    HOLD(d->from->st.tx.total == d->written, "%llu", (unsigned long long)d->from->st.tx.total);
    memset(d->lent, 0xdd, d->lent_used);
    d->lent_used = 0;
    check_credit(d);
}

/* Another process goes on with it, which has neither what is staged nor what is queued. */
static void hand_on(struct dir *d)
{
    static uint8_t kept[1u << 20];
    struct iwarp_ep *to = &d->to->side.ep, *from = &d->from->side.ep;
    struct rest_rx rx;
    struct rest_tx tx;
    size_t len;

    if (!cfg.llp)
        return;
    HOLD(rest_rx_save(&d->to->st, to, &rx, kept, sizeof(kept), &len), "rx");
    memset(to->cfg.in_buf, 0xdd, to->cfg.in_cap);
    HOLD(rest_rx_load(&d->to->st, to, &rx, kept, len), "rx, %zu octets", len);
    detach(d);
    if (d->from->st.tx.fin)
        return;
    HOLD(rest_tx_save(&d->from->st, from, &tx, kept, sizeof(kept), &len), "tx");
    memset(from->cfg.out_buf, 0xdd, from->cfg.out_cap);
    memset(from->tx.scratch, 0xdd, sizeof(from->tx.scratch));
    HOLD(rest_tx_load(&d->from->st, from, &tx, kept, len), "tx, %zu octets", len);
}

static void take(struct dir *d, size_t n)
{
    uint64_t avail = stream_avail(&d->to->st), want;
    size_t skip = rnd(3) ? 0 : rnd(2000), got;

    switch (rnd(4)) {
    case 0:
        got = stream_end_peek(d->to, buf, n, skip);
        want = avail > skip ? avail - skip : 0;
        HOLD(got == (want < n ? want : n), "peek %zu", got);
        check(d, d->read + skip, got);
        return;
    case 1:
        got = stream_discard(&d->to->st, n);
        break;
    default:
        got = stream_end_read(d->to, buf, n);
        check(d, d->read, got);
        break;
    }
    HOLD(got == (avail < n ? avail : n), "%zu of %llu", got, (unsigned long long)avail);
    d->read += got;
    HOLD(d->to->st.rx.total == d->read, "%llu", (unsigned long long)d->to->st.rx.total);
}

/* What an owner does for d->to; its own sends are the other direction's. */
static void pull(struct dir *d)
{
    /* Whoever has no room, or looks and does not read, may have what waits moved together. */
    if (rnd(8) == 0)
        (void)stream_pack(&d->to->st);
    (void)side_pull(&d->to->side, d->pipe);
    int r = stream_poll(&d->to->st);

    HOLD(r >= 0, "%s", term_code_text(iwarp_error(&d->to->side.ep)));
    HOLD(d->read + stream_avail(&d->to->st) <= d->written, "%llu of %llu",
         (unsigned long long)(d->read + stream_avail(&d->to->st)), (unsigned long long)d->written);
    if (stream_wants_credit(&d->to->st)) {
        r = stream_credit(&d->to->st);
        HOLD(r == 0 || r == -EAGAIN, "%d", r);
        check_credit(d == &dirs[0] ? &dirs[1] : &dirs[0]);
    }
}

static void try_fin(struct dir *d)
{
    int r;

    if (!d->fin || d->fin_posted || !iwarp_can_send(&d->from->side.ep))
        return;
    flushed(d);
    r = stream_fin(&d->from->st);
    HOLD(r == 0 || r == -EAGAIN, "%d", r);
    d->fin_posted = r == 0;
    check_credit(d);
}

static void step(struct dir *d)
{
    switch (rnd(12)) {
    case 0:
    case 1:
    case 2:
        write_some(d);
        break;
    case 3:
    case 4:
    case 5:
        push(d);
        break;
    case 6:
    case 7:
        pull(d);
        break;
    case 8:
    case 9:
        take(d, random_len());
        break;
    case 10:
        if (rnd(4) == 0)
            detach(d);
        else if (rnd(4) == 0)
            hand_on(d);
        break;
    case 11:
        if (rnd(400) == 0)
            d->fin = true;
        try_fin(d);
        break;
    }
}

static bool over(const struct dir *d)
{
    return d->fin_posted && d->read == d->written && d->to->st.rx.end == STREAM_EOF;
}

static void finish(void)
{
    unsigned rounds = 0;

    while (!over(&dirs[0]) || !over(&dirs[1])) {
        for (int i = 0; i < 2; i++) {
            dirs[i].fin = true;
            try_fin(&dirs[i]);
            push(&dirs[i]);
            pull(&dirs[i]);
            take(&dirs[i], 5000);
        }
        HOLD(++rounds < 2000000, "stuck: %llu/%llu %llu/%llu", (unsigned long long)dirs[0].read,
             (unsigned long long)dirs[0].written, (unsigned long long)dirs[1].read,
             (unsigned long long)dirs[1].written);
    }
    stream_pair_settle(&p); /* fails if they never stop */
    HOLD(iwarp_in_eof(&p.a.side.ep) && iwarp_in_eof(&p.b.side.ep), "something is left");
    HOLD(!p.a.st.tx.notify_owed && !p.b.st.tx.notify_owed, "a notify is owed");
}

static uint64_t run(void)
{
    static const size_t cuts[] = { 0, 1, 3, 50, 700, 20000 };
    static const size_t mulpdus[] = { 128, 1024, 1460, 9000, 64768 };
    uint8_t *lent[2] = { dirs[0].lent, dirs[1].lent };
    size_t cut = cuts[rnd(6)];
    uint64_t octets;

    cfg = (struct stream_pair_cfg){
        .llp = rnd(3) == 0,
        .ring_len = STREAM_RING_MIN + (rnd(2) ? 0 : rnd(5000)),
        .eager_max = (uint16_t)(1 + rnd(rnd(3) ? 3000 : 65535)),
        .bufs = (uint16_t)(STREAM_BUFS_KEPT + 1 + rnd(rnd(2) ? 3 : 60)),
        .eager_limit = 1 + rnd(rnd(3) ? 2000 : 20000),
        .mulpdu = mulpdus[rnd(5)],
        .pipe_cap = 100 + rnd(rnd(2) ? 1000 : 100000),
        .immediate = rnd(2) == 0,
        .no_crc = rnd(2) == 0,
    };
    stream_pair_init(&p, &cfg);
    if (cut) {
        mem_pipe_cut(&p.ab, cut, prng32, &rng);
        mem_pipe_cut(&p.ba, cut, prng32, &rng);
    }
    for (int i = 0; i < 2; i++) {
        dirs[i] = (struct dir){
            .from = i ? &p.b : &p.a,
            .to = i ? &p.a : &p.b,
            .pipe = i ? &p.ba : &p.ab,
            .lent = lent[i] ? lent[i] : malloc(LENT_MAX),
        };
    }
    cfg.eager_limit = p.a.st.cfg.eager_limit;
    uint32_t steps = 200 + rnd(3000), bias = rnd(5);
    for (uint32_t i = 0; i < steps; i++)
        step(&dirs[rnd(4) < bias]);
    finish();
    octets = dirs[0].read + dirs[1].read;
    stream_pair_fini(&p);
    return octets;
}

/* The same rounds each time; SW_SEED and SW_SECONDS make other, longer runs. */
#define ROUNDS 1000

Test(stream_property, whatever_happens_in_between_what_was_accepted_arrives)
{
    struct property_runs r = property_begin();
    uint64_t octets = 0;

    do {
        property_next(&r);
        octets += run();
    } while (property_goes_on(&r, r.n >= ROUNDS));
    fprintf(stderr, "stream_property: %llu runs from seed %llu, %llu octets\n", (unsigned long long)r.n,
            (unsigned long long)r.first, (unsigned long long)octets);
    for (int i = 0; i < 2; i++)
        free(dirs[i].lent);
}
