/*
 * Fuzz target: the same octets into two receivers, one by staging alone, the other directly where that can be.
 *
 *   octet 0: 1 CRC in use, 2 the program's memory is 5000 octets long, 4 60000, else 20000
 *   octet 1: how the octets are cut
 *   then frames, four octets each: what it is, two octets of length, and which octet of it is spoilt (of 256 parts; 0: none)
 *
 * What must hold: both give the same octets in the same order and find the same error, whatever is foreseen; nothing of
 * a spoilt frame is given.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/stream/stream.h"
#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STAG = 0x101, RING = 1 << 16, WIRE = 1 << 19, FRAMES = 24 };

struct end {
    struct side side;
    struct stream st;
    uint8_t in[MPA_FPDU_MAX + MPA_HDR_LEN + 40000], out[SIDE_OUT_CAP];
    uint8_t got[WIRE], memory[60000]; /* the program's */
    size_t got_len, at;
    int bad;
};

static struct end ends[2];
static uint8_t wire[WIRE];
static size_t wire_len;

static void must(int cond)
{
    if (!cond)
        abort();
}

static void setup(struct end *e, bool crc)
{
    struct stream_params params = {
        .version = 1,
        .flags = STREAM_FLAG_LLP,
        .ring_stag = STAG,
        .ring_len = RING,
        .eager_max = 32768,
        .bufs = 64,
    };
    struct iwarp_cfg c;
    struct stream_cfg sc = { .ep = &e->side.ep.base, .local = params, .peer = params };

    e->side.in_buf = e->in;
    e->side.out_buf = e->out;
    e->side.prng = 1;
    c = side_cfg(&e->side, true, 0);
    c.rx.crc = crc;
    c.in_cap = sizeof(e->in);
    c.send_max = 32768 + STREAM_HDR_LEN;
    must(iwarp_init(&e->side.ep, &c) == 0);
    e->side.ep.stags.region[0] =
        (struct ddp_region){ .stag = STAG, .access = DDP_ACCESS_REMOTE_WRITE, .deferred = true, .len = RING };
    must(stream_init(&e->st, &sc) == 0);
    e->got_len = e->at = 0;
    e->bad = 0;
}

/* The frames as a peer sends them that keeps to the stream's rules but for what is spoilt. */
static void build(const uint8_t *p, size_t size)
{
    static uint8_t payload[40000];
    uint32_t msn = 1, off = 0;
    uint64_t ring = 0;

    wire_len = 0;
    for (size_t n = 0; size >= 4 && n < FRAMES; n++, p += 4, size -= 4) {
        size_t len = fb_get(p + 1, 2) % 20000, start = wire_len, hdr = STREAM_HDR_LEN;

        for (size_t i = 0; i < len + hdr; i++)
            payload[i] = (uint8_t)(i * 7 + n * 13 + (i >> 8));
        if (p[0] % 4 != 0 && len > 0) { /* a Write */
            if (len > RING - ring % RING)
                len = RING - ring % RING;
            wire_len += fb_write(wire + wire_len, STAG, ring % RING, payload, len);
            ring += len;
            off += (uint32_t)len;
        } else { /* a Send, or the notify */
            struct stream_hdr h = { .type = STREAM_DATA };

            len = p[0] % 8 == 0 ? 0 : len;
            h.off = off += (uint32_t)len;
            stream_hdr_encode(&h, payload);
            wire_len += fb_send(wire + wire_len, msn++, payload, hdr + len);
        }
        if (p[3] != 0)
            wire[start + (wire_len - start) * (p[3] - 1u) / 256] ^= (uint8_t)(1u << (p[3] & 7));
    }
}

static void keep(struct end *e, const uint8_t *p, size_t len)
{
    must(len <= WIRE - e->got_len);
    memcpy(e->got + e->got_len, p, len);
    e->got_len += len;
}

static void poll(struct end *e)
{
    if (e->bad == 0 && stream_poll(&e->st) < 0)
        e->bad = 1 + iwarp_error(&e->side.ep).etype * 256 + iwarp_error(&e->side.ep).code;
}

static void give(struct end *e, size_t room)
{
    struct iovec v = { e->memory, room };
    struct iov_iter it = iov_iter_init(&v, 1);

    poll(e);
    for (size_t n; (n = stream_read(&e->st, &it, room)) > 0; poll(e)) {
        keep(e, e->memory, n);
        it = iov_iter_init(&v, 1);
    }
}

static size_t take(struct end *e, const struct iovec *iov, size_t n, size_t most)
{
    size_t done = 0;

    if (most > wire_len - e->at)
        most = wire_len - e->at;
    for (size_t i = 0; i < n && done < most; i++) {
        size_t l = iov[i].iov_len < most - done ? iov[i].iov_len : most - done;

        memcpy(iov[i].iov_base, wire + e->at + done, l);
        done += l;
    }
    e->at += done;
    return done;
}

static void step(struct end *e, bool directly, size_t room, size_t piece)
{
    struct iovec iov[IWARP_DIRECT_IOV];
    struct iwarp_ep *ep = &e->side.ep;
    size_t n = directly ? iwarp_direct_plan(ep, e->memory, room, iov) : 0;

    if (n > 0) {
        uint64_t before = e->st.rx.placed;

        for (size_t i = 0; i < n; i++) {
            const uint8_t *p = iov[i].iov_base;

            must((p >= e->memory && p + iov[i].iov_len <= e->memory + room) ||
                 (p >= e->in && p + iov[i].iov_len <= e->in + sizeof(e->in)));
        }
        iwarp_direct_fed(ep, take(e, iov, n, piece));
        poll(e);
        must(e->st.rx.placed - before <= room);
        keep(e, e->memory, (size_t)(e->st.rx.placed - before));
    } else {
        size_t ahead = directly ? iwarp_direct_ahead(ep, room) : SIZE_MAX, space;
        uint8_t *to;

        space = iwarp_in_space(ep, &to);
        must(ahead > 0 && space > 0);
        iov[0] = (struct iovec){ to, space < ahead ? space : ahead };
        iwarp_in_fed(ep, take(e, iov, 1, piece));
    }
    give(e, room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t room;

    if (size < 2)
        return 0;
    room = data[0] & 2 ? 5000 : data[0] & 4 ? 60000 : 20000;
    build(data + 2, size - 2);
    for (int i = 0; i < 2; i++) {
        struct end *e = &ends[i];
        uint64_t cuts = data[1] + 1u;

        setup(e, data[0] & 1);
        while (e->at < wire_len && e->bad == 0)
            step(e, i == 1, room, data[1] == 0 ? SIZE_MAX : 1 + prng32(&cuts) % (data[1] * 300u));
        give(e, room);
    }
    must(ends[0].got_len == ends[1].got_len && memcmp(ends[0].got, ends[1].got, ends[0].got_len) == 0);
    must(ends[0].bad == ends[1].bad && ends[0].st.rx.end == ends[1].st.rx.end);
    must(ends[0].st.rx.total == ends[1].st.rx.total && ends[1].st.rx.total == ends[1].got_len);
    must(iwarp_in_need(&ends[0].side.ep) == iwarp_in_need(&ends[1].side.ep) || ends[0].bad != 0);
    return 0;
}
