/* The state of a connection at rest. */
#include "preload/conn/conn_rest.h"

#include <limits.h>
#include <string.h>

#include "core/stream/rest.h"
#include "preload/process/apart.h"

struct rx_numbers {
    struct rest_rx st;
    uint64_t kernel_total, plain_total, streamed_total;
    uint32_t pre, held; /* octets of the streaming mode, which come first */
    uint32_t kernel_lowat, user_lowat;
    int32_t peek_off;
    uint8_t shut, reset_told, reset_unseen, tells_waiting;
    uint8_t mode, zero[7];
};

struct tx_numbers {
    struct rest_tx st;
    uint64_t kernel_total, plain_total;
    uint8_t shut, fin_owed, rest, urgent;
    uint8_t zero[4];
};

/* What lies between members, or behind them, would be other memory of ours. */
_Static_assert(sizeof(struct rx_numbers) == sizeof(struct rest_rx) + 3 * 8 + 5 * 4 + 12 &&
                   sizeof(struct tx_numbers) == sizeof(struct rest_tx) + 2 * 8 + 8,
               "no gaps");
_Static_assert(sizeof(struct rx_numbers) <= APART_NUMBERS && sizeof(struct tx_numbers) <= APART_NUMBERS,
               "a side's numbers");

#define PEEK_MAX (1 << 30) /* SO_PEEK_OFF; no sum with what is there runs over */

static bool is_upgraded(const struct conn *c)
{
    return conn_state(c) == CONN_UPGRADED;
}

bool conn_rest_can(const struct conn *c)
{
    if (conn_state(c) == CONN_PLAIN)
        return c->rx.pre_len > c->rx.pre_off;
    return is_upgraded(c) && c->st.llp && iwarp_out_lead(&c->ep) == 0 &&
           (c->rx.mode == CONN_RX_FPDUS || c->mem.pre_cap == CONN_PRE_LEN);
}

bool conn_rest_rx_save(struct conn *c, uint8_t *numbers, uint8_t *octets)
{
    size_t pre = c->rx.pre_len - c->rx.pre_off + c->rx.held_len, len;
    struct rx_numbers n = {
        .kernel_total = c->rx.kernel_total,
        .plain_total = c->rx.plain_total,
        .streamed_total = c->rx.streamed_total,
        .pre = (uint32_t)(pre - c->rx.held_len),
        .held = (uint32_t)c->rx.held_len,
        .kernel_lowat = c->rx.kernel_lowat,
        .user_lowat = atomic_load(&c->rx.user_lowat),
        .peek_off = atomic_load(&c->rx.peek_off),
        .shut = c->rx.shut,
        .reset_told = c->rx.reset_told,
        .reset_unseen = atomic_load(&c->rx.reset_unseen),
        .tells_waiting = atomic_load(&c->rx.tells_waiting),
        .mode = c->rx.mode,
    };
    if (pre > CONN_PRE_LEN ||
        (is_upgraded(c) && !rest_rx_save(&c->st, &c->ep, &n.st, octets + pre, CONN_REST_RX_MAX - pre, &len)))
        return false;
    memcpy(octets, c->mem.pre + c->rx.pre_off, pre);
    memcpy(numbers, &n, sizeof(n));
    return true;
}

/* What is known here of what the kernel has was known before others used it. */
static void rx_afresh(struct conn *c)
{
    c->rx.empty = c->rx.owes = false;
    c->rx.look = 0;
}

/* Before the switch nothing is staged, and what comes behind it must find room there. */
static bool mode_ok(const struct conn *c, const struct rx_numbers *n, uint64_t len)
{
    if (n->mode == CONN_RX_FPDUS)
        return n->held == 0;
    return n->mode == CONN_RX_STREAMED && is_upgraded(c) && c->responder && len == 0 && c->mem.pre_cap == CONN_PRE_LEN;
}

