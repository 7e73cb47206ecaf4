/*
 * What goes over storm's connections.
 */
#include "tests/storm/storm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define PERIOD 65521u

/* Octets that nothing but their place tells; IO_MAX more, so that each offset has so many behind it. */
static uint8_t table[PERIOD + IO_MAX];
int stream_file;

static uint64_t mix(uint64_t v)
{
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

void stream_init(void)
{
    for (size_t i = 0; i < sizeof(table); i++)
        table[i] = (uint8_t)mix(i % PERIOD);
    stream_file = memfd_create("octets", MFD_CLOEXEC);
    must(stream_file >= 0 && write(stream_file, table, sizeof(table)) == (ssize_t)sizeof(table), "stream_file");
}

off_t stream_place(const struct slot *s, unsigned dir, uint64_t at)
{
    return (off_t)((at + mix(s->id * 2u + dir) % PERIOD) % PERIOD);
}

const uint8_t *stream_octets(const struct slot *s, unsigned dir, uint64_t at)
{
    return table + stream_place(s, dir, at);
}

bool may_break(const struct slot *s)
{
    return atomic_load(&s->c->dir[0].abrupt) || atomic_load(&s->c->dir[1].abrupt);
}

static bool is_end(int err)
{
    return err == EPIPE || err == ECONNRESET || err == ENOTCONN;
}

/* An error that a call on a connection may give now and then, and nothing else has happened. */
static bool is_pause(int err)
{
    return err == EAGAIN || (err == EINTR && with_signals);
}

bool is_settled(const struct slot *s)
{
    return atomic_load(&s->c->dir[0].got) > 0 && atomic_load(&s->c->dir[1].got) > 0;
}

bool sent(struct worker *w, struct slot *s, const char *call, ssize_t r, size_t asked)
{
    struct direction *d = &s->c->dir[s->mine];
    if (r < 0) {
        int err = errno;
        if (!is_pause(err) && !may_break(s))
            fail("connection %u kind %d: %s of %zu: %s", s->id, s->kind, call, asked, strerrorname_np(err));
        if (s->kind == CHUNKS && err == EAGAIN && w->settled && !may_break(s))
            fail("connection %u: %s of a chunk of %zu: EAGAIN", s->id, call, asked);
        return !is_end(err);
    }
    if ((size_t)r > asked)
        fail("connection %u: %s of %zu gave %zd", s->id, call, asked, r);
    if (s->kind == CHUNKS && (size_t)r != asked && !may_break(s))
        fail("connection %u: %s of a chunk of %zu gave %zd", s->id, call, asked, r);
    s->tx_at += s->kind == CHUNKS ? 0 : (uint64_t)r;
    atomic_fetch_add(&d->sent, (uint64_t)r);
    COUNT(sends, 1);
    COUNT(octets, r);
    return true;
}

/* ---- words ---- */

static uint64_t word(const struct slot *s, unsigned dir, uint64_t n)
{
    return n << 40 | (mix(n << 20 | s->id << 1 | dir) & 0xffffffffffu);
}

static void put_words(const struct slot *s, unsigned dir, uint64_t at, uint8_t *buf, size_t len)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = (uint8_t)(word(s, dir, (at + i) / 8) >> 8 * (7 - (at + i) % 8));
}

size_t make_words(struct worker *w, struct slot *s, uint8_t *buf, size_t max)
{
    struct direction *d = &s->c->dir[s->mine];
    uint64_t unread = s->tx_at - atomic_load(&d->got);
    if (unread + 64 > UNREAD_MAX || s->tx_at + 64 > WORDS_MAX)
        return 0;
    size_t room = UNREAD_MAX - unread < WORDS_MAX - s->tx_at ? UNREAD_MAX - unread : WORDS_MAX - s->tx_at;
    size_t len = 1 + rnd(w, (uint32_t)(room < max ? room : max));
    put_words(s, s->mine, s->tx_at, buf, len);
    return len;
}

