/*
 * The memory of connections: slots in blocks, and the buffers of each. All of it lies in the arena (shmem.h), so that
 * children share it and executed programs can map it again.
 */
#include <errno.h>
#include <string.h>

#include "core/base/rawsys.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_apart.h"
#include "preload/conn/conn_board.h"
#include "preload/conn/conn_mem.h"
#include "preload/conn/shmem.h"
#include "preload/process/board.h"
#include "preload/process/proc.h"
#include "preload/process/signals.h"

/* Untouched pages cost nothing: most connections never use `pre`, and few use `out`. */
#define CONN_MEM_LEN (CONN_IN_LEN + CONN_OUT_LEN + CONN_PRE_LEN)

/* Blocks are never unmapped: a child may hold a slot that the parent gave back. */
#define BLOCK_SLOTS 16u
#define BLOCK_LEN (BLOCK_SLOTS * sizeof(struct conn))
#define BLOCKS_MAX 4096u
#define LOOK_BLOCKS 8u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows; taken before the arena's lock */
static struct {
    struct conn *conns;
    /* while this process parts: what will be in their place; and bit n: others hold slot n, too */
    struct conn *anew;
    uint32_t others;
    bool given; /* mapped from another program: no new connection goes there */
} blocks[BLOCKS_MAX];
static unsigned blocks_n;

/*
 * Buffers of connections that have ended, kept for the next ones: to map them, touch each page for the first time and
 * unmap them costs more than the rest of a short connection's memory. Only those of connections that carried little are
 * kept, because few of their pages were touched. They belong to this process alone: its children forget them (a child
 * of a fork that we did not see is known by its process number).
 */
#define SPARES 16u
#define SPARE_OCTETS 16384u
static uint8_t *spares[SPARES];
static unsigned spares_n;

static uint8_t *buffers_map(void)
{
    if (spares_n > 0 && !proc_is_borrowed())
        return spares[--spares_n];
    return shmem_map(CONN_MEM_LEN);
}

/* octets: the number of bytes that the connection has carried. */
static void buffers_unmap(uint8_t *mem, bool all, uint64_t octets)
{
    bool kept = false;
    if (all && octets <= SPARE_OCTETS && shmem_is_own(mem)) {
        lock_take(&lock);
        if (spares_n < SPARES && !proc_is_borrowed()) {
            spares[spares_n++] = mem;
            kept = true;
        }
        lock_give(&lock);
    }
    if (!kept)
        shmem_unmap(mem, CONN_MEM_LEN, all);
}

/* Takes back a connection whose holders were all killed: its buffers are not mapped here, or no longer. */
static bool reclaim(struct conn *c)
{
    uint8_t *mem = c->mem.base, *big = c->mem.pre_cap == CONN_PRE_BIG_LEN ? c->mem.pre : NULL;
    if (atomic_load(&c->holders.n) == 0 || !holders_all_dead(&c->holders))
        return false;
    if (mem != NULL)
        shmem_discard(mem, CONN_MEM_LEN);
    if (big != NULL)
        shmem_discard(big, CONN_PRE_BIG_LEN);
    return true;
}

/*
 * Looks at `most` blocks at most, beginning with *at. Leaves *at at the block where it has found a slot, or behind the
 * last one that it looked at.
 */
static struct conn *claim_in(unsigned *at, unsigned most, bool of_the_dead)
{
    for (unsigned n = 0; n < most && n < blocks_n; n++, ++*at) {
        *at %= blocks_n;
        for (unsigned i = 0; i < BLOCK_SLOTS && !blocks[*at].given; i++) {
            struct conn *c = &blocks[*at].conns[i];
            if ((atomic_load(&c->holders.n) == 0 || (of_the_dead && reclaim(c))) && holders_claim(&c->holders))
                return c;
        }
    }
    return NULL;
}

/*
 * Looks in the block of the last slot, then in a few blocks, different ones each time: with thousands of connections a
 * look at all blocks would cost more than the connections.
 */
static struct conn *slot_claim(void)
{
    static unsigned current, next, next_dead; /* the lock's */
    struct conn *c = claim_in(&current, 1, false);
    if (c == NULL && (c = claim_in(&next, LOOK_BLOCKS, false)) != NULL)
        current = next;
    /* This costs a system call for each slot that is held; but a block is worth it. */
    if (c == NULL && (c = claim_in(&next_dead, LOOK_BLOCKS, true)) != NULL)
        current = next_dead;
    if (c != NULL)
        return c;
    struct conn *block = blocks_n < BLOCKS_MAX ? shmem_map(BLOCK_LEN) : NULL;
    if (block == NULL) {
        c = claim_in(&next, blocks_n, false);
        return c != NULL ? c : claim_in(&next_dead, blocks_n, true);
    }
    current = blocks_n;
    blocks[blocks_n].given = false;
    blocks[blocks_n++].conns = block;
    return holders_claim(&block[0].holders) ? &block[0] : NULL;
}

