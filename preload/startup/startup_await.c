/*
 * accept() waits for the startup of a client of this host.
 */
#include <errno.h>
#include <poll.h>

#include "core/base/trace.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_rx.h"
#include "preload/process/cancel.h"
#include "preload/process/proc.h"
#include "preload/process/spin.h"
#include "preload/sock/wait.h"
#include "preload/startup/startup.h"

/*
 * A client of this host that runs sockwarp is at work already: its Hello is microseconds away, and its connect() waits
 * for our answers. accept() carries the startup on for this long at most.
 */
#define STARTUP_NS 20000000u
#define HELLO_NS 5000000u
/*
 * A Hello behind the program's first bytes would come too late, so these wait for a client that is not running just now,
 * too.
 */
#define SAID_NS 50000000u

static bool awaits_hello(const struct conn *c)
{
    return conn_state(c) == CONN_NEGOTIATING && c->neg.state == NEGOTIATE_PEEK && !negotiate_wants_offer(&c->neg);
}

static struct spin startup_spin; /* do the clients' answers come soon? */

/*
 * Any process of this host may say that its Hello follows, and send nothing. So after a wait in vain accept()
 * does not wait for VAIN_TIMES its length: startups go on in the program's next calls, as they do for other hosts.
 */
#define VAIN_TIMES 128u
static _Atomic uint64_t hasty_until_ns;

static void in_vain(int fd, uint64_t start)
{
    uint64_t now = proc_now_ns();
    trace_debug("fd %d: has waited %lu us in vain", fd, (unsigned long)((now - start) / 1000));
    atomic_store(&hasty_until_ns, now + VAIN_TIMES * (now - start));
}

/* Is there nothing more to wait for? Takes in an upgraded one's RTR. */
static bool is_through(struct conn *c, int fd)
{
    enum conn_state st = conn_state(c);
    if (st == CONN_UPGRADED && turn_take_brief(&c->rx.turn) == 0) {
        int r = conn_rx_progress(c, fd, true); /* the RTR */
        turn_give(&c->rx.turn);
        if (r != 0 || conn_can_send(c))
            return true;
    }
    return (st != CONN_NEGOTIATING && st != CONN_UPGRADED) || c->neg.state == NEGOTIATE_NAKED;
}

/* 0: look again; -errno: it cannot be waited for. */
static int await_step(struct sock *s, struct conn *c, int fd, uint64_t end)
{
    struct spin_look k = { 0 };
    bool upgraded = conn_state(c) == CONN_UPGRADED;
    short events = upgraded ? POLLIN : (short)c->startup.kernel_wants;
    int r;
    if (upgraded && conn_has_chan(c))
        r = conn_ops(c)->await(s, c, fd, end);
    else
        r = spin_for(&k, &startup_spin, SPIN_STARTUP, fd, events) ? 0 : wait_for(fd, events, end, s);
    spin_end(&k, &startup_spin);
    return r < 0 && r != -EINTR ? r : 0; /* the signal does not end this wait, which is not the program's */
}

static void await(struct sock *s, struct conn *c, int fd, uint64_t hello_ns)
{
    uint64_t start = proc_now_ns();
    int r;
    do {
        r = startup_go_on_unused(s);
        (void)r; /* no other thread knows it yet, or that thread is done soon */
        bool undecided = awaits_hello(c);
        if (conn_is_held(c)) {
            atomic_store(&c->startup.finish_on_use, true);
            return;
        }
        if (is_through(c, fd))
            return;
        uint64_t end = start + (undecided ? hello_ns : STARTUP_NS);
        if (proc_now_ns() >= end) {
            in_vain(fd, start);
            return;
        }
        r = await_step(s, c, fd, end);
    } while (r == 0);
}

void startup_await(struct sock *s, struct conn *c, int fd)
{
    await(s, c, fd, HELLO_NS);
}

void startup_finish_on_use(struct sock *s)
{
    struct conn *c = s->conn;
    conn_use(c);
    if (!atomic_load_explicit(&c->startup.finish_on_use, memory_order_relaxed) ||
        !atomic_exchange(&c->startup.finish_on_use, false))
        return;
    struct cancel hold = cancel_never();
    startup_await(s, c, atomic_load(&s->fd));
    cancel_restore(hold);
}

void startup_await_hello(struct sock *s, struct conn *c)
{
    if (!atomic_load_explicit(&c->startup.hello_comes, memory_order_relaxed) ||
        !atomic_exchange(&c->startup.hello_comes, false) || startup_is_hasty())
        return;
    struct cancel hold = cancel_never();
    await(s, c, atomic_load(&s->fd), SAID_NS);
    cancel_restore(hold);
}

bool startup_is_hasty(void)
{
    return proc_now_ns() < atomic_load(&hasty_until_ns);
}
