/* The program enters a seccomp filter: connections are brought to a state in which read and write are enough. */
#include "preload/calls/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "core/base/reason.h"
#include "core/base/trace.h"
#include "preload/calls/rights.h"
#include "preload/conn/coalesce.h"
#include "preload/conn/conn.h"
#include "preload/conn/conn_end.h"
#include "preload/conn/conn_nagle.h"
#include "preload/conn/conn_tx.h"
#include "preload/conn/flusher.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/sandbox.h"
#include "preload/sock/pending.h"
#include "preload/sock/sock.h"
#include "preload/sock/wait.h"
#include "preload/startup/beside.h"
#include "preload/startup/startup.h"

static void decide(struct sock *s, struct conn *c, int fd)
{
    if (conn_undecided(c)) { /* its Hello may be there, and be held: conn_is_held */
        c->startup.no_device = true;
        int r = startup_go_on(s, false);
        (void)r; /* the loop looks at its state next */
    }
    startup_stay_unasked(s, REASON_SANDBOX);
    beside_decide(s);
    uint64_t end = conn_is_late(c) ? proc_now_ns() + (uint64_t)proc.set.hello_timeout_ms * 1000000u : 0;
    while (conn_state(c) == CONN_NEGOTIATING && !conn_undecided(c))
        if (startup_go_on(s, false) < 0 || wait_for(fd, (short)c->startup.kernel_wants, end, s) < 0 ||
            (end != 0 && proc_now_ns() >= end))
            break;
    if (conn_state(c) != CONN_NEGOTIATING && conn_state(c) != CONN_CONNECTING)
        return;
    if (turn_take(&c->rx.turn, 0, false) < 0)
        return;
    conn_go_plain(s, c, REASON_SANDBOX);
    turn_give(&c->rx.turn);
    pending_remove(s);
}

/* Nothing that would need a call later: no low-water mark, no lent option, no ring at work. */
static void bare(struct conn *c, int fd)
{
    if (turn_take(&c->rx.turn, 0, false) == 0) {
        int one = 1;
        if (c->rx.kernel_lowat != 1 && REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)) == 0)
            c->rx.kernel_lowat = 1;
        turn_give(&c->rx.turn);
    }
    if (turn_take(&c->tx.turn, 0, false) == 0) {
        if (conn_nodelay_lent(c))
            conn_nodelay_back(c, fd);
        if (c->tx.job_runs || c->tx.rest)
            c->tx.rest = conn_tx_flush(c, fd) != 0;
        turn_give(&c->tx.turn);
    }
}

static void prepare(int fd, struct sock *s, void *arg)
{
    (void)arg;
    struct conn *c = s->conn;
    if (c == NULL)
        sock_drop(fd); /* no longer ours; a listener's names go with it, so that no client of this host asks */
    else if (atomic_load(&s->fd) == fd && atomic_load(&s->active))
        conn_state(c) == CONN_UPGRADED ? bare(c, fd) : decide(s, c, fd);
}

/* True: a filter comes next, and is prepared for. (Without one it is only asked whether there are any.) */
static bool enter(bool strict, bool filter, const void *program)
{
    if (!(strict || (filter && program != NULL)) || !proc_on() || proc_is_borrowed() || sandbox_on())
        return false;
    int err = errno;
    trace_info("the program enters a seccomp filter");
    coalesce_stop();
    conn_tx_finished(flusher_has_jobs() ? proc.set.linger_ms : 0);
    flusher_stop(); /* it is a thread that the filter may be meant for, too */
    rights_part();
    sock_each(prepare, NULL);
    atomic_store(&sandbox_entered, true);
    errno = err;
    return true;
}

static long entered(bool entering, long r)
{
    if (entering && r < 0) {
        atomic_store(&sandbox_entered, false);
        rights_after();
    }
    return r;
}

long seccomp_call(unsigned op, unsigned flags, void *program)
{
    bool entering = enter(op == SECCOMP_SET_MODE_STRICT, op == SECCOMP_SET_MODE_FILTER, program);
    return entered(entering, REAL(syscall)(SYS_seccomp, op, flags, program));
}

int prctl(int option, ...)
{
    va_list ap;
    va_start(ap, option);
    unsigned long a[4];
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(ap, unsigned long);
    va_end(ap);
    bool entering =
        option == PR_SET_SECCOMP && enter(a[0] == SECCOMP_MODE_STRICT, a[0] == SECCOMP_MODE_FILTER, (const void *)a[1]);
    return (int)entered(entering, REAL(prctl)(option, a[0], a[1], a[2], a[3]));
}
