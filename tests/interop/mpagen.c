/*
 * Connections for tshark to judge (tests/interop/mpa_matrix.test): for every combination of markers
 * in either direction, CRC, kind of startup and size of FPDUs two software endpoints exchange random
 * messages in memory, and what they say is written as a capture, cut into TCP segments at random.
 *
 *   mpagen FILE TWIN SEED
 *
 * FILE becomes a pcap file. What tshark's dissector can do is respected: frames of the startup are
 * each in one segment; without markers a segment has 8 octets at least of an FPDU that starts in it;
 * with markers each FPDU is a segment, and none with markers inside ends where the next one is due,
 * which it would count in. It also takes markers in one direction for markers in both: TWIN holds the connections that
 * have them in one only, once more, with a startup that says there are none, so that the direction without can be
 * judged. To standard output goes what was asked of the endpoints, not what their frames look like: what the frames
 * have to be follows from it by the standards.
 *
 *   conn PORT MARKERS_AB MARKERS_BA CRC STARTUP MULPDU
 *   send|write|read PORT SIDE LENGTH [STAG TO [SOURCE_STAG SOURCE_TO]]     posted by SIDE (a, b)
 *   answer PORT SIDE N                                                     N Reads answered by SIDE
 *   terminate PORT SIDE LAYER TYPE CODE
 *   octets PORT SIDE N                                                     in FPDUs, markers counted
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "core/base/must.h"
#include "core/mpa/startup.h"
#include "tests/unit/iwarp_pair.h"

#define MEM_LEN 300000u
#define IN_LEN 300000u
#define ROUNDS 6

static FILE *pcap, *twin;
static bool twice; /* this connection goes to the twin, too */
static uint64_t rng;
static uint32_t now_us;

static uint32_t rnd(uint32_t n)
{
    return prng32(&rng) % n;
}

static void must(int cond, const char *what)
{
    if (cond)
        return;
    fprintf(stderr, "mpagen: %s\n", what);
    exit(2);
}

/* ---- the capture ---- */

struct tcp_side {
    uint16_t port;
    uint32_t seq; /* next */
};

static void out_octets(FILE *to, const uint8_t *p, size_t n)
{
    must(n == 0 || fwrite(p, n, 1, to) == 1, "write");
}

static void le32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* pcap, microseconds, version 2.4, raw IP. */
static FILE *begin(const char *name)
{
    static const uint32_t words[] = { 0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 101 };
    uint8_t head[sizeof(words)];
    FILE *f = fopen(name, "wb");
    must(f != NULL, name);
    for (size_t i = 0; i < SW_ARRAY_LEN(words); i++)
        le32(head + 4 * i, words[i]);
    out_octets(f, head, sizeof(head));
    return f;
}

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v);
}

enum { FIN = 1, SYN = 2, PSH = 8, ACK = 16 };

/* One packet: IPv4 without options, TCP without options; checksums are left 0 and not checked. */
static void packet(struct tcp_side *from, const struct tcp_side *to, unsigned flags, const uint8_t *data, size_t len)
{
    uint8_t record[16], h[40] = { 0x45 };
    bool a = from->port > to->port;
    put16(h + 2, (uint32_t)(40 + len));
    h[8] = 64;
    h[9] = 6;
    put32(h + 12, a ? 0x0a000001 : 0x0a000002);
    put32(h + 16, a ? 0x0a000002 : 0x0a000001);
    put16(h + 20, from->port);
    put16(h + 22, to->port);
    put32(h + 24, from->seq);
    put32(h + 28, flags & ACK ? to->seq : 0);
    h[32] = 0x50;
    h[33] = (uint8_t)flags;
    put16(h + 34, 65535);
    now_us += 10;
    must(40 + len <= 65535, "an IP packet");
    le32(record, now_us / 1000000);
    le32(record + 4, now_us % 1000000);
    le32(record + 8, (uint32_t)(40 + len));
    le32(record + 12, (uint32_t)(40 + len));
    for (int i = 0; i <= twice; i++) {
        FILE *f = i ? twin : pcap;
        out_octets(f, record, sizeof(record));
        out_octets(f, h, sizeof(h));
        if (i && len > 16 && memcmp(data, "MPA ID Re", 9) == 0) {
            static const uint8_t key_len = 16;
            uint8_t no_m = data[key_len] & 0x7f;
            out_octets(f, data, key_len);
            out_octets(f, &no_m, 1);
            out_octets(f, data + key_len + 1, len - key_len - 1);
        } else {
            out_octets(f, data, len);
        }
    }
    from->seq += (uint32_t)len + (flags & (SYN | FIN) ? 1 : 0);
}

