/* A record between processes of different rights: its lock, and who uses it. */
#include "preload/process/apart.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/process/proc.h"
#include "tests/unit/preload_world.h"

#define LEN 4096u

static struct apart *a;

static void setup(void)
{
    world_init();
    a = apart_map(LEN);
    cr_assert_not_null(a);
}

static void teardown(void)
{
    apart_unmap(a, LEN);
}

TestSuite(apart, .init = setup, .fini = teardown, .timeout = 60);

/* A process that does so and waits to be killed, or ends. */
static pid_t other(void (*does)(void), bool stays)
{
    pid_t pid = fork();
    if (pid == 0) {
        proc.pid = getpid();
        does();
        while (stays)
            pause();
        _exit(0);
    }
    return pid;
}

static void locks(void)
{
    if (apart_lock(&a->side[0], false) < 0)
        _exit(1);
}

static void locks_and_unlocks(void)
{
    while (apart_lock(&a->side[0], false) < 0)
        ;
    apart_unlock(&a->side[0]);
}

static void joins(void)
{
    apart_join(a, proc.pid, false);
}

static void await_lock(pid_t pid)
{
    while (atomic_load(&a->side[0].lock) != (uint32_t)pid)
        usleep(1000);
}

Test(apart, each_side_has_a_lock)
{
    cr_assert_eq(apart_lock(&a->side[0], false), 0);
    cr_assert_eq(apart_lock(&a->side[1], true), 0, "a number of ours instead of the process's");
    cr_assert_gt(atomic_load(&a->side[1].lock), (uint32_t)INT32_MAX);
    apart_unlock(&a->side[0]);
    apart_unlock(&a->side[1]);
    cr_assert_eq(atomic_load(&a->side[0].lock), 0);
    cr_assert_eq(atomic_load(&a->side[1].lock), 0);
}

Test(apart, a_waiting_process_gets_it)
{
    cr_assert_eq(apart_lock(&a->side[0], false), 0);
    pid_t pid = other(locks_and_unlocks, false);
    usleep(20000);
    apart_unlock(&a->side[0]);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
}

Test(apart, a_dead_holder_is_noticed)
{
    pid_t pid = other(locks, false);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    cr_assert_eq(apart_lock(&a->side[0], false), -EOWNERDEAD);
}

Test(apart, one_who_does_not_give_it_back_costs_a_moment)
{
    pid_t pid = other(locks, true);
    await_lock(pid);
    uint64_t began = proc_now_ns();
    cr_assert_eq(apart_lock(&a->side[0], false), -ETIMEDOUT);
    cr_assert_geq(proc_now_ns() - began, 500000000u);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(apart, words_that_nobody_wrote_are_waited_for_as_long)
{
    atomic_store(&a->side[0].lock, UINT32_MAX);
    cr_assert_eq(apart_lock(&a->side[0], false), -ETIMEDOUT);
    apart_unlock(&a->side[0]);
    cr_assert_eq(atomic_load(&a->side[0].lock), UINT32_MAX, "it was not ours");
}

Test(apart, users_are_known_until_they_die)
{
    struct holders h = { 0 };
    cr_assert(holders_claim(&h));
    apart_join(a, proc.pid, false);
    cr_assert_not(apart_has_others(a, &h));
    pid_t pid = other(joins, true);
    while (!apart_has_others(a, &h))
        usleep(1000);
    cr_assert(holders_has(&h, proc.pid));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_assert_not(apart_has_others(a, &h));
    apart_join(a, pid, true);
    cr_assert(apart_has_others(a, &h), "one whose number means nothing");
    apart_leave(a, pid, true);
    cr_assert_not(apart_has_others(a, &h));
    for (unsigned i = 0; i < 2 * APART_PARTIES; i++)
        apart_join(a, 1 + (pid_t)i, false);
    cr_assert(apart_has_others(a, &h), "more than are noted");
}

Test(apart, those_with_other_rights_are_one_holder)
{
    struct holders h = { 0 };
    cr_assert(holders_claim(&h));
    cr_assert(holders_apart_come(&h));
    cr_assert_not(holders_apart_come(&h));
    cr_assert_not(holders_alone(&h), "and they do not die");
    cr_assert(holders_apart(&h));
    cr_assert(holders_apart_gone(&h));
    cr_assert(holders_alone(&h));
    holders_go_apart(&h);
    cr_assert_eq(atomic_load(&h.n), 1);
    cr_assert(holders_all_dead(&h), "alone they hold nothing here");
    cr_assert_eq(atomic_load(&h.n), 0);
}
