/*
 * Encoding and decoding of the private data.
 */
#include "core/transport/verbs_private.h"

#include <string.h>

#include "core/base/bytes.h"

#define RING_MIN 4096u
#define RING_MAX 0x40000000u
#define MSG_MIN 64u
#define BUFS_MIN 3u

#define KEY_LEN 4u

static const uint8_t key[KEY_LEN] = { 'S', 'W', 'V', '2' };

void verbs_private_put(const struct verbs_side *side, uint64_t base, const uint8_t *token, uint8_t *buf)
{
    struct bytes_wr w = bytes_wr_init(buf + KEY_LEN + VERBS_TOKEN_LEN, VERBS_PRIVATE_LEN - KEY_LEN - VERBS_TOKEN_LEN);
    memcpy(buf, key, KEY_LEN);
    memset(buf + KEY_LEN, 0, VERBS_TOKEN_LEN);
    if (token != NULL)
        memcpy(buf + KEY_LEN, token, VERBS_TOKEN_LEN);
    bytes_wr_be64(&w, base);
    bytes_wr_be32(&w, side->ring_stag);
    bytes_wr_be32(&w, side->ring_len);
    bytes_wr_be32(&w, side->fence_stag);
    bytes_wr_be32(&w, side->msg_max);
    bytes_wr_be16(&w, side->bufs);
}

const uint8_t *verbs_private_token(const void *buf, size_t len)
{
    const uint8_t *p = buf;
    return p != NULL && len >= VERBS_PRIVATE_LEN && memcmp(p, key, KEY_LEN) == 0 ? p + KEY_LEN : NULL;
}

bool verbs_private_take(const void *buf, size_t len, struct verbs_side *side, uint64_t *base)
{
    const uint8_t *token = verbs_private_token(buf, len);
    if (token == NULL)
        return false;
    struct bytes_rd r = bytes_rd_init(token + VERBS_TOKEN_LEN, VERBS_PRIVATE_LEN - KEY_LEN - VERBS_TOKEN_LEN);
    *base = bytes_rd_be64(&r);
    side->ring_stag = bytes_rd_be32(&r);
    side->ring_len = bytes_rd_be32(&r);
    side->fence_stag = bytes_rd_be32(&r);
    side->msg_max = bytes_rd_be32(&r);
    side->bufs = bytes_rd_be16(&r);
    return !r.bad && side->ring_len >= RING_MIN && side->ring_len <= RING_MAX && side->msg_max >= MSG_MIN &&
           side->bufs >= BUFS_MIN && *base + side->ring_len + VERBS_FENCE_LEN > *base;
}
