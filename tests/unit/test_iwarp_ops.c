/*
 * What RDMAP can do besides plain Sends, Writes and Reads: Sends with Solicited Event and Invalidate
 * (RFC 5040 section 5.3), Immediate Data (RFC 7306 section 6), fences (RFC 5040 section 5.5), regions
 * of a Protection Domain (RFC 5041 section 8.2), and the ends of a stream (RFC 5041 section 6.2).
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "core/iwarp/iwarp_ops.h"
#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

static struct pair p;
static uint8_t memory[1000], data[8000];

static void setup_with(void (*change)(struct iwarp_cfg *c))
{
    struct iwarp_cfg c;

    cr_assert_eq(pair_init(&p, MPA_RTR_WRITE, 1u << 20), 0);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    memset(memory, 0, sizeof(memory));
    if (!change)
        return;
    c = side_cfg(&p.a, true, MPA_RTR_WRITE);
    change(&c);
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    c = side_cfg(&p.b, false, MPA_RTR_WRITE);
    change(&c);
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
}

static void immediate(struct iwarp_cfg *c)
{
    c->immediate = true;
}

static void teardown(void)
{
    pair_fini(&p);
}

/* What the next poll of `to` gives, after all that `from` has to send. */
static int next(struct side *to, struct side *from, struct mem_pipe *pipe, struct endpoint_event *ev)
{
    *ev = (struct endpoint_event){ 0 };
    side_push(from, pipe);
    do {
        int r = iwarp_poll(&to->ep.base, ev);

        if (r != 0)
            return r;
    } while (side_pull(to, pipe) > 0);
    return 0;
}

static void settle(void)
{
    struct endpoint_event ev;

    for (int i = 0; i < 4; i++) {
        cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 0);
        cr_assert_eq(next(&p.a, &p.b, &p.ba, &ev), 0);
    }
}

static int send_with(unsigned flags, uint32_t stag, size_t len)
{
    struct iovec v = { data, len };
    struct iov_iter it = iov_iter_init(&v, 1);

    return iwarp_post_send_with(&p.a.ep, flags, stag, (const uint8_t *)"h", 1, &it, len);
}

/* Octets as a peer might send them, to b. */
static void feed(const uint8_t *frame, size_t n)
{
    uint8_t *to;

    cr_assert_geq(iwarp_in_space(&p.b.ep, &to), n);
    memcpy(to, frame, n);
    iwarp_in_fed(&p.b.ep, n);
}

/* b is in error and says so by this Terminate, whose flags are those of RFC 5040 Figure 10. */
static void b_terminates(const char *what, uint8_t layer, uint8_t etype, uint8_t code, uint8_t flags)
{
    const struct iovec *iov;
    uint8_t out[256];
    size_t len, at = 0, n = iwarp_out(&p.b.ep, &iov, &len);

    cr_assert(n > 0 && len <= sizeof(out), "%s: nothing to send", what);
    for (size_t i = 0; i < n; at += iov[i].iov_len, i++)
        memcpy(out + at, iov[i].iov_base, iov[i].iov_len);
    cr_expect(out[2] == 0x41 && out[3] == 0x47, "%s", what);
    cr_expect_eq(out[20], layer << 4 | etype, "%s: %02x", what, out[20]);
    cr_expect_eq(out[21], code, "%s: %02x", what, out[21]);
    cr_expect_eq(out[22], flags, "%s: %02x", what, out[22]);
    cr_expect_eq(iwarp_state_now(&p.b.ep), IWARP_TERMINATING, "%s", what);
}

/* ---- Sends of all kinds ---- */

