/*
 * The queue pair in software that faces a device's (core/iwarp/soft.h): two of them, coupled through memory, and
 * streams with flow control by credits over them.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/iwarp/soft.h"
#include "core/stream/stream.h"
#include "core/transport/mem.h"
#include "tests/unit/iwarp_pair.h"

#define RING_LEN 65536u
#define EAGER 4096u
#define BUFS 130u

struct end {
    struct soft_ep ep;
    struct stream st;
    struct soft_cfg cfg;
    struct mem_pipe *out, *in;
};

static struct end a, b;
static struct mem_pipe ab, ba;
static uint8_t ab_mem[1u << 16], ba_mem[1u << 16], sent[1u << 21], got[1u << 21];
static uint64_t rng;

static uint32_t rnd(void *unused)
{
    (void)unused;
    return prng32(&rng);
}

static struct soft_side side_of(uint32_t stag)
{
    return (struct soft_side){
        .ring_stag = stag, .ring_len = RING_LEN, .fence_stag = stag + 1, .msg_max = STREAM_HDR_LEN + EAGER, .bufs = BUFS
    };
}

static struct stream_params params_of(const struct soft_side *s)
{
    return (struct stream_params){
        .version = 1,
        .ring_stag = s->ring_stag,
        .ring_len = s->ring_len,
        .eager_max = EAGER,
        .bufs = s->bufs,
    };
}

static void end_init(struct end *e, bool initiator, uint32_t stag, uint32_t peer, size_t mulpdu, bool markers)
{
    e->cfg = (struct soft_cfg){
        .initiator = initiator,
        .tx = { .crc = true, .markers = markers },
        .rx = { .crc = true, .markers = markers },
        .ird = 1,
        .ord = 1,
        .mulpdu = mulpdu,
        .local = side_of(stag),
        .peer = side_of(peer),
        .write_max = 65536,
        .queue_len = 4 * 65536,
        .random32 = rnd,
    };
    e->cfg.ring = malloc(RING_LEN);
    e->cfg.mem = malloc(soft_memory(&e->cfg));
    cr_assert_eq(soft_init(&e->ep, &e->cfg), 0);
    struct stream_cfg sc = {
        .ep = &e->ep.base,
        .local = params_of(&e->cfg.local),
        .peer = params_of(&e->cfg.peer),
        .ring = e->cfg.ring,
    };
    cr_assert_eq(stream_init(&e->st, &sc), 0);
}

static void pair(size_t mulpdu, bool markers)
{
    rng = 7;
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    mem_pipe_init(&ab, ab_mem, sizeof(ab_mem));
    mem_pipe_init(&ba, ba_mem, sizeof(ba_mem));
    a.out = b.in = &ab;
    b.out = a.in = &ba;
    end_init(&a, true, 0xa0a1a2a3, 0xb0b1b2b3, mulpdu, markers);
    end_init(&b, false, 0xb0b1b2b3, 0xa0a1a2a3, mulpdu, markers);
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (uint8_t)prng32(&rng);
}

static void done(void)
{
    struct end *ends[] = { &a, &b };
    for (size_t i = 0; i < 2; i++) {
        free(ends[i]->cfg.ring);
        free(ends[i]->cfg.mem);
    }
}

/* What the pipe takes. */
static void push(struct end *e)
{
    struct iovec iov[2];
    unsigned n;
    stream_flushed(&e->st);
    while ((n = soft_out(&e->ep, iov)) > 0) {
        size_t went = mem_pipe_write(e->out, iov, n);
        if (went == 0)
            return;
        soft_out_sent(&e->ep, went);
    }
}

static void feed(struct end *e)
{
    uint8_t *p;
    size_t space = soft_in_space(&e->ep, &p);
    soft_in_fed(&e->ep, mem_pipe_read(e->in, p, space));
}

