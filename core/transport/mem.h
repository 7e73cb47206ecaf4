/*
 * One direction of a connection in memory, for tests: a bounded ring of octets that can cut every
 * transfer short, hold octets back and end early, as a TCP connection may.
 *
 * No locks: one thread at a time. All memory is the caller's.
 */
#ifndef SW_TRANSPORT_MEM_H
#define SW_TRANSPORT_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/base/must.h"

struct mem_pipe {
    uint8_t *buf; /* ring; borrowed */
    size_t cap;
    size_t first;                    /* oldest octet */
    size_t used;                     /* octets in the ring */
    size_t arrived;                  /* of those, how many the reader may see */
    bool delayed;                    /* octets written become readable only by mem_pipe_deliver */
    bool ended;                      /* the writer has closed, or the limit was reached */
    uint64_t limit;                  /* octets still let in; what is written after them is lost */
    size_t cut_max;                  /* 0: transfers are whole; else each moves 1..cut_max octets */
    uint32_t (*random32)(void *arg); /* for the cuts; may be NULL if cut_max is 0 */
    void *arg;
};

void mem_pipe_init(struct mem_pipe *p, void *buf, size_t cap);

/* From now on no transfer moves more than a random 1..max octets. */
void mem_pipe_cut(struct mem_pipe *p, size_t max, uint32_t (*random32)(void *arg), void *arg);

/* Octets taken: 0 when full, fewer than offered when cut. Once ended, takes all and drops it. */
size_t mem_pipe_write(struct mem_pipe *p, const struct iovec *iov, size_t n) SW_MUST;

/* Octets given: 0 when there are none, or len is 0. */
size_t mem_pipe_read(struct mem_pipe *p, void *buf, size_t len) SW_MUST;

/* With delayed set: n more octets arrive (or all there are, if fewer). */
void mem_pipe_deliver(struct mem_pipe *p, size_t n);

/* The connection breaks after n more octets; 0: now. */
void mem_pipe_end_after(struct mem_pipe *p, uint64_t n);

/* Ended, and all octets have been read. */
bool mem_pipe_eof(const struct mem_pipe *p);

#endif
