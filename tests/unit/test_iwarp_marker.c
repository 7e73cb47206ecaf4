/*
 * The software endpoint with markers in either direction (RFC 5044 section 4.3), and frames that are
 * given out a TCP segment at a time (section 5.1).
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "core/base/bytes.h"
#include "core/base/must.h"
#include "core/iwarp/iwarp_ops.h"
#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

static struct pair p;

/* a sends with markers if ab, b if ba. */
static void setup(uint8_t rtr, bool ab, bool ba, size_t pipe_cap)
{
    struct iwarp_cfg c;

    cr_assert_eq(pair_init(&p, rtr, pipe_cap), 0);
    c = side_cfg(&p.a, true, rtr);
    cfg_markers(&c, ba, ab);
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    c = side_cfg(&p.b, false, rtr);
    cfg_markers(&c, ab, ba);
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
}

/*
 * Markers from a at most. a gives out whole frames, made for segments of emss octets; 0: as long as side_cfg has them.
 */
static void setup_aligned(bool markers, size_t emss)
{
    struct iwarp_cfg c;

    setup(0, markers, false, 4096);
    c = side_cfg(&p.a, true, 0);
    cfg_markers(&c, false, markers);
    c.aligned = true;
    if (emss)
        c.mulpdu = mpa_mulpdu(emss, markers);
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
}

/* All that side has to send, from a pipe of its own. */
static size_t collect(struct side *s, uint8_t *buf, size_t cap)
{
    struct mem_pipe pipe;
    static uint8_t mem[1 << 20];

    mem_pipe_init(&pipe, mem, sizeof(mem));
    cr_assert(side_push(s, &pipe));
    return mem_pipe_read(&pipe, buf, cap);
}

static void feed(struct side *s, const uint8_t *buf, size_t len)
{
    uint8_t *at;

    cr_assert_geq(iwarp_in_space(&s->ep, &at), len);
    memcpy(at, buf, len);
    iwarp_in_fed(&s->ep, len);
}

/*
 * Takes the markers out of a direction's octets by their places alone, checks that each points to
 * the length field of its FPDU, and that what is left are whole FPDUs with zero pads and good CRCs
 * (those cover the markers). Returns the octets left; lens: the ULPDUs' lengths.
 */
static size_t strip(const uint8_t *in, size_t len, uint8_t *out, size_t *lens, size_t *n)
{
    size_t at = 0, to = 0;

    *n = 0;
    while (at < len) {
        size_t start = at, field = 0, ulpdu = 0, want = 2, got = 0, begin = to;
        uint32_t crc;

        while (got < want) {
            if (at % 512 == 0) {
                cr_assert_eq(get_be32(in + at), got == 0 ? 0 : at - field, "marker at %zu", at);
                at += 4;
            }
            if (got == 0)
                field = at;
            out[to++] = in[at++];
            if (++got == 2) {
                ulpdu = get_be16(out + begin);
                want = (2 + ulpdu + 3) / 4 * 4 + 4;
            }
        }
        cr_assert_leq(at, len);
        crc = crc32c_final(crc32c_update(CRC32C_INIT, in + start, at - start - 4));
        cr_assert_eq(get_le32(in + at - 4), crc, "CRC of the FPDU at %zu", start);
        lens[(*n)++] = ulpdu;
    }
    return to;
}

/*
 * RFC 5044 4.3/7 and RFC 5044 section 7.1.2 rule 7: "the first octets sent are the special Marker
 * 0x00000000, followed by the start of the FPDU".
 */
Test(iwarp_marker, the_first_octets_are_the_zero_marker_whatever_the_first_fpdu_is)
{
    static const struct {
        uint8_t rtr;
        size_t ulpdu;
    } row[] = { { MPA_RTR_SEND, 18 }, { MPA_RTR_WRITE, 14 }, { MPA_RTR_READ, 46 }, { 0, 18 + 3 } };

    for (size_t i = 0; i < SW_ARRAY_LEN(row); i++) {
        uint8_t buf[256];

        setup(row[i].rtr, true, true, 4096);
        if (row[i].rtr == 0)
            cr_assert_eq(side_send(&p.a, NULL, 0, "abc", 3), 0);
        cr_assert_eq(collect(&p.a, buf, sizeof(buf)), 4 + mpa_fpdu_len(row[i].ulpdu));
        cr_assert_eq(get_be32(buf), 0u);
        cr_assert_eq(get_be16(buf + 4), row[i].ulpdu);
        pair_fini(&p);
    }
}