/* RFC 5041 4.3/3 and RFC 5041 5.4/3: RsvdULP is given to the ULP */
/* RFC 5040 5.3/3,4,6,7: delivered in the order they were sent, whatever kind they are of */
Test(iwarp_ops, sends_of_every_kind_arrive_in_order_and_say_what_they_are, .fini = teardown)
{
    static const size_t lens[] = { 0, 100, 5000 };
    struct endpoint_event ev;

    setup_with(NULL);
    settle();
    for (unsigned flags = 0; flags < 4; flags++) {
        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
            uint32_t stag = side_region(&p.b, memory, 0, 10, DDP_ACCESS_REMOTE_WRITE);
            bool inv = flags & IWARP_INVALIDATE;

            cr_assert(stag != 0);
            cr_assert_eq(send_with(flags, inv ? stag : 0, lens[i]), 0);
            cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
            cr_expect_eq(ev.type, ENDPOINT_SEND);
            cr_expect_eq(ev.len, lens[i] + 1);
            cr_expect_arr_eq(ev.data + 1, data, lens[i]);
            cr_expect_eq(ev.solicited, (flags & IWARP_SOLICITED) != 0, "flags %u", flags);
            cr_expect_eq(ev.invalidated, inv ? stag : 0, "flags %u", flags);
            cr_expect_eq(ddp_stags_find(&p.b.ep.stags, stag) == NULL, inv, "flags %u", flags);
            (void)ddp_stags_revoke(&p.b.ep.stags, stag);
            iwarp_release(&p.b.ep.base, ev.data + ev.len);
        }
    }
    cr_expect_eq(p.a.ep.stats.tx_sends, 12u);
    cr_expect_eq(p.b.ep.stats.rx_sends, 12u);
}

/* RFC 5040 4.1/1-3,6,7,10 and RFC 5040 5.3/2,5,9: control field, Invalidate STag or zero, queue zero */
Test(iwarp_ops, each_kind_has_its_opcode_and_the_stag_where_rfc_5040_puts_it, .fini = teardown)
{
    static const uint8_t opcode[4] = { 3, 5, 4, 6 };

    setup_with(NULL);
    settle();
    for (unsigned flags = 0; flags < 4; flags++) {
        const struct iovec *iov;
        const uint8_t *out;
        size_t len;

        cr_assert_eq(send_with(flags, flags & IWARP_INVALIDATE ? 0x11223344 : 0, 0), 0);
        cr_assert_eq(iwarp_out(&p.a.ep, &iov, &len), 1u);
        out = iov[0].iov_base;
        cr_expect_eq(out[2], 0x41);
        cr_expect_eq(out[3], 0x40 | opcode[flags], "flags %u: %02x", flags, out[3]);
        cr_expect_eq(fb_get(out + 4, 4), flags & IWARP_INVALIDATE ? 0x11223344 : 0);
        cr_expect_eq(fb_get(out + 8, 4), 0, "QN");
        cr_expect_eq(fb_get(out + 12, 4), flags + 1, "MSN");
        iwarp_out_sent(&p.a.ep, len);
    }
}

/* RFC 5040 5.3/8: a Send with Invalidate "MUST reference an STag" */
Test(iwarp_ops, senseless_flags_are_refused, .fini = teardown)
{
    struct iov_iter none = iov_iter_init(NULL, 0);

    setup_with(NULL);
    settle();
    cr_expect_eq(send_with(8, 0, 1), -EINVAL);
    cr_expect_eq(send_with(IWARP_INVALIDATE, 0, 1), -EINVAL, "no STag");
    cr_expect_eq(send_with(IWARP_SOLICITED, 7, 1), -EINVAL, "an STag of no use");
    cr_expect_eq(iwarp_post_write_with(&p.a.ep, IWARP_SOLICITED, 1, 0, &none, 0), -EINVAL);
    cr_expect_eq(iwarp_post_immediate(&p.a.ep.base, 1, false), -ENOTSUP, "not agreed");
    cr_expect_eq(p.a.ep.tx.queued, 0u);
}

/* Nothing was sent of them: their MSNs are used again, and the peer sees no gap. */
Test(iwarp_ops, messages_of_any_kind_that_are_taken_back_leave_no_gap, .fini = teardown)
{
    struct endpoint_event ev;

    setup_with(immediate);
    settle();
    cr_assert_eq(send_with(0, 0, 10), 0);
    cr_assert_eq(send_with(IWARP_SOLICITED, 0, 10), 0);
    cr_assert_eq(send_with(IWARP_INVALIDATE, 9, 10), 0);
    cr_assert_eq(send_with(IWARP_INVALIDATE | IWARP_SOLICITED, 9, 3000), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, 1, false), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, 2, true), 0);
    cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, 6u);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, 3, false), 0);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.type, ENDPOINT_IMMEDIATE);
    cr_expect_eq(ev.data[7], 3);
    cr_expect_eq(p.a.ep.stats.tx_immediates, 1u);
    cr_expect_eq(p.a.ep.stats.tx_sends, 0u);
}

/* ---- Immediate Data ---- */

