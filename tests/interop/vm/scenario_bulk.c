/* Much data: RDMA Writes into a ring each way, RDMA Reads each way; and an end in the middle of it. */
#include <signal.h>
#include <stdlib.h>

#include "tests/interop/vm/scenario.h"

#define SLOT (256u << 10)
#define SLOTS 4u
#define RING (SLOT * SLOTS)
#define DEFAULT_BYTES (100ull << 20)
#define READ_MAX (96u << 10)

static uint64_t bytes_of(const struct options *opt)
{
    return opt->bytes ? opt->bytes : DEFAULT_BYTES;
}

/* Lengths that are odd now and then. */
static size_t chunk_len(uint64_t at, uint64_t total)
{
    size_t len = (at / SLOT) % 3 ? SLOT : SLOT - 1000 - (at / SLOT) % 777;

    return total - at < len ? (size_t)(total - at) : len;
}

static int make(struct peer *p, struct peer_region *r, unsigned access)
{
    *r = (struct peer_region){ .mem = malloc(RING), .len = RING, .access = access };
    if (!r->mem)
        return say_wrong("no memory");
    return must(p, p->ops->reg(p, r), "registers a region");
}

/* ---- Writes ---- */

/* A chunk into the next slot, a Send that says so; the other end answers when it has looked at it. */
static int writes_out(struct peer *p, struct peer_region *from, struct peer_remote to, uint64_t total, uint64_t kill_at)
{
    uint64_t sent = 0, slot = 0, answered = 0;

    while (sent < total || answered < slot) {
        if (sent < total && slot - answered < SLOTS) {
            size_t off = (size_t)(slot % SLOTS) * SLOT, len = chunk_len(sent, total);

            pattern_fill(from->mem + off, len, sent);
            if (must(p, p->ops->write(p, from, off, len, (struct peer_remote){ to.key, to.addr + off }), "writes") < 0)
                return -1;
            if (kill_at && sent >= kill_at)
                raise(SIGKILL);
            if (tell(p, slot) < 0)
                return -1;
            sent += len;
            slot++;
        } else {
            if (hear(p, answered) < 0)
                return -1;
            answered++;
        }
    }
    return must(p, p->ops->flush(p), "waits until all is written");
}

static int writes_in(struct peer *p, struct peer_region *ring, uint64_t total, uint64_t kill_at)
{
    uint64_t slot = 0;

    for (uint64_t got = 0; got < total; slot++) {
        size_t len = chunk_len(got, total);

        if (hear(p, slot) < 0)
            return -1;
        if (kill_at && got >= kill_at)
            raise(SIGKILL);
        if (!pattern_same(ring->mem + (slot % SLOTS) * SLOT, len, got))
            return say_wrong("%s: wrong octets written, somewhere from %llu on", p->ops->name, (unsigned long long)got);
        got += len;
        if (tell(p, slot) < 0)
            return -1;
    }
    return 0;
}

int write_initiator(struct peer *p, const struct options *opt)
{
    struct peer_region source, ring;
    struct peer_remote remote;

    if (make(p, &source, 0) < 0 || make(p, &ring, PEER_REMOTE_WRITE) < 0 || tell_region(p, &ring) < 0 ||
        hear_region(p, &remote) < 0 || writes_out(p, &source, remote, bytes_of(opt), 0) < 0 || tell(p, 4711) < 0)
        return -1;
    return writes_in(p, &ring, bytes_of(opt), 0) < 0 ? -1 : hear_end(p);
}

int write_responder(struct peer *p, const struct options *opt)
{
    struct peer_region source, ring;
    struct peer_remote remote;

    if (make(p, &source, 0) < 0 || make(p, &ring, PEER_REMOTE_WRITE) < 0 || hear_region(p, &remote) < 0 ||
        tell_region(p, &ring) < 0 || writes_in(p, &ring, bytes_of(opt), 0) < 0 || hear(p, 4711) < 0)
        return -1;
    return writes_out(p, &source, remote, bytes_of(opt), 0);
}

/* ---- Reads ---- */