/* RFC 5044 7.1.2 rule 4: "MUST receive and validate at least one FPDU before sending any FPDUs or
 * Markers". */
Test(iwarp_marker, a_responder_sends_not_even_a_marker_before_the_first_fpdu_came)
{
    const struct iovec *iov;
    struct endpoint_event ev;
    uint8_t buf[256];
    size_t len, n;

    setup(MPA_RTR_WRITE, true, true, 4096);
    cr_expect_eq(side_send(&p.b, NULL, 0, "abc", 3), -EAGAIN);
    cr_expect_eq(iwarp_out(&p.b.ep, &iov, &len), 0u);
    n = collect(&p.a, buf, sizeof(buf));
    feed(&p.b, buf, n - 1);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    cr_expect_eq(iwarp_out(&p.b.ep, &iov, &len), 0u);
    feed(&p.b, buf + n - 1, 1);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    cr_expect_eq(side_send(&p.b, NULL, 0, "abc", 3), 0);
    n = collect(&p.b, buf, sizeof(buf));
    cr_expect_eq(n, 4 + mpa_fpdu_len(18 + 3));
    cr_expect_eq(get_be32(buf), 0u);
    pair_fini(&p);
}

/* RFC 5044 7.1.1/5-9: M "'0', Markers MUST NOT be added to the data stream by that endpoint": each
 * direction for itself. */
Test(iwarp_marker, each_direction_has_them_or_not)
{
    for (int bits = 0; bits < 4; bits++) {
        struct endpoint_event ev;
        uint8_t buf[256];
        size_t n;

        setup(0, bits & 1, bits & 2, 4096);
        cr_assert_eq(side_send(&p.a, NULL, 0, "abc", 3), 0);
        n = collect(&p.a, buf, sizeof(buf));
        cr_expect_eq(n, (bits & 1 ? 4 : 0) + mpa_fpdu_len(21));
        feed(&p.b, buf, n);
        cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
        cr_expect_arr_eq(ev.data, "abc", 3);
        cr_assert_eq(side_send(&p.b, NULL, 0, "defg", 4), 0);
        n = collect(&p.b, buf, sizeof(buf));
        cr_expect_eq(n, (bits & 2 ? 4 : 0) + mpa_fpdu_len(22));
        feed(&p.a, buf, n);
        cr_assert_eq(iwarp_poll(&p.a.ep.base, &ev), 1);
        cr_expect_arr_eq(ev.data, "defg", 4);
        pair_fini(&p);
    }
}