/* RFC 7306 6.3/4,6,7 and RFC 7306 4.1/1: delivered in order with the Sends, 8 octets, queue 0 */
Test(iwarp_ops, immediate_data_arrives_in_order_between_sends_and_behind_writes, .fini = teardown)
{
    struct endpoint_event ev;
    uint32_t stag;

    setup_with(immediate);
    settle();
    stag = side_region(&p.b, memory, 0, sizeof(memory), DDP_ACCESS_REMOTE_WRITE);
    cr_assert_eq(send_with(0, 0, 3000), 0);
    cr_assert_eq(side_write(&p.a, stag, 0, data, 900), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, 0x0102030405060708, false), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, UINT64_MAX, true), 0);
    cr_assert_eq(send_with(0, 0, 1), 0);

    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.type, ENDPOINT_SEND);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.type, ENDPOINT_IMMEDIATE);
    cr_expect_eq(ev.len, 8u);
    for (unsigned i = 0; i < 8; i++)
        cr_expect_eq(ev.data[i], i + 1);
    cr_expect_not(ev.solicited);
    cr_expect_arr_eq(memory, data, 900, "the Write before it is placed");
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect(ev.type == ENDPOINT_IMMEDIATE && ev.solicited && ev.data[0] == 0xff);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.type, ENDPOINT_SEND);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_expect_eq(p.a.ep.stats.tx_immediates, 2u);
    cr_expect_eq(p.b.ep.stats.rx_immediates, 2u);
    cr_expect_eq(p.b.ep.stats.rx_sends, 2u);
    cr_expect_eq(p.b.ep.rx.msn[0], 5u, "one MSN each");
}

/* RFC 7306 6.3/8 and RFC 7306 8.1/1: "MUST check that ... Messages include exactly 8 bytes of data" */
Test(iwarp_ops, immediate_data_of_any_other_length_is_an_operation_error)
{
    static const size_t lens[] = { 0, 1, 7, 9, 16, 1000 };
    uint8_t f[2000];

    for (uint8_t op = 8; op <= 9; op++) {
        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
            struct endpoint_event ev;

            setup_with(immediate);
            settle();
            feed(f, fb_untagged(f, FB_UL, FB_RV | op, 0, 0, 1, 0, data, lens[i]));
            cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), -EPROTO, "%zu", lens[i]);
            b_terminates("length", TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED, 0xc0);
            teardown();
        }
        setup_with(immediate);
        settle();
        feed(f, fb_untagged(f, FB_UM, FB_RV | op, 0, 0, 1, 0, data, 8));
        cr_expect_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), -EPROTO);
        b_terminates("not the last segment", TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED, 0xc0);
        teardown();
    }
}

/* RFC 7306 6.3/3 and RFC 7306 8.2/2: one buffer, that is one MSN, each; all fields */
Test(iwarp_ops, immediate_data_keeps_the_rules_of_its_queue)
{
    static const struct {
        const char *what;
        uint32_t qn, msn, mo;
        uint8_t code;
    } rows[] = {
        { "QN 1", 1, 1, 0, TERM_DDP_U_INVALID_QN }, { "QN 2", 2, 1, 0, TERM_DDP_U_INVALID_QN },
        { "QN 3", 3, 1, 0, TERM_DDP_U_INVALID_QN }, { "MSN 0", 0, 0, 0, TERM_DDP_U_MSN_RANGE },
        { "MSN 2", 0, 2, 0, TERM_DDP_U_MSN_RANGE }, { "MO 1", 0, 1, 1, TERM_DDP_U_INVALID_MO },
    };
    uint8_t f[200];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setup_with(immediate);
        settle();
        feed(f, fb_untagged(f, FB_UL, FB_RV | 8, 0, rows[i].qn, rows[i].msn, rows[i].mo, data, 8));
        cr_expect_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), -EPROTO, "%s", rows[i].what);
        b_terminates(rows[i].what, TERM_LAYER_DDP, TERM_DDP_UNTAGGED, rows[i].code, 0xc0);
        teardown();
    }
}

/* RFC 7306 8.2/1,3: "The RDMA OpCode MUST be valid": what was not agreed is not */
Test(iwarp_ops, immediate_data_nobody_agreed_to_is_an_unexpected_opcode)
{
    uint8_t f[200];

    for (uint8_t op = 8; op <= 9; op++) {
        setup_with(NULL);
        settle();
        feed(f, fb_untagged(f, FB_UL, FB_RV | op, 0, 0, 1, 0, data, 8));
        cr_expect_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), -EPROTO);
        b_terminates("immediate", TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, 0xc0);
        teardown();
    }
}

