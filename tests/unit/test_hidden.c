/* Hidden descriptors, against a model of which numbers are. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "preload/process/hidden.h"
#include "tests/unit/preload_world.h"

#define OWNERS 24u
#define LAST 4096u

static void begin(void)
{
    world_init();
}

TestSuite(hidden, .init = begin);

Test(hidden, it_moves_out_of_the_way)
{
    int fd = eventfd(0, 0), high = hidden_move(fd);
    cr_assert_gt(high, fd);
    cr_assert_eq(fcntl(fd, F_GETFD), -1);
    cr_assert_eq(fcntl(high, F_GETFD), FD_CLOEXEC);
    cr_assert(hidden_is(high));
    cr_assert(!hidden_is(fd));
    cr_assert(!hidden_is(-1));
    cr_assert_eq(hidden_next(0, LAST), high);
    cr_assert_eq(hidden_next((unsigned)high + 1, LAST), -1);
    hidden_close(high);
    cr_assert(!hidden_is(high));
    cr_assert_eq(fcntl(high, F_GETFD), -1);
}

Test(hidden, one_that_was_closed_behind_our_back_is_none)
{
    int high = hidden_move(eventfd(0, 0));
    close(high);
    cr_assert(!hidden_is(high));
    int other = hidden_move(eventfd(0, 0));
    cr_assert_eq(other, high, "the number is used again");
    close(other);
    cr_assert_eq(dup2(STDERR_FILENO, other), other);
    cr_assert(!hidden_is(other), "the number is another file's");
    cr_assert_eq(hidden_next(0, LAST), -1);
}

Test(hidden, it_yields_its_number_where_that_stands_in_one_place)
{
    _Atomic int where = hidden_move(eventfd(0, 0));
    int fd = where;
    cr_assert_eq(hidden_yield(fd), -EBUSY, "nobody knows where its number stands");
    hidden_own(fd, &where);
    cr_assert_eq(hidden_yield(fd), 0);
    cr_assert_neq(where, fd);
    cr_assert(hidden_is(where));
    cr_assert(!hidden_is(fd));
    cr_assert_eq(hidden_yield(5000), 0, "it is none");
}

Test(hidden, with_few_descriptors_allowed_it_stays_where_it_is)
{
    int fd = eventfd(0, 0), last = fd;
    struct rlimit lim = { (rlim_t)fd + 2, (rlim_t)fd + 2 };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &lim), 0);
    while ((fd = eventfd(0, 0)) >= 0)
        last = fd;
    cr_assert_eq(hidden_move(last), last);
    cr_assert(hidden_is(last));
    hidden_close(last);
}

/* What the model knows of one. */
static _Atomic int number[OWNERS]; /* -1: none */
static bool owned[OWNERS];

static unsigned model_next(unsigned first)
{
    unsigned best = LAST + 1;
    for (unsigned i = 0; i < OWNERS; i++)
        if (number[i] >= 0 && (unsigned)number[i] >= first && (unsigned)number[i] < best)
            best = (unsigned)number[i];
    return best;
}

static void compare(unsigned step)
{
    unsigned at = 0;
    for (;;) {
        unsigned want = model_next(at);
        int got = hidden_next(at, LAST);
        cr_assert_eq(got, want > LAST ? -1 : (int)want, "step %u", step);
        if (got < 0)
            return;
        at = want + 1;
    }
}

Test(hidden, as_the_model_says, .timeout = 120)
{
    uint64_t seed = 11;
    for (unsigned i = 0; i < OWNERS; i++)
        number[i] = -1;
    for (unsigned step = 0; step < 20000; step++) {
        unsigned i = world_random(&seed, OWNERS);
        int fd = number[i];
        if (fd < 0) {
            number[i] = hidden_move(eventfd(0, EFD_NONBLOCK));
            owned[i] = world_random(&seed, 2);
            if (owned[i])
                hidden_own(number[i], &number[i]);
            continue;
        }
        switch (world_random(&seed, 5)) {
        case 0:
            number[i] = -1;
            hidden_close(fd);
            break;
        case 1: /* the program closes it, by a call that we do not see */
            number[i] = -1;
            close(fd);
            break;
        case 2: /* and takes the number */
            number[i] = -1;
            cr_assert_eq(dup2(STDERR_FILENO, fd), fd);
            cr_assert(!hidden_is(fd));
            close(fd);
            break;
        case 3:
            cr_assert_eq(hidden_yield(fd), owned[i] ? 0 : -EBUSY);
            if (owned[i]) {
                cr_assert_neq(number[i], fd);
                close(fd);
            }
            break;
        default:
            hidden_reveal(fd);
            number[i] = -1;
            close(fd);
        }
        if (step % 16 == 0)
            compare(step);
    }
    compare(20000);
}
