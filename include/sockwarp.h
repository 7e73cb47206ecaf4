/*
 * sockwarp for programs: the names of its variables, for those that start others under it or read its statistics; and
 * what a program that runs under it may ask of it. sockwarp_info(3) describes the calls.
 *
 * The variables need nothing linked. The calls are in a static library of two functions (pkg-config --libs sockwarp:
 * -lsockwarp_ext), so that the program starts without sockwarp, too.
 */
#ifndef SOCKWARP_H
#define SOCKWARP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOCKWARP_ENV_POLICY "SOCKWARP_POLICY"
#define SOCKWARP_ENV_STATS "SOCKWARP_STATS"
#define SOCKWARP_ENV_LOG "SOCKWARP_LOG"
#define SOCKWARP_ENV_EXPLAIN "SOCKWARP_EXPLAIN"
#define SOCKWARP_ENV_STAT "SOCKWARP_STAT"
#define SOCKWARP_ENV_SUMMARY "SOCKWARP_SUMMARY"
#define SOCKWARP_ENV_DEVICE "SOCKWARP_DEVICE"
#define SOCKWARP_ENV_IO "SOCKWARP_IO"
#define SOCKWARP_ENV_CRC "SOCKWARP_CRC"
#define SOCKWARP_ENV_HELLO_TIMEOUT_MS "SOCKWARP_HELLO_TIMEOUT_MS"
#define SOCKWARP_ENV_VERDICT_TTL_S "SOCKWARP_VERDICT_TTL_S"
#define SOCKWARP_ENV_LINGER_MS "SOCKWARP_LINGER_MS"
#define SOCKWARP_ENV_SPIN_US "SOCKWARP_SPIN_US"

enum sockwarp_state {
    SOCKWARP_UNCONNECTED, /* a listener, too */
    SOCKWARP_STARTING,    /* TCP's handshake or the startup goes on; nothing is decided */
    SOCKWARP_UPGRADED,    /* its bytes go as RDMAP messages */
    SOCKWARP_PLAIN,       /* it is TCP as without sockwarp */
    SOCKWARP_FAILED,      /* a rule says require and it could not be upgraded, or the peer broke the protocol */
};

/* A connection. Later versions add members at the end; none changes its place or its meaning. Text ends in NUL. */
struct sockwarp_info {
    uint32_t state;         /* enum sockwarp_state */
    uint32_t reason;        /* why: the number of the code that sockwarp(7) explains; 0: not decided */
    char reason_name[24];   /* and its name */
    char transport[8];      /* "iwarp", "mixed", "verbs", "shm"; "plain" if it is not upgraded */
    char rtr[8];            /* what the ready-to-receive message was: "send", "write", "read"; "none" */
    char device[16];        /* the RDMA device of this end; empty: none */
    char version[16];       /* of the library that this program runs under */
    uint8_t crc;            /* 1: the bytes are protected by CRC32C */
    uint8_t accepted;       /* 1: by accept(), 0: by connect() */
    uint8_t peer_hello;     /* the version of Hello that the peer speaks; 0: none came */
    uint8_t peer_mpa;       /* the revision of MPA (RFC 5044: 1, RFC 6581: 2) of the startup; 0: not upgraded */
    uint32_t zero;          /* 0 */
    uint64_t age_ns;        /* since connect() or accept() */
    uint64_t tx_bytes;      /* bytes of the program's that were sent, */
    uint64_t rx_bytes;      /* and received */
    uint64_t tx_fpdus;      /* FPDUs in software that were sent, */
    uint64_t rx_fpdus;      /* and received */
    uint64_t sends, writes; /* RDMAP Sends and RDMA Writes that were sent */
    uint64_t coalesced;     /* writes of the program's that went together with others */
    uint64_t direct;        /* bytes that were received straight into the program's memory */
    uint64_t errors;        /* faults of the protocol */
};

/*
 * What has become of the socket fd. Fills size bytes of *info at most; members that this version of the library does not
 * know are 0. While other threads send and receive, the counters of one answer may be of different moments.
 *
 * 0, or -1 with errno: ENOSYS, the program does not run under sockwarp (or without a rule); EBADF, fd is not open; EOPNOTSUPP,
 * it is no TCP socket; EINVAL, size is 0; EFAULT, info is not memory. Any thread; waits for nobody; not in signal handlers.
 */
int sockwarp_info(int fd, struct sockwarp_info *info, size_t size);

/*
 * The next TCP socket that this thread makes by socket() follows these rules instead of SOCKWARP_POLICY, and so do the
 * connections that are accepted from it. In the form of sockwarp(7), "Rules"; NULL: take that back. The text is copied. It is
 * kept as long as the process lives, each text once, and a process can have 255 of them. (A socket that goes to another
 * program by exec before it is connected follows that program's SOCKWARP_POLICY.)
 *
 * 0, or -1 with errno: ENOSYS as above; EINVAL, a mistake in the rules (SOCKWARP_LOG=error says which); ENOSPC, there are 255
 * already; ENOMEM. Any thread; not in signal handlers.
 */
int sockwarp_policy_once(const char *rules);

#ifdef __cplusplus
}
#endif

#endif