/* ---- Atomics ---- */

/* RFC 7306 section 8.1: header bits M and D, never R */
Test(iwarp_ops, atomics_are_refused_request_and_response_aligned_or_not)
{
    uint8_t f[200], atomic[52];

    for (uint8_t low = 0; low < 2; low++) {
        /* FetchAdd, request id, STag and TO of a region, the operands: RFC 7306 Figure 4. */
        memset(atomic, 0, sizeof(atomic));
        atomic[19] = low;
        setup_with(immediate);
        settle();
        feed(f, fb_untagged(f, FB_UL, FB_RV | 10, 0, 1, 1, 0, atomic, sizeof(atomic)));
        cr_expect_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), -EPROTO);
        b_terminates("request", TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE, 0xc0);
        teardown();
    }
    /* We never ask for one, so its queue 3 does not exist. */
    setup_with(immediate);
    settle();
    feed(f, fb_untagged(f, FB_UL, FB_RV | 11, 0, 3, 1, 0, atomic, 12));
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), -EPROTO);
    b_terminates("response", TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_INVALID_QN, 0xc0);
    teardown();
}

/* ---- fences ---- */

/*
 * RFC 5040 5.2.1/4,5,9: Read Requests are processed by RDMAP, in order, and the ULP sees none of them
 * RFC 5040 5.5 rules 12 and 17: and not before all that came before them is placed
 */
Test(iwarp_ops, a_read_behind_a_write_brings_what_was_written, .fini = teardown)
{
    struct endpoint_event ev;
    uint32_t stag, sink;
    uint8_t from[3000] = { 0 }, got[2][3000];

    setup_with(NULL);
    settle();
    stag = side_region(&p.b, from, 0, sizeof(from), DDP_ACCESS_REMOTE_WRITE | DDP_ACCESS_REMOTE_READ);
    sink = side_region(&p.a, got, 0, sizeof(got), DDP_ACCESS_LOCAL_SINK);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(side_write(&p.a, stag, 0, data + 1000 * i, 3000), 0);
        cr_assert_eq(
            iwarp_post_read(
                &p.a.ep, &(struct rdmap_read){ .sink_stag = sink, .sink_to = 3000 * i, .len = 3000, .src_stag = stag }),
            0);
        cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), 0, "no event at the source");
        cr_expect_eq(iwarp_reads_done(&p.a.ep), i);
        cr_expect_eq(next(&p.a, &p.b, &p.ba, &ev), 0);
        cr_expect_eq(iwarp_reads_done(&p.a.ep), i + 1);
        cr_expect_arr_eq(got[i], data + 1000 * i, 3000, "Read %u", i);
    }
}

/* RFC 5040 section 5.5: what is fenced waits for the responses of all Reads before it */
Test(iwarp_ops, a_fence_holds_back_until_all_reads_have_come, .fini = teardown)
{
    uint32_t source, sink;
    struct endpoint_event ev;
    struct iov_iter none = iov_iter_init(NULL, 0);

    setup_with(NULL);
    settle();
    source = side_region(&p.b, data, 0, sizeof(data), DDP_ACCESS_REMOTE_READ);
    sink = side_region(&p.a, memory, 0, sizeof(memory), DDP_ACCESS_LOCAL_SINK);
    cr_expect_eq(send_with(IWARP_FENCE, 0, 1), 0, "nothing to wait for");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ .sink_stag = sink,
                                                                    .sink_to = (uint64_t)i * 500,
                                                                    .len = 500,
                                                                    .src_stag = source,
                                                                    .src_to = (uint64_t)i * 500 }),
                     0);
    cr_expect_eq(iwarp_reads_under_way(&p.a.ep), 2u);
    cr_expect_eq(send_with(0, 0, 1), 0, "without a fence it goes");
    cr_expect_eq(send_with(IWARP_FENCE, 0, 1), -EAGAIN);
    cr_expect_eq(send_with(IWARP_FENCE | IWARP_INVALIDATE, source, 1), -EAGAIN);
    cr_expect_eq(iwarp_post_write_with(&p.a.ep, IWARP_FENCE, 1, 0, &none, 0), -EAGAIN);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
        iwarp_release(&p.b.ep.base, ev.data + ev.len);
    }
    cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), 0);
    cr_expect_eq(send_with(IWARP_FENCE, 0, 1), -EAGAIN, "answered, but not received");
    cr_expect_eq(next(&p.a, &p.b, &p.ba, &ev), 0);
    cr_expect_eq(iwarp_reads_under_way(&p.a.ep), 0u);
    cr_expect_arr_eq(memory, data, 1000);
    cr_expect_eq(iwarp_post_write_with(&p.a.ep, IWARP_FENCE, 1, 0, &none, 0), 0);
    cr_expect_eq(send_with(IWARP_FENCE | IWARP_INVALIDATE, source, 1), 0);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.invalidated, source);
}

