/*
 * Receiving directly: what comes is the same stream whatever was foreseen, however it is cut, and no octet
 * of a frame that is not whole and right is anybody's, though it lies in the ULP's memory already.
 */
#include "tests/unit/stream_pair.h"

#include "core/base/bytes.h"

enum { ROOM = 1 << 18, WIRE = 1 << 19 };

static struct stream_pair p;
static uint8_t *wire, *got, sent[ROOM];
static size_t wire_len, sent_len;

/* Frames of at most 8 KiB, a ring of 64 KiB: it wraps. */
static void setup(bool crc)
{
    struct stream_pair_cfg c = stream_pair_llp();

    c.mulpdu = 8192;
    c.ring_len = 65536;
    c.pipe_cap = WIRE;
    c.no_crc = !crc;
    stream_pair_init(&p, &c);
    stream_pair_start(&p);
    p.a.st.cfg.write_limit = 8178; /* each Write is one segment, as preload has it: of 8128 octets */
    wire = malloc(WIRE);
    got = malloc(ROOM);
    wire_len = sent_len = 0;
    if (sent[1] == 0)
        for (size_t i = 0; i < ROOM; i++)
            sent[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void teardown(void)
{
    stream_pair_fini(&p);
    free(wire);
    free(got);
}

/* A write of the program at a: its frames go to the end of `wire`. */
static void write_one(size_t len)
{
    struct iovec v;

    cr_assert_eq(stream_end_write(&p.a, sent + sent_len, len), (ssize_t)len);
    sent_len += len;
    cr_assert(stream_end_push(&p.a));
    v = (struct iovec){ wire + wire_len, WIRE - wire_len };
    wire_len += mem_pipe_read(&p.ab, v.iov_base, v.iov_len);
}

struct receiver {
    struct stream_end *e;
    size_t at;    /* octets of the wire that were taken */
    size_t given; /* and of the stream, in `got` */
    size_t room;  /* of a call of the program's */
    size_t direct, staged;
};

/* What a recv takes off the pipe: at most so many octets. */
static size_t take(struct receiver *r, const struct iovec *iov, size_t n, size_t most)
{
    size_t done = 0;

    for (size_t i = 0; i < n && done < most; i++) {
        size_t l = iov[i].iov_len < most - done ? iov[i].iov_len : most - done;

        memcpy(iov[i].iov_base, wire + r->at + done, l);
        done += l;
    }
    r->at += done;
    return done;
}

/*
 * One call as conn_rx.c does it: gives what is there, else takes in `most` octets of the pipe. 0, or what stream_poll
 * says.
 */
static int step(struct receiver *r, size_t *room, size_t most)
{
    struct stream *st = &r->e->st;
    struct iwarp_ep *ep = &r->e->side.ep;
    struct iovec iov[IWARP_DIRECT_IOV];
    int bad = stream_poll(st);
    size_t n = stream_end_read(r->e, got + r->given, *room);

    r->given += n;
    *room -= n;
    if (bad < 0 || *room == 0)
        return bad < 0 ? bad : 0;
    if (stream_avail(st) == 0 && (n = iwarp_direct_plan(ep, got + r->given, *room, iov)) > 0) {
        uint64_t before = st->rx.placed;

        cr_assert_leq(n, IWARP_DIRECT_IOV);
        /* (What lies behind what is given now means nothing.) */
        iwarp_direct_fed(ep, n = take(r, iov, n, most));
        bad = stream_poll(st);
        r->given += (size_t)(st->rx.placed - before);
        *room -= (size_t)(st->rx.placed - before);
        r->direct += (size_t)(st->rx.placed - before);
    } else {
        uint8_t *to;
        size_t space = iwarp_in_space(ep, &to), ahead = iwarp_direct_ahead(ep, *room);

        cr_assert_gt(ahead, 0u);
        iov[0] = (struct iovec){ to, space < ahead ? space : ahead };
        cr_assert_gt(iov[0].iov_len, 0u);
        n = take(r, iov, 1, most);
        iwarp_in_fed(ep, n);
        r->staged += n;
    }
    return bad < 0 ? bad : 0;
}

/*
 * Up to octet `end` of the wire, in pieces of at most `piece` octets; a new call of the program's whenever one has got
 * something.
 */
static int receive(struct receiver *r, size_t end, size_t piece)
{
    size_t room = r->room;
    int bad = 0;

    while (bad == 0 && r->at < end) {
        size_t before = r->given;

        bad = step(r, &room, piece < end - r->at ? piece : end - r->at);
        if (r->given > before && (room == 0 || r->given % 3 == 0))
            room = r->room;
    }
    for (size_t before = SIZE_MAX; bad == 0 && before != r->given;) {
        before = r->given;
        room = r->room;
        bad = step(r, &room, 0);
    }
    return bad;
}

static void check(const struct receiver *r, size_t want, const char *what, size_t arg)
{
    cr_assert_eq(r->given, want, "%s %zu: %zu of %zu octets", what, arg, r->given, want);
    cr_assert_arr_eq(got, sent, r->given, "%s %zu: other octets", what, arg);
    cr_assert_eq(r->e->st.rx.total, r->given);
    cr_assert_eq(r->e->st.rx.avail, 0u);
}

static struct receiver receiver(size_t room)
{
    return (struct receiver){ .e = &p.b, .room = room };
}

Test(iwarp_direct, a_run_like_the_one_before_goes_directly_frame_after_frame)
{
    struct receiver r;
    size_t first;

    setup(true);
    write_one(20000);
    first = wire_len;
    write_one(20000);
    write_one(20000);
    r = receiver(20000);
    cr_assert_eq(receive(&r, first, SIZE_MAX), 0);
    cr_assert_eq(receive(&r, wire_len, SIZE_MAX), 0);
    check(&r, 60000, "all", 0);
    /* In pieces as large as there is room for, only the first run has to be staged; short Writes are in any case. */
    cr_assert_eq(r.direct, 2 * 16256u, "%zu", r.direct);
    teardown();
}

Test(iwarp_direct, in_pieces_of_any_size)
{
    for (size_t piece = 1; piece < 9000; piece += piece < 40 ? 1 : piece / 3) {
        struct receiver r;

        setup(piece % 2);
        for (int i = 0; i < 3; i++)
            write_one(20000);
        write_one(13);
        write_one(40000);
        write_one(12000);
        r = receiver(50000);
        cr_assert_eq(receive(&r, wire_len, piece), 0);
        check(&r, sent_len, "pieces of", piece);
        teardown();
    }
}

/* The second run is received with all of it foreseen, cut once at each octet; what is behind the cut comes later. */
Test(iwarp_direct, a_foreseen_run_cut_at_any_octet)
{
    size_t first, all;
    uint8_t *copy;

    setup(true);
    write_one(20000);
    first = wire_len;
    write_one(20000);
    all = wire_len;
    copy = malloc(all);
    memcpy(copy, wire, all);
    teardown();
    for (size_t cut = first; cut <= all; cut += cut < first + 100 || cut > all - 90 ? 1 : 61) {
        struct receiver r;

        setup(true);
        write_one(20000);
        write_one(20000);
        cr_assert_arr_eq(wire, copy, all);
        r = receiver(20000);
        cr_assert_eq(receive(&r, first, SIZE_MAX), 0);
        check(&r, 20000, "before", 0);
        cr_assert_eq(receive(&r, cut, SIZE_MAX), 0);
        cr_assert_leq(r.given, 40000u);
        cr_assert_arr_eq(got, sent, r.given);
        /* 8128, 8128, 3744 octets, the notify: an end here is a clean one if no frame was begun. */
        cr_assert_eq(iwarp_in_eof(&p.b.side.ep),
                     cut == first || cut == first + 8148 || cut == first + 2 * 8148 || cut == first + 2 * 8148 + 3764 ||
                         cut == all,
                     "cut at %zu of %zu", cut - first, all - first);
        cr_assert_eq(receive(&r, all, SIZE_MAX), 0);
        check(&r, 40000, "cut at", cut);
        teardown();
    }
    free(copy);
}

/* What was foreseen is wrong in length, kind or number of frames: still the same stream. */
Test(iwarp_direct, runs_that_differ_from_the_one_before)
{
    static const size_t lens[][4] = {
        { 20000, 20000, 12000, 20000 }, { 20000, 20000, 28000, 28000 }, { 28000, 28000, 20000, 28000 },
        { 20000, 20000, 20001, 20004 }, { 20000, 20000, 8128, 20000 },  { 40000, 40000, 700, 40000 },
        { 20000, 20000, 1, 20000 },     { 16256, 16256, 16257, 16255 }, { 20000, 20480, 20000, 20480 },
    };
    for (size_t i = 0; i < SW_ARRAY_LEN(lens); i++) {
        struct receiver r;
        size_t first;

        setup(true);
        write_one(lens[i][0]);
        first = wire_len;
        for (int k = 1; k < 4; k++)
            write_one(lens[i][k]);
        r = receiver(ROOM);
        cr_assert_eq(receive(&r, first, SIZE_MAX), 0);
        /* In one piece: what is in the program's memory too early has to come out of it again. */
        cr_assert_eq(receive(&r, wire_len, SIZE_MAX), 0);
        check(&r, sent_len, "row", i);
        cr_assert_gt(r.direct, 0u, "row %zu", i);
        teardown();
    }
}

/* RFC 5044 4.4/11,12: a frame whose CRC is wrong is nobody's, and nothing behind it is. */
Test(iwarp_direct, a_wrong_octet_anywhere_is_never_delivered)
{
    size_t first;

    setup(true);
    write_one(20000);
    write_one(20000);
    first = wire_len;
    write_one(20000);
    teardown();
    for (size_t bad = first; bad < first + 20100; bad += bad < first + 70 ? 1 : 61) {
        struct receiver r;
        size_t end;
        int e;

        setup(true);
        for (int i = 0; i < 3; i++)
            write_one(20000);
        end = wire_len;
        cr_assert_gt(end, bad);
        r = receiver(20000);
        cr_assert_eq(receive(&r, first, SIZE_MAX), 0);
        wire[bad] ^= 0x10;
        e = receive(&r, end, SIZE_MAX);
        /* (A wrong length may make it wait for more.) */
        cr_assert(e == -EPROTO || (bad - first) % 8148 < 2 || bad - first >= 2 * 8148 + 3764, "octet %zu: %d",
                  bad - first, e);
        cr_assert(r.given == 40000u || r.given == 48128u || r.given == 56256u || r.given == 60000u,
                  "octet %zu: %zu given", bad - first, r.given);
        cr_assert_leq(r.given - 40000u, bad - first, "octet %zu: %zu given", bad - first, r.given);
        cr_assert_arr_eq(got, sent, r.given);
        if (e < 0) {
            struct endpoint_event ev;
            cr_assert_eq(iwarp_poll(&p.b.side.ep.base, &ev), -EPROTO);
            cr_assert_eq(iwarp_error(&p.b.side.ep).layer, TERM_LAYER_LLP);
        }
        teardown();
    }
}

Test(iwarp_direct, no_plan_while_octets_wait_or_room_is_short)
{
    struct iovec iov[IWARP_DIRECT_IOV];
    struct iwarp_ep *ep = &p.b.side.ep;
    uint8_t *to;

    setup(true);
    write_one(20000);
    cr_assert_eq(iwarp_direct_plan(ep, got, ROOM, iov), 0u, "nothing is there");
    cr_assert_geq(iwarp_in_space(ep, &to), 8300u);
    memcpy(to, wire, 15);
    iwarp_in_fed(ep, 15);
    cr_assert_eq(iwarp_direct_plan(ep, got, ROOM, iov), 0u, "half a header");
    to[15] = wire[15];
    iwarp_in_fed(ep, 1);
    cr_assert_eq(iwarp_direct_plan(ep, got, 8127, iov), 0u, "too little room");
    cr_assert_eq(iwarp_direct_plan(ep, got, 8128, iov), 2u);
    /* It was not carried out: the same octets by staging. */
    memcpy(to + 16, wire + 16, 8184);
    iwarp_in_fed(ep, 8184);
    cr_assert_eq(stream_poll(&p.b.st), 1);
    cr_assert_eq(stream_avail(&p.b.st), 8128u);
    cr_assert_eq(iwarp_direct_plan(ep, got, ROOM, iov), 0u, "an event's octets are there");
    teardown();
}

Test(iwarp_direct, random_writes_and_pieces)
{
    uint64_t prng = 88172645463325252u;

    for (int round = 0; round < 60; round++) {
        struct receiver r;
        size_t usual = 1 + prng32(&prng) % 30000;

        setup(round % 4 != 0);
        while (sent_len < ROOM / 2) {
            size_t len = prng32(&prng) % 3 ? usual : 1 + prng32(&prng) % (prng32(&prng) % 2 ? 300 : 30000);

            write_one(len);
        }
        r = receiver(1 + prng32(&prng) % 60000);
        while (r.at < wire_len) {
            size_t room = 1 + prng32(&prng) % r.room;

            for (int k = 0; k < 5 && r.at < wire_len && room > 0; k++) {
                size_t piece = 1 + prng32(&prng) % (prng32(&prng) % 2 ? 100 : 60000);

                cr_assert_eq(step(&r, &room, piece < wire_len - r.at ? piece : wire_len - r.at), 0);
            }
        }
        cr_assert_eq(receive(&r, wire_len, 1), 0);
        check(&r, sent_len, "round", (size_t)round);
        teardown();
    }
}
