/*
 * What the launcher is asked to start: can LD_PRELOAD reach it? Looks at the file as the kernel and
 * the dynamic linker will.
 */
#ifndef SW_TOOLS_TARGET_H
#define SW_TOOLS_TARGET_H

#include <limits.h>

#include "core/base/must.h"

enum target_kind {
    TARGET_DYNAMIC, /* LD_PRELOAD works; or it cannot be looked at, and exec will say why */
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

#endif
