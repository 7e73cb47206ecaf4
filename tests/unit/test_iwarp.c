/*
 * The software endpoint with a peer of its own kind: every operation, any cut of the byte stream,
 * the RTR in all its kinds, and the batch cut at every octet. What a peer may do wrong is in
 * test_iwarp_errors.c.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

#define PIPE_CAP (1u << 20)

static struct pair p;
static uint8_t data[1 << 16];
static uint8_t sink[1 << 16];

static void fill(void)
{
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + 1);
    memset(sink, 0, sizeof(sink));
}

static void setup(uint8_t rtr)
{
    fill();
    cr_assert_eq(pair_init(&p, rtr, PIPE_CAP), 0);
}

/* All octets there are go over, both ways, until nothing moves; no event is expected. */
static void settle(void)
{
    struct endpoint_event ev;

    for (bool moved = true; moved;) {
        moved = false;
        side_push(&p.a, &p.ab);
        side_push(&p.b, &p.ba);
        moved |= side_pull(&p.b, &p.ab) > 0;
        cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
        moved |= side_pull(&p.a, &p.ba) > 0;
        cr_assert_eq(iwarp_poll(&p.a.ep.base, &ev), 0);
    }
}

/* The next event at b after what a has to send came over. */
static int next_at(struct side *to, struct side *from, struct mem_pipe *pipe, struct endpoint_event *ev)
{
    for (;;) {
        bool out = side_push(from, pipe);
        int r = iwarp_poll(&to->ep.base, ev);

        if (r != 0)
            return r;
        if (side_pull(to, pipe) == 0 && out)
            return iwarp_poll(&to->ep.base, ev);
    }
}

static void expect_send(struct side *to, struct side *from, struct mem_pipe *pipe, const char *hdr,
                        const uint8_t *payload, size_t len)
{
    size_t hdr_len = strlen(hdr);
    struct endpoint_event ev;

    cr_assert_eq(next_at(to, from, pipe, &ev), 1, "%s", hdr);
    cr_assert_eq(ev.type, ENDPOINT_SEND);
    cr_assert_eq(ev.len, hdr_len + len);
    cr_expect_arr_eq(ev.data, hdr, hdr_len);
    if (len)
        cr_expect_arr_eq(ev.data + hdr_len, payload, len);
    iwarp_release(&to->ep.base, ev.data + ev.len);
}

/* ---- setting up ---- */

/* RFC 5044 3/4,5: a MULPDU outside 128 to 64768 is refused */
Test(iwarp, configurations_that_cannot_work_are_refused)
{
    struct iwarp_cfg good, c;
    struct iwarp_ep ep;

    setup(0);
    good = side_cfg(&p.a, true, 0);
    cr_assert_eq(iwarp_init(&ep, &good), 0);
#define REFUSED(change)                                      \
    do {                                                     \
        c = good;                                            \
        change;                                              \
        cr_expect_eq(iwarp_init(&ep, &c), -EINVAL, #change); \
    } while (0)
    REFUSED(c.mulpdu = MPA_MULPDU_MIN - 1);
    REFUSED(c.mulpdu = MPA_MULPDU_MAX + 1);
    REFUSED(c.in_cap = MPA_FPDU_MAX - 1);
    REFUSED(c.out_cap = MPA_FPDU_MAX + 511);
    REFUSED(c.send_max = 0);
    REFUSED((c.rx.markers = true, c.in_cap = MPA_FPDU_MARKED_MAX - 1));
    REFUSED(c.rtr = 3);
    pair_fini(&p);
}

Test(iwarp, largest_messages_fit_one_batch_and_out_buf)
{
    struct iwarp_cfg c;

    setup(0);
    cr_expect_eq(iwarp_write_max(&p.a.ep.base), 63u * (1024 - 14));
    cr_expect_eq(iwarp_send_max(&p.a.ep.base), SIDE_SEND_MAX);
    c = side_cfg(&p.a, true, 0);
    c.mulpdu = MPA_MULPDU_MAX;
    c.send_max = 1 << 30;
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    cr_expect_eq(iwarp_write_max(&p.a.ep.base), SIDE_OUT_CAP);
    cr_expect_eq(iwarp_send_max(&p.a.ep.base), SIDE_OUT_CAP);
    pair_fini(&p);
}

/* ---- RTR: each kind, and which end speaks first ---- */

enum { INITIATOR_FIRST = 1, RESPONDER_FIRST = 2, BOTH_FIRST = 3 };

static void rtr_case(uint8_t rtr, int who)
{
    struct endpoint_event ev;
    uint64_t fpdus = rtr == MPA_RTR_READ ? 1 : 0;

    setup(rtr);
    cr_expect(!iwarp_can_send(&p.b.ep));
    cr_expect(iwarp_can_send(&p.a.ep));
    cr_expect_eq(side_send(&p.b, "early", 5, data, 10), -EAGAIN);
    cr_expect_eq(side_write(&p.b, 1, 0, data, 10), -EAGAIN);
    cr_expect_eq(iwarp_post_read(&p.b.ep, &(struct rdmap_read){ 0 }), -EAGAIN);
    if (rtr == 0 && who == RESPONDER_FIRST)
        who = BOTH_FIRST; /* without RTR the initiator's ULP speaks first */

    if (who & INITIATOR_FIRST) {
        cr_assert_eq(side_send(&p.a, "hello", 5, data, 100), 0);
        expect_send(&p.b, &p.a, &p.ab, "hello", data, 100);
    } else {
        cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    }
    cr_assert(iwarp_can_send(&p.b.ep));
    cr_expect_eq(iwarp_state_now(&p.b.ep), IWARP_FULL);
    cr_expect_eq(iwarp_ctrl_pending(&p.b.ep), rtr == MPA_RTR_READ);
    cr_expect_eq(iwarp_answers_rtr(&p.b.ep), rtr == MPA_RTR_READ);
    if (rtr == MPA_RTR_READ && who == INITIATOR_FIRST)
        cr_expect(side_push(&p.b, &p.ba), "the Read Response by itself");
    if (who & RESPONDER_FIRST) {
        cr_assert_eq(side_send(&p.b, "welcome", 7, data, 50), 0);
        expect_send(&p.a, &p.b, &p.ba, "welcome", data, 50);
    } else {
        cr_assert_eq(next_at(&p.a, &p.b, &p.ba, &ev), 0);
    }
    cr_expect(!iwarp_ctrl_pending(&p.b.ep));
    cr_expect(!iwarp_answers_rtr(&p.b.ep));
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 0, "the RTR is nobody's Read");
    cr_expect_eq(p.a.ep.stats.rx_fpdus, fpdus + (who & RESPONDER_FIRST ? 1 : 0));
    cr_expect_eq(p.b.ep.stats.rx_sends, who & INITIATOR_FIRST ? 1 : 0);
    cr_expect_eq(p.a.ep.stats.tx_sends, who & INITIATOR_FIRST ? 1 : 0);
    /* And on they go. */
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(side_send(&p.a, "a", 1, data + i, 10), 0);
        expect_send(&p.b, &p.a, &p.ab, "a", data + i, 10);
        cr_assert_eq(side_send(&p.b, "b", 1, data + i, 10), 0);
        expect_send(&p.a, &p.b, &p.ba, "b", data + i, 10);
    }
    pair_fini(&p);
}

