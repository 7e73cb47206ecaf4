/*
 * The initiator does one thing wrong; the responder's end finds it and answers with a Terminate, RFC 5040 section 4.8.
 * Our end knows the Terminate, as finder and as offender; a device shows its program only that the connection is gone
 * (siw's kernel log has the rest).
 */
#include <stdlib.h>
#include <string.h>

#include "core/mpa/startup.h"
#include "tests/interop/vm/scenario.h"

#define REGION 8192u

enum act { ACT_WRITE, ACT_READ, ACT_SEND, ACT_INVALIDATE };

static const struct fault {
    const char *name;
    enum act act;
    bool wrong_key;
    uint64_t off;    /* what is reached lies from here on, 64 octets */
    unsigned region; /* which of the two: 0 may be written, 1 read */
    size_t len;      /* of a Send */
    enum peer_fault fault;
    struct term_code code; /* what the standard says */
    struct term_code
        siw; /* what siw says, if it says something else; (siw says 2/0/5 for 0/2/5: its octets are those) */
} faults[] = {
    /* RFC 5041 7.1: tagged buffers: STag, bounds; the right is RDMAP's */
    { "write-key", ACT_WRITE, true, 0, 0, 0, PEER_FAULT_NONE, { 1, 1, 0 }, { 0 } },
    { "write-bounds", ACT_WRITE, false, REGION - 63, 0, 0, PEER_FAULT_NONE, { 1, 1, 1 }, { 0 } },
    /*
     * (RFC 5041 has no number for a right: RFC 5040's 0/1/2 fits, and so does 1/1/0, not valid for this. Either is
     * taken.)
     */
    { "write-rights", ACT_WRITE, false, 0, 1, 0, PEER_FAULT_NONE, { 0, 1, 2 }, { 1, 1, 0 } },
    /* RFC 5040 4.8: remote protection errors of a Read Request and of an Invalidate */
    { "read-key", ACT_READ, true, 0, 1, 0, PEER_FAULT_NONE, { 0, 1, 0 }, { 0 } },
    { "read-bounds", ACT_READ, false, REGION - 63, 1, 0, PEER_FAULT_NONE, { 0, 1, 1 }, { 0 } },
    { "read-rights", ACT_READ, false, 0, 0, 0, PEER_FAULT_NONE, { 0, 1, 2 }, { 0 } },
    { "invalidate-key", ACT_INVALIDATE, true, 0, 0, 8, PEER_FAULT_NONE, { 0, 1, 9 }, { 0, 2, 9 } },
    /* RFC 5041 7.1: untagged buffers: length, queue, sequence, version */
    { "send-long", ACT_SEND, false, 0, 0, 4000, PEER_FAULT_NONE, { 1, 2, 5 }, { 1, 2, 2 } },
    { "qn", ACT_SEND, false, 0, 0, 8, PEER_FAULT_QN, { 1, 2, 1 }, { 0 } },
    { "msn", ACT_SEND, false, 0, 0, 8, PEER_FAULT_MSN, { 1, 2, 3 }, { 0 } },
    { "ddp-version", ACT_SEND, false, 0, 0, 8, PEER_FAULT_DDP_VERSION, { 1, 2, 6 }, { 0 } },
    { "rdmap-version", ACT_SEND, false, 0, 0, 8, PEER_FAULT_RDMAP_VERSION, { 0, 2, 5 }, { 2, 0, 5 } },
    { "opcode", ACT_SEND, false, 0, 0, 8, PEER_FAULT_OPCODE, { 0, 2, 6 }, { 2, 0, 6 } },
    /* RFC 5044 8: code 2, CRC */
    { "crc", ACT_SEND, false, 0, 0, 8, PEER_FAULT_CRC, { 2, 0, 2 }, { 0 } },
    /* no Terminate: an end where none may be */
    { "half", ACT_SEND, false, 0, 0, 100, PEER_FAULT_HALF, { 0 }, { 0 } },
    { "reset", ACT_SEND, false, 0, 0, 100, PEER_FAULT_RESET, { 0 }, { 0 } },
    { NULL, ACT_SEND, false, 0, 0, 0, PEER_FAULT_NONE, { 0 }, { 0 } },
};

static const struct fault *fault_of(const struct options *opt)
{
    const struct fault *f = faults;

    while (f->name && (!opt->fault || strcmp(f->name, opt->fault) != 0))
        f++;
    return f;
}

static int make(struct peer *p, struct peer_region *r, unsigned access)
{
    *r = (struct peer_region){ .mem = calloc(1, REGION), .len = REGION, .access = access };
    if (!r->mem)
        return say_wrong("no memory");
    return must(p, p->ops->reg(p, r), "registers a region");
}

static int code_is(struct peer *p, const char *what, struct term_code got, struct term_code want)
{
    if (got.layer == want.layer && got.etype == want.etype && got.code == want.code)
        return 0;
    return say_wrong("%s: %s %u/%u/%u (%s), not %u/%u/%u", p->ops->name, what, got.layer, got.etype, got.code,
                     term_code_text(got), want.layer, want.etype, want.code);
}

