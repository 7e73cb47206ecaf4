/*
 * The byte stream over two software endpoints coupled through memory, in both flow controls: what
 * is written arrives, what a peer may do wrong is found, and a batch may be cut at every octet.
 */
#include "tests/unit/stream_pair.h"

static struct stream_pair p;
static uint8_t data[1 << 16], got[1 << 16];

static void setup(const struct stream_pair_cfg *c)
{
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 13 + (i >> 8) * 5 + 1);
    memset(got, 0, sizeof(got));
    stream_pair_init(&p, c);
    stream_pair_start(&p);
}

static void setup_llp(void)
{
    struct stream_pair_cfg c = stream_pair_llp();

    setup(&c);
}

static void setup_credits(uint16_t bufs)
{
    struct stream_pair_cfg c = stream_pair_credits();

    c.bufs = bufs;
    setup(&c);
}

static void teardown(void)
{
    stream_pair_fini(&p);
}

/* data[from, from+len) arrives at b, and nothing else. */
static void expect_at_b(size_t from, size_t len)
{
    stream_pair_settle(&p);
    cr_assert_eq(stream_avail(&p.b.st), len);
    memset(got, 0, len);
    cr_assert_eq(stream_end_read(&p.b, got, sizeof(got)), len);
    cr_assert_arr_eq(got, data + from, len);
    cr_assert(!stream_readable(&p.b.st));
}

/* ---- writes ---- */

Test(stream, a_write_up_to_the_limit_is_one_send, .fini = teardown)
{
    setup_llp();
    cr_assert_eq(stream_end_write(&p.a, data, 512), 512);
    expect_at_b(0, 512);
    cr_expect_eq(p.a.side.ep.stats.tx_sends, 1u);
    cr_expect_eq(p.a.st.tx.total, 512u);
    cr_expect_eq(p.b.st.rx.total, 512u);
}

Test(stream, a_larger_one_goes_as_writes_and_one_send_that_says_how_far, .fini = teardown)
{
    setup_llp();
    uint64_t rtr = p.a.side.ep.stats.tx_writes;
    cr_assert_eq(stream_end_write(&p.a, data, 513), 513);
    expect_at_b(0, 513);
    cr_expect_eq(p.a.side.ep.stats.tx_writes - rtr, 1u);
    cr_expect_eq(p.a.side.ep.stats.tx_sends, 1u);
}

Test(stream, the_limit_is_no_more_than_the_peer_takes)
{
    struct stream_pair_cfg c = stream_pair_llp();

    c.eager_limit = 60000;
    c.eager_max = 100;
    setup(&c);
    cr_expect_eq(p.a.st.cfg.eager_limit, 100u);
    stream_pair_fini(&p);
    c.eager_max = 60000;
    setup(&c);
    cr_expect_eq(p.a.st.cfg.eager_limit, SIDE_SEND_MAX - STREAM_HDR_LEN);
    cr_assert_eq(stream_end_write(&p.a, data, SIDE_SEND_MAX - STREAM_HDR_LEN),
                 (ssize_t)(SIDE_SEND_MAX - STREAM_HDR_LEN));
    expect_at_b(0, SIDE_SEND_MAX - STREAM_HDR_LEN);
    teardown();
}

Test(stream, gathered_octets_are_one_send_as_long_as_the_peer_takes, .fini = teardown)
{
    setup_llp();
    struct iovec v = { data, sizeof(data) };
    struct iov_iter it = iov_iter_init(&v, 1);

    cr_assert_eq(stream_send_max(&p.a.st), 2048u);
    cr_expect_eq(stream_write_send(&p.a.st, &it, 2049), -EMSGSIZE);
    cr_assert_eq(stream_write_send(&p.a.st, &it, 2048), 0);
    cr_expect_eq(iov_iter_left(&it), sizeof(data) - 2048);
    expect_at_b(0, 2048);
    cr_expect_eq(p.a.side.ep.stats.tx_sends, 1u);
    cr_expect_eq(p.a.st.tx.total, 2048u);
    cr_assert_eq(stream_fin(&p.a.st), 0);
    cr_expect_eq(stream_write_send(&p.a.st, &it, 1), -EPIPE);
}

Test(stream, gathered_octets_are_no_longer_than_the_endpoints_sends)
{
    struct stream_pair_cfg c = stream_pair_llp();

    c.eager_max = 60000;
    setup(&c);
    cr_expect_eq(stream_send_max(&p.a.st), SIDE_SEND_MAX - STREAM_HDR_LEN);
    teardown();
}

Test(stream, octets_in_many_pieces_are_the_same, .fini = teardown)
{
    struct iovec v[90];
    struct iov_iter it;
    size_t at = 0;

    setup_llp();
    for (size_t i = 0; i < SW_ARRAY_LEN(v); i++) {
        v[i] = (struct iovec){ data + at, i % 7 };
        at += i % 7;
    }
    it = iov_iter_init(v, SW_ARRAY_LEN(v));
    cr_assert_eq(stream_write(&p.a.st, &it, at), (ssize_t)at);
    cr_expect_eq(iov_iter_left(&it), 0u);
    expect_at_b(0, at);
}

Test(stream, nothing_to_write_is_nothing_sent, .fini = teardown)
{
    setup_llp();
    cr_expect_eq(stream_end_write(&p.a, data, 0), 0);
    cr_expect_eq(p.a.st.tx.batch_n, 0u);
}

Test(stream, a_source_shorter_than_told_is_refused, .fini = teardown)
{
    struct iovec v = { data, 10 };
    struct iov_iter it = iov_iter_init(&v, 1);

    setup_llp();
    cr_expect_eq(stream_write(&p.a.st, &it, 11), -EINVAL);
    cr_expect_eq(iov_iter_left(&it), 10u);
    expect_at_b(0, 0);
}