/* What has come. Returns stream_poll's answer. */
static int pull(struct end *e)
{
    feed(e);
    int r = stream_poll(&e->st);
    if (r >= 0 && stream_wants_credit(&e->st)) {
        int c = stream_credit(&e->st);
        cr_assert(c == 0 || c == -EAGAIN);
    }
    return r;
}

static size_t give(struct end *e, const uint8_t *p, size_t len)
{
    struct iovec iov = { (void *)(uintptr_t)p, len };
    struct iov_iter it = iov_iter_init(&iov, 1);
    ssize_t n = stream_write(&e->st, &it, len);
    cr_assert_geq(n, 0);
    return (size_t)n;
}

static size_t take(struct end *e, uint8_t *p, size_t len)
{
    struct iovec iov = { p, len };
    struct iov_iter it = iov_iter_init(&iov, 1);
    return stream_read(&e->st, &it, len);
}

/* The initiator's first message, without which the responder may not send. */
static void begin(void)
{
    cr_assert_eq(stream_rtr(&a.st), 0);
    push(&a);
    cr_assert_eq(pull(&b), 1);
}

/* All of sent, from one to the other, in pieces of up to `most`, through pipes that cut. */
static void transfer(struct end *from, struct end *to, size_t most)
{
    size_t in = 0, out = 0, idle = 0;
    memset(got, 0, sizeof(got));
    while (out < sizeof(sent)) {
        size_t before = in + out;
        if (in < sizeof(sent)) {
            size_t want = 1 + prng32(&rng) % most;
            in += give(from, sent + in, want < sizeof(sent) - in ? want : sizeof(sent) - in);
        }
        push(from);
        cr_assert_geq(pull(to), 0);
        if (prng32(&rng) % 3 > 0)
            out += take(to, got + out, 1 + prng32(&rng) % most);
        push(to);
        cr_assert_geq(pull(from), 0);
        idle = in + out == before ? idle + 1 : 0;
        cr_assert_lt(idle, 1000u, "nothing moves after %zu, %zu", in, out);
    }
    cr_expect_eq(memcmp(sent, got, sizeof(sent)), 0);
}

Test(soft, a_stream_with_credits_goes_both_ways_in_segments_frames)
{
    static const size_t most[] = { 100, 5000, 300000 };
    static const size_t mulpdu[] = { MPA_MULPDU_MIN, 1442, 8954, MPA_MULPDU_MAX };
    for (size_t i = 0; i < SW_ARRAY_LEN(mulpdu); i++)
        for (size_t k = 0; k < SW_ARRAY_LEN(most); k++) {
            pair(mulpdu[i], k == 1);
            begin();
            if (k > 0) {
                mem_pipe_cut(&ab, 3000, rnd, NULL);
                mem_pipe_cut(&ba, 3000, rnd, NULL);
            }
            if (k == 0 && i > 0) { /* (small ones take long) */
                done();
                continue;
            }
            transfer(&a, &b, most[k]);
            transfer(&b, &a, most[k]);
            cr_expect_eq(a.ep.iw.stats.errors + b.ep.iw.stats.errors, 0u);
            done();
        }
}

Test(soft, what_is_posted_is_the_callers_again_at_once)
{
    uint8_t mine[20000];
    pair(1442, false);
    begin();
    memset(mine, 1, sizeof(mine));
    cr_assert_eq(give(&a, mine, sizeof(mine)), sizeof(mine));
    memset(mine, 2, sizeof(mine)); /* nothing has gone out yet */
    push(&a);
    cr_assert_eq(pull(&b), 1);
    cr_assert_eq(take(&b, got, sizeof(got)), sizeof(mine));
    for (size_t i = 0; i < sizeof(mine); i++)
        cr_assert_eq(got[i], 1);
    done();
}