static int offend(struct peer *p, const struct fault *f, struct peer_region *local, struct peer_remote remote)
{
    static const uint8_t text[PEER_MESSAGE_MAX];

    remote.addr += f->off;
    if (f->wrong_key)
        remote.key ^= 0x00ff0000;
    if (must(p, p->ops->fault(p, f->fault), "spoils") < 0)
        return -1;
    switch (f->act) {
    case ACT_WRITE:
        return must(p, p->ops->write(p, local, 0, 64, remote), "writes");
    case ACT_READ:
        return must(p, p->ops->read(p, local, 0, 64, remote), "reads");
    case ACT_SEND:
        return must(p, p->ops->send(p, text, f->len, 0, false), "sends");
    case ACT_INVALIDATE:
        return must(p, p->ops->send(p, text, f->len, remote.key, false), "sends with Invalidate");
    }
    return -1;
}

int fault_initiator(struct peer *p, const struct options *opt)
{
    const struct fault *f = fault_of(opt);
    struct peer_region local;
    struct peer_remote remote[2];
    struct peer_end end;
    bool other = f->siw.layer || f->siw.etype || f->siw.code;

    if (!f->name)
        return say_wrong("no fault '%s'", opt->fault ? opt->fault : "");
    if (make(p, &local, PEER_REMOTE_WRITE) < 0 || tell(p, 1) < 0 || hear_region(p, &remote[0]) < 0 ||
        hear_region(p, &remote[1]) < 0 || offend(p, f, &local, remote[f->region]) < 0)
        return -1;
    if (f->fault == PEER_FAULT_HALF || f->fault == PEER_FAULT_RESET)
        return 0;
    if (must(p, p->ops->wait_end(p, &end), "waits for the end") < 0)
        return -1;
    if (p->ops != &peer_ours)
        return 0;
    if (!end.terminated)
        return say_wrong("ours: no Terminate came");
    return code_is(p, "was told", end.code, other ? f->siw : f->code);
}

int fault_responder(struct peer *p, const struct options *opt)
{
    const struct fault *f = fault_of(opt);
    struct peer_region writable, readable;
    struct peer_end end;

    if (!f->name)
        return say_wrong("no fault '%s'", opt->fault ? opt->fault : "");
    if (make(p, &writable, PEER_REMOTE_WRITE) < 0 || make(p, &readable, PEER_REMOTE_READ) < 0 || hear(p, 1) < 0 ||
        tell_region(p, &writable) < 0 || tell_region(p, &readable) < 0 ||
        must(p, p->ops->wait_end(p, &end), "waits for the end") < 0)
        return -1;
    if (p->ops != &peer_ours)
        return 0;
    if (!end.found)
        return say_wrong("ours: no error found");
    /* RFC 5041 7.1: after an error nothing is placed */
    for (unsigned i = 0; i < REGION; i++)
        if (writable.mem[i] != 0 || readable.mem[i] != 0)
            return say_wrong("ours: something was written all the same");
    if (strcmp(f->name, "write-rights") == 0 && end.code.layer == TERM_LAYER_DDP)
        return code_is(p, "found", end.code, f->siw);
    return code_is(p, "found", end.code, f->code);
}

/* ---- Send with Invalidate: what it names cannot be reached any more ---- */

int invalidate_initiator(struct peer *p, const struct options *opt)
{
    struct peer_region source;
    struct peer_remote remote;
    struct peer_end end;

    if (make(p, &source, 0) < 0)
        return -1;
    pattern_fill(source.mem, REGION, 0);
    if (tell(p, 1) < 0 || hear_region(p, &remote) < 0 ||
        must(p, p->ops->write(p, &source, 0, REGION, remote), "writes") < 0 ||
        must(p, p->ops->send(p, "invalid now", 11, remote.key, opt->solicited), "sends with Invalidate") < 0 ||
        hear(p, 2) < 0)
        return -1;
    /* RFC 5041 7.1: the STag is not valid any more. */
    if (must(p, p->ops->write(p, &source, 0, 64, remote), "writes once more") < 0 ||
        must(p, p->ops->wait_end(p, &end), "waits for the end") < 0)
        return -1;
    if (p->ops != &peer_ours)
        return 0;
    if (!end.terminated)
        return say_wrong("ours: no Terminate came");
    return code_is(p, "was told", end.code, (struct term_code){ 1, 1, 0 });
}

int invalidate_responder(struct peer *p, const struct options *opt)
{
    struct peer_region region;
    struct peer_end end;
    const uint8_t *msg;
    size_t len;

    (void)opt;
    if (make(p, &region, PEER_REMOTE_WRITE) < 0 || hear(p, 1) < 0 || tell_region(p, &region) < 0 ||
        must(p, p->ops->recv(p, &msg, &len), "waits for the Send with Invalidate") < 0)
        return -1;
    if (len != 11 || memcmp(msg, "invalid now", 11) != 0)
        return say_wrong("%s: another message", p->ops->name);
    if (!pattern_same(region.mem, REGION, 0))
        return say_wrong("%s: other octets were written", p->ops->name);
    memset(region.mem, 0, REGION);
    if (tell(p, 2) < 0 || must(p, p->ops->wait_end(p, &end), "waits for the end") < 0)
        return -1;
    for (unsigned i = 0; i < REGION; i++)
        if (region.mem[i] != 0)
            return say_wrong("%s: written after the Invalidate", p->ops->name);
    if (p->ops != &peer_ours)
        return 0;
    if (!end.found)
        return say_wrong("ours: no error found");
    return code_is(p, "found", end.code, (struct term_code){ 1, 1, 0 });
}
