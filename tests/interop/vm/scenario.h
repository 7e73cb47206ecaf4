/* What the two ends do once they are connected: written once against peer.h, run with either end being either. */
#ifndef VM_SCENARIO_H
#define VM_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/interop/vm/peer.h"

struct options { /* as the command line says; 0 or NULL: the scenario's own */
    bool responder;
    const char *fault;          /* fault: which */
    const char *expect_priv;    /* hello: the other end's private data */
    int expect_rtr;             /* hello: the kind agreed, -1: any */
    int expect_rev;             /* hello: the other end's, -1: any */
    int expect_ird, expect_ord; /* hello: ours as agreed, -1: any */
    bool expect_crc;            /* CRCs although our end does not ask */
    bool solicited;             /* Sends carry Solicited Event */
    uint64_t bytes;             /* bulk: how many */
    unsigned count;             /* rping: how many times */
};

struct scenario {
    const char *name;
    /* 0, or -1 after a line on stderr. */
    int (*initiator)(struct peer *p, const struct options *opt);
    int (*responder)(struct peer *p, const struct options *opt);
};

extern const struct scenario scenarios[]; /* ends with name == NULL */

int say_wrong(const char *format, ...) SW_PRINTF(1, 2);

/* err of a peer's call: 0, or says p->why. */
int must(struct peer *p, int err, const char *what);

/* Octets that tell where they stand in a stream: reproducible, and different everywhere. */
void pattern_fill(uint8_t *mem, size_t len, uint64_t off);
bool pattern_same(const uint8_t *mem, size_t len, uint64_t off);

/* A Send that tells a region, and its receipt. */
int tell_region(struct peer *p, const struct peer_region *r);
int hear_region(struct peer *p, struct peer_remote *remote);

/* A Send of one number, and its receipt (which must be this number). */
int tell(struct peer *p, uint64_t number);
int hear(struct peer *p, uint64_t number);

/* The other end must end the connection now, without any Terminate. */
int hear_end(struct peer *p);

int write_initiator(struct peer *p, const struct options *opt);
int write_responder(struct peer *p, const struct options *opt);
int read_initiator(struct peer *p, const struct options *opt);
int read_responder(struct peer *p, const struct options *opt);
int killed_initiator(struct peer *p, const struct options *opt);
int survivor_responder(struct peer *p, const struct options *opt);
int survivor_initiator(struct peer *p, const struct options *opt);
int killed_responder(struct peer *p, const struct options *opt);
int fault_initiator(struct peer *p, const struct options *opt);
int fault_responder(struct peer *p, const struct options *opt);
int invalidate_initiator(struct peer *p, const struct options *opt);
int invalidate_responder(struct peer *p, const struct options *opt);
int rping_client(struct peer *p, const struct options *opt);
int rping_server(struct peer *p, const struct options *opt);

#endif
