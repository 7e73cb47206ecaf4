/* Coalescing of small writes; see coalesce.h. */
#include "preload/conn/coalesce.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/fault.h"
#include "core/base/rawsys.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/flusher.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/sandbox.h"
#include "preload/process/usermem.h"
#include "preload/sock/notify.h"
#include "preload/sock/pending.h"

/* The number of small writes in a row that go at once, before the next one is gathered: */
#define ROW_MIN 4u
#define ROW_MAX 4096u            /* the number where gathering has gained nothing several times */
#define ROW_NS 100000u           /* a row: each write follows so soon after the one before */
#define WORTH_WRITES 8u          /* gathering pays with this many writes a batch */
#define NODELAY_US 20u           /* with TCP_NODELAY nothing waits longer */
#define CORK_US UINT64_C(200000) /* with TCP_CORK nothing waits longer than in the kernel */
#define LOOK_EVERY 8u            /* writes between two looks at the clock */
#define HEAD_LEN \
    ((COALESCE_SLOTS * sizeof(struct coalesce) + 4095) & ~(size_t)4095) /* the slots; behind them the buffers */
#define ADDING_SPINS 200u /* the thread that is adding takes some 20 ns, unless it does not run */

struct coalesce *coalesce_slots;
_Atomic unsigned coalesce_slots_n;
__thread unsigned coalesce_waits;
__thread unsigned coalesce_polls;
__thread bool coalesce_mine;

static _Atomic unsigned stopped;

static inline uint32_t tid(void)
{
    return (uint32_t)proc_tid();
}

static inline uint64_t word_of(uint32_t who, uint32_t len)
{
    return (uint64_t)who << 32 | len;
}

static inline bool is_at_most(size_t most, size_t len, int flags)
{
    return len > 0 && len <= most && (flags & ~(MSG_NOSIGNAL | MSG_DONTWAIT)) == 0;
}

bool coalesce_is_small(size_t len, int flags)
{
    return is_at_most(COALESCE_SMALL, len, flags);
}

bool coalesce_is_piece(size_t len, int flags)
{
    return is_at_most(COALESCE_PIECE, len, flags);
}

/* This process's buffer of c. */
static struct coalesce *coalesce_of(const struct conn *c)
{
    /* (The child of a fork that we did not see finds the buffers empty.) */
    return c->coalesce.slot != NULL && c->coalesce.pid == proc.pid && c->coalesce.slot->conn == c ? c->coalesce.slot
                                                                                                  : NULL;
}

bool coalesce_holds(const struct conn *c)
{
    const struct coalesce *g = coalesce_of(c);
    return g != NULL && (uint32_t)atomic_load(&g->word) != 0;
}

/* Does the flusher wait for SOCKWARP_COALESCE_US, which is the longer time? */
static inline bool is_steady(const struct coalesce *g)
{
    return atomic_load_explicit(&g->by_itself, memory_order_relaxed) >= COALESCE_STEADY &&
           atomic_load_explicit(&g->deadline_ns, memory_order_relaxed) < proc.set.coalesce_us * UINT64_C(1000);
}

uint64_t coalesce_patience(const struct coalesce *g)
{
    return is_steady(g) ? proc.set.coalesce_us * UINT64_C(1000) : atomic_load(&g->deadline_ns);
}

uint64_t coalesce_due(const struct coalesce *g)
{
    return atomic_load(&g->since_ns) + coalesce_patience(g);
}

/* A call of the program's sends before the flusher would. */
static bool is_late(const struct coalesce *g, uint64_t now)
{
    uint64_t limit = atomic_load_explicit(&g->deadline_ns, memory_order_relaxed);
    if (!is_steady(g))
        limit -= limit / 4;
    return now - atomic_load_explicit(&g->since_ns, memory_order_relaxed) >= limit;
}

/* ---- buffers ---- */

