/* Turns: threads, processes that are killed with one, calls that are left without giving it back. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/fault.h"
#include "preload/process/proc.h"
#include "preload/process/turn.h"
#include "preload/sock/wait.h"
#include "tests/unit/preload_world.h"

#define LONG_NS 60000000000u

/* What a turn protects: equal while no thread is at work. */
struct shared {
    struct turn turn;
    volatile uint32_t a, b;
    _Atomic uint32_t rounds;
};

static struct shared *sh;

static void begin(void)
{
    world_init();
    sh = world_shared(sizeof(*sh));
    turn_init(&sh->turn);
}

TestSuite(turn, .init = begin);

/* ---- another thread ---- */

enum way { TRY, BRIEF, UNTIL_NOW, TIMED, FOR_EVER };

static int take(enum way way, bool interruptible)
{
    switch (way) {
    case TRY:
        return turn_try(&sh->turn);
    case BRIEF:
        return turn_take_brief(&sh->turn);
    case UNTIL_NOW:
        return turn_take(&sh->turn, wait_left(proc_now_ns()), interruptible);
    case TIMED:
        return turn_take(&sh->turn, 1000000, interruptible);
    default:
        return turn_take(&sh->turn, 0, interruptible);
    }
}

struct other {
    enum way way;
    bool interruptible;
    int result;
    _Atomic bool over;
};

static void *take_in_thread(void *arg)
{
    struct other *o = arg;
    o->result = take(o->way, o->interruptible);
    if (o->result == 0)
        turn_give(&sh->turn);
    atomic_store(&o->over, true);
    return NULL;
}

static int other_thread(enum way way)
{
    struct other o = { .way = way };
    pthread_t t;
    cr_assert_eq(pthread_create(&t, NULL, take_in_thread, &o), 0);
    pthread_join(t, NULL);
    return o.result;
}

/* 0 would be for ever: a call whose time is over while it looks at the turn would never return. */
Test(turn, a_deadline_that_has_passed_leaves_a_moment)
{
    cr_assert_eq(turn_try(&sh->turn), 0);
    cr_assert_eq(wait_left(0), 0u, "no deadline");
    uint64_t now = proc_now_ns(), left = wait_left(now + 3600000000000ull);
    cr_assert(left > 1 && left <= 3600000000000ull);
    cr_assert_eq(wait_left(now), 1u);
    cr_assert_eq(wait_left(1), 1u);
    turn_sleep(&sh->turn);
    cr_assert_eq(other_thread(UNTIL_NOW), -ETIMEDOUT);
    turn_wake(&sh->turn);
    turn_give(&sh->turn);
}

Test(turn, one_holder_at_a_time)
{
    cr_assert_eq(turn_try(&sh->turn), 0);
    cr_assert(turn_is_mine(&sh->turn));
    cr_assert_eq(sh->turn.orphan, TURN_WHOLE);
    cr_assert_eq(other_thread(TRY), -EBUSY);
    turn_give(&sh->turn);
    cr_assert(!turn_is_mine(&sh->turn));
    for (enum way w = TRY; w <= FOR_EVER; w++)
        cr_assert_eq(other_thread(w), 0, "way %d", w);
}

Test(turn, who_must_not_wait_for_the_peer_does_not_wait_for_a_sleeper)
{
    cr_assert_eq(turn_try(&sh->turn), 0);
    turn_sleep(&sh->turn);
    cr_assert_eq(other_thread(BRIEF), -EBUSY);
    cr_assert_eq(other_thread(TIMED), -ETIMEDOUT);
    turn_wake(&sh->turn);
    turn_give(&sh->turn);
    cr_assert_eq(other_thread(BRIEF), 0);
}

Test(turn, who_waits_briefly_learns_that_the_holder_falls_asleep, .timeout = 60)
{
    struct other o = { .way = BRIEF };
    pthread_t t;
    cr_assert_eq(turn_try(&sh->turn), 0);
    cr_assert_eq(pthread_create(&t, NULL, take_in_thread, &o), 0);
    while (atomic_load(&sh->turn.brief) == 0)
        sched_yield();
    turn_sleep(&sh->turn);
    pthread_join(t, NULL);
    cr_assert_eq(o.result, -EBUSY);
    turn_wake(&sh->turn);
    turn_give(&sh->turn);
}

