/*
 * What carries an upgraded connection's stream: its own TCP connection, in software (conn_soft.c), or something beside
 * it. The rest of the library asks this table, and never which one it is. A table of a room above this one is declared
 * here.
 *
 * An operation that may be NULL is said to be; conn.h has a function for each of these, which does what NULL stands
 * for. Unless it says otherwise the connection is upgraded, fd is its descriptor, no turn is held, errors are -errno,
 * and nothing waits.
 */
#ifndef SW_PRELOAD_CONN_OPS_H
#define SW_PRELOAD_CONN_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config.h"

struct conn;
struct iov_iter;
struct sock;
struct stats_record;

/* A struct conn is shared by programs in which the tables lie at different addresses: it holds this index. */
enum conn_carrier { CONN_CARRIER_SOFT, CONN_CARRIER_DEVICE, CONN_CARRIERS };

struct conn_ops {
    /*
     * The stream's bytes go over the program's own socket: its options and events are the stream's, and it works in all
     * processes that have it. Else the socket shows no more than the end.
     */
    bool on_socket;

    /* ---- the whole ---- */

    /* The transport in statistics: a literal. */
    const char *(*name)(const struct conn *c);
    /* What it counted, added to r. */
    void (*record)(const struct conn *c, struct stats_record *r);
    /* Bytes it has mapped for c beside the connection's own. NULL: 0. */
    size_t (*memory)(const struct conn *c);
    /*
     * The connection is over, or was never upgraded. For any connection; both turns held, or no process has it any
     * more. NULL: nothing.
     */
    void (*drop)(struct conn *c);
    /* May a call of this process go on? 0, or the call's error. NULL: yes. */
    int (*usable)(const struct conn *c, int fd);

    /* ---- receiving; rx held ---- */

    /* Decodes what has arrived; the stream has it then. */
    void (*decode)(struct conn *c, int fd);
    /*
     * One receive of at most `most` bytes, in which it may sleep if flags are 0, and not with MSG_DONTWAIT. > 0:
     * something came; 0: the end; -EAGAIN; -ENOBUFS: no room; -ESHUTDOWN: after SHUT_RD. Sets rx.empty.
     */
    ssize_t (*fill)(struct conn *c, int fd, int flags, size_t most);
    /*
     * The same straight to the program's memory, where there are len bytes: *placed went there. -EOPNOTSUPP: this is
     * nothing for it. Then, and with -EAGAIN, *ahead says how much to stage. *may becomes false if it is not to be
     * tried again. NULL: it never is.
     */
    ssize_t (*fill_directly)(struct conn *c, int fd, struct iov_iter *it, size_t len, size_t *ahead, size_t *placed,
                             bool *may);
    /* The last receive left nothing (rx.empty): is there really no more? NULL: yes. */
    bool (*drained)(const struct conn *c);
    /* Sets the socket's low-water mark so that half a frame wakes no thread that polls. NULL: it never does. */
    void (*lowat)(struct conn *c, int fd);
    /*
     * Waits for more as long as the program's recv would, and stages `most` of it; *waits as conn_begins_to_wait. 0:
     * look again.
     */
    ssize_t (*wait_more)(struct sock *s, struct conn *c, int fd, size_t most, bool *waits);
    /*
     * The thread that slept with the turn is gone: what the kernel delivered to it is booked. False: that cannot be
     * done. NULL: there is nothing to book.
     */
    bool (*rx_mend)(struct conn *c, int fd);
    /* A recv of the program's is over. NULL: nothing. */
    void (*after_recv)(struct sock *s, struct conn *c, int fd);

    /* ---- sending; tx held ---- */

    /* As send(2), without the signal; wait: it may. */
    ssize_t (*send)(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags, bool wait);
    /* As conn_tx_flush. */
    int (*flush)(struct conn *c, int fd);
    /* TCP's FIN alone is the whole of what an end of the program's has to say. NULL: it never is. */
    bool (*ends_by_fin)(const struct conn *c, int fd);
    /* As rx_mend. other_process: the former holder was another process's. */
    bool (*tx_mend)(struct conn *c, int fd, bool other_process);

    /* ---- no turn held ---- */

    /*
     * May the program's bytes be sent (RFC 6581 section 9.2)? Any thread, with any turns. NULL: as the connection's
     * endpoint says.
     */
    bool (*can_send)(const struct conn *c);
    /* Waits for something to arrive, until then (0: for ever). 0: look again. */
    int (*await)(struct sock *s, struct conn *c, int fd, uint64_t deadline_ns);
    /* Takes in what a tail waits for before the tail is sent. NULL: nothing. */
    void (*before_tail)(struct sock *s, int fd);
    /* Takes in what an end that is owed waits for. True: it is owed still. NULL: as it was. */
    bool (*end_owed)(struct sock *s, int fd);
    /* Both ends have ended, though the kernel may not say so: shutdown(2) says ENOTCONN. NULL: the kernel says it. */
    bool (*over)(struct conn *c, int fd);
    /*
     * The program closes its last descriptor, or exits: what it has sent gets to the peer. It may wait for
     * SOCKWARP_LINGER_MS.
     */
    void (*close)(struct sock *s, struct conn *c, int fd, bool exits);

    /* ---- readiness ---- */

    /*
     * What shows that something has arrived, beside the socket: a hidden descriptor, -1: none. NULL: the socket does,
     * alone.
     */
    int (*chan)(const struct conn *c);
    /* As ready_now. Takes turns briefly. */
    short (*ready)(struct sock *s, int fd, short want, short kernel, short *ask);
    /* What a set asks of the kernel about the socket for a registration with these events (EPOLL*). Any thread. */
    uint32_t (*kernel_events)(const struct conn *c, uint32_t events);
};

/* conn_soft.c */
extern const struct conn_ops conn_soft;
#if HAVE_VERBS
extern const struct conn_ops device_ops;
#endif
/* By enum conn_carrier; NULL: not built in. In start.c. */
extern const struct conn_ops *const conn_carriers[CONN_CARRIERS];

#endif
