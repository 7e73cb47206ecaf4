/*
 * Fuzz target: a stream at rest, as a process that is not trusted may leave it for another one.
 *
 *   octet 0: 1 CRC, 2 markers, 4 initiator, 8 Immediate Data, 16 small staging
 *   then struct rest_rx, struct rest_tx, and octets: first what the two say they have, then what the peer sends
 *
 * What must hold: no crash; what does not check changes nothing; and whatever was loaded, the stream can be used: what
 * comes is taken in or refused, what is written goes out.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/mpa/startup.h"
#include "core/stream/rest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEND_MAX (STREAM_HDR_LEN + 4096u)
#define IN_CAP (2 * MPA_FPDU_MARKED_MAX)
#define OUT_CAP (MPA_FPDU_MAX + 512u)

static uint8_t in_buf[IN_CAP], out_buf[OUT_CAP], octets[3 * IN_CAP], kept[3 * IN_CAP];
static struct iwarp_ep ep;
static struct stream st, before;

static void must(int cond)
{
    if (!cond)
        abort();
}

static uint32_t random32(void *arg)
{
    (void)arg;
    return 7;
}

static void begin(uint8_t flags)
{
    const struct mpa_framing framing = { .crc = flags & 1, .markers = flags & 2 };
    const struct iwarp_cfg ic = {
        .initiator = flags & 4,
        .tx = framing,
        .rx = framing,
        .rtr = MPA_RTR_READ,
        .ird = 4,
        .ord = 4,
        .mulpdu = 1024,
        .send_max = SEND_MAX,
        .immediate = flags & 8,
        .in_buf = in_buf,
        .in_cap = flags & 16 ? MPA_FPDU_MARKED_MAX : IN_CAP,
        .out_buf = out_buf,
        .out_cap = OUT_CAP,
        .random32 = random32,
    };
    const struct stream_params params = {
        .version = 1,
        .flags = STREAM_FLAG_LLP | (flags & 8 ? STREAM_FLAG_IMMEDIATE : 0),
        .ring_stag = 0x11223344,
        .ring_len = 65536,
        .eager_max = 4096,
    };
    const struct stream_cfg sc = { .ep = &ep.base, .local = params, .peer = params };
    must(iwarp_init(&ep, &ic) == 0);
    ep.stags.region[0] = (struct ddp_region){
        .stag = params.ring_stag,
        .access = DDP_ACCESS_REMOTE_WRITE,
        .deferred = true,
        .len = params.ring_len,
    };
    must(stream_init(&st, &sc) == 0);
}

/* Copies the next len octets, or as many as there are and zeros. */
static void next(void *to, size_t len, const uint8_t **data, size_t *size)
{
    size_t n = len < *size ? len : *size;
    memset(to, 0, len);
    memcpy(to, *data, n);
    *data += n;
    *size -= n;
}

static void send_all(void)
{
    const struct iovec *iov;
    size_t len, n, rounds = 0;
    while ((n = iwarp_out(&ep, &iov, &len)) > 0 && rounds++ < 100) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < iov[i].iov_len; k++)
                sum += ((const uint8_t *)iov[i].iov_base)[k];
        iwarp_out_sent(&ep, len > 100 ? len - sum % 2 : len);
        if (iwarp_out(&ep, &iov, &len) == 0)
            stream_flushed(&st);
    }
    must(rounds < 100);
}

static void write_some(size_t n)
{
    struct iovec v = { octets, n };
    struct iov_iter it = iov_iter_init(&v, 1);
    ssize_t r = stream_write(&st, &it, n);
    must(r <= (ssize_t)n);
    stream_unpost(&st, iwarp_out_detach(&ep).frames);
    send_all();
}

static void read_all(void)
{
    struct iovec v = { octets, sizeof(octets) };
    struct iov_iter it = iov_iter_init(&v, 1);
    uint64_t avail = stream_avail(&st);
    must(stream_read(&st, &it, sizeof(octets)) == avail && stream_avail(&st) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rest_rx rx;
    struct rest_tx tx;
    uint8_t flags = size > 0 ? data[0] : 0;
    data += size > 0;
    size -= size > 0;
    begin(flags);
    next(&rx, sizeof(rx), &data, &size);
    next(&tx, sizeof(tx), &data, &size);
    size_t len = (size_t)rx.ready + rx.ep.part + rx.ep.raw;
    before = st;
    if (len <= sizeof(octets)) {
        next(octets, len, &data, &size);
        bool ok = rest_rx_load(&st, &ep, &rx, octets, len);
        must(ok ? stream_avail(&st) == rx.ready : memcmp(&before, &st, sizeof(st)) == 0);
    }
    if (tx.ep.queued <= sizeof(octets)) {
        next(octets, tx.ep.queued, &data, &size);
        before = st;
        must(rest_tx_load(&st, &ep, &tx, octets, tx.ep.queued) || memcmp(&before, &st, sizeof(st)) == 0);
    }
    for (int i = 0; i < 3; i++) {
        uint8_t *p;
        if (stream_poll(&st) < 0 && iwarp_state_now(&ep) == IWARP_FULL)
            iwarp_fail(&ep, (struct term_code){ TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_UNSPECIFIED });
        size_t room = iwarp_in_space(&ep, &p), n = room < size ? room : size;
        if (room == 0 && stream_pack(&st))
            continue;
        next(p, n, &data, &size);
        iwarp_in_fed(&ep, n);
        write_some(i == 1 ? 5000 : 100);
        if (rest_rx_save(&st, &ep, &rx, kept, sizeof(kept), &len))
            must(rest_rx_load(&st, &ep, &rx, kept, len) || len > IN_CAP / 2 || rx.total > UINT64_MAX / 8);
        if (i > 0)
            read_all();
    }
    return 0;
}