/* ---- domains ---- */

static struct ddp_stags shared;

static void domain_1(struct iwarp_cfg *c)
{
    c->shared = &shared;
    c->who = (struct ddp_stream){ .pd = 1, .id = c->initiator ? 10 : 11 };
}

static uint32_t add(struct ddp_stream of, uint8_t access)
{
    struct ddp_region r = { .of = of, .access = access, .len = sizeof(memory), .base = memory };

    cr_assert_eq(ddp_stags_add(&shared, &r, prng32, &p.b.prng), 0);
    return r.stag;
}

/*
 * RFC 5040 8.1.1 items 1 and 2, RFC 5041 8.2/1-4, RFC 5041 8.3 item 3 and RFC 5041 8.3.1 items 1 and 2: a region
 * of the domain is there for all
 * its streams, one of a stream for that one
 */
Test(iwarp_ops, regions_of_a_domain_are_reached_by_its_streams_only)
{
    static const struct {
        const char *what;
        struct ddp_stream of;
        bool ok;
    } rows[] = {
        { "the domain's", { 1, 0 }, true },
        { "this stream's", { 1, 11 }, true },
        { "another stream's", { 1, 12 }, false },
        { "another domain's", { 2, 0 }, false },
        { "this stream's in another domain", { 2, 11 }, false },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct endpoint_event ev;
        uint32_t stag, sink;

        ddp_stags_init(&shared);
        setup_with(domain_1);
        settle();
        stag = add(rows[i].of, DDP_ACCESS_REMOTE_WRITE | DDP_ACCESS_REMOTE_READ);
        cr_assert_eq(side_write(&p.a, stag, 0, data + 1, 10), 0);
        if (rows[i].ok) {
            cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), 0, "%s", rows[i].what);
            cr_expect_arr_eq(memory, data + 1, 10, "%s", rows[i].what);
        } else {
            cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), -EPROTO, "%s", rows[i].what);
            b_terminates(rows[i].what, TERM_LAYER_DDP, TERM_DDP_TAGGED, DDP_TAGGED_NOT_ASSOCIATED, 0xc0);
            cr_expect_eq(memory[0], 0, "%s", rows[i].what);
        }
        teardown();

        ddp_stags_init(&shared);
        setup_with(domain_1);
        settle();
        stag = add(rows[i].of, DDP_ACCESS_REMOTE_READ);
        sink = side_region(&p.a, memory, 0, 10, DDP_ACCESS_LOCAL_SINK);
        p.a.ep.stags.region[0].of.pd = 1;
        cr_assert_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ .sink_stag = sink, .len = 10, .src_stag = stag }),
                     0);
        if (rows[i].ok) {
            cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), 0, "%s", rows[i].what);
        } else {
            cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), -EPROTO, "%s", rows[i].what);
            b_terminates(rows[i].what, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_NOT_ASSOCIATED, 0xe0);
        }
        teardown();
    }
}

