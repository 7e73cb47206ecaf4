/*
 * Fuzz target: two negotiations of one host, coupled, of which the initiator withdraws its Hello when it likes, while it is answered,
 * while frames are on the way in pieces, and while programs speak.
 *
 *   octet 0: 1 the initiator may switch late, 2 the responder declines once a step says so, 4 it defers its late answer
 *   then one step each: low 3 bits what, the others how many octets
 *
 * What must hold: the two ends agree in the end; each program gets the other's octets in order, and none of ours; where frames have to
 * be there is no octet of a program. (A program's octets are 0 to 127, F stands for what follows the startup, a Hello begins with 0xf5.)
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reason.h"
#include "core/negotiate/negotiate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 400u
#define QUEUE_MAX 65536u
#define F 0x80

struct queue {
    uint8_t p[QUEUE_MAX];
    size_t n;
};

/* One side: on the way to it, in its kernel, collected. */
struct side {
    struct negotiate n;
    struct queue wire, kernel, in;
    struct side *peer;
    unsigned said, got;     /* octets of programs */
    unsigned f_said, f_got; /* Fs */
    bool hswi;              /* it has come: Fs follow */
};

static struct side a, b; /* a: initiator */
static bool defers;

static void must(int cond)
{
    if (!cond)
        abort();
}

static void put(struct queue *q, const void *p, size_t n)
{
    must(n <= sizeof(q->p) - q->n);
    memcpy(q->p + q->n, p, n);
    q->n += n;
}

static void drop(struct queue *q, size_t n)
{
    must(n <= q->n);
    memmove(q->p, q->p + n, q->n - n);
    q->n -= n;
}

static struct negotiate_cfg config(bool responder, bool may_switch)
{
    return (struct negotiate_cfg){
        .responder = responder,
        .shim_known = !responder,
        .early = responder || may_switch,
        .may_switch = may_switch,
        .transports = HELLO_TRANSPORT_IWARP,
        .nonce = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
        .mpa = { .rev = 2, .crc = true, .peer_to_peer = true, .rtr = MPA_RTR_SEND, .ird = 4, .ord = 4 },
        .params = { .version = 1,
                    .flags = STREAM_FLAG_LLP,
                    .ring_stag = 7,
                    .ring_len = 65536,
                    .eager_max = 4096,
                    .bufs = 16 },
        .timeout_ns = 1000000000,
    };
}

static void out(struct side *s, size_t most)
{
    const uint8_t *p;
    if (negotiate_lead(&s->n, &p) > 0)
        return; /* with the first F */
    size_t n = negotiate_out(&s->n, &p);
    n = n < most ? n : most;
    if (n == 0)
        return;
    put(&s->peer->wire, p, n);
    negotiate_sent(&s->n, n);
}

static void arrive(struct side *s, size_t most)
{
    size_t n = s->wire.n < most ? s->wire.n : most;
    put(&s->kernel, s->wire.p, n);
    drop(&s->wire, n);
}

static void give(struct side *s, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        must(p[i] == (s->got++ & 127));
}

/* FPDUs; by a late switch the program's octets come before them, up to the HSWI. */
static void take_full(struct side *s)
{
    while (s->in.n > 0 && s->n.switched && s->n.cfg.responder && !s->hswi) {
        struct hello h;
        ssize_t len = hello_decode(s->in.p, s->in.n, &h);
        if (len == -EAGAIN)
            return;
        if (len > 0) {
            must(h.kind == HELLO_HSWI);
            s->hswi = true;
        } else {
            len = 1;
            give(s, s->in.p, 1);
        }
        drop(&s->in, (size_t)len);
    }
    for (size_t i = 0; i < s->in.n; i++, s->f_got++)
        must(s->in.p[i] == F);
    s->in.n = 0;
}

/* What is collected, and what the kernel has, belongs to what follows. */
static void take_rest(struct side *s)
{
    put(&s->in, s->kernel.p, s->kernel.n);
    s->kernel.n = 0;
    if (s->n.state == NEGOTIATE_DONE) {
        take_full(s);
    } else if (s->n.state == NEGOTIATE_PLAIN) {
        give(s, s->in.p, s->in.n);
        s->in.n = 0;
    }
}