Test(iwarp, rtr_of_each_kind_opens_the_responder_whoever_speaks_first)
{
    static const uint8_t kinds[] = { 0, MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };

    for (size_t k = 0; k < sizeof(kinds); k++)
        for (int who = INITIATOR_FIRST; who <= BOTH_FIRST; who++)
            rtr_case(kinds[k], who);
}

/*
 * The order of answers and posts stays RFC 5040 section 5.5: the answer is to what came before. RFC 5040 5.2.2/1: it is
 * a tagged segment, to the sink's STag and offset.
 */
Test(iwarp, answer_to_a_read_as_rtr_that_was_left_comes_first_in_the_batch_of_the_first_message)
{
    struct endpoint_event ev;
    const struct iovec *iov;
    size_t len, first;

    setup(MPA_RTR_READ);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    cr_assert_eq(side_send(&p.b, "one", 3, data, 100), 0);
    cr_assert_eq(side_send(&p.b, "two", 3, data, 100), 0);
    cr_assert_gt(iwarp_out(&p.b.ep, &iov, &len), 0u);
    first = 2 + fb_get(iov[0].iov_base, 2);
    cr_expect_eq(((uint8_t *)iov[0].iov_base)[3] & 0xf, RDMAP_READ_RESPONSE);
    cr_expect_eq(((uint8_t *)iov[0].iov_base)[2], 0xc1, "tagged, last, DDP version 1");
    cr_expect_gt(len, first + 200);
    /* What is taken back is the program's messages; the answer stays. */
    cr_expect_eq(iwarp_out_detach(&p.b.ep).frames, 2u);
    cr_assert_eq(iwarp_out(&p.b.ep, &iov, &len), 1u);
    cr_expect_lt(len, first + 8);
    cr_assert_eq(side_send(&p.b, "one", 3, data, 100), 0);
    expect_send(&p.a, &p.b, &p.ba, "one", data, 100);
    cr_expect_eq(p.a.ep.stats.rx_fpdus, 2);
    pair_fini(&p);
}

/* A peer that asks for more than the RTR waits for its answers. */
Test(iwarp, further_reads_are_not_left_with_the_answer_to_the_rtr)
{
    struct endpoint_event ev;

    setup(MPA_RTR_READ);
    side_push(&p.a, &p.ab);
    cr_assert_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ 0 }), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    cr_expect(!iwarp_answers_rtr(&p.b.ep));
    cr_expect(iwarp_ctrl_pending(&p.b.ep));
    cr_expect_eq(side_send(&p.b, "too soon", 8, data, 1), -EAGAIN);
    cr_expect(side_push(&p.b, &p.ba));
    cr_assert_eq(next_at(&p.a, &p.b, &p.ba, &ev), 0);
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 1);
    pair_fini(&p);
}

/* What the initiator's first FPDU looks like. */
/* RFC 5041 5.2/9: a zero-length message "MUST consume exactly one DDP Segment" */
/* RFC 6581 5/1 and RFC 6581 9.2/8: the RTR is the first of all */
Test(iwarp, rtr_frames_are_zero_length_messages)
{
    static const struct {
        uint8_t rtr;
        long ulpdu;
        uint8_t ctrl, opcode;
    } rows[] = {
        { MPA_RTR_SEND, 18, 0x41, 0x43 },
        { MPA_RTR_WRITE, 14, 0xc1, 0x40 },
        { MPA_RTR_READ, 46, 0x41, 0x41 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t frame[128];
        size_t n;

        setup(rows[i].rtr);
        cr_assert(side_push(&p.a, &p.ab));
        n = mem_pipe_read(&p.ab, frame, sizeof(frame));
        cr_expect_eq(fb_check(frame, n), rows[i].ulpdu, "row %zu", i);
        cr_expect_eq(frame[2], rows[i].ctrl, "row %zu", i);
        cr_expect_eq(frame[3], rows[i].opcode, "row %zu", i);
        if (rows[i].rtr == MPA_RTR_READ)
            cr_expect_eq(fb_get(frame + 2 + 18 + 12, 4), 0, "size");
        else
            cr_expect_lt(n, 30u);
        pair_fini(&p);
    }
}

Test(iwarp, first_fpdu_of_another_kind_than_agreed_is_taken_as_rtr)
{
    static const uint8_t kinds[] = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };
    struct endpoint_event ev;

    for (int agreed = 0; agreed < 3; agreed++) {
        for (int sent = 0; sent < 3; sent++) {
            struct iwarp_cfg c;

            setup(kinds[sent]);
            c = side_cfg(&p.b, false, kinds[agreed]);
            c.ird = 0;
            cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
            cr_expect_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0, "agreed %d, sent %d", agreed, sent);
            cr_expect_eq(iwarp_state_now(&p.b.ep), IWARP_FULL);
            cr_expect_eq(next_at(&p.a, &p.b, &p.ba, &ev), 0);
            cr_expect_eq(iwarp_state_now(&p.a.ep), IWARP_FULL);
            pair_fini(&p);
        }
    }
}

/* RFC 5041 5.2/10,11: STag and TO "MUST NOT be checked for a zero-length" message */
/* RFC 5040 4.4/2: the sink is copied without interpretation */
/* RFC 5040 5.2.1/14,15: size zero: "MUST NOT validate the Data Source STag" */
Test(iwarp, tags_and_sizes_in_a_zero_length_rtr_are_never_validated)
{
    uint8_t frame[128];
    struct endpoint_event ev;
    uint8_t *to;
    size_t n;

    setup(MPA_RTR_WRITE);
    (void)iwarp_in_space(&p.b.ep, &to);
    n = fb_write(frame, 0xdeadbeef, UINT64_MAX, NULL, 0);
    memcpy(to, frame, n);
    iwarp_in_fed(&p.b.ep, n);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    cr_expect(iwarp_can_send(&p.b.ep));

    /* The sink is copied into the Response without interpretation. */
    (void)iwarp_in_space(&p.b.ep, &to);
    n = fb_read_request(frame, 1, 0xcafe0001, UINT64_MAX - 1, 0, 0xdeadbeef, UINT64_MAX);
    memcpy(to, frame, n);
    iwarp_in_fed(&p.b.ep, n);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    cr_assert(side_push(&p.b, &p.ba));
    n = mem_pipe_read(&p.ba, frame, sizeof(frame));
    cr_expect_eq(fb_check(frame, n), 14);
    cr_expect_eq(frame[2], 0xc1);
    cr_expect_eq(frame[3], 0x42);
    cr_expect_eq(fb_get(frame + 4, 4), 0xcafe0001);
    cr_expect_eq(fb_get(frame + 8, 4), 0xffffffffu);
    cr_expect_eq(fb_get(frame + 12, 4), 0xfffffffeu);
    pair_fini(&p);
}

