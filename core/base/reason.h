/*
 * Reason codes: why a connection was upgraded or stayed plain. One table; the names appear in statistics, logs,
 * --explain and man page, the numbers travel in HelloNak (so they never change meaning; new ones go at the end).
 */
#ifndef SW_BASE_REASON_H
#define SW_BASE_REASON_H

/*  X(symbol, number, "name", "what it means") */
#define REASON_LIST(X)                                                                                          \
    X(NONE, 0, "none", "not decided yet")                                                                       \
    X(UPGRADED, 1, "upgraded", "carried as RDMAP messages")                                                     \
    X(POLICY, 2, "policy-off", "a rule says off")                                                               \
    X(NO_LOCAL_SHIM, 3, "no-local-shim", "the listener on this host does not run sockwarp")                     \
    X(CACHED_PLAIN, 4, "cached-plain", "this peer answered plainly a short while ago")                          \
    X(SELF, 5, "self", "the listener belongs to the same process")                                              \
    X(HELLO_TIMEOUT, 6, "hello-timeout", "no answer to the Hello in time")                                      \
    X(HELLO_GARBAGE, 7, "hello-garbage", "the peer answered the Hello with other bytes")                        \
    X(HELLO_CLOSED, 8, "hello-closed", "the peer closed or reset after the Hello")                              \
    X(HELLO_NAK, 9, "hello-nak", "the peer declined")                                                           \
    X(PEER_PLAIN, 10, "peer-plain", "the client's first bytes are not a Hello")                                 \
    X(SPOKE_FIRST, 11, "spoke-first", "no Hello came while the program was sending or receiving")               \
    X(MPA_FAILED, 12, "mpa-failed", "the MPA startup failed")                                                   \
    X(MPA_REJECTED, 13, "mpa-rejected", "the peer rejected the MPA request")                                    \
    X(STD_FD, 14, "std-fd", "file descriptors 0 to 2 are not upgraded")                                         \
    X(SHARED_FD, 15, "shared-fd", "the descriptor was duplicated, passed or inherited while negotiating")       \
    X(FASTOPEN, 16, "fastopen", "TCP Fast Open is in use")                                                      \
    X(ZEROCOPY, 17, "zerocopy", "SO_ZEROCOPY is set (a peer of an older version)")                              \
    X(ULP, 18, "tcp-ulp", "an upper layer protocol (kTLS) is set")                                              \
    X(MPTCP, 19, "mptcp", "the socket is not plain TCP")                                                        \
    X(OWN_URING, 20, "own-io-uring", "the program drives sockets through its own io_uring")                     \
    X(EPOLL_KIND, 21, "epoll-kind", "the program waits in an epoll set by system calls of its own")             \
    X(URGENT, 22, "urgent", "the program uses urgent data")                                                     \
    X(NO_MEMORY, 23, "no-memory", "memory or descriptors ran out")                                              \
    X(TRANSPORT, 24, "no-transport", "no common transport")                                                     \
    X(NOT_CONNECTED, 25, "not-connected", "connect() failed")                                                   \
    X(STDIO, 26, "stdio", "a stdio stream was opened on the descriptor")                                        \
    X(EXEC, 27, "exec", "the descriptor goes to another program by exec")                                       \
    X(PEER_LIMIT, 28, "peer-limit", "the peer's parameters are outside what is supported")                      \
    X(OFF, 29, "off", "sockwarp is switched off in this process")                                               \
    X(CLOSED, 30, "closed", "closed before the startup was over")                                               \
    X(WITHDRAWN, 31, "withdrawn", "the listener's program did not answer in time")                              \
    X(SANDBOX, 32, "sandbox", "the program has put itself under a seccomp filter")                              \
    X(DEVICE_NONE, 33, "device-none", "there is no RDMA device, or the libraries for it are missing")           \
    X(DEVICE_ADDRESS, 34, "device-address", "no RDMA device has the connection's address")                      \
    X(DEVICE_PEER, 35, "device-peer", "the peer did not offer an RDMA device")                                  \
    X(DEVICE_FAILED, 36, "device-failed", "the connection by the RDMA device failed")                           \
    X(DEVICE_TIMEOUT, 37, "device-timeout", "the connection by the RDMA device took too long")                  \
    X(DEVICE_FORKED, 38, "device-forked", "the process was forked from one that uses an RDMA device")           \
    X(DEVICE_MEMORY, 39, "device-memory", "memory for the RDMA device ran out (RLIMIT_MEMLOCK)")                \
    X(DEVICE_KIND, 40, "device-kind", "the two ends' RDMA devices are of kinds that do not go together")        \
    X(STAMPS, 41, "timestamps", "the program wants to know when bytes went or came")                            \
    X(VERSION, 42, "version", "the peer's Hello is of a version, or asks for something, that is not known")     \
    X(UNMARKED, 43, "unmarked", "a listener of another host has not said that it runs sockwarp")                \
    X(DEFER_ACCEPT, 44, "defer-accept", "the listener waits for the client's first bytes (TCP_DEFER_ACCEPT)")   \
    X(DELAYED_ACK, 45, "delayed-ack", "the program delays the handshake's last acknowledgement (TCP_QUICKACK)") \
    X(BACKLOG_FULL, 46, "backlog-full", "the listener's backlog was full, and the Hello was dropped")           \
    X(FILTER, 47, "socket-filter", "the socket has a filter (SO_ATTACH_FILTER)")

enum reason {
#define X(sym, num, name, text) REASON_##sym = (num),
    REASON_LIST(X)
#undef X
};

/* Never NULL; "unknown" for numbers not in the table. */
const char *reason_name(unsigned reason);
const char *reason_text(unsigned reason);

#endif