/* A Write ends where the ring does, and the next one begins at its start. */
static void wrap(const struct stream_pair_cfg *c)
{
    static const size_t sizes[] = { 4096, 4096, 1024, 3072, 1025, 3071, 4095, 1025, 4000, 9000, 3 };
    size_t at = 0;

    setup(c);
    for (size_t i = 0; i < SW_ARRAY_LEN(sizes); i++) {
        size_t done = 0;

        while (done < sizes[i]) {
            ssize_t n = stream_end_write(&p.a, data + at + done, sizes[i] - done);

            cr_assert_gt(n, 0);
            expect_at_b(at + done, (size_t)n);
            stream_pair_settle(&p); /* credit comes back */
            done += (size_t)n;
        }
        at += sizes[i];
    }
    cr_expect_gt(p.a.st.tx.ring_to, 5 * c->ring_len);
    teardown();
}

Test(stream, the_ring_wraps_to_the_octet)
{
    struct stream_pair_cfg c = stream_pair_llp();

    wrap(&c);
    c.ring_len = 4099; /* no power of two */
    wrap(&c);
    c = stream_pair_credits();
    wrap(&c);
    c.ring_len = 4099;
    wrap(&c);
}

/* ---- reads ---- */

Test(stream, peek_passes_over_and_leaves, .fini = teardown)
{
    setup_llp();
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(stream_end_write(&p.a, data + 100 * i, 100), 100);
    stream_pair_settle(&p);
    for (size_t skip = 0; skip <= 510; skip += 5) {
        size_t want = skip < 500 ? 500 - skip : 0, part = want < 130 ? want : 130;

        cr_assert_eq(stream_end_peek(&p.b, got, sizeof(got), skip), want);
        cr_assert_arr_eq(got, data + skip, want);
        cr_assert_eq(stream_end_peek(&p.b, got, 130, skip), part);
    }
    expect_at_b(0, 500);
}

Test(stream, reads_of_any_size_go_across_messages, .fini = teardown)
{
    size_t at = 0;

    setup_llp();
    for (size_t i = 0; i < 20; i++)
        cr_assert_eq(stream_end_write(&p.a, data + 600 * i, 600), 600);
    stream_pair_settle(&p);
    for (size_t n = 1; at < 12000; n = n * 2 % 1999) {
        size_t want = n < 12000 - at ? n : 12000 - at;

        cr_assert_eq(stream_end_read(&p.b, got, n), want);
        cr_assert_arr_eq(got, data + at, want);
        at += want;
    }
    cr_expect_eq(p.b.st.rx.total, 12000u);
}

Test(stream, discard_drops_and_counts, .fini = teardown)
{
    setup_llp();
    cr_assert_eq(stream_end_write(&p.a, data, 300), 300);
    cr_assert_eq(stream_end_write(&p.a, data + 300, 1000), 1000);
    stream_pair_settle(&p);
    cr_expect_eq(stream_discard(&p.b.st, 299), 299u);
    cr_expect_eq(stream_discard(&p.b.st, 2), 2u);
    cr_expect_eq(stream_end_read(&p.b, got, 9), 9u);
    cr_expect_arr_eq(got, data + 301, 9);
    cr_expect_eq(stream_discard(&p.b.st, 5000), 990u);
    cr_expect_eq(p.b.st.rx.total, 1300u);
    cr_expect(!stream_readable(&p.b.st));
}

Test(stream, a_destination_shorter_than_told_takes_what_it_can, .fini = teardown)
{
    struct iovec v = { got, 7 };
    struct iov_iter it = iov_iter_init(&v, 1);

    setup_llp();
    cr_assert_eq(stream_end_write(&p.a, data, 20), 20);
    stream_pair_settle(&p);
    cr_expect_eq(stream_peek(&p.b.st, &it, 20, 0), 7u);
    it = iov_iter_init(&v, 1);
    cr_expect_eq(stream_read(&p.b.st, &it, 20), 7u);
    expect_at_b(7, 13);
}

/* ---- the end ---- */

static void fin_after_data(void)
{
    cr_assert_eq(stream_end_write(&p.a, data, 700), 700);
    cr_assert_eq(stream_fin(&p.a.st), 0);
    cr_expect_eq(stream_fin(&p.a.st), 0, "once is enough");
    cr_expect_eq(stream_end_write(&p.a, data, 1), -EPIPE);
    stream_pair_settle(&p);
    cr_expect_eq(stream_avail(&p.b.st), 700u);
    cr_expect_eq(p.b.st.rx.end, STREAM_EOF);
    cr_assert_eq(stream_end_read(&p.b, got, sizeof(got)), 700u);
    cr_assert_arr_eq(got, data, 700);
    cr_expect(stream_readable(&p.b.st), "the end is to be read");
    /* The other direction goes on. */
    for (size_t i = 0; i < 40; i++) {
        cr_assert_eq(stream_end_write(&p.b, data, 1000), 1000, "%zu", i);
        stream_pair_settle(&p);
        cr_assert_eq(stream_end_read(&p.a, got, sizeof(got)), 1000u);
        stream_pair_settle(&p);
    }
    cr_expect_eq(p.b.st.rx.end, STREAM_EOF);
    teardown();
}

Test(stream, fin_comes_behind_the_data_and_the_other_half_goes_on)
{
    setup_llp();
    fin_after_data();
    setup_credits(4);
    fin_after_data();
}

static void breaks(void)
{
    stream_end_push(&p.a);
    cr_assert_eq(stream_end_pull(&p.b), -EPROTO);
    cr_expect_eq(p.b.st.rx.end, STREAM_BROKEN);
    cr_expect_eq(stream_poll(&p.b.st), -EPROTO);
    cr_expect(stream_readable(&p.b.st));
    teardown();
}

