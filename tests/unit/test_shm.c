/*
 * An endpoint in shared memory between two sides that keep the rules: what is posted arrives whole and in order, a full
 * ring waits for the reader, and nobody sleeps while there is something for him. test_shm_hostile.c: those who do not.
 */
#include <errno.h>

#include "tests/unit/shm_pair.h"

#define RING SHM_RING_MIN
#define RECORD SHM_RECORD_MAX(RING)
#define WINDOW 4096u

static struct shm_pair p;
static uint8_t data[1 << 16];

static void setup(void)
{
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 13 + (i >> 8) * 5 + 1);
    shm_pair_init(&p, RING, WINDOW);
}

static void teardown(void)
{
    shm_pair_fini(&p);
}

TestSuite(shm, .init = setup, .fini = teardown);

/* The next event at b is this one, and lies in a's ring as one piece. */
static struct endpoint_event expect(enum endpoint_event_type type, uint64_t to, const uint8_t *octets, size_t len)
{
    struct endpoint_event ev;
    cr_assert_eq(shm_next(&p.b, &ev), 1);
    cr_assert_eq(ev.type, type);
    cr_assert_eq(ev.len, len);
    cr_assert_eq(ev.to, to);
    cr_assert(ev.data >= shm_ring(&p, 0) && ev.data + ev.len <= shm_ring(&p, 0) + RING, "it is cut");
    cr_assert_eq(memcmp(ev.data, octets, len), 0);
    return ev;
}

static void expect_nothing(void)
{
    struct endpoint_event ev;
    cr_assert_eq(shm_next(&p.b, &ev), 0);
}

/* Records of this size in the ring, all used up, until the next one begins at off. */
static void go_to(uint32_t off)
{
    while (p.a.tx.tail.off != off) {
        uint32_t left = (off + RING - p.a.tx.tail.off) % RING, to_end = RING - p.a.tx.tail.off;
        uint32_t n = left < RECORD ? left : RECORD;
        n = n < to_end ? n : to_end;
        cr_assert_eq(shm_send(&p.a, NULL, 0, data, n - 8), 0);
        shm_flush(&p.a);
        struct endpoint_event ev = expect(ENDPOINT_SEND, 0, data, n - 8);
        shm_done(&p.b, &ev);
        shm_tell(&p.b);
    }
}

/* ---- sending and receiving ---- */

Test(shm, sends_and_writes_arrive_whole_and_in_order_with_their_lengths_and_offsets)
{
    cr_assert_eq(shm_send(&p.a, data, 16, data + 16, 100), 0);
    cr_assert_eq(shm_write(&p.a, 0, data, 1), 0);
    cr_assert_eq(shm_write(&p.a, 4000, data + 1, 96), 0);
    cr_assert_eq(shm_send(&p.a, NULL, 0, NULL, 0), 0);
    cr_assert_eq(shm_send(&p.a, data, 16, NULL, 0), 0);
    shm_flush(&p.a);
    expect(ENDPOINT_SEND, 0, data, 116);
    expect(ENDPOINT_WRITE, 0, data, 1);
    expect(ENDPOINT_WRITE, 4000, data + 1, 96);
    expect(ENDPOINT_SEND, 0, data, 0);
    struct endpoint_event last = expect(ENDPOINT_SEND, 0, data, 16);
    expect_nothing();
    cr_expect_eq(p.a.tx.n.sends, 3u);
    cr_expect_eq(p.a.tx.n.writes, 2u);
    cr_expect_eq(p.a.tx.n.octets, 116u + 1 + 96 + 16);
    cr_expect_eq(p.b.rx.n.sends, 3u);
    cr_expect_eq(p.b.rx.n.writes, 2u);
    cr_expect_eq(p.b.rx.n.octets, 116u + 1 + 96 + 16);
    shm_done(&p.b, &last);
    shm_tell(&p.b);
    cr_expect_eq(shm_unused(&p.a), 0u, "a release gives back all before it");
}

