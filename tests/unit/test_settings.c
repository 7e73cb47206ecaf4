/* The environment: defaults, ranges, and errors that name variable, value and column. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "core/base/trace.h"
#include "core/negotiate/hello.h"
#include "core/policy/settings.h"

/* An environment of one variable: arg is "NAME=value" or NULL. */
static const char *one(void *arg, const char *name)
{
    const char *pair = arg;
    size_t len = strlen(name);

    return pair && strncmp(pair, name, len) == 0 && pair[len] == '=' ? pair + len + 1 : NULL;
}

static int read_one(struct settings *s, const char *pair, char *err, size_t cap)
{
    return settings_read(s, one, (void *)(size_t)pair, HELLO_TRANSPORT_IWARP, err, cap);
}

static void expect_defaults(const struct settings *s)
{
    cr_expect(!s->have_policy);
    cr_expect_eq(s->policy.n, 0u);
    cr_expect_eq(s->hello_timeout_ms, 1000u);
    cr_expect_eq(s->verdict_ttl_s, 60u);
    cr_expect_eq(s->linger_ms, 5000u);
    cr_expect_eq(s->io, SETTINGS_IO_AUTO);
    cr_expect_eq(s->crc, CRC32C_ANY);
    cr_expect_eq(s->log_level, TRACE_OFF);
    cr_expect_str_eq(s->log_file, "");
    cr_expect_str_eq(s->stats_file, "");
    cr_expect(!s->explain);
    cr_expect(!s->stat);
    cr_expect(!s->summary);
}

Test(settings, empty_environment_gives_defaults)
{
    struct settings s;
    char err[256] = "x";

    cr_assert_eq(read_one(&s, NULL, err, sizeof(err)), 0);
    expect_defaults(&s);
    cr_expect_str_eq(err, "");
    settings_free(&s);
}

Test(settings, empty_variables_count_as_absent)
{
    static const char *const rows[] = {
        "SOCKWARP_POLICY=",  "SOCKWARP_LOG=",       "SOCKWARP_STATS=",         "SOCKWARP_IO=",
        "SOCKWARP_EXPLAIN=", "SOCKWARP_LINGER_MS=", "SOCKWARP_VERDICT_TTL_S=",
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct settings s;
        char err[256];

        cr_assert_eq(read_one(&s, rows[i], err, sizeof(err)), 0, "%s: %s", rows[i], err);
        expect_defaults(&s);
        settings_free(&s);
    }
}

Test(settings, numbers_are_read_within_their_range)
{
    static const struct {
        const char *pair;
        uint32_t hello, ttl, linger, spin, coalesce;
    } rows[] = {
        { "SOCKWARP_HELLO_TIMEOUT_MS=1", 1, 60, 5000, 30, 50 },
        { "SOCKWARP_HELLO_TIMEOUT_MS=600000", 600000, 60, 5000, 30, 50 },
        { "SOCKWARP_VERDICT_TTL_S=0", 1000, 0, 5000, 30, 50 },
        { "SOCKWARP_VERDICT_TTL_S=86400", 1000, 86400, 5000, 30, 50 },
        { "SOCKWARP_LINGER_MS=0007", 1000, 60, 7, 30, 50 },
        { "SOCKWARP_SPIN_US=0", 1000, 60, 5000, 0, 50 },
        { "SOCKWARP_SPIN_US=1000000", 1000, 60, 5000, 1000000, 50 },
        { "SOCKWARP_COALESCE_US=0", 1000, 60, 5000, 30, 0 },
        { "SOCKWARP_COALESCE_US=60000000", 1000, 60, 5000, 30, 60000000 },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct settings s;
        char err[256];

        cr_assert_eq(read_one(&s, rows[i].pair, err, sizeof(err)), 0, "%s: %s", rows[i].pair, err);
        cr_expect_eq(s.hello_timeout_ms, rows[i].hello, "%s", rows[i].pair);
        cr_expect_eq(s.verdict_ttl_s, rows[i].ttl, "%s", rows[i].pair);
        cr_expect_eq(s.linger_ms, rows[i].linger, "%s", rows[i].pair);
        cr_expect_eq(s.spin_us, rows[i].spin, "%s", rows[i].pair);
        cr_expect_eq(s.coalesce_us, rows[i].coalesce, "%s", rows[i].pair);
        settings_free(&s);
    }
}