static void fine(void)
{
    stream_end_push(&p.a);
    cr_assert_geq(stream_end_pull(&p.b), 0);
    teardown();
}

Test(stream, nothing_may_follow_fin_but_credit_and_reset)
{
    for (unsigned type = 0; type <= STREAM_RESET; type++) {
        for (int llp = 0; llp < 2; llp++) {
            bool ok = type == STREAM_RESET || (type == STREAM_CREDIT && !llp);

            if (llp)
                setup_llp();
            else
                setup_credits(8);
            cr_assert_eq(stream_fin(&p.a.st), 0);
            if (type == 0) /* an RDMA Write: with credits it lands unseen, and nothing may announce it */
                cr_assert_eq(side_write(&p.a.side, p.b.st.cfg.local.ring_stag, 0, data, 10), 0);
            if (type != 0 || !llp)
                stream_end_raw(
                    &p.a, (struct stream_hdr){ .type = (uint8_t)(type ? type : STREAM_CREDIT), .off = type ? 0 : 10 },
                    NULL, 0);
            if (ok)
                fine();
            else
                breaks();
        }
    }
}

Test(stream, octets_behind_fin_are_broken)
{
    setup_llp();
    cr_assert_eq(stream_end_write(&p.a, data, 5), 5);
    cr_assert_eq(stream_fin(&p.a.st), 0);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 6 }, data, 1);
    breaks();
}

Test(stream, reset_ends_behind_what_came_before, .fini = teardown)
{
    setup_llp();
    cr_assert_eq(stream_end_write(&p.a, data, 5), 5);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_RESET, .off = 5, .aux = 3 }, NULL, 0);
    stream_pair_settle(&p);
    cr_expect_eq(stream_avail(&p.b.st), 5u);
    cr_expect_eq(p.b.st.rx.end, STREAM_RESET_BY_PEER);
}

Test(stream, a_terminate_is_a_reset_and_stays_one, .fini = teardown)
{
    setup_llp();
    iwarp_fail(&p.a.side.ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, 5 });
    stream_end_push(&p.a);
    cr_assert_eq(stream_end_pull(&p.b), 1);
    cr_expect_eq(p.b.st.rx.end, STREAM_RESET_BY_PEER);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(stream_poll(&p.b.st), 0);
    cr_expect_eq(p.b.st.rx.end, STREAM_RESET_BY_PEER);
    cr_expect_eq(stream_end_write(&p.b, data, 10), -EPIPE);
    cr_expect_eq(stream_end_write(&p.a, data, 10), -EPIPE);
    cr_expect_eq(stream_fin(&p.b.st), -EPIPE);
}

Test(stream, the_pipes_end_is_end_of_file_only_between_messages, .fini = teardown)
{
    setup_llp();
    stream_eof(&p.a.st, true);
    stream_eof(&p.b.st, false);
    cr_expect_eq(p.a.st.rx.end, STREAM_EOF);
    cr_expect_eq(p.b.st.rx.end, STREAM_RESET_BY_PEER);
    stream_eof(&p.a.st, false);
    cr_expect_eq(p.a.st.rx.end, STREAM_EOF, "the first word counts");
}

/* ---- a peer at fault ---- */

Test(stream, an_offset_that_does_not_add_up_is_broken)
{
    static const uint32_t offs[] = { 0, 9, 11, 0xffffffff, 0x80000000 };

    for (size_t i = 0; i < SW_ARRAY_LEN(offs); i++) {
        setup_llp();
        stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = offs[i] }, data, 10);
        breaks();
        setup_credits(4);
        stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = offs[i] == 11 ? 0x01000000 : offs[i] },
                       data, 10);
        breaks();
    }
}

Test(stream, a_write_elsewhere_than_next_in_the_ring_is_broken)
{
    static const uint32_t tos[] = { 1, 99, 101, 4086 };

    for (size_t i = 0; i < SW_ARRAY_LEN(tos); i++) {
        setup_llp();
        cr_assert_eq(side_write(&p.a.side, p.b.st.cfg.local.ring_stag, 0, data, 100), 0);
        cr_assert_eq(side_write(&p.a.side, p.b.st.cfg.local.ring_stag, tos[i], data, 10), 0);
        breaks();
    }
}

Test(stream, more_eager_octets_than_offered_are_broken)
{
    setup_llp();
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 2048 }, data, 2048);
    fine();
    setup_llp();
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 2049 }, data, 2049);
    breaks();
}

Test(stream, octets_in_what_is_no_data_are_broken)
{
    for (unsigned type = STREAM_CREDIT; type <= STREAM_RESET; type++) {
        setup_llp();
        stream_end_raw(&p.a, (struct stream_hdr){ .type = (uint8_t)type, .off = 1 }, data, 1);
        breaks();
    }
}

Test(stream, a_header_that_is_none_is_broken)
{
    for (size_t len = 0; len <= STREAM_HDR_LEN; len++) {
        setup_llp();
        cr_assert_eq(side_send(&p.a.side, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", len, NULL, 0), 0);
        breaks();
    }
}

Test(stream, with_credits_more_than_the_free_ring_is_broken)
{
    setup_credits(8);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 4096 }, NULL, 0);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 4097 }, NULL, 0);
    breaks();
    setup_credits(8);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 4097 }, NULL, 0);
    breaks();
    setup_credits(8);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 4096 }, NULL, 0);
    stream_end_push(&p.a);
    cr_assert_geq(stream_end_pull(&p.b), 0);
    cr_assert_eq(stream_discard(&p.b.st, 1000), 1000u);
    stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = 5096 }, NULL, 0);
    fine();
}

