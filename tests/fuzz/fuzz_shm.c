/*
 * Fuzz target: a stream over an endpoint in shared memory, whose other side writes what the input says.
 *
 *   octet 0: 1 a ring four times as long, 2 small eager payloads, 4 urgent octets are read in line
 *   then operations: octet % 16 says which (see step), the next two octets are its number
 *
 * The peer is honest in its own calls, a stream as ours, and beside them writes any octets anywhere into both regions:
 * at once, or before one of our endpoint's next polls, posts and releases.
 *
 * What must hold: no crash, and no octet outside the regions is read or written; what is polled lies in the peer's
 * ring, and is no more than the ring holds; a stream that is broken stays so; until the peer has written, octets come
 * out as they went in, no error comes, and no half that sleeps is left without a bell.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/stream/stream.h"
#include "core/transport/shm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STAG 0x77777777u
#define WINDOW 6000u
#define LATER_MAX 16u
#define BUF 20000u

struct side {
    struct shm_ep ep;
    struct stream st;
    uint8_t *region;
    uint64_t written, read; /* by the program */
    bool asleep_rx, asleep_tx, rung_rx, rung_tx;
};

static struct side us, peer;
static uint32_t ring_len;
static bool clean; /* the peer has not written yet */
static uint8_t buf[BUF];
/* What the peer writes between two calls of ours: as the operation's number says, after so many. */
static struct {
    uint16_t n;
    uint8_t octets[8];
    unsigned after;
} later[LATER_MAX];
static unsigned later_n, polled;

static void must(int cond)
{
    if (!cond)
        abort();
}

static uint8_t octet(const struct side *from, uint64_t at)
{
    return (uint8_t)((at + 1 + (from == &us)) * 0x9e3779b97f4a7c15u >> 32);
}

/* ---- the peer's writes ---- */

/* n: where; 1 bit says in which region, 1 whether among the first octets, which are cursors and the first records. */
static void scribble(uint16_t n, const uint8_t *octets, size_t len)
{
    uint8_t *at = n & 1 ? us.region : peer.region;
    size_t off = (n >> 2) % (SHM_HEAD_LEN + ring_len - 8);
    if (n & 2)
        off = (off % 48) * 8;
    memcpy(at + off, octets, len);
    clean = false;
}

/* A cursor, near to where it is: most of all other numbers are refused at once. */
static void move(uint16_t n)
{
    struct shm_region *r = (struct shm_region *)(void *)peer.region;
    uint64_t by = n & 8 ? (uint64_t)((int64_t)(int8_t)(n >> 8) * 8) : (n & 16 ? ring_len : 0) + (n >> 8);
    clean = false;
    switch (n % 8) {
    case 0:
    case 1:
        atomic_fetch_add(&r->tail, by);
        break;
    case 2:
        atomic_fetch_add(&r->head, by);
        break;
    case 3:
        atomic_store(&r->nap_rx, n >> 8);
        break;
    case 4:
        atomic_store(&r->nap_tx, n >> 8);
        break;
    case 5:
        atomic_store(&r->end, n >> 8);
        break;
    case 6: /* up to what we wait for, and what we have sent */
        atomic_store(&r->tail, us.ep.rx.next.at + by);
        break;
    case 7:
        atomic_store(&r->head, us.ep.tx.tail.at + by);
        break;
    }
}

/* A record behind the peer's tail, as the honest endpoint would not post it, which knows nothing of it. */
static void forge(uint16_t n, const uint8_t *octets, size_t len)
{
    struct shm_region *r = (struct shm_region *)(void *)peer.region;
    uint64_t at = atomic_load(&r->tail);
    uint32_t off = (uint32_t)(at % ring_len) & ~7u, to_end = ring_len - off;
    uint32_t words[4] = { n >> 5, n & 3, n & 4 ? STAG : n, (uint32_t)us.st.rx.ring_to % WINDOW };
    if (n & 8)
        words[0] = words[1] == 3 ? to_end - 8 : to_end - n % 64;
    if (n & 16 && len >= 8)
        memcpy(words + 2, octets, 8);
    memcpy(peer.region + SHM_HEAD_LEN + off, words, to_end < 16 ? 8 : 16);
    atomic_store(&r->tail, at + ((words[0] + 8 + (words[1] == 2 ? 8 : 0) + 7) & ~7u));
    clean = false;
}

static void between(void)
{
    for (unsigned i = 0; i < later_n;) {
        if (later[i].after-- > 0) {
            i++;
            continue;
        }
        if (later[i].n & 0x8000)
            move(later[i].n & 0x7fff);
        else
            scribble(later[i].n, later[i].octets, sizeof(later[i].octets));
        later[i] = later[--later_n];
    }
}

/* ---- our endpoint, with the peer's writes in between ---- */

