/* Lines of statistics: the exact text, addresses, and program names that try to break JSON. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/must.h"
#include "core/base/reason.h"
#include "preload/process/stats.h"

static struct sockaddr_storage addr4(const char *host, uint16_t port)
{
    struct sockaddr_storage ss = { .ss_family = AF_INET };
    struct sockaddr_in *in = (struct sockaddr_in *)&ss;

    in->sin_port = htons(port);
    cr_assert_eq(inet_pton(AF_INET, host, &in->sin_addr), 1);
    return ss;
}

static struct sockaddr_storage addr6(const char *host, uint16_t port)
{
    struct sockaddr_storage ss = { .ss_family = AF_INET6 };
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

    in6->sin6_port = htons(port);
    cr_assert_eq(inet_pton(AF_INET6, host, &in6->sin6_addr), 1);
    return ss;
}

/* The value of "program" in the line for a program of that name. */
static void program_text(const char *program, char *out, size_t cap)
{
    struct stats_record r = { .pid = 1, .program = program, .role = "accept", .transport = "plain" };
    char line[1024], *from, *to;

    (void)stats_format(&r, line, sizeof(line));
    from = strstr(line, "\"program\":");
    to = strstr(line, ",\"role\":");
    cr_assert(from && to);
    from += strlen("\"program\":");
    snprintf(out, cap, "%.*s", (int)(to - from), from);
}

Test(stats, line_of_an_upgraded_connection_is_exactly_this)
{
    struct stats_record r = {
        .pid = 4711,
        .program = "iperf3",
        .role = "connect",
        .local = addr4("127.0.0.1", 40000),
        .peer = addr6("::1", 5201),
        .transport = "iwarp",
        .reason = REASON_UPGRADED,
        .rtr = "send",
        .ird = 13,
        .ord = 14,
        .crc = 1,
        .tx_bytes = 18446744073709551615u,
        .rx_bytes = 0,
        .tx_fpdus = 3,
        .rx_fpdus = 4,
        .sends = 5,
        .writes = 6,
        .errors = 7,
        .immediates = 8,
        .coalesced = 11,
        .empty = 9,
        .direct = 12,
        .memory = 10,
    };
    char line[1024];
    size_t len = stats_format(&r, line, sizeof(line));

    cr_assert_str_eq(
        line,
        "{\"pid\":4711,\"program\":\"iperf3\",\"role\":\"connect\",\"local\":\"127.0.0.1:40000\","
        "\"peer\":\"[::1]:5201\",\"transport\":\"iwarp\",\"reason\":\"upgraded\",\"rtr\":\"send\","
        "\"ird\":13,\"ord\":14,\"crc\":true,\"tx_bytes\":18446744073709551615,\"rx_bytes\":0,\"tx_fpdus\":3,\"rx_fpdus\":4,"
        "\"sends\":5,\"writes\":6,\"errors\":7,\"immediates\":8,\"coalesced\":11,\"empty\":9,\"direct\":12,\"memory\":10}\n");
    cr_assert_eq(len, strlen(line));
}

Test(stats, line_of_a_plain_connection_has_no_rtr_and_unknown_addresses_are_empty)
{
    struct stats_record r = { .pid = 1,
                              .program = NULL,
                              .role = "accept",
                              .transport = "plain",
                              .reason = REASON_PEER_PLAIN,
                              .rtr = "send",
                              .ird = 13,
                              .ord = 14 };
    char line[1024];

    (void)stats_format(&r, line, sizeof(line));
    cr_assert_str_eq(
        line, "{\"pid\":1,\"program\":\"\",\"role\":\"accept\",\"local\":\"\",\"peer\":\"\","
              "\"transport\":\"plain\",\"reason\":\"peer-plain\",\"rtr\":\"none\",\"ird\":0,\"ord\":0,\"crc\":false,"
              "\"tx_bytes\":0,\"rx_bytes\":0,\"tx_fpdus\":0,\"rx_fpdus\":0,\"sends\":0,\"writes\":0,"
              "\"errors\":0,\"immediates\":0,\"coalesced\":0,\"empty\":0,\"direct\":0,\"memory\":0}\n");
}

Test(stats, addresses_are_printed_as_people_write_them)
{
    struct sockaddr_storage none = { .ss_family = 0 }, un = { .ss_family = AF_UNIX };
    const struct {
        struct sockaddr_storage ss;
        const char *want;
    } rows[] = {
        { addr4("127.0.0.1", 80), "127.0.0.1:80" },
        { addr4("255.255.255.255", 65535), "255.255.255.255:65535" },
        { addr4("0.0.0.0", 0), "0.0.0.0:0" },
        { addr6("::", 0), "[::]:0" },
        { addr6("::1", 80), "[::1]:80" },
        { addr6("2001:db8::a", 443), "[2001:db8::a]:443" },
        { addr6("::ffff:10.1.2.3", 80), "10.1.2.3:80" },
        { addr6("1111:2222:3333:4444:5555:6666:7777:8888", 65535), "[1111:2222:3333:4444:5555:6666:7777:8888]:65535" },
        { none, "" },
        { un, "" },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        char buf[64];
        size_t len = stats_addr(&rows[i].ss, buf, sizeof(buf));

        cr_expect_str_eq(buf, rows[i].want, "%s: %s", rows[i].want, buf);
        cr_expect_eq(len, strlen(rows[i].want));
    }
}

