/* Threads queue registrations, take them off, and take the next one in turn. */
#include "preload/ready/epoll_set.h"
#include "preload/sock/poller.h"
#include "tests/threads/threads.h"
#include "tests/unit/ready_world.h"

#define ROUNDS 50000u

/* ---- what the list asks of the rest ---- */

struct epset *epset_hold(int epfd)
{
    (void)epfd;
    return NULL;
}

void epset_take_over(struct epset *s)
{
    (void)s;
}

void poller_kick(int fd)
{
    (void)fd;
}

void poller_kick_drain(int fd)
{
    (void)fd;
}

static void *work(void *seed)
{
    struct epoll_event ev = { .events = EPOLLIN };
    uint64_t token;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct watch *w = &watches[world_random(seed, WATCHES)];
        switch (world_random(seed, 6)) {
        case 0:
        case 1:
            watch_queue(w);
            break;
        case 2:
            watch_unqueue(w);
            break;
        case 3:
            CHECK(!epset_rotate(&set, &token) || token < WATCHES, "no token of ours");
            break;
        case 4:
            epset_lock(&set);
            epset_keep(&set, &ev);
            epset_unlock(&set);
            CHECK(epset_kept(&set, &ev), "somebody took two");
            break;
        default:
            if (epset_list_hold(&set)) {
                watch_unqueue(w);
                watch_queue(w);
                epset_list_release(&set);
            }
        }
    }
    return NULL;
}

int main(void)
{
    world_init();
    pthread_mutex_init(&set.lock, NULL);
    pthread_mutex_init(&set.ready_lock, NULL);
    set.ready_end = &set.ready_first;
    atomic_store(&set.kick_fd, -1);
    atomic_store(&set.tokened, true);
    for (unsigned i = 0; i < WATCHES; i++)
        watches[i].set = &set;
    together(4, work);
    unsigned n = 0;
    for (const struct watch *w = set.ready_first; w != NULL; w = w->rnext, n++)
        CHECK(w->queued, "on the list, and not queued");
    CHECK(n == atomic_load(&set.ready_n), "%u on the list, %u counted", n, (unsigned)atomic_load(&set.ready_n));
    return 0;
}