Test(iwarp, without_agreed_rtr_a_zero_length_send_is_the_ulps)
{
    struct endpoint_event ev;

    setup(0);
    cr_assert_eq(side_send(&p.a, NULL, 0, NULL, 0), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.type, ENDPOINT_SEND);
    cr_expect_eq(ev.len, 0);
    iwarp_release(&p.b.ep.base, ev.data);
    cr_assert_eq(side_send(&p.a, NULL, 0, NULL, 0), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    pair_fini(&p);
}

Test(iwarp, only_the_first_zero_length_send_is_the_rtr)
{
    struct endpoint_event ev;

    setup(MPA_RTR_SEND);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    cr_assert_eq(side_send(&p.a, NULL, 0, NULL, 0), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.type, ENDPOINT_SEND);
    cr_expect_eq(ev.len, 0);
    pair_fini(&p);
}

/* ---- messages ---- */

/* RFC 5041 5.2/1,4 and RFC 5041 5.4/2: segmentation and reassembly; the length is told */
/* RFC 5041 4.1/3,4: L on the last segment only */
Test(iwarp, sends_of_every_length_around_the_segment_size_arrive_whole)
{
    setup(MPA_RTR_SEND);
    for (size_t len = 0; len<2300; len += len> 40 && (len % 1006 < 960) ? 23 : 1) {
        cr_assert_eq(side_send(&p.a, "0123456789abcdef", 16, data, len), 0, "%zu", len);
        expect_send(&p.b, &p.a, &p.ab, "0123456789abcdef", data, len);
    }
    cr_assert_eq(side_send(&p.a, NULL, 0, data, SIDE_SEND_MAX), 0);
    expect_send(&p.b, &p.a, &p.ab, "", data, SIDE_SEND_MAX);
    cr_expect_eq(side_send(&p.a, "x", 1, data, SIDE_SEND_MAX), -EMSGSIZE);
    cr_expect_eq(side_send(&p.a, (const char *)data, IWARP_ULP_HDR_MAX + 1, data, 1), -EINVAL);
    pair_fini(&p);
}

/* RFC 5040 5.1/3: a valid Write "MUST NOT be delivered to the Data Sink's ULP" */
/* RFC 5041 5.2/5,7: "MUST Place the ULP Payload", from the TO that the ULP gave */
Test(iwarp, writes_are_placed_and_make_no_event)
{
    uint32_t stag;

    setup(MPA_RTR_WRITE);
    stag = side_region(&p.b, sink, 0x100000000u, sizeof(sink), DDP_ACCESS_REMOTE_WRITE);
    cr_assert_eq(side_write(&p.a, stag, 0x100000000u + 5, data, 1), 0);
    cr_assert_eq(side_write(&p.a, stag, 0x100000000u + 100, data, 5000), 0);
    cr_assert_eq(side_write(&p.a, stag, 0x100000000u + sizeof(sink) - 3, data, 3), 0);
    cr_assert_eq(side_write(&p.a, 0, 0, data, 0), 0);
    settle();
    cr_expect_eq(sink[5], data[0]);
    cr_expect_arr_eq(sink + 100, data, 5000);
    cr_expect_arr_eq(sink + sizeof(sink) - 3, data, 3);
    cr_expect_eq(sink[4] | sink[6] | sink[99] | sink[5100] | sink[sizeof(sink) - 4], 0);
    cr_expect_eq(p.b.ep.stats.rx_writes, 5, "the RTR too");
    cr_expect_eq(p.a.ep.stats.tx_writes, 4);
    cr_expect_eq(side_write(&p.a, stag, 0, data, iwarp_write_max(&p.a.ep.base) + 1), -EMSGSIZE);
    pair_fini(&p);
}

/* RFC 5041 5.3/5: "MUST Deliver DDP Messages to the ULP in the order they were sent" */
/* RFC 5040 5.1/4: issued in the order they were submitted */
Test(iwarp, writes_to_a_deferred_region_are_handed_up_in_order)
{
    struct endpoint_event ev;
    uint64_t at = 7;
    uint32_t stag;

    setup(MPA_RTR_READ);
    stag = side_region(&p.b, NULL, 0, 1 << 20, DDP_ACCESS_REMOTE_WRITE);
    cr_assert_eq(side_write(&p.a, stag, 7, data, 5000), 0);
    cr_assert_eq(side_write(&p.a, stag, 5007, NULL, 0), 0);
    cr_assert_eq(side_write(&p.a, stag, 5007, data + 5000, 1010), 0);
    while (at < 7 + 6010) {
        cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
        cr_assert_eq(ev.type, ENDPOINT_WRITE);
        cr_assert_eq(ev.to, at);
        cr_assert_gt(ev.len, 0u);
        cr_expect_arr_eq(ev.data, data + (at - 7), ev.len);
        at += ev.len;
        iwarp_release(&p.b.ep.base, ev.data + ev.len);
    }
    cr_expect_eq(at, 7 + 6010);
    cr_expect_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    pair_fini(&p);
}

/* RFC 5040 5.2/1, RFC 5040 5.2.1/12 and RFC 5040 5.2.2/2,4-6: one response each, in the order of the requests */
/* RFC 5040 5.5 rules 11 and 20: likewise */
/* RFC 5040 5.5 rule 19, RFC 5040 5.5/1: a Read is complete when its response is delivered */
Test(iwarp, reads_bring_the_peers_memory_in_order)
{
    struct rdmap_read rd;
    uint32_t src, dst;

    setup(MPA_RTR_READ);
    src = side_region(&p.b, data, 500, sizeof(data), DDP_ACCESS_REMOTE_READ);
    dst = side_region(&p.a, sink, 0, sizeof(sink), DDP_ACCESS_LOCAL_SINK);
    rd = (struct rdmap_read){ .sink_stag = dst, .sink_to = 10, .len = 3000, .src_stag = src, .src_to = 600 };
    cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
    rd = (struct rdmap_read){ .sink_stag = dst, .sink_to = 5000, .len = 0, .src_stag = 99, .src_to = 600 };
    cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
    rd = (struct rdmap_read){ .sink_stag = dst, .sink_to = 4000, .len = 1, .src_stag = src, .src_to = 500 };
    cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 0);
    settle();
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 3);
    cr_expect_arr_eq(sink + 10, data + 100, 3000);
    cr_expect_eq(sink[4000], data[0]);
    cr_expect_eq(sink[9] | sink[3010] | sink[5000], 0);

    rd.sink_stag = src;
    cr_expect_eq(iwarp_post_read(&p.a.ep, &rd), -EINVAL, "not a region of ours");
    rd = (struct rdmap_read){ .sink_stag = dst, .sink_to = 1, .len = sizeof(sink), .src_stag = src };
    cr_expect_eq(iwarp_post_read(&p.a.ep, &rd), -EINVAL, "one past the end");
    pair_fini(&p);
}

