/*
 * What carries an upgraded connection's stream: its own TCP connection, in software (conn_soft.c), or a device's
 * endpoint or another connection beside it. The rest of the library calls this table and never tests which carrier it
 * is. The table of a room above this one is declared here. Operations that may be NULL say so, and conn.h has a
 * function for each of them that does what NULL stands for. Unless an operation says otherwise, the connection is
 * upgraded, fd is its descriptor, no turn is held, errors are -errno, and the call does not wait.
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
struct signals_mark;
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
    /* Adds its counts to r. */
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

    /* Decodes what has arrived, for the stream. */
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
     * The thread that slept with the turn is gone: counts the bytes that the kernel delivered to it. False: that cannot
     * be done. NULL: there is nothing to count.
     */
    bool (*rx_mend)(struct conn *c, int fd);
    /* A recv of the program's is over. NULL: nothing. */
    void (*after_recv)(struct sock *s, struct conn *c, int fd);

    /* ---- sending; tx held ---- */

    /* As send(2), without the signal. ran: from the call's begin; NULL: it may not wait. */
    ssize_t (*send)(struct sock *s, struct conn *c, int fd, struct iov_iter *it, size_t len, int flags,
                    const struct signals_mark *ran);
    /* As conn_tx_flush. */
    int (*flush)(struct conn *c, int fd);
    /* Does TCP's FIN alone tell the peer of an end of the program's? NULL: never. */
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
    /* Before a tail is sent: takes in what the tail waits for. NULL: nothing. */
    void (*before_tail)(struct sock *s, int fd);
    /* Takes in what an end that is still to be sent waits for. True: it is still to be sent. NULL: unchanged. */
    bool (*end_owed)(struct sock *s, int fd);
    /*
     * Have both directions ended, though the kernel may not know? Then shutdown(2) gives ENOTCONN. NULL: the kernel
     * knows.
     */
    bool (*over)(struct conn *c, int fd);
    /*
     * The program closes its last descriptor, or exits: delivers what the program has sent. It may wait for
     * SOCKWARP_LINGER_MS.
     */
    void (*close)(struct sock *s, struct conn *c, int fd, bool exits);

    /* ---- readiness ---- */

    /*
     * A hidden descriptor that shows, beside the socket, that something has arrived; -1: none. NULL: only the socket
     * does.
     */
    int (*chan)(const struct conn *c);
    /* As ready_now. Takes turns briefly. */
    short (*ready)(struct sock *s, int fd, short want, short kernel, short *ask);
    /*
     * The events (EPOLL*) of the socket that a set asks the kernel for, for a registration with these events. Any
     * thread.
     */
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
