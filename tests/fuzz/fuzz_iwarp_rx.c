/*
 * Fuzz target: octets into a receiver.
 *
 *   octet 0: 1 initiator, 2 CRC in use, 4 no room to put segments together, 8 two Reads outstanding,
 *            16 events are held, 32 IRD 1, 64 an RTR was agreed, 128 Immediate Data was, and there
 *            are regions of the domain, of this stream and of another one
 *   octet 1: how the rest is cut
 *
 * What must hold: no crash; nothing outside the regions, and nothing in a region without the right,
 * ever changes; event data lies in the endpoint's buffers; after an error no event comes; what goes
 * out are whole FPDUs with at most one Terminate, the last.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/frame_build.h"
#include "tests/unit/iwarp_pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GUARD 32u
#define REGION 512u

#define SEND_MAX 2048u

static uint8_t in_buf[MPA_FPDU_MAX + MPA_HDR_LEN + SEND_MAX], out_buf[SIDE_OUT_CAP];
static uint8_t memory[4][GUARD + REGION + GUARD]; /* write, read, sink, read and write */
static const uint8_t access_of[4] = {
    DDP_ACCESS_REMOTE_WRITE,
    DDP_ACCESS_REMOTE_READ,
    DDP_ACCESS_LOCAL_SINK,
    DDP_ACCESS_REMOTE_READ | DDP_ACCESS_REMOTE_WRITE,
};
static struct side s;
static bool terminated;
static struct ddp_stags shared;
static uint8_t domain[3][REGION];
static uint32_t domain_stag[3];

static void must(int cond)
{
    if (!cond)
        abort();
}

/* STags that a corpus can know: 0x101, 0x102 ... */
static uint32_t counter(void *arg)
{
    return ++*(uint32_t *)arg;
}

static void check_memory(bool reads)
{
    for (int i = 0; i < 4; i++) {
        bool may_change = access_of[i] & DDP_ACCESS_REMOTE_WRITE || (reads && access_of[i] & DDP_ACCESS_LOCAL_SINK);

        for (size_t k = 0; k < sizeof(memory[i]); k++)
            if (k < GUARD || k >= GUARD + REGION || !may_change)
                must(memory[i][k] == 0xa0 + i);
    }
}

static void check_event(const struct endpoint_event *ev)
{
    switch (ev->type) {
    case ENDPOINT_TERMINATED:
        must(iwarp_state_now(&s.ep) == IWARP_TERMINATED);
        break;
    case ENDPOINT_IMMEDIATE:
        must(s.ep.cfg.immediate && ev->len == 8);
        must(ev->data > in_buf && ev->data + ev->len < in_buf + sizeof(in_buf));
        break;
    case ENDPOINT_WRITE:
        must(ev->len > 0 && ev->to + ev->len <= 4096);
        must(ev->data > in_buf && ev->data + ev->len < in_buf + sizeof(in_buf));
        break;
    default:
        must(ev->type == ENDPOINT_SEND && ev->len <= SEND_MAX);
        must(ev->data > in_buf && ev->data + ev->len < in_buf + sizeof(in_buf));
    }
}

static void drain(void)
{
    static uint8_t out[1 << 20];
    const struct iovec *iov;
    size_t n, len;

    while ((n = iwarp_out(&s.ep, &iov, &len)) > 0) {
        size_t at = 0, end = 0;

        must(len <= sizeof(out));
        for (size_t i = 0; i < n; end += iov[i].iov_len, i++)
            memcpy(out + end, iov[i].iov_base, iov[i].iov_len);
        must(end == len);
        for (; at < end; at += (2 + fb_get(out + at, 2) + 3) / 4 * 4 + 4) {
            must(!terminated);
            must(fb_check(out + at, end - at) >= 14);
            terminated = (out[at + 3] & 0x0f) == RDMAP_TERMINATE;
        }
        iwarp_out_sent(&s.ep, len);
    }
}

