/*
 * The cache of peers that turned out to be plain.
 */
#include "core/negotiate/verdict.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

static struct verdicts v;
static const uint64_t here = 7; /* a network */

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

static bool plain(const struct sockaddr *peer, uint64_t now_ns, uint64_t ttl_ns)
{
    struct verdict_entry key;

    return verdict_key(&key, peer, here) && verdict_holds(&v.slot[verdict_slot(&key)], &key, now_ns, ttl_ns);
}

static void add(const struct sockaddr *peer, uint64_t now_ns, uint64_t ttl_ns)
{
    struct verdict_entry key;

    if (verdict_key(&key, peer, here))
        verdict_renew(&v.slot[verdict_slot(&key)], &key, now_ns, ttl_ns);
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

    cr_expect(!plain(&a.sa, 0, 1000), "nothing is known at first");
    add(&a.sa, 0, 1000);
    cr_expect(plain(&a.sa, 0, 1000));
    cr_expect(plain(&a.sa, 999, 1000));
    cr_expect(!plain(&a.sa, 1000, 1000));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect(!plain(&others[i].sa, 0, 1000), "%zu", i);
    add(&a.sa, 4000, 1000);
    cr_expect(plain(&a.sa, 4999, 1000), "asked again, answered again");
    cr_expect(!plain(&a.sa, 5000, 1000));
}

/* The times at which a client that connects all the time learns it anew. */
Test(verdict, it_holds_twice_as_long_each_time_it_is_learned_anew)
{
    const uint64_t s = 1000000000u, max = VERDICT_TTL_MAX_NS, start = 7 * s;
    union addr a = at("192.0.2.1", 80, 0);
    uint64_t now = start, ttl = 60 * s;
    unsigned asked = 0;

    while (now < start + 24 * 3600 * s) {
        add(&a.sa, now, 60 * s);
        asked++;
        cr_assert(plain(&a.sa, now + ttl - 1, 60 * s), "time %u", asked);
        cr_assert(!plain(&a.sa, now + ttl, 60 * s), "time %u", asked);
        now += ttl;
        ttl = 2 * ttl < max ? 2 * ttl : max;
    }
    cr_expect_eq(asked, 29u, "in a day: %u", asked); /* 6 in 63 minutes, then one an hour */
    add(&a.sa, now + max + 1, 60 * s);
    cr_expect(!plain(&a.sa, now + max + 1 + 60 * s, 60 * s), "long not found plain: as at first");
}

Test(verdict, one_that_holds_is_not_lengthened_by_many_at_once)
{
    union addr a = at("192.0.2.1", 80, 0);

    for (unsigned i = 0; i < 100; i++)
        add(&a.sa, i, 1000);
    cr_expect(plain(&a.sa, 999, 1000));
    cr_expect(!plain(&a.sa, 1000, 1000));
}

Test(verdict, a_longer_time_than_the_largest_stays_as_it_is)
{
    const uint64_t day = 86400000000000u;
    union addr a = at("192.0.2.1", 80, 0);

    add(&a.sa, 0, day);
    add(&a.sa, day, day);
    cr_expect(plain(&a.sa, 2 * day - 1, day));
    cr_expect(!plain(&a.sa, 2 * day, day));
}

Test(verdict, ipv6_peers_on_different_links_are_different)
{
    union addr a = at("fe80::1", 443, 2), b = at("fe80::1", 443, 3);

    add(&a.sa, 0, 10);
    cr_expect(plain(&a.sa, 1, 10));
    cr_expect(!plain(&b.sa, 1, 10));
    /* What is no part of the address does not matter. */
    a.in6.sin6_flowinfo = 7;
    cr_expect(plain(&a.sa, 1, 10));
}

Test(verdict, other_families_are_never_known)
{
    struct sockaddr_storage s = { .ss_family = AF_UNIX };
    struct sockaddr none = { .sa_family = AF_UNSPEC };

    add((struct sockaddr *)&s, 0, 10);
    add(&none, 0, 10);
    cr_expect(!plain((struct sockaddr *)&s, 1, 10));
    cr_expect(!plain(&none, 1, 10));
    for (size_t i = 0; i < VERDICT_SLOTS; i++)
        cr_expect_eq(v.slot[i].family, 0);
}

Test(verdict, more_peers_than_slots_drop_older_ones_and_never_lie)
{
    unsigned known = 0;

    for (unsigned i = 0; i < 5 * VERDICT_SLOTS; i++) {
        union addr a = at("198.51.100.7", 1 + i, 0);

        add(&a.sa, 0, 100);
        cr_assert(plain(&a.sa, 1, 100), "the newest is known");
    }
    for (unsigned i = 0; i < 5 * VERDICT_SLOTS; i++) {
        union addr a = at("198.51.100.7", 1 + i, 0), b = at("198.51.100.8", 1 + i, 0);

        known += plain(&a.sa, 1, 100);
        cr_assert(!plain(&b.sa, 1, 100));
    }
    cr_expect_leq(known, VERDICT_SLOTS);
    cr_expect_gt(known, VERDICT_SLOTS / 2, "ports spread over the slots: %u", known);
}

Test(verdict, the_same_address_on_another_network_is_another_peer)
{
    union addr a = at("10.0.0.1", 80, 0);
    struct verdict_entry key, e = { 0 };

    cr_assert(verdict_key(&key, &a.sa, here));
    cr_assert(verdict_renew(&e, &key, 0, 100));
    key.netns = here + 1;
    cr_expect(!verdict_holds(&e, &key, 1, 100));
    cr_expect(verdict_renew(&e, &key, 1, 100), "it takes the place");
    cr_expect_eq(e.again, 0);
    key.netns = 0;
    cr_expect(verdict_holds(&e, &key, 2, 100), "of any network");
}

Test(verdict, how_long_it_holds_is_the_takers_setting)
{
    union addr a = at("10.0.0.1", 80, 0);

    add(&a.sa, 0, 1000000);
    cr_expect(plain(&a.sa, 9, 10));
    cr_expect(!plain(&a.sa, 10, 10));
}

/* Any process of the user may write it, at any moment. */
Test(verdict, whatever_stands_in_a_record_no_verdict_holds_longer_than_the_longest)
{
    union addr a = at("10.0.0.1", 80, 0);
    struct verdict_entry key, e, good = { 0 };
    const uint64_t now = 5 * VERDICT_TTL_MAX_NS, ttl = 60000000000u;
    uint8_t *p = (uint8_t *)&e;

    cr_assert(verdict_key(&key, &a.sa, here));
    cr_assert(verdict_renew(&good, &key, now, ttl));
    for (size_t i = 0; i < sizeof(e); i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            e = good;
            p[i] ^= (uint8_t)(1u << bit);
            cr_assert(!verdict_holds(&e, &key, now, ttl), "octet %zu, bit %u", i, bit);
        }
    uint64_t held = ttl;
    e = (struct verdict_entry){ 0 };
    for (unsigned again = 0; again < 300; again++) { /* with the right check, too */
        cr_assert(verdict_renew(&e, &key, e.found_ns + held, ttl));
        held = again == 0 ? ttl : 2 * held < VERDICT_TTL_MAX_NS ? 2 * held : VERDICT_TTL_MAX_NS;
        cr_assert(verdict_holds(&e, &key, e.found_ns + held - 1, ttl), "%u", again);
        cr_assert(!verdict_holds(&e, &key, e.found_ns + held, ttl), "%u", again);
        cr_assert(!verdict_holds(&e, &key, e.found_ns - 1, ttl), "from the future");
    }
}