/* ---- one connection ---- */

enum startup { RTR_SEND, RTR_WRITE, RTR_READ, CLIENT_SERVER, REV_1, STARTUPS };
static const char *const startup_names[] = { "send", "write", "read", "client-server", "rev-1" };

static struct pair p;
static struct tcp_side ta, tb;
static uint8_t mem_a[MEM_LEN], mem_b[MEM_LEN], in_a[IN_LEN], in_b[IN_LEN], *out;
static size_t most;    /* octets of a segment */
static size_t left[2]; /* octets of the FPDU under way from a, b */
static uint64_t fpdu_octets[2];
static unsigned asked[2]; /* Reads posted by a, b that are not on their way yet */
static unsigned due[2];   /* Reads that have arrived at a, b and are not answered */

/* How many of the octets at data go into the next segment; they end with an FPDU. */
static size_t cut(const struct iwarp_ep *ep, bool from_a, const uint8_t *data, size_t len, uint64_t pos)
{
    size_t *rest = &left[!from_a], n = 1 + rnd((uint32_t)most);
    if (ep->cfg.tx.markers)
        return mpa_fpdu_expect(&ep->cfg.tx, pos, data, len);
    for (size_t at = 0, l; at < n; at += l, *rest -= l) {
        if (*rest == 0 && at == len)
            return len;
        if (*rest == 0) {
            *rest = mpa_fpdu_expect(&ep->cfg.tx, pos + at, data + at, len - at);
            if (n - at < 8)
                n = at + 8;
        }
        l = *rest < n - at ? *rest : n - at;
    }
    return n;
}

/* Where a and b will stand when all that was asked of them is out: see may_follow. */
static uint64_t planned[2];

/*
 * May a message of len octets in segments with headers of hdr_len come next from a, b? Then it is
 * planned.
 */
static bool may_follow(bool from_a, size_t hdr_len, size_t len)
{
    const struct iwarp_cfg *c = from_a ? &p.a.ep.cfg : &p.b.ep.cfg;
    uint64_t pos = planned[!from_a];
    size_t n;
    do {
        n = len < c->mulpdu - hdr_len ? len : c->mulpdu - hdr_len;
        len -= n;
        size_t fpdu = mpa_fpdu_wire_len(&c->tx, pos, hdr_len + n);
        pos += fpdu;
        if (c->tx.markers && pos % 512 == 0 && fpdu > mpa_fpdu_len(hdr_len + n))
            return false;
    } while (len > 0);
    planned[!from_a] = pos;
    return true;
}

/* All that this side has to say, on the wire and into the other side. */
static void flush(bool from_a)
{
    struct side *s = from_a ? &p.a : &p.b, *t = from_a ? &p.b : &p.a;
    struct tcp_side *from = from_a ? &ta : &tb, *to = from_a ? &tb : &ta;
    const struct iovec *iov;
    size_t n, len;
    if (due[!from_a] > 0)
        printf("answer %u %c %u\n", tb.port, from_a ? 'a' : 'b', due[!from_a]);
    due[!from_a] = 0;
    due[from_a] += asked[!from_a];
    asked[!from_a] = 0;
    while ((n = iwarp_out(&s->ep, &iov, &len)) > 0) {
        size_t got = 0;
        uint64_t pos = fpdu_octets[!from_a];
        for (size_t i = 0; i < n; i++) {
            memcpy(out + got, iov[i].iov_base, iov[i].iov_len);
            got += iov[i].iov_len;
        }
        fpdu_octets[!from_a] += len;
        for (size_t at = 0; at < len;) {
            struct endpoint_event ev;
            uint8_t *in;
            size_t l = cut(&s->ep, from_a, out + at, len - at, pos + at);
            must(l <= iwarp_in_space(&t->ep, &in), "no room");
            packet(from, to, ACK | PSH, out + at, l);
            memcpy(in, out + at, l);
            iwarp_in_fed(&t->ep, l);
            at += l;
            int r;
            while ((r = iwarp_poll(&t->ep.base, &ev)) == 1)
                if (ev.type != ENDPOINT_TERMINATED)
                    iwarp_release(&t->ep.base, ev.data + ev.len);
            must(r == 0 || iwarp_state_now(&t->ep) >= IWARP_TERMINATING, "poll");
        }
        iwarp_out_sent(&s->ep, len);
    }
}

/* Frames of the startup, each in a segment of its own. */
static void startup_frame(struct mpa_startup *s, struct mpa_startup *t, bool from_a)
{
    const uint8_t *frame;
    size_t len = mpa_startup_output(s, &frame);
    must(len > 0, "no frame");
    packet(from_a ? &ta : &tb, from_a ? &tb : &ta, ACK | PSH, frame, len);
    must(mpa_startup_input(t, frame, len) == (ssize_t)len, "frame refused");
    mpa_startup_sent(s, len);
}

