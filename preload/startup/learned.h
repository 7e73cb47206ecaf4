/*
 * What the processes of a user have learned: which peers of other hosts are plain, so that a client that is started
 * again and again asks such a peer once. The file is LEARNED_FILE in the user's folder, VERDICT_SLOTS records of struct
 * verdict_entry; whoever writes it can do no more than keep this user's connections plain.
 */
#ifndef SW_PRELOAD_LEARNED_H
#define SW_PRELOAD_LEARNED_H

#include <stdbool.h>
#include <sys/socket.h>

#define LEARNED_FILE "plain.1" /* another layout has another name */

/*
 * Did a process of this user find peer plain, on the network that the socket fd is on, for less time than
 * SOCKWARP_VERDICT_TTL_S makes of it? Six system calls, so it is asked just before a Hello would be sent. errno stays.
 * Any thread, handlers.
 */
bool learned_plain(const struct sockaddr *peer, int fd);
/* Tells the other processes that it is. Likewise. */
void learned_tell(const struct sockaddr *peer, int fd);

#endif
