/*
 * For the tests of the MPA startup: frames put together by hand, a usual configuration for each
 * role, and steps that assert what they do.
 */
#ifndef SW_TESTS_STARTUP_FRAMES_H
#define SW_TESTS_STARTUP_FRAMES_H

#include "core/mpa/startup.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/must.h"

enum { M = 0x80, C = 0x40, R = 0x20, S = 0x10 };
#define A_BIT 0x80000000u
#define B_BIT 0x40000000u
#define C_BIT 0x8000u
#define D_BIT 0x4000u
#define DEPTHS(ird, ord) ((uint32_t)(ird) << 16 | (ord))
#define FRAME_MAX (MPA_STARTUP_HDR_LEN + MPA_PRIVATE_MAX)

static const char request_key[] = "MPA ID Req Frame";
static const char reply_key[] = "MPA ID Rep Frame";

/* A frame octet by octet; pd_len is written as given, priv_len octets follow. */
static inline size_t frame(uint8_t *buf, const char *key, unsigned flags, unsigned rev, size_t pd_len, const void *priv,
                           size_t priv_len)
{
    memcpy(buf, key, 16);
    buf[16] = (uint8_t)flags;
    buf[17] = (uint8_t)rev;
    put_be16(buf + 18, (uint16_t)pd_len);
    if (priv_len)
        memcpy(buf + 20, priv, priv_len);
    return 20 + priv_len;
}

/* The enhanced form: the word, then text. */
static inline size_t frame2(uint8_t *buf, const char *key, unsigned flags, uint32_t word, const char *text)
{
    uint8_t priv[64];
    put_be32(priv, word);
    memcpy(priv + 4, text, strlen(text));
    return frame(buf, key, flags | S, 2, 4 + strlen(text), priv, 4 + strlen(text));
}

static inline struct mpa_startup_cfg config(bool responder)
{
    return (struct mpa_startup_cfg){
        .responder = responder,
        .rev = 2,
        .crc = true,
        .peer_to_peer = !responder,
        .rtr = MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ,
        .ird = 8,
        .ord = 6,
        .priv = responder ? NULL : "hello",
        .priv_len = responder ? 0 : 5,
    };
}

static inline void init(struct mpa_startup *s, const struct mpa_startup_cfg *cfg)
{
    cr_assert_eq(mpa_startup_init(s, cfg), 0);
}

/* The output, taken off in one piece. */
static inline size_t take(struct mpa_startup *s, uint8_t *buf)
{
    const uint8_t *p;
    size_t n = mpa_startup_output(s, &p);
    cr_assert_leq(n, FRAME_MAX);
    if (n > 0)
        memcpy(buf, p, n);
    mpa_startup_sent(s, n);
    return n;
}

/* An initiator whose Request is out. */
static inline void wait_reply(struct mpa_startup *s, const struct mpa_startup_cfg *cfg)
{
    uint8_t buf[FRAME_MAX];
    init(s, cfg);
    cr_assert_eq(s->state, MPA_ST_SEND_REQ);
    cr_assert_gt(take(s, buf), 0u);
    cr_assert_eq(s->state, MPA_ST_WAIT_REP);
}

static inline void feed(struct mpa_startup *s, const uint8_t *buf, size_t len)
{
    cr_assert_eq(mpa_startup_input(s, buf, len), (ssize_t)len);
}

/* The whole input fails with err, and so it does octet by octet, and no later. */
static inline void check_fails(const struct mpa_startup *from, const uint8_t *buf, size_t len, enum mpa_startup_err err)
{
    struct mpa_startup s = *from;
    cr_assert_eq(mpa_startup_input(&s, buf, len), -EPROTO);
    cr_assert_eq(s.state, MPA_ST_FAILED);
    cr_assert_eq(s.err, err, "%s, not %s", mpa_startup_err_name(s.err), mpa_startup_err_name(err));
    s = *from;
    ssize_t r = 0;
    for (size_t i = 0; i < len && r >= 0; i++)
        r = mpa_startup_input(&s, buf + i, 1);
    cr_assert_eq(r, -EPROTO);
    cr_assert_eq(s.err, err, "octet by octet: %s, not %s", mpa_startup_err_name(s.err), mpa_startup_err_name(err));
    /* It stays so: nothing more goes in or out. */
    const uint8_t *p;
    cr_assert_eq(mpa_startup_input(&s, buf, len), 0);
    cr_assert_eq(mpa_startup_output(&s, &p), 0u);
    cr_assert_eq(mpa_startup_need(&s), 0u);
    cr_assert_eq(mpa_startup_accept(&s, NULL, 0), -EINVAL);
    cr_assert_eq(mpa_startup_reject(&s, NULL, 0), -EINVAL);
}

static inline void check_request_fails(const uint8_t *buf, size_t len, enum mpa_startup_err err)
{
    struct mpa_startup s;
    struct mpa_startup_cfg cfg = config(true);
    init(&s, &cfg);
    check_fails(&s, buf, len, err);
}

static inline void check_reply_fails(const struct mpa_startup_cfg *cfg, const uint8_t *buf, size_t len,
                                     enum mpa_startup_err err)
{
    struct mpa_startup s;
    wait_reply(&s, cfg);
    check_fails(&s, buf, len, err);
}

#endif
