/*
 * The iWARP port mapper's messages: octet by octet, cut everywhere, and the exchange of two ends, the accepting one by words of its
 * own with iwpmd's rules.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/must.h"
#include "core/mpa/portmap.h"

/* 10.0.0.2:40000 asks for 10.0.0.1:5201; its own port is mapped to 40001. */
static const uint8_t request_octets[PORTMAP_REQUEST_LEN] = {
    0x04, 0, 0x9c, 0x41, 0x14, 0x51, 0x9c, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, /* type 0, IPv4; ports; handle */
    10,   0, 0,    2,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0, /* who connects */
    10,   0, 0,    1,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0, /* who accepts */
    10,   0, 0,    2,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0, /* where the former is mapped to */
};

static struct portmap_msg question(void)
{
    return (struct portmap_msg){
        .type = PORTMAP_REQUEST,
        .ip = 4,
        .handle = 0x0102030405060708,
        .accepting = { { 10, 0, 0, 1 }, 5201 },
        .connecting = { { 10, 0, 0, 2 }, 40000 },
        .mapped = { { 10, 0, 0, 2 }, 40001 },
    };
}

static bool same(const struct portmap_msg *a, const struct portmap_msg *b)
{
    return a->type == b->type && a->ip == b->ip && a->time == b->time && a->handle == b->handle &&
           memcmp(&a->accepting, &b->accepting, sizeof(a->accepting)) == 0 &&
           memcmp(&a->connecting, &b->connecting, sizeof(a->connecting)) == 0 &&
           memcmp(&a->mapped, &b->mapped, sizeof(a->mapped)) == 0;
}

Test(portmap, octets_of_a_request)
{
    struct portmap_msg m = question(), out;
    uint8_t buf[PORTMAP_REQUEST_LEN];

    cr_assert_eq(portmap_encode(&m, buf, sizeof(buf)), (ssize_t)sizeof(buf));
    cr_expect_arr_eq(buf, request_octets, sizeof(buf));
    cr_assert_eq(portmap_decode(request_octets, sizeof(request_octets), &out), 0);
    cr_expect(same(&m, &out));
}

/* Each octet of the message belongs to one field: another octet is another message, or none; but for the rest of an IPv4 address. */
Test(portmap, each_octet_counts)
{
    for (uint8_t ip = 4; ip <= 6; ip += 2)
        for (uint8_t type = PORTMAP_REQUEST; type <= PORTMAP_REJECT; type++) {
            struct portmap_msg m = question(), out;
            uint8_t buf[PORTMAP_REQUEST_LEN];

            m.ip = ip;
            m.type = type;
            ssize_t n = portmap_encode(&m, buf, sizeof(buf));
            cr_assert_eq(n, type == PORTMAP_REQUEST ? 64 : 48);
            if (type != PORTMAP_REQUEST)
                memset(&m.mapped, 0, sizeof(m.mapped));
            for (size_t i = 0; i < (size_t)n; i++) {
                bool rest = (ip == 4 && i >= 16 && i % 16 >= 4) || (type != PORTMAP_REQUEST && (i == 2 || i == 3));
                buf[i] ^= 0x20;
                int r = portmap_decode(buf, (size_t)n, &out);
                cr_expect(rest ? r == 0 && same(&m, &out) : r < 0 || !same(&m, &out), "type %u, IPv%u, octet %zu", type,
                          ip, i);
                buf[i] ^= 0x20;
            }
        }
}

Test(portmap, every_type_comes_back_and_every_truncation_is_refused)
{
    for (uint8_t ip = 4; ip <= 6; ip += 2)
        for (uint8_t type = PORTMAP_REQUEST; type <= PORTMAP_REJECT; type++) {
            struct portmap_msg m = question(), out;
            uint8_t buf[PORTMAP_REQUEST_LEN + 1] = { 0 };

            m.ip = ip;
            m.type = type;
            m.time = 7;
            if (ip == 6)
                memset(m.accepting.ip, 0xfe, sizeof(m.accepting.ip));
            if (type != PORTMAP_REQUEST)
                memset(&m.mapped, 0, sizeof(m.mapped));
            size_t n = (size_t)portmap_encode(&m, buf, sizeof(buf));
            for (size_t cut = 0; cut <= n + 1; cut++) {
                uint8_t *part = malloc(cut ? cut : 1);
                memcpy(part, buf, cut);
                cr_expect_eq(portmap_decode(part, cut, &out), cut < n ? -EMSGSIZE : 0, "type %u: %zu of %zu", type, cut,
                             n);
                cr_expect(cut < n || same(&m, &out));
                free(part);
            }
            for (size_t cap = 0; cap < n; cap++)
                cr_expect_eq(portmap_encode(&m, buf, cap), -EMSGSIZE);
        }
}

