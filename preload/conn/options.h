/*
 * The socket options that are not the kernel's alone: the one list by which they are told apart, and from which
 * sockwarp(7) has its table (scripts/reasons --update).
 */
#ifndef SW_PRELOAD_OPTIONS_H
#define SW_PRELOAD_OPTIONS_H

#include <errno.h>
#include <stdint.h>

#include "core/base/reason.h"

/* What is done with it; preload/calls/opts.c. Those without code of their own are OTHER. */
enum option_what {
    OPTION_NONE, /* not in the list: the kernel's */
    OPTION_ERROR,
    OPTION_RCVLOWAT,
    OPTION_PEEK_OFF,
    OPTION_OOBINLINE,
    OPTION_INQ,
    OPTION_NODELAY,
    OPTION_CORK,
    OPTION_LINGER,
    OPTION_RCVTIMEO,
    OPTION_SNDTIMEO,
    OPTION_HOPS,
    OPTION_MAXSEG,
    OPTION_SAVE_SYN,
    OPTION_DEFER_ACCEPT,
    OPTION_QUICKACK,
    OPTION_SENDS_STAMPS, /* with flags for sends alone it is the kernel's */
    OPTION_ZEROCOPY,
    OPTION_ZC_RECEIVE,
    OPTION_OTHER,
};

/* Marks. */
enum {
    OPTION_SHOWN = 1,   /* the program sees another value than the kernel's */
    OPTION_LISTENS = 2, /* also of a listener */
    OPTION_PAIRS = 4,   /* behind a bridge: that of the program's end */
    OPTION_FRAME = 8,   /* how long frames may be depends on it: conn_frame_fit */
    OPTION_IF_SET = 16, /* the reason holds for a value other than 0 */
};

/*
 * X(level, name, OPTION_, marks, REASON_ for which a connection stays plain where it is set before the upgrade, 0 or
 * the error where it is set later, text). An empty text: it stands in the entry of the one before.
 */
