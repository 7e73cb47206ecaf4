/*
 * Fuzz target: Hello frames and the search for an answer. The first octet chooses whether the CRC
 * is made good (else hardly anything gets past it) and at what streamed offset the octets stand.
 * What must hold: a prefix of a frame never is an error; a frame comes out as it was put in; the
 * search finds what a search position by position finds and gives away no octet of it.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "core/negotiate/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t nonce[HELLO_NONCE_LEN] = { 'n', 'o', 'n', 'c', 'e' };

static void must(int cond)
{
    if (!cond)
        abort();
}

static void set_crc(uint8_t *buf, size_t total)
{
    memset(buf + 60, 0, 4);
    put_be32(buf + 60, crc32c_final(crc32c_update(CRC32C_INIT, buf, total)));
}

/* Good CRCs for whatever looks like a frame, wherever it stands. */
static void mend(uint8_t *buf, size_t len)
{
    for (size_t i = 0; i + HELLO_LEN <= len; i++) {
        size_t total = get_be16(buf + i + 18);
        if (buf[i] == 0xf5 && total >= HELLO_LEN && total <= len - i && total <= HELLO_LEN_MAX)
            set_crc(buf + i, total);
    }
}

static void check_decoded(const uint8_t *buf, size_t len, const struct hello *h)
{
    must(len >= HELLO_LEN && len <= HELLO_LEN_MAX);
    must(h->tlv == buf + HELLO_LEN && h->tlv_len == len - HELLO_LEN);
    for (size_t cut = 0; cut < len; cut++) {
        struct hello part;
        must(hello_decode(buf, cut, &part) == -EAGAIN);
    }
    for (uint16_t type = 0; type < 4; type++) {
        size_t l = 0;
        const uint8_t *v = hello_tlv_find(h, type, &l);
        must(v == NULL || (v >= h->tlv + 4 && v + l <= h->tlv + h->tlv_len));
    }
    /* Encoded again it is the same, but for what is not kept: reserved octets and a HELO's offset. */
    uint8_t again[HELLO_LEN_MAX];
    struct hello back;
    must(hello_encode(h, again, sizeof(again)) == (ssize_t)len);
    must(hello_decode(again, len, &back) == (ssize_t)len);
    must(back.kind == h->kind && back.flags == h->flags && back.arg == h->arg && back.host == h->host);
    must(back.streamed == (h->kind == HELLO_HELO ? 0 : h->streamed));
    must(back.version == HELLO_VERSION && again[16] == HELLO_VERSION);
    again[16] = buf[16];
    must(memcmp(again, buf, 40) == 0 && memcmp(again + HELLO_LEN, h->tlv, h->tlv_len) == 0);
}

/* What hello_find has to say, the slow way. */
static ssize_t find_slowly(const uint8_t *buf, size_t len, uint64_t base)
{
    for (size_t i = 0; i < len; i++) {
        struct hello h;
        bool answers = hello_decode(buf + i, len - i, &h) > 0 && (h.kind == HELLO_HACK || h.kind == HELLO_HNAK);
        if (answers && h.streamed == base + i && memcmp(h.nonce, nonce, sizeof(nonce)) == 0)
            return (ssize_t)i;
    }
    return -EAGAIN;
}

static void check_find(const uint8_t *buf, size_t len, uint64_t base)
{
    struct hello h;
    size_t frame_len = 0, safe = SIZE_MAX;
    ssize_t at = hello_find(buf, len, base, nonce, &h, &frame_len, &safe);
    ssize_t slow = find_slowly(buf, len, base);
    if (at < 0) {
        must(at == -EAGAIN && safe <= len);
        /* One behind an unfinished one has to wait for it; none is given away. */
        must(slow < 0 || (size_t)slow > safe);
        return;
    }
    must(at == slow && frame_len <= len - (size_t)at && safe == SIZE_MAX);
    /* Octet by octet: never is more declared safe than what stands before it. */
    for (size_t cut = 0; cut < (size_t)at + frame_len; cut++) {
        must(hello_find(buf, cut, base, nonce, &h, &frame_len, &safe) == -EAGAIN);
        must(safe <= (size_t)at && safe <= cut);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hello h;
    if (size < 1 || size > 4096)
        return 0;
    size_t len = size - 1;
    uint8_t *buf = malloc(len ? len : 1);
    must(buf != NULL);
    memcpy(buf, data + 1, len);
    if (data[0] & 1)
        mend(buf, len);
    ssize_t r = hello_decode(buf, len, &h);
    must(r == -EAGAIN || r == -EPROTO || (r > 0 && (size_t)r <= len));
    if (r > 0)
        check_decoded(buf, (size_t)r, &h);
    check_find(buf, len, data[0] >> 1);
    free(buf);
    return 0;
}