Test(stream, parameters_that_do_not_go_together_are_refused)
{
    struct stream_pair_cfg c = stream_pair_credits();
    struct stream_cfg good, sc;
    struct stream st;

    setup(&c);
    good = p.a.st.cfg;
    cr_assert_eq(stream_init(&st, &good), 0);
    cr_expect(!st.llp);
#define REFUSED(change)                                        \
    do {                                                       \
        sc = good;                                             \
        change;                                                \
        cr_expect_eq(stream_init(&st, &sc), -EINVAL, #change); \
    } while (0)
    REFUSED(sc.ring = NULL);
    REFUSED(sc.local.ring_len = 0);
    REFUSED(sc.peer.ring_len = 0);
    REFUSED(sc.peer.ring_len = STREAM_RING_MAX + 1);
    REFUSED(sc.peer.eager_max = 0);
    REFUSED(sc.peer.bufs = STREAM_BUFS_KEPT; sc.peer.flags = STREAM_FLAG_LLP);
    REFUSED(sc.local.bufs = STREAM_BUFS_KEPT);
    /* One side that needs credits is enough. */
    sc = good;
    sc.peer.flags = STREAM_FLAG_LLP;
    cr_assert_eq(stream_init(&st, &sc), 0);
    cr_expect(!st.llp);
    sc.local.flags = STREAM_FLAG_LLP;
    sc.peer.bufs = 0;
    cr_assert_eq(stream_init(&st, &sc), 0);
    cr_expect(st.llp);
    teardown();
}

/* ---- slices ---- */

static void many_small_messages(void)
{
    setup_llp();
    for (size_t i = 0; i < 2 * STREAM_SLICES; i++) {
        cr_assert_eq(stream_end_write(&p.a, data + i, 1), 1);
        stream_end_push(&p.a);
    }
    while (side_pull(&p.b.side, p.b.in) > 0)
        continue;
}

/* A program may wait for a number of octets, and the peer write them one by one. */
Test(stream, many_small_messages_are_joined, .fini = teardown)
{
    many_small_messages();
    cr_assert_eq(stream_end_read(&p.b, got, 0), 0u);
    cr_assert_eq(stream_poll(&p.b.st), 1);
    cr_expect(!stream_paused(&p.b.st));
    cr_expect_eq(stream_avail(&p.b.st), 2 * STREAM_SLICES);
    struct iovec v = { got, 300 };
    struct iov_iter it = iov_iter_init(&v, 1);
    cr_expect_eq(stream_peek(&p.b.st, &it, 300, 200), 300u);
    cr_expect_arr_eq(got, data + 200, 300);
    for (size_t at = 0; at < 2 * STREAM_SLICES; at += 128)
        cr_assert_eq(stream_end_read(&p.b, got + at, 128), 128u);
    cr_expect_arr_eq(got, data, 2 * STREAM_SLICES);
    cr_expect(iwarp_in_eof(&p.b.side.ep), "all was given back");
}

/* A reader that looks and does not read sees all there is room for, headers not counted. */
Test(stream, room_for_headers_is_won_back_while_nobody_reads, .fini = teardown)
{
    size_t sent = 0;

    setup_llp();
    for (;; sent++) {
        uint8_t *to;

        cr_assert_eq(stream_end_write(&p.a, data + sent % 1000, 1), 1);
        stream_end_push(&p.a);
        cr_assert_geq(stream_end_pull(&p.b), 0);
        if (iwarp_in_space(&p.b.side.ep, &to) == 0 && !stream_pack(&p.b.st))
            break;
    }
    cr_assert_geq(stream_end_pull(&p.b), 0);
    cr_expect_gt(stream_avail(&p.b.st), SIDE_IN_CAP * 3 / 4);
    for (size_t at = 0, n; (n = stream_end_read(&p.b, got, 1000)) > 0; at += n)
        for (size_t i = 0; i < n; i++)
            cr_assert_eq(got[i], data[(at + i) % 1000], "octet %zu", at + i);
    while (stream_end_pull(&p.b) > 0)
        stream_end_read(&p.b, got, 1000);
    cr_expect(iwarp_in_eof(&p.b.side.ep), "all was given back");
}

static int poll_apart(struct endpoint *ep, struct endpoint_event *ev)
{
    int r = iwarp_poll(ep, ev);

    ev->in_place = false;
    return r;
}

/* Those that cannot be joined wait for the reader. */
Test(stream, too_many_small_messages_wait_for_the_reader, .fini = teardown)
{
    many_small_messages();
    struct endpoint_ops apart = iwarp_endpoint_ops;
    apart.poll = poll_apart;
    endpoint_init(&p.b.side.ep.base, &apart);
    cr_assert_eq(stream_poll(&p.b.st), 1);
    cr_expect(stream_paused(&p.b.st));
    size_t first = (size_t)stream_avail(&p.b.st);
    cr_expect_lt(first, STREAM_SLICES);
    cr_expect_eq(stream_poll(&p.b.st), 0, "no room for more");
    cr_expect_eq(stream_avail(&p.b.st), first);
    cr_assert_eq(stream_end_read(&p.b, got, 10), 10u);
    cr_expect_eq(stream_poll(&p.b.st), 1);
    cr_expect_eq(stream_avail(&p.b.st), first);
    size_t at = 10;
    while (at < 2 * STREAM_SLICES) {
        size_t n = stream_end_read(&p.b, got + at, 100);

        cr_assert_gt(n, 0u);
        at += n;
        cr_assert_geq(stream_poll(&p.b.st), 0);
    }
    cr_expect_arr_eq(got + 10, data + 10, at - 10);
    cr_expect(!stream_paused(&p.b.st));
    cr_expect(iwarp_in_eof(&p.b.side.ep), "all was given back");
}

/* ---- urgent octets ---- */

static void urgent_from_a(uint8_t octet)
{
    struct iovec v = { &octet, 1 };
    struct iov_iter it = iov_iter_init(&v, 1);

    cr_assert_eq(stream_write_urgent(&p.a.st, &it), 1);
    cr_assert(stream_end_push(&p.a));
    cr_assert_geq(stream_end_pull(&p.b), 0);
}

static void octets_from_a(size_t len)
{
    cr_assert_eq(stream_end_write(&p.a, data, len), (ssize_t)len);
    stream_end_push(&p.a);
    cr_assert_geq(stream_end_pull(&p.b), 0);
}

Test(stream, an_urgent_octet_is_marked_where_it_lies, .fini = teardown)
{
    setup_llp();
    octets_from_a(700);
    cr_expect_eq(stream_mark(&p.b.st), UINT64_MAX);
    urgent_from_a('!');
    octets_from_a(10);
    cr_expect_eq(p.b.st.rx.urgent, STREAM_URGENT_VALID);
    cr_expect_eq(p.b.st.rx.urgent_octet, '!');
    cr_expect_eq(stream_mark(&p.b.st), 700u);
    cr_assert_eq(stream_end_read(&p.b, got, 699), 699u);
    cr_expect_eq(stream_mark(&p.b.st), 1u);
    cr_assert_eq(stream_end_read(&p.b, got, 1), 1u);
    cr_expect_eq(stream_mark(&p.b.st), 0u);
    cr_assert_eq(stream_end_read(&p.b, got, 11), 11u);
    cr_expect_eq(got[0], '!');
    cr_expect_eq(stream_mark(&p.b.st), UINT64_MAX);
    cr_expect_eq(p.b.st.rx.urgent, STREAM_URGENT_NONE);
}

Test(stream, a_newer_urgent_octet_takes_the_older_ones_place, .fini = teardown)
{
    setup_llp();
    octets_from_a(3);
    urgent_from_a('1');
    urgent_from_a('2'); /* the older one is an octet like others */
    cr_expect_eq(stream_mark(&p.b.st), 4u);
    cr_expect_eq(p.b.st.rx.urgent_octet, '2');
    cr_assert_eq(stream_end_read(&p.b, got, 4), 4u);
    cr_expect_eq(got[3], '1');
    urgent_from_a('3'); /* all before the older one was read: it is gone */
    cr_expect_eq(stream_mark(&p.b.st), 0u);
    cr_expect_eq(stream_avail(&p.b.st), 1u);
    p.b.st.rx.urgent_inline = true;
    urgent_from_a('4');
    cr_expect_eq(stream_mark(&p.b.st), 1u);
    cr_assert_eq(stream_end_read(&p.b, got, 2), 2u);
    cr_expect_arr_eq(got, "34", 2);
    cr_expect(iwarp_in_eof(&p.b.side.ep));
    /* One that its owner has read ahead. */
    p.b.st.rx.urgent_taken = p.b.st.rx.total + 3;
    octets_from_a(2);
    urgent_from_a('5');
    cr_expect_eq(p.b.st.rx.urgent, STREAM_URGENT_READ);
    cr_expect_eq(stream_mark(&p.b.st), 2u);
}

Test(stream, an_urgent_octet_can_be_taken_back, .fini = teardown)
{
    uint8_t octet = '!';
    struct iovec v = { &octet, 1 };
    struct iov_iter it = iov_iter_init(&v, 1);

    setup_llp();
    cr_assert_eq(stream_write_urgent(&p.a.st, &it), 1);
    cr_assert_eq(stream_unpost(&p.a.st, iwarp_out_detach(&p.a.side.ep).frames), 1u);
    octets_from_a(5);
    cr_expect_eq(stream_avail(&p.b.st), 5u);
    cr_expect_eq(stream_mark(&p.b.st), UINT64_MAX);
}

Test(stream, no_urgent_octets_for_a_peer_that_takes_none, .fini = teardown)
{
    struct iov_iter it = iov_iter_init(NULL, 0);

    setup_llp();
    p.a.st.cfg.peer.flags &= (uint8_t)~STREAM_FLAG_URGENT;
    cr_expect_eq(stream_write_urgent(&p.a.st, &it), -EOPNOTSUPP);
    p.a.st.tx.fin = true;
    cr_expect_eq(stream_write_urgent(&p.a.st, &it), -EPIPE);
}

/* ---- the batch ---- */

Test(stream, a_full_batch_owes_its_notify_until_it_is_out, .fini = teardown)
{
    size_t max;

    setup_llp();
    /* One Write that takes all frames there are: ring wide enough first. */
    stream_pair_fini(&p);
    struct stream_pair_cfg c = stream_pair_llp();
    c.ring_len = 1u << 20;
    setup(&c);
    max = iwarp_write_max(&p.a.side.ep.base);
    cr_assert_leq(max, sizeof(data));
    cr_assert_eq(stream_end_write(&p.a, data, max), (ssize_t)max);
    cr_expect(p.a.st.tx.notify_owed);
    cr_expect_eq(stream_end_write(&p.a, data, 10), 0, "nothing fits any more");
    cr_assert(side_push(&p.a.side, p.a.out));
    cr_expect(p.a.st.tx.notify_owed);
    stream_flushed(&p.a.st);
    cr_expect(!p.a.st.tx.notify_owed);
    cr_expect_eq(p.a.st.tx.batch_n, 1u);
    expect_at_b(0, max);
}

/* An endpoint without limits that counts what is posted. */
struct mock {
    struct endpoint base;
    unsigned sends, writes;
    int refuse; /* post_send answers so */
    struct stream_hdr last;
};

static size_t mock_max(const struct endpoint *e)
{
    (void)e;
    return 1000;
}

static int mock_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    (void)stag;
    (void)to;
    ((struct mock *)e)->writes++;
    return iov_iter_skip(src, len) == len ? 0 : -EINVAL;
}

