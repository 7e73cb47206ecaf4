/* Threads put connections on the lists and take them off, while others wait for what is there. */
#include "preload/sock/pending.h"
#include "preload/sock/hooks.h"
#include "preload/sock/wait.h"
#include "tests/threads/threads.h"

#define SOCKS 40u
#define MAX 16u
#define ROUNDS 20000u

static struct sock socks[SOCKS];

static bool silent(const struct sock *s)
{
    return (s - socks) % 3 == 0;
}

static bool watched(struct sock *s)
{
    return (s - socks) % 2 == 0;
}

static enum pending_look look(struct sock *s, uint64_t now, struct pollfd *p)
{
    (void)now;
    p->events = POLLIN;
    return (s - socks) % 5 == 0 ? PENDING_SKIP : PENDING_WAIT;
}

static uint64_t due(const struct sock *s)
{
    return (s - socks) % 4 == 0 ? 1 : 0;
}

static void step_due(struct sock *s)
{
    CHECK(atomic_load(&s->refs) > 0, "stepped without a reference");
    pending_remove(s);
}

const struct sock_hooks sock_hooks = {
    .silent = silent, .watched = watched, .look = look, .due = due, .step_due = step_due
};

void sock_put(struct sock *s)
{
    CHECK(atomic_fetch_sub(&s->refs, 1) > 0, "a reference too many given back");
}

void wait_holds(bool holds)
{
    (void)holds;
}

void wait_kick_holders(void)
{
}

static void *work(void *seed)
{
    struct pollfd fds[MAX];
    struct sock *got[MAX];
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct sock *s = &socks[world_random(seed, SOCKS)];
        unsigned n;
        switch (world_random(seed, 8)) {
        case 0:
            pending_remove(s);
            break;
        case 1:
            pending_watched();
            break;
        case 2:
            pending_step_due(false);
            break;
        case 3:
            CHECK(pending_deadline() <= 1, "nobody's time");
            break;
        case 4:
            n = pending_hold(fds, got, MAX, s);
            for (unsigned k = 0; k < n; k++)
                CHECK(got[k] != s && fds[k].fd == (int)(got[k] - socks), "not what was asked for");
            if (n > 0)
                pending_let_go(got, n);
            for (unsigned k = 0; k < n; k++)
                sock_put(got[k]);
            break;
        default:
            (void)pending_others(s);
            pending_add(s);
        }
    }
    return NULL;
}

int main(void)
{
    world_init();
    for (unsigned i = 0; i < SOCKS; i++)
        atomic_store(&socks[i].fd, (int)i);
    together(4, work);
    for (unsigned i = 0; i < SOCKS; i++) {
        pending_remove(&socks[i]);
        CHECK(socks[i].refs == 0 && socks[i].pending_held == 0, "number %u", i);
    }
    CHECK(!pending_any(), "one too many is counted");
    return 0;
}
