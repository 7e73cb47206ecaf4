/*
 * The board: a file in which a process keeps what it tells of its connections, for `sockwarp stat`. The process writes
 * it by plain stores and never reads it; the reader believes nothing of it.
 *
 * It is FOLDER/PID, mode 0600, in a folder of the user's own, mode 0700: the head, then slots, BOARD_SLOTS_MAX at most.
 * Its memory is reserved before it is touched, so that a full file system cannot end the process.
 */
#ifndef SW_PRELOAD_BOARD_FORMAT_H
#define SW_PRELOAD_BOARD_FORMAT_H

#include <stdatomic.h>
#include <stdint.h>

#define BOARD_TOP "/dev/shm"
#define BOARD_PREFIX "sockwarp-"
#define BOARD_FOLDER BOARD_TOP "/" BOARD_PREFIX "%u" /* of a user id */
#define BOARD_MAGIC 0x32647261306f6277u              /* another layout has another one */
#define BOARD_REASONS 64u                            /* above the largest number of core/base/reason.h */
#define BOARD_PORTS 64u                              /* that sums are kept for; those of others go together */
#define BOARD_SLOTS_MAX 8192u
#define BOARD_CHUNK 256u /* slots that are reserved at a time */

enum board_state { BOARD_FREE, BOARD_STARTING, BOARD_UPGRADED, BOARD_PLAIN, BOARD_DEAD };
enum { BOARD_ROLE_CONNECT, BOARD_ROLE_ACCEPT };

struct board_addr {
    uint8_t ip[16]; /* IPv4 in the first four */
    uint16_t port;  /* host order */
    uint8_t family; /* 0: not known, 4, 6 */
    uint8_t zero[5];
};

/* One connection. Fields are written one by one: a reader may see some of before and some of after. */
struct board_slot {
    _Atomic uint32_t state; /* enum board_state */
    uint8_t role, reason, crc, unused;
    char transport[8], rtr[8], device[16];
    struct board_addr local, peer;
    uint64_t born_ns; /* CLOCK_MONOTONIC */
    _Atomic uint64_t tx_bytes, rx_bytes, tx_fpdus, rx_fpdus, sends, writes, coalesced, errors, direct;
};

/* Connections that are over. */
struct board_sum {
    _Atomic uint64_t count, tx_bytes, rx_bytes;
};

struct board_port {
    _Atomic uint32_t used; /* 0: by none yet; else the server's port and 1 */
    uint32_t zero;
    struct board_sum ended;
};

struct board_head {
    uint64_t magic;
    uint32_t pid, slot_len;
    uint64_t born_ns;
    char program[64], version[16];
    _Atomic uint32_t slots;  /* that are reserved */
    _Atomic uint32_t unseen; /* connections for which there was none */
    struct board_sum ended[BOARD_REASONS];
    struct board_port ports[BOARD_PORTS]; /* the same ones */
    struct board_sum other_ports;         /* for which there was no place */
    uint64_t zero[8];
};

#endif
