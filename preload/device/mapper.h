/*
 * The question where a peer's device listens, to the port mapper at the peer's host (core/mpa/portmap.h), from an
 * endpoint in software that connects to it. Most hosts have no such daemon, and say so at once; one that says nothing is
 * waited for briefly.
 *
 * Not async-signal-safe; the owner's lock protects it.
 */
#ifndef SW_PRELOAD_MAPPER_H
#define SW_PRELOAD_MAPPER_H

#include <netinet/in.h>
#include <stdint.h>

#include "core/base/must.h"
#include "core/mpa/portmap.h"

struct mapper {
    /* Hidden, readable when mapper_step has something to do; the owner closes them. -1: it asks nothing. */
    int fd, timer;
    unsigned tries;
    struct portmap_msg request;
};

/*
 * Asks where the port of *peer is mapped to, and binds tcp_fd, which will connect there, to a port, since the mapper is
 * told that. 0 or -errno; then, too, the descriptors that are there are the owner's.
 */
int mapper_ask(struct mapper *q, const struct sockaddr_storage *peer, socklen_t len, int tcp_fd) SW_MUST;
/* 0: *at, the peer's address as it was told, is where the device listens; -EAGAIN: not known yet. Does not wait. */
int mapper_step(struct mapper *q, struct sockaddr_storage *at) SW_MUST;

#endif
