/*
 * The test vectors of sockwarp-protocol(7), against what the library sends and what it makes of them. They were made by
 * tests/lib/wire.py, which shares nothing with it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reason.h"
#include "core/negotiate/negotiate.h"

#include "tests/unit/negotiate_pair.h"
#include "tests/unit/stream_pair.h"

#define PAGE_MAX (1u << 20)
#define INITIATOR_STAG 0x01020304u
#define RESPONDER_STAG 0xa1a2a3a4u

static const uint8_t first_nonce[HELLO_NONCE_LEN] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

/* The page's octets of that name. */
static size_t vector(const char *name, uint8_t *buf, size_t cap)
{
    static char page[PAGE_MAX];
    char path[4096], head[64];
    const char *dir = getenv("SW_SRCDIR");
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/man/sockwarp-protocol.7", dir != NULL ? dir : "..");
    FILE *f = fopen(path, "re");
    cr_assert_not_null(f, "%s", path);
    page[fread(page, 1, sizeof(page) - 1, f)] = 0;
    fclose(f);
    snprintf(head, sizeof(head), "\n.It Cm %s\n", name);
    const char *p = strstr(page, head);
    cr_assert_not_null(p, "no vector %s", name);
    p = strstr(p, ".Bd -literal -compact\n");
    cr_assert_not_null(p);
    p = strchr(p, '\n');
    for (char *end; *(p += strspn(p, " \n")) != '.'; p = end) {
        cr_assert_lt(n, cap);
        buf[n++] = (uint8_t)strtoul(p, &end, 16);
        cr_assert_eq(end - p, 2, "%s", name);
    }
    return n;
}

static void compare(const char *name, const uint8_t *got, size_t len)
{
    uint8_t want[HELLO_LEN_MAX];
    size_t n = vector(name, want, sizeof(want));

    cr_expect_eq(len, n, "%s: %zu octets, not %zu", name, len, n);
    for (size_t i = 0; i < n && i < len; i++)
        cr_assert_eq(got[i], want[i], "%s: octet %zu is %02x, not %02x", name, i, got[i], want[i]);
}

static void compare_out(const char *name, const struct negotiate *n)
{
    const uint8_t *p;
    size_t len = negotiate_out(n, &p);

    compare(name, p, len);
}

static struct negotiate_cfg described(bool responder)
{
    struct negotiate_cfg c = config(responder);

    c.early = true;
    c.shim_known = c.may_switch = false;
    c.host = 0;
    memcpy(c.nonce, first_nonce, sizeof(first_nonce));
    c.mpa.ird = c.mpa.ord = 16;
    c.params = (struct stream_params){
        .version = 1,
        .flags = STREAM_FLAG_LLP | STREAM_FLAG_URGENT,
        .ring_stag = responder ? RESPONDER_STAG : INITIATOR_STAG,
        .ring_len = 1u << 20,
        .eager_max = 64512,
        .bufs = 64,
    };
    return c;
}

Test(protocol, question_and_answer)
{
    struct negotiate_cfg ca = described(false), cb = described(true);
    uint8_t buf[HELLO_LEN_MAX];

    both(&ca, &cb);
    compare_out("helo", &a.n);
    put(&b.wire, buf, vector("helo", buf, sizeof(buf)));
    arrive(&b, SIZE_MAX);
    step_in(&b);
    compare_out("hack", &b.n);
    step_out(&a, SIZE_MAX);
    b.kernel.n = 0;
    put(&a.wire, buf, vector("hack", buf, sizeof(buf)));
    arrive(&a, SIZE_MAX);
    step_in(&a);
    EXPECT(a, NEGOTIATE_DONE, REASON_UPGRADED);
    cr_expect_eq(a.n.mpa.res.rtr, MPA_RTR_SEND);
    cr_expect_eq(a.n.peer.ring_stag, RESPONDER_STAG);
}

Test(protocol, an_answer_that_declines)
{
    struct negotiate_cfg ca = described(false), cb = described(true);
    uint8_t buf[HELLO_LEN_MAX];
    size_t n = vector("helo", buf, sizeof(buf));

    both(&ca, &cb);
    b.n.streamed = 5;
    negotiate_decline(&b.n, REASON_VERSION);
    put(&b.wire, buf, n);
    arrive(&b, SIZE_MAX);
    step_in(&b);
    compare_out("hnak", &b.n);
    n = vector("hnak", buf, sizeof(buf));
    step_out(&a, SIZE_MAX);
    put(&a.wire, "hello", 5);
    put(&a.wire, buf, n);
    arrive(&a, SIZE_MAX);
    step_in(&a);
    EXPECT(a, NEGOTIATE_PLAIN, REASON_HELLO_NAK);
    cr_expect_eq(a.n.prefix_len, 5u);
}