/* ---- signals ---- */

static void nothing(int sig)
{
    (void)sig;
}

/* Signals come to it until it has ended, or has looked at so many and waits still. */
static int signalled(int flags, bool interruptible)
{
    struct sigaction sa = { .sa_handler = nothing, .sa_flags = flags };
    struct other o = { .way = FOR_EVER, .interruptible = interruptible };
    pthread_t t;
    sigaction(SIGUSR1, &sa, NULL);
    cr_assert_eq(turn_try(&sh->turn), 0);
    turn_sleep(&sh->turn);
    cr_assert_eq(pthread_create(&t, NULL, take_in_thread, &o), 0);
    bool waits_on = !interruptible || (flags & SA_RESTART);
    for (unsigned i = 0; !atomic_load(&o.over) && !(waits_on && i == 1000); i++) {
        pthread_kill(t, SIGUSR1);
        sched_yield();
    }
    turn_wake(&sh->turn);
    turn_give(&sh->turn);
    pthread_join(t, NULL);
    return o.result;
}

Test(turn, a_signal_ends_the_wait_as_it_would_end_a_recv, .timeout = 60)
{
    cr_assert_eq(signalled(0, true), -EINTR);
    cr_assert_eq(signalled(SA_RESTART, true), 0);
    cr_assert_eq(signalled(0, false), 0);
}

static volatile int in_handler_try, in_handler_take;

/* aarch64: its return address is signed, as some distributions build every program. */
#ifdef __aarch64__
__attribute__((target("branch-protection=standard")))
#endif
static void
takes_again(int sig)
{
    (void)sig;
    in_handler_try = turn_try(&sh->turn);
    in_handler_take = turn_take(&sh->turn, 0, false);
}

Test(turn, a_handler_does_not_get_the_turn_of_the_call_that_it_interrupts)
{
    if (fault_prepare() < 0)
        cr_skip_test("no libunwind");
    fault_setup();
    signal(SIGUSR1, takes_again);
    cr_assert_eq(turn_try(&sh->turn), 0);
    raise(SIGUSR1);
    cr_assert_eq(in_handler_try, -EBUSY);
    cr_assert_eq(in_handler_take, -EDEADLK);
    cr_assert_eq(sh->turn.orphan, TURN_WHOLE);
    turn_give(&sh->turn);
}

/* As a call that siglongjmp leaves. */
static __attribute__((noinline)) void take_and_leave(bool asleep)
{
    cr_assert_eq(turn_take(&sh->turn, 0, false), 0);
    if (asleep)
        turn_sleep(&sh->turn);
}

Test(turn, what_a_call_left_is_the_same_threads_to_mend)
{
    take_and_leave(false);
    cr_assert_eq(turn_take(&sh->turn, 0, false), 0);
    cr_assert_eq(sh->turn.orphan, TURN_LEFT_AT_WORK);
    cr_assert(!sh->turn.other_process);
    sh->turn.orphan = TURN_WHOLE;
    turn_give(&sh->turn);
    take_and_leave(true);
    cr_assert(turn_left(&sh->turn));
    cr_assert_eq(sh->turn.orphan, TURN_LEFT_ASLEEP);
    sh->turn.orphan = TURN_WHOLE;
    turn_give(&sh->turn);
    cr_assert(!turn_left(&sh->turn));
    cr_assert_eq(other_thread(TRY), 0);
}

/* ---- processes ---- */

/* A child that has the turn when this returns. */
static pid_t holding_child(bool asleep)
{
    int told[2];
    char c;
    cr_assert_eq(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        world_init();
        if (turn_try(&sh->turn) != 0)
            _exit(1);
        if (asleep)
            turn_sleep(&sh->turn);
        (void)!write(told[1], "", 1);
        for (;;)
            pause();
    }
    cr_assert_eq(read(told[0], &c, 1), 1);
    close(told[0]);
    close(told[1]);
    return pid;
}