Test(iwarp, a_read_longer_than_batch_and_out_buf_is_answered_in_pieces)
{
    static uint8_t big[300000], got[300000];
    struct rdmap_read rd;

    setup(0);
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (uint8_t)(i * 13 + (i >> 9));
    rd = (struct rdmap_read){
        .sink_stag = side_region(&p.a, got, 0, sizeof(got), DDP_ACCESS_LOCAL_SINK),
        .len = sizeof(big),
        .src_stag = side_region(&p.b, big, 0, sizeof(big), DDP_ACCESS_REMOTE_READ),
    };
    cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
    settle();
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 1);
    cr_expect_arr_eq(got, big, sizeof(big));
    pair_fini(&p);
}

/* RFC 5040 6.1/3,4: outbound Reads "MUST NOT exceed the maximum number" */
Test(iwarp, no_more_reads_than_ord_are_outstanding)
{
    struct rdmap_read rd = { 0 };
    struct iwarp_cfg c;

    setup(0);
    c = side_cfg(&p.a, true, 0);
    c.ord = 3;
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++)
            cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
        cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), -EAGAIN);
        settle();
        cr_assert_eq(iwarp_reads_done(&p.a.ep), 3u * (unsigned)(round + 1));
    }
    pair_fini(&p);
}

Test(iwarp, memory_changing_after_a_read_response_was_made_does_not_break_its_crc)
{
    struct rdmap_read rd;
    struct endpoint_event ev;

    setup(0);
    rd = (struct rdmap_read){
        .sink_stag = side_region(&p.a, sink, 0, sizeof(sink), DDP_ACCESS_LOCAL_SINK),
        .len = 2000,
        .src_stag = side_region(&p.b, data, 0, sizeof(data), DDP_ACCESS_REMOTE_READ),
    };
    const struct iovec *iov;
    size_t len;

    cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    cr_assert_gt(iwarp_out(&p.b.ep, &iov, &len), 0u);
    memset(data, 0x55, 2000);
    cr_expect_eq(next_at(&p.a, &p.b, &p.ba, &ev), 0);
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 1);
    pair_fini(&p);
}

/* RFC 5041 4.3/10: MSN "MUST wrap to 0 after a value of 0xFFFFFFFF" */
Test(iwarp, message_sequence_numbers_wrap_to_zero)
{
    setup(0);
    p.a.ep.tx.msn[0] = p.b.ep.rx.msn[0] = UINT32_MAX - 1;
    p.a.ep.tx.msn[1] = p.b.ep.rx.msn[1] = UINT32_MAX;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(side_send(&p.a, "m", 1, data + i, 3), 0);
        expect_send(&p.b, &p.a, &p.ab, "m", data + i, 3);
        cr_assert_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ 0 }), 0);
        settle();
    }
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 4);
    cr_expect_eq(p.b.ep.rx.msn[0], 2);
    pair_fini(&p);
}

Test(iwarp, without_crc_in_use_frames_pass_whatever_the_field_says)
{
    uint8_t frame[256];
    struct endpoint_event ev;
    struct iwarp_cfg c;
    uint8_t *to;
    size_t n;

    setup(0);
    c = side_cfg(&p.b, false, 0);
    c.rx.crc = false;
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
    n = fb_send(frame, 1, data, 40);
    frame[n - 1] ^= 0x5a;
    (void)iwarp_in_space(&p.b.ep, &to);
    memcpy(to, frame, n);
    iwarp_in_fed(&p.b.ep, n);
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
    cr_expect_arr_eq(ev.data, data, 40);
    pair_fini(&p);
}

/* ---- the batch ---- */

Test(iwarp, payload_is_sent_from_where_it_lies_with_two_iovecs_a_frame)
{
    const struct iovec *iov;
    size_t n, len;

    setup(0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(side_write(&p.a, 1, 0, data + 1000 * i, 1000), 0);
    n = iwarp_out(&p.a.ep, &iov, &len);
    cr_expect_eq(n, 9);
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(iov[1 + 2 * i].iov_base, data + 1000 * i);
        cr_expect_eq(iov[1 + 2 * i].iov_len, 1000);
    }
    cr_expect_eq(len, 4 * mpa_fpdu_len(1014));
    pair_fini(&p);
}

Test(iwarp, a_full_batch_says_again_and_leaves_the_source_alone)
{
    struct iovec v = { data, sizeof(data) };
    struct iov_iter it = iov_iter_init(&v, 1), before;
    int err, posted = 0;

    setup(0);
    for (;;) {
        before = it;
        err = iwarp_post_send(&p.a.ep.base, data, 16, &it, 10);
        if (err)
            break;
        posted++;
    }
    cr_expect_eq(err, -EAGAIN);
    cr_expect_eq(posted, 63);
    cr_expect(it.iov == before.iov && it.off == before.off && it.n == before.n);
    cr_expect_eq(iwarp_post_send(&p.a.ep.base, data, 16, &it, sizeof(data)), -EMSGSIZE);
    pair_fini(&p);
}

Test(iwarp, a_source_shorter_than_the_length_is_refused)
{
    struct iovec v[2] = { { data, 100 }, { data, 0 } };
    struct iov_iter it = iov_iter_init(v, 2);

    setup(0);
    cr_expect_eq(iwarp_post_send(&p.a.ep.base, NULL, 0, &it, 101), -EINVAL);
    cr_expect_eq(it.off, 0);
    cr_expect_eq(iwarp_post_send(&p.a.ep.base, NULL, 0, &it, 100), 0);
    pair_fini(&p);
}

Test(iwarp, messages_in_too_many_pieces_are_gathered_when_out_buf_is_free)
{
    static struct iovec v[3000];
    struct iov_iter it;
    uint32_t stag;

    setup(MPA_RTR_SEND);
    for (size_t i = 0; i < 3000; i++)
        v[i] = (struct iovec){ data + 3 * i, 3 };
    stag = side_region(&p.b, sink, 0, sizeof(sink), DDP_ACCESS_REMOTE_WRITE);
    it = iov_iter_init(v, 3000);
    cr_assert_eq(iwarp_post_write(&p.a.ep.base, stag, 0, &it, 8000), 0);
    cr_expect_eq(iov_iter_left(&it), 1000);
    cr_expect_eq(iwarp_post_write(&p.a.ep.base, stag, 8000, &it, 900), -EAGAIN, "out_buf is in use");
    cr_assert_eq(iwarp_post_write(&p.a.ep.base, stag, 8000, &it, 190), 0, "64 pieces need no copy");
    settle();
    cr_assert_eq(iwarp_post_write(&p.a.ep.base, stag, 8190, &it, 810), 0, "free again");
    settle();
    cr_expect_arr_eq(sink, data, 9000);
    cr_expect_eq(sink[9000], 0);
    pair_fini(&p);
}

