/*
 * TCP_CORK and TCP_NODELAY of an upgraded connection.
 *
 * Web servers put the cork in, write an answer's head and its body, and pull the cork out, with TCP_NODELAY unset
 * meanwhile: four calls that change only when the bytes leave. Here the cork is the library's: small writes are
 * gathered meanwhile (coalesce.h), so head and body go as one message with one call, and what the kernel gets earlier
 * bears MSG_MORE. The kernel's limit of 200 ms is kept.
 *
 *   KERNELS --found to be out--> OUT <--put in, pulled out--> OURS
 *      ^------(put in where nothing is gathered)----'
 *
 * When the program unsets TCP_NODELAY, the kernel is told with the second send after that: by then the program has
 * mostly set it again.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_nagle.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"

#define OWED_SENDS 2u

enum { NODELAY_UNKNOWN, NODELAY_OFF, NODELAY_ON };

void conn_nodelay_lend(struct conn *c, int fd)
{
    int on = 0;
    socklen_t len = sizeof(on);
    if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len) < 0 || on)
        return;
    on = 1;
    c->tx.nodelay_lent = REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
}

void conn_nodelay_back(struct conn *c, int fd)
{
    int off = 0;
    c->tx.nodelay_lent = false;
    atomic_store(&c->tx.nodelay_owed, 0);
    atomic_store(&c->tx.nodelay, NODELAY_OFF);
    sandbox_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off));
}

static int kernels(int fd, int name)
{
    int on = 0;
    socklen_t len = sizeof(on);
    if (sandbox_on() || REAL(getsockopt)(fd, IPPROTO_TCP, name, &on, &len) < 0)
        return -EPERM;
    return on != 0;
}

/* Of the kernel's socket. */
static uint8_t known_nodelay(struct conn *c, int fd)
{
    uint8_t known = atomic_load_explicit(&c->tx.nodelay, memory_order_relaxed);
    if (SW_LIKELY(known != NODELAY_UNKNOWN))
        return known;
    int on = kernels(fd, TCP_NODELAY);
    if (on >= 0)
        atomic_store(&c->tx.nodelay, known = on ? NODELAY_ON : NODELAY_OFF);
    return known;
}

bool conn_nodelay(struct conn *c, int fd)
{
    return !conn_nodelay_lent(c) && atomic_load(&c->tx.cork) != CORK_OURS && known_nodelay(c, fd) == NODELAY_ON;
}

int conn_set_nodelay(struct sock *s, int fd, bool on)
{
    struct conn *c = s->conn;
    int r = 1;
    if (atomic_load(&c->tx.cork) != CORK_OURS)
        coalesce_send_fd(fd); /* its deadline is a different one from now on */
    bool lent = c->tx.nodelay_lent;
    c->tx.nodelay_lent = false; /* now it is the program's */
    if (lent || conn_state(c) != CONN_UPGRADED || !conn_on_socket(c) || turn_take_brief(&c->tx.turn) < 0) {
        atomic_store(&c->tx.nodelay_owed, 0);
        return 1;
    }
    if ((on ? atomic_load(&c->tx.nodelay) : known_nodelay(c, fd)) == NODELAY_ON) {
        atomic_store(&c->tx.nodelay_owed, on ? 0 : OWED_SENDS);
        r = 0;
    }
    turn_give(&c->tx.turn);
    return r;
}

void conn_nodelay_changed(struct conn *c)
{
    atomic_store(&c->tx.nodelay, NODELAY_UNKNOWN);
}

int conn_set_cork(struct sock *s, int fd, bool on)
{
    struct conn *c = s->conn;
    bool ours = atomic_load(&c->tx.cork) == CORK_OURS;
    if (!ours)
        coalesce_send_fd(fd);
    if (conn_state(c) != CONN_UPGRADED)
        return 1;
    if (!on && ours) {
        atomic_store(&c->tx.cork, CORK_OUT);
        coalesce_send_fd(fd);
        coalesce_hasten(c);                           /* (another thread was sending) */
        return atomic_load(&c->tx.more_told) ? 1 : 0; /* the kernel still waits for more, and its call ends that too */
    }
    if (on && ours)
        return 0;
    if (turn_take_brief(&c->tx.turn) < 0) {
        atomic_store(&c->tx.cork, CORK_KERNELS);
        return 1;
    }
    if (on && coalesce_suits(c) && (atomic_load(&c->tx.cork) == CORK_OUT || kernels(fd, TCP_CORK) == 0))
        atomic_store(&c->tx.cork, CORK_OURS);
    else
        atomic_store(&c->tx.cork, CORK_KERNELS);
    turn_give(&c->tx.turn);
    return atomic_load(&c->tx.cork) == CORK_OURS ? 0 : 1;
}

int conn_send_flags(struct conn *c, int fd, int flags)
{
    bool corked = SW_UNLIKELY(atomic_load_explicit(&c->tx.cork, memory_order_relaxed) == CORK_OURS);
    bool more = (flags & MSG_MORE) || (corked && !c->tx.urgent);
    uint8_t owed = atomic_load_explicit(&c->tx.nodelay_owed, memory_order_relaxed);
    /* (Another thread may set it again meanwhile.) */
    if (SW_UNLIKELY(owed > 0) && !more && atomic_compare_exchange_strong(&c->tx.nodelay_owed, &owed, owed - 1) &&
        owed == 1)
        conn_nodelay_back(c, fd);
    if (SW_UNLIKELY(more != atomic_load_explicit(&c->tx.more_told, memory_order_relaxed)))
        atomic_store_explicit(&c->tx.more_told, more, memory_order_relaxed);
    return more ? flags | MSG_MORE : flags;
}
