/*
 * An endpoint in shared memory whose other side writes what it likes into its region: side a is written by hand here.
 * What is just right is taken, what is just wrong ends it, for good.
 */
#include <errno.h>

#include "tests/unit/shm_pair.h"

#define RING SHM_RING_MIN
#define RECORD SHM_RECORD_MAX(RING)
#define WINDOW 5000u
#define SEND 1u
#define WRITE 2u
#define SKIP 3u

static struct shm_pair p;
static uint8_t data[RING];

static void setup(void)
{
    shm_pair_init(&p, RING, WINDOW);
}

static void teardown(void)
{
    shm_pair_fini(&p);
}

static void again(void)
{
    teardown();
    setup();
}

TestSuite(shm_hostile, .init = setup, .fini = teardown);

/* A record's header at a place of a's ring. */
static void put(uint32_t off, uint32_t len, uint32_t kind, uint32_t stag, uint32_t to)
{
    const uint32_t words[] = { len, kind, stag, to };
    memcpy(shm_ring(&p, 0) + off, words, off + 8 < RING ? 16 : 8);
}

static void tail(uint64_t at)
{
    atomic_store(&shm_region_of(&p, 0)->tail, at);
}

/* Also once everything is right again. */
static void expect_broken(const char *what)
{
    struct endpoint_event ev;
    cr_expect_eq(shm_next(&p.b, &ev), -EPROTO, "%s", what);
    memset(shm_ring(&p, 0), 0, RING);
    put(0, 8, SEND, 0, 0);
    tail(16);
    cr_expect_eq(shm_next(&p.b, &ev), -EPROTO, "%s: it stays so", what);
}

static void expect_event(const char *what, uint32_t len)
{
    struct endpoint_event ev;
    cr_assert_eq(shm_next(&p.b, &ev), 1, "%s", what);
    cr_expect_eq(ev.len, len, "%s", what);
    shm_done(&p.b, &ev);
    shm_tell(&p.b);
}

/* The next record is at this place, and all before it was used up. */
static void begin_at(uint32_t off)
{
    for (uint32_t at = 0; at < off;) {
        uint32_t n = off - at < RECORD ? off - at : RECORD;
        put(at, n - 8, SEND, 0, 0);
        tail(at += n);
        expect_event("before it", n - 8);
    }
}

/* ---- records ---- */

static const struct {
    const char *what;
    uint32_t off;     /* where it is */
    uint32_t visible; /* octets up to the tail */
    uint32_t len, kind, stag, to;
    bool good;
} records[] = {
    { "a Send", 0, 16, 8, SEND, 0, 0, true },
    { "an empty Send", 0, 8, 0, SEND, 0, 0, true },
    { "an unknown kind: 0", 0, 16, 8, 0, 0, 0, false },
    { "an unknown kind: 4", 0, 16, 8, 4, 0, 0, false },
    { "an unknown kind: more than an octet", 0, 16, 8, SEND + 256, 0, 0, false },
    { "an unknown kind: the greatest", 0, 16, 8, UINT32_MAX, 0, 0, false },
    { "a Send up to the tail", 0, 64, 56, SEND, 0, 0, true },
    { "a Send an octet beyond the tail", 0, 64, 57, SEND, 0, 0, false },
    { "a Send whose length runs over", 0, RING, UINT32_MAX, SEND, 0, 0, false },
    { "a Send whose length runs over to 0", 0, RING, UINT32_MAX - 7, SEND, 0, 0, false },
    { "the longest Send", 0, RECORD, RECORD - 8, SEND, 0, 0, true },
    { "a longer Send", 0, RECORD + 8, RECORD - 7, SEND, 0, 0, false },
    { "a Send as long as the ring", 0, RING, RING - 8, SEND, 0, 0, false },
    { "a Send up to the ring's end", RING - 64, 64, 56, SEND, 0, 0, true },
    { "a Send an octet beyond the ring's end", RING - 64, 128, 57, SEND, 0, 0, false },
    { "an empty Send in the ring's last octets", RING - 8, 8, 0, SEND, 0, 0, true },
    { "a Send beyond the ring's last octets", RING - 8, 64, 1, SEND, 0, 0, false },
    { "a Write", 0, 24, 8, WRITE, SHM_STAG, 0, true },
    { "a Write of nothing", 0, 16, 0, WRITE, SHM_STAG, 0, false },
    { "a Write without the end of its header", 0, 8, 0, WRITE, SHM_STAG, 0, false },
    { "a Write whose header would be cut", RING - 8, 64, 8, WRITE, SHM_STAG, 0, false },
    { "a Write up to the tail", 0, 64, 48, WRITE, SHM_STAG, 0, true },
    { "a Write an octet beyond the tail", 0, 64, 49, WRITE, SHM_STAG, 0, false },
    { "a Write whose length runs over", 0, RING, UINT32_MAX, WRITE, SHM_STAG, 0, false },
    { "a Write whose length runs over to 0", 0, RING, UINT32_MAX - 15, WRITE, SHM_STAG, 0, false },
    { "the longest Write", 0, RECORD, RECORD - 16, WRITE, SHM_STAG, 0, true },
    { "a longer Write", 0, RECORD + 8, RECORD - 15, WRITE, SHM_STAG, 0, false },
    { "a Write up to the ring's end", RING - 64, 64, 48, WRITE, SHM_STAG, 0, true },
    { "a Write an octet beyond the ring's end", RING - 64, 128, 49, WRITE, SHM_STAG, 0, false },
    { "a Write to a foreign STag", 0, 24, 8, WRITE, SHM_STAG + 1, 0, false },
    { "a Write to the window's end", 0, 24, 8, WRITE, SHM_STAG, WINDOW - 8, true },
    { "a Write an octet beyond the window's end", 0, 24, 8, WRITE, SHM_STAG, WINDOW - 7, false },
    { "a Write behind the window's end", 0, 24, 1, WRITE, SHM_STAG, WINDOW, false },
    { "a Write far behind the window's end", 0, 24, 1, WRITE, SHM_STAG, WINDOW + 1, false },
    { "a Write whose end runs over", 0, 24, 8, WRITE, SHM_STAG, UINT32_MAX - 7, false },
    { "a SKIP that does not reach the ring's end", RING - 64, 64, 48, SKIP, 0, 0, false },
    { "a SKIP beyond the ring's end", RING - 64, 128, 64, SKIP, 0, 0, false },
    { "a SKIP whose length runs over", RING - 64, 64, UINT32_MAX, SKIP, 0, 0, false },
    { "a SKIP beyond the tail", RING - 64, 32, 56, SKIP, 0, 0, false },
    { "a SKIP from which a record would have fitted", RING - RECORD, RECORD, RECORD - 8, SKIP, 0, 0, false },
    { "a SKIP over the whole ring", 0, RING, RING - 8, SKIP, 0, 0, false },
};