#define OPTION_LIST(X)                                                                                                 \
    X(SOL_SOCKET, SO_ERROR, ERROR, OPTION_SHOWN | OPTION_PAIRS, NONE, 0, "As with TCP.")                               \
    X(SOL_SOCKET, SO_LINGER, LINGER, 0, NONE, 0, "")                                                                   \
    X(SOL_SOCKET, SO_OOBINLINE, OOBINLINE, OPTION_SHOWN, NONE, 0, "")                                                  \
    X(SOL_SOCKET, SO_PEEK_OFF, PEEK_OFF, OPTION_SHOWN | OPTION_PAIRS, NONE, 0, "")                                     \
    X(SOL_SOCKET, SO_RCVLOWAT, RCVLOWAT, OPTION_SHOWN | OPTION_PAIRS, NONE, 0, "")                                     \
    X(SOL_SOCKET, SO_RCVTIMEO_OLD, RCVTIMEO, OPTION_PAIRS, NONE, 0, "")                                                \
    X(SOL_SOCKET, SO_RCVTIMEO_NEW, RCVTIMEO, OPTION_PAIRS, NONE, 0, "")                                                \
    X(SOL_SOCKET, SO_SNDTIMEO_OLD, SNDTIMEO, OPTION_PAIRS, NONE, 0, "")                                                \
    X(SOL_SOCKET, SO_SNDTIMEO_NEW, SNDTIMEO, OPTION_PAIRS, NONE, 0, "")                                                \
    X(IPPROTO_TCP, TCP_CORK, CORK, OPTION_SHOWN, NONE, 0, "")                                                          \
    X(IPPROTO_TCP, TCP_NODELAY, NODELAY, OPTION_SHOWN, NONE, 0, "")                                                    \
    X(IPPROTO_TCP, TCP_INQ, INQ, 0, NONE, 0, "As with TCP; the control message counts the program's bytes.")           \
    X(IPPROTO_TCP, TCP_MAXSEG, MAXSEG, OPTION_SHOWN | OPTION_LISTENS, NONE, 0,                                         \
      "As with TCP; a listener for which a program sets it says no more that it runs sockwarp.")                       \
    X(IPPROTO_TCP, TCP_SAVE_SYN, SAVE_SYN, OPTION_SHOWN | OPTION_LISTENS, NONE, 0,                                     \
      "As with TCP, also where the library has set it for a listener.")                                                \
    X(IPPROTO_IP, IP_TTL, HOPS, 0, NONE, 0, "As with TCP, also where a client's SYN says by it that a Hello follows.") \
    X(IPPROTO_IPV6, IPV6_UNICAST_HOPS, HOPS, 0, NONE, 0, "")                                                           \
    X(SOL_SOCKET, SO_SNDBUF, OTHER, OPTION_FRAME, NONE, 0, "The kernel's; frames are no longer than suits it.")        \
    X(SOL_SOCKET, SO_SNDBUFFORCE, OTHER, OPTION_FRAME, NONE, 0, "")                                                    \
    X(SOL_SOCKET, SO_MAX_PACING_RATE, OTHER, OPTION_FRAME, NONE, 0, "")                                                \
    X(IPPROTO_TCP, TCP_NOTSENT_LOWAT, OTHER, OPTION_FRAME, NONE, 0, "")                                                \
    X(SOL_SOCKET, SO_TIMESTAMP_OLD, OTHER, OPTION_IF_SET, STAMPS, ENOPROTOOPT,                                         \
      "The connections of such a listener stay plain, too. Only the times at which bytes are sent may be "             \
      "asked for later (SO_TIMESTAMPING): those are the kernel's, and SOF_TIMESTAMPING_OPT_ID numbers them "           \
      "by octets of frames. A control message that asks for the times of one sendmsg(2) fails with EINVAL.")           \
    X(SOL_SOCKET, SO_TIMESTAMP_NEW, OTHER, OPTION_IF_SET, STAMPS, ENOPROTOOPT, "")                                     \
    X(SOL_SOCKET, SO_TIMESTAMPNS_OLD, OTHER, OPTION_IF_SET, STAMPS, ENOPROTOOPT, "")                                   \
    X(SOL_SOCKET, SO_TIMESTAMPNS_NEW, OTHER, OPTION_IF_SET, STAMPS, ENOPROTOOPT, "")                                   \
    X(SOL_SOCKET, SO_TIMESTAMPING_OLD, SENDS_STAMPS, OPTION_IF_SET, STAMPS, ENOPROTOOPT, "")                           \
    X(SOL_SOCKET, SO_TIMESTAMPING_NEW, SENDS_STAMPS, OPTION_IF_SET, STAMPS, ENOPROTOOPT, "")                           \
    X(SOL_SOCKET, SO_ATTACH_FILTER, OTHER, 0, FILTER, 0,                                                               \
      "The connections of such a listener stay plain, too. A filter that is set later sees frames.")                   \
    X(SOL_SOCKET, SO_ATTACH_BPF, OTHER, 0, FILTER, 0, "")                                                              \
    X(IPPROTO_TCP, TCP_ULP, OTHER, 0, ULP, EOPNOTSUPP, "Kernel TLS, for one; programs do without.")                    \
    X(IPPROTO_TCP, TCP_FASTOPEN_CONNECT, OTHER, OPTION_IF_SET, FASTOPEN, 0, "TCP Fast Open.")                          \
    X(IPPROTO_TCP, TCP_DEFER_ACCEPT, DEFER_ACCEPT, 0, NONE, 0, "The connections of such a listener stay plain.")       \
    X(IPPROTO_TCP, TCP_QUICKACK, QUICKACK, 0, NONE, 0,                                                                 \
      "As with TCP; a client that switches it off before connect(2) stays plain.")                                     \
    X(SOL_SOCKET, SO_ZEROCOPY, ZEROCOPY, 0, NONE, 0,                                                                   \
      "Bytes are copied, and the error queue says so. On a device the answer is EOPNOTSUPP.")                          \
    X(IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, ZC_RECEIVE, 0, NONE, 0,                                                       \
      "Nothing is mapped: recv_skip_hint is the number of bytes to be received by other calls.")

struct option {
    uint8_t what;   /* enum option_what */
    uint8_t marks;  /* OPTION_SHOWN … */
    uint8_t reason; /* enum reason */
    int refused;    /* errno, 0: not refused */
};

/* That option's part of the list. No lock. */
struct option option_of(int level, int name);

#endif
