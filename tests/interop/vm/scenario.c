/* The scenarios' list, what they share, and the small ones. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/mpa/startup.h"
#include "tests/interop/vm/scenario.h"

int say_wrong(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return -1;
}

int must(struct peer *p, int err, const char *what)
{
    return err ? say_wrong("%s: %s: %s (%s)", p->ops->name, what, p->why, strerror(-err)) : 0;
}

static uint64_t mixed(uint64_t x)
{
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* The pattern's octets [off, off + 8) that lie in one word of it: how many, at most left. */
static size_t pattern_part(uint64_t off, size_t left, uint8_t part[8])
{
    uint64_t word = mixed(off / 8);
    size_t at = off % 8, n = 8 - at < left ? 8 - at : left;

    memcpy(part, (const uint8_t *)&word + at, n);
    return n;
}

void pattern_fill(uint8_t *mem, size_t len, uint64_t off)
{
    uint8_t part[8];

    for (size_t i = 0, n; i < len; i += n) {
        if ((off + i) % 8 == 0 && len - i >= 8) { /* (most of them: worth it in an emulated processor) */
            uint64_t word = mixed((off + i) / 8);

            memcpy(mem + i, &word, n = 8);
        } else {
            n = pattern_part(off + i, len - i, part);
            memcpy(mem + i, part, n);
        }
    }
}

bool pattern_same(const uint8_t *mem, size_t len, uint64_t off)
{
    uint64_t wrong = 0;
    uint8_t part[8];

    for (size_t i = 0, n; i < len; i += n) {
        if ((off + i) % 8 == 0 && len - i >= 8) {
            uint64_t word;

            memcpy(&word, mem + i, n = 8);
            wrong |= word ^ mixed((off + i) / 8);
        } else {
            n = pattern_part(off + i, len - i, part);
            wrong |= memcmp(mem + i, part, n) != 0;
        }
    }
    return wrong == 0;
}

int tell_region(struct peer *p, const struct peer_region *r)
{
    uint8_t msg[12];

    put_be32(msg, r->key);
    put_be64(msg + 4, r->addr);
    return must(p, p->ops->send(p, msg, sizeof(msg), 0, false), "tells its region");
}

int hear_region(struct peer *p, struct peer_remote *remote)
{
    const uint8_t *msg;
    size_t len;

    if (must(p, p->ops->recv(p, &msg, &len), "waits for the other's region") < 0)
        return -1;
    if (len != 12)
        return say_wrong("a region's name of %zu octets", len);
    *remote = (struct peer_remote){ get_be32(msg), get_be64(msg + 4) };
    return 0;
}

int tell(struct peer *p, uint64_t number)
{
    uint8_t msg[8];

    put_be64(msg, number);
    return must(p, p->ops->send(p, msg, sizeof(msg), 0, false), "tells a number");
}

int hear(struct peer *p, uint64_t number)
{
    const uint8_t *msg;
    size_t len;

    if (must(p, p->ops->recv(p, &msg, &len), "waits for a number") < 0)
        return -1;
    if (len != 8 || get_be64(msg) != number)
        return say_wrong("%zu octets, %llu, where %llu was due", len, len == 8 ? (unsigned long long)get_be64(msg) : 0,
                         (unsigned long long)number);
    return 0;
}

int hear_end(struct peer *p)
{
    struct peer_end end;

    if (must(p, p->ops->wait_end(p, &end), "waits for the end") < 0)
        return -1;
    if (end.terminated || end.found || (p->ops == &peer_ours && !end.orderly))
        return say_wrong("not an orderly end: %u/%u/%u", end.code.layer, end.code.etype, end.code.code);
    return 0;
}

/* ---- hello: what the startup agreed; with an RTR the responder speaks first ---- */

static int check_met(struct peer *p, const struct options *opt)
{
    const struct peer_met *met = &p->met;

    if (opt->expect_priv && (met->priv_len < strlen(opt->expect_priv) ||
                             memcmp(met->priv, opt->expect_priv, strlen(opt->expect_priv)) != 0))
        return say_wrong("%s: private data '%.*s' (%zu octets), not '%s'", p->ops->name, (int)met->priv_len, met->priv,
                         met->priv_len, opt->expect_priv);
    /* (What a device agreed is not shown.) */
    if (p->ops == &peer_ours && opt->expect_rtr >= 0 && met->rtr != opt->expect_rtr)
        return say_wrong("%s: RTR %s, not %s", p->ops->name, mpa_rtr_name(met->rtr),
                         mpa_rtr_name((unsigned)opt->expect_rtr));
    if (p->ops == &peer_ours && opt->expect_rev >= 0 && met->rev != opt->expect_rev)
        return say_wrong("%s: revision %u, not %d", p->ops->name, met->rev, opt->expect_rev);
    if ((opt->expect_ird >= 0 && met->ird != opt->expect_ird) || (opt->expect_ord >= 0 && met->ord != opt->expect_ord))
        return say_wrong("%s: IRD %u, ORD %u, not %d, %d", p->ops->name, met->ird, met->ord, opt->expect_ird,
                         opt->expect_ord);
    return 0;
}