/* As preload/startup/startup.c: step_peek() and step_in(). */
static void in(struct side *s)
{
    uint8_t state = s->n.state;
    if (state >= NEGOTIATE_DONE) {
        take_rest(s);
        return;
    }
    if (state == NEGOTIATE_PEEK || state == NEGOTIATE_NAKED || state == NEGOTIATE_LATE || state == NEGOTIATE_UNASKED) {
        if (s->n.cfg.responder && defers && negotiate_is_late(s->kernel.p, s->kernel.n))
            negotiate_defer(&s->n);
        drop(&s->kernel, negotiate_in(&s->n, s->kernel.p, s->kernel.n, 1000));
        return;
    }
    put(&s->in, s->kernel.p, s->kernel.n);
    s->kernel.n = 0;
    size_t used = s->in.n > 0 ? negotiate_in(&s->n, s->in.p, s->in.n, 1000) : 0;
    if ((state == NEGOTIATE_HELLO || state == NEGOTIATE_WITHDRAWN) && used > 0) {
        must(s->n.prefix_len <= used);
        give(s, s->in.p, s->n.prefix_len);
    }
    drop(&s->in, used);
}

/* The program sends one octet, where it may. */
static void speak(struct side *s)
{
    const uint8_t *p;
    uint8_t octet = (uint8_t)(s->said & 127);
    bool streams = s->n.state == NEGOTIATE_PLAIN || s->n.state == NEGOTIATE_NAKED ||
                   s->n.state == NEGOTIATE_WITHDRAWN || s->n.state == NEGOTIATE_LATE || s->n.state == NEGOTIATE_PEEK;
    if ((!streams && s->n.state != NEGOTIATE_DONE) || negotiate_out(&s->n, &p) > 0)
        return;
    if (s->n.state == NEGOTIATE_DONE) {
        size_t lead = negotiate_lead(&s->n, &p);
        put(&s->peer->wire, p, lead);
        negotiate_sent(&s->n, lead);
        octet = F;
        s->f_said++;
    }
    s->said += streams;
    s->n.streamed += streams;
    put(&s->peer->wire, &octet, 1);
}

static void step(uint8_t what)
{
    size_t n = 1 + (size_t)(what >> 3) * 3;
    struct side *s = what & 8 ? &b : &a;
    switch (what & 7) {
    case 0:
        out(&a, n);
        break;
    case 1:
        out(&b, n);
        break;
    case 2:
        arrive(&a, n);
        break;
    case 3:
        arrive(&b, n);
        break;
    case 4:
        in(&a);
        break;
    case 5:
        in(&b);
        break;
    case 6:
        if (s == &a)
            negotiate_withdraw(&a.n);
        else if (b.n.state == NEGOTIATE_PEEK)
            negotiate_decline(&b.n, REASON_POLICY);
        break;
    default:
        speak(s);
    }
}

/* Until nothing moves. */
static void settle(void)
{
    for (int i = 0; i < 20; i++) {
        out(&a, SIZE_MAX);
        out(&b, SIZE_MAX);
        arrive(&a, SIZE_MAX);
        arrive(&b, SIZE_MAX);
        in(&a);
        in(&b);
    }
}

static void check_end(void)
{
    settle();
    if (a.n.state == NEGOTIATE_HELLO)
        negotiate_withdraw(&a.n);
    settle();
    if (a.n.state == NEGOTIATE_FALLBACK) /* its Hello was cut: the connection is made anew */
        return;
    speak(&a);
    settle();
    speak(&b);
    settle();
    speak(&a);
    speak(&b);
    settle();
    must(a.n.state == NEGOTIATE_DONE || a.n.state == NEGOTIATE_PLAIN);
    must(a.n.state == b.n.state);
    must(a.got == b.said && b.got == a.said && a.f_got == b.f_said && b.f_got == a.f_said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > STEPS_MAX)
        return 0;
    struct negotiate_cfg ca = config(false, data[0] & 1), cb = config(true, false);
    for (int i = 0; i < 2; i++) {
        struct side *s = i ? &b : &a;
        s->wire.n = s->kernel.n = s->in.n = 0;
        s->said = s->got = s->f_said = s->f_got = 0;
        s->hswi = false;
        s->peer = i ? &a : &b;
        must(negotiate_init(&s->n, i ? &cb : &ca, 1000) == 0);
    }
    defers = data[0] & 4;
    for (size_t i = 1; i < size; i++)
        if ((data[0] & 2) || (data[i] & 15) != 14)
            step(data[i]);
    check_end();
    return 0;
}
