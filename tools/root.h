/* Names in a system below a folder: with --root, names mean files below that folder. */
#ifndef SW_TOOLS_ROOT_H
#define SW_TOOLS_ROOT_H

#include <stdbool.h>

#include "core/base/must.h"

/*
 * The name, in this process's view, of the file that the absolute name `path` has in the system below root ("" is this
 * system). Symbolic links and ".." mean what they mean to a process for which root is /, so that nothing outside of it
 * is reached; a last one is followed if `last` is set. A part that does not exist keeps its name. Links that form a
 * circle give a name that no file can have. The caller frees it.
 */
char *root_path(const char *root, const char *path, bool last) SW_MUST;

#endif
