/* Rules: what parses to what, where errors point, and which rule a connection gets. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mpa/startup.h"
#include "core/negotiate/hello.h"
#include "core/policy/policy.h"

static int parse(const char *text, struct policy *p, struct policy_error *err)
{
    struct policy_opts defaults = policy_default_opts(HELLO_TRANSPORT_IWARP);

    return policy_parse(text, &defaults, p, err);
}

/* One rule as a line: role family addr/prefix lo-hi action column. */
static void show(const struct policy_rule *r, char *buf, size_t cap)
{
    static const char *const roles[] = { "?", "connect", "accept", "any" };
    static const char *const actions[] = { "off", "auto", "require" };
    char addr[INET6_ADDRSTRLEN] = "*";

    if (r->private)
        strcpy(addr, "private");
    if (r->family != AF_UNSPEC)
        inet_ntop(r->family, r->addr, addr, sizeof(addr));
    snprintf(buf, cap, "%s %s/%u %u-%u %s @%u", roles[r->role], addr, r->prefix, r->port_lo, r->port_hi,
             actions[r->action], r->column);
}

Test(policy, good_rules_mean_what_the_grammar_says)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "any * auto", "any */0 0-65535 auto @1" },
        { "connect 10.0.0.1 off", "connect 10.0.0.1/32 0-65535 off @1" },
        { "accept *:80 require", "accept */0 80-80 require @1" },
        { "accept *:* auto", "accept */0 0-65535 auto @1" },
        { "any *:1-65535 auto", "any */0 1-65535 auto @1" },
        { "any 10.1.2.3/8 auto", "any 10.0.0.0/8 0-65535 auto @1" },
        { "any 10.1.255.3/15 auto", "any 10.0.0.0/15 0-65535 auto @1" },
        { "any 0.0.0.0/0 auto", "any 0.0.0.0/0 0-65535 auto @1" },
        { "any 192.168.1.0/24:5000-5100 auto", "any 192.168.1.0/24 5000-5100 auto @1" },
        { "any 192.168.1.7:* auto", "any 192.168.1.7/32 0-65535 auto @1" },
        { "any ::1 auto", "any ::1/128 0-65535 auto @1" },
        { "any ::/0 auto", "any ::/0 0-65535 auto @1" },
        { "any fe80::1234/10 auto", "any fe80::/10 0-65535 auto @1" },
        { "any [::1]:80 auto", "any ::1/128 80-80 auto @1" },
        { "any [fd00::1/8]:80-90 auto", "any fd00::/8 80-90 auto @1" },
        { "any [fd00::/8]:* auto", "any fd00::/8 0-65535 auto @1" },
        { "any [::1] auto", "any ::1/128 0-65535 auto @1" },
        { "any 1:2:3:4:5:6:7:8 auto", "any 1:2:3:4:5:6:7:8/128 0-65535 auto @1" },
        { "any ::ffff:10.1.2.3 auto", "any 10.1.2.3/32 0-65535 auto @1" },
        { "any ::ffff:10.1.2.3/104 auto", "any 10.0.0.0/8 0-65535 auto @1" },
        { "any [::ffff:10.1.2.3/120]:7 auto", "any 10.1.2.0/24 7-7 auto @1" },
        { "any private auto", "any private/0 0-65535 auto @1" },
        { "connect private:80-90 off", "connect private/0 80-90 off @1" },
        { "  \t any \n *   auto  ", "any */0 0-65535 auto @5" },
        { ";; ;any * off;", "any */0 0-65535 off @5" },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct policy_error err;
        struct policy p;
        char got[128];

        cr_expect_eq(parse(rows[i].text, &p, &err), 0, "'%s': %s", rows[i].text, err.text);
        cr_expect_eq(p.n, 1u, "'%s'", rows[i].text);
        if (p.n == 1) {
            show(&p.rules[0], got, sizeof(got));
            cr_expect_str_eq(got, rows[i].want, "'%s' gives '%s'", rows[i].text, got);
        }
        policy_free(&p);
    }
}