static int mock_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    struct mock *m = (struct mock *)e;

    if (m->refuse)
        return m->refuse;
    m->sends++;
    cr_assert_eq(stream_hdr_decode(hdr, hdr_len, &m->last), 0);
    return iov_iter_skip(src, len) == len ? 0 : -EINVAL;
}

static const struct endpoint_ops mock_ops = {
    .name = "mock",
    .write_max = mock_max,
    .send_max = mock_max,
    .post_write = mock_write,
    .post_send = mock_send,
};

static void mock_setup(struct mock *m, struct stream *st, bool llp)
{
    struct stream_pair_cfg c = stream_pair_llp();
    struct stream_cfg sc = { .ep = &m->base, .ring = data, .eager_limit = 10 };

    *m = (struct mock){ 0 };
    endpoint_init(&m->base, &mock_ops);
    c.llp = llp;
    c.ring_len = 1u << 20;
    sc.local = sc.peer = stream_end_params(&c, 1);
    cr_assert_eq(stream_init(st, &sc), 0);
}

Test(stream, the_last_place_of_a_batch_is_for_the_notify)
{
    struct mock m;
    struct stream st;
    struct iovec v = { data, sizeof(data) };
    struct iov_iter it = iov_iter_init(&v, 1);

    mock_setup(&m, &st, true);
    cr_assert_eq(stream_write(&st, &it, 65000), 65000 * 63 / 65);
    cr_expect_eq(m.writes, STREAM_BATCH - 1);
    cr_expect_eq(m.sends, 1u);
    cr_expect_eq(m.last.off, 63000u);
    cr_expect_eq(stream_write(&st, &it, 1), 0);
    cr_expect_eq(stream_fin(&st), -EAGAIN);
    stream_flushed(&st);
    cr_expect_eq(m.sends, 1u, "nothing is owed");
    cr_expect_eq(stream_fin(&st), 0);
}