/* RFC 5040 8.1.1 item 7, RFC 5042 6.4.5/1: an STag valid on several streams is not for one peer to invalidate */
/* RFC 5040 5.3/10 and RFC 5040 7.2 items 4 and 5: nor is another stream's */
Test(iwarp_ops, a_peer_invalidates_what_is_its_streams_alone)
{
    static const struct {
        const char *what;
        struct ddp_stream of;
        bool ok;
    } rows[] = {
        { "this stream's", { 1, 11 }, true },
        { "shared by the domain", { 1, 0 }, false },
        { "another stream's", { 1, 12 }, false },
        { "another domain's", { 2, 11 }, false },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct endpoint_event ev;
        uint32_t stag;

        ddp_stags_init(&shared);
        setup_with(domain_1);
        settle();
        stag = add(rows[i].of, DDP_ACCESS_REMOTE_WRITE);
        cr_assert_eq(send_with(IWARP_INVALIDATE, stag, 10), 0);
        if (rows[i].ok) {
            cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), 1, "%s", rows[i].what);
            cr_expect_eq(ev.invalidated, stag);
            cr_expect_null(ddp_stags_find(&shared, stag), "%s", rows[i].what);
        } else {
            cr_expect_eq(next(&p.b, &p.a, &p.ab, &ev), -EPROTO, "%s", rows[i].what);
            b_terminates(rows[i].what, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_CANNOT_INVALIDATE, 0xc0);
            cr_expect_not_null(ddp_stags_find(&shared, stag), "%s", rows[i].what);
        }
        teardown();
    }
}

/* ---- ends ---- */

/* RFC 5041 6.2.1/1,2,7: what was accepted is sent, what comes after is an error, the other half goes on */
Test(iwarp_ops, a_side_that_has_ended_sending_sends_what_it_took_and_still_receives, .fini = teardown)
{
    struct iov_iter none = iov_iter_init(NULL, 0);
    uint32_t source, sink;
    struct endpoint_event ev;

    setup_with(immediate);
    settle();
    source = side_region(&p.a, data, 0, 1000, DDP_ACCESS_REMOTE_READ);
    sink = side_region(&p.b, memory, 0, 1000, DDP_ACCESS_LOCAL_SINK);
    cr_assert_eq(send_with(0, 0, 5000), 0);
    iwarp_end_sending(&p.a.ep);
    cr_expect_eq(send_with(0, 0, 1), -EPIPE);
    cr_expect_eq(send_with(IWARP_FENCE, 0, 1), -EPIPE);
    cr_expect_eq(side_write(&p.a, 1, 0, "x", 1), -EPIPE);
    cr_expect_eq(iwarp_post_write_with(&p.a.ep, 0, 1, 0, &none, 0), -EPIPE);
    cr_expect_eq(iwarp_post_read(&p.a.ep, &(struct rdmap_read){ 0 }), -EPIPE);
    cr_expect_eq(iwarp_post_immediate(&p.a.ep.base, 1, true), -EPIPE);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    cr_expect_eq(ev.len, 5001u);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);

    cr_assert_eq(side_send(&p.b, "b", 1, data, 3000), 0);
    cr_assert_eq(next(&p.a, &p.b, &p.ba, &ev), 1);
    cr_expect_eq(ev.len, 3001u);
    iwarp_release(&p.a.ep.base, ev.data + ev.len);
    /* RFC 5040 5.2.1/12: a valid Read Request "MUST" be answered */
    cr_assert_eq(iwarp_post_read(&p.b.ep, &(struct rdmap_read){ .sink_stag = sink, .len = 1000, .src_stag = source }),
                 0);
    cr_assert_eq(next(&p.a, &p.b, &p.ba, &ev), 0);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 0);
    cr_expect_eq(iwarp_reads_done(&p.b.ep), 1u);
    cr_expect_arr_eq(memory, data, 1000);
}

/*
 * RFC 5041 3 item 9/1,2 and RFC 5041 6.2.1/4: half-closed, "continue to process outbound data transfer requests
 * normally"
 */
/* RFC 5044 7.2/1: a graceful close is told */
Test(iwarp_ops, after_the_peers_graceful_end_the_other_half_goes_on, .fini = teardown)
{
    struct endpoint_event ev;

    setup_with(NULL);
    cr_assert_eq(send_with(0, 0, 2000), 0);
    cr_assert_eq(next(&p.b, &p.a, &p.ab, &ev), 1);
    iwarp_release(&p.b.ep.base, ev.data + ev.len);
    cr_expect(iwarp_in_end(&p.b.ep));
    cr_expect_eq(iwarp_state_now(&p.b.ep), IWARP_FULL);
    cr_expect_eq(p.b.ep.stats.errors, 0u);
    cr_assert_eq(side_send(&p.b, "b", 1, data, 3000), 0);
    cr_assert_eq(next(&p.a, &p.b, &p.ba, &ev), 1);
    cr_expect_eq(ev.len, 3001u);
}

