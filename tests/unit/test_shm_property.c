/*
 * Random writes, reads, urgent octets, flushes and naps between two streams over shared memory, both ways at once, held
 * against a model: what was accepted arrives, once, in order, unchanged; a half of a side that sleeps does nothing
 * until it is rung, and it is rung, once a nap, when there is something for it; in the end everything arrives and both
 * are silent.
 * A failure prints its seed (property.h).
 */
#include "tests/unit/property.h"
#include "tests/unit/shm_pair.h"

#include <errno.h>

#define URGENT_MAX 512u
#define BUF 70000u

/* One direction: what `from` sends with its send side is what `to` receives. */
struct dir {
    struct shm_ep *from, *to;
    struct stream *out, *in;
    uint64_t written, read;
    uint64_t urgent[URGENT_MAX]; /* places of urgent octets */
    uint32_t urgent_n;
    bool fin, fin_posted, ended;
    bool writer_sleeps, writer_rung, reader_sleeps, reader_rung;
};

static struct shm_pair p;
static struct dir dirs[2];
static uint8_t buf[BUF];
static uint64_t naps, joins; /* in all runs: the naps that came to be, and how often messages were joined */
static uint32_t eager_limit;
static uint32_t
    small; /* this run: many messages of this length and few of others, which are seldom read; 0: it is not so */

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
    if (small > 0)
        return rnd(16) ? small : 1 + rnd(64);
    switch (rnd(6)) {
    case 0:
        return 1 + rnd(3);
    case 1:
        return eager_limit - 1 + rnd(3) + (eager_limit == 1);
    case 2:
        return 1 + rnd(20000);
    case 3:
        return 1 + rnd(p.ring_len);
    default:
        return 1 + rnd(700);
    }
}

/* ---- naps ---- */

/* Something was put, or the end: the reader does not sleep, or it is rung. */
static void after_flush(struct dir *d, bool ring)
{
    HOLD(!ring || (d->reader_sleeps && !d->reader_rung), "a reader is rung that needs it not");
    d->reader_rung |= ring;
    HOLD(!d->reader_sleeps || d->reader_rung || (!shm_come(d->to) && !d->ended), "a reader sleeps for ever");
}

/* Room was told. */
static void after_tell(struct dir *d, bool ring)
{
    uint64_t in_use = d->from->tx.tail.at - atomic_load(&d->to->mine->head);
    HOLD(!ring || (d->writer_sleeps && !d->writer_rung), "a writer is rung that needs it not");
    d->writer_rung |= ring;
    HOLD(!d->writer_sleeps || d->writer_rung || in_use > p.ring_len / 2, "a writer sleeps for ever: %llu in use",
         (unsigned long long)in_use);
}

static void flush(struct dir *d)
{
    do {
        after_flush(d, shm_flush(d->from));
        stream_flushed(d->out);
    } while (d->out->tx.batch_n > 0);
}

static void tell(struct dir *d)
{
    after_tell(d, shm_tell(d->to));
}

/* A bell is answered at some time; a half that is not rung sleeps on. */
static void answer(struct dir *d)
{
    if (d->reader_rung) {
        shm_wake_rx(d->to);
        d->reader_rung = d->reader_sleeps = false;
    }
    if (d->writer_rung) {
        shm_wake_tx(d->from);
        d->writer_rung = d->writer_sleeps = false;
    }
}

/* One who waits for more octets makes do with what is there: the ring may have no room for more. */
static void make_do(struct dir *d)
{
    if (!d->reader_sleeps || stream_avail(d->in) == 0)
        return;
    shm_wake_rx(d->to);
    d->reader_sleeps = d->reader_rung = false;
}

static void reader_nap(struct dir *d)
{
    if (d->reader_sleeps)
        return;
    tell(d); /* what an owner does first */
    bool come = shm_come(d->to) || d->ended;
    d->reader_sleeps = shm_nap_rx(d->to);
    HOLD(d->reader_sleeps == !come, "come: %d", come);
    naps += d->reader_sleeps;
}

static void writer_nap(struct dir *d)
{
    if (d->writer_sleeps || d->ended)
        return;
    flush(d);
    d->writer_sleeps = shm_nap_tx(d->from);
    naps += d->writer_sleeps;
}

/* ---- writing ---- */

static void write_some(struct dir *d)
{
    struct iovec v[60];
    size_t len = random_len(), n = 0;
    uint32_t piece = rnd(4) ? 4000 : 30;
    if (d->writer_sleeps || d->fin)
        return;
    for (size_t i = 0; i < len; i++)
        buf[i] = octet(d, d->written + i);
    for (size_t left = len; left > 0;) {
        size_t l = 1 + rnd(piece);
        if (l > left || n + 1 == SW_ARRAY_LEN(v))
            l = left;
        v[n++] = (struct iovec){ buf + len - left, l };
        left -= l;
    }
    struct iov_iter it = iov_iter_init(v, n);
    ssize_t r = stream_write(d->out, &it, len);
    HOLD(r >= 0 && (size_t)r <= len, "write of %zu: %zd", len, r);
    HOLD(iov_iter_left(&it) == len - (size_t)r, "%zu left of %zu - %zd", iov_iter_left(&it), len, r);
    memset(buf, 0xdd, len); /* the program's again: the post has copied it */
    d->written += (uint64_t)r;
    if (r == 0 && d->out->tx.batch_n == 0)
        HOLD(!shm_has_room(d->from), "nothing goes though there is room");
}