/* Where a piece of words belongs: what its octets say. -1: it is too short to say it. */
static int64_t place(const struct slot *s, unsigned dir, const uint8_t *p, size_t len)
{
    for (size_t first = 0; first < 8 && first + 8 <= len; first++) {
        uint64_t v = 0;
        for (size_t i = 0; i < 8; i++)
            v = v << 8 | p[first + i];
        uint64_t n = v >> 40;
        if (v == word(s, dir, n) && n * 8 >= first && n < WORDS_MAX / 8)
            return (int64_t)(n * 8 - first);
    }
    return -1;
}

static void got_words(struct slot *s, const char *call, const uint8_t *p, size_t len)
{
    unsigned dir = !s->mine;
    int64_t at = place(s, dir, p, len);
    if (at < 0) {
        if (len >= 15)
            fail("connection %u (mine %u, got %llu): %s gave %zu octets of no place: %02x%02x%02x%02x%02x%02x%02x%02x",
                 s->id, s->mine, (unsigned long long)s->c->dir[!s->mine].got, call, len, p[0], p[1], p[2], p[3], p[4],
                 p[5], p[6], p[7]);
        atomic_fetch_add(&s->strays, len);
        return;
    }
    uint8_t want[UNREAD_MAX];
    if (len > sizeof(want))
        fail("connection %u: %s gave %zu octets, more than were under way", s->id, call, len);
    put_words(s, dir, (uint64_t)at, want, len);
    if (memcmp(want, p, len) != 0)
        fail("connection %u: %s gave wrong octets in the %zu from %lld on", s->id, call, len, (long long)at);
    for (size_t i = 0; i < len; i++)
        if ((size_t)at + i >= WORDS_MAX || atomic_exchange(&s->seen[(size_t)at + i], 1) != 0)
            fail("connection %u: %s gave octet %lld a second time", s->id, call, (long long)(at + (int64_t)i));
}

void stream_whole(struct slot *s)
{
    uint64_t total = atomic_load(&s->c->dir[!s->mine].sent), count = 0;
    if (s->kind != WORDS)
        return;
    for (uint64_t i = 0; i < total; i++)
        count += atomic_load(&s->seen[i]);
    if (count + atomic_load(&s->strays) != total)
        fail("connection %u: of %llu octets %llu were received, and %llu in short pieces", s->id,
             (unsigned long long)total, (unsigned long long)count, (unsigned long long)s->strays);
}

/* ---- chunks ---- */

struct head {
    uint32_t id;
    uint32_t seq;
    uint16_t len; /* head included */
    uint8_t sender;
    uint8_t dir;
};

static void chunk_body(const struct head *h, uint8_t *buf)
{
    uint64_t v = mix((uint64_t)h->id << 32 | h->seq) ^ mix(h->sender * 2u + h->dir);
    for (size_t i = sizeof(*h); i < h->len; i++)
        buf[i] = (uint8_t)((v >> i % 56) + i);
}

size_t make_chunk(struct worker *w, struct slot *s, uint8_t *buf)
{
    struct direction *d = &s->c->dir[s->mine];
    struct head h = {
        .id = s->id,
        .len = (uint16_t)(sizeof(h) + rnd(w, CHUNK_MAX - sizeof(h))),
        .sender = (uint8_t)w->n,
        .dir = (uint8_t)s->mine,
    };
    uint64_t had = atomic_fetch_add(&d->claimed, h.len);
    if (had + h.len - atomic_load(&d->got) > UNREAD_MAX) {
        atomic_fetch_sub(&d->claimed, h.len);
        return 0;
    }
    h.seq = s->tx_seq[w->n]++;
    memcpy(buf, &h, sizeof(h));
    chunk_body(&h, buf);
    return h.len;
}