/* Sends, Writes and Read Responses of several segments, read octet by octet by words of our own. */
Test(iwarp_marker, all_kinds_of_frames_have_them_at_every_512th_octet)
{
    static uint8_t src[20000], dst[20000], raw[100000], plain[100000];
    static size_t lens[500];
    struct rdmap_read rd = { .len = sizeof(src) };
    struct endpoint_event ev;
    uint32_t to_b, from_a;
    size_t n, len, frames;
    struct iwarp_cfg c;

    setup(MPA_RTR_READ, true, true, 4096);
    c = side_cfg(&p.a, true, MPA_RTR_READ);
    cfg_markers(&c, true, true);
    c.mulpdu = 333;
    cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (uint8_t)(i % 253 + 1);
    to_b = side_region(&p.b, dst, 0, sizeof(dst), DDP_ACCESS_REMOTE_WRITE | DDP_ACCESS_LOCAL_SINK);
    from_a = side_region(&p.a, src, 0, sizeof(src), DDP_ACCESS_REMOTE_READ);

    cr_assert_eq(side_send(&p.a, "hdr", 3, src, 1000), 0);
    cr_assert_eq(side_write(&p.a, to_b, 0, src, 10000), 0);
    len = collect(&p.a, raw, sizeof(raw));
    n = strip(raw, len, plain, lens, &frames);
    cr_expect_eq(frames, 1u + 4 + 32);
    cr_expect_eq(lens[1], 333u);
    cr_expect_eq(len, n + 4 * ((len + 511) / 512));
    for (size_t i = 0; i < len; i++) {
        feed(&p.b, raw + i, 1);
        if (iwarp_poll(&p.b.ep.base, &ev) == 1) {
            cr_expect_eq(ev.len, 1003u);
            cr_expect_arr_eq(ev.data + 3, src, 1000);
            iwarp_release(&p.b.ep.base, ev.data + ev.len);
        }
    }
    cr_expect_eq(p.b.ep.stats.rx_sends, 1u);
    cr_expect_arr_eq(dst, src, 10000);
    cr_expect(iwarp_in_eof(&p.b.ep));

    /* And back: the answer to the RTR, and a Read Request of b's answered by a. */
    rd.sink_stag = to_b;
    rd.src_stag = from_a;
    cr_assert_eq(collect(&p.b, raw, sizeof(raw)), 4 + mpa_fpdu_len(14));
    feed(&p.a, raw, 4 + mpa_fpdu_len(14));
    cr_assert_eq(iwarp_poll(&p.a.ep.base, &ev), 0);
    cr_assert_eq(iwarp_post_read(&p.b.ep, &rd), 0);
    len = collect(&p.b, raw, sizeof(raw));
    feed(&p.a, raw, len);
    cr_assert_eq(iwarp_poll(&p.a.ep.base, &ev), 0);
    memset(dst, 0, sizeof(dst));
    len = collect(&p.a, raw, sizeof(raw));
    cr_expect_gt(len, sizeof(src) + 4 * sizeof(src) / 512);
    feed(&p.b, raw, len);
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    cr_expect_eq(iwarp_reads_done(&p.b.ep), 1u);
    cr_expect_arr_eq(dst, src, sizeof(src));
    pair_fini(&p);
}

/* What follows is wherever a marker can stand in it: the Send before is longer each time. */
static void post_all_untagged_kinds(const uint32_t *inv_stag, size_t shift)
{
    static uint8_t filler[512];
    struct iovec v = { filler, 10 };
    struct iov_iter it;

    cr_assert_eq(side_send(&p.a, NULL, 0, filler, shift), 0);
    it = iov_iter_init(&v, 1);
    cr_assert_eq(iwarp_post_send_with(&p.a.ep, IWARP_SOLICITED, 0, NULL, 0, &it, 10), 0);
    it = iov_iter_init(&v, 1);
    cr_assert_eq(iwarp_post_send_with(&p.a.ep, IWARP_INVALIDATE, inv_stag[0], NULL, 0, &it, 10), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, 0x0102030405060708ull, false), 0);
    it = iov_iter_init(&v, 1);
    cr_assert_eq(iwarp_post_send_with(&p.a.ep, IWARP_INVALIDATE | IWARP_SOLICITED, inv_stag[1], NULL, 0, &it, 10), 0);
    cr_assert_eq(iwarp_post_immediate(&p.a.ep.base, 0xf1f2f3f4f5f6f7f8ull, true), 0);
}

