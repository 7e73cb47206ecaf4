/*
 * Fuzz target: the stream over an endpoint that does what the input says.
 *
 *   octet 0: 1 flow control by the LLP, 2 few buffers, 4 small eager payloads, 8 Immediate Data
 *   then operations: octet % 16 says which (see step), the next two octets are its number
 *
 * What must hold: no crash; event data is given back in order, never before it was handed out, and
 * all of it once everything is read; octets come out as they went in; offsets sent add up, whatever
 * the endpoint refuses or drops; with credits no more is in flight than the peer said it has.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/stream/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ARENA (1u << 17)
#define POSTED_MAX 256u

struct mock {
    struct endpoint base;
    struct endpoint_event ev;
    bool have_ev;
    int poll_error;
    uint8_t arena[ARENA]; /* event data, one behind the other */
    size_t used, released;
    /* sending */
    bool refuse_send, refuse_write, dead;
    struct {
        bool send;
        size_t len;
    } posted[POSTED_MAX]; /* since the last flush */
    unsigned posted_n;
    uint64_t off, ring_to; /* octets posted, all and by Write */
};

static struct mock m;
static struct stream st;
static uint8_t ring[8192], source[70000], sink[70000];
static uint64_t model_off;                          /* octets the peer has sent */
static uint64_t model_ring;                         /* of those by Write */
static uint64_t taken;                              /* octets the program has read */
static uint32_t out_bufs, out_ring, out_credits;    /* what has left for the peer */
static uint32_t peer_bufs, peer_ring, peer_credits; /* and what it has returned of that */
static uint8_t data_flags;                          /* octet 0 */
static bool clean;                                  /* the peer has kept the rules so far */

static void must(int cond)
{
    if (!cond)
        abort();
}

static uint8_t octet(uint64_t at)
{
    return (uint8_t)((at + 1) * 0x9e3779b97f4a7c15u >> 32);
}

static size_t mock_write_max(const struct endpoint *e)
{
    (void)e;
    return 3000;
}

static size_t mock_send_max(const struct endpoint *e)
{
    (void)e;
    return 2000;
}

static int mock_post_write(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    (void)e;
    must(!st.tx.fin && len > 0 && len <= 3000 && stag == 0x5555);
    must(to == m.ring_to % st.cfg.peer.ring_len && to + len <= st.cfg.peer.ring_len);
    if (m.dead)
        return -EPIPE;
    if (m.refuse_write || m.posted_n == POSTED_MAX)
        return -EAGAIN;
    must(iov_iter_skip(src, len) == len);
    m.posted[m.posted_n].send = false;
    m.posted[m.posted_n++].len = len;
    m.off += len;
    m.ring_to += len;
    /* (A peer that lies about what it has consumed gets what it asked for.) */
    must(st.llp || !clean || m.ring_to - peer_ring <= st.cfg.peer.ring_len);
    return 0;
}

static int mock_post_send(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    struct stream_hdr h;

    (void)e;
    must(hdr_len == STREAM_HDR_LEN && hdr_len + len <= 2000);
    must(stream_hdr_decode(hdr, hdr_len, &h) == 0);
    must(len == 0 || (h.type == STREAM_DATA && !st.tx.fin && len <= st.cfg.peer.eager_max));
    must(h.off == (uint32_t)(m.off + len));
    if (m.dead)
        return -EPIPE;
    if (m.refuse_send || m.posted_n == POSTED_MAX)
        return -EAGAIN;
    must(iov_iter_skip(src, len) == len);
    m.posted[m.posted_n].send = true;
    m.posted[m.posted_n++].len = len;
    m.off += len;
    return 0;
}

static int mock_post_immediate(struct endpoint *e, uint64_t off, bool solicited)
{
    (void)e;
    must(st.llp && solicited && off == m.off);
    if (m.dead)
        return -EPIPE;
    if (m.refuse_send || m.posted_n == POSTED_MAX)
        return -EAGAIN;
    m.posted[m.posted_n].send = true;
    m.posted[m.posted_n++].len = 0;
    return 0;
}

