/*
 * All environment variables in one place: name, default, range. `sockwarp` and the preload library
 * read the same table, the man page is checked against it by a test.
 */
#ifndef SW_POLICY_SETTINGS_H
#define SW_POLICY_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "core/base/must.h"
#include "core/negotiate/hello.h"
#include "core/policy/policy.h"

/* HELLO_TRANSPORT_* that this build has. */
#if HAVE_VERBS
#define TRANSPORTS_BUILT_IN (HELLO_TRANSPORT_IWARP | HELLO_TRANSPORT_VERBS)
#else
#define TRANSPORTS_BUILT_IN HELLO_TRANSPORT_IWARP
#endif

enum settings_io { SETTINGS_IO_AUTO, SETTINGS_IO_URING, SETTINGS_IO_SYSCALL };

/*  X(field, type, "NAME", "default", min, max) of the plain numbers */
#define SETTINGS_NUMBERS(X)                                           \
    X(hello_timeout_ms, "SOCKWARP_HELLO_TIMEOUT_MS", 1000, 1, 600000) \
    X(verdict_ttl_s, "SOCKWARP_VERDICT_TTL_S", 60, 0, 86400)          \
    X(spin_us, "SOCKWARP_SPIN_US", 30, 0, 1000000)                    \
    X(linger_ms, "SOCKWARP_LINGER_MS", 5000, 0, 600000)               \
    X(coalesce_us, "SOCKWARP_COALESCE_US", 50, 0, 60000000)

struct settings {
    bool have_policy;     /* SOCKWARP_POLICY is set and not empty */
    struct policy policy; /* SOCKWARP_POLICY */
#define X(field, name, def, lo, hi) uint32_t field;
    SETTINGS_NUMBERS(X)
#undef X
    enum settings_io io;  /* SOCKWARP_IO = auto | uring | syscall */
    unsigned crc;         /* SOCKWARP_CRC: CRC32C_CAN_* that may be used; default CRC32C_ANY */
    int log_level;        /* SOCKWARP_LOG = level[,file]; default TRACE_OFF */
    char log_file[256];   /* "" = stderr */
    char stats_file[256]; /* SOCKWARP_STATS; "" = none */
    char device[64];      /* SOCKWARP_DEVICE: the RDMA device to use; "" = any */
    bool explain;         /* SOCKWARP_EXPLAIN = 1: one line a decision on stderr */
    bool stat;            /* SOCKWARP_STAT = 1: `sockwarp stat` shows the process' connections */
    bool summary;         /* SOCKWARP_SUMMARY = 1: a line on stderr when the program exits */
};

/*
 * Reads the variables through get (getenv's contract; arg is passed on). 0, or -EINVAL with a line
 * for the user in err (cap octets) naming variable, value and column: "SOCKWARP_POLICY: column 12:
 * unknown action 'of'". -ENOMEM. On error *s holds the defaults, with no policy. transports:
 * HELLO_TRANSPORT_* built in. An empty variable counts as absent.
 */
int settings_read(struct settings *s, const char *(*get)(void *arg, const char *name), void *arg, uint8_t transports,
                  char *err, size_t cap) SW_MUST;
static inline void settings_free(struct settings *s)
{
    policy_free(&s->policy);
    s->have_policy = false;
}

#endif