/* RFC 5044 5.1: an FPDU fits the segment that the MULPDU was made for. */
Test(soft, no_frame_is_longer_than_a_segment)
{
    size_t emss = 1448, frames = 0;
    pair(mpa_mulpdu(emss, false), false);
    begin();
    cr_assert_eq(give(&a, sent, 50000), 50000u);
    stream_flushed(&a.st);
    struct iovec iov[2];
    cr_assert_eq(soft_out(&a.ep, iov), 1u);
    for (const uint8_t *p = iov[0].iov_base, *end = p + iov[0].iov_len; p < end; frames++) {
        size_t len = mpa_fpdu_len((size_t)p[0] << 8 | p[1]);
        cr_assert_leq(len, emss, "frame %zu", frames);
        p += len;
    }
    cr_expect_gt(frames, 30u);
    done();
}

/* A posted message finds room or is refused whole; and what is refused goes later. */
Test(soft, a_full_queue_refuses_and_loses_nothing)
{
    size_t in = 0, out = 0;
    pair(1442, false);
    begin();
    for (int i = 0; i < 100; i++) /* nothing goes out, credits end it */
        in += give(&a, sent + in, 3000);
    cr_expect_lt(in, 300000u);
    cr_expect_leq(soft_unsent(&a.ep), (size_t)a.cfg.queue_len);
    for (int i = 0; i < 1000 && out < in; i++) {
        push(&a);
        cr_assert_geq(pull(&b), 0);
        out += take(&b, got + out, sizeof(got) - out);
        push(&b);
        cr_assert_geq(pull(&a), 0);
    }
    cr_expect_eq(out, in);
    cr_expect_eq(memcmp(sent, got, in), 0);
    done();
}

Test(soft, the_fence_is_answered_when_all_before_it_has_arrived)
{
    pair(1442, false);
    begin();
    cr_expect_eq(soft_fence_done(&a.ep), 0);
    cr_assert_eq(give(&a, sent, 50000), 50000u);
    cr_assert_eq(soft_fence(&a.ep), 0);
    cr_assert_eq(soft_fence(&a.ep), 0, "once");
    push(&a);
    cr_expect_eq(soft_fence_done(&a.ep), 0);
    cr_assert_eq(pull(&b), 1);
    cr_expect_eq(stream_avail(&b.st), 50000u);
    cr_assert(soft_ctrl_pending(&b.ep), "the Read is to be answered");
    push(&b);
    cr_assert_geq(pull(&a), 0);
    cr_expect_eq(soft_fence_done(&a.ep), 1);
    done();
}

Test(soft, without_a_read_to_ask_by_there_is_no_fence)
{
    pair(1442, false);
    a.ep.iw.cfg.ord = 0;
    cr_expect_eq(soft_fence(&a.ep), -EPIPE);
    done();
}

/* A peer may write to the ring and read the octets behind it, each by the STag for that, and nothing else. */
Test(soft, a_region_can_be_used_for_nothing_but_its_purpose)
{
    static const struct {
        bool write, fence_stag;
        uint64_t to;
        uint32_t len;
        uint8_t layer, etype, code;
    } tries[] = {
        { false, false, 0, 8, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_ACCESS },
        { false, false, RING_LEN, 8, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS },
        { false, true, 0, 8, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS },
        { false, true, RING_LEN, 9, TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_BOUNDS },
        { true, true, RING_LEN, 8, TERM_LAYER_DDP, TERM_DDP_TAGGED, DDP_TAGGED_INVALID_STAG },
        { true, false, RING_LEN - 4, 8, TERM_LAYER_DDP, TERM_DDP_TAGGED, DDP_TAGGED_BOUNDS },
    };
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        struct endpoint_event ev;
        struct iovec iov = { sent, tries[i].len };
        struct iov_iter src = iov_iter_init(&iov, 1);
        pair(1442, false);
        begin();
        uint32_t stag = tries[i].fence_stag ? b.cfg.local.fence_stag : b.cfg.local.ring_stag;
        struct rdmap_read rd = {
            .sink_stag = a.ep.iw.stags.region[2].stag, .len = tries[i].len, .src_stag = stag, .src_to = tries[i].to
        };
        a.ep.iw.stags.region[2].len = 16; /* a's own check is not what is tried */
        int r = tries[i].write ? iwarp_post_write(&a.ep.iw.base, stag, tries[i].to, &src, tries[i].len)
                               : iwarp_post_read(&a.ep.iw, &rd);
        cr_assert_eq(r, 0, "try %zu: %d", i, r);
        push(&a);
        feed(&b);
        while ((r = soft_endpoint_ops.poll(&b.ep.base, &ev)) == 1)
            ;
        cr_expect_eq(r, -EPROTO, "try %zu: %d", i, r);
        cr_expect_eq(iwarp_error(&b.ep.iw).layer, tries[i].layer, "try %zu", i);
        cr_expect_eq(iwarp_error(&b.ep.iw).etype, tries[i].etype, "try %zu", i);
        cr_expect_eq(iwarp_error(&b.ep.iw).code, tries[i].code, "try %zu: code %u", i, iwarp_error(&b.ep.iw).code);
        done();
    }
}

