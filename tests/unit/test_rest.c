/*
 * A stream at rest: what is saved and loaded is the same stream (test_stream_property does that in the middle of
 * everything), and what could not have been saved is not loaded.
 */
#include "core/stream/rest.h"
#include "tests/unit/stream_pair.h"

static struct stream_pair p;
static uint8_t kept[1u << 20];

static void setup(void)
{
    struct stream_pair_cfg c = stream_pair_llp();
    stream_pair_init(&p, &c);
}

static void write_all(struct stream_end *e, size_t len)
{
    static uint8_t data[100000];
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 7);
    struct iovec v = { data, len };
    struct iov_iter it = iov_iter_init(&v, 1);
    cr_assert_eq(stream_write(&e->st, &it, len), (ssize_t)len);
}

/* b has 300 octets to read, of which 100 are read, and a part of a frame. */
static struct rest_rx received(size_t *len)
{
    struct rest_rx r;
    setup();
    stream_pair_settle(&p); /* the RTR */
    write_all(&p.a, 300);
    cr_assert(stream_end_push(&p.a));
    stream_end_pull(&p.b);
    cr_assert_eq(stream_avail(&p.b.st), 300);
    cr_assert_eq(stream_discard(&p.b.st, 100), 100);
    write_all(&p.a, 400);
    const struct iovec *iov;
    size_t n_iov = iwarp_out(&p.a.side.ep, &iov, len);
    cr_assert(n_iov > 0);
    uint8_t *at;
    cr_assert(iwarp_in_space(&p.b.side.ep, &at) > 50);
    memcpy(at, iov[0].iov_base, iov[0].iov_len < 50 ? iov[0].iov_len : 50);
    iwarp_in_fed(&p.b.side.ep, iov[0].iov_len < 50 ? iov[0].iov_len : 50);
    cr_assert(rest_rx_save(&p.b.st, &p.b.side.ep, &r, kept, sizeof(kept), len));
    return r;
}

Test(rest, what_is_there_is_saved)
{
    size_t len;
    struct rest_rx r = received(&len);
    cr_assert_eq(r.ready, 200);
    cr_assert_gt(r.ep.raw, 0);
    cr_assert_eq(len, r.ready + r.ep.raw);
    cr_assert_eq(kept[0], (uint8_t)(100 * 7));
    cr_assert_not(rest_rx_save(&p.b.st, &p.b.side.ep, &r, kept, len - 1, &len), "no room");
    stream_pair_fini(&p);
}

/* Each is wrong by one number. */
static void spoil(struct rest_rx *r, int which, size_t *len)
{
    switch (which) {
    case 0:
        r->end = STREAM_BROKEN + 1;
        break;
    case 1:
        r->urgent = STREAM_URGENT_READ + 1;
        break;
    case 2: /* an urgent octet that is not there */
        r->urgent = STREAM_URGENT_VALID;
        r->urgent_at = r->total + r->ready;
        break;
    case 3:
        r->urgent = STREAM_URGENT_VALID;
        r->urgent_at = r->total - 1;
        break;
    case 4:
        r->ready++;
        break;
    case 5:
        r->ready = UINT32_MAX;
        break;
    case 6:
        r->ep.raw = UINT32_MAX;
        break;
    case 7: /* a part of no message */
        r->ep.part = 4;
        r->ep.raw -= 4;
        break;
    case 8: /* a message of several segments of a kind that has none */
        r->ep.in_message = 1;
        r->ep.msg_opcode = RDMAP_TERMINATE;
        break;
    case 9: /* an unfinished Send whose octets are elsewhere */
        r->ep.in_message = 1;
        r->ep.msg_opcode = RDMAP_SEND;
        r->ep.msg_len = 100;
        break;
    case 10: /* a longer one than is taken */
        r->ep.in_message = 1;
        r->ep.msg_opcode = RDMAP_SEND;
        r->ep.msg_len = r->ep.part = (uint32_t)p.b.side.ep.cfg.send_max + 1;
        *len += r->ep.part;
        break;
    case 11:
        r->ep.in_message = 1;
        r->ep.msg_opcode = RDMAP_WRITE;
        r->ep.msg_len = UINT64_MAX;
        break;
    case 12: /* a Read that was never posted */
        r->ep.reads_done++;
        break;
    case 13: /* more than staging holds */
        r->ready += (uint32_t)p.b.side.ep.cfg.in_cap;
        *len += p.b.side.ep.cfg.in_cap;
        break;
    }
}

Test(rest, what_could_not_have_been_is_not_loaded)
{
    for (int i = 0; i <= 13; i++) {
        size_t len;
        struct rest_rx r = received(&len);
        struct stream before = p.b.st;
        spoil(&r, i, &len);
        cr_assert_not(rest_rx_load(&p.b.st, &p.b.side.ep, &r, kept, len), "%d", i);
        cr_assert_eq(memcmp(&before, &p.b.st, sizeof(before)), 0, "%d: it has changed", i);
        cr_assert_eq(stream_avail(&p.b.st), 200);
        stream_pair_fini(&p);
    }
}

Test(rest, a_tail_goes_on_elsewhere)
{
    struct rest_tx t;
    size_t len, n;
    const struct iovec *iov;
    setup();
    stream_pair_settle(&p);
    write_all(&p.a, 300);
    cr_assert_not(rest_tx_save(&p.a.st, &p.a.side.ep, &t, kept, sizeof(kept), &len) &&
                      iwarp_out_borrowed(&p.a.side.ep) > 0,
                  "the program's memory");
    n = iwarp_out(&p.a.side.ep, &iov, &len);
    struct iovec first = { iov[0].iov_base, 10 };
    cr_assert(n > 0 && iov[0].iov_len >= 10);
    cr_assert_eq(mem_pipe_write(&p.ab, &first, 1), 10);
    iwarp_out_sent(&p.a.side.ep, 10);
    cr_assert_eq(stream_unpost(&p.a.st, iwarp_out_detach(&p.a.side.ep).frames), 0);
    cr_assert(rest_tx_save(&p.a.st, &p.a.side.ep, &t, kept, sizeof(kept), &len));
    cr_assert_eq(len, t.ep.queued);
    cr_assert_not(rest_tx_load(&p.a.st, &p.a.side.ep, &t, kept, len - 1));
    memset(p.a.side.ep.cfg.out_buf, 0xdd, p.a.side.ep.cfg.out_cap);
    memset(p.a.side.ep.tx.scratch, 0xdd, sizeof(p.a.side.ep.tx.scratch));
    cr_assert(rest_tx_load(&p.a.st, &p.a.side.ep, &t, kept, len));
    write_all(&p.a, 200);
    cr_assert(stream_end_push(&p.a));
    stream_end_pull(&p.b);
    cr_assert_eq(stream_avail(&p.b.st), 500);
    t.ep.queued = (uint32_t)p.a.side.ep.cfg.out_cap + 1;
    cr_assert_not(rest_tx_load(&p.a.st, &p.a.side.ep, &t, kept, t.ep.queued), "more than there is room for");
    stream_pair_fini(&p);
}