/*
 * RFC 5041 6.2/1 and RFC 5041 6.2.2/1-4: the LLP stream is lost: a fatal error, said to the ULP; outgoing octets
 * still go
 */
/* RFC 5044 8 code 1/1,2: lost, told with its code */
Test(iwarp_ops, an_end_at_any_other_octet_is_a_fatal_error_told_once)
{
    uint8_t f[3000];
    size_t n = fb_send(f, 1, data, 100), first;

    first = fb_untagged(f + n, FB_UM, FB_RV | 3, 0, 0, 2, 0, data, 50); /* of two segments */
    for (size_t cut = 1; cut <= n + first; cut++) {
        struct endpoint_event ev;
        bool clean = cut == n;

        setup_with(NULL);
        settle();
        feed(f, cut);
        while (iwarp_poll(&p.b.ep.base, &ev) == 1)
            iwarp_release(&p.b.ep.base, ev.data + ev.len);
        cr_expect_eq(iwarp_in_end(&p.b.ep), clean, "cut at %zu", cut);
        cr_expect_eq(iwarp_in_end(&p.b.ep), clean, "asked again");
        cr_expect_eq(p.b.ep.stats.errors, 0u, "the peer's protocol was right");
        if (!clean) {
            cr_expect_eq(iwarp_error(&p.b.ep).layer, TERM_LAYER_LLP);
            cr_expect_eq(iwarp_error(&p.b.ep).code, TERM_MPA_CLOSED);
        }
        cr_expect_not(iwarp_ctrl_pending(&p.b.ep), "no Terminate to nobody");
        cr_assert_eq(side_send(&p.b, "b", 1, data, 10), 0, "cut at %zu", cut);
        cr_expect_eq(next(&p.a, &p.b, &p.ba, &ev), 1, "cut at %zu", cut);
        teardown();
    }
}

/* ---- floods ---- */

/* RFC 5042 section 6.4: messages without payload take no memory, however many come, and are counted */
Test(iwarp_ops, floods_of_empty_messages_leave_nothing_behind_but_their_count, .fini = teardown)
{
    uint8_t f[300];
    size_t n;
    uint64_t msn = 1;

    setup_with(NULL);
    settle();
    uint64_t before = p.b.ep.stats.rx_empty; /* the RTR */
    for (unsigned i = 0; i < 30000; i++) {
        struct endpoint_event ev;
        uint8_t *to;

        n = fb_write(f, i, i, NULL, 0);
        n += fb_read_request(f + n, (uint32_t)msn, i, i, 0, i, i);
        n += fb_send(f + n, (uint32_t)msn++, NULL, 0);
        feed(f, n);
        cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
        iwarp_release(&p.b.ep.base, ev.data + ev.len);
        cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
        cr_assert_eq(iwarp_in_space(&p.b.ep, &to), p.b.ep.cfg.in_cap, "round %u", i);
        side_push(&p.b, &p.ba); /* the Read's answer */
        uint8_t drop[64];
        while (mem_pipe_read(&p.ba, drop, sizeof(drop)) > 0)
            ;
    }
    cr_expect_eq(p.b.ep.stats.rx_empty - before, 90000u);
    cr_expect_eq(p.b.ep.stats.errors, 0u);
}

/* RFC 5042 6.4.3.3/2: Reads beyond what was agreed are refused while their answers cannot go out */
/* RFC 5040 6.1/5 and RFC 5040 8.1.1 item 11: a cap on Reads */
Test(iwarp_ops, a_flood_of_reads_against_a_closed_window_ends_at_ird)
{
    for (uint16_t ird = 1; ird <= IWARP_IRD_MAX; ird++) {
        struct iwarp_cfg c;
        uint8_t f[200];
        unsigned i;

        setup_with(NULL);
        c = side_cfg(&p.b, false, 0);
        c.ird = ird;
        cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
        feed(f, fb_write(f, 1, 0, NULL, 0)); /* the first FPDU, whatever it is */
        for (i = 1; i <= ird; i++) {
            feed(f, fb_read_request(f, i, 1, 0, 0, 1, 0));
            cr_assert_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), 0, "%u", i);
        }
        feed(f, fb_read_request(f, i, 1, 0, 0, 1, 0));
        cr_expect_eq(iwarp_poll(&p.b.ep.base, &(struct endpoint_event){ 0 }), -EPROTO, "%u", i);
        b_terminates("one more", TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER, 0xc0);
        teardown();
    }
}