Test(policy, bad_rules_name_the_column_and_the_word)
{
    static const struct {
        const char *text;
        size_t column;
        const char *word;
    } rows[] = {
        { "any", 4, "missing address" },
        { "any * ", 7, "missing action" },
        { "any *;any * auto", 6, "missing action" },
        { "both * auto", 1, "unknown role 'both'" },
        { "Any * auto", 1, "unknown role 'Any'" },
        { "any * of", 7, "unknown action 'of'" },
        { "any * auto;  foo * auto", 14, "unknown role 'foo'" },
        { "any 10.0.0 auto", 5, "bad address '10.0.0'" },
        { "any 10.0.0.256 auto", 5, "bad address" },
        { "any host.example auto", 5, "bad address 'host.example'" },
        { "any host:80 auto", 5, "bad address 'host'" },
        { "any 10.0.0.1/33 auto", 14, "bad prefix length '33'" },
        { "any 10.0.0.1/ auto", 14, "bad prefix length ''" },
        { "any 10.0.0.1/-1 auto", 14, "bad prefix length '-1'" },
        { "any 10.0.0.1/8x auto", 14, "bad prefix length '8x'" },
        { "any ::1/129 auto", 9, "bad prefix length '129'" },
        { "any [::1/129]:1 auto", 10, "bad prefix length '129'" },
        { "any fe80::1%lo auto", 5, "bad address 'fe80::1%lo'" },
        { "any :80 auto", 5, "missing address" },
        { "any [::1 auto", 5, "missing ']'" },
        { "any [::1]80 auto", 10, "unexpected '80'" },
        { "any [10.0.0.1]:80 auto", 5, "brackets are for IPv6" },
        { "any [] auto", 5, "brackets are for IPv6" },
        { "any [::1]: auto", 11, "missing port" },
        { "any *: auto", 7, "missing port" },
        { "any *:0 auto", 7, "bad port '0'" },
        { "any *:65536 auto", 7, "bad port '65536'" },
        { "any *:4294967376 auto", 7, "bad port '4294967376'" },
        { "any *:18446744073709551696 auto", 7, "bad port" },
        { "any *:80x auto", 7, "bad port '80x'" },
        { "any *:+80 auto", 7, "bad port '+80'" },
        { "any *:80- auto", 7, "bad port '80-'" },
        { "any *:-80 auto", 7, "bad port '-80'" },
        { "any *:1-2-3 auto", 7, "bad port '1-2-3'" },
        { "any *:90-80 auto", 7, "'90-80' ends before it begins" },
        { "any Private auto", 5, "bad address 'Private'" },
        { "any private/8 auto", 5, "bad address 'private/8'" },
        { "any [private] auto", 5, "brackets are for IPv6" },
        { "any */8 auto", 5, "bad address '*/8'" },
        { "any 1:2:3 auto", 5, "bad address '1:2:3'" },
        { "any * auto foo", 12, "unknown option 'foo'" },
        { "any * auto foo=1", 12, "unknown option 'foo'" },
        { "any * auto crc", 15, "option 'crc' needs a value" },
        { "any * auto crc=", 16, "option 'crc' needs a value" },
        { "any * auto =on", 12, "unknown option ''" },
        { "any * auto crc=yes", 16, "not 'yes'" },
        { "any * auto crc=on crc=off", 19, "option 'crc' is given twice" },
        { "any * auto dialect=old", 20, "dialect is rfc or rtr-frame, not 'old'" },
        { "any * auto markers=1", 20, "markers is on or off, not '1'" },
        { "any * auto self=maybe", 17, "not 'maybe'" },
        { "any * auto notify=write", 19, "notify is send or immediate, not 'write'" },
        { "any * auto startup=later", 20, "startup is delayed, separate or immediate, not 'later'" },
        { "any * auto hello=never", 18, "hello is auto or always, not 'never'" },
        { "any * auto ask=never", 16, "ask is marked or always, not 'never'" },
        { "any * auto mark=1", 17, "mark is on or off, not '1'" },
        { "any * auto rtr=send+", 21, "unknown rtr ''" },
        { "any * auto rtr=send+foo", 21, "unknown rtr 'foo'" },
        { "any * auto rtr=read+read", 21, "'read' is named twice" },
        { "any * auto ird=16384", 16, "'16384' is not a number from 0 to 16383" },
        { "any * auto ord=x", 16, "'x' is not a number" },
        { "any * auto ord-min=17", 20, "'17' is not a number from 0 to 16" },
        { "any * auto model=both", 18, "model is peer-to-peer or client-server, not 'both'" },
        { "any * auto fpdu=127", 17, "not '127'" },
        { "any * auto fpdu=64769", 17, "not '64769'" },
        { "any * auto ring=65535", 17, "not '65535'" },
        { "any * auto ring=63K", 17, "not '63K'" },
        { "any * auto ring=2G", 17, "not '2G'" },
        { "any * auto ring=1T", 17, "not '1T'" },
        { "any * auto ring=M", 17, "not 'M'" },
        { "any * auto ring=4194304K", 17, "not '4194304K'" },
        { "any * auto transport=tcp", 22, "unknown transport 'tcp'" },
        { "any * auto transport=verbs", 22, "does not have transport 'verbs'" },
        { "any * auto transport=iwarp+x", 28, "unknown transport 'x'" },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct policy_error err;
        struct policy p = { (void *)1, 7, NULL };

        cr_expect_eq(parse(rows[i].text, &p, &err), -EINVAL, "'%s' is refused", rows[i].text);
        cr_expect_eq(err.column, rows[i].column, "'%s': column %zu", rows[i].text, err.column);
        cr_expect_neq(strstr(err.text, rows[i].word), NULL, "'%s': '%s'", rows[i].text, err.text);
        cr_expect_eq(p.n, 0u);
        cr_expect_eq(p.rules, NULL);
    }
}

