/* The preload library: where it is, and its place in LD_PRELOAD. */
#ifndef SW_TOOLS_LIBRARY_H
#define SW_TOOLS_LIBRARY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/must.h"

/*
 * SOCKWARP_LIBRARY if set; else in the build tree this program runs from; else where it is
 * installed. path (PATH_MAX bytes) gets its absolute name. 0, or -errno with a line for the user
 * in err: -ENOENT and the like if it cannot be read, -ENOEXEC if it is no shared object, -EINVAL if
 * LD_PRELOAD cannot hold its name.
 */
int library_find(char *path, char *err, size_t cap) SW_MUST;

/* A file of the sources, by its name in them, if this program runs from a build tree: its absolute name. */
bool library_source(const char *name, char path[PATH_MAX]) SW_MUST;

/*
 * A new value for LD_PRELOAD: lib first if add is set, then what old (may be NULL) holds, without lib and without
 * empty elements. The caller frees it. Exits when memory is out.
 */
char *library_preload(const char *old, const char *lib, bool add) SW_MUST;

#endif