/* RFC 5041 7.1/1: untagged, no buffer; too long. */
Test(soft, more_sends_than_there_are_buffers_end_the_stream)
{
    for (int longer = 0; longer <= 1; longer++) {
        struct endpoint_event ev;
        struct iov_iter none;
        int r = 0;
        pair(1442, false);
        a.ep.cfg.peer.msg_max = a.ep.iw.cfg.send_max = 3 * EAGER;
        for (unsigned i = 0; i < BUFS + 1 && !longer; i++) {
            none = iov_iter_init(NULL, 0);
            cr_assert_eq(soft_endpoint_ops.post_send(&a.ep.base, sent, 16, &none, 0), 0);
        }
        if (longer) {
            struct iovec iov = { sent, 2 * EAGER };
            none = iov_iter_init(&iov, 1);
            b.ep.iw.cfg.send_max = 3 * EAGER;
            cr_assert_eq(soft_endpoint_ops.post_send(&a.ep.base, sent, 16, &none, 2 * EAGER), 0);
        }
        push(&a);
        feed(&b);
        unsigned events = 0;
        while ((r = soft_endpoint_ops.poll(&b.ep.base, &ev)) == 1)
            events++;
        cr_expect_eq(events, longer ? 0u : BUFS);
        cr_expect_eq(r, -EPROTO);
        cr_expect_eq(iwarp_error(&b.ep.iw).layer, TERM_LAYER_DDP);
        cr_expect_eq(iwarp_error(&b.ep.iw).etype, TERM_DDP_UNTAGGED);
        cr_expect_eq(iwarp_error(&b.ep.iw).code, longer ? TERM_DDP_U_TOO_LONG : TERM_DDP_U_NO_BUFFER);
        cr_expect_eq(soft_fence_done(&b.ep), -EPIPE);
        push(&b);
        feed(&a);
        cr_assert_eq(soft_endpoint_ops.poll(&a.ep.base, &ev), 1);
        cr_expect_eq(ev.type, ENDPOINT_TERMINATED);
        done();
    }
}

Test(soft, buffers_come_back_in_any_order)
{
    struct endpoint_event ev[BUFS];
    struct iov_iter none;
    pair(1442, false);
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < BUFS; i++) {
            none = iov_iter_init(NULL, 0);
            cr_assert_eq(soft_endpoint_ops.post_send(&a.ep.base, sent + i, 16, &none, 0), 0);
        }
        push(&a);
        feed(&b);
        for (unsigned i = 0; i < BUFS; i++)
            cr_assert_eq(soft_endpoint_ops.poll(&b.ep.base, &ev[i]), 1);
        for (unsigned i = BUFS; i-- > 0;) {
            cr_expect_eq(memcmp(ev[i].data, sent + i, 16), 0);
            soft_endpoint_ops.release(&b.ep.base, ev[i].data + ev[i].len);
        }
    }
    done();
}