Test(policy, errors_show_bad_words_cut_and_printable)
{
    struct policy_error err;
    struct policy p;
    char text[4000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    text[0] = '\x1b';
    cr_assert_eq(parse(text, &p, &err), -EINVAL);
    cr_assert_eq(strchr(err.text, '\x1b'), NULL);
    cr_assert_neq(strstr(err.text, "'?xxx"), NULL, "%s", err.text);
    cr_assert_neq(strstr(err.text, "xxx...'"), NULL, "%s", err.text);
}

/* RFC 5044 4.4/3 and RFC 5044 1.2/2: "The default configuration for a connection MUST be to use CRCs" */
Test(policy, options_default_and_override)
{
    struct policy_error err;
    struct policy p;
    struct policy_opts *o;

    cr_assert_eq(parse("any * auto", &p, &err), 0);
    o = &p.rules[0].opts;
    cr_expect_eq(o->transports, HELLO_TRANSPORT_IWARP);
    cr_expect(o->crc && !o->markers && !o->immediate && !o->separate && !o->self && !o->hello_always);
    cr_expect(!o->ask_always && o->mark && o->meet);
    cr_expect(!o->rtr_frame);
    cr_expect_eq(o->rtr, MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ);
    cr_expect_eq(o->rtr_pref[0], MPA_RTR_SEND);
    cr_expect_eq(o->rtr_pref[1], MPA_RTR_WRITE);
    cr_expect_eq(o->rtr_pref[2], MPA_RTR_READ);
    cr_expect(o->ird == 8 && o->ord == 8 && o->ord_min == 0);
    cr_expect(!o->client_server);
    cr_expect_eq(o->fpdu_len, 64768u);
    cr_expect_eq(o->ring_len, 1u << 20);
    policy_free(&p);

    cr_assert_eq(parse("any * auto crc=off markers=off rtr=read+send ird=0 ord=16383 fpdu=emss ring=64K "
                       "startup=immediate dialect=rtr-frame self=on hello=always transport=verbs+iwarp "
                       "ask=always mark=off meet=off ord-min=16 model=client-server",
                       &p, &err),
                 0, "%s", err.text);
    o = &p.rules[0].opts;
    cr_expect_eq(o->transports, HELLO_TRANSPORT_IWARP, "what is not built in falls out");
    cr_expect(!o->crc && !o->markers && o->immediate && o->self && o->hello_always);
    cr_expect(o->ask_always && !o->mark && !o->meet);
    cr_expect(o->rtr_frame);
    cr_expect_eq(o->rtr, MPA_RTR_SEND | MPA_RTR_READ);
    cr_expect_eq(o->rtr_pref[0], MPA_RTR_READ);
    cr_expect_eq(o->rtr_pref[1], MPA_RTR_SEND);
    cr_expect_eq(o->rtr_pref[2], 0);
    cr_expect(o->ird == 0 && o->ord == 16383 && o->ord_min == 16);
    cr_expect(o->client_server);
    cr_expect_eq(o->fpdu_len, 0u);
    cr_expect_eq(o->ring_len, 65536u);
    policy_free(&p);
}

Test(policy, limits_of_numbers_are_inclusive)
{
    static const struct {
        const char *text;
        uint32_t fpdu_len, ring_len;
    } rows[] = {
        { "any * auto fpdu=128 ring=65536", 128, 65536 },  { "any * auto fpdu=64768 ring=1G", 64768, 1u << 30 },
        { "any * auto ring=1073741824", 64768, 1u << 30 }, { "any * auto ring=1048576K", 64768, 1u << 30 },
        { "any * auto ring=3M", 64768, 3u << 20 },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct policy_error err;
        struct policy p;

        cr_assert_eq(parse(rows[i].text, &p, &err), 0, "%s: %s", rows[i].text, err.text);
        cr_expect_eq(p.rules[0].opts.fpdu_len, rows[i].fpdu_len);
        cr_expect_eq(p.rules[0].opts.ring_len, rows[i].ring_len);
        policy_free(&p);
    }
}

Test(policy, options_belong_to_their_rule_only)
{
    struct policy_error err;
    struct policy p;

    cr_assert_eq(parse("connect * auto crc=off; accept * auto", &p, &err), 0);
    cr_assert_eq(p.n, 2u);
    cr_expect(!p.rules[0].opts.crc);
    cr_expect(p.rules[1].opts.crc);
    cr_expect_eq(p.rules[1].column, 25u);
    policy_free(&p);
}

Test(policy, nothing_but_separators_is_an_empty_policy)
{
    static const char *const rows[] = { "", " ", ";", " ; ;\t;" };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct policy_error err;
        struct policy p;

        cr_expect_eq(parse(rows[i], &p, &err), 0);
        cr_expect_eq(p.n, 0u);
        policy_free(&p);
    }
}