static int mock_poll(struct endpoint *e, struct endpoint_event *ev)
{
    (void)e;
    if (m.poll_error)
        return m.poll_error;
    if (!m.have_ev)
        return 0;
    *ev = m.ev;
    m.have_ev = false;
    return 1;
}

static void mock_release(struct endpoint *e, const uint8_t *upto)
{
    size_t off = (size_t)(upto - m.arena);

    (void)e;
    must(upto >= m.arena && off <= m.used && off >= m.released);
    m.released = off;
}

static const struct endpoint_ops ops = {
    .name = "fuzz",
    .write_max = mock_write_max,
    .send_max = mock_send_max,
    .post_write = mock_post_write,
    .post_send = mock_post_send,
    .post_immediate = mock_post_immediate,
    .poll = mock_poll,
    .release = mock_release,
};

/* ---- receiving ---- */

static void check_rx(void)
{
    uint64_t avail = 0;

    must(st.rx.n <= STREAM_SLICES);
    for (uint32_t i = 0; i < st.rx.n; i++)
        avail += st.rx.slice[(st.rx.first + i) % STREAM_SLICES].len;
    must(avail == stream_avail(&st));
    must(st.rx.total == taken);
    must(!clean || taken + avail <= model_off);
    if (st.rx.n == 0 && !m.have_ev && st.rx.end != STREAM_BROKEN)
        must(m.released == m.used);
    if (st.rx.n == 0 && !m.have_ev)
        m.used = m.released = 0;
}

static void poll_it(void)
{
    int r = stream_poll(&st);

    must(r == 0 || r == 1 || r == -EPROTO);
    must((r < 0) == (st.rx.end == STREAM_BROKEN));
    must(r >= 0 || !clean || m.poll_error);
    check_rx();
}

/* What the peer sent: header (NULL: an RDMA Write) and octets. */
static void deliver(const struct stream_hdr *h, uint64_t to, const uint8_t *p, size_t len)
{
    size_t hdr_len = h ? STREAM_HDR_LEN : 0;

    if (m.have_ev)
        poll_it();
    if (m.have_ev || m.used + hdr_len + len > ARENA)
        return; /* it has too much to read */
    m.ev = (struct endpoint_event){
        .type = h ? ENDPOINT_SEND : ENDPOINT_WRITE,
        .data = m.arena + m.used,
        .len = hdr_len + len,
        .to = to,
    };
    if (h)
        stream_hdr_encode(h, m.arena + m.used);
    if (len)
        memcpy(m.arena + m.used + hdr_len, p, len);
    m.used += hdr_len + len;
    m.have_ev = true;
}

/* With credits the peer may send no more than there are buffers for. */
static bool has_buffer(void)
{
    return st.llp || st.rx.bufs_used - st.rx.bufs_back < st.cfg.local.bufs;
}

static void deliver_immediate(uint64_t off)
{
    if (m.have_ev)
        poll_it();
    if (m.have_ev || m.used + 8 > ARENA)
        return;
    if (!st.immediate || off != model_off || st.rx.end != STREAM_OPEN)
        clean = false;
    put_be64(m.arena + m.used, off);
    m.ev = (struct endpoint_event){
        .type = ENDPOINT_IMMEDIATE,
        .data = m.arena + m.used,
        .len = 8,
        .solicited = off & 1,
    };
    m.used += 8;
    m.have_ev = true;
}

static struct stream_hdr header(enum stream_type type)
{
    return (struct stream_hdr){
        .type = (uint8_t)type,
        .bufs = (uint16_t)peer_bufs,
        .off = (uint32_t)model_off,
        .ring = peer_ring,
        .aux = peer_credits,
    };
}

static void good_data(size_t n)
{
    struct stream_hdr h;

    n %= st.cfg.local.eager_max + 1u;
    if (m.have_ev)
        poll_it();
    if (m.have_ev || m.used + n + STREAM_HDR_LEN > ARENA || !has_buffer())
        return;
    for (size_t i = 0; i < n; i++)
        source[i] = octet(model_off + i);
    if (st.rx.end != STREAM_OPEN)
        clean = false;
    model_off += n;
    h = header(STREAM_DATA);
    deliver(&h, 0, source, n);
}

