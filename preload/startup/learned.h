/*
 * Which peers of other hosts were found to be plain. The process has a table of them. The processes of a user tell each
 * other, so that a client that is started again and again asks such a peer once, by a file: LEARNED_FILE in the user's
 * folder, VERDICT_SLOTS records of struct verdict_entry. Whoever writes it can do no more than keep this user's
 * connections plain.
 *
 * fd is a socket on the peer's network. errno stays. Any thread, handlers.
 */
#ifndef SW_PRELOAD_LEARNED_H
#define SW_PRELOAD_LEARNED_H

#include <stdbool.h>
#include <sys/socket.h>

#define LEARNED_FILE "plain.1" /* another layout has another name */

/* Did this process find the peer plain, for less time than SOCKWARP_VERDICT_TTL_S makes of it? */
bool learned_here(const struct sockaddr *peer, int fd);
/* Did any process of this user? A dozen system calls, so it is asked just before a Hello would be sent. */
bool learned_by_user(const struct sockaddr *peer, int fd);
/* It was found to be plain: remembers that, for all of them. */
void learned_add(const struct sockaddr *peer, int fd);
/* A marked peer has answered: its mark is no accident, so it is known for one that runs sockwarp. */
void learned_answers(const struct sockaddr *peer);
/* Did it answer this process? (Now and then yes of a peer that did not.) No system call. */
bool learned_has_answered(const struct sockaddr *peer);
/* In the child of a fork. */
void learned_after_fork(void);

#endif
