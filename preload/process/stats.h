/*
 * One JSON object per line and connection, appended to SOCKWARP_STATS when the connection ends or
 * the program exits. Each line is one O_APPEND write(2), so lines of several processes do not mix.
 */
#ifndef SW_PRELOAD_STATS_H
#define SW_PRELOAD_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct stats_record {
    int pid;
    const char *program;                 /* basename of the executable; any bytes */
    const char *role;                    /* "connect" or "accept" */
    struct sockaddr_storage local, peer; /* ss_family 0: unknown, printed as "" */
    const char *transport;               /* "iwarp", "verbs", "shm", "plain" */
    unsigned reason;                     /* enum reason, printed by name */
    const char *rtr;                     /* "send", "write", "read", "none"; printed for upgraded ones */
    unsigned ird, ord; /* RDMA Reads at a time: to be served, and of our own; printed for upgraded ones */
    int crc;           /* 0, 1 */
    uint64_t tx_bytes, rx_bytes, tx_fpdus, rx_fpdus, sends, writes, errors;
    uint64_t immediates; /* sent */
    uint64_t coalesced;  /* the program's writes that went with others */
    uint64_t empty;      /* received: messages without payload */
    uint64_t direct;     /* bytes received straight into the program's memory */
    uint64_t memory;     /* bytes of address space */
    /* the RDMA device's name, or why there is none; NULL: none was wanted, and nothing is printed */
    const char *device;
};

/*
 * Formats
 * {"pid":1,"program":"iperf3","role":"connect","local":"127.0.0.1:1","peer":"[::1]:5201",…}\n with
 * the keys pid program role local peer transport reason rtr ird ord crc tx_bytes rx_bytes tx_fpdus rx_fpdus
 * sends writes errors immediates coalesced empty direct memory device, in this order; crc is true/false; rtr is "none",
 * ird and ord 0 for a connection that was not upgraded; strings are escaped to valid JSON (bytes that are not UTF-8 become U+FFFD),
 * and cut where they take more than 256 bytes. Returns the length without NUL; truncation cannot happen with cap >=
 * 1024. No malloc, no stdio streams, no locale.
 */
size_t stats_format(const struct stats_record *r, char *buf, size_t cap);

/* "127.0.0.1:80", "[::1]:80", IPv4-mapped as IPv4; "" if unknown. */
size_t stats_addr(const struct sockaddr_storage *ss, char *buf, size_t cap);

#endif
