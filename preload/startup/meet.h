/*
 * Where the two ends of a connection on one host meet, beside the connection: a file in memory (folder.h) that the
 * processes of one user map. The initiator puts its Hellos there before it connects, under the cookie of its socket
 * (SO_COOKIE), which no other socket ever has. The process that accepts asks the kernel (sock_diag) for the socket at the
 * other end, finds the record by its cookie, and puts the answer there before its program's first byte. So nothing goes
 * on the connection, and no process waits: a process that does not look, or has no library, is one that has not answered.
 *
 *   FREE --initiator--> ASKED --responder--> ANSWERING --> ANSWERED --initiator--> FREE
 *                          \--initiator gives up--> FREE   \--initiator gives up--> LEFT --responder--> FREE
 *
 * A record's word has the cookie and the state, and each move is a compare-exchange of the whole: whether an answer was
 * given before the initiator gave up is one fact for both ends. What is read here is checked as what comes from the
 * network is: processes of the same user may write it.
 *
 * Any thread; no locks, no waiting (but meet_give_up), errno untouched.
 */
#ifndef SW_PRELOAD_MEET_H
#define SW_PRELOAD_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "core/base/must.h"

#define MEET_ASK_MAX 256u
#define MEET_ANSWER_MAX 176u

/* One initiator's record. at: 0: it has none. */
struct meet {
    uint64_t cookie;
    uint32_t at;
};

/* ---- listeners: under the names they have (local_key.h) ---- */

/* The network (SO_NETNS_COOKIE) of a socket, which the others want; 0: it cannot be told, and there is nothing to meet by. */
uint64_t meet_netns(int fd);
/* The same of a socket that this thread has made by socket(2); asked once, unless threads change their networks. */
uint64_t meet_own_netns(int fd);
/* A socket of it listens, or is about to: processes of this user that connect to it may put records. */
void meet_listens(uint64_t netns, const struct sockaddr_un *name, socklen_t len);
/* The opposite: also if the processes that accept may not look. */
void meet_listens_no_more(uint64_t netns, const struct sockaddr_un *name, socklen_t len);
/* Does a listener of this name look here? */
bool meet_is_known(uint64_t netns, const struct sockaddr_un *name, socklen_t len);

/* ---- the initiator ---- */

/* Before it connects. False: there is no room, or no such file. */
bool meet_ask(struct meet *m, int fd, uint64_t netns, const uint8_t *hellos, size_t len);
/* It is connected: from now on the record can be told from one whose connection is gone. */
void meet_connected(const struct meet *m, const struct sockaddr_storage *local, const struct sockaddr_storage *peer);
/* The length of the answer; 0: there is none yet; -ENOENT: the record is not there. */
ssize_t meet_look(const struct meet *m, uint8_t answer[MEET_ANSWER_MAX]) SW_MUST;
/*
 * No answer is wanted any more. True: there is none, and never will be. False: it was given before. Waits, for a second
 * at most, while one is being written.
 */
bool meet_give_up(struct meet *m) SW_MUST;
/* The record is not needed: its answer was read, or the connection is gone. */
void meet_give(struct meet *m);

/* ---- the responder ---- */

/* What the initiator at the other end has put, and m for the answer. Its length; 0: nothing. */
size_t meet_find(struct meet *m, const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                 uint8_t hellos[MEET_ASK_MAX]);
/* False: the initiator has given up. */
bool meet_answer(const struct meet *m, const uint8_t *answer, size_t len) SW_MUST;

/* ---- the process ---- */

/* Does it have the file? */
bool meet_is_used(void);
/*
 * It gives up rights: what others do here is not for it from now on. Its other threads, if it has any, stand still
 * (others.h), and may be in the middle of any of these functions.
 */
void meet_part(void);
/* In the child of a fork. */
void meet_after_fork(void);

#endif