Test(portmap, other_versions_are_refused)
{
    struct portmap_msg m = question(), out;
    uint8_t buf[PORTMAP_REQUEST_LEN];

    for (unsigned first = 0; first < 256; first++) {
        memcpy(buf, request_octets, sizeof(buf));
        buf[0] = (uint8_t)first;
        bool good = first >> 6 == 0 && ((first & 15) == 4 || (first & 15) == 6);
        cr_expect_eq(portmap_decode(buf, sizeof(buf), &out), good ? 0 : -EPROTO, "%#x", first);
    }
    for (unsigned ip = 0; ip < 256; ip++) {
        m.ip = (uint8_t)ip;
        cr_expect_eq(portmap_encode(&m, buf, sizeof(buf)), ip == 4 || ip == 6 ? 64 : -EINVAL);
    }
    m = question();
    m.type = PORTMAP_REJECT + 1;
    cr_expect_eq(portmap_encode(&m, buf, sizeof(buf)), -EINVAL);
}

/* ---- the exchange ---- */

/*
 * The accepting end, as iwpmd: it looks for the asked address and port among its mappings, puts the mapped port there, and says the
 * rest again; it repeats the ACCEPT until the ACK comes.
 */
struct mapper {
    uint16_t bound, mapped;
    bool acknowledged;
};

static size_t mapper_hear(struct mapper *m, const uint8_t *buf, size_t len, uint8_t *answer)
{
    cr_assert_eq(len, buf[0] == 0x04 ? 64u : 48u);
    if (buf[0] == 0x24) { /* ACK */
        m->acknowledged = get_be16(buf + 4) == m->mapped;
        return 0;
    }
    cr_assert_eq(buf[0], 0x04, "a REQUEST, IPv4");
    bool known = get_be16(buf + 4) == m->bound && memcmp(buf + 32, "\12\0\0\1", 4) == 0;
    memcpy(answer, buf, 48);
    answer[0] = known ? 0x14 : 0x34;
    put_be16(answer + 2, 0);
    if (known)
        put_be16(answer + 4, m->mapped);
    return 48;
}

Test(portmap, a_mapped_port_is_told_and_acknowledged)
{
    struct mapper mapper = { 5201, 61000, false };
    struct portmap_msg ask = question();
    uint8_t buf[PORTMAP_REQUEST_LEN], answer[PORTMAP_LEN], ack[PORTMAP_LEN];
    uint16_t port = 0;

    ssize_t n = portmap_encode(&ask, buf, sizeof(buf));
    size_t len = mapper_hear(&mapper, buf, (size_t)n, answer);
    for (int again = 0; again < 2; again++) { /* the first ACK may be lost */
        port = 0;
        mapper.acknowledged = false;
        cr_assert_eq(portmap_hear(&ask, answer, len, &port, ack), 1);
        cr_expect_eq(port, 61000);
        cr_expect_eq(mapper_hear(&mapper, ack, sizeof(ack), buf), 0u);
        cr_expect(mapper.acknowledged);
    }
}

Test(portmap, a_port_that_is_not_mapped_is_told_as_well)
{
    struct mapper mapper = { 5202, 61000, false };
    struct portmap_msg ask = question();
    uint8_t buf[PORTMAP_REQUEST_LEN], answer[PORTMAP_LEN], ack[PORTMAP_LEN];
    uint16_t port = 1;

    ssize_t n = portmap_encode(&ask, buf, sizeof(buf));
    size_t len = mapper_hear(&mapper, buf, (size_t)n, answer);
    cr_expect_eq(portmap_hear(&ask, answer, len, &port, ack), -ECONNREFUSED);
    cr_expect_eq(port, 1);
}

/* Anybody can send a datagram. */
Test(portmap, what_does_not_answer_the_question_is_ignored)
{
    struct mapper mapper = { 5201, 61000, false };
    struct portmap_msg ask = question();
    uint8_t buf[PORTMAP_REQUEST_LEN], good[PORTMAP_LEN], answer[PORTMAP_LEN], ack[PORTMAP_LEN];
    uint16_t port = 1;

    ssize_t n = portmap_encode(&ask, buf, sizeof(buf));
    mapper_hear(&mapper, buf, (size_t)n, good);
    for (uint8_t type = PORTMAP_ACCEPT; type <= PORTMAP_REJECT; type += 2)
        for (size_t i = 0; i < sizeof(good); i++) {
            bool free_octets =
                (i >= 1 && i < 4) || (i >= 16 && i % 16 >= 4) || (type == PORTMAP_ACCEPT && (i == 4 || i == 5));
            memcpy(answer, good, sizeof(answer));
            answer[0] = (uint8_t)(type << 4 | 4);
            if (type == PORTMAP_REJECT)
                put_be16(answer + 4, 5201);
            answer[i] ^= 0x40;
            int r = portmap_hear(&ask, answer, sizeof(answer), &port, ack);
            cr_expect_eq(r,
                         !free_octets             ? 0
                         : type == PORTMAP_ACCEPT ? 1
                                                  : -ECONNREFUSED,
                         "type %u, octet %zu: %d", type, i, r);
        }
    put_be16(good + 4, 0);
    cr_expect_eq(portmap_hear(&ask, good, sizeof(good), &port, ack), 0, "port 0");
    put_be16(good + 4, 61000);
    for (size_t cut = 0; cut < sizeof(good); cut++)
        cr_expect_eq(portmap_hear(&ask, good, cut, &port, ack), 0);
    cr_expect_eq(portmap_hear(&ask, buf, sizeof(buf), &port, ack), 0, "the question itself");
    good[0] = 0x24;
    cr_expect_eq(portmap_hear(&ask, good, sizeof(good), &port, ack), 0, "an ACK");
}
