/* Names in a system below a folder: what --root names stands for / there. */
#ifndef SW_TOOLS_ROOT_H
#define SW_TOOLS_ROOT_H

#include <stdbool.h>

#include "core/base/must.h"

/*
 * The name here of what path, an absolute name, is in the system below root ("" is this one). Symbolic links and ".."
 * mean what they mean to a process for which root is /, so that nothing outside of it is reached; a last one is
 * followed if `last` is set. What is not there keeps its name. Links that lead in a circle give a name that no file can
 * have. The caller frees it.
 */
char *root_path(const char *root, const char *path, bool last) SW_MUST;

#endif
