/* Which processes have a connection: against a model, with children that leave, are killed, or were never made. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preload/process/holders.h"
#include "preload/process/proc.h"
#include "tests/unit/preload_world.h"

#define CHILDREN 20u

static struct holders *h;

static void begin(void)
{
    world_init();
    h = world_shared(sizeof(*h));
}

TestSuite(holders, .init = begin);

/* A child that holds it, and leaves it when it is asked to. */
struct child {
    pid_t pid;
    int ask, said;
};

static void live(int ask, int said, bool enters)
{
    char c;
    world_init();
    if (enters)
        holders_am_child(h, HOLDERS_FORK + getppid());
    (void)!write(said, "", 1);
    if (read(ask, &c, 1) == 1)
        holders_leave(h);
    (void)!write(said, "", 1);
    _exit(0);
}

/* first: the child enters itself before its parent does. */
static struct child child_make(bool first)
{
    int ask[2], said[2];
    int32_t maker = HOLDERS_FORK + getpid();
    char c;
    cr_assert_eq(pipe(ask), 0);
    cr_assert_eq(pipe(said), 0);
    holders_expect_child(h, maker);
    struct child k = { .pid = fork(), .ask = ask[1], .said = said[0] };
    if (k.pid == 0) {
        close(ask[1]);
        close(said[0]);
        live(ask[0], said[1], first);
    }
    close(ask[0]);
    close(said[1]);
    if (first)
        cr_assert_eq(read(k.said, &c, 1), 1);
    holders_have_child(h, maker, k.pid);
    if (!first)
        cr_assert_eq(read(k.said, &c, 1), 1);
    return k;
}

static void child_leave(const struct child *k)
{
    char c;
    cr_assert_eq(write(k->ask, "", 1), 1);
    cr_assert_eq(read(k->said, &c, 1), 1);
}

static void child_end(const struct child *k, bool reaped)
{
    siginfo_t info;
    kill(k->pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)k->pid, &info, WEXITED | (reaped ? 0 : WNOWAIT)), 0);
    close(k->ask);
    close(k->said);
}

Test(holders, first_come)
{
    cr_assert(holders_claim(h));
    cr_assert(!holders_claim(h));
    cr_assert(holders_alone(h));
    cr_assert(!holders_leave_others(h), "the last one stays");
    cr_assert_eq(holders_leave(h), 0);
    cr_assert(!holders_take_up(h, 0), "nobody has it any more");
    cr_assert(holders_claim(h));
}

Test(holders, the_others_keep_it)
{
    cr_assert(holders_claim(h));
    struct child k = child_make(true);
    cr_assert(!holders_alone(h));
    cr_assert(holders_leave_others(h));
    cr_assert_eq(atomic_load(&h->n), 1);
    child_end(&k, true);
    cr_assert(holders_all_dead(h));
}

Test(holders, a_child_that_could_not_be_made)
{
    cr_assert(holders_claim(h));
    holders_expect_child(h, HOLDERS_FORK + 1);
    holders_expect_child(h, HOLDERS_FORK + 2);
    cr_assert_eq(atomic_load(&h->n), 3);
    holders_no_child(h, HOLDERS_FORK + 2);
    holders_no_child(h, HOLDERS_FORK + 2); /* it was struck out already */
    cr_assert_eq(atomic_load(&h->n), 2);
    holders_no_child(h, HOLDERS_FORK + 1);
    cr_assert(holders_alone(h));
}

Test(holders, the_next_program_takes_it_up)
{
    cr_assert(holders_claim(h));
    holders_exec(h);
    cr_assert(holders_take_up(h, 0));
    cr_assert_eq(atomic_load(&h->n), 1);
    cr_assert(holders_take_up(h, 0), "it has it already");
    cr_assert_eq(atomic_load(&h->n), 1);
    /* One that it was passed to, which is not counted. */
    struct child k = child_make(true);
    proc.pid = k.pid + 1;
    cr_assert(holders_take_up(h, 0));
    cr_assert_eq(atomic_load(&h->n), 3);
    proc.pid = getpid();
    child_end(&k, true);
}

Test(holders, one_killed_between_two_programs_is_struck_out)
{
    cr_assert(holders_claim(h));
    pid_t pid = fork();
    if (pid == 0) {
        world_init();
        if (holders_take_up(h, 0))
            holders_exec(h);
        kill(getpid(), SIGKILL);
    }
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    cr_assert_eq(atomic_load(&h->n), 2);
    cr_assert(holders_alone(h));
}

static void *leaves(void *unused)
{
    (void)unused;
    struct timespec moment = { .tv_nsec = 1000000 };
    nanosleep(&moment, NULL);
    cr_assert(holders_leave_others(h));
    return NULL;
}

Test(holders, who_waits_to_be_alone_is_told)
{
    pthread_t t;
    cr_assert(holders_claim(h));
    cr_assert(holders_has_me(h));
    cr_assert(holders_await_alone(h, 0), "it is");
    atomic_fetch_add(&h->n, 1); /* of one that is not told by number */
    cr_assert(!holders_await_alone(h, proc_now_ns() + 1000000), "the other one stays");
    cr_assert_eq(pthread_create(&t, NULL, leaves, NULL), 0);
    cr_assert(holders_await_alone(h, UINT64_MAX), "or it would wait for ever");
    cr_assert_eq(pthread_join(t, NULL), 0);
}

Test(holders, as_the_model_says, .timeout = 250)
{
    struct child kids[CHILDREN];
    bool has[CHILDREN]; /* the model: which of them hold it */
    unsigned n = 0, count = 1;
    uint64_t seed = 7;
    cr_assert(holders_claim(h));
    for (unsigned step = 0; step < 600; step++) {
        unsigned op = world_random(&seed, 4), i = n > 0 ? world_random(&seed, n) : 0;
        if (n == 0 || (op == 0 && n < CHILDREN)) {
            kids[n] = child_make(world_random(&seed, 2));
            has[n++] = true;
            count++;
        } else if (op == 1 && has[i]) {
            child_leave(&kids[i]);
            has[i] = false;
            count--;
        } else if (op == 2) {
            child_end(&kids[i], world_random(&seed, 2));
            count -= has[i];
            kids[i] = kids[--n];
            has[i] = has[n];
        }
        cr_assert_eq(holders_alone(h), count == 1, "step %u", step);
        cr_assert_eq(atomic_load(&h->n), count, "step %u", step);
        cr_assert(!holders_all_dead(h), "step %u", step);
    }
    while (n > 0)
        child_end(&kids[--n], true);
    cr_assert(holders_alone(h));
}