/* RFC 5044 7.1.2 rule 4: "MUST receive and validate at least one FPDU before sending any FPDUs or Markers" */
Test(iwarp, a_responder_that_has_heard_nothing_has_nothing_to_send)
{
    const struct iovec *iov;
    size_t len;

    setup(MPA_RTR_SEND);
    cr_expect_eq(iwarp_out(&p.b.ep, &iov, &len), 0);
    cr_expect_eq(len, 0);
    iwarp_fail(&p.b.ep, (struct term_code){ TERM_LAYER_LLP, 0, TERM_MPA_LOCAL });
    cr_expect_eq(iwarp_out(&p.b.ep, &iov, &len), 0, "RFC 5044 7.1.2 rule 4");
    cr_expect(!iwarp_ctrl_pending(&p.b.ep));
    pair_fini(&p);
}

/* ---- staging ---- */

/*
 * Feeds one frame in pieces of at most `step`; what is needed must never be more than is missing.
 */
static void feed(struct side *s, const uint8_t *frame, size_t n, size_t step)
{
    for (size_t at = 0; at < n;) {
        uint8_t *to;
        size_t room = iwarp_in_space(&s->ep, &to), l = n - at < step ? n - at : step;

        cr_assert_geq(room, l);
        memcpy(to, frame + at, l);
        iwarp_in_fed(&s->ep, l);
        at += l;
    }
}

Test(iwarp, what_is_missing_is_told_exactly)
{
    uint8_t frame[256];
    struct endpoint_event ev;
    size_t n;

    setup(0);
    n = fb_send(frame, 1, data, 100);
    cr_expect_eq(iwarp_in_need(&p.b.ep), 0);
    for (size_t at = 0; at < n; at++) {
        size_t need;

        cr_expect_eq(iwarp_in_eof(&p.b.ep), at == 0, "at %zu", at);
        feed(&p.b, frame + at, 1, 1);
        need = iwarp_in_need(&p.b.ep);
        if (at == 0)
            cr_expect(need > 0 && need <= n - 1 && need >= 13, "one octet of the length: %zu", need);
        else
            cr_expect_eq(need, n - at - 1, "at %zu: %zu", at, need);
        if (at + 1 < n)
            cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    }
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
    cr_expect_eq(iwarp_in_need(&p.b.ep), 0);
    cr_expect(iwarp_in_eof(&p.b.ep));
    pair_fini(&p);
}

/* RFC 5041 6.2.2/1: the LLP stream is lost; RFC 5041 3 item 9/1: told from a graceful end */
Test(iwarp, end_of_the_pipe_inside_a_message_of_several_segments_is_not_clean)
{
    uint8_t frame[256];
    struct endpoint_event ev;

    setup(0);
    feed(&p.b, frame, fb_untagged(frame, FB_UM, FB_RV | 3, 0, 0, 1, 0, data, 10), 1000);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    cr_expect(!iwarp_in_eof(&p.b.ep));
    feed(&p.b, frame, fb_untagged(frame, FB_UL, FB_RV | 3, 0, 0, 1, 10, data + 10, 10), 1000);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
    cr_expect_arr_eq(ev.data, data, 20);
    cr_expect(iwarp_in_eof(&p.b.ep));
    pair_fini(&p);
}

Test(iwarp, staged_octets_never_move_while_an_events_data_is_held)
{
    static uint8_t frame[4096];
    struct endpoint_event ev[64];
    uint8_t *to;
    uint32_t msn = 1;
    unsigned held = 0;

    setup(0);
    for (;;) {
        size_t n = fb_send(frame, msn, data + msn, 2000);

        if (iwarp_in_space(&p.b.ep, &to) < n)
            break;
        feed(&p.b, frame, n, 500);
        cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev[held++]), 1);
        msn++;
    }
    cr_assert_gt(held, 25u);
    for (unsigned i = 0; i < held; i++)
        cr_assert_arr_eq(ev[i].data, data + 1 + i, 2000, "event %u", i);
    /* All but the last released: still nothing may move, so there is no more room. */
    iwarp_release(&p.b.ep.base, ev[held - 2].data + ev[held - 2].len);
    cr_expect_lt(iwarp_in_space(&p.b.ep, &to), 3000u);
    cr_expect_arr_eq(ev[held - 1].data, data + held, 2000);
    iwarp_release(&p.b.ep.base, ev[held - 1].data + ev[held - 1].len - 1);
    cr_expect_lt(iwarp_in_space(&p.b.ep, &to), 3000u);
    iwarp_release(&p.b.ep.base, ev[held - 1].data + ev[held - 1].len);
    cr_expect_eq(iwarp_in_space(&p.b.ep, &to), SIDE_IN_CAP, "all released: from the start");
    cr_expect_eq(to, p.b.in_buf);
    pair_fini(&p);
}

Test(iwarp, a_full_staging_buffer_with_all_held_has_no_space)
{
    static uint8_t frame[MPA_FPDU_MAX];
    struct endpoint_event ev;
    struct iwarp_cfg c;
    uint8_t *to;
    size_t n;

    setup(0);
    c = side_cfg(&p.b, false, 0);
    c.send_max = MPA_ULPDU_MAX;
    c.in_cap = MPA_FPDU_MAX;
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
    n = fb_send(frame, 1, data, 65535 - 18);
    cr_assert_leq(n, MPA_FPDU_MAX);
    feed(&p.b, frame, n, 4000);
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
    cr_expect_eq(ev.len, 65535u - 18);
    cr_expect_lt(iwarp_in_space(&p.b.ep, &to), 8u);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_expect_eq(iwarp_in_space(&p.b.ep, &to), MPA_FPDU_MAX);
    pair_fini(&p);
}

/* RFC 5041 4.1/7 and RFC 5041 5.3/1: a message is delivered when all of its segments are there, and in order. */
/* RFC 5040 5.5 rule 16: a Send is delivered only when it is whole */
Test(iwarp, messages_of_several_segments_are_all_handed_up)
{
    struct endpoint_event first, ev;

    setup(MPA_RTR_SEND);
    cr_assert_eq(side_send(&p.a, "1", 1, data, 3000), 0);
    cr_assert_eq(side_send(&p.a, "2", 1, data + 1, 100), 0);
    cr_assert_eq(side_send(&p.a, "3", 1, data + 2, 3000), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &first), 1);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.len, 101);
    cr_expect_arr_eq(first.data + 1, data, 3000);
    cr_expect_arr_eq(ev.data + 1, data + 1, 100);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.len, 3001);
    cr_expect(ev.in_place);
    cr_expect_arr_eq(ev.data + 1, data + 2, 3000);
    iwarp_release(&p.b.ep.base, first.data + first.len);
    cr_expect_arr_eq(ev.data + 1, data + 2, 3000);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_expect(p.b.ep.rx.hold == p.b.ep.rx.head);
    pair_fini(&p);
}

