/* The lists of what is under way, against a model; and what a wait takes from them. */
#include <criterion/criterion.h>

#include "preload/process/proc.h"
#include "preload/sock/hooks.h"
#include "preload/sock/pending.h"
#include "preload/sock/wait.h"
#include "tests/unit/preload_world.h"

#define SOCKS 80u
#define MAX 16u

/* What the program and the kernel would say of a connection. */
struct fact {
    bool silent, watched;
    enum pending_look look;
    uint64_t due;
    unsigned stepped;
};

/* The model: which list it is on. */
enum place { NOWHERE, LISTED, SILENT };

static struct sock socks[SOCKS];
static struct fact facts[SOCKS];
static enum place place[SOCKS];
static bool over[SOCKS];
static unsigned kicks;
static int holding;

static struct fact *fact_of(const struct sock *s)
{
    return &facts[s - socks];
}

static bool silent(const struct sock *s)
{
    return fact_of(s)->silent;
}

static bool watched(struct sock *s)
{
    return fact_of(s)->watched;
}

static enum pending_look look(struct sock *s, uint64_t now, struct pollfd *p)
{
    (void)now;
    p->events = POLLIN;
    return fact_of(s)->look;
}

static uint64_t due(const struct sock *s)
{
    return fact_of(s)->due;
}

static void step_due(struct sock *s)
{
    fact_of(s)->stepped++;
}

const struct sock_hooks sock_hooks = {
    .silent = silent, .watched = watched, .look = look, .due = due, .step_due = step_due
};

void sock_put(struct sock *s)
{
    atomic_fetch_sub(&s->refs, 1);
}

void wait_holds(bool holds)
{
    holding += holds ? 1 : 0;
}

void wait_kick_holders(void)
{
    kicks++;
}

static void begin(void)
{
    world_init();
    for (unsigned i = 0; i < SOCKS; i++) {
        atomic_store(&socks[i].fd, (int)i);
        facts[i].look = PENDING_WAIT;
    }
}

TestSuite(pending, .init = begin);

static unsigned listed(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SOCKS; i++)
        n += place[i] != NOWHERE;
    return n;
}

Test(pending, a_wait_gets_them_with_a_reference_and_gives_them_back)
{
    struct pollfd fds[MAX];
    struct sock *got[MAX];
    pending_add(&socks[1]);
    pending_add(&socks[2]);
    cr_assert(pending_others(&socks[1]));
    cr_assert_eq(pending_hold(fds, got, MAX, &socks[1]), 1, "not the one that waits for itself");
    cr_assert_eq(got[0], &socks[2]);
    cr_assert_eq(fds[0].fd, 2);
    cr_assert_eq(socks[2].refs, 1);
    pending_leave(&socks[2]);
    cr_assert_eq(kicks, 1, "the close wakes who holds it");
    pending_add(&socks[2]);
    cr_assert_eq(socks[2].pending_pprev, NULL, "it is over");
    pending_let_go(got, 1);
    cr_assert_eq(socks[2].pending_held, 0);
    cr_assert_eq(socks[2].refs, 1, "the reference stays");
    cr_assert(!pending_others(&socks[1]));
    pending_leave(&socks[1]);
    cr_assert_eq(kicks, 1, "nobody held that one");
    cr_assert(!pending_any());
}

Test(pending, one_that_another_thread_is_at_is_left_out_for_a_moment)
{
    struct pollfd fds[MAX];
    struct sock *got[MAX];
    facts[1].due = 1;
    pending_add(&socks[1]);
    pending_add(&socks[2]);
    cr_assert_eq(pending_put_off_until(), 0);
    pending_put_off(&socks[1]);
    uint64_t until = socks[1].pending_off_ns;
    cr_assert_eq(pending_put_off_until(), until);
    cr_assert_eq(pending_deadline(), until, "its time is not over before, else the wait would not sleep at all");
    socks[1].pending_off_ns = UINT64_MAX; /* the moment lasts, whatever the clock says */
    cr_assert_eq(pending_hold(fds, got, MAX, NULL), 1);
    cr_assert_eq(got[0], &socks[2]);
    pending_let_go(got, 1);
    socks[1].pending_off_ns = until;
    while (proc_now_ns() < until)
        ;
    cr_assert_eq(pending_hold(fds, got, MAX, NULL), 2, "it is looked at again");
    pending_let_go(got, 2);
    pending_put_off_until();
    cr_assert_eq(pending_put_off_until(), 0, "and nothing is put off any more");
}

Test(pending, silent_ones_that_a_set_watches_are_not_looked_at)
{
    for (unsigned i = 0; i < SOCKS; i++) {
        facts[i].silent = facts[i].watched = true;
        pending_add(&socks[i]);
    }
    cr_assert_eq(pending_deadline(), 0);
    cr_assert_eq(pending_looked(), 0, "silent ones have no time");
    pending_watched();
    cr_assert(!pending_any());
    cr_assert_eq(pending_looked(), SOCKS);
    pending_watched();
    cr_assert_eq(pending_looked(), SOCKS);
}

