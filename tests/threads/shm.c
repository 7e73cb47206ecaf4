/*
 * An endpoint in shared memory, both directions at once: in each a thread that posts numbered messages, and one that
 * polls and checks them. Each sleeps for real, on a bell of its own, whenever the endpoint says so: a wake-up that is
 * lost is a program that does not end. The endpoint of a side is used by two threads: one of each half.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/transport/shm.h"
#include "tests/threads/threads.h"

#ifdef __SANITIZE_THREAD__
#define MESSAGES 60000u
#else
#define MESSAGES 400000u
#endif
#define RING SHM_RING_MIN
#define WINDOW 100000u
#define STAG 9u

struct side {
    struct shm_ep ep;
    int bell_tx, bell_rx;
    uint64_t naps_tx, naps_rx; /* of its halves */
};

static struct side sides[2];
static _Alignas(64) uint8_t regions[2][SHM_HEAD_LEN + RING];

static struct side *other(struct side *s)
{
    return &sides[s == &sides[0]];
}

static void ring(int bell)
{
    uint64_t one = 1;
    CHECK(write(bell, &one, sizeof(one)) == sizeof(one), "no ring");
}

static void sleep_on(int bell)
{
    uint64_t rung;
    CHECK(read(bell, &rung, sizeof(rung)) == sizeof(rung), "no bell");
}

static uint8_t octet(uint32_t number, size_t i)
{
    return (uint8_t)(number * 7 + i * 13 + i / 251);
}

/* ---- posting ---- */

static void flush(struct side *s)
{
    if (shm_flush(&s->ep))
        ring(other(s)->bell_rx);
}

static void wait_for_room(struct side *s)
{
    flush(s);
    while (shm_nap_tx(&s->ep)) {
        s->naps_tx++;
        sleep_on(s->bell_tx);
        shm_wake_tx(&s->ep);
    }
}

/* Number and length first, then octets that follow from the number. */
static size_t make(uint8_t *msg, uint32_t number, size_t len)
{
    uint32_t words[2] = { number, (uint32_t)len };
    memcpy(msg, words, sizeof(words));
    for (size_t i = sizeof(words); i < len; i++)
        msg[i] = octet(number, i);
    return len;
}

static void *post_all(void *arg)
{
    struct side *s = arg;
    uint64_t seed = 41 + (s == &sides[1]);
    uint8_t msg[RING];
    for (uint32_t number = 0; number < MESSAGES; number++) {
        bool is_write = world_random(&seed, 2);
        size_t most = is_write ? shm_endpoint_ops.write_max(&s->ep.base) : shm_endpoint_ops.send_max(&s->ep.base);
        size_t len = make(msg, number, 8 + world_random(&seed, world_random(&seed, 4) ? 80 : (unsigned)most - 7));
        struct iovec v = { msg, len };
        struct iov_iter it = iov_iter_init(&v, 1);
        int r;
        while ((r = is_write ? shm_endpoint_ops.post_write(&s->ep.base, STAG, number % 1000, &it, len)
                             : shm_endpoint_ops.post_send(&s->ep.base, NULL, 0, &it, len)) == -EAGAIN)
            wait_for_room(s);
        CHECK(r == 0, "message %u: %d", number, r);
        if (world_random(&seed, 8) == 0)
            flush(s);
        if (world_random(&seed, 64) == 0)
            wait_for_room(s);
    }
    if (shm_end(&s->ep, SHM_CLOSED))
        ring(other(s)->bell_rx);
    return NULL;
}

/* ---- polling ---- */

static void tell(struct side *s)
{
    if (shm_tell(&s->ep))
        ring(other(s)->bell_tx);
}

static void check(const struct endpoint_event *ev, uint32_t number)
{
    uint32_t words[2];
    CHECK(ev->len >= sizeof(words), "%zu octets", ev->len);
    memcpy(words, ev->data, sizeof(words));
    CHECK(words[0] == number && words[1] == ev->len, "message %u of %u is %u of %zu", number, words[1], words[0],
          ev->len);
    CHECK(ev->type == ENDPOINT_SEND || ev->to == number % 1000, "message %u to %llu", number,
          (unsigned long long)ev->to);
    for (size_t i = sizeof(words); i < ev->len; i++)
        CHECK(ev->data[i] == octet(number, i), "octet %zu of message %u", i, number);
}

/* Gives back what was held, for the other side must not wait for it meanwhile. False: the other side has ended. */
static bool wait_for_octets(struct side *s, const uint8_t **held)
{
    if (*held != NULL)
        shm_endpoint_ops.release(&s->ep.base, *held);
    *held = NULL;
    tell(s);
    if (shm_nap_rx(&s->ep)) {
        s->naps_rx++;
        sleep_on(s->bell_rx);
        shm_wake_rx(&s->ep);
    }
    return shm_peer_end(&s->ep) == SHM_OPEN;
}

static void *poll_all(void *arg)
{
    struct side *s = arg;
    uint64_t seed = 43 + (s == &sides[1]);
    const uint8_t *held = NULL; /* the end of what is not released */
    uint32_t number = 0;
    do {
        struct endpoint_event ev;
        int r;
        while ((r = shm_endpoint_ops.poll(&s->ep.base, &ev)) == 1) {
            check(&ev, number++);
            held = ev.data + ev.len;
            if (world_random(&seed, 4) == 0) {
                shm_endpoint_ops.release(&s->ep.base, held);
                held = NULL;
            }
            if (world_random(&seed, 16) == 0)
                tell(s);
        }
        CHECK(r == 0, "%d behind message %u", r, number);
    } while (wait_for_octets(s, &held));
    CHECK(number == MESSAGES && shm_peer_end(&s->ep) == SHM_CLOSED, "%u messages", number);
    return NULL;
}

int main(void)
{
    pthread_t t[4];
    for (unsigned i = 0; i < 2; i++) {
        struct shm_cfg cfg = { regions[i], regions[!i], RING, STAG, WINDOW };
        CHECK(shm_init(&sides[i].ep, &cfg) == 0, "no endpoint");
        sides[i].bell_tx = eventfd(0, EFD_CLOEXEC);
        sides[i].bell_rx = eventfd(0, EFD_CLOEXEC);
        CHECK(sides[i].bell_tx >= 0 && sides[i].bell_rx >= 0, "no bells");
    }
    for (unsigned i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, i < 2 ? post_all : poll_all, &sides[i % 2]) == 0, "no thread");
    for (unsigned i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    for (unsigned i = 0; i < 2; i++) {
        const struct side *s = &sides[i];
        CHECK(shm_unused(&sides[i].ep) == 0, "not all is given back");
        fprintf(stderr, "%llu naps for room, %llu for octets, %llu and %llu bells\n", (unsigned long long)s->naps_tx,
                (unsigned long long)s->naps_rx, (unsigned long long)s->ep.tx.n.rings,
                (unsigned long long)s->ep.rx.n.rings);
    }
    return 0;
}
