/* Connections added up: by program, by port, by reason. */
#ifndef SW_TOOLS_TOTALS_H
#define SW_TOOLS_TOTALS_H

#include "tools/board.h"

struct totals_row {
    char key[72];
    uint64_t upgraded, plain, starting; /* connections that are there */
    uint64_t ended;                     /* connections that are over */
    uint64_t tx_bytes, rx_bytes;        /* of all of them */
};

struct totals {
    struct totals_row *rows; /* in the order in which they were met */
    size_t count;
};

enum totals_key { TOTALS_PROGRAM, TOTALS_PORT, TOTALS_REASON };

/*
 * Killed processes' connections count as over. (A process remembers BOARD_PORTS ports of those that are over; the port
 * of further ones is "others".) The caller frees the result by totals_free.
 */
int totals_of(const struct boards *b, enum totals_key key, struct totals *t) SW_MUST;
void totals_free(struct totals *t);

#endif