static int poll_between(struct endpoint *e, struct endpoint_event *ev)
{
    const uint8_t *ring = peer.region + SHM_HEAD_LEN;
    between();
    int r = shm_endpoint_ops.poll(e, ev);
    must(r == 0 || r == 1 || r == -EPROTO);
    if (r == 1) {
        must(ev->data >= ring && ev->data + ev->len <= ring + ring_len && ev->len <= SHM_RECORD_MAX(ring_len));
        must(ev->type == ENDPOINT_SEND || (ev->type == ENDPOINT_WRITE && ev->to + ev->len <= WINDOW));
        must(++polled <= 4 * ring_len); /* (the peer moves its tail by less than a ring between two polls) */
    }
    must(us.ep.rx.next.at - us.ep.rx.head.at <= ring_len && us.ep.rx.next.off == us.ep.rx.next.at % ring_len);
    return r;
}

static void release_between(struct endpoint *e, const uint8_t *upto)
{
    between();
    shm_endpoint_ops.release(e, upto);
    must(us.ep.rx.head.off == us.ep.rx.head.at % ring_len);
    between();
}

static int post_write_between(struct endpoint *e, uint32_t stag, uint64_t to, struct iov_iter *src, size_t len)
{
    between();
    return shm_endpoint_ops.post_write(e, stag, to, src, len);
}

static int post_send_between(struct endpoint *e, const uint8_t *hdr, size_t hdr_len, struct iov_iter *src, size_t len)
{
    between();
    return shm_endpoint_ops.post_send(e, hdr, hdr_len, src, len);
}

/* ---- both sides ---- */

static struct side *other(const struct side *s)
{
    return s == &us ? &peer : &us;
}

static void read_some(struct side *s, unsigned how, size_t n)
{
    struct iovec v = { buf, n % BUF };
    struct iov_iter it = iov_iter_init(&v, 1);
    uint64_t avail = stream_avail(&s->st), at = s->read;
    size_t len = n % BUF, skip = how == 0 ? n % 50 : 0, got;
    if (how == 0)
        got = stream_peek(&s->st, &it, len, skip);
    else if (how == 1)
        got = stream_discard(&s->st, len);
    else
        got = stream_read(&s->st, &it, len);
    must(got == (avail <= skip ? 0 : len < avail - skip ? len : avail - skip));
    for (size_t i = 0; clean && how != 1 && i < got; i++)
        must(buf[i] == octet(other(s), at + skip + i));
    s->read += how == 0 ? 0 : got;
    must(s->st.rx.total == s->read);
}

static void poll_some(struct side *s)
{
    bool was_broken = s->st.rx.end == STREAM_BROKEN;
    polled = 0;
    int r = stream_poll(&s->st);
    must(r == 0 || r == 1 || r == -EPROTO);
    must((r < 0) == (s->st.rx.end == STREAM_BROKEN) && (r < 0 || !was_broken));
    must(r >= 0 || !clean);
    must(stream_avail(&s->st) <= ring_len && s->st.rx.n <= STREAM_SLICES);
    must(!clean || s->st.rx.off <= other(s)->written);
    s->read = s->st.rx.total; /* (an urgent octet at the front is gone when another one comes) */
}

static void write_some(struct side *s, size_t n)
{
    size_t len = n % BUF;
    struct iovec v = { buf, len };
    struct iov_iter it = iov_iter_init(&v, 1);
    for (size_t i = 0; i < len; i++)
        buf[i] = octet(s, s->written + i);
    ssize_t r = stream_write(&s->st, &it, len);
    must(r == -EPIPE || (r >= 0 && (size_t)r <= len && iov_iter_left(&it) == len - (size_t)r));
    must(r >= 0 || !clean || s->st.tx.fin || s->ep.tx.dead);
    s->written += r > 0 ? (uint64_t)r : 0;
}

static void write_urgent(struct side *s)
{
    uint8_t one = octet(s, s->written);
    struct iovec v = { &one, 1 };
    struct iov_iter it = iov_iter_init(&v, 1);
    ssize_t r = stream_write_urgent(&s->st, &it);
    must(r == 0 || r == 1 || r == -EPIPE);
    s->written += r == 1;
}

static void flush(struct side *s)
{
    other(s)->rung_rx |= shm_flush(&s->ep);
    stream_flushed(&s->st);
    if (s->st.tx.batch_n > 0)
        other(s)->rung_rx |= shm_flush(&s->ep);
    must(!clean || !other(s)->asleep_rx || other(s)->rung_rx || !shm_come(&other(s)->ep));
}

static void tell(struct side *s)
{
    other(s)->rung_tx |= shm_tell(&s->ep);
    uint64_t in_use = other(s)->ep.tx.tail.at - s->ep.rx.told;
    must(!clean || !other(s)->asleep_tx || other(s)->rung_tx || in_use > ring_len / 2);
}