bool conn_rest_rx_load(struct conn *c, const uint8_t *numbers, const uint8_t *octets)
{
    struct rx_numbers n;
    memcpy(&n, numbers, sizeof(n));
    __asm__ volatile("" ::: "memory"); /* from here on it is this copy that counts */
    uint64_t pre = (uint64_t)n.pre + n.held, len = 0;
    if (is_upgraded(c))
        len = (uint64_t)n.st.ready + n.st.ep.part + n.st.ep.raw;
    if (pre > CONN_PRE_LEN || pre + len > CONN_REST_RX_MAX || !mode_ok(c, &n, len) || n.peek_off < -1 ||
        n.peek_off > PEEK_MAX || n.user_lowat > INT_MAX)
        return false;
    if (is_upgraded(c) && !rest_rx_load(&c->st, &c->ep, &n.st, octets + pre, (size_t)len))
        return false;
    memcpy(c->mem.pre, octets, pre);
    c->rx.pre_off = 0;
    c->rx.pre_len = n.pre;
    c->rx.held_len = n.held;
    c->rx.mode = n.mode;
    c->rx.streamed_total = n.streamed_total;
    c->rx.kernel_total = n.kernel_total;
    c->rx.plain_total = n.plain_total;
    c->rx.kernel_lowat = n.kernel_lowat;
    atomic_store(&c->rx.user_lowat, n.user_lowat > 0 ? n.user_lowat : 1);
    atomic_store(&c->rx.peek_off, n.peek_off);
    c->rx.shut = n.shut != 0;
    c->rx.reset_told = n.reset_told != 0;
    atomic_store(&c->rx.reset_unseen, n.reset_unseen != 0);
    atomic_store(&c->rx.tells_waiting, n.tells_waiting != 0);
    rx_afresh(c);
    return true;
}

bool conn_rest_tx_save(struct conn *c, uint8_t *numbers, uint8_t *octets)
{
    size_t len;
    struct tx_numbers n = {
        .kernel_total = c->tx.kernel_total,
        .plain_total = atomic_load(&c->tx.plain_total),
        .shut = atomic_load(&c->tx.shut),
        .fin_owed = atomic_load(&c->tx.fin_owed),
        .rest = atomic_load(&c->tx.rest),
        .urgent = c->tx.urgent,
    };
    if (is_upgraded(c) && (atomic_load(&c->tx.job_runs) || c->tx.sender_pid != 0 || c->coalesce.posted ||
                           !rest_tx_save(&c->st, &c->ep, &n.st, octets, CONN_REST_TX_MAX, &len)))
        return false;
    memcpy(numbers, &n, sizeof(n));
    return true;
}

/* The socket's options may have been changed, and any process sends what is left. */
static void tx_afresh(struct conn *c)
{
    c->tx.tail_pid = 0;
    atomic_store(&c->tx.nodelay, 0);
    atomic_store(&c->tx.nodelay_owed, 0);
    if (atomic_load(&c->tx.cork) != CORK_OURS)
        atomic_store(&c->tx.cork, CORK_KERNELS);
    atomic_store(&c->tx.frame_left, 0);
    atomic_store(&c->tx.unproved, 0);
}

bool conn_rest_tx_load(struct conn *c, const uint8_t *numbers, const uint8_t *octets)
{
    struct tx_numbers n;
    memcpy(&n, numbers, sizeof(n));
    __asm__ volatile("" ::: "memory");
    if (is_upgraded(c) &&
        (atomic_load(&c->tx.job_runs) || !rest_tx_load(&c->st, &c->ep, &n.st, octets, n.st.ep.queued)))
        return false;
    c->tx.kernel_total = n.kernel_total;
    atomic_store(&c->tx.plain_total, n.plain_total);
    atomic_store(&c->tx.shut, n.shut != 0);
    atomic_store(&c->tx.fin_owed, n.fin_owed != 0);
    atomic_store(&c->tx.rest, n.rest != 0 || n.st.ep.queued > 0);
    c->tx.urgent = n.urgent != 0;
    tx_afresh(c);
    return true;
}

void conn_rest_none(struct conn *c)
{
    static const uint8_t nothing[1];
    const struct rest_rx rx = { .end = STREAM_OPEN };
    const struct rest_tx tx = { 0 };
    c->tx.job_runs = c->tx.job_stopped = false;
    c->tx.sender_pid = 0;
    c->rx.pre_off = c->rx.pre_len = c->rx.held_len = 0;
    rx_afresh(c);
    tx_afresh(c);
    if (c->coalesce.pid != 0 && c->coalesce.slot != NULL)
        c->coalesce.slot = NULL;
    c->coalesce.posted = false;
    if (is_upgraded(c)) {
        bool ok = rest_rx_load(&c->st, &c->ep, &rx, nothing, 0) && rest_tx_load(&c->st, &c->ep, &tx, nothing, 0);
        (void)ok; /* (There is nothing that would not check; with credits it is not used any more.) */
    }
}