static struct mpa_startup_cfg startup_cfg(bool responder, enum startup kind, bool markers, bool crc)
{
    static const uint8_t rtr[] = { MPA_RTR_SEND, MPA_RTR_WRITE, MPA_RTR_READ };
    return (struct mpa_startup_cfg){
        .responder = responder,
        .rev = kind == REV_1 ? 1 : 2,
        .crc = crc,
        .markers = markers,
        .peer_to_peer = kind <= RTR_READ,
        .rtr = kind <= RTR_READ ? rtr[kind] : MPA_RTR_SEND,
        .ird = 8,
        .ord = 8,
        .priv = "private data",
        .priv_len = responder ? 0 : 12,
    };
}

static void endpoint(struct side *s, const struct mpa_startup *st, size_t mulpdu)
{
    struct iwarp_cfg c = side_cfg(s, !st->cfg.responder, st->res.rtr);
    c.tx = (struct mpa_framing){ .crc = st->res.crc, .markers = st->res.markers_tx };
    c.rx = (struct mpa_framing){ .crc = st->res.crc, .markers = st->res.markers_rx };
    c.in_buf = s == &p.a ? in_a : in_b;
    c.in_cap = IN_LEN;
    c.ird = st->res.ird;
    c.ord = st->res.ord;
    c.mulpdu = mulpdu;
    must(iwarp_init(&s->ep, &c) == 0, "iwarp_init");
}

static uint32_t length(size_t mulpdu)
{
    switch (rnd(4)) {
    case 0:
        return rnd(30);
    case 1:
        return rnd(600);
    default:
        return rnd(mulpdu < 2000 ? 4 * (uint32_t)mulpdu : 65000);
    }
}

static void send(bool by_a, const void *data, uint32_t len)
{
    int r;
    while ((r = side_send(by_a ? &p.a : &p.b, NULL, 0, data, len)) == -EAGAIN)
        flush(by_a);
    must(r == 0, "Send");
    printf("send %u %c %u\n", tb.port, by_a ? 'a' : 'b', len);
}

static void write_to(bool by_a, uint32_t stag, uint32_t to, const void *data, uint32_t len)
{
    int r;
    while ((r = side_write(by_a ? &p.a : &p.b, stag, to, data, len)) == -EAGAIN)
        flush(by_a);
    must(r == 0, "Write");
    printf("write %u %c %u %u %u\n", tb.port, by_a ? 'a' : 'b', len, stag, to);
}

static void read_from(bool by_a, const struct rdmap_read *rd)
{
    int r;
    while ((r = iwarp_post_read(by_a ? &p.a.ep : &p.b.ep, rd)) == -EAGAIN)
        flush(by_a);
    must(r == 0, "Read");
    printf("read %u %c %u %u %llu %u %llu\n", tb.port, by_a ? 'a' : 'b', rd->len, rd->sink_stag,
           (unsigned long long)rd->sink_to, rd->src_stag, (unsigned long long)rd->src_to);
    asked[!by_a]++;
}

/* Nothing is due: posts would have to wait for it. */
static void post(bool by_a, size_t mulpdu, uint32_t ours, uint32_t theirs)
{
    const uint8_t *mem = by_a ? mem_a : mem_b;
    uint32_t len = length(mulpdu), off = rnd(MEM_LEN - 100000), kind = rnd(3);
    if (kind == 2 && !may_follow(by_a, 18, 28))
        kind = 0;
    if (kind == 0 && len > SIDE_SEND_MAX - 64)
        len = SIDE_SEND_MAX - 64;
    while (!may_follow(kind == 2 ? !by_a : by_a, kind == 0 ? 18 : 14, len))
        len += 4;
    if (kind == 0) {
        send(by_a, mem + off, len);
    } else if (kind == 1) {
        write_to(by_a, theirs, off, mem + off, len);
    } else {
        struct rdmap_read rd = { ours, off, len, theirs, off / 2 };
        read_from(by_a, &rd);
    }
}