Test(policy, many_rules_keep_their_order)
{
    struct policy_error err;
    struct policy p;
    char text[8000] = "";
    size_t len = 0;

    for (int i = 1; i <= 300; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "any *:%d auto;", i);
    cr_assert_eq(parse(text, &p, &err), 0);
    cr_assert_eq(p.n, 300u);
    for (unsigned i = 0; i < 300; i++)
        cr_assert_eq(p.rules[i].port_lo, i + 1);
    policy_free(&p);
}

/* "10.0.0.1:80" or "[::1]:80" as a sockaddr. */
static socklen_t make_addr(const char *text, struct sockaddr_storage *ss)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
    struct sockaddr_in *in = (struct sockaddr_in *)ss;

    memset(ss, 0, sizeof(*ss));
    if (text[0] == '[') {
        snprintf(host, sizeof(host), "%.*s", (int)(colon - text - 2), text + 1);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)atoi(colon + 1));
        cr_assert_eq(inet_pton(AF_INET6, host, &in6->sin6_addr), 1, "%s", text);
        return sizeof(*in6);
    }
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)atoi(colon + 1));
    cr_assert_eq(inet_pton(AF_INET, host, &in->sin_addr), 1, "%s", text);
    return sizeof(*in);
}

struct match_row {
    const char *rules;
    enum policy_role role;
    const char *addr;
    int want; /* index of the rule, -1 = none */
};

#define C POLICY_CONNECT
#define A POLICY_ACCEPT

