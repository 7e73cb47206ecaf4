/*
 * --explain: what was decided for a connection, and where the program made it.
 */
#ifndef SW_PRELOAD_EXPLAIN_H
#define SW_PRELOAD_EXPLAIN_H

#include <stddef.h>
#include <sys/socket.h>

/* One line about a decision for the socket fd, with the program's call site; to the log, too. errno stays. Any thread. */
void explain_decision(int fd, const char *role, const struct sockaddr_storage *peer, const char *decision,
                      unsigned reason);
/* A line for standard error, unless that is an upgraded connection: its frames would be damaged. Async-signal-safe. */
void explain_to_stderr(const char *line, size_t len);

#endif
