/*
 * What the block of a fault says of connections; see conn_report.h. Something is broken, perhaps the memory of the very
 * connection: it is looked at before it is read (preload/process/usermem.h), and no lock is taken.
 */
#include "preload/conn/conn_report.h"

#include <stdio.h>

#include "core/base/reason.h"
#include "preload/conn/conn.h"
#include "preload/process/stats.h"
#include "preload/process/usermem.h"

#define LINES_MAX 8

static const char *state_name(enum conn_state state)
{
    static const char *const names[] = { "free", "connecting", "negotiating", "upgraded", "plain", "dead" };
    return state < SW_ARRAY_LEN(names) ? names[state] : "?";
}

static int describe(struct conn *c, int fd, char *line, size_t cap)
{
    char local[80], peer[80];
    if (!usermem_readable(c, sizeof(*c)))
        return snprintf(line, cap, "  connection: fd %d, whose memory %p cannot be read\n", fd, (const void *)c);
    bool rx = turn_is_mine(&c->rx.turn), tx = turn_is_mine(&c->tx.turn);
    if (!rx && !tx)
        return 0;
    stats_addr(&c->local, local, sizeof(local));
    stats_addr(&c->peer, peer, sizeof(peer));
    return snprintf(
        line, cap,
        "  connection: fd %d %p, %s %s %s, %s (%s), at work:%s%s, sent %llu, received %llu, FPDUs %llu and %llu\n", fd,
        (const void *)c, c->responder ? "accepted" : "connected", local, peer, state_name(conn_state(c)),
        reason_name(atomic_load(&c->record.reason)), rx ? " receive" : "", tx ? " send" : "",
        (unsigned long long)c->st.tx.total, (unsigned long long)c->st.rx.total,
        (unsigned long long)c->ep.stats.tx_fpdus, (unsigned long long)c->ep.stats.rx_fpdus);
}

void conn_report(void (*write)(const char *line, size_t len))
{
    char line[512];
    int lines = 0;
    for (int fd = 0; fd < sock_fd_limit() && lines < LINES_MAX; fd++) {
        const struct sock *s = sock_peek(fd);
        if (s == NULL || s->kind != SOCK_CONN || s->conn == NULL)
            continue;
        int len = describe(s->conn, fd, line, sizeof(line));
        if (len <= 0)
            continue;
        write(line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
        lines++;
    }
}