Test(policy, first_matching_rule_wins)
{
    static const struct match_row rows[] = {
        { "any * auto", C, "10.0.0.1:80", 0 },
        { "any * auto", A, "[::1]:80", 0 },
        { "connect * auto", A, "10.0.0.1:80", -1 },
        { "accept * auto", C, "10.0.0.1:80", -1 },
        { "accept * auto;connect * off", C, "10.0.0.1:80", 1 },
        { "any * off;any * auto", C, "10.0.0.1:80", 0 },
        { "any 10.0.0.0/8 off;any * auto", C, "10.255.0.1:80", 0 },
        { "any 10.0.0.0/8 off;any * auto", C, "11.0.0.1:80", 1 },
        { "any 10.128.0.0/9 off", C, "10.127.255.255:80", -1 },
        { "any 10.128.0.0/9 off", C, "10.128.0.0:80", 0 },
        { "any 10.0.0.1/32 off", C, "10.0.0.0:80", -1 },
        { "any 10.0.0.1/31 off", C, "10.0.0.0:80", 0 },
        { "any 0.0.0.0/0 off", C, "255.1.2.3:80", 0 },
        { "any 0.0.0.0/0 off", C, "[::1]:80", -1 },
        { "any ::/0 off", C, "[fe80::1]:80", 0 },
        { "any ::/0 off", C, "10.0.0.1:80", -1 },
        { "any ::/0 off", C, "[::ffff:10.0.0.1]:80", -1 },
        { "any 10.0.0.0/8 off", C, "[::ffff:10.0.0.1]:80", 0 },
        { "any ::ffff:10.0.0.0/104 off", C, "10.0.0.1:80", 0 },
        { "any ::ffff:10.0.0.0/104 off", C, "[::ffff:10.0.0.1]:80", 0 },
        { "any 2001:db8::/33 off", C, "[2001:db8:7fff::1]:80", 0 },
        { "any 2001:db8::/33 off", C, "[2001:db8:8000::1]:80", -1 },
        { "any ::1 off", C, "[::1]:80", 0 },
        { "any ::1 off", C, "[::2]:80", -1 },
        { "any *:80-90 off", C, "1.2.3.4:79", -1 },
        { "any *:80-90 off", C, "1.2.3.4:80", 0 },
        { "any *:80-90 off", C, "1.2.3.4:90", 0 },
        { "any *:80-90 off", C, "1.2.3.4:91", -1 },
        { "any [::1]:80 off", C, "[::1]:81", -1 },
        { "", C, "1.2.3.4:80", -1 },
#define INSIDE(addr) { "any private auto", C, addr, 0 }, { "any private auto", A, addr, 0 }
#define OUTSIDE(addr)                    \
    { "any private auto", C, addr, -1 }, \
    {                                    \
        "any private auto", A, addr, -1  \
    }
        OUTSIDE("9.255.255.255:1"),
        INSIDE("10.0.0.0:1"),
        INSIDE("10.255.255.255:1"),
        OUTSIDE("11.0.0.0:1"),
        OUTSIDE("172.15.255.255:1"),
        INSIDE("172.16.0.0:1"),
        INSIDE("172.31.255.255:1"),
        OUTSIDE("172.32.0.0:1"),
        OUTSIDE("192.167.255.255:1"),
        INSIDE("192.168.0.0:1"),
        INSIDE("192.168.255.255:1"),
        OUTSIDE("192.169.0.0:1"),
        OUTSIDE("100.63.255.255:1"),
        INSIDE("100.64.0.0:1"),
        INSIDE("100.127.255.255:1"),
        OUTSIDE("100.128.0.0:1"),
        OUTSIDE("169.253.255.255:1"),
        INSIDE("169.254.0.0:1"),
        INSIDE("169.254.255.255:1"),
        OUTSIDE("169.255.0.0:1"),
        OUTSIDE("126.255.255.255:1"),
        INSIDE("127.0.0.0:1"),
        INSIDE("127.255.255.255:1"),
        OUTSIDE("128.0.0.0:1"),
        INSIDE("0.0.0.0:1"),
        OUTSIDE("0.0.0.1:1"),
        OUTSIDE("224.0.0.1:1"),
        INSIDE("[::]:1"),
        INSIDE("[::1]:1"),
        OUTSIDE("[::2]:1"),
        OUTSIDE("[fbff:ffff::1]:1"),
        INSIDE("[fc00::]:1"),
        INSIDE("[fdff:ffff::1]:1"),
        OUTSIDE("[fe00::]:1"),
        OUTSIDE("[fe7f:ffff::1]:1"),
        INSIDE("[fe80::]:1"),
        INSIDE("[febf:ffff::1]:1"),
        OUTSIDE("[fec0::]:1"),
        OUTSIDE("[2001:db8::1]:1"),
        INSIDE("[::ffff:10.0.0.1]:1"),
        OUTSIDE("[::ffff:8.8.8.8]:1"),
        { "any private:80 auto", C, "10.0.0.1:80", 0 },
        { "any private:80 auto", C, "10.0.0.1:81", -1 },
        { "connect private off;any * auto", C, "8.8.8.8:80", 1 },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        const struct policy_rule *r;
        struct sockaddr_storage ss;
        struct policy_error err;
        struct policy p;
        socklen_t len = make_addr(rows[i].addr, &ss);

        cr_assert_eq(parse(rows[i].rules, &p, &err), 0, "%s: %s", rows[i].rules, err.text);
        r = policy_match(&p, rows[i].role, (struct sockaddr *)&ss, len);
        cr_expect_eq(r ? (int)(r - p.rules) : -1, rows[i].want, "'%s' for %s", rows[i].rules, rows[i].addr);
        policy_free(&p);
    }
}