Test(shm, octets_in_several_pieces_are_the_same_and_src_is_advanced_by_what_was_posted)
{
    struct iovec v[] = { { data, 3 }, { data + 3, 0 }, { data + 3, 40 }, { data + 43, 500 } };
    struct iov_iter it = iov_iter_init(v, SW_ARRAY_LEN(v));
    cr_assert_eq(shm_endpoint_ops.post_send(&p.a.base, data, 2, &it, 100), 0);
    cr_assert_eq(iov_iter_left(&it), 443u);
    cr_assert_eq(shm_endpoint_ops.post_write(&p.a.base, SHM_STAG, 7, &it, 443), 0);
    cr_assert_eq(iov_iter_left(&it), 0u);
    shm_flush(&p.a);
    struct endpoint_event ev;
    cr_assert_eq(shm_next(&p.b, &ev), 1);
    cr_assert_eq(ev.len, 102u);
    cr_expect_arr_eq(ev.data, data, 2);
    cr_expect_arr_eq(ev.data + 2, data, 100);
    expect(ENDPOINT_WRITE, 7, data + 100, 443);
}

/* Each place where a record may begin before the ring's end, and lengths that just fit there, or just do not. */
Test(shm, no_record_is_cut_by_the_rings_end)
{
    for (uint32_t gap = 8; gap <= RECORD + 8; gap += 8) {
        size_t lens[] = { 1, gap - 8, gap - 7, gap >= 16 ? gap - 16 : 1, gap >= 16 ? gap - 15 : 1, RECORD - 16 };
        for (size_t i = 0; i < 2 * SW_ARRAY_LEN(lens); i++) {
            size_t len = lens[i / 2] > RECORD - 16 ? RECORD - 16 : lens[i / 2];
            if (len == 0)
                continue;
            go_to(RING - gap);
            cr_assert_eq(i % 2 ? shm_write(&p.a, 5, data, len) : shm_send(&p.a, data, 0, data, len), 0);
            cr_assert_eq(shm_send(&p.a, data, 9, NULL, 0), 0);
            shm_flush(&p.a);
            struct endpoint_event ev = expect(i % 2 ? ENDPOINT_WRITE : ENDPOINT_SEND, i % 2 ? 5 : 0, data, len);
            shm_done(&p.b, &ev);
            ev = expect(ENDPOINT_SEND, 0, data, 9);
            expect_nothing();
            shm_done(&p.b, &ev);
            shm_tell(&p.b);
            cr_assert_eq(shm_unused(&p.a), 0u);
        }
    }
}

Test(shm, nothing_is_visible_before_the_flush)
{
    cr_assert_eq(shm_send(&p.a, data, 8, data + 8, 8), 0);
    cr_expect(!shm_come(&p.b));
    expect_nothing();
    shm_flush(&p.a);
    cr_expect(shm_come(&p.b));
    expect(ENDPOINT_SEND, 0, data, 16);
    cr_expect(!shm_come(&p.b));
}

/* ---- what cannot be posted ---- */

static unsigned fill(size_t len)
{
    unsigned n = 0;
    struct iovec v = { data, len };
    int r;
    for (;; n++) {
        struct iov_iter it = iov_iter_init(&v, 1);
        r = shm_endpoint_ops.post_send(&p.a.base, data, 0, &it, len);
        cr_assert_eq(iov_iter_left(&it), r == 0 ? 0 : len, "src is advanced only on success");
        if (r != 0)
            break;
    }
    cr_assert_eq(r, -EAGAIN);
    return n;
}

Test(shm, a_full_ring_takes_nothing_and_goes_on_once_the_reader_has_told)
{
    struct endpoint_event ev[RING / 64];
    cr_assert_eq(fill(56), RING / 64);
    cr_expect_eq(shm_write(&p.a, 0, data, 1), -EAGAIN);
    shm_flush(&p.a);
    for (unsigned i = 0; i < RING / 64; i++)
        ev[i] = expect(ENDPOINT_SEND, 0, data, 56);
    cr_expect_eq(fill(56), 0u, "polled is not used up");
    shm_done(&p.b, &ev[1]);
    cr_expect_eq(fill(56), 0u, "nobody has told");
    shm_tell(&p.b);
    cr_expect_eq(fill(56), 2u);
    shm_flush(&p.a);
    shm_done(&p.b, &ev[RING / 64 - 1]);
    shm_tell(&p.b);
    expect(ENDPOINT_SEND, 0, data, 56);
    cr_expect_eq(fill(56), RING / 64 - 2u);
}

/* A sender that looks need not wait until the reader's call is over. */
Test(shm, an_eighth_of_the_ring_is_told_by_its_release)
{
    struct endpoint_event ev;
    fill(56);
    shm_flush(&p.a);
    for (unsigned i = 0; i < RING / 64 / 8; i++) {
        cr_assert_eq(fill(56), 0u);
        ev = expect(ENDPOINT_SEND, 0, data, 56);
        shm_done(&p.b, &ev);
    }
    cr_expect_eq(fill(56), RING / 64 / 8);
}