static void connection(uint16_t n, bool ab, bool ba, bool crc, enum startup kind, size_t mulpdu)
{
    struct mpa_startup sa, sb;
    struct mpa_startup_cfg ca = startup_cfg(false, kind, ba, crc), cb = startup_cfg(true, kind, ab, crc);
    ta = (struct tcp_side){ (uint16_t)(40000 + n), prng32(&rng) };
    tb = (struct tcp_side){ (uint16_t)(20000 + n), prng32(&rng) };
    if (n % 3 == 0) /* the numbers wrap in the middle */
        ta.seq = tb.seq = 0u - 1000 - rnd(3000);
    most = mulpdu > 30000 ? 60000 : 3000;
    fpdu_octets[0] = fpdu_octets[1] = left[0] = left[1] = 0;
    twice = ab != ba;
    printf("conn %u %d %d %d %s %zu\n", tb.port, ab, ba, crc, startup_names[kind], mulpdu);
    packet(&ta, &tb, SYN, NULL, 0);
    packet(&tb, &ta, SYN | ACK, NULL, 0);
    packet(&ta, &tb, ACK, NULL, 0);

    must(mpa_startup_init(&sa, &ca) == 0 && mpa_startup_init(&sb, &cb) == 0, "startup");
    startup_frame(&sa, &sb, true);
    must(mpa_startup_accept(&sb, "yes", 3) == 0, "accept");
    startup_frame(&sb, &sa, false);
    must(sa.state == MPA_ST_DONE && sb.state == MPA_ST_DONE, "startup");

    side_alloc(&p.a, n + 1u);
    side_alloc(&p.b, n + 2u);
    endpoint(&p.a, &sa, mulpdu);
    endpoint(&p.b, &sb, mulpdu);
    enum { REMOTE = DDP_ACCESS_REMOTE_WRITE | DDP_ACCESS_REMOTE_READ | DDP_ACCESS_LOCAL_SINK };
    uint32_t stag_a = side_region(&p.a, mem_a, 0, MEM_LEN, REMOTE);
    uint32_t stag_b = side_region(&p.b, mem_b, 0, MEM_LEN, REMOTE);
    asked[0] = kind == RTR_READ;
    asked[1] = due[0] = due[1] = 0;
    if (kind >= CLIENT_SERVER) /* the client's program speaks first */
        send(true, "first", 5);
    flush(true);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        bool by_a = i & 1;
        flush(by_a); /* its answers */
        planned[0] = fpdu_octets[0];
        planned[1] = fpdu_octets[1];
        for (uint32_t k = rnd(4); k > 0; k--)
            post(by_a, mulpdu, by_a ? stag_a : stag_b, by_a ? stag_b : stag_a);
        flush(by_a);
    }
    flush(false);
    flush(true);
    /* A Write to an STag that b does not have: b terminates. */
    planned[0] = fpdu_octets[0];
    planned[1] = fpdu_octets[1];
    while (!may_follow(false, 18, 4 + 2 + 14) || !may_follow(true, 14, 3)) {
        bool by_a = planned[1] != fpdu_octets[1];
        send(by_a, "x", 1);
        flush(by_a);
        planned[0] = fpdu_octets[0];
        planned[1] = fpdu_octets[1];
    }
    write_to(true, ~stag_b, 4096, "bad", 3);
    flush(true);
    printf("terminate %u b 1 1 0\n", tb.port);
    flush(false);
    must(iwarp_state_now(&p.a.ep) == IWARP_TERMINATED, "no Terminate");
    printf("octets %u a %llu\n", tb.port, (unsigned long long)fpdu_octets[0]);
    printf("octets %u b %llu\n", tb.port, (unsigned long long)fpdu_octets[1]);
    packet(&tb, &ta, FIN | ACK, NULL, 0);
    packet(&ta, &tb, FIN | ACK, NULL, 0);
    packet(&tb, &ta, ACK, NULL, 0);
    side_free(&p.a);
    side_free(&p.b);
}

int main(int argc, char **argv)
{
    static const size_t mulpdus[] = { MPA_MULPDU_MIN, 1442, MPA_MULPDU_MAX };
    uint16_t n = 0;
    must(argc == 4, "usage: mpagen FILE TWIN SEED");
    pcap = begin(argv[1]);
    twin = begin(argv[2]);
    rng = strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15u | 1;
    for (size_t i = 0; i < MEM_LEN; i++) {
        mem_a[i] = (uint8_t)prng32(&rng);
        mem_b[i] = (uint8_t)prng32(&rng);
    }
    out = malloc(1 << 20);
    must(out != NULL, "memory");
    for (unsigned bits = 0; bits < 8; bits++)
        for (unsigned kind = 0; kind < STARTUPS; kind++)
            for (size_t m = 0; m < SW_ARRAY_LEN(mulpdus); m++)
                connection(n++, bits & 1, bits & 2, bits & 4, (enum startup)kind, mulpdus[m]);
    free(out);
    must(fclose(pcap) == 0 && fclose(twin) == 0 && fflush(stdout) == 0, "close");
    return 0;
}