/* They lie in memory that the child of any fork finds empty, also of a fork that we do not see. */
static bool slots_make(void)
{
    static _Atomic bool making;
    bool no = false;
    if (SW_LIKELY(coalesce_slots != NULL))
        return true;
    if (!atomic_compare_exchange_strong(&making, &no, true))
        return false; /* another thread is making them, or has failed to */
    const size_t len = HEAD_LEN + COALESCE_SLOTS * (size_t)COALESCE_LEN;
    uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    if (madvise(p, len, MADV_WIPEONFORK) < 0) {
        munmap(p, len);
        return false;
    }
    __atomic_store_n(&coalesce_slots, (struct coalesce *)(void *)p, __ATOMIC_RELEASE);
    return true;
}

static struct coalesce *slot_claim(void)
{
    for (unsigned i = 0; i < COALESCE_SLOTS; i++) {
        struct coalesce *g = &coalesce_slots[i];
        bool no = false;
        if (atomic_load_explicit(&g->used, memory_order_relaxed) ||
            !atomic_compare_exchange_strong(&g->used, &no, true))
            continue;
        if (g->taken_over && !atomic_load(&g->noticed)) { /* another thread may still be adding to it */
            atomic_store(&g->used, false);
            continue;
        }
        g->taken_over = false;
        atomic_store(&g->noticed, false);
        atomic_store(&g->word, word_of(COALESCE_CLOSED, 0));
        atomic_store(&g->rest, false);
        atomic_store(&g->writes, 0);
        g->writes_last = 0;
        atomic_store(&g->by_itself, 0);
        g->buf = (uint8_t *)coalesce_slots + HEAD_LEN + i * (size_t)COALESCE_LEN;
        for (unsigned n = atomic_load(&coalesce_slots_n); n <= i;)
            if (atomic_compare_exchange_strong(&coalesce_slots_n, &n, i + 1))
                break;
        return g;
    }
    return NULL;
}

/*
 * No gathering on connections whose small writes would become several Sends, or would need more care than gathering is
 * worth.
 */
bool coalesce_suits(const struct conn *c)
{
    return proc.set.coalesce_us > 0 && atomic_load(&stopped) == 0 && !sandbox_on() && atomic_load(&c->holders.n) == 1 &&
           conn_state(c) == CONN_UPGRADED && c->st.llp && conn_on_socket(c) && c->tx.segment == 0 &&
           !c->ep.cfg.tx.markers && !c->tx.nodelay_lent && !c->tx.urgent;
}

/* SOCKWARP_COALESCE_US, or the shorter time that TCP_NODELAY allows. */
static uint64_t deadline_us(bool nodelay)
{
    return nodelay && proc.set.coalesce_us > NODELAY_US ? NODELAY_US : proc.set.coalesce_us;
}

static struct coalesce *attach(struct sock *s, struct conn *c, bool corked)
{
    struct coalesce *g = coalesce_of(c);
    if (!coalesce_suits(c))
        return NULL;
    if (g != NULL && !g->taken_over)
        return g;
    if (g != NULL)
        coalesce_leave(c); /* and another one for it */
    if (proc_is_borrowed() || !slots_make() || !flusher_ready() || (g = slot_claim()) == NULL)
        return NULL;
    atomic_store(&g->deadline_ns, (corked ? CORK_US : deadline_us(conn_nodelay(c, atomic_load(&s->fd)))) * 1000u);
    size_t most = stream_send_max(&c->st);
    g->cap = most < COALESCE_LEN ? (uint32_t)most : COALESCE_LEN;
    g->conn = c;
    c->coalesce.slot = g;
    c->coalesce.pid = proc.pid;
    atomic_store(&g->sock, s);
    atomic_store(&s->coalesce, g);
    return g;
}

/* Closes the word: no thread adds to the buffer from now on. Returns how many bytes it holds. */
static uint32_t shut(struct coalesce *g)
{
    uint64_t w = atomic_load(&g->word);
    for (unsigned spins = 0;;) {
        uint32_t who = (uint32_t)(w >> 32);
        if (who == COALESCE_CLOSED)
            return (uint32_t)w;
        if (who != 0 && who != tid() && spins++ < ADDING_SPINS) {
            w = atomic_load(&g->word);
            continue;
        }
        if (!atomic_compare_exchange_strong(&g->word, &w, word_of(COALESCE_CLOSED, (uint32_t)w)))
            continue;
        g->taken_over = g->taken_over || who != 0;
        return (uint32_t)w;
    }
}

