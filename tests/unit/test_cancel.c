/* What a call keeps for the case that its thread is cancelled in it, and calls that are left by siglongjmp. */
#include <criterion/criterion.h>
#include <setjmp.h>

#include "preload/process/cancel.h"
#include "tests/unit/preload_world.h"

static int given[8];
static unsigned given_n;

static void give_back(void *what)
{
    given[given_n++] = *(int *)what;
}

static int one = 1, two = 2;

TestSuite(cancel, .init = world_init);

Test(cancel, what_a_call_keeps_is_given_back_and_once)
{
    unsigned kept = cancel_keep(give_back, &one);
    cancel_left(NULL);
    cancel_left(NULL);
    cr_assert_eq(given_n, 1);
    cr_assert_eq(given[0], 1);
    cancel_kept(kept);
}

Test(cancel, what_a_call_no_longer_keeps_is_not_given_back)
{
    cancel_kept(cancel_keep(give_back, &one));
    cancel_left(NULL);
    cr_assert_eq(given_n, 0);
}

static __attribute__((noinline)) void keep_another(void)
{
    unsigned kept = cancel_keep(give_back, &two);
    cancel_left(NULL);
    cancel_kept(kept);
}

Test(cancel, the_newest_is_given_back_first)
{
    unsigned kept = cancel_keep(give_back, &one);
    keep_another();
    cr_assert_eq(given_n, 2);
    cr_assert_eq(given[0], 2);
    cr_assert_eq(given[1], 1);
    cancel_kept(kept);
}

Test(cancel, putting_it_off_once_more_in_the_same_frame_forgets_nothing)
{
    unsigned kept = cancel_keep(give_back, &one);
    unsigned inner = cancel_keep(NULL, NULL); /* as accept4 does while it looks at a connection */
    cancel_kept(inner);
    cancel_left(NULL);
    cr_assert_eq(given_n, 1, "and then it waits for the next one, and is cancelled");
    cancel_kept(kept);
}

static jmp_buf out;

static __attribute__((noinline)) void call(int *what, bool leaves)
{
    unsigned kept = cancel_keep(give_back, what);
    if (leaves)
        longjmp(out, 1);
    cancel_left(NULL);
    cancel_kept(kept);
}

static __attribute__((noinline)) void call_deeper(int *what)
{
    char room[4096];
    __asm__ volatile("" ::"r"(room) : "memory"); /* so that it is there */
    call(what, true);
}

Test(cancel, a_call_that_was_left_is_forgotten_by_the_next_one_there)
{
    if (setjmp(out) == 0)
        call(&one, true);
    call(&two, false);
    cr_assert_eq(given_n, 1);
    cr_assert_eq(given[0], 2);
}

Test(cancel, a_call_that_was_left_further_down_is_forgotten_by_one_that_keeps_nothing)
{
    if (setjmp(out) == 0)
        call_deeper(&one);
    cancel_kept(cancel_keep(NULL, NULL));
    cancel_left(NULL);
    cr_assert_eq(given_n, 0);
}

Test(cancel, calls_that_are_left_again_and_again_leave_room_for_the_next)
{
    volatile int n = 0;
    if (setjmp(out) != 0)
        n++;
    if (n < 1000)
        call(&one, true);
    call(&two, false);
    cr_assert_eq(given_n, 1);
    cr_assert_eq(given[0], 2);
}

Test(cancel, on_a_signal_stack_a_call_under_way_is_kept)
{
    unsigned kept = cancel_keep(give_back, &one);
    world_on_signal_stack = true;
    unsigned inner = cancel_keep(give_back, &two);
    cancel_left(NULL);
    cr_assert_eq(given_n, 2);
    cancel_kept(inner);
    cancel_kept(kept);
}