Test(pending, a_wait_looks_at_no_more_silent_ones_than_it_takes)
{
    struct pollfd fds[MAX];
    struct sock *got[MAX];
    for (unsigned i = 0; i < SOCKS; i++) {
        facts[i].silent = true;
        facts[i].look = PENDING_SKIP;
        pending_add(&socks[i]);
    }
    cr_assert_eq(pending_hold(fds, got, MAX, NULL), 0);
    cr_assert_eq(pending_looked(), MAX);
}

Test(pending, a_child_has_what_its_parent_had_and_holds_nothing)
{
    struct pollfd fds[MAX];
    struct sock *got[MAX];
    facts[2].silent = true;
    pending_add(&socks[1]);
    pending_add(&socks[2]);
    cr_assert_eq(pending_hold(fds, got, MAX, NULL), 2);
    pending_before_fork();
    pending_after_fork(true);
    cr_assert(socks[1].pending_inherited && socks[2].pending_inherited && !socks[3].pending_inherited);
    cr_assert(socks[1].pending_held == 0 && socks[2].pending_held == 0);
}

/* What a wait must get: those that are to be waited for, the others first. */
static void compare_hold(const struct sock *self, unsigned step)
{
    struct pollfd fds[SOCKS];
    struct sock *got[SOCKS];
    bool seen[SOCKS] = { false }, silents = false;
    unsigned n = pending_hold(fds, got, SOCKS, self), want = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned at = (unsigned)(got[i] - socks);
        cr_assert(!seen[at] && place[at] != NOWHERE && got[i] != self && facts[at].look == PENDING_WAIT, "step %u",
                  step);
        cr_assert(place[at] == SILENT || !silents, "step %u: the silent ones come last", step);
        silents = place[at] == SILENT;
        seen[at] = true;
        cr_assert_eq(fds[i].fd, (int)at);
    }
    for (unsigned i = 0; i < SOCKS; i++) {
        want += place[i] != NOWHERE && facts[i].look == PENDING_WAIT && &socks[i] != self;
        if (facts[i].look == PENDING_DROP && &socks[i] != self)
            place[i] = NOWHERE;
    }
    cr_assert_eq(n, want, "step %u", step);
    if (n > 0)
        pending_let_go(got, n);
    for (unsigned i = 0; i < n; i++)
        sock_put(got[i]);
}

static void compare_due(unsigned step)
{
    uint64_t min = 0;
    unsigned before[SOCKS];
    for (unsigned i = 0; i < SOCKS; i++) {
        before[i] = facts[i].stepped;
        if (place[i] == LISTED && facts[i].due != 0 && (min == 0 || facts[i].due < min))
            min = facts[i].due;
    }
    cr_assert_eq(pending_deadline(), min, "step %u", step);
    bool rest = step % 2;
    pending_step_due(rest);
    unsigned due_n = 0, stepped = 0;
    for (unsigned i = 0; i < SOCKS; i++) {
        bool is_due = place[i] == LISTED && (facts[i].due == 1 || (rest && facts[i].due == PENDING_AT_REST));
        due_n += is_due;
        stepped += facts[i].stepped - before[i];
        cr_assert(facts[i].stepped - before[i] <= is_due, "step %u", step);
    }
    cr_assert_eq(stepped, due_n < 64 ? due_n : 64, "step %u", step);
}

Test(pending, as_the_model_says, .timeout = 120)
{
    uint64_t seed = 17;
    for (unsigned step = 0; step < 50000; step++) {
        unsigned i = world_random(&seed, SOCKS);
        switch (world_random(&seed, 8)) {
        case 0:
            facts[i].silent = world_random(&seed, 2);
            facts[i].look = (enum pending_look)world_random(&seed, 3);
            facts[i].due = world_random(&seed, 3) == 0 ? UINT64_MAX - step : world_random(&seed, 3);
            break;
        case 1:
            pending_remove(&socks[i]);
            place[i] = NOWHERE;
            break;
        case 2:
            if (world_random(&seed, 20) != 0)
                break;
            pending_leave(&socks[i]);
            place[i] = NOWHERE;
            over[i] = true;
            if (world_random(&seed, 4) != 0) { /* as one that is made anew */
                socks[i].pending_over = false;
                over[i] = false;
            }
            break;
        case 3:
            if (step % 8 == 0)
                compare_hold(&socks[i], step);
            break;
        case 4:
            if (step % 8 == 0)
                compare_due(step);
            break;
        default:
            pending_add(&socks[i]);
            if (!over[i])
                place[i] = facts[i].silent ? SILENT : LISTED;
        }
        cr_assert_eq(pending_any(), listed() > 0, "step %u", step);
        cr_assert_eq(pending_others(&socks[i]), listed() > (place[i] != NOWHERE ? 1u : 0u), "step %u", step);
        cr_assert_eq(socks[i].pending_pprev != NULL, place[i] != NOWHERE, "step %u", step);
    }
    for (unsigned i = 0; i < SOCKS; i++)
        cr_assert_eq(socks[i].refs, 0);
}
