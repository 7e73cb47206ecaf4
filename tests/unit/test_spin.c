/* When a wait looks before it sleeps. */
#include <criterion/criterion.h>

#include "core/base/spin.h"

#define WINDOW 20000u

static void sleep_quickly(struct spin *s, unsigned n)
{
    while (n-- > 0)
        spin_slept(s, SPIN_SLEPT * WINDOW, WINDOW);
}

Test(spin, begins_without_a_look)
{
    struct spin s = { 0 };
    cr_assert(!spin_worth(&s));
}

Test(spin, quick_waits_in_a_row_make_it_look)
{
    struct spin s = { 0 };
    sleep_quickly(&s, SPIN_NEED - 1);
    cr_assert(!spin_worth(&s));
    spin_slept(&s, SPIN_SLEPT * WINDOW + 1, WINDOW); /* a long one: from the beginning */
    sleep_quickly(&s, SPIN_NEED - 1);
    cr_assert(!spin_worth(&s));
    sleep_quickly(&s, 1);
    cr_assert(spin_worth(&s));
}

Test(spin, goes_on_as_long_as_it_finds)
{
    struct spin s = { 0 };
    sleep_quickly(&s, SPIN_NEED);
    for (unsigned i = 0; i < 100000; i++) {
        spin_looked(&s, true);
        cr_assert(spin_worth(&s));
    }
}

Test(spin, each_look_in_vain_doubles_what_is_wanted_up_to_an_end)
{
    struct spin s = { 0 };
    for (unsigned level = 0; level < SPIN_LEVELS + 3; level++) {
        unsigned need = SPIN_NEED << (level < SPIN_LEVELS ? level : SPIN_LEVELS);
        sleep_quickly(&s, need - 1);
        cr_assert(!spin_worth(&s), "level %u", level);
        sleep_quickly(&s, 1);
        cr_assert(spin_worth(&s), "level %u", level);
        spin_looked(&s, false);
        cr_assert(!spin_worth(&s), "level %u", level);
    }
}

Test(spin, successes_make_up_for_a_look_in_vain)
{
    struct spin s = { 0 };
    sleep_quickly(&s, SPIN_NEED);
    spin_looked(&s, false);
    sleep_quickly(&s, SPIN_NEED << 1);
    for (unsigned i = 0; i < SPIN_HITS; i++)
        spin_looked(&s, true);
    cr_assert_eq(s.level, 0);
}

Test(spin, very_many_quick_waits_are_counted_to_an_end)
{
    struct spin s = { 0 };
    sleep_quickly(&s, 200000);
    cr_assert(spin_worth(&s));
}

Test(spin, losing_the_processor_while_looking_ends_it_for_long)
{
    struct spin s = { 0 };
    sleep_quickly(&s, SPIN_NEED);
    spin_preempted(&s);
    sleep_quickly(&s, (SPIN_NEED << SPIN_LEVELS) - 1);
    cr_assert(!spin_worth(&s));
    sleep_quickly(&s, 1);
    cr_assert(spin_worth(&s));
}
