/*
 * What the processes under sockwarp publish about their connections: preload/process/board_format.h. Any program of
 * their user can write the files, so nothing in them is trusted: what this header describes is checked, and its text
 * can be printed.
 */
#ifndef SW_TOOLS_BOARD_H
#define SW_TOOLS_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/must.h"
#include "preload/process/board_format.h"

/* One connection, copied. */
struct board_conn {
    uint32_t state; /* enum board_state, not BOARD_FREE */
    bool accepted, crc;
    unsigned reason;
    char transport[8], rtr[8], device[16];
    char local[64], peer[64]; /* as sockwarp(7) writes addresses; "" = not known */
    uint16_t port;            /* the server's end of it; 0 = not known */
    uint64_t age_ns;
    uint64_t tx_bytes, rx_bytes, tx_fpdus, rx_fpdus, sends, writes, coalesced, errors, direct;
    bool in_kernel;   /* it was found there: */
    uint64_t retrans; /* segments of this end that were sent again */
};

struct board_past {
    uint64_t count, tx_bytes, rx_bytes;
};

struct board_process {
    pid_t pid;
    uid_t uid;
    char program[64];
    bool killed;                            /* the process is gone, and has not removed its file */
    struct board_past ended[BOARD_REASONS]; /* connections that are over */
    struct board_past ports[BOARD_PORTS + 1];
    uint32_t port_of[BOARD_PORTS]; /* the last of ports: all others */
    uint64_t unseen;               /* connections that found no place in the file */
    struct board_conn *conns;
    size_t count;
};

struct boards {
    struct board_process *list; /* by pid */
    size_t count;
};

/*
 * Reads all of them: this user's, or everybody's if the caller is root. only: a pid or the name of a program, NULL:
 * all. forget: files of killed processes are removed once they are read. 0 or -ENOMEM.
 */
int boards_read(struct boards *b, const char *only, bool forget) SW_MUST;
void boards_free(struct boards *b);

#endif