Test(shm, what_is_longer_than_a_record_is_refused)
{
    size_t send = shm_endpoint_ops.send_max(&p.a.base), write = shm_endpoint_ops.write_max(&p.a.base);
    cr_expect_eq(send, RECORD - 8);
    cr_expect_eq(write, RECORD - 16);
    cr_expect_eq(shm_send(&p.a, data, 0, data, send + 1), -EMSGSIZE);
    cr_expect_eq(shm_send(&p.a, data, 16, data, send - 15), -EMSGSIZE);
    cr_expect_eq(shm_write(&p.a, 0, data, write + 1), -EMSGSIZE);
    struct iovec v = { data, sizeof(data) };
    struct iov_iter it = iov_iter_init(&v, 1);
    cr_expect_eq(shm_endpoint_ops.post_send(&p.a.base, data, 16, &it, SIZE_MAX), -EMSGSIZE,
                 "also a sum that runs over");
    cr_expect_eq(iov_iter_left(&it), sizeof(data));
    cr_expect_eq(shm_unused(&p.a), 0u);
    cr_assert_eq(shm_send(&p.a, data, 16, data + 16, send - 16), 0);
    cr_assert_eq(shm_write(&p.a, 0, data, write), 0);
    shm_flush(&p.a);
    expect(ENDPOINT_SEND, 0, data, send);
    expect(ENDPOINT_WRITE, 0, data, write);
}

Test(shm, a_source_that_is_too_short_posts_nothing)
{
    struct iovec v = { data, 9 };
    struct iov_iter it = iov_iter_init(&v, 1);
    /* At the ring's end, too, where a record that fits no more goes to its beginning. */
    for (uint32_t gap = RING; gap > 0; gap = gap == RING ? 24 : 0) {
        go_to(RING - gap);
        cr_expect_eq(shm_endpoint_ops.post_send(&p.a.base, data, 16, &it, 10), -EINVAL);
        cr_expect_eq(shm_endpoint_ops.post_write(&p.a.base, SHM_STAG, 0, &it, 10), -EINVAL);
        cr_expect_eq(iov_iter_left(&it), 9u);
        shm_flush(&p.a);
        expect_nothing();
        cr_assert_eq(shm_send(&p.a, data, 30, NULL, 0), 0);
        shm_flush(&p.a);
        struct endpoint_event ev = expect(ENDPOINT_SEND, 0, data, 30);
        shm_done(&p.b, &ev);
        shm_tell(&p.b);
        cr_expect_eq(shm_unused(&p.a), 0u);
    }
    cr_expect_eq(p.a.tx.n.writes, 0u);
    cr_expect_eq(shm_write(&p.a, (uint64_t)UINT32_MAX + 1, data, 1), -EINVAL, "no such offset in a record");
}

Test(shm, senseless_lengths_are_refused)
{
    static const uint32_t bad[] = { 0, RING - 64, RING + 1, RING + 32, SHM_RING_MAX + 64, UINT32_MAX - 63 };
    struct shm_ep ep;
    struct shm_cfg cfg = { p.mem[0], p.mem[1], RING, 1, 1 };
    for (size_t i = 0; i < SW_ARRAY_LEN(bad); i++) {
        cfg.ring_len = bad[i];
        cr_expect_eq(shm_init(&ep, &cfg), -EINVAL, "%u", bad[i]);
    }
    cfg.ring_len = SHM_RING_MAX;
    cr_expect_eq(shm_init(&ep, &cfg), 0);
    cfg.ring_len = RING + 64;
    cr_expect_eq(shm_init(&ep, &cfg), 0);
    cfg.window_len = 0;
    cr_expect_eq(shm_init(&ep, &cfg), -EINVAL);
}

/* ---- naps ---- */

