/*
 * What a program asks of the library (include/sockwarp.h): exported, though they are no calls of libc's. The rules that
 * a thread has chosen wait here for its next socket().
 */
#include "preload/calls/info.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/reason.h"
#include "include/sockwarp.h"
#include "preload/calls/bridge.h"
#include "preload/conn/conn.h"
#include "preload/process/proc.h"
#include "preload/process/real.h"
#include "preload/process/rules.h"
#include "preload/process/sandbox.h"
#include "preload/process/stats.h"
#include "preload/process/usermem.h"

static __thread uint8_t rules_next; /* for the thread's next socket: preload/process/rules.h */

void info_take_rules(struct sock *s)
{
    s->rules = rules_next;
    rules_next = 0;
}

static uint32_t state_of(const struct conn *c)
{
    switch (conn_state(c)) {
    case CONN_UPGRADED:
        return SOCKWARP_UPGRADED;
    case CONN_PLAIN:
        return SOCKWARP_PLAIN;
    case CONN_DEAD:
        return SOCKWARP_FAILED;
    default:
        return SOCKWARP_STARTING;
    }
}

static void describe_conn(struct sock *s, struct conn *c, struct sockwarp_info *info)
{
    struct stats_record r;
    bool turn = !proc_is_borrowed() && turn_take_brief(&c->rx.turn) == 0;
    conn_figures(s, c, turn, &r);
    info->state = state_of(c);
    info->reason = atomic_load(&c->record.reason);
    bool upgraded = info->state == SOCKWARP_UPGRADED;
    info->peer_hello = upgraded && !c->neg.cfg.immediate ? HELLO_VERSION : 0;
    info->peer_mpa = upgraded ? c->neg.mpa.res.rev : 0;
    snprintf(info->transport, sizeof(info->transport), "%s", r.transport);
    snprintf(info->rtr, sizeof(info->rtr), "%s", upgraded ? r.rtr : "none");
    snprintf(info->device, sizeof(info->device), "%s", c->dev.name);
    if (turn)
        turn_give(&c->rx.turn);
    info->crc = r.crc != 0;
    info->accepted = c->responder;
    info->age_ns = proc_now_ns() - c->record.born_ns;
    info->tx_bytes = r.tx_bytes;
    info->rx_bytes = r.rx_bytes;
    info->tx_fpdus = r.tx_fpdus;
    info->rx_fpdus = r.rx_fpdus;
    info->sends = r.sends;
    info->writes = r.writes;
    info->coalesced = r.coalesced;
    info->direct = r.direct;
    info->errors = r.errors;
}

/* One that the library has nothing to do with. 0 or -errno. */
static int describe_other(int fd, struct sockwarp_info *info)
{
    int type = 0, protocol = 0;
    socklen_t len = sizeof(type);
    if (sandbox_on())
        return -EOPNOTSUPP;
    if (REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
        return errno == EBADF ? -EBADF : -EOPNOTSUPP;
    len = sizeof(protocol);
    if (REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) < 0 || type != SOCK_STREAM ||
        (protocol != IPPROTO_TCP && protocol != IPPROTO_MPTCP))
        return -EOPNOTSUPP;
    struct sockaddr_storage peer;
    len = sizeof(peer);
    info->state = REAL(getpeername)(fd, (struct sockaddr *)&peer, &len) == 0 ? SOCKWARP_PLAIN : SOCKWARP_UNCONNECTED;
    info->reason = protocol == IPPROTO_MPTCP ? REASON_MPTCP : REASON_NONE;
    return 0;
}

/* 0 or -errno. */
static int describe(int fd, struct sockwarp_info *info)
{
    struct sock *s = sock_get(fd);
    int r = 0;
    snprintf(info->transport, sizeof(info->transport), "plain");
    snprintf(info->rtr, sizeof(info->rtr), "none");
    snprintf(info->version, sizeof(info->version), "%s", SW_VERSION);
    if (s != NULL && s->kind == SOCK_CONN)
        describe_conn(s, s->conn, info);
    else
        r = describe_other(fd, info);
    if (s != NULL && s->kind == SOCK_NEW)
        info->reason = s->plain_reason;
    if (s != NULL)
        sock_put(s);
    snprintf(info->reason_name, sizeof(info->reason_name), "%s", reason_name(info->reason));
    return r;
}

int sockwarp_info(int fd, struct sockwarp_info *info, size_t size)
{
    struct sockwarp_info full = { 0 };
    int err = errno, r = !proc_on() ? -ENOSYS : size == 0 ? -EINVAL : 0;
    if (r == 0 && !usermem_writable(info, size))
        r = -EFAULT;
    if (r == 0) {
        int tcp = bridge_hold(fd);
        r = describe(tcp >= 0 ? tcp : fd, &full);
        if (tcp >= 0)
            bridge_release();
    }
    if (r == 0) {
        memset(info, 0, size);
        memcpy(info, &full, size < sizeof(full) ? size : sizeof(full));
    }
    errno = r == 0 ? err : -r;
    return r == 0 ? 0 : -1;
}

int sockwarp_policy_once(const char *rules)
{
    int err = errno, r = 0;
    if (!proc_on())
        r = -ENOSYS;
    else if (rules != NULL)
        r = rules_number(rules);
    if (r >= 0)
        rules_next = (uint8_t)r;
    errno = r >= 0 ? err : -r;
    return r >= 0 ? 0 : -1;
}