static void nap_or_wake(struct side *s, bool rx)
{
    if (rx) {
        if (s->asleep_rx)
            shm_wake_rx(&s->ep);
        s->rung_rx = false;
        s->asleep_rx = !s->asleep_rx && shm_nap_rx(&s->ep);
    } else {
        flush(s);
        if (s->asleep_tx)
            shm_wake_tx(&s->ep);
        s->rung_tx = false;
        s->asleep_tx = !s->asleep_tx && shm_nap_tx(&s->ep);
        must(!s->asleep_tx || !s->ep.tx.dead);
    }
}

static void end_it(struct side *s, size_t n)
{
    if (n % 8 == 0) {
        other(s)->rung_rx |= shm_end(&s->ep, (enum shm_end)(n >> 8));
        must(s->ep.tx.dead && shm_has_room(&s->ep));
    } else if (n % 8 < 3) {
        int r = stream_fin(&s->st);
        must(r == 0 || r == -EAGAIN || (r == -EPIPE && s->ep.tx.dead));
    }
    enum shm_end end = shm_peer_end(&s->ep);
    must(end <= SHM_RESET && (end == SHM_OPEN || !shm_come(&s->ep)));
    must(shm_unused(&s->ep) <= ring_len);
}

static void step(unsigned op, uint16_t n, const uint8_t *rest, size_t left)
{
    struct side *s = op & 8 ? &peer : &us;
    switch (op % 8) {
    case 0:
        poll_some(s);
        break;
    case 1:
        read_some(s, n % 3, n / 3);
        break;
    case 2:
        write_some(s, n % 4 == 0 ? n : n % 700);
        break;
    case 3:
        flush(s);
        break;
    case 4:
        tell(s);
        break;
    case 5:
        if (n % 4 == 0)
            write_urgent(s);
        else
            nap_or_wake(s, n & 1);
        break;
    case 6:
        if (s == &us || n % 4 == 3) {
            end_it(s, n);
        } else {
            scribble(n, rest, left < 8 ? left : 8);
        }
        break;
    case 7: /* both kinds are the peer's */
        if (s == &peer && n % 3 == 0) {
            forge(n / 3, rest, left);
        } else if (s == &peer) {
            move(n);
        } else if (later_n < LATER_MAX && left >= 8) {
            later[later_n].n = n;
            later[later_n].after = n % 5;
            memcpy(later[later_n++].octets, rest, 8);
        }
        break;
    }
}

static void begin(struct side *s, uint8_t flags)
{
    static struct endpoint_ops ops;
    struct shm_cfg cfg = { s->region, other(s)->region, ring_len, STAG, WINDOW };
    struct stream_params params = {
        .version = 1,
        .flags = STREAM_FLAG_LLP | STREAM_FLAG_URGENT,
        .ring_stag = STAG,
        .ring_len = WINDOW,
        .eager_max = flags & 2 ? 40 : 1500,
    };
    struct stream_cfg st = { .ep = &s->ep.base, .local = params, .peer = params, .eager_limit = flags & 2 ? 20 : 700 };
    must(shm_init(&s->ep, &cfg) == 0);
    if (s == &us) {
        ops = shm_endpoint_ops;
        ops.poll = poll_between;
        ops.release = release_between;
        ops.post_write = post_write_between;
        ops.post_send = post_send_between;
        endpoint_init(&s->ep.base, &ops);
    }
    must(stream_init(&s->st, &st) == 0);
    atomic_store(&s->st.rx.urgent_inline, (flags & 4) != 0);
    s->written = s->read = 0;
    s->asleep_rx = s->asleep_tx = s->rung_rx = s->rung_tx = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    ring_len = data[0] & 1 ? 4 * SHM_RING_MIN : SHM_RING_MIN;
    clean = true;
    later_n = 0;
    /* Each ends where its memory ends, so that AddressSanitizer sees one octet too much. */
    us.region = aligned_alloc(64, SHM_HEAD_LEN + ring_len);
    peer.region = aligned_alloc(64, SHM_HEAD_LEN + ring_len);
    must(us.region != NULL && peer.region != NULL);
    memset(us.region, 0, SHM_HEAD_LEN + ring_len);
    memset(peer.region, 0, SHM_HEAD_LEN + ring_len);
    begin(&us, data[0]);
    begin(&peer, data[0]);
    for (size_t i = 1; i + 3 <= size; i += 3)
        step(data[i] % 16, get_be16(data + i + 1), data + i + 3, size - i - 3);
    for (unsigned i = 0; i < 3; i++) {
        poll_some(&us);
        read_some(&us, 2, BUF - 1);
        tell(&us);
    }
    must(!clean || peer.ep.tx.dead || us.st.rx.end != STREAM_OPEN || !shm_come(&us.ep));
    free(us.region);
    free(peer.region);
    return 0;
}