/* RFC 5044 4.3/1,2: "MUST insert ... at every 512th octet", whatever the FPDU carries. */
Test(iwarp_marker, immediate_data_and_sends_with_invalidate_have_them_in_any_place)
{
    static const uint8_t opcodes[] = { RDMAP_SEND,      RDMAP_SEND_SE,     RDMAP_SEND_INV,
                                       RDMAP_IMMEDIATE, RDMAP_SEND_SE_INV, RDMAP_IMMEDIATE_SE };
    static uint8_t raw[2048], plain[2048], mem[64];
    unsigned in_frame = 0;

    for (size_t shift = 0; shift < 512; shift += 4) {
        size_t lens[8], frames, n, at = 0;
        uint32_t inv_stag[2], told[SW_ARRAY_LEN(opcodes)];
        unsigned events = 0;
        struct iwarp_cfg c;

        setup(0, true, false, 4096);
        c = side_cfg(&p.a, true, 0);
        cfg_markers(&c, false, true);
        c.immediate = true;
        cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
        c = side_cfg(&p.b, false, 0);
        cfg_markers(&c, true, false);
        c.immediate = true;
        cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
        for (int i = 0; i < 2; i++)
            inv_stag[i] = side_region(&p.b, mem, 0, sizeof(mem), DDP_ACCESS_REMOTE_WRITE);
        memcpy(told, (uint32_t[]){ 0, 0, inv_stag[0], 0, inv_stag[1], 0 }, sizeof(told));
        post_all_untagged_kinds(inv_stag, shift);
        n = collect(&p.a, raw, sizeof(raw));
        in_frame += strip(raw, n, plain, lens, &frames) + 4 < n;
        cr_assert_eq(frames, SW_ARRAY_LEN(opcodes));
        for (size_t i = 0; i < frames; at += mpa_fpdu_len(lens[i++])) {
            cr_expect_eq(plain[at + 3], 1 << 6 | opcodes[i], "frame %zu", i);
            cr_expect_eq(get_be32(plain + at + 4), told[i], "frame %zu", i);
        }
        for (size_t i = 0; i < n; i++) {
            struct endpoint_event ev;

            feed(&p.b, raw + i, 1);
            if (iwarp_poll(&p.b.ep.base, &ev) != 1)
                continue;
            bool imm = opcodes[events] == RDMAP_IMMEDIATE || opcodes[events] == RDMAP_IMMEDIATE_SE;
            cr_expect_eq(ev.type, imm ? ENDPOINT_IMMEDIATE : ENDPOINT_SEND, "event %u", events);
            cr_expect_eq(ev.len, imm ? 8 : events == 0 ? shift : 10, "event %u", events);
            cr_expect_eq(ev.invalidated, told[events], "event %u", events);
            if (imm)
                cr_expect_eq(get_be64(ev.data), events == 3 ? 0x0102030405060708ull : 0xf1f2f3f4f5f6f7f8ull);
            iwarp_release(&p.b.ep.base, ev.data + ev.len);
            events++;
        }
        cr_expect_eq(events, SW_ARRAY_LEN(opcodes));
        cr_expect(!ddp_stags_find(&p.b.ep.stags, inv_stag[0]) && !ddp_stags_find(&p.b.ep.stags, inv_stag[1]));
        cr_expect_eq(p.b.ep.stats.rx_immediates, 2u);
        cr_expect_eq(iwarp_state_now(&p.b.ep), IWARP_FULL);
        pair_fini(&p);
    }
    cr_expect_gt(in_frame, 40u);
}

/* Messages of several segments are joined, markers and headers between them left out. */
Test(iwarp_marker, messages_of_several_segments_are_joined_without_markers)
{
    static uint8_t src[3000], raw[20000];
    struct endpoint_event ev, next;

    setup(0, true, false, 4096);
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (uint8_t)(i % 253 + 1);
    cr_assert_eq(side_send(&p.a, NULL, 0, src, 3000), 0);
    cr_assert_eq(side_send(&p.a, NULL, 0, src + 1, 2999), 0);
    feed(&p.b, raw, collect(&p.a, raw, sizeof(raw)));
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &next), 1);
    cr_expect_eq(ev.len, 3000u);
    cr_expect_arr_eq(ev.data, src, 3000);
    cr_expect_eq(next.len, 2999u);
    cr_expect_arr_eq(next.data, src + 1, 2999);
    pair_fini(&p);
}

