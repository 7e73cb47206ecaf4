/*
 * Backtraces: the call site outside our own object, and what a failed check prints before it
 * aborts.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/fault.h"

static char site[256];
static size_t site_len;

/* Called by lfind, that is from libc: the nearest frame that is not ours. */
static int ask_site(const void *a, const void *b)
{
    (void)a;
    (void)b;
    site_len = fault_call_site(site, sizeof(site));
    return 0;
}

static void call_from_libc(int (*cmp)(const void *, const void *))
{
    size_t n = 1;
    int key = 0, base = 0;

    cr_assert_neq(lfind(&key, &base, &n, sizeof(base), cmp), NULL);
}

Test(fault, call_site_is_the_first_frame_outside_our_object)
{
    fault_setup();
    call_from_libc(ask_site);
    cr_assert_eq(site_len, strlen(site));
    cr_assert_eq(strncmp(site, "lfind+0x", 8), 0, "'%s'", site);
    cr_assert_neq(strstr(site, "libc.so"), NULL, "'%s'", site);
    cr_assert_eq(site[site_len - 1], ')');
}

Test(fault, without_setup_the_caller_itself_is_the_call_site)
{
    call_from_libc(ask_site);
    cr_assert_eq(strncmp(site, "ask_site+0x", 11), 0, "'%s'", site);
    cr_assert_neq(strstr(site, "test_fault"), NULL, "'%s'", site);
}

static int ask_short(const void *a, const void *b)
{
    (void)a;
    (void)b;
    memset(site, 'Z', sizeof(site));
    site_len = fault_call_site(site, 8);
    return 0;
}

Test(fault, call_site_respects_the_buffer)
{
    char one = 'Z';

    fault_setup();
    call_from_libc(ask_short);
    cr_assert_eq(site_len, 7u);
    cr_assert_str_eq(site, "lfind+0");
    cr_assert_eq(site[8], 'Z');
    cr_assert_eq(fault_call_site(&one, 0), 0u);
    cr_assert_eq(one, 'Z');
    cr_assert_eq(fault_call_site(&one, 1), 0u);
    cr_assert_eq(one, '\0');
}

Test(fault, nothing_is_allocated_after_prepare)
{
    struct mallinfo2 before, after;

    fault_setup();
    cr_assert_eq(fault_prepare(), 0);
    before = mallinfo2();
    call_from_libc(ask_site);
    after = mallinfo2();
    cr_assert_eq(before.uordblks, after.uordblks);
    cr_assert_eq(before.arena, after.arena);
}