Test(protocol, the_late_switch)
{
    struct negotiate_cfg ca = described(false), cb = described(true);
    uint8_t buf[HELLO_LEN_MAX];
    const uint8_t *p;

    ca.shim_known = ca.may_switch = true;
    both(&ca, &cb);
    step_out(&a, SIZE_MAX);
    negotiate_withdraw(&a.n);
    compare_out("hwdr", &a.n);
    step_out(&a, SIZE_MAX);
    a.n.streamed = 7;
    put(&a.wire, buf, vector("hack", buf, sizeof(buf)));
    arrive(&a, SIZE_MAX);
    step_in(&a);
    cr_assert_eq(a.n.state, NEGOTIATE_DONE);
    size_t len = negotiate_lead(&a.n, &p);
    compare("hswi", p, len);

    struct hello h;
    size_t frame_len = 0, safe = 0, n = vector("hswi", buf, sizeof(buf));
    cr_expect_eq(hello_find_switch(buf, n, 7, first_nonce, &h, &frame_len, &safe), 0);
    cr_expect_eq(frame_len, HELLO_LEN);
}

static void compare_sent(const char *name, struct stream_end *e)
{
    const struct iovec *iov;
    uint8_t buf[HELLO_LEN_MAX];
    size_t len, n, at = 0;

    n = iwarp_out(&e->side.ep, &iov, &len);
    cr_assert_leq(len, sizeof(buf));
    for (size_t i = 0; i < n; i++) {
        memcpy(buf + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    iwarp_out_sent(&e->side.ep, len);
    if (strcmp(name, "write") != 0) {
        compare(name, buf, len);
        return;
    }
    /* The Write and its notify are one batch. */
    uint8_t want[HELLO_LEN_MAX];
    size_t write_len = vector("write", want, sizeof(want));
    cr_assert_gt(len, write_len);
    compare("write", buf, write_len);
    compare("notify", buf + write_len, len - write_len);
}

static void stream_begin(struct stream_end *e, bool initiator)
{
    struct stream_params ours = described(!initiator).params, theirs = described(initiator).params;
    struct iwarp_cfg ic;

    memset(e, 0, sizeof(*e));
    side_alloc(&e->side, 1);
    ic = side_cfg(&e->side, initiator, MPA_RTR_SEND);
    cr_assert_eq(iwarp_init(&e->side.ep, &ic), 0);
    e->side.ep.stags.region[0] = (struct ddp_region){
        .stag = ours.ring_stag,
        .access = DDP_ACCESS_REMOTE_WRITE,
        .deferred = true,
        .len = ours.ring_len,
    };
    struct stream_cfg sc = { .ep = &e->side.ep.base, .local = ours, .peer = theirs, .eager_limit = 5 };
    cr_assert_eq(stream_init(&e->st, &sc), 0);
}

static void say(struct stream_end *e, const char *text)
{
    struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
    struct iov_iter src = iov_iter_init(&iov, 1);

    cr_assert_eq(stream_write(&e->st, &src, strlen(text)), (ssize_t)strlen(text));
}

/* RFC 5044 4.4/1,9,10: CRCs made by other means, over pads of none to three octets */
Test(protocol, messages_of_the_stream)
{
    static const char *const names[] = { "rtr", "data", "write", "notify" };
    struct stream_end from, to;
    char got[32];
    struct iovec iov = { got, sizeof(got) };
    struct iov_iter dst = iov_iter_init(&iov, 1);

    stream_begin(&from, true);
    compare_sent("rtr", &from);
    stream_flushed(&from.st);
    say(&from, "hello");
    compare_sent("data", &from);
    stream_flushed(&from.st);
    say(&from, "sockwarp");
    compare_sent("write", &from);

    stream_begin(&to, false);
    for (size_t i = 0; i < SW_ARRAY_LEN(names); i++) {
        uint8_t buf[HELLO_LEN_MAX], *p;
        size_t n = vector(names[i], buf, sizeof(buf));
        cr_assert_geq(iwarp_in_space(&to.side.ep, &p), n);
        memcpy(p, buf, n);
        iwarp_in_fed(&to.side.ep, n);
        cr_assert_geq(stream_poll(&to.st), 0, "%s", names[i]);
    }
    cr_expect_eq(stream_read(&to.st, &dst, sizeof(got)), 13u);
    cr_expect_arr_eq(got, "hellosockwarp", 13);
    side_free(&from.side);
    side_free(&to.side);
}