/* With room for the longest FPDU but not for a message of several: as without markers. */
Test(iwarp_marker, the_room_for_several_segments_counts_the_markers)
{
    static uint8_t src[3000], raw[10000];
    struct endpoint_event ev;

    for (int more = 0; more <= 1; more++) {
        setup(0, true, false, 4096);
        struct iwarp_cfg c = side_cfg(&p.b, false, 0);
        cfg_markers(&c, true, false);
        c.in_cap = MPA_FPDU_MARKED_MAX + MPA_HDR_LEN + SIDE_SEND_MAX - 1u + (unsigned)more;
        cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
        cr_assert_eq(side_send(&p.a, NULL, 0, src, 1006), 0);
        cr_assert_eq(side_send(&p.a, NULL, 0, src, 3000), 0);
        feed(&p.b, raw, collect(&p.a, raw, sizeof(raw)));
        cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 1);
        cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), more ? 1 : -EPROTO);
        pair_fini(&p);
    }
}

/* RFC 5044 8 code 3/2 and RFC 5044 8/1: "Once MPA delivers an error of any type, it MUST NOT pass or deliver any
 * additional FPDUs on that half connection." */
Test(iwarp_marker, a_wrong_marker_is_terminated_with_its_code_and_nothing_is_placed)
{
    static uint8_t src[2000], dst[2000], raw[10000];
    struct endpoint_event ev;
    uint32_t stag;
    size_t len;

    setup(MPA_RTR_WRITE, true, false, 4096);
    memset(src, 7, sizeof(src));
    len = collect(&p.a, raw, sizeof(raw));
    feed(&p.b, raw, len);
    cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
    stag = side_region(&p.b, dst, 0, sizeof(dst), DDP_ACCESS_REMOTE_WRITE);
    cr_assert_eq(side_write(&p.a, stag, 0, src, 900), 0);
    len = collect(&p.a, raw + len, sizeof(raw) - len) + len;
    size_t start = 4 + mpa_fpdu_len(14);
    put_be16(raw + 512 + 2, (uint16_t)(get_be16(raw + 512 + 2) - 4));
    put_le32(raw + len - 4, crc32c_final(crc32c_update(CRC32C_INIT, raw + start, len - start - 4)));
    feed(&p.b, raw + start, len - start);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), -EPROTO);
    cr_expect_eq(dst[0], 0);
    struct term_code t = iwarp_error(&p.b.ep);
    cr_expect(t.layer == TERM_LAYER_LLP && t.etype == 0 && t.code == TERM_MPA_MARKER);
    len = collect(&p.b, raw, sizeof(raw));
    cr_assert_gt(len, 22u);
    cr_expect_eq(raw[3] & 15, 7);
    cr_expect_eq(raw[20], 0x20);
    cr_expect_eq(raw[21], 3);
    feed(&p.b, raw, 8);
    cr_expect_eq(iwarp_poll(&p.b.ep.base, &ev), -EPROTO);
    pair_fini(&p);
}

/* What was dropped takes its markers with it: the next frame stands where the dropped one stood. */
Test(iwarp_marker, frames_dropped_by_a_detach_leave_no_gap)
{
    static uint8_t src[5000], raw[20000], plain[20000];
    static size_t lens[100];
    size_t len = 0, frames;
    struct mem_pipe pipe;
    static uint8_t mem[700];

    setup(0, true, false, 4096);
    memset(src, 9, sizeof(src));
    mem_pipe_init(&pipe, mem, sizeof(mem));
    cr_assert_eq(side_write(&p.a, 5, 0, src, 1000), 0);
    cr_assert_eq(side_write(&p.a, 5, 1000, src, 900), 0);
    cr_assert_eq(side_send(&p.a, NULL, 0, "x", 1), 0);
    cr_assert_not(side_push(&p.a, &pipe));
    cr_expect_eq(iwarp_out_borrowed(&p.a.ep), 0u, "all payload was copied");
    cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, 2u);
    cr_assert_eq(side_send(&p.a, NULL, 0, "yz", 2), 0);
    for (;;) {
        len += mem_pipe_read(&pipe, raw + len, sizeof(raw) - len);
        if (side_push(&p.a, &pipe))
            break;
    }
    len += mem_pipe_read(&pipe, raw + len, sizeof(raw) - len);
    strip(raw, len, plain, lens, &frames);
    cr_expect_eq(frames, 2u);
    cr_expect_eq(lens[0], 1014u);
    cr_expect_eq(lens[1], 20u);
    cr_expect_eq(get_be32(plain + mpa_fpdu_len(1014) + 2 + 10), 1u, "the MSN was taken back");
    pair_fini(&p);
}