/* Several at a time, of anything between one octet and more than a segment, from anywhere. */
static int reads(struct peer *p, struct peer_region *sink, struct peer_remote from, uint64_t total)
{
    uint64_t at = 0;

    for (unsigned round = 0; at < total; round++) {
        size_t off[PEER_READS], len[PEER_READS];

        for (unsigned i = 0; i < PEER_READS; i++) {
            len[i] = 1 + (size_t)(at * 31 + i * 7919 + round) % READ_MAX;
            off[i] = (size_t)(at * 17 + i * 104729) % (RING - len[i]);
            at += len[i];
            if (must(p,
                     p->ops->read(p, sink, i * (RING / PEER_READS), len[i],
                                  (struct peer_remote){ from.key, from.addr + off[i] }),
                     "reads") < 0)
                return -1;
        }
        if (must(p, p->ops->flush(p), "waits for Read Responses") < 0)
            return -1;
        for (unsigned i = 0; i < PEER_READS; i++)
            if (!pattern_same(sink->mem + i * (RING / PEER_READS), len[i], off[i]))
                return say_wrong("%s: wrong octets read: %zu from %zu", p->ops->name, len[i], off[i]);
    }
    return 0;
}

int read_initiator(struct peer *p, const struct options *opt)
{
    struct peer_region sink, source;
    struct peer_remote remote;

    if (make(p, &sink, PEER_REMOTE_WRITE) < 0 || make(p, &source, PEER_REMOTE_READ) < 0)
        return -1;
    pattern_fill(source.mem, RING, 0);
    if (tell_region(p, &source) < 0 || hear_region(p, &remote) < 0 || reads(p, &sink, remote, bytes_of(opt)) < 0 ||
        tell(p, 1) < 0 || hear(p, 2) < 0)
        return -1;
    return 0;
}

int read_responder(struct peer *p, const struct options *opt)
{
    struct peer_region sink, source;
    struct peer_remote remote;

    if (make(p, &sink, PEER_REMOTE_WRITE) < 0 || make(p, &source, PEER_REMOTE_READ) < 0)
        return -1;
    pattern_fill(source.mem, RING, 0);
    if (hear_region(p, &remote) < 0 || tell_region(p, &source) < 0 || hear(p, 1) < 0 ||
        reads(p, &sink, remote, bytes_of(opt)) < 0 || tell(p, 2) < 0)
        return -1;
    return hear_end(p);
}

/* ---- killed in the middle: the other end learns of it ---- */

#define KILL_AT (5u << 20)

static int survives(struct peer *p)
{
    struct peer_end end;

    if (must(p, p->ops->wait_end(p, &end), "waits for the end of a killed peer") < 0)
        return -1;
    /* (A device that clears up after the program may find that Writes reach no memory any more, and terminate.) */
    return end.found ? say_wrong("%s: a killed peer's octets were wrong", p->ops->name) : 0;
}

int killed_initiator(struct peer *p, const struct options *opt)
{
    struct peer_region source;
    struct peer_remote remote;

    (void)opt;
    if (make(p, &source, 0) < 0 || tell(p, 1) < 0 || hear_region(p, &remote) < 0)
        return -1;
    (void)writes_out(p, &source, remote, DEFAULT_BYTES, KILL_AT);
    return say_wrong("not killed");
}

int survivor_responder(struct peer *p, const struct options *opt)
{
    struct peer_region ring;

    (void)opt;
    if (make(p, &ring, PEER_REMOTE_WRITE) < 0 || hear(p, 1) < 0 || tell_region(p, &ring) < 0)
        return -1;
    for (uint64_t slot = 0;; slot++) {
        const uint8_t *msg;
        size_t len;

        if (p->ops->recv(p, &msg, &len) < 0 || p->ops->send(p, msg, len, 0, false) < 0)
            /* What was posted last may be lost. */
            return slot < KILL_AT / SLOT - SLOTS ? say_wrong("ended after %u chunks", (unsigned)slot) : survives(p);
    }
}

int survivor_initiator(struct peer *p, const struct options *opt)
{
    struct peer_region source;
    struct peer_remote remote;

    (void)opt;
    if (make(p, &source, 0) < 0 || tell(p, 1) < 0 || hear_region(p, &remote) < 0)
        return -1;
    if (writes_out(p, &source, remote, DEFAULT_BYTES, 0) == 0)
        return say_wrong("all written to a killed peer");
    return survives(p);
}

int killed_responder(struct peer *p, const struct options *opt)
{
    struct peer_region ring;

    (void)opt;
    if (make(p, &ring, PEER_REMOTE_WRITE) < 0 || hear(p, 1) < 0 || tell_region(p, &ring) < 0)
        return -1;
    (void)writes_in(p, &ring, DEFAULT_BYTES, KILL_AT);
    return say_wrong("not killed");
}
