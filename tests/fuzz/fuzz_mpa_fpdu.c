/*
 * Fuzz target: FPDU framing (RFC 5044 section 4). The first octet picks CRC, markers (two more octets
 * say then where the stream stands, just before 2^32) and how the rest is turned into FPDUs: taken
 * as it is, or as ULPDUs to be sent. What must hold: a frame is never larger than what is there;
 * `need` is reachable and true; how the octets are cut into pieces changes nothing; what was sent
 * is received.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "core/mpa/fpdu.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where in the stream the next FPDU starts. */
static uint64_t pos;

static void must(int cond)
{
    if (!cond)
        abort();
}

/* In a block that ends with the octets, so that a read beyond them is seen. */
static ssize_t decode(const struct mpa_framing *framing, const uint8_t *data, size_t len, size_t *ulpdu_len,
                      size_t *need)
{
    uint8_t *buf = malloc(len ? len : 1);
    struct mpa_fpdu f = { .ulpdu = NULL, .ulpdu_len = SIZE_MAX };
    must(buf != NULL);
    if (len > 0)
        memcpy(buf, data, len);
    *need = 0;
    ssize_t r = mpa_fpdu_decode(framing, pos, buf, len, &f, need);
    must(len == 0 || (r > 0 && framing->markers) || memcmp(buf, data, len) == 0);
    must(len < 6 || mpa_fpdu_expect(framing, pos, data, len) >= MPA_FPDU_MIN);
    if (r > 0) {
        must((size_t)r <= len && r % 4 == 0);
        must(f.ulpdu >= buf + MPA_HDR_LEN && f.ulpdu + f.ulpdu_len + MPA_CRC_LEN <= buf + r);
        must((size_t)r == mpa_fpdu_wire_len(framing, pos, f.ulpdu_len));
        uint8_t *look = malloc(f.ulpdu_len ? f.ulpdu_len : 1);
        size_t said;
        must(look != NULL);
        must(mpa_fpdu_look(framing, pos, data, len, 0, look, f.ulpdu_len, &said) == said);
        must(said == f.ulpdu_len && memcmp(look, f.ulpdu, said) == 0);
        free(look);
        *ulpdu_len = f.ulpdu_len;
    } else {
        must(f.ulpdu == NULL && f.ulpdu_len == SIZE_MAX);
        must(r == -EAGAIN ? *need > len && *need <= MPA_FPDU_MARKED_MAX : r == -EBADMSG || r == -EILSEQ);
        must(r != -EBADMSG || framing->crc);
        must(r != -EILSEQ || framing->markers);
    }
    free(buf);
    return r;
}

static void receive(const struct mpa_framing *framing, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t ulpdu_len = 0, need, other;
        ssize_t r = decode(framing, data, size, &ulpdu_len, &need);
        if (r == -EAGAIN) {
            /* One octet less asks for no more. */
            size_t before;
            must(decode(framing, data, size - 1, &other, &before) == -EAGAIN && before <= need);
            return;
        }
        /* The same verdict from exactly its octets, and none from fewer. */
        size_t len = mpa_fpdu_expect(framing, pos, data, size);
        must(decode(framing, data, len, &other, &need) == r);
        must(decode(framing, data, len - 1, &other, &need) == -EAGAIN && need == len);
        if (r < 0)
            return;
        must(ulpdu_len == other && (size_t)r == len);
        data += r;
        pos += (uint64_t)r;
        size -= (size_t)r;
    }
}

/* The octets as one ULPDU, in two pieces as a header and payload would be. */
static void send_and_receive(const struct mpa_framing *framing, const uint8_t *data, size_t size)
{
    size_t len = size < MPA_ULPDU_MAX ? size : MPA_ULPDU_MAX, got = 0, need;
    uint8_t *fpdu = malloc(mpa_fpdu_len(len));
    must(fpdu != NULL);
    uint32_t state = mpa_fpdu_begin(fpdu, len);
    state = crc32c_update(state, data, len / 3);
    state = crc32c_update(state, data + len / 3, len - len / 3);
    memcpy(fpdu + MPA_HDR_LEN, data, len);
    size_t total = MPA_HDR_LEN + len;
    total += mpa_fpdu_end(framing, fpdu + total, len, state);
    must(total == mpa_fpdu_len(len));
    must(decode(framing, fpdu, total, &got, &need) == (ssize_t)total && got == len);
    if (framing->crc && size > 0) {
        fpdu[data[0] % (total - MPA_HDR_LEN) + MPA_HDR_LEN] ^= (uint8_t)(data[size - 1] | 1);
        must(decode(framing, fpdu, total, &got, &need) == -EBADMSG);
    }
    free(fpdu);
}

/* The same with markers, and the FPDU as long as announced. */
static void send_and_receive_marked(const struct mpa_framing *framing, const uint8_t *data, size_t size)
{
    size_t len = size < MPA_MULPDU_MAX ? size : MPA_MULPDU_MAX, got = 0, need, n;
    size_t want = mpa_fpdu_wire_len(framing, pos, len);
    uint8_t *fpdu = malloc(want);
    struct mpa_marked m;
    must(fpdu != NULL);
    n = mpa_marked_begin(&m, framing, pos, fpdu, len);
    n += mpa_marked_put(&m, fpdu + n, data, len / 3);
    n += mpa_marked_put(&m, fpdu + n, data + len / 3, len - len / 3);
    n += mpa_marked_end(&m, fpdu + n);
    must(n == want);
    must(decode(framing, fpdu, n, &got, &need) == (ssize_t)n && got == len);
    struct mpa_fpdu f;
    must(mpa_fpdu_decode(framing, pos, fpdu, n, &f, &need) == (ssize_t)n);
    must(memcmp(f.ulpdu, data, len) == 0);
    free(fpdu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    struct mpa_framing framing = { .crc = (data[0] & 1) != 0, .markers = (data[0] & 4) != 0 };
    bool send = (data[0] & 2) != 0;
    data++;
    size--;
    pos = 0;
    if (framing.markers) {
        pos = 0xffff0000u + (((uint64_t)data[0] << 8 | data[1]) & ~3ull);
        data += 2;
        size -= 2;
    }
    if (!send)
        receive(&framing, data, size);
    else if (framing.markers)
        send_and_receive_marked(&framing, data, size);
    else
        send_and_receive(&framing, data, size);
    return 0;
}
