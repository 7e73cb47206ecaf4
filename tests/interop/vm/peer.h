/*
 * One end of an iWARP connection, with two implementations behind it: ours (core/ over a TCP socket) and a device's
 * (libibverbs and librdmacm). The scenarios are written against this, so that each runs with either end being either.
 *
 * Calls wait until what they promise is done; they return 0 or -errno, and then peer->why says more. One thread.
 */
#ifndef VM_PEER_H
#define VM_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/must.h"
#include "core/rdmap/terminate.h"

#define PEER_MESSAGE_MAX 16384u /* the longest Send, sent and by default taken */
#define PEER_WINDOW 32u         /* Sends that the other end may take without saying anything: half of its buffers */
#define PEER_READS 8u           /* IRD and ORD */
#define PEER_PRIVATE_MAX 251u

enum { PEER_REMOTE_WRITE = 1, PEER_REMOTE_READ = 2 };

struct peer_cfg {
    bool responder;
    const char *address, *port;
    const char *ready;  /* responder: a file to write a line to when it listens; may be NULL */
    bool refuse;        /* responder: rejects with its private data */
    bool retry;         /* initiator: tries again while no process listens */
    const char *priv;   /* private data; may be NULL */
    size_t message_max; /* the longest Send taken, up to PEER_MESSAGE_MAX */
    uint16_t ird, ord;
    /* Our end only: a device has its own mind. */
    uint8_t rev;
    uint8_t rtr; /* initiator: MPA_RTR_* to offer, 0: none. responder: what it takes */
    bool crc, markers;
};

struct peer_met { /* what the startup brought */
    bool refused;
    uint16_t ird, ord;           /* ours now */
    uint8_t rev, rtr;            /* our end only */
    bool crc;                    /* our end only */
    bool markers_tx, markers_rx; /* our end only */
    char priv[PEER_PRIVATE_MAX + 1];
    size_t priv_len;
};

struct peer_region {
    uint8_t *mem;
    size_t len;
    unsigned access; /* PEER_REMOTE_*; any can be the target of our own Reads, and source of our Writes */
    uint32_t key;    /* what the other end names it by */
    uint64_t addr;
    void *handle;
};

struct peer_remote { /* memory of the other end, as a Send told it */
    uint32_t key;
    uint64_t addr;
};

/* What is wrong on purpose with the next message. */
enum peer_fault {
    PEER_FAULT_NONE,
    PEER_FAULT_CRC, /* our end only, from here on */
    PEER_FAULT_DDP_VERSION,
    PEER_FAULT_RDMAP_VERSION,
    PEER_FAULT_OPCODE,
    PEER_FAULT_QN,
    PEER_FAULT_MSN,
    PEER_FAULT_HALF,  /* the connection ends in the middle of the frame */
    PEER_FAULT_RESET, /* it is reset there */
};

struct peer_end {          /* how the connection ended */
    bool orderly;          /* on a message boundary, nothing wrong: our end only */
    bool terminated;       /* by a Terminate of the other end: our end only */
    bool found;            /* an error was found here, and a Terminate sent: our end only */
    struct term_code code; /* of either */
};

struct peer;

struct peer_ops {
    const char *name;
    int (*open)(struct peer *p, const struct peer_cfg *cfg);
    int (*reg)(struct peer *p, struct peer_region *r);
    /* Is the region still what the other end may reach? Takes it back from the other end either way. */
    bool (*unreg)(struct peer *p, struct peer_region *r);
    /* Copies. invalidate: the other end's key, 0 for none. */
    int (*send)(struct peer *p, const void *data, size_t len, uint32_t invalidate, bool solicited);
    /* *data is good until the next call. -EPIPE: the connection has ended. */
    int (*recv)(struct peer *p, const uint8_t **data, size_t *len);
    /*
     * The local octets must stay until flush, which waits until all posted is done (Reads: until the octets are there).
     */
    int (*write)(struct peer *p, struct peer_region *r, size_t off, size_t len, struct peer_remote to);
    int (*read)(struct peer *p, struct peer_region *r, size_t off, size_t len, struct peer_remote from);
    int (*flush)(struct peer *p);
    int (*fault)(struct peer *p, enum peer_fault fault);
    /* Waits for the end that the other side makes. Messages that come first are dropped. */
    int (*wait_end)(struct peer *p, struct peer_end *end);
    /* Ends the connection, in an orderly way if it still stands, and frees everything but the regions' memory. */
    void (*close)(struct peer *p);
};

struct peer {
    const struct peer_ops *ops;
    struct peer_met met;
    char why[200];
    void *impl;
};

extern const struct peer_ops peer_ours, peer_verbs;

/* Fills p->why and returns -err. */
int peer_fail(struct peer *p, int err, const char *format, ...) SW_PRINTF(3, 4);

/* A line into the file that the other end's starter reads. */
void peer_tell_ready(const struct peer_cfg *cfg);

#endif