Test(stream, what_the_peer_was_told_in_a_dropped_message_is_told_again)
{
    struct mock m;
    struct stream st;

    mock_setup(&m, &st, false);
    atomic_store(&st.back_ring, 1u << 19);
    cr_assert(stream_wants_credit(&st));
    cr_assert_eq(stream_credit(&st), 0);
    cr_expect_eq(m.last.type, STREAM_CREDIT);
    cr_expect_eq(m.last.flags, 0);
    cr_expect(!stream_wants_credit(&st));
    cr_expect_eq(stream_unpost(&st, 1), 0u);
    cr_expect(stream_wants_credit(&st), "it never went out");
    cr_expect_eq(stream_credit(&st), 0);
    cr_expect_eq(m.last.ring, 1u << 19);
    cr_expect_eq(stream_credit(&st), -EAGAIN, "one at a time is unanswered");
    atomic_store(&st.peer_credits, 1);
    cr_expect_eq(stream_credit(&st), 0);
}

Test(stream, an_answer_dropped_is_given_again)
{
    struct mock m;
    struct stream st;

    mock_setup(&m, &st, false);
    atomic_store(&st.back_credits, 1);
    cr_assert(stream_wants_credit(&st));
    cr_assert_eq(stream_credit(&st), 0);
    cr_expect_eq(m.last.flags, STREAM_HDR_ANSWER);
    cr_expect_eq(m.last.aux, 1u);
    cr_expect(!stream_wants_credit(&st));
    stream_unpost(&st, 1);
    cr_expect(stream_wants_credit(&st));
}

Test(stream, a_notify_owed_from_before_is_still_owed_when_the_batch_is_dropped)
{
    struct mock m;
    struct stream st;
    struct iovec v = { data, sizeof(data) };
    struct iov_iter it = iov_iter_init(&v, 1);

    mock_setup(&m, &st, true);
    m.refuse = -EAGAIN;
    cr_assert_eq(stream_write(&st, &it, 500), 500);
    cr_expect(st.tx.notify_owed);
    stream_flushed(&st); /* the Write is out, the endpoint still takes no Send */
    cr_expect(st.tx.notify_owed);
    m.refuse = 0;
    cr_assert_eq(stream_write(&st, &it, 10), 10);
    cr_expect(!st.tx.notify_owed);
    cr_expect_eq(m.last.off, 510u);
    cr_expect_eq(stream_unpost(&st, 1), 10u);
    cr_expect(!st.tx.notify_owed, "a fresh one was posted");
    cr_expect_eq(m.last.off, 500u);
    m.refuse = -EAGAIN;
    stream_unpost(&st, 1);
    cr_expect(st.tx.notify_owed);
}

Test(stream, fin_that_was_dropped_can_be_posted_again)
{
    struct mock m;
    struct stream st;

    mock_setup(&m, &st, true);
    cr_assert_eq(stream_fin(&st), 0);
    cr_expect_eq(stream_unpost(&st, 1), 0u);
    cr_expect(!st.tx.fin);
    cr_assert_eq(stream_fin(&st), 0);
    cr_expect_eq(m.sends, 2u);
}

/* ---- a batch cut at every octet ---- */

static const size_t cut_sizes[] = { 10, 2500, 1, 600, 512 };

/* The program's octets in memory that is taken away from the endpoint afterwards. */
static uint8_t lent[8192];

static size_t post_batch(void)
{
    size_t at = 0;

    for (size_t i = 0; i < SW_ARRAY_LEN(cut_sizes); i++) {
        memcpy(lent + at, data + at, cut_sizes[i]);
        ssize_t n = stream_end_write(&p.a, lent + at, cut_sizes[i]);
        cr_assert_geq(n, 0);
        at += (size_t)n;
        if ((size_t)n < cut_sizes[i])
            break;
    }
    return at;
}