/* The implementations of CRC32C that this architecture has, and one that it has not. */
#if defined(__x86_64__)
#define CRC_NAMES ", vpclmul512, vpclmul256, pclmul, sse4.2"
#define CRC_ELSEWHERE "pmull"
#elif defined(__aarch64__)
#define CRC_NAMES ", pmull, armv8"
#define CRC_ELSEWHERE "sse4.2"
#else
#define CRC_NAMES ""
#define CRC_ELSEWHERE "sse4.2"
#endif

Test(settings, bad_values_are_refused_and_named)
{
    static const struct {
        const char *pair, *want;
    } rows[] = {
        { "SOCKWARP_HELLO_TIMEOUT_MS=0", "SOCKWARP_HELLO_TIMEOUT_MS: '0' is not a number from 1 to 600000" },
        { "SOCKWARP_HELLO_TIMEOUT_MS=600001", "SOCKWARP_HELLO_TIMEOUT_MS: '600001' is not a number from 1 to 600000" },
        { "SOCKWARP_VERDICT_TTL_S=86401", "SOCKWARP_VERDICT_TTL_S: '86401' is not a number from 0 to 86400" },
        { "SOCKWARP_LINGER_MS=5s", "SOCKWARP_LINGER_MS: '5s' is not a number from 0 to 600000" },
        { "SOCKWARP_LINGER_MS= 5", "SOCKWARP_LINGER_MS: ' 5' is not a number from 0 to 600000" },
        { "SOCKWARP_LINGER_MS=-5", "SOCKWARP_LINGER_MS: '-5' is not a number from 0 to 600000" },
        { "SOCKWARP_LINGER_MS=18446744073709551617",
          "SOCKWARP_LINGER_MS: '18446744073709551617' is not a number from 0 to 600000" },
        { "SOCKWARP_SPIN_US=1000001", "SOCKWARP_SPIN_US: '1000001' is not a number from 0 to 1000000" },
        { "SOCKWARP_COALESCE_US=60000001", "SOCKWARP_COALESCE_US: '60000001' is not a number from 0 to 60000000" },
        { "SOCKWARP_IO=magic", "SOCKWARP_IO: 'magic' is not auto, uring or syscall" },
        { "SOCKWARP_CRC=fast", "SOCKWARP_CRC: 'fast' is not auto" CRC_NAMES " or table" },
        { "SOCKWARP_CRC=" CRC_ELSEWHERE, "SOCKWARP_CRC: '" CRC_ELSEWHERE "' is not auto" CRC_NAMES " or table" },
        { "SOCKWARP_EXPLAIN=yes", "SOCKWARP_EXPLAIN: 'yes' is not 0 or 1" },
        { "SOCKWARP_STAT=2", "SOCKWARP_STAT: '2' is not 0 or 1" },
        { "SOCKWARP_SUMMARY=on", "SOCKWARP_SUMMARY: 'on' is not 0 or 1" },
        { "SOCKWARP_LOG=loud",
          "SOCKWARP_LOG: 'loud' is not a level (off, error, info, debug or 0 to 3), or level,file" },
        { "SOCKWARP_LOG=info,",
          "SOCKWARP_LOG: 'info,' is not a level (off, error, info, debug or 0 to 3), or level,file" },
        { "SOCKWARP_LOG=,file",
          "SOCKWARP_LOG: ',file' is not a level (off, error, info, debug or 0 to 3), or level,file" },
        { "SOCKWARP_IO=a\x1b[2Jb", "SOCKWARP_IO: 'a?[2Jb' is not auto, uring or syscall" },
        { "SOCKWARP_POLICY=any * of", "SOCKWARP_POLICY: column 7: unknown action 'of' (off, auto or require)" },
        { "SOCKWARP_POLICY=any * auto; any 1.2.3 off", "SOCKWARP_POLICY: column 17: bad address '1.2.3'" },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++) {
        struct settings s;
        char err[256];

        cr_expect_eq(read_one(&s, rows[i].pair, err, sizeof(err)), -EINVAL, "%s", rows[i].pair);
        cr_expect_str_eq(err, rows[i].want, "%s: '%s'", rows[i].pair, err);
        expect_defaults(&s); /* nothing half-read is left */
        settings_free(&s);
    }
}