/* The end of the pipe is told when all that came before was polled. */
Test(soft, it_is_dry_when_nothing_whole_is_left)
{
    struct endpoint_event ev;
    struct iov_iter none = iov_iter_init(NULL, 0);
    pair(1442, false);
    cr_expect(soft_dry(&b.ep));
    cr_assert_eq(soft_endpoint_ops.post_send(&a.ep.base, sent, 16, &none, 0), 0);
    push(&a);
    feed(&b);
    cr_expect(!soft_dry(&b.ep));
    cr_assert_eq(soft_endpoint_ops.poll(&b.ep.base, &ev), 1);
    cr_expect(!soft_dry(&b.ep));
    cr_assert_eq(soft_endpoint_ops.poll(&b.ep.base, &ev), 0);
    cr_expect(soft_dry(&b.ep));
    cr_expect(iwarp_in_end(&b.ep.iw));
    done();
}

/* What siw makes of some frames; and nothing that only looks like it. */
Test(soft, a_crc_that_counts_the_payload_twice_is_taken_and_no_other_wrong_one)
{
    for (int wrong = 0; wrong <= 3; wrong++) {
        struct endpoint_event ev;
        struct iovec iov = { sent, 1001 };
        struct iov_iter it = iov_iter_init(&iov, 1);
        uint8_t frame[2048];
        pair(1442, false);
        cr_assert_eq(soft_endpoint_ops.post_send(&a.ep.base, sent, 16, &it, 1001), 0);
        push(&a);
        size_t n = mem_pipe_read(&ab, frame, sizeof(frame)), covered = n - MPA_CRC_LEN,
               hdr = MPA_HDR_LEN + DDP_UNTAGGED_HDR_LEN;
        cr_assert_eq(n, mpa_fpdu_len(DDP_UNTAGGED_HDR_LEN + 1017));
        uint32_t crc = crc32c_update(CRC32C_INIT, frame, covered);
        crc = crc32c_update(crc, frame + hdr, covered - hdr);
        if (wrong == 1) /* three times */
            crc = crc32c_update(crc, frame + hdr, covered - hdr);
        put_le32(frame + covered, crc32c_final(crc));
        if (wrong == 2)
            frame[100] ^= 1;
        b.ep.iw.cfg.crc_twice = wrong != 3; /* a peer in software is held to the RFC */
        uint8_t *p;
        cr_assert_geq(soft_in_space(&b.ep, &p), n);
        memcpy(p, frame, n);
        soft_in_fed(&b.ep, n);
        cr_expect_eq(soft_endpoint_ops.poll(&b.ep.base, &ev), wrong ? -EPROTO : 1, "%d", wrong);
        cr_expect_eq(b.ep.iw.stats.rx_crc_twice, wrong ? 0u : 1u);
        if (wrong) {
            cr_expect_eq(iwarp_error(&b.ep.iw).layer, TERM_LAYER_LLP);
            cr_expect_eq(iwarp_error(&b.ep.iw).code, TERM_MPA_CRC);
        } else {
            cr_expect_eq(ev.len, 1017u);
            cr_expect_eq(memcmp(ev.data + 16, sent, 1001), 0);
        }
        done();
    }
}

Test(soft, sizes_that_do_not_go_together_are_refused)
{
    struct soft_cfg good;
    pair(1442, false);
    good = a.cfg;
    for (int i = 0; i < 5; i++) {
        struct soft_ep *ep = malloc(sizeof(*ep));
        struct soft_cfg c = good;
        if (i == 0)
            c.local.bufs = SOFT_BUFS_MAX + 1;
        else if (i == 1)
            c.local.bufs = 0;
        else if (i == 2)
            c.queue_len = 4 * c.write_max - 1;
        else if (i == 3)
            c.mulpdu = MPA_MULPDU_MIN - 1;
        else
            c.local.ring_len = 0;
        cr_expect_eq(soft_init(ep, &c), -EINVAL, "%d", i);
        free(ep);
    }
    done();
}
