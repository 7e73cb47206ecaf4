/*
 * Fuzz target: everything a peer can reach, from the first octet of a connection to the program's
 * read: Hello, MPA startup, FPDUs, DDP, RDMAP, stream.
 *
 *   octet 0: 1 CRC wanted, 2 initiator (the input is what the responder sends), 4 flow control by
 *            credits, 8 the CRC of the Hello frame in front is put right, 16 would decline, 32 wants
 *            markers, 64 (responder) does not know RtR frames, 128 immediate startup
 *   octet 1: how the rest is cut
 *
 * The peer waits for the HACK and the Reply; that apart, what comes out must not depend on how the
 * octets were cut: each input runs twice. By the LLP the program gets no more than came in.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/iwarp/iwarp.h"
#include "core/negotiate/negotiate.h"
#include "core/stream/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RING_LEN 8192u
#define GUARD 64u
#define SEND_MAX (STREAM_HDR_LEN + 4096u)
#define OUT_CAP (MPA_FPDU_MAX + 512u)

struct run {
    struct negotiate n;
    struct iwarp_ep ep;
    struct stream st;
    bool full, up;      /* FPDUs; the stream could be set up */
    bool ended;         /* nothing more is taken in */
    uint64_t got, hash; /* octets the program read */
    uint64_t prefix;    /* of those in streaming mode before the answer */
};

static struct run runs[2];
static uint8_t in_buf[2 * MPA_FPDU_MAX], out_buf[OUT_CAP];
static uint8_t ring[GUARD + RING_LEN + GUARD];
static uint64_t prng;

static void must(int cond)
{
    if (!cond)
        abort();
}

static uint32_t random32(void *arg)
{
    (void)arg;
    prng ^= prng << 13;
    prng ^= prng >> 7;
    prng ^= prng << 17;
    return (uint32_t)(prng >> 16);
}

static struct negotiate_cfg config(uint8_t flags)
{
    struct negotiate_cfg cfg = {
        .responder = !(flags & 2),
        .immediate = flags & 128,
        .transports = HELLO_TRANSPORT_IWARP,
        .nonce = { 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b },
        .mpa = {
            .rev = 2,
            .crc = flags & 1,
            .markers = flags & 32,
            .dialect = flags & 66 ? MPA_DIALECT_RFC : MPA_DIALECT_RTR_FRAME,
            .peer_to_peer = true,
            .rtr = MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ,
            .ird = 4,
            .ord = 4,
        },
        .params = {
            .version = 1,
            .flags = (flags & 4 ? 0 : STREAM_FLAG_LLP) | STREAM_FLAG_IMMEDIATE,
            .ring_stag = 0x52494e47,
            .ring_len = RING_LEN,
            .eager_max = SEND_MAX - STREAM_HDR_LEN,
            .bufs = 8,
        },
        .timeout_ns = 1000000000,
    };
    return cfg;
}

static void give(struct run *r, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        r->hash = (r->hash ^ p[i]) * 0x100000001b3u;
    r->got += n;
}

static void go_full(struct run *r)
{
    const struct mpa_startup_result *res = &r->n.mpa.res;
    struct iwarp_cfg ic = {
        .initiator = !r->n.cfg.responder,
        .ready = res->rtr_frame,
        .tx = { .crc = res->crc, .markers = res->markers_tx },
        .rx = { .crc = res->crc, .markers = res->markers_rx },
        .rtr = res->rtr,
        .ird = res->ird,
        .ord = res->ord,
        .mulpdu = 1024,
        .send_max = SEND_MAX,
        .in_buf = in_buf,
        .in_cap = sizeof(in_buf),
        .out_buf = out_buf,
        .out_cap = sizeof(out_buf),
        .immediate = (r->n.cfg.params.flags & r->n.peer.flags & STREAM_FLAG_IMMEDIATE) != 0,
        .random32 = random32,
    };
    struct stream_cfg sc = { .ep = &r->ep.base, .local = r->n.cfg.params, .peer = r->n.peer };
    bool llp = r->n.cfg.params.flags & r->n.peer.flags & STREAM_FLAG_LLP;

    must(res->markers_rx == r->n.cfg.mpa.markers && iwarp_init(&r->ep, &ic) == 0);
    r->ep.stags.region[0] = (struct ddp_region){
        .stag = r->n.cfg.params.ring_stag,
        .access = DDP_ACCESS_REMOTE_WRITE,
        .deferred = llp,
        .len = RING_LEN,
        .base = llp ? NULL : ring + GUARD,
    };
    sc.ring = ring + GUARD;
    r->full = true;
    /* A peer may name parameters that need more of it than it said it has. */
    r->up = stream_init(&r->st, &sc) == 0;
    r->ended = !r->up;
}

/* What the endpoint wants sent goes nowhere. */
static void flush(struct run *r)
{
    const struct iovec *iov;
    size_t len;

    for (int i = 0; iwarp_out(&r->ep, &iov, &len) > 0; i++) {
        must(len > 0 && i < 1000);
        iwarp_out_sent(&r->ep, len);
        stream_flushed(&r->st);
    }
}

/* The program reads all there is, and writes what it has read back. */
static void program(struct run *r)
{
    uint8_t buf[700];
    size_t n;

    do {
        struct iovec v = { buf, sizeof(buf) };
        struct iov_iter it = iov_iter_init(&v, 1);

        n = stream_read(&r->st, &it, sizeof(buf));
        give(r, buf, n);
        if (n > 0 && iwarp_can_send(&r->ep)) {
            v.iov_len = n;
            it = iov_iter_init(&v, 1);
            ssize_t w = stream_write(&r->st, &it, n);
            must(w >= -EPIPE && (w < 0 || (size_t)w <= n));
            flush(r);
        }
    } while (n > 0);
    must(stream_avail(&r->st) == 0);
}

