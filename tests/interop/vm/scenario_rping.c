/*
 * The protocol of rdma-core's rping, either side of it. Four Sends of 16 octets a round:
 *
 *   client                                   server
 *     | Send: where the text lies ------------> |  reads it
 *     | <----------------- Send: go on          |
 *     | Send: where it shall come back -------> |  writes it
 *     | <----------------- Send: it is there    |
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "tests/interop/vm/scenario.h"

#define ADVERT 16u /* u64 address, u32 key, u32 size */
#define TEXT_MAX 65536u
#define TEXT 1000u

static int advertise(struct peer *p, const struct peer_region *r, size_t size)
{
    uint8_t msg[ADVERT];

    put_be64(msg, r->addr);
    put_be32(msg + 8, r->key);
    put_be32(msg + 12, (uint32_t)size);
    return must(p, p->ops->send(p, msg, sizeof(msg), 0, false), "advertises");
}

/* 0, or 1 at the connection's end. */
static int advertised(struct peer *p, struct peer_remote *remote, size_t *size)
{
    const uint8_t *msg;
    size_t len;

    if (p->ops->recv(p, &msg, &len) < 0)
        return 1;
    if (len != ADVERT)
        return say_wrong("rping: a message of %zu octets", len);
    *remote = (struct peer_remote){ .addr = get_be64(msg), .key = get_be32(msg + 8) };
    *size = get_be32(msg + 12);
    return 0;
}

static int make(struct peer *p, struct peer_region *r, size_t len, unsigned access)
{
    *r = (struct peer_region){ .mem = calloc(1, len), .len = len, .access = access };
    if (!r->mem)
        return say_wrong("no memory");
    return must(p, p->ops->reg(p, r), "registers a region");
}

int rping_client(struct peer *p, const struct options *opt)
{
    struct peer_region text, back;
    struct peer_remote ignored;
    size_t size;

    if (make(p, &text, TEXT, PEER_REMOTE_READ) < 0 || make(p, &back, TEXT, PEER_REMOTE_WRITE) < 0)
        return -1;
    for (unsigned i = 0; i < (opt->count ? opt->count : 10); i++) {
        /* rping writes back what strlen finds, with its end: text up to the last octet. */
        for (unsigned k = 0; k < TEXT - 1; k++)
            text.mem[k] = (uint8_t)('A' + (i + k) % 50);
        memset(back.mem, 0, TEXT);
        if (advertise(p, &text, TEXT) < 0 || advertised(p, &ignored, &size) != 0 || advertise(p, &back, TEXT) < 0 ||
            advertised(p, &ignored, &size) != 0)
            return say_wrong("rping: round %u", i);
        if (memcmp(text.mem, back.mem, TEXT) != 0)
            return say_wrong("rping: round %u: other octets came back", i);
    }
    return 0;
}

int rping_server(struct peer *p, const struct options *opt)
{
    struct peer_region text;
    unsigned i;

    if (make(p, &text, TEXT_MAX, 0) < 0)
        return -1;
    for (i = 0;; i++) {
        struct peer_remote remote;
        size_t size;
        int r = advertised(p, &remote, &size);

        if (r > 0)
            break;
        if (r < 0 || size > TEXT_MAX)
            return say_wrong("rping: a text of %zu octets", size);
        if (must(p, p->ops->read(p, &text, 0, size, remote), "reads") < 0 ||
            must(p, p->ops->flush(p), "waits for the Read Response") < 0 || advertise(p, &text, 0) < 0 ||
            advertised(p, &remote, &size) != 0 || must(p, p->ops->write(p, &text, 0, size, remote), "writes") < 0 ||
            advertise(p, &text, 0) < 0)
            return say_wrong("rping: round %u", i);
    }
    return i == (opt->count ? opt->count : 10) ? 0 : say_wrong("rping: %u rounds", i);
}