/* Sends exactly n octets of the batch; returns how many there were. */
static size_t send_exactly(size_t n)
{
    const struct iovec *iov;
    struct iovec part[IWARP_OUT_IOV];
    size_t len, cnt = iwarp_out(&p.a.side.ep, &iov, &len), all = len, left = n, k = 0;

    for (; k < cnt && left > 0; k++) {
        part[k] = iov[k];
        if (part[k].iov_len > left)
            part[k].iov_len = left;
        left -= part[k].iov_len;
    }
    if (n > 0) {
        cr_assert_eq(mem_pipe_write(p.a.out, part, k), n);
        iwarp_out_sent(&p.a.side.ep, n);
    }
    return all;
}

/* Returns octets of the batch. */
static size_t cut_at(const struct stream_pair_cfg *c, size_t cut)
{
    size_t accepted, all, at;

    stream_pair_init(&p, c);
    stream_pair_start(&p);
    accepted = post_batch();
    all = send_exactly(cut);
    if (cut == all)
        stream_flushed(&p.a.st);
    struct iwarp_cut dropped = iwarp_out_detach(&p.a.side.ep);
    size_t back = stream_unpost(&p.a.st, dropped.frames);
    cr_assert_leq(back, accepted, "cut at %zu", cut);
    accepted -= back;
    cr_assert_eq(p.a.st.tx.total, accepted, "cut at %zu", cut);
    memset(lent, 0xdd, sizeof(lent)); /* it is the program's again */
    /* It goes on from where it was told. */
    for (at = accepted; at < 5000;) {
        stream_end_push(&p.a);
        ssize_t n = stream_end_write(&p.a, data + at, 5000 - at);
        cr_assert_geq(n, 0, "cut at %zu", cut);
        at += (size_t)n;
        stream_end_push(&p.a);
        cr_assert_geq(stream_end_pull(&p.b), 0, "cut at %zu", cut);
        memset(got, 0, 100);
        size_t have = (size_t)p.b.st.rx.total, m = stream_end_read(&p.b, got, sizeof(got));
        cr_assert(memcmp(got, data + have, m) == 0, "cut at %zu: octets from %zu on", cut, have);
        stream_end_push(&p.b);
        stream_end_pull(&p.b);
        stream_end_push(&p.b);
        stream_end_pull(&p.a);
    }
    cr_assert_eq(stream_fin(&p.a.st), 0, "cut at %zu", cut);
    stream_pair_settle(&p);
    size_t have = (size_t)p.b.st.rx.total, m = stream_end_read(&p.b, got, sizeof(got));
    cr_assert(memcmp(got, data + have, m) == 0, "cut at %zu: octets from %zu on", cut, have);
    cr_assert_eq(p.b.st.rx.total, 5000u, "cut at %zu", cut);
    cr_assert_eq(p.b.st.rx.end, STREAM_EOF, "cut at %zu", cut);
    stream_pair_fini(&p);
    return all;
}

static void cut_everywhere(const struct stream_pair_cfg *c)
{
    size_t all = 1;

    setup(c);
    stream_pair_fini(&p);
    for (size_t cut = 0; cut <= all; cut++)
        all = cut_at(c, cut);
    cr_assert_gt(all, 3600u);
}

Test(stream, cut_at_any_octet_by_the_llp_the_peer_gets_just_what_was_accepted)
{
    struct stream_pair_cfg c = stream_pair_llp();

    cut_everywhere(&c);
}

Test(stream, cut_at_any_octet_with_credits_the_peer_gets_just_what_was_accepted)
{
    struct stream_pair_cfg c = stream_pair_credits();

    c.bufs = 10;
    cut_everywhere(&c);
}

/* ---- credits ---- */

/* RFC 5041 7.1/2: a peer whose programs read slowly is not sent what it has no buffer for. */
Test(stream, a_writer_stops_at_the_buffers_kept_back, .fini = teardown)
{
    size_t at = 0;

    setup_credits(5);
    for (ssize_t n; (n = stream_end_write(&p.a, data + at, 10)) > 0; at += (size_t)n)
        stream_end_push(&p.a);
    cr_expect_eq(at, 30u, "three of five");
    cr_expect_eq(stream_fin(&p.a.st), -EAGAIN);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_write(&p.a, data + at, 10), 0, "b has not read yet");
    expect_at_b(0, 30);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_write(&p.a, data + at, 10), 10);
}

Test(stream, a_writer_stops_at_the_full_ring, .fini = teardown)
{
    setup_credits(20);
    cr_expect_eq(stream_end_write(&p.a, data, 6000), 4096);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_write(&p.a, data + 4096, 1904), 0);
    cr_assert_eq(stream_end_read(&p.b, got, 2047), 2047u);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_write(&p.a, data + 4096, 1904), 0, "less than half is not told");
    cr_assert_eq(stream_end_read(&p.b, got + 2047, 1), 1u);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_write(&p.a, data + 4096, 1904), 1904);
    stream_pair_settle(&p);
    cr_assert_eq(stream_end_read(&p.b, got + 2048, 9000), 6000u - 2048u);
    cr_expect_arr_eq(got, data, 6000);
}

Test(stream, credits_come_to_rest)
{
    for (uint16_t bufs = 3; bufs < 12; bufs++) {
        setup_credits(bufs);
        for (size_t i = 0; i < 30; i++) {
            cr_assert_eq(stream_end_write(&p.a, data, 10), 10, "%u buffers", bufs);
            cr_assert_eq(stream_end_write(&p.b, data, 10), 10, "%u buffers", bufs);
            stream_pair_settle(&p); /* fails if they never stop */
            cr_assert_eq(stream_end_read(&p.a, got, 100), 10u);
            cr_assert_eq(stream_end_read(&p.b, got, 100), 10u);
            stream_pair_settle(&p);
        }
        teardown();
    }
}

/*
 * Neither reads before it has written all: TCP's buffers would let the ring's worth and more
 * through.
 */
