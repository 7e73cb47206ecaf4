/* What keeps a service from running under sockwarp, and what it needs for it. */
#ifndef SW_TOOLS_UNIT_CHECK_H
#define SW_TOOLS_UNIT_CHECK_H

#include "core/base/must.h"
#include "tools/unit_file.h"

struct unit_needs {
    bool system_calls; /* io_uring is not allowed there, and asking for it may end the service: SOCKWARP_IO=syscall */
    char *preload;     /* what its LD_PRELOAD holds already, NULL = nothing; the caller frees it */
};

/*
 * Prints a line for each obstacle ("in the way: ...") and each thing to know ("note: ..."). root as for unit_read; lib:
 * the library's name in that system; stats: the file for statistics, or NULL. Returns the number of obstacles.
 */
unsigned unit_check(const char *root, const struct unit *u, const char *lib, const char *stats,
                    struct unit_needs *needs) SW_MUST;

/* The absolute name of the first program that the service starts, "" if it has none or it is not known. */
void unit_check_program(const char *root, const struct unit *u, char path[PATH_MAX]);

#endif