/* Now and then a gathered one, of one message whatever its length is. */
static void write_send(struct dir *d)
{
    size_t most = stream_send_max(d->out), len = 1 + rnd((uint32_t)most);
    struct iovec v = { buf, len };
    struct iov_iter it = iov_iter_init(&v, 1);
    if (d->writer_sleeps || d->fin)
        return;
    for (size_t i = 0; i < len; i++)
        buf[i] = octet(d, d->written + i);
    int r = stream_write_send(d->out, &it, len);
    HOLD(r == 0 || r == -EAGAIN, "%d", r);
    d->written += r == 0 ? len : 0;
}

static void write_urgent(struct dir *d)
{
    uint8_t one = octet(d, d->written);
    struct iovec v = { &one, 1 };
    struct iov_iter it = iov_iter_init(&v, 1);
    if (d->writer_sleeps || d->fin || d->urgent_n == URGENT_MAX)
        return;
    ssize_t r = stream_write_urgent(d->out, &it);
    HOLD(r == 0 || r == 1, "%zd", r);
    if (r == 1)
        d->urgent[d->urgent_n++] = d->written++;
}

static void try_fin(struct dir *d)
{
    if (!d->fin || d->fin_posted || d->writer_sleeps)
        return;
    int r = stream_fin(d->out);
    HOLD(r == 0 || r == -EAGAIN, "%d", r);
    d->fin_posted = r == 0;
    if (d->fin_posted && rnd(2)) {
        d->ended = true;
        after_flush(d, shm_end(d->from, SHM_CLOSED));
    }
}

/* ---- reading ---- */

static bool is_urgent(const struct dir *d, uint64_t at)
{
    for (uint32_t i = 0; i < d->urgent_n; i++)
        if (d->urgent[i] == at)
            return true;
    return false;
}

/* The last urgent octet that has come is where the stream says, until it is passed. */
static void check_mark(const struct dir *d)
{
    uint64_t mark = UINT64_MAX;
    for (uint32_t i = 0; i < d->urgent_n; i++)
        if (d->urgent[i] >= d->read && d->urgent[i] < d->in->rx.off)
            mark = d->urgent[i];
    if (mark != UINT64_MAX)
        HOLD(d->in->rx.urgent_octet == octet(d, mark), "the urgent octet at %llu", (unsigned long long)mark);
    HOLD(stream_mark(d->in) == (mark == UINT64_MAX ? mark : mark - d->read), "the mark is %llu, not %llu",
         (unsigned long long)stream_mark(d->in), (unsigned long long)mark);
}

static void poll_some(struct dir *d)
{
    if (d->reader_sleeps)
        return;
    int r = stream_poll(d->in);
    HOLD(r >= 0, "%d", r);
    for (uint32_t i = 0; i < d->in->rx.n; i++)
        joins += d->in->rx.slice[(d->in->rx.first + i) % STREAM_SLICES].bufs > 1;
    /* An urgent octet that waits at the front is gone when another one comes. */
    for (; d->read < d->in->rx.total; d->read++)
        HOLD(is_urgent(d, d->read), "octet %llu is gone", (unsigned long long)d->read);
    HOLD(d->read + stream_avail(d->in) == d->in->rx.off && d->in->rx.off <= d->written, "%llu of %llu",
         (unsigned long long)d->in->rx.off, (unsigned long long)d->written);
    check_mark(d);
}

static void take(struct dir *d, size_t n)
{
    uint64_t avail = stream_avail(d->in), want;
    size_t skip = rnd(3) ? 0 : rnd(2000), got;
    struct iovec v = { buf, n };
    struct iov_iter it = iov_iter_init(&v, 1);
    if (d->reader_sleeps)
        return;
    switch (rnd(4)) {
    case 0:
        got = stream_peek(d->in, &it, n, skip);
        want = avail > skip ? avail - skip : 0;
        HOLD(got == (want < n ? want : n), "peek %zu", got);
        check(d, d->read + skip, got);
        return;
    case 1:
        got = stream_discard(d->in, n);
        break;
    default:
        got = stream_read(d->in, &it, n);
        check(d, d->read, got);
        break;
    }
    HOLD(got == (avail < n ? avail : n), "%zu of %llu", got, (unsigned long long)avail);
    d->read += got;
    check_mark(d);
}

/* ---- all ---- */