struct conn *conn_alloc(void)
{
    lock_take(&lock);
    struct conn *c = slot_claim();
    lock_give(&lock);
    if (c == NULL)
        return NULL;
    /* The protocol parts are set up when they begin. */
    size_t from = offsetof(struct conn, holders) + sizeof(c->holders);
    memset((uint8_t *)c + from, 0, offsetof(struct conn, ep) - from);
    turn_init(&c->rx.turn);
    turn_init(&c->tx.turn);
    return c;
}

int conn_buffers(struct conn *c)
{
    if (c->mem.base != NULL)
        return 0;
    lock_take(&lock);
    uint8_t *mem = c->mem.base == NULL ? buffers_map() : NULL;
    if (mem != NULL) {
        c->mem.in = mem;
        c->mem.out = mem + CONN_IN_LEN;
        c->mem.pre = c->mem.out + CONN_OUT_LEN;
        c->mem.pre_cap = CONN_PRE_LEN;
        c->mem.base = mem;
    }
    lock_give(&lock);
    return c->mem.base != NULL ? 0 : -ENOMEM;
}

size_t conn_memory(const struct conn *c)
{
    return sizeof(*c) + (c->mem.base != NULL ? CONN_MEM_LEN : 0) +
           (c->mem.pre_cap == CONN_PRE_BIG_LEN ? CONN_PRE_BIG_LEN : 0) +
           (conn_ops(c)->memory != NULL ? conn_ops(c)->memory(c) : 0);
}

int conn_grow_pre(struct conn *c)
{
    if (c->mem.pre_cap == CONN_PRE_BIG_LEN)
        return -ENOSPC;
    uint8_t *big = shmem_map(CONN_PRE_BIG_LEN);
    if (big == NULL)
        return -ENOMEM;
    memcpy(big, c->mem.pre, c->startup.in_len);
    c->mem.pre = big;
    c->mem.pre_cap = CONN_PRE_BIG_LEN;
    return 0;
}

bool conn_leave(struct conn *c, struct sock *s)
{
    bool last = conn_apart_leave(c);
    if (holders_leave_others(&c->holders))
        return false;
    if (s != NULL && last)
        conn_record(s, c); /* of two processes that close it at the same time neither was alone before */
    uint64_t board = c->board;
    if (holders_leave(&c->holders) != 0)
        return false;
    if (last)
        board_give(board);
    return true;
}

void conn_release(struct conn *c, struct sock *s)
{
    uint8_t *mem = c->mem.base, *big = c->mem.pre_cap == CONN_PRE_BIG_LEN ? c->mem.pre : NULL;
    for (int i = 0; i < CONN_CARRIERS; i++)
        if (conn_carriers[i] != NULL && conn_carriers[i]->drop != NULL)
            conn_carriers[i]->drop(c);
    if (c->coalesce.slot != NULL) {
        bool held = turn_take_brief(&c->tx.turn) == 0; /* the flusher may be at it */
        coalesce_leave(c);
        if (held)
            turn_give(&c->tx.turn);
    }
    uint64_t octets = c->rx.kernel_total + c->tx.kernel_total;
    bool all = conn_leave(c, s);
    if (big != NULL)
        shmem_unmap(big, CONN_PRE_BIG_LEN, all);
    if (mem != NULL)
        buffers_unmap(mem, all, octets);
}

bool conn_place(const struct conn *c, struct conn_place *at)
{
    if (!conn_on_socket(c))
        return false; /* the endpoint ends with this program */
    at->shmem_fd = shmem_fd(c);
    if (at->shmem_fd < 0 || shmem_fd(c->mem.base) != at->shmem_fd || shmem_fd(c->mem.pre) != at->shmem_fd)
        return false;
    bool found = false;
    at->maker = 0;
    lock_take(&lock);
    for (unsigned b = 0; b < blocks_n && !found; b++) {
        found = c >= blocks[b].conns && c < blocks[b].conns + BLOCK_SLOTS;
        at->block = (uintptr_t)blocks[b].conns;
        at->slot = (unsigned)(c - blocks[b].conns);
    }
    lock_give(&lock);
    return found;
}

static struct conn *block_given(const struct conn_place *at)
{
    struct conn *block = (struct conn *)at->block; /* NOLINT: it has the same address in all processes */
    for (unsigned b = 0; b < blocks_n; b++)
        if (blocks[b].conns == block)
            return block;
    if (blocks_n == BLOCKS_MAX || shmem_attach(at->shmem_fd, block, BLOCK_LEN) < 0)
        return NULL;
    blocks[blocks_n].given = true;
    blocks[blocks_n++].conns = block;
    return block;
}