/* The largest messages, and as many as there is room for; then -EAGAIN, and nothing is lost. */
Test(iwarp_marker, the_largest_messages_fit_out_buf)
{
    static uint8_t src[70000], dst[70000], raw[200000];
    struct iwarp_cfg c;
    struct endpoint_event ev;

    for (size_t mulpdu = MPA_MULPDU_MIN; mulpdu <= MPA_MULPDU_MAX; mulpdu = mulpdu * 5 / 2) {
        setup(0, true, false, 4096);
        c = side_cfg(&p.a, true, 0);
        cfg_markers(&c, false, true);
        c.mulpdu = mulpdu;
        cr_assert_eq(iwarp_init(&p.a.ep, &c), 0);
        size_t max = iwarp_write_max(&p.a.ep.base);
        uint32_t stag = side_region(&p.b, dst, 0, sizeof(dst), DDP_ACCESS_REMOTE_WRITE);
        for (size_t i = 0; i < max; i++)
            src[i] = (uint8_t)(i * 3 + mulpdu);
        memset(dst, 0, sizeof(dst));
        cr_assert_leq(max, sizeof(src));
        cr_expect_eq(side_write(&p.a, stag, 0, src, max + 1), -EMSGSIZE);
        cr_assert_eq(side_write(&p.a, stag, 0, src, max), 0, "MULPDU %zu: %zu", mulpdu, max);
        cr_expect_eq(side_write(&p.a, stag, 0, src, max), -EAGAIN);
        size_t len = collect(&p.a, raw, sizeof(raw));
        for (size_t at = 0; at < len;) {
            uint8_t *to;
            size_t n = iwarp_in_space(&p.b.ep, &to);

            n = n < len - at ? n : len - at;
            memcpy(to, raw + at, n);
            iwarp_in_fed(&p.b.ep, n);
            at += n;
            cr_assert_eq(iwarp_poll(&p.b.ep.base, &ev), 0);
        }
        cr_expect_arr_eq(dst, src, max);
        pair_fini(&p);
    }
}

/* A responder whose peer is known to be ready need not wait. */
Test(iwarp_marker, a_ready_responder_sends_at_once)
{
    struct iwarp_cfg c;

    setup(0, false, false, 4096);
    c = side_cfg(&p.b, false, 0);
    c.ready = true;
    cr_assert_eq(iwarp_init(&p.b.ep, &c), 0);
    cr_expect(iwarp_can_send(&p.b.ep));
    cr_expect_eq(side_send(&p.b, NULL, 0, "abc", 3), 0);
    pair_fini(&p);
}

/* ---- a TCP segment at a time ---- */

/* RFC 5044 5.1/3: "Multiple FPDUs MAY be packed into a single TCP segment as determined by the EMSS
 * calculation as long as they are entirely contained in the TCP segment." */
Test(iwarp_marker, segments_hold_whole_frames_and_as_many_as_fit)
{
    static uint8_t src[30000];
    for (int markers = 0; markers <= 1; markers++) {
        const struct iovec *iov;
        size_t n, len, total = 0, frames = 0;
        uint8_t raw[1500];

        setup_aligned(markers, 1448);
        cr_assert_eq(side_write(&p.a, 5, 0, src, 5000), 0); /* 4 frames */
        for (int i = 0; i < 12; i++)
            cr_assert_eq(side_send(&p.a, "hdr", 3, src, 200), 0);
        while ((n = iwarp_out_segment(&p.a.ep, 1448, &iov, &len)) > 0) {
            struct mpa_framing f = { .crc = true, .markers = markers };
            size_t sum = 0;

            cr_assert_leq(len, 1448u);
            for (size_t i = 0; i < n; i++) {
                memcpy(raw + sum, iov[i].iov_base, iov[i].iov_len);
                sum += iov[i].iov_len;
            }
            cr_assert_eq(sum, len);
            for (size_t at = 0; at < len; frames++) { /* whole ones, to its end */
                struct mpa_fpdu out;
                size_t need;
                ssize_t used = mpa_fpdu_decode(&f, total + at, raw + at, len - at, &out, &need);

                cr_assert_gt(used, 0);
                at += (size_t)used;
            }
            total += len;
            iwarp_out_sent(&p.a.ep, len);
        }
        cr_expect_eq(frames, 4u + 12);
        pair_fini(&p);
    }
}