static void whole_chunk(struct slot *s, const struct head *h)
{
    uint8_t want[CHUNK_MAX];
    memcpy(want, h, sizeof(*h));
    chunk_body(h, want);
    if (h->id != s->id || h->dir == s->mine || h->sender > THREADS || h->seq != s->rx_seq[h->sender]++ ||
        memcmp(want, s->chunk, h->len) != 0)
        fail("connection %u (fd %d, got %llu): a wrong chunk: id %u, sender %u, seq %u, len %u", s->id, s->fd,
             (unsigned long long)s->c->dir[!s->mine].got, h->id, h->sender, h->seq, h->len);
}

static void got_chunks(struct slot *s, const uint8_t *p, size_t len)
{
    while (len > 0) {
        struct head h;
        size_t want = sizeof(h);
        if (s->chunk_len >= sizeof(h)) {
            memcpy(&h, s->chunk, sizeof(h));
            want = h.len;
            if (want <= sizeof(h) - 1 || want > CHUNK_MAX)
                fail("connection %u: a chunk's head with length %zu", s->id, want);
        }
        size_t n = want - s->chunk_len < len ? want - s->chunk_len : len;
        memcpy(s->chunk + s->chunk_len, p, n);
        s->chunk_len += n;
        p += n;
        len -= n;
        if (s->chunk_len < sizeof(h))
            break;
        memcpy(&h, s->chunk, sizeof(h));
        if (s->chunk_len == h.len) {
            whole_chunk(s, &h);
            s->chunk_len = 0;
        }
    }
}

/* ---- what came ---- */

static void at_end(struct slot *s, const char *call)
{
    struct direction *d = &s->c->dir[!s->mine];
    uint64_t got = atomic_load(&d->got);
    if (may_break(s))
        return;
    if (!atomic_load(&d->finished))
        fail("connection %u: %s: end of file after %llu octets, but the sender has not finished", s->id, call,
             (unsigned long long)got);
    /* (Several receivers: another may not have counted yet; see stream_whole.) */
    if (s->kind != WORDS && got != atomic_load(&d->sent))
        fail("connection %u kind %d: %s: end of file after %llu octets of %llu", s->id, s->kind, call,
             (unsigned long long)got, (unsigned long long)atomic_load(&d->sent));
    if (s->kind == CHUNKS && s->chunk_len != 0)
        fail("connection %u: end of file in a chunk", s->id);
}

bool received(struct worker *w, struct slot *s, const char *call, ssize_t r, bool peek)
{
    struct direction *d = &s->c->dir[!s->mine];
    if (r < 0) {
        int err = errno;
        if (!is_pause(err) && !may_break(s))
            fail("connection %u kind %d: %s: %s", s->id, s->kind, call, strerrorname_np(err));
        return !is_end(err);
    }
    if (r == 0) {
        at_end(s, call);
        return false;
    }
    if (atomic_load(&s->left))
        return true; /* a cancelled thread may have taken some with it */
    if (s->kind == OCTETS) {
        if (memcmp(w->buf, stream_octets(s, !s->mine, s->rx_at), (size_t)r) != 0) {
            size_t i = 0;
            while (w->buf[i] == stream_octets(s, !s->mine, s->rx_at)[i])
                i++;
            fail(
                "connection %u (mine %u): %s%s of %zd at %llu: wrong from octet %zu on: %02x%02x%02x%02x%02x%02x%02x%02x",
                s->id, s->mine, call, peek ? " (peek)" : "", r, (unsigned long long)s->rx_at, i, w->buf[i],
                w->buf[i + 1], w->buf[i + 2], w->buf[i + 3], w->buf[i + 4], w->buf[i + 5], w->buf[i + 6],
                w->buf[i + 7]);
        }
        s->rx_at += peek ? 0 : (uint64_t)r;
    } else if (s->kind == WORDS && !peek) {
        got_words(s, call, w->buf, (size_t)r);
    } else if (s->kind == CHUNKS && !peek) {
        got_chunks(s, w->buf, (size_t)r);
    }
    if (!peek)
        atomic_fetch_add(&d->got, (uint64_t)r);
    COUNT(recvs, 1);
    return true;
}
