/*
 * What processes of different rights hand to each other of a connection: its state at rest, as numbers and octets
 * (core/stream/rest.h), by conn_apart.c. Each with its side's turn held.
 *
 * numbers and octets are in memory that may change at any time. They are copied, and checked then.
 */
#ifndef SW_PRELOAD_CONN_REST_H
#define SW_PRELOAD_CONN_REST_H

#include "preload/conn/conn.h"

/* Octets of a side. */
#define CONN_REST_RX_MAX (CONN_PRE_LEN + CONN_IN_LEN)
#define CONN_REST_TX_MAX CONN_OUT_LEN

/* Is it one that can be handed on at all? */
bool conn_rest_can(const struct conn *c);
/* False: its state is not at rest, or too long. */
bool conn_rest_rx_save(struct conn *c, uint8_t *numbers, uint8_t *octets) SW_MUST;
bool conn_rest_tx_save(struct conn *c, uint8_t *numbers, uint8_t *octets) SW_MUST;
/* False: it does not check. Nothing has changed then. */
bool conn_rest_rx_load(struct conn *c, const uint8_t *numbers, const uint8_t *octets) SW_MUST;
bool conn_rest_tx_load(struct conn *c, const uint8_t *numbers, const uint8_t *octets) SW_MUST;
/* A copy of another process's: nothing is staged and nothing queued, until it is loaded. */
void conn_rest_none(struct conn *c);

#endif
