/* Our end's inside: ours_connect.c has the socket and the startup, peer_ours.c what comes after. */
#ifndef VM_OURS_H
#define VM_OURS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/iwarp/iwarp.h"
#include "core/mpa/startup.h"
#include "tests/interop/vm/peer.h"

#define IN_CAP (512u << 10)
#define OUT_CAP (256u << 10)

struct message {
    struct message *next;
    size_t len;
    uint8_t data[];
};

struct ours {
    int fd;
    bool ready;    /* the endpoint is set up */
    bool in_ended; /* nothing more will come: end of the stream, or an error */
    int error;     /* of the socket */
    unsigned nudges;
    enum peer_fault fault;
    struct mpa_startup startup;
    struct iwarp_ep ep;
    uint64_t reads_posted;
    struct message *first, **last, *current;
    uint8_t in[IN_CAP], out[OUT_CAP], flat[OUT_CAP];
};

static inline struct ours *ours(struct peer *p)
{
    return p->impl;
}

/* A connected socket, not blocking, in ours(p)->fd. */
int ours_open_socket(struct peer *p, const struct peer_cfg *cfg);

/* RFC 5044 7.1.2: the two startup frames; p->met says what they brought. */
int ours_run_startup(struct peer *p, const struct peer_cfg *cfg);

/* 1 if an event came, 0 if timeout_ms are over (-1: never). */
int ours_wait_until(struct ours *o, short events, int timeout_ms);
int ours_wait_for(struct ours *o, short events);

int ours_write_all(struct ours *o, const uint8_t *data, size_t len);

#endif
