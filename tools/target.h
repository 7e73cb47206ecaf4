/*
 * What the launcher is asked to start: can LD_PRELOAD reach it? Looks at the file as the kernel and
 * the dynamic linker will.
 */
#ifndef SW_TOOLS_TARGET_H
#define SW_TOOLS_TARGET_H

#include <limits.h>
#include <stdbool.h>

#include "core/base/must.h"

enum target_kind {
    TARGET_DYNAMIC, /* LD_PRELOAD works; or the file cannot be examined, and exec will report why */
    TARGET_STATIC,  /* no dynamic linker: LD_PRELOAD means nothing to it */
    TARGET_SECURE,  /* gains privileges: the dynamic linker ignores LD_PRELOAD */
    TARGET_FOREIGN, /* the dynamic linker of another C library (musl …) refuses ours */
    TARGET_MACHINE, /* another word size or processor than the library */
};

struct target {
    enum target_kind kind;
    char path[PATH_MAX];   /* the ELF file that decided it; for a script its interpreter */
    char interp[PATH_MAX]; /* its dynamic linker, "" if none */
};

/*
 * Finds name as execvp(3) does (PATH if it has no '/') and sets *t. 0, or -errno as execvp would
 * fail: -ENOENT, -EACCES.
 */
int target_find(const char *name, struct target *t) SW_MUST;

/*
 * The same for the absolute name path of the system below root ("" is this one), whichever user runs it: kind is never
 * TARGET_SECURE. path and interp are names in that system. -EINVAL: not absolute, or too long.
 */
int target_find_in(const char *root, const char *path, struct target *t) SW_MUST;

/* Does the ELF file t->path below root ask the dynamic linker for a library whose name begins with name? */
bool target_needs(const char *root, const struct target *t, const char *name) SW_MUST;

#endif