Test(settings, words_are_read)
{
    struct settings s;
    char err[256];

    cr_assert_eq(read_one(&s, "SOCKWARP_IO=uring", err, sizeof(err)), 0);
    cr_expect_eq(s.io, SETTINGS_IO_URING);
    cr_assert_eq(read_one(&s, "SOCKWARP_IO=syscall", err, sizeof(err)), 0);
    cr_expect_eq(s.io, SETTINGS_IO_SYSCALL);
    cr_assert_eq(read_one(&s, "SOCKWARP_CRC=auto", err, sizeof(err)), 0);
    cr_expect_eq(s.crc, CRC32C_ANY);
    cr_assert_eq(read_one(&s, "SOCKWARP_CRC=table", err, sizeof(err)), 0);
    cr_expect_eq(s.crc, 0u);
    cr_assert_eq(read_one(&s, "SOCKWARP_EXPLAIN=1", err, sizeof(err)), 0);
    cr_expect(s.explain);
    cr_assert_eq(read_one(&s, "SOCKWARP_EXPLAIN=0", err, sizeof(err)), 0);
    cr_expect(!s.explain);
    cr_assert_eq(read_one(&s, "SOCKWARP_STAT=1", err, sizeof(err)), 0);
    cr_expect(s.stat && !s.summary);
    cr_assert_eq(read_one(&s, "SOCKWARP_SUMMARY=1", err, sizeof(err)), 0);
    cr_expect(s.summary && !s.stat);
    cr_assert_eq(read_one(&s, "SOCKWARP_LOG=debug", err, sizeof(err)), 0);
    cr_expect_eq(s.log_level, TRACE_DEBUG);
    cr_expect_str_eq(s.log_file, "");
    cr_assert_eq(read_one(&s, "SOCKWARP_LOG=2,/tmp/a,b", err, sizeof(err)), 0);
    cr_expect_eq(s.log_level, TRACE_INFO);
    cr_expect_str_eq(s.log_file, "/tmp/a,b");
    cr_assert_eq(read_one(&s, "SOCKWARP_STATS=/tmp/s.json", err, sizeof(err)), 0);
    cr_expect_str_eq(s.stats_file, "/tmp/s.json");
}

Test(settings, policy_is_parsed)
{
    struct settings s;
    char err[256];

    cr_assert_eq(read_one(&s, "SOCKWARP_POLICY=connect 10.0.0.0/8 auto; any * off", err, sizeof(err)), 0);
    cr_expect(s.have_policy);
    cr_expect_eq(s.policy.n, 2u);
    settings_free(&s);
    cr_expect_eq(s.policy.n, 0u);
    cr_expect(!s.have_policy);
}

Test(settings, file_names_of_any_legal_length_fit_whole_and_longer_ones_are_refused)
{
    struct settings s;
    char pair[600] = "SOCKWARP_STATS=", err[256];
    size_t head = strlen(pair);

    memset(pair + head, 'f', 255);
    cr_assert_eq(read_one(&s, pair, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(strlen(s.stats_file), 255u);
    pair[head + 255] = 'f';
    cr_assert_eq(read_one(&s, pair, err, sizeof(err)), -EINVAL);
    cr_expect_neq(strstr(err, "longer than 255"), NULL, "%s", err);
    cr_expect_str_eq(s.stats_file, "");
}

Test(settings, errors_fit_the_callers_buffer)
{
    struct settings s;
    char err[12];

    memset(err, 'Z', sizeof(err));
    cr_assert_eq(read_one(&s, "SOCKWARP_IO=magic", err, 8), -EINVAL);
    cr_expect_str_eq(err, "SOCKWAR");
    cr_expect_eq(err[8], 'Z');
    cr_assert_eq(read_one(&s, "SOCKWARP_IO=magic", NULL, 0), -EINVAL);
}

Test(settings, the_device_is_a_name_and_no_path)
{
    struct settings s;
    char err[256];

    cr_assert_eq(read_one(&s, "SOCKWARP_DEVICE=siw0", err, sizeof(err)), 0, "%s", err);
    cr_expect_str_eq(s.device, "siw0");
    cr_expect_eq(read_one(&s, "SOCKWARP_DEVICE=../siw0", err, sizeof(err)), -EINVAL);
    cr_expect_eq(read_one(&s, "SOCKWARP_DEVICE=.", err, sizeof(err)), -EINVAL);
    cr_expect_neq(strstr(err, "SOCKWARP_DEVICE"), NULL, "%s", err);
    cr_expect_str_eq(s.device, "");
}