struct conn *conn_take_up(const struct conn_place *at)
{
    lock_take(&lock);
    struct conn *c = at->slot < BLOCK_SLOTS ? block_given(at) : NULL;
    lock_give(&lock);
    if (c == NULL)
        return NULL;
    c += at->slot;
    if (!holders_take_up(&c->holders, at->maker))
        return NULL;
    bool big = c->mem.pre_cap == CONN_PRE_BIG_LEN;
    if (shmem_attach(at->shmem_fd, c->mem.base, CONN_MEM_LEN) == 0) {
        if (!big || shmem_attach(at->shmem_fd, c->mem.pre, CONN_PRE_BIG_LEN) == 0) {
            conn_board_taken_up(c);
            return c;
        }
        shmem_unmap(c->mem.base, CONN_MEM_LEN, false);
    }
    holders_leave(&c->holders);
    return NULL;
}

/* ---- parting ---- */

static bool is_held(struct conn *c)
{
    return atomic_load(&c->holders.n) > 0 && holders_has_me(&c->holders);
}

static struct conn *slot_held(unsigned b, unsigned i)
{
    struct conn *c = &blocks[b].conns[i];
    return is_held(c) ? c : NULL;
}

void conn_mem_await(uint64_t until_ns)
{
    for (unsigned b = 0; b < blocks_n; b++)
        for (unsigned i = 0; i < BLOCK_SLOTS; i++) {
            struct conn *c = slot_held(b, i);
            if (c != NULL && !holders_await_alone(&c->holders, until_ns))
                return; /* the time is over */
        }
}

static bool piece_stays(void *p, size_t len, bool copied)
{
    void *to = shmem_part_anew(p, len);
    if (to == NULL)
        return false;
    if (copied)
        shmem_part_copy(to, p, len);
    return true;
}

/*
 * Of a connection that others hold, too, what is in its buffers comes by the record. (There may be octets in them of an
 * earlier connection.)
 */
static bool slot_stays(struct conn *c, struct conn *to, bool others)
{
    bool copied = !others || !conn_on_socket(c);
    shmem_part_copy(to, c, sizeof(*c));
    return (c->mem.base == NULL || piece_stays(c->mem.base, CONN_MEM_LEN, copied)) &&
           (c->mem.pre_cap != CONN_PRE_BIG_LEN || piece_stays(c->mem.pre, CONN_PRE_BIG_LEN, copied));
}

/*
 * Blocks stay where they are, because pointers to former connections may be followed; slots of other processes are free
 * there.
 */
static bool block_stays(unsigned b)
{
    struct conn *to = shmem_part_anew(blocks[b].conns, BLOCK_LEN);
    blocks[b].anew = to;
    blocks[b].others = 0;
    if (to == NULL)
        return false;
    for (unsigned i = 0; i < BLOCK_SLOTS; i++) {
        struct conn *c = slot_held(b, i);
        if (c == NULL)
            continue;
        bool others = !holders_alone(&c->holders);
        blocks[b].others |= (uint32_t)others << i;
        if (!slot_stays(c, &to[i], others))
            return false;
    }
    return true;
}

/* For the processes that have the old memory, the slot is free; or it is theirs, and this one's a copy. */
static void slot_leave(unsigned b, unsigned i)
{
    struct conn *c = slot_held(b, i);
    if (c == NULL)
        return;
    if (blocks[b].others >> i & 1) {
        conn_apart_part(c, &blocks[b].anew[i]);
        return;
    }
    if (c->mem.pre_cap == CONN_PRE_BIG_LEN)
        shmem_part_drop(c->mem.pre, CONN_PRE_BIG_LEN);
    if (c->mem.base != NULL)
        shmem_part_drop(c->mem.base, CONN_MEM_LEN);
    holders_leave(&c->holders);
}

bool conn_mem_is_shared(void)
{
    return shmem_is_shared();
}

int conn_mem_part(void)
{
    lock_take(&lock);
    int r = shmem_part_begin();
    if (r == 0) {
        for (unsigned b = 0; b < blocks_n && r == 0; b++)
            r = block_stays(b) ? 0 : -ENOMEM;
        if (r < 0)
            shmem_part_undo();
    }
    if (r == 0) {
        for (unsigned b = 0; b < blocks_n; b++)
            for (unsigned i = 0; i < BLOCK_SLOTS; i++)
                slot_leave(b, i);
        while (spares_n > 0) /* (those are unmapped with everything else) */
            shmem_part_drop(spares[--spares_n], CONN_MEM_LEN);
        shmem_part_end();
        conn_apart_sweep(is_held);
    }
    lock_give(&lock);
    return r;
}

void conn_mem_before_fork(void)
{
    lock_take(&lock);
    shmem_before_fork();
}

void conn_mem_after_fork(bool child)
{
    shmem_after_fork(child);
    if (!child) {
        lock_give(&lock);
        return;
    }
    pthread_mutex_init(&lock, NULL);
    while (spares_n > 0)
        shmem_unmap(spares[--spares_n], CONN_MEM_LEN, false);
}
