/*
 * Rules from the environment: (role, address, port) -> action and options. First match wins (DESIGN
 * section 8).
 *
 *   RULES   = RULE *( ";" RULE )            blanks around words are free; empty rules are skipped
 *   RULE    = role address[:port] action *( key=value )
 *   role    = connect | accept | any
 *   address = * | private | IPv4[/prefix] | IPv6[/prefix] | [IPv6[/prefix]]:port
 *   port    = N | N-M | *
 *   action  = off | auto | require
 *   key     = transport crc markers rtr ird ord ord-min model fpdu ring notify startup dialect self hello
 *             ask mark meet
 *
 * connect: address and port are the peer's. accept: the local ones of the accepted connection (or
 * of the listener). IPv4-mapped IPv6 addresses match IPv4 rules, and only those ("::/0" does not
 * match them). private: addresses that are not routed between networks (RFC 1918, RFC 6598's shared ones, RFC 3927,
 * RFC 4193, link-local of RFC 4291, loopback, the wildcard), and for connect also this host's own. Bits of an address behind its prefix are ignored. Words are case-sensitive; an
 * option may be given once a rule.
 *
 * Parsed once; read-only afterwards, so no lock.
 */
#ifndef SW_POLICY_POLICY_H
#define SW_POLICY_POLICY_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/must.h"

enum policy_role { POLICY_CONNECT = 1, POLICY_ACCEPT = 2, POLICY_ANY = 3 };
enum policy_action { POLICY_OFF, POLICY_AUTO, POLICY_REQUIRE };

struct policy_opts {
    uint8_t transports;    /* HELLO_TRANSPORT_* allowed; default all built in but verbs. iwarp|verbs|shm, joined
                            with +; those not built in fall out, none left is an error */
    bool crc;              /* default true. crc=on|off */
    bool markers;          /* default false. markers=on|off */
    uint8_t rtr;           /* MPA_RTR_* allowed; default all. rtr=send|write|read, joined with + */
    uint8_t rtr_pref[3];   /* in the order given; default send, write, read */
    uint16_t ird, ord;     /* default 8, 8; 0..16383 (16383: MPA_IRD_ORD_NONE) */
    uint16_t ord_min;      /* accept: the least that is accepted; ord is at least that. ord-min=0..16, default 0 */
    bool client_server;    /* connect: no RTR. model=peer-to-peer|client-server; default peer-to-peer */
    uint32_t fpdu_len;     /* largest ULPDU: 128..64768 (default); 0 = emss, as large as one segment.
                            fpdu=N|emss */
    uint32_t ring_len;     /* 64K..1G, suffix K M G; default 1M. ring=N */
    bool notify_immediate; /* notify=send|immediate; default send */
    bool immediate;        /* startup=delayed|separate|immediate; default delayed */
    bool separate;         /* with Hellos, and the frames not part of them */
    bool rtr_frame;        /* dialect=rfc|rtr-frame; default rfc */
    bool self;             /* self=on|off; default off */
    bool hello_always;     /* hello=auto|always; default auto */
    bool ask_always;       /* ask=marked|always; default marked */
    bool mark;             /* mark=on|off; default on */
    bool meet;             /* meet=on|off; default on */
};

struct policy_rule {
    enum policy_role role;
    int family;   /* AF_UNSPEC: any */
    bool private; /* only private addresses; family is AF_UNSPEC */
    uint8_t addr[16];
    uint8_t prefix; /* bits */
    uint16_t port_lo, port_hi;
    enum policy_action action;
    struct policy_opts opts;
    uint32_t column; /* where it stands in the text, from 1 */
};

struct policy {
    struct policy_rule *rules; /* malloc'd */
    size_t n;
    /*
     * Is it this host's own address? Asked for `connect private` of AF_INET and AF_INET6 addresses that no list has.
     * NULL (as policy_parse leaves it): none is. Must be async-signal-safe.
     */
    bool (*is_own)(const struct sockaddr *addr);
};

struct policy_error {
    size_t column;  /* from 1, into the whole text */
    char text[160]; /* names the bad word */
};

/* The options when a rule says nothing. transports: what is built in. */
struct policy_opts policy_default_opts(uint8_t transports);

/*
 * Parses text into *out (which policy_free releases). defaults: options a rule starts from. 0,
 * -EINVAL with *err, -ENOMEM. On error *out is empty.
 */
int policy_parse(const char *text, const struct policy_opts *defaults, struct policy *out,
                 struct policy_error *err) SW_MUST;
void policy_free(struct policy *p);

/*
 * The rule for a connection, or NULL (nothing matches: leave it alone). role: POLICY_CONNECT or
 * POLICY_ACCEPT. AF_INET and AF_INET6 addresses only; others match nothing. Async-signal-safe.
 */
const struct policy_rule *policy_match(const struct policy *p, enum policy_role role, const struct sockaddr *addr,
                                       socklen_t addr_len);

/*
 * Could any connection of a listener bound to addr match? For listeners bound to a wildcard address
 * an accept rule for any local address counts. Returns the first rule that could match and is not
 * off, or NULL.
 */
const struct policy_rule *policy_match_listener(const struct policy *p, const struct sockaddr *addr,
                                                socklen_t addr_len);

#endif
