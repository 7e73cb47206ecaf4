/* The kernel's facts about a TCP socket. One system call each; no lock, async-signal-safe. */
#ifndef SW_PRELOAD_TCPINFO_H
#define SW_PRELOAD_TCPINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TCP_ESTABLISHED and so on (<netinet/tcp.h>); -1: fd is no TCP socket. */
int tcpinfo_state(int fd);
/* Has the peer ended its side, with no reset so far? */
bool tcpinfo_peer_closed(int fd);
/*
 * Bytes of the stream that the kernel has received and that it was given to send, by its own count. False: fd is no TCP
 * socket.
 */
bool tcpinfo_totals(int fd, uint64_t *rx, uint64_t *tx);
/* Bytes that the kernel has received and that were not read; -1: fd is no socket of a kind that has them. */
int tcpinfo_queued(int fd);
/*
 * Bytes of the stream that were read from fd so far, also while more arrive; tx as above.
 */
bool tcpinfo_taken(int fd, uint64_t *taken, uint64_t *tx);
/*
 * Resets the connection (connect(2), AF_UNSPEC): the peer is told, nothing that came is left to read, which shutdown() would leave. The
 * descriptor stays open.
 */
void tcpinfo_reset(int fd);
/* Segments with data that have arrived, and the bytes of them that were accepted. Another kind of socket: 0. */
struct tcpinfo_input {
    uint64_t octets;
    uint32_t segments;
};
struct tcpinfo_input tcpinfo_input_of(int fd);
/* Has the peer's kernel acknowledged all that was sent? */
bool tcpinfo_acked_all(int fd);
/* Has it acknowledged fewer bytes of the stream, for certain? */
bool tcpinfo_lacks(int fd, uint64_t octets);
/* Bytes a second that TCP sends at most, as it reckons the path now; UINT64_MAX: not known. */
uint64_t tcpinfo_rate(int fd);
/* The segments that a connection sends. */
struct tcpinfo_segment {
    uint32_t octets;      /* of the stream in each */
    uint32_t options_len; /* bytes of TCP options in each */
    uint32_t path_mtu;
};
/* False: fd is no TCP socket, or the kernel may not be asked. */
bool tcpinfo_segment(int fd, struct tcpinfo_segment *out);
/* Bytes that fit a TCP segment of this connection now (RFC 5044: EMSS). */
size_t tcpinfo_emss(int fd);

#endif