Test(shm_hostile, a_record_is_taken_just_inside_each_bound_and_ends_it_just_outside)
{
    for (size_t i = 0; i < SW_ARRAY_LEN(records); i++) {
        again();
        begin_at(records[i].off);
        put(records[i].off, records[i].len, records[i].kind, records[i].stag, records[i].to);
        tail(records[i].off + records[i].visible);
        if (records[i].good)
            expect_event(records[i].what, records[i].len);
        else
            expect_broken(records[i].what);
    }
}

Test(shm_hostile, a_skip_to_the_rings_end_is_passed_over)
{
    static const uint32_t gaps[] = { 8, 64, RECORD - 8 };
    for (size_t i = 0; i < SW_ARRAY_LEN(gaps); i++) {
        struct endpoint_event ev;
        again();
        begin_at(RING - gaps[i]);
        put(RING - gaps[i], gaps[i] - 8, SKIP, 0, 0);
        tail(RING);
        cr_expect_eq(shm_next(&p.b, &ev), 0);
        put(0, 8, SEND, 0, 0);
        tail(RING + 16);
        expect_event("behind a SKIP", 8);
        cr_expect_eq(atomic_load(&shm_region_of(&p, 1)->head), RING + 16u);
    }
}

/* ---- cursors ---- */

static void with_tail(const char *what, uint64_t at, bool good)
{
    tail(at);
    if (good)
        expect_event(what, 8);
    else
        expect_broken(what);
    again();
}

static void three_sends(unsigned polled)
{
    struct endpoint_event ev;
    for (uint32_t off = 0; off < RING; off += 16)
        put(off, 8, SEND, 0, 0);
    tail(48);
    for (unsigned i = 0; i < polled; i++)
        cr_assert_eq(shm_next(&p.b, &ev), 1);
}

Test(shm_hostile, a_tail_that_is_too_far_goes_back_or_is_not_aligned_ends_it)
{
    three_sends(0);
    with_tail("the whole ring", RING, true);
    three_sends(0);
    with_tail("more than the ring", RING + 8, false);
    three_sends(0);
    with_tail("as far as can be", UINT64_MAX - 7, false);
    for (unsigned i = 1; i < 8; i++) {
        three_sends(0);
        with_tail("not a multiple of 8", 48 + i, false);
    }
    three_sends(3);
    with_tail("more than the ring from what is still held", RING + 8, false);
    three_sends(3);
    with_tail("the whole ring from what is still held", RING, true);
    three_sends(3);
    with_tail("back to what is still held", 32, false);
    three_sends(3);
    with_tail("back to the beginning", 0, false);
    three_sends(3);
    with_tail("back before the beginning", UINT64_MAX - 15, false);
}

/* A tail that goes back is not seen before all that it had said is polled. */
Test(shm_hostile, a_tail_is_looked_at_again_only_behind_what_it_said)
{
    three_sends(1);
    tail(0);
    expect_event("said before", 8);
    expect_event("said before", 8);
    expect_broken("back");
}

