/*
 * The byte stream over shared memory: what a program does not read is joined, also across the ring's end, within the
 * ring; and what the stream has no octets of is given back.
 */
#include <errno.h>

#include "tests/unit/shm_pair.h"

#define RING 65536u
#define HDR (8u + STREAM_HDR_LEN)

static struct shm_pair p;
static uint8_t data[RING], got[RING];

static void setup(uint32_t eager_limit)
{
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 13 + (i >> 8) * 5 + 1);
    shm_pair_init(&p, RING, 1u << 20);
    shm_pair_streams(&p, 1024, eager_limit);
}

static void teardown(void)
{
    shm_pair_fini(&p);
}

TestSuite(shm_stream, .fini = teardown);

static uint64_t written, taken; /* by the program at a, by that at b; octet i is data[i % RING] */

/* What the owner of a does: false: the ring is full. */
static bool write_a(size_t len)
{
    struct iovec v[] = { { data + written % RING, RING - written % RING }, { data, len } };
    struct iov_iter it = iov_iter_init(v, 2);
    ssize_t n = stream_write(&p.sa, &it, len);
    cr_assert(n == 0 || n == (ssize_t)len, "%zd", n);
    written += (uint64_t)n;
    do {
        shm_flush(&p.a);
        stream_flushed(&p.sa);
    } while (p.sa.tx.batch_n > 0);
    return n > 0;
}

static void read_b(void)
{
    struct iovec v = { got, sizeof(got) };
    struct iov_iter it = iov_iter_init(&v, 1);
    size_t n = stream_read(&p.sb, &it, sizeof(got));
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], data[(taken + i) % RING], "octet %llu", (unsigned long long)(taken + i));
    taken += n;
    shm_tell(&p.b);
}

static void poll_b(void)
{
    cr_assert_geq(stream_poll(&p.sb), 0);
    cr_assert_leq(p.sb.rx.n, STREAM_SLICES);
}

/* Writes of this length, all read, until the ring's next record begins at off or behind it. */
static void go_to(size_t len, uint32_t off)
{
    for (uint64_t end = p.a.tx.tail.at - p.a.tx.tail.off + off; p.a.tx.tail.at < end;) {
        cr_assert(write_a(len));
        poll_b();
        read_b();
    }
}

/* As much as the ring takes, polled and not read; then all is there, and read. */
static uint64_t unread(size_t len)
{
    for (unsigned n = 0; write_a(len); n++)
        if (n % 100 == 0)
            poll_b();
    poll_b();
    uint64_t avail = stream_avail(&p.sb);
    cr_assert_eq(avail, written - taken, "all of it is there, in %u slices", p.sb.rx.n);
    shm_pair_check(&p);
    read_b();
    cr_assert_eq(taken, written);
    cr_assert_eq(shm_unused(&p.a), 0u, "all is given back");
    return avail;
}

Test(shm_stream, many_small_messages_are_joined_while_nobody_reads)
{
    setup(512);
    cr_expect_gt(unread(1), 4u * STREAM_SLICES);
    cr_expect_gt(p.a.tx.n.sends, 4u * STREAM_SLICES);
}

/* Records of 32 octets end where the ring ends: there is no SKIP. */
Test(shm_stream, they_are_joined_on_both_sides_of_the_rings_end_and_not_across_it)
{
    setup(512);
    for (uint32_t off = 0; off < RING; off += RING / 8) {
        go_to(1, off);
        cr_assert_eq(p.a.tx.tail.off, off);
        cr_expect_gt(unread(1), 4u * STREAM_SLICES);
    }
}

/* Records of each length: some leave room for a SKIP, some end there. */
Test(shm_stream, nothing_outside_the_ring_is_written_whatever_the_messages_lengths_are)
{
    for (size_t len = 1; len <= 130; len++) {
        setup(512);
        go_to(len, RING / 2);
        cr_expect_gt(unread(len), STREAM_SLICES * len);
        if (len < 130)
            teardown();
    }
}

/* The first record behind the ring's end is a notify, which makes no slice: what follows joins nothing before it. */
Test(shm_stream, a_message_without_octets_at_the_rings_beginning_joins_nothing)
{
    bool seen = false;
    setup(8);
    for (unsigned round = 0; round < 64; round++) {
        /* From here on in steps of 64 octets: a Write with 17 to 24, and its notify. */
        for (unsigned i = 0; i < round % 8; i++)
            cr_assert(write_a(10)); /* 56 octets of the ring */
        poll_b();
        read_b();
        go_to(20, RING - 512);
        uint64_t lap = p.a.tx.tail.at / RING;
        while (p.a.tx.tail.at / RING == lap && write_a(20))
            ;
        seen |= p.a.tx.tail.off == 24; /* (the notify alone is there) */
        cr_expect_gt(unread(20), 2u * STREAM_SLICES);
    }
    cr_expect(seen, "no notify came to lie there");
}

Test(shm_stream, an_end_comes_behind_the_octets)
{
    setup(512);
    cr_assert(write_a(1000));
    cr_assert_eq(stream_fin(&p.sa), 0);
    cr_expect(!shm_end(&p.a, SHM_CLOSED));
    poll_b();
    cr_expect_eq(stream_avail(&p.sb), 1000u);
    cr_expect_eq(p.sb.rx.end, STREAM_EOF);
    read_b();
    cr_expect_eq(shm_peer_end(&p.b), SHM_CLOSED);
    cr_expect_eq(shm_unused(&p.a), 0u);
    struct iovec v = { data, 1 };
    struct iov_iter it = iov_iter_init(&v, 1);
    cr_expect_eq(stream_write(&p.sa, &it, 1), -EPIPE);
}

/* As of any endpoint: the stream takes the octets of a Write only where they follow each other. */
Test(shm_stream, a_write_at_another_place_of_the_window_breaks_the_stream)
{
    setup(512);
    cr_assert_eq(shm_write(&p.a, 1, data, 8), 0);
    shm_flush(&p.a);
    cr_expect_eq(stream_poll(&p.sb), -EPROTO);
    cr_expect_eq(p.sb.rx.end, STREAM_BROKEN);
}