static void stream_step(struct run *r)
{
    int e;

    do {
        e = stream_poll(&r->st);
        program(r);
    } while (e == 1);
    if (e < 0) {
        must(r->st.rx.end == STREAM_BROKEN);
        iwarp_fail(&r->ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED });
        must(iwarp_state_now(&r->ep) >= IWARP_TERMINATING);
    } else if (stream_wants_credit(&r->st)) {
        e = stream_credit(&r->st);
        must(e == 0 || e == -EAGAIN || e == -EPIPE);
    }
    flush(r);
    if (r->st.rx.end == STREAM_BROKEN || r->st.rx.end == STREAM_RESET_BY_PEER)
        r->ended = true;
}

static void send_out(struct run *r)
{
    const uint8_t *p;

    for (size_t n; (n = negotiate_out(&r->n, &p)) > 0;) {
        n = 1 + random32(NULL) % n;
        negotiate_sent(&r->n, n);
    }
    if (!r->full && negotiate_over(&r->n) && r->n.state == NEGOTIATE_DONE)
        go_full(r);
}

/* Octets of the input to hand over next: the peer waits for the HACK and the Reply. */
static size_t next(const struct run *r, const uint8_t *in, size_t from, size_t len, size_t cut)
{
    size_t n = cut ? 1 + random32(NULL) % cut : len - from, most = len;

    if (r->n.state == NEGOTIATE_PEEK && r->n.cfg.immediate && len >= 20 && in[0] == 'M')
        most = 20u + get_be16(in + 18); /* the Request */
    else if (r->n.state == NEGOTIATE_PEEK && len >= 20 && get_be16(in + 18) >= HELLO_LEN)
        most = get_be16(in + 18);
    if (r->n.state == NEGOTIATE_MPA && mpa_startup_need(&r->n.mpa) > 0)
        most = from + mpa_startup_need(&r->n.mpa);
    if (most <= from || most > len)
        most = len;
    return n < most - from ? n : most - from;
}

/* The negotiation looks at the input where it lies; returns octets it used up. */
static size_t negotiate_step(struct run *r, const uint8_t *p, size_t n)
{
    bool hello = r->n.state == NEGOTIATE_HELLO;
    size_t used = negotiate_in(&r->n, p, n, 1000);

    must(used <= n);
    if (hello && used > 0) {
        must(r->n.prefix_len <= used && r->n.prefix_len <= NEGOTIATE_STREAMED_MAX);
        give(r, p, r->n.prefix_len);
        r->prefix = r->n.prefix_len;
    }
    send_out(r);
    return used;
}

static void run(struct run *r, uint8_t flags, const uint8_t *in, size_t len, size_t cut)
{
    struct negotiate_cfg cfg = config(flags);
    size_t from = 0, to = 0; /* octets used up, octets that have come */

    memset(r, 0, sizeof(*r));
    memset(ring, 0xcc, sizeof(ring));
    must(negotiate_init(&r->n, &cfg, 1) == 0);
    if (flags & 16)
        negotiate_decline(&r->n, 16);
    send_out(r);
    while (to < len && !r->ended) {
        if (r->full) {
            uint8_t *p;
            size_t room = iwarp_in_space(&r->ep, &p), n = next(r, in, from, len, cut);

            must(room > 0);
            if (n > room)
                n = room;
            memcpy(p, in + from, n);
            iwarp_in_fed(&r->ep, n);
            from += n;
            to = from;
            stream_step(r);
        } else if (r->n.state >= NEGOTIATE_DONE) {
            r->ended = true; /* the rest is the program's, or is dropped */
        } else {
            size_t used;

            to += next(r, in, to, len, cut);
            do {
                used = r->full ? 0 : negotiate_step(r, in + from, to - from);
                from += used;
            } while (used > 0);
            if (r->full)
                to = from;
        }
    }
    if (!r->full)
        negotiate_eof(&r->n);
    for (size_t i = 0; i < GUARD; i++)
        must(ring[i] == 0xcc && ring[GUARD + RING_LEN + i] == 0xcc);
    /* With credits Writes are not seen: a peer may announce octets that it never wrote. */
    must(r->got <= len || (r->up && !r->st.llp));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t in[1u << 17];

    if (size < 2 || size > sizeof(in))
        return 0;
    memcpy(in, data + 2, size - 2);
    if ((data[0] & 8) && size >= 2 + HELLO_LEN) {
        size_t total = get_be16(in + 18);

        if (total >= HELLO_LEN && total <= size - 2) {
            memset(in + 60, 0, 4);
            put_be32(in + 60, crc32c_final(crc32c_update(CRC32C_INIT, in, total)));
        }
    }
    prng = 0x9e3779b97f4a7c15u + data[1];
    run(&runs[0], data[0], in, size - 2, 0);
    run(&runs[1], data[0], in, size - 2, 1 + (size_t)data[1] * (data[1] / 16));
    must(runs[0].n.state == runs[1].n.state && runs[0].n.reason == runs[1].n.reason);
    must(runs[0].full == runs[1].full && runs[0].up == runs[1].up);
    /* A peer that waits for credit is not played here: what comes at once may overrun the ring. */
    if (runs[0].up && !runs[0].st.llp)
        return 0;
    must(runs[0].got == runs[1].got && runs[0].hash == runs[1].hash);
    if (runs[0].up) {
        must(runs[0].st.rx.end == runs[1].st.rx.end);
        must(iwarp_state_now(&runs[0].ep) == iwarp_state_now(&runs[1].ep));
    }
    return 0;
}
