/* Threads take a turn in every way, and some sleep with it. What it protects is not atomic. */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "preload/process/turn.h"
#include "tests/threads/threads.h"

#define ROUNDS 4000u

/* (The word is taken without libc, which ThreadSanitizer knows nothing of.) */
#ifdef __SANITIZE_THREAD__
#define WAYS 4u
#else
#define WAYS 5u
#endif

static struct turn turn;
static struct turn_event event;
static uint64_t a, b;

static void *work(void *seed)
{
    for (unsigned i = 0; i < ROUNDS;) {
        unsigned way = world_random(seed, WAYS);
        int r = way == 0   ? turn_try(&turn)
                : way == 1 ? turn_take(&turn, 1000000, false)
                : way == 2 ? turn_take_brief(&turn)
                : way == 3 ? turn_take(&turn, 0, true)
                           : (turn_try_bare(&turn, (uint32_t)gettid()) ? 0 : -EBUSY);
        if (r == -EBUSY && world_random(seed, 16) == 0)
            sched_yield();
        if (r == -EBUSY || r == -ETIMEDOUT)
            continue;
        CHECK(r == 0, "way %u says %d", way, r);
        CHECK(a == b && turn.orphan == TURN_WHOLE, "two at a time");
        a++;
        if (world_random(seed, 64) == 0) {
            turn_sleep(&turn);
            sched_yield();
            turn_wake(&turn);
        }
        b++;
        turn_event_signal(&event);
        if (way == 4)
            turn_give_bare(&turn);
        else
            turn_give(&turn);
        i++;
    }
    return NULL;
}

static void *watch(void *unused)
{
    (void)unused;
    uint32_t seen;
    while ((seen = turn_event_seen(&event)) < 3 * ROUNDS)
        (void)!turn_event_wait(&event, seen, 0);
    return NULL;
}

int main(void)
{
    pthread_t t;
    world_init();
    turn_init(&turn);
    CHECK(pthread_create(&t, NULL, watch, NULL) == 0, "no thread");
    together(3, work);
    pthread_join(t, NULL);
    CHECK(a == 3 * ROUNDS && b == a, "%llu rounds", (unsigned long long)a);
    return 0;
}
