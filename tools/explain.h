/* sockwarp explain [CODE]...: what a reason code means, and what to do about it. */
#ifndef SW_TOOLS_EXPLAIN_H
#define SW_TOOLS_EXPLAIN_H

#include "core/base/must.h"

/*
 * Prints the reason codes that are named (by name or number), or all in the order of their numbers
 * if count is 0. 0; -EINVAL if one is none of ours: then nothing is printed, and *unknown is that word.
 */
int explain_print(char *const *codes, int count, const char **unknown) SW_MUST;

#endif
