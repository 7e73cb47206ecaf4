/*
 * The notify as Immediate Data (RFC 7306 section 6): used when both ends say so and the LLP controls the
 * flow, and then as good as the Send it stands for. And the receive buffers, where credits count them.
 */
#include "tests/unit/stream_pair.h"

static struct stream_pair p;
static uint8_t data[1 << 16], got[1 << 16];

static void setup(bool immediate, bool llp)
{
    struct stream_pair_cfg c = llp ? stream_pair_llp() : stream_pair_credits();

    c.immediate = immediate;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 13 + (i >> 8) * 5 + 1);
    stream_pair_init(&p, &c);
    stream_pair_start(&p);
}

static void teardown(void)
{
    stream_pair_fini(&p);
}

Test(stream_immediate, writes_are_followed_by_immediate_data_and_no_send, .fini = teardown)
{
    setup(true, true);
    cr_assert_eq(stream_end_write(&p.a, data, 3000), 3000);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_read(&p.b, got, sizeof(got)), 3000u);
    cr_expect_arr_eq(got, data, 3000);
    cr_expect_eq(p.a.side.ep.stats.tx_immediates, 1u);
    cr_expect_eq(p.b.side.ep.stats.rx_immediates, 1u);
    cr_expect_eq(p.a.side.ep.stats.tx_sends, 0u);
    cr_expect(iwarp_in_eof(&p.b.side.ep));
    /* Small writes stay Sends, and the two go together. */
    cr_assert_eq(stream_end_write(&p.a, data, 100), 100);
    cr_assert_eq(stream_end_write(&p.a, data + 100, 5000), 5000);
    stream_pair_settle(&p);
    cr_expect_eq(stream_end_read(&p.b, got, sizeof(got)), 5100u);
    cr_expect_arr_eq(got, data, 5100);
    cr_expect_eq(p.a.side.ep.stats.tx_sends, 1u);
    cr_expect_eq(p.a.side.ep.stats.tx_immediates, 2u);
}

/* Both ends must say so, and 8 octets have no room for credits. */
/* RFC 7306 1.1/1: agreed on by the ULP */
Test(stream_immediate, without_both_ends_word_or_with_credits_the_notify_is_a_send)
{
    for (int i = 0; i < 3; i++) {
        setup(i != 0, i != 2);
        if (i == 1) {
            struct stream_cfg c = p.a.st.cfg;

            c.peer.flags &= (uint8_t)~STREAM_FLAG_IMMEDIATE;
            cr_assert_eq(stream_init(&p.a.st, &c), 0);
        }
        cr_assert_eq(stream_end_write(&p.a, data, 2000), 2000);
        stream_pair_settle(&p);
        cr_expect_eq(stream_end_read(&p.b, got, sizeof(got)), 2000u, "%d", i);
        cr_expect_eq(p.a.side.ep.stats.tx_immediates, 0u, "%d", i);
        cr_expect_geq(p.a.side.ep.stats.tx_sends, 1u, "%d", i);
        teardown();
    }
}

static void breaks(const char *what)
{
    stream_end_push(&p.a);
    cr_expect_eq(stream_end_pull(&p.b), -EPROTO, "%s", what);
    cr_expect_eq(p.b.st.rx.end, STREAM_BROKEN, "%s", what);
    teardown();
}

Test(stream_immediate, an_offset_that_is_not_where_the_writes_end_is_broken)
{
    static const uint64_t offs[] = { 0, 99, 101, 100 | 1ull << 32, UINT64_MAX };

    for (size_t i = 0; i < SW_ARRAY_LEN(offs); i++) {
        setup(true, true);
        cr_assert_eq(side_write(&p.a.side, p.b.st.cfg.local.ring_stag, 0, data, 100), 0);
        cr_assert_eq(iwarp_post_immediate(&p.a.side.ep.base, offs[i], true), 0);
        breaks("offset");
    }
    /* With or without Solicited Event, the right one is good. */
    for (int se = 0; se < 2; se++) {
        setup(true, true);
        cr_assert_eq(side_write(&p.a.side, p.b.st.cfg.local.ring_stag, 0, data, 100), 0);
        cr_assert_eq(iwarp_post_immediate(&p.a.side.ep.base, 100, se), 0);
        stream_end_push(&p.a);
        cr_expect_geq(stream_end_pull(&p.b), 0);
        cr_expect_eq(stream_avail(&p.b.st), 100u);
        teardown();
    }
}

Test(stream_immediate, what_nobody_agreed_to_or_follows_the_end_is_broken)
{
    setup(true, false);
    cr_assert_eq(iwarp_post_immediate(&p.a.side.ep.base, 0, true), 0);
    breaks("with credits");
    setup(true, true);
    cr_assert_eq(stream_fin(&p.a.st), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.side.ep.base, 0, true), 0);
    breaks("behind FIN");
}

/* A batch that is cut at any octet: what stays was announced or is announced anew. */
Test(stream_immediate, cut_at_any_octet_the_peer_gets_just_what_was_accepted)
{
    for (size_t cut = 0;; cut++) {
        const struct iovec *iov;
        size_t len, n, back;

        setup(true, true);
        cr_assert_eq(stream_end_write(&p.a, data, 3000), 3000);
        n = iwarp_out(&p.a.side.ep, &iov, &len);
        cr_assert_gt(n, 0u);
        if (cut > len) {
            teardown();
            return;
        }
        for (size_t i = 0, left = cut; left > 0; i++) {
            struct iovec v = { iov[i].iov_base, iov[i].iov_len < left ? iov[i].iov_len : left };

            cr_assert_eq(mem_pipe_write(&p.ab, &v, 1), v.iov_len);
            left -= v.iov_len;
        }
        iwarp_out_sent(&p.a.side.ep, cut);
        if (cut < len)
            back = stream_unpost(&p.a.st, iwarp_out_detach(&p.a.side.ep).frames);
        else
            back = 0;
        stream_pair_settle(&p);
        cr_expect_eq(stream_end_read(&p.b, got, sizeof(got)), 3000 - back, "cut at %zu", cut);
        cr_expect_arr_eq(got, data, 3000 - back);
        cr_expect_not(p.a.st.tx.notify_owed, "cut at %zu", cut);
        cr_assert_eq(stream_end_write(&p.a, data, 2000), 2000);
        stream_pair_settle(&p);
        cr_expect_eq(stream_end_read(&p.b, got, sizeof(got)), 2000u, "cut at %zu", cut);
        teardown();
    }
}

/* ---- credits: receive buffers ---- */

/* RFC 5042 section 6.4.1: a peer that uses more receive buffers than it was given is at fault */
Test(stream_immediate, with_credits_more_messages_than_buffers_are_broken)
{
    struct stream_pair_cfg c = stream_pair_credits();

    for (uint16_t more = 0; more < 2; more++) {
        c.bufs = 5;
        stream_pair_init(&p, &c);
        stream_pair_start(&p);
        for (uint32_t i = 1; i <= c.bufs + more; i++)
            stream_end_raw(&p.a, (struct stream_hdr){ .type = STREAM_DATA, .off = i }, "x", 1);
        stream_end_push(&p.a);
        cr_expect_eq(stream_end_pull(&p.b) < 0, more == 1, "%u", more);
        teardown();
    }
}