static void good_write(size_t n)
{
    uint32_t len = st.cfg.local.ring_len, at = (uint32_t)(model_ring % len);
    struct stream_hdr h;

    if (m.have_ev)
        poll_it();
    n = 1 + n % 3000;
    if (n > len - at)
        n = len - at;
    if (m.have_ev || m.used + n + STREAM_HDR_LEN > ARENA)
        return;
    if (!has_buffer() || (!st.llp && n > len - (uint32_t)(model_ring - st.rx.ring_used)))
        return;
    for (size_t i = 0; i < n; i++)
        source[i] = octet(model_off + i);
    if (st.rx.end != STREAM_OPEN)
        clean = false;
    model_off += n;
    model_ring += n;
    if (st.llp) {
        deliver(NULL, at, source, n);
    } else {
        memcpy(ring + at, source, n);
        h = header(STREAM_DATA);
        deliver(&h, 0, NULL, 0);
    }
}

static void take(unsigned how, size_t n)
{
    struct iovec v = { sink, n };
    struct iov_iter it = iov_iter_init(&v, 1);
    uint64_t avail = stream_avail(&st), at = taken;
    size_t want = n < avail ? n : (size_t)avail, got;

    if (how == 0) {
        got = stream_discard(&st, n);
    } else if (how == 1) {
        size_t skip = n % 50;

        got = stream_peek(&st, &it, n, skip);
        must(got == (avail < skip ? 0 : want < avail - skip ? want : (size_t)avail - skip));
        at += skip;
        for (size_t i = 0; clean && i < got; i++)
            must(sink[i] == octet(at + i));
        return;
    } else {
        got = stream_read(&st, &it, n);
        for (size_t i = 0; clean && i < got; i++)
            must(sink[i] == octet(at + i));
    }
    must(got == want);
    taken += got;
    check_rx();
}

/* ---- sending ---- */

static void check_tx(void)
{
    must(st.tx.off == m.off && st.tx.ring_to == m.ring_to && st.tx.batch_n <= STREAM_BATCH);
    must(st.tx.batch_n == m.posted_n);
    must(st.tx.total == m.off);
    if (!st.llp && clean)
        must((uint16_t)(st.tx.sends - peer_bufs) <= st.cfg.peer.bufs - STREAM_BUFS_KEPT);
}

static void write_it(size_t n)
{
    struct iovec v = { source, n };
    struct iov_iter it = iov_iter_init(&v, 1);
    uint64_t before = m.off;
    ssize_t r = stream_write(&st, &it, n);

    must(r == -EPIPE || (r >= 0 && (size_t)r <= n && iov_iter_left(&it) == n - (size_t)r));
    must(r >= 0 || st.tx.fin || m.dead);
    must(m.off == before + (r > 0 ? (uint64_t)r : 0));
}

static void unpost(size_t n)
{
    unsigned frames = m.posted_n ? (unsigned)(n % (m.posted_n + 1)) : 0;
    size_t back = 0;

    for (unsigned i = 0; i < frames; i++) {
        back += m.posted[--m.posted_n].len;
        m.off -= m.posted[m.posted_n].len;
        if (!m.posted[m.posted_n].send)
            m.ring_to -= m.posted[m.posted_n].len;
    }
    must(stream_unpost(&st, frames) == back);
}

static void credit(size_t n)
{
    bool wanted = stream_wants_credit(&st);
    int r;

    if (!wanted && n % 4 != 0)
        return;
    r = stream_credit(&st);
    must(r == 0 || r == -EAGAIN || (r == -EPIPE && m.dead));
    /* What is told once is told: the two sides do not go on for ever. */
    must(r != 0 || !stream_wants_credit(&st));
}

/* ---- all ---- */