Test(stream, what_the_peers_program_leaves_unread_does_not_hold_up_the_other_direction)
{
    for (uint16_t bufs = 3; bufs < 12; bufs++) {
        size_t filled = 0, at = 0;

        setup_credits(bufs);
        for (ssize_t n; (n = stream_end_write(&p.b, data, 10)) > 0; filled += (size_t)n)
            stream_end_push(&p.b);
        stream_pair_settle(&p);
        /* a's staging holds b's unread messages and every control message behind them. */
        while (at < 60000) {
            ssize_t n = stream_end_write(&p.a, data + at % 1000, 60000 - at < 700 ? 60000 - at : 700);
            cr_assert_gt(n, 0, "%u buffers, at %zu", bufs, at);
            at += (size_t)n;
            stream_pair_settle(&p);
            cr_assert_eq(stream_end_read(&p.b, got, sizeof(got)), (size_t)n);
            stream_pair_settle(&p);
        }
        cr_expect_eq(stream_avail(&p.a.st), filled);
        teardown();
    }
}

/* ---- an endpoint whose buffers are given back one by one ---- */

static struct {
    struct endpoint base;
    uint8_t buf[6][64];
    size_t len[6];
    unsigned polled, given, released[6];
} alone;

static int alone_poll(struct endpoint *e, struct endpoint_event *ev)
{
    (void)e;
    if (alone.polled == alone.given)
        return 0;
    unsigned i = alone.polled++;
    *ev = (struct endpoint_event){ .type = ENDPOINT_SEND, .data = alone.buf[i], .len = alone.len[i] };
    return 1;
}

static void alone_release(struct endpoint *e, const uint8_t *upto)
{
    (void)e;
    alone.released[(size_t)(upto - 1 - alone.buf[0]) / sizeof(alone.buf[0])]++;
}

static size_t alone_max(const struct endpoint *e)
{
    (void)e;
    return 4096;
}

static const struct endpoint_ops alone_ops = {
    .name = "alone",
    .write_max = alone_max,
    .send_max = alone_max,
    .poll = alone_poll,
    .release = alone_release,
    .each_alone = true,
};

static void alone_message(uint8_t type, uint32_t off, const char *octets)
{
    struct stream_hdr h = { .type = type, .off = off };
    stream_hdr_encode(&h, alone.buf[alone.given]);
    memcpy(alone.buf[alone.given] + STREAM_HDR_LEN, octets, strlen(octets));
    alone.len[alone.given++] = STREAM_HDR_LEN + strlen(octets);
}

Test(stream, a_credits_buffer_is_given_back_while_octets_before_it_are_unread)
{
    static uint8_t ring[4096];
    static struct stream st;
    struct stream_params params = { .version = 1, .ring_len = sizeof(ring), .eager_max = 48, .bufs = 8 };
    struct stream_cfg cfg = { .ep = &alone.base, .local = params, .peer = params, .ring = ring };
    endpoint_init(&alone.base, &alone_ops);
    cr_assert_eq(stream_init(&st, &cfg), 0);
    alone_message(STREAM_DATA, 3, "abc");
    alone_message(STREAM_CREDIT, 3, "");
    alone_message(STREAM_DATA, 5, "de");
    cr_assert_eq(stream_poll(&st), 1);
    cr_expect_eq(alone.released[0], 0u, "its octets are unread");
    cr_expect_eq(alone.released[1], 1u);
    cr_expect_eq(alone.released[2], 0u);
    struct iovec iov = { got, 8 };
    struct iov_iter it = iov_iter_init(&iov, 1);
    cr_assert_eq(stream_read(&st, &it, 8), 5u);
    cr_expect_arr_eq(got, "abcde", 5);
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(alone.released[i], 1u, "message %u", i);
}

/* RFC 5041 7.1/1: the peer knows how many there are; one message more than that, while none was given back, is its fault. */
Test(stream, a_peer_that_uses_more_buffers_than_it_was_given_breaks_the_stream)
{
    static uint8_t ring[4096];
    static struct stream st;
    struct stream_params params = { .version = 1, .ring_len = sizeof(ring), .eager_max = 48, .bufs = 4 };
    struct stream_cfg cfg = { .ep = &alone.base, .local = params, .peer = params, .ring = ring };
    endpoint_init(&alone.base, &alone_ops);
    cr_assert_eq(stream_init(&st, &cfg), 0);
    for (uint32_t i = 1; i <= 4; i++) {
        alone_message(STREAM_DATA, i, "x");
        cr_assert_eq(stream_poll(&st), 1, "message %u of 4", i);
    }
    alone_message(STREAM_CREDIT, 4, "");
    cr_assert_geq(stream_poll(&st), 0, "a CREDIT takes none of them");
    alone_message(STREAM_DATA, 5, "x");
    cr_expect_eq(stream_poll(&st), -EPROTO);
}

Test(stream, announced_ring_octets_that_follow_each_other_wait_as_one_run)
{
    static uint8_t ring[4096];
    static struct stream st;
    struct stream_params params = { .version = 1, .ring_len = sizeof(ring), .eager_max = 48, .bufs = 8 };
    struct stream_cfg cfg = { .ep = &alone.base, .local = params, .peer = params, .ring = ring };
    endpoint_init(&alone.base, &alone_ops);
    cr_assert_eq(stream_init(&st, &cfg), 0);
    alone_message(STREAM_DATA, 1000, "");
    alone_message(STREAM_DATA, 2000, "");
    alone_message(STREAM_DATA, 2002, "xy");
    alone_message(STREAM_DATA, 2500, "");
    cr_assert_eq(stream_poll(&st), 1);
    cr_expect_eq(st.rx.n, 3u, "ring, message, ring");
    cr_expect_eq(stream_avail(&st), 2500u);
    cr_expect_eq(stream_discard(&st, 2500), 2500u);
    cr_expect_eq(atomic_load(&st.back_ring), 2498u);
}
