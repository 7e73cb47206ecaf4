/* The ready list of an epoll set, against a model: order, count, and the eventfd that others see. */
#include <criterion/criterion.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "preload/process/hidden.h"
#include "preload/ready/epoll.h"
#include "preload/ready/epoll_set.h"
#include "preload/sock/poller.h"
#include "tests/unit/preload_world.h"
#include "tests/unit/ready_world.h"

static unsigned model[WATCHES], model_n; /* the first is the next */

/* ---- what the list asks of the rest ---- */

struct epset *epset_hold(int epfd)
{
    return epfd == atomic_load(&set.epfd) ? &set : NULL;
}

void epset_take_over(struct epset *s)
{
    atomic_store(&s->tokened, true);
}

void poller_kick(int fd)
{
    const uint64_t one = 1;
    if (fd >= 0)
        cr_assert_eq(write(fd, &one, sizeof(one)), (ssize_t)sizeof(one));
}

void poller_kick_drain(int fd)
{
    uint64_t n;
    if (fd >= 0)
        (void)!read(fd, &n, sizeof(n));
}

static void begin(void)
{
    world_init();
    pthread_mutex_init(&set.lock, NULL);
    pthread_mutex_init(&set.ready_lock, NULL);
    set.ready_end = &set.ready_first;
    atomic_store(&set.kick_fd, -1);
    atomic_store(&set.epfd, epoll_create1(0));
    atomic_store(&set.tokened, true);
    for (unsigned i = 0; i < WATCHES; i++)
        watches[i].set = &set;
}

TestSuite(ready_list, .init = begin);

static bool is_readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 0) == 1;
}

Test(ready_list, before_a_wait_of_ours_nothing_is_listed)
{
    atomic_store(&set.tokened, false);
    watch_queue(&watches[0]);
    cr_assert_eq(atomic_load(&set.ready_n), 0);
}

Test(ready_list, the_eventfd_of_a_nested_set_says_whether_it_is_empty)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 1 }, out;
    watch_queue(&watches[0]);
    epoll_nest(atomic_load(&set.epfd));
    int fd = atomic_load(&set.kick_fd);
    cr_assert(hidden_is(fd));
    cr_assert(is_readable(fd), "it was not empty");
    watch_unqueue(&watches[0]);
    cr_assert(!is_readable(fd));
    watch_queue(&watches[1]);
    cr_assert(is_readable(fd));
    cr_assert(is_readable(atomic_load(&set.epfd)), "who polls the set sees it");
    cr_assert(epset_list_hold(&set));
    watch_unqueue(&watches[1]);
    cr_assert(is_readable(fd), "it is looked at, and may come back");
    epset_list_release(&set);
    cr_assert(!is_readable(fd));
    cr_assert(!epset_list_hold(&set));
    epset_keep(&set, &ev);
    cr_assert(is_readable(fd));
    cr_assert(epset_kept(&set, &out));
    cr_assert(!is_readable(fd));
}

Test(ready_list, events_that_were_kept_come_back_in_their_order)
{
    struct epoll_event ev = { .events = EPOLLIN };
    for (uint64_t i = 0; i < EPOLL_KEPT_MAX + 5; i++) {
        ev.data.u64 = i;
        epset_keep(&set, &ev);
    }
    cr_assert_eq(atomic_load(&set.ready_n), EPOLL_KEPT_MAX);
    for (uint64_t i = 0; i < EPOLL_KEPT_MAX; i++) {
        cr_assert(epset_kept(&set, &ev));
        cr_assert_eq(ev.data.u64, i);
    }
    cr_assert(!epset_kept(&set, &ev));
    cr_assert_eq(atomic_load(&set.ready_n), 0);
}

static void model_remove(unsigned at)
{
    model_n--;
    memmove(model + at, model + at + 1, (model_n - at) * sizeof(*model));
}

static unsigned model_find(unsigned i)
{
    unsigned at = 0;
    while (at < model_n && model[at] != i)
        at++;
    return at;
}

Test(ready_list, as_the_model_says, .timeout = 120)
{
    uint64_t seed = 19, token;
    epoll_nest(atomic_load(&set.epfd));
    for (unsigned step = 0; step < 100000; step++) {
        unsigned i = world_random(&seed, WATCHES), at = model_find(i);
        switch (world_random(&seed, 3)) {
        case 0:
            watch_queue(&watches[i]);
            if (at == model_n)
                model[model_n++] = i;
            break;
        case 1:
            watch_unqueue(&watches[i]);
            if (at < model_n)
                model_remove(at);
            break;
        default:
            cr_assert_eq(epset_rotate(&set, &token), model_n > 0, "step %u", step);
            if (model_n > 0) {
                cr_assert_eq(token, model[0], "step %u", step);
                model_remove(0);
                model[model_n++] = (unsigned)token;
            }
        }
        cr_assert_eq(atomic_load(&set.ready_n), model_n, "step %u", step);
        cr_assert_eq(is_readable(atomic_load(&set.kick_fd)), model_n > 0, "step %u", step);
    }
    unsigned n = 0;
    for (const struct watch *w = set.ready_first; w != NULL; w = w->rnext)
        cr_assert_eq(watch_token(w), model[n++]);
    cr_assert_eq(n, model_n);
}