static unsigned own_asked;

static bool own_is_8888(const struct sockaddr *addr)
{
    struct sockaddr_in in;

    own_asked++;
    memcpy(&in, addr, sizeof(in));
    return in.sin_family == AF_INET && in.sin_addr.s_addr == htonl(0x08080808);
}

Test(policy, private_has_this_hosts_own_addresses_where_the_program_connects)
{
    struct sockaddr_storage ss;
    struct policy_error err;
    struct policy p;
    socklen_t len;

    cr_assert_eq(parse("any private:80 auto; any * off", &p, &err), 0);
    p.is_own = own_is_8888;
    len = make_addr("8.8.8.8:80", &ss);
    cr_expect_eq(policy_match(&p, C, (struct sockaddr *)&ss, len), &p.rules[0]);
    cr_expect_eq(own_asked, 1u);
    cr_expect_eq(policy_match(&p, A, (struct sockaddr *)&ss, len), &p.rules[1], "accepted at: by the lists alone");
    len = make_addr("10.0.0.1:80", &ss);
    cr_expect_eq(policy_match(&p, C, (struct sockaddr *)&ss, len), &p.rules[0]);
    len = make_addr("8.8.8.8:81", &ss);
    cr_expect_eq(policy_match(&p, C, (struct sockaddr *)&ss, len), &p.rules[1]);
    cr_expect_eq(own_asked, 1u, "asked only where it decides");
    len = make_addr("8.8.4.4:80", &ss);
    cr_expect_eq(policy_match(&p, C, (struct sockaddr *)&ss, len), &p.rules[1]);
    policy_free(&p);
    cr_expect_eq(p.is_own, NULL);
}

Test(policy, other_families_and_short_addresses_match_nothing)
{
    struct sockaddr_storage ss;
    struct policy_error err;
    struct policy p;
    struct sockaddr *sa = (struct sockaddr *)&ss;

    cr_assert_eq(parse("any * auto", &p, &err), 0);
    (void)make_addr("1.2.3.4:80", &ss);
    cr_expect_neq(policy_match(&p, C, sa, sizeof(struct sockaddr_in)), NULL);
    cr_expect_eq(policy_match(&p, C, sa, sizeof(struct sockaddr_in) - 1), NULL);
    cr_expect_eq(policy_match(&p, C, sa, 1), NULL);
    cr_expect_eq(policy_match(&p, C, sa, 0), NULL);
    cr_expect_eq(policy_match(&p, C, NULL, 16), NULL);
    (void)make_addr("[::1]:80", &ss);
    cr_expect_neq(policy_match(&p, C, sa, 24), NULL, "the kernel accepts it without a scope id");
    cr_expect_eq(policy_match(&p, C, sa, 23), NULL);
    ss.ss_family = AF_UNIX;
    cr_expect_eq(policy_match(&p, C, sa, sizeof(ss)), NULL);
    cr_expect_eq(policy_match_listener(&p, sa, sizeof(ss)), NULL);
    ss.ss_family = AF_UNSPEC;
    cr_expect_eq(policy_match(&p, C, sa, sizeof(ss)), NULL);
    policy_free(&p);
}

