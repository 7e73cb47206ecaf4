/* RNICs of the RDMA Consortium's form; see rnic.h. */
#include "tests/unit/rnic.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"

enum { FLAG_M = 0x80, FLAG_C = 0x40 };
enum { EVERY = 512, DDP_LEN = 18 };

struct rnic rnic_new(bool permissive, bool markers)
{
    return (struct rnic){ .permissive = permissive, .markers = markers, .tx_msn = 1, .rx_msn = 1 };
}

static void put_frame(uint8_t *buf, const char *key, bool m, uint8_t rev)
{
    memcpy(buf, key, 16);
    buf[16] = (uint8_t)((m ? FLAG_M : 0) | FLAG_C);
    buf[17] = rev;
    put_be16(buf + 18, 0);
}

static void agree(struct rnic *r, uint8_t version, bool rx_markers, bool tx_markers)
{
    r->version = version;
    r->rx_markers = rx_markers;
    r->tx_markers = tx_markers;
}

/* Figure 14: "RDMAC 0 0 1 1"; a permissive one begins with Rev 1 (C.2.5). */
void rnic_request(struct rnic *r, uint8_t buf[RNIC_FRAME_LEN])
{
    put_frame(buf, "MPA ID Req Frame", r->permissive ? r->markers : true, r->permissive ? 1 : 0);
}

static bool is_frame(const uint8_t *buf, size_t len, const char *key)
{
    return len >= RNIC_FRAME_LEN && memcmp(buf, key, 16) == 0 && buf[17] <= 1;
}

bool rnic_hear_request(struct rnic *r, const uint8_t *buf, size_t len, uint8_t reply[RNIC_FRAME_LEN])
{
    if (!is_frame(buf, len, "MPA ID Req Frame"))
        return false;
    bool old = !r->permissive || buf[17] == 0;
    bool mine = old || r->markers;

    put_frame(reply, "MPA ID Rep Frame", mine, old ? 0 : 1);
    agree(r, old ? 0 : 1, mine, old || (buf[16] & FLAG_M));
    /* C.2.2: an RDMAC RNIC answers Rev 1 as it can; the other end is the one that closes, or adapts. */
    return true;
}

bool rnic_hear_reply(struct rnic *r, const uint8_t *buf, size_t len)
{
    if (!is_frame(buf, len, "MPA ID Rep Frame") || (!r->permissive && buf[17] != 0))
        return false;
    bool old = buf[17] == 0;

    agree(r, old ? 0 : 1, old || r->markers, old || (buf[16] & FLAG_M));
    return true;
}

/* Where the next Marker's FPDUPTR counts from, for an FPDU that begins at pos. */
static uint64_t start_of(const struct rnic *r, uint64_t pos, bool markers)
{
    return r->version == 0 || !markers || pos % EVERY != 0 ? pos : pos + 4;
}

size_t rnic_send(struct rnic *r, const void *data, size_t len, uint8_t *out)
{
    uint8_t head[2 + DDP_LEN] = { 0 };
    size_t body = sizeof(head) + len, padded = (body + 3) & ~(size_t)3, n = 0;
    uint64_t pos = r->tx_pos, start = start_of(r, pos, r->tx_markers);

    put_be16(head, (uint16_t)(DDP_LEN + len));
    head[2] = (uint8_t)(0x40 | r->version);
    head[3] = (uint8_t)(r->version << 6 | 3); /* Send */
    put_be32(head + 12, r->tx_msn++);
    for (size_t i = 0; i < padded; i += 4) { /* all is in words of four octets, Markers as well */
        if (r->tx_markers && (r->tx_pos + n) % EVERY == 0) {
            put_be16(out + n, 0);
            put_be16(out + n + 2, (uint16_t)(i == 0 ? 0 : pos + n - start));
            n += 4;
        }
        for (size_t j = i; j < i + 4; j++)
            out[n++] = j < sizeof(head) ? head[j] : j < body ? ((const uint8_t *)data)[j - sizeof(head)] : 0;
    }
    if (r->tx_markers && (r->tx_pos + n) % EVERY == 0) {
        put_be16(out + n, 0);
        put_be16(out + n + 2, (uint16_t)(pos + n - start));
        n += 4;
    }
    put_le32(out + n, crc32c_final(crc32c_update(CRC32C_INIT, out, n)));
    n += 4;
    r->tx_pos += n;
    return n;
}

ssize_t rnic_recv(struct rnic *r, const uint8_t *buf, size_t len, uint8_t *data)
{
    uint8_t words[4096];
    size_t n = 0;
    uint64_t start = start_of(r, r->rx_pos, r->rx_markers);

    if (len < 2 + DDP_LEN + 4 || len % 4 != 0 || len > sizeof(words))
        return -1;
    if (get_le32(buf + len - 4) != crc32c_final(crc32c_update(CRC32C_INIT, buf, len - 4)))
        return -1;
    for (size_t i = 0; i < len - 4; i += 4) {
        if (r->rx_markers && (r->rx_pos + i) % EVERY == 0) {
            if (get_be16(buf + i + 2) != (n == 0 ? 0 : r->rx_pos + i - start))
                return -1;
        } else {
            memcpy(words + n, buf + i, 4);
            n += 4;
        }
    }
    size_t ulpdu = n < 4 ? 0 : get_be16(words);
    if (ulpdu < DDP_LEN || ((2 + ulpdu + 3) & ~(size_t)3) != n || words[2] != (0x40 | r->version) ||
        words[3] != (r->version << 6 | 3) || get_be32(words + 8) != 0 || get_be32(words + 12) != r->rx_msn++)
        return -1;
    memcpy(data, words + 2 + DDP_LEN, ulpdu - DDP_LEN);
    r->rx_pos += len;
    return (ssize_t)(ulpdu - DDP_LEN);
}
