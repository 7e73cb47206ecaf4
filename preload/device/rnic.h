/*
 * What carries the stream beside the TCP connection: a device's endpoint (core/transport/verbs.h), or software that
 * faces the peer's device (mixed.h). A connection has one of them at most; each function here does what the function of
 * that name there does.
 */
#ifndef SW_PRELOAD_RNIC_H
#define SW_PRELOAD_RNIC_H

#include "core/transport/verbs.h"
#include "preload/conn/conn.h"
#include "preload/device/mixed.h"

static inline bool rnic_there(const struct conn *c)
{
    return c->dev.ep != NULL || c->dev.mixed != NULL;
}

static inline enum verbs_state rnic_state(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_state(c->dev.mixed) : verbs_state(c->dev.ep);
}

static inline const char *rnic_why(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_why(c->dev.mixed) : verbs_why(c->dev.ep);
}

static inline bool rnic_no_memory(const struct conn *c)
{
    return c->dev.mixed == NULL && verbs_no_memory(c->dev.ep);
}

static inline struct verbs_side rnic_local(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_local(c->dev.mixed) : verbs_local(c->dev.ep);
}

static inline struct verbs_side rnic_peer(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_peer(c->dev.mixed) : verbs_peer(c->dev.ep);
}

static inline uint8_t *rnic_ring(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_ring(c->dev.mixed) : verbs_ring(c->dev.ep);
}

static inline size_t rnic_memory(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_memory(c->dev.mixed) : verbs_memory(c->dev.ep);
}

static inline struct endpoint *rnic_endpoint(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_endpoint(c->dev.mixed) : verbs_endpoint(c->dev.ep);
}

static inline int rnic_fd(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_fd(c->dev.mixed) : verbs_fd(c->dev.ep);
}

/* (The software's set reports without being armed.) */
static inline void rnic_arm(const struct conn *c, bool rx)
{
    if (c->dev.mixed == NULL)
        verbs_arm(c->dev.ep, rx);
}

static inline unsigned rnic_drain(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_drain(c->dev.mixed) : verbs_drain(c->dev.ep);
}

/* Takes in what has arrived: as stream_poll. */
static inline int rnic_poll(struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_poll(c->dev.mixed, &c->st) : stream_poll(&c->st);
}

static inline bool rnic_ended(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_ended(c->dev.mixed) : verbs_ended(c->dev.ep);
}

/* Has it ended, in the middle of something? */
static inline bool rnic_cut_off(const struct conn *c)
{
    return c->dev.mixed != NULL && mixed_cut_off(c->dev.mixed);
}

/* Does what has come want an answer besides the stream's? (A device gives it by itself.) */
static inline bool rnic_ctrl_pending(const struct conn *c)
{
    return c->dev.mixed != NULL && mixed_ctrl_pending(c->dev.mixed);
}

/* Bytes that were flushed, but are not sent unless they are flushed again. */
static inline size_t rnic_unsent(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_unsent(c->dev.mixed) : 0;
}

static inline bool rnic_may_post(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_unsent(c->dev.mixed) == 0 : verbs_may_post(c->dev.ep);
}

SW_MUST static inline int rnic_flush(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_flush(c->dev.mixed) : verbs_flush(c->dev.ep);
}

SW_MUST static inline int rnic_fence(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_fence(c->dev.mixed) : verbs_fence(c->dev.ep);
}

static inline int rnic_fence_done(const struct conn *c)
{
    return c->dev.mixed != NULL ? mixed_fence_done(c->dev.mixed) : verbs_fence_done(c->dev.ep);
}

#endif
