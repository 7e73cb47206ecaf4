/*
 * The cache of peers that turned out to be plain.
 */
#include "core/negotiate/verdict.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

static struct verdicts v;

union addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static union addr at(const char *text, unsigned port, uint32_t scope)
{
    union addr a;

    memset(&a, 0, sizeof(a));
    if (strchr(text, ':')) {
        a.in6.sin6_family = AF_INET6;
        a.in6.sin6_port = htons((uint16_t)port);
        a.in6.sin6_scope_id = scope;
        cr_assert_eq(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
    } else {
        a.in.sin_family = AF_INET;
        a.in.sin_port = htons((uint16_t)port);
        cr_assert_eq(inet_pton(AF_INET, text, &a.in.sin_addr), 1);
    }
    return a;
}

Test(verdict, it_holds_until_its_time_and_for_that_address_and_port_only)
{
    union addr a = at("192.0.2.1", 80, 0);
    union addr others[] = {
        at("192.0.2.1", 81, 0),
        at("192.0.2.2", 80, 0),
        at("::ffff:192.0.2.1", 80, 0),
        at("c000:201::", 80, 0),
    };

    cr_expect(!verdict_plain(&v, &a.sa, 0), "nothing is known at first");
    verdict_add(&v, &a.sa, 0, 1000);
    cr_expect(verdict_plain(&v, &a.sa, 0));
    cr_expect(verdict_plain(&v, &a.sa, 999));
    cr_expect(!verdict_plain(&v, &a.sa, 1000));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect(!verdict_plain(&v, &others[i].sa, 0), "%zu", i);
    verdict_add(&v, &a.sa, 4000, 1000);
    cr_expect(verdict_plain(&v, &a.sa, 4999), "asked again, answered again");
    cr_expect(!verdict_plain(&v, &a.sa, 5000));
}

/* The times at which a client that connects all the time learns it anew. */
Test(verdict, it_holds_twice_as_long_each_time_it_is_learned_anew)
{
    const uint64_t s = 1000000000u, max = VERDICT_TTL_MAX_NS, start = 7 * s;
    union addr a = at("192.0.2.1", 80, 0);
    uint64_t now = start, ttl = 60 * s;
    unsigned asked = 0;

    while (now < start + 24 * 3600 * s) {
        verdict_add(&v, &a.sa, now, 60 * s);
        asked++;
        cr_assert(verdict_plain(&v, &a.sa, now + ttl - 1), "time %u", asked);
        cr_assert(!verdict_plain(&v, &a.sa, now + ttl), "time %u", asked);
        now += ttl;
        ttl = 2 * ttl < max ? 2 * ttl : max;
    }
    cr_expect_eq(asked, 29u, "in a day: %u", asked); /* 6 in 63 minutes, then one an hour */
    verdict_add(&v, &a.sa, now + max + 1, 60 * s);
    cr_expect(!verdict_plain(&v, &a.sa, now + max + 1 + 60 * s), "long not found plain: as at first");
}

Test(verdict, one_that_holds_is_not_lengthened_by_many_at_once)
{
    union addr a = at("192.0.2.1", 80, 0);

    for (unsigned i = 0; i < 100; i++)
        verdict_add(&v, &a.sa, i, 1000);
    cr_expect(verdict_plain(&v, &a.sa, 999));
    cr_expect(!verdict_plain(&v, &a.sa, 1000));
}

Test(verdict, a_longer_time_than_the_largest_stays_as_it_is)
{
    const uint64_t day = 86400000000000u;
    union addr a = at("192.0.2.1", 80, 0);

    verdict_add(&v, &a.sa, 0, day);
    verdict_add(&v, &a.sa, day, day);
    cr_expect(verdict_plain(&v, &a.sa, 2 * day - 1));
    cr_expect(!verdict_plain(&v, &a.sa, 2 * day));
}

Test(verdict, ipv6_peers_on_different_links_are_different)
{
    union addr a = at("fe80::1", 443, 2), b = at("fe80::1", 443, 3);

    verdict_add(&v, &a.sa, 0, 10);
    cr_expect(verdict_plain(&v, &a.sa, 1));
    cr_expect(!verdict_plain(&v, &b.sa, 1));
    /* What is no part of the address does not matter. */
    a.in6.sin6_flowinfo = 7;
    cr_expect(verdict_plain(&v, &a.sa, 1));
}

Test(verdict, other_families_are_never_known)
{
    struct sockaddr_storage s = { .ss_family = AF_UNIX };
    struct sockaddr none = { .sa_family = AF_UNSPEC };

    verdict_add(&v, (struct sockaddr *)&s, 0, 10);
    verdict_add(&v, &none, 0, 10);
    cr_expect(!verdict_plain(&v, (struct sockaddr *)&s, 1));
    cr_expect(!verdict_plain(&v, &none, 1));
    for (size_t i = 0; i < VERDICT_SLOTS; i++)
        cr_expect_eq(v.slot[i].family, 0);
}

Test(verdict, more_peers_than_slots_drop_older_ones_and_never_lie)
{
    unsigned known = 0;

    for (unsigned i = 0; i < 5 * VERDICT_SLOTS; i++) {
        union addr a = at("198.51.100.7", 1 + i, 0);

        verdict_add(&v, &a.sa, 0, 100);
        cr_assert(verdict_plain(&v, &a.sa, 1), "the newest is known");
    }
    for (unsigned i = 0; i < 5 * VERDICT_SLOTS; i++) {
        union addr a = at("198.51.100.7", 1 + i, 0), b = at("198.51.100.8", 1 + i, 0);

        known += verdict_plain(&v, &a.sa, 1);
        cr_assert(!verdict_plain(&v, &b.sa, 1));
    }
    cr_expect_leq(known, VERDICT_SLOTS);
    cr_expect_gt(known, VERDICT_SLOTS / 2, "ports spread over the slots: %u", known);
}