#define BAD "\xef\xbf\xbd" /* U+FFFD */

Test(stats, program_names_become_valid_json_strings)
{
    static const struct {
        const char *name, *want;
    } rows[] = {
        { "a b", "\"a b\"" },
        { "say \"hi\"", "\"say \\\"hi\\\"\"" },
        { "back\\slash", "\"back\\\\slash\"" },
        { "line\nfeed\ttab", "\"line\\u000afeed\\u0009tab\"" },
        { "\x01\x1f\x7f", "\"\\u0001\\u001f\x7f\"" },
        { "\",\"pid\":0,\"", "\"\\\",\\\"pid\\\":0,\\\"\"" },
        { "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"" },
        { "\xe2\x82\xac\xf0\x9f\x90\x9f", "\"\xe2\x82\xac\xf0\x9f\x90\x9f\"" },
        { "\xff", "\"" BAD "\"" },
        { "a\x80z", "\"a" BAD "z\"" },
        { "\xc3", "\"" BAD "\"" }, /* ends in mid character */
        { "\xe2\x82", "\"" BAD BAD "\"" },
        { "\xf0\x9f\x90", "\"" BAD BAD BAD "\"" },
        { "\xc0\xaf", "\"" BAD BAD "\"" }, /* overlong '/' */
        { "\xe0\x80\xaf", "\"" BAD BAD BAD "\"" },
        { "\xf0\x80\x80\xaf", "\"" BAD BAD BAD BAD "\"" },
        { "\xed\xa0\x80", "\"" BAD BAD BAD "\"" },         /* a surrogate */
        { "\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\"" }, /* above U+10FFFF */
        { "\xed\x9f\xbf\xf4\x8f\xbf\xbf", "\"\xed\x9f\xbf\xf4\x8f\xbf\xbf\"" },
        { "\xc3\"", "\"" BAD "\\\"\"" }, /* the quote is not swallowed */
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        char got[512];

        program_text(rows[i].name, got, sizeof(got));
        cr_expect_str_eq(got, rows[i].want, "row %zu: %s", i, got);
    }
}

Test(stats, longest_and_nastiest_record_fits_1024_octets_whole)
{
    struct stats_record r = {
        .pid = 2147483647,
        .role = "connect",
        .local = addr6("1111:2222:3333:4444:5555:6666:7777:8888", 65535),
        .peer = addr6("1111:2222:3333:4444:5555:6666:7777:8888", 65535),
        .transport = "iwarp",
        .reason = REASON_UPGRADED,
        .rtr = "write",
        .tx_bytes = UINT64_MAX,
        .rx_bytes = UINT64_MAX,
        .tx_fpdus = UINT64_MAX,
        .rx_fpdus = UINT64_MAX,
        .sends = UINT64_MAX,
        .writes = UINT64_MAX,
        .errors = UINT64_MAX,
        .immediates = UINT64_MAX,
        .coalesced = UINT64_MAX,
        .empty = UINT64_MAX,
        .direct = UINT64_MAX,
        .memory = UINT64_MAX,
    };
    static const char nasty[] = { '\x01', '\xff', '"', 'a' };

    for (size_t i = 0; i < sizeof(nasty); i++) {
        char name[256], line[1024];
        size_t len;

        memset(name, nasty[i], 255);
        name[255] = '\0';
        r.program = name;
        len = stats_format(&r, line, sizeof(line));
        cr_expect_lt(len, 1024u);
        cr_expect_eq(strcmp(line + len - 3, "5}\n"), 0, "ends in whole: %s", line);
    }
}

Test(stats, cut_names_are_cut_between_characters)
{
    char name[400], got[512];
    size_t len;

    for (size_t i = 0; i < 100; i++)
        memcpy(name + 3 * i, "\xe2\x82\xac", 3);
    name[300] = '\0';
    program_text(name, got, sizeof(got));
    len = strlen(got);
    cr_assert_eq(len, 2u + 255u);
    cr_assert_eq(memcmp(got + len - 4, "\xe2\x82\xac\"", 4), 0);
}

Test(stats, small_buffers_are_never_overrun)
{
    struct stats_record r = { .pid = 1, .program = "p\n\"", .role = "accept", .transport = "plain" };
    struct sockaddr_storage ss = addr6("2001:db8::1", 80);
    char whole[1024], buf[1025];
    size_t total = stats_format(&r, whole, sizeof(whole));

    for (size_t cap = 0; cap <= total + 1; cap++) {
        size_t len;

        memset(buf, 'Z', sizeof(buf));
        len = stats_format(&r, buf, cap);
        cr_assert_eq(len, cap == 0 ? 0 : cap - 1);
        cr_assert_eq(memcmp(buf, whole, len), 0);
        cr_assert_eq(buf[cap], 'Z');
        if (cap > 0)
            cr_assert_eq(buf[len], '\0');
    }
    memset(buf, 'Z', sizeof(buf));
    cr_assert_eq(stats_addr(&ss, buf, 5), 4u);
    cr_assert_str_eq(buf, "[200");
    cr_assert_eq(stats_addr(&ss, buf, 0), 0u);
}
