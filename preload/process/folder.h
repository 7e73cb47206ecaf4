/*
 * The user's folder in memory, BOARD_FOLDER: for files that only processes of this user share. It belongs to the effective
 * user alone, mode 0700, or it is not used.
 */
#ifndef SW_PRELOAD_FOLDER_H
#define SW_PRELOAD_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

/*
 * Makes it, if it is not there. Returns a descriptor of it, to be closed by rawsys_close, or -1. By system calls without
 * libc; errno is not touched. Any thread, handlers.
 */
int folder_open(void) SW_MUST;
/*
 * Opens the file `name` of it, of `len` octets, which the processes of this user share; `make`: to be written, and made
 * if it is not there, its memory reserved. It is a file in memory, which is empty when the host starts, belongs to the
 * effective user and has mode 0600, or -1 is returned; likewise in the sandbox. What stands in it may be anything.
 * Close by rawsys_close. As folder_open for the rest.
 */
int folder_file(const char *name, size_t len, bool make) SW_MUST;

#endif