/* Which of the first 64 descriptors are open, as bits. */
static uint64_t low_fds(void)
{
    uint64_t open = 0;

    for (int fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            open |= (uint64_t)1 << fd;
    return open;
}

Test(fault, prepare_takes_no_descriptor_the_program_would_get)
{
    uint64_t before = low_fds();

    fault_setup();
    cr_assert_eq(fault_prepare(), 0);
    call_from_libc(ask_site);
    cr_assert_eq(strncmp(site, "lfind+0x", 8), 0, "'%s'", site);
    cr_assert_eq(low_fds(), before);
    cr_assert_eq(fault_prepare(), 0, "a second time is harmless");
    cr_assert_eq(low_fds(), before);
}

Test(fault, prepare_works_with_few_descriptors)
{
    struct rlimit few = { 24, 24 };

    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    fault_setup();
    cr_assert_eq(fault_prepare(), 0);
    call_from_libc(ask_site);
    cr_assert_eq(strncmp(site, "lfind+0x", 8), 0, "'%s'", site);
}

/*
 * libunwind reads from and writes to its pipe to test memory. A program that closed all descriptors
 * and got the same numbers again must not find those octets in its own connection.
 */
Test(fault, descriptors_reused_by_the_program_are_never_touched)
{
    char buf[16];
    int p[2], fd;

    fault_setup();
    cr_assert_eq(fault_prepare(), 0);
    for (fd = 64; fd < 1024; fd++)
        close(fd);
    cr_assert_eq(pipe2(p, O_NONBLOCK), 0);
    cr_assert_eq(write(p[1], "mine", 4), 4);
    for (fd = 64; fd < 1024; fd++)
        cr_assert_eq(dup2(p[fd % 2], fd), fd);
    call_from_libc(ask_site);
    cr_assert_eq(read(p[0], buf, sizeof(buf)), 4, "nothing read, nothing written");
    cr_assert_str_eq(site, "?");
    for (fd = 64; fd < 1024; fd++)
        cr_assert_neq(fcntl(fd, F_GETFD), -1, "%d is still open", fd);
}

Test(fault, errno_is_kept)
{
    fault_setup();
    errno = EXDEV;
    call_from_libc(ask_site);
    cr_assert_eq(errno, EXDEV);
}

/* Runs fn in a forked child with stderr into out; returns the wait status. */
static int run_child(void (*fn)(void), char *out, size_t cap)
{
    size_t len = 0;
    ssize_t n;
    int p[2], status;
    pid_t pid;

    cr_assert_eq(pipe(p), 0);
    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(p[1], 2);
        close(p[0]);
        close(p[1]);
        fn();
        _exit(0);
    }
    close(p[1]);
    while (len < cap - 1 && (n = read(p[0], out + len, cap - 1 - len)) > 0)
        len += (size_t)n;
    out[len] = '\0';
    close(p[0]);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static __attribute__((noinline)) void fail_now(void)
{
    volatile int rx = 7;
    SW_CHECK(rx == 8, "rx %d of %s", rx, "conn 3");
}

static void expect_report(int status, const char *out)
{
    cr_assert(WIFSIGNALED(status), "status %x: %s", (unsigned)status, out);
    cr_assert_eq(WTERMSIG(status), SIGABRT);
    cr_assert_eq(strncmp(out, "sockwarp: check failed: rx == 8 at ", 35), 0, "%s", out);
    cr_assert_neq(strstr(out, "test_fault.c:"), NULL, "%s", out);
    cr_assert_neq(strstr(out, ": rx 7 of conn 3\n"), NULL, "%s", out);
    cr_assert_neq(strstr(out, "  #0 "), NULL, "%s", out);
    cr_assert_neq(strstr(out, "fail_now+0x"), NULL, "%s", out);
    cr_assert_neq(strstr(out, "\n  version " SW_VERSION ", process "), NULL, "%s", out);
    cr_assert_eq(out[strlen(out) - 1], '\n');
}

Test(fault, failed_check_in_a_forked_child_reports_and_aborts)
{
    char out[8192];
    int status;

    fault_setup();
    status = run_child(fail_now, out, sizeof(out));
    expect_report(status, out);
    cr_assert_neq(strstr(out, "run_child+0x"), NULL, "the backtrace goes on: %s", out);
}

static void move_and_fail(void)
{
    int object[2];
    for (int i = 0; i < 20; i++)
        fault_note_move("machine", &object[i % 2], i == 19 ? "last" : "here", "there");
    fail_now();
}

static void describe(void (*write)(const char *text, size_t len))
{
    write("  connection: mine\n", 19);
}

static void write_to_2(const char *text, size_t len)
{
    if (write(2, text, len) < 0)
        _exit(9);
}

Test(fault, the_block_has_the_last_moves_and_what_was_worked_on)
{
    char out[8192];
    int count = 0;

    fault_setup();
    fault_hook(&(struct fault_hooks){ .write = write_to_2, .describe = describe });
    expect_report(run_child(move_and_fail, out, sizeof(out)), out);
    cr_assert_neq(strstr(out, "\n  connection: mine\n  moved: machine 0x"), NULL, "%s", out);
    for (const char *p = out; (p = strstr(p, "  moved: machine ")) != NULL; p++)
        count++;
    cr_assert_eq(count, 8, "%s", out);
    cr_assert_neq(strstr(out, ": last -> there\n"), NULL, "%s", out);
}

static void *fail_thread(void *arg)
{
    (void)arg;
    fail_now();
    return NULL;
}

static void fail_in_thread(void)
{
    pthread_t t;

    if (pthread_create(&t, NULL, fail_thread, NULL) != 0)
        _exit(9);
    pthread_join(t, NULL);
}

Test(fault, failed_check_in_a_thread_of_a_forked_child_reports_and_aborts)
{
    char out[8192];
    int status;

    fault_setup();
    status = run_child(fail_in_thread, out, sizeof(out));
    expect_report(status, out);
    cr_assert_neq(strstr(out, "fail_thread+0x"), NULL, "%s", out);
}

static void long_state(void)
{
    char state[2000];

    memset(state, 's', sizeof(state) - 1);
    state[sizeof(state) - 1] = '\0';
    SW_CHECK(0, "%s", state);
}

Test(fault, a_state_line_too_long_is_cut_and_still_aborts)
{
    char out[8192];
    int status;

    fault_setup();
    status = run_child(long_state, out, sizeof(out));
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    cr_assert_neq(strstr(out, "sss\n  #0 "), NULL, "%s", out);
}

static void fail_in_abort_handler(int sig)
{
    (void)sig;
    SW_CHECK(0, "second");
}

static void fail_twice(void)
{
    signal(SIGABRT, fail_in_abort_handler);
    SW_CHECK(0, "first");
}

Test(fault, a_check_that_fails_while_failing_does_not_recurse)
{
    char out[8192];
    int status;

    fault_setup();
    status = run_child(fail_twice, out, sizeof(out));
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", (unsigned)status);
    cr_assert_neq(strstr(out, "first\n"), NULL);
    cr_assert_eq(strstr(out, "second"), NULL, "%s", out);
}

static void pass_check(void)
{
    SW_CHECK(1 + 1 == 2, "arithmetic");
    _exit(42);
}

Test(fault, a_check_that_holds_prints_nothing)
{
    char out[256];
    int status = run_child(pass_check, out, sizeof(out));

    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    cr_assert_str_eq(out, "");
}