static void end(pid_t pid)
{
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

Test(turn, a_killed_holder_leaves_it_to_the_next, .timeout = 60)
{
    for (int asleep = 0; asleep < 2; asleep++)
        for (enum way w = TRY; w <= FOR_EVER; w++) {
            end(holding_child(asleep));
            cr_assert_eq(take(w, false), 0, "way %d", w);
            cr_assert_eq(sh->turn.orphan, asleep ? TURN_LEFT_ASLEEP : TURN_LEFT_AT_WORK, "way %d", w);
            cr_assert(sh->turn.other_process);
            sh->turn.orphan = TURN_WHOLE;
            sh->turn.other_process = false;
            turn_give(&sh->turn);
        }
}

static void *kill_when_waited_for(void *arg)
{
    /* The kernel's mark of a waiter, or the count of those that wait briefly. */
    const _Atomic uint32_t *word = (const void *)&sh->turn.mutex.__data.__lock;
    while (!(atomic_load(word) & 0x80000000u) && atomic_load(&sh->turn.brief) == 0)
        sched_yield();
    kill(*(pid_t *)arg, SIGKILL);
    return NULL;
}

Test(turn, a_holder_is_killed_while_others_wait, .timeout = 60)
{
    for (int brief = 0; brief < 2; brief++) {
        pid_t pid = holding_child(false);
        pthread_t t;
        pthread_create(&t, NULL, kill_when_waited_for, &pid);
        cr_assert_eq(take(brief ? BRIEF : FOR_EVER, false), 0);
        cr_assert_eq(sh->turn.orphan, TURN_LEFT_AT_WORK);
        sh->turn.orphan = TURN_WHOLE;
        turn_give(&sh->turn);
        pthread_join(t, NULL);
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
    }
}

Test(turn, a_thread_that_is_not_libcs_leaves_no_trace)
{
    uint32_t tid = (uint32_t)gettid();
    cr_assert(turn_try_bare(&sh->turn, tid));
    cr_assert_eq(other_thread(TRY), -EBUSY);
    turn_give_bare(&sh->turn);
    cr_assert_eq(other_thread(TRY), 0);
    cr_assert_eq(turn_try(&sh->turn), 0);
    cr_assert(!turn_try_bare(&sh->turn, tid));
    turn_give(&sh->turn);
}

/* ---- at random ---- */

/* Takes it in all ways, and mends what it finds broken; 1: the pair was broken, and turn_take did not tell. */
static int work(uint64_t seed)
{
    for (;;) {
        enum way w = (enum way)world_random(&seed, 4);
        if (take(w, false) != 0)
            continue;
        if (sh->a != sh->b && sh->turn.orphan != TURN_LEFT_AT_WORK)
            return 1;
        if (sh->turn.orphan != TURN_WHOLE) {
            sh->b = sh->a;
            sh->turn.orphan = TURN_WHOLE;
            sh->turn.other_process = false;
        }
        uint32_t next = sh->a + 1;
        sh->a = next;
        if (world_random(&seed, 4) == 0)
            sched_yield();
        sh->b = next;
        if (world_random(&seed, 8) == 0) {
            turn_sleep(&sh->turn);
            sched_yield();
            turn_wake(&sh->turn);
        }
        atomic_fetch_add(&sh->rounds, 1);
        turn_give(&sh->turn);
    }
}

static pid_t worker(uint64_t seed)
{
    pid_t pid = fork();
    if (pid == 0) {
        world_init();
        _exit(work(seed));
    }
    return pid;
}

Test(turn, processes_killed_at_random_break_nothing_unseen, .timeout = 250)
{
    enum { WORKERS = 4, KILLS = 200 };
    uint64_t seed = 20240901;
    pid_t pid[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++)
        pid[i] = worker(seed + i);
    for (unsigned k = 0; k < KILLS; k++) {
        uint32_t until = atomic_load(&sh->rounds) + world_random(&seed, 50);
        while (atomic_load(&sh->rounds) < until) /* (one of them always gets on) */
            for (unsigned i = 0; i < WORKERS; i++)
                cr_assert_eq(waitpid(pid[i], NULL, WNOHANG), 0, "a worker found it broken, and nobody had said so");
        unsigned victim = world_random(&seed, WORKERS);
        kill(pid[victim], SIGKILL);
        int status;
        cr_assert_eq(waitpid(pid[victim], &status, 0), pid[victim]);
        cr_assert(WIFSIGNALED(status));
        pid[victim] = worker(seed + k);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        end(pid[i]);
    cr_assert_eq(take(FOR_EVER, false), 0);
    cr_assert(sh->a == sh->b || sh->turn.orphan == TURN_LEFT_AT_WORK);
    turn_give(&sh->turn);
}