static void reopen(struct coalesce *g, uint32_t len)
{
    atomic_store(&g->word, word_of(g->taken_over ? COALESCE_CLOSED : 0, len));
}

void coalesce_leave_busy(struct coalesce *g)
{
    struct sock *s = atomic_load(&g->sock);
    struct coalesce *is = g;
    atomic_store(&g->word, word_of(COALESCE_CLOSED, 0));
    if (s != NULL)
        atomic_compare_exchange_strong(&s->coalesce, &is, NULL);
    g->conn->coalesce.slot = NULL;
    atomic_store(&g->rest, false);
    atomic_store(&g->sock, NULL);
}

void coalesce_leave(struct conn *c)
{
    struct coalesce *g = coalesce_of(c);
    if (g == NULL)
        return;
    shut(g);
    coalesce_leave_busy(g);
    while (atomic_load(&g->busy))
        sched_yield(); /* (the flusher finds the turn taken, or is done in a moment) */
    atomic_store(&g->used, false);
}

/* ---- adding ---- */

static void send_held(struct sock *s, struct coalesce *g, bool goes_on);

static inline uint32_t writes_of(const struct coalesce *g)
{
    return atomic_load_explicit(&g->writes, memory_order_relaxed);
}

/* Called only by the thread that is adding or has the turn. */
static inline void set_writes(struct coalesce *g, uint32_t n)
{
    atomic_store_explicit(&g->writes, n, memory_order_relaxed);
}

size_t coalesce_put(int fd, const void *buf, size_t len, int flags)
{
    struct sock *s = sock_peek(fd);
    if (s == NULL)
        return 0;
    struct coalesce *g = atomic_load_explicit(&s->coalesce, memory_order_acquire);
    if (SW_LIKELY(g == NULL) || !coalesce_is_small(len, flags))
        return 0;
    uint64_t w = atomic_load_explicit(&g->word, memory_order_acquire);
    uint32_t at = (uint32_t)w, me = tid();
    if ((w >> 32) != 0 || at == 0 || at + len > g->cap || !usermem_readable(buf, len))
        return 0;
    uint64_t mine = word_of(me, at);
    if (!atomic_compare_exchange_strong(&g->word, &w, mine))
        return 0;
    if (atomic_load_explicit(&g->sock, memory_order_relaxed) != s || atomic_load(&g->conn->so_error) != 0) {
        if (!atomic_compare_exchange_strong(&g->word, &mine, w))
            atomic_store(&g->noticed, true);
        return 0;
    }
    memcpy(g->buf + at, buf, len);
    set_writes(g, writes_of(g) + 1);
    atomic_store_explicit(&g->tid, me, memory_order_relaxed);
    coalesce_mine = true;
    /* (The buffer is full if another write of this length would not fit.) */
    bool late = at + 2 * len > g->cap || (writes_of(g) % LOOK_EVERY == 0 && is_late(g, proc_now_ns()));
    if (!atomic_compare_exchange_strong(&g->word, &mine, word_of(0, at + (uint32_t)len))) {
        atomic_store(&g->noticed, true);
        return 0;
    }
    if (SW_UNLIKELY(late))
        send_held(s, g, true);
    return len;
}

static void add(struct coalesce *g, struct iov_iter *it, size_t len, uint32_t at)
{
    iov_iter_gather(it, g->buf + at, len);
    set_writes(g, writes_of(g) + 1);
    atomic_store_explicit(&g->tid, tid(), memory_order_relaxed);
    coalesce_mine = true;
    reopen(g, at + (uint32_t)len);
}