Test(shm, a_reader_that_sleeps_is_rung_once_a_nap_and_one_that_does_not_never)
{
    struct endpoint_event ev;
    for (unsigned i = 0; i < 5; i++) {
        cr_assert_eq(shm_send(&p.a, data, 8, NULL, 0), 0);
        cr_expect(!shm_flush(&p.a), "it is awake");
        ev = expect(ENDPOINT_SEND, 0, data, 8);
        shm_done(&p.b, &ev);
        cr_expect(!shm_tell(&p.b), "so is the sender");
        cr_assert(shm_nap_rx(&p.b));
        cr_assert_eq(shm_send(&p.a, data, 8, NULL, 0), 0);
        cr_expect(shm_flush(&p.a));
        cr_expect(!shm_flush(&p.a), "it was rung");
        cr_assert_eq(shm_send(&p.a, data, 8, NULL, 0), 0);
        cr_expect(!shm_flush(&p.a), "it was rung");
        shm_wake_rx(&p.b);
        expect(ENDPOINT_SEND, 0, data, 8);
        ev = expect(ENDPOINT_SEND, 0, data, 8);
        shm_done(&p.b, &ev);
        /* Again to sleep, without having been awake in between for the other side. */
        cr_assert(shm_nap_rx(&p.b));
        cr_assert(shm_nap_rx(&p.b));
        cr_assert_eq(shm_send(&p.a, data, 8, NULL, 0), 0);
        cr_expect(shm_flush(&p.a));
        shm_wake_rx(&p.b);
        ev = expect(ENDPOINT_SEND, 0, data, 8);
        shm_done(&p.b, &ev);
    }
    cr_expect_eq(p.a.tx.n.rings, 10u);
}

/* The reader's word as it is between the two steps of its nap. */
static void half_a_nap(_Atomic uint32_t *word)
{
    atomic_store(word, (atomic_load(word) | 1) + 2);
}

/*
 * N: the sleeper says so, L: it looks once more; P: the other side puts, C: it looks whether somebody sleeps. In each
 * order the one does not sleep, or is rung.
 */
static const char *const orders[] = { "NLPC", "NPLC", "NPCL", "PNLC", "PNCL", "PCNL" };

Test(shm, in_no_order_of_nap_and_put_a_wake_up_for_octets_is_lost)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(orders); i++) {
        bool asleep = false, rung = false;
        cr_assert_eq(shm_send(&p.a, data, 8, NULL, 0), 0);
        for (const char *c = orders[i]; *c; c++) {
            if (*c == 'N')
                half_a_nap(&shm_region_of(&p, 1)->nap_rx);
            else if (*c == 'L')
                asleep = shm_nap_rx(&p.b);
            else if (*c == 'P')
                atomic_store(&shm_region_of(&p, 0)->tail, p.a.tx.tail.at);
            else
                rung = shm_flush(&p.a);
        }
        cr_expect(!asleep || rung, "%s: it sleeps for ever", orders[i]);
        cr_expect_eq(asleep, i == 0, "%s: it has seen the octets", orders[i]);
        shm_wake_rx(&p.b);
        cr_expect(!shm_flush(&p.a), "%s: awake", orders[i]);
        struct endpoint_event ev = expect(ENDPOINT_SEND, 0, data, 8);
        shm_done(&p.b, &ev);
        shm_tell(&p.b);
    }
}

Test(shm, in_no_order_of_nap_and_use_a_wake_up_for_room_is_lost)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(orders); i++) {
        bool asleep = false, rung = false;
        struct endpoint_event ev;
        fill(56);
        cr_assert(!shm_has_room(&p.a));
        shm_flush(&p.a);
        while (shm_next(&p.b, &ev) == 1)
            ;
        for (const char *c = orders[i]; *c; c++) {
            if (*c == 'N')
                half_a_nap(&shm_region_of(&p, 0)->nap_tx);
            else if (*c == 'L')
                asleep = shm_nap_tx(&p.a);
            else if (*c == 'P')
                shm_done(&p.b, &ev); /* (so much is told by its release) */
            else
                rung = shm_tell(&p.b);
        }
        cr_expect(!asleep || rung, "%s: it sleeps for ever", orders[i]);
        cr_expect_eq(asleep, i == 0, "%s: it has seen the room", orders[i]);
        shm_wake_tx(&p.a);
        cr_expect(!shm_tell(&p.b), "%s: awake", orders[i]);
    }
}

Test(shm, a_sender_is_rung_once_half_of_the_ring_is_free_and_not_before)
{
    struct endpoint_event ev;
    unsigned n = fill(56), used = 0;
    shm_flush(&p.a);
    cr_assert(shm_nap_tx(&p.a));
    for (bool rung = false; !rung; used++) {
        cr_assert_lt(used, n);
        ev = expect(ENDPOINT_SEND, 0, data, 56);
        shm_done(&p.b, &ev);
        rung = shm_tell(&p.b);
        cr_assert_eq(rung, used + 1 == n / 2);
    }
    cr_expect(shm_has_room(&p.a));
    ev = expect(ENDPOINT_SEND, 0, data, 56);
    shm_done(&p.b, &ev);
    cr_expect(!shm_tell(&p.b), "once a nap");
    shm_wake_tx(&p.a);
    cr_expect(!shm_nap_tx(&p.a), "there is room: it does not sleep");
    cr_expect(!shm_tell(&p.b));
    cr_expect_eq(p.b.rx.n.rings, 1u);
}