Test(iwarp, release_of_a_message_of_several_segments_releases_what_came_before_it)
{
    struct endpoint_event ev;
    uint8_t *to;

    setup(MPA_RTR_SEND);
    cr_assert_eq(side_send(&p.a, "1", 1, data, 100), 0);
    cr_assert_eq(side_send(&p.a, "2", 1, data, 3000), 0);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_lt(iwarp_in_space(&p.b.ep, &to), SIDE_IN_CAP);
    iwarp_release(&p.b.ep.base, ev.data + 1);
    cr_expect_lt(iwarp_in_space(&p.b.ep, &to), SIDE_IN_CAP, "the rest is still held");
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_expect_eq(iwarp_in_space(&p.b.ep, &to), SIDE_IN_CAP);
    pair_fini(&p);
}

/* The octets of a message that came so far move with what is staged behind them. */
Test(iwarp, an_unfinished_message_is_moved_to_make_room)
{
    struct endpoint_event ev;
    uint8_t *to;

    setup(MPA_RTR_SEND);
    for (int i = 0; i < 40; i++) {
        cr_assert_eq(side_send(&p.a, "m", 1, data + i, 7000), 0);
        /* All but the last segment and a half, polled between. */
        side_push(&p.a, &p.ab);
        size_t left = p.ab.used - 1500;

        while (left > 0) {
            size_t room = iwarp_in_space(&p.b.ep, &to), n = room < left ? room : left;

            n = n < 700 ? n : 700;
            cr_assert_gt(n, 0u);
            cr_assert_eq(mem_pipe_read(&p.ab, to, n), n);
            iwarp_in_fed(&p.b.ep, n);
            left -= n;
            cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
            cr_expect(!iwarp_in_eof(&p.b.ep));
        }
        cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
        cr_assert_eq(ev.len, 7001u);
        cr_expect_arr_eq(ev.data + 1, data + i, 7000);
        iwarp_release(&p.b.ep.base, ev.data + ev.len);
        cr_expect(p.b.ep.rx.hold == p.b.ep.rx.head);
    }
    pair_fini(&p);
}

/* What the ULP holds is moved together with a message under way, and frames not decoded yet. */
Test(iwarp, what_is_held_together_is_packed_to_the_front)
{
    static uint8_t joined[60000];
    struct endpoint_event ev;
    const uint8_t *at = NULL, *from;
    uint8_t *to;
    size_t len = 0, before;

    setup(MPA_RTR_SEND);
    for (int i = 0; i < 200; i++) {
        cr_assert_eq(side_send(&p.a, "m", 1, data + i, 100), 0);
        cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
        if (at == NULL)
            at = ev.data;
        memcpy(joined + len, ev.data, ev.len);
        memmove((uint8_t *)(uintptr_t)(at + len), ev.data, ev.len);
        len += ev.len;
    }
    /* One of which but the last segment is there, and half of that. */
    cr_assert_eq(side_send(&p.a, "p", 1, data, 3000), 0);
    side_push(&p.a, &p.ab);
    size_t most = p.ab.used - 100;
    cr_assert_geq(iwarp_in_space(&p.b.ep, &to), most);
    cr_assert_eq(mem_pipe_read(&p.ab, to, most), most);
    iwarp_in_fed(&p.b.ep, most);
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    before = iwarp_in_space(&p.b.ep, &to);
    from = at;
    cr_assert(iwarp_pack(&p.b.ep.base, &at, len));
    cr_expect_eq(at, p.b.in_buf);
    cr_expect_neq(at, from);
    cr_expect_gt(iwarp_in_space(&p.b.ep, &to), before + 4096);
    cr_expect_not(iwarp_pack(&p.b.ep.base, &at, len), "nothing more to be won");
    cr_expect_arr_eq(at, joined, len);
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.len, 3001u);
    cr_expect_arr_eq(ev.data + 1, data, 3000);
    iwarp_release(&p.b.ep.base, at + len);
    cr_expect_arr_eq(ev.data + 1, data, 3000);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_expect_eq(iwarp_in_space(&p.b.ep, &to), SIDE_IN_CAP);
    pair_fini(&p);
}

/* ---- the stream of octets, cut ---- */

static void exchange_cut(size_t cut, uint8_t rtr)
{
    struct rdmap_read rd;
    uint32_t wr, ring, src, dst;
    uint64_t ring_at = 0, prng = 99 + cut;
    int sends = 0;

    setup(rtr);
    mem_pipe_cut(&p.ab, cut, prng32, &prng);
    mem_pipe_cut(&p.ba, cut, prng32, &prng);
    wr = side_region(&p.b, sink, 0, 8192, DDP_ACCESS_REMOTE_WRITE);
    ring = side_region(&p.b, NULL, 0, 1 << 20, DDP_ACCESS_REMOTE_WRITE);
    src = side_region(&p.b, data, 0, sizeof(data), DDP_ACCESS_REMOTE_READ);
    dst = side_region(&p.a, sink + 8192, 0, 8192, DDP_ACCESS_LOCAL_SINK);
    rd = (struct rdmap_read){ .sink_stag = dst, .len = 2500, .src_stag = src, .src_to = 77 };
    cr_assert_eq(side_write(&p.a, wr, 0, data, 3333), 0);
    cr_assert_eq(side_send(&p.a, "one", 3, data, 200), 0);
    cr_assert_eq(side_write(&p.a, ring, 0, data, 2222), 0);
    cr_assert_eq(iwarp_post_read(&p.a.ep, &rd), 0);
    cr_assert_eq(side_send(&p.a, "two", 3, data, 4000), 0);
    for (int idle = 0; idle < 3;) {
        struct endpoint_event ev;
        size_t moved;

        side_push(&p.a, &p.ab);
        side_push(&p.b, &p.ba);
        moved = side_pull(&p.b, &p.ab) + side_pull(&p.a, &p.ba);
        idle = moved ? 0 : idle + 1;
        cr_assert_eq(iwarp_poll(&p.a.ep.base, &ev), 0);
        for (int r; (r = iwarp_poll(&p.b.ep.base, &ev)) != 0;) {
            cr_assert_eq(r, 1);
            if (ev.type == ENDPOINT_WRITE) {
                cr_assert_eq(ev.to, ring_at);
                cr_assert_arr_eq(ev.data, data + ring_at, ev.len);
                ring_at += ev.len;
            } else {
                cr_assert_eq(ev.len, sends ? 4003u : 203u);
                cr_assert_arr_eq(ev.data + 3, data, ev.len - 3);
                sends++;
            }
            iwarp_release(&p.b.ep.base, ev.data + ev.len);
        }
    }
    cr_expect_eq(sends, 2);
    cr_expect_eq(ring_at, 2222);
    cr_expect_arr_eq(sink, data, 3333);
    cr_expect_arr_eq(sink + 8192, data + 77, 2500);
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 1);
    cr_expect(iwarp_in_eof(&p.a.ep) && iwarp_in_eof(&p.b.ep));
    pair_fini(&p);
}

/* RFC 5041 3 items 4 and 7: boundaries and lengths are those of the segments, however the octets come */
Test(iwarp, any_cut_of_the_stream_gives_the_same_messages)
{
    static const size_t cuts[] = { 1, 2, 3, 7, 20, 100, 1029, 5000, 0 };
    static const uint8_t kinds[] = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };

    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
        exchange_cut(cuts[i], kinds[i % 3]);
}