Test(iwarp_marker, a_frame_larger_than_the_segment_goes_alone)
{
    static uint8_t src[3000];
    const struct iovec *iov;
    size_t len;

    setup_aligned(false, 0);
    cr_assert_eq(side_write(&p.a, 5, 0, src, 1000), 0);
    cr_assert_eq(side_write(&p.a, 5, 0, src, 1000), 0);
    cr_assert_gt(iwarp_out_segment(&p.a.ep, 500, &iov, &len), 0u);
    cr_expect_eq(len, mpa_fpdu_len(1014));
    iwarp_out_sent(&p.a.ep, 400); /* its rest, with nothing behind it */
    cr_assert_gt(iwarp_out_segment(&p.a.ep, 700, &iov, &len), 0u);
    cr_expect_eq(len, mpa_fpdu_len(1014) - 400);
    pair_fini(&p);
}

Test(iwarp_marker, joined_frames_are_given_out_whole)
{
    static uint8_t src[3000];
    const struct iovec *iov;
    size_t len;

    setup_aligned(false, 0);
    cr_assert_eq(side_write(&p.a, 5, 0, src, 2000), 0); /* two frames */
    cr_assert_gt(iwarp_out(&p.a.ep, &iov, &len), 0u);
    iwarp_out_sent(&p.a.ep, 1);
    cr_expect_eq(iwarp_out_detach(&p.a.ep).frames, 0u);
    iwarp_out_join(&p.a.ep);
    size_t whole = len - 1;
    cr_expect_eq(iwarp_out_segment(&p.a.ep, 1100, &iov, &len), 1u);
    cr_expect_eq(len, whole);
    iwarp_out_sent(&p.a.ep, len);
    cr_expect_eq(iwarp_out_segment(&p.a.ep, 1100, &iov, &len), 0u);
    pair_fini(&p);
}

/* RFC 5044 section 4.5: "If the TCP implementation needs to adjust EMSS to support MTU changes or changing TCP
 * options, the MULPDU value is changed accordingly." */
/* RFC 5041 3 items 1 and 2: a change is for what is posted after it */
/* RFC 5044 3/2: the current one */
Test(iwarp_marker, the_mulpdu_can_change_between_messages)
{
    static uint8_t src[3000], raw[10000], plain[10000];
    static size_t lens[20];
    size_t frames;

    setup(0, true, false, 4096);
    cr_assert_eq(side_write(&p.a, 5, 0, src, 2000), 0);
    iwarp_set_mulpdu(&p.a.ep, 500);
    cr_assert_eq(side_write(&p.a, 5, 2000, src, 900), 0);
    iwarp_set_mulpdu(&p.a.ep, 1);
    cr_assert_eq(side_write(&p.a, 5, 2900, src, 100), 0);
    strip(raw, collect(&p.a, raw, sizeof(raw)), plain, lens, &frames);
    cr_assert_eq(frames, 2u + 2 + 1);
    cr_expect_eq(lens[0], 1024u);
    cr_expect_eq(lens[2], 500u);
    cr_expect_eq(lens[4], 114u);
    iwarp_set_mulpdu(&p.a.ep, 1 << 20);
    cr_expect_eq(p.a.ep.cfg.mulpdu, MPA_MULPDU_MAX);
    pair_fini(&p);
}
