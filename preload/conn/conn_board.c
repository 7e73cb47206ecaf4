/* What the board shows of a connection; see conn_board.h. */
#include "preload/conn/conn_board.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "preload/process/board.h"
#include "preload/process/real.h"

static void put(_Atomic uint64_t *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void put_addr(struct board_addr *to, const struct sockaddr_storage *from)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
    const struct sockaddr_in *in = (const struct sockaddr_in *)from;
    if (from->ss_family == AF_INET) {
        memcpy(to->ip, &in->sin_addr, 4);
        to->port = ntohs(in->sin_port);
        to->family = 4;
    } else if (from->ss_family == AF_INET6) {
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
        memcpy(to->ip, &in6->sin6_addr.s6_addr[mapped ? 12 : 0], mapped ? 4 : 16);
        to->port = ntohs(in6->sin6_port);
        to->family = mapped ? 4 : 6;
    }
}

static enum board_state state_of(const struct conn *c)
{
    switch (conn_state(c)) {
    case CONN_UPGRADED:
        return BOARD_UPGRADED;
    case CONN_PLAIN:
        return BOARD_PLAIN;
    case CONN_DEAD:
        return BOARD_DEAD;
    default:
        return BOARD_STARTING;
    }
}

static void put_counts(struct board_slot *slot, const struct stats_record *r)
{
    put(&slot->tx_bytes, r->tx_bytes);
    put(&slot->rx_bytes, r->rx_bytes);
    put(&slot->tx_fpdus, r->tx_fpdus);
    put(&slot->rx_fpdus, r->rx_fpdus);
    put(&slot->sends, r->sends);
    put(&slot->writes, r->writes);
    put(&slot->coalesced, r->coalesced);
    put(&slot->errors, r->errors);
    put(&slot->direct, r->direct);
}

void conn_board_copy(struct conn *c)
{
    struct board_slot *slot = board_slot(c->board);
    struct stats_record r = { 0 };
    if (slot == NULL)
        return;
    conn_upgraded_record(c, &r);
    put_counts(slot, &r);
}

void conn_board_moved(struct conn *c)
{
    if (c->board == 0)
        c->board = board_take();
    struct board_slot *slot = board_slot(c->board);
    if (slot == NULL)
        return;
    struct stats_record r = { .transport = "plain", .rtr = "none" };
    if (conn_state(c) == CONN_UPGRADED) {
        conn_upgraded_record(c, &r);
        put_counts(slot, &r);
    }
    slot->role = c->responder ? BOARD_ROLE_ACCEPT : BOARD_ROLE_CONNECT;
    slot->reason = atomic_load(&c->record.reason);
    slot->born_ns = c->record.born_ns;
    put_addr(&slot->local, &c->local);
    put_addr(&slot->peer, &c->peer);
    snprintf(slot->transport, sizeof(slot->transport), "%s", r.transport);
    snprintf(slot->rtr, sizeof(slot->rtr), "%s", r.rtr);
    snprintf(slot->device, sizeof(slot->device), "%s", c->dev.name);
    slot->crc = r.crc;
    atomic_store_explicit(&slot->state, (uint32_t)state_of(c), memory_order_release);
}

void conn_board_named(const struct conn *c, int fd)
{
    struct board_slot *slot = board_slot(c->board);
    struct sockaddr_storage local;
    socklen_t len = sizeof(local);
    if (slot != NULL && slot->local.family == 0 && fd >= 0 &&
        REAL(getsockname)(fd, (struct sockaddr *)&local, &len) == 0)
        put_addr(&slot->local, &local);
}

void conn_board_taken_up(struct conn *c)
{
    if (!holders_alone(&c->holders))
        return;
    c->board = 0;
    conn_board_moved(c);
}

void conn_board_ended(struct conn *c, const struct stats_record *r)
{
    struct board_addr server = { 0 };
    put_addr(&server, c->responder ? &r->local : &r->peer);
    board_ended(r->reason, server.port, r->tx_bytes, r->rx_bytes);
    board_give(c->board);
    c->board = 0;
}
