/* Log lines: prefix, level, truncation, errno, one call of the sink a line. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/rawsys.h"
#include "core/base/trace.h"

static char got[4096];
static size_t got_len;
static int got_calls;

static void catch_line(void *arg, const char *line, size_t len)
{
    cr_assert_eq(arg, &got_calls);
    cr_assert_leq(got_len + len, sizeof(got) - 1);
    memcpy(got + got_len, line, len);
    got_len += len;
    got[got_len] = '\0';
    got_calls++;
    errno = EXDEV; /* a sink that forgets itself must not leak into the program */
}

static void catch_at(int level)
{
    got_len = 0;
    got_calls = 0;
    trace_setup(level, catch_line, &got_calls);
}

Test(trace, level_names_and_digits_parse_and_others_do_not)
{
    static const struct {
        const char *name;
        int want;
    } rows[] = {
        { "off", TRACE_OFF }, { "error", TRACE_ERROR }, { "info", TRACE_INFO }, { "debug", TRACE_DEBUG },
        { "0", TRACE_OFF },   { "1", TRACE_ERROR },     { "2", TRACE_INFO },    { "3", TRACE_DEBUG },
        { "4", -EINVAL },     { "", -EINVAL },          { "debugx", -EINVAL },  { "debu", -EINVAL },
        { "Info", -EINVAL },  { "11", -EINVAL },        { "-1", -EINVAL },
    };

    for (size_t i = 0; i < SW_ARRAY_LEN(rows); i++)
        cr_expect_eq(trace_level_parse(rows[i].name, strlen(rows[i].name)), rows[i].want, "'%s'", rows[i].name);
    cr_expect_eq(trace_level_parse("info,file", 4), TRACE_INFO, "only len octets count");
}

Test(trace, line_has_prefix_with_pid_and_ends_in_newline)
{
    char want[128];

    catch_at(TRACE_INFO);
    trace_info("fd %d: %s", 7, "hello-timeout");
    snprintf(want, sizeof(want), "sockwarp[%d]: fd 7: hello-timeout\n", (int)getpid());
    cr_assert_str_eq(got, want);
    cr_assert_eq(got_calls, 1);
}

Test(trace, pid_is_the_childs_after_fork)
{
    int p[2];
    char want[64], line[64] = "";
    pid_t pid;

    cr_assert_eq(pipe(p), 0);
    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        dup2(p[1], 2);
        trace_setup(TRACE_INFO, NULL, NULL); /* the default sink: stderr by a raw system call */
        trace_info("here");
        _exit(0);
    }
    close(p[1]);
    cr_assert_gt(read(p[0], line, sizeof(line) - 1), 0);
    waitpid(pid, NULL, 0);
    snprintf(want, sizeof(want), "sockwarp[%d]: here\n", (int)pid);
    cr_assert_str_eq(line, want);
    close(p[0]);
}

Test(trace, lines_above_the_level_are_not_built)
{
    int evaluated = 0;

    catch_at(TRACE_ERROR);
    trace_info("%d", ++evaluated);
    trace_debug("%d", ++evaluated);
    cr_assert_eq(got_calls, 0);
    cr_assert_eq(evaluated, 0);
    trace_error("%d", ++evaluated);
    cr_assert_eq(got_calls, 1);
    trace_setup(TRACE_OFF, catch_line, &got_calls);
    trace_error("%d", ++evaluated);
    cr_assert_eq(evaluated, 1);
}

Test(trace, debug_lines_carry_a_timestamp_that_does_not_go_back)
{
    double a, b;
    char *p;

    catch_at(TRACE_DEBUG);
    trace_debug("x");
    trace_debug("x");
    cr_assert_eq(sscanf(got, "sockwarp[%*d]: %lf x", &a), 1, "%s", got);
    p = strchr(got, '\n') + 1;
    cr_assert_eq(sscanf(p, "sockwarp[%*d]: %lf x", &b), 1, "%s", p);
    cr_assert_gt(a, 0);
    cr_assert_geq(b, a);
}

Test(trace, errno_is_kept_and_available_to_percent_m)
{
    catch_at(TRACE_INFO);
    errno = ENOENT;
    trace_info("open: %m");
    cr_assert_eq(errno, ENOENT);
    cr_assert_neq(strstr(got, strerror(ENOENT)), NULL);
}

Test(trace, long_lines_are_cut_with_dots_and_still_end_in_newline)
{
    char big[2000];

    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    catch_at(TRACE_INFO);
    trace_info("%s", big);
    cr_assert_eq(got_calls, 1);
    cr_assert_leq(got_len, 512);
    cr_assert_str_eq(got + got_len - 5, "a...\n");
}

Test(trace, every_length_around_the_limit_ends_in_one_newline)
{
    char big[600];

    for (size_t l = 400; l < sizeof(big); l++) {
        memset(big, 'a', l);
        big[l] = '\0';
        catch_at(TRACE_INFO);
        trace_info("%s", big);
        cr_assert_leq(got_len, 512);
        cr_assert_eq(strchr(got, '\n'), got + got_len - 1);
        if (strcmp(got + got_len - 4, "...\n") != 0)
            cr_assert_eq(got + got_len - 1 - strchr(strchr(got, ':'), 'a'), (ptrdiff_t)l, "length %zu is whole", l);
    }
}

Test(trace, control_characters_cannot_forge_a_second_line)
{
    catch_at(TRACE_INFO);
    trace_info("name %s end", "x\nsockwarp[1]: forged\x1b[2J");
    cr_assert_eq(strchr(got, '\n'), got + got_len - 1);
    cr_assert_eq(strchr(got, '\x1b'), NULL);
    cr_assert_neq(strstr(got, "end\n"), NULL);
}

Test(trace, raw_calls_agree_with_libc)
{
    char buf[4] = "";
    int p[2], fd;

    cr_assert_eq(rawsys_getpid(), getpid());
    cr_assert_eq(rawsys_gettid(), gettid());
    cr_assert_eq(pipe(p), 0);
    cr_assert_eq(rawsys_write(p[1], "abc", 3), 3);
    cr_assert_eq(rawsys_read(p[0], buf, 3), 3);
    cr_assert_str_eq(buf, "abc");
    cr_assert_eq(rawsys_close(p[0]), 0);
    cr_assert_eq(rawsys_close(p[0]), -EBADF);
    cr_assert_eq(rawsys_write(p[0], "abc", 3), -EBADF);
    fd = rawsys_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(rawsys_open("/nonexistent/x", O_RDONLY, 0), -ENOENT);
    close(fd);
    close(p[1]);
}
