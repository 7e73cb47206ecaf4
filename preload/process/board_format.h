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
#define BOARD_MAGIC 0x31647261306f6277u              /* another layout has another one */
#define BOARD_REASONS 64u                            /* above the largest number of core/base/reason.h */
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

struct board_head {
    uint64_t magic;
    uint32_t pid, slot_len;
    uint64_t born_ns;
    char program[64], version[16];
    _Atomic uint32_t slots;                /* that are reserved */
    _Atomic uint32_t unseen;               /* connections for which there was none */
    _Atomic uint64_t ended[BOARD_REASONS]; /* connections that are over, by reason */
    _Atomic uint64_t tx_bytes, rx_bytes;   /* of these */
    uint64_t zero[8];
};

#endif