bool coalesce_add(struct conn *c, struct iov_iter *it, size_t len, uint64_t now)
{
    struct coalesce *g = coalesce_of(c);
    uint32_t at = g != NULL ? shut(g) : 0;
    if (at == 0)
        return false;
    if (at + len > g->cap || is_late(g, now) || g->taken_over || atomic_load(&stopped) != 0)
        return false;
    add(g, it, len, at);
    return true;
}

/* False: there is no buffer, or the write does not fit into one (a Send of short frames carries little). */
static bool begin(struct sock *s, struct conn *c, struct iov_iter *it, size_t len, uint64_t now, bool corked)
{
    struct coalesce *g = attach(s, c, corked);
    if (g == NULL || len > g->cap)
        return false;
    if (corked)
        atomic_store(&g->by_itself, 0); /* never steady: its deadline is the cork's, which may be longer */
    atomic_store(&g->since_ns, now);
    add(g, it, len, 0);
    flusher_note(coalesce_due(g));
    return true;
}

bool coalesce_begin(struct sock *s, struct conn *c, struct iov_iter *it, size_t len, uint64_t now)
{
    bool in_row = c->coalesce.row_n > 0 && c->coalesce.row_waits == coalesce_waits &&
                  (c->coalesce.row_ns == 0 || now - c->coalesce.row_ns < ROW_NS);
    uint32_t min = c->coalesce.row_min < ROW_MIN ? ROW_MIN : c->coalesce.row_min;
    c->coalesce.row_n = in_row ? c->coalesce.row_n + 1 : 1;
    c->coalesce.row_ns = now;
    c->coalesce.row_waits = coalesce_waits;
    if (SW_LIKELY(c->coalesce.row_n <= min))
        return false;
    c->coalesce.row_n = min + 1;
    if (begin(s, c, it, len, now, false))
        return true;
    c->coalesce.row_n = 0;
    return false;
}

bool coalesce_hold(struct sock *s, struct conn *c, struct iov_iter *it, size_t len, uint64_t now)
{
    return begin(s, c, it, len, now, true);
}

void coalesce_hasten(struct conn *c)
{
    struct coalesce *g = coalesce_of(c);
    if (g == NULL)
        return;
    atomic_store(&g->deadline_ns, deadline_us(true) * 1000u);
    flusher_note(coalesce_due(g));
}

/* ---- sending ---- */

int coalesce_post(struct conn *c)
{
    struct coalesce *g = coalesce_of(c);
    uint32_t len = g != NULL ? shut(g) : 0;
    if (len == 0)
        return 0;
    struct iovec v = { .iov_base = g->buf, .iov_len = len };
    struct iov_iter it = iov_iter_init(&v, 1);
    uint32_t writes = writes_of(g);
    int r = stream_write_send(&c->st, &it, len);
    if (r == -EAGAIN)
        return r;
    /*
     * (Any other error: the connection is over, and the next call tells the program. A write that does not fit a Send
     * is not gathered.)
     */
    SW_CHECK(r != -EMSGSIZE, "%u octets gathered, a Send carries %zu", len, stream_send_max(&c->st));
    if (r == 0)
        c->coalesce.writes += writes;
    /* Where gathering gains little it is tried less often. */
    if (writes >= WORTH_WRITES)
        c->coalesce.row_min = ROW_MIN;
    else if (writes <= 2)
        c->coalesce.row_min = c->coalesce.row_min < ROW_MIN   ? 2 * ROW_MIN
                              : c->coalesce.row_min < ROW_MAX ? 2 * c->coalesce.row_min
                                                              : ROW_MAX;
    g->writes_last = writes;
    set_writes(g, 0);
    atomic_store(&g->word, word_of(COALESCE_CLOSED, 0));
    c->coalesce.posted = r == 0;
    return r == 0;
}

void coalesce_posted(struct conn *c, bool all)
{
    if (!c->coalesce.posted)
        return;
    c->coalesce.posted = false;
    bool kept = all || iwarp_out_keep(&c->ep);
    SW_CHECK(kept, "a Send of gathered octets does not fit the tail's memory");
}