/* Where the tail stands does not matter: a SKIP and a record of the greatest length go into the half that is free. */
Test(shm, with_room_a_record_of_the_greatest_length_can_be_posted)
{
    for (uint32_t gap = 8; gap <= RING; gap += 8) {
        go_to(RING - gap);
        while (shm_has_room(&p.a))
            cr_assert_eq(shm_send(&p.a, NULL, 0, data, RECORD - 8), 0, "%u octets before the end", gap);
        shm_flush(&p.a);
        for (struct endpoint_event ev; shm_next(&p.b, &ev) == 1;)
            shm_done(&p.b, &ev);
        shm_tell(&p.b);
    }
}

/* ---- the end ---- */

Test(shm, an_end_is_seen_behind_what_was_posted_before)
{
    static const struct {
        uint32_t said;
        enum shm_end seen;
    } ends[] = { { SHM_CLOSED, SHM_CLOSED }, { SHM_RESET, SHM_RESET }, { 3, SHM_RESET }, { UINT32_MAX, SHM_RESET } };
    for (size_t i = 0; i < SW_ARRAY_LEN(ends); i++) {
        shm_pair_fini(&p);
        setup();
        cr_expect_eq(shm_peer_end(&p.b), SHM_OPEN);
        cr_assert(shm_nap_rx(&p.b));
        cr_assert_eq(shm_send(&p.a, data, 8, NULL, 0), 0);
        cr_assert_eq(shm_send(&p.a, data, 9, NULL, 0), 0);
        cr_expect(shm_end(&p.a, (enum shm_end)ends[i].said), "the one that sleeps is rung");
        shm_wake_rx(&p.b);
        cr_expect_eq(shm_peer_end(&p.b), SHM_OPEN);
        expect(ENDPOINT_SEND, 0, data, 8);
        cr_expect_eq(shm_peer_end(&p.b), SHM_OPEN);
        struct endpoint_event ev = expect(ENDPOINT_SEND, 0, data, 9);
        cr_expect_eq(shm_peer_end(&p.b), ends[i].seen);
        cr_expect(!shm_nap_rx(&p.b), "nobody waits for octets behind the end");
        cr_expect_eq(shm_send(&p.a, data, 8, NULL, 0), -EPIPE);
        cr_expect_eq(shm_write(&p.a, 0, data, 8), -EPIPE);
        cr_expect(shm_has_room(&p.a) && !shm_nap_tx(&p.a), "nor for room");
        cr_expect_eq(shm_unused(&p.a), 16u + 24);
        shm_done(&p.b, &ev);
        shm_tell(&p.b);
        cr_expect_eq(shm_unused(&p.a), 0u);
        cr_expect_eq(shm_peer_end(&p.a), SHM_OPEN, "the other direction goes on");
        cr_expect_eq(shm_send(&p.b, data, 8, NULL, 0), 0);
    }
}

Test(shm, an_end_alone_wakes_too)
{
    cr_assert(shm_nap_rx(&p.b));
    cr_expect(shm_end(&p.a, SHM_CLOSED));
    cr_expect(!shm_nap_rx(&p.b));
    cr_expect_eq(shm_peer_end(&p.b), SHM_CLOSED);
}

Test(shm, unused_are_the_octets_of_records_that_the_other_side_has_not_told)
{
    struct endpoint_event ev;
    cr_expect_eq(shm_unused(&p.a), 0u);
    cr_assert_eq(shm_send(&p.a, data, 1, NULL, 0), 0);
    cr_assert_eq(shm_write(&p.a, 0, data, 1), 0);
    cr_expect_eq(shm_unused(&p.a), 16u + 24);
    shm_flush(&p.a);
    ev = expect(ENDPOINT_SEND, 0, data, 1);
    cr_expect_eq(shm_unused(&p.a), 16u + 24);
    shm_done(&p.b, &ev);
    shm_tell(&p.b);
    cr_expect_eq(shm_unused(&p.a), 24u);
    ev = expect(ENDPOINT_WRITE, 0, data, 1);
    shm_done(&p.b, &ev);
    shm_tell(&p.b);
    cr_expect_eq(shm_unused(&p.a), 0u);
}
