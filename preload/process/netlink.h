/*
 * Questions to the kernel by netlink.
 */
#ifndef SW_PRELOAD_NETLINK_H
#define SW_PRELOAD_NETLINK_H

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A descriptor, to be closed, or -1 with errno. */
int netlink_open(int protocol);
/* Room for the answer about one route, or about one socket without extensions (a thread's stack may be small). */
#define NETLINK_ANSWER_LEN 1024u
/*
 * Asks and reads one answer into buf. Returns its header, also that of an error; or NULL, also if it is longer than cap.
 */
const struct nlmsghdr *netlink_ask(int fd, const void *req, size_t len, void *buf, size_t cap);

/* Asks for a list and calls `each` with each entry until it returns false. True: the list was read to its end. */
bool netlink_dump(int protocol, const void *req, size_t len, bool (*each)(const struct nlmsghdr *h, void *arg),
                  void *arg);

struct inet_diag_msg;
struct inet_diag_sockid;
/* A thread of this process goes to another network namespace. */
void netlink_leaves_network(void);
/*
 * The kernel's description of the TCP socket with these addresses and ports (without a peer's: a listener); the cookie
 * is ignored. 1; 0: there is none, and out is zero; -errno: the kernel cannot be asked.
 */
int netlink_find_tcp(int family, const struct inet_diag_sockid *id, struct inet_diag_msg *out);

/*
 * fd is a TCP connection to a socket of this network namespace. Has this end received all bytes that were written at
 * the other end before the call, and has the other kernel socket been told so? (False: not yet, or it cannot be found
 * out.)
 */
bool netlink_peer_is_through(int fd);
/* Does a process have the other end? None does before a program has accepted it, and after it was closed. */
bool netlink_peer_is_held(int fd);
/*
 * The cookie (SO_COOKIE) of the TCP socket with these two ends, in this network namespace; or of the listener that would
 * get such a connection. As netlink_find_tcp.
 */
int netlink_cookie(const struct sockaddr_storage *local, const struct sockaddr_storage *remote, uint64_t *cookie);
/*
 * fd is connected to a listener of this host that answered by a SYN cookie. Has the kernel no socket, and no request,
 * for it at the other end? (False, too, where it cannot be found out.)
 */
bool netlink_peer_is_unknown(int fd);
/*
 * May bytes be sent to the other end without harm? They may if a process has it, and it has not ended its side, or all
 * that it has sent is here: a closed socket answers bytes by a reset, which destroys what is under way from there. 1,
 * 0; -ENOENT: the peer is not on this host, or it cannot be found out. Waits at most 5 ms for an end that is on its
 * way. local, remote: the two ends.
 */
int netlink_peer_may_be_told(int fd, const struct sockaddr_storage *local, const struct sockaddr_storage *remote);

#endif