static void poll_all(bool hold, bool reads)
{
    struct endpoint_event ev;
    int r;

    while ((r = iwarp_poll(&s.ep.base, &ev)) == 1) {
        check_event(&ev);
        if (ev.type != ENDPOINT_TERMINATED && (!hold || ev.len % 3))
            iwarp_release(&s.ep.base, ev.data + ev.len);
        check_memory(reads);
    }
    must(r == 0 || r == -EPROTO);
    must((r == -EPROTO) == (iwarp_state_now(&s.ep) >= IWARP_TERMINATING));
    if (r == -EPROTO)
        must(iwarp_poll(&s.ep.base, &ev) == -EPROTO);
    check_memory(reads);
}

static void setup(uint8_t flags)
{
    uint32_t stags = 0x100;
    struct iwarp_cfg c = {
        .initiator = flags & 1,
        .tx = { .crc = true },
        .rx = { .crc = (flags & 2) != 0 },
        .rtr = flags & 64 ? MPA_RTR_SEND : 0,
        .ird = flags & 32 ? 1 : 4,
        .ord = 2,
        .mulpdu = 256,
        .send_max = SEND_MAX,
        .in_buf = in_buf,
        .in_cap = flags & 4 ? MPA_FPDU_MAX : sizeof(in_buf),
        .out_buf = out_buf,
        .out_cap = sizeof(out_buf),
        .immediate = (flags & 128) != 0,
        .who = { .pd = 0, .id = 9 },
        .shared = flags & 128 ? &shared : NULL,
        .random32 = counter,
        .random_arg = &stags,
    };
    struct ddp_region ring = { .access = DDP_ACCESS_REMOTE_WRITE, .deferred = true, .len = 4096 };

    must(iwarp_init(&s.ep, &c) == 0);
    terminated = false;
    for (int i = 0; i < 4; i++) {
        struct ddp_region r = { .access = access_of[i], .to = 0x1000, .len = REGION, .base = memory[i] + GUARD };

        memset(memory[i], 0xa0 + i, sizeof(memory[i]));
        must(ddp_stags_add(&s.ep.stags, &r, counter, &stags) == 0);
    }
    must(ddp_stags_add(&s.ep.stags, &ring, counter, &stags) == 0);
    ddp_stags_init(&shared);
    for (int i = 0; i < 3; i++) {
        struct ddp_region r = {
            .of = { .pd = 0,
                    .id = i == 0   ? 0
                          : i == 1 ? 9
                                   : 8 },
            .access = DDP_ACCESS_REMOTE_WRITE | DDP_ACCESS_REMOTE_READ,
            .to = 0x1000,
            .len = REGION,
            .base = domain[i],
        };

        memset(domain[i], 0xb0 + i, sizeof(domain[i]));
        must(ddp_stags_add(&shared, &r, counter, &stags) == 0);
        domain_stag[i] = r.stag;
    }
}

/* Another stream's memory stays as it is, and what is shared cannot be invalidated. */
static void check_domain(void)
{
    for (size_t i = 0; i < REGION; i++)
        must(domain[2][i] == 0xb2);
    must(ddp_stags_find(&shared, domain_stag[0]) && ddp_stags_find(&shared, domain_stag[2]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t cuts;
    bool reads;

    if (size < 2)
        return 0;
    setup(data[0]);
    reads = (data[0] & 9) == 9;
    for (uint32_t i = 0; reads && i < 2; i++) {
        struct rdmap_read rd = { .sink_stag = 0x103, .sink_to = 0x1000 + 100 * i, .len = 100, .src_stag = 7 };

        must(iwarp_post_read(&s.ep, &rd) == 0);
    }
    cuts = data[1] + 1u;
    for (size_t at = 2; at < size;) {
        size_t n = data[1] == 0 ? size - at : 1 + prng32(&cuts) % (data[1] * 2u), room;
        uint8_t *to;

        if (n > size - at)
            n = size - at;
        room = iwarp_in_space(&s.ep, &to);
        must(to >= in_buf && to + room <= in_buf + sizeof(in_buf));
        if (n > room)
            n = room;
        if (n == 0)
            break; /* dead, or all is held */
        memcpy(to, data + at, n);
        iwarp_in_fed(&s.ep, n);
        at += n;
        poll_all(data[0] & 16, reads);
        must(iwarp_in_need(&s.ep) <= MPA_FPDU_MAX);
        drain();
    }
    check_domain();
    must(iwarp_in_end(&s.ep) == iwarp_in_eof(&s.ep));
    return 0;
}
