/*
 * The word of a buffer for small writes: one thread writes without the turn, others take the turn and send what is
 * gathered. What is sent is what was written, once, in its order. A signal handler sends in the middle of the writer's
 * copying.
 */
#include <signal.h>
#include <string.h>

#include "core/base/fault.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/flusher.h"
#include "preload/process/proc.h"
#include "preload/process/usermem.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"
#include "tests/threads/threads.h"

#define FD 3
#ifdef __SANITIZE_THREAD__
#define WRITES 30000u
#else
#define WRITES 200000u
#endif
#define CAP 1200u /* what a Send carries */

static struct sock sock;
static struct conn conn;
static uint64_t sent; /* octets; octet i is (uint8_t)(i * 7 + i / 251). tx */
static uint64_t by_word, by_turn;
static _Atomic bool over;

static uint8_t octet(uint64_t i)
{
    return (uint8_t)(i * 7 + i / 251);
}

/* ---- what coalescing asks of the rest ---- */

static void note_sent(const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        CHECK(p[i] == octet(sent + i), "octet %llu", (unsigned long long)(sent + i));
    sent += len;
}

int stream_write_send(struct stream *st, struct iov_iter *it, size_t len)
{
    uint8_t buf[CAP];
    (void)st;
    CHECK(len <= CAP, "a Send of %zu", len);
    iov_iter_gather(it, buf, len);
    note_sent(buf, len);
    return 0;
}

size_t stream_send_max(const struct stream *st)
{
    (void)st;
    return CAP;
}

bool iwarp_out_keep(struct iwarp_ep *ep)
{
    (void)ep;
    return true;
}

static void post(struct conn *c)
{
    if (coalesce_post(c) == 1)
        coalesce_posted(c, true);
}

int conn_tx_push(struct conn *c, int fd)
{
    (void)fd;
    post(c);
    return 0;
}

int conn_tx_rest(struct conn *c, int fd)
{
    return conn_tx_push(c, fd);
}

bool conn_nodelay(struct conn *c, int fd)
{
    (void)c, (void)fd;
    return false;
}

bool flusher_ready(void)
{
    return true;
}

void flusher_note(uint64_t due_ns)
{
    (void)due_ns;
}

void flusher_after_fork(void)
{
}

size_t usermem_read(const void *p, size_t len)
{
    (void)p;
    return len;
}

struct sock *sock_peek(int fd)
{
    return fd == FD ? &sock : NULL;
}

void sock_put(struct sock *s)
{
    atomic_fetch_sub(&s->refs, 1);
}

void pending_add(struct sock *s)
{
    (void)s;
}

void notify_changed(struct sock *s)
{
    (void)s;
}

/* ---- those who write and send ---- */

static void write_long_way(const uint8_t *buf, size_t len)
{
    struct iovec v = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
    struct iov_iter it = iov_iter_init(&v, 1);
    CHECK(turn_take(&conn.tx.turn, 0, false) == 0, "no turn");
    CHECK(conn.tx.turn.orphan == TURN_WHOLE, "two at a time");
    if (!coalesce_add(&conn, &it, len, proc_now_ns())) {
        post(&conn);
        if (!coalesce_begin(&sock, &conn, &it, len, proc_now_ns())) {
            note_sent(buf, len);
        }
    }
    by_turn++;
    turn_give(&conn.tx.turn);
}

static void *write_all(void *arg)
{
    uint64_t seed = 23, written = 0;
    (void)arg;
    for (unsigned i = 0; i < WRITES; i++) {
        uint8_t buf[64];
        size_t len = 1 + world_random(&seed, sizeof(buf));
        for (size_t k = 0; k < len; k++)
            buf[k] = octet(written + k);
        if (coalesce_put(FD, buf, len, 0) == len)
            by_word++;
        else
            write_long_way(buf, len);
        written += len;
    }
    coalesce_send_fd(FD);
    CHECK(turn_take(&conn.tx.turn, 0, false) == 0, "no turn");
    CHECK(!coalesce_holds(&conn) && sent == written, "%llu of %llu octets are sent", (unsigned long long)sent,
          (unsigned long long)written);
    turn_give(&conn.tx.turn);
    atomic_store(&over, true);
    return NULL;
}

static void *send_gathered(void *arg)
{
    while (!atomic_load(&over)) {
        if (turn_take_brief(&conn.tx.turn) != 0)
            continue;
        post(&conn);
        if (world_random(arg, 32) == 0)
            coalesce_leave(&conn);
        turn_give(&conn.tx.turn);
        for (unsigned n = world_random(arg, 2000); n > 0; n--)
            atomic_signal_fence(memory_order_seq_cst);
    }
    return NULL;
}

/* In the middle of the copying, or of anything else; as a fork in a signal handler does. */
static void send_in_handler(int sig)
{
    (void)sig;
    coalesce_stop();
    coalesce_go_on();
}

int main(void)
{
    pthread_t writer, sender[2];
    static uint64_t seeds[2] = { 29, 31 };
    world_init();
    proc.set.coalesce_us = 50;
    turn_init(&conn.tx.turn);
    atomic_store(&conn.state, CONN_UPGRADED);
    atomic_store(&conn.holders.n, 1);
    conn.st.llp = true;
    sock.conn = &conn;
    atomic_store(&sock.refs, 1);
    atomic_store(&sock.fd, FD);
    CHECK(pthread_create(&writer, NULL, write_all, NULL) == 0, "no thread");
    for (unsigned i = 0; i < 2; i++)
        CHECK(pthread_create(&sender[i], NULL, send_gathered, &seeds[i]) == 0, "no thread");
#ifndef __SANITIZE_THREAD__ /* (which delivers signals at its own time) */
    if (fault_prepare() == 0) {
        fault_setup();
        signal(SIGUSR1, send_in_handler);
        while (!atomic_load(&over))
            pthread_kill(writer, SIGUSR1);
    }
#else
    (void)send_in_handler;
#endif
    pthread_join(writer, NULL);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(sender[i], NULL);
    CHECK(by_word > 0 && by_turn > 0, "%llu by the word, %llu by the turn", (unsigned long long)by_word,
          (unsigned long long)by_turn);
    fprintf(stderr, "%llu writes by the word, %llu by the turn\n", (unsigned long long)by_word,
            (unsigned long long)by_turn);
    return 0;
}
