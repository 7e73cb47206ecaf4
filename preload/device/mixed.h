/*
 * The stream of a side without a device whose peer has one: the software endpoint on a TCP connection of its own,
 * beside the program's, straight to the device's port (RFC 5044 section 7.1.4, immediate startup), or from it.
 *
 *   initiator   CONNECTING --Request, Reply with the peer's private data--> UP
 *   responder   EXPECTING --connected, Request with the token--> ACCEPTING --Reply--> UP
 *                    any --closed, rejected, malformed--> DOWN
 *
 * It offers what core/transport/verbs.h does, by the same names, and its owner is device_*.c: see there for which
 * thread may call what. Descriptors, all hidden: the connection, and a set (epoll) of it alone, which is what is waited
 * for as a device's completion channel is: it tells edges, until mixed_drain. While endpoints are set up, one set of
 * the process has all of theirs.
 *
 * The initiator asks for the client-server model (RFC 6581, A=0) and speaks first at ULP level, as drivers of devices
 * do. A device that closes without an answer (irdma does) is asked once more, by Rev 1.
 */
#ifndef SW_PRELOAD_MIXED_H
#define SW_PRELOAD_MIXED_H

#include "core/iwarp/soft.h"
#include "core/stream/stream.h"
#include "core/transport/verbs.h"

struct mixed;

/*
 * For the MPA frames: whether CRCs are wanted. FPDUs are no longer than a segment, nor than fpdu_len if that is not 0.
 * NULL: no memory.
 */
struct mixed *mixed_new(const struct verbs_cfg *cfg, bool crc, size_t fpdu_len);
/* Frees an endpoint in any state; NULL is allowed. */
void mixed_free(struct mixed *m);
/* device: of a device, whose host may have a port mapper, which is asked first (mapper.h). 0 or -errno. */
int mixed_connect(struct mixed *m, const struct sockaddr *peer, socklen_t len, bool device) SW_MUST;
/* From now on an initiator with cfg.token may connect to *at: that address, and a port of the endpoint's own. */
int mixed_expect(struct mixed *m, const struct sockaddr *local, struct sockaddr_storage *at) SW_MUST;

/* Readable when mixed_dispatch, or verbs_cm_dispatch, has something to do; -1: there is nothing to wait for. */
int mixed_setup_fd(void);
/* True: the state of some endpoint may have changed. Any thread may call it. */
bool mixed_dispatch(void);

/* Any thread. */
enum verbs_state mixed_state(const struct mixed *m);
const char *mixed_why(const struct mixed *m);

/* ---- UP ---- */

struct verbs_side mixed_local(const struct mixed *m);
struct verbs_side mixed_peer(const struct mixed *m);
uint8_t *mixed_ring(struct mixed *m);
size_t mixed_memory(const struct mixed *m);
bool mixed_crc(const struct mixed *m);
/* Reads that may be outstanding: the peer's here, and ours there. */
void mixed_depths(const struct mixed *m, unsigned *ird, unsigned *ord);
const struct iwarp_stats *mixed_stats(const struct mixed *m);
struct endpoint *mixed_endpoint(struct mixed *m);

/* The set's descriptor. */
int mixed_fd(const struct mixed *m);
unsigned mixed_drain(struct mixed *m);

/* Takes in what has arrived, as far as the stream takes it: as stream_poll. Receive side. */
int mixed_poll(struct mixed *m, struct stream *st) SW_MUST;
bool mixed_ended(const struct mixed *m);
/* Has it ended, and not on a message boundary? */
bool mixed_cut_off(const struct mixed *m);
/* Does what came want an answer, by mixed_flush? Any thread may call it. */
bool mixed_ctrl_pending(const struct mixed *m);

/* Send side: the bytes that were posted and for which the kernel has no room yet. */
size_t mixed_unsent(const struct mixed *m);
/* Hands over what the kernel takes. 0 or -EPIPE. */
int mixed_flush(struct mixed *m) SW_MUST;
int mixed_fence(struct mixed *m) SW_MUST;
int mixed_fence_done(const struct mixed *m);

/*
 * In the child of a fork: all endpoints are the parent's; their descriptors are closed here. mixed_free only frees
 * memory.
 */
void mixed_after_fork(void);

#endif
