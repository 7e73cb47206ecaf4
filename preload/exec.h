/*
 * fork and exec: what of our knowledge goes to children and to the next program.
 */
#ifndef SW_PRELOAD_EXEC_H
#define SW_PRELOAD_EXEC_H

/* Before a fork, and before the locks of sock.c and drive.c are taken for it: stops sends, counts the child in. */
void exec_before_fork(void);

/* At start: takes over accepted connections the previous program left untouched (SOCKWARP_INHERIT). */
void exec_inherit(void);

#endif