/* Sends what was gathered while the program goes on writing. The caller holds tx. */
static void send_as_it_writes(struct conn *c, int fd)
{
    struct coalesce *g = coalesce_of(c);
    /* The program's next call sends what is left; if it makes none, the flusher does. */
    int r = coalesce_holds(c) ? conn_tx_rest(c, fd) : 0;
    if (g != NULL)
        atomic_fetch_add(&g->by_itself, 1);
    if (g != NULL && r == -EAGAIN)
        atomic_store(&g->rest, true);
    c->coalesce.row_ns = proc_now_ns();
}

/*
 * The row of small writes is over: sends all of it. True: bytes are left, which another thread must send. The caller
 * holds tx.
 */
static bool send_row_end(struct conn *c, int fd)
{
    struct coalesce *g = coalesce_of(c);
    int r = 0;
    if (coalesce_holds(c) || (g != NULL && atomic_load(&g->rest)))
        r = conn_tx_push(c, fd);
    c->coalesce.row_n = 0;
    if (!coalesce_holds(c))
        coalesce_leave(c);
    return r == -EAGAIN && conn_tail_is_ours(c);
}

/* goes_on: the program is writing, and may have more. nested: no turn is waited for. */
static void send_one(struct sock *s, bool goes_on, bool nested)
{
    struct conn *c = s->conn;
    if (nested && turn_is_mine(&c->tx.turn))
        return;
    struct cancel hold = cancel_never();
    int err = errno;
    if ((nested ? turn_try(&c->tx.turn) : turn_take_brief(&c->tx.turn)) == 0) {
        int fd = atomic_load(&s->fd);
        bool owed = false;
        if (fd >= 0 && goes_on)
            send_as_it_writes(c, fd);
        else if (fd >= 0)
            owed = send_row_end(c, fd);
        turn_give(&c->tx.turn);
        if (owed) {
            pending_add(s);
            notify_changed(s);
        }
    }
    errno = err;
    cancel_restore(hold);
}

/* Returns the socket of g with a reference. NULL: g belongs to no socket any more. */
static struct sock *hold_sock(struct coalesce *g)
{
    struct sock *s = atomic_load(&g->sock);
    if (s == NULL)
        return NULL;
    atomic_fetch_add(&s->refs, 1);
    if (atomic_load(&g->sock) == s)
        return s;
    sock_put(s);
    return NULL;
}

/* s may have left g meanwhile, and g may be another connection's. */
static void send_held(struct sock *s, struct coalesce *g, bool goes_on)
{
    struct sock *now = hold_sock(g);
    if (now == NULL)
        return;
    if (now == s)
        send_one(s, goes_on, goes_on);
    sock_put(now);
}

static void send_those(uint32_t of, bool nested)
{
    unsigned n = atomic_load(&coalesce_slots_n);
    for (unsigned i = 0; i < n; i++) {
        struct coalesce *g = &coalesce_slots[i];
        if (!atomic_load_explicit(&g->used, memory_order_relaxed) || (of != 0 && atomic_load(&g->tid) != of))
            continue;
        struct sock *s = hold_sock(g);
        if (s == NULL)
            continue;
        send_one(s, false, nested);
        sock_put(s);
    }
}

void coalesce_send_mine(bool nested)
{
    coalesce_mine = false;
    send_those(tid(), nested);
}

void coalesce_send_fd(int fd)
{
    struct sock *s = sock_peek(fd);
    struct coalesce *g = s != NULL ? atomic_load(&s->coalesce) : NULL;
    if (SW_UNLIKELY(g != NULL))
        send_held(s, g, false);
}

void coalesce_stop(void)
{
    atomic_fetch_add(&stopped, 1);
    send_those(0, false);
}

void coalesce_go_on(void)
{
    atomic_fetch_sub(&stopped, 1);
}

void coalesce_after_fork(void)
{
    coalesce_mine = false;
    atomic_store(&stopped, 0);
    atomic_store(&coalesce_slots_n, 0);
    flusher_after_fork();
}