/* ---- the batch, cut ---- */

/* Posts message k (0..3) from `mem`: Write, Send of two segments, Send, Write of two segments. */
static int post_kth(int k, uint32_t stag, uint8_t *mem)
{
    switch (k) {
    case 0:
        return side_write(&p.a, stag, 0, mem, 50);
    case 1:
        return side_send(&p.a, "B", 1, mem + 50, 150);
    case 2:
        return side_send(&p.a, "C", 1, mem + 200, 30);
    default:
        return side_write(&p.a, stag, 230, mem + 230, 160);
    }
}

/*
 * Sends n octets, detaches, joins what is left or not, spoils the memory, posts again what was dropped, and sees that
 * all arrives. False if the batch has no more than n octets.
 */
static bool detach_at(size_t n, uint8_t rtr, bool join)
{
    static uint8_t mem[512];
    struct endpoint_event ev;
    struct iwarp_cut cut;
    const struct iovec *iov;
    struct iwarp_cfg c;
    size_t batch, len, iovs;
    int sends = 0;
    uint32_t stag;

    setup(rtr);
    c = side_cfg(&p.a, true, rtr);
    c.mulpdu = 128;
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    stag = side_region(&p.b, sink, 0, 512, DDP_ACCESS_REMOTE_WRITE);
    memcpy(mem, data, sizeof(mem));
    for (int k = 0; k < 4; k++)
        cr_assert_eq(post_kth(k, stag, mem), 0);
    iwarp_out(&p.a.ep, &iov, &batch);
    for (size_t left = n < batch ? n : batch; left > 0;) {
        struct iovec one;

        iwarp_out(&p.a.ep, &iov, &len);
        one = *iov;
        if (one.iov_len > left)
            one.iov_len = left;
        cr_assert_eq(mem_pipe_write(&p.ab, &one, 1), one.iov_len);
        iwarp_out_sent(&p.a.ep, one.iov_len);
        left -= one.iov_len;
    }
    cut = iwarp_out_detach(&p.a.ep);
    cr_assert_leq(cut.frames, 4u);
    memset(mem, 0xee, sizeof(mem));
    if (join) {
        size_t before;

        iwarp_out(&p.a.ep, &iov, &before);
        iwarp_out_join(&p.a.ep);
        cr_assert_leq(iwarp_out(&p.a.ep, &iov, &len), 1u, "at %zu", n);
        cr_assert_eq(len, before, "at %zu", n);
        iwarp_out_join(&p.a.ep); /* twice is as good as once */
    }
    iovs = iwarp_out(&p.a.ep, &iov, &len);
    for (size_t i = 0; i < iovs; i++)
        cr_assert((uint8_t *)iov[i].iov_base < mem || (uint8_t *)iov[i].iov_base >= mem + sizeof(mem),
                  "at %zu: posted memory after detach", n);
    /* Twice is as good as once. */
    cr_assert_eq(iwarp_out_detach(&p.a.ep).frames, 0, "at %zu", n);
    memcpy(mem, data, sizeof(mem));
    for (int k = 4 - (int)cut.frames; k < 4; k++)
        cr_assert_eq(post_kth(k, stag, mem), 0);
    for (int r; (r = next_at(&p.b, &p.a, &p.ab, &ev)) != 0;) {
        cr_assert_eq(r, 1, "at %zu: %s", n, term_code_text(iwarp_error(&p.b.ep)));
        cr_assert_eq(ev.type, ENDPOINT_SEND);
        cr_assert_eq(ev.len, sends ? 31u : 151u, "at %zu", n);
        cr_assert_eq(ev.data[0], sends ? 'C' : 'B', "at %zu", n);
        cr_assert_arr_eq(ev.data + 1, data + (sends ? 200 : 50), ev.len - 1);
        sends++;
        iwarp_release(&p.b.ep.base, ev.data + ev.len);
    }
    cr_assert_eq(sends, 2, "at %zu", n);
    cr_assert_arr_eq(sink, data, 50, "at %zu", n);
    cr_assert_arr_eq(sink + 230, data + 230, 160, "at %zu", n);
    cr_assert_eq(p.a.ep.stats.tx_sends, 2, "at %zu", n);
    cr_assert_eq(p.a.ep.stats.tx_writes, 2, "at %zu", n);
    cr_assert_eq(p.a.ep.stats.tx_fpdus, 6u + (rtr ? 1 : 0), "at %zu", n);
    cr_assert_eq(p.b.ep.stats.rx_fpdus, p.a.ep.stats.tx_fpdus, "at %zu", n);
    pair_fini(&p);
    return n < batch;
}

/* RFC 5041 3 item 3: what was accepted is transferred */
/* RFC 5040 5.5 rule 14: what is not out is not complete */
Test(iwarp, a_batch_detached_at_any_octet_goes_on_with_nothing_lost_or_repeated)
{
    static const uint8_t kinds[] = { 0, MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };

    for (size_t k = 0; k < sizeof(kinds); k++) {
        for (unsigned join = 0; join < 2; join++) {
            size_t n = 0;

            while (detach_at(n, kinds[k], join))
                n++;
            cr_expect_gt(n, 500u);
        }
    }
}

/* Sends n octets of a batch of three messages, gives the memory up, sends the rest. False: n is beyond the batch. */
static bool keep_at(size_t n)
{
    static uint8_t mem[1500];
    struct endpoint_event ev;
    const struct iovec *iov;
    size_t batch, len;

    setup(0);
    memcpy(mem, data, sizeof(mem));
    cr_expect(!iwarp_out_keep(&p.a.ep), "an empty batch");
    for (int k = 0; k < 3; k++)
        cr_assert_eq(side_send(&p.a, "H", 1, mem + 500 * k, 500), 0);
    iwarp_out(&p.a.ep, &iov, &batch);
    for (size_t left = n < batch ? n : batch; left > 0;) {
        struct iovec one;

        iwarp_out(&p.a.ep, &iov, &len);
        one = *iov;
        if (one.iov_len > left)
            one.iov_len = left;
        cr_assert_eq(mem_pipe_write(&p.ab, &one, 1), one.iov_len);
        iwarp_out_sent(&p.a.ep, one.iov_len);
        left -= one.iov_len;
    }
    cr_expect_eq(iwarp_out_keep(&p.a.ep), n < batch);
    memset(mem, 0xee, sizeof(mem));
    cr_expect_eq(iwarp_out_borrowed(&p.a.ep), 0u, "at %zu", n);
    if (iwarp_out(&p.a.ep, &iov, &len) > 0) {
        iwarp_out_join(&p.a.ep);
        cr_assert_eq(iwarp_out(&p.a.ep, &iov, &len), 1u, "at %zu", n);
    }
    cr_expect_eq(len, n < batch ? batch - n : 0u);
    for (int k = 0; k < 3; k++) {
        cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1, "at %zu", n);
        cr_assert_eq(ev.len, 501u, "at %zu", n);
        cr_assert_arr_eq(ev.data + 1, data + 500 * k, 500, "at %zu", n);
        iwarp_release(&p.b.ep.base, ev.data + ev.len);
    }
    cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 0);
    cr_expect_eq(p.a.ep.stats.tx_sends, 3u);
    pair_fini(&p);
    return n < batch;
}