Test(shm_hostile, a_header_that_changes_after_the_poll_changes_nothing)
{
    struct endpoint_event ev, next;
    three_sends(0);
    cr_assert_eq(shm_next(&p.b, &ev), 1);
    put(0, UINT32_MAX, 77, 0, 0);
    cr_assert_eq(shm_next(&p.b, &next), 1);
    cr_expect_eq(next.data, ev.data + 16);
    shm_done(&p.b, &ev);
    shm_tell(&p.b);
    cr_expect_eq(atomic_load(&shm_region_of(&p, 1)->head), 16u);
}

/* b's own cursors are b's: what the other side writes there is not looked at. */
Test(shm_hostile, what_is_written_into_our_own_region_is_not_read)
{
    struct endpoint_event ev;
    three_sends(0);
    memset(p.mem[1], 0xff, SHM_HEAD_LEN + RING);
    cr_assert_eq(shm_next(&p.b, &ev), 1);
    shm_done(&p.b, &ev);
    shm_tell(&p.b);
    cr_expect_eq(atomic_load(&shm_region_of(&p, 1)->head), 16u);
    cr_assert_eq(shm_send(&p.b, data, 8, NULL, 0), 0);
    shm_flush(&p.b);
    cr_expect_eq(atomic_load(&shm_region_of(&p, 1)->tail), 16u);
    shm_end(&p.b, SHM_CLOSED);
    cr_expect_eq(atomic_load(&shm_region_of(&p, 1)->end), (uint32_t)SHM_CLOSED);
    cr_expect_eq(shm_peer_end(&p.b), SHM_OPEN);
}

/* The heads that a can tell b, whose ring is full of 64 octets each. */
static void fill_b(void)
{
    while (shm_send(&p.b, data, 56, NULL, 0) == 0)
        ;
    shm_flush(&p.b);
}

static void with_head(uint64_t before, uint64_t at, bool good)
{
    atomic_store(&shm_region_of(&p, 0)->head, at);
    bool room = at - before >= RING / 2;
    cr_expect_eq(shm_has_room(&p.b), !good || room, "%llu", (unsigned long long)at);
    cr_expect_eq(shm_nap_tx(&p.b), good && !room, "%llu: nobody sleeps for ever", (unsigned long long)at);
    shm_wake_tx(&p.b);
    cr_expect_eq(shm_send(&p.b, data, 56, NULL, 0), !good ? -EPIPE : at - before >= 64 ? 0 : -EAGAIN);
    if (good)
        return;
    atomic_store(&shm_region_of(&p, 0)->head, RING);
    cr_expect_eq(shm_send(&p.b, data, 1, NULL, 0), -EPIPE, "it stays so");
    cr_expect_eq(shm_write(&p.b, 0, data, 1), -EPIPE);
    cr_expect(shm_has_room(&p.b));
}

Test(shm_hostile, a_head_beyond_the_tail_or_that_goes_back_ends_sending)
{
    static const struct {
        uint64_t before, at;
        bool good;
    } heads[] = {
        { 0, 0, true },      { 0, 64, true },        { 0, RING / 2 - 64, true }, { 0, RING / 2, true },
        { 0, RING, true },   { 0, RING + 8, false }, { 0, UINT64_MAX, false },   { 128, 128, true },
        { 128, 120, false }, { 128, 0, false },      { 128, RING + 128, true },  { 128, RING + 136, false },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(heads); i++) {
        again();
        fill_b();
        atomic_store(&shm_region_of(&p, 0)->head, heads[i].before);
        fill_b();
        with_head(heads[i].before, heads[i].at, heads[i].good);
    }
}

Test(shm_hostile, a_senseless_head_leaves_what_is_unused_as_it_was)
{
    fill_b();
    atomic_store(&shm_region_of(&p, 0)->head, RING + 8);
    cr_expect_eq(shm_unused(&p.b), RING);
    cr_expect_eq(shm_send(&p.b, data, 8, NULL, 0), -EPIPE);
    cr_expect_eq(shm_unused(&p.b), RING);
}

/* The receive side is another matter: what the other side has put is still read. */
Test(shm_hostile, a_side_whose_sending_has_ended_still_receives)
{
    fill_b();
    atomic_store(&shm_region_of(&p, 0)->head, RING + 8);
    cr_expect_eq(shm_send(&p.b, data, 8, NULL, 0), -EPIPE);
    three_sends(0);
    expect_event("received", 8);
}

/* A nap that the other side makes up costs a ring for each number that it thinks of, and no more. */
Test(shm_hostile, made_up_naps_are_rung_once_each)
{
    static const uint32_t naps[] = { 1, 1, 3, 2, 1, UINT32_MAX, UINT32_MAX, 0 };
    static const bool rings[] = { true, false, true, false, true, true, false, false };
    for (size_t i = 0; i < SW_ARRAY_LEN(naps); i++) {
        atomic_store(&shm_region_of(&p, 0)->nap_rx, naps[i]);
        cr_expect_eq(shm_flush(&p.b), rings[i], "%u", naps[i]);
        atomic_store(&shm_region_of(&p, 0)->nap_tx, naps[i]);
        cr_expect_eq(shm_tell(&p.b), rings[i], "%u", naps[i]);
    }
}