static void step(struct dir *d)
{
    switch (rnd(16)) {
    case 0:
    case 1:
    case 2:
        write_some(d);
        break;
    case 3:
        if (rnd(4) == 0)
            write_urgent(d);
        else
            write_send(d);
        break;
    case 4:
    case 5:
    case 6:
        if (!d->writer_sleeps)
            flush(d);
        break;
    case 7:
    case 8:
        poll_some(d);
        break;
    case 9:
    case 10:
        if (small == 0)
            take(d, random_len());
        else if (rnd(1000) == 0)
            take(d, 1 + rnd(p.ring_len));
        break;
    case 11:
        if (!d->reader_sleeps)
            tell(d);
        break;
    case 12:
        if (small == 0 || rnd(4) == 0)
            reader_nap(d);
        break;
    case 13:
        if (small == 0 || rnd(4) == 0)
            writer_nap(d);
        break;
    case 14:
        answer(d);
        if (rnd(8) == 0)
            make_do(d);
        break;
    case 15:
        d->fin |= rnd(small > 0 ? 10000 : 400) == 0;
        try_fin(d);
        break;
    }
}

static bool over(const struct dir *d)
{
    return d->fin_posted && d->read == d->written && d->in->rx.end == STREAM_EOF;
}

/* Both halves go to sleep each time there is nothing to do: only bells take it to its end. */
static void finish_dir(struct dir *d)
{
    answer(d);
    make_do(d);
    d->fin = true;
    if (!d->writer_sleeps) {
        try_fin(d);
        flush(d);
        if (!d->fin_posted)
            writer_nap(d);
    }
    if (d->reader_sleeps)
        return;
    poll_some(d);
    take(d, 20000);
    if (stream_avail(d->in) == 0 && d->in->rx.end == STREAM_OPEN)
        reader_nap(d);
    else
        tell(d);
}

static void finish(void)
{
    for (unsigned rounds = 0; !over(&dirs[0]) || !over(&dirs[1]); rounds++) {
        finish_dir(&dirs[0]);
        finish_dir(&dirs[1]);
        HOLD(rounds < 100000, "stuck: %llu/%llu %llu/%llu", (unsigned long long)dirs[0].read,
             (unsigned long long)dirs[0].written, (unsigned long long)dirs[1].read,
             (unsigned long long)dirs[1].written);
    }
    for (int i = 0; i < 2; i++) {
        struct dir *d = &dirs[i];
        answer(d);
        d->reader_sleeps = d->writer_sleeps = false;
        shm_wake_rx(d->to);
        shm_wake_tx(d->from);
        HOLD(stream_poll(d->in) == 0 && stream_poll(d->in) == 0, "something is left");
        tell(d);
        HOLD(shm_unused(d->from) == 0 && d->from->tx.n.octets == d->to->rx.n.octets, "%llu are not given back",
             (unsigned long long)shm_unused(d->from));
        HOLD(!shm_flush(d->from) && !shm_tell(d->to) && !shm_come(d->to), "not silent");
        HOLD(!d->out->tx.notify_owed, "a notify is owed");
        HOLD(shm_peer_end(d->to) == (d->ended ? SHM_CLOSED : SHM_OPEN), "%d", shm_peer_end(d->to));
    }
}

static uint64_t run(void)
{
    uint32_t ring_len = SHM_RING_MIN + 64 * rnd(rnd(2) ? 20 : (65536 - SHM_RING_MIN) / 64 + 1);
    small = rnd(3) ? 0 : 1 + rnd(40);
    if (small > 0)
        ring_len = 24576 + 64 * rnd(256);
    shm_pair_init(&p, ring_len, STREAM_RING_MIN + (rnd(2) ? rnd(5000) : rnd(1u << 20)));
    uint16_t eager_max = (uint16_t)(1 + rnd(rnd(3) ? 3000 : 65535));
    shm_pair_streams(&p, eager_max, 1 + rnd(rnd(3) ? 2000 : 20000));
    eager_limit = p.sa.cfg.eager_limit;
    for (int i = 0; i < 2; i++) {
        dirs[i] = (struct dir){
            .from = i ? &p.b : &p.a,
            .to = i ? &p.a : &p.b,
            .out = i ? &p.sb : &p.sa,
            .in = i ? &p.sa : &p.sb,
        };
        atomic_store(&dirs[i].in->rx.urgent_inline, rnd(2) == 0);
    }
    uint32_t steps = 200 + rnd(small > 0 ? 30000 : 3000), bias = rnd(5);
    for (uint32_t i = 0; i < steps; i++)
        step(&dirs[rnd(4) < bias]);
    finish();
    uint64_t octets = dirs[0].read + dirs[1].read;
    shm_pair_fini(&p);
    return octets;
}

/* The same rounds each time; SW_SEED and SW_SECONDS make other, longer runs. */
#define ROUNDS 1000

Test(shm_property, whatever_happens_in_between_what_was_accepted_arrives_and_nobody_sleeps_for_ever)
{
    struct property_runs r = property_begin();
    uint64_t octets = 0;

    do {
        property_next(&r);
        octets += run();
    } while (property_goes_on(&r, r.n >= ROUNDS));
    fprintf(stderr, "shm_property: %llu runs from seed %llu, %llu octets, %llu naps, %llu joined slices\n",
            (unsigned long long)r.n, (unsigned long long)r.first, (unsigned long long)octets, (unsigned long long)naps,
            (unsigned long long)joins);
    cr_assert(r.one || (naps > 1000 && joins > 1000), "hardly anybody has slept, or little was joined");
}
