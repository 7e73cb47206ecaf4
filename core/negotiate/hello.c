/*
 * Hello frames: encode, decode, and the search for an answer behind streamed octets. The streaming-mode exchange before
 * MPA that RFC 5044 section 7.1.3 (delayed startup) leaves to the ULP.
 *
 * These are the first octets of a connection, before the receive path exists. The other end may not run sockwarp at
 * all, so each octet is judged as soon as it arrives.
 */
#include "core/negotiate/hello.h"

#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"

enum {
    OFF_VERSION = 16,
    OFF_FLAGS = 17,
    OFF_TOTAL = 18,
    OFF_ARG = 20,
    OFF_NONCE = 24,
    OFF_STREAMED = 40,
    OFF_HOST = 48,
    OFF_CRC = 60,
};

static const uint8_t keys[][HELLO_KEY_LEN] = {
    [HELLO_HELO] = { 0xf5, 's', 'o', 'c', 'k', 'w', 'a', 'r', 'p', '\r', '\n', 0, 'H', 'E', 'L', 'O' },
    [HELLO_HACK] = { 0xf5, 's', 'o', 'c', 'k', 'w', 'a', 'r', 'p', '\r', '\n', 0, 'H', 'A', 'C', 'K' },
    [HELLO_HNAK] = { 0xf5, 's', 'o', 'c', 'k', 'w', 'a', 'r', 'p', '\r', '\n', 0, 'H', 'N', 'A', 'K' },
    [HELLO_HWDR] = { 0xf5, 's', 'o', 'c', 'k', 'w', 'a', 'r', 'p', '\r', '\n', 0, 'H', 'W', 'D', 'R' },
    [HELLO_HSWI] = { 0xf5, 's', 'o', 'c', 'k', 'w', 'a', 'r', 'p', '\r', '\n', 0, 'H', 'S', 'W', 'I' },
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The CRC of a whole frame, computed as if its CRC field were zero. */
static uint32_t frame_crc(const uint8_t *buf, size_t len)
{
    static const uint8_t zero[4];
    uint32_t state = crc32c_update(CRC32C_INIT, buf, OFF_CRC);
    state = crc32c_update(state, zero, sizeof(zero));
    return crc32c_final(crc32c_update(state, buf + HELLO_LEN, len - HELLO_LEN));
}

ssize_t hello_encode(const struct hello *h, uint8_t *buf, size_t cap)
{
    if (h->tlv_len > HELLO_LEN_MAX - HELLO_LEN || HELLO_LEN + h->tlv_len > cap)
        return -EMSGSIZE;
    size_t total = HELLO_LEN + h->tlv_len;
    memset(buf, 0, HELLO_LEN);
    memcpy(buf, keys[h->kind], HELLO_KEY_LEN);
    buf[OFF_VERSION] = HELLO_VERSION;
    buf[OFF_FLAGS] = h->flags;
    put_be16(buf + OFF_TOTAL, (uint16_t)total);
    put_be32(buf + OFF_ARG, h->arg);
    memcpy(buf + OFF_NONCE, h->nonce, HELLO_NONCE_LEN);
    put_be64(buf + OFF_STREAMED, h->kind == HELLO_HELO ? 0 : h->streamed);
    put_be64(buf + OFF_HOST, h->host);
    if (h->tlv_len > 0)
        memcpy(buf + HELLO_LEN, h->tlv, h->tlv_len);
    put_be32(buf + OFF_CRC, frame_crc(buf, total));
    return (ssize_t)total;
}

/* May the len octets be the beginning of this kind's key? */
static bool key_matches(enum hello_kind kind, const uint8_t *buf, size_t len)
{
    return memcmp(buf, keys[kind], min_size(len, HELLO_KEY_LEN)) == 0;
}

/* May the first len octets of the fixed part be those of this kind? 0, -EPROTO. */
static int check_prefix(const uint8_t *buf, size_t len)
{
    bool any_version =
        key_matches(HELLO_HELO, buf, len) || key_matches(HELLO_HNAK, buf, len) || key_matches(HELLO_HWDR, buf, len);
    if (!any_version && !key_matches(HELLO_HACK, buf, len) && !key_matches(HELLO_HSWI, buf, len))
        return -EPROTO;
    if (len > OFF_VERSION && buf[OFF_VERSION] != HELLO_VERSION && !any_version)
        return -EPROTO;
    if (len == OFF_TOTAL + 1 && buf[OFF_TOTAL] > HELLO_LEN_MAX >> 8)
        return -EPROTO;
    if (len >= OFF_TOTAL + 2) {
        size_t total = get_be16(buf + OFF_TOTAL);
        if (total < HELLO_LEN || total > HELLO_LEN_MAX)
            return -EPROTO;
    }
    return 0;
}

static enum hello_kind kind_of(const uint8_t *buf)
{
    enum hello_kind kind = HELLO_HELO;
    while (!key_matches(kind, buf, HELLO_KEY_LEN)) /* check_prefix has seen to it that it is one of them */
        kind++;
    return kind;
}

ssize_t hello_decode(const uint8_t *buf, size_t len, struct hello *out)
{
    if (len == 0)
        return -EAGAIN;
    if (check_prefix(buf, len) < 0)
        return -EPROTO;
    if (len < HELLO_LEN)
        return -EAGAIN;
    size_t total = get_be16(buf + OFF_TOTAL);
    if (len < total)
        return -EAGAIN;
    if (frame_crc(buf, total) != get_be32(buf + OFF_CRC))
        return -EPROTO;
    out->kind = kind_of(buf);
    out->version = buf[OFF_VERSION];
    out->flags = buf[OFF_FLAGS];
    out->arg = get_be32(buf + OFF_ARG);
    memcpy(out->nonce, buf + OFF_NONCE, HELLO_NONCE_LEN);
    out->streamed = get_be64(buf + OFF_STREAMED);
    out->host = get_be64(buf + OFF_HOST);
    out->tlv = buf + HELLO_LEN;
    out->tlv_len = total - HELLO_LEN;
    return (ssize_t)total;
}

/* May this be the octet at `at` of an HSWI? For octets before OFF_STREAMED. */
static bool may_be_switch_at(size_t at, uint8_t octet, const uint8_t *nonce)
{
    if (at < HELLO_KEY_LEN)
        return octet == keys[HELLO_HSWI][at];
    if (at >= OFF_NONCE)
        return octet == nonce[at - OFF_NONCE];
    return octet == (at == OFF_VERSION ? HELLO_VERSION : at == OFF_TOTAL + 1 ? HELLO_LEN : 0);
}

/*
 * May the len octets at a position be the beginning of one of the two kinds that are looked for? It is stricter than
 * hello_decode, so that an echoed HELO, another connection's answer or a coincidence keeps back as little as can be.
 */
static bool may_be(const enum hello_kind kinds[2], const uint8_t *buf, size_t len, uint64_t at, const uint8_t *nonce)
{
    if (!key_matches(kinds[0], buf, len) && !key_matches(kinds[1], buf, len))
        return false;
    if (check_prefix(buf, len) < 0)
        return false;
    for (size_t i = 0; kinds[0] == HELLO_HSWI && i < min_size(len, OFF_STREAMED); i++)
        if (!may_be_switch_at(i, buf[i], nonce))
            return false;
    if (len > OFF_NONCE && memcmp(buf + OFF_NONCE, nonce, min_size(len - OFF_NONCE, HELLO_NONCE_LEN)) != 0)
        return false;
    uint8_t streamed[8];
    put_be64(streamed, at);
    return len <= OFF_STREAMED ||
           memcmp(buf + OFF_STREAMED, streamed, min_size(len - OFF_STREAMED, sizeof(streamed))) == 0;
}

static ssize_t find(const enum hello_kind kinds[2], const uint8_t *buf, size_t len, uint64_t base, const uint8_t *nonce,
                    struct hello *out, size_t *frame_len, size_t *safe)
{
    for (size_t pos = 0; pos < len; pos++) {
        const uint8_t *p = memchr(buf + pos, keys[HELLO_HACK][0], len - pos);
        if (!p)
            break;
        pos = (size_t)(p - buf);
        if (!may_be(kinds, p, len - pos, base + pos, nonce))
            continue;
        ssize_t r = hello_decode(p, len - pos, out);
        if (r > 0) {
            *frame_len = (size_t)r;
            return (ssize_t)pos;
        }
        if (r == -EAGAIN) {
            *safe = pos;
            return -EAGAIN;
        }
    }
    *safe = len;
    return -EAGAIN;
}

ssize_t hello_find(const uint8_t *buf, size_t len, uint64_t base, const uint8_t nonce[HELLO_NONCE_LEN],
                   struct hello *out, size_t *frame_len, size_t *safe)
{
    static const enum hello_kind answers[2] = { HELLO_HACK, HELLO_HNAK };
    return find(answers, buf, len, base, nonce, out, frame_len, safe);
}

ssize_t hello_find_switch(const uint8_t *buf, size_t len, uint64_t base, const uint8_t nonce[HELLO_NONCE_LEN],
                          struct hello *out, size_t *frame_len, size_t *safe)
{
    static const enum hello_kind switches[2] = { HELLO_HSWI, HELLO_HSWI };
    return find(switches, buf, len, base, nonce, out, frame_len, safe);
}

/* The first TLV whose type is from..to. */
static const uint8_t *tlv_among(const struct hello *h, uint16_t from, uint16_t to, size_t *len)
{
    struct bytes_rd r = bytes_rd_init(h->tlv, h->tlv_len);
    while (bytes_rd_left(&r) > 0) {
        uint16_t t = bytes_rd_be16(&r);
        size_t l = bytes_rd_be16(&r);
        const uint8_t *value = bytes_rd_take(&r, l);
        if (r.bad)
            return NULL;
        if (t >= from && t <= to) {
            *len = l;
            return value;
        }
    }
    return NULL;
}

const uint8_t *hello_tlv_find(const struct hello *h, uint16_t type, size_t *len)
{
    return tlv_among(h, type, type, len);
}

bool hello_is_understood(const struct hello *h)
{
    size_t len;
    return h->version == HELLO_VERSION && tlv_among(h, HELLO_TLV_CRITICAL, UINT16_MAX, &len) == NULL;
}
