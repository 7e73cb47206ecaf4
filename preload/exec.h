/*
 * fork and exec: what of our knowledge goes to children and to the next program.
 */
#ifndef SW_PRELOAD_EXEC_H
#define SW_PRELOAD_EXEC_H

#include <stdbool.h>

/* Around fork; the locks of sock.c and drive.c are taken by their own functions after this one. */
void exec_before_fork(void);
void exec_after_fork(bool child);

/* At start: takes over accepted connections the previous program left untouched (SOCKWARP_INHERIT). */
void exec_inherit(void);

#endif