static int hello_initiator(struct peer *p, const struct options *opt)
{
    if (check_met(p, opt) < 0)
        return -1;
    /* Without an RTR the responder may not speak before we do. */
    if (opt->expect_rtr <= 0 && tell(p, 1) < 0)
        return -1;
    if (hear(p, 2) < 0 || tell(p, 3) < 0)
        return -1;
    return hear_end(p);
}

static int hello_responder(struct peer *p, const struct options *opt)
{
    if (check_met(p, opt) < 0)
        return -1;
    if (opt->expect_rtr <= 0 && hear(p, 1) < 0)
        return -1;
    return tell(p, 2) < 0 || hear(p, 3) < 0 ? -1 : 0;
}

/* ---- refused: the startup ends with a rejection and its private data ---- */

static int refused(struct peer *p, const struct options *opt)
{
    return p->met.refused ? check_met(p, opt) : say_wrong("%s: not refused", p->ops->name);
}

/* ---- messages: Sends of many lengths, there and back ---- */

#define MESSAGES 400u

static size_t message_len(unsigned i)
{
    /* Around what a segment and a marker interval hold, then anything; and the limits. */
    static const size_t edge[] = { 0,
                                   1,
                                   2,
                                   3,
                                   4,
                                   5,
                                   494,
                                   495,
                                   1419,
                                   1420,
                                   1421,
                                   1422,
                                   1423,
                                   1424,
                                   1425,
                                   1426,
                                   1427,
                                   1428,
                                   1429,
                                   1430,
                                   1431,
                                   2840,
                                   2856,
                                   PEER_MESSAGE_MAX - 1,
                                   PEER_MESSAGE_MAX };

    if (i < SW_ARRAY_LEN(edge))
        return edge[i];
    return (size_t)(mixed(i) >> 40) % (i % 4 ? 600 : PEER_MESSAGE_MAX + 1);
}

static int message_from(struct peer *p, unsigned i)
{
    const uint8_t *msg;
    size_t len;

    if (must(p, p->ops->recv(p, &msg, &len), "waits for a message") < 0)
        return -1;
    if (len != message_len(i) || !pattern_same(msg, len, i * 7u))
        return say_wrong("%s: message %u: %zu octets of %zu, or others", p->ops->name, i, len, message_len(i));
    return 0;
}

static int message_to(struct peer *p, unsigned i, bool solicited)
{
    uint8_t msg[PEER_MESSAGE_MAX];

    pattern_fill(msg, message_len(i), i * 7u);
    return must(p, p->ops->send(p, msg, message_len(i), 0, solicited && i % 3 == 0), "sends a message");
}

/* As many as may be under way, then as many back. */
static int messages_initiator(struct peer *p, const struct options *opt)
{
    for (unsigned i = 0; i < MESSAGES; i += PEER_WINDOW) {
        unsigned end = i + PEER_WINDOW < MESSAGES ? i + PEER_WINDOW : MESSAGES;

        for (unsigned k = i; k < end; k++)
            if (message_to(p, k, opt->solicited) < 0)
                return -1;
        for (unsigned k = i; k < end; k++)
            if (message_from(p, k) < 0)
                return -1;
    }
    return 0;
}

static int messages_responder(struct peer *p, const struct options *opt)
{
    for (unsigned i = 0; i < MESSAGES; i++)
        if (message_from(p, i) < 0 || message_to(p, i, opt->solicited) < 0)
            return -1;
    return hear_end(p);
}

const struct scenario scenarios[] = {
    { "hello", hello_initiator, hello_responder },
    { "refused", refused, refused },
    { "messages", messages_initiator, messages_responder },
    { "write", write_initiator, write_responder },
    { "read", read_initiator, read_responder },
    { "initiator-killed", killed_initiator, survivor_responder },
    { "responder-killed", survivor_initiator, killed_responder },
    { "fault", fault_initiator, fault_responder },
    { "invalidate", invalidate_initiator, invalidate_responder },
    { "rping", rping_client, rping_server },
    { NULL, NULL, NULL },
};