static void step(unsigned op, size_t n, const uint8_t *rest, size_t left)
{
    struct stream_hdr h;

    switch (op) {
    case 0: /* whatever the input holds */
        n = n % 600 < left ? n % 600 : left;
        if (m.have_ev)
            poll_it();
        if (m.have_ev || m.used + n > ARENA)
            break;
        clean = false;
        m.ev = (struct endpoint_event){
            .type = ENDPOINT_SEND,
            .data = m.arena + m.used,
            .len = n,
        };
        memcpy(m.arena + m.used, rest, n);
        m.used += n;
        m.have_ev = true;
        break;
    case 1:
    case 2:
        good_data(n);
        break;
    case 3:
    case 4:
        good_write(n);
        break;
    case 5: /* Immediate Data, right or not, or a Write anywhere */
        if (data_flags & 8) {
            deliver_immediate(n % 4 ? model_off : n);
            break;
        }
        clean = false;
        deliver(NULL, n % 8192, source, n % 100 + 1);
        break;
    case 6: /* credit, reset, FIN */
        h = header(n % 8 == 0 ? STREAM_RESET : n % 8 == 1 ? STREAM_FIN : STREAM_CREDIT);
        if (m.have_ev)
            poll_it();
        if (m.have_ev)
            break;
        h.flags = (uint8_t)(n & STREAM_HDR_ANSWER);
        /* The peer returns what was posted, in part or all. */
        if (!st.llp) {
            peer_bufs += n % 3 && peer_bufs != out_bufs ? 1 : out_bufs - peer_bufs;
            peer_ring = out_ring;
            peer_credits = out_credits;
            h.bufs = (uint16_t)peer_bufs;
            h.ring = peer_ring;
            h.aux = peer_credits;
        }
        if ((st.rx.end != STREAM_OPEN && h.type != STREAM_RESET) || (h.type != STREAM_CREDIT && !has_buffer()))
            clean = false;
        deliver(&h, 0, NULL, 0);
        break;
    case 7:
        poll_it();
        break;
    case 8:
    case 9:
        take((unsigned)(n % 3), n % 65536);
        break;
    case 10:
    case 11:
        write_it(n % 60000);
        break;
    case 12:
        unpost(n);
        break;
    case 13: /* the pipe took all */
        m.posted_n = 0;
        out_bufs = st.tx.sends;
        out_ring = (uint32_t)st.tx.ring_to;
        out_credits = atomic_load(&st.sent_credits);
        stream_flushed(&st);
        break;
    case 14:
        credit(n);
        if (n % 16 == 0 && st.tx.batch_n < STREAM_BATCH) {
            int r = stream_fin(&st);

            must(r == 0 || r == -EAGAIN || r == -EPIPE);
        }
        break;
    case 15:
        m.refuse_send = n & 1;
        m.refuse_write = n & 2;
        if (n % 64 == 7)
            m.dead = true;
        if (n % 64 == 9 && !m.have_ev)
            stream_eof(&st, n & 64);
        if (n % 64 == 11)
            m.poll_error = -EPROTO;
        if (n % 64 == 13 && !m.have_ev) {
            m.ev = (struct endpoint_event){ .type = ENDPOINT_TERMINATED };
            m.have_ev = true;
        }
        break;
    }
    check_tx();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream_params p = { .version = 1, .ring_stag = 0x5555, .ring_len = 4099 };
    struct stream_cfg cfg = { .ep = &m.base, .ring = ring };

    if (size < 1)
        return 0;
    memset(&m, 0, offsetof(struct mock, arena));
    memset((uint8_t *)&m + offsetof(struct mock, used), 0, sizeof(m) - offsetof(struct mock, used));
    endpoint_init(&m.base, &ops);
    data_flags = data[0];
    p.flags = (data[0] & 1 ? STREAM_FLAG_LLP : 0) | (data[0] & 8 ? STREAM_FLAG_IMMEDIATE : 0);
    p.bufs = data[0] & 2 ? 3 : 100;
    p.eager_max = data[0] & 4 ? 40 : 1500;
    cfg.local = cfg.peer = p;
    cfg.eager_limit = data[0] & 4 ? 20 : 700;
    must(stream_init(&st, &cfg) == 0);
    model_off = model_ring = taken = 0;
    peer_bufs = peer_ring = peer_credits = 0;
    out_bufs = out_ring = out_credits = 0;
    clean = true;
    for (size_t i = 1; i + 3 <= size; i += 3)
        step(data[i] % 16, get_be16(data + i + 1), data + i + 3, size - i - 3);
    poll_it();
    while (clean && stream_avail(&st) > 0) {
        take(2, 65535);
        poll_it();
    }
    return 0;
}