Test(policy, unaligned_addresses_of_programs_are_read)
{
    char raw[sizeof(struct sockaddr_in6) + 1];
    struct sockaddr_storage ss;
    struct policy_error err;
    struct policy p;
    socklen_t len = make_addr("[2001:db8::1]:80", &ss);

    cr_assert_eq(parse("any 2001:db8::/32 auto", &p, &err), 0);
    memcpy(raw + 1, &ss, len);
    cr_expect_neq(policy_match(&p, C, (struct sockaddr *)(void *)(raw + 1), len), NULL);
    policy_free(&p);
}

Test(policy, listener_gets_the_first_rule_that_could_match_and_is_not_off)
{
    static const struct match_row rows[] = {
        { "accept * auto", A, "0.0.0.0:80", 0 },
        { "accept * auto", A, "10.0.0.1:80", 0 },
        { "connect * auto", A, "0.0.0.0:80", -1 },
        { "accept *:81 auto", A, "0.0.0.0:80", -1 },
        { "accept 10.0.0.0/8 auto", A, "0.0.0.0:80", 0 },
        { "accept 10.0.0.0/8 auto", A, "11.0.0.1:80", -1 },
        { "accept 10.0.0.0/8 auto", A, "[::]:80", 0 }, /* dual stack */
        { "accept 10.0.0.0/8 auto", A, "[::1]:80", -1 },
        { "accept ::1 auto", A, "0.0.0.0:80", -1 },
        { "accept ::1 auto", A, "[::]:80", 0 },
        { "accept * off;any * auto", A, "0.0.0.0:80", -1 },
        { "accept *:80 off;any * auto", A, "0.0.0.0:80", -1 },
        { "accept *:80 off;any * auto", A, "0.0.0.0:81", 1 },
        { "accept 10.0.0.0/8 off;any * auto", A, "0.0.0.0:80", 1 },
        { "accept 10.0.0.0/8 off;any * auto", A, "10.0.0.1:80", -1 },
        { "accept 0.0.0.0/0 off;any * auto", A, "0.0.0.0:80", -1 },
        { "accept 0.0.0.0/0 off;any * auto", A, "[::]:80", 1 },
        { "accept 0.0.0.0/0 off;accept 10.0.0.1 auto", A, "[::]:80", -1 },
        { "accept 0.0.0.0/0 off;accept ::/0 off;any * auto", A, "[::]:80", -1 },
        { "accept 0.0.0.0/0 off;any * auto", A, "[::ffff:0.0.0.0]:80", -1 },
        { "accept ::/0 off;accept 10.0.0.1 require", A, "[::]:80", 1 },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        const struct policy_rule *r;
        struct sockaddr_storage ss;
        struct policy_error err;
        struct policy p;
        socklen_t len = make_addr(rows[i].addr, &ss);

        cr_assert_eq(parse(rows[i].rules, &p, &err), 0, "%s: %s", rows[i].rules, err.text);
        r = policy_match_listener(&p, (struct sockaddr *)&ss, len);
        cr_expect_eq(r ? (int)(r - p.rules) : -1, rows[i].want, "'%s' for %s", rows[i].rules, rows[i].addr);
        policy_free(&p);
    }
}

Test(policy, a_device_is_used_only_where_a_rule_names_it)
{
    struct policy_opts all = policy_default_opts(HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS);
    struct policy_error why;
    struct policy two;

    cr_assert_eq(policy_parse("connect * auto; accept * auto transport=verbs", &all, &two, &why), 0);
    cr_assert_eq(two.n, 2u);
    cr_expect_eq(two.rules[0].opts.transports, HELLO_TRANSPORT_IWARP);
    cr_expect_eq(two.rules[1].opts.transports, HELLO_TRANSPORT_VERBS);
    policy_free(&two);
}
