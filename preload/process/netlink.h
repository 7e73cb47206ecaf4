/*
 * Questions to the kernel by netlink.
 */
#ifndef SW_PRELOAD_NETLINK_H
#define SW_PRELOAD_NETLINK_H

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* A descriptor, to be closed, or -1 with errno. */
int netlink_open(int protocol);
/*
 * Room for the answer about one route, or one socket without what may be asked for beside (a thread's stack may be
 * small).
 */
#define NETLINK_ANSWER_LEN 1024u
/* Asks and reads one answer into buf. Returns its header, or NULL (one that is longer than cap, too). */
const struct nlmsghdr *netlink_ask(int fd, const void *req, size_t len, void *buf, size_t cap);

/* Asks for a list, and calls `each` with what comes until that returns false. True: that was all of it. */
bool netlink_dump(int protocol, const void *req, size_t len, bool (*each)(const struct nlmsghdr *h, void *arg),
                  void *arg);

struct inet_diag_msg;
struct inet_diag_sockid;
/*
 * The TCP socket of these addresses and ports (no peer's: a listener), as the kernel tells; the cookie is not looked
 * at. 1; 0: there is none, and out is zero; -errno: there is no asking.
 */
int netlink_find_tcp(int family, const struct inet_diag_sockid *id, struct inet_diag_msg *out);

/*
 * fd is a TCP connection with a socket of this network namespace. Has this end received, and the other one been told
 * so, all that was given to that one before the call? (False: not yet, or it cannot be found out.)
 */
bool netlink_peer_is_through(int fd);
/* Has a process the other end? Not before a program has accepted it, nor when it was closed. */
bool netlink_peer_is_held(int fd);
/*
 * And does what is sent there now harm nothing? It has not ended its side, or all it has sent is here: the kernel
 * answers what comes to a closed socket by a reset, which destroys what is under way from there. 1, 0; -ENOENT: it is
 * none of this host's, or cannot be found out. It waits 5 ms at most for an end that is on its way. local, remote: the
 * two ends.
 */
int netlink_peer_may_be_told(int fd, const struct sockaddr_storage *local, const struct sockaddr_storage *remote);

#endif