Test(iwarp, a_batch_kept_at_any_octet_goes_on_without_the_posted_memory)
{
    size_t n = 0;

    while (keep_at(n))
        n++;
    cr_expect_gt(n, 1500u);
}

Test(iwarp, more_posted_memory_than_out_buf_takes_is_not_kept)
{
    static uint8_t mem[SIDE_SEND_MAX];
    const struct iovec *iov;
    size_t len, before, n = 0;

    setup(0);
    p.a.ep.cfg.mulpdu = MPA_MULPDU_MAX;
    while (n * 8000 <= SIDE_OUT_CAP) {
        cr_assert_eq(side_send(&p.a, "H", 1, mem, 8000), 0);
        n++;
    }
    before = iwarp_out(&p.a.ep, &iov, &len);
    cr_expect(!iwarp_out_keep(&p.a.ep));
    cr_expect_eq(iwarp_out(&p.a.ep, &iov, &len), before);
    cr_expect_eq(iov[1].iov_base, mem);
    pair_fini(&p);
}

Test(iwarp, a_batch_with_posted_memory_is_not_joined)
{
    const struct iovec *iov;
    size_t len;

    setup(0);
    cr_assert_eq(side_send(&p.a, "H", 1, data, 100), 0);
    cr_assert_gt(iwarp_out(&p.a.ep, &iov, &len), 1u);
    iwarp_out_join(&p.a.ep);
    cr_expect_gt(iwarp_out(&p.a.ep, &iov, &len), 1u);
    pair_fini(&p);
}

Test(iwarp, detach_of_an_unsent_batch_drops_all_but_the_rtr)
{
    const struct iovec *iov;
    size_t len;

    setup(MPA_RTR_SEND);
    cr_assert_eq(side_send(&p.a, "x", 1, data, 10), 0);
    cr_assert_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ 0 }), 0);
    cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, 2);
    cr_expect_gt(iwarp_out(&p.a.ep, &iov, &len), 0u);
    cr_expect_eq(len, mpa_fpdu_len(18));
    cr_assert_eq(side_send(&p.a, "y", 1, data, 10), 0);
    expect_send(&p.b, &p.a, &p.ab, "y", data, 10);
    cr_assert_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ 0 }), 0);
    settle();
    cr_expect_eq(iwarp_reads_done(&p.a.ep), 1);
    cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, 0, "an empty batch");
    pair_fini(&p);
}

Test(iwarp, detach_keeps_a_gathered_message_where_it_is_and_frees_a_dropped_one)
{
    static struct iovec v[200];
    struct iov_iter it;
    const struct iovec *iov;
    uint32_t stag;
    size_t len;

    for (size_t i = 0; i < 200; i++)
        v[i] = (struct iovec){ data + 10 * i, 10 };
    for (int sent = 0; sent < 2; sent++) {
        setup(0);
        stag = side_region(&p.b, sink, 0, sizeof(sink), DDP_ACCESS_REMOTE_WRITE);
        it = iov_iter_init(v, 200);
        cr_assert_eq(iwarp_post_write(&p.a.ep.base, stag, 0, &it, 2000), 0);
        iwarp_out(&p.a.ep, &iov, &len);
        if (sent) {
            cr_assert_eq(mem_pipe_write(&p.ab, &(struct iovec){ iov->iov_base, 1 }, 1), 1);
            iwarp_out_sent(&p.a.ep, 1);
        }
        cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, sent ? 0u : 1u);
        it = iov_iter_init(v, 200);
        if (!sent)
            cr_assert_eq(iwarp_post_write(&p.a.ep.base, stag, 0, &it, 2000), 0, "out_buf is free");
        settle();
        cr_expect_arr_eq(sink, data, 2000);
        pair_fini(&p);
    }
}

Test(iwarp, detach_copies_over_what_a_dropped_gathered_message_had)
{
    static struct iovec v[200];
    struct iov_iter it;
    const struct iovec *iov;
    struct iwarp_cfg c;
    uint32_t stag;
    size_t len, most = sizeof(data);

    setup(0);
    c = side_cfg(&p.a, true, 0);
    c.mulpdu = 8192;
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    cr_assert_gt(most + 2000, SIDE_OUT_CAP, "together they would not fit out_buf");
    stag = side_region(&p.b, sink, 0, sizeof(sink), DDP_ACCESS_REMOTE_WRITE);
    for (size_t i = 0; i < 200; i++)
        v[i] = (struct iovec){ data + 10 * i, 10 };
    cr_assert_eq(side_write(&p.a, stag, 0, data, most), 0);
    it = iov_iter_init(v, 200);
    cr_assert_eq(iwarp_post_write(&p.a.ep.base, stag, 0, &it, 2000), 0);
    iwarp_out(&p.a.ep, &iov, &len);
    cr_assert_eq(mem_pipe_write(&p.ab, &(struct iovec){ iov->iov_base, 1 }, 1), 1);
    iwarp_out_sent(&p.a.ep, 1);
    cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, 1);
    settle();
    cr_expect_arr_eq(sink, data, most);
    pair_fini(&p);
}

/* RFC 6581 9.3/1: the peer hears of a local error */
Test(iwarp, detach_keeps_a_terminate_behind_dropped_messages)
{
    struct endpoint_event ev;
    const struct iovec *iov;
    size_t len;

    for (int sent = 0; sent < 2; sent++) {
        setup(0);
        cr_assert_eq(side_send(&p.a, "first", 5, data, 3000), 0);
        cr_assert_eq(side_send(&p.a, "second", 6, data, 30), 0);
        iwarp_fail(&p.a.ep, (struct term_code){ TERM_LAYER_LLP, 0, TERM_MPA_LOCAL });
        cr_assert(iwarp_ctrl_pending(&p.a.ep));
        iwarp_out(&p.a.ep, &iov, &len);
        cr_expect(!iwarp_ctrl_pending(&p.a.ep));
        if (sent) {
            cr_assert_eq(mem_pipe_write(&p.ab, &(struct iovec){ iov->iov_base, 7 }, 1), 7);
            iwarp_out_sent(&p.a.ep, 7);
        }
        cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, sent ? 1u : 2u);
        if (sent)
            expect_send(&p.b, &p.a, &p.ab, "first", data, 3000);
        cr_assert_eq(next_at(&p.b, &p.a, &p.ab, &ev), 1);
        cr_expect_eq(ev.type, ENDPOINT_TERMINATED);
        cr_expect_eq(iwarp_error(&p.b.ep).code, TERM_MPA_LOCAL);
        cr_expect_eq(next_at(&p.b, &p.a, &p.ab, &ev), -EPROTO);
        pair_fini(&p);
    }
}
