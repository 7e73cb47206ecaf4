/*
 * The user's folder in memory, BOARD_FOLDER: for files that only processes of this user share. It belongs to the effective
 * user alone, mode 0700, or it is not used.
 */
#ifndef SW_PRELOAD_FOLDER_H
#define SW_PRELOAD_FOLDER_H

#include "core/base/must.h"

/*
 * Makes it, if it is not there. Returns a descriptor of it, to be closed by rawsys_close, or -1. By system calls without
 * libc; errno is not touched. Any thread, handlers.
 */
int folder_open(void) SW_MUST;

#endif
